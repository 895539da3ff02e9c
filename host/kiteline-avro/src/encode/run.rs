//! Runs a program of [`super::program`] over a frame. The frame, and all it points at, is the guest's: every slot is checked before it is used.
//!
//! Cells are entered by recursion, which the depth limit bounds; everything else is one loop. Nothing is allocated but the room in `out`.

use super::program::{Block, NO_SYMBOL, Number, Op, Program};
use crate::limits::Limits;
use crate::refs::{Budget, EntryCheck, EntryError, Refs};

/// Where encoded bytes go, and how many more may.
pub(crate) struct Sink<'a> {
    refs: &'a Refs<'a>,
    out: &'a mut Vec<u8>,
    budget: &'a mut Budget,
    /// Length of `out` before this record.
    start: usize,
    /// Length that `out` may not pass.
    end_max: usize,
    /// Work that left no bytes: elements without bytes, strings that were read and refused.
    idle: u64,
    depth_max: u32,
    /// Elements without bytes that the record may still have.
    empty_left: u32,
    /// The budget and not the record's own limit set `end_max`.
    budget_first: bool,
}

/// The limits that a [`Sink`] keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkLimits {
    pub(crate) depth_max: u32,
    pub(crate) record_bytes_max: u32,
    pub(crate) empty_items_max: u32,
}

impl SinkLimits {
    /// Those of `limits` that matter while bytes are written.
    pub(crate) fn new(limits: &Limits) -> SinkLimits {
        SinkLimits {
            depth_max: limits.depth_max,
            record_bytes_max: limits.record_bytes_max,
            empty_items_max: limits.empty_items_max,
        }
    }
}

