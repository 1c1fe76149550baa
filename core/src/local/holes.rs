//! Reading a file with holes without reading the holes.

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
};

use rustix::fs::{SeekFrom, seek};

/// Reads a file, making up the zeros of its holes.
#[derive(Debug)]
pub struct HoleReader {
    file: File,
    size: u64,
    at: u64,
    /// Where the data that `at` is in or before starts and ends.
    data: std::ops::Range<u64>,
}

impl HoleReader {
    /// Reads the first `size` bytes of `file`.
    pub fn new(file: File, size: u64) -> Self {
        Self { file, size, at: 0, data: 0..0 }
    }

    /// Whether a file of `size` bytes has a hole before its end. A file
    /// system that compresses occupies less, too, without any.
    pub fn has_holes(fd: BorrowedFd<'_>, size: u64) -> bool {
        seek(fd, SeekFrom::Hole(0)).is_ok_and(|hole| hole < size)
    }

    /// Finds the next data from `at` on.
    fn look_ahead(&mut self) -> io::Result<()> {
        let fd = self.file.as_fd();
        let start = match seek(fd, SeekFrom::Data(self.at)) {
            Ok(start) => start.min(self.size),
            // Nothing but hole to the end.
            Err(rustix::io::Errno::NXIO) => self.size,
            // A file system that cannot say: all of it is data.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => self.at,
            Err(error) => return Err(error.into()),
        };
        let end = match seek(fd, SeekFrom::Hole(start)) {
            Ok(end) => end.clamp(start, self.size),
            Err(_) => self.size,
        };
        self.data = start..end;
        Ok(())
    }
}

impl Read for HoleReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.size || buffer.is_empty() {
            return Ok(0);
        }
        if self.at >= self.data.end {
            self.look_ahead()?;
        }
        let in_hole = self.at < self.data.start;
        let until = if in_hole { self.data.start } else { self.data.end };
        let len = usize::try_from(until - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = if in_hole {
            buffer[..len].fill(0);
            len
        } else {
            self.file.read_at(&mut buffer[..len], self.at)?
        };
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_holes_reads_like_any_other() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(5 << 20).unwrap();
        file.as_file().write_all_at(b"start", 0).unwrap();
        file.as_file().write_all_at(b"middle", (2 << 20) + 17).unwrap();
        let whole = fs_err::read(file.path()).unwrap();
        for size in [5 << 20, (5 << 20) - 1, (2 << 20) + 20, 3] {
            let mut reader = HoleReader::new(file.reopen().unwrap(), size as u64);
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            assert!(bytes == whole[..size], "first {size} bytes");
        }
        assert!(HoleReader::has_holes(file.as_file().as_fd(), 5 << 20));
        io::Write::write_all(&mut file, &vec![1; 5 << 20]).unwrap();
        assert!(!HoleReader::has_holes(file.as_file().as_fd(), 5 << 20));
    }
}
