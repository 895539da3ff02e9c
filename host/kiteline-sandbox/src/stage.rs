//! Where outputs wait until `process` returns: takes output buffers as they are emitted, checks them, and stages what they ask for as
//! engine outputs and rejections, which are thrown away together if the call fails. Owns the counting of a call's limits and the rule
//! that a reject withdraws what its source has put out. Not here: the format of buffers, and how one entry becomes bytes.

mod entry;
mod headers;

use std::{borrow::Cow, sync::Arc};

use kiteline_avro::{Budget, EntryError, Refs};
use kiteline_engine::record::{OutputBatch, OutputRecord, RecordBatch, Rejection, Stage as StageWord};

use self::entry::Work;
use crate::{
    buffers::output::{Entry, EntryKind, OutputBuffer},
    deployment::{Deployment, Writer, WriterId},
    runtime::Ticks,
};

/// What a row of the input buffer stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSource {
    /// Index of the record in its batch.
    pub(crate) record: u32,
    /// What was found out about its value.
    pub(crate) value: RowValue,
}

/// What was found out about the value of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowValue {
    /// There is none.
    Tombstone,
    /// It cannot be decoded.
    Undecodable,
    /// It was written with this schema; the datum begins here.
    Datum {
        /// Schema.
        writer: WriterId,
        /// First byte of the datum in the value.
        from: u32,
    },
}

/// Why a buffer was not taken. Any of them fails the batch, whatever the guest does then: no output may vanish.
pub(crate) enum Refusal {
    /// More bytes than one call may emit.
    Bytes,
    /// More entries than one call may emit.
    Entries,
    /// A buffer check failed: entry and check.
    Malformed(String),
    /// Time ran out while the host worked on the buffer.
    Deadline,
}

impl Refusal {
    fn text(&self, stage: &Stage) -> String {
        let limits = stage.deployment.limits();
        match self {
            Self::Bytes => format!("emit was refused: more than {} bytes in one batch", limits.emit_bytes_max),
            Self::Entries => format!("emit was refused: more than {} entries in one batch", limits.emit_entries_max),
            Self::Malformed(check) => format!("emit was refused: malformed, {check}"),
            Self::Deadline => "emit was refused: the deadline passed".into(),
        }
    }
}

/// Numbers of records by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Outputs with the original value.
    pub(crate) kept: u32,
    /// Outputs with an edited value.
    pub(crate) patched: u32,
    /// Outputs with a new value or none.
    pub(crate) emitted: u32,
    /// Rows without any entry.
    pub(crate) dropped: u32,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.kept += other.kept;
        self.patched += other.patched;
        self.emitted += other.emitted;
        self.dropped += other.dropped;
    }
}

/// How much is staged, to cut back to.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    records: usize,
    headers: usize,
    bytes: usize,
    rejected: usize,
}

/// The source row whose entries are being taken.
#[derive(Clone, Copy, Debug)]
struct Current {
    row: u32,
    /// What was staged before its first entry.
    mark: Mark,
    tally: Tally,
    rejected: bool,
}

/// What one call of `process` may still do and has done.
struct Part {
    first: u32,
    rows: u32,
    heap_at: u32,
    mark: Mark,
    /// Lowest source row that the next entry may have.
    lowest: u32,
    bytes_left: usize,
    entries_left: u32,
    budget: Budget,
    /// Tick at which its time is over.
    until: u64,
    current: Option<Current>,
    /// Rows with at least one entry.
    answered: u32,
    tally: Tally,
    /// Why the first refused buffer was refused.
    refused: Option<String>,
}

/// See the module's documentation. Lives as long as its transformer; its memory is reused from batch to batch.
pub(crate) struct Stage {
    deployment: Deployment,
    ticks: Ticks,
    writers: Vec<Arc<Writer>>,
    out: OutputBatch,
    rejected: Vec<Rejection>,
    /// Records that are kept without asking the guest: tombstones that it does not want. By ascending index.
    unasked: Vec<u32>,
    /// For each topic of the deployment its number in `out.topics`, 0 if it has none yet.
    topic_numbers: Vec<u16>,
    rows: Vec<RowSource>,
    /// The input buffer as the host wrote it, while a call runs.
    input: Arc<Vec<u8>>,
    part: Part,
    tally: Tally,
    /// For each topic of the current output buffer its number in `out.topics` once it was resolved, by port.
    names: Vec<Option<(u8, u16)>>,
    scratch: Vec<u8>,
    datum: Vec<u8>,
}

