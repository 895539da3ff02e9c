//! What source and sink cost by themselves: every record of a topic, unchanged, to another one. Prints records per second and
//! per second of this process's own CPU time. Needs a broker:
//!
//! ```sh
//! KITELINE_KAFKA_BOOTSTRAP=127.0.0.1:9092 cargo run --release -p kiteline-connectors --example kafka_throughput
//! ```
//!
//! `KITELINE_RECORDS` (1,000,000) and `KITELINE_HEADERS=1` (one header a record) choose the work.
//!
//! Measured with it on a busy two-core machine, five runs each in turn: librdkafka's call for one message (`produceva`, with a
//! timestamp) 2.2 to 3.1 us a record in all, its batch call (`produce_batch`, which takes no timestamp) 2.4 to 2.7 us. So the sink
//! has the former only.

use std::{
    env, fs,
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use kiteline_connectors::{
    sink::kafka::{KafkaSink, KafkaSinkConfig, SinkEvent},
    source::kafka::{KafkaSource, KafkaSourceConfig, SourceCommand, SourceEvent},
};
use kiteline_engine::{
    ids::{FeedId, TopicPartition},
    record::{OutputBatch, OutputRecord, RecordBatch},
};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};

const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let bootstrap = env::var("KITELINE_KAFKA_BOOTSTRAP").expect("KITELINE_KAFKA_BOOTSTRAP names a broker");
    let records: u64 =
        env::var("KITELINE_RECORDS").map_or(1_000_000, |n| n.parse().expect("KITELINE_RECORDS is a number"));
    let headers = env::var("KITELINE_HEADERS").is_ok();
    let (topic_in, topic_out) = (format!("in-{}", std::process::id()), format!("out-{}", std::process::id()));
    make_topics(&bootstrap, &[&topic_in, &topic_out]);
    fill(&bootstrap, &topic_in, records, headers);

    let (acknowledged, done) = channel();
    let config = KafkaSinkConfig { bootstrap_servers: bootstrap.clone(), properties: Vec::new() };
    let sink = KafkaSink::start(config, move |event| match event {
        SinkEvent::Acknowledged { ticket } => drop(acknowledged.send(ticket)),
        other => eprintln!("{other:?}"),
    })
    .expect("the sink starts");
    sink.check(&[&topic_out], PATIENCE).expect("the topic is there");
    let (cpu, begun) = (own_cpu(), Instant::now());
    let (first, last) = copy(&bootstrap, &topic_in, &topic_out, sink, &done, records);
    let (cpu, wall) = (own_cpu() - cpu, last - first);
    println!(
        "{records} records{}: {:.0} a second, {:.0} per own CPU-second ({:.2} us each), first after {:.1} s",
        if headers { ", one header" } else { "" },
        records as f64 / wall.as_secs_f64(),
        records as f64 / cpu,
        cpu * 1e6 / records as f64,
        (first - begun).as_secs_f64(),
    );
}

/// Copies everything; when the first record was there and when the last was acknowledged.
fn copy(
    bootstrap: &str,
    topic_in: &str,
    topic_out: &str,
    sink: KafkaSink,
    done: &Receiver<u64>,
    records: u64,
) -> (Instant, Instant) {
    let config = KafkaSourceConfig {
        bootstrap_servers: bootstrap.to_owned(),
        group: topic_in.to_owned(),
        topics: vec![topic_in.to_owned()],
        instance_id: None,
        properties: Vec::new(),
        batch_records_max: 256,
        batch_bytes_max: 64 << 10,
    };
    let (send, events) = channel();
    let source = KafkaSource::start(config, move |event| drop(send.send(event))).expect("the source starts");
    let (mut read, mut first, mut written, mut tickets) = (0, None, 0, 0);
    let mut outputs = OutputBatch::default();
    let mut all: Vec<u32> = Vec::new();
    while read < records {
        match events.recv_timeout(PATIENCE).expect("something happens") {
            SourceEvent::Assigned(partitions) => {
                source.send(SourceCommand::AnswerAssign(partitions.clone()));
                for partition in partitions {
                    let feed = FeedId(partition.partition as u64);
                    source.send(SourceCommand::Feed { partition: partition.clone(), feed, from: 0 });
                    source.send(SourceCommand::Fetch { partition, feed, credit: 16 });
                }
            }
            SourceEvent::Batch { feed, batch, .. } => {
                first.get_or_insert_with(Instant::now);
                read += batch.records.len() as u64;
                identity(&batch, &mut outputs);
                all.clear();
                all.extend(0..outputs.records.len() as u32);
                sink.write(tickets, &batch, &outputs, &all, topic_out);
                tickets += 1;
                let partition = TopicPartition::new(batch.topic, batch.partition);
                source.send(SourceCommand::Fetch { partition, feed, credit: 1 });
            }
            other => eprintln!("{other:?}"),
        }
        written += done.try_iter().count() as u64;
    }
    while written < tickets {
        done.recv_timeout(PATIENCE).expect("everything is acknowledged");
        written += 1;
    }
    let last = Instant::now();
    source.close(PATIENCE);
    sink.close(PATIENCE);
    (first.expect("there were records"), last)
}

fn identity(batch: &RecordBatch, outputs: &mut OutputBatch) {
    outputs.clear();
    outputs.records.extend(batch.records.iter().enumerate().map(|(i, record)| OutputRecord {
        source: i as u32,
        port: 0,
        topic: 0,
        partition: -1,
        timestamp_ms: record.timestamp_ms,
        key: record.key,
        value: record.value,
        headers_at: record.headers_at,
        headers_count: record.headers_count,
        headers_kept: true,
    }));
}

fn make_topics(bootstrap: &str, names: &[&str]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client");
    let topics: Vec<NewTopic<'_>> =
        names.iter().map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let made = runtime.block_on(admin.create_topics(&topics, &AdminOptions::new())).expect("topics are made");
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

/// Fills the topic with records of 200 bytes, keys of 8.
fn fill(bootstrap: &str, topic: &str, records: u64, headers: bool) {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("linger.ms", "20")
        .set("queue.buffering.max.messages", "500000")
        .create()
        .expect("a producer");
    let mut value = [b'x'; 200];
    for i in 0..records {
        value[..8].copy_from_slice(&i.to_be_bytes());
        let key = i.to_be_bytes();
        while producer.in_flight_count() > 400_000 {
            std::thread::yield_now();
        }
        let mut record = BaseRecord::to(topic).key(&key[..]).payload(&value[..]);
        if headers {
            record =
                record.headers(OwnedHeaders::new().insert(Header { key: "trace", value: Some("0123456789abcdef") }));
        }
        producer.send(record).map_err(|(error, _)| error).expect("the queue has room");
    }
    producer.flush(PATIENCE).expect("everything is written");
}

/// User and system time of this process, in seconds.
fn own_cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("this is Linux");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a process has a name").1.split_whitespace().collect();
    let ticks: f64 = fields[11..=12].iter().map(|ticks| ticks.parse::<f64>().expect("ticks are numbers")).sum();
    ticks / 100.0
}
