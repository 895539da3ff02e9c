//! Datums as Avro JSON, for people and tools: by Avro 1.12, "JSON Encoding", unions tagged with their branch, bytes and fixed as one
//! character of U+0000 to U+00FF per byte. What JSON has no word for, the strings `NaN`, `Infinity` and `-Infinity` stand for. Of a
//! map's repeated keys the last one counts. Not on the data path: it walks the schema and not a program.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::error::{DatumError, Fault, Reason};
use crate::limits::{BUFFER_BYTES_MAX, JSON_BYTES_MAX, Limits, SCHEMA_DEPTH_MAX};
use crate::schema::{Schema, SchemaId, SchemaKind};
use crate::wire::{Cursor, Span};

/// Appends one datum to `out` as one line of Avro JSON. On error `out` is cut back.
///
/// # Errors
/// If the datum is no value of the schema, has bytes left, passes the limits, or takes over 64 MiB as JSON.
pub fn to_json(schema: &Schema, datum: &[u8], limits: &Limits, out: &mut String) -> Result<(), DatumError> {
    let len = out.len();
    let mut printer = Printer {
        schema,
        limits,
        cursor: Cursor { datum, at: 0 },
        empty_left: limits.empty_items_max.into(),
        stack: 0,
        len_max: len.saturating_add(JSON_BYTES_MAX),
        out,
    };
    let result =
        if datum.len() > BUFFER_BYTES_MAX { Err(printer.cursor.fault(Reason::Buffer)) } else { printer.datum() };
    result.map_err(|fault| {
        out.truncate(len);
        DatumError::new(fault, datum.len())
    })
}

struct Printer<'p> {
    schema: &'p Schema,
    limits: &'p Limits,
    cursor: Cursor<'p>,
    /// Items without bytes that may still come.
    empty_left: u64,
    /// Calls of [`Printer::value`] open now. Structs in place do not count as depth, but take stack here.
    stack: u32,
    len_max: usize,
    out: &'p mut String,
}

impl<'p> Printer<'p> {
    fn datum(&mut self) -> Result<(), Fault> {
        self.value(SchemaId::ROOT, 0)?;
        match self.cursor.left() {
            0 => Ok(()),
            _ => Err(self.cursor.fault(Reason::Trailing)),
        }
    }

    fn value(&mut self, id: SchemaId, depth: u32) -> Result<(), Fault> {
        self.stack += 1;
        if self.stack > 8 * SCHEMA_DEPTH_MAX {
            return Err(self.cursor.fault(Reason::Depth));
        }
        if self.out.len() > self.len_max {
            return Err(self.cursor.fault(Reason::Buffer));
        }
        let schema = self.schema;
        match &schema.node(id).kind {
            SchemaKind::Null => *self.out += "null",
            SchemaKind::Boolean => {
                *self.out += match self.cursor.boolean()? {
                    0 => "false",
                    _ => "true",
                };
            }
            SchemaKind::Int => {
                let value = self.cursor.int()?;
                self.print(format_args!("{value}"));
            }
            SchemaKind::Long => {
                let value = self.cursor.long()?;
                self.print(format_args!("{value}"));
            }
            SchemaKind::Float => {
                let value = self.cursor.float()?;
                // a float by its own digits: as a double, 0.1 would show what it is not
                match value.is_finite() {
                    true => self.print(format_args!("{value:?}")),
                    false => *self.out += not_finite(value.into()),
                }
            }
            SchemaKind::Double => {
                let value = f64::from_le_bytes(self.cursor.double()?);
                match value.is_finite() {
                    true => self.print(format_args!("{value:?}")),
                    false => *self.out += not_finite(value),
                }
            }
            SchemaKind::Bytes => {
                let bytes = self.cursor.bytes()?;
                self.latin1(&bytes);
            }
            SchemaKind::Fixed(fixed) => {
                let bytes = self.cursor.fixed(fixed.size)?;
                self.latin1(&bytes);
            }
            SchemaKind::Text => {
                self.text()?;
            }
            SchemaKind::Enum(symbols) => {
                let index = self.cursor.index(symbols.symbols.len() as u32, Reason::EnumIndex)?;
                self.quoted(symbols.symbols[index as usize].chars());
            }
            SchemaKind::Record(record) => {
                // a record inside itself is a box, one deeper
                let depth = depth + u32::from(schema.recursive(id));
                self.deep(depth)?;
                self.out.push('{');
                for (index, field) in record.fields.iter().enumerate() {
                    if index > 0 {
                        self.out.push(',');
                    }
                    self.quoted(field.name.chars());
                    self.out.push(':');
                    self.value(field.schema, depth)?;
                }
                self.out.push('}');
            }
            SchemaKind::Array(item) => {
                self.out.push('[');
                self.blocks(*item, false, depth)?;
                self.out.push(']');
            }
            SchemaKind::Map(value) => {
                self.out.push('{');
                self.blocks(*value, true, depth)?;
                self.out.push('}');
            }
            SchemaKind::Union(branches) => {
                let index = self.cursor.index(branches.len() as u32, Reason::UnionIndex)?;
                self.branch(branches[index as usize], depth)?;
            }
        }
        self.stack -= 1;
        Ok(())
    }

