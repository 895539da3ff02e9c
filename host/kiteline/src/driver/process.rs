//! Who this process is, and whether another one on this host still lives.

use std::{fs, io::Read as _, path::Path};

/// Facts about this process for its member node.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// Host name; `localhost` if the system does not tell.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Id of the current boot; empty if the system does not tell.
    pub boot: String,
}

impl Process {
    /// Looks them up.
    pub(super) fn this() -> Self {
        let line = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default();
        let host = line("/proc/sys/kernel/hostname");
        Self {
            host: if host.is_empty() { "localhost".into() } else { host },
            pid: std::process::id(),
            boot: line("/proc/sys/kernel/random/boot_id"),
        }
    }

    /// Whether the process that these facts name is surely gone: same host, same boot, and no such process.
    pub(super) fn surely_gone(&self, host: &str, boot: &str, pid: u32) -> bool {
        let here = self.host == host && self.boot == boot && !self.boot.is_empty();
        here && pid != self.pid && !lives(pid)
    }
}

/// A zombie has written its last: its sockets are closed.
fn lives(pid: u32) -> bool {
    match fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")) {
        Ok(stat) => !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z') || rest.starts_with('X')),
        Err(e) => e.kind() != std::io::ErrorKind::NotFound,
    }
}

/// 64 random bits from the system, or none if it has no source of them.
pub(super) fn random_seed() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_process_of_this_boot_is_gone() {
        let this = Process::this();
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let pid = child.id();
        child.wait().expect("its end");
        assert!(this.surely_gone(&this.host, &this.boot, pid));
        assert!(!this.surely_gone("elsewhere", &this.boot, pid));
        assert!(!this.surely_gone(&this.host, "another boot", pid));
        assert!(!this.surely_gone(&this.host, &this.boot, 1), "init lives");
        assert!(!this.surely_gone(&this.host, &this.boot, this.pid), "we live");
    }
}
