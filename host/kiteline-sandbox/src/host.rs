//! The host's side of interface `host`: what a guest can call, and the state behind it. Linked by hand, so that `emit` and `log`
//! read the guest's memory in place. Not here: what an output buffer means, which is `stage.rs`.

use kiteline_engine::record::RecordBatch;
use scoped_tls::scoped_thread_local;
use wasmtime::{
    StoreContextMut,
    component::{Linker, WasmList, WasmStr},
};

use crate::{
    limiter::Limiter,
    limits::{COUNTER_BYTES_MAX, COUNTERS_MAX, LOG_LINES_MAX},
    stage::{Refusal, Stage},
    text::clean,
    wit::since_v0_1_0::{EmitError, HOST, Level},
};

scoped_thread_local! {
    /// The batch whose outputs are being emitted on this thread. A store's data must own everything, and a batch is only
    /// lent to [`crate::Transformer::transform`]; so the loan goes around the store, for as long as the call lasts.
    pub(crate) static SOURCE: RecordBatch
}

/// How urgent a guest finds a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Finest.
    Trace,
    /// For developers.
    Debug,
    /// Ordinary.
    Info,
    /// Unexpected.
    Warn,
    /// The guest's own failure; the last such line before a trap goes into the report.
    Error,
}

/// One line that a guest logged: bounded, escaped, without line breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How urgent the guest finds it.
    pub level: LogLevel,
    /// The text.
    pub text: String,
}

/// What a guest says and counts, within limits. Survives the instance that wrote it.
#[derive(Debug, Default)]
pub(crate) struct Console {
    lines: Vec<LogLine>,
    /// Lines and counter calls that passed a limit since the last report.
    cut: u32,
    /// The last line at `error` of the current call, for the report of a trap.
    last_error: Option<String>,
    /// Every counter ever named by this transformer's guests; bounded, so that metrics are.
    counters: Vec<Counter>,
}

#[derive(Debug)]
struct Counter {
    name: String,
    /// Of the current call, which may still fail and be replayed.
    pending: u64,
    /// Of successful calls since the last report.
    total: u64,
}

impl Console {
    /// Before a call.
    pub(crate) fn begin(&mut self) {
        self.last_error = None;
    }

    /// After a call: what it counted holds, or is forgotten since its rows are replayed.
    pub(crate) fn end(&mut self, ok: bool) {
        for counter in &mut self.counters {
            let pending = std::mem::take(&mut counter.pending);
            if ok {
                counter.total = counter.total.saturating_add(pending);
            }
        }
    }

    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Takes what is to be reported: lines, how much was cut, counters that rose.
    pub(crate) fn drain(&mut self) -> (Vec<LogLine>, u32, Vec<(String, u64)>) {
        let risen = self.counters.iter_mut().filter(|counter| counter.total > 0);
        let counters = risen.map(|counter| (counter.name.clone(), std::mem::take(&mut counter.total))).collect();
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.cut), counters)
    }

    /// Whether a line at this level would be used at all: reading it costs the guest's memory once.
    fn wants(&self, level: LogLevel) -> bool {
        self.lines.len() < LOG_LINES_MAX || level == LogLevel::Error
    }

    fn log(&mut self, level: LogLevel, text: String) {
        if level == LogLevel::Error {
            self.last_error = Some(text.clone());
        }
        if self.lines.len() < LOG_LINES_MAX {
            self.lines.push(LogLine { level, text });
        } else {
            self.cut = self.cut.saturating_add(1);
        }
    }

    fn count(&mut self, name: &str, delta: u32) {
        let at = self.counters.iter().position(|counter| counter.name == name).or_else(|| {
            (self.counters.len() < COUNTERS_MAX && counter_name_legal(name)).then(|| {
                self.counters.push(Counter { name: name.to_owned(), pending: 0, total: 0 });
                self.counters.len() - 1
            })
        });
        match at {
            Some(at) => self.counters[at].pending = self.counters[at].pending.saturating_add(delta.into()),
            None => self.cut = self.cut.saturating_add(1),
        }
    }
}