    /// `null`, or an object with the branch's type as its one key.
    fn branch(&mut self, id: SchemaId, depth: u32) -> Result<(), Fault> {
        let schema = self.schema;
        let tag = match &schema.node(id).kind {
            SchemaKind::Null => return self.value(id, depth),
            SchemaKind::Boolean => "boolean",
            SchemaKind::Int => "int",
            SchemaKind::Long => "long",
            SchemaKind::Float => "float",
            SchemaKind::Double => "double",
            SchemaKind::Bytes => "bytes",
            SchemaKind::Text => "string",
            SchemaKind::Array(_) => "array",
            SchemaKind::Map(_) => "map",
            SchemaKind::Fixed(fixed) => &fixed.name.full,
            SchemaKind::Enum(symbols) => &symbols.name.full,
            SchemaKind::Record(record) => &record.name.full,
            SchemaKind::Union(_) => "union",
        };
        self.out.push('{');
        self.quoted(tag.chars());
        self.out.push(':');
        self.value(id, depth)?;
        self.out.push('}');
        Ok(())
    }

    /// Items or entries, by the same bounds as a plan's.
    fn blocks(&mut self, item: SchemaId, keyed: bool, depth: u32) -> Result<(), Fault> {
        let bytes_min = self.schema.bytes_min(item).saturating_add(keyed.into());
        let mut entries: Vec<(&'p str, usize)> = Vec::new();
        let start = self.out.len();
        let mut first = true;
        loop {
            let before = self.cursor;
            let (count, end) = self.cursor.block_head()?;
            if count == 0 {
                break;
            }
            self.deep(depth + 1)?;
            if bytes_min == 0 {
                if count > self.empty_left {
                    return Err(before.fault(Reason::EmptyItems));
                }
                self.empty_left -= count;
            } else {
                let left = self.cursor.left() as u64;
                if count > left || count * u64::from(bytes_min) > left {
                    return Err(before.fault(Reason::CountBeyondEnd));
                }
            }
            for _ in 0..count {
                if !first {
                    self.out.push(',');
                }
                first = false;
                if keyed {
                    let at = self.out.len();
                    entries.push((self.text()?, at));
                    self.out.push(':');
                }
                self.value(item, depth + 1)?;
            }
            if end.is_some_and(|end| end != self.cursor.at) {
                return Err(before.fault(Reason::BlockSize));
            }
        }
        self.last_of_each_key(start, &entries);
        Ok(())
    }

    /// Takes out the entries whose key comes again.
    fn last_of_each_key(&mut self, start: usize, entries: &[(&str, usize)]) {
        let last: HashMap<&str, usize> = entries.iter().enumerate().map(|(index, (key, _))| (*key, index)).collect();
        if last.len() == entries.len() {
            return;
        }
        let text = self.out.split_off(start);
        for (index, (key, at)) in entries.iter().enumerate() {
            if last[key] != index {
                continue;
            }
            // an entry ends before the comma of the next
            let end = entries.get(index + 1).map_or(text.len(), |(_, next)| next - start - 1);
            if self.out.len() > start {
                self.out.push(',');
            }
            *self.out += &text[at - start..end];
        }
    }

    fn deep(&self, depth: u32) -> Result<(), Fault> {
        match depth > self.limits.depth_max {
            true => Err(self.cursor.fault(Reason::Depth)),
            false => Ok(()),
        }
    }

    /// Reads a string and prints it.
    fn text(&mut self) -> Result<&'p str, Fault> {
        let before = self.cursor;
        let span = self.cursor.text()?;
        // checked just now; not twice, if there were a way to say so
        let text = std::str::from_utf8(span.as_bytes()).map_err(|_| before.fault(Reason::Utf8))?;
        self.quoted(text.chars());
        Ok(text)
    }

    fn latin1(&mut self, bytes: &Span<'_>) {
        self.quoted(bytes.as_bytes().iter().map(|&byte| char::from(byte)));
    }

    fn print(&mut self, text: std::fmt::Arguments<'_>) {
        // writing to a String cannot fail
        let _ = self.out.write_fmt(text);
    }

    fn quoted(&mut self, text: impl Iterator<Item = char>) {
        self.out.push('"');
        for point in text {
            match point {
                '"' => *self.out += "\\\"",
                '\\' => *self.out += "\\\\",
                '\n' => *self.out += "\\n",
                '\r' => *self.out += "\\r",
                '\t' => *self.out += "\\t",
                control if control < ' ' => {
                    let number = u32::from(control);
                    self.print(format_args!("\\u{number:04x}"));
                }
                other => self.out.push(other),
            }
        }
        self.out.push('"');
    }
}

