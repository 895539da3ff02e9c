//! One live instance and its buffers, owned by one worker thread: rows in, outcomes out. Owns the order of a batch, the parts it is
//! halved into when the guest breaks, and the replacement of instances. Not here: what one row or entry looks like.

use std::{
    borrow::Cow,
    sync::Arc,
    thread::{self, ThreadId},
    time::Instant,
};

use kiteline_avro::Reason;
use kiteline_engine::record::{OutputBatch, RecordBatch, Rejection, Stage as StageWord};

use crate::{
    buffers::input::{InputBuffer, narrow},
    deployment::{Deployment, WriterId},
    error::Error,
    host::{Console, LogLine, SOURCE},
    instance::{Instance, Outcome},
    stack,
    stage::{RowSource, RowValue, Stage},
    text::clean,
};

/// What the decode stage found out about a record before the guest sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datum {
    /// There is no value.
    Tombstone,
    /// The value has a datum.
    At {
        /// Schema that it was written with, from [`Deployment::writer`].
        writer: WriterId,
        /// First byte of the datum in the value: what lies before is framing.
        from: u32,
    },
    /// The value cannot be decoded.
    Undecodable {
        /// The contract's decode error, 1 to 8.
        code: u16,
        /// What a person reads.
        message: String,
    },
}

/// What one batch did and cost.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Rows that the guest saw, each counted once.
    pub rows: u32,
    /// Outputs with the original value, tombstones kept without asking included.
    pub kept: u32,
    /// Outputs with an edited value.
    pub patched: u32,
    /// Outputs with a new value, or with none.
    pub emitted: u32,
    /// Rows for which the guest said nothing.
    pub dropped: u32,
    /// Calls that ended in a trap.
    pub traps: u32,
    /// Calls that passed their deadline.
    pub deadlines: u32,
    /// Instances made.
    pub instances: u32,
    /// Time inside calls of `process` in nanoseconds, the host's work for them included.
    pub guest_ns: u64,
    /// Log lines and counter calls beyond their limits.
    pub cut: u32,
    /// What the guest logged.
    pub log: Vec<LogLine>,
    /// What the guest counted, by name.
    pub counters: Vec<(String, u64)>,
}

/// See the module's documentation.
pub struct Transformer {
    deployment: Deployment,
    /// None after a trap or a deadline, until the next call.
    instance: Option<Instance>,
    /// The console while there is no instance.
    console: Console,
    /// None only while a call runs.
    stage: Option<Box<Stage>>,
    /// Shared with the stage while a call runs.
    input: Arc<Vec<u8>>,
    /// Parts of the buffer that are still to be called for, the next one last.
    parts: Vec<(u32, u32)>,
    /// Thread whose stack was found to be large enough.
    checked: Option<ThreadId>,
}

/// How one call ended.
enum Ended {
    Well,
    Badly {
        /// Guilty row of the call, if the guest named one.
        at: Option<u32>,
        code: &'static str,
        message: String,
    },
}

/// A buffer that is ready for the guest.
struct Filled {
    /// First record that is not in it.
    next: usize,
    rows: u32,
    heap_at: u32,
}

impl Transformer {
    /// Opens an instance.
    ///
    /// # Errors
    ///
    /// The thread's stack is too small, no slot is free, or the plugin did not open although it did at deployment.
    pub fn new(deployment: &Deployment) -> Result<Self, Error> {
        stack::check(deployment.plugin().runtime().limits().stack_bytes)?;
        Ok(Self {
            deployment: deployment.clone(),
            instance: Some(deployment.instance(Console::default())?),
            console: Console::default(),
            stage: Some(Box::new(Stage::new(deployment))),
            input: Arc::default(),
            parts: Vec::new(),
            checked: None,
        })
    }

    /// One batch: every record ends as outputs, a drop, or a rejection. `data` says what was found out about each record, in the
    /// order of `batch.records`. `out` and `rejected` are emptied first and filled in the order of their sources.
    ///
    /// Traps, deadlines, faults and refused output buffers are handled here: what was staged is thrown away, a broken instance is
    /// replaced, and the rows are halved until the guilty one stands alone (of n rows at most 2n - 1 calls). A plugin that
    /// keeps state is not replayed: all rows of the failed call are rejected.
    ///
    /// # Errors
    ///
    /// Only the host's own: no instance can be had, or not opened again. Then `out` and `rejected` are empty and nothing happened.
    pub fn transform(
        &mut self,
        batch: &RecordBatch,
        data: &[Datum],
        out: &mut OutputBatch,
        rejected: &mut Vec<Rejection>,
    ) -> Result<Report, Error> {
        assert_eq!(batch.records.len(), data.len(), "one datum per record");
        self.check_thread()?;
        let mut report = Report::default();
        self.stage().begin(std::mem::take(out), std::mem::take(rejected));
        let done = self.run_all(batch, data, &mut report);
        let (mut outputs, mut rejections, tally) = self.stage().end(batch);
        if done.is_err() {
            outputs.clear();
            rejections.clear();
        }
        (*out, *rejected) = (outputs, rejections);
        done?;
        report.kept = tally.kept;
        report.patched = tally.patched;
        report.emitted = tally.emitted;
        report.dropped = tally.dropped;
        (report.log, report.cut, report.counters) = self.console().drain();
        Ok(report)
    }

