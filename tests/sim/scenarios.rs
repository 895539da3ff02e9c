//! Seeds that failed once, each with its story. The history of a seed changes when plans or fakes do, so a seed here is a hint
//! of what to look for; what was wrong is pinned down by the engine's own tests as well.

use crate::check;

/// Each name says what went wrong then.
const SCENARIOS: &[(&str, u64)] = &[
    ("a partition without news kept its credit, and another one starved", 12),
    ("a batch that was complete behind one that was not was forgotten twice", 10),
    ("a swap by another member came between entering and reading it", 2),
    ("a member that was given nothing at first took its bounded run for done", 86),
    ("a bounded run ended well although its last commit was never answered", 127),
    ("a partition went from hand to hand while all members ended their bounded run", 427),
    ("a bounded run did not wait for the partitions of a dead member", 319),
    ("a late removal of a ghost removed the new member of that name", 848),
    ("a member left between two sessions, and nobody closed its run", 483),
    ("a revocation was answered once more after the same partition was lost and given again", 98_355),
    ("records that the log lost after the first look were skipped without a word", 1518),
];

#[test]
fn what_failed_once() {
    for (story, seed) in SCENARIOS {
        println!("seed {seed}: {story}");
        check(*seed);
    }
}
