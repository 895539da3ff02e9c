//! The simulated checkpoint store: versioned nodes, sessions with ephemeral nodes, atomic requests. It never misbehaves by
//! itself; requests and answers are lost and delayed on the way, in `wire.rs`.

use std::collections::BTreeMap;

use kiteline_engine::{
    ids::{MemberId, TopicPartition},
    store::{Checkpoint, Found, Key, MemberRecord, Node, Op, StoreAnswer, StoreRequest},
};

/// One session, as the store sees it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// When it ends unless the client is heard of again.
    pub(crate) ends_at: Option<u64>,
    /// Whether it lives.
    pub(crate) alive: bool,
}

/// One write that took effect.
#[derive(Debug)]
pub(crate) struct Change {
    /// Which node.
    pub(crate) key: Key,
    /// What it was.
    pub(crate) before: Option<Node>,
    /// What it is.
    pub(crate) after: Option<Node>,
}

/// The store.
#[derive(Debug, Default)]
pub(crate) struct Store {
    nodes: BTreeMap<Key, (Node, i32)>,
    ephemeral: BTreeMap<Key, i64>,
    /// All sessions there ever were.
    pub(crate) sessions: BTreeMap<i64, Session>,
    /// Versions of checkpoint nodes are not looked at: a fault put in on purpose.
    blind: bool,
}

impl Store {
    /// An empty store.
    pub(crate) fn new(blind: bool) -> Self {
        Self { blind, ..Self::default() }
    }

    /// A new session.
    pub(crate) fn open_session(&mut self) -> i64 {
        let session = self.sessions.len() as i64 + 1;
        self.sessions.insert(session, Session { ends_at: None, alive: true });
        session
    }

    /// Whether a session lives.
    pub(crate) fn alive(&self, session: i64) -> bool {
        self.sessions.get(&session).is_some_and(|s| s.alive)
    }

    /// Ends a session, and with it its nodes.
    pub(crate) fn end_session(&mut self, session: i64) {
        if let Some(s) = self.sessions.get_mut(&session) {
            s.alive = false;
        }
        let gone: Vec<_> = self.ephemeral.iter().filter(|(_, s)| **s == session).map(|(k, _)| k.clone()).collect();
        for key in gone {
            self.ephemeral.remove(&key);
            self.nodes.remove(&key);
        }
    }

    /// A node's content.
    pub(crate) fn node(&self, key: &Key) -> Option<&Node> {
        self.nodes.get(key).map(|(node, _)| node)
    }

    /// The checkpoint of a partition.
    pub(crate) fn checkpoint(&self, tp: &TopicPartition) -> Option<&Checkpoint> {
        match self.node(&Key::Partition(tp.clone())) {
            Some(Node::Checkpoint(c)) => Some(c),
            _ => None,
        }
    }

    /// All checkpoints.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = (&TopicPartition, &Checkpoint)> {
        self.nodes.iter().filter_map(|(key, (node, _))| match (key, node) {
            (Key::Partition(tp), Node::Checkpoint(c)) => Some((tp, c)),
            _ => None,
        })
    }

    /// Checkpoints that were not given back by an owner that worked. A claim that its sender had given up for unknown may land
    /// at any time; it has moved nothing, and who comes next waits for it no longer than for any other owner.
    pub(crate) fn unreleased(&self) -> impl Iterator<Item = (&TopicPartition, &Checkpoint)> {
        let worked = |c: &Checkpoint| c.position.mark.seq > 0 && c.position.mark.generation == c.owner.generation;
        self.checkpoints().filter(move |(_, c)| !c.owner.released && worked(c))
    }

    /// The session that holds a member's node.
    pub(crate) fn member_session(&self, member: &MemberId) -> Option<i64> {
        self.ephemeral.get(&Key::Member(member.clone())).copied()
    }

    /// All members.
    pub(crate) fn members(&self) -> impl Iterator<Item = &MemberRecord> {
        self.nodes.values().filter_map(|(node, _)| match node {
            Node::Member(record) => Some(record),
            _ => None,
        })
    }

    /// How many member nodes there are.
    pub(crate) fn member_count(&self) -> usize {
        self.ephemeral.len()
    }

    /// A request takes effect, or does not. The changes that it made come with the answer.
    pub(crate) fn apply(&mut self, session: i64, request: &StoreRequest) -> (StoreAnswer, Vec<Change>) {
        let answer = match request {
            StoreRequest::Read(keys) => StoreAnswer::Nodes(keys.iter().map(|key| self.found(key)).collect()),
            StoreRequest::Members => StoreAnswer::Members(
                self.nodes
                    .iter()
                    .filter_map(|(key, (node, version))| match (key, node) {
                        (Key::Member(id), Node::Member(r)) => Some((id.clone(), r.clone(), *version)),
                        _ => None,
                    })
                    .collect(),
            ),
            StoreRequest::Checkpoints => StoreAnswer::Checkpoints(
                self.nodes
                    .keys()
                    .filter_map(|key| match key {
                        Key::Partition(tp) => Some((tp.clone(), self.found(key))),
                        _ => None,
                    })
                    .collect(),
            ),
            StoreRequest::Multi(ops) => return self.multi(session, ops),
        };
        (answer, Vec::new())
    }

    fn found(&self, key: &Key) -> Found {
        self.nodes.get(key).map_or(Found::Absent, |(node, version)| Found::Node(node.clone(), *version))
    }

    fn multi(&mut self, session: i64, ops: &[Op]) -> (StoreAnswer, Vec<Change>) {
        if let Some(index) = ops.iter().position(|op| !self.holds(op)) {
            return (StoreAnswer::Refused(index), Vec::new());
        }
        let (mut versions, mut changes) = (Vec::new(), Vec::new());
        for op in ops {
            let key = op.key().clone();
            let before = self.nodes.get(&key).cloned();
            let next = match op {
                Op::Check(_, version) => {
                    versions.push(*version);
                    continue;
                }
                Op::Create(_, node) => {
                    if matches!(key, Key::Member(_)) {
                        self.ephemeral.insert(key.clone(), session);
                    }
                    Some((node.clone(), 0))
                }
                Op::Set(_, node, _) => Some((node.clone(), before.as_ref().map_or(0, |(_, v)| v + 1))),
                Op::Delete(..) => {
                    self.ephemeral.remove(&key);
                    None
                }
            };
            versions.push(next.as_ref().map_or(-1, |(_, v)| *v));
            let after = next.as_ref().map(|(node, _)| node.clone());
            match next {
                Some(entry) => self.nodes.insert(key.clone(), entry),
                None => self.nodes.remove(&key),
            };
            changes.push(Change { key, before: before.map(|(node, _)| node), after });
        }
        (StoreAnswer::Done(versions), changes)
    }

    fn holds(&self, op: &Op) -> bool {
        let stored = self.nodes.get(op.key()).map(|(_, version)| *version);
        match op {
            Op::Create(..) => stored.is_none(),
            Op::Set(Key::Partition(_), ..) if self.blind => stored.is_some(),
            Op::Check(_, version) | Op::Set(_, _, version) | Op::Delete(_, version) => stored == Some(*version),
        }
    }
}
