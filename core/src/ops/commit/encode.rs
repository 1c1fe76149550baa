//! From a folder's listing to its tree.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::PoisonError,
};

use crate::{
    base::name::EntryName,
    format::tree::{
        Entry, Kind, Metadata, Totals, Xattr,
        split::{Folder, FolderEncoder},
    },
    local::{
        describe,
        fingerprint::short_hash,
        scan::{FileKind, FileStat, Listed},
        stat_cache::Place,
    },
    ops::commit::{
        CommitError,
        file::ReadFile,
        job::{Job, count},
        previous::{Change, Previous},
        walk::{NOTHING, Node, Slot},
    },
    store::StoreError,
};

/// The listing's hash together with the trees of the folder's folders.
pub(super) fn full_hash(node: &Node) -> [u8; 16] {
    let slots = node.slots.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bytes = Vec::with_capacity(16 + slots.len() * 4);
    bytes.extend_from_slice(&node.listing_hash);
    for (slot, entry) in slots.iter().zip(&node.listing.entries) {
        match slot {
            Slot::Folder(folder) => bytes.extend_from_slice(folder.id.as_bytes()),
            _ if entry.stat.kind == FileKind::Folder => bytes.push(0),
            _ => {}
        }
    }
    short_hash(&bytes)
}

/// A file that the stat cache proves unchanged, and whose content is stored;
/// and why its extended attributes could not be read.
pub(super) fn known_file(
    job: &Job<'_>,
    node: &Node,
    entry: &Listed,
    place: Place,
) -> Result<Option<(ReadFile, Option<io::Error>)>, StoreError> {
    let Some(known) = job.cache.file_at(&entry.stat, place) else { return Ok(None) };
    if !job.writer.contains_content(&known.id)? {
        return Ok(None);
    }
    let mut unread = None;
    let xattrs = match known.xattrs {
        true => xattrs_of(node, node.listing.name(entry)).unwrap_or_else(|error| {
            unread = Some(error);
            Vec::new()
        }),
        false => Vec::new(),
    };
    let file = ReadFile {
        id: known.id,
        size: entry.stat.size,
        xattrs: job.content.keep(xattrs).into_boxed_slice(),
        sparse: known.sparse,
        stat: None,
    };
    Ok(Some((file, unread)))
}

/// What a tree lacks that its folder has, and why.
pub(super) enum Lost<'e> {
    /// The whole entry.
    Entry(&'e (dyn std::error::Error + 'static)),
    /// The extended attributes of an entry.
    Attributes(&'e io::Error),
}

/// Receives the name of each entry that the tree lacks in whole or in part.
type TellLost<'t> = &'t dyn Fn(&[u8], Lost<'_>);

fn xattrs_of(node: &Node, name: &[u8]) -> io::Result<Vec<Xattr>> {
    describe::xattrs(node.fd.as_fd(), name)
}

/// Encodes a folder's tree, adds it to the store, and counts what changed.
/// What cannot be read is left out and told to `lost`.
pub(super) fn folder(
    job: &Job<'_>,
    node: &Node,
    previous: Option<&Previous>,
    lost: TellLost<'_>,
) -> Result<Folder, CommitError> {
    let mut encoder = FolderEncoder::new();
    let mut put = |id, bytes: Vec<u8>| job.writer.add_tree(id, &bytes);
    let mut slots = node.slots.lock().unwrap_or_else(PoisonError::into_inner);
    for (slot, listed) in slots.iter_mut().zip(&node.listing.entries) {
        let name = node.listing.name(listed);
        let slot = std::mem::replace(slot, Slot::Skipped);
        let (entry, below) = match entry(job, node, (name, listed), slot, lost) {
            Ok(Some(made)) => made,
            Ok(None) => continue,
            Err(error) => {
                lost(name, Lost::Entry(&error));
                continue;
            }
        };
        if let Kind::File { id, .. } = &entry.kind {
            let change = previous.map_or(Change::New, |previous| previous.compare(name, id));
            count_change(job, change);
        }
        encoder.push(entry, &below, &mut put)?;
    }
    Ok(encoder.finish(&mut put)?)
}

/// Counts a file by how it compares with the commit before.
pub(super) fn count_change(job: &Job<'_>, change: Change) {
    let which = match change {
        Change::New => &job.counts.new,
        Change::Changed => &job.counts.changed,
        Change::Unmodified => &job.counts.unmodified,
    };
    count(which, 1);
}

/// Makes an entry of what is known; `None` when it is left out.
fn entry(
    job: &Job<'_>,
    node: &Node,
    (name, listed): (&[u8], &Listed),
    slot: Slot,
    lost: TellLost<'_>,
) -> io::Result<Option<(Entry, Totals)>> {
    let xattrs = || {
        xattrs_of(node, name).unwrap_or_else(|error| {
            lost(name, Lost::Attributes(&error));
            Vec::new()
        })
    };
    let entry_name = EntryName::new(name).map_err(io::Error::other)?;
    let mut stat = listed.stat;
    let mut below = NOTHING;
    let (kind, xattrs, sparse) = match slot {
        Slot::Skipped => return Ok(None),
        Slot::File(file) => {
            stat = file.stat.map_or(stat, |stat| *stat);
            (Kind::File { size: file.size, id: file.id }, file.xattrs.into_vec(), file.sparse)
        }
        Slot::Folder(folder) => {
            below = folder.totals;
            (Kind::Folder { id: folder.id }, xattrs(), false)
        }
        Slot::Listed => {
            let kind = match special_kind(job, node.fd.as_fd(), name, &stat)? {
                Some(kind) => kind,
                None => return Ok(None),
            };
            (kind, xattrs(), false)
        }
    };
    let metadata = metadata(job, &stat, job.content.keep(xattrs), sparse);
    Ok(Some((Entry { name: entry_name, kind, metadata }, below)))
}

/// What is neither file nor folder that was looked into.
pub(super) fn special_kind(
    job: &Job<'_>,
    folder: BorrowedFd<'_>,
    name: &[u8],
    stat: &FileStat,
) -> io::Result<Option<Kind>> {
    if stat.kind == FileKind::Folder {
        // A mount point that is not looked into.
        let mut put = |id, bytes: Vec<u8>| job.writer.add_tree(id, &bytes);
        let empty = FolderEncoder::new().finish(&mut put).map_err(io::Error::other)?;
        return Ok(Some(Kind::Folder { id: empty.id }));
    }
    // Of a file nothing: its task ended without a result, as the job stops.
    describe::special(folder, name, stat)
}

/// What is kept about an entry beside its content.
pub(super) fn metadata(
    job: &Job<'_>,
    stat: &FileStat,
    xattrs: Vec<Xattr>,
    sparse: bool,
) -> Metadata {
    describe::metadata(stat, &job.owners, job.manner(), (xattrs, sparse))
}
