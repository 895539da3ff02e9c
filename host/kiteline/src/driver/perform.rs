//! Performing effects, and turning what comes back into events.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

use kiteline_connectors::{
    checkpoint::{Store, StoreEvent},
    sink::kafka::{KafkaSink, SinkEvent},
    source::kafka::{KafkaSource, KafkaSourceConfig, SourceCommand, SourceEvent},
};
use kiteline_engine::{
    Snapshot,
    effect::{Effect, Notice},
    event::Event,
    ids::{BatchId, Revision, TopicPartition},
    record::{Rejection, Stage},
};
use kiteline_sandbox::{Deployment, LogLevel};

use super::{
    Input,
    alone::Alone,
    count,
    in_flight::{InFlight, partition_of},
    log_range,
    prepare::Loader,
    process::Process,
    workers::{Done, Job, Transformed, Workers},
    writer::{REDUCED, REFUSED, Target, Write, WriteEvent, Writer, Written, of_ticket, slots},
};
use crate::{
    config::plan::OnRecordError,
    observe::{Level, Line, Observer},
};

/// Loaded plugins that are kept at a time.
const CANDIDATES_MAX: usize = 8;
/// Rejected records named in the log, of one batch; the rest is counted.
const REJECTIONS_LOGGED: usize = 1;

/// Everything that performs effects.
pub(super) struct Performer {
    pub(super) observer: Observer,
    pub(super) inputs: SyncSender<Input>,
    pub(super) store: Store,
    pub(super) source_config: KafkaSourceConfig,
    /// There while the process is in the group.
    pub(super) source: Option<KafkaSource>,
    /// Tells its events from those of a consumer before it.
    pub(super) source_number: u64,
    /// A consumer that is leaving the group.
    pub(super) leaving: Option<Receiver<()>>,
    pub(super) kafka: Option<Arc<KafkaSink>>,
    pub(super) workers: Workers,
    pub(super) writer: Writer,
    /// By port number.
    pub(super) targets: Vec<Target>,
    pub(super) on_record_error: OnRecordError,
    pub(super) process: Process,
    /// Where checkpoints are in files: whether this process is alone in the group.
    pub(super) alone: Option<Alone>,
    pub(super) loader: Loader,
    pub(super) in_flight: InFlight,
    /// Loaded plugins by token: the one that is live, and those that may become it.
    pub(super) candidates: BTreeMap<u64, Deployment>,
    /// Token of the live one.
    pub(super) live_token: u64,
    /// Digests of the plugins by number.
    pub(super) digests: BTreeMap<Revision, Arc<str>>,
    /// Log ends as last heard, for the lag that people see.
    pub(super) ends: BTreeMap<TopicPartition, i64>,
    pub(super) committed_at: Instant,
    /// Events that follow from effects at once.
    pub(super) answers: VecDeque<Event>,
}

/// The guest's own word for how urgent a line is.
fn guest_level(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}

impl Performer {
    /// Performs one effect. The result of the pipeline, when it is over.
    pub(super) fn perform(&mut self, effect: Effect) -> Option<Result<(), String>> {
        match effect {
            Effect::Store(id, request) => self.store.request(id, request),
            Effect::Probe(member, record) => {
                let gone = self.process.surely_gone(&record.host, &record.boot, record.pid);
                self.answers.push_back(Event::Probed { member, session: record.session, gone });
            }
            Effect::JoinGroup => self.join(),
            Effect::LeaveGroup => self.leave(),
            Effect::AnswerAssign(list) => self.command(SourceCommand::AnswerAssign(list)),
            Effect::AnswerRevoke(list) => self.command(SourceCommand::AnswerRevoke(list)),
            Effect::AskPositions(list) => self.command(SourceCommand::Positions(list)),
            Effect::Feed(partition, feed, from) => self.command(SourceCommand::Feed { partition, feed, from }),
            Effect::Fetch(partition, feed, credit) => self.command(SourceCommand::Fetch { partition, feed, credit }),
            Effect::StopFeeding(partition) => self.command(SourceCommand::Stop { partition }),
            Effect::Mirror(list) => {
                self.committed_at = Instant::now();
                self.command(SourceCommand::Mirror(list));
            }
            Effect::Transform(batch, partition, revision) => {
                if let Some(entry) = self.in_flight.get(batch) {
                    let source = Arc::clone(&entry.source);
                    self.workers.send(Job::Transform(batch, partition, revision, source));
                }
            }
            Effect::Flush(partition) => self.workers.send(Job::Flush(partition)),
            Effect::Sink(batch) => {
                if let Some(written) = self.in_flight.get(batch).and_then(|e| e.written.clone()) {
                    self.writer.send(Write::Outputs(written));
                }
            }
            Effect::DeadLetter(batch) => self.dead_letter(batch),
            Effect::Forget(batch) => {
                self.in_flight.forget(batch);
            }
            Effect::Live { token, revision } => self.live(token, revision),
            Effect::Notice(notice) => {
                if let Notice::Claimed(..) = &notice {
                    self.committed_at = Instant::now();
                }
                self.observer.notice(&notice);
            }
            Effect::Finished(result) => return Some(result),
        }
        None
    }

