//! A reader or port schema as a list of fields, written out as Avro JSON.

/// A record schema under construction.
///
/// ```
/// use kiteline_guest::Schema;
/// let schema = Schema::record("shop.Order")
///     .field("qty", "int")
///     .optional("note", "string")
///     .nested("address", Schema::record("Address").field("city", "string"));
/// assert!(schema.text().starts_with(r#"{"type":"record","name":"shop.Order","fields":[{"name":"qty","type":"int"},"#));
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    name: String,
    fields: Vec<String>,
}

impl Schema {
    /// A record of that full name: the name that the producer's schema has, or one of its aliases.
    pub fn record(name: &str) -> Schema {
        Schema { name: name.into(), fields: Vec::new() }
    }

    /// A field. `kind`: a primitive's or named type's name, or Avro JSON (`{"type":"array","items":"string"}`).
    pub fn field(self, name: &str, kind: &str) -> Schema {
        let kind = as_json(kind);
        self.push(format!("{{\"name\":{},\"type\":{kind}}}", quoted(name)))
    }

    /// A field that may be null and that a producer may lack: `["null", kind]` with default null.
    pub fn optional(self, name: &str, kind: &str) -> Schema {
        let kind = as_json(kind);
        self.push(format!("{{\"name\":{},\"type\":[\"null\",{kind}],\"default\":null}}", quoted(name)))
    }

    /// A field that is an array of `kind`.
    pub fn list(self, name: &str, kind: &str) -> Schema {
        let kind = as_json(kind);
        self.field(name, &format!("{{\"type\":\"array\",\"items\":{kind}}}"))
    }

    /// A field that is a map to `kind`.
    pub fn map(self, name: &str, kind: &str) -> Schema {
        let kind = as_json(kind);
        self.field(name, &format!("{{\"type\":\"map\",\"values\":{kind}}}"))
    }

    /// A field that is a record.
    pub fn nested(self, name: &str, schema: Schema) -> Schema {
        self.field(name, &schema.text())
    }

    /// A field that is a record or null.
    pub fn nested_optional(self, name: &str, schema: Schema) -> Schema {
        self.optional(name, &schema.text())
    }

    /// The schema as Avro JSON.
    pub fn text(&self) -> String {
        format!("{{\"type\":\"record\",\"name\":{},\"fields\":[{}]}}", quoted(&self.name), self.fields.join(","))
    }

    fn push(mut self, field: String) -> Schema {
        self.fields.push(field);
        self
    }
}

fn as_json(kind: &str) -> String {
    if kind.starts_with(['{', '[', '"']) { kind.into() } else { quoted(kind) }
}

/// A JSON string. Names have no need of it; a custom text may.
pub(crate) fn quoted(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
