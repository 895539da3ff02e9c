//! What decoding costs: nanoseconds per record of an order with 12 fields, read whole and pruned, in batches of 256 rows. Fastest and
//! median of many passes over a pool of different records, all plans interleaved, so that ratios hold on a loaded machine.
//! `cargo run --release -p kiteline-avro --example decode_speed [PASSES]`

use std::hint::black_box;
use std::time::Instant;

use kiteline_avro::{Limits, Plan, Schema};

const ORDER: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[
  {"name":"id","type":"string"},
  {"name":"ts","type":{"type":"long","logicalType":"timestamp-millis"}},
  {"name":"amount","type":"double"},
  {"name":"status","type":{"type":"enum","name":"Status","symbols":["NEW","PAID","SENT","DONE"]}},
  {"name":"note","type":["null","string"],"default":null},
  {"name":"address","type":{"type":"record","name":"Address","fields":[
    {"name":"street","type":"string"},{"name":"city","type":"string"},{"name":"zip","type":"string"}]}},
  {"name":"tags","type":{"type":"array","items":"string"}},
  {"name":"attrs","type":{"type":"map","values":"long"}},
  {"name":"digest","type":{"type":"fixed","name":"Digest","size":16}},
  {"name":"qty","type":"int"},
  {"name":"paid","type":"boolean"},
  {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}]}"#;
const QTY: &str = r#"{"type":"record","name":"shop.Order","fields":[{"name":"qty","type":"int"}]}"#;
const AMOUNT_CITY: &str = r#"{"type":"record","name":"shop.Order","fields":[{"name":"amount","type":"double"},
  {"name":"address","type":{"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}}]}"#;
const SIX: &str = r#"{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"string"},{"name":"ts","type":"long"},
  {"name":"amount","type":"double"},{"name":"qty","type":"int"},{"name":"tags","type":{"type":"array","items":"string"}},
  {"name":"address","type":{"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}}]}"#;
const POOL: usize = 16_384;
const BATCH: usize = 256;

fn main() {
    let passes = std::env::args().nth(1).map_or(40, |text| text.parse().expect("passes as a number"));
    let pool: Vec<Vec<u8>> = (0..POOL as u64).map(order).collect();
    let bytes: usize = pool.iter().map(Vec::len).sum();
    println!("{POOL} records, {} bytes each on average, batches of {BATCH}", bytes / POOL);
    let writer = Schema::parse(ORDER).expect("legal schema");
    let names = ["full", "qty (field 10)", "amount, address.city", "six fields"];
    let plans = [ORDER, QTY, AMOUNT_CITY, SIX].map(|reader| {
        let reader = Schema::parse(reader).expect("legal schema");
        Plan::compile(&writer, &reader, &Limits::default()).expect("schemas that match")
    });
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); plans.len() + 2];
    let mut buffer = Vec::new();
    for _ in 0..passes {
        for (plan, times) in plans.iter().zip(&mut times) {
            times.push(per_record(|| rows(plan, &pool, &mut buffer)));
        }
        times[plans.len()].push(per_record(|| {
            pool.iter().for_each(|datum| plans[0].check(datum).expect("a value"));
        }));
        times[plans.len() + 1].push(per_record(|| {
            for batch in pool.chunks(BATCH) {
                buffer.clear();
                batch.iter().for_each(|datum| buffer.extend_from_slice(datum));
                black_box(&buffer);
            }
        }));
    }
    for (name, times) in names.into_iter().chain(["check alone", "memcpy of the records"]).zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name:24} {:6.1} ns fastest {:6.1} ns median", times[0], times[times.len() / 2]);
    }
}

fn rows(plan: &Plan, pool: &[Vec<u8>], buffer: &mut Vec<u8>) {
    let frame = plan.layout().node(0).frame_bytes() as usize;
    for batch in pool.chunks(BATCH) {
        buffer.clear();
        buffer.resize(frame * batch.len(), 0);
        for (index, datum) in batch.iter().enumerate() {
            plan.decode(datum, buffer, index * frame, 4 << 20).expect("a value");
        }
        black_box(&buffer);
    }
}

fn per_record(pass: impl FnOnce()) -> f64 {
    let start = Instant::now();
    pass();
    start.elapsed().as_secs_f64() * 1e9 / POOL as f64
}

/// One order: an id of 36 characters, a note of 0 to 21 in half of them, three tags, two attributes.
fn order(seed: u64) -> Vec<u8> {
    const CITIES: [&str; 8] = ["Lisbon", "Hamburg", "Toulouse", "Rotterdam", "Oslo", "Krakow", "Valencia", "Turin"];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = |bound: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    };
    let mut out = Vec::new();
    text(
        &mut out,
        &format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            random(1 << 32),
            random(1 << 16),
            random(1 << 12),
            random(1 << 12),
            random(1 << 48)
        ),
    );
    long(&mut out, 1_790_000_000_000 + (seed * 997) as i64);
    out.extend((random(1_000_000) as f64 / 100.0).to_le_bytes());
    long(&mut out, random(4) as i64);
    match random(2) {
        0 => out.push(0),
        _ => {
            out.push(2);
            text(&mut out, &"leave it at the door!"[..random(22) as usize]);
        }
    }
    text(&mut out, &format!("{} Harbour Street, left door", random(400)));
    text(&mut out, CITIES[random(8) as usize]);
    text(&mut out, &format!("{:05}", random(100_000)));
    long(&mut out, 3);
    (0..3).for_each(|_| text(&mut out, &format!("category-{:03}", random(50))));
    out.push(0);
    long(&mut out, 2);
    for key in ["weight", "parcels"] {
        text(&mut out, key);
        long(&mut out, random(20_000) as i64);
    }
    out.push(0);
    (0..16).for_each(|_| out.push(random(256) as u8));
    long(&mut out, random(100) as i64);
    out.push(random(2) as u8);
    long(&mut out, 4);
    out.extend((random(100_000_000) as u32).to_be_bytes());
    out
}

fn long(out: &mut Vec<u8>, value: i64) {
    let mut raw = (value << 1 ^ value >> 63) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    long(out, text.len() as i64);
    out.extend_from_slice(text.as_bytes());
}
