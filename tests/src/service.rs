//! A broker or an ensemble of a test's own, for what cannot be done to the ones that all tests share: restarts and kills.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{kafka, process::repository};

/// One that runs as long as this lives.
#[derive(Debug)]
pub struct Service {
    script: PathBuf,
    dir: PathBuf,
    /// Bootstrap servers or connect string.
    pub address: String,
}

impl Service {
    /// A broker.
    pub fn kafka() -> Self {
        Self::start("kafka", &[])
    }

    /// An ensemble of so many servers.
    pub fn zookeeper(nodes: u32) -> Self {
        Self::start("zookeeper", &["--nodes", &nodes.to_string()])
    }

    fn start(name: &str, more: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(kafka::unique(&format!("kiteline-e2e-{name}")));
        let script = repository().join("tests/services").join(name);
        let mut service = Self { script, dir, address: String::new() };
        let mut args = vec!["start"];
        args.extend(more);
        service.address = service.tell(&args);
        service
    }

    /// Tells it a command of its script, with its folder; what that answers.
    pub fn tell(&self, command: &[&str]) -> String {
        let (done, text) = self.try_tell(command);
        assert!(done, "{command:?}: {text}");
        text
    }

    /// The same, where it may fail: whether it was done, and what it said.
    pub fn try_tell(&self, command: &[&str]) -> (bool, String) {
        let (verb, more) = command.split_first().expect("a command");
        let output = Command::new(&self.script)
            .arg(verb)
            .arg("--dir")
            .arg(&self.dir)
            .args(more)
            .stdin(Stdio::null())
            .output()
            .expect("the script starts");
        let said = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
        (output.status.success(), String::from_utf8_lossy(said).trim().to_owned())
    }

    /// Number of the ensemble's server that leads.
    pub fn leader(&self) -> String {
        let status = self.tell(&["status"]);
        let line =
            status.lines().find(|line| line.contains("leader")).unwrap_or_else(|| panic!("no leader in: {status}"));
        let digits = line.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit);
        digits.collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let stop = Command::new(&self.script).args(["stop", "--kill", "--wipe", "--dir"]).arg(&self.dir).output();
        if stop.is_ok_and(|o| o.status.success()) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
