//! Schema to layout, as the host does it (contract, "Layouts and frames"), for native tests. The host refuses more than this does.

use super::json::Json;
use crate::{
    error::{Error, Result},
    layout::{Kind, Layout, Logical, NONE, Node, StructField, fingerprint},
};
use std::collections::{BTreeMap, BTreeSet};

/// Names that cannot be given to a type.
const PRIMITIVES: [&str; 8] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

pub(crate) fn layout(id: u32, text: &str) -> Result<Layout> {
    let schema = Json::parse(text)?;
    let mut maker = Maker::default();
    maker.collect(&schema, "")?;
    maker.find_boxes()?;
    maker.node(&schema, "", false)?;
    let mut nodes = maker.nodes;
    let mut known = vec![None; nodes.len()];
    for node in 0..nodes.len() {
        measure(&mut nodes, &mut known, node);
    }
    let table = Layout::new(id, text.to_owned(), String::new(), nodes.clone())?.table();
    Layout::new(id, text.to_owned(), fingerprint(&table), nodes)
}

#[derive(Default)]
struct Maker<'s> {
    /// By full name: definition and namespace inside it.
    types: BTreeMap<String, (&'s Json, String)>,
    boxes: BTreeSet<String>,
    named: BTreeMap<String, u32>,
    nodes: Vec<Node>,
}

