//! Nodes as text: UTF-8 JSON objects with the format version `v` first, unknown fields kept, checkpoints with a checksum.
//! Owns the spelling and nothing else. What cannot be read is named, never guessed: there is no default position.
//!
//! The format is stated in `checkpoints.md` of the design ("Layout"). Numbers of 64 random bits (nonces, sessions) are text,
//! since JSON readers elsewhere round them. The checksum is the CRC-32C of the canonical text: the object without its
//! checksum, keys sorted at every depth, no spaces.

mod fields;

use kiteline_engine::store::{Extra, Key, Node};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Version of the format of every node that this code writes and the only one it reads.
const FORMAT: u64 = 1;

/// Longest explanation of an unreadable node in bytes.
const DETAIL_BYTES_MAX: usize = 300;

/// Whether a node of this kind belongs at this key.
pub(super) fn belongs(key: &Key, node: &Node) -> bool {
    matches!(
        (key, node),
        (Key::Descriptor, Node::Descriptor(_))
            | (Key::RunHead, Node::RunHead(_))
            | (Key::Run(_), Node::Run(_))
            | (Key::Members, Node::Members(_))
            | (Key::Member(_), Node::Member(_))
            | (Key::Desired, Node::Desired(_))
            | (Key::Revision(_), Node::Revision(_))
            | (Key::Partition(_), Node::Checkpoint(_))
            | (Key::Audit(..), Node::Audit(_))
    )
}

/// Spells a node. Fails only if its unknown fields are not a JSON object, with why.
pub(super) fn encode(node: &Node) -> Result<String, String> {
    match node {
        Node::Descriptor(node) => write(&fields::Descriptor::from(node), &node.extra, &[], false),
        Node::RunHead(node) => write(&fields::RunHead::from(node), &node.extra, &[], false),
        // The kinds RESET and IMPORT come with the commands that make such runs; theirs is kept as an unknown field is.
        Node::Run(node) => write(&fields::Run::from(node), &node.extra, &[("kind", "RUN")], false),
        Node::Members(node) => write(&fields::Members::from(node), &node.extra, &[], false),
        Node::Member(node) => write(&fields::Member::from(node), &node.extra, &[], false),
        Node::Desired(node) => write(&fields::Desired::from(node), &node.extra, &[], false),
        Node::Revision(node) => write(&fields::Revision::from(node), &node.extra, &[], false),
        Node::Checkpoint(node) => write(&fields::Checkpoint::from(node), &node.extra, &[], true),
        Node::Audit(node) => write(&fields::Audit::from(node), &Extra::default(), &[], false),
    }
}

/// Reads the node at `key`, or says why it cannot be trusted.
pub(super) fn decode(key: &Key, bytes: &[u8]) -> Result<Node, String> {
    let node = match key {
        Key::Descriptor => {
            let (node, extra) = read::<fields::Descriptor>(bytes, false)?;
            Node::Descriptor(node.into_node(extra))
        }
        Key::RunHead => {
            let (node, extra) = read::<fields::RunHead>(bytes, false)?;
            Node::RunHead(node.into_node(extra))
        }
        Key::Run(_) => {
            let (node, extra) = read::<fields::Run>(bytes, false)?;
            Node::Run(node.into_node(extra)?)
        }
        Key::Members => {
            let (node, extra) = read::<fields::Members>(bytes, false)?;
            Node::Members(node.into_node(extra))
        }
        Key::Member(_) => {
            let (node, extra) = read::<fields::Member>(bytes, false)?;
            Node::Member(node.into_node(extra))
        }
        Key::Desired => {
            let (node, extra) = read::<fields::Desired>(bytes, false)?;
            Node::Desired(node.into_node(extra))
        }
        Key::Revision(_) => {
            let (node, extra) = read::<fields::Revision>(bytes, false)?;
            Node::Revision(node.into_node(extra))
        }
        Key::Partition(_) => {
            let (node, extra) = read::<fields::Checkpoint>(bytes, true)?;
            Node::Checkpoint(node.into_node(extra)?)
        }
        Key::Audit(..) => Node::Audit(read::<fields::Audit>(bytes, false)?.0.into_node()),
    };
    Ok(node)
}

