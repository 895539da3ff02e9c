//! Claims: from "the group gives it to us" to "fed at a concrete offset".

use super::{
    Asker, Claim, Effect, FeedId, Flow, Found, Instant, Key, LogRange, MemberId, Node, Notice,
    OnLostPosition, Phase, Pipeline, StoreAnswer, StoreRequest, TopicPartition, Verdict,
    backoff_ms, judge, unclear,
};
use crate::{
    checkpoint::{Claimant, Owned, claimed},
    store::{AuditRecord, Checkpoint, Op, TopicIdentity, Why},
};

/// Claims that are on their way at the same time. Each costs a read and a write; a start of many partitions must not flood the store.
const CLAIMS_MAX: usize = 32;

/// Time between two looks at a former owner that has not released, in milliseconds.
const OWNER_LOOK_MS: u64 = 250;

impl Pipeline {
    /// Timers of all partitions: claims to begin, owners to look at, feeds to repeat, drains to end, stalls to tell.
    pub(super) fn tick_partitions(&mut self) {
        let now = self.desk.at();
        let all: Vec<_> = self.partitions.keys().cloned().collect();
        for tp in all {
            match self.partitions.get(&tp).map(|p| p.phase.clone()) {
                Some(Phase::Unclaimed(at)) if at <= now => self.begin_claim(&tp),
                Some(Phase::Claiming(Claim::Wait { look_at, .. })) if look_at <= now => {
                    self.look_again(&tp)
                }
                Some(Phase::Rewinding(at)) if at <= now && !self.held() => self.feed(&tp),
                Some(Phase::Draining(until)) if until <= now => {
                    self.forget_flow(&tp);
                    self.set_phase(&tp, Phase::Releasing);
                    self.advance_drain(&tp);
                }
                Some(Phase::Draining(_) | Phase::Releasing) => self.advance_drain(&tp),
                Some(Phase::Working) => self.tick_working(&tp),
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
            .filter(|p| matches!(p.phase, Phase::Claiming(_)))
            .count();
        if busy >= CLAIMS_MAX || !self.membership.entered() || self.held() || self.stopping() {
            return;
        }
        self.set_phase(tp, Phase::Claiming(Claim::Read));
        self.ask_claim(tp, vec![Key::RunHead, Key::Partition(tp.clone())]);
    }

    fn ask_claim(&mut self, tp: &TopicPartition, keys: Vec<Key>) {
        self.desk
            .ask(Asker::Claim(tp.clone()), StoreRequest::Read(keys));
    }

    fn look_again(&mut self, tp: &TopicPartition) {
        let Some(Phase::Claiming(Claim::Wait { force_at, .. })) =
            self.partitions.get(tp).map(|p| p.phase.clone())
        else {
            return;
        };
        if self.held() {
            return;
        }
        let look_at = self.desk.at().plus_ms(OWNER_LOOK_MS * 4);
        self.set_phase(tp, Phase::Claiming(Claim::Wait { look_at, force_at }));
        self.ask_claim(tp, vec![Key::RunHead, Key::Partition(tp.clone())]);
    }

    /// Tries again later: the longer the oftener it failed.
    fn retry_claim(&mut self, tp: &TopicPartition) {
        let now = self.desk.at();
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.tries += 1;
            let at = now.plus_ms(backoff_ms(&self.limits, partition.tries - 1));
            partition.phase = if partition.revoking {
                Phase::Released
            } else {
                Phase::Unclaimed(at)
            };
        }
    }

    pub(super) fn on_claim_answer(&mut self, tp: &TopicPartition, answer: StoreAnswer) {
        let Some(partition) = self.partitions.get(tp) else {
            return;
        };
        let Phase::Claiming(step) = partition.phase.clone() else {
            return;
        };
        if let StoreAnswer::Failed(why) = answer {
            self.desk.notice(Notice::StoreFailed(why));
            return self.retry_claim(tp);
        }
        match (step, answer) {
            (Claim::Read, StoreAnswer::Nodes(found)) => self.claim_read(tp, &found, None),
            (Claim::Wait { force_at, .. }, StoreAnswer::Nodes(found)) => {
                self.claim_read(tp, &found, Some(force_at))
            }
            (Claim::ReadOwner(read), StoreAnswer::Nodes(found)) => {
                self.owner_read(tp, *read, &found)
            }
            (Claim::Write(written), StoreAnswer::Done(versions)) => {
                let version = versions.get(1).copied().unwrap_or(-1);
                self.claim_won(tp, written.0, written.1, version);
            }
            (Claim::Write(written), answer) if unclear(&answer) => {
                self.set_phase(tp, Phase::Claiming(Claim::ReadBack(written)));
                self.ask_claim(tp, vec![Key::RunHead, Key::Partition(tp.clone())]);
            }
            (Claim::ReadBack(written), StoreAnswer::Nodes(found)) => {
                self.claim_read_back(tp, *written, &found)
            }
            // not heard: ask again, for a write may have happened
            (Claim::ReadBack(_), _) => {
                self.ask_claim(tp, vec![Key::RunHead, Key::Partition(tp.clone())])
            }
            _ => self.retry_claim(tp),
        }
    }

    /// Run head and partition are read: claim, or wait for the former owner.
    fn claim_read(&mut self, tp: &TopicPartition, found: &[Found], force_at: Option<Instant>) {
        let [Found::Node(Node::RunHead(head), head_version), partition] = found else {
            return self.retry_claim(tp);
        };
        if head.run != self.membership.run || *head_version != self.membership.head_version {
            self.retry_claim(tp);
            return self.run_changed(head.run);
        }
        match partition {
            Found::Unreadable(why, _) => {
                let why = format!("its checkpoint cannot be read and is not guessed: {why}");
                self.halt(tp, why);
            }
            Found::Absent => self.write_claim(tp, None, None),
            Found::Node(Node::Checkpoint(former), version) => {
                let ours = former.owner.session == self.membership.session();
                if former.owner.released || ours {
                    return self.write_claim(tp, Some((former.clone(), *version)), None);
                }
                let now = self.desk.at();
                if force_at.is_some_and(|at| at <= now) {
                    let owner = former.owner.member.clone();
                    return self.write_claim(tp, Some((former.clone(), *version)), Some(owner));
                }
                let owner = Key::Member(former.owner.member.clone());
                let step = Claim::ReadOwner(Box::new((former.clone(), *version)));
                if let Some(p) = self.partitions.get_mut(tp) {
                    p.force_at = force_at.or(p.force_at);
                }
                self.set_phase(tp, Phase::Claiming(step));
                self.ask_claim(tp, vec![owner]);
            }
            Found::Node(_, _) => self.retry_claim(tp),
        }
    }

    /// The former owner's member node is read: gone, or to be waited for, at most its session and a second.
    fn owner_read(
        &mut self,
        tp: &TopicPartition,
        (former, version): (Checkpoint, i32),
        found: &[Found],
    ) {
        let [found] = found else {
            return self.retry_claim(tp);
        };
        match found {
            Found::Node(Node::Member(record), _) if record.session == former.owner.session => {
                let now = self.desk.at();
                let timeout = self.lease.timeout_ms.min(120_000);
                let member = former.owner.member.clone();
                let Some(partition) = self.partitions.get_mut(tp) else {
                    return;
                };
                let first = partition.force_at.is_none();
                let force_at = *partition
                    .force_at
                    .get_or_insert(now.plus_ms(timeout.saturating_add(1_000)));
                partition.phase = Phase::Claiming(Claim::Wait {
                    look_at: now.plus_ms(OWNER_LOOK_MS),
                    force_at,
                });
                if first {
                    self.desk
                        .notice(Notice::WaitsForOwner(tp.clone(), member.clone()));
                }
                self.desk
                    .effects
                    .push(Effect::Probe(member, record.clone()));
            }
            Found::Node(_, _) | Found::Absent => {
                self.write_claim(tp, Some((former, version)), None)
            }
            Found::Unreadable(_, _) => self.retry_claim(tp),
        }
    }

    /// The process of a former owner is surely gone: its partitions need not wait for its session.
    pub(super) fn owner_gone(&mut self, member: &MemberId, session: i64) {
        let now = self.desk.at();
        for partition in self.partitions.values_mut() {
            if let Phase::Claiming(Claim::Wait { look_at, .. }) = partition.phase {
                partition.gone_owner = Some((member.clone(), session));
                partition.phase = Phase::Claiming(Claim::Wait {
                    look_at: look_at.min(now),
                    force_at: now,
                });
            }
        }
    }

    /// The one write of a claim: everything in one request, with a nonce of its own.
    fn write_claim(
        &mut self,
        tp: &TopicPartition,
        former: Option<(Checkpoint, i32)>,
        forced: Option<MemberId>,
    ) {
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
        let surely_gone = self.partitions.get(tp).is_some_and(|p| {
            former.as_ref().is_some_and(|(c, _)| {
                p.gone_owner == Some((c.owner.member.clone(), c.owner.session))
            })
        });
        let forced = forced.filter(|_| !surely_gone);
        if let Some(owner) = &forced {
            let detail =
                format!("{tp}, owned by {owner} in another session, was not released in time");
            let record = AuditRecord {
                what: "forced take-over".into(),
                member: self.membership.member().clone(),
                detail,
            };
            ops.push(Op::Create(Key::Audit(wall_ms, nonce), Node::Audit(record)));
        }
        self.set_phase(
            tp,
            Phase::Claiming(Claim::Write(Box::new((content, forced)))),
        );
        self.desk
            .ask(Asker::Claim(tp.clone()), StoreRequest::Multi(ops));
    }

    fn claim_read_back(
        &mut self,
        tp: &TopicPartition,
        (content, forced): (Checkpoint, Option<MemberId>),
        found: &[Found],
    ) {
        let [head, partition] = found else {
            return self.retry_claim(tp);
        };
        match judge(partition, content.owner.nonce, 0) {
            Verdict::Done(c, version) | Verdict::Again(c, version) => {
                self.claim_won(tp, c, forced, version)
            }
            Verdict::Fenced | Verdict::Unreadable(_) => {
                self.retry_claim(tp);
                if let Found::Node(Node::RunHead(head), version) = head
                    && (head.run != self.membership.run || *version != self.membership.head_version)
                {
                    self.run_changed(head.run);
                }
            }
        }
    }

    /// It is ours. Only now is the content believed.
    fn claim_won(
        &mut self,
        tp: &TopicPartition,
        content: Checkpoint,
        forced: Option<MemberId>,
        version: i32,
    ) {
        let (generation, next_offset, why) = (
            content.owner.generation,
            content.position.next_offset,
            content.position.why,
        );
        let (run, stopping) = (self.membership.run, self.stopping());
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        partition.run = run;
        partition.force_at = None;
        partition.gone_owner = None;
        partition.handed = content.plugin.revision;
        partition.resume_at = next_offset;
        partition.moved = false;
        let topic = content.topic.clone();
        partition.owned = Some(Owned {
            nonce: content.owner.nonce,
            version,
            stored: content,
            seq: 0,
            topic,
        });
        if partition.revoking || stopping {
            self.set_phase(tp, Phase::Releasing);
            return self.advance_drain(tp);
        }
        partition.phase = Phase::Checking;
        if let Some(owner) = forced {
            self.desk.notice(Notice::TakenOver(tp.clone(), owner));
        }
        self.desk
            .notice(Notice::Claimed(tp.clone(), generation, next_offset, why));
        self.desk
            .effects
            .push(Effect::AskPositions(vec![tp.clone()]));
    }

    /// The logs have answered: feed where the position is still there, else do what the policy says.
    pub(super) fn on_positions(&mut self, list: Vec<(TopicPartition, Result<LogRange, String>)>) {
        for (tp, log) in list {
            let Some(partition) = self.partitions.get_mut(&tp) else {
                continue;
            };
            if partition.phase != Phase::Checking {
                continue;
            }
            match log {
                Err(_) => self.desk.effects.push(Effect::AskPositions(vec![tp])),
                Ok(log) => self.check_position(&tp, &log),
            }
        }
    }

    fn check_position(&mut self, tp: &TopicPartition, log: &LogRange) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let Some(owned) = &mut partition.owned else {
            return;
        };
        partition.end.get_or_insert(log.end);
        let known = &owned.stored.topic.id;
        let recreated = !known.is_empty() && !log.topic_id.is_empty() && *known != log.topic_id;
        let wanted = partition.resume_at;
        let fresh = owned.stored.position.why == Why::First && wanted <= log.start;
        let topic = TopicIdentity {
            id: log.topic_id.clone(),
            leader_epoch: -1,
        };
        if !recreated && (fresh || (log.start..=log.end).contains(&wanted)) {
            owned.topic = topic;
            partition.resume_at = wanted.max(log.start);
            return self.feed(tp);
        }
        let resumed_at = match self.on_lost {
            OnLostPosition::Stop => None,
            OnLostPosition::Earliest => Some(log.start),
            OnLostPosition::Latest => Some(log.end),
        };
        if let Some(offset) = resumed_at {
            owned.topic = topic;
            partition.resume_at = offset;
            partition.moved = true;
        }
        let log_range = (log.start, log.end);
        self.desk.notice(Notice::PositionLost {
            partition: tp.clone(),
            wanted,
            log: log_range,
            recreated,
            resumed_at,
        });
        if resumed_at.is_some() {
            return self.feed(tp);
        }
        let made_anew = if recreated {
            "; the topic was made anew"
        } else {
            ""
        };
        self.halt(
            tp,
            format!(
                "wanted offset {wanted}, the log has {}..{}{made_anew}",
                log.start, log.end
            ),
        );
    }

