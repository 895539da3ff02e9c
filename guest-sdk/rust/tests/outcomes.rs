//! What becomes of records: errors, rejects, extras, edits that overlap, pieces, limits, log lines and counters.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use kiteline_guest::{
    EmitError, Fault, Level, Limits, Running, Value,
    prelude::*,
    testing::{self, Harness, Kind, Outcomes, Record, Sent},
};
use std::cell::{Cell, RefCell};

const ITEM: &str = r#"{"type":"record","name":"Item","fields":[
  {"name":"id","type":"string"}, {"name":"n","type":"int"},
  {"name":"box","type":["null",{"type":"record","name":"Box","fields":[{"name":"w","type":"int"},{"name":"h","type":["null","int"]}]}]},
  {"name":"note","type":["null","string"]}]}"#;

type Body = fn(&Item, &mut Row<'_>, &mut Out<'_>) -> Result;

thread_local! {
    static BODY: Cell<Option<Body>> = const { Cell::new(None) };
}

struct Item {
    id: Field<Text>,
    n: Field<i32>,
    whole: Field<Option<Struct>>,
    w: Field<Option<i32>>,
    h: Field<Option<i32>>,
    note: Field<Option<Text>>,
    item: Port,
    raw: Port,
    new_id: Field<Text>,
    new_n: Field<i32>,
}

impl Transform for Item {
    fn describe(_: &Config, _: Option<&str>) -> Result<Manifest> {
        let manifest = Manifest::stateless("item", "1").reader(ITEM).want_keys().want_headers().want_tombstones();
        Ok(manifest.port("out").port_avro("item", ITEM).port_raw("raw"))
    }

    fn open(context: &Context) -> Result<Item> {
        let item = context.port(1)?;
        let new = context.output(item)?;
        Ok(Item {
            id: context.field("id")?,
            n: context.field("n")?,
            whole: context.field("box")?,
            w: context.field("box.w")?,
            h: context.field("box.h")?,
            note: context.field("note")?,
            item,
            raw: context.port(2)?,
            new_id: new.field("id")?,
            new_n: new.field("n")?,
        })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        BODY.get().expect("set")(self, row, out)
    }

    fn tombstone(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        self.record(row, out)
    }
}

fn item(id: &str, n: i64, size: Option<(i64, Option<i64>)>) -> Value {
    let size = size.map_or(Value::Null, |(w, h)| {
        Value::Struct(vec![("w".into(), Value::Long(w)), ("h".into(), h.map_or(Value::Null, Value::Long))])
    });
    let fields = [("id", Value::Text(id.into())), ("n", Value::Long(n)), ("box", size), ("note", Value::Null)];
    Value::Struct(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

fn records(count: i64) -> Vec<Record> {
    (0..count).map(|i| Record::new(100 + i, item(&format!("id-{i}"), i, Some((i, None))))).collect()
}

fn run(records: &[Record], body: Body) -> Outcomes {
    BODY.set(Some(body));
    Harness::<Item>::new(&[], ITEM).unwrap().run(records).unwrap()
}

#[test]
fn an_error_rejects_its_record_and_withdraws_its_outputs() {
    let outcomes = run(&records(5), |t, row, out| {
        out.keep(row)?;
        match row.get(t.n) {
            0 => Ok(()),
            1 => Err(Error::new("plain")),
            2 => Err(Error::with_code(100, "own code")),
            3 => "x".parse::<i32>().map(|_| ()).map_err(Error::from),
            _ => out.reject(row, 200, "by word").and_then(|()| out.reject(row, 201, "too late")),
        }
    });
    assert_eq!(outcomes.sent.iter().map(|s| s.source).collect::<Vec<_>>(), [0]);
    let rejected: Vec<_> = outcomes.rejected.iter().map(|r| (r.source, r.code, r.text.as_str())).collect();
    assert_eq!(
        rejected,
        [(1, 1, "plain"), (2, 100, "own code"), (3, 1, "invalid digit found in string"), (4, 200, "by word")]
    );
}

#[test]
fn a_long_reject_text_is_cut_between_characters() {
    let outcomes = run(&records(1), |_, row, out| out.reject(row, u32::MAX, &format!("x{}", "é".repeat(4000))));
    assert_eq!((outcomes.rejected[0].text.len(), outcomes.rejected[0].code), (4095, i32::MAX as u32));
}

#[test]
fn extras_override_what_the_source_has() {
    let record = Record { timestamp_ms: 5, ..Record::new(0, item("a", 0, None)) }
        .with_key(b"k")
        .with_header("a", b"1")
        .with_header("b", b"2");
    let outcomes = run(&[record], |t, row, out| {
        assert_eq!(row.header_text("b"), Some("2"));
        out.keep(row)?;
        let edits = [
            HeaderEdit::set("a", b"3"),
            HeaderEdit::remove("b"),
            HeaderEdit::append_null("c"),
            HeaderEdit::append("a", b""),
        ];
        out.keep_with(row, &With::new().key(b"new").headers(&edits).timestamp_ms(-1).partition(7).topic("t"))?;
        row.set(t.note, Some("edited"))?;
        out.keep_with(row, &With::new().null_key().headers(&[HeaderEdit::clear()]))?;
        out.tombstone_with(row, &With::new().topic("t2").key(row.key().expect("asked for")))?;
        out.raw(t.raw, row, b"bytes", &With::new().timestamp_ms(9))?;
        let mut new = out.row_with(t.item, row, &With::new().topic("t").partition(-1).headers(&[]))?;
        new.set(t.new_id, row.get(t.id))?;
        new.set(t.new_n, 3)?;
        new.emit()
    });
    let own = vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), Some(b"2".to_vec()))];
    let key = |k: &[u8]| Some(Value::Bytes(k.to_vec()));
    let sent = |kind, port: &str, value| Sent {
        source: 0,
        kind,
        port: port.into(),
        topic: None,
        value,
        key: key(b"k"),
        headers: own.clone(),
        timestamp_ms: 5,
        partition: None,
    };
    let source = item("a", 0, None);
    let mut edited = source.clone();
    let Value::Struct(fields) = &mut edited else { panic!("a record") };
    fields[3].1 = Value::Text("edited".into());
    let headers = vec![(b"a".to_vec(), Some(b"3".to_vec())), (b"c".to_vec(), None), (b"a".to_vec(), Some(vec![]))];
    let wanted = [
        sent(Kind::Keep, "out", Some(source.clone())),
        Sent {
            key: key(b"new"),
            headers,
            timestamp_ms: -1,
            partition: Some(7),
            topic: Some("t".into()),
            ..sent(Kind::Keep, "out", Some(source))
        },
        Sent { key: None, headers: vec![], ..sent(Kind::Patch, "out", Some(edited)) },
        Sent { topic: Some("t2".into()), ..sent(Kind::Tombstone, "out", None) },
        Sent { timestamp_ms: 9, ..sent(Kind::Row, "raw", key(b"bytes")) },
        Sent { topic: Some("t".into()), partition: Some(-1), ..sent(Kind::Row, "item", Some(item("a", 3, None))) },
    ];
    assert_eq!(outcomes.sent, wanted);
}

