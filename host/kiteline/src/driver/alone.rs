//! Checkpoints in files are for one process: another member of the group would keep its positions elsewhere, and each would lose
//! the other's. This watches that the group gives this process every partition.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use kiteline_engine::ids::TopicPartition;

/// How long the group may withhold partitions: a killed process is a member until its session ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the group has given, and what it must give.
#[derive(Debug)]
pub(super) struct Alone {
    /// Partitions of the topics at the start; more may be added later.
    wanted: usize,
    have: BTreeSet<TopicPartition>,
    /// Since when something is missing, once the group has answered at all.
    missing_since: Option<Instant>,
}

impl Alone {
    /// For topics with so many partitions together.
    pub(super) fn new(wanted: usize) -> Self {
        Self { wanted, have: BTreeSet::new(), missing_since: None }
    }

    /// The group has given these.
    pub(super) fn assigned(&mut self, list: &[TopicPartition]) {
        self.have.extend(list.iter().cloned());
        self.look();
    }

    /// The group has taken these.
    pub(super) fn taken(&mut self, list: &[TopicPartition]) {
        list.iter().for_each(|tp| {
            self.have.remove(tp);
        });
        self.look();
    }

    /// This process has left the group.
    pub(super) fn left(&mut self) {
        self.have.clear();
        self.missing_since = None;
    }

    fn look(&mut self) {
        if self.have.len() >= self.wanted {
            self.missing_since = None;
        } else {
            self.missing_since.get_or_insert_with(Instant::now);
        }
    }

    /// Why the pipeline must stop, if it must.
    pub(super) fn refusal(&self) -> Option<String> {
        let since = self.missing_since?;
        (since.elapsed() > PATIENCE).then(|| {
            format!(
                "the group gives this process {} of {} partitions, so it has another member; checkpoints in files are for one \
                 process: stop the other one, or set checkpoint.store = \"zookeeper\"",
                self.have.len(),
                self.wanted
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lasting_lack_is_refused() {
        let tp = |n| TopicPartition::new("t", n);
        let mut alone = Alone::new(2);
        assert_eq!(alone.refusal(), None, "the group has not answered yet");
        alone.assigned(&[tp(0)]);
        assert!(alone.missing_since.is_some());
        assert_eq!(alone.refusal(), None, "a killed process may still be a member");
        alone.missing_since = Instant::now().checked_sub(PATIENCE + Duration::from_secs(1));
        assert!(alone.refusal().is_some_and(|why| why.starts_with("the group gives this process 1 of 2 partitions")));
        alone.assigned(&[tp(1)]);
        assert_eq!(alone.refusal(), None);
        alone.taken(&[tp(0)]);
        assert!(alone.missing_since.is_some());
    }
}
