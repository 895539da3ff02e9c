//! Row layouts: how the values of a schema lie in frames, by the row contract, "Layouts and frames". Owns the node table and its
//! fingerprint; writing frames is in `plan`, reading them in `encode`.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::error::SchemaError;
use crate::limits::{LAYOUT_NODES_MAX, SCHEMA_DEPTH_MAX, STRUCT_NUMBERS_MAX, STRUCT_SLOTS_MAX};
use crate::schema::{Logical, Schema, SchemaId, SchemaKind, cyclic};

/// The layout of a schema. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Layout {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    schema: Schema,
    nodes: Vec<LayoutNode>,
    fingerprint: String,
}

/// One node of a layout's table.
#[derive(Clone, Debug)]
pub struct LayoutNode {
    /// The type; node numbers are indexes into the table.
    pub kind: Kind,
    /// Full name of a named type.
    pub name: Option<Arc<str>>,
    /// The logical type, which changes nothing.
    pub logical: Option<Logical>,
    /// Slots of 8 bytes in a frame of this type.
    pub slots: u32,
    /// Null bits in a frame of this type.
    pub null_bits: u32,
    /// Numbered fields inside, at any depth in place.
    pub numbers: u32,
    /// The schema node it was made of: for `Nullable` the union, for `Boxed` the record.
    pub schema: SchemaId,
}

impl LayoutNode {
    /// Words of 8 bytes for the null bits, before the slots.
    pub fn null_words(&self) -> u32 {
        self.null_bits.div_ceil(64)
    }

    /// Bytes of a frame.
    pub fn frame_bytes(&self) -> u32 {
        8 * (self.null_words() + self.slots)
    }
}

/// What a node is. Numbers are indexes into [`Layout::nodes`].
#[derive(Clone, Debug)]
pub enum Kind {
    /// No slot.
    Null,
    /// i64, 0 or 1.
    Boolean,
    /// i64 within 32 bits.
    Int,
    /// i64.
    Long,
    /// f64 of a float.
    Float,
    /// f64.
    Double,
    /// Offset and length.
    Bytes,
    /// Offset and length of UTF-8.
    Text,
    /// Offset and this length.
    Fixed(u32),
    /// i64, index of one of these symbols.
    Enum(Arc<[Arc<str>]>),
    /// Its fields in place.
    Struct(Arc<[Field]>),
    /// Offset and count of frames of this node.
    Array(u32),
    /// Offset and count of entries: null words of the value's frame, a key slot, the value's slots.
    Map(u32),
    /// One null bit, then what the node has.
    Nullable(u32),
    /// Offset of a frame of the branch, and the branch's index in this list.
    Union(Arc<[u32]>),
    /// Offset of a frame of this struct, and 1.
    Boxed(u32),
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Arc<str>,
    /// Its node.
    pub node: u32,
    /// Slots before it in its struct.
    pub slot: u32,
    /// Null bits before it in its struct.
    pub null_bit: u32,
    /// Numbered fields before it in its struct.
    pub number: u32,
}

impl Layout {
    /// Lays a schema out.
    ///
    /// # Errors
    /// If a struct has over 4,096 slots or the table over 16,384 nodes.
    pub fn new(schema: &Schema) -> Result<Layout, SchemaError> {
        let mut builder = Builder {
            schema,
            nodes: Vec::new(),
            named: vec![None; schema.node_count() as usize],
            boxed: boxed(schema),
        };
        builder.node(SchemaId::ROOT, false, 0)?;
        builder.measure()?;
        let nodes = builder.nodes;
        let fingerprint = format!("{:016x}", fnv1a(table(&nodes).as_bytes()));
        Ok(Layout { inner: Arc::new(Inner { schema: schema.clone(), nodes, fingerprint }) })
    }

    /// The table; node 0 is the root.
    pub fn nodes(&self) -> &[LayoutNode] {
        &self.inner.nodes
    }

