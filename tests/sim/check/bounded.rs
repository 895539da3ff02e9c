//! Bounded: batches, plugin calls and requests in flight stay within the limits after every step.

use std::collections::BTreeMap;

use kiteline_engine::limits::{FETCH_AHEAD_MAX, Limits};

use crate::process::Process;

/// Requests of a process to the store apart from those for its partitions: membership, proof, swap, and old ones of those.
const REQUESTS_BASE: usize = 4;

/// Looks at a process after a step.
pub(crate) fn bounded(process: &Process, limits: &Limits) -> Result<(), String> {
    let who = process.who;
    let mut counts: BTreeMap<_, (u32, u32)> = BTreeMap::new();
    for held in process.batches.values() {
        // what was fetched for a feeding that was stopped meanwhile is dropped when it comes
        if process.readers.get(&held.tp).is_some_and(|r| r.feed == held.feed) {
            let count = counts.entry(&held.tp).or_default();
            count.0 += 1;
            count.1 += u32::from(held.transforming);
        }
    }
    let mut total = 0;
    for (tp, (batches, transforming)) in &counts {
        total += batches;
        if *batches > limits.partition_batches_max {
            return Err(format!("{who} has {batches} batches of {tp} in flight"));
        }
        if *transforming > 2 {
            return Err(format!("{who} has {transforming} batches of {tp} with the plugin"));
        }
    }
    let most = limits.pipeline_batches_max + FETCH_AHEAD_MAX * u32::try_from(process.readers.len()).unwrap_or(u32::MAX);
    if total > most {
        return Err(format!("{who} has {total} batches in flight, more than {most}"));
    }
    let asked = process.requests.len();
    let partitions = process.pipeline.snapshot().partitions.len();
    if asked > REQUESTS_BASE + 2 * partitions.max(5) {
        return Err(format!("{who} has {asked} requests to the store in flight"));
    }
    Ok(())
}
