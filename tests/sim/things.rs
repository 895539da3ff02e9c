//! What can be on its way in a simulated history: messages, requests, writes, and moments of time.

use kiteline_engine::{
    event::Event,
    ids::{BatchId, FeedId, RequestId, TopicPartition},
    store::{StoreAnswer, StoreRequest},
};

use crate::{
    group::Message,
    process::Who,
    sink::{Landing, Write},
};

/// Something that will arrive.
#[derive(Debug)]
pub(crate) enum Thing {
    /// A member is started again.
    Boot(usize),
    /// A process gets a session.
    Connect(Who),
    /// The way to the store is free again.
    Reconnect(Who),
    /// The store has not heard of a session's client until this moment.
    SessionEnd(i64, u64),
    /// An event reaches a process.
    Event(Who, Event),
    /// The time of a process.
    Tick(Who),
    /// A request reaches the store.
    Land(Post),
    /// An answer reaches a process: over which connection, to what, and when that was sent.
    Answer(Who, u32, RequestId, StoreAnswer, u64),
    /// A fetch ends.
    Fetch(Who, TopicPartition, FeedId),
    /// The log tells its range to whoever asked.
    Positions(Who, Vec<TopicPartition>),
    /// A plugin has worked on a batch.
    Transformed(Who, BatchId, i64),
    /// Writes reach the sink.
    SinkLand(Shipment),
    /// The coordinator looks after its members.
    GroupTurn,
    /// A message of the coordinator reaches a process; which membership it is meant for.
    GroupMessage(Who, u32, Message),
    /// A process learns that it is no member any more.
    GroupLost(Who, u32, Vec<TopicPartition>),
    /// A process joins.
    GroupJoin(Who, u32),
    /// An answer reaches the coordinator; none is that to an assignment.
    GroupAnswer(Who, Option<Vec<TopicPartition>>),
    /// The coordinator has not heard of a process for a session.
    GroupGone(Who),
    /// Faults may strike.
    Chaos,
    /// Records become visible.
    Produce,
    /// Whether all has come to its end.
    Look,
}

/// A request on its way to the store.
#[derive(Debug)]
pub(crate) struct Post {
    /// Sender.
    pub(crate) who: Who,
    /// In which session.
    pub(crate) session: i64,
    /// Over which connection.
    pub(crate) connection: u32,
    /// Name.
    pub(crate) id: RequestId,
    /// Content.
    pub(crate) request: StoreRequest,
    /// When it was sent.
    pub(crate) sent: u64,
    /// Whether the sender will hear of it.
    pub(crate) told: bool,
}

/// Writes of one batch on their way to the sink.
#[derive(Debug)]
pub(crate) struct Shipment {
    /// Sender.
    pub(crate) who: Who,
    /// Batch.
    pub(crate) batch: BatchId,
    /// Source partition.
    pub(crate) tp: TopicPartition,
    /// Way.
    pub(crate) lane: u64,
    /// What is written, in order.
    pub(crate) writes: Vec<Write>,
    /// What comes of it.
    pub(crate) landing: Landing,
}
