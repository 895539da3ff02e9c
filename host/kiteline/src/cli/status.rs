//! `kiteline status`: where each pipeline stands, from the checkpoint store and the logs; works beside running members.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use kiteline_connectors::kafka_admin::KafkaAdmin;
use kiteline_engine::{ids::TopicPartition, store::HeadState};
use serde_json::{Value, json};

use super::{checkpoint::Shown, settings::Settings};
use crate::{
    config::{
        plan::{Pipeline, Plan},
        wiring,
    },
    error::{Exit, Failure},
    output::{Output, table},
};

/// Longest question to Kafka.
const ASK_KAFKA: Duration = Duration::from_secs(5);
/// Longest question to the checkpoint store.
const ASK_STORE: Duration = Duration::from_secs(10);

/// Show where each pipeline stands: run, members, and lag of each partition.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

/// Answers with one picture of each pipeline. Kafka may be away: then there is no lag, and it says so.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let plan = arguments.settings.plan()?;
    let mut pipelines = serde_json::Map::new();
    let mut text = String::new();
    for pipeline in &plan.pipelines {
        let (json, lines) = one(&plan, pipeline)?;
        pipelines.insert(pipeline.name.to_string(), json);
        text.push_str(&lines);
    }
    output.answer(&json!({ "app": plan.app.name.as_str(), "pipelines": pipelines }), || text);
    Ok(Exit::Ok)
}

fn one(plan: &Plan, pipeline: &Pipeline) -> Result<(Value, String), Failure> {
    let shown = Shown::of(plan, pipeline, ASK_STORE)?;
    let (ends, trouble) = match log_ends(plan, pipeline) {
        Ok(ends) => (ends, None),
        Err(e) => (BTreeMap::new(), Some(crate::error::Chain(&e).to_string())),
    };
    let (mut rows, mut partitions, mut total) = (Vec::new(), Vec::new(), Some(0u64));
    for (tp, checkpoint) in &shown.partitions {
        let end = ends.get(tp).copied();
        let number = |n: Option<i64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let (next, owner) = match checkpoint {
            Ok(c) if c.owner.released => (Some(c.position.next_offset), "released".to_owned()),
            Ok(c) => (Some(c.position.next_offset), c.owner.member.to_string()),
            Err(why) => (None, format!("unreadable: {why}")),
        };
        let lag = end.zip(next).map(|(end, next)| (end - next).max(0));
        total = total.zip(lag.and_then(|n| u64::try_from(n).ok())).map(|(a, b)| a + b);
        partitions.push(json!({
            "topic": &*tp.topic, "partition": tp.partition, "next_offset": next, "log_end": end, "lag": lag,
            "owner": owner,
        }));
        rows.push(vec![tp.to_string(), number(next), number(end), number(lag), owner]);
    }
    let members: Vec<String> = shown.members.iter().map(|(id, _)| id.to_string()).collect();
    let run = shown.run.as_ref().map(|(run, _, _)| run.0);
    let running = !members.is_empty() && shown.run.as_ref().is_some_and(|(_, head, _)| *head == HeadState::Running);
    let json = json!({
        "run": run, "running": running, "members": members, "lag": total, "partitions": partitions, "no_log_ends": trouble,
    });
    let run = run.map_or_else(|| "never started".to_owned(), |run| format!("run {run}"));
    let state = if running { format!("running on {}", members.join(", ")) } else { "not running".to_owned() };
    let lag = total.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
    let mut text = format!("pipeline {}: {run}, {state}, lag {lag}\n", pipeline.name);
    if let Some(why) = trouble {
        text.push_str(&format!("log ends are not known: {why}\n"));
    }
    text.push_str(&table(&["partition", "next_offset", "log end", "lag", "owner"], &rows));
    Ok((json, text))
}

fn log_ends(plan: &Plan, pipeline: &Pipeline) -> Result<BTreeMap<TopicPartition, i64>, kiteline_connectors::Error> {
    let admin = KafkaAdmin::new(&plan.kafka.bootstrap_servers, &wiring::kafka_properties(&plan.kafka))?;
    let topics: Vec<&str> = pipeline.source.topics.iter().map(String::as_str).collect();
    Ok(admin.log_ranges(&topics, ASK_KAFKA)?.into_iter().map(|(tp, range)| (tp, range.end)).collect())
}
