//! Counting what comes out: which orders are there, how often, in which order, and under which version of the plugin.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, sync_channel},
    time::Duration,
};

use kiteline_connectors::source::kafka::{KafkaSource, KafkaSourceConfig, SourceCommand, SourceEvent};
use kiteline_engine::{
    ids::{FeedId, TopicPartition},
    record::RecordBatch,
};

use super::{
    DEAD_LETTERS, ENRICHED,
    orders::{quantity, spoilt},
};
use crate::error::{Failure, Problem};

/// Orders with less of them than this are dropped by the demo's plugin.
const THRESHOLD: i32 = 50;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Orders found in the sink.
    pub written: u64,
    /// Of these, how many carry the second version's mark.
    pub by_second: u64,
    /// Orders that the plugin drops by choice.
    pub dropped: u64,
    /// Orders found among the dead letters.
    pub dead_letters: u64,
    /// Outputs and dead letters beyond the first one of an order.
    pub repeated: u64,
    /// First outputs that stand before one of an earlier order of their partition.
    pub out_of_order: u64,
    /// Orders that should be there and are not, and others that should not be and are.
    pub missing: u64,
}

/// Reads the two sinks from their beginnings.
pub(super) struct Counter {
    source: KafkaSource,
    events: Receiver<SourceEvent>,
    /// How often each order was seen.
    seen: Vec<u8>,
    /// Partitions of the source; order n lies in partition n modulo this.
    partitions: u64,
    /// The last order that came, by source and sink partition.
    last: BTreeMap<(u64, i32), u64>,
    feeds: BTreeMap<FeedId, TopicPartition>,
    expected: u64,
    found: u64,
    tally: Tally,
}

impl Counter {
    pub(super) fn start(bootstrap: &str, records: u64, partitions: i32) -> Result<Self, Failure> {
        let (sender, events) = sync_channel(1_024);
        let config = KafkaSourceConfig {
            bootstrap_servers: bootstrap.into(),
            group: "demo-count".into(),
            topics: vec![ENRICHED.into(), DEAD_LETTERS.into()],
            instance_id: None,
            // the mock cluster tells of a new member with the next heartbeat
            properties: vec![
                ("session.timeout.ms".into(), "2000".into()),
                ("heartbeat.interval.ms".into(), "200".into()),
            ],
            batch_records_max: 1_000,
            batch_bytes_max: 1 << 20,
        };
        let source = KafkaSource::start(config, move |event| {
            let _ = sender.send(event);
        });
        let source =
            source.map_err(|e| Failure::from(Problem::new("demo.count", "the sinks cannot be read").cause(&e)))?;
        let kept = |n: &u64| spoilt(*n) || quantity(*n) >= THRESHOLD;
        let expected = (0..records).filter(kept).count() as u64;
        let tally = Tally { dropped: records - expected, ..Tally::default() };
        let seen = vec![0; usize::try_from(records).unwrap_or(0)];
        let partitions = u64::from(partitions.unsigned_abs());
        let (last, feeds) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { source, events, seen, partitions, last, feeds, expected, found: 0, tally })
    }

    /// Orders that must be in a sink in the end.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    /// Different orders found so far.
    pub(super) fn seen(&self) -> u64 {
        self.found
    }

    /// Whether every expected order was found.
    pub(super) fn complete(&self) -> bool {
        self.found >= self.expected
    }

    /// Takes what comes within this time.
    pub(super) fn wait(&mut self, time: Duration) {
        let until = std::time::Instant::now() + time;
        while let Ok(event) = self.events.recv_timeout(until.saturating_duration_since(std::time::Instant::now())) {
            self.take(event);
        }
    }

    fn take(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Assigned(list) => {
                self.source.send(SourceCommand::AnswerAssign(list.clone()));
                for partition in list {
                    let feed = FeedId(self.feeds.len() as u64 + 1);
                    self.feeds.insert(feed, partition.clone());
                    self.source.send(SourceCommand::Feed { partition: partition.clone(), feed, from: 0 });
                    self.source.send(SourceCommand::Fetch { partition, feed, credit: 4 });
                }
            }
            SourceEvent::Revoked(list) | SourceEvent::Lost(list) => self.source.send(SourceCommand::AnswerRevoke(list)),
            SourceEvent::Batch { feed, batch, .. } => {
                self.count(&batch);
                if let Some(partition) = self.feeds.get(&feed).cloned() {
                    self.source.send(SourceCommand::Fetch { partition, feed, credit: 1 });
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, batch: &RecordBatch) {
        for record in &batch.records {
            let key = record.key.of(&batch.bytes).and_then(|k| <[u8; 8]>::try_from(k).ok());
            let Some(n) = key.map(u64::from_be_bytes).filter(|n| (*n as usize) < self.seen.len()) else {
                self.tally.missing += 1;
                continue;
            };
            let letter = &*batch.topic == DEAD_LETTERS;
            if letter != spoilt(n) || (!letter && quantity(n) < THRESHOLD) {
                self.tally.missing += 1;
                continue;
            }
            let times = &mut self.seen[n as usize];
            *times = times.saturating_add(1);
            if *times > 1 {
                self.tally.repeated += 1;
                continue;
            }
            self.found += 1;
            if letter {
                self.tally.dead_letters += 1;
                continue;
            }
            self.tally.written += 1;
            let second = batch
                .headers_of(record)
                .iter()
                .any(|h| h.name.of(&batch.bytes) == Some(b"version") && h.value.of(&batch.bytes) == Some(b"v2"));
            self.tally.by_second += u64::from(second);
            // keys spread a source partition over several sink partitions: order holds for each pair of the two
            let lane = (n % self.partitions, batch.partition);
            let last = self.last.insert(lane, n);
            self.tally.out_of_order += u64::from(last.is_some_and(|last| last > n));
        }
    }

    pub(super) fn close(mut self) -> Tally {
        // what was repeated may still be on its way
        self.wait(Duration::from_millis(300));
        self.tally.missing += self.expected - self.found;
        self.source.close(Duration::from_secs(5));
        self.tally
    }
}