/// A schema with references and wrappers resolved.
enum Resolved<'s> {
    Union(&'s [Json], String),
    Primitive(&'static str, Option<&'s Json>),
    Complex(&'s Json, String, Option<String>),
}

impl<'s> Maker<'s> {
    fn collect(&mut self, schema: &'s Json, namespace: &str) -> Result {
        match schema {
            Json::List(branches) => {
                if branches.is_empty() || branches.iter().any(|b| matches!(b, Json::List(_))) {
                    return Err(Error::new("a union is empty or lies in another one"));
                }
                branches.iter().try_for_each(|b| self.collect(b, namespace))
            }
            Json::Object(_) => match schema.text_of("type") {
                Some("record" | "error" | "enum" | "fixed") => {
                    let full = full_name(schema, namespace)?;
                    let inner = full.rsplit_once('.').map_or("", |n| n.0).to_owned();
                    if self.types.insert(full.clone(), (schema, inner.clone())).is_some() {
                        return Err(Error::new(format!("type {full} is defined twice")));
                    }
                    for field in schema.get("fields").and_then(Json::list).unwrap_or(&[]) {
                        self.collect(part(field, "type")?, &inner)?;
                    }
                    Ok(())
                }
                Some("array") => self.collect(part(schema, "items")?, namespace),
                Some("map") => self.collect(part(schema, "values")?, namespace),
                Some(_) => Ok(()),
                None => self.collect(part(schema, "type")?, namespace),
            },
            _ => Ok(()),
        }
    }

    fn resolve(&self, schema: &'s Json, namespace: &str) -> Result<Resolved<'s>> {
        match schema {
            Json::List(branches) if branches.len() == 1 => self.resolve(&branches[0], namespace),
            Json::List(branches) => Ok(Resolved::Union(branches, namespace.into())),
            Json::Text(name) => {
                if let Some(name) = PRIMITIVES.iter().find(|p| *p == name) {
                    return Ok(Resolved::Primitive(name, None));
                }
                let local = format!("{namespace}.{name}");
                let full = if !name.contains('.') && self.types.contains_key(&local) { &local } else { name };
                let (json, inner) = self.types.get(full).ok_or_else(|| Error::new(format!("unknown type {name:?}")))?;
                Ok(Resolved::Complex(json, inner.clone(), Some(full.clone())))
            }
            Json::Object(_) => match schema.text_of("type") {
                Some("record" | "error" | "enum" | "fixed") => {
                    let full = full_name(schema, namespace)?;
                    let inner = full.rsplit_once('.').map_or("", |n| n.0).to_owned();
                    Ok(Resolved::Complex(schema, inner, Some(full)))
                }
                Some("array" | "map") => Ok(Resolved::Complex(schema, namespace.into(), None)),
                Some(name) => match PRIMITIVES.iter().find(|p| **p == name) {
                    Some(name) => Ok(Resolved::Primitive(name, Some(schema))),
                    None => self.resolve(part(schema, "type")?, namespace),
                },
                None => self.resolve(part(schema, "type")?, namespace),
            },
            _ => Err(Error::new("a schema is a name, an object or a list")),
        }
    }

    /// Names of the records that lie in place in a type.
    fn in_place(&self, schema: &'s Json, namespace: &str) -> Result<Option<String>> {
        match self.resolve(schema, namespace)? {
            Resolved::Union(branches, inner) => match nullable(branches) {
                Some((_, branch)) => self.in_place(branch, &inner),
                None => Ok(None),
            },
            Resolved::Complex(json, _, full) if json.text_of("type") == Some("record") => Ok(full),
            _ => Ok(None),
        }
    }

    /// Records that reach themselves through record fields and nullables alone.
    fn find_boxes(&mut self) -> Result {
        let mut inside: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, (schema, namespace)) in &self.types {
            let mut names = Vec::new();
            for field in schema.get("fields").and_then(Json::list).unwrap_or(&[]) {
                names.extend(self.in_place(part(field, "type")?, namespace)?);
            }
            inside.insert(name.clone(), names);
        }
        for name in inside.keys() {
            let (mut seen, mut todo) = (BTreeSet::new(), inside[name].clone());
            while let Some(next) = todo.pop() {
                if next == *name {
                    self.boxes.insert(next);
                    break;
                }
                if seen.insert(next.clone()) {
                    todo.extend(inside.get(&next).into_iter().flatten().cloned());
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, kind: Kind, name: Option<String>, logical: Option<Logical>) -> u32 {
        self.nodes.push(Node { kind, name, logical, slots: 0, null_bits: 0 });
        self.nodes.len() as u32 - 1
    }

    fn node(&mut self, schema: &'s Json, namespace: &str, field: bool) -> Result<u32> {
        match self.resolve(schema, namespace)? {
            Resolved::Union(branches, inner) => match nullable(branches) {
                Some((_, branch)) => {
                    let node = self.add(Kind::Nullable(NONE), None, None);
                    let child = self.node(branch, &inner, field)?;
                    self.nodes[node as usize].kind = Kind::Nullable(child);
                    Ok(node)
                }
                None => {
                    let node = self.add(Kind::Union(Vec::new()), None, None);
                    let mut children = Vec::with_capacity(branches.len());
                    for branch in branches {
                        children.push(self.node(branch, &inner, false)?);
                    }
                    self.nodes[node as usize].kind = Kind::Union(children);
                    Ok(node)
                }
            },
            Resolved::Primitive(name, json) => {
                let logical = json.and_then(logical);
                Ok(self.add(primitive(name), None, logical))
            }
            Resolved::Complex(json, inner, None) => {
                let array = json.text_of("type") == Some("array");
                let node = self.add(Kind::Array(NONE), None, None);
                let child = self.node(part(json, if array { "items" } else { "values" })?, &inner, !array)?;
                self.nodes[node as usize].kind = if array { Kind::Array(child) } else { Kind::Map(child) };
                Ok(node)
            }
            Resolved::Complex(json, inner, Some(full)) => self.named(json, &inner, full, field),
        }
    }

    fn named(&mut self, json: &'s Json, namespace: &str, full: String, field: bool) -> Result<u32> {
        if field && self.boxes.contains(&full) {
            let node = self.add(Kind::Boxed(NONE), None, None);
            let child = self.named(json, namespace, full, false)?;
            self.nodes[node as usize].kind = Kind::Boxed(child);
            return Ok(node);
        }
        if let Some(node) = self.named.get(&full) {
            return Ok(*node);
        }
        let kind = match json.text_of("type") {
            Some("enum") => Kind::Enum(
                part(json, "symbols")?.list().unwrap_or(&[]).iter().filter_map(Json::text).map(String::from).collect(),
            ),
            Some("fixed") => Kind::Fixed(part(json, "size")?.number()?),
            _ => Kind::Struct(Vec::new()),
        };
        let record = matches!(kind, Kind::Struct(_));
        let node = self.add(kind, Some(full.clone()), if record { None } else { logical(json) });
        self.named.insert(full, node);
        if record {
            let mut fields = Vec::new();
            for field in part(json, "fields")?.list().unwrap_or(&[]) {
                let name = field.text_of("name").ok_or_else(|| Error::new("a field has no name"))?.to_owned();
                let child = self.node(part(field, "type")?, namespace, true)?;
                fields.push(StructField { name, node: child, slot: 0, null_bit: 0, number: 0 });
            }
            self.nodes[node as usize].kind = Kind::Struct(fields);
        }
        Ok(node)
    }
}

/// Slots, null bits and numbered fields inside a node.
type Width = (u32, u32, u32);

/// Fills in slots, null bits and the fields' places.
fn measure(nodes: &mut [Node], known: &mut [Option<Width>], at: usize) -> Width {
    if let Some(width) = known[at] {
        return width;
    }
    let width = match nodes[at].kind.clone() {
        Kind::Struct(mut fields) => {
            let (mut slots, mut bits, mut numbers) = (0, 0, 0);
            for field in &mut fields {
                (field.slot, field.null_bit, field.number) = (slots, bits, numbers);
                let (s, b, n) = measure(nodes, known, field.node as usize);
                (slots, bits, numbers) = (slots + s, bits + b, numbers + 1 + n);
            }
            nodes[at].kind = Kind::Struct(fields);
            (slots, bits, numbers)
        }
        Kind::Nullable(inner) => {
            let (slots, bits, numbers) = measure(nodes, known, inner as usize);
            (slots, bits + 1, numbers)
        }
        Kind::Null => (0, 0, 0),
        _ => (1, 0, 0),
    };
    (nodes[at].slots, nodes[at].null_bits) = (width.0, width.1);
    known[at] = Some(width);
    width
}

fn nullable(branches: &[Json]) -> Option<(usize, &Json)> {
    let null = |b: &Json| b.text() == Some("null") || b.text_of("type") == Some("null");
    match branches {
        [a, b] if null(a) && !null(b) => Some((0, b)),
        [a, b] if null(b) && !null(a) => Some((1, a)),
        _ => None,
    }
}

fn part<'s>(schema: &'s Json, key: &str) -> Result<&'s Json> {
    schema.get(key).ok_or_else(|| Error::new(format!("a part of the schema has no {key:?}")))
}

fn full_name(schema: &Json, namespace: &str) -> Result<String> {
    let name = schema.text_of("name").ok_or_else(|| Error::new("a type has no name"))?;
    let namespace = schema.text_of("namespace").unwrap_or(namespace);
    Ok(if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") })
}

fn primitive(name: &str) -> Kind {
    match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        _ => Kind::Text,
    }
}

fn logical(schema: &Json) -> Option<Logical> {
    Some(match schema.text_of("logicalType")? {
        "date" => Logical::Date,
        "time-millis" => Logical::TimeMillis,
        "time-micros" => Logical::TimeMicros,
        "timestamp-millis" => Logical::TimestampMillis,
        "timestamp-micros" => Logical::TimestampMicros,
        "timestamp-nanos" => Logical::TimestampNanos,
        "local-timestamp-millis" => Logical::LocalTimestampMillis,
        "local-timestamp-micros" => Logical::LocalTimestampMicros,
        "local-timestamp-nanos" => Logical::LocalTimestampNanos,
        "uuid" => Logical::Uuid,
        "duration" => Logical::Duration,
        "big-decimal" => Logical::BigDecimal,
        "decimal" => Logical::Decimal {
            precision: schema.get("precision").and_then(|n| n.number().ok()).unwrap_or(0),
            scale: schema.get("scale").and_then(|n| n.number().ok()).unwrap_or(0),
        },
        other => Logical::Other(other.into()),
    })
}
