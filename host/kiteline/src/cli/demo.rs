//! `kiteline demo`: the whole thing, embedded; exits non-zero if a record was lost.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::{
    demo::{self, Report, Setup},
    error::{Exit, Failure, Problem},
    output::{Format, Output, table},
};

/// Show everything at work: Kafka in the process, a plugin replaced live, a worker killed and restarted, records counted.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Orders to make.
    #[arg(long, default_value_t = 200_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=5_000_000))]
    records: u64,
    /// Folder with demo_v1.wasm and demo_v2.wasm.
    #[arg(long, default_value = "plugins/target/components", value_name = "DIR")]
    plugins: PathBuf,
    /// Work in this folder, which must not be there yet, and leave it.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Runs it and answers with the count.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let folder = folder(arguments)?;
    let setup = Setup { records: arguments.records, plugins: arguments.plugins.clone(), folder: folder.clone() };
    let text = output.format() == Format::Text;
    let result = demo::run(&setup, |line| {
        if text {
            output.data(line);
        }
    });
    if arguments.keep.is_none() {
        // what is left of it is the system's to clear
        let _ = std::fs::remove_dir_all(&folder);
    }
    let report = result?;
    answer(&report, output);
    let tally = &report.tally;
    if report.lost() > 0 || tally.out_of_order > 0 {
        return Ok(Exit::Lost);
    }
    Ok(Exit::Ok)
}

fn folder(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let folder = arguments
        .keep
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("kiteline-demo-{}", std::process::id())));
    std::fs::create_dir(&folder).map_err(|e| {
        let message = format!("folder \"{}\" cannot be made", folder.display());
        Failure::new(Exit::Usage, Problem::new("demo.folder", message).cause(&e))
    })?;
    Ok(folder)
}

fn answer(report: &Report, output: &mut Output) {
    let tally = &report.tally;
    let json = json!({
        "read": report.made.0, "written": tally.written, "written_by_second_version": tally.by_second,
        "dropped": tally.dropped, "dead_letters": tally.dead_letters, "repeated": tally.repeated,
        "out_of_order": tally.out_of_order, "lost": report.lost(), "checkpointed": report.checkpointed,
        "took_ms": report.took_ms,
    });
    output.answer(&json, || {
        let row = |what: &str, n: u64, note: &str| vec![what.to_owned(), n.to_string(), note.to_owned()];
        let seconds = report.took_ms as f64 / 1_000.0;
        let spoilt = format!("{} could not be decoded", report.made.1);
        let by_second = format!("{} of them by demo-v2", tally.by_second);
        let rows = [
            row("read", report.made.0, &format!("orders made; in {seconds:.1} s all told")),
            row("written", tally.written, &by_second),
            row("dropped", tally.dropped, "by the plugin's choice"),
            row("dead letters", tally.dead_letters, &spoilt),
            row("repeated", tally.repeated, "what the killed worker had written after its last checkpoint"),
            row("out of order", tally.out_of_order, "within a partition"),
            row("lost", report.lost(), "records without an outcome, or below no checkpoint"),
        ];
        table(&["", "records", ""], &rows)
    });
}
