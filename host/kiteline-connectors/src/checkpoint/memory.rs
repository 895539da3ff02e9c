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

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, channel},
        time::Duration,
    };

    use kiteline_engine::{
        ids::{Nonce, RequestId},
        store::{Descriptor, Extra, Found, Node, Op},
    };

    use super::*;
    use crate::checkpoint::{Backend, Store, StoreConfig};

    fn start(memory: &MemoryStore) -> (Store, Receiver<StoreEvent>) {
        let (sender, events) = channel();
        let backend = Backend::Memory(memory.clone());
        let config = StoreConfig { app: "a".into(), pipeline: "p".into(), read_only: false, backend };
        let store = Store::start(config, move |event| drop(sender.send(event))).unwrap();
        (store, events)
    }

    fn next(events: &Receiver<StoreEvent>) -> StoreEvent {
        events.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    fn ask(store: &Store, events: &Receiver<StoreEvent>, request: StoreRequest) -> StoreAnswer {
        store.request(RequestId(1), request);
        match next(events) {
            StoreEvent::Answer { answer, .. } => answer,
            other => panic!("{other:?}"),
        }
    }

    fn descriptor(incarnation: u64) -> Node {
        let (group, delivery) = ("g".into(), "d".into());
        let incarnation = Nonce(incarnation);
        Node::Descriptor(Descriptor { incarnation, group, delivery, created_ms: 0, extra: Extra::default() })
    }

    #[test]
    fn requests_and_answers_are_lost_as_ordered() {
        let memory = MemoryStore::new();
        let (store, events) = start(&memory);
        assert_eq!(next(&events), StoreEvent::Session { session: 1, timeout_ms: SESSION_TIMEOUT_MS });
        let create = || StoreRequest::Multi(vec![Op::Create(Key::Descriptor, descriptor(0))]);
        let set = |to, version| StoreRequest::Multi(vec![Op::Set(Key::Descriptor, descriptor(to), version)]);
        let read = || StoreRequest::Read(vec![Key::Descriptor]);
        let stands = |node: Found| StoreAnswer::Nodes(vec![node]);
        // Each with what is read afterwards.
        memory.lose_requests(1);
        assert_eq!(ask(&store, &events, create()), StoreAnswer::Unknown);
        assert_eq!(ask(&store, &events, read()), stands(Found::Absent));
        memory.lose_answers(1);
        assert_eq!(ask(&store, &events, create()), StoreAnswer::Unknown);
        assert_eq!(ask(&store, &events, read()), stands(Found::Node(descriptor(0), 0)));
        assert_eq!(ask(&store, &events, create()), StoreAnswer::Refused(0));
        // A first try that comes before the second one, and one that comes after it.
        for (second_first, applied, node) in [(false, 1, descriptor(1)), (true, 0, descriptor(2))] {
            let version = if second_first { 1 } else { 0 };
            memory.hold_requests(1);
            assert_eq!(ask(&store, &events, set(1, version)), StoreAnswer::Unknown);
            if second_first {
                assert_eq!(ask(&store, &events, set(2, version)), StoreAnswer::Done(vec![version + 1]));
            }
            assert_eq!(memory.deliver_held(), applied);
            assert_eq!(ask(&store, &events, read()), stands(Found::Node(node, version + 1)));
        }
        store.close(Duration::from_secs(30));
    }

    #[test]
    fn a_session_that_is_ended_writes_nothing_more() {
        let memory = MemoryStore::new();
        let (store, events) = start(&memory);
        next(&events);
        memory.hold_requests(1);
        let create = StoreRequest::Multi(vec![Op::Create(Key::Descriptor, descriptor(0))]);
        assert_eq!(ask(&store, &events, create), StoreAnswer::Unknown);
        memory.expire(1);
        assert_eq!(memory.deliver_held(), 0);
        assert_eq!(next(&events), StoreEvent::Expired);
        assert_eq!(next(&events), StoreEvent::Session { session: 2, timeout_ms: SESSION_TIMEOUT_MS });
        store.close(Duration::from_secs(30));
        assert!(memory.shared().open.is_empty());
    }
}
