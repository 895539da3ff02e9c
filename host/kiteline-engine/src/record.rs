//! Records on their way: what a source hands over, what a sink takes.
//!
//! A batch is one contiguous buffer and small fixed descriptions that point into it, so that moving a batch moves no
//! record, and a record costs no allocation. Nothing here knows Avro, Kafka's client or a sandbox.

use std::{borrow::Cow, sync::Arc};

/// Half-open range of offsets `[from, until)`. Offsets inside may be missing: logs have holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    /// First offset covered.
    pub from: i64,
    /// First offset not covered.
    pub until: i64,
}

/// A slice of a batch's bytes, or null.
///
/// In an output, offsets below 2³¹ lie in the source batch's bytes and those from 2³¹ up, less 2³¹, in the output's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub off: u32,
    /// Length in bytes; [`Span::NULL`] has `u32::MAX`.
    pub len: u32,
}

/// Offsets from here up, less this, lie in an output's own bytes. Hence batches are limited to 2³¹ bytes.
pub const OWN: u32 = 1 << 31;

impl Span {
    /// No value at all, which is never the same as an empty one.
    pub const NULL: Self = Self { off: 0, len: u32::MAX };

    /// Whether this is [`Span::NULL`].
    pub fn null(self) -> bool {
        self.len == u32::MAX
    }

    /// The bytes in `bytes`, none for null. Panics if the span is not inside, which is a defect of whoever made it.
    pub fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        (!self.null()).then(|| &bytes[self.off as usize..self.off as usize + self.len as usize])
    }
}

/// Where a record's timestamp comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampKind {
    /// There is none; the number is -1.
    #[default]
    None,
    /// Set by the producer.
    Create,
    /// Set by the broker when it appended.
    Append,
}

/// One Kafka record, described.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Position in its partition.
    pub offset: i64,
    /// Milliseconds since 1970, -1 if there is none.
    pub timestamp_ms: i64,
    /// Where the timestamp comes from.
    pub timestamp_kind: TimestampKind,
    /// Key bytes.
    pub key: Span,
    /// Value bytes as in Kafka, framing included; null for a tombstone.
    pub value: Span,
    /// First of its headers in the batch's list.
    pub headers_at: u32,
    /// How many headers it has.
    pub headers_count: u32,
}

/// One header: order and repeats are kept, and null is not the same as empty.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Name, bytes that are UTF-8 by convention only; never null.
    pub name: Span,
    /// Value, null allowed.
    pub value: Span,
}

/// Records of one partition, in order.
#[derive(Debug)]
pub struct RecordBatch {
    /// Topic that the records are from.
    pub topic: Arc<str>,
    /// Partition that the records are from.
    pub partition: i32,
    /// What the batch covers: from the first record to the client's position behind the last one.
    pub range: OffsetRange,
    /// The records, by ascending offset.
    pub records: Vec<Record>,
    /// Headers of all records.
    pub headers: Vec<Header>,
    /// What every span points into; shorter than 2³¹.
    pub bytes: Vec<u8>,
}

impl RecordBatch {
    /// Headers of one record, in Kafka's order.
    pub fn headers_of(&self, record: &Record) -> &[Header] {
        &self.headers[record.headers_at as usize..(record.headers_at + record.headers_count) as usize]
    }
}

/// One record for a sink, described. Its spans follow the rule of [`Span`].
#[derive(Clone, Copy, Debug)]
pub struct OutputRecord {
    /// Index of the source record in its [`RecordBatch`]; never decreases along the list.
    pub source: u32,
    /// Output port of the plugin, from 0.
    pub port: u8,
    /// Wanted topic: 0 is the sink's own, n is the n-th of [`OutputBatch::topics`].
    pub topic: u16,
    /// Wanted partition, -1 leaves it to the sink's partitioner.
    pub partition: i32,
    /// Milliseconds since 1970, -1 if there is none.
    pub timestamp_ms: i64,
    /// Key bytes.
    pub key: Span,
    /// Value bytes as the sink writes them, framing included; null for a tombstone.
    pub value: Span,
    /// First of its headers: in the source's list if `headers_kept`, else in [`OutputBatch::headers`].
    pub headers_at: u32,
    /// How many headers it has.
    pub headers_count: u32,
    /// Whether the source record's headers apply unchanged.
    pub headers_kept: bool,
}

/// What a transform made of one [`RecordBatch`], in the order in which it must leave.
#[derive(Debug, Default)]
pub struct OutputBatch {
    /// The records for sinks.
    pub records: Vec<OutputRecord>,
    /// Edited headers; their spans follow the rule of [`Span`].
    pub headers: Vec<Header>,
    /// Topics named by the plugin, checked against what the pipeline allows.
    pub topics: Vec<Arc<str>>,
    /// Bytes that the outputs own; shorter than 2³¹.
    pub bytes: Vec<u8>,
}

impl OutputBatch {
    /// The bytes of a span of an output of `source`, none for null.
    pub fn bytes_of<'a>(&'a self, source: &'a RecordBatch, span: Span) -> Option<&'a [u8]> {
        match span {
            s if s.null() => None,
            s if s.off >= OWN => Span { off: s.off - OWN, len: s.len }.of(&self.bytes),
            s => s.of(&source.bytes),
        }
    }

    /// Headers of one output, in order. Spans of kept headers lie in the source, as their offsets say.
    pub fn headers_of<'a>(&'a self, source: &'a RecordBatch, record: &OutputRecord) -> &'a [Header] {
        let list = if record.headers_kept { &source.headers } else { &self.headers };
        &list[record.headers_at as usize..(record.headers_at + record.headers_count) as usize]
    }

    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.headers.clear();
        self.topics.clear();
        self.bytes.clear();
    }
}

/// The five stages of a record's way; the words are the same in files, configuration, metrics and error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Where records enter.
    Source,
    /// Bytes and schema to value.
    Decode,
    /// The user's code.
    Transform,
    /// Where records leave.
    Sink,
    /// Where the position is stored.
    Checkpoint,
}

impl Stage {
    /// The stage word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Decode => "decode",
            Self::Transform => "transform",
            Self::Sink => "sink",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// A source record that is set aside, with why. It becomes a dead letter, or what the record error policy says.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// Index of the record in its [`RecordBatch`].
    pub source: u32,
    /// Stage that refused it.
    pub stage: Stage,
    /// Stable dotted code such as `decode.short` or `transform.trap`.
    pub code: Cow<'static, str>,
    /// What a person reads, bounded to 4 KiB, control characters escaped.
    pub message: String,
}
