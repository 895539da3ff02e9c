//! Small scenarios, step by step, of what the simulator found and of what it reaches seldom. The store is a plain map that
//! answers at once; everything else is said by the test.

use std::collections::BTreeMap;

use kiteline_engine::{
    Identity,
    effect::{Effect, Notice},
    event::{Candidate, Event, LogRange, Now},
    ids::{BatchId, FeedId, Generation, Instant, Mark, MemberId, Nonce, Revision, Run, TopicPartition},
    limits::Limits,
    pipeline::{OnLostPosition, Pipeline, Setup},
    record::OffsetRange,
    store::{
        Checkpoint, Extra, Found, Key, MemberRecord, Node, Op, Owner, PluginPosition, Position, StoreAnswer,
        StoreRequest, TopicIdentity, Why,
    },
};

const SESSION_MS: u64 = 9_000;

struct Rig {
    pipeline: Pipeline,
    now_ms: u64,
    nodes: BTreeMap<Key, (Node, i32)>,
}

impl Rig {
    fn new(limits: Limits) -> Self {
        let identity = Identity {
            member: MemberId("m".into()),
            host: "h".into(),
            pid: 1,
            boot: "b".into(),
            release: "1".into(),
            group: "g".into(),
            first_start: Vec::new(),
        };
        let setup = Setup {
            identity,
            plugin: candidate(1),
            on_lost_position: OnLostPosition::Earliest,
            until_end: false,
            limits,
            seed: 7,
        };
        Self { pipeline: Pipeline::new(setup), now_ms: 1_000, nodes: BTreeMap::new() }
    }

    /// One that works in a run and has joined the group.
    fn working(limits: Limits) -> Self {
        let mut rig = Self::new(limits);
        rig.step(Event::StoreSession { session: 1, timeout_ms: SESSION_MS });
        let effects = rig.step(Event::Start);
        assert!(effects.contains(&Effect::JoinGroup), "{effects:?}");
        rig
    }

    /// One step without any answer of the store.
    fn bare(&mut self, event: Event) -> Vec<Effect> {
        let now = Now { at: Instant(self.now_ms), wall_ms: self.now_ms };
        let mut effects = Vec::new();
        self.pipeline.step(now, event, &mut effects);
        effects
    }

    /// One step, and all that follows from the store's answers. Gives every effect but those for the store.
    fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut all = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.bare(event) {
                if let Effect::Store(request, content) = effect {
                    let answer = self.apply(&content);
                    events.insert(0, Event::StoreAnswer { request, answer, sent: Instant(self.now_ms) });
                } else {
                    all.push(effect);
                }
            }
        }
        all
    }

    fn tick_after(&mut self, ms: u64) -> Vec<Effect> {
        self.now_ms += ms;
        self.step(Event::Tick)
    }

    fn found(&self, key: &Key) -> Found {
        self.nodes.get(key).map_or(Found::Absent, |(node, version)| Found::Node(node.clone(), *version))
    }

    fn apply(&mut self, request: &StoreRequest) -> StoreAnswer {
        let ops = match request {
            StoreRequest::Read(keys) => return StoreAnswer::Nodes(keys.iter().map(|k| self.found(k)).collect()),
            StoreRequest::Members => {
                let members = self.nodes.iter().filter_map(|(key, (node, version))| match (key, node) {
                    (Key::Member(id), Node::Member(r)) => Some((id.clone(), r.clone(), *version)),
                    _ => None,
                });
                return StoreAnswer::Members(members.collect());
            }
            StoreRequest::Checkpoints => {
                let tps = self.nodes.keys().filter_map(|key| match key {
                    Key::Partition(tp) => Some((tp.clone(), self.found(key))),
                    _ => None,
                });
                return StoreAnswer::Checkpoints(tps.collect());
            }
            StoreRequest::Multi(ops) => ops,
        };
        let holds = |op: &Op| match op {
            Op::Create(key, _) => !self.nodes.contains_key(key),
            Op::Check(key, v) | Op::Set(key, _, v) | Op::Delete(key, v) => {
                self.nodes.get(key).is_some_and(|(_, version)| version == v)
            }
        };
        if let Some(index) = ops.iter().position(|op| !holds(op)) {
            return StoreAnswer::Refused(index);
        }
        let mut versions = Vec::new();
        for op in ops {
            match op {
                Op::Check(_, v) => versions.push(*v),
                Op::Create(key, node) => {
                    self.nodes.insert(key.clone(), (node.clone(), 0));
                    versions.push(0);
                }
                Op::Set(key, node, v) => {
                    self.nodes.insert(key.clone(), (node.clone(), v + 1));
                    versions.push(v + 1);
                }
                Op::Delete(key, _) => {
                    self.nodes.remove(key);
                    versions.push(-1);
                }
            }
        }
        StoreAnswer::Done(versions)
    }

    /// A partition that is fed from the log's beginning; its feeding.
    fn feed(&mut self, partition: i32) -> FeedId {
        self.step(Event::Assigned(vec![tp(partition)]));
        let effects = self.step(positions(partition, 0, 100));
        fed(&effects).expect("it is fed").1
    }

    fn checkpoint(&self, partition: i32) -> &Checkpoint {
        match &self.nodes[&Key::Partition(tp(partition))].0 {
            Node::Checkpoint(c) => c,
            other => panic!("{other:?}"),
        }
    }
}

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn candidate(number: u64) -> Candidate {
    Candidate {
        token: number,
        digest: format!("sha256:{number}"),
        config_digest: "sha256:0".into(),
        contract: "kiteline:transform@0.1.0".into(),
        stateless: true,
    }
}

