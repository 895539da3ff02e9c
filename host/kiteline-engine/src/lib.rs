//! The pure state machine: events in, effects out.

pub mod ids;
pub mod limits;
pub mod record;
pub mod store;
