//! The contract on the host's side: one module per breaking version, each with its bindings and conversions. Generated types
//! stop here; behaviour sits in `host.rs` and `instance.rs`, once.

pub(crate) mod since_v0_1_0;
