//! A store in a folder on a local disk, for one process. Owns the lock, which is the session, and what happens when the disk
//! fails: a request whose log record is not certainly on disk is unknown, and nothing is answered again before the log has been
//! read back from disk. The log's format is one level down.

mod log;

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use kiteline_engine::store::{Op, StoreAnswer, StoreRequest};
use tokio::sync::mpsc;

use self::log::{AppendError, Faults, Log};
use super::{
    Command, Events, Notices, READ_ONLY, StoreEvent, answer,
    paths::Layout,
    request::{WireOp, spell},
    tree::Tree,
};
use crate::Error;

/// Timeout that the session names. It lasts as long as the process; this paces the lease of the engine.
const SESSION_TIMEOUT_MS: u64 = 30_000;

/// A log shorter than this is not worth compacting.
const COMPACT_BYTES_MIN: u64 = 1 << 20;

/// Growth over the last compacted length that is worth compacting again.
const COMPACT_GROWTH: u64 = 4;

/// The store of one folder.
pub(super) struct Server {
    layout: Layout,
    events: Events,
    path: PathBuf,
    /// Holds the lock as long as it lives; none when only reading.
    lock: Option<File>,
    session: i64,
    tree: Tree,
    /// None after a failure, until the log could be read back. While there is one, `tree` is what is on disk.
    log: Option<Log>,
    /// Whether the log on disk has bytes that failed to sync: it must be written anew before it is appended to.
    unsynced: bool,
    /// Length at which the log is compacted next.
    compact_at_bytes: u64,
    notices: Notices,
    faults: Faults,
}

impl Server {
    /// Takes the lock, reads the log and begins a session. With `read_only`, none of that: the log is read at each request.
    pub(super) fn open(folder: &Path, layout: Layout, read_only: bool, events: Events) -> Result<Self, Error> {
        let path = folder.join("checkpoints.log");
        let mut server = Self {
            layout,
            events,
            path,
            lock: None,
            session: 0,
            tree: Tree::default(),
            log: None,
            unsynced: false,
            compact_at_bytes: COMPACT_BYTES_MIN,
            notices: Notices::default(),
            faults: Faults::default(),
        };
        if read_only {
            // Shows a damaged log at once.
            log::read(&server.path)?;
            return Ok(server);
        }
        std::fs::create_dir_all(folder).map_err(file_error("create", folder))?;
        server.lock = Some(lock(folder)?);
        let replayed = log::read(&server.path)?;
        server.session = replayed.session + 1;
        server.tree = replayed.tree;
        server.tree.end_sessions(None);
        let mut log = Log::open(&server.path, replayed.good_bytes, server.faults.clone())
            .map_err(file_error("open", &server.path))?;
        log.append_open(server.session).map_err(|error| match error {
            AppendError::Write(source) => Error::File { action: "write", path: server.path.clone(), source },
            AppendError::Sync(source) => Error::File { action: "sync", path: server.path.clone(), source },
        })?;
        log.sync_folder().map_err(file_error("sync", folder))?;
        server.log = Some(log);
        Ok(server)
    }

    /// Serves until it is closed.
    pub(super) fn serve(&mut self, mut queue: mpsc::Receiver<Command>) {
        (self.events)(StoreEvent::Session { session: self.session, timeout_ms: SESSION_TIMEOUT_MS });
        while let Some(command) = queue.blocking_recv() {
            match command {
                Command::Request { id, request, sent_ms } => {
                    let result = self.perform(&request);
                    answer(&self.events, id, result, sent_ms);
                    self.compact_if_long();
                }
                Command::Expire => {}
                Command::Close => break,
            }
        }
    }

    fn perform(&mut self, request: &StoreRequest) -> StoreAnswer {
        if self.lock.is_none() {
            return self.look(request);
        }
        if self.log.is_none() && !self.read_back(self.unsynced) {
            return StoreAnswer::Unknown;
        }
        if let Some(found) = self.tree.read(&self.layout, request) {
            return found;
        }
        let StoreRequest::Multi(ops) = request else { return StoreAnswer::Unknown };
        self.write(ops)
    }

