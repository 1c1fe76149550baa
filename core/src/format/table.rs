//! Tables: sorted records of fixed length, read through a memory map.
//!
//! The index segments and the stat cache are tables. Both are derived data, so their owners delete
//! and rebuild a damaged table. Each block has a checksum, which readers verify when they first
//! read the block.
//!
//! | part   | offset         | bytes       | field                             |
//! |--------|----------------|-------------|-----------------------------------|
//! | header | 0              | 8           | magic, `SNAPTABL`                 |
//! |        | 8              | 2           | format version, u16               |
//! |        | 10             | 2           | purpose, u16, see [`TablePurpose`]     |
//! |        | 12             | 2           | key bytes k, u16, at least 8      |
//! |        | 14             | 2           | record bytes w, u16, key included |
//! |        | 16             | 8           | record count, u64                 |
//! |        | 24             | 8           | meta bytes m, u64                 |
//! |        | 32             | 8           | XXH3-64 of fences and meta        |
//! |        | 40             | 8           | XXH3-64 of the 40 bytes before    |
//! |        | 48             | 4048        | 0                                 |
//! | blocks | 4096           | 4096 × b    | XXH3-64 of the rest of the block, ⌊4088 / w⌋ records, zeros |
//! | fences | 4096 (1 + b)   | 8 × b       | first 8 key bytes of each block's first record |
//! | meta   | 4096 + 4104 b  | m           | metadata, depends on the purpose  |
//!
//! Keys are compared as bytes and never decrease. In tables of some purposes, several records may
//! have the same key. Integers in the header are little-endian; fences are plain key bytes.

use crate::{
    base::limits,
    format::{
        pack::checksum,
        wire::{FormatError, WireReader, WireWriter},
    },
};

/// The first bytes of a table.
pub const MAGIC: &[u8; 8] = b"SNAPTABL";

/// The version.
pub const VERSION: u16 = 2;

/// Length of a block, and of the header.
pub const BLOCK_BYTES: usize = 4096;

/// Length of a block's checksum.
pub const BLOCK_SUM_BYTES: usize = 8;

/// The purpose of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablePurpose {
    /// From object ids to places.
    Index = 1,
    /// From inodes to content ids. Earlier versions used code 2 for records that trusted birth times.
    StatFiles = 4,
    /// From inodes to tree ids. Earlier versions used code 3 for trees that they made from records of
    /// code 2.
    StatFolders = 5,
}

/// The purpose of a table and the lengths of its keys and records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub purpose: TablePurpose,
    /// Length of a key in bytes.
    pub key_bytes: usize,
    /// Length of a record in bytes, including the key.
    pub record_bytes: usize,
}

impl Shape {
    /// Returns the number of records in a full block.
    pub const fn block_records(&self) -> usize {
        (BLOCK_BYTES - BLOCK_SUM_BYTES) / self.record_bytes
    }

    /// Returns the number of blocks for `records` records.
    pub fn blocks(&self, records: u64) -> u64 {
        records.div_ceil(self.block_records() as u64)
    }
}

/// The header of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableHeader {
    pub shape: Shape,
    /// Number of records.
    pub records: u64,
    /// Length of the metadata in bytes.
    pub meta_bytes: u64,
    /// XXH3-64 of fences and meta.
    pub tail_checksum: u64,
}

impl TableHeader {
    /// Encodes the header, padded to one block.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = WireWriter::on(Vec::with_capacity(BLOCK_BYTES));
        w.raw(MAGIC);
        w.u16(VERSION);
        w.u16(self.shape.purpose as u16);
        w.u16(self.shape.key_bytes as u16);
        w.u16(self.shape.record_bytes as u16);
        w.u64(self.records);
        w.u64(self.meta_bytes);
        w.u64(self.tail_checksum);
        let mut bytes = w.finish();
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.resize(BLOCK_BYTES, 0);
        bytes
    }

    /// Decodes the header of a table of `file_bytes` that should have `shape`.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the header breaks.
    pub fn decode(bytes: &[u8], shape: Shape, file_bytes: u64) -> Result<Self, FormatError> {
        let mut r = WireReader::new(bytes);
        if r.raw("table header", 8)? != MAGIC {
            return Err(FormatError::Magic { what: "table" });
        }
        FormatError::check_version("table", r.u16("table version")?, VERSION)?;
        let purpose = r.u16("table purpose")?;
        let key_bytes = r.u16("table key")?;
        let record_bytes = r.u16("table record")?;
        let records = r.u64("table records")?;
        let meta_bytes = r.u64("table meta")?;
        let tail_checksum = r.u64("table checksum")?;
        let sum = checksum(&bytes[..40]);
        if r.u64("table checksum")? != sum {
            return Err(FormatError::Checksum { what: "the table header" });
        }
        let expected = (shape.purpose as u16, shape.key_bytes, shape.record_bytes);
        if (purpose, usize::from(key_bytes), usize::from(record_bytes)) != expected {
            return Err(FormatError::Invalid { what: "table shape", at: 10 });
        }
        FormatError::check_limit("table records", records, limits::TABLE_RECORDS)?;
        FormatError::check_limit("table meta", meta_bytes, limits::TABLE_META_BYTES as u64)?;
        let header = Self { shape, records, meta_bytes, tail_checksum };
        if header.file_bytes() != file_bytes {
            return Err(FormatError::Invalid { what: "table length", at: 16 });
        }
        Ok(header)
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        self.shape.blocks(self.records)
    }

    /// Returns the offset of the fences in the file.
    pub fn fences_offset(&self) -> u64 {
        BLOCK_BYTES as u64 * (1 + self.blocks())
    }

    /// Returns the length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.fences_offset() + 8 * self.blocks() + self.meta_bytes
    }
}
