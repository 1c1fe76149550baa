//! Whether what is there is what the snapshot holds.

use std::{fs::File, io, os::fd::AsFd};

use rustix::fs::{FileType, Stat, makedev};

use crate::{
    base::{id::BlobId, name::EntryName},
    format::tree::{Entry, Kind, Metadata, Xattr},
    local::{
        attributes::{Attributes, Expected, Extra, Target, apply, is_removable, read_entry_xattrs},
        contain::{Folder, FolderPath},
        holes,
        scan::FileStat,
    },
    ops::restore::{Existing, job::Job, visit::Trust},
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
    if trust == Trust::Kind {
        return Verdict::Same;
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
    let is_shared = is_wrongly_linked(entry, stat);
    if is_shared && job.options.existing == Existing::Overwrite {
        return Verdict::Differs;
    }
    let xattrs = || read_entry_xattrs(folder, &entry.name);
    let agrees = !holes_differ(job, folder, entry, stat)
        && stat_agrees(job, entry, stat)
        && xattrs_agree(&entry.metadata.xattrs, xattrs());
    match (agrees, is_shared) {
        (true, _) => Verdict::Same,
        // Attributes that are set would be those of the other names, too.
        (false, true) => Verdict::Differs,
        (false, false) => Verdict::Attributes,
    }
}

/// Returns whether a file has further names although it has one in the snapshot.
/// A reproducible snapshot, without times, does not tell.
fn is_wrongly_linked(entry: &Entry, stat: &Stat) -> bool {
    let Metadata { link, mtime, .. } = &entry.metadata;
    matches!(entry.kind, Kind::File { .. })
        && stat.st_nlink > 1
        && link.is_none()
        && mtime.is_some()
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
    Ok(content_of(job, folder, name, stat)? == *id)
}

/// The content of a file, as the cache knows or its bytes show.
pub(super) fn content_of(
    job: &Job<'_>,
    folder: &Folder,
    name: &EntryName,
    stat: &Stat,
) -> io::Result<BlobId> {
    if let Some(known) = job.options.known.and_then(|known| known(stat)) {
        return Ok(known);
    }
    let file = File::from(folder.open_file(name)?);
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(BlobId::from_bytes(*hasher.finalize().as_bytes()))
}

/// Whether owner, mode and time are right.
pub(super) fn stat_agrees(job: &Job<'_>, entry: &Entry, stat: &Stat) -> bool {
    let (owner, mode) = job.owner_and_mode(&entry.metadata, false);
    let is_symlink = matches!(entry.kind, Kind::Symlink { .. });
    owner.is_none_or(|owner| owner == (stat.st_uid, stat.st_gid))
        && (is_symlink || stat.st_mode & 0o7777 == u32::from(mode))
        && entry.metadata.mtime.is_none_or(|mtime| {
            (mtime.secs, u64::from(mtime.nanos)) == (stat.st_mtime, stat.st_mtime_nsec)
        })
}

/// Returns whether a file has holes and its entry has none, or the other way round.
/// Making holes could lose what another program writes at that moment, so it
/// counts only where files may be overwritten.
fn holes_differ(job: &Job<'_>, folder: &Folder, entry: &Entry, stat: &Stat) -> bool {
    let is_file = matches!(entry.kind, Kind::File { .. });
    // Without times, holes are not recorded either.
    let counts = job.options.existing == Existing::Overwrite && entry.metadata.mtime.is_some();
    let Some(stat) = FileStat::from_raw(stat).filter(|_| is_file && counts) else { return false };
    let has_holes = || {
        let file = folder.open_file(&entry.name);
        file.is_ok_and(|file| holes::has_holes(file.as_fd(), stat.size))
    };
    entry.metadata.sparse != (stat.may_have_holes() && has_holes())
}

/// Gives a file the holes that its entry has, or none.
fn repair_holes(folder: &Folder, entry: &Entry) -> io::Result<()> {
    let Kind::File { size, .. } = entry.kind else { return Ok(()) };
    let file = File::from(folder.open_for_update(&entry.name)?);
    if entry.metadata.sparse { holes::punch(&file, size) } else { holes::fill(&file, size) }
}

/// Returns whether extended attributes are right; those that are never removed may be
/// there besides.
fn xattrs_agree(wanted: &[Xattr], there: io::Result<Vec<Xattr>>) -> bool {
    let Ok(there) = there else { return wanted.is_empty() };
    wanted.iter().all(|xattr| there.contains(xattr))
        && there.iter().all(|xattr| wanted.contains(xattr) || !is_removable(&xattr.name))
}

/// Sets the attributes of an entry right whose content is.
pub(super) fn repair(job: &Job<'_>, folder: &Folder, at: &FolderPath, entry: &Entry, stat: &Stat) {
    if holes_differ(job, folder, entry, stat)
        && let Err(error) = repair_holes(folder, entry)
    {
        (job.refusals(at, Some(&entry.name)))("holes", error);
    }
    let (owner, mode) = job.owner_and_mode(&entry.metadata, false);
    let attributes = Attributes {
        owner: owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid)),
        mode: Some(mode),
        mtime: entry.metadata.mtime,
        xattrs: &entry.metadata.xattrs,
        extra: Extra::Remove,
    };
    let target = match entry.kind {
        Kind::Symlink { .. } => Target::Symlink(folder, &entry.name),
        _ => {
            let kind = FileType::from_raw_mode(stat.st_mode);
            let expected = Expected { kind, inode: Some(stat.st_ino) };
            Target::Entry(folder, &entry.name, expected)
        }
    };
    apply(target, &attributes, &mut *job.refusals(at, Some(&entry.name)));
}
