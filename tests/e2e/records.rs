//! What becomes of single records: bytes kept, bad ones set aside, sizes, codecs, transactions.

use std::time::Duration;

use kiteline_tests::{
    app::{App, Settings, line, names},
    kafka::{Rec, create_topic, header, read_all, send, send_transactions, send_with},
    orders::{datum, datum_named, numbers, order, record},
};

const LIMIT: Duration = Duration::from_secs(60);

/// The provenance that dead letters carry behind their own headers.
fn own_headers(letter: &Rec) -> Vec<(String, Option<Vec<u8>>)> {
    letter.headers.iter().filter(|(name, _)| !name.starts_with("kiteline.")).cloned().collect()
}

/// Case 13: headers that repeat, are null, empty or no text, and odd timestamps, to the sink and to the dead letters.
#[test]
fn case_13_headers_keys_and_timestamps_survive() {
    let topics = names();
    for topic in [&topics.from, &topics.to, &topics.dead] {
        // by their timestamps the records are long due for deletion
        create_topic(topic, 1, &[("retention.ms", "-1")]);
    }
    let mut settings = Settings::new("faulty-trap", &topics.from, &topics.to, &topics.dead);
    settings.config = r#"on = "TRAP""#.into();
    let headers: Vec<(String, Option<Vec<u8>>)> = vec![
        ("k".into(), None),
        ("k".into(), Some(vec![])),
        ("k".into(), Some(vec![0xff, 0xfe])),
        ("z".into(), Some(vec![1])),
    ];
    let timestamps = [-1i64, 1, 1_700_000_000_000];
    let mut sent = Vec::new();
    for (n, at) in timestamps.into_iter().enumerate() {
        for id in ["fine", "TRAP"] {
            let mut r = record(n as u64, 0, datum_named(id, 1, 50, 1.0));
            r.headers = headers.clone();
            r.timestamp = Some(at);
            sent.push(r);
        }
    }
    send(&topics.from, sent.clone());
    App::write(&settings).run_until_end(LIMIT);
    for (topic, own) in [(&topics.to, 0), (&topics.dead, 1)] {
        let came = read_all(topic);
        let expected: Vec<&Rec> = sent.iter().skip(own).step_by(2).collect();
        assert_eq!(came.len(), expected.len(), "{topic}");
        for (came, sent) in came.iter().zip(expected) {
            assert_eq!((&came.key, &came.value), (&sent.key, &sent.value), "{topic}");
            assert_eq!(own_headers(came), headers, "{topic}");
            // none is what the client makes of -1
            assert_eq!(came.timestamp, sent.timestamp.filter(|at| *at >= 0), "{topic}");
        }
    }
}

/// Case 15: keys are bytes, null is not empty, and a key's partition stays the same across a restart and another plugin.
#[test]
fn case_15_keys_are_bytes_and_keep_their_partition() {
    let topics = names();
    create_topic(&topics.from, 1, &[]);
    create_topic(&topics.to, 8, &[]);
    create_topic(&topics.dead, 1, &[]);
    let mut settings = Settings::new("identity", &topics.from, &topics.to, &topics.dead);
    let keys: [Option<&[u8]>; 5] = [None, Some(b""), Some(&[0, 0, 0, 0, 7, 2, 0x61]), Some(&[0xff]), Some(b"key")];
    let records = || keys.iter().map(|key| Rec { key: key.map(<[u8]>::to_vec), ..order(1, 0) });
    let app = App::write(&settings);
    for plugin in ["identity", "stamp"] {
        settings.plugin = plugin.into();
        app.put_plugin(plugin);
        send(&topics.from, records());
        app.run_until_end(LIMIT);
    }
    let came = read_all(&topics.to);
    for key in keys {
        let key = key.map(<[u8]>::to_vec);
        let with: Vec<i32> = came.iter().filter(|r| r.key == key).map(|r| r.partition).collect();
        assert_eq!(with.len(), 2, "{key:?} came twice: {came:?}");
        assert!(key.is_none() || with[0] == with[1], "{key:?} went to {with:?}");
    }
}

