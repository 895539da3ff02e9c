//! One simulated history: everything that is on its way, in order of time, and what happens when it arrives.
//!
//! Effects of the engines are performed in `perform.rs`, the way to the store is in `wire.rs`, faults in `chaos.rs`, the end
//! in `ending.rs`. Nothing here knows what is right; that is the business of `check`.

use std::collections::BTreeMap;

use kiteline_engine::{
    event::{Event, Now},
    ids::{Instant, Run, TopicPartition},
};

use crate::{
    check::Checks,
    dice::Dice,
    group::{Group, Message},
    ledger::Ledger,
    logs::Log,
    mutant::Mutation,
    plan::Plan,
    process::{Process, Who},
    sink::Lane,
    store::Store,
    things::Thing,
    trace::Trace,
};

/// What went wrong: which checker says so, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Name of the checker.
    pub(crate) checker: &'static str,
    /// What it saw.
    pub(crate) message: String,
}

/// One history.
#[derive(Debug)]
pub(crate) struct World {
    /// Parameters.
    pub(crate) plan: Plan,
    /// Chance.
    pub(crate) dice: Dice,
    /// Now, in simulated milliseconds.
    pub(crate) clock: u64,
    queue: BTreeMap<(u64, u64), Thing>,
    queued: u64,
    /// Events that engines were given.
    pub(crate) steps: u64,
    /// The store.
    pub(crate) store: Store,
    /// The group's coordinator.
    pub(crate) group: Group,
    /// The source.
    pub(crate) logs: Vec<Log>,
    /// What came of every record.
    pub(crate) ledgers: Vec<Ledger>,
    /// Ways to the sink there ever were.
    pub(crate) lanes: Vec<Lane>,
    /// The living process of each member.
    pub(crate) processes: Vec<Option<Process>>,
    /// Lives of each member so far.
    pub(crate) lives: Vec<u32>,
    /// Number of the plugin that a new process has.
    pub(crate) plugin: u64,
    /// Whether faults are over.
    pub(crate) calm: bool,
    /// Whether all processes were asked to stop, at the end.
    pub(crate) stopping: bool,
    /// Members that came to the logs' ends and ended in order.
    pub(crate) done: Vec<bool>,
    /// Checkers.
    pub(crate) checks: Checks,
    /// A fault put into the program on purpose.
    pub(crate) mutation: Mutation,
    /// What happened.
    pub(crate) trace: Trace,
    /// The first thing that went wrong.
    pub(crate) failure: Option<Failure>,
    /// Whether the history has come to its end.
    pub(crate) over: bool,
}

/// No history needs more events; one that does is a loop.
const STEPS_MAX: u64 = 400_000;

