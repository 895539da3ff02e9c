//! The sink: every ticket ends as one event, and that event is true.

use std::collections::BTreeSet;

use kiteline_connectors::{
    Error,
    sink::kafka::{DeadLetter, KafkaSink, KafkaSinkConfig, SinkEvent},
};
use kiteline_engine::{
    ids::TopicPartition,
    record::{OutputBatch, RecordBatch},
};

use crate::support::{PATIENCE, Plain, Sink, Source, batch_of, cluster, config, identity};

fn read_all(mock: &kiteline_connectors::MockKafka, topic: &str) -> Vec<Plain> {
    let mut source = Source::start(config(mock, &[topic]));
    let assigned = source.join();
    let mut records = Vec::new();
    for (partition, feed) in assigned.iter().zip(1..) {
        source.feed(partition, feed, 0, 10_000);
        records.extend(source.until_end(feed, 0).into_iter().map(|(_, record)| record));
    }
    records
}

#[test]
fn every_ticket_is_acknowledged_once() {
    let mock = cluster(&[("out", 3)]);
    let sink = Sink::start(&mock, &[]);
    let batch = batch_of(&(0..20).map(|i: u8| vec![i; 30]).collect::<Vec<_>>());
    let outputs = identity(&batch, -1);
    for ticket in 0..50 {
        sink.write_all(ticket, &batch, &outputs, "out");
    }
    sink.sink.write(50, &batch, &outputs, &[], "out");
    let mut left: BTreeSet<u64> = (0..=50).collect();
    while !left.is_empty() {
        match sink.ended() {
            SinkEvent::Acknowledged { ticket } => assert!(left.remove(&ticket), "{ticket} again"),
            other => panic!("{other:?}"),
        }
    }
    assert!(sink.sink.close(PATIENCE));
    assert_eq!(read_all(&mock, "out").len(), 1000);
}

/// Case 21: one record that is too large is refused before it is sent; its neighbours arrive.
#[test]
fn a_record_too_large_does_not_harm_its_neighbours() {
    let mock = cluster(&[("out", 1)]);
    let sink = Sink::start(&mock, &[("message.max.bytes", "2000")]);
    let facts = sink.sink.check(&["out"], PATIENCE).unwrap();
    assert_eq!((facts[0].partitions, facts[0].bytes_max), (1, 2000));
    let mut values: Vec<Vec<u8>> = (0..10).map(|i: u8| vec![i; 10]).collect();
    values[4] = vec![4; 5000];
    let batch = batch_of(&values);
    sink.write_all(1, &batch, &identity(&batch, -1), "out");
    let SinkEvent::Refused { ticket: 1, records } = sink.ended() else { panic!("not refused") };
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].0, 4);
    assert!(records[0].1.starts_with("record too large: 50"), "{}", records[0].1);
    assert_eq!(read_all(&mock, "out").len(), 9);
}

#[test]
fn a_partition_that_does_not_exist_is_the_records_fault() {
    let mock = cluster(&[("out", 2)]);
    let sink = Sink::start(&mock, &[]);
    let batch = batch_of(&[b"a".to_vec(), b"b".to_vec()]);
    let mut outputs = identity(&batch, 1);
    outputs.records[1].partition = 99;
    sink.write_all(1, &batch, &outputs, "out");
    let SinkEvent::Refused { ticket: 1, records } = sink.ended() else { panic!("not refused") };
    assert_eq!(records.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1]);
    let mut source = Source::start(config(&mock, &["out"]));
    source.join();
    source.feed(&TopicPartition::new("out", 1), 1, 0, 100);
    assert_eq!(source.until_end(1, 0).len(), 1);
}

/// Writes the batch under one ticket after the other until one is acknowledged; the next free ticket. What fails meanwhile is
/// written again, as the host does: a busy machine may need longer than the delivery timeout to connect.
fn write_until_acknowledged(sink: &Sink, first: u64, batch: &RecordBatch, outputs: &OutputBatch) -> u64 {
    for ticket in first..first + 20 {
        sink.write_all(ticket, batch, outputs, "out");
        match sink.ended() {
            SinkEvent::Acknowledged { ticket: of } => {
                assert_eq!(of, ticket);
                return ticket + 1;
            }
            SinkEvent::Failed { ticket: of, .. } => assert_eq!(of, ticket),
            other => panic!("{other:?}"),
        }
    }
    panic!("it never recovers");
}

