//! Compiles a patcher: the skip program of the writer's schema with the places of the fields that a guest may set.

use std::collections::HashMap;

use super::skip::{Skip, SkipBlock, SkipProgram};
use crate::encode::{TooBig, choose, match_fields};
use crate::layout::{Kind, Layout};
use crate::limits::Limits;
use crate::schema::{Schema, SchemaId, SchemaKind};

/// Where a field of the reader lies in the writer's datum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Its ops in block 0 of the skip program.
    pub(super) start: u32,
    pub(super) end: u32,
    /// Its type there.
    pub(super) writer: SchemaId,
}

/// A struct of the reader that lies in place, and the number of its first field.
#[derive(Clone, Copy)]
struct Inside {
    node: u32,
    base: u32,
}

/// The skip program, and for each field number its span; none where the writer has no such field.
pub(super) fn compile(
    layout: &Layout,
    writer: &Schema,
    limits: &Limits,
) -> Result<(SkipProgram, Vec<Option<Span>>), TooBig> {
    let root = layout.node(0);
    let mut builder = Builder {
        layout,
        writer,
        program: SkipProgram {
            depth_max: limits.depth_max,
            empty_items_max: limits.empty_items_max,
            ..SkipProgram::default()
        },
        spans: vec![None; root.numbers as usize],
        label: 0,
        open: Vec::new(),
        known: HashMap::new(),
        todo: Vec::new(),
        ops_max: limits.program_ops_max,
        depth: 0,
    };
    builder.program.blocks.push(SkipBlock::default());
    builder.fill(0, SchemaId::ROOT, false, inside(layout, 0, 0))?;
    while let Some((block, schema, entry)) = builder.todo.pop() {
        builder.fill(block, schema, entry, None)?;
    }
    Ok((builder.program, builder.spans))
}

/// The node of every numbered field, in the order of the numbers.
pub(super) fn numbered(layout: &Layout) -> Result<Vec<u32>, TooBig> {
    fn collect(layout: &Layout, node: u32, depth: u32, found: &mut Vec<u32>) -> Result<(), TooBig> {
        TooBig::nesting(depth)?;
        match &layout.node(node).kind {
            Kind::Nullable(inner) => collect(layout, *inner, depth + 1, found),
            Kind::Struct(fields) => fields.iter().try_for_each(|field| {
                found.push(field.node);
                collect(layout, field.node, depth + 1, found)
            }),
            _ => Ok(()),
        }
    }
    let mut found = Vec::with_capacity(layout.node(0).numbers as usize);
    collect(layout, 0, 0, &mut found)?;
    Ok(found)
}

/// The struct that lies in place at a node, itself or beneath a nullable.
fn inside(layout: &Layout, node: u32, base: u32) -> Option<Inside> {
    match layout.node(node).kind {
        Kind::Nullable(inner) => inside(layout, inner, base),
        Kind::Struct(_) => Some(Inside { node, base }),
        _ => None,
    }
}

struct Builder<'a> {
    layout: &'a Layout,
    writer: &'a Schema,
    program: SkipProgram,
    spans: Vec<Option<Span>>,
    /// First op that a new op may be made one with: those before it have an end that somebody names.
    label: u32,
    /// Records around the place at hand, in place.
    open: Vec<SchemaId>,
    known: HashMap<(SchemaId, bool), u32>,
    todo: Vec<(u32, SchemaId, bool)>,
    ops_max: u32,
    depth: u32,
}

