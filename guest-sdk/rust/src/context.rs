//! What a transform is opened with: configuration, layouts, limits.

use crate::{
    error::{Error, Result},
    field::Field,
    layout::{Kind, Layout, NONE},
    out::Port,
    read::Type,
};
use std::str::FromStr;

/// The plugin's configuration: strings by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    entries: Vec<(String, String)>,
}

impl Config {
    /// Takes the entries as the host gives them.
    pub fn new(entries: Vec<(String, String)>) -> Config {
        Config { entries }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|e| e.0 == key).map(|e| e.1.as_str())
    }

    /// The value of a key that must be there.
    pub fn require(&self, key: &str) -> Result<&str> {
        self.get(key).ok_or_else(|| Error::new(format!("config key {key:?} is missing")))
    }

    /// The value of a key, read as a number, boolean or anything that parses. Errors name key and value.
    pub fn parse<T: FromStr<Err: std::fmt::Display>>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|why| Error::new(format!("config key {key:?} is {text:?}: {why}")))
    }

    /// As `parse`, with a default.
    pub fn parse_or<T: FromStr<Err: std::fmt::Display>>(&self, key: &str, default: T) -> Result<T> {
        Ok(self.parse(key)?.unwrap_or(default))
    }

    /// Refuses keys that the transform does not know, so that a typing error is seen at deployment.
    pub fn only(&self, known: &[&str]) -> Result {
        match self.entries.iter().find(|e| !known.contains(&e.0.as_str())) {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => {
                Err(Error::new(format!("unknown config key {key:?}: there are none")))
            }
            Some((key, _)) => Err(Error::new(format!("unknown config key {key:?}: there are {}", known.join(", ")))),
        }
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// Bounds of the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records in a batch.
    pub batch_records_max: u32,
    /// Bytes of a batch's rows.
    pub batch_bytes_max: u32,
    /// Bytes that a batch may emit.
    pub emit_bytes_max: u32,
    /// Outputs of a batch.
    pub emit_entries_max: u32,
    /// Encoded bytes of a batch's outputs.
    pub output_bytes_max: u32,
    /// Bytes of one record, key and headers included.
    pub record_bytes_max: u32,
    /// Nesting of values.
    pub depth_max: u32,
    /// Milliseconds of one call.
    pub call_deadline_ms: u32,
}

/// The contract's defaults.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            batch_records_max: 256,
            batch_bytes_max: 4 << 20,
            emit_bytes_max: 8 << 20,
            emit_entries_max: 65_536,
            output_bytes_max: 32 << 20,
            record_bytes_max: 1 << 20,
            depth_max: 64,
            call_deadline_ms: 100,
        }
    }
}

/// A field of a port that has no fields in place of its own: it must be set or be null.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) path: String,
    pub(crate) number: u32,
    /// Null bits that make it null: its own and those of the records around it.
    pub(crate) null_bits: Vec<u32>,
}

/// A port's layouts, and what building its rows needs.
#[derive(Clone, Debug, Default)]
pub struct PortInfo {
    pub(crate) value: Option<Layout>,
    pub(crate) key: Option<Layout>,
    pub(crate) leaves: Vec<Leaf>,
    /// By field number: the null bits of the nullable records around it.
    pub(crate) around: Vec<Vec<u32>>,
}

impl PortInfo {
    /// A port as the host describes it; no value layout for a port that takes kept records only.
    pub fn new(value: Option<Layout>, key: Option<Layout>) -> PortInfo {
        let mut port = PortInfo { value: None, key, leaves: Vec::new(), around: Vec::new() };
        if let Some(layout) = &value {
            port.around = vec![Vec::new(); layout.numbers(0) as usize];
            let mut path = Vec::new();
            port.collect(layout, Step { node: 0, bit: 0, number: NONE, base: 0 }, &mut Vec::new(), &mut path);
        }
        port.value = value;
        port
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.value.as_ref().is_some_and(|layout| matches!(layout.node(0).kind, Kind::Bytes))
    }

    fn collect<'l>(&mut self, layout: &'l Layout, at: Step, nulls: &mut Vec<u32>, path: &mut Vec<&'l str>) {
        match &layout.node(at.node).kind {
            Kind::Nullable(inner) => {
                nulls.push(at.bit);
                self.collect(layout, Step { node: *inner, bit: at.bit + 1, ..at }, nulls, path);
                nulls.pop();
            }
            Kind::Struct(fields) => {
                for f in fields {
                    let number = at.base + f.number;
                    self.around[number as usize].clone_from(nulls);
                    path.push(&f.name);
                    let step = Step { node: f.node, bit: at.bit + f.null_bit, number, base: number + 1 };
                    self.collect(layout, step, nulls, path);
                    path.pop();
                }
            }
            Kind::Null => {}
            _ => {
                let number = if at.number == NONE { 0 } else { at.number };
                self.leaves.push(Leaf { path: path.join("."), number, null_bits: nulls.clone() });
            }
        }
    }
}

/// A place on the way down a port's root record.
#[derive(Clone, Copy)]
struct Step {
    node: u32,
    bit: u32,
    number: u32,
    base: u32,
}

/// What a transform is opened with.
#[derive(Clone, Debug)]
pub struct Context {
    /// The configuration.
    pub config: Config,
    /// Layout of the input rows: the reader schema.
    pub input: Layout,
    /// Layout of the keys, where the manifest has a key schema.
    pub key: Option<Layout>,
    /// Bounds of the deployment.
    pub limits: Limits,
    pub(crate) ports: Vec<PortInfo>,
}

impl Context {
    /// A context from its parts; the host's side of `open` does this.
    pub fn new(config: Config, input: Layout, key: Option<Layout>, ports: Vec<PortInfo>, limits: Limits) -> Context {
        Context { config, input, key, limits, ports }
    }

    /// A typed handle of an input field, as [`Layout::field`].
    pub fn field<T: Type>(&self, path: &str) -> Result<Field<T>> {
        self.input.field(path)
    }

    /// The port with that number in the manifest, from 0.
    pub fn port(&self, number: usize) -> Result<Port> {
        match self.ports.len() > number {
            true => Ok(Port(number as u8)),
            false => Err(Error::new(format!("the plugin has no port {number}: it has {}", self.ports.len()))),
        }
    }

    /// Layout of the records that a port takes; an error for a port that takes kept records only.
    pub fn output(&self, port: Port) -> Result<&Layout> {
        let info = self.ports.get(port.0 as usize).and_then(|p| p.value.as_ref());
        info.ok_or_else(|| Error::new(format!("port {} has no schema of its own", port.0)))
    }
}
