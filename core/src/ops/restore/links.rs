//! Entries that are no regular files: symbolic links, pipes, sockets, devices;
//! and further names of files that have several.

use std::{collections::HashMap, io, sync::Arc};

use rustix::io::Errno;

use crate::{
    base::{io::PathError, name::EntryName},
    format::{
        pack::ObjectKind,
        tree::{Entry, Kind, Metadata},
    },
    local::{
        attributes::{Attributes, Expected, Extra, Target, apply},
        contain::{Cursor, Folder, FolderPath},
        write::{Inherited, Placement, temporary_name},
    },
    ops::restore::{
        compare::file_type,
        job::{Identity, Job},
        large, small,
        tally::Count,
        window::{FileTask, locate},
    },
    store::StoreError,
};

/// The first name of a file that has several.
pub(super) struct Leader {
    pub(super) kind: Kind,
    pub(super) folder: Arc<FolderPath>,
    pub(super) name: EntryName,
    /// Which file it is, when it was there and right.
    pub(super) there: Option<Identity>,
}

/// First names by their number in the snapshot. The only thing a restore
/// remembers of what is past.
pub(super) type Leaders = HashMap<u64, Arc<Leader>>;

/// Why a first name could not be made, and so no further one. One that stands
/// behind a full folder is no failure: the next name becomes the first.
#[derive(Clone)]
pub(super) enum LeaderFailure {
    /// Because of what the content is stored as.
    Damaged(Arc<StoreError>),
    /// The system does not make such entries here.
    Refused(Errno),
}

/// A further name to be made.
pub(super) struct LinkTask {
    pub(super) leader: Arc<Leader>,
    pub(super) link: u64,
    pub(super) folder: Arc<FolderPath>,
    pub(super) name: EntryName,
    pub(super) metadata: Metadata,
    /// Whether something has that name and is to go.
    pub(super) replaces: bool,
}

/// Makes further names, once the first ones are there.
pub(super) fn write_links(job: &Job<'_>, tasks: &[LinkTask]) {
    let Some(root) = job.root() else { return };
    let mut from = Cursor::new(root);
    let mut into = Cursor::new(root);
    for task in tasks {
        if job.is_halted() {
            return;
        }
        if let Err(error) = write_link(job, task, &mut from, &mut into) {
            job.fail(error);
        }
    }
}

fn write_link(
    job: &Job<'_>,
    task: &LinkTask,
    from: &mut Cursor<'_>,
    into: &mut Cursor<'_>,
) -> Result<(), PathError> {
    let size = match &task.leader.kind {
        Kind::File { size, .. } => *size,
        _ => 0,
    };
    if let Some(why) = job.leader_failure(task.link) {
        job.observer.advance(size, 1);
        tell_failure(job, task, why);
        return Ok(());
    }
    let failed = |error| job.error("link", &task.folder, Some(&task.name), error);
    let (from, into) = (from.folder(&task.leader.folder)?, into.folder(&task.folder)?);
    let name = if task.replaces { temporary_name() } else { task.name.clone() };
    match from.link(&task.leader.name, into, &name) {
        Err(error) if is_unlinkable(&error) => {
            (job.refusals(&task.folder, Some(&task.name)))("hard link", error);
            return write_copy(job, task);
        }
        linked => linked.map_err(failed)?,
    }
    job.observer.advance(size, 1);
    if task.replaces {
        let replaced = into.replace(&name, &task.name);
        // Renaming one name of a file to another one of it does nothing.
        let _ = into.remove(&name);
        replaced.map_err(failed)?;
    }
    job.tally.add(Count::Links, 1);
    Ok(())
}

/// Returns whether the two names cannot belong to one file: they lie on different file
/// systems or mounts, or the file system has no links, or not that many.
fn is_unlinkable(error: &io::Error) -> bool {
    let errors = [Errno::XDEV, Errno::MLINK, Errno::PERM, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| errors.contains(&errno))
}

