//! One pipeline as meant: source, decode, transform, sinks, dead letters, limits, and the relations between them.

use std::path::PathBuf;

use kiteline_avro::Schema;
use kiteline_engine::limits::Limits;

use super::{
    meaning::registry,
    plan::{
        Checkpoint, DeadLetter, Decode, Name, OnLostPosition, OnRecordError, Pipeline, Sink, SinkEncode, SinkTarget,
        Source, Start, Transform, TransformLimits,
    },
    section::{Context, Section},
    tree::{Node, Value},
};
use crate::error::{Place, Problem};

/// A plugin in its place, as far as it could be made out; what [`super::plugins`] checks.
#[derive(Clone, Debug)]
pub struct PluginUse {
    /// The pipeline.
    pub pipeline: String,
    /// The component's file, as written.
    pub file: String,
    /// The same from where the program stands.
    pub path: PathBuf,
    /// Where it is written.
    pub place: Place,
    /// Its configuration.
    pub config: Vec<(String, String)>,
    /// Bounds of its calls.
    pub limits: TransformLimits,
    /// Schema of the source where a file gives it.
    pub source_schema: Option<Schema>,
    /// Ports that sinks name, none for the first one, and where.
    pub ports: Vec<(Option<String>, Place)>,
}

/// Reads the pipeline `name`; none if anything that it needs is wrong.
pub(crate) fn read(
    name: &str,
    app: Option<&Name>,
    section: &Section<'_>,
    checkpoint: Option<&Checkpoint>,
    plugins: &mut Vec<PluginUse>,
    context: &mut Context<'_>,
) -> Option<Pipeline> {
    let table = |name: &'static str| (section.node(name), section.keys_of(name), section.path_of(name));
    let (node, keys, path) = table("source");
    let default_group = format!("kiteline.{}.{name}", app.map_or("", Name::as_str));
    let source = source(&Section::new(node, keys, &path, section.origin()), default_group, context);
    let (node, keys, path) = table("decode");
    let first_topic = source.as_ref().and_then(|s| s.topics.first()).map_or("", String::as_str);
    let decode = decode(&Section::new(node, keys, &path, section.origin()), first_topic, context);
    let source_topics = source.as_ref().map_or(&[][..], |s| &s.topics);
    let (sinks, ports) = sinks(section, decode.as_ref(), source_topics, context);
    let source_schema = match &decode {
        Some(Decode::Plain(file)) => Some(file.schema.clone()),
        _ => None,
    };
    let transform = transform(section, context).map(|(transform, place, file)| {
        plugins.push(PluginUse {
            pipeline: name.into(),
            file,
            path: transform.plugin.clone(),
            place,
            config: transform.config.clone(),
            limits: transform.limits.clone(),
            source_schema,
            ports,
        });
        transform
    });
    let on_record_error = on_record_error(section, source_topics, context);
    let on_lost_position = match section.choice("on_lost_position") {
        Some("earliest") => OnLostPosition::Earliest,
        Some("latest") => OnLostPosition::Latest,
        _ => OnLostPosition::Stop,
    };
    let (node, keys, path) = table("limits");
    let limits = limits(&Section::new(node, keys, &path, section.origin()), checkpoint, context);
    Some(Pipeline {
        name: Name::new(name)?,
        source: source?,
        decode: decode?,
        transform: transform?,
        sinks,
        on_record_error: on_record_error?,
        on_lost_position,
        limits,
    })
}

/// Kafka's rule for names of topics.
fn topic(text: &str, place: Place, context: &mut Context<'_>) -> Option<String> {
    let legal = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if legal && (1..=249).contains(&text.len()) && text != "." && text != ".." {
        return Some(text.into());
    }
    let problem = Problem::new("config.bad-topic", format!("\"{text}\" cannot be a topic"));
    context.problems.push(problem.hint("a topic has 1 to 249 letters, digits, ., - and _").at(place));
    None
}

