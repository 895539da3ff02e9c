//! Outcomes: what becomes of a record. Keep it (as it was, or with the fields that were set), send new ones, reject it, or say nothing,
//! which drops it.

use crate::{
    buffer::{Buffer, Entry, EntryKind, HEADERS, KEY, PARTITION, TIMESTAMP},
    build::Build,
    context::PortInfo,
    error::{EmitError, Error, Result},
    read::NULL,
    row::Row,
    write::Pen,
};
use std::cell::RefCell;

/// Text of a reject longer than this is cut by the host.
const TEXT_BYTES_MAX: usize = 4096;
/// Largest code of a reject.
const CODE_MAX: u32 = i32::MAX as u32;

/// A named output of the plugin, by its number in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub(crate) u8);

impl Port {
    /// The first port of the manifest, which `keep` uses.
    pub const FIRST: Port = Port(0);
}

/// One step of an edit of the source's headers, done in order.
#[derive(Clone, Copy, Debug)]
pub struct HeaderEdit<'e> {
    op: u64,
    name: &'e [u8],
    value: Option<&'e [u8]>,
}

impl<'e> HeaderEdit<'e> {
    /// One more header at the end.
    pub fn append(name: &'e str, value: &'e [u8]) -> HeaderEdit<'e> {
        HeaderEdit { op: 0, name: name.as_bytes(), value: Some(value) }
    }

    /// One more header at the end, whose value is null.
    pub fn append_null(name: &'e str) -> HeaderEdit<'e> {
        HeaderEdit { op: 0, name: name.as_bytes(), value: None }
    }

    /// Removes all headers of the name and appends one.
    pub fn set(name: &'e str, value: &'e [u8]) -> HeaderEdit<'e> {
        HeaderEdit { op: 1, name: name.as_bytes(), value: Some(value) }
    }

    /// Removes all headers of the name.
    pub fn remove(name: &'e str) -> HeaderEdit<'e> {
        HeaderEdit { op: 2, name: name.as_bytes(), value: None }
    }

    /// Removes all headers.
    pub fn clear() -> HeaderEdit<'e> {
        HeaderEdit { op: 3, name: &[], value: None }
    }
}

/// What an output gets of its own; without it the source's key, headers and timestamp, the port's topic and the sink's partitioner apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct With<'e> {
    port: Option<Port>,
    topic: Option<&'e str>,
    key: Option<Option<&'e [u8]>>,
    headers: Option<&'e [HeaderEdit<'e>]>,
    timestamp_ms: Option<i64>,
    partition: Option<i64>,
}

impl<'e> With<'e> {
    /// Nothing of its own.
    pub fn new() -> With<'e> {
        With::default()
    }

    /// Another port than the first one.
    pub fn port(self, port: Port) -> With<'e> {
        With { port: Some(port), ..self }
    }

    /// A topic; the pipeline's configuration lists those that are allowed.
    pub fn topic(self, topic: &'e str) -> With<'e> {
        With { topic: Some(topic), ..self }
    }

    /// A key of plain bytes.
    pub fn key(self, key: &'e [u8]) -> With<'e> {
        With { key: Some(Some(key)), ..self }
    }

    /// A null key.
    pub fn null_key(self) -> With<'e> {
        With { key: Some(None), ..self }
    }

    /// Edits of the source's headers, done in order.
    pub fn headers(self, edits: &'e [HeaderEdit<'e>]) -> With<'e> {
        With { headers: Some(edits), ..self }
    }

    /// A timestamp in milliseconds since 1970; -1 is none.
    pub fn timestamp_ms(self, timestamp_ms: i64) -> With<'e> {
        With { timestamp_ms: Some(timestamp_ms), ..self }
    }

    /// A partition; -1 is the sink's partitioner.
    pub fn partition(self, partition: i32) -> With<'e> {
        With { partition: Some(partition.into()), ..self }
    }

    fn extras(&self) -> (u8, usize) {
        let mut extras = 0;
        for (present, extra) in [
            (self.key.is_some(), KEY),
            (self.headers.is_some(), HEADERS),
            (self.timestamp_ms.is_some(), TIMESTAMP),
            (self.partition.is_some(), PARTITION),
        ] {
            extras |= if present { extra } else { 0 };
        }
        (extras, 8 * extras.count_ones() as usize)
    }

    /// Writes the extras' slots at `at`; their cells go to the end of the buffer. Gives the position after them.
    fn put(&self, mut at: usize, pen: &mut Pen<'_>) -> usize {
        if let Some(key) = self.key {
            let reference = key.map_or((0, NULL), |key| pen.data(key));
            pen.buffer.put_reference(at, reference);
            at += 8;
        }
        if let Some(edits) = self.headers {
            let cells = if edits.is_empty() { 0 } else { pen.buffer.cell(24 * edits.len()) };
            let off = if edits.is_empty() { 0 } else { pen.buffer.offset(cells) };
            pen.buffer.put_reference(at, (off, edits.len() as u32));
            at += 8;
            for (i, edit) in edits.iter().enumerate() {
                let cell = cells + 24 * i;
                pen.buffer.put_u64(cell, edit.op);
                let name = pen.data(edit.name);
                pen.buffer.put_reference(cell + 8, name);
                let value = edit.value.map_or((0, NULL), |v| pen.data(v));
                pen.buffer.put_reference(cell + 16, value);
            }
        }
        for number in [self.timestamp_ms, self.partition].into_iter().flatten() {
            pen.buffer.put_u64(at, number as u64);
            at += 8;
        }
        at
    }
}

