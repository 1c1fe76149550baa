//! What comes from elsewhere, kept apart until all of it was found right.
//!
//! Packs are received into a folder of their own under `tmp/`, where every
//! object in them is checked against its id. What they amount to is checked by
//! the operation that receives them. Only then are they adopted: moved into
//! `objects/` as they are or, where the store has some of their objects
//! already, copied frame by frame without those. Refused, interrupted or
//! killed, the store is as it was; a folder that is left over is swept by a
//! later writer.

use std::{
    collections::HashSet,
    fs::File,
    path::{Path, PathBuf},
};

use rayon::prelude::*;

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        limits,
        observe::Observer,
    },
    disk::{Disk, NewFile, scratch::unique_name},
    format::{
        pack::{Frame, Object, ObjectKind},
        wire::FormatError,
    },
    store::{
        Place, Store, StoreError, Writer,
        bundle::BundleError,
        catalog::Catalog,
        copy::{Frames, copy_pack},
        objects::actual_id,
        pack_reader::{Home, PackFile},
        pack_writer::{Sealed, WRITEBACK_BYTES, publish},
        sweep,
        writer::Added,
    },
};

/// Packs that are not yet part of a store.
#[derive(Debug)]
pub struct Incoming<'s> {
    target: &'s Store,
    own: Store,
    dir: PathBuf,
    packs: Vec<PackId>,
    objects: u64,
    raw_bytes: u64,
    /// Packs that the store had once, and no more when this began.
    gone: HashSet<PackId>,
    /// Says to others that the folder has an owner.
    _lock: File,
}

/// Packs that a store was seen with, and that are no part of it any more.
fn gone(store: &Store) -> HashSet<PackId> {
    let catalog = store.catalog();
    let ids = catalog.packs.iter().map(|slot| slot.id);
    ids.filter(|id| !catalog.numbers.contains_key(id)).collect()
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        let _ = fs_err::remove_dir_all(&self.dir);
    }
}

impl<'s> Incoming<'s> {
    /// Makes a place for what comes into `target`.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the store cannot be written.
    pub fn new(target: &'s Store, observer: &dyn Observer) -> Result<Self, StoreError> {
        let tmp = &target.layout().tmp;
        target.disk().create_folders(tmp)?;
        sweep::run(tmp);
        let dir = tmp.join(unique_name(sweep::INCOMING));
        // Folders that need not survive, files that pass the same gate.
        Store::create(&dir, &Disk::scratch())?;
        let path = dir.join(sweep::LOCK);
        let lock = Disk::scratch().lock_file(&path)?;
        lock.lock().map_err(PathError::when("lock", &path))?;
        let own = Store::open(&dir, target.disk().clone(), observer)?;
        let (packs, gone) = (Vec::new(), gone(target));
        Ok(Self { target, own, dir, packs, objects: 0, raw_bytes: 0, gone, _lock: lock })
    }

    /// Receives a pack: `read` hands its bytes, piece by piece, to what it is
    /// given.
    ///
    /// # Errors
    /// Those of `read`, and [`BundleError::Io`] when it cannot be written.
    pub fn receive(
        &mut self,
        read: impl FnOnce(&mut Receive<'_>) -> Result<(), BundleError>,
    ) -> Result<PackId, BundleError> {
        let disk = self.target.disk();
        let mut file = disk.create(&self.dir.join("tmp").join(unique_name("pack")))?;
        let mut hasher = blake3::Hasher::new();
        let (mut end, mut written_back) = (0, 0);
        read(&mut |bytes| {
            hasher.update(bytes);
            file.write(bytes)?;
            end += bytes.len() as u64;
            if end - written_back >= WRITEBACK_BYTES {
                file.start_writeback(written_back, end - written_back);
                written_back = end;
            }
            Ok(())
        })?;
        let id = PackId::from_bytes(*hasher.finalize().as_bytes());
        self.place(&file, id)?;
        Ok(id)
    }

    /// Receives a pack that lies elsewhere on this disk and stays there. The
    /// caller knows that its bytes hash to its name.
    ///
    /// # Errors
    /// [`StoreError::Io`] when it cannot be linked or copied.
    pub fn link(&mut self, from: &Path, id: PackId) -> Result<(), StoreError> {
        let to = self.own.pack_path(&id);
        match fs_err::hard_link(from, &to) {
            Ok(()) => Ok(()),
            // It may be this very file, which a copy would empty.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(PathError::when("link", from)(error).into())
            }
            Err(_) => {
                fs_err::copy(from, &to).map_err(PathError::when("copy", from))?;
                Ok(())
            }
        }
    }

