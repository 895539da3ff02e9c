//! The error of an author's code and of the SDK: a code and a sentence. Returned from `record` it rejects that one record.

use std::fmt;

/// What a transform's functions return.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Code of a reject that comes from an error without a code of its own.
pub const UNCAUGHT: u32 = 1;

/// A failure with a sentence for people and a code for dead-letter consumers.
///
/// It takes any `std::error::Error` by `?` (causes are appended to the text), so it does not implement that trait itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: u32,
    message: String,
}

impl Error {
    /// An error with code 1.
    pub fn new(message: impl Into<String>) -> Error {
        Error { code: UNCAUGHT, message: message.into() }
    }

    /// An error with the author's own code; codes from 100 are the author's, at most 2^31 - 1.
    pub fn with_code(code: u32, message: impl Into<String>) -> Error {
        Error { code, message: message.into() }
    }

    /// The code.
    pub fn code(&self) -> u32 {
        self.code
    }

    /// The sentence.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Error {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        Error::new(message)
    }
}

/// Why the host refused an output buffer. The batch is lost (and replayed in parts where the transform is stateless).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The outputs of the batch are larger than `emit_bytes_max`.
    BytesLimit,
    /// There are more outputs than `emit_entries_max`.
    EntriesLimit,
    /// Not within `process`.
    NoBatch,
    /// A check of the buffer failed; the text names entry and check.
    Malformed(String),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::BytesLimit => f.write_str("the batch's outputs pass the limit of bytes"),
            EmitError::EntriesLimit => f.write_str("the batch has more outputs than the limit of entries"),
            EmitError::NoBatch => f.write_str("outputs were sent outside a batch"),
            EmitError::Malformed(what) => write!(f, "the host refused the outputs: {what}"),
        }
    }
}

/// The whole batch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The guilty row, where it is known.
    pub at: Option<u32>,
    /// What happened.
    pub message: String,
}
