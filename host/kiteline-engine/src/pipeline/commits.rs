//! Commits: what is complete is written down, at its time, and unclear answers are read back.

use super::Pipeline;
use crate::{
    checkpoint::{Verdict, judge},
    desk::{Asker, backoff_ms},
    effect::{Effect, Notice},
    ids::{RequestId, TopicPartition},
    partition::{Committing, Phase},
    store::{Found, Key, Node, Op, StoreAnswer, StoreRequest},
};

impl Pipeline {
    /// Writes down what is new of all partitions, many in one request. They have nothing to do with each other.
    pub(super) fn commit_all(&mut self) {
        let due: Vec<_> = self
            .partitions
            .iter()
            .filter(|(_, p)| p.committing.is_none() && p.owned.is_some())
            .filter(|(_, p)| p.wanted(p.phase == Phase::Releasing).is_some())
            .map(|(tp, _)| tp.clone())
            .collect();
        for chunk in due.chunks(self.limits.commit_partitions_max as usize) {
            self.commit(chunk);
        }
    }

    /// One request for these partitions, headed by a check that the run is still ours.
    fn commit(&mut self, list: &[TopicPartition]) {
        if !self.membership.entered() {
            return;
        }
        let (run, wall_ms) = (self.membership.run, self.desk.now.wall_ms);
        let mut ops = vec![Op::Check(Key::RunHead, self.membership.head_version)];
        let mut asked = Vec::new();
        for tp in list {
            let Some(partition) = self.partitions.get_mut(tp) else {
                continue;
            };
            let Some(wanted) = partition.wanted(partition.phase == Phase::Releasing) else {
                continue;
            };
            let (low_water, moved) = (partition.low_water(), partition.moved);
            let Some(owned) = &mut partition.owned else {
                continue;
            };
            let known = low_water.max(Some(owned.stored.position.next_offset));
            assert!(
                Some(wanted.next_offset) <= known || Some(wanted.next_offset) == moved,
                "a commit of {tp} must not pass the low-water mark"
            );
            ops.push(owned.commit(tp, run, &wanted, wall_ms));
            asked.push((tp.clone(), wanted, owned.seq));
        }
        if asked.is_empty() {
            return;
        }
        let names = asked.iter().map(|(tp, ..)| tp.clone()).collect();
        let request = self.desk.ask(Asker::Commit(names), StoreRequest::Multi(ops));
        for (tp, wanted, seq) in asked {
            if let Some(partition) = self.partitions.get_mut(&tp) {
                partition.committing = Some(Committing { wanted, seq, request, read_at: None, reads: 0 });
            }
        }
    }

    /// Those of a list whose write or read-back is this request still: the others were disowned since, and hear nothing of it.
    fn waiting_for(&self, list: &[TopicPartition], request: RequestId) -> Vec<TopicPartition> {
        let waits = |tp: &&TopicPartition| {
            self.partitions.get(*tp).and_then(|p| p.committing.as_ref()).is_some_and(|c| c.request == request)
        };
        list.iter().filter(waits).cloned().collect()
    }

    pub(super) fn on_commit_answer(&mut self, list: &[TopicPartition], request: RequestId, answer: StoreAnswer) {
        let waiting = self.waiting_for(list, request);
        match answer {
            StoreAnswer::Done(versions) => {
                for (tp, version) in list.iter().zip(versions.into_iter().skip(1)) {
                    if waiting.contains(tp) {
                        self.commit_done(tp, version);
                    }
                }
            }
            StoreAnswer::Failed(why) => {
                self.desk.notice(Notice::StoreFailed(why));
                for tp in &waiting {
                    if let Some(partition) = self.partitions.get_mut(tp) {
                        partition.committing = None;
                    }
                }
            }
            // refused or not heard: no conclusion, read
            _ if waiting.is_empty() => {}
            _ => {
                let count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
                self.desk.notice(Notice::CommitUnknown(count));
                self.read_back(waiting);
            }
        }
    }

    fn read_back(&mut self, list: Vec<TopicPartition>) {
        let keys = std::iter::once(Key::RunHead).chain(list.iter().map(|tp| Key::Partition(tp.clone()))).collect();
        let request = self.desk.ask(Asker::ReadBack(list.clone()), StoreRequest::Read(keys));
        for tp in &list {
            if let Some(c) = self.partitions.get_mut(tp).and_then(|p| p.committing.as_mut()) {
                c.request = request;
                c.read_at = None;
            }
        }
    }

    /// Reads back once more what was not answered, many in one request.
    pub(super) fn read_back_due(&mut self) {
        let now = self.desk.at();
        let due = |c: &Committing| c.read_at.is_some_and(|at| at <= now);
        let list: Vec<_> = self
            .partitions
            .iter()
            .filter(|(_, p)| p.committing.as_ref().is_some_and(due))
            .map(|(tp, _)| tp.clone())
            .collect();
        for chunk in list.chunks(self.limits.commit_partitions_max as usize) {
            self.read_back(chunk.to_vec());
        }
    }

