//! The coordinator of the consumer group: cooperative assignment with answers, time-outs and expulsion.
//!
//! It only decides; `world.rs` carries its messages, late if need be. A member that it has expelled goes on as if nothing had
//! happened until it is told.

use std::collections::{BTreeMap, BTreeSet};

use kiteline_engine::ids::TopicPartition;

use crate::{dice::Dice, process::Who};

/// What the coordinator tells a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// These as well.
    Assigned(Vec<TopicPartition>),
    /// Give these back, and say so.
    Revoked(Vec<TopicPartition>),
}

#[derive(Debug, Default)]
struct Member {
    assigned: BTreeSet<TopicPartition>,
    target: BTreeSet<TopicPartition>,
    /// Waits for its answer, until then.
    waits_until: Option<u64>,
    /// Whether it was told anything since it joined.
    told: bool,
}

/// The coordinator.
#[derive(Debug)]
pub(crate) struct Group {
    partitions: Vec<TopicPartition>,
    members: BTreeMap<Who, Member>,
    dirty: bool,
}

impl Group {
    /// A group without members.
    pub(crate) fn new(partitions: Vec<TopicPartition>) -> Self {
        Self { partitions, members: BTreeMap::new(), dirty: false }
    }

    /// A process joins, or is a member already.
    pub(crate) fn join(&mut self, who: Who) {
        self.members.entry(who).or_default();
        self.dirty = true;
    }

    /// A process is no member any more: it left, or was silent too long. What it had.
    pub(crate) fn remove(&mut self, who: Who) -> Option<Vec<TopicPartition>> {
        let member = self.members.remove(&who)?;
        self.dirty = true;
        Some(member.assigned.into_iter().collect())
    }

    /// Everything is to be shuffled.
    pub(crate) fn shuffle(&mut self) {
        self.dirty = true;
    }

    /// A member has heard of its assignment.
    pub(crate) fn assign_answered(&mut self, who: Who) {
        if let Some(member) = self.members.get_mut(&who) {
            member.waits_until = None;
        }
    }

    /// A member has given these back.
    pub(crate) fn revoke_answered(&mut self, who: Who, list: &[TopicPartition]) {
        if let Some(member) = self.members.get_mut(&who) {
            member.waits_until = None;
            member.assigned.retain(|tp| !list.contains(tp));
            // a revocation is followed by an assignment, be it of nothing
            member.told = false;
        }
    }

    /// Members that did not answer in time.
    pub(crate) fn late(&self, now: u64) -> Vec<Who> {
        let late = |m: &Member| m.waits_until.is_some_and(|at| at <= now);
        self.members.iter().filter(|(_, m)| late(m)).map(|(who, _)| *who).collect()
    }

    /// What is to be told now. Each waits for an answer until `until`.
    pub(crate) fn turn(&mut self, dice: &mut Dice, until: u64) -> Vec<(Who, Message)> {
        if std::mem::take(&mut self.dirty) {
            self.plan(dice);
        }
        let mut messages = Vec::new();
        let held: BTreeSet<_> = self.members.values().flat_map(|m| m.assigned.iter().cloned()).collect();
        for (who, member) in &mut self.members {
            if member.waits_until.is_some() {
                continue;
            }
            let back: Vec<_> = member.assigned.difference(&member.target).cloned().collect();
            if !back.is_empty() {
                member.waits_until = Some(until);
                messages.push((*who, Message::Revoked(back)));
                continue;
            }
            let new: Vec<_> = member.target.iter().filter(|tp| !held.contains(*tp)).cloned().collect();
            if !new.is_empty() || !member.told {
                member.assigned.extend(new.iter().cloned());
                member.told = true;
                member.waits_until = Some(until);
                messages.push((*who, Message::Assigned(new)));
            }
        }
        messages
    }

    fn plan(&mut self, dice: &mut Dice) {
        let mut whos: Vec<_> = self.members.keys().copied().collect();
        dice.shuffle(&mut whos);
        let sticky = dice.chance(500);
        let mut targets: BTreeMap<Who, BTreeSet<_>> = whos.iter().map(|who| (*who, BTreeSet::new())).collect();
        for (index, tp) in self.partitions.iter().enumerate() {
            let Some(turn) = whos.get(index % whos.len().max(1)) else { continue };
            let holder = self.members.iter().find(|(_, m)| m.assigned.contains(tp)).map(|(w, _)| w);
            let most = self.partitions.len().div_ceil(whos.len());
            let who = match holder {
                Some(holder) if sticky && targets[holder].len() < most => holder,
                _ => turn,
            };
            targets.get_mut(who).expect("every member has a target").insert(tp.clone());
        }
        for (who, target) in targets {
            if let Some(member) = self.members.get_mut(&who) {
                member.target = target;
            }
        }
    }
}
