//! What a batch becomes: the worked example of the contract byte for byte, order, tombstones, undecodable records, parts by
//! limits, ports, extras, topics, header edits.

use std::sync::Arc;

use kiteline_avro::Schema;
use kiteline_engine::record::{OWN, OutputRecord, RecordBatch, Stage};
use kiteline_sandbox::{CallLimits, Datum, Error};

use crate::guest::{
    Given, Guest, Line, Out, batch, blob, blobs, each_row, echo, emit_data, hex, long, numbers, slot, unhex, varint,
};

const ORDER: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"double"},{"name":"address","type":["null",
 {"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}]},{"name":"tags","type":{"type":"array","items":["null","string"]}}]}"#;
const SLIM: &str = r#"{"type":"record","name":"Slim","fields":[{"name":"id","type":"string"},{"name":"total","type":"double"},{"name":"note","type":["null","string"]}]}"#;

/// The output buffer of the worked example in wit/README.md.
const EXAMPLE_OUTPUT: &str = "
 4b4c4f31 04000000 01000000 c8000000 d9000000 00000000 00000000 00000000
 00000000 00000000 00000000 00000000  00000000 01000100 60000000 28000000
 00000000 02010000 88000000 20000000  01000000 04000000 b0000000 10000000
 01000000 00000000 00000000 00000640  02000000 00000000 0100000000000000 0000000000000000
 0000000000000000 da000000 02000000   00000000 00001440 a8000080 02000000 6869 000000000000
 07000000 00000000 c0000080 07000000 6e6f2074616773 00   d0000080 09000000 6f72646572732d6575";

fn example() -> (RecordBatch, Guest) {
    let values = [unhex("044131000000000000044002084265726e040202780000"), unhex("044232000000000000f0bf0000")];
    let batch = batch(
        "orders",
        3,
        &[
            Given {
                key: Some(b"k1"),
                value: Some(&values[0]),
                headers: &[("h", Some(b"v"))],
                offset: 7000,
                timestamp_ms: 1_700_000_000_000,
            },
            Given { value: Some(&values[1]), offset: 7002, timestamp_ms: -1, ..Given::default() },
        ],
    );
    let data = unhex(EXAMPLE_OUTPUT);
    let guest = Guest {
        reader: Some(ORDER.into()),
        wants: 3,
        ports: vec![("same", 0, String::new()), ("slim", 2, SLIM.into())],
        process: emit_data(data.len()),
        data,
        ..Guest::default()
    };
    (batch, guest)
}

#[test]
fn the_worked_example_holds() {
    let (batch, guest) = example();
    let mut line = guest
        .deploy_with(CallLimits { call_deadline_ms: 20_000, ..CallLimits::default() }, |setup| {
            setup.ports[0].topics_allowed = vec![Arc::from("orders-us"), Arc::from("orders-eu")];
            setup.ports[1].prefix = vec![0, 0, 0, 0, 9];
        })
        .unwrap();
    let report = line.run_plain(&batch);
    assert_eq!(
        line.values(&batch),
        [
            "0:044131000000000000044002084265726e040202780000",
            "0:044131000000000000064000040202780000",
            "0:0000000009044131000000000000144002046869"
        ]
    );
    assert_eq!(line.rejections(), ["1 transform.reject no tags (code 7)"]);
    let shown: Vec<_> =
        line.out.records.iter().map(|output| (output.port, output.topic, output.headers_kept)).collect();
    assert_eq!(shown, [(0, 0, true), (0, 1, true), (1, 0, true)]);
    assert_eq!(line.out.topics, [Arc::from("orders-eu")]);
    // kept bytes are the source's, not a copy
    assert_eq!(line.out.records[0].value, batch.records[0].value);
    assert_eq!((report.rows, report.kept, report.patched, report.emitted, report.dropped), (2, 1, 1, 1, 0));
    assert!(report.guest_ns > 0);
}

#[test]
fn a_topic_that_is_not_granted_rejects_its_source() {
    let (batch, guest) = example();
    let mut line = guest.deploy();
    line.run_plain(&batch);
    assert_eq!(
        line.rejections(),
        ["0 transform.topic the topic is not legal or not granted", "1 transform.reject no tags (code 7)"]
    );
    assert_eq!(line.out.records.len(), 0, "what the source had put out is withdrawn");
}

#[test]
fn tombstones_and_undecodable_records_keep_their_place() {
    let mut line = Guest::default().deploy();
    let batch = numbers(&[None, Some(1), None, None, Some(2), Some(3), None]);
    let mut data: Vec<Datum> = batch
        .records
        .iter()
        .map(|record| match record.value.null() {
            true => Datum::Tombstone,
            false => Datum::At { writer: line.writer, from: 0 },
        })
        .collect();
    data[4] = Datum::Undecodable { code: 1, message: "no magic\nbyte".into() };
    let report = line.run(&batch, &data);
    assert_eq!(line.values(&batch), ["0:-", "1:02", "2:-", "3:-", "5:06", "6:-"]);
    assert_eq!(line.rejections(), ["4 decode.wire-format no magic\\nbyte"]);
    assert_eq!(line.rejected[0].stage, Stage::Decode);
    assert_eq!((report.rows, report.kept), (2, 6));

    // a batch without a single row never reaches the guest
    let batch = numbers(&[None, None]);
    let report = line.run_plain(&batch);
    assert_eq!(line.values(&batch), ["0:-", "1:-"]);
    assert_eq!((report.rows, report.guest_ns), (0, 0));
    let report = line.run_plain(&numbers(&[]));
    assert_eq!((report.rows, line.out.records.len()), (0, 0));
}

#[test]
fn a_guest_that_asks_sees_tombstones_and_undecodable_records() {
    // counts the flags and codes it sees, keeps all
    let process = each_row(
        "(call $count (i32.const 0x8000) (i32.const 5) (i32.load16_u offset=28 (local.get $row)))
         (call $count (i32.const 0x8008) (i32.const 4) (i32.load16_u offset=30 (local.get $row)))
         (call $entry (local.get $i) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))",
    );
    let guest = Guest { wants: 12, process, data: b"flags\0\0\0code".to_vec(), ..Guest::default() };
    let mut line = guest.deploy();
    let mut batch = numbers(&[None, Some(1), Some(2), Some(300)]);
    // the last one ends in the middle of its varint
    batch.records[3].value.len -= 1;
    let at = Datum::At { writer: line.writer, from: 0 };
    let lost = Datum::Undecodable { code: 1, message: "no magic byte".into() };
    let report = line.run(&batch, &[Datum::Tombstone, at.clone(), lost, at]);
    assert_eq!(line.values(&batch), ["0:-", "1:02", "2:04", "3:d8"]);
    assert_eq!((report.rows, report.kept, line.rejected.len()), (4, 4, 0));
    // tombstone 1, undecodable 2 twice; wire format 1, short 3
    assert_eq!(report.counters, [("flags".to_owned(), 5), ("code".to_owned(), 4)]);
}

#[test]
fn data_that_do_not_decode_are_rejected_with_their_reason() {
    let mut line = Guest::default().deploy();
    let values: [&[u8]; 5] = [b"", b"\x80", b"\x02\x02", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x02"];
    let given: Vec<Given<'_>> = values
        .iter()
        .enumerate()
        .map(|(i, v)| Given { value: Some(v), offset: i as i64, ..Given::default() })
        .collect();
    let batch = batch("numbers", 0, &given);
    let mut data = vec![Datum::At { writer: line.writer, from: 0 }; 5];
    data[4] = Datum::At { writer: line.writer, from: 9 };
    line.run(&batch, &data);
    let codes: Vec<(u32, &str)> = line.rejected.iter().map(|r| (r.source, &*r.code)).collect();
    assert_eq!(
        codes,
        [(0, "decode.short"), (1, "decode.short"), (2, "decode.trailing"), (3, "decode.value"), (4, "decode.short")]
    );
    assert!(line.out.records.is_empty());
}

#[test]
fn limits_of_rows_bytes_and_offsets_split_a_batch_into_calls() {
    let counting =
        each_row("(call $entry (local.get $i) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))");
    let process = format!("{} ", counting).replacen(
        "(local.set $row",
        "(call $count (i32.const 0x8000) (i32.const 5) (i32.const 1)) (local.set $row",
        1,
    );
    let guest = Guest { reader: Some(echo(0).reader.unwrap()), process, data: b"calls".to_vec(), ..Guest::default() };
    let run = |limits: CallLimits, batch: &RecordBatch| {
        let mut line = guest.deploy_with(CallLimits { call_deadline_ms: 20_000, ..limits }, |_| {}).unwrap();
        let report = line.run_plain(batch);
        let calls = report.counters.first().map_or(0, |(_, calls)| *calls);
        (calls, line.out.records.len(), line.rejections())
    };
    let small: Vec<(i64, &[u8])> = (0..10).map(|n| (n, &b""[..])).collect();
    let rows = CallLimits { batch_records_max: 3, ..CallLimits::default() };
    assert_eq!(run(rows, &blobs(&small)), (4, 10, vec![]));

    // 2 KiB a buffer: two records of 700 bytes fit, one of 3,000 never does
    let (medium, large) = (vec![7; 700], vec![7; 3000]);
    let bytes = CallLimits { batch_bytes_max: 2 << 10, ..CallLimits::default() };
    let given: Vec<(i64, &[u8])> = vec![(0, &medium), (1, &medium), (2, &medium), (3, &large), (4, &medium)];
    let (calls, kept, rejections) = run(bytes, &blobs(&given));
    assert_eq!((calls, kept), (3, 4));
    assert_eq!(rejections.len(), 1);
    assert!(rejections[0].starts_with("3 decode.limit "), "{}", rejections[0]);

    // offsets further apart than a row can say
    let mut apart = blobs(&small[..3]);
    apart.records[2].offset = 1 << 40;
    assert_eq!(run(CallLimits::default(), &apart), (2, 3, vec![]));
}

/// Everything about an output that has no place in its value.
fn envelope(line: &Line, batch: &RecordBatch, output: &OutputRecord) -> String {
    let text =
        |span| line.out.bytes_of(batch, span).map_or("-".into(), |bytes| String::from_utf8_lossy(bytes).into_owned());
    let headers = line.out.headers_of(batch, output);
    let headers: Vec<String> =
        headers.iter().map(|header| format!("{}={}", text(header.name), text(header.value))).collect();
    format!("key {} at {} to {} [{}]", text(output.key), output.timestamp_ms, output.partition, headers.join(" "))
}

/// Runs one emitted buffer against one record with key, timestamp and headers, and shows outputs and rejections.
fn emitted(line: &mut Line, buffer: &[u8]) -> Vec<String> {
    let value = blob(5, buffer);
    let headers: &[(&str, Option<&[u8]>)] = &[("a", Some(b"1")), ("b", None), ("a", Some(b"2"))];
    let record = Given { key: Some(b"key"), value: Some(&value), headers, offset: 9, timestamp_ms: 1234 };
    let batch = batch("blobs", 0, &[record]);
    line.run_plain(&batch);
    let mut shown: Vec<String> = line.out.records.iter().map(|output| envelope(line, &batch, output)).collect();
    shown.extend(line.rejections());
    shown
}

#[test]
fn extras_override_the_envelope() {
    let mut line = echo(0).deploy();
    let same = "key key at 1234 to -1 [a=1 b=- a=2]";
    let edit = |op: u64, name: (u32, u32), value: (u32, u32)| {
        [op.to_le_bytes().to_vec(), slot(OWN + name.0, name.1), slot(OWN + value.0, value.1)].concat()
    };
    // one entry: its payload is at 48, the heap behind it
    let with =
        |extras: u8, payload: &[u8], heap: &[u8]| Out::default().entry(0, extras, 0, payload).heap(heap).finish();
    let edits =
        |list: &[Vec<u8>]| with(32, &slot(OWN + 56, list.len() as u32), &[list.concat(), b"axyz".to_vec()].concat());
    let behind = |count: u32| 56 + 24 * count;
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (with(0, &[], b""), same),
        (with(16, &slot(OWN + 56, 4), b"new!"), "key new! at 1234 to -1 [a=1 b=- a=2]"),
        (with(16, &slot(0, u32::MAX), b""), "key - at 1234 to -1 [a=1 b=- a=2]"),
        (with(16, &slot(7, 0), b""), "key  at 1234 to -1 [a=1 b=- a=2]"),
        (with(64, &long(-1), b""), "key key at -1 to -1 [a=1 b=- a=2]"),
        (with(128, &long(7), b""), "key key at 1234 to 7 [a=1 b=- a=2]"),
        (with(16 + 64 + 128, &[slot(OWN + 72, 1), long(5), long(6)].concat(), b"k"), "key k at 5 to 6 [a=1 b=- a=2]"),
        (edits(&[]), same),
        (edits(&[edit(0, (behind(1) + 1, 1), (behind(1) + 2, 2))]), "key key at 1234 to -1 [a=1 b=- a=2 x=yz]"),
        (edits(&[edit(1, (behind(1), 1), (behind(1) + 2, 2))]), "key key at 1234 to -1 [b=- a=yz]"),
        (edits(&[edit(2, (behind(1), 1), (0, 0))]), "key key at 1234 to -1 [b=-]"),
        (edits(&[edit(3, (0, 0), (0, 0))]), "key key at 1234 to -1 []"),
        (
            with(
                32,
                &slot(OWN + 56, 1),
                &[&0u64.to_le_bytes()[..], &slot(OWN + 80, 1), &slot(0, u32::MAX), b"n"].concat(),
            ),
            "key key at 1234 to -1 [a=1 b=- a=2 n=-]",
        ),
        (with(64, &long(-2), b""), "0 transform.range a value is outside the range of its type"),
        (with(128, &long(1 << 31), b""), "0 transform.range a value is outside the range of its type"),
        (edits(&[edit(4, (0, 0), (0, 0))]), "0 transform.range a value is outside the range of its type"),
        (with(32, &slot(OWN + 60, 1), &[0; 32]), "0 transform.alignment a frame does not lie at a multiple of 8"),
        (with(32, &slot(OWN + 56, 9), &[0; 32]), "0 transform.reference a slot points outside what it may point at"),
        (with(16, &slot(0, 4), b""), "0 transform.reference a slot points outside what it may point at"),
        (with(16, &slot(OWN, 4), b""), "0 transform.reference a slot points outside what it may point at"),
        (with(16, &[], b""), "0 transform.length the payload is not as long as its frames"),
        (with(0, &long(1), b""), "0 transform.length the payload is not as long as its frames"),
        (with(5, &[], b""), "0 transform.fault emit was refused: malformed, entry 0: kind is reserved"),
    ];
    for (buffer, want) in &cases {
        assert_eq!(emitted(&mut line, buffer), [*want]);
    }
}

#[test]
fn topics_are_per_port_and_named_by_slots_of_either_buffer() {
    let mut line = echo(0)
        .deploy_with(CallLimits { call_deadline_ms: 20_000, ..CallLimits::default() }, |setup| {
            setup.ports[0].topics_allowed = vec![Arc::from("eu"), Arc::from("blobs"), Arc::from("..")];
            setup.ports[1].topics_allowed = vec![Arc::from("us")];
        })
        .unwrap();
    // one row of 48 bytes: the heap of the input begins at 96 with the topic of the batch
    let keep = |topic: u16, port: u8| Out::default().to(topic, 0, 0, port, &[]).heap(b"euus..xx");
    let table =
        |out: Out| out.topic(OWN + 48, 2).topic(OWN + 50, 2).topic(96, 5).topic(OWN + 52, 2).topic(0, 9).finish();
    let refused = "0 transform.topic the topic is not legal or not granted";
    let outside = "0 transform.reference a slot points outside what it may point at";
    let cases: &[(u16, u8, Result<&str, &str>)] = &[
        (0, 0, Ok("")),
        (1, 0, Ok("eu")),
        (2, 0, Err(refused)),
        (3, 0, Ok("blobs")),
        (4, 0, Err(refused)),
        (5, 0, Err(outside)),
        (1, 1, Err(refused)),
        (2, 1, Ok("us")),
        (6, 0, Err("0 transform.fault emit was refused: malformed, entry 0: topic is not in the table")),
    ];
    for (topic, port, want) in cases {
        let batch = blobs(&[(5, &table(keep(*topic, *port)))]);
        line.run_plain(&batch);
        match want {
            Err(rejection) => assert_eq!(line.rejections(), [*rejection]),
            Ok(name) => {
                assert_eq!(line.rejections(), [""; 0]);
                let number = usize::from(line.out.records[0].topic);
                assert_eq!(if number == 0 { "" } else { &*line.out.topics[number - 1] }, *name);
            }
        }
    }
    // one name, asked for by two ports in one buffer
    let both =
        Out::default().to(1, 0, 0, 0, &[]).to(1, 0, 0, 1, &[]).heap(b"eu\0\0\0\0\0\0").topic(OWN + 64, 2).finish();
    line.run_plain(&blobs(&[(5, &both)]));
    assert_eq!(line.rejections(), [refused]);
}

#[test]
fn each_port_takes_its_own_kinds() {
    let mut line = echo(0)
        .deploy_with(CallLimits { call_deadline_ms: 20_000, ..CallLimits::default() }, |setup| {
            for port in 2..5 {
                setup.ports[port].prefix = vec![0, 0, 0, 0, port as u8];
            }
        })
        .unwrap();
    let out = |kind: u8, port: u8, payload: &[u8], heap: &[u8]| {
        Out::default().entry(0, kind, port, payload).heap(heap).finish()
    };
    let patch = [slot(0, 0), long(77)].concat();
    /// What leaves, given the bytes that stand in the record.
    type Want<'a> = &'a dyn Fn(&[u8]) -> String;
    let cases: Vec<(Vec<u8>, Want<'_>)> = vec![
        // keep
        (out(0, 0, &[], b""), &|b| format!("0:{}", hex(&blob(5, b)))),
        (out(0, 1, &[], b""), &|b| format!("0:{}", hex(&blob(5, b)))),
        (out(0, 2, &[], b""), &|b| format!("0:0000000002{}", hex(&blob(5, b)))),
        (out(0, 3, &[], b""), &|b| format!("0:0000000003{}00", hex(&blob(5, b)))),
        (out(0, 4, &[], b""), &|_| "0 transform.target the schema of the result has no such field".into()),
        // patch of field 0, the number
        (out(1, 0, &patch, b""), &|b| format!("0:{}", hex(&blob(77, b)))),
        (out(1, 1, &patch, b""), &|_| {
            "0 transform.fault emit was refused: malformed, entry 0: patch on a raw port".into()
        }),
        (out(1, 2, &patch, b""), &|b| format!("0:0000000002{}", hex(&blob(77, b)))),
        (out(1, 3, &patch, b""), &|b| format!("0:0000000003{}00", hex(&blob(77, b)))),
        // row
        (out(2, 0, &[], b""), &|_| {
            "0 transform.fault emit was refused: malformed, entry 0: row on a port of format same".into()
        }),
        (out(2, 1, &slot(OWN + 56, 3), b"raw"), &|_| format!("0:{}", hex(b"raw"))),
        (out(2, 1, &[], b""), &|_| "0 transform.length the payload is not as long as its frames".into()),
        (out(2, 2, &[long(6), slot(OWN + 64, 3)].concat(), b"new"), &|_| {
            format!("0:0000000002{}", hex(&blob(6, b"new")))
        }),
        // tombstone
        (out(3, 0, &[], b""), &|_| "0:-".into()),
        (out(3, 2, &[], b""), &|_| "0:-".into()),
    ];
    for (buffer, want) in cases {
        let batch = blobs(&[(5, &buffer)]);
        line.run_plain(&batch);
        let mut shown = line.values(&batch);
        shown.extend(line.rejections());
        assert_eq!(shown, [want(&buffer)]);
    }
}

#[test]
fn work_is_counted_so_that_small_entries_cannot_ask_for_much() {
    // 1,000 entries that keep or copy the same 4 KiB, at 1 MiB of work a call
    let limits = CallLimits { output_bytes_max: 1 << 20, call_deadline_ms: 20_000, ..CallLimits::default() };
    let mut line = echo(0).deploy_with(limits, |_| {}).unwrap();
    for (kind, port) in [(0, 0), (2, 1)] {
        let mut out = Out::default();
        for _ in 0..1000 {
            let payload = if kind == 2 { slot(OWN + 32 + 16 * 1000 + 8 * 1000, 4096) } else { vec![] };
            out = out.entry(0, kind, port, &payload);
        }
        let buffer = out.heap(&[0; 4096]).finish();
        let batch = blobs(&[(5, &buffer), (6, b"")]);
        line.run_plain(&batch);
        assert_eq!(line.rejections(), ["0 transform.too-large the result is larger than the limit"], "{kind}");
        assert!(line.out.bytes.is_empty() && line.out.records.is_empty());
    }
    // a record beyond what a broker takes
    let limits = CallLimits { record_bytes_max: 100, call_deadline_ms: 20_000, ..CallLimits::default() };
    let mut line = echo(0).deploy_with(limits, |_| {}).unwrap();
    let shown = emitted(&mut line, &Out::default().entry(0, 2, 1, &slot(OWN + 56, 101)).heap(&[0; 104]).finish());
    assert_eq!(shown, ["0 transform.too-large the result is larger than the limit"]);
}

#[test]
fn deployment_refuses_what_it_can_know() {
    let refuse = |guest: &Guest, adapt: &dyn Fn(&mut kiteline_sandbox::DeploymentSetup)| {
        let error = guest.deploy_with(CallLimits::default(), |setup| adapt(setup)).err().unwrap();
        (error.code(), error.to_string())
    };
    let plain = Guest::default();
    assert_eq!(
        refuse(&plain, &|setup| setup.ports.push(Default::default())).1,
        "plugin has 1 ports (out), the pipeline connects 2"
    );
    assert_eq!(
        refuse(&Guest { ports: vec![("a", 0, String::new()), ("a", 0, String::new())], ..plain.clone() }, &|_| {}).1,
        "plugin's manifest is refused: two ports are named \"a\""
    );
    assert_eq!(
        refuse(&Guest { ports: vec![("bad name", 0, String::new())], ..plain.clone() }, &|_| {}).0,
        "transform.manifest"
    );
    assert_eq!(
        refuse(&Guest { ports: vec![("a", 2, "{".into())], ..plain.clone() }, &|_| {}).1,
        "schema of port \"a\" is refused"
    );
    let other = Schema::parse(r#"{"type":"record","name":"Other","fields":[{"name":"m","type":"string"}]}"#).unwrap();
    let (code, text) = refuse(&plain, &|setup| setup.source_schema = Some(other.clone()));
    assert_eq!((code, &*text), ("transform.resolve", "reader schema against the source schema cannot be resolved"));
    let deaf = Guest { reader: None, ..plain.clone() };
    assert_eq!(refuse(&deaf, &|setup| setup.source_schema = None).0, "transform.schema");
    assert!(deaf.deploy_with(CallLimits::default(), |_| {}).is_ok(), "no reader schema means the source's");
    assert_eq!(refuse(&plain, &|setup| setup.limits.depth_max = 0).0, "transform.limit");
}

#[test]
fn writers_are_known_once_and_new_ones_reach_running_transformers() {
    let mut line = Guest::default().deploy();
    let again = Schema::parse(crate::guest::NUMBER).unwrap();
    assert_eq!(line.deployment.writer(&again).unwrap(), line.writer);
    // a newer producer: one more field before and one behind
    let newer = r#"{"type":"record","name":"Number","fields":[{"name":"a","type":"string"},{"name":"n","type":"int"},{"name":"z","type":"long"}]}"#;
    let newer = line.deployment.writer(&Schema::parse(newer).unwrap()).unwrap();
    assert_ne!(newer, line.writer);
    let wrong = Schema::parse(r#"{"type":"record","name":"Number","fields":[{"name":"n","type":"string"}]}"#).unwrap();
    assert!(matches!(line.deployment.writer(&wrong), Err(Error::Resolve { .. })));
    let values = [varint(4), [&b"\x02x"[..], &varint(5), &varint(6)].concat()];
    let batch = batch(
        "numbers",
        0,
        &[
            Given { value: Some(&values[0]), offset: 1, ..Given::default() },
            Given { value: Some(&values[1]), offset: 2, ..Given::default() },
        ],
    );
    let data = [Datum::At { writer: line.writer, from: 0 }, Datum::At { writer: newer, from: 0 }];
    line.run(&batch, &data);
    assert_eq!(line.values(&batch), ["0:08", "1:02780a0c"], "a kept record keeps the fields that the plugin never saw");
}
