//! The orders of the demo: the n-th is a function of n alone, so that whoever counts needs to remember nothing.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kiteline_connectors::sink::kafka::{KafkaSink, KafkaSinkConfig, SinkEvent};
use kiteline_engine::record::{OffsetRange, OutputBatch, OutputRecord, Record, RecordBatch, Span, TimestampKind};

use super::{ORDERS, SPOILT_EVERY};
use crate::error::{Failure, Problem};

/// Orders handed to the producer at a time.
const CHUNK: u64 = 500;
/// Chunks not acknowledged at a time.
const CHUNKS_OPEN: usize = 8;
/// Time over which the orders are spread: long enough for a swap and a kill to fall into the middle of the work.
const SPREAD: Duration = Duration::from_secs(8);
/// Time of the first order, in milliseconds since 1970; they are a millisecond apart.
const BEGAN_MS: i64 = 1_790_000_000_000;

/// Whether the n-th order is made so that it cannot be decoded.
pub(super) fn spoilt(n: u64) -> bool {
    n % SPOILT_EVERY == SPOILT_EVERY / 2
}

/// Quantity of the n-th order, 0 to 99; the plugin keeps those from 50 up.
pub(super) fn quantity(n: u64) -> i32 {
    i32::try_from(mix(n) % 100).unwrap_or(0)
}

fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x6b69_7465;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

fn long(out: &mut Vec<u8>, value: i64) {
    let mut z = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while z >= 0x80 {
        out.push((z & 0x7f) as u8 | 0x80);
        z >>= 7;
    }
    out.push(z as u8);
}

fn text(out: &mut Vec<u8>, value: &str) {
    long(out, i64::try_from(value.len()).unwrap_or(0));
    out.extend_from_slice(value.as_bytes());
}

/// Appends the datum of the n-th order in the field order of `plugins/order.avsc`.
fn order(n: u64, out: &mut Vec<u8>) {
    const CITIES: [&str; 8] = ["Lisbon", "Hamburg", "Toulouse", "Rotterdam", "Oslo", "Krakow", "Valencia", "Turin"];
    let r = mix(n ^ 0xA5A5);
    text(out, &format!("order-{n:012}"));
    long(out, BEGAN_MS + i64::try_from(n).unwrap_or(0));
    out.extend_from_slice(&((r % 100_000) as f64 / 100.0).to_le_bytes());
    long(out, (r >> 20 & 3).cast_signed());
    if r >> 24 & 1 == 0 {
        long(out, 0);
    } else {
        long(out, 1);
        text(out, "leave at the back door");
    }
    text(out, &format!("{} Harbour Street", 1 + (r >> 30) % 200));
    text(out, CITIES[(r >> 40 & 7) as usize]);
    text(out, &format!("{:05}", (r >> 28) % 100_000));
    long(out, 2);
    text(out, "express");
    text(out, "gift");
    long(out, 0);
    long(out, 1);
    text(out, "views");
    long(out, (r % 1_000).cast_signed());
    long(out, 0);
    out.extend_from_slice(&r.to_le_bytes());
    out.extend_from_slice(&(!r).to_le_bytes());
    long(out, quantity(n).into());
    out.push((r >> 50 & 1) as u8);
    long(out, 4);
    out.extend_from_slice(&[1, 2, 3, (r & 0xff) as u8]);
}

/// The thread that makes them.
pub(super) struct Maker {
    thread: Option<JoinHandle<()>>,
    done: Arc<AtomicBool>,
    quit: Arc<AtomicBool>,
}

/// Chunks that are not acknowledged yet, and whether one failed.
#[derive(Default)]
struct Open {
    chunks: usize,
    failed: bool,
}

impl Maker {
    /// Writes `records` orders to Kafka, at its own pace, spread evenly over the partitions.
    pub(super) fn start(bootstrap: &str, records: u64, partitions: i32) -> Result<Self, Failure> {
        let failed =
            |e: &dyn std::error::Error| Failure::from(Problem::new("demo.orders", "no orders can be made").cause(e));
        let open = Arc::new((Mutex::new(Open::default()), Condvar::new()));
        let shared = Arc::clone(&open);
        let config = KafkaSinkConfig { bootstrap_servers: bootstrap.into(), properties: Vec::new() };
        let sink = KafkaSink::start(config, move |event| {
            let mut open = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                SinkEvent::Acknowledged { .. } => open.chunks -= 1,
                SinkEvent::Refused { .. } | SinkEvent::Failed { .. } => {
                    open.chunks -= 1;
                    open.failed = true;
                }
                SinkEvent::Fatal(_) => open.failed = true,
                SinkEvent::Waiting(_) | SinkEvent::Recovered => {}
            }
            shared.1.notify_all();
        })
        .map_err(|e| failed(&e))?;
        let (done, quit) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_done, must_quit) = (Arc::clone(&done), Arc::clone(&quit));
        let body = move || {
            let (began, mut from) = (Instant::now(), 0);
            while from < records && !must_quit.load(SeqCst) {
                let until = (from + CHUNK).min(records);
                let mut open = open.0.lock().unwrap_or_else(PoisonError::into_inner);
                let early = began.elapsed().as_secs_f64() / SPREAD.as_secs_f64() < from as f64 / records as f64;
                if early || open.chunks >= CHUNKS_OPEN {
                    drop(open);
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                open.chunks += 1;
                drop(open);
                write(&sink, from, until, partitions);
                from = until;
            }
            sink.close(Duration::from_secs(20));
            is_done.store(true, SeqCst);
        };
        let thread = thread::Builder::new().name("orders".into()).spawn(body).map_err(|e| failed(&e))?;
        Ok(Self { thread: Some(thread), done, quit })
    }

    /// Whether all of them are made.
    pub(super) fn finished(&self) -> bool {
        self.done.load(SeqCst)
    }

    /// Ends it, finished or not.
    pub(super) fn close(&mut self) {
        self.quit.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Hands orders `from..until` to the producer.
fn write(sink: &KafkaSink, from: u64, until: u64, partitions: i32) {
    let mut bytes = Vec::with_capacity(256 * (until - from) as usize);
    let (mut records, mut outputs) = (Vec::new(), OutputBatch::default());
    for (index, n) in (0u32..).zip(from..until) {
        let key = push(&mut bytes, |out| out.extend_from_slice(&n.to_be_bytes()));
        let value = push(&mut bytes, |out| if spoilt(n) { out.extend_from_slice(&[0xff; 9]) } else { order(n, out) });
        let timestamp_ms = BEGAN_MS + i64::try_from(n).unwrap_or(0);
        records.push(Record {
            offset: index.into(),
            timestamp_ms,
            timestamp_kind: TimestampKind::Create,
            key,
            value,
            headers_at: 0,
            headers_count: 0,
        });
        outputs.records.push(OutputRecord {
            source: index,
            port: 0,
            topic: 0,
            partition: i32::try_from(n % partitions as u64).unwrap_or(0),
            timestamp_ms,
            key,
            value,
            headers_at: 0,
            headers_count: 0,
            headers_kept: true,
        });
    }
    let range = OffsetRange { from: 0, until: i64::try_from(records.len()).unwrap_or(0) };
    let source = RecordBatch { topic: "orders".into(), partition: 0, range, records, headers: Vec::new(), bytes };
    let all: Vec<u32> = (0..u32::try_from(outputs.records.len()).unwrap_or(0)).collect();
    sink.write(from, &source, &outputs, &all, ORDERS);
}

fn push(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Span {
    let off = bytes.len();
    write(bytes);
    let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Span { off: narrow(off), len: narrow(bytes.len() - off) }
}