/// Case 9: transaction markers and aborted records leave holes; the end is reached, the lag is 0, and nothing comes again.
#[test]
fn case_09_holes_in_the_log_do_not_hide_its_end() {
    let (topics, settings) = line("identity", 1);
    let (first, aborted, last) = ([order(0, 0), order(1, 0)], [order(2, 0), order(3, 0)], [order(4, 0)]);
    send_transactions(&topics.from, &[(&first, true), (&aborted, false), (&last, true)]);
    let app = App::write(&settings);
    for _ in 0..2 {
        app.run_until_end(LIMIT);
        assert_eq!(numbers(&read_all(&topics.to)), [0, 1, 4]);
        assert_eq!(app.checkpoint(&topics.from, 0), Some(8), "the checkpoint lies behind the last marker");
    }
    assert!(read_all(&topics.dead).is_empty());
}

/// Case 10: every codec, and a record that is larger than the fetch limits, with a small one behind it.
#[test]
fn case_10_codecs_and_records_above_the_fetch_limits() {
    let topics = names();
    let large = [("max.message.bytes", "4194304")];
    create_topic(&topics.from, 1, &large);
    create_topic(&topics.to, 1, &large);
    create_topic(&topics.dead, 1, &large);
    let mut settings = Settings::new("identity", &topics.from, &topics.to, &topics.dead);
    settings.kafka_properties = "\"fetch.message.max.bytes\" = \"1048576\"\n".into();
    settings.transform = "limits = { record_bytes_max = 8388608 }".into();
    for (n, codec) in (0..).zip(["none", "gzip", "snappy", "lz4", "zstd"]) {
        send_with(&topics.from, [order(n, 0)], &[("compression.type", codec)]);
    }
    let three_mib = record(5, 0, datum_named(&"x".repeat(3 << 20), 5, 50, 1.0));
    send(&topics.from, [three_mib.clone(), order(6, 0)]);
    App::write(&settings).run_until_end(LIMIT);
    let came = read_all(&topics.to);
    assert_eq!(numbers(&came), [0, 1, 2, 3, 4, 5, 6]);
    assert!(came[5].value == three_mib.value, "the large one came whole");
}

/// Case 21: one output that the sink's topic does not take, among nine that it does.
#[test]
fn case_21_one_record_too_large_harms_no_neighbour() {
    let topics = names();
    create_topic(&topics.from, 1, &[]);
    create_topic(&topics.to, 1, &[("max.message.bytes", "2000")]);
    create_topic(&topics.dead, 1, &[]);
    let settings = Settings::new("identity", &topics.from, &topics.to, &topics.dead);
    let large = datum_named(&"x".repeat(5_000), 4, 50, 1.0);
    send(&topics.from, (0..10).map(|n| if n == 4 { record(4, 0, large.clone()) } else { order(n, 0) }));
    let app = App::write(&settings);
    app.run_until_end(LIMIT);
    assert_eq!(numbers(&read_all(&topics.to)), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    let letters = read_all(&topics.dead);
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].value.as_ref(), Some(&large));
    assert_eq!(header(&letters[0], "kiteline.stage"), "sink");
    assert!(header(&letters[0], "kiteline.message").contains("too large"), "{:?}", letters[0].headers);
    assert_eq!(app.checkpoint(&topics.from, 0), Some(10));
}

/// Case 19, without a fault of the broker: a poisoned last record comes once, whole, and never again.
#[test]
fn case_19_a_poisoned_last_record_is_set_aside_once() {
    let (topics, settings) = line("identity", 6);
    let poison = Rec { key: Some(vec![1]), ..record(0, 5, vec![0xff, 0xff]) };
    send(&topics.from, (0..6).map(|p| order(7, p)).chain([poison]));
    let app = App::write(&settings);
    for round in 0..3 {
        app.run_until_end(LIMIT);
        let letters = read_all(&topics.dead);
        assert_eq!(letters.len(), 1, "round {round}");
        assert_eq!((letters[0].value.as_deref(), letters[0].key.as_deref()), (Some(&[0xff, 0xff][..]), Some(&[1][..])));
        let said = ["topic", "partition", "offset", "stage"]
            .map(|name| header(&letters[0], &format!("kiteline.{name}")).to_owned());
        assert_eq!(said, [topics.from.as_str(), "5", "1", "decode"]);
        assert_eq!(app.checkpoint(&topics.from, 5), Some(2));
        assert_eq!(read_all(&topics.to).len(), 6);
    }
}

