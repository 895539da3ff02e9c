//! The driver: the loop that performs what the engine asks for.
//!
//! One thread owns the engine of one pipeline. Everything that happens comes to it as an [`Input`] through one bounded queue;
//! for each, the engine is stepped and its effects are handed to whoever performs them: the source's thread, the workers, the
//! writer, the store's thread. These hand-overs are meant not to wait: the queues hold
//! more than the batches that the engine has in flight. With very many partitions they can fill; ARCHITECTURE.md says when.

mod alone;
pub mod clock;
mod in_flight;
mod lines;
mod perform;
mod prepare;
mod process;
mod schemas;
mod workers;
mod writer;

use std::{
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use kiteline_connectors::{checkpoint::StoreEvent, sink::kafka::SinkEvent, source::kafka::SourceEvent};
use kiteline_engine::{
    Snapshot,
    event::{Candidate, Event, LogRange},
    pipeline::Pipeline,
};

use crate::{
    config::{
        Surroundings,
        plan::{self, Plan},
    },
    error::{Exit, Failure, Problem},
    observe::{Level, Line, Observer, Progress, Totals},
};

use self::{perform::Performer, prepare::Prepared, workers::Done, writer::WriteEvent};

/// Inputs that may wait for the driver. Whoever sends waits when it is full; the driver never does, so that ends.
const INPUTS_MAX: usize = 4_096;
/// Inputs taken in a row before time is looked at again.
const INPUTS_A_TURN: usize = 256;

/// What an operator wants of a running pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Drain, commit, leave.
    Stop,
    /// Read configuration and plugin again; what changed of the plugin becomes a new revision.
    Reload,
}

/// How a run is to go.
#[derive(Clone, Debug)]
pub struct Options {
    /// Stop where the logs ended.
    pub until_end: bool,
    /// Where to tell what happens.
    pub observer: Observer,
    /// Draw a progress line, if standard error is a terminal.
    pub progress: bool,
    /// What stands above the app's file, for when it is read again.
    pub surroundings: Surroundings,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Counters at its end.
    pub totals: Totals,
    /// The last picture of its partitions.
    pub snapshot: Snapshot,
}

/// Everything that reaches the driver from outside the engine.
pub(crate) enum Input {
    /// Of which consumer, and what.
    Source(u64, SourceEvent),
    /// The source has left the group and is closed.
    SourceClosed(bool),
    Sink(SinkEvent),
    Write(WriteEvent),
    /// When, and what.
    Store(kiteline_engine::ids::Instant, StoreEvent),
    Done(Done),
    Control(Control),
    /// A plugin was loaded aside, or not.
    Loaded(Result<(Candidate, kiteline_sandbox::Deployment), String>),
}

/// The way to a running pipeline.
#[derive(Clone)]
pub struct Handle(SyncSender<Input>);

impl Handle {
    /// Tells it. Lost if it has ended.
    pub fn send(&self, control: Control) {
        let _ = self.0.send(Input::Control(control));
    }
}

/// A pipeline that is about to run.
pub struct Driver {
    inputs: Receiver<Input>,
    handle: Handle,
}

impl Default for Driver {
    fn default() -> Self {
        Self::new()
    }
}

impl Driver {
    /// A driver with its queue, so that it can be told to stop before it has begun.
    pub fn new() -> Self {
        let (sender, inputs) = sync_channel(INPUTS_MAX);
        Self { inputs, handle: Handle(sender) }
    }

    /// The way to it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs a pipeline until it is stopped, has reached the end, or has failed. Waits for what is not there yet, and says so.
    ///
    /// # Errors
    /// What is wrong for good: plugin, schemas, settings, a member id in use, access.
    pub fn run(self, plan: &Plan, pipeline: &plan::Pipeline, options: &Options) -> Result<Summary, Failure> {
        let prepared = prepare::prepare(plan, pipeline, options, &self.inputs, &self.handle.0)?;
        let Some(prepared) = prepared else {
            // stopped before it had begun
            let snapshot = Snapshot { run: kiteline_engine::ids::Run(0), ..Snapshot::default() };
            return Ok(Summary { totals: options.observer.counters.totals(), snapshot });
        };
        Loop::new(plan, pipeline, options, prepared, self.handle.0.clone()).run(&self.inputs)
    }
}

/// The running loop.
struct Loop<'a> {
    plan: &'a Plan,
    pipeline: &'a plan::Pipeline,
    options: &'a Options,
    engine: Pipeline,
    performer: Performer,
    inputs: SyncSender<Input>,
    effects: Vec<kiteline_engine::effect::Effect>,
    ticked_at: Instant,
    finished: Option<Result<(), String>>,
    /// Whether a plugin is being loaded aside.
    loading: bool,
    next_token: u64,
}

impl<'a> Loop<'a> {
    fn new(
        plan: &'a Plan,
        pipeline: &'a plan::Pipeline,
        options: &'a Options,
        prepared: Prepared,
        inputs: SyncSender<Input>,
    ) -> Self {
        let Prepared { engine, performer } = prepared;
        Self {
            plan,
            pipeline,
            options,
            engine,
            performer,
            inputs,
            effects: Vec::new(),
            ticked_at: Instant::now(),
            finished: None,
            loading: false,
            next_token: 2,
        }
    }

