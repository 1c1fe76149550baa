//! The epoch of a store: a number that changes with each garbage collection.
//!
//! A writer relies on stored objects. A [collection](crate::ops::gc) may find that some of them are
//! dead: no ref reaches them. So the two agree by the epoch, without waiting for each other.
//!
//! - The writer reads the epoch when it starts, before it looks up any object. It gives each pack
//!   its name under the shared lock on `gc.lock`, and only if the epoch is still the same.
//!   Otherwise it first looks up again what it relied on.
//! - The collector shadows the dead objects and then raises the epoch, under the exclusive lock. It
//!   also holds the lock of the refs, so it sees each ref that moved before.
//!
//! So an object that is in the store and not shadowed as dead has everything that it refers to, at
//! every moment. `tests/model` explores these rules, and
//! [decision 31](../../../docs/decisions/0031-garbage-collection.md) explains them.
//!
//! The file `gc` has five lines:
//!
//! | line | what                                               |
//! |------|----------------------------------------------------|
//! | 1    | `snap gc 3`                                        |
//! | 2    | the epoch, in decimal                              |
//! | 3    | nonce, 32 hex digits: a random number for each epoch |
//! | 4    | time: collections may have deleted what no ref has named since |
//! | 5    | time: collections may have deleted what was forgotten until then |
//!
//! The times are seconds since 1970, a point and nine digits; 0 before the first collection. They
//! distinguish what a collection has deleted from what is lost.
//!
//! If `gc` is a folder, another machine may push to this store as to a folder, and its garbage was
//! collected as that of a [remote](crate::format::gc_state). Then the epoch is that of `gc/state`.
//!
//! A store is born with the file, in the epoch 0. The nonce distinguishes epochs of the same number
//! after the file was lost. A missing or damaged file proves no collection, and may hide one: its
//! number is 0, but it is not the first epoch. Nothing in `objects/` is wrong because of it. `snap
//! repair` and the next collection write it again.

use std::{collections::HashSet, fs::File, path::Path};

use parking_lot::Mutex;

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        limits,
        time::Time,
    },
    disk::{Disk, Renamed, regular::read_at_most},
    format::{
        gc_state::GcState,
        pack::{ObjectKind, checksum},
        ref_text::Nonce,
        shadow::Reason,
    },
    store::{Marks, ObjectLocation, Store, StoreError, pack_reader::Completeness, shadow::Shadows},
};

/// The file with the epoch, in a store.
pub(crate) const FILE: &str = "gc";

/// The file that writers lock shared while they name a pack, and that a collector locks alone.
const LOCK: &str = "gc.lock";

/// The first line of the file.
const HEADING: &str = "snap gc 3";

/// Maximum length of the file in bytes: five short lines.
const FILE_BYTES: u64 = 192;

/// Until when something must have gone that a collection of this store may have deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectedUntil {
    /// Commits that no ref has named since this time.
    pub unnamed: Time,
    /// Commits that were forgotten at this time or before.
    pub forgotten: Time,
}

impl CollectedUntil {
    fn all(time: Time) -> Self {
        Self { unnamed: time, forgotten: time }
    }

    fn max(self, other: Self) -> Self {
        Self {
            unnamed: self.unnamed.max(other.unnamed),
            forgotten: self.forgotten.max(other.forgotten),
        }
    }
}

/// The epoch of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// The number; 0 before the first collection.
    pub number: u64,
    /// `None` if the file is missing or damaged.
    pub nonce: Option<Nonce>,
    /// What collections until now may have deleted.
    pub collected: CollectedUntil,
    /// A checksum of a file that cannot be decoded, or 0.
    damage: u64,
}

impl Epoch {
    /// Returns the epoch of a new store.
    fn first() -> Self {
        Self { nonce: Some(Nonce::random()), ..Self::default() }
    }

    /// Returns true if no collection can have deleted anything yet.
    pub fn is_first(&self) -> bool {
        self.nonce.is_some() && self.number == 0 && self.collected == CollectedUntil::default()
    }

    /// Returns the epoch after this one. Its collection may delete what `collected` says.
    #[must_use]
    pub fn next(self, collected: CollectedUntil) -> Self {
        let collected = self.collected.max(collected);
        Self { number: self.number + 1, nonce: Some(Nonce::random()), collected, damage: 0 }
    }