    /// The last call before a planned stop, a swap or a rebalance. It cannot emit.
    ///
    /// # Errors
    ///
    /// What the plugin says, or that it broke.
    pub fn flush(&mut self) -> Result<(), Error> {
        let Some(instance) = &mut self.instance else {
            return Ok(());
        };
        let flushed = instance.flush();
        if matches!(flushed, Err(Error::Broke { .. })) {
            self.discard();
        }
        flushed
    }

    fn run_all(&mut self, batch: &RecordBatch, data: &[Datum], report: &mut Report) -> Result<(), Error> {
        let mut at = 0;
        while at < data.len() {
            let Filled { next, rows, heap_at } = self.fill(batch, data, at);
            debug_assert!(next > at, "a buffer takes at least one record or rejects it");
            at = next;
            report.rows += rows;
            self.run(batch, rows, heap_at, report)?;
        }
        Ok(())
    }

    /// Calls the guest for all rows of the buffer, in parts if it must be.
    fn run(&mut self, batch: &RecordBatch, rows: u32, heap_at: u32, report: &mut Report) -> Result<(), Error> {
        let stateless = self.deployment.manifest().stateless;
        self.parts.clear();
        self.parts.push((0, rows));
        while let Some((first, rows)) = self.parts.pop() {
            if rows == 0 {
                continue;
            }
            let (at, code, message) = match self.call(batch, heap_at, first, rows, report)? {
                Ended::Well => continue,
                Ended::Badly { at, code, message } => (at, code, message),
            };
            match at {
                _ if rows == 1 => self.stage().reject_rows(first, 1, code, &message),
                _ if !stateless => {
                    let message = format!("{message} ({rows} records failed together, since the plugin keeps state)");
                    self.stage().reject_rows(first, rows, code, &message);
                }
                // The parts lie on a stack: what comes first is pushed last.
                Some(at) if at < rows => {
                    self.stage().reject_rows(first + at, 1, code, &message);
                    self.parts.push((first + at + 1, rows - at - 1));
                    self.parts.push((first, at));
                }
                _ => {
                    let half = rows / 2;
                    self.parts.push((first + half, rows - half));
                    self.parts.push((first, half));
                }
            }
        }
        Ok(())
    }

    /// One call of `process`. Afterwards its outputs hold or are gone, and a broken instance is gone too.
    fn call(
        &mut self,
        batch: &RecordBatch,
        heap_at: u32,
        first: u32,
        rows: u32,
        report: &mut Report,
    ) -> Result<Ended, Error> {
        if self.instance.is_none() {
            self.instance = Some(self.deployment.instance(std::mem::take(&mut self.console))?);
            report.instances += 1;
        }
        let instance = self.instance.as_mut().expect("it was made just now if it was missing");
        let deadline_ms = self.deployment.limits().call_deadline_ms;
        narrow(Arc::get_mut(&mut self.input).expect("the stage holds it only during a call"), first, rows);
        let mut stage = self.stage.take().expect("it is put back after every call");
        stage.begin_part(Arc::clone(&self.input), heap_at, first, rows);
        let started = Instant::now();
        let (mut stage, outcome) = SOURCE.set(batch, || instance.process(&self.input, deadline_ms, stage));
        report.guest_ns += u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let refused = stage.end_part();
        let broken = matches!(outcome, Outcome::Trap(_) | Outcome::Deadline);
        let ended = match (outcome, refused) {
            (Outcome::Ok, None) => Ended::Well,
            (Outcome::Ok, Some(message)) => Ended::Badly { at: None, code: "transform.fault", message },
            (Outcome::Fault { at, message }, _) => Ended::Badly { at, code: "transform.fault", message },
            (Outcome::Trap(message), _) => {
                report.traps += 1;
                Ended::Badly { at: None, code: "transform.trap", message }
            }
            (Outcome::Deadline, _) => {
                report.deadlines += 1;
                let message = format!("the call passed its deadline of {deadline_ms} ms");
                Ended::Badly { at: None, code: "transform.deadline", message }
            }
        };
        let well = matches!(ended, Ended::Well);
        instance.console().end(well);
        if well {
            stage.commit();
        } else {
            stage.roll_back();
        }
        self.stage = Some(stage);
        if broken {
            self.discard();
        }
        Ok(ended)
    }

