//! Apps for tests: an install root in a temporary folder, gone with the test.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use crate::{
    kafka,
    orders::SCHEMA,
    process::{Process, kiteline, plugin},
    wait,
};

/// An install root.
pub struct App {
    /// The folder.
    pub root: PathBuf,
}

/// What differs from test to test; the rest of the file is the same.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the sample plugin.
    pub plugin: String,
    /// Its configuration as TOML inline table content.
    pub config: String,
    /// Source topics.
    pub topics: Vec<String>,
    /// `earliest` or `latest`.
    pub start: String,
    /// The decode table's content.
    pub decode: String,
    /// Sinks as whole TOML tables.
    pub sinks: String,
    /// Dead-letter table's content; empty for none.
    pub dead_letter: String,
    /// `zookeeper` or `file`.
    pub store: String,
    /// Where Kafka is.
    pub bootstrap: String,
    /// Where ZooKeeper is.
    pub zookeeper: String,
    /// More lines of the table of Kafka client properties.
    pub kafka_properties: String,
    /// More lines of the pipeline's table.
    pub pipeline: String,
    /// More lines of the transform's table.
    pub transform: String,
    /// More tables of the file.
    pub more: String,
}

impl Settings {
    /// A pipeline from one topic to another, with ZooKeeper.
    pub fn new(plugin: &str, from: &str, to: &str, dead_letter: &str) -> Self {
        Self {
            plugin: plugin.into(),
            config: String::new(),
            topics: vec![from.into()],
            start: "earliest".into(),
            decode: r#"wire_format = "plain", schema = "conf/order.avsc""#.into(),
            sinks: format!("[[pipeline.p.sink]]\nkind = \"kafka\"\ntopic = \"{to}\"\n"),
            dead_letter: format!("topic = \"{dead_letter}\""),
            store: "zookeeper".into(),
            bootstrap: kafka::bootstrap(),
            zookeeper: kafka::zookeeper(),
            kafka_properties: String::new(),
            pipeline: String::new(),
            transform: String::new(),
            more: String::new(),
        }
    }
}

/// The topics of a test.
#[derive(Clone, Debug)]
pub struct Topics {
    /// The source.
    pub from: String,
    /// The sink.
    pub to: String,
    /// For dead letters.
    pub dead: String,
}

/// Makes a source topic of so many partitions, a sink topic and one for dead letters with one each, and the settings between them.
pub fn line(plugin: &str, partitions: i32) -> (Topics, Settings) {
    let topics = names();
    kafka::create_topic(&topics.from, partitions, &[]);
    kafka::create_topic(&topics.to, 1, &[]);
    kafka::create_topic(&topics.dead, 1, &[]);
    let settings = Settings::new(plugin, &topics.from, &topics.to, &topics.dead);
    (topics, settings)
}

/// Names for topics that are not there yet.
pub fn names() -> Topics {
    let [from, to, dead] = ["from", "to", "dead"].map(kafka::unique);
    Topics { from, to, dead }
}

