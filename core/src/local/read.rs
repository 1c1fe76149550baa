//! Opening the user's files and folders to read them, through no symlink, and
//! without hanging on what is no file; hashing files that are only compared.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::LazyLock,
};

use rustix::fs::{Mode, OFlags, openat};

use crate::{
    base::{id::BlobId, limits, time::Time},
    format::tree::Xattr,
    local::{
        attributes::{XattrTarget, read_xattrs},
        holes::HoleReader,
        scan::{FileKind, FileStat},
    },
};

/// Read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Who runs this; asked once, not for each file.
static USER: LazyLock<rustix::process::Uid> = LazyLock::new(rustix::process::geteuid);

/// Opens the file of this name in a folder, which had `stat` when it was
/// listed; where that is allowed, without a change of its access time.
///
/// # Errors
/// As the system says.
pub fn open_file(folder: BorrowedFd<'_>, name: &OsStr, stat: &FileStat) -> io::Result<OwnedFd> {
    // Without `NONBLOCK` a pipe that took the file's place would hang us.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if USER.is_root() || USER.as_raw() == stat.uid {
        match openat(folder, name, flags | OFlags::NOATIME, Mode::empty()) {
            // Root in a container may not own what it sees.
            Err(rustix::io::Errno::PERM) => {}
            other => return Ok(other?),
        }
    }
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Opens the folder of this name in a folder, to list it.
///
/// # Errors
/// As the system says.
pub fn open_folder(above: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(above, name, flags, Mode::empty())?)
}

/// A file that was read only to be hashed.
#[derive(Debug)]
pub struct Hashed {
    /// Its content.
    pub id: BlobId,
    /// Its stat when it had been read; the size is that of what was read.
    pub stat: FileStat,
    /// When it was born, where the file system keeps that.
    pub born: Option<Time>,
    /// Its extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Whether it has holes.
    pub sparse: bool,
    /// When reading began.
    pub read_at: Time,
    /// Whether it stayed as it was meanwhile.
    pub steady: bool,
}

/// Reads and hashes the file of this name in a folder, which had `stat` when
/// it was listed. One that changes meanwhile is read again once.
///
/// # Errors
/// As the system says; [`io::ErrorKind::Interrupted`] when `stop` says so.
pub fn hash_file(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    stat: &FileStat,
    stop: &dyn Fn() -> bool,
) -> io::Result<Hashed> {
    let mut before = *stat;
    let mut again = false;
    loop {
        let read_at = Time::now();
        let fd = open_file(folder, name, &before)?;
        let (id, size) = hash_content(&fd, &before, stop)?;
        let xattrs = read_xattrs(XattrTarget::Fd(fd.as_fd())).unwrap_or_default();
        let (after, born) = FileStat::with_birth(fd.as_fd())?;
        if after.kind != FileKind::File {
            return Err(io::Error::other("it is no longer a regular file"));
        }
        let steady = after.same_state(&before) && size == before.size;
        if !steady && !again {
            (before, again) = (after, true);
            continue;
        }
        let sparse = before.may_have_holes() && HoleReader::has_holes(fd.as_fd(), before.size);
        let stat = FileStat { size, ..after };
        return Ok(Hashed { id, stat, born, xattrs, sparse, read_at, steady });
    }
}

fn hash_content(
    fd: &OwnedFd,
    stat: &FileStat,
    stop: &dyn Fn() -> bool,
) -> io::Result<(BlobId, u64)> {
    let file = File::from(fd.try_clone()?);
    let mut holes;
    let mut plain;
    let holey = stat.may_have_holes() && stat.size > limits::WHOLE_FILE_BYTES;
    let source: &mut dyn Read = if holey {
        holes = HoleReader::new(file, stat.size);
        &mut holes
    } else {
        // One that grows is read no further; its stat tells.
        plain = file.take(stat.size);
        &mut plain
    };
    let mut hasher = blake3::Hasher::new();
    let room = usize::try_from(stat.size).unwrap_or(usize::MAX);
    let mut buffer = vec![0; room.clamp(1, BUFFER_BYTES)];
    let mut size = 0;
    while size < stat.size {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(more) => {
                hasher.update(&buffer[..more]);
                size += more as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok((BlobId::from_bytes(*hasher.finalize().as_bytes()), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_hashed_as_it_is_and_not_as_it_was_listed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = fs_err::File::open(dir.path()).unwrap();
        let name = OsStr::new("file");
        for (before, after) in
            [("short", "much longer"), ("much longer", "short"), ("same", "same")]
        {
            fs_err::write(dir.path().join(name), before).unwrap();
            let stat = FileStat::of_name(folder.as_fd(), name).unwrap();
            fs_err::write(dir.path().join(name), after).unwrap();
            let hashed = hash_file(folder.as_fd(), name, &stat, &|| false).unwrap();
            assert_eq!(hashed.id, BlobId::of(after.as_bytes()));
            assert!(hashed.steady && hashed.stat.size == after.len() as u64);
        }
        let stopped = FileStat::of_name(folder.as_fd(), name)
            .and_then(|stat| hash_file(folder.as_fd(), name, &stat, &|| true));
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = fs_err::File::open(dir.path()).unwrap();
        let name = OsStr::new("file");
        fs_err::write(dir.path().join(name), "x").unwrap();
        let stat = FileStat::of_name(folder.as_fd(), name).unwrap();
        fs_err::remove_file(dir.path().join(name)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(name)).unwrap();
        assert!(hash_file(folder.as_fd(), name, &stat, &|| false).is_err());
    }
}