    /// Writes rows from the record `from` on, until the buffer is full or there are no more.
    fn fill(&mut self, batch: &RecordBatch, data: &[Datum], from: usize) -> Filled {
        let limits = *self.deployment.limits();
        let wants = self.deployment.manifest().input.wants;
        let stage = self.stage.as_mut().expect("it is put back after every call");
        stage.clear_rows();
        let bytes = Arc::get_mut(&mut self.input).expect("the stage holds it only during a call");
        let rows_max = limits.batch_records_max.min(u32::try_from(data.len() - from).unwrap_or(u32::MAX));
        let base_offset = batch.records[from].offset;
        let mut input =
            InputBuffer::begin(bytes, self.deployment.shape(), batch, base_offset, rows_max, limits.batch_bytes_max);
        let mut next = from;
        while next < data.len() {
            let record = next as u32;
            match &data[next] {
                Datum::Tombstone if !wants.tombstones => stage.keep_unasked(record),
                Datum::Undecodable { code, message } if !wants.undecodable => {
                    stage.reject_unasked(undecodable(record, *code, clean(message.as_bytes())));
                }
                datum => {
                    let Some(value) = row(&mut input, batch, next, datum, stage, wants.undecodable) else {
                        break;
                    };
                    if let Some(value) = value {
                        stage.push_row(RowSource { record, value });
                        input.keep();
                    }
                }
            }
            next += 1;
        }
        let rows = input.rows();
        Filled { next, rows, heap_at: input.finish() }
    }

    /// The stack of the thread was checked where the transformer was made; it may have moved to another one since.
    fn check_thread(&mut self) -> Result<(), Error> {
        let current = thread::current().id();
        if self.checked != Some(current) {
            stack::check(self.deployment.plugin().runtime().limits().stack_bytes)?;
            self.checked = Some(current);
        }
        Ok(())
    }

    fn discard(&mut self) {
        if let Some(mut instance) = self.instance.take() {
            self.console = std::mem::take(instance.console());
        }
    }

    fn stage(&mut self) -> &mut Stage {
        self.stage.as_mut().expect("it is put back after every call")
    }

    fn console(&mut self) -> &mut Console {
        match &mut self.instance {
            Some(instance) => instance.console(),
            None => &mut self.console,
        }
    }
}

/// Writes one row, not yet kept. None if the buffer is full and must be sent first; inner none if the record was rejected.
fn row(
    input: &mut InputBuffer<'_>,
    batch: &RecordBatch,
    index: usize,
    datum: &Datum,
    stage: &mut Stage,
    wants_undecodable: bool,
) -> Option<Option<RowValue>> {
    let record = &batch.records[index];
    if input.full() || !input.reaches(record.offset) {
        return None;
    }
    let number = index as u32;
    if input.envelope(batch, index).is_err() {
        if input.rows() > 0 {
            return None;
        }
        let message = "key and headers alone do not fit into the input buffer".into();
        stage.reject_unasked(undecodable(number, LIMIT, message));
        return Some(None);
    }
    let (writer, from) = match datum {
        Datum::Tombstone => {
            input.tombstone();
            return Some(Some(RowValue::Tombstone));
        }
        Datum::Undecodable { code, .. } => {
            input.undecodable(*code);
            return Some(Some(RowValue::Undecodable));
        }
        Datum::At { writer, from } => (*writer, *from),
    };
    let bytes = record.value.of(&batch.bytes).and_then(|value| value.get(from as usize..));
    let (buffer, at, bytes_max) = input.frame();
    let (code, message) = match (stage.writers().get(writer.0 as usize), bytes) {
        (None, _) => (SCHEMA, "its writer schema is not registered with this deployment".to_owned()),
        (_, None) => (SHORT, "the value ends before its datum begins".to_owned()),
        (Some(known), Some(bytes)) => match known.plan.decode(bytes, buffer, at, bytes_max) {
            Ok(()) => return Some(Some(RowValue::Datum { writer, from })),
            Err(error) if error.reason == Reason::Buffer && input.rows() > 0 => {
                input.give_up();
                return None;
            }
            Err(error) if wants_undecodable => {
                input.undecodable(error.code.number());
                return Some(Some(RowValue::Undecodable));
            }
            Err(error) => (error.code.number(), error.to_string()),
        },
    };
    input.give_up();
    stage.reject_unasked(undecodable(number, code, message));
    Some(None)
}

/// The contract's decode error for a missing schema.
const SCHEMA: u16 = 2;
/// The contract's decode error for bytes that end too early.
const SHORT: u16 = 3;
/// The contract's decode error for a bound that was passed.
const LIMIT: u16 = 8;

/// A record that is set aside since it cannot be decoded and the plugin did not ask for such records.
fn undecodable(source: u32, code: u16, message: String) -> Rejection {
    let code = match code & 0xff {
        1 => "decode.wire-format",
        2 => "decode.schema",
        3 => "decode.short",
        4 => "decode.value",
        5 => "decode.utf8",
        6 => "decode.trailing",
        7 => "decode.resolution",
        8 => "decode.limit",
        _ => "decode.unknown",
    };
    Rejection { source, stage: StageWord::Decode, code: Cow::Borrowed(code), message }
}
