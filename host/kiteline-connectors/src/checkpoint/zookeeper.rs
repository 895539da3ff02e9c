//! ZooKeeper as the store. Owns the session: connecting, making the chroot and showing the right to write, telling when the
//! connection or the session is lost, and a new client after that. How a request becomes ZooKeeper's operations is one level
//! down. What a lost session means for claims is the engine's.

mod config;
mod requests;

use std::{sync::Arc, time::Duration};

use kiteline_engine::{ids::RequestId, store::StoreAnswer};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use zookeeper_client as zk;
use zookeeper_client::SessionState;

use self::requests::Session;
use super::{Command, Events, Notices, StoreEvent, answer, boot_ms, paths::Layout};
use crate::Error;

pub use config::{Credentials, Tls, ZookeeperConfig};

/// Longest try to connect, before the next one. The client goes through all servers in it.
const CONNECT_MS_MAX: u64 = 10_000;

/// Pauses between tries to connect; they double.
const BACKOFF_MS: (u64, u64) = (100, 5_000);

/// Requests served at a time; further ones wait in the queue.
const IN_FLIGHT_MAX: usize = 64;

/// Part of the session after which a request is unknown.
const REQUEST_PART: u32 = 3;

/// Longest farewell to the server, so that member nodes vanish at once and not with the session's end.
const FAREWELL_MS_MAX: u64 = 2_000;

/// The store, before its thread runs.
pub(super) struct Server {
    config: config::Checked,
    layout: Layout,
    read_only: bool,
    events: Events,
    runtime: tokio::runtime::Runtime,
}

/// Why there is no session. Both are tried again; the words are for people.
pub(super) enum Trouble {
    /// Nobody there.
    Waiting(String),
    /// Somebody refuses.
    Failed(String),
}

/// Why serving a session ended.
enum End {
    Close,
    Lost,
}

impl Server {
    /// Checks the settings. Connects to nothing yet.
    pub(super) fn new(config: ZookeeperConfig, layout: Layout, read_only: bool, events: Events) -> Result<Self, Error> {
        let config = config.check()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| Error::Thread { name: "checkpoint", source })?;
        Ok(Self { config, layout, read_only, events, runtime })
    }

    /// Serves until it is closed.
    pub(super) fn serve(self, mut queue: mpsc::Receiver<Command>) {
        let Self { config, layout, read_only, events, runtime } = self;
        let keeper = Keeper { config, layout: Arc::new(layout), read_only, events };
        runtime.block_on(keeper.run(&mut queue));
    }
}

/// What outlives a session.
struct Keeper {
    config: config::Checked,
    layout: Arc<Layout>,
    read_only: bool,
    events: Events,
}

impl Keeper {
    /// One session after the other.
    async fn run(&self, queue: &mut mpsc::Receiver<Command>) {
        loop {
            let Some(client) = self.connect(queue).await else { return };
            // The states are subscribed to before anything is served: none is missed.
            let states = client.state_watcher();
            let session = Session::new(client, &self.config, Arc::clone(&self.layout), self.read_only);
            let timeout_ms = u64::try_from(session.timeout().as_millis()).unwrap_or(u64::MAX);
            (self.events)(StoreEvent::Session { session: session.id(), timeout_ms });
            match self.serve(session, states, queue).await {
                End::Close => return,
                End::Lost => (self.events)(StoreEvent::Expired),
            }
        }
    }

    /// Tries until there is a session that may do its work; none when the store is closed. Requests that come meanwhile belong
    /// to no session and are never sent: each is unknown when its time is over or a session is there.
    async fn connect(&self, queue: &mut mpsc::Receiver<Command>) -> Option<zk::Client> {
        let mut notices = Notices::default();
        let mut waiting =
            Waiting { events: &self.events, requests: Vec::new(), limit: self.config.session() / REQUEST_PART };
        let mut backoff_ms = BACKOFF_MS.0;
        loop {
            let attempt = timeout(Duration::from_millis(CONNECT_MS_MAX), self.establish());
            let trouble = match waiting.during(attempt, queue).await? {
                Ok(Ok(client)) => return Some(client),
                Ok(Err(trouble)) => trouble,
                Err(_) => Trouble::Waiting(format!("no answer from ZooKeeper at '{}'", self.config.servers())),
            };
            notices.tell(
                &self.events,
                match trouble {
                    Trouble::Waiting(text) => StoreEvent::Waiting(text),
                    Trouble::Failed(text) => StoreEvent::Failed(text),
                },
            );
            waiting.during(tokio::time::sleep(Duration::from_millis(backoff_ms)), queue).await?;
            backoff_ms = (backoff_ms * 2).min(BACKOFF_MS.1);
        }
    }

