//! Packs that lie elsewhere, and their stubs.
//!
//! A store may hold stubs in `partial/`. A stub is a sparse file of the length of its pack: only
//! the bytes before and after the frames are written, with a hole where the frames belong. A frame
//! that is missing locally when it is read is fetched, and written into the stub for the next time.
//! The checksum of a frame shows whether it is stored locally. So no record of it is needed, only
//! the ends of a stub must be synced, and a damaged frame is simply fetched again.

use std::{
    fmt::{self, Debug},
    ops::Range,
    sync::Arc,
    time::SystemTime,
};

use crate::{
    base::{id::PackId, kind::ErrorKind},
    disk::{NewFile, Renamed, lock_wait::is_file_at, scratch::unique_name},
    format::outline::PackOutline,
    store::{
        Store, StoreError,
        fetch::Fetcher,
        pack_reader::{Completeness, PackFile},
        pack_writer::FinishedPack,
    },
};

/// The source of the frames of stubs.
pub trait RemoteFrames: Debug + Send + Sync {
    /// Reads all bytes of a pack in `range`. Waits for them if a request is under way.
    /// The caller detects a wrong length or wrong bytes.
    ///
    /// # Errors
    /// [`RemoteFrameError`], with a message for the user.
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, RemoteFrameError>;

    /// Prefetches ranges that will be read, in the order of need. Returns without
    /// waiting.
    fn prefetch(&self, ranges: &[(PackId, Range<u64>)]);

    /// Discards the copy that [`RemoteFrames::read`] has kept of the bytes in `range`, if
    /// any, because it does not match the checksum. The next read requests them again.
    fn discard(&self, _pack: PackId, _range: Range<u64>) {}

    /// Returns outlines of other packs that hold objects of these damaged or lost frames, or
    /// nothing if there are none.
    fn other_copies(&self, _pack: PackId, _offsets: &[u64]) -> Vec<PackOutline> {
        Vec::new()
    }

    /// Records that a frame was in its stub and need not be fetched.
    fn record_hit(&self) {}

    /// Records that the copy of a pack in this store is damaged. Returns true if the
    /// pack certainly exists elsewhere; the damaged part is then read there.
    fn record_damage(&self, _pack: PackId) -> bool {
        false
    }

    /// Returns where a pack lies, in words for the user, if that is known.
    fn location(&self, _pack: PackId) -> Option<String> {
        None
    }

    /// Returns true if fetched contents are to be kept in the stub. Metadata is always
    /// kept.
    fn keeps_contents(&self) -> bool {
        true
    }
}

/// Why bytes could not be fetched.
#[derive(Debug)]
pub struct RemoteFrameError {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl RemoteFrameError {
    /// Returns true if the error says nothing about the requested pack.
    pub fn is_transport(&self) -> bool {
        !matches!(self.kind, ErrorKind::Damaged | ErrorKind::NotFound)
    }
}

impl fmt::Display for RemoteFrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)
    }
}

impl std::error::Error for RemoteFrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}

impl Store {
    /// Returns a pack's outline, from which another store can make a stub.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read.
    pub fn outline(&self, id: &PackId) -> Result<PackOutline, StoreError> {
        self.open_pack(id)?.outline()
    }

    /// Makes a stub of a pack that lies elsewhere, and indexes its objects.
    ///
    /// # Errors
    /// As [`Store::add_stubs`].
    pub fn add_stub(&self, outline: &PackOutline) -> Result<(), StoreError> {
        self.add_stubs([outline])
    }