    /// A node of the table.
    pub fn node(&self, index: u32) -> &LayoutNode {
        &self.inner.nodes[index as usize]
    }

    /// FNV-1a 64 of [`Layout::table`], 16 lower-case hex digits.
    pub fn fingerprint(&self) -> &str {
        &self.inner.fingerprint
    }

    /// The hashed text, one line per node.
    pub fn table(&self) -> String {
        table(&self.inner.nodes)
    }

    /// The schema that is laid out.
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }
}

/// By schema node: records that reach themselves through record fields and nullables alone, so that they cannot lie in place.
fn boxed(schema: &Schema) -> Vec<bool> {
    let edges: Vec<Vec<u32>> = (0..schema.node_count())
        .map(|id| match &schema.node(SchemaId(id)).kind {
            SchemaKind::Record(record) => record
                .fields
                .iter()
                .map(|field| {
                    let opened = schema.opened(field.schema);
                    schema.nullable(opened).map_or(opened, |(inner, _)| inner).0
                })
                .collect(),
            _ => Vec::new(),
        })
        .collect();
    cyclic(&edges)
}

struct Builder<'s> {
    schema: &'s Schema,
    nodes: Vec<LayoutNode>,
    /// By schema node: the one layout node of a named type.
    named: Vec<Option<u32>>,
    boxed: Vec<bool>,
}

