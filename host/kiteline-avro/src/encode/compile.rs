//! Compiles (layout of the rows, schema of the rows, schema of the result) to a [`Program`].
//!
//! The two schemas are one for a new row, and reader and writer for a patched value. Then a value must *fit* the other type: where it cannot, by its
//! type, the program holds an op that fails, so that only the values that go there are refused. A null, an empty array or another branch
//! still pass.

use std::collections::HashMap;
use std::sync::Arc;

use super::program::{Block, NO_SYMBOL, Number, Op, Program};
use crate::layout::{Field, Kind, Layout, LayoutNode};
use crate::limits::SCHEMA_DEPTH_MAX;
use crate::refs::EntryCheck;
use crate::schema::{EnumType, RecordType, Schema, SchemaId, SchemaKind, TypeName, unqualified};

/// A program that grew over its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooBig {
    /// What there is too much of.
    pub(crate) what: &'static str,
    /// The bound.
    pub(crate) max: u32,
}

impl TooBig {
    /// Bounds the nesting of structs and nullables in place: names let a flat text nest as deep as it has records, and compilers recurse.
    pub(crate) fn nesting(depth: u32) -> Result<(), TooBig> {
        let max = 2 * SCHEMA_DEPTH_MAX;
        if depth > max {
            return Err(TooBig { what: "nesting", max });
        }
        Ok(())
    }
}

/// What one block encodes: frames of a layout node as values of a type of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Part {
    node: u32,
    writer: SchemaId,
    /// A map's entry: the key's slot comes before the slots of the value.
    entry: bool,
}

/// Where a value lies in the frame of the block at hand.
#[derive(Clone, Copy)]
struct Place {
    /// First null bit of its own.
    bit: u32,
    /// Byte of its first slot.
    at: u32,
    /// Structs and nullables around it in place.
    depth: u32,
}

/// Builds one program. Blocks are asked for with [`Compiler::block`] and made by [`Compiler::finish`].
pub(crate) struct Compiler<'a> {
    layout: &'a Layout,
    writer: &'a Schema,
    ops_max: u32,
    program: Program,
    known: HashMap<Part, u32>,
    todo: Vec<(u32, Part)>,
}

