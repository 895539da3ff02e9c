//! Membership and runs: how a process joins a pipeline, opens a run if there is none, and leaves.
//!
//! Every change is one atomic request, and every unclear answer is read back. See checkpoints: members and runs.

use crate::{
    desk::{Asker, Desk},
    event::Candidate,
    ids::{Instant, MemberId, Nonce, RequestId, Revision, Run, TopicPartition},
    limits::Limits,
    store::{
        Desired, Extra, Found, HeadState, Key, MemberCounter, MemberRecord, Node, RevisionRecord, RunHead, RunRecord,
        StoreAnswer, StoreRequest,
    },
};

mod entering;
mod ghost;
mod leaving;

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
    /// Which run is the current one.
    run: Option<(RunHead, i32)>,
    /// The counter that makes changes of membership exclude each other.
    members: Option<(MemberCounter, i32)>,
    /// The wanted revision.
    desired: Option<(Desired, i32)>,
    /// Record of the current run.
    record: Option<(RunRecord, i32)>,
    /// What the wanted revision is.
    revision: Option<RevisionRecord>,
    /// Who is there.
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
    /// Who this process is, as given.
    identity: Identity,
    /// Nonce of this process start, so that a former process of the same name is not taken for this one.
    nonce: Nonce,
    /// Current store session; our node is of it.
    session: i64,
    /// Its timeout: how long a ghost can last.
    session_timeout_ms: u64,
    /// Where the machine stands.
    state: State,
    /// The request whose answer it waits for; any other answer is to a question that is not asked any more.
    request: Option<RequestId>,
    /// Whether the machine is on its way out, and with which result.
    leaving: Option<Result<(), String>>,
    /// The heads as last read.
    heads: Heads,
    /// Version of the run head under which this member works; commits check it.
    pub(crate) head_version: i32,
    /// Current run.
    pub(crate) run: Run,
    /// Where partitions of this run start, if not where the last one ended.
    pub(crate) start: Vec<(TopicPartition, i64)>,
    /// The live revision and the plugin that it is.
    pub(crate) revision: Revision,
    /// See `revision`.
    pub(crate) plugin: Candidate,
    /// How often an answer was unclear in a row, so that there is an end to it.
    tries: u32,
    /// When everything is read again.
    retry_at: Option<Instant>,
    /// Until when a ghost of our name may be there.
    ghost_until: Option<Instant>,
    /// Whether we sent the request that closes our run.
    closing: bool,
    /// The run that our opening marked as abandoned, for people.
    abandoned: Option<Run>,
}

impl Membership {
    pub(crate) fn new(identity: Identity, plugin: Candidate, nonce: Nonce) -> Self {
        Self {
            identity,
            nonce,
            session: 0,
            session_timeout_ms: 0,
            state: State::Out,
            request: None,
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
            closing: false,
            abandoned: None,
        }
    }

    pub(crate) fn entered(&self) -> bool {
        self.state == State::In
    }

    pub(crate) fn member(&self) -> &MemberId {
        &self.identity.member
    }

    pub(crate) fn session(&self) -> i64 {
        self.session
    }

    /// The wanted revision as last read, with the version of its node, and what it is.
    pub(crate) fn desired(&self) -> Option<(&Desired, i32, Option<&RevisionRecord>)> {
        let (desired, version) = self.heads.desired.as_ref()?;
        Some((desired, *version, self.heads.revision.as_ref()))
    }

    /// The store has a session; joining may have to wait for the rest.
    pub(crate) fn session_is(&mut self, session: i64, timeout_ms: u64) {
        self.session = session;
        self.session_timeout_ms = timeout_ms;
    }

    /// A wanted revision of ours was stored.
    pub(crate) fn swapped(&mut self, plugin: &Candidate, revision: Revision, version: i32, wall_ms: u64) {
        if let Some((desired, at)) = &mut self.heads.desired {
            desired.live = revision;
            desired.at_ms = wall_ms;
            *at = version;
        }
        self.heads.revision = Some(revision_record(plugin, wall_ms));
    }

    /// The store has a session, and the rest is there: join.
    pub(crate) fn begin(&mut self, desk: &mut Desk) {
        self.tries = 0;
        self.look(desk);
    }

    /// The session is gone: nothing that was asked in it counts.
    pub(crate) fn expired(&mut self) {
        if self.state != State::Left {
            self.state = State::Out;
        }
        self.request = None;
        self.retry_at = None;
    }

    pub(crate) fn rejoin(&mut self, desk: &mut Desk) {
        if matches!(self.state, State::In) {
            self.look(desk);
        }
    }

    /// Leave; the result says why if it is a failure.
    pub(crate) fn leave(&mut self, desk: &mut Desk, result: Result<(), String>) -> Outcome {
        self.leaving = Some(result);
        self.tries = 0;
        match self.state {
            State::Out if self.run == Run(0) => {
                self.state = State::Left;
                return Outcome::Left;
            }
            State::Out => {
                self.state = State::Left;
                let why = "the session with the checkpoint store was lost before the run was left";
                return Outcome::Failed(why.into());
            }
            // what is on its way must be heard of first: it may put us into a run
            State::Create | State::Enter | State::Bury => {}
            _ => self.look(desk),
        }
        Outcome::Pending
    }

    pub(crate) fn tick(&mut self, desk: &mut Desk) -> Outcome {
        if self.state == State::Ghost && self.ghost_until.is_some_and(|at| at <= desk.at()) {
            return Outcome::Failed(format!("member id \"{}\" is in use by another process", self.identity.member));
        }
        if self.retry_at.is_some_and(|at| at <= desk.at()) {
            self.look(desk);
        }
        Outcome::Pending
    }