    /// Answers without the lock, from the log as it is now.
    fn look(&mut self, request: &StoreRequest) -> StoreAnswer {
        match log::read(&self.path) {
            Ok(replayed) => {
                let found = replayed.tree.read(&self.layout, request);
                found.unwrap_or_else(|| StoreAnswer::Failed(READ_ONLY.into()))
            }
            Err(error) => StoreAnswer::Failed(chain(&error)),
        }
    }

    fn write(&mut self, ops: &[Op]) -> StoreAnswer {
        let ops = match spell(&self.layout, ops) {
            Ok(ops) => ops,
            Err(detail) => return StoreAnswer::Failed(detail),
        };
        if let Err(index) = self.tree.apply(&ops, self.session) {
            return StoreAnswer::Refused(index);
        }
        let Some(log) = &mut self.log else { return StoreAnswer::Unknown };
        match log.append_multi(&ops) {
            Ok(()) => {
                self.notices.clear();
                StoreAnswer::Done(ops.iter().map(WireOp::version_after).collect())
            }
            Err(error) => {
                let source = match error {
                    AppendError::Write(source) => source,
                    AppendError::Sync(source) => {
                        self.unsynced = true;
                        source
                    }
                };
                let path = self.path.display();
                let text = format!("could not write checkpoint log '{path}': {source}");
                self.notices.tell(&self.events, StoreEvent::Waiting(text));
                // The tree is ahead of the disk now: only what is read back may be believed.
                self.log = None;
                self.read_back(self.unsynced);
                StoreAnswer::Unknown
            }
        }
    }

    /// Reads the log back from disk and makes it writable again. With `rewrite` it is written anew: after a failed sync the
    /// system may show bytes that it will never write.
    fn read_back(&mut self, rewrite: bool) -> bool {
        let path = self.path.clone();
        let opened = log::read(&path).and_then(|replayed| {
            let log = if rewrite {
                Log::compact(&path, &replayed.tree, self.session, self.faults.clone())
            } else {
                Log::open(&path, replayed.good_bytes, self.faults.clone())
            };
            // Whether an earlier rename is on disk may be unknown; after this it is.
            let log = log.and_then(|log| log.sync_folder().map(|()| log));
            Ok((replayed.tree, log.map_err(file_error("rewrite", &path))?))
        });
        match opened {
            Ok((tree, log)) => {
                self.tree = tree;
                self.log = Some(log);
                self.unsynced &= !rewrite;
                true
            }
            Err(error @ Error::Damaged { .. }) => {
                self.notices.tell(&self.events, StoreEvent::Failed(chain(&error)));
                false
            }
            Err(error) => {
                self.notices.tell(&self.events, StoreEvent::Waiting(chain(&error)));
                false
            }
        }
    }

    /// Compaction that fails leaves one of two whole logs in place; the next try waits until the log has doubled.
    fn compact_if_long(&mut self) {
        let Some(bytes) = self.log.as_ref().map(Log::bytes).filter(|bytes| *bytes >= self.compact_at_bytes) else {
            return;
        };
        self.log = None;
        if self.read_back(true) {
            let bytes = self.log.as_ref().map_or(0, Log::bytes);
            self.compact_at_bytes = COMPACT_BYTES_MIN.max(bytes.saturating_mul(COMPACT_GROWTH));
        } else {
            self.compact_at_bytes = bytes.saturating_mul(2);
            self.read_back(self.unsynced);
        }
    }
}

/// Takes the folder's lock, which ends with the process.
fn lock(folder: &Path) -> Result<File, Error> {
    let path = folder.join("lock");
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(file_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: folder.into() }),
        Err(TryLockError::Error(source)) => Err(Error::File { action: "lock", path, source }),
    }
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::File { action, path: path.into(), source }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
