//! JSON to the flat graph: names, namespaces and aliases by the rules of Avro 1.12, "Names" and "Complex Types".

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{EnumType, FixedType, Logical, RecordType, SchemaField, SchemaId, SchemaKind, SchemaNode, TypeName};
use crate::error::SchemaError;
use crate::limits::SCHEMA_DEPTH_MAX;

/// The nodes of a self-contained schema, root first.
pub(super) fn nodes(value: &Value) -> Result<Vec<SchemaNode>, SchemaError> {
    let mut parser = Parser { nodes: Vec::new(), names: HashMap::new(), path: Vec::new(), depth: 0 };
    parser.schema(value, "")?;
    Ok(parser.nodes)
}

/// The kind of a primitive's name.
pub(super) fn primitive(name: &str) -> Option<SchemaKind> {
    Some(match name {
        "null" => SchemaKind::Null,
        "boolean" => SchemaKind::Boolean,
        "int" => SchemaKind::Int,
        "long" => SchemaKind::Long,
        "float" => SchemaKind::Float,
        "double" => SchemaKind::Double,
        "bytes" => SchemaKind::Bytes,
        "string" => SchemaKind::Text,
        _ => return None,
    })
}

/// The full name of a definition: a name with dots is full, else the `namespace` given counts, else the enclosing one.
pub(super) fn full_name(map: &Map<String, Value>, enclosing: &str) -> Option<String> {
    let name = map.get("name")?.as_str()?;
    if name.contains('.') {
        return Some(name.to_string());
    }
    let namespace = match map.get("namespace") {
        Some(Value::String(namespace)) => namespace,
        _ => enclosing,
    };
    Some(qualify(name, namespace))
}

/// A name in a namespace; the empty namespace is none.
pub(super) fn qualify(name: &str, namespace: &str) -> String {
    if namespace.is_empty() || name.contains('.') { name.to_string() } else { format!("{namespace}.{name}") }
}

/// The namespace of a full name.
pub(super) fn namespace_of(full: &str) -> &str {
    full.rsplit_once('.').map_or("", |(namespace, _)| namespace)
}

struct Parser {
    nodes: Vec<SchemaNode>,
    names: HashMap<String, SchemaId>,
    /// Field names down to the place, for messages.
    path: Vec<String>,
    depth: u32,
}

impl Parser {
    fn schema(&mut self, value: &Value, namespace: &str) -> Result<SchemaId, SchemaError> {
        self.depth += 1;
        if self.depth > SCHEMA_DEPTH_MAX {
            return Err(SchemaError::Limit { path: self.place(), what: "nesting", max: SCHEMA_DEPTH_MAX.into() });
        }
        let id = match value {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => self.union(branches, namespace),
            Value::Object(map) => self.object(map, namespace),
            _ => Err(self.invalid("a schema is a name, an object or a list")),
        }?;
        self.depth -= 1;
        Ok(id)
    }

    fn named(&mut self, name: &str, namespace: &str) -> Result<SchemaId, SchemaError> {
        if let Some(kind) = primitive(name) {
            return Ok(self.push(kind, None));
        }
        // a simple name may also mean a type without a namespace, as Avro's own readers have it
        let known = self.names.get(&qualify(name, namespace)).or_else(|| self.names.get(name));
        known.copied().ok_or_else(|| SchemaError::UnknownName { path: self.place(), name: name.to_string() })
    }

    fn union(&mut self, branches: &[Value], namespace: &str) -> Result<SchemaId, SchemaError> {
        if branches.is_empty() {
            return Err(self.invalid("a union has no branches"));
        }
        let id = self.push(SchemaKind::Null, None);
        let mut ids = Vec::with_capacity(branches.len());
        let mut seen = std::collections::HashSet::new();
        for branch in branches {
            let branch = self.schema(branch, namespace)?;
            let kind = &self.nodes[branch.0 as usize].kind;
            let key = match kind {
                SchemaKind::Union(_) => {
                    return Err(self.invalid("a union is directly inside a union"));
                }
                SchemaKind::Record(record) => record.name.full.to_string(),
                SchemaKind::Enum(symbols) => symbols.name.full.to_string(),
                SchemaKind::Fixed(fixed) => fixed.name.full.to_string(),
                other => kind_word(other).to_string(),
            };
            if !seen.insert(key.clone()) {
                return Err(self.invalid(&format!("a union has two branches of type '{key}'")));
            }
            ids.push(branch);
        }
        self.nodes[id.0 as usize].kind = SchemaKind::Union(ids.into());
        Ok(id)
    }

