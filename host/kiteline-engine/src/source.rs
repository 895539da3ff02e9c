//! The flow of one partition: what was fetched, how far each batch is, and the low-water mark that follows from it.

use std::collections::VecDeque;

use crate::{
    ids::{BatchId, FeedId, Revision},
    limits::{FETCH_AHEAD_MAX, Limits},
    record::OffsetRange,
};

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Fetched, not handed to a plugin yet.
    Waiting,
    /// With a plugin.
    Transforming,
    /// Every record has an outcome; its writes wait for their turn.
    Transformed,
    /// Writes are on their way.
    Sinking,
    /// Everything is durable.
    Complete,
}

/// A batch on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// Its name.
    pub(crate) batch: BatchId,
    /// What it covers.
    pub(crate) range: OffsetRange,
    /// How far it is.
    pub(crate) progress: Progress,
    /// Revision that has or had it, once handed over. A batch that has to wait for a schema goes to the same one again, for
    /// batches behind it may have been handed over meanwhile.
    pub(crate) revision: Option<Revision>,
}

/// One feeding of a partition from a concrete offset.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Tells this feeding from earlier ones, whose late events must change nothing.
    pub(crate) feed: FeedId,
    /// Batches between fetch and completion, by offset.
    batches: VecDeque<InFlight>,
    /// First offset that was not fetched yet.
    position: i64,
    /// First offset that is not complete.
    low_water: i64,
    /// Fetches that were allowed and have not come back.
    credit: u32,
}

impl Flow {
    /// A feeding that begins at `from`.
    pub(crate) fn new(feed: FeedId, from: i64) -> Self {
        Self { feed, batches: VecDeque::new(), position: from, low_water: from, credit: 0 }
    }

    /// First offset that is not complete.
    pub(crate) fn low_water(&self) -> i64 {
        self.low_water
    }

    /// First offset that was not fetched yet.
    pub(crate) fn position(&self) -> i64 {
        self.position
    }

    /// Batches between fetch and completion.
    pub(crate) fn in_flight(&self) -> usize {
        self.batches.len()
    }

    /// Batches that were fetched or may come at any time: what counts against the bounds.
    pub(crate) fn claimed(&self) -> u32 {
        self.credit + u32::try_from(self.batches.len()).unwrap_or(u32::MAX)
    }

    /// How many more fetches to allow, given what the whole pipeline may still take; counts them as allowed.
    ///
    /// One is allowed always, so that no partition starves while others keep the pipeline full. Not one at a time, so that a
    /// batch does not cost a message each way.
    pub(crate) fn allow(&mut self, limits: &Limits, pipeline_left: u32) -> u32 {
        if self.credit > FETCH_AHEAD_MAX / 2 {
            return 0;
        }
        let least = u32::from(self.claimed() == 0);
        let more = limits
            .partition_batches_max
            .saturating_sub(self.claimed())
            .min(FETCH_AHEAD_MAX - self.credit)
            .min(pipeline_left)
            .max(least);
        self.credit += more;
        more
    }

    /// A batch has come. Offsets only grow; gaps are ordinary.
    pub(crate) fn fetched(&mut self, batch: BatchId, range: OffsetRange) {
        assert!(range.from >= self.position && range.until >= range.from, "a batch must lie behind the ones before it");
        self.credit = self.credit.saturating_sub(1);
        self.position = range.until;
        self.batches.push_back(InFlight { batch, range, progress: Progress::Waiting, revision: None });
    }

    /// The batch of that name, if it is of this feeding.
    pub(crate) fn find(&mut self, batch: BatchId) -> Option<&mut InFlight> {
        self.batches.iter_mut().find(|b| b.batch == batch)
    }

    /// The next batch to hand to the plugin, unless `ahead` others are with it already.
    pub(crate) fn next_to_transform(&mut self, ahead: usize) -> Option<&mut InFlight> {
        if self.batches.iter().filter(|b| b.progress == Progress::Transforming).count() >= ahead {
            return None;
        }
        self.batches.iter_mut().find(|b| b.progress == Progress::Waiting)
    }

    /// The next batch whose writes may leave: order is kept, so every batch before it must have left already.
    pub(crate) fn next_to_sink(&mut self) -> Option<&mut InFlight> {
        self.batches
            .iter_mut()
            .find(|b| !matches!(b.progress, Progress::Sinking | Progress::Complete))
            .filter(|b| b.progress == Progress::Transformed)
    }

    /// Takes off what is complete at the front and moves the low-water mark over it. Whether it moved.
    pub(crate) fn settle(&mut self) -> bool {
        let before = self.batches.len();
        while self.batches.front().is_some_and(|b| b.progress == Progress::Complete) {
            if let Some(batch) = self.batches.pop_front() {
                assert!(batch.range.until >= self.low_water, "the low-water mark only rises");
                self.low_water = batch.range.until;
            }
        }
        self.batches.len() < before
    }

    /// Forgets everything in flight; the names of what must be dropped. What is complete was dropped before.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = BatchId> + '_ {
        self.credit = 0;
        self.batches.drain(..).filter(|b| b.progress != Progress::Complete).map(|b| b.batch)
    }
}
