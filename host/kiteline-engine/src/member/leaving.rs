//! Out of a run, and the last one closes it. Reading where a run ended serves its opener as well.

use super::{Membership, Outcome, State};
use crate::{
    desk::Desk,
    effect::Notice,
    ids::{Run, TopicPartition},
    store::{Found, HeadState, Key, Node, Op, RunHead, RunRecord, RunState, StoreRequest},
};

impl Membership {
    pub(super) fn ends_read(&mut self, desk: &mut Desk, all: &[(TopicPartition, Found)]) -> Outcome {
        let ends: Vec<_> = all
            .iter()
            .filter_map(|(tp, found)| match found {
                Found::Node(Node::Checkpoint(c), _) => Some((tp.clone(), c.position.next_offset)),
                _ => None,
            })
            .collect();
        if self.leaving.is_some() {
            let released =
                all.iter().all(|(_, found)| matches!(found, Found::Node(Node::Checkpoint(c), _) if c.owner.released));
            self.close(desk, ends, released);
        } else {
            self.open(desk, ends);
        }
        Outcome::Pending
    }

    /// We are in and want out: with others, just go; alone, close the run in the same request.
    pub(super) fn exit(&mut self, desk: &mut Desk) -> Outcome {
        if self.others().next().is_none() {
            self.ask(desk, State::ReadEnds, StoreRequest::Checkpoints);
            return Outcome::Pending;
        }
        self.closing = false;
        let Some(delete) = self.own_delete() else { return self.left(desk) };
        let mut ops = self.counter_op();
        ops.push(delete);
        self.ask(desk, State::Exit, StoreRequest::Multi(ops));
        Outcome::Pending
    }

    pub(super) fn close(&mut self, desk: &mut Desk, ends: Vec<(TopicPartition, i64)>, released: bool) {
        let mut ops = self.counter_op();
        ops.extend(self.own_delete());
        let running = |(head, _): &&(RunHead, i32)| head.state == HeadState::Running;
        let Some((head, version)) = self.heads.run.as_ref().filter(running) else {
            // somebody closed it over our head; what is left is to go
            return self.ask(desk, State::Exit, StoreRequest::Multi(ops));
        };
        let run = head.run;
        let closed = RunHead { state: HeadState::Closed, nonce: self.nonce, ..head.clone() };
        ops.push(Op::Set(Key::RunHead, Node::RunHead(closed), *version));
        if let Some((record, version)) = &self.heads.record {
            let (state, reason) = match &self.leaving {
                Some(Err(why)) => (RunState::Failed, why.clone()),
                _ if released => (RunState::Finished, String::new()),
                _ => (RunState::Failed, "ended with unreleased partitions".into()),
            };
            let ended = RunRecord { state, reason, ended_ms: desk.now.wall_ms, end: ends, ..record.clone() };
            ops.push(Op::Set(Key::Run(run), Node::Run(ended), *version));
        }
        self.closing = true;
        self.ask(desk, State::Exit, StoreRequest::Multi(ops));
    }

    pub(super) fn left(&mut self, desk: &mut Desk) -> Outcome {
        if self.run != Run(0) {
            desk.notice(Notice::RunLeft(self.run, self.closing));
        }
        self.state = State::Left;
        Outcome::Left
    }

    fn own_delete(&self) -> Option<Op> {
        self.own()
            .filter(|(_, r, _)| r.nonce == self.nonce)
            .map(|(id, _, version)| Op::Delete(Key::Member(id.clone()), *version))
    }
}