    pub(crate) fn answer(
        &mut self,
        desk: &mut Desk,
        limits: &Limits,
        request: RequestId,
        answer: StoreAnswer,
    ) -> Outcome {
        if self.request != Some(request) {
            return Outcome::Pending;
        }
        self.request = None;
        if let StoreAnswer::Failed(why) = answer {
            return Outcome::Failed(why);
        }
        match (self.state.clone(), answer) {
            (State::ReadHeads, StoreAnswer::Nodes(found)) => self.heads_read(desk, found),
            (State::ReadRun, StoreAnswer::Nodes(found)) => self.run_read(desk, found),
            (State::ReadMembers, StoreAnswer::Members(live)) => self.members_read(desk, limits, live),
            (State::ReadEnds, StoreAnswer::Checkpoints(all)) => self.ends_read(desk, &all),
            (State::Create, StoreAnswer::Done(_) | StoreAnswer::Refused(_)) => {
                self.look(desk);
                Outcome::Pending
            }
            // done: read again, so that versions are what the store says, not what we count
            (State::Enter, StoreAnswer::Done(_)) | (State::Bury, _) => {
                self.look(desk);
                Outcome::Pending
            }
            (State::Exit, StoreAnswer::Done(_)) => self.left(desk),
            // unclear: read everything again
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
                    return Outcome::Failed(format!("a head node of the pipeline cannot be read: {why}"));
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
        let live = self.heads.desired.as_ref().map_or(Revision(0), |(d, _)| d.live);
        let keys = vec![Key::Run(run), Key::Revision(live)];
        self.ask(desk, State::ReadRun, StoreRequest::Read(keys));
        Outcome::Pending
    }

    fn run_read(&mut self, desk: &mut Desk, found: Vec<Found>) -> Outcome {
        for node in found {
            match node {
                Found::Node(Node::Run(n), v) => self.heads.record = Some((n, v)),
                Found::Node(Node::Revision(n), _) => self.heads.revision = Some(n),
                Found::Unreadable(why, _) => {
                    return Outcome::Failed(format!("the record of the current run or revision cannot be read: {why}"));
                }
                _ => {}
            }
        }
        self.ask(desk, State::ReadMembers, StoreRequest::Members);
        Outcome::Pending
    }

    fn members_read(&mut self, desk: &mut Desk, limits: &Limits, live: Vec<(MemberId, MemberRecord, i32)>) -> Outcome {
        self.heads.live = live;
        let Some((head, head_version)) = self.heads.run.clone() else {
            return self.again(desk, limits);
        };
        let own = self.own().cloned();
        if self.leaving.is_some() {
            return match own {
                Some((_, record, _)) if record.nonce == self.nonce => self.exit(desk),
                // our node went with a former session: if nobody else is there, the run is ours to close nevertheless
                None if self.run == head.run && head.state == HeadState::Running => self.exit(desk),
                _ => self.left(desk),
            };
        }
        if let Some((id, record, version)) = own {
            if record.nonce != self.nonce {
                return self.meet_ghost(desk, id, record);
            }
            if record.session != self.session {
                // our own of a former session: it would go with that one
                self.bury(desk, id, version);
                return Outcome::Pending;
            }
            if record.run == head.run && head.state == HeadState::Running {
                return self.enter(desk, head.run, head_version);
            }
        }
        let others = self.others().any(|r| r.run == head.run && head.state == HeadState::Running);
        if others {
            return self.join(desk);
        }
        if head.state == HeadState::Running {
            self.ask(desk, State::ReadEnds, StoreRequest::Checkpoints);
        } else {
            self.open(desk, Vec::new());
        }
        Outcome::Pending
    }

    /// The node with our name.
    fn own(&self) -> Option<&(MemberId, MemberRecord, i32)> {
        self.heads.live.iter().find(|(id, ..)| *id == self.identity.member)
    }

    /// The nodes with other names.
    fn others(&self) -> impl Iterator<Item = &MemberRecord> {
        self.heads.live.iter().filter(|(id, ..)| *id != self.identity.member).map(|(_, record, _)| record)
    }

    fn again(&mut self, desk: &mut Desk, limits: &Limits) -> Outcome {
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return Outcome::Failed("the checkpoint store gave no clear answer to joining or leaving".into());
        }
        self.retry_at = Some(desk.at().plus_ms(crate::desk::backoff_ms(limits, self.tries / 4)));
        Outcome::Pending
    }

    fn look(&mut self, desk: &mut Desk) {
        let keys = vec![Key::Descriptor, Key::RunHead, Key::Members, Key::Desired];
        self.ask(desk, State::ReadHeads, StoreRequest::Read(keys));
    }

    /// Asks, and takes no answer but the one to this.
    fn ask(&mut self, desk: &mut Desk, state: State, request: StoreRequest) {
        self.state = state;
        self.retry_at = None;
        self.request = Some(desk.ask(Asker::Member, request));
    }
}

/// A new revision, as it is stored.
fn revision_record(plugin: &Candidate, wall_ms: u64) -> RevisionRecord {
    RevisionRecord {
        digest: plugin.digest.clone(),
        config_digest: plugin.config_digest.clone(),
        contract: plugin.contract.clone(),
        created_ms: wall_ms,
        extra: Extra::default(),
    }
}

/// The node of a new revision.
pub(crate) fn revision_node(plugin: &Candidate, wall_ms: u64) -> Node {
    Node::Revision(revision_record(plugin, wall_ms))
}
