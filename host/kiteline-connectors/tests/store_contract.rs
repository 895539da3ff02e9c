//! One script for every kind of store: steps and the answers that are due. The memory store and the file store run it always,
//! ZooKeeper when `KITELINE_ZK_CONNECT` names a real one (else the test says that it was skipped).

mod stores;

use kiteline_engine::{
    ids::{Generation, Mark, MemberId, Nonce, Revision, Run, TopicPartition},
    store::*,
};
use stores::{Kind, Stores, Who};

/// One step of a script.
#[derive(Debug)]
enum Step {
    /// Ask, and be answered exactly this.
    Ask(Who, StoreRequest, StoreAnswer),
    /// Ask for what can never be done, and be told why in words that contain this.
    Fail(Who, Vec<Op>, &'static str),
    /// Close the store in order and start it again.
    Reopen(Who),
    /// Close it.
    Close(Who),
}

use Step::{Ask, Close, Fail, Reopen};
use StoreAnswer::{Done, Nodes, Refused};
use StoreRequest::{Checkpoints, Members, Multi, Read};
use Who::{A, B};

#[test]
fn memory_keeps_the_contract() {
    run(&Kind::memory(), alone());
    run(&Kind::memory(), two());
}

#[test]
fn file_keeps_the_contract() {
    let kind = Kind::file();
    run(&kind, alone());
}

#[test]
fn zookeeper_keeps_the_contract() {
    for script in [alone, two] {
        let Some(kind) = Kind::zookeeper() else { return };
        run(&kind, script());
    }
}

fn run(kind: &Kind, script: Vec<Step>) {
    let mut stores = Stores::new(kind);
    for (index, step) in script.into_iter().enumerate() {
        match step {
            Ask(who, request, due) => {
                let shown = format!("{request:?}");
                assert_eq!(stores.ask(who, request), due, "step {index} of {kind:?}: {shown:.2000}");
            }
            Fail(who, ops, due) => match stores.ask(who, Multi(ops)) {
                StoreAnswer::Failed(text) => assert!(text.contains(due), "step {index} of {kind:?}: {text}"),
                other => panic!("step {index} of {kind:?}: {other:?}"),
            },
            Reopen(who) => {
                stores.close(who);
                stores.open(who);
            }
            Close(who) => stores.close(who),
        }
    }
}

/// What one member sees. The file store has no other.
fn alone() -> Vec<Step> {
    let mut script = before_there_is_anything();
    script.extend(versions());
    script.extend(members());
    script.extend(listings());
    script.extend(what_can_never_be_done());
    script
}

fn before_there_is_anything() -> Vec<Step> {
    let absent = || Found::Absent;
    vec![
        Ask(A, Read(vec![Key::Descriptor, Key::RunHead, p(0)]), Nodes(vec![absent(), absent(), absent()])),
        Ask(A, Read(vec![]), Nodes(vec![])),
        Ask(A, Members, StoreAnswer::Members(vec![])),
        Ask(A, Checkpoints, StoreAnswer::Checkpoints(vec![])),
        // Nothing is made outside a pipeline.
        Ask(A, Multi(vec![Op::Create(Key::RunHead, head(0))]), Refused(0)),
        Ask(A, Multi(vec![Op::Create(p(0), checkpoint(0))]), Refused(0)),
        Ask(A, Multi(vec![Op::Create(Key::Run(Run(1)), run_record())]), Refused(0)),
        Ask(A, Multi(vec![Op::Create(member_key("a"), member("a"))]), Refused(0)),
        Ask(A, Multi(vec![Op::Create(Key::RunHead, head(0)), Op::Create(Key::Descriptor, descriptor())]), Refused(0)),
        Ask(A, Multi(vec![Op::Check(Key::RunHead, 0)]), Refused(0)),
        Ask(A, Multi(vec![Op::Set(Key::RunHead, head(0), 0)]), Refused(0)),
        Ask(A, Multi(vec![Op::Delete(member_key("a"), 0)]), Refused(0)),
        Ask(A, Multi(vec![]), Done(vec![])),
        // A whole pipeline in one request, then not a second time.
        Ask(A, Multi(pipeline()), Done(vec![0; 6])),
        Ask(A, Multi(pipeline()), Refused(0)),
        Ask(
            A,
            Read(vec![p(0), Key::Descriptor, Key::Run(Run(1)), p(1)]),
            Nodes(vec![
                Found::Node(checkpoint(0), 0),
                Found::Node(descriptor(), 0),
                Found::Node(run_record(), 0),
                Found::Absent,
            ]),
        ),
    ]
}

fn versions() -> Vec<Step> {
    let set = |offset, version| Op::Set(p(0), checkpoint(offset), version);
    let stands = |offset, version| Ask(A, Read(vec![p(0)]), Nodes(vec![Found::Node(checkpoint(offset), version)]));
    vec![
        Ask(A, Multi(vec![set(1, 0)]), Done(vec![1])),
        Ask(A, Multi(vec![set(2, 0)]), Refused(0)),
        Ask(A, Multi(vec![set(2, 2)]), Refused(0)),
        stands(1, 1),
        Ask(A, Multi(vec![Op::Check(Key::RunHead, 0), set(3, 1)]), Done(vec![0, 2])),
        // All or nothing, and the first that does not hold is named.
        Ask(A, Multi(vec![Op::Check(Key::RunHead, 1), set(4, 2)]), Refused(0)),
        Ask(A, Multi(vec![Op::Check(Key::RunHead, 0), set(4, 1)]), Refused(1)),
        Ask(A, Multi(vec![set(4, 2), Op::Set(Key::RunHead, head(5), 3), Op::Check(p(9), 0)]), Refused(1)),
        Ask(A, Multi(vec![set(4, 2), Op::Create(p(1), checkpoint(0)), Op::Create(p(0), checkpoint(0))]), Refused(2)),
        Ask(A, Read(vec![p(1)]), Nodes(vec![Found::Absent])),
        stands(3, 2),
        // Later operations see what earlier ones did.
        Ask(A, Multi(vec![set(5, 2), set(6, 3), Op::Check(p(0), 4)]), Done(vec![3, 4, 4])),
        Ask(A, Multi(vec![Op::Create(p(1), checkpoint(0)), Op::Set(p(1), checkpoint(1), 0)]), Done(vec![0, 1])),
        stands(6, 4),
        // Unknown fields come back.
        Ask(A, Multi(vec![Op::Set(p(1), with_extra(), 1)]), Done(vec![2])),
        Ask(A, Read(vec![p(1)]), Nodes(vec![Found::Node(with_extra(), 2)])),
        Reopen(A),
        stands(6, 4),
        Ask(A, Read(vec![p(1)]), Nodes(vec![Found::Node(with_extra(), 2)])),
        Ask(A, Multi(vec![set(7, 4)]), Done(vec![5])),
    ]
}

fn members() -> Vec<Step> {
    let count = |version| Op::Set(Key::Members, counter(9), version);
    let here = |name: &str| StoreAnswer::Members(vec![(MemberId(name.into()), record(name), 0)]);
    let odd = "host/1:%ä .";
    vec![
        Ask(A, Multi(vec![count(0), Op::Create(member_key("a"), member("a"))]), Done(vec![1, 0])),
        Ask(A, Members, here("a")),
        Ask(A, Multi(vec![count(0), Op::Delete(member_key("a"), 0)]), Refused(0)),
        Ask(A, Multi(vec![count(1), Op::Delete(member_key("a"), 1)]), Refused(1)),
        Ask(A, Multi(vec![count(1), Op::Create(member_key("a"), member("a"))]), Refused(1)),
        Ask(A, Multi(vec![count(1), Op::Delete(member_key("a"), 0)]), Done(vec![2, -1])),
        Ask(A, Members, StoreAnswer::Members(vec![])),
        Ask(A, Multi(vec![count(2), Op::Create(member_key(odd), member(odd))]), Done(vec![3, 0])),
        Ask(A, Members, here(odd)),
        // Members end with the session, nothing else does.
        Reopen(A),
        Ask(A, Members, StoreAnswer::Members(vec![])),
        Ask(A, Read(vec![Key::Members]), Nodes(vec![Found::Node(counter(9), 3)])),
        Ask(A, Multi(vec![Op::Create(member_key(odd), member(odd))]), Done(vec![0])),
        Ask(A, Members, here(odd)),
    ]
}

fn listings() -> Vec<Step> {
    let at = |topic: &str, partition| TopicPartition::new(topic, partition);
    let others = [at("b.2", 10), at("b.2", 2), at("A_1", 0), at("z", 700)];
    let make = others.iter().map(|at| Op::Create(Key::Partition(at.clone()), checkpoint(8))).collect();
    let eight = |topic: &str, partition| (at(topic, partition), Found::Node(checkpoint(8), 0));
    let many: Vec<_> = (0..1_300).map(p).collect();
    let mut found = vec![Found::Absent; 1_300];
    found[0] = Found::Node(checkpoint(7), 5);
    found[1] = Found::Node(with_extra(), 2);
    vec![
        Ask(A, Multi(make), Done(vec![0; 4])),
        Ask(
            A,
            Checkpoints,
            StoreAnswer::Checkpoints(vec![
                eight("A_1", 0),
                eight("b.2", 2),
                eight("b.2", 10),
                (at("orders", 0), Found::Node(checkpoint(7), 5)),
                (at("orders", 1), Found::Node(with_extra(), 2)),
                eight("z", 700),
            ]),
        ),
        Ask(A, Read(many), Nodes(found)),
        Ask(
            A,
            Multi(vec![Op::Create(Key::Revision(Revision(4)), revision()), Op::Create(audit_key(), audit())]),
            Done(vec![0, 0]),
        ),
        Ask(
            A,
            Read(vec![Key::Revision(Revision(4)), audit_key()]),
            Nodes(vec![Found::Node(revision(), 0), Found::Node(audit(), 0)]),
        ),
    ]
}

/// Measured and refused before anything is sent (case 31).
fn what_can_never_be_done() -> Vec<Step> {
    let checks = |count| vec![Op::Check(Key::RunHead, 0); count];
    let big = |bytes: usize| {
        let Node::Run(mut run) = run_record() else { unreachable!("it is a run") };
        run.reason = "x".repeat(bytes);
        Node::Run(run)
    };
    vec![
        Ask(A, Multi(checks(200)), Done(vec![0; 200])),
        Fail(A, checks(201), "201 operations, at most 200"),
        Ask(A, Multi(vec![Op::Create(Key::Run(Run(2)), big(590_000))]), Done(vec![0])),
        Fail(A, vec![Op::Create(Key::Run(Run(3)), big(1_100_000))], "at most 600000"),
        Ask(
            A,
            Read(vec![Key::Run(Run(2)), Key::Run(Run(3))]),
            Nodes(vec![Found::Node(big(590_000), 0), Found::Absent]),
        ),
        Fail(A, vec![Op::Check(Key::RunHead, -1)], "would match any"),
        Fail(A, vec![Op::Set(p(0), checkpoint(0), -1)], "would match any"),
        Fail(A, vec![Op::Delete(p(0), 5)], "never removed"),
        Fail(A, vec![Op::Create(p(2), head(1))], "another kind"),
        Ask(A, Read(vec![p(0), p(2)]), Nodes(vec![Found::Node(checkpoint(7), 5), Found::Absent])),
    ]
}

/// What two members see of each other.
fn two() -> Vec<Step> {
    let both = ["a", "b"].map(|name| (MemberId(name.into()), record(name), 0)).to_vec();
    let only_b = StoreAnswer::Members(vec![(MemberId("b".into()), record("b"), 0)]);
    let set = |offset, version| Multi(vec![Op::Set(p(0), checkpoint(offset), version)]);
    vec![
        Ask(A, Multi(pipeline()), Done(vec![0; 6])),
        Ask(B, Multi(pipeline()), Refused(0)),
        Ask(A, Multi(vec![Op::Create(member_key("a"), member("a"))]), Done(vec![0])),
        Ask(B, Multi(vec![Op::Create(member_key("a"), member("a"))]), Refused(0)),
        Ask(B, Multi(vec![Op::Create(member_key("b"), member("b"))]), Done(vec![0])),
        Ask(A, Members, StoreAnswer::Members(both)),
        // The version is the fence: one of two wins, and the other one reads who.
        Ask(A, set(1, 0), Done(vec![1])),
        Ask(B, set(2, 0), Refused(0)),
        Ask(B, Read(vec![p(0)]), Nodes(vec![Found::Node(checkpoint(1), 1)])),
        Ask(B, set(2, 1), Done(vec![2])),
        Ask(A, set(3, 1), Refused(0)),
        Ask(
            A,
            Checkpoints,
            StoreAnswer::Checkpoints(vec![(TopicPartition::new("orders", 0), Found::Node(checkpoint(2), 2))]),
        ),
        // A folder that the other one made is no obstacle.
        Ask(B, Multi(vec![Op::Create(p(1), checkpoint(0))]), Done(vec![0])),
        Ask(A, Multi(vec![Op::Create(p(2), checkpoint(0))]), Done(vec![0])),
        // A member that goes takes its node along, and may be another's ghost to delete by version.
        Close(A),
        Ask(B, Members, only_b),
        Ask(B, Multi(vec![Op::Delete(member_key("a"), 0)]), Refused(0)),
    ]
}

/// Case 37 against each store that lets itself be written to from outside: what cannot be trusted is named, with its version.
#[test]
fn case_37_unreadable_nodes_are_named() {
    for kind in [Some(Kind::memory()), Kind::zookeeper()].into_iter().flatten() {
        let mut stores = Stores::new(&kind);
        assert_eq!(stores.ask(A, Multi(pipeline())), Done(vec![0; 6]));
        let cases: [(&[u8], &str); 7] = [
            (b"", "empty"),
            (b"null", "not a JSON object"),
            (b"12abc", "not JSON"),
            (b"-5", "not a JSON object"),
            (b"\xff", "not UTF-8"),
            (b"\xef\xbb\xbf7", "not JSON"),
            (b"{\"v\":2}", "format version 2, and this kiteline reads only 1"),
        ];
        for (index, (bytes, due)) in cases.into_iter().enumerate() {
            stores.write_raw(&p(0), bytes);
            let version = i32::try_from(index).unwrap() + 1;
            match stores.ask(A, Read(vec![p(0)])) {
                Nodes(found) => match found.as_slice() {
                    [Found::Unreadable(text, at)] => {
                        assert!(text.contains(due), "{text}");
                        assert_eq!(*at, version);
                    }
                    other => panic!("{kind:?} {bytes:?}: {other:?}"),
                },
                other => panic!("{kind:?} {bytes:?}: {other:?}"),
            }
        }
        // Others are not touched by it, and a person's decision can replace it by version.
        assert_eq!(stores.ask(A, Read(vec![Key::Descriptor])), Nodes(vec![Found::Node(descriptor(), 0)]));
        assert_eq!(stores.ask(A, Multi(vec![Op::Set(p(0), checkpoint(1), 7)])), Done(vec![8]));
    }
}

fn pipeline() -> Vec<Op> {
    vec![
        Op::Create(Key::Descriptor, descriptor()),
        Op::Create(Key::RunHead, head(1)),
        Op::Create(Key::Members, counter(0)),
        Op::Create(Key::Run(Run(1)), run_record()),
        Op::Create(Key::Desired, Node::Desired(Desired { live: Revision(1), at_ms: 3, extra: Extra::default() })),
        Op::Create(p(0), checkpoint(0)),
    ]
}

fn p(partition: i32) -> Key {
    Key::Partition(TopicPartition::new("orders", partition))
}

fn head(run: u64) -> Node {
    Node::RunHead(RunHead { run: Run(run), state: HeadState::Running, nonce: Nonce(7), extra: Extra::default() })
}

fn counter(changes: u64) -> Node {
    Node::Members(MemberCounter { changes, extra: Extra::default() })
}

fn descriptor() -> Node {
    let (group, delivery) = ("kiteline.shop.orders".into(), "at-least-once".into());
    let extra = Extra(r#"{"recover":"checkpoint"}"#.into());
    Node::Descriptor(Descriptor { incarnation: Nonce(u64::MAX), group, delivery, created_ms: 1, extra })
}

fn run_record() -> Node {
    Node::Run(RunRecord {
        state: RunState::Running,
        release: "2.0".into(),
        revision: Revision(1),
        started_ms: 10,
        ended_ms: 0,
        reason: String::new(),
        start: vec![(TopicPartition::new("orders", 2), 5), (TopicPartition::new("orders", 11), 6)],
        end: vec![],
        extra: Extra(r#"{"kind":"RUN"}"#.into()),
    })
}

fn revision() -> Node {
    Node::Revision(RevisionRecord {
        digest: format!("sha256:{}", "0".repeat(64)),
        config_digest: format!("sha256:{}", "1".repeat(64)),
        contract: "kiteline:transform@0.1.0".into(),
        created_ms: 2,
        extra: Extra::default(),
    })
}

fn audit_key() -> Key {
    Key::Audit(1_764_600_000_000, Nonce(3))
}

fn audit() -> Node {
    let (what, detail) = ("forced take-over".into(), "former owner 'a' did not answer".into());
    Node::Audit(AuditRecord { what, member: MemberId("b".into()), detail })
}

fn record(name: &str) -> MemberRecord {
    MemberRecord {
        nonce: Nonce(11),
        session: -1,
        host: name.into(),
        pid: 4_000_000,
        boot: "5e0c".into(),
        run: Run(1),
        revision: Revision(1),
        extra: Extra::default(),
    }
}

fn member_key(name: &str) -> Key {
    Key::Member(MemberId(name.into()))
}

fn member(name: &str) -> Node {
    Node::Member(record(name))
}

fn checkpoint(next_offset: i64) -> Node {
    Node::Checkpoint(Checkpoint {
        owner: Owner {
            generation: Generation(2),
            nonce: Nonce(9),
            member: MemberId("a".into()),
            session: i64::MIN,
            released: false,
        },
        position: Position {
            next_offset,
            mark: Mark { run: Run(1), generation: Generation(2), seq: 3 },
            why: Why::Commit,
            at_ms: 4,
        },
        topic: TopicIdentity { id: "AAAA".into(), leader_epoch: -1 },
        plugin: PluginPosition { revision: Revision(1), since: 0 },
        extra: Extra::default(),
    })
}

fn with_extra() -> Node {
    let Node::Checkpoint(mut node) = checkpoint(1) else { unreachable!("it is a checkpoint") };
    node.extra = Extra(r#"{"position":{"bytes":17},"canary":[1,2]}"#.into());
    Node::Checkpoint(node)
}