impl Builder<'_> {
    /// `in_place`: the value of a field or map entry, also beneath a nullable there. The recursion follows the schema's text: a
    /// named type is entered where it is defined.
    fn node(&mut self, id: SchemaId, in_place: bool, depth: u32) -> Result<u32, SchemaError> {
        let id = self.schema.opened(id);
        if depth > 3 * SCHEMA_DEPTH_MAX {
            return Err(self.limit(id, "nesting", SCHEMA_DEPTH_MAX.into()));
        }
        if let Some((inner, _)) = self.schema.nullable(id) {
            let index = self.add(Kind::Nullable(0), id)?;
            let inner = self.node(inner, in_place, depth + 1)?;
            self.nodes[index as usize].kind = Kind::Nullable(inner);
            return Ok(index);
        }
        let schema = self.schema;
        let node = schema.node(id);
        let kind = match &node.kind {
            SchemaKind::Null => Kind::Null,
            SchemaKind::Boolean => Kind::Boolean,
            SchemaKind::Int => Kind::Int,
            SchemaKind::Long => Kind::Long,
            SchemaKind::Float => Kind::Float,
            SchemaKind::Double => Kind::Double,
            SchemaKind::Bytes => Kind::Bytes,
            SchemaKind::Text => Kind::Text,
            SchemaKind::Fixed(fixed) => {
                return self.named(id, &fixed.name.full, Kind::Fixed(fixed.size));
            }
            SchemaKind::Enum(symbols) => {
                return self.named(id, &symbols.name.full, Kind::Enum(symbols.symbols.clone()));
            }
            SchemaKind::Array(inner) => {
                let index = self.add(Kind::Array(0), id)?;
                let inner = self.node(*inner, false, depth + 1)?;
                self.nodes[index as usize].kind = Kind::Array(inner);
                return Ok(index);
            }
            SchemaKind::Map(inner) => {
                let index = self.add(Kind::Map(0), id)?;
                let inner = self.node(*inner, true, depth + 1)?;
                self.nodes[index as usize].kind = Kind::Map(inner);
                return Ok(index);
            }
            SchemaKind::Union(branches) => {
                let index = self.add(Kind::Union(Arc::new([])), id)?;
                let branches: Result<Vec<u32>, _> =
                    branches.iter().map(|branch| self.node(*branch, false, depth + 1)).collect();
                self.nodes[index as usize].kind = Kind::Union(branches?.into());
                return Ok(index);
            }
            SchemaKind::Record(record) => {
                if in_place && self.boxed[id.0 as usize] {
                    let index = self.add(Kind::Boxed(0), id)?;
                    let inner = self.node(id, false, depth + 1)?;
                    self.nodes[index as usize].kind = Kind::Boxed(inner);
                    return Ok(index);
                }
                if let Some(index) = self.named[id.0 as usize] {
                    return Ok(index);
                }
                let index = self.named(id, &record.name.full, Kind::Null)?;
                let mut fields = Vec::with_capacity(record.fields.len());
                for field in record.fields.iter() {
                    fields.push(Field {
                        name: field.name.clone(),
                        node: self.node(field.schema, true, depth + 1)?,
                        slot: 0,
                        null_bit: 0,
                        number: 0,
                    });
                }
                self.nodes[index as usize].kind = Kind::Struct(fields.into());
                return Ok(index);
            }
        };
        self.add(kind, id)
    }

    /// The one node of a named type.
    fn named(&mut self, id: SchemaId, name: &Arc<str>, kind: Kind) -> Result<u32, SchemaError> {
        if let Some(index) = self.named[id.0 as usize] {
            return Ok(index);
        }
        let index = self.add(kind, id)?;
        self.nodes[index as usize].name = Some(name.clone());
        self.named[id.0 as usize] = Some(index);
        Ok(index)
    }

    fn add(&mut self, kind: Kind, id: SchemaId) -> Result<u32, SchemaError> {
        if self.nodes.len() >= LAYOUT_NODES_MAX {
            return Err(self.limit(id, "layout nodes", LAYOUT_NODES_MAX as u64));
        }
        self.nodes.push(LayoutNode {
            slots: 0,
            kind,
            name: None,
            logical: self.schema.node(id).logical.clone(),
            null_bits: 0,
            numbers: 0,
            schema: id,
        });
        Ok(self.nodes.len() as u32 - 1)
    }

    /// Widths, once the table is whole: a struct in a cell of another one may hold that one in place, so no order of building would do.
    /// What lies in place is measured first; a record that reaches itself so is boxed, hence there is no cycle. Names let a flat
    /// text nest deeply, hence a stack of its own.
    fn measure(&mut self) -> Result<(), SchemaError> {
        let mut done = vec![false; self.nodes.len()];
        let mut stack = Vec::new();
        for root in 0..self.nodes.len() as u32 {
            stack.push(root);
            while let Some(&index) = stack.last() {
                if done[index as usize] {
                    stack.pop();
                    continue;
                }
                let waiting = stack.len();
                match &self.nodes[index as usize].kind {
                    Kind::Nullable(inner) if !done[*inner as usize] => stack.push(*inner),
                    Kind::Struct(fields) => {
                        stack.extend(fields.iter().map(|field| field.node).filter(|node| !done[*node as usize]));
                    }
                    _ => {}
                }
                if stack.len() == waiting {
                    self.measure_node(index)?;
                    done[index as usize] = true;
                }
            }
        }
        Ok(())
    }

    /// The width of a node whose parts in place are measured.
    fn measure_node(&mut self, index: u32) -> Result<(), SchemaError> {
        let (mut slots, mut null_bits, mut numbers) = (0u32, 0u32, 0u32);
        match self.nodes[index as usize].kind.clone() {
            Kind::Null => {}
            Kind::Nullable(inner) => {
                let inner = &self.nodes[inner as usize];
                slots = inner.slots;
                null_bits = inner.null_bits.saturating_add(1);
                numbers = inner.numbers;
            }
            Kind::Struct(fields) => {
                let mut fields = fields.to_vec();
                for field in &mut fields {
                    (field.slot, field.null_bit, field.number) = (slots, null_bits, numbers);
                    let inner = &self.nodes[field.node as usize];
                    slots = slots.saturating_add(inner.slots);
                    null_bits = null_bits.saturating_add(inner.null_bits);
                    numbers = numbers.saturating_add(inner.numbers).saturating_add(1);
                }
                let id = self.nodes[index as usize].schema;
                if slots > STRUCT_SLOTS_MAX {
                    return Err(self.limit(id, "slots of a struct", STRUCT_SLOTS_MAX.into()));
                }
                if numbers > STRUCT_NUMBERS_MAX || null_bits > STRUCT_NUMBERS_MAX {
                    return Err(self.limit(id, "fields of a struct", STRUCT_NUMBERS_MAX.into()));
                }
                self.nodes[index as usize].kind = Kind::Struct(fields.into());
            }
            _ => slots = 1,
        }
        let node = &mut self.nodes[index as usize];
        (node.slots, node.null_bits, node.numbers) = (slots, null_bits, numbers);
        Ok(())
    }

    fn limit(&self, id: SchemaId, what: &'static str, max: u64) -> SchemaError {
        SchemaError::Limit { path: self.schema.describe(id), what, max }
    }
}

