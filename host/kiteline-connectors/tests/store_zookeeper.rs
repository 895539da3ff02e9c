//! What only a real ZooKeeper shows: chroot, access rights, a lost connection, a lost session. Runs when `KITELINE_ZK_CONNECT`
//! names one; else each test says that it was skipped.

mod stores;

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use kiteline_connectors::{
    Secret,
    checkpoint::{Backend, Credentials, StoreEvent, Tls, ZookeeperConfig},
};
use kiteline_engine::{
    ids::{MemberId, Nonce, Revision, Run},
    store::*,
};
use stores::{Opened, unique, with_client, zookeeper_servers};
use zookeeper_client::{Acls, CreateMode};

fn place(servers: &str) -> String {
    format!("{servers}/kiteline-tests/{}", unique())
}

fn descriptor() -> Op {
    let extra = Extra::default();
    let (group, delivery) = ("g".into(), "at-least-once".into());
    Op::Create(
        Key::Descriptor,
        Node::Descriptor(Descriptor { incarnation: Nonce(1), group, delivery, created_ms: 1, extra }),
    )
}

fn counter() -> Op {
    Op::Create(Key::Members, Node::Members(MemberCounter::default()))
}

fn join(name: &str) -> Op {
    let record = MemberRecord {
        nonce: Nonce(1),
        session: 1,
        host: "h".into(),
        pid: 1,
        boot: "b".into(),
        run: Run(1),
        revision: Revision(1),
        extra: Extra::default(),
    };
    Op::Create(Key::Member(MemberId(name.into())), Node::Member(record))
}

fn member_count(store: &Opened) -> usize {
    match store.ask(StoreRequest::Members) {
        StoreAnswer::Members(members) => members.len(),
        other => panic!("{other:?}"),
    }
}

/// Case 36: a chroot that is not there is made.
#[test]
fn case_36_a_missing_chroot_is_made() {
    let Some(servers) = zookeeper_servers() else { return };
    let chroot = format!("/kiteline-tests/{}/a/b", unique());
    let store = Opened::start(Backend::Zookeeper(ZookeeperConfig::new(format!("{servers}{chroot}"))), false);
    let (session, timeout_ms) = store.session();
    assert_ne!(session, 0);
    assert!((4_000..=40_000).contains(&timeout_ms), "{timeout_ms}");
    assert_eq!(store.ask(StoreRequest::Multi(vec![descriptor()])), StoreAnswer::Done(vec![0]));
    let path = format!("{chroot}/kiteline/v1/apps/shop/pipelines/orders");
    let (text, acls) = with_client(&servers, async |client| {
        let text = client.get_data(&path).await.unwrap().0;
        (String::from_utf8(text).unwrap(), client.get_acl(&path).await.unwrap().0)
    });
    assert_eq!(text, r#"{"v":1,"incarnation":"0000000000000001","group":"g","delivery":"at-least-once","created":1}"#);
    assert_eq!(acls.iter().map(|acl| acl.id()).collect::<Vec<_>>(), ["anyone"]);
    store.close();
}

/// A store that only looks makes nothing, not even its chroot.
#[test]
fn a_read_only_store_makes_nothing() {
    let Some(servers) = zookeeper_servers() else { return };
    let chroot = format!("/kiteline-tests-{}", unique());
    let store = Opened::start(Backend::Zookeeper(ZookeeperConfig::new(format!("{servers}{chroot}"))), true);
    store.session();
    assert_eq!(store.ask(StoreRequest::Read(vec![Key::RunHead])), StoreAnswer::Nodes(vec![Found::Absent]));
    assert_eq!(store.ask(StoreRequest::Checkpoints), StoreAnswer::Checkpoints(vec![]));
    assert!(matches!(store.ask(StoreRequest::Multi(vec![descriptor()])), StoreAnswer::Failed(_)));
    store.close();
    let there = with_client(&servers, async |client| client.check_stat(&chroot).await.unwrap());
    assert_eq!(there, None);
}

/// Case 36: refused credentials are a named state, and it goes on without a restart once that is mended.
#[test]
fn case_36_wrong_credentials_are_named_and_recover() {
    let Some(servers) = zookeeper_servers() else { return };
    // A chroot that no other test shares, since its first level belongs to the owner alone.
    let chroot = format!("/kiteline-digest-{}", unique());
    let connect = format!("{servers}{chroot}");
    let config = |password: &str| {
        let digest = Some(Credentials { user: "kite".into(), password: Secret::new(password) });
        Backend::Zookeeper(ZookeeperConfig { digest, ..ZookeeperConfig::new(&connect) })
    };
    let owner = Opened::start(config("p:a@b/c%"), false);
    owner.session();
    assert_eq!(owner.ask(StoreRequest::Multi(vec![descriptor(), counter()])), StoreAnswer::Done(vec![0, 0]));

    let stranger = Opened::start(config("wrong"), false);
    let refused = |event| match event {
        StoreEvent::Failed(text) => Some(text),
        StoreEvent::Session { .. } => panic!("a session with wrong credentials"),
        _ => None,
    };
    let text = stranger.wait("refusal", refused);
    assert!(text.contains("no right to") && text.contains(&chroot), "{text}");
    assert!(!text.contains("wrong"), "{text}");

    // Nobody else can read or write what the owner made.
    let path = "/kiteline/v1/apps/shop/pipelines/orders";
    let stolen = with_client(&connect, async |client| client.get_data(path).await.map(drop));
    assert_eq!(stolen, Err(zookeeper_client::Error::NoAuth));

    // Mended: everything is opened to everybody.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = zookeeper_client::Client::connector().with_auth("digest", b"kite:p:a@b/c%");
        let client = client.connect(&servers).await.unwrap();
        let mut at = chroot.clone();
        client.set_acl(&at, &Acls::anyone_all(), None).await.unwrap();
        for part in path.split('/').skip(1) {
            at = format!("{at}/{part}");
            client.set_acl(&at, &Acls::anyone_all(), None).await.unwrap();
        }
    });
    stranger.session();
    stranger.close();
    owner.close();
}

