//! The quarantine: the folder `quarantine/` keeps damaged packs that a repair has replaced.
//!
//! Their bytes may still be useful to the user, so snap neither reads nor deletes files there, with one
//! exception: `gc` removes the objects that a rewrite has purged. A pack keeps its name there; if the
//! name is taken, the pack gets a number as its extension.

use std::{
    collections::HashSet,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::{PathError, if_exists},
        kind::ErrorKind,
        observe::{Note, Observer, Silent},
    },
    disk::{
        NewFile, Renamed,
        regular::open_regular,
        scratch::{Scratch, unique_name},
    },
    format::{pack::PackedObject, shadow::Reason},
    store::{ObjectWriter, PackFile, Store, StoreError, pack_reader::Completeness},
};

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Number of bytes that a copy skips at an unreadable position: the sector size of most disks.
const BLOCK_BYTES: usize = 4096;

/// Returns true if no object of a pack is needed any more.
pub type IsUnneeded<'a> = dyn Fn(&PackId) -> Result<bool, StoreError> + 'a;

impl Store {
    /// Links or copies a pack into `quarantine/`, durably, and leaves the pack in place. The caller
    /// then replaces the pack with the right bytes. Returns false if the pack does not exist.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep_in_quarantine(&self, id: &PackId) -> Result<bool, StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let from = layout.path(Completeness::Whole, id);
        let Ok(there) = fs_err::symlink_metadata(&from) else { return Ok(false) };
        disk.create_folders(&layout.quarantine)?;
        for to in self.quarantine_names(id) {
            match disk.link(&from, &to) {
                Ok(Renamed::Done) => break,
                Ok(Renamed::Taken) => match fs_err::symlink_metadata(&to) {
                    // An interrupted repair has already linked this file.
                    Ok(kept) if (kept.dev(), kept.ino()) == (there.dev(), there.ino()) => break,
                    _ => {}
                },
                // The file system has no hard links, or the packs are on another disk.
                Err(_) if self.copy_aside(&from, &to)? == Renamed::Done => break,
                Err(_) => {}
            }
        }
        disk.sync_folder(&layout.quarantine)?;
        Ok(true)
    }

    fn copy_aside(&self, from: &Path, to: &Path) -> Result<Renamed, StoreError> {
        let file = self.disk().create(&self.layout().tmp.join(unique_name("quarantine")))?;
        let source = open_regular(from).map_err(PathError::when("open", from))?;
        let bytes = source.metadata().map_err(PathError::when("stat", from))?.len();
        copy_readable(&|to, offset| source.file().read_at(to, offset), bytes, &file)?;
        file.sync()?;
        let renamed = self.disk().rename_new(file.path(), to)?;
        if renamed == Renamed::Done {
            file.keep();
        }
        Ok(renamed)
    }

    fn move_aside(&self, from: &Path, to: &Path) -> Result<Renamed, StoreError> {
        match self.disk().rename_new(from, to) {
            // The packs are on another disk.
            Err(error) if error.source.kind() == io::ErrorKind::CrossesDevices => {
                let renamed = self.copy_aside(from, to)?;
                if renamed == Renamed::Done {
                    self.disk().sync_folder(&self.layout().quarantine)?;
                    self.disk().remove(from)?;
                }
                Ok(renamed)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Moves a pack to a free name in `quarantine/`.
    fn move_to_free_name(&self, from: &Path, id: &PackId) -> Result<(), StoreError> {
        for to in self.quarantine_names(id) {
            if self.move_aside(from, &to)? == Renamed::Done {
                break;
            }
        }
        Ok(())
    }

    fn quarantine_names(&self, id: &PackId) -> impl Iterator<Item = PathBuf> {
        let first = self.layout().quarantine.join(id.to_string());
        let others = (2_u64..).map({
            let first = first.clone();
            move |number| first.with_extension(number.to_string())
        });
        std::iter::once(first).chain(others)
    }

    /// Waits until no process holds packs in place. Then moves the damaged packs for which
    /// `is_spare` returns true to `quarantine/`, and removes their shadows. Returns the moved
    /// packs: an empty list if the user asks to stop, and `None` if other processes hold packs for
    /// longer than a minute. The caller must not hold packs itself.
    ///
    /// # Errors
    /// [`StoreError`]. The packs that were moved before the error are complete in `quarantine/`.
    pub fn move_to_quarantine(
        &self,
        packs: &[PackId],
        is_spare: &IsUnneeded<'_>,
        observer: &dyn Observer,
    ) -> Result<Option<Vec<PackId>>, StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let mut moved = Vec::new();
        if packs.is_empty() {
            return Ok(Some(moved));
        }
        let Some(_free) = self.free_packs(observer)? else {
            if observer.cancelled() {
                return Ok(Some(moved));
            }
            observer.note(Note::QuarantineDelayed { store: self.dir() });
            return Ok(None);
        };
        self.refresh()?;
        for id in packs {
            let is_there = self.catalog().completeness(id) == Some(Completeness::Whole);
            if !is_there || !self.is_damaged(id) || !is_spare(id)? {
                continue;
            }
            disk.create_folders(&layout.quarantine)?;
            self.move_to_free_name(&layout.path(Completeness::Whole, id), id)?;
            moved.push(*id);
        }
        if moved.is_empty() {
            return Ok(Some(moved));
        }
        disk.sync_folder(&layout.quarantine)?;
        disk.sync_folder(&layout.objects)?;
        self.refresh()?;
        self.change_shadows(&|table| {
            for id in &moved {
                table.remove(id, Reason::Damaged);
            }
        })?;
        Ok(Some(moved))
    }

    /// Returns the objects of the packs in `quarantine/`: a repair has given up those that are missing
    /// in the store. Returns `None` if the contents of a pack there are unknown.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder cannot be listed.
    pub fn quarantined_objects(&self) -> Result<Option<HashSet<ObjectId>>, StoreError> {
        let mut found = HashSet::new();
        for (path, id) in self.quarantined()? {
            match PackFile::open(&path, id).and_then(|pack| pack.objects()) {
                Ok(objects) => found.extend(objects.iter().map(|object| object.id)),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Lists the packs in `quarantine/`.
    fn quarantined(&self) -> Result<Vec<(PathBuf, PackId)>, StoreError> {
        let folder = &self.layout().quarantine;
        let list = || {
            let entries = if_exists(fs_err::read_dir(folder))?.into_iter().flatten();
            entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()
        };
        let paths = list().map_err(PathError::when("list", folder))?.into_iter();
        let named = paths.filter_map(|path| {
            let id = path.file_stem()?.to_str()?.parse().ok()?;
            Some((path, id))
        });
        Ok(named.collect())
    }

    /// Removes purged objects from the packs in `quarantine/`. Writes the other readable objects of
    /// such a pack into a new one there, and deletes it. A damaged pack whose contents are unknown may
    /// have a purged object, so it is deleted, too. Returns the number of purged objects; only counts them
    /// if `dry_run` is true.
    ///
    /// # Errors
    /// [`StoreError`] when a file there cannot be read, written or deleted. A pack is deleted only
    /// after what is left of it was saved.
    pub fn purge_quarantine(
        &self,
        is_purged: &dyn Fn(&ObjectId) -> bool,
        level: i32,
        dry_run: bool,
    ) -> Result<u64, StoreError> {
        let (folder, disk) = (&self.layout().quarantine, self.disk());
        let mut purged = 0;
        for (path, id) in self.quarantined()? {
            let pack = match PackFile::open(&path, id).and_then(|pack| Ok((pack.objects()?, pack)))
            {
                Ok(pack) => Some(pack),
                Err(error) if is_damage(&error) => None,
                Err(error) => return Err(error),
            };
            let found = pack.as_ref().map_or(1, |(objects, _)| {
                objects.iter().filter(|object| is_purged(&object.id)).count()
            });
            purged += found as u64;
            if found == 0 || dry_run {
                continue;
            }
            if let Some((objects, pack)) = pack {
                self.save_readable((&objects, &pack), is_purged, level)?;
            }
            disk.remove(&path)?;
            disk.sync_folder(folder)?;
        }
        Ok(purged)
    }

    /// Writes the readable objects of a pack that were not purged into a new pack in `quarantine/`.
    fn save_readable(
        &self,
        (objects, pack): (&[PackedObject], &PackFile),
        is_purged: &dyn Fn(&ObjectId) -> bool,
        level: i32,
    ) -> Result<(), StoreError> {
        let scratch = Scratch::create(&self.scratch_dir()?)?;
        Self::create(scratch.path(), self.disk())?;
        let store = Self::open(scratch.path(), self.disk().clone(), &Silent)?;
        let writer = ObjectWriter::new(&store, level, 1)?.of_copies();
        for contents in pack.by_frame(objects) {
            let stored = pack.stored(contents.frame);
            let Ok(raw) = stored.and_then(|stored| pack.expand(contents.frame, stored)) else {
                continue;
            };
            for (object, bytes) in contents.split_verified(pack.id(), &raw).flatten() {
                if !is_purged(&object.id) && writer.claim_anew(object) {
                    writer.add_claimed(contents.frame.class, *object, bytes)?;
                }
            }
        }
        for id in writer.finish_with_packs()?.1 {
            self.move_to_free_name(&store.pack_path(&id), &id)?;
        }
        Ok(self.disk().sync_folder(&self.layout().quarantine)?)
    }
}

/// Returns true if no process can read a pack: its bytes are damaged, or the disk fails to read them. A
/// pack of a newer snap, or one that this user may not open, is not damaged.
fn is_damage(error: &StoreError) -> bool {
    let is_unread = matches!(error, StoreError::Io(error) if error.source.raw_os_error() == Some(Errno::IO.raw_os_error()));
    is_unread || error.kind() == ErrorKind::Damaged
}

/// Reads bytes of a file at an offset.
type ReadAt<'a> = dyn Fn(&mut [u8], u64) -> io::Result<usize> + 'a;

/// Copies the readable parts of a file of `bytes` bytes. Unreadable parts become zeros in the copy,
/// because a repair must go on in spite of them.
fn copy_readable(read: &ReadAt<'_>, bytes: u64, to: &NewFile) -> Result<(), PathError> {
    let mut buffer = vec![0; COPY_BYTES];
    let (mut offset, mut step) = (0, COPY_BYTES);
    while offset < bytes {
        let wanted = step.min((bytes - offset) as usize);
        match read(&mut buffer[..wanted], offset) {
            // The file was truncated meanwhile.
            Ok(0) => break,
            Ok(length) => {
                to.write_at(offset, &buffer[..length])?;
                offset += length as u64;
                if offset.is_multiple_of(COPY_BYTES as u64) {
                    step = COPY_BYTES;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if step > BLOCK_BYTES => step = BLOCK_BYTES,
            Err(_) => offset += wanted as u64,
        }
    }
    to.file().set_len(bytes).map_err(PathError::when("write", to.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    #[test]
    fn a_copy_has_all_readable_bytes() {
        let whole: Vec<u8> = (0..3 * COPY_BYTES + 5000).map(|at| (at % 251) as u8 + 1).collect();
        let bad = [COPY_BYTES as u64 + 7, 3 * COPY_BYTES as u64 + 4999];
        let read = |to: &mut [u8], offset: u64| {
            let end = offset + to.len() as u64;
            if bad.iter().any(|at| (offset..end).contains(at)) {
                return Err(io::Error::from_raw_os_error(5));
            }
            let start = offset as usize;
            to.copy_from_slice(&whole[start..start + to.len()]);
            Ok(to.len())
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copy");
        let file = Disk::default().create(&path).unwrap();
        copy_readable(&read, whole.len() as u64, &file).unwrap();
        let mut expected = whole.clone();
        expected[COPY_BYTES..COPY_BYTES + BLOCK_BYTES].fill(0);
        expected[3 * COPY_BYTES + BLOCK_BYTES..].fill(0);
        assert!(fs_err::read(&path).unwrap() == expected);
    }
}
