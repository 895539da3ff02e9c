//! Stores to run scripts against: how each kind is started, asked and written to from outside.

#![allow(dead_code, reason = "each suite uses a part")]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use kiteline_connectors::{
    checkpoint::{Backend, MemoryStore, Store, StoreConfig, StoreEvent, ZookeeperConfig},
    escape,
};
use kiteline_engine::{
    ids::RequestId,
    store::{Key, StoreAnswer, StoreRequest},
};

/// Longest wait for anything. Only a broken test waits this long.
pub(crate) const WAIT: Duration = Duration::from_secs(30);

/// Which member asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    A,
    B,
}

/// A kind of store with a place of its own.
#[derive(Debug)]
pub(crate) enum Kind {
    Memory(MemoryStore),
    File(PathBuf),
    /// Connect string, with a chroot of its own.
    Zookeeper(String),
}

/// Unique within this machine's tests.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{nanos:x}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Servers of the real ZooKeeper, if there is one.
pub(crate) fn zookeeper_servers() -> Option<String> {
    let connect = std::env::var("KITELINE_ZK_CONNECT").ok().filter(|connect| !connect.is_empty());
    if connect.is_none() {
        eprintln!("skipped the half with a real ZooKeeper: KITELINE_ZK_CONNECT is not set");
    }
    connect
}

impl Kind {
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    pub(crate) fn file() -> Self {
        Self::File(std::env::temp_dir().join(format!("kiteline-stores-{}", unique())))
    }

    pub(crate) fn zookeeper() -> Option<Self> {
        zookeeper_servers().map(|servers| Self::Zookeeper(format!("{servers}/kiteline-tests/{}", unique())))
    }

    pub(crate) fn backend(&self) -> Backend {
        match self {
            Self::Memory(store) => Backend::Memory(store.clone()),
            Self::File(folder) => Backend::File(folder.clone()),
            Self::Zookeeper(connect) => Backend::Zookeeper(ZookeeperConfig::new(connect)),
        }
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        if let Self::File(folder) = self {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// One store and what it says.
pub(crate) struct Opened {
    store: Store,
    events: mpsc::Receiver<StoreEvent>,
}

impl Opened {
    /// Starts a store without waiting for its session.
    pub(crate) fn start(backend: Backend, read_only: bool) -> Self {
        let (sender, events) = mpsc::channel();
        let config = StoreConfig { app: "shop".into(), pipeline: "orders".into(), read_only, backend };
        // The receiver goes first at the end of a test.
        let store = Store::start(config, move |event| drop(sender.send(event))).expect("the store starts");
        Self { store, events }
    }

    /// The next event that `wanted` picks; others before it are dropped.
    pub(crate) fn wait<T>(&self, what: &str, mut wanted: impl FnMut(StoreEvent) -> Option<T>) -> T {
        let until = std::time::Instant::now() + WAIT;
        let mut seen = Vec::new();
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let Ok(event) = self.events.recv_timeout(left) else { panic!("no {what}; {seen:?} came") };
            seen.push(format!("{event:?}"));
            if let Some(found) = wanted(event) {
                return found;
            }
        }
    }

    /// Waits for a session; its number and timeout.
    pub(crate) fn session(&self) -> (i64, u64) {
        self.wait("session", |event| match event {
            StoreEvent::Session { session, timeout_ms } => Some((session, timeout_ms)),
            _ => None,
        })
    }

    /// Asks and waits for the answer.
    pub(crate) fn ask(&self, request: StoreRequest) -> StoreAnswer {
        let id = self.send(request);
        self.answer(id)
    }

    /// Asks.
    pub(crate) fn send(&self, request: StoreRequest) -> RequestId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = RequestId(NEXT.fetch_add(1, Ordering::Relaxed));
        self.store.request(id, request);
        id
    }

    /// Waits for the answer to one request.
    pub(crate) fn answer(&self, id: RequestId) -> StoreAnswer {
        self.wait("answer", |event| match event {
            StoreEvent::Answer { request, answer, .. } if request == id => Some(answer),
            _ => None,
        })
    }

    pub(crate) fn close(self) {
        self.store.close(WAIT);
    }
}

/// The stores of the members.
pub(crate) struct Stores<'a> {
    kind: &'a Kind,
    open: BTreeMap<Who, Opened>,
}

impl<'a> Stores<'a> {
    pub(crate) fn new(kind: &'a Kind) -> Self {
        Self { kind, open: BTreeMap::new() }
    }

    /// Starts the store of a member and waits for its session.
    pub(crate) fn open(&mut self, who: Who) -> &Opened {
        self.open.entry(who).or_insert_with(|| {
            let opened = Opened::start(self.kind.backend(), false);
            opened.session();
            opened
        })
    }

    pub(crate) fn close(&mut self, who: Who) {
        if let Some(opened) = self.open.remove(&who) {
            opened.close();
        }
    }

    pub(crate) fn ask(&mut self, who: Who, request: StoreRequest) -> StoreAnswer {
        self.open(who).ask(request)
    }

    /// Writes bytes over a partition's node as some foreign tool would.
    pub(crate) fn write_raw(&self, key: &Key, bytes: &[u8]) {
        let Key::Partition(at) = key else { panic!("only partitions are written to") };
        match self.kind {
            Kind::Memory(store) => store.write_raw("shop", "orders", key, bytes).expect("written"),
            Kind::Zookeeper(connect) => {
                let topic = escape(&at.topic);
                let path = format!("/kiteline/v1/apps/shop/pipelines/orders/partitions/{topic}/{}", at.partition);
                with_client(connect, async |client| client.set_data(&path, bytes, None).await.map(drop))
                    .expect("written");
            }
            Kind::File(_) => panic!("its log is checked in the crate's own tests"),
        }
    }
}

/// Does something with a plain client, as an operator with a shell would.
pub(crate) fn with_client<T>(connect: &str, work: impl AsyncFnOnce(zookeeper_client::Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = zookeeper_client::Client::connect(connect).await.expect("a client");
        work(client).await
    })
}