/// Numbers of the fields that the one patch of a run names.
fn patched(body: Body) -> (Vec<u32>, Value) {
    BODY.set(Some(body));
    let record = Record::new(0, item("a", 1, Some((2, Some(3)))));
    let mut harness = Harness::<Item>::new(&[], ITEM).unwrap();
    let input = testing::write_batch(harness.input(), None, std::slice::from_ref(&record), "orders", 0).unwrap();
    let pieces = harness.run_buffer(&mut input.clone()).unwrap();
    let word = |at: usize| u32::from_le_bytes(pieces[0][at..at + 4].try_into().unwrap()) as usize;
    let (mut at, end) = (word(40), word(40) + word(44));
    let mut numbers = Vec::new();
    while at < end {
        numbers.push(word(at) as u32);
        // id, n, box (a null word, two slots), box.w, box.h (a null word), note (a null word)
        at += 8 + [8, 8, 24, 8, 16, 16][word(at)];
    }
    let mut outcomes = Outcomes::default();
    harness.read(&input, &pieces, &[0], &[record], &mut outcomes).unwrap();
    (numbers, outcomes.sent[0].value.clone().unwrap())
}

#[test]
fn patch_items_ascend_and_never_lie_in_one_another() {
    let (numbers, value) = patched(|t, row, out| {
        row.set(t.note, Some("x"))?;
        row.set(t.h, None::<i32>)?;
        row.set(t.id, "b")?;
        row.set(t.id, "c")?;
        out.keep(row)
    });
    assert_eq!(numbers, [0, 4, 5]);
    let mut wanted = item("c", 1, Some((2, None)));
    let Value::Struct(fields) = &mut wanted else { panic!("a record") };
    fields[3].1 = Value::Text("x".into());
    assert_eq!(value, wanted);

    let (numbers, value) = patched(|t, row, out| {
        row.set(t.w, Some(9))?;
        row.set(t.h, Some(8))?;
        row.set_null(t.whole)?;
        assert!(row.set(t.w, Some(1)).is_err());
        out.keep(row)
    });
    assert_eq!((numbers, value), (vec![2], item("a", 1, None)));

    let (numbers, value) = patched(|t, row, out| {
        let size = Value::Struct(vec![("h".into(), Value::Null), ("w".into(), Value::Long(5))]);
        row.set(t.whole, &size)?;
        row.set(t.w, Some(6))?;
        out.keep(row)
    });
    assert_eq!((numbers, value), (vec![2], item("a", 1, Some((6, None)))));
}