impl<'a> Sink<'a> {
    /// Begins a record at the end of `out`.
    pub(crate) fn new(
        refs: &'a Refs<'a>,
        out: &'a mut Vec<u8>,
        budget: &'a mut Budget,
        limits: SinkLimits,
    ) -> Sink<'a> {
        let start = out.len();
        let record = u64::from(limits.record_bytes_max);
        let room = record.min(budget.bytes_left);
        Sink {
            refs,
            start,
            end_max: start.saturating_add(usize::try_from(room).unwrap_or(usize::MAX)),
            idle: 0,
            depth_max: limits.depth_max,
            empty_left: limits.empty_items_max,
            budget_first: budget.bytes_left < record,
            out,
            budget,
        }
    }

    /// Ends the record: charges the work, and takes back the bytes of a record that failed.
    pub(crate) fn finish(self, result: Result<(), EntryError>) -> Result<(), EntryError> {
        let result = result.and_then(|()| self.check());
        let work = (self.out.len() - self.start) as u64 + self.idle;
        self.budget.charge(work.max(1));
        if let Err(error) = result {
            self.out.truncate(self.start);
            if error.0 == EntryCheck::TooLarge && self.budget_first {
                self.budget.bytes_left = 0;
            }
        }
        result
    }

    /// Appends bytes of the original.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Result<(), EntryError> {
        self.room(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether what was written is within the limit: the small ops of one frame are checked together.
    #[inline]
    fn check(&self) -> Result<(), EntryError> {
        if self.out.len() > self.end_max {
            return Err(EntryCheck::TooLarge.into());
        }
        Ok(())
    }

    #[inline]
    fn room(&self, len: usize) -> Result<(), EntryError> {
        if len > self.end_max.saturating_sub(self.out.len()) {
            return Err(EntryCheck::TooLarge.into());
        }
        Ok(())
    }

    /// Counts elements that leave no bytes.
    fn idle(&mut self, count: u32) -> Result<(), EntryError> {
        self.idle = self.idle.saturating_add(u64::from(count));
        self.empty_left = self.empty_left.checked_sub(count).ok_or(EntryCheck::TooLarge)?;
        if self.idle > self.budget.bytes_left {
            self.budget_first = true;
            return Err(EntryCheck::TooLarge.into());
        }
        Ok(())
    }

    #[inline]
    fn bytes(&mut self, offset: u32, len: u32) -> Result<(), EntryError> {
        let bytes = self.refs.bytes(offset, len)?;
        self.room(bytes.len())?;
        put_long(self.out, i64::from(len));
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn text(&mut self, offset: u32, len: u32) -> Result<(), EntryError> {
        let bytes = self.refs.bytes(offset, len)?;
        self.room(bytes.len())?;
        if std::str::from_utf8(bytes).is_err() {
            self.idle = self.idle.saturating_add(u64::from(len));
            return Err(EntryCheck::Utf8.into());
        }
        put_long(self.out, i64::from(len));
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

impl Program {
    /// Encodes one frame of block `block`. `depth`: 0 at the root, one more for each cell that holds the frame.
    pub(crate) fn run(&self, block: u32, frame: &[u8], depth: u32, sink: &mut Sink<'_>) -> Result<(), EntryError> {
        let block = &self.blocks[block as usize];
        check_spare(block, frame)?;
        let mut pc = block.start;
        while pc < block.end {
            let mut next = pc + 1;
            match self.ops[pc as usize] {
                Op::Tag(index) => put_long(sink.out, i64::from(index)),
                Op::Nullable { at, mask, null, value, to } => {
                    if frame[at as usize] & mask != 0 {
                        sink.out.push(null);
                        next = to;
                    } else {
                        sink.out.push(value);
                    }
                }
                Op::IfNull { at, mask, to } => {
                    if frame[at as usize] & mask != 0 {
                        next = to;
                    }
                }
                Op::Jump { to } => next = to,
                Op::Text { at } => {
                    let (offset, len) = reference(frame, at);
                    sink.text(offset, len)?;
                }
                Op::Bytes { at } => {
                    let (offset, len) = reference(frame, at);
                    sink.bytes(offset, len)?;
                }
                Op::Fixed { at, size } => {
                    let (offset, len) = reference(frame, at);
                    if len != size {
                        return Err(EntryCheck::Size.into());
                    }
                    sink.copy(sink.refs.bytes(offset, len)?)?;
                }
                Op::Boolean { at } => match slot(frame, at) {
                    value @ (0 | 1) => sink.out.push(value as u8),
                    _ => return Err(EntryCheck::Range.into()),
                },
                Op::Int { at } => put_long(sink.out, int(slot(frame, at))?),
                Op::Long { at } => put_long(sink.out, slot(frame, at) as i64),
                Op::Float { at } => {
                    let value = float(f64::from_bits(slot(frame, at)))?;
                    sink.out.extend_from_slice(&value.to_le_bytes());
                }
                Op::Double { at } => {
                    sink.out.extend_from_slice(&slot(frame, at).to_le_bytes());
                }
                Op::Enum { at, count } => {
                    let index = slot(frame, at);
                    if index >= u64::from(count) {
                        return Err(EntryCheck::Range.into());
                    }
                    put_long(sink.out, index as i64);
                }
                Op::EnumMap { at, table, count } => {
                    let index = slot(frame, at);
                    if index >= u64::from(count) {
                        return Err(EntryCheck::Range.into());
                    }
                    match self.symbols[table as usize + index as usize] {
                        NO_SYMBOL => return Err(EntryCheck::Range.into()),
                        symbol => put_long(sink.out, i64::from(symbol)),
                    }
                }
                Op::Convert { at, from, to } => convert(slot(frame, at), from, to, sink.out)?,
                Op::Items { at, block } => self.items(reference(frame, at), block, depth, sink)?,
                Op::Union { at, table, count } => {
                    let (offset, branch) = reference(frame, at);
                    if branch >= count {
                        return Err(EntryCheck::Range.into());
                    }
                    let block = self.branches[table as usize + branch as usize];
                    self.cell(offset, block, depth, sink)?;
                }
                Op::Boxed { at, block } => {
                    let (offset, one) = reference(frame, at);
                    if one != 1 {
                        return Err(EntryCheck::Range.into());
                    }
                    self.cell(offset, block, depth, sink)?;
                }
                Op::Fail(check) => return Err(check.into()),
            }
            pc = next;
        }
        sink.check()
    }

    /// The elements of an array or the entries of a map, as one Avro block.
    fn items(
        &self,
        (offset, count): (u32, u32),
        block: u32,
        depth: u32,
        sink: &mut Sink<'_>,
    ) -> Result<(), EntryError> {
        if count == 0 {
            sink.out.push(0);
            return Ok(());
        }
        let depth = deeper(depth, sink)?;
        let items = &self.blocks[block as usize];
        let frames = sink.refs.frames(offset, items.stride, count)?;
        put_long(sink.out, i64::from(count));
        if items.silent {
            sink.idle(count)?;
        }
        if items.stride > 0 {
            for frame in frames.chunks_exact(items.stride as usize) {
                self.run(block, frame, depth, sink)?;
            }
        } else if items.start < items.end {
            for _ in 0..count {
                self.run(block, &[], depth, sink)?;
            }
        }
        sink.out.push(0);
        Ok(())
    }

    /// The frame of a branch or a box.
    fn cell(&self, offset: u32, block: u32, depth: u32, sink: &mut Sink<'_>) -> Result<(), EntryError> {
        let depth = deeper(depth, sink)?;
        let frame = sink.refs.frames(offset, self.blocks[block as usize].stride, 1)?;
        self.run(block, frame, depth, sink)
    }
}

#[inline]
fn deeper(depth: u32, sink: &Sink<'_>) -> Result<u32, EntryError> {
    if depth >= sink.depth_max {
        return Err(EntryCheck::Depth.into());
    }
    Ok(depth + 1)
}

#[inline]
fn check_spare(block: &Block, frame: &[u8]) -> Result<(), EntryError> {
    if block.spare_mask != 0 && slot(frame, block.spare_at) & block.spare_mask != 0 {
        return Err(EntryCheck::SpareBits.into());
    }
    Ok(())
}

/// The 8 bytes at `at`. The compiler of the program keeps `at` inside the block's stride, and callers pass frames of that length.
#[inline]
fn slot(frame: &[u8], at: u32) -> u64 {
    let bytes = frame[at as usize..].first_chunk().expect("a program stays inside its frame");
    u64::from_le_bytes(*bytes)
}

/// Offset and length, count or branch: the two halves of a slot.
#[inline]
fn reference(frame: &[u8], at: u32) -> (u32, u32) {
    let both = slot(frame, at);
    (both as u32, (both >> 32) as u32)
}

#[inline]
fn int(bits: u64) -> Result<i64, EntryError> {
    let value = bits as i64;
    if i32::try_from(value).is_err() {
        return Err(EntryCheck::Range.into());
    }
    Ok(value)
}

/// Rounds to float; what was finite stays finite.
#[inline]
fn float(value: f64) -> Result<f32, EntryError> {
    let rounded = value as f32;
    if rounded.is_infinite() && value.is_finite() {
        return Err(EntryCheck::Range.into());
    }
    Ok(rounded)
}

/// A number into another type: integers exactly, double to float rounds.
#[cold]
fn convert(bits: u64, from: Number, to: Number, out: &mut Vec<u8>) -> Result<(), EntryError> {
    let range = EntryError(EntryCheck::Range);
    let whole = match from {
        Number::Int => Some(int(bits)?),
        Number::Long => Some(bits as i64),
        Number::Float | Number::Double => None,
    };
    let real = match from {
        Number::Float => f64::from(float(f64::from_bits(bits))?),
        _ => f64::from_bits(bits),
    };
    match to {
        Number::Int => put_long(out, int(whole.map_or_else(|| exact_long(real), Ok)? as u64)?),
        Number::Long => put_long(out, whole.map_or_else(|| exact_long(real), Ok)?),
        Number::Float => {
            let value = match whole {
                Some(whole) if (whole as f32) as i128 == i128::from(whole) => whole as f32,
                Some(_) => return Err(range),
                None => float(real)?,
            };
            out.extend_from_slice(&value.to_le_bytes());
        }
        Number::Double => {
            let value = match whole {
                Some(whole) if (whole as f64) as i128 == i128::from(whole) => whole as f64,
                Some(_) => return Err(range),
                None => real,
            };
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
    Ok(())
}

/// The long that a double is, if it is one.
fn exact_long(value: f64) -> Result<i64, EntryError> {
    // 2^63 is a double, the largest long is not: so the bounds are [-2^63, 2^63)
    let bound = 9_223_372_036_854_775_808.0;
    if value.fract() != 0.0 || !(-bound..bound).contains(&value) {
        return Err(EntryCheck::Range.into());
    }
    Ok(value as i64)
}

/// Appends a long in Avro's form: zigzag, then seven bits a byte, low ones first.
#[inline]
pub(crate) fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    if rest < 0x80 {
        out.push(rest as u8);
        return;
    }
    if rest < 0x4000 {
        out.extend_from_slice(&[rest as u8 | 0x80, (rest >> 7) as u8]);
        return;
    }
    let mut bytes = [0; 10];
    let mut len = 0;
    while rest >= 0x80 {
        bytes[len] = rest as u8 | 0x80;
        rest >>= 7;
        len += 1;
    }
    bytes[len] = rest as u8;
    out.extend_from_slice(&bytes[..=len]);
}
