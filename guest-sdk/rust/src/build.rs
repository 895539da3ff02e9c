//! A new record on an avro port: its fields are set one by one, then it is emitted.
//!
//! The frame begins as "all that may be null is null, nothing else is set"; `emit` refuses a record with a field missing, since the host
//! applies no defaults to outputs.

use crate::{
    buffer::{Buffer, Entry},
    context::PortInfo,
    error::{Error, Result},
    field::Field,
    layout::{Layout, NONE},
    read::{Type, bit_at, u64_at},
    row::{Row, check_same_type},
    write::{Heap, Pen, Place, Put, Spot},
};
use std::cell::RefCell;

/// A record being built.
#[must_use = "a record that is not emitted is lost"]
pub struct Build<'o> {
    buffer: &'o RefCell<Buffer>,
    port: &'o PortInfo,
    layout: &'o Layout,
    heap: Heap<'o>,
    entry: Entry,
    /// Position of the frame in the buffer.
    at: usize,
}

impl<'o> Build<'o> {
    pub(crate) fn new(
        buffer: &'o RefCell<Buffer>,
        port: &'o PortInfo,
        layout: &'o Layout,
        heap: Heap<'o>,
        entry: Entry,
        at: usize,
    ) -> Build<'o> {
        let mut b = buffer.borrow_mut();
        b.marks.clear();
        b.marks.resize(layout.numbers(0) as usize / 64 + 1, 0);
        for bit in 0..layout.node(0).null_bits {
            b.bytes[at + bit as usize / 8] |= 1 << (bit % 8);
        }
        drop(b);
        Build { buffer, port, layout, heap, entry, at }
    }

    /// Sets a field. A nullable record around it becomes not null; its other fields are then wanted too.
    ///
    /// Errors: a value that does not fit the field's Avro type.
    ///
    /// # Panics
    /// If the handle is not of this port's root record.
    pub fn set<T: Type>(&mut self, field: Field<T>, value: impl Put<T>) -> Result {
        let mut buffer = self.open(field);
        let mut pen = Pen { buffer: &mut buffer, heap: self.heap, layout: self.layout };
        value.put(&mut pen, &mut self.spot(field))?;
        self.mark(&mut buffer, field);
        Ok(())
    }

    /// Gives a field the value of a field of the source row, whatever it is: 8 bytes for a text, an array or a map, nothing is copied.
    ///
    /// Errors: fields of different Avro types.
    pub fn copy<T: Type>(&mut self, to: Field<T>, row: &Row<'_>, from: Field<T>) -> Result {
        row.check(from);
        let mut buffer = self.open(to);
        check_same_type(row.layout(), from.node, self.layout, to.node, &mut buffer)?;
        let node = self.layout.node(to.node);
        let mut pen = Pen { buffer: &mut buffer, heap: self.heap, layout: self.layout };
        let mut spot = self.spot(to);
        let frame = row.frame();
        for slot in 0..node.slots {
            spot.put_u64(&mut pen, slot, u64_at(frame, row.slots_at() + 8 * (from.slot + slot) as usize));
        }
        for bit in 0..node.null_bits {
            spot.put_bit(&mut pen, bit, bit_at(frame, from.bit + bit));
        }
        self.mark(&mut buffer, to);
        Ok(())
    }

    /// Hands the record over.
    ///
    /// Errors: a field that is neither set nor nullable, named.
    pub fn emit(self) -> Result {
        let mut buffer = self.buffer.borrow_mut();
        let frame = &buffer.bytes[self.at..];
        let missing = self.port.leaves.iter().find(|leaf| {
            let marked = buffer.marks[leaf.number as usize / 64] >> (leaf.number % 64) & 1 == 1;
            !marked && !leaf.null_bits.iter().any(|bit| bit_at(frame, *bit))
        });
        if let Some(leaf) = missing {
            return Err(Error::new(format!("field {:?} of the new record is not set", leaf.path)));
        }
        buffer.push(self.entry);
        Ok(())
    }

    /// Checks the handle and opens the nullable records around the field.
    fn open<T>(&self, field: Field<T>) -> std::cell::RefMut<'o, Buffer> {
        assert!(
            field.layout == self.layout.id() && field.scope == 0,
            "a field handle of another record or port was used on a new record"
        );
        let mut buffer = self.buffer.borrow_mut();
        if field.under != NONE {
            for bit in &self.port.around[field.number as usize] {
                buffer.bytes[self.at + *bit as usize / 8] &= !(1 << (bit % 8));
            }
        }
        buffer
    }

    fn spot<T>(&self, field: Field<T>) -> Spot<'static> {
        let slots_at = 8 * (self.layout.node(0).null_words() + field.slot) as usize;
        Spot { frame: Place::Buffer(self.at), bit: field.bit, slots_at, node: field.node }
    }

    /// Remembers the field and all that lies in it as set.
    fn mark<T>(&self, buffer: &mut Buffer, field: Field<T>) {
        let first = if field.number == NONE { 0 } else { field.number };
        for number in first..=first + self.layout.numbers(field.node) {
            if let Some(word) = buffer.marks.get_mut(number as usize / 64) {
                *word |= 1 << (number % 64);
            }
        }
    }
}