    /// One try: a session, the folders, and the right to write.
    async fn establish(&self) -> Result<zk::Client, Trouble> {
        let client = self.config.connect().await?;
        if !self.read_only {
            requests::prepare(&client, &self.config, &self.layout).await?;
        }
        Ok(client)
    }

    async fn serve(&self, session: Session, mut states: zk::StateWatcher, queue: &mut mpsc::Receiver<Command>) -> End {
        let limit = session.timeout() / REQUEST_PART;
        let session = Arc::new(session);
        let mut in_flight = JoinSet::new();
        let mut connected = true;
        let end = loop {
            tokio::select! {
                // Lost sessions first: nothing is begun under one that is known to be gone.
                biased;
                state = states.changed() => match state {
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly if !connected => {
                        connected = true;
                        (self.events)(StoreEvent::Reconnected);
                    }
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => {}
                    SessionState::Disconnected if connected => {
                        connected = false;
                        (self.events)(StoreEvent::Disconnected);
                    }
                    SessionState::Disconnected => {}
                    SessionState::AuthFailed => {
                        (self.events)(StoreEvent::Failed("ZooKeeper refuses the credentials".into()));
                        break End::Lost;
                    }
                    _ => break End::Lost,
                },
                Some(_) = in_flight.join_next() => {}
                command = queue.recv(), if in_flight.len() < IN_FLIGHT_MAX => match command {
                    Some(Command::Request { id, request, sent_ms }) => {
                        let session = Arc::clone(&session);
                        let events = Arc::clone(&self.events);
                        in_flight.spawn(async move {
                            let result = timeout(limit, session.perform(request)).await;
                            answer(&events, id, result.unwrap_or(StoreAnswer::Unknown), sent_ms);
                        });
                    }
                    Some(Command::Expire) => {}
                    Some(Command::Close) | None => break End::Close,
                },
            }
        };
        // Each ends by its answer, by the session's end, or by its time.
        while in_flight.join_next().await.is_some() {}
        drop(session);
        if matches!(end, End::Close) {
            let farewell = async { while !states.changed().await.is_terminated() {} };
            // Not heard in time: the server ends the session by itself later.
            let _ = timeout(Duration::from_millis(FAREWELL_MS_MAX), farewell).await;
        }
        end
    }
}

/// Requests that came while there was no session.
struct Waiting<'a> {
    events: &'a Events,
    requests: Vec<(RequestId, u64, Instant)>,
    limit: Duration,
}

impl Waiting<'_> {
    /// Does `work` and answers requests whose time is over meanwhile; none when the store is closed.
    async fn during<T>(&mut self, work: impl Future<Output = T>, queue: &mut mpsc::Receiver<Command>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let next = self.requests.first().map(|(_, _, until)| *until);
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => self.answer_first(),
                command = queue.recv() => match command {
                    Some(Command::Request { id, sent_ms, .. }) => {
                        if self.requests.len() == IN_FLIGHT_MAX {
                            self.answer_first();
                        }
                        let waited = Duration::from_millis(boot_ms().saturating_sub(sent_ms));
                        self.requests.push((id, sent_ms, Instant::now() + self.limit.saturating_sub(waited)));
                    }
                    Some(Command::Expire) => {}
                    Some(Command::Close) | None => return None,
                },
            }
        }
    }

    fn answer_first(&mut self) {
        if !self.requests.is_empty() {
            let (id, sent_ms, _) = self.requests.remove(0);
            answer(self.events, id, StoreAnswer::Unknown, sent_ms);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        while !self.requests.is_empty() {
            self.answer_first();
        }
    }
}
