//! One kiteline process: the real engine, and what its driver would hold for it. A crash drops all of it.

use std::collections::{BTreeMap, BTreeSet};

use kiteline_engine::{
    Identity,
    event::Candidate,
    ids::{BatchId, FeedId, MemberId, RequestId, Revision, TopicPartition},
    pipeline::{Pipeline, Setup},
};

use crate::plan::Plan;

/// Names one life of one member; a restart is another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    /// Which member, from 0.
    pub(crate) member: usize,
    /// Which of its lives, from 1; also its process id.
    pub(crate) life: u32,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "m{}.{}", self.member, self.life)
    }
}

/// A partition being read.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Under which feeding.
    pub(crate) feed: FeedId,
    /// Next offset.
    pub(crate) position: i64,
    /// Batches that the engine allowed.
    pub(crate) credit: u32,
    /// Whether a fetch is on its way.
    pub(crate) busy: bool,
    /// Way to the sink of what is read under this feeding.
    pub(crate) lane: u64,
}

/// A batch that the driver holds for the engine.
#[derive(Debug)]
pub(crate) struct Held {
    /// Partition.
    pub(crate) tp: TopicPartition,
    /// Feeding.
    pub(crate) feed: FeedId,
    /// Its records.
    pub(crate) records: Vec<i64>,
    /// Its way to the sink.
    pub(crate) lane: u64,
    /// Whether its writes were asked for.
    pub(crate) sinking: bool,
    /// Whether a plugin works on it.
    pub(crate) transforming: bool,
    /// Revision that it was handed to.
    pub(crate) revision: Revision,
}

/// One life of a member.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its name.
    pub(crate) who: Who,
    /// The engine.
    pub(crate) pipeline: Pipeline,
    /// Its session with the store, as far as it knows.
    pub(crate) session: Option<i64>,
    /// Whether the store can be reached.
    pub(crate) connected: bool,
    /// Raised whenever the connection breaks: answers of an older one are lost.
    pub(crate) connection: u32,
    /// Until when it stands still.
    pub(crate) paused_until: u64,
    /// Partitions being read.
    pub(crate) readers: BTreeMap<TopicPartition, Reader>,
    /// Batches held.
    pub(crate) batches: BTreeMap<BatchId, Held>,
    /// Name of the last batch.
    pub(crate) last_batch: u64,
    /// Requests to the store without an answer.
    pub(crate) requests: BTreeSet<RequestId>,
    /// Raised when it leaves the group: what the group still sends to the former one is dropped.
    pub(crate) joined: u32,
    /// When the last question about positions is asked.
    pub(crate) positions_at: u64,
    /// When the last answer to one comes.
    pub(crate) told_at: u64,
    /// Partitions that it gave back to the group and was not given again.
    pub(crate) given_back: BTreeSet<TopicPartition>,
    /// Plugins that were submitted, by the driver's name.
    pub(crate) plugins: BTreeMap<u64, Candidate>,
    /// Revisions that the engine named.
    pub(crate) live: BTreeMap<Revision, u64>,
    /// How the engine ended, if it did.
    pub(crate) finished: Option<Result<(), String>>,
}

impl Process {
    /// A process that has just been started, with this plugin.
    pub(crate) fn new(who: Who, plan: &Plan, seed: u64, plugin: u64) -> Self {
        let plugin = candidate(plugin, plan.stateless);
        let setup = Setup {
            identity: Identity {
                member: member_id(who.member),
                host: host(plan, who.member),
                pid: who.life,
                boot: "b".into(),
                release: "1".into(),
                group: "g".into(),
                first_start: Vec::new(),
            },
            plugin: plugin.clone(),
            on_lost_position: plan.on_lost,
            until_end: plan.until_end,
            limits: plan.limits.clone(),
            seed,
        };
        Self {
            who,
            pipeline: Pipeline::new(setup),
            session: None,
            connected: true,
            connection: 0,
            paused_until: 0,
            readers: BTreeMap::new(),
            batches: BTreeMap::new(),
            last_batch: 0,
            requests: BTreeSet::new(),
            joined: 0,
            positions_at: 0,
            told_at: 0,
            given_back: BTreeSet::new(),
            plugins: BTreeMap::from([(plugin.token, plugin)]),
            live: BTreeMap::new(),
            finished: None,
        }
    }
}

/// Name of a member.
pub(crate) fn member_id(member: usize) -> MemberId {
    MemberId(format!("m{member}").into())
}

/// Host of a member.
pub(crate) fn host(plan: &Plan, member: usize) -> String {
    if plan.one_host { "h".into() } else { format!("h{member}") }
}

/// The plugin of that number.
pub(crate) fn candidate(number: u64, stateless: bool) -> Candidate {
    Candidate {
        token: number,
        digest: format!("sha256:{number}"),
        config_digest: "sha256:0".into(),
        contract: "kiteline:transform@0.1.0".into(),
        stateless,
    }
}
