//! How a schema id is attached to bytes. Owns the framing only; the schema behind an id is the registry's.

/// How the values of a topic are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFormat {
    /// The value is the datum.
    Plain,
    /// A zero byte, the schema id in four bytes (big-endian), then the datum, as Confluent's serializers write it.
    Confluent,
}

/// Why a value has not the frame of its wire format. A fault of that record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// There are no bytes. Not the same as no value: that is a tombstone, and no frame is looked for.
    #[error("the value is empty, a frame has 5 bytes")]
    Empty,
    /// It begins as a frame and ends within.
    #[error("the value ends within its frame of 5 bytes")]
    Short,
    /// It begins with another byte than 0.
    #[error("the value begins with byte {0:#04x}, a frame with 0x00")]
    Magic(u8),
}

impl WireError {
    /// Stable word for codes and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Short => "short",
            Self::Magic(_) => "magic",
        }
    }
}

impl WireFormat {
    /// The schema id in a value's frame, if the format has one, and where the datum begins. Never call it for a tombstone.
    ///
    /// # Errors
    /// The value has not the frame of this format.
    pub fn strip(&self, value: &[u8]) -> Result<(Option<u32>, usize), WireError> {
        match (self, value) {
            (Self::Plain, _) => Ok((None, 0)),
            (Self::Confluent, []) => Err(WireError::Empty),
            (Self::Confluent, [0, a, b, c, d, ..]) => Ok((Some(u32::from_be_bytes([*a, *b, *c, *d])), 5)),
            (Self::Confluent, [0, ..]) => Err(WireError::Short),
            (Self::Confluent, [magic, ..]) => Err(WireError::Magic(*magic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 14, with the bytes given there.
    #[test]
    fn case_14_short_and_foreign_values() {
        let cases: [(&[u8], _); 8] = [
            (b"", Err(WireError::Empty)),
            (b"\x00", Err(WireError::Short)),
            (b"\x00\x00\x00\x00", Err(WireError::Short)),
            (b"Hello", Err(WireError::Magic(0x48))),
            (b"H", Err(WireError::Magic(0x48))),
            (b"\x00\x00\x00\x00\x05", Ok((Some(5), 5))),
            (b"\x00\x00\x00\x01\x02\x06abc", Ok((Some(258), 5))),
            (b"\x00\xff\xff\xff\xff", Ok((Some(u32::MAX), 5))),
        ];
        for (value, wanted) in cases {
            assert_eq!(WireFormat::Confluent.strip(value), wanted, "{value:?}");
            assert_eq!(WireFormat::Plain.strip(value), Ok((None, 0)));
        }
    }
}
