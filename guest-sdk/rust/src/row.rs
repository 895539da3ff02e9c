//! One record as the transform sees it: typed fields, position, key, headers. Setting a field records a patch.
//!
//! The row's own bytes are the guest's copy, so `set` changes them in place and `get` sees what was set. Texts and views live as long
//! as the batch and do not hinder `set`.

use crate::{
    arena::Arena,
    buffer::{Buffer, Edit},
    error::{Error, Result},
    field::Field,
    layout::{Kind, Layout, NONE},
    read::{At, Memory, NULL, Type, bit_at, text, u16_at, u32_at, u64_at},
    views::StructView,
    write::{Heap, Pen, Place, Put, Spot},
};
use std::cell::{Cell, RefCell};

/// Bytes of a row before its frame.
pub(crate) const PREFIX_BYTES: usize = 32;

/// What all rows of a batch share.
pub(crate) struct Batch<'b> {
    pub(crate) heap: &'b [u8],
    pub(crate) heap_at: u32,
    pub(crate) topic: &'b str,
    pub(crate) partition: u32,
    pub(crate) base_offset: i64,
    pub(crate) layout: &'b Layout,
    pub(crate) key: Option<&'b Layout>,
    pub(crate) arena: &'b Arena,
    pub(crate) buffer: &'b RefCell<Buffer>,
}

/// One record. The lifetime is the batch's.
pub struct Row<'b> {
    bytes: &'b mut [u8],
    index: u32,
    batch: &'b Batch<'b>,
    /// Bytes after the prefix where the first slot lies.
    slots_at: usize,
    /// Set fields refer to the output buffer.
    refers: bool,
    /// The part of the output buffer that they refer to, as it was when last read.
    seen: Cell<Option<(usize, u32, &'b [u8])>>,
}

/// A header of a record: names and values are bytes, a value may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'b> {
    /// UTF-8 by convention.
    pub name: &'b [u8],
    /// None is null.
    pub value: Option<&'b [u8]>,
}

impl<'b> Row<'b> {
    pub(crate) fn new(bytes: &'b mut [u8], index: u32, batch: &'b Batch<'b>) -> Row<'b> {
        let slots_at = 8 * batch.layout.node(0).null_words() as usize;
        Row { bytes, index, batch, slots_at, refers: false, seen: Cell::new(None) }
    }

    /// The value of a field, as it came or as it was set. The text, list or view lives as long as the batch.
    ///
    /// # Panics
    /// If the handle is not of the input's root record.
    #[inline]
    pub fn get<T: Type>(&self, field: Field<T>) -> T::Value<'b> {
        self.check(field);
        T::read(&self.at(field))
    }

    /// Whether a field is null, or lies in a record that is.
    pub fn is_null<T: Type>(&self, field: Field<T>) -> bool {
        self.check(field);
        self.at(field).is_null()
    }

    /// Sets a field: the record that is kept afterwards carries this value, all else stays as the producer wrote it.
    ///
    /// Errors: a value that does not fit the field's Avro type; a field inside a record that is null.
    pub fn set<T: Type>(&mut self, field: Field<T>, value: impl Put<T>) -> Result {
        self.write(field, |pen, spot| value.put(pen, spot))
    }

    /// Sets a nullable field (a record too) to null.
    pub fn set_null<T: Type>(&mut self, field: Field<Option<T>>) -> Result {
        self.write(field, |pen, spot| spot.put_null(pen))
    }

    /// Gives a field the value of another one, whatever it is: 8 bytes for a text, an array or a map, nothing is copied.
    ///
    /// Errors: fields of different Avro types.
    pub fn copy<T: Type>(&mut self, to: Field<T>, from: Field<T>) -> Result {
        self.check(from);
        let layout = self.batch.layout;
        check_same_type(layout, from.node, layout, to.node, &mut self.batch.buffer.borrow_mut())?;
        let from_slot = self.slots_at + 8 * from.slot as usize;
        let node = layout.node(from.node);
        self.write(to, |pen, spot| {
            let Place::Row(frame) = &mut spot.frame else { unreachable!("a row's fields lie in the row") };
            let to_slot = spot.slots_at;
            frame.copy_within(from_slot..from_slot + 8 * node.slots as usize, to_slot);
            for k in 0..node.null_bits {
                let Place::Row(frame) = &spot.frame else { unreachable!("as above") };
                let on = bit_at(frame, from.bit + k);
                spot.put_bit(pen, k, on);
            }
            Ok(())
        })
    }