    pub(super) fn on_read_back(&mut self, list: &[TopicPartition], request: RequestId, answer: StoreAnswer) {
        let waiting = self.waiting_for(list, request);
        let StoreAnswer::Nodes(found) = answer else {
            return self.read_back_later(&waiting);
        };
        for (tp, node) in list.iter().zip(found.iter().skip(1)) {
            if waiting.contains(tp) {
                self.read_back_one(tp, node);
            }
        }
        if let Some(Found::Node(Node::RunHead(head), version)) = found.first() {
            self.run_is(head.run, *version);
        }
    }

    fn read_back_later(&mut self, list: &[TopicPartition]) {
        let now = self.desk.at();
        for tp in list {
            if let Some(c) = self.partitions.get_mut(tp).and_then(|p| p.committing.as_mut()) {
                c.read_at = Some(now.plus_ms(backoff_ms(&self.limits, c.reads)));
                c.reads += 1;
            }
        }
    }

    fn read_back_one(&mut self, tp: &TopicPartition, node: &Found) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let (Some(owned), Some(committing)) = (&mut partition.owned, &partition.committing) else {
            return;
        };
        match judge(node, owned.nonce, committing.seq) {
            Verdict::Done(content, version) => {
                owned.took_effect(content, version);
                self.commit_settled(tp);
            }
            // an older write of ours: at the next commit the rest is sent again, at this version
            Verdict::Again(content, version) => {
                owned.took_effect(content, version);
                partition.committing = None;
                self.advance_drain(tp);
            }
            Verdict::Fenced => self.fenced(tp),
            Verdict::Unreadable(why) => {
                self.disown(tp, Phase::Released);
                self.halt(tp, why);
            }
        }
    }

    fn commit_done(&mut self, tp: &TopicPartition, version: i32) {
        let wall_ms = self.desk.now.wall_ms;
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let (Some(owned), Some(committing)) = (&mut partition.owned, &partition.committing) else {
            return;
        };
        let mut content = owned.stored.clone();
        let (wanted, seq) = (&committing.wanted, committing.seq);
        wanted.apply(&mut content, partition.run, seq, &owned.topic, wall_ms);
        owned.took_effect(content, version);
        self.commit_settled(tp);
    }

    /// A commit is known to be stored.
    fn commit_settled(&mut self, tp: &TopicPartition) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let Some(committing) = partition.committing.take() else {
            return;
        };
        if committing.wanted.moved && partition.moved == Some(committing.wanted.next_offset) {
            partition.moved = None;
        }
        partition.drop_edges();
        self.advance_drain(tp);
    }

    /// The last write is stored: the partition is nobody's. The group may have given it to us again while we gave it up.
    fn given_up(&mut self, tp: &TopicPartition, next_offset: i64) {
        let (now, stopping) = (self.desk.at(), self.stopping());
        let Some(partition) = self.partitions.get(tp) else {
            return;
        };
        let phase = if partition.revoking || stopping { Phase::Released } else { Phase::Unclaimed(now) };
        self.disown(tp, phase);
        self.desk.notice(Notice::Released(tp.clone(), next_offset));
        self.desk.effects.push(Effect::Mirror(vec![(tp.clone(), next_offset)]));
    }

    /// Somebody else owns it now. If the group still gives it to us, claim it again: or nobody would work on it.
    fn fenced(&mut self, tp: &TopicPartition) {
        self.desk.notice(Notice::Fenced(tp.clone()));
        let (now, stopping) = (self.desk.at(), self.stopping());
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        partition.tries += 1;
        let at = now.plus_ms(backoff_ms(&self.limits, partition.tries - 1));
        let phase = if partition.revoking || stopping { Phase::Released } else { Phase::Unclaimed(at) };
        self.disown(tp, phase);
    }

    /// A partition on its way out: when nothing is in flight any more, give it up with the last commit.
    pub(super) fn advance_drain(&mut self, tp: &TopicPartition) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        if matches!(partition.phase, Phase::Draining(_)) {
            if partition.flow.as_ref().is_some_and(|f| f.in_flight() > 0) {
                return;
            }
            partition.phase = Phase::Releasing;
            self.forget_flow(tp);
        }
        let Some(partition) = self.partitions.get(tp) else {
            return;
        };
        if partition.phase != Phase::Releasing || partition.committing.is_some() {
            return;
        }
        let Some(owned) = &partition.owned else {
            return;
        };
        // a first try that was read back too early may have released it
        if owned.stored.owner.released {
            let next_offset = owned.stored.position.next_offset;
            return self.given_up(tp, next_offset);
        }
        self.commit(std::slice::from_ref(tp));
    }

    /// Shows the stored positions to tools that look at the group.
    pub(super) fn mirror(&mut self) {
        let list: Vec<_> = self
            .partitions
            .iter_mut()
            .filter_map(|(tp, p)| {
                let stored = p.owned.as_ref()?.stored.position.next_offset;
                let news = p.mirrored != Some(stored);
                p.mirrored = Some(stored);
                news.then(|| (tp.clone(), stored))
            })
            .collect();
        if !list.is_empty() {
            self.desk.effects.push(Effect::Mirror(list));
        }
    }
}
