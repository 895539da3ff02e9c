//! The embedded demo: the whole of kiteline in one folder and one command, with a plugin replaced and a process killed on the way.
//!
//! The parent holds Kafka (the client library's mock cluster), makes the orders and counts what comes out. The pipeline runs
//! in child processes of this same program, so that one can be killed for real. Nothing is left behind but what `--keep` asks for.

mod app;
mod count;
mod orders;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use kiteline_connectors::MockKafka;

use crate::error::{Exit, Failure, Problem};

pub use app::{DEAD_LETTERS, ENRICHED, ORDERS};
pub use count::Tally;

/// Longest time without anything new in the sinks before the demo gives up.
const QUIET_MAX: Duration = Duration::from_secs(30);
/// Every so many-th order cannot be decoded.
pub const SPOILT_EVERY: u64 = 10_000;

/// What the demo was asked for.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Orders to make.
    pub records: u64,
    /// Folder with the two versions of the demo plugin as components.
    pub plugins: PathBuf,
    /// Folder to work in; it is left there if `keep`.
    pub folder: PathBuf,
}

/// How the demo went.
#[derive(Clone, Debug)]
pub struct Report {
    /// Orders made, and among them those that cannot be decoded.
    pub made: (u64, u64),
    /// What was found in the sinks.
    pub tally: Tally,
    /// Sum of the checkpoints' next_offsets, which must be the sum of the log ends.
    pub checkpointed: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

impl Report {
    /// Records without an outcome. Must be 0.
    pub fn lost(&self) -> u64 {
        self.tally.missing + (self.made.0.saturating_sub(self.checkpointed))
    }
}

/// Runs it, telling `say` what happens as it happens.
///
/// # Errors
/// The plugins are not there, a child does not start or end as it should, or nothing new comes for half a minute.
pub fn run(setup: &Setup, mut say: impl FnMut(&str)) -> Result<Report, Failure> {
    let began = Instant::now();
    let partitions = app::partitions(setup.records);
    say(&format!("Kafka: a mock cluster in this process, {partitions} partitions a topic"));
    let mock = mock(partitions)?;
    let bootstrap = mock.bootstrap_servers();
    let app = app::App::write(setup, &bootstrap)?;
    say(&format!("app: {}, checkpoints in files below var/", app.root.display()));
    let mut counter = count::Counter::start(&bootstrap, setup.records, partitions)?;
    let mut maker = orders::Maker::start(&bootstrap, setup.records, partitions)?;
    let mut worker = Worker::start(&app, "first")?;
    say(&format!("worker: process {} reads {ORDERS}, runs demo-v1, writes {ENRICHED}", worker.pid()));
    let (mut swapped, mut killed) = (false, false);
    let mut quiet = (0, Instant::now());
    loop {
        counter.wait(Duration::from_millis(50));
        let seen = counter.seen();
        if seen != quiet.0 {
            quiet = (seen, Instant::now());
        }
        let share = |percent: u64| seen * 100 >= counter.expected() * percent;
        if !swapped && share(30) {
            swapped = true;
            app.swap(setup)?;
            worker.signal(rustix::process::Signal::HUP);
            say("swap: lib/demo.wasm replaced by demo-v2 while it runs; the worker was told to load it");
        }
        if !killed && share(65) {
            killed = true;
            let pid = worker.pid();
            worker.kill();
            counter.wait(Duration::from_millis(300));
            let (written, covered) = (counter.seen(), app.checkpointed()?);
            say(&format!("kill: SIGKILL to process {pid} in the middle of its work"));
            say(&format!(
                "      {written} orders have an outcome in the sinks, the checkpoints cover {covered} orders"
            ));
            worker = Worker::start(&app, "second")?;
            say(&format!("restart: process {} goes on at the checkpoints", worker.pid()));
        }
        worker.check()?;
        if counter.complete() && maker.finished() {
            break;
        }
        if quiet.1.elapsed() > QUIET_MAX {
            say("nothing new for half a minute: counting what is there");
            break;
        }
    }
    maker.close();
    say("end: everything has an outcome; waiting for the checkpoints to say so, then telling the worker to stop");
    let until = Instant::now() + QUIET_MAX;
    while app.checkpointed()? < setup.records && Instant::now() < until {
        worker.check()?;
        counter.wait(Duration::from_millis(50));
    }
    worker.stop()?;
    let checkpointed = app.checkpointed()?;
    let tally = counter.close();
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    drop(mock);
    Ok(Report { made: (setup.records, setup.records.div_ceil(SPOILT_EVERY)), tally, checkpointed, took_ms })
}

fn mock(partitions: i32) -> Result<MockKafka, Failure> {
    let failed = |e: kiteline_connectors::Error| {
        Failure::from(Problem::new("demo.kafka", "the mock cluster does not start").cause(&e))
    };
    let mock = MockKafka::start(1).map_err(failed)?;
    for (topic, count) in [(ORDERS, partitions), (ENRICHED, partitions), (DEAD_LETTERS, 1)] {
        mock.create_topic(topic, count).map_err(failed)?;
    }
    Ok(mock)
}

/// A child process that runs the pipeline.
struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    fn start(app: &app::App, name: &str) -> Result<Self, Failure> {
        let log = app.root.join(format!("worker-{name}.log"));
        let failed =
            |e: std::io::Error| Failure::from(Problem::new("demo.worker", "a worker does not start").cause(&e));
        let file = fs::File::create(&log).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let child = Command::new(program)
            .args(["run", "--root"])
            .arg(&app.root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, log })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(0)) {
            // a child that has ended already is found by `check`
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Fails if it has ended by itself.
    fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(&format!("ended by itself: {status}"))),
            Err(e) => Err(self.ended(&e.to_string())),
        }
    }

    /// Tells it to stop, and waits until it has.
    fn stop(mut self) -> Result<(), Failure> {
        self.signal(rustix::process::Signal::TERM);
        let until = Instant::now() + Duration::from_secs(40);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.ended(&format!("did not end in order: {status}"))),
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
                Ok(None) => {
                    self.kill();
                    return Err(self.ended("did not end within 40 s"));
                }
                Err(e) => return Err(self.ended(&e.to_string())),
            }
        }
    }

    fn ended(&self, how: &str) -> Failure {
        let problem = Problem::new("demo.worker", format!("a worker process {how}"));
        Failure::new(Exit::Failed, problem.detail(tail(&self.log)))
    }
}

/// A child must not outlive the demo.
impl Drop for Worker {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill();
        }
    }
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(12).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
