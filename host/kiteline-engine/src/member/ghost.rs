//! Ghosts: member nodes with our name that are not ours, or of a session that is gone.

use super::{Membership, Outcome, State};
use crate::{
    desk::Desk,
    effect::Effect,
    ids::MemberId,
    store::{Key, MemberRecord, Op, StoreRequest},
};

/// Time between two looks at a ghost, in milliseconds.
const GHOST_LOOK_MS: u64 = 500;

/// Longest wait for a ghost where sessions do not end by time, in milliseconds.
const GHOST_WAIT_MS_MAX: u64 = 120_000;

/// How much longer than a session a ghost is waited for, in milliseconds.
const GHOST_WAIT_MORE_MS: u64 = 1_000;

impl Membership {
    /// A node with our name and another nonce: a former process of ours, unless it still lives.
    pub(super) fn meet_ghost(&mut self, desk: &mut Desk, id: MemberId, record: MemberRecord) -> Outcome {
        self.state = State::Ghost;
        let wait = self.session_timeout_ms.min(GHOST_WAIT_MS_MAX) + GHOST_WAIT_MORE_MS;
        self.ghost_until.get_or_insert(desk.at().plus_ms(wait));
        self.retry_at = Some(desk.at().plus_ms(GHOST_LOOK_MS));
        desk.effects.push(Effect::Probe(id, record));
        Outcome::Pending
    }

    /// The driver has looked for a member's process. A dead one on this host is removed at once; its session is long to wait for.
    pub(crate) fn probed(&mut self, desk: &mut Desk, member: &MemberId, session: i64, gone: bool) {
        let ghost = self
            .own()
            .filter(|(id, r, _)| id == member && r.session == session)
            .map(|(id, _, version)| (id.clone(), *version));
        if let (State::Ghost, Some((id, version)), true) = (&self.state, ghost, gone) {
            self.bury(desk, id, version);
        }
    }

    pub(super) fn bury(&mut self, desk: &mut Desk, id: MemberId, version: i32) {
        // the counter with it: a new node of that name begins at version 0 again, and a late delete must not hit ours
        let mut ops = self.counter_op();
        ops.push(Op::Delete(Key::Member(id), version));
        self.ask(desk, State::Bury, StoreRequest::Multi(ops));
    }
}
