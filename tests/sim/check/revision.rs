//! One revision: a checkpoint names the one revision that did the records that it covers, and a revision is one plugin for ever.

use kiteline_engine::{
    ids::Revision,
    store::{Checkpoint, Key, Node, Why},
};

use crate::{ledger::Ledger, store::Store};

/// A checkpoint was stored.
pub(crate) fn on_checkpoint(
    ledger: &Ledger,
    session: i64,
    before: Option<&Checkpoint>,
    after: &Checkpoint,
) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    let (from, until) = (before.position.next_offset, after.position.next_offset);
    let (old, new) = (before.plugin, after.plugin);
    if old.revision == new.revision && old.since != new.since {
        return Err(format!("revision {} began at {}, and now at {}", new.revision.0, old.since, new.since));
    }
    if from < until
        && after.position.why == Why::Commit
        && let Some(offset) = ledger.not_handled_by(from, until, (session, new.revision))
    {
        return Err(format!(
            "the checkpoint says that revision {} did {from}..{until}, but it did not do {offset}",
            new.revision.0
        ));
    }
    Ok(())
}

/// A process was told that its plugin with this digest is that revision.
pub(crate) fn on_live(store: &Store, revision: Revision, digest: Option<&str>) -> Result<(), String> {
    match store.node(&Key::Revision(revision)) {
        Some(Node::Revision(r)) if Some(r.digest.as_str()) == digest => Ok(()),
        other => Err(format!("plugin {digest:?} is taken for revision {}, which is {other:?}", revision.0)),
    }
}
