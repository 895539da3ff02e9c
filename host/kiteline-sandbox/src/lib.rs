//! Plugins in a wasmtime sandbox: bytes become a [`Plugin`], a plugin in a pipeline a [`Deployment`], and each worker thread has
//! a [`Transformer`] of it that takes batches of records and gives outcomes. Wasmtime lives in this crate and nowhere else.
//!
//! The life of one batch here: [`Transformer::transform`] decodes the records into one buffer of rows, calls the guest once, and
//! what the guest emits is checked and staged as engine outputs while the call runs. If the guest breaks, what was staged is thrown
//! away, the instance is replaced, and the rows are halved until the guilty one stands alone. Whatever a guest does, every record
//! ends as outputs, a drop or a rejection; an [`Error`] means that the plugin was not taken or that the host broke.

#![deny(unsafe_code)] // but for one file: the cache of compiled code

mod buffers;
mod cache;
mod componentize;
mod deployment;
mod error;
mod host;
mod inspect;
mod instance;
mod limiter;
mod limits;
mod manifest;
mod plugin;
mod runtime;
mod stack;
mod stage;
mod text;
mod transformer;
mod wit;

pub use componentize::componentize;
pub use deployment::{Deployment, DeploymentSetup, PortSetup, WriterId};
pub use error::Error;
pub use host::{LogLevel, LogLine};
pub use inspect::{Inspection, inspect};
pub use limits::{
    COUNTER_BYTES_MAX, COUNTERS_MAX, CallLimits, HOST_STACK_BYTES, LAYOUT_REVISION, LOG_LINES_MAX, PORTS_MAX,
    RuntimeLimits, WRITERS_MAX,
};
pub use manifest::{Format, InputDecl, Manifest, OutputDecl, Wants};
pub use plugin::Plugin;
pub use runtime::Runtime;
pub use transformer::{Datum, Report, Transformer};
