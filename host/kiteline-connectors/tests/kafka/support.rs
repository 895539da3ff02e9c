//! What the Kafka tests share: a cluster, a source and a sink with their events, and records to put in.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use kiteline_connectors::{
    MockKafka,
    sink::kafka::{KafkaSink, KafkaSinkConfig, SinkEvent},
    source::kafka::{KafkaSource, KafkaSourceConfig, SourceCommand, SourceEvent},
};
use kiteline_engine::{
    ids::{FeedId, TopicPartition},
    record::{OutputBatch, OutputRecord, RecordBatch, Span},
};
use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn cluster(topics: &[(&str, i32)]) -> MockKafka {
    let mock = MockKafka::start(1).unwrap();
    for (topic, partitions) in topics {
        mock.create_topic(topic, *partitions).unwrap();
    }
    mock
}

/// One record, owned, to put in and to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) timestamp_ms: i64,
}

impl Plain {
    pub(crate) fn value(value: impl Into<Vec<u8>>) -> Self {
        Self { key: None, value: Some(value.into()), headers: Vec::new(), timestamp_ms: 1_700_000_000_000 }
    }
}

/// Puts records into a partition with a plain producer.
pub(crate) fn put(mock: &MockKafka, topic: &str, partition: i32, records: &[Plain]) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", mock.bootstrap_servers()).set("linger.ms", "0").create().unwrap();
    for record in records {
        let mut headers = OwnedHeaders::new();
        for (name, value) in &record.headers {
            let key = std::str::from_utf8(name).unwrap();
            headers = headers.insert(Header { key, value: value.as_ref() });
        }
        let mut out: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to(topic).partition(partition).timestamp(record.timestamp_ms).headers(headers);
        out.key = record.key.as_deref();
        out.payload = record.value.as_deref();
        producer.send(out).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> Vec<Plain> {
    range.map(|i| Plain::value(i.to_string())).collect()
}

/// A source and what it reported.
pub(crate) struct Source {
    pub(crate) source: KafkaSource,
    events: Receiver<SourceEvent>,
    /// Events seen while another was looked for.
    pub(crate) seen: Vec<SourceEvent>,
}

pub(crate) fn config(mock: &MockKafka, topics: &[&str]) -> KafkaSourceConfig {
    KafkaSourceConfig {
        bootstrap_servers: mock.bootstrap_servers(),
        group: "g".to_owned(),
        topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        instance_id: None,
        // The mock waits for a session less a second before it regards a rebalance as complete.
        properties: [
            ("topic.metadata.refresh.interval.ms", "500"),
            ("session.timeout.ms", "2000"),
            ("heartbeat.interval.ms", "200"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        batch_records_max: 10,
        batch_bytes_max: 1 << 20,
    }
}

impl Source {
    pub(crate) fn start(config: KafkaSourceConfig) -> Self {
        let (send, events) = channel();
        let source = KafkaSource::start(config, move |event| drop(send.send(event))).unwrap();
        Self { source, events, seen: Vec::new() }
    }

    /// Waits for the first event that `pick` takes; the others are kept in `seen`.
    pub(crate) fn wait<T>(&mut self, what: &str, mut pick: impl FnMut(&SourceEvent) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(event) => match pick(&event) {
                    Some(found) => return found,
                    None => self.seen.push(event),
                },
                Err(error) => panic!("no {what} ({error}); seen: {:#?}", self.seen),
            }
        }
    }

    /// Waits for an assignment that is not empty, and answers it.
    pub(crate) fn join(&mut self) -> Vec<TopicPartition> {
        let mut assigned = self.wait("assignment", |event| match event {
            SourceEvent::Assigned(list) if !list.is_empty() => Some(list.clone()),
            _ => None,
        });
        assigned.sort();
        self.source.send(SourceCommand::AnswerAssign(assigned.clone()));
        assigned
    }

    pub(crate) fn feed(&self, partition: &TopicPartition, feed: u64, from: i64, credit: u32) {
        let (partition, feed) = (partition.clone(), FeedId(feed));
        self.source.send(SourceCommand::Feed { partition: partition.clone(), feed, from });
        self.source.send(SourceCommand::Fetch { partition, feed, credit });
    }

    /// Takes the next batch of a feed.
    pub(crate) fn batch(&mut self, wanted: u64) -> (RecordBatch, bool) {
        let mut found = None;
        let deadline = Instant::now() + PATIENCE;
        while found.is_none() {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(SourceEvent::Batch { feed: FeedId(feed), batch, at_end }) if feed == wanted => {
                    found = Some((batch, at_end));
                }
                Ok(event) => self.seen.push(event),
                Err(error) => panic!("no batch of feed {wanted} ({error}); seen: {:#?}", self.seen),
            }
        }
        found.unwrap()
    }

    /// Takes batches of a feed until one is at the end; checks that their ranges follow one another from `from`.
    pub(crate) fn until_end(&mut self, feed: u64, from: i64) -> Vec<(i64, Plain)> {
        let (mut next, mut records) = (from, Vec::new());
        loop {
            let (batch, at_end) = self.batch(feed);
            assert_eq!(batch.range.from, next, "ranges follow one another");
            next = batch.range.until;
            records.extend(plain(&batch));
            if at_end {
                return records;
            }
        }
    }

    /// Does something that takes a full turn of the source's thread, so that what would still come has come.
    pub(crate) fn turn(&mut self, topic: &str) {
        self.source.send(SourceCommand::Positions(vec![TopicPartition::new(topic, 0)]));
        self.wait("positions", |event| matches!(event, SourceEvent::Positions(_)).then_some(()));
    }

    pub(crate) fn nothing_of(&mut self, feed: u64) {
        self.seen.extend(self.events.try_iter());
        let stray =
            self.seen.iter().any(|event| matches!(event, SourceEvent::Batch { feed: FeedId(of), .. } if *of == feed));
        assert!(!stray, "a batch of feed {feed} came: {:#?}", self.seen);
    }
}

