//! A store in memory, for tests: several stores of one process share a tree, each with a session of its own. Owns the hooks
//! that lose requests and answers, hold requests back, end sessions and write what no kiteline would.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kiteline_engine::store::{Key, StoreAnswer, StoreRequest};
use tokio::sync::mpsc;

use super::{
    Command, Events, READ_ONLY, StoreEvent, answer,
    paths::Layout,
    request::{WireOp, spell},
    tree::{Entry, Tree},
};
use crate::Error;

/// Timeout that sessions in memory name. Nothing ends by it; it paces the lease of the engine.
const SESSION_TIMEOUT_MS: u64 = 30_000;

/// The shared tree and what is to go wrong with the next requests. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    tree: Tree,
    /// Number of the last session.
    sessions: i64,
    /// Where to tell a session that it is over.
    open: BTreeMap<i64, mpsc::WeakSender<Command>>,
    lose_answers: usize,
    lose_requests: usize,
    hold_requests: usize,
    /// Requests held back, with their sessions, in order.
    held: Vec<(i64, Vec<WireOp>)>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next `count` writing requests take effect, and their answers are lost ([`StoreAnswer::Unknown`]).
    pub fn lose_answers(&self, count: usize) {
        self.shared().lose_answers = count;
    }

    /// The next `count` writing requests never arrive; [`StoreAnswer::Unknown`] as well.
    pub fn lose_requests(&self, count: usize) {
        self.shared().lose_requests = count;
    }

    /// The next `count` writing requests are answered [`StoreAnswer::Unknown`] and arrive only with
    /// [`MemoryStore::deliver_held`]: a first try that comes after the second.
    pub fn hold_requests(&self, count: usize) {
        self.shared().hold_requests = count;
    }

    /// Lets the requests that were held back arrive, in their order. How many took effect.
    pub fn deliver_held(&self) -> usize {
        let mut shared = self.shared();
        let held = std::mem::take(&mut shared.held);
        held.into_iter().filter(|(session, ops)| shared.tree.apply(ops, *session).is_ok()).count()
    }

    /// Ends a session at once: its members are gone when this returns, its store hears of it and opens another.
    pub fn expire(&self, session: i64) {
        let mut shared = self.shared();
        shared.tree.end_sessions(Some(session));
        shared.held.retain(|(held, _)| *held != session);
        if let Some(store) = shared.open.remove(&session).and_then(|store| store.upgrade()) {
            // A full queue means that the store is stuck, and a closed one that it is gone: nobody is left to tell.
            let _ = store.try_send(Command::Expire);
        }
    }

    /// Writes any bytes at a key, whatever stands there, at the next version.
    ///
    /// # Errors
    /// A name that no pipeline can have.
    pub fn write_raw(&self, app: &str, pipeline: &str, key: &Key, bytes: &[u8]) -> Result<(), Error> {
        let path = Layout::new(app, pipeline)?.path(key);
        let mut shared = self.shared();
        let version = shared.tree.nodes.get(&path).map_or(0, |entry| entry.version.wrapping_add(1));
        shared.tree.nodes.insert(path, Entry { data: bytes.to_vec(), version, session: None });
        Ok(())
    }

    /// A poisoned lock means a panic in a test elsewhere; the tree is whole between two calls all the same.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One store on the shared tree.
pub(super) struct Server {
    store: MemoryStore,
    layout: Layout,
    read_only: bool,
    /// The own queue, lent to the shared part so that a session can be ended from outside.
    commands: mpsc::WeakSender<Command>,
    events: Events,
    session: i64,
}

impl Server {
    pub(super) fn new(
        store: MemoryStore,
        layout: Layout,
        read_only: bool,
        commands: mpsc::Sender<Command>,
        events: Events,
    ) -> Self {
        Self { store, layout, read_only, commands: commands.downgrade(), events, session: 0 }
    }

    /// Serves until it is closed.
    pub(super) fn serve(&mut self, mut queue: mpsc::Receiver<Command>) {
        self.open_session();
        while let Some(command) = queue.blocking_recv() {
            match command {
                Command::Request { id, request, sent_ms } => {
                    let result = self.perform(&request);
                    answer(&self.events, id, result, sent_ms);
                }
                Command::Expire => {
                    (self.events)(StoreEvent::Expired);
                    self.open_session();
                }
                Command::Close => break,
            }
        }
        let mut shared = self.store.shared();
        shared.tree.end_sessions(Some(self.session));
        shared.open.remove(&self.session);
    }

    fn open_session(&mut self) {
        let mut shared = self.store.shared();
        shared.sessions += 1;
        self.session = shared.sessions;
        shared.open.insert(self.session, self.commands.clone());
        drop(shared);
        (self.events)(StoreEvent::Session { session: self.session, timeout_ms: SESSION_TIMEOUT_MS });
    }

    fn perform(&self, request: &StoreRequest) -> StoreAnswer {
        let mut shared = self.store.shared();
        if let Some(found) = shared.tree.read(&self.layout, request) {
            return found;
        }
        let StoreRequest::Multi(ops) = request else { return StoreAnswer::Unknown };
        if self.read_only {
            return StoreAnswer::Failed(READ_ONLY.into());
        }
        let ops = match spell(&self.layout, ops) {
            Ok(ops) => ops,
            Err(detail) => return StoreAnswer::Failed(detail),
        };
        // A session that was just ended from outside writes nothing more, even if it has not heard of it yet.
        if !shared.open.contains_key(&self.session) {
            return StoreAnswer::Unknown;
        }
        if take_one(&mut shared.lose_requests) {
            return StoreAnswer::Unknown;
        }
        if take_one(&mut shared.hold_requests) {
            shared.held.push((self.session, ops));
            return StoreAnswer::Unknown;
        }
        let done = shared.tree.apply(&ops, self.session);
        if take_one(&mut shared.lose_answers) {
            return StoreAnswer::Unknown;
        }
        match done {
            Ok(()) => StoreAnswer::Done(ops.iter().map(WireOp::version_after).collect()),
            Err(index) => StoreAnswer::Refused(index),
        }
    }
}

fn take_one(count: &mut usize) -> bool {
    let some = *count > 0;
    *count = count.saturating_sub(1);
    some
}
