//! Sparse files: detects them, reads them fast, and makes and fills holes.
//!
//! Some file systems have reported holes over data that was not yet on the disk. So the reader
//! trusts reported holes only on ext4, XFS and Btrfs, which count data in the page cache, and only
//! long ones. All other bytes come from a `read`. On any file system, a reported hole marks the
//! file as sparse, so that a restore turns zeros into holes.
//!
//! Reading a hole through the page cache fills the cache with zeros, which is slow and evicts
//! everything else. A direct read (`O_DIRECT`) does not use the cache, and the system first writes
//! changed pages of the range to the disk. So the reader uses direct reads in long holes that it
//! does not skip.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::FileExt,
    },
};

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, SeekFrom, fallocate, fstatfs, openat, seek};

use crate::chunk::is_zeros;

/// Length of the shortest run of zeros that becomes a hole: a block of most file systems.
pub const HOLE_BYTES: usize = 4096;

/// Number of bytes that [`punch`] reads at a time in its search for zeros.
const SEARCHED_BYTES: usize = 64 * HOLE_BYTES;

/// Alignment of direct reads, in the file and in memory.
const ALIGN_BYTES: u64 = 4096;

/// Minimum length of a hole for a direct read.
const MIN_HOLE_BYTES: u64 = 1 << 20;

/// Maximum length of one direct read.
const DIRECT_BYTES: usize = 4 << 20;

/// `f_type` of ext2 to ext4, XFS and Btrfs.
const DIRECT_FILE_SYSTEMS: [u32; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

/// Returns true if a file of `size` bytes has a hole. The number of blocks does not prove holes: a
/// file system that compresses also uses fewer blocks. Moves the file's offset.
pub fn has_holes(fd: BorrowedFd<'_>, size: u64) -> bool {
    seek(fd, SeekFrom::Hole(0)).is_ok_and(|hole| hole < size)
}

/// A reader of a whole file that reads long holes directly. Moves the file's offset.
#[derive(Debug)]
pub struct SparseReader {
    file: File,
    size: u64,
    at: u64,
    /// The next long hole: `at` is before it or in it.
    hole: Range<u64>,
    direct: Option<Direct>,
}

#[derive(Debug)]
struct Direct {
    file: File,
    buffer: Vec<u8>,
}

impl SparseReader {
    /// Makes a reader of the first `size` bytes of `file`.
    pub fn new(file: File, size: u64) -> Self {
        let direct = Direct::open(&file);
        let hole = if direct.is_some() { 0..0 } else { size..size };
        Self { file, size, at: 0, hole, direct }
    }

    /// Finds the next long hole from `at` on.
    fn look_ahead(&mut self) {
        let fd = self.file.as_fd();
        let none = self.size..self.size;
        self.hole = none.clone();
        let mut from = self.at;
        while let Ok(start) = seek(fd, SeekFrom::Hole(from)) {
            if start >= self.size {
                return;
            }
            let end = match seek(fd, SeekFrom::Data(start)) {
                Ok(end) => end.min(self.size),
                Err(rustix::io::Errno::NXIO) => self.size,
                Err(_) => return,
            };
            // A direct read needs whole blocks, so the hole is shrunk to block boundaries.
            let aligned = start.next_multiple_of(ALIGN_BYTES)..end / ALIGN_BYTES * ALIGN_BYTES;
            if aligned.end.saturating_sub(aligned.start) >= MIN_HOLE_BYTES {
                self.hole = aligned;
                return;
            }
            if end <= from {
                return;
            }
            from = end;
        }
    }
}

/// A reader of a content that can skip holes.
pub trait SparseRead: Read + Send {
    /// Skips as much of a hole at the present offset as is a multiple of `unit` bytes. Returns the
    /// number of skipped bytes.
    fn skip_hole(&mut self, unit: u64) -> u64 {
        let _ = unit;
        0
    }
}

impl<R: Read + Send> SparseRead for io::Take<R> {}

impl SparseRead for SparseReader {
    fn skip_hole(&mut self, unit: u64) -> u64 {
        if self.at >= self.hole.end && self.hole.end < self.size {
            self.look_ahead();
        }
        if !self.hole.contains(&self.at) {
            return 0;
        }
        let skipped = (self.hole.end - self.at) / unit * unit;
        self.at += skipped;
        skipped
    }
}

/// Feeds zeros to a hasher, on several threads. Returns early if `stop` returns true.
///
/// Each block of BLAKE3 is hashed with its position, so every zero must be hashed: a long run has
/// no equal subtrees that could be hashed once.
pub fn hash_zeros(hasher: &mut blake3::Hasher, bytes: u64, stop: &dyn Fn() -> bool) {
    const PIECE_BYTES: u64 = 16 << 20;
    // The pages are never written, so the system maps all of them to one page of zeros.
    let zeros = vec![0; bytes.min(PIECE_BYTES) as usize];
    let mut rest = bytes;
    while rest > 0 && !stop() {
        let piece = rest.min(PIECE_BYTES);
        hasher.update_rayon(&zeros[..piece as usize]);
        rest -= piece;
    }
}

impl Read for SparseReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        let mut len = rest.min(buffer.len());
        if len == 0 {
            return Ok(0);
        }
        if self.at >= self.hole.end && self.hole.end < self.size {
            self.look_ahead();
        }
        let in_hole = self.hole.contains(&self.at);
        let until = match in_hole {
            false if self.at < self.hole.start => self.hole.start,
            false => self.size,
            // After a short read, read the rest of the block through the cache; then direct reads
            // continue with whole blocks.
            true if !self.at.is_multiple_of(ALIGN_BYTES) => self.at.next_multiple_of(ALIGN_BYTES),
            true => self.hole.end,
        };
        len = len.min(usize::try_from(until - self.at).unwrap_or(usize::MAX));
        let may_be_direct = in_hole && self.at.is_multiple_of(ALIGN_BYTES);
        let mut read = None;
        if may_be_direct && len as u64 >= ALIGN_BYTES {
            read = self.direct.as_mut().and_then(|direct| direct.read(&mut buffer[..len], self.at));
            if read.is_none() {
                // The file system refuses direct reads.
                (self.direct, self.hole) = (None, self.size..self.size);
            }
        }
        let read = match read {
            Some(read) => read,
            None => self.file.read_at(&mut buffer[..len], self.at)?,
        };
        self.at += read as u64;
        Ok(read)
    }
}

