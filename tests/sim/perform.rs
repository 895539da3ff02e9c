//! What the driver would do: every effect of an engine, performed on the fakes.

use kiteline_engine::{
    effect::{Effect, Notice},
    event::Event,
    ids::{BatchId, FeedId, MemberId, Revision, TopicPartition},
    store::MemberRecord,
};

use crate::{
    process::{Held, Reader, Who, host},
    sink::{Landing, Lane, Write},
    things::{Shipment, Thing},
    world::{World, number},
};

impl World {
    /// Performs one effect.
    pub(crate) fn perform(&mut self, who: Who, effect: Effect) {
        match effect {
            Effect::Store(id, request) => self.send(who, id, request),
            Effect::Probe(member, record) => self.probe(who, member, &record),
            Effect::JoinGroup => {
                let joined = self.process(who).map_or(0, |p| p.joined);
                let ms = self.takes(self.plan.group_ms);
                self.later(ms, Thing::GroupJoin(who, joined));
            }
            Effect::LeaveGroup => {
                if let Some(p) = self.process(who) {
                    p.joined += 1;
                }
                self.group.remove(who);
            }
            Effect::AnswerAssign(_) => {
                let ms = self.takes(self.plan.group_ms);
                self.later(ms, Thing::GroupAnswer(who, None));
            }
            Effect::AnswerRevoke(list) => {
                if let Some(p) = self.process(who) {
                    p.given_back.extend(list.iter().cloned());
                }
                let ms = self.takes(self.plan.group_ms);
                self.later(ms, Thing::GroupAnswer(who, Some(list)));
            }
            Effect::AskPositions(list) => {
                let takes = self.takes(self.plan.fetch_ms);
                let clock = self.clock;
                let Some(p) = self.process(who) else { return };
                // one question after the other
                p.positions_at = p.positions_at.max(clock) + takes;
                let ms = p.positions_at - clock;
                self.later(ms, Thing::Positions(who, list));
            }
            Effect::Feed(tp, feed, from) => self.feed(who, tp, feed, from),
            Effect::Fetch(tp, feed, count) => {
                if let Some(reader) = self.process(who).and_then(|p| p.readers.get_mut(&tp))
                    && reader.feed == feed
                {
                    reader.credit += count;
                    self.kick(who, &tp);
                }
            }
            Effect::StopFeeding(tp) => {
                if let Some(p) = self.process(who) {
                    p.readers.remove(&tp);
                }
            }
            Effect::Transform(batch, _, revision) => self.transform(who, batch, revision),
            Effect::Sink(batch) => self.sink(who, batch),
            Effect::DeadLetter(batch) => self.dead_letter(who, batch),
            Effect::Forget(batch) => self.forget(who, batch),
            Effect::Live { token, revision } => {
                if let Some(p) = self.process(who) {
                    p.live.insert(revision, token);
                }
                self.judge_live(who, token, revision);
            }
            Effect::Flush(_) | Effect::Mirror(_) => {}
            Effect::Notice(notice) => self.notice(who, notice),
            Effect::Finished(result) => {
                if let Some(p) = self.process(who) {
                    p.finished = Some(result);
                }
            }
        }
    }

    fn probe(&mut self, who: Who, member: MemberId, record: &MemberRecord) {
        let lives = self.processes.iter().flatten().any(|p| {
            kiteline_engine::ids::MemberId(format!("m{}", p.who.member).into()) == member && p.who.life == record.pid
        });
        let gone = record.host == host(&self.plan, who.member) && !lives;
        let session = record.session;
        let ms = self.dice.range(1, 20);
        self.later(ms, Thing::Event(who, Event::Probed { member, session, gone }));
    }

    /// The log tells its range as it is when the question arrives; the answer may come late, but not before an older one.
    pub(crate) fn positions(&mut self, who: Who, list: &[TopicPartition]) {
        let fails = self.strikes(self.plan.faults.positions_fail);
        let told = list
            .iter()
            .map(|tp| {
                let log = if fails { Err("leader not available".into()) } else { Ok(self.logs[number(tp)].range()) };
                (tp.clone(), log)
            })
            .collect();
        let takes = self.takes(self.plan.fetch_ms);
        let clock = self.clock;
        let Some(p) = self.process(who) else { return };
        p.told_at = p.told_at.max(clock + takes);
        let ms = p.told_at - clock;
        self.later(ms, Thing::Event(who, Event::Positions(told)));
    }

    fn feed(&mut self, who: Who, tp: TopicPartition, feed: FeedId, from: i64) {
        self.judge_feed(who, &tp, from);
        let lane = self.lanes.len() as u64;
        self.lanes.push(Lane::default());
        if let Some(p) = self.process(who) {
            p.readers.insert(tp, Reader { feed, position: from, credit: 0, busy: false, lane });
        }
    }