    fn command(&self, command: SourceCommand) {
        if let Some(source) = &self.source {
            source.send(command);
        }
    }

    fn join(&mut self) {
        self.source_number += 1;
        let (number, inputs) = (self.source_number, self.inputs.clone());
        let events = move |event| {
            // nobody waits for it any more once the driver has ended
            let _ = inputs.send(Input::Source(number, event));
        };
        match KafkaSource::start(self.source_config.clone(), events) {
            Ok(source) => self.source = Some(source),
            Err(e) => self.answers.push_back(Event::Failed(crate::error::Chain(&e).to_string())),
        }
    }

    /// Leaving may wait for a broker: on a thread of its own, within a bound.
    fn leave(&mut self) {
        let Some(source) = self.source.take() else { return };
        if let Some(alone) = &mut self.alone {
            alone.left();
        }
        let inputs = self.inputs.clone();
        let (done, left) = std::sync::mpsc::channel();
        self.leaving = Some(left);
        let close = move || {
            let closed = source.close(Duration::from_secs(5));
            let _ = done.send(());
            let _ = inputs.send(Input::SourceClosed(closed));
        };
        // without a thread the consumer is dropped, and the group finds out by time
        let _ = std::thread::Builder::new().name("leave".into()).spawn(close);
    }

    /// A loaded plugin waits for its number.
    pub(super) fn candidate(&mut self, token: u64, deployment: Deployment) {
        self.candidates.insert(token, deployment);
        // the live one is the oldest; of many that were loaded meanwhile only the last ones can matter
        while self.candidates.len() > CANDIDATES_MAX {
            let oldest_waiting = self.candidates.keys().copied().find(|known| *known > self.live_token);
            let Some(oldest) = oldest_waiting else { break };
            self.candidates.remove(&oldest);
        }
    }

    fn live(&mut self, token: u64, revision: Revision) {
        let Some(deployment) = self.candidates.get(&token).cloned() else {
            let why = format!("the plugin of revision {} is not loaded any more", revision.0);
            return self.answers.push_back(Event::Failed(why));
        };
        self.live_token = token;
        self.candidates.retain(|known, _| *known >= token);
        let digest: Arc<str> = deployment.plugin().digest().into();
        let line = Line::new(Level::Info, "transform.live", "plugin is live").with("revision", revision.0);
        self.observer.line(line.with("digest", &digest));
        self.digests.insert(revision, digest);
        self.workers.send(Job::Live(revision, deployment));
    }

