//! Partial packs: lists local frames, writes fetched frames, and completes packs.
//!
//! Fetched frames go into the holes of the stub, in any order. Once a stub has all frames,
//! [`Store::complete`] checks every object against its id and the hash of the file against its
//! name. The pack then moves to `objects/`, which holds only whole packs.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use rayon::prelude::*;

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::{PathError, if_exists},
        observe::{Observer, Silent},
    },
    disk::{Disk, lock_wait::is_file_at},
    format::{
        pack::{self, Frame, ObjectKind},
        wire::FormatError,
    },
    store::{
        ContentError, ObjectLocation, PackFile, PackStream, Store, StoreError, catalog::StorePaths,
        pack_reader::Completeness,
    },
};

/// Number of bytes of the footer that are read at a time.
const READ_BYTES: usize = 1 << 20;

impl Store {
    /// Returns true if the store has a partial pack.
    pub fn has_partial(&self) -> bool {
        self.catalog().has_partial
    }

    /// Returns true if this pack is partial: some of its frames may be on a remote only.
    pub fn is_partial(&self, pack: &PackId) -> bool {
        self.catalog().completeness(pack) == Some(Completeness::Partial)
    }

    /// Returns the partial packs.
    pub fn partial_packs(&self) -> Vec<PackId> {
        self.packs().into_iter().filter(|id| self.is_partial(id)).collect()
    }

    /// Removes unneeded stubs: the remote no longer has the packs, or deletes them. Skips packs
    /// that are not partial.
    ///
    /// # Errors
    /// [`StoreError`] when a stub cannot be removed.
    pub fn remove_stubs(&self, packs: &[PackId]) -> Result<(), StoreError> {
        let layout = self.layout();
        let mut has_removed = false;
        for pack in packs.iter().filter(|pack| self.is_partial(pack)) {
            self.disk().remove(&layout.path(Completeness::Partial, pack))?;
            has_removed = true;
        }
        if !has_removed {
            return Ok(());
        }
        self.disk().sync_folder(&layout.partial)?;
        self.refresh()
    }

    /// Removes from the store in `dir` all stubs for which `keep` returns false, and all unreadable
    /// stubs, which the caller can create again. Call this function before opening the store, while
    /// no other process needs the removed stubs.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the stubs cannot be listed or removed.
    pub fn retain_stubs(
        dir: &Path,
        disk: &Disk,
        keep: &(dyn Fn(&PackId) -> bool + Sync),
    ) -> Result<(), StoreError> {
        let folder = StorePaths::of(dir).partial;
        let entries = if_exists(fs_err::read_dir(&folder));
        let entries = entries.map_err(PathError::when("list", &folder))?;
        let mut stubs: Vec<(PackId, PathBuf)> = Vec::new();
        for entry in entries.into_iter().flatten() {
            let entry = entry.map_err(PathError::when("list", &folder))?;
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            stubs.extend(id.map(|id| (id, entry.path())));
        }
        stubs.into_par_iter().try_for_each(|(id, path)| {
            if keep(&id) && PackFile::open(&path, id).is_ok() {
                return Ok(());
            }
            let is_folder = fs_err::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
            match is_folder {
                true => fs_err::remove_dir_all(&path).map_err(PathError::when("remove", &path))?,
                false => disk.remove(&path)?,
            }
            Ok(())
        })
    }

    /// Returns true if an object can be read without a fetch: its pack is whole, or its frame
    /// matches the checksum.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read.
    pub fn is_here(&self, place: &ObjectLocation) -> Result<bool, StoreError> {
        let catalog = self.catalog();
        let slot = catalog.packs.get(place.pack as usize);
        if slot.is_some_and(|slot| slot.completeness == Completeness::Whole) {
            return Ok(true);
        }
        let pack = self.pack(place.pack)?;
        pack.is_here(pack.frame(place.frame)?)
    }

    /// Lists the absent frames of a pack, in order. Returns none for a whole pack, without reading
    /// it. Does not read frames again that this open store has already found or written.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read.
    pub fn absent_frames(&self, pack: &PackId) -> Result<Vec<Frame>, StoreError> {
        let file = self.shared_pack(pack)?;
        let mut absent = Vec::new();
        for frame in file.frames() {
            if !file.is_here(frame)? {
                absent.push(*frame);
            }
        }
        Ok(absent)
    }