fn table(nodes: &[LayoutNode]) -> String {
    let mut text = String::new();
    for node in nodes {
        line(&mut text, node);
    }
    text
}

/// "kind, full name, arguments, `~` logical, `/S/B`, each after a space if present, then LF".
fn line(text: &mut String, node: &LayoutNode) {
    let start = text.len();
    text.push_str(match &node.kind {
        Kind::Null => "null",
        Kind::Boolean => "boolean",
        Kind::Int => "int",
        Kind::Long => "long",
        Kind::Float => "float",
        Kind::Double => "double",
        Kind::Bytes => "bytes",
        Kind::Text => "text",
        Kind::Fixed(_) => "fixed",
        Kind::Enum(_) => "enum-of",
        Kind::Struct(_) => "struct-of",
        Kind::Array(_) => "array-of",
        Kind::Map(_) => "map-of",
        Kind::Nullable(_) => "nullable",
        Kind::Union(_) => "union-of",
        Kind::Boxed(_) => "boxed",
    });
    let mut word = |argument: &dyn std::fmt::Display| {
        // writing to a String cannot fail
        let _ = write!(text, " {argument}");
    };
    if let Some(name) = &node.name {
        word(name);
    }
    match &node.kind {
        Kind::Fixed(size) => word(size),
        Kind::Enum(symbols) => symbols.iter().for_each(|symbol| word(symbol)),
        Kind::Struct(fields) => {
            for field in fields.iter() {
                word(&format_args!("{}:{}:{}:{}:{}", field.name, field.node, field.slot, field.null_bit, field.number));
            }
        }
        Kind::Array(inner) | Kind::Map(inner) | Kind::Nullable(inner) | Kind::Boxed(inner) => word(inner),
        Kind::Union(branches) => branches.iter().for_each(|branch| word(branch)),
        _ => {}
    }
    if let Some(logical) = &node.logical {
        word(&format_args!("~{logical}"));
    }
    word(&format_args!("/{}/{}", node.slots, node.null_bits));
    text.push('\n');
    debug_assert!(text.len() > start);
}