    /// Turns what happened outside into what the engine understands; none if it only concerns people.
    pub(super) fn event(&mut self, input: Input) -> Option<Event> {
        match input {
            // what a consumer says that has left the group since is void
            Input::Source(number, _) if number != self.source_number || self.source.is_none() => None,
            Input::Source(_, event) => self.source_event(event),
            Input::SourceClosed(in_time) => {
                if !in_time {
                    let text = "the Kafka consumer did not close in time; it ends with the process";
                    self.observer.line(Line::new(Level::Warn, "source.close-late", text));
                }
                None
            }
            Input::Sink(event) => self.sink_event(event),
            Input::Write(WriteEvent::Acknowledged(ticket)) => self.acknowledged(ticket),
            Input::Write(WriteEvent::Failed(ticket, message)) => self.failed(ticket, message),
            Input::Write(WriteEvent::Broken(message)) => Some(Event::Failed(message)),
            Input::Store(at, event) => self.store_event(at, event),
            Input::Done(done) => self.done(done),
            Input::Control(_) | Input::Loaded(_) => None,
        }
    }

    fn source_event(&mut self, event: SourceEvent) -> Option<Event> {
        if let Some(alone) = &mut self.alone {
            match &event {
                SourceEvent::Assigned(list) => alone.assigned(list),
                SourceEvent::Revoked(list) | SourceEvent::Lost(list) => alone.taken(list),
                _ => {}
            }
        }
        Some(match event {
            SourceEvent::Assigned(list) => Event::Assigned(list),
            SourceEvent::Revoked(list) => Event::Revoked(list),
            SourceEvent::Lost(list) => Event::Lost(list),
            SourceEvent::Batch { feed, batch, .. } => {
                let (partition, range) = (partition_of(&batch), batch.range);
                let records = u32::try_from(batch.records.len()).unwrap_or(u32::MAX);
                count(&self.observer.counters.records_read, records.into());
                count(&self.observer.counters.bytes_read, batch.bytes.len() as u64);
                let end = self.ends.entry(partition.clone()).or_insert(range.until);
                *end = range.until.max(*end);
                let batch = self.in_flight.add(feed, batch);
                Event::Fetched { partition, feed, batch, range, records }
            }
            SourceEvent::Positions(list) => {
                for (tp, range) in &list {
                    if let Ok(range) = range {
                        self.ends.insert(tp.clone(), range.end);
                    }
                }
                Event::Positions(list.into_iter().map(|(tp, r)| (tp, r.map(log_range))).collect())
            }
            SourceEvent::OutOfRange { feed, partition } => Event::OutOfRange { partition, feed },
            SourceEvent::PartitionFailed { feed, partition, message } => {
                Event::PartitionFailed { partition, feed, message }
            }
            SourceEvent::Waiting(what) => return self.tell(Level::Warn, "source.waiting", "waiting for Kafka", &what),
            SourceEvent::Recovered => return self.tell(Level::Info, "source.recovered", "Kafka is there again", ""),
            SourceEvent::Fatal(why) => Event::Failed(why),
        })
    }

    fn tell(&self, level: Level, event: &'static str, message: &str, reason: &str) -> Option<Event> {
        let line = Line::new(level, event, message);
        self.observer.line(if reason.is_empty() { line } else { line.with("reason", reason) });
        None
    }

    /// `at`: when the store said it, which may be long before it is heard.
    fn store_event(&mut self, at: kiteline_engine::ids::Instant, event: StoreEvent) -> Option<Event> {
        Some(match event {
            StoreEvent::Session { session, timeout_ms } => Event::StoreSession { session, timeout_ms },
            StoreEvent::Expired => Event::StoreExpired,
            StoreEvent::Answer { request, answer, sent_ms_ago } => {
                let sent = kiteline_engine::ids::Instant(at.0.saturating_sub(sent_ms_ago));
                Event::StoreAnswer { request, answer, sent }
            }
            StoreEvent::Disconnected => {
                return self.tell(
                    Level::Warn,
                    "checkpoint.disconnected",
                    "connection to the checkpoint store lost",
                    "",
                );
            }
            StoreEvent::Reconnected => {
                return self.tell(Level::Info, "checkpoint.reconnected", "connected to the checkpoint store again", "");
            }
            StoreEvent::Waiting(what) => {
                return self.tell(Level::Warn, "checkpoint.waiting", "waiting for the checkpoint store", &what);
            }
            StoreEvent::Failed(why) => {
                return self.tell(Level::Error, "checkpoint.refused", "the checkpoint store refuses this member", &why);
            }
        })
    }

