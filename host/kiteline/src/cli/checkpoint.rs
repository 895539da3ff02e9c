//! `kiteline checkpoint show`: where each partition is, by which code, and who owns it.

pub(super) mod reader;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use kiteline_engine::{
    ids::{MemberId, Run, TopicPartition},
    store::{Checkpoint, Found, HeadState, Key, MemberRecord, Node, RunState},
};
use serde_json::{Value, json};

use super::settings::Settings;
use crate::{
    config::{
        plan::{Pipeline, Plan},
        wiring,
    },
    error::{Exit, Failure, Problem},
    output::{Output, table},
};
use reader::Reader;

/// Look at checkpoints.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Show(Show),
}

/// Show the checkpoints of all pipelines, or of one. Changes nothing.
#[derive(Args, Debug)]
pub(crate) struct Show {
    /// Only this pipeline.
    pipeline: Option<String>,
    /// Longest wait for the checkpoint store, in milliseconds.
    #[arg(long, default_value_t = 10_000, value_name = "MS")]
    timeout_ms: u64,
    #[command(flatten)]
    settings: Settings,
}

/// Answers with one table a pipeline. Fails if a checkpoint cannot be read.
pub(crate) fn run(verb: &Verb, output: &mut Output) -> Result<Exit, Failure> {
    let Verb::Show(arguments) = verb;
    let plan = arguments.settings.plan()?;
    let wanted = |p: &&Pipeline| arguments.pipeline.as_deref().is_none_or(|name| name == p.name.as_str());
    let chosen: Vec<&Pipeline> = plan.pipelines.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<_> = plan.pipelines.iter().map(|p| p.name.as_str()).collect();
        let message = format!("there is no pipeline \"{}\"", arguments.pipeline.as_deref().unwrap_or_default());
        let problem = Problem::new("usage.unknown-pipeline", message).hint(format!("pipelines: {}", names.join(", ")));
        return Err(Failure::usage(vec![problem]));
    }
    let now_ms = now_ms();
    let timeout = Duration::from_millis(arguments.timeout_ms);
    let shown = chosen.into_iter().map(|p| Shown::of(&plan, p, timeout)).collect::<Result<Vec<_>, _>>()?;
    let json = json!({
        "app": plan.app.name.as_str(),
        "pipelines": shown.iter().map(|s| s.to_json(now_ms)).collect::<Vec<_>>(),
    });
    output.answer(&json, || shown.iter().map(|s| s.to_text(now_ms)).collect::<Vec<_>>().join("\n"));
    let unreadable = shown.iter().any(|s| s.partitions.iter().any(|(_, p)| p.is_err()));
    Ok(if unreadable { Exit::Failed } else { Exit::Ok })
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// What is stored of one pipeline.
pub(super) struct Shown {
    pipeline: String,
    /// None: never started.
    pub(super) run: Option<(Run, HeadState, Option<Record>)>,
    pub(super) members: Vec<(MemberId, MemberRecord)>,
    /// A checkpoint, or why it cannot be read.
    pub(super) partitions: Partitions,
}

impl Shown {
    /// Opens the pipeline's store beside whoever runs it, reads, and closes it.
    pub(super) fn of(plan: &Plan, pipeline: &Pipeline, timeout: Duration) -> Result<Self, Failure> {
        let mut reader = Reader::open(wiring::store(plan, pipeline.name.as_str(), true)?, timeout)?;
        let shown = Self::read(pipeline, &mut reader)?;
        reader.close();
        Ok(shown)
    }

    fn read(pipeline: &Pipeline, reader: &mut Reader) -> Result<Self, Failure> {
        let name = pipeline.name.to_string();
        let run = match reader.one(Key::RunHead)? {
            Found::Node(Node::RunHead(head), _) => Some((head.run, head.state, run_record(reader, head.run)?)),
            Found::Unreadable(why, _) => return Err(unreadable(&name, "run", &why)),
            _ => None,
        };
        // a store without a run head has no pipeline, so there is nothing to list
        if run.is_none() {
            return Ok(Self { pipeline: name, run, members: Vec::new(), partitions: Vec::new() });
        }
        let members = reader.members()?;
        let checkpoint = |(at, found)| match found {
            Found::Node(Node::Checkpoint(checkpoint), _) => Some((at, Ok(checkpoint))),
            Found::Unreadable(why, _) => Some((at, Err(why))),
            Found::Node(..) | Found::Absent => None,
        };
        let partitions = reader.checkpoints()?.into_iter().filter_map(checkpoint).collect();
        Ok(Self { pipeline: name, run, members, partitions })
    }

