//! Compiles two schemas to a program, by Avro 1.12, "Schema Resolution". Where the specification leaves a choice, the strict one: a reader's
//! union takes its first branch that matches, promotions included; named types match by name, never by shape.
//!
//! Each block is compiled by itself from a list of jobs; only structs that lie in place recurse. A pair of types is compiled once per
//! way it is used, so that recursive schemas end and repeated ones stay small.

mod matching;
mod skip;

use std::collections::HashMap;

use self::matching::{decimals_match, field_targets, names_match, scalar};
use super::defaults::DefaultFrames;
use super::{Block, CellInfo, Item, List, NO_SYMBOL, Op, Program};
use crate::error::PlanError;
use crate::layout::{Field, Kind, Layout};
use crate::limits::{Limits, SCHEMA_DEPTH_MAX};
use crate::schema::{EnumType, RecordType, Schema, SchemaField, SchemaId, SchemaKind};

/// The program, and what the writer may write that it cannot take.
pub(super) fn program(
    writer: &Schema,
    layout: &Layout,
    limits: &Limits,
) -> Result<(Program, Vec<PlanError>), PlanError> {
    let mut compiler = Compiler {
        writer,
        reader: layout.schema(),
        layout,
        limits,
        program: Program::default(),
        partial: Vec::new(),
        jobs: Vec::new(),
        known: HashMap::new(),
        default_frames: Vec::new(),
        ops: Vec::new(),
        label: 0,
        path: Vec::new(),
        lenient: false,
        steps: 0,
        depth: 0,
    };
    compiler.block(Task::Read { writer: SchemaId::ROOT, node: 0, keyed: false });
    compiler.work()?;
    Ok((compiler.program, compiler.partial))
}

/// Where a value goes in its frame.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Byte offset of its first slot.
    pub(super) slot: u32,
    /// Its first null bit.
    pub(super) bit: u32,
}

/// What a block does.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// Reads a value into a frame of `node`; `keyed`: an entry of a map, with its key before.
    Read { writer: SchemaId, node: u32, keyed: bool },
    /// Checks a value.
    Skip { writer: SchemaId, keyed: bool },
    /// Writes defaults. Never shared.
    Defaults { number: u32 },
}

struct Job {
    block: u32,
    task: Task,
    path: Vec<String>,
    lenient: bool,
}

pub(super) struct Compiler<'a> {
    pub(super) writer: &'a Schema,
    pub(super) reader: &'a Schema,
    pub(super) layout: &'a Layout,
    limits: &'a Limits,
    pub(super) program: Program,
    partial: Vec<PlanError>,
    jobs: Vec<Job>,
    known: HashMap<(Task, bool), u32>,
    /// What [`Task::Defaults`] writes.
    pub(super) default_frames: Vec<DefaultFrames>,
    /// Ops of the block in work; jumps count from its start.
    ops: Vec<Op>,
    /// The last op that something jumps to: what stands there is not merged with what stands before.
    label: usize,
    pub(super) path: Vec<String>,
    /// Inside a branch of a writer's union: what does not resolve rejects the records that have it, not the plan.
    lenient: bool,
    /// Types visited. Ops alone do not bound the work: empty structs have none.
    steps: u64,
    depth: u32,
}

