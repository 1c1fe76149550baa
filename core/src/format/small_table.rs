//! The frame of small tables, which are read and written as a whole.
//!
//! | part   | offset  | bytes | field                       |
//! |--------|---------|-------|-----------------------------|
//! | header | 0       | 8     | magic                       |
//! |        | 8       | 2     | format version, u16         |
//! | body   | 10      | …     | see the table               |
//! | sum    | end − 8 | 8     | XXH3-64 of all bytes before |

use crate::format::{
    pack::checksum,
    wire::{FormatError, WireReader, WireWriter},
};

/// A kind of small tables.
pub(super) struct SmallTable {
    /// The noun for errors.
    pub(super) what: &'static str,
    pub(super) magic: &'static [u8; 8],
    pub(super) version: u16,
}

impl SmallTable {
    /// Starts a table. The caller writes the body.
    pub(super) fn begin(&self) -> WireWriter {
        let mut w = WireWriter::new();
        w.raw(self.magic);
        w.u16(self.version);
        w
    }

    /// Ends a table with its checksum.
    pub(super) fn end(w: WireWriter) -> Vec<u8> {
        let mut bytes = w.finish();
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Checks the frame of a table. Returns a reader of the body.
    ///
    /// # Errors
    /// [`FormatError`] names what is wrong with the frame.
    pub(super) fn open<'b>(&self, bytes: &'b [u8]) -> Result<WireReader<'b>, FormatError> {
        let what = self.what;
        let mut head = WireReader::new(bytes);
        if head.raw(what, self.magic.len())? != self.magic {
            return Err(FormatError::Magic { what });
        }
        let found = head.u16(what)?;
        let truncated = FormatError::Truncated { what, at: bytes.len() };
        let (body, sum) = bytes.split_last_chunk::<8>().ok_or(truncated)?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return Err(FormatError::Checksum { what });
        }
        FormatError::check_version(what, found, self.version)?;
        let mut r = WireReader::new(body);
        r.raw(what, head.at())?;
        Ok(r)
    }
}