    fn place(&self, file: &NewFile, id: PackId) -> Result<(), StoreError> {
        let path = self.own.pack_path(&id);
        self.target.disk().replace(file.path(), &path)?;
        file.keep();
        Ok(())
    }

    /// Checks every object of a pack that was received, and takes it in.
    ///
    /// Checked: its footer, every frame, every object against its id but for
    /// chunk lists ([`Incoming::check_lists`]), and that no object came before.
    ///
    /// # Errors
    /// [`BundleError::Duplicate`], [`BundleError::Store`] with what is wrong.
    pub fn check(&mut self, id: PackId, observer: &dyn Observer) -> Result<(), BundleError> {
        let pack = PackFile::open(&self.own.pack_path(&id), id)?;
        let objects = pack.objects()?;
        self.check_new(&objects)?;
        pack.check(&objects, observer)?;
        self.take_in(&pack, objects);
        Ok(())
    }

    /// Takes in a pack that was linked and whose frames and objects were found
    /// right before, as [`Store::complete`] does. Checked: that no object came
    /// before.
    ///
    /// # Errors
    /// As [`Incoming::check`].
    pub fn take_checked(&mut self, id: PackId) -> Result<(), BundleError> {
        let pack = PackFile::open(&self.own.pack_path(&id), id)?;
        let objects = pack.objects()?;
        self.check_new(&objects)?;
        self.take_in(&pack, objects);
        Ok(())
    }

