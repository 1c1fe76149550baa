//! Bounds-checked reading and writing of the primitives that all formats use.
//!
//! | primitive | form                                                          |
//! |-----------|---------------------------------------------------------------|
//! | varint    | LEB128, 7 bits a byte, low first, at most 10 bytes, shortest  |
//! | zigzag    | signed as varint: 0, -1, 1, -2 … become 0, 1, 2, 3 …          |
//! | u16…u64   | little-endian                                                 |
//! | bytes     | varint length, then that many bytes                           |

use crate::base::{kind::ErrorKind, name::NameError};

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes end in the middle of `what`.
    #[error("{what} ends too early, at byte {at}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// Bytes remain after the value.
    #[error("{extra} bytes too many after byte {at}")]
    Trailing {
        /// Where the value ended.
        at: usize,
        /// How many follow.
        extra: usize,
    },
    /// The magic number is another.
    #[error("this is not a {what}: its magic number is wrong")]
    Magic {
        /// What was expected.
        what: &'static str,
    },
    /// Written by a newer version.
    #[error("{what} has format version {found}; this snap reads up to {known}")]
    Newer {
        /// What it is.
        what: &'static str,
        /// Its version.
        found: u32,
        /// The newest one known.
        known: u32,
    },
    /// A length or count is beyond its ceiling.
    #[error("{what} is {claimed}, more than {limit}")]
    Limit {
        /// What is too large.
        what: &'static str,
        /// What it says.
        claimed: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A value that no writer produces.
    #[error("{what} is not valid, at byte {at}")]
    Invalid {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// Entries are not in strictly increasing order.
    #[error("{what} are not in order, at byte {at}")]
    Order {
        /// Which.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// A checksum does not match.
    #[error("the checksum of {what} does not match")]
    Checksum {
        /// Of what.
        what: &'static str,
    },
    /// An entry name could climb or break the listing.
    #[error("bad entry name at byte {at}")]
    Name {
        /// Where.
        at: usize,
        /// Which rule it breaks.
        source: NameError,
    },
}

impl FormatError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Newer { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Damaged,
        }
    }
}

/// Appends primitives to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Starts with an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends to `bytes`.
    pub fn on(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The bytes so far.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// How many bytes there are so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A varint.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// A signed varint.
    pub fn zigzag(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    /// Bytes without their length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes with their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }
}

/// Reads primitives off a slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes have been read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// How many bytes remain.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    pub fn raw(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], FormatError> {
        match self.bytes[self.at..].get(..len) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(FormatError::Truncated { what, at: self.at }),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        let bytes = self.raw(what, N)?;
        bytes.try_into().map_err(|_| FormatError::Truncated { what, at: self.at })
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, FormatError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    /// Four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A digest.
    pub fn digest(&mut self, what: &'static str) -> Result<[u8; 32], FormatError> {
        self.array(what)
    }

    /// A varint in its shortest form.
    pub fn varint(&mut self, what: &'static str) -> Result<u64, FormatError> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(FormatError::Invalid { what, at: start })
    }

    /// A varint of at most `limit`.
    pub fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, FormatError> {
        let claimed = self.varint(what)?;
        let limit = limit as u64;
        if claimed > limit {
            return Err(FormatError::Limit { what, claimed, limit });
        }
        Ok(claimed as usize)
    }

    /// A varint that fits in 32 bits.
    pub fn varint_u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        let claimed = self.varint(what)?;
        let limit = u64::from(u32::MAX);
        u32::try_from(claimed).map_err(|_| FormatError::Limit { what, claimed, limit })
    }

    /// A signed varint.
    pub fn zigzag(&mut self, what: &'static str) -> Result<i64, FormatError> {
        let value = self.varint(what)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Bytes with their length, of at most `limit`.
    pub fn bytes(&mut self, what: &'static str, limit: usize) -> Result<&'a [u8], FormatError> {
        let len = self.count(what, limit)?;
        self.raw(what, len)
    }

    /// Text with its length, of at most `limit` bytes.
    pub fn text(&mut self, what: &'static str, limit: usize) -> Result<&'a str, FormatError> {
        let at = self.at;
        let bytes = self.bytes(what, limit)?;
        std::str::from_utf8(bytes).map_err(|_| FormatError::Invalid { what, at })
    }

    /// Ends the reading; nothing may remain.
    pub fn finish(self) -> Result<(), FormatError> {
        match self.remaining() {
            0 => Ok(()),
            extra => Err(FormatError::Trailing { at: self.at, extra }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_only_in_their_shortest_form() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut w = Writer::new();
            w.varint(value);
            let bytes = w.finish();
            let mut r = Reader::new(&bytes);
            assert_eq!(r.varint("v"), Ok(value));
            r.finish().unwrap();
        }
        for bad in [&[0x80, 0x00][..], &[0xff; 10], &[0x81, 0x80, 0x00]] {
            assert!(
                matches!(Reader::new(bad).varint("v"), Err(FormatError::Invalid { .. })),
                "{bad:?}"
            );
        }
        assert!(matches!(Reader::new(&[0x80]).varint("v"), Err(FormatError::Truncated { .. })));
    }

    #[test]
    fn signed_varints_come_back() {
        for value in [0, -1, 1, i64::MIN, i64::MAX, -86_400] {
            let mut w = Writer::new();
            w.zigzag(value);
            assert_eq!(Reader::new(&w.finish()).zigzag("z"), Ok(value));
        }
    }

    #[test]
    fn a_length_beyond_its_ceiling_is_refused_before_it_is_used() {
        let mut w = Writer::new();
        w.varint(u64::MAX);
        let bytes = w.finish();
        assert!(matches!(Reader::new(&bytes).bytes("b", 10), Err(FormatError::Limit { .. })));
    }
}