/// Case 36 at a level where making the chroot itself is forbidden: the path is named.
#[test]
fn case_36_a_chroot_that_may_not_be_made_is_named() {
    let Some(servers) = zookeeper_servers() else { return };
    let locked = format!("/kiteline-locked-{}", unique());
    with_client(&servers, async |client| {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_read());
        client.create(&locked, b"", &options).await.map(drop).unwrap();
    });
    let store = Opened::start(Backend::Zookeeper(ZookeeperConfig::new(format!("{servers}{locked}/inner"))), false);
    let text = store.wait("refusal", |event| match event {
        StoreEvent::Failed(text) => Some(text),
        _ => None,
    });
    assert_eq!(text, format!("no right to make '{locked}/inner' in ZooKeeper"));
    store.close();
}

#[test]
fn nobody_there_is_said_and_requests_end() {
    let mut config = ZookeeperConfig::new("127.0.0.1:1/x");
    config.session_timeout_ms = 1_000;
    let store = Opened::start(Backend::Zookeeper(config), false);
    let text = store.wait("notice", |event| match event {
        StoreEvent::Waiting(text) => Some(text),
        _ => None,
    });
    assert_eq!(text, "no ZooKeeper server can be reached at '127.0.0.1:1'");
    assert_eq!(store.ask(StoreRequest::Members), StoreAnswer::Unknown);
    let asked: Vec<_> = (0..100).map(|_| store.send(StoreRequest::Members)).collect();
    for id in asked {
        assert_eq!(store.answer(id), StoreAnswer::Unknown);
    }
    store.close();
}

