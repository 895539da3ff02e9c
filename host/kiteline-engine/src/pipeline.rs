//! The state machine of one pipeline. It composes the stages: one match says what happens on each event.

use std::collections::BTreeMap;

use crate::{
    checkpoint::{Claim, Verdict, judge},
    desk::{Asker, Desk, backoff_ms, unclear},
    effect::{Effect, Notice},
    event::{Candidate, Event, LogRange, Now},
    ids::{BatchId, FeedId, Instant, MemberId, RequestId, Revision, Run, TopicPartition},
    limits::Limits,
    member::{Identity, Membership, Outcome},
    partition::{Partition, Phase},
    record::OffsetRange,
    source::{Flow, Progress},
    store::{Found, Key, Node, StoreAnswer, StoreRequest},
};

mod claims;
mod commits;
mod feeding;
mod swapping;

pub use crate::snapshot::Snapshot;

/// What is done when the log does not hold the offset of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLostPosition {
    /// That partition stands still until a person acts.
    Stop,
    /// It goes on at the beginning of the log.
    Earliest,
    /// It goes on at the end of the log.
    Latest,
}

/// How a pipeline is to work. Given once.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Who this process is.
    pub identity: Identity,
    /// The plugin to begin with.
    pub plugin: Candidate,
    /// What to do about a lost position.
    pub on_lost_position: OnLostPosition,
    /// Stop where the logs ended when each partition was claimed first.
    pub until_end: bool,
    /// Bounds.
    pub limits: Limits,
    /// Random seed; nonces come from it.
    pub seed: u64,
}

/// Whether the pipeline works, ends, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    /// Until plugin, sinks and session are there.
    Starting,
    /// Working.
    Working,
    /// Drains and releases until then; the result to end with.
    Stopping(Instant, Result<(), String>),
    /// Leaves the run, until then.
    Leaving(Instant, Result<(), String>),
    /// Over.
    Over,
}

/// A revocation that the group waits for.
#[derive(Debug)]
struct Revoke {
    partitions: Vec<TopicPartition>,
    answer_by: Instant,
}

/// What is known of the store session.
#[derive(Debug)]
struct Lease {
    /// Whether there is a session.
    session: bool,
    /// Negotiated timeout.
    timeout_ms: u64,
    /// When the last request was sent that was answered later: the session lived then.
    proved_at: Instant,
    /// When the last proof was asked for.
    asked_at: Instant,
    /// Since when nothing new is written to sinks, if so.
    held_since: Option<Instant>,
    /// Whether the group was left because of it.
    left_group: bool,
}

/// One pipeline. Feed it events, perform its effects.
#[derive(Debug)]
pub struct Pipeline {
    desk: Desk,
    limits: Limits,
    on_lost: OnLostPosition,
    until_end: bool,
    life: Life,
    /// Whether [`Event::Start`] has come.
    ready: bool,
    membership: Membership,
    lease: Lease,
    /// Every partition that the group gives us, or that is not given back yet.
    partitions: BTreeMap<TopicPartition, Partition>,
    /// Which partition a batch belongs to.
    batches: BTreeMap<BatchId, TopicPartition>,
    revoke: Option<Revoke>,
    /// Whether any partition is on its way back to the group.
    revoking: bool,
    /// Whether the group has assigned anything, even nothing, since we joined.
    assigned_once: bool,
    joined_group: bool,
    commit_at: Instant,
    /// Whether the bound of the whole pipeline kept a partition from fetching.
    starved: bool,
    swap: swapping::Swap,
}

impl Pipeline {
    /// A pipeline that has not begun.
    pub fn new(setup: Setup) -> Self {
        let mut desk = Desk::new(setup.seed);
        let nonce = desk.nonce();
        Self {
            desk,
            limits: setup.limits,
            on_lost: setup.on_lost_position,
            until_end: setup.until_end,
            life: Life::Starting,
            ready: false,
            membership: Membership::new(setup.identity, setup.plugin.clone(), nonce),
            lease: Lease {
                session: false,
                timeout_ms: u64::MAX,
                proved_at: Instant(0),
                asked_at: Instant(0),
                held_since: None,
                left_group: false,
            },
            partitions: BTreeMap::new(),
            batches: BTreeMap::new(),
            revoke: None,
            revoking: false,
            assigned_once: false,
            joined_group: false,
            commit_at: Instant(0),
            starved: false,
            swap: swapping::Swap::new(setup.plugin),
        }
    }

