//! The source's thread: serves the main queue, carries out commands, and takes batches from the queues of fed partitions as far
//! as there is credit. Parks when there is nothing to do; a command, or a queue that gets its first entry, wakes it.
//!
//! What librdkafka makes of an answer matters more than what it is called. **Any** incremental unassign answers a waiting
//! revocation, so while one waits, commands that would unassign are put off; what they mean for the records (nothing more of
//! that feed) holds at once. An unassign that names a partition outside the client's assignment fails as a whole, so
//! only what is held is named. This thread never pauses a partition, so no pause can be left over: what has no credit is
//! simply not read, and the client stops fetching at its own bound.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use kiteline_engine::ids::{FeedId, TopicPartition};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer},
    error::KafkaResult,
};

use super::{
    Events, Inbox, KafkaConsumer, KafkaSourceConfig, Note, SourceCommand, SourceEvent,
    batch::{Bounds, Feed, Taken},
    faults::{Fault, fault},
    give_all_back,
    positions::Asker,
};
use crate::{
    kafka_calls::{Client, Code, Event, Queue, Signal},
    kafka_health::Health,
};

/// Longest sleep. The main queue is served at least this often, far more often than `max.poll.interval.ms` asks for.
const PARK_MAX: Duration = Duration::from_millis(250);

/// Events of the main queue served before records are looked at again.
const EVENTS_AT_A_TIME: usize = 256;

/// Tag of the mirror in the group's offsets; import tells it from the offsets of other programs by it.
const MIRROR_TAG: &str = "kl1m";

/// Runs until a [`Note::Close`], then closes the client, which may take as long as librdkafka likes.
pub(super) fn run(consumer: Arc<KafkaConsumer>, inbox: Arc<Inbox>, events: Events, config: KafkaSourceConfig) {
    let client = Client::of_consumer(&consumer);
    let Some(mut main) = client.consumer_queue() else {
        return events(SourceEvent::Fatal("the client has no queue for its events".to_owned()));
    };
    let signal = Signal::for_this_thread();
    main.watch(&signal);
    let asker =
        Asker::start(Arc::clone(&consumer), client.clone(), Arc::clone(&inbox), thread::current(), Arc::clone(&events));
    let mut work = Loop {
        topics: config.topics.iter().map(|topic| Arc::from(topic.as_str())).collect(),
        bounds: Bounds { records_max: config.batch_records_max as usize, bytes_max: config.batch_bytes_max as usize },
        consumer,
        client,
        main,
        inbox,
        events,
        asker,
        feeds: BTreeMap::new(),
        held: BTreeSet::new(),
        assign_waits: false,
        revoke_waits: false,
        put_off: VecDeque::new(),
        health: Health::new(),
        fatal: false,
    };
    while work.round() {}
    work.close();
}

struct Loop {
    // Feeds hold queues and messages; everything here holds the client. The consumer itself goes last, in `close`.
    feeds: BTreeMap<TopicPartition, Feed>,
    /// What is in the client's assignment, whether it is fed or not.
    held: BTreeSet<TopicPartition>,
    /// Whether the group waits for an answer to an assignment.
    assign_waits: bool,
    /// Whether the group waits for an answer to a revocation.
    revoke_waits: bool,
    /// Commands put off until then.
    put_off: VecDeque<SourceCommand>,
    health: Health,
    fatal: bool,
    topics: Vec<Arc<str>>,
    bounds: Bounds,
    inbox: Arc<Inbox>,
    events: Events,
    asker: Asker,
    main: Queue,
    client: Client,
    consumer: Arc<KafkaConsumer>,
}

impl Loop {
    /// One round: events, commands, one batch a feed; sleeps if there was nothing. False when it is time to close.
    fn round(&mut self) -> bool {
        let mut busy = self.serve_main();
        while let Some(note) = self.inbox.pop() {
            busy = true;
            match note {
                Note::Command(command) => self.obey(command),
                Note::Probed => self.well(),
                Note::Close => return false,
            }
        }
        busy |= self.feed_all();
        if self.health.probe_due(Instant::now()) {
            self.asker.probe(&self.topics);
        }
        if !busy {
            thread::park_timeout(PARK_MAX);
        }
        true
    }

