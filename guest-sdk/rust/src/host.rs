//! What a plugin can ask of the host beside its outputs: log lines and counters. Natively they go to the test harness.

use std::fmt;

/// Weight of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the usual five")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// Adds to a counter of the plugin. Names: `[a-z][a-z0-9_]{0,47}`, at most 32 of them; the host adds prefix and labels.
pub fn count(name: &str, delta: u32) {
    #[cfg(target_family = "wasm")]
    crate::wit::count(name, delta);
    #[cfg(not(target_family = "wasm"))]
    crate::testing::count(name, delta);
}

/// Writes a log line; use the `log!` macro. The host cuts a line at 4 KiB and a batch at 64 lines.
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    let formatted;
    let message = match message.as_str() {
        Some(text) => text,
        None => {
            formatted = message.to_string();
            &formatted
        }
    };
    #[cfg(target_family = "wasm")]
    crate::wit::log(level, message);
    #[cfg(not(target_family = "wasm"))]
    crate::testing::log(level, message);
}

/// Writes a log line: `log!(Info, "threshold {}", n)`. Levels: Trace, Debug, Info, Warn, Error.
#[macro_export]
macro_rules! log {
    ($level:ident, $($text:tt)+) => {
        $crate::log($crate::Level::$level, ::std::format_args!($($text)+))
    };
}

/// Logs a panic's text and place before the instance traps: the host puts that line into the report.
#[cfg(target_family = "wasm")]
pub(crate) fn log_panics() {
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|panic| crate::wit::log(Level::Error, &panic_text(panic)))));
}

/// "panicked at src/lib.rs:7:5: text", on one line.
#[cfg(target_family = "wasm")]
fn panic_text(panic: &std::panic::PanicHookInfo<'_>) -> String {
    let text = panic.payload_as_str().unwrap_or("a value that is no text");
    match panic.location() {
        Some(place) => format!("panicked at {place}: {text}"),
        None => format!("panicked: {text}"),
    }
}
