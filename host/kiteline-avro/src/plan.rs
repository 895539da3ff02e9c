//! Plans: a writer and a reader schema compiled to a flat program that turns a producer's bytes into a row. Owns the program and its
//! entry points; `compile` makes it, `run` performs it.

mod compile;
mod defaults;
mod run;
#[cfg(test)]
mod tests;

use crate::error::{DatumError, Fault, PlanError, Reason};
use crate::layout::Layout;
use crate::limits::{BUFFER_BYTES_MAX, Limits};
use crate::schema::Schema;

/// One step. 16 bytes, so that four lie in a cache line. `slot`: byte offset from the frame's start. `bit`: number of a null bit from
/// there. `to`: op of the same block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Boolean {
        slot: u32,
    },
    /// Also int to long: the slot is the same.
    Int {
        slot: u32,
    },
    Long {
        slot: u32,
    },
    /// Also float to double: the slot holds a double anyway.
    Float {
        slot: u32,
    },
    Double {
        slot: u32,
    },
    IntToFloat {
        slot: u32,
    },
    IntToDouble {
        slot: u32,
    },
    LongToFloat {
        slot: u32,
    },
    LongToDouble {
        slot: u32,
    },
    /// Also between string and bytes: either way the bytes must be UTF-8.
    Text {
        slot: u32,
    },
    Bytes {
        slot: u32,
    },
    Fixed {
        slot: u32,
        size: u32,
    },
    /// The reader has the same symbols under the same indexes.
    Enum {
        slot: u32,
        count: u32,
    },
    /// `maps[map + index]` is the reader's index, [`NO_SYMBOL`] if it has none.
    EnumMap {
        slot: u32,
        count: u32,
        map: u32,
    },
    /// Union of null (branch `null`) and one type, to a nullable: null sets the bits and goes to `to`.
    Nullable {
        null: u8,
        bit: u32,
        bits: u32,
        to: u32,
    },
    /// [`Op::Nullable`] around one [`Op::Text`].
    NullableText {
        null: u8,
        bit: u32,
        slot: u32,
    },
    /// Any other union: goes to `tables[table + branch]`.
    Union {
        table: u32,
        count: u32,
    },
    Jump {
        to: u32,
    },
    /// A branch that the reader has no place for.
    Reject,
    /// A frame of its own, for a branch or a box.
    Cell {
        cell: u32,
    },
    /// An array or a map.
    Items {
        list: u32,
    },

    SkipBytes {
        count: u32,
    },
    SkipBooleans {
        count: u32,
    },
    SkipInts {
        count: u32,
    },
    SkipLongs {
        count: u32,
    },
    SkipTexts {
        count: u32,
    },
    /// Lengths and bytes of any kind.
    SkipCounted {
        count: u32,
    },
    SkipEnum {
        count: u32,
    },
    /// A union of null and one type: null goes to `to`.
    SkipNullable {
        null: u8,
        to: u32,
    },
    /// [`Op::SkipNullable`] around one string.
    SkipNullableText {
        null: u8,
    },
    SkipItems {
        list: u32,
    },
    /// A record inside itself.
    SkipCall {
        block: u32,
    },

    /// Null by default: sets bits.
    Nulls {
        bit: u32,
        bits: u32,
    },
    /// A default of one slot.
    Slot {
        slot: u32,
        value: u64,
    },
    /// A default of bytes, from the plan's constants.
    Constant {
        slot: u32,
        start: u32,
        len: u32,
    },
    /// A default with a cell.
    ConstantCell {
        cell: u32,
    },
}

const _: () = assert!(size_of::<Op>() == 16);

/// In a map of enum symbols: the reader has no symbol for this one.
const NO_SYMBOL: u32 = u32::MAX;

/// Ops `start..end`. Block 0 is the datum; items, branches and boxes have blocks of their own.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    start: u32,
    end: u32,
}

/// A frame outside its holder's.
#[derive(Clone, Copy, Debug)]
struct CellInfo {
    /// Where its reference goes.
    slot: u32,
    /// Bytes of the frame; 0 needs no cell.
    bytes: u32,
    /// The second half of the reference: branch, 1 for a box, count for a default.
    tag: u32,
    block: u32,
}

/// An array or a map.
#[derive(Clone, Copy, Debug)]
struct List {
    /// Where its reference goes.
    slot: u32,
    /// Bytes from item to item in the row; 0 if items have no frame or are skipped.
    stride: u32,
    /// Fewest bytes of an item in the datum; 0 means that it always takes none.
    bytes_min: u32,
    block: u32,
    item: Item,
}

