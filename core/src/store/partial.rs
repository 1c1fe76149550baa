//! Partial packs: what of them is here, putting more there, and making them
//! whole.
//!
//! A stub fills up in place, in any order. Once all frames are there, every
//! object in them is what its id says and the whole hashes to its name, it is a
//! pack like any other and moves to `objects/`, where every file is that.

use std::{io, ops::Range, path::Path, sync::Arc};

use rayon::prelude::*;

use crate::{
    base::{
        id::PackId,
        io::PathError,
        observe::{Observer, Silent},
    },
    disk::Disk,
    format::{
        pack::{self, Frame, Object},
        wire::FormatError,
    },
    store::{
        Distant, PackFile, Place, Store, StoreError, catalog::Layout, distant::is_at,
        pack_reader::Home, pack_writer::publish,
    },
};

/// What lies behind the frames is read so many bytes at a time.
const READ_BYTES: u64 = 1 << 20;

/// Frames of so many bytes are read and checked together, while those before
/// them are hashed: enough for some threads.
const BATCH_BYTES: u64 = 8 << 20;

impl Store {
    /// Whether frames of any pack may lie elsewhere.
    pub fn has_partial(&self) -> bool {
        self.catalog().has_partial
    }

    /// Whether frames of this pack may lie elsewhere.
    pub fn is_partial(&self, pack: &PackId) -> bool {
        self.catalog().slot(pack).is_some_and(|slot| slot.home == Home::Partial)
    }

    /// The packs of which frames may lie elsewhere.
    pub fn partial_packs(&self) -> Vec<PackId> {
        let catalog = self.catalog();
        let is_partial = |id: &PackId| catalog.slot(id).is_some_and(|s| s.home == Home::Partial);
        self.packs().into_iter().filter(is_partial).collect()
    }

    /// Removes a stub that is of no use any more: the pack is gone where it lay,
    /// and other packs have all objects of it.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be removed.
    pub fn remove_stub(&self, pack: &PackId) -> Result<(), StoreError> {
        if !self.is_partial(pack) {
            return Ok(());
        }
        let layout = self.layout();
        self.disk().remove(&layout.path(Home::Partial, pack))?;
        self.disk().sync_folder(&layout.partial)?;
        self.refresh()
    }

