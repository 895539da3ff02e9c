//! Views of composite values: arrays, maps, records, unions and values of any type. They copy nothing and are read as they are walked.

use crate::{
    field::Field,
    layout::{Kind, Layout, NONE},
    read::{At, Memory, Symbol, Type, text, u32_at},
};
use std::{fmt, marker::PhantomData};

/// The elements of an array, in order.
pub struct ListView<'a, T> {
    cells: &'a [u8],
    stride: usize,
    count: usize,
    node: u32,
    memory: Memory<'a>,
    item: PhantomData<fn() -> T>,
}

impl<'a, T: Type> ListView<'a, T> {
    pub(crate) fn at(at: &At<'_, 'a>) -> ListView<'a, T> {
        let Kind::Array(node) = *at.kind() else { unreachable!("the type was checked in open") };
        let (off, count) = at.reference();
        let stride = at.memory.layout.node(node).frame_bytes() as usize;
        let cells = at.memory.bytes(off, stride * count as usize);
        ListView { cells, stride, count: count as usize, node, memory: at.memory, item: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The element at an index.
    pub fn get(&self, index: usize) -> Option<T::Value<'a>> {
        (index < self.count).then(|| {
            let frame = &self.cells[index * self.stride..(index + 1) * self.stride];
            T::read(&At::root(frame, self.node, self.memory))
        })
    }

    /// The elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T::Value<'a>> + use<'a, T> {
        let view = *self;
        (0..view.count).map(move |i| view.get(i).expect("below the count"))
    }
}

impl<T> Clone for ListView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ListView<'_, T> {}

/// The entries of a map, in the record's order, repeated keys included.
pub struct MapView<'a, T> {
    cells: &'a [u8],
    stride: usize,
    count: usize,
    node: u32,
    words: usize,
    memory: Memory<'a>,
    value: PhantomData<fn() -> T>,
}

impl<'a, T: Type> MapView<'a, T> {
    pub(crate) fn at(at: &At<'_, 'a>) -> MapView<'a, T> {
        let Kind::Map(node) = *at.kind() else { unreachable!("the type was checked in open") };
        let (off, count) = at.reference();
        let value = at.memory.layout.node(node);
        let stride = value.frame_bytes() as usize + 8;
        let cells = at.memory.bytes(off, stride * count as usize);
        let words = 8 * value.null_words() as usize;
        MapView { cells, stride, count: count as usize, node, words, memory: at.memory, value: PhantomData }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value of a key: the last one, where the key is repeated.
    pub fn get(&self, key: &str) -> Option<T::Value<'a>> {
        (0..self.count).rev().find(|i| self.key(*i) == key).map(|i| self.value(i))
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, T::Value<'a>)> + use<'a, T> {
        let view = *self;
        (0..view.count).map(move |i| (view.key(i), view.value(i)))
    }

    fn entry(&self, index: usize) -> &'a [u8] {
        &self.cells[index * self.stride..(index + 1) * self.stride]
    }

    fn key(&self, index: usize) -> &'a str {
        let entry = self.entry(index);
        text(self.memory.bytes(u32_at(entry, self.words), u32_at(entry, self.words + 4) as usize))
    }

    fn value(&self, index: usize) -> T::Value<'a> {
        let entry = self.entry(index);
        let (slots_at, node, memory) = (self.words + 8, self.node, self.memory);
        T::read(&At { frame: entry, lasting: Some(entry), bit: 0, slots_at, node, under: NONE, memory })
    }
}

impl<T> Clone for MapView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MapView<'_, T> {}

/// A record: an element, an entry's value, a branch, a box, or a record that lies in place.
#[derive(Clone, Copy)]
pub struct StructView<'a> {
    frame: &'a [u8],
    bit: u32,
    slots_at: usize,
    node: u32,
    memory: Memory<'a>,
}

impl<'a> StructView<'a> {
    pub(crate) fn at(at: &At<'_, 'a>) -> StructView<'a> {
        if let Kind::Boxed(node) = *at.kind() {
            return StructView::at(&at.frame_of(node));
        }
        let frame = at.lasting.unwrap_or_else(|| at.memory.arena.keep(at.frame));
        StructView { frame, bit: at.bit, slots_at: at.slots_at, node: at.node, memory: at.memory }
    }

    /// The value of a field; the handle comes from [`Layout::inner`] (from [`Layout::field`] for the root record).
    ///
    /// # Panics
    /// If the handle belongs to another record.
    pub fn get<T: Type>(&self, field: Field<T>) -> T::Value<'a> {
        assert!(
            field.layout == self.memory.layout.id() && field.scope == self.node,
            "a field handle of another record: resolve it with `inner`"
        );
        let under = if field.under == NONE { NONE } else { self.bit + field.under };
        let slots_at = self.slots_at + 8 * field.slot as usize;
        let (frame, memory) = (self.frame, self.memory);
        T::read(&At {
            frame,
            lasting: Some(frame),
            bit: self.bit + field.bit,
            slots_at,
            node: field.node,
            under,
            memory,
        })
    }

    /// Names and values in the schema's order, for transforms that do not know the schema.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, AnyValue<'a>)> + use<'a> {
        let view = *self;
        let Kind::Struct(fields) = &view.memory.layout.node(view.node).kind else { unreachable!("a view of a record") };
        fields.iter().map(move |f| {
            let (bit, slots_at) = (view.bit + f.null_bit, view.slots_at + 8 * f.slot as usize);
            let (frame, memory) = (view.frame, view.memory);
            let at = At { frame, lasting: Some(frame), bit, slots_at, node: f.node, under: NONE, memory };
            (f.name.as_str(), AnyValue::at(&at))
        })
    }
}

