//! The layers of the configuration and which of them wins.
//!
//! `--set key=value`, then environment variables, then a properties file, then the app's file, then the defaults of
//! [`super::keys`]. Owns how each layer spells keys and values:
//!
//! - `--set pipeline.enrich.source.start=latest`: the path of the key; the first `=` ends it, so values may hold more.
//!   Items of a list of tables are numbered, `transform.0.plugin` or `transform[0].plugin`.
//! - `KITELINE__PIPELINE__ENRICH__SOURCE__START=latest`: two underscores between the parts, letters in either case. A `-` of a
//!   name is written `_`. In `kafka.properties`, where names have dots, `_` stands for `.`.
//! - properties file: `pipeline.enrich.source.start=latest`, in Java's format, keys as for `--set`.
//!
//! Lists are written `a,b` or `["a", "b"]`.

use std::{fs, path::PathBuf};

use toml::de::DeValue;

use super::{
    keys::{self, Key, Shape},
    properties,
    tree::{self, Entry, Node, Origin, Value},
    written::{join, unknown_key},
};
use crate::{
    error::{Place, Problem},
    layout::Root,
};

/// Prefix of the environment variables that are settings.
pub const ENVIRONMENT_PREFIX: &str = "KITELINE__";
/// Largest file that is read as configuration.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What surrounds the app's file at this start.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The values of all `--set`, in order.
    pub set: Vec<String>,
    /// Environment variables; those without [`ENVIRONMENT_PREFIX`] are not looked at.
    pub environment: Vec<(String, String)>,
    /// Properties file named on the command line.
    pub properties: Option<PathBuf>,
}

impl Surroundings {
    /// Nothing but the process's environment.
    pub fn of_process() -> Self {
        let text = |s: std::ffi::OsString| s.into_string().ok();
        let environment = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        Self { environment, ..Self::default() }
    }
}

/// Reads all layers into one tree. The tree is whole as far as it could be read; every problem is returned.
pub(crate) fn read(root: &Root, surroundings: &Surroundings) -> (Node, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut tree = app_file(root, &mut problems);
    let mut apply = |keys: Vec<String>, value: &str, origin: Origin, problems: &mut Vec<Problem>| {
        let setting = Setting { value, loose: matches!(origin, Origin::Environment(_)), origin };
        if let Err(problem) = setting.put(&mut tree, Shape::Table(keys::ROOT), String::new(), &keys) {
            problems.push(problem);
        }
    };
    if let Some(path) = &surroundings.properties {
        let file = path.display().to_string();
        match read_text(path).map(|text| properties::parse(&text)) {
            Err(problem) => problems.push(problem),
            Ok(pairs) => {
                for pair in pairs {
                    let origin = Origin::Properties { file: file.clone(), line: pair.line };
                    apply(dotted(&pair.key), &pair.value, origin, &mut problems);
                }
            }
        }
    }
    let mut variables: Vec<_> =
        surroundings.environment.iter().filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX)).collect();
    variables.sort();
    for (name, value) in variables {
        let keys = name[ENVIRONMENT_PREFIX.len()..].split("__").map(str::to_owned).collect();
        apply(keys, value, Origin::Environment(name.clone()), &mut problems);
    }
    for set in &surroundings.set {
        match set.split_once('=') {
            Some((key, value)) => apply(dotted(key.trim()), value, Origin::Set, &mut problems),
            None => problems.push(
                Problem::new("config.bad-setting", format!("\"{set}\" is not a setting"))
                    .hint("write --set key=value")
                    .at(Place { source: Some("--set".into()), ..Place::default() }),
            ),
        }
    }
    (tree, problems)
}

fn app_file(root: &Root, problems: &mut Vec<Problem>) -> Node {
    let path = root.config_file();
    let file = path.display().to_string();
    let empty = || Node::new(Value::Table(Vec::new()), Origin::File { file: file.clone(), line: 1, column: 1 });
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(problem) => {
            problems.push(problem.hint("`kiteline init DIR` writes one; `--root DIR` names another folder"));
            return empty();
        }
    };
    tree::from_toml(&text, &file).unwrap_or_else(|errors| {
        problems.extend(errors);
        empty()
    })
}