impl Direct {
    /// Opens the file again for direct reads; returns `None` on other file systems and on errors.
    fn open(file: &File) -> Option<Self> {
        let kind = fstatfs(file).ok()?.f_type as u32;
        if !DIRECT_FILE_SYSTEMS.contains(&kind) {
            return None;
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let again = openat(CWD, path, flags, Mode::empty()).ok()?;
        Some(Self { file: again.into(), buffer: Vec::new() })
    }

    /// Reads whole blocks at a multiple of [`ALIGN_BYTES`]; returns `None` on an error or at the
    /// end of the file.
    fn read(&mut self, target: &mut [u8], at: u64) -> Option<usize> {
        let align = ALIGN_BYTES as usize;
        let len = target.len().min(DIRECT_BYTES) / align * align;
        self.buffer.resize(DIRECT_BYTES + align, 0);
        let skip = self.buffer.as_ptr().align_offset(align);
        let aligned = self.buffer.get_mut(skip..skip + len)?;
        let read = self.file.read_at(aligned, at).ok().filter(|read| *read > 0)?;
        target[..read].copy_from_slice(&aligned[..read]);
        Some(read)
    }
}

/// Turns the zero blocks of a file of `size` bytes into holes. Its content does not change.
///
/// # Errors
/// Returns the error of the system call; some file systems do not support this.
pub fn punch(file: &File, size: u64) -> io::Result<()> {
    let give_back = |zeros: Range<u64>| match zeros.is_empty() {
        true => Ok(()),
        false => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, flags, zeros.start, zeros.end - zeros.start)
        }
    };
    let mut buffer = vec![0; SEARCHED_BYTES];
    let (mut at, mut zeros) = (0, 0..0);
    while at < size {
        let wanted = buffer.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
        file.read_exact_at(&mut buffer[..wanted], at)?;
        for block in buffer[..wanted].chunks(HOLE_BYTES) {
            if !is_zeros(block) {
                give_back(std::mem::take(&mut zeros))?;
            } else {
                // The system frees whole blocks only, also at the end of the file.
                let start = if zeros.is_empty() { at } else { zeros.start };
                zeros = start..at + HOLE_BYTES as u64;
            }
            at += block.len() as u64;
        }
    }
    Ok(give_back(zeros)?)
}

/// Allocates blocks for the holes of a file of `size` bytes. Its content does not change.
///
/// # Errors
/// Returns the error of the system call, such as a full disk.
pub fn fill(file: &File, size: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), 0, size)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_and_without_holes_are_distinguished() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(5 << 20).unwrap();
        file.as_file().write_all_at(b"start", 0).unwrap();
        assert!(has_holes(file.as_file().as_fd(), 5 << 20));
        file.as_file().write_all_at(&vec![0; 5 << 20], 0).unwrap();
        assert!(!has_holes(file.as_file().as_fd(), 5 << 20));
    }

    #[test]
    fn a_sparse_reader_returns_the_same_bytes_as_a_plain_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(9 << 20).unwrap();
        // Without a sync, the data is only in the page cache.
        file.as_file().write_all_at(b"start", 0).unwrap();
        file.as_file().write_all_at(b"middle", (3 << 20) + 17).unwrap();
        file.as_file().write_all_at(b"end", (9 << 20) - 3).unwrap();
        let whole = fs_err::read(file.path()).unwrap();
        for size in [9 << 20, (9 << 20) - 1, (3 << 20) + 20, (2 << 20) + 5, 3] {
            for piece in [1 << 20, 10_000, 100_000_007] {
                let mut reader = SparseReader::new(file.reopen().unwrap(), size as u64);
                let mut bytes = Vec::new();
                let mut buffer = vec![1; piece];
                loop {
                    match reader.read(&mut buffer).unwrap() {
                        0 => break,
                        read => bytes.extend_from_slice(&buffer[..read]),
                    }
                }
                assert!(bytes == whole[..size], "first {size} bytes, {piece} at a time");
            }
        }
    }

    /// Data must be read even if the system reports a hole there.
    #[test]
    fn data_in_a_reported_hole_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let data: Vec<u8> = (0..4 << 20).map(|at| (at % 251) as u8).collect();
        file.as_file().write_all_at(&data, 0).unwrap();
        let size = data.len() as u64;
        let mut reader = SparseReader::new(file.reopen().unwrap(), size);
        reader.hole = 0..size;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert!(bytes == data);
    }
}
