//! Everything that can happen to a pipeline. A closed list: what is not here does not happen.

use crate::{
    ids::{BatchId, FeedId, Instant, MemberId, RequestId, TopicPartition},
    record::OffsetRange,
    store::StoreAnswer,
};

/// When a step happens: time comes from outside, with each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The clock that decides: monotonic, counting suspend.
    pub at: Instant,
    /// Milliseconds since 1970; written down for people, never compared.
    pub wall_ms: u64,
}

/// The log of one partition, as the broker tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// First offset that is still there.
    pub start: i64,
    /// First offset that is not there yet, for a reader of committed records.
    pub end: i64,
    /// Kafka's topic id; empty if it is not to be had.
    pub topic_id: String,
}

/// What happened. Per batch or rarer, never per record.
#[derive(Clone, Debug)]
pub enum Event {
    /// Plugin compiled and warm, sinks and topics proved: the pipeline may begin.
    Start,
    /// Only time has passed. Due at [`crate::pipeline::Pipeline::tick_ms`] at the latest.
    Tick,
    /// Finish what is in flight, release, leave.
    Stop,
    /// A candidate plugin is loaded and warm; it becomes the next revision.
    Swap(Candidate),

    /// The store has a session, a first or a new one.
    StoreSession {
        /// Number of the session.
        session: i64,
        /// Negotiated timeout in milliseconds; `u64::MAX` where sessions do not end by time.
        timeout_ms: u64,
    },
    /// The session is gone, and with it the member node.
    StoreExpired,
    /// A request ended.
    StoreAnswer {
        /// Which one.
        request: RequestId,
        /// How.
        answer: StoreAnswer,
        /// When it was sent: an answered request proves the session from then on.
        sent: Instant,
    },
    /// A member's process was looked for on this host.
    Probed {
        /// Whose.
        member: MemberId,
        /// Session in its node at the time.
        session: i64,
        /// Whether it surely is no more: same host and boot, and no such process.
        gone: bool,
    },

    /// The group gives us these as well.
    Assigned(Vec<TopicPartition>),
    /// The group wants these back; it waits for the answer.
    Revoked(Vec<TopicPartition>),
    /// These were taken away without asking.
    Lost(Vec<TopicPartition>),
    /// What the logs held at some moment after the question was asked; an error for a partition says why it could not be told.
    Positions(Vec<(TopicPartition, Result<LogRange, String>)>),
    /// One batch came, possibly without records: then only the position moved, over markers or to the end.
    Fetched {
        /// Partition.
        partition: TopicPartition,
        /// Under which feeding.
        feed: FeedId,
        /// Its name from now on.
        batch: BatchId,
        /// What it covers.
        range: OffsetRange,
        /// How many records.
        records: u32,
    },
    /// The log does not have the wanted offset.
    OutOfRange {
        /// Partition.
        partition: TopicPartition,
        /// Under which feeding.
        feed: FeedId,
    },
    /// The partition cannot be read on, for a reason that does not pass.
    PartitionFailed {
        /// Partition.
        partition: TopicPartition,
        /// Under which feeding.
        feed: FeedId,
        /// Why.
        message: String,
    },

    /// The transform has answered for every record of a batch.
    Transformed {
        /// Which batch.
        batch: BatchId,
        /// Records for sinks and dead letters; 0 means complete at once.
        writes: u32,
        /// Whether the records that were set aside stop the partition (`on_record_error = "stop"`): the first one's reason.
        stop: Option<String>,
    },
    /// The batch cannot be decoded yet: a schema is not to be had for a reason that passes.
    DecodeWaits {
        /// Which batch.
        batch: BatchId,
        /// What is waited for.
        message: String,
    },
    /// The host failed in handling the batch, not the guest.
    TransformFailed {
        /// Which batch.
        batch: BatchId,
        /// Why.
        message: String,
    },

    /// Every output and dead letter of the batch is durable.
    Acknowledged(BatchId),
    /// Some outputs of the batch are not durable, for a reason that passes.
    SinkFailed {
        /// Which batch.
        batch: BatchId,
        /// Why.
        message: String,
    },
    /// Some outputs were refused for good and are to be dead-lettered; all others of the batch are durable.
    SinkRefused(BatchId),
    /// A part that the pipeline cannot do without has failed for good.
    Failed(String),
}

/// A plugin that waits to become live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The driver's name for it; comes back with [`crate::effect::Effect::Live`].
    pub token: u64,
    /// Digest of the component.
    pub digest: String,
    /// Digest of its configuration.
    pub config_digest: String,
    /// Contract that it was built for.
    pub contract: String,
    /// Whether it keeps nothing between batches.
    pub stateless: bool,
}
