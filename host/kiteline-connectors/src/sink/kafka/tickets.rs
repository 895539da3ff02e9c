//! Which records of which ticket are still under way: a fixed slab of counters. A delivery report finds its counter by the number
//! that went out with the record, without a lock and without a look-up; only what went wrong takes a lock.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::SinkEvent;
use crate::kafka_calls::Code;

/// Tickets under way at the same time: eight times what a pipeline may have in flight by default. Without a free one, a write waits.
const TICKETS_MAX: usize = 1024;

const _: () = assert!(usize::BITS == 64, "a record's number and its ticket's place share one pointer-sized number");

/// What may be wrong with a record for ever, so that trying again is useless.
fn refusal(code: Code, sizes_known: bool) -> bool {
    match code.0 {
        // The record's own fault only if batches are known to be smaller than the topic's limit: then it was alone in its batch.
        10 => sizes_known,
        // unknown partition, invalid timestamp, invalid record
        -190 | 32 | 87 => true,
        _ => false,
    }
}

#[derive(Default)]
struct Wrong {
    refused: Vec<(u32, String)>,
    failed_count: u32,
    failed_why: String,
}

#[derive(Default)]
struct Ticket {
    number: AtomicU64,
    /// Records without a report yet, and one for whoever still hands over.
    left: AtomicU32,
    sizes_known: AtomicBool,
    wrong: Mutex<Wrong>,
}

