//! The consumer group: what it gives, takes back and takes away, and how partitions are given up in order.

use super::Pipeline;
use crate::{
    effect::Effect,
    ids::{Instant, MemberId, TopicPartition},
    partition::{Partition, Phase},
};

/// A moment that does not come.
pub(super) const NEVER: Instant = Instant(u64::MAX);

/// How long a member waits for partitions before it takes none for its share, in milliseconds: longer than a group's session, for
/// what a member that is gone has is given to others only when the group has found that out.
const SHARE_MS: u64 = 60_000;

/// A revocation that the group waits for.
#[derive(Debug)]
pub(super) struct Revoke {
    /// What it wants back.
    partitions: Vec<TopicPartition>,
    /// When it gets them at the latest, released or not: a group that waits too long expels us.
    answer_by: Instant,
}

impl Pipeline {
    pub(super) fn on_assigned(&mut self, list: Vec<TopicPartition>) {
        let now = self.desk.at();
        for tp in &list {
            let end = self.owe_no_more(tp);
            let partition = self.partitions.entry(tp.clone()).or_insert_with(|| Partition::new(now));
            partition.end = partition.end.or(end);
            partition.revoking = false;
            if partition.phase == Phase::Released {
                partition.phase = Phase::Unclaimed(now);
            }
        }
        self.sweep_again();
        self.settled_at = if self.partitions.is_empty() { now.plus_ms(SHARE_MS) } else { now };
        self.desk.effects.push(Effect::AnswerAssign(list));
        if let Some(until) = self.stopping_until() {
            for tp in self.partitions.keys().cloned().collect::<Vec<_>>() {
                self.drain(&tp, until);
            }
        } else {
            self.tick_partitions();
        }
    }

    pub(super) fn on_revoked(&mut self, list: Vec<TopicPartition>) {
        let now = self.desk.at();
        let until = now.plus_ms(self.limits.drain_ms_max);
        self.sweep_again();
        self.settled_at = now.plus_ms(SHARE_MS);
        self.on_their_way_out(&list, until);
        match &mut self.revoke {
            Some(revoke) => revoke.partitions.extend(list),
            None => {
                self.revoke = Some(Revoke { partitions: list, answer_by: until.plus_ms(self.limits.drain_ms_max) });
            }
        }
    }

    /// Taken away without asking: no time to drain, and no use in it. What is complete is still written down, best effort.
    pub(super) fn on_lost(&mut self, list: Vec<TopicPartition>) {
        self.sweep_again();
        self.settled_at = NEVER;
        self.on_their_way_out(&list, self.desk.at());
        for tp in &list {
            self.forget_flow(tp);
        }
        self.tick_partitions();
        // an older revocation of the same partitions is answered by this: a second answer, later, could give back what the group
        // has given to us again meanwhile
        if let Some(revoke) = &mut self.revoke {
            revoke.partitions.retain(|tp| !list.contains(tp));
            if revoke.partitions.is_empty() {
                self.revoke = None;
            }
        }
        self.desk.effects.push(Effect::AnswerRevoke(list));
    }

    fn on_their_way_out(&mut self, list: &[TopicPartition], until: Instant) {
        self.revoking = true;
        for tp in list {
            if let Some(partition) = self.partitions.get_mut(tp) {
                partition.revoking = true;
            }
            self.drain(tp, until);
        }
    }

    /// Leaves the group at once: what is in flight is off the books.
    pub(super) fn leave_group(&mut self) {
        let all: Vec<_> = self.partitions.keys().cloned().collect();
        for tp in &all {
            self.forget_flow(tp);
        }
        for (tp, partition) in std::mem::take(&mut self.partitions) {
            self.owe(tp, partition.end);
        }
        self.asking.clear();
        self.revoke = None;
        self.sweep_again();
        self.settled_at = NEVER;
        self.desk.effects.push(Effect::LeaveGroup);
    }

    /// Gives revoked partitions back once all of them are released, or when the group has waited long enough.
    pub(super) fn settle_revoke(&mut self) {
        if !self.revoking {
            return;
        }
        let now = self.desk.at();
        let open = |p: &Partition| p.revoking && (p.owned.is_some() || p.claim_in_flight());
        let due = self.revoke.as_ref().is_some_and(|revoke| {
            let waits = |tp| self.partitions.get(tp).is_some_and(open);
            now >= revoke.answer_by || !revoke.partitions.iter().any(waits)
        });
        if due && let Some(revoke) = self.revoke.take() {
            for tp in &revoke.partitions {
                if self.partitions.get(tp).is_some_and(|p| p.revoking) {
                    self.forget_flow(tp);
                }
            }
            self.desk.effects.push(Effect::AnswerRevoke(revoke.partitions));
        }
        let asked_for = |tp: &TopicPartition| self.revoke.as_ref().is_some_and(|r| r.partitions.contains(tp));
        let gone: Vec<_> = self
            .partitions
            .iter()
            .filter(|(tp, p)| p.revoking && !open(p) && !asked_for(tp))
            .map(|(tp, _)| tp.clone())
            .collect();
        for tp in gone {
            self.forget_flow(&tp);
            if let Some(partition) = self.partitions.remove(&tp) {
                self.owe(tp, partition.end);
            }
        }
        self.revoking = self.revoke.is_some() || self.partitions.values().any(|p| p.revoking);
    }

    /// Moves a partition on its way out: nothing new is taken in, until then what is in flight is finished.
    pub(super) fn drain(&mut self, tp: &TopicPartition, until: Instant) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        match &partition.phase {
            Phase::Unclaimed(_) => partition.phase = Phase::Released,
            // what is written must be heard of first: it may be ours
            Phase::Claiming(_) if !partition.claim_in_flight() => partition.phase = Phase::Released,
            Phase::Claiming(_) | Phase::Released | Phase::Releasing => {}
            // the earlier of the two
            Phase::Draining(before) => partition.phase = Phase::Draining(until.min(*before)),
            Phase::Unchecked(_) | Phase::Checking | Phase::Rewinding(_) | Phase::Halted(_) => {
                partition.phase = if partition.owned.is_some() { Phase::Releasing } else { Phase::Released };
            }
            Phase::Working => partition.phase = Phase::Draining(until),
        }
        self.advance_drain(tp);
    }

    /// Drops the claim: nothing that is in flight for it counts any more.
    pub(super) fn disown(&mut self, tp: &TopicPartition, phase: Phase) {
        self.forget_flow(tp);
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.owned = None;
            partition.committing = None;
            partition.asked = None;
            partition.moved = None;
            partition.edges.clear();
            partition.phase = phase;
        }
    }

    /// Ends the feeding and takes what is in flight off the books.
    pub(super) fn forget_flow(&mut self, tp: &TopicPartition) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let Some(mut flow) = partition.flow.take() else {
            return;
        };
        partition.resume_at = flow.low_water();
        partition.decode_at = None;
        self.desk.effects.push(Effect::StopFeeding(tp.clone()));
        for batch in flow.abandon() {
            self.batches.remove(&batch);
            self.desk.effects.push(Effect::Forget(batch));
        }
        self.desk.effects.push(Effect::Flush(tp.clone()));
    }

    /// A member's process was looked for.
    pub(super) fn on_probed(&mut self, member: &MemberId, session: i64, gone: bool) {
        self.membership.probed(&mut self.desk, member, session, gone);
        if gone {
            self.owner_gone(member, session);
        }
    }
}
