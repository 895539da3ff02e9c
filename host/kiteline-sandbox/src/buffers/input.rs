//! Writer of the input buffer "KLR1": header, rows with their envelopes, heap. The frames of the values are written by the plan
//! that decodes them. The rows' place is reserved first, so that heap offsets are final from the start; a row that is given up
//! leaves nothing behind, and rows that are not used stay between the last row and the heap.

use kiteline_engine::record::{Header, RecordBatch, Span, TimestampKind};

use super::NULL;

/// Bytes of the buffer's header.
const HEADER_BYTES: usize = 48;
/// Bytes of a row before its frame.
pub(crate) const ENVELOPE_BYTES: usize = 32;
/// Where the number of rows stands.
const ROWS: usize = 4;
/// Where the place of the first row stands.
const ROWS_AT: usize = 12;
/// Row flag: no value.
const TOMBSTONE: u16 = 1;
/// Row flag: a value that could not be decoded.
const UNDECODABLE: u16 = 2;
/// Row flag: the broker set the timestamp.
const APPEND_TIME: u16 = 4;

/// What a row shows of its record, fixed per deployment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowShape {
    /// Bytes of the value's frame.
    pub(crate) frame_bytes: u32,
    /// Null bits of the value's frame.
    pub(crate) null_bits: u32,
    /// Whether the guest asked for keys.
    pub(crate) keys: bool,
    /// Whether the guest asked for headers.
    pub(crate) headers: bool,
}

impl RowShape {
    fn stride(&self) -> usize {
        ENVELOPE_BYTES + self.frame_bytes as usize
    }
}

/// The row, its key and its headers do not fit under the buffer's limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// An input buffer in the making.
#[derive(Debug)]
pub(crate) struct InputBuffer<'a> {
    bytes: &'a mut Vec<u8>,
    shape: RowShape,
    bytes_max: usize,
    rows_max: u32,
    rows: u32,
    base_offset: i64,
    /// Length to cut back to if the current row is given up.
    mark: usize,
}

impl<'a> InputBuffer<'a> {
    /// Begins a buffer in `bytes`, whose memory is reused: room for at most `rows_max` rows, fewer if rows are so wide that
    /// they would take more than half of `bytes_max`, at least one.
    pub(crate) fn begin(
        bytes: &'a mut Vec<u8>,
        shape: RowShape,
        batch: &RecordBatch,
        base_offset: i64,
        rows_max: u32,
        bytes_max: u32,
    ) -> Self {
        let stride = shape.stride();
        let room = (bytes_max as usize / 2).saturating_sub(HEADER_BYTES) / stride;
        let rows_max = rows_max.min(u32::try_from(room).unwrap_or(u32::MAX)).max(1);
        let heap_at = HEADER_BYTES + stride * rows_max as usize;
        bytes.clear();
        bytes.resize(heap_at, 0);
        bytes[..4].copy_from_slice(b"KLR1");
        put(bytes, 8, stride as u32);
        put(bytes, ROWS_AT, HEADER_BYTES as u32);
        put(bytes, 16, heap_at as u32);
        put(bytes, 24, u32::try_from(batch.partition).unwrap_or(0));
        bytes[32..40].copy_from_slice(&base_offset.to_le_bytes());
        let topic = data(bytes, batch.topic.as_bytes());
        slot(bytes, 40, topic);
        let mark = bytes.len();
        Self { bytes, shape, bytes_max: bytes_max as usize, rows_max, rows: 0, base_offset, mark }
    }

