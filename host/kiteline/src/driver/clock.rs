//! The only place that asks for the time.

use kiteline_engine::{event::Now, ids::Instant};
use rustix::time::{ClockId, clock_gettime};

/// This moment on the engine's two clocks: one that decides and counts suspend, one for people.
pub fn now() -> Now {
    Now { at: Instant(millis(ClockId::Boottime)), wall_ms: millis(ClockId::Realtime) }
}

fn millis(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}