fn not_finite(value: f64) -> &'static str {
    if value.is_nan() {
        "\"NaN\""
    } else if value > 0.0 {
        "\"Infinity\""
    } else {
        "\"-Infinity\""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(schema: &str, datum: &[u8]) -> Result<String, String> {
        let schema = Schema::parse(schema).expect("legal schema");
        let mut out = String::from("> ");
        match to_json(&schema, datum, &Limits::default(), &mut out) {
            Ok(()) => {
                let value: Result<serde_json::Value, _> = serde_json::from_str(&out[2..]);
                assert!(value.is_ok(), "always valid JSON: {out}");
                Ok(out[2..].to_string())
            }
            Err(error) => {
                assert_eq!(out, "> ", "cut back");
                Err(format!("{:?}@{}", error.code, error.at))
            }
        }
    }

    #[test]
    fn every_type() {
        let record = r#"{"type":"record","name":"a.R","fields":[{"name":"n","type":["null","long"]},{"name":"m","type":["null","a.R"]}]}"#;
        let counts = r#"{"type":"map","values":"int"}"#;
        let cases: [(&str, &[u8], Result<&str, &str>); 29] = [
            (r#""null""#, b"", Ok("null")),
            (r#""boolean""#, &[1], Ok("true")),
            (r#""boolean""#, &[2], Err("Value@0")),
            (r#""int""#, &[3], Ok("-2")),
            (r#""long""#, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok("9223372036854775807")),
            (r#""float""#, &0.1f32.to_le_bytes(), Ok("0.1")),
            (r#""float""#, &f32::NEG_INFINITY.to_le_bytes(), Ok("\"-Infinity\"")),
            (r#""double""#, &1e300f64.to_le_bytes(), Ok("1e300")),
            (r#""double""#, &(-0.0f64).to_le_bytes(), Ok("-0.0")),
            (r#""double""#, &1e-7f64.to_le_bytes(), Ok("1e-7")),
            // case 52
            (r#""double""#, &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f], Ok("\"NaN\"")),
            (r#""double""#, &[0, 0, 0, 0, 0, 0, 0xf0, 0x7f], Ok("\"Infinity\"")),
            (r#""string""#, &[4, 0xc3, 0x28], Err("Utf8@0")),
            (counts, &[4, 2, b'a', 2, 2, b'a', 4, 0], Ok(r#"{"a":2}"#)),
            (counts, &[6, 2, b'a', 2, 2, b'b', 4, 2, b'a', 6, 0], Ok(r#"{"b":2,"a":3}"#)),
            (counts, &[4, 2, b'a', 2, 2, b'b', 4, 0], Ok(r#"{"a":1,"b":2}"#)),
            (r#""string""#, &[10, b'"', b'\\', b'\n', 1, 0x7f], Ok("\"\\\"\\\\\\n\\u0001\u{7f}\"")),
            (r#""bytes""#, &[4, 0xff, 0x00], Ok("\"ÿ\\u0000\"")),
            (r#"{"type":"fixed","name":"F","size":2}"#, &[0x41, 0xe9], Ok("\"Aé\"")),
            (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, &[2], Ok("\"B\"")),
            (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, &[4], Err("Value@0")),
            (r#"{"type":"array","items":["null","int"]}"#, &[4, 0, 2, 2, 0], Ok(r#"[null,{"int":1}]"#)),
            (r#"{"type":"array","items":"int"}"#, &[3, 4, 2, 4, 0], Ok("[1,2]")),
            (r#"{"type":"array","items":"int"}"#, &[3, 2, 2, 4, 0], Err("Value@0")),
            (r#"{"type":"array","items":"null"}"#, &[0x80, 0xb6, 0xdc, 5, 0], Err("Limit@0")),
            (r#"["int"]"#, &[0, 2], Ok(r#"{"int":1}"#)),
            (record, &[2, 2, 2, 0, 0], Ok(r#"{"n":{"long":1},"m":{"a.R":{"n":null,"m":null}}}"#)),
            (record, &[0, 0, 0], Err("Trailing@2")),
            (record, &[0], Err("Short@1")),
        ];
        for (schema, datum, expected) in cases {
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(json(schema, datum), expected, "{schema} {datum:02x?}");
        }
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let chain = r#"{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}"#;
        let mut datum = vec![2; 900_000];
        datum.push(0);
        assert_eq!(json(chain, &datum).map_err(|error| error[..5].to_string()), Err("Limit".to_string()));
        // 65,536 items without bytes, each two kilobytes of names
        let fields: Vec<String> =
            (0..100).map(|index| format!(r#"{{"name":"a_long_name_{index}","type":"null"}}"#)).collect();
        let wide =
            format!(r#"{{"type":"array","items":{{"type":"record","name":"W","fields":[{}]}}}}"#, fields.join(","));
        assert_eq!(
            json(&wide, &[0x80, 0x80, 0x08, 0]).map_err(|error| error[..5].to_string()),
            Err("Limit".to_string())
        );
    }
}
