//! Commits several paths under a virtual root tree, which corresponds to no folder on
//! disk.
//!
//! With [`KeepFrom`], the paths update the tree of the previous commit: its other entries
//! stay, and a path that is gone is removed. Ignore files in the folders above a path
//! then apply as in a commit of the whole project.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use crate::{
    base::{id::TreeId, name::EntryName},
    format::tree::{
        Entry, EntryKind, Metadata, Totals,
        split::{EncodedFolder, FolderEncoder},
    },
    local::{
        ignore::IgnoreScope,
        read::open_parent,
        scan::{FileKind, FileStat},
        stat_cache::NameHash,
        visible::{Visible, join},
    },
    ops::commit::{
        CommitError, NamedPath, encode,
        file::{self, FileReadError},
        job::CommitJob,
        previous::{FileChanges, Previous, files_in},
        scope::{is_in_scope, items_in_scope, reaches_below},
        walk,
    },
    repo::{
        path::{entry_named, push_name},
        scope::ScopePath,
    },
    store::{Entries, Store},
};

/// An entry of a virtual folder.
#[derive(Debug)]
pub(in crate::ops) enum VirtualEntry {
    /// A file or folder on disk.
    OnDisk(PathBuf, PathOrigin),
    /// An intermediate folder on the way to a named path: its path on disk, its items,
    /// and its entries if it was listed already.
    Intermediate(PathBuf, Items, Option<ListedFolder>),
}

/// The items of a virtual folder.
pub(in crate::ops) type Items = BTreeMap<EntryName, VirtualEntry>;

/// Records whether the user named a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum PathOrigin {
    /// The user named it, so it must exist on disk or in the previous commit.
    ByUser,
    /// It was found in a listing, so it is left out if it cannot be read.
    Found,
}

/// Returns the path in the snapshot that consists of these names.
pub(in crate::ops) fn joined(names: &[EntryName]) -> Vec<u8> {
    names.iter().map(EntryName::as_bytes).collect::<Vec<_>>().join(&b'/')
}

/// The folder whose other paths are kept from the previous commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepFrom<'k> {
    /// The folder that corresponds to the root of the snapshot.
    pub(super) root: &'k Path,
    /// Device of that folder.
    pub(super) device: u64,
    /// The scope of a partial clone. A folder outside the scope may lack entries of the previous
    /// commit. The commit then keeps them.
    pub(super) scope: Option<&'k [ScopePath]>,
}

impl KeepFrom<'_> {
    /// Returns true if a path lies outside the scope of a partial clone.
    fn is_unfetched(&self, inside: &[u8]) -> bool {
        self.scope.is_some_and(|scope| !is_in_scope(scope, inside))
    }
}

/// A virtual folder that keeps entries of the previous commit, and its listing.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptFolder<'k> {
    pub(super) from: KeepFrom<'k>,
    pub(super) present: &'k ListedFolder,
}

/// The folder on disk that a virtual folder updates.
#[derive(Debug)]
pub(in crate::ops) struct ListedFolder {
    /// The entries that the ignore rules allow; `None` if the folder is missing or
    /// excluded itself.
    pub(super) visible: Option<Visible>,
    /// True if the ignore rules exclude the whole folder.
    is_excluded: bool,
}

/// Reads each path and builds the root tree.
pub(super) fn read(
    job: &CommitJob<'_>,
    paths: &[NamedPath],
    kept: Option<KeepFrom<'_>>,
    project: Option<&Path>,
    previous: Option<TreeId>,
) -> Result<Option<EncodedFolder>, CommitError> {
    let mut top = Items::new();
    for path in paths {
        insert_path(&mut top, &path.path, &path.inside)?;
    }
    let list = |root: &Path| present(job, root, &IgnoreScope::default(), b"");
    let listed = kept.map(|kept| list(kept.root)).transpose()?;
    let kept = kept.zip(listed.as_ref()).map(|(from, present)| KeptFolder { from, present });
    // The project's ignore files apply to its paths even if no other entries are kept.
    let scope = project.map(list).transpose()?.map(|listed| listed.scope());
    let made = folder(job, &top, scope.as_ref(), kept, &mut Vec::new(), previous)?;
    let unread = job.unread.lock();
    if let Some(first) = paths.first()
        && paths.iter().all(|path| unread.covers(&joined(&path.inside)))
    {
        let source = fs_err::File::open(&first.path).err();
        let source = source.unwrap_or_else(|| io::Error::other("it cannot be read"));
        return Err(CommitError::Source { path: first.path.clone(), source });
    }
    Ok(made)
}

