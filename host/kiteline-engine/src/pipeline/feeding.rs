//! Feeding: batches from fetch to completion, in order, within bounds.

use super::Pipeline;
use crate::{
    desk::backoff_ms,
    effect::{Effect, Notice},
    ids::{BatchId, FeedId, TopicPartition},
    partition::Phase,
    record::OffsetRange,
    source::Progress,
    store::PluginPosition,
};

/// Batches of a partition that a plugin without state may have at the same time: the next one waits while one is worked on.
const AHEAD_STATELESS: usize = 2;

impl Pipeline {
    pub(super) fn on_fetched(
        &mut self,
        tp: TopicPartition,
        feed: FeedId,
        batch: BatchId,
        range: OffsetRange,
        records: u32,
    ) {
        if !self.fed(&tp, feed) {
            return self.desk.effects.push(Effect::Forget(batch));
        }
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(&tp) else {
            return;
        };
        let draining = matches!(partition.phase, Phase::Draining(_));
        let Some(flow) = partition.flow.as_mut().filter(|_| !draining) else {
            // on its way out, it takes in nothing more
            return self.desk.effects.push(Effect::Forget(batch));
        };
        if flow.in_flight() == 0 {
            partition.moved_at = now;
        }
        flow.fetched(batch, range);
        if records == 0 {
            // only the position moved: complete as soon as everything before it is
            if let Some(entry) = flow.find(batch) {
                entry.progress = Progress::Complete;
            }
            self.desk.effects.push(Effect::Forget(batch));
            self.settle(&tp);
        } else {
            self.batches.insert(batch, tp.clone());
        }
        self.pump(&tp);
    }

    /// Asks for everything that this partition may do now: fetches, plugin calls, writes.
    pub(super) fn pump(&mut self, tp: &TopicPartition) {
        let held = self.lease.held();
        let in_flight = u32::try_from(self.batches.len()).unwrap_or(u32::MAX);
        let left = self.limits.pipeline_batches_max.saturating_sub(in_flight);
        let ahead = if self.swap.stateless() { AHEAD_STATELESS } else { 1 };
        let live = self.membership.revision;
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let working = partition.phase == Phase::Working;
        if !working && !matches!(partition.phase, Phase::Draining(_)) {
            return;
        }
        let Some(flow) = &mut partition.flow else {
            return;
        };
        let feed = flow.feed;
        if partition.decode_at.is_none_or(|at| at <= now) {
            partition.decode_at = None;
            while let Some(next) = flow.next_to_transform(ahead) {
                let revision = next.revision.unwrap_or(live);
                if next.revision.is_none() && partition.handed != live {
                    let edge = PluginPosition { revision: live, since: next.range.from };
                    partition.edges.push_back(edge);
                    partition.handed = live;
                    self.desk.effects.push(Effect::Flush(tp.clone()));
                    self.desk.notice(Notice::Switched(tp.clone(), live, next.range.from));
                }
                next.progress = Progress::Transforming;
                next.revision = Some(revision);
                self.desk.effects.push(Effect::Transform(next.batch, tp.clone(), revision));
            }
        }
        if held {
            return;
        }
        while let Some(next) = flow.next_to_sink() {
            next.progress = Progress::Sinking;
            self.desk.effects.push(Effect::Sink(next.batch));
        }
        if working && !self.until_end_reached(tp) {
            let Some(flow) = self.partitions.get_mut(tp).and_then(|p| p.flow.as_mut()) else {
                return;
            };
            let credit = flow.allow(&self.limits, left);
            if credit > 0 {
                self.desk.effects.push(Effect::Fetch(tp.clone(), feed, credit));
            }
        }
    }

    /// Whether everything up to where `until end` stops was fetched.
    fn until_end_reached(&self, tp: &TopicPartition) -> bool {
        self.until_end
            && self
                .partitions
                .get(tp)
                .is_some_and(|p| matches!((&p.flow, p.end), (Some(f), Some(end)) if f.position() >= end))
    }

    pub(super) fn pump_all(&mut self) {
        let all: Vec<_> = self.partitions.keys().cloned().collect();
        for tp in all {
            self.pump(&tp);
        }
    }

