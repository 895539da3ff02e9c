//! Every foreign call of this crate: the parts of librdkafka that the `rdkafka` crate has no safe wrapper for, or only one
//! that costs an allocation a record. Owns pointers and their lifetimes, nothing else: no policy, no retry, no thread.
//!
//! Rules of the file. A type that holds a pointer also holds a [`Client`], which keeps the client alive; so nothing here can
//! outlive what it points into. Error codes are read as plain numbers, since a broker may send one that the bindings' enum
//! does not know, and such a value in an enum is undefined behaviour. Nothing here panics inside a callback.
#![allow(
    unsafe_code,
    reason = "librdkafka's batch consume, produce with headers, queue events and topic ids have no safe wrapper"
)]

use std::{
    any::Any,
    ffi::{CStr, CString, c_char, c_int, c_void},
    fmt, mem, ptr, slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::Thread,
    time::{Duration, Instant},
};

use rdkafka::{
    bindings as rd,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    producer::{BaseProducer, Producer, ProducerContext},
};

// The same functions as in the bindings, with codes as numbers. See the rules of the file.
unsafe extern "C" {
    fn rd_kafka_err2str(code: c_int) -> *const c_char;
    fn rd_kafka_event_error(event: *mut rd::rd_kafka_event_t) -> c_int;
    fn rd_kafka_error_code(error: *const rd::rd_kafka_error_t) -> c_int;
}

/// An error code of librdkafka: 0 is success, negative ones are the client's own, positive ones the broker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const NONE: Self = Self(0);

    /// Whether this is an error at all.
    pub(crate) fn failed(self) -> bool {
        self != Self::NONE
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: takes any number and returns a static or thread-local string, which is copied at once.
        let text = unsafe { text(rd_kafka_err2str(self.0)) };
        f.write_str(&text)
    }
}

/// Copies a C string; empty for null.
///
/// # Safety
/// `text` is null or points to a terminated string that lives during the call.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the contract above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Milliseconds as librdkafka wants them, bounded to a day.
fn millis(timeout: Duration) -> c_int {
    timeout.as_millis().min(86_400_000) as c_int
}

