//! Workers: one OS thread a core, each with plugin instances of its own. Decode, transform, encode; nothing else.
//!
//! A partition belongs to one worker, so its batches stay in order and nothing is locked on the data path.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use kiteline_avro::Schema;
use kiteline_connectors::decode::WireFormat;
use kiteline_engine::{
    ids::{BatchId, Revision, TopicPartition},
    record::{OutputBatch, RecordBatch, Rejection},
};
use kiteline_sandbox::{Datum, Deployment, Report, Transformer, WriterId};

use super::schemas::{Lookup, Schemas};

/// Stack of a worker: the guest's own stack, bounded by the sandbox, lies in it too.
const STACK_BYTES: usize = 4 << 20;

/// How records become datums.
#[derive(Clone, Debug)]
pub(super) enum Decoding {
    /// Each value is a datum of this schema.
    Plain(Schema),
    /// Each value names its schema by the id in its prefix.
    Registry(Schemas),
}

/// What a worker is asked to do.
pub(super) enum Job {
    /// Answer for every record of a batch.
    Transform(BatchId, TopicPartition, Revision, Arc<RecordBatch>),
    /// Nothing more comes of this partition for now: let its instance finish.
    Flush(TopicPartition),
    /// This deployment has that number from now on.
    Live(Revision, Deployment),
}

/// How a batch went.
#[derive(Debug)]
pub(crate) enum Done {
    /// Every record has an outcome.
    Transformed(BatchId, Box<Transformed>),
    /// A schema is not to be had yet; the batch comes again.
    Waits(BatchId, String),
    /// The host failed, not the guest.
    Failed(BatchId, String),
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) struct Transformed {
    /// Records for sinks.
    pub outputs: OutputBatch,
    /// Records set aside.
    pub rejected: Vec<Rejection>,
    /// Figures and guest log lines.
    pub report: Report,
    /// Revision that did it.
    pub revision: Revision,
}

/// The workers of one pipeline.
pub(super) struct Workers {
    queues: Vec<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
    /// Which worker has which partition; given out in turn, kept as long as the process lives.
    homes: BTreeMap<TopicPartition, usize>,
}