    fn run(mut self, inputs: &Receiver<Input>) -> Result<Summary, Failure> {
        let mut progress = Progress::new();
        self.step(Event::Start);
        while self.finished.is_none() {
            let wait = Duration::from_millis(self.engine.tick_ms()).saturating_sub(self.ticked_at.elapsed());
            match inputs.recv_timeout(wait) {
                Ok(input) => {
                    self.input(input);
                    for _ in 0..INPUTS_A_TURN {
                        let Ok(input) = inputs.try_recv() else { break };
                        self.input(input);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.ticked_at.elapsed() >= Duration::from_millis(self.engine.tick_ms()) {
                self.ticked_at = Instant::now();
                self.step(Event::Tick);
                if let Some(why) = self.performer.alone.as_ref().and_then(alone::Alone::refusal) {
                    self.step(Event::Failed(why));
                }
            }
            if self.options.progress && progress.due() {
                let (lag, age) = self.performer.lag_and_age(&self.engine.snapshot());
                progress.draw(&self.engine.snapshot(), self.options.observer.counters.totals(), lag, age);
            }
        }
        if self.options.progress {
            progress.clear();
        }
        self.end(inputs)
    }

    /// Closes what was opened, in the order of the stages, each within its bound, while late events are still taken.
    fn end(self, inputs: &Receiver<Input>) -> Result<Summary, Failure> {
        let snapshot = self.engine.snapshot();
        let grace = Duration::from_millis(self.plan.member.grace_ms);
        self.performer.close(inputs, grace);
        let summary = Summary { totals: self.options.observer.counters.totals(), snapshot };
        match self.finished {
            None | Some(Ok(())) => Ok(summary),
            Some(Err(why)) => {
                let problem =
                    Problem::new("pipeline.stopped", format!("pipeline \"{}\" has stopped", self.pipeline.name))
                        .detail(why)
                        .hint("the checkpoints are safe: mend the cause and run it again");
                Err(Failure::new(Exit::Stopped, problem))
            }
        }
    }

    fn step(&mut self, event: Event) {
        self.engine.step(clock::now(), event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            if let Some(result) = self.performer.perform(effect) {
                self.finished = Some(result);
            }
        }
        self.effects = effects;
        // some effects are answered at once
        while let Some(event) = self.performer.answers.pop_front() {
            self.step(event);
        }
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Control(Control::Stop) => {
                self.options.observer.line(Line::new(
                    Level::Info,
                    "pipeline.stopping",
                    "stopping: draining and committing",
                ));
                self.step(Event::Stop);
            }
            Input::Control(Control::Reload) => self.reload(),
            Input::Loaded(result) => self.loaded(result),
            other => {
                if let Some(event) = self.performer.event(other) {
                    self.step(event);
                }
            }
        }
    }

    /// Loads the plugin again, aside; the live one goes on meanwhile and if it fails.
    fn reload(&mut self) {
        if self.loading {
            let text = "a plugin is being loaded already; reload once more when it is live";
            return self.options.observer.line(Line::new(Level::Warn, "transform.reload-refused", text));
        }
        self.loading = true;
        let token = self.next_token;
        self.next_token += 1;
        let loader = self.performer.loader.clone();
        let (root, name, inputs) = (self.plan.root.clone(), self.pipeline.name.clone(), self.inputs.clone());
        let spawned = std::thread::Builder::new().name("load".into()).stack_size(16 << 20).spawn(move || {
            let _ = inputs.send(Input::Loaded(loader.load_again(&root, &name, token)));
        });
        if let Err(e) = spawned {
            self.loading = false;
            let line =
                Line::new(Level::Error, "transform.reload-refused", "no thread to load the plugin").with("reason", e);
            self.options.observer.line(line);
        }
    }

    fn loaded(&mut self, result: Result<(Candidate, kiteline_sandbox::Deployment), String>) {
        self.loading = false;
        match result {
            Ok((candidate, deployment)) => {
                self.performer.candidate(candidate.token, deployment);
                self.step(Event::Swap(candidate));
            }
            Err(why) => {
                let text = "the plugin was not taken; the live one goes on";
                self.options.observer.line(Line::new(Level::Error, "transform.swap-refused", text).with("reason", why));
            }
        }
    }
}

/// The engine's form of a log range.
pub(crate) fn log_range(range: kiteline_connectors::source::kafka::LogRange) -> LogRange {
    LogRange { start: range.start, end: range.end, topic_id: range.topic_id }
}

/// Adds to a counter.
pub(crate) fn count(counter: &std::sync::atomic::AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// A sender that drops what nobody waits for any more.
pub(crate) fn forward<T>(
    inputs: &SyncSender<Input>,
    wrap: fn(T) -> Input,
) -> impl Fn(T) + Clone + Send + Sync + use<T> {
    let inputs = Arc::new(inputs.clone());
    move |event| {
        let _ = inputs.send(wrap(event));
    }
}
