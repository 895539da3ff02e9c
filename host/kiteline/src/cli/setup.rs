//! `kiteline setup`: the topics and output schemas that an app declares, shown first and made with `--apply`.
//!
//! Made are the topics that the app writes to: sinks, allowed topics, dead letters. Source topics belong to whoever writes them;
//! they are looked at only. Nothing that is there is changed.

use std::{collections::BTreeMap, fs, time::Duration};

use clap::Args;
use kiteline_avro::Schema;
use kiteline_connectors::kafka_admin::KafkaAdmin;
use kiteline_sandbox::{Format, Manifest, Runtime, RuntimeLimits};
use serde_json::{Value, json};

use super::settings::Settings;
use crate::{
    config::{
        self, connect,
        plan::{DeadLetter, Decode, OnRecordError, Pipeline, Plan, SinkEncode, SinkTarget},
        wiring,
    },
    error::{Exit, Failure, Problem},
    output::{Output, table},
};

/// Make the topics and register the output schemas that the app declares; without --apply only say what would be done.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Do it.
    #[arg(long)]
    apply: bool,
    /// Partitions of new topics; without it the broker's default.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..=100_000))]
    partitions: Option<i32>,
    /// Replicas of new topics; without it the broker's default.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..=100))]
    replication: Option<i32>,
    /// Longest wait for one answer, in milliseconds.
    #[arg(long, default_value_t = 10_000, value_name = "MS")]
    timeout_ms: u64,
}

/// One thing that the app declares.
struct Step {
    kind: &'static str,
    name: String,
    why: String,
    state: &'static str,
    note: String,
}

impl Step {
    fn to_json(&self) -> Value {
        json!({ "kind": self.kind, "name": self.name, "for": self.why, "state": self.state, "note": self.note })
    }

    fn row(&self) -> Vec<String> {
        vec![self.kind.into(), self.name.clone(), self.state.into(), self.why.clone(), self.note.clone()]
    }
}

/// Answers with every step and its state: `there`, `missing`, `to make`, `made`.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let settings = &arguments.settings;
    let examined = config::examine_with_plugins(&settings.root(), &settings.surroundings());
    let Some(plan) = examined.plan else { return Err(Failure::usage(examined.problems)) };
    let mut steps = topics(&plan, arguments)?;
    steps.extend(schemas(&plan, arguments)?);
    let json = json!({ "applied": arguments.apply, "steps": steps.iter().map(Step::to_json).collect::<Vec<_>>() });
    output.answer(&json, || {
        let rows: Vec<_> = steps.iter().map(Step::row).collect();
        table(&["what", "name", "state", "for", "note"], &rows)
    });
    if !arguments.apply && steps.iter().any(|s| s.state == TO_MAKE) {
        output.note("nothing was done; --apply does it");
    }
    let missing = steps.iter().any(|s| s.state == MISSING);
    Ok(if missing { Exit::Failed } else { Exit::Ok })
}

const THERE: &str = "there";
const MISSING: &str = "missing";
const TO_MAKE: &str = "to make";
const MADE: &str = "made";

/// Topics with what they are for, and whether kiteline makes them.
pub(super) fn declared_topics(plan: &Plan) -> BTreeMap<String, (String, bool)> {
    let mut topics = BTreeMap::new();
    for pipeline in &plan.pipelines {
        let mut add = |topic: &str, role: &str, ours: bool| {
            let entry =
                topics.entry(topic.to_owned()).or_insert_with(|| (format!("{role} of {}", pipeline.name), ours));
            entry.1 |= ours;
        };
        for sink in &pipeline.sinks {
            if let SinkTarget::Kafka { topic, allowed_topics } = &sink.target {
                add(topic, "sink", true);
                allowed_topics.iter().for_each(|topic| add(topic, "sink", true));
            }
        }
        if let OnRecordError::DeadLetter(DeadLetter::Topic(topic)) = &pipeline.on_record_error {
            add(topic, "dead letters", true);
        }
        pipeline.source.topics.iter().for_each(|topic| add(topic, "source", false));
    }
    topics
}

fn topics(plan: &Plan, arguments: &Arguments) -> Result<Vec<Step>, Failure> {
    let timeout = Duration::from_millis(arguments.timeout_ms);
    let admin = admin(plan)?;
    let declared = declared_topics(plan);
    let names: Vec<&str> = declared.keys().map(String::as_str).collect();
    let states = admin.topics(&names, timeout).map_err(|error| unreachable(&error))?;
    let mut steps = Vec::new();
    for (state, (name, (why, ours))) in states.into_iter().zip(&declared) {
        let (word, note) = match state.partitions {
            Some(count) => (THERE, format!("{count} partitions")),
            None if !ours => (MISSING, "belongs to whoever writes it".into()),
            None if !arguments.apply => (TO_MAKE, String::new()),
            None => {
                let made = admin.create(name, arguments.partitions, arguments.replication, timeout);
                made.map_err(|error| {
                    let message = format!("topic \"{name}\" could not be made");
                    Problem::new("sink.topic-not-made", message).cause(&error)
                })?;
                (MADE, String::new())
            }
        };
        steps.push(Step { kind: "topic", name: name.clone(), why: why.clone(), state: word, note });
    }
    Ok(steps)
}

