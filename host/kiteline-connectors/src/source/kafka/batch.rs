//! One feed: a partition's queue, how far it has been handed over, and the copying of messages into a batch. Owns no thread and
//! sends no event.

use std::sync::Arc;

use kiteline_engine::{
    ids::{FeedId, TopicPartition},
    record::{Header, OffsetRange, Record, RecordBatch, Span, TimestampKind},
};

use super::faults::{Fault, fault};
use crate::kafka_calls::{Client, Message, Messages, Queue, Signal};

/// Bounds of a batch.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) records_max: usize,
    pub(super) bytes_max: usize,
}

/// What a look at a feed came to.
pub(super) enum Taken {
    /// Nothing new.
    Nothing,
    /// Records, or a position that moved, or an end reached.
    Batch { batch: RecordBatch, at_end: bool },
    /// An error that stands where the next record should.
    Fault(Fault, String),
    /// The client is somewhere else than this feed.
    Astray,
}

/// A partition that is fed.
pub(super) struct Feed {
    pub(super) id: FeedId,
    /// How many batches may still be handed over.
    pub(super) credit: u32,
    /// First offset not handed over.
    next: i64,
    /// Whether the end at `next` was reported.
    ended: bool,
    /// Whether the end of the log was the last thing taken from the queue. See [`Feed::misplaced`].
    end_was_last: bool,
    /// Taken from the queue and not handed over: what did not fit the last batch.
    messages: Messages,
    queue: Queue,
    signal: Arc<Signal>,
}

impl Feed {
    /// Splits off the partition's queue, before the partition is assigned, and empties it of what an earlier feed left.
    pub(super) fn split(client: &Client, partition: &TopicPartition, id: FeedId, from: i64) -> Option<Self> {
        let mut queue = client.partition_queue(&partition.topic, partition.partition)?;
        let signal = Signal::for_this_thread();
        queue.watch(&signal);
        let mut messages = queue.room();
        while queue.take(&mut messages, 1024) == 1024 {}
        messages.skip(messages.len());
        Some(Self { id, credit: 0, next: from, ended: false, end_was_last: false, messages, queue, signal })
    }

    /// First offset not handed over.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    /// Whether librdkafka believes that it handed over one offset more than it did. Its batch call (up to 2.12.1 at least) moves the
    /// application's position by an end of partition as if that were a record (librdkafka#4844), and a partition that is paused during
    /// a rebalance goes on from there: one record would be skipped. Such a feed has to begin anew where it stands.
    pub(super) fn misplaced(&self) -> bool {
        self.end_was_last
    }

    /// Whether a look would be worth it: there is credit, and something came in.
    pub(super) fn promising(&self) -> bool {
        self.credit > 0 && (self.messages.len() > 0 || self.signal.raised())
    }

    /// Takes the next batch, without waiting.
    pub(super) fn take(&mut self, partition: &TopicPartition, bounds: Bounds) -> Taken {
        if self.messages.len() == 0 {
            self.signal.lower();
            if self.queue.take(&mut self.messages, bounds.records_max) == bounds.records_max {
                self.signal.raise();
            }
            if let Some(last) = self.messages.iter().last() {
                self.end_was_last = fault(last.code()) == Fault::End && last.code().failed();
            }
        }
        let plan = self.plan(bounds);
        if plan.messages == 0
            && let Some((fault, at, text)) = plan.fault
        {
            self.messages.skip(1);
            // An answer to a question that was not ours: begin anew where we stand, and see.
            let astray = fault == Fault::OutOfRange && at != self.next;
            return if astray { Taken::Astray } else { Taken::Fault(fault, text) };
        }
        let moved = plan.until > self.next;
        if plan.records == 0 && !moved && (!plan.at_end || self.ended) {
            self.messages.skip(plan.messages);
            return Taken::Nothing;
        }
        let batch = match self.copy(partition, &plan) {
            Ok(batch) => batch,
            Err(text) => return Taken::Fault(Fault::Unreadable, text),
        };
        self.messages.skip(plan.messages);
        self.next = plan.until;
        self.ended = plan.at_end;
        Taken::Batch { batch, at_end: plan.at_end }
    }

    /// Decides which of the messages at hand make the batch, so that they are copied into memory of the right size.
    fn plan(&self, bounds: Bounds) -> Plan {
        let mut plan = Plan { until: self.next, ..Plan::default() };
        for message in self.messages.iter() {
            let code = message.code();
            if !code.failed() && message.offset() < self.next {
                // A pause can make the client fetch again what it has handed over.
            } else if !code.failed() {
                if plan.records >= bounds.records_max || plan.bytes >= bounds.bytes_max {
                    break;
                }
                plan.records += 1;
                plan.bytes += message.bytes_len();
                plan.at_end = false;
                plan.until = plan.until.max(message.offset() + 1);
            } else if fault(code) == Fault::End {
                plan.at_end = true;
                plan.until = plan.until.max(message.offset());
            } else {
                plan.fault = Some((fault(code), message.offset(), message.error_text()));
                break;
            }
            plan.messages += 1;
        }
        plan
    }

    /// Copies the planned records; an error if headers cannot be read, and then nothing is used up.
    fn copy(&self, partition: &TopicPartition, plan: &Plan) -> Result<RecordBatch, String> {
        let mut batch = RecordBatch {
            topic: Arc::clone(&partition.topic),
            partition: partition.partition,
            range: OffsetRange { from: self.next, until: plan.until },
            records: Vec::with_capacity(plan.records),
            headers: Vec::new(),
            bytes: Vec::with_capacity(plan.bytes),
        };
        for message in self.messages.iter().take(plan.messages) {
            if !message.code().failed() && message.offset() >= self.next {
                copy_record(&mut batch, message)?;
            }
        }
        Ok(batch)
    }
}

/// Which messages make a batch.
#[derive(Default)]
struct Plan {
    /// Messages used up, errors of no consequence included.
    messages: usize,
    records: usize,
    bytes: usize,
    until: i64,
    at_end: bool,
    /// What stands behind them, and at which offset.
    fault: Option<(Fault, i64, String)>,
}

/// Appends bytes and says where they are.
fn append(bytes: &mut Vec<u8>, more: Option<&[u8]>) -> Span {
    let Some(more) = more else { return Span::NULL };
    let span = Span { off: bytes.len() as u32, len: more.len() as u32 };
    bytes.extend_from_slice(more);
    span
}

fn copy_record(batch: &mut RecordBatch, message: Message<'_>) -> Result<(), String> {
    let (timestamp_ms, kind) = message.timestamp();
    let headers_at = batch.headers.len() as u32;
    let key = append(&mut batch.bytes, message.key());
    let value = append(&mut batch.bytes, message.value());
    let (headers, bytes) = (&mut batch.headers, &mut batch.bytes);
    let readable = message.headers(|name, value| {
        let name = append(bytes, Some(name));
        headers.push(Header { name, value: append(bytes, value) });
    });
    if !readable {
        return Err(format!("the headers of offset {} cannot be read", message.offset()));
    }
    batch.records.push(Record {
        offset: message.offset(),
        timestamp_ms,
        // -1 is "there is none", whoever was to set it.
        timestamp_kind: match kind {
            Some(true) if timestamp_ms != -1 => TimestampKind::Append,
            Some(false) if timestamp_ms != -1 => TimestampKind::Create,
            _ => TimestampKind::None,
        },
        key,
        value,
        headers_at,
        headers_count: batch.headers.len() as u32 - headers_at,
    });
    Ok(())
}
