//! The Kafka source: a member of a consumer group that feeds what it is told to feed, from where it is told to, in batches.
//!
//! Owns the consumer, the group's questions and one thread. Does not own positions, claims or retries: a rebalance is
//! reported and waits for the answer by command, a partition is fed from a concrete offset only, and what has been fetched
//! is handed over once. Records come in batches by librdkafka's batch call from one queue a partition; everything else
//! (rebalances, errors) comes by the consumer's main queue, which the same thread serves.

mod batch;
mod faults;
mod fetch_loop;
mod positions;

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, sync_channel},
    },
    thread::{self, Thread},
    time::Duration,
};

use kiteline_engine::{
    ids::{FeedId, TopicPartition},
    record::RecordBatch,
};
use rdkafka::{
    ClientContext, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    types::RDKafkaRespErr,
};

use crate::{
    Error,
    kafka_settings::{client_config, client_error, names_only},
};

/// Ceiling of [`KafkaSourceConfig::batch_bytes_max`]: with one record more, a batch still ends below 2³¹ bytes.
const BATCH_BYTES_CEILING: u32 = 1 << 30;

/// Ceiling of [`KafkaSourceConfig::batch_records_max`].
const BATCH_RECORDS_CEILING: u32 = 1 << 16;

/// Properties that an operator may not set, besides those that kiteline sets itself: they undo a promise in another way.
const REFUSED: [&str; 6] = [
    "metadata.broker.list",
    "group.protocol",
    "group.remote.assignor",
    "auto.commit.enable",
    "offset.store.method",
    "test.mock.num.brokers",
];

/// What the source needs to know.
#[derive(Clone)]
pub struct KafkaSourceConfig {
    /// Brokers to ask first, `host:port,host:port`.
    pub bootstrap_servers: String,
    /// Consumer group.
    pub group: String,
    /// Topics by name; patterns are refused.
    pub topics: Vec<String>,
    /// Static membership: a member that comes back under this id gets its partitions back without a rebalance.
    pub instance_id: Option<String>,
    /// Client properties to pass through, the last of a name wins. Those that kiteline's promises rest on are refused.
    pub properties: Vec<(String, String)>,
    /// Records of a batch.
    pub batch_records_max: u32,
    /// Bytes of keys and values of a batch, a goal: a batch ends with the record that passes it.
    pub batch_bytes_max: u32,
}

impl fmt::Debug for KafkaSourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSourceConfig")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("group", &self.group)
            .field("topics", &self.topics)
            .field("instance_id", &self.instance_id)
            .field("properties", &names_only(&self.properties))
            .field("batch_records_max", &self.batch_records_max)
            .field("batch_bytes_max", &self.batch_bytes_max)
            .finish()
    }
}

/// What the source is told to do. Commands are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// Answers [`SourceEvent::Assigned`]; partitions are added later, by [`SourceCommand::Feed`]. Until then the whole member stands still.
    AnswerAssign(Vec<TopicPartition>),
    /// Feeds a partition from a concrete offset. If it is fed already, it is taken back and begins anew there.
    Feed {
        /// Partition that the group has assigned.
        partition: TopicPartition,
        /// Name of this feeding.
        feed: FeedId,
        /// First offset wanted, from 0.
        from: i64,
    },
    /// Stops feeding a partition: nothing more comes from it.
    Stop {
        /// The partition.
        partition: TopicPartition,
    },
    /// Allows more batches of a feed.
    Fetch {
        /// The partition.
        partition: TopicPartition,
        /// The feed; credit for one that has ended does nothing.
        feed: FeedId,
        /// How many batches more.
        credit: u32,
    },
    /// Answers [`SourceEvent::Revoked`] or [`SourceEvent::Lost`]: these partitions are given back.
    AnswerRevoke(Vec<TopicPartition>),
    /// Writes next_offsets to the group, as a mirror for tools, with the tag `kl1m`. Best effort; no answer.
    Mirror(Vec<(TopicPartition, i64)>),
    /// Asks where the logs start and end. Answered by [`SourceEvent::Positions`].
    Positions(Vec<TopicPartition>),
}

