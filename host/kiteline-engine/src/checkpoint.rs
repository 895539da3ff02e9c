//! Claim and commit of one partition: who may write, how far, and what an unclear answer meant.
//!
//! The rules are those of the checkpoint protocol: a claim is one versioned write under a nonce drawn for it; a commit is a
//! versioned write under the claim's nonce and a rising sequence number; whatever was refused or not answered is read back.

use crate::{
    ids::{Generation, Instant, Mark, MemberId, Nonce, Revision, Run, TopicPartition},
    store::{Checkpoint, Extra, Found, Key, Node, Op, Owner, PluginPosition, Position, TopicIdentity, Why},
};

/// What this member holds of a partition that it has claimed.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    /// Nonce of the claim; everything asked for under another one is void.
    pub(crate) nonce: Nonce,
    /// Version of the node after our last write.
    pub(crate) version: i32,
    /// Content after our last write that is known to have taken effect.
    pub(crate) stored: Checkpoint,
    /// Sequence number of the last write that was sent, taken effect or not.
    pub(crate) seq: u64,
    /// Which topic the position belongs to, as the broker says now; written with the next commit.
    pub(crate) topic: TopicIdentity,
}

/// Under whose name a claim is made.
#[derive(Clone, Debug)]
pub(crate) struct Claimant<'a> {
    /// Name of the member.
    pub(crate) member: &'a MemberId,
    /// Its store session.
    pub(crate) session: i64,
    /// Run that it works in.
    pub(crate) run: Run,
    /// Revision that will work from here on.
    pub(crate) revision: Revision,
    /// Start table of the run.
    pub(crate) start: &'a [(TopicPartition, i64)],
    /// Time for people.
    pub(crate) wall_ms: u64,
}

/// The checkpoint that a claim writes over `former` (none: the first one of the partition).
///
/// Position stays as it is, but for one thing: a start table of a later run than the position's moves it, once, in the same write.
pub(crate) fn claimed(tp: &TopicPartition, former: Option<&Checkpoint>, nonce: Nonce, by: &Claimant<'_>) -> Checkpoint {
    let generation = Generation(former.map_or(0, |c| c.owner.generation.0) + 1);
    let owner = Owner { generation, nonce, member: by.member.clone(), session: by.session, released: false };
    let table = by.start.iter().find(|(p, _)| p == tp).map(|(_, offset)| *offset);
    let mark = Mark { run: by.run, generation, seq: 0 };
    let at_ms = by.wall_ms;
    let position = match (former, table) {
        (None, Some(next_offset)) => Position { next_offset, mark, why: Why::First, at_ms },
        (None, None) => Position { next_offset: 0, mark, why: Why::First, at_ms },
        (Some(c), Some(next_offset)) if c.position.mark.run < by.run => {
            Position { next_offset, mark, why: Why::Reset, at_ms }
        }
        (Some(c), _) => c.position.clone(),
    };
    let plugin = match former {
        Some(c) if c.plugin.revision == by.revision => c.plugin,
        _ => PluginPosition { revision: by.revision, since: position.next_offset },
    };
    Checkpoint {
        owner,
        position,
        topic: former.map_or_else(TopicIdentity::default, |c| c.topic.clone()),
        plugin,
        extra: former.map_or_else(Extra::default, |c| c.extra.clone()),
    }
}

/// What a commit is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// First offset that is not complete, at most the low-water mark.
    pub(crate) next_offset: i64,
    /// Which code did the records below it.
    pub(crate) plugin: PluginPosition,
    /// Whether the partition is given back with it.
    pub(crate) released: bool,
    /// Whether a lost position is set by policy: the only way in which it may go back.
    pub(crate) moved: bool,
}

impl Wanted {
    /// Puts it into a checkpoint, as write `seq` of its generation.
    pub(crate) fn apply(&self, content: &mut Checkpoint, run: Run, seq: u64, topic: &TopicIdentity, wall_ms: u64) {
        // the mark numbers every write, so that reading back can tell this one from the last
        content.position.mark = Mark { run, generation: content.owner.generation, seq };
        if self.moved || self.next_offset > content.position.next_offset {
            content.position.next_offset = self.next_offset;
            content.position.why = if self.moved { Why::Lost } else { Why::Commit };
            content.position.at_ms = wall_ms;
        }
        content.topic = topic.clone();
        content.plugin = self.plugin;
        content.owner.released = self.released;
    }
}

impl Owned {
    /// The write that says `wanted`, numbered. Panics if it would go back: a wrong checkpoint cannot be repaired, a stopped pipeline can.
    pub(crate) fn commit(&mut self, tp: &TopicPartition, run: Run, wanted: &Wanted, wall_ms: u64) -> Op {
        assert!(
            wanted.moved || wanted.next_offset >= self.stored.position.next_offset,
            "a commit of {tp} must not go back from {} to {}",
            self.stored.position.next_offset,
            wanted.next_offset
        );
        self.seq += 1;
        let mut content = self.stored.clone();
        wanted.apply(&mut content, run, self.seq, &self.topic, wall_ms);
        Op::Set(Key::Partition(tp.clone()), Node::Checkpoint(content), self.version)
    }

    /// Takes a write for done.
    pub(crate) fn took_effect(&mut self, content: Checkpoint, version: i32) {
        assert!(
            content.position.why == Why::Lost || content.position.next_offset >= self.stored.position.next_offset,
            "a stored checkpoint never goes back"
        );
        self.stored = content;
        self.version = version;
    }
}

/// What reading back says about a write under `nonce` with number `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is there, or a later one of ours: the content and its version.
    Done(Checkpoint, i32),
    /// An older write of ours is there: send again, at this version.
    Again(Checkpoint, i32),
    /// Another claim is there.
    Fenced,
    /// Nothing that can be trusted is there.
    Unreadable(String),
}

/// Judges what was read back. Never concludes from the refusal itself.
pub(crate) fn judge(found: &Found, nonce: Nonce, seq: u64) -> Verdict {
    match found {
        Found::Node(Node::Checkpoint(c), version) if c.owner.nonce == nonce => {
            if c.position.mark.generation == c.owner.generation && c.position.mark.seq >= seq {
                Verdict::Done(c.clone(), *version)
            } else {
                Verdict::Again(c.clone(), *version)
            }
        }
        Found::Node(_, _) => Verdict::Fenced,
        Found::Unreadable(why, _) => Verdict::Unreadable(why.clone()),
        Found::Absent => Verdict::Unreadable("the checkpoint node is gone".into()),
    }
}

/// A claim's write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// What it says, its nonce with it.
    pub(crate) content: Checkpoint,
    /// Whom it takes over by force, if so.
    pub(crate) forced: Option<MemberId>,
}

/// Step of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Reading run head and partition.
    Read,
    /// The former owner has not released: looking whether its member node is there.
    ReadOwner(Box<(Checkpoint, i32)>),
    /// It is. Wait for its release or its end; look again then.
    Wait(Instant),
    /// The write is on its way.
    Write(Box<Written>),
    /// The answer was unclear: reading back, again at that moment if nothing is heard of it.
    ReadBack(Box<Written>, Option<Instant>),
}
