//! No regress: generation, mark and next_offset never decrease but for a lost position, and only the owner writes.

use kiteline_engine::store::{Checkpoint, Why};

/// A checkpoint was stored over another one, or none, by a client with this session.
pub(crate) fn on_checkpoint(session: i64, before: Option<&Checkpoint>, after: &Checkpoint) -> Result<(), String> {
    if after.owner.session != session {
        return Err(format!("session {session} wrote in the name of session {}", after.owner.session));
    }
    let Some(before) = before else {
        return if after.owner.generation.0 == 1 { Ok(()) } else { Err("the first claim is not generation 1".into()) };
    };
    let (old, new) = (&before.position, &after.position);
    let generations = (before.owner.generation.0, after.owner.generation.0);
    // a claim raises the generation and moves nothing; whose nonce it has is not looked at, but what comes of it
    let claim = generations.1 == generations.0 + 1 && new == old;
    if before.owner.nonce == after.owner.nonce && !claim {
        if generations.0 != generations.1 {
            return Err(format!("a commit changed the generation from {} to {}", generations.0, generations.1));
        }
        if before.owner.released {
            return Err("a commit was stored after the release".into());
        }
        if new.mark <= old.mark {
            return Err(format!("the mark went from {:?} to {:?}", old.mark, new.mark));
        }
        if new.next_offset < old.next_offset && new.why != Why::Lost {
            return Err(format!("next_offset went from {} to {}", old.next_offset, new.next_offset));
        }
        return Ok(());
    }
    if generations.1 != generations.0 + 1 {
        return Err(format!("a claim changed the generation from {} to {}", generations.0, generations.1));
    }
    // a claim moves nothing, so a write that moves something is a replaced owner's commit
    if new != old || after.owner.released {
        return Err(format!("a write under another nonce moved the position from {old:?} to {new:?}"));
    }
    Ok(())
}
