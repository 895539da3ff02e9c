//! The log of a file store: its format, reading it back after a crash, and appending to it so that what was answered is on
//! disk. Owns no lock and no answer.
//!
//! The file is a sequence of records: `KLR1`, the length of the payload (u32, little-endian), the CRC-32C of these four bytes and
//! the payload (u32, little-endian), the payload, a JSON object. Only the last record can be torn by a crash, since each is on
//! disk before the next is begun. So what is unreadable up to the end of the file, with no record behind it, is cut; anything
//! else is damage.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::super::{
    request::WireOp,
    tree::{Entry, Tree},
};
use crate::Error;

/// First bytes of each record, so that one can be found behind damage.
const MAGIC: &[u8; 4] = b"KLR1";

/// Magic, length, checksum.
const HEADER_BYTES: usize = 12;

/// Longest payload. A request has at most 600 KB; escaping its text can double it.
const PAYLOAD_BYTES_MAX: usize = 2 << 20;

/// Longest log that is read. Compaction keeps it far below.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// Bytes of nodes in one record of a compacted log.
const CHUNK_BYTES: usize = 256 << 10;

/// Number of the format, in the first record.
const FORMAT: u32 = 1;

/// One record's payload.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Record {
    /// A session begins. Nodes of any other end.
    Open { format: u32, session: i64 },
    /// Nodes as compaction found them: path, version, content, whether it ends with the session.
    Nodes(Vec<(String, i32, String, bool)>),
    /// One atomic request.
    Multi(Vec<Change>),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Change {
    Create { path: String, data: String, ephemeral: bool },
    Set { path: String, version: i32, data: String },
    Delete { path: String, version: i32 },
}

/// What a log says.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) tree: Tree,
    /// Number of the last session, 0 if there was none.
    pub(super) session: i64,
    /// Bytes up to the end of the last whole record.
    pub(super) good_bytes: u64,
}

/// An open log, positioned at its end.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    path: PathBuf,
    bytes: u64,
    pub(super) faults: Faults,
}

/// Why a record is not certainly in the log.
#[derive(Debug)]
pub(super) enum AppendError {
    /// It was not written whole; cutting the log undoes it.
    Write(io::Error),
    /// It was written, and whether it is on disk is unknown. The system may not try again, so it must be written anew.
    Sync(io::Error),
}

/// Failures to order, in tests. Shared with whatever log follows.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    #[cfg(test)]
    pub(super) next: std::sync::Arc<std::sync::Mutex<Option<&'static str>>>,
}

impl Faults {
    /// Fails if this step was ordered to.
    #[cfg(test)]
    fn check(&self, step: &'static str) -> io::Result<()> {
        let mut next = self.next.lock().unwrap();
        if *next == Some(step) {
            *next = None;
            return Err(io::Error::other("ordered by the test"));
        }
        Ok(())
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same shape as in tests")]
    fn check(&self, _step: &'static str) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a log; an absent one is empty.
pub(super) fn read(path: &Path) -> Result<Replayed, Error> {
    let failed = |source| Error::File { action: "read", path: path.into(), source };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Replayed::default()),
        Err(error) => return Err(failed(error)),
    };
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes > LOG_BYTES_MAX {
        let detail = format!("it has {bytes} bytes, at most {LOG_BYTES_MAX} are read");
        return Err(Error::Damaged { path: path.into(), at: LOG_BYTES_MAX, detail });
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content).map_err(failed)?;
    replay(&content).map_err(|(at, detail)| Error::Damaged { path: path.into(), at: at as u64, detail })
}

/// Does again what a log says; where and why it cannot be trusted otherwise.
fn replay(content: &[u8]) -> Result<Replayed, (usize, String)> {
    let mut state = Replayed::default();
    let mut at = 0;
    while at < content.len() {
        let Some((payload, end)) = record_at(content, at) else {
            let rest = &content[at..];
            let behind = rest
                .windows(MAGIC.len())
                .enumerate()
                .skip(1)
                .any(|(skip, window)| window == MAGIC && record_at(content, at + skip).is_some());
            if behind || rest.len() > HEADER_BYTES + PAYLOAD_BYTES_MAX {
                return Err((at, "a record is unreadable, and others follow it".into()));
            }
            break;
        };
        perform(&mut state, payload, at == 0).map_err(|detail| (at, detail))?;
        at = end;
    }
    state.good_bytes = at as u64;
    Ok(state)
}

/// The payload of the record at `at`, and where the next one begins; none if it is not whole.
fn record_at(content: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let header = content.get(at..at + HEADER_BYTES)?;
    let (magic, rest) = header.split_at(4);
    let (length, sum) = rest.split_at(4);
    let payload_bytes = u32::from_le_bytes(length.try_into().ok()?) as usize;
    if magic != MAGIC || payload_bytes > PAYLOAD_BYTES_MAX {
        return None;
    }
    let end = at + HEADER_BYTES + payload_bytes;
    let payload = content.get(at + HEADER_BYTES..end)?;
    let wanted = crc32c::crc32c_append(crc32c::crc32c(length), payload);
    (u32::from_le_bytes(sum.try_into().ok()?) == wanted).then_some((payload, end))
}

fn perform(state: &mut Replayed, payload: &[u8], first: bool) -> Result<(), String> {
    let record = serde_json::from_slice(payload).map_err(|error| format!("a record of an unknown kind: {error}"))?;
    match record {
        Record::Open { format, .. } if format != FORMAT => {
            return Err(format!("format version {format}, and this kiteline reads only {FORMAT}"));
        }
        Record::Open { session, .. } => {
            state.session = session;
            state.tree.end_sessions(None);
        }
        _ if first => return Err("it does not begin with a session".into()),
        Record::Nodes(nodes) => {
            for (path, version, data, ephemeral) in nodes {
                let session = ephemeral.then_some(state.session);
                state.tree.nodes.insert(path, Entry { data: data.into_bytes(), version, session });
            }
        }
        Record::Multi(changes) => {
            let ops: Vec<_> = changes.into_iter().map(Change::into_op).collect();
            let Replayed { tree, session, .. } = state;
            tree.apply(&ops, *session)
                .map_err(|index| format!("the change of '{}' does not fit what stands before it", ops[index].path()))?;
        }
    }
    Ok(())
}

impl Change {
    /// Checks leave no trace.
    fn of(op: &WireOp) -> Option<Self> {
        match op.clone() {
            WireOp::Check { .. } => None,
            WireOp::Create { path, data, ephemeral, .. } => Some(Self::Create { path, data, ephemeral }),
            WireOp::Set { path, data, version } => Some(Self::Set { path, version, data }),
            WireOp::Delete { path, version } => Some(Self::Delete { path, version }),
        }
    }

