//! Packs that lie elsewhere.
//!
//! A store may hold stubs, in `partial/`: files of the length of a pack in
//! which only its ends are written, with a hole where the frames belong. A
//! frame that is read and not there comes from elsewhere, and is put in its
//! place for the next time. Whether it is there is said by its checksum, so
//! nothing has to be written down about that, nothing but a stub's ends has to
//! be synced, and a part that was damaged heals.

use std::{
    fmt::{self, Debug},
    fs,
    ops::Range,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use crate::{
    base::{id::PackId, io::PathError, kind::ErrorKind},
    disk::{NewFile, Renamed, scratch::unique_name},
    format::outline::Outline,
    store::{
        Store, StoreError,
        fetch::Fetcher,
        objects::lock,
        pack_reader::{Home, PackFile},
        pack_writer::Sealed,
    },
};

/// Where the frames of stubs come from.
pub trait Distant: Debug + Send + Sync {
    /// The bytes of a pack in `range`, all of them; waits for them where they
    /// are under way. A length or bytes that are wrong are found out.
    ///
    /// # Errors
    /// [`DistantError`] in words for the user.
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, DistantError>;

    /// Says what is going to be read, range by range and in the order of need,
    /// so that it can be under way. Returns at once.
    fn will_need(&self, ranges: &[(PackId, Range<u64>)]);

    /// Takes note that a frame of a stub was there, and need not come.
    fn was_here(&self) {}

    /// Takes note that the copy of a pack in this store is damaged. Returns whether
    /// the pack lies elsewhere for sure: then what is damaged here is read there.
    fn found_damage(&self, _pack: PackId) -> bool {
        false
    }

    /// Where a pack lies, in words for the user, if that is known.
    fn place(&self, _pack: PackId) -> Option<String> {
        None
    }

    /// Whether contents that were read are to be kept, as the structure always
    /// is.
    fn keeps_contents(&self) -> bool {
        true
    }
}

/// Why bytes from elsewhere could not be had.
#[derive(Debug)]
pub struct DistantError {
    /// What a caller can do about it.
    pub kind: ErrorKind,
    /// What went wrong.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for DistantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)
    }
}

impl std::error::Error for DistantError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}

