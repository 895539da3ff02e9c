//! The one error type of this crate: what starting or driving a connector can come to. Owns no retry rule and no state name;
//! those are the engine's. Failures that belong to one record ([`crate::decode::WireError`], [`crate::decode::RegistryError`])
//! are types of their own, since they become outcomes and not errors.

use std::{io, path::PathBuf};

/// What a connector reports to whoever started it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system gave no thread.
    #[error("could not start the {name} thread")]
    Thread {
        /// Which thread.
        name: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file or folder could not be opened, read, written or synced.
    #[error("could not {action} '{}'", path.display())]
    File {
        /// What was tried, as a verb: `open`, `write`, `sync`.
        action: &'static str,
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file is written to by another sink, of this process or another one.
    #[error("'{}' is in use by another sink", path.display())]
    FileInUse {
        /// Which one.
        path: PathBuf,
    },
    /// The folder of a file store is in use by another process.
    #[error("checkpoint folder '{}' is in use by another process", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The log of a file store is damaged before its tail, so what follows cannot be trusted.
    #[error("checkpoint log '{}' is damaged at byte {at}: {detail}", path.display())]
    Damaged {
        /// The log.
        path: PathBuf,
        /// Where the damage begins.
        at: u64,
        /// What is wrong there.
        detail: String,
    },
    /// A setting of the checkpoint store cannot be used.
    #[error("checkpoint store setting '{setting}': {detail}")]
    StoreSetting {
        /// Name of the setting.
        setting: &'static str,
        /// Why not.
        detail: String,
    },
    /// A setting of the schema registry cannot be used.
    #[error("schema registry setting '{setting}': {detail}")]
    RegistrySetting {
        /// Name of the setting.
        setting: &'static str,
        /// Why not. Never contains the credentials.
        detail: String,
    },
    /// A Kafka client cannot work with a setting.
    #[error("Kafka setting '{setting}': {detail}")]
    KafkaSetting {
        /// Name of the setting.
        setting: String,
        /// Why not. Never contains the value, which may be a password.
        detail: String,
    },
    /// A Kafka client could not be made or used.
    #[error("the Kafka {role} client failed: {detail}")]
    KafkaClient {
        /// Which one: `source`, `sink`, `mock`.
        role: &'static str,
        /// What the client library said.
        detail: String,
    },
    /// A Kafka topic cannot be written to.
    #[error("topic '{topic}' cannot be used: {detail}")]
    KafkaTopic {
        /// The topic.
        topic: String,
        /// Why not.
        detail: String,
    },
    /// A topic is not there.
    #[error("topic '{topic}' is not there")]
    NoTopic {
        /// Its name.
        topic: String,
    },
}