    /// Serves what the main queue has; whether there was anything.
    fn serve_main(&mut self) -> bool {
        for served in 0..EVENTS_AT_A_TIME {
            match self.main.poll(Duration::ZERO) {
                None => return served > 0,
                Some(Event::Rebalance { assign, partitions }) => self.rebalance(assign, partitions),
                Some(Event::Error { code, fatal, text }) => self.trouble(code, fatal, text),
                Some(Event::Stray { topic, partition }) => self.stray(&topic, partition),
                Some(Event::Deliveries(_) | Event::Described(_) | Event::Other) => {}
            }
        }
        true
    }

    fn rebalance(&mut self, assign: bool, partitions: Vec<(String, i32)>) {
        let partitions: Vec<TopicPartition> =
            partitions.into_iter().map(|(topic, partition)| self.named(&topic, partition)).collect();
        self.well();
        if assign {
            self.assign_waits = true;
            if partitions.is_empty() {
                self.answer_assign();
            }
            return self.tell(SourceEvent::Assigned(partitions));
        }
        self.revoke_waits = true;
        if partitions.is_empty() {
            self.answer_revoke(Vec::new());
        } else if self.consumer.assignment_lost() {
            self.tell(SourceEvent::Lost(partitions));
        } else {
            self.tell(SourceEvent::Revoked(partitions));
        }
    }

    /// The partition, its topic's name shared.
    fn named(&self, topic: &str, partition: i32) -> TopicPartition {
        match self.topics.iter().find(|known| &***known == topic) {
            Some(known) => TopicPartition::new(Arc::clone(known), partition),
            None => TopicPartition::new(topic, partition),
        }
    }

    fn trouble(&mut self, code: Code, fatal: bool, text: String) {
        let text = if text.is_empty() { code.to_string() } else { text };
        match fault(code) {
            _ if fatal => self.fatal(text),
            Fault::Terminal => self.fatal(text),
            // Errors here name no partition; those that concern one come by its own queue as well.
            Fault::End | Fault::OutOfRange => {}
            Fault::Unreadable | Fault::Passing => self.waiting(text),
        }
    }

    /// A record came by the main queue. It cannot, since queues are split off before partitions are assigned; should it ever, the
    /// feed begins anew where it stands, and nothing is skipped.
    fn stray(&mut self, topic: &str, partition: i32) {
        let partition = self.named(topic, partition);
        self.begin_anew(&partition);
    }

    /// Feeds a partition anew from where its feed stands, under the same name and with the same credit.
    fn begin_anew(&mut self, partition: &TopicPartition) {
        let Some(feed) = self.feeds.get(partition) else { return };
        let (id, from, credit) = (feed.id, feed.next(), feed.credit);
        self.obey(SourceCommand::Feed { partition: partition.clone(), feed: id, from });
        self.obey(SourceCommand::Fetch { partition: partition.clone(), feed: id, credit });
    }

    /// The client stood still for a rebalance and goes on where it believes to be. Where that is wrong, it is told.
    fn after_rebalance(&mut self) {
        let misplaced = self.feeds.iter().filter(|(_, feed)| feed.misplaced());
        let misplaced: Vec<TopicPartition> = misplaced.map(|(partition, _)| partition.clone()).collect();
        for partition in misplaced {
            self.begin_anew(&partition);
        }
    }