/// A client, kept alive. The crate's own consumer or producer is the owner; this only borrows its pointer for as long.
#[derive(Clone)]
pub(crate) struct Client {
    rk: *mut rd::rd_kafka_t,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: librdkafka's handles may be used from every thread at the same time (its own documentation), and the owner is `Send + Sync`.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// Borrows a consumer's client and keeps it alive.
    pub(crate) fn of_consumer<C: ConsumerContext + 'static>(consumer: &Arc<BaseConsumer<C>>) -> Self {
        Self { rk: consumer.client().native_ptr(), _owner: Arc::clone(consumer) as _ }
    }

    /// Borrows a producer's client and keeps it alive.
    pub(crate) fn of_producer<C: ProducerContext + 'static>(producer: &Arc<BaseProducer<C>>) -> Self {
        Self { rk: producer.client().native_ptr(), _owner: Arc::clone(producer) as _ }
    }

    /// The queue of a producer's events: delivery reports, errors.
    pub(crate) fn main_queue(&self) -> Option<Queue> {
        // SAFETY: `rk` lives as long as `self`; the result is a new reference that `Queue` owns.
        self.own(unsafe { rd::rd_kafka_queue_get_main(self.rk) })
    }

    /// The queue of a consumer's events: rebalances, errors, and records of partitions that were not split off.
    pub(crate) fn consumer_queue(&self) -> Option<Queue> {
        // SAFETY: as above.
        self.own(unsafe { rd::rd_kafka_queue_get_consumer(self.rk) })
    }

    /// The queue of one partition, split off the consumer's. Split **before** the partition is assigned, no record takes the
    /// other way: librdkafka then leaves the forwarding alone (`RD_KAFKA_Q_F_FWD_APP`).
    pub(crate) fn partition_queue(&self, topic: &str, partition: i32) -> Option<Queue> {
        let topic = CString::new(topic).ok()?;
        // SAFETY: `rk` and the string live during the call; the result is a new reference that `Queue` owns.
        let queue = self.own(unsafe { rd::rd_kafka_queue_get_partition(self.rk, topic.as_ptr(), partition) })?;
        // SAFETY: the queue is ours; null as destination means that records stay in it.
        unsafe { rd::rd_kafka_queue_forward(queue.queue, ptr::null_mut()) };
        Some(queue)
    }

    fn own(&self, queue: *mut rd::rd_kafka_queue_t) -> Option<Queue> {
        (!queue.is_null()).then(|| Queue { queue, signal: None, client: self.clone() })
    }

    /// A handle of a topic to produce to.
    pub(crate) fn topic(&self, name: &str) -> Result<Topic, Code> {
        const INVALID_ARGUMENT: Code = Code(-186);
        let name = CString::new(name).map_err(|_| INVALID_ARGUMENT)?;
        // SAFETY: `rk` and the string live during the call; a null configuration means the client's default.
        let topic = unsafe { rd::rd_kafka_topic_new(self.rk, name.as_ptr(), ptr::null_mut()) };
        if topic.is_null() { Err(INVALID_ARGUMENT) } else { Ok(Topic { topic, client: self.clone() }) }
    }

    /// Asks a broker about topics without creating them. The order of the answer is that of `names`.
    pub(crate) fn describe_topics(&self, names: &[&str], timeout: Duration) -> Result<Vec<DescribedTopic>, String> {
        // Any broker can answer, and the controller, which librdkafka would ask, is not always known.
        let broker = self.brokers(timeout)?.first().copied().ok_or("no broker is known")?;
        let names: Vec<CString> = names
            .iter()
            .map(|name| CString::new(*name))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: `rk` lives as long as `self`; the result is a new reference that `Queue` owns.
        let answers = self.own(unsafe { rd::rd_kafka_queue_new(self.rk) }).ok_or("no queue")?;
        // SAFETY: the pointers live until the collection has copied the names; options and collection are destroyed right after
        // the call, which copies what it needs; the queue outlives the request, since an answer without a queue is dropped.
        unsafe {
            let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
            let options = rd::rd_kafka_AdminOptions_new(self.rk, operation);
            let mut why = [0 as c_char; 256];
            rd::rd_kafka_AdminOptions_set_request_timeout(options, millis(timeout).max(1), why.as_mut_ptr(), why.len());
            rd::rd_kafka_AdminOptions_set_broker(options, broker, why.as_mut_ptr(), why.len());
            let topics = rd::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
            rd::rd_kafka_DescribeTopics(self.rk, topics, options, answers.queue);
            rd::rd_kafka_TopicCollection_destroy(topics);
            rd::rd_kafka_AdminOptions_destroy(options);
        }
        let deadline = Instant::now() + timeout + Duration::from_secs(1);
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            if let Some(Event::Described(answer)) = answers.poll(left) {
                return answer;
            }
        }
        Err("no answer in time".to_owned())
    }

    /// Asks which brokers there are. Names no topic, so it creates none and is small on the largest cluster.
    pub(crate) fn brokers(&self, timeout: Duration) -> Result<Vec<i32>, String> {
        let mut metadata = ptr::null();
        // SAFETY: `rk` lives as long as `self`; no topic means those that the client knows; on success the metadata is ours to destroy, and
        // its `broker_cnt` brokers are initialised.
        unsafe {
            let code = rd::rd_kafka_metadata(self.rk, 0, ptr::null_mut(), &mut metadata, millis(timeout)) as c_int;
            if code != 0 || metadata.is_null() {
                return Err(Code(code).to_string());
            }
            let count = (*metadata).broker_cnt.max(0) as usize;
            let ids = (0..count).map(|i| (*(*metadata).brokers.add(i)).id).collect();
            rd::rd_kafka_metadata_destroy(metadata);
            Ok(ids)
        }
    }

    /// How long the mock cluster waits for more members before it starts a group; its default is 3 s.
    pub(crate) fn set_mock_join_delay(&self, delay: Duration) {
        // SAFETY: the pointer is null for a client without a mock cluster, else it lives as long as the client.
        unsafe {
            let cluster = rd::rd_kafka_handle_mock_cluster(self.rk);
            if !cluster.is_null() {
                rd::rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, millis(delay));
            }
        }
    }
}

/// What a broker says about a topic.
pub(crate) struct DescribedTopic {
    /// Its id, as text; empty if the broker gives none.
    pub(crate) id: String,
    /// How many partitions it has.
    pub(crate) partitions: usize,
    /// Why it cannot be described.
    pub(crate) error: Option<(Code, String)>,
}

/// Tells a thread that a queue is no longer empty.
pub(crate) struct Signal {
    ready: AtomicBool,
    thread: Thread,
}

impl Signal {
    /// A signal for the calling thread; raised at first, so that the queue is looked at once.
    pub(crate) fn for_this_thread() -> Arc<Self> {
        Arc::new(Self { ready: AtomicBool::new(true), thread: std::thread::current() })
    }

