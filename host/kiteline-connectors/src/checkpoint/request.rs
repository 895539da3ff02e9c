//! A request of the engine as paths and text, measured before any store sees it, and what was read as nodes. The same for all
//! stores, so that the small ones refuse what ZooKeeper would.

use kiteline_engine::{
    ids::TopicPartition,
    store::{Found, Key, MemberRecord, Node, Op, StoreAnswer},
};

use super::{
    paths::Layout,
    wire::{belongs, decode, encode},
};

/// Most operations in one atomic request. ZooKeeper has no such bound; larger ones hold its pipeline up.
pub const REQUEST_OPS_MAX: usize = 200;

/// Most bytes of one atomic request, paths and framing included. ZooKeeper drops the connection above 1 MiB (`jute.maxbuffer`),
/// and a client that tries again then does so for ever.
pub const REQUEST_BYTES_MAX: usize = 600_000;

/// Framing of one operation in ZooKeeper's protocol, generously: header, lengths, version, one or two access rules.
const OP_BYTES: usize = 128;

/// One operation, spelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WireOp {
    /// The node is there at this version.
    Check { path: String, version: i32 },
    /// Makes the node.
    Create {
        path: String,
        data: String,
        /// Gone with the session.
        ephemeral: bool,
        /// Node that must be there; none for the descriptor.
        below: Option<String>,
        /// Folders to make on the way.
        folders: Vec<String>,
    },
    /// Replaces its content.
    Set { path: String, data: String, version: i32 },
    /// Removes it.
    Delete { path: String, version: i32 },
}

impl WireOp {
    /// The node that it concerns.
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Check { path, .. }
            | Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. } => path,
        }
    }

    /// Version of the node once the operation is done, as [`StoreAnswer::Done`] says it.
    pub(super) fn version_after(&self) -> i32 {
        match self {
            Self::Check { version, .. } => *version,
            Self::Create { .. } => 0,
            Self::Set { version, .. } => version.wrapping_add(1),
            Self::Delete { .. } => -1,
        }
    }
}

/// Spells an atomic request and measures it, or says why it can never be done.
pub(super) fn spell(layout: &Layout, ops: &[Op]) -> Result<Vec<WireOp>, String> {
    if ops.len() > REQUEST_OPS_MAX {
        return Err(format!("a request of {} operations, at most {REQUEST_OPS_MAX} are allowed", ops.len()));
    }
    let mut spelled = Vec::with_capacity(ops.len());
    let mut bytes = 0;
    for op in ops {
        let path = layout.path(op.key());
        let op = match op {
            Op::Check(_, version) => WireOp::Check { path, version: *version },
            Op::Create(key, node) => WireOp::Create {
                path,
                data: text(key, node)?,
                ephemeral: matches!(key, Key::Member(_)),
                below: layout.below(key),
                folders: layout.folders(key),
            },
            Op::Set(key, node, version) => WireOp::Set { path, data: text(key, node)?, version: *version },
            Op::Delete(Key::Member(_), version) => WireOp::Delete { path, version: *version },
            Op::Delete(key, _) => return Err(format!("{key:?} is never removed, only members are")),
        };
        if let WireOp::Check { version, .. } | WireOp::Set { version, .. } | WireOp::Delete { version, .. } = &op
            && *version < 0
        {
            return Err(format!("version {version} of '{}' would match any", op.path()));
        }
        bytes += op.path().len() + OP_BYTES;
        if let WireOp::Create { data, .. } | WireOp::Set { data, .. } = &op {
            bytes += data.len();
        }
        spelled.push(op);
    }
    if bytes > REQUEST_BYTES_MAX {
        return Err(format!("a request of {bytes} bytes, at most {REQUEST_BYTES_MAX} are allowed"));
    }
    Ok(spelled)
}

fn text(key: &Key, node: &Node) -> Result<String, String> {
    if !belongs(key, node) {
        return Err(format!("a node of another kind does not belong at {key:?}"));
    }
    encode(node)
}

/// What stands at a key.
pub(super) fn found(key: &Key, content: Option<(&[u8], i32)>) -> Found {
    match content {
        None => Found::Absent,
        Some((bytes, version)) => match decode(key, bytes) {
            Ok(node) => Found::Node(node, version),
            Err(detail) => Found::Unreadable(detail, version),
        },
    }
}

/// The answer to a listing of members, from their node names and contents. One that cannot be read fails the whole: whether
/// somebody else lives must not be guessed.
pub(super) fn members<'a>(nodes: impl Iterator<Item = (&'a str, &'a [u8], i32)>) -> StoreAnswer {
    let mut members = Vec::new();
    for (name, bytes, version) in nodes {
        let member = Layout::member_named(name);
        match decode(&Key::Member(member.clone()), bytes) {
            Ok(Node::Member(record)) => members.push((member, record, version)),
            Ok(_) => return StoreAnswer::Failed(format!("node of member '{member}' is not a member's")),
            Err(detail) => return StoreAnswer::Failed(format!("node of member '{member}' cannot be read: {detail}")),
        }
    }
    members.sort_by(|(a, _, _): &(_, MemberRecord, i32), (b, _, _)| a.cmp(b));
    StoreAnswer::Members(members)
}

/// The answer to a listing of checkpoints. Each that cannot be read is a lost position of its own partition.
pub(super) fn checkpoints<'a>(nodes: impl Iterator<Item = (TopicPartition, Option<(&'a [u8], i32)>)>) -> StoreAnswer {
    let mut checkpoints: Vec<_> = nodes
        .map(|(partition, content)| {
            let found = found(&Key::Partition(partition.clone()), content);
            (partition, found)
        })
        .collect();
    checkpoints.sort_by(|(a, _), (b, _)| a.cmp(b));
    StoreAnswer::Checkpoints(checkpoints)
}