impl<'a> Compiler<'a> {
    /// `layout` is the one of the rows; `writer` is the schema of the result.
    pub(crate) fn new(layout: &'a Layout, writer: &'a Schema, ops_max: u32) -> Compiler<'a> {
        Compiler { layout, writer, ops_max, program: Program::default(), known: HashMap::new(), todo: Vec::new() }
    }

    /// The block for frames of layout node `node` as values of `writer`.
    pub(crate) fn block(&mut self, node: u32, writer: SchemaId) -> u32 {
        self.part(Part { node, writer, entry: false })
    }

    /// Makes all blocks that were asked for, and those that they need.
    pub(crate) fn finish(mut self) -> Result<Program, TooBig> {
        while let Some((number, part)) = self.todo.pop() {
            self.make(number, part)?;
        }
        Ok(self.program)
    }

    fn part(&mut self, part: Part) -> u32 {
        if let Some(number) = self.known.get(&part) {
            return *number;
        }
        let number = self.program.blocks.len() as u32;
        self.program.blocks.push(Block::default());
        self.known.insert(part, number);
        self.todo.push((number, part));
        number
    }

    fn make(&mut self, number: u32, part: Part) -> Result<(), TooBig> {
        let node = self.node(part.node);
        let words = node.null_words();
        let mut block =
            Block { start: self.here(), stride: node.frame_bytes() + 8 * u32::from(part.entry), ..Block::default() };
        if !node.null_bits.is_multiple_of(64) {
            block.spare_at = 8 * (words - 1);
            block.spare_mask = u64::MAX << (node.null_bits % 64);
        }
        let mut place = Place { bit: 0, at: 8 * words, depth: 0 };
        if part.entry {
            self.push(Op::Text { at: place.at })?;
            place.at += 8;
        }
        self.value(part.node, part.writer, place)?;
        block.end = self.here();
        block.silent = self.program.ops[block.start as usize..]
            .iter()
            .all(|op| matches!(op, Op::Fixed { size: 0, .. } | Op::Fail(_) | Op::Jump { .. } | Op::IfNull { .. }));
        self.program.blocks[number as usize] = block;
        Ok(())
    }

    /// Ops for one value in place.
    fn value(&mut self, node: u32, writer: SchemaId, place: Place) -> Result<(), TooBig> {
        TooBig::nesting(place.depth)?;
        match &self.node(node).kind {
            Kind::Nullable(inner) => return self.nullable(*inner, writer, place),
            Kind::Union(branches) => return self.union(branches, writer, place),
            _ => {}
        }
        // a value of one type: its branch comes first if the result has a union here
        let SchemaKind::Union(branches) = &self.writer.node(writer).kind else {
            return self.single(node, writer, place);
        };
        match choose(self.layout, node, self.writer, branches) {
            Some(index) => {
                self.push(Op::Tag(index as u32))?;
                self.single(node, branches[index], place)
            }
            None => self.push(Op::Fail(EntryCheck::Range)),
        }
    }

    fn nullable(&mut self, inner: u32, writer: SchemaId, place: Place) -> Result<(), TooBig> {
        let (at, mask) = (place.bit / 8, 1 << (place.bit % 8));
        let inside = Place { bit: place.bit + 1, depth: place.depth + 1, ..place };
        if let Some((writer_value, null)) = self.writer.nullable(writer) {
            let test = self.here();
            self.push(Op::Jump { to: 0 })?;
            self.value(inner, writer_value, inside)?;
            // branch indexes 0 and 1 are the bytes 0 and 2
            self.program.ops[test as usize] =
                Op::Nullable { at, mask, null: 2 * null as u8, value: 2 * (1 - null) as u8, to: self.here() };
            return Ok(());
        }
        let test = self.here();
        self.push(Op::Jump { to: 0 })?;
        self.value(inner, writer, inside)?;
        let skip = self.here();
        self.push(Op::Jump { to: 0 })?;
        self.program.ops[test as usize] = Op::IfNull { at, mask, to: self.here() };
        self.null(writer)?;
        self.program.ops[skip as usize] = Op::Jump { to: self.here() };
        Ok(())
    }

    /// A null where the result has no union of null and one type.
    fn null(&mut self, writer: SchemaId) -> Result<(), TooBig> {
        match &self.writer.node(writer).kind {
            SchemaKind::Null => Ok(()),
            SchemaKind::Union(branches) => {
                let null = |id: &SchemaId| matches!(self.writer.node(*id).kind, SchemaKind::Null);
                match branches.iter().position(null) {
                    Some(index) => self.push(Op::Tag(index as u32)),
                    None => self.push(Op::Fail(EntryCheck::Range)),
                }
            }
            _ => self.push(Op::Fail(EntryCheck::Range)),
        }
    }

    fn union(&mut self, nodes: &[u32], writer: SchemaId, place: Place) -> Result<(), TooBig> {
        let blocks: Vec<u32> = nodes.iter().map(|node| self.block(*node, writer)).collect();
        let table = self.program.branches.len() as u32;
        self.program.branches.extend_from_slice(&blocks);
        self.push(Op::Union { at: place.at, table, count: blocks.len() as u32 })
    }

    /// A value of one type as another one; neither is a union.
    fn single(&mut self, node: u32, writer: SchemaId, place: Place) -> Result<(), TooBig> {
        use SchemaKind as S;
        let at = place.at;
        let from = self.node(node);
        let op = match (&from.kind, &self.writer.node(writer).kind) {
            (Kind::Struct(fields), S::Record(to)) => {
                return self.structure(fields, from.schema, to, place);
            }
            (Kind::Null, S::Null) => return Ok(()),
            (Kind::Boxed(inner), S::Record(_)) => Op::Boxed { at, block: self.block(*inner, writer) },
            (Kind::Array(item), S::Array(to)) => Op::Items { at, block: self.block(*item, *to) },
            (Kind::Map(value), S::Map(to)) => {
                Op::Items { at, block: self.part(Part { node: *value, writer: *to, entry: true }) }
            }
            (Kind::Enum(symbols), S::Enum(to)) => self.symbols(symbols, to, at),
            (kind, to) => scalar(kind, to, at),
        };
        self.push(op)
    }

    /// A struct in place, in the order of the result's fields.
    fn structure(
        &mut self,
        fields: &[Field],
        reader: SchemaId,
        record: &RecordType,
        place: Place,
    ) -> Result<(), TooBig> {
        let SchemaKind::Record(from) = &self.layout.schema().node(reader).kind else {
            unreachable!("a struct node stands for a record");
        };
        let pairs = match_fields(from, record);
        if pairs.contains(&None) {
            return self.push(Op::Fail(EntryCheck::Incomplete));
        }
        if pairs.len() < fields.len() {
            return self.push(Op::Fail(EntryCheck::Target));
        }
        for (field, index) in record.fields.iter().zip(pairs) {
            let index = index.expect("all fields have their pair") as usize;
            let Field { node, slot, null_bit, .. } = fields[index];
            let inside = Place { bit: place.bit + null_bit, at: place.at + 8 * slot, depth: place.depth + 1 };
            self.value(node, field.schema, inside)?;
        }
        Ok(())
    }

    fn symbols(&mut self, from: &[Arc<str>], to: &EnumType, at: u32) -> Op {
        let count = from.len() as u32;
        if *from == *to.symbols {
            return Op::Enum { at, count };
        }
        let table = self.program.symbols.len() as u32;
        let place = |symbol| to.symbols.iter().position(|other| other == symbol);
        let indexes = from.iter().map(|symbol| place(symbol).map_or(NO_SYMBOL, |index| index as u32));
        self.program.symbols.extend(indexes);
        Op::EnumMap { at, table, count }
    }

    fn node(&self, node: u32) -> &'a LayoutNode {
        self.layout.node(node)
    }

    fn here(&self) -> u32 {
        self.program.ops.len() as u32
    }

    fn push(&mut self, op: Op) -> Result<(), TooBig> {
        if self.here() >= self.ops_max {
            return Err(TooBig { what: "operations of a program", max: self.ops_max });
        }
        self.program.ops.push(op);
        Ok(())
    }
}

