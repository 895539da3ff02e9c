//! Every bound of the engine, with its default, its ceiling and the reason. Units are in the names.

/// Batches that a partition may have been allowed to fetch and that have not come. Few, so that partitions without news do not
/// sit on what others could use; more than one, so that fetching goes on while the engine looks at the last batch.
pub const FETCH_AHEAD_MAX: u32 = 4;

/// Time to leave a run once everything is released, in milliseconds: half a dozen requests to the store, and room for one that is
/// not answered. Beyond it the process ends nevertheless, and the next opener finds the run abandoned.
pub const LEAVE_MS_MAX: u64 = 10_000;

/// Bounds of one pipeline. Everything in flight is bounded by these; the simulator draws each from its floor upwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records of a batch. 256 rows of a pruned schema fit the first caches; larger batches gain under a tenth.
    pub batch_records_max: u32,
    /// Bytes of a batch's records as fetched, a goal: a batch ends with the record that passes it.
    pub batch_bytes_max: u32,
    /// Batches of one partition between fetch and acknowledgement.
    pub partition_batches_max: u32,
    /// Batches of the pipeline between fetch and acknowledgement. A partition that has none may always have one, and up to
    /// [`FETCH_AHEAD_MAX`] a partition may be on their way when this is reached.
    pub pipeline_batches_max: u32,
    /// Partitions in one request to the store. ZooKeeper's packets end at 1 MiB; 200 checkpoints are about 100 KB.
    pub commit_partitions_max: u32,
    /// Time between two commits of a partition, in milliseconds.
    pub commit_interval_ms: u64,
    /// Time to drain a partition before it is given back, in milliseconds.
    pub drain_ms_max: u64,
    /// Time without progress of a partition that has work before it is reported as stalled, in milliseconds.
    pub stall_ms_max: u64,
    /// First pause before a failed step is tried again, in milliseconds; it doubles up to [`Limits::backoff_ms_max`].
    pub backoff_ms_min: u64,
    /// Longest pause before a failed step is tried again, in milliseconds.
    pub backoff_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch_records_max: 256,
            batch_bytes_max: 64 << 10,
            partition_batches_max: 32,
            pipeline_batches_max: 128,
            commit_partitions_max: 100,
            commit_interval_ms: 1_000,
            drain_ms_max: 5_000,
            stall_ms_max: 60_000,
            backoff_ms_min: 100,
            backoff_ms_max: 5_000,
        }
    }
}
