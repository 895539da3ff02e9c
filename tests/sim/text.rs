//! Short lines for the trace.

use kiteline_engine::{
    effect::Effect,
    event::Event,
    store::{Found, Key, Node, Op, StoreAnswer, StoreRequest},
};

/// An event in one line.
pub(crate) fn event(event: &Event) -> String {
    match event {
        Event::StoreAnswer { request, answer: a, sent } => {
            format!("answer {} sent {}: {}", request.0, sent.0, answer(a))
        }
        other => format!("{other:?}"),
    }
}

/// An effect in one line.
pub(crate) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Store(id, r) => format!("ask {}: {}", id.0, request(r)),
        other => format!("{other:?}"),
    }
}

/// A request in one line.
pub(crate) fn request(request: &StoreRequest) -> String {
    match request {
        StoreRequest::Read(keys) => format!("read {}", keys.iter().map(key).collect::<Vec<_>>().join(" ")),
        StoreRequest::Members => "members".into(),
        StoreRequest::Checkpoints => "checkpoints".into(),
        StoreRequest::Multi(ops) => ops.iter().map(op).collect::<Vec<_>>().join(" + "),
    }
}

/// An answer in one line.
pub(crate) fn answer(answer: &StoreAnswer) -> String {
    match answer {
        StoreAnswer::Nodes(found) => found.iter().map(found_text).collect::<Vec<_>>().join(", "),
        StoreAnswer::Members(list) => {
            let members = list.iter().map(|(id, r, v)| format!("{id}@{v} session {} run {}", r.session, r.run.0));
            format!("members {}", members.collect::<Vec<_>>().join(", "))
        }
        StoreAnswer::Checkpoints(list) => {
            let all = list.iter().map(|(_, f)| found_text(f));
            format!("checkpoints {}", all.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn op(op: &Op) -> String {
    match op {
        Op::Check(k, v) => format!("check {}@{v}", key(k)),
        Op::Create(k, n) => format!("create {} {}", key(k), node(n)),
        Op::Set(k, n, v) => format!("set {}@{v} {}", key(k), node(n)),
        Op::Delete(k, v) => format!("delete {}@{v}", key(k)),
    }
}

fn key(key: &Key) -> String {
    match key {
        Key::Partition(tp) => tp.to_string(),
        Key::Run(run) => format!("run {}", run.0),
        Key::Member(id) => id.to_string(),
        Key::Revision(r) => format!("revision {}", r.0),
        Key::Audit(at, _) => format!("audit {at}"),
        other => format!("{other:?}"),
    }
}

fn node(node: &Node) -> String {
    match node {
        Node::Checkpoint(c) => format!(
            "[{} g{} {} s{}{} {:?}:{} r{} since {}]",
            c.position.next_offset,
            c.owner.generation.0,
            &c.owner.nonce.to_string()[..4],
            c.owner.session,
            if c.owner.released { " released" } else { "" },
            c.position.why,
            c.position.mark.seq,
            c.plugin.revision.0,
            c.plugin.since
        ),
        Node::RunHead(h) => format!("[run {} {:?}]", h.run.0, h.state),
        Node::Run(r) => format!("[{:?} {}]", r.state, r.reason),
        Node::Members(m) => format!("[{}]", m.changes),
        Node::Member(m) => format!("[session {} run {} pid {}]", m.session, m.run.0, m.pid),
        Node::Desired(d) => format!("[revision {}]", d.live.0),
        Node::Revision(r) => format!("[{}]", r.digest),
        Node::Descriptor(_) | Node::Audit(_) => "[..]".into(),
    }
}

fn found_text(found: &Found) -> String {
    match found {
        Found::Absent => "absent".into(),
        Found::Node(n, v) => format!("{}@{v}", node(n)),
        Found::Unreadable(why, _) => format!("unreadable {why}"),
    }
}
