//! Counters of one pipeline in one process, since its start.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kiteline_engine::effect::Notice;
use kiteline_sandbox::Report;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters that only rise. Read one by one, so a reading is not one moment.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64),* }

        /// One reading of the counters.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            /// Reads all of them.
            pub fn totals(&self) -> Totals {
                Totals { $($name: self.$name.load(Relaxed)),* }
            }
        }

        impl Totals {
            /// Names and values, in the order of the stages.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Records fetched, those that were fetched again included.
    records_read,
    /// Bytes of them as batches, headers and keys included.
    bytes_read,
    /// Records that could not be decoded.
    records_undecodable,
    /// Records that the plugin kept, changed or not.
    records_kept,
    /// Records that the plugin made.
    records_emitted,
    /// Records without any outcome but being dropped by choice.
    records_dropped,
    /// Records set aside by decode, plugin or sink.
    records_rejected,
    /// Dead letters that are durable.
    dead_letters,
    /// Outputs that are durable.
    records_written,
    /// Calls that trapped.
    traps,
    /// Calls that passed their deadline.
    deadlines,
    /// Plugin instances made.
    instances,
    /// Time spent in plugin calls, in nanoseconds.
    guest_ns,
    /// Feedings that began again from the low-water mark.
    rewinds,
    /// Claims of ours that somebody else took.
    fenced,
    /// Positions that the log did not hold.
    positions_lost,
    /// Completions that came too late to count.
    late_completions,
    /// Commits whose answer was unclear.
    commits_unclear,
}

impl Counters {
    /// Counts what a notice tells.
    pub fn notice(&self, notice: &Notice) {
        let counter = match notice {
            Notice::Rewound(..) => &self.rewinds,
            Notice::Fenced(_) => &self.fenced,
            Notice::PositionLost { .. } => &self.positions_lost,
            Notice::LateCompletion => &self.late_completions,
            Notice::CommitUnknown(_) => &self.commits_unclear,
            _ => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Counts a batch that a plugin has answered for.
    pub fn transformed(&self, report: &Report, rejected: u64) {
        for (counter, n) in [
            (&self.records_kept, u64::from(report.kept) + u64::from(report.patched)),
            (&self.records_emitted, report.emitted.into()),
            (&self.records_dropped, report.dropped.into()),
            (&self.records_rejected, rejected),
            (&self.traps, report.traps.into()),
            (&self.deadlines, report.deadlines.into()),
            (&self.instances, report.instances.into()),
            (&self.guest_ns, report.guest_ns),
        ] {
            counter.fetch_add(n, Relaxed);
        }
    }
}
