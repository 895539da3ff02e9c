//! `kiteline run`: runs an app's pipelines until told to stop, or to the end of their input.
//!
//! Owns threads and signals of a run; what a pipeline does is the driver's.

use std::{
    process,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use clap::Args;
use serde_json::{Value, json};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::settings::Settings;
use crate::{
    config::plan::{Pipeline, Plan},
    driver::{Control, Driver, Handle, Options, Summary},
    error::{Exit, Failure, Problem},
    observe::{Level, Line, Log, LogFormat, Observer},
    output::Output,
};

/// How long after its grace a process that cannot end in order is ended anyway.
const LAST_RESORT: Duration = Duration::from_secs(5);

/// Run the app's pipelines. SIGTERM and SIGINT drain, commit and end; SIGHUP loads plugins again.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Run only this pipeline; may be repeated.
    #[arg(long = "pipeline", value_name = "NAME")]
    pipelines: Vec<String>,
    /// Stop where the input ended when each partition was claimed.
    #[arg(long)]
    until_end: bool,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    log_format: LogForm,
    /// Log also what is only of use in looking for a cause.
    #[arg(long)]
    verbose: bool,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum LogForm {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Runs until the end, and answers with the counters of each pipeline.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let plan = arguments.settings.plan()?;
    let chosen = choose(&plan, &arguments.pipelines)?;
    let format = match arguments.log_format {
        LogForm::Text => LogFormat::Text,
        LogForm::Json => LogFormat::Json,
    };
    let log = Log::stderr(format, if arguments.verbose { Level::Debug } else { Level::Info });
    let drivers: Vec<(&Pipeline, Driver)> = chosen.into_iter().map(|p| (p, Driver::new())).collect();
    listen(drivers.iter().map(|(_, d)| d.handle()).collect(), Duration::from_millis(plan.member.grace_ms))?;
    let one = drivers.len() == 1;
    let ended: Vec<(&Pipeline, Result<Summary, Failure>)> = thread::scope(|scope| {
        let running: Vec<_> = drivers
            .into_iter()
            .map(|(pipeline, driver)| {
                let options = Options {
                    until_end: arguments.until_end,
                    observer: Observer::new(pipeline.name.as_str(), log.clone()),
                    progress: one && matches!(format, LogFormat::Text),
                    surroundings: arguments.settings.surroundings(),
                };
                let plan = &plan;
                let run = move || {
                    let ended = driver.run(plan, pipeline, &options);
                    if let Err(failure) = &ended {
                        // told when it happens: the others may run on for months
                        let why = failure.problems.first().map_or_else(String::new, |p| p.message.clone());
                        let detail = failure.problems.first().and_then(|p| p.detail.clone()).unwrap_or_default();
                        let line = Line::new(Level::Error, "pipeline.stopped", why).with("reason", detail);
                        options.observer.line(line);
                    }
                    ended
                };
                (pipeline, scope.spawn(run))
            })
            .collect();
        running
            .into_iter()
            .map(|(pipeline, thread)| (pipeline, thread.join().unwrap_or_else(|_| Err(panicked(pipeline)))))
            .collect()
    });
    answer(&ended, output);
    let mut failures = ended.into_iter().filter_map(|(_, result)| result.err());
    let Some(mut first) = failures.next() else { return Ok(Exit::Ok) };
    first.problems.extend(failures.flat_map(|f| f.problems));
    Err(first)
}

fn choose<'a>(plan: &'a Plan, names: &[String]) -> Result<Vec<&'a Pipeline>, Failure> {
    if names.is_empty() {
        return Ok(plan.pipelines.iter().collect());
    }
    let known: Vec<&str> = plan.pipelines.iter().map(|p| p.name.as_str()).collect();
    names
        .iter()
        .map(|name| {
            plan.pipelines.iter().find(|p| p.name.as_str() == name).ok_or_else(|| {
                let problem = Problem::new("usage.unknown-pipeline", format!("there is no pipeline \"{name}\""));
                Failure::usage(vec![problem.hint(format!("the app has {}", known.join(", ")))])
            })
        })
        .collect()
}

fn panicked(pipeline: &Pipeline) -> Failure {
    let message = format!("pipeline \"{}\" ended by a defect of kiteline", pipeline.name);
    Problem::new("pipeline.defect", message).hint("the checkpoints are safe; please report the lines above").into()
}

/// Listens for signals as long as the process lives.
fn listen(pipelines: Vec<Handle>, grace: Duration) -> Result<(), Failure> {
    let refused =
        |e: std::io::Error| Failure::from(Problem::new("pipeline.signals", "signals cannot be listened to").cause(&e));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(refused)?;
    let stops = Arc::new(AtomicUsize::new(0));
    let body = move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                pipelines.iter().for_each(|p| p.send(Control::Reload));
                continue;
            }
            match stops.fetch_add(1, SeqCst) {
                0 => {
                    last_resort(grace + LAST_RESORT);
                    pipelines.iter().for_each(|p| p.send(Control::Stop));
                }
                // who asks twice at a terminal does not want to wait
                _ if signal == SIGINT => process::exit(130),
                _ => {}
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(body).map_err(refused)?;
    Ok(())
}

/// Ends the process if it could not end in order: what is committed is committed, and the rest comes again.
fn last_resort(limit: Duration) {
    let body = move || {
        thread::sleep(limit);
        process::exit(Exit::Failed as i32);
    };
    let _ = thread::Builder::new().name("last-resort".into()).spawn(body);
}

fn answer(ended: &[(&Pipeline, Result<Summary, Failure>)], output: &mut Output) {
    let pipelines: serde_json::Map<String, Value> = ended
        .iter()
        .filter_map(|(pipeline, result)| Some((pipeline.name.to_string(), summary(result.as_ref().ok()?))))
        .collect();
    output.answer(&json!({ "pipelines": pipelines }), || {
        let lines = ended.iter().filter_map(|(pipeline, result)| {
            let totals = result.as_ref().ok()?.totals;
            Some(format!(
                "{}: {} read, {} written, {} dropped, {} dead letters",
                pipeline.name, totals.records_read, totals.records_written, totals.records_dropped, totals.dead_letters
            ))
        });
        lines.collect::<Vec<_>>().join("\n")
    });
}

fn summary(summary: &Summary) -> Value {
    let totals: serde_json::Map<String, Value> =
        summary.totals.list().into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
    json!({ "run": summary.snapshot.run.0, "revision": summary.snapshot.revision.0, "totals": totals })
}