    /// Removes stubs from the store in `dir`, but for those that `keep` says.
    /// For those who open it next; nobody has it open who would miss them.
    ///
    /// # Errors
    /// [`StoreError::Io`] when they cannot be listed or removed.
    pub fn retain_stubs(
        dir: &Path,
        disk: &Disk,
        keep: &dyn Fn(&PackId) -> bool,
    ) -> Result<(), StoreError> {
        let folder = Layout::of(dir).partial;
        let entries = match fs_err::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(PathError::when("list", &folder)(error).into()),
        };
        for entry in entries {
            let entry = entry.map_err(PathError::when("list", &folder))?;
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if id.is_some_and(|id| !keep(&id)) {
                disk.remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Whether an object can be read without fetching anything: its frame is
    /// what its checksum says. Those of whole packs are taken to be.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read.
    pub fn is_here(&self, place: &Place) -> Result<bool, StoreError> {
        let catalog = self.catalog();
        if catalog.packs.get(place.pack as usize).is_some_and(|slot| slot.home == Home::Whole) {
            return Ok(true);
        }
        let pack = self.pack(place.pack)?;
        pack.is_here(pack.frame(place.frame)?)
    }

    /// The frames of a pack that are not here, in order; none of a whole pack,
    /// which is not read. Nor are those of another one read again that this
    /// open store has found or put here.
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

    /// Puts bytes of a pack that came from elsewhere where they belong, in any
    /// order and from several threads. What of them is not frames is left out:
    /// that is here. Does nothing to a whole pack. They are checked when they
    /// are read, and durable with [`Store::complete`].
    ///
    /// # Errors
    /// [`StoreError::Gone`] when there is no such pack, [`StoreError::Format`]
    /// when they would lie behind its end, [`StoreError::Io`].
    pub fn fill(&self, pack: &PackId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let number = self.catalog().numbers.get(pack).copied();
        let file = self.pack(number.ok_or(StoreError::Gone { pack: *pack })?)?;
        let end = offset.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|end| *end <= file.file_bytes()) else {
            let source = FormatError::Invalid { what: "range of a pack", at: offset as usize };
            return Err(StoreError::Format { pack: *pack, source });
        };
        let (from, to) = (offset.max(file.frames_start()), end.min(file.frames_end()));
        if file.home() == Home::Whole || from >= to {
            return Ok(());
        }
        let bytes = &bytes[(from - offset) as usize..(to - offset) as usize];
        match self.disk().fill(&self.layout().path(Home::Partial, pack), from, bytes) {
            // Completed meanwhile.
            Err(error) if error.is_not_found() => Ok(()),
            filled => Ok(filled?),
        }
    }

    /// The same for frames that follow each other, once all of them are what
    /// their checksums say: they need not be read again to know that they are
    /// here.
    ///
    /// # Errors
    /// [`StoreError::Garbled`] names the first frame that is not right; nothing
    /// was written then. Else as [`Store::fill`].
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
                return Err(StoreError::Garbled {
                    pack: *pack,
                    offset_bytes: frame.offset,
                    place: None,
                });
            }
        }
        self.fill(pack, first.offset, &bytes[..bytes.len() - rest.len()])?;
        let file = self.shared_pack(pack)?;
        frames.iter().for_each(|frame| file.mark_here(frame));
        Ok(())
    }

    /// The pack that is open already, which knows what of it was found here.
    fn shared_pack(&self, pack: &PackId) -> Result<Arc<PackFile>, StoreError> {
        let number = self.catalog().numbers.get(pack).copied();
        self.pack(number.ok_or(StoreError::Gone { pack: *pack })?)
    }

    /// Makes a partial pack a whole one, durably, once all of it was found
    /// right, and says whether it is: it is not when the user asked to stop.
    /// Does nothing to one that is whole. Fetches nothing.
    ///
    /// Checked, each byte being read once: every frame against its checksum,
    /// every object against its id but for chunk lists, and that the whole
    /// hashes to its name.
    ///
    /// # Errors
    /// [`StoreError::Absent`] names the first frame that is not here;
    /// [`StoreError::PackHash`] and others say that all are and yet it is not
    /// what it should be. It stays as it is then.
    pub fn complete(&self, pack: &PackId, observer: &dyn Observer) -> Result<bool, StoreError> {
        let file = self.shared_pack(pack)?;
        if file.home() == Home::Whole {
            return Ok(true);
        }
        let (layout, disk) = (self.layout(), self.disk());
        let from = layout.path(Home::Partial, pack);
        let to = layout.path(Home::Whole, pack);
        let locked = loop {
            let locked = match fs_err::File::open(&from) {
                // Somebody else was faster.
                Err(_) if to.exists() => return Ok(true),
                locked => locked.map_err(PathError::when("open", &from))?,
            };
            // Nobody writes to it from here on. Where nothing can be locked,
            // nobody else can be kept from it either.
            let _ = locked.file().lock();
            // Another stub may have taken its place meanwhile.
            if is_at(&from, locked.file())? {
                break locked;
            }
        };
        // What is open may be the file that had this name before.
        let file = match file.is_of(&from, locked.file())? {
            true => file,
            false => Arc::new(self.open_pack(pack)?),
        };
        if !file.check_whole(observer)? {
            return Ok(false);
        }
        disk.sync_file(&from)?;
        publish(disk, &from, &to)?;
        disk.sync_folder(&layout.objects)?;
        disk.sync_folder(&layout.partial)?;
        self.change_catalog(|before| {
            let mut catalog = before.copy();
            catalog.place_pack(*pack, to, Home::Whole);
            catalog.heal(pack);
            catalog.has_partial = catalog
                .numbers
                .values()
                .any(|number| catalog.packs[*number as usize].home == Home::Partial);
            (catalog, ())
        });
        drop(locked);
        self.withdraw_healed()?;
        Ok(true)
    }

    /// Fetches what is absent of a pack and makes it a whole one.
    ///
    /// # Errors
    /// [`StoreError`] when a frame cannot be had, and those of
    /// [`Store::complete`].
    pub fn fetch_pack(&self, pack: &PackId) -> Result<(), StoreError> {
        let absent = self.absent_frames(pack)?;
        self.will_need_frames(*pack, &absent);
        let file = self.shared_pack(pack)?;
        let mut stored = Vec::new();
        absent.iter().try_for_each(|frame| file.stored_into(frame, &mut stored))?;
        self.complete(pack, &Silent).map(drop)
    }

    /// Writes a range of a pack's bytes, whole or partial, to `out`. Frames that are
    /// not here are fetched, and kept where there is room for them. All that is
    /// written was checked against a checksum. **Not** checked: the hash of the whole.
    ///
    /// # Errors
    /// [`StoreError`] when a frame cannot be had or a table is damaged, and those of
    /// `out`.
    pub fn copy_pack(
        &self,
        pack: &PackId,
        range: Range<u64>,
        out: &mut dyn io::Write,
    ) -> Result<(), CopyError> {
        let file = self.shared_pack(pack)?;
        if range.start < file.frames_start() || range.end > file.frames_end() {
            // The tables may have been damaged since the pack was opened.
            self.open_pack(pack)?.objects()?;
        }
        let wanted = |frame: &&Frame| {
            let of = frame.range();
            of.start < range.end && range.start < of.end
        };
        let frames: Vec<Frame> = file.frames().iter().filter(wanted).copied().collect();
        self.will_need_frames(*pack, &frames);
        let mut bytes = Vec::new();
        let mut at = range.start;
        for frame in &frames {
            let of = frame.range();
            file.copy_tables(at..of.start.max(at), out)?;
            file.stored_into(frame, &mut bytes)?;
            let (from, to) = (range.start.max(of.start), range.end.min(of.end));
            out.write_all(&bytes[(from - of.start) as usize..(to - of.start) as usize])?;
            at = to;
        }
        file.copy_tables(at..range.end.max(at), out)
    }

    /// Removes partial packs that are here whole, too, once that is durable.
    pub(super) fn drop_superseded(&self) {
        if self.catalog().superseded.is_empty() {
            return;
        }
        let superseded = self.change_catalog(|before| {
            let mut catalog = before.copy();
            let superseded = std::mem::take(&mut catalog.superseded);
            (catalog, superseded)
        });
        for id in superseded {
            // Held by whoever makes a stub of it just now.
            let whole = self.layout().path(Home::Whole, &id);
            let Ok(locked) = fs_err::File::open(&whole) else { continue };
            let is_ours = locked.file().try_lock().is_ok();
            if is_ours && is_at(&whole, locked.file()).unwrap_or(false) {
                // Where that fails it is found again, and does no harm.
                let _ = self.disk().remove(&self.layout().path(Home::Partial, &id));
            }
        }
    }
}

