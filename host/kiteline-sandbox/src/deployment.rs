//! One transform as deployed: what the plugin said about itself, its layouts and ports, the programs from and to bytes, the topics that
//! it may name. Immutable but for the writer schemas, which producers add over time; shared by all workers. Not here: batches.

use std::sync::{Arc, PoisonError, RwLock};

use kiteline_avro::{Encoder, Layout, Limits, Patcher, Plan, PlanError, Schema};

use crate::{
    buffers::{input::RowShape, output::PortKind},
    error::Error,
    host::Console,
    instance::Instance,
    limits::{CallLimits, WRITERS_MAX},
    manifest::{Format, Manifest},
    plugin::Plugin,
    stack,
    wit::since_v0_1_0::{self as wit, OpenContext, PortLayout},
};

/// What a pipeline says about its transform.
#[derive(Clone, Debug)]
pub struct DeploymentSetup {
    /// The plugin's settings; keys are unique.
    pub config: Vec<(String, String)>,
    /// Newest schema of the source, pinned with the revision; none where there is no decode stage to know one.
    pub source_schema: Option<Schema>,
    /// One per port of the plugin, in its order.
    pub ports: Vec<PortSetup>,
    /// Bounds of this transform.
    pub limits: CallLimits,
}

/// What a pipeline connects to one port.
#[derive(Clone, Debug, Default)]
pub struct PortSetup {
    /// Bytes before every datum of an Avro port: the wire format with the id of the port's schema. Unused for other ports.
    pub prefix: Vec<u8>,
    /// Topics that the plugin may name per record on this port.
    pub topics_allowed: Vec<Arc<str>>,
}

/// Names a writer schema within one deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub(crate) u32);

/// One transform as deployed. Cheap to clone.
#[derive(Clone)]
pub struct Deployment {
    inner: Arc<Inner>,
}

struct Inner {
    plugin: Plugin,
    manifest: Manifest,
    reader: Schema,
    shape: RowShape,
    ports: Vec<Port>,
    port_kinds: Vec<PortKind>,
    /// Every topic that any port may name, sorted.
    topics: Vec<Arc<str>>,
    context: OpenContext,
    limits: CallLimits,
    codec: Limits,
    writers: RwLock<Vec<Arc<Writer>>>,
}

/// A port with its programs.
pub(crate) struct Port {
    pub(crate) prefix: Vec<u8>,
    /// Schema and encoder of an Avro port.
    pub(crate) avro: Option<(Schema, Encoder)>,
    /// For each of the deployment's topics, whether this port may name it.
    pub(crate) allowed: Vec<bool>,
}

/// The programs for one writer schema.
pub(crate) struct Writer {
    schema: Schema,
    /// To the reader schema.
    pub(crate) plan: Plan,
    /// Edits in the producer's own schema, none if it takes no edits: its root is no struct.
    pub(crate) patcher: Option<Patcher>,
    /// By port: what becomes of a kept or patched value there.
    pub(crate) targets: Vec<Target>,
}

/// What becomes of a kept or patched value on a port.
pub(crate) enum Target {
    /// It stays in the producer's schema, framing included.
    Own,
    /// The port's schema is the producer's: same datum, the port's framing.
    Framed,
    /// It is resolved to the port's schema and encoded anew.
    Resolved(Box<Resolved>),
    /// The port's schema cannot be reached from the producer's.
    Unreachable,
}

/// The programs that bring a value from the producer's schema to a port's.
pub(crate) struct Resolved {
    /// From the writer's to the port's schema.
    pub(crate) plan: Plan,
    /// Edits in the port's schema.
    pub(crate) patcher: Option<Patcher>,
}

