//! Runs a program over one datum: a match over ops on a bounded cursor. Structs are flat in the program; only items, branches, boxes
//! and records inside themselves recurse, each counted against the depth. Allocates nothing but the growth of the buffer.

use super::{CellInfo, Item, List, NO_SYMBOL, Op, Plan};
use crate::error::{Fault, Reason};
use crate::wire::{Cursor, Span};

/// What a run writes to, and its bounds.
struct Target<'b> {
    buffer: &'b mut Vec<u8>,
    bytes_max: usize,
    /// Items without bytes that may still come.
    empty_left: u64,
}

impl Target<'_> {
    /// Sets a slot.
    #[inline(always)]
    fn slot(&mut self, at: usize, value: u64) {
        self.buffer[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Sets a slot to an offset and a length or count.
    #[inline(always)]
    fn reference(&mut self, at: usize, offset: usize, count: u32) {
        self.slot(at, offset as u64 | u64::from(count) << 32);
    }

    /// Appends bytes and sets a slot to them. Within the bound by the datum's length, which `decode` adds to it; the sum is checked
    /// at the end.
    #[inline(always)]
    fn bytes(&mut self, at: usize, span: &Span<'_>) {
        let offset = self.buffer.len();
        match span {
            Span::Short(chunk, len) => {
                self.buffer.extend_from_slice(*chunk);
                self.buffer.truncate(offset + len);
            }
            Span::Long(bytes) => self.buffer.extend_from_slice(bytes),
        }
        let len = span.len() as u32;
        self.reference(at, if len == 0 { 0 } else { offset }, len);
    }

    /// Room for frames at a multiple of 8, zeroed; `None` beyond the bound.
    #[inline(always)]
    fn cell(&mut self, bytes: u64) -> Option<usize> {
        let offset = self.buffer.len().next_multiple_of(8);
        let left = self.bytes_max.checked_sub(offset)?;
        if bytes > left as u64 {
            return None;
        }
        self.buffer.resize(offset + bytes as usize, 0);
        Some(offset)
    }

    /// Sets null bits of the frame at `base`.
    #[inline(always)]
    fn nulls(&mut self, base: usize, bit: u32, bits: u32) {
        let byte = base + (bit / 8) as usize;
        if bits == 1 {
            self.buffer[byte] |= 1 << (bit % 8);
        } else {
            self.many_nulls(base, bit, bits);
        }
    }

    #[inline(never)]
    fn many_nulls(&mut self, base: usize, bit: u32, bits: u32) {
        for bit in bit..bit + bits {
            self.buffer[base + (bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
}

impl Plan {
    /// Decodes; the caller cleans up after a fault.
    pub(super) fn run_write(
        &self,
        datum: &[u8],
        buffer: &mut Vec<u8>,
        base: usize,
        bytes_max: usize,
    ) -> Result<(), Fault> {
        let mut target = Target { buffer, bytes_max, empty_left: self.limits.empty_items_max.into() };
        let end = self.run::<true>(0, datum, 0, &mut target, base, 0)?;
        let cursor = Cursor { datum, at: end };
        if end != datum.len() {
            return Err(cursor.fault(Reason::Trailing));
        }
        if target.buffer.len() > bytes_max {
            return Err(cursor.fault(Reason::Buffer));
        }
        Ok(())
    }

    /// Walks and checks.
    pub(super) fn run_check(&self, datum: &[u8]) -> Result<(), Fault> {
        let mut target =
            Target { buffer: &mut Vec::new(), bytes_max: 0, empty_left: self.limits.empty_items_max.into() };
        let end = self.run::<false>(0, datum, 0, &mut target, 0, 0)?;
        if end != datum.len() {
            return Err(Cursor { datum, at: end }.fault(Reason::Trailing));
        }
        Ok(())
    }

    /// Runs a block; returns where it ends in the datum. `W`: writes to the frame at `base`.
    #[allow(clippy::too_many_lines, reason = "one match over the ops is what there is to see")]
    fn run<const W: bool>(
        &self,
        block: u32,
        datum: &[u8],
        at: usize,
        target: &mut Target<'_>,
        base: usize,
        depth: u32,
    ) -> Result<usize, Fault> {
        let program = &self.program;
        let block = program.blocks[block as usize];
        let ops = &program.ops[block.start as usize..block.end as usize];
        let mut next = 0;
        // a local, so that it stays in registers
        let mut cursor = Cursor { datum, at };
        let c = &mut cursor;
        while let Some(op) = ops.get(next) {
            next += 1;
            match *op {
                Op::Text { slot } => {
                    let span = c.text()?;
                    if W {
                        target.bytes(base + slot as usize, &span);
                    }
                }
                Op::Long { slot } => {
                    let value = c.long()?;
                    if W {
                        target.slot(base + slot as usize, value as u64);
                    }
                }
                Op::Int { slot } => {
                    let value = c.int()?;
                    if W {
                        target.slot(base + slot as usize, value as u64);
                    }
                }
                Op::Double { slot } => {
                    let value = c.double()?;
                    if W {
                        target.slot(base + slot as usize, u64::from_le_bytes(value));
                    }
                }
                Op::Boolean { slot } => {
                    let value = c.boolean()?;
                    if W {
                        target.slot(base + slot as usize, value);
                    }
                }
                Op::Float { slot } => {
                    let value = c.float()?;
                    if W {
                        target.slot(base + slot as usize, f64::from(value).to_bits());
                    }
                }
                Op::IntToFloat { slot } => {
                    let value = c.int()?;
                    if W {
                        target.slot(base + slot as usize, f64::from(value as f32).to_bits());
                    }
                }
                Op::IntToDouble { slot } => {
                    let value = c.int()?;
                    if W {
                        target.slot(base + slot as usize, (value as f64).to_bits());
                    }
                }
                Op::LongToFloat { slot } => {
                    let value = c.long()?;
                    if W {
                        target.slot(base + slot as usize, f64::from(value as f32).to_bits());
                    }
                }
                Op::LongToDouble { slot } => {
                    let value = c.long()?;
                    if W {
                        target.slot(base + slot as usize, (value as f64).to_bits());
                    }
                }
                Op::Bytes { slot } => {
                    let span = c.bytes()?;
                    if W {
                        target.bytes(base + slot as usize, &span);
                    }
                }
                Op::Fixed { slot, size } => {
                    let span = c.fixed(size)?;
                    if W {
                        target.bytes(base + slot as usize, &span);
                    }
                }
                Op::Enum { slot, count } => {
                    let index = c.index(count, Reason::EnumIndex)?;
                    if W {
                        target.slot(base + slot as usize, index.into());
                    }
                }
                Op::EnumMap { slot, count, map } => {
                    let before = *c;
                    let index = c.index(count, Reason::EnumIndex)?;
                    let mapped = program.maps[(map + index) as usize];
                    if mapped == NO_SYMBOL {
                        return Err(before.fault(Reason::EnumSymbol));
                    }
                    if W {
                        target.slot(base + slot as usize, mapped.into());
                    }
                }
                Op::Nullable { null, bit, bits, to } => {
                    if c.index(2, Reason::UnionIndex)? == u32::from(null) {
                        if W {
                            target.nulls(base, bit, bits);
                        }
                        next = to as usize;
                    }
                }
                Op::NullableText { null, bit, slot } => {
                    if c.index(2, Reason::UnionIndex)? == u32::from(null) {
                        if W {
                            target.nulls(base, bit, 1);
                        }
                    } else {
                        let span = c.text()?;
                        if W {
                            target.bytes(base + slot as usize, &span);
                        }
                    }
                }
                Op::Union { table, count } => {
                    let branch = c.index(count, Reason::UnionIndex)?;
                    next = program.tables[(table + branch) as usize] as usize;
                }
                Op::Jump { to } => next = to as usize,
                Op::Reject => return Err(c.fault(Reason::Branch)),
                Op::Cell { cell } => {
                    let info = &program.cells[cell as usize];
                    c.at = self.cell::<W>(info, c.datum, c.at, target, base, depth)?;
                }
                Op::Items { list } => {
                    let list = &program.lists[list as usize];
                    c.at = self.items::<W>(list, c.datum, c.at, target, base, depth)?;
                }

                Op::SkipBytes { count } => c.skip(count)?,
                Op::SkipBooleans { count } => {
                    for _ in 0..count {
                        c.boolean()?;
                    }
                }
                Op::SkipInts { count } => {
                    for _ in 0..count {
                        c.int()?;
                    }
                }
                Op::SkipLongs { count } => {
                    for _ in 0..count {
                        c.varint()?;
                    }
                }
                Op::SkipTexts { count } => {
                    for _ in 0..count {
                        c.text()?;
                    }
                }
                Op::SkipCounted { count } => {
                    for _ in 0..count {
                        c.bytes()?;
                    }
                }
                Op::SkipEnum { count } => {
                    c.index(count, Reason::EnumIndex)?;
                }
                Op::SkipNullable { null, to } => {
                    if c.index(2, Reason::UnionIndex)? == u32::from(null) {
                        next = to as usize;
                    }
                }
                Op::SkipNullableText { null } => {
                    if c.index(2, Reason::UnionIndex)? != u32::from(null) {
                        c.text()?;
                    }
                }
                Op::SkipItems { list } => {
                    let list = &program.lists[list as usize];
                    c.at = self.items::<false>(list, c.datum, c.at, target, base, depth)?;
                }
                Op::SkipCall { block } => {
                    if depth >= self.limits.depth_max {
                        return Err(c.fault(Reason::Depth));
                    }
                    c.at = self.run::<false>(block, c.datum, c.at, target, base, depth + 1)?;
                }

                Op::Nulls { bit, bits } => {
                    if W {
                        target.nulls(base, bit, bits);
                    }
                }
                Op::Slot { slot, value } => {
                    if W {
                        target.slot(base + slot as usize, value);
                    }
                }
                Op::Constant { slot, start, len } => {
                    if W {
                        let bytes = &program.constants[start as usize..][..len as usize];
                        // an item's default may come as often as there are items
                        if target.buffer.len() + bytes.len() > target.bytes_max {
                            return Err(c.fault(Reason::Buffer));
                        }
                        target.bytes(base + slot as usize, &Span::Long(bytes));
                    }
                }
                Op::ConstantCell { cell } => {
                    if W {
                        let info = &program.cells[cell as usize];
                        self.cell::<W>(info, c.datum, c.at, target, base, depth)?;
                    }
                }
            }
        }
        Ok(cursor.at)
    }

    /// A branch, a box, or a default with frames of its own.
    #[inline(never)]
    fn cell<const W: bool>(
        &self,
        info: &CellInfo,
        datum: &[u8],
        at: usize,
        target: &mut Target<'_>,
        base: usize,
        depth: u32,
    ) -> Result<usize, Fault> {
        let cursor = Cursor { datum, at };
        if depth >= self.limits.depth_max {
            return Err(cursor.fault(Reason::Depth));
        }
        let mut frame = 0;
        if W {
            if info.bytes > 0 {
                frame = target.cell(info.bytes.into()).ok_or(cursor.fault(Reason::Buffer))?;
            }
            target.reference(base + info.slot as usize, frame, info.tag);
        }
        self.run::<W>(info.block, datum, at, target, frame, depth + 1)
    }

    /// An array or a map, in blocks with or without byte sizes. Items lie together: a second block moves those of the first to a cell of
    /// at least twice the size, so that many small blocks cost as much as one.
    #[inline(never)]
    fn items<const W: bool>(
        &self,
        list: &List,
        datum: &[u8],
        at: usize,
        target: &mut Target<'_>,
        base: usize,
        depth: u32,
    ) -> Result<usize, Fault> {
        let mut cursor = Cursor { datum, at };
        let c = &mut cursor;
        let stride = u64::from(list.stride);
        let (mut cell, mut filled, mut room) = (0usize, 0u64, 0u64);
        loop {
            let before = *c;
            let (count, end) = c.block_head()?;
            if count == 0 {
                break;
            }
            if depth >= self.limits.depth_max {
                return Err(before.fault(Reason::Depth));
            }
            if list.bytes_min == 0 {
                if count > target.empty_left {
                    return Err(before.fault(Reason::EmptyItems));
                }
                target.empty_left -= count;
            } else if count > c.left() as u64 || count * u64::from(list.bytes_min) > c.left() as u64 {
                return Err(before.fault(Reason::CountBeyondEnd));
            }
            // count is now below 2^32, and so is filled: both are bounded by the datum or the limit
            if W && stride > 0 && filled + count > room {
                room = (filled + count).max(2 * room);
                let moved = target.cell(room * stride).ok_or(before.fault(Reason::Buffer))?;
                target.buffer.copy_within(cell..cell + (filled * stride) as usize, moved);
                cell = moved;
            }
            let first = cell + (filled * stride) as usize;
            self.block_items::<W>(list, c, target, first, count as usize, depth)?;
            if end.is_some_and(|end| end != c.at) {
                return Err(before.fault(Reason::BlockSize));
            }
            filled += count;
        }
        if W {
            target.reference(base + list.slot as usize, cell, filled as u32);
        }
        Ok(cursor.at)
    }

    /// The items of one block.
    #[inline(always)]
    fn block_items<const W: bool>(
        &self,
        list: &List,
        c: &mut Cursor<'_>,
        target: &mut Target<'_>,
        first: usize,
        count: usize,
        depth: u32,
    ) -> Result<(), Fault> {
        match list.item {
            Item::Text => {
                for index in 0..count {
                    let span = c.text()?;
                    if W {
                        target.bytes(first + 8 * index, &span);
                    }
                }
            }
            Item::Long => {
                for index in 0..count {
                    let value = c.long()?;
                    if W {
                        target.slot(first + 8 * index, value as u64);
                    }
                }
            }
            Item::TextLong => {
                for index in 0..count {
                    let key = c.text()?;
                    let value = c.long()?;
                    if W {
                        target.bytes(first + 16 * index, &key);
                        target.slot(first + 16 * index + 8, value as u64);
                    }
                }
            }
            Item::TextText => {
                for index in 0..count {
                    let key = c.text()?;
                    let value = c.text()?;
                    if W {
                        target.bytes(first + 16 * index, &key);
                        target.bytes(first + 16 * index + 8, &value);
                    }
                }
            }
            Item::Block => {
                // items without bytes read nothing, and write only defaults
                if list.bytes_min == 0 && !(W && list.stride > 0) {
                    return Ok(());
                }
                let stride = list.stride as usize;
                for index in 0..count {
                    c.at = self.run::<W>(list.block, c.datum, c.at, target, first + stride * index, depth + 1)?;
                }
            }
        }
        Ok(())
    }
}
