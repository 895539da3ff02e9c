//! Patching: fields that a guest set replace their spans in the bytes that the producer wrote; every other byte stays as it was.
//!
//! Owns the items of a patch, their rules, and the walk to their spans. The result is in the writer's schema; another target is
//! decoded and encoded by the caller.

mod compile;
mod skip;

use std::sync::Arc;

use crate::encode::{Compiler, Program, Sink, SinkLimits, TooBig};
use crate::error::PlanError;
use crate::layout::Layout;
use crate::limits::Limits;
use crate::refs::{Budget, EntryCheck, EntryError, Refs};
use crate::schema::Schema;

use skip::{SkipProgram, Walk};

/// Edits of one patch that need no allocation.
const EDITS_INLINE: usize = 32;

/// Sets fields in data of a writer's schema, as a guest sees them through a reader schema. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Patcher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    program: Program,
    skip: SkipProgram,
    /// By field number of the reader.
    points: Vec<Point>,
    limits: SinkLimits,
}

/// What an item with this field number sets.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Bytes of the item's frame.
    frame_bytes: u32,
    /// Numbered fields inside it, which no other item may set.
    inside: u32,
    /// None if the writer has no such field.
    target: Option<Target>,
}

#[derive(Clone, Copy, Debug)]
struct Target {
    /// Its ops in the skip program.
    start: u32,
    end: u32,
    /// Encodes the item's frame as the writer's type.
    block: u32,
}

/// One item, before its span is known.
#[derive(Clone, Copy, Debug, Default)]
struct Edit {
    number: u32,
    /// Byte of its frame in the items.
    at: u32,
}

impl Patcher {
    /// Compiles a patcher of data that was written with `writer` and read with `reader`, whose layout counts the field numbers. The two
    /// must resolve, which a plan of them has shown.
    ///
    /// # Errors
    ///
    /// If the reader's layout is refused, or a program would have more than `limits.program_ops_max` operations.
    pub fn compile(writer: &Schema, reader: &Schema, limits: &Limits) -> Result<Patcher, PlanError> {
        let layout = Layout::new(reader)?;
        let too_big = |TooBig { what, max }| PlanError::Limit { path: "(root)".to_owned(), what, max: max.into() };
        let (skip, spans) = compile::compile(&layout, writer, limits).map_err(too_big)?;
        let mut compiler = Compiler::new(&layout, writer, limits.program_ops_max);
        let mut points = Vec::with_capacity(spans.len());
        for (node, span) in compile::numbered(&layout).map_err(too_big)?.into_iter().zip(spans) {
            points.push(Point {
                frame_bytes: layout.node(node).frame_bytes(),
                inside: layout.node(node).numbers,
                target: span.map(|span| Target {
                    start: span.start,
                    end: span.end,
                    block: compiler.block(node, span.writer),
                }),
            });
        }
        let program = compiler.finish().map_err(too_big)?;
        Ok(Patcher { inner: Arc::new(Inner { program, skip, points, limits: SinkLimits::new(limits) }) })
    }

    /// Appends `datum` with the fields of `items` set. `items`: the payload of a patch behind its extras, each a field number, a zero, and a
    /// frame. The work is charged to `budget` as an encoder charges it; copied bytes count.
    ///
    /// # Errors
    ///
    /// The entry check that failed; then `out` has its former length.
    pub fn patch(
        &self,
        refs: &Refs<'_>,
        items: &[u8],
        datum: &[u8],
        out: &mut Vec<u8>,
        budget: &mut Budget,
    ) -> Result<(), EntryError> {
        let mut sink = Sink::new(refs, out, budget, self.inner.limits);
        let result = self.apply(items, datum, &mut sink);
        sink.finish(result)
    }

    fn apply(&self, items: &[u8], datum: &[u8], sink: &mut Sink<'_>) -> Result<(), EntryError> {
        let mut few = [Edit::default(); EDITS_INLINE];
        let mut many = Vec::new();
        let mut count = 0;
        let mut last = 0;
        let mut sorted = true;
        self.items(items, |edit, start| {
            sorted &= last <= start;
            last = start;
            if count < EDITS_INLINE {
                few[count] = edit;
            } else {
                if many.is_empty() {
                    many.extend_from_slice(&few);
                }
                many.push(edit);
            }
            count += 1;
        })?;
        let edits = if many.is_empty() { &mut few[..count] } else { &mut many[..] };
        if !sorted {
            // the writer has its fields in another order than the reader
            edits
                .sort_unstable_by_key(|edit| self.inner.points[edit.number as usize].target.map(|target| target.start));
        }
        self.splice(edits, items, datum, sink)
    }

    /// Reads the items and their rules: known fields, ascending, none inside another one.
    fn items(&self, items: &[u8], mut edit: impl FnMut(Edit, u32)) -> Result<(), EntryError> {
        let mut rest = items;
        let mut free = 0;
        while !rest.is_empty() {
            let Some((head, frame)) = rest.split_first_chunk::<8>() else {
                return Err(EntryCheck::Length.into());
            };
            let head = u64::from_le_bytes(*head);
            // the number is the low half; the high half must be zero, as it is in any number of a field
            let Some(point) = usize::try_from(head).ok().and_then(|number| self.inner.points.get(number)) else {
                return Err(EntryCheck::Field.into());
            };
            let number = head as u32;
            if number < free {
                return Err(EntryCheck::Field.into());
            }
            free = number + point.inside + 1;
            let Some(behind) = frame.get(point.frame_bytes as usize..) else {
                return Err(EntryCheck::Length.into());
            };
            let Some(target) = point.target else {
                return Err(EntryCheck::Target.into());
            };
            let at = (items.len() - frame.len()) as u32;
            edit(Edit { number, at }, target.start);
            rest = behind;
        }
        Ok(())
    }

    /// One walk over the datum; the edits are in its order.
    fn splice(&self, edits: &[Edit], items: &[u8], datum: &[u8], sink: &mut Sink<'_>) -> Result<(), EntryError> {
        let Inner { program, skip, points, .. } = &*self.inner;
        let undecodable = |_| EntryError(EntryCheck::Undecodable);
        let mut walk = Walk { datum, at: 0 };
        let mut copied = 0;
        let mut op = 0;
        for edit in edits {
            let point = &points[edit.number as usize];
            let Some(target) = point.target else {
                return Err(EntryCheck::Target.into());
            };
            op = skip.run(op, target.start, 0, &mut walk).map_err(undecodable)?;
            if op != target.start {
                // the walk went over the field: a null or another branch is in its place
                return Err(EntryCheck::NullParent.into());
            }
            sink.copy(&datum[copied..walk.at])?;
            op = skip.run(op, target.end, 0, &mut walk).map_err(undecodable)?;
            copied = walk.at;
            let at = edit.at as usize;
            program.run(target.block, &items[at..at + point.frame_bytes as usize], 0, sink)?;
        }
        sink.copy(&datum[copied..])
    }
}