/// FNV-1a, 64 bits: offset basis and prime as the contract states them.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Layout {
        Layout::new(&Schema::parse(text).expect("legal schema")).expect("a layout")
    }

    #[test]
    fn worked_example_of_the_contract() {
        let layout = layout(
            r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"double"},{"name":"address","type":["null",
 {"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}]},{"name":"tags","type":{"type":"array","items":["null","string"]}}]}"#,
        );
        let table = "struct-of Order id:1:0:0:0 amount:2:1:0:1 address:3:2:0:2 tags:6:3:1:4 /4/1\ntext /1/0\ndouble /1/0\n\
                     nullable 4 /1/1\nstruct-of Address city:5:0:0:0 /1/0\ntext /1/0\narray-of 7 /1/0\nnullable 8 /1/1\ntext /1/0\n";
        assert_eq!(layout.table(), table);
        assert_eq!(layout.fingerprint(), "c94957bbb48705aa");
        assert_eq!(layout.node(0).frame_bytes(), 40);
        assert_eq!(layout.node(0).numbers, 5);
    }

    #[test]
    fn tables_of_every_shape() {
        let cases = [
            (r#""null""#, "null /0/0\n"),
            (r#"["null"]"#, "null /0/0\n"),
            (r#"["int"]"#, "int /1/0\n"),
            (r#"["long","null"]"#, "nullable 1 /1/1\nlong /1/0\n"),
            (r#"["int","null","string"]"#, "union-of 1 2 3 /1/0\nint /1/0\nnull /0/0\ntext /1/0\n"),
            (r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#, "bytes ~decimal(9,2) /1/0\n"),
            (r#"{"type":"bytes","logicalType":"decimal","precision":2,"scale":9}"#, "bytes ~other(decimal) /1/0\n"),
            (r#"{"type":"int","logicalType":"timestamp-millis"}"#, "int ~other(timestamp-millis) /1/0\n"),
            (r#"{"type":"fixed","name":"a.F","size":16,"logicalType":"uuid"}"#, "fixed a.F 16 ~uuid /1/0\n"),
            (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, "enum-of E A B /1/0\n"),
            (
                // a chain through a nullable is boxed as a field, and in place at the root
                r#"{"type":"record","name":"N","fields":[{"name":"v","type":"int"},{"name":"n","type":["null","N"]}]}"#,
                "struct-of N v:1:0:0:0 n:2:1:0:1 /2/1\nint /1/0\nnullable 3 /1/1\nboxed 0 /1/0\n",
            ),
            (
                // a struct in a cell that holds the record around it in place: measured before that record is, it would be too narrow
                r#"{"type":"record","name":"T","fields":[{"name":"c","type":{"type":"array","items":{"type":"record","name":"U","fields":
                   [{"name":"t","type":["null","T"]},{"name":"b","type":"int"}]}}},{"name":"v","type":"int"}]}"#,
                "struct-of T c:1:0:0:0 v:5:1:0:1 /2/0\narray-of 2 /1/0\nstruct-of U t:3:0:0:0 b:4:2:1:3 /3/1\nnullable 0 /2/1\n\
                 int /1/0\nint /1/0\n",
            ),
            (
                // an item that is nullable and holds the record that is still open
                r#"{"type":"record","name":"T","fields":[{"name":"v","type":"int"},{"name":"c","type":{"type":"array","items":["null","T"]}}]}"#,
                "struct-of T v:1:0:0:0 c:2:1:0:1 /2/0\nint /1/0\narray-of 3 /1/0\nnullable 0 /2/1\n",
            ),
            (
                r#"{"type":"map","values":{"type":"record","name":"P","fields":[{"name":"a","type":["null","int"]},{"name":"b","type":["null","P"]}]}}"#,
                "map-of 1 /1/0\nboxed 2 /1/0\nstruct-of P a:3:0:0:0 b:5:1:1:1 /2/2\nnullable 4 /1/1\nint /1/0\nnullable 6 /1/1\nboxed 2 /1/0\n",
            ),
        ];
        for (schema, table) in cases {
            assert_eq!(layout(schema).table(), table, "{schema}");
        }
    }

    #[test]
    fn doubling_structs_are_refused_and_not_measured() {
        // 40 levels, each two times the one before: 2^40 fields of type null take no slot at all
        let mut fields =
            r#"{"name":"f0","type":{"type":"record","name":"R0","fields":[{"name":"n","type":"null"}]}}"#.to_string();
        for level in 1..40 {
            let below = level - 1;
            fields += &format!(
                r#",{{"name":"f{level}","type":{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":"R{below}"}},{{"name":"b","type":"R{below}"}}]}}}}"#
            );
        }
        let schema =
            Schema::parse(&format!(r#"{{"type":"record","name":"Root","fields":[{fields}]}}"#)).expect("legal schema");
        assert!(matches!(Layout::new(&schema), Err(SchemaError::Limit { what: "fields of a struct", .. })));
    }
}