/// Adds a path that the user named to the items of a virtual folder.
pub(in crate::ops) fn insert_path(
    into: &mut Items,
    path: &Path,
    inside: &[EntryName],
) -> Result<(), CommitError> {
    let overlap =
        |other: &Path| CommitError::Overlap { first: other.to_owned(), second: path.to_owned() };
    let Some((name, rest)) = inside.split_first() else { return Err(overlap(path)) };
    match (into.get_mut(name), rest) {
        (None, []) => {
            into.insert(name.clone(), VirtualEntry::OnDisk(path.to_owned(), PathOrigin::ByUser));
        }
        (None, rest) => {
            let way = rest.iter().fold(path, |way, _| way.parent().unwrap_or(way));
            let mut below = Items::new();
            insert_path(&mut below, path, rest)?;
            into.insert(name.clone(), VirtualEntry::Intermediate(way.to_owned(), below, None));
        }
        (Some(VirtualEntry::Intermediate(_, below, _)), [_, ..]) => insert_path(below, path, rest)?,
        (Some(VirtualEntry::OnDisk(other, _)), []) if *other == path => {}
        (Some(VirtualEntry::OnDisk(other, _) | VirtualEntry::Intermediate(other, ..)), _) => {
            return Err(overlap(other));
        }
    }
    Ok(())
}

/// Lists the entries of an intermediate folder that the ignore rules allow.
pub(super) fn present(
    job: &CommitJob<'_>,
    path: &Path,
    above: &IgnoreScope,
    inside: &[u8],
) -> Result<ListedFolder, CommitError> {
    let source = |source: io::Error| CommitError::Source { path: path.to_owned(), source };
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !inside.is_empty() {
        flags |= OFlags::NOFOLLOW;
    }
    let fd = match openat(rustix::fs::CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            return Ok(ListedFolder { visible: None, is_excluded: false });
        }
        other => other.map_err(|error| source(error.into()))?,
    };
    let visible =
        Visible::read(job.rules, above, &fd, inside, &|| job.stopped()).map_err(source)?;
    for (name, error) in &visible.failed {
        job.skip(&join(inside, name), &path.join(OsStr::from_bytes(name)), error);
    }
    Ok(ListedFolder { visible: Some(visible), is_excluded: false })
}

impl ListedFolder {
    /// Returns the stat of an entry that the rules allow.
    fn stat(&self, name: &EntryName) -> Option<FileStat> {
        self.visible.as_ref()?.listing.find(name.as_bytes()).map(|entry| entry.stat)
    }

    fn scope(&self) -> IgnoreScope {
        self.visible.as_ref().map(|visible| visible.scope.clone()).unwrap_or_default()
    }
}

/// Encodes a virtual folder. Returns `None` if the job was stopped. With a [`KeptFolder`], the
/// other entries of the `previous` tree stay in it. Without one, the ignore files of the
/// scope `above` apply to the items.
pub(super) fn folder(
    job: &CommitJob<'_>,
    items: &Items,
    above: Option<&IgnoreScope>,
    kept: Option<KeptFolder<'_>>,
    inside: &mut Vec<u8>,
    previous: Option<TreeId>,
) -> Result<Option<EncodedFolder>, CommitError> {
    let store = job.writer.store();
    let before = previous.and_then(|tree| Previous::read(job.writer, tree)).unwrap_or_default();
    let mut encoder = FolderEncoder::new();
    let mut put = |id, bytes: Vec<u8>| job.writer.add_tree(id, &bytes);
    let mut others = previous.filter(|_| kept.is_some()).map(|tree| Entries::of(store, tree));
    let mut next_other = || others.as_mut().and_then(Iterator::next).transpose();
    let mut other = next_other()?;
    for (name, item) in items {
        while let Some(entry) = other.take_if(|other| other.name < *name) {
            let below = kept_totals(job, &entry)?;
            encoder.push(entry, &below, &mut put)?;
            other = next_other()?;
        }
        let replaced = other.take_if(|other| other.name == *name);
        if replaced.is_some() {
            other = next_other()?;
        }
        let was = replaced.as_ref().map(|entry| entry.kind.clone());
        let length = inside.len();
        push_name(inside, name.as_bytes());
        let made = match kept {
            Some(kept) => updated_entry(job, name, item, kept, inside, &before, replaced)?,
            None => match item_entry(job, name, item, above, inside, &before) {
                // The other sources are saved, as a folder without an unreadable file is.
                Err(CommitError::Source { path, source })
                    if source.kind() != io::ErrorKind::NotFound =>
                {
                    job.skip(inside, &path, &source);
                    None
                }
                made => made?,
            },
        };
        inside.truncate(length);
        if made.is_none() && job.stopped() {
            return Ok(None);
        }
        if let (Some(was), VirtualEntry::OnDisk(path, _)) = (was, item) {
            count_lost(job, &was, path, made.as_ref().map(|(entry, _)| &entry.kind));
        }
        if let Some((mut entry, below)) = made {
            if let (VirtualEntry::Intermediate(..), Some(tree), None) = (item, previous, kept) {
                keep_time(store, tree, &mut entry);
            }
            encoder.push(entry, &below, &mut put)?;
        }
    }
    if kept.is_none() {
        // The new folder contains only the items. The files of all other previous entries count as
        // deleted.
        let has = |name: &[u8], _| items.keys().any(|item| item.as_bytes() == name);
        let deleted = before.missing(store, has).map(|(_, files)| files).sum();
        job.count_files(FileChanges { deleted, ..FileChanges::default() });
    }
    while let Some(entry) = other {
        let below = kept_totals(job, &entry)?;
        encoder.push(entry, &below, &mut put)?;
        other = next_other()?;
    }
    Ok(Some(encoder.finish(&mut put)?))
}

