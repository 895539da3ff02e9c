//! Handles: a field's place, resolved from its path once in `open`, with the Rust type that it is read as.

use crate::layout::{NONE, Place};
use std::{fmt, marker::PhantomData};

/// A field of the input row, of an output port's rows, or of a record inside an array or map.
///
/// `T` is the type of the value: `bool`, `i32`, `i64`, `f32`, `f64`, [`Text`](crate::Text), [`Bytes`](crate::Bytes),
/// [`Symbol`](crate::Symbol), `Option<T>`, [`List<T>`](crate::List), [`Map<T>`](crate::Map), [`Struct`](crate::Struct),
/// [`Union`](crate::Union), [`Any`](crate::Any). Copy it freely; it is a few numbers.
pub struct Field<T> {
    pub(crate) layout: u32,
    pub(crate) scope: u32,
    pub(crate) node: u32,
    pub(crate) slot: u32,
    pub(crate) bit: u32,
    pub(crate) number: u32,
    pub(crate) under: u32,
    kind: PhantomData<fn() -> T>,
}

impl<T> Field<T> {
    pub(crate) fn new(layout: u32, scope: u32, place: Place) -> Field<T> {
        let Place { node, slot, bit, number, under } = place;
        Field { layout, scope, node, slot, bit, number, under, kind: PhantomData }
    }

    /// The field's number, as patches name it; none for the root.
    pub fn number(&self) -> Option<u32> {
        (self.number != NONE).then_some(self.number)
    }
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Field<T> {
        *self
    }
}

impl<T> Copy for Field<T> {}

impl<T> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Field(layout {}, number {}, slot {})", self.layout, self.number, self.slot)
    }
}
