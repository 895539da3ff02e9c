//! Where outputs go. One file a kind of sink; none of them decides what is written or when a position may move.

pub mod kafka;

mod file;
mod stdout;

pub use file::FileSink;
pub use stdout::StdoutSink;
