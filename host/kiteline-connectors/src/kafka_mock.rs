//! A Kafka cluster inside the process, for the demo and for tests: librdkafka's own mock. It keeps nothing on disk, holds about
//! 5 MiB or 100,000 batches a partition, and has no Admin API and no real transactions.

use std::{sync::Arc, time::Duration};

use rdkafka::{
    ClientConfig,
    error::KafkaError,
    mocking::MockCluster,
    producer::{BaseProducer, DefaultProducerContext, Producer},
};

use crate::{Error, kafka_calls::Client, kafka_settings::client_error};

/// How long the mock waits for more members before it starts a group. Its own default of 3 s is most of a demo.
const JOIN_DELAY: Duration = Duration::from_millis(100);

/// A mock cluster; it ends when this is dropped.
pub struct MockKafka {
    owner: Arc<BaseProducer>,
}

impl MockKafka {
    /// Starts a cluster of `brokers` brokers on loopback ports that the system chooses.
    pub fn start(brokers: u8) -> Result<Self, Error> {
        let owner: BaseProducer = ClientConfig::new()
            .set("test.mock.num.brokers", brokers.to_string())
            .create()
            .map_err(|error| client_error("mock", error))?;
        let owner = Arc::new(owner);
        Client::of_producer(&owner).set_mock_join_delay(JOIN_DELAY);
        Ok(Self { owner })
    }

    /// Where clients find it.
    pub fn bootstrap_servers(&self) -> String {
        self.cluster().bootstrap_servers()
    }

    /// Makes a topic. The mock makes an unknown one by itself, with four partitions, as soon as a producer asks for it.
    pub fn create_topic(&self, topic: &str, partitions: i32) -> Result<(), Error> {
        self.cluster().create_topic(topic, partitions, 1).map_err(|error: KafkaError| client_error("mock", error))
    }

    /// Takes a broker down (numbers start at 1): connections are closed and new ones refused.
    pub fn broker_down(&self, broker: i32) -> Result<(), Error> {
        self.cluster().broker_down(broker).map_err(|error| client_error("mock", error))
    }

    /// Brings a broker back.
    pub fn broker_up(&self, broker: i32) -> Result<(), Error> {
        self.cluster().broker_up(broker).map_err(|error| client_error("mock", error))
    }

    /// Everything else that the mock can do, such as injected errors.
    pub fn cluster(&self) -> MockCluster<'_, DefaultProducerContext> {
        self.owner.client().mock_cluster().expect("the client was made with a mock cluster")
    }
}