    // --- transform

    fn done(&mut self, done: Done) -> Option<Event> {
        Some(match done {
            Done::Waits(batch, message) => Event::DecodeWaits { batch, message },
            Done::Failed(batch, message) => Event::TransformFailed { batch, message },
            Done::Transformed(batch, result) => return self.transformed(batch, *result),
        })
    }

    fn transformed(&mut self, batch: BatchId, mut result: Transformed) -> Option<Event> {
        let entry = self.in_flight.get(batch)?;
        let counters = &self.observer.counters;
        counters.transformed(&result.report, result.rejected.len() as u64);
        let undecodable = result.rejected.iter().filter(|r| r.stage == Stage::Decode).count();
        count(&counters.records_undecodable, undecodable as u64);
        for line in result.report.log.drain(..) {
            self.observer.line(
                Line::new(Level::Info, "transform.log", line.text)
                    .with("level", guest_level(line.level))
                    .with("revision", result.revision.0),
            );
        }
        let source = Arc::clone(&entry.source);
        for rejection in result.rejected.iter().take(REJECTIONS_LOGGED) {
            let record = &source.records[rejection.source as usize];
            let line = Line::new(Level::Warn, "transform.rejected", "record set aside")
                .with("partition", partition_of(&source))
                .with("offset", record.offset)
                .with("code", &rejection.code)
                .with("reason", &rejection.message)
                .with("in_batch", result.rejected.len());
            self.observer.line(line);
        }
        let stop = match (&self.on_record_error, result.rejected.first()) {
            (OnRecordError::Stop, Some(r)) => {
                let offset = source.records[r.source as usize].offset;
                Some(format!("record at offset {offset} was rejected: {} ({})", r.message, r.code))
            }
            _ => None,
        };
        let letters = matches!(self.on_record_error, OnRecordError::DeadLetter(_));
        if !letters {
            result.rejected.clear();
        }
        let open = slots(&self.targets, letters, &result);
        let digest = self.digests.get(&result.revision).cloned().unwrap_or_else(|| "".into());
        let writes = u32::try_from(open.len()).unwrap_or(u32::MAX);
        let entry = self.in_flight.get(batch)?;
        entry.open = open;
        entry.written = Some(Arc::new(Written { batch, feed: entry.feed, source, result, digest }));
        Some(Event::Transformed { batch, writes, stop })
    }

    // --- sink

    fn sink_event(&mut self, event: SinkEvent) -> Option<Event> {
        match event {
            SinkEvent::Acknowledged { ticket } => self.acknowledged(ticket),
            SinkEvent::Refused { ticket, records } => self.refused(ticket, records),
            SinkEvent::Failed { ticket, message } => self.failed(ticket, message),
            SinkEvent::Waiting(what) => self.tell(Level::Warn, "sink.waiting", "waiting for Kafka", &what),
            SinkEvent::Recovered => self.tell(Level::Info, "sink.recovered", "Kafka is there again", ""),
            SinkEvent::Fatal(why) => Some(Event::Failed(why)),
        }
    }

    fn acknowledged(&mut self, ticket: u64) -> Option<Event> {
        let (batch, slot) = of_ticket(ticket);
        let entry = self.in_flight.get(batch)?;
        entry.open.retain(|open| *open != slot);
        if !entry.open.is_empty() {
            return None;
        }
        if !entry.lettered && !entry.refused.is_empty() {
            return Some(Event::SinkRefused(batch));
        }
        if let Some(written) = &entry.written {
            let refused = entry.refused.len() as u64;
            count(&self.observer.counters.dead_letters, written.result.rejected.len() as u64 + refused);
            count(&self.observer.counters.records_written, written.result.outputs.records.len() as u64 - refused);
        }
        Some(Event::Acknowledged(batch))
    }

