//! Encodes the tree of a listed folder.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use crate::{
    base::name::EntryName,
    format::tree::{
        Entry, EntryKind, Metadata, Totals, Xattr,
        split::{EncodedFolder, FolderEncoder},
    },
    local::{
        describe,
        fingerprint::short_hash,
        scan::{FileKind, FileStat, ScannedEntry, exists},
        stat_cache::NameHash,
    },
    ops::commit::{
        CommitError,
        file::ReadFile,
        job::CommitJob,
        previous::{FileChanges, Previous},
        walk::{EntryResult, NOTHING, WalkedFolder},
    },
    store::StoreError,
};

/// Returns a hash over the listing's hash and the trees of the subfolders.
pub(super) fn full_hash(node: &WalkedFolder) -> [u8; 16] {
    let slots = node.slots.lock();
    let mut bytes = Vec::with_capacity(16 + slots.len() * 4);
    bytes.extend_from_slice(&node.listing_hash);
    for (slot, entry) in slots.iter().zip(&node.listing.entries) {
        match slot {
            EntryResult::Folder(below) => bytes.extend_from_slice(below.folder.id.as_bytes()),
            _ if entry.stat.kind == FileKind::Folder => bytes.push(0),
            _ => {}
        }
    }
    short_hash(&bytes)
}

/// Returns a file if the stat cache proves it unchanged and its content is stored. Also returns the
/// error if its extended attributes cannot be read.
pub(super) fn known_file(
    job: &CommitJob<'_>,
    node: &WalkedFolder,
    entry: &ScannedEntry,
    place: NameHash,
) -> Result<Option<(ReadFile, Option<io::Error>)>, StoreError> {
    let Some(known) = job.cache.file_at(&entry.stat, place) else { return Ok(None) };
    let Some(id) = known.id() else { return Ok(None) };
    if !job.writer.contains_content(&id)? {
        return Ok(None);
    }
    let mut unread = None;
    let xattrs = match known.xattrs {
        true => {
            describe::xattrs(node.fd.as_fd(), node.listing.name(entry)).unwrap_or_else(|error| {
                unread = Some(error);
                Vec::new()
            })
        }
        false => Vec::new(),
    };
    let file = ReadFile {
        id,
        size: entry.stat.size,
        xattrs: job.content.keep(xattrs).into_boxed_slice(),
        sparse: known.sparse,
        stat: None,
    };
    Ok(Some((file, unread)))
}

/// A part of a folder that cannot be read and that its tree omits, with the reason.
pub(super) enum OmittedPart<'e> {
    /// The whole entry.
    Entry(&'e (dyn std::error::Error + 'static)),
    /// The extended attributes of an entry.
    Attributes(&'e io::Error),
}

/// Receives the name of each entry that the tree lacks in whole or in part.
type OnOmitted<'t> = &'t dyn Fn(&[u8], OmittedPart<'_>);

/// Encodes a folder's tree, adds it to the store, and compares its files with the folder `previous`
/// of the previous commit. Leaves out entries that cannot be read, and passes them to `on_omitted`.
pub(super) fn folder(
    job: &CommitJob<'_>,
    node: &WalkedFolder,
    previous: Option<&Previous>,
    on_omitted: OnOmitted<'_>,
) -> Result<(EncodedFolder, FileChanges), CommitError> {
    let store = job.writer.store();
    let none = Previous::default();
    let previous = previous.unwrap_or(&none);
    // `matched` counts the entries that the previous folder has, too.
    let (mut files, mut matched) = (FileChanges::default(), 0);
    let mut encoder = FolderEncoder::new();
    let mut put = |id, bytes: Vec<u8>| job.writer.add_tree(id, &bytes);
    let mut slots = node.slots.lock();
    for (slot, listed) in slots.iter_mut().zip(&node.listing.entries) {
        let name = node.listing.name(listed);
        let slot = std::mem::replace(slot, EntryResult::Skipped);
        if let EntryResult::Folder(below) = &slot {
            let previous = previous.folder(name);
            files += below.files_since(store, previous, job.observer);
            matched += u64::from(previous.is_some());
        }
        let (entry, below) = match entry(job, node, name, listed, slot, on_omitted) {
            Ok(Some(made)) => made,
            Ok(None) => continue,
            Err(error) => {
                on_omitted(name, OmittedPart::Entry(&error));
                continue;
            }
        };
        if let EntryKind::File { id, .. } = &entry.kind {
            let change = previous.compare(name, id);
            files += change;
            matched += change.modified + change.unmodified;
        }
        encoder.push(entry, &below, &mut put)?;
    }
    if matched < previous.len() {
        let kind_of = |name: &[u8]| node.listing.find(name).map(|entry| entry.stat.kind);
        for (name, lost) in previous.missing(store, |name, kind| kind_of(name) == Some(kind)) {
            match kind_of(name).is_none() && exists(node.fd.as_fd(), name) {
                true => files.ignored += lost,
                false => files.deleted += lost,
            }
        }
    }
    Ok((encoder.finish(&mut put)?, files))
}

/// Builds an entry from its slot. Returns `None` if the entry is left out.
fn entry(
    job: &CommitJob<'_>,
    node: &WalkedFolder,
    name: &[u8],
    listed: &ScannedEntry,
    slot: EntryResult,
    on_omitted: OnOmitted<'_>,
) -> io::Result<Option<(Entry, Totals)>> {
    let xattrs = || {
        describe::xattrs(node.fd.as_fd(), name).unwrap_or_else(|error| {
            on_omitted(name, OmittedPart::Attributes(&error));
            Vec::new()
        })
    };
    let entry_name = EntryName::new(name).map_err(io::Error::other)?;
    let mut stat = listed.stat;
    let mut below = NOTHING;
    let (kind, xattrs, sparse) = match slot {
        EntryResult::Skipped => return Ok(None),
        EntryResult::File(file) => {
            stat = file.stat.map_or(stat, |stat| *stat);
            (EntryKind::File { size: file.size, id: file.id }, file.xattrs.into_vec(), file.sparse)
        }
        EntryResult::Folder(walked) => {
            below = walked.folder.totals;
            (EntryKind::Folder { id: walked.folder.id }, xattrs(), false)
        }
        EntryResult::Listed => {
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

/// Returns the kind of an entry that is neither a file nor a walked folder.
pub(super) fn special_kind(
    job: &CommitJob<'_>,
    folder: BorrowedFd<'_>,
    name: &[u8],
    stat: &FileStat,
) -> io::Result<Option<EntryKind>> {
    if stat.kind == FileKind::Folder {
        // A mount point that the walk does not enter becomes an empty folder.
        let mut put = |id, bytes: Vec<u8>| job.writer.add_tree(id, &bytes);
        let empty = FolderEncoder::new().finish(&mut put).map_err(io::Error::other)?;
        return Ok(Some(EntryKind::Folder { id: empty.id }));
    }
    // `special` returns `None` for a file. The task of the file ended without a result, because the
    // job is stopping.
    describe::special(folder, name, stat)
}

/// Returns the recorded metadata of an entry.
pub(super) fn metadata(
    job: &CommitJob<'_>,
    stat: &FileStat,
    xattrs: Vec<Xattr>,
    sparse: bool,
) -> Metadata {
    describe::metadata(stat, &job.owners, job.tree_options(), xattrs, sparse)
}