impl Stage {
    pub(crate) fn new(deployment: &Deployment) -> Self {
        let part = Part {
            first: 0,
            rows: 0,
            heap_at: 0,
            mark: Mark::default(),
            lowest: 0,
            bytes_left: 0,
            entries_left: 0,
            budget: Budget::new(0),
            until: 0,
            current: None,
            answered: 0,
            tally: Tally::default(),
            refused: None,
        };
        Self {
            deployment: deployment.clone(),
            ticks: deployment.plugin().runtime().ticks().clone(),
            writers: Vec::new(),
            out: OutputBatch::default(),
            rejected: Vec::new(),
            unasked: Vec::new(),
            topic_numbers: vec![0; deployment.topics().len()],
            rows: Vec::new(),
            input: Arc::default(),
            part,
            tally: Tally::default(),
            names: Vec::new(),
            scratch: Vec::new(),
            datum: Vec::new(),
        }
    }

    /// Before a batch: takes the caller's lists, emptied, to fill them.
    pub(crate) fn begin(&mut self, mut out: OutputBatch, mut rejected: Vec<Rejection>) {
        out.clear();
        rejected.clear();
        self.out = out;
        self.rejected = rejected;
        self.unasked.clear();
        self.topic_numbers.fill(0);
        self.tally = Tally::default();
        self.deployment.catch_up(&mut self.writers);
    }

    /// After a batch: everything in the order of its sources.
    pub(crate) fn end(&mut self, batch: &RecordBatch) -> (OutputBatch, Vec<Rejection>, Tally) {
        let mut out = std::mem::take(&mut self.out);
        merge(&mut out.records, &self.unasked, batch);
        self.tally.kept += u32::try_from(self.unasked.len()).unwrap_or(u32::MAX);
        let mut rejected = std::mem::take(&mut self.rejected);
        rejected.sort_by_key(|rejection| rejection.source);
        (out, rejected, self.tally)
    }

    /// The writers that were known when the batch began.
    pub(crate) fn writers(&self) -> &[Arc<Writer>] {
        &self.writers
    }

    /// Forgets the rows of the buffer before.
    pub(crate) fn clear_rows(&mut self) {
        self.rows.clear();
    }

    /// The next row of the buffer.
    pub(crate) fn push_row(&mut self, row: RowSource) {
        self.rows.push(row);
    }

    /// Keeps a record without asking the guest.
    pub(crate) fn keep_unasked(&mut self, record: u32) {
        self.unasked.push(record);
    }

    /// Sets a record aside without asking the guest.
    pub(crate) fn reject_unasked(&mut self, rejection: Rejection) {
        self.rejected.push(rejection);
    }

    /// Before a call of `process` with `rows` rows from `first`.
    pub(crate) fn begin_part(&mut self, input: Arc<Vec<u8>>, heap_at: u32, first: u32, rows: u32) {
        let limits = *self.deployment.limits();
        self.input = input;
        self.part = Part {
            first,
            rows,
            heap_at,
            mark: self.mark(),
            lowest: 0,
            bytes_left: limits.emit_bytes_max as usize,
            entries_left: limits.emit_entries_max,
            budget: Budget::new(limits.output_bytes_max.into()),
            until: self.ticks.now() + u64::from(limits.call_deadline_ms) + 1,
            current: None,
            answered: 0,
            tally: Tally::default(),
            refused: None,
        };
    }

    /// After a call: gives the input buffer back, so that it can be written again. Tells why a buffer was refused, if one was.
    pub(crate) fn end_part(&mut self) -> Option<String> {
        // an empty Arc is made once per process, not per call
        self.input = empty();
        self.part.refused.take()
    }

    /// What the call put out holds.
    pub(crate) fn commit(&mut self) {
        if let Some(current) = self.part.current.take() {
            self.part.tally.add(current.tally);
        }
        self.part.tally.dropped = self.part.rows - self.part.answered;
        self.tally.add(self.part.tally);
    }

    /// What the call put out is thrown away.
    pub(crate) fn roll_back(&mut self) {
        self.cut(self.part.mark);
    }

    /// Rejects some rows for the same reason.
    pub(crate) fn reject_rows(&mut self, first: u32, rows: u32, code: &'static str, message: &str) {
        for row in &self.rows[first as usize..(first + rows) as usize] {
            self.rejected.push(Rejection {
                source: row.record,
                stage: StageWord::Transform,
                code: Cow::Borrowed(code),
                message: message.to_owned(),
            });
        }
    }

    /// Takes one output buffer. All of it is checked before any of it is used.
    pub(crate) fn take(&mut self, bytes: &[u8], source: &RecordBatch) -> Result<(), Refusal> {
        if self.part.refused.is_some() {
            return Err(Refusal::Malformed("an earlier buffer of this batch was refused".into()));
        }
        let taken = self.try_take(bytes, source);
        if let Err(refusal) = &taken {
            self.part.refused = Some(refusal.text(self));
        }
        taken
    }

