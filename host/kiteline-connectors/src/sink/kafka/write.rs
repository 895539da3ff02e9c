//! Handing records to the client: checks what can be known beforehand, copies the rest. Owns no state.
//!
//! Records leave by the call for one message, since only that one takes timestamps and headers. librdkafka's batch call was
//! measured beside it (examples/kafka_throughput.rs) and costs the same: what both do for a record is the bulk of it.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use kiteline_engine::record::{OutputBatch, OutputRecord, RecordBatch};

use super::{
    DeadLetter, SinkEvent, TopicFacts,
    producer::{Producing, Target},
    tickets::Tickets,
};
use crate::kafka_calls::{Code, Headers, Outgoing};

/// Bytes of a batch of one record that are not the record: Kafka's record batch, version 2.
const BATCH_OVERHEAD: usize = 61;

/// What happens to a record.
enum Fate {
    /// It is the client's, and brings a report.
    Sent,
    /// It can never be written.
    Refused(String),
    /// It was not written this time; nothing behind it needs to be tried.
    Failed(String),
}

/// Keeps the books of one ticket while its records are handed over.
struct Handing<'a> {
    producing: &'a Producing,
    place: u32,
    /// Records that bring no report.
    unsent: u32,
    now_ms: i64,
}

impl<'a> Handing<'a> {
    /// Opens the ticket; if there is no place in time, it has failed.
    fn open(producing: &'a Producing, ticket: u64, records: usize) -> Option<Self> {
        let Some(place) = producing.tickets().open(ticket, records as u32, producing.delivery_timeout) else {
            let message = "too much is under way, and nothing was acknowledged in time".to_owned();
            producing.end_lanes();
            producing.tell(Some(SinkEvent::Failed { ticket, message }));
            return None;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(Self { producing, place, unsent: 0, now_ms: now.as_millis() as i64 })
    }

    /// Closes the ticket; `rest` records were not tried, because one before them failed.
    fn close(self, rest: usize) {
        let event = self.producing.tickets().handed_over(self.place, self.unsent + rest as u32);
        self.producing.tell(event);
    }

    /// The topic; if there is none of that name, the ticket fails.
    fn target(&self, topic: &str) -> Result<Arc<Target>, ()> {
        let target = self.producing.target(topic).map_err(|code| {
            self.producing.tickets().fail(self.place, 1, &format!("topic '{topic}': {code}"));
        })?;
        if target.facts.as_ref().is_none_or(|facts| facts.note.is_some()) {
            self.producing.tickets().sizes_unknown(self.place);
        }
        Ok(target)
    }

    /// Books what became of record `index`; false if the rest need not be tried.
    fn book(&mut self, index: u32, fate: Fate) -> bool {
        match fate {
            Fate::Sent => return true,
            Fate::Refused(why) => self.producing.tickets().refuse(self.place, index, why),
            Fate::Failed(why) => {
                self.producing.tickets().fail(self.place, 1, &why);
                self.producing.end_lanes();
                self.unsent += 1;
                return false;
            }
        }
        self.unsent += 1;
        true
    }

    /// Checks one record and hands it over.
    fn send(&self, target: &Target, message: Outgoing<'_>, header_bytes: usize, headers: Option<Headers>) -> Fate {
        if let Some(why) = self.unfit(target.facts.as_ref(), &message, header_bytes) {
            return Fate::Refused(why);
        }
        target.topic.produce(message, headers).map_or_else(|code| self.fate(&message, code), |()| Fate::Sent)
    }

    /// Why the topic can never take this record.
    fn unfit(&self, facts: Option<&TopicFacts>, message: &Outgoing<'_>, header_bytes: usize) -> Option<String> {
        let facts = facts?;
        let size = record_bytes(message.key, message.value, header_bytes);
        if !self.producing.compressed && size > facts.bytes_max as usize {
            return Some(format!("record too large: {size} bytes, topic '{}' takes {}", facts.topic, facts.bytes_max));
        }
        if facts.compacted && message.key.is_none() {
            return Some(format!("record without a key, topic '{}' is compacted", facts.topic));
        }
        let at = message.timestamp_ms;
        if at != -1 && !facts.append_time {
            let (past, future) =
                (self.now_ms.saturating_sub(facts.past_ms_max), self.now_ms.saturating_add(facts.future_ms_max));
            if at < past || at > future {
                return Some(format!("timestamp {at} is outside of what topic '{}' takes", facts.topic));
            }
        }
        None
    }

    /// What a refusal by the client itself means.
    fn fate(&self, message: &Outgoing<'_>, code: Code) -> Fate {
        match code.0 {
            10 => Fate::Refused("record too large for the client".to_owned()),
            -190 => Fate::Refused(format!("partition {} does not exist", message.partition)),
            _ => Fate::Failed(code.to_string()),
        }
    }
}

/// See [`super::KafkaSink::write`].
pub(super) fn outputs(
    producing: &Producing,
    ticket: u64,
    source: &RecordBatch,
    outputs: &OutputBatch,
    records: &[u32],
    default_topic: &str,
) {
    let Some(mut handing) = Handing::open(producing, ticket, records.len()) else { return };
    let Ok(targets) = targets(&handing, outputs, records, default_topic) else { return handing.close(records.len()) };
    for (at, &index) in records.iter().enumerate() {
        let record = &outputs.records[index as usize];
        let Some(target) = targets[record.topic as usize].as_deref() else {
            unreachable!("every topic named was asked for")
        };
        let message = outgoing(handing.place, source, outputs, index, record);
        let (headers, header_bytes) = headers(source, outputs, record);
        let fate = handing.send(target, message, header_bytes, headers);
        if !handing.book(index, fate) {
            return handing.close(records.len() - at - 1);
        }
    }
    handing.close(0);
}

/// The topics that these records name, each asked for once; index 0 is the default.
fn targets(
    handing: &Handing<'_>,
    outputs: &OutputBatch,
    records: &[u32],
    default_topic: &str,
) -> Result<Vec<Option<Arc<Target>>>, ()> {
    let mut targets: Vec<Option<Arc<Target>>> = vec![None; outputs.topics.len() + 1];
    for &index in records {
        let topic = outputs.records[index as usize].topic as usize;
        if targets[topic].is_none() {
            let name = if topic == 0 { default_topic } else { &outputs.topics[topic - 1] };
            targets[topic] = Some(handing.target(name)?);
        }
    }
    Ok(targets)
}

fn outgoing<'a>(
    place: u32,
    source: &'a RecordBatch,
    outputs: &'a OutputBatch,
    index: u32,
    record: &OutputRecord,
) -> Outgoing<'a> {
    Outgoing {
        partition: record.partition,
        key: outputs.bytes_of(source, record.key),
        value: outputs.bytes_of(source, record.value),
        timestamp_ms: sent_timestamp(record.timestamp_ms),
        opaque: Tickets::opaque(place, index),
    }
}

