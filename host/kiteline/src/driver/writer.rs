//! The writer: one thread that hands outputs and dead letters to the sinks, in the order in which the engine asks for it.
//!
//! Kafka acknowledges later, by ticket. Files and standard output are written, synced once for all that was waiting, and then
//! acknowledged here. A ticket is a batch and a slot: the sink's number, or one of two for dead letters.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use kiteline_connectors::sink::{
    FileSink, StdoutSink,
    kafka::{self, DeadLetter, KafkaSink},
};
use kiteline_engine::{
    ids::{BatchId, FeedId, TopicPartition},
    record::{RecordBatch, Rejection},
};

use super::{
    clock,
    in_flight::partition_of,
    lines::{self, Lines},
    workers::Transformed,
};

/// Batches that share one sync of the files.
const SHARED_MAX: usize = 64;
/// Most of a value that is kept in a dead letter which was refused as it is, in bytes.
const REDUCED_VALUE_MAX: usize = 1_024;
/// Slot of dead letters that were refused once and carry less of their value.
pub(super) const REDUCED: u8 = 253;
/// Slot of dead letters that decode and transform made.
pub(super) const DEAD_LETTERS: u8 = 254;
/// Slot of dead letters for what a sink refused.
pub(super) const REFUSED: u8 = 255;

/// Ticket of a slot of a batch.
pub(super) fn ticket(batch: BatchId, slot: u8) -> u64 {
    batch.0 << 8 | u64::from(slot)
}

/// What a ticket stands for.
pub(super) fn of_ticket(ticket: u64) -> (BatchId, u8) {
    (BatchId(ticket >> 8), (ticket & 0xff) as u8)
}

/// Where the outputs of a port go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A Kafka topic, unless the plugin names another one.
    Kafka(String),
    /// A file, by its number.
    File(usize),
    /// Standard output.
    Stdout,
}

/// Where dead letters go.
#[derive(Clone, Debug)]
pub(super) enum DeadLetters {
    /// A Kafka topic.
    Topic(String),
    /// A file, by its number.
    File(usize),
}

/// Everything that the writer writes to.
pub(super) struct Targets {
    /// By port number.
    pub ports: Vec<Target>,
    /// Dead letters, if they are kept.
    pub dead_letters: Option<DeadLetters>,
    /// The producer, if anything goes to Kafka.
    pub kafka: Option<Arc<KafkaSink>>,
    /// Files by number.
    pub files: Vec<OutFile>,
    /// How values become text.
    pub lines: Lines,
    /// Names what is written into each dead letter.
    pub provenance: Provenance,
}

/// A file that is written to, opened anew after its disk failed: what a failed sync left is not known.
#[derive(Debug)]
pub(super) struct OutFile {
    path: PathBuf,
    sink: Option<FileSink>,
}

impl OutFile {
    /// Opens it; a torn last line of a former process is cut.
    pub(super) fn open(path: &Path) -> Result<Self, kiteline_connectors::Error> {
        Ok(Self { path: path.to_owned(), sink: Some(FileSink::open(path)?) })
    }

    fn write(&mut self, lines: &str) -> Result<(), kiteline_connectors::Error> {
        let sink = match &mut self.sink {
            Some(sink) => sink,
            None => self.sink.insert(FileSink::open(&self.path)?),
        };
        sink.write(lines.as_bytes())
    }

    fn sync(&mut self) -> Result<(), kiteline_connectors::Error> {
        let synced = self.sink.as_mut().map_or(Ok(()), FileSink::sync);
        if synced.is_err() {
            self.sink = None;
        }
        synced
    }
}

/// What every dead letter of a process says about where it was made.
#[derive(Clone, Debug)]
pub(super) struct Provenance {
    /// App and pipeline.
    pub pipeline: String,
    /// Member id.
    pub member: String,
}