/// The records of a batch, owned, with their offsets.
pub(crate) fn plain(batch: &RecordBatch) -> Vec<(i64, Plain)> {
    let own = |span: Span| span.of(&batch.bytes).map(<[u8]>::to_vec);
    let one = |record: &kiteline_engine::record::Record| Plain {
        key: own(record.key),
        value: own(record.value),
        headers: batch.headers_of(record).iter().map(|header| (own(header.name).unwrap(), own(header.value))).collect(),
        timestamp_ms: record.timestamp_ms,
    };
    batch.records.iter().map(|record| (record.offset, one(record))).collect()
}

/// Outputs that repeat a batch, each to `partition` of the sink's own topic.
pub(crate) fn identity(batch: &RecordBatch, partition: i32) -> OutputBatch {
    let records = batch.records.iter().enumerate().map(|(i, record)| OutputRecord {
        source: i as u32,
        port: 0,
        topic: 0,
        partition,
        timestamp_ms: record.timestamp_ms,
        key: record.key,
        value: record.value,
        headers_at: record.headers_at,
        headers_count: record.headers_count,
        headers_kept: true,
    });
    OutputBatch { records: records.collect(), ..OutputBatch::default() }
}

/// A sink and what it reported.
pub(crate) struct Sink {
    pub(crate) sink: KafkaSink,
    pub(crate) events: Receiver<SinkEvent>,
}

impl Sink {
    pub(crate) fn start(mock: &MockKafka, properties: &[(&str, &str)]) -> Self {
        let (send, events) = channel();
        let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let config = KafkaSinkConfig { bootstrap_servers: mock.bootstrap_servers(), properties };
        Self { sink: KafkaSink::start(config, move |event| drop(send.send(event))).unwrap(), events }
    }

    /// Waits for the end of some ticket; what is said about the brokers is passed over.
    pub(crate) fn ended(&self) -> SinkEvent {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(SinkEvent::Waiting(_) | SinkEvent::Recovered) => {}
                Ok(event) => return event,
                Err(RecvTimeoutError::Timeout) => panic!("no ticket ended"),
                Err(RecvTimeoutError::Disconnected) => panic!("the sink is gone"),
            }
        }
    }

    pub(crate) fn write_all(&self, ticket: u64, batch: &RecordBatch, outputs: &OutputBatch, topic: &str) {
        let all: Vec<u32> = (0..outputs.records.len() as u32).collect();
        self.sink.write(ticket, batch, outputs, &all, topic);
    }
}

/// A batch made of values, as if fetched.
pub(crate) fn batch_of(values: &[Vec<u8>]) -> RecordBatch {
    let mut bytes = Vec::new();
    let records = values.iter().enumerate().map(|(i, value)| {
        let off = bytes.len() as u32;
        bytes.extend_from_slice(value);
        kiteline_engine::record::Record {
            offset: i as i64,
            timestamp_ms: 1_700_000_000_000,
            timestamp_kind: kiteline_engine::record::TimestampKind::Create,
            key: Span::NULL,
            value: Span { off, len: value.len() as u32 },
            headers_at: 0,
            headers_count: 0,
        }
    });
    let records: Vec<_> = records.collect();
    let range = kiteline_engine::record::OffsetRange { from: 0, until: records.len() as i64 };
    RecordBatch { topic: "made".into(), partition: 0, range, records, headers: Vec::new(), bytes }
}
