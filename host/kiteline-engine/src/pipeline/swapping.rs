//! Swaps: a loaded and warm candidate becomes the next revision, at a batch edge of each partition.
//!
//! The wanted revision is stored, so that all members agree: one of them writes it, and the others, if the same plugin was
//! submitted to them, find their candidate under its number and follow. A member that does not have it goes on with the old one.

use super::Pipeline;
use crate::{
    desk::{Asker, Desk},
    effect::{Effect, Notice},
    event::Candidate,
    ids::Revision,
    member::revision_node,
    store::{Desired, Key, Node, Op, RevisionRecord, StoreAnswer, StoreRequest},
};

/// What is known of the live plugin and of those that may follow it.
#[derive(Debug)]
pub(super) struct Swap {
    /// The live plugin.
    live: Candidate,
    /// The candidate that is on its way to the store, and the revision that it will be.
    asked: Option<(Revision, Candidate)>,
    /// The last candidate whose way to the store ended unclear or too late: somebody may have made it a revision.
    loaded: Option<Candidate>,
    /// Submitted last, while another one was on its way or the member was in no run.
    next: Option<Candidate>,
    /// Revision that the driver was told its live plugin is, so that it is told once.
    told: Option<Revision>,
    /// A wanted revision that this member does not have, so that people are told once.
    missing: Option<Revision>,
}

impl Swap {
    pub(super) fn new(live: Candidate) -> Self {
        Self { live, asked: None, loaded: None, next: None, told: None, missing: None }
    }

    pub(super) fn stateless(&self) -> bool {
        self.live.stateless
    }

    /// The member works in a run with this live revision.
    pub(super) fn entered(&mut self, desk: &mut Desk, revision: Revision) {
        if self.told != Some(revision) {
            self.told = Some(revision);
            desk.effects.push(Effect::Live { token: self.live.token, revision });
        }
    }

    /// The session is gone, and with it the answer: the candidate may be stored or not.
    pub(super) fn expired(&mut self) {
        if let Some((_, candidate)) = self.asked.take() {
            self.loaded = Some(candidate);
        }
    }

    /// Whether a wanted revision is worth a look: not if it is on its way from here, or known not to be here.
    pub(super) fn news(&self, wanted: Revision) -> bool {
        self.asked.is_none() && self.missing != Some(wanted)
    }
}

fn is(candidate: &Candidate, record: &RevisionRecord) -> bool {
    candidate.digest == record.digest && candidate.config_digest == record.config_digest
}

fn same(one: &Candidate, other: &Candidate) -> bool {
    one.digest == other.digest && one.config_digest == other.config_digest
}

impl Pipeline {
    /// The last one submitted wins; one is on its way at a time.
    pub(super) fn submit(&mut self, candidate: Candidate) {
        self.swap.missing = None;
        if self.swap.asked.is_some() || !self.membership.entered() {
            self.swap.next = Some(candidate);
            return;
        }
        if same(&candidate, &self.swap.live) {
            let why = "it is the live revision already";
            return self.desk.notice(Notice::SwapRefused(why.into()));
        }
        let Some((desired, version, record)) = self.membership.desired() else {
            self.swap.next = Some(candidate);
            return;
        };
        if record.is_some_and(|record| is(&candidate, record)) {
            let revision = desired.live;
            return self.go_live(candidate, revision);
        }
        let revision = Revision(self.membership.revision.0.max(desired.live.0) + 1);
        let wall = self.desk.now.wall_ms;
        let desired = Desired { live: revision, at_ms: wall, ..desired.clone() };
        let ops = vec![
            Op::Set(Key::Desired, Node::Desired(desired), version),
            Op::Create(Key::Revision(revision), revision_node(&candidate, wall)),
        ];
        self.swap.asked = Some((revision, candidate));
        self.desk.ask(Asker::Swap, StoreRequest::Multi(ops));
    }

    pub(super) fn on_swap_answer(&mut self, answer: &StoreAnswer) {
        let Some((revision, candidate)) = self.swap.asked.take() else {
            return;
        };
        let why = match answer {
            StoreAnswer::Done(versions) => {
                let version = versions.first().copied().unwrap_or(-1);
                let wall = self.desk.now.wall_ms;
                self.membership.swapped(&candidate, revision, version, wall);
                self.go_live(candidate, revision);
                self.submit_next();
                return;
            }
            StoreAnswer::Refused(_) => {
                "another member changed the wanted revision at the same moment; it is read again"
            }
            StoreAnswer::Failed(why) => why,
            _ => "the store did not answer; the wanted revision is read again",
        };
        self.desk.notice(Notice::SwapRefused(why.into()));
        self.swap.loaded = Some(candidate);
        self.membership.rejoin(&mut self.desk);
    }

    /// The wanted revision was read: follow it if its plugin is here.
    pub(super) fn adopt(&mut self) {
        if let Some((desired, _, Some(record))) = self.membership.desired()
            && desired.live != self.membership.revision
        {
            let revision = desired.live;
            let here = [&self.swap.loaded, &self.swap.next]
                .into_iter()
                .flatten()
                .find(|candidate| is(candidate, record))
                .cloned();
            if let Some(candidate) = here {
                self.go_live(candidate, revision);
            } else if self.swap.missing != Some(revision) {
                self.swap.missing = Some(revision);
                let number = revision.0;
                let why = format!("revision {number} is wanted, and this member has not loaded it");
                self.desk.notice(Notice::SwapRefused(why));
            }
        }
    }

    /// Goes on with what was submitted while it could not be.
    pub(super) fn submit_next(&mut self) {
        if let Some(next) = self.swap.next.take()
            && !same(&next, &self.swap.live)
        {
            self.submit(next);
        }
    }

    /// This plugin is the live revision: batches that were not handed over yet go to it.
    fn go_live(&mut self, candidate: Candidate, revision: Revision) {
        self.desk.effects.push(Effect::Live { token: candidate.token, revision });
        self.membership.plugin = candidate.clone();
        self.membership.revision = revision;
        self.swap.told = Some(revision);
        self.swap.missing = None;
        self.swap.live = candidate;
        self.pump_all();
    }
}
