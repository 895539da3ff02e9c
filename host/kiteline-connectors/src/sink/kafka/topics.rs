//! What topics take: how large a record, which timestamps, whether a key is needed. Read once from the brokers, so that a record that
//! can never be written is refused before it spoils the batch that it would be in.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rdkafka::{
    admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier},
    client::DefaultClientContext,
};

use super::{KafkaSinkConfig, TopicFacts, producer};
use crate::{Error, kafka_calls::Client, kafka_settings::client_error};

/// Kafka's default of `max.message.bytes`.
const BYTES_MAX: u32 = 1_048_588;

/// Kafka's default of `message.timestamp.after.max.ms` since 3.6: an hour.
const FUTURE_MS_MAX: i64 = 3_600_000;

/// The most that librdkafka can be told to take.
pub(super) const BYTES_CEILING: u32 = 1_000_000_000;

/// Default of librdkafka's `batch.size`, and its upper bound here.
const BATCH_BYTES_MAX: u32 = 1_000_000;

/// What was learnt, by topic.
pub(super) struct KnownTopics {
    facts: Mutex<BTreeMap<String, TopicFacts>>,
    /// What a topic takes if that cannot be read.
    pub(super) bytes_max_assumed: u32,
}

impl KnownTopics {
    /// Nothing is known yet.
    pub(super) fn new(config: &KafkaSinkConfig) -> Result<Self, Error> {
        let mut assumed = BYTES_MAX;
        for (setting, value) in config.properties.iter().filter(|(name, _)| name == "message.max.bytes") {
            assumed = value.parse().ok().filter(|bytes| (1000..=BYTES_CEILING).contains(bytes)).ok_or_else(|| {
                let detail = format!("it must be from 1000 to {BYTES_CEILING}");
                Error::KafkaSetting { setting: setting.clone(), detail }
            })?;
        }
        Ok(Self { facts: Mutex::default(), bytes_max_assumed: assumed })
    }

    /// Adds facts; whether anything is new.
    pub(super) fn learn(&self, facts: &[TopicFacts]) -> bool {
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = false;
        for fact in facts {
            changed |= known.insert(fact.topic.clone(), fact.clone()).as_ref() != Some(fact);
        }
        changed
    }

    /// What is known of a topic.
    pub(super) fn of(&self, topic: &str) -> Option<TopicFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }

    /// Largest batch that every known topic takes: one record too many may not spoil a batch.
    pub(super) fn batch_bytes_max(&self) -> u32 {
        self.fold(BATCH_BYTES_MAX.min(self.bytes_max_assumed), u32::min)
    }

    /// Largest record that any known topic takes.
    pub(super) fn record_bytes_max(&self) -> u32 {
        self.fold(self.bytes_max_assumed, u32::max)
    }

    fn fold(&self, start: u32, with: fn(u32, u32) -> u32) -> u32 {
        let known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|facts| facts.bytes_max).fold(start, with)
    }
}

/// Asks the brokers. See [`super::KafkaSink::check`].
pub(super) fn facts(
    client: &Client,
    config: &KafkaSinkConfig,
    bytes_max_assumed: u32,
    topics: &[&str],
    timeout: Duration,
) -> Result<Vec<TopicFacts>, Error> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let described =
        client.describe_topics(topics, timeout).map_err(|detail| Error::KafkaClient { role: "sink", detail })?;
    let settings = settings(config, topics, timeout)?;
    topics
        .iter()
        .zip(described)
        .zip(settings)
        .map(|((topic, described), settings)| {
            if let Some((_, detail)) = described.error {
                return Err(Error::KafkaTopic { topic: (*topic).to_owned(), detail });
            }
            let mut facts = TopicFacts {
                topic: (*topic).to_owned(),
                topic_id: described.id,
                partitions: described.partitions,
                bytes_max: bytes_max_assumed,
                append_time: false,
                compacted: false,
                past_ms_max: i64::MAX,
                future_ms_max: FUTURE_MS_MAX,
                note: None,
            };
            match settings {
                Ok(settings) => read(&mut facts, &settings),
                Err(why) => {
                    // A guess must never refuse what the topic would take.
                    facts.future_ms_max = i64::MAX;
                    facts.note = Some(format!("its settings cannot be read, Kafka's defaults are assumed: {why}"));
                }
            }
            Ok(facts)
        })
        .collect()
}

fn read(facts: &mut TopicFacts, settings: &ConfigResource) {
    let value = |name| settings.get(name).and_then(|entry| entry.value.as_deref());
    let number = |name, default| value(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let assumed = i64::from(facts.bytes_max);
    facts.bytes_max = number("max.message.bytes", assumed).clamp(0, i64::from(u32::MAX)) as u32;
    facts.append_time = value("message.timestamp.type") == Some("LogAppendTime");
    facts.compacted =
        value("cleanup.policy").is_some_and(|policies| policies.split(',').any(|p| p.trim() == "compact"));
    facts.past_ms_max = number("message.timestamp.before.max.ms", i64::MAX);
    // Brokers before 3.6 have no such setting, and no such check.
    facts.future_ms_max = number("message.timestamp.after.max.ms", i64::MAX);
}

/// Longest wait for the settings. Brokers that have just described the topics answer at once, or not at all: some cannot tell.
const SETTINGS_WAIT: Duration = Duration::from_secs(1);

/// Settings of the topics, or why there are none; an error only if no client can be made.
fn settings(
    config: &KafkaSinkConfig,
    topics: &[&str],
    timeout: Duration,
) -> Result<Vec<Result<ConfigResource, String>>, Error> {
    let admin: AdminClient<DefaultClientContext> =
        producer::admin_settings(config)?.create().map_err(|error| client_error("sink", error))?;
    let wanted: Vec<ResourceSpecifier<'_>> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let options = AdminOptions::new().request_timeout(Some(timeout.min(SETTINGS_WAIT)));
    let answer = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|source| Error::Thread { name: "kafka-admin", source })?
        .block_on(admin.describe_configs(&wanted, &options));
    Ok(match answer {
        Ok(found) if found.len() == topics.len() => {
            found.into_iter().map(|one| one.map_err(|code| code.to_string())).collect()
        }
        Ok(_) => topics.iter().map(|_| Err("the answer is incomplete".to_owned())).collect(),
        Err(error) => topics.iter().map(|_| Err(error.to_string())).collect(),
    })
}
