//! Reading a checkpoint store from a command: one question, one answer, each within a bound.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::{Duration, Instant},
};

use kiteline_connectors::checkpoint::{Store, StoreConfig, StoreEvent};
use kiteline_engine::{
    ids::{MemberId, RequestId, TopicPartition},
    store::{Found, Key, MemberRecord, StoreAnswer, StoreRequest},
};

use crate::error::{Exit, Failure, Problem};

/// Events that wait for us; more than this and the store's thread waits too, which harms nobody here.
const EVENTS_MAX: usize = 64;

/// A store that is only read.
pub(crate) struct Reader {
    store: Store,
    events: Receiver<StoreEvent>,
    next: u64,
    timeout: Duration,
}

impl Reader {
    /// Opens the store and waits until it is there, at most `timeout`, which also bounds each later answer.
    pub(crate) fn open(config: StoreConfig, timeout: Duration) -> Result<Self, Failure> {
        let (send, events) = sync_channel(EVENTS_MAX);
        let store = Store::start(config, move |event| {
            // Once nobody listens any more, nothing needs to be told.
            let _ = send.send(event);
        })
        .map_err(|error| {
            let problem = Problem::new("checkpoint.unusable", "the checkpoint store cannot be opened").cause(&error);
            Failure::new(Exit::Failed, problem)
        })?;
        let reader = Self { store, events, next: 0, timeout };
        reader.wait(|event| matches!(event, StoreEvent::Session { .. }).then_some(()))?;
        Ok(reader)
    }

    /// Reads nodes together, in the order of the keys.
    pub(crate) fn read(&mut self, keys: Vec<Key>) -> Result<Vec<Found>, Failure> {
        let count = keys.len();
        match self.ask(StoreRequest::Read(keys))? {
            StoreAnswer::Nodes(found) if found.len() == count => Ok(found),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads one node.
    pub(crate) fn one(&mut self, key: Key) -> Result<Found, Failure> {
        Ok(self.read(vec![key])?.pop().unwrap_or(Found::Absent))
    }

    /// The live members.
    pub(crate) fn members(&mut self) -> Result<Vec<(MemberId, MemberRecord)>, Failure> {
        match self.ask(StoreRequest::Members)? {
            StoreAnswer::Members(members) => Ok(members.into_iter().map(|(id, record, _)| (id, record)).collect()),
            other => Err(unexpected(&other)),
        }
    }

    /// Every checkpoint, by partition.
    pub(crate) fn checkpoints(&mut self) -> Result<Vec<(TopicPartition, Found)>, Failure> {
        match self.ask(StoreRequest::Checkpoints)? {
            StoreAnswer::Checkpoints(all) => Ok(all),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the session.
    pub(crate) fn close(self) {
        self.store.close(Duration::from_secs(2));
    }

    fn ask(&mut self, request: StoreRequest) -> Result<StoreAnswer, Failure> {
        let id = RequestId(self.next);
        self.next += 1;
        self.store.request(id, request);
        self.wait(|event| match event {
            StoreEvent::Answer { request, answer, .. } if request == id => Some(answer),
            _ => None,
        })
    }

    /// Waits for an event that `wanted` takes. What the store said meanwhile is the reason if none comes.
    fn wait<T>(&self, mut wanted: impl FnMut(StoreEvent) -> Option<T>) -> Result<T, Failure> {
        let until = Instant::now() + self.timeout;
        let mut reason = format!("no answer within {} ms", self.timeout.as_millis());
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(StoreEvent::Failed(text)) => return Err(unreachable("the checkpoint store refuses", text)),
                Ok(StoreEvent::Waiting(text)) => reason = text,
                Ok(event) => {
                    if let Some(found) = wanted(event) {
                        return Ok(found);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(unreachable("the checkpoint store cannot be reached", reason));
                }
            }
        }
    }
}

fn unreachable(message: &str, reason: String) -> Failure {
    Failure::new(Exit::Unreachable, Problem::new("checkpoint.unreachable", message).detail(reason))
}

fn unexpected(answer: &StoreAnswer) -> Failure {
    match answer {
        StoreAnswer::Failed(text) => unreachable("the checkpoint store refuses", text.clone()),
        StoreAnswer::Unknown => unreachable("the checkpoint store does not answer", "the answer was lost".into()),
        other => Problem::new("checkpoint.unusable", "the checkpoint store answered something else than was asked")
            .detail(format!("{other:?}"))
            .into(),
    }
}
