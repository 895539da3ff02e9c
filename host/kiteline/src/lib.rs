//! The kiteline program as a library: arguments in, exit code out.

pub mod error;
pub mod layout;
pub mod output;
pub mod secrets;

pub mod config;

pub mod demo;
pub mod driver;
pub mod observe;

mod cli;

pub use cli::run;
