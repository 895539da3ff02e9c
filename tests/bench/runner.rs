//! One run of one runner: its process, its CPU time, and what it left in the sink.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use kiteline_tests::{
    kafka, orders,
    process::{plugin, program},
};

use crate::{FACTOR, PARTITIONS, sink};

/// Which program does the job.
pub(crate) enum Kind {
    /// This one: a loop on rdkafka's safe calls.
    Native,
    /// `kiteline run --until-end`, with file checkpoints.
    Kiteline,
}

/// How a run went.
pub(crate) struct Measured {
    /// Records a second, between the first and the last one's time in the sink.
    pub(crate) per_second: f64,
    /// Records per second of the process's own CPU time.
    pub(crate) per_cpu_second: f64,
}

/// Runs it once from the start of `source` to its end, into a topic of its own, and checks what came out. The app's folder is
/// kept from run to run, but for its checkpoints: an app is installed once, and its plugin compiled once.
pub(crate) fn run(kind: &Kind, source: &str, records: u64) -> Measured {
    let to = kafka::unique("bench-out");
    kafka::create_topic(&to, PARTITIONS as i32, &[("message.timestamp.type", "LogAppendTime")]);
    let app = matches!(kind, Kind::Kiteline).then(|| app(source, &to));
    let mut command = match &app {
        Some(root) => {
            let mut command = Command::new(program());
            let log = fs::File::create(root.join("run.log")).expect("a log file");
            command.args(["run", "--until-end", "--root"]).arg(root).stderr(log);
            command
        }
        None => {
            let mut command = Command::new(env::current_exe().expect("this program has a path"));
            command.args(["native", source, &to, &to]);
            command
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let cpu = cpu_of(&mut command, Duration::from_secs(60 + records / 4000));
    let found = sink::check(&to, records);
    kafka::delete_topic(&to);
    if let Some(root) = app {
        fs::remove_dir_all(root.join("var/checkpoints")).expect("the run kept checkpoints");
    }
    Measured { per_second: records as f64 / found.seconds, per_cpu_second: records as f64 / cpu }
}

/// Runs a process to its end; seconds of CPU time that it took.
fn cpu_of(command: &mut Command, limit: Duration) -> f64 {
    let before = ended_children();
    let end = Instant::now() + limit;
    let mut child = command.spawn().expect("the runner starts");
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be asked") {
            break status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{command:?} took longer than {limit:?}");
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{command:?}: {status}; its log, if it has one, lies in {}", root().display());
    ended_children() - before
}

/// User and system time of all ended children of this process, in seconds: fields 16 and 17 of proc(5)'s stat, in ticks of 10 ms.
fn ended_children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("this is Linux");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a process has a name").1.split_whitespace().collect();
    let ticks: f64 = fields[13..=14].iter().map(|ticks| ticks.parse::<f64>().expect("ticks are numbers")).sum();
    ticks / 100.0
}

/// Where the app lies.
fn root() -> PathBuf {
    env::temp_dir().join(format!("kiteline-bench-{}", std::process::id()))
}

/// Removes the app.
pub(crate) fn clean() {
    fs::remove_dir_all(root()).expect("the app's folder is ours");
}

/// Writes the app for these topics.
fn app(from: &str, to: &str) -> PathBuf {
    let root = root();
    for folder in ["conf", "lib"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    fs::write(root.join("conf/order.avsc"), orders::SCHEMA).expect("a schema file");
    fs::copy(plugin("enrich"), root.join("lib/enrich.wasm")).expect("a plugin");
    let text = format!(
        r#"[app]
name = "bench"
release = "1"

[kafka]
bootstrap_servers = "{}"

[kafka.properties]
"linger.ms" = "20"

[checkpoint]
store = "file"

[pipeline.p]
source = {{ topics = ["{from}"], start = "earliest", group = "{to}" }}
decode = {{ wire_format = "plain", schema = "conf/order.avsc" }}
on_record_error = "stop"

[[pipeline.p.transform]]
plugin = "lib/enrich.wasm"
config = {{ factor = "{FACTOR}" }}

[[pipeline.p.sink]]
kind = "kafka"
topic = "{to}"
"#,
        kafka::bootstrap(),
    );
    fs::write(root.join("kiteline.toml"), text).expect("the app's file");
    root
}
