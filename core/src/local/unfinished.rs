//! The mark of a folder that a restore has created but not finished.
//!
//! A restore applies the attributes of a folder after writing everything in it. Until then other
//! users must not enter the folder, and it has a mark with two parts. One is the mode 1700, which
//! the folder gets when it is created. The other is an extended attribute, which the restore sets
//! before it writes anything into the folder. When a killed restore is run again, it finishes the
//! folders with the mark. It does not touch the attributes of folders that the user created or
//! closed, whatever their mode.
//!
//! On a file system without extended attributes, a restore keeps a list of the folders that it
//! creates. If such a restore is killed, its folders keep their mode, and the next run reports
//! that.

use std::io;

use rustix::{
    fs::{Mode, Stat, XattrFlags, fchmod, fstat, getxattr, lsetxattr, removexattr, setxattr},
    io::Errno,
    process::geteuid,
};

use crate::{
    base::name::EntryName,
    disk::{DiskStep, take_step},
    local::{
        attributes::{entry_path, fd_path},
        contain::OpenFolder,
    },
};

/// The mode of an unfinished folder.
pub const UNFINISHED_MODE: u16 = 0o1700;

/// Name of the extended attribute of an unfinished folder; its value is empty.
pub const UNFINISHED_XATTR: &str = "user.snap.unfinished";

/// Mode bits to compare; setgid is not among them, because a folder may inherit it.
const MODE_BITS: u32 = 0o1777;

/// The error for a folder whose attributes are not final.
#[derive(Debug, thiserror::Error)]
#[error("it was left unfinished by an interrupted restore")]
pub struct UnfinishedRestore;

impl UnfinishedRestore {
    /// Returns true if this is the cause of an I/O error.
    pub fn is_behind(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Marks a new folder by its name. Returns false if the attribute cannot be set.
pub fn mark_entry(folder: &OpenFolder, name: &EntryName) -> bool {
    take_step(DiskStep::SetAttribute, name.as_os_str()).is_ok()
        && lsetxattr(
            entry_path(folder, name.as_os_str()),
            UNFINISHED_XATTR,
            b"",
            XattrFlags::empty(),
        )
        .is_ok()
}

/// Marks an open folder. Returns false if the attribute cannot be set.
pub fn mark(folder: &OpenFolder) -> bool {
    setxattr(fd_path(folder), UNFINISHED_XATTR, b"", XattrFlags::empty()).is_ok()
}

/// Returns true if a restore by this user has created a folder but not finished it. An empty folder
/// `inside` the target may lack the attribute, if the restore was killed before setting it.
pub fn is_unfinished(folder: &OpenFolder, stat: &Stat, inside: bool) -> bool {
    has_unfinished_mode(stat)
        && stat.st_uid == geteuid().as_raw()
        && (is_marked(folder) || inside && is_empty(folder))
}

/// Returns true if a folder has the mode of an unfinished one. If the user has changed the mode,
/// the folder is the user's.
pub fn has_unfinished_mode(stat: &Stat) -> bool {
    stat.st_mode & MODE_BITS == u32::from(UNFINISHED_MODE)
}

/// Removes the mark of a folder whose attributes have been set.
pub fn unmark(folder: &OpenFolder) {
    if take_step(DiskStep::SetAttribute, "").is_err() {
        return;
    }
    // Most folders do not have the attribute.
    let _ = removexattr(fd_path(folder), UNFINISHED_XATTR);
}

/// Removes the mark of a folder for which the snapshot has no attributes. The folder stays private.
///
/// # Errors
/// Returns the error of the system call.
pub fn leave_private(folder: &OpenFolder) -> io::Result<()> {
    let stat = fstat(folder)?;
    if is_unfinished(folder, &stat, false) {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 & !0o1000);
        fchmod(folder.readable()?, mode)?;
        unmark(folder);
    }
    Ok(())
}

fn is_marked(folder: &OpenFolder) -> bool {
    // The attribute counts whatever its value is.
    matches!(
        getxattr(fd_path(folder), UNFINISHED_XATTR, &mut [0_u8; 16][..]),
        Ok(_) | Err(Errno::RANGE)
    )
}

fn is_empty(folder: &OpenFolder) -> bool {
    fs_err::read_dir(fd_path(folder)).is_ok_and(|mut entries| entries.next().is_none())
}