    /// Whether another row has no place.
    pub(crate) fn full(&self) -> bool {
        self.rows == self.rows_max
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// Whether `offset` can be said as a distance from the base offset.
    pub(crate) fn reaches(&self, offset: i64) -> bool {
        offset.checked_sub(self.base_offset).is_some_and(|distance| u32::try_from(distance).is_ok())
    }

    /// Writes the envelope of the record with this index: everything but its value. The row counts once it is kept.
    pub(crate) fn envelope(&mut self, batch: &RecordBatch, index: usize) -> Result<(), Full> {
        self.mark = self.bytes.len();
        let at = self.row_at();
        let record = &batch.records[index];
        let key = match record.key.of(&batch.bytes) {
            Some(key) if self.shape.keys => data(self.bytes, key),
            _ => (0, NULL),
        };
        slot(self.bytes, at, key);
        self.bytes[at + 8..at + 16].copy_from_slice(&record.timestamp_ms.to_le_bytes());
        if self.shape.headers && record.headers_count > 0 {
            let headers = batch.headers_of(record);
            let cells = self.headers(headers, &batch.bytes);
            slot(self.bytes, at + 16, cells);
        }
        let distance = record.offset.wrapping_sub(self.base_offset) as u32;
        put(self.bytes, at + 24, distance);
        let append = record.timestamp_kind == TimestampKind::Append;
        self.flags(at, if append { APPEND_TIME } else { 0 });
        if self.bytes.len() > self.bytes_max {
            self.give_up();
            return Err(Full);
        }
        Ok(())
    }

    /// Cells of a record's headers: 16 bytes each, name slot and value slot.
    fn headers(&mut self, headers: &[Header], source: &[u8]) -> (u32, u32) {
        let bytes = &mut *self.bytes;
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let cells = bytes.len();
        bytes.resize(cells + 16 * headers.len(), 0);
        for (index, header) in headers.iter().enumerate() {
            let cell = cells + 16 * index;
            let text = |bytes: &mut Vec<u8>, span: Span| match span.of(source) {
                Some(found) => data(bytes, found),
                None => (0, NULL),
            };
            let name = text(bytes, header.name);
            slot(bytes, cell, name);
            let value = text(bytes, header.value);
            slot(bytes, cell + 8, value);
        }
        (cells as u32, headers.len() as u32)
    }

    /// The buffer and where the frame of the current row's value lies in it, zeroed: for the plan that decodes into it.
    pub(crate) fn frame(&mut self) -> (&mut Vec<u8>, usize, usize) {
        let at = self.row_at() + ENVELOPE_BYTES;
        (self.bytes, at, self.bytes_max)
    }

    /// Makes the current row one without a value.
    pub(crate) fn tombstone(&mut self) {
        self.without_value(TOMBSTONE, 0);
    }

    /// Makes the current row one whose value could not be decoded, with the contract's code.
    pub(crate) fn undecodable(&mut self, code: u16) {
        self.without_value(UNDECODABLE, code);
    }

    fn without_value(&mut self, flag: u16, code: u16) {
        let at = self.row_at();
        let flags = u16::from_le_bytes([self.bytes[at + 28], self.bytes[at + 29]]) | flag;
        self.flags(at, flags);
        self.bytes[at + 30..at + 32].copy_from_slice(&code.to_le_bytes());
        // a careless reader sees nulls, not empty strings and zeros
        let frame = at + ENVELOPE_BYTES;
        let bits = self.shape.null_bits as usize;
        self.bytes[frame..frame + bits / 8].fill(0xff);
        if !bits.is_multiple_of(8) {
            self.bytes[frame + bits / 8] = (1 << (bits % 8)) - 1;
        }
    }

    /// Takes the current row in.
    pub(crate) fn keep(&mut self) {
        self.rows += 1;
    }

    /// Forgets the current row.
    pub(crate) fn give_up(&mut self) {
        let at = self.row_at();
        self.bytes[at..at + self.shape.stride()].fill(0);
        self.bytes.truncate(self.mark);
    }

    /// Writes what is known only at the end, and gives the place of the heap.
    pub(crate) fn finish(self) -> u32 {
        put(self.bytes, ROWS, self.rows);
        let total = self.bytes.len() as u32;
        put(self.bytes, 20, total);
        super::u32_at(self.bytes, 16)
    }

    fn row_at(&self) -> usize {
        HEADER_BYTES + self.shape.stride() * self.rows as usize
    }

    fn flags(&mut self, at: usize, flags: u16) {
        self.bytes[at + 28..at + 30].copy_from_slice(&flags.to_le_bytes());
    }
}

/// Narrows a finished buffer to `count` rows from `first`: rows lie side by side and share one heap, so that a part of a
/// batch is the same buffer with another number and place of rows.
pub(crate) fn narrow(bytes: &mut [u8], first: u32, count: u32) {
    let stride = super::u32_at(bytes, 8);
    put(bytes, ROWS, count);
    put(bytes, ROWS_AT, HEADER_BYTES as u32 + first * stride);
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn slot(bytes: &mut [u8], at: usize, (off, len): (u32, u32)) {
    put(bytes, at, off);
    put(bytes, at + 4, len);
}

/// Appends bytes to the heap. Nothing has no place: its offset is 0.
fn data(bytes: &mut Vec<u8>, what: &[u8]) -> (u32, u32) {
    if what.is_empty() {
        return (0, 0);
    }
    let off = bytes.len() as u32;
    bytes.extend_from_slice(what);
    (off, what.len() as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kiteline_avro::{Layout, Limits, Plan, Schema};
    use kiteline_engine::record::{OffsetRange, Record};

    use super::*;

    /// The input buffer of the worked example in wit/README.md, byte for byte.
    const EXAMPLE: &str = "
        4b4c5231 02000000 48000000 30000000 c0000000 03010000
        03000000 00000000 581b0000 00000000 c0000000 06000000
        c6000000 02000000 0068e5cf 8b010000 c8000000 01000000
        00000000 00000000 00000000 00000000
        da000000 02000000 00000000 00000440
        dc000000 04000000 e0000000 02000000
        00000000 ffffffff ffffffff ffffffff 00000000 00000000
        02000000 00000000 01000000 00000000
        01010000 02000000 00000000 0000f0bf
        00000000 00000000 00000000 00000000
        6f72646572736b31 d800000001000000 d900000001000000
        687641314265726e
        0000000000000000 0001000001000000
        0100000000000000 0000000000000000 784232";

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).expect("digits"), 16).expect("hex");
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn the_worked_example_holds_byte_for_byte() {
        let schema = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"double"},
            {"name":"address","type":["null",{"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}]},
            {"name":"tags","type":{"type":"array","items":["null","string"]}}]}"#;
        let schema = Schema::parse(schema).expect("the example's schema is legal");
        let layout = Layout::new(&schema).expect("it has a layout");
        assert_eq!(layout.fingerprint(), "c94957bbb48705aa");
        let plan = Plan::compile(&schema, &schema, &Limits::default()).expect("it resolves to itself");
        let values = ["044131000000000000044002084265726e040202780000", "044232000000000000f0bf0000"].map(unhex);
        let bytes = [b"k1hv", &values[0][..], &values[1]].concat();
        let record = |offset, timestamp_ms, key, value, headers_count| Record {
            offset,
            timestamp_ms,
            timestamp_kind: TimestampKind::Create,
            key,
            value,
            headers_at: 0,
            headers_count,
        };
        let span = |off, len: usize| Span { off, len: len as u32 };
        let first = span(4, values[0].len());
        let batch = RecordBatch {
            topic: Arc::from("orders"),
            partition: 3,
            range: OffsetRange { from: 7000, until: 7003 },
            records: vec![
                record(7000, 1_700_000_000_000, span(0, 2), first, 1),
                record(7002, -1, Span::NULL, span(first.off + first.len, values[1].len()), 0),
            ],
            headers: vec![Header { name: span(2, 1), value: span(3, 1) }],
            bytes,
        };
        let root = layout.node(0);
        let shape = RowShape { frame_bytes: root.frame_bytes(), null_bits: root.null_bits, keys: true, headers: true };
        // dirty memory of an earlier batch must not show
        let mut buffer = vec![0xee; 500];
        let mut input = InputBuffer::begin(&mut buffer, shape, &batch, 7000, 2, 1 << 20);
        for (index, value) in values.iter().enumerate() {
            input.envelope(&batch, index).expect("there is room");
            let (bytes, at, bytes_max) = input.frame();
            plan.decode(value, bytes, at, bytes_max).expect("the example decodes");
            input.keep();
        }
        assert!(input.full());
        assert_eq!(input.finish(), 192);
        assert_eq!(buffer, unhex(EXAMPLE));
        narrow(&mut buffer, 1, 1);
        assert_eq!((super::super::u32_at(&buffer, 4), super::super::u32_at(&buffer, 12)), (1, 120));
    }

    #[test]
    fn a_row_that_is_given_up_leaves_nothing_and_one_without_value_is_all_null() {
        let batch = RecordBatch {
            topic: Arc::from("t"),
            partition: 0,
            range: OffsetRange { from: 0, until: 1 },
            records: vec![Record {
                offset: 0,
                timestamp_ms: 5,
                timestamp_kind: TimestampKind::Append,
                key: Span { off: 0, len: 3 },
                value: Span::NULL,
                headers_at: 0,
                headers_count: 0,
            }],
            headers: vec![],
            bytes: b"key".to_vec(),
        };
        let shape = RowShape { frame_bytes: 24, null_bits: 11, keys: true, headers: true };
        let mut buffer = Vec::new();
        let mut input = InputBuffer::begin(&mut buffer, shape, &batch, 0, 1, 1 << 20);
        input.envelope(&batch, 0).expect("there is room");
        input.give_up();
        let heap_at = input.finish() as usize;
        assert_eq!(heap_at, 48 + 56);
        assert!(buffer[48..heap_at].iter().all(|&byte| byte == 0));
        assert_eq!(&buffer[heap_at..], b"t");

        let mut input = InputBuffer::begin(&mut buffer, shape, &batch, 0, 1, 1 << 20);
        input.envelope(&batch, 0).expect("there is room");
        input.undecodable(3);
        input.keep();
        input.finish();
        assert_eq!(buffer[48 + 28..48 + 34], [2 + 4, 0, 3, 0, 0xff, 0x07]);
        let mut input = InputBuffer::begin(&mut buffer, shape, &batch, 0, 1, 60 + 48);
        assert_eq!(input.envelope(&batch, 0), Ok(()));
        input.give_up();
        let mut input = InputBuffer::begin(&mut buffer, shape, &batch, 0, 1, 60 + 47);
        assert_eq!(input.envelope(&batch, 0), Err(Full));
    }
}
