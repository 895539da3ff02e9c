//! The life of a pipeline: begin when plugin and session are there, work, drain and release, leave, end.

use super::Pipeline;
use crate::{
    effect::{Effect, Notice},
    ids::{Instant, Revision},
    limits::LEAVE_MS_MAX,
    member::Outcome,
    partition::{Partition, Phase},
};

/// Whether the pipeline works, ends, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Until plugin, sinks and session are there.
    Starting,
    /// Working.
    Working,
    /// Drains and releases until then; the result to end with.
    Stopping(Instant, Result<(), String>),
    /// Leaves the run, until then.
    Leaving(Instant, Result<(), String>),
    /// Over.
    Over,
}

impl Pipeline {
    pub(super) fn over(&self) -> bool {
        self.life == Life::Over
    }

    /// Whether partitions are on their way out altogether.
    pub(super) fn stopping(&self) -> bool {
        matches!(self.life, Life::Stopping(..) | Life::Leaving(..) | Life::Over)
    }

    pub(super) fn on_start(&mut self) {
        self.ready = true;
        if self.lease.session() {
            self.begin_membership();
        }
    }

    pub(super) fn on_session(&mut self, session: i64, timeout_ms: u64) {
        if self.lease.session() {
            self.on_expired();
        }
        self.lease.renew(self.desk.at(), timeout_ms);
        self.membership.session_is(session, timeout_ms);
        if self.ready {
            self.begin_membership();
        }
    }

    fn begin_membership(&mut self) {
        if let Life::Leaving(_, result) = self.life.clone() {
            let outcome = self.membership.leave(&mut self.desk, result);
            return self.on_membership(outcome);
        }
        self.membership.begin(&mut self.desk);
    }

    /// The session is gone: somebody else may own everything by now. Nothing is written any more under it.
    pub(super) fn on_expired(&mut self) {
        self.lease.end(self.desk.at());
        self.desk.give_up_requests();
        self.membership.expired();
        self.swap.expired();
        self.disown_all(|_| true);
    }

    /// Drops the claims that are chosen; they are made again at once, unless the partition is on its way out.
    fn disown_all(&mut self, chosen: impl Fn(&Partition) -> bool) {
        let now = self.desk.at();
        let all: Vec<_> = self
            .partitions
            .iter()
            .filter(|(_, p)| chosen(p))
            .map(|(tp, p)| (tp.clone(), p.revoking || self.stopping()))
            .collect();
        for (tp, out) in all {
            let phase = if out { Phase::Released } else { Phase::Unclaimed(now) };
            self.disown(&tp, phase);
        }
    }

    pub(super) fn on_membership(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Pending => {}
            Outcome::Entered => self.on_entered(),
            Outcome::Left => {
                if let Life::Leaving(_, result) = self.life.clone() {
                    self.finish(result);
                }
            }
            Outcome::Failed(why) => match self.life.clone() {
                Life::Leaving(_, result) => self.finish(result.and(Err(why))),
                _ => {
                    self.desk.notice(Notice::StoreFailed(why.clone()));
                    self.stop(Err(why));
                }
            },
        }
    }

    /// In a run, a first or another one: what was claimed under another run is claimed again, for its start table may move it.
    fn on_entered(&mut self) {
        if self.life == Life::Starting {
            self.life = Life::Working;
            self.commit_at = self.desk.at().plus_ms(self.limits.commit_interval_ms);
        }
        let run = self.membership.run;
        self.disown_all(|p| p.owned.is_some() && p.run != run);
        self.adopt();
        if self.membership.revision == Revision(0) {
            let why = "the wanted revision was changed while this member joined, and it has another plugin";
            return self.stop(Err(why.into()));
        }
        self.swap.entered(&mut self.desk, self.membership.revision);
        if self.working() {
            if !self.joined_group || self.lease.left_group {
                self.joined_group = true;
                self.lease.left_group = false;
                self.desk.effects.push(Effect::JoinGroup);
            }
            self.submit_next();
        }
    }

    /// Finish what is in flight, release, leave; with this result at the end.
    pub(super) fn stop(&mut self, result: Result<(), String>) {
        match &self.life {
            Life::Starting => self.leave(result),
            Life::Working => {
                let drain = self.desk.at().plus_ms(self.limits.drain_ms_max);
                self.life = Life::Stopping(drain.plus_ms(self.limits.drain_ms_max), result);
                let all: Vec<_> = self.partitions.keys().cloned().collect();
                for tp in all {
                    self.drain(&tp, drain);
                }
            }
            Life::Stopping(..) | Life::Leaving(..) | Life::Over => {}
        }
    }

    /// Leaves the run, or just ends if there is no session to do it in.
    fn leave(&mut self, result: Result<(), String>) {
        let until = self.desk.at().plus_ms(LEAVE_MS_MAX);
        self.life = Life::Leaving(until, result.clone());
        let outcome = self.membership.leave(&mut self.desk, result);
        self.on_membership(outcome);
    }

    /// Goes on with stopping: when everything is released, or its time is over, leave the group and the run.
    pub(super) fn settle_life(&mut self) {
        if let Life::Stopping(until, result) = self.life.clone() {
            let open = |p: &Partition| p.owned.is_some() || p.claim_in_flight();
            if !self.partitions.values().any(open) {
                self.leave_group();
                self.leave(result);
            } else if self.desk.at() >= until {
                self.leave_group();
                let why = "partitions were not released in time: the checkpoint store gave no clear answer";
                self.leave(result.and(Err(why.into())));
            }
        }
        if let Life::Leaving(until, result) = self.life.clone()
            && self.desk.at() >= until
        {
            let why = "the run was not left in order: the checkpoint store gave no clear answer";
            self.finish(result.and(Err(why.into())));
        }
    }

    fn finish(&mut self, result: Result<(), String>) {
        self.life = Life::Over;
        self.desk.effects.push(Effect::Finished(result));
    }

    pub(super) fn on_tick(&mut self) {
        let outcome = self.membership.tick(&mut self.desk);
        self.on_membership(outcome);
        self.watch_lease();
        self.tick_partitions();
        self.read_back_due();
        if self.desk.at() >= self.commit_at && self.membership.entered() {
            self.commit_at = self.desk.at().plus_ms(self.limits.commit_interval_ms);
            self.commit_all();
            self.mirror();
        }
        self.watch_ends();
    }

    pub(super) fn working(&self) -> bool {
        self.life == Life::Working
    }

    /// Until when partitions that come now have time to drain, if the pipeline is on its way out.
    pub(super) fn stopping_until(&self) -> Option<Instant> {
        match self.life {
            Life::Stopping(until, _) => Some(until),
            _ => None,
        }
    }
}
