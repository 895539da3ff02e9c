//! Kiteline processes: started for real, killed for real, never left behind.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use crate::wait;

/// The program under test.
pub fn program() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    let program = target.join("release/kiteline");
    assert!(program.exists(), "{} is not built: run the suite through make", program.display());
    program
}

/// The checkout.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the checkout").to_owned()
}

/// A component of one of the sample plugins.
pub fn plugin(name: &str) -> PathBuf {
    let folder =
        std::env::var_os("KITELINE_PLUGINS").expect("KITELINE_PLUGINS is set by make: the sample plugins' components");
    let path = PathBuf::from(folder).join(format!("{}.wasm", name.replace('-', "_")));
    assert!(path.exists(), "{} is not built: run the suite through make", path.display());
    path
}

/// Runs a command of the program to its end.
pub fn kiteline(args: &[&str]) -> Output {
    Command::new(program()).args(args).stdin(Stdio::null()).output().expect("the program starts")
}

/// A process that is killed when the test forgets it.
pub struct Process {
    child: Child,
    /// Where its log lines are.
    pub log: PathBuf,
}

impl Process {
    /// Starts `kiteline` with these arguments; standard error goes to `log`, which is appended to.
    pub fn start(args: &[&str], log: &Path) -> Self {
        let file = fs::File::options().create(true).append(true).open(log).expect("a log file");
        let child = Command::new(program())
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Self { child, log: log.to_owned() }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has ended");
    }

    /// Sends it a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status().expect("kill runs");
        assert!(sent.success(), "signal {name} was sent");
    }

    /// Waits for its end.
    pub fn wait(mut self, limit: Duration) -> ExitStatus {
        let log = self.log.clone();
        let ended = || self.child.try_wait().expect("it can be asked");
        wait::until_or(limit, ended, || format!("the end of a process; its log: {}", tail(&log)))
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    /// Tells it to stop, and checks that it ended in order.
    pub fn stop(self, limit: Duration) {
        self.signal("TERM");
        let tail = self.log.clone();
        let status = self.wait(limit);
        assert!(status.success(), "{status}: {}", fs::read_to_string(tail).unwrap_or_default());
    }

    /// The whole log so far.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log holds a text.
    pub fn wait_for_log(&self, text: &str, limit: Duration) {
        let there = || self.log_text().contains(text).then_some(());
        wait::until_or(limit, there, || format!("\"{text}\" in {}: {}", self.log.display(), self.tail()));
    }

    fn tail(&self) -> String {
        tail(&self.log)
    }
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(30).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
