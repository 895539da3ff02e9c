//! Compiled code on disk, so that a component is compiled once per machine and version of the compiler: Python's takes 17 s
//! to compile and 47 ms to load. Owns names, format and bounds of these files. A damaged file is a miss, never an error.
//!
//! This is the one file of the crate that uses `unsafe`: [`Component::deserialize`] maps machine code and runs it as it is.

#![allow(unsafe_code)] // see above; the reason why it is sound stands at the call

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use sha2::{Digest, Sha256};
use wasmtime::{Engine, component::Component};

use crate::error::Error;

/// First bytes of a file: format and its version.
const MAGIC: &[u8; 8] = b"KLCODE1\n";
/// Magic and SHA-256 of the rest.
const HEADER_BYTES: usize = 8 + 32;
/// Ending of a complete file.
const ENDING: &str = ".klcode";
/// Files kept; the ones written longest ago are removed first.
const FILES_MAX: usize = 64;
/// Longest file that is read, in bytes: Python's code is 33 MB.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// A folder of compiled code.
#[derive(Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// Makes the folder if it is missing, for its owner only, and refuses one that others may write into: whoever can place
    /// a file there can run code in this process.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let refuse = |reason: String| Error::CacheDir { path: dir.to_owned(), reason };
        create(dir).map_err(|error| refuse(error.to_string()))?;
        let meta = fs::metadata(dir).map_err(|error| refuse(error.to_string()))?;
        if !meta.is_dir() {
            return Err(refuse("not a folder".into()));
        }
        if writable_for_others(&meta) {
            return Err(refuse("others than its owner may write into it".into()));
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// The compiled component, if there is a sound file of exactly this component and this compiler.
    pub(crate) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let code = read(&self.path(engine, digest))?;
        // SAFETY: the code must be what `Component::serialize` wrote, unchanged. The folder is writable for its owner only
        // (checked in `open`), the file too (checked in `read`), its checksum holds, and its name has the compiler's
        // compatibility hash, which wasmtime checks again in the code's own header.
        unsafe { Component::deserialize(engine, &code) }.ok()
    }

    /// Writes the compiled code beside, syncs it and renames it. Failing to do so costs the next start a compilation.
    pub(crate) fn store(&self, engine: &Engine, digest: &str, component: &Component) -> io::Result<()> {
        let code = component.serialize().map_err(|error| io::Error::other(format!("{error:#}")))?;
        write(&self.path(engine, digest), &code)?;
        self.prune()
    }

    /// `<digits of the component's digest>-<compatibility hash>.klcode`.
    fn path(&self, engine: &Engine, digest: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
        self.dir.join(format!("{digits}-{:016x}{ENDING}", hasher.finish()))
    }

    fn prune(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(ENDING) {
                files.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        files.sort();
        let surplus = files.len().saturating_sub(FILES_MAX);
        files.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

/// The code in a file, none if the file is missing, damaged or writable for others.
fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > FILE_BYTES_MAX || writable_for_others(&meta) {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).ok()?);
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let sound = bytes.len() > HEADER_BYTES
        && bytes.starts_with(MAGIC)
        && Sha256::digest(&bytes[HEADER_BYTES..]).as_slice() == &bytes[8..HEADER_BYTES];
    if !sound {
        return None;
    }
    bytes.drain(..HEADER_BYTES);
    Some(bytes)
}

fn write(path: &Path, code: &[u8]) -> io::Result<()> {
    /// Two threads of one process may compile the same component.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let temporary = path.with_extension(format!("{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let written = (|| {
        let mut file = create_file(&temporary)?;
        file.write_all(MAGIC)?;
        file.write_all(Sha256::digest(code).as_slice())?;
        file.write_all(code)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // nothing is lost if this fails too: the name is never read
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(unix)]
fn create(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(not(unix))]
fn create(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(dir)
}

#[cfg(unix)]
fn create_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn writable_for_others(meta: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    meta.permissions().mode() & 0o022 != 0
}

#[cfg(not(unix))]
fn writable_for_others(_: &fs::Metadata) -> bool {
    false
}