/// A number, string or fixed as another one.
fn scalar(kind: &Kind, to: &SchemaKind, at: u32) -> Op {
    use SchemaKind as S;
    match (kind, to) {
        (Kind::Boolean, S::Boolean) => Op::Boolean { at },
        // an int that goes to long is still checked for its range
        (Kind::Int, S::Int | S::Long) => Op::Int { at },
        (Kind::Long, S::Long) => Op::Long { at },
        (Kind::Float, S::Float) => Op::Float { at },
        (Kind::Double, S::Float) => Op::Float { at },
        (Kind::Double, S::Double) => Op::Double { at },
        (Kind::Text, S::Text | S::Bytes) | (Kind::Bytes, S::Text) => Op::Text { at },
        (Kind::Bytes, S::Bytes) => Op::Bytes { at },
        (Kind::Fixed(size), S::Fixed(fixed)) if *size == fixed.size => Op::Fixed { at, size: *size },
        (kind, to) => match (number_of_row(kind), number(to)) {
            (Some(from), Some(to)) => Op::Convert { at, from, to },
            _ => Op::Fail(EntryCheck::Range),
        },
    }
}

fn number_of_row(kind: &Kind) -> Option<Number> {
    match kind {
        Kind::Int => Some(Number::Int),
        Kind::Long => Some(Number::Long),
        Kind::Float => Some(Number::Float),
        Kind::Double => Some(Number::Double),
        _ => None,
    }
}

