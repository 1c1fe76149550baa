//! Table files: written in sorted order, read through a memory map.
//!
//! [`format::table`](crate::format::table) defines the bytes. The first read of a block verifies
//! it. So snap reads only the header, fences and metadata to open a table, however many records
//! there are.
//!
//! This is one of the two modules with `unsafe`. A memory map is sound while no process shortens or
//! changes the file. Snap writes a table in a folder of the store under a temporary name, renames
//! it, and never changes it again. If another process truncates a table, `SIGBUS` kills snap.
//! Nothing worse can happen, because each byte is read as plain data and checked.
#![expect(unsafe_code, reason = "memory maps; see the module documentation")]

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use memmap2::Mmap;

use crate::{
    base::{io::PathError, kind::Kind},
    disk::{Disk, NewFile, regular::open_regular},
    format::{
        pack::checksum,
        table::{BLOCK_BYTES, BLOCK_SUM_BYTES, Shape, TableHeader},
        wire::FormatError,
    },
};

/// Why a table could not be read or written.
#[derive(Debug, thiserror::Error, Kind)]
pub enum TableError {
    /// The file could not be opened, mapped or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The bytes break a rule of the format.
    #[error("table {} is damaged", path.display())]
    Damaged { path: PathBuf, source: FormatError },
}

/// An unfinished table, written record by record.
#[derive(Debug)]
pub struct TableWriter {
    file: NewFile,
    shape: Shape,
    block: Vec<u8>,
    pending: Vec<u8>,
    fences: Vec<u8>,
    records: u64,
}

/// Number of bytes that a writer writes to the file at a time.
const WRITE_BYTES: usize = 256 << 10;

impl TableWriter {
    /// Starts a table at `path`, which must not exist.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be created.
    pub fn create(disk: &Disk, path: &Path, shape: Shape) -> Result<Self, PathError> {
        let mut pending = Vec::with_capacity(WRITE_BYTES + BLOCK_BYTES);
        // Reserve space for the header, which is known only at the end.
        pending.resize(BLOCK_BYTES, 0);
        Ok(Self {
            file: disk.create(path)?,
            shape,
            block: Vec::with_capacity(BLOCK_BYTES),
            pending,
            fences: Vec::new(),
            records: 0,
        })
    }

    /// Adds a record. Keys must not decrease.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be written.
    pub fn push(&mut self, record: &[u8]) -> Result<(), PathError> {
        debug_assert_eq!(record.len(), self.shape.record_bytes);
        if self.block.is_empty() {
            self.fences.extend_from_slice(&record[..8]);
        }
        self.block.extend_from_slice(record);
        self.records += 1;
        if self.block.len() + self.shape.record_bytes > BLOCK_BYTES - BLOCK_SUM_BYTES {
            self.close_block()?;
        }
        Ok(())
    }

