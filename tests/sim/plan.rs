//! What one simulated history is like: sizes, speeds, limits and how often each fault strikes, all drawn from its seed.
//!
//! Limits are drawn from their floors upwards, for tiny limits are the strongest single fault. Each fault is off in half of
//! all histories, so that faults are seen alone as well as together.

use kiteline_engine::{limits::Limits, pipeline::OnLostPosition};

use crate::dice::Dice;

/// One history's parameters. Times are in simulated milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Processes that take part.
    pub(crate) members: usize,
    /// Partitions of the one topic.
    pub(crate) partitions: usize,
    /// Offsets of each partition, holes included.
    pub(crate) offsets: i64,
    /// Whether the processes end by themselves at the logs' ends; then all is in the logs from the beginning.
    pub(crate) until_end: bool,
    /// Whether the plugin keeps nothing between batches.
    pub(crate) stateless: bool,
    /// What is done about positions that the log has lost.
    pub(crate) on_lost: OnLostPosition,
    /// Whether all processes are on one host, so that they can look for each other.
    pub(crate) one_host: bool,
    /// Bounds of every process.
    pub(crate) limits: Limits,
    /// Negotiated session timeout of the store.
    pub(crate) session_ms: u64,
    /// After how long the group takes a silent process for gone.
    pub(crate) group_session_ms: u64,
    /// How late a process at most learns that the group has expelled it.
    pub(crate) lost_ms: u64,
    /// How long the group waits for an answer to a rebalance.
    pub(crate) rebalance_ms: u64,
    /// Longest ordinary way to or from the store, the group, the log, the plugin and the sink.
    pub(crate) store_ms: u64,
    /// See `store_ms`.
    pub(crate) group_ms: u64,
    /// See `store_ms`.
    pub(crate) fetch_ms: u64,
    /// See `store_ms`.
    pub(crate) transform_ms: u64,
    /// See `store_ms`.
    pub(crate) sink_ms: u64,
    /// When faults end and all must drain.
    pub(crate) faults_ms: u64,
    /// How often what goes wrong.
    pub(crate) faults: Faults,
}

/// How often each fault strikes, of a thousand times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    // --- per request to the store
    /// The request is lost, and so is the answer.
    pub(crate) request_lost: u64,
    /// It takes effect, the answer is lost.
    pub(crate) answer_lost: u64,
    /// The sender is told nothing in time; it takes effect later, after the sender's next request.
    pub(crate) request_delayed: u64,
    // --- per process and tenth of a second
    /// The way to the store is cut for a while, sometimes longer than the session.
    pub(crate) disconnect: u64,
    /// The store ends the session of a connected process.
    pub(crate) expire: u64,
    /// The process dies at once.
    pub(crate) crash: u64,
    /// The process is asked to stop.
    pub(crate) stop: u64,
    /// The process stands still for a while; its clock does not.
    pub(crate) pause: u64,
    /// The group takes it for gone; it learns that late.
    pub(crate) expel: u64,
    /// A part that it cannot do without fails for good.
    pub(crate) fail: u64,
    /// A new plugin is submitted to it, often to all.
    pub(crate) swap: u64,
    // --- per tenth of a second
    /// The group shuffles partitions.
    pub(crate) rebalance: u64,
    /// The logs lose their oldest records, done or not.
    pub(crate) retention: u64,
    // --- per batch
    /// The host fails in handling it.
    pub(crate) transform_fail: u64,
    /// A schema is not to be had for now.
    pub(crate) decode_wait: u64,
    /// Writes fail, and none has landed.
    pub(crate) sink_fail: u64,
    /// Writes fail, and some have landed.
    pub(crate) sink_partial: u64,
    /// Writes fail although all have landed.
    pub(crate) sink_landed: u64,
    /// Dead letters of refused records fail.
    pub(crate) dead_letter_fail: u64,
    /// The log does not tell its range.
    pub(crate) positions_fail: u64,
    /// Anything takes twenty times as long.
    pub(crate) slow: u64,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn of(dice: &mut Dice) -> Self {
        let members = usize::try_from(dice.range(1, 3)).expect("a small number");
        let partitions = usize::try_from(dice.range(1, 5)).expect("a small number");
        let limits = limits(dice);
        let faults = if dice.chance(60) { Faults::default() } else { faults(dice, members) };
        let on_lost = if dice.chance(500) { OnLostPosition::Earliest } else { OnLostPosition::Latest };
        let drain = limits.drain_ms_max;
        let session_ms = dice.range(600, 5_000);
        let group_session_ms = dice.range(600, 5_000);
        Self {
            members,
            partitions,
            offsets: dice.range(0, 120) as i64,
            until_end: dice.chance(200),
            stateless: dice.chance(500),
            on_lost,
            one_host: dice.chance(500),
            session_ms,
            group_session_ms,
            // late enough, now and then, for a member to take over by force what is not its own any more
            lost_ms: if dice.chance(500) { group_session_ms } else { 3 * (session_ms + 1_000) },
            // a group that waits too short a time is a fault of its own, and a rare one
            rebalance_ms: if dice.chance(150) { drain } else { 2 * drain + 2_000 },
            store_ms: dice.range(1, 30),
            group_ms: dice.range(1, 50),
            fetch_ms: dice.range(1, 30),
            transform_ms: dice.range(1, 60),
            sink_ms: dice.range(1, 80),
            faults_ms: dice.range(1_000, 12_000),
            limits,
            faults,
        }
    }
}

fn limits(dice: &mut Dice) -> Limits {
    let small = |dice: &mut Dice, max| u32::try_from(dice.range(1, max)).expect("a small number");
    Limits {
        batch_records_max: small(dice, 8),
        batch_bytes_max: 1 << 10,
        partition_batches_max: small(dice, 6),
        pipeline_batches_max: small(dice, 10),
        commit_partitions_max: small(dice, 4),
        commit_interval_ms: dice.range(10, 600),
        drain_ms_max: dice.range(30, 2_000),
        stall_ms_max: dice.range(300, 5_000),
        backoff_ms_min: dice.range(1, 100),
        backoff_ms_max: dice.range(100, 2_000),
    }
}

fn faults(dice: &mut Dice, members: usize) -> Faults {
    let mut rate = |max: u64| {
        let on = dice.chance(500);
        let value = dice.range(1, max);
        if on { value } else { 0 }
    };
    let mut faults = Faults {
        request_lost: rate(150),
        answer_lost: rate(200),
        request_delayed: rate(150),
        disconnect: rate(30),
        expire: rate(10),
        crash: rate(25),
        stop: rate(15),
        pause: rate(25),
        expel: rate(25),
        fail: rate(5),
        swap: rate(20),
        rebalance: rate(60),
        retention: rate(8),
        transform_fail: rate(60),
        decode_wait: rate(100),
        sink_fail: rate(60),
        sink_partial: rate(80),
        sink_landed: rate(80),
        dead_letter_fail: rate(300),
        positions_fail: rate(300),
        slow: rate(40),
    };
    if members == 1 {
        faults.rebalance = 0;
    }
    faults
}