    fn kick(&mut self, who: Who, tp: &TopicPartition) {
        let ms = self.takes(self.plan.fetch_ms);
        let Some(reader) = self.process(who).and_then(|p| p.readers.get_mut(tp)) else { return };
        if reader.credit > 0 && !reader.busy {
            reader.busy = true;
            let feed = reader.feed;
            self.later(ms, Thing::Fetch(who, tp.clone(), feed));
        }
    }

    /// A fetch ends: with a batch, with nothing yet, or beside the log.
    pub(crate) fn fetched(&mut self, who: Who, tp: &TopicPartition, feed: FeedId) {
        let Some(p) = self.processes[who.member].as_mut().filter(|p| p.who == who) else { return };
        let Some(reader) = p.readers.get_mut(tp).filter(|r| r.feed == feed) else { return };
        let log = &self.logs[number(tp)];
        if reader.position < log.start || reader.position > log.end {
            let event = Event::OutOfRange { partition: tp.clone(), feed };
            return self.later(1, Thing::Event(who, event));
        }
        let max = self.plan.limits.batch_records_max;
        let Some((range, records)) = log.take(&mut self.dice, reader.position, max) else {
            return self.later(40, Thing::Fetch(who, tp.clone(), feed));
        };
        reader.position = range.until;
        reader.credit -= 1;
        reader.busy = false;
        p.last_batch += 1;
        let batch = BatchId(p.last_batch);
        let count = u32::try_from(records.len()).expect("a small number");
        p.batches.insert(
            batch,
            Held {
                tp: tp.clone(),
                feed,
                records,
                lane: reader.lane,
                sinking: false,
                transforming: false,
                revision: Revision(0),
            },
        );
        let event = Event::Fetched { partition: tp.clone(), feed, batch, range, records: count };
        self.later(0, Thing::Event(who, event));
        self.kick(who, tp);
    }

    fn transform(&mut self, who: Who, batch: BatchId, revision: Revision) {
        let ms = self.takes(self.plan.transform_ms);
        let faults = self.plan.faults.clone();
        let (waits, fails) = (self.strikes(faults.decode_wait), self.strikes(faults.transform_fail));
        let Some(p) = self.process(who) else { return };
        let session = p.session.unwrap_or(0);
        if !p.live.contains_key(&revision) {
            return self.fail("revision", format!("{who} has no plugin for revision {}", revision.0));
        }
        let Some(held) = p.batches.get_mut(&batch) else {
            return self.fail("order", format!("batch {} is not held any more", batch.0));
        };
        held.transforming = true;
        let message = "not now".into();
        if waits {
            held.transforming = false;
            return self.later(ms, Thing::Event(who, Event::DecodeWaits { batch, message }));
        }
        if fails {
            return self.later(ms, Thing::Event(who, Event::TransformFailed { batch, message }));
        }
        held.revision = revision;
        self.later(ms, Thing::Transformed(who, batch, session));
    }

    /// A plugin has answered for a batch.
    pub(crate) fn transformed(&mut self, who: Who, batch: BatchId, session: i64) {
        let Some(p) = self.process(who) else { return };
        let Some(held) = p.batches.get_mut(&batch) else {
            // dropped meanwhile; the worker's answer comes nevertheless
            return self.step(who, Event::Transformed { batch, writes: 1, stop: None });
        };
        held.transforming = false;
        let (tp, records, revision) = (held.tp.clone(), held.records.clone(), held.revision);
        let ledger = &mut self.ledgers[number(&tp)];
        let mut writes = 0;
        for offset in records {
            ledger.handled(offset, session, revision);
            let fate = ledger.fate(offset);
            writes += u32::from(fate.outputs) + u32::from(fate.rejected);
        }
        self.step(who, Event::Transformed { batch, writes, stop: None });
    }

    fn sink(&mut self, who: Who, batch: BatchId) {
        self.judge_sink(who, batch);
        let faults = self.plan.faults.clone();
        let (none, some, all) =
            (self.strikes(faults.sink_fail), self.strikes(faults.sink_partial), self.strikes(faults.sink_landed));
        let Some(p) = self.process(who) else { return };
        let Some(held) = p.batches.get_mut(&batch) else {
            return self.fail("order", format!("batch {} is not held any more", batch.0));
        };
        held.sinking = true;
        let (tp, lane, records) = (held.tp.clone(), held.lane, held.records.clone());
        let ledger = &self.ledgers[number(&tp)];
        let mut writes = Vec::new();
        let mut refused = false;
        for offset in records {
            let fate = ledger.fate(offset);
            refused |= fate.refused;
            writes.extend((0..fate.wanted()).map(|n| Write::Output(offset, n)));
            writes.extend(fate.rejected.then_some(Write::DeadLetter(offset)));
        }
        let landing = match (none, some, all) {
            (true, ..) => Landing::Failed(0),
            (_, true, _) => {
                let count = self.dice.range(0, writes.len() as u64);
                Landing::Failed(usize::try_from(count).expect("a small number"))
            }
            (.., true) => Landing::Failed(writes.len()),
            _ if refused => Landing::Refused,
            _ => Landing::Acknowledged,
        };
        let takes = self.takes(self.plan.sink_ms);
        let clock = self.clock;
        let way = &mut self.lanes[usize::try_from(lane).expect("an index of the list")];
        way.last_at = way.last_at.max(clock) + takes;
        let ms = way.last_at - clock;
        self.later(ms, Thing::SinkLand(Shipment { who, batch, tp, lane, writes, landing }));
        if self.mutation.acknowledges_early() {
            self.later(0, Thing::Event(who, Event::Acknowledged(batch)));
        }
    }

