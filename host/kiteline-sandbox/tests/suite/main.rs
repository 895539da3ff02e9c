//! The sandbox as its users see it: components in, outcomes out. One binary, since each one links the whole compiler.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

mod guest;
mod load;
mod outcomes;
mod troubles;
