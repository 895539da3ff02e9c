//! End to end: the real program, a real Kafka, a real ZooKeeper. Run through `make e2e`, which starts both.
//!
//! May test what only whole processes show: kills, restarts, outages, what a person reads. What can be shown by the simulator
//! or in a crate is not tested here.

mod ending;
mod files;
mod line;
mod outages;
mod plugins;
mod positions;
mod records;
mod registry;