    fn object(&mut self, map: &Map<String, Value>, namespace: &str) -> Result<SchemaId, SchemaError> {
        let kind = match map.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            // {"type": {…}}: the inner one counts
            Some(inner) => return self.schema(inner, namespace),
            None => return Err(self.invalid("a schema object has no 'type'")),
        };
        match kind {
            "record" => self.record(map, namespace),
            "enum" => self.enumeration(map, namespace),
            "fixed" => self.fixed(map, namespace),
            "array" | "map" => {
                let key = if kind == "array" { "items" } else { "values" };
                let Some(inner) = map.get(key) else {
                    return Err(self.invalid(&format!("an {kind} has no '{key}'")));
                };
                let id = self.push(SchemaKind::Null, None);
                let inner = self.schema(inner, namespace)?;
                self.nodes[id.0 as usize].kind = match kind {
                    "array" => SchemaKind::Array(inner),
                    _ => SchemaKind::Map(inner),
                };
                Ok(id)
            }
            _ => match primitive(kind) {
                Some(base) => {
                    let logical = logical(map, &base);
                    Ok(self.push(base, logical))
                }
                None => self.named(kind, namespace),
            },
        }
    }

    fn record(&mut self, map: &Map<String, Value>, namespace: &str) -> Result<SchemaId, SchemaError> {
        let name = self.define(map, namespace)?;
        let id = self.names[&*name.full];
        let inner_namespace = namespace_of(&name.full).to_string();
        let Some(Value::Array(list)) = map.get("fields") else {
            return Err(self.invalid(&format!("record '{}' has no list of fields", name.full)));
        };
        let mut fields: Vec<SchemaField> = Vec::with_capacity(list.len());
        let mut seen = std::collections::HashSet::new();
        for field in list {
            let (Some(field_name), Some(schema)) = (field.get("name").and_then(Value::as_str), field.get("type"))
            else {
                return Err(self.invalid(&format!("a field of record '{}' lacks its name or type", name.full)));
            };
            if !identifier(field_name) {
                return Err(self.invalid(&format!("'{field_name}' is no field name")));
            }
            if !seen.insert(field_name) {
                return Err(self.invalid(&format!("record '{}' has two fields '{field_name}'", name.full)));
            }
            self.path.push(field_name.to_string());
            let schema = self.schema(schema, &inner_namespace)?;
            let aliases = self.strings(field.get("aliases"), "aliases")?;
            self.path.pop();
            fields.push(SchemaField {
                name: field_name.into(),
                aliases: aliases.into_iter().map(Arc::from).collect(),
                schema,
                default: field.get("default").cloned(),
            });
        }
        self.nodes[id.0 as usize].kind = SchemaKind::Record(RecordType { name, fields: fields.into() });
        Ok(id)
    }

    fn enumeration(&mut self, map: &Map<String, Value>, namespace: &str) -> Result<SchemaId, SchemaError> {
        let name = self.define(map, namespace)?;
        let id = self.names[&*name.full];
        if !matches!(map.get("symbols"), Some(Value::Array(_))) {
            return Err(self.invalid(&format!("enum '{}' has no list of symbols", name.full)));
        }
        let symbols = self.strings(map.get("symbols"), "symbols")?;
        let mut seen = std::collections::HashSet::new();
        for symbol in &symbols {
            if !identifier(symbol) {
                return Err(self.invalid(&format!("'{symbol}' is no enum symbol")));
            }
            if !seen.insert(*symbol) {
                return Err(self.invalid(&format!("enum '{}' has symbol '{symbol}' twice", name.full)));
            }
        }
        let default = match map.get("default") {
            None => None,
            Some(default) => {
                let known = default.as_str().and_then(|d| symbols.iter().position(|symbol| *symbol == d));
                match known {
                    Some(index) => Some(index as u32),
                    None => {
                        return Err(
                            self.invalid(&format!("default {default} of enum '{}' is no symbol of it", name.full))
                        );
                    }
                }
            }
        };
        let symbols = symbols.into_iter().map(Arc::from).collect();
        let kind = SchemaKind::Enum(EnumType { name, symbols, default });
        self.nodes[id.0 as usize].logical = logical(map, &kind);
        self.nodes[id.0 as usize].kind = kind;
        Ok(id)
    }

    fn fixed(&mut self, map: &Map<String, Value>, namespace: &str) -> Result<SchemaId, SchemaError> {
        let name = self.define(map, namespace)?;
        let id = self.names[&*name.full];
        let size = map.get("size").and_then(Value::as_u64).and_then(|size| u32::try_from(size).ok());
        let Some(size) = size.filter(|&size| size < 1 << 31) else {
            return Err(self.invalid(&format!("fixed '{}' has no size in bytes below 2^31", name.full)));
        };
        let kind = SchemaKind::Fixed(FixedType { name, size });
        self.nodes[id.0 as usize].logical = logical(map, &kind);
        self.nodes[id.0 as usize].kind = kind;
        Ok(id)
    }

    /// Names a new node; the caller fills it.
    fn define(&mut self, map: &Map<String, Value>, namespace: &str) -> Result<TypeName, SchemaError> {
        let Some(full) = full_name(map, namespace) else {
            return Err(self.invalid("a record, enum or fixed has no name"));
        };
        if !full.split('.').all(identifier) || primitive(super::unqualified(&full)).is_some() {
            return Err(self.invalid(&format!("'{full}' is no type name")));
        }
        let inner_namespace = namespace_of(&full).to_string();
        let aliases = self.strings(map.get("aliases"), "aliases")?;
        let aliases = aliases.into_iter().map(|alias| qualify(alias, &inner_namespace).into()).collect();
        let name = TypeName { full: full.as_str().into(), aliases };
        // a type of that name at once, since its own fields may use it, in unions too
        let open = RecordType { name: name.clone(), fields: Arc::new([]) };
        let id = self.push(SchemaKind::Record(open), None);
        if self.names.insert(full.clone(), id).is_some() {
            return Err(self.invalid(&format!("type '{full}' is defined twice")));
        }
        Ok(name)
    }

    fn strings<'v>(&self, value: Option<&'v Value>, what: &str) -> Result<Vec<&'v str>, SchemaError> {
        let list = match value {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(self.invalid(&format!("'{what}' is no list"))),
        };
        let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
        texts.ok_or_else(|| self.invalid(&format!("'{what}' is no list of strings")))
    }

    fn push(&mut self, kind: SchemaKind, logical: Option<Logical>) -> SchemaId {
        self.nodes.push(SchemaNode { kind, logical });
        SchemaId(self.nodes.len() as u32 - 1)
    }

    fn place(&self) -> String {
        match self.path.is_empty() {
            true => "(root)".to_string(),
            false => self.path.join("."),
        }
    }

    fn invalid(&self, problem: &str) -> SchemaError {
        SchemaError::Invalid { path: self.place(), problem: problem.to_string() }
    }
}