/// librdkafka takes 0 for "now".
fn sent_timestamp(timestamp_ms: i64) -> i64 {
    if timestamp_ms == 0 { 1 } else { timestamp_ms }
}

/// The record's headers for the client, and the bytes that they take in a batch.
fn headers(source: &RecordBatch, outputs: &OutputBatch, record: &OutputRecord) -> (Option<Headers>, usize) {
    if record.headers_count == 0 {
        return (None, 0);
    }
    let mut list = Headers::with_capacity(record.headers_count as usize);
    let mut bytes = 0;
    for header in outputs.headers_of(source, record) {
        let name = outputs.bytes_of(source, header.name).unwrap_or_default();
        let value = outputs.bytes_of(source, header.value);
        list.add(name, value);
        bytes += header_bytes(name, value);
    }
    (Some(list), bytes)
}

/// See [`super::KafkaSink::write_dead_letters`].
pub(super) fn dead_letters(producing: &Producing, ticket: u64, topic: &str, letters: &[DeadLetter<'_>]) {
    let Some(mut handing) = Handing::open(producing, ticket, letters.len()) else { return };
    let Ok(target) = handing.target(topic) else { return handing.close(letters.len()) };
    for (index, letter) in letters.iter().enumerate() {
        let mut list = (!letter.headers.is_empty()).then(|| Headers::with_capacity(letter.headers.len()));
        let mut bytes = 0;
        for (name, value) in &letter.headers {
            if let Some(list) = &mut list {
                list.add(name, *value);
            }
            bytes += header_bytes(name, *value);
        }
        let message = Outgoing {
            partition: -1,
            key: letter.key,
            value: letter.value,
            timestamp_ms: sent_timestamp(letter.timestamp_ms),
            opaque: Tickets::opaque(handing.place, index as u32),
        };
        let fate = handing.send(&target, message, bytes, list);
        if !handing.book(index as u32, fate) {
            return handing.close(letters.len() - index - 1);
        }
    }
    handing.close(0);
}

/// Bytes of a signed variable-length number, zigzag, as in Kafka's record format.
fn varint_len(number: i64) -> usize {
    let zigzag = (number << 1) ^ (number >> 63);
    (64 - (zigzag | 1).leading_zeros() as usize).div_ceil(7)
}

fn with_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint_len(bytes.len() as i64) + bytes.len())
}

fn header_bytes(name: &[u8], value: Option<&[u8]>) -> usize {
    with_len(Some(name)) + with_len(value)
}

/// Bytes of a batch that holds only this record, which is what a broker compares with `max.message.bytes`. Attributes and both deltas
/// take a byte each; the header count takes one below 64 headers, and at most five.
fn record_bytes(key: Option<&[u8]>, value: Option<&[u8]>, header_bytes: usize) -> usize {
    let record = 3 + with_len(key) + with_len(value) + 1 + header_bytes;
    BATCH_OVERHEAD + varint_len(record as i64) + record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_many_bytes_as_in_kafka() {
        for (number, bytes) in
            [(0, 1), (-1, 1), (63, 1), (64, 2), (-64, 1), (-65, 2), (8191, 2), (8192, 3), (i64::MAX, 10)]
        {
            assert_eq!(varint_len(number), bytes, "{number}");
        }
    }

    #[test]
    fn a_batch_of_one_has_kafkas_size() {
        // 61 + length 1 + attributes 1 + timestamp delta 1 + offset delta 1 + null key 1 + value length 1 + 10 + header count 1
        assert_eq!(record_bytes(None, Some(&[0; 10]), 0), 78);
        assert_eq!(record_bytes(Some(b""), None, header_bytes(b"k", None)), 61 + 1 + 3 + 1 + 1 + 1 + 3);
    }
}
