//! What the slots of an output may point at, what one batch may still cost, and how an entry fails.
//!
//! Owns the address rule of the row contract (revision 1): an offset below 2^31 counts in the input buffer as the host wrote it, one from
//! 2^31 in the output buffer of the guest. Nothing here knows schemas; every number comes from a guest and is checked before it is used.

use std::fmt;

/// First offset that means the output buffer; a slot holds the place in that buffer plus this.
pub const OUTPUT_BIT: u32 = 1 << 31;

/// First byte of the output buffer that a slot may point at: what lies before it is the header.
pub const OUTPUT_LOW: u32 = 32;

/// Where slots of an output may point: below 2^31 into `input[input_low..]`, from 2^31 into `output[32..]`.
#[derive(Clone, Copy, Debug)]
pub struct Refs<'a> {
    /// The host's own copy of the input buffer, never the guest's.
    pub input: &'a [u8],
    /// Start of the heap of the input buffer: rows and header are out of reach.
    pub input_low: u32,
    /// The output buffer that the guest handed over.
    pub output: &'a [u8],
}

impl<'a> Refs<'a> {
    /// The `len` bytes at `offset`. An empty range has no place, so its offset is not looked at.
    ///
    /// # Errors
    ///
    /// [`EntryCheck::Reference`] if the range is not wholly inside the part of its buffer that may be pointed at.
    #[inline]
    pub fn bytes(&self, offset: u32, len: u32) -> Result<&'a [u8], EntryError> {
        if len == 0 {
            return Ok(&[]);
        }
        self.range(offset, u64::from(len))
    }

    /// `count` frames of `stride` bytes each, side by side at `offset`. No bytes, no place: then the offset is not looked at.
    ///
    /// # Errors
    ///
    /// [`EntryCheck::Alignment`] if `offset` is not a multiple of 8, [`EntryCheck::Reference`] if the frames are not wholly inside.
    #[inline]
    pub fn frames(&self, offset: u32, stride: u32, count: u32) -> Result<&'a [u8], EntryError> {
        let len = u64::from(stride) * u64::from(count);
        if len == 0 {
            return Ok(&[]);
        }
        if !offset.is_multiple_of(8) {
            return Err(EntryCheck::Alignment.into());
        }
        self.range(offset, len)
    }

    #[inline]
    fn range(&self, offset: u32, len: u64) -> Result<&'a [u8], EntryError> {
        let (buffer, low, at) = if offset < OUTPUT_BIT {
            (self.input, self.input_low, offset)
        } else {
            (self.output, OUTPUT_LOW, offset - OUTPUT_BIT)
        };
        let end = u64::from(at) + len;
        if at < low || end > buffer.len() as u64 {
            return Err(EntryCheck::Reference.into());
        }
        Ok(&buffer[at as usize..end as usize])
    }
}

/// Work that one batch may still cost, in bytes: encoded, patched and kept bytes, and at least one for each element and each entry. Small
/// entries can point at the same large cells again and again, so the work is counted while it is done, failed entries included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What is left. It is 0 after an entry that would have needed more.
    pub bytes_left: u64,
}

impl Budget {
    /// A budget of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Budget {
        Budget { bytes_left: bytes }
    }

    /// Takes `bytes` off, or everything if less is left.
    pub fn charge(&mut self, bytes: u64) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }

    /// Whether nothing is left, so that the batch and not only this entry has reached its limit.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.bytes_left == 0
    }
}

/// The check that an entry failed; its source record is rejected with the code `transform.NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryCheck {
    /// A slot points outside the buffers, below the heap, or into a header.
    Reference,
    /// A frame does not lie at a multiple of 8.
    Alignment,
    /// The payload is shorter or longer than its frames.
    Length,
    /// Text or a map key is not UTF-8.
    Utf8,
    /// A number, boolean, symbol, branch or box is outside its range, or a patched value does not fit the writer's type.
    Range,
    /// A fixed has another size.
    Size,
    /// A bit behind the last null bit is set.
    SpareBits,
    /// Cells lie deeper in each other than the limit.
    Depth,
    /// The field numbers of a patch are unknown, not ascending, or lie inside each other.
    Field,
    /// A field beneath a null struct was patched.
    NullParent,
    /// A struct was set as a whole although the plugin does not see all its fields.
    Incomplete,
    /// The schema of the result has no such field.
    Target,
    /// The original cannot be decoded, so it cannot be patched.
    Undecodable,
    /// The result is larger than a record, or the batch larger than its budget.
    TooLarge,
    /// The topic is not a legal or not a granted one.
    Topic,
}

