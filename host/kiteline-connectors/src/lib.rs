//! The outside world, folders named by stage: where records come from, how their bytes become values, where outputs go, where
//! checkpoints live. Nothing here decides anything about order, commits or retries: each connector does what it is told and
//! reports what came of it, as data. The decisions are the engine's; the wiring is the driver's.

pub mod source;

pub mod decode;
pub mod sink;

pub mod checkpoint;

mod names;
mod secret;

pub mod kafka_admin;
mod kafka_calls;
mod kafka_health;
mod kafka_mock;
mod kafka_settings;

mod error;

pub use error::Error;
pub use kafka_mock::MockKafka;
pub use names::{escape, unescape};
pub use secret::Secret;