    /// One event in, effects out, appended in the order in which they must be performed.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.desk.now = now;
        if self.life != Life::Over {
            self.on(event);
            self.settle_revoke();
            self.settle_life();
        } else if let Event::Fetched { batch, .. } = event {
            self.desk.effects.push(Effect::Forget(batch));
        }
        effects.append(&mut self.desk.effects);
    }

    /// When the next [`Event::Tick`] is due at the latest, in milliseconds after the last step.
    pub fn tick_ms(&self) -> u64 {
        20
    }

    /// A plain picture of the state.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(
            &self.partitions,
            self.membership.run,
            self.membership.revision,
            self.lease.held_since.is_some(),
        )
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Start => self.on_start(),
            Event::Tick => self.on_tick(),
            Event::Stop => self.stop(Ok(())),
            Event::Failed(why) => self.stop(Err(why)),
            Event::Swap(candidate) => self.submit(candidate),
            Event::StoreSession {
                session,
                timeout_ms,
            } => self.on_session(session, timeout_ms),
            Event::StoreExpired => self.on_expired(),
            Event::StoreAnswer {
                request,
                answer,
                sent,
            } => self.on_answer(request, answer, sent),
            Event::Probed {
                member,
                session,
                gone,
            } => self.on_probed(&member, session, gone),
            Event::Assigned(list) => self.on_assigned(list),
            Event::Revoked(list) => self.on_revoked(list),
            Event::Lost(list) => self.on_lost(list),
            Event::Positions(list) => self.on_positions(list),
            Event::Fetched {
                partition,
                feed,
                batch,
                range,
                records,
            } => {
                self.on_fetched(partition, feed, batch, range, records);
            }
            Event::OutOfRange { partition, feed } => self.on_out_of_range(&partition, feed),
            Event::PartitionFailed {
                partition,
                feed,
                message,
            } => self.on_partition_failed(&partition, feed, message),
            Event::Transformed {
                batch,
                writes,
                stop,
            } => self.on_transformed(batch, writes, stop),
            Event::DecodeWaits { batch, message } => self.on_decode_waits(batch, message),
            Event::TransformFailed { batch, message } | Event::SinkFailed { batch, message } => {
                self.on_batch_failed(batch, message);
            }
            Event::Acknowledged(batch) => self.on_acknowledged(batch),
            Event::SinkRefused(batch) => self.on_refused(batch),
        }
    }

    // --- life

    fn on_start(&mut self) {
        self.ready = true;
        if self.lease.session {
            self.begin_membership();
        }
    }

    fn on_session(&mut self, session: i64, timeout_ms: u64) {
        let now = self.desk.at();
        self.lease = Lease {
            session: true,
            timeout_ms,
            proved_at: now,
            asked_at: now,
            held_since: None,
            left_group: self.lease.left_group,
        };
        self.membership.begin_later(session, timeout_ms);
        if self.ready {
            self.begin_membership();
        }
    }

    fn begin_membership(&mut self) {
        let (session, timeout) = (self.membership.session(), self.lease.timeout_ms);
        if let Life::Leaving(_, result) = self.life.clone() {
            let outcome = self.membership.leave(&mut self.desk, result);
            return self.on_membership(outcome);
        }
        self.membership.begin(&mut self.desk, session, timeout);
    }

    /// The session is gone: somebody else may own everything by now. Nothing is written any more under it.
    fn on_expired(&mut self) {
        self.lease.session = false;
        self.desk.give_up_requests();
        self.membership.expired();
        self.swap.expired();
        let now = self.desk.at();
        let all: Vec<_> = self.partitions.keys().cloned().collect();
        for tp in all {
            self.disown(&tp, Phase::Unclaimed(now));
        }
    }

    fn on_membership(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Pending => {}
            Outcome::Entered => self.on_entered(),
            Outcome::Left => {
                if let Life::Leaving(_, result) = self.life.clone() {
                    self.finish(result);
                }
            }
            Outcome::Failed(why) => match self.life.clone() {
                Life::Leaving(_, result) => self.finish(result.and(Err(why))),
                _ => {
                    self.desk.notice(Notice::StoreFailed(why.clone()));
                    self.stop(Err(why));
                }
            },
        }
    }

    /// In a run, a first or another one: every partition is claimed under it.
    fn on_entered(&mut self) {
        if self.life == Life::Starting {
            self.life = Life::Working;
            self.commit_at = self.desk.at().plus_ms(self.limits.commit_interval_ms);
        }
        self.swap.entered(&mut self.desk, self.membership.revision);
        if self.life == Life::Working {
            if !self.joined_group || self.lease.left_group {
                self.joined_group = true;
                self.lease.left_group = false;
                self.desk.effects.push(Effect::JoinGroup);
            }
            let now = self.desk.at();
            let run = self.membership.run;
            let stale: Vec<_> = self
                .partitions
                .iter()
                .filter(|(_, p)| p.owned.is_some() && p.run != run)
                .map(|(tp, _)| tp.clone())
                .collect();
            for tp in stale {
                self.disown(&tp, Phase::Unclaimed(now));
            }
        }
    }

    fn stop(&mut self, result: Result<(), String>) {
        match &self.life {
            Life::Starting => {
                self.life = Life::Leaving(
                    self.desk.at().plus_ms(2 * self.limits.drain_ms_max),
                    result.clone(),
                );
                if self.lease.session {
                    let outcome = self.membership.leave(&mut self.desk, result);
                    self.on_membership(outcome);
                } else {
                    self.finish(result);
                }
            }
            Life::Working => {
                let drain = self.desk.at().plus_ms(self.limits.drain_ms_max);
                self.life = Life::Stopping(drain.plus_ms(self.limits.drain_ms_max), result);
                let all: Vec<_> = self.partitions.keys().cloned().collect();
                for tp in all {
                    self.drain(&tp, drain);
                }
            }
            Life::Stopping(..) | Life::Leaving(..) | Life::Over => {}
        }
    }

    /// Goes on with stopping: when everything is released, or its time is over, leave the group and the run.
    fn settle_life(&mut self) {
        if let Life::Stopping(until, result) = self.life.clone() {
            let released = self
                .partitions
                .values()
                .all(|p| p.owned.is_none() && !p.claim_in_flight());
            if released || self.desk.at() >= until {
                let all: Vec<_> = self.partitions.keys().cloned().collect();
                for tp in all {
                    self.forget_flow(&tp);
                }
                self.partitions.clear();
                self.revoke = None;
                self.desk.effects.push(Effect::LeaveGroup);
                let leave_by = self.desk.at().plus_ms(self.limits.drain_ms_max);
                self.life = Life::Leaving(leave_by, result.clone());
                let outcome = self.membership.leave(&mut self.desk, result);
                self.on_membership(outcome);
            }
        }
        if let Life::Leaving(until, result) = self.life.clone()
            && self.desk.at() >= until
        {
            self.finish(result);
        }
    }

    fn finish(&mut self, result: Result<(), String>) {
        self.life = Life::Over;
        self.desk.effects.push(Effect::Finished(result));
    }

    // --- time

    fn on_tick(&mut self) {
        let outcome = self.membership.tick(&mut self.desk);
        self.on_membership(outcome);
        self.watch_lease();
        self.tick_partitions();
        if self.desk.at() >= self.commit_at && self.membership.entered() {
            self.commit_at = self.desk.at().plus_ms(self.limits.commit_interval_ms);
            self.commit_all();
            self.mirror();
        }
        if self.until_end && self.life == Life::Working && self.assigned_once {
            let done = self.partitions.values().all(Partition::at_end);
            if done && self.revoke.is_none() {
                self.stop(self.halted_reason());
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

    /// Counts from the moment a request was sent that was answered later; asks for a proof every sixth of the session.
    fn watch_lease(&mut self) {
        let now = self.desk.at();
        if !self.lease.session || self.lease.timeout_ms == u64::MAX {
            return self.watch_desired();
        }
        let quiet = now.since_ms(self.lease.proved_at);
        if quiet >= self.lease.timeout_ms / 6
            && now.since_ms(self.lease.asked_at) >= self.lease.timeout_ms / 6
            && self.membership.entered()
        {
            self.lease.asked_at = now;
            self.desk.ask(
                Asker::Proof,
                StoreRequest::Read(vec![Key::RunHead, Key::Desired]),
            );
        }
        if self.lease.held_since.is_none() && quiet >= self.lease.timeout_ms / 3 * 2 {
            self.lease.held_since = Some(now);
            self.desk.notice(Notice::Held);
        }
        let stalled = self
            .lease
            .held_since
            .is_some_and(|s| now.since_ms(s) >= self.limits.stall_ms_max);
        if stalled && !self.lease.left_group && self.life == Life::Working {
            // somebody who sees the store can take over
            self.lease.left_group = true;
            let all: Vec<_> = self.partitions.keys().cloned().collect();
            for tp in &all {
                self.forget_flow(tp);
            }
            self.partitions.clear();
            self.revoke = None;
            self.desk.effects.push(Effect::LeaveGroup);
        }
    }

    /// Where the session needs no proof, run and desired revision are still read now and then.
    fn watch_desired(&mut self) {
        let now = self.desk.at();
        if self.lease.session
            && self.membership.entered()
            && now.since_ms(self.lease.asked_at) >= 5_000
        {
            self.lease.asked_at = now;
            self.desk.ask(
                Asker::Proof,
                StoreRequest::Read(vec![Key::RunHead, Key::Desired]),
            );
        }
    }

    fn proved(&mut self, sent: Instant) {
        self.lease.proved_at = self.lease.proved_at.max(sent);
        let quiet = self.desk.at().since_ms(self.lease.proved_at);
        let fresh = self.lease.timeout_ms == u64::MAX || quiet < self.lease.timeout_ms / 3 * 2;
        if fresh && self.lease.held_since.take().is_some() {
            self.desk.notice(Notice::Resumed);
            if self.lease.left_group && self.life == Life::Working {
                self.lease.left_group = false;
                self.desk.effects.push(Effect::JoinGroup);
            }
            self.pump_all();
        }
    }

    /// Whether new writes to sinks may be asked for.
    fn held(&self) -> bool {
        !self.lease.session || self.lease.held_since.is_some()
    }

    // --- store

    fn on_answer(&mut self, request: RequestId, answer: StoreAnswer, sent: Instant) {
        let Some(asker) = self.desk.answered(request) else {
            return self.desk.notice(Notice::LateCompletion);
        };
        if !matches!(answer, StoreAnswer::Unknown) {
            self.proved(sent);
        }
        match asker {
            Asker::Member => {
                let outcome = self.membership.answer(&mut self.desk, &self.limits, answer);
                self.on_membership(outcome);
            }
            Asker::Claim(tp) => self.on_claim_answer(&tp, answer),
            Asker::Commit(list) => self.on_commit_answer(list, answer),
            Asker::ReadBack(list) => self.on_read_back(&list, answer),
            Asker::Proof => self.on_proof(answer),
            Asker::Swap => self.on_swap_answer(&answer),
        }
    }

    fn on_proof(&mut self, answer: StoreAnswer) {
        let StoreAnswer::Nodes(found) = answer else {
            return;
        };
        for node in found {
            match node {
                Found::Node(Node::RunHead(head), _) if head.run != self.membership.run => {
                    self.run_changed(head.run)
                }
                Found::Node(Node::Desired(desired), _)
                    if desired.live != self.membership.revision =>
                {
                    self.swap.desired(&mut self.desk, desired.live);
                }
                _ => {}
            }
        }
    }

    fn run_changed(&mut self, run: Run) {
        if self.membership.entered() {
            self.desk.notice(Notice::RunChanged(run));
            self.membership.rejoin(&mut self.desk);
        }
    }

    fn on_probed(&mut self, member: &MemberId, session: i64, gone: bool) {
        self.membership
            .probed(&mut self.desk, member, session, gone);
        if gone {
            self.owner_gone(member, session);
        }
    }

    // --- the group

    fn on_assigned(&mut self, list: Vec<TopicPartition>) {
        self.assigned_once = true;
        let now = self.desk.at();
        for tp in &list {
            let partition = self
                .partitions
                .entry(tp.clone())
                .or_insert_with(|| Partition::new(now));
            partition.revoking = false;
            if partition.phase == Phase::Released {
                partition.phase = Phase::Unclaimed(now);
            }
        }
        self.desk.effects.push(Effect::AnswerAssign(list));
        if let Life::Stopping(until, _) = self.life {
            for tp in self.partitions.keys().cloned().collect::<Vec<_>>() {
                self.drain(&tp, until);
            }
        } else {
            self.tick_partitions();
        }
    }

    fn on_revoked(&mut self, list: Vec<TopicPartition>) {
        let until = self.desk.at().plus_ms(self.limits.drain_ms_max);
        self.revoking = true;
        for tp in &list {
            if let Some(partition) = self.partitions.get_mut(tp) {
                partition.revoking = true;
            }
            self.drain(tp, until);
        }
        let answer_by = until.plus_ms(self.limits.drain_ms_max);
        match &mut self.revoke {
            Some(revoke) => revoke.partitions.extend(list),
            None => {
                self.revoke = Some(Revoke {
                    partitions: list,
                    answer_by,
                })
            }
        }
    }

    /// Taken away without asking: no time to drain, and no use in it. What is complete is still written down, best effort.
    fn on_lost(&mut self, list: Vec<TopicPartition>) {
        self.revoking = true;
        for tp in &list {
            if let Some(partition) = self.partitions.get_mut(tp) {
                partition.revoking = true;
            }
            self.drain(tp, self.desk.at());
        }
        self.tick_partitions();
        self.desk.effects.push(Effect::AnswerRevoke(list));
    }

    /// Gives revoked partitions back once all of them are released, or when the group has waited long enough.
    fn settle_revoke(&mut self) {
        let now = self.desk.at();
        if let Some(revoke) = &self.revoke {
            let open = |tp: &TopicPartition| {
                self.partitions
                    .get(tp)
                    .is_some_and(|p| p.revoking && (p.owned.is_some() || p.claim_in_flight()))
            };
            if !revoke.partitions.iter().any(open) || now >= revoke.answer_by {
                if let Some(revoke) = self.revoke.take() {
                    for tp in &revoke.partitions {
                        self.forget_flow(tp);
                    }
                    self.desk
                        .effects
                        .push(Effect::AnswerRevoke(revoke.partitions));
                }
            }
        }
        if !self.revoking {
            return;
        }
        self.revoking = self.partitions.values().any(|p| p.revoking);
        let gone: Vec<_> = self
            .partitions
            .iter()
            .filter(|(tp, p)| {
                let asked_for = self
                    .revoke
                    .as_ref()
                    .is_some_and(|r| r.partitions.contains(tp));
                p.revoking && p.owned.is_none() && !p.claim_in_flight() && !asked_for
            })
            .map(|(tp, _)| tp.clone())
            .collect();
        for tp in gone {
            self.forget_flow(&tp);
            self.partitions.remove(&tp);
        }
    }

    /// Drops the claim: nothing that is in flight for it counts any more.
    fn disown(&mut self, tp: &TopicPartition, phase: Phase) {
        self.forget_flow(tp);
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.owned = None;
            partition.committing = None;
            partition.edges.clear();
            partition.phase = phase;
        }
    }

    /// Ends the feeding and takes what is in flight off the books.
    fn forget_flow(&mut self, tp: &TopicPartition) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let Some(mut flow) = partition.flow.take() else {
            return;
        };
        partition.resume_at = flow.low_water();
        self.desk.effects.push(Effect::StopFeeding(tp.clone()));
        for batch in flow.abandon() {
            self.batches.remove(&batch);
            self.desk.effects.push(Effect::Forget(batch));
        }
        self.desk.effects.push(Effect::Flush(tp.clone()));
    }

    /// Moves a partition on its way out: nothing new is taken in, until then what is in flight is finished.
    fn drain(&mut self, tp: &TopicPartition, until: Instant) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        match &partition.phase {
            Phase::Unclaimed(_) => partition.phase = Phase::Released,
            Phase::Claiming(_) if !partition.claim_in_flight() => partition.phase = Phase::Released,
            Phase::Claiming(_) | Phase::Released | Phase::Releasing | Phase::Draining(_) => {}
            Phase::Checking | Phase::Rewinding(_) | Phase::Halted(_) => {
                partition.phase = Phase::Releasing
            }
            Phase::Working => partition.phase = Phase::Draining(until),
        }
        self.advance_drain(tp);
    }

    /// Whether partitions are on their way out altogether.
    fn stopping(&self) -> bool {
        matches!(self.life, Life::Stopping(..) | Life::Leaving(..))
    }
}
