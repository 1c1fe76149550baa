//! Recovers lost objects from live files.
//!
//! A file is read and cut in the same way as in a commit. A chunk that hashes to the id of a lost
//! object is that object, even if the rest of the file has changed since the commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::AsFd,
};

use parking_lot::Mutex;

use crate::{
    base::{id::ObjectId, observe::Observer},
    format::{
        chunk_list::{BlobRef, ListObject},
        pack::ObjectKind,
    },
    local::{
        cut::{ChunkSink, CutBuffers, CutError, cut, for_each_chunk},
        holes::SparseRead,
        read::{content, open_file},
        scan::{FileKind, FileStat},
    },
    ops::{diff::DiskPaths, repair::gather::store_object},
    store::{ObjectWriter, StoreError},
};

/// The objects that files are searched for.
pub(super) struct LostObjects<'a> {
    /// Ids of lost objects.
    pub(super) ids: &'a BTreeSet<ObjectId>,
    /// Returns true if the store has an object. A lost chunk list does not say which chunks it
    /// needs, so each chunk of the file is checked.
    pub(super) is_sound: &'a (dyn Fn(&ObjectId) -> Result<bool, StoreError> + Sync),
}

/// Stores the wanted objects that the file at a path of the snapshot contains, and returns them. If
/// the file cannot be read to its end, returns the objects of the part before the error.
pub(super) fn take(
    writer: &ObjectWriter<'_>,
    disk_paths: &DiskPaths,
    path: &[u8],
    wanted: &LostObjects<'_>,
    observer: &dyn Observer,
) -> Result<BTreeMap<ObjectId, ObjectKind>, StoreError> {
    let (taken, lists) = (Mutex::default(), Mutex::default());
    let mut scan = FileScan { writer, wanted, observer, taken, lists, takes_all: false };
    match scan.file(disk_paths, path) {
        Err(CutError::Sink(error)) => Err(error),
        // Objects found before the failure are verified and can be used.
        Ok(()) | Err(CutError::Read(_) | CutError::Stopped) => Ok(scan.taken.into_inner()),
    }
}

fn open(disk_paths: &DiskPaths, path: &[u8]) -> io::Result<Box<dyn SparseRead>> {
    let (above, name) = disk_paths.open_above(path)?;
    let stat = FileStat::of_name(above.as_fd(), &name)?;
    if stat.kind != FileKind::File {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = open_file(above.as_fd(), &name, &stat)?;
    content(&file, &stat)
}

/// Takes the lost objects of a file.
struct FileScan<'a, 's> {
    writer: &'a ObjectWriter<'s>,
    wanted: &'a LostObjects<'a>,
    observer: &'a dyn Observer,
    taken: Mutex<BTreeMap<ObjectId, ObjectKind>>,
    /// The lost lists of the file, and their parts.
    lists: Mutex<Vec<ListObject>>,
    /// True to store all chunks that the store lacks: a lost list does not say which chunks it needs.
    takes_all: bool,
}

impl FileScan<'_, '_> {
    fn file(&mut self, disk_paths: &DiskPaths, path: &[u8]) -> Result<(), CutError<StoreError>> {
        let (id, _) = cut(&mut *open(disk_paths, path)?, self, &CutBuffers::default())?;
        let lists = std::mem::take(self.lists.get_mut());
        if lists.is_empty() {
            return Ok(());
        }
        self.takes_all = true;
        let (again, _) = cut(&mut *open(disk_paths, path)?, self, &CutBuffers::default())?;
        for list in lists.into_iter().filter(|_| again == id) {
            self.writer.add_list_object(&list).map_err(CutError::Sink)?;
            self.taken.get_mut().insert(list.id, list.kind);
        }
        Ok(())
    }
}

impl ChunkSink for FileScan<'_, '_> {
    type Error = StoreError;

    fn take_chunks(&self, raw: &[u8], cuts: &[usize]) -> Result<Vec<BlobRef>, StoreError> {
        for_each_chunk(raw, cuts, &mut |chunk, range| {
            let id = chunk.id.object();
            let is_wanted = self.wanted.ids.contains(&id);
            if is_wanted || self.takes_all && !(self.wanted.is_sound)(&id)? {
                store_object(self.writer, &id, ObjectKind::Blob, &raw[range])?;
            }
            if is_wanted {
                self.taken.lock().insert(id, ObjectKind::Blob);
            }
            Ok(())
        })
    }

    fn take_list(&self, object: ListObject) -> Result<(), StoreError> {
        if self.wanted.ids.contains(&object.id) {
            self.lists.lock().push(object);
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.observer.cancelled()
    }
}