fn number(kind: &SchemaKind) -> Option<Number> {
    match kind {
        SchemaKind::Int => Some(Number::Int),
        SchemaKind::Long => Some(Number::Long),
        SchemaKind::Float => Some(Number::Float),
        SchemaKind::Double => Some(Number::Double),
        _ => None,
    }
}

/// For each field of `writer` the field of `reader` that stands for it: of the same name, else of an alias of that name. Each field of the
/// writer goes to one field of the reader at most, the first.
pub(crate) fn match_fields(reader: &RecordType, writer: &RecordType) -> Vec<Option<u32>> {
    let places: HashMap<&str, usize> =
        writer.fields.iter().enumerate().map(|(index, field)| (&*field.name, index)).collect();
    let mut pairs = vec![None; writer.fields.len()];
    for (index, field) in reader.fields.iter().enumerate() {
        let alias = || field.aliases.iter().find_map(|alias| places.get(&**alias));
        if let Some(place) = places.get(&*field.name).or_else(alias) {
            pairs[*place].get_or_insert(index as u32);
        }
    }
    pairs
}

/// The branch of a union of the result for a value of one type: the first of the same type or name, else the first that it can be promoted to,
/// else the first that its values may fit.
pub(crate) fn choose(layout: &Layout, node: u32, writer: &Schema, branches: &[SchemaId]) -> Option<usize> {
    let from = &layout.schema().node(layout.node(node).schema).kind;
    let by = |test: fn(&SchemaKind, &SchemaKind) -> bool| {
        branches.iter().position(|branch| test(from, &writer.node(*branch).kind))
    };
    by(same).or_else(|| by(renamed)).or_else(|| by(promoted)).or_else(|| by(fits))
}

fn same(from: &SchemaKind, to: &SchemaKind) -> bool {
    use SchemaKind as S;
    match (from, to) {
        (S::Record(from), S::Record(to)) => from.name.full == to.name.full,
        (S::Enum(from), S::Enum(to)) => from.name.full == to.name.full,
        (S::Fixed(from), S::Fixed(to)) => from.name.full == to.name.full && from.size == to.size,
        _ => std::mem::discriminant(from) == std::mem::discriminant(to),
    }
}

fn renamed(from: &SchemaKind, to: &SchemaKind) -> bool {
    use SchemaKind as S;
    match (from, to) {
        (S::Record(from), S::Record(to)) => named(&from.name, &to.name),
        (S::Enum(from), S::Enum(to)) => named(&from.name, &to.name),
        (S::Fixed(from), S::Fixed(to)) => named(&from.name, &to.name) && from.size == to.size,
        _ => false,
    }
}

/// The same name, with or without its namespace, or an alias of the reader's.
fn named(from: &TypeName, to: &TypeName) -> bool {
    from.unqualified() == to.unqualified() || from.aliases.iter().any(|alias| unqualified(alias) == to.unqualified())
}

fn promoted(from: &SchemaKind, to: &SchemaKind) -> bool {
    use SchemaKind as S;
    matches!(
        (from, to),
        (S::Int, S::Long | S::Float | S::Double)
            | (S::Long, S::Float | S::Double)
            | (S::Float, S::Double)
            | (S::Text, S::Bytes)
            | (S::Bytes, S::Text)
    )
}

fn fits(from: &SchemaKind, to: &SchemaKind) -> bool {
    use SchemaKind as S;
    match (from, to) {
        (S::Fixed(from), S::Fixed(to)) => from.size == to.size,
        (S::Record(_), S::Record(_)) | (S::Enum(_), S::Enum(_)) => true,
        (from, to) => number(from).is_some() && number(to).is_some(),
    }
}
