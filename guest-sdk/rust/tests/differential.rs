//! The SDK against the reference model of the row contract. `fixtures/` was written once by the model (Python): layouts of schemas,
//! input buffers of random schemas and values, output buffers of random outcomes.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use kiteline_guest::{
    Any, Context, Error, Field, HeaderEdit, Manifest, Out, Port, Result, Row, Transform, Value, With,
    testing::{self, Content, Harness, Json, Outcomes, Record},
};
use std::cell::RefCell;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// One edit of headers: operation, name, value.
type Edit = (u8, String, Option<Vec<u8>>);

/// The fixtures' own tags: {"d": bits}, {"b": hex}, {"m": entries}, {"s": fields}, {"u": [branch, value]}.
fn value(json: &Json) -> Value {
    let pair = |j: &Json| {
        let pair = j.list().unwrap();
        (pair[0].text().unwrap().to_owned(), value(&pair[1]))
    };
    match json {
        Json::Null => Value::Null,
        Json::Bool(v) => Value::Boolean(*v),
        Json::Number(_) => Value::Long(json.number().unwrap()),
        Json::Text(v) => Value::Text(v.clone()),
        Json::List(items) => Value::List(items.iter().map(value).collect()),
        Json::Object(entries) => {
            let inner = &entries[0].1;
            match entries[0].0.as_str() {
                "d" => Value::Double(f64::from_bits(u64::from_str_radix(inner.text().unwrap(), 16).unwrap())),
                "b" => Value::Bytes(hex(inner.text().unwrap())),
                "m" => Value::Map(inner.list().unwrap().iter().map(pair).collect()),
                "s" => Value::Struct(inner.list().unwrap().iter().map(pair).collect()),
                "u" => {
                    let pair = inner.list().unwrap();
                    Value::Union(pair[0].number().unwrap(), Box::new(value(&pair[1])))
                }
                other => panic!("tag {other}"),
            }
        }
    }
}

fn header_edit<'e>((op, name, value): &'e Edit) -> HeaderEdit<'e> {
    match (op, value) {
        (0, Some(value)) => HeaderEdit::append(name, value),
        (0, None) => HeaderEdit::append_null(name),
        (1, Some(value)) => HeaderEdit::set(name, value),
        (2, None) => HeaderEdit::remove(name),
        (3, None) => HeaderEdit::clear(),
        other => panic!("edit {other:?}"),
    }
}

fn headers(json: &Json) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let pair = |h: &Json| {
        let h = h.list().unwrap();
        (h[0].text().unwrap().as_bytes().to_vec(), h[1].text().map(hex))
    };
    json.list().unwrap().iter().map(pair).collect()
}

fn record(json: &Json) -> Record {
    let content = match json.text_of("kind").unwrap() {
        "value" => Content::Value(value(json.get("value").unwrap())),
        "tombstone" => Content::Tombstone,
        _ => Content::Undecodable(json.get("code").unwrap().number().unwrap()),
    };
    Record {
        offset: json.get("offset").unwrap().number().unwrap(),
        key: match json.get("key").unwrap() {
            Json::Null => None,
            key => Some(value(key)),
        },
        timestamp_ms: json.get("timestamp").unwrap().number().unwrap(),
        append_time: *json.get("append_time").unwrap() == Json::Bool(true),
        headers: headers(json.get("headers").unwrap()),
        content,
    }
}

thread_local! {
    static CASE: RefCell<Json> = const { RefCell::new(Json::Null) };
    static SEEN: RefCell<Vec<Record>> = const { RefCell::new(Vec::new()) };
}

fn fixture(key: &str) -> Json {
    CASE.with_borrow(|case| case.get(key).cloned().unwrap())
}

/// Reads everything of each row, then does what the fixture says.
struct Script {
    root: Field<Any>,
    new: Port,
    new_root: Field<Any>,
    typed_key: bool,
    fields: Vec<(String, Field<Any>)>,
    ops: Vec<Json>,
}

impl Transform for Script {
    fn describe(_: &kiteline_guest::Config, source: Option<&str>) -> Result<Manifest> {
        let manifest = Manifest::stateless("script", "1").port("out").port_avro("new", source.unwrap());
        let manifest = manifest.want_keys().want_headers().want_tombstones().want_undecodable();
        Ok(match fixture("key_schema").text() {
            Some(schema) => manifest.key_reader(schema),
            None => manifest,
        })
    }

    fn open(context: &Context) -> Result<Script> {
        let ops = fixture("ops").list().unwrap().to_vec();
        let mut fields = Vec::new();
        for item in ops.iter().filter_map(|op| op.get("items")?.list()).flatten() {
            let path = item.list().unwrap()[0].text().unwrap();
            fields.push((path.to_owned(), context.field(path)?));
        }
        let new = context.port(1)?;
        let new_root = context.output(new)?.field("")?;
        Ok(Script { root: context.field("")?, new, new_root, typed_key: context.key.is_some(), fields, ops })
    }

    fn record(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        let content = match row.decode_error() {
            Some(code) => Content::Undecodable(code),
            None if row.is_tombstone() => Content::Tombstone,
            None => Content::Value(row.get(self.root).into()),
        };
        let key = if self.typed_key {
            row.key_as::<Any>().map(Value::from)
        } else {
            row.key().map(|k| Value::Bytes(k.to_vec()))
        };
        let index = SEEN.with_borrow_mut(|seen| {
            seen.push(Record {
                offset: row.offset(),
                key,
                timestamp_ms: row.timestamp_ms().unwrap_or(-1),
                append_time: row.append_time(),
                headers: row.headers().map(|h| (h.name.to_vec(), h.value.map(<[u8]>::to_vec))).collect(),
                content,
            });
            seen.len() - 1
        });
        let ops: Vec<Json> =
            self.ops.iter().filter(|op| op.get("src").unwrap().number::<usize>().unwrap() == index).cloned().collect();
        ops.iter().try_for_each(|op| self.act(op, row, out))
    }

