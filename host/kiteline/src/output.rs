//! The one writer: data to standard output, everything for people to standard error.
//!
//! Owns the forms of an answer (text, table, JSON) and of a failure. A closed pipe is no error: whoever reads has seen enough.
//! Does not own log lines and the progress line of a run.

use std::{
    fmt::Display,
    io::{self, Write},
};

use serde_json::Value;

use crate::error::Failure;

/// In which form a command answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON document.
    Json,
}

/// Where a command writes.
pub struct Output {
    format: Format,
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
}

impl Output {
    /// Writes to the process's standard output and standard error.
    pub fn standard(format: Format) -> Self {
        Self::new(format, Box::new(io::stdout()), Box::new(io::stderr()))
    }

    /// Writes data to `out` and text for people to `err`.
    pub fn new(format: Format, out: Box<dyn Write + Send>, err: Box<dyn Write + Send>) -> Self {
        Self { format, out, err }
    }

    /// The form that was asked for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The answer in the form that was asked for; `text` is not called for JSON. A line break is added where one is missing.
    pub fn answer(&mut self, json: &Value, text: impl FnOnce() -> String) {
        let text = match self.format {
            Format::Text => text(),
            Format::Json => format!("{json:#}"),
        };
        self.data(&text);
    }

    /// Text of an answer that has no other form, to standard output.
    pub fn data(&mut self, text: &str) {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        // A reader that went away is not a failure of ours; there is nobody left to tell either.
        let _ = write!(self.out, "{text}{end}").and_then(|()| self.out.flush());
    }

    /// A line for people, to standard error; nothing with JSON.
    pub fn note(&mut self, line: impl Display) {
        if self.format == Format::Text {
            let _ = writeln!(self.err, "{line}");
        }
    }

    /// A failure: text to standard error, JSON to standard output.
    pub fn failure(&mut self, failure: &Failure) {
        match self.format {
            Format::Text => {
                let _ = write!(self.err, "{failure}");
            }
            Format::Json => self.data(&format!("{:#}", failure.to_json())),
        }
    }
}

/// Aligns rows in columns, two blanks between them; columns of numbers (as far as the rows go) to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let columns = 0..head.len();
    let cell = |row: &Vec<String>, c: usize| row.get(c).cloned().unwrap_or_default();
    let width = |c: usize| rows.iter().map(|r| cell(r, c).chars().count()).chain([head[c].len()]).max().unwrap_or(0);
    let numeric =
        |c: usize| !rows.is_empty() && rows.iter().all(|r| cell(r, c).bytes().all(|b| b.is_ascii_digit() || b == b'-'));
    let shape: Vec<(usize, bool)> = columns.map(|c| (width(c), numeric(c))).collect();
    let line = |cells: Vec<String>| {
        let parts = cells
            .iter()
            .zip(&shape)
            .map(|(text, &(width, right))| if right { format!("{text:>width$}") } else { format!("{text:<width$}") });
        format!("{}\n", parts.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = line(head.iter().map(|h| (*h).to_owned()).collect());
    for row in rows {
        text.push_str(&line((0..head.len()).map(|c| cell(row, c)).collect()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align() {
        let rows = vec![vec!["orders/0".into(), "12".into(), "yes".into()], vec!["orders/10".into(), "7".into()]];
        let text = "partition  next  released\norders/0     12  yes\norders/10     7\n";
        assert_eq!(table(&["partition", "next", "released"], &rows), text);
    }
}
