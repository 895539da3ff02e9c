//! Reading frames: where a value lies, and the Rust types that can stand for it.
//!
//! Every load is by bytes, since the buffer may lie at an odd address. The host is trusted here: a reference outside the buffer ends in a
//! panic by Rust's own bounds checks, never in undefined behaviour.

use crate::{
    arena::Arena,
    layout::{Kind, Layout, NONE},
    views::{Any, AnyValue, ListView, MapView, StructView, UnionView},
};
use std::marker::PhantomData;

/// From here references point into the output buffer.
pub(crate) const HIGH: u32 = 1 << 31;
/// Length of a null key or header value.
pub(crate) const NULL: u32 = u32::MAX;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut b = [0; 4];
    b.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(b)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(b)
}

pub(crate) fn bit_at(frame: &[u8], bit: u32) -> bool {
    frame[bit as usize / 8] >> (bit % 8) & 1 == 1
}

/// What references point into, and the table that explains them.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// The input's heap; its first byte has offset `heap_at`.
    pub(crate) heap: &'a [u8],
    pub(crate) heap_at: u32,
    /// What was set on this row; its first byte has offset `HIGH + out_at`.
    pub(crate) out: &'a [u8],
    pub(crate) out_at: u32,
    pub(crate) arena: &'a Arena,
    pub(crate) layout: &'a Layout,
}

impl<'a> Memory<'a> {
    pub(crate) fn bytes(&self, off: u32, len: usize) -> &'a [u8] {
        if len == 0 {
            return &[];
        }
        let (bytes, base) = if off < HIGH { (self.heap, self.heap_at) } else { (self.out, HIGH + self.out_at) };
        let from = (off - base) as usize;
        &bytes[from..from + len]
    }
}

/// A value's place: the frame that it lies in and where there.
pub struct At<'f, 'a> {
    /// Null words at the start.
    pub(crate) frame: &'f [u8],
    /// The same frame, where it lives as long as the batch.
    pub(crate) lasting: Option<&'a [u8]>,
    pub(crate) bit: u32,
    /// Byte position of the value's first slot in the frame.
    pub(crate) slots_at: usize,
    pub(crate) node: u32,
    /// Null bit of the nearest nullable record around it, or `NONE`.
    pub(crate) under: u32,
    pub(crate) memory: Memory<'a>,
}

impl<'f, 'a> At<'f, 'a> {
    /// The root value of a frame that lies in a heap.
    pub(crate) fn root(frame: &'a [u8], node: u32, memory: Memory<'a>) -> At<'a, 'a> {
        let slots_at = 8 * memory.layout.node(node).null_words() as usize;
        At { frame, lasting: Some(frame), bit: 0, slots_at, node, under: NONE, memory }
    }

    pub(crate) fn slot(&self) -> u64 {
        u64_at(self.frame, self.slots_at)
    }

    /// Offset and length (or count, branch) of a reference.
    pub(crate) fn reference(&self) -> (u32, u32) {
        (u32_at(self.frame, self.slots_at), u32_at(self.frame, self.slots_at + 4))
    }

    pub(crate) fn kind(&self) -> &'a Kind {
        &self.memory.layout.node(self.node).kind
    }

    /// The value beneath a nullable that is not null.
    pub(crate) fn beneath(&self, inner: u32) -> At<'f, 'a> {
        At { bit: self.bit + 1, node: inner, under: NONE, ..*self }
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        let (off, len) = self.reference();
        self.memory.bytes(off, len as usize)
    }

    /// The frame that a box or union branch refers to.
    pub(crate) fn frame_of(&self, node: u32) -> At<'a, 'a> {
        let size = self.memory.layout.node(node).frame_bytes() as usize;
        At::root(self.memory.bytes(self.reference().0, size), node, self.memory)
    }

    pub(crate) fn is_null(&self) -> bool {
        match self.kind() {
            Kind::Nullable(_) => bit_at(self.frame, self.bit),
            Kind::Null => true,
            _ => self.under != NONE && bit_at(self.frame, self.under),
        }
    }
}

/// A type that a field can be read as. Implemented here for all that there are.
pub trait Type: Sized + 'static {
    /// What reading gives; it lives as long as the batch, so it does not hinder `set`.
    type Value<'a>;
    /// Whether it can say "null".
    const OPTIONAL: bool = false;
    #[doc(hidden)]
    fn accepts(layout: &Layout, node: u32) -> bool;
    #[doc(hidden)]
    fn name() -> String;
    #[doc(hidden)]
    fn read<'a>(at: &At<'_, 'a>) -> Self::Value<'a>;
}

