//! Packs of a remote, and their stubs.
//!
//! A store may have stubs in `partial/`. A stub is a sparse file of the length of its pack: it has
//! the bytes before and after the frames, and a hole in place of the frames. A reader fetches an
//! absent frame and writes it into the stub for the next reader. A frame is stored locally if its
//! bytes match its checksum. So the store needs no record of local frames, syncs only the ends of a
//! stub, and fetches a damaged frame again.

use std::{
    collections::BTreeSet,
    fmt::{self, Debug},
    ops::Range,
    sync::Arc,
    time::SystemTime,
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
    },
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
    /// Reads all bytes of a pack in `range`. Waits for a request that is already in flight. The
    /// caller checks the length and the bytes.
    ///
    /// # Errors
    /// [`RemoteFrameError`] with a message for the user.
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, RemoteFrameError>;

    /// Prefetches ranges, in the order of the later reads. Returns without waiting.
    fn prefetch(&self, ranges: &[(PackId, Range<u64>)]);

    /// Discards any cached bytes of `range`, because they do not match the checksum. The next read
    /// requests the bytes again.
    fn discard(&self, _pack: PackId, _range: Range<u64>) {}

    /// Looks for other copies of these objects of damaged or lost frames.
    fn other_copies(&self, _pack: PackId, _objects: &[ObjectId]) -> RemoteCopies {
        RemoteCopies::default()
    }

    /// Returns those copies of objects that are dead in the remote, or in packs that it has deleted.
    fn dead_copies(&self, _copies: Vec<(PackId, ObjectId)>) -> Vec<(PackId, ObjectId)> {
        Vec::new()
    }

    /// Returns those objects of a lost pack that a garbage collection has deleted. Call
    /// [`RemoteFrames::other_copies`] first.
    fn deleted(&self, _pack: PackId, _objects: &[ObjectId]) -> BTreeSet<ObjectId> {
        BTreeSet::new()
    }

    /// Records that a stub had a frame, so that no fetch was needed.
    fn record_hit(&self) {}

    /// Records that the copy of a pack in this store is damaged. Returns true if the remote
    /// certainly has the pack; the caller then fetches the damaged part.
    fn record_damage(&self, _pack: PackId) -> bool {
        false
    }

    /// Returns the location of a pack in words for the user, or `None` if unknown.
    fn location(&self, _pack: PackId) -> Option<String> {
        None
    }

    /// Returns true to keep fetched contents in the stub. Metadata is always kept.
    fn keeps_contents(&self) -> bool {
        true
    }
}

/// What the remote has in place of a damaged or lost frame.
#[derive(Debug, Default)]
pub struct RemoteCopies {
    /// The outlines of other packs that have the objects, or links of forgotten commits.
    pub packs: Vec<PackOutline>,
    /// All commits that the remote says it has forgotten. Projects and servers do not say it.
    pub forgotten: Vec<CommitId>,
}

/// Why bytes could not be fetched.
#[derive(Debug)]
pub struct RemoteFrameError {
    /// What the caller can do about the error.
    pub kind: ErrorKind,
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl RemoteFrameError {
    /// Returns what the caller can do about the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

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

    /// Creates stubs of remote packs, durably, and indexes their objects. Skips packs that this
    /// store already has, whole or in part, except unreadable stubs.
    ///
    /// Checked: header, footer and trailer. **Not** checked: that the outline belongs to the pack
    /// of that name. Readers check the objects.
    ///
    /// # Errors
    /// [`StoreError::Format`], [`StoreError::Io`]. Some of the stubs may then exist.
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
        }
        self.merge_segments();
        Ok(())
    }

    /// Writes a stub and renames it into place. Returns `None` if the store already has the pack or
    /// a readable stub.
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

    /// Replaces a pack with a stub, durably, to free disk space. Later reads fetch the frames
    /// again; a reader with an open file can go on. Returns true if the pack was replaced, and false
    /// if another process fills or completes it. Does **not** check that the remote has the pack.
    ///
    /// If the disk has no room for the stub, removes the pack first. If the stub still cannot be
    /// written, this store loses the pack.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read, or the stub cannot be written.
    pub fn evict_pack(&self, id: &PackId) -> Result<bool, StoreError> {
        self.replace_locked_with_stub(id, &|| self.outline(id))
    }

    /// Replaces a pack in any state, even an unreadable one, with a stub made of `outline`. Returns
    /// true if the pack was replaced, like [`Store::evict_pack`].
    ///
    /// # Errors
    /// [`StoreError::Format`] if the outline is damaged, and other errors if the stub cannot be
    /// written.
    pub fn renew_stub(&self, outline: &PackOutline) -> Result<bool, StoreError> {
        let id = outline.id;
        let tables = outline.tables();
        let (frames, objects) = tables.map_err(|source| StoreError::Format { pack: id, source })?;
        if !self.replace_locked_with_stub(&id, &|| Ok(outline.clone()))? {
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
        outline: &dyn Fn() -> Result<PackOutline, StoreError>,
    ) -> Result<bool, StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let Some(completeness) = self.catalog().completeness(id) else { return Ok(false) };
        let path = layout.path(completeness, id);
        let Ok(locked) = fs_err::File::open(&path) else { return Ok(false) };
        // Hold the lock until the catalog is updated, like [`Store::complete`].
        if locked.file().try_lock().is_err() || !is_file_at(locked.file(), &path)? {
            return Ok(false);
        }
        let outline = outline()?;
        let replaced = match self.replace_with_stub(&outline) {
            Err(error) if error.is_full() => {
                // Close the file: an open file keeps its disk space in use.
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
                // Close an open file, which may be an earlier stub.
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

    /// Returns the time of the last read of a pack by this open store, or `None` without a read
    /// since the pack was added, whole or as a stub. Only a store that can fetch frames records
    /// this time.
    pub fn last_used(&self, id: &PackId) -> Option<SystemTime> {
        self.catalog().slot(id).and_then(|slot| slot.used())
    }

    /// Lets the store fetch absent frames from `remote`.
    #[must_use]
    pub fn with_remote_frames(mut self, remote: Arc<dyn RemoteFrames>) -> Self {
        self.fetcher = Some(Arc::new(Fetcher::new(remote, self.disk().clone())));
        // Close all packs, because open packs have no fetcher.
        for slot in &self.catalog().packs {
            *slot.open.lock() = None;
        }
        self
    }
}

impl PackFile {
    /// Reads the pack's outline from the file and checks it.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the outline cannot be read, [`StoreError::Format`] if it was damaged
    /// after the pack was opened.
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