fn kind_word(kind: &SchemaKind) -> &'static str {
    match kind {
        SchemaKind::Null => "null",
        SchemaKind::Boolean => "boolean",
        SchemaKind::Int => "int",
        SchemaKind::Long => "long",
        SchemaKind::Float => "float",
        SchemaKind::Double => "double",
        SchemaKind::Bytes => "bytes",
        SchemaKind::Text => "string",
        SchemaKind::Fixed(_) => "fixed",
        SchemaKind::Enum(_) => "enum",
        SchemaKind::Record(_) => "record",
        SchemaKind::Array(_) => "array",
        SchemaKind::Map(_) => "map",
        SchemaKind::Union(_) => "union",
    }
}

/// A name as Avro allows it: `[A-Za-z_][A-Za-z0-9_]*`.
fn identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The logical type of an object, `other` if it is unknown or invalid for its base (Avro 1.12, "Logical Types").
fn logical(map: &Map<String, Value>, base: &SchemaKind) -> Option<Logical> {
    let name = map.get("logicalType")?.as_str()?;
    let known = match (name, base) {
        ("date", SchemaKind::Int) => Some(Logical::Date),
        ("time-millis", SchemaKind::Int) => Some(Logical::TimeMillis),
        ("time-micros", SchemaKind::Long) => Some(Logical::TimeMicros),
        ("timestamp-millis", SchemaKind::Long) => Some(Logical::TimestampMillis),
        ("timestamp-micros", SchemaKind::Long) => Some(Logical::TimestampMicros),
        ("timestamp-nanos", SchemaKind::Long) => Some(Logical::TimestampNanos),
        ("local-timestamp-millis", SchemaKind::Long) => Some(Logical::LocalTimestampMillis),
        ("local-timestamp-micros", SchemaKind::Long) => Some(Logical::LocalTimestampMicros),
        ("local-timestamp-nanos", SchemaKind::Long) => Some(Logical::LocalTimestampNanos),
        ("uuid", SchemaKind::Text) => Some(Logical::Uuid),
        ("uuid", SchemaKind::Fixed(fixed)) if fixed.size == 16 => Some(Logical::Uuid),
        ("duration", SchemaKind::Fixed(fixed)) if fixed.size == 12 => Some(Logical::Duration),
        ("big-decimal", SchemaKind::Bytes) => Some(Logical::BigDecimal),
        ("decimal", SchemaKind::Bytes) => decimal(map, None),
        ("decimal", SchemaKind::Fixed(fixed)) => decimal(map, Some(fixed.size)),
        _ => None,
    };
    Some(known.unwrap_or_else(|| Logical::Other(name.into())))
}

/// Precision and scale, if they make sense; a fixed of n bytes holds `floor(log10(2^(8n-1) - 1))` digits.
fn decimal(map: &Map<String, Value>, size: Option<u32>) -> Option<Logical> {
    let number = |key: &str| map.get(key).map(|value| value.as_u64().and_then(|v| u32::try_from(v).ok()));
    let precision = number("precision")??;
    let scale = number("scale").unwrap_or(Some(0))?;
    let digits_max =
        size.map_or(f64::INFINITY, |size| ((8.0 * f64::from(size) - 1.0) * std::f64::consts::LOG10_2).floor());
    (precision >= 1 && scale <= precision && f64::from(precision) <= digits_max)
        .then_some(Logical::Decimal { precision, scale })
}
