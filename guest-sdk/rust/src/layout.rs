//! The node table of a schema, as the host hands it over in `open`, and how a dotted path becomes a place in a frame.
//!
//! Owns: kinds, sizes, paths, comparison of types. Not: reading or writing of bytes (`read`, `write`), Avro JSON (`testing` has a
//! small parser for native tests; a plugin never parses a schema).

use crate::{
    error::{Error, Result},
    field::Field,
    read::{Type, Union},
};

/// Stands for "no bit" and "no number" in handles.
pub(crate) const NONE: u32 = u32::MAX;

/// An Avro schema as a flat table. Node 0 is the root; a node is numbered before its children, depth first.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The schema as Avro JSON, custom properties included.
    pub schema: String,
    /// FNV-1a 64 over the table, 16 lower-case hex digits.
    pub fingerprint: String,
    nodes: Vec<Node>,
    /// Numbered fields inside each node: the width of a field's range of numbers.
    numbers: Vec<u32>,
    /// Which layout of the plugin this is: handles carry it, so that one used on the wrong row is noticed.
    id: u32,
}

/// One node of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What the node is, and its children.
    pub kind: Kind,
    /// Full name of a struct, enum or fixed.
    pub name: Option<String>,
    /// Logical type, which changes nothing about the layout.
    pub logical: Option<Logical>,
    /// Slots of 8 bytes in a frame of this type.
    pub slots: u32,
    /// Null bits in a frame of this type.
    pub null_bits: u32,
}

/// Kinds of node; numbers are indexes into the table.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// No slot at all.
    Null,
    /// 0 or 1.
    Boolean,
    /// 32 bits.
    Int,
    /// 64 bits, exact.
    Long,
    /// 32 bits, widened in the slot.
    Float,
    /// 64 bits.
    Double,
    /// Bytes.
    Bytes,
    /// UTF-8.
    Text,
    /// Bytes of one size.
    Fixed(u32),
    /// Symbols, by index.
    Enum(Vec<String>),
    /// Fields in place.
    Struct(Vec<StructField>),
    /// Elements of that node.
    Array(u32),
    /// Entries of (text, that node).
    Map(u32),
    /// That node or null.
    Nullable(u32),
    /// One of those nodes.
    Union(Vec<u32>),
    /// A struct that can contain itself, kept behind a reference.
    Boxed(u32),
}

/// A field of a struct: its node and what lies before it in its struct.
#[derive(Clone, Debug, PartialEq)]
pub struct StructField {
    /// Name as in the schema.
    pub name: String,
    /// Node of its type.
    pub node: u32,
    /// Slots before it.
    pub slot: u32,
    /// Null bits before it.
    pub null_bit: u32,
    /// Numbered fields before it.
    pub number: u32,
}

/// Avro's logical types. Values arrive as they lie in the record: nothing is converted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Avro's own")]
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
    Decimal { precision: u32, scale: u32 },
    BigDecimal,
    Other(String),
}

impl Node {
    /// Null words of 8 bytes at the start of a frame of this type.
    pub fn null_words(&self) -> u32 {
        self.null_bits.div_ceil(64)
    }

    /// Size of a frame of this type in bytes.
    pub fn frame_bytes(&self) -> u32 {
        8 * (self.null_words() + self.slots)
    }

    /// The kind in one word, for messages.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Boolean => "boolean",
            Kind::Int => "int",
            Kind::Long => "long",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::Bytes => "bytes",
            Kind::Text => "string",
            Kind::Fixed(_) => "fixed",
            Kind::Enum(_) => "enum",
            Kind::Struct(_) => "record",
            Kind::Array(_) => "array",
            Kind::Map(_) => "map",
            Kind::Nullable(_) => "nullable",
            Kind::Union(_) => "union",
            Kind::Boxed(_) => "recursive record",
        }
    }
}

/// A place in a frame, counted from the struct that the path started at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) node: u32,
    pub(crate) slot: u32,
    pub(crate) bit: u32,
    /// `NONE` for the root itself.
    pub(crate) number: u32,
    /// Null bit of the nearest nullable struct around it, or `NONE`.
    pub(crate) under: u32,
}

impl Layout {
    /// Takes a table as the host gives it. Errors: child numbers outside the table.
    pub fn new(id: u32, schema: String, fingerprint: String, nodes: Vec<Node>) -> Result<Layout> {
        let count = nodes.len() as u32;
        let inside = |n: &u32| *n < count;
        let sound = count > 0
            && nodes.iter().all(|node| match &node.kind {
                Kind::Struct(fields) => fields.iter().all(|f| inside(&f.node)),
                Kind::Union(branches) => branches.iter().all(inside),
                Kind::Array(n) | Kind::Map(n) | Kind::Nullable(n) | Kind::Boxed(n) => inside(n),
                _ => true,
            });
        if !sound {
            return Err(Error::new("the host's layout table has a child outside the table"));
        }
        let mut layout = Layout { schema, fingerprint, nodes, numbers: Vec::new(), id };
        layout.numbers = vec![NONE; count as usize];
        for node in 0..count {
            layout.count(node);
        }
        Ok(layout)
    }

