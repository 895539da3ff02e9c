//! The layout of a pipeline's nodes below `/kiteline/v1`, and how names become path parts. Owns no content.

use kiteline_engine::{
    ids::{MemberId, TopicPartition},
    store::Key,
};

use crate::{
    Error,
    names::{escape, unescape},
};

/// Root of everything, inside the chroot of the connect string. A new layout gets a new number.
const ROOT: &str = "/kiteline/v1";

/// Longest app, pipeline or member name in bytes, before escaping.
const NAME_BYTES_MAX: usize = 200;

/// Where the nodes of one pipeline are.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Folder of all pipelines of the app.
    base: String,
    /// The pipeline's own node, which is its descriptor.
    root: String,
}

impl Layout {
    /// Layout of one pipeline.
    pub(crate) fn new(app: &str, pipeline: &str) -> Result<Self, Error> {
        for (setting, name) in [("app", app), ("pipeline", pipeline)] {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let detail = format!("a name has 1 to {NAME_BYTES_MAX} bytes, this one has {}", name.len());
                return Err(Error::StoreSetting { setting, detail });
            }
        }
        let base = format!("{ROOT}/apps/{}/pipelines", escape(app));
        let root = format!("{base}/{}", escape(pipeline));
        Ok(Self { base, root })
    }

    /// Folder that holds the pipeline's node. The store makes it, and shows its right to write there.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The pipeline's node.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Folder of the member nodes, which is the member counter.
    pub(crate) fn members(&self) -> String {
        format!("{}/members", self.root)
    }

    /// Folder of the topics' folders.
    pub(crate) fn partitions(&self) -> String {
        format!("{}/partitions", self.root)
    }

    /// Path of a node.
    pub(crate) fn path(&self, key: &Key) -> String {
        let root = &self.root;
        match key {
            Key::Descriptor => root.clone(),
            Key::RunHead => format!("{root}/run"),
            Key::Run(run) => format!("{root}/runs/{:010}", run.0),
            Key::Members => self.members(),
            Key::Member(member) => format!("{root}/members/{}", escape(&member.0)),
            Key::Desired => format!("{root}/desired"),
            Key::Revision(revision) => format!("{root}/revisions/{}", revision.0),
            Key::Partition(partition) => {
                format!("{root}/partitions/{}/{}", escape(&partition.topic), partition.partition)
            }
            Key::Audit(at_ms, nonce) => format!("{root}/audit/{at_ms:013}-{nonce}"),
        }
    }

    /// The node that must be there before this one can be made; none for the descriptor.
    pub(crate) fn below(&self, key: &Key) -> Option<String> {
        match key {
            Key::Descriptor => None,
            Key::Member(_) => Some(self.members()),
            _ => Some(self.root.clone()),
        }
    }

    /// Folders without content between the pipeline's node and this one, outermost first. The store makes them when needed.
    pub(crate) fn folders(&self, key: &Key) -> Vec<String> {
        let root = &self.root;
        match key {
            Key::Run(_) => vec![format!("{root}/runs")],
            Key::Revision(_) => vec![format!("{root}/revisions")],
            Key::Audit(..) => vec![format!("{root}/audit")],
            Key::Partition(partition) => {
                vec![format!("{root}/partitions"), format!("{root}/partitions/{}", escape(&partition.topic))]
            }
            Key::Descriptor | Key::RunHead | Key::Members | Key::Member(_) | Key::Desired => Vec::new(),
        }
    }

    /// The partition whose node has this name below its topic's folder; none for a name that no partition has.
    pub(crate) fn partition_named(topic: &str, name: &str) -> Option<TopicPartition> {
        let partition = name.parse::<i32>().ok().filter(|number| *number >= 0 && number.to_string() == name)?;
        Some(TopicPartition::new(unescape(topic), partition))
    }

    /// The member whose node has this name.
    pub(crate) fn member_named(name: &str) -> MemberId {
        MemberId(unescape(name).into())
    }
}

#[cfg(test)]
mod tests {
    use kiteline_engine::ids::{Nonce, Revision, Run, TopicPartition};

    use super::*;

    #[test]
    fn nodes_are_where_the_design_says() {
        let layout = Layout::new("shop", "orders/eu").unwrap();
        let root = "/kiteline/v1/apps/shop/pipelines/orders%2Feu";
        let cases = [
            (Key::Descriptor, ""),
            (Key::RunHead, "/run"),
            (Key::Run(Run(7)), "/runs/0000000007"),
            (Key::Members, "/members"),
            (Key::Member(MemberId("host:1".into())), "/members/host%3A1"),
            (Key::Desired, "/desired"),
            (Key::Revision(Revision(3)), "/revisions/3"),
            (Key::Partition(TopicPartition::new("in", 12)), "/partitions/in/12"),
            (Key::Audit(1_764_600_000_000, Nonce(10)), "/audit/1764600000000-000000000000000a"),
        ];
        for (key, rest) in cases {
            let path = layout.path(&key);
            assert_eq!(path, format!("{root}{rest}"));
            for folder in layout.folders(&key) {
                assert!(path.starts_with(&format!("{folder}/")), "{folder} {path}");
            }
        }
        assert!(Layout::new("", "p").is_err());
        assert!(Layout::new("a", &"x".repeat(201)).is_err());
    }
}
