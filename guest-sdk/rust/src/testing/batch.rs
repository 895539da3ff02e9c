//! Input buffers from values: the host's half of the row contract, for native tests.

use crate::{
    buffer::Buffer,
    error::{Error, Result},
    layout::Layout,
    read::NULL,
    value::Value,
    views::Any,
    write::{Heap, Pen, Place, Put, Spot},
};

/// A record to feed a transform with.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Kafka's offset; ascending within a batch.
    pub offset: i64,
    /// Bytes, or a value where the manifest has a key schema.
    pub key: Option<Value>,
    /// Milliseconds since 1970; -1 is none.
    pub timestamp_ms: i64,
    /// Whether the timestamp is the broker's.
    pub append_time: bool,
    /// Names and values; a value may be null.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The value.
    pub content: Content,
}

/// What a record holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A value of the schema.
    Value(Value),
    /// No value.
    Tombstone,
    /// Bytes that could not be decoded, with the code of the decode error.
    Undecodable(u16),
}

impl Record {
    /// A record at an offset with nothing but a value.
    pub fn new(offset: i64, value: Value) -> Record {
        Record {
            offset,
            key: None,
            timestamp_ms: -1,
            append_time: false,
            headers: Vec::new(),
            content: Content::Value(value),
        }
    }

    /// The same with a key of bytes.
    pub fn with_key(self, key: &[u8]) -> Record {
        Record { key: Some(Value::Bytes(key.to_vec())), ..self }
    }

    /// The same with one more header.
    pub fn with_header(mut self, name: &str, value: &[u8]) -> Record {
        self.headers.push((name.into(), Some(value.to_vec())));
        self
    }
}

/// Writes records as an input buffer of revision 1 (KLR1). The first record's offset is the base.
///
/// Errors: a value that does not fit the layout; offsets that do not ascend or spread beyond 32 bits.
pub fn write_batch(
    layout: &Layout,
    key: Option<&Layout>,
    records: &[Record],
    topic: &str,
    partition: u32,
) -> Result<Vec<u8>> {
    let stride = 32 + layout.node(0).frame_bytes() as usize;
    let base = records.first().map_or(0, |r| r.offset);
    let mut buffer = Buffer::input();
    let heap_at = buffer.cell(48 + stride * records.len()) + 48 + stride * records.len();
    let topic = buffer.data(topic.as_bytes());
    for (i, record) in records.iter().enumerate() {
        write_row(&mut buffer, 48 + i * stride, layout, key, record, base)?;
    }
    let total = buffer.bytes.len() as u32;
    buffer.bytes[..4].copy_from_slice(b"KLR1");
    for (i, word) in [records.len() as u32, stride as u32, 48, heap_at as u32, total, partition].into_iter().enumerate()
    {
        buffer.put_u32(4 + 4 * i, word);
    }
    buffer.put_u64(32, base as u64);
    buffer.put_reference(40, topic);
    Ok(buffer.bytes)
}

fn write_row(
    buffer: &mut Buffer,
    at: usize,
    layout: &Layout,
    key: Option<&Layout>,
    record: &Record,
    base: i64,
) -> Result {
    let reference = match (&record.key, key) {
        (None, _) => (0, NULL),
        (Some(Value::Bytes(bytes)), None) => buffer.data(bytes),
        (Some(_), None) => return Err(Error::new("a key without a schema is bytes")),
        (Some(value), Some(layout)) => {
            let size = layout.node(0).frame_bytes() as usize;
            let cell = if size == 0 { 0 } else { buffer.cell(size) };
            write_frame(buffer, cell, layout, value)?;
            (cell as u32, 1)
        }
    };
    buffer.put_reference(at, reference);
    buffer.put_u64(at + 8, record.timestamp_ms as u64);
    if !record.headers.is_empty() {
        let cell = buffer.cell(16 * record.headers.len());
        buffer.put_reference(at + 16, (cell as u32, record.headers.len() as u32));
        for (i, (name, value)) in record.headers.iter().enumerate() {
            let name = buffer.data(name);
            buffer.put_reference(cell + 16 * i, name);
            let value = value.as_ref().map_or((0, NULL), |v| buffer.data(v));
            buffer.put_reference(cell + 16 * i + 8, value);
        }
    }
    let offset = u32::try_from(record.offset - base)
        .map_err(|_| Error::new("offsets of a batch ascend and lie within 32 bits"))?;
    buffer.put_u32(at + 24, offset);
    let (flag, code) = match record.content {
        Content::Value(_) => (0, 0),
        Content::Tombstone => (1, 0),
        Content::Undecodable(code) => (2, code),
    };
    let flags = flag | if record.append_time { 4 } else { 0 };
    buffer.put_u32(at + 28, flags | u32::from(code) << 16);
    match &record.content {
        Content::Value(value) => write_frame(buffer, at + 32, layout, value),
        _ => {
            for bit in 0..layout.node(0).null_bits {
                buffer.bytes[at + 32 + bit as usize / 8] |= 1 << (bit % 8);
            }
            Ok(())
        }
    }
}

/// Writes a value to the zeroed frame at a position.
fn write_frame(buffer: &mut Buffer, at: usize, layout: &Layout, value: &Value) -> Result {
    let slots_at = 8 * layout.node(0).null_words() as usize;
    let mut pen = Pen { buffer, heap: Heap { bytes: &[], at: 0 }, layout };
    Put::<Any>::put(value, &mut pen, &mut Spot { frame: Place::Buffer(at), bit: 0, slots_at, node: 0 })
}