    /// Whether it is raised; lowers it. Lower before reading the queue, so that what comes meanwhile raises it again.
    pub(crate) fn lower(&self) -> bool {
        self.ready.swap(false, Ordering::AcqRel)
    }

    /// Raises it without waking anybody: the queue was not read to its end.
    pub(crate) fn raise(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Whether it is raised.
    pub(crate) fn raised(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}

/// Called by librdkafka, with the queue locked, when a queue gets its first entry. It may not block, call back or panic: it
/// sets a flag and wakes a thread.
///
/// # Safety
/// `signal` is the pointer given by [`Queue::watch`], whose `Arc` the queue holds until the callback is taken away; taking it
/// away needs the queue's lock, so it never happens during a call.
unsafe extern "C" fn queue_filled(_: *mut rd::rd_kafka_t, signal: *mut c_void) {
    // SAFETY: by the contract above.
    let signal = unsafe { &*signal.cast::<Signal>() };
    signal.raise();
    signal.thread.unpark();
}

/// One reference to a queue of a client.
pub(crate) struct Queue {
    queue: *mut rd::rd_kafka_queue_t,
    signal: Option<Arc<Signal>>,
    client: Client,
}

// SAFETY: queues may be used from every thread at the same time; the signal is `Send + Sync`.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the queue is ours and alive; after the first call no callback runs, so the signal may go; the client goes last.
        unsafe {
            if self.signal.is_some() {
                rd::rd_kafka_queue_cb_event_enable(self.queue, None, ptr::null_mut());
            }
            rd::rd_kafka_queue_destroy(self.queue);
        }
    }
}

impl Queue {
    /// Raises `signal` and wakes its thread whenever the queue gets its first entry.
    pub(crate) fn watch(&mut self, signal: &Arc<Signal>) {
        let opaque = Arc::as_ptr(signal).cast_mut().cast::<c_void>();
        // SAFETY: see `queue_filled`; the old signal is released only after the new callback is in place.
        unsafe { rd::rd_kafka_queue_cb_event_enable(self.queue, Some(queue_filled), opaque) };
        self.signal = Some(Arc::clone(signal));
    }

    /// Wakes whoever waits in [`Queue::poll`].
    pub(crate) fn wake(&self) {
        // SAFETY: the queue is alive.
        unsafe { rd::rd_kafka_queue_yield(self.queue) };
    }

    /// Takes up to `count_max` messages that are there, without waiting. What `into` held before is destroyed.
    pub(crate) fn take(&self, into: &mut Messages, count_max: usize) -> usize {
        into.clear();
        into.list.reserve(count_max);
        // SAFETY: there is room for `count_max` pointers; the first `n` are initialised by the call and ours to destroy.
        unsafe {
            let n = rd::rd_kafka_consume_batch_queue(self.queue, 0, into.list.as_mut_ptr(), count_max);
            into.list.set_len(n.max(0) as usize);
        }
        into.list.len()
    }

    /// Room for messages of this queue.
    pub(crate) fn room(&self) -> Messages {
        Messages { list: Vec::new(), at: 0, _client: self.client.clone() }
    }

    /// Takes one event, waiting for at most `timeout`.
    pub(crate) fn poll(&self, timeout: Duration) -> Option<Event> {
        // SAFETY: the queue is alive; the event, if any, is ours to destroy, which `OwnedEvent` does.
        let event = unsafe { rd::rd_kafka_queue_poll(self.queue, millis(timeout)) };
        (!event.is_null()).then(|| OwnedEvent { event, _client: self.client.clone() }.read())
    }
}

/// Something that happened, copied out of the client but for delivery reports, which are many.
pub(crate) enum Event {
    /// The group gives partitions (`assign`) or wants them back. It waits for the answer.
    Rebalance { assign: bool, partitions: Vec<(String, i32)> },
    /// Something is wrong, with the client or with one partition.
    Error { code: Code, fatal: bool, text: String },
    /// A record that came by the consumer's queue although its partition was split off.
    Stray { topic: String, partition: i32 },
    /// Messages were delivered or given up.
    Deliveries(Deliveries),
    /// Answer of [`Client::describe_topics`].
    Described(Result<Vec<DescribedTopic>, String>),
    /// Logs, statistics, results of commits: of no interest.
    Other,
}

struct OwnedEvent {
    event: *mut rd::rd_kafka_event_t,
    _client: Client,
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // SAFETY: the event is ours, and its client is still alive.
        unsafe { rd::rd_kafka_event_destroy(self.event) };
    }
}

