//! Schemas as a flat graph: parsed, names resolved, finite. Owns what a schema *is*; how its values lie in rows is in
//! `layout`, how two of them resolve in `plan`.

pub(crate) use check::cyclic;

mod check;
mod inline;
mod parse;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::error::SchemaError;

/// Number of a node of a [`Schema`]; the root is [`SchemaId::ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SchemaId(pub u32);

impl SchemaId {
    /// The schema itself.
    pub const ROOT: SchemaId = SchemaId(0);
}

/// One type of a schema. A named type is one node however often it is used, so cycles go by id.
#[derive(Clone, Debug)]
pub struct SchemaNode {
    /// The type.
    pub kind: SchemaKind,
    /// Its logical type, if any. Only on primitives, enums and fixed.
    pub logical: Option<Logical>,
}

/// The types of Avro 1.12.
#[derive(Clone, Debug)]
pub enum SchemaKind {
    /// Nothing.
    Null,
    /// 0 or 1.
    Boolean,
    /// 32 bits, signed.
    Int,
    /// 64 bits, signed.
    Long,
    /// IEEE 754, 32 bits.
    Float,
    /// IEEE 754, 64 bits.
    Double,
    /// Any bytes.
    Bytes,
    /// UTF-8 (Avro's `string`).
    Text,
    /// A number of bytes known from the schema.
    Fixed(FixedType),
    /// One of a list of symbols.
    Enum(EnumType),
    /// Fields in order.
    Record(RecordType),
    /// Items of one type.
    Array(SchemaId),
    /// Values of one type under string keys.
    Map(SchemaId),
    /// One of several types, in the order of the schema. May have a single branch.
    Union(Arc<[SchemaId]>),
}

/// Full name and aliases of a named type.
#[derive(Clone, Debug)]
pub struct TypeName {
    /// With namespace, dots between.
    pub full: Arc<str>,
    /// Full names it had before.
    pub aliases: Arc<[Arc<str>]>,
}

impl TypeName {
    /// The last part of the full name.
    pub fn unqualified(&self) -> &str {
        unqualified(&self.full)
    }
}

/// The last part of a full name.
pub(crate) fn unqualified(full: &str) -> &str {
    full.rsplit('.').next().unwrap_or(full)
}

/// An Avro fixed.
#[derive(Clone, Debug)]
pub struct FixedType {
    /// Its name.
    pub name: TypeName,
    /// Bytes of each value.
    pub size: u32,
}

/// An Avro enum.
#[derive(Clone, Debug)]
pub struct EnumType {
    /// Its name.
    pub name: TypeName,
    /// The symbols, in the order of their indexes.
    pub symbols: Arc<[Arc<str>]>,
    /// Index of the symbol that stands for unknown ones.
    pub default: Option<u32>,
}

/// An Avro record.
#[derive(Clone, Debug)]
pub struct RecordType {
    /// Its name.
    pub name: TypeName,
    /// Its fields, in order.
    pub fields: Arc<[SchemaField]>,
}

/// A field of an Avro record.
#[derive(Clone, Debug)]
pub struct SchemaField {
    /// Its name.
    pub name: Arc<str>,
    /// Names it had before.
    pub aliases: Arc<[Arc<str>]>,
    /// Its type.
    pub schema: SchemaId,
    /// Its default as written. Checked against the type where a plan uses it, so that a producer's bad default, which reading
    /// never needs, stops nothing.
    pub default: Option<serde_json::Value>,
}

/// Logical types, as the row contract lists them. None of them changes how a value is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the specification's name")]
pub enum Logical {
    Date,
    TimeMillis,
    TimeMicros,
    TimestampMillis,
    TimestampMicros,
    TimestampNanos,
    LocalTimestampMillis,
    LocalTimestampMicros,
    LocalTimestampNanos,
    Uuid,
    Duration,
    Decimal {
        /// Digits.
        precision: u32,
        /// Digits after the point.
        scale: u32,
    },
    BigDecimal,
    /// An unknown one, or one that is invalid for its base.
    Other(Arc<str>),
}

impl fmt::Display for Logical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Logical::Date => "date",
            Logical::TimeMillis => "time-millis",
            Logical::TimeMicros => "time-micros",
            Logical::TimestampMillis => "timestamp-millis",
            Logical::TimestampMicros => "timestamp-micros",
            Logical::TimestampNanos => "timestamp-nanos",
            Logical::LocalTimestampMillis => "local-timestamp-millis",
            Logical::LocalTimestampMicros => "local-timestamp-micros",
            Logical::LocalTimestampNanos => "local-timestamp-nanos",
            Logical::Uuid => "uuid",
            Logical::Duration => "duration",
            Logical::BigDecimal => "big-decimal",
            Logical::Decimal { precision, scale } => {
                return write!(f, "decimal({precision},{scale})");
            }
            Logical::Other(name) => return write!(f, "other({name})"),
        })
    }
}

