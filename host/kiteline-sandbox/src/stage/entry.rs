//! One entry of an output buffer: its extras, topic and value, made into an engine output or a reject. Owns what each kind does on each
//! format of port. An error here rejects the source; what it has written so far is cut off by the caller.

use std::sync::Arc;

use kiteline_avro::{Budget, EntryCheck, EntryError, Patcher, Plan, Refs};
use kiteline_engine::record::{OWN, OutputBatch, OutputRecord, Record, RecordBatch, Span};

use super::{RowSource, RowValue, headers};
use crate::{
    buffers::{
        NULL, i64_at,
        output::{Entry, EntryKind, HEADERS, KEY, OutputBuffer, PARTITION, TIMESTAMP},
        slot_at,
    },
    deployment::{Deployment, Target, Writer},
    text::clean,
};

/// What a reject's code says that an SDK writes for an author's uncaught error.
const CODE_UNCAUGHT: i64 = 1;
/// Bytes of a slot.
const SLOT: usize = 8;

/// What the work on one entry reads and writes; borrowed from the stage for one output buffer.
pub(super) struct Work<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) writers: &'a [Arc<Writer>],
    pub(super) source: &'a RecordBatch,
    pub(super) refs: Refs<'a>,
    pub(super) out: &'a mut OutputBatch,
    pub(super) budget: &'a mut Budget,
    pub(super) topic_numbers: &'a mut [u16],
    pub(super) names: &'a mut [Option<(u8, u16)>],
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) datum: &'a mut Vec<u8>,
}

impl<'a> Work<'a> {
    /// An output of any kind but reject.
    pub(super) fn output(
        &mut self,
        buffer: &OutputBuffer<'_>,
        entry: &Entry,
        row: RowSource,
    ) -> Result<(), EntryError> {
        self.charge(1)?;
        let record = &self.source.records[row.record as usize];
        let topic = match entry.topic {
            0 => 0,
            number => self.topic(buffer, number, entry.port)?,
        };
        let mut output = OutputRecord {
            source: row.record,
            port: entry.port,
            topic,
            partition: -1,
            timestamp_ms: record.timestamp_ms,
            key: record.key,
            value: record.value,
            headers_at: record.headers_at,
            headers_count: record.headers_count,
            headers_kept: true,
        };
        let payload = self.extras(entry, record, &mut output)?;
        output.value = match entry.kind {
            EntryKind::Keep => nothing(payload).and_then(|()| self.keep(record, row.value, entry.port))?,
            EntryKind::Patch => self.patch(record, row.value, entry.port, payload)?,
            EntryKind::Row => self.row(entry.port, payload)?,
            EntryKind::Tombstone => nothing(payload).map(|()| Span::NULL)?,
            EntryKind::Reject => return Err(EntryCheck::Range.into()),
        };
        self.fits(&output)?;
        self.out.records.push(output);
        Ok(())
    }

    /// The message of a reject.
    pub(super) fn reject(&mut self, entry: &Entry) -> Result<String, EntryError> {
        self.charge(1)?;
        let payload = self.payload(entry);
        if payload.len() != 2 * SLOT {
            return Err(EntryCheck::Length.into());
        }
        let code = i64_at(payload, 0);
        if !(0..1 << 31).contains(&code) {
            return Err(EntryCheck::Range.into());
        }
        let (off, len) = slot_at(payload, SLOT);
        let text = clean(self.refs.bytes(off, len)?);
        Ok(match code {
            CODE_UNCAUGHT => text,
            code if text.is_empty() => format!("code {code}"),
            code => format!("{text} (code {code})"),
        })
    }

