//! Swaps: a loaded and warm candidate becomes the next revision, at a batch edge of each partition.

use super::{
    Asker, Candidate, Desk, Effect, Notice, Pipeline, Revision, StoreAnswer, StoreRequest,
};
use crate::{
    member::revision_node,
    store::{Desired, Key, Node, Op},
};

/// What is known of the live plugin and of the one that shall follow it.
#[derive(Debug)]
pub(super) struct Swap {
    live: Candidate,
    /// Submitted last, not asked for yet or on its way with the revision it will be.
    candidate: Option<Candidate>,
    asked: Option<Revision>,
    /// Whether the driver was told which revision its first plugin is.
    told: Option<Revision>,
    /// A wanted revision that this member does not have, so that it is told once.
    missing: Option<Revision>,
}

impl Swap {
    pub(super) fn new(live: Candidate) -> Self {
        Self {
            live,
            candidate: None,
            asked: None,
            told: None,
            missing: None,
        }
    }

    pub(super) fn stateless(&self) -> bool {
        self.live.stateless
    }

    /// The member works in a run with this live revision.
    pub(super) fn entered(&mut self, desk: &mut Desk, revision: Revision) {
        if self.told != Some(revision) {
            self.told = Some(revision);
            desk.effects.push(Effect::Live {
                token: self.live.token,
                revision,
            });
        }
    }

    pub(super) fn expired(&mut self) {
        self.asked = None;
    }

    /// Another revision is wanted than the one that works here.
    pub(super) fn desired(&mut self, desk: &mut Desk, wanted: Revision) {
        if self.asked != Some(wanted) && self.missing != Some(wanted) {
            self.missing = Some(wanted);
            let why = format!(
                "revision {} is wanted, and this member has not loaded it",
                wanted.0
            );
            desk.notice(Notice::SwapRefused(why));
        }
    }
}

impl Pipeline {
    /// The last one submitted wins; one is on its way at a time.
    pub(super) fn submit(&mut self, candidate: Candidate) {
        if self.swap.asked.is_some() {
            self.swap.candidate = Some(candidate);
            return self.desk.notice(Notice::SwapRefused(
                "another swap was still on its way; the last one wins".into(),
            ));
        }
        if candidate.digest == self.swap.live.digest
            && candidate.config_digest == self.swap.live.config_digest
        {
            return self.desk.notice(Notice::SwapRefused(
                "it is the live revision already".into(),
            ));
        }
        let Some((desired, version)) = self.membership.desired().cloned() else {
            return self
                .desk
                .notice(Notice::SwapRefused("the pipeline has not begun".into()));
        };
        if !self.membership.entered() {
            return self
                .desk
                .notice(Notice::SwapRefused("the member is not in a run".into()));
        }
        let revision = Revision(self.membership.revision.0.max(desired.live.0) + 1);
        let wall = self.desk.now.wall_ms;
        let ops = vec![
            Op::Set(
                Key::Desired,
                Node::Desired(Desired {
                    live: revision,
                    at_ms: wall,
                    ..desired
                }),
                version,
            ),
            Op::Create(Key::Revision(revision), revision_node(&candidate, wall)),
        ];
        self.swap.candidate = Some(candidate);
        self.swap.asked = Some(revision);
        self.desk.ask(Asker::Swap, StoreRequest::Multi(ops));
    }

    pub(super) fn on_swap_answer(&mut self, answer: &StoreAnswer) {
        let (Some(revision), Some(candidate)) =
            (self.swap.asked.take(), self.swap.candidate.take())
        else {
            return;
        };
        let StoreAnswer::Done(versions) = answer else {
            let why = match answer {
                StoreAnswer::Refused(_) => {
                    "another member changed the wanted revision at the same moment"
                }
                StoreAnswer::Failed(why) => why,
                _ => "the store did not answer; the wanted revision is read again",
            };
            self.desk.notice(Notice::SwapRefused(why.into()));
            return self.membership.rejoin(&mut self.desk);
        };
        self.membership.swapped(
            candidate.clone(),
            revision,
            versions.first().copied().unwrap_or(-1),
            self.desk.now.wall_ms,
        );
        self.desk.effects.push(Effect::Live {
            token: candidate.token,
            revision,
        });
        self.swap.told = Some(revision);
        self.swap.live = candidate;
        self.switch_to(revision);
    }
}
