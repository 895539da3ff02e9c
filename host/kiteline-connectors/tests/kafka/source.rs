//! The source: where it starts, what it hands over, and how it stops.

use std::time::Duration;

use kiteline_connectors::{
    Error,
    source::kafka::{KafkaSource, SourceCommand, SourceEvent},
};
use kiteline_engine::{
    ids::TopicPartition,
    record::{RecordBatch, TimestampKind},
};

use crate::support::{PATIENCE, Plain, Source, cluster, config, identity, numbers, plain, put};

#[test]
fn feeds_from_the_offset_it_is_told_in_order_to_the_end() {
    let mock = cluster(&[("in", 1)]);
    put(&mock, "in", 0, &numbers(0..25));
    let mut source = Source::start(config(&mock, &["in"]));
    let assigned = source.join();
    assert_eq!(assigned, [TopicPartition::new("in", 0)]);
    source.feed(&assigned[0], 1, 3, 100);
    let records = source.until_end(1, 3);
    let expected: Vec<(i64, Plain)> =
        numbers(0..25).into_iter().enumerate().skip(3).map(|(i, r)| (i as i64, r)).collect();
    assert_eq!(records, expected);

    // and on, as new records come
    put(&mock, "in", 0, &numbers(25..27));
    assert_eq!(source.until_end(1, 25).iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [25, 26]);
    assert!(source.source.close(PATIENCE));
}

#[test]
fn an_empty_partition_is_at_its_end_at_once() {
    let mock = cluster(&[("in", 1)]);
    let mut source = Source::start(config(&mock, &["in"]));
    let assigned = source.join();
    source.feed(&assigned[0], 1, 0, 1);
    let (batch, at_end) = source.batch(1);
    assert_eq!((batch.records.len(), batch.range.from, batch.range.until, at_end), (0, 0, 0, true));
}

#[test]
fn hands_over_no_more_batches_than_it_is_allowed() {
    let mock = cluster(&[("in", 1)]);
    put(&mock, "in", 0, &numbers(0..95));
    let mut source = Source::start(config(&mock, &["in"]));
    let assigned = source.join();
    source.feed(&assigned[0], 1, 0, 3);
    let mut count = 0;
    for _ in 0..3 {
        let (batch, _) = source.batch(1);
        assert!(batch.records.len() <= 10);
        count += batch.records.len();
    }
    source.turn("in");
    source.nothing_of(1);
    let feed = kiteline_engine::ids::FeedId(1);
    source.source.send(SourceCommand::Fetch { partition: assigned[0].clone(), feed, credit: 100 });
    assert_eq!(source.until_end(1, count as i64).len() + count, 95);
}

#[test]
fn a_batch_ends_with_the_record_that_passes_the_byte_goal() {
    let mock = cluster(&[("in", 1)]);
    put(&mock, "in", 0, &vec![Plain::value(vec![7; 400]); 9]);
    let mut config = config(&mock, &["in"]);
    config.batch_bytes_max = 1000;
    let mut source = Source::start(config);
    let assigned = source.join();
    source.feed(&assigned[0], 1, 0, 100);
    let mut seen = 0;
    while seen < 9 {
        let (batch, _) = source.batch(1);
        assert!(batch.records.len() <= 3, "{}", batch.records.len());
        seen += batch.records.len();
    }
}

#[test]
fn begins_anew_at_an_earlier_offset_and_drops_what_was_under_way() {
    let mock = cluster(&[("in", 1)]);
    put(&mock, "in", 0, &numbers(0..60));
    let mut source = Source::start(config(&mock, &["in"]));
    let assigned = source.join();
    source.feed(&assigned[0], 1, 20, 2);
    let (batch, _) = source.batch(1);
    assert_eq!(batch.range.from, 20);
    source.feed(&assigned[0], 2, 5, 100);
    let records = source.until_end(2, 5);
    assert_eq!(records.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), (5..60).collect::<Vec<_>>());
    // credit of the old feed means nothing any more
    let feed = kiteline_engine::ids::FeedId(1);
    source.source.send(SourceCommand::Fetch { partition: assigned[0].clone(), feed, credit: 9 });
    source.seen.clear();
    source.turn("in");
    source.nothing_of(1);
}

