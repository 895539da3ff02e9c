//! Membership and runs: how a process joins a pipeline, opens a run if there is none, and leaves.
//!
//! Every change is one atomic request, and every unclear answer is read back. See checkpoints: members and runs.

use crate::{
    desk::{Asker, Desk},
    effect::{Effect, Notice},
    event::Candidate,
    ids::{Instant, MemberId, Nonce, Revision, Run, TopicPartition},
    limits::Limits,
    store::{
        Descriptor, Desired, Extra, Found, HeadState, Key, MemberCounter, MemberRecord, Node, Op,
        RevisionRecord, RunHead, RunRecord, RunState, StoreAnswer, StoreRequest,
    },
};

/// Who this process is, for its member node.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name of the member.
    pub member: MemberId,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Boot id of the host.
    pub boot: String,
    /// The owner's own version of the app.
    pub release: String,
    /// Consumer group, for the descriptor.
    pub group: String,
    /// Where a new pipeline starts, if not at the beginning: pinned in the first run before anyone claims.
    pub first_start: Vec<(TopicPartition, i64)>,
}

/// The heads of a pipeline as last read, each with its version.
#[derive(Clone, Debug, Default)]
struct Heads {
    run: Option<(RunHead, i32)>,
    members: Option<(MemberCounter, i32)>,
    desired: Option<(Desired, i32)>,
    record: Option<(RunRecord, i32)>,
    revision: Option<RevisionRecord>,
    live: Vec<(MemberId, MemberRecord, i32)>,
}

/// Where the process stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No session, or not begun.
    Out,
    /// Reading the heads.
    ReadHeads,
    /// Making the heads of a new pipeline.
    Create,
    /// Reading run and revision that the heads name.
    ReadRun,
    /// Listing the members.
    ReadMembers,
    /// Reading all partitions for the end table of a run that nobody closed, or that we close.
    ReadEnds,
    /// The request that joins or opens is on its way.
    Enter,
    /// Waiting for a ghost of our own name.
    Ghost,
    /// The request that removes it is on its way.
    Bury,
    /// Working.
    In,
    /// The request that leaves is on its way.
    Exit,
    /// Gone, in order.
    Left,
}

/// What the pipeline must do about a change of membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing yet.
    Pending,
    /// This member is in the run now; every partition is to be claimed under it.
    Entered,
    /// This member has left.
    Left,
    /// It cannot work here.
    Failed(String),
}

/// How often an unclear answer leads to another try before the pipeline gives up.
const TRIES_MAX: u32 = 50;

/// The membership machine of one process.
#[derive(Debug)]
pub(crate) struct Membership {
    identity: Identity,
    /// Nonce of this process start.
    nonce: Nonce,
    session: i64,
    session_timeout_ms: u64,
    state: State,
    /// Whether the machine is on its way out.
    leaving: Option<Result<(), String>>,
    heads: Heads,
    /// Version of the run head under which this member works; commits check it.
    pub(crate) head_version: i32,
    /// Current run.
    pub(crate) run: Run,
    /// Where partitions of this run start, if not where the last one ended.
    pub(crate) start: Vec<(TopicPartition, i64)>,
    /// The live revision and the plugin that it is.
    pub(crate) revision: Revision,
    pub(crate) plugin: Candidate,
    tries: u32,
    retry_at: Option<Instant>,
    ghost_until: Option<Instant>,
    /// The run that our opening marked as abandoned.
    abandoned: Option<Run>,
}

impl Membership {
    /// A process that has not begun.
    pub(crate) fn new(identity: Identity, plugin: Candidate, nonce: Nonce) -> Self {
        Self {
            identity,
            nonce,
            session: 0,
            session_timeout_ms: 0,
            state: State::Out,
            leaving: None,
            heads: Heads::default(),
            head_version: -1,
            run: Run(0),
            start: Vec::new(),
            revision: Revision(0),
            plugin,
            tries: 0,
            retry_at: None,
            ghost_until: None,
            abandoned: None,
        }
    }

    /// Whether this member works in a run.
    pub(crate) fn entered(&self) -> bool {
        self.state == State::In
    }

    /// Name of this member.
    pub(crate) fn member(&self) -> &MemberId {
        &self.identity.member
    }

    /// Its session.
    pub(crate) fn session(&self) -> i64 {
        self.session
    }