/// A batch with what became of it.
#[derive(Debug)]
pub(super) struct Written {
    /// Its name.
    pub batch: BatchId,
    /// Under which feeding it came.
    pub feed: FeedId,
    /// The records.
    pub source: Arc<RecordBatch>,
    /// What became of them.
    pub result: Transformed,
    /// Digest of the plugin that did it.
    pub digest: Arc<str>,
}

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum Write {
    /// Write the outputs and dead letters of a batch.
    Outputs(Arc<Written>),
    /// Write dead letters for outputs that a sink refused.
    Refused(Arc<Written>, Vec<Rejection>),
    /// Write dead letters again that the sink did not take whole.
    Reduced(Arc<Written>, Vec<Rejection>),
}

/// What came of a ticket that the writer itself can answer for.
#[derive(Debug)]
pub(crate) enum WriteEvent {
    /// Durable.
    Acknowledged(u64),
    /// Not durable, for a reason that may pass.
    Failed(u64, String),
    /// A sink is gone for good: whoever read standard output.
    Broken(String),
}

/// The writer of one pipeline.
#[derive(Debug)]
pub(super) struct Writer {
    queue: SyncSender<Write>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts it. `queue_max`: batches that may wait; the engine's bound keeps below it.
    pub(super) fn start(
        targets: Targets,
        queue_max: usize,
        events: impl Fn(WriteEvent) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, asked) = sync_channel(queue_max);
        let mut work = Work {
            targets,
            lanes: BTreeMap::new(),
            text: String::new(),
            by_port: Vec::new(),
            unsynced: Vec::new(),
            stdout: StdoutSink::new(),
        };
        let thread = thread::Builder::new().name("writer".into()).spawn(move || work.run(&asked, &events))?;
        Ok(Self { queue, thread })
    }

    /// Asks for a write.
    pub(super) fn send(&self, write: Write) {
        // a writer that is gone loses it, and the stall limit shows that
        let _ = self.queue.send(write);
    }

    /// Ends it after what is queued.
    pub(super) fn close(self) {
        drop(self.queue);
        let _ = self.thread.join();
    }
}

/// Which slots a batch will be acknowledged by: the sinks that get anything of it, and dead letters.
pub(super) fn slots(targets: &[Target], dead_letters: bool, result: &Transformed) -> Vec<u8> {
    let mut used = [false; 64];
    for record in &result.outputs.records {
        used[usize::from(record.port)] = true;
    }
    let mut slots: Vec<u8> = (0u8..64).filter(|port| used[usize::from(*port)]).collect();
    debug_assert!(slots.last().is_none_or(|port| usize::from(*port) < targets.len()));
    if dead_letters && !result.rejected.is_empty() {
        slots.push(DEAD_LETTERS);
    }
    slots
}

/// The way of one feeding to the sinks. Once something on it was not written it has ended: what comes behind must not overtake.
struct Lane {
    feed: FeedId,
    kafka: Option<kafka::Lane>,
    ended: bool,
}

/// Lines that a file has and its disk may not.
struct Unsynced {
    ticket: u64,
    file: usize,
    partition: TopicPartition,
}

struct Work {
    targets: Targets,
    /// By partition, the feeding at hand. Bounded by the partitions that this process has ever had.
    lanes: BTreeMap<TopicPartition, Lane>,
    /// Text of the batch at hand; reused.
    text: String,
    /// Indexes of the batch's records, by port; reused.
    by_port: Vec<Vec<u32>>,
    /// Lines of this turn; reused.
    unsynced: Vec<Unsynced>,
    stdout: StdoutSink,
}

impl Work {
    fn run(&mut self, asked: &Receiver<Write>, events: &impl Fn(WriteEvent)) {
        while let Ok(first) = asked.recv() {
            self.perform(first, events);
            // what waits already shares the sync
            for next in asked.try_iter().take(SHARED_MAX) {
                self.perform(next, events);
            }
            self.sync(events);
        }
    }