    fn obey(&mut self, command: SourceCommand) {
        match command {
            SourceCommand::AnswerAssign(_) => self.answer_assign(),
            SourceCommand::AnswerRevoke(partitions) => self.answer_revoke(partitions),
            SourceCommand::Fetch { partition, feed, credit } => {
                let put_off = |command: &SourceCommand| matches!(command, SourceCommand::Feed { feed: waiting, .. } if *waiting == feed);
                if let Some(fed) = self.feeds.get_mut(&partition).filter(|fed| fed.id == feed) {
                    fed.credit = fed.credit.saturating_add(credit);
                } else if self.put_off.iter().any(put_off) {
                    self.put_off.push_back(SourceCommand::Fetch { partition, feed, credit });
                }
            }
            SourceCommand::Feed { partition, feed, from } => {
                self.feeds.remove(&partition);
                self.serve_main();
                if self.revoke_waits {
                    self.put_off.push_back(SourceCommand::Feed { partition, feed, from });
                } else {
                    self.feed(partition, feed, from);
                }
            }
            SourceCommand::Stop { partition } => {
                self.feeds.remove(&partition);
                self.serve_main();
                if self.revoke_waits {
                    self.put_off.push_back(SourceCommand::Stop { partition });
                } else {
                    self.give_back(&partition);
                }
            }
            SourceCommand::Mirror(offsets) => self.mirror(&offsets),
            SourceCommand::Positions(partitions) => self.asker.positions(partitions),
        }
    }

    /// Nothing to assign is an answer, too; should a feed have answered before, this changes nothing.
    fn answer_assign(&mut self) {
        let answer = self.consumer.incremental_assign(&TopicPartitionList::new());
        self.heed("answer an assignment", answer);
        self.assign_waits = false;
        self.after_rebalance();
    }

    fn answer_revoke(&mut self, partitions: Vec<TopicPartition>) {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in &partitions {
            self.feeds.remove(partition);
            if self.held.remove(partition) {
                list.add_partition(&partition.topic, partition.partition);
            }
        }
        let mut answer = self.consumer.incremental_unassign(&list);
        if answer.is_err() && list.count() > 0 {
            // The client holds something else than we believe: what it does not hold need not be given back, but the group needs an answer.
            for partition in &partitions {
                let mut one = TopicPartitionList::with_capacity(1);
                one.add_partition(&partition.topic, partition.partition);
                let _ = self.consumer.incremental_unassign(&one);
            }
            answer = self.consumer.incremental_unassign(&TopicPartitionList::new());
        }
        self.heed("answer a revocation", answer);
        self.revoke_waits = false;
        self.after_rebalance();
        for command in std::mem::take(&mut self.put_off) {
            let given_back = match &command {
                SourceCommand::Feed { partition, .. }
                | SourceCommand::Stop { partition }
                | SourceCommand::Fetch { partition, .. } => partitions.contains(partition),
                _ => false,
            };
            if !given_back {
                self.obey(command);
            }
        }
    }

    /// Assigns one partition at a concrete offset, its queue split off before.
    fn feed(&mut self, partition: TopicPartition, id: FeedId, from: i64) {
        if self.fatal {
            return;
        }
        if self.assign_waits {
            // To assign anything is an answer; so give it in full.
            self.answer_assign();
        }
        self.feeds.remove(&partition);
        self.give_back(&partition);
        let fail = |message: String| SourceEvent::PartitionFailed { feed: id, partition: partition.clone(), message };
        if from < 0 {
            return self.tell(fail(format!("{from} is not an offset")));
        }
        let Some(feed) = Feed::split(&self.client, &partition, id, from) else {
            return self.tell(fail("the client knows no such partition".to_owned()));
        };
        let mut list = TopicPartitionList::with_capacity(1);
        let assigned = list
            .add_partition_offset(&partition.topic, partition.partition, Offset::Offset(from))
            .and_then(|()| self.consumer.incremental_assign(&list));
        match assigned {
            Ok(()) => {
                self.held.insert(partition.clone());
                self.feeds.insert(partition, feed);
            }
            Err(error) => {
                let event = fail(format!("it cannot be assigned: {error}"));
                self.tell(event);
            }
        }
    }

