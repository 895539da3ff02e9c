//! `kiteline validate`: everything that is wrong with an app, at once.
//!
//! Without `--live` nothing outside the install root is asked. With it, Kafka, the checkpoint store and the registries are; what
//! they are asked is in `live`.

mod live;

use clap::Args;
use serde_json::json;

use super::settings::Settings;
use crate::{
    config,
    error::{Exit, Failure},
    output::Output,
};

/// Check an app: configuration, schemas, plugins; every problem at once.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Ask Kafka, the checkpoint store and the schema registries as well.
    #[arg(long)]
    live: bool,
}

/// Answers with the names of what was checked, or fails with all problems.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let settings = &arguments.settings;
    let examined = config::examine_with_plugins(&settings.root(), &settings.surroundings());
    let Some(plan) = examined.plan else { return Err(Failure::usage(examined.problems)) };
    if arguments.live {
        live::check(&plan)?;
    }
    let pipelines: Vec<&str> = plan.pipelines.iter().map(|p| p.name.as_str()).collect();
    let json = json!({ "app": plan.app.name.as_str(), "pipelines": pipelines, "live": arguments.live, "errors": [] });
    output.answer(&json, || {
        let asked = if arguments.live { ", live systems included" } else { "" };
        format!("app \"{}\" is valid{asked}: {}", plan.app.name, pipelines.join(", "))
    });
    Ok(Exit::Ok)
}
