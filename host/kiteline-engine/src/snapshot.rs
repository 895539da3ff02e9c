//! A plain picture of a pipeline for status output. Nothing decides by it.

use std::collections::BTreeMap;

use crate::{
    ids::{Generation, Revision, Run, TopicPartition},
    partition::{Partition, Phase},
};

/// A pipeline at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Current run.
    pub run: Run,
    /// Live revision.
    pub revision: Revision,
    /// Whether nothing new is written to sinks, because the store session is not proved.
    pub held: bool,
    /// Requests to the checkpoint store without an answer.
    pub requests: u32,
    /// The partitions that this member has or is getting.
    pub partitions: Vec<PartitionPicture>,
}

/// One partition at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionPicture {
    /// Which one.
    pub partition: TopicPartition,
    /// Where it stands, in one word.
    pub state: &'static str,
    /// Why it stands still, if it does.
    pub reason: Option<String>,
    /// Generation of our claim, if we have it.
    pub generation: Option<Generation>,
    /// next_offset of the stored checkpoint, if we have the claim.
    pub stored: Option<i64>,
    /// First offset that is not complete.
    pub low_water: Option<i64>,
    /// First offset that was not fetched.
    pub position: Option<i64>,
    /// Batches between fetch and completion.
    pub in_flight: u32,
}

impl Snapshot {
    pub(crate) fn of(
        partitions: &BTreeMap<TopicPartition, Partition>,
        run: Run,
        revision: Revision,
        held: bool,
        requests: usize,
    ) -> Self {
        let partitions = partitions.iter().map(|(tp, p)| picture(tp, p)).collect();
        Self { run, revision, held, requests: u32::try_from(requests).unwrap_or(u32::MAX), partitions }
    }
}

fn picture(tp: &TopicPartition, partition: &Partition) -> PartitionPicture {
    let state = match &partition.phase {
        Phase::Unclaimed(_) => "unclaimed",
        Phase::Claiming(_) => "claiming",
        Phase::Unchecked(_) | Phase::Checking => "checking",
        Phase::Working => "working",
        Phase::Rewinding(_) => "rewinding",
        Phase::Halted(_) => "halted",
        Phase::Draining(_) => "draining",
        Phase::Releasing => "releasing",
        Phase::Released => "released",
    };
    let reason = match &partition.phase {
        Phase::Halted(why) => Some(why.clone()),
        _ => None,
    };
    let flow = partition.flow.as_ref();
    PartitionPicture {
        partition: tp.clone(),
        state,
        reason,
        generation: partition.owned.as_ref().map(|o| o.stored.owner.generation),
        stored: partition.owned.as_ref().map(|o| o.stored.position.next_offset),
        low_water: partition.low_water(),
        position: flow.map(crate::source::Flow::position),
        in_flight: flow.map_or(0, |f| u32::try_from(f.in_flight()).unwrap_or(u32::MAX)),
    }
}