/// TLS with a private authority, and SASL DIGEST-MD5 inside it: `zookeeper start --tls` with `KITELINE_ZK_USERS` gives both.
#[test]
fn tls_and_sasl_reach_the_server() {
    let env = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(servers), Some(ca)) = (env("KITELINE_ZK_TLS_CONNECT"), env("KITELINE_ZK_TLS_CA")) else {
        eprintln!("skipped TLS: KITELINE_ZK_TLS_CONNECT and KITELINE_ZK_TLS_CA are not set");
        return;
    };
    let ca_pem = Some(std::fs::read_to_string(ca).unwrap());
    let tls = Some(Tls { ca_pem, identity_pem: None });
    let mut config = ZookeeperConfig { tls, ..ZookeeperConfig::new(format!("{servers}/kiteline-tls-{}", unique())) };
    let users = env("KITELINE_ZK_USERS");
    let user = users.as_deref().and_then(|users| users.split_whitespace().next()?.split_once(':'));
    if let Some((user, password)) = user {
        config.sasl = Some(Credentials { user: user.into(), password: Secret::new(password) });
    }
    let store = Opened::start(Backend::Zookeeper(config.clone()), false);
    store.session();
    assert_eq!(store.ask(StoreRequest::Multi(vec![descriptor()])), StoreAnswer::Done(vec![0]));
    if let Some((user, _)) = user {
        config.sasl = Some(Credentials { user: user.into(), password: Secret::new("wrong") });
        let stranger = Opened::start(Backend::Zookeeper(config), false);
        let text = stranger.wait("refusal", |event| match event {
            StoreEvent::Failed(text) => Some(text),
            _ => None,
        });
        assert!(text.contains("refuses the credentials"), "{text}");
        stranger.close();
    }
    store.close();
}

/// A connection that breaks is told and comes back in the same session; one that stays away costs the session, and a new one
/// follows.
#[test]
fn a_lost_connection_and_a_lost_session_are_told() {
    let Some(servers) = zookeeper_servers() else { return };
    let connect = place(&servers);
    let (_, chroot) = connect.split_at(servers.len());
    let proxy = Proxy::start(servers.split(',').next().unwrap()).unwrap();
    let mut config = ZookeeperConfig::new(format!("{}{chroot}", proxy.address));
    config.session_timeout_ms = 4_000;
    let store = Opened::start(Backend::Zookeeper(config), false);
    let watcher = Opened::start(Backend::Zookeeper(ZookeeperConfig::new(&connect)), false);
    watcher.session();
    let (session, _) = store.session();
    let made = store.ask(StoreRequest::Multi(vec![descriptor(), counter(), join("m")]));
    assert_eq!(made, StoreAnswer::Done(vec![0, 0, 0]));

    proxy.cut();
    store.wait("loss", |event| (event == StoreEvent::Disconnected).then_some(()));
    store.wait("return", |event| (event == StoreEvent::Reconnected).then_some(()));
    assert_eq!(member_count(&store), 1);

    proxy.close();
    store.wait("loss", |event| (event == StoreEvent::Disconnected).then_some(()));
    let asked = store.send(StoreRequest::Multi(vec![Op::Check(Key::Descriptor, 0)]));
    // Ends by its own time, long before anything comes back.
    assert_eq!(store.answer(asked), StoreAnswer::Unknown);
    let until = std::time::Instant::now() + stores::WAIT;
    while member_count(&watcher) > 0 {
        assert!(std::time::Instant::now() < until, "the session does not end");
    }
    proxy.open();
    store.wait("end of the session", |event| (event == StoreEvent::Expired).then_some(()));
    let (again, _) = store.session();
    assert_ne!(session, again);
    assert_eq!(store.ask(StoreRequest::Multi(vec![join("m")])), StoreAnswer::Done(vec![0]));
    assert_eq!(member_count(&watcher), 1);
    store.close();
    assert_eq!(member_count(&watcher), 0);
    watcher.close();
}

/// A TCP proxy that can cut its connections and refuse new ones.
struct Proxy {
    address: SocketAddr,
    open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(target: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let open = Arc::new(AtomicBool::new(true));
        let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (target, opened, kept) = (target.to_string(), Arc::clone(&open), Arc::clone(&streams));
        // Ends with the process of the test.
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = opened.load(Ordering::SeqCst).then(|| TcpStream::connect(&target)).and_then(Result::ok);
                let Some(far) = far else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
                    kept.lock().expect("no panic").push(from.try_clone().expect("a handle"));
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Ok(Self { address, open, streams })
    }

    /// Cuts what is connected.
    fn cut(&self) {
        for stream in self.streams.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Cuts, and refuses from now on.
    fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
        self.cut();
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}
