//! Writing values into frames: the Rust values that a field takes.
//!
//! A text or bytes value that lies in the input's heap (a field read with `get`, or a part of it) is written as a reference of 8
//! bytes; all else is copied once to its final place in the output buffer.

use crate::{
    buffer::Buffer,
    error::{Error, Result},
    layout::{Kind, Layout},
    read::{Bytes, List, Map, Symbol, Text, Type},
};

/// Where the batch's heap lies, so that values from it are recognised.
#[derive(Clone, Copy)]
pub(crate) struct Heap<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: u32,
}

impl Heap<'_> {
    /// The reference of bytes that lie in the heap. An address is only compared, never used.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<(u32, u32)> {
        let from = (bytes.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        (!bytes.is_empty() && from < self.bytes.len()).then(|| (self.at + from as u32, bytes.len() as u32))
    }
}

/// What writing needs: the buffer for cells, the input's heap, the table.
pub struct Pen<'p> {
    pub(crate) buffer: &'p mut Buffer,
    pub(crate) heap: Heap<'p>,
    pub(crate) layout: &'p Layout,
}

impl Pen<'_> {
    /// Reference of bytes: into the input where they lie there.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> (u32, u32) {
        self.heap.find(bytes).unwrap_or_else(|| self.buffer.data(bytes))
    }
}

/// The frame that a value is written to: a row's own, or one inside the buffer.
pub(crate) enum Place<'f> {
    Row(&'f mut [u8]),
    Buffer(usize),
}

/// A value's place, as `read::At`, for writing.
pub struct Spot<'f> {
    pub(crate) frame: Place<'f>,
    pub(crate) bit: u32,
    pub(crate) slots_at: usize,
    pub(crate) node: u32,
}