    /// Extras and payload of an entry; the buffer checks have shown that they are inside.
    fn payload(&self, entry: &Entry) -> &'a [u8] {
        match entry.len {
            0 => &[],
            len => &self.refs.output[entry.off as usize..(entry.off + len) as usize],
        }
    }

    /// Number of a topic of the buffer's table in the output's list, entered there at its first use.
    fn topic(&mut self, buffer: &OutputBuffer<'_>, number: u16, port: u8) -> Result<u16, EntryError> {
        let known = &mut self.names[usize::from(number) - 1];
        if let Some((its_port, found)) = known
            && *its_port == port
        {
            return Ok(*found);
        }
        let (off, len) = buffer.topic(number);
        let name = self.refs.bytes(off, len)?;
        // what is not legal is not in the list, so the list decides
        let topics = self.deployment.topics();
        let at = topics
            .binary_search_by(|topic| topic.as_bytes().cmp(name))
            .ok()
            .filter(|&at| self.deployment.ports()[usize::from(port)].allowed[at])
            .ok_or(EntryCheck::Topic)?;
        if self.topic_numbers[at] == 0 {
            self.out.topics.push(Arc::clone(&topics[at]));
            self.topic_numbers[at] = u16::try_from(self.out.topics.len()).map_err(|_| EntryCheck::Topic)?;
        }
        *known = Some((port, self.topic_numbers[at]));
        Ok(self.topic_numbers[at])
    }

    /// Applies the extras, in the order of their bits, and gives the payload behind them.
    fn extras(&mut self, entry: &Entry, record: &Record, output: &mut OutputRecord) -> Result<&'a [u8], EntryError> {
        let bytes = self.payload(entry);
        let need = SLOT * entry.extras.count_ones() as usize;
        if bytes.len() < need {
            return Err(EntryCheck::Length.into());
        }
        let mut at = 0;
        let mut next = |extra: u8| {
            let here = at;
            let there = entry.extras & extra != 0;
            at += if there { SLOT } else { 0 };
            there.then_some(here)
        };
        let [key, edits, timestamp, partition] = [KEY, HEADERS, TIMESTAMP, PARTITION].map(&mut next);
        if let Some(at) = key {
            let (off, len) = slot_at(bytes, at);
            output.key = if len == NULL { Span::NULL } else { self.copy(self.refs.bytes(off, len)?)? };
        }
        if let Some(at) = edits {
            headers::edit(self, slot_at(bytes, at), record, output)?;
        }
        if let Some(at) = timestamp {
            output.timestamp_ms = ranged(i64_at(bytes, at), i64::MAX)?;
        }
        if let Some(at) = partition {
            let number = ranged(i64_at(bytes, at), i32::MAX.into())?;
            output.partition = i32::try_from(number).map_err(|_| EntryCheck::Range)?;
        }
        Ok(&bytes[need..])
    }

    /// The original value: as it is where the schema stays, else in the port's framing or schema.
    fn keep(&mut self, record: &Record, value: RowValue, port: u8) -> Result<Span, EntryError> {
        let original = self.value(record);
        let (writer, from) = match value {
            RowValue::Tombstone => return Ok(Span::NULL),
            RowValue::Undecodable if self.deployment.ports()[usize::from(port)].avro.is_some() => {
                return Err(EntryCheck::Undecodable.into());
            }
            RowValue::Undecodable => return self.spare(record.value),
            RowValue::Datum { writer, from } => (&self.writers[writer.0 as usize], from as usize),
        };
        match &writer.targets[usize::from(port)] {
            Target::Own => self.spare(record.value),
            Target::Framed if original[..from] == self.prefix(port)[..] => self.spare(record.value),
            Target::Framed => self.own(|work| {
                let deployment = work.deployment;
                work.append(&deployment.ports()[usize::from(port)].prefix)?;
                work.append(&original[from..])
            }),
            Target::Resolved(resolved) => self.own(|work| {
                let deployment = work.deployment;
                work.append(&deployment.ports()[usize::from(port)].prefix)?;
                work.resolve(&resolved.plan, port, &original[from..])?;
                let datum = std::mem::take(work.datum);
                work.out.bytes.extend_from_slice(&datum);
                *work.datum = datum;
                Ok(())
            }),
            Target::Unreachable => Err(EntryCheck::Target.into()),
        }
    }

    /// The original value with some fields replaced.
    fn patch(&mut self, record: &Record, value: RowValue, port: u8, items: &[u8]) -> Result<Span, EntryError> {
        let original = self.value(record);
        let RowValue::Datum { writer, from } = value else {
            return Err(EntryCheck::Undecodable.into());
        };
        let writer = &self.writers[writer.0 as usize];
        let (framing, datum) = original.split_at(from as usize);
        match &writer.targets[usize::from(port)] {
            Target::Own => self.patched(framing, writer.patcher.as_ref(), items, datum),
            Target::Framed => {
                let deployment = self.deployment;
                let prefix = &deployment.ports()[usize::from(port)].prefix;
                self.patched(prefix, writer.patcher.as_ref(), items, datum)
            }
            Target::Resolved(programs) => {
                self.resolve(&programs.plan, port, datum)?;
                let resolved = std::mem::take(self.datum);
                let deployment = self.deployment;
                let prefix = &deployment.ports()[usize::from(port)].prefix;
                let done = self.patched(prefix, programs.patcher.as_ref(), items, &resolved);
                *self.datum = resolved;
                done
            }
            Target::Unreachable => Err(EntryCheck::Target.into()),
        }
    }

    fn patched(
        &mut self,
        framing: &[u8],
        patcher: Option<&Patcher>,
        items: &[u8],
        datum: &[u8],
    ) -> Result<Span, EntryError> {
        let patcher = patcher.ok_or(EntryCheck::Field)?;
        self.own(|work| {
            work.append(framing)?;
            patcher.patch(&work.refs, items, datum, &mut work.out.bytes, work.budget)
        })
    }

    /// A new value: a frame of the port's schema, or of bytes on a raw port.
    fn row(&mut self, port: u8, frame: &[u8]) -> Result<Span, EntryError> {
        let deployment = self.deployment;
        let port = &deployment.ports()[usize::from(port)];
        match &port.avro {
            Some((_, encoder)) => self.own(|work| {
                work.append(&port.prefix)?;
                encoder.encode(&work.refs, frame, &mut work.out.bytes, work.budget)
            }),
            None if frame.len() == SLOT => {
                let (off, len) = slot_at(frame, 0);
                let bytes = self.refs.bytes(off, len)?;
                self.copy(bytes)
            }
            None => Err(EntryCheck::Length.into()),
        }
    }

    /// Decodes a datum to the port's schema and encodes it anew, into `self.datum`.
    fn resolve(&mut self, plan: &Plan, port: u8, datum: &[u8]) -> Result<(), EntryError> {
        let deployment = self.deployment;
        let Some((_, encoder)) = &deployment.ports()[usize::from(port)].avro else {
            return Err(EntryCheck::Target.into());
        };
        let frame_bytes = encoder.frame_bytes() as usize;
        self.scratch.clear();
        self.scratch.resize(frame_bytes, 0);
        let bytes_max = deployment.limits().batch_bytes_max as usize;
        plan.decode(datum, self.scratch, 0, bytes_max).map_err(|_| EntryCheck::Undecodable)?;
        self.datum.clear();
        let refs = Refs { input: self.scratch, input_low: encoder.frame_bytes(), output: &[] };
        encoder.encode(&refs, &self.scratch[..frame_bytes], self.datum, self.budget)
    }

    /// The original value bytes, empty for a tombstone.
    fn value(&self, record: &Record) -> &'a [u8] {
        record.value.of(&self.source.bytes).unwrap_or(&[])
    }

    fn prefix(&self, port: u8) -> &'a [u8] {
        &self.deployment.ports()[usize::from(port)].prefix
    }

    /// A span of the source goes out: no copy, but work for the sink.
    fn spare(&mut self, span: Span) -> Result<Span, EntryError> {
        self.charge(if span.null() { 0 } else { span.len.into() })?;
        Ok(span)
    }

    /// Whatever `write` appends to the outputs' own bytes, as a span. Its work is charged by itself.
    fn own(&mut self, write: impl FnOnce(&mut Self) -> Result<(), EntryError>) -> Result<Span, EntryError> {
        let at = self.out.bytes.len();
        write(self)?;
        let end = self.out.bytes.len();
        if end >= OWN as usize {
            return Err(EntryCheck::TooLarge.into());
        }
        Ok(Span { off: OWN + at as u32, len: (end - at) as u32 })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), EntryError> {
        self.charge(bytes.len() as u64)?;
        self.out.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Bytes of the guest's buffers, copied to the outputs' own.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Result<Span, EntryError> {
        self.own(|work| work.append(bytes))
    }

    /// Takes work off what the batch may still cost.
    pub(super) fn charge(&mut self, work: u64) -> Result<(), EntryError> {
        if self.budget.bytes_left < work.max(1) {
            self.budget.charge(work.max(1));
            return Err(EntryCheck::TooLarge.into());
        }
        self.budget.charge(work);
        Ok(())
    }

    /// Key, value and headers together are no more than a broker takes.
    fn fits(&self, output: &OutputRecord) -> Result<(), EntryError> {
        let len = |span: Span| if span.null() { 0 } else { u64::from(span.len) };
        let mut sum = len(output.key) + len(output.value);
        if output.headers_count > 0 {
            let list = if output.headers_kept { &self.source.headers } else { &self.out.headers };
            let (at, count) = (output.headers_at as usize, output.headers_count as usize);
            sum += list[at..at + count].iter().map(|header| len(header.name) + len(header.value)).sum::<u64>();
        }
        if sum > u64::from(self.deployment.limits().record_bytes_max) {
            return Err(EntryCheck::TooLarge.into());
        }
        Ok(())
    }
}

/// A kind without payload has none.
fn nothing(payload: &[u8]) -> Result<(), EntryError> {
    if payload.is_empty() { Ok(()) } else { Err(EntryCheck::Length.into()) }
}

/// A number from -1, which means none, to `max`.
fn ranged(number: i64, max: i64) -> Result<i64, EntryError> {
    if (-1..=max).contains(&number) { Ok(number) } else { Err(EntryCheck::Range.into()) }
}
