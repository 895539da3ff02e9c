//! Every key that there is, with its shape, its default and its meaning: the configuration's grammar, as data.
//!
//! Unknown keys, wrong types, ranges, `--set`, environment variables and `config explain` all read this table, so none of
//! them can forget a key. Relations between keys are not here but in [`super::meaning`].

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// A string.
    Text,
    /// A string that holds a reference such as `${env:NAME}`, never the secret itself.
    Secret,
    /// A whole number within these bounds, both included.
    Integer(i64, i64),
    /// `true` or `false`; the default is false.
    Boolean,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of strings; a single string is taken as a list of one.
    Texts,
    /// Keys of the owner's choice with scalar values: client properties, where values may hold references.
    Properties,
    /// Keys of the owner's choice with scalar values: a plugin's configuration.
    PluginConfig,
    /// A table of these keys.
    Table(&'static [Key]),
    /// Tables of these keys, by a name of the owner's choice.
    Named(&'static [Key]),
    /// A list of tables of these keys, `[[…]]`.
    Tables(&'static [Key]),
}

impl Shape {
    /// What it takes, for messages.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Text => "a string".into(),
            Self::Secret => "a reference such as \"${env:NAME}\" or \"${file:PATH}\"".into(),
            Self::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Self::Boolean => "true or false".into(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Texts => "a list of strings".into(),
            Self::Properties | Self::PluginConfig => "a table of scalars".into(),
            Self::Table(_) => "a table".into(),
            Self::Named(_) => "a table of tables".into(),
            Self::Tables(_) => "a list of tables".into(),
        }
    }
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// As written.
    pub name: &'static str,
    /// What it takes.
    pub shape: Shape,
    /// What is taken where it is left out, in words if it depends; empty: nothing, or it must be given.
    pub default: &'static str,
    /// What it means.
    pub doc: &'static str,
}

const fn key(name: &'static str, shape: Shape, default: &'static str, doc: &'static str) -> Key {
    Key { name, shape, default, doc }
}

/// The key `name` of `keys`.
pub(crate) fn find(keys: &'static [Key], name: &str) -> Option<&'static Key> {
    keys.iter().find(|k| k.name == name)
}

/// The name among `names` that `wrong` was probably meant to be: at most a third of its characters differ.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (wrong.chars().count() / 3).max(1);
    let (distance, name) = names.into_iter().map(|n| (distance(wrong, n), n)).min()?;
    (distance <= bound).then_some(name)
}

/// Edits between two words: insert, delete, replace, swap of neighbours (optimal string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// The top of the app's file.
pub(crate) const ROOT: &[Key] = &[
    key("app", Shape::Table(APP), "", "who the app is"),
    key("kafka", Shape::Table(KAFKA), "", "the Kafka cluster of all pipelines"),
    key("checkpoint", Shape::Table(CHECKPOINT), "", "where checkpoints live and how often they are written"),
    key("member", Shape::Table(MEMBER), "", "this process as a member of the pipelines' groups; best set per process"),
    key("pipeline", Shape::Named(PIPELINE), "", "pipelines by name"),
];

const APP: &[Key] = &[
    key(
        "name",
        Shape::Text,
        "",
        "name of the app, part of checkpoint paths and of the default group; letters, digits, - and _",
    ),
    key("release", Shape::Text, "empty", "the owner's own version, written into every run"),
];

const KAFKA: &[Key] = &[
    key("bootstrap_servers", Shape::Text, "", "host:port of one or more brokers, with commas between"),
    key(
        "properties",
        Shape::Properties,
        "",
        "client properties, passed through; values may hold ${env:NAME} and ${file:PATH}",
    ),
];

const CHECKPOINT: &[Key] = &[
    key("store", Shape::Choice(&["file", "zookeeper"]), "file", "where checkpoints live; file serves one process only"),
    key("connect", Shape::Text, "", "ZooKeeper's host:port list, with the chroot behind it"),
    key("session_timeout_ms", Shape::Integer(4_000, 300_000), "30000", "ZooKeeper session timeout that is asked for"),
    key("interval_ms", Shape::Integer(10, 600_000), "1000", "time between two commits of a partition"),
    key("auth", Shape::Table(ZOOKEEPER_AUTH), "", "how this process proves to ZooKeeper who it is"),
    key("tls", Shape::Table(ZOOKEEPER_TLS), "", "encrypted connections to ZooKeeper"),
];

const ZOOKEEPER_AUTH: &[Key] = &[
    key("scheme", Shape::Choice(&["digest", "sasl"]), "digest", "ZooKeeper's digest scheme, or SASL with DIGEST-MD5"),
    key("user", Shape::Text, "", "user name"),
    key("password", Shape::Secret, "", "password, as a reference"),
    key("world_read", Shape::Boolean, "false", "whether everybody may read the nodes"),
];

const ZOOKEEPER_TLS: &[Key] = &[
    key("ca", Shape::Text, "", "PEM file of the authorities that are trusted"),
    key("cert", Shape::Text, "", "PEM file of the own certificate, if the server asks for one"),
    key("key", Shape::Text, "", "PEM file of the own key, if the server asks for one"),
];

const MEMBER: &[Key] = &[
    key("id", Shape::Text, "host name and process id", "names this process in the checkpoint store"),
    key("instance_id", Shape::Text, "none", "Kafka's static membership, group.instance.id"),
    key("workers", Shape::Integer(1, 256), "one a core", "worker threads of each pipeline"),
    key("grace_ms", Shape::Integer(1_000, 3_600_000), "30000", "longest orderly shutdown"),
];

const PIPELINE: &[Key] = &[
    key("source", Shape::Table(SOURCE), "", "where records enter"),
    key("decode", Shape::Table(DECODE), "", "how values become Avro datums with a schema"),
    key("transform", Shape::Tables(TRANSFORM), "", "the plugin; exactly one"),
    key("sink", Shape::Tables(SINK), "", "where records leave, one for each of the plugin's ports"),
    key(
        "on_record_error",
        Shape::Choice(&["dead-letter", "drop", "stop"]),
        "dead-letter",
        "what becomes of a record that is rejected or cannot be decoded",
    ),
    key("dead_letter", Shape::Table(DEAD_LETTER), "", "where dead letters go: a topic or a file"),
    key(
        "on_lost_position",
        Shape::Choice(&["stop", "earliest", "latest"]),
        "stop",
        "what becomes of a partition whose position is not in its log any more",
    ),
    key("limits", Shape::Table(LIMITS), "", "bounds of everything in flight"),
];

const SOURCE: &[Key] = &[
    key("topics", Shape::Texts, "", "topics that are read"),
    key(
        "start",
        Shape::Choice(&["earliest", "latest"]),
        "earliest",
        "where the pipeline begins while it has no checkpoint",
    ),
    key("group", Shape::Text, "kiteline.<app>.<pipeline>", "Kafka consumer group"),
];

const DECODE: &[Key] = &[
    key("wire_format", Shape::Choice(&["plain", "confluent"]), "plain", "how a schema id is attached to a value"),
    key("schema", Shape::Text, "", "file of the writer schema; with wire_format plain"),
    key("registry", Shape::Text, "", "address of the schema registry; with wire_format confluent"),
    key("registry_auth", Shape::Table(REGISTRY_AUTH), "", "how this process proves to the registry who it is"),
    key(
        "subject",
        Shape::Text,
        "<first topic>-value",
        "subject whose newest schema the plugin is shown as source schema",
    ),
];

const REGISTRY_AUTH: &[Key] = &[
    key("user", Shape::Text, "", "user name for basic authentication"),
    key("password", Shape::Secret, "", "password for basic authentication, as a reference"),
    key("token", Shape::Secret, "", "bearer token, as a reference; instead of user and password"),
];

const TRANSFORM: &[Key] = &[
    key("plugin", Shape::Text, "", "file of the component, from the install root"),
    key("config", Shape::PluginConfig, "", "what the plugin is given as its configuration"),
    key("limits", Shape::Table(TRANSFORM_LIMITS), "", "bounds of each call"),
];

const TRANSFORM_LIMITS: &[Key] = &[
    key("call_deadline_ms", Shape::Integer(1, 60_000), "100", "wall time of one call"),
    key("memory_bytes", Shape::Integer(64 << 10, 4 << 30), "67108864", "memory and tables of one instance together"),
    key("emit_bytes_max", Shape::Integer(1 << 10, 256 << 20), "8388608", "output buffers of one batch together"),
    key("emit_entries_max", Shape::Integer(1, 1 << 20), "65536", "output entries of one batch"),
    key("output_bytes_max", Shape::Integer(1 << 10, 1 << 30), "33554432", "encoded outputs of one batch"),
    key("record_bytes_max", Shape::Integer(1 << 10, 128 << 20), "1048576", "one encoded record with key and headers"),
    key("depth_max", Shape::Integer(1, 64), "64", "nesting of one record"),
];

const SINK: &[Key] = &[
    key("port", Shape::Text, "the plugin's first one", "the plugin's output port"),
    key("kind", Shape::Choice(&["kafka", "file", "stdout"]), "", "where to"),
    key("topic", Shape::Text, "", "the topic; with kind kafka"),
    key("allowed_topics", Shape::Texts, "none", "other topics that the plugin may name per record; with kind kafka"),
    key("path", Shape::Text, "", "file of JSON lines, from the install root; with kind file"),
    key(
        "wire_format",
        Shape::Choice(&["plain", "confluent"]),
        "that of decode",
        "how a schema id is attached to what the plugin makes; with kind kafka",
    ),
    key("registry", Shape::Text, "that of decode", "where the port's schema is registered; with wire_format confluent"),
    key(
        "registry_auth",
        Shape::Table(REGISTRY_AUTH),
        "that of decode",
        "how this process proves to that registry who it is",
    ),
    key("subject", Shape::Text, "<topic>-value", "under which name the port's schema is registered"),
];

const DEAD_LETTER: &[Key] = &[
    key("topic", Shape::Text, "", "a Kafka topic"),
    key("path", Shape::Text, "", "a file of JSON lines, from the install root"),
];

const LIMITS: &[Key] = &[
    key("batch_records_max", Shape::Integer(1, 65_536), "256", "records of a batch"),
    key("batch_bytes_max", Shape::Integer(1 << 10, 64 << 20), "65536", "bytes of a batch as fetched, a goal"),
    key(
        "partition_batches_max",
        Shape::Integer(1, 4_096),
        "32",
        "batches of a partition between fetch and acknowledgement",
    ),
    key(
        "pipeline_batches_max",
        Shape::Integer(1, 65_536),
        "128",
        "batches of the pipeline between fetch and acknowledgement",
    ),
    key("commit_partitions_max", Shape::Integer(1, 199), "100", "partitions in one request to the checkpoint store"),
    key("drain_ms_max", Shape::Integer(100, 300_000), "5000", "time to drain a partition before it is given back"),
    key(
        "stall_ms_max",
        Shape::Integer(1_000, 86_400_000),
        "60000",
        "time without progress before a partition is reported as stalled",
    ),
    key("backoff_ms_min", Shape::Integer(1, 60_000), "100", "first pause before a failed step is tried again"),
    key("backoff_ms_max", Shape::Integer(1, 600_000), "5000", "longest pause before a failed step is tried again"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it panics")]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        let check = |wrong: &str, expected| {
            assert_eq!(nearest(wrong, SOURCE.iter().map(|k| k.name)), expected, "{wrong}");
        };
        check("topcs", Some("topics"));
        check("topisc", Some("topics"));
        check("Topics", Some("topics"));
        check("sart", Some("start"));
        check("wire_format", None);
    }

    #[test]
    fn numeric_defaults_are_those_of_the_types() {
        let check = |keys: &'static [Key], name: &str, value: u64| {
            assert_eq!(find(keys, name).unwrap().default, value.to_string(), "{name}");
        };
        let limits = kiteline_engine::limits::Limits::default();
        check(LIMITS, "batch_records_max", limits.batch_records_max.into());
        check(LIMITS, "batch_bytes_max", limits.batch_bytes_max.into());
        check(LIMITS, "partition_batches_max", limits.partition_batches_max.into());
        check(LIMITS, "pipeline_batches_max", limits.pipeline_batches_max.into());
        check(LIMITS, "commit_partitions_max", limits.commit_partitions_max.into());
        check(LIMITS, "drain_ms_max", limits.drain_ms_max);
        check(LIMITS, "stall_ms_max", limits.stall_ms_max);
        check(LIMITS, "backoff_ms_min", limits.backoff_ms_min);
        check(LIMITS, "backoff_ms_max", limits.backoff_ms_max);
        check(CHECKPOINT, "interval_ms", limits.commit_interval_ms);
        let limits = super::super::plan::TransformLimits::default();
        check(TRANSFORM_LIMITS, "call_deadline_ms", limits.call_deadline_ms.into());
        check(TRANSFORM_LIMITS, "memory_bytes", limits.memory_bytes);
        check(TRANSFORM_LIMITS, "emit_bytes_max", limits.emit_bytes_max.into());
        check(TRANSFORM_LIMITS, "emit_entries_max", limits.emit_entries_max.into());
        check(TRANSFORM_LIMITS, "output_bytes_max", limits.output_bytes_max.into());
        check(TRANSFORM_LIMITS, "record_bytes_max", limits.record_bytes_max.into());
        check(TRANSFORM_LIMITS, "depth_max", limits.depth_max.into());
    }
}
