//! Lines on standard output, for demos and pipes. Owns that a batch of lines goes out whole and that a closed pipe is told.
//! Nothing written here is durable: what counts is that the reader's pipe took it.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use crate::Error;

/// Standard output, locked for each write.
#[derive(Debug, Default)]
pub struct StdoutSink(());

impl StdoutSink {
    /// The process's standard output.
    pub fn new() -> Self {
        Self(())
    }

    /// Writes lines, each with its line feed at the end, and flushes them.
    ///
    /// # Errors
    /// The reader is gone or its disk is full. A part may have been written: a reader of a pipe cannot be told to forget.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        out.write_all(lines).and_then(|()| out.flush()).map_err(|source| Error::File {
            action: "write",
            path: PathBuf::from("stdout"),
            source,
        })
    }
}