/// The outputs of a batch. Nothing said about a record drops it; several outputs of one record leave in the order in which they were said.
pub struct Out<'b> {
    buffer: &'b RefCell<Buffer>,
    ports: &'b [PortInfo],
    emit: &'b mut dyn FnMut(&[u8]) -> std::result::Result<(), EmitError>,
    refused: Option<EmitError>,
}

impl<'b> Out<'b> {
    pub(crate) fn new(
        buffer: &'b RefCell<Buffer>,
        ports: &'b [PortInfo],
        emit: &'b mut dyn FnMut(&[u8]) -> std::result::Result<(), EmitError>,
    ) -> Out<'b> {
        Out { buffer, ports, emit, refused: None }
    }

    /// The record goes on: as it was, or with the fields that were set.
    pub fn keep(&mut self, row: &Row<'_>) -> Result {
        self.keep_with(row, &With::new())
    }

    /// As `keep`, to a topic.
    pub fn keep_to(&mut self, row: &Row<'_>, topic: &str) -> Result {
        self.keep_with(row, &With::new().topic(topic))
    }

    /// As `keep`, with key, headers, timestamp, partition, topic or port of its own.
    ///
    /// Errors: an edited record on a raw port, a key for a port whose keys have a schema, too many topics, a refused `emit`.
    pub fn keep_with(&mut self, row: &Row<'_>, with: &With<'_>) -> Result {
        let port = self.check(with)?;
        self.room()?;
        let mut buffer = self.buffer.borrow_mut();
        let (extras, extras_bytes) = with.extras();
        if buffer.edits.is_empty() {
            return finish(&mut buffer, row, with, port, EntryKind::Keep, |_, _| Ok(()), 0);
        }
        if self.ports[port as usize].is_raw() {
            return Err(Error::new("a raw port takes records as they are: fields that were set cannot be sent there"));
        }
        if extras == 0
            && let Some(payload) = buffer.patch
        {
            let topic = topic_number(&mut buffer, with)?;
            buffer.push(Entry { source: row.index(), kind: EntryKind::Patch, extras, port, topic, payload });
            return Ok(());
        }
        let layout = row.layout();
        let width = |node: u32| (layout.node(node).slots, layout.node(node).null_bits);
        let size: usize = buffer.edits.iter().map(|e| 8 + layout.node(e.node).frame_bytes() as usize).sum();
        let write = |buffer: &mut Buffer, at: usize| {
            buffer.items(at, row.frame(), row.slots_at(), width);
            if extras_bytes == 0 {
                buffer.patch = Some((at as u32, size as u32));
            }
            Ok(())
        };
        finish(&mut buffer, row, with, port, EntryKind::Patch, write, size)
    }

    /// A record without a value in this one's place, by default with its key.
    pub fn tombstone(&mut self, row: &Row<'_>) -> Result {
        self.tombstone_with(row, &With::new())
    }

    /// As `tombstone`, with extras of its own.
    pub fn tombstone_with(&mut self, row: &Row<'_>, with: &With<'_>) -> Result {
        let port = self.check(with)?;
        self.room()?;
        finish(&mut self.buffer.borrow_mut(), row, with, port, EntryKind::Tombstone, |_, _| Ok(()), 0)
    }

    /// A record of plain bytes on a raw port.
    pub fn raw(&mut self, port: Port, row: &Row<'_>, value: &[u8], with: &With<'_>) -> Result {
        let port = self.check(&with.port(port))?;
        if !self.ports[port as usize].is_raw() {
            return Err(Error::new(format!("port {port} is not raw: build a row for it")));
        }
        self.room()?;
        let heap = row.heap();
        let write = |buffer: &mut Buffer, at: usize| {
            let reference = heap.find(value).unwrap_or_else(|| buffer.data(value));
            buffer.put_reference(at, reference);
            Ok(())
        };
        finish(&mut self.buffer.borrow_mut(), row, with, port, EntryKind::Row, write, 8)
    }

    /// A new record on an avro port: set its fields, then `emit` it. Nullable fields that are not set are null.
    pub fn row<'o, 'r: 'o>(&'o mut self, port: Port, row: &Row<'r>) -> Result<Build<'o>> {
        self.row_with(port, row, &With::new())
    }

    /// As `row`, with extras of its own.
    pub fn row_with<'o, 'r: 'o>(&'o mut self, port: Port, row: &Row<'r>, with: &With<'_>) -> Result<Build<'o>> {
        let port = self.check(&with.port(port))?;
        let info = &self.ports[port as usize];
        let Some(layout) = &info.value else {
            return Err(Error::new(format!("port {port} takes kept records only: it has no schema of its own")));
        };
        self.room()?;
        let mut buffer = self.buffer.borrow_mut();
        let (extras, extras_bytes) = with.extras();
        let topic = topic_number(&mut buffer, with)?;
        let size = extras_bytes + layout.node(0).frame_bytes() as usize;
        let at = if size == 0 { 0 } else { buffer.cell(size) };
        let mut pen = Pen { buffer: &mut buffer, heap: row.heap(), layout };
        with.put(at, &mut pen);
        let payload = (at as u32, size as u32);
        let entry = Entry { source: row.index(), kind: EntryKind::Row, extras, port, topic, payload };
        drop(buffer);
        Ok(Build::new(self.buffer, info, layout, row.heap(), entry, at + extras_bytes))
    }

    /// The record is unfit: its original goes to the record error policy (a dead letter, by default) with code and text. Other outputs of
    /// this record are withdrawn. Own codes begin at 100.
    pub fn reject(&mut self, row: &Row<'_>, code: u32, text: &str) -> Result {
        self.reject_index(row.index(), code, text)
    }

    /// Says nothing about the record: it is complete, with no output. The same as returning without a word.
    pub fn drop(&mut self, _row: &Row<'_>) -> Result {
        Ok(())
    }

    pub(crate) fn reject_index(&mut self, source: u32, code: u32, text: &str) -> Result {
        self.room()?;
        let mut cut = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let mut buffer = self.buffer.borrow_mut();
        let at = buffer.cell(16);
        buffer.put_u64(at, code.min(CODE_MAX).into());
        let reference = buffer.data(&text.as_bytes()[..cut]);
        buffer.put_reference(at + 8, reference);
        let (kind, payload) = (EntryKind::Reject, (at as u32, 16));
        buffer.push(Entry { source, kind, extras: 0, port: 0, topic: 0, payload });
        Ok(())
    }

    /// Room for one more entry: ends the piece where the table is full.
    fn room(&mut self) -> Result {
        if self.refused.is_some() {
            return Err(Error::new("the host refused earlier outputs of this batch"));
        }
        if !self.buffer.borrow().table_is_full() {
            return Ok(());
        }
        self.hand_over()?;
        self.buffer.borrow_mut().next_piece_within_row();
        Ok(())
    }

    /// Between two rows: hands the piece over if it has grown large, or at the batch's end.
    pub(crate) fn between_rows(&mut self, piece_bytes: usize) -> Result {
        let ready = {
            let buffer = self.buffer.borrow();
            buffer.has_entries() && (buffer.bytes.len() >= piece_bytes || buffer.table_is_full())
        };
        if ready {
            self.hand_over()?;
            self.buffer.borrow_mut().next_piece();
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result {
        let mut buffer = self.buffer.borrow_mut();
        (self.emit)(buffer.finish()).map_err(|why| {
            let error = Error::new(why.to_string());
            self.refused = Some(why);
            error
        })
    }

    pub(crate) fn refused(&self) -> Option<&EmitError> {
        self.refused.as_ref()
    }

    fn check(&self, with: &With<'_>) -> Result<u8> {
        let port = with.port.unwrap_or(Port::FIRST).0;
        let info = self.ports.get(port as usize).ok_or_else(|| Error::new(format!("the plugin has no port {port}")))?;
        if matches!(with.key, Some(Some(_))) && info.key.is_some() {
            return Err(Error::new(format!("keys of port {port} have a schema: plain bytes do not fit")));
        }
        Ok(port)
    }
}

fn topic_number(buffer: &mut Buffer, with: &With<'_>) -> Result<u16> {
    match with.topic {
        None => Ok(0),
        Some(topic) => buffer.topic(topic).ok_or_else(|| Error::new("a batch names more than 65,535 topics")),
    }
}

/// Extras, payload and entry of an output whose payload is `size` bytes.
fn finish(
    buffer: &mut Buffer,
    row: &Row<'_>,
    with: &With<'_>,
    port: u8,
    kind: EntryKind,
    write: impl FnOnce(&mut Buffer, usize) -> Result,
    size: usize,
) -> Result {
    let (extras, extras_bytes) = with.extras();
    let topic = topic_number(buffer, with)?;
    let size = extras_bytes + size;
    let at = if size == 0 { 0 } else { buffer.cell(size) };
    if extras != 0 {
        with.put(at, &mut Pen { buffer, heap: row.heap(), layout: row.layout() });
    }
    write(buffer, at + extras_bytes)?;
    buffer.push(Entry { source: row.index(), kind, extras, port, topic, payload: (at as u32, size as u32) });
    Ok(())
}
