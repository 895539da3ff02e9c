//! Plugins in a wasmtime sandbox.
mod wit;
