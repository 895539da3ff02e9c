//! What is away: said, waited for, and nothing lost when it is back.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use kiteline_tests::{
    app::{App, Settings, Topics, line, names},
    kafka::{self, create_topic, read_all, send, wait_for},
    orders::{datum, numbers, order, record},
    process::Process,
    service::Service,
    wait,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Nothing listens there.
const NOWHERE: &str = "127.0.0.1:1";

/// Whatever is away at the start is named, and a stop ends the wait in order.
#[test]
fn what_is_not_there_is_waited_for_and_named() {
    let (topics, settings) = line("identity", 1);
    let check = |settings: Settings, event: &str, words: &[&str]| {
        let app = App::write(&settings);
        let process = app.run(0, &[]);
        process.wait_for_log(&format!("[{event}]"), LIMIT);
        let log = process.log_text();
        let line = log.lines().find(|l| l.contains(event)).expect("it was just found");
        for word in words {
            assert!(line.contains(word), "no {word:?} in: {line}");
        }
        process.stop(LIMIT);
    };
    check(Settings { bootstrap: NOWHERE.into(), ..settings.clone() }, "source.waiting", &["waiting for", &topics.from]);
    check(
        Settings { zookeeper: NOWHERE.into(), ..settings.clone() },
        "checkpoint.waiting",
        &["waiting for the checkpoint store"],
    );
    let absent = kafka::unique("absent");
    check(
        Settings { topics: vec![absent.clone()], ..settings.clone() },
        "source.waiting",
        &[&absent, "kiteline setup"],
    );
    let sinks = format!("[[pipeline.p.sink]]\nkind = \"kafka\"\ntopic = \"{absent}\"\n");
    check(Settings { sinks, ..settings }, "sink.waiting", &[&absent, "kiteline setup"]);
}

/// Case 23: while a sink is not there nothing is committed; `latest` is pinned when the pipeline is accepted, not when it polls.
#[test]
fn case_23_nothing_moves_before_the_sink_is_there() {
    for (start, waiting, outputs) in [("earliest", 500, 503), ("latest", 500, 3)] {
        let topics = names();
        create_topic(&topics.from, 1, &[]);
        create_topic(&topics.dead, 1, &[]);
        send(&topics.from, (0..waiting).map(|n| order(n, 0)));
        let mut settings = Settings::new("identity", &topics.from, &topics.to, &topics.dead);
        settings.start = start.into();
        let app = App::write(&settings);
        let process = app.run(0, &[]);
        process.wait_for_log("[sink.waiting]", LIMIT);
        send(&topics.from, (500..503).map(|n| order(n, 0)));
        assert_eq!(app.checkpoint(&topics.from, 0), None, "{start}: nothing is committed without a sink");
        create_topic(&topics.to, 1, &[]);
        app.wait_for_checkpoint(&topics.from, 0, 503, LIMIT);
        process.stop(LIMIT);
        let came = numbers(&read_all(&topics.to));
        let expected: Vec<u64> = (503 - outputs..503).collect();
        assert_eq!(came, expected, "{start}");
    }
}

/// Case 19, the topic for dead letters vanishes: the partition waits, nothing is lost, and it goes on when the topic is back.
#[test]
fn case_19_without_a_dead_letter_topic_the_partition_waits() {
    let (topics, mut settings) = line("identity", 1);
    settings.kafka_properties = "\"topic.metadata.refresh.interval.ms\" = \"500\"\n".into();
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    send(&topics.from, [order(0, 0)]);
    app.wait_for_checkpoint(&topics.from, 0, 1, LIMIT);
    kafka::delete_topic(&topics.dead);
    send(&topics.from, [record(1, 0, vec![0xff, 0xff]), order(2, 0)]);
    process.wait_for_log("[source.rewound]", LIMIT);
    assert_eq!(app.checkpoint(&topics.from, 0), Some(1), "nothing passes a dead letter that is not written");
    create_topic(&topics.dead, 1, &[]);
    let letters = wait_for(&topics.dead, 1, LIMIT);
    assert_eq!(letters[0].value.as_deref(), Some(&[0xff, 0xff][..]));
    app.wait_for_checkpoint(&topics.from, 0, 3, LIMIT);
    process.stop(LIMIT);
}

/// Sends orders all the while something happens to the services, and checks that each came out, in order.
fn nothing_is_lost(settings: &Settings, topics: &Topics, happens: impl FnOnce(&Process)) {
    let app = App::write(settings);
    let process = app.run(0, &[]);
    let over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            kafka::use_broker(&settings.bootstrap);
            let mut sent = 0;
            loop {
                let last = over.load(SeqCst);
                send(&topics.from, (sent..sent + 100).map(|n| order(n, 0)));
                sent += 100;
                if last {
                    return sent;
                }
            }
        });
        wait_for(&topics.to, 1, LIMIT);
        happens(&process);
        over.store(true, SeqCst);
        sender.join().expect("all orders are sent")
    });
    app.wait_for_checkpoint(&topics.from, 0, i64::try_from(sent).expect("small"), Duration::from_secs(90));
    process.stop(LIMIT);
    let all = numbers(&read_all(&topics.to));
    let mut first = Vec::new();
    // what comes for the first time comes in order
    for n in &all {
        if first.last().is_none_or(|last| n > last) {
            first.push(*n);
        }
    }
    assert_eq!(first, (0..sent).collect::<Vec<_>>());
    println!("{sent} orders, {} repeated", all.len() - first.len());
}

/// The leader of three ZooKeeper servers is killed while records flow.
#[test]
fn a_killed_zookeeper_leader_loses_nothing() {
    let ensemble = Service::zookeeper(3);
    let (topics, mut settings) = line("identity", 1);
    settings.zookeeper.clone_from(&ensemble.address);
    nothing_is_lost(&settings, &topics, |_| {
        let leader = ensemble.leader();
        ensemble.tell(&["stop", "--kill", "--node", &leader]);
        wait::until("another leader", LIMIT, || ensemble.try_tell(&["status"]).1.contains("leader").then_some(()));
        ensemble.tell(&["start", "--node", &leader]);
    });
}

/// The broker is killed and comes back while records flow.
#[test]
fn a_restarted_broker_loses_nothing() {
    let broker = Service::kafka();
    kafka::use_broker(&broker.address);
    let (topics, settings) = line("identity", 1);
    nothing_is_lost(&settings, &topics, |process| {
        broker.tell(&["stop", "--kill"]);
        process.wait_for_log("waiting for Kafka", LIMIT);
        broker.tell(&["start"]);
    });
}

/// Broker and checkpoint store away at once, longer than the session's proof: no new writes meanwhile, and on when both are back.
#[test]
fn both_stores_away_at_once() {
    let broker = Service::kafka();
    let ensemble = Service::zookeeper(1);
    kafka::use_broker(&broker.address);
    let (topics, mut settings) = line("identity", 1);
    settings.zookeeper.clone_from(&ensemble.address);
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    send(&topics.from, [order(0, 0)]);
    app.wait_for_checkpoint(&topics.from, 0, 1, LIMIT);
    ensemble.tell(&["stop", "--kill"]);
    broker.tell(&["stop", "--kill"]);
    process.wait_for_log("[checkpoint.held]", LIMIT);
    broker.tell(&["start"]);
    ensemble.tell(&["start"]);
    send(&topics.from, [record(1, 0, datum(1, 50, 1.0))]);
    app.wait_for_checkpoint(&topics.from, 0, 2, LIMIT);
    process.stop(LIMIT);
    let mut came = numbers(&read_all(&topics.to));
    came.dedup();
    assert_eq!(came, [0, 1]);
}
