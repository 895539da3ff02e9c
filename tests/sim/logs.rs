//! The source: one topic whose partitions have holes, as compacted and transactional topics do.

use kiteline_engine::{event::LogRange, record::OffsetRange};

use crate::dice::Dice;

/// One partition's log. Everything is written beforehand; `end` says how much of it is visible.
#[derive(Debug)]
pub(crate) struct Log {
    /// Whether an offset holds a record; false for holes and markers.
    pub(crate) data: Vec<bool>,
    /// First offset that is still there.
    pub(crate) start: i64,
    /// First offset that is not visible yet.
    pub(crate) end: i64,
}

impl Log {
    /// A log of up to so many offsets, all visible or none yet.
    pub(crate) fn new(dice: &mut Dice, offsets: i64, all: bool) -> Self {
        let empty = dice.chance(80);
        let offsets = if empty { 0 } else { offsets };
        let holes = if dice.chance(300) { 0 } else { dice.range(20, 500) };
        let data: Vec<_> = (0..offsets).map(|_| !dice.chance(holes)).collect();
        // some logs have lost their beginning long ago
        let start = if dice.chance(300) { offsets / 5 } else { 0 };
        let end = if all { offsets } else { start };
        Self { data, start, end }
    }

    /// Where it will end.
    pub(crate) fn last(&self) -> i64 {
        self.data.len() as i64
    }

    /// What a broker says of it.
    pub(crate) fn range(&self) -> LogRange {
        LogRange { start: self.start, end: self.end, topic_id: "t-1".into() }
    }

    /// The next batch from `from`, of at most `max` records; none if nothing is there yet. Without records, only the position moves.
    pub(crate) fn take(&self, dice: &mut Dice, from: i64, max: u32) -> Option<(OffsetRange, Vec<i64>)> {
        if from >= self.end {
            return None;
        }
        let max = usize::try_from(dice.range(1, u64::from(max))).expect("a small number");
        let visible = |o: &i64| self.data[usize::try_from(*o).expect("not negative")];
        let records: Vec<_> = (from..self.end).filter(visible).take(max).collect();
        let until = match records.last() {
            None => self.end,
            Some(last) => {
                // the client's position may lie behind holes that follow
                let next = (last + 1..self.end).find(visible).unwrap_or(self.end);
                if dice.chance(500) { next } else { last + 1 }
            }
        };
        let from = match records.first() {
            Some(first) if dice.chance(300) => *first,
            _ => from,
        };
        Some((OffsetRange { from, until }, records))
    }
}