    fn sync(&mut self, events: &impl Fn(WriteEvent)) {
        let mut results: Vec<Option<Result<(), String>>> = self.targets.files.iter().map(|_| None).collect();
        for line in std::mem::take(&mut self.unsynced) {
            let files = &mut self.targets.files;
            let result = results[line.file].get_or_insert_with(|| files[line.file].sync().map_err(|e| chain(&e)));
            match result {
                Ok(()) => events(WriteEvent::Acknowledged(line.ticket)),
                Err(why) => {
                    events(WriteEvent::Failed(line.ticket, why.clone()));
                    self.end_lane(&line.partition);
                }
            }
        }
    }

    fn end_lane(&mut self, partition: &TopicPartition) {
        if let Some(lane) = self.lanes.get_mut(partition) {
            lane.ended = true;
        }
    }

    fn perform(&mut self, write: Write, events: &impl Fn(WriteEvent)) {
        match write {
            Write::Outputs(written) => {
                let partition = partition_of(&written.source);
                if self.lane(&partition, written.feed).ended {
                    let message = "a batch before this one was not written".to_owned();
                    return events(WriteEvent::Failed(ticket(written.batch, 0), message));
                }
                self.sort_by_port(&written);
                for port in 0..self.by_port.len() {
                    if !self.by_port[port].is_empty() {
                        self.outputs(&written, &partition, port, events);
                    }
                }
                if !written.result.rejected.is_empty() {
                    let ticket = ticket(written.batch, DEAD_LETTERS);
                    self.dead_letters(ticket, &written, &partition, &written.result.rejected, events);
                }
            }
            Write::Refused(written, rejected) => {
                let partition = partition_of(&written.source);
                self.dead_letters(ticket(written.batch, REFUSED), &written, &partition, &rejected, events);
            }
            Write::Reduced(written, rejected) => {
                let partition = partition_of(&written.source);
                self.dead_letters(ticket(written.batch, REDUCED), &written, &partition, &rejected, events);
            }
        }
    }

    /// The lane of a feeding; a new one where another feeding has begun.
    fn lane(&mut self, partition: &TopicPartition, feed: FeedId) -> &Lane {
        let kafka = &self.targets.kafka;
        let begin = || Lane { feed, kafka: kafka.as_ref().map(|k| k.lane()), ended: false };
        let lane = self.lanes.entry(partition.clone()).or_insert_with(begin);
        if lane.feed != feed {
            *lane = begin();
        }
        lane
    }

    fn sort_by_port(&mut self, written: &Written) {
        self.by_port.resize_with(self.targets.ports.len(), Vec::new);
        self.by_port.iter_mut().for_each(Vec::clear);
        for (index, record) in (0u32..).zip(&written.result.outputs.records) {
            self.by_port[usize::from(record.port)].push(index);
        }
    }

    fn outputs(&mut self, written: &Written, partition: &TopicPartition, port: usize, events: &impl Fn(WriteEvent)) {
        let (records, outputs) = (&self.by_port[port], &written.result.outputs);
        let ticket = ticket(written.batch, u8::try_from(port).unwrap_or(u8::MAX));
        match &self.targets.ports[port] {
            Target::Kafka(topic) => {
                if let Some(kafka) = self.lanes.get(partition).and_then(|lane| lane.kafka.as_ref()) {
                    kafka.write(ticket, &written.source, outputs, records, topic);
                }
            }
            target => {
                self.text.clear();
                self.targets.lines.outputs(&written.source, outputs, records, &mut self.text);
                let file = match target {
                    Target::File(file) => Some(*file),
                    Target::Kafka(_) | Target::Stdout => None,
                };
                self.lines(ticket, file, partition, events);
            }
        }
    }

    /// Writes the text at hand to a file, or to standard output.
    fn lines(&mut self, ticket: u64, file: Option<usize>, partition: &TopicPartition, events: &impl Fn(WriteEvent)) {
        let written = match file {
            Some(file) => self.targets.files[file].write(&self.text),
            None => self.stdout.write(self.text.as_bytes()),
        };
        match (written, file) {
            (Ok(()), Some(file)) => self.unsynced.push(Unsynced { ticket, file, partition: partition.clone() }),
            (Ok(()), None) => events(WriteEvent::Acknowledged(ticket)),
            (Err(e), None) => events(WriteEvent::Broken(chain(&e))),
            (Err(e), Some(_)) => {
                events(WriteEvent::Failed(ticket, chain(&e)));
                self.end_lane(partition);
            }
        }
    }

