//! The pure state machine of a kiteline pipeline: events in, effects out.
//!
//! # The life of one batch
//!
//! ```text
//! source ─ fetch ─▶ decode ─▶ transform (sandbox) ─▶ sink ─▶ checkpoint
//!   ▲                                │ reject, trap            │
//!   │                                ▼                         ▼
//!   └── low-water mark ◀── complete ◀── dead letter      ZooKeeper (or file)
//! ```
//!
//! A partition is claimed ([`store`], one versioned write under a nonce of its own), fed from a concrete offset, and each
//! batch that comes is handed to the plugin, then to the sinks, in order. When everything below an offset is durable, that
//! offset is the low-water mark, and the next commit stores it. The engine decides all of this and does none of it:
//! [`pipeline::Pipeline::step`] takes an [`event::Event`] and answers with [`effect::Effect`]s. It has no clock, thread,
//! randomness or I/O, so a simulator can run it through years of crashes in a minute.
//!
//! What is *not* here: Kafka, ZooKeeper, Avro, WebAssembly, configuration, serialization.

pub mod ids;
pub mod limits;
pub mod record;

pub mod effect;
pub mod event;
pub mod store;

mod desk;

mod checkpoint;
mod member;
mod partition;
pub mod pipeline;
mod snapshot;
mod source;

pub use member::Identity;
pub use snapshot::{PartitionPicture, Snapshot};
