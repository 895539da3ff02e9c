//! Waiting for a condition, with a bound. Level-triggered: what was true already counts.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// Asks until there is an answer; panics with `what` when the time is over.
pub fn until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = ask() {
            return value;
        }
        assert!(Instant::now() < end, "waited {limit:?} for {what}");
        sleep(Duration::from_millis(20));
    }
}