impl App {
    /// Writes an app that is named after its folder.
    pub fn write(settings: &Settings) -> Self {
        let root = std::env::temp_dir().join(kafka::unique("kiteline-e2e"));
        for folder in ["conf", "lib"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        fs::write(root.join("conf/order.avsc"), SCHEMA).expect("a schema file");
        let app = Self { root };
        app.put_plugin(&settings.plugin);
        app.configure(settings);
        app
    }

    /// Writes the file anew.
    pub fn configure(&self, settings: &Settings) {
        let s = settings;
        let name = self.root.file_name().expect("a name").to_string_lossy();
        let store = match s.store.as_str() {
            "file" => "store = \"file\"\n".to_owned(),
            _ => format!("store = \"zookeeper\"\nconnect = \"{}/e2e\"\nsession_timeout_ms = 6000\n", s.zookeeper),
        };
        let dead_letter = match s.dead_letter.as_str() {
            "" => String::new(),
            table => format!("dead_letter = {{ {table} }}\n"),
        };
        let topics: Vec<String> = s.topics.iter().map(|t| format!("\"{t}\"")).collect();
        let text = format!(
            "[app]\nname = \"{name}\"\nrelease = \"test\"\n\n[kafka]\nbootstrap_servers = \"{}\"\n\n[kafka.properties]\n\"session.timeout.ms\" = \"3000\"\n\"heartbeat.interval.ms\" = \"500\"\n{}\n[checkpoint]\n{store}interval_ms = 200\n\n\
             [pipeline.p]\nsource = {{ topics = [{}], start = \"{}\" }}\ndecode = {{ {} }}\n{dead_letter}{}\n\
             [[pipeline.p.transform]]\nplugin = \"lib/plugin.wasm\"\nconfig = {{ {} }}\n{}\n\n{}\n{}\n",
            s.bootstrap,
            s.kafka_properties,
            topics.join(", "),
            s.start,
            s.decode,
            s.pipeline,
            s.config,
            s.transform,
            s.sinks,
            s.more,
        );
        fs::write(self.root.join("kiteline.toml"), text).expect("the app's file");
    }

    /// Puts a sample plugin in place of the one that is there, at once.
    pub fn put_plugin(&self, name: &str) {
        let beside = self.root.join("lib/.plugin.wasm");
        fs::copy(plugin(name), &beside).expect("a plugin");
        fs::rename(beside, self.root.join("lib/plugin.wasm")).expect("a plugin in place");
    }

    /// Starts `kiteline run` on it, as the n-th process.
    pub fn run(&self, n: usize, more: &[&str]) -> Process {
        let root = self.root.to_string_lossy().into_owned();
        let mut args = vec!["run", "--root", &root];
        args.extend(more);
        Process::start(&args, &self.root.join(format!("run-{n}.log")))
    }

    /// Runs to the end of the input, checks that it ended in order, and says what it logged.
    pub fn run_until_end(&self, limit: Duration) -> String {
        let (code, log) = self.run_and_wait(0, &["--until-end"], limit);
        assert_eq!(code, Some(0), "{log}");
        log
    }

    /// Runs until it ends by itself; its exit code, and what it logged.
    pub fn run_and_wait(&self, n: usize, more: &[&str], limit: Duration) -> (Option<i32>, String) {
        let log = self.root.join(format!("run-{n}.log"));
        let before = fs::metadata(&log).map_or(0, |m| usize::try_from(m.len()).expect("small"));
        let status = self.run(n, more).wait(limit);
        let text = fs::read_to_string(log).unwrap_or_default();
        (status.code(), text.get(before.min(text.len())..).unwrap_or_default().to_owned())
    }

    /// What `kiteline status` says of the pipeline `p`.
    pub fn status(&self) -> Value {
        let answer = kiteline(&["status", "--format", "json", "--root", &self.root.to_string_lossy()]);
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
        let mut json: Value = serde_json::from_slice(&answer.stdout).expect("JSON");
        json["pipelines"]["p"].take()
    }

    /// Live members, as `kiteline status` names them.
    pub fn members(&self) -> Vec<String> {
        let status = self.status();
        let names = status["members"].as_array().expect("members").iter();
        names.map(|m| m.as_str().expect("a name").to_owned()).collect()
    }

    /// The next offset of a partition, if it has a checkpoint.
    pub fn checkpoint(&self, topic: &str, partition: i32) -> Option<i64> {
        let name = format!("{topic}/{partition}");
        self.checkpoints().into_iter().find(|(n, ..)| *n == name).map(|(_, next, _)| next)
    }

    /// Waits until a partition's checkpoint has come so far.
    pub fn wait_for_checkpoint(&self, topic: &str, partition: i32, next: i64, limit: Duration) {
        wait::until(&format!("checkpoint {next} of {topic}/{partition}"), limit, || {
            self.checkpoint(topic, partition).is_some_and(|at| at >= next).then_some(())
        });
    }

    /// What `kiteline checkpoint show` says, by partition: next_offset, and the whole entry.
    pub fn checkpoints(&self) -> Vec<(String, i64, Value)> {
        let root = self.root.to_string_lossy().into_owned();
        let answer = kiteline(&["checkpoint", "show", "--format", "json", "--root", &root]);
        let json: Value = serde_json::from_slice(&answer.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&answer.stderr)));
        let mut list = Vec::new();
        collect(&json, &mut list);
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }
}

fn collect(json: &Value, list: &mut Vec<(String, i64, Value)>) {
    match json {
        Value::Array(items) => items.iter().for_each(|i| collect(i, list)),
        Value::Object(map) => match (map.get("topic"), map.get("partition"), map.get("next_offset")) {
            (Some(topic), Some(partition), Some(next)) => {
                let name = format!("{}/{partition}", topic.as_str().unwrap_or_default());
                list.push((name, next.as_i64().expect("a number"), json.clone()));
            }
            _ => map.values().for_each(|v| collect(v, list)),
        },
        _ => {}
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // a failed test leaves its folder for whoever looks
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all::<&Path>(&self.root);
        }
    }
}
