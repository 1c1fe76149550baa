//! Opens and reads the user's files and folders, without following symlinks and without blocking on
//! special files.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::LazyLock,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

use crate::{
    base::{limits, time::Time},
    disk::output::folder_of,
    format::tree::Xattr,
    local::{
        attributes::{XattrTarget, read_xattrs},
        holes::{self, SparseRead, SparseReader},
        scan::{FileKind, FileStat},
    },
};

/// Which files an operation reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Files that the stat cache does not prove unchanged.
    #[default]
    Changed,
    /// All files; the stat cache is not used.
    All,
}

/// The effective user id, cached because it is needed for each file.
static USER: LazyLock<rustix::process::Uid> = LazyLock::new(rustix::process::geteuid);

/// Opens the file `name` in a folder; `stat` is from the listing of the folder. Keeps the access
/// time of the file if the system allows that.
///
/// # Errors
/// Returns the error of the system call.
pub fn open_file(folder: BorrowedFd<'_>, name: &OsStr, stat: &FileStat) -> io::Result<OwnedFd> {
    // Without `NONBLOCK`, opening a pipe that replaced the file would block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if USER.is_root() || USER.as_raw() == stat.uid {
        match openat(folder, name, flags | OFlags::NOATIME, Mode::empty()) {
            // Only the owner may use `NOATIME`, and root in a container may not count as the owner.
            Err(rustix::io::Errno::PERM) => {}
            other => return Ok(other?),
        }
    }
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Opens a folder that the user named, to list it. The path may contain symlinks.
///
/// # Errors
/// Returns the error of the system call.
pub fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens the folder that a path is in with `O_PATH`, and returns it with the last name of the path.
///
/// # Errors
/// Returns the error of the system call.
pub fn open_parent(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, folder_of(path), flags, Mode::empty())?;
    Ok((folder, path.file_name().unwrap_or(OsStr::new(".")).to_owned()))
}

/// Opens the folder `name` in a folder, to list it.
///
/// # Errors
/// Returns the error of the system call.
pub fn open_folder(above: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(above, name, flags, Mode::empty())?)
}

/// Opens the parent folder of `path`, which is relative to `top`, and returns it with the last
/// name. Opens one folder after another without following symlinks, so `path` may be longer than
/// `PATH_MAX`.
///
/// # Errors
/// Returns the error of the system call.
pub fn open_above<'p>(top: BorrowedFd<'_>, path: &'p [u8]) -> io::Result<(OwnedFd, &'p OsStr)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = openat(top, ".", flags, Mode::empty())?;
    let mut rest = path;
    while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
        folder = openat(&folder, OsStr::from_bytes(&rest[..slash]), flags, Mode::empty())?;
        rest = &rest[slash + 1..];
    }
    Ok((folder, OsStr::from_bytes(rest)))
}

/// A file that was read.
#[derive(Debug)]
pub struct FileRead<T> {
    /// What the reader returned.
    pub content: T,
    /// Number of bytes that were read.
    pub bytes: u64,
    /// Stat after reading.
    pub stat: FileStat,
    pub xattrs: io::Result<Vec<Xattr>>,
    /// True if the file has holes.
    pub sparse: bool,
    /// Time when the read began.
    pub read_at: Time,
    /// True if the file did not change while it was read.
    pub steady: bool,
    /// True if the file has content but reports a length of 0, like files in `/proc`. Its stat may
    /// stay the same when its content changes.
    pub is_unsized: bool,
}

