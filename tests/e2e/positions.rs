//! Where a pipeline goes on: new partitions and topics, topics made anew, work in flight at a kill, and what the stored node says.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use kiteline_tests::{
    app::{App, line},
    kafka::{self, add_partitions, create_topic, read_all, send, unique, wait_for},
    orders::{number, numbers, order},
    process::repository,
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Case 8: in a pipeline that has checkpoints, what is new begins at its beginning, whatever the first start was.
#[test]
fn case_08_new_partitions_and_topics_begin_at_their_beginning() {
    let (topics, mut settings) = line("identity", 1);
    settings.start = "latest".into();
    settings.kafka_properties = "\"topic.metadata.refresh.interval.ms\" = \"5000\"\n".into();
    send(&topics.from, (0..3).map(|n| order(n, 0)));
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    process.wait_for_log("[checkpoint.claimed]", LIMIT);
    send(&topics.from, (3..8).map(|n| order(n, 0)));
    app.wait_for_checkpoint(&topics.from, 0, 8, LIMIT);
    add_partitions(&topics.from, 2);
    // the client learns of the partition at its next refresh; these are there before
    wait::until("the partition", LIMIT, || (kafka::ends(&topics.from).len() == 2).then_some(()));
    send(&topics.from, (8..11).map(|n| order(n, 1)));
    app.wait_for_checkpoint(&topics.from, 1, 3, LIMIT);
    process.stop(LIMIT);
    let added = unique("added");
    create_topic(&added, 1, &[]);
    send(&added, (11..16).map(|n| order(n, 0)));
    settings.topics.push(added.clone());
    app.configure(&settings);
    app.run_until_end(LIMIT);
    assert_eq!(numbers(&read_all(&topics.to)), (3..16).collect::<Vec<_>>());
    // a topic that is not read any more keeps its checkpoint
    settings.topics.remove(0);
    app.configure(&settings);
    app.run_until_end(LIMIT);
    assert_eq!((app.checkpoint(&topics.from, 0), app.checkpoint(&added, 0)), (Some(8), Some(5)));
}

/// A topic of the same name that is another one: stopped, loudly, with what was wanted and what is there; or as the policy says.
#[test]
fn a_topic_made_anew_stops_its_partitions() {
    let (topics, mut settings) = line("identity", 1);
    send(&topics.from, (0..2).map(|n| order(n, 0)));
    let app = App::write(&settings);
    app.run_until_end(LIMIT);
    kafka::delete_topic(&topics.from);
    wait::until("the topic made anew", LIMIT, || kafka::try_create_topic(&topics.from, 1).then_some(()));
    // more records than the checkpoint says, so that its offset alone looks well
    send(&topics.from, (10..15).map(|n| order(n, 0)));
    let (code, log) = app.run_and_wait(0, &["--until-end"], LIMIT);
    assert_eq!(code, Some(4), "{log}");
    for words in ["[source.position-lost]", "made anew", "wanted=2", "log=0..5", "pipeline.stopped"] {
        assert!(log.contains(words), "no {words:?} in: {log}");
    }
    assert_eq!(app.checkpoint(&topics.from, 0), Some(2), "the position is kept for whoever decides");
    settings.pipeline = "on_lost_position = \"earliest\"".into();
    app.configure(&settings);
    let log = app.run_until_end(LIMIT);
    assert!(log.contains("going on at 0"), "{log}");
    assert_eq!(numbers(&read_all(&topics.to)), [0, 1, 10, 11, 12, 13, 14]);
    assert_eq!(app.checkpoint(&topics.from, 0), Some(5));
}

/// Case 17: the checkpoint stays below a record in work, though others go on, and a kill gives it back.
#[test]
fn case_17_a_record_in_work_is_not_passed() {
    let (topics, mut settings) = line("faulty-loop-forever", 2);
    settings.config = r#"on = "order-000000000""#.into();
    settings.transform = "limits = { call_deadline_ms = 60000 }".into();
    settings.more = "[member]\nworkers = 2".into();
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    send(&topics.from, (0..10).map(|n| order(n, 0)));
    send(&topics.from, (10..20).map(|n| order(n, 1)));
    app.wait_for_checkpoint(&topics.from, 1, 10, LIMIT);
    assert_eq!(app.checkpoint(&topics.from, 0), Some(0));
    process.kill();
    // another configuration beside a member that may live would be refused; the killed one vanishes with its session
    wait::until("the end of the killed member's session", LIMIT, || app.members().is_empty().then_some(()));
    settings.config = r#"on = "none""#.into();
    app.configure(&settings);
    app.run_until_end(LIMIT);
    let mut came = numbers(&read_all(&topics.to));
    came.sort_unstable();
    assert_eq!(came, (0..20).collect::<Vec<_>>());
}

