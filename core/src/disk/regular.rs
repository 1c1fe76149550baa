//! Reading of small files in a store, which other users may be able to write.
//!
//! The functions read only regular files, because opening a pipe could block and a device may never
//! end. Each read has a length limit, because a sparse file that is tiny on disk could fill the
//! memory.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
};

/// Flags that refuse symbolic links and do not wait for pipes.
pub(super) const OPEN_FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits().cast_signed();

/// Opens a regular file for reading.
///
/// # Errors
/// The error of the system; [`io::ErrorKind::IsADirectory`] for a folder and
/// [`io::ErrorKind::InvalidInput`] for anything else that is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<fs_err::File> {
    // `NONBLOCK`: opening a pipe does not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(|errno| match errno {
        // A cycle of links, a socket, or a missing device.
        Errno::LOOP | Errno::NXIO | Errno::NODEV => {
            io::Error::new(io::ErrorKind::InvalidInput, errno)
        }
        errno => errno.into(),
    })?;
    let file = fs_err::File::from_parts(File::from(file), path);
    let kind = file.metadata()?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(file),
        (_, true) => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Opens a file or folder for reading, for example to lock it. Refuses links, and does not
/// wait for the writer of a pipe.
///
/// # Errors
/// The error of the system.
pub fn open_unfollowed(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(path)
}

/// Returns true if a path is a symbolic link. After a failed read of the path, true means that the
/// link is dangling.
pub fn is_link(path: &Path) -> bool {
    fs_err::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open_regular`]; [`io::ErrorKind::FileTooLarge`] when the file is longer.
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Reads the last `limit` bytes of a regular file, or the whole file if it is shorter.
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
    fn pipes_devices_and_long_files_are_refused() {
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
        std::os::unix::fs::symlink("circle", path("circle")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        fs_err::File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
        fs_err::write(path("text"), "some text").unwrap();
        let kind = |name| read_at_most(&path(name), 9).map_err(|error| error.kind());
        assert_eq!(kind("pipe"), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind("zeros"), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind("circle"), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind("socket"), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind("."), Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind("sparse"), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(kind("text"), Ok(b"some text".to_vec()));
        assert_eq!(read_at_most(&path("text"), 8).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_end(&path("text"), 4).unwrap(), b"text");
        assert_eq!(read_end(&path("text"), 100).unwrap(), b"some text");
        assert_eq!(read_end(&path("sparse"), 4).unwrap(), [0; 4]);
    }
}