/// The branch that a union holds, and its value.
#[derive(Clone, Copy)]
pub struct UnionView<'a> {
    branch: u32,
    node: u32,
    frame: &'a [u8],
    memory: Memory<'a>,
}

impl<'a> UnionView<'a> {
    pub(crate) fn at(at: &At<'_, 'a>) -> UnionView<'a> {
        let Kind::Union(branches) = at.kind() else { unreachable!("the type was checked in open") };
        let branch = at.reference().1;
        let node = branches[branch as usize];
        UnionView { branch, node, frame: at.frame_of(node).frame, memory: at.memory }
    }

    /// Index of the branch in the reader schema.
    pub fn branch(&self) -> u32 {
        self.branch
    }

    /// The value, if the branch can be read as `T`.
    pub fn get<T: Type>(&self) -> Option<T::Value<'a>> {
        T::accepts(self.memory.layout, self.node).then(|| T::read(&At::root(self.frame, self.node, self.memory)))
    }

    /// The value, whatever it is.
    pub fn any(&self) -> AnyValue<'a> {
        AnyValue::at(&At::root(self.frame, self.node, self.memory))
    }
}

/// A field of any type; reading gives an [`AnyValue`].
pub struct Any;

/// A value of a type that is known only at run time.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum AnyValue<'a> {
    /// Null, or the type null.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An int.
    Int(i32),
    /// A long.
    Long(i64),
    /// A float.
    Float(f32),
    /// A double.
    Double(f64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A string.
    Text(&'a str),
    /// A fixed.
    Fixed(&'a [u8]),
    /// An enum: index and name.
    Symbol(Symbol, &'a str),
    /// A record.
    Struct(StructView<'a>),
    /// An array.
    List(ListView<'a, Any>),
    /// A map.
    Map(MapView<'a, Any>),
    /// A union's branch.
    Union(UnionView<'a>),
}

impl<'a> AnyValue<'a> {
    pub(crate) fn at(at: &At<'_, 'a>) -> AnyValue<'a> {
        if at.is_null() {
            return AnyValue::Null;
        }
        match at.kind() {
            Kind::Null => AnyValue::Null,
            Kind::Boolean => AnyValue::Boolean(bool::read(at)),
            Kind::Int => AnyValue::Int(i32::read(at)),
            Kind::Long => AnyValue::Long(i64::read(at)),
            Kind::Float => AnyValue::Float(f32::read(at)),
            Kind::Double => AnyValue::Double(f64::read(at)),
            Kind::Bytes => AnyValue::Bytes(at.bytes()),
            Kind::Fixed(_) => AnyValue::Fixed(at.bytes()),
            Kind::Text => AnyValue::Text(text(at.bytes())),
            Kind::Enum(symbols) => {
                let symbol = Symbol::read(at);
                AnyValue::Symbol(symbol, &symbols[symbol.0 as usize])
            }
            Kind::Struct(_) | Kind::Boxed(_) => AnyValue::Struct(StructView::at(at)),
            Kind::Array(_) => AnyValue::List(ListView::at(at)),
            Kind::Map(_) => AnyValue::Map(MapView::at(at)),
            Kind::Nullable(inner) => AnyValue::at(&at.beneath(*inner)),
            Kind::Union(_) => AnyValue::Union(UnionView::at(at)),
        }
    }
}

impl fmt::Debug for AnyValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::value::Value::from(*self).fmt(f)
    }
}

impl Layout {
    /// Name of a symbol of the enum at `path`, as the reader schema spells it; none if there is no such symbol.
    pub fn symbol_name(&self, path: &str, symbol: Symbol) -> Option<&str> {
        let mut node = self.place(0, path).ok()?.node;
        while let Kind::Nullable(inner) = self.node(node).kind {
            node = inner;
        }
        match &self.node(node).kind {
            Kind::Enum(symbols) => symbols.get(symbol.0 as usize).map(String::as_str),
            _ => None,
        }
    }
}
