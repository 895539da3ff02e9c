//! What a run must have left in the sink: every record once, with its value, in the order of its source partition.

use std::time::{Duration, Instant};

use kiteline_tests::kafka;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
};

use crate::{FACTOR, PARTITIONS, order};

/// Longest time to read the sink in.
const READ_MAX: Duration = Duration::from_secs(600);

/// What was found.
pub(crate) struct Found {
    /// Between the broker's time stamps of the first and the last record; at least a millisecond.
    pub(crate) seconds: f64,
}

/// Reads all of it and checks it.
pub(crate) fn check(topic: &str, records: u64) -> Found {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka::bootstrap())
        .set("group.id", format!("{topic}-check"))
        .set("enable.partition.eof", "true")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let mut all = TopicPartitionList::new();
    for id in 0..PARTITIONS as i32 {
        all.add_partition_offset(topic, id, Offset::Beginning).expect("an offset");
    }
    consumer.assign(&all).expect("an assignment");
    // by sink partition and source partition: the number that the next record must have at least
    let mut least = [[0; PARTITIONS as usize]; PARTITIONS as usize];
    let (mut count, mut open, mut first, mut last) = (0, PARTITIONS, i64::MAX, i64::MIN);
    let end = Instant::now() + READ_MAX;
    while open > 0 {
        assert!(Instant::now() < end, "reading {topic} takes too long");
        let message = match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => message,
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => {
                open -= 1;
                continue;
            }
            Some(Err(_)) | None => continue,
        };
        let n = u64::from_be_bytes(message.key().expect("a key").try_into().expect("eight bytes"));
        let place = &mut least[message.partition() as usize][(n % PARTITIONS) as usize];
        assert!(n >= *place && n < records, "record {n} of {topic} is out of order, repeated or unknown");
        *place = n + 1;
        assert_eq!(message.payload(), Some(&order(n, FACTOR)[..]), "value of record {n} of {topic}");
        let at = message.timestamp().to_millis().expect("the broker stamps records");
        (count, first, last) = (count + 1, first.min(at), last.max(at));
    }
    assert_eq!(count, records, "records in {topic}");
    Found { seconds: (last - first).max(1) as f64 / 1e3 }
}