    fn close_block(&mut self) -> Result<(), PathError> {
        self.block.resize(BLOCK_BYTES - BLOCK_SUM_BYTES, 0);
        self.pending.extend_from_slice(&checksum(&self.block).to_le_bytes());
        self.pending.append(&mut self.block);
        if self.pending.len() >= WRITE_BYTES {
            self.file.write(&self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Returns the number of records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Completes the table, without a sync: a table is derived data with checksums and may get lost
    /// in a power cut.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be written.
    pub fn finish(mut self, meta: &[u8]) -> Result<PathBuf, PathError> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        let mut tail = std::mem::take(&mut self.fences);
        tail.extend_from_slice(meta);
        let header = TableHeader {
            shape: self.shape,
            records: self.records,
            meta_bytes: meta.len() as u64,
            tail_checksum: checksum(&tail),
        };
        self.pending.extend_from_slice(&tail);
        // A small table is written in one piece, including the header.
        if header.file_bytes() == self.pending.len() as u64 {
            self.pending[..BLOCK_BYTES].copy_from_slice(&header.encode());
            self.file.write(&self.pending)?;
        } else {
            self.file.write(&self.pending)?;
            self.file.write_at(0, &header.encode())?;
        }
        self.file.keep();
        Ok(self.file.path().to_owned())
    }
}

/// A sequential walk through a table keeps at most twice this many blocks in memory.
const RELEASE_BLOCKS: usize = 1024;

/// An open table.
#[derive(Debug)]
pub struct Table {
    map: Mmap,
    header: TableHeader,
    path: PathBuf,
    checked: Box<[AtomicU64]>,
}

impl Table {
    /// Maps the table at `path`, which must have `shape`.
    ///
    /// Checks the header, length, fences and metadata. The first read of a block checks the block.
    ///
    /// # Errors
    /// [`TableError`] when the table cannot be opened or is damaged.
    pub fn open(path: &Path, shape: Shape) -> Result<Self, TableError> {
        let file = open_regular(path).map_err(PathError::when("open", path))?;
        // SAFETY: the file is never changed after its rename; see the module
        // documentation.
        let map = unsafe { Mmap::map(&file) }.map_err(PathError::when("map", path))?;
        let damaged = |source| TableError::Damaged { path: path.to_owned(), source };
        let head = map.get(..BLOCK_BYTES).unwrap_or_default();
        let header = TableHeader::decode(head, shape, map.len() as u64).map_err(damaged)?;
        if checksum(&map[header.fences_offset() as usize..]) != header.tail_checksum {
            return Err(damaged(FormatError::Checksum { what: "the fences" }));
        }
        let words = header.blocks().div_ceil(64) as usize;
        let checked = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { map, header, path: path.to_owned(), checked })
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.header.records
    }

    /// Returns the length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata, whose meaning depends on the purpose.
    pub fn meta(&self) -> &[u8] {
        let start = self.map.len() - self.header.meta_bytes as usize;
        &self.map[start..]
    }

    fn fence(&self, block: usize) -> u64 {
        let at = self.header.fences_offset() as usize + 8 * block;
        prefix(&self.map[at..at + 8])
    }

    /// Returns the records of a block. The first call for a block verifies it.
    fn block(&self, block: usize) -> Result<&[u8], TableError> {
        let at = BLOCK_BYTES * (1 + block);
        let bytes = &self.map[at..at + BLOCK_BYTES];
        let (sum, records) = bytes.split_at(BLOCK_SUM_BYTES);
        let bit = 1u64 << (block % 64);
        let word = &self.checked[block / 64];
        if word.load(Ordering::Relaxed) & bit == 0 {
            if sum != checksum(records).to_le_bytes() {
                let source = FormatError::Checksum { what: "a block" };
                return Err(TableError::Damaged { path: self.path.clone(), source });
            }
            word.fetch_or(bit, Ordering::Relaxed);
        }
        let full = self.header.shape.block_records();
        let before = block * full;
        let count = full.min(self.header.records as usize - before);
        Ok(&records[..count * self.header.shape.record_bytes])
    }

    /// Unmaps all blocks, after lookups.
    pub fn release(&self) {
        self.unmap(BLOCK_BYTES, self.header.fences_offset() as usize - BLOCK_BYTES);
    }

    /// Unmaps a range of bytes. The pages stay in the page cache, and the next read maps them again.
    fn unmap(&self, offset: usize, bytes: usize) {
        let advice = memmap2::UncheckedAdvice::DontNeed;
        // SAFETY: for a shared read-only map of a file, this only drops page table
        // entries. Later reads get the same bytes from the file.
        let _ = unsafe { self.map.unchecked_advise_range(advice, offset, bytes) };
    }

    /// Returns the index of the first record whose key is not below `key`.
    ///
    /// # Errors
    /// [`TableError::Damaged`] when a block that is read on the way is damaged.
    pub fn lower_bound(&self, key: &[u8]) -> Result<u64, TableError> {
        let (blocks, key_prefix) = (self.header.blocks() as usize, prefix(key));
        // The last block whose fence is smaller than `key` may still contain it.
        // Several blocks may have the same fence, so the search starts at that block.
        let (mut low, mut high) = (0, blocks);
        while low < high {
            let middle = low.midpoint(high);
            if self.fence(middle) < key_prefix { low = middle + 1 } else { high = middle }
        }
        let mut block = low.saturating_sub(1);
        let (width, full) = (self.header.shape.record_bytes, self.header.shape.block_records());
        while block < blocks {
            let records = self.block(block)?;
            let count = records.len() / width;
            let (mut low, mut high) = (0, count);
            while low < high {
                let middle = low.midpoint(high);
                let found = &records[middle * width..][..key.len()];
                let is_below = (prefix(found), found) < (key_prefix, key);
                if is_below { low = middle + 1 } else { high = middle }
            }
            if low < count {
                return Ok((block * full + low) as u64);
            }
            block += 1;
        }
        Ok(self.header.records)
    }

    /// Returns the record at `index`.
    ///
    /// # Errors
    /// [`TableError::Damaged`] when its block is damaged.
    pub fn record(&self, index: u64) -> Result<&[u8], TableError> {
        let (width, full) = (self.header.shape.record_bytes, self.header.shape.block_records());
        let (block, slot) = (index as usize / full, index as usize % full);
        if slot == 0 && block > 0 && block.is_multiple_of(RELEASE_BLOCKS) {
            // A sequential walk has passed these blocks.
            self.unmap(BLOCK_BYTES * (1 + block - RELEASE_BLOCKS), BLOCK_BYTES * RELEASE_BLOCKS);
        }
        Ok(&self.block(block)?[slot * width..(slot + 1) * width])
    }

    /// Returns the first record with exactly this key, and its index.
    ///
    /// # Errors
    /// [`TableError::Damaged`] when a block that is read on the way is damaged.
    pub fn find(&self, key: &[u8]) -> Result<Option<(u64, &[u8])>, TableError> {
        let index = self.lower_bound(key)?;
        if index == self.header.records {
            return Ok(None);
        }
        let record = self.record(index)?;
        Ok((&record[..key.len()] == key).then_some((index, record)))
    }

    /// Iterates over all records.
    pub fn iter(&self) -> TableRecords<'_> {
        TableRecords { table: self, next: 0 }
    }
}

