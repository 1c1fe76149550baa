//! Recovers lost objects from live files.
//!
//! A file is read and cut in the same way as in a commit. A chunk that hashes to the id of a lost
//! object is that object, even if the rest of the file has changed since the commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    os::fd::AsFd,
};

use crate::{
    base::{
        id::{BlobId, ObjectId},
        limits,
        observe::Observer,
    },
    chunk::{Cutter, Params},
    format::{
        chunk_list::{self, BlobRef},
        pack::ObjectKind,
    },
    local::{
        read::{content, open_file},
        scan::{FileKind, FileStat},
    },
    ops::diff::DiskPaths,
    store::{ObjectWriter, StoreError},
};

/// Number of bytes that are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// The objects that files are searched for.
pub(super) struct LostObjects<'a> {
    /// Ids of lost objects.
    pub(super) ids: &'a BTreeSet<ObjectId>,
    /// Returns true if the store has an object. A lost chunk list does not say which chunks it
    /// needs, so each chunk of the file is checked.
    pub(super) is_sound: &'a dyn Fn(&ObjectId) -> Result<bool, StoreError>,
}

/// Stores the wanted objects that the file at a path of the snapshot contains, and returns them. If
/// the file cannot be read to its end, returns the objects of the part before the error.
pub(super) fn take(
    writer: &ObjectWriter<'_>,
    disk_paths: &DiskPaths,
    path: &[u8],
    params: Params,
    wanted: &LostObjects<'_>,
    observer: &dyn Observer,
) -> Result<BTreeMap<ObjectId, ObjectKind>, StoreError> {
    let mut take = FileScan { writer, params, wanted, observer, taken: BTreeMap::new() };
    match take.file(disk_paths, path) {
        Err(FileScanError::Store(error)) => Err(error),
        // Objects found before the failure are verified and can be used.
        Ok(()) | Err(FileScanError::File) => Ok(take.taken),
    }
}

fn open(disk_paths: &DiskPaths, path: &[u8]) -> io::Result<(Box<dyn Read + Send>, u64)> {
    let (above, name) = disk_paths.open_above(path)?;
    let stat = FileStat::of_name(above.as_fd(), &name)?;
    if stat.kind != FileKind::File {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = open_file(above.as_fd(), &name, &stat)?;
    Ok((content(&file, &stat)?, stat.size))
}

/// The reason why a file was not read to its end.
enum FileScanError {
    Store(StoreError),
    /// The file cannot be read, or the user asked to stop.
    File,
}

impl From<StoreError> for FileScanError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for FileScanError {
    fn from(_: io::Error) -> Self {
        Self::File
    }
}

struct FileScan<'a, 's> {
    writer: &'a ObjectWriter<'s>,
    params: Params,
    wanted: &'a LostObjects<'a>,
    observer: &'a dyn Observer,
    taken: BTreeMap<ObjectId, ObjectKind>,
}

impl FileScan<'_, '_> {
    fn file(&mut self, disk_paths: &DiskPaths, path: &[u8]) -> Result<(), FileScanError> {
        let (source, size) = open(disk_paths, path)?;
        if size <= limits::WHOLE_FILE_BYTES {
            let mut bytes = Vec::new();
            source.take(limits::WHOLE_FILE_BYTES).read_to_end(&mut bytes)?;
            let id = BlobId::of(&bytes).object();
            if self.wanted.ids.contains(&id) {
                self.store(id, &bytes)?;
            }
            return Ok(());
        }
        // The first pass stores nothing: most changed files contain no lost object and need no
        // second pass.
        let mut pieces = Vec::new();
        let (id, total_bytes) = cut(
            source,
            self.params,
            &mut |chunk| {
                pieces.push(BlobRef { id: BlobId::of(chunk), bytes: chunk.len() as u32 });
                Ok(())
            },
            self.observer,
        )?;
        let is_list = pieces.len() > 1 && self.wanted.ids.contains(&id.object());
        let encoded = chunk_list::encode_content(total_bytes, &pieces).filter(|_| is_list);
        let parts = encoded.as_ref().map_or(&[][..], |encoded| &encoded.parts);
        let mut needed = BTreeSet::new();
        for id in pieces.iter().map(|piece| piece.id.object()) {
            if self.wanted.ids.contains(&id) || is_list && !(self.wanted.is_sound)(&id)? {
                needed.insert(id);
            }
        }
        if needed.is_empty() && !is_list {
            return Ok(());
        }
        let (source, _) = open(disk_paths, path)?;
        let (params, observer) = (self.params, self.observer);
        let (again, _) = cut(
            source,
            params,
            &mut |chunk| {
                let id = BlobId::of(chunk).object();
                if needed.remove(&id) { self.store(id, chunk) } else { Ok(()) }
            },
            observer,
        )?;
        if let Some(encoded) = encoded.as_ref().filter(|_| again == id && needed.is_empty()) {
            for part in parts {
                self.store(BlobId::of(part).object(), part)?;
            }
            self.writer.add_chunk_list(id, &encoded.list)?;
            self.taken.insert(id.object(), ObjectKind::ChunkList);
        }
        Ok(())
    }

    /// Stores a blob and records it if it was wanted.
    fn store(&mut self, id: ObjectId, bytes: &[u8]) -> Result<(), StoreError> {
        super::gather::store_object(self.writer, &id, ObjectKind::Blob, bytes)?;
        if self.wanted.ids.contains(&id) {
            self.taken.insert(id, ObjectKind::Blob);
        }
        Ok(())
    }
}

/// Cuts a content, passes each chunk to `each` in order, and returns the content's id and length.
fn cut(
    mut source: Box<dyn Read + Send>,
    params: Params,
    each: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    observer: &dyn Observer,
) -> Result<(BlobId, u64), FileScanError> {
    let (mut whole, mut cutter) = (blake3::Hasher::new(), Cutter::new(params));
    let (mut buffer, mut total_bytes, mut is_last) = (Vec::new(), 0, false);
    while !is_last {
        if observer.cancelled() {
            return Err(FileScanError::File);
        }
        let before = buffer.len();
        (&mut source).take(READ_BYTES).read_to_end(&mut buffer)?;
        is_last = buffer.len() == before;
        whole.update(&buffer[before..]);
        total_bytes += (buffer.len() - before) as u64;
        let mut start = 0;
        while let Some(length) = cutter.next_cut(&buffer[start..], is_last) {
            each(&buffer[start..start + length])?;
            start += length;
        }
        buffer.drain(..start);
    }
    Ok((BlobId::from_bytes(*whole.finalize().as_bytes()), total_bytes))
}
