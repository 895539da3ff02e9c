//! The two buffers of the contract, revision 1 (wit/README.md): the input buffer as the host writes it, the output buffer as a guest
//! hands it over. Not here: values, which `kiteline-avro` writes and reads, and what an entry does.

pub(crate) mod input;
pub(crate) mod output;

/// Length in a slot that means null.
pub(crate) const NULL: u32 = u32::MAX;

/// Little-endian u32 at `at`, which the caller knows to be inside.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes[at..].first_chunk().expect("the caller knows that four bytes are there");
    u32::from_le_bytes(*four)
}

/// Little-endian i64 at `at`, which the caller knows to be inside.
#[inline]
pub(crate) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let eight = bytes[at..].first_chunk().expect("the caller knows that eight bytes are there");
    i64::from_le_bytes(*eight)
}

/// A slot: offset and length, or offset and count.
#[inline]
pub(crate) fn slot_at(bytes: &[u8], at: usize) -> (u32, u32) {
    (u32_at(bytes, at), u32_at(bytes, at + 4))
}
