//! One partition as this member sees it: assigned or not, claimed or not, fed or not, and what is on its way.

use std::collections::VecDeque;

use crate::{
    checkpoint::{Claim, Owned, Wanted},
    ids::{Instant, MemberId, RequestId, Revision, Run},
    source::Flow,
    store::PluginPosition,
};

/// Where a partition stands. Reading order is the order of its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// To be claimed, not before this moment.
    Unclaimed(Instant),
    /// Being claimed.
    Claiming(Claim),
    /// Claimed; whether the log still has the position is to be asked, not before this moment.
    Unchecked(Instant),
    /// Claimed; the log is being asked.
    Checking,
    /// Fed.
    Working,
    /// To be fed again from the low-water mark, not before this moment.
    Rewinding(Instant),
    /// Ours, but standing still until a person acts.
    Halted(String),
    /// Taking in nothing more; until then, what is in flight is finished.
    Draining(Instant),
    /// The last write, which gives it up, is due or on its way.
    Releasing,
    /// Given up.
    Released,
}

/// A commit on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committing {
    /// What it says.
    pub(crate) wanted: Wanted,
    /// Its sequence number.
    pub(crate) seq: u64,
    /// The write, or the read that finds out about it; an answer to any other request says nothing.
    pub(crate) request: RequestId,
    /// When it is read back once more, because a read was not answered.
    pub(crate) read_at: Option<Instant>,
    /// How often a read was not answered, for the pause before the next.
    pub(crate) reads: u32,
}

/// A former owner that a claim waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormerOwner {
    /// Its name; with the session it names one life of it.
    pub(crate) member: MemberId,
    /// Its session.
    pub(crate) session: i64,
    /// When the claim goes on by force.
    pub(crate) force_at: Instant,
    /// Whether its process is surely gone, so that nobody has to wait and nothing is forced.
    pub(crate) gone: bool,
}

/// One partition.
#[derive(Debug)]
pub(crate) struct Partition {
    /// Where it stands.
    pub(crate) phase: Phase,
    /// Whether the group waits to get it back: then a claim that is won is released at once.
    pub(crate) revoking: bool,
    /// The claim, once won.
    pub(crate) owned: Option<Owned>,
    /// Run under which it was claimed.
    pub(crate) run: Run,
    /// Where the next feeding begins: the position, or the low-water mark of the feeding before.
    pub(crate) resume_at: i64,
    /// Where a lost position was moved to by policy, until that is stored.
    pub(crate) moved: Option<i64>,
    /// The current feeding, if it is fed.
    pub(crate) flow: Option<Flow>,
    /// A write on its way; never two at a time.
    pub(crate) committing: Option<Committing>,
    /// Offsets at which another revision begins, not committed past yet.
    pub(crate) edges: VecDeque<PluginPosition>,
    /// Revision that was handed the last batch.
    pub(crate) handed: Revision,
    /// Where `until end` stops, once known.
    pub(crate) end: Option<i64>,
    /// When the low-water mark last moved, or work began.
    pub(crate) moved_at: Instant,
    /// Whether a stall was reported since.
    pub(crate) stall_told: bool,
    /// Position that was shown to the group's tools last.
    pub(crate) mirrored: Option<i64>,
    /// How often claim or feeding failed in a row.
    pub(crate) tries: u32,
    /// The former owner that a claim waits for; kept between its tries, so that the wait has an end.
    pub(crate) former: Option<FormerOwner>,
    /// Last request of the claim; an answer to any other one says nothing.
    pub(crate) asked: Option<RequestId>,
    /// Until when decoding pauses, because a schema is not to be had.
    pub(crate) decode_at: Option<Instant>,
}

impl Partition {
    /// A partition that the group has just given to us.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Unclaimed(now),
            revoking: false,
            owned: None,
            run: Run(0),
            resume_at: 0,
            moved: None,
            former: None,
            asked: None,
            flow: None,
            committing: None,
            edges: VecDeque::new(),
            handed: Revision(0),
            end: None,
            moved_at: now,
            stall_told: false,
            mirrored: None,
            tries: 0,
            decode_at: None,
        }
    }

    /// Whether the write of a claim is on its way, so that it may turn out to be ours.
    pub(crate) fn claim_in_flight(&self) -> bool {
        matches!(self.phase, Phase::Claiming(Claim::Write(_) | Claim::ReadBack(..)))
    }

    /// First offset that is not complete: of the feeding, else where the next one begins.
    pub(crate) fn low_water(&self) -> Option<i64> {
        self.owned.as_ref()?;
        Some(self.flow.as_ref().map_or(self.resume_at, Flow::low_water))
    }

    /// What a commit would say now, if it would say anything new. Stops at the edge between two revisions.
    pub(crate) fn wanted(&self, release: bool) -> Option<Wanted> {
        let owned = self.owned.as_ref()?;
        let stored = &owned.stored;
        let mark = self.low_water()?;
        if let Some(next_offset) = self.moved {
            return Some(Wanted { next_offset, plugin: stored.plugin, released: false, moved: true });
        }
        let mut plugin = stored.plugin;
        let mut next_offset = mark.max(stored.position.next_offset);
        for edge in &self.edges {
            if stored.position.next_offset >= edge.since {
                plugin = *edge;
            } else {
                next_offset = next_offset.min(edge.since);
                break;
            }
        }
        // released only with the last of it: a commit that stops at an edge is followed by another one
        let released = release && next_offset >= mark;
        let news = next_offset > stored.position.next_offset
            || released != stored.owner.released
            || owned.topic != stored.topic;
        news.then_some(Wanted { next_offset, plugin, released, moved: false })
    }

    /// A feeding begins at `from`: edges behind it have not happened, for those batches are handed over again.
    pub(crate) fn rehand_from(&mut self, from: i64) {
        let Some(owned) = &self.owned else { return };
        self.edges.retain(|edge| edge.since <= from);
        self.handed = self.edges.back().map_or(owned.stored.plugin.revision, |edge| edge.revision);
    }

    /// Forgets edges that the stored position has passed.
    pub(crate) fn drop_edges(&mut self) {
        let Some(owned) = &self.owned else { return };
        let stored = owned.stored.position.next_offset;
        while self.edges.len() > 1 && self.edges[1].since <= stored {
            self.edges.pop_front();
        }
        if let Some(edge) = self.edges.front()
            && edge.since < stored
            && owned.stored.plugin == *edge
        {
            self.edges.pop_front();
        }
    }

    /// Whether it has reached the end that `until end` stops at.
    pub(crate) fn at_end(&self) -> bool {
        match (&self.phase, self.end, self.low_water()) {
            (Phase::Working | Phase::Released, Some(end), Some(mark)) => mark >= end,
            (Phase::Halted(_), _, _) => true,
            _ => false,
        }
    }
}
