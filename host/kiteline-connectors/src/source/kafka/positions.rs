//! Questions to brokers that take a while, asked beside the fetch loop: where logs start and end, topic ids, and whether the
//! brokers answer again. One thread, a bounded queue; owns no state about partitions.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

use kiteline_engine::ids::TopicPartition;
use rdkafka::{Offset, TopicPartitionList, consumer::Consumer, error::KafkaResult};

use super::{Events, Inbox, KafkaConsumer, LogRange, Note, SourceEvent};
use crate::kafka_calls::Client;

/// Questions that wait; one more is answered at once, with an error.
const QUESTIONS_MAX: usize = 32;

/// Longest wait for one answer of the brokers.
const ANSWER_MAX: Duration = Duration::from_secs(5);

enum Question {
    Positions(Vec<TopicPartition>),
    /// Whether brokers answer and these topics are there.
    Probe(Vec<Arc<str>>),
}

/// The thread that asks.
pub(super) struct Asker {
    questions: Option<SyncSender<Question>>,
    handle: Option<JoinHandle<()>>,
    events: Events,
}

impl Asker {
    /// Starts it; `thread` is woken after a good probe.
    pub(super) fn start(
        consumer: Arc<KafkaConsumer>,
        client: Client,
        inbox: Arc<Inbox>,
        thread: Thread,
        events: Events,
    ) -> Self {
        let (questions, received) = sync_channel(QUESTIONS_MAX);
        let answers = Arc::clone(&events);
        let handle = thread::Builder::new()
            .name("kafka-positions".to_owned())
            .spawn(move || answer_all(&consumer, &client, &inbox, &thread, &answers, &received))
            .ok();
        Self { questions: Some(questions), handle, events }
    }

    /// Asks where logs start and end. Ends as one [`SourceEvent::Positions`].
    pub(super) fn positions(&self, partitions: Vec<TopicPartition>) {
        if let Err(Question::Positions(partitions)) = self.ask(Question::Positions(partitions)) {
            let answers = partitions.into_iter().map(|p| (p, Err("too many questions at a time".to_owned()))).collect();
            (self.events)(SourceEvent::Positions(answers));
        }
    }

    /// Asks whether brokers answer. Ends as a [`Note::Probed`] if they do.
    pub(super) fn probe(&self, topics: &[Arc<str>]) {
        let _ = self.ask(Question::Probe(topics.to_vec()));
    }

    fn ask(&self, question: Question) -> Result<(), Question> {
        match self.questions.as_ref().map(|questions| questions.try_send(question)) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(question) | TrySendError::Disconnected(question))) => Err(question),
        }
    }

    /// Ends the thread, after the question that it is at.
    pub(super) fn close(mut self) {
        self.questions = None;
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

fn answer_all(
    consumer: &KafkaConsumer,
    client: &Client,
    inbox: &Inbox,
    thread: &Thread,
    events: &Events,
    questions: &Receiver<Question>,
) {
    while let Ok(question) = questions.recv() {
        match question {
            Question::Positions(partitions) => {
                events(SourceEvent::Positions(positions(consumer, client, partitions)));
            }
            Question::Probe(topics) => {
                if topics.iter().all(|topic| there(consumer, topic)) {
                    inbox.push(Note::Probed);
                    thread.unpark();
                }
            }
        }
    }
}

fn there(consumer: &KafkaConsumer, topic: &str) -> bool {
    consumer
        .fetch_metadata(Some(topic), Duration::from_secs(2))
        .is_ok_and(|found| found.topics().iter().all(|topic| topic.error().is_none()))
}

/// Asks for all partitions together: two requests a broker and one for the ids.
fn positions(
    consumer: &KafkaConsumer,
    client: &Client,
    partitions: Vec<TopicPartition>,
) -> Vec<(TopicPartition, Result<LogRange, String>)> {
    let starts = offsets(consumer, &partitions, Offset::Beginning);
    let ends = offsets(consumer, &partitions, Offset::End);
    let ids = topic_ids(client, &partitions);
    partitions
        .into_iter()
        .zip(starts.into_iter().zip(ends))
        .map(|(partition, found)| {
            let topic_id = ids.get(&partition.topic).cloned().unwrap_or_default();
            let range = match found {
                (Ok(start), Ok(end)) => Ok(LogRange { start, end, topic_id }),
                (Err(why), _) | (_, Err(why)) => Err(why),
            };
            (partition, range)
        })
        .collect()
}

/// The offsets at one side of the logs, in the order of `partitions`. With `read_committed` the end is the last stable offset.
fn offsets(consumer: &KafkaConsumer, partitions: &[TopicPartition], side: Offset) -> Vec<Result<i64, String>> {
    let ask = || -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition_offset(&partition.topic, partition.partition, side)?;
        }
        consumer.offsets_for_times(list, ANSWER_MAX)
    };
    let found = match ask() {
        Ok(found) => found,
        Err(error) => return partitions.iter().map(|_| Err(error.to_string())).collect(),
    };
    let one = |partition: &TopicPartition| -> Result<i64, String> {
        let element = found.find_partition(&partition.topic, partition.partition).ok_or("no answer for it")?;
        element.error().map_err(|error| error.to_string())?;
        match element.offset() {
            Offset::Offset(offset) => Ok(offset),
            other => Err(format!("the broker gave no offset ({other:?})")),
        }
    };
    partitions.iter().map(one).collect()
}

/// Ids of the topics, as far as they are to be had: an old broker has none, and asking may be forbidden.
fn topic_ids(client: &Client, partitions: &[TopicPartition]) -> BTreeMap<Arc<str>, String> {
    let mut topics: Vec<Arc<str>> = partitions.iter().map(|partition| Arc::clone(&partition.topic)).collect();
    topics.sort();
    topics.dedup();
    let names: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
    let described = client.describe_topics(&names, ANSWER_MAX).unwrap_or_default();
    topics.into_iter().zip(described).map(|(topic, described)| (topic, described.id)).collect()
}