/// Gives a folder above the sources its entry of the previous commit, if only the time differs.
/// Other entries of the folder, which belong to no commit, change that time.
fn keep_time(store: &Store, previous: TreeId, entry: &mut Entry) {
    if let Ok(Some(before)) = entry_named(store, previous, entry.name.as_bytes())
        && before.kind == entry.kind
        && before.metadata == (Metadata { mtime: before.metadata.mtime, ..entry.metadata.clone() })
    {
        *entry = before;
    }
}

/// Counts the files of a previous entry as deleted if nothing, or another kind of entry, is at
/// `path` now.
fn count_lost(job: &CommitJob<'_>, was: &EntryKind, path: &Path, now: Option<&EntryKind>) {
    let deleted = match (was, now) {
        // The entry is unreadable, so it is skipped.
        (_, None) if path.symlink_metadata().is_ok() => 0,
        (EntryKind::File { .. }, Some(EntryKind::File { .. })) => 0,
        (EntryKind::Folder { .. }, Some(EntryKind::Folder { .. })) => 0,
        (EntryKind::File { .. }, _) => 1,
        (EntryKind::Folder { id }, _) => files_in(job.writer.store(), *id),
        _ => 0,
    };
    job.count_files(FileChanges { deleted, ..FileChanges::default() });
}

/// Returns the totals of a kept entry and counts its files as unmodified.
pub(super) fn kept_totals(job: &CommitJob<'_>, entry: &Entry) -> Result<Totals, CommitError> {
    let totals = match &entry.kind {
        EntryKind::Folder { id } => *job.writer.store().tree(id)?.totals(),
        _ => walk::NOTHING,
    };
    let own = u64::from(matches!(entry.kind, EntryKind::File { .. }));
    job.count_files(FileChanges { unmodified: totals.files + own, ..FileChanges::default() });
    Ok(totals)
}

type BuiltEntry = Option<(Entry, Totals)>;

/// Builds an entry of a virtual folder that keeps no other entries.
fn item_entry(
    job: &CommitJob<'_>,
    name: &EntryName,
    item: &VirtualEntry,
    above: Option<&IgnoreScope>,
    inside: &mut Vec<u8>,
    before: &Previous,
) -> Result<BuiltEntry, CommitError> {
    let (VirtualEntry::OnDisk(path, _) | VirtualEntry::Intermediate(path, ..)) = item;
    let source = |source: io::Error| CommitError::Source { path: path.clone(), source };
    let stat = FileStat::of_name(rustix::fs::CWD, path.as_os_str()).map_err(source)?;
    let previous = before.folder(name.as_bytes());
    let is_folder = stat.kind == FileKind::Folder;
    if above.is_some_and(|scope| job.rules.excludes_path(scope, inside, is_folder)) {
        return Err(CommitError::Excluded { path: path.clone() });
    }
    let folder = match (item, stat.kind) {
        (VirtualEntry::Intermediate(_, below, _), _) => {
            let scope = match above {
                Some(above) => Some(present(job, path, above, inside)?.scope()),
                None => None,
            };
            folder(job, below, scope.as_ref(), None, inside, previous)?
        }
        (VirtualEntry::OnDisk(..), FileKind::Folder) => {
            let (scope, device) = (above.cloned().unwrap_or_default(), None);
            let root = walk::WalkRoot { path, inside, previous, scope, device };
            walk::run(job, &root).map_err(source)?.map(|(folder, _)| folder)
        }
        (VirtualEntry::OnDisk(..), _) => return single(job, name, path, &stat, before),
    };
    Ok(folder.map(|folder| folder_entry(job, name, path, &stat, &folder)))
}