fn positions(partition: i32, start: i64, end: i64) -> Event {
    Event::Positions(vec![(tp(partition), Ok(LogRange { start, end, topic_id: "id".into() }))])
}

fn fetched(partition: i32, feed: FeedId, batch: u64, from: i64, until: i64) -> Event {
    let range = OffsetRange { from, until };
    Event::Fetched { partition: tp(partition), feed, batch: BatchId(batch), range, records: 1 }
}

/// The first feeding that begins: where from, and its name.
fn fed(effects: &[Effect]) -> Option<(i64, FeedId)> {
    effects.iter().find_map(|e| if let Effect::Feed(_, feed, from) = e { Some((*from, *feed)) } else { None })
}

#[test]
fn a_stop_while_starting_ends_in_order() {
    let mut rig = Rig::new(Limits::default());
    assert_eq!(rig.step(Event::Stop), [Effect::Finished(Ok(()))], "without a session");

    let mut rig = Rig::new(Limits::default());
    rig.step(Event::StoreSession { session: 1, timeout_ms: SESSION_MS });
    let asked = rig.bare(Event::Start);
    assert!(matches!(asked[..], [Effect::Store(..)]), "{asked:?}");
    assert_eq!(rig.step(Event::Stop), [Effect::Finished(Ok(()))], "while the heads are read");
    assert!(rig.nodes.is_empty(), "nothing was made");
}

#[test]
fn a_shutdown_commits_releases_and_closes_the_run() {
    let mut rig = Rig::working(Limits::default());
    let feed = rig.feed(0);
    rig.step(fetched(0, feed, 1, 0, 10));
    rig.step(Event::Transformed { batch: BatchId(1), writes: 1, stop: None });
    assert_eq!(rig.step(Event::Stop), [], "a batch is in flight");
    let effects = rig.step(Event::Acknowledged(BatchId(1)));
    assert!(effects.contains(&Effect::Notice(Notice::RunLeft(Run(1), true))), "{effects:?}");
    assert_eq!(effects.last(), Some(&Effect::Finished(Ok(()))));
    assert_eq!(rig.checkpoint(0).position.next_offset, 10);
    assert!(rig.checkpoint(0).owner.released);
}

#[test]
fn only_the_answer_to_the_last_question_about_a_log_counts() {
    let mut rig = Rig::working(Limits::default());
    rig.step(Event::Assigned(vec![tp(0)]));
    rig.step(Event::Lost(vec![tp(0)]));
    rig.step(Event::Assigned(vec![tp(0)]));
    rig.tick_after(20);
    assert_eq!(fed(&rig.step(positions(0, 0, 0))), None, "the answer to the first question");
    assert_eq!(fed(&rig.step(positions(0, 0, 50))).map(|(from, _)| from), Some(0));
}

#[test]
fn records_that_the_log_lost_after_the_first_look_are_told() {
    let mut rig = Rig::working(Limits::default());
    let feed = rig.feed(0);
    rig.step(Event::OutOfRange { partition: tp(0), feed });
    rig.tick_after(1_000);
    let effects = rig.step(positions(0, 5, 100));
    let told =
        Notice::PositionLost { partition: tp(0), wanted: 0, log: (5, 100), recreated: false, resumed_at: Some(5) };
    assert!(effects.contains(&Effect::Notice(told)), "{effects:?}");
}