#[test]
fn what_is_not_delivered_in_time_has_failed_and_can_be_written_again() {
    let mock = cluster(&[("out", 1)]);
    let properties = [("delivery.timeout.ms", "800"), ("reconnect.backoff.max.ms", "200")];
    let sink = Sink::start(&mock, &properties);
    let batch = batch_of(&[b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
    let outputs = identity(&batch, -1);
    let next = write_until_acknowledged(&sink, 1, &batch, &outputs);
    mock.broker_down(1).unwrap();
    sink.write_all(next, &batch, &outputs, "out");
    let SinkEvent::Failed { ticket, message } = sink.ended() else { panic!("not failed") };
    assert_eq!(ticket, next);
    assert!(message.starts_with("3 records were not acknowledged: "), "{message}");
    mock.broker_up(1).unwrap();
    write_until_acknowledged(&sink, next + 1, &batch, &outputs);
}

#[test]
fn what_is_under_way_at_the_end_fails() {
    let mock = cluster(&[("out", 1)]);
    let sink = Sink::start(&mock, &[]);
    mock.broker_down(1).unwrap();
    let batch = batch_of(&[b"a".to_vec()]);
    sink.write_all(9, &batch, &identity(&batch, -1), "out");
    let Sink { sink, events } = sink;
    assert!(!sink.close(std::time::Duration::from_millis(200)));
    let failed = events.iter().find(|event| matches!(event, SinkEvent::Failed { ticket: 9, .. }));
    assert!(failed.is_some());
}

/// Case 19: a dead letter is the original bytes, with its origin in headers.
#[test]
fn dead_letters_keep_the_original_bytes() {
    let mock = cluster(&[("dead", 1)]);
    let sink = Sink::start(&mock, &[]);
    let letters = [
        DeadLetter {
            key: Some(b"\xFF"),
            value: Some(b"\xFF\xFF"),
            headers: vec![(b"k", None), (b"kiteline.offset", Some(b"5"))],
            timestamp_ms: 77,
        },
        DeadLetter { key: None, value: None, headers: Vec::new(), timestamp_ms: -1 },
    ];
    sink.sink.write_dead_letters(3, "dead", &letters);
    assert_eq!(sink.ended(), SinkEvent::Acknowledged { ticket: 3 });
    let expected = [
        Plain {
            key: Some(b"\xFF".to_vec()),
            value: Some(b"\xFF\xFF".to_vec()),
            headers: vec![(b"k".to_vec(), None), (b"kiteline.offset".to_vec(), Some(b"5".to_vec()))],
            timestamp_ms: 77,
        },
        Plain { key: None, value: None, headers: Vec::new(), timestamp_ms: -1 },
    ];
    assert_eq!(read_all(&mock, "dead"), expected);
}

#[test]
fn topics_named_by_the_plugin_and_edited_headers() {
    let mock = cluster(&[("out", 1), ("side", 1)]);
    let sink = Sink::start(&mock, &[]);
    let batch = batch_of(&[b"a".to_vec(), b"b".to_vec()]);
    let mut outputs = identity(&batch, -1);
    outputs.topics.push("side".into());
    outputs.bytes.extend_from_slice(b"nameB!");
    let own = |off: u32, len: u32| kiteline_engine::record::Span { off: kiteline_engine::record::OWN + off, len };
    outputs.headers.push(kiteline_engine::record::Header { name: own(0, 4), value: own(5, 1) });
    let edited = &mut outputs.records[1];
    (edited.topic, edited.value, edited.headers_kept, edited.headers_count) = (1, own(4, 1), false, 1);
    sink.write_all(1, &batch, &outputs, "out");
    assert_eq!(sink.ended(), SinkEvent::Acknowledged { ticket: 1 });
    assert_eq!(read_all(&mock, "out"), [Plain::value("a")]);
    let mut source_config = config(&mock, &["side"]);
    source_config.group = "other".to_owned();
    let mut source = Source::start(source_config);
    let assigned = source.join();
    source.feed(&assigned[0], 1, 0, 100);
    let side = source.until_end(1, 0);
    assert_eq!(side[0].1, Plain { headers: vec![(b"name".to_vec(), Some(b"!".to_vec()))], ..Plain::value("B") });
}

#[test]
fn a_topic_that_is_not_there_is_named_at_the_check() {
    let mock = cluster(&[("out", 1)]);
    let sink = Sink::start(&mock, &[]);
    mock.cluster()
        .topic_error("gone", rdkafka::types::RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        .unwrap();
    let error = sink.sink.check(&["out", "gone"], PATIENCE).err();
    assert!(matches!(&error, Some(Error::KafkaTopic { topic, .. }) if topic == "gone"), "{error:?}");
}

#[test]
fn what_promises_rest_on_cannot_be_set() {
    let mock = cluster(&[]);
    let cases = [
        ("acks", "1"),
        ("enable.idempotence", "false"),
        ("transactional.id", "x"),
        ("delivery.timeout.ms", "10001"),
        ("message.timeout.ms", "5"),
        ("message.max.bytes", "10"),
        ("batch.size", "none"),
    ];
    for (name, value) in cases {
        let properties = vec![(name.to_owned(), value.to_owned())];
        let config = KafkaSinkConfig { bootstrap_servers: mock.bootstrap_servers(), properties };
        let error = KafkaSink::start(config, |_| {}).err();
        assert!(matches!(&error, Some(Error::KafkaSetting { setting, .. }) if setting == name), "{name}: {error:?}");
    }
}
