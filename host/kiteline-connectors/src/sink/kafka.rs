//! The Kafka sink: outputs and dead letters, written by one idempotent producer, every delivery report in.
//!
//! Owns the producer, its poll thread, and what is known of the topics. Does not own retries: what the client gave up is
//! reported as [`SinkEvent::Failed`], and what can never be written as [`SinkEvent::Refused`]. Stated, since it is a promise: the
//! partitioner is `murmur2_random` (the Java client's for keys; null keys are spread, an empty key is a key like others), unless
//! the operator sets `partitioner`. A record that waits longer than `delivery.timeout.ms` (at most 10 s) has failed.
//!
//! librdkafka takes a timestamp of 0 for "now", so a record of the very first millisecond of 1970 is written with 1; none (-1) stays none.

mod producer;
mod tickets;
mod topics;
mod write;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use kiteline_engine::record::{OutputBatch, RecordBatch};

use self::{producer::Producing, topics::KnownTopics};
use crate::{Error, kafka_settings::names_only};

/// Longest time a record may wait for its acknowledgement, in milliseconds: a third of a checkpoint session, so that what is
/// queued in the client ends before anybody else may own the partition.
pub const DELIVERY_TIMEOUT_MS_MAX: u32 = 10_000;

/// What the sink needs to know.
#[derive(Clone)]
pub struct KafkaSinkConfig {
    /// Brokers to ask first, `host:port,host:port`.
    pub bootstrap_servers: String,
    /// Client properties to pass through, the last of a name wins. Those that kiteline's promises rest on are refused.
    /// `message.max.bytes` says what a topic takes if that cannot be read.
    pub properties: Vec<(String, String)>,
}

impl fmt::Debug for KafkaSinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSinkConfig")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("properties", &names_only(&self.properties))
            .finish()
    }
}

/// What is known of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its name.
    pub topic: String,
    /// Its id; empty if the broker gives none.
    pub topic_id: String,
    /// How many partitions it has.
    pub partitions: usize,
    /// Largest batch, so also largest record, that it takes, in bytes.
    pub bytes_max: u32,
    /// Whether the broker replaces timestamps by its own.
    pub append_time: bool,
    /// Whether the topic is compacted, so that every record needs a key.
    pub compacted: bool,
    /// How far a timestamp may lie in the past, in milliseconds.
    pub past_ms_max: i64,
    /// How far a timestamp may lie in the future, in milliseconds.
    pub future_ms_max: i64,
    /// What could not be found out, for people; the rest are Kafka's defaults then.
    pub note: Option<String>,
}

/// One dead letter: the original bytes, and headers that say where they are from.
#[derive(Clone, Debug)]
pub struct DeadLetter<'a> {
    /// Original key.
    pub key: Option<&'a [u8]>,
    /// Original value.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// Milliseconds since 1970, -1 if there is none.
    pub timestamp_ms: i64,
}

/// What the sink reports. Called on the sink's thread or within a write: keep it short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEvent {
    /// Every record of the ticket is durable.
    Acknowledged {
        /// The ticket.
        ticket: u64,
    },
    /// These records can never be written; all others of the ticket are durable.
    Refused {
        /// The ticket.
        ticket: u64,
        /// Number of the record as given to the write, and why, ascending.
        records: Vec<(u32, String)>,
    },
    /// Some records are not durable, or not known to be; the write may be tried again.
    Failed {
        /// The ticket.
        ticket: u64,
        /// Why, for people.
        message: String,
    },
    /// Something outside is not there, and is waited for. For people; at most one in five seconds.
    Waiting(String),
    /// What was waited for is there again.
    Recovered,
    /// The sink cannot go on.
    Fatal(String),
}

/// Who is called with events.
type Events = Arc<dyn Fn(SinkEvent) + Send + Sync>;

/// A running sink. See the module's documentation.
pub struct KafkaSink {
    config: KafkaSinkConfig,
    events: Events,
    /// What is known of topics, kept when the producer is replaced.
    known: Arc<KnownTopics>,
    /// The producer. It is replaced when it broke, and when more becomes known of the topics.
    producing: RwLock<Arc<Producing>>,
    /// One replacement at a time.
    replacing: Mutex<()>,
    /// Whether `close` took care of the producer.
    closed: bool,
}

impl KafkaSink {
    /// Makes the producer and starts its thread. Whether brokers are there shows later: by [`KafkaSink::check`], or by events.
    pub fn start(config: KafkaSinkConfig, events: impl Fn(SinkEvent) + Send + Sync + 'static) -> Result<Self, Error> {
        let (events, known) = (Arc::new(events) as Events, Arc::new(KnownTopics::new(&config)?));
        let producing = Producing::start(&config, Arc::clone(&known), Arc::clone(&events))?;
        Ok(Self {
            config,
            events,
            known,
            producing: RwLock::new(Arc::new(producing)),
            replacing: Mutex::new(()),
            closed: false,
        })
    }

