//! Schemas from a schema registry. Owns what is remembered and for how long, that an id is asked for once however many want it,
//! and references between schemas. The talk itself is one level down; what a failure means for a record is the engine's.

mod http;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kiteline_avro::Schema;
use serde::Deserialize;

use crate::{Error, Secret, names::escape};
use http::{Http, Refusal};

/// Schemas that are remembered. Far above what a topic uses; the oldest goes first.
const SCHEMAS_MAX: usize = 10_000;

/// Ids known to be without a usable schema, likewise.
const REFUSED_MAX: usize = 10_000;

/// How long such an id is not asked for again: a producer may register late, and a wrong answer be mended.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// Schemas that one schema may refer to, directly or not.
const REFERENCES_MAX: usize = 100;

/// How deep references may be nested.
const REFERENCE_DEPTH_MAX: usize = 32;

/// How a registry is reached.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// `http://host:port` or `https://…`, with a path if the registry is below one. Credentials in it are refused.
    pub url: String,
    /// Who one is.
    pub auth: RegistryAuth,
    /// Longest time for one schema with its references in milliseconds, 1 to 300,000.
    pub timeout_ms: u64,
    /// Authorities to trust, as PEM text, instead of the system's.
    pub ca_pem: Option<String>,
}

/// Credentials. They go into the `Authorization` header and nowhere else.
#[derive(Clone, Debug)]
pub enum RegistryAuth {
    /// None.
    None,
    /// HTTP basic authentication.
    Basic {
        /// User, without a colon.
        user: String,
        /// Password, any text.
        password: Secret,
    },
    /// A token.
    Bearer(Secret),
}

impl RegistryAuth {
    /// Basic authentication from `user:password`, split at the first colon: a password may have more.
    pub fn basic(user_info: &str) -> Self {
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        Self::Basic { user: user.into(), password: Secret::new(password) }
    }
}

/// Why there is no schema. The first two are the record's fault, the last is nobody's who sent records: the partition waits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The registry knows no schema, subject or version of this name. Remembered for 30 seconds.
    #[error("the schema registry does not know it")]
    NotFound,
    /// There is one, and it cannot be used: not Avro, not legal, references missing or in a circle. Remembered for 30 seconds.
    #[error("the schema cannot be used: {0}")]
    BadSchema(String),
    /// Outage, refused credentials, an answer that is not a registry's. Never remembered.
    #[error("the schema registry cannot be used now: {0}")]
    Passing(String),
}

/// The newest schema of a subject.
#[derive(Clone, Debug)]
pub struct Latest {
    /// Its id, as in the frame of values.
    pub id: u32,
    /// Its version in the subject, from 1.
    pub version: u32,
    /// The schema.
    pub schema: Arc<Schema>,
}

/// Whether a schema may be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// The subject has no schema yet, so any may.
    FirstOfSubject,
    /// It fits the newest one under the subject's rule.
    Compatible,
    /// It does not; why, as the registry puts it.
    Incompatible(Vec<String>),
}

/// A registry and what it has said. Shared by all workers.
#[derive(Debug)]
pub struct Registry {
    http: Http,
    timeout: Duration,
    known: Mutex<Known>,
}

/// What is remembered, and who is being asked.
#[derive(Debug, Default)]
struct Known {
    schemas: HashMap<u32, Arc<Schema>>,
    /// Ids of `schemas`, oldest first.
    order: VecDeque<u32>,
    refused: HashMap<u32, (RegistryError, Instant)>,
    flights: HashMap<u32, Arc<Flight>>,
}

/// One request that several may wait for.
#[derive(Debug, Default)]
struct Flight {
    landed: Mutex<Option<Result<Arc<Schema>, RegistryError>>>,
    changed: Condvar,
}

/// A schema as the registry gives it.
#[derive(Debug, Deserialize)]
struct Given {
    schema: String,
    #[serde(default, rename = "schemaType")]
    schema_type: Option<String>,
    #[serde(default)]
    references: Vec<Reference>,
}

#[derive(Debug, Deserialize)]
struct GivenVersion {
    id: u32,
    version: u32,
    #[serde(flatten)]
    given: Given,
}

/// Another schema that one uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Reference {
    subject: String,
    version: u32,
}

#[derive(Debug, Deserialize)]
struct Registered {
    id: u32,
}

#[derive(Debug, Deserialize)]
struct Checked {
    is_compatible: bool,
    #[serde(default)]
    messages: Vec<String>,
}