/// A schema: parsed and checked, names resolved, finite, unions legal. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    inner: Arc<Inner>,
}

struct Inner {
    text: String,
    nodes: Vec<SchemaNode>,
    /// By node: fewest bytes of a value. Bounds what a count of items may claim.
    bytes_min: Vec<u32>,
    /// By node: a record that can contain itself in any way.
    recursive: Vec<bool>,
}

impl Schema {
    /// Parses a schema that stands for itself.
    ///
    /// # Errors
    /// If the text is no legal Avro schema, or one of its records has no finite value.
    pub fn parse(text: &str) -> Result<Schema, SchemaError> {
        Schema::parse_with(text, &[])
    }

    /// Parses a schema that uses named types of other texts. Each reference may use types of the references before it;
    /// [`Schema::text`] then holds the definitions themselves.
    ///
    /// # Errors
    /// As [`Schema::parse`], for the references too.
    pub fn parse_with(text: &str, references: &[&str]) -> Result<Schema, SchemaError> {
        let (text, value) = inline::self_contained(text, references)?;
        let nodes = parse::nodes(&value)?;
        let bytes_min = check::finite(&nodes)?;
        let recursive = check::recursive(&nodes);
        check::second_opinion(value)?;
        Ok(Schema { inner: Arc::new(Inner { text, nodes, bytes_min, recursive }) })
    }

    /// The schema as self-contained Avro JSON; as it was given, if it had no references.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// A node of the graph. Ids come from this schema only; others may panic.
    pub fn node(&self, id: SchemaId) -> &SchemaNode {
        &self.inner.nodes[id.0 as usize]
    }

    /// How many nodes there are; ids go from 0.
    pub fn node_count(&self) -> u32 {
        self.inner.nodes.len() as u32
    }

    /// The node that single-branch unions stand for.
    pub fn opened(&self, mut id: SchemaId) -> SchemaId {
        while let SchemaKind::Union(branches) = &self.node(id).kind {
            match branches[..] {
                [only] => id = only,
                _ => break,
            }
        }
        id
    }

    /// The other branch and the index of null, if the node is a union of null and one type.
    pub fn nullable(&self, id: SchemaId) -> Option<(SchemaId, u32)> {
        let SchemaKind::Union(branches) = &self.node(id).kind else {
            return None;
        };
        let null = |id: SchemaId| matches!(self.node(id).kind, SchemaKind::Null);
        match branches[..] {
            [first, second] if null(first) => Some((second, 0)),
            [first, second] if null(second) => Some((first, 1)),
            _ => None,
        }
    }

    /// Fewest bytes that a value of this type is encoded in; a lower bound that counts a union's branches as nothing.
    pub fn bytes_min(&self, id: SchemaId) -> u32 {
        self.inner.bytes_min[id.0 as usize]
    }

    /// A record that can contain itself, by whatever way.
    pub(crate) fn recursive(&self, id: SchemaId) -> bool {
        self.inner.recursive[id.0 as usize]
    }

    /// The type in words, for messages.
    pub fn describe(&self, id: SchemaId) -> String {
        let node = self.node(id);
        let base = match &node.kind {
            SchemaKind::Null => "null".to_string(),
            SchemaKind::Boolean => "boolean".to_string(),
            SchemaKind::Int => "int".to_string(),
            SchemaKind::Long => "long".to_string(),
            SchemaKind::Float => "float".to_string(),
            SchemaKind::Double => "double".to_string(),
            SchemaKind::Bytes => "bytes".to_string(),
            SchemaKind::Text => "string".to_string(),
            SchemaKind::Fixed(fixed) => {
                format!("fixed '{}' of {} bytes", fixed.name.full, fixed.size)
            }
            SchemaKind::Enum(symbols) => format!("enum '{}'", symbols.name.full),
            SchemaKind::Record(record) => format!("record '{}'", record.name.full),
            SchemaKind::Array(_) => "array".to_string(),
            SchemaKind::Map(_) => "map".to_string(),
            SchemaKind::Union(branches) => {
                // branches are never unions themselves, so this goes one level down
                let names: Vec<String> = branches.iter().map(|branch| self.describe(*branch)).collect();
                format!("union [{}]", names.join(", "))
            }
        };
        match &node.logical {
            Some(logical) => format!("{base} ({logical})"),
            None => base,
        }
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.inner.text).finish()
    }
}
