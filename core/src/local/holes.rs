//! Sparse files: finds their holes, and makes and fills holes.
//!
//! Some file systems have reported holes over data that was not yet on the disk. So readers trust
//! reported holes only on ext4, XFS and Btrfs, which count data in the page cache, and on tmpfs, and
//! only long ones. On any file system, a reported hole marks the file as sparse, so that a restore
//! turns zeros into holes.

use std::{
    fs::File,
    io::{self, Read},
    iter,
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstatfs, seek};

use crate::chunk::is_zeros;

/// Length of the shortest run of zeros that becomes a hole: a block of most file systems.
pub const HOLE_BYTES: usize = 4096;

/// Number of bytes that [`punch`] reads at a time in its search for zeros.
const SEARCHED_BYTES: usize = 64 * HOLE_BYTES;

/// Minimum length of a hole that a reader skips.
const MIN_HOLE_BYTES: u64 = 1 << 20;

/// `f_type` of tmpfs, ext2 to ext4, XFS and Btrfs.
const RELIABLE_FILE_SYSTEMS: [u32; 4] = [0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e];

/// Returns true if a file of `size` bytes has a hole. The number of blocks does not prove holes: a
/// file system that compresses also uses fewer blocks. Moves the file's offset.
pub fn has_holes(fd: BorrowedFd<'_>, size: u64) -> bool {
    seek(fd, SeekFrom::Hole(0)).is_ok_and(|hole| hole < size)
}

/// Returns the ranges of `bytes` without blocks of zeros. `bytes` start at `offset` in a file.
pub fn data_in(bytes: &[u8], offset: u64) -> impl Iterator<Item = Range<usize>> {
    let to_boundary = HOLE_BYTES - (offset % HOLE_BYTES as u64) as usize;
    let (first, rest) = bytes.split_at(to_boundary.min(bytes.len()));
    let mut end = 0;
    let ranges = iter::once(first).chain(rest.chunks(HOLE_BYTES)).map(move |block| {
        end += block.len();
        (end - block.len()..end, is_zeros(block))
    });
    let mut ranges = ranges.peekable();
    iter::from_fn(move || {
        let (mut data, _) = ranges.find(|(_, is_zero)| !is_zero)?;
        while let Some((more, _)) = ranges.next_if(|(_, is_zero)| !is_zero) {
            data.end = more.end;
        }
        Some(data)
    })
}

/// The long holes of an open file, if the file system reports them reliably. Moves the file's offset.
#[derive(Debug)]
pub struct Holes {
    size: u64,
    /// The next long hole.
    next: Range<u64>,
}

impl Holes {
    /// Makes the holes of the first `size` bytes of a file.
    pub fn of(file: BorrowedFd<'_>, size: u64) -> Self {
        let kind = fstatfs(file).map_or(0, |stat| stat.f_type as u32);
        let is_reliable = RELIABLE_FILE_SYSTEMS.contains(&kind);
        Self { size, next: if is_reliable { 0..0 } else { size..size } }
    }

    /// Returns the first long hole that ends behind `from`, or an empty range at the end of the file.
    /// `from` must not decrease.
    pub fn at(&mut self, file: BorrowedFd<'_>, from: u64) -> &Range<u64> {
        if from >= self.next.end && self.next.end < self.size {
            self.look_ahead(file, from);
        }
        &self.next
    }

    /// Returns true if a range is in a long hole, so that all its bytes are zeros. The ranges must
    /// come in order.
    pub fn contain(&mut self, file: BorrowedFd<'_>, range: &Range<u64>) -> bool {
        let hole = self.at(file, range.start);
        hole.start <= range.start && range.end <= hole.end
    }

    fn look_ahead(&mut self, file: BorrowedFd<'_>, mut from: u64) {
        // An error ends the search for good.
        self.next = self.size..self.size;
        while let Ok(start) = seek(file, SeekFrom::Hole(from)) {
            if start >= self.size {
                return;
            }
            let end = match seek(file, SeekFrom::Data(start)) {
                Ok(end) => end.min(self.size),
                Err(rustix::io::Errno::NXIO) => self.size,
                Err(_) => return,
            };
            if end.saturating_sub(start) >= MIN_HOLE_BYTES {
                self.next = start..end;
                return;
            }
            if end <= from {
                return;
            }
            from = end;
        }
    }
}

/// A reader of a whole file that can skip long holes. Moves the file's offset.
#[derive(Debug)]
pub struct SparseReader {
    file: File,
    size: u64,
    at: u64,
    holes: Holes,
}

impl SparseReader {
    /// Makes a reader of the first `size` bytes of `file`.
    pub fn new(file: File, size: u64) -> Self {
        let holes = Holes::of(file.as_fd(), size);
        Self { file, size, at: 0, holes }
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
        let hole = self.holes.at(self.file.as_fd(), self.at);
        if !hole.contains(&self.at) {
            return 0;
        }
        let skipped = (hole.end - self.at) / unit * unit;
        self.at += skipped;
        skipped
    }
}

impl Read for SparseReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        let length = rest.min(buffer.len());
        let read = self.file.read_at(&mut buffer[..length], self.at)?;
        self.at += read as u64;
        Ok(read)
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
        reader.holes.next = 0..size;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert!(bytes == data);
    }
}
