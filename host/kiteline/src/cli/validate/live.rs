//! What `validate --live` asks of Kafka, the checkpoint store and the registries. Changes nothing anywhere.

use std::time::Duration;

use super::super::{
    checkpoint::reader::Reader,
    setup::{admin, declared_topics, unreachable},
};
use crate::{
    config::{
        plan::{Decode, Plan, Registry, SinkEncode},
        wiring,
    },
    error::{Exit, Failure, Problem},
};

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks all of them, and returns everything that is wrong with the lowest exit code that tells it.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    let mut failures: Vec<Failure> = Vec::new();
    failures.extend(kafka(plan).err());
    // One ensemble serves all pipelines, and a file store is locked by whoever runs; one look is enough.
    if let Some(pipeline) = plan.pipelines.first() {
        let store = wiring::store(plan, pipeline.name.as_str(), true).and_then(|c| Reader::open(c, TIMEOUT));
        match store {
            Ok(reader) => reader.close(),
            Err(failure) => failures.push(failure),
        }
    }
    for (registry, subject) in registries(plan) {
        failures.extend(self::registry(registry, subject).err());
    }
    let Some(exit) = failures.iter().map(|f| f.exit).max() else { return Ok(()) };
    Err(Failure { exit, problems: failures.into_iter().flat_map(|f| f.problems).collect() })
}

fn kafka(plan: &Plan) -> Result<(), Failure> {
    let declared = declared_topics(plan);
    let names: Vec<&str> = declared.keys().map(String::as_str).collect();
    let states = admin(plan)?.topics(&names, TIMEOUT).map_err(|error| unreachable(&error))?;
    let missing: Vec<Problem> = states
        .into_iter()
        .zip(&declared)
        .filter(|(state, _)| state.partitions.is_none())
        .map(|(_, (name, (why, ours)))| {
            let stage = if *ours { "sink.missing-topic" } else { "source.missing-topic" };
            let problem = Problem::new(stage, format!("topic \"{name}\" is not there")).detail(why.clone());
            if *ours { problem.hint("`kiteline setup --apply` makes it") } else { problem }
        })
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(Failure { exit: Exit::Failed, problems: missing }) }
}

/// Every registry with a subject to ask for.
fn registries(plan: &Plan) -> Vec<(&Registry, &str)> {
    let mut found: Vec<(&Registry, &str)> = Vec::new();
    for pipeline in &plan.pipelines {
        if let Decode::Confluent { registry, subject } = &pipeline.decode {
            found.push((registry, subject));
        }
    }
    for sink in plan.pipelines.iter().flat_map(|p| &p.sinks) {
        if let SinkEncode::Confluent { registry, subject } = &sink.encode
            && !found.iter().any(|(known, _)| *known == registry)
        {
            found.push((registry, subject));
        }
    }
    found
}

/// That nobody has written a schema yet is no problem before the first start.
fn registry(registry: &Registry, subject: &str) -> Result<(), Failure> {
    use kiteline_connectors::decode::RegistryError;
    match wiring::registry(registry)?.latest(subject) {
        Ok(_) | Err(RegistryError::NotFound) => Ok(()),
        Err(error @ RegistryError::Passing(_)) => {
            let message = format!("schema registry \"{}\" cannot be reached", registry.url);
            Err(Failure::new(Exit::Unreachable, Problem::new("decode.registry-unreachable", message).cause(&error)))
        }
        Err(error) => {
            let message = format!("newest schema of subject \"{subject}\" cannot be used");
            Err(Failure::new(Exit::Failed, Problem::new("decode.bad-schema", message).cause(&error)))
        }
    }
}