/// A record that panics, in the midst of others: it alone is set aside, with what the plugin said and which plugin it was.
#[test]
fn a_trap_costs_one_record() {
    let (topics, mut settings) = line("faulty-trap", 1);
    settings.config = r#"on = "order-000000005""#.into();
    send(&topics.from, (0..20).map(|n| order(n, 0)));
    let app = App::write(&settings);
    app.run_until_end(LIMIT);
    let expected: Vec<u64> = (0..20).filter(|n| *n != 5).collect();
    assert_eq!(numbers(&read_all(&topics.to)), expected);
    let letters = read_all(&topics.dead);
    assert_eq!(letters.len(), 1);
    let letter = |name: &str| header(&letters[0], &format!("kiteline.{name}")).to_owned();
    assert_eq!(letters[0].value, Some(datum(5, 50, 1.0)));
    assert_eq!([letter("stage"), letter("code"), letter("offset")], ["transform", "transform.trap", "5"]);
    let message = letter("message");
    assert!(message.contains("told to panic on order \"order-000000005\""), "{message}");
    assert!(letter("plugin").contains(&digest("faulty-trap")), "{}", letter("plugin"));
    assert_eq!(app.checkpoint(&topics.from, 0), Some(20));
}

/// A record that the plugin never returns from: stopped at its deadline, the same end.
#[test]
fn case_05_a_loop_ends_at_its_deadline() {
    let (topics, mut settings) = line("faulty-loop-forever", 1);
    settings.config = r#"on = "order-000000005""#.into();
    settings.transform = "limits = { call_deadline_ms = 300 }".into();
    send(&topics.from, (0..20).map(|n| order(n, 0)));
    let app = App::write(&settings);
    app.run_until_end(LIMIT);
    let expected: Vec<u64> = (0..20).filter(|n| *n != 5).collect();
    assert_eq!(numbers(&read_all(&topics.to)), expected);
    let letters = read_all(&topics.dead);
    assert_eq!(numbers(&letters), [5]);
    assert_eq!(header(&letters[0], "kiteline.code"), "transform.deadline");
    assert_eq!(app.checkpoint(&topics.from, 0), Some(20));
}

/// What becomes of a bad record is the owner's choice: `stop` halts before it and names it, `drop` goes on without it.
#[test]
fn a_bad_record_stops_or_is_dropped_where_that_is_wanted() {
    let (topics, mut settings) = line("identity", 1);
    send(&topics.from, [order(0, 0), record(1, 0, vec![0xff, 0xff]), order(2, 0)]);
    settings.dead_letter = String::new();
    settings.pipeline = "on_record_error = \"stop\"".into();
    let app = App::write(&settings);
    let (code, log) = app.run_and_wait(0, &["--until-end"], LIMIT);
    assert_eq!(code, Some(4), "{log}");
    assert!(log.contains("record at offset 1 was rejected") && log.contains("decode."), "{log}");
    assert!(app.checkpoint(&topics.from, 0).is_some_and(|at| at <= 1), "the checkpoint is not past it");
    settings.pipeline = "on_record_error = \"drop\"".into();
    app.configure(&settings);
    app.run_until_end(LIMIT);
    let mut came = numbers(&read_all(&topics.to));
    came.dedup();
    assert_eq!(came, [0, 2]);
    assert_eq!(app.checkpoint(&topics.from, 0), Some(3));
}

/// What `kiteline plugin inspect` says of a sample plugin.
fn digest(name: &str) -> String {
    let path = kiteline_tests::process::plugin(name);
    let answer = kiteline_tests::process::kiteline(&["plugin", "inspect", "--format", "json", &path.to_string_lossy()]);
    let json: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("an answer");
    json["digest"].as_str().expect("a digest").to_owned()
}
