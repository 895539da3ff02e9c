//! Log lines: one a line, to standard error, as text or JSON.

use std::{
    fmt::{Display, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use crate::driver::clock;

/// Who must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever looks for the reason of something.
    Debug,
    /// What an operator did or waits for.
    Info,
    /// Unexpected, but recovered.
    Warn,
    /// Data at risk, or a person is needed.
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// One line to be written.
#[derive(Clone, Debug)]
pub struct Line {
    level: Level,
    event: &'static str,
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Line {
    /// A line: `event` is its stable dotted name, stage word first; `message` is for people.
    pub fn new(level: Level, event: &'static str, message: impl Into<String>) -> Self {
        Self { level, event, message: message.into(), fields: Vec::new() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.fields.push((name, value.to_string()));
        self
    }
}

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Where lines go. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    format: LogFormat,
    level: Level,
    out: Arc<Mutex<dyn std::io::Write + Send>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("format", &self.format).field("level", &self.level).finish_non_exhaustive()
    }
}

impl Log {
    /// Lines of at least this level, to standard error.
    pub fn stderr(format: LogFormat, level: Level) -> Self {
        Self { format, level, out: Arc::new(Mutex::new(std::io::stderr())) }
    }

    /// Lines to anything else.
    pub fn to(format: LogFormat, level: Level, out: impl std::io::Write + Send + 'static) -> Self {
        Self { format, level, out: Arc::new(Mutex::new(out)) }
    }

    /// Writes one line. A full disk or a closed pipe loses the line, never the pipeline.
    pub fn write(&self, line: Line) {
        if line.level < self.level {
            return;
        }
        let text = self.render(&line, clock::now().wall_ms);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(text.as_bytes());
    }

    fn render(&self, line: &Line, wall_ms: u64) -> String {
        let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(wall_ms));
        match self.format {
            LogFormat::Text => {
                let mut text = format!("{time} {:5} {} [{}]", line.level.word(), escape(&line.message), line.event);
                for (name, value) in &line.fields {
                    let quoted = value.is_empty() || value.contains([' ', '"', '=']);
                    let value = escape(value);
                    let _ = if quoted {
                        write!(text, " {name}=\"{}\"", value.replace('"', "\\\""))
                    } else {
                        write!(text, " {name}={value}")
                    };
                }
                text.push('\n');
                text
            }
            LogFormat::Json => {
                let mut object = serde_json::Map::new();
                object.insert("time".into(), time.to_string().into());
                object.insert("level".into(), line.level.word().into());
                object.insert("event".into(), line.event.into());
                object.insert("message".into(), line.message.as_str().into());
                for (name, value) in &line.fields {
                    object.insert((*name).into(), value.as_str().into());
                }
                format!("{}\n", serde_json::Value::Object(object))
            }
        }
    }
}

/// Control characters would forge or break lines.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_it_says() {
        let line =
            Line::new(Level::Warn, "source.waiting", "broker not there\nfake").with("partition", "a b").with("n", 3);
        let text = Log::stderr(LogFormat::Text, Level::Info).render(&line, 1_764_600_000_123);
        let want = "2025-12-01T14:40:00.123Z warn  broker not there\\nfake [source.waiting] partition=\"a b\" n=3\n";
        assert_eq!(text, want);
        let json = Log::stderr(LogFormat::Json, Level::Info).render(&line, 0);
        let want = "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"warn\",\"event\":\"source.waiting\",\
                    \"message\":\"broker not there\\nfake\",\"partition\":\"a b\",\"n\":\"3\"}\n";
        assert_eq!(json, want);
    }
}