/// A client for questions about topics.
pub(super) fn admin(plan: &Plan) -> Result<KafkaAdmin, Failure> {
    KafkaAdmin::new(&plan.kafka.bootstrap_servers, &wiring::kafka_properties(&plan.kafka)).map_err(|error| {
        let problem = Problem::new("source.kafka-settings", "the Kafka client's settings cannot be used").cause(&error);
        Failure::new(Exit::Usage, problem)
    })
}

/// The failure that Kafka does not answer.
pub(super) fn unreachable(error: &kiteline_connectors::Error) -> Failure {
    let problem = Problem::new("source.unreachable", "Kafka cannot be reached").cause(error);
    Failure::new(Exit::Unreachable, problem.hint("check kafka.bootstrap_servers and the network"))
}

/// Schemas of the Avro ports whose sinks write Confluent's prefix.
fn schemas(plan: &Plan, arguments: &Arguments) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    for pipeline in &plan.pipelines {
        if pipeline.sinks.iter().all(|s| s.encode == SinkEncode::Plain) {
            continue;
        }
        let manifest = manifest(pipeline)?;
        let names: Vec<&str> = manifest.outputs.iter().map(|o| o.name.as_str()).collect();
        let sinks: Vec<Option<&str>> = pipeline.sinks.iter().map(|s| s.port.as_deref()).collect();
        let sinks = connect(&names, &sinks)
            .map_err(|(_, message)| Failure::usage(vec![Problem::new("transform.ports", message)]))?;
        for (port, sink) in manifest.outputs.iter().zip(sinks) {
            let (Format::Avro(text), SinkEncode::Confluent { registry, subject }) =
                (&port.format, &pipeline.sinks[sink].encode)
            else {
                continue;
            };
            let client = wiring::registry(registry)?;
            let why = format!("port {} of {}", port.name, pipeline.name);
            steps.push(schema(&client, subject, text, why, arguments.apply)?);
        }
    }
    Ok(steps)
}

fn schema(
    client: &kiteline_connectors::decode::Registry,
    subject: &str,
    text: &str,
    why: String,
    apply: bool,
) -> Result<Step, Failure> {
    let refused = |error: kiteline_connectors::decode::RegistryError| {
        let message = format!("schema of subject \"{subject}\" could not be registered or looked up");
        let problem = Problem::new("sink.registry", message).cause(&error);
        let passing = matches!(error, kiteline_connectors::decode::RegistryError::Passing(_));
        Failure::new(if passing { Exit::Unreachable } else { Exit::Failed }, problem)
    };
    let schema = Schema::parse(text).map_err(|error| {
        Problem::new("transform.schema", format!("schema of {why} is not a usable Avro schema")).cause(&error)
    })?;
    let step = |state, note: String| Step { kind: "schema", name: subject.into(), why: why.clone(), state, note };
    if apply {
        let id = client.register(subject, &schema).map_err(refused)?;
        return Ok(step(MADE, format!("id {id}")));
    }
    match client.latest(subject) {
        Ok(latest) if latest.schema.text() == schema.text() => Ok(step(THERE, format!("id {}", latest.id))),
        Ok(latest) => Ok(step(TO_MAKE, format!("the newest one, id {}, differs", latest.id))),
        Err(kiteline_connectors::decode::RegistryError::NotFound) => Ok(step(TO_MAKE, "the first one".into())),
        Err(error) => Err(refused(error)),
    }
}

/// What the pipeline's plugin says about itself, with the source schema that it would see.
fn manifest(pipeline: &Pipeline) -> Result<Manifest, Failure> {
    let source = match &pipeline.decode {
        Decode::Plain(file) => Some(file.schema.text().to_owned()),
        Decode::Confluent { registry, subject } => {
            wiring::registry(registry)?.latest(subject).ok().map(|latest| latest.schema.text().to_owned())
        }
    };
    let file = &pipeline.transform.plugin;
    let failed = |error: kiteline_sandbox::Error| {
        let message = format!("plugin \"{}\" of pipeline \"{}\" is refused", file.display(), pipeline.name);
        Failure::usage(vec![Problem::new(error.code(), message).cause(&error)])
    };
    let bytes = fs::read(file).map_err(|error| {
        let message = format!("plugin file \"{}\" cannot be read", file.display());
        Failure::usage(vec![Problem::new("transform.unreadable-plugin", message).cause(&error)])
    })?;
    let limits = RuntimeLimits { cache_dir: None, ..RuntimeLimits::default() };
    let plugin = Runtime::new(limits).and_then(|runtime| runtime.load(&bytes)).map_err(failed)?;
    plugin.describe(&pipeline.transform.config, source.as_deref()).map_err(failed)
}