    /// Writes fetched bytes of a pack to their offset in the stub. Calls may come in any order and
    /// from several threads. Ignores bytes outside the frames, which a stub already has. Does
    /// nothing for a whole pack. Does **not** check the bytes: readers check them.
    /// [`Store::complete`] makes the bytes durable.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the pack does not exist, [`StoreError::Format`] if the bytes extend
    /// beyond the end of the pack, and [`StoreError::Io`].
    pub fn fill(&self, pack: &PackId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let file = self.shared_pack(pack)?;
        let end = offset.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|end| *end <= file.file_bytes()) else {
            let source = FormatError::Invalid { what: "range of a pack", at: offset as usize };
            return Err(StoreError::Format { pack: *pack, source });
        };
        let (from, to) = (offset.max(file.frames_start()), end.min(file.frames_end()));
        if file.completeness() == Completeness::Whole || from >= to {
            return Ok(());
        }
        let bytes = &bytes[(from - offset) as usize..(to - offset) as usize];
        match self.disk().fill(&self.layout().path(Completeness::Partial, pack), from, bytes) {
            // Another thread or process has completed the pack meanwhile.
            Err(error) if error.is_not_found() => Ok(()),
            filled => Ok(filled?),
        }
    }

    /// Verifies the checksums of consecutive frames, then does the same as [`Store::fill`]. Records
    /// the frames as stored locally, so no reader has to verify them again.
    ///
    /// # Errors
    /// [`StoreError::CorruptedInTransit`] names the first frame that does not match its checksum;
    /// then no frame was written. Otherwise as [`Store::fill`].
    pub fn fill_frames(
        &self,
        pack: &PackId,
        frames: &[Frame],
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let Some(first) = frames.first() else { return Ok(()) };
        let mut rest = bytes;
        for frame in frames {
            let stored = rest.split_off(..frame.stored_bytes as usize);
            if stored.is_none_or(|stored| pack::checksum(stored) != frame.checksum) {
                return Err(StoreError::CorruptedInTransit {
                    pack: *pack,
                    offset_bytes: frame.offset,
                    place: None,
                });
            }
        }
        self.fill(pack, first.offset, &bytes[..bytes.len() - rest.len()])?;
        let file = self.shared_pack(pack)?;
        if let Some(stub) = file.stub() {
            frames.iter().for_each(|frame| stub.set_here(&file, frame, true));
        }
        Ok(())
    }

    /// Returns the shared open pack, which remembers the frames that are stored locally.
    pub(super) fn shared_pack(&self, pack: &PackId) -> Result<Arc<PackFile>, StoreError> {
        let number = self.catalog().numbers.get(pack).copied();
        self.pack(number.ok_or(StoreError::Gone { pack: *pack })?)
    }

    /// Verifies a partial pack and makes it whole, durably. Returns false if the user asked to
    /// stop. Does nothing for a whole pack. Fetches no frames.
    ///
    /// Checked: every frame against its checksum, every object against its id, and the hash of the
    /// file against its name. So records the pack as proven.
    ///
    /// # Errors
    /// [`StoreError::Absent`] names an absent frame of this pack. [`StoreError::PackHash`] and other
    /// errors mean that all frames are stored locally, but the pack is damaged. The stub stays
    /// unchanged.
    pub fn complete(&self, pack: &PackId, observer: &dyn Observer) -> Result<bool, StoreError> {
        let file = self.shared_pack(pack)?;
        if file.completeness() == Completeness::Whole {
            return Ok(true);
        }
        let (layout, disk) = (self.layout(), self.disk());
        let from = layout.path(Completeness::Partial, pack);
        let to = layout.path(Completeness::Whole, pack);
        let locked = loop {
            let locked = match fs_err::File::open(&from) {
                // Another process has completed the pack.
                Err(_) if to.exists() => return Ok(true),
                locked => locked.map_err(PathError::when("open", &from))?,
            };
            // While this process holds the lock, no other process writes to the file or replaces
            // it. A file system without locks has no such protection.
            let _ = locked.file().lock();
            // Another stub may have replaced the file before it was locked.
            if is_file_at(locked.file(), &from)? {
                break locked;
            }
        };
        // The open pack may be an older file, which was replaced.
        let file = if file.is_replaced() { Arc::new(self.open_pack(pack)?) } else { file };
        // Do not read the frames before all of them may be stored locally.
        if let Some(absent) = file.frames().iter().find(|frame| !file.may_be_here(frame)) {
            return Err(file.absent(absent));
        }
        let mut sink = |bytes: &[u8]| {
            observer.advance(bytes.len() as u64, 0);
            Ok::<_, StoreError>(())
        };
        if !PackStream::of(&file, observer).check(&file.objects()?, &mut sink)? {
            return Ok(false);
        }
        disk.sync_file(&from)?;
        self.name_completed_pack(&from, pack)?;
        disk.sync_folder(&layout.objects)?;
        disk.sync_folder(&layout.partial)?;
        self.change_catalog(|catalog| {
            catalog.place_pack(*pack, to, Completeness::Whole);
            catalog.heal(pack);
            catalog.has_partial = catalog.numbers.values().any(|number| {
                catalog.packs[*number as usize].completeness == Completeness::Partial
            });
        });
        drop(locked);
        self.clear_healed()?;
        self.record_proven(&[*pack]);
        Ok(true)
    }

    /// Fetches the absent frames of a pack and makes it a whole pack.
    ///
    /// # Errors
    /// [`StoreError`] when a frame cannot be fetched, and the errors of
    /// [`Store::complete`].
    pub fn fetch_pack(&self, pack: &PackId) -> Result<(), StoreError> {
        let absent = self.absent_frames(pack)?;
        self.prefetch_frames(*pack, &absent);
        let file = self.shared_pack(pack)?;
        absent.iter().try_for_each(|frame| file.stored(frame).map(drop))?;
        self.complete(pack, &Silent).map(drop)
    }

    /// Reads an object. Fails instead of fetching its frame.
    ///
    /// # Errors
    /// [`StoreError::Absent`] for an object that is not stored locally, and as [`Store::object`].
    pub fn local_object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        if let Some(place) = self.locate(id)?
            && !self.is_here(&place)?
        {
            let pack = self.pack(place.pack)?;
            return Err(pack.absent(pack.frame(place.frame)?));
        }
        self.object(id, kind)
    }

    /// Writes a range of the bytes of a whole or partial pack to `out`. Fetches absent frames, and
    /// keeps them if the disk has room. Verifies all bytes against a checksum, but does **not**
    /// check the hash of the whole pack.
    ///
    /// # Errors
    /// [`StoreError`] when a frame cannot be fetched or a table is damaged, and the
    /// errors of `out`.
    pub fn copy_pack(
        &self,
        pack: &PackId,
        range: Range<u64>,
        out: &mut dyn io::Write,
    ) -> Result<(), ContentError<io::Error>> {
        let file = self.shared_pack(pack)?;
        if range.start < file.frames_start() || range.end > file.frames_end() {
            // Check the tables again: they may have been damaged after the pack was opened.
            self.open_pack(pack)?.objects()?;
        }
        let wanted = |frame: &&Frame| {
            let of = frame.range();
            of.start < range.end && range.start < of.end
        };
        let frames: Vec<Frame> = file.frames().iter().filter(wanted).copied().collect();
        self.prefetch_frames(*pack, &frames);
        let mut at = range.start;
        for frame in &frames {
            let of = frame.range();
            file.copy_tables(at..of.start.max(at), out)?;
            let bytes = file.stored(frame)?;
            let (from, to) = (range.start.max(of.start), range.end.min(of.end));
            let wanted = &bytes[(from - of.start) as usize..(to - of.start) as usize];
            out.write_all(wanted).map_err(ContentError::Callback)?;
            at = to;
        }
        file.copy_tables(at..range.end.max(at), out)
    }

    /// Removes the stubs of packs that are also in `objects/`. The whole packs must be durable.
    pub(super) fn drop_superseded(&self) {
        if self.catalog().superseded.is_empty() {
            return;
        }
        for id in self.change_catalog(|catalog| std::mem::take(&mut catalog.superseded)) {
            // Another process holds this lock while it replaces the pack with a stub.
            let whole = self.layout().path(Completeness::Whole, &id);
            let Ok(locked) = fs_err::File::open(&whole) else { continue };
            let is_ours = locked.file().try_lock().is_ok();
            if is_ours && is_file_at(locked.file(), &whole).unwrap_or(false) {
                // A stub that stays is harmless, and the next refresh finds it again.
                let _ = self.disk().remove(&self.layout().path(Completeness::Partial, &id));
            }
        }
    }
}

impl PackFile {
    /// Copies bytes outside the frames, which every stub has.
    fn copy_tables(
        &self,
        range: Range<u64>,
        out: &mut dyn io::Write,
    ) -> Result<(), ContentError<io::Error>> {
        for start in range.clone().step_by(READ_BYTES) {
            let bytes = self.bytes(start..range.end.min(start + READ_BYTES as u64))?;
            out.write_all(&bytes).map_err(ContentError::Callback)?;
        }
        Ok(())
    }
}
