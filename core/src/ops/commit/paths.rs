//! Snapshots of several paths, and of a stream: a root tree that exists
//! nowhere, made of what is found at each path.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, openat};

use crate::{
    base::{id::TreeId, name::EntryName},
    format::tree::{
        Entry, Kind, Metadata, Totals,
        split::{Folder, FolderEncoder},
    },
    local::{
        attributes::{XattrTarget, read_xattrs},
        scan::{FileKind, FileStat},
        stat_cache::Place,
    },
    ops::commit::{
        CommitError, NamedPath, Root, encode,
        file::{self, Unread},
        job::{Job, count},
        previous::{Change, Previous},
        walk,
    },
};

/// What stands under a name of a made-up folder.
#[derive(Debug)]
enum Item {
    /// A file or folder of the user's.
    Real(PathBuf),
    /// A folder on the way to one, and where it really is.
    Way(PathBuf, BTreeMap<EntryName, Item>),
}

/// Reads each path and puts it in its place.
pub(super) fn read(
    job: &Job<'_>,
    paths: Vec<NamedPath>,
    previous: Option<TreeId>,
) -> Result<Option<Root>, CommitError> {
    let mut top = BTreeMap::new();
    for path in paths {
        place(&mut top, &path.path, &path.inside)?;
    }
    let folder = folder(job, &top, &mut Vec::new(), previous)?;
    Ok(folder.map(|folder| Root { tree: folder.id, totals: folder.totals, metadata: None }))
}

fn place(
    into: &mut BTreeMap<EntryName, Item>,
    path: &Path,
    inside: &[EntryName],
) -> Result<(), CommitError> {
    let overlap =
        |other: &Path| CommitError::Overlap { first: other.to_owned(), second: path.to_owned() };
    let Some((name, rest)) = inside.split_first() else { return Err(overlap(path)) };
    match (into.get_mut(name), rest) {
        (None, []) => drop(into.insert(name.clone(), Item::Real(path.to_owned()))),
        (None, rest) => {
            let way = rest.iter().fold(path, |way, _| way.parent().unwrap_or(way));
            let mut below = BTreeMap::new();
            place(&mut below, path, rest)?;
            into.insert(name.clone(), Item::Way(way.to_owned(), below));
        }
        (Some(Item::Way(_, below)), [_, ..]) => place(below, path, rest)?,
        (Some(Item::Real(other)), []) if *other == path => {}
        (Some(Item::Real(other) | Item::Way(other, _)), _) => return Err(overlap(other)),
    }
    Ok(())
}

/// Encodes a made-up folder; `None` when the job was stopped.
fn folder(
    job: &Job<'_>,
    items: &BTreeMap<EntryName, Item>,
    inside: &mut Vec<u8>,
    previous: Option<TreeId>,
) -> Result<Option<Folder>, CommitError> {
    let previous = previous.and_then(|tree| Previous::read(job.writer.store(), tree).ok());
    let previous = previous.unwrap_or_default();
    let mut encoder = FolderEncoder::new();
    let mut put = |id, bytes: Vec<u8>| job.writer.add_tree(id, &bytes);
    for (name, item) in items {
        let before = inside.len();
        if before > 0 {
            inside.push(b'/');
        }
        inside.extend_from_slice(name.as_bytes());
        let made = item_entry(job, name, item, inside, &previous)?;
        inside.truncate(before);
        match made {
            Some((entry, below)) => encoder.push(entry, &below, &mut put)?,
            None if job.stopped() => return Ok(None),
            None => {}
        }
    }
    Ok(Some(encoder.finish(&mut put)?))
}

type Made = Option<(Entry, Totals)>;

fn item_entry(
    job: &Job<'_>,
    name: &EntryName,
    item: &Item,
    inside: &mut Vec<u8>,
    previous: &Previous,
) -> Result<Made, CommitError> {
    let (path, below) = match item {
        Item::Real(path) => (path, None),
        Item::Way(path, below) => (path, Some(below)),
    };
    let source = |source: io::Error| CommitError::Source { path: path.clone(), source };
    let stat = FileStat::of_name(rustix::fs::CWD, path.as_os_str()).map_err(source)?;
    let before = previous.folder(name.as_bytes());
    let walked = match (below, stat.kind) {
        (Some(below), _) => folder(job, below, inside, before)?,
        (None, FileKind::Folder) => {
            let root = walk::Root { path, inside, previous: before };
            walk::run(job, &root).map_err(source)?.map(|(folder, _)| folder)
        }
        (None, _) => return single(job, name, path, &stat, previous),
    };
    let Some(folder) = walked else { return Ok(None) };
    let xattrs = read_xattrs(XattrTarget::Path(path)).unwrap_or_default();
    let metadata = encode::metadata(job, &stat, job.content.keep(xattrs), false);
    let kind = Kind::Folder { id: folder.id };
    Ok(Some((Entry { name: name.clone(), kind, metadata }, folder.totals)))
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
            Ok((read, changing)) => {
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
        let xattrs = read_xattrs(XattrTarget::Path(path)).unwrap_or_default();
        (kind, *stat, job.content.keep(xattrs), false)
    };
    let metadata = encode::metadata(job, &stat, xattrs, sparse);
    Ok(Some((Entry { name: name.clone(), kind, metadata }, walk::NOTHING)))
}

/// A root tree with one file that is read from a stream.
pub(super) fn read_stream(
    job: &Job<'_>,
    name: EntryName,
    reader: &mut (dyn Read + Send),
    previous: Option<TreeId>,
) -> Result<Root, CommitError> {
    let (id, size) = match file::stream(job, reader) {
        Ok(read) => read,
        Err(Unread::File(error)) => return Err(CommitError::Stream(error)),
        Err(Unread::Commit(error)) => return Err(error),
    };
    let previous = previous.and_then(|tree| Previous::read(job.writer.store(), tree).ok());
    let change = previous.map_or(Change::New, |previous| previous.compare(name.as_bytes(), &id));
    encode::count_change(job, change);
    // A stream has no attributes of its own, and no time either: the same
    // content is the same tree.
    let metadata = Metadata { mode: 0o644, ..Metadata::default() };
    let entry = Entry { name, kind: Kind::File { size, id }, metadata };
    let mut encoder = FolderEncoder::new();
    let mut put = |id, bytes: Vec<u8>| job.writer.add_tree(id, &bytes);
    encoder.push(entry, &walk::NOTHING, &mut put)?;
    let folder = encoder.finish(&mut put)?;
    Ok(Root { tree: folder.id, totals: folder.totals, metadata: None })
}
