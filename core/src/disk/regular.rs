//! Reads small files of a store, which another user may have made.
//!
//! Only regular files are read, so a pipe blocks no command and a device never
//! ends, and only up to a limit, so a sparse file of a few bytes on disk does
//! not fill the memory.

use std::{
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// Opens no link and waits for no pipe.
pub(super) const OPEN_FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits().cast_signed();

/// Opens a regular file for reading.
///
/// # Errors
/// As the system says; [`io::ErrorKind::IsADirectory`] for a folder and
/// [`io::ErrorKind::InvalidInput`] for anything else that is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<fs_err::File> {
    let mut options = fs_err::OpenOptions::new();
    options.read(true);
    // Opening a pipe does not wait for a writer.
    options.options_mut().custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(file),
        (_, true) => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open_regular`]; [`io::ErrorKind::FileTooLarge`].
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// Reads the last `limit` bytes of a regular file, or all if there are fewer.
///
/// # Errors
/// As [`open_regular`].
pub fn read_end(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut file = open_regular(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_devices_and_long_files_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zeros")).unwrap();
        fs_err::File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
        fs_err::write(path("text"), "some text").unwrap();
        let kind = |name| read_at_most(&path(name), 9).map_err(|error| error.kind());
        assert_eq!(kind("pipe"), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind("zeros"), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind("."), Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind("sparse"), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(kind("text"), Ok(b"some text".to_vec()));
        assert_eq!(read_at_most(&path("text"), 8).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_end(&path("text"), 4).unwrap(), b"text");
        assert_eq!(read_end(&path("text"), 100).unwrap(), b"some text");
        assert_eq!(read_end(&path("sparse"), 4).unwrap(), [0; 4]);
    }
}
