//! Bindings of contract 0.1.0, generated from `wit/since_v0.1.0`, and the conversions between them and the types of this
//! crate. Nothing generated leaves this module's parent except inside the crate.

use kiteline_avro::{Kind, Layout, Logical};

use self::generated::kiteline::transform::types as wire;
use crate::manifest::{Format, InputDecl, Manifest, OutputDecl, Wants};

/// What the macro writes.
// The macro's output is not ours to document, and the host side of `emit` and `log` is linked by hand in `host.rs`, since
// generated signatures would copy every buffer and string.
#[allow(missing_docs, dead_code, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    wasmtime::component::bindgen!({ path: "../../wit/since_v0.1.0", world: "rows" });
}

pub(crate) use self::generated::{
    Rows, RowsPre,
    kiteline::transform::{
        host::Level,
        types::{EmitError, Fault, Limits, OpenContext, PortLayout},
    },
};

/// Name of the interface that guests import.
pub(crate) const HOST: &str = "kiteline:transform/host@0.1.0";
/// Name of the interface that the host calls.
pub(crate) const TRANSFORM: &str = "kiteline:transform/transform@0.1.0";
/// Name of the interface of the world without rows, which is recognised but not run yet.
pub(crate) const TRANSFORM_BYTES: &str = "kiteline:transform/transform-bytes@0.1.0";
/// Name of the world.
pub(crate) const WORLD: &str = "kiteline:transform/rows@0.1.0";
/// The contract itself, for load checks and for making components.
pub(crate) const TEXT: &str = include_str!("../../../../wit/since_v0.1.0/kiteline-transform.wit");

/// A manifest as the guest gave it, in the crate's own types.
pub(crate) fn manifest(manifest: wire::Manifest) -> Manifest {
    let wants = manifest.input.wants;
    Manifest {
        name: manifest.name,
        version: manifest.version,
        layout_revision: manifest.layout_revision,
        input: InputDecl {
            reader_schema: manifest.input.reader_schema,
            key_schema: manifest.input.key_schema,
            wants: Wants {
                key: wants.contains(wire::Wants::KEY),
                headers: wants.contains(wire::Wants::HEADERS),
                tombstones: wants.contains(wire::Wants::TOMBSTONES),
                undecodable: wants.contains(wire::Wants::UNDECODABLE),
            },
        },
        outputs: manifest.outputs.into_iter().map(output).collect(),
        stateless: manifest.stateless,
    }
}

fn output(output: wire::OutputDecl) -> OutputDecl {
    OutputDecl {
        name: output.name,
        format: match output.format {
            wire::OutputFormat::Same => Format::Same,
            wire::OutputFormat::Raw => Format::Raw,
            wire::OutputFormat::Avro(schema) => Format::Avro(schema),
        },
        key_schema: output.key_schema,
    }
}

/// A layout as the guest sees it.
pub(crate) fn layout(layout: &Layout) -> wire::Layout {
    wire::Layout {
        schema: layout.schema().text().to_owned(),
        fingerprint: layout.fingerprint().to_owned(),
        nodes: layout
            .nodes()
            .iter()
            .map(|node| wire::Node {
                kind: kind(&node.kind),
                name: node.name.as_deref().map(str::to_owned),
                logical: node.logical.as_ref().map(logical),
                slots: node.slots,
                null_bits: node.null_bits,
            })
            .collect(),
    }
}

fn kind(kind: &Kind) -> wire::NodeKind {
    match kind {
        Kind::Null => wire::NodeKind::Null,
        Kind::Boolean => wire::NodeKind::Boolean,
        Kind::Int => wire::NodeKind::Int,
        Kind::Long => wire::NodeKind::Long,
        Kind::Float => wire::NodeKind::Float,
        Kind::Double => wire::NodeKind::Double,
        Kind::Bytes => wire::NodeKind::Bytes,
        Kind::Text => wire::NodeKind::Text,
        Kind::Fixed(bytes) => wire::NodeKind::Fixed(*bytes),
        Kind::Enum(symbols) => wire::NodeKind::EnumOf(symbols.iter().map(|symbol| symbol.to_string()).collect()),
        Kind::Struct(fields) => wire::NodeKind::StructOf(
            fields
                .iter()
                .map(|field| wire::Field {
                    name: field.name.to_string(),
                    node: field.node,
                    slot: field.slot,
                    null_bit: field.null_bit,
                    number: field.number,
                })
                .collect(),
        ),
        Kind::Array(node) => wire::NodeKind::ArrayOf(*node),
        Kind::Map(node) => wire::NodeKind::MapOf(*node),
        Kind::Nullable(node) => wire::NodeKind::Nullable(*node),
        Kind::Union(nodes) => wire::NodeKind::UnionOf(nodes.to_vec()),
        Kind::Boxed(node) => wire::NodeKind::Boxed(*node),
    }
}

fn logical(logical: &Logical) -> wire::Logical {
    match logical {
        Logical::Date => wire::Logical::Date,
        Logical::TimeMillis => wire::Logical::TimeMillis,
        Logical::TimeMicros => wire::Logical::TimeMicros,
        Logical::TimestampMillis => wire::Logical::TimestampMillis,
        Logical::TimestampMicros => wire::Logical::TimestampMicros,
        Logical::TimestampNanos => wire::Logical::TimestampNanos,
        Logical::LocalTimestampMillis => wire::Logical::LocalTimestampMillis,
        Logical::LocalTimestampMicros => wire::Logical::LocalTimestampMicros,
        Logical::LocalTimestampNanos => wire::Logical::LocalTimestampNanos,
        Logical::Uuid => wire::Logical::Uuid,
        Logical::Duration => wire::Logical::Duration,
        Logical::Decimal { precision, scale } => {
            wire::Logical::Decimal(wire::DecimalType { precision: *precision, scale: *scale })
        }
        Logical::BigDecimal => wire::Logical::BigDecimal,
        Logical::Other(name) => wire::Logical::Other(name.to_string()),
    }
}
