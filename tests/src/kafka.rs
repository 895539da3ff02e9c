//! The broker of the suite: topics, records in, records out. One broker for all tests, topics of their own for each.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{Header, Headers, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};

use crate::wait;

/// Longest single question to the broker.
const ASK: Duration = Duration::from_secs(15);

thread_local! {
    static OWN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on this thread, which is one test, speaks to a broker of its own.
pub fn use_broker(bootstrap: &str) {
    OWN.set(Some(bootstrap.to_owned()));
}

/// Where the broker is.
pub fn bootstrap() -> String {
    if let Some(own) = OWN.with_borrow(Clone::clone) {
        return own;
    }
    std::env::var("KITELINE_KAFKA_BOOTSTRAP").expect("KITELINE_KAFKA_BOOTSTRAP: run this suite through `make e2e`")
}

/// Where ZooKeeper is.
pub fn zookeeper() -> String {
    std::env::var("KITELINE_ZK_CONNECT").expect("KITELINE_ZK_CONNECT: run this suite through `make e2e`")
}

/// A name that no other test has.
pub fn unique(base: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{base}-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst))
}

fn config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap());
    config
}

fn block<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        assert!(Instant::now() < end, "the broker did not answer an admin request");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn admin() -> (AdminClient<DefaultClientContext>, AdminOptions) {
    let admin = config().create().expect("an admin client");
    (admin, AdminOptions::new().operation_timeout(Some(ASK)))
}

/// Makes a topic, with topic settings such as `max.message.bytes=2000`.
pub fn create_topic(name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let (admin, options) = admin();
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for (key, value) in settings {
        topic = topic.set(key, value);
    }
    let made = block(admin.create_topics([&topic], &options)).expect("an answer");
    made.into_iter().for_each(|r| assert!(r.is_ok(), "topic {name} is made: {r:?}"));
}

/// Makes a topic, if the broker will have it: one that is being deleted is in the way for a moment.
pub fn try_create_topic(name: &str, partitions: i32) -> bool {
    let (admin, options) = admin();
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let made = block(admin.create_topics([&topic], &options)).expect("an answer");
    made.iter().all(Result::is_ok)
}

/// Deletes a topic.
pub fn delete_topic(name: &str) {
    let (admin, options) = admin();
    block(admin.delete_topics(&[name], &options)).expect("an answer");
}

/// Raises the number of partitions.
pub fn add_partitions(name: &str, partitions: usize) {
    let (admin, options) = admin();
    let wanted = rdkafka::admin::NewPartitions::new(name, partitions);
    block(admin.create_partitions([&wanted], &options)).expect("an answer");
}

/// One record as sent or read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rec {
    /// Partition.
    pub partition: i32,
    /// Offset; ignored in sending.
    pub offset: i64,
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Headers.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds; none for no timestamp in reading, for now in sending.
    pub timestamp: Option<i64>,
}

/// Sends records in order and waits until all are acknowledged.
pub fn send(topic: &str, records: impl IntoIterator<Item = Rec>) {
    send_with(topic, records, &[]);
}

/// The same with client settings.
pub fn send_with(topic: &str, records: impl IntoIterator<Item = Rec>, settings: &[(&str, &str)]) {
    let mut config = config();
    config.set("enable.idempotence", "true").set("linger.ms", "5").set("message.max.bytes", "8000000");
    for (key, value) in settings {
        config.set(*key, *value);
    }
    let producer: ThreadedProducer<DefaultProducerContext> = config.create().expect("a producer");
    hand_over(&producer, topic, records);
    producer.flush(Duration::from_secs(60)).expect("all of it is acknowledged");
}

/// Sends records in one transaction each, which is committed or aborted.
pub fn send_transactions(topic: &str, transactions: &[(&[Rec], bool)]) {
    let mut config = config();
    config.set("transactional.id", unique("transactions")).set("linger.ms", "0");
    let producer: ThreadedProducer<DefaultProducerContext> = config.create().expect("a producer");
    producer.init_transactions(ASK).expect("transactions");
    for (records, commit) in transactions {
        producer.begin_transaction().expect("a transaction");
        hand_over(&producer, topic, records.iter().cloned());
        producer.flush(ASK).expect("all of it is acknowledged");
        let ended = if *commit { producer.commit_transaction(ASK) } else { producer.abort_transaction(ASK) };
        ended.expect("the transaction ends");
    }
}

fn hand_over(producer: &ThreadedProducer<DefaultProducerContext>, topic: &str, records: impl IntoIterator<Item = Rec>) {
    for r in records {
        let mut headers = OwnedHeaders::new();
        for (name, value) in &r.headers {
            headers = headers.insert(Header { key: name, value: value.as_ref() });
        }
        let mut record = BaseRecord::<Vec<u8>, Vec<u8>>::to(topic).partition(r.partition);
        record.key = r.key.as_ref();
        record.payload = r.value.as_ref();
        if !r.headers.is_empty() {
            record = record.headers(headers);
        }
        if let Some(at) = r.timestamp {
            record = record.timestamp(at);
        }
        let end = Instant::now() + Duration::from_secs(60);
        while let Err((error, back)) = producer.send(record) {
            assert!(Instant::now() < end, "the producer's queue stays full: {error}");
            std::thread::sleep(Duration::from_millis(2));
            record = back;
        }
    }
}

/// Log ends by partition.
pub fn ends(topic: &str) -> Vec<i64> {
    let consumer: BaseConsumer = config().create().expect("a consumer");
    let metadata = consumer.fetch_metadata(Some(topic), ASK).expect("metadata");
    let mut ids: Vec<i32> = metadata.topics()[0].partitions().iter().map(|p| p.id()).collect();
    ids.sort_unstable();
    ids.iter().map(|id| consumer.fetch_watermarks(topic, *id, ASK).expect("watermarks").1).collect()
}

/// Everything that a topic holds now, by partition, in order.
pub fn read_all(topic: &str) -> Vec<Rec> {
    let consumer: BaseConsumer = config()
        .set("group.id", unique("reader"))
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .create()
        .expect("a consumer");
    let ends = ends(topic);
    let mut list = TopicPartitionList::new();
    for (id, _) in (0..).zip(&ends) {
        list.add_partition_offset(topic, id, Offset::Beginning).expect("an offset");
    }
    consumer.assign(&list).expect("an assignment");
    let mut open = ends.len();
    let mut records = Vec::new();
    let end = Instant::now() + Duration::from_secs(60);
    while open > 0 {
        assert!(Instant::now() < end, "reading {topic} takes too long");
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => records.push(record_of(&message)),
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(_)) | None => {}
        }
    }
    records.sort_by_key(|r| (r.partition, r.offset));
    records
}

/// Waits until a topic holds so many records at least, and reads it.
pub fn wait_for(topic: &str, records: usize, limit: Duration) -> Vec<Rec> {
    wait::until(&format!("{records} records in {topic}"), limit, || {
        let there: i64 = ends(topic).iter().sum();
        (usize::try_from(there).expect("not negative") >= records).then_some(())
    });
    read_all(topic)
}

fn record_of(message: &impl Message) -> Rec {
    let headers = message
        .headers()
        .map_or_else(Vec::new, |h| h.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect());
    Rec {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
        timestamp: message.timestamp().to_millis(),
    }
}

/// A header's value as text.
pub fn header<'a>(record: &'a Rec, name: &str) -> &'a str {
    let value = record.headers.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref());
    std::str::from_utf8(value.unwrap_or_default()).unwrap_or_default()
}