impl OwnedEvent {
    fn read(self) -> Event {
        // SAFETY: every accessor is called on an event of the type that it is for, and what it returns lives as long as the event.
        unsafe {
            let code = Code(rd_kafka_event_error(self.event));
            match rd::rd_kafka_event_type(self.event) {
                rd::RD_KAFKA_EVENT_DR => Event::Deliveries(Deliveries(self)),
                rd::RD_KAFKA_EVENT_REBALANCE => {
                    const ASSIGN_PARTITIONS: Code = Code(-175);
                    let partitions = partitions(rd::rd_kafka_event_topic_partition_list(self.event));
                    Event::Rebalance { assign: code == ASSIGN_PARTITIONS, partitions }
                }
                rd::RD_KAFKA_EVENT_ERROR => Event::Error {
                    code,
                    fatal: rd::rd_kafka_event_error_is_fatal(self.event) != 0,
                    text: text(rd::rd_kafka_event_error_string(self.event)),
                },
                rd::RD_KAFKA_EVENT_FETCH => match rd::rd_kafka_event_message_next(self.event).as_ref() {
                    Some(message) if !message.rkt.is_null() => {
                        Event::Stray { topic: text(rd::rd_kafka_topic_name(message.rkt)), partition: message.partition }
                    }
                    _ => Event::Other,
                },
                rd::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT if code.failed() => {
                    Event::Described(Err(text(rd::rd_kafka_event_error_string(self.event))))
                }
                rd::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT => Event::Described(Ok(described(self.event))),
                _ => Event::Other,
            }
        }
    }
}

/// Copies a list of partitions; empty for null.
///
/// # Safety
/// `list` is null or alive during the call.
unsafe fn partitions(list: *const rd::rd_kafka_topic_partition_list_t) -> Vec<(String, i32)> {
    // SAFETY: by the contract above; `cnt` elements are initialised.
    unsafe {
        let Some(list) = list.as_ref().filter(|list| list.cnt > 0) else { return Vec::new() };
        let elements = slice::from_raw_parts(list.elems, list.cnt as usize);
        elements.iter().map(|element| (text(element.topic), element.partition)).collect()
    }
}

/// Copies the answer about topics.
///
/// # Safety
/// `event` is a result of `DescribeTopics` without an error, alive during the call.
unsafe fn described(event: *mut rd::rd_kafka_event_t) -> Vec<DescribedTopic> {
    // SAFETY: by the contract above; what the accessors return belongs to the event, but for the string of an id, which librdkafka
    // keeps inside the id.
    unsafe {
        let mut count = 0;
        let list =
            rd::rd_kafka_DescribeTopics_result_topics(rd::rd_kafka_event_DescribeTopics_result(event), &mut count);
        (0..count)
            .map(|i| {
                let topic = *list.add(i);
                let error = rd::rd_kafka_TopicDescription_error(topic);
                let code = if error.is_null() { Code::NONE } else { Code(rd_kafka_error_code(error)) };
                let id = rd::rd_kafka_TopicDescription_topic_id(topic);
                let zero = id.is_null()
                    || (rd::rd_kafka_Uuid_most_significant_bits(id) | rd::rd_kafka_Uuid_least_significant_bits(id))
                        == 0;
                let mut partitions = 0;
                rd::rd_kafka_TopicDescription_partitions(topic, &mut partitions);
                DescribedTopic {
                    id: if zero { String::new() } else { text(rd::rd_kafka_Uuid_base64str(id)) },
                    partitions,
                    error: code.failed().then(|| (code, text(rd::rd_kafka_error_string(error)))),
                }
            })
            .collect()
    }
}

/// Delivery reports, many at a time.
pub(crate) struct Deliveries(OwnedEvent);

impl Deliveries {
    /// Calls `report` for each with the number given at [`Topic::produce`] and what came of it.
    pub(crate) fn for_each(&self, mut report: impl FnMut(usize, Code)) {
        const MANY: usize = 256;
        let mut messages = [ptr::null::<rd::rd_kafka_message_t>(); MANY];
        loop {
            // SAFETY: there is room for `MANY` pointers; the first `n` point to messages that belong to the event.
            let n = unsafe { rd::rd_kafka_event_message_array(self.0.event, messages.as_mut_ptr(), MANY) };
            for &message in &messages[..n] {
                // SAFETY: as above; the opaque is the number that was given, never a pointer to follow.
                unsafe { report((*message)._private as usize, code_of(message)) };
            }
            if n < MANY {
                return;
            }
        }
    }
}

