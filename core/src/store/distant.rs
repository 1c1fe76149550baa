//! Packs that lie elsewhere.
//!
//! A store may hold stubs: files of the length of a pack in which only its
//! ends are written, with a hole where the frames belong. A frame that is read
//! and not there comes from elsewhere, and is put in its place for the next
//! time. Whether it is there is said by its checksum, so nothing has to be
//! written down about that, and a part that was damaged heals.

use std::{
    fmt::{self, Debug},
    ops::Range,
    sync::Arc,
};

use crate::{
    base::{id::PackId, kind::ErrorKind},
    disk::scratch::unique_name,
    format::outline::Outline,
    store::{Store, StoreError, pack_reader::PackFile, pack_writer::Sealed},
};

/// Where the frames of stubs come from.
pub trait Distant: Debug + Send + Sync {
    /// The bytes of a pack in `range`, all of them.
    ///
    /// # Errors
    /// [`DistantError`] in words for the user.
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, DistantError>;

    /// Says what is going to be read, in the order of need, so that it can be
    /// under way.
    fn will_need(&self, ranges: &[(PackId, Range<u64>)]);
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
    /// Checked: header, footer and trailer. **Not** checked: that the pack is
    /// the one of that name; its objects are checked when they are read.
    ///
    /// # Errors
    /// [`StoreError::Format`], [`StoreError::Io`].
    pub fn add_stub(&self, outline: &Outline) -> Result<(), StoreError> {
        let pack = outline.id;
        let format = |source| StoreError::Format { pack, source };
        let (frames, objects) = outline.tables().map_err(format)?;
        let layout = self.layout();
        let file = self.disk().create(&layout.tmp.join(unique_name("stub")))?;
        file.write_at(0, &outline.head)?;
        let tail = outline.file_bytes - outline.tail.len() as u64;
        file.write_at(tail, &outline.tail)?;
        self.disk().replace(file.path(), &self.pack_path(&pack))?;
        file.keep();
        self.add_sealed(&Sealed { id: pack, frames, objects, file_bytes: outline.file_bytes });
        Ok(())
    }

    /// Takes frames that are not here from `distant`.
    #[must_use]
    pub fn with_distant(mut self, distant: Arc<dyn Distant>) -> Self {
        self.distant = Some(distant);
        self
    }
}

impl PackFile {
    /// What it says of itself.
    fn outline(&self) -> Result<Outline, StoreError> {
        let start = self.frames_start();
        let end = self.frames_end();
        Ok(Outline {
            id: self.id(),
            file_bytes: self.file_bytes(),
            head: self.bytes(0..start)?,
            tail: self.bytes(end..self.file_bytes())?,
        })
    }
}
