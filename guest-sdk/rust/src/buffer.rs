//! The output buffer as it grows: entries in a table of fixed capacity, payloads and cells behind it, topics at the end.
//!
//! Everything is written at its final place, so references never move. A full table, or more bytes than a piece should have, ends the
//! piece: it is handed to the host and the next one begins. Not here: what the payloads mean (`write`, `out`).

use crate::read::HIGH;
use std::collections::BTreeMap;

const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
const MAGIC: &[u8; 4] = b"KLO1";
/// A piece is handed over once it is this large, so that a plugin's memory stays small.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Topic numbers have 16 bits.
const TOPICS_MAX: usize = u16::MAX as usize;
/// Bounds of the table of entries of one piece.
const ENTRIES_MIN: u32 = 4;
const ENTRIES_MAX: u32 = 8192;

/// Kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    Keep = 0,
    Patch = 1,
    Row = 2,
    Tombstone = 3,
    Reject = 4,
}

/// Extras of entries, in the order of their slots.
pub(crate) const KEY: u8 = 16;
pub(crate) const HEADERS: u8 = 32;
pub(crate) const TIMESTAMP: u8 = 64;
pub(crate) const PARTITION: u8 = 128;

/// A field of the current row that was set: what a patch will name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    pub(crate) number: u32,
    /// Numbered fields inside it.
    pub(crate) inside: u32,
    pub(crate) node: u32,
    pub(crate) slot: u32,
    pub(crate) bit: u32,
}

pub(crate) struct Entry {
    pub(crate) source: u32,
    pub(crate) kind: EntryKind,
    pub(crate) extras: u8,
    pub(crate) port: u8,
    pub(crate) topic: u16,
    pub(crate) payload: (u32, u32),
}

/// One growing buffer. With `high` 0 and no table it serves the test harness as an input buffer too.
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    /// Added to offsets that point into this buffer.
    high: u32,
    entries: u32,
    entries_max: u32,
    /// Capacity per row: doubled when a table turned out too small.
    entries_per_row: u32,
    topics: BTreeMap<Box<str>, u16>,
    topic_names: Vec<Box<str>>,
    topic_last: u16,
    /// Fields set on the current row, by ascending number.
    pub(crate) edits: Vec<Edit>,
    /// The current row holds references into this buffer.
    pub(crate) row_refers: bool,
    /// Where the current row began: entries and bytes.
    row_from: (u32, usize),
    /// A patch payload that further outputs of the current row may share.
    pub(crate) patch: Option<(u32, u32)>,
    /// Outputs of the current row in earlier pieces: entries and bytes.
    row_sent: (u32, usize),
    /// Fields of the row that is being built which were set, by number; the last bit is the root.
    pub(crate) marks: Vec<u64>,
    /// Pairs of types that were found equal: (layout, node, layout, node).
    pub(crate) same: Vec<[u32; 4]>,
}

impl Buffer {
    pub(crate) fn output() -> Buffer {
        Buffer::with(HIGH)
    }