    fn encode(&self) -> String {
        let nonce = self.nonce.map_or_else(String::new, |nonce| nonce.to_string());
        let CollectedUntil { unnamed, forgotten } = self.collected;
        let times = format!("{}\n{}", unnamed.decimal(), forgotten.decimal());
        format!("{HEADING}\n{}\n{nonce}\n{times}\n", self.number)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = str::from_utf8(bytes).ok()?;
        let mut lines = text.lines().skip(1);
        let (number, nonce) = (lines.next()?.parse().ok()?, Some(lines.next()?.parse().ok()?));
        let mut time = || Time::parse_decimal(lines.next()?);
        let collected = CollectedUntil { unnamed: time()?, forgotten: time()? };
        let epoch = Self { number, nonce, collected, damage: 0 };
        (epoch.encode() == text).then_some(epoch)
    }

    /// Reads the epoch of the store in `dir`.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be read.
    pub fn read(dir: &Path) -> Result<Self, PathError> {
        let path = dir.join(FILE);
        let bytes = match read_at_most(&path, FILE_BYTES) {
            Ok(bytes) => bytes,
            // No time of a collection is known, so what is missing counts as lost.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Vec::new(),
            Err(_) if path.is_dir() => return Ok(Self::of_folder(&path)),
            Err(error) => return Err(PathError::when("read", &path)(error)),
        };
        Ok(Self::decode(&bytes).unwrap_or_else(|| Self::of_damage(&bytes, modified(&path))))
    }

    /// Writes the first epoch of a store that is being made, durably, unless the store has an epoch.
    pub(super) fn create(dir: &Path, disk: &Disk) -> Result<(), PathError> {
        if dir.join(FILE).exists() { Ok(()) } else { Self::first().write(dir, disk) }
    }

    /// Returns true if the file is missing or damaged, and not a folder.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be read.
    pub fn is_lost(dir: &Path) -> Result<bool, PathError> {
        Ok(Self::read(dir)?.nonce.is_none() && !dir.join(FILE).is_dir())
    }

    /// Writes a missing or damaged file again, durably. What may have been deleted until now counts as
    /// deleted. The caller holds the lock of the refs, so no collection begins meanwhile. Returns
    /// true if it has written the file.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be read or written.
    pub fn mend(dir: &Path, disk: &Disk) -> Result<bool, PathError> {
        let is_lost = Self::is_lost(dir)?;
        if is_lost {
            let collected = CollectedUntil::all(Time::now());
            Self { collected, ..Self::first() }.write(dir, disk)?;
        }
        Ok(is_lost)
    }

    fn write(&self, dir: &Path, disk: &Disk) -> Result<(), PathError> {
        let tmp = dir.join("tmp");
        disk.create_folders(&tmp)?;
        disk.write_whole(&tmp, &dir.join(FILE), self.encode().as_bytes())
    }

    fn of_damage(bytes: &[u8], modified: Time) -> Self {
        let collected = CollectedUntil::all(modified);
        Self { damage: checksum(bytes) | 1, collected, ..Self::default() }
    }

    /// Returns the epoch of a store that clients use as a remote. It is never the first one.
    fn of_folder(dir: &Path) -> Self {
        let path = dir.join("state");
        let bytes = read_at_most(&path, limits::GC_STATE_BYTES).unwrap_or_default();
        let damaged = Self::of_damage(&bytes, modified(&path));
        match GcState::decode(&bytes) {
            Ok(state) => {
                Self { number: state.epoch, nonce: Some(state.epoch_nonce), damage: 0, ..damaged }
            }
            Err(_) => damaged,
        }
    }
}

/// Returns the time of the last write of a file; the present if it cannot be read.
fn modified(path: &Path) -> Time {
    let time = fs_err::metadata(path).and_then(|meta| meta.modified());
    time.map_or_else(|_| Time::now(), Time::from)
}

/// The lock on `gc.lock`, released on drop.
#[derive(Debug)]
pub struct EpochLock {
    _file: Option<File>,
}

impl Store {
    /// Returns the epoch of the store now.
    ///
    /// # Errors
    /// [`StoreError::Io`] when its file cannot be read.
    pub fn epoch(&self) -> Result<Epoch, StoreError> {
        Ok(Epoch::read(self.dir())?)
    }

    /// Returns the epoch of the store, and makes sure that this open store knows the shadows of that
    /// epoch. What a lookup finds afterwards was alive when the epoch began.
    ///
    /// # Errors
    /// [`StoreError`] when the epoch cannot be read or the packs cannot be listed.
    pub fn enter_epoch(&self) -> Result<Epoch, StoreError> {
        let epoch = self.epoch()?;
        if self.catalog().epoch != epoch {
            self.refresh()?;
        }
        Ok(epoch)
    }

