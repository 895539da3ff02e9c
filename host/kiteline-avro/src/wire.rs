//! Avro's binary primitives over a bounded cursor: varints, lengths, text. Knows no schema. Every read is checked against the end of the
//! datum, and nothing moves when it fails, so that a fault points at the value that is wrong.

use crate::error::{Fault, Reason};

/// A place in a datum.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'d> {
    /// The whole datum, below 2^31 bytes.
    pub(crate) datum: &'d [u8],
    /// The next byte to read.
    pub(crate) at: usize,
}

/// The high bits of the first n bytes of sixteen, by n.
const HIGH_BITS: [u128; 17] = {
    let mut masks = [0; 17];
    let mut n = 1;
    while n <= 16 {
        masks[n] = masks[n - 1] | (0x80 << (8 * (n - 1)));
        n += 1;
    }
    masks
};

/// A short run of bytes, or one that must be copied by its length.
pub(crate) enum Span<'d> {
    /// The first `.1` of these sixteen bytes; all sixteen can be copied at once.
    Short(&'d [u8; 16], usize),
    /// Any length.
    Long(&'d [u8]),
}

impl<'d> Span<'d> {
    /// The bytes themselves.
    pub(crate) fn as_bytes(&self) -> &'d [u8] {
        match self {
            Span::Short(chunk, len) => &chunk[..*len],
            Span::Long(bytes) => bytes,
        }
    }

    /// Bytes of it.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Span::Short(_, len) => *len,
            Span::Long(bytes) => bytes.len(),
        }
    }
}

impl<'d> Cursor<'d> {
    /// A fault at this place.
    #[inline(always)]
    pub(crate) fn fault(&self, reason: Reason) -> Fault {
        Fault { at: self.at as u32, reason }
    }

    /// Bytes not read yet.
    #[inline(always)]
    pub(crate) fn left(&self) -> usize {
        self.datum.len() - self.at
    }