/// Reads the code of a message as a number. See the rules of the file.
///
/// # Safety
/// `message` is alive.
unsafe fn code_of(message: *const rd::rd_kafka_message_t) -> Code {
    // SAFETY: the field is a C enum, which has the size of an `int`.
    Code(unsafe { ptr::addr_of!((*message).err).cast::<c_int>().read() })
}

/// Messages taken from a queue, destroyed when they are dropped or replaced.
pub(crate) struct Messages {
    list: Vec<*mut rd::rd_kafka_message_t>,
    at: usize,
    _client: Client,
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Messages {
    /// How many are left.
    pub(crate) fn len(&self) -> usize {
        self.list.len() - self.at
    }

    /// Those that are left, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        // SAFETY: those from `at` on are alive until `skip` or `clear`, which need `&mut self`.
        self.list[self.at..].iter().map(|&message| Message(unsafe { &*message }))
    }

    /// Destroys the first `n`.
    pub(crate) fn skip(&mut self, n: usize) {
        for &message in &self.list[self.at..self.at + n] {
            // SAFETY: it is ours, alive, and not looked at again, since `at` moves past it.
            unsafe { rd::rd_kafka_message_destroy(message) };
        }
        self.at += n;
    }

    fn clear(&mut self) {
        self.skip(self.len());
        self.list.clear();
        self.at = 0;
    }
}

/// One message of a partition: a record, or an error that stands in its place.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a>(&'a rd::rd_kafka_message_t);

impl<'a> Message<'a> {
    /// What is wrong with it, [`Code::NONE`] for a record.
    pub(crate) fn code(self) -> Code {
        // SAFETY: the message is alive.
        unsafe { code_of(self.0) }
    }

    /// What librdkafka says about the error.
    pub(crate) fn error_text(self) -> String {
        // SAFETY: the message is alive; an error's text belongs to it or is static.
        unsafe { text(rd::rd_kafka_message_errstr(self.0)) }
    }

    /// Its offset; of an error, the offset at which it came up.
    pub(crate) fn offset(self) -> i64 {
        self.0.offset
    }

    /// Bytes of key and value together.
    pub(crate) fn bytes_len(self) -> usize {
        self.0.key_len + self.0.len
    }

    /// The key, none for null.
    pub(crate) fn key(self) -> Option<&'a [u8]> {
        // SAFETY: key and length describe memory that belongs to the message; null means no key.
        (!self.0.key.is_null()).then(|| unsafe { slice::from_raw_parts(self.0.key.cast(), self.0.key_len) })
    }

    /// The value, none for null.
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        // SAFETY: as above.
        (!self.0.payload.is_null()).then(|| unsafe { slice::from_raw_parts(self.0.payload.cast(), self.0.len) })
    }

    /// Milliseconds since 1970 as stored, and whether the broker set them (`None`: there are none).
    pub(crate) fn timestamp(self) -> (i64, Option<bool>) {
        use rd::rd_kafka_timestamp_type_t as Kind;
        let mut kind = Kind::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive and a consumer's; the client itself sets the kind, to one of its three values.
        let at = unsafe { rd::rd_kafka_message_timestamp(self.0, &mut kind) };
        match kind {
            Kind::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => (-1, None),
            Kind::RD_KAFKA_TIMESTAMP_CREATE_TIME => (at, Some(false)),
            Kind::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => (at, Some(true)),
        }
    }

    /// Calls `each` with name and value of every header, in order; false if they cannot be read.
    pub(crate) fn headers(self, mut each: impl FnMut(&[u8], Option<&[u8]>)) -> bool {
        const NO_ENTRY: c_int = -156;
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive and a consumer's; librdkafka parses its headers at most once and keeps them in the message. Its
        // codes here are its own three.
        unsafe {
            match rd::rd_kafka_message_headers(self.0, &mut headers) as c_int {
                0 => {}
                code => return code == NO_ENTRY,
            }
            let (mut name, mut value, mut len) = (ptr::null(), ptr::null(), 0);
            for i in 0..rd::rd_kafka_header_cnt(headers) {
                rd::rd_kafka_header_get_all(headers, i, &mut name, &mut value, &mut len);
                let value = (!value.is_null()).then(|| slice::from_raw_parts(value.cast::<u8>(), len));
                each(CStr::from_ptr(name).to_bytes(), value);
            }
        }
        true
    }
}