/// Builds an entry of a virtual folder that keeps other entries of the previous commit.
/// `replaced` is the previous entry of this name.
fn updated_entry(
    job: &CommitJob<'_>,
    name: &EntryName,
    item: &VirtualEntry,
    kept: KeptFolder<'_>,
    inside: &mut Vec<u8>,
    before: &Previous,
    replaced: Option<Entry>,
) -> Result<BuiltEntry, CommitError> {
    let KeptFolder { from: kept, present } = kept;
    let (VirtualEntry::OnDisk(path, _) | VirtualEntry::Intermediate(path, ..)) = item;
    let source = |source: io::Error| CommitError::Source { path: path.clone(), source };
    let stat = present.stat(name);
    let previous = before.folder(name.as_bytes());
    let is_here = || path.symlink_metadata().is_ok();
    let is_unfetched = kept.is_unfetched(inside);
    let was_folder = replaced.as_ref().map(|entry| entry.kind.tree().is_some());
    match (item, stat) {
        (VirtualEntry::Intermediate(path, ..), Some(stat))
            if stat.kind == FileKind::Folder && is_unfetched && was_folder == Some(false) =>
        {
            Err(CommitError::OverUnfetched { path: path.clone(), noun: "file" })
        }
        (VirtualEntry::Intermediate(path, below, found), stat) => {
            let is_other_device = |stat: &FileStat| !job.rules.descends(stat, kept.device);
            let own;
            let below_it = match (stat.filter(|stat| !is_other_device(stat)), found) {
                (Some(stat), Some(found)) if stat.kind == FileKind::Folder => found,
                (Some(stat), None) if stat.kind == FileKind::Folder => {
                    own = self::present(job, path, &present.scope(), inside)?;
                    &own
                }
                // Another kind of file is in the folder's place, so its previous contents
                // are gone.
                (Some(stat), _) if stat.kind != FileKind::Folder => {
                    own = ListedFolder { visible: None, is_excluded: false };
                    &own
                }
                _ => {
                    let is_excluded = present.is_excluded || is_here();
                    own = ListedFolder { visible: None, is_excluded };
                    &own
                }
            };
            let is_gone = below_it.visible.is_none();
            let made = folder(
                job,
                below,
                None,
                Some(KeptFolder { from: kept, present: below_it }),
                inside,
                previous,
            )?;
            let Some(made) = made else { return Ok(None) };
            let is_folder = |entry: &Entry| matches!(entry.kind, EntryKind::Folder { .. });
            let updated = |entry| Entry { kind: EntryKind::Folder { id: made.id }, ..entry };
            match (stat.filter(|_| !is_gone), replaced.filter(is_folder)) {
                // The user named a path below this folder, so the folder's own attributes
                // are kept.
                (Some(_), Some(entry)) if found.is_none() => {
                    Ok(Some((updated(entry), made.totals)))
                }
                (Some(stat), _) => Ok(Some(folder_entry(job, name, path, &stat, &made))),
                (None, Some(entry)) if made.totals != walk::NOTHING => {
                    Ok(Some((updated(entry), made.totals)))
                }
                (None, _) => Ok(None),
            }
        }
        (VirtualEntry::OnDisk(_, PathOrigin::Found), None) => Ok(None),
        // The user named this path, so a commit without it must fail.
        (VirtualEntry::OnDisk(path, PathOrigin::ByUser), None)
            if present.is_excluded || is_here() =>
        {
            Err(CommitError::Excluded { path: path.clone() })
        }
        // A partly fetched folder keeps its unfetched entries, even if the fetched part was
        // deleted.
        (VirtualEntry::OnDisk(path, _), stat)
            if is_unfetched && stat.is_none_or(|stat| stat.kind == FileKind::Folder) =>
        {
            let scope = kept.scope.unwrap_or_default();
            if stat.is_none() && !reaches_below(scope, inside) {
                return Err(CommitError::OutOfScope { path: path.clone() });
            }
            let (below, found) = items_in_scope(job, path, &present.scope(), inside, scope)?;
            let way = VirtualEntry::Intermediate(path.clone(), below, Some(found));
            let kept = KeptFolder { from: kept, present };
            updated_entry(job, name, &way, kept, inside, before, replaced)
        }
        // The path was deleted, so the snapshot loses it.
        (VirtualEntry::OnDisk(..), None) if replaced.is_some() => Ok(None),
        (VirtualEntry::OnDisk(..), None) => Err(source(Errno::NOENT.into())),
        (VirtualEntry::OnDisk(path, _), Some(stat))
            if stat.kind != FileKind::Folder && is_unfetched && was_folder == Some(true) =>
        {
            Err(CommitError::OverUnfetched { path: path.clone(), noun: "folder" })
        }
        (VirtualEntry::OnDisk(path, named), Some(stat)) => {
            let made = match stat.kind == FileKind::Folder && job.rules.descends(&stat, kept.device)
            {
                true => {
                    let (scope, device) = (present.scope(), Some(kept.device));
                    let root = walk::WalkRoot { path, inside, previous, scope, device };
                    let walked = walk::run(job, &root).map_err(source);
                    walked.map(|walked| {
                        walked.map(|(folder, _)| folder_entry(job, name, path, &stat, &folder))
                    })
                }
                false => single(job, name, path, &stat, before),
            };
            match (made, named) {
                (Err(CommitError::Source { source, .. }), PathOrigin::Found) => {
                    job.skip(inside, path, &source);
                    Ok(None)
                }
                // The previous commit may be the last one that could read it.
                (Err(CommitError::Source { source, .. }), PathOrigin::ByUser)
                    if source.kind() != io::ErrorKind::NotFound =>
                {
                    job.skip(inside, path, &source);
                    let Some(entry) = replaced else { return Ok(None) };
                    let below = kept_totals(job, &entry)?;
                    Ok(Some((entry, below)))
                }
                (made, _) => made,
            }
        }
    }
}