    fn check_new(&self, objects: &[Object]) -> Result<(), BundleError> {
        for object in objects {
            if self.own.locate(&object.id)?.is_some() {
                return Err(BundleError::Duplicate { id: object.id });
            }
        }
        let mut sorted: Vec<&ObjectId> = objects.iter().map(|object| &object.id).collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(BundleError::Duplicate { id: *pair[0] }),
            None => Ok(()),
        }
    }

    fn take_in(&mut self, pack: &PackFile, objects: Vec<Object>) {
        self.objects += objects.len() as u64;
        self.raw_bytes += objects.iter().map(|object| u64::from(object.bytes)).sum::<u64>();
        let (id, file_bytes) = (pack.id(), pack.file_bytes());
        let sealed = Sealed { id, frames: pack.frames().to_vec(), objects, file_bytes };
        self.own.add_sealed(&sealed, Home::Whole);
        self.own.merge_segments();
        self.packs.push(id);
    }

    /// Takes in a pack that was checked before: its objects are what their ids
    /// say, but for chunk lists.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read or linked.
    pub fn accept(&mut self, path: &Path, id: PackId) -> Result<(), StoreError> {
        self.link(path, id)?;
        let pack = PackFile::open(&self.own.pack_path(&id), id)?;
        let objects = pack.objects()?;
        self.take_in(&pack, objects);
        Ok(())
    }

    /// The packs that were received.
    pub fn packs(&self) -> &[PackId] {
        &self.packs
    }

    /// Objects that were received, and their bytes.
    pub fn totals(&self) -> (u64, u64) {
        (self.objects, self.raw_bytes)
    }

    /// What was received.
    pub fn own(&self) -> &Store {
        &self.own
    }

    /// The store that it is meant for.
    pub fn target(&self) -> &'s Store {
        self.target
    }

    /// Whether packs went since this began. What was found in the store may then not
    /// be there any more; as long as none has, it is.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed.
    pub fn has_lost(&self) -> Result<bool, StoreError> {
        self.target.refresh()?;
        Ok(!gone(self.target).is_subset(&self.gone))
    }

    /// Where an object is: among what was received, else in the store.
    ///
    /// # Errors
    /// [`StoreError`] when an index cannot be read.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> {
        match self.own.locate(id)? {
            None => self.target.locate(id),
            place => Ok(place),
        }
    }

    /// Whether an object that was [located](Self::locate) can be read without
    /// asking elsewhere.
    ///
    /// # Errors
    /// [`StoreError`] when its pack cannot be read.
    pub fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        match (self.own.locate(id)?, self.target.locate(id)?) {
            (None, Some(place)) => self.target.is_here(&place),
            _ => Ok(true),
        }
    }

    /// Whether what an object of the store refers to is to be looked at. What
    /// lies elsewhere does so with all that it refers to, and is not fetched
    /// to be told that.
    ///
    /// # Errors
    /// [`StoreError`] when its pack cannot be read.
    pub fn has_below(&self, place: &Place) -> Result<bool, StoreError> {
        Ok(place.kind != ObjectKind::Blob && self.target.is_here(place)?)
    }

    /// An object from among what was received, else from the store.
    ///
    /// # Errors
    /// [`StoreError`] when it is in neither, or damaged.
    pub fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        match self.own.locate(id)? {
            Some(_) => self.own.object(id, kind),
            None => self.target.object(id, kind),
        }
    }

    /// Makes what was received part of the store, durably. The caller has
    /// found that it is complete.
    ///
    /// # Errors
    /// [`StoreError`]; the store may then have some of the objects, which
    /// nothing refers to.
    pub fn adopt(self, level: i32) -> Result<Added, StoreError> {
        let _all_at_once = self.target.coming.read();
        let ordered = self.ordered()?;
        // Its index is of no further use.
        self.own.change_catalog(|_| (Catalog::default(), ()));
        let mut moved = Added::default();
        let mut mixed = Vec::new();
        for id in &ordered {
            let pack = PackFile::open(&self.own.pack_path(id), *id)?;
            let objects = pack.objects()?;
            let mut known = 0;
            for object in &objects {
                known += usize::from(self.target.is_stored(&object.id)?);
            }
            // A pack of which a part was here is whole now, and one that was
            // damaged here is replaced.
            if known == 0 || self.target.is_partial(id) || self.target.is_damaged(id) {
                self.move_pack(&pack, objects, &mut moved)?;
            } else if known < objects.len() {
                mixed.push(pack);
            }
        }
        if mixed.is_empty() {
            self.target.settle()?;
            return Ok(moved);
        }
        let writer = Writer::new(self.target, level, 1)?;
        for pack in &mixed {
            copy_pack(&writer, pack, Frames::Refill, &mut |object| writer.claim(object))?;
        }
        // Settles the packs that were moved, too.
        let added = writer.finish()?;
        Ok(Added {
            objects: added.objects + moved.objects,
            raw_bytes: added.raw_bytes + moved.raw_bytes,
            stored_bytes: added.stored_bytes + moved.stored_bytes,
            packs: added.packs + moved.packs,
        })
    }

    /// Makes what was received part of the store, durably, each pack as it is:
    /// others know it by its name. The caller has found that it is complete.
    ///
    /// # Errors
    /// As [`Incoming::adopt`].
    pub fn adopt_packs(self) -> Result<Added, StoreError> {
        let _all_at_once = self.target.coming.read();
        let ordered = self.ordered()?;
        self.own.change_catalog(|_| (Catalog::default(), ()));
        let mut moved = Added::default();
        // Somebody else may have sent some of them, too.
        let there = self.target.packs();
        let is_here = |id: &PackId| {
            let is_there = there.binary_search(id).is_ok();
            is_there && !self.target.is_partial(id) && !self.target.is_damaged(id)
        };
        // So that little can come between the first that counts and the last.
        if self.packs.len() > 1 {
            for id in &self.packs {
                self.target.disk().sync_file(&self.own.pack_path(id))?;
            }
        }
        for id in ordered.iter().filter(|id| !is_here(id)) {
            let pack = PackFile::open(&self.own.pack_path(id), *id)?;
            let objects = pack.objects()?;
            self.move_pack(&pack, objects, &mut moved)?;
        }
        self.target.settle()?;
        Ok(moved)
    }

    fn move_pack(
        &self,
        pack: &PackFile,
        objects: Vec<Object>,
        moved: &mut Added,
    ) -> Result<(), StoreError> {
        let (id, file_bytes) = (pack.id(), pack.file_bytes());
        let from = self.own.pack_path(&id);
        self.target.disk().sync_file(&from)?;
        publish(self.target.disk(), &from, &self.target.layout().path(Home::Whole, &id))?;
        moved.objects += objects.len() as u64;
        moved.raw_bytes += objects.iter().map(|object| u64::from(object.bytes)).sum::<u64>();
        moved.stored_bytes += file_bytes;
        moved.packs += 1;
        let sealed = Sealed { id, frames: pack.frames().to_vec(), objects, file_bytes };
        self.target.add_sealed(&sealed, Home::Whole);
        Ok(())
    }
}