/// Spells `known` with `v` first, then what was kept, then the defaults that nothing has set, then the checksum.
fn write(known: &impl Serialize, extra: &Extra, defaults: &[(&str, &str)], summed: bool) -> Result<String, String> {
    let mut node = Map::new();
    node.insert("v".into(), FORMAT.into());
    match serde_json::to_value(known) {
        Ok(Value::Object(known)) => node.extend(known),
        _ => return Err("the node is not an object".into()),
    }
    if !extra.0.is_empty() {
        let kept: Map<String, Value> =
            serde_json::from_str(&extra.0).map_err(|error| format!("unknown fields are not an object: {error}"))?;
        merge(&mut node, kept);
    }
    for (name, value) in defaults {
        node.entry(*name).or_insert_with(|| Value::from(*value));
    }
    if summed {
        let sum = checksum(&node);
        node.insert("checksum".into(), sum.into());
    }
    Ok(Value::Object(node).to_string())
}

/// Reads the known fields and keeps the rest.
fn read<T: Serialize + DeserializeOwned>(bytes: &[u8], summed: bool) -> Result<(T, Extra), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_string())?;
    if text.is_empty() {
        return Err("empty".into());
    }
    let value: Value = serde_json::from_str(text).map_err(|error| bounded(format!("not JSON: {error}")))?;
    let Value::Object(mut node) = value else { return Err("not a JSON object".into()) };
    match node.get("v").map(Value::as_u64) {
        None => return Err("no format version".into()),
        Some(Some(FORMAT)) => {}
        Some(_) => {
            let found = node.get("v").unwrap_or(&Value::Null);
            return Err(bounded(format!("format version {found}, and this kiteline reads only {FORMAT}")));
        }
    }
    if summed {
        let Some(stored) = node.shift_remove("checksum") else { return Err("no checksum".into()) };
        let wanted = checksum(&node);
        if stored.as_str() != Some(wanted.as_str()) {
            return Err(bounded(format!("checksum is {stored}, and the content has \"{wanted}\"")));
        }
    }
    node.shift_remove("v");
    let value = Value::Object(node);
    let known = T::deserialize(&value).map_err(|error| bounded(error.to_string()))?;
    let Value::Object(mut rest) = value else { return Err("not a JSON object".into()) };
    if let Ok(Value::Object(template)) = serde_json::to_value(&known) {
        subtract(&mut rest, &template);
    }
    let extra = if rest.is_empty() { String::new() } else { Value::Object(rest).to_string() };
    Ok((known, Extra(extra)))
}

/// Adds what was kept, at every depth; known fields win.
fn merge(node: &mut Map<String, Value>, kept: Map<String, Value>) {
    for (name, value) in kept {
        match (node.get_mut(&name), value) {
            (Some(Value::Object(inner)), Value::Object(kept)) => merge(inner, kept),
            (Some(_), _) => {}
            (None, value) => {
                node.insert(name, value);
            }
        }
    }
}

/// Leaves the fields that `known` does not have, at every depth. Objects that are all known disappear.
fn subtract(node: &mut Map<String, Value>, known: &Map<String, Value>) {
    for (name, value) in known {
        let nothing_left = match (node.get_mut(name), value) {
            (Some(Value::Object(inner)), Value::Object(known)) => {
                subtract(inner, known);
                inner.is_empty()
            }
            _ => true,
        };
        if nothing_left {
            node.shift_remove(name);
        }
    }
}

/// CRC-32C of the canonical text, 8 hex digits.
fn checksum(node: &Map<String, Value>) -> String {
    let mut text = String::with_capacity(512);
    canonical(node, &mut text);
    format!("{:08x}", crc32c::crc32c(text.as_bytes()))
}

/// Appends an object with sorted keys and no spaces.
fn canonical(node: &Map<String, Value>, text: &mut String) {
    let mut entries: Vec<_> = node.iter().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    text.push('{');
    for (index, (name, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(name.as_str()).to_string());
        text.push(':');
        match value {
            Value::Object(inner) => canonical(inner, text),
            // Arrays have no known field; objects inside them keep their order.
            value => text.push_str(&value.to_string()),
        }
    }
    text.push('}');
}

/// Cuts an explanation that quotes foreign content.
fn bounded(mut detail: String) -> String {
    if detail.len() > DETAIL_BYTES_MAX {
        let mut end = DETAIL_BYTES_MAX;
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        detail.truncate(end);
        detail.push('…');
    }
    detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