impl Store {
    /// A pack's outline, for others to make a stub of it.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub fn outline(&self, id: &PackId) -> Result<Outline, StoreError> {
        self.open_pack(id)?.outline()
    }

    /// Makes a stub of a pack that lies elsewhere, and indexes its objects.
    ///
    /// # Errors
    /// As [`Store::add_stubs`].
    pub fn add_stub(&self, outline: &Outline) -> Result<(), StoreError> {
        self.add_stubs([outline])
    }

    /// Makes stubs of packs that lie elsewhere, and indexes their objects. They
    /// are durable when this returns. Packs that are here, whole or in part,
    /// stay as they are.
    ///
    /// Checked: header, footer and trailer. **Not** checked: that the pack is
    /// the one of that name; its objects are checked when they are read.
    ///
    /// # Errors
    /// [`StoreError::Format`], [`StoreError::Io`]; some may then be there.
    pub fn add_stubs<'o>(
        &self,
        outlines: impl IntoIterator<Item = &'o Outline>,
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
            self.add_sealed(sealed, Home::Partial);
            self.merge_segments();
        }
        Ok(())
    }

    /// Writes a stub and gives it its name; `None` when the pack is here.
    fn write_stub(&self, outline: &Outline) -> Result<Option<Sealed>, StoreError> {
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
        let path = layout.path(Home::Partial, &id);
        if is_unreadable {
            disk.replace(file.path(), &path)?;
            file.keep();
        } else if disk.rename_new(file.path(), &path)? == Renamed::Done {
            file.keep();
        }
        Ok(Some(Sealed { id, frames, objects, file_bytes: outline.file_bytes }))
    }

    /// A stub that has no name yet.
    fn stub_file(&self, outline: &Outline) -> Result<NewFile, StoreError> {
        let file = self.disk().create(&self.layout().tmp.join(unique_name("stub")))?;
        file.write_at(0, &outline.head)?;
        let tail = outline.file_bytes - outline.tail.len() as u64;
        file.write_at(tail, &outline.tail)?;
        file.sync()?;
        Ok(file)
    }

    /// Gives up the frames of a pack that lies elsewhere, too, if it `may` be when
    /// nobody else changes it: a stub takes its place, durably, and what is read
    /// of it is fetched again. Whoever reads it now reads on. Says whether that was
    /// done: it is not while somebody fills it or makes it whole. **Not** checked:
    /// that it lies elsewhere.
    ///
    /// On a disk without room for the stub the pack goes first. If the stub cannot be
    /// written even then the pack is one that this store does not know any more.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read, or the stub not be written.
    pub fn shed(&self, id: &PackId, may: &dyn Fn() -> bool) -> Result<bool, StoreError> {
        self.give_up(id, may, &|| self.outline(id))
    }

    /// Replaces the copy of a pack that lies elsewhere, whole or in part and whatever
    /// is wrong with it, with a stub made of `outline`. Returns whether that was done,
    /// as [`Store::shed`].
    ///
    /// # Errors
    /// [`StoreError::Format`] when the outline is damaged; when the stub cannot be
    /// written.
    pub fn renew_stub(
        &self,
        outline: &Outline,
        may: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let id = outline.id;
        let tables = outline.tables();
        let (frames, objects) = tables.map_err(|source| StoreError::Format { pack: id, source })?;
        if !self.give_up(&id, may, &|| Ok(outline.clone()))? {
            return Ok(false);
        }
        let is_of = |error: &Arc<StoreError>| error.damaged_pack() == Some(id);
        if self.unreadable_packs().iter().any(is_of) {
            let sealed = Sealed { id, frames, objects, file_bytes: outline.file_bytes };
            self.add_sealed(&sealed, Home::Partial);
        }
        self.change_catalog(|before| {
            let mut catalog = before.copy();
            catalog.heal(&id);
            (catalog, ())
        });
        self.withdraw_healed()?;
        Ok(true)
    }

    fn give_up(
        &self,
        id: &PackId,
        may: &dyn Fn() -> bool,
        outline: &dyn Fn() -> Result<Outline, StoreError>,
    ) -> Result<bool, StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        let Some(home) = self.catalog().slot(id).map(|slot| slot.home) else { return Ok(false) };
        let path = layout.path(home, id);
        let Ok(locked) = fs_err::File::open(&path) else { return Ok(false) };
        // Held until the catalog knows of it, as by whoever completes it.
        if locked.file().try_lock().is_err() || !is_at(&path, locked.file())? || !may() {
            return Ok(false);
        }
        let outline = outline()?;
        let replaced = match self.replace_with_stub(&outline) {
            Err(error) if error.is_full() => {
                // Whoever has the file open keeps its bytes, and the disk its room, until
                // they are done.
                if let Some(slot) = self.catalog().slot(id) {
                    *lock(&slot.open) = None;
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
        self.change_catalog(|before| {
            let mut catalog = before.copy();
            catalog.place_pack(*id, layout.path(Home::Partial, id), Home::Partial);
            if let Some(slot) = catalog.slot(id) {
                // That of a stub that was there is another file.
                *lock(&slot.open) = None;
            }
            (catalog, ())
        });
        let whole = layout.path(Home::Whole, id);
        if whole.exists() {
            disk.remove(&whole)?;
        }
        Ok(true)
    }

    fn replace_with_stub(&self, outline: &Outline) -> Result<(), StoreError> {
        let (layout, disk) = (self.layout(), self.disk());
        disk.create_folders(&layout.partial)?;
        disk.create_folders(&layout.tmp)?;
        let file = self.stub_file(outline)?;
        disk.replace(file.path(), &layout.path(Home::Partial, &outline.id))?;
        file.keep();
        Ok(disk.sync_folder(&layout.partial)?)
    }

    /// When something of a pack was last read, if frames may come from elsewhere
    /// and it was since it came here, whole or in part.
    pub fn last_used(&self, id: &PackId) -> Option<SystemTime> {
        self.catalog().slot(id).and_then(|slot| slot.used())
    }

    /// The packs that are here, with each of those that came together either all
    /// of them or none.
    pub fn settled_packs(&self) -> Vec<PackId> {
        let _nobody_adds = self.coming.write();
        self.packs()
    }

    /// Takes frames that are not here from `distant`.
    #[must_use]
    pub fn with_distant(mut self, distant: Arc<dyn Distant>) -> Self {
        self.fetcher = Some(Arc::new(Fetcher::new(distant, self.disk().clone())));
        // Those that are open do not know of it.
        for slot in &self.catalog().packs {
            *lock(&slot.open) = None;
        }
        self
    }
}

/// Whether an open file is the one at `path`.
pub(super) fn is_at(path: &Path, file: &fs::File) -> Result<bool, StoreError> {
    let inode = |stat: fs::Metadata| (stat.dev(), stat.ino());
    let ours = file.metadata().map_err(PathError::when("stat", path))?;
    Ok(fs_err::metadata(path).is_ok_and(|there| inode(there) == inode(ours)))
}

impl PackFile {
    /// What it says of itself, read again and checked.
    ///
    /// # Errors
    /// [`StoreError::Io`] when its ends cannot be read, [`StoreError::Format`] when they
    /// were damaged since it was opened.
    pub fn outline(&self) -> Result<Outline, StoreError> {
        let read = || {
            let (id, file_bytes) = (self.id(), self.file_bytes());
            let head = self.bytes(0..self.frames_start())?;
            let tail = self.bytes(self.frames_end()..file_bytes)?;
            let outline = Outline { id, file_bytes, head, tail };
            outline.tables().map_err(|source| StoreError::Format { pack: id, source })?;
            Ok(outline)
        };
        read().inspect_err(|_| {
            self.report_damage();
        })
    }
}
