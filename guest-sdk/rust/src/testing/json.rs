//! As much JSON as native tests need: schemas, golden files, Avro's JSON encoding. Numbers keep their text, so 64 bits stay exact.

use crate::{
    error::{Error, Result},
    layout::{Kind, Layout},
    schema::quoted,
    value::Value,
};
use std::{fmt, str::FromStr};

/// Nesting beyond this is refused.
const DEPTH_MAX: usize = 128;

/// A JSON value.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "JSON's own kinds")]
pub enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one value. Errors say the byte where reading stopped.
    pub fn parse(text: &str) -> Result<Json> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let value = parser.value()?;
        parser.space();
        if parser.at < text.len() { Err(parser.error("something follows the value")) } else { Ok(value) }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(entries) => entries.iter().find(|e| e.0 == key).map(|e| &e.1),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }

    /// The text of a key.
    pub fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    /// The elements, if it is a list.
    pub fn list(&self) -> Option<&[Json]> {
        if let Json::List(items) = self { Some(items) } else { None }
    }

    /// The number, if it is one of that type.
    pub fn number<T: FromStr>(&self) -> Result<T> {
        match self {
            Json::Number(text) => {
                text.parse().map_err(|_| Error::new(format!("{text} is no number of the wanted type")))
            }
            _ => Err(Error::new(format!("{self} is no number"))),
        }
    }
}

/// Numbers are equal by value, objects whatever their order.
impl PartialEq for Json {
    fn eq(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Null, Json::Null) => true,
            (Json::Bool(a), Json::Bool(b)) => a == b,
            (Json::Text(a), Json::Text(b)) => a == b,
            (Json::List(a), Json::List(b)) => a == b,
            (Json::Number(a), Json::Number(b)) => match (a.parse::<i64>(), b.parse::<i64>()) {
                (Ok(a), Ok(b)) => a == b,
                _ => a == b || a.parse::<f64>().ok().zip(b.parse().ok()).is_some_and(|(a, b)| a == b),
            },
            (Json::Object(a), Json::Object(b)) => a.len() == b.len() && a.iter().all(|(k, v)| other.get(k) == Some(v)),
            _ => false,
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(v) => v.fmt(f),
            Json::Number(text) => f.write_str(text),
            Json::Text(text) => f.write_str(&quoted(text)),
            Json::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Json::Object(entries) => {
                f.write_str("{")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{}: {value}", if i == 0 { "" } else { ", " }, quoted(key))?;
                }
                f.write_str("}")
            }
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn error(&self, what: &str) -> Error {
        Error::new(format!("JSON, byte {}: {what}", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Json> {
        self.space();
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("nested too deep"));
        }
        let value = match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => Ok(self.number()),
            _ => self.word(),
        };
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Result<Json> {
        self.at += 1;
        let mut entries = Vec::new();
        if self.take(b'}') {
            return Ok(Json::Object(entries));
        }
        loop {
            self.space();
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.error("expected ':'"));
            }
            entries.push((key, self.value()?));
            if self.take(b'}') {
                return Ok(Json::Object(entries));
            }
            if !self.take(b',') {
                return Err(self.error("expected ',' or '}'"));
            }
        }
    }

    fn array(&mut self) -> Result<Json> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value()?);
            if self.take(b']') {
                return Ok(Json::List(items));
            }
            if !self.take(b',') {
                return Err(self.error("expected ',' or ']'"));
            }
        }
    }

    fn number(&mut self) -> Json {
        let from = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        Json::Number(self.text[from..self.at].to_owned())
    }

    fn word(&mut self) -> Result<Json> {
        for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error("expected a value"))
    }

    fn string(&mut self) -> Result<String> {
        if !self.take(b'"') {
            return Err(self.error("expected a string"));
        }
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(c) = rest.chars().next() else {
                return Err(self.error("the string does not end"));
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\\' => out.push(self.escape()?),
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let c = self.peek().ok_or_else(|| self.error("the string does not end"))?;
        self.at += 1;
        Ok(match c {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => c.into(),
            b'u' => {
                let mut code = self.hex()?;
                if (0xd800..0xdc00).contains(&code) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    code = 0x10000 + ((code - 0xd800) << 10) + (self.hex()?.wrapping_sub(0xdc00) & 0x3ff);
                }
                char::from_u32(code).ok_or_else(|| self.error("half of a surrogate pair"))?
            }
            _ => return Err(self.error("unknown escape")),
        })
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4).ok_or_else(|| self.error("expected four digits"))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| self.error("expected four digits"))
    }
}