impl Builder<'_> {
    /// The block of an element, a map's entry, or a record that contains itself.
    fn block(&mut self, schema: SchemaId, entry: bool) -> u32 {
        if let Some(block) = self.known.get(&(schema, entry)) {
            return *block;
        }
        let block = self.program.blocks.len() as u32;
        self.program.blocks.push(SkipBlock::default());
        self.known.insert((schema, entry), block);
        self.todo.push((block, schema, entry));
        block
    }

    fn fill(&mut self, block: u32, schema: SchemaId, entry: bool, reader: Option<Inside>) -> Result<(), TooBig> {
        let start = self.mark();
        if entry {
            self.push(Skip::Counted)?;
        }
        self.value(schema, reader)?;
        let end = self.mark();
        self.program.blocks[block as usize] = SkipBlock { start, end, empty: start == end };
        Ok(())
    }

    fn value(&mut self, schema: SchemaId, reader: Option<Inside>) -> Result<(), TooBig> {
        TooBig::nesting(self.depth)?;
        self.depth += 1;
        let writer = self.writer;
        match &writer.node(schema).kind {
            SchemaKind::Null => {}
            SchemaKind::Boolean => self.push(Skip::Bytes(1))?,
            SchemaKind::Int | SchemaKind::Long | SchemaKind::Enum(_) => self.push(Skip::Longs(1))?,
            SchemaKind::Float => self.push(Skip::Bytes(4))?,
            SchemaKind::Double => self.push(Skip::Bytes(8))?,
            SchemaKind::Bytes | SchemaKind::Text => self.push(Skip::Counted)?,
            SchemaKind::Fixed(fixed) if fixed.size == 0 => {}
            SchemaKind::Fixed(fixed) => self.push(Skip::Bytes(fixed.size))?,
            SchemaKind::Array(item) => {
                let block = self.block(*item, false);
                self.push(Skip::Items { block })?;
            }
            SchemaKind::Map(value) => {
                let block = self.block(*value, true);
                self.push(Skip::Items { block })?;
            }
            SchemaKind::Record(_) if self.open.contains(&schema) => {
                let block = self.block(schema, false);
                self.push(Skip::Call { block })?;
            }
            SchemaKind::Record(_) => {
                self.open.push(schema);
                self.record(schema, reader)?;
                self.open.pop();
            }
            SchemaKind::Union(branches) => self.union(schema, branches, reader)?,
        }
        self.depth -= 1;
        Ok(())
    }

    /// The fields of a record, each between marks if the reader has it.
    fn record(&mut self, schema: SchemaId, reader: Option<Inside>) -> Result<(), TooBig> {
        let writer = self.writer;
        let SchemaKind::Record(record) = &writer.node(schema).kind else {
            unreachable!("only records come here");
        };
        let layout = self.layout;
        let matched = reader.and_then(|Inside { node, base }| {
            let node = layout.node(node);
            match (&node.kind, &layout.schema().node(node.schema).kind) {
                (Kind::Struct(fields), SchemaKind::Record(from)) => Some((fields, match_fields(from, record), base)),
                _ => None,
            }
        });
        for (index, field) in record.fields.iter().enumerate() {
            let target = matched.as_ref().and_then(|(fields, pairs, base)| {
                let found = &fields[pairs[index]? as usize];
                Some((base + found.number, found.node))
            });
            let Some((number, node)) = target else {
                self.value(field.schema, None)?;
                continue;
            };
            let start = self.mark();
            self.value(field.schema, inside(layout, node, number + 1))?;
            if self.here() == start {
                // a field without bytes has a place of its own, so that one can tell whether it was reached
                self.push(Skip::Nothing)?;
            }
            let end = self.mark();
            self.spans[number as usize] = Some(Span { start, end, writer: field.schema });
        }
        Ok(())
    }

    fn union(&mut self, schema: SchemaId, branches: &[SchemaId], reader: Option<Inside>) -> Result<(), TooBig> {
        if let Some((inner, null)) = self.writer.nullable(schema) {
            let test = self.here();
            self.push(Skip::Jump { to: 0 })?;
            self.mark();
            self.value(inner, reader)?;
            let to = self.mark();
            self.program.ops[test as usize] = Skip::Nullable { null: null as u8, to };
            return Ok(());
        }
        let table = self.program.branches.len() as u32;
        self.program.branches.resize(table as usize + branches.len(), 0);
        self.push(Skip::Union { table, count: branches.len() as u32 })?;
        // the reader's struct is one of the branches; the fields of others are not its fields
        let chosen = reader.and_then(|reader| choose(self.layout, reader.node, self.writer, branches));
        let mut ends = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            self.program.branches[table as usize + index] = self.mark();
            self.value(*branch, if chosen == Some(index) { reader } else { None })?;
            if index + 1 < branches.len() {
                ends.push(self.here());
                self.push(Skip::Jump { to: 0 })?;
            }
        }
        let to = self.mark();
        for end in ends {
            self.program.ops[end as usize] = Skip::Jump { to };
        }
        Ok(())
    }

    fn here(&self) -> u32 {
        self.program.ops.len() as u32
    }

    /// The place at hand, which stays one: no op before it is made one with an op behind it.
    fn mark(&mut self) -> u32 {
        self.label = self.here();
        self.label
    }

    /// Appends an op, or adds it to the op before it.
    fn push(&mut self, op: Skip) -> Result<(), TooBig> {
        if self.here() > self.label
            && let Some(last) = self.program.ops.last_mut()
        {
            let fused = match (*last, op) {
                (Skip::Bytes(before), Skip::Bytes(more)) => before.checked_add(more).map(Skip::Bytes),
                (Skip::Longs(before), Skip::Longs(more)) => before.checked_add(more).map(Skip::Longs),
                _ => None,
            };
            if let Some(fused) = fused {
                *last = fused;
                return Ok(());
            }
        }
        if self.here() >= self.ops_max {
            return Err(TooBig { what: "operations of a program", max: self.ops_max });
        }
        self.program.ops.push(op);
        Ok(())
    }
}