    /// Whether a field was set.
    pub fn is_edited(&self) -> bool {
        !self.batch.buffer.borrow().edits.is_empty()
    }

    fn write<T: Type>(&mut self, field: Field<T>, write: impl FnOnce(&mut Pen<'_>, &mut Spot<'_>) -> Result) -> Result {
        self.check(field);
        if self.is_tombstone() || self.decode_error().is_some() {
            return Err(Error::new("a record without a value has no field to set"));
        }
        if field.number == NONE {
            return Err(Error::new("the whole record cannot be set: set its fields or emit a new one"));
        }
        let (batch, slots_at) = (self.batch, self.slots_at);
        let frame = &mut self.bytes[PREFIX_BYTES..];
        if field.under != NONE && bit_at(frame, field.under) {
            return Err(Error::new("the field lies in a record that is null"));
        }
        let mut buffer = batch.buffer.borrow_mut();
        let before = buffer.bytes.len();
        let heap = Heap { bytes: batch.heap, at: batch.heap_at };
        let mut pen = Pen { buffer: &mut buffer, heap, layout: batch.layout };
        let slots_at = slots_at + 8 * field.slot as usize;
        write(&mut pen, &mut Spot { frame: Place::Row(frame), bit: field.bit, slots_at, node: field.node })?;
        if buffer.bytes.len() > before {
            buffer.row_refers = true;
            self.refers = true;
        }
        let inside = batch.layout.numbers(field.node);
        buffer.edit(Edit { number: field.number, inside, node: field.node, slot: field.slot, bit: field.bit });
        Ok(())
    }

    #[inline]
    pub(crate) fn check<T>(&self, field: Field<T>) {
        assert!(
            field.layout == self.batch.layout.id() && field.scope == 0,
            "a field handle of another record or port was used on an input row"
        );
    }

    #[inline]
    fn at<T>(&self, field: Field<T>) -> At<'_, 'b> {
        At {
            frame: &self.bytes[PREFIX_BYTES..],
            lasting: None,
            bit: field.bit,
            slots_at: self.slots_at + 8 * field.slot as usize,
            node: field.node,
            under: field.under,
            memory: self.memory(),
        }
    }