#[test]
fn a_stopped_partition_is_silent_and_its_neighbour_goes_on() {
    let mock = cluster(&[("in", 2)]);
    put(&mock, "in", 0, &numbers(0..5));
    put(&mock, "in", 1, &numbers(0..5));
    let mut source = Source::start(config(&mock, &["in"]));
    let assigned = source.join();
    source.feed(&assigned[0], 1, 0, 100);
    source.feed(&assigned[1], 2, 0, 100);
    source.until_end(1, 0);
    source.source.send(SourceCommand::Stop { partition: assigned[0].clone() });
    source.turn("in");
    source.seen.clear();
    put(&mock, "in", 0, &numbers(5..9));
    put(&mock, "in", 1, &numbers(5..9));
    let mut last = 0;
    while last < 9 {
        last = source.batch(2).0.range.until;
    }
    source.nothing_of(1);
    // and it can be fed again, from where it stopped
    source.feed(&assigned[0], 3, 5, 100);
    assert_eq!(source.until_end(3, 5).len(), 4);
}

/// Case 13, 14 and 15 of the fault cases: headers, nulls, keys and timestamps come out as they went in.
#[test]
fn records_are_handed_over_as_they_are() {
    let header = |name: &str, value: Option<&[u8]>| (name.as_bytes().to_vec(), value.map(<[u8]>::to_vec));
    let headers =
        vec![header("k", None), header("k", Some(b"")), header("k", Some(b"\xFF\xFE")), header("z", Some(b"\x01"))];
    let keys: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"\0\0\0\0\x07\x02a"), Some(b"\xFF")];
    let mut records: Vec<Plain> =
        keys.into_iter().map(|key| Plain { key: key.map(<[u8]>::to_vec), ..Plain::value("v") }).collect();
    records.push(Plain { value: None, ..Plain::value("") });
    records.push(Plain::value(""));
    records.push(Plain { headers, timestamp_ms: -1, ..Plain::value("with headers") });
    records.push(Plain { timestamp_ms: 1, ..Plain::value("old") });

    let mock = cluster(&[("in", 1), ("out", 1)]);
    put(&mock, "in", 0, &records);
    let mut source = Source::start(config(&mock, &["in", "out"]));
    let assigned = source.join();
    source.feed(&assigned[0], 1, 0, 100);
    // how many batches they come in is the client's choice
    let mut batches = Vec::new();
    while batches.iter().map(|b: &RecordBatch| b.records.len()).sum::<usize>() < records.len() {
        batches.push(source.batch(1).0);
    }
    let came: Vec<Plain> = batches.iter().flat_map(plain).map(|(_, record)| record).collect();
    assert_eq!(came, records);
    let kinds: Vec<TimestampKind> = batches.iter().flat_map(|b| &b.records).map(|r| r.timestamp_kind).collect();
    assert_eq!((kinds[0], kinds[6]), (TimestampKind::Create, TimestampKind::None));

    // and through the sink
    let sink = crate::support::Sink::start(&mock, &[]);
    for (ticket, batch) in (1..).zip(&batches) {
        sink.write_all(ticket, batch, &identity(batch, -1), "out");
        assert_eq!(sink.ended(), kiteline_connectors::sink::kafka::SinkEvent::Acknowledged { ticket });
    }
    source.feed(&assigned[1], 2, 0, 100);
    let out: Vec<Plain> = source.until_end(2, 0).into_iter().map(|(_, record)| record).collect();
    assert_eq!(out, records);
}