impl World {
    /// The beginning of a seed's history.
    pub(crate) fn new(seed: u64, mutation: Mutation) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::of(&mut dice);
        let logs: Vec<_> = (0..plan.partitions).map(|_| Log::new(&mut dice, plan.offsets, plan.until_end)).collect();
        let ledgers = logs.iter().enumerate().map(|(p, log)| Ledger::new(seed, p, log)).collect();
        let mut world = Self {
            dice,
            clock: 0,
            queue: BTreeMap::new(),
            queued: 0,
            steps: 0,
            store: Store::new(mutation.blind_store()),
            group: Group::new((0..plan.partitions).map(partition).collect()),
            logs,
            ledgers,
            lanes: Vec::new(),
            processes: (0..plan.members).map(|_| None).collect(),
            lives: vec![0; plan.members],
            plugin: 1,
            calm: false,
            stopping: false,
            done: vec![false; plan.members],
            checks: Checks::default(),
            mutation,
            trace: Trace::default(),
            failure: None,
            over: false,
            plan,
        };
        for member in 0..world.plan.members {
            let at = world.dice.range(0, 300);
            world.later(at, Thing::Boot(member));
        }
        world.later(10, Thing::GroupTurn);
        world.later(100, Thing::Chaos);
        world.later(50, Thing::Produce);
        let calm = world.plan.faults_ms;
        world.later(calm, Thing::Look);
        world
    }

    /// Lets it come to its end, or to its first failure.
    pub(crate) fn run(&mut self) {
        while !self.over && self.failure.is_none() {
            let Some(((at, _), thing)) = self.queue.pop_first() else {
                return self.fail("live", "nothing is on its way any more".into());
            };
            self.clock = at;
            self.arrive(thing);
            if self.steps > STEPS_MAX {
                self.fail("live", format!("{STEPS_MAX} events, and no end"));
            }
        }
    }

    /// Notes a failure; the first one counts.
    pub(crate) fn fail(&mut self, checker: &'static str, message: String) {
        self.log(format_args!("FAILED {checker}: {message}"));
        self.failure.get_or_insert(Failure { checker, message });
    }

    /// Notes a checker's verdict.
    pub(crate) fn judge(&mut self, checker: &'static str, verdict: Result<(), String>) {
        if let Err(message) = verdict {
            self.fail(checker, message);
        }
    }

    /// Adds a line to the trace.
    pub(crate) fn log(&mut self, text: std::fmt::Arguments<'_>) {
        self.trace.line(self.clock, text);
    }

    /// Something will arrive in so many milliseconds.
    pub(crate) fn later(&mut self, ms: u64, thing: Thing) {
        self.queued += 1;
        self.queue.insert((self.clock + ms, self.queued), thing);
    }

    /// How long something takes that ordinarily takes up to `ms`.
    pub(crate) fn takes(&mut self, ms: u64) -> u64 {
        let slow = !self.calm && self.dice.chance(self.plan.faults.slow);
        self.dice.range(1, ms) * if slow { 20 } else { 1 }
    }

    /// Whether a fault strikes, given how often it does.
    pub(crate) fn strikes(&mut self, per_mille: u64) -> bool {
        !self.calm && self.dice.chance(per_mille)
    }

    /// The process of that life, if it lives.
    pub(crate) fn process(&mut self, who: Who) -> Option<&mut Process> {
        self.processes[who.member].as_mut().filter(|p| p.who == who)
    }

    /// Until when a process stands still, if it does.
    fn asleep(&mut self, who: Who) -> Option<u64> {
        let now = self.clock;
        self.process(who).map(|p| p.paused_until).filter(|until| *until > now)
    }

    fn arrive(&mut self, thing: Thing) {
        let inside = match &thing {
            Thing::Event(who, _)
            | Thing::Tick(who)
            | Thing::Answer(who, ..)
            | Thing::Fetch(who, ..)
            | Thing::Positions(who, ..)
            | Thing::Transformed(who, ..)
            | Thing::GroupMessage(who, ..)
            | Thing::GroupLost(who, ..)
            | Thing::Connect(who) => Some(*who),
            _ => None,
        };
        // what happens inside a process waits while it stands still
        if let Some(until) = inside.and_then(|who| self.asleep(who)) {
            let ms = until - self.clock;
            return self.later(ms, thing);
        }
        match thing {
            Thing::Boot(member) => self.boot(member),
            Thing::Connect(who) => self.connect(who),
            Thing::Reconnect(who) => self.reconnect(who),
            Thing::SessionEnd(session, at) => self.session_end(session, at),
            Thing::Event(who, event) => self.step(who, event),
            Thing::Tick(who) => {
                let ms = self.process(who).map(|p| p.pipeline.tick_ms());
                self.step(who, Event::Tick);
                if let Some(ms) = ms {
                    self.later(ms, Thing::Tick(who));
                }
            }
            Thing::Land(post) => self.land(post),
            Thing::Answer(who, connection, id, answer, sent) => {
                self.answer(who, connection, id, answer, sent);
            }
            Thing::Fetch(who, tp, feed) => self.fetched(who, &tp, feed),
            Thing::Positions(who, list) => self.positions(who, &list),
            Thing::Transformed(who, batch, session) => self.transformed(who, batch, session),
            Thing::SinkLand(shipment) => self.sink_land(&shipment),
            Thing::GroupTurn => self.group_turn(),
            Thing::GroupMessage(who, joined, message) => {
                if self.process(who).is_some_and(|p| p.joined == joined) {
                    let event = match message {
                        Message::Assigned(list) => {
                            if let Some(p) = self.process(who) {
                                p.given_back.retain(|tp| !list.contains(tp));
                            }
                            Event::Assigned(list)
                        }
                        Message::Revoked(list) => Event::Revoked(list),
                    };
                    self.step(who, event);
                }
            }
            Thing::GroupLost(who, joined, list) => {
                if self.process(who).is_some_and(|p| p.joined == joined) {
                    if !list.is_empty() {
                        self.step(who, Event::Lost(list));
                    }
                    // the client joins anew by itself
                    if self.process(who).is_some_and(|p| p.joined == joined) {
                        let ms = self.takes(self.plan.group_ms);
                        self.later(ms, Thing::GroupJoin(who, joined));
                    }
                }
            }
            Thing::GroupJoin(who, joined) => {
                if self.process(who).is_some_and(|p| p.joined == joined) {
                    self.group.join(who);
                }
            }
            Thing::GroupAnswer(who, None) => self.group.assign_answered(who),
            Thing::GroupAnswer(who, Some(list)) => self.group.revoke_answered(who, &list),
            Thing::GroupGone(who) => {
                self.group.remove(who);
            }
            Thing::Chaos => self.chaos(),
            Thing::Produce => self.produce(),
            Thing::Look => self.look(),
        }
    }

    fn boot(&mut self, member: usize) {
        if self.processes[member].is_some() || self.stopping || self.done[member] {
            return;
        }
        self.lives[member] += 1;
        let who = Who { member, life: self.lives[member] };
        let seed = self.dice.next();
        let plugin = self.plugin;
        self.log(format_args!("{who} starts, plugin {plugin}"));
        self.processes[member] = Some(Process::new(who, &self.plan, seed, plugin));
        let ready = self.dice.range(1, 200);
        self.later(ready, Thing::Event(who, Event::Start));
        let connect = self.dice.range(1, 200);
        self.later(connect, Thing::Connect(who));
        self.later(1, Thing::Tick(who));
    }

    fn group_turn(&mut self) {
        for who in self.group.late(self.clock) {
            self.log(format_args!("{who} is expelled, no answer to a rebalance"));
            self.expel(who);
        }
        let until = self.clock + self.plan.rebalance_ms;
        for (who, message) in self.group.turn(&mut self.dice, until) {
            let joined = self.process(who).map_or(0, |p| p.joined);
            let ms = self.takes(self.plan.group_ms);
            self.later(ms, Thing::GroupMessage(who, joined, message));
        }
        let ms = self.takes(self.plan.group_ms);
        self.later(ms, Thing::GroupTurn);
    }

    /// The coordinator takes a process for gone; it learns that late.
    pub(crate) fn expel(&mut self, who: Who) {
        let Some(list) = self.group.remove(who) else { return };
        let joined = self.process(who).map_or(0, |p| p.joined);
        let ms = self.dice.range(1, self.plan.lost_ms);
        self.later(ms, Thing::GroupLost(who, joined, list));
    }

    fn produce(&mut self) {
        let last = self.plan.faults_ms;
        let (clock, dice) = (self.clock, &mut self.dice);
        for log in &mut self.logs {
            let more = dice.range(0, 6) as i64;
            log.end = if clock >= last { log.last() } else { (log.end + more).min(log.last()) };
        }
        if self.clock <= last {
            self.later(50, Thing::Produce);
        }
    }

    /// One event for one engine, and all that it wants done about it.
    pub(crate) fn step(&mut self, who: Who, event: Event) {
        let now = Now { at: Instant(1_000 + self.clock), wall_ms: 1_700_000_000_000 + self.clock };
        if self.process(who).is_none() {
            return;
        }
        self.steps += 1;
        if !matches!(event, Event::Tick) {
            self.log(format_args!("{who} <- {}", crate::text::event(&event)));
        }
        if matches!(event, Event::StoreExpired)
            && let Some(p) = self.process(who)
        {
            p.requests.clear();
        }
        let mut effects = Vec::new();
        if let Some(p) = self.process(who) {
            p.pipeline.step(now, event, &mut effects);
        }
        for effect in effects {
            self.log(format_args!("{who} -> {}", crate::text::effect(&effect)));
            self.perform(who, effect);
        }
        let limits = self.plan.limits.clone();
        let verdict = self.process(who).map(|p| crate::check::bounded(p, &limits));
        if let Some(verdict) = verdict {
            self.judge("bounded", verdict);
        }
        let finished = self.process(who).and_then(|p| p.finished.take());
        if let Some(result) = finished {
            self.end(who, &result);
        }
    }

    fn end(&mut self, who: Who, result: &Result<(), String>) {
        self.log(format_args!("{who} has ended: {result:?}"));
        let process = self.processes[who.member].take();
        let session = process.as_ref().and_then(|p| p.session);
        let left_group = process.as_ref().map_or(0, |p| p.joined);
        let entered = process.as_ref().is_some_and(|p| p.pipeline.snapshot().run > Run(0));
        if let Some(process) = process {
            self.cut_lanes(&process, 0);
            if let Some(session) = process.session {
                self.store.end_session(session);
            }
            self.group.remove(who);
        }
        // who was never in a run leaves none
        if entered {
            self.checks.ended(result);
        }
        // who had to leave the group before, blind to the store, could release nothing then
        let stalled = left_group > 1;
        if self.calm && result.is_ok() && !stalled {
            let left = self.store.unreleased().find(|(_, c)| Some(c.owner.session) == session);
            let left = left.map(|(tp, _)| tp.to_string());
            self.judge(
                "runs",
                left.map_or(Ok(()), |tp| Err(format!("{who} ended in order and has not released {tp}"))),
            );
        }
        self.done[who.member] = self.plan.until_end && result.is_ok() && !self.checks.asked_to_stop.contains(&who);
        let ms = self.dice.range(1, 2_000);
        self.later(ms, Thing::Boot(who.member));
    }

    /// What a process has not sent when it ends or dies does not land; `ms` is how late the rest may.
    pub(crate) fn cut_lanes(&mut self, process: &Process, ms: u64) {
        let until = self.clock + ms;
        let mut lanes: Vec<_> = process.readers.values().map(|r| r.lane).collect();
        lanes.extend(process.batches.values().map(|b| b.lane));
        for lane in lanes {
            let lane = &mut self.lanes[usize::try_from(lane).expect("an index of the list")];
            lane.cut_at = Some(lane.cut_at.map_or(until, |at| at.min(until)));
        }
    }
}

/// The partition of that number.
pub(crate) fn partition(number: usize) -> TopicPartition {
    TopicPartition::new("t", i32::try_from(number).expect("a small number"))
}

/// The number of a partition.
pub(crate) fn number(tp: &TopicPartition) -> usize {
    usize::try_from(tp.partition).expect("not negative")
}
