//! Where checkpoints live: ZooKeeper in production, a log in a folder for one process, memory for tests. Owns how a request of
//! the engine reaches a store and how its one answer comes back, the bounds of a request, and the layout and spelling of what
//! is stored. When something is read or written, and what an answer means, is the engine's.
//!
//! All three behave alike, which one contract script shows (`tests/store_contract.rs`): a request is atomic, a node is made at
//! version 0 and each set adds one, a node can only be made below a descriptor and a member only below the member counter,
//! member nodes vanish with the session, nothing but members is ever removed.

mod paths;
mod request;
mod wire;

mod tree;

mod file;
mod memory;
mod zookeeper;

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use kiteline_engine::{
    ids::RequestId,
    store::{StoreAnswer, StoreRequest},
};
use tokio::sync::mpsc;

use crate::Error;
use paths::Layout;

pub use memory::MemoryStore;
pub use request::{REQUEST_BYTES_MAX, REQUEST_OPS_MAX};
pub use zookeeper::{Credentials, Tls, ZookeeperConfig};

/// Requests that may wait for the store's thread. The engine keeps far fewer in flight; one more is answered
/// [`StoreAnswer::Unknown`] at once.
pub const QUEUE_MAX: usize = 1_024;

/// Which store, and which pipeline's part of it.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Name of the app; any text but the empty one.
    pub app: String,
    /// Name of the pipeline in the app; any text but the empty one.
    pub pipeline: String,
    /// Only looks: makes no folder, node or session entry, takes no lock, and answers every [`StoreRequest::Multi`] with
    /// [`StoreAnswer::Failed`]. For commands that show something beside a running pipeline.
    pub read_only: bool,
    /// Which kind.
    pub backend: Backend,
}

/// The kinds of store.
#[derive(Clone, Debug)]
pub enum Backend {
    /// Shared by all members, the one for production.
    Zookeeper(ZookeeperConfig),
    /// A folder on a local disk, for one process, which must hold every partition of the group. One folder serves one
    /// pipeline at a time: its lock is the session.
    File(PathBuf),
    /// Gone with the process; clones of one [`MemoryStore`] share it.
    Memory(MemoryStore),
}

/// What a store reports. Each event comes from the store's thread, [`StoreAnswer::Unknown`] for a full queue from the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// The first session, or a new one after [`StoreEvent::Expired`]. Requests sent before it are not served by it.
    Session {
        /// Its number, as in [`kiteline_engine::store::Owner::session`].
        session: i64,
        /// Negotiated timeout in milliseconds: this long without contact, and the session is gone.
        timeout_ms: u64,
    },
    /// The one answer to a request.
    Answer {
        /// Which request.
        request: RequestId,
        /// The answer.
        answer: StoreAnswer,
        /// Milliseconds since [`Store::request`] was called, on a clock that counts suspend: the lease is measured from there.
        sent_ms_ago: u64,
    },
    /// The connection is lost; the session may live.
    Disconnected,
    /// The connection is back, in the same session.
    Reconnected,
    /// The session is gone, and its member nodes with it. A new one follows.
    Expired,
    /// The store cannot be reached; tried again for ever, at bounded intervals. What a person reads, at most once for each
    /// cause and minute.
    Waiting(String),
    /// The store refuses: credentials, access rights, a chroot that may not be made, a damaged log. Tried again as well, since
    /// it is mended outside. What a person reads, rate as above.
    Failed(String),
}

/// Where every event goes.
pub(crate) type Events = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// A store at work on a thread of its own.
#[derive(Debug)]
pub struct Store {
    commands: mpsc::Sender<Command>,
    events: EventsHandle,
    done: std::sync::mpsc::Receiver<()>,
}

/// Hides the callback from `Debug`.
struct EventsHandle(Events);

impl std::fmt::Debug for EventsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("events")
    }
}

/// What reaches a store's thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this and answer it once.
    Request { id: RequestId, request: StoreRequest, sent_ms: u64 },
    /// The session is to end now (memory store only).
    Expire,
    /// Finish what came before, end the session, stop.
    Close,
}

