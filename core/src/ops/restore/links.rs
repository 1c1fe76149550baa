//! Creates entries that are not regular files (symbolic links, pipes, sockets, devices),
//! and further names of files with several names.

use std::{collections::HashMap, io, sync::Arc};

use rustix::{fs::Stat, io::Errno};

use crate::{
    base::{io::PathError, name::EntryName},
    disk::Renamed,
    format::tree::{AttributesHash, Entry, EntryKind, Metadata},
    local::{
        attributes::{AttributeTarget, Attributes, ExpectedFile, Extra, apply},
        contain::{FolderCache, FolderPath, OpenFolder},
        write::{Inherited, Placement, temporary_name},
    },
    ops::restore::{
        compare::file_type,
        job::{Identity, RestoreJob, identity},
        window::FileTask,
    },
    store::StoreError,
};

/// The first name of a file with several names (hard links).
pub(super) struct FirstLink {
    pub(super) kind: EntryKind,
    pub(super) attributes: AttributesHash,
    pub(super) folder: Arc<FolderPath>,
    pub(super) name: EntryName,
    /// The inode that this name has in the target, if the file there was right.
    pub(super) there: Option<Identity>,
}

impl FirstLink {
    /// Returns true if `stat` is of the inode that this name has in the target.
    pub(super) fn is_same_inode(&self, stat: Option<&Stat>) -> bool {
        stat.map(identity).is_some_and(|id| self.there == Some(id))
    }
}

/// A file with several names.
///
/// Entries with the same link number differ in their attributes if a commit of named paths
/// stored only some of the names again. Each set of attributes is a file of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LinkedFile {
    /// The link number, which the names of a file share.
    pub(super) link: u64,
    pub(super) attributes: AttributesHash,
}

/// The first names of files with several names. A restore remembers nothing else about entries that
/// it has passed.
#[derive(Default)]
pub(super) struct FirstNames {
    names: HashMap<LinkedFile, Arc<FirstLink>>,
    /// The inodes of these names in the target, and the files to which they belong.
    inodes: HashMap<Identity, LinkedFile>,
}

impl FirstNames {
    /// Returns the first name of a file, if it has this kind and content.
    pub(super) fn of(&self, file: LinkedFile, kind: &EntryKind) -> Option<Arc<FirstLink>> {
        self.names.get(&file).filter(|first| first.kind == *kind).cloned()
    }

    /// Returns true if `stat` is of an inode that belongs to another file of the snapshot.
    pub(super) fn is_of_other_file(&self, stat: Option<&Stat>, file: LinkedFile) -> bool {
        let owner = stat.and_then(|stat| self.inodes.get(&identity(stat)));
        owner.is_some_and(|owner| *owner != file)
    }

    pub(super) fn insert(&mut self, link: u64, first: FirstLink) {
        let file = LinkedFile { link, attributes: first.attributes };
        self.inodes.extend(first.there.map(|inode| (inode, file)));
        self.names.insert(file, Arc::new(first));
    }

    pub(super) fn remove(&mut self, file: LinkedFile) {
        self.names.remove(&file);
    }
}

/// The reason why a first name could not be created, and therefore none of its further names. A
/// first name that a full folder blocks is not a failure: the next name takes its place.
#[derive(Clone)]
pub(super) enum FirstNameFailure {
    /// The content cannot be read from the store.
    Damaged(Arc<StoreError>),
    /// The system does not create such entries, or not in this place.
    Refused(Errno),
}

/// A further name to create.
pub(super) struct LinkTask {
    pub(super) leader: Arc<FirstLink>,
    pub(super) link: u64,
    pub(super) folder: Arc<FolderPath>,
    pub(super) name: EntryName,
    pub(super) metadata: Metadata,
    /// True if an existing entry has this name and must be replaced.
    pub(super) replaces: bool,
}