    /// Proves that the topics are there, without creating them, and reads what each takes. Where that may not be read,
    /// `message.max.bytes` and Kafka's defaults are assumed, with a note. Call it before the first write, since the producer is made
    /// anew when something was learnt. May take as long as `timeout` twice.
    pub fn check(&self, topics: &[&str], timeout: Duration) -> Result<Vec<TopicFacts>, Error> {
        let producing = self.producing();
        let facts = topics::facts(producing.client(), &self.config, self.known.bytes_max_assumed, topics, timeout)?;
        if self.known.learn(&facts) {
            self.replace(&producing)?;
        }
        Ok(facts)
    }

    /// Hands the outputs with these indexes to the client, in order; their bytes are copied. Ends as exactly one event for
    /// `ticket`, possibly before this returns. Waits only while the client's queue is full, at most as long as records may wait there.
    pub fn write(
        &self,
        ticket: u64,
        source: &RecordBatch,
        outputs: &OutputBatch,
        records: &[u32],
        default_topic: &str,
    ) {
        write::outputs(&self.working(), ticket, source, outputs, records, default_topic);
    }

    /// A way into Kafka that ends as soon as anything on it was not written.
    pub fn lane(&self) -> Lane {
        Lane { producing: Arc::downgrade(&self.working()), events: Arc::clone(&self.events) }
    }

    /// Hands dead letters to the client, in order. Ends as [`KafkaSink::write`] does; records are numbered as in `letters`.
    pub fn write_dead_letters(&self, ticket: u64, topic: &str, letters: &[DeadLetter<'_>]) {
        write::dead_letters(&self.working(), ticket, topic, letters);
    }

    /// Waits until everything is acknowledged, for at most `limit`, gives up the rest (their tickets fail) and closes the client; true
    /// if all was done in time. If not, the client is closed by a thread of its own, which ends with the process at the latest.
    pub fn close(mut self, limit: Duration) -> bool {
        self.closed = true;
        let deadline = Instant::now() + limit;
        let producing = self.producing();
        drop(self);
        let clean = producing.finish(deadline);
        let (done, closed) = channel();
        let limit = Instant::now();
        let tell = move || {
            let _ = done.send(());
        };
        stop_aside(producing, limit, tell);
        let left = deadline.saturating_duration_since(Instant::now());
        closed.recv_timeout(left.max(CLOSE_MIN)).is_ok() && clean
    }

    fn producing(&self) -> Arc<Producing> {
        Arc::clone(&self.producing.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The producer, a new one if the old one broke. If none can be made, writes to the old one fail and say so.
    fn working(&self) -> Arc<Producing> {
        let producing = self.producing();
        if !producing.broken() {
            return producing;
        }
        match self.replace(&producing) {
            Ok(()) => self.producing(),
            Err(error) => {
                producing.tell(Some(SinkEvent::Fatal(format!("the producer broke and cannot be made anew: {error}"))));
                producing
            }
        }
    }

    /// Replaces `old`, unless somebody else did. What is still under way in it ends there.
    fn replace(&self, old: &Arc<Producing>) -> Result<(), Error> {
        let _one = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(old, &self.producing()) {
            let new = Producing::start(&self.config, Arc::clone(&self.known), Arc::clone(&self.events))?;
            let mut place = self.producing.write().unwrap_or_else(PoisonError::into_inner);
            let old = std::mem::replace(&mut *place, Arc::new(new));
            drop(place);
            let limit = Instant::now() + old.delivery_timeout;
            stop_aside(old, limit, || {});
        }
        Ok(())
    }
}

/// The way of one feeding of a partition into Kafka: bound to one producer. When a record was not written, that producer ends, and
/// so do its lanes; whoever writes again begins a new one. So nothing can overtake what failed.
pub struct Lane {
    producing: Weak<Producing>,
    events: Events,
}

impl Lane {
    /// As [`KafkaSink::write`]. On a lane that has ended it fails at once.
    pub fn write(
        &self,
        ticket: u64,
        source: &RecordBatch,
        outputs: &OutputBatch,
        records: &[u32],
        default_topic: &str,
    ) {
        match self.producing.upgrade().filter(|producing| !producing.broken()) {
            Some(producing) => write::outputs(&producing, ticket, source, outputs, records, default_topic),
            None => {
                let message = "a record before this one was not written".to_owned();
                (self.events)(SinkEvent::Failed { ticket, message });
            }
        }
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        if !self.closed {
            stop_aside(self.producing(), Instant::now(), || {});
        }
    }
}

/// Time that closing the client itself is given, whatever is left of the limit.
const CLOSE_MIN: Duration = Duration::from_millis(100);

/// Ends a producer on a thread of its own; what is still under way at `deadline` is given up, and its tickets fail. Without a thread
/// to be had it is left to the process's end.
fn stop_aside(producing: Arc<Producing>, deadline: Instant, done: impl FnOnce() + Send + 'static) {
    let work = move || {
        producing.finish(deadline);
        producing.stop();
        drop(producing);
        done();
    };
    drop(thread::Builder::new().name("kafka-sink-close".to_owned()).spawn(work));
}
