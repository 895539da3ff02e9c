//! Bounded runs: when a member that stops at the logs' ends may stop.
//!
//! Its own partitions must be at their ends, and so must all others of the same topics that were ever worked on: their owners may
//! stop or vanish before they get there, and then the group gives them to whoever is left, but only once it has found that
//! out. So a bounded run ends on all members together, and none ends well while work is left.

use std::collections::BTreeMap;

use super::Pipeline;
use crate::{
    desk::Asker,
    ids::{Instant, TopicPartition},
    partition::{Partition, Phase},
    store::{Found, Key, Node, StoreAnswer, StoreRequest},
};

/// Time between two looks at partitions of others, in milliseconds.
const LOOK_MS: u64 = 250;

/// What this member still answers for although it does not have it.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Partitions that are not ours, and where each ends, once known.
    partitions: BTreeMap<TopicPartition, Option<i64>>,
    /// Whether the store was asked which partitions there are since the group last moved some.
    swept: bool,
    /// When to look at them next.
    look_at: Instant,
}

impl Pipeline {
    /// A partition is not ours any more.
    pub(super) fn owe(&mut self, tp: TopicPartition, end: Option<i64>) {
        if self.until_end && self.working() {
            self.owed.partitions.insert(tp, end);
        }
    }

    /// A partition is ours again: it is answered for by having it. Where it ended stays what it was.
    pub(super) fn owe_no_more(&mut self, tp: &TopicPartition) -> Option<i64> {
        self.owed.partitions.remove(tp).flatten()
    }

    /// The log of a partition that was given away before its end was known.
    pub(super) fn owed_end_is(&mut self, tp: &TopicPartition, log_end: i64) {
        if let Some(end) = self.owed.partitions.get_mut(tp) {
            end.get_or_insert(log_end);
        }
    }

    /// Stops when everything that this member answers for is at its end.
    pub(super) fn watch_ends(&mut self) {
        let settled = self.desk.at() >= self.settled_at && self.revoke.is_none();
        let watched = self.until_end && self.working() && settled;
        if !watched || !self.partitions.values().all(Partition::at_end) {
            return;
        }
        if let Err(why) = self.halted_reason() {
            self.stop(Err(why));
        } else if self.owed.swept && self.owed.partitions.is_empty() {
            self.stop(Ok(()));
        } else if self.desk.at() >= self.owed.look_at && !self.desk.waits_for(|a| matches!(a, Asker::Owed(_))) {
            self.owed.look_at = self.desk.at().plus_ms(LOOK_MS);
            self.look_at_owed();
        }
    }

    /// The group has moved partitions: what is known of others is old.
    pub(super) fn sweep_again(&mut self) {
        self.owed.swept = false;
    }

    fn look_at_owed(&mut self) {
        if !self.owed.swept {
            self.desk.ask(Asker::Owed(Vec::new()), StoreRequest::Checkpoints);
            return;
        }
        let unknown: Vec<_> = self.owed.partitions.iter().filter(|(_, end)| end.is_none()).collect();
        let unknown: Vec<_> = unknown.into_iter().map(|(tp, _)| tp.clone()).collect();
        for tp in unknown {
            self.ask_log(&tp);
        }
        let most = self.limits.commit_partitions_max as usize;
        let list: Vec<_> =
            self.owed.partitions.iter().filter(|(_, end)| end.is_some()).map(|(tp, _)| tp.clone()).take(most).collect();
        if !list.is_empty() {
            let keys = list.iter().map(|tp| Key::Partition(tp.clone())).collect();
            self.desk.ask(Asker::Owed(list), StoreRequest::Read(keys));
        }
    }

    pub(super) fn on_owed_answer(&mut self, list: &[TopicPartition], answer: StoreAnswer) {
        let found = match answer {
            StoreAnswer::Nodes(found) => found,
            StoreAnswer::Checkpoints(all) => {
                self.owed.swept = true;
                let ours = |tp: &TopicPartition| self.partitions.contains_key(tp);
                // nodes of topics that this pipeline does not read any more are nobody's business
                let read = |tp: &TopicPartition| self.partitions.keys().any(|p| p.topic == tp.topic);
                let others: Vec<_> = all.into_iter().map(|(tp, _)| tp).filter(|tp| read(tp) && !ours(tp)).collect();
                for tp in others {
                    self.owed.partitions.entry(tp).or_insert(None);
                }
                return;
            }
            _ => return,
        };
        for (tp, found) in list.iter().zip(found) {
            let Some(Some(end)) = self.owed.partitions.get(tp) else { continue };
            if matches!(found, Found::Node(Node::Checkpoint(c), _) if c.position.next_offset >= *end) {
                self.owed.partitions.remove(tp);
            }
        }
    }

    /// The first reason for which a partition stands still, as the result of a bounded run.
    fn halted_reason(&self) -> Result<(), String> {
        self.partitions
            .iter()
            .find_map(|(tp, p)| match &p.phase {
                Phase::Halted(why) => Some(format!("partition {tp} stands still: {why}")),
                _ => None,
            })
            .map_or(Ok(()), Err)
    }
}
