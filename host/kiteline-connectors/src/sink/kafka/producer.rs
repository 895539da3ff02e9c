//! One producer with its thread, its tickets and its topic handles. Replaced as a whole, never repaired.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, Producer, PurgeConfig},
};

use super::{
    DELIVERY_TIMEOUT_MS_MAX, Events, KafkaSinkConfig, SinkEvent, TopicFacts,
    tickets::Tickets,
    topics::{BYTES_CEILING, KnownTopics},
};
use crate::{
    Error,
    kafka_calls::{Client, Code, Deliveries, Event, Queue, Topic},
    kafka_health::Health,
    kafka_settings::{client_config, client_error},
};

/// Properties that an operator may not set, besides those that kiteline sets itself.
const REFUSED: [&str; 9] = [
    "metadata.broker.list",
    "request.required.acks",
    "transactional.id",
    "delivery.report.only.error",
    "enable.gapless.guarantee",
    "queuing.strategy",
    "partitioner_cb",
    "dr_msg_cb",
    "test.mock.num.brokers",
];

/// Longest wait for an event.
const POLL_MAX: Duration = Duration::from_millis(250);

/// Time for reports to come in after what is under way was given up.
const PURGE_MAX: Duration = Duration::from_secs(1);

/// What the thread and the writers share.
struct Shared {
    tickets: Tickets,
    events: Events,
    /// The client cannot go on, or must not: a record was not written, and a later one of its partition would overtake it.
    broken: AtomicBool,
    stopping: AtomicBool,
}

/// A topic as this producer writes to it.
pub(super) struct Target {
    pub(super) topic: Topic,
    /// None: the topic was never checked, and Kafka's defaults cannot be relied on.
    pub(super) facts: Option<TopicFacts>,
}

/// See the module's documentation.
pub(super) struct Producing {
    // Topic handles go before the client.
    targets: RwLock<HashMap<String, Arc<Target>>>,
    shared: Arc<Shared>,
    known: Arc<KnownTopics>,
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
    client: Client,
    producer: Arc<BaseProducer>,
    /// Whether batches are compressed, so that a record's own size says little about its batch's.
    pub(super) compressed: bool,
    /// How long a record may wait.
    pub(super) delivery_timeout: Duration,
}

