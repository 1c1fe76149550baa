//! Snapshots of several paths, and of a stream: a root tree that exists
//! nowhere, made of the files at each path.
//!
//! With [`Kept`], the paths update the tree of the commit before: its other
//! entries stay, and a path that is gone is removed. The ignore files of the
//! folders above a path then count as they do in a commit of everything.

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
        Entry, Kind, Totals,
        split::{Folder, FolderEncoder},
    },
    local::{
        ignore::Scope,
        scan::{FileKind, FileStat},
        stat_cache::Place,
        visible::{Visible, join},
    },
    ops::commit::{
        CommitError, NamedPath, encode,
        file::{self, Unread},
        job::{Job, count},
        previous::Previous,
        walk,
    },
    store::Entries,
};

/// What stands under a name of a made-up folder.
pub(super) enum Item {
    /// A file or folder of the user's.
    Real(PathBuf, Named),
    /// A folder on the way to one, where it really is, and its entries if they
    /// were listed already.
    Way(PathBuf, Items, Option<Present>),
}

/// The items of a made-up folder.
pub(super) type Items = BTreeMap<EntryName, Item>;

/// Whether the user named a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// It must be there, in the folder or in the commit before.
    ByUser,
    /// It was found; what cannot be read of it is left out.
    Found,
}

/// The commit before, whose paths are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept<'k> {
    /// The folder that the root of the snapshot stands for.
    pub(super) root: &'k Path,
    /// Its device.
    pub(super) device: u64,
}

/// The folder of the user's that a made-up folder updates.
pub(super) struct Present {
    /// What the rules leave of it; `None` when it is gone, or left out itself.
    pub(super) visible: Option<Visible>,
    /// Whether the rules leave the whole folder out.
    is_excluded: bool,
}

/// Reads each path and puts it in its place.
pub(super) fn read(
    job: &Job<'_>,
    paths: &[NamedPath],
    kept: Option<Kept<'_>>,
    previous: Option<TreeId>,
) -> Result<Option<Folder>, CommitError> {
    let mut top = Items::new();
    for path in paths {
        place(&mut top, &path.path, &path.inside)?;
    }
    let present = match kept {
        Some(kept) => Some(present(job, kept.root, &Scope::default(), b"")?),
        None => None,
    };
    root_folder(job, &top, (kept, present), previous)
}

/// Encodes the made-up folder that is the root.
pub(super) fn root_folder(
    job: &Job<'_>,
    items: &Items,
    (kept, present): (Option<Kept<'_>>, Option<Present>),
    previous: Option<TreeId>,
) -> Result<Option<Folder>, CommitError> {
    folder(job, items, (kept, present.as_ref()), &mut Vec::new(), previous)
}

pub(super) fn place(
    into: &mut Items,
    path: &Path,
    inside: &[EntryName],
) -> Result<(), CommitError> {
    let overlap =
        |other: &Path| CommitError::Overlap { first: other.to_owned(), second: path.to_owned() };
    let Some((name, rest)) = inside.split_first() else { return Err(overlap(path)) };
    match (into.get_mut(name), rest) {
        (None, []) => {
            into.insert(name.clone(), Item::Real(path.to_owned(), Named::ByUser));
        }
        (None, rest) => {
            let way = rest.iter().fold(path, |way, _| way.parent().unwrap_or(way));
            let mut below = Items::new();
            place(&mut below, path, rest)?;
            into.insert(name.clone(), Item::Way(way.to_owned(), below, None));
        }
        (Some(Item::Way(_, below, _)), [_, ..]) => place(below, path, rest)?,
        (Some(Item::Real(other, _)), []) if *other == path => {}
        (Some(Item::Real(other, _) | Item::Way(other, ..)), _) => return Err(overlap(other)),
    }
    Ok(())
}

/// Lists a folder on the way to a named path, as a whole commit would.
pub(super) fn present(
    job: &Job<'_>,
    path: &Path,
    above: &Scope,
    inside: &[u8],
) -> Result<Present, CommitError> {
    let source = |source: io::Error| CommitError::Source { path: path.to_owned(), source };
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !inside.is_empty() {
        flags |= OFlags::NOFOLLOW;
    }
    let fd = match openat(rustix::fs::CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            return Ok(Present { visible: None, is_excluded: false });
        }
        other => other.map_err(|error| source(error.into()))?,
    };
    let visible = Visible::read(job.rules, above, &fd, inside).map_err(source)?;
    for (name, error) in &visible.failed {
        job.skip(&join(inside, name), &path.join(OsStr::from_bytes(name)), error);
    }
    Ok(Present { visible: Some(visible), is_excluded: false })
}

