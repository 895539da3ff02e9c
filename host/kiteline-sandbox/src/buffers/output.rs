//! Reader of the output buffer "KLO1". Everything in it is hostile: all buffer checks of the contract are done before anything
//! of it is used, and a failure refuses the whole buffer with the entry and the check by name. Not here: what lies in payloads.

use super::{slot_at, u32_at};

/// Bytes of the buffer's header, and the first place an offset may mean.
const HEADER_BYTES: usize = 32;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 16;
/// Most topics of one buffer: their numbers have 16 bits and 0 is the port's own.
const TOPICS_MAX: u32 = 65_535;

/// Extra: a key slot.
pub(crate) const KEY: u8 = 16;
/// Extra: edits of headers.
pub(crate) const HEADERS: u8 = 32;
/// Extra: a timestamp.
pub(crate) const TIMESTAMP: u8 = 64;
/// Extra: a partition.
pub(crate) const PARTITION: u8 = 128;

/// What an entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// The original value.
    Keep,
    /// The original value with some fields replaced.
    Patch,
    /// A new value.
    Row,
    /// No value.
    Tombstone,
    /// The record is unfit.
    Reject,
}

/// What may be asked of a port; the values themselves are checked later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortKind {
    /// No new rows: it has no schema.
    Same,
    /// No patches: its values are bytes.
    Raw,
    /// Everything.
    Avro,
}

/// One entry, its numbers checked against the buffer, the batch and the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Row of the call.
    pub(crate) source: u32,
    /// What it asks for.
    pub(crate) kind: EntryKind,
    /// Bits [`KEY`] to [`PARTITION`].
    pub(crate) extras: u8,
    /// Port.
    pub(crate) port: u8,
    /// 0 for the port's own topic, else a number of the table, from 1.
    pub(crate) topic: u16,
    /// Where its extras and payload begin in the buffer.
    pub(crate) off: u32,
    /// Bytes of both.
    pub(crate) len: u32,
}

/// A buffer whose header holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputBuffer<'a> {
    bytes: &'a [u8],
    entries: u32,
    topics: u32,
    topics_at: usize,
}

impl<'a> OutputBuffer<'a> {
    /// Checks the header: magic, length, reserved words, room for the entries and the table.
    pub(crate) fn header(bytes: &'a [u8]) -> Result<Self, &'static str> {
        if bytes.len() < HEADER_BYTES {
            return Err("header: shorter than 32 bytes");
        }
        if !bytes.starts_with(b"KLO1") {
            return Err("header: magic is not KLO1");
        }
        if u32_at(bytes, 16) as usize != bytes.len() || bytes.len() >= 1 << 31 {
            return Err("header: total is not the length of the buffer");
        }
        if bytes[20..HEADER_BYTES].iter().any(|&byte| byte != 0) {
            return Err("header: bytes 20 to 31 are not zero");
        }
        let (entries, topics, topics_at) = (u32_at(bytes, 4), u32_at(bytes, 8), u32_at(bytes, 12) as usize);
        if entries as usize > (bytes.len() - HEADER_BYTES) / ENTRY_BYTES {
            return Err("header: entries do not fit into the buffer");
        }
        let table_inside = topics <= TOPICS_MAX
            && topics_at.is_multiple_of(8)
            && topics_at >= HEADER_BYTES
            && topics_at.saturating_add(8 * topics as usize) <= bytes.len();
        if topics > 0 && !table_inside {
            return Err("header: topic table is not inside the buffer at a multiple of 8");
        }
        Ok(Self { bytes, entries, topics, topics_at })
    }

    /// How many entries there are.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// How many topics there are.
    pub(crate) fn topics(&self) -> u32 {
        self.topics
    }

    /// The buffer.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks every entry: `rows` of the call, `lowest` legal source row, the ports. Gives the last source row.
    pub(crate) fn check(&self, rows: u32, lowest: u32, ports: &[PortKind]) -> Result<u32, (u32, &'static str)> {
        let mut last = lowest;
        for index in 0..self.entries {
            last = self.check_entry(index, rows, last, ports).map_err(|check| (index, check))?;
        }
        Ok(last)
    }

    fn check_entry(&self, index: u32, rows: u32, lowest: u32, ports: &[PortKind]) -> Result<u32, &'static str> {
        let entry = self.entry(index).ok_or("kind is reserved")?;
        if entry.source >= rows {
            return Err("source row is not in the batch");
        }
        if entry.source < lowest {
            return Err("source row decreases");
        }
        let port = ports.get(usize::from(entry.port)).ok_or("port is unknown")?;
        if u32::from(entry.topic) > self.topics {
            return Err("topic is not in the table");
        }
        let (off, len) = (entry.off as usize, entry.len as usize);
        if len > 0 {
            if !off.is_multiple_of(8) || !len.is_multiple_of(8) {
                return Err("payload is not at a multiple of 8 or not as long as one");
            }
            if off < HEADER_BYTES || off.saturating_add(len) > self.bytes.len() {
                return Err("payload is not inside the buffer");
            }
        }
        match (entry.kind, port) {
            (EntryKind::Row, PortKind::Same) => Err("row on a port of format same"),
            (EntryKind::Patch, PortKind::Raw) => Err("patch on a raw port"),
            (EntryKind::Reject, _) if entry.extras != 0 || entry.topic != 0 || entry.port != 0 => {
                Err("reject with extras, topic or port")
            }
            _ => Ok(entry.source),
        }
    }

    /// One entry, none if its kind is reserved. `index` is below [`Self::entries`].
    pub(crate) fn entry(&self, index: u32) -> Option<Entry> {
        let at = HEADER_BYTES + ENTRY_BYTES * index as usize;
        let kind = match self.bytes[at + 4] & 15 {
            0 => EntryKind::Keep,
            1 => EntryKind::Patch,
            2 => EntryKind::Row,
            3 => EntryKind::Tombstone,
            4 => EntryKind::Reject,
            _ => return None,
        };
        let (off, len) = slot_at(self.bytes, at + 8);
        Some(Entry {
            source: u32_at(self.bytes, at),
            kind,
            extras: self.bytes[at + 4] & 0xf0,
            port: self.bytes[at + 5],
            topic: u16::from_le_bytes([self.bytes[at + 6], self.bytes[at + 7]]),
            off,
            len,
        })
    }

    /// Slot of the name of a topic; `number` is from 1 and in the table.
    pub(crate) fn topic(&self, number: u16) -> (u32, u32) {
        slot_at(self.bytes, self.topics_at + 8 * (usize::from(number) - 1))
    }
}
