//! The command line: one file a verb, each from its arguments to an answer or a failure.
//!
//! Owns reading the arguments and how the program ends. What a verb does is in its file; what it knows is elsewhere.

mod settings;

mod avro;
mod checkpoint;
mod config;
mod demo;
mod init;
mod install;
mod plugin;
mod run;
mod setup;
mod status;
mod validate;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    error::{EXIT_CODES, Exit, Failure, Problem},
    output::{Format, Output},
};

/// Runs other people's transforms on Kafka records without letting go of the line.
#[derive(Debug, Parser)]
#[command(name = "kiteline", version, after_help = EXIT_CODES, max_term_width = 120, disable_help_subcommand = true)]
struct Arguments {
    /// In which form to answer.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORM")]
    format: Format,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Init(init::Arguments),
    Install(install::Arguments),
    Setup(setup::Arguments),
    Validate(validate::Arguments),
    Run(run::Arguments),
    Status(status::Arguments),
    #[command(subcommand)]
    Config(config::Verb),
    #[command(subcommand)]
    Checkpoint(checkpoint::Verb),
    #[command(subcommand)]
    Plugin(plugin::Verb),
    #[command(subcommand)]
    Avro(avro::Verb),
    Demo(demo::Arguments),
}

/// Runs the program with these arguments, the first of which is its own name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let arguments = match Arguments::try_parse_from(&args) {
        Ok(arguments) => arguments,
        Err(error) => return ExitCode::from(refuse(&error, &args) as u8),
    };
    let mut output = Output::standard(arguments.format);
    let ended = match arguments.verb {
        Verb::Init(arguments) => init::run(&arguments, &mut output),
        Verb::Install(arguments) => install::run(&arguments, &mut output),
        Verb::Setup(arguments) => setup::run(&arguments, &mut output),
        Verb::Validate(arguments) => validate::run(&arguments, &mut output),
        Verb::Run(arguments) => run::run(&arguments, &mut output),
        Verb::Status(arguments) => status::run(&arguments, &mut output),
        Verb::Config(verb) => config::run(&verb, &mut output),
        Verb::Checkpoint(verb) => checkpoint::run(&verb, &mut output),
        Verb::Plugin(verb) => plugin::run(&verb, &mut output),
        Verb::Avro(verb) => avro::run(&verb, &mut output),
        Verb::Demo(arguments) => demo::run(&arguments, &mut output),
    };
    let exit = ended.unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.exit
    });
    ExitCode::from(exit as u8)
}

/// Help and version are answers; everything else that clap returns is a wrong command line.
fn refuse(error: &clap::Error, args: &[OsString]) -> Exit {
    use clap::error::ErrorKind;
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let json = args.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
    let json = json || args.iter().any(|arg| arg == "--format=json");
    if json && !asked {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let problem = Problem::new("usage.arguments", message).hint("`kiteline --help`, or `--help` behind a command");
        Output::standard(Format::Json).failure(&Failure::usage(vec![problem]));
    } else {
        // Nothing can be told to somebody who has closed both streams.
        let _ = error.print();
    }
    if asked { Exit::Ok } else { Exit::Usage }
}
