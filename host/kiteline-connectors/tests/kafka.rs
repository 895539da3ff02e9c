//! Kafka source and sink against librdkafka's mock cluster: every promise that needs no real broker. Each test has topics of its
//! own on a cluster of its own; waits are bounded and look for a state, never for a time.

#[path = "kafka/support.rs"]
mod support;

#[path = "kafka/sink.rs"]
mod sink;
#[path = "kafka/source.rs"]
mod source;
