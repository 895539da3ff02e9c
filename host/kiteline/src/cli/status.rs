//! `kiteline status`: where each pipeline stands, from the checkpoint store and the logs; works beside running members.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use kiteline_connectors::source::kafka::{KafkaSourceConfig, log_ranges};
use kiteline_engine::ids::TopicPartition;
use serde_json::{Value, json};

use super::{checkpoint::read_all, settings::Settings};
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

/// Show where each pipeline stands: run, members, and lag of each partition.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

/// Answers with one picture of each pipeline. Kafka may be away: then there is no lag, and it says so.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Exit, Failure> {
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
    let stored = read_all(plan, pipeline.name.as_str())?;
    let config = KafkaSourceConfig {
        bootstrap_servers: plan.kafka.bootstrap_servers.clone(),
        group: pipeline.source.group.clone(),
        topics: pipeline.source.topics.clone(),
        instance_id: None,
        properties: wiring::kafka_properties(&plan.kafka),
        batch_records_max: 1,
        batch_bytes_max: 1,
    };
    let (ends, trouble): (BTreeMap<TopicPartition, i64>, Option<String>) = match log_ranges(&config, ASK_KAFKA) {
        Ok(ranges) => (ranges.into_iter().map(|(tp, range)| (tp, range.end)).collect(), None),
        Err(e) => (BTreeMap::new(), Some(crate::error::Chain(&e).to_string())),
    };
    let mut rows = Vec::new();
    let mut partitions = Vec::new();
    let mut total = Some(0u64);
    for (tp, checkpoint) in &stored.checkpoints {
        let end = ends.get(tp).copied();
        let next = checkpoint.position.next_offset;
        let lag = end.map(|end| u64::try_from(end - next).unwrap_or(0));
        total = total.zip(lag).map(|(a, b)| a + b);
        let owner = if checkpoint.owner.released { "released".to_owned() } else { checkpoint.owner.member.to_string() };
        partitions.push(json!({
            "partition": tp.to_string(), "next_offset": next, "log_end": end, "lag": lag, "owner": owner,
            "generation": checkpoint.owner.generation.0, "revision": checkpoint.plugin.revision.0,
        }));
        let number = |n: Option<i64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let lag = lag.map_or_else(|| "?".to_owned(), |n| n.to_string());
        rows.push(vec![tp.to_string(), next.to_string(), number(end), lag, owner]);
    }
    let members: Vec<String> = stored.members.iter().map(|(id, _, _)| id.to_string()).collect();
    let json = json!({
        "run": stored.run.map(|r| r.0), "running": stored.running, "members": members, "lag": total,
        "partitions": partitions, "kafka": trouble.clone().unwrap_or_else(|| "reachable".into()),
    });
    let run = stored.run.map_or_else(|| "never run".to_owned(), |r| format!("run {}", r.0));
    let state = if stored.running && !members.is_empty() { "running" } else { "not running" };
    let mut text = format!("pipeline {}: {run}, {state}, {} members\n", pipeline.name, members.len());
    if let Some(why) = trouble {
        text.push_str(&format!("no log ends: {why}\n"));
    }
    text.push_str(&table(&["partition", "next_offset", "log end", "lag", "owner"], &rows));
    text.push('\n');
    Ok((json, text))
}