/// The slab.
pub(super) struct Tickets {
    places: Box<[Ticket]>,
    free: Mutex<Vec<u32>>,
    freed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tickets {
    pub(super) fn new() -> Self {
        let count = TICKETS_MAX as u32;
        Self {
            places: (0..count).map(|_| Ticket::default()).collect(),
            free: Mutex::new((0..count).rev().collect()),
            freed: Condvar::new(),
        }
    }

    /// Opens a ticket of `records` records, waiting for a free place for at most `wait`. Must be closed by [`Tickets::handed_over`].
    pub(super) fn open(&self, number: u64, records: u32, wait: Duration) -> Option<u32> {
        let deadline = Instant::now() + wait;
        let mut free = lock(&self.free);
        let place = loop {
            if let Some(place) = free.pop() {
                break place;
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            free = self.freed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(free);
        let ticket = &self.places[place as usize];
        ticket.number.store(number, Ordering::Relaxed);
        ticket.sizes_known.store(true, Ordering::Relaxed);
        ticket.left.store(records + 1, Ordering::Release);
        Some(place)
    }

    /// The number that goes out with a record.
    pub(super) fn opaque(place: u32, record: u32) -> usize {
        (place as usize) << 32 | record as usize
    }

    /// Remembers that a record of the ticket goes to a topic whose size limit is not known.
    pub(super) fn sizes_unknown(&self, place: u32) {
        self.places[place as usize].sizes_known.store(false, Ordering::Relaxed);
    }

    /// Notes what is wrong with a record; it still has to be settled. Whether it is not the record's fault, so that it comes again.
    pub(super) fn wrong(&self, opaque: usize, code: Code) -> bool {
        let ticket = &self.places[opaque >> 32];
        if refusal(code, ticket.sizes_known.load(Ordering::Relaxed)) {
            self.refuse((opaque >> 32) as u32, opaque as u32, code.to_string());
            false
        } else {
            let hint = if code.0 == 10 {
                "; what the topic takes could not be read, so the record at fault is not known"
            } else {
                ""
            };
            self.fail((opaque >> 32) as u32, 1, &format!("{code}{hint}"));
            true
        }
    }

    /// Notes that a record can never be written.
    pub(super) fn refuse(&self, place: u32, record: u32, why: String) {
        lock(&self.places[place as usize].wrong).refused.push((record, why));
    }

    /// Notes that records were not written this time. The first reason is kept.
    pub(super) fn fail(&self, place: u32, records: u32, why: &str) {
        let mut wrong = lock(&self.places[place as usize].wrong);
        if wrong.failed_count == 0 {
            why.clone_into(&mut wrong.failed_why);
        }
        wrong.failed_count += records;
    }

    /// Takes `records` off the ticket; the event, if these were the last.
    pub(super) fn settle(&self, place: u32, records: u32) -> Option<SinkEvent> {
        if records == 0 {
            return None;
        }
        let ticket = &self.places[place as usize];
        let left = ticket.left.fetch_sub(records, Ordering::AcqRel);
        assert!(left >= records, "more reports than records");
        if left > records {
            return None;
        }
        let number = ticket.number.load(Ordering::Relaxed);
        let mut wrong = std::mem::take(&mut *lock(&ticket.wrong));
        lock(&self.free).push(place);
        self.freed.notify_all();
        wrong.refused.sort();
        Some(if wrong.failed_count > 0 {
            let message = format!("{} not acknowledged: {}", count(wrong.failed_count), wrong.failed_why);
            SinkEvent::Failed { ticket: number, message }
        } else if !wrong.refused.is_empty() {
            SinkEvent::Refused { ticket: number, records: wrong.refused }
        } else {
            SinkEvent::Acknowledged { ticket: number }
        })
    }

    /// Says that every record was handed over, `unsent` of them not to the client. Those bring no report.
    pub(super) fn handed_over(&self, place: u32, unsent: u32) -> Option<SinkEvent> {
        self.settle(place, unsent + 1)
    }

    /// Waits until no ticket is under way; whether that came before `deadline`.
    pub(super) fn wait_idle(&self, deadline: Instant) -> bool {
        let mut free = lock(&self.free);
        while free.len() < TICKETS_MAX {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            free = self.freed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

fn count(records: u32) -> String {
    if records == 1 { "1 record was".to_owned() } else { format!("{records} records were") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(tickets: &Tickets, number: u64, records: u32) -> u32 {
        tickets.open(number, records, Duration::ZERO).expect("there is room")
    }

    #[test]
    fn one_event_a_ticket_after_its_last_report() {
        let tickets = Tickets::new();
        let place = open(&tickets, 7, 3);
        assert_eq!(tickets.settle(place, 2), None);
        assert_eq!(tickets.handed_over(place, 0), None);
        assert_eq!(tickets.settle(place, 1), Some(SinkEvent::Acknowledged { ticket: 7 }));
        let empty = open(&tickets, 8, 0);
        assert_eq!(tickets.handed_over(empty, 0), Some(SinkEvent::Acknowledged { ticket: 8 }));
        assert!(tickets.wait_idle(Instant::now()));
    }

    #[test]
    fn failure_outweighs_refusal_and_leaves_nothing_behind() {
        let tickets = Tickets::new();
        let place = open(&tickets, 1, 3);
        tickets.wrong(Tickets::opaque(place, 2), Code(10));
        tickets.wrong(Tickets::opaque(place, 1), Code(87));
        tickets.handed_over(place, 0);
        assert_eq!(tickets.settle(place, 2), None);
        tickets.wrong(Tickets::opaque(place, 0), Code(-192));
        let Some(SinkEvent::Failed { ticket: 1, message }) = tickets.settle(place, 1) else { panic!("not failed") };
        assert!(message.starts_with("1 record was not acknowledged: "), "{message}");

        let again = open(&tickets, 2, 2);
        assert_eq!(again, place);
        tickets.wrong(Tickets::opaque(again, 5), Code(10));
        tickets.handed_over(again, 0);
        let Some(SinkEvent::Refused { ticket: 2, records }) = tickets.settle(again, 2) else { panic!("not refused") };
        assert_eq!(records.iter().map(|(record, _)| *record).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_size_error_is_nobodys_fault_while_limits_are_unknown() {
        let tickets = Tickets::new();
        let place = open(&tickets, 3, 1);
        tickets.sizes_unknown(place);
        tickets.wrong(Tickets::opaque(place, 0), Code(10));
        tickets.handed_over(place, 0);
        assert!(matches!(tickets.settle(place, 1), Some(SinkEvent::Failed { ticket: 3, .. })));
    }

    #[test]
    fn no_place_is_no_ticket() {
        let tickets = Tickets::new();
        for number in 0..TICKETS_MAX as u64 {
            open(&tickets, number, 0);
        }
        assert_eq!(tickets.open(1, 1, Duration::from_millis(1)), None);
        assert!(!tickets.wait_idle(Instant::now()));
    }
}