/// What is written to a source topic would be read again, for ever.
fn no_loop(what: &str, topic: &str, sources: &[String], place: Place, context: &mut Context<'_>) {
    if sources.iter().any(|s| s == topic) {
        let message = format!("topic \"{topic}\" of the {what} is also a source topic of the pipeline");
        context.problems.push(Problem::new("config.loop", message).at(place));
    }
}

fn source(section: &Section<'_>, group: String, context: &mut Context<'_>) -> Option<Source> {
    let written = section.texts("topics");
    if written.is_empty() {
        context.problems.push(section.missing("topics"));
        return None;
    }
    let mut topics = Vec::new();
    for (text, place) in written {
        if topics.iter().any(|t| t == text) {
            context
                .problems
                .push(Problem::new("config.conflict", format!("topic \"{text}\" is named twice")).at(place));
        } else {
            topics.extend(topic(text, place, context));
        }
    }
    let start = match section.choice("start") {
        Some("latest") => Start::Latest,
        _ => Start::Earliest,
    };
    let group = section.text("group").map_or(group, str::to_owned);
    if group.is_empty() {
        context.problems.push(Problem::new("config.empty", "\"group\" is empty").at(section.place("group")));
    }
    Some(Source { topics, start, group })
}

fn decode(section: &Section<'_>, first_topic: &str, context: &mut Context<'_>) -> Option<Decode> {
    let needless = |names: &[&str], format: &str, context: &mut Context<'_>| {
        for name in names.iter().filter(|n| section.node(n).is_some()) {
            let message = format!("\"{name}\" means nothing with wire_format \"{format}\"");
            context.problems.push(Problem::new("config.conflict", message).at(section.place(name)));
        }
    };
    if section.choice("wire_format") == Some("confluent") {
        needless(&["schema"], "confluent", context);
        if section.node("registry").is_none() {
            context.problems.push(section.missing("registry"));
        }
        let registry = registry(section, context)?;
        let subject = section.text("subject").map_or_else(|| format!("{first_topic}-value"), str::to_owned);
        return Some(Decode::Confluent { registry, subject });
    }
    needless(&["registry", "registry_auth", "subject"], "plain", context);
    let file = section.required("schema", context)?;
    context.schema(file, section.place("schema")).map(Decode::Plain)
}

fn transform(section: &Section<'_>, context: &mut Context<'_>) -> Option<(Transform, Place, String)> {
    let items = section.node("transform").map_or(&[][..], Node::items);
    if let Some(second) = items.get(1) {
        let message = format!("{} transforms are written; chains are not built yet", items.len());
        let place = second.origin.place(format!("{}[1]", section.path_of("transform")));
        context.problems.push(Problem::new("config.chain-not-built", message).hint("keep exactly one").at(place));
    }
    let Some(first) = items.first() else {
        if !matches!(section.node("transform").map(|n| &n.value), Some(Value::Table(_))) {
            context.problems.push(section.missing("transform").hint("write a section [[pipeline.NAME.transform]]"));
        }
        return None;
    };
    let path = format!("{}[0]", section.path_of("transform"));
    let section = Section::new(Some(first), section.keys_of("transform"), &path, section.origin());
    let file = section.required("plugin", context)?;
    if file.starts_with("oci:") || file.starts_with("sha256:") {
        let message = format!("plugin \"{file}\" is not a path; digests and OCI references are not supported yet");
        context.problems.push(Problem::new("config.bad-plugin", message).at(section.place("plugin")));
        return None;
    }
    let path = section.path_of("limits");
    let limits = Section::new(section.node("limits"), section.keys_of("limits"), &path, section.origin());
    let transform = Transform {
        plugin: context.root.join(file),
        config: section.scalars("config"),
        limits: TransformLimits {
            call_deadline_ms: limits.number("call_deadline_ms"),
            memory_bytes: limits.number("memory_bytes"),
            emit_bytes_max: limits.number("emit_bytes_max"),
            emit_entries_max: limits.number("emit_entries_max"),
            output_bytes_max: limits.number("output_bytes_max"),
            record_bytes_max: limits.number("record_bytes_max"),
            depth_max: limits.number("depth_max"),
        },
    };
    Some((transform, section.place("plugin"), file.into()))
}