/// Writes a copy of the file where a link cannot be made.
fn write_copy(job: &Job<'_>, task: &LinkTask) -> Result<(), PathError> {
    let Kind::File { size, id } = task.leader.kind else {
        let (path, error) = (task.folder.join(&task.name), Errno::XDEV.into());
        job.tally.not_made(job.observer, task.leader.kind.noun(), &path, &error);
        return Ok(());
    };
    let file = FileTask {
        folder: Arc::clone(&task.folder),
        name: task.name.clone(),
        id,
        size,
        metadata: Metadata { link: None, ..task.metadata.clone() },
        inherited: None,
        placement: if task.replaces { Placement::Replace } else { Placement::New },
    };
    match locate(job, size, id) {
        Ok(place) if place.is_some_and(|place| place.kind != ObjectKind::Blob) => {
            large::write(job, &file);
        }
        Ok(place) => small::write_group(job, &[(place, &file)]),
        Err(error) => file.damaged(job, error),
    }
    Ok(())
}

/// Tells of a further name what was told of the first.
fn tell_failure(job: &Job<'_>, task: &LinkTask, why: LeaderFailure) {
    let path = task.folder.join(&task.name);
    match (why, &task.leader.kind) {
        (LeaderFailure::Damaged(error), Kind::File { id, .. }) => {
            job.tally.damaged(path, id.object(), error);
        }
        (LeaderFailure::Refused(errno), kind) => {
            job.tally.not_made(job.observer, kind.noun(), &path, &errno.into());
        }
        // Only files have content.
        (LeaderFailure::Damaged(_), _) => {}
    }
}

/// Makes a symbolic link, pipe, socket or device; in place of what has its
/// name, if `replaces`. Says whether it was made: without privilege, or on some
/// file systems, it cannot be, which is told and counted.
pub(super) fn write_other(
    job: &Job<'_>,
    folder: &Folder,
    at: &FolderPath,
    entry: &Entry,
    inherited: Option<Inherited>,
    replaces: bool,
) -> Result<bool, PathError> {
    let failed = |source| job.error("create", at, Some(&entry.name), source);
    let name = if replaces { temporary_name() } else { entry.name.clone() };
    let count = match &entry.kind {
        Kind::Symlink { target } => {
            folder.make_symlink(&name, target).map_err(failed)?;
            Count::Symlinks
        }
        kind => match make_node(folder, &name, kind) {
            Ok(()) => Count::Others,
            Err(error) => {
                let Some(errno) = refused(&error) else { return Err(failed(error)) };
                job.leader_failed(entry.metadata.link, LeaderFailure::Refused(errno));
                let path = at.join(&entry.name);
                job.tally.not_made(job.observer, kind.noun(), &path, &error);
                return Ok(false);
            }
        },
    };
    set_attributes(job, folder, at, entry, &name, inherited);
    if replaces && let Err(error) = folder.replace(&name, &entry.name) {
        let _ = folder.remove(&name);
        return Err(failed(error));
    }
    job.tally.add(count, 1);
    Ok(true)
}

fn make_node(folder: &Folder, name: &EntryName, kind: &Kind) -> io::Result<()> {
    let device = match kind {
        Kind::CharDevice { device } | Kind::BlockDevice { device } => Some(*device),
        _ => None,
    };
    folder.make_node(name, file_type(kind), 0o600, device)
}

/// The error, if it says that such entries are not made here.
fn refused(error: &io::Error) -> Option<Errno> {
    let refusals = [Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    Errno::from_io_error(error).filter(|errno| refusals.contains(errno))
}

fn set_attributes(
    job: &Job<'_>,
    folder: &Folder,
    at: &FolderPath,
    entry: &Entry,
    name: &EntryName,
    inherited: Option<Inherited>,
) {
    let (owner, mode) = job.owner_and_mode(&entry.metadata, false);
    let is_symlink = matches!(entry.kind, Kind::Symlink { .. });
    let gets = inherited.map(|inherited| (inherited.uid, inherited.gid));
    let attributes = Attributes {
        owner: owner.filter(|owner| gets != Some(*owner)),
        mode: (!is_symlink).then_some(mode),
        mtime: entry.metadata.mtime,
        xattrs: &entry.metadata.xattrs,
        extra: if is_symlink || inherited.is_some() { Extra::Keep } else { Extra::Remove },
    };
    let expected = Expected { kind: file_type(&entry.kind), inode: None };
    let target = match is_symlink {
        true => Target::Symlink(folder, name),
        false => Target::Entry(folder, name, expected),
    };
    apply(target, &attributes, &mut *job.refusals(at, Some(&entry.name)));
}