impl Registry {
    /// Checks the settings. Asks nothing yet.
    ///
    /// # Errors
    /// A setting that cannot be used, by name and without the credentials.
    pub fn new(config: &RegistryConfig) -> Result<Self, Error> {
        if !(1..=300_000).contains(&config.timeout_ms) {
            let detail = format!("{} is not from 1 to 300000", config.timeout_ms);
            return Err(Error::RegistrySetting { setting: "timeout_ms", detail });
        }
        let timeout = Duration::from_millis(config.timeout_ms);
        Ok(Self { http: Http::new(config)?, timeout, known: Mutex::default() })
    }

    /// The schema of an id, from memory if it was ever given. Else one request is made, however many ask at that time; all get
    /// its answer. Blocks at most [`RegistryConfig::timeout_ms`].
    ///
    /// # Errors
    /// As [`RegistryError`] says.
    pub fn schema(&self, id: u32) -> Result<Arc<Schema>, RegistryError> {
        let (flight, first) = {
            let mut known = self.known();
            if let Some(schema) = known.schemas.get(&id) {
                return Ok(Arc::clone(schema));
            }
            if let Some((error, at)) = known.refused.get(&id)
                && at.elapsed() < REFUSED_FOR
            {
                return Err(error.clone());
            }
            match known.flights.get(&id) {
                Some(flight) => (Arc::clone(flight), false),
                None => {
                    let flight = Arc::new(Flight::default());
                    known.flights.insert(id, Arc::clone(&flight));
                    (flight, true)
                }
            }
        };
        if !first {
            return flight.wait(self.timeout);
        }
        // Lands in any case, so that nobody waits for a request that a panic ended.
        let landing = Landing { registry: self, flight: &flight, id };
        let answer = self.ask_schema(id);
        landing.land(answer.clone());
        answer
    }

    /// The newest schema of a subject. Always asked for.
    ///
    /// # Errors
    /// As [`RegistryError`] says.
    pub fn latest(&self, subject: &str) -> Result<Latest, RegistryError> {
        let until = Instant::now() + self.timeout;
        let path = format!("/subjects/{}/versions/latest", escape(subject));
        let GivenVersion { id, version, given } = self.http.get(&path, until).map_err(not_ours)?;
        let schema = self.parse(given, until)?;
        Ok(Latest { id, version, schema })
    }

    /// Registers a schema under a subject, or finds it there; its id.
    ///
    /// # Errors
    /// [`RegistryError::BadSchema`] with the registry's reason if it is not legal or does not fit the subject's rule.
    pub fn register(&self, subject: &str, schema: &Schema) -> Result<u32, RegistryError> {
        let path = format!("/subjects/{}/versions", escape(subject));
        let body = serde_json::json!({ "schema": schema.text() });
        let Registered { id } = self.http.post(&path, &body, Instant::now() + self.timeout).map_err(ours)?;
        Ok(id)
    }

    /// Asks whether a schema may be registered under a subject. Changes nothing.
    ///
    /// # Errors
    /// As [`Registry::register`], but for schemas that do not fit.
    pub fn check(&self, subject: &str, schema: &Schema) -> Result<Compatibility, RegistryError> {
        let path = format!("/compatibility/subjects/{}/versions/latest?verbose=true", escape(subject));
        let body = serde_json::json!({ "schema": schema.text() });
        match self.http.post::<Checked>(&path, &body, Instant::now() + self.timeout) {
            Ok(Checked { is_compatible: true, .. }) => Ok(Compatibility::Compatible),
            Ok(Checked { messages, .. }) => Ok(Compatibility::Incompatible(messages)),
            Err(Refusal::NotFound) => Ok(Compatibility::FirstOfSubject),
            Err(refusal) => Err(ours(refusal)),
        }
    }

    fn ask_schema(&self, id: u32) -> Result<Arc<Schema>, RegistryError> {
        let until = Instant::now() + self.timeout;
        let given = self.http.get(&format!("/schemas/ids/{id}"), until).map_err(not_ours)?;
        self.parse(given, until)
    }

    fn parse(&self, given: Given, until: Instant) -> Result<Arc<Schema>, RegistryError> {
        only_avro(&given)?;
        let mut gathered = Gathered::default();
        self.gather(&given.references, until, &mut gathered)?;
        let references: Vec<_> = gathered.texts.iter().map(String::as_str).collect();
        match Schema::parse_with(&given.schema, &references) {
            Ok(schema) => Ok(Arc::new(schema)),
            Err(error) => Err(RegistryError::BadSchema(error.to_string())),
        }
    }

