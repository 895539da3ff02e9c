//! x
#![allow(missing_docs, dead_code, unreachable_pub, clippy::all)]
wasmtime::component::bindgen!({ path: "../../wit/since_v0.1.0", world: "rows" });