impl Present {
    /// What the rules leave of a name in it.
    fn stat(&self, name: &EntryName) -> Option<FileStat> {
        let Visible { listing, .. } = self.visible.as_ref()?;
        let found =
            listing.entries.binary_search_by(|entry| listing.name(entry).cmp(name.as_bytes()));
        found.ok().map(|at| listing.entries[at].stat)
    }

    fn scope(&self) -> Scope {
        self.visible.as_ref().map(|visible| visible.scope.clone()).unwrap_or_default()
    }
}

/// Encodes a made-up folder; `None` when the job was stopped. With a `Kept`,
/// the other entries of the `previous` tree stay in it.
fn folder(
    job: &Job<'_>,
    items: &Items,
    (kept, present): (Option<Kept<'_>>, Option<&Present>),
    inside: &mut Vec<u8>,
    previous: Option<TreeId>,
) -> Result<Option<Folder>, CommitError> {
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
        let length = inside.len();
        if length > 0 {
            inside.push(b'/');
        }
        inside.extend_from_slice(name.as_bytes());
        let made = match (kept, present) {
            (Some(kept), Some(present)) => {
                updated_entry(job, (name, item), (kept, present), inside, (&before, replaced))?
            }
            _ => item_entry(job, (name, item), inside, &before)?,
        };
        inside.truncate(length);
        match made {
            Some((entry, below)) => encoder.push(entry, &below, &mut put)?,
            None if job.stopped() => return Ok(None),
            None => {}
        }
    }
    while let Some(entry) = other {
        let below = kept_totals(job, &entry)?;
        encoder.push(entry, &below, &mut put)?;
        other = next_other()?;
    }
    Ok(Some(encoder.finish(&mut put)?))
}

/// Totals of an entry that is kept, whose files count as unmodified.
pub(super) fn kept_totals(job: &Job<'_>, entry: &Entry) -> Result<Totals, CommitError> {
    let totals = match &entry.kind {
        Kind::Folder { id } => *job.writer.store().tree(id)?.totals(),
        _ => walk::NOTHING,
    };
    let own = u64::from(matches!(entry.kind, Kind::File { .. }));
    count(&job.counts.unmodified, totals.files + own);
    Ok(totals)
}

type Made = Option<(Entry, Totals)>;

/// An entry of a made-up folder that has no other entries.
fn item_entry(
    job: &Job<'_>,
    (name, item): (&EntryName, &Item),
    inside: &mut Vec<u8>,
    before: &Previous,
) -> Result<Made, CommitError> {
    let (Item::Real(path, _) | Item::Way(path, ..)) = item;
    let source = |source: io::Error| CommitError::Source { path: path.clone(), source };
    let stat = FileStat::of_name(rustix::fs::CWD, path.as_os_str()).map_err(source)?;
    let previous = before.folder(name.as_bytes());
    let folder = match (item, stat.kind) {
        (Item::Way(_, below, _), _) => folder(job, below, (None, None), inside, previous)?,
        (Item::Real(..), FileKind::Folder) => {
            let (scope, device) = (Scope::default(), None);
            let root = walk::Root { path, inside, previous, scope, device };
            walk::run(job, &root).map_err(source)?.map(|(folder, _)| folder)
        }
        (Item::Real(..), _) => return single(job, name, path, &stat, before),
    };
    Ok(folder.map(|folder| folder_entry(job, name, (path, &stat), &folder)))
}

