//! Schemas with references to one self-contained text: each referenced definition is put where its name is first used.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::parse::{full_name, namespace_of, primitive, qualify};
use crate::error::SchemaError;
use crate::limits::{SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX};

/// The text and the JSON of the whole schema.
pub(super) fn self_contained(text: &str, references: &[&str]) -> Result<(String, Value), SchemaError> {
    let bytes = references.iter().map(|reference| reference.len()).sum::<usize>() + text.len();
    if bytes > SCHEMA_BYTES_MAX {
        return Err(SchemaError::TooLarge { bytes, max: SCHEMA_BYTES_MAX });
    }
    let mut value = json(text)?;
    if references.is_empty() {
        return Ok((text.to_string(), value));
    }
    let mut inliner = Inliner { external: HashMap::new(), defined: HashSet::new() };
    for reference in references {
        let reference = json(reference)?;
        inliner.collect(&reference, "", 0)?;
    }
    inliner.inline(&mut value, "", 0)?;
    let text = value.to_string();
    if text.len() > SCHEMA_BYTES_MAX {
        return Err(SchemaError::TooLarge { bytes: text.len(), max: SCHEMA_BYTES_MAX });
    }
    Ok((text, value))
}

fn json(text: &str) -> Result<Value, SchemaError> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        // a bare name, as registries store the schema of a primitive
        Err(_) if primitive(text.trim()).is_some() => Ok(Value::String(text.trim().to_string())),
        Err(source) => Err(SchemaError::Json { source }),
    }
}

struct Inliner {
    /// Definitions of the references by full name, their own names made full.
    external: HashMap<String, Value>,
    /// Names that the text has defined so far.
    defined: HashSet<String>,
}

impl Inliner {
    /// Remembers every definition of a reference, nested ones too.
    fn collect(&mut self, value: &Value, namespace: &str, depth: u32) -> Result<(), SchemaError> {
        deep(depth)?;
        match value {
            Value::Array(branches) => branches.iter().try_for_each(|branch| self.collect(branch, namespace, depth + 1)),
            Value::Object(map) => {
                if !is_definition(map) {
                    return inner(map).try_for_each(|value| self.collect(value, namespace, depth + 1));
                }
                let Some(full) = full_name(map, namespace) else {
                    return Ok(());
                };
                let mut own = map.clone();
                own.insert("name".to_string(), Value::String(super::unqualified(&full).to_string()));
                own.insert("namespace".to_string(), Value::String(namespace_of(&full).to_string()));
                // the same type in two references is the same type
                self.external.entry(full.clone()).or_insert(Value::Object(own));
                fields(map).try_for_each(|field| self.collect(field, namespace_of(&full), depth + 1))
            }
            _ => Ok(()),
        }
    }

    /// Puts definitions in place of names that nothing before defines, and names in place of second definitions.
    fn inline(&mut self, value: &mut Value, namespace: &str, depth: u32) -> Result<(), SchemaError> {
        deep(depth)?;
        match value {
            Value::String(name) => {
                if primitive(name).is_some() {
                    return Ok(());
                }
                for full in [qualify(name, namespace), name.clone()] {
                    if self.defined.contains(&full) {
                        return Ok(());
                    }
                    if let Some(definition) = self.external.get(&full) {
                        *value = definition.clone();
                        return self.inline(value, namespace, depth + 1);
                    }
                }
                Ok(())
            }
            Value::Array(branches) => {
                branches.iter_mut().try_for_each(|branch| self.inline(branch, namespace, depth + 1))
            }
            Value::Object(map) => {
                let Some(full) = is_definition(map).then(|| full_name(map, namespace)).flatten() else {
                    for key in ["type", "items", "values"] {
                        if let Some(inner) = map.get_mut(key).filter(|inner| key != "type" || is_nested(inner)) {
                            self.inline(inner, namespace, depth + 1)?;
                        }
                    }
                    return Ok(());
                };
                if !self.defined.insert(full.clone()) && self.external.contains_key(&full) {
                    *value = Value::String(full);
                    return Ok(());
                }
                if let Some(Value::Array(list)) = map.get_mut("fields") {
                    for field in list {
                        if let Some(schema) = field.get_mut("type") {
                            self.inline(schema, namespace_of(&full), depth + 1)?;
                        }
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn is_definition(map: &Map<String, Value>) -> bool {
    matches!(map.get("type").and_then(Value::as_str), Some("record" | "enum" | "fixed"))
}

/// The value of a `type` that is a schema of its own and not a word.
fn is_nested(value: &Value) -> bool {
    !matches!(value.as_str(), Some("array" | "map"))
}

fn inner(map: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    ["type", "items", "values"].into_iter().filter_map(|key| map.get(key))
}

fn fields(map: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let list = map.get("fields").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|field| field.get("type"))
}

fn deep(depth: u32) -> Result<(), SchemaError> {
    if depth > SCHEMA_DEPTH_MAX {
        return Err(SchemaError::Limit {
            path: "(references)".to_string(),
            what: "nesting",
            max: SCHEMA_DEPTH_MAX.into(),
        });
    }
    Ok(())
}