/// The stored checkpoint, as ZooKeeper's own shell shows it.
#[test]
fn the_checkpoint_is_readable_with_zookeepers_own_shell() {
    let (topics, settings) = line("filter", 1);
    send(&topics.from, (0..7).map(|n| order(n, 0)));
    let app = App::write(&settings);
    app.run_until_end(LIMIT);
    let name = app.root.file_name().expect("a name").to_string_lossy().into_owned();
    let pipeline = format!("/e2e/kiteline/v1/apps/{name}/pipelines/p");
    let node = format!("{pipeline}/partitions/{}/0", topics.from);
    let checkpoint = read_node(&node);
    let at =
        |pointer: &str| checkpoint.pointer(pointer).cloned().unwrap_or_else(|| panic!("no {pointer}: {checkpoint}"));
    assert_eq!(at("/v"), 1);
    assert_eq!(at("/position/next_offset"), 7);
    assert_eq!(at("/position/why"), "commit");
    assert_eq!((at("/owner/generation"), at("/owner/released")), (1.into(), true.into()));
    assert_eq!((at("/plugin/revision"), at("/plugin/since")), (1.into(), 0.into()));
    assert_eq!(at("/authority"), "store");
    assert!(at("/topic/id").as_str().is_some_and(|id| !id.is_empty()), "{checkpoint}");
    for pointer in ["/owner/nonce", "/owner/member", "/owner/session", "/position/mark", "/position/at", "/checksum"] {
        at(pointer);
    }
    assert!(checkpoint.to_string().len() < 512, "{checkpoint}");
    assert_eq!(read_node(&format!("{pipeline}/run")).get("state"), Some(&Value::from("CLOSED")));
    let run = read_node(&format!("{pipeline}/runs/0000000001"));
    assert_eq!(
        (run["kind"].as_str(), run["state"].as_str(), run["release"].as_str()),
        (Some("RUN"), Some("FINISHED"), Some("test"))
    );
}

/// What `zkCli get` prints of a node.
fn read_node(path: &str) -> Value {
    let dir = std::env::var("KITELINE_ZK_DIR").expect("KITELINE_ZK_DIR: run this suite through `make e2e`");
    let script = repository().join("tests/services/zookeeper");
    let shell = Command::new(script).args(["cli", "--dir", &dir, "--", "get", path]).output().expect("the shell runs");
    let text = String::from_utf8_lossy(&shell.stdout);
    let json = text.lines().find(|line| line.starts_with('{'));
    let json = json.unwrap_or_else(|| panic!("{path}: {text}{}", String::from_utf8_lossy(&shell.stderr)));
    serde_json::from_str(json).expect("JSON")
}

/// Case 5: a record that takes longer than Kafka's patience with a silent member: reported, not lost, and the partition stays.
#[test]
fn case_05_slow_work_keeps_the_group() {
    let (topics, mut settings) = line("faulty-loop-forever", 1);
    settings.config = r#"on = "order-000000002""#.into();
    settings.transform = "limits = { call_deadline_ms = 8000 }".into();
    settings.pipeline = "limits = { stall_ms_max = 2000 }".into();
    settings.kafka_properties = "\"max.poll.interval.ms\" = \"6500\"\n".into();
    send(&topics.from, (0..5).map(|n| order(n, 0)));
    let app = App::write(&settings);
    let process = app.run(0, &[]);
    let began = Instant::now();
    let letters = wait_for(&topics.dead, 1, LIMIT);
    assert!(began.elapsed() > Duration::from_millis(6500), "it was as slow as it had to be");
    app.wait_for_checkpoint(&topics.from, 0, 5, LIMIT);
    let log = process.log_text();
    process.stop(LIMIT);
    assert_eq!(letters.iter().map(number).collect::<Vec<_>>(), [2]);
    assert_eq!(numbers(&read_all(&topics.to)), [0, 1, 3, 4]);
    assert_eq!(log.matches("[checkpoint.claimed]").count(), 1, "{log}");
    assert!(log.contains("[source.stalled]"), "{log}");
}
