//! One feeder where it is promised: a claim waits for its former owner, and nobody writes to a sink without a living claim.

use kiteline_engine::{
    ids::{BatchId, TopicPartition},
    store::{Checkpoint, Key, Op, StoreRequest},
};

use crate::{process::Who, world::World};

/// A checkpoint was stored: if it is a claim, its former owner had released, or was gone, or was waited for and named.
pub(crate) fn on_checkpoint(
    world: &World,
    request: &StoreRequest,
    before: Option<&Checkpoint>,
    after: &Checkpoint,
) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    let (old, new) = (&before.owner, &after.owner);
    if old.nonce == new.nonce || old.released || old.session == new.session {
        return Ok(());
    }
    let audited = matches!(request, StoreRequest::Multi(ops)
        if ops.iter().any(|op| matches!(op, Op::Create(Key::Audit(..), _))));
    let there = world.store.member_session(&old.member) == Some(old.session);
    let lives = world.processes.iter().flatten().any(|p| p.session == Some(old.session));
    if there && lives && !audited {
        return Err(format!(
            "{} claims while {} of session {} lives and has not released",
            new.member, old.member, old.session
        ));
    }
    Ok(())
}

/// Writes of a batch are asked for.
pub(crate) fn on_sink(world: &mut World, who: Who, batch: BatchId) -> Result<(), String> {
    let killed = world.checks.killed.clone();
    let Some(p) = world.process(who) else { return Ok(()) };
    let session = p.session.unwrap_or(0);
    let Some(held) = p.batches.get(&batch) else { return Ok(()) };
    let tp = held.tp.clone();
    let given_back = p.given_back.contains(&tp);
    if given_back {
        return Err(format!("{who} writes for {tp}, which it gave back to the group"));
    }
    if !world.store.alive(session) && !killed.contains(&session) {
        return Err(format!("{who} writes for {tp}, and its session {session} has run out long ago"));
    }
    match world.store.checkpoint(&tp) {
        Some(c) if c.owner.session == session && c.owner.released => {
            Err(format!("{who} writes for {tp}, which it has released"))
        }
        _ => Ok(()),
    }
}

/// A process takes itself for fenced: then there is another claim, of another session.
pub(crate) fn on_fenced(world: &mut World, who: Who, tp: &TopicPartition) -> Result<(), String> {
    let Some(session) = world.process(who).and_then(|p| p.session) else { return Ok(()) };
    match world.store.checkpoint(tp) {
        Some(c) if c.owner.session == session => {
            Err(format!("{who} takes itself for fenced on {tp}, and the claim is its own"))
        }
        _ => Ok(()),
    }
}
