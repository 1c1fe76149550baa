//! Holds the central directory of a zip archive while the archive is written. A small
//! directory stays in memory; a larger one goes to an unnamed file.

use std::{
    fs::File,
    io::{self, Seek, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, openat, unlink};

use crate::disk::scratch::{PREFIX, unique_name};

/// Maximum number of bytes that are held in memory.
const MEMORY_BYTES: usize = 4 << 20;

/// Records of the directory, in order.
pub(super) struct Directory {
    folder: PathBuf,
    /// Maximum size of the file in bytes.
    most_bytes: u64,
    memory: Vec<u8>,
    file: Option<File>,
    /// Total length of all records in bytes.
    pub(super) bytes: u64,
    /// Number of records.
    pub(super) entries: u64,
}

impl Directory {
    /// Creates an empty directory, which moves to a file in `folder` if it gets large.
    pub(super) fn new(folder: &Path, most_bytes: u64) -> Self {
        let folder = folder.to_owned();
        Self { folder, most_bytes, memory: Vec::new(), file: None, bytes: 0, entries: 0 }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`FileTooLarge`](io::ErrorKind::FileTooLarge) beyond the limit, or the I/O error
    /// when the file cannot be created or written.
    pub(super) fn push(&mut self, record: &[u8]) -> io::Result<()> {
        if self.memory.len() + record.len() > MEMORY_BYTES {
            if self.bytes > self.most_bytes {
                let why =
                    format!("the zip directory exceeds the limit of {} bytes", self.most_bytes);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            let file = match &mut self.file {
                Some(file) => file,
                None => self.file.insert(nameless(&self.folder)?),
            };
            file.write_all(&self.memory)?;
            self.memory.clear();
        }
        self.memory.extend_from_slice(record);
        self.bytes += record.len() as u64;
        self.entries += 1;
        Ok(())
    }

    /// Writes all records to `out`.
    ///
    /// # Errors
    /// The I/O error of reading the file or writing to `out`.
    pub(super) fn copy_to(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.rewind()?;
            io::copy(file, out)?;
        }
        out.write_all(&self.memory)
    }
}

/// Creates a file that is deleted when it is closed.
fn nameless(folder: &Path) -> io::Result<File> {
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    if let Ok(fd) = openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        return Ok(File::from(fd));
    }
    // Fallback for file systems without `O_TMPFILE`.
    let path = folder.join(unique_name(PREFIX));
    let fd = openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    unlink(&path)?;
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_directory_is_spilled_to_disk_and_keeps_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = Directory::new(folder.path(), u64::MAX);
        let mut all = Vec::new();
        for number in 0..300_000_u32 {
            let record = [number.to_le_bytes(); 10].concat();
            directory.push(&record).unwrap();
            all.extend(record);
        }
        assert!(directory.memory.len() <= MEMORY_BYTES);
        assert_eq!((directory.entries, directory.bytes), (300_000, all.len() as u64));
        let mut copied = Vec::new();
        directory.copy_to(&mut copied).unwrap();
        assert!(copied == all);
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_stops_at_its_file_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = Directory::new(folder.path(), 10 << 20);
        let failed = (0..100).find_map(|_| directory.push(&[7; 1 << 20]).err()).unwrap();
        assert_eq!(failed.kind(), io::ErrorKind::FileTooLarge);
        assert!(directory.bytes <= (10 << 20) + MEMORY_BYTES as u64);
    }
}