/// Why a pack could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody takes its bytes.
    #[error("cannot write the pack")]
    Out(#[from] io::Error),
}

/// A frame with the objects in it.
pub type Contents<'a> = (&'a Frame, &'a [Object]);

impl PackFile {
    /// Writes bytes that are in every stub: those around the frames.
    fn copy_tables(&self, range: Range<u64>, out: &mut dyn io::Write) -> Result<(), CopyError> {
        let mut at = range.start;
        while at < range.end {
            let mut bytes = vec![0; READ_BYTES.min(range.end - at) as usize];
            self.read_at(&mut bytes, at)?;
            out.write_all(&bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// The ranges that [`PackFile::hash_at`] reads, in order, but for the ends of
    /// the pack.
    ///
    /// # Errors
    /// [`StoreError`] when the object table cannot be read.
    pub fn ranges_at(&self) -> Result<Vec<Range<u64>>, StoreError> {
        let objects = self.objects()?;
        Ok(self.batches(&objects).iter().map(|batch| range_of(batch)).collect())
    }

    /// Reads a pack where it lies, all of it, and returns what its bytes hash to.
    /// A few MiB are held at a time. `check` is handed frames that follow each
    /// other, with their bytes, which it may read again. `None` when the user
    /// asked to stop.
    ///
    /// # Errors
    /// [`StoreError::Distant`] when it cannot be read there.
    pub fn hash_at(
        &self,
        source: &dyn Distant,
        check: &mut dyn FnMut(&[Contents<'_>], &mut [u8]),
        observer: &dyn Observer,
    ) -> Result<Option<PackId>, StoreError> {
        let read = |range: Range<u64>| {
            let read = source.read(self.id(), range);
            read.map_err(|source| StoreError::Distant { pack: self.id(), source })
        };
        let objects = self.objects()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&read(0..self.frames_start())?);
        for batch in self.batches(&objects) {
            if observer.cancelled() {
                return Ok(None);
            }
            let mut bytes = read(range_of(&batch))?;
            check(&batch, &mut bytes);
            hasher.update(&bytes);
            observer.advance(bytes.len() as u64, 0);
        }
        let mut at = self.frames_end();
        while at < self.file_bytes() {
            let end = self.file_bytes().min(at + READ_BYTES);
            hasher.update(&read(at..end)?);
            at = end;
        }
        Ok(Some(PackId::from_bytes(*hasher.finalize().as_bytes())))
    }

    /// Checks every frame and object, and that the whole hashes to its name.
    /// Fetches nothing. `false` when the user asked to stop.
    fn check_whole(&self, observer: &dyn Observer) -> Result<bool, StoreError> {
        if let Some(frame) = self.frames().iter().find(|frame| !self.may_be_here(frame)) {
            return Err(self.absent(frame));
        }
        let objects = self.objects()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.bytes(0..self.frames_start())?);
        // Two sets of buffers: one is filled while the other is hashed.
        let (mut ready, mut next) = (Vec::new(), Vec::new());
        for batch in self.batches(&objects) {
            if observer.cancelled() {
                return Ok(false);
            }
            let check = || self.check_batch(&batch, &mut next);
            let (checked, ()) = rayon::join(check, || hash_all(&mut hasher, &ready));
            checked?;
            next.truncate(batch.len());
            observer.advance(next.iter().map(|stored| stored.len() as u64).sum(), 0);
            std::mem::swap(&mut ready, &mut next);
        }
        hash_all(&mut hasher, &ready);
        let mut at = self.frames_end();
        while at < self.file_bytes() {
            let end = self.file_bytes().min(at + READ_BYTES);
            hasher.update(&self.bytes(at..end)?);
            at = end;
        }
        let actual = PackId::from_bytes(*hasher.finalize().as_bytes());
        if actual == self.id() {
            return Ok(true);
        }
        Err(StoreError::PackHash { pack: self.id(), actual })
    }

    /// The frames, some at a time.
    fn batches<'a>(&'a self, objects: &'a [Object]) -> Vec<Vec<Contents<'a>>> {
        let (mut batches, mut rest, mut bytes) = (Vec::new(), objects, BATCH_BYTES);
        for frame in self.frames() {
            let (own, others) = rest.split_at(frame.objects as usize);
            rest = others;
            if bytes >= BATCH_BYTES {
                batches.push(Vec::new());
                bytes = 0;
            }
            bytes += u64::from(frame.stored_bytes);
            batches.last_mut().expect("one was just added").push((frame, own));
        }
        batches
    }

    /// Reads frames into `stored` and checks them. The first error counts.
    fn check_batch(
        &self,
        batch: &[Contents<'_>],
        stored: &mut Vec<Vec<u8>>,
    ) -> Result<(), StoreError> {
        stored.resize_with(batch.len().max(stored.len()), Vec::new);
        let check = |((frame, objects), stored): (&Contents<'_>, &mut Vec<u8>)| {
            if !self.reads_right(frame, stored)? {
                return Err(self.absent(frame));
            }
            self.check_stored(frame, objects, stored)
        };
        let checked: Vec<_> = batch.par_iter().zip(stored).with_max_len(1).map(check).collect();
        checked.into_iter().collect()
    }
}

/// Where frames that follow each other lie.
fn range_of(batch: &[Contents<'_>]) -> Range<u64> {
    let start = batch.first().map_or(0, |(frame, _)| frame.offset);
    let end = batch.last().map_or(0, |(frame, _)| frame.range().end);
    start..end
}

fn hash_all(hasher: &mut blake3::Hasher, pieces: &[Vec<u8>]) {
    for piece in pieces {
        hasher.update(piece);
    }
}