#[test]
fn every_partition_may_fetch_however_small_the_pipeline() {
    let limits = Limits { pipeline_batches_max: 1, ..Limits::default() };
    let mut rig = Rig::working(limits);
    rig.step(Event::Assigned(vec![tp(0), tp(1)]));
    for partition in [0, 1] {
        let effects = rig.step(positions(partition, 0, 100));
        let allowed =
            effects.iter().any(|e| matches!(e, Effect::Fetch(p, _, count) if *p == tp(partition) && *count > 0));
        assert!(allowed, "{effects:?}");
    }
}

#[test]
fn a_process_that_stood_still_writes_nothing_before_its_session_is_proved() {
    let mut rig = Rig::working(Limits::default());
    let feed = rig.feed(0);
    rig.step(fetched(0, feed, 1, 0, 10));
    rig.now_ms += SESSION_MS;
    let effects = rig.bare(Event::Transformed { batch: BatchId(1), writes: 1, stop: None });
    assert_eq!(effects, [Effect::Notice(Notice::Held)]);
    let effects = rig.step(Event::Tick);
    assert!(effects.contains(&Effect::Sink(BatchId(1))), "proved, it goes on: {effects:?}");
}

#[test]
fn a_revision_is_the_plugin_that_was_submitted_for_it() {
    let mut rig = Rig::working(Limits::default());
    let asked = rig.bare(Event::Swap(candidate(2)));
    let [Effect::Store(request, content)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(rig.bare(Event::Swap(candidate(3))), [], "one is on its way");
    let answer = rig.apply(content);
    let effects = rig.step(Event::StoreAnswer { request: *request, answer, sent: Instant(rig.now_ms) });
    let lives: Vec<_> = effects
        .iter()
        .filter_map(|e| if let Effect::Live { token, revision } = e { Some((*token, revision.0)) } else { None })
        .collect();
    assert_eq!(lives, [(2, 2), (3, 3)]);
}

#[test]
fn only_the_partitions_of_the_owner_that_is_gone_are_taken_at_once() {
    let mut rig = Rig::working(Limits::default());
    for (partition, session) in [(0, 8), (1, 9)] {
        let member = MemberId(format!("m{session}").into());
        let record = MemberRecord {
            nonce: Nonce(5),
            session,
            host: "h".into(),
            pid: 2,
            boot: "b".into(),
            run: Run(1),
            revision: Revision(1),
            extra: Extra::default(),
        };
        let mark = Mark { run: Run(1), generation: Generation(1), seq: 1 };
        let checkpoint = Checkpoint {
            owner: Owner {
                generation: Generation(1),
                nonce: Nonce(5),
                member: member.clone(),
                session,
                released: false,
            },
            position: Position { next_offset: 3, mark, why: Why::Commit, at_ms: 0 },
            topic: TopicIdentity::default(),
            plugin: PluginPosition { revision: Revision(1), since: 0 },
            extra: Extra::default(),
        };
        rig.nodes.insert(Key::Member(member), (Node::Member(record), 0));
        rig.nodes.insert(Key::Partition(tp(partition)), (Node::Checkpoint(checkpoint), 0));
    }
    let effects = rig.step(Event::Assigned(vec![tp(0), tp(1)]));
    assert_eq!(effects.iter().filter(|e| matches!(e, Effect::Probe(..))).count(), 2, "{effects:?}");
    rig.step(Event::Probed { member: MemberId("m8".into()), session: 8, gone: true });
    rig.tick_after(20);
    assert_eq!(rig.checkpoint(0).owner.generation, Generation(2), "its owner is gone");
    assert_eq!(rig.checkpoint(1).owner.generation, Generation(1), "its owner is waited for");
    let audits = rig.nodes.keys().filter(|key| matches!(key, Key::Audit(..))).count();
    assert_eq!(audits, 0, "nothing was forced");
}

/// Two partitions are asked back; before the drain is over they are lost, which is answered, and one is given to us again. The
/// time of the first request must not give it back under us.
#[test]
fn a_revocation_is_not_answered_again_after_a_loss() {
    let mut rig = Rig::working(Limits::default());
    let feeds = [rig.feed(0), rig.feed(1)];
    rig.step(fetched(0, feeds[0], 1, 0, 10));
    rig.step(fetched(1, feeds[1], 2, 0, 10));
    let answers = |effects: Vec<Effect>| effects.into_iter().filter(|e| matches!(e, Effect::AnswerRevoke(_))).count();
    assert_eq!(answers(rig.step(Event::Revoked(vec![tp(0), tp(1)]))), 0, "batches are in flight");
    assert_eq!(answers(rig.step(Event::Lost(vec![tp(0), tp(1)]))), 1);
    rig.step(Event::Assigned(vec![tp(0)]));
    let late: usize = (0..200).map(|_| answers(rig.tick_after(100))).sum();
    assert_eq!(late, 0);
}