impl Store {
    /// Starts the store's thread. A file store is opened, locked and read before this returns; ZooKeeper is connected to
    /// afterwards, since it may be away, and [`StoreEvent::Session`] tells when it is there.
    ///
    /// `events` must not block.
    ///
    /// # Errors
    /// An unusable setting, a folder in use or a damaged log.
    pub fn start(config: StoreConfig, events: impl Fn(StoreEvent) + Send + Sync + 'static) -> Result<Self, Error> {
        let events: Events = Arc::new(events);
        let layout = Layout::new(&config.app, &config.pipeline)?;
        let (commands, queue) = mpsc::channel(QUEUE_MAX);
        let sink = Arc::clone(&events);
        let read_only = config.read_only;
        let serve: Box<dyn FnOnce() + Send> = match config.backend {
            Backend::Zookeeper(backend) => {
                let server = zookeeper::Server::new(backend, layout, read_only, sink)?;
                Box::new(move || server.serve(queue))
            }
            Backend::File(folder) => {
                let mut server = file::Server::open(&folder, layout, read_only, sink)?;
                Box::new(move || server.serve(queue))
            }
            Backend::Memory(store) => {
                let mut server = memory::Server::new(store, layout, read_only, commands.clone(), sink);
                Box::new(move || server.serve(queue))
            }
        };
        let (finished, done) = std::sync::mpsc::channel();
        thread::Builder::new()
            .name("checkpoint".into())
            .spawn(move || {
                serve();
                // Nobody may be waiting any more, which is fine.
                let _ = finished.send(());
            })
            .map_err(|source| Error::Thread { name: "checkpoint", source })?;
        Ok(Self { commands, events: EventsHandle(events), done })
    }

    /// Hands a request over. Never blocks; ends as exactly one [`StoreEvent::Answer`], [`StoreAnswer::Unknown`] at the latest
    /// when a third of the session has passed.
    pub fn request(&self, id: RequestId, request: StoreRequest) {
        let command = Command::Request { id, request, sent_ms: boot_ms() };
        if self.commands.try_send(command).is_err() {
            (self.events.0)(StoreEvent::Answer { request: id, answer: StoreAnswer::Unknown, sent_ms_ago: 0 });
        }
    }

    /// Serves what was asked for before, ends the session and waits for that, at most `limit`.
    pub fn close(self, limit: Duration) {
        // A full queue or an ended thread: dropping the sender below ends it as well.
        let _ = self.commands.try_send(Command::Close);
        let Self { commands, events: _, done } = self;
        drop(commands);
        let _ = done.recv_timeout(limit);
    }
}

/// Milliseconds since boot, suspend included. The lease must not stand still while the machine sleeps.
pub(crate) fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Sends the one answer to a request.
pub(crate) fn answer(events: &Events, request: RequestId, answer: StoreAnswer, sent_ms: u64) {
    let sent_ms_ago = boot_ms().saturating_sub(sent_ms);
    events(StoreEvent::Answer { request, answer, sent_ms_ago });
}

/// Says the same thing at most once in [`NOTICE_MS_MIN`].
#[derive(Debug, Default)]
pub(crate) struct Notices {
    last: Option<(StoreEvent, u64)>,
}

/// Time before the same notice is given again, in milliseconds.
const NOTICE_MS_MIN: u64 = 60_000;

impl Notices {
    /// Passes a notice on, unless it was the last one and not long ago.
    pub(crate) fn tell(&mut self, events: &Events, notice: StoreEvent) {
        let now_ms = boot_ms();
        let again = self.last.as_ref().is_some_and(|(last, at)| *last == notice && now_ms - at < NOTICE_MS_MIN);
        if !again {
            events(notice.clone());
            self.last = Some((notice, now_ms));
        }
    }

    /// All is well: whatever comes next is news.
    pub(crate) fn clear(&mut self) {
        self.last = None;
    }
}

/// What a read-only store says to a write.
pub(crate) const READ_ONLY: &str = "the store was opened for reading only";
