//! How a run ends: in order, in time, also while its topic vanishes; and what can be seen of it before.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

use kiteline_tests::{
    app::{App, line},
    kafka::{self, read_all, send, wait_for},
    orders::{numbers, order},
    wait,
};

const LIMIT: Duration = Duration::from_secs(60);
/// `member.grace_ms` of these tests.
const GRACE: Duration = Duration::from_secs(5);

/// A stop commits what was done, ends with 0 within the grace, and the next start repeats nothing.
#[test]
fn a_stop_commits_the_last_batch() {
    let (topics, mut settings) = line("identity", 2);
    settings.more = format!("[member]\ngrace_ms = {}", GRACE.as_millis());
    let app = App::write(&settings);
    // so rare that only the stop can have committed
    let process = app.run(0, &["--set", "checkpoint.interval_ms=60000"]);
    send(&topics.from, (0..10).map(|n| order(n, i32::from(n % 2 == 1))));
    wait_for(&topics.to, 10, LIMIT);
    let began = Instant::now();
    process.stop(LIMIT);
    assert!(began.elapsed() <= GRACE, "{:?}", began.elapsed());
    assert_eq!([0, 1].map(|p| app.checkpoint(&topics.from, p)), [Some(5), Some(5)]);
    assert!(app.checkpoints().iter().all(|(_, _, entry)| entry["released"] == true), "released for the next");
    app.run_until_end(LIMIT);
    let mut came = numbers(&read_all(&topics.to));
    came.sort_unstable();
    assert_eq!(came, (0..10).collect::<Vec<_>>());
}

/// A stop in the midst of a backlog: in order, in time, and nothing comes twice.
#[test]
fn a_stop_under_load_repeats_nothing() {
    const ORDERS: u64 = 60_000;
    let (topics, mut settings) = line("identity", 2);
    settings.more = format!("[member]\ngrace_ms = {}", GRACE.as_millis());
    // record by record, so that there is a midst
    settings.pipeline = "limits = { batch_records_max = 1 }".into();
    send(&topics.from, (0..ORDERS).map(|n| order(n, i32::from(n % 2 == 1))));
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    wait::until("the first output", LIMIT, || (kafka::ends(&topics.to)[0] > 0).then_some(()));
    let began = Instant::now();
    process.stop(LIMIT);
    assert!(began.elapsed() <= GRACE, "{:?}", began.elapsed());
    let written: i64 = kafka::ends(&topics.to).iter().sum();
    assert!(written < i64::try_from(ORDERS).expect("small"), "the stop came in the midst");
    let committed: i64 = app.checkpoints().iter().map(|(_, next, _)| next).sum();
    assert_eq!(committed, written, "what was written is committed");
    settings.pipeline.clear();
    app.configure(&settings);
    app.run_until_end(LIMIT);
    assert_eq!(kafka::ends(&topics.to), [i64::try_from(ORDERS).expect("small")]);
}

/// A member that joins and leaves in order while records flow: the work moves there and back, and nothing comes twice.
#[test]
fn a_member_that_comes_and_goes_repeats_nothing() {
    let (topics, settings) = line("identity", 4);
    let app = App::write(&settings);
    let over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0u64;
            while !over.load(SeqCst) {
                send(&topics.from, (sent..sent + 400).map(|n| order(n, i32::try_from(n % 4).expect("small"))));
                sent += 400;
            }
            i64::try_from(sent).expect("small")
        });
        let first = app.run(0, &[]);
        wait_for(&topics.to, 1, LIMIT);
        let second = app.run(1, &[]);
        second.wait_for_log("[checkpoint.claimed]", LIMIT);
        let log = second.log.clone();
        second.stop(LIMIT);
        let released = std::fs::read_to_string(log).unwrap_or_default();
        assert!(released.contains("[checkpoint.released]"), "{released}");
        over.store(true, SeqCst);
        let sent = sender.join().expect("all orders are sent");
        for partition in 0..4 {
            app.wait_for_checkpoint(&topics.from, partition, sent / 4, LIMIT);
        }
        first.stop(LIMIT);
        sent
    });
    let mut came = numbers(&read_all(&topics.to));
    for partition in 0..4 {
        let of: Vec<u64> = came.iter().copied().filter(|n| n % 4 == partition).collect();
        assert!(of.is_sorted(), "partition {partition} is in order");
    }
    came.sort_unstable();
    assert_eq!(came, (0..sent.cast_unsigned()).collect::<Vec<_>>());
}

/// Case 16: the topic is deleted in the moment of the stop: the process is gone in time all the same.
#[test]
fn case_16_a_stop_while_the_topic_is_deleted() {
    for round in 0..3 {
        let (topics, mut settings) = line("identity", 2);
        settings.more = format!("[member]\ngrace_ms = {}", GRACE.as_millis());
        let app = App::write(&settings);
        let process = app.run(0, &[]);
        send(&topics.from, (0..10).map(|n| order(n, i32::from(n % 2 == 1))));
        wait_for(&topics.to, 10, LIMIT);
        kafka::delete_topic(&topics.from);
        process.signal("TERM");
        let began = Instant::now();
        process.wait(LIMIT);
        assert!(began.elapsed() <= GRACE + Duration::from_secs(5), "round {round}: {:?}", began.elapsed());
        let mut came = numbers(&read_all(&topics.to));
        came.sort_unstable();
        assert_eq!(came, (0..10).collect::<Vec<_>>(), "round {round}");
    }
}

/// `kiteline status` beside a running pipeline, and after it.
#[test]
fn status_shows_members_and_lag() {
    let (topics, settings) = line("identity", 2);
    send(&topics.from, (0..10).map(|n| order(n, i32::from(n % 2 == 1))));
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    for partition in 0..2 {
        app.wait_for_checkpoint(&topics.from, partition, 5, LIMIT);
    }
    let said = app.status();
    let p = &said;
    assert_eq!(
        (p["run"].as_u64(), p["running"].as_bool(), p["lag"].as_u64()),
        (Some(1), Some(true), Some(0)),
        "{said}"
    );
    let members = app.members();
    assert_eq!(members.len(), 1, "{said}");
    assert!(members[0].ends_with(&format!("-{}", process.pid())), "{said}");
    assert!(p["partitions"].as_array().is_some_and(|l| l.iter().all(|e| e["owner"] == members[0].as_str())), "{said}");
    process.stop(LIMIT);
    send(&topics.from, [order(10, 0), order(11, 0)]);
    let said = app.status();
    let p = &said;
    assert_eq!((p["running"].as_bool(), p["lag"].as_u64()), (Some(false), Some(2)), "{said}");
}
