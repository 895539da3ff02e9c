//! No gap: nothing below a stored next_offset is without a durable outcome, and no feeding leaves anything out or goes back
//! behind what is stored.

use kiteline_engine::store::Checkpoint;

use crate::ledger::Ledger;

/// A checkpoint was stored.
pub(crate) fn on_checkpoint(
    ledger: &mut Ledger,
    before: Option<&Checkpoint>,
    after: &Checkpoint,
) -> Result<(), String> {
    let next = after.position.next_offset;
    let complete = ledger.complete_until();
    // an empty log has no records, and what its start says goes
    if next > complete && before.is_none_or(|b| b.position.next_offset < next) {
        return Err(format!("checkpoint {next} is stored, and record {complete} has no durable outcome"));
    }
    Ok(())
}

/// A partition is fed from `from` in this session, with this checkpoint stored.
pub(crate) fn on_feed(
    ledger: &mut Ledger,
    session: Option<i64>,
    stored: Option<&Checkpoint>,
    from: i64,
) -> Result<(), String> {
    let complete = ledger.complete_until();
    if from > complete {
        return Err(format!("fed from {from}, and record {complete} has no durable outcome"));
    }
    match stored {
        Some(c) if Some(c.owner.session) == session && from < c.position.next_offset => {
            Err(format!("fed from {from}, behind the own checkpoint {}", c.position.next_offset))
        }
        _ => Ok(()),
    }
}
