//! Owned values of any Avro type: for records inside arrays, for unions, for tests. Convenient, not the fast way.

use crate::{
    error::{Error, Result},
    layout::Kind,
    read::{Bytes, Symbol, Type},
    views::AnyValue,
    write::{Pen, Put, Spot},
};

/// A value of any Avro type. `row.set(field, &value)` takes it where it fits the field's type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Null.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An int or long; fits a double field too, where it is exact.
    Long(i64),
    /// A float or double.
    Double(f64),
    /// Bytes or a fixed.
    Bytes(Vec<u8>),
    /// A string, or an enum's symbol by name.
    Text(String),
    /// Elements of an array.
    List(Vec<Value>),
    /// Entries of a map.
    Map(Vec<(String, Value)>),
    /// Fields of a record, each stated once, in any order.
    Struct(Vec<(String, Value)>),
    /// A union's branch by index, and its value.
    Union(u32, Box<Value>),
}

impl Value {
    /// The field of a struct or the last entry of a map.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Struct(fields) => fields.iter().find(|f| f.0 == name).map(|f| &f.1),
            Value::Map(entries) => entries.iter().rev().find(|e| e.0 == name).map(|e| &e.1),
            _ => None,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean(_) => "a boolean",
            Value::Long(_) => "an integer",
            Value::Double(_) => "a number",
            Value::Bytes(_) => "bytes",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Struct(_) => "a record",
            Value::Union(..) => "a union's branch",
        }
    }
}

impl<T: Type> Put<T> for &Value {
    fn put(self, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
        put(self, pen, spot)
    }
}

fn put(value: &Value, pen: &mut Pen<'_>, spot: &mut Spot<'_>) -> Result {
    let layout = pen.layout;
    let kind = &layout.node(spot.node).kind;
    match (kind, value) {
        (Kind::Nullable(_) | Kind::Null, Value::Null) => spot.put_null(pen),
        (Kind::Nullable(_), _) => spot.put_some(pen, |pen, spot| put(value, pen, spot)),
        (Kind::Boolean, Value::Boolean(v)) => v.put(pen, spot),
        (Kind::Int | Kind::Long, Value::Long(v)) => v.put(pen, spot),
        (Kind::Float | Kind::Double, Value::Double(v)) => v.put(pen, spot),
        (Kind::Float | Kind::Double, Value::Long(v)) if (*v as f64) as i64 == *v => (*v as f64).put(pen, spot),
        (Kind::Bytes | Kind::Fixed(_), Value::Bytes(v)) => Put::<Bytes>::put(v.as_slice(), pen, spot),
        (Kind::Text, Value::Text(v)) => v.as_str().put(pen, spot),
        (Kind::Enum(symbols), Value::Text(v)) => match symbols.iter().position(|s| s == v) {
            Some(i) => Symbol(i as u32).put(pen, spot),
            None => Err(Error::new(format!("the enum has no symbol {v:?}: it has {}", symbols.join(", ")))),
        },
        (Kind::Array(_), Value::List(items)) => spot.put_elements(pen, items.iter(), |pen, spot, v| put(v, pen, spot)),
        (Kind::Map(_), Value::Map(entries)) => {
            spot.put_entries(pen, entries.iter().map(|(k, v)| (k, v)), |pen, spot, v| put(v, pen, spot))
        }
        (Kind::Struct(fields), Value::Struct(values)) => {
            if let Some((name, _)) = values.iter().find(|v| !fields.iter().any(|f| f.name == v.0)) {
                return Err(Error::new(format!("the record has no field {name:?}")));
            }
            for field in fields {
                let Some(v) = value.get(&field.name) else {
                    return Err(Error::new(format!("field {:?} is missing: every field is stated", field.name)));
                };
                put(v, pen, &mut spot.part(field.null_bit, field.slot, field.node))?;
            }
            Ok(())
        }
        (Kind::Boxed(node), Value::Struct(_)) => spot.put_frame(pen, *node, 1, |pen, spot| put(value, pen, spot)),
        (Kind::Union(branches), Value::Union(branch, v)) => match branches.get(*branch as usize) {
            Some(node) => spot.put_frame(pen, *node, *branch, |pen, spot| put(v, pen, spot)),
            None => Err(Error::new(format!("the union has no branch {branch}"))),
        },
        _ => Err(Error::new(format!(
            "{} does not fit a field of type {}",
            value.kind(),
            layout.node(spot.node).kind_name()
        ))),
    }
}

impl From<AnyValue<'_>> for Value {
    fn from(value: AnyValue<'_>) -> Value {
        match value {
            AnyValue::Null => Value::Null,
            AnyValue::Boolean(v) => Value::Boolean(v),
            AnyValue::Int(v) => Value::Long(v.into()),
            AnyValue::Long(v) => Value::Long(v),
            AnyValue::Float(v) => Value::Double(v.into()),
            AnyValue::Double(v) => Value::Double(v),
            AnyValue::Bytes(v) | AnyValue::Fixed(v) => Value::Bytes(v.to_vec()),
            AnyValue::Text(v) => Value::Text(v.into()),
            AnyValue::Symbol(_, name) => Value::Text(name.into()),
            AnyValue::Struct(v) => Value::Struct(v.iter().map(|(name, v)| (name.to_owned(), v.into())).collect()),
            AnyValue::List(v) => Value::List(v.iter().map(Value::from).collect()),
            AnyValue::Map(v) => Value::Map(v.iter().map(|(key, v)| (key.to_owned(), v.into())).collect()),
            AnyValue::Union(v) => Value::Union(v.branch(), Box::new(v.any().into())),
        }
    }
}
