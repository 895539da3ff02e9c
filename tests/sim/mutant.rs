//! Faults put in on purpose, one at a time: each is a mistake that an engine could make, and each must be caught.
//!
//! They sit between the engine and the fakes, so that the engine itself knows nothing of them.

use std::collections::{BTreeMap, BTreeSet};

use kiteline_engine::{
    ids::{Nonce, RequestId, TopicPartition},
    store::{Found, Key, Node, Op, StoreAnswer, StoreRequest},
};

use crate::{dice::mix, process::Who};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A batch counts as durable when its writes are asked for.
    CommitBeforeAcknowledgement,
    /// Checkpoints are written whatever the version.
    CommitWithoutVersion,
    /// A claim is believed without being written.
    ClaimThatDoesNotWrite,
    /// A lost answer to a claim or a commit counts as success.
    LostAnswerIsSuccess,
    /// A refused commit counts as fenced.
    BadVersionIsFenced,
    /// Whoever was fenced never claims again.
    FencedStopsForGood,
    /// All claims of a process have the same nonce.
    OneNoncePerProcess,
    /// A claim does not wait for its former owner.
    NoWaitForTheFormerOwner,
}

/// What the mistake does to requests and answers.
#[derive(Debug, Default)]
pub(crate) struct Mutation {
    kind: Option<Mutant>,
    requests: BTreeMap<(Who, RequestId), StoreRequest>,
    /// Last nonce that an engine meant, by process and partition.
    nonces: BTreeMap<(Who, TopicPartition), Nonce>,
    /// Commits that were refused: what is read next is taken for somebody else's.
    refused: BTreeSet<(Who, TopicPartition)>,
    /// Partitions given up for good.
    given_up: BTreeSet<(Who, TopicPartition)>,
}

impl Mutation {
    /// This mistake.
    pub(crate) fn of(kind: Mutant) -> Self {
        Self { kind: Some(kind), ..Self::default() }
    }

    fn on(&self, kind: Mutant) -> bool {
        self.kind == Some(kind)
    }

    /// Whether the store does not look at versions of checkpoints.
    pub(crate) fn blind_store(&self) -> bool {
        self.on(Mutant::CommitWithoutVersion)
    }

    /// Whether a batch counts as durable at once.
    pub(crate) fn acknowledges_early(&self) -> bool {
        self.on(Mutant::CommitBeforeAcknowledgement)
    }

    /// A process takes itself for fenced.
    pub(crate) fn fenced(&mut self, who: Who, tp: &TopicPartition) {
        if self.on(Mutant::FencedStopsForGood) {
            self.given_up.insert((who, tp.clone()));
        }
    }

    /// A request leaves a process.
    pub(crate) fn outgoing(&mut self, who: Who, id: RequestId, mut request: StoreRequest) -> StoreRequest {
        if self.kind.is_none() {
            return request;
        }
        self.requests.insert((who, id), request.clone());
        if self.on(Mutant::ClaimThatDoesNotWrite)
            && let Some(tp) = claim_over(&request)
        {
            return StoreRequest::Read(vec![Key::RunHead, Key::Partition(tp)]);
        }
        if self.on(Mutant::OneNoncePerProcess)
            && let StoreRequest::Multi(ops) = &mut request
        {
            for op in ops {
                if let Op::Create(Key::Partition(tp), Node::Checkpoint(c))
                | Op::Set(Key::Partition(tp), Node::Checkpoint(c), _) = op
                {
                    self.nonces.insert((who, tp.clone()), c.owner.nonce);
                    c.owner.nonce = process_nonce(who);
                }
            }
        }
        request
    }

    /// An answer reaches a process; none if it never does.
    pub(crate) fn heard(&mut self, who: Who, id: RequestId, mut answer: StoreAnswer) -> Option<StoreAnswer> {
        let Some(request) = self.requests.remove(&(who, id)) else { return Some(answer) };
        match (self.kind, &request, &answer) {
            (Some(Mutant::LostAnswerIsSuccess), StoreRequest::Multi(ops), StoreAnswer::Unknown)
                if ops.iter().any(|op| matches!(op.key(), Key::Partition(_))) =>
            {
                return Some(StoreAnswer::Done(ops.iter().map(done).collect()));
            }
            (Some(Mutant::ClaimThatDoesNotWrite), StoreRequest::Multi(_), StoreAnswer::Nodes(found)) => {
                let versions = found.iter().map(|f| if let Found::Node(_, v) = f { *v } else { -1 });
                return Some(StoreAnswer::Done(versions.collect()));
            }
            (Some(Mutant::BadVersionIsFenced), StoreRequest::Multi(ops), StoreAnswer::Refused(_)) => {
                self.refused.extend(commits(ops).map(|tp| (who, tp)));
            }
            _ => {}
        }
        let StoreRequest::Read(keys) = &request else { return Some(answer) };
        if self.on(Mutant::FencedStopsForGood)
            && keys.iter().any(|k| matches!(k, Key::Partition(tp) if self.given_up.contains(&(who, tp.clone()))))
        {
            return None;
        }
        if let StoreAnswer::Nodes(found) = &mut answer {
            for (key, found) in keys.iter().zip(found) {
                self.bend(who, key, found);
            }
        }
        Some(answer)
    }

    fn bend(&mut self, who: Who, key: &Key, found: &mut Found) {
        match (key, &mut *found) {
            (Key::Partition(tp), Found::Node(Node::Checkpoint(c), _)) => {
                if self.on(Mutant::OneNoncePerProcess) && c.owner.nonce == process_nonce(who) {
                    c.owner.nonce = self.nonces.get(&(who, tp.clone())).copied().unwrap_or_default();
                }
                if self.refused.remove(&(who, tp.clone())) {
                    c.owner.nonce = Nonce(0);
                }
            }
            (Key::Member(_), Found::Node(..)) if self.on(Mutant::NoWaitForTheFormerOwner) => {
                *found = Found::Absent;
            }
            _ => {}
        }
    }
}

fn process_nonce(who: Who) -> Nonce {
    Nonce(mix(((who.member as u64) << 32) + u64::from(who.life)))
}

/// The partition that a request claims, if it has had an owner before.
fn claim_over(request: &StoreRequest) -> Option<TopicPartition> {
    let StoreRequest::Multi(ops) = request else { return None };
    ops.iter().find_map(|op| match op {
        Op::Set(Key::Partition(tp), Node::Checkpoint(c), _) if c.position.mark.generation != c.owner.generation => {
            Some(tp.clone())
        }
        _ => None,
    })
}

/// The partitions that a request commits.
fn commits(ops: &[Op]) -> impl Iterator<Item = TopicPartition> + '_ {
    ops.iter().filter_map(|op| match op {
        Op::Set(Key::Partition(tp), Node::Checkpoint(c), _) if c.position.mark.generation == c.owner.generation => {
            Some(tp.clone())
        }
        _ => None,
    })
}

/// What an operation's version would be, had it been done.
fn done(op: &Op) -> i32 {
    match op {
        Op::Check(_, version) => *version,
        Op::Create(..) => 0,
        Op::Set(_, _, version) => version + 1,
        Op::Delete(..) => -1,
    }
}