    fn dead_letter(&mut self, who: Who, batch: BatchId) {
        let fails = self.strikes(self.plan.faults.dead_letter_fail);
        let Some(held) = self.process(who).and_then(|p| p.batches.get(&batch)) else {
            return self.fail("order", format!("batch {} is not held any more", batch.0));
        };
        let (tp, records) = (held.tp.clone(), held.records.clone());
        let ledger = &self.ledgers[number(&tp)];
        let refused = records.into_iter().filter(|o| ledger.fate(*o).refused);
        let writes: Vec<_> = refused.map(Write::DeadLetter).collect();
        let landing = if fails { Landing::Failed(writes.len() / 2) } else { Landing::Acknowledged };
        // dead letters have a way of their own for each batch
        let lane = self.lanes.len() as u64;
        self.lanes.push(Lane::default());
        let ms = self.takes(self.plan.sink_ms);
        self.later(ms, Thing::SinkLand(Shipment { who, batch, tp, lane, writes, landing }));
    }

    /// Writes reach the sink, and that is said, late.
    pub(crate) fn sink_land(&mut self, shipment: &Shipment) {
        let Shipment { who, batch, ref tp, lane, ref writes, landing } = *shipment;
        let clock = self.clock;
        let way = &mut self.lanes[usize::try_from(lane).expect("an index of the list")];
        let open = way.open(clock);
        let count = match landing {
            _ if !open => 0,
            Landing::Failed(count) => count,
            Landing::Acknowledged | Landing::Refused => writes.len(),
        };
        way.broken |= !open || matches!(landing, Landing::Failed(_));
        self.log(format_args!("sink: {who} batch {} of {tp}, {count} of {} land", batch.0, writes.len()));
        for write in &writes[..count] {
            let ledger = &mut self.ledgers[number(tp)];
            let verdict = match write {
                Write::Output(offset, n) => ledger.landed(*offset, *n),
                Write::DeadLetter(offset) => {
                    ledger.dead_lettered(*offset);
                    Ok(())
                }
            };
            self.judge("order", verdict.map_err(|e| format!("{tp}: {e}")));
        }
        let event = match landing {
            Landing::Acknowledged if open => Event::Acknowledged(batch),
            Landing::Refused if open => Event::SinkRefused(batch),
            _ => Event::SinkFailed { batch, message: "time-out".into() },
        };
        let ms = self.takes(self.plan.sink_ms);
        self.later(ms, Thing::Event(who, event));
    }

    /// A batch is done, or dropped: then what has not left the process does not land.
    fn forget(&mut self, who: Who, batch: BatchId) {
        let wire = if self.dice.chance(500) { 0 } else { self.dice.range(1, 100) };
        let clock = self.clock;
        let Some(held) = self.process(who).and_then(|p| p.batches.remove(&batch)) else {
            return self.fail("bounded", format!("batch {} was forgotten before", batch.0));
        };
        let fed = self.process(who).and_then(|p| p.readers.get(&held.tp)).is_some_and(|r| r.lane == held.lane);
        if held.sinking && !fed {
            let way = &mut self.lanes[usize::try_from(held.lane).expect("an index of the list")];
            way.cut_at.get_or_insert(clock + wire);
        }
    }

    fn notice(&mut self, who: Who, notice: Notice) {
        match notice {
            Notice::PositionLost { partition, wanted, log, resumed_at, .. } => {
                let range = self.logs[number(&partition)].range();
                if (range.start..=range.end).contains(&wanted) {
                    self.fail("regress", format!("{who} takes offset {wanted} of {partition} for lost, but the log has {}..{} (was told {log:?})", range.start, range.end));
                }
                if let Some(to) = resumed_at {
                    self.ledgers[number(&partition)].excuse(wanted, to);
                }
            }
            Notice::RunLeft(_, closed) => self.checks.last_closed = closed,
            Notice::Fenced(tp) => {
                self.mutation.fenced(who, &tp);
                self.judge_fenced(who, &tp);
            }
            _ => {}
        }
    }
}