/// Headers for one message to produce.
pub(crate) struct Headers(*mut rd::rd_kafka_headers_t);

impl Drop for Headers {
    fn drop(&mut self) {
        // SAFETY: they are ours; `Topic::produce` forgets them when librdkafka took them over.
        unsafe { rd::rd_kafka_headers_destroy(self.0) };
    }
}

impl Headers {
    /// An empty list with room for `count`.
    pub(crate) fn with_capacity(count: usize) -> Self {
        // SAFETY: no precondition; librdkafka aborts the process rather than return null.
        Self(unsafe { rd::rd_kafka_headers_new(count) })
    }

    /// Appends one; the bytes are copied.
    pub(crate) fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        let (value, len) = value.map_or((ptr::null(), 0), |value| (value.as_ptr().cast(), value.len() as isize));
        // SAFETY: both slices live during the call, with their lengths; a null value is a null header.
        unsafe { rd::rd_kafka_header_add(self.0, name.as_ptr().cast(), name.len() as isize, value, len) };
    }
}

/// A topic to produce to.
pub(crate) struct Topic {
    topic: *mut rd::rd_kafka_topic_t,
    client: Client,
}

// SAFETY: topic handles may be used from every thread at the same time.
unsafe impl Send for Topic {}
// SAFETY: as above.
unsafe impl Sync for Topic {}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: the reference is ours; the client is still alive.
        unsafe { rd::rd_kafka_topic_destroy(self.topic) };
    }
}

/// One message to produce.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    /// Its partition, -1 leaves it to the partitioner.
    pub(crate) partition: i32,
    /// Key, none for null.
    pub(crate) key: Option<&'a [u8]>,
    /// Value, none for null.
    pub(crate) value: Option<&'a [u8]>,
    /// Milliseconds since 1970. librdkafka takes 0 for "now".
    pub(crate) timestamp_ms: i64,
    /// A number that the delivery report brings back.
    pub(crate) opaque: usize,
}

/// Pointer and length of bytes that may be null. An empty slice's pointer is not null, so null and empty stay apart.
fn memory(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((ptr::null_mut(), 0), |bytes| (bytes.as_ptr().cast_mut().cast(), bytes.len()))
}

impl Topic {
    /// Copies one message into the client. Waits while the client's queue is full. A message that is refused here brings no
    /// delivery report.
    pub(crate) fn produce(&self, message: Outgoing<'_>, headers: Option<Headers>) -> Result<(), Code> {
        use rd::rd_kafka_vtype_t as Kind;
        type Value = rd::rd_kafka_vu_s__bindgen_ty_1;
        type Memory = rd::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1;
        let of = |vtype, u| rd::rd_kafka_vu_t { vtype, u };
        let bytes = |bytes| {
            let (ptr, size) = memory(bytes);
            Value { mem: Memory { ptr, size } }
        };
        let arguments = [
            of(Kind::RD_KAFKA_VTYPE_RKT, Value { rkt: self.topic }),
            of(Kind::RD_KAFKA_VTYPE_PARTITION, Value { i32_: message.partition }),
            of(Kind::RD_KAFKA_VTYPE_MSGFLAGS, Value { i: rd::RD_KAFKA_MSG_F_COPY | rd::RD_KAFKA_MSG_F_BLOCK }),
            of(Kind::RD_KAFKA_VTYPE_KEY, bytes(message.key)),
            of(Kind::RD_KAFKA_VTYPE_VALUE, bytes(message.value)),
            of(Kind::RD_KAFKA_VTYPE_TIMESTAMP, Value { i64_: message.timestamp_ms }),
            of(Kind::RD_KAFKA_VTYPE_OPAQUE, Value { ptr: message.opaque as *mut c_void }),
            of(
                Kind::RD_KAFKA_VTYPE_HEADERS,
                Value { headers: headers.as_ref().map_or(ptr::null_mut(), |list| list.0) },
            ),
        ];
        // SAFETY: each argument has the member that its kind asks for; the bytes live during the call and are copied; headers belong
        // to librdkafka on success only, when they are forgotten here; a returned error is ours to destroy.
        unsafe {
            let count = arguments.len() - usize::from(headers.is_none());
            let error = rd::rd_kafka_produceva(self.client.rk, arguments.as_ptr(), count);
            if error.is_null() {
                mem::forget(headers);
                return Ok(());
            }
            let code = Code(rd_kafka_error_code(error));
            rd::rd_kafka_error_destroy(error);
            Err(code)
        }
    }
}
