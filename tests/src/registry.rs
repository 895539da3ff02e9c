//! A small stand-in for a schema registry: the part of Confluent's REST interface that kiteline uses, and failures to order.
//! Owns one thread and one loopback port, both gone when it is dropped. It checks nothing about schemas.
//!
//! Each connection carries one request. A request's head is at most 64 KiB and its body 1 MiB; more ends the connection.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

const HEAD_BYTES_MAX: u64 = 64 << 10;
const BODY_BYTES_MAX: usize = 1 << 20;
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests that are remembered by path.
const LOG_MAX: usize = 100_000;

/// A registry on a loopback port.
#[derive(Debug)]
pub struct StandInRegistry {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    schemas: BTreeMap<u32, Stored>,
    /// Ids of each subject's versions, the first is version 1.
    subjects: BTreeMap<String, Vec<u32>>,
    /// Statuses to answer requests for an id with, before it is well.
    scripts: BTreeMap<u32, VecDeque<u16>>,
    /// Status for every request.
    status: Option<u16>,
    /// Accept and hang up.
    down: bool,
    /// Take requests and answer none.
    held: bool,
    /// Value of the `Authorization` header that is asked for.
    authorization: Option<String>,
    /// Subjects that no schema fits.
    incompatible: Vec<String>,
    log: Vec<String>,
    stop: bool,
}

#[derive(Clone, Debug)]
struct Stored {
    text: String,
    kind: String,
    /// Name, subject, version.
    references: Vec<(String, String, u32)>,
}

impl StandInRegistry {
    /// Starts one, with nothing in it.
    ///
    /// # Errors
    /// The system gives no port or no thread.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("registry".into()).spawn(move || serve(&listener, &served))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Its address, `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stores a schema under an id.
    pub fn put(&self, id: u32, schema: &str) {
        self.put_with(id, schema, &[]);
    }

    /// Stores a schema that uses others: name, subject and version of each.
    pub fn put_with(&self, id: u32, schema: &str, references: &[(&str, &str, u32)]) {
        let references =
            references.iter().map(|(name, subject, version)| ((*name).into(), (*subject).into(), *version));
        let stored = Stored { text: schema.into(), kind: "AVRO".into(), references: references.collect() };
        self.state().schemas.insert(id, stored);
    }

    /// Makes the schema of an id one of another type, such as `PROTOBUF`.
    pub fn set_kind(&self, id: u32, kind: &str) {
        if let Some(stored) = self.state().schemas.get_mut(&id) {
            stored.kind = kind.into();
        }
    }

    /// Makes an id the next version of a subject, from 1; the version.
    pub fn add_version(&self, subject: &str, id: u32) -> u32 {
        self.state().add_version(subject, id)
    }

    /// Answers the next requests for an id with these statuses, one each, before it is well again.
    pub fn script(&self, id: u32, statuses: &[u16]) {
        self.state().scripts.insert(id, statuses.iter().copied().collect());
    }

    /// Answers every request with a status, until it is taken back with none.
    pub fn set_status(&self, status: Option<u16>) {
        self.state().status = status;
    }

    /// Hangs up on every connection, as a server that is down behind a balancer.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Takes requests and answers none of them until this is taken back.
    pub fn set_held(&self, held: bool) {
        self.state().held = held;
        self.shared.changed.notify_all();
    }

    /// Asks for basic authentication from now on.
    pub fn require_basic(&self, user: &str, password: &str) {
        let value = format!("Basic {}", base64(format!("{user}:{password}").as_bytes()));
        self.state().authorization = Some(value);
    }

    /// Asks for a bearer token from now on.
    pub fn require_bearer(&self, token: &str) {
        self.state().authorization = Some(format!("Bearer {token}"));
    }

    /// No schema fits this subject from now on.
    pub fn set_incompatible(&self, subject: &str) {
        self.state().incompatible.push(subject.into());
    }

    /// How many requests came, refused and held ones too.
    pub fn request_count(&self) -> usize {
        self.state().log.len()
    }

    /// Method and path of each request, in order.
    pub fn requests(&self) -> Vec<String> {
        self.state().log.clone()
    }