#[test]
fn outputs_of_an_edited_record_share_one_payload() {
    BODY.set(Some(|t, row, out| {
        row.set(t.id, "a longer text than before")?;
        out.keep_to(row, "a")?;
        out.keep_to(row, "b")?;
        row.set(t.n, 5)?;
        out.keep_to(row, "c")
    }));
    let mut harness = Harness::<Item>::new(&[], ITEM).unwrap();
    let mut input = testing::write_batch(harness.input(), None, &records(1), "orders", 0).unwrap();
    let piece = harness.run_buffer(&mut input).unwrap().remove(0);
    let payload = |i: usize| &piece[32 + 16 * i + 8..32 + 16 * i + 16];
    assert_eq!(payload(0), payload(1));
    assert_ne!(payload(1), payload(2));
}

#[test]
fn a_record_with_many_outputs_ends_a_piece_in_between() {
    // 100 outputs a record: the table of entries fills within a record, whose edited text must survive
    let outcomes = run(&records(3), |t, row, out| {
        row.set(t.id, format!("{} edited", row.get(t.id)))?;
        for n in 0..50 {
            out.keep_to(row, if n % 2 == 0 { "even" } else { "odd" })?;
            let mut new = out.row(t.item, row)?;
            new.set(t.new_id, row.get(t.id))?;
            new.set(t.new_n, n)?;
            new.emit()?;
        }
        Ok(())
    });
    assert_eq!(outcomes.sent.len(), 300);
    for (i, sent) in outcomes.sent.iter().enumerate() {
        let (source, n) = (i / 100, (i % 100 / 2) as i64);
        let id = format!("id-{source} edited");
        assert_eq!(sent.source, source);
        assert_eq!(sent.value.as_ref().unwrap().get("id"), Some(&Value::Text(id)), "output {i}");
        if i % 2 == 0 {
            assert_eq!(sent.topic.as_deref(), Some(if n % 2 == 0 { "even" } else { "odd" }));
        } else {
            assert_eq!((sent.port.as_str(), sent.value.as_ref().unwrap().get("n")), ("item", Some(&Value::Long(n))));
        }
    }
}

#[test]
fn large_outputs_are_handed_over_in_pieces_between_records() {
    BODY.set(Some(|t, row, out| {
        row.set(t.id, "x".repeat(100_000))?;
        out.keep(row)
    }));
    let mut harness = Harness::<Item>::new(&[], ITEM).unwrap();
    let mut input = testing::write_batch(harness.input(), None, &records(20), "orders", 0).unwrap();
    let pieces = harness.run_buffer(&mut input).unwrap();
    assert_eq!(pieces.len(), 7);
    assert!(pieces.iter().all(|p| p.len() < 400_000));
}

/// Runs a batch against a host that refuses the given call of `emit`.
fn refuse(call: usize, error: EmitError, limits: Limits, records: &[Record], body: Body) -> (Fault, usize) {
    BODY.set(Some(body));
    let harness = Harness::<Item>::new(&[], ITEM).unwrap();
    let input = testing::layout(0, ITEM).unwrap();
    let port = |id, schema| kiteline_guest::PortInfo::new(Some(testing::layout(id, schema).unwrap()), None);
    let ports = vec![kiteline_guest::PortInfo::new(None, None), port(4, ITEM), port(6, "\"bytes\"")];
    let context = Context::new(Config::default(), input, None, ports, limits);
    let mut running: Running<Item> = Running::open(context).unwrap();
    let mut batch = testing::write_batch(harness.input(), None, records, "orders", 0).unwrap();
    let calls = RefCell::new(0);
    let mut emit = |_: &[u8]| {
        *calls.borrow_mut() += 1;
        if *calls.borrow() > call { Err(error.clone()) } else { Ok(()) }
    };
    let fault = running.process(&mut batch, &mut emit).unwrap_err();
    (fault, calls.into_inner())
}

