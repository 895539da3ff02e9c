//! What is held of the batches on their way, by name: records until the engine says to forget them.

use std::{collections::BTreeMap, sync::Arc};

use kiteline_engine::{
    ids::{BatchId, FeedId, TopicPartition},
    record::{RecordBatch, Rejection},
};

use super::writer::Written;

/// One batch.
#[derive(Debug)]
pub(super) struct Entry {
    /// Under which feeding it came.
    pub(super) feed: FeedId,
    /// The records.
    pub(super) source: Arc<RecordBatch>,
    /// What became of them, once the plugin has answered.
    pub(super) written: Option<Arc<Written>>,
    /// Slots that were asked for and not acknowledged.
    pub(super) open: Vec<u8>,
    /// What sinks refused for good so far.
    pub(super) refused: Vec<Rejection>,
    /// Whether dead letters for what sinks refused were asked for.
    pub(super) lettered: bool,
    /// Whether a sink failed: told once.
    pub(super) failed: bool,
}

/// All of them. Bounded by what the engine has in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    entries: BTreeMap<BatchId, Entry>,
    next: u64,
}

impl InFlight {
    /// Takes records in under a new name.
    pub(super) fn add(&mut self, feed: FeedId, source: RecordBatch) -> BatchId {
        self.next += 1;
        let id = BatchId(self.next);
        let entry = Entry {
            feed,
            source: Arc::new(source),
            written: None,
            open: Vec::new(),
            refused: Vec::new(),
            lettered: false,
            failed: false,
        };
        self.entries.insert(id, entry);
        id
    }

    /// The entry of that name, unless it was forgotten.
    pub(super) fn get(&mut self, batch: BatchId) -> Option<&mut Entry> {
        self.entries.get_mut(&batch)
    }

    /// Forgets it; gives what it was.
    pub(super) fn forget(&mut self, batch: BatchId) -> Option<Entry> {
        self.entries.remove(&batch)
    }
}

/// The partition that a batch is of.
pub(super) fn partition_of(batch: &RecordBatch) -> TopicPartition {
    TopicPartition { topic: Arc::clone(&batch.topic), partition: batch.partition }
}