    fn to_json(&self, now_ms: u64) -> Value {
        let run = self.run.as_ref().map(|(run, head, record)| {
            json!({
                "run": run.0, "head": head_word(*head),
                "state": record.as_ref().map(|(state, _)| run_word(*state)),
                "release": record.as_ref().map(|(_, release)| release),
            })
        });
        let member = |(id, m): &(MemberId, MemberRecord)| json!({ "member": &*id.0, "host": m.host, "pid": m.pid, "run": m.run.0, "revision": m.revision.0 });
        let partition = |(at, found): &(TopicPartition, Result<Checkpoint, String>)| match found {
            Ok(c) => json!({
                "topic": &*at.topic, "partition": at.partition, "next_offset": c.position.next_offset,
                "why": why_word(c), "at_ms": c.position.at_ms, "age_ms": now_ms.saturating_sub(c.position.at_ms),
                "run": c.position.mark.run.0, "generation": c.owner.generation.0, "seq": c.position.mark.seq,
                "owner": &*c.owner.member.0, "released": c.owner.released,
                "revision": c.plugin.revision.0, "since": c.plugin.since, "topic_id": c.topic.id,
            }),
            Err(why) => json!({ "topic": &*at.topic, "partition": at.partition, "unreadable": why }),
        };
        json!({
            "pipeline": self.pipeline, "run": run,
            "members": self.members.iter().map(member).collect::<Vec<_>>(),
            "partitions": self.partitions.iter().map(partition).collect::<Vec<_>>(),
        })
    }

    fn to_text(&self, now_ms: u64) -> String {
        let Some((run, head, record)) = &self.run else {
            return format!("pipeline {}: never started\n", self.pipeline);
        };
        let record = record.as_ref().map_or(String::new(), |(state, release)| {
            let release = if release.is_empty() { String::new() } else { format!(", release {release}") };
            format!(", {}{release}", run_word(*state))
        });
        let members = self.members.iter().map(|(id, _)| &*id.0).collect::<Vec<_>>().join(", ");
        let members = if members.is_empty() { "none" } else { &members };
        let mut text = format!(
            "pipeline {}: run {} ({}{record}), live members: {members}\n",
            self.pipeline,
            run.0,
            head_word(*head)
        );
        let rows: Vec<_> = self.partitions.iter().map(|(at, found)| row(at, found, now_ms)).collect();
        text.push_str(&table(&HEAD, &rows));
        text
    }
}

const HEAD: [&str; 8] = ["partition", "next_offset", "generation", "owner", "released", "run", "revision", "age"];

fn row(at: &TopicPartition, found: &Result<Checkpoint, String>, now_ms: u64) -> Vec<String> {
    match found {
        Ok(c) => vec![
            at.to_string(),
            c.position.next_offset.to_string(),
            c.owner.generation.0.to_string(),
            c.owner.member.0.to_string(),
            if c.owner.released { "yes" } else { "no" }.into(),
            c.position.mark.run.0.to_string(),
            c.plugin.revision.0.to_string(),
            age(now_ms.saturating_sub(c.position.at_ms)),
        ],
        Err(why) => vec![at.to_string(), format!("unreadable: {why}")],
    }
}

/// The record of a run. None if there is none.
fn run_record(reader: &mut Reader, run: Run) -> Result<Option<Record>, Failure> {
    let Found::Node(Node::Run(record), _) = reader.one(Key::Run(run))? else { return Ok(None) };
    Ok(Some((record.state, record.release)))
}

/// State and release of a run.
type Record = (RunState, String);

type Partitions = Vec<(TopicPartition, Result<Checkpoint, String>)>;

fn unreadable(pipeline: &str, what: &str, why: &str) -> Failure {
    let message = format!("the {what} node of pipeline \"{pipeline}\" cannot be read");
    Problem::new("checkpoint.unreadable", message).detail(why).into()
}

fn head_word(state: HeadState) -> &'static str {
    match state {
        HeadState::Running => "running",
        HeadState::Closed => "closed",
    }
}

fn run_word(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Finished => "finished",
        RunState::Failed => "failed",
        RunState::Abandoned => "abandoned",
    }
}

fn why_word(checkpoint: &Checkpoint) -> &'static str {
    use kiteline_engine::store::Why;
    match checkpoint.position.why {
        Why::First => "first",
        Why::Commit => "commit",
        Why::Reset => "reset",
        Why::Import => "import",
        Why::Lost => "lost",
    }
}

/// A duration as people say it, in its largest unit that has at least two of it.
fn age(ms: u64) -> String {
    match ms {
        0..2_000 => format!("{ms} ms"),
        2_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let check = |ms: u64, expected: &str| assert_eq!(age(ms), expected);
        check(1_999, "1999 ms");
        check(2_000, "2 s");
        check(3_600_000, "60 min");
        check(172_800_000, "2 d");
    }
}