    fn tombstone(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        self.record(row, out)
    }

    fn undecodable(&mut self, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        self.record(row, out)
    }
}

impl Script {
    fn act(&self, op: &Json, row: &mut Row<'_>, out: &mut Out<'_>) -> Result {
        let kind: u32 = op.get("kind").unwrap().number()?;
        if kind == 4 {
            return out.reject(row, op.get("code").unwrap().number()?, op.text_of("text").unwrap());
        }
        let key = op.get("key").map(|k| if *k == Json::Null { Value::Null } else { value(k) });
        let edits: Option<Vec<Edit>> = op.get("headers").map(|h| {
            let edit = |e: &Json| {
                let e = e.list().unwrap();
                (e[0].number().unwrap(), e[1].text().unwrap().to_owned(), e[2].text().map(hex))
            };
            h.list().unwrap().iter().map(edit).collect()
        });
        let edits: Option<Vec<HeaderEdit<'_>>> = edits.as_ref().map(|edits| edits.iter().map(header_edit).collect());
        let mut with = With::new();
        if let Some(topic) = op.text_of("topic") {
            with = with.topic(topic);
        }
        match &key {
            Some(Value::Bytes(key)) => with = with.key(key),
            Some(_) => with = with.null_key(),
            None => {}
        }
        if let Some(edits) = &edits {
            with = with.headers(edits);
        }
        if let Some(timestamp) = op.get("timestamp") {
            with = with.timestamp_ms(timestamp.number()?);
        }
        if let Some(partition) = op.get("partition") {
            with = with.partition(partition.number()?);
        }
        match kind {
            0 => out.keep_with(row, &with),
            1 => {
                for item in op.get("items").unwrap().list().unwrap() {
                    let item = item.list().unwrap();
                    let field = self.fields.iter().find(|f| f.0 == item[0].text().unwrap()).unwrap().1;
                    let new = value(&item[1]);
                    row.set(field, &new)?;
                    if Value::from(row.get(field)) != new {
                        return Err(Error::new("what was set is not what is read"));
                    }
                }
                out.keep_with(row, &with)
            }
            2 => {
                let mut new = out.row_with(self.new, row, &with)?;
                new.set(self.new_root, &value(op.get("value").unwrap()))?;
                new.emit()
            }
            _ => out.tombstone_with(row, &with),
        }
    }
}

fn lines(text: &str) -> Vec<Json> {
    text.lines().map(|line| Json::parse(line).unwrap()).collect()
}

#[test]
fn layouts_and_fingerprints_are_the_models() {
    let cases = lines(include_str!("fixtures/layouts.jsonl"));
    assert_eq!(cases.len(), 54);
    for case in cases {
        let layout = testing::layout(0, case.text_of("schema").unwrap()).unwrap();
        let name = case.text_of("name").unwrap();
        assert_eq!(layout.table(), case.text_of("table").unwrap(), "{name}");
        assert_eq!(layout.fingerprint, case.text_of("fingerprint").unwrap(), "{name}");
    }
}

/// Every case: the harness writes the model's input buffer, the SDK reads its rows (at eight addresses) and writes the model's outputs.
#[test]
fn rows_and_outputs_are_the_models() {
    let (mut rows, mut exact) = (0, 0);
    for (i, case) in lines(include_str!("fixtures/batches.jsonl")).into_iter().enumerate() {
        CASE.set(case.clone());
        let schema = case.text_of("schema").unwrap();
        let records: Vec<Record> = case.get("rows").unwrap().list().unwrap().iter().map(record).collect();
        let input = hex(case.text_of("input").unwrap());
        let key = case.text_of("key_schema").map(|s| testing::layout(1, s).unwrap());
        let layout = testing::layout(0, schema).unwrap();
        assert_eq!(
            testing::write_batch(&layout, key.as_ref(), &records, "orders", 3).unwrap(),
            input,
            "case {i}: input buffer"
        );
        for shift in 0..8 {
            let mut harness: Harness<Script> = Harness::new(&[], schema).unwrap();
            let mut odd = vec![0xa5; shift];
            odd.extend_from_slice(&input);
            SEEN.take();
            let pieces = harness.run_buffer(&mut odd[shift..]).unwrap();
            assert_eq!(SEEN.take(), records, "case {i}: rows at address + {shift}");
            let wanted = hex(case.text_of("output").unwrap());
            if *case.get("exact").unwrap() == Json::Bool(true) {
                assert_eq!(pieces, std::slice::from_ref(&wanted), "case {i}: output buffer");
                exact += 1;
            }
            let (mut came, mut want) = (Outcomes::default(), Outcomes::default());
            let sources: Vec<usize> = (0..records.len()).collect();
            harness.read(&input, &pieces, &sources, &records, &mut came).unwrap();
            harness.read(&input, &[wanted], &sources, &records, &mut want).unwrap();
            assert_eq!(came, want, "case {i}");
        }
        rows += records.len();
    }
    assert!(rows > 90 && exact > 100, "{rows} rows, {exact} buffers compared by bytes");
}