    /// Structs nest in place without cycles (a cycle goes through a box, an array, a map or a union), so this ends.
    fn count(&mut self, node: u32) -> u32 {
        let at = node as usize;
        if self.numbers[at] == NONE {
            let children: Vec<u32> = match &self.nodes[at].kind {
                Kind::Struct(fields) => fields.iter().map(|f| f.node).collect(),
                Kind::Nullable(inner) => vec![*inner],
                _ => Vec::new(),
            };
            let own = matches!(self.nodes[at].kind, Kind::Struct(_)) as u32;
            let mut sum = 0;
            for child in children {
                sum += own + self.count(child);
            }
            self.numbers[at] = sum;
        }
        self.numbers[at]
    }

    /// The table.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// Numbered fields inside a node.
    pub(crate) fn numbers(&self, node: u32) -> u32 {
        self.numbers[node as usize]
    }

    /// The text that the fingerprint is taken of: one line per node.
    pub fn table(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        for node in &self.nodes {
            let (word, arguments) = describe(&node.kind);
            out.push_str(word);
            let name = node.name.clone().into_iter();
            for part in name.chain(arguments).chain(node.logical.as_ref().map(|l| format!("~{}", l.text()))) {
                out.push(' ');
                out.push_str(&part);
            }
            let _ = writeln!(out, " /{}/{}", node.slots, node.null_bits);
        }
        out
    }

    /// A typed handle of the field at a dotted path through records that lie in place (`"address.city"`; `""` is the root).
    /// Errors name the field, what it is and what was asked for.
    pub fn field<T: Type>(&self, path: &str) -> Result<Field<T>> {
        self.resolve(0, path)
    }

    /// The record that lies in each element of the array (or entry of the map, or box) at `path`; its handles read the `Struct`s of it.
    pub fn inner(&self, path: &str) -> Result<Scope<'_>> {
        Scope { layout: self, node: 0 }.inner(path)
    }

    /// Index of a symbol of the enum at `path`.
    pub fn symbol(&self, path: &str, name: &str) -> Result<crate::read::Symbol> {
        let place = self.place(0, path)?;
        let mut node = place.node;
        while let Kind::Nullable(inner) = self.node(node).kind {
            node = inner;
        }
        match &self.node(node).kind {
            Kind::Enum(symbols) => {
                symbols.iter().position(|s| s == name).map(|i| crate::read::Symbol(i as u32)).ok_or_else(|| {
                    Error::new(format!("field {path:?} has no symbol {name:?}: it has {}", symbols.join(", ")))
                })
            }
            _ => Err(Error::new(format!("field {path:?} is {}, not enum", self.node(node).kind_name()))),
        }
    }

    pub(crate) fn resolve<T: Type>(&self, scope: u32, path: &str) -> Result<Field<T>> {
        let place = self.place(scope, path)?;
        if !T::accepts(self, place.node) {
            let node = self.node(place.node);
            let text = match node.kind {
                Kind::Nullable(inner) if T::accepts(self, inner) => {
                    format!("field {path:?} may be null: ask for Field<Option<{}>>", T::name())
                }
                Kind::Nullable(inner) => {
                    format!("field {path:?} is nullable {}, not {}", self.node(inner).kind_name(), T::name())
                }
                _ => format!("field {path:?} is {}, not {}", node.kind_name(), T::name()),
            };
            return Err(Error::new(text));
        }
        if place.under != NONE && !T::OPTIONAL {
            return Err(Error::new(format!(
                "field {path:?} lies in a record that may be null: ask for Field<Option<{}>>",
                T::name()
            )));
        }
        Ok(Field::new(self.id, scope, place))
    }

    pub(crate) fn place(&self, scope: u32, path: &str) -> Result<Place> {
        let mut at = Place { node: scope, slot: 0, bit: 0, number: NONE, under: NONE };
        if path.is_empty() {
            return Ok(at);
        }
        let mut base = 0;
        for part in path.split('.') {
            while let Kind::Nullable(inner) = self.node(at.node).kind {
                at.under = at.bit;
                at.bit += 1;
                at.node = inner;
            }
            let node = self.node(at.node);
            let Kind::Struct(fields) = &node.kind else {
                return Err(Error::new(format!("no field {path:?}: {} has no field {part:?}", node.kind_name())));
            };
            let Some(field) = fields.iter().find(|f| f.name == part) else {
                let names: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
                let name = node.name.as_deref().unwrap_or("record");
                return Err(Error::new(format!("no field {path:?}: {name} has {}", names.join(", "))));
            };
            at.slot += field.slot;
            at.bit += field.null_bit;
            at.number = base + field.number;
            base = at.number + 1;
            at.node = field.node;
        }
        Ok(at)
    }

    /// Whether a value of `node` may be copied, slots and references as they are, to a place of `other`'s `node`.
    pub(crate) fn same_type(&self, node: u32, other: &Layout, other_node: u32) -> bool {
        let mut seen = Vec::new();
        self.same(node, other, other_node, &mut seen)
    }

    fn same(&self, a: u32, other: &Layout, b: u32, seen: &mut Vec<(u32, u32)>) -> bool {
        if seen.contains(&(a, b)) {
            return true;
        }
        seen.push((a, b));
        match (&self.node(a).kind, &other.node(b).kind) {
            (Kind::Struct(x), Kind::Struct(y)) => {
                x.len() == y.len()
                    && x.iter().zip(y).all(|(x, y)| x.name == y.name && self.same(x.node, other, y.node, seen))
            }
            (Kind::Union(x), Kind::Union(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(x, y)| self.same(*x, other, *y, seen))
            }
            (Kind::Array(x), Kind::Array(y))
            | (Kind::Map(x), Kind::Map(y))
            | (Kind::Nullable(x), Kind::Nullable(y))
            | (Kind::Boxed(x), Kind::Boxed(y)) => self.same(*x, other, *y, seen),
            (x, y) => x == y,
        }
    }

    /// The branches of the union at `path`, for transforms that choose by name.
    pub fn branches(&self, path: &str) -> Result<Vec<&Node>> {
        let field: Field<Union> = self.field(path)?;
        match &self.node(field.node).kind {
            Kind::Union(branches) => Ok(branches.iter().map(|b| self.node(*b)).collect()),
            _ => Ok(Vec::new()),
        }
    }
}