impl Workers {
    /// Starts `count` workers. `queue_max`: jobs that one may have waiting; the engine's bound on batches keeps below it.
    pub(super) fn start(
        count: usize,
        queue_max: usize,
        decoding: &Decoding,
        done: impl Fn(Done) + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut workers = Self { queues: Vec::new(), threads: Vec::new(), homes: BTreeMap::new() };
        for index in 0..count.max(1) {
            let (queue, jobs) = sync_channel(queue_max);
            let (decoding, done) = (decoding.clone(), done.clone());
            let body = move || {
                let mut worker = Worker {
                    decoding,
                    deployments: BTreeMap::new(),
                    instances: BTreeMap::new(),
                    data: Vec::new(),
                    room: (0, 0),
                };
                for job in jobs {
                    worker.perform(job, &done);
                }
            };
            let thread = thread::Builder::new().name(format!("worker-{index}")).stack_size(STACK_BYTES).spawn(body)?;
            workers.queues.push(queue);
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Hands a job to the worker that has the partition, or to all of them.
    pub(super) fn send(&mut self, job: Job) {
        let partition = match &job {
            Job::Transform(_, tp, _, _) | Job::Flush(tp) => tp,
            Job::Live(revision, deployment) => {
                for queue in &self.queues {
                    send(queue, Job::Live(*revision, deployment.clone()));
                }
                return;
            }
        };
        let next = self.homes.len() % self.queues.len();
        let home = *self.homes.entry(partition.clone()).or_insert(next);
        send(&self.queues[home], job);
    }

    /// Ends them after what is queued. Each call inside is bounded by its deadline, so this is too.
    pub(super) fn close(self) {
        drop(self.queues);
        for thread in self.threads {
            // a worker that panicked has reported its batch already
            let _ = thread.join();
        }
    }
}

/// The queue holds more than the batches that the engine has in flight, so this waits only where very many partitions are flushed at
/// once. A worker that is gone loses the job, and the stall limit shows it.
fn send(queue: &SyncSender<Job>, job: Job) {
    let _ = queue.send(job);
}

/// Whose instance: shared by all partitions of the worker if the plugin keeps nothing, else one a partition.
type Home = (Revision, Option<TopicPartition>);

struct Worker {
    decoding: Decoding,
    deployments: BTreeMap<Revision, Writers>,
    instances: BTreeMap<Home, Transformer>,
    /// What the decode stage found out about each record; reused.
    data: Vec<Datum>,
    /// Outputs of the last batch, and bytes that they owned: what the next one gets room for at once, instead of growing into it.
    room: (usize, usize),
}

/// A deployment with the writer schemas that this worker has met.
struct Writers {
    deployment: Deployment,
    by_id: BTreeMap<u32, Result<WriterId, String>>,
    plain: Option<Result<WriterId, String>>,
}

impl Worker {
    fn perform(&mut self, job: Job, done: &impl Fn(Done)) {
        match job {
            Job::Live(revision, deployment) => {
                // the one before stays: its batches may still be queued
                while self.deployments.len() > 1 {
                    let Some((old, _)) = self.deployments.pop_first() else { break };
                    self.instances.retain(|(r, _), _| *r != old);
                }
                self.deployments.insert(revision, Writers { deployment, by_id: BTreeMap::new(), plain: None });
            }
            Job::Flush(partition) => self.flush(&partition),
            Job::Transform(batch, partition, revision, records) => {
                let work = AssertUnwindSafe(|| self.transform(batch, partition, revision, &records));
                let answer = catch_unwind(work).unwrap_or_else(|panic| {
                    self.instances.clear();
                    Done::Failed(batch, format!("a worker panicked: {}", panic_text(&*panic)))
                });
                done(answer);
            }
        }
    }

    fn flush(&mut self, partition: &TopicPartition) {
        let own: Vec<_> = self.instances.keys().filter(|(_, tp)| tp.as_ref() == Some(partition)).cloned().collect();
        for home in own {
            if let Some(mut transformer) = self.instances.remove(&home) {
                // what it says cannot change an outcome: outcomes are complete without it
                let _ = transformer.flush();
            }
        }
    }

    fn transform(&mut self, batch: BatchId, tp: TopicPartition, revision: Revision, records: &RecordBatch) -> Done {
        let Some(writers) = self.deployments.get_mut(&revision) else {
            return Done::Failed(batch, format!("revision {} is not deployed", revision.0));
        };
        if let Err(waits_for) = decode(&self.decoding, writers, records, &mut self.data) {
            return Done::Waits(batch, waits_for);
        }
        let stateless = writers.deployment.manifest().stateless;
        let home = (revision, (!stateless).then_some(tp));
        if !self.instances.contains_key(&home) {
            match Transformer::new(&writers.deployment) {
                Ok(transformer) => self.instances.insert(home.clone(), transformer),
                Err(e) => return Done::Failed(batch, crate::error::Chain(&e).to_string()),
            };
        }
        let Some(transformer) = self.instances.get_mut(&home) else {
            return Done::Failed(batch, "the instance is missing".into());
        };
        let (mut outputs, mut rejected) = (OutputBatch::default(), Vec::new());
        outputs.records.reserve(self.room.0);
        outputs.bytes.reserve(self.room.1);
        match transformer.transform(records, &self.data, &mut outputs, &mut rejected) {
            Ok(report) => {
                self.room = (outputs.records.len(), outputs.bytes.len());
                Done::Transformed(batch, Box::new(Transformed { outputs, rejected, report, revision }))
            }
            Err(e) => {
                self.instances.remove(&home);
                Done::Failed(batch, crate::error::Chain(&e).to_string())
            }
        }
    }
}

/// Finds out for each record where its datum lies and who wrote it. An error names what has to be waited for.
fn decode(
    decoding: &Decoding,
    writers: &mut Writers,
    records: &RecordBatch,
    data: &mut Vec<Datum>,
) -> Result<(), String> {
    data.clear();
    // records of one batch mostly have one schema: remembered, so that a record costs no look-up
    let mut last: Option<(u32, WriterId)> = None;
    let mut waits_for = None;
    for record in &records.records {
        let Some(value) = record.value.of(&records.bytes) else {
            data.push(Datum::Tombstone);
            continue;
        };
        data.push(match decoding {
            Decoding::Plain(schema) => match writers.plain(schema) {
                Ok(writer) => Datum::At { writer, from: 0 },
                Err(message) => Datum::Undecodable { code: RESOLUTION, message },
            },
            Decoding::Registry(schemas) => match WireFormat::Confluent.strip(value) {
                Err(e) => Datum::Undecodable { code: WIRE_FORMAT, message: e.to_string() },
                Ok((id, from)) => {
                    let id = id.unwrap_or_default();
                    let from = u32::try_from(from).unwrap_or(u32::MAX);
                    match last.filter(|(known, _)| *known == id) {
                        Some((_, writer)) => Datum::At { writer, from },
                        None => match writers.by_id(id, schemas) {
                            Ok(Ok(writer)) => {
                                last = Some((id, writer));
                                Datum::At { writer, from }
                            }
                            Ok(Err((code, message))) => Datum::Undecodable { code, message },
                            Err(what) => {
                                // go on, so that every schema of the batch is asked for at once
                                waits_for.get_or_insert(what);
                                Datum::Tombstone
                            }
                        },
                    }
                }
            },
        });
    }
    waits_for.map_or(Ok(()), Err)
}

/// Decode errors of the contract.
const WIRE_FORMAT: u16 = 1;
const SCHEMA: u16 = 2;
const RESOLUTION: u16 = 7;

impl Writers {
    fn plain(&mut self, schema: &Schema) -> Result<WriterId, String> {
        let deployment = &self.deployment;
        self.plain.get_or_insert_with(|| deployment.writer(schema).map_err(|e| e.to_string())).clone()
    }

    /// The outer error: wait for this. The inner one: the record cannot be decoded.
    fn by_id(&mut self, id: u32, schemas: &Schemas) -> Result<Result<WriterId, (u16, String)>, String> {
        if let Some(known) = self.by_id.get(&id) {
            return Ok(known.clone().map_err(|e| (RESOLUTION, e)));
        }
        match schemas.look_up(id) {
            Lookup::Waiting(what) => Err(what),
            Lookup::Refused(why) => Ok(Err((SCHEMA, why))),
            Lookup::Found(schema) => {
                let writer = self.deployment.writer(&schema).map_err(|e| e.to_string());
                self.by_id.insert(id, writer.clone());
                Ok(writer.map_err(|e| (RESOLUTION, e)))
            }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_else(|| "no text".into())
}