/// Case 6: an offset that the log does not have ends that feed alone; nothing is reset.
#[test]
fn a_lost_position_halts_its_partition_only() {
    let mock = cluster(&[("in", 2)]);
    put(&mock, "in", 0, &numbers(0..5));
    put(&mock, "in", 1, &numbers(0..5));
    let mut source = Source::start(config(&mock, &["in"]));
    let assigned = source.join();
    source.feed(&assigned[0], 1, 1000, 100);
    let lost = source.wait("lost position", |event| match event {
        SourceEvent::OutOfRange { feed, partition } => Some((*feed, partition.clone())),
        _ => None,
    });
    assert_eq!(lost, (kiteline_engine::ids::FeedId(1), assigned[0].clone()));
    source.feed(&assigned[1], 2, 0, 100);
    assert_eq!(source.until_end(2, 0).len(), 5);
    // an operator's new position is taken while the other runs
    source.feed(&assigned[0], 3, 2, 100);
    assert_eq!(source.until_end(3, 2).len(), 3);
    source.nothing_of(1);
}

#[test]
fn says_where_logs_start_and_end() {
    let mock = cluster(&[("in", 1)]);
    put(&mock, "in", 0, &numbers(0..7));
    let mut source = Source::start(config(&mock, &["in"]));
    let asked = vec![TopicPartition::new("in", 0), TopicPartition::new("in", 9)];
    source.source.send(SourceCommand::Positions(asked.clone()));
    let answer = source.wait("positions", |event| match event {
        SourceEvent::Positions(list) => Some(list.clone()),
        _ => None,
    });
    assert_eq!(answer.iter().map(|(partition, _)| partition.clone()).collect::<Vec<_>>(), asked);
    let range = answer[0].1.as_ref().unwrap();
    assert_eq!((range.start, range.end), (0, 7));
    assert!(answer[1].1.is_err(), "{answer:?}");
}

/// Two members: the first gives back what it is asked for and keeps feeding the rest.
#[test]
fn a_second_member_takes_over_what_the_first_gives_back() {
    let mock = cluster(&[("in", 2)]);
    for partition in 0..2 {
        put(&mock, "in", partition, &numbers(0..5));
    }
    let mut first = Source::start(config(&mock, &["in"]));
    let all = first.join();
    assert_eq!(all.len(), 2);
    for (partition, feed) in all.iter().zip(1..) {
        first.feed(partition, feed, 0, 1000);
        first.until_end(feed, 0);
    }

    let mut second = Source::start(config(&mock, &["in"]));
    let revoked = first.wait("revocation", |event| match event {
        SourceEvent::Revoked(list) => Some(list.clone()),
        _ => None,
    });
    assert_eq!(revoked.len(), 1);
    let kept = all.iter().find(|partition| !revoked.contains(partition)).unwrap().clone();
    let feed = all.iter().position(|partition| *partition == kept).unwrap() as u64 + 1;
    // put off until the answer: stopping one partition must not answer for another
    first.source.send(SourceCommand::Stop { partition: revoked[0].clone() });
    first.source.send(SourceCommand::AnswerRevoke(revoked.clone()));
    // The second member takes its part, the first keeps feeding its own.
    let taken = second.join();
    assert_eq!(taken, revoked);
    second.feed(&taken[0], 7, 2, 1000);
    assert_eq!(second.until_end(7, 2).len(), 3);
    put(&mock, "in", kept.partition, &numbers(5..8));
    let mut next = 5;
    while next < 8 {
        let (batch, _) = first.batch(feed);
        assert_eq!(batch.range.from, next);
        next = batch.range.until;
    }
    assert!(second.source.close(PATIENCE));
    assert!(first.source.close(PATIENCE));
}

/// An answer that names partitions which the client does not hold (claimed too late, never fed) is an answer all the same.
#[test]
fn giving_back_what_was_never_fed_is_an_answer() {
    let mock = cluster(&[("in", 2)]);
    let mut first = Source::start(config(&mock, &["in"]));
    assert_eq!(first.join().len(), 2);
    let mut second = Source::start(config(&mock, &["in"]));
    let revoked = first.wait("revocation", |event| match event {
        SourceEvent::Revoked(list) => Some(list.clone()),
        _ => None,
    });
    first.source.send(SourceCommand::AnswerRevoke(revoked.clone()));
    assert_eq!(second.join(), revoked);
}