#[test]
fn a_refused_emit_is_a_fault_that_blames_a_record_only_if_it_alone_is_too_much() {
    let keep: Body = |_, row, out| out.keep(row);
    let (fault, calls) = refuse(0, EmitError::Malformed("entry 0: port".into()), Limits::default(), &records(2), keep);
    assert_eq!((fault.at, fault.message.as_str(), calls), (None, "the host refused the outputs: entry 0: port", 1));

    let small = Limits { emit_bytes_max: 100_000, ..Limits::default() };
    let large: Body = |t, row, out| {
        if row.get(t.n) == 2 {
            row.set(t.id, "x".repeat(200_000))?;
        }
        out.keep(row)
    };
    let (fault, _) = refuse(0, EmitError::BytesLimit, small, &records(4), large);
    assert_eq!((fault.at, fault.message.as_str()), (Some(2), "the batch's outputs pass the limit of bytes"));

    let many: Body = |_, row, out| (0..1000).try_for_each(|_| out.keep(row));
    let few = Limits { emit_entries_max: 500, ..Limits::default() };
    let (fault, calls) = refuse(200, EmitError::EntriesLimit, few, &records(1), many);
    assert_eq!((fault.at, calls), (Some(0), 201));
    let (fault, _) = refuse(1, EmitError::EntriesLimit, Limits::default(), &records(3), many);
    assert_eq!(fault.at, None);
}

#[test]
fn ports_take_what_they_are_for() {
    let outcomes = run(&records(4), |t, row, out| match row.get(t.n) {
        0 => out.row(Port::FIRST, row).map(|_| ()),
        1 => out.raw(t.item, row, b"x", &With::new()),
        2 => {
            row.set(t.n, 9)?;
            out.keep_with(row, &With::new().port(t.raw))
        }
        _ => out.keep_with(row, &With::new().port(t.raw)),
    });
    let texts: Vec<_> = outcomes.rejected.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "port 0 takes kept records only: it has no schema of its own",
            "port 1 is not raw: build a row for it",
            "a raw port takes records as they are: fields that were set cannot be sent there",
        ]
    );
    assert_eq!((outcomes.sent.len(), outcomes.sent[0].port.as_str()), (1, "raw"));
}

#[test]
fn a_tombstone_cannot_be_edited_but_sent_on() {
    let tombstone = Record { content: testing::Content::Tombstone, ..Record::new(0, Value::Null) }.with_key(b"k");
    let outcomes = run(&[tombstone], |t, row, out| {
        assert!(row.is_tombstone() && row.is_null(t.note));
        assert_eq!(row.set(t.n, 1).unwrap_err().message(), "a record without a value has no field to set");
        out.keep_to(row, "t")
    });
    assert_eq!((outcomes.sent[0].value.clone(), outcomes.sent[0].topic.as_deref()), (None, Some("t")));
}

#[test]
fn unchanged_texts_are_references_into_the_input() {
    BODY.set(Some(|t, row, out| {
        let id = row.get(t.id);
        let mut new = out.row(t.item, row)?;
        new.set(t.new_id, &id[3..])?;
        new.set(t.new_n, 0)?;
        new.emit()
    }));
    let mut harness = Harness::<Item>::new(&[], ITEM).unwrap();
    let mut input = testing::write_batch(harness.input(), None, &records(1), "orders", 0).unwrap();
    let piece = harness.run_buffer(&mut input).unwrap().remove(0);
    // id is a slice of the input: one entry's table (4 of 16 bytes), one frame, and nothing behind it
    assert_eq!(piece.len(), 32 + 4 * 16 + 8 + 5 * 8);
    let slot = 32 + 64 + 8;
    let off = u32::from_le_bytes(piece[slot..slot + 4].try_into().unwrap()) as usize;
    assert_eq!(&input[off..off + 1], b"0");
}

#[test]
fn log_lines_and_counters_reach_the_host() {
    testing::take_log();
    run(&records(2), |t, row, out| {
        log!(Info, "item {}", row.get(t.n));
        log!(Warn, "plain");
        count("items", 2);
        out.drop(row)
    });
    let log = testing::take_log();
    let line = |level, text: &str| (level, text.to_owned());
    assert_eq!(
        log,
        [
            line(Level::Info, "item 0"),
            line(Level::Warn, "plain"),
            line(Level::Info, "item 1"),
            line(Level::Warn, "plain")
        ]
    );
    assert_eq!(testing::take_counters(), [("items".to_owned(), 4)]);
}

#[test]
fn configuration_is_read_and_refused_by_name() {
    let config = Config::new(vec![("a".into(), "5".into()), ("b".into(), "x".into())]);
    let text = |e: Error| e.message().to_owned();
    assert_eq!(config.parse_or("a", 1i32).unwrap(), 5);
    assert_eq!(config.parse_or("c", 1i32).unwrap(), 1);
    assert_eq!(text(config.parse::<i32>("b").unwrap_err()), "config key \"b\" is \"x\": invalid digit found in string");
    assert_eq!(text(config.require("c").unwrap_err()), "config key \"c\" is missing");
    assert_eq!(text(config.only(&["a"]).unwrap_err()), "unknown config key \"b\": there are a");
    assert!(config.only(&["a", "b"]).is_ok());
}
