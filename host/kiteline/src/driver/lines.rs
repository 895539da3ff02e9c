//! Outputs and dead letters as JSON lines, for files and standard output.
//!
//! A line holds where the record came from, its key, headers and timestamp, and its value as Avro JSON. Bytes that are not
//! UTF-8 are written as hex under another name, so that a line is always valid JSON and nothing is guessed.

use std::fmt::Write as _;

use kiteline_avro::{Limits, Schema, to_json};
use kiteline_connectors::decode::WireFormat;
use kiteline_engine::record::{OutputBatch, OutputRecord, RecordBatch, Rejection};
use serde_json::{Map, Value, json};

use super::{schemas::Lookup, workers::Decoding};

/// How the value bytes of one port are to be read.
#[derive(Clone, Debug)]
pub(super) enum PortValues {
    /// As the source's records are.
    Source,
    /// Bytes without a schema.
    Raw,
    /// Datums of this schema behind a prefix of so many bytes.
    Avro(Schema, usize),
}

/// Renders outputs of one pipeline.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// How the source's records are read.
    pub decoding: Decoding,
    /// By port number.
    pub ports: Vec<PortValues>,
    /// Bounds of one value.
    pub limits: Limits,
}

impl Lines {
    /// Appends one line for each of `records`. A value that cannot be shown as its schema says is shown as hex, with why.
    pub(super) fn outputs(&self, source: &RecordBatch, outputs: &OutputBatch, records: &[u32], out: &mut String) {
        for index in records {
            let record = &outputs.records[*index as usize];
            let origin = &source.records[record.source as usize];
            let mut line = Map::new();
            line.insert("source".into(), position(source, origin.offset));
            if record.topic > 0
                && let Some(topic) = outputs.topics.get(usize::from(record.topic) - 1)
            {
                line.insert("topic".into(), (**topic).into());
            }
            put_bytes(&mut line, "key", outputs.bytes_of(source, record.key));
            if record.timestamp_ms >= 0 {
                line.insert("timestamp_ms".into(), record.timestamp_ms.into());
            }
            let headers = outputs.headers_of(source, record);
            if !headers.is_empty() {
                let list = headers.iter().map(|h| {
                    let mut header = Map::new();
                    put_bytes(&mut header, "name", outputs.bytes_of(source, h.name));
                    put_bytes(&mut header, "value", outputs.bytes_of(source, h.value));
                    Value::Object(header)
                });
                line.insert("headers".into(), list.collect());
            }
            let text = Value::Object(line).to_string();
            // the value is rendered straight into the line: it is the largest part of it
            out.push_str(&text[..text.len() - 1]);
            self.value(outputs, source, record, out);
            out.push_str("}\n");
        }
    }

    fn value(&self, outputs: &OutputBatch, source: &RecordBatch, record: &OutputRecord, out: &mut String) {
        let Some(bytes) = outputs.bytes_of(source, record.value) else {
            out.push_str(",\"value\":null");
            return;
        };
        let start = out.len();
        out.push_str(",\"value\":");
        let shown = match &self.ports[usize::from(record.port)] {
            PortValues::Raw => Err("no schema".to_owned()),
            PortValues::Avro(schema, prefix) => {
                to_json(schema, &bytes[(*prefix).min(bytes.len())..], &self.limits, out).map_err(|e| e.to_string())
            }
            PortValues::Source => self.source_value(bytes, out),
        };
        if let Err(why) = shown {
            out.truncate(start);
            let mut fields = Map::new();
            put_bytes(&mut fields, "value", Some(bytes));
            if why != "no schema" {
                fields.insert("problem".into(), why.into());
            }
            let text = Value::Object(fields).to_string();
            out.push(',');
            out.push_str(&text[1..text.len() - 1]);
        }
    }

    fn source_value(&self, bytes: &[u8], out: &mut String) -> Result<(), String> {
        match &self.decoding {
            Decoding::Plain(schema) => to_json(schema, bytes, &self.limits, out).map_err(|e| e.to_string()),
            Decoding::Registry(schemas) => {
                let (id, from) = WireFormat::Confluent.strip(bytes).map_err(|e| e.to_string())?;
                match schemas.look_up(id.unwrap_or_default()) {
                    Lookup::Found(schema) => {
                        to_json(&schema, &bytes[from..], &self.limits, out).map_err(|e| e.to_string())
                    }
                    Lookup::Refused(why) | Lookup::Waiting(why) => Err(why),
                }
            }
        }
    }
}

/// Appends one line for a dead letter: where it came from, why, and its bytes.
pub(super) fn dead_letter(source: &RecordBatch, rejection: &Rejection, digest: &str, at_ms: u64, out: &mut String) {
    let record = &source.records[rejection.source as usize];
    let mut line = Map::new();
    line.insert("source".into(), position(source, record.offset));
    line.insert("stage".into(), rejection.stage.word().into());
    line.insert("code".into(), rejection.code.as_ref().into());
    line.insert("message".into(), rejection.message.as_str().into());
    line.insert("plugin".into(), digest.into());
    line.insert("at_ms".into(), at_ms.into());
    put_bytes(&mut line, "key", record.key.of(&source.bytes));
    if record.timestamp_ms >= 0 {
        line.insert("timestamp_ms".into(), record.timestamp_ms.into());
    }
    let headers = source.headers_of(record).iter().map(|h| {
        let mut header = Map::new();
        put_bytes(&mut header, "name", h.name.of(&source.bytes));
        put_bytes(&mut header, "value", h.value.of(&source.bytes));
        Value::Object(header)
    });
    line.insert("headers".into(), headers.collect());
    // always hex: these bytes are what could not be read
    let value = record.value.of(&source.bytes).map(hex);
    line.insert("value_hex".into(), value.map_or(Value::Null, Value::from));
    out.push_str(&Value::Object(line).to_string());
    out.push('\n');
}

fn position(source: &RecordBatch, offset: i64) -> Value {
    json!({ "topic": &*source.topic, "partition": source.partition, "offset": offset })
}

/// Text under `name`, null as null, and whatever is not UTF-8 as hex under `name_hex`.
fn put_bytes(line: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => line.insert(name.into(), Value::Null),
        Some(Ok(text)) => line.insert(name.into(), text.into()),
        Some(Err(_)) => line.insert(format!("{name}_hex"), hex(bytes.unwrap_or_default()).into()),
    };
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}
