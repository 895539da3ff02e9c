//! Claims: from "the group gives it to us" to "it is ours", one versioned write under a nonce of its own.

use super::Pipeline;
use crate::{
    checkpoint::{Claim, Claimant, Owned, Verdict, Written, claimed, judge},
    desk::{Asker, backoff_ms, unclear},
    effect::{Effect, Notice},
    ids::{MemberId, RequestId, TopicPartition},
    partition::{FormerOwner, Phase},
    store::{AuditRecord, Checkpoint, Found, Key, Node, Op, StoreAnswer, StoreRequest},
};

/// Claims that are on their way at the same time. Each costs a read and a write; a start of many partitions must not flood the store.
const CLAIMS_MAX: usize = 32;

/// Time between two looks at a former owner that has not released, in milliseconds.
const OWNER_LOOK_MS: u64 = 250;

/// Longest wait for a former owner, in milliseconds, where sessions do not end by time.
const OWNER_WAIT_MS_MAX: u64 = 120_000;

impl Pipeline {
    /// Timers of all partitions: claims to begin, owners to look at, feeds to repeat, drains to end, stalls to tell.
    pub(super) fn tick_partitions(&mut self) {
        let now = self.desk.at();
        let all: Vec<_> = self.partitions.keys().cloned().collect();
        for tp in all {
            match self.partitions.get(&tp).map(|p| p.phase.clone()) {
                Some(Phase::Unclaimed(at) | Phase::Claiming(Claim::Wait(at))) if at <= now => {
                    self.begin_claim(&tp);
                }
                Some(Phase::Claiming(Claim::ReadBack(written, Some(at)))) if at <= now => {
                    self.read_claim_back(&tp, written);
                }
                Some(Phase::Unchecked(at)) if at <= now => self.ask_positions(&tp),
                Some(Phase::Rewinding(at)) if at <= now && !self.lease.held() => self.feed(&tp),
                Some(Phase::Draining(until)) if until <= now => {
                    self.forget_flow(&tp);
                    self.set_phase(&tp, Phase::Releasing);
                    self.advance_drain(&tp);
                }
                Some(Phase::Releasing) => self.advance_drain(&tp),
                Some(Phase::Working | Phase::Draining(_)) => self.tick_fed(&tp),
                _ => {}
            }
        }
    }