/// Returns the first 8 bytes of a key as a number with the same order, which is compared without a
/// call.
fn prefix(key: &[u8]) -> u64 {
    key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Iterates over records in order.
#[derive(Debug)]
pub struct TableRecords<'a> {
    table: &'a Table,
    next: u64,
}

impl<'a> Iterator for TableRecords<'a> {
    type Item = Result<&'a [u8], TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.table.records() {
            return None;
        }
        self.next += 1;
        Some(self.table.record(self.next - 1))
    }
}

/// Returns the index of the first table to merge: the caller merges all tables from this index on.
/// `sizes` are sorted from large to small, or from old to new. After the merge, each table is more
/// than twice as large as all tables after it together, so their number is logarithmic.
pub fn merge_from(sizes: &[u64]) -> usize {
    let mut from = sizes.len().saturating_sub(1);
    let mut sum = 0;
    for (index, size) in sizes.iter().enumerate().rev() {
        if *size <= 2 * sum {
            from = index;
        }
        sum += size;
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds tables, merges, and repeats that. Returns the largest number of tables after a merge, and
    /// the number of records that merges have written.
    fn grow(added: &[u64], rounds: usize) -> (usize, u64) {
        let (mut sizes, mut most, mut written) = (Vec::<u64>::new(), 0, 0);
        for _ in 0..rounds {
            sizes.extend(added);
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let from = merge_from(&sizes);
            if from + 1 < sizes.len() {
                let merged = sizes.drain(from..).sum();
                written += merged;
                sizes.push(merged);
            }
            most = most.max(sizes.len());
        }
        assert_eq!(sizes.iter().sum::<u64>(), added.iter().sum::<u64>() * rounds as u64);
        (most, written)
    }

    #[test]
    fn the_number_of_tables_stays_logarithmic() {
        let (most, written) = grow(&[3], 10_000);
        assert!(most <= 15 && written < 30_000 * 15, "{most} tables, {written} records written");
    }

    #[test]
    fn a_small_table_does_not_keep_large_ones_apart() {
        let (most, written) = grow(&[1000, 600, 1], 1_000);
        assert!(most <= 10 && written < 1_601_000 * 10, "{most} tables, {written} records written");
    }
}
