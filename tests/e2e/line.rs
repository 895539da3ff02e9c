//! The line, end to end: nothing lost, order kept, checkpoints at the log end, however often processes die.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kiteline_tests::{
    app::{App, Settings},
    kafka::{self, Rec, create_topic, read_all, unique},
    orders::datum,
    process::Process,
    wait,
};

/// The n-th order: half of them are dropped by the filter, every 5,000th cannot be decoded.
fn order(n: u64, partitions: u64) -> Rec {
    let value = if n % 5_000 == 77 { vec![0xff; 5] } else { datum(n, if n.is_multiple_of(2) { 50 } else { 5 }, 1.0) };
    Rec {
        partition: i32::try_from(n % partitions).expect("small"),
        key: Some(n.to_be_bytes().to_vec()),
        value: Some(value),
        ..Rec::default()
    }
}

fn number(record: &Rec) -> u64 {
    u64::from_be_bytes(record.key.as_deref().expect("a key").try_into().expect("eight bytes"))
}

/// What must hold of the sinks: every order's outcome is there once or more, and first outputs are in order.
fn check(sink: &[Rec], dead: &[Rec], orders: u64, partitions: u64) -> u64 {
    let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
    let mut last: BTreeMap<(u64, i32), u64> = BTreeMap::new();
    for record in sink {
        let n = number(record);
        let times = seen.entry(n).or_default();
        *times += 1;
        if *times == 1 {
            let before = last.insert((n % partitions, record.partition), n);
            assert!(before.is_none_or(|b| b < n), "order {n} stands behind {before:?}");
        }
    }
    for record in dead {
        *seen.entry(number(record)).or_default() += 1;
    }
    let expected = |n: &u64| n % 5_000 == 77 || n.is_multiple_of(2);
    let missing: Vec<u64> = (0..orders).filter(expected).filter(|n| !seen.contains_key(n)).take(10).collect();
    assert!(missing.is_empty(), "lost: {missing:?} ...");
    let extra: Vec<&u64> = seen.keys().filter(|n| !expected(n)).take(10).collect();
    assert!(extra.is_empty(), "should have been dropped: {extra:?}");
    seen.values().map(|n| u64::from(*n - 1)).sum()
}

/// 200,000 records, 4 partitions, two processes of one group, five of them killed at random while they work.
#[test]
fn nothing_is_lost_when_processes_are_killed() {
    const ORDERS: u64 = 200_000;
    let [from, to, dead] = ["orders", "kept", "dead"].map(unique);
    create_topic(&from, 4, &[]);
    create_topic(&to, 4, &[]);
    create_topic(&dead, 1, &[]);
    let mut settings = Settings::new("filter", &from, &to, &dead);
    settings.config = r#"threshold = "10""#.into();
    let app = App::write(&settings);
    let mut processes: Vec<Option<Process>> = (0..2).map(|n| Some(app.run(n, &[]))).collect();
    let sender = {
        let from = from.clone();
        std::thread::spawn(move || {
            for chunk in 0..40 {
                kafka::send(&from, (chunk * ORDERS / 40..(chunk + 1) * ORDERS / 40).map(|n| order(n, 4)));
            }
        })
    };
    let mut dice = 0x6b69_7465_u64 ^ u64::from(std::process::id());
    let mut roll = move |below: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % below
    };
    for kill in 1..=5u64 {
        // each kill comes when a further share of the input is checkpointed, at a moment drawn by chance
        wait::until("progress before a kill", Duration::from_secs(120), || {
            let done: i64 = app.checkpoints().iter().map(|(_, next, _)| next).sum();
            (u64::try_from(done).expect("not negative") >= ORDERS * kill / 8).then_some(())
        });
        let pause = Instant::now() + Duration::from_millis(roll(400));
        wait::until("the moment of the kill", Duration::from_secs(5), || (Instant::now() >= pause).then_some(()));
        let victim = usize::try_from(roll(2)).expect("small");
        processes[victim].take().expect("it runs").kill();
        processes[victim] = Some(app.run(victim, &[]));
    }
    sender.join().expect("all orders are sent");
    let ends = kafka::ends(&from);
    let reached = || app.checkpoints().iter().map(|(_, next, _)| *next).collect::<Vec<_>>() == ends;
    wait::until("checkpoints at the log ends", Duration::from_secs(180), || reached().then_some(()));
    for process in processes.into_iter().flatten() {
        process.stop(Duration::from_secs(40));
    }
    let (sink, letters) = (read_all(&to), read_all(&dead));
    let repeated = check(&sink, &letters, ORDERS, 4);
    assert!(
        letters.iter().all(|r| kafka::header(r, "kiteline.stage") == "decode"),
        "dead letters say where they come from"
    );
    println!("{ORDERS} orders, five kills: {repeated} repeated, 0 lost");
}
