//! Before the first record: plugin compiled, schemas at hand, sinks proved, store opened. Nothing is read before all of it holds.
//!
//! What is wrong for good fails at once. What is only not there yet (broker, registry, a topic) is waited for and told, so that a
//! restart in an outage needs nobody; a stop ends the wait.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::{Duration, Instant},
};

use kiteline_avro::Schema;
use kiteline_connectors::{
    checkpoint::{Store, StoreEvent},
    decode::{Registry, RegistryError},
    kafka_admin::KafkaAdmin,
    sink::kafka::{KafkaSink, KafkaSinkConfig},
    source::kafka::KafkaSourceConfig,
};
use kiteline_engine::{
    Identity,
    event::Candidate,
    ids::{MemberId, TopicPartition},
    pipeline::{OnLostPosition, Pipeline, Setup},
};
use kiteline_sandbox::{CallLimits, Deployment, DeploymentSetup, Format, Plugin, PortSetup, Runtime, RuntimeLimits};

use super::{
    Control, Input, Options,
    alone::Alone,
    clock, forward,
    lines::{Lines, PortValues},
    perform::Performer,
    process::{Process, random_seed},
    schemas::Schemas,
    workers::{Decoding, Workers},
    writer::{DeadLetters, OutFile, Provenance, Target, Targets, Writer},
};
use crate::{
    config::{
        self, Surroundings,
        plan::{self, CheckpointStore, Decode, OnRecordError, Plan, SinkEncode, SinkTarget},
        wiring,
    },
    error::{Chain, Failure, Problem},
    layout::Root,
    observe::{Level, Line},
};

/// Time between two tries at something that is not there yet.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Time between two lines about the same wait.
const TELL_AGAIN: Duration = Duration::from_secs(30);
/// Longest single question to Kafka.
const ASK_KAFKA: Duration = Duration::from_secs(5);
/// The contract that is spoken here; a plugin of another one is refused when it is loaded.
const CONTRACT: &str = "kiteline:transform/rows@0.1.0";
/// The plugin that a process begins with.
const FIRST_TOKEN: u64 = 1;

/// Everything that the loop needs.
pub(super) struct Prepared {
    pub(super) engine: Pipeline,
    pub(super) performer: Performer,
}

/// Loads plugins of one pipeline: the first one, and those that follow.
#[derive(Clone)]
pub(super) struct Loader {
    runtime: Runtime,
    surroundings: Surroundings,
    source_schema: Schema,
    prefixes: Prefixes,
    /// Names of the ports that sinks are wired to; a plugin with others needs a restart.
    ports: Vec<String>,
}

/// What stands before the datums of a port, by the port's name.
type Prefixes = Vec<(String, Vec<u8>)>;

/// What a wait ended with.
enum Waited<T> {
    There(T),
    Stopped,
}

/// One try at something: there, not yet and why, or never.
enum Try<T> {
    There(T),
    NotYet(String),
    Never(Failure),
}

