//! Golden files: records and what must become of them, one JSON object a line.
//!
//! ```json
//! {"config": {"threshold": "10"}, "topic": "orders"}
//! {"record": {"qty": 12}, "key": "k1", "headers": [["h", "v"]], "expect": [{"port": "out", "kind": "keep"}]}
//! {"record": {"qty": 1}, "expect": []}
//! {"record": {"qty": 7}, "expect": [{"reject": {"code": 100, "text": "..."}}]}
//! {"record": null, "expect": [{"port": "out", "kind": "keep"}]}
//! ```
//! A line with `config` begins a new instance. `record` is a whole record in Avro's JSON encoding, null is a tombstone. `expect` holds the
//! outputs in order, each with `port`, `kind` (keep, patch, row, tombstone) and, where they are the output's own, `topic`, `value` (of
//! patch and row), `key`, `headers`, `timestamp_ms`, `partition`; empty is a drop. `"expect": "trap"` stands for a panic;
//! `"expect": "deadline"` for a call that does not end, which is left out here.

use super::{Content, Harness, Json, Kind, Outcomes, Record, Sent, from_avro_json, to_avro_json};
use crate::{transform::Transform, value::Value};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// With this variable set, what came is written into the files instead of compared.
const UPDATE: &str = "KITELINE_UPDATE_GOLDEN";

/// Runs every `*.jsonl` file of a folder through the transform.
///
/// # Panics
/// At the first difference, with file, line, expected and actual; also if there is no file, or one cannot be read.
pub fn golden<T: Transform>(folder: impl AsRef<Path>, source_schema: &str) {
    let folder = folder.as_ref();
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> =
        entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.extension().is_some_and(|e| e == "jsonl")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: no *.jsonl file", folder.display());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let actual = run::<T>(&path, &text, source_schema);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&path, actual).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}

fn run<T: Transform>(path: &Path, text: &str, source_schema: &str) -> String {
    let mut harness: Option<Harness<T>> = None;
    let mut head = Json::Null;
    let mut actual = String::new();
    for (i, line) in text.lines().enumerate() {
        let at = format!("{}:{}", path.display(), i + 1);
        let json = Json::parse(line).unwrap_or_else(|e| panic!("{at}: {e}"));
        if json.get("config").is_some() {
            head = json;
            harness = None;
            actual.push_str(line);
            actual.push('\n');
            continue;
        }
        let running = harness.get_or_insert_with(|| open(&head, source_schema).unwrap_or_else(|e| panic!("{at}: {e}")));
        let wanted = json.get("expect").unwrap_or_else(|| panic!("{at}: no \"expect\""));
        if wanted.text() == Some("deadline") {
            actual.push_str(line);
            actual.push('\n');
            continue;
        }
        let record = record(running, i as i64, &json).unwrap_or_else(|e| panic!("{at}: {e}"));
        let result = catch_unwind(AssertUnwindSafe(|| running.run(std::slice::from_ref(&record))));
        let came = match result {
            Ok(Ok(outcomes)) => outcomes_json(running, &record, &outcomes),
            Ok(Err(error)) => panic!("{at}: {error}"),
            Err(_) => {
                harness = None;
                Json::Text("trap".into())
            }
        };
        if std::env::var_os(UPDATE).is_none() {
            assert!(came == *wanted, "{at}\nexpected {wanted}\nactual   {came}");
        }
        actual.push_str(&updated(json, came).to_string());
        actual.push('\n');
    }
    actual
}

fn updated(line: Json, came: Json) -> Json {
    let Json::Object(mut entries) = line else {
        return line;
    };
    for entry in &mut entries {
        if entry.0 == "expect" {
            entry.1 = came.clone();
        }
    }
    Json::Object(entries)
}

fn open<T: Transform>(head: &Json, source_schema: &str) -> crate::Result<Harness<T>> {
    let config: Vec<(&str, &str)> = match head.get("config") {
        Some(Json::Object(entries)) => entries.iter().filter_map(|(k, v)| Some((k.as_str(), v.text()?))).collect(),
        _ => Vec::new(),
    };
    let partition = head.get("partition").map_or(Ok(0), Json::number)?;
    Ok(Harness::new(&config, source_schema)?.from_partition(head.text_of("topic").unwrap_or("orders"), partition))
}

fn record<T: Transform>(harness: &Harness<T>, offset: i64, json: &Json) -> crate::Result<Record> {
    let content = match json.get("record") {
        Some(Json::Null) | None => Content::Tombstone,
        Some(value) => Content::Value(from_avro_json(harness.source(), 0, value)?),
    };
    let headers = json.get("headers").and_then(Json::list).unwrap_or(&[]).iter().filter_map(|h| {
        let pair = h.list()?;
        Some((pair.first()?.text()?.as_bytes().to_vec(), pair.get(1)?.text().map(|v| v.as_bytes().to_vec())))
    });
    Ok(Record {
        offset,
        key: json.text_of("key").map(|k| Value::Bytes(k.as_bytes().to_vec())),
        timestamp_ms: json.get("timestamp_ms").map_or(Ok(-1), Json::number)?,
        append_time: false,
        headers: headers.collect(),
        content,
    })
}

fn outcomes_json<T: Transform>(harness: &Harness<T>, record: &Record, outcomes: &Outcomes) -> Json {
    let rejects = outcomes.rejected.iter().map(|r| {
        let inner =
            vec![("code".into(), Json::Number(r.code.to_string())), ("text".into(), Json::Text(r.text.clone()))];
        Json::Object(vec![("reject".into(), Json::Object(inner))])
    });
    Json::List(outcomes.sent.iter().map(|s| sent_json(harness, record, s)).chain(rejects).collect())
}

fn sent_json<T: Transform>(harness: &Harness<T>, record: &Record, sent: &Sent) -> Json {
    let kind = match sent.kind {
        Kind::Keep => "keep",
        Kind::Patch => "patch",
        Kind::Row => "row",
        Kind::Tombstone => "tombstone",
    };
    let text = |bytes: &[u8]| Json::Text(String::from_utf8_lossy(bytes).into_owned());
    let mut out =
        vec![("port".to_owned(), Json::Text(sent.port.clone())), ("kind".to_owned(), Json::Text(kind.into()))];
    if let Some(topic) = &sent.topic {
        out.push(("topic".into(), Json::Text(topic.clone())));
    }
    let number = harness.manifest().outputs.iter().position(|o| o.name == sent.port).unwrap_or(0);
    let layout = if sent.kind == Kind::Row { harness.port(number) } else { Some(harness.source()) };
    if let (Kind::Patch | Kind::Row, Some(layout), Some(value)) = (sent.kind, layout, &sent.value) {
        out.push(("value".into(), to_avro_json(layout, 0, value)));
    }
    if sent.key != record.key {
        out.push(("key".into(), if let Some(Value::Bytes(key)) = &sent.key { text(key) } else { Json::Null }));
    }
    if sent.headers != record.headers {
        let pair = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| {
            Json::List(vec![text(name), value.as_ref().map_or(Json::Null, |v| text(v))])
        };
        out.push(("headers".into(), Json::List(sent.headers.iter().map(pair).collect())));
    }
    if sent.timestamp_ms != record.timestamp_ms {
        out.push(("timestamp_ms".into(), Json::Number(sent.timestamp_ms.to_string())));
    }
    if let Some(partition) = sent.partition {
        out.push(("partition".into(), Json::Number(partition.to_string())));
    }
    Json::Object(out)
}