/// An entry of a made-up folder that keeps other entries of the commit before.
/// `replaced` is what stood under the name.
fn updated_entry(
    job: &Job<'_>,
    (name, item): (&EntryName, &Item),
    (kept, present): (Kept<'_>, &Present),
    inside: &mut Vec<u8>,
    (before, replaced): (&Previous, Option<Entry>),
) -> Result<Made, CommitError> {
    let (Item::Real(path, _) | Item::Way(path, ..)) = item;
    let source = |source: io::Error| CommitError::Source { path: path.clone(), source };
    let stat = present.stat(name);
    let previous = before.folder(name.as_bytes());
    let is_here = || path.symlink_metadata().is_ok();
    match (item, stat) {
        (Item::Way(path, below, found), stat) => {
            let is_other_device = |stat: &FileStat| !job.rules.descends(stat, kept.device);
            let own;
            let below_it = match (stat.filter(|stat| !is_other_device(stat)), found) {
                (Some(stat), Some(found)) if stat.kind == FileKind::Folder => found,
                (Some(stat), None) if stat.kind == FileKind::Folder => {
                    own = self::present(job, path, &present.scope(), inside)?;
                    &own
                }
                // Something else has the place of the folder: what was in it is gone.
                (Some(stat), _) if stat.kind != FileKind::Folder => {
                    own = Present { visible: None, is_excluded: false };
                    &own
                }
                _ => {
                    let is_excluded = present.is_excluded || is_here();
                    own = Present { visible: None, is_excluded };
                    &own
                }
            };
            let is_gone = below_it.visible.is_none();
            let made = folder(job, below, (Some(kept), Some(below_it)), inside, previous)?;
            let Some(made) = made else { return Ok(None) };
            let is_folder = |entry: &Entry| matches!(entry.kind, Kind::Folder { .. });
            let updated = |entry| Entry { kind: Kind::Folder { id: made.id }, ..entry };
            match (stat.filter(|_| !is_gone), replaced.filter(is_folder)) {
                // To name a path says nothing about the folders above it.
                (Some(_), Some(entry)) if found.is_none() => {
                    Ok(Some((updated(entry), made.totals)))
                }
                (Some(stat), _) => Ok(Some(folder_entry(job, name, (path, &stat), &made))),
                (None, Some(entry)) if made.totals != walk::NOTHING => {
                    Ok(Some((updated(entry), made.totals)))
                }
                (None, _) => Ok(None),
            }
        }
        (Item::Real(_, Named::Found), None) => Ok(None),
        // The user named it, so nothing must be acknowledged without it.
        (Item::Real(path, Named::ByUser), None) if present.is_excluded || is_here() => {
            Err(CommitError::Excluded { path: path.clone() })
        }
        // It was deleted: the snapshot loses it.
        (Item::Real(..), None) if replaced.is_some() => Ok(None),
        (Item::Real(..), None) => Err(source(Errno::NOENT.into())),
        (Item::Real(path, named), Some(stat)) => {
            let made = match stat.kind == FileKind::Folder && job.rules.descends(&stat, kept.device)
            {
                true => {
                    let (scope, device) = (present.scope(), Some(kept.device));
                    let root = walk::Root { path, inside, previous, scope, device };
                    let walked = walk::run(job, &root).map_err(source);
                    walked.map(|walked| {
                        walked.map(|(folder, _)| folder_entry(job, name, (path, &stat), &folder))
                    })
                }
                false => single(job, name, path, &stat, before),
            };
            match made {
                Err(CommitError::Source { source, .. }) if *named == Named::Found => {
                    job.skip(inside, path, &source);
                    Ok(None)
                }
                made => made,
            }
        }
    }
}

fn folder_entry(
    job: &Job<'_>,
    name: &EntryName,
    (path, stat): (&Path, &FileStat),
    folder: &Folder,
) -> (Entry, Totals) {
    let metadata = encode::metadata(job, stat, job.content.keep(job.xattrs_at(path)), false);
    let kind = Kind::Folder { id: folder.id };
    (Entry { name: name.clone(), kind, metadata }, folder.totals)
}

/// A path that is no folder.
fn single(
    job: &Job<'_>,
    name: &EntryName,
    path: &Path,
    stat: &FileStat,
    previous: &Previous,
) -> Result<Made, CommitError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let error = |source| CommitError::Source { path: path.to_owned(), source };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder =
        openat(rustix::fs::CWD, parent, flags, Mode::empty()).map_err(|e| error(e.into()))?;
    let own_name = path.file_name().unwrap_or(name.as_os_str());
    let (kind, stat, xattrs, sparse) = if stat.kind == FileKind::File {
        let place =
            Place::new(&FileStat::of_fd(folder.as_fd()).map_err(error)?, own_name.as_bytes());
        match file::read(job, (folder.as_fd(), own_name), place, stat) {
            Ok(file::ReadOutcome { file: read, changing, unread_xattrs }) => {
                if let Some(error) = unread_xattrs {
                    job.lose_attributes(path, &error);
                }
                if changing {
                    count(&job.counts.changing, 1);
                    job.observer.note(crate::base::observe::Note::Changing { path });
                }
                encode::count_change(job, previous.compare(name.as_bytes(), &read.id));
                let stat = read.stat.map_or(*stat, |stat| *stat);
                let kind = Kind::File { size: read.size, id: read.id };
                (kind, stat, read.xattrs.into_vec(), read.sparse)
            }
            Err(Unread::File(source)) => return Err(error(source)),
            Err(Unread::Commit(error)) => return Err(error),
        }
    } else {
        let kind = encode::special_kind(job, folder.as_fd(), own_name.as_bytes(), stat);
        let Some(kind) = kind.map_err(error)? else { return Ok(None) };
        (kind, *stat, job.content.keep(job.xattrs_at(path)), false)
    };
    let metadata = encode::metadata(job, &stat, xattrs, sparse);
    Ok(Some((Entry { name: name.clone(), kind, metadata }, walk::NOTHING)))
}
