//! Checks of the configuration as written: unknown keys, wrong types, ranges, words, names and secrets in the open.
//!
//! Holds each value against [`super::keys`] and returns every problem. Relations between keys are [`super::meaning`]'s.

use super::{
    keys::{self, Key, Shape},
    plan::Name,
    tree::{Entry, Node, Value},
};
use crate::{
    error::{Place, Problem},
    secrets,
};

/// Everything that is wrong with `tree` as such.
pub(crate) fn check(tree: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk(tree, Shape::Table(keys::ROOT), "", &mut problems);
    problems
}

/// `path` and `name` as one key path.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// A problem with a key that is not in `known`.
pub(crate) fn unknown_key(name: &str, known: &'static [Key], place: Place) -> Problem {
    let hint = match keys::nearest(name, known.iter().map(|k| k.name)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("keys here: {}", known.iter().map(|k| k.name).collect::<Vec<_>>().join(", ")),
    };
    Problem::new("config.unknown-key", format!("unknown key \"{name}\"")).hint(hint).at(place)
}

/// Entries of a table of client properties; dotted keys, which TOML makes tables of, are joined again.
pub(crate) fn flatten<'a>(node: &'a Node, prefix: &str, out: &mut Vec<(String, &'a Node)>) {
    for Entry { name, node, .. } in node.entries() {
        let name = join(prefix, name);
        match node.value {
            Value::Table(_) => flatten(node, &name, out),
            _ => out.push((name, node)),
        }
    }
}

/// A scalar as text, as TOML prints it; none for lists and tables.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Scalar(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(value) => Some(value.to_string()),
        Value::List(_) | Value::Table(_) => None,
    }
}

/// Whether a client property of this name is a secret.
pub(crate) fn secret_property(name: &str) -> bool {
    ["password", "client.secret", "key.pem", "jaas.config"].iter().any(|word| name.ends_with(word))
}

fn walk(node: &Node, shape: Shape, path: &str, problems: &mut Vec<Problem>) {
    let place = || node.origin.place(path);
    match (shape, &node.value) {
        (Shape::Table(known), Value::Table(entries)) => {
            for entry in entries {
                let path = join(path, &entry.name);
                match keys::find(known, &entry.name) {
                    Some(key) => walk(&entry.node, key.shape, &path, problems),
                    None => problems.push(unknown_key(&entry.name, known, entry.key_origin.place(&path))),
                }
            }
        }
        (Shape::Named(known), Value::Table(entries)) => {
            for entry in entries {
                let path = join(path, &entry.name);
                if Name::new(&entry.name).is_none() {
                    problems.push(bad_name(&entry.name, entry.key_origin.place(&path)));
                }
                walk(&entry.node, Shape::Table(known), &path, problems);
            }
        }
        (Shape::Tables(known), Value::List(items)) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, Shape::Table(known), &format!("{path}[{index}]"), problems);
            }
        }
        (Shape::Tables(_), Value::Table(_)) => {
            problems.push(wrong_type(node, shape, path).hint(format!("write [[{path}]] for each of them")));
        }
        (Shape::Properties, Value::Table(_)) => properties(node, path, problems),
        (Shape::PluginConfig, Value::Table(entries)) => {
            for Entry { name, node, .. } in entries.iter().filter(|e| scalar(&e.node.value).is_none()) {
                let message = format!("plugin setting \"{name}\" is {}, not a scalar", node.value.kind());
                problems.push(Problem::new("config.wrong-type", message).at(node.origin.place(join(path, name))));
            }
        }
        (Shape::Text, Value::Text(_)) | (Shape::Boolean, Value::Boolean(_)) => {}
        (Shape::Secret, Value::Text(text)) if secrets::has_reference(text) => {}
        (Shape::Secret, Value::Text(_)) => problems.push(literal_secret(path, place())),
        (Shape::Integer(min, max), Value::Integer(number)) if !(min..=max).contains(number) => {
            let message = format!("{number} is not {}", shape.words());
            problems.push(Problem::new("config.out-of-range", message).at(place()));
        }
        (Shape::Integer(..), Value::Integer(_)) => {}
        (Shape::Choice(words), Value::Text(text)) if !words.contains(&text.as_str()) => {
            let problem = Problem::new("config.unknown-value", format!("\"{text}\" is not {}", shape.words()));
            let problem = match keys::nearest(text, words.iter().copied()) {
                Some(near) => problem.hint(format!("did you mean \"{near}\"?")),
                None => problem,
            };
            problems.push(problem.at(place()));
        }
        (Shape::Choice(_), Value::Text(_)) | (Shape::Texts, Value::Text(_)) => {}
        (Shape::Texts, Value::List(items)) => {
            for (index, item) in items.iter().enumerate().filter(|(_, i)| !matches!(i.value, Value::Text(_))) {
                problems.push(wrong_type(item, Shape::Text, &format!("{path}[{index}]")));
            }
        }
        _ => problems.push(wrong_type(node, shape, path)),
    }
}

fn properties(node: &Node, path: &str, problems: &mut Vec<Problem>) {
    let mut flat = Vec::new();
    flatten(node, "", &mut flat);
    for (name, node) in flat {
        let place = node.origin.place(join(path, &name));
        match scalar(&node.value) {
            None => problems.push(wrong_type(node, Shape::Text, &join(path, &name))),
            Some(text) if secret_property(&name) && !secrets::has_reference(&text) => {
                problems.push(literal_secret(&name, place));
            }
            Some(_) => {}
        }
    }
}

fn wrong_type(node: &Node, shape: Shape, path: &str) -> Problem {
    let message = format!("expected {}, found {}", shape.words(), node.value.kind());
    Problem::new("config.wrong-type", message).at(node.origin.place(path))
}

fn bad_name(name: &str, place: Place) -> Problem {
    Problem::new("config.bad-name", format!("\"{name}\" cannot be a name"))
        .hint("a name has 1 to 100 letters, digits, - and _, and begins with a letter or digit")
        .at(place)
}

/// The value is not repeated: it may be a secret in earnest.
fn literal_secret(path: &str, place: Place) -> Problem {
    let name = path.rsplit('.').next().unwrap_or(path);
    Problem::new("config.literal-secret", format!("secret \"{name}\" is written out"))
        .hint("write a reference: \"${env:NAME}\" or \"${file:PATH}\"")
        .at(place)
}
