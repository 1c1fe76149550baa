//! The directory at the end of a zip archive, while the archive grows: in
//! memory while it is small, else in a file without a name.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, openat, unlink};

use crate::disk::scratch::unique_name;

/// Bytes that are held in memory.
const MEMORY_BYTES: usize = 4 << 20;

/// Records of the directory, in order.
pub(super) struct Directory {
    folder: PathBuf,
    /// Most bytes that the file may have.
    most_bytes: u64,
    memory: Vec<u8>,
    file: Option<File>,
    /// Length of all records.
    pub(super) bytes: u64,
    /// How many there are.
    pub(super) entries: u64,
}

impl Directory {
    /// An empty one, which will go to a file in `folder` should it get large.
    pub(super) fn new(folder: &Path, most_bytes: u64) -> Self {
        let folder = folder.to_owned();
        Self { folder, most_bytes, memory: Vec::new(), file: None, bytes: 0, entries: 0 }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`FileTooLarge`](io::ErrorKind::FileTooLarge) beyond the most that the file
    /// may have, else as the system says, when it cannot be made or written.
    pub(super) fn push(&mut self, record: &[u8]) -> io::Result<()> {
        if self.memory.len() + record.len() > MEMORY_BYTES {
            if self.bytes > self.most_bytes {
                let why =
                    format!("the directory of the archive has more than {} bytes", self.most_bytes);
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
    /// As the system says.
    pub(super) fn copy_to(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.rewind()?;
            let mut piece = vec![0; 256 << 10];
            loop {
                match file.read(&mut piece)? {
                    0 => break,
                    len => out.write_all(&piece[..len])?,
                }
            }
        }
        out.write_all(&self.memory)
    }
}

/// A file that is gone when it is closed.
fn nameless(folder: &Path) -> io::Result<File> {
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    if let Ok(fd) = openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        return Ok(File::from(fd));
    }
    // A file system that cannot do that.
    let path = folder.join(unique_name(".snap-scratch"));
    let fd = openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    unlink(&path)?;
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_directory_comes_back_in_order() {
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
    fn a_directory_ends_where_its_file_would_be_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = Directory::new(folder.path(), 10 << 20);
        let failed = (0..100).find_map(|_| directory.push(&[7; 1 << 20]).err()).unwrap();
        assert_eq!(failed.kind(), io::ErrorKind::FileTooLarge);
        assert!(directory.bytes <= (10 << 20) + MEMORY_BYTES as u64);
    }
}
