//! The configuration as meant: every value checked, every default filled in, every relation held.
//!
//! The rest of the program sees only these types. They are made by [`super::meaning`] alone; how a value is written, and
//! where it came from, is not kept here.

use std::{fmt, path::PathBuf, sync::Arc};

use kiteline_engine::limits::Limits;

use crate::{layout::Root, secrets::Secret};

/// One app with its pipelines.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The install root that it was read from.
    pub root: Root,
    /// Who it is.
    pub app: App,
    /// The Kafka cluster of all its pipelines.
    pub kafka: Kafka,
    /// Where its checkpoints live.
    pub checkpoint: Checkpoint,
    /// This process as a member of the pipelines' groups.
    pub member: Member,
    /// Its pipelines by name, at least one.
    pub pipelines: Vec<Pipeline>,
}

/// A name in paths, groups and metrics: 1 to 100 of `a-z A-Z 0-9 _ -`, the first a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks the rule above.
    pub fn new(text: &str) -> Option<Self> {
        let first = text.bytes().next()?;
        let rest = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        (first.is_ascii_alphanumeric() && rest && text.len() <= 100).then(|| Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who the app is.
#[derive(Clone, Debug)]
pub struct App {
    /// Part of the checkpoint paths and of the default group.
    pub name: Name,
    /// The owner's own version, which kiteline only records; empty if not given.
    pub release: String,
}

/// A Kafka cluster.
#[derive(Clone, Debug)]
pub struct Kafka {
    /// `host:port`, several with commas.
    pub bootstrap_servers: String,
    /// Client properties, passed through in this order. All are hidden in `Debug`, since some are passwords.
    pub properties: Vec<(String, Secret)>,
}

/// Where checkpoints live, and how often they are written.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The store.
    pub store: CheckpointStore,
    /// Time between two commits of a partition, in milliseconds, 10 to 600,000. Also in each pipeline's limits.
    pub interval_ms: u64,
}

/// The checkpoint store.
#[derive(Clone, Debug)]
pub enum CheckpointStore {
    /// The embedded one, in [`Root::checkpoints`]: one process only.
    File,
    /// ZooKeeper.
    Zookeeper(Zookeeper),
}

/// A ZooKeeper ensemble.
#[derive(Clone, Debug)]
pub struct Zookeeper {
    /// `host:port,…` and maybe a chroot, as ZooKeeper's own clients take it.
    pub connect: String,
    /// Session timeout that is asked for, in milliseconds, 4,000 to 300,000.
    pub session_timeout_ms: u32,
    /// How this process proves who it is; none: nodes are open to everybody.
    pub auth: Option<ZookeeperAuth>,
    /// Encrypted connections; none: plain.
    pub tls: Option<ZookeeperTls>,
}

/// Proof of identity to ZooKeeper.
#[derive(Clone, Debug)]
pub struct ZookeeperAuth {
    /// By which means.
    pub scheme: ZookeeperScheme,
    /// User name.
    pub user: String,
    /// Password.
    pub password: Secret,
    /// Whether everybody may read the nodes, which only their creator may write.
    pub world_read: bool,
}

/// Means of authentication to ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZookeeperScheme {
    /// ZooKeeper's `digest` scheme.
    Digest,
    /// SASL with DIGEST-MD5.
    Sasl,
}

/// Files for encrypted connections to ZooKeeper, all PEM.
#[derive(Clone, Debug)]
pub struct ZookeeperTls {
    /// Certificates of the authorities that are trusted.
    pub ca: PathBuf,
    /// Own certificate and key, if the server asks for one.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// This process as a member of the pipelines' groups.
#[derive(Clone, Debug)]
pub struct Member {
    /// Names this process in the checkpoint store; none: host name and process id.
    pub id: Option<Name>,
    /// Kafka's static membership (`group.instance.id`); none: a dynamic member.
    pub instance_id: Option<String>,
    /// Worker threads of each pipeline, 1 to 256; none: one a core.
    pub workers: Option<u32>,
    /// Longest orderly shutdown, in milliseconds, 1,000 to 3,600,000.
    pub grace_ms: u64,
}

/// One configured path from source to checkpoint.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Its name, unique in the app.
    pub name: Name,
    /// Where records enter.
    pub source: Source,
    /// How values become Avro datums with a schema.
    pub decode: Decode,
    /// The user's code.
    pub transform: Transform,
    /// Where records leave, at least one; no two for one port.
    pub sinks: Vec<Sink>,
    /// What becomes of a record that is rejected or cannot be decoded.
    pub on_record_error: OnRecordError,
    /// What becomes of a partition whose position is not in its log any more.
    pub on_lost_position: OnLostPosition,
    /// Bounds of everything in flight.
    pub limits: Limits,
}