/// Where a partition's log starts and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// First offset that is still there.
    pub start: i64,
    /// First offset that is not there yet; behind an open transaction, the first that is not yet readable.
    pub end: i64,
    /// The topic's id; empty if the broker or the access rights give none.
    pub topic_id: String,
}

/// What the source reports. Called on the source's threads: keep it short.
#[derive(Debug)]
pub enum SourceEvent {
    /// The group gives these partitions, and waits for [`SourceCommand::AnswerAssign`]. An empty list is answered already.
    Assigned(Vec<TopicPartition>),
    /// The group wants these back, and waits for [`SourceCommand::AnswerRevoke`]; nothing of the member's is fetched meanwhile.
    Revoked(Vec<TopicPartition>),
    /// The member was expelled: these are gone, perhaps at work elsewhere. It, too, waits for [`SourceCommand::AnswerRevoke`].
    Lost(Vec<TopicPartition>),
    /// Records of one feed. Uses up one credit. Ranges of a feed follow one another without a gap.
    Batch {
        /// The feed.
        feed: FeedId,
        /// The records; none if only the position moved, over control records or holes.
        batch: RecordBatch,
        /// Whether the log ended here, at that moment.
        at_end: bool,
    },
    /// Answer of [`SourceCommand::Positions`], one entry a partition.
    Positions(Vec<(TopicPartition, Result<LogRange, String>)>),
    /// The log does not have the wanted offset, or was cut. The feed has ended.
    OutOfRange {
        /// The feed.
        feed: FeedId,
        /// The partition.
        partition: TopicPartition,
    },
    /// What is next cannot be fetched, unpacked or read. The feed has ended, nothing was skipped.
    PartitionFailed {
        /// The feed.
        feed: FeedId,
        /// The partition.
        partition: TopicPartition,
        /// Why, for people.
        message: String,
    },
    /// Something outside is not there, and is waited for. For people; at most one in five seconds.
    Waiting(String),
    /// What was waited for is there again.
    Recovered,
    /// The member cannot go on: its instance id was taken, or access is denied. Nothing more will be fed.
    Fatal(String),
}

/// Who is called with events.
type Events = Arc<dyn Fn(SourceEvent) + Send + Sync>;

/// The crate's context. All events are read from the queue by the fetch loop; this one only answers what comes up while the
/// crate itself closes the consumer, and replaces its default handler, which ignores refusals.
struct Closing;

impl ClientContext for Closing {}

impl ConsumerContext for Closing {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, _: RDKafkaRespErr, _: &mut TopicPartitionList) {
        // A client that is being closed takes every answer for "give back everything".
        give_all_back(consumer);
    }
}

/// Takes everything out of the client's assignment; a refusal leaves nothing to be done. The list ends here: its elements hold references
/// into the client, and a client that is destroyed while somebody holds one waits for ever.
fn give_all_back(consumer: &KafkaConsumer) {
    let held = consumer.assignment().unwrap_or_default();
    let _ = consumer.incremental_unassign(&held);
}

type KafkaConsumer = BaseConsumer<Closing>;

/// What is sent to the source's thread.
enum Note {
    Command(SourceCommand),
    Probed,
    Close,
}

/// The way to the source's thread. Its bound is the engine's: a few commands a partition, and one credit at a time.
#[derive(Default)]
struct Inbox(Mutex<VecDeque<Note>>);

impl Inbox {
    fn push(&self, note: Note) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(note);
    }

    fn pop(&self) -> Option<Note> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// A running source. See the module's documentation.
pub struct KafkaSource {
    inbox: Arc<Inbox>,
    thread: Thread,
    closed: Receiver<()>,
}