impl Deployment {
    /// Runs `describe`, checks schemas and ports, and opens a trial instance.
    ///
    /// # Errors
    ///
    /// Everything that can be known before the first record: refusals of the plugin, a manifest, schema, port or limit that does
    /// not fit, a trap or deadline in `describe` or `open`.
    pub fn new(plugin: &Plugin, setup: DeploymentSetup) -> Result<Self, Error> {
        let DeploymentSetup { mut config, source_schema, ports, limits } = setup;
        let runtime = plugin.runtime().limits();
        limits.check(runtime.memory_bytes_max)?;
        stack::check(runtime.stack_bytes)?;
        config.sort();
        let manifest = plugin.describe(&config, source_schema.as_ref().map(Schema::text))?;
        let codec =
            Limits { depth_max: limits.depth_max, record_bytes_max: limits.record_bytes_max, ..Limits::default() };
        let reader = reader(&manifest, source_schema.as_ref(), &codec)?;
        let layout = Layout::new(&reader).map_err(|source| Error::Schema { what: "reader schema".into(), source })?;
        let topics = topics(&ports);
        let ports = connect(&manifest, ports, &topics, &codec)?;
        let root = layout.node(0);
        let wants = manifest.input.wants;
        let shape = RowShape {
            frame_bytes: root.frame_bytes(),
            null_bits: root.null_bits,
            keys: wants.key,
            headers: wants.headers,
        };
        let context = context(config, &layout, &manifest, &ports, &limits)?;
        let port_kinds = manifest.outputs.iter().map(|output| port_kind(&output.format)).collect();
        let deployment = Self {
            inner: Arc::new(Inner {
                plugin: plugin.clone(),
                manifest,
                reader,
                shape,
                ports,
                port_kinds,
                topics,
                context,
                limits,
                codec,
                writers: RwLock::default(),
            }),
        };
        deployment.instance(Console::default())?;
        if let Some(source) = &source_schema {
            deployment.writer(source)?;
        }
        Ok(deployment)
    }

    /// What the plugin said about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// The plugin that runs here.
    pub fn plugin(&self) -> &Plugin {
        &self.inner.plugin
    }

    /// The schema of the rows: the plugin's reader schema, or the source schema if it has none.
    pub fn reader_schema(&self) -> &Schema {
        &self.inner.reader
    }

    /// Schema of an Avro port, none for other ports and unknown numbers: what the pipeline registers for its sink.
    pub fn port_schema(&self, port: usize) -> Option<&Schema> {
        self.inner.ports.get(port)?.avro.as_ref().map(|(schema, _)| schema)
    }

    /// Registers a writer schema and compiles its programs, once per schema; from any thread, off the hot path.
    ///
    /// # Errors
    ///
    /// [`Error::Resolve`] if the reader schema cannot be reached from it, [`Error::Writers`] for one too many.
    pub fn writer(&self, schema: &Schema) -> Result<WriterId, Error> {
        let known = |writers: &[Arc<Writer>]| {
            let at = writers.iter().position(|writer| writer.schema.text() == schema.text())?;
            u32::try_from(at).ok().map(WriterId)
        };
        if let Some(id) = known(&self.inner.writers.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(id);
        }
        let writer = Arc::new(self.compile(schema)?);
        let mut writers = self.inner.writers.write().unwrap_or_else(PoisonError::into_inner);
        // another thread may have been faster
        if let Some(id) = known(&writers) {
            return Ok(id);
        }
        if writers.len() >= WRITERS_MAX {
            return Err(Error::Writers { writers_max: WRITERS_MAX });
        }
        writers.push(writer);
        Ok(WriterId(u32::try_from(writers.len() - 1).expect("WRITERS_MAX is far below")))
    }

    fn compile(&self, schema: &Schema) -> Result<Writer, Error> {
        let Inner { reader, codec, ports, .. } = &*self.inner;
        let resolve =
            |source: PlanError| Error::Resolve { what: "reader schema against the writer schema".into(), source };
        let plan = Plan::compile(schema, reader, codec).map_err(resolve)?;
        let targets = ports
            .iter()
            .map(|port| match &port.avro {
                None => Target::Own,
                Some((target, _)) if target.text() == schema.text() => Target::Framed,
                Some((target, _)) => match Plan::compile(schema, target, codec) {
                    Ok(plan) => {
                        let patcher = Patcher::compile(target, reader, codec).ok();
                        Target::Resolved(Box::new(Resolved { plan, patcher }))
                    }
                    Err(_) => Target::Unreachable,
                },
            })
            .collect();
        let patcher = Patcher::compile(schema, reader, codec).ok();
        Ok(Writer { schema: schema.clone(), plan, patcher, targets })
    }

    /// Adds to `have` the writers that were registered since.
    pub(crate) fn catch_up(&self, have: &mut Vec<Arc<Writer>>) {
        let writers = self.inner.writers.read().unwrap_or_else(PoisonError::into_inner);
        have.extend(writers[have.len()..].iter().cloned());
    }

    /// A fresh instance, opened. The console goes on from the one before it.
    pub(crate) fn instance(&self, console: Console) -> Result<Instance, Error> {
        let Inner { plugin, limits, context, .. } = &*self.inner;
        let mut instance = Instance::start(plugin, limits.memory_bytes_max, console)?;
        instance.open(context)?;
        Ok(instance)
    }

    pub(crate) fn shape(&self) -> RowShape {
        self.inner.shape
    }