/// Where records enter.
#[derive(Clone, Debug)]
pub struct Source {
    /// Topics, at least one, without repeats.
    pub topics: Vec<String>,
    /// Where a pipeline begins that has no checkpoint yet.
    pub start: Start,
    /// Consumer group; `kiteline.<app>.<pipeline>` if not given.
    pub group: String,
}

/// Where a pipeline begins that has no checkpoint yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record that is there.
    Earliest,
    /// Behind the newest record.
    Latest,
}

/// How values become Avro datums with a schema.
#[derive(Clone, Debug)]
pub enum Decode {
    /// The value is a datum of this schema and nothing else.
    Plain(SchemaFile),
    /// Confluent's prefix (0, four bytes of schema id), schemas from a registry.
    Confluent {
        /// The registry.
        registry: Registry,
        /// Subject whose newest schema the plugin is shown as source schema; `<first topic>-value` if not given.
        subject: String,
    },
}

/// A schema read from a file.
#[derive(Clone, Debug)]
pub struct SchemaFile {
    /// The file.
    pub path: PathBuf,
    /// Its content, parsed and checked.
    pub schema: kiteline_avro::Schema,
}

/// A schema registry that speaks Confluent's HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// `http://` or `https://`, without credentials.
    pub url: String,
    /// Proof of identity; none: anonymous.
    pub auth: Option<RegistryAuth>,
}

/// Proof of identity to a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryAuth {
    /// HTTP basic authentication.
    Basic {
        /// User name.
        user: String,
        /// Password.
        password: Secret,
    },
    /// A bearer token.
    Bearer(Secret),
}

/// The user's code.
#[derive(Clone, Debug)]
pub struct Transform {
    /// The component's file.
    pub plugin: PathBuf,
    /// What the plugin is given as its configuration, by key.
    pub config: Vec<(String, String)>,
    /// Bounds of each call.
    pub limits: TransformLimits,
}

/// Bounds of each call of a transform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformLimits {
    /// Wall time of one call, in milliseconds.
    pub call_deadline_ms: u32,
    /// Memory and tables of one instance together, in bytes.
    pub memory_bytes: u64,
    /// Output buffers of one batch together, in bytes.
    pub emit_bytes_max: u32,
    /// Output entries of one batch.
    pub emit_entries_max: u32,
    /// Encoded outputs of one batch, in bytes.
    pub output_bytes_max: u32,
    /// One encoded record, in bytes.
    pub record_bytes_max: u32,
    /// Nesting of one record.
    pub depth_max: u32,
}

impl Default for TransformLimits {
    fn default() -> Self {
        Self {
            call_deadline_ms: 100,
            memory_bytes: 64 << 20,
            emit_bytes_max: 8 << 20,
            emit_entries_max: 65_536,
            output_bytes_max: 32 << 20,
            record_bytes_max: 1 << 20,
            depth_max: 64,
        }
    }
}

/// Where records of one port leave.
#[derive(Clone, Debug)]
pub struct Sink {
    /// The plugin's port; none: its first one.
    pub port: Option<String>,
    /// Where to.
    pub target: SinkTarget,
    /// How a schema id is attached to what the plugin makes; what it keeps stays as it was produced.
    pub encode: SinkEncode,
}

/// Where records leave to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkTarget {
    /// A Kafka topic.
    Kafka {
        /// The sink's own topic.
        topic: String,
        /// Other topics that the plugin may name per record.
        allowed_topics: Vec<String>,
    },
    /// A file of JSON lines.
    File(PathBuf),
    /// Standard output, JSON lines.
    Stdout,
}

/// How a schema id is attached to what the plugin makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEncode {
    /// Not at all.
    Plain,
    /// Confluent's prefix; the port's schema is registered under `subject`.
    Confluent {
        /// The registry.
        registry: Registry,
        /// The subject; `<topic>-value` if not given.
        subject: String,
    },
}

/// What becomes of a record that is rejected or cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnRecordError {
    /// It is set aside with its provenance.
    DeadLetter(DeadLetter),
    /// It is counted and dropped.
    Drop,
    /// Its partition stops before it.
    Stop,
}

/// Where dead letters go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetter {
    /// A Kafka topic.
    Topic(String),
    /// A file of JSON lines.
    File(PathBuf),
}

/// What becomes of a partition whose position is not in its log any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLostPosition {
    /// It stops and waits for a person.
    Stop,
    /// It goes on at the oldest record that is there.
    Earliest,
    /// It goes on behind the newest record.
    Latest,
}