    /// The desired revision with the version of its node, as last read.
    pub(crate) fn desired(&self) -> Option<&(Desired, i32)> {
        self.heads.desired.as_ref()
    }

    /// The store has a session; joining may have to wait for the rest.
    pub(crate) fn begin_later(&mut self, session: i64, timeout_ms: u64) {
        self.session = session;
        self.session_timeout_ms = timeout_ms;
    }

    /// A swap was stored: this plugin is the live revision.
    pub(crate) fn swapped(
        &mut self,
        plugin: Candidate,
        revision: Revision,
        version: i32,
        wall_ms: u64,
    ) {
        self.plugin = plugin;
        self.revision = revision;
        if let Some((desired, at)) = &mut self.heads.desired {
            desired.live = revision;
            desired.at_ms = wall_ms;
            *at = version;
        }
    }

    /// The store has a session: join, or go on leaving.
    pub(crate) fn begin(&mut self, desk: &mut Desk, session: i64, timeout_ms: u64) {
        self.session = session;
        self.session_timeout_ms = timeout_ms;
        self.tries = 0;
        self.look(desk);
    }

    /// The session is gone: nothing that was asked in it counts.
    pub(crate) fn expired(&mut self) {
        if self.state != State::Left {
            self.state = State::Out;
        }
        self.retry_at = None;
    }

    /// The run head is not what it was: read again and enter the run that it names.
    pub(crate) fn rejoin(&mut self, desk: &mut Desk) {
        if matches!(self.state, State::In) {
            self.look(desk);
        }
    }

    /// Leave; `reason` says why if it is a failure.
    pub(crate) fn leave(&mut self, desk: &mut Desk, result: Result<(), String>) -> Outcome {
        self.leaving = Some(result);
        self.tries = 0;
        if matches!(self.state, State::Out) {
            self.state = State::Left;
            return Outcome::Left;
        }
        self.look(desk);
        Outcome::Pending
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, desk: &mut Desk) -> Outcome {
        if self.retry_at.is_some_and(|at| at <= desk.at()) {
            self.retry_at = None;
            self.look(desk);
        }
        if self.state == State::Ghost && self.ghost_until.is_some_and(|at| at <= desk.at()) {
            return Outcome::Failed(format!(
                "member id \"{}\" is in use by another process",
                self.identity.member
            ));
        }
        Outcome::Pending
    }

    fn look(&mut self, desk: &mut Desk) {
        self.state = State::ReadHeads;
        desk.ask(
            Asker::Member,
            StoreRequest::Read(vec![
                Key::Descriptor,
                Key::RunHead,
                Key::Members,
                Key::Desired,
            ]),
        );
    }