impl Spot<'_> {
    /// The same place with another type.
    pub(crate) fn part(&mut self, bits: u32, slots: u32, node: u32) -> Spot<'_> {
        let frame = match &mut self.frame {
            Place::Row(frame) => Place::Row(frame),
            Place::Buffer(at) => Place::Buffer(*at),
        };
        Spot { frame, bit: self.bit + bits, slots_at: self.slots_at + 8 * slots as usize, node }
    }

    pub(crate) fn put_u64(&mut self, pen: &mut Pen<'_>, slot: u32, value: u64) {
        let at = self.slots_at + 8 * slot as usize;
        match &mut self.frame {
            Place::Row(frame) => frame[at..at + 8].copy_from_slice(&value.to_le_bytes()),
            Place::Buffer(base) => pen.buffer.put_u64(*base + at, value),
        }
    }

    pub(crate) fn put_reference(&mut self, pen: &mut Pen<'_>, (off, len): (u32, u32)) {
        self.put_u64(pen, 0, u64::from(len) << 32 | u64::from(off));
    }

    pub(crate) fn put_bit(&mut self, pen: &mut Pen<'_>, bit: u32, on: bool) {
        let bit = self.bit + bit;
        let byte = match &mut self.frame {
            Place::Row(frame) => &mut frame[bit as usize / 8],
            Place::Buffer(base) => &mut pen.buffer.bytes[*base + bit as usize / 8],
        };
        *byte = *byte & !(1 << (bit % 8)) | u8::from(on) << (bit % 8);
    }

    /// Null: the node's own bit and all beneath it set, slots zero.
    pub(crate) fn put_null(&mut self, pen: &mut Pen<'_>) -> Result {
        let node = pen.layout.node(self.node);
        let (slots, bits) = (node.slots, node.null_bits);
        match node.kind {
            Kind::Null => return Ok(()),
            Kind::Nullable(_) => {}
            _ => {
                return Err(Error::new("the field cannot be null; set the record around it to null"));
            }
        }
        for bit in 0..bits {
            self.put_bit(pen, bit, true);
        }
        for slot in 0..slots {
            self.put_u64(pen, slot, 0);
        }
        Ok(())
    }

    /// Not null: writes the value beneath, then clears the bit.
    pub(crate) fn put_some(
        &mut self,
        pen: &mut Pen<'_>,
        write: impl FnOnce(&mut Pen<'_>, &mut Spot<'_>) -> Result,
    ) -> Result {
        let Kind::Nullable(inner) = pen.layout.node(self.node).kind else {
            return write(pen, self);
        };
        write(pen, &mut self.part(1, 0, inner))?;
        self.put_bit(pen, 0, false);
        Ok(())
    }

    /// Elements of an array: cells are reserved first, each element is written at its place.
    pub(crate) fn put_elements<I: ExactSizeIterator>(
        &mut self,
        pen: &mut Pen<'_>,
        items: I,
        mut write: impl FnMut(&mut Pen<'_>, &mut Spot<'_>, I::Item) -> Result,
    ) -> Result {
        let Kind::Array(item) = pen.layout.node(self.node).kind else { unreachable!("the type was checked in open") };
        let (stride, words) =
            (pen.layout.node(item).frame_bytes() as usize, pen.layout.node(item).null_words() as usize);
        let count = items.len();
        let at = if count * stride == 0 { None } else { Some(pen.buffer.cell(count * stride)) };
        let base = at.unwrap_or(0);
        let mut written = 0;
        for (i, value) in items.take(count).enumerate() {
            let frame = Place::Buffer(base + i * stride);
            write(pen, &mut Spot { frame, bit: 0, slots_at: 8 * words, node: item }, value)?;
            written += 1;
        }
        if written != count {
            return Err(Error::new("an iterator gave fewer elements than it said"));
        }
        let off = at.map_or(0, |at| pen.buffer.offset(at));
        self.put_reference(pen, (off, count as u32));
        Ok(())
    }

    /// Entries of a map, as `put_elements`.
    pub(crate) fn put_entries<K: AsRef<str>, V>(
        &mut self,
        pen: &mut Pen<'_>,
        items: impl ExactSizeIterator<Item = (K, V)>,
        mut write: impl FnMut(&mut Pen<'_>, &mut Spot<'_>, V) -> Result,
    ) -> Result {
        let Kind::Map(value) = pen.layout.node(self.node).kind else { unreachable!("the type was checked in open") };
        let node = pen.layout.node(value);
        let (stride, words) = (node.frame_bytes() as usize + 8, 8 * node.null_words() as usize);
        let count = items.len();
        let at = if count == 0 { None } else { Some(pen.buffer.cell(count * stride)) };
        let base = at.unwrap_or(0);
        let mut written = 0;
        for (i, (key, item)) in items.take(count).enumerate() {
            let entry = base + i * stride;
            let key = pen.data(key.as_ref().as_bytes());
            pen.buffer.put_reference(entry + words, key);
            write(pen, &mut Spot { frame: Place::Buffer(entry), bit: 0, slots_at: words + 8, node: value }, item)?;
            written += 1;
        }
        if written != count {
            return Err(Error::new("an iterator gave fewer entries than it said"));
        }
        let off = at.map_or(0, |at| pen.buffer.offset(at));
        self.put_reference(pen, (off, count as u32));
        Ok(())
    }

    /// The frame of a box or branch: reserved, then written.
    pub(crate) fn put_frame(
        &mut self,
        pen: &mut Pen<'_>,
        node: u32,
        second: u32,
        write: impl FnOnce(&mut Pen<'_>, &mut Spot<'_>) -> Result,
    ) -> Result {
        let (size, words) = (pen.layout.node(node).frame_bytes() as usize, pen.layout.node(node).null_words() as usize);
        let at = if size == 0 { None } else { Some(pen.buffer.cell(size)) };
        let off = at.map_or(0, |at| pen.buffer.offset(at));
        write(pen, &mut Spot { frame: Place::Buffer(at.unwrap_or(0)), bit: 0, slots_at: 8 * words, node })?;
        self.put_reference(pen, (off, second));
        Ok(())
    }
}

/// A value that a field of type `T` takes. Implemented for the obvious Rust types and for [`Value`](crate::Value) (all of Avro).
pub trait Put<T: Type> {
    #[doc(hidden)]
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result;
}

macro_rules! scalar {
    ($type:ty, |$value:ident| $slot:expr) => {
        impl Put<$type> for $type {
            #[inline]
            fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
                let $value = self;
                spot.put_u64(pen, 0, $slot);
                Ok(())
            }
        }
    };
}