/// Takes the next bytes of a pack.
pub type Receive<'a> = dyn FnMut(&[u8]) -> Result<(), BundleError> + 'a;

impl PackFile {
    /// Checks every frame, and every object against its id but for chunk
    /// lists. Ends early, without an error, when the user asks to stop.
    ///
    /// # Errors
    /// [`StoreError`] with what is wrong, such as more than
    /// [`limits::PACK_RAW_BYTES`]: nothing is expanded then.
    pub fn check(&self, objects: &[Object], observer: &dyn Observer) -> Result<(), StoreError> {
        let claimed = self.frames().iter().map(|frame| u64::from(frame.raw_bytes)).sum();
        let (what, limit) = ("expanded bytes", limits::PACK_RAW_BYTES);
        if claimed > limit {
            let source = FormatError::Limit { what, claimed, limit };
            return Err(StoreError::Format { pack: self.id(), source });
        }
        let mut rest = objects;
        let frames: Vec<(&Frame, &[Object])> = self
            .frames()
            .iter()
            .map(|frame| {
                let (own, others) = rest.split_at(frame.objects as usize);
                rest = others;
                (frame, own)
            })
            .collect();
        frames.par_iter().try_for_each(|(frame, objects)| match observer.cancelled() {
            true => Ok(()),
            false => self.check_frame(frame, objects),
        })
    }

    /// Checks a frame, and its objects against their ids but for chunk lists.
    ///
    /// # Errors
    /// [`StoreError`] with what is wrong.
    pub fn check_frame(&self, frame: &Frame, objects: &[Object]) -> Result<(), StoreError> {
        self.check_stored(frame, objects, &self.stored(frame)?)
    }

    /// The same for one that was read.
    pub(super) fn check_stored(
        &self,
        frame: &Frame,
        objects: &[Object],
        stored: &[u8],
    ) -> Result<(), StoreError> {
        let raw = self.expanded(frame, stored)?;
        let mut offset = 0;
        for object in objects {
            let bytes = &raw[offset..offset + object.bytes as usize];
            offset += object.bytes as usize;
            let actual = actual_id(object.kind, bytes);
            if let Some(actual) = actual.filter(|actual| *actual != object.id) {
                return Err(StoreError::Damaged { pack: self.id(), wanted: object.id, actual });
            }
        }
        Ok(())
    }
}
