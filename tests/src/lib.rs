//! What the suites share: real processes, a real broker, orders to send, and what must come out.

pub mod app;
pub mod kafka;
pub mod orders;
pub mod process;
pub mod registry;
pub mod service;
pub mod wait;