/// Prepares everything. None if it was told to stop meanwhile.
pub(super) fn prepare(
    plan: &Plan,
    pipeline: &plan::Pipeline,
    options: &Options,
    inputs: &Receiver<Input>,
    sender: &SyncSender<Input>,
) -> Result<Option<Prepared>, Failure> {
    let preparing = Preparing { plan, pipeline, options, inputs };
    let runtime = runtime(plan, pipeline)?;
    let plugin = load_file(&runtime, &pipeline.transform.plugin)?;
    // before anything is waited for, so that `latest` means now and not when the last sink came
    let Waited::There((partitions, first_start)) = preparing.first_start()? else { return Ok(None) };
    let Waited::There((decoding, source_schema)) = preparing.decoding()? else { return Ok(None) };
    let first = describe(&plugin, pipeline, &source_schema)?;
    let wired = preparing.wire(&first)?;
    let Waited::There(prefixes) = preparing.prefixes(&first)? else { return Ok(None) };
    let deployment = deploy(&plugin, pipeline, &source_schema, &prefixes)?;
    let Waited::There(kafka) = preparing.sinks(sender)? else { return Ok(None) };
    let files = wired.files.iter().map(|path| OutFile::open(path)).collect::<Result<Vec<_>, _>>();
    let files = files.map_err(|e| fail("sink.file", "a sink's file cannot be used", &e))?;

    let queue_max = pipeline.limits.pipeline_batches_max as usize * 2 + 64;
    let threads = |e: std::io::Error| fail("pipeline.threads", "a thread cannot be started", &e);
    let count = plan.member.workers.map_or_else(cores, |n| n as usize);
    let workers = Workers::start(count, queue_max, &decoding, forward(sender, Input::Done)).map_err(threads)?;
    let process = Process::this();
    let member =
        plan.member.id.as_ref().map_or_else(|| format!("{}-{}", process.host, process.pid), ToString::to_string);
    let targets = Targets {
        ports: wired.targets.clone(),
        dead_letters: wired.dead_letters,
        kafka: kafka.clone(),
        files,
        lines: Lines { decoding, ports: port_values(&first, &prefixes)?, limits: kiteline_avro::Limits::default() },
        provenance: Provenance { pipeline: format!("{}/{}", plan.app.name, pipeline.name), member: member.clone() },
    };
    let writer = Writer::start(targets, queue_max, forward(sender, Input::Write)).map_err(threads)?;
    let store = Store::start(wiring::store(plan, pipeline.name.as_str(), false)?, store_events(sender))
        .map_err(|e| fail("checkpoint.store", "the checkpoint store cannot be used", &e))?;
    let identity = Identity {
        member: MemberId(member.into()),
        host: process.host.clone(),
        pid: process.pid,
        boot: process.boot.clone(),
        release: plan.app.release.clone(),
        group: pipeline.source.group.clone(),
        first_start,
    };
    let seed = random_seed().map_err(|e| fail("pipeline.random", "the system gives no random numbers", &e))?;
    let engine = Pipeline::new(Setup {
        identity,
        plugin: candidate(&plugin, pipeline, &deployment, FIRST_TOKEN),
        on_lost_position: match pipeline.on_lost_position {
            plan::OnLostPosition::Stop => OnLostPosition::Stop,
            plan::OnLostPosition::Earliest => OnLostPosition::Earliest,
            plan::OnLostPosition::Latest => OnLostPosition::Latest,
        },
        until_end: options.until_end,
        limits: pipeline.limits.clone(),
        seed,
    });
    let loader = Loader {
        runtime,
        surroundings: options.surroundings.clone(),
        source_schema,
        prefixes,
        ports: first.outputs.iter().map(|o| o.name.clone()).collect(),
    };
    let performer = Performer {
        observer: options.observer.clone(),
        inputs: sender.clone(),
        store,
        source_config: preparing.source_config(),
        source: None,
        source_number: 0,
        leaving: None,
        kafka,
        workers,
        writer,
        targets: wired.targets,
        on_record_error: pipeline.on_record_error.clone(),
        process,
        alone: matches!(plan.checkpoint.store, CheckpointStore::File).then(|| Alone::new(partitions)),
        loader,
        in_flight: super::in_flight::InFlight::default(),
        candidates: [(FIRST_TOKEN, deployment)].into(),
        live_token: FIRST_TOKEN,
        digests: std::collections::BTreeMap::new(),
        ends: std::collections::BTreeMap::new(),
        committed_at: Instant::now(),
        answers: std::collections::VecDeque::new(),
    };
    Ok(Some(Prepared { engine, performer }))
}