/// A record inside an array, map, union or box: handles of its fields are resolved here.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'l> {
    layout: &'l Layout,
    node: u32,
}

impl<'l> Scope<'l> {
    /// As [`Layout::field`], for the fields of this record.
    pub fn field<T: Type>(&self, path: &str) -> Result<Field<T>> {
        self.layout.resolve(self.node, path)
    }

    /// As [`Layout::inner`], one level deeper.
    pub fn inner(&self, path: &str) -> Result<Scope<'l>> {
        let mut node = self.layout.place(self.node, path)?.node;
        loop {
            node = match self.layout.node(node).kind {
                Kind::Nullable(n) | Kind::Array(n) | Kind::Map(n) | Kind::Boxed(n) => n,
                Kind::Struct(_) => {
                    return Ok(Scope { layout: self.layout, node });
                }
                _ => {
                    let kind = self.layout.node(node).kind_name();
                    return Err(Error::new(format!("field {path:?} holds {kind}, not records")));
                }
            }
        }
    }
}

impl Logical {
    /// As in the table: `decimal(9,2)`, `other(x)`, the name else.
    fn text(&self) -> String {
        match self {
            Logical::Date => "date".into(),
            Logical::TimeMillis => "time-millis".into(),
            Logical::TimeMicros => "time-micros".into(),
            Logical::TimestampMillis => "timestamp-millis".into(),
            Logical::TimestampMicros => "timestamp-micros".into(),
            Logical::TimestampNanos => "timestamp-nanos".into(),
            Logical::LocalTimestampMillis => "local-timestamp-millis".into(),
            Logical::LocalTimestampMicros => "local-timestamp-micros".into(),
            Logical::LocalTimestampNanos => "local-timestamp-nanos".into(),
            Logical::Uuid => "uuid".into(),
            Logical::Duration => "duration".into(),
            Logical::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
            Logical::BigDecimal => "big-decimal".into(),
            Logical::Other(name) => format!("other({name})"),
        }
    }
}

/// The word of a kind in the table and its arguments.
fn describe(kind: &Kind) -> (&'static str, Vec<String>) {
    let one = |n: &u32| vec![n.to_string()];
    match kind {
        Kind::Null => ("null", Vec::new()),
        Kind::Boolean => ("boolean", Vec::new()),
        Kind::Int => ("int", Vec::new()),
        Kind::Long => ("long", Vec::new()),
        Kind::Float => ("float", Vec::new()),
        Kind::Double => ("double", Vec::new()),
        Kind::Bytes => ("bytes", Vec::new()),
        Kind::Text => ("text", Vec::new()),
        Kind::Fixed(size) => ("fixed", one(size)),
        Kind::Enum(symbols) => ("enum-of", symbols.clone()),
        Kind::Struct(fields) => {
            let text = |f: &StructField| format!("{}:{}:{}:{}:{}", f.name, f.node, f.slot, f.null_bit, f.number);
            ("struct-of", fields.iter().map(text).collect())
        }
        Kind::Array(n) => ("array-of", one(n)),
        Kind::Map(n) => ("map-of", one(n)),
        Kind::Nullable(n) => ("nullable", one(n)),
        Kind::Union(branches) => ("union-of", branches.iter().map(u32::to_string).collect()),
        Kind::Boxed(n) => ("boxed", one(n)),
    }
}

/// FNV-1a 64 of a table's text, as 16 hex digits (contract, "Fingerprint").
pub fn fingerprint(table: &str) -> String {
    let hash = table.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}