    fn dead_letters(
        &mut self,
        ticket: u64,
        written: &Written,
        partition: &TopicPartition,
        rejected: &[Rejection],
        events: &impl Fn(WriteEvent),
    ) {
        let at_ms = clock::now().wall_ms;
        match &self.targets.dead_letters {
            None => events(WriteEvent::Acknowledged(ticket)),
            Some(DeadLetters::File(file)) => {
                let file = *file;
                self.text.clear();
                for rejection in rejected {
                    lines::dead_letter(&written.source, rejection, &written.digest, at_ms, &mut self.text);
                }
                self.lines(ticket, Some(file), partition, events);
            }
            Some(DeadLetters::Topic(topic)) => {
                let reduced = of_ticket(ticket).1 == REDUCED;
                let value_max = if reduced { REDUCED_VALUE_MAX } else { usize::MAX };
                let notes: Vec<_> =
                    rejected.iter().map(|r| self.targets.provenance.headers(written, r, at_ms)).collect();
                let letters: Vec<_> = rejected
                    .iter()
                    .zip(&notes)
                    .map(|(r, notes)| letter(&written.source, r, notes, value_max))
                    .collect();
                if let Some(kafka) = &self.targets.kafka {
                    kafka.write_dead_letters(ticket, topic, &letters);
                }
            }
        }
    }
}

/// Names of the headers in which a dead letter carries its provenance. They replace any that it had, so that a letter that is
/// sent back and set aside again does not grow.
pub(super) const HEADERS: [&str; 11] = [
    "kiteline.stage",
    "kiteline.code",
    "kiteline.message",
    "kiteline.pipeline",
    "kiteline.topic",
    "kiteline.partition",
    "kiteline.offset",
    "kiteline.plugin",
    "kiteline.revision",
    "kiteline.member",
    "kiteline.at_ms",
];

impl Provenance {
    fn headers(&self, written: &Written, rejection: &Rejection, at_ms: u64) -> [String; 11] {
        let record = &written.source.records[rejection.source as usize];
        [
            rejection.stage.word().to_owned(),
            rejection.code.to_string(),
            rejection.message.clone(),
            self.pipeline.clone(),
            written.source.topic.to_string(),
            written.source.partition.to_string(),
            record.offset.to_string(),
            written.digest.to_string(),
            written.result.revision.0.to_string(),
            self.member.clone(),
            at_ms.to_string(),
        ]
    }
}

/// The original bytes, its own headers, and the provenance behind them. Of a value longer than `value_max` only the beginning is
/// kept, its own headers are left out, and a header says so.
fn letter<'a>(
    source: &'a RecordBatch,
    rejection: &Rejection,
    notes: &'a [String; 11],
    value_max: usize,
) -> DeadLetter<'a> {
    let record = &source.records[rejection.source as usize];
    let bytes = &source.bytes;
    let value = record.value.of(bytes);
    let cut = value_max != usize::MAX;
    let own = source.headers_of(record).iter().map(|h| (h.name.of(bytes).unwrap_or_default(), h.value.of(bytes)));
    let own = own.filter(|(name, _)| !cut && !HEADERS.iter().any(|h| h.as_bytes() == *name));
    let notes = HEADERS.iter().zip(notes).map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())));
    let reduced: Option<(&[u8], Option<&[u8]>)> = cut.then_some((b"kiteline.reduced", Some(b"true")));
    DeadLetter {
        key: record.key.of(bytes),
        value: value.map(|v| &v[..v.len().min(value_max)]),
        headers: own.chain(notes).chain(reduced).collect(),
        timestamp_ms: record.timestamp_ms,
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    crate::error::Chain(error).to_string()
}
