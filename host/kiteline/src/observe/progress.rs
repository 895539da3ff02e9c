//! The progress line of a run whose output is a terminal.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use kiteline_engine::Snapshot;

use super::Totals;

/// Time between two drawings.
const EVERY: Duration = Duration::from_millis(500);

/// Draws one line over and over; draws nothing where standard error is not a terminal.
#[derive(Debug)]
pub struct Progress {
    on: bool,
    drawn_at: Instant,
    last: Totals,
}

impl Progress {
    /// A line on standard error, if that is a terminal.
    pub fn new() -> Self {
        Self { on: std::io::stderr().is_terminal(), drawn_at: Instant::now(), last: Totals::default() }
    }

    /// Whether it is time to draw.
    pub fn due(&self) -> bool {
        self.on && self.drawn_at.elapsed() >= EVERY
    }

    /// Draws. `lag`: records between checkpoint and log end, where known; `age_ms`: since the last commit.
    pub fn draw(&mut self, snapshot: &Snapshot, totals: Totals, lag: Option<u64>, age_ms: u64) {
        let line = render(snapshot, totals, &self.last, self.drawn_at.elapsed(), lag, age_ms);
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "\r\x1b[2K{line}");
        let _ = err.flush();
        self.drawn_at = Instant::now();
        self.last = totals;
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if self.on {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

fn render(
    snapshot: &Snapshot,
    totals: Totals,
    last: &Totals,
    elapsed: Duration,
    lag: Option<u64>,
    age_ms: u64,
) -> String {
    let rate = (totals.records_read - last.records_read) as f64 / elapsed.as_secs_f64().max(0.001);
    let working = snapshot.partitions.iter().filter(|p| p.state == "working").count();
    let halted = snapshot.partitions.iter().filter(|p| p.state == "halted").count();
    let lag = lag.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let mut line = format!(
        "run {} · {working}/{} partitions · {rate:.0} records/s · lag {lag} · checkpoint {:.1} s ago · {} rejected",
        snapshot.run.0,
        snapshot.partitions.len(),
        age_ms as f64 / 1_000.0,
        totals.records_rejected,
    );
    if halted > 0 {
        line.push_str(&format!(" · {halted} halted"));
    }
    if snapshot.held {
        line.push_str(" · held: no answer from the checkpoint store");
    }
    line
}
