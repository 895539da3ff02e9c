//! Typed reading of one table of the configuration: value or default, and problems with what is missing.
//!
//! Values of a wrong type read as absent here; [`super::written`] has reported them already.

use std::{fs, io, path::Path};

use super::{
    keys::{self, Key, Shape},
    plan::SchemaFile,
    tree::{Node, Origin, Value},
    written::{join, scalar},
};
use crate::{
    error::{Place, Problem},
    layout::Root,
    secrets::{self, Secret},
};

/// Largest schema file.
const SCHEMA_BYTES_MAX: u64 = 4 << 20;

/// What reading needs and gathers.
pub(crate) struct Context<'a> {
    /// The install root.
    pub root: &'a Root,
    /// Everything that was found to be wrong.
    pub problems: Vec<Problem>,
}

/// One table, there or not.
#[derive(Clone, Copy)]
pub(crate) struct Section<'a> {
    node: Option<&'a Node>,
    keys: &'static [Key],
    path: &'a str,
    origin: &'a Origin,
}

impl<'a> Section<'a> {
    /// The table `node` of `keys` at `path`; `origin` is the place of the nearest table that is there.
    pub(crate) fn new(node: Option<&'a Node>, keys: &'static [Key], path: &'a str, origin: &'a Origin) -> Self {
        Self { node, keys, path, origin: node.map_or(origin, |n| &n.origin) }
    }

    /// Whether it is written at all.
    pub(crate) fn there(&self) -> bool {
        self.node.is_some()
    }

    /// The value of `name` as written.
    pub(crate) fn node(&self, name: &str) -> Option<&'a Node> {
        self.node?.get(name)
    }

    /// The keys of the table at `name` of this one.
    pub(crate) fn keys_of(&self, name: &str) -> &'static [Key] {
        match keys::find(self.keys, name).map(|k| k.shape) {
            Some(Shape::Table(keys) | Shape::Named(keys) | Shape::Tables(keys)) => keys,
            _ => &[],
        }
    }

    /// Where `name` is, or where it is missing.
    pub(crate) fn place(&self, name: &str) -> Place {
        self.node(name).map_or(self.origin, |n| &n.origin).place(self.path_of(name))
    }

    /// Where the table is, or where it is missing.
    pub(crate) fn place_of_all(&self) -> Place {
        self.origin.place(self.path)
    }

    /// Place of the nearest table that is there.
    pub(crate) fn origin(&self) -> &'a Origin {
        self.origin
    }

    /// Key path of `name`.
    pub(crate) fn path_of(&self, name: &str) -> String {
        join(self.path, name)
    }

    /// A string.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        match &self.node(name)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A string that must be there and not empty.
    pub(crate) fn required(&self, name: &str, context: &mut Context<'_>) -> Option<&'a str> {
        match self.text(name) {
            Some("") => {
                context
                    .problems
                    .push(Problem::new("config.empty", format!("\"{name}\" is empty")).at(self.place(name)));
                None
            }
            None if self.node(name).is_none() => {
                context.problems.push(self.missing(name));
                None
            }
            text => text,
        }
    }

    /// The problem that `name` is not there.
    pub(crate) fn missing(&self, name: &str) -> Problem {
        let problem = Problem::new("config.missing-key", format!("missing key \"{name}\"")).at(self.place(name));
        match keys::find(self.keys, name) {
            Some(key) => problem.detail(format!("{name}: {}", key.doc)),
            None => problem,
        }
    }

    /// A word, or the key's default; none if it has none.
    pub(crate) fn choice(&self, name: &str) -> Option<&'a str> {
        let key = keys::find(self.keys, name)?;
        let Shape::Choice(words) = key.shape else { return None };
        let word = |text: &str| words.iter().copied().find(|w| *w == text);
        self.text(name).and_then(word).or_else(|| word(key.default))
    }

    /// A whole number, or the key's default; none if the default is not a number. Within its bounds even if it was not.
    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        let key = keys::find(self.keys, name)?;
        let Shape::Integer(min, max) = key.shape else { return None };
        match self.node(name).map(|n| &n.value) {
            Some(Value::Integer(number)) => Some((*number).clamp(min, max)),
            _ => key.default.parse().ok(),
        }
    }

    /// [`Section::integer`] of a key that has a numeric default and no negative values.
    pub(crate) fn number<T: TryFrom<i64> + Default>(&self, name: &str) -> T {
        self.integer(name).and_then(|n| T::try_from(n).ok()).unwrap_or_default()
    }

    /// Whether it is written and true.
    pub(crate) fn truth(&self, name: &str) -> bool {
        matches!(self.node(name).map(|n| &n.value), Some(Value::Boolean(true)))
    }

    /// A list of strings with their places.
    pub(crate) fn texts(&self, name: &str) -> Vec<(&'a str, Place)> {
        let Some(node) = self.node(name) else { return Vec::new() };
        let one = |node: &'a Node| match &node.value {
            Value::Text(text) => Some((text.as_str(), node.origin.place(self.path_of(name)))),
            _ => None,
        };
        one(node).into_iter().chain(node.items().iter().filter_map(one)).collect()
    }

    /// A secret, resolved.
    pub(crate) fn secret(&self, name: &str, context: &mut Context<'_>) -> Option<Secret> {
        let text = self.text(name)?;
        context.expand(text, || self.place(name))
    }

    /// A plugin's configuration, sorted by key.
    pub(crate) fn scalars(&self, name: &str) -> Vec<(String, String)> {
        let entries = self.node(name).map_or(&[][..], Node::entries);
        let mut pairs: Vec<_> = entries.iter().filter_map(|e| Some((e.name.clone(), scalar(&e.node.value)?))).collect();
        pairs.sort();
        pairs
    }
}

impl Context<'_> {
    /// Resolves the references in `text`.
    pub(crate) fn expand(&mut self, text: &str, place: impl FnOnce() -> Place) -> Option<Secret> {
        match secrets::expand(text, self.root.path()) {
            Ok(secret) => Some(secret),
            Err(error) => {
                let problem = Problem::new("config.unresolved-secret", error.to_string());
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let problem = match cause {
                    Some(cause) => problem.detail(cause),
                    None => problem,
                };
                self.problems.push(problem.at(place()));
                None
            }
        }
    }

    /// Reads and parses a schema file.
    pub(crate) fn schema(&mut self, file: &str, place: Place) -> Option<SchemaFile> {
        let path = self.root.join(file);
        let text = match read_bounded(&path, SCHEMA_BYTES_MAX) {
            Ok(text) => text,
            Err(error) => {
                let missing = error.kind() == io::ErrorKind::NotFound;
                let code = if missing { "decode.missing-schema" } else { "decode.unreadable-schema" };
                let problem = Problem::new(code, format!("schema file \"{file}\" cannot be read")).cause(&error);
                self.problems.push(problem.hint("a relative path counts from the install root").at(place));
                return None;
            }
        };
        match kiteline_avro::Schema::parse(&text) {
            Ok(schema) => Some(SchemaFile { path, schema }),
            Err(error) => {
                let problem =
                    Problem::new("decode.bad-schema", format!("schema file \"{file}\" is not a usable Avro schema"));
                self.problems.push(problem.cause(&error).at(place));
                None
            }
        }
    }
}

fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<String> {
    if fs::metadata(path)?.len() > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {bytes_max} bytes")));
    }
    fs::read_to_string(path)
}
