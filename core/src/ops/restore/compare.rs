//! Whether what is there is what the snapshot holds.

use std::{fs::File, io};

use rustix::fs::{FileType, Stat, makedev};

use crate::{
    base::{id::BlobId, name::EntryName},
    format::tree::{Entry, Kind, Xattr},
    local::{
        attributes::{Attributes, Extra, Target, apply, is_users_own, read_entry_xattrs},
        contain::{Folder, FolderPath},
    },
    ops::restore::{job::Job, visit::Trust},
};

/// How an entry of a snapshot compares to what has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing has its name.
    Absent,
    /// It is the same.
    Same,
    /// Its content is the same, its attributes are not.
    Attributes,
    /// It is something else.
    Differs,
}

/// What the system says a stored kind is.
pub(super) fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::File { .. } => FileType::RegularFile,
        Kind::Folder { .. } => FileType::Directory,
        Kind::Symlink { .. } => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice { .. } => FileType::CharacterDevice,
        Kind::BlockDevice { .. } => FileType::BlockDevice,
    }
}

/// Compares an entry with what `stat` says is there. What cannot be read
/// differs.
pub(super) fn compare(
    job: &Job<'_>,
    folder: &Folder,
    entry: &Entry,
    stat: &Stat,
    trust: Trust,
) -> Verdict {
    if FileType::from_raw_mode(stat.st_mode) != file_type(&entry.kind) {
        return Verdict::Differs;
    }
    let same = match &entry.kind {
        Kind::File { size, id } => {
            u64::try_from(stat.st_size) == Ok(*size)
                && (trust == Trust::Compared
                    || has_content(job, folder, &entry.name, stat, id).unwrap_or(false))
        }
        Kind::Symlink { target } => {
            folder.read_link(&entry.name).is_ok_and(|there| there[..] == target[..])
        }
        Kind::CharDevice { device } | Kind::BlockDevice { device } => {
            stat.st_rdev == makedev(device.major, device.minor)
        }
        Kind::Folder { .. } | Kind::Fifo | Kind::Socket => true,
    };
    if !same {
        return Verdict::Differs;
    }
    let xattrs = || read_entry_xattrs(folder, &entry.name);
    if !stat_agrees(job, entry, stat) || !xattrs_agree(&entry.metadata.xattrs, xattrs()) {
        return Verdict::Attributes;
    }
    Verdict::Same
}

/// Whether a file has a content, as the cache or its bytes prove. A time of
/// modification proves nothing.
fn has_content(
    job: &Job<'_>,
    folder: &Folder,
    name: &EntryName,
    stat: &Stat,
    id: &BlobId,
) -> io::Result<bool> {
    if let Some(known) = job.options.known.and_then(|known| known(stat)) {
        return Ok(known == *id);
    }
    let file = File::from(folder.open_file(name)?);
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().as_bytes() == id.as_bytes())
}

/// Whether owner, mode and time are right.
pub(super) fn stat_agrees(job: &Job<'_>, entry: &Entry, stat: &Stat) -> bool {
    let (owner, mode) = job.owner_and_mode(&entry.metadata);
    let is_symlink = matches!(entry.kind, Kind::Symlink { .. });
    owner.is_none_or(|owner| owner == (stat.st_uid, stat.st_gid))
        && (is_symlink || stat.st_mode & 0o7777 == u32::from(mode))
        && entry.metadata.mtime.is_none_or(|mtime| {
            (mtime.secs, u64::from(mtime.nanos)) == (stat.st_mtime, stat.st_mtime_nsec)
        })
}

/// Whether extended attributes are right; those that are the system's own may
/// be there besides.
fn xattrs_agree(wanted: &[Xattr], there: io::Result<Vec<Xattr>>) -> bool {
    let Ok(there) = there else { return wanted.is_empty() };
    wanted.iter().all(|xattr| there.contains(xattr))
        && there.iter().all(|xattr| wanted.contains(xattr) || !is_users_own(&xattr.name))
}

/// Sets the attributes of an entry right whose content is.
pub(super) fn repair(job: &Job<'_>, folder: &Folder, at: &FolderPath, entry: &Entry, stat: &Stat) {
    let (owner, mode) = job.owner_and_mode(&entry.metadata);
    let attributes = Attributes {
        owner: owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid)),
        mode: Some(mode),
        mtime: entry.metadata.mtime,
        xattrs: &entry.metadata.xattrs,
        extra: Extra::Remove,
    };
    let target = match entry.kind {
        Kind::Symlink { .. } => Target::Symlink(folder, &entry.name),
        _ => Target::Entry(folder, &entry.name),
    };
    apply(target, &attributes, &mut *job.refusals(at, Some(&entry.name)));
}
