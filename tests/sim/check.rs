//! What must hold in every history. Each property has a file of its own; this one says when each is looked at.

mod bounded;
mod feeder;
mod gap;
mod regress;
mod revision;
mod runs;

use std::collections::BTreeSet;

use kiteline_engine::{
    ids::{BatchId, Revision, TopicPartition},
    store::{Key, Node, StoreRequest, TopicIdentity, Why},
};

pub(crate) use bounded::bounded;

use crate::{
    process::Who,
    store::Change,
    world::{World, number},
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With success.
    InOrder,
    /// With a failure.
    Failed,
}

/// What checkers must know and cannot see.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Sessions that the store ended although their clients were there: no lease can foresee that.
    pub(crate) killed: BTreeSet<i64>,
    /// Processes that a fault asked to stop.
    pub(crate) asked_to_stop: BTreeSet<Who>,
    /// How the last process ended.
    pub(crate) last_end: Option<Ended>,
    /// Whether it said that it closed its run.
    pub(crate) last_closed: bool,
}

impl Checks {
    /// A process has ended.
    pub(crate) fn ended(&mut self, result: &Result<(), String>) {
        self.last_end = Some(if result.is_ok() { Ended::InOrder } else { Ended::Failed });
    }
}

/// A write took effect.
pub(crate) fn on_change(world: &mut World, session: i64, request: &StoreRequest, change: &Change) {
    let before = match &change.before {
        Some(Node::Checkpoint(c)) => Some(c),
        _ => None,
    };
    if let (Key::Partition(tp), Some(Node::Checkpoint(after))) = (&change.key, &change.after) {
        let ledger = &mut world.ledgers[number(tp)];
        let gap = gap::on_checkpoint(ledger, before, after);
        let revision = revision::on_checkpoint(ledger, session, before, after);
        let regress = regress::on_checkpoint(session, before, after);
        let feeder = feeder::on_checkpoint(world, request, before, after);
        for (checker, verdict) in [("gap", gap), ("revision", revision), ("regress", regress), ("feeder", feeder)] {
            world.judge(checker, verdict.map_err(|e| format!("{tp}: {e}")));
        }
    } else {
        let verdict = runs::on_change(&world.store, session, change);
        world.judge("runs", verdict);
    }
}

impl World {
    /// A partition is fed from here on.
    pub(crate) fn judge_feed(&mut self, who: Who, tp: &TopicPartition, from: i64) {
        let session = self.process(who).and_then(|p| p.session);
        let stored = self.store.checkpoint(tp).cloned();
        // a partition that was never held against its log begins where that begins
        let fresh =
            stored.as_ref().is_some_and(|c| c.position.why == Why::First && c.topic == TopicIdentity::default());
        if fresh && from <= self.logs[number(tp)].start {
            self.ledgers[number(tp)].excuse(0, from);
        }
        let verdict = gap::on_feed(&mut self.ledgers[number(tp)], session, stored.as_ref(), from);
        self.judge("gap", verdict.map_err(|e| format!("{who} {tp}: {e}")));
    }

    /// Writes of a batch are asked for.
    pub(crate) fn judge_sink(&mut self, who: Who, batch: BatchId) {
        let verdict = feeder::on_sink(self, who, batch);
        self.judge("feeder", verdict);
    }

    /// A process takes itself for fenced.
    pub(crate) fn judge_fenced(&mut self, who: Who, tp: &TopicPartition) {
        let verdict = feeder::on_fenced(self, who, tp);
        self.judge("fenced", verdict);
    }

    /// A process was told which plugin a revision is.
    pub(crate) fn judge_live(&mut self, who: Who, token: u64, revision: Revision) {
        let digest = self.process(who).and_then(|p| p.plugins.get(&token).map(|c| c.digest.clone()));
        let verdict = revision::on_live(&self.store, revision, digest.as_deref());
        self.judge("revision", verdict.map_err(|e| format!("{who}: {e}")));
    }
}
