//! What every part of the engine works with during one step: the time, the effects so far, request names, nonces.

use std::collections::BTreeMap;

use crate::{
    effect::{Effect, Notice},
    event::Now,
    ids::{FeedId, Instant, Nonce, RequestId, TopicPartition},
    store::{StoreAnswer, StoreRequest},
};

/// On whose behalf the store was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Membership and runs.
    Member,
    /// The claim of a partition.
    Claim(TopicPartition),
    /// A commit, and what it holds.
    Commit(Vec<TopicPartition>),
    /// Reading a commit back.
    ReadBack(Vec<TopicPartition>),
    /// A bounded run, about partitions of others; about which there are, if it names none.
    Owed(Vec<TopicPartition>),
    /// Only to prove the session, and to see run and desired revision.
    Proof,
    /// A swap.
    Swap,
}

/// The engine's desk: cleared of effects after each step.
#[derive(Debug)]
pub(crate) struct Desk {
    /// When this step happens.
    pub(crate) now: Now,
    /// What this step asks for.
    pub(crate) effects: Vec<Effect>,
    /// Requests to the store that have no answer yet, and on whose behalf.
    asked: BTreeMap<RequestId, Asker>,
    /// Name of the next request, and of the next feeding.
    next: u64,
    /// State of the nonce generator, seeded by the driver so that the engine itself draws nothing.
    seed: u64,
}

impl Desk {
    /// An empty desk. `seed` must be random for real use: nonces come from it.
    pub(crate) fn new(seed: u64) -> Self {
        Self { now: Now { at: Instant(0), wall_ms: 0 }, effects: Vec::new(), asked: BTreeMap::new(), next: 1, seed }
    }

    /// The moment of this step.
    pub(crate) fn at(&self) -> Instant {
        self.now.at
    }

    /// A number that was not used before. splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    pub(crate) fn nonce(&mut self) -> Nonce {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Nonce(z ^ (z >> 31))
    }

    /// A name for a new feeding.
    pub(crate) fn feed(&mut self) -> FeedId {
        self.next += 1;
        FeedId(self.next)
    }

    /// Asks the store.
    pub(crate) fn ask(&mut self, asker: Asker, request: StoreRequest) -> RequestId {
        self.next += 1;
        let id = RequestId(self.next);
        self.asked.insert(id, asker);
        self.effects.push(Effect::Store(id, request));
        id
    }

    /// Takes the note of an answered request; none if it was given up meanwhile.
    pub(crate) fn answered(&mut self, request: RequestId) -> Option<Asker> {
        self.asked.remove(&request)
    }

    /// Requests without an answer.
    pub(crate) fn asked_count(&self) -> usize {
        self.asked.len()
    }

    /// Whether a request of such an asker has no answer yet.
    pub(crate) fn waits_for(&self, asker: impl Fn(&Asker) -> bool) -> bool {
        self.asked.values().any(asker)
    }

    /// Gives up all requests: the session that they were made in is gone.
    pub(crate) fn give_up_requests(&mut self) {
        self.asked.clear();
    }

    /// Tells people.
    pub(crate) fn notice(&mut self, notice: Notice) {
        self.effects.push(Effect::Notice(notice));
    }
}

/// Whether an answer leaves open what happened.
pub(crate) fn unclear(answer: &StoreAnswer) -> bool {
    matches!(answer, StoreAnswer::Unknown | StoreAnswer::Refused(_))
}

/// Pause before the n-th try again: doubles from the floor to the ceiling.
pub(crate) fn backoff_ms(limits: &crate::limits::Limits, tries: u32) -> u64 {
    limits.backoff_ms_min.saturating_mul(1 << tries.min(16)).min(limits.backoff_ms_max)
}