type Port = (Option<String>, Place);

fn sinks(
    section: &Section<'_>,
    decode: Option<&Decode>,
    sources: &[String],
    context: &mut Context<'_>,
) -> (Vec<Sink>, Vec<Port>) {
    let items = section.node("sink").map_or(&[][..], Node::items);
    if items.is_empty() && !matches!(section.node("sink").map(|n| &n.value), Some(Value::Table(_))) {
        context.problems.push(section.missing("sink").hint("write a section [[pipeline.NAME.sink]]"));
    }
    let mut sinks = Vec::new();
    let mut ports: Vec<Port> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{}[{index}]", section.path_of("sink"));
        let one = Section::new(Some(item), section.keys_of("sink"), &path, section.origin());
        let port = one.text("port").map(str::to_owned);
        if ports.iter().any(|(other, _)| *other == port) {
            let message = match &port {
                Some(port) => format!("port \"{port}\" has two sinks"),
                None => "two sinks name no port".into(),
            };
            let hint = "each port leads to one sink; name the port of each";
            context.problems.push(Problem::new("config.conflict", message).hint(hint).at(one.place("port")));
        } else {
            ports.push((port, one.place("port")));
        }
        sinks.extend(sink(&one, decode, sources, context));
    }
    (sinks, ports)
}

fn sink(section: &Section<'_>, decode: Option<&Decode>, sources: &[String], context: &mut Context<'_>) -> Option<Sink> {
    if section.node("kind").is_none() {
        context.problems.push(section.missing("kind"));
    }
    let kind = section.choice("kind")?;
    let wanted: &[&str] = match kind {
        "kafka" => &["topic", "allowed_topics", "wire_format", "registry", "registry_auth", "subject"],
        "file" => &["path"],
        _ => &[],
    };
    for name in ["topic", "allowed_topics", "path", "wire_format", "registry", "registry_auth", "subject"] {
        if section.node(name).is_some() && !wanted.contains(&name) {
            let message = format!("\"{name}\" means nothing with kind \"{kind}\"");
            context.problems.push(Problem::new("config.conflict", message).at(section.place(name)));
        }
    }
    let port = section.text("port").map(str::to_owned);
    let plain = |target| Some(Sink { port: port.clone(), target, encode: SinkEncode::Plain });
    match kind {
        "file" => plain(SinkTarget::File(context.root.join(section.required("path", context)?))),
        "stdout" => plain(SinkTarget::Stdout),
        _ => {
            let name = topic(section.required("topic", context)?, section.place("topic"), context)?;
            no_loop("sink", &name, sources, section.place("topic"), context);
            let mut allowed_topics = Vec::new();
            for (text, place) in section.texts("allowed_topics") {
                no_loop("sink", text, sources, place.clone(), context);
                allowed_topics.extend(topic(text, place, context));
            }
            let encode = sink_encode(section, decode, &name, context)?;
            Some(Sink { port, target: SinkTarget::Kafka { topic: name, allowed_topics }, encode })
        }
    }
}

