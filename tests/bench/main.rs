//! `make bench`: kiteline beside a plain Rust loop on the same job, in one run, in rotation, with a control of each.
//!
//! The job is Kafka → decode → `amount *= 1.1` → Kafka, at least once, four partitions. Each runner is a process of its own.
//! **Records per own CPU-second**: user and system time of that process from its start to its end, start-up included, as the kernel
//! sums it up for ended children (in steps of 10 ms). **Records a second**: between the broker's own time stamps of the first and the
//! last record in the sink; broker and runner share the machine. `NAME@2` is the same runner once more in each round: how far two
//! equal things lie apart here. Every output is checked: number, values, and order within each source partition.
//!
//! `bench [--records N] [--rounds N]`; `make bench BENCH="--records 1000000"`. Needs `KITELINE_KAFKA_BOOTSTRAP`, which make sets.

mod native;
mod runner;
mod sink;

use std::{env, process::ExitCode};

use kiteline_tests::{kafka, orders};

use self::runner::{Kind, Measured};

/// Partitions of source and sink.
const PARTITIONS: u64 = 4;

/// What the amounts are multiplied by.
const FACTOR: f64 = 1.1;

/// The runners of each round; the control of each is the same again.
const RUNNERS: [(&str, Kind); 4] = [
    ("native", Kind::Native),
    ("kiteline", Kind::Kiteline),
    ("native@2", Kind::Native),
    ("kiteline@2", Kind::Kiteline),
];

/// Records to do, and how often.
struct Wanted {
    records: u64,
    rounds: usize,
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["native", from, to, group] = args[..] {
        native::run(from, to, group);
        return ExitCode::SUCCESS;
    }
    let Some(wanted) = wanted(&args) else {
        eprintln!("usage: bench [--records 1..100000000] [--rounds 1..100]");
        return ExitCode::from(2);
    };
    let source = kafka::unique("bench-in");
    kafka::create_topic(&source, PARTITIONS as i32, &[]);
    let fill = (0..wanted.records).map(|n| orders::record(n, (n % PARTITIONS) as i32, order(n, 1.0)));
    kafka::send_with(&source, fill, &[("linger.ms", "20"), ("queue.buffering.max.messages", "500000")]);
    eprintln!(
        "{} records of {} bytes in the source; a first run of each is not counted",
        wanted.records,
        order(0, 1.0).len()
    );
    for (name, kind) in &RUNNERS[..2] {
        report(name, &runner::run(kind, &source, wanted.records));
    }
    let mut results: Vec<Vec<Measured>> = RUNNERS.iter().map(|_| Vec::new()).collect();
    for round in 0..wanted.rounds {
        for turn in 0..RUNNERS.len() {
            // who runs first changes, so that nobody always follows the same one
            let at = (turn + round) % RUNNERS.len();
            let measured = runner::run(&RUNNERS[at].1, &source, wanted.records);
            report(RUNNERS[at].0, &measured);
            results[at].push(measured);
        }
    }
    kafka::delete_topic(&source);
    runner::clean();
    table(&wanted, &results);
    ExitCode::SUCCESS
}

fn wanted(args: &[&str]) -> Option<Wanted> {
    let mut wanted = Wanted { records: 500_000, rounds: 3 };
    for pair in args.chunks(2) {
        match *pair {
            ["--records", n] => wanted.records = n.parse().ok().filter(|n| (1..=100_000_000).contains(n))?,
            ["--rounds", n] => wanted.rounds = n.parse().ok().filter(|n| (1..=100).contains(n))?,
            _ => return None,
        }
    }
    Some(wanted)
}

/// The n-th order, its amount times `factor`: about 200 bytes.
fn order(n: u64, factor: f64) -> Vec<u8> {
    let id = format!("order-{n:09}-7d5a2a10-93c1-4c86-8e51-{n:012x}-a-long-name-of-an-order-that-fills-up-the-record");
    orders::datum_named(&id, n, (n % 100) as i32, (n % 100_000) as f64 / 100.0 * factor)
}

fn report(name: &str, m: &Measured) {
    eprintln!(
        "  {name}: {:.0} k/s in the sink, {:.0} k per own CPU-second",
        m.per_second / 1e3,
        m.per_cpu_second / 1e3
    );
}

fn table(wanted: &Wanted, results: &[Vec<Measured>]) {
    println!("{} records, {} rounds: median [min - max]\n", wanted.records, wanted.rounds);
    println!("| runner | k records per own CPU-second | native = 1 | k records a second in the sink | native = 1 |");
    println!("| --- | --- | --- | --- | --- |");
    let of = |at: usize, what: fn(&Measured) -> f64| Spread::of(results[at].iter().map(what).collect());
    for (at, (name, _)) in RUNNERS.iter().enumerate() {
        let cell = |what: fn(&Measured) -> f64| {
            let (own, native) = (of(at, what), of(0, what));
            format!("{:.0} [{:.0} - {:.0}] | {:.2}", own.median, own.min, own.max, own.median / native.median)
        };
        println!("| {name} | {} | {} |", cell(|m| m.per_cpu_second / 1e3), cell(|m| m.per_second / 1e3));
    }
}

struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(mut list: Vec<f64>) -> Self {
        list.sort_by(f64::total_cmp);
        let half = list.len() / 2;
        let median = if list.len() % 2 == 1 { list[half] } else { f64::midpoint(list[half - 1], list[half]) };
        Self { median, min: list[0], max: list[list.len() - 1] }
    }
}