/// Reads an open file that reports a size of 0, but may have content: the kernel generates the
/// files under `/proc` when they are read. The caller must have opened the file with `O_NONBLOCK`.
///
/// # Errors
/// Returns the error of the system call. Also fails if the file exceeds
/// [`limits::UNSIZED_FILE_BYTES`], or if the function would have to wait longer than `time`.
pub fn read_unsized(fd: impl AsFd, time: Duration) -> io::Result<Vec<u8>> {
    const LEAST_BYTES: usize = 16 << 10;
    let (mut content, mut left) = (Vec::new(), time);
    loop {
        let filled = content.len();
        let more = filled.max(LEAST_BYTES).min(limits::UNSIZED_FILE_BYTES + 1 - filled);
        content.resize(filled + more, 0);
        let read = rustix::io::read(&fd, &mut content[filled..]);
        content.truncate(filled + read.unwrap_or(0));
        match read {
            Ok(0) => return Ok(content),
            Ok(_) if content.len() > limits::UNSIZED_FILE_BYTES => {
                let mib = limits::UNSIZED_FILE_BYTES >> 20;
                let text = format!("it reports no size, and its content exceeds {mib} MiB");
                return Err(io::Error::other(text));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if left.is_zero() => {
                let secs = time.as_secs();
                let text = format!("it reports no size, and its content did not end in {secs} s");
                return Err(io::Error::other(text));
            }
            Err(Errno::AGAIN) => left = left.saturating_sub(wait_for_bytes(&fd, left)?),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until a read does not block, but at most for `time`. Returns the time spent.
fn wait_for_bytes(fd: impl AsFd, time: Duration) -> io::Result<Duration> {
    let start = Instant::now();
    let most = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&most)) {
        Ok(0) => Ok(time),
        // Some files are always ready, although a read of them would block.
        Ok(_) => {
            std::thread::sleep(Duration::from_millis(1));
            Ok(start.elapsed())
        }
        Err(Errno::INTR) => Ok(start.elapsed()),
        Err(error) => Err(error.into()),
    }
}

/// The attempt to read a file that may change meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAttempt {
    First,
    Last,
}

/// Reads an open file with this stat. Returns a result and the number of bytes.
pub type ReadOpened<'a, T, E> =
    dyn FnMut(&OwnedFd, &FileStat, ReadAttempt) -> Result<(T, u64), E> + 'a;

/// Reads the file `name` in a folder with `read`; `stat` is from the listing of the folder. If the
/// file changes meanwhile, reads it once more.
///
/// # Errors
/// Returns the error of the system call, and the errors of `read`.
pub fn read_file<T, E: From<io::Error>>(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    stat: &FileStat,
    read: &mut ReadOpened<'_, T, E>,
) -> Result<FileRead<T>, E> {
    let mut before = *stat;
    let mut attempt = ReadAttempt::First;
    loop {
        let read_at = Time::now();
        let fd = open_file(folder, name, &before)?;
        // An empty file may have grown, and a file that reports no size needs `read_unsized`.
        if before.size == 0 {
            before = FileStat::of_fd(fd.as_fd())?;
        }
        let (content, bytes) = read(&fd, &before, attempt)?;
        let xattrs = read_xattrs(XattrTarget::Fd(fd.as_fd()));
        let after = FileStat::of_fd(fd.as_fd())?;
        if after.kind != FileKind::File {
            return Err(io::Error::other("no longer a regular file").into());
        }
        let steady = after.same_state(&before) && (bytes == before.size || before.size == 0);
        if !steady && attempt == ReadAttempt::First {
            (before, attempt) = (after, ReadAttempt::Last);
            continue;
        }
        let sparse = before.may_have_holes() && holes::has_holes(fd.as_fd(), before.size);
        let is_unsized = steady && bytes != before.size;
        return Ok(FileRead {
            content,
            bytes,
            stat: after,
            xattrs,
            sparse,
            read_at,
            steady,
            is_unsized,
        });
    }
}

/// Wraps an error, to say that extended attributes could not be read.
pub fn unread_xattrs(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read extended attributes: {error}"))
}

/// Returns a reader of an open file up to the size in `stat`. The caller detects a file that grows
/// meanwhile by its changed stat.
///
/// # Errors
/// Returns the error of the system call.
pub fn content(fd: &OwnedFd, stat: &FileStat) -> io::Result<Box<dyn SparseRead>> {
    let file = File::from(fd.try_clone()?);
    Ok(match stat.may_have_holes() {
        true => Box::new(SparseReader::new(file, stat.size)),
        false => Box::new(file.take(stat.size)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::id::{BlobId, ContentId},
        local::cut::{identify, identify_source},
    };

    fn read(
        folder: BorrowedFd<'_>,
        name: &OsStr,
        stat: &FileStat,
    ) -> io::Result<FileRead<ContentId>> {
        read_file(folder, name, stat, &mut |fd, stat, _| identify(fd, stat, &|| false))
    }

    #[test]
    fn a_file_is_read_in_its_current_state() {
        let dir = tempfile::tempdir().unwrap();
        let folder = fs_err::File::open(dir.path()).unwrap();
        let name = OsStr::new("file");
        for (before, after) in
            [("short", "much longer"), ("much longer", "short"), ("same", "same")]
        {
            fs_err::write(dir.path().join(name), before).unwrap();
            let stat = FileStat::of_name(folder.as_fd(), name).unwrap();
            fs_err::write(dir.path().join(name), after).unwrap();
            let read = read(folder.as_fd(), name, &stat).unwrap();
            assert_eq!(read.content, BlobId::of(after.as_bytes()).into());
            assert!(read.steady && read.bytes == after.len() as u64);
        }
    }

    #[test]
    fn a_file_that_reports_no_size_is_read_up_to_the_limit() {
        let file = |path: &str| {
            let stat = FileStat::of_path(path.as_ref()).unwrap();
            open_file(rustix::fs::CWD, path.as_ref(), &stat).unwrap()
        };
        let version = read_unsized(file("/proc/version"), Duration::ZERO).unwrap();
        assert_eq!(version, fs_err::read("/proc/version").unwrap());
        let endless = read_unsized(file("/dev/zero"), Duration::MAX).unwrap_err();
        let text = "it reports no size, and its content exceeds 1 MiB";
        assert_eq!(endless.to_string(), text);

        // An open pipe simulates a file that answers later, or never.
        let pipe = || {
            let (reader, writer) = io::pipe().unwrap();
            rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
            (reader, writer)
        };
        let (silent, _open) = pipe();
        for time in [Duration::ZERO, Duration::from_millis(1)] {
            let late = read_unsized(&silent, time).unwrap_err();
            let text = "it reports no size, and its content did not end in 0 s";
            assert_eq!(late.to_string(), text);
        }
        let (reader, writer) = pipe();
        let content = std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_unsized(&reader, Duration::from_secs(600)));
            rustix::io::write(&writer, b"answer").unwrap();
            drop(writer);
            reading.join().unwrap().unwrap()
        });
        assert_eq!(content, b"answer");
    }

    #[test]
    fn a_file_may_have_grown_since_it_was_listed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = fs_err::File::open(dir.path()).unwrap();
        let name = OsStr::new("file");
        fs_err::write(dir.path().join(name), "").unwrap();
        let listed = FileStat::of_name(folder.as_fd(), name).unwrap();
        let content = &vec![7; limits::UNSIZED_FILE_BYTES + 1][..];
        fs_err::write(dir.path().join(name), content).unwrap();
        let read = read(folder.as_fd(), name, &listed).unwrap();
        let (id, _) = identify_source(&mut content.take(u64::MAX), &|| false).unwrap();
        assert_eq!((read.content, read.steady), (id, true));
        assert_eq!(read.bytes, content.len() as u64);
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = fs_err::File::open(dir.path()).unwrap();
        let name = OsStr::new("file");
        fs_err::write(dir.path().join(name), "x").unwrap();
        let stat = FileStat::of_name(folder.as_fd(), name).unwrap();
        fs_err::remove_file(dir.path().join(name)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(name)).unwrap();
        assert!(read(folder.as_fd(), name, &stat).is_err());
    }
}
