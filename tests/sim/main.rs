//! The simulator: real engines, one to three members of one pipeline, on fakes that misbehave by seed.
//!
//! A seed is a whole history: sizes, limits, faults, every delay. Each history has two phases, faults on (nothing may ever be
//! wrong) and faults off (everything must come to its end). What must hold is in `check`, one file a property. A failure
//! prints the one command that replays it:
//!
//! ```text
//! KITELINE_SIM_SEED=17 cargo test --release -p kiteline-tests --test sim one_seed -- --nocapture
//! ```
//!
//! `KITELINE_SIM_SEEDS=N` says how many seeds the test `seeds` runs, and `KITELINE_SIM_FROM=N` where it begins; seeds that
//! failed once are scenarios with a name.

mod dice;
mod plan;

mod group;
mod logs;
mod process;
mod sink;
mod store;

mod ledger;
mod text;
mod trace;

mod chaos;
mod ending;
mod perform;
mod things;
mod wire;
mod world;

mod check;
mod mutant;
mod scenarios;

use std::panic::{AssertUnwindSafe, catch_unwind};

use mutant::{Mutant, Mutation};
use world::{Failure, World};

/// Seeds of an ordinary test run.
const SEEDS: u64 = 400;

/// Seeds within which each mutant must be caught.
const MUTANT_SEEDS: u64 = 3_000;

/// Lines of the trace that a failure shows; `KITELINE_SIM_LINES` asks for others.
const TAIL: usize = 60;

/// One history, and what was wrong with it. A failed assertion of the engine is a failure like any other.
fn history(seed: u64, mutation: Mutation) -> (World, Option<Failure>) {
    let mut world = World::new(seed, mutation);
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    if ran.is_err() {
        world.fail("engine", "an assertion of the engine failed, see above".into());
    }
    let failure = world.failure.clone();
    (world, failure)
}

/// Panics with all that is needed to understand and replay a failure.
fn check(seed: u64) -> World {
    let (world, failure) = history(seed, Mutation::default());
    if let Some(Failure { checker, message }) = failure {
        panic!(
            "seed {seed}, checker {checker}: {message}\n{:?}\nthe last lines:\n{}\n\nreplay: KITELINE_SIM_SEED={seed} cargo test --release -p kiteline-tests --test sim one_seed -- --nocapture",
            world.plan,
            world.trace.tail(lines())
        );
    }
    world
}

fn lines() -> usize {
    number("KITELINE_SIM_LINES").map_or(TAIL, |n| usize::try_from(n).expect("a small number"))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn seeds() {
    let from = number("KITELINE_SIM_FROM").unwrap_or(1);
    let count = number("KITELINE_SIM_SEEDS").unwrap_or(SEEDS);
    let (mut steps, mut repeats) = (0, 0);
    for seed in from..from + count {
        let world = check(seed);
        steps += world.steps;
        repeats += world.ledgers.iter().map(|l| l.repeats).sum::<u64>();
    }
    println!("{count} histories from seed {from}, {steps} events, {repeats} outputs repeated, nothing wrong");
}

/// Replays the seed of `KITELINE_SIM_SEED`, with its whole end; without one, seed 1.
#[test]
fn one_seed() {
    let world = check(number("KITELINE_SIM_SEED").unwrap_or(1));
    println!("{:?}\n{}", world.plan, world.trace.tail(lines()));
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 1..=20 {
        let (first, second) = (check(seed), check(seed));
        assert!(first.trace.lines > 0, "seed {seed} has a history");
        assert_eq!(first.trace.hash, second.trace.hash, "seed {seed}");
    }
}

/// Each mistake is caught by one of the checkers that are meant for it, within a bounded number of seeds.
#[test]
fn mutants_are_caught() {
    let table: &[(Mutant, &[&str])] = &[
        (Mutant::CommitBeforeAcknowledgement, &["gap"]),
        (Mutant::CommitWithoutVersion, &["regress", "engine"]),
        (Mutant::ClaimThatDoesNotWrite, &["regress", "feeder"]),
        (Mutant::LostAnswerIsSuccess, &["engine", "regress", "runs", "gap"]),
        (Mutant::BadVersionIsFenced, &["fenced"]),
        (Mutant::FencedStopsForGood, &["live"]),
        (Mutant::OneNoncePerProcess, &["regress", "feeder"]),
        (Mutant::NoWaitForTheFormerOwner, &["feeder"]),
    ];
    for (mutant, checkers) in table {
        let caught = (1..=MUTANT_SEEDS).find_map(|seed| {
            let (_, failure) = history(seed, Mutation::of(*mutant));
            failure.map(|f| (seed, f))
        });
        let (seed, failure) = caught.unwrap_or_else(|| panic!("{mutant:?} is not caught"));
        println!("{mutant:?}: seed {seed}, checker {}: {}", failure.checker, failure.message);
        assert!(checkers.contains(&failure.checker), "{mutant:?} is caught by {failure:?}");
    }
}