    pub(crate) fn limits(&self) -> &CallLimits {
        &self.inner.limits
    }

    pub(crate) fn ports(&self) -> &[Port] {
        &self.inner.ports
    }

    pub(crate) fn port_kinds(&self) -> &[PortKind] {
        &self.inner.port_kinds
    }

    pub(crate) fn topics(&self) -> &[Arc<str>] {
        &self.inner.topics
    }
}

fn port_kind(format: &Format) -> PortKind {
    match format {
        Format::Same => PortKind::Same,
        Format::Raw => PortKind::Raw,
        Format::Avro(_) => PortKind::Avro,
    }
}

/// The schema of the rows; if the plugin declares one, it must be reachable from the source schema.
fn reader(manifest: &Manifest, source: Option<&Schema>, codec: &Limits) -> Result<Schema, Error> {
    let Some(text) = &manifest.input.reader_schema else {
        return source.cloned().ok_or(Error::NoSchema);
    };
    let reader = Schema::parse(text).map_err(|source| Error::Schema { what: "reader schema".into(), source })?;
    if let Some(source) = source {
        let what = || "reader schema against the source schema".into();
        Plan::compile(source, &reader, codec).map_err(|source| Error::Resolve { what: what(), source })?;
    }
    Ok(reader)
}

/// Every topic that any port may name, sorted. Names that Kafka does not allow are left out: nobody may name them.
fn topics(ports: &[PortSetup]) -> Vec<Arc<str>> {
    let mut topics: Vec<Arc<str>> =
        ports.iter().flat_map(|port| &port.topics_allowed).filter(|name| topic_legal(name)).cloned().collect();
    topics.sort();
    topics.dedup();
    // numbers of topics have 16 bits and 0 means none
    topics.truncate(usize::from(u16::MAX));
    topics
}

/// Kafka's rule: 1 to 249 of letters, digits, `.`, `_`, `-`, but neither `.` nor `..` alone.
fn topic_legal(name: &str) -> bool {
    (1..=249).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn connect(
    manifest: &Manifest,
    setups: Vec<PortSetup>,
    topics: &[Arc<str>],
    codec: &Limits,
) -> Result<Vec<Port>, Error> {
    if manifest.outputs.len() != setups.len() {
        let names: Vec<&str> = manifest.outputs.iter().map(|output| output.name.as_str()).collect();
        return Err(Error::Ports { declared: names.len(), names: names.join(", "), connected: setups.len() });
    }
    let port = |(output, setup): (&crate::manifest::OutputDecl, PortSetup)| {
        let refuse = |source| Error::Schema { what: format!("schema of port {:?}", output.name), source };
        let avro = match &output.format {
            Format::Avro(text) => {
                let schema = Schema::parse(text).map_err(refuse)?;
                let encoder = Encoder::compile(&schema, codec).map_err(refuse)?;
                Some((schema, encoder))
            }
            Format::Same | Format::Raw => None,
        };
        let allowed = topics.iter().map(|topic| setup.topics_allowed.contains(topic)).collect();
        Ok(Port { prefix: setup.prefix, avro, allowed })
    };
    manifest.outputs.iter().zip(setups).map(port).collect()
}

fn context(
    config: Vec<(String, String)>,
    layout: &Layout,
    manifest: &Manifest,
    ports: &[Port],
    limits: &CallLimits,
) -> Result<OpenContext, Error> {
    let bytes = Schema::parse("\"bytes\"").and_then(|schema| Layout::new(&schema));
    let bytes = bytes.map_err(|source| Error::Schema { what: "schema of raw ports".into(), source })?;
    let outputs = manifest
        .outputs
        .iter()
        .zip(ports)
        .map(|(output, port)| PortLayout {
            value: match (&output.format, &port.avro) {
                (Format::Raw, _) => Some(wit::layout(&bytes)),
                (_, Some((_, encoder))) => Some(wit::layout(encoder.layout())),
                _ => None,
            },
            key: None,
        })
        .collect();
    Ok(OpenContext {
        config,
        input: wit::layout(layout),
        key: None,
        outputs,
        limits: wit::Limits {
            batch_records_max: limits.batch_records_max,
            batch_bytes_max: limits.batch_bytes_max,
            emit_bytes_max: limits.emit_bytes_max,
            emit_entries_max: limits.emit_entries_max,
            output_bytes_max: limits.output_bytes_max,
            record_bytes_max: limits.record_bytes_max,
            depth_max: limits.depth_max,
            call_deadline_ms: limits.call_deadline_ms,
        },
    })
}
