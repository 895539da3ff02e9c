//! What happened, one line each: a hash over all lines, and the last ones for people.

use std::{collections::VecDeque, fmt, fmt::Write};

/// Lines that a failure shows.
const KEPT: usize = 1_000;

/// The trace of one history.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// FNV-1a over every line.
    pub(crate) hash: u64,
    /// How many lines there were.
    pub(crate) lines: u64,
    /// The last lines, oldest first.
    last: VecDeque<String>,
}

impl Trace {
    /// Adds a line.
    pub(crate) fn line(&mut self, at: u64, text: fmt::Arguments<'_>) {
        let mut line = if self.last.len() >= KEPT { self.last.pop_front().unwrap_or_default() } else { String::new() };
        line.clear();
        let _ = write!(line, "{at:>7} {text}");
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        self.lines += 1;
        self.last.push_back(line);
    }

    /// The last lines as one text.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let skip = self.last.len().saturating_sub(lines);
        self.last.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }
}