/// What the store says counts from when it says it: a proof of the session must not become younger by waiting here.
fn store_events(sender: &SyncSender<Input>) -> impl Fn(StoreEvent) + Send + Sync + use<> {
    let inputs = sender.clone();
    move |event| {
        let _ = inputs.send(Input::Store(clock::now().at, event));
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn fail(code: &'static str, message: &str, error: &dyn std::error::Error) -> Failure {
    Problem::new(code, message).cause(error).into()
}

fn runtime(plan: &Plan, pipeline: &plan::Pipeline) -> Result<Runtime, Failure> {
    let base = RuntimeLimits::default();
    let cache = plan.root.cache();
    // without a cache the plugin is compiled at each start, which works as well
    let cache_dir = fs::create_dir_all(&cache).is_ok().then_some(cache);
    let limits = RuntimeLimits {
        memory_bytes_max: base.memory_bytes_max.max(pipeline.transform.limits.memory_bytes),
        cache_dir,
        ..base
    };
    Runtime::new(limits).map_err(|e| fail("transform.runtime", "the sandbox cannot be set up", &e))
}

fn load_file(runtime: &Runtime, path: &Path) -> Result<Plugin, Failure> {
    let unreadable = |e: std::io::Error| {
        let message = format!("plugin file \"{}\" cannot be read", path.display());
        Failure::usage(vec![Problem::new("transform.unreadable-plugin", message).cause(&e)])
    };
    let bytes = fs::read(path).map_err(unreadable)?;
    runtime.load(&bytes).map_err(|e| refused(path, &e))
}

fn refused(path: &Path, error: &kiteline_sandbox::Error) -> Failure {
    let message = format!("plugin \"{}\" cannot be used", path.display());
    let problem = Problem::new("transform.plugin", message).cause(error);
    Failure::usage(vec![match config::hint(error) {
        Some(hint) => problem.hint(hint),
        None => problem,
    }])
}

fn describe(
    plugin: &Plugin,
    pipeline: &plan::Pipeline,
    source_schema: &Schema,
) -> Result<kiteline_sandbox::Manifest, Failure> {
    plugin
        .describe(&pipeline.transform.config, Some(source_schema.text()))
        .map_err(|e| refused(&pipeline.transform.plugin, &e))
}

fn call_limits(pipeline: &plan::Pipeline) -> CallLimits {
    CallLimits { batch_records_max: pipeline.limits.batch_records_max, ..pipeline.transform.limits.call_limits() }
}

fn deploy(
    plugin: &Plugin,
    pipeline: &plan::Pipeline,
    source_schema: &Schema,
    prefixes: &[(String, Vec<u8>)],
) -> Result<Deployment, Failure> {
    let manifest = describe(plugin, pipeline, source_schema)?;
    let names: Vec<&str> = manifest.outputs.iter().map(|o| o.name.as_str()).collect();
    let sinks: Vec<Option<&str>> = pipeline.sinks.iter().map(|s| s.port.as_deref()).collect();
    let order = config::connect(&names, &sinks).map_err(|(_, why)| {
        Failure::usage(vec![
            Problem::new("sink.port", "the plugin's ports and the pipeline's sinks do not fit").detail(why),
        ])
    })?;
    let ports = manifest.outputs.iter().zip(&order).map(|(output, sink)| PortSetup {
        prefix: prefixes.iter().find(|(name, _)| *name == output.name).map(|(_, p)| p.clone()).unwrap_or_default(),
        topics_allowed: match &pipeline.sinks[*sink].target {
            SinkTarget::Kafka { allowed_topics, .. } => allowed_topics.iter().map(|t| t.as_str().into()).collect(),
            SinkTarget::File(_) | SinkTarget::Stdout => Vec::new(),
        },
    });
    let setup = DeploymentSetup {
        config: pipeline.transform.config.clone(),
        source_schema: Some(source_schema.clone()),
        ports: ports.collect(),
        limits: call_limits(pipeline),
    };
    let deployment = Deployment::new(plugin, setup).map_err(|e| refused(&pipeline.transform.plugin, &e))?;
    // a reader schema that the source's own schema cannot be resolved to would make every record undecodable: said now
    if let Err(e) = deployment.writer(source_schema) {
        let message = "the plugin's reader schema cannot be resolved from the source schema";
        return Err(Failure::usage(vec![Problem::new("decode.unresolvable", message).cause(&e)]));
    }
    Ok(deployment)
}

fn candidate(plugin: &Plugin, pipeline: &plan::Pipeline, deployment: &Deployment, token: u64) -> Candidate {
    Candidate {
        token,
        digest: plugin.digest().to_owned(),
        config_digest: config_digest(&pipeline.transform.config),
        contract: CONTRACT.to_owned(),
        stateless: deployment.manifest().stateless,
    }
}

/// SHA-256 over the settings as `key`, 0, `value`, 0, in the order of their keys.
fn config_digest(config: &[(String, String)]) -> String {
    use sha2::{Digest as _, Sha256};
    let mut sorted: Vec<_> = config.iter().collect();
    sorted.sort();
    let mut hash = Sha256::new();
    for (key, value) in sorted {
        for text in [key, value] {
            hash.update(text.as_bytes());
            hash.update([0]);
        }
    }
    format!("sha256:{}", super::lines::hex(&hash.finalize()))
}

fn port_values(
    manifest: &kiteline_sandbox::Manifest,
    prefixes: &[(String, Vec<u8>)],
) -> Result<Vec<PortValues>, Failure> {
    manifest
        .outputs
        .iter()
        .map(|output| {
            Ok(match &output.format {
                Format::Same => PortValues::Source,
                Format::Raw => PortValues::Raw,
                Format::Avro(text) => {
                    let schema =
                        Schema::parse(text).map_err(|e| fail("transform.port", "a port's schema is wrong", &e))?;
                    let prefix = prefixes.iter().find(|(name, _)| *name == output.name).map_or(0, |(_, p)| p.len());
                    PortValues::Avro(schema, prefix)
                }
            })
        })
        .collect()
}

/// Why a topic cannot be used yet, and what helps where it is only missing.
fn with_hint(error: &kiteline_connectors::Error) -> String {
    use kiteline_connectors::Error::{KafkaTopic, NoTopic};
    let hint = match error {
        NoTopic { .. } | KafkaTopic { .. } => "; `kiteline setup` shows what is missing, with --apply it makes it",
        _ => "",
    };
    format!("{}{hint}", Chain(error))
}

/// Where ports and dead letters lead to.
struct Wired {
    targets: Vec<Target>,
    dead_letters: Option<DeadLetters>,
    files: Vec<PathBuf>,
}

struct Preparing<'a> {
    plan: &'a Plan,
    pipeline: &'a plan::Pipeline,
    options: &'a Options,
    inputs: &'a Receiver<Input>,
}

impl Preparing<'_> {
    /// Tries until it is there, tells why not, and listens for a stop meanwhile.
    fn wait<T>(
        &self,
        event: &'static str,
        what: &str,
        mut attempt: impl FnMut() -> Try<T>,
    ) -> Result<Waited<T>, Failure> {
        let mut told: Option<(Instant, String)> = None;
        loop {
            match attempt() {
                Try::There(value) => return Ok(Waited::There(value)),
                Try::Never(failure) => return Err(failure),
                Try::NotYet(why) => {
                    if told.as_ref().is_none_or(|(at, last)| at.elapsed() > TELL_AGAIN || *last != why) {
                        let line = Line::new(Level::Warn, event, format!("waiting for {what}")).with("reason", &why);
                        self.options.observer.line(line);
                        told = Some((Instant::now(), why));
                    }
                }
            }
            let until = Instant::now() + TRY_AGAIN;
            loop {
                match self.inputs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(Input::Control(Control::Stop)) | Err(RecvTimeoutError::Disconnected) => {
                        return Ok(Waited::Stopped);
                    }
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                }
            }
        }
    }

    /// How records are decoded, and the newest schema of the source.
    fn decoding(&self) -> Result<Waited<(Decoding, Schema)>, Failure> {
        match &self.pipeline.decode {
            Decode::Plain(file) => Ok(Waited::There((Decoding::Plain(file.schema.clone()), file.schema.clone()))),
            Decode::Confluent { registry, subject } => {
                let client = wiring::registry(registry)?;
                let what = format!("subject \"{subject}\" in the schema registry");
                let newest = self.wait("decode.waiting", &what, || match client.latest(subject) {
                    Ok(latest) => Try::There((*latest.schema).clone()),
                    Err(e @ (RegistryError::Passing { .. } | RegistryError::NotFound)) => {
                        Try::NotYet(Chain(&e).to_string())
                    }
                    Err(e) => Try::Never(fail("decode.schema", "the source's newest schema cannot be used", &e)),
                })?;
                let Waited::There(schema) = newest else { return Ok(Waited::Stopped) };
                let schemas =
                    Schemas::start(client).map_err(|e| fail("pipeline.threads", "a thread cannot be started", &e))?;
                Ok(Waited::There((Decoding::Registry(schemas), schema)))
            }
        }
    }

    fn wire(&self, manifest: &kiteline_sandbox::Manifest) -> Result<Wired, Failure> {
        let names: Vec<&str> = manifest.outputs.iter().map(|o| o.name.as_str()).collect();
        let sinks: Vec<Option<&str>> = self.pipeline.sinks.iter().map(|s| s.port.as_deref()).collect();
        let order = config::connect(&names, &sinks).map_err(|(_, why)| {
            Failure::usage(vec![
                Problem::new("sink.port", "the plugin's ports and the pipeline's sinks do not fit").detail(why),
            ])
        })?;
        let mut files = Vec::new();
        let mut file = |path: &PathBuf| {
            files.iter().position(|known| known == path).unwrap_or_else(|| {
                files.push(path.clone());
                files.len() - 1
            })
        };
        let targets = order.iter().map(|sink| match &self.pipeline.sinks[*sink].target {
            SinkTarget::Kafka { topic, .. } => Target::Kafka(topic.clone()),
            SinkTarget::File(path) => Target::File(file(path)),
            SinkTarget::Stdout => Target::Stdout,
        });
        let targets = targets.collect();
        let dead_letters = match &self.pipeline.on_record_error {
            OnRecordError::DeadLetter(plan::DeadLetter::Topic(topic)) => Some(DeadLetters::Topic(topic.clone())),
            OnRecordError::DeadLetter(plan::DeadLetter::File(path)) => Some(DeadLetters::File(file(path))),
            OnRecordError::Drop | OnRecordError::Stop => None,
        };
        Ok(Wired { targets, dead_letters, files })
    }

    /// What goes before the datums of each port whose sink wants a schema id there: its schema is registered now.
    fn prefixes(&self, manifest: &kiteline_sandbox::Manifest) -> Result<Waited<Prefixes>, Failure> {
        let first = manifest.outputs.first().map(|o| o.name.as_str()).unwrap_or_default();
        let mut prefixes = Vec::new();
        for output in &manifest.outputs {
            let Format::Avro(text) = &output.format else { continue };
            let sink = self.pipeline.sinks.iter().find(|s| s.port.as_deref().unwrap_or(first) == output.name);
            let Some(SinkEncode::Confluent { registry, subject }) = sink.map(|s| &s.encode) else { continue };
            let client = wiring::registry(registry)?;
            let schema = Schema::parse(text).map_err(|e| fail("transform.port", "a port's schema is wrong", &e))?;
            let Waited::There(id) = self.register(&client, subject, &schema)? else { return Ok(Waited::Stopped) };
            let mut prefix = vec![0];
            prefix.extend(id.to_be_bytes());
            prefixes.push((output.name.clone(), prefix));
        }
        Ok(Waited::There(prefixes))
    }

    fn register(&self, client: &Registry, subject: &str, schema: &Schema) -> Result<Waited<u32>, Failure> {
        let what = format!("the schema registry to take subject \"{subject}\"");
        self.wait("sink.waiting", &what, || match client.register(subject, schema) {
            Ok(id) => Try::There(id),
            Err(e @ RegistryError::Passing { .. }) => Try::NotYet(Chain(&e).to_string()),
            Err(e) => Try::Never(fail("sink.schema", "an output schema cannot be registered", &e)),
        })
    }

    /// Kafka topics that outputs and dead letters may go to.
    fn topics(&self) -> Vec<String> {
        let mut topics = Vec::new();
        for sink in &self.pipeline.sinks {
            if let SinkTarget::Kafka { topic, allowed_topics } = &sink.target {
                topics.push(topic.clone());
                topics.extend(allowed_topics.iter().cloned());
            }
        }
        if let OnRecordError::DeadLetter(plan::DeadLetter::Topic(topic)) = &self.pipeline.on_record_error {
            topics.push(topic.clone());
        }
        topics.sort();
        topics.dedup();
        topics
    }

    /// The producer, once every topic is there.
    fn sinks(&self, sender: &SyncSender<Input>) -> Result<Waited<Option<Arc<KafkaSink>>>, Failure> {
        let topics = self.topics();
        if topics.is_empty() {
            return Ok(Waited::There(None));
        }
        let config = KafkaSinkConfig {
            bootstrap_servers: self.plan.kafka.bootstrap_servers.clone(),
            properties: wiring::kafka_properties(&self.plan.kafka),
        };
        let sink = KafkaSink::start(config, forward(sender, Input::Sink))
            .map_err(|e| fail("sink.kafka", "the Kafka producer cannot be set up", &e))?;
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let what = format!("sink topics {}", names.join(", "));
        let proved = self.wait("sink.waiting", &what, || match sink.check(&names, ASK_KAFKA) {
            Ok(facts) => Try::There(facts),
            Err(e) => Try::NotYet(with_hint(&e)),
        })?;
        Ok(match proved {
            Waited::There(facts) => {
                for fact in &facts {
                    if let Some(note) = &fact.note {
                        let line = Line::new(Level::Info, "sink.assumed", "a sink topic's limits are assumed");
                        self.options.observer.line(line.with("topic", &fact.topic).with("reason", note));
                    }
                }
                Waited::There(Some(Arc::new(sink)))
            }
            Waited::Stopped => Waited::Stopped,
        })
    }

    fn source_config(&self) -> KafkaSourceConfig {
        KafkaSourceConfig {
            bootstrap_servers: self.plan.kafka.bootstrap_servers.clone(),
            group: self.pipeline.source.group.clone(),
            topics: self.pipeline.source.topics.clone(),
            instance_id: self.plan.member.instance_id.clone(),
            properties: wiring::kafka_properties(&self.plan.kafka),
            batch_records_max: self.pipeline.limits.batch_records_max,
            batch_bytes_max: self.pipeline.limits.batch_bytes_max,
        }
    }

    /// Source topics must be there; how many partitions they have. `latest` is pinned here: what is written from now on belongs to a pipeline that begins now.
    fn first_start(&self) -> Result<Waited<(usize, Vec<(TopicPartition, i64)>)>, Failure> {
        let config = self.source_config();
        let what = format!("source topics {}", config.topics.join(", "));
        let admin = KafkaAdmin::new(&config.bootstrap_servers, &config.properties)
            .map_err(|e| fail("source.kafka", "the Kafka client cannot be set up", &e))?;
        let names: Vec<&str> = config.topics.iter().map(String::as_str).collect();
        let ranges = self.wait("source.waiting", &what, || match admin.log_ranges(&names, ASK_KAFKA) {
            Ok(ranges) => Try::There(ranges),
            Err(e) => Try::NotYet(with_hint(&e)),
        })?;
        let Waited::There(ranges) = ranges else { return Ok(Waited::Stopped) };
        let partitions = ranges.len();
        let start = match self.pipeline.source.start {
            plan::Start::Earliest => Vec::new(),
            plan::Start::Latest => ranges.into_iter().map(|(tp, range)| (tp, range.end)).collect(),
        };
        Ok(Waited::There((partitions, start)))
    }
}

impl Loader {
    /// Reads the configuration again and loads what it now says of the plugin. Sinks and source stay as they are.
    pub(super) fn load_again(
        &self,
        root: &Root,
        pipeline: &plan::Name,
        token: u64,
    ) -> Result<(Candidate, Deployment), String> {
        let plan = config::load(root, &self.surroundings).map_err(|f| f.to_string())?;
        let again = plan.pipelines.iter().find(|p| p.name == *pipeline);
        let again = again.ok_or_else(|| format!("pipeline \"{pipeline}\" is not in the configuration any more"))?;
        let one_line = |f: Failure| f.to_string();
        let plugin = load_file(&self.runtime, &again.transform.plugin).map_err(one_line)?;
        let deployment = deploy(&plugin, again, &self.source_schema, &self.prefixes).map_err(one_line)?;
        let ports: Vec<_> = deployment.manifest().outputs.iter().map(|o| o.name.clone()).collect();
        if ports != self.ports {
            return Err(format!("it has ports {}, the running pipeline {}", ports.join(", "), self.ports.join(", ")));
        }
        Ok((candidate(&plugin, again, &deployment, token), deployment))
    }
}