    /// Makes stubs of packs that lie elsewhere, and indexes their objects. They are durable when
    /// this returns. A pack that is stored locally, whole or in part, stays as it is.
    ///
    /// Checked: header, footer and trailer. **Not** checked: that the outline belongs
    /// to the pack of that name. Objects are checked when they are read.
    ///
    /// # Errors
    /// [`StoreError::Format`], [`StoreError::Io`]; some of the stubs may exist then.
    pub fn add_stubs<'o>(
        &self,
        outlines: impl IntoIterator<Item = &'o PackOutline>,
    ) -> Result<(), StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        disk.create_folders(&layout.partial)?;
        disk.create_folders(&layout.tmp)?;
        let mut made = Vec::new();
        for outline in outlines {
            made.extend(self.write_stub(outline)?);
        }
        if made.is_empty() {
            return Ok(());
        }
        disk.sync_folder(&layout.partial)?;
        for sealed in &made {
            self.add_sealed(sealed, Completeness::Partial);
            self.merge_segments();
        }
        Ok(())
    }

    /// Writes a stub and renames it into place. Returns `None` when the pack is stored locally.
    fn write_stub(&self, outline: &PackOutline) -> Result<Option<FinishedPack>, StoreError> {
        let id = outline.id;
        let is_unreadable =
            self.unreadable_packs().iter().any(|error| error.damaged_pack() == Some(id));
        let is_here = self.catalog().slot(&id).is_some();
        if is_here && !(is_unreadable && self.is_partial(&id)) {
            return Ok(None);
        }
        let tables = outline.tables();
        let (frames, objects) = tables.map_err(|source| StoreError::Format { pack: id, source })?;
        let (layout, disk) = (self.layout(), self.disk());
        let file = self.stub_file(outline)?;
        let path = layout.path(Completeness::Partial, &id);
        if is_unreadable {
            disk.replace(file.path(), &path)?;
            file.keep();
        } else if disk.rename_new(file.path(), &path)? == Renamed::Done {
            file.keep();
        }
        Ok(Some(FinishedPack { id, frames, objects, file_bytes: outline.file_bytes }))
    }

    /// Writes a stub to a temporary file and syncs it.
    fn stub_file(&self, outline: &PackOutline) -> Result<NewFile, StoreError> {
        let file = self.disk().create(&self.layout().tmp.join(unique_name("stub")))?;
        file.write_at(0, &outline.head)?;
        let tail = outline.file_bytes - outline.tail.len() as u64;
        file.write_at(tail, &outline.tail)?;
        file.sync()?;
        Ok(file)
    }

    /// Replaces a pack that also lies elsewhere with a stub, durably. Later reads fetch
    /// its frames again; a reader that has the file open can go on reading it. Returns
    /// true if this was done. It is not done while another process fills the pack or
    /// makes it whole, or if `may` returns false; `may` is called while no other
    /// process can change the pack. **Not** checked: that the pack lies elsewhere.
    ///
    /// If the disk has no room for the stub, the pack is removed first. If the stub
    /// cannot be written even then, this store does not know the pack any more.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read, or the stub cannot be written.
    pub fn evict_pack(&self, id: &PackId, may: &dyn Fn() -> bool) -> Result<bool, StoreError> {
        self.replace_locked_with_stub(id, may, &|| self.outline(id))
    }

    /// Replaces the copy of a pack that lies elsewhere with a stub made of `outline`,
    /// in whatever state the copy is. Returns true if this was done, as
    /// [`Store::evict_pack`].
    ///
    /// # Errors
    /// [`StoreError::Format`] when the outline is damaged; other errors when the stub
    /// cannot be written.
    pub fn renew_stub(
        &self,
        outline: &PackOutline,
        may: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let id = outline.id;
        let tables = outline.tables();
        let (frames, objects) = tables.map_err(|source| StoreError::Format { pack: id, source })?;
        if !self.replace_locked_with_stub(&id, may, &|| Ok(outline.clone()))? {
            return Ok(false);
        }
        let is_of = |error: &Arc<StoreError>| error.damaged_pack() == Some(id);
        if self.unreadable_packs().iter().any(is_of) {
            let sealed = FinishedPack { id, frames, objects, file_bytes: outline.file_bytes };
            self.add_sealed(&sealed, Completeness::Partial);
        }
        self.change_catalog(|catalog| catalog.heal(&id));
        self.clear_healed()?;
        Ok(true)
    }

    fn replace_locked_with_stub(
        &self,
        id: &PackId,
        may: &dyn Fn() -> bool,
        outline: &dyn Fn() -> Result<PackOutline, StoreError>,
    ) -> Result<bool, StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let Some(completeness) = self.catalog().slot(id).map(|slot| slot.completeness) else {
            return Ok(false);
        };
        let path = layout.path(completeness, id);
        let Ok(locked) = fs_err::File::open(&path) else { return Ok(false) };
        // The lock is held until the catalog is updated, as in [`Store::complete`].
        if locked.file().try_lock().is_err() || !is_file_at(locked.file(), &path)? || !may() {
            return Ok(false);
        }
        let outline = outline()?;
        let replaced = match self.replace_with_stub(&outline) {
            Err(error) if error.is_full() => {
                // A process that has the file open keeps its bytes readable and its
                // disk space in use until it closes the file.
                if let Some(slot) = self.catalog().slot(id) {
                    *slot.open.lock() = None;
                }
                disk.remove(&path)?;
                drop(locked);
                self.replace_with_stub(&outline)
            }
            replaced => replaced,
        };
        if let Err(error) = replaced {
            if !path.exists() {
                self.refresh()?;
            }
            return Err(error);
        }
        self.change_catalog(|catalog| {
            catalog.place_pack(*id, layout.path(Completeness::Partial, id), Completeness::Partial);
            if let Some(slot) = catalog.slot(id) {
                // The open file may be an earlier stub, which was replaced.
                *slot.open.lock() = None;
            }
        });
        let whole = layout.path(Completeness::Whole, id);
        if whole.exists() {
            disk.remove(&whole)?;
        }
        Ok(true)
    }

    fn replace_with_stub(&self, outline: &PackOutline) -> Result<(), StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        disk.create_folders(&layout.partial)?;
        disk.create_folders(&layout.tmp)?;
        let file = self.stub_file(outline)?;
        disk.replace(file.path(), &layout.path(Completeness::Partial, &outline.id))?;
        file.keep();
        Ok(disk.sync_folder(&layout.partial)?)
    }

    /// Returns when the pack was last read, if it was read since this store was opened and since
    /// the pack was added to it, whole or in part. Only stores that can fetch frames record this.
    pub fn last_used(&self, id: &PackId) -> Option<SystemTime> {
        self.catalog().slot(id).and_then(|slot| slot.used())
    }

    /// Returns the ids of all packs. Of packs that are added together, the list has
    /// either all or none.
    pub fn consistent_packs(&self) -> Vec<PackId> {
        let _nobody_adds = self.adoption_lock.write();
        self.packs()
    }

    /// Makes the store fetch absent frames from `remote`.
    #[must_use]
    pub fn with_remote_frames(mut self, remote: Arc<dyn RemoteFrames>) -> Self {
        self.fetcher = Some(Arc::new(Fetcher::new(remote, self.disk().clone())));
        // Packs that are open have no fetcher.
        for slot in &self.catalog().packs {
            *slot.open.lock() = None;
        }
        self
    }
}

impl PackFile {
    /// Reads the pack's outline again from the file and checks it.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the outline cannot be read, [`StoreError::Format`] when
    /// it was damaged since the pack was opened.
    pub fn outline(&self) -> Result<PackOutline, StoreError> {
        let read = || {
            let (id, file_bytes) = (self.id(), self.file_bytes());
            let head = self.bytes(0..self.frames_start())?;
            let tail = self.bytes(self.frames_end()..file_bytes)?;
            let outline = PackOutline { id, file_bytes, head, tail };
            outline.tables().map_err(|source| StoreError::Format { pack: id, source })?;
            Ok(outline)
        };
        read().inspect_err(|_| {
            self.report_damage();
        })
    }
}