    /// Feeds a partition from its low-water mark, or where a lost position was moved to.
    pub(super) fn feed(&mut self, tp: &TopicPartition) {
        let feed: FeedId = self.desk.feed();
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let from = partition.resume_at;
        partition.flow = Some(Flow::new(feed, from));
        partition.phase = Phase::Working;
        partition.moved_at = now;
        partition.stall_told = false;
        partition.decode_at = None;
        self.desk.effects.push(Effect::Feed(tp.clone(), feed, from));
        self.pump(tp);
    }

    /// Stands still until a person acts; keeps the claim, so that nobody else runs into the same.
    pub(super) fn halt(&mut self, tp: &TopicPartition, why: String) {
        self.forget_flow(tp);
        self.desk.notice(Notice::Halted(tp.clone(), why.clone()));
        self.set_phase(tp, Phase::Halted(why));
    }

    pub(super) fn on_out_of_range(&mut self, tp: &TopicPartition, feed: FeedId) {
        if self.fed(tp, feed) {
            // ask what the log holds, then the policy decides
            self.forget_flow(tp);
            self.set_phase(tp, Phase::Checking);
            self.desk
                .effects
                .push(Effect::AskPositions(vec![tp.clone()]));
        }
    }

    pub(super) fn on_partition_failed(
        &mut self,
        tp: &TopicPartition,
        feed: FeedId,
        message: String,
    ) {
        if self.fed(tp, feed) {
            self.halt(tp, message);
        }
    }

    /// Whether an event is of the current feeding; a late one changes nothing.
    pub(super) fn fed(&mut self, tp: &TopicPartition, feed: FeedId) -> bool {
        let current = self
            .partitions
            .get(tp)
            .and_then(|p| p.flow.as_ref())
            .is_some_and(|f| f.feed == feed);
        if !current {
            self.desk.notice(Notice::LateCompletion);
        }
        current
    }
}
