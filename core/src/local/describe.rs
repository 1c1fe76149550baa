//! Makes the record of a file or folder in a snapshot, without its content.

use std::{
    ffi::OsStr,
    io,
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
};

use crate::{
    format::tree::{Device, EntryKind, Metadata, Xattr, check::check_target},
    local::{
        attributes::{XattrTarget, entry_path, read_saved_xattrs},
        fingerprint::TreeOptions,
        owners::Owners,
        scan::{FileKind, FileStat},
    },
};

/// Returns the metadata of an entry; `sparse` tells whether the file has holes.
pub fn metadata(
    stat: &FileStat,
    owners: &Owners,
    options: TreeOptions,
    xattrs: Vec<Xattr>,
    sparse: bool,
) -> Metadata {
    if options.reproducible {
        let with_list = Metadata { mode: stat.mode, xattrs, ..Metadata::default() };
        let mode = with_list.mode_without_acl();
        let mut xattrs = with_list.xattrs;
        xattrs.retain(|xattr| xattr.name.starts_with(b"user."));
        return Metadata { mode, xattrs, ..Metadata::default() };
    }
    let linked = stat.links > 1 && stat.kind != FileKind::Folder;
    Metadata {
        mode: stat.mode,
        owner: Some(owners.of(stat.uid, stat.gid)),
        mtime: Some(stat.mtime),
        xattrs,
        link: linked.then(|| link_group(stat)),
        sparse,
    }
}

/// Returns a number for the group of hard links to a file: a hash of its device and inode.
fn link_group(stat: &FileStat) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&stat.device.to_le_bytes());
    bytes[8..].copy_from_slice(&stat.inode.to_le_bytes());
    let mut group = [0; 8];
    group.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..8]);
    u64::from_le_bytes(group)
}

/// Reads the extended attributes of an entry through the open folder, so that a long path or a
/// renamed parent folder does not matter. An entry that has vanished has none.
///
/// # Errors
/// Returns the error of the system call, also if `/proc` is not mounted.
pub fn xattrs(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<Xattr>> {
    let path = entry_path(&folder, OsStr::from_bytes(name));
    match read_saved_xattrs(XattrTarget::Path(&path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match FileStat::of_name(folder, OsStr::from_bytes(name)) {
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                _ => Err(io::Error::other("it needs /proc, which is not mounted")),
            }
        }
        other => other,
    }
}

/// Returns the record of an entry that is neither a file nor a folder; `None` for files and
/// folders.
///
/// # Errors
/// Returns the error of reading a symlink.
pub fn special(
    folder: BorrowedFd<'_>,
    name: &[u8],
    stat: &FileStat,
) -> io::Result<Option<EntryKind>> {
    let device =
        Device { major: rustix::fs::major(stat.special), minor: rustix::fs::minor(stat.special) };
    Ok(Some(match stat.kind {
        FileKind::File | FileKind::Folder => return Ok(None),
        FileKind::Symlink => {
            let target = rustix::fs::readlinkat(folder, OsStr::from_bytes(name), Vec::new())?;
            let target = target.into_bytes();
            check_target(&target).map_err(io::Error::other)?;
            EntryKind::Symlink { target: target.into() }
        }
        FileKind::Fifo => EntryKind::Fifo,
        FileKind::Socket => EntryKind::Socket,
        FileKind::CharDevice => EntryKind::CharDevice { device },
        FileKind::BlockDevice => EntryKind::BlockDevice { device },
    }))
}