impl Compiler<'_> {
    fn work(&mut self) -> Result<(), PlanError> {
        while let Some(job) = self.jobs.pop() {
            self.path = job.path;
            self.lenient = job.lenient;
            self.ops.clear();
            self.label = 0;
            let result = match job.task {
                Task::Read { writer, node, keyed } => self.frame(writer, node, keyed),
                Task::Skip { writer, keyed } => self.skip_item(writer, keyed),
                Task::Defaults { number } => self.write_default_frames(number),
            };
            match result {
                Err(error) if job.lenient && resolution(&error) => {
                    self.partial.push(error);
                    self.ops = vec![Op::Reject];
                }
                other => other?,
            }
            let start = self.program.ops.len();
            if start + self.ops.len() > self.limits.program_ops_max as usize {
                return Err(self.limit("operations of a plan", self.limits.program_ops_max.into()));
            }
            self.program.ops.append(&mut self.ops);
            self.program.blocks[job.block as usize] = Block { start: start as u32, end: self.program.ops.len() as u32 };
        }
        Ok(())
    }

    /// The block of a task, compiled once.
    pub(super) fn block(&mut self, task: Task) -> u32 {
        let key = (task.clone(), self.lenient);
        if let Some(&block) = self.known.get(&key) {
            return block;
        }
        let block = self.program.blocks.len() as u32;
        self.program.blocks.push(Block::default());
        self.known.insert(key, block);
        self.jobs.push(Job { block, task, path: self.path.clone(), lenient: self.lenient });
        block
    }

    /// A frame of its own.
    fn frame(&mut self, writer: SchemaId, node: u32, keyed: bool) -> Result<(), PlanError> {
        let mut slot = 8 * self.layout.node(node).null_words();
        if keyed {
            self.emit(Op::Text { slot })?;
            slot += 8;
        }
        self.read(writer, node, Place { slot, bit: 0 })
    }

    /// Reads a value of the writer's type into a place of the reader's. The writer's union comes first, then the reader's.
    fn read(&mut self, writer: SchemaId, node: u32, place: Place) -> Result<(), PlanError> {
        self.enter()?;
        let done = match &self.writer.node(writer).kind {
            SchemaKind::Union(branches) => self.read_union(writer, branches, node, place),
            _ => self.read_into(writer, node, place),
        };
        self.depth -= 1;
        done
    }

    fn read_union(
        &mut self,
        writer: SchemaId,
        branches: &[SchemaId],
        node: u32,
        place: Place,
    ) -> Result<(), PlanError> {
        if let (Some((inner, null)), Kind::Nullable(into)) =
            (self.writer.nullable(writer), &self.layout.node(node).kind)
        {
            let into = *into;
            let at = self.ops.len();
            let bits = self.layout.node(node).null_bits;
            self.emit(Op::Nullable { null: null as u8, bit: place.bit, bits, to: 0 })?;
            let inner_place = Place { bit: place.bit + 1, ..place };
            self.branch(|compiler| compiler.read(inner, into, inner_place))?;
            if let ([Op::Text { slot }], 1) = (&self.ops[at + 1..], bits) {
                self.ops[at] = Op::NullableText { null: null as u8, bit: place.bit, slot: *slot };
                self.ops.truncate(at + 1);
                return Ok(());
            }
            let end = self.mark();
            if let Op::Nullable { to, .. } = &mut self.ops[at] {
                *to = end;
            }
            return Ok(());
        }
        let table = self.program.tables.len() as u32;
        self.program.tables.resize(table as usize + branches.len(), 0);
        self.emit(Op::Union { table, count: branches.len() as u32 })?;
        let mut jumps = Vec::with_capacity(branches.len());
        let (mut rejected, partial) = (0, self.partial.len());
        for (index, &branch) in branches.iter().enumerate() {
            self.program.tables[table as usize + index] = self.mark();
            rejected += usize::from(!self.branch(|compiler| compiler.read(branch, node, place))?);
            jumps.push(self.ops.len());
            self.emit(Op::Jump { to: 0 })?;
        }
        if rejected == branches.len() {
            self.partial.truncate(partial);
            return Err(self.mismatch(writer, node));
        }
        let end = self.mark();
        for jump in jumps {
            self.ops[jump] = Op::Jump { to: end };
        }
        Ok(())
    }

    /// Compiles a branch of the writer's; one that does not resolve becomes a [`Op::Reject`]. Whether it resolved.
    fn branch(&mut self, body: impl FnOnce(&mut Self) -> Result<(), PlanError>) -> Result<bool, PlanError> {
        let start = self.mark() as usize;
        let (depth, path, lenient) = (self.depth, self.path.len(), self.lenient);
        self.lenient = true;
        let result = body(self);
        self.lenient = lenient;
        match result {
            Err(error) if resolution(&error) => {
                self.depth = depth;
                self.path.truncate(path);
                self.ops.truncate(start);
                self.label = start;
                self.partial.push(error);
                self.emit(Op::Reject)?;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// Reads a type that is no union into whatever the reader has.
    fn read_into(&mut self, writer: SchemaId, node: u32, place: Place) -> Result<(), PlanError> {
        match &self.layout.node(node).kind {
            Kind::Nullable(inner) => {
                if matches!(self.writer.node(writer).kind, SchemaKind::Null) {
                    return self.emit(Op::Nulls { bit: place.bit, bits: self.layout.node(node).null_bits });
                }
                let inner_place = Place { bit: place.bit + 1, ..place };
                self.read(writer, *inner, inner_place)
            }
            Kind::Union(branches) => {
                let Some(tag) = self.first_match(writer, branches) else {
                    return Err(self.mismatch(writer, node));
                };
                let into = branches[tag];
                self.read_cell(writer, into, tag as u32, place)
            }
            Kind::Boxed(inner) => self.read_cell(writer, *inner, 1, place),
            _ => self.read_pair(writer, node, place),
        }
    }

    fn read_cell(&mut self, writer: SchemaId, node: u32, tag: u32, place: Place) -> Result<(), PlanError> {
        let block = self.block(Task::Read { writer, node, keyed: false });
        let cell = self.cell(CellInfo { slot: place.slot, bytes: self.layout.node(node).frame_bytes(), tag, block });
        self.emit(Op::Cell { cell })
    }

    /// The first branch that matches: full names before names without namespace, since both may stand in one union.
    fn first_match(&self, writer: SchemaId, branches: &[u32]) -> Option<usize> {
        let exact = |&node: &u32| self.matches(writer, self.layout.node(node).schema, true);
        let named = |&node: &u32| self.matches(writer, self.layout.node(node).schema, false);
        branches.iter().position(exact).or_else(|| branches.iter().position(named))
    }

    /// Whether two types match, as the specification lists it: arrays and maps by their items, named types by name.
    fn matches(&self, writer: SchemaId, reader: SchemaId, exact: bool) -> bool {
        let (w, r) = (self.writer.node(writer), self.reader.node(reader));
        match (&w.kind, &r.kind) {
            (SchemaKind::Union(_), _) | (_, SchemaKind::Union(_)) => true,
            (SchemaKind::Array(w), SchemaKind::Array(r)) | (SchemaKind::Map(w), SchemaKind::Map(r)) => {
                self.matches(*w, *r, exact)
            }
            (SchemaKind::Record(w), SchemaKind::Record(r)) => names_match(&w.name, &r.name, exact),
            (SchemaKind::Enum(w), SchemaKind::Enum(r)) => names_match(&w.name, &r.name, exact),
            (SchemaKind::Fixed(wf), SchemaKind::Fixed(rf)) => {
                wf.size == rf.size && names_match(&wf.name, &rf.name, exact) && decimals_match(&w.logical, &r.logical)
            }
            _ => scalar(&w.kind, &r.kind, 0).is_some() && decimals_match(&w.logical, &r.logical),
        }
    }

    /// Two types that are no unions.
    fn read_pair(&mut self, writer: SchemaId, node: u32, place: Place) -> Result<(), PlanError> {
        let reader = self.layout.node(node).schema;
        let (w, r) = (self.writer.node(writer), self.reader.node(reader));
        if !self.matches(writer, reader, false) {
            return Err(self.mismatch(writer, node));
        }
        let slot = place.slot;
        match (&w.kind, &r.kind, &self.layout.node(node).kind) {
            (SchemaKind::Null, ..) => Ok(()),
            (SchemaKind::Fixed(fixed), ..) => self.emit(Op::Fixed { slot, size: fixed.size }),
            (SchemaKind::Enum(from), SchemaKind::Enum(to), _) => self.read_enum(from, to, slot),
            (SchemaKind::Record(from), SchemaKind::Record(to), Kind::Struct(fields)) => {
                self.read_struct(from, to, fields, place)
            }
            (SchemaKind::Array(item), _, Kind::Array(into)) => self.read_items(*item, *into, false, slot),
            (SchemaKind::Map(value), _, Kind::Map(into)) => self.read_items(*value, *into, true, slot),
            _ => match scalar(&w.kind, &r.kind, slot) {
                Some(op) => self.emit(op),
                None => Err(self.mismatch(writer, node)),
            },
        }
    }

    fn read_enum(&mut self, from: &EnumType, to: &EnumType, slot: u32) -> Result<(), PlanError> {
        let count = from.symbols.len() as u32;
        let positions: HashMap<&str, u32> =
            to.symbols.iter().zip(0..).map(|(symbol, index)| (&**symbol, index)).collect();
        let map: Vec<u32> = from
            .symbols
            .iter()
            .map(|symbol| positions.get(&**symbol).copied().or(to.default).unwrap_or(NO_SYMBOL))
            .collect();
        if map.iter().zip(0..).all(|(&mapped, index)| mapped == index) {
            return self.emit(Op::Enum { slot, count });
        }
        let start = self.program.maps.len() as u32;
        self.program.maps.extend(map);
        let symbols_max = self.tables_max();
        if self.program.maps.len() as u64 > symbols_max {
            return Err(self.limit("enum symbols of a plan", symbols_max));
        }
        self.emit(Op::EnumMap { slot, count, map: start })
    }

    /// The fields in the writer's order, then the defaults of those that it lacks.
    fn read_struct(
        &mut self,
        from: &RecordType,
        to: &RecordType,
        fields: &[Field],
        place: Place,
    ) -> Result<(), PlanError> {
        let targets = field_targets(from, to);
        let mut missing: Vec<bool> = vec![true; to.fields.len()];
        for (field, target) in from.fields.iter().zip(targets) {
            let Some(target) = target else {
                self.skip(field.schema)?;
                continue;
            };
            missing[target] = false;
            self.path.push(to.fields[target].name.to_string());
            self.read(field.schema, fields[target].node, inside(place, &fields[target]))?;
            self.path.pop();
        }
        for (index, field) in to.fields.iter().enumerate().filter(|(index, _)| missing[*index]) {
            self.path.push(field.name.to_string());
            self.missing(from, field, &fields[index], place)?;
            self.path.pop();
        }
        Ok(())
    }

    fn missing(
        &mut self,
        from: &RecordType,
        field: &SchemaField,
        slots: &Field,
        place: Place,
    ) -> Result<(), PlanError> {
        match &field.default {
            None => Err(PlanError::Missing {
                path: self.place(),
                record: from.name.full.to_string(),
                reader: self.reader.describe(field.schema),
            }),
            Some(value) if self.default_fits(field.schema, value) => {
                self.default(slots.node, value, inside(place, slots))
            }
            Some(value) => Err(PlanError::Default {
                path: self.place(),
                value: value.to_string(),
                reader: self.reader.describe(field.schema),
            }),
        }
    }

    fn read_items(&mut self, writer: SchemaId, node: u32, keyed: bool, slot: u32) -> Result<(), PlanError> {
        self.path.push(if keyed { "{}" } else { "[]" }.to_string());
        let block = self.block(Task::Read { writer, node, keyed });
        self.path.pop();
        let frame = self.layout.node(node).frame_bytes();
        let (from, to) = (&self.writer.node(writer).kind, &self.layout.node(node).kind);
        let item = match (keyed, from, to) {
            (false, SchemaKind::Text, Kind::Text | Kind::Bytes) => Item::Text,
            (false, SchemaKind::Long, Kind::Long) => Item::Long,
            (true, SchemaKind::Text, Kind::Text | Kind::Bytes) => Item::TextText,
            (true, SchemaKind::Long, Kind::Long) => Item::TextLong,
            _ => Item::Block,
        };
        let list = self.list(List {
            slot,
            stride: frame + 8 * u32::from(keyed),
            bytes_min: self.writer.bytes_min(writer).saturating_add(keyed.into()),
            block,
            item,
        });
        self.emit(Op::Items { list })
    }

    /// Appends an op, or merges it with the one before.
    pub(super) fn emit(&mut self, op: Op) -> Result<(), PlanError> {
        if self.ops.len() >= self.limits.program_ops_max as usize {
            return Err(self.limit("operations of a plan", self.limits.program_ops_max.into()));
        }
        let last = if self.ops.len() > self.label { self.ops.last_mut() } else { None };
        let merged = match (last, op) {
            (Some(Op::SkipBytes { count }), Op::SkipBytes { count: more }) => {
                count.checked_add(more).map(|sum| *count = sum).is_some()
            }
            (Some(Op::SkipBooleans { count }), Op::SkipBooleans { count: more })
            | (Some(Op::SkipInts { count }), Op::SkipInts { count: more })
            | (Some(Op::SkipLongs { count }), Op::SkipLongs { count: more })
            | (Some(Op::SkipTexts { count }), Op::SkipTexts { count: more })
            | (Some(Op::SkipCounted { count }), Op::SkipCounted { count: more }) => {
                *count += more;
                true
            }
            (Some(Op::Nulls { bit, bits }), Op::Nulls { bit: next, bits: more }) if *bit + *bits == next => {
                *bits += more;
                true
            }
            _ => false,
        };
        if !merged {
            self.ops.push(op);
        }
        Ok(())
    }

    /// The next op is jumped to.
    fn mark(&mut self) -> u32 {
        self.label = self.ops.len();
        self.label as u32
    }

    pub(super) fn cell(&mut self, info: CellInfo) -> u32 {
        self.program.cells.push(info);
        self.program.cells.len() as u32 - 1
    }

    fn list(&mut self, list: List) -> u32 {
        self.program.lists.push(list);
        self.program.lists.len() as u32 - 1
    }

    /// Counts a visit of a type, and the depth in place; the caller takes the depth back.
    pub(super) fn enter(&mut self) -> Result<(), PlanError> {
        let steps_max = self.tables_max();
        self.steps += 1;
        if self.steps > steps_max {
            return Err(self.limit("types visited for a plan", steps_max));
        }
        self.depth += 1;
        if self.depth > 4 * SCHEMA_DEPTH_MAX {
            return Err(self.limit("nesting of structs", (4 * SCHEMA_DEPTH_MAX).into()));
        }
        Ok(())
    }

    /// Bound of what comes with the ops: types visited, enum symbols mapped, bytes of constants. Ops are 16 bytes each.
    pub(super) fn tables_max(&self) -> u64 {
        16 * u64::from(self.limits.program_ops_max)
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn place(&self) -> String {
        match self.path.is_empty() {
            true => "(root)".to_string(),
            false => self.path.join("."),
        }
    }

    fn mismatch(&self, writer: SchemaId, node: u32) -> PlanError {
        PlanError::Mismatch {
            path: self.place(),
            writer: self.writer.describe(writer),
            reader: self.reader.describe(self.layout.node(node).schema),
        }
    }

    pub(super) fn limit(&self, what: &'static str, max: u64) -> PlanError {
        PlanError::Limit { path: self.place(), what, max }
    }
}

/// An error of the two schemas, not of a limit.
fn resolution(error: &PlanError) -> bool {
    matches!(error, PlanError::Mismatch { .. } | PlanError::Missing { .. } | PlanError::Default { .. })
}

/// The place of a field in its struct's place.
pub(super) fn inside(place: Place, field: &Field) -> Place {
    Place { slot: place.slot + 8 * field.slot, bit: place.bit + field.null_bit }
}
