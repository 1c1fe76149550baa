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
    format::tree::{Device, Kind, Metadata, Xattr},
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
    (mut xattrs, sparse): (Vec<Xattr>, bool),
) -> Metadata {
    if manner.reproducible {
        xattrs.retain(|xattr| xattr.name.starts_with(b"user."));
        return Metadata { mode: stat.mode, xattrs, ..Metadata::default() };
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
/// neither a long path nor a renamed folder above matters.
///
/// # Errors
/// As the system says.
pub fn xattrs(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<Xattr>> {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    path.push(OsStr::from_bytes(name));
    read_xattrs(XattrTarget::Path(&path))
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
            Kind::Symlink { target: target.into_bytes().into() }
        }
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice { device },
        FileKind::BlockDevice => Kind::BlockDevice { device },
    }))
}