fn sink_encode(
    section: &Section<'_>,
    decode: Option<&Decode>,
    topic: &str,
    context: &mut Context<'_>,
) -> Option<SinkEncode> {
    let inherited = match decode {
        Some(Decode::Confluent { registry, .. }) => Some(registry),
        _ => None,
    };
    // Without a word of its own a sink writes what decode reads; of a decode section that is wrong, the wider form is taken.
    let confluent = match section.choice("wire_format") {
        Some(word) => word == "confluent",
        None => inherited.is_some() || decode.is_none(),
    };
    if !confluent {
        for name in ["registry", "registry_auth", "subject"].iter().filter(|n| section.node(n).is_some()) {
            let message = format!("\"{name}\" means nothing with wire_format \"plain\"");
            context.problems.push(Problem::new("config.conflict", message).at(section.place(name)));
        }
        return Some(SinkEncode::Plain);
    }
    let own = section.node("registry").is_some();
    let registry = match inherited {
        _ if own => registry(section, context)?,
        Some(inherited) => inherited.clone(),
        None => {
            // With a decode section that could not be read nobody knows whether there is a registry to inherit.
            if decode.is_some() {
                context.problems.push(section.missing("registry"));
            }
            return None;
        }
    };
    if !own && section.node("registry_auth").is_some() {
        let problem = Problem::new("config.conflict", "\"registry_auth\" is given without \"registry\"");
        context.problems.push(problem.at(section.place("registry_auth")));
    }
    let subject = section.text("subject").map_or_else(|| format!("{topic}-value"), str::to_owned);
    Some(SinkEncode::Confluent { registry, subject })
}

fn on_record_error(section: &Section<'_>, sources: &[String], context: &mut Context<'_>) -> Option<OnRecordError> {
    let path = section.path_of("dead_letter");
    let letter = Section::new(section.node("dead_letter"), section.keys_of("dead_letter"), &path, section.origin());
    let word = section.choice("on_record_error")?;
    if word != "dead-letter" {
        if letter.there() {
            let message = format!("\"dead_letter\" means nothing with on_record_error \"{word}\"");
            context.problems.push(Problem::new("config.conflict", message).at(letter.place_of_all()));
        }
        return Some(if word == "drop" { OnRecordError::Drop } else { OnRecordError::Stop });
    }
    if !letter.there() {
        let hint = "write dead_letter = { topic = \"…\" }, or on_record_error = \"drop\" or \"stop\"";
        context.problems.push(section.missing("dead_letter").hint(hint));
        return None;
    }
    match (letter.text("topic"), letter.text("path")) {
        (Some(text), None) => {
            let name = topic(text, letter.place("topic"), context)?;
            no_loop("dead-letter sink", &name, sources, letter.place("topic"), context);
            Some(OnRecordError::DeadLetter(DeadLetter::Topic(name)))
        }
        (None, Some(file)) => Some(OnRecordError::DeadLetter(DeadLetter::File(context.root.join(file)))),
        (topic, _) => {
            let how = if topic.is_some() { "both a topic and a path" } else { "neither a topic nor a path" };
            let problem = Problem::new("config.conflict", format!("\"dead_letter\" has {how}"));
            context.problems.push(problem.hint("write one of them").at(letter.place_of_all()));
            None
        }
    }
}

fn limits(section: &Section<'_>, checkpoint: Option<&Checkpoint>, context: &mut Context<'_>) -> Limits {
    let limits = Limits {
        batch_records_max: section.number("batch_records_max"),
        batch_bytes_max: section.number("batch_bytes_max"),
        partition_batches_max: section.number("partition_batches_max"),
        pipeline_batches_max: section.number("pipeline_batches_max"),
        commit_partitions_max: section.number("commit_partitions_max"),
        commit_interval_ms: checkpoint.map_or_else(|| Limits::default().commit_interval_ms, |c| c.interval_ms),
        drain_ms_max: section.number("drain_ms_max"),
        stall_ms_max: section.number("stall_ms_max"),
        backoff_ms_min: section.number("backoff_ms_min"),
        backoff_ms_max: section.number("backoff_ms_max"),
    };
    let mut at_most = |low: &str, low_value: u64, high: &str, high_value: u64| {
        if low_value > high_value {
            let message = format!("\"{low}\" ({low_value}) is above \"{high}\" ({high_value})");
            context.problems.push(Problem::new("config.out-of-range", message).at(section.place(low)));
        }
    };
    at_most("backoff_ms_min", limits.backoff_ms_min, "backoff_ms_max", limits.backoff_ms_max);
    let (partition, pipeline) = (limits.partition_batches_max, limits.pipeline_batches_max);
    at_most("partition_batches_max", partition.into(), "pipeline_batches_max", pipeline.into());
    limits
}
