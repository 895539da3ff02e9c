//! The state machine of one pipeline. It composes the stages: one match says what happens on each event.
//!
//! The fields that several parts need are here; what each part does is in a file of its own. Nothing here computes.

use std::collections::BTreeMap;

use crate::{
    desk::{Asker, Desk},
    effect::{Effect, Notice},
    event::{Candidate, Event, Now},
    ids::{BatchId, Instant, RequestId, TopicPartition},
    limits::Limits,
    member::{Identity, Membership},
    partition::Partition,
    store::StoreAnswer,
};

mod bounded;
mod life;

mod claims;
mod group;
mod lease;
mod positions;

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

/// One pipeline. Feed it events, perform its effects.
#[derive(Debug)]
pub struct Pipeline {
    /// Time, effects and request names of the current step.
    desk: Desk,
    /// Bounds, as given.
    limits: Limits,
    /// What to do about a lost position, as given.
    on_lost: OnLostPosition,
    /// Whether to stop at the logs' ends, as given.
    until_end: bool,
    /// Whether it begins, works, ends or has ended.
    life: life::Life,
    /// Whether [`Event::Start`] has come; session and start may come in any order.
    ready: bool,
    /// This process among the members of the pipeline, and the run that it works in.
    membership: Membership,
    /// What is known of the store session: without it nothing new goes to sinks.
    lease: lease::Lease,
    /// Every partition that the group gives us, or that is not given back yet.
    partitions: BTreeMap<TopicPartition, Partition>,
    /// Which partition a batch that is held belongs to; its size is what counts against the pipeline's bound.
    batches: BTreeMap<BatchId, TopicPartition>,
    /// Questions to the logs without an answer: an answer to an older one must not be taken for that to the last.
    asking: BTreeMap<TopicPartition, positions::Asking>,
    /// Partitions that the group waits for.
    revoke: Option<group::Revoke>,
    /// Whether any partition is on its way back to the group, so that the others cost no look.
    revoking: bool,
    /// Partitions that a bounded run waits for although it does not have them.
    owed: bounded::Owed,
    /// From when on having no partition means that there is nothing to do, rather than that the group has not spoken.
    settled_at: Instant,
    /// Whether the group was asked to take us.
    joined_group: bool,
    /// When the next commit is due.
    commit_at: Instant,
    /// The live plugin and those that may follow it.
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
            life: life::Life::Starting,
            ready: false,
            membership: Membership::new(setup.identity, setup.plugin.clone(), nonce),
            lease: lease::Lease::none(),
            partitions: BTreeMap::new(),
            batches: BTreeMap::new(),
            asking: BTreeMap::new(),
            revoke: None,
            revoking: false,
            owed: bounded::Owed::default(),
            settled_at: group::NEVER,
            joined_group: false,
            commit_at: Instant(0),
            swap: swapping::Swap::new(setup.plugin),
        }
    }

    /// One event in, effects out, appended in the order in which they must be performed.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.desk.now = now;
        if !self.over() {
            // first of all: a process that stood still must not write before it knows how long
            self.watch_hold();
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
            self.lease.held(),
            self.desk.asked_count(),
        )
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Start => self.on_start(),
            Event::Tick => self.on_tick(),
            Event::Stop => self.stop(Ok(())),
            Event::Failed(why) => self.stop(Err(why)),
            Event::Swap(candidate) => self.submit(candidate),
            Event::StoreSession { session, timeout_ms } => self.on_session(session, timeout_ms),
            Event::StoreExpired => self.on_expired(),
            Event::StoreAnswer { request, answer, sent } => self.on_answer(request, answer, sent),
            Event::Probed { member, session, gone } => self.on_probed(&member, session, gone),
            Event::Assigned(list) => self.on_assigned(list),
            Event::Revoked(list) => self.on_revoked(list),
            Event::Lost(list) => self.on_lost(list),
            Event::Positions(list) => self.on_positions(list),
            Event::Fetched { partition, feed, batch, range, records } => {
                self.on_fetched(partition, feed, batch, range, records)
            }
            Event::OutOfRange { partition, feed } => self.on_out_of_range(&partition, feed),
            Event::PartitionFailed { partition, feed, message } => self.on_partition_failed(&partition, feed, message),
            Event::Transformed { batch, writes, stop } => self.on_transformed(batch, writes, stop),
            Event::DecodeWaits { batch, message } => self.on_decode_waits(batch, message),
            Event::TransformFailed { batch, message } | Event::SinkFailed { batch, message } => {
                self.on_batch_failed(batch, message);
            }
            Event::Acknowledged(batch) => self.on_acknowledged(batch),
            Event::SinkRefused(batch) => self.on_refused(batch),
        }
    }

    /// An answer goes to whoever asked. Who asked under a claim or a session that is gone does not hear of it.
    fn on_answer(&mut self, request: RequestId, answer: StoreAnswer, sent: Instant) {
        let Some(asker) = self.desk.answered(request) else {
            return self.desk.notice(Notice::LateCompletion);
        };
        if !matches!(answer, StoreAnswer::Unknown) {
            self.proved(sent);
        }
        match asker {
            Asker::Member => {
                let outcome = self.membership.answer(&mut self.desk, &self.limits, request, answer);
                self.on_membership(outcome);
            }
            Asker::Claim(tp) => self.on_claim_answer(&tp, request, answer),
            Asker::Commit(list) => self.on_commit_answer(&list, request, answer),
            Asker::ReadBack(list) => self.on_read_back(&list, request, answer),
            Asker::Owed(list) => self.on_owed_answer(&list, answer),
            Asker::Proof => self.on_proof(answer),
            Asker::Swap => self.on_swap_answer(&answer),
        }
    }
}
