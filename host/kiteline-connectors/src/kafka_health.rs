//! Whether brokers are there, as told to people: a bounded rate of complaints, and when to look again. Owns no clock and no call.

use std::time::{Duration, Instant};

/// Shortest time between two complaints.
const COMPLAINT_EVERY: Duration = Duration::from_secs(5);

/// Time between two looks while something is waited for.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub(crate) struct Health {
    /// When the last complaint was made, none while all is well.
    complained: Option<Instant>,
    /// When to look next.
    probe_at: Option<Instant>,
}

impl Health {
    /// All is well.
    pub(crate) fn new() -> Self {
        Self { complained: None, probe_at: None }
    }

    /// Something is wrong; whether people should be told now.
    pub(crate) fn trouble(&mut self, now: Instant) -> bool {
        self.probe_at.get_or_insert(now + PROBE_EVERY);
        if self.complained.is_some_and(|last| now.saturating_duration_since(last) < COMPLAINT_EVERY) {
            return false;
        }
        self.complained = Some(now);
        true
    }

    /// All is well; whether it was not before.
    pub(crate) fn well(&mut self) -> bool {
        self.probe_at = None;
        self.complained.take().is_some()
    }

    /// Whether something is waited for.
    pub(crate) fn waits(&self) -> bool {
        self.complained.is_some()
    }

    /// Whether it is time to look; asks once a [`PROBE_EVERY`].
    pub(crate) fn probe_due(&mut self, now: Instant) -> bool {
        let due = self.probe_at.is_some_and(|at| at <= now);
        if due {
            self.probe_at = Some(now + PROBE_EVERY);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_few_and_looks_are_regular() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut health = Health::new();
        assert!(!health.well() && !health.waits() && !health.probe_due(at(0)));
        assert!(health.trouble(at(0)));
        assert!(!health.trouble(at(10)) && !health.trouble(at(4_999)) && health.trouble(at(5_000)));
        assert!(
            health.waits()
                && health.probe_due(at(5_000))
                && !health.probe_due(at(5_001))
                && health.probe_due(at(6_000))
        );
        assert!(health.well() && !health.well() && !health.probe_due(at(9_000)));
        assert!(health.trouble(at(9_000)));
    }
}