fn read_text(path: &std::path::Path) -> Result<String, Problem> {
    let refuse = |error: std::io::Error| {
        let message = format!("file \"{}\" cannot be read", path.display());
        Problem::new("config.unreadable-file", message).cause(&error).at(Place::file(path.display()))
    };
    let length = fs::metadata(path).map_err(refuse)?.len();
    if length > FILE_BYTES_MAX {
        return Err(refuse(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "larger than 4 MiB")));
    }
    fs::read_to_string(path).map_err(refuse)
}

/// The parts of a key path.
pub(crate) fn dotted(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

/// `name[3]` as its two parts.
pub(crate) fn indexed(part: &str) -> Option<(&str, &str)> {
    part.strip_suffix(']')?.split_once('[')
}

/// One value of a layer above the app's file.
struct Setting<'a> {
    value: &'a str,
    origin: Origin,
    /// Whether names are compared as environment variables spell them.
    loose: bool,
}

impl Setting<'_> {
    fn put(&self, node: &mut Node, shape: Shape, path: String, rest: &[String]) -> Result<(), Problem> {
        match shape {
            Shape::Table(known) => self.put_table(node, known, path, rest),
            Shape::Named(known) => {
                let (name, rest) = self.first(rest, shape, &path)?;
                let name = self.existing(node, name, |s| s.to_lowercase());
                let path = join(&path, &name);
                self.entry(node, &name).map_or(Ok(()), |child| self.put(child, Shape::Table(known), path, rest))
            }
            Shape::Tables(known) => {
                let (index, rest) = self.first(rest, shape, &path)?;
                let Value::List(items) = &mut node.value else { return Ok(()) };
                let number = index.parse::<usize>().ok().filter(|n| *n <= items.len()).ok_or_else(|| {
                    let message = format!("\"{index}\" is not the number of an item; there are {}", items.len());
                    Problem::new("config.bad-setting", message).at(self.origin.place(&path))
                })?;
                if number == items.len() {
                    items.push(Node::new(Value::Table(Vec::new()), self.origin.clone()));
                }
                self.put(&mut items[number], Shape::Table(known), format!("{path}[{number}]"), rest)
            }
            Shape::Properties | Shape::PluginConfig => {
                self.first(rest, shape, &path)?;
                let joined = rest.join(if self.loose { "__" } else { "." });
                let spell = |s: &str| match shape {
                    Shape::Properties => s.to_lowercase().replace('_', "."),
                    _ => s.to_lowercase(),
                };
                let name = self.existing(node, &joined, spell);
                self.replace(node, &name, Value::Text(self.value.into()));
                Ok(())
            }
            _ => {
                let message = format!("key \"{path}\" takes {} and has nothing below it", shape.words());
                Err(Problem::new("config.bad-setting", message).at(self.origin.place(&path)))
            }
        }
    }

    fn put_table(&self, node: &mut Node, known: &'static [Key], path: String, rest: &[String]) -> Result<(), Problem> {
        let (part, rest) = self.first(rest, Shape::Table(known), &path)?;
        let (name, index) = indexed(part).map_or((part, None), |(name, index)| (name, Some(index.to_owned())));
        let spelled = if self.loose { name.to_lowercase() } else { name.to_owned() };
        let full = join(&path, &spelled);
        let Some(key) = keys::find(known, &spelled) else {
            return Err(unknown_key(&spelled, known, self.origin.place(full)));
        };
        let rest: Vec<String> = index.into_iter().chain(rest.iter().cloned()).collect();
        match key.shape {
            Shape::Table(_) | Shape::Named(_) | Shape::Properties | Shape::PluginConfig | Shape::Tables(_) => {
                let list = matches!(key.shape, Shape::Tables(_));
                let empty = if list { Value::List(Vec::new()) } else { Value::Table(Vec::new()) };
                let child = self.entry_or(node, key.name, empty);
                child.map_or(Ok(()), |child| self.put(child, key.shape, full, &rest))
            }
            _ if rest.is_empty() => {
                let value = self.parse(key.shape, &full)?;
                self.replace(node, key.name, value);
                Ok(())
            }
            shape => {
                let message = format!("key \"{full}\" takes {} and has nothing below it", shape.words());
                Err(Problem::new("config.bad-setting", message).at(self.origin.place(&full)))
            }
        }
    }

    fn first<'r>(&self, rest: &'r [String], shape: Shape, path: &str) -> Result<(&'r str, &'r [String]), Problem> {
        match rest.split_first() {
            Some((first, rest)) if !first.is_empty() => Ok((first, rest)),
            _ => {
                let message = format!("\"{path}\" is {} and cannot be set as a whole", shape.words());
                Err(Problem::new("config.bad-setting", message).hint("name a key in it").at(self.origin.place(path)))
            }
        }
    }

    /// The name as an entry of `node` spells it, else as `spell` makes it from an environment variable's part.
    fn existing(&self, node: &Node, name: &str, spell: impl Fn(&str) -> String) -> String {
        if !self.loose {
            return name.into();
        }
        let plain = |s: &str| s.to_lowercase().replace(['-', '.'], "_");
        let found = node.entries().iter().find(|e| plain(&e.name) == plain(name));
        found.map_or_else(|| spell(name), |e| e.name.clone())
    }

    fn entry<'n>(&self, node: &'n mut Node, name: &str) -> Option<&'n mut Node> {
        self.entry_or(node, name, Value::Table(Vec::new()))
    }

    /// The entry `name`, made if need be. None if `node` is no table, which the check as written reports.
    fn entry_or<'n>(&self, node: &'n mut Node, name: &str, empty: Value) -> Option<&'n mut Node> {
        let Value::Table(entries) = &mut node.value else { return None };
        let at = entries.iter().position(|e| e.name == name).unwrap_or_else(|| {
            let node = Node::new(empty, self.origin.clone());
            entries.push(Entry { name: name.into(), key_origin: self.origin.clone(), node });
            entries.len() - 1
        });
        Some(&mut entries[at].node)
    }

    fn replace(&self, node: &mut Node, name: &str, value: Value) {
        let Value::Table(entries) = &mut node.value else { return };
        let mut new = Node::new(value, self.origin.clone());
        match entries.iter_mut().find(|e| e.name == name) {
            Some(entry) => {
                new.overridden.push((entry.node.origin.clone(), entry.node.value.clone()));
                new.overridden.append(&mut entry.node.overridden);
                entry.node = new;
            }
            None => entries.push(Entry { name: name.into(), key_origin: self.origin.clone(), node: new }),
        }
    }

    /// The value as the key's shape reads it. A secret is never repeated in the message.
    fn parse(&self, shape: Shape, path: &str) -> Result<Value, Problem> {
        let refuse = || {
            let message = format!("\"{}\" is not {}", self.value, shape.words());
            Problem::new("config.wrong-type", message).at(self.origin.place(path))
        };
        match shape {
            Shape::Integer(..) => self.value.trim().replace('_', "").parse().map(Value::Integer).map_err(|_| refuse()),
            Shape::Boolean => self.value.trim().parse().map(Value::Boolean).map_err(|_| refuse()),
            Shape::Texts if self.value.trim_start().starts_with('[') => {
                let list = DeValue::parse(self.value).map_err(|_| refuse())?;
                let items = list.get_ref().as_array().ok_or_else(refuse)?.iter();
                let texts: Option<Vec<_>> = items.map(|i| i.get_ref().as_str().map(str::to_owned)).collect();
                Ok(self.list(texts.ok_or_else(refuse)?))
            }
            Shape::Texts => {
                let parts = self.value.split(',').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty());
                Ok(self.list(parts.collect()))
            }
            _ => Ok(Value::Text(self.value.into())),
        }
    }

    fn list(&self, texts: Vec<String>) -> Value {
        Value::List(texts.into_iter().map(|t| Node::new(Value::Text(t), self.origin.clone())).collect())
    }
}
