//! The configuration as written: values with the place that each came from, whatever layer it was.
//!
//! Owns the tree, and reading it from TOML. Does not own which keys there are ([`super::keys`]) and which layer wins
//! ([`super::layers`]).

use std::fmt;

use toml::de::{DeTable, DeValue};

use crate::error::{Place, Problem};

/// Where a value came from, the weakest layer first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The app's file.
    File {
        /// As shown to people.
        file: String,
        /// From 1.
        line: u32,
        /// From 1, in characters.
        column: u32,
    },
    /// A properties file named on the command line.
    Properties {
        /// As shown to people.
        file: String,
        /// From 1.
        line: u32,
    },
    /// An environment variable.
    Environment(String),
    /// `--set` on the command line.
    Set,
}

impl Origin {
    /// The place of the value at `key`.
    pub fn place(&self, key: impl fmt::Display) -> Place {
        let (source, line, column) = match self {
            Self::File { file, line, column } => (file.clone(), *line, *column),
            Self::Properties { file, line } => (file.clone(), *line, 1),
            Self::Environment(name) => (name.clone(), 0, 0),
            Self::Set => ("--set".into(), 0, 0),
        };
        Place { source: Some(source), key: Some(key.to_string()).filter(|k| !k.is_empty()), line, column }
    }

    /// Whether somebody typed it into a file of the app, and not into this start's surroundings.
    pub fn layer(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Properties { .. } => "properties",
            Self::Environment(_) => "environment",
            Self::Set => "command line",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Properties { file, line } => write!(f, "properties file {file}:{line}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Set => f.write_str("--set on the command line"),
        }
    }
}

/// A value as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A number without fraction.
    Integer(i64),
    /// `true` or `false`.
    Boolean(bool),
    /// A scalar that no setting takes (float, date), as TOML prints it; plugins' configuration may hold it.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A table, in the order of writing.
    Table(Vec<Entry>),
}

impl Value {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "a boolean",
            Self::Scalar(_) => "a float or date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
    /// The same key in weaker layers, the strongest first; for `config explain`.
    pub overridden: Vec<(Origin, Value)>,
}

impl Node {
    /// A value that overrides nothing.
    pub fn new(value: Value, origin: Origin) -> Self {
        Self { value, origin, overridden: Vec::new() }
    }

    /// The entry `name`, if this is a table that has it.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries().iter().find(|e| e.name == name).map(|e| &e.node)
    }

    /// The entries, none if this is no table.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The items, none if this is no list.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub name: String,
    /// Where the key itself is written.
    pub key_origin: Origin,
    /// Its value.
    pub node: Node,
}

/// Reads TOML. `file` is what people are shown. All syntax errors are returned, none quotes the text.
pub(crate) fn from_toml(text: &str, file: &str) -> Result<Node, Vec<Problem>> {
    let lines = Lines::new(text, file);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(Node::new(lines.table(table.get_ref()), lines.at(0)));
    }
    // The parser reports in the order of its passes, people read from top to bottom.
    let mut errors: Vec<_> = errors.iter().map(|e| (e.span().map_or(0, |s| s.start), e.message())).collect();
    errors.sort_unstable();
    let problem =
        |(at, message)| Problem::new("config.syntax", format!("not TOML: {message}")).at(lines.at(at).place(""));
    Err(errors.into_iter().map(problem).collect())
}

/// Byte offsets to lines and columns.
struct Lines<'a> {
    text: &'a str,
    file: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, file: &'a str) -> Self {
        let starts = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, file, starts }
    }

    fn at(&self, offset: usize) -> Origin {
        let line = self.starts.partition_point(|&s| s <= offset).max(1);
        let start = self.starts[line - 1];
        let column = self.text.get(start..offset).map_or(1, |s| s.chars().count() + 1);
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Origin::File { file: self.file.into(), line: number(line), column: number(column) }
    }

    fn table(&self, table: &DeTable<'_>) -> Value {
        let mut entries: Vec<(usize, Entry)> = table
            .iter()
            .map(|(key, value)| {
                let node = Node::new(self.value(value.get_ref()), self.at(value.span().start));
                let at = key.span().start;
                (at, Entry { name: key.get_ref().to_string(), key_origin: self.at(at), node })
            })
            .collect();
        entries.sort_by_key(|(at, _)| *at);
        Value::Table(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    fn value(&self, value: &DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Scalar(number.to_string()),
            },
            DeValue::Float(number) => Value::Scalar(number.to_string()),
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Datetime(date) => Value::Scalar(date.to_string()),
            DeValue::Array(items) => {
                let nodes = items.iter().map(|i| Node::new(self.value(i.get_ref()), self.at(i.span().start)));
                Value::List(nodes.collect())
            }
            DeValue::Table(table) => self.table(table),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it panics")]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_place() {
        let text = "[app]\nname = \"ö\"\n\n[[pipeline.p.sink]]\nkind = 'file'; x\n".replace("; x", "");
        let tree = from_toml(&text, "k.toml").unwrap();
        let at = |line, column| Origin::File { file: "k.toml".into(), line, column };
        let name = tree.get("app").unwrap().get("name").unwrap();
        assert_eq!((&name.value, &name.origin), (&Value::Text("ö".into()), &at(2, 8)));
        let sinks = tree.get("pipeline").unwrap().get("p").unwrap().get("sink").unwrap();
        let kind = &sinks.items()[0].entries()[0];
        assert_eq!((kind.name.as_str(), &kind.key_origin, &kind.node.origin), ("kind", &at(5, 1), &at(5, 8)));
    }

    #[test]
    fn syntax_errors_come_together_and_quote_nothing() {
        let errors = from_toml("a = \"secret\nb = 1\nc = = 2\n", "k.toml").unwrap_err();
        assert!(errors.len() >= 2, "{errors:?}");
        assert!(errors.iter().all(|e| e.code == "config.syntax" && !e.to_string().contains("secret")), "{errors:?}");
        assert_eq!(errors[0].place.as_ref().unwrap().line, 1);
    }
}