/// A value from Avro's JSON encoding: branches of unions are tagged by type name (a nullable's may be left out), bytes are text of code
/// points 0 to 255, non-finite numbers are the texts NaN, Infinity, -Infinity.
pub fn from_avro_json(layout: &Layout, node: u32, json: &Json) -> Result<Value> {
    let wrong = || Error::new(format!("{json} does not fit type {}", layout.node(node).kind_name()));
    Ok(match (&layout.node(node).kind, json) {
        (Kind::Nullable(_) | Kind::Null, Json::Null) => Value::Null,
        (Kind::Nullable(inner), Json::Object(entries))
            if entries.len() == 1 && entries[0].0 == branch_name(layout, *inner) =>
        {
            from_avro_json(layout, *inner, &entries[0].1)?
        }
        (Kind::Nullable(inner) | Kind::Boxed(inner), _) => from_avro_json(layout, *inner, json)?,
        (Kind::Boolean, Json::Bool(v)) => Value::Boolean(*v),
        (Kind::Int, _) => Value::Long(json.number::<i32>()?.into()),
        (Kind::Long, _) => Value::Long(json.number()?),
        (Kind::Float | Kind::Double, Json::Text(text)) => Value::Double(text.parse().map_err(|_| wrong())?),
        (Kind::Float, _) => Value::Double(json.number::<f32>()?.into()),
        (Kind::Double, _) => Value::Double(json.number()?),
        (Kind::Text | Kind::Enum(_), Json::Text(text)) => Value::Text(text.clone()),
        (Kind::Bytes | Kind::Fixed(_), Json::Text(text)) => {
            Value::Bytes(text.chars().map(|c| u8::try_from(c).map_err(|_| wrong())).collect::<Result<_>>()?)
        }
        (Kind::Array(item), Json::List(items)) => {
            Value::List(items.iter().map(|v| from_avro_json(layout, *item, v)).collect::<Result<_>>()?)
        }
        (Kind::Map(item), Json::Object(entries)) => Value::Map(
            entries.iter().map(|(k, v)| Ok((k.clone(), from_avro_json(layout, *item, v)?))).collect::<Result<_>>()?,
        ),
        (Kind::Struct(fields), Json::Object(entries)) => {
            if let Some((name, _)) = entries.iter().find(|e| !fields.iter().any(|f| f.name == e.0)) {
                return Err(Error::new(format!("the schema has no field {name:?}")));
            }
            let mut out = Vec::with_capacity(fields.len());
            for field in fields {
                let part =
                    json.get(&field.name).ok_or_else(|| Error::new(format!("field {:?} is missing", field.name)))?;
                out.push((field.name.clone(), from_avro_json(layout, field.node, part)?));
            }
            Value::Struct(out)
        }
        (Kind::Union(branches), _) => {
            let (name, part) = match json {
                Json::Null => ("null", json),
                Json::Object(entries) if entries.len() == 1 => (entries[0].0.as_str(), &entries[0].1),
                _ => return Err(wrong()),
            };
            let branch = branches.iter().position(|b| branch_name(layout, *b) == name).ok_or_else(wrong)?;
            Value::Union(branch as u32, Box::new(from_avro_json(layout, branches[branch], part)?))
        }
        _ => return Err(wrong()),
    })
}

/// The reverse of `from_avro_json`.
pub fn to_avro_json(layout: &Layout, node: u32, value: &Value) -> Json {
    match (&layout.node(node).kind, value) {
        (Kind::Nullable(inner), v) if *v != Value::Null => {
            Json::Object(vec![(branch_name(layout, *inner), to_avro_json(layout, *inner, v))])
        }
        (Kind::Boxed(inner), v) => to_avro_json(layout, *inner, v),
        (_, Value::Null) => Json::Null,
        (_, Value::Boolean(v)) => Json::Bool(*v),
        (_, Value::Long(v)) => Json::Number(v.to_string()),
        (_, Value::Double(v)) if v.is_nan() => Json::Text("NaN".into()),
        (_, Value::Double(v)) if v.is_infinite() => Json::Text(if *v > 0.0 { "Infinity" } else { "-Infinity" }.into()),
        (_, Value::Double(v)) => Json::Number(format!("{v:?}")),
        (_, Value::Text(v)) => Json::Text(v.clone()),
        (_, Value::Bytes(v)) => Json::Text(v.iter().map(|b| char::from(*b)).collect()),
        (Kind::Array(item), Value::List(items)) => {
            Json::List(items.iter().map(|v| to_avro_json(layout, *item, v)).collect())
        }
        (Kind::Map(item), Value::Map(entries)) => {
            Json::Object(entries.iter().map(|(k, v)| (k.clone(), to_avro_json(layout, *item, v))).collect())
        }
        (Kind::Struct(fields), v) => {
            let part =
                |f: &crate::layout::StructField| Some((f.name.clone(), to_avro_json(layout, f.node, v.get(&f.name)?)));
            Json::Object(fields.iter().filter_map(part).collect())
        }
        (Kind::Union(branches), Value::Union(branch, v)) => match branches.get(*branch as usize) {
            Some(node) if **v != Value::Null => {
                Json::Object(vec![(branch_name(layout, *node), to_avro_json(layout, *node, v))])
            }
            _ => Json::Null,
        },
        (_, other) => Json::Text(format!("{other:?}")),
    }
}

fn branch_name(layout: &Layout, node: u32) -> String {
    let inner = layout.node(node);
    match (&inner.name, &inner.kind) {
        (Some(name), _) => name.clone(),
        (None, Kind::Boxed(inner)) => branch_name(layout, *inner),
        (None, _) => inner.kind_name().to_owned(),
    }
}
