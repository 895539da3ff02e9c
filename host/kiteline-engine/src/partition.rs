//! One partition as this member sees it: assigned or not, claimed or not, fed or not, and what is on its way.

use std::collections::VecDeque;

use crate::{
    checkpoint::{Claim, Owned, Wanted},
    ids::{Instant, MemberId, Revision, Run},
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
    /// Claimed; the log is being asked whether the position is still there.
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
    /// Whether a lost position was moved by policy and that is not stored yet.
    pub(crate) moved: bool,
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
    /// When a claim that waits for a former owner goes on by force.
    pub(crate) force_at: Option<Instant>,
    /// A former owner whose process is surely gone.
    pub(crate) gone_owner: Option<(MemberId, i64)>,
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
            moved: false,
            force_at: None,
            gone_owner: None,
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
        matches!(
            self.phase,
            Phase::Claiming(Claim::Write(_) | Claim::ReadBack(_))
        )
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
        if self.moved {
            let (next_offset, plugin) = (self.resume_at.min(mark), stored.plugin);
            return Some(Wanted {
                next_offset,
                plugin,
                released: false,
                moved: true,
            });
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
        news.then_some(Wanted {
            next_offset,
            plugin,
            released,
            moved: false,
        })
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
