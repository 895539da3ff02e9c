//! The sink and the dead letters: writes of one feeding of one partition go one way (a lane), in order, and land late.
//!
//! A lane ends with the first write that fails: nothing behind it lands, for else a later record would be in the sink before
//! an earlier one. What has not left the process when a batch is forgotten is dropped; what is on the wire may still land.

/// One way to the sink.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    /// When the last write that was asked for lands.
    pub(crate) last_at: u64,
    /// Whether a write has failed.
    pub(crate) broken: bool,
    /// What would land after this moment is lost, for the process dropped it or died.
    pub(crate) cut_at: Option<u64>,
}

impl Lane {
    /// Whether a write that is due at `at` lands.
    pub(crate) fn open(&self, at: u64) -> bool {
        !self.broken && self.cut_at.is_none_or(|cut| at <= cut)
    }
}

/// One record's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Output `1` of record `0` to the sink.
    Output(i64, u8),
    /// A record to the dead letters.
    DeadLetter(i64),
}

/// What a batch's writes come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// All land, and that is said.
    Acknowledged,
    /// All land but those refused for good, and that is said.
    Refused,
    /// So many land, and failure is said.
    Failed(usize),
}
