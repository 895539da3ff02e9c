//! From a claim to a feeding: is the position still in the log, and what is done if it is not.

use super::{OnLostPosition, Pipeline};
use crate::{
    desk::backoff_ms,
    effect::{Effect, Notice},
    event::LogRange,
    ids::{FeedId, TopicPartition},
    partition::Phase,
    source::Flow,
    store::{TopicIdentity, Why},
};

/// Questions about one partition's log that have no answer yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    /// How many. Only the answer to the last one counts: an older one may know less of the log than the checkpoint does.
    open: u32,
    /// Whether one of them failed; failures may come out of order, so the last answer may be to an older question.
    failed: bool,
}

impl Pipeline {
    pub(super) fn ask_positions(&mut self, tp: &TopicPartition) {
        self.set_phase(tp, Phase::Checking);
        self.ask_log(tp);
    }

    pub(super) fn ask_log(&mut self, tp: &TopicPartition) {
        self.asking.entry(tp.clone()).or_default().open += 1;
        self.desk.effects.push(Effect::AskPositions(vec![tp.clone()]));
    }

    /// The logs have answered: feed where the position is still there, else do what the policy says.
    pub(super) fn on_positions(&mut self, list: Vec<(TopicPartition, Result<LogRange, String>)>) {
        for (tp, log) in list {
            let asking = self.asking.entry(tp.clone()).or_default();
            asking.open = asking.open.saturating_sub(1);
            asking.failed |= log.is_err();
            if asking.open > 0 {
                continue;
            }
            let failed = asking.failed;
            self.asking.remove(&tp);
            if let Ok(log) = &log {
                self.owed_end_is(&tp, log.end);
            }
            if self.partitions.get(&tp).map(|p| &p.phase) != Some(&Phase::Checking) {
                continue;
            }
            match log {
                Ok(log) if !failed => self.check_position(&tp, &log),
                _ => self.check_later(&tp),
            }
        }
    }

    /// Asks the log again after a pause: the longer the oftener it failed.
    fn check_later(&mut self, tp: &TopicPartition) {
        let now = self.desk.at();
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.tries += 1;
            let pause = backoff_ms(&self.limits, partition.tries - 1);
            partition.phase = Phase::Unchecked(now.plus_ms(pause));
        }
    }

    fn check_position(&mut self, tp: &TopicPartition, log: &LogRange) {
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let Some(owned) = &mut partition.owned else {
            return;
        };
        partition.end.get_or_insert(log.end);
        let known = &owned.stored.topic.id;
        let recreated = !known.is_empty() && !log.topic_id.is_empty() && *known != log.topic_id;
        let wanted = partition.resume_at;
        // never held against a log before: then the beginning is where the log begins
        let unseen = owned.topic == TopicIdentity::default();
        let fresh = unseen && owned.stored.position.why == Why::First && wanted <= log.start;
        let topic = TopicIdentity { id: log.topic_id.clone(), leader_epoch: -1 };
        if !recreated && (fresh || (log.start..=log.end).contains(&wanted)) {
            owned.topic = topic;
            partition.resume_at = wanted.max(log.start);
            return self.feed(tp);
        }
        let resumed_at = match self.on_lost {
            OnLostPosition::Stop => None,
            OnLostPosition::Earliest => Some(log.start),
            OnLostPosition::Latest => Some(log.end),
        };
        if let Some(offset) = resumed_at {
            owned.topic = topic;
            partition.resume_at = offset;
            partition.moved = Some(offset);
        }
        self.desk.notice(Notice::PositionLost {
            partition: tp.clone(),
            wanted,
            log: (log.start, log.end),
            recreated,
            resumed_at,
        });
        if resumed_at.is_some() {
            return self.feed(tp);
        }
        let anew = if recreated { "; the topic was made anew" } else { "" };
        let (start, end) = (log.start, log.end);
        let why = format!("wanted offset {wanted}, the log has {start}..{end}{anew}");
        self.halt(tp, why);
    }

    /// Feeds a partition from its low-water mark, or where a lost position was moved to.
    pub(super) fn feed(&mut self, tp: &TopicPartition) {
        let feed = self.desk.feed();
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let from = partition.resume_at;
        partition.flow = Some(Flow::new(feed, from));
        partition.phase = Phase::Working;
        partition.moved_at = now;
        partition.stall_told = false;
        partition.rehand_from(from);
        self.desk.effects.push(Effect::Feed(tp.clone(), feed, from));
        self.pump(tp);
    }

    /// Stands still until a person acts; keeps the claim, so that nobody else runs into the same. On its way out, it goes.
    pub(super) fn halt(&mut self, tp: &TopicPartition, why: String) {
        self.forget_flow(tp);
        self.desk.notice(Notice::Halted(tp.clone(), why.clone()));
        let stopping = self.stopping();
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let out = partition.revoking || stopping;
        partition.phase = match (out, partition.owned.is_some()) {
            (false, _) => Phase::Halted(why),
            (true, true) => Phase::Releasing,
            (true, false) => Phase::Released,
        };
        self.advance_drain(tp);
    }

    /// The log does not have what is fetched: ask what it has, then the policy decides.
    pub(super) fn on_out_of_range(&mut self, tp: &TopicPartition, feed: FeedId) {
        if !self.fed(tp, feed) {
            return;
        }
        self.forget_flow(tp);
        match self.partitions.get(tp).map(|p| p.phase.clone()) {
            Some(Phase::Draining(_)) => {
                self.set_phase(tp, Phase::Releasing);
                self.advance_drain(tp);
            }
            _ => self.check_later(tp),
        }
    }

    pub(super) fn on_partition_failed(&mut self, tp: &TopicPartition, feed: FeedId, message: String) {
        if self.fed(tp, feed) {
            self.halt(tp, message);
        }
    }

    /// Whether an event is of the current feeding; a late one changes nothing.
    pub(super) fn fed(&mut self, tp: &TopicPartition, feed: FeedId) -> bool {
        let current = self.partitions.get(tp).and_then(|p| p.flow.as_ref()).is_some_and(|f| f.feed == feed);
        if !current {
            self.desk.notice(Notice::LateCompletion);
        }
        current
    }
}
