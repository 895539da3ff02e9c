//! Into a run: the nodes that every pipeline has, opening a run, joining one, and being in it.

use super::{Membership, Outcome, State, revision_node};
use crate::{
    desk::Desk,
    effect::Notice,
    ids::{Revision, Run, TopicPartition},
    store::{
        Descriptor, Desired, Extra, HeadState, Key, MemberCounter, MemberRecord, Node, Op, RunHead, RunRecord,
        RunState, StoreRequest,
    },
};

impl Membership {
    pub(super) fn create(&mut self, desk: &mut Desk) {
        let incarnation = desk.nonce();
        let wall = desk.now.wall_ms;
        let none = Extra::default;
        self.ask(
            desk,
            State::Create,
            StoreRequest::Multi(vec![
                Op::Create(
                    Key::Descriptor,
                    Node::Descriptor(Descriptor {
                        incarnation,
                        group: self.identity.group.clone(),
                        delivery: "at-least-once".into(),
                        created_ms: wall,
                        extra: none(),
                    }),
                ),
                Op::Create(
                    Key::RunHead,
                    Node::RunHead(RunHead { run: Run(0), state: HeadState::Closed, nonce: self.nonce, extra: none() }),
                ),
                Op::Create(Key::Members, Node::Members(MemberCounter::default())),
                Op::Create(Key::Desired, Node::Desired(Desired { live: Revision(0), at_ms: wall, extra: none() })),
            ]),
        );
    }

    pub(super) fn join(&mut self, desk: &mut Desk) -> Outcome {
        let (Some((head, head_version)), Some((desired, _))) = (self.heads.run.clone(), self.heads.desired.clone())
        else {
            return Outcome::Pending;
        };
        if !self.same_plugin() {
            let named = |digest: &str, config: &str| format!("plugin {digest} with configuration {config}");
            let live = self.heads.revision.as_ref();
            return Outcome::Failed(format!(
                "the pipeline runs revision {} of {}, but this member has {}",
                desired.live.0,
                live.map_or_else(|| "no plugin".to_owned(), |r| named(&r.digest, &r.config_digest)),
                named(&self.plugin.digest, &self.plugin.config_digest),
            ));
        }
        let mut ops = vec![Op::Check(Key::RunHead, head_version)];
        ops.extend(self.counter_op());
        ops.push(self.member_op(head.run, desired.live));
        self.ask(desk, State::Enter, StoreRequest::Multi(ops));
        Outcome::Pending
    }

    pub(super) fn open(&mut self, desk: &mut Desk, ends: Vec<(TopicPartition, i64)>) {
        let (Some((head, head_version)), Some((desired, desired_version))) =
            (self.heads.run.clone(), self.heads.desired.clone())
        else {
            return;
        };
        let wall = desk.now.wall_ms;
        let run = Run(head.run.0 + 1);
        let same = self.same_plugin();
        let revision = if same { desired.live } else { Revision(desired.live.0 + 1) };
        let first = head.run == Run(0);
        let mut ops = vec![
            Op::Set(
                Key::RunHead,
                Node::RunHead(RunHead { run, state: HeadState::Running, nonce: self.nonce, extra: head.extra.clone() }),
                head_version,
            ),
            Op::Create(
                Key::Run(run),
                Node::Run(RunRecord {
                    state: RunState::Running,
                    release: self.identity.release.clone(),
                    revision,
                    started_ms: wall,
                    ended_ms: 0,
                    reason: String::new(),
                    start: if first { self.identity.first_start.clone() } else { Vec::new() },
                    end: Vec::new(),
                    extra: Extra::default(),
                }),
            ),
        ];
        self.abandoned = None;
        if let (HeadState::Running, Some((record, version))) = (head.state, &self.heads.record) {
            self.abandoned = Some(head.run);
            let abandoned = RunRecord { state: RunState::Abandoned, ended_ms: wall, end: ends, ..record.clone() };
            ops.push(Op::Set(Key::Run(head.run), Node::Run(abandoned), *version));
        }
        if !same {
            let desired = Desired { live: revision, at_ms: wall, extra: desired.extra };
            ops.push(Op::Set(Key::Desired, Node::Desired(desired), desired_version));
            ops.push(Op::Create(Key::Revision(revision), revision_node(&self.plugin, wall)));
        }
        ops.extend(self.counter_op());
        ops.push(self.member_op(run, revision));
        self.ask(desk, State::Enter, StoreRequest::Multi(ops));
    }

    pub(super) fn enter(&mut self, desk: &mut Desk, run: Run, head_version: i32) -> Outcome {
        if self.run != run {
            let opened = self.heads.run.as_ref().is_some_and(|(h, _)| h.nonce == self.nonce);
            desk.notice(if opened { Notice::RunOpened(run, self.abandoned) } else { Notice::RunJoined(run) });
        }
        self.run = run;
        self.head_version = head_version;
        self.start = self.heads.record.as_ref().map(|(r, _)| r.start.clone()).unwrap_or_default();
        if let Some((desired, _)) = &self.heads.desired
            && self.same_plugin()
        {
            self.revision = desired.live;
        }
        self.state = State::In;
        self.tries = 0;
        self.ghost_until = None;
        Outcome::Entered
    }

    pub(super) fn counter_op(&self) -> Vec<Op> {
        let Some((counter, version)) = &self.heads.members else {
            return Vec::new();
        };
        let next = MemberCounter { changes: counter.changes + 1, extra: counter.extra.clone() };
        vec![Op::Set(Key::Members, Node::Members(next), *version)]
    }

    fn member_op(&self, run: Run, revision: Revision) -> Op {
        let key = Key::Member(self.identity.member.clone());
        let node = Node::Member(MemberRecord {
            nonce: self.nonce,
            session: self.session,
            host: self.identity.host.clone(),
            pid: self.identity.pid,
            boot: self.identity.boot.clone(),
            run,
            revision,
            extra: Extra::default(),
        });
        match self.own().filter(|(_, r, _)| r.nonce == self.nonce) {
            Some((_, _, version)) => Op::Set(key, node, *version),
            None => Op::Create(key, node),
        }
    }

    fn same_plugin(&self) -> bool {
        self.heads
            .revision
            .as_ref()
            .is_some_and(|r| r.digest == self.plugin.digest && r.config_digest == self.plugin.config_digest)
    }
}