    /// Keeps writers from naming packs. On a file system without locks, nothing is locked.
    fn lock_epoch(&self, lock: fn(&File) -> std::io::Result<()>) -> Result<EpochLock, StoreError> {
        let path = self.dir().join(LOCK);
        let file = self.disk().lock_file(&path)?;
        match lock(&file) {
            Ok(()) => Ok(EpochLock { _file: Some(file) }),
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                Ok(EpochLock { _file: None })
            }
            Err(error) => Err(PathError::when("lock", &path)(error).into()),
        }
    }

    /// Stops writers from naming packs, until the lock is dropped. A writer holds the lock for one
    /// rename, so this waits only briefly.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the file cannot be opened or locked.
    pub fn stop_writers(&self) -> Result<EpochLock, StoreError> {
        self.lock_epoch(File::lock)
    }

    /// Begins the next epoch, durably. The caller holds the lock on the refs.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the file cannot be written.
    pub fn begin_epoch(&self, _lock: &EpochLock, epoch: Epoch) -> Result<(), StoreError> {
        Ok(epoch.write(self.dir(), self.disk())?)
    }

    /// Renames a complete, synced pack into `objects/`, if the epoch is still `epoch`. Returns the
    /// epoch that a collection has begun otherwise: the pack then has no name yet.
    ///
    /// Replaces an existing file of that name: a sound file would have the same bytes, but this
    /// file may be damaged, or about to be deleted, since its objects were written again. So
    /// removes its objects from the shadows of dead objects.
    pub(super) fn name_pack(
        &self,
        from: &Path,
        id: &PackId,
        epoch: Epoch,
    ) -> Result<Option<Epoch>, StoreError> {
        let to = self.layout().path(Completeness::Whole, id);
        let mut lock = self.lock_epoch(File::lock_shared)?;
        if self.shadows().has_dead(id) {
            // The collector looks at the shadows under this lock before it deletes a pack.
            drop(lock);
            lock = self.stop_writers()?;
        }
        let now = self.epoch()?;
        if now != epoch {
            return Ok(Some(now));
        }
        self.rename_pack(from, &to)?;
        if self.shadows().has_dead(id) {
            self.change_shadows(&|table| {
                table.remove(id, Reason::Dead);
            })?;
        }
        drop(lock);
        Ok(None)
    }

    /// Renames a pack that was partial into `objects/`. Its dead objects stay dead: no store may have
    /// the objects to which they refer.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be renamed.
    pub(super) fn name_completed_pack(&self, from: &Path, id: &PackId) -> Result<(), StoreError> {
        let _lock = self.lock_epoch(File::lock_shared)?;
        self.rename_pack(from, &self.layout().path(Completeness::Whole, id))
    }

    fn rename_pack(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        if self.disk().rename_new(from, to)? == Renamed::Taken {
            self.disk().replace(from, to)?;
        }
        Ok(())
    }

    /// Deletes those of the packs that are still shadowed as dead. The caller holds the lock, so no
    /// writer writes one of them again meanwhile.
    ///
    /// # Errors
    /// [`StoreError`] when a pack cannot be removed.
    pub fn delete_dead(&self, _lock: &EpochLock, packs: &[PackId]) -> Result<(), StoreError> {
        // Another process may have changed the table.
        let table = Shadows::read(&self.layout().shadow)?.known_table(&self.catalog());
        for id in packs.iter().filter(|id| table.has(id, Reason::Dead)) {
            self.disk().remove(&self.layout().path(Completeness::Whole, id))?;
        }
        Ok(())
    }

    /// Removes deleted packs from the shadow table and from the index.
    ///
    /// # Errors
    /// [`StoreError`] when the packs cannot be listed or the table cannot be written.
    pub fn forget_deleted(&self, packs: &[PackId]) -> Result<(), StoreError> {
        self.disk().sync_folder(&self.layout().objects)?;
        self.refresh()?;
        let catalog = self.catalog();
        let gone = |id: &&PackId| catalog.slot(id).is_none();
        self.change_shadows(&|table| {
            for id in packs.iter().filter(gone) {
                table.remove(id, Reason::Dead);
            }
        })?;
        self.merge_segments();
        Ok(())
    }

    /// Returns the locations of an object that are not shadowed as dead.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn alive_places(&self, id: &ObjectId) -> Result<Vec<ObjectLocation>, StoreError> {
        let catalog = self.catalog();
        let mut places = self.places(id)?;
        places.retain(|place| {
            let slot = catalog.packs.get(place.pack as usize);
            slot.is_some_and(|slot| !catalog.shadows.is_dead(&slot.id, id))
        });
        Ok(places)
    }

    /// Checks that an object of the store may be relied on: that not all of its copies are shadowed
    /// as dead.
    ///
    /// # Errors
    /// [`StoreError::Missing`] otherwise, and if the index cannot be read.
    pub fn check_alive(&self, id: &ObjectId, wanted: ObjectKind) -> Result<(), StoreError> {
        match !self.has_shadows() || self.is_alive(id)? {
            true => Ok(()),
            false => Err(StoreError::Missing { id: *id, wanted }),
        }
    }

    /// Returns true if a collection, here or at a remote, has found a copy of an object dead, even if no
    /// pack has that copy any more. Another copy may be alive.
    pub fn is_found_dead(&self, id: &ObjectId) -> bool {
        self.catalog().shadows.lists_as_dead(id)
    }

    /// Returns true if the store has a copy of an object that is not shadowed as dead.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn is_alive(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(!self.alive_places(id)?.is_empty())
    }
}

