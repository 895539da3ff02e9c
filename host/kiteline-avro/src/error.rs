//! The errors of this crate: a schema that is refused, a pair of schemas that cannot be resolved, a datum that is not what
//! its schema says. Errors of entries that a guest emits are in `refs`.

use std::fmt;

/// A schema that is refused, with the place in it.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The text is no JSON.
    #[error("schema is not valid JSON")]
    Json {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// The text is larger than any schema should be.
    #[error("schema has {bytes} bytes, more than {max}")]
    TooLarge {
        /// Bytes of the text with its references.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The JSON is no Avro schema.
    #[error("schema at '{path}': {problem}")]
    Invalid {
        /// Fields down to the place, `(root)` for the schema itself.
        path: String,
        /// What is wrong there.
        problem: String,
    },
    /// A name that nothing before it defines.
    #[error("schema at '{path}': unknown type '{name}'")]
    UnknownName {
        /// Fields down to the place.
        path: String,
        /// The name as written.
        name: String,
    },
    /// A record that always contains itself: no value of it is finite.
    #[error("record '{name}' always contains itself, so that no value of it is finite")]
    Infinite {
        /// Full name of the record.
        name: String,
    },
    /// The schema is correct but too wide or too deep for the row layout.
    #[error("schema at '{path}': {what} over the limit of {max}")]
    Limit {
        /// Full name of the type, or fields down to the place.
        path: String,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        max: u64,
    },
    /// The apache-avro parser refuses it.
    #[error("schema is refused by the Avro parser")]
    Parser {
        /// Its reason.
        #[source]
        source: Box<apache_avro::Error>,
    },
}

/// A writer and a reader schema that do not resolve. Known when the plan is compiled, so no record is needed to see it.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Two types that do not match.
    #[error("field '{path}': written as {writer}, cannot be read as {reader}")]
    Mismatch {
        /// Fields down to the place, by their reader's names; `[]` is an item, `{}` a map's value.
        path: String,
        /// The writer's type.
        writer: String,
        /// The reader's type.
        reader: String,
    },
    /// The reader asks for a field that the writer lacks, and gives no default.
    #[error("field '{path}': the writer's record '{record}' lacks it, and it has no default (reader type {reader})")]
    Missing {
        /// Fields down to the place.
        path: String,
        /// Full name of the writer's record.
        record: String,
        /// The reader's type.
        reader: String,
    },
    /// A default that is no value of its field's type.
    #[error("field '{path}': default {value} is no value of {reader}")]
    Default {
        /// Fields down to the place.
        path: String,
        /// The default as JSON.
        value: String,
        /// The reader's type.
        reader: String,
    },
    /// The program would be larger or deeper than the limits allow.
    #[error("field '{path}': {what} over the limit of {max}")]
    Limit {
        /// Fields down to the place where it was passed.
        path: String,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        max: u64,
    },
    /// The reader's layout is refused.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Why a datum cannot be decoded, as the row contract numbers it ("Input buffer", decode errors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum DatumCode {
    /// No schema to read it with. Decided by the caller, never by a plan.
    Schema = 2,
    /// The bytes end before the value does.
    Short = 3,
    /// Bytes that no value of the type has.
    Value = 4,
    /// A string that is not UTF-8.
    Utf8 = 5,
    /// Bytes are left after the value.
    Trailing = 6,
    /// A value that the reader schema has no place for.
    Resolution = 7,
    /// A bound of [`crate::Limits`] or of the buffer.
    Limit = 8,
}

impl DatumCode {
    /// The number in a row's "decode error".
    pub fn number(self) -> u16 {
        self as u16
    }
}