    fn try_take(&mut self, bytes: &[u8], source: &RecordBatch) -> Result<(), Refusal> {
        let part = &mut self.part;
        part.bytes_left = part.bytes_left.checked_sub(bytes.len()).ok_or(Refusal::Bytes)?;
        let buffer = OutputBuffer::header(bytes).map_err(|check| Refusal::Malformed(check.into()))?;
        part.entries_left = part.entries_left.checked_sub(buffer.entries()).ok_or(Refusal::Entries)?;
        part.lowest = buffer
            .check(part.rows, part.lowest, self.deployment.port_kinds())
            .map_err(|(entry, check)| Refusal::Malformed(format!("entry {entry}: {check}")))?;
        self.names.clear();
        self.names.resize(buffer.topics() as usize, None);
        for index in 0..buffer.entries() {
            if self.ticks.now() >= self.part.until {
                return Err(Refusal::Deadline);
            }
            if let Some(entry) = buffer.entry(index) {
                self.entry(&buffer, &entry, source);
            }
        }
        Ok(())
    }

    fn entry(&mut self, buffer: &OutputBuffer<'_>, entry: &Entry, source: &RecordBatch) {
        let row = self.part.first + entry.source;
        self.turn_to(row);
        let mark = self.mark();
        let Some(current) = &mut self.part.current else {
            return;
        };
        if current.rejected {
            self.part.budget.charge(1);
            return;
        }
        let info = self.rows[row as usize];
        let mut work = Work {
            deployment: &self.deployment,
            writers: &self.writers,
            source,
            refs: Refs { input: &self.input, input_low: self.part.heap_at, output: buffer.bytes() },
            out: &mut self.out,
            budget: &mut self.part.budget,
            topic_numbers: &mut self.topic_numbers,
            names: &mut self.names,
            scratch: &mut self.scratch,
            datum: &mut self.datum,
        };
        let done = match entry.kind {
            EntryKind::Reject => work.reject(entry).map(Some),
            _ => work.output(buffer, entry, info).map(|()| None),
        };
        match (done, entry.kind) {
            (Ok(None), EntryKind::Keep) => current.tally.kept += 1,
            (Ok(None), EntryKind::Patch) => current.tally.patched += 1,
            (Ok(None), _) => current.tally.emitted += 1,
            (Ok(Some(message)), _) => self.withdraw(info.record, Cow::Borrowed("transform.reject"), message),
            (Err(EntryError(check)), _) => {
                self.cut(mark);
                let code = Cow::Owned(format!("transform.{}", check.name()));
                self.withdraw(info.record, code, check.sentence().into());
            }
        }
    }

    /// Entries of a source stand together, since sources never decrease: remembers where those of this one begin.
    fn turn_to(&mut self, row: u32) {
        match self.part.current {
            Some(current) if current.row == row => return,
            Some(before) => self.part.tally.add(before.tally),
            None => {}
        }
        self.part.answered += 1;
        self.part.current = Some(Current { row, mark: self.mark(), tally: Tally::default(), rejected: false });
    }

    /// Rejects the current source: whatever it has put out is taken back, and whatever is to come is ignored.
    fn withdraw(&mut self, record: u32, code: Cow<'static, str>, message: String) {
        if let Some(current) = &mut self.part.current {
            current.tally = Tally::default();
            current.rejected = true;
            let mark = current.mark;
            self.cut(mark);
        }
        self.rejected.push(Rejection { source: record, stage: StageWord::Transform, code, message });
    }

    fn mark(&self) -> Mark {
        Mark {
            records: self.out.records.len(),
            headers: self.out.headers.len(),
            bytes: self.out.bytes.len(),
            rejected: self.rejected.len(),
        }
    }

    fn cut(&mut self, mark: Mark) {
        self.out.records.truncate(mark.records);
        self.out.headers.truncate(mark.headers);
        self.out.bytes.truncate(mark.bytes);
        self.rejected.truncate(mark.rejected);
    }
}

/// The empty input buffer, shared.
fn empty() -> Arc<Vec<u8>> {
    static EMPTY: std::sync::LazyLock<Arc<Vec<u8>>> = std::sync::LazyLock::new(Arc::default);
    Arc::clone(&EMPTY)
}

/// Puts the records with the indexes `unasked` among the outputs as kept ones, both by ascending source, in place from the end.
fn merge(records: &mut Vec<OutputRecord>, unasked: &[u32], batch: &RecordBatch) {
    let Some(&any) = unasked.first() else { return };
    let mut from = records.len();
    records.resize(from + unasked.len(), kept(batch, any));
    let mut to = records.len();
    for &record in unasked.iter().rev() {
        while from > 0 && records[from - 1].source > record {
            from -= 1;
            to -= 1;
            records[to] = records[from];
        }
        to -= 1;
        records[to] = kept(batch, record);
    }
}

/// A record kept on port 0 as it is.
fn kept(batch: &RecordBatch, index: u32) -> OutputRecord {
    let record = &batch.records[index as usize];
    OutputRecord {
        source: index,
        port: 0,
        topic: 0,
        partition: -1,
        timestamp_ms: record.timestamp_ms,
        key: record.key,
        value: record.value,
        headers_at: record.headers_at,
        headers_count: record.headers_count,
        headers_kept: true,
    }
}
