//! The plain loop: what somebody who knows the schema would write on rdkafka's safe calls, without kiteline. One record a call, one
//! validating walk over the raw datum, eight bytes patched in a copy, offsets committed after delivery.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kiteline_tests::kafka;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};

use crate::FACTOR;

const ASK: Duration = Duration::from_secs(15);
const FLUSH_MAX: Duration = Duration::from_secs(60);
const COMMIT_EVERY: Duration = Duration::from_secs(5);

/// Does the job from the start of `from` to the end that it has now.
pub(crate) fn run(from: &str, to: &str, group: &str) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka::bootstrap())
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", kafka::bootstrap())
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .set("partitioner", "murmur2_random")
        .set("queue.buffering.max.messages", "200000")
        .create()
        .expect("a producer");
    let mut ends = ends(&consumer, from);
    consumer.subscribe(&[from]).expect("a subscription");
    let (mut next, mut out, mut committed) = (BTreeMap::new(), Vec::with_capacity(512), Instant::now());
    while !ends.is_empty() {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message.expect("a record");
        let datum = message.payload().expect("a value");
        let at = amount_at(datum).expect("an order");
        out.clear();
        out.extend_from_slice(datum);
        let amount = f64::from_le_bytes(out[at..at + 8].try_into().expect("eight bytes")) * FACTOR;
        out[at..at + 8].copy_from_slice(&amount.to_le_bytes());
        let mut record = BaseRecord::to(to).payload(&out[..]).key(message.key().unwrap_or_default());
        while let Err((error, refused)) = producer.send(record) {
            assert!(matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)), "{error}");
            std::thread::sleep(Duration::from_millis(1));
            record = refused;
        }
        let (partition, after) = (message.partition(), message.offset() + 1);
        next.insert(partition, after);
        if ends.get(&partition).is_some_and(|end| after >= *end) {
            ends.remove(&partition);
        }
        if ends.is_empty() || after % 1024 == 0 && committed.elapsed() > COMMIT_EVERY {
            producer.flush(FLUSH_MAX).expect("everything is acknowledged");
            let mut list = TopicPartitionList::new();
            for (partition, offset) in &next {
                list.add_partition_offset(from, *partition, Offset::Offset(*offset)).expect("an offset");
            }
            consumer.commit(&list, CommitMode::Sync).expect("a commit");
            committed = Instant::now();
        }
    }
}

/// Ends of the partitions that hold anything.
fn ends(consumer: &BaseConsumer, topic: &str) -> BTreeMap<i32, i64> {
    let metadata = consumer.fetch_metadata(Some(topic), ASK).expect("metadata");
    let ids = metadata.topics()[0].partitions().iter().map(rdkafka::metadata::MetadataPartition::id);
    let ends = ids.map(|id| (id, consumer.fetch_watermarks(topic, id, ASK).expect("watermarks").1));
    ends.filter(|(_, end)| *end > 0).collect()
}

/// Walks over a whole order, checking it, and says where `amount` is.
fn amount_at(datum: &[u8]) -> Option<usize> {
    let mut walk = Walk { rest: datum };
    walk.text()?;
    walk.long()?;
    let at = datum.len() - walk.rest.len();
    walk.skip(8)?;
    walk.long()?;
    if walk.long()? == 1 {
        walk.text()?;
    }
    for _ in ["street", "city", "zip"] {
        walk.text()?;
    }
    walk.items(Walk::text)?;
    walk.items(|walk| walk.text().and_then(|()| walk.long()).map(|_| ()))?;
    walk.skip(16)?;
    i32::try_from(walk.long()?).ok()?;
    walk.skip(1)?;
    let len = usize::try_from(walk.long()?).ok()?;
    walk.skip(len)?;
    walk.rest.is_empty().then_some(at)
}

struct Walk<'a> {
    rest: &'a [u8],
}

impl<'a> Walk<'a> {
    fn skip(&mut self, len: usize) -> Option<&'a [u8]> {
        let (skipped, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(skipped)
    }

    fn long(&mut self) -> Option<i64> {
        let mut z = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.skip(1)?[0];
            z |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((z >> 1).cast_signed() ^ -(z & 1).cast_signed());
            }
        }
        None
    }

    fn text(&mut self) -> Option<()> {
        let len = usize::try_from(self.long()?).ok()?;
        std::str::from_utf8(self.skip(len)?).ok().map(|_| ())
    }

    /// Items of an array or a map, whatever its blocks.
    fn items(&mut self, mut one: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Some(());
            }
            if count < 0 {
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                one(self)?;
            }
        }
    }
}
