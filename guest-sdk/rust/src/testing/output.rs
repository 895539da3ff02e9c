//! Output buffers as values: what the host would send, for native tests.

use super::batch::{Content, Record};
use crate::{
    arena::Arena,
    buffer::{EntryKind, HEADERS, KEY, PARTITION, TIMESTAMP},
    context::PortInfo,
    error::{Error, Result},
    layout::{self, Layout},
    manifest::Manifest,
    read::{At, Memory, NULL, u32_at, u64_at},
    value::Value,
    views::AnyValue,
};

/// How an output came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The record as it was.
    Keep,
    /// The record with fields set.
    Patch,
    /// A new record.
    Row,
    /// A record without a value.
    Tombstone,
}

/// One output.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Index of the record that it comes from.
    pub source: usize,
    /// How it came about.
    pub kind: Kind,
    /// The port's name.
    pub port: String,
    /// A topic of its own.
    pub topic: Option<String>,
    /// The value: of the whole record for a kept one.
    pub value: Option<Value>,
    /// The key: the source's, or its own.
    pub key: Option<Value>,
    /// The headers after the edits.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Milliseconds since 1970; -1 is none.
    pub timestamp_ms: i64,
    /// A partition of its own.
    pub partition: Option<i64>,
}

impl Sent {
    pub(crate) fn kept(source: usize, record: &Record, manifest: &Manifest) -> Sent {
        let value = if let Content::Value(value) = &record.content { Some(value.clone()) } else { None };
        let port = manifest.outputs.first().map_or_else(String::new, |o| o.name.clone());
        Sent {
            source,
            kind: Kind::Keep,
            port,
            topic: None,
            value,
            key: record.key.clone(),
            headers: record.headers.clone(),
            timestamp_ms: record.timestamp_ms,
            partition: None,
        }
    }
}

/// A record that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Index of the record.
    pub source: usize,
    /// The code.
    pub code: u32,
    /// The text.
    pub text: String,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// The outputs, in order. A record in neither list was dropped.
    pub sent: Vec<Sent>,
    /// The refused records.
    pub rejected: Vec<Rejected>,
}

impl Outcomes {
    /// A reject withdraws the other outputs of its record; the first one counts.
    pub(crate) fn withdraw(&mut self) {
        let rejected = &self.rejected;
        self.sent.retain(|s| !rejected.iter().any(|r| r.source == s.source));
        self.rejected.dedup_by_key(|r| r.source);
    }

    /// The values that a port got.
    pub fn values(&self, port: &str) -> Vec<&Value> {
        self.sent.iter().filter(|s| s.port == port).filter_map(|s| s.value.as_ref()).collect()
    }
}

/// What explains an output buffer.
pub(crate) struct Reader<'r> {
    pub(crate) input: &'r [u8],
    pub(crate) layout: &'r Layout,
    pub(crate) ports: &'r [PortInfo],
    pub(crate) manifest: &'r Manifest,
}

