//! What the suites of the program share: a throw-away app folder, the program itself, plugins made on the spot.

#![allow(dead_code, reason = "each suite is a crate of its own and uses a part of this")]

pub(crate) mod plugins;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

/// A folder that vanishes with this value.
pub(crate) struct App {
    /// Where it is.
    pub(crate) path: PathBuf,
}

impl App {
    /// An empty folder.
    pub(crate) fn empty(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kiteline-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    /// A copy of a folder of files and folders of files.
    pub(crate) fn copy(from: &Path, name: &str) -> Self {
        let app = Self::empty(name);
        copy(from, &app.path);
        app
    }

    /// Writes a file below the folder.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Reads a file below the folder.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).unwrap()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The program in a folder, with an empty environment.
pub(crate) fn kiteline(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiteline"));
    command.current_dir(folder).env_clear().args(arguments);
    command
}

/// How the program ended: exit code, standard output, standard error.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let ended = kiteline(folder, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
}