    /// The unsigned number of a varint, before the zigzag.
    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Result<u64, Fault> {
        match self.datum.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.varint_long(),
        }
    }

    /// Two to eight bytes at once: the last one is the first without its high bit, and the groups of seven bits are pushed together in
    /// three steps.
    #[inline(always)]
    fn varint_long(&mut self) -> Result<u64, Fault> {
        let Some(eight) = self.datum[self.at..].first_chunk::<8>() else {
            return self.varint_by_bytes();
        };
        let word = u64::from_le_bytes(*eight);
        let stops = !word & 0x8080_8080_8080_8080;
        if stops == 0 {
            return self.varint_by_bytes();
        }
        let bits = stops.trailing_zeros(); // 8 * bytes - 1
        let groups = word & (stops ^ stops.wrapping_sub(1)) & 0x7f7f_7f7f_7f7f_7f7f;
        if groups >> (bits - 7) == 0 {
            return Err(self.fault(Reason::VarintPadded));
        }
        let pairs = (groups & 0x007f_007f_007f_007f) | ((groups & 0x7f00_7f00_7f00_7f00) >> 1);
        let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
        self.at += (bits as usize + 1) / 8;
        Ok((fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4))
    }

    #[inline(always)]
    fn varint_by_bytes(&mut self) -> Result<u64, Fault> {
        let (value, at) = self.varint_slow()?;
        self.at = at;
        Ok(value)
    }

    /// Nine and ten bytes, the last bytes of the datum, and what is wrong. Takes the cursor by value, as every call that is not inlined
    /// does: a cursor whose address is taken lives in memory, and each read would wait for the store before it.
    #[cold]
    #[inline(never)]
    fn varint_slow(self) -> Result<(u64, usize), Fault> {
        let mut value = 0u64;
        for (index, &byte) in self.datum[self.at..].iter().take(10).enumerate() {
            if index == 9 && byte > 1 {
                return Err(self.fault(Reason::VarintLong));
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                if byte == 0 && index > 0 {
                    return Err(self.fault(Reason::VarintPadded));
                }
                return Ok((value, self.at + index + 1));
            }
        }
        Err(self.fault(Reason::End))
    }

    /// A long.
    #[inline(always)]
    pub(crate) fn long(&mut self) -> Result<i64, Fault> {
        self.varint().map(zigzag)
    }

    /// An int: a long within 32 bits.
    #[inline(always)]
    pub(crate) fn int(&mut self) -> Result<i64, Fault> {
        let before = *self;
        let raw = self.varint()?;
        if raw > u64::from(u32::MAX) {
            return Err(before.fault(Reason::IntRange));
        }
        Ok(zigzag(raw))
    }

    /// An index below `count`, of an enum or a union.
    #[inline(always)]
    pub(crate) fn index(&mut self, count: u32, reason: Reason) -> Result<u32, Fault> {
        let before = *self;
        let raw = self.varint()?;
        // odd numbers are negative
        if raw & 1 == 1 || raw >> 1 >= u64::from(count) {
            return Err(before.fault(reason));
        }
        Ok((raw >> 1) as u32)
    }

    /// A boolean, 0 or 1.
    #[inline(always)]
    pub(crate) fn boolean(&mut self) -> Result<u64, Fault> {
        match self.datum.get(self.at) {
            Some(&byte @ (0 | 1)) => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            Some(_) => Err(self.fault(Reason::Boolean)),
            None => Err(self.fault(Reason::End)),
        }
    }

    /// Four bytes.
    #[inline(always)]
    pub(crate) fn float(&mut self) -> Result<f32, Fault> {
        self.chunk::<4>().map(|bytes| f32::from_le_bytes(*bytes))
    }

    /// Eight bytes.
    #[inline(always)]
    pub(crate) fn double(&mut self) -> Result<[u8; 8], Fault> {
        self.chunk::<8>().copied()
    }

    #[inline(always)]
    fn chunk<const N: usize>(&mut self) -> Result<&'d [u8; N], Fault> {
        match self.datum[self.at..].first_chunk::<N>() {
            Some(bytes) => {
                self.at += N;
                Ok(bytes)
            }
            None => Err(self.fault(Reason::End)),
        }
    }

    /// Goes over bytes without looking at them.
    #[inline(always)]
    pub(crate) fn skip(&mut self, count: u32) -> Result<(), Fault> {
        if count as usize > self.left() {
            return Err(self.fault(Reason::End));
        }
        self.at += count as usize;
        Ok(())
    }

    /// A given number of bytes.
    #[inline(always)]
    pub(crate) fn fixed(&mut self, count: u32) -> Result<Span<'d>, Fault> {
        if count as usize > self.left() {
            return Err(self.fault(Reason::End));
        }
        Ok(self.take(count as usize))
    }

    /// A length within the datum.
    #[inline(always)]
    fn len(&mut self) -> Result<usize, Fault> {
        let before = *self;
        let raw = self.varint()?;
        if raw & 1 == 1 {
            return Err(before.fault(Reason::LengthNegative));
        }
        if raw >> 1 > self.left() as u64 {
            return Err(before.fault(Reason::LengthBeyondEnd));
        }
        Ok((raw >> 1) as usize)
    }

    /// A length and as many bytes.
    #[inline(always)]
    pub(crate) fn bytes(&mut self) -> Result<Span<'d>, Fault> {
        let len = self.len()?;
        Ok(self.take(len))
    }

    /// A length and as many bytes of UTF-8.
    #[inline(always)]
    pub(crate) fn text(&mut self) -> Result<Span<'d>, Fault> {
        let before = *self;
        let span = self.bytes()?;
        let ascii = match span {
            Span::Short(chunk, len) => u128::from_le_bytes(*chunk) & HIGH_BITS[len] == 0,
            Span::Long(bytes) => ascii(bytes),
        };
        if ascii || utf8(&before.datum[self.at - span.len()..self.at]) {
            return Ok(span);
        }
        Err(before.fault(Reason::Utf8))
    }

    /// Count of a block of items, and where it must end if it says so: "if a block's count is negative, its absolute value is used, and the
    /// count is followed immediately by a long block size" (Avro 1.12, "Arrays").
    #[inline(always)]
    pub(crate) fn block_head(&mut self) -> Result<(u64, Option<usize>), Fault> {
        let before = *self;
        let count = self.long()?;
        if count >= 0 {
            return Ok((count as u64, None));
        }
        if count == i64::MIN {
            return Err(before.fault(Reason::CountMinimum));
        }
        let sized = *self;
        let size = self.long()?;
        match usize::try_from(size) {
            Ok(size) if size <= self.left() => Ok((count.unsigned_abs(), Some(self.at + size))),
            _ => Err(sized.fault(Reason::BlockSize)),
        }
    }

    /// Bytes that are known to be there.
    #[inline(always)]
    fn take(&mut self, len: usize) -> Span<'d> {
        let rest = &self.datum[self.at..];
        self.at += len;
        match rest.first_chunk::<16>() {
            Some(chunk) if len <= 16 => Span::Short(chunk, len),
            _ => Span::Long(&rest[..len]),
        }
    }
}

