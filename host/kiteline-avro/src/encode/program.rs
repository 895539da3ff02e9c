//! The op program of an encoder: what [`super::compile`] writes and [`super::run`] reads.
//!
//! One program holds many blocks. A block encodes one kind of frame; structs and nullables lie in place, so they cost no block of their own, and
//! every op knows its byte offset in the frame. Cells (elements, map entries, branches, boxes) name the block of what they hold.

use crate::refs::EntryCheck;

/// One step. Offsets `at` are bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// Writes a branch index.
    Tag(u32),
    /// If the null bit is set: writes byte `null`, goes to `to`; else writes byte `value`.
    Nullable { at: u32, mask: u8, null: u8, value: u8, to: u32 },
    /// Goes to `to` if the null bit is set; the rest of the work is in other ops.
    IfNull { at: u32, mask: u8, to: u32 },
    /// Goes on at `to`.
    Jump { to: u32 },
    /// Text, or bytes that go to text: checked for UTF-8.
    Text { at: u32 },
    /// Bytes.
    Bytes { at: u32 },
    /// A fixed of this size.
    Fixed { at: u32, size: u32 },
    /// A boolean.
    Boolean { at: u32 },
    /// An int, checked for its range.
    Int { at: u32 },
    /// A long.
    Long { at: u32 },
    /// A float, rounded from the slot's double.
    Float { at: u32 },
    /// A double.
    Double { at: u32 },
    /// A symbol whose index is the same on both sides.
    Enum { at: u32, count: u32 },
    /// A symbol whose index is looked up: `symbols[table..table + count]`, [`NO_SYMBOL`] where the target has none.
    EnumMap { at: u32, table: u32, count: u32 },
    /// A number of another type than the target's: it must fit.
    Convert { at: u32, from: Number, to: Number },
    /// Array or map: elements of this block.
    Items { at: u32, block: u32 },
    /// A union: the blocks `branches[table..table + count]`, each of which writes its own index.
    Union { at: u32, table: u32, count: u32 },
    /// A box: one frame of this block.
    Boxed { at: u32, block: u32 },
    /// No value can come out of here.
    Fail(EntryCheck),
}

/// A symbol that the target does not have.
pub(crate) const NO_SYMBOL: u32 = u32::MAX;

/// The number types of Avro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Int,
    Long,
    Float,
    Double,
}

/// The ops of one kind of frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// First op.
    pub(crate) start: u32,
    /// Behind the last op.
    pub(crate) end: u32,
    /// Bytes of the frame.
    pub(crate) stride: u32,
    /// Where the last null word lies; of use only with a mask.
    pub(crate) spare_at: u32,
    /// Bits of the last null word that must be zero.
    pub(crate) spare_mask: u64,
    /// No op of the block writes a byte, so elements of it must be counted by number.
    pub(crate) silent: bool,
}

/// Everything an encoder runs on. Immutable, shared by all who encode with it.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) symbols: Vec<u32>,
    pub(crate) branches: Vec<u32>,
}