    pub(super) fn on_transformed(&mut self, batch: BatchId, writes: u32, stop: Option<String>) {
        let Some(tp) = self.batches.get(&batch).cloned() else {
            return self.desk.notice(Notice::LateCompletion);
        };
        if let Some(why) = stop {
            self.halt(&tp, why);
            return;
        }
        let Some(entry) = self.partitions.get_mut(&tp).and_then(|p| p.flow.as_mut()?.find(batch)) else {
            return;
        };
        entry.progress = if writes == 0 { Progress::Complete } else { Progress::Transformed };
        if writes == 0 {
            self.complete(&tp, batch);
        }
        self.pump(&tp);
    }

    pub(super) fn on_acknowledged(&mut self, batch: BatchId) {
        let Some(tp) = self.batches.get(&batch).cloned() else {
            return self.desk.notice(Notice::LateCompletion);
        };
        if let Some(entry) = self.partitions.get_mut(&tp).and_then(|p| p.flow.as_mut()?.find(batch)) {
            entry.progress = Progress::Complete;
        }
        self.complete(&tp, batch);
        self.pump(&tp);
    }

    fn complete(&mut self, tp: &TopicPartition, batch: BatchId) {
        self.batches.remove(&batch);
        self.desk.effects.push(Effect::Forget(batch));
        self.settle(tp);
    }

    fn settle(&mut self, tp: &TopicPartition) {
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        if partition.flow.as_mut().is_some_and(crate::source::Flow::settle) {
            partition.moved_at = now;
            partition.tries = 0;
            partition.stall_told = false;
        }
        self.advance_drain(tp);
    }

    pub(super) fn on_refused(&mut self, batch: BatchId) {
        if self.batches.contains_key(&batch) {
            self.desk.effects.push(Effect::DeadLetter(batch));
        } else {
            self.desk.notice(Notice::LateCompletion);
        }
    }

    /// Decoding waits for something outside: nothing of the partition is skipped, all of it waits.
    pub(super) fn on_decode_waits(&mut self, batch: BatchId, message: String) {
        let Some(tp) = self.batches.get(&batch).cloned() else {
            return self.desk.notice(Notice::LateCompletion);
        };
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(&tp) else {
            return;
        };
        if let Some(entry) = partition.flow.as_mut().and_then(|f| f.find(batch)) {
            entry.progress = Progress::Waiting;
        }
        if partition.decode_at.is_none() {
            self.desk.notice(Notice::DecodeWaits(tp.clone(), message));
            partition.tries += 1;
            let pause = backoff_ms(&self.limits, partition.tries - 1);
            partition.decode_at = Some(now.plus_ms(pause));
        }
    }

    /// Something of the batch is not durable: everything from the low-water mark on is read and done again, in order.
    pub(super) fn on_batch_failed(&mut self, batch: BatchId, message: String) {
        let Some(tp) = self.batches.get(&batch).cloned() else {
            return self.desk.notice(Notice::LateCompletion);
        };
        self.forget_flow(&tp);
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(&tp) else {
            return;
        };
        partition.tries += 1;
        let from = partition.resume_at;
        match partition.phase {
            Phase::Working => {
                partition.phase = Phase::Rewinding(now.plus_ms(backoff_ms(&self.limits, partition.tries - 1)));
                self.desk.notice(Notice::Rewound(tp, from, message));
            }
            // no time to do it again: what is complete is given back
            Phase::Draining(_) => {
                partition.phase = Phase::Releasing;
                self.advance_drain(&tp);
            }
            _ => {}
        }
    }

    /// Timers of a partition that is fed.
    pub(super) fn tick_fed(&mut self, tp: &TopicPartition) {
        let now = self.desk.at();
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        let busy = partition.flow.as_ref().is_some_and(|f| f.in_flight() > 0);
        let quiet = now.since_ms(partition.moved_at);
        if busy && quiet >= self.limits.stall_ms_max && !partition.stall_told {
            partition.stall_told = true;
            self.desk.notice(Notice::Stalled(tp.clone(), quiet));
        }
        let decode_due = self.partitions.get(tp).is_some_and(|p| p.decode_at.is_some_and(|at| at <= now));
        if decode_due {
            self.pump(tp);
        }
    }
}