/// The signed number of a zigzag one.
#[inline(always)]
fn zigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// Sixteen bytes at a time; the last sixteen may overlap those before.
#[inline(always)]
fn ascii(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<16>() else {
        return bytes.iter().fold(0, |all, byte| all | byte) < 0x80;
    };
    let mut all = u128::from_le_bytes(*last);
    for chunk in bytes.as_chunks::<16>().0 {
        all |= u128::from_le_bytes(*chunk);
    }
    all & HIGH_BITS[16] == 0
}

/// Apart from `from_utf8`, so that the hot path has one call for what is rare in ids and common in names.
#[inline(never)]
fn utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Result<(u64, usize), Reason> {
        let mut cursor = Cursor { datum: bytes, at: 0 };
        cursor.varint().map(|value| (value, cursor.at)).map_err(|fault| fault.reason)
    }

    fn encoded(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    #[test]
    fn varints_of_every_length_alone_and_before_other_bytes() {
        let mut value = 1u64;
        for bits in 0..64 {
            for value in [value, value | (value >> 1), value.wrapping_sub(1), u64::MAX >> bits] {
                let mut bytes = encoded(value);
                let len = bytes.len();
                assert_eq!(varint(&bytes), Ok((value, len)), "{bytes:x?}");
                for more in [0x00, 0x7f, 0xff] {
                    bytes.resize(len + 9, more);
                    assert_eq!(varint(&bytes), Ok((value, len)), "{bytes:x?}");
                    bytes.truncate(len);
                }
                if len > 1 {
                    assert_eq!(varint(&bytes[..len - 1]), Err(Reason::End));
                }
            }
            value <<= 1;
        }
    }

    #[test]
    fn varints_that_are_none() {
        let nines = [0xff; 16];
        let cases: [(&[u8], Reason); 9] = [
            (&[], Reason::End),
            (&[0x80], Reason::End),
            (&[0x80, 0x00], Reason::VarintPadded),
            (&[0x81, 0x80, 0x00], Reason::VarintPadded),
            (&[0x81, 0x80, 0x00, 1, 2, 3, 4, 5, 6], Reason::VarintPadded),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Reason::VarintPadded),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], Reason::VarintLong),
            (&nines, Reason::VarintLong),
            (&nines[..9], Reason::End),
        ];
        for (bytes, reason) in cases {
            assert_eq!(varint(bytes), Err(reason), "{bytes:x?}");
        }
        assert_eq!(varint(&encoded(u64::MAX)), Ok((u64::MAX, 10)));
    }

    #[test]
    fn text_of_every_length_and_one_wrong_byte_at_every_place() {
        for len in 0..70usize {
            for tail in [0, 20] {
                let mut bytes = encoded(2 * len as u64);
                let start = bytes.len();
                bytes.resize(start + len, b'a');
                bytes.resize(start + len + tail, 0xff);
                let read = |bytes: &[u8]| {
                    let mut cursor = Cursor { datum: bytes, at: 0 };
                    cursor.text().map(|span| (span.len(), cursor.at)).map_err(|fault| (fault.at, fault.reason))
                };
                assert_eq!(read(&bytes), Ok((len, start + len)));
                for wrong in 0..len {
                    bytes[start + wrong] = 0xc3;
                    assert_eq!(read(&bytes), Err((0, Reason::Utf8)), "{len} {wrong}");
                    if wrong + 1 < len {
                        bytes[start + wrong + 1] = 0xa9;
                        assert_eq!(read(&bytes), Ok((len, start + len)));
                        bytes[start + wrong + 1] = b'a';
                    }
                    bytes[start + wrong] = b'a';
                }
            }
        }
    }
}
