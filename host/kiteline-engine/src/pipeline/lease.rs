//! The lease: how long ago the store session was last proved, and what is not done once that is too long.
//!
//! Counted from the moment a request was *sent* that was answered later. After two thirds of the session nothing new goes to
//! sinks; after the stall limit the group is left, so that a member that sees the store can take over.

use super::Pipeline;
use crate::{
    desk::Asker,
    effect::{Effect, Notice},
    ids::{Instant, Run},
    store::{Found, Key, Node, StoreAnswer, StoreRequest},
};

/// Time between two looks at run and desired revision where the session needs no proof, in milliseconds.
const LOOK_MS: u64 = 5_000;

/// What is known of the store session.
#[derive(Debug)]
pub(super) struct Lease {
    /// Whether there is a session; without one nothing is asked for.
    session: bool,
    /// Negotiated timeout, `u64::MAX` where sessions do not end by time.
    timeout_ms: u64,
    /// When the last request was sent that was answered later: the session lived then.
    proved_at: Instant,
    /// When the last proof was asked for, so that proofs do not pile up.
    asked_at: Instant,
    /// Since when nothing new is written to sinks, if so; after the stall limit the group is left.
    held_since: Option<Instant>,
    /// Whether the group was left because of it, so that it is joined again once the session is proved.
    pub(super) left_group: bool,
}

impl Lease {
    /// No session yet.
    pub(super) fn none() -> Self {
        Self {
            session: false,
            timeout_ms: u64::MAX,
            proved_at: Instant(0),
            asked_at: Instant(0),
            held_since: None,
            left_group: false,
        }
    }

    /// A new session.
    pub(super) fn renew(&mut self, now: Instant, timeout_ms: u64) {
        *self = Self {
            session: true,
            timeout_ms,
            proved_at: now,
            asked_at: now,
            held_since: None,
            left_group: self.left_group,
        };
    }

    /// The session is over: what needs one is held from now on, so that a session that never comes back is noticed as well.
    pub(super) fn end(&mut self, now: Instant) {
        self.session = false;
        self.held_since.get_or_insert(now);
    }

    /// Whether there is a session, as far as we know.
    pub(super) fn session(&self) -> bool {
        self.session
    }

    /// Negotiated timeout.
    pub(super) fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// Whether new writes to sinks must wait.
    pub(super) fn held(&self) -> bool {
        !self.session || self.held_since.is_some()
    }

    /// Whether the last proof is older than two thirds of the session.
    fn stale(&self, now: Instant) -> bool {
        self.timeout_ms != u64::MAX && now.since_ms(self.proved_at) >= self.timeout_ms / 3 * 2
    }

    /// Time after which another proof is asked for.
    fn proof_ms(&self) -> u64 {
        if self.timeout_ms == u64::MAX { LOOK_MS } else { self.timeout_ms / 6 }
    }
}

impl Pipeline {
    /// Holds as soon as the last proof is too old, whatever event tells the time.
    pub(super) fn watch_hold(&mut self) {
        let now = self.desk.at();
        if !self.lease.held() && self.lease.stale(now) {
            self.lease.held_since = Some(now);
            self.desk.notice(Notice::Held);
        }
    }

    /// Asks for proofs, and leaves the group when there has been none for too long.
    pub(super) fn watch_lease(&mut self) {
        let now = self.desk.at();
        let due = now.since_ms(self.lease.asked_at) >= self.lease.proof_ms();
        if self.lease.session && due && self.membership.entered() && !self.desk.waits_for(|a| *a == Asker::Proof) {
            self.lease.asked_at = now;
            let own = Key::Member(self.membership.member().clone());
            self.desk.ask(Asker::Proof, StoreRequest::Read(vec![Key::RunHead, Key::Desired, own]));
        }
        let stalled = self.lease.held_since.is_some_and(|since| now.since_ms(since) >= self.limits.stall_ms_max);
        if stalled && !self.lease.left_group && self.working() && self.joined_group {
            self.lease.left_group = true;
            self.leave_group();
        }
    }

    /// A request that was sent then has been answered.
    pub(super) fn proved(&mut self, sent: Instant) {
        self.lease.proved_at = self.lease.proved_at.max(sent);
        if self.lease.stale(self.desk.at()) || self.lease.held_since.take().is_none() {
            return;
        }
        self.desk.notice(Notice::Resumed);
        if self.lease.left_group && self.working() {
            self.lease.left_group = false;
            self.desk.effects.push(Effect::JoinGroup);
        }
        self.pump_all();
    }

    /// Run and desired revision as they are now.
    pub(super) fn on_proof(&mut self, answer: StoreAnswer) {
        let StoreAnswer::Nodes(found) = answer else {
            return;
        };
        for node in found {
            match node {
                Found::Node(Node::RunHead(head), version) => self.run_is(head.run, version),
                Found::Node(Node::Desired(desired), _) if self.swap.news(desired.live) => {
                    if desired.live != self.membership.revision {
                        self.membership.rejoin(&mut self.desk);
                    }
                }
                // somebody took us for a ghost: without it a run can be closed while we work in it
                Found::Absent if self.membership.entered() => self.membership.rejoin(&mut self.desk),
                _ => {}
            }
        }
    }

    /// The run head as read: if it is not the one that we work under, enter again.
    pub(super) fn run_is(&mut self, run: Run, version: i32) {
        let ours = run == self.membership.run && version == self.membership.head_version;
        if !ours && self.membership.entered() {
            self.desk.notice(Notice::RunChanged(run));
            self.membership.rejoin(&mut self.desk);
        }
    }
}
