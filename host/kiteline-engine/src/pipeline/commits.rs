//! Commits: what is complete is written down, at its time, and unclear answers are read back.

use super::{
    Asker, Effect, Found, Key, Node, Notice, Phase, Pipeline, StoreAnswer, StoreRequest,
    TopicPartition, Verdict, judge,
};
use crate::{partition::Committing, store::Op};

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
    pub(super) fn commit(&mut self, list: &[TopicPartition]) {
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
            let mark = partition.low_water().unwrap_or(0);
            assert!(
                wanted.moved || wanted.next_offset <= mark.max(0) || wanted.released,
                "never past the low-water mark"
            );
            let Some(owned) = &mut partition.owned else {
                continue;
            };
            ops.push(owned.commit(tp, run, &wanted, wall_ms));
            partition.committing = Some(Committing {
                wanted,
                seq: owned.seq,
            });
            asked.push(tp.clone());
        }
        if !asked.is_empty() {
            self.desk
                .ask(Asker::Commit(asked), StoreRequest::Multi(ops));
        }
    }

    pub(super) fn on_commit_answer(&mut self, list: Vec<TopicPartition>, answer: StoreAnswer) {
        match answer {
            StoreAnswer::Done(versions) => {
                for (tp, version) in list.iter().zip(versions.into_iter().skip(1)) {
                    self.commit_done(tp, version);
                }
            }
            StoreAnswer::Failed(why) => {
                self.desk.notice(Notice::StoreFailed(why));
                for tp in &list {
                    if let Some(partition) = self.partitions.get_mut(tp) {
                        partition.committing = None;
                    }
                }
            }
            // refused or not heard: no conclusion, read
            _ => {
                self.desk.notice(Notice::CommitUnknown(
                    u32::try_from(list.len()).unwrap_or(u32::MAX),
                ));
                self.read_back(list);
            }
        }
    }

    fn read_back(&mut self, list: Vec<TopicPartition>) {
        let keys = std::iter::once(Key::RunHead)
            .chain(list.iter().map(|tp| Key::Partition(tp.clone())))
            .collect();
        self.desk
            .ask(Asker::ReadBack(list), StoreRequest::Read(keys));
    }

    pub(super) fn on_read_back(&mut self, list: &[TopicPartition], answer: StoreAnswer) {
        let StoreAnswer::Nodes(found) = answer else {
            return self.read_back(list.to_vec());
        };
        for (tp, node) in list.iter().zip(found.iter().skip(1)) {
            let Some(partition) = self.partitions.get_mut(tp) else {
                continue;
            };
            let (Some(owned), Some(committing)) = (&mut partition.owned, &partition.committing)
            else {
                continue;
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
                    self.disown(tp, Phase::Halted(why.clone()));
                    self.desk.notice(Notice::Halted(tp.clone(), why));
                }
            }
        }
        if let Some(Found::Node(Node::RunHead(head), version)) = found.first()
            && (head.run != self.membership.run || *version != self.membership.head_version)
        {
            self.run_changed(head.run);
        }
    }

    fn commit_done(&mut self, tp: &TopicPartition, version: i32) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let (Some(owned), Some(committing)) = (&mut partition.owned, &partition.committing) else {
            return;
        };
        let mut content = owned.stored.clone();
        let run = partition.run;
        committing.wanted.apply(
            &mut content,
            run,
            committing.seq,
            &owned.topic,
            self.desk.now.wall_ms,
        );
        owned.took_effect(content, version);
        self.commit_settled(tp);
    }

    /// A commit is known to be stored.
    fn commit_settled(&mut self, tp: &TopicPartition) {
        let (now, stopping) = (self.desk.at(), self.stopping());
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let Some(committing) = partition.committing.take() else {
            return;
        };
        if committing.wanted.moved {
            partition.moved = false;
        }
        partition.drop_edges();
        let Some(owned) = &partition.owned else {
            return;
        };
        if committing.wanted.released && owned.stored.owner.released {
            let next_offset = owned.stored.position.next_offset;
            partition.owned = None;
            // the group may have given it to us again while we gave it up
            let wanted_again = !partition.revoking && !stopping;
            partition.phase = if wanted_again {
                Phase::Unclaimed(now)
            } else {
                Phase::Released
            };
            self.desk.notice(Notice::Released(tp.clone(), next_offset));
            self.forget_flow(tp);
            let mirror = vec![(tp.clone(), next_offset)];
            self.desk.effects.push(Effect::Mirror(mirror));
            return;
        }
        self.advance_drain(tp);
    }

    /// Somebody else owns it now. If the group still gives it to us, claim it again: or nobody would work on it.
    fn fenced(&mut self, tp: &TopicPartition) {
        self.desk.notice(Notice::Fenced(tp.clone()));
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        partition.tries += 1;
        let at = now.plus_ms(super::backoff_ms(&self.limits, partition.tries - 1));
        let phase = if partition.revoking || self.stopping() {
            Phase::Released
        } else {
            Phase::Unclaimed(at)
        };
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
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        if partition.phase == Phase::Releasing
            && partition.committing.is_none()
            && partition.owned.is_some()
        {
            self.commit(std::slice::from_ref(tp));
        }
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
