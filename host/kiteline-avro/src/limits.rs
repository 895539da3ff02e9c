//! Every bound of this crate, with its default and the reason. Units are in the names.
//! Bounds of whole batches and of the engine are elsewhere.

/// Bytes of one schema text, references included. Larger ones are data by mistake, not schemas.
pub(crate) const SCHEMA_BYTES_MAX: usize = 1 << 20;
/// Nesting of a schema as written and as laid out. The JSON reader itself ends at 128.
pub(crate) const SCHEMA_DEPTH_MAX: u32 = 128;
/// Slots of one struct, from the row contract: a frame stays below 33 KiB.
pub(crate) const STRUCT_SLOTS_MAX: u32 = 4_096;
/// Nodes of a layout, from the row contract.
pub(crate) const LAYOUT_NODES_MAX: usize = 16_384;
/// Null bits and field numbers of one struct. Fields of type null take no slot, so the bound on slots alone does not hold them.
pub(crate) const STRUCT_NUMBERS_MAX: u32 = 65_536;
/// Offsets of the row contract are below 2^31, in both directions.
pub(crate) const BUFFER_BYTES_MAX: usize = (1 << 31) - 1;

/// Bytes that one record may take as Avro JSON. A mebibyte of small numbers under long names is about 40 of them.
pub(crate) const JSON_BYTES_MAX: usize = 64 << 20;

/// Bounds of decoding and encoding one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nesting of a value: the root is at 0, each element, entry, branch or box one deeper than its holder.
    pub depth_max: u32,
    /// Bytes of one encoded record. The broker's default for a message is about this.
    pub record_bytes_max: u32,
    /// Items without bytes (nulls, empty structs) in the arrays of one record: ten bytes can claim billions of them.
    pub empty_items_max: u32,
    /// Operations of one compiled program. Bounds the memory of a cached plan and the time to compile it.
    pub program_ops_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth_max: 64, record_bytes_max: 1 << 20, empty_items_max: 65_536, program_ops_max: 65_536 }
    }
}
