//! The fields of each node as they are spelled. Owns names and ranges; versions, unknown fields and checksums are one level up.

use std::collections::BTreeMap;

use kiteline_engine::{
    ids,
    ids::{Generation, MemberId, Nonce, TopicPartition},
    store::{self, Extra, HeadState, RunState, Why},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Who has the last word on a position. `kafka` comes with exactly once, which this version does not have.
const AUTHORITY: &str = "store";

#[derive(Serialize, Deserialize)]
pub(super) struct Descriptor {
    incarnation: Hex,
    group: String,
    delivery: String,
    created: u64,
}

impl From<&store::Descriptor> for Descriptor {
    fn from(node: &store::Descriptor) -> Self {
        Self {
            incarnation: Hex(node.incarnation.0),
            group: node.group.clone(),
            delivery: node.delivery.clone(),
            created: node.created_ms,
        }
    }
}

impl Descriptor {
    pub(super) fn into_node(self, extra: Extra) -> store::Descriptor {
        let Self { incarnation, group, delivery, created } = self;
        store::Descriptor { incarnation: Nonce(incarnation.0), group, delivery, created_ms: created, extra }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct RunHead {
    run: u64,
    state: Head,
    nonce: Hex,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Head {
    Running,
    Closed,
}

impl From<&store::RunHead> for RunHead {
    fn from(node: &store::RunHead) -> Self {
        let state = match node.state {
            HeadState::Running => Head::Running,
            HeadState::Closed => Head::Closed,
        };
        Self { run: node.run.0, state, nonce: Hex(node.nonce.0) }
    }
}

impl RunHead {
    pub(super) fn into_node(self, extra: Extra) -> store::RunHead {
        let state = match self.state {
            Head::Running => HeadState::Running,
            Head::Closed => HeadState::Closed,
        };
        store::RunHead { run: ids::Run(self.run), state, nonce: Nonce(self.nonce.0), extra }
    }
}

/// Topic, then partition as text (JSON has no other keys), then next_offset. About 25 bytes a partition.
type Table = BTreeMap<String, BTreeMap<Part, i64>>;

#[derive(Serialize, Deserialize)]
pub(super) struct Run {
    state: State,
    release: String,
    revision: u32,
    started: u64,
    ended: u64,
    reason: String,
    start: Table,
    end: Table,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum State {
    Running,
    Finished,
    Failed,
    Abandoned,
}

impl From<&store::RunRecord> for Run {
    fn from(node: &store::RunRecord) -> Self {
        let state = match node.state {
            RunState::Running => State::Running,
            RunState::Finished => State::Finished,
            RunState::Failed => State::Failed,
            RunState::Abandoned => State::Abandoned,
        };
        Self {
            state,
            release: node.release.clone(),
            revision: node.revision.0,
            started: node.started_ms,
            ended: node.ended_ms,
            reason: node.reason.clone(),
            start: table(&node.start),
            end: table(&node.end),
        }
    }
}

impl Run {
    pub(super) fn into_node(self, extra: Extra) -> Result<store::RunRecord, String> {
        let state = match self.state {
            State::Running => RunState::Running,
            State::Finished => RunState::Finished,
            State::Failed => RunState::Failed,
            State::Abandoned => RunState::Abandoned,
        };
        Ok(store::RunRecord {
            state,
            release: self.release,
            revision: ids::Revision(self.revision),
            started_ms: self.started,
            ended_ms: self.ended,
            reason: self.reason,
            start: rows(self.start)?,
            end: rows(self.end)?,
            extra,
        })
    }
}

fn table(rows: &[(TopicPartition, i64)]) -> Table {
    let mut table = Table::new();
    for (partition, next_offset) in rows {
        table.entry(partition.topic.to_string()).or_default().insert(Part(partition.partition), *next_offset);
    }
    table
}

/// Rows in the order of topic and partition.
fn rows(table: Table) -> Result<Vec<(TopicPartition, i64)>, String> {
    let mut rows = Vec::new();
    for (topic, partitions) in table {
        let topic: std::sync::Arc<str> = topic.into();
        for (Part(partition), next_offset) in partitions {
            let row = TopicPartition::new(std::sync::Arc::clone(&topic), partition);
            rows.push((row, offset("next_offset", next_offset)?));
        }
    }
    Ok(rows)
}

#[derive(Serialize, Deserialize)]
pub(super) struct Members {
    changes: u64,
}

impl From<&store::MemberCounter> for Members {
    fn from(node: &store::MemberCounter) -> Self {
        Self { changes: node.changes }
    }
}

impl Members {
    pub(super) fn into_node(self, extra: Extra) -> store::MemberCounter {
        store::MemberCounter { changes: self.changes, extra }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Member {
    nonce: Hex,
    session: SessionHex,
    host: String,
    pid: u32,
    boot: String,
    run: u64,
    revision: u32,
}

impl From<&store::MemberRecord> for Member {
    fn from(node: &store::MemberRecord) -> Self {
        Self {
            nonce: Hex(node.nonce.0),
            session: SessionHex(node.session),
            host: node.host.clone(),
            pid: node.pid,
            boot: node.boot.clone(),
            run: node.run.0,
            revision: node.revision.0,
        }
    }
}

impl Member {
    pub(super) fn into_node(self, extra: Extra) -> store::MemberRecord {
        let Self { nonce, session, host, pid, boot, run, revision } = self;
        let (nonce, session) = (Nonce(nonce.0), session.0);
        let (run, revision) = (ids::Run(run), ids::Revision(revision));
        store::MemberRecord { nonce, session, host, pid, boot, run, revision, extra }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Desired {
    live: u32,
    at: u64,
}

impl From<&store::Desired> for Desired {
    fn from(node: &store::Desired) -> Self {
        Self { live: node.live.0, at: node.at_ms }
    }
}

impl Desired {
    pub(super) fn into_node(self, extra: Extra) -> store::Desired {
        store::Desired { live: ids::Revision(self.live), at_ms: self.at, extra }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Revision {
    digest: String,
    config_digest: String,
    contract: String,
    created: u64,
}

impl From<&store::RevisionRecord> for Revision {
    fn from(node: &store::RevisionRecord) -> Self {
        Self {
            digest: node.digest.clone(),
            config_digest: node.config_digest.clone(),
            contract: node.contract.clone(),
            created: node.created_ms,
        }
    }
}

impl Revision {
    pub(super) fn into_node(self, extra: Extra) -> store::RevisionRecord {
        let Self { digest, config_digest, contract, created } = self;
        store::RevisionRecord { digest, config_digest, contract, created_ms: created, extra }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Checkpoint {
    owner: Owner,
    position: Position,
    topic: Topic,
    plugin: Plugin,
    authority: String,
}

#[derive(Serialize, Deserialize)]
struct Owner {
    generation: u64,
    nonce: Hex,
    member: String,
    session: SessionHex,
    released: bool,
}

#[derive(Serialize, Deserialize)]
struct Position {
    next_offset: i64,
    mark: Mark,
    why: Reason,
    at: u64,
}

#[derive(Serialize, Deserialize)]
struct Mark {
    run: u64,
    generation: u64,
    seq: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reason {
    First,
    Commit,
    Reset,
    Import,
    Lost,
}

#[derive(Serialize, Deserialize)]
struct Topic {
    id: String,
    leader_epoch: i32,
}

#[derive(Serialize, Deserialize)]
struct Plugin {
    revision: u32,
    since: i64,
}

impl From<&store::Checkpoint> for Checkpoint {
    fn from(node: &store::Checkpoint) -> Self {
        let store::Checkpoint { owner, position, topic, plugin, extra: _ } = node;
        Self {
            owner: Owner {
                generation: owner.generation.0,
                nonce: Hex(owner.nonce.0),
                member: owner.member.to_string(),
                session: SessionHex(owner.session),
                released: owner.released,
            },
            position: Position {
                next_offset: position.next_offset,
                mark: Mark { run: position.mark.run.0, generation: position.mark.generation.0, seq: position.mark.seq },
                why: match position.why {
                    Why::First => Reason::First,
                    Why::Commit => Reason::Commit,
                    Why::Reset => Reason::Reset,
                    Why::Import => Reason::Import,
                    Why::Lost => Reason::Lost,
                },
                at: position.at_ms,
            },
            topic: Topic { id: topic.id.clone(), leader_epoch: topic.leader_epoch },
            plugin: Plugin { revision: plugin.revision.0, since: plugin.since },
            authority: AUTHORITY.into(),
        }
    }
}

impl Checkpoint {
    pub(super) fn into_node(self, extra: Extra) -> Result<store::Checkpoint, String> {
        let Self { owner, position, topic, plugin, authority } = self;
        if authority != AUTHORITY {
            return Err(format!("authority is {authority:?}, and this kiteline knows only {AUTHORITY:?}"));
        }
        let Mark { run, generation, seq } = position.mark;
        Ok(store::Checkpoint {
            owner: store::Owner {
                generation: Generation(owner.generation),
                nonce: Nonce(owner.nonce.0),
                member: MemberId(owner.member.into()),
                session: owner.session.0,
                released: owner.released,
            },
            position: store::Position {
                next_offset: offset("next_offset", position.next_offset)?,
                mark: ids::Mark { run: ids::Run(run), generation: Generation(generation), seq },
                why: match position.why {
                    Reason::First => Why::First,
                    Reason::Commit => Why::Commit,
                    Reason::Reset => Why::Reset,
                    Reason::Import => Why::Import,
                    Reason::Lost => Why::Lost,
                },
                at_ms: position.at,
            },
            topic: store::TopicIdentity { id: topic.id, leader_epoch: topic.leader_epoch },
            plugin: store::PluginPosition {
                revision: ids::Revision(plugin.revision),
                since: offset("since", plugin.since)?,
            },
            extra,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Audit {
    what: String,
    member: String,
    detail: String,
}

impl From<&store::AuditRecord> for Audit {
    fn from(node: &store::AuditRecord) -> Self {
        Self { what: node.what.clone(), member: node.member.to_string(), detail: node.detail.clone() }
    }
}

impl Audit {
    pub(super) fn into_node(self) -> store::AuditRecord {
        store::AuditRecord { what: self.what, member: MemberId(self.member.into()), detail: self.detail }
    }
}

/// Offsets are never negative.
fn offset(name: &str, value: i64) -> Result<i64, String> {
    if value < 0 { Err(format!("{name} is {value}, below 0")) } else { Ok(value) }
}

/// 64 random bits as 16 lower-case hex digits.
struct Hex(u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let value = u64::from_str_radix(&text, 16).ok().filter(|_| digits);
        value.map(Self).ok_or_else(|| D::Error::custom("not 16 lower-case hex digits"))
    }
}

/// A session number as ZooKeeper's tools print it: `0x` and the digits of its two's complement.
struct SessionHex(i64);

impl Serialize for SessionHex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for SessionHex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let value = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        value.map(|value| Self(value.cast_signed())).ok_or_else(|| D::Error::custom("session is not 0x and hex digits"))
    }
}

/// A partition number as the key of a JSON object.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Part(i32);

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let value = text.parse::<i32>().ok().filter(|value| *value >= 0 && value.to_string() == text);
        value.map(Self).ok_or_else(|| D::Error::custom("not a partition number"))
    }
}
