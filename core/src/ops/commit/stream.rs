//! A stream as a file of a snapshot.

use std::io::Read;

use crate::{
    base::{id::TreeId, name::EntryName},
    format::tree::{
        Entry, Kind, Metadata,
        split::{Folder, FolderEncoder},
    },
    ops::commit::{
        CommitError, encode,
        file::{self, Unread},
        job::Job,
        paths::kept_totals,
        previous::{Change, Previous},
        walk,
    },
    repo::path::entry_named,
    store::Entries,
};

/// Refuses a stream whose name a folder has in the tree whose entries are kept:
/// the commit would remove the folder from the snapshot.
pub(super) fn check_place(
    job: &Job<'_>,
    name: &EntryName,
    kept: Option<TreeId>,
) -> Result<(), CommitError> {
    let Some(kept) = kept else { return Ok(()) };
    match entry_named(job.writer.store(), kept, name.as_bytes())? {
        Some(Entry { kind: Kind::Folder { .. }, .. }) => {
            Err(CommitError::StreamOverFolder { name: name.clone() })
        }
        _ => Ok(()),
    }
}

/// Reads a stream; the entry of the file that it becomes.
pub(super) fn read(
    job: &Job<'_>,
    name: EntryName,
    reader: &mut (dyn Read + Send),
    previous: Option<TreeId>,
) -> Result<Entry, CommitError> {
    let (id, size) = match file::stream(job, reader) {
        Ok(read) => read,
        Err(Unread::File(error)) => return Err(CommitError::Stream(error)),
        Err(Unread::Commit(error)) => return Err(error),
    };
    let previous = previous.and_then(|tree| Previous::read(job.writer, tree));
    let change = previous.map_or(Change::New, |previous| previous.compare(name.as_bytes(), &id));
    encode::count_change(job, change);
    // A stream has no attributes of its own, and no time either: the same
    // content is the same tree.
    let metadata = Metadata { mode: 0o644, ..Metadata::default() };
    Ok(Entry { name, kind: Kind::File { size, id }, metadata })
}

/// A root tree with this entry, in place of the one of its name in the tree
/// whose other entries are kept.
pub(super) fn with_entry(
    job: &Job<'_>,
    entry: Entry,
    kept: Option<TreeId>,
) -> Result<Folder, CommitError> {
    let mut encoder = FolderEncoder::new();
    let mut put = |id, bytes: Vec<u8>| job.writer.add_tree(id, &bytes);
    let mut own = Some(entry);
    for other in kept.into_iter().flat_map(|tree| Entries::of(job.writer.store(), tree)) {
        let other = other?;
        if let Some(entry) = own.take_if(|own| own.name <= other.name) {
            let is_same = entry.name == other.name;
            encoder.push(entry, &walk::NOTHING, &mut put)?;
            if is_same {
                continue;
            }
        }
        let below = kept_totals(job, &other)?;
        encoder.push(other, &below, &mut put)?;
    }
    if let Some(entry) = own {
        encoder.push(entry, &walk::NOTHING, &mut put)?;
    }
    Ok(encoder.finish(&mut put)?)
}
