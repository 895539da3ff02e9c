//! Where a value came from: the answer of `kiteline config explain KEY`.

use serde_json::{Value as Json, json};

use super::{
    keys::{self, Shape},
    layers::indexed,
    tree::{Node, Origin, Value},
    written::{flatten, join, scalar, secret_property, unknown_key},
};
use crate::{
    error::{Place, Problem},
    secrets,
};

/// One key and where its value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Key path.
    pub key: String,
    /// Its value, secrets masked; none if it has none.
    pub value: Option<String>,
    /// Layer that gave it: `command line`, `environment`, `properties`, `file`, `default`, or `unset`.
    pub layer: &'static str,
    /// The same more closely, empty for defaults.
    pub origin: String,
    /// What weaker layers say, the strongest first: origin and value.
    pub overridden: Vec<(String, String)>,
    /// What the key takes.
    pub takes: String,
    /// What it means.
    pub doc: &'static str,
}

impl Explanation {
    /// The JSON form.
    pub fn to_json(&self) -> Json {
        let overridden: Vec<_> =
            self.overridden.iter().map(|(origin, value)| json!({ "origin": origin, "value": value })).collect();
        json!({
            "key": self.key, "value": self.value, "layer": self.layer, "origin": self.origin,
            "overridden": overridden, "takes": self.takes, "doc": self.doc,
        })
    }
}

/// Explains `path`, or everything below it if it is a table; the empty path is all there is.
pub fn explain(tree: &Node, path: &str) -> Result<Vec<Explanation>, Problem> {
    let mut out = Vec::new();
    let parts: Vec<&str> = path.split('.').filter(|p| !p.is_empty()).collect();
    descend(Some(tree), Shape::Table(keys::ROOT), "", &parts, &mut out)?;
    Ok(out)
}

fn descend(
    node: Option<&Node>,
    shape: Shape,
    path: &str,
    rest: &[&str],
    out: &mut Vec<Explanation>,
) -> Result<(), Problem> {
    let Some((part, rest)) = rest.split_first() else {
        all(node, shape, path, out);
        return Ok(());
    };
    match shape {
        Shape::Table(known) => {
            let (name, index) = indexed(part).map_or((*part, None), |(name, index)| (name, Some(index)));
            let path = join(path, name);
            let Some(key) = keys::find(known, name) else {
                return Err(unknown_key(name, known, Place { key: Some(path), ..Place::default() }));
            };
            let rest: Vec<&str> = index.into_iter().chain(rest.iter().copied()).collect();
            if rest.is_empty() {
                one(node.and_then(|n| n.get(name)), key, path, out);
                return Ok(());
            }
            descend(node.and_then(|n| n.get(name)), key.shape, &path, &rest, out)
        }
        Shape::Named(known) => match node.and_then(|n| n.get(part)) {
            Some(child) => descend(Some(child), Shape::Table(known), &join(path, part), rest, out),
            None => Err(absent(&join(path, part))),
        },
        Shape::Tables(known) => match part.parse::<usize>().ok().and_then(|i| node?.items().get(i)) {
            Some(child) => descend(Some(child), Shape::Table(known), &format!("{path}[{part}]"), rest, out),
            None => Err(absent(&format!("{path}[{part}]"))),
        },
        Shape::Properties | Shape::PluginConfig => {
            let name = std::iter::once(part).chain(rest).copied().collect::<Vec<_>>().join(".");
            let mut found = Vec::new();
            all(node, shape, path, &mut found);
            let key = join(path, &name);
            let explanation = found.into_iter().find(|e| e.key == key).ok_or_else(|| absent(&key))?;
            out.push(explanation);
            Ok(())
        }
        _ => Err(absent(&join(path, part))),
    }
}

fn absent(path: &str) -> Problem {
    Problem::new("config.unknown-key", format!("there is no key \"{path}\""))
        .hint("`kiteline config explain` lists all")
}

/// One key of a table: itself if it is a leaf, else everything below it.
fn one(node: Option<&Node>, key: &'static keys::Key, path: String, out: &mut Vec<Explanation>) {
    match key.shape {
        Shape::Table(_) | Shape::Named(_) | Shape::Tables(_) | Shape::Properties | Shape::PluginConfig => {
            all(node, key.shape, &path, out);
        }
        shape => out.push(leaf(node, shape, path, key.default, key.doc)),
    }
}

/// Everything below a node, defaults included.
fn all(node: Option<&Node>, shape: Shape, path: &str, out: &mut Vec<Explanation>) {
    match shape {
        Shape::Table(known) => {
            for key in known {
                one(node.and_then(|n| n.get(key.name)), key, join(path, key.name), out);
            }
        }
        Shape::Named(known) => {
            for entry in node.map_or(&[][..], Node::entries) {
                all(Some(&entry.node), Shape::Table(known), &join(path, &entry.name), out);
            }
        }
        Shape::Tables(known) => {
            for (index, item) in node.map_or(&[][..], Node::items).iter().enumerate() {
                all(Some(item), Shape::Table(known), &format!("{path}[{index}]"), out);
            }
        }
        Shape::Properties => {
            let mut flat = Vec::new();
            node.into_iter().for_each(|n| flatten(n, "", &mut flat));
            for (name, node) in flat {
                let shape = if secret_property(&name) { Shape::Secret } else { Shape::Text };
                out.push(leaf(Some(node), shape, join(path, &name), "", "client property, passed through"));
            }
        }
        Shape::PluginConfig => {
            for entry in node.map_or(&[][..], Node::entries) {
                let path = join(path, &entry.name);
                out.push(leaf(Some(&entry.node), Shape::Text, path, "", "setting of the plugin"));
            }
        }
        _ => out.push(leaf(node, shape, path.into(), "", "")),
    }
}

fn leaf(node: Option<&Node>, shape: Shape, key: String, default: &str, doc: &'static str) -> Explanation {
    let (value, layer, origin) = match node {
        Some(node) => (Some(shown(&node.value, shape)), node.origin.layer(), node.origin.to_string()),
        None if default.is_empty() => (None, "unset", String::new()),
        None => (Some(default.into()), "default", String::new()),
    };
    let say = |(origin, value): &(Origin, Value)| (origin.to_string(), shown(value, shape));
    let overridden = node.map_or(Vec::new(), |n| n.overridden.iter().map(say).collect());
    Explanation { key, value, layer, origin, overridden, takes: shape.words(), doc }
}

/// The value as text. Of a secret only its references are shown.
fn shown(value: &Value, shape: Shape) -> String {
    match value {
        Value::Text(text) if matches!(shape, Shape::Secret) => secrets::masked(text),
        Value::List(items) => {
            let items = items.iter().map(|i| shown(&i.value, shape));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        other => scalar(other).unwrap_or_else(|| other.kind().into()),
    }
}