    /// Waits until so many requests came, at most `limit`; whether they did.
    pub fn wait_for_requests(&self, count: usize, limit: Duration) -> bool {
        let state = self.state();
        let waited = self.shared.changed.wait_timeout_while(state, limit, |state| state.log.len() < count);
        waited.unwrap_or_else(PoisonError::into_inner).0.log.len() >= count
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for StandInRegistry {
    fn drop(&mut self) {
        self.state().stop = true;
        self.shared.changed.notify_all();
        // Wakes the thread that waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, read.
struct Request {
    method: String,
    path: String,
    authorization: Option<String>,
    body: Value,
}

fn serve(listener: &TcpListener, shared: &Shared) {
    for connection in listener.incoming() {
        if shared.state().stop {
            return;
        }
        if let Ok(connection) = connection
            && !shared.state().down
        {
            // A client that hangs up, or speaks something else, is no reason to stop.
            let _ = serve_one(&connection, shared);
        }
    }
}

fn serve_one(connection: &TcpStream, shared: &Shared) -> io::Result<()> {
    connection.set_read_timeout(Some(READ_TIMEOUT))?;
    let request = read_request(connection)?;
    let mut state = shared.state();
    if state.log.len() < LOG_MAX {
        let line = format!("{} {}", request.method, request.path);
        state.log.push(line);
    }
    shared.changed.notify_all();
    let held = shared.changed.wait_while(state, |state| state.held && !state.stop);
    let mut state = held.unwrap_or_else(PoisonError::into_inner);
    let (status, body) = state.answer(&request);
    drop(state);
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/vnd.schemaregistry.v1+json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut connection = connection;
    connection.write_all((head + &body).as_bytes())
}

fn read_request(connection: &TcpStream) -> io::Result<Request> {
    let mut reader = BufReader::new(connection.take(HEAD_BYTES_MAX + BODY_BYTES_MAX as u64));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_string);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::Error::other("no request line"));
    };
    let (mut length, mut authorization) = (0, None);
    let mut head_bytes = line.len() as u64;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        head_bytes += line.len() as u64;
        if head_bytes > HEAD_BYTES_MAX {
            return Err(io::Error::other("head too long"));
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
            "authorization" => authorization = Some(value.trim().to_string()),
            _ => {}
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(io::Error::other("body too long"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Request { method, path, authorization, body })
}

impl State {
    fn add_version(&mut self, subject: &str, id: u32) -> u32 {
        let ids = self.subjects.entry(subject.into()).or_default();
        ids.push(id);
        u32::try_from(ids.len()).unwrap_or(u32::MAX)
    }

    fn answer(&mut self, request: &Request) -> (u16, Value) {
        if let Some(status) = self.status {
            return error(status, i64::from(status), "ordered");
        }
        if self.authorization.is_some() && self.authorization != request.authorization {
            return error(401, 401, "unauthorized");
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let parts: Vec<_> = path.trim_start_matches('/').split('/').map(unescape).collect();
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("GET", ["schemas", "ids", id]) => self.by_id(id),
            ("GET", ["subjects", subject, "versions", version]) => self.by_version(subject, version),
            ("POST", ["subjects", subject, "versions"]) => self.register(subject, &request.body),
            ("POST", ["compatibility", "subjects", subject, "versions", "latest"]) => self.check(subject),
            _ => (404, json!({ "error_code": 404, "message": "HTTP 404 Not Found" })),
        }
    }

    fn by_id(&mut self, id: &str) -> (u16, Value) {
        let Ok(id) = id.parse() else { return error(404, 40_403, "schema not found") };
        if let Some(status) = self.scripts.get_mut(&id).and_then(VecDeque::pop_front)
            && status != 200
        {
            return error(status, i64::from(status), "scripted");
        }
        match self.schemas.get(&id) {
            Some(stored) => (200, stored.spelled()),
            None => error(404, 40_403, "schema not found"),
        }
    }

    fn by_version(&self, subject: &str, version: &str) -> (u16, Value) {
        let Some(ids) = self.subjects.get(subject) else { return error(404, 40_401, "subject not found") };
        let version = if version == "latest" { ids.len() } else { version.parse().unwrap_or(0) };
        let stored =
            version.checked_sub(1).and_then(|index| ids.get(index)).and_then(|id| Some((id, self.schemas.get(id)?)));
        let Some((id, stored)) = stored else { return error(404, 40_402, "version not found") };
        let mut body = stored.spelled();
        body["subject"] = subject.into();
        body["id"] = (*id).into();
        body["version"] = version.into();
        (200, body)
    }

    fn register(&mut self, subject: &str, body: &Value) -> (u16, Value) {
        let Some(text) = body["schema"].as_str() else { return error(422, 42_201, "no schema") };
        if self.incompatible.iter().any(|other| other == subject) {
            return error(409, 409, "schema being registered is incompatible with an earlier schema");
        }
        let known = self.schemas.iter().find(|(_, stored)| stored.text == text).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| self.schemas.keys().last().map_or(1, |last| last + 1));
        let stored = Stored { text: text.into(), kind: "AVRO".into(), references: Vec::new() };
        self.schemas.entry(id).or_insert(stored);
        if !self.subjects.get(subject).is_some_and(|ids| ids.contains(&id)) {
            self.add_version(subject, id);
        }
        (200, json!({ "id": id }))
    }

    fn check(&self, subject: &str) -> (u16, Value) {
        if !self.subjects.contains_key(subject) {
            return error(404, 40_401, "subject not found");
        }
        let fits = !self.incompatible.iter().any(|other| other == subject);
        let messages: &[&str] = if fits { &[] } else { &["a field has no default"] };
        (200, json!({ "is_compatible": fits, "messages": messages }))
    }
}

impl Stored {
    fn spelled(&self) -> Value {
        let mut body = json!({ "schema": self.text });
        if self.kind != "AVRO" {
            body["schemaType"] = self.kind.as_str().into();
        }
        if !self.references.is_empty() {
            let spelled = self
                .references
                .iter()
                .map(|(name, subject, version)| json!({ "name": name, "subject": subject, "version": version }));
            body["references"] = spelled.collect();
        }
        body
    }
}

fn error(status: u16, code: i64, message: &str) -> (u16, Value) {
    (status, json!({ "error_code": code, "message": message }))
}

/// Undoes percent-encoding.
fn unescape(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Base64 with padding, six bits at a time.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digit = |six: &[u8]| (0..6).fold(0, |index, bit| index << 1 | usize::from(six.get(bit).copied().unwrap_or(0)));
    let mut text: String = bits.chunks(6).map(|six| char::from(DIGITS[digit(six)])).collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}