    /// For input buffers, which the test harness writes: plain offsets, no table.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn input() -> Buffer {
        Buffer::with(0)
    }

    fn with(high: u32) -> Buffer {
        Buffer {
            bytes: Vec::new(),
            high,
            entries: 0,
            entries_max: 0,
            entries_per_row: 2,
            topics: BTreeMap::new(),
            topic_names: Vec::new(),
            topic_last: 0,
            edits: Vec::new(),
            row_refers: false,
            row_from: (0, 0),
            patch: None,
            row_sent: (0, 0),
            marks: Vec::new(),
            same: Vec::new(),
        }
    }

    /// A new batch: what was not handed over is forgotten.
    pub(crate) fn begin_batch(&mut self, rows: u32) {
        self.entries_max = rows.saturating_mul(self.entries_per_row).clamp(ENTRIES_MIN, ENTRIES_MAX);
        self.restart();
    }

    fn restart(&mut self) {
        self.entries = 0;
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES + ENTRY_BYTES * self.entries_max as usize, 0);
        self.forget_topics();
    }

    fn forget_topics(&mut self) {
        self.topics.clear();
        self.topic_names.clear();
        self.topic_last = 0;
    }

    pub(crate) fn begin_row(&mut self) {
        self.edits.clear();
        self.row_refers = false;
        self.row_from = (self.entries, self.bytes.len());
        self.row_sent = (0, 0);
        self.patch = None;
    }

    /// What was written for a row without outputs is taken back.
    pub(crate) fn end_row(&mut self) {
        if self.entries == self.row_from.0 {
            self.bytes.truncate(self.row_from.1);
        }
    }

    /// Takes the current row's outputs back, as far as they were not handed over.
    pub(crate) fn withdraw(&mut self) {
        self.entries = self.row_from.0;
        self.bytes.truncate(self.row_from.1);
        self.patch = None;
        self.row_refers = false;
    }

    /// Where what the current row refers to begins.
    pub(crate) fn row_start(&self) -> usize {
        self.row_from.1
    }

    /// Entries and bytes of the current row's outputs, earlier pieces included.
    pub(crate) fn row_cost(&self) -> (u32, usize) {
        (self.row_sent.0 + self.entries - self.row_from.0, self.row_sent.1 + self.bytes.len() - self.row_from.1)
    }

    pub(crate) fn has_entries(&self) -> bool {
        self.entries > 0
    }

    pub(crate) fn table_is_full(&self) -> bool {
        self.entries == self.entries_max
    }

    /// After a piece was handed over between two rows.
    pub(crate) fn next_piece(&mut self) {
        self.restart();
    }

    /// After a piece was handed over within a row. What the row refers to stays where it is.
    pub(crate) fn next_piece_within_row(&mut self) {
        self.entries_per_row = (self.entries_per_row * 2).min(64);
        self.row_sent = self.row_cost();
        if self.row_refers {
            self.entries = 0;
            self.forget_topics();
            self.row_from.0 = 0;
            // the patch payload and all cells of the row are still there
            self.row_sent.1 = self.row_sent.1.saturating_sub(self.bytes.len() - self.row_from.1);
        } else {
            self.restart();
            self.row_from = (0, self.bytes.len());
            self.patch = None;
        }
    }

    /// Fills in header and topics: the bytes to hand over.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let topics = std::mem::take(&mut self.topic_names);
        let at = if topics.is_empty() { 0 } else { self.cell(8 * topics.len()) };
        for (i, topic) in topics.iter().enumerate() {
            let reference = self.data(topic.as_bytes());
            self.put_reference(at + 8 * i, reference);
        }
        let total = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(MAGIC);
        for (i, word) in [self.entries, topics.len() as u32, at as u32, total].into_iter().enumerate() {
            self.put_u32(4 + 4 * i, word);
        }
        &self.bytes
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        let at = HEADER_BYTES + ENTRY_BYTES * self.entries as usize;
        self.put_u32(at, entry.source);
        self.bytes[at + 4] = entry.kind as u8 | entry.extras;
        self.bytes[at + 5] = entry.port;
        self.bytes[at + 6..at + 8].copy_from_slice(&entry.topic.to_le_bytes());
        self.put_u32(at + 8, entry.payload.0);
        self.put_u32(at + 12, entry.payload.1);
        self.entries += 1;
    }

    /// Number of a topic; none when the table has no room.
    pub(crate) fn topic(&mut self, name: &str) -> Option<u16> {
        if let Some(last) = self.topic_names.get((self.topic_last as usize).wrapping_sub(1))
            && &**last == name
        {
            return Some(self.topic_last);
        }
        let number = match self.topics.get(name) {
            Some(number) => *number,
            None if self.topic_names.len() == TOPICS_MAX => return None,
            None => {
                self.topic_names.push(name.into());
                let number = self.topic_names.len() as u16;
                self.topics.insert(name.into(), number);
                number
            }
        };
        self.topic_last = number;
        Some(number)
    }

    /// Zeroed bytes at the next multiple of 8: their position.
    pub(crate) fn cell(&mut self, size: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at + size, 0);
        at
    }

    /// Appends bytes: their reference.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> (u32, u32) {
        if bytes.is_empty() {
            return (0, 0);
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        (at | self.high, bytes.len() as u32)
    }

    /// The reference of a cell at a position of this buffer.
    pub(crate) fn offset(&self, at: usize) -> u32 {
        at as u32 | self.high
    }

    pub(crate) fn put_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn put_u64(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn put_reference(&mut self, at: usize, (off, len): (u32, u32)) {
        self.put_u32(at, off);
        self.put_u32(at + 4, len);
    }

    /// Records that a field of the row was set: edits stay in order and never lie inside one another.
    pub(crate) fn edit(&mut self, edit: Edit) {
        self.patch = None;
        let at = self.edits.partition_point(|e| e.number <= edit.number);
        if at > 0 {
            let before = &self.edits[at - 1];
            if edit.number <= before.number + before.inside {
                return;
            }
        }
        let inside = self.edits[at..].partition_point(|e| e.number <= edit.number + edit.inside);
        self.edits.splice(at..at + inside, [edit]);
    }

    /// The patch items of the row's edits, copied from its frame. `slots_at`: byte position of the frame's first slot.
    pub(crate) fn items(&mut self, mut at: usize, frame: &[u8], slots_at: usize, widths: impl Fn(u32) -> (u32, u32)) {
        for i in 0..self.edits.len() {
            let edit = self.edits[i];
            let (slots, bits) = widths(edit.node);
            self.put_u32(at, edit.number);
            at += 8;
            for k in 0..bits {
                let from = edit.bit + k;
                self.bytes[at + k as usize / 8] |= (frame[from as usize / 8] >> (from % 8) & 1) << (k % 8);
            }
            at += 8 * bits.div_ceil(64) as usize;
            let from = slots_at + 8 * edit.slot as usize;
            let size = 8 * slots as usize;
            self.bytes[at..at + size].copy_from_slice(&frame[from..from + size]);
            at += size;
        }
    }
}
