//! What a plugin says about itself in `describe`, in plain types, and the checks that need no schema. Not here: schemas and
//! layouts, which are a deployment's.

use crate::{
    error::Error,
    limits::{LAYOUT_REVISION, PORTS_MAX},
    text::clean,
};

/// What a plugin says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Name of the transform.
    pub name: String,
    /// Version of the transform, its author's own.
    pub version: String,
    /// Revision of the row layout that it was built for.
    pub layout_revision: u32,
    /// What it reads.
    pub input: InputDecl,
    /// Its ports, in order.
    pub outputs: Vec<OutputDecl>,
    /// Whether it keeps nothing between batches, so that the host may replay.
    pub stateless: bool,
}

/// What a plugin reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputDecl {
    /// Avro JSON of exactly the fields that it looks at; none: the source schema, all fields.
    pub reader_schema: Option<String>,
    /// The same for the key; none: plain bytes.
    pub key_schema: Option<String>,
    /// What it asks for beside decoded values.
    pub wants: Wants,
}

/// What a plugin asks for beside decoded values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Keys in the rows; else they are null there.
    pub key: bool,
    /// Headers in the rows; else there are none there.
    pub headers: bool,
    /// Tombstones as rows; else they are kept on port 0.
    pub tombstones: bool,
    /// Undecodable records as rows; else they are rejected.
    pub undecodable: bool,
}

/// A port of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputDecl {
    /// Name that the pipeline connects to a sink.
    pub name: String,
    /// What values it carries.
    pub format: Format,
    /// Avro JSON of overriding keys; none: plain bytes.
    pub key_schema: Option<String>,
}

/// What values a port carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Kept and patched records and tombstones, in the producer's own schema.
    Same,
    /// Bytes as they are: no Avro, no wire format.
    Raw,
    /// Values of this schema, Avro JSON.
    Avro(String),
}

impl Manifest {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Manifest { reason });
        if self.layout_revision != LAYOUT_REVISION {
            return Err(Error::LayoutRevision { found: self.layout_revision, expected: LAYOUT_REVISION });
        }
        if self.outputs.is_empty() || self.outputs.len() > PORTS_MAX {
            return refuse(format!("it has {} ports, allowed are 1 to {PORTS_MAX}", self.outputs.len()));
        }
        for (index, output) in self.outputs.iter().enumerate() {
            let name = clean(output.name.as_bytes());
            if !name_legal(&output.name) {
                return refuse(format!("port name {name:?} is not 1 to 64 of a-z, A-Z, 0-9, \".\", \"_\", \"-\""));
            }
            if self.outputs[..index].iter().any(|other| other.name == output.name) {
                return refuse(format!("two ports are named {name:?}"));
            }
            if output.key_schema.is_some() {
                return refuse(format!("port {name:?} has a key schema, which is not supported yet"));
            }
        }
        if self.input.key_schema.is_some() {
            return refuse("the input has a key schema, which is not supported yet".into());
        }
        Ok(())
    }
}

/// Port names appear in configuration keys, metrics and error messages.
fn name_legal(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}