/// A string field; reading gives `&str`.
pub type Text = &'static str;
/// A bytes or fixed field (decimals, uuids and durations too, as they lie in the record); reading gives `&[u8]`.
pub type Bytes = &'static [u8];
/// An enum's symbol, by its index in the reader schema. [`Layout::symbol`] finds it by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(pub u32);
/// An array field; reading gives a [`ListView`].
pub struct List<T>(PhantomData<fn() -> T>);
/// A map field; reading gives a [`MapView`].
pub struct Map<T>(PhantomData<fn() -> T>);
/// A record as a whole, boxed or in place; reading gives a [`StructView`].
pub struct Struct;
/// A union of more than null and one type; reading gives a [`UnionView`].
pub struct Union;

macro_rules! scalar {
    ($type:ty, $name:literal, $value:ty, [$($kind:pat),+], $at:ident => $read:expr) => {
        impl Type for $type {
            type Value<'a> = $value;
            fn accepts(layout: &Layout, node: u32) -> bool {
                matches!(layout.node(node).kind, $($kind)|+)
            }
            fn name() -> String {
                $name.into()
            }
            #[inline]
            fn read<'a>($at: &At<'_, 'a>) -> Self::Value<'a> {
                $read
            }
        }
    };
}

scalar! { bool, "bool", bool, [Kind::Boolean], at => at.slot() != 0 }
scalar! { i32, "i32", i32, [Kind::Int], at => at.slot() as i32 }
scalar! { i64, "i64", i64, [Kind::Int, Kind::Long], at => at.slot() as i64 }
scalar! { f32, "f32", f32, [Kind::Float], at => f64::from_bits(at.slot()) as f32 }
scalar! { f64, "f64", f64, [Kind::Float, Kind::Double], at => f64::from_bits(at.slot()) }
scalar! { Symbol, "Symbol", Symbol, [Kind::Enum(_)], at => Symbol(at.slot() as u32) }
scalar! { Text, "Text", &'a str, [Kind::Text], at => text(at.bytes()) }
scalar! { Bytes, "Bytes", &'a [u8], [Kind::Bytes, Kind::Fixed(_)], at => at.bytes() }
scalar! { Struct, "Struct", StructView<'a>, [Kind::Struct(_), Kind::Boxed(_)], at => StructView::at(at) }
scalar! { Union, "Union", UnionView<'a>, [Kind::Union(_)], at => UnionView::at(at) }

/// The host checked the text when it decoded the record.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the host checks that strings are UTF-8")
}

impl<T: Type> Type for Option<T> {
    type Value<'a> = Option<T::Value<'a>>;
    const OPTIONAL: bool = true;
    fn accepts(layout: &Layout, node: u32) -> bool {
        match layout.node(node).kind {
            Kind::Nullable(inner) => T::accepts(layout, inner),
            _ => T::accepts(layout, node),
        }
    }
    fn name() -> String {
        format!("Option<{}>", T::name())
    }
    #[inline]
    fn read<'a>(at: &At<'_, 'a>) -> Self::Value<'a> {
        if at.is_null() {
            return None;
        }
        Some(match at.kind() {
            Kind::Nullable(inner) => T::read(&at.beneath(*inner)),
            _ => T::read(at),
        })
    }
}

impl<T: Type> Type for List<T> {
    type Value<'a> = ListView<'a, T>;
    fn accepts(layout: &Layout, node: u32) -> bool {
        matches!(layout.node(node).kind, Kind::Array(item) if T::accepts(layout, item))
    }
    fn name() -> String {
        format!("List<{}>", T::name())
    }
    fn read<'a>(at: &At<'_, 'a>) -> Self::Value<'a> {
        ListView::at(at)
    }
}

impl<T: Type> Type for Map<T> {
    type Value<'a> = MapView<'a, T>;
    fn accepts(layout: &Layout, node: u32) -> bool {
        matches!(layout.node(node).kind, Kind::Map(value) if T::accepts(layout, value))
    }
    fn name() -> String {
        format!("Map<{}>", T::name())
    }
    fn read<'a>(at: &At<'_, 'a>) -> Self::Value<'a> {
        MapView::at(at)
    }
}

impl Type for Any {
    type Value<'a> = AnyValue<'a>;
    const OPTIONAL: bool = true;
    fn accepts(_: &Layout, _: u32) -> bool {
        true
    }
    fn name() -> String {
        "Any".into()
    }
    fn read<'a>(at: &At<'_, 'a>) -> Self::Value<'a> {
        AnyValue::at(at)
    }
}