impl Producing {
    pub(super) fn start(config: &KafkaSinkConfig, known: Arc<KnownTopics>, events: Events) -> Result<Self, Error> {
        let settings = settings(config, &known)?;
        let said = |name: &str| settings.get(name).unwrap_or_default().to_owned();
        let compressed =
            [said("compression.type"), said("compression.codec")].iter().any(|c| !c.is_empty() && c != "none");
        let timeout: u64 = said("delivery.timeout.ms").parse().unwrap_or(u64::from(DELIVERY_TIMEOUT_MS_MAX));
        let producer: BaseProducer = settings.create().map_err(|error| client_error("sink", error))?;
        let producer = Arc::new(producer);
        let client = Client::of_producer(&producer);
        let no_queue = || Error::KafkaClient { role: "sink", detail: "it has no queue for its events".to_owned() };
        let queue = Arc::new(client.main_queue().ok_or_else(no_queue)?);
        let shared = Arc::new(Shared {
            tickets: Tickets::new(),
            events,
            broken: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        let (own, events, asker) = (Arc::clone(&shared), Arc::clone(&queue), client.clone());
        let purger = Arc::clone(&producer);
        let thread = thread::Builder::new()
            .name("kafka-sink".to_owned())
            .spawn(move || poll_all(&own, &events, &asker, &purger))
            .map_err(|source| Error::Thread { name: "kafka-sink", source })?;
        Ok(Self {
            targets: RwLock::new(HashMap::new()),
            shared,
            known,
            queue,
            thread: Mutex::new(Some(thread)),
            client,
            producer,
            compressed,
            delivery_timeout: Duration::from_millis(timeout),
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn tickets(&self) -> &Tickets {
        &self.shared.tickets
    }

    pub(super) fn tell(&self, event: Option<SinkEvent>) {
        if let Some(event) = event {
            (self.shared.events)(event);
        }
    }

    pub(super) fn broken(&self) -> bool {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// Something was not handed over: nothing behind it may go this way. A new producer takes over; what the client has goes out.
    pub(super) fn end_lanes(&self) {
        self.shared.broken.store(true, Ordering::Release);
    }

    /// The topic to write to; asked once a topic and batch.
    pub(super) fn target(&self, topic: &str) -> Result<Arc<Target>, Code> {
        if let Some(target) = self.targets.read().unwrap_or_else(PoisonError::into_inner).get(topic) {
            return Ok(Arc::clone(target));
        }
        let target = Arc::new(Target { topic: self.client.topic(topic)?, facts: self.known.of(topic) });
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(targets.entry(topic.to_owned()).or_insert(target)))
    }

    /// Waits until nothing is under way; whether that came before `deadline`.
    pub(super) fn finish(&self, deadline: Instant) -> bool {
        self.shared.tickets.wait_idle(deadline)
    }

    /// Gives up what is still under way after its time, and ends the thread.
    pub(super) fn stop(&self) {
        if !self.finish(Instant::now()) {
            self.producer.purge(PurgeConfig::default().queue().inflight());
            self.finish(Instant::now() + PURGE_MAX);
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.queue.wake();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

/// The thread: delivery reports, errors, and a look at the brokers while they are waited for.
fn poll_all(shared: &Shared, queue: &Queue, client: &Client, producer: &BaseProducer) {
    let mut health = Health::new();
    let tell = |event| (shared.events)(event);
    while !shared.stopping.load(Ordering::Acquire) {
        match queue.poll(POLL_MAX) {
            Some(Event::Deliveries(deliveries)) => {
                let counted = count(shared, &deliveries);
                if counted.delivered && health.well() {
                    tell(SinkEvent::Recovered);
                }
                // Whoever wrote it will write it and all that follows again, in order: nothing that waits behind it may go out
                // first. So this producer ends, with all that it holds, and a new one takes over.
                if counted.failed && !shared.broken.swap(true, Ordering::AcqRel) {
                    producer.purge(PurgeConfig::default().queue().inflight());
                }
            }
            Some(Event::Error { code, fatal, text }) => {
                // -150 is "fatal": the reason is asked for apart.
                if fatal || code == Code(-150) {
                    shared.broken.store(true, Ordering::Release);
                }
                if health.trouble(Instant::now()) {
                    tell(SinkEvent::Waiting(if text.is_empty() { code.to_string() } else { text }));
                }
            }
            _ => {}
        }
        if health.probe_due(Instant::now()) {
            let found = client.brokers(Duration::from_millis(500));
            if found.is_ok_and(|found| !found.is_empty()) && health.well() {
                tell(SinkEvent::Recovered);
            }
        }
    }
}

/// What a batch of delivery reports said.
struct Counted {
    /// A record was written.
    delivered: bool,
    /// A record was not written, for no fault of its own.
    failed: bool,
}

/// Counts reports; neighbours of one ticket, which is most of them, are counted together.
fn count(shared: &Shared, deliveries: &Deliveries) -> Counted {
    let (mut place, mut run) = (0, 0);
    let mut counted = Counted { delivered: false, failed: false };
    deliveries.for_each(|opaque, code| {
        let of = (opaque >> 32) as u32;
        if of != place {
            if let Some(event) = shared.tickets.settle(place, run) {
                (shared.events)(event);
            }
            (place, run) = (of, 0);
        }
        run += 1;
        if code.failed() {
            counted.failed |= shared.tickets.wrong(opaque, code);
        } else {
            counted.delivered = true;
        }
    });
    if let Some(event) = shared.tickets.settle(place, run) {
        (shared.events)(event);
    }
    counted
}

/// The producer's configuration. `batch.size` is kept below what every topic takes, so that only a record that is too large by
/// itself is ever refused for its size; `message.max.bytes` is kept out of the way, since each topic has its own limit.
fn settings(config: &KafkaSinkConfig, known: &KnownTopics) -> Result<ClientConfig, Error> {
    let mut batch_bytes = known.batch_bytes_max();
    let mut properties = Vec::with_capacity(config.properties.len());
    for (name, value) in &config.properties {
        let refuse = |detail: String| Err(Error::KafkaSetting { setting: name.clone(), detail });
        match name.as_str() {
            "batch.size" => match value.parse::<u32>() {
                Ok(wanted) if wanted > 0 => batch_bytes = batch_bytes.min(wanted),
                _ => return refuse("it must be a positive number".to_owned()),
            },
            // what a topic takes if that cannot be read: `KnownTopics` has it
            "message.max.bytes" => {}
            "message.timeout.ms" => return refuse("it is called delivery.timeout.ms here".to_owned()),
            "delivery.timeout.ms" if !value.parse().is_ok_and(|ms| (1..=DELIVERY_TIMEOUT_MS_MAX).contains(&ms)) => {
                return refuse(format!("it must be from 1 to {DELIVERY_TIMEOUT_MS_MAX}"));
            }
            _ => properties.push((name.clone(), value.clone())),
        }
    }
    let defaults = [
        ("client.id", "kiteline".to_owned()),
        // While a partition has a request under way and a batch behind it has waited this long, librdkafka's thread (2.12.1) spins
        // instead of sleeping. In the benchmark's job on a busy machine, 20 ms instead of 5 saved a seventh of all CPU time.
        ("linger.ms", "20".to_owned()),
        ("partitioner", "murmur2_random".to_owned()),
        ("delivery.timeout.ms", DELIVERY_TIMEOUT_MS_MAX.to_string()),
        ("queue.buffering.max.messages", "200000".to_owned()),
        ("queue.buffering.max.kbytes", "131072".to_owned()),
    ];
    let fixed = [
        ("bootstrap.servers", config.bootstrap_servers.clone()),
        ("enable.idempotence", "true".to_owned()),
        ("acks", "all".to_owned()),
        ("batch.size", batch_bytes.to_string()),
        // with room for librdkafka's generous estimate of a record's overhead
        ("message.max.bytes", known.record_bytes_max().saturating_add(4096).clamp(1000, BYTES_CEILING).to_string()),
    ];
    client_config(&defaults, &properties, &fixed, &REFUSED)
}

/// The configuration of a client that only asks: how to get there, and nothing of producing.
pub(super) fn admin_settings(config: &KafkaSinkConfig) -> Result<ClientConfig, Error> {
    let fixed = [("bootstrap.servers", config.bootstrap_servers.clone())];
    let mut properties = config.properties.clone();
    properties.retain(|(name, _)| !PRODUCING.contains(&name.as_str()));
    client_config(&[("client.id", "kiteline".to_owned())], &properties, &fixed, &REFUSED)
}

/// Properties of producing that contradict a client without idempotence.
const PRODUCING: [&str; 3] = ["delivery.timeout.ms", "batch.size", "linger.ms"];