/// The stored objects on which a writer relies.
#[derive(Debug)]
pub(super) struct Reliance {
    /// Objects that the store had when the writer began.
    marks: Marks,
    /// Objects of newer packs; `None` if there were too many.
    newer: Mutex<Option<HashSet<ObjectId>>>,
}

impl Reliance {
    pub(super) fn new(store: &Store) -> Self {
        Self { marks: Marks::new(store), newer: Mutex::new(Some(HashSet::new())) }
    }

    /// Records that the writer relies on an object.
    pub(super) fn add(&self, id: &ObjectId) -> Result<(), StoreError> {
        if self.marks.mark_indexed(id)?.is_none() {
            let mut newer = self.newer.lock();
            let is_full = newer.as_mut().is_some_and(|ids| {
                ids.insert(*id);
                ids.len() > limits::NEWER_OBJECTS
            });
            if is_full {
                *newer = None;
            }
        }
        Ok(())
    }

    /// Returns true if the store still has all of these objects, and none is shadowed as dead.
    pub(super) fn holds(&self, store: &Store) -> Result<bool, StoreError> {
        let newer = self.newer.lock();
        let Some(newer) = newer.as_ref() else { return Ok(false) };
        for id in newer {
            if !store.is_alive(id)? {
                return Ok(false);
            }
        }
        self.marks.all(&|id| store.is_alive(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::gc_state::{Phase, TableHash};

    #[test]
    fn a_store_that_was_collected_as_a_remote_has_its_epoch() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        fs_err::create_dir(dir.join("gc")).unwrap();
        assert!(!Epoch::read(dir).unwrap().is_first());
        let state = GcState::first().next(3, Phase::Swept, TableHash::from_bytes([1; 32]));
        fs_err::write(dir.join("gc/state"), state.encode()).unwrap();
        let read = Epoch::read(dir).unwrap();
        assert_eq!((read.number, read.nonce), (3, Some(state.epoch_nonce)));
    }

    #[test]
    fn an_epoch_has_these_lines_and_never_takes_back_what_may_be_collected() {
        let time = |secs| Time { secs, nanos: 5 };
        let collected = CollectedUntil { unnamed: time(7), forgotten: time(9) };
        let first = Epoch::first().next(collected);
        let lines: Vec<String> = first.encode().lines().map(str::to_owned).collect();
        let nonce = first.nonce.unwrap().to_string();
        assert_eq!(lines, ["snap gc 3", "1", &nonce, "7.000000005", "9.000000005"]);
        assert_eq!(Epoch::decode(first.encode().as_bytes()), Some(first));
        let later = first.next(CollectedUntil { unnamed: time(8), forgotten: time(3) });
        assert_eq!(later.collected, CollectedUntil { unnamed: time(8), forgotten: time(9) });
        assert_eq!(Epoch::decode(b"snap gc 3\n1\n"), None);
    }

    #[test]
    fn a_store_is_born_in_the_first_epoch_and_a_lost_file_proves_none() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, disk) = (folder.path(), Disk::default());
        Store::create(dir, &disk).unwrap();
        let first = Epoch::read(dir).unwrap();
        assert!(first.is_first());
        Store::create(dir, &disk).unwrap();
        assert!(!Epoch::mend(dir, &disk).unwrap());
        assert_eq!(Epoch::read(dir).unwrap(), first);
        let other = format!("snap gc 2\n1\n{}\n0.000000000\n0.000000000\n", first.nonce.unwrap());
        for damage in [None, Some(other.as_str()), Some("x")] {
            match damage {
                None => fs_err::remove_file(dir.join(FILE)).unwrap(),
                Some(text) => fs_err::write(dir.join(FILE), text).unwrap(),
            }
            let lost = Epoch::read(dir).unwrap();
            assert!(!lost.is_first() && lost.number == 0, "{damage:?}");
            assert_eq!(Epoch::read(dir).unwrap(), lost, "{damage:?}");
            assert!(Epoch::mend(dir, &disk).unwrap());
            let mended = Epoch::read(dir).unwrap();
            assert!(!mended.is_first() && mended.number == 0 && !Epoch::is_lost(dir).unwrap());
            assert!(mended.collected.unnamed > Time::default());
        }
    }
}
