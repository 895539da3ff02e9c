//! The way to the store and back: sessions, connections, and everything that can get lost or late on it.

use kiteline_engine::{
    event::Event,
    ids::{Instant, RequestId},
    store::{StoreAnswer, StoreRequest},
};

use crate::{
    process::Who,
    things::{Post, Thing},
    world::World,
};

impl World {
    /// A process gets a new session, if it can reach the store and has none.
    pub(crate) fn connect(&mut self, who: Who) {
        let timeout_ms = self.plan.session_ms;
        let Some(p) = self.processes[who.member].as_mut().filter(|p| p.who == who) else { return };
        if !p.connected || p.session.is_some() {
            return;
        }
        let session = self.store.open_session();
        p.session = Some(session);
        self.step(who, Event::StoreSession { session, timeout_ms });
    }

    /// The way is cut; the store ends the session if this lasts too long.
    pub(crate) fn disconnect(&mut self, who: Who, ms: u64) {
        let Some(p) = self.process(who) else { return };
        if !p.connected {
            return;
        }
        p.connected = false;
        p.connection += 1;
        let session = p.session;
        self.log(format_args!("{who} is cut off the store for {ms} ms"));
        self.silent(session);
        self.later(ms, Thing::Reconnect(who));
    }

    /// The store hears nothing of a session's client from now on.
    pub(crate) fn silent(&mut self, session: Option<i64>) {
        let ends_at = self.clock + self.plan.session_ms;
        if let Some(id) = session
            && let Some(session) = self.store.sessions.get_mut(&id)
            && session.ends_at.is_none()
        {
            session.ends_at = Some(ends_at);
            self.later(self.plan.session_ms, Thing::SessionEnd(id, ends_at));
        }
    }

    /// The store hears of a session's client again.
    pub(crate) fn heard(&mut self, session: Option<i64>) {
        if let Some(session) = session.and_then(|id| self.store.sessions.get_mut(&id)) {
            session.ends_at = None;
        }
    }

    /// The way is free again: on with the session, or to a new one.
    pub(crate) fn reconnect(&mut self, who: Who) {
        let Some(p) = self.process(who) else { return };
        p.connected = true;
        let (session, paused) = (p.session, p.paused_until);
        if paused > self.clock {
            let ms = paused - self.clock;
            return self.later(ms, Thing::Reconnect(who));
        }
        match session {
            Some(id) if self.store.alive(id) => self.heard(session),
            _ => self.expired(who),
        }
    }

    /// A process learns that its session is over, and asks for a new one.
    pub(crate) fn expired(&mut self, who: Who) {
        let Some(p) = self.process(who) else { return };
        p.connection += 1;
        if p.session.take().is_some() {
            self.step(who, Event::StoreExpired);
        }
        let ms = self.dice.range(1, 200);
        self.later(ms, Thing::Connect(who));
    }

    /// The store has waited for a client long enough.
    pub(crate) fn session_end(&mut self, session: i64, at: u64) {
        if self.store.sessions.get(&session).is_some_and(|s| s.alive && s.ends_at == Some(at)) {
            self.log(format_args!("session {session} has expired"));
            self.store.end_session(session);
        }
    }

    /// A process asks the store.
    pub(crate) fn send(&mut self, who: Who, id: RequestId, request: StoreRequest) {
        let request = self.mutation.outgoing(who, id, request);
        let (faults, store_ms, now) = (self.plan.faults.clone(), self.plan.store_ms, self.clock);
        let Some(p) = self.process(who) else { return };
        p.requests.insert(id);
        let (connected, connection) = (p.connected, p.connection);
        let Some(session) = p.session.filter(|_| connected) else {
            let ms = self.dice.range(1, 50);
            return self.later(ms, Thing::Answer(who, connection, id, StoreAnswer::Unknown, now));
        };
        let post = |told| Post { who, session, connection, id, request: request.clone(), sent: now, told };
        let unknown = Thing::Answer(who, connection, id, StoreAnswer::Unknown, now);
        let way = self.takes(store_ms);
        if self.strikes(faults.request_lost) {
            let ms = self.dice.range(1, 300);
            self.later(ms, unknown);
        } else if self.strikes(faults.answer_lost) {
            self.later(way, Thing::Land(post(false)));
            let ms = way + self.dice.range(0, 300);
            self.later(ms, unknown);
        } else if self.strikes(faults.request_delayed) {
            self.later(way, unknown);
            let ms = way + self.dice.range(0, 1_000);
            self.later(ms, Thing::Land(post(false)));
        } else {
            self.later(way, Thing::Land(post(true)));
        }
    }

    /// A request reaches the store, unless it went down with its connection or its session.
    pub(crate) fn land(&mut self, post: Post) {
        let Post { who, session, connection, id, request, sent, told } = post;
        let broken = self.process(who).is_none_or(|p| p.connection != connection);
        let lost = broken && self.dice.chance(500);
        let mut answer = StoreAnswer::Unknown;
        if !lost && self.store.alive(session) {
            let (said, changes) = self.store.apply(session, &request);
            if matches!(request, StoreRequest::Multi(_)) {
                self.log(format_args!(
                    "store: {who} {} {}: {}",
                    id.0,
                    crate::text::request(&request),
                    crate::text::answer(&said)
                ));
            }
            for change in &changes {
                crate::check::on_change(self, session, &request, change);
            }
            answer = said;
        }
        if told {
            let ms = self.takes(self.plan.store_ms);
            self.later(ms, Thing::Answer(who, connection, id, answer, sent));
        }
    }

    /// An answer reaches its process, unless the connection is another one by now.
    pub(crate) fn answer(&mut self, who: Who, connection: u32, id: RequestId, answer: StoreAnswer, sent: u64) {
        let Some(p) = self.process(who) else { return };
        let answer = if p.connection == connection { answer } else { StoreAnswer::Unknown };
        p.requests.remove(&id);
        let answer = self.mutation.heard(who, id, answer);
        if let Some(answer) = answer {
            self.step(who, Event::StoreAnswer { request: id, answer, sent: Instant(1_000 + sent) });
        }
    }
}