    /// Takes one partition out of the client's assignment, if it is in it.
    fn give_back(&mut self, partition: &TopicPartition) {
        if self.held.remove(partition) {
            let mut list = TopicPartitionList::with_capacity(1);
            list.add_partition(&partition.topic, partition.partition);
            let answer = self.consumer.incremental_unassign(&list);
            self.heed("give a partition back", answer);
        }
    }

    /// A refusal of a change of the assignment is not an error of a partition: people are told, and the group's next question shows.
    fn heed(&mut self, what: &str, answer: KafkaResult<()>) {
        if let Err(error) = answer
            && !self.fatal
        {
            self.waiting(format!("could not {what}: {error}"));
        }
    }

    /// Takes at most one batch of each feed; whether there was any.
    fn feed_all(&mut self) -> bool {
        let mut busy = false;
        let mut astray = Vec::new();
        let mut halted = Vec::new();
        let mut troubles = Vec::new();
        let mut well = false;
        for (partition, feed) in &mut self.feeds {
            if !feed.promising() {
                continue;
            }
            match feed.take(partition, self.bounds) {
                Taken::Nothing => {}
                Taken::Batch { batch, at_end } => {
                    (busy, well) = (true, true);
                    feed.credit -= 1;
                    (self.events)(SourceEvent::Batch { feed: feed.id, batch, at_end });
                }
                Taken::Astray => {
                    busy = true;
                    astray.push(partition.clone());
                }
                Taken::Fault(kind @ (Fault::OutOfRange | Fault::Unreadable), text) => {
                    busy = true;
                    halted.push((partition.clone(), feed.id, kind, text));
                }
                Taken::Fault(kind, text) => {
                    busy = true;
                    troubles.push((kind, format!("{partition}: {text}")));
                }
            }
        }
        if well {
            self.well();
        }
        for partition in astray {
            self.begin_anew(&partition);
        }
        for (partition, feed, kind, message) in halted {
            self.obey(SourceCommand::Stop { partition: partition.clone() });
            self.tell(match kind {
                Fault::OutOfRange => SourceEvent::OutOfRange { feed, partition },
                _ => SourceEvent::PartitionFailed { feed, partition, message },
            });
        }
        for (kind, text) in troubles {
            if kind == Fault::Terminal { self.fatal(text) } else { self.waiting(text) }
        }
        busy
    }

    /// Not while brokers are away: librdkafka starts no newly assigned partition as long as a commit is under way.
    fn mirror(&mut self, offsets: &[(TopicPartition, i64)]) {
        if self.health.waits() || offsets.is_empty() {
            return;
        }
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for (partition, next_offset) in offsets {
            let mut element = list.add_partition(&partition.topic, partition.partition);
            if element.set_offset(Offset::Offset(*next_offset)).is_ok() {
                element.set_metadata(MIRROR_TAG);
            }
        }
        // Best effort: a refusal means nothing, and the next mirror comes soon.
        let _ = self.consumer.commit(&list, CommitMode::Async);
    }

    fn waiting(&mut self, text: String) {
        if !self.fatal && self.health.trouble(Instant::now()) {
            self.tell(SourceEvent::Waiting(text));
        }
    }

    fn well(&mut self) {
        if self.health.well() {
            self.tell(SourceEvent::Recovered);
        }
    }

    fn fatal(&mut self, text: String) {
        if !self.fatal {
            self.fatal = true;
            self.feeds.clear();
            self.tell(SourceEvent::Fatal(text));
        }
    }

    fn tell(&self, event: SourceEvent) {
        (self.events)(event);
    }

    /// Gives everything back and closes the client. Both halves of a waiting rebalance are answered, else the client waits for ever.
    fn close(self) {
        let Self { feeds, asker, main, client, consumer, .. } = self;
        drop(feeds);
        give_all_back(&consumer);
        let _ = consumer.incremental_assign(&TopicPartitionList::new());
        asker.close();
        drop((main, client));
        drop(consumer);
    }
}
