//! Plugins in a wasmtime sandbox.