    fn into_op(self) -> WireOp {
        match self {
            Self::Create { path, data, ephemeral } => {
                WireOp::Create { path, data, ephemeral, below: None, folders: Vec::new() }
            }
            Self::Set { path, version, data } => WireOp::Set { path, data, version },
            Self::Delete { path, version } => WireOp::Delete { path, version },
        }
    }
}

impl Log {
    /// Opens the log to append behind `good_bytes`, and cuts whatever is behind that.
    pub(super) fn open(path: &Path, good_bytes: u64, faults: Faults) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() != good_bytes {
            file.set_len(good_bytes)?;
            file.sync_data()?;
        }
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, path: path.into(), bytes: good_bytes, faults })
    }

    /// Length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins a session and has it on disk.
    pub(super) fn append_open(&mut self, session: i64) -> Result<(), AppendError> {
        self.append(&Record::Open { format: FORMAT, session })
    }

    /// Adds one request and has it on disk. A request that changes nothing is not written.
    pub(super) fn append_multi(&mut self, ops: &[WireOp]) -> Result<(), AppendError> {
        let changes: Vec<_> = ops.iter().filter_map(Change::of).collect();
        if changes.is_empty() {
            return Ok(());
        }
        self.append(&Record::Multi(changes))
    }

    fn append(&mut self, record: &Record) -> Result<(), AppendError> {
        let bytes = spell(record).map_err(AppendError::Write)?;
        if let Err(error) = self.faults.check("write") {
            // Half of it reaches the disk, as when that is full.
            let _ = self.file.write_all(&bytes[..bytes.len() / 2]);
            return Err(AppendError::Write(error));
        }
        self.file.write_all(&bytes).map_err(AppendError::Write)?;
        self.faults.check("sync").and_then(|()| self.file.sync_data()).map_err(AppendError::Sync)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Puts a new log with just these nodes in place of the old one. On error, which of the two will be found after a crash
    /// is unknown, and neither may be written to before this succeeds.
    pub(super) fn compact(path: &Path, tree: &Tree, session: i64, faults: Faults) -> io::Result<Self> {
        let beside = path.with_extension("log.new");
        let mut file = File::create(&beside)?;
        let mut bytes = 0;
        let mut write = |record: &Record| -> io::Result<()> {
            let record = spell(record)?;
            bytes += record.len() as u64;
            file.write_all(&record)
        };
        write(&Record::Open { format: FORMAT, session })?;
        let mut chunk = Vec::new();
        let mut chunk_bytes = 0;
        for (path, entry) in &tree.nodes {
            let data = String::from_utf8_lossy(&entry.data).into_owned();
            chunk_bytes += path.len() + data.len();
            chunk.push((path.clone(), entry.version, data, entry.session.is_some()));
            if chunk_bytes >= CHUNK_BYTES {
                write(&Record::Nodes(std::mem::take(&mut chunk)))?;
                chunk_bytes = 0;
            }
        }
        if !chunk.is_empty() {
            write(&Record::Nodes(chunk))?;
        }
        faults.check("compact")?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        sync_folder(path)?;
        Ok(Self { file, path: path.into(), bytes, faults })
    }

    /// Has the entry of the log in its folder on disk.
    pub(super) fn sync_folder(&self) -> io::Result<()> {
        sync_folder(&self.path)
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn spell(record: &Record) -> io::Result<Vec<u8>> {
    let payload = serde_json::to_vec(record).map_err(io::Error::other)?;
    let length = u32::try_from(payload.len()).ok().filter(|length| *length as usize <= PAYLOAD_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("the record is too long for the log"))?.to_le_bytes();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&length), &payload);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&payload);
    Ok(bytes)
}
