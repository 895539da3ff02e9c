//! What a crash, a bad disk and a second process do to a file store.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use kiteline_engine::{
    ids::{MemberId, Nonce, Run},
    store::{Extra, Found, HeadState, Key, MemberCounter, MemberRecord, Node, RunHead},
};

use super::*;

/// A folder of its own for each test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kiteline-file-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn log(&self) -> PathBuf {
        self.0.join("checkpoints.log")
    }

    fn open(&self) -> Result<Server, Error> {
        self.open_with(false, Arc::new(|_| {}))
    }

    fn open_with(&self, read_only: bool, events: Events) -> Result<Server, Error> {
        Server::open(&self.0, Layout::new("app", "pipeline").unwrap(), read_only, events)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn head(run: u64) -> Node {
    Node::RunHead(RunHead { run: Run(run), state: HeadState::Running, nonce: Nonce(run), extra: Extra::default() })
}

fn descriptor() -> Op {
    let extra = Extra::default();
    let (group, delivery) = ("g".into(), "at-least-once".into());
    let node = kiteline_engine::store::Descriptor { incarnation: Nonce(1), group, delivery, created_ms: 1, extra };
    Op::Create(Key::Descriptor, Node::Descriptor(node))
}

fn multi(server: &mut Server, ops: Vec<Op>) -> StoreAnswer {
    server.perform(&StoreRequest::Multi(ops))
}

/// Run and version of the head.
fn head_of(server: &mut Server) -> Option<(u64, i32)> {
    match server.perform(&StoreRequest::Read(vec![Key::RunHead])) {
        StoreAnswer::Nodes(found) => match found.as_slice() {
            [Found::Absent] => None,
            [Found::Node(Node::RunHead(head), version)] => Some((head.run.0, *version)),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A log with a descriptor, a head, and `sets` of it.
fn filled(folder: &Folder, sets: i32) {
    let mut server = folder.open().unwrap();
    let made = multi(&mut server, vec![descriptor(), Op::Create(Key::RunHead, head(0))]);
    assert_eq!(made, StoreAnswer::Done(vec![0, 0]));
    for version in 0..sets {
        let run = u64::try_from(version + 1).unwrap();
        let set = multi(&mut server, vec![Op::Set(Key::RunHead, head(run), version)]);
        assert_eq!(set, StoreAnswer::Done(vec![version + 1]));
    }
}

#[test]
fn a_torn_tail_is_cut_wherever_it_was_torn() {
    let folder = Folder::new();
    filled(&folder, 1);
    let one = std::fs::read(folder.log()).unwrap();
    let mut server = folder.open().unwrap();
    let opened = std::fs::read(folder.log()).unwrap().len();
    assert_eq!(multi(&mut server, vec![Op::Set(Key::RunHead, head(2), 1)]), StoreAnswer::Done(vec![2]));
    drop(server);
    let two = std::fs::read(folder.log()).unwrap();
    assert!(two.starts_with(&one));
    for length in opened..=two.len() {
        let mut tails = vec![two[..length].to_vec()];
        // What some file systems leave behind a torn write.
        tails.push([&two[..length], &[0; 700]].concat());
        for tail in tails {
            std::fs::write(folder.log(), &tail).unwrap();
            let mut server = folder.open().unwrap();
            let wanted = if length == two.len() { (2, 2) } else { (1, 1) };
            assert_eq!(head_of(&mut server), Some(wanted), "{length} of {}", two.len());
            // And it can be appended to again.
            let version = wanted.1;
            assert_eq!(
                multi(&mut server, vec![Op::Set(Key::RunHead, head(9), version)]),
                StoreAnswer::Done(vec![version + 1])
            );
            drop(server);
            assert_eq!(head_of(&mut folder.open().unwrap()), Some((9, version + 1)));
        }
    }
}

#[test]
fn damage_before_the_tail_is_refused_by_name() {
    let folder = Folder::new();
    filled(&folder, 3);
    let whole = std::fs::read(folder.log()).unwrap();
    let last = whole.windows(4).rposition(|window| window == b"KLR1").unwrap();
    let mut refused = 0;
    for at in 0..last {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        std::fs::write(folder.log(), &bad).unwrap();
        match folder.open() {
            Err(Error::Damaged { at: found, .. }) => {
                assert!(found <= at as u64, "{found} {at}");
                refused += 1;
            }
            Err(other) => panic!("byte {at}: {other}"),
            Ok(_) => panic!("byte {at} was believed"),
        }
        // Refusing leaves the evidence.
        assert_eq!(std::fs::read(folder.log()).unwrap(), bad);
    }
    assert_eq!(refused, last);
}

#[test]
fn a_record_of_a_later_version_is_refused() {
    let folder = Folder::new();
    let payload = br#"{"open":{"format":2,"session":1}}"#;
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let sum = crc32c::crc32c(&[&length[..], payload].concat()).to_le_bytes();
    std::fs::write(folder.log(), [b"KLR1", &length[..], &sum, payload].concat()).unwrap();
    let error = folder.open().err().unwrap().to_string();
    assert!(error.ends_with("is damaged at byte 0: format version 2, and this kiteline reads only 1"), "{error}");
}

#[test]
fn a_second_process_is_refused_and_a_reader_is_not() {
    let folder = Folder::new();
    let mut server = folder.open().unwrap();
    let error = folder.open().err().unwrap();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert_eq!(
        multi(&mut server, vec![descriptor(), Op::Create(Key::RunHead, head(1))]),
        StoreAnswer::Done(vec![0, 0])
    );
    let mut reader = folder.open_with(true, Arc::new(|_| {})).unwrap();
    assert_eq!(head_of(&mut reader), Some((1, 0)));
    assert_eq!(multi(&mut server, vec![Op::Set(Key::RunHead, head(2), 0)]), StoreAnswer::Done(vec![1]));
    assert_eq!(head_of(&mut reader), Some((2, 1)));
    let refused = multi(&mut reader, vec![Op::Set(Key::RunHead, head(3), 1)]);
    assert_eq!(refused, StoreAnswer::Failed(READ_ONLY.into()));
    drop(server);
    folder.open().unwrap();
}

#[test]
fn a_disk_that_fails_gives_unknown_and_the_truth_afterwards() {
    // Step that fails, whether what was asked for stands afterwards.
    for (step, stands) in [("write", false), ("sync", true)] {
        let folder = Folder::new();
        filled(&folder, 1);
        let said: Arc<Mutex<Vec<StoreEvent>>> = Arc::default();
        let events = Arc::clone(&said);
        let mut server = folder.open_with(false, Arc::new(move |event| events.lock().unwrap().push(event))).unwrap();
        *server.faults.next.lock().unwrap() = Some(step);
        let unknown = multi(&mut server, vec![Op::Set(Key::RunHead, head(2), 1)]);
        assert_eq!(unknown, StoreAnswer::Unknown, "{step}");
        let wanted = if stands { (2, 2) } else { (1, 1) };
        assert_eq!(head_of(&mut server), Some(wanted), "{step}");
        let said = said.lock().unwrap();
        assert!(
            matches!(said.as_slice(), [StoreEvent::Waiting(text)] if text.contains("ordered by the test")),
            "{said:?}"
        );
        // It goes on, and what was answered is there for the next process.
        let version = wanted.1;
        let set = multi(&mut server, vec![Op::Set(Key::RunHead, head(3), version)]);
        assert_eq!(set, StoreAnswer::Done(vec![version + 1]), "{step}");
        drop(server);
        assert_eq!(head_of(&mut folder.open().unwrap()), Some((3, version + 1)), "{step}");
    }
}

#[test]
fn after_a_failed_sync_nothing_is_answered_before_the_log_is_written_anew() {
    let folder = Folder::new();
    filled(&folder, 1);
    let mut server = folder.open().unwrap();
    *server.faults.next.lock().unwrap() = Some("sync");
    // The log cannot be written anew as long as a folder stands in the way.
    let beside = folder.log().with_extension("log.new");
    std::fs::create_dir(&beside).unwrap();
    assert_eq!(multi(&mut server, vec![Op::Set(Key::RunHead, head(2), 1)]), StoreAnswer::Unknown);
    for _ in 0..3 {
        assert_eq!(server.perform(&StoreRequest::Read(vec![Key::RunHead])), StoreAnswer::Unknown);
    }
    std::fs::remove_dir(&beside).unwrap();
    assert_eq!(head_of(&mut server), Some((2, 2)));
    assert_eq!(multi(&mut server, vec![Op::Set(Key::RunHead, head(3), 2)]), StoreAnswer::Done(vec![3]));
}

#[test]
fn a_long_log_is_compacted_and_says_the_same() {
    let folder = Folder::new();
    let mut server = folder.open().unwrap();
    let member = MemberRecord {
        nonce: Nonce(1),
        session: 1,
        host: "h".into(),
        pid: 1,
        boot: "b".into(),
        run: Run(1),
        revision: kiteline_engine::ids::Revision(1),
        extra: Extra::default(),
    };
    let id = MemberId("m".into());
    let counter = Node::Members(MemberCounter { changes: 1, extra: Extra::default() });
    let ops = vec![
        descriptor(),
        Op::Create(Key::RunHead, head(0)),
        Op::Create(Key::Members, counter),
        Op::Create(Key::Member(id.clone()), Node::Member(member.clone())),
    ];
    assert_eq!(multi(&mut server, ops), StoreAnswer::Done(vec![0, 0, 0, 0]));
    server.compact_at_bytes = 20_000;
    let mut longest = 0;
    for version in 0..300 {
        if version == 150 {
            *server.faults.next.lock().unwrap() = Some("compact");
        }
        let run = u64::try_from(version + 1).unwrap();
        assert_eq!(
            multi(&mut server, vec![Op::Set(Key::RunHead, head(run), version)]),
            StoreAnswer::Done(vec![version + 1])
        );
        server.compact_if_long();
        server.compact_at_bytes = server.compact_at_bytes.min(20_000);
        longest = longest.max(std::fs::metadata(folder.log()).unwrap().len());
    }
    assert!(longest < 21_000, "{longest}");
    // The own member lives through a compaction, and ends with the session.
    let members = server.perform(&StoreRequest::Members);
    assert_eq!(members, StoreAnswer::Members(vec![(id, member, 0)]));
    drop(server);
    let mut server = folder.open().unwrap();
    assert_eq!(head_of(&mut server), Some((300, 300)));
    assert_eq!(server.perform(&StoreRequest::Members), StoreAnswer::Members(vec![]));
}

#[test]
fn each_opening_is_a_session_of_its_own() {
    let folder = Folder::new();
    for session in 1..=3 {
        assert_eq!(folder.open().unwrap().session, session);
    }
}
