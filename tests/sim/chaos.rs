//! Faults that strike processes, the group and the logs, every tenth of a second while faults are on.

use kiteline_engine::event::Event;

use crate::{
    process::{Who, candidate},
    things::Thing,
    world::World,
};

impl World {
    /// Faults may strike.
    pub(crate) fn chaos(&mut self) {
        if self.calm {
            return;
        }
        let whos: Vec<_> = self.processes.iter().flatten().map(|p| p.who).collect();
        for who in whos {
            self.chaos_of(who);
        }
        if self.strikes(self.plan.faults.rebalance) {
            self.log(format_args!("the group shuffles"));
            self.group.shuffle();
        }
        if self.strikes(self.plan.faults.retention) {
            for log in &mut self.logs {
                let to = log.start + (log.end - log.start) / 3;
                log.start = to;
            }
            self.log(format_args!("the logs lose their oldest records"));
        }
        self.later(100, Thing::Chaos);
    }

    fn chaos_of(&mut self, who: Who) {
        let faults = self.plan.faults.clone();
        let (session_ms, group_ms) = (self.plan.session_ms, self.plan.group_session_ms);
        if self.strikes(faults.disconnect) {
            let ms = self.dice.range(1, session_ms * 2);
            self.disconnect(who, ms);
        }
        if self.strikes(faults.expire)
            && let Some(session) = self.process(who).and_then(|p| p.session)
        {
            self.log(format_args!("the store ends session {session} of {who}"));
            self.checks.killed.insert(session);
            self.store.end_session(session);
            let ms = self.dice.range(1, 200);
            self.later(ms, Thing::Reconnect(who));
        }
        if self.strikes(faults.expel) {
            self.log(format_args!("{who} is expelled and does not know"));
            self.expel(who);
        }
        if self.strikes(faults.pause) {
            let ms = self.dice.range(50, session_ms.max(group_ms) * 2);
            self.pause(who, ms);
        }
        if self.strikes(faults.swap) {
            self.swap(who);
        }
        if self.strikes(faults.stop) {
            self.checks.asked_to_stop.insert(who);
            self.later(0, Thing::Event(who, Event::Stop));
        }
        if self.strikes(faults.fail) {
            self.later(0, Thing::Event(who, Event::Failed("a part has failed".into())));
        }
        if self.strikes(faults.crash) {
            self.crash(who);
        }
    }

    /// A process dies at once. Store and group learn it by its silence.
    pub(crate) fn crash(&mut self, who: Who) {
        let Some(process) = self.processes[who.member].take() else { return };
        self.log(format_args!("{who} crashes"));
        let wire = if self.dice.chance(500) { 0 } else { self.dice.range(1, 100) };
        self.cut_lanes(&process, wire);
        self.silent(process.session);
        self.later(self.plan.group_session_ms, Thing::GroupGone(who));
        let ms = self.dice.range(1, self.plan.session_ms * 2);
        self.later(ms, Thing::Boot(who.member));
    }

    /// A process stands still, as in a suspended machine; store and group hear nothing of it.
    fn pause(&mut self, who: Who, ms: u64) {
        let until = self.clock + ms;
        let (session_ms, group_ms) = (self.plan.session_ms, self.plan.group_session_ms);
        let Some(p) = self.process(who) else { return };
        p.paused_until = until;
        let session = p.session;
        self.log(format_args!("{who} stands still for {ms} ms"));
        self.silent(session);
        if ms > session_ms {
            // the client finds out when it wakes
            self.later(ms + 1, Thing::Reconnect(who));
        } else {
            self.later(ms, Thing::Reconnect(who));
        }
        if ms > group_ms {
            self.expel(who);
        }
    }

    /// A new plugin is submitted, to one or to all.
    fn swap(&mut self, who: Who) {
        self.plugin += 1;
        let plugin = candidate(self.plugin, self.plan.stateless);
        let all = self.dice.chance(800);
        self.log(format_args!("plugin {} is submitted", plugin.token));
        let whos: Vec<_> = self.processes.iter().flatten().map(|p| p.who).collect();
        for other in whos {
            if other == who || all {
                if let Some(p) = self.process(other) {
                    p.plugins.insert(plugin.token, plugin.clone());
                }
                let ms = self.dice.range(1, 300);
                self.later(ms, Thing::Event(other, Event::Swap(plugin.clone())));
            }
        }
    }
}