#[test]
fn a_closed_member_leaves_its_partitions_to_the_other() {
    let mock = cluster(&[("in", 1)]);
    let mut first = Source::start(config(&mock, &["in"]));
    let all = first.join();
    first.feed(&all[0], 1, 0, 1000);
    let mut second = Source::start(config(&mock, &["in"]));
    assert!(first.source.close(PATIENCE));
    assert_eq!(second.join(), all);
}

#[test]
fn waits_for_brokers_aloud_and_goes_on() {
    let mock = cluster(&[("in", 1)]);
    put(&mock, "in", 0, &numbers(0..3));
    let mut config = config(&mock, &["in"]);
    config.properties.push(("reconnect.backoff.max.ms".to_owned(), "200".to_owned()));
    let mut source = Source::start(config);
    let assigned = source.join();
    source.feed(&assigned[0], 1, 0, 1000);
    source.until_end(1, 0);
    mock.broker_down(1).unwrap();
    source.wait("complaint", |event| matches!(event, SourceEvent::Waiting(text) if !text.is_empty()).then_some(()));
    mock.broker_up(1).unwrap();
    source.wait("recovery", |event| matches!(event, SourceEvent::Recovered).then_some(()));
    put(&mock, "in", 0, &numbers(3..5));
    let mut next = 3;
    while next < 5 {
        let (batch, _) = source.batch(1);
        assert_eq!(batch.range.from, next, "nothing is skipped or repeated");
        next = batch.range.until;
    }
}

/// Case 16: closing ends within its limit, even if no broker answers.
#[test]
fn closes_within_its_limit_without_a_broker() {
    let mock = cluster(&[("in", 1)]);
    let mut source = Source::start(config(&mock, &["in"]));
    let assigned = source.join();
    source.feed(&assigned[0], 1, 0, 1);
    mock.broker_down(1).unwrap();
    let begun = std::time::Instant::now();
    source.source.close(Duration::from_millis(300));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_mirror_is_for_tools() {
    use rdkafka::{
        ClientConfig, TopicPartitionList,
        consumer::{BaseConsumer, Consumer},
    };
    let mock = cluster(&[("in", 1)]);
    put(&mock, "in", 0, &numbers(0..3));
    let mut source = Source::start(config(&mock, &["in"]));
    let assigned = source.join();
    source.source.send(SourceCommand::Mirror(vec![(assigned[0].clone(), 2)]));
    let reader: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", mock.bootstrap_servers()).set("group.id", "g").create().unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let mut list = TopicPartitionList::new();
        list.add_partition("in", 0);
        let found = reader.committed_offsets(list, PATIENCE).unwrap();
        let element = found.find_partition("in", 0).unwrap();
        if element.offset() == rdkafka::Offset::Offset(2) {
            assert_eq!(element.metadata(), "kl1m");
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no mirror");
    }
}

#[test]
fn what_promises_rest_on_cannot_be_set() {
    let mock = cluster(&[("in", 1)]);
    for name in ["enable.auto.commit", "auto.offset.reset", "isolation.level", "group.id", "group.protocol"] {
        let mut config = config(&mock, &["in"]);
        config.properties.push((name.to_owned(), "x".to_owned()));
        let error = KafkaSource::start(config, |_| {}).err();
        assert!(matches!(&error, Some(Error::KafkaSetting { setting, .. }) if setting == name), "{name}: {error:?}");
    }
    let mut config = config(&mock, &["in"]);
    config.properties.push(("sasl.password".to_owned(), "hunter2".to_owned()));
    config.properties.push(("no.such.thing".to_owned(), "hunter2".to_owned()));
    assert!(!format!("{config:?}").contains("hunter2"));
    let error = KafkaSource::start(config, |_| {}).err().unwrap();
    assert!(error.to_string().contains("no.such.thing") && !error.to_string().contains("hunter2"), "{error}");
}
