//! Opening the user's files and folders to read them, through no symlink, and
//! without hanging on what is no file.

use std::{
    ffi::OsStr,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::LazyLock,
};

use rustix::fs::{Mode, OFlags, openat};

use crate::local::scan::FileStat;

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