    fn refused(&mut self, ticket: u64, records: Vec<(u32, String)>) -> Option<Event> {
        let (batch, slot) = of_ticket(ticket);
        let entry = self.in_flight.get(batch)?;
        if slot >= super::writer::DEAD_LETTERS {
            return self.letters_refused(batch, slot, &records);
        }
        let written = entry.written.clone()?;
        count(&self.observer.counters.records_rejected, records.len() as u64);
        for (index, message) in records {
            let source = written.result.outputs.records[index as usize].source;
            let code = "sink.refused".into();
            entry.refused.push(Rejection { source, stage: Stage::Sink, code, message });
        }
        self.acknowledged(ticket)
    }

    /// Dead letters that the sink does not take as they are: written once more with less of the value. If that does not help, the
    /// partition stands still with its reason: nothing is lost, and nothing turns in a circle.
    fn letters_refused(&mut self, batch: BatchId, slot: u8, records: &[(u32, String)]) -> Option<Event> {
        let entry = self.in_flight.get(batch)?;
        let written = entry.written.clone()?;
        if slot == REDUCED {
            let why = records.first().map(|(_, why)| why.clone()).unwrap_or_default();
            let (partition, feed) = (partition_of(&entry.source), entry.feed);
            let message = format!("a dead letter is refused even without its value: {why}");
            return Some(Event::PartitionFailed { partition, feed, message });
        }
        let letters = if slot == REFUSED { &entry.refused } else { &written.result.rejected };
        let again = records.iter().filter_map(|(index, _)| letters.get(*index as usize).cloned()).collect();
        entry.open.retain(|open| *open != slot);
        entry.open.push(REDUCED);
        self.writer.send(Write::Reduced(written, again));
        None
    }

    fn failed(&mut self, ticket: u64, message: String) -> Option<Event> {
        let (batch, _) = of_ticket(ticket);
        let entry = self.in_flight.get(batch)?;
        (!std::mem::replace(&mut entry.failed, true)).then_some(Event::SinkFailed { batch, message })
    }

    fn dead_letter(&mut self, batch: BatchId) {
        let Some(entry) = self.in_flight.get(batch) else { return };
        let Some(written) = entry.written.clone() else { return };
        entry.open = vec![REFUSED];
        entry.lettered = true;
        match &self.on_record_error {
            OnRecordError::DeadLetter(_) => {
                let letters = entry.refused.clone();
                self.writer.send(Write::Refused(written, letters));
            }
            OnRecordError::Drop => self.answers.push_back(Event::Acknowledged(batch)),
            OnRecordError::Stop => {
                let why = entry.refused.first().map_or(String::new(), |r| r.message.clone());
                self.answers.push_back(Event::Transformed { batch, writes: 1, stop: Some(why) });
            }
        }
    }

    // --- people, end

    /// Records between stored checkpoints and log ends, if known, and milliseconds since the last commit.
    pub(super) fn lag_and_age(&self, snapshot: &Snapshot) -> (Option<u64>, u64) {
        let lag = snapshot.partitions.iter().map(|p| {
            let end = *self.ends.get(&p.partition)?;
            u64::try_from(end - p.stored?).ok()
        });
        let age = u64::try_from(self.committed_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        (lag.sum(), age)
    }

    /// Closes everything in the order of the stages. Late events are taken off the queue meanwhile, so that nobody waits for it.
    pub(super) fn close(self, inputs: &Receiver<Input>, grace: Duration) {
        let Self { source, leaving, workers, writer, kafka, store, .. } = self;
        let (done, closed) = std::sync::mpsc::channel();
        let close = move || {
            if let Some(source) = source {
                source.close(grace);
            }
            if let Some(leaving) = leaving {
                // the group is told before the process ends, or it would wait for the member's session
                let _ = leaving.recv_timeout(grace);
            }
            workers.close();
            writer.close();
            if let Some(kafka) = kafka.and_then(|k| Arc::try_unwrap(k).ok()) {
                kafka.close(grace);
            }
            store.close(grace);
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("close".into()).spawn(close).is_err() {
            return;
        }
        let until = Instant::now() + grace;
        while Instant::now() < until && closed.try_recv().is_err() {
            let _ = inputs.recv_timeout(Duration::from_millis(5));
            while inputs.try_recv().is_ok() {}
        }
    }
}
