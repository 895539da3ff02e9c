//! Everything that a pipeline can ask for. A closed list: what is not here is not done.

use crate::{
    ids::RequestId,
    ids::{BatchId, FeedId, Generation, MemberId, Revision, Run, TopicPartition},
    store::{MemberRecord, StoreRequest, Why},
};

/// What is wanted. The driver performs it for real, the simulator on fakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the checkpoint store.
    Store(RequestId, StoreRequest),
    /// Look whether a member's process still lives on this host; answered by [`crate::event::Event::Probed`].
    Probe(MemberId, MemberRecord),

    /// Subscribe to the topics as a member of the consumer group.
    JoinGroup,
    /// Leave the consumer group; what was assigned is no longer.
    LeaveGroup,
    /// Tell the group that its assignment was heard. Feeding begins later, partition by partition.
    AnswerAssign(Vec<TopicPartition>),
    /// Give these back to the group.
    AnswerRevoke(Vec<TopicPartition>),
    /// Ask what the logs hold. Each question is answered once by [`crate::event::Event::Positions`], in the order of asking; only
    /// failures may come out of order.
    AskPositions(Vec<TopicPartition>),
    /// Read a partition from a concrete offset, now under this feeding.
    Feed(TopicPartition, FeedId, i64),
    /// Allow so many more batches of a feeding.
    Fetch(TopicPartition, FeedId, u32),
    /// Stop reading a partition.
    StopFeeding(TopicPartition),

    /// Decode a batch and hand it to the plugin of this revision.
    Transform(BatchId, TopicPartition, Revision),
    /// Write the batch's outputs and dead letters, after all that was asked for before it. Once writes of a feeding have failed,
    /// nothing that was asked for later under it may land: a later record would be in the sink before an earlier one.
    Sink(BatchId),
    /// Write dead letters for the outputs that a sink refused for good.
    DeadLetter(BatchId),
    /// Drop what is held of a batch: it is complete, or it will be read again.
    Forget(BatchId),
    /// From now on this candidate is the revision of that number.
    Live {
        /// The driver's name for the candidate.
        token: u64,
        /// Its number.
        revision: Revision,
    },
    /// No batch will be handed to this partition's instance any more: flush it and drop it.
    Flush(TopicPartition),

    /// Show these positions to tools that look at the group's offsets. Best effort.
    Mirror(Vec<(TopicPartition, i64)>),
    /// Tell people.
    Notice(Notice),
    /// The pipeline is over.
    Finished(Result<(), String>),
}

/// What people are told, in logs and metrics. One case for each thing worth a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// This member opened a run. `abandoned`: the one before, if all its members had vanished.
    RunOpened(Run, Option<Run>),
    /// This member joined a run that goes on.
    RunJoined(Run),
    /// The run was changed by a command; everything is claimed again.
    RunChanged(Run),
    /// This member left. `closed`: it was the last one and closed the run.
    RunLeft(Run, bool),
    /// A partition is ours, from this offset.
    Claimed(TopicPartition, Generation, i64, Why),
    /// A claim waits for the former owner.
    WaitsForOwner(TopicPartition, MemberId),
    /// A claim was won although the former owner had not released.
    TakenOver(TopicPartition, MemberId),
    /// Somebody else owns the partition now; what was in flight is off the books.
    Fenced(TopicPartition),
    /// The partition is given back, complete up to this offset.
    Released(TopicPartition, i64),
    /// No answer of the store for two thirds of the session: nothing new is written to sinks.
    Held,
    /// The session is proved again.
    Resumed,
    /// The partition is read again from this offset, because of this.
    Rewound(TopicPartition, i64, String),
    /// The log does not hold the wanted offset. Wanted, log start, log end, and what is done about it.
    PositionLost {
        /// Partition.
        partition: TopicPartition,
        /// Offset in the checkpoint.
        wanted: i64,
        /// What the log holds.
        log: (i64, i64),
        /// Whether the topic was made anew.
        recreated: bool,
        /// Where it goes on, or none if it stops here.
        resumed_at: Option<i64>,
    },
    /// The partition stands still until a person acts.
    Halted(TopicPartition, String),
    /// A partition has work and makes no progress.
    Stalled(TopicPartition, u64),
    /// A batch waits for a schema.
    DecodeWaits(TopicPartition, String),
    /// A completion of a former generation or feeding came and changed nothing.
    LateCompletion,
    /// A partition goes on with this revision from this offset.
    Switched(TopicPartition, Revision, i64),
    /// A swap was not made, and why. The old revision goes on.
    SwapRefused(String),
    /// A commit was refused or unanswered and is being read back.
    CommitUnknown(u32),
    /// The store cannot do what was asked, and why.
    StoreFailed(String),
}
