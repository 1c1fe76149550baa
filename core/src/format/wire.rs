//! Bounds-checked reading and writing of the primitives that all formats use.
//!
//! | primitive | form                                                          |
//! |-----------|---------------------------------------------------------------|
//! | varint    | LEB128: 7 bits per byte, low bits first, at most 10 bytes, shortest form |
//! | zigzag    | signed as varint: 0, -1, 1, -2 … become 0, 1, 2, 3 …          |
//! | u16…u64   | little-endian                                                 |
//! | bytes     | varint length, then that many bytes                           |
//! | time      | seconds since 1970, i64; nanoseconds below 10^9, u32          |

use std::{cmp::Ordering, collections::BTreeSet};

use crate::base::{
    kind::{ErrorKind, Kind},
    name::NameError,
    time::Time,
};

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Kind)]
#[kind(Damaged)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes end within the field that begins at `at`.
    #[error("{what} is truncated at byte {at}")]
    Truncated { what: &'static str, at: usize },
    /// Bytes remain after the value, which ends at `at`.
    #[error("{extra} extra bytes after byte {at}")]
    Trailing { at: usize, extra: usize },
    /// The magic number is wrong.
    #[error("not a {what}: wrong magic number")]
    Magic { what: &'static str },
    /// A newer version wrote the data.
    #[error("{what} has format version {found}; this snap reads up to {known}")]
    #[kind(Unsupported)]
    Newer { what: &'static str, found: u32, known: u32 },
    /// A version from before the first release wrote the data.
    #[error(
        "{what} has format version {found}, from before the first release; this snap reads version {known}"
    )]
    #[kind(Unsupported)]
    Older { what: &'static str, found: u32, known: u32 },
    /// A length or count exceeds its limit.
    #[error("{what} is {claimed}; the limit is {limit}")]
    Limit { what: &'static str, claimed: u64, limit: u64 },
    /// A field has a value that no writer produces.
    #[error("invalid {what} at byte {at}")]
    Invalid { what: &'static str, at: usize },
    /// Items are not in strictly increasing order; the first item out of order is at `at`.
    #[error("{what} are out of order at byte {at}")]
    Order { what: &'static str, at: usize },
    /// A checksum does not match.
    #[error("the checksum of {what} does not match")]
    Checksum { what: &'static str },
    /// An entry name could lead out of its folder or break the listing.
    #[error("invalid entry name at byte {at}")]
    #[kind(Damaged)]
    Name { at: usize, source: NameError },
}

impl FormatError {
    /// Returns true if another version of snap wrote the data.
    pub fn is_of_version(&self) -> bool {
        self.kind() == ErrorKind::Unsupported
    }

    /// Fails if a length or count exceeds its limit.
    pub fn check_limit(what: &'static str, claimed: u64, limit: u64) -> Result<(), Self> {
        if claimed > limit { Err(Self::Limit { what, claimed, limit }) } else { Ok(()) }
    }

    /// Fails if the version differs from the known one. There is only one version of each format: a
    /// lower number is from before the first release.
    pub fn check_version(
        what: &'static str,
        found: impl Into<u32>,
        known: impl Into<u32>,
    ) -> Result<(), Self> {
        let (found, known) = (found.into(), known.into());
        match found.cmp(&known) {
            Ordering::Less => Err(Self::Older { what, found, known }),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(Self::Newer { what, found, known }),
        }
    }
}

/// Appends primitives to a buffer.
#[derive(Debug, Default)]
pub struct WireWriter {
    bytes: Vec<u8>,
}

impl WireWriter {
    /// Creates a writer with an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a writer that appends to `bytes`.
    pub fn on(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Returns the bytes written so far.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the number of bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Writes two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a time.
    pub(super) fn time(&mut self, time: Time) {
        self.u64(time.secs as u64);
        self.u32(time.nanos);
    }

    /// Writes a varint.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Writes a signed varint.
    pub fn zigzag(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    /// Writes bytes without their length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes bytes with their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }
}

/// Reads primitives from a slice.
#[derive(Debug, Clone)]
pub struct WireReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> WireReader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Reads the next `len` bytes.
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

    /// Reads one byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, FormatError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Reads two bytes.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    /// Reads four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Reads eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads a digest.
    pub fn digest(&mut self, what: &'static str) -> Result<[u8; 32], FormatError> {
        self.array(what)
    }

    /// Reads a byte, which must be the code of one of `values`.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        what: &'static str,
        values: &[(u8, T)],
    ) -> Result<T, FormatError> {
        let (at, code) = (self.at, self.u8(what)?);
        let value = values.iter().find(|(of, _)| *of == code).map(|(_, value)| *value);
        value.ok_or(FormatError::Invalid { what, at })
    }

    /// Reads a time.
    pub(super) fn time(&mut self, what: &'static str) -> Result<Time, FormatError> {
        let at = self.at;
        let time = Time { secs: self.u64(what)? as i64, nanos: self.u32(what)? };
        if time.nanos < 1_000_000_000 { Ok(time) } else { Err(FormatError::Invalid { what, at }) }
    }

    /// Reads items, which must be sorted and occur once.
    pub(super) fn sorted<T: Ord>(
        &mut self,
        count: usize,
        what: &'static str,
        read: impl Fn(&mut Self) -> Result<T, FormatError>,
    ) -> Result<BTreeSet<T>, FormatError> {
        let mut items = BTreeSet::new();
        for _ in 0..count {
            let at = self.at;
            let item = read(self)?;
            if items.last().is_some_and(|last| *last >= item) {
                return Err(FormatError::Order { what, at });
            }
            items.insert(item);
        }
        Ok(items)
    }

    /// Reads a varint, which must have its shortest form.
    pub fn varint(&mut self, what: &'static str) -> Result<u64, FormatError> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // A zero last byte adds no bits, so a shorter form exists.
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(FormatError::Invalid { what, at: start })
    }

    /// Reads a varint of at most `limit`.
    pub fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, FormatError> {
        let claimed = self.varint(what)?;
        FormatError::check_limit(what, claimed, limit as u64)?;
        Ok(claimed as usize)
    }

    /// Reads a varint that fits in 32 bits.
    pub fn varint_u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        Ok(self.count(what, u32::MAX as usize)? as u32)
    }

    /// Reads a signed varint.
    pub fn zigzag(&mut self, what: &'static str) -> Result<i64, FormatError> {
        let value = self.varint(what)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads bytes with their length, at most `limit` bytes.
    pub fn bytes(&mut self, what: &'static str, limit: usize) -> Result<&'a [u8], FormatError> {
        let len = self.count(what, limit)?;
        self.raw(what, len)
    }

    /// Reads UTF-8 text with its length, at most `limit` bytes.
    pub fn text(&mut self, what: &'static str, limit: usize) -> Result<&'a str, FormatError> {
        let at = self.at;
        let bytes = self.bytes(what, limit)?;
        std::str::from_utf8(bytes).map_err(|_| FormatError::Invalid { what, at })
    }

    /// Ends reading. Fails if bytes are left.
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
    fn only_the_shortest_form_of_a_varint_is_decoded() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut w = WireWriter::new();
            w.varint(value);
            let bytes = w.finish();
            let mut r = WireReader::new(&bytes);
            assert_eq!(r.varint("v"), Ok(value));
            r.finish().unwrap();
        }
        for bad in [&[0x80, 0x00][..], &[0xff; 10], &[0x81, 0x80, 0x00]] {
            assert!(
                matches!(WireReader::new(bad).varint("v"), Err(FormatError::Invalid { .. })),
                "{bad:?}"
            );
        }
        assert!(matches!(WireReader::new(&[0x80]).varint("v"), Err(FormatError::Truncated { .. })));
    }

    #[test]
    fn signed_varints_survive_a_round_trip() {
        for value in [0, -1, 1, i64::MIN, i64::MAX, -86_400] {
            let mut w = WireWriter::new();
            w.zigzag(value);
            assert_eq!(WireReader::new(&w.finish()).zigzag("z"), Ok(value));
        }
    }

    #[test]
    fn a_length_above_its_limit_is_refused() {
        let mut w = WireWriter::new();
        w.varint(u64::MAX);
        let bytes = w.finish();
        assert!(matches!(WireReader::new(&bytes).bytes("b", 10), Err(FormatError::Limit { .. })));
    }
}
