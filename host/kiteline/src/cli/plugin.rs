//! `kiteline plugin build` and `kiteline plugin inspect`.

mod build;
mod inspect;

use clap::Subcommand;

use crate::{
    error::{Exit, Failure},
    output::Output,
};

/// Build plugins and look at them.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Build(build::Arguments),
    Inspect(inspect::Arguments),
}

/// Runs one of them.
pub(crate) fn run(verb: &Verb, output: &mut Output) -> Result<Exit, Failure> {
    match verb {
        Verb::Build(arguments) => build::run(arguments, output),
        Verb::Inspect(arguments) => inspect::run(arguments, output),
    }
}