/// What exactly is wrong with a datum. One byte, so that the hot path carries no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The datum ends inside a value.
    End,
    /// A length goes beyond the end of the datum.
    LengthBeyondEnd,
    /// More items are announced than the rest of the datum can hold.
    CountBeyondEnd,
    /// A varint of more than 64 bits, or an int of more than five bytes.
    VarintLong,
    /// A varint with zero bytes at its end that add nothing.
    VarintPadded,
    /// An int outside 32 bits.
    IntRange,
    /// A length below zero.
    LengthNegative,
    /// A block count whose amount is no 64-bit number.
    CountMinimum,
    /// A block whose byte size is negative or differs from its items' bytes.
    BlockSize,
    /// A boolean that is neither 0 nor 1.
    Boolean,
    /// An enum index that is negative or has no symbol.
    EnumIndex,
    /// A union index that is negative or has no branch.
    UnionIndex,
    /// A string that is not UTF-8.
    Utf8,
    /// Bytes are left after the value.
    Trailing,
    /// The reader's enum lacks the symbol and has no default.
    EnumSymbol,
    /// The reader's type has no place for the branch that was written.
    Branch,
    /// Nested deeper than the limit.
    Depth,
    /// More items without bytes than the limit.
    EmptyItems,
    /// The decoded form does not fit into its buffer.
    Buffer,
}

impl Reason {
    /// The code that the contract gives it.
    pub fn code(self) -> DatumCode {
        match self {
            Reason::End | Reason::LengthBeyondEnd | Reason::CountBeyondEnd => DatumCode::Short,
            Reason::VarintLong
            | Reason::VarintPadded
            | Reason::IntRange
            | Reason::LengthNegative
            | Reason::CountMinimum
            | Reason::BlockSize
            | Reason::Boolean
            | Reason::EnumIndex
            | Reason::UnionIndex => DatumCode::Value,
            Reason::Utf8 => DatumCode::Utf8,
            Reason::Trailing => DatumCode::Trailing,
            Reason::EnumSymbol | Reason::Branch => DatumCode::Resolution,
            Reason::Depth | Reason::EmptyItems | Reason::Buffer => DatumCode::Limit,
        }
    }

    /// A fragment for people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::End => "the datum ends inside a value",
            Reason::LengthBeyondEnd => "a length goes beyond the end of the datum",
            Reason::CountBeyondEnd => "more items than the rest of the datum can hold",
            Reason::VarintLong => "a varint that is too long",
            Reason::VarintPadded => "a varint with padding",
            Reason::IntRange => "an int outside 32 bits",
            Reason::LengthNegative => "a negative length",
            Reason::CountMinimum => "a block count without an amount",
            Reason::BlockSize => "a block whose byte size is wrong",
            Reason::Boolean => "a boolean that is neither 0 nor 1",
            Reason::EnumIndex => "an enum index without a symbol",
            Reason::UnionIndex => "a union index without a branch",
            Reason::Utf8 => "a string that is not UTF-8",
            Reason::Trailing => "bytes are left after the value",
            Reason::EnumSymbol => "a symbol that the reader's enum lacks, and it has no default",
            Reason::Branch => "a branch that the reader schema has no place for",
            Reason::Depth => "nested too deeply",
            Reason::EmptyItems => "too many items without bytes",
            Reason::Buffer => "the decoded record does not fit into its buffer",
        }
    }
}

/// One datum that could not be decoded. Holds no allocation: bad records may come by the million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatumError {
    /// The contract's code.
    pub code: DatumCode,
    /// Byte of the datum, from 0, where the value begins that is wrong.
    pub at: usize,
    /// What is wrong.
    pub reason: Reason,
    /// Bytes of the datum, to say how many are left.
    pub len: usize,
}

impl DatumError {
    #[cold]
    pub(crate) fn new(fault: Fault, len: usize) -> Self {
        Self { code: fault.reason.code(), at: fault.at as usize, reason: fault.reason, len }
    }
}

impl fmt::Display for DatumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Trailing => match self.len - self.at {
                1 => write!(f, "1 byte left after the value, at byte {}", self.at),
                left => write!(f, "{left} bytes left after the value, at byte {}", self.at),
            },
            reason => write!(f, "{}, at byte {} of {}", reason.text(), self.at, self.len),
        }
    }
}

impl std::error::Error for DatumError {}

/// A failed check inside a program: 8 bytes, so that a result of it with a value stays in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Byte of the datum.
    pub(crate) at: u32,
    /// What is wrong there.
    pub(crate) reason: Reason,
}
