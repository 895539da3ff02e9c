//! The second phase: no more faults, so everything must come to its end within a bounded time.

use kiteline_engine::{
    event::Event,
    ids::Run,
    store::{HeadState, Key, Node, RunState},
};

use crate::{
    check::Ended,
    things::Thing,
    world::{World, partition},
};

impl World {
    /// Simulated milliseconds that may pass from the last fault to the end.
    fn calm_ms_max(&self) -> u64 {
        // sessions run out, claims wait for former owners, groups settle, a few times over
        150_000 + 10 * (self.plan.session_ms + self.plan.group_session_ms + self.plan.rebalance_ms)
    }

    /// Looks whether all has come to its end.
    pub(crate) fn look(&mut self) {
        if !self.calm {
            self.calm = true;
            self.log(format_args!("no more faults"));
            for log in &mut self.logs {
                log.end = log.last();
            }
        }
        if self.plan.until_end || self.stopping {
            if self.all_done() && self.never_claimed() {
                // a known limit: what only dead members ever had, and none of them claimed, a bounded run cannot know of
                self.log(format_args!("a partition was never claimed; run again"));
                self.done.fill(false);
                (0..self.plan.members).for_each(|member| self.later(1, Thing::Boot(member)));
            } else if self.all_done() {
                self.finish();
                self.over = true;
                return;
            }
        } else if self.processes.iter().all(Option::is_some) && self.any_entered() && self.behind().is_none() {
            self.stopping = true;
            self.log(format_args!("all records have come to their ends; stop"));
            let whos: Vec<_> = self.processes.iter().flatten().map(|p| p.who).collect();
            for who in whos {
                let ms = self.dice.range(0, 50);
                self.later(ms, Thing::Event(who, Event::Stop));
            }
        }
        if self.clock > self.plan.faults_ms + self.calm_ms_max() {
            let what = self.behind().unwrap_or_else(|| "some process does not end".into());
            let pictures: Vec<_> =
                self.processes.iter().flatten().map(|p| format!("{} {:?}", p.who, p.pipeline.snapshot())).collect();
            return self.fail("live", format!("{what}\n{}", pictures.join("\n")));
        }
        self.later(100, Thing::Look);
    }

    fn all_done(&self) -> bool {
        self.processes.iter().all(Option::is_none) && (self.stopping || self.done.iter().all(|d| *d))
    }

    fn never_claimed(&self) -> bool {
        !self.stopping && (0..self.logs.len()).any(|p| self.store.checkpoint(&partition(p)).is_none())
    }

    fn any_entered(&self) -> bool {
        self.processes.iter().flatten().any(|p| p.pipeline.snapshot().run > Run(0))
    }

    /// What is not at its end yet.
    fn behind(&mut self) -> Option<String> {
        for index in 0..self.logs.len() {
            let tp = partition(index);
            let (end, complete) = (self.logs[index].last(), self.ledgers[index].complete_until());
            if complete < end {
                return Some(format!("record {complete} of {tp} has no outcome, the log ends at {end}"));
            }
            let stored = self.store.checkpoint(&tp).map(|c| c.position.next_offset);
            if stored != Some(end) {
                return Some(format!("the checkpoint of {tp} is {stored:?}, the log ends at {end}"));
            }
        }
        None
    }

    /// All processes have ended: what they leave behind must be in order.
    fn finish(&mut self) {
        if let Some(what) = self.behind() {
            return self.fail("live", format!("all processes have ended, but {what}"));
        }
        let last_ok = self.checks.last_end == Some(Ended::InOrder) && self.checks.last_closed;
        let head = match self.store.node(&Key::RunHead) {
            Some(Node::RunHead(head)) => head.clone(),
            other => return self.fail("runs", format!("the run head is {other:?}")),
        };
        let unreleased = self.store.checkpoints().find(|(_, c)| !c.owner.released).map(|(tp, _)| tp.clone());
        let record = match self.store.node(&Key::Run(head.run)) {
            Some(Node::Run(record)) => record.clone(),
            other => return self.fail("runs", format!("the last run is {other:?}")),
        };
        self.log(format_args!("run {} ended {:?} {:?}", head.run.0, head.state, record.state));
        // a process that failed at the end may leave the run to the next opener
        if last_ok && head.state != HeadState::Closed {
            self.fail("runs", format!("the last member left in order, and run {} is {:?}", head.run.0, head.state));
        }
        if last_ok && record.state != RunState::Finished && unreleased.is_none() {
            self.fail(
                "runs",
                format!("the last member left in order, and its run is {:?}: {}", record.state, record.reason),
            );
        }
    }
}
