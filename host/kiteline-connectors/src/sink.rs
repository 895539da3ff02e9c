//! Where outputs go. One file a kind of sink; none of them decides what is written or when a position may move.

mod file;
mod stdout;

pub use file::FileSink;
pub use stdout::StdoutSink;