/// `[a-z][a-z0-9_]{0,47}`, as the contract says.
fn counter_name_legal(name: &str) -> bool {
    name.len() <= COUNTER_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// What a store owns beside the guest.
pub(crate) struct State {
    pub(crate) limiter: Limiter,
    pub(crate) console: Console,
    /// Where outputs go; there only while `process` runs.
    pub(crate) stage: Option<Box<Stage>>,
}

/// The deadline passed while the host worked for the guest inside `emit`.
#[derive(Debug, thiserror::Error)]
#[error("the deadline passed inside emit")]
pub(crate) struct DeadlineInEmit;

/// Defines interface `host`.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut host = linker.instance(HOST)?;
    host.func_wrap("emit", |store: StoreContextMut<'_, State>, (buffer,): (WasmList<u8>,)| {
        emit(store, &buffer).map(|result| (result,))
    })?;
    host.func_wrap("log", |store: StoreContextMut<'_, State>, (level, message): (Level, WasmStr)| {
        log(store, level, &message)
    })?;
    host.func_wrap("counter-add", |mut store: StoreContextMut<'_, State>, (name, delta): (WasmStr, u32)| {
        // The console is taken out while the name is read in place.
        let mut console = std::mem::take(&mut store.data_mut().console);
        let done = name.to_str(&store).map(|name| console.count(&name, delta));
        store.data_mut().console = console;
        done
    })
}

fn emit(mut store: StoreContextMut<'_, State>, buffer: &WasmList<u8>) -> wasmtime::Result<Result<(), EmitError>> {
    let Some(mut stage) = store.data_mut().stage.take() else {
        return Ok(Err(EmitError::NoBatch));
    };
    let taken = SOURCE.with(|source| stage.take(buffer.as_le_slice(&store), source));
    store.data_mut().stage = Some(stage);
    Ok(match taken {
        Ok(()) => Ok(()),
        Err(Refusal::Bytes) => Err(EmitError::BytesLimit),
        Err(Refusal::Entries) => Err(EmitError::EntriesLimit),
        Err(Refusal::Malformed(text)) => Err(EmitError::Malformed(text)),
        Err(Refusal::Deadline) => return Err(DeadlineInEmit.into()),
    })
}

fn log(mut store: StoreContextMut<'_, State>, level: Level, message: &WasmStr) -> wasmtime::Result<()> {
    let level = match level {
        Level::Trace => LogLevel::Trace,
        Level::Debug => LogLevel::Debug,
        Level::Info => LogLevel::Info,
        Level::Warn => LogLevel::Warn,
        Level::Error => LogLevel::Error,
    };
    let text = match store.data().console.wants(level) {
        true => clean(message.to_str(&store)?.as_bytes()),
        false => String::new(),
    };
    store.data_mut().console.log(level, text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_bounded() {
        let mut console = Console::default();
        for index in 0..70 {
            console.log(LogLevel::Info, format!("line {index}"));
        }
        assert!(!console.wants(LogLevel::Warn));
        assert!(console.wants(LogLevel::Error));
        console.log(LogLevel::Error, "panicked".into());
        assert_eq!(console.last_error(), Some("panicked"));
        for index in 0..40 {
            console.count(&format!("counter_{index}"), 2);
        }
        for name in ["", "Upper", "1st", "a-b", &"x".repeat(49)] {
            console.count(name, 1);
        }
        console.end(true);
        console.count("counter_0", 5);
        console.end(false);
        let (lines, cut, counters) = console.drain();
        assert_eq!(lines.len(), 64);
        assert_eq!(lines[63], LogLine { level: LogLevel::Info, text: "line 63".into() });
        assert_eq!(cut, 7 + 8 + 5);
        assert_eq!(counters.len(), 32);
        assert_eq!(counters[0], ("counter_0".to_owned(), 2));
        console.begin();
        assert_eq!(console.last_error(), None);
        assert_eq!(console.drain(), (vec![], 0, vec![]));
    }
}
