//! Waiting for a condition, with a bound. Level-triggered: what was true already counts.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// Asks until there is an answer; panics with `what` when the time is over.
pub fn until<T>(what: &str, limit: Duration, ask: impl FnMut() -> Option<T>) -> T {
    until_or(limit, ask, || what.to_owned())
}

/// The same, where what was waited for is told as things are when the time is over.
pub fn until_or<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>, what: impl Fn() -> String) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = ask() {
            return value;
        }
        assert!(Instant::now() < end, "waited {limit:?} for {}", what());
        sleep(Duration::from_millis(20));
    }
}
