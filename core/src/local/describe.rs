//! What a snapshot records of a file or folder beside its content.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};

use crate::{
    format::tree::{Device, Kind, Metadata, Xattr, check::check_target},
    local::{
        attributes::{XattrTarget, read_xattrs},
        fingerprint::Manner,
        owners::Owners,
        scan::{FileKind, FileStat},
    },
};

/// What is recorded about an entry; `sparse` says whether the file has holes.
pub fn metadata(
    stat: &FileStat,
    owners: &Owners,
    manner: Manner,
    (xattrs, sparse): (Vec<Xattr>, bool),
) -> Metadata {
    if manner.reproducible {
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

/// The same for each name of one file, and for no other file.
fn link_group(stat: &FileStat) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&stat.device.to_le_bytes());
    bytes[8..].copy_from_slice(&stat.inode.to_le_bytes());
    let mut group = [0; 8];
    group.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..8]);
    u64::from_le_bytes(group)
}

/// Extended attributes of an entry, found through the open folder, so that
/// neither a long path nor a renamed folder above matters. An entry that has
/// vanished has none.
///
/// # Errors
/// As the system says, also when `/proc` is not mounted.
pub fn xattrs(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<Xattr>> {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    path.push(OsStr::from_bytes(name));
    match read_xattrs(XattrTarget::Path(&path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match FileStat::of_name(folder, OsStr::from_bytes(name)) {
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                _ => Err(io::Error::other("it is read through /proc, which is not mounted")),
            }
        }
        other => other,
    }
}

/// What is recorded of an entry that is neither file nor folder; `None` of
/// those.
///
/// # Errors
/// As the system says of a symlink that cannot be read.
pub fn special(folder: BorrowedFd<'_>, name: &[u8], stat: &FileStat) -> io::Result<Option<Kind>> {
    let device =
        Device { major: rustix::fs::major(stat.special), minor: rustix::fs::minor(stat.special) };
    Ok(Some(match stat.kind {
        FileKind::File | FileKind::Folder => return Ok(None),
        FileKind::Symlink => {
            let target = rustix::fs::readlinkat(folder, OsStr::from_bytes(name), Vec::new())?;
            let target = target.into_bytes();
            check_target(&target).map_err(io::Error::other)?;
            Kind::Symlink { target: target.into() }
        }
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice { device },
        FileKind::BlockDevice => Kind::BlockDevice { device },
    }))
}