    #[inline]
    fn memory(&self) -> Memory<'b> {
        let Batch { heap, heap_at, layout, arena, .. } = *self.batch;
        let (out, out_at) = if self.refers { self.set_bytes() } else { (&[][..], 0) };
        Memory { heap, heap_at, out, out_at, arena, layout }
    }

    /// What was set on this row, where it lives long enough.
    fn set_bytes(&self) -> (&'b [u8], u32) {
        let buffer = self.batch.buffer.borrow();
        let (start, len) = (buffer.row_start(), buffer.bytes.len());
        match self.seen.get() {
            Some((end, at, bytes)) if end == len && at as usize == start => (bytes, at),
            _ => {
                let bytes = self.batch.arena.keep(&buffer.bytes[start..]);
                self.seen.set(Some((len, start as u32, bytes)));
                (bytes, start as u32)
            }
        }
    }

    /// Index of the row in its batch.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn frame(&self) -> &[u8] {
        &self.bytes[PREFIX_BYTES..]
    }

    pub(crate) fn slots_at(&self) -> usize {
        self.slots_at
    }

    pub(crate) fn layout(&self) -> &'b Layout {
        self.batch.layout
    }

    pub(crate) fn heap(&self) -> Heap<'b> {
        Heap { bytes: self.batch.heap, at: self.batch.heap_at }
    }

    /// The record's topic.
    pub fn topic(&self) -> &'b str {
        self.batch.topic
    }

    /// The record's partition.
    pub fn partition(&self) -> u32 {
        self.batch.partition
    }

    /// The record's offset.
    pub fn offset(&self) -> i64 {
        self.batch.base_offset + i64::from(u32_at(self.bytes, 24))
    }

    /// Milliseconds since 1970; none where the record has no timestamp.
    pub fn timestamp_ms(&self) -> Option<i64> {
        let timestamp = u64_at(self.bytes, 8) as i64;
        (timestamp != -1).then_some(timestamp)
    }

    /// Whether the timestamp is the broker's.
    pub fn append_time(&self) -> bool {
        u16_at(self.bytes, 28) & 4 != 0
    }

    /// Whether the record has no value; such rows come only if the manifest wants them.
    pub fn is_tombstone(&self) -> bool {
        u16_at(self.bytes, 28) & 1 != 0
    }

    /// Why the record could not be decoded (contract, "Decode errors"); such rows come only if the manifest wants them.
    pub fn decode_error(&self) -> Option<u16> {
        (u16_at(self.bytes, 28) & 2 != 0).then(|| u16_at(self.bytes, 30))
    }

    /// The key's bytes; none for a null key, without `want_keys`, or where the manifest has a key schema.
    pub fn key(&self) -> Option<&'b [u8]> {
        let (off, len) = (u32_at(self.bytes, 0), u32_at(self.bytes, 4));
        (len != NULL && self.batch.key.is_none()).then(|| self.plain().bytes(off, len as usize))
    }

    /// The key as a record, where the manifest has a key schema of one.
    pub fn key_record(&self) -> Option<StructView<'b>> {
        let layout = self.batch.key?;
        let (off, len) = (u32_at(self.bytes, 0), u32_at(self.bytes, 4));
        if len == NULL || !matches!(layout.node(0).kind, Kind::Struct(_)) {
            return None;
        }
        Some(StructView::at(&self.key_at(layout, off)))
    }

    /// The key as a value of a type, where the manifest has a key schema of it (a string, a long, ...).
    pub fn key_as<T: Type>(&self) -> Option<T::Value<'b>> {
        let layout = self.batch.key?;
        let (off, len) = (u32_at(self.bytes, 0), u32_at(self.bytes, 4));
        (len != NULL && T::accepts(layout, 0)).then(|| T::read(&self.key_at(layout, off)))
    }

    fn key_at(&self, layout: &'b Layout, off: u32) -> At<'b, 'b> {
        let memory = Memory { layout, ..self.plain() };
        At::root(memory.bytes(off, layout.node(0).frame_bytes() as usize), 0, memory)
    }

    fn plain(&self) -> Memory<'b> {
        let Batch { heap, heap_at, layout, arena, .. } = *self.batch;
        Memory { heap, heap_at, out: &[], out_at: 0, arena, layout }
    }

    /// The headers in Kafka's order, repeats included; empty without `want_headers`.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = Header<'b>> + use<'b> {
        let memory = self.plain();
        let (off, count) = (u32_at(self.bytes, 16), u32_at(self.bytes, 20) as usize);
        let cells = memory.bytes(off, 16 * count);
        (0..count).map(move |i| {
            let word = |k: usize| u32_at(cells, 16 * i + 4 * k);
            let value = (word(3) != NULL).then(|| memory.bytes(word(2), word(3) as usize));
            Header { name: memory.bytes(word(0), word(1) as usize), value }
        })
    }

    /// The last header of a name, as text; none if there is none, or if it is null or not UTF-8.
    pub fn header_text(&self, name: &str) -> Option<&'b str> {
        let found = self.headers().filter(|h| h.name == name.as_bytes()).last()?;
        std::str::from_utf8(found.value?).ok()
    }

    /// Name of the symbol that an enum field holds.
    pub fn symbol_name(&self, field: Field<crate::read::Symbol>) -> &'b str {
        let symbol = self.get(field).0 as usize;
        match &self.batch.layout.node(field.node).kind {
            Kind::Enum(symbols) => &symbols[symbol],
            _ => text(&[]),
        }
    }
}

/// Whether a value may be copied as it is; pairs that were found equal are remembered.
pub(crate) fn check_same_type(from: &Layout, from_node: u32, to: &Layout, to_node: u32, buffer: &mut Buffer) -> Result {
    let pair = [from.id(), from_node, to.id(), to_node];
    if buffer.same.contains(&pair) {
        return Ok(());
    }
    if !from.same_type(from_node, to, to_node) {
        return Err(Error::new(format!(
            "a value of type {} cannot be copied to a field of type {}: the types differ",
            from.node(from_node).kind_name(),
            to.node(to_node).kind_name()
        )));
    }
    buffer.same.push(pair);
    Ok(())
}
