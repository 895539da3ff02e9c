//! `kiteline install`: an app copied to its install root, whole or not at all.
//!
//! Written beside the root, synced, renamed; a root that is there is refused. Owns no name: the caller names the root, and nothing
//! is added to it. What kiteline itself writes (`var`) is not copied.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    process,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions, OpenOptionsExt, PermissionsExt},
};
use clap::Args;
use serde_json::json;

use crate::{
    error::{Exit, Failure, Problem},
    layout::{CONFIG_FILE, VAR},
    output::Output,
};

/// Folders below the source. Deeper ones are a mistake, or a loop of mounts.
const DEPTH_MAX: usize = 32;

/// Copy an app to its install root, whole or not at all.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Folder with the app: kiteline.toml, conf, lib.
    source: PathBuf,
    /// The install root; must not be there yet. Nothing is added to its name.
    root: PathBuf,
}

/// How much was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Copied {
    files: u64,
    bytes: u64,
}

/// Copies, or leaves everything as it was.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let Arguments { source, root } = arguments;
    let copied = install(source, root)?;
    let json = json!({ "root": root.display().to_string(), "files": copied.files, "bytes": copied.bytes });
    output.answer(&json, || {
        format!("installed {} files, {} bytes, as \"{}\"", copied.files, copied.bytes, root.display())
    });
    Ok(Exit::Ok)
}

fn install(source: &Path, root: &Path) -> Result<Copied, Failure> {
    let refuse = |code: &'static str, message: String| Failure::usage(vec![Problem::new(code, message)]);
    let failed = |what: &str, path: &Path, error: &io::Error| {
        Failure::from(Problem::new("install.failed", format!("could not {what} \"{}\"", path.display())).cause(error))
    };
    let from = Dir::open_ambient_dir(source, ambient_authority()).map_err(|e| failed("open", source, &e))?;
    if !from.is_file(CONFIG_FILE) {
        return Err(refuse("install.no-app", format!("\"{}\" has no {CONFIG_FILE}", source.display())));
    }
    let Some(name) = root.file_name() else {
        return Err(refuse("install.bad-root", format!("\"{}\" names no folder to make", root.display())));
    };
    let parent = root.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = Dir::open_ambient_dir(parent, ambient_authority()).map_err(|e| failed("open", parent, &e))?;
    if beside.symlink_metadata(name).is_ok() {
        return Err(exists(root));
    }
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".installing-{}", process::id()));
    beside.create_dir(&temporary).map_err(|e| failed("make a folder beside", root, &e))?;
    let written = write(&from, &beside, &temporary, name, root);
    if written.is_err() {
        // The folder is ours alone; that it stays behind is the lesser evil and harms no later attempt.
        let _ = beside.remove_dir_all(&temporary);
    }
    written
}

fn exists(root: &Path) -> Failure {
    let problem = Problem::new("install.root-exists", format!("install root \"{}\" is there already", root.display()));
    Failure::usage(vec![problem.hint("name another root; an app is installed once and never over another")])
}

fn write(from: &Dir, beside: &Dir, temporary: &OsStr, name: &OsStr, root: &Path) -> Result<Copied, Failure> {
    let mut copied = Copied::default();
    let to = beside.open_dir(temporary).map_err(|e| stopped(Path::new(temporary), &e))?;
    copy(from, &to, Path::new(""), 0, &mut copied)?;
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    rustix::fs::renameat_with(beside, temporary, beside, name, flags).map_err(|error| match error {
        rustix::io::Errno::EXIST => exists(root),
        error => stopped(root, &error.into()),
    })?;
    sync(beside, root)?;
    Ok(copied)
}

fn stopped(path: &Path, error: &io::Error) -> Failure {
    Problem::new("install.failed", format!("could not copy \"{}\"", path.display())).cause(error).into()
}

/// Copies the content of a folder and syncs each file, then the folder.
fn copy(from: &Dir, to: &Dir, path: &Path, depth: usize, copied: &mut Copied) -> Result<(), Failure> {
    let failed = |name: &OsStr, error: &io::Error| stopped(&path.join(name), error);
    for entry in from.entries().map_err(|e| stopped(path, &e))? {
        let entry = entry.map_err(|e| stopped(path, &e))?;
        let name = entry.file_name();
        if depth == 0 && name == VAR {
            continue;
        }
        let kind = entry.file_type().map_err(|e| failed(&name, &e))?;
        if kind.is_dir() && depth < DEPTH_MAX {
            let below = from.open_dir(&name).map_err(|e| failed(&name, &e))?;
            to.create_dir(&name).map_err(|e| failed(&name, &e))?;
            let made = to.open_dir(&name).map_err(|e| failed(&name, &e))?;
            copy(&below, &made, &path.join(&name), depth + 1, copied)?;
        } else if kind.is_file() {
            copied.bytes += copy_file(from, to, &name).map_err(|e| failed(&name, &e))?;
            copied.files += 1;
        } else {
            let what = if kind.is_dir() { "too deep a folder" } else { "neither a file nor a folder" };
            let message = format!("\"{}\" is {what}", path.join(&name).display());
            let hint = "an app has plain files and folders only; links would lead out of it";
            return Err(Failure::usage(vec![Problem::new("install.bad-file", message).hint(hint)]));
        }
    }
    sync(to, path)
}

fn copy_file(from: &Dir, to: &Dir, name: &OsStr) -> io::Result<u64> {
    let mut source = from.open(name)?;
    let mode = source.metadata()?.permissions().mode() & 0o777;
    let mut target = to.open_with(name, OpenOptions::new().write(true).create_new(true).mode(mode))?;
    let bytes = io::copy(&mut source, &mut target)?;
    target.sync_all()?;
    Ok(bytes)
}

/// A folder's own entries are durable only once it is synced itself.
fn sync(folder: &Dir, path: &Path) -> Result<(), Failure> {
    let file = folder.open(".").map_err(|e| stopped(path, &e))?;
    file.sync_all().map_err(|e| stopped(path, &e))
}