scalar!(bool, |v| u64::from(v));
scalar!(i32, |v| i64::from(v) as u64);
scalar!(f32, |v| f64::from(v).to_bits());

impl Put<i64> for i64 {
    #[inline]
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        if matches!(pen.layout.node(spot.node).kind, Kind::Int) && i32::try_from(self).is_err() {
            return Err(Error::new(format!("{self} does not fit an int field")));
        }
        spot.put_u64(pen, 0, self as u64);
        Ok(())
    }
}

impl Put<f64> for f64 {
    #[inline]
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        let mut value = self;
        if matches!(pen.layout.node(spot.node).kind, Kind::Float) {
            value = f64::from(self as f32);
            if self.is_finite() && !value.is_finite() {
                return Err(Error::new(format!("{self} does not fit a float field")));
            }
        }
        spot.put_u64(pen, 0, value.to_bits());
        Ok(())
    }
}

impl Put<Symbol> for Symbol {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        match &pen.layout.node(spot.node).kind {
            Kind::Enum(symbols) if (self.0 as usize) < symbols.len() => {}
            _ => {
                return Err(Error::new(format!("the enum has no symbol number {}", self.0)));
            }
        }
        spot.put_u64(pen, 0, u64::from(self.0));
        Ok(())
    }
}

impl Put<Text> for &str {
    #[inline]
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        let reference = pen.data(self.as_bytes());
        spot.put_reference(pen, reference);
        Ok(())
    }
}

impl Put<Text> for &String {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        Put::<Text>::put(self.as_str(), pen, spot)
    }
}

impl Put<Text> for String {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        Put::<Text>::put(self.as_str(), pen, spot)
    }
}

impl Put<Bytes> for &[u8] {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        if let Kind::Fixed(size) = pen.layout.node(spot.node).kind
            && self.len() != size as usize
        {
            return Err(Error::new(format!("{} bytes do not fit a fixed field of {size}", self.len())));
        }
        let reference = pen.data(self);
        spot.put_reference(pen, reference);
        Ok(())
    }
}

impl<const N: usize> Put<Bytes> for &[u8; N] {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        Put::<Bytes>::put(self.as_slice(), pen, spot)
    }
}

impl<T: Type, V: Put<T>> Put<Option<T>> for Option<V> {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        match self {
            Some(value) => spot.put_some(pen, |pen, spot| value.put(pen, spot)),
            None => spot.put_null(pen),
        }
    }
}

/// Elements for an array field from any iterator that knows its length: `row.set(tags, Items(names.iter().map(|n| n.as_str())))`.
pub struct Items<I>(pub I);

impl<T: Type, I: IntoIterator> Put<List<T>> for Items<I>
where
    I::IntoIter: ExactSizeIterator,
    I::Item: Put<T>,
{
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        spot.put_elements(pen, self.0.into_iter(), |pen, spot, value| value.put(pen, spot))
    }
}

impl<T: Type, V: Put<T> + Copy> Put<List<T>> for &[V] {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        spot.put_elements(pen, self.iter().copied(), |pen, spot, value| value.put(pen, spot))
    }
}

impl<T: Type, V: Put<T> + Copy, const N: usize> Put<List<T>> for [V; N] {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        Put::<List<T>>::put(self.as_slice(), pen, spot)
    }
}

impl<T: Type, V: Put<T> + Copy> Put<List<T>> for &Vec<V> {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        Put::<List<T>>::put(self.as_slice(), pen, spot)
    }
}

/// Entries for a map field from any iterator of keys and values that knows its length.
pub struct Entries<I>(pub I);

impl<T: Type, K: AsRef<str>, V: Put<T>, I: IntoIterator<Item = (K, V)>> Put<Map<T>> for Entries<I>
where
    I::IntoIter: ExactSizeIterator,
{
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        spot.put_entries(pen, self.0.into_iter(), |pen, spot, value| value.put(pen, spot))
    }
}

impl<T: Type, K: AsRef<str> + Copy, V: Put<T> + Copy> Put<Map<T>> for &[(K, V)] {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        spot.put_entries(pen, self.iter().copied(), |pen, spot, value| value.put(pen, spot))
    }
}
