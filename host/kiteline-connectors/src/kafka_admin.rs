//! Questions about topics, and making them: for commands, not for running pipelines. Every call waits, within a bound.

use std::{sync::Arc, time::Duration};

use kiteline_engine::ids::TopicPartition;

use rdkafka::{
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    error::{KafkaError, RDKafkaErrorCode},
};

use crate::{
    Error,
    kafka_settings::{client_config, client_error},
    source::kafka::LogRange,
};

/// A client for questions about topics.
pub struct KafkaAdmin {
    client: AdminClient<DefaultClientContext>,
}

/// What is known of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicState {
    /// Its name.
    pub name: String,
    /// How many partitions it has; none: it is not there.
    pub partitions: Option<usize>,
}

impl KafkaAdmin {
    /// Makes the client; connects to nothing yet. `properties` are client properties, the last of a name wins.
    ///
    /// # Errors
    /// Properties that the client refuses.
    pub fn new(bootstrap_servers: &str, properties: &[(String, String)]) -> Result<Self, Error> {
        let fixed = [("bootstrap.servers", bootstrap_servers.to_owned())];
        let config = client_config(&[], properties, &fixed, &[])?;
        let client = config.create().map_err(|error| client_error("admin", error))?;
        Ok(Self { client })
    }

    /// Looks at topics, in the order of `names`. Makes none, whatever the broker would do on its own.
    ///
    /// # Errors
    /// Brokers that do not answer within `timeout` each, or that refuse.
    pub fn topics(&self, names: &[&str], timeout: Duration) -> Result<Vec<TopicState>, Error> {
        // The whole list at once: asking for a single unknown topic would make it where the broker makes topics by itself.
        let metadata =
            self.client.inner().fetch_metadata(None, timeout).map_err(|error| client_error("admin", error))?;
        let state = |name: &&str| {
            let found = metadata.topics().iter().find(|topic| topic.name() == *name);
            TopicState { name: (*name).to_owned(), partitions: found.map(|topic| topic.partitions().len()) }
        };
        Ok(names.iter().map(state).collect())
    }

    /// Where the logs of all partitions of these topics start and end, without topic ids.
    ///
    /// # Errors
    /// A topic that is not there, and what [`KafkaAdmin::topics`] says.
    pub fn log_ranges(&self, names: &[&str], timeout: Duration) -> Result<Vec<(TopicPartition, LogRange)>, Error> {
        let mut ranges = Vec::new();
        for state in self.topics(names, timeout)? {
            let Some(partitions) = state.partitions else { return Err(Error::NoTopic { topic: state.name }) };
            let topic: Arc<str> = state.name.into();
            for partition in (0i32..).take(partitions) {
                let marks = self.client.inner().fetch_watermarks(&topic, partition, timeout);
                let (start, end) = marks.map_err(|error| client_error("admin", error))?;
                let range = LogRange { start, end, topic_id: String::new() };
                ranges.push((TopicPartition::new(Arc::clone(&topic), partition), range));
            }
        }
        Ok(ranges)
    }

    /// Makes a topic; none of `partitions` or `replication` leaves it to the broker. False: it was there already.
    ///
    /// # Errors
    /// A broker that refuses or does not answer within `timeout`.
    pub fn create(
        &self,
        name: &str,
        partitions: Option<i32>,
        replication: Option<i32>,
        timeout: Duration,
    ) -> Result<bool, Error> {
        let topic = NewTopic::new(name, partitions.unwrap_or(-1), TopicReplication::Fixed(replication.unwrap_or(-1)));
        let options = AdminOptions::new().operation_timeout(Some(timeout)).request_timeout(Some(timeout));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(|source| Error::Thread { name: "admin", source })?;
        let made = runtime.block_on(self.client.create_topics([&topic], &options));
        let made = made.map_err(|error| client_error("admin", error))?;
        match made.into_iter().next() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(false),
            Some(Err((_, code))) => Err(client_error("admin", KafkaError::AdminOp(code))),
            None => Err(client_error("admin", KafkaError::AdminOp(RDKafkaErrorCode::Unknown))),
        }
    }
}
