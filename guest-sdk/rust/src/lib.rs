//! Owns what a transform in Rust needs: the trait, rows, outcomes, the native test harness. Not the sandbox itself.
//!
#![doc = include_str!("../README.md")]

// in reading order
mod transform;

mod context;
mod export;
mod host;
mod manifest;
mod schema;

mod field;
mod layout;
mod read;
mod row;
mod value;
mod views;
mod write;

mod build;
mod out;

mod error;
mod run;

mod arena;
mod buffer;

#[cfg(not(target_family = "wasm"))]
pub mod testing;
#[cfg(target_family = "wasm")]
mod wit;

pub use build::Build;
pub use context::{Config, Context, Limits, PortInfo};
pub use error::{EmitError, Error, Fault, Result, UNCAUGHT};
pub use field::Field;
pub use host::{Level, count, log};
pub use layout::{Kind, Layout, Logical, Node, Scope, StructField, fingerprint};
pub use manifest::{Format, LAYOUT_REVISION, Manifest, Output};
pub use out::{HeaderEdit, Out, Port, With};
pub use read::{Bytes, List, Map, Struct, Symbol, Text, Type, Union};
pub use row::{Header, Row};
pub use run::Running;
pub use schema::Schema;
pub use transform::Transform;
pub use value::Value;
pub use views::{Any, AnyValue, ListView, MapView, StructView, UnionView};
pub use write::{Entries, Items, Put};

/// What nearly every transform uses.
pub mod prelude {
    pub use crate::{
        Bytes, Config, Context, Error, Field, HeaderEdit, Items, List, Manifest, Map, Out, Port, Result, Row, Schema,
        Struct, Symbol, Text, Transform, With, count, log,
    };
}

// the generated code names this crate from within and from without
#[cfg(target_family = "wasm")]
extern crate self as kiteline_guest;

/// For `export!` alone.
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod __rt {
    pub use crate::wit::{
        Cell, bindings, bindings::export_rows, bindings::exports::kiteline::transform::transform as guest, describe,
        flush, open, process,
    };
    pub use wit_bindgen::rt as wit_bindgen_rt;
}
