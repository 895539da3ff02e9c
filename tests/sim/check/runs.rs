//! Runs: numbers rise by one, a run is closed by its last member only, finished only if everything is released, and an ended
//! run is never touched again.

use kiteline_engine::store::{HeadState, Key, Node, RunHead, RunRecord, RunState};

use crate::store::{Change, Store};

/// A node that is no checkpoint was written by a client with this session; the whole request has taken effect.
pub(crate) fn on_change(store: &Store, session: i64, change: &Change) -> Result<(), String> {
    match (&change.before, &change.after) {
        (Some(Node::RunHead(before)), Some(Node::RunHead(after))) => head(store, before, after),
        (before, Some(Node::Run(after))) => {
            let before = match before {
                Some(Node::Run(before)) => Some(before),
                _ => None,
            };
            record(store, &change.key, before, after)
        }
        (_, Some(Node::Member(after))) => {
            if after.session != session {
                return Err(format!("a member node of session {session} says session {}", after.session));
            }
            match store.node(&Key::RunHead) {
                Some(Node::RunHead(h)) if h.run == after.run && h.state == HeadState::Running => Ok(()),
                other => Err(format!("a member enters run {}, and the head is {other:?}", after.run.0)),
            }
        }
        (Some(Node::Revision(_)), Some(_)) => Err("a revision was changed".into()),
        _ => Ok(()),
    }
}

fn head(store: &Store, before: &RunHead, after: &RunHead) -> Result<(), String> {
    match (before.state, after.state) {
        (_, HeadState::Running) if after.run.0 == before.run.0 + 1 => Ok(()),
        (HeadState::Running, HeadState::Closed) if after.run == before.run => {
            if store.member_count() > 0 {
                return Err(format!("run {} is closed while it has members", after.run.0));
            }
            Ok(())
        }
        _ => Err(format!("the run head went from {before:?} to {after:?}")),
    }
}

fn record(store: &Store, key: &Key, before: Option<&RunRecord>, after: &RunRecord) -> Result<(), String> {
    let Key::Run(run) = key else { return Err(format!("a run at {key:?}")) };
    match before.map(|b| b.state) {
        None if after.state == RunState::Running => return Ok(()),
        Some(RunState::Running) => {}
        other => return Err(format!("run {} went from {other:?} to {:?}", run.0, after.state)),
    }
    let unreleased = store.unreleased().next();
    match (after.state, unreleased) {
        (RunState::Finished, Some((tp, _))) => Err(format!("run {} is finished, and {tp} is not released", run.0)),
        (RunState::Running, _) => Err(format!("run {} is running twice", run.0)),
        (RunState::Abandoned, _) if store.members().any(|m| m.run == *run) => {
            Err(format!("run {} is abandoned while it has members", run.0))
        }
        _ => Ok(()),
    }
}
