//! A tree of versioned nodes in memory, with the rules of ZooKeeper that the engine relies on. The memory store is one, the
//! file store keeps one beside its log. Owns no text format and no disk.

use std::collections::BTreeMap;

use kiteline_engine::store::{StoreAnswer, StoreRequest};

use super::{paths::Layout, request, request::WireOp};

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) data: Vec<u8>,
    /// 0 when made, one more with each set.
    pub(super) version: i32,
    /// The session that it ends with.
    pub(super) session: Option<i64>,
}

/// All nodes by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) nodes: BTreeMap<String, Entry>,
}

impl Tree {
    /// Does all operations in order or none; the index of the first that does not hold.
    pub(super) fn apply(&mut self, ops: &[WireOp], session: i64) -> Result<(), usize> {
        // What stood at each path before, to be put back if a later operation does not hold.
        let mut before: Vec<(&str, Option<Entry>)> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            if !self.holds(op) {
                for (path, entry) in before.into_iter().rev() {
                    match entry {
                        Some(entry) => self.nodes.insert(path.to_string(), entry),
                        None => self.nodes.remove(path),
                    };
                }
                return Err(index);
            }
            if !matches!(op, WireOp::Check { .. }) {
                before.push((op.path(), self.nodes.get(op.path()).cloned()));
            }
            self.perform(op, session);
        }
        Ok(())
    }

    fn holds(&self, op: &WireOp) -> bool {
        match op {
            WireOp::Check { path, version } | WireOp::Set { path, version, .. } | WireOp::Delete { path, version } => {
                self.nodes.get(path).is_some_and(|entry| entry.version == *version)
            }
            WireOp::Create { path, below, .. } => {
                !self.nodes.contains_key(path) && below.as_ref().is_none_or(|below| self.nodes.contains_key(below))
            }
        }
    }

    fn perform(&mut self, op: &WireOp, session: i64) {
        match op {
            WireOp::Check { .. } => {}
            WireOp::Create { path, data, ephemeral, .. } => {
                let session = ephemeral.then_some(session);
                self.nodes.insert(path.clone(), Entry { data: data.clone().into_bytes(), version: 0, session });
            }
            WireOp::Set { path, data, version } => {
                if let Some(entry) = self.nodes.get_mut(path) {
                    entry.data = data.clone().into_bytes();
                    entry.version = version.wrapping_add(1);
                }
            }
            WireOp::Delete { path, .. } => {
                self.nodes.remove(path);
            }
        }
    }

    /// Removes the nodes of one session, or of all.
    pub(super) fn end_sessions(&mut self, session: Option<i64>) {
        self.nodes
            .retain(|_, entry| entry.session.is_none() || session.is_some_and(|ended| entry.session != Some(ended)));
    }

    /// Answers a reading request; none for a writing one.
    pub(super) fn read(&self, layout: &Layout, request: &StoreRequest) -> Option<StoreAnswer> {
        match request {
            StoreRequest::Read(keys) => {
                let nodes = keys.iter().map(|key| {
                    let entry = self.nodes.get(&layout.path(key));
                    request::found(key, entry.map(|entry| (entry.data.as_slice(), entry.version)))
                });
                Some(StoreAnswer::Nodes(nodes.collect()))
            }
            StoreRequest::Members => {
                let folder = layout.members() + "/";
                let nodes = self.nodes.range(folder.clone()..).take_while(|(path, _)| path.starts_with(&folder));
                Some(request::members(
                    nodes.map(|(path, entry)| (&path[folder.len()..], entry.data.as_slice(), entry.version)),
                ))
            }
            StoreRequest::Checkpoints => {
                let folder = layout.partitions() + "/";
                let nodes = self.nodes.range(folder.clone()..).take_while(|(path, _)| path.starts_with(&folder));
                let checkpoints = nodes.filter_map(|(path, entry)| {
                    let (topic, name) = path[folder.len()..].split_once('/')?;
                    Some((Layout::partition_named(topic, name)?, Some((entry.data.as_slice(), entry.version))))
                });
                Some(request::checkpoints(checkpoints))
            }
            StoreRequest::Multi(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str, below: Option<&str>, ephemeral: bool) -> WireOp {
        let below = below.map(str::to_string);
        WireOp::Create { path: path.into(), data: path.into(), ephemeral, below, folders: Vec::new() }
    }

    fn set(path: &str, version: i32) -> WireOp {
        WireOp::Set { path: path.into(), data: "new".into(), version }
    }

    #[test]
    fn a_request_is_done_whole_or_not_at_all() {
        let mut tree = Tree::default();
        tree.apply(&[create("/p", None, false), create("/p/m", Some("/p"), true)], 1).unwrap();
        let stood = tree.clone();
        let check = |path: &str, version| WireOp::Check { path: path.into(), version };
        let cases = [
            (vec![set("/p", 0), set("/p", 0)], 1),
            (vec![set("/p", 0), create("/p/x", Some("/p"), false), create("/p", None, false)], 2),
            (vec![set("/p", 0), WireOp::Delete { path: "/p/m".into(), version: 0 }, check("/p/m", 0)], 2),
            (vec![check("/p", 0), create("/q/x", Some("/q"), false)], 1),
            (vec![WireOp::Delete { path: "/p/m".into(), version: 1 }], 0),
            (vec![check("/absent", 0)], 0),
        ];
        for (ops, first) in cases {
            assert_eq!(tree.apply(&ops, 2), Err(first), "{ops:?}");
            assert_eq!(tree, stood, "{ops:?}");
        }
        tree.apply(&[set("/p", 0), set("/p", 1), check("/p", 2)], 2).unwrap();
        assert_eq!(tree.nodes["/p"].version, 2);
    }

    #[test]
    fn nodes_of_a_session_end_with_it() {
        let mut tree = Tree::default();
        tree.apply(&[create("/p", None, false), create("/p/a", None, true)], 1).unwrap();
        tree.apply(&[create("/p/b", None, true)], 2).unwrap();
        tree.end_sessions(Some(1));
        assert_eq!(tree.nodes.keys().collect::<Vec<_>>(), ["/p", "/p/b"]);
        tree.end_sessions(None);
        assert_eq!(tree.nodes.keys().collect::<Vec<_>>(), ["/p"]);
    }
}