    /// Fetches what is referred to, each once, those that others use before these.
    fn gather(&self, references: &[Reference], until: Instant, gathered: &mut Gathered) -> Result<(), RegistryError> {
        for reference in references {
            if gathered.done.contains(reference) {
                continue;
            }
            let Reference { subject, version } = reference;
            if gathered.open.contains(reference) {
                let detail = format!("its references go in a circle through subject '{subject}' version {version}");
                return Err(RegistryError::BadSchema(detail));
            }
            if gathered.open.len() >= REFERENCE_DEPTH_MAX || gathered.done.len() >= REFERENCES_MAX {
                let detail = format!("more than {REFERENCES_MAX} references, or deeper than {REFERENCE_DEPTH_MAX}");
                return Err(RegistryError::BadSchema(detail));
            }
            let path = format!("/subjects/{}/versions/{version}", escape(subject));
            let given: Given = self.http.get(&path, until).map_err(|refusal| match not_ours(refusal) {
                RegistryError::NotFound => RegistryError::BadSchema(format!(
                    "it refers to subject '{subject}' version {version}, which is not there"
                )),
                other => other,
            })?;
            only_avro(&given)?;
            gathered.open.push(reference.clone());
            self.gather(&given.references, until, gathered)?;
            gathered.open.pop();
            gathered.texts.push(given.schema);
            gathered.done.insert(reference.clone());
        }
        Ok(())
    }

    /// The maps are whole between two statements, so a panic elsewhere does not spoil them.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// References on the way.
#[derive(Default)]
struct Gathered {
    done: BTreeSet<Reference>,
    open: Vec<Reference>,
    texts: Vec<String>,
}

fn only_avro(given: &Given) -> Result<(), RegistryError> {
    match given.schema_type.as_deref() {
        None | Some("AVRO") => Ok(()),
        Some(other) => Err(RegistryError::BadSchema(format!("it is of type {other:.40}, not AVRO"))),
    }
}

/// A refusal where somebody else's schema was asked for. That it is "invalid" then is an answer to the request, not about it.
fn not_ours(refusal: Refusal) -> RegistryError {
    match refusal {
        Refusal::NotFound => RegistryError::NotFound,
        Refusal::Invalid(text) | Refusal::Passing(text) => RegistryError::Passing(text),
    }
}

/// A refusal of a schema that was offered.
fn ours(refusal: Refusal) -> RegistryError {
    match refusal {
        Refusal::NotFound => RegistryError::NotFound,
        Refusal::Invalid(text) => RegistryError::BadSchema(text),
        Refusal::Passing(text) => RegistryError::Passing(text),
    }
}

impl Flight {
    fn wait(&self, limit: Duration) -> Result<Arc<Schema>, RegistryError> {
        let landed = self.landed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(landed, limit, |landed| landed.is_none());
        let (landed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        landed.clone().unwrap_or_else(|| Err(RegistryError::Passing("no answer in time".into())))
    }
}

/// Ends a request for all who wait for it.
struct Landing<'a> {
    registry: &'a Registry,
    flight: &'a Flight,
    id: u32,
}

impl Landing<'_> {
    fn land(self, answer: Result<Arc<Schema>, RegistryError>) {
        self.registry.known().remember(self.id, &answer);
        *self.flight.landed.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.registry.known().flights.remove(&self.id);
        let mut landed = self.flight.landed.lock().unwrap_or_else(PoisonError::into_inner);
        landed.get_or_insert_with(|| Err(RegistryError::Passing("the request broke off".into())));
        drop(landed);
        self.flight.changed.notify_all();
    }
}

impl Known {
    fn remember(&mut self, id: u32, answer: &Result<Arc<Schema>, RegistryError>) {
        match answer {
            Ok(schema) => {
                self.refused.remove(&id);
                if self.schemas.len() >= SCHEMAS_MAX
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.schemas.remove(&oldest);
                }
                if self.schemas.insert(id, Arc::clone(schema)).is_none() {
                    self.order.push_back(id);
                }
            }
            Err(error @ (RegistryError::NotFound | RegistryError::BadSchema(_))) => {
                if self.refused.len() >= REFUSED_MAX {
                    self.refused.retain(|_, (_, at)| at.elapsed() < REFUSED_FOR);
                }
                if self.refused.len() < REFUSED_MAX {
                    self.refused.insert(id, (error.clone(), Instant::now()));
                }
            }
            Err(RegistryError::Passing(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests;