    fn again(&mut self, desk: &mut Desk, limits: &Limits) -> Outcome {
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return Outcome::Failed(
                "the checkpoint store gave no clear answer to joining or leaving".into(),
            );
        }
        self.retry_at = Some(
            desk.at()
                .plus_ms(crate::desk::backoff_ms(limits, self.tries / 4)),
        );
        Outcome::Pending
    }

    /// An answer of the store to this machine.
    pub(crate) fn answer(
        &mut self,
        desk: &mut Desk,
        limits: &Limits,
        answer: StoreAnswer,
    ) -> Outcome {
        if let StoreAnswer::Failed(why) = answer {
            return Outcome::Failed(why);
        }
        match (self.state.clone(), answer) {
            (State::ReadHeads, StoreAnswer::Nodes(found)) => self.heads_read(desk, found),
            (State::ReadRun, StoreAnswer::Nodes(found)) => self.run_read(desk, found),
            (State::ReadMembers, StoreAnswer::Members(live)) => {
                self.members_read(desk, limits, live)
            }
            (State::ReadEnds, StoreAnswer::Checkpoints(all)) => self.ends_read(desk, &all),
            (State::Create, _) => {
                self.look(desk);
                Outcome::Pending
            }
            // done: read again, so that versions are what the store says, not what we count
            (State::Enter, StoreAnswer::Done(_)) => {
                self.look(desk);
                Outcome::Pending
            }
            (State::Exit, StoreAnswer::Done(_)) => self.left(desk),
            (State::Bury, _) => {
                self.look(desk);
                Outcome::Pending
            }
            // unclear, or an answer to a question that is not asked any more: read everything again
            (State::Out | State::Left | State::In | State::Ghost, _) => Outcome::Pending,
            _ => self.again(desk, limits),
        }
    }

    fn heads_read(&mut self, desk: &mut Desk, found: Vec<Found>) -> Outcome {
        self.heads = Heads::default();
        let mut absent = false;
        for node in found {
            match node {
                Found::Absent => absent = true,
                Found::Unreadable(why, _) => {
                    return Outcome::Failed(format!(
                        "a head node of the pipeline cannot be read: {why}"
                    ));
                }
                Found::Node(Node::RunHead(n), v) => self.heads.run = Some((n, v)),
                Found::Node(Node::Members(n), v) => self.heads.members = Some((n, v)),
                Found::Node(Node::Desired(n), v) => self.heads.desired = Some((n, v)),
                Found::Node(_, _) => {}
            }
        }
        if absent {
            if self.leaving.is_some() {
                return self.left(desk);
            }
            self.create(desk);
            return Outcome::Pending;
        }
        let run = self.heads.run.as_ref().map_or(Run(0), |(h, _)| h.run);
        let live = self
            .heads
            .desired
            .as_ref()
            .map_or(Revision(0), |(d, _)| d.live);
        self.state = State::ReadRun;
        desk.ask(
            Asker::Member,
            StoreRequest::Read(vec![Key::Run(run), Key::Revision(live)]),
        );
        Outcome::Pending
    }

    /// The nodes that every pipeline has. If somebody else makes them at the same moment, all of this is refused, which is fine.
    fn create(&mut self, desk: &mut Desk) {
        let incarnation = desk.nonce();
        let wall = desk.now.wall_ms;
        let none = Extra::default;
        self.state = State::Create;
        desk.ask(
            Asker::Member,
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
                    Node::RunHead(RunHead {
                        run: Run(0),
                        state: HeadState::Closed,
                        nonce: self.nonce,
                        extra: none(),
                    }),
                ),
                Op::Create(Key::Members, Node::Members(MemberCounter::default())),
                Op::Create(
                    Key::Desired,
                    Node::Desired(Desired {
                        live: Revision(0),
                        at_ms: wall,
                        extra: none(),
                    }),
                ),
            ]),
        );
    }

    fn run_read(&mut self, desk: &mut Desk, found: Vec<Found>) -> Outcome {
        for node in found {
            match node {
                Found::Node(Node::Run(n), v) => self.heads.record = Some((n, v)),
                Found::Node(Node::Revision(n), _) => self.heads.revision = Some(n),
                Found::Unreadable(why, _) => {
                    return Outcome::Failed(format!(
                        "the record of the current run or revision cannot be read: {why}"
                    ));
                }
                _ => {}
            }
        }
        self.state = State::ReadMembers;
        desk.ask(Asker::Member, StoreRequest::Members);
        Outcome::Pending
    }

    fn members_read(
        &mut self,
        desk: &mut Desk,
        limits: &Limits,
        live: Vec<(MemberId, MemberRecord, i32)>,
    ) -> Outcome {
        self.heads.live = live;
        let own = self
            .heads
            .live
            .iter()
            .find(|(id, _, _)| *id == self.identity.member)
            .cloned();
        let Some((head, head_version)) = self.heads.run.clone() else {
            return self.again(desk, limits);
        };
        if self.leaving.is_some() {
            return match own {
                Some((_, record, _)) if record.nonce == self.nonce => self.exit(desk),
                _ => self.left(desk),
            };
        }
        if let Some((id, record, version)) = &own {
            if record.nonce != self.nonce {
                return self.meet_ghost(desk, id, record, *version);
            }
            if record.run == head.run && head.state == HeadState::Running {
                return self.enter(desk, head.run, head_version);
            }
        }
        let others = self.heads.live.iter().any(|(id, r, _)| {
            *id != self.identity.member && r.run == head.run && head.state == HeadState::Running
        });
        if others {
            return self.join(desk);
        }
        if head.state == HeadState::Running {
            self.state = State::ReadEnds;
            desk.ask(Asker::Member, StoreRequest::Checkpoints);
            return Outcome::Pending;
        }
        self.open(desk, Vec::new());
        Outcome::Pending
    }

    /// A node with our name and another nonce: a former process of ours, unless it still lives.
    fn meet_ghost(
        &mut self,
        desk: &mut Desk,
        id: &MemberId,
        record: &MemberRecord,
        _version: i32,
    ) -> Outcome {
        self.state = State::Ghost;
        if self.ghost_until.is_none() {
            self.ghost_until = Some(
                desk.at()
                    .plus_ms(self.session_timeout_ms.saturating_add(1_000)),
            );
        }
        desk.effects.push(Effect::Probe(id.clone(), record.clone()));
        self.retry_at = Some(desk.at().plus_ms(500));
        Outcome::Pending
    }

    /// The driver has looked for a member's process. A dead one on this host is removed at once; its session is long to wait for.
    pub(crate) fn probed(&mut self, desk: &mut Desk, member: &MemberId, session: i64, gone: bool) {
        let ghost = self
            .heads
            .live
            .iter()
            .find(|(id, r, _)| id == member && r.session == session);
        let (State::Ghost, Some((id, _, version)), true) = (&self.state, ghost, gone) else {
            return;
        };
        let op = Op::Delete(Key::Member(id.clone()), *version);
        self.state = State::Bury;
        desk.ask(Asker::Member, StoreRequest::Multi(vec![op]));
    }

    fn counter_op(&self) -> Vec<Op> {
        let Some((counter, version)) = &self.heads.members else {
            return Vec::new();
        };
        let next = MemberCounter {
            changes: counter.changes + 1,
            extra: counter.extra.clone(),
        };
        vec![Op::Set(Key::Members, Node::Members(next), *version)]
    }

    /// Our member node in that run: made, or moved if we are in already.
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
        match self
            .heads
            .live
            .iter()
            .find(|(id, r, _)| *id == self.identity.member && r.nonce == self.nonce)
        {
            Some((_, _, version)) => Op::Set(key, node, *version),
            None => Op::Create(key, node),
        }
    }

    fn same_plugin(&self) -> bool {
        self.heads.revision.as_ref().is_some_and(|r| {
            r.digest == self.plugin.digest && r.config_digest == self.plugin.config_digest
        })
    }

    fn join(&mut self, desk: &mut Desk) -> Outcome {
        let (Some((head, head_version)), Some((desired, _))) =
            (self.heads.run.clone(), self.heads.desired.clone())
        else {
            return Outcome::Pending;
        };
        if !self.same_plugin() {
            let live = self
                .heads
                .revision
                .as_ref()
                .map_or("none", |r| r.digest.as_str());
            return Outcome::Failed(format!(
                "the pipeline runs revision {} with plugin {live}, but this member has plugin {}",
                desired.live.0, self.plugin.digest
            ));
        }
        let mut ops = vec![Op::Check(Key::RunHead, head_version)];
        ops.extend(self.counter_op());
        ops.push(self.member_op(head.run, desired.live));
        self.state = State::Enter;
        desk.ask(Asker::Member, StoreRequest::Multi(ops));
        Outcome::Pending
    }

    /// Everybody is gone, so a new run begins. `ends`: where the last one ended, if nobody closed it.
    fn open(&mut self, desk: &mut Desk, ends: Vec<(TopicPartition, i64)>) {
        let (Some((head, head_version)), Some((desired, desired_version))) =
            (self.heads.run.clone(), self.heads.desired.clone())
        else {
            return;
        };
        let wall = desk.now.wall_ms;
        let run = Run(head.run.0 + 1);
        let same = self.same_plugin();
        let revision = if same {
            desired.live
        } else {
            Revision(desired.live.0 + 1)
        };
        let first = head.run == Run(0);
        let mut ops = vec![
            Op::Set(
                Key::RunHead,
                Node::RunHead(RunHead {
                    run,
                    state: HeadState::Running,
                    nonce: self.nonce,
                    extra: head.extra.clone(),
                }),
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
                    start: if first {
                        self.identity.first_start.clone()
                    } else {
                        Vec::new()
                    },
                    end: Vec::new(),
                    extra: Extra::default(),
                }),
            ),
        ];
        self.abandoned = None;
        if let (HeadState::Running, Some((record, version))) = (head.state, &self.heads.record) {
            self.abandoned = Some(head.run);
            let abandoned = RunRecord {
                state: RunState::Abandoned,
                ended_ms: wall,
                end: ends,
                ..record.clone()
            };
            ops.push(Op::Set(Key::Run(head.run), Node::Run(abandoned), *version));
        }
        if !same {
            let desired = Desired {
                live: revision,
                at_ms: wall,
                extra: desired.extra,
            };
            ops.push(Op::Set(
                Key::Desired,
                Node::Desired(desired),
                desired_version,
            ));
            ops.push(Op::Create(
                Key::Revision(revision),
                revision_node(&self.plugin, wall),
            ));
        }
        ops.extend(self.counter_op());
        ops.push(self.member_op(run, revision));
        self.state = State::Enter;
        desk.ask(Asker::Member, StoreRequest::Multi(ops));
    }

    fn ends_read(&mut self, desk: &mut Desk, all: &[(TopicPartition, Found)]) -> Outcome {
        let ends: Vec<_> = all
            .iter()
            .filter_map(|(tp, found)| match found {
                Found::Node(Node::Checkpoint(c), _) => Some((tp.clone(), c.position.next_offset)),
                _ => None,
            })
            .collect();
        if self.leaving.is_some() {
            let released = all
                .iter()
                .all(|(_, found)| matches!(found, Found::Node(Node::Checkpoint(c), _) if c.owner.released));
            self.close(desk, ends, released);
        } else {
            self.open(desk, ends);
        }
        Outcome::Pending
    }

    /// Our node is in the current run: work under it, at the version of the head as read.
    fn enter(&mut self, desk: &mut Desk, run: Run, head_version: i32) -> Outcome {
        if self.run != run {
            let opened = self
                .heads
                .run
                .as_ref()
                .is_some_and(|(h, _)| h.nonce == self.nonce);
            desk.notice(if opened {
                Notice::RunOpened(run, self.abandoned)
            } else {
                Notice::RunJoined(run)
            });
        }
        self.run = run;
        self.head_version = head_version;
        self.start = self
            .heads
            .record
            .as_ref()
            .map(|(r, _)| r.start.clone())
            .unwrap_or_default();
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

    /// We are in and want out: with others, just go; alone, close the run in the same request.
    fn exit(&mut self, desk: &mut Desk) -> Outcome {
        let others = self
            .heads
            .live
            .iter()
            .any(|(id, _, _)| *id != self.identity.member);
        if !others {
            self.state = State::ReadEnds;
            desk.ask(Asker::Member, StoreRequest::Checkpoints);
            return Outcome::Pending;
        }
        let mut ops = self.counter_op();
        ops.extend(self.own_delete());
        self.state = State::Exit;
        desk.ask(Asker::Member, StoreRequest::Multi(ops));
        Outcome::Pending
    }

    fn own_delete(&self) -> Option<Op> {
        self.heads
            .live
            .iter()
            .find(|(id, r, _)| *id == self.identity.member && r.nonce == self.nonce)
            .map(|(id, _, version)| Op::Delete(Key::Member(id.clone()), *version))
    }

    fn close(&mut self, desk: &mut Desk, ends: Vec<(TopicPartition, i64)>, released: bool) {
        let mut ops = self.counter_op();
        ops.extend(self.own_delete());
        if let Some((head, version)) = &self.heads.run {
            let closed = RunHead {
                state: HeadState::Closed,
                nonce: self.nonce,
                ..head.clone()
            };
            ops.push(Op::Set(Key::RunHead, Node::RunHead(closed), *version));
        }
        if let Some((record, version)) = &self.heads.record {
            let (state, reason) = match &self.leaving {
                Some(Err(why)) => (RunState::Failed, why.clone()),
                _ if released => (RunState::Finished, String::new()),
                _ => (RunState::Failed, "ended with unreleased partitions".into()),
            };
            let ended = RunRecord {
                state,
                reason,
                ended_ms: desk.now.wall_ms,
                end: ends,
                ..record.clone()
            };
            ops.push(Op::Set(Key::Run(self.run), Node::Run(ended), *version));
        }
        self.state = State::Exit;
        desk.ask(Asker::Member, StoreRequest::Multi(ops));
    }

    fn left(&mut self, desk: &mut Desk) -> Outcome {
        let alone = self
            .heads
            .live
            .iter()
            .all(|(id, _, _)| *id == self.identity.member);
        desk.notice(Notice::RunLeft(self.run, alone));
        self.state = State::Left;
        Outcome::Left
    }
}

/// The node of a new revision.
pub(crate) fn revision_node(plugin: &Candidate, wall_ms: u64) -> Node {
    Node::Revision(RevisionRecord {
        digest: plugin.digest.clone(),
        config_digest: plugin.config_digest.clone(),
        contract: plugin.contract.clone(),
        created_ms: wall_ms,
        extra: Extra::default(),
    })
}