/// Items that need no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    /// Runs the block.
    Block,
    /// A string.
    Text,
    /// A long.
    Long,
    /// An entry with a long, or an int as long.
    TextLong,
    /// An entry with a string.
    TextText,
}

#[derive(Default)]
struct Program {
    ops: Vec<Op>,
    blocks: Vec<Block>,
    cells: Vec<CellInfo>,
    lists: Vec<List>,
    tables: Vec<u32>,
    maps: Vec<u32>,
    constants: Vec<u8>,
}

/// A writer and a reader schema, compiled. Decodes any number of datums, from any thread.
pub struct Plan {
    program: Program,
    layout: Layout,
    limits: Limits,
    frame_bytes: usize,
    partial: Vec<PlanError>,
}

impl Plan {
    /// Compiles the resolution of two schemas, by Avro 1.12, "Schema Resolution".
    ///
    /// # Errors
    /// With the path of the field and both types where the schemas do not match, a field without default is missing, a default is not
    /// of its type, or the program passes the limits. A branch of a writer's union that the reader has no place for is
    /// an error of those records alone, see [`Plan::partial`], unless no branch has a place.
    pub fn compile(writer: &Schema, reader: &Schema, limits: &Limits) -> Result<Plan, PlanError> {
        let layout = Layout::new(reader)?;
        let (program, partial) = compile::program(writer, &layout, limits)?;
        Ok(Plan { program, frame_bytes: layout.node(0).frame_bytes() as usize, layout, limits: *limits, partial })
    }

    /// The reader's layout, which rows have.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What the writer may write and this reader cannot take: such records fail with [`crate::DatumCode::Resolution`].
    pub fn partial(&self) -> &[PlanError] {
        &self.partial
    }

    /// Decodes one datum into the frame at `at`, which lies zeroed in `buffer`. Cells and bytes are appended; offsets count from the
    /// start of `buffer`, which ends within `bytes_max`. On error `buffer` is cut back to its length before, and the frame zeroed.
    ///
    /// # Errors
    /// If the datum is no value of the writer's schema, has bytes left, or does not fit reader or limits.
    ///
    /// # Panics
    /// If `at` is no multiple of 8 or the frame is not inside `buffer`.
    pub fn decode(&self, datum: &[u8], buffer: &mut Vec<u8>, at: usize, bytes_max: usize) -> Result<(), DatumError> {
        let len = buffer.len();
        assert!(
            at.is_multiple_of(8) && at <= len && self.frame_bytes <= len - at,
            "the frame lies in the buffer, aligned"
        );
        let bytes_max = bytes_max.min(BUFFER_BYTES_MAX);
        let result = if datum.len() > BUFFER_BYTES_MAX || len > bytes_max {
            Err(Fault { at: 0, reason: Reason::Buffer })
        } else {
            // strings are never more than the datum, and short ones are copied by sixteen bytes
            buffer.reserve(datum.len() + 16);
            self.run_write(datum, buffer, at, bytes_max)
        };
        result.map_err(|fault| {
            buffer.truncate(len);
            buffer[at..at + self.frame_bytes].fill(0);
            DatumError::new(fault, datum.len())
        })
    }

    /// Checks one datum as [`Plan::decode`] does, and writes nothing. What the defaults of missing fields would take is not counted.
    ///
    /// # Errors
    /// As [`Plan::decode`].
    pub fn check(&self, datum: &[u8]) -> Result<(), DatumError> {
        let result = if datum.len() > BUFFER_BYTES_MAX {
            Err(Fault { at: 0, reason: Reason::Buffer })
        } else {
            self.run_check(datum)
        };
        result.map_err(|fault| DatumError::new(fault, datum.len()))
    }
}

impl std::fmt::Debug for Plan {
    /// The program, one op a line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = &self.program;
        for (number, block) in program.blocks.iter().enumerate() {
            writeln!(f, "block {number}")?;
            let ops = &program.ops[block.start as usize..block.end as usize];
            for (index, op) in ops.iter().enumerate() {
                write!(f, "{index:6} {op:?}")?;
                match op {
                    Op::Cell { cell } | Op::ConstantCell { cell } => {
                        writeln!(f, " {:?}", program.cells[*cell as usize])?
                    }
                    Op::Items { list } | Op::SkipItems { list } => writeln!(f, " {:?}", program.lists[*list as usize])?,
                    Op::Union { table, count } => {
                        writeln!(f, " {:?}", &program.tables[*table as usize..][..*count as usize])?;
                    }
                    _ => writeln!(f)?,
                }
            }
        }
        Ok(())
    }
}
