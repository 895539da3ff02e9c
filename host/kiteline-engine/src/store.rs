//! The checkpoint store as the engine sees it: a few typed nodes with versions, read and written in small requests.
//!
//! What a node means and when it is written is decided here and in [`crate::checkpoint`] and [`crate::member`]; how it is
//! spelled (JSON, ZooKeeper paths, a log file) is the business of the connectors. Every store behaves alike: a request is
//! atomic, versions start at 0 and rise by one with each set, and an answer can be lost although the request took effect.

use crate::ids::{Generation, Mark, MemberId, Nonce, Revision, Run, TopicPartition};

/// Names one node of a pipeline's subtree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// What the pipeline is, for ever.
    Descriptor,
    /// Which run is the current one.
    RunHead,
    /// One run.
    Run(Run),
    /// The counter that every change of membership raises.
    Members,
    /// One live member; ephemeral, gone with the member's session.
    Member(MemberId),
    /// Which revision is wanted.
    Desired,
    /// One revision.
    Revision(Revision),
    /// The checkpoint of one partition.
    Partition(TopicPartition),
    /// One entry for people: forced take-overs, accepted loss. `at_ms` and a nonce make it unique.
    Audit(u64, Nonce),
}

/// Fields of a stored node that this version does not know, kept on rewrite. Opaque text, spelled by the connector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra(pub String);

/// Content of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// See [`Key::Descriptor`].
    Descriptor(Descriptor),
    /// See [`Key::RunHead`].
    RunHead(RunHead),
    /// See [`Key::Run`].
    Run(RunRecord),
    /// See [`Key::Members`].
    Members(MemberCounter),
    /// See [`Key::Member`].
    Member(MemberRecord),
    /// See [`Key::Desired`].
    Desired(Desired),
    /// See [`Key::Revision`].
    Revision(RevisionRecord),
    /// See [`Key::Partition`].
    Checkpoint(Checkpoint),
    /// See [`Key::Audit`]: what, who, why.
    Audit(AuditRecord),
}

/// What a pipeline is. Written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Random number of this very pipeline: one that is deleted and made anew has another.
    pub incarnation: Nonce,
    /// Consumer group.
    pub group: String,
    /// Delivery promise, `at-least-once`.
    pub delivery: String,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// Unknown fields.
    pub extra: Extra,
}

/// Whether the current run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadState {
    /// Members work in it, or all of them crashed.
    Running,
    /// Its last member left in order.
    Closed,
}

/// The current run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// Number of the current run.
    pub run: Run,
    /// Whether it goes on.
    pub state: HeadState,
    /// Nonce of the member that wrote this.
    pub nonce: Nonce,
    /// Unknown fields.
    pub extra: Extra,
}

/// How a run stands or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Going on.
    Running,
    /// Ended in order, every partition released.
    Finished,
    /// Its last member left by failure, or left partitions unreleased.
    Failed,
    /// All its members vanished; found out by the next opener.
    Abandoned,
}

/// One run, as kept for people and for `last-finished`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// How it stands.
    pub state: RunState,
    /// The owner's own version of the app.
    pub release: String,
    /// Revision that was live when it was opened.
    pub revision: Revision,
    /// When it was opened, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended, 0 while it runs.
    pub ended_ms: u64,
    /// Why it failed; empty otherwise.
    pub reason: String,
    /// Where its partitions start, if not where the last run ended: topic, partition, next_offset.
    pub start: Vec<(TopicPartition, i64)>,
    /// Where its partitions ended; empty while it runs.
    pub end: Vec<(TopicPartition, i64)>,
    /// Unknown fields.
    pub extra: Extra,
}

/// The counter at [`Key::Members`]. Its value is for people; what counts is the node's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberCounter {
    /// How often the membership changed.
    pub changes: u64,
    /// Unknown fields.
    pub extra: Extra,
}

/// One live member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Nonce of the process start.
    pub nonce: Nonce,
    /// Store session that holds the node.
    pub session: i64,
    /// Host name.
    pub host: String,
    /// Process id on that host.
    pub pid: u32,
    /// Boot id of that host, so that a process id of an earlier boot is not mistaken.
    pub boot: String,
    /// Run that it works in.
    pub run: Run,
    /// Revision that it runs.
    pub revision: Revision,
    /// Unknown fields.
    pub extra: Extra,
}

/// Which revision is wanted on every member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The wanted one.
    pub live: Revision,
    /// When it was set, in milliseconds since 1970.
    pub at_ms: u64,
    /// Unknown fields.
    pub extra: Extra,
}

