//! What a run tells people: log lines and counters, made together from one list of named events.
//!
//! Levels say who must act: error = data at risk or a person is needed; warn = unexpected but recovered; info = what an operator
//! did or waits for. Nothing is logged per record. Owns no decision; nothing reads the counters but people.

mod counters;
mod log;
mod notices;
mod progress;

pub use counters::{Counters, Totals};
pub use log::{Level, Line, Log, LogFormat};
pub use progress::Progress;

use std::sync::Arc;

use kiteline_engine::effect::Notice;

/// The observer of one pipeline; cheap to clone.
#[derive(Clone, Debug)]
pub struct Observer {
    pipeline: Arc<str>,
    log: Log,
    /// The counters of this run.
    pub counters: Arc<Counters>,
}

impl Observer {
    /// An observer of `pipeline` that writes to `log`.
    pub fn new(pipeline: &str, log: Log) -> Self {
        Self { pipeline: pipeline.into(), log, counters: Arc::default() }
    }

    /// Something that the engine wants to be told.
    pub fn notice(&self, notice: &Notice) {
        self.counters.notice(notice);
        if let Some(line) = notices::line(notice) {
            self.line(line);
        }
    }

    /// Any other line, under this pipeline's name.
    pub fn line(&self, line: Line) {
        self.log.write(line.with("pipeline", &*self.pipeline));
    }
}
