//! What is written can be read again, what cannot be trusted is refused by name.

use kiteline_engine::{
    ids::{Generation, Mark, MemberId, Nonce, Revision, Run, TopicPartition},
    store::*,
};

use super::*;

fn key() -> Key {
    Key::Partition(TopicPartition::new("orders", 3))
}

fn checkpoint() -> Checkpoint {
    Checkpoint {
        owner: Owner {
            generation: Generation(7),
            nonce: Nonce(0xab),
            member: MemberId("host-a:1".into()),
            session: -2,
            released: false,
        },
        position: Position {
            next_offset: 42,
            mark: Mark { run: Run(2), generation: Generation(7), seq: 5 },
            why: Why::Commit,
            at_ms: 1_764_600_000_000,
        },
        topic: TopicIdentity { id: "Zm9vYmFyYmF6cXV4MTIzNA".into(), leader_epoch: 4 },
        plugin: PluginPosition { revision: Revision(3), since: 40 },
        extra: Extra::default(),
    }
}

#[test]
fn a_checkpoint_is_spelled_as_designed() {
    let text = encode(&Node::Checkpoint(checkpoint())).unwrap();
    let (body, sum) = text.split_once(r#","checksum":"#).unwrap();
    assert_eq!(
        body,
        concat!(
            r#"{"v":1,"owner":{"generation":7,"nonce":"00000000000000ab","member":"host-a:1","#,
            r#""session":"0xfffffffffffffffe","released":false},"#,
            r#""position":{"next_offset":42,"mark":{"run":2,"generation":7,"seq":5},"why":"commit","at":1764600000000},"#,
            r#""topic":{"id":"Zm9vYmFyYmF6cXV4MTIzNA","leader_epoch":4},"plugin":{"revision":3,"since":40},"#,
            r#""authority":"store""#,
        )
    );
    // CRC-32C of the same object with sorted keys, spelled here by hand.
    let canonical = concat!(
        r#"{"authority":"store","owner":{"generation":7,"member":"host-a:1","nonce":"00000000000000ab","released":false,"#,
        r#""session":"0xfffffffffffffffe"},"plugin":{"revision":3,"since":40},"position":{"at":1764600000000,"#,
        r#""mark":{"generation":7,"run":2,"seq":5},"next_offset":42,"why":"commit"},"#,
        r#""topic":{"id":"Zm9vYmFyYmF6cXV4MTIzNA","leader_epoch":4},"v":1}"#,
    );
    assert_eq!(sum, format!("\"{:08x}\"}}", crc32c::crc32c(canonical.as_bytes())));
}

#[test]
fn every_node_comes_back() {
    let table =
        vec![(TopicPartition::new("a", 2), 7), (TopicPartition::new("a", 10), 8), (TopicPartition::new("b", 0), 9)];
    let run = RunRecord {
        state: RunState::Failed,
        release: "1.2".into(),
        revision: Revision(1),
        started_ms: 5,
        ended_ms: 6,
        reason: "sink \"x\"".into(),
        start: table.clone(),
        end: table,
        extra: Extra(r#"{"kind":"RESET"}"#.into()),
    };
    let member = MemberRecord {
        nonce: Nonce(u64::MAX),
        session: i64::MIN,
        host: "h".into(),
        pid: 9,
        boot: "b".into(),
        run: Run(4),
        revision: Revision(2),
        extra: Extra(r#"{"slot":1}"#.into()),
    };
    let head = RunHead { run: Run(9), state: HeadState::Closed, nonce: Nonce(1), extra: Extra::default() };
    let descriptor = Descriptor {
        incarnation: Nonce(5),
        group: "g".into(),
        delivery: "at-least-once".into(),
        created_ms: 1,
        extra: Extra(r#"{"recover":"checkpoint"}"#.into()),
    };
    let revision = RevisionRecord {
        digest: "sha256:00".into(),
        config_digest: "sha256:11".into(),
        contract: "kiteline:transform@0.1.0".into(),
        created_ms: 3,
        extra: Extra::default(),
    };
    let audit = AuditRecord { what: "forced take-over".into(), member: MemberId("m".into()), detail: "d".into() };
    let cases = [
        (Key::Descriptor, Node::Descriptor(descriptor)),
        (Key::RunHead, Node::RunHead(head)),
        (Key::Run(Run(9)), Node::Run(run)),
        (Key::Members, Node::Members(MemberCounter { changes: 3, extra: Extra::default() })),
        (Key::Member(MemberId("m".into())), Node::Member(member)),
        (Key::Desired, Node::Desired(Desired { live: Revision(1), at_ms: 2, extra: Extra::default() })),
        (Key::Revision(Revision(1)), Node::Revision(revision)),
        (key(), Node::Checkpoint(checkpoint())),
        (Key::Audit(1, Nonce(2)), Node::Audit(audit)),
    ];
    for (key, node) in cases {
        assert!(belongs(&key, &node));
        let text = encode(&node).unwrap();
        assert!(text.starts_with(r#"{"v":1,"#), "{text}");
        assert_eq!(decode(&key, text.as_bytes()), Ok(node), "{text}");
    }
}

#[test]
fn a_run_says_its_kind() {
    let Node::Run(mut run) = decode(
        &Key::Run(Run(1)),
        br#"{"v":1,"state":"RUNNING","release":"","revision":1,"started":1,"ended":0,"reason":"","start":{},"end":{}}"#,
    )
    .unwrap() else {
        panic!("not a run");
    };
    assert!(encode(&Node::Run(run.clone())).unwrap().ends_with(r#""kind":"RUN"}"#));
    run.extra = Extra(r#"{"kind":"IMPORT"}"#.into());
    assert!(encode(&Node::Run(run)).unwrap().ends_with(r#""kind":"IMPORT"}"#));
}

#[test]
fn unknown_fields_are_kept_at_every_depth() {
    let mut node = checkpoint();
    node.extra = Extra(r#"{"owner":{"slot":3},"canary":{"of":[1,{"b":2,"a":1}]}}"#.into());
    let text = encode(&Node::Checkpoint(node.clone())).unwrap();
    assert!(text.contains(r#""released":false,"slot":3}"#), "{text}");
    assert_eq!(decode(&key(), text.as_bytes()), Ok(Node::Checkpoint(node.clone())));
    // A later write of the known part leaves them where they are.
    node.position.next_offset = 50;
    let text = encode(&Node::Checkpoint(node.clone())).unwrap();
    assert!(text.contains(r#""canary":{"of":[1,{"b":2,"a":1}]}"#), "{text}");
    assert_eq!(decode(&key(), text.as_bytes()), Ok(Node::Checkpoint(node)));
}

/// With numbers that no pipeline reaches and a member id of 64 bytes.
#[test]
fn a_checkpoint_stays_below_512_bytes() {
    let mut node = checkpoint();
    node.owner.generation = Generation(u32::MAX.into());
    node.owner.nonce = Nonce(u64::MAX);
    node.owner.member = MemberId("x".repeat(64).into());
    node.position.next_offset = i64::MAX;
    node.position.mark =
        Mark { run: Run(9_999_999_999), generation: Generation(u32::MAX.into()), seq: u32::MAX.into() };
    node.topic.leader_epoch = i32::MAX;
    node.plugin = PluginPosition { revision: Revision(u32::MAX), since: i64::MAX };
    let text = encode(&Node::Checkpoint(node)).unwrap();
    assert!(text.len() < 512, "{} bytes", text.len());
}

/// Case 37: whatever stands there, it is refused by name and never read as a position.
#[test]
fn case_37_what_cannot_be_trusted_is_named() {
    let good = encode(&Node::Checkpoint(checkpoint())).unwrap();
    let resum = |from: &str, to: &str| {
        assert!(good.contains(from));
        let text = good.replace(from, to);
        let Ok(Value::Object(mut node)) = serde_json::from_str(&text) else { panic!("{text}") };
        node.shift_remove("checksum");
        let sum = checksum(&node);
        node.insert("checksum".into(), sum.into());
        Value::Object(node).to_string().into_bytes()
    };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "empty"),
        (b"null".to_vec(), "not a JSON object"),
        (b"12abc".to_vec(), "not JSON"),
        (b"-5".to_vec(), "not a JSON object"),
        (b"9223372036854775808".to_vec(), "not a JSON object"),
        (b"\xff".to_vec(), "not UTF-8"),
        (b"\xef\xbb\xbf7".to_vec(), "not JSON"),
        (b"{}".to_vec(), "no format version"),
        (good.replace("{\"v\":1", "{\"v\":2").into_bytes(), "format version 2, and this kiteline reads only 1"),
        (good.replace("\"next_offset\":42", "\"next_offset\":43").into_bytes(), "checksum is"),
        (good.split(",\"checksum\"").next().unwrap().to_string().into_bytes(), "not JSON"),
        ((good.split(",\"checksum\"").next().unwrap().to_string() + "}").into_bytes(), "no checksum"),
        (resum("\"next_offset\":42", "\"next_offset\":-5"), "next_offset is -5, below 0"),
        (resum("\"next_offset\":42", "\"next_offset\":9223372036854775808"), "invalid value"),
        (resum("\"next_offset\":42", "\"next_offset\":\"42\""), "invalid type"),
        (resum("\"next_offset\":42", "\"next_offset\":4.2"), "invalid type"),
        (resum("\"next_offset\":42,", ""), "missing field `next_offset`"),
        (resum("\"store\"", "\"kafka\""), "authority is \"kafka\""),
        (resum("\"00000000000000ab\"", "\"AB\""), "16 lower-case hex digits"),
    ];
    for (bytes, named) in cases {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let error = decode(&key(), &bytes).expect_err(&shown);
        assert!(error.contains(named), "{shown}: {error}");
    }
}

#[test]
fn case_37_no_flipped_bit_goes_unseen() {
    let good = encode(&Node::Checkpoint(checkpoint())).unwrap().into_bytes();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(decode(&key(), &bad).is_err(), "{}", String::from_utf8_lossy(&bad));
        }
    }
}
