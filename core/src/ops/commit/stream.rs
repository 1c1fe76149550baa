//! Stores a stream as a file of a snapshot.

use std::io::Read;

use crate::{
    base::{id::TreeId, name::EntryName},
    format::tree::{
        Entry, EntryKind, Metadata,
        split::{EncodedFolder, FolderEncoder},
    },
    ops::commit::{
        CommitError, EmptyStream,
        file::{self, FileReadError},
        job::CommitJob,
        paths::kept_totals,
        previous::Previous,
        walk,
    },
    repo::path::entry_named,
    store::Entries,
};

/// Refuses a stream with the name of a folder in the tree `kept`, because the commit would remove
/// that folder.
pub(super) fn check_place(
    job: &CommitJob<'_>,
    name: &EntryName,
    kept: Option<TreeId>,
) -> Result<(), CommitError> {
    let Some(kept) = kept else { return Ok(()) };
    match entry_named(job.writer.store(), kept, name.as_bytes())? {
        Some(Entry { kind: EntryKind::Folder { .. }, .. }) => {
            Err(CommitError::StreamOverFolder { name: name.clone() })
        }
        _ => Ok(()),
    }
}

/// Reads a stream and returns the entry of its file. `empty` selects whether a stream
/// of 0 bytes is an error.
pub(super) fn read(
    job: &CommitJob<'_>,
    name: EntryName,
    reader: &mut (dyn Read + Send),
    empty: EmptyStream,
    previous: Option<TreeId>,
) -> Result<Entry, CommitError> {
    let (id, size) = match file::stream(job, &mut reader.take(u64::MAX)) {
        Ok(read) => read,
        Err(FileReadError::File(error)) => return Err(CommitError::Stream(error)),
        Err(FileReadError::Commit(error)) => return Err(error),
    };
    if size == 0 && empty == EmptyStream::Refuse {
        return Err(CommitError::EmptyStream { name });
    }
    let previous = previous.and_then(|tree| Previous::read(job.writer, tree)).unwrap_or_default();
    job.count_files(previous.compare(name.as_bytes(), &id));
    // A stream has no attributes and no time, so the same content gives the same tree.
    let metadata = Metadata { mode: 0o644, ..Metadata::default() };
    Ok(Entry { name, kind: EntryKind::File { size, id }, metadata })
}

/// Builds a root tree with this entry. If `kept` is given, the other entries come from
/// that tree.
pub(super) fn with_entry(
    job: &CommitJob<'_>,
    entry: Entry,
    kept: Option<TreeId>,
) -> Result<EncodedFolder, CommitError> {
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
