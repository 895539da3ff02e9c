//! Avro schemas compiled to plans, and the buffers of the row contract: bytes that producers wrote become rows, rows that guests
//! wrote become bytes. Knows no connector, no sandbox and no registry. Everything it reads may be hostile: each datum gives a value
//! or an error with its position, in bounded memory, time and depth.

#![forbid(unsafe_code)]

mod encode;
mod error;
mod json;
mod layout;
mod limits;
mod patch;
mod plan;
mod refs;
mod schema;
mod wire;

pub use encode::Encoder;
pub use error::{DatumCode, DatumError, PlanError, Reason, SchemaError};
pub use json::to_json;
pub use layout::{Field, Kind, Layout, LayoutNode};
pub use limits::Limits;
pub use patch::Patcher;
pub use plan::Plan;
pub use refs::{Budget, EntryCheck, EntryError, OUTPUT_BIT, OUTPUT_LOW, Refs};
pub use schema::{
    EnumType, FixedType, Logical, RecordType, Schema, SchemaField, SchemaId, SchemaKind, SchemaNode, TypeName,
};
