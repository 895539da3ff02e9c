//! Writer schemas of records: at hand, or asked for beside the data path.
//!
//! A worker never waits for a registry. What is not at hand is queued for one thread; the batch is tried again later, and
//! while the registry is out nothing is skipped. Bounded: the ids in the queue, and those that are
//! remembered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use kiteline_avro::Schema;
use kiteline_connectors::decode::{Registry, RegistryError};

/// Ids that may wait for an answer at the same time.
const WAITING_MAX: usize = 64;
/// Ids that are remembered of each kind. Far more than a pipeline has; random bytes taken for ids could come to any number.
const REMEMBERED_MAX: usize = 4_096;
/// How long a permanent failure is believed: the schema may be registered a moment after the record was written.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// What is known of a schema id.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    /// The schema.
    Found(Arc<Schema>),
    /// There is none, or it cannot be used: the record's fault.
    Refused(String),
    /// Not known yet; what is waited for.
    Waiting(String),
}

#[derive(Debug, Default)]
struct Known {
    found: BTreeMap<u32, Arc<Schema>>,
    refused: BTreeMap<u32, (String, Instant)>,
    waiting: BTreeSet<u32>,
    /// The last passing failure, for people.
    trouble: Option<String>,
}

/// Shared by all workers of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct Schemas {
    known: Arc<Mutex<Known>>,
    ask: SyncSender<u32>,
}

impl Schemas {
    /// Asks `registry` on a thread of its own, which ends with the last clone of this.
    pub(super) fn start(registry: Registry) -> std::io::Result<Self> {
        let known = Arc::new(Mutex::new(Known::default()));
        let (ask, asked) = sync_channel::<u32>(WAITING_MAX);
        let shared = Arc::clone(&known);
        thread::Builder::new().name("schemas".into()).spawn(move || {
            for id in asked {
                let answer = registry.schema(id);
                let mut known = lock(&shared);
                known.waiting.remove(&id);
                match answer {
                    Ok(schema) => {
                        known.trouble = None;
                        if known.found.len() >= REMEMBERED_MAX {
                            // the registry's client still has what is used
                            known.found.clear();
                        }
                        known.found.insert(id, schema);
                    }
                    Err(RegistryError::Passing { .. }) => known.trouble = answer.err().map(|e| e.to_string()),
                    Err(e) => {
                        let now = Instant::now();
                        let until = now + REFUSED_FOR;
                        if known.refused.len() >= REMEMBERED_MAX {
                            known.refused.retain(|_, (_, until)| *until > now);
                        }
                        if known.refused.len() >= REMEMBERED_MAX {
                            known.refused.pop_first();
                        }
                        known.refused.insert(id, (e.to_string(), until));
                    }
                }
            }
        })?;
        Ok(Self { known, ask })
    }

    /// What is known of `id` now.
    pub(super) fn look_up(&self, id: u32) -> Lookup {
        let mut known = lock(&self.known);
        if let Some(schema) = known.found.get(&id) {
            return Lookup::Found(Arc::clone(schema));
        }
        if let Some((why, until)) = known.refused.get(&id) {
            if *until > Instant::now() {
                return Lookup::Refused(why.clone());
            }
            known.refused.remove(&id);
        }
        let trouble = known.trouble.clone();
        if known.waiting.insert(id)
            && matches!(self.ask.try_send(id), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
        {
            known.waiting.remove(&id);
        }
        Lookup::Waiting(trouble.unwrap_or_else(|| format!("schema {id} is asked for")))
    }
}

fn lock(known: &Mutex<Known>) -> std::sync::MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