fn folder_entry(
    job: &CommitJob<'_>,
    name: &EntryName,
    path: &Path,
    stat: &FileStat,
    folder: &EncodedFolder,
) -> (Entry, Totals) {
    let metadata = encode::metadata(job, stat, job.content.keep(job.xattrs_at(path)), false);
    let kind = EntryKind::Folder { id: folder.id };
    (Entry { name: name.clone(), kind, metadata }, folder.totals)
}

/// Builds the entry of a path that is not a folder.
fn single(
    job: &CommitJob<'_>,
    name: &EntryName,
    path: &Path,
    stat: &FileStat,
    previous: &Previous,
) -> Result<BuiltEntry, CommitError> {
    let error = |source| CommitError::Source { path: path.to_owned(), source };
    let (folder, _) = open_parent(path).map_err(error)?;
    let own_name = path.file_name().unwrap_or(name.as_os_str());
    let (kind, stat, xattrs, sparse) = if stat.kind == FileKind::File {
        let place =
            NameHash::new(&FileStat::of_fd(folder.as_fd()).map_err(error)?, own_name.as_bytes());
        match file::read(job, folder.as_fd(), own_name, place, stat) {
            Ok(file::ReadOutcome { file: read, changing, unread_xattrs, .. }) => {
                if let Some(error) = unread_xattrs {
                    job.lose_attributes(path, &error);
                }
                if changing {
                    job.outcome.lock().changing += 1;
                    job.observer.note(crate::base::observe::Note::Changing { path });
                }
                job.count_files(previous.compare(name.as_bytes(), &read.id));
                let stat = read.stat.map_or(*stat, |stat| *stat);
                let kind = EntryKind::File { size: read.size, id: read.id };
                (kind, stat, read.xattrs.into_vec(), read.sparse)
            }
            Err(FileReadError::File(source)) => return Err(error(source)),
            Err(FileReadError::Commit(error)) => return Err(error),
        }
    } else {
        let kind = encode::special_kind(job, folder.as_fd(), own_name.as_bytes(), stat);
        let Some(kind) = kind.map_err(error)? else { return Ok(None) };
        (kind, *stat, job.content.keep(job.xattrs_at(path)), false)
    };
    let metadata = encode::metadata(job, &stat, xattrs, sparse);
    Ok(Some((Entry { name: name.clone(), kind, metadata }, walk::NOTHING)))
}