impl KafkaSource {
    /// Makes the client, joins the group and starts the thread. Whether brokers are there shows later, by events.
    pub fn start(
        config: KafkaSourceConfig,
        events: impl Fn(SourceEvent) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        check(&config)?;
        let consumer: KafkaConsumer =
            settings(&config)?.create_with_context(Closing).map_err(|error| client_error("source", error))?;
        let names: Vec<&str> = config.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&names).map_err(|error| client_error("source", error))?;
        let inbox = Arc::new(Inbox::default());
        let (done, closed) = sync_channel(1);
        let (consumer, notes, events) = (Arc::new(consumer), Arc::clone(&inbox), Arc::new(events) as Events);
        let handle = thread::Builder::new()
            .name("kafka-source".to_owned())
            .spawn(move || {
                fetch_loop::run(consumer, notes, events, config);
                let _ = done.send(());
            })
            .map_err(|source| Error::Thread { name: "kafka-source", source })?;
        Ok(Self { inbox, thread: handle.thread().clone(), closed })
    }

    /// Sends a command. Never blocks.
    pub fn send(&self, command: SourceCommand) {
        self.inbox.push(Note::Command(command));
        self.thread.unpark();
    }

    /// Leaves the group and closes the client; true if that was done within `limit`. If not, it goes on in its own thread, which ends
    /// with the process: librdkafka may wait for a broker for ever.
    pub fn close(self, limit: Duration) -> bool {
        self.inbox.push(Note::Close);
        self.thread.unpark();
        self.closed.recv_timeout(limit).is_ok()
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.inbox.push(Note::Close);
        self.thread.unpark();
    }
}

fn check(config: &KafkaSourceConfig) -> Result<(), Error> {
    let refuse = |setting: &str, detail: &str| {
        Err(Error::KafkaSetting { setting: setting.to_owned(), detail: detail.to_owned() })
    };
    if config.topics.is_empty() {
        return refuse("topics", "there is none");
    }
    if config.topics.iter().any(|topic| topic.is_empty() || topic.starts_with('^')) {
        return refuse("topics", "a topic is named exactly; patterns are not understood");
    }
    if !(1..=BATCH_RECORDS_CEILING).contains(&config.batch_records_max) {
        return refuse("batch_records_max", "it must be from 1 to 65536");
    }
    if !(1..=BATCH_BYTES_CEILING).contains(&config.batch_bytes_max) {
        return refuse("batch_bytes_max", "it must be from 1 to 2^30");
    }
    Ok(())
}

/// The client's configuration. Defaults differ from librdkafka's where its own hold a whole member to ransom: 64 MiB of
/// prefetched records **a partition** are 8 here, and checksums are verified, since a broken record is to be found, not delivered.
fn settings(config: &KafkaSourceConfig) -> Result<rdkafka::ClientConfig, Error> {
    let defaults = [
        ("client.id", "kiteline".to_owned()),
        ("check.crcs", "true".to_owned()),
        ("queued.max.messages.kbytes", "8192".to_owned()),
        ("session.timeout.ms", "30000".to_owned()),
        ("fetch.error.backoff.ms", "100".to_owned()),
    ];
    let mut fixed = vec![
        ("bootstrap.servers", config.bootstrap_servers.clone()),
        ("group.id", config.group.clone()),
        ("partition.assignment.strategy", "cooperative-sticky".to_owned()),
        ("enable.auto.commit", "false".to_owned()),
        ("enable.auto.offset.store", "false".to_owned()),
        ("auto.offset.reset", "error".to_owned()),
        ("isolation.level", "read_committed".to_owned()),
        ("enable.partition.eof", "true".to_owned()),
    ];
    if let Some(id) = &config.instance_id {
        fixed.push(("group.instance.id", id.clone()));
    }
    let refused: Vec<&str> = REFUSED.into_iter().chain(["group.instance.id"]).collect();
    client_config(&defaults, &config.properties, &fixed, &refused)
}