    pub(super) fn set_phase(&mut self, tp: &TopicPartition, phase: Phase) {
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.phase = phase;
        }
    }

    fn begin_claim(&mut self, tp: &TopicPartition) {
        let busy = self
            .partitions
            .values()
            .filter(|p| matches!(&p.phase, Phase::Claiming(step) if !matches!(step, Claim::Wait(_))))
            .count();
        let idle = !self.membership.entered() || self.lease.held() || self.stopping();
        if busy >= CLAIMS_MAX || idle {
            return;
        }
        self.set_phase(tp, Phase::Claiming(Claim::Read));
        self.ask_claim(tp, vec![Key::RunHead, Key::Partition(tp.clone())]);
    }

    fn ask_claim(&mut self, tp: &TopicPartition, keys: Vec<Key>) {
        let request = self.desk.ask(Asker::Claim(tp.clone()), StoreRequest::Read(keys));
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.asked = Some(request);
        }
    }

    /// Tries again later: the longer the oftener it failed.
    fn retry_claim(&mut self, tp: &TopicPartition) {
        let (now, out) = (self.desk.at(), self.stopping());
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.tries += 1;
            let at = now.plus_ms(backoff_ms(&self.limits, partition.tries - 1));
            partition.phase = if partition.revoking || out { Phase::Released } else { Phase::Unclaimed(at) };
        }
    }

    pub(super) fn on_claim_answer(&mut self, tp: &TopicPartition, request: RequestId, answer: StoreAnswer) {
        let partition = self.partitions.get(tp).filter(|p| p.asked == Some(request));
        let Some(Phase::Claiming(step)) = partition.map(|p| p.phase.clone()) else {
            return;
        };
        match (step, answer) {
            (Claim::Read, StoreAnswer::Nodes(found)) => self.claim_read(tp, &found),
            (Claim::ReadOwner(read), StoreAnswer::Nodes(found)) => {
                self.owner_read(tp, *read, &found);
            }
            (Claim::Write(written), StoreAnswer::Done(versions)) => {
                let version = versions.get(1).copied().unwrap_or(-1);
                self.claim_won(tp, *written, version);
            }
            (Claim::Write(written), answer) if unclear(&answer) => {
                self.read_claim_back(tp, written);
            }
            (Claim::ReadBack(written, _), StoreAnswer::Nodes(found)) => {
                self.claim_read_back(tp, *written, &found);
            }
            // not heard: ask again, for the write may have happened
            (Claim::ReadBack(written, _), _) => {
                let again = self.desk.at().plus_ms(self.limits.backoff_ms_min);
                self.set_phase(tp, Phase::Claiming(Claim::ReadBack(written, Some(again))));
            }
            (_, StoreAnswer::Failed(why)) => {
                self.desk.notice(Notice::StoreFailed(why));
                self.retry_claim(tp);
            }
            _ => self.retry_claim(tp),
        }
    }

    /// Run head and partition are read: claim, or see about the former owner.
    fn claim_read(&mut self, tp: &TopicPartition, found: &[Found]) {
        let [Found::Node(Node::RunHead(head), head_version), partition] = found else {
            return self.retry_claim(tp);
        };
        if head.run != self.membership.run || *head_version != self.membership.head_version {
            self.retry_claim(tp);
            return self.run_is(head.run, *head_version);
        }
        match partition {
            Found::Unreadable(why, _) => {
                let why = format!("its checkpoint cannot be read and is not guessed: {why}");
                self.halt(tp, why);
            }
            Found::Absent => self.write_claim(tp, None, None),
            Found::Node(Node::Checkpoint(former), version) => {
                self.former_read(tp, former.clone(), *version);
            }
            Found::Node(_, _) => self.retry_claim(tp),
        }
    }

    fn former_read(&mut self, tp: &TopicPartition, former: Checkpoint, version: i32) {
        let owner = &former.owner;
        if owner.released || owner.session == self.membership.session() {
            return self.write_claim(tp, Some((former, version)), None);
        }
        let now = self.desk.at();
        let waited = self
            .partitions
            .get(tp)
            .and_then(|p| p.former.as_ref())
            .filter(|f| f.member == owner.member && f.session == owner.session);
        match waited {
            Some(f) if f.gone => self.write_claim(tp, Some((former, version)), None),
            Some(f) if f.force_at <= now => {
                let forced = Some(owner.member.clone());
                self.write_claim(tp, Some((former, version)), forced);
            }
            _ => {
                let node = Key::Member(owner.member.clone());
                let step = Claim::ReadOwner(Box::new((former, version)));
                self.set_phase(tp, Phase::Claiming(step));
                self.ask_claim(tp, vec![node]);
            }
        }
    }

    /// The former owner's member node is read: gone, or to be waited for, at most its session and a second.
    fn owner_read(&mut self, tp: &TopicPartition, (former, version): (Checkpoint, i32), found: &[Found]) {
        let record = match found {
            [Found::Node(Node::Member(record), _)] if record.session == former.owner.session => record.clone(),
            [Found::Node(_, _) | Found::Absent] => {
                return self.write_claim(tp, Some((former, version)), None);
            }
            _ => return self.retry_claim(tp),
        };
        let now = self.desk.at();
        let timeout = self.lease.timeout_ms().min(OWNER_WAIT_MS_MAX);
        let (member, session) = (former.owner.member, former.owner.session);
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        partition.phase = Phase::Claiming(Claim::Wait(now.plus_ms(OWNER_LOOK_MS)));
        let known = partition.former.as_ref().is_some_and(|f| f.member == member && f.session == session);
        if !known {
            partition.former = Some(FormerOwner {
                member: member.clone(),
                session,
                force_at: now.plus_ms(timeout + 1_000),
                gone: false,
            });
            let notice = Notice::WaitsForOwner(tp.clone(), member.clone());
            self.desk.notice(notice);
        }
        self.desk.effects.push(Effect::Probe(member, record));
    }

    /// The process of a former owner is surely gone: its partitions need not wait for its session.
    pub(super) fn owner_gone(&mut self, member: &MemberId, session: i64) {
        let now = self.desk.at();
        for partition in self.partitions.values_mut() {
            let Some(former) = &mut partition.former else {
                continue;
            };
            if former.member == *member && former.session == session {
                former.gone = true;
                if let Phase::Claiming(Claim::Wait(look_at)) = &mut partition.phase {
                    *look_at = now;
                }
            }
        }
    }

    /// The one write of a claim: everything in one request, with a nonce of its own.
    fn write_claim(&mut self, tp: &TopicPartition, former: Option<(Checkpoint, i32)>, forced: Option<MemberId>) {
        let nonce = self.desk.nonce();
        let wall_ms = self.desk.now.wall_ms;
        let by = Claimant {
            member: self.membership.member(),
            session: self.membership.session(),
            run: self.membership.run,
            revision: self.membership.revision,
            start: &self.membership.start,
            wall_ms,
        };
        let content = claimed(tp, former.as_ref().map(|(c, _)| c), nonce, &by);
        let key = Key::Partition(tp.clone());
        let node = Node::Checkpoint(content.clone());
        let mut ops = vec![Op::Check(Key::RunHead, self.membership.head_version)];
        ops.push(match &former {
            Some((_, version)) => Op::Set(key, node, *version),
            None => Op::Create(key, node),
        });
        if let Some(owner) = &forced {
            let detail = format!("{tp}, owned by {owner} in another session, was not released in time");
            let record =
                AuditRecord { what: "forced take-over".into(), member: self.membership.member().clone(), detail };
            ops.push(Op::Create(Key::Audit(wall_ms, nonce), Node::Audit(record)));
        }
        let request = self.desk.ask(Asker::Claim(tp.clone()), StoreRequest::Multi(ops));
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.asked = Some(request);
            let written = Written { content, forced };
            partition.phase = Phase::Claiming(Claim::Write(Box::new(written)));
        }
    }

    fn read_claim_back(&mut self, tp: &TopicPartition, written: Box<Written>) {
        self.set_phase(tp, Phase::Claiming(Claim::ReadBack(written, None)));
        self.ask_claim(tp, vec![Key::RunHead, Key::Partition(tp.clone())]);
    }

    fn claim_read_back(&mut self, tp: &TopicPartition, written: Written, found: &[Found]) {
        let [head, partition] = found else {
            return self.retry_claim(tp);
        };
        match judge(partition, written.content.owner.nonce, 0) {
            Verdict::Done(content, version) | Verdict::Again(content, version) => {
                let forced = written.forced;
                self.claim_won(tp, Written { content, forced }, version);
            }
            Verdict::Fenced | Verdict::Unreadable(_) => {
                self.retry_claim(tp);
                if let Found::Node(Node::RunHead(head), version) = head {
                    self.run_is(head.run, *version);
                }
            }
        }
    }

    /// It is ours. Only now is the content believed.
    fn claim_won(&mut self, tp: &TopicPartition, written: Written, version: i32) {
        let Written { content, forced } = written;
        let (run, now, out) = (self.membership.run, self.desk.at(), self.stopping());
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let position = &content.position;
        let notice = Notice::Claimed(tp.clone(), content.owner.generation, position.next_offset, position.why);
        partition.run = run;
        partition.former = None;
        partition.resume_at = position.next_offset;
        partition.moved = None;
        partition.owned =
            Some(Owned { nonce: content.owner.nonce, version, topic: content.topic.clone(), stored: content, seq: 0 });
        let out = out || partition.revoking;
        partition.phase = if out { Phase::Releasing } else { Phase::Unchecked(now) };
        if let Some(owner) = forced {
            self.desk.notice(Notice::TakenOver(tp.clone(), owner));
        }
        if out {
            return self.advance_drain(tp);
        }
        self.desk.notice(notice);
        self.ask_positions(tp);
    }
}