/// One revision. Named once, never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionRecord {
    /// Digest of the component, `sha256:` and 64 hex digits.
    pub digest: String,
    /// Digest of the plugin's configuration, likewise.
    pub config_digest: String,
    /// Contract that it was built for, for example `kiteline:transform@0.1.0`.
    pub contract: String,
    /// When it was first seen, in milliseconds since 1970.
    pub created_ms: u64,
    /// Unknown fields.
    pub extra: Extra,
}

/// Who may write a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Rises by one with every claim.
    pub generation: Generation,
    /// Drawn anew for every claim: whoever reads his own here has won it.
    pub nonce: Nonce,
    /// Member that claimed.
    pub member: MemberId,
    /// Store session of that member.
    pub session: i64,
    /// Whether it has given the partition back.
    pub released: bool,
}

/// Why a position was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The partition was seen for the first time.
    First,
    /// Everything below is complete.
    Commit,
    /// A run or a command moved it.
    Reset,
    /// It was taken over from another store.
    Import,
    /// A lost position, moved by the configured policy.
    Lost,
}

/// How far a partition is complete, and by which write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// First offset that is not complete.
    pub next_offset: i64,
    /// The write that set it.
    pub mark: Mark,
    /// Why it was set.
    pub why: Why,
    /// When, in milliseconds since 1970; for people only.
    pub at_ms: u64,
}

/// Which incarnation of a topic an offset belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicIdentity {
    /// Kafka's topic id; empty if the broker or the access rights give none.
    pub id: String,
    /// Leader epoch at the position; -1 if not known.
    pub leader_epoch: i32,
}

/// Which code worked below a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginPosition {
    /// Revision that did the last records below the position.
    pub revision: Revision,
    /// next_offset at which that revision began here.
    pub since: i64,
}

/// THE checkpoint: ownership and position of one partition, two things that must not be mixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Who may write.
    pub owner: Owner,
    /// How far.
    pub position: Position,
    /// Of which topic.
    pub topic: TopicIdentity,
    /// By which code.
    pub plugin: PluginPosition,
    /// Unknown fields.
    pub extra: Extra,
}

/// One audit entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// What was done, for example `forced take-over`.
    pub what: String,
    /// Who did it.
    pub member: MemberId,
    /// Details for people.
    pub detail: String,
}

/// What a read found at one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no such node.
    Absent,
    /// The node and its version.
    Node(Node, i32),
    /// Something is there that cannot be trusted: not JSON, checksum wrong, unknown format version. Why, and its version.
    Unreadable(String, i32),
}

/// One operation of an atomic request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Holds only if the node is there at this version.
    Check(Key, i32),
    /// Makes a node, which must not be there yet. [`Key::Member`] nodes are tied to the session.
    Create(Key, Node),
    /// Replaces the content of the node, which must be at this version.
    Set(Key, Node, i32),
    /// Removes the node, which must be at this version. Only members are ever removed.
    Delete(Key, i32),
}

impl Op {
    /// The node that it concerns.
    pub fn key(&self) -> &Key {
        match self {
            Self::Check(key, _) | Self::Create(key, _) | Self::Set(key, _, _) | Self::Delete(key, _) => key,
        }
    }
}

/// What the engine asks of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// Catch up with the leader (`sync`), then read these nodes together. Answered by [`StoreAnswer::Nodes`].
    Read(Vec<Key>),
    /// Catch up, then list and read the live members. Answered by [`StoreAnswer::Members`].
    Members,
    /// Catch up, then list and read the checkpoints of all partitions. Answered by [`StoreAnswer::Checkpoints`].
    Checkpoints,
    /// Do all of it or nothing. Answered by [`StoreAnswer::Done`], [`StoreAnswer::Refused`] or [`StoreAnswer::Unknown`].
    Multi(Vec<Op>),
}

/// What the store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// What was read, in the order of the keys.
    Nodes(Vec<Found>),
    /// The live members with their nodes and versions.
    Members(Vec<(MemberId, MemberRecord, i32)>),
    /// Every partition node, by partition.
    Checkpoints(Vec<(TopicPartition, Found)>),
    /// Done; the version of each operation's node (that of the check, for a check; -1 for a delete).
    Done(Vec<i32>),
    /// Nothing was done: the operation with this index does not hold. It is the first that does not; others may not either.
    Refused(usize),
    /// Nothing was done, and trying again is useless: too large, no access. What a person reads.
    Failed(String),
    /// The answer was lost, or time ran out. It may have been done, be done later, or never.
    Unknown,
}