impl EntryCheck {
    /// The name in the contract, the last part of the code `transform.NAME`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// One sentence for a report, lower case, no full stop.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            EntryCheck::Reference => ("reference", "a slot points outside what it may point at"),
            EntryCheck::Alignment => ("alignment", "a frame does not lie at a multiple of 8"),
            EntryCheck::Length => ("length", "the payload is not as long as its frames"),
            EntryCheck::Utf8 => ("utf8", "a text or map key is not UTF-8"),
            EntryCheck::Range => ("range", "a value is outside the range of its type"),
            EntryCheck::Size => ("size", "a fixed has another size than its type"),
            EntryCheck::SpareBits => ("spare-bits", "a bit behind the last null bit is set"),
            EntryCheck::Depth => ("depth", "cells lie deeper in each other than the limit"),
            EntryCheck::Field => ("field", "field numbers are unknown, not ascending, or nested"),
            EntryCheck::NullParent => ("null-parent", "a field beneath a null struct was patched"),
            EntryCheck::Incomplete => {
                ("incomplete", "a struct was set as a whole although the reader schema lacks some of its fields")
            }
            EntryCheck::Target => ("target", "the schema of the result has no such field"),
            EntryCheck::Undecodable => ("undecodable", "the original cannot be decoded"),
            EntryCheck::TooLarge => ("too-large", "the result is larger than the limit"),
            EntryCheck::Topic => ("topic", "the topic is not legal or not granted"),
        }
    }
}

impl fmt::Display for EntryCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// One entry of an output buffer failed a check, so its source record is rejected. The batch goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EntryError(
    /// Which check.
    pub EntryCheck,
);

impl From<EntryCheck> for EntryError {
    fn from(check: EntryCheck) -> EntryError {
        EntryError(check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_choose_their_buffer_and_stay_inside() {
        let input: Vec<u8> = (0..64).collect();
        let output: Vec<u8> = (100..180).collect();
        let refs = Refs { input: &input, input_low: 48, output: &output };
        let reference = Err(EntryError(EntryCheck::Reference));
        let cases: &[(u32, u32, Result<&[u8], EntryError>)] = &[
            (48, 2, Ok(&[48, 49])),
            (47, 2, reference),
            (62, 2, Ok(&[62, 63])),
            (63, 2, reference),
            (64, 1, reference),
            (0, 0, Ok(&[])),
            (OUTPUT_BIT, 1, reference),
            (OUTPUT_BIT + 31, 1, reference),
            (OUTPUT_BIT + 32, 1, Ok(&[132])),
            (OUTPUT_BIT + 79, 1, Ok(&[179])),
            (OUTPUT_BIT + 79, 2, reference),
            (u32::MAX, u32::MAX, reference),
            (u32::MAX, 0, Ok(&[])),
        ];
        for (offset, len, want) in cases {
            assert_eq!(refs.bytes(*offset, *len), *want, "{offset} {len}");
        }
    }

    #[test]
    fn frames_are_aligned_and_their_length_does_not_wrap() {
        let input = vec![7; 64];
        let refs = Refs { input: &input, input_low: 8, output: &[] };
        assert_eq!(refs.frames(8, 16, 2).map(<[u8]>::len), Ok(32));
        assert_eq!(refs.frames(9, 16, 2), Err(EntryError(EntryCheck::Alignment)));
        assert_eq!(refs.frames(8, 16, 4), Err(EntryError(EntryCheck::Reference)));
        assert_eq!(refs.frames(8, u32::MAX, u32::MAX), Err(EntryError(EntryCheck::Reference)));
        assert_eq!(refs.frames(9, 0, u32::MAX), Ok(&[][..]));
        assert_eq!(refs.frames(9, 8, 0), Ok(&[][..]));
    }
}
