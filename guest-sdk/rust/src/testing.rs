//! Tests of a transform without a sandbox: batches from values, the transform as it is, its outputs as values.
//!
//! Only natively. The harness stands for an honest host: it decodes nothing and checks little, but rows and outputs go through the very
//! buffers that the sandbox sees. What the real host refuses beyond that (limits, granted topics) shows with `kiteline plugin test`.

mod batch;
mod golden;
mod json;
mod output;
mod schema;

pub use batch::{Content, Record, write_batch};
pub use golden::golden;
pub use json::{Json, from_avro_json, to_avro_json};
pub use output::{Kind, Outcomes, Rejected, Sent};

use crate::{
    context::{Config, Context, Limits, PortInfo},
    error::{EmitError, Error, Fault, Result},
    host::Level,
    layout::Layout,
    manifest::{Format, Manifest},
    run::Running,
    transform::Transform,
    value::Value,
};
use std::cell::RefCell;

thread_local! {
    static LOG: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
    static COUNTERS: RefCell<Vec<(String, u64)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn log(level: Level, message: &str) {
    LOG.with_borrow_mut(|log| log.push((level, message.to_owned())));
}

pub(crate) fn count(name: &str, delta: u32) {
    COUNTERS.with_borrow_mut(|counters| match counters.iter_mut().find(|c| c.0 == name) {
        Some(counter) => counter.1 += u64::from(delta),
        None => counters.push((name.to_owned(), delta.into())),
    });
}

/// The log lines of this thread since the last call.
pub fn take_log() -> Vec<(Level, String)> {
    LOG.take()
}

/// The counters of this thread since the last call.
pub fn take_counters() -> Vec<(String, u64)> {
    COUNTERS.take()
}

/// The layout of a schema (Avro JSON), as the host makes it. `id` tells the layouts of one plugin apart: 0 is the input's.
pub fn layout(id: u32, schema: &str) -> Result<Layout> {
    schema::layout(id, schema)
}

/// A transform with its batches and outputs.
pub struct Harness<T> {
    running: Running<T>,
    manifest: Manifest,
    /// Of whole records, as the producer writes them.
    source: Layout,
    input: Layout,
    key: Option<Layout>,
    ports: Vec<PortInfo>,
    topic: String,
    partition: u32,
}

impl<T: Transform> Harness<T> {
    /// Describes and opens the transform as a deployment does, with the contract's default limits.
    ///
    /// Errors: those of `describe`, `open` and of schemas that cannot be laid out.
    pub fn new(config: &[(&str, &str)], source_schema: &str) -> Result<Harness<T>> {
        Harness::with_limits(config, source_schema, Limits::default())
    }

    /// As `new`, with limits of one's own.
    pub fn with_limits(config: &[(&str, &str)], source_schema: &str, limits: Limits) -> Result<Harness<T>> {
        let mut entries: Vec<_> = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        entries.sort();
        let config = Config::new(entries);
        let manifest = T::describe(&config, Some(source_schema))?.complete();
        let source = schema::layout(u32::MAX, source_schema)?;
        let input = schema::layout(0, manifest.reader_schema.as_deref().unwrap_or(source_schema))?;
        let key = manifest.key_schema.as_deref().map(|s| schema::layout(1, s)).transpose()?;
        let mut ports = Vec::new();
        for (i, output) in manifest.outputs.iter().enumerate() {
            let id = 2 + 2 * i as u32;
            let value = match &output.format {
                Format::Same => None,
                Format::Raw => Some(schema::layout(id, "\"bytes\"")?),
                Format::Avro(text) => Some(schema::layout(id, text)?),
            };
            ports.push(PortInfo::new(value, None));
        }
        let context = Context::new(config, input.clone(), key.clone(), ports.clone(), limits);
        let running = Running::open(context)?;
        Ok(Harness { running, manifest, source, input, key, ports, topic: "orders".into(), partition: 0 })
    }

    /// What the transform said about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Layout of whole records.
    pub fn source(&self) -> &Layout {
        &self.source
    }

    /// Layout of the rows that the transform sees.
    pub fn input(&self) -> &Layout {
        &self.input
    }

    /// Layout of a port's records; none for a port that takes kept records only.
    pub fn port(&self, number: usize) -> Option<&Layout> {
        self.ports.get(number)?.value.as_ref()
    }

    /// Topic and partition that the batches come from; `orders` and 0 at first.
    pub fn from_partition(mut self, topic: &str, partition: u32) -> Harness<T> {
        (self.topic, self.partition) = (topic.into(), partition);
        self
    }

    /// Runs one batch of whole records. Tombstones and undecodable records that the manifest does not want are handled as the host does.
    ///
    /// Errors: a record that does not fit the schemas; the transform's fault.
    pub fn run(&mut self, records: &[Record]) -> Result<Outcomes> {
        let mut rows = Vec::new();
        let mut sources = Vec::new();
        let mut outcomes = Outcomes::default();
        for (i, record) in records.iter().enumerate() {
            match record.content {
                Content::Tombstone if !self.manifest.want_tombstones => {
                    outcomes.sent.push(Sent::kept(i, record, &self.manifest))
                }
                Content::Undecodable(code) if !self.manifest.want_undecodable => {
                    outcomes.rejected.push(Rejected {
                        source: i,
                        code: 0,
                        text: format!("undecodable (decode error {code})"),
                    });
                }
                _ => {
                    rows.push(self.seen(record)?);
                    sources.push(i);
                }
            }
        }
        let buffer = write_batch(&self.input, self.key.as_ref(), &rows, &self.topic, self.partition)?;
        let pieces = self.run_buffer(&mut buffer.clone()).map_err(|fault| Error::new(fault.message))?;
        self.read(&buffer, &pieces, &sources, records, &mut outcomes)?;
        outcomes.withdraw();
        Ok(outcomes)
    }

    /// Reads output buffers of a batch into `outcomes`. `sources[i]` is the index in `records` of row i.
    ///
    /// Errors: a buffer that a host would refuse.
    pub fn read(
        &self,
        input: &[u8],
        pieces: &[Vec<u8>],
        sources: &[usize],
        records: &[Record],
        outcomes: &mut Outcomes,
    ) -> Result {
        let reader = output::Reader { input, layout: &self.input, ports: &self.ports, manifest: &self.manifest };
        pieces.iter().try_for_each(|piece| reader.read(piece, sources, records, outcomes))
    }

    /// Runs an input buffer and gives the output buffers, as they cross the boundary.
    pub fn run_buffer(&mut self, buffer: &mut [u8]) -> Result<Vec<Vec<u8>>, Fault> {
        let mut pieces = Vec::new();
        let mut emit = |piece: &[u8]| -> Result<(), EmitError> {
            pieces.push(piece.to_vec());
            Ok(())
        };
        self.running.process(buffer, &mut emit)?;
        Ok(pieces)
    }

    /// The last call.
    pub fn flush(&mut self) -> Result {
        self.running.flush()
    }

    /// The record as the transform sees it: the fields of the reader schema.
    fn seen(&self, record: &Record) -> Result<Record> {
        let mut seen = record.clone();
        if let Content::Value(value) = &record.content {
            seen.content = Content::Value(project(&self.input, 0, value)?);
        }
        if !self.manifest.want_keys {
            seen.key = None;
        }
        if !self.manifest.want_headers {
            seen.headers.clear();
        }
        Ok(seen)
    }
}

/// A value with the fields of a layout alone. A field that the value lacks is null where it may be.
fn project(layout: &Layout, node: u32, value: &Value) -> Result<Value> {
    use crate::layout::Kind;
    Ok(match (&layout.node(node).kind, value) {
        (Kind::Struct(fields), Value::Struct(_)) => {
            let mut out = Vec::with_capacity(fields.len());
            for field in fields {
                let part = match value.get(&field.name) {
                    Some(part) => project(layout, field.node, part)?,
                    None if matches!(layout.node(field.node).kind, Kind::Nullable(_)) => Value::Null,
                    None => {
                        return Err(Error::new(format!(
                            "the record lacks field {:?}, which the transform reads",
                            field.name
                        )));
                    }
                };
                out.push((field.name.clone(), part));
            }
            Value::Struct(out)
        }
        (Kind::Nullable(inner) | Kind::Boxed(inner), v) if *v != Value::Null => project(layout, *inner, v)?,
        (Kind::Array(item), Value::List(items)) => {
            Value::List(items.iter().map(|v| project(layout, *item, v)).collect::<Result<_>>()?)
        }
        (Kind::Map(item), Value::Map(entries)) => {
            let entry = |(k, v): &(String, Value)| Ok((k.clone(), project(layout, *item, v)?));
            Value::Map(entries.iter().map(entry).collect::<Result<_>>()?)
        }
        (Kind::Union(branches), Value::Union(branch, v)) if (*branch as usize) < branches.len() => {
            Value::Union(*branch, Box::new(project(layout, branches[*branch as usize], v)?))
        }
        _ => value.clone(),
    })
}