impl RestoreJob<'_> {
    /// Creates further names of files whose first names exist.
    pub(super) fn write_links(&self, tasks: &[LinkTask]) {
        let Some(root) = self.root() else { return };
        let mut from = FolderCache::new(root);
        let mut into = FolderCache::new(root);
        for task in tasks {
            if self.is_halted() {
                return;
            }
            if let Err(error) = self.write_link(task, &mut from, &mut into) {
                let path = task.folder.join(&task.name);
                if let Err(error) = self.refuse(&path, task.leader.kind.noun(), error) {
                    self.fail(error);
                }
            }
        }
    }

    fn write_link(
        &self,
        task: &LinkTask,
        from: &mut FolderCache<'_>,
        into: &mut FolderCache<'_>,
    ) -> Result<(), PathError> {
        let size = if let EntryKind::File { size, .. } = &task.leader.kind { *size } else { 0 };
        let failure = self.failed_first_names.lock().get(&task.link).cloned();
        match failure {
            // The place of the first name refuses the entry. The place of this name may accept it.
            Some(FirstNameFailure::Refused(errno))
                if matches!(task.leader.kind, EntryKind::File { .. }) =>
            {
                (self.refusals(&task.folder, Some(&task.name)))("hard link", errno.into());
                return self.write_copy(task);
            }
            Some(why) => {
                self.observer.advance(size, 1);
                self.report_first_name_failure(task, why);
                return Ok(());
            }
            None => {}
        }
        let failed = |error| self.error("link", &task.folder, Some(&task.name), error);
        let (from, into) = (from.folder(&task.leader.folder)?, into.folder(&task.folder)?);
        let name = if task.replaces { temporary_name() } else { task.name.clone() };
        match from.link(&task.leader.name, into, &name) {
            Err(error) if is_unlinkable(&error) => {
                (self.refusals(&task.folder, Some(&task.name)))("hard link", error);
                return self.write_copy(task);
            }
            linked => linked.map_err(failed)?,
        }
        self.observer.advance(size, 1);
        if task.replaces {
            let may = self.check_still_as_seen(into, &task.folder, &task.name);
            let replaced = may.and_then(|()| into.replace(&name, &task.name).map_err(failed));
            // If both names already belong to one file, the rename does nothing and the
            // temporary name remains.
            let _ = into.remove(&name);
            replaced?;
        }
        self.tally.count(|outcome| outcome.links += 1);
        Ok(())
    }

    /// Writes a copy of the file if a link cannot be created.
    fn write_copy(&self, task: &LinkTask) -> Result<(), PathError> {
        let EntryKind::File { size, id } = task.leader.kind else {
            let (path, error) = (task.folder.join(&task.name), Errno::XDEV.into());
            self.tally.not_made(self.observer, task.leader.kind.noun(), &path, &error);
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
        self.write_files(&[file]);
        Ok(())
    }

    /// Reports the failure of the first name for a further name.
    fn report_first_name_failure(&self, task: &LinkTask, why: FirstNameFailure) {
        let path = task.folder.join(&task.name);
        match (why, &task.leader.kind) {
            (FirstNameFailure::Damaged(error), EntryKind::File { id, .. }) => {
                self.tally.damaged(path, id.object(), error);
            }
            (FirstNameFailure::Refused(errno), kind) => {
                self.tally.not_made(self.observer, kind.noun(), &path, &errno.into());
            }
            // Only files have content.
            (FirstNameFailure::Damaged(_), _) => {}
        }
    }

    /// Creates a symbolic link, pipe, socket or device. With `replaces`, it replaces the existing
    /// entry. If the system refuses to create it, as without privilege or on some file systems,
    /// reports and counts it and returns false.
    ///
    /// The entry gets its attributes under a temporary name. A restore that is killed before the
    /// rename therefore leaves nothing that the next restore takes for an entry of the user.
    pub(super) fn write_other(
        &self,
        folder: &OpenFolder,
        at: &FolderPath,
        entry: &Entry,
        inherited: Option<Inherited>,
        replaces: bool,
    ) -> Result<bool, PathError> {
        let failed = |source| self.error("create", at, Some(&entry.name), source);
        let name = temporary_name();
        let is_symlink = matches!(entry.kind, EntryKind::Symlink { .. });
        match &entry.kind {
            EntryKind::Symlink { target } => {
                folder.make_symlink(&name, target).map_err(failed)?;
            }
            kind => {
                if let Err(error) = make_node(folder, &name, kind) {
                    let Some(errno) = refused(&error) else { return Err(failed(error)) };
                    self.first_name_failed(entry.metadata.link, FirstNameFailure::Refused(errno));
                    let path = at.join(&entry.name);
                    self.tally.not_made(self.observer, kind.noun(), &path, &error);
                    return Ok(false);
                }
            }
        }
        self.set_other_attributes(folder, at, entry, &name, inherited);
        let placed = match replaces {
            true => self
                .check_still_as_seen(folder, at, &entry.name)
                .and_then(|()| folder.replace(&name, &entry.name).map_err(failed)),
            false => match folder.rename_new(&name, &entry.name) {
                Ok(Renamed::Taken) => Err(failed(Errno::EXIST.into())),
                other => other.map(drop).map_err(failed),
            },
        };
        if let Err(error) = placed {
            let _ = folder.remove(&name);
            return Err(error);
        }
        self.tally.count(|outcome| match is_symlink {
            true => outcome.symlinks += 1,
            false => outcome.others += 1,
        });
        Ok(true)
    }

    fn set_other_attributes(
        &self,
        folder: &OpenFolder,
        at: &FolderPath,
        entry: &Entry,
        name: &EntryName,
        inherited: Option<Inherited>,
    ) {
        let is_symlink = matches!(entry.kind, EntryKind::Symlink { .. });
        let gets = inherited.map(|inherited| inherited.owner);
        let all = self.attributes(&entry.metadata, false, None);
        let attributes = Attributes {
            owner: all.owner.filter(|owner| gets != Some(*owner)),
            mode: all.mode.filter(|_| !is_symlink),
            extra: if is_symlink || inherited.is_some() { Extra::Keep } else { Extra::Remove },
            ..all
        };
        let expected = ExpectedFile { kind: file_type(&entry.kind), inode: None };
        let target = match is_symlink {
            true => AttributeTarget::Symlink(folder, name),
            false => AttributeTarget::Entry(folder, name, expected),
        };
        apply(target, &attributes, &mut *self.refusals(at, Some(&entry.name)));
    }
}

/// Returns true if the two names cannot belong to one file. They lie on different file
/// systems or mounts, or the file system does not support links or this many links.
fn is_unlinkable(error: &io::Error) -> bool {
    let errors = [Errno::XDEV, Errno::MLINK, Errno::PERM, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| errors.contains(&errno))
}

fn make_node(folder: &OpenFolder, name: &EntryName, kind: &EntryKind) -> io::Result<()> {
    let device = match kind {
        EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => Some(*device),
        _ => None,
    };
    folder.make_node(name, file_type(kind), 0o600, device)
}

/// Returns the error number if the system does not create such entries in this place.
fn refused(error: &io::Error) -> Option<Errno> {
    let refusals = [Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    Errno::from_io_error(error).filter(|errno| refusals.contains(errno))
}