impl Reader<'_> {
    /// Reads one buffer. `sources[i]` is the index of row i's record.
    pub(crate) fn read(&self, piece: &[u8], sources: &[usize], records: &[Record], outcomes: &mut Outcomes) -> Result {
        let word = |at: usize| u32_at(piece, at);
        if piece.len() < 32 || &piece[..4] != b"KLO1" || word(16) as usize != piece.len() || piece[20..32] != [0; 12] {
            return Err(Error::new("an output buffer with a wrong header"));
        }
        let arena = Arena::default();
        let memory = self.memory(piece, self.layout, &arena);
        for i in 0..word(4) as usize {
            let at = 32 + 16 * i;
            let (source, kind, extras) = (word(at) as usize, piece[at + 4] & 15, piece[at + 4] & 0xf0);
            let port = self
                .manifest
                .outputs
                .get(piece[at + 5] as usize)
                .ok_or_else(|| Error::new("a port that is not there"))?;
            let topic = usize::from(piece[at + 6]) | usize::from(piece[at + 7]) << 8;
            let (off, len) = (word(at + 8) as usize, word(at + 12) as usize);
            if off % 8 != 0 || off + len > piece.len() {
                return Err(Error::new("a payload that does not lie in its buffer"));
            }
            let record = &records[sources[source]];
            if kind == EntryKind::Reject as u8 {
                let text = memory.bytes(word(off + 8), word(off + 12) as usize);
                let text = String::from_utf8_lossy(text).into_owned();
                outcomes.rejected.push(Rejected { source: sources[source], code: word(off), text });
                continue;
            }
            let mut sent = Sent { port: port.name.clone(), ..Sent::kept(sources[source], record, self.manifest) };
            if topic > 0 {
                let slot = word(12) as usize + 8 * (topic - 1);
                sent.topic =
                    Some(String::from_utf8_lossy(memory.bytes(word(slot), word(slot + 4) as usize)).into_owned());
            }
            let from = read_extras(piece, memory, off, extras, &mut sent);
            let payload = &piece[from..off + len];
            match kind {
                0 => {}
                1 => {
                    sent.kind = Kind::Patch;
                    let value = sent.value.as_mut().ok_or_else(|| Error::new("a patch of a record without a value"))?;
                    self.patch(payload, memory, value)?;
                }
                2 => {
                    sent.kind = Kind::Row;
                    let info = &self.ports[piece[at + 5] as usize];
                    let layout =
                        info.value.as_ref().ok_or_else(|| Error::new("a new record on a port for kept ones"))?;
                    let at = At::root(payload, 0, self.memory(piece, layout, &arena));
                    sent.value = Some(AnyValue::at(&at).into());
                }
                3 => (sent.kind, sent.value) = (Kind::Tombstone, None),
                other => return Err(Error::new(format!("an entry of kind {other}"))),
            }
            outcomes.sent.push(sent);
        }
        Ok(())
    }

    fn memory<'a>(&'a self, piece: &'a [u8], layout: &'a Layout, arena: &'a Arena) -> Memory<'a> {
        let heap_at = u32_at(self.input, 16);
        Memory { heap: &self.input[heap_at as usize..], heap_at, out: piece, out_at: 0, arena, layout }
    }

    /// Applies patch items to the whole record's value.
    fn patch(&self, payload: &[u8], memory: Memory<'_>, value: &mut Value) -> Result {
        let mut at = 0;
        while at < payload.len() {
            let (path, node) = locate(self.layout, u32_at(payload, at))
                .ok_or_else(|| Error::new("a patch of a field that is not there"))?;
            let size = self.layout.node(node).frame_bytes() as usize;
            let new = AnyValue::at(&At::root(&payload[at + 8..at + 8 + size], node, memory)).into();
            let mut place = &mut *value;
            for part in &path {
                let Value::Struct(fields) = place else {
                    return Err(Error::new("a patch inside a record that is null"));
                };
                let field = fields.iter_mut().find(|f| f.0 == *part);
                place = &mut field.ok_or_else(|| Error::new(format!("the whole record has no field {part:?}")))?.1;
            }
            *place = new;
            at += 8 + size;
        }
        Ok(())
    }
}

/// Reads an entry's extras; gives the position of the payload after them.
fn read_extras(piece: &[u8], memory: Memory<'_>, mut at: usize, extras: u8, sent: &mut Sent) -> usize {
    if extras & KEY != 0 {
        let (off, len) = (u32_at(piece, at), u32_at(piece, at + 4));
        sent.key = (len != NULL).then(|| Value::Bytes(memory.bytes(off, len as usize).to_vec()));
        at += 8;
    }
    if extras & HEADERS != 0 {
        let (off, count) = (u32_at(piece, at), u32_at(piece, at + 4) as usize);
        for edit in memory.bytes(off, 24 * count).as_chunks::<24>().0 {
            let word = |k: usize| u32_at(edit, k);
            let name = memory.bytes(word(8), word(12) as usize);
            let op = u64_at(edit, 0);
            match op {
                1 | 2 => sent.headers.retain(|h| h.0 != name),
                3 => sent.headers.clear(),
                _ => {}
            }
            if op < 2 {
                let value = (word(20) != NULL).then(|| memory.bytes(word(16), word(20) as usize).to_vec());
                sent.headers.push((name.to_vec(), value));
            }
        }
        at += 8;
    }
    if extras & TIMESTAMP != 0 {
        sent.timestamp_ms = u64_at(piece, at) as i64;
        at += 8;
    }
    if extras & PARTITION != 0 {
        sent.partition = Some(u64_at(piece, at) as i64);
        at += 8;
    }
    at
}

/// The path and node of a field number.
pub(crate) fn locate(layout: &Layout, number: u32) -> Option<(Vec<&str>, u32)> {
    let (mut path, mut node, mut base) = (Vec::new(), 0, 0);
    loop {
        while let layout::Kind::Nullable(inner) = layout.node(node).kind {
            node = inner;
        }
        let layout::Kind::Struct(fields) = &layout.node(node).kind else {
            return None;
        };
        let field = fields.iter().rev().find(|f| base + f.number <= number)?;
        path.push(field.name.as_str());
        node = field.node;
        if base + field.number == number {
            return Some((path, node));
        }
        base += field.number + 1;
    }
}
