//! What a plugin says about itself in `describe`: name, version, reader schema, wants, ports.

use crate::schema::Schema;

/// Revision of the row layout that this SDK reads and writes: the "1" of KLR1 and KLO1.
pub const LAYOUT_REVISION: u32 = 1;

/// What a port takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Kept records and tombstones only: schema and bytes as the producer's.
    Same,
    /// Bytes as they are.
    Raw,
    /// New records of this schema (Avro JSON), and kept ones brought to it.
    Avro(String),
}

/// A named output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The port's name: the pipeline's configuration connects it to a sink.
    pub name: String,
    /// What it takes.
    pub format: Format,
}

/// A plugin's description of itself. An author builds it with the methods; ports are numbered in the order in which they are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The plugin's name.
    pub name: String,
    /// The plugin's version.
    pub version: String,
    /// Avro JSON: exactly the fields that the transform looks at; none: the source schema.
    pub reader_schema: Option<String>,
    /// Reader schema of the key; none: plain bytes.
    pub key_schema: Option<String>,
    /// Rows carry their keys.
    pub want_keys: bool,
    /// Rows carry their headers.
    pub want_headers: bool,
    /// Records without a value come as rows, to `tombstone`.
    pub want_tombstones: bool,
    /// Records that cannot be decoded come as rows, to `undecodable`.
    pub want_undecodable: bool,
    /// The outputs; where none is added there is one, "out", of format same.
    pub outputs: Vec<Output>,
    /// Nothing is kept between batches.
    pub stateless: bool,
}

impl Manifest {
    /// A transform that keeps nothing from one batch to the next: the host may share an instance between partitions and replay a batch
    /// in parts to find a record that breaks it.
    pub fn stateless(name: &str, version: &str) -> Manifest {
        Manifest {
            name: name.into(),
            version: version.into(),
            reader_schema: None,
            key_schema: None,
            want_keys: false,
            want_headers: false,
            want_tombstones: false,
            want_undecodable: false,
            outputs: Vec::new(),
            stateless: true,
        }
    }

    /// A transform that remembers: one instance per partition, and no replay in parts.
    pub fn stateful(name: &str, version: &str) -> Manifest {
        Manifest { stateless: false, ..Manifest::stateless(name, version) }
    }

    /// The reader schema, as Avro JSON: exactly the fields that the transform looks at, at any depth. The fewer, the faster.
    pub fn reader(self, schema: impl Into<String>) -> Manifest {
        Manifest { reader_schema: Some(schema.into()), ..self }
    }

    /// The reader schema, as a list of fields.
    pub fn reader_fields(self, schema: Schema) -> Manifest {
        self.reader(schema.text())
    }

    /// Keys are decoded by this reader schema.
    pub fn key_reader(self, schema: impl Into<String>) -> Manifest {
        Manifest { key_schema: Some(schema.into()), want_keys: true, ..self }
    }

    /// Rows carry their keys.
    pub fn want_keys(self) -> Manifest {
        Manifest { want_keys: true, ..self }
    }

    /// Rows carry their headers.
    pub fn want_headers(self) -> Manifest {
        Manifest { want_headers: true, ..self }
    }

    /// Records without a value come as rows, to [`Transform::tombstone`](crate::Transform::tombstone). Else they are kept.
    pub fn want_tombstones(self) -> Manifest {
        Manifest { want_tombstones: true, ..self }
    }

    /// Records that cannot be decoded come as rows, to [`Transform::undecodable`](crate::Transform::undecodable). Else they are dead letters.
    pub fn want_undecodable(self) -> Manifest {
        Manifest { want_undecodable: true, ..self }
    }

    /// A port for kept records.
    pub fn port(self, name: &str) -> Manifest {
        self.add(name, Format::Same)
    }

    /// A port for new records of a schema.
    pub fn port_avro(self, name: &str, schema: impl Into<String>) -> Manifest {
        self.add(name, Format::Avro(schema.into()))
    }

    /// A port for plain bytes.
    pub fn port_raw(self, name: &str) -> Manifest {
        self.add(name, Format::Raw)
    }

    fn add(mut self, name: &str, format: Format) -> Manifest {
        self.outputs.push(Output { name: name.into(), format });
        self
    }

    /// As the host is told: with the default port, if there is none.
    pub(crate) fn complete(self) -> Manifest {
        if self.outputs.is_empty() { self.port("out") } else { self }
    }
}
