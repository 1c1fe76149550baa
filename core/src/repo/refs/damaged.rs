//! Identifies the content of a ref file that does not hold a ref, so that compare-and-swap can also
//! replace or delete a damaged ref.

use std::io::Read;

use crate::{
    base::{io::PathError, limits},
    disk::regular::open_regular,
    repo::{
        ref_name::RefName,
        refs::{RefError, Refs},
    },
};

/// Prefix of the ETag of a damaged ref.
const TAG: &str = "damaged-";

/// Content of the file for a ref that is damaged upstream.
const ELSEWHERE: &str = "this ref is damaged upstream\n";

/// The identity of a damaged ref: a hash of the bytes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage(blake3::Hash);

impl Damage {
    /// Returns the damage of a file with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes))
    }

    /// Returns the damage of a file that [`Refs::put_damaged`] wrote.
    pub fn elsewhere() -> Self {
        Self::of(ELSEWHERE.as_bytes())
    }

    /// Returns the ETag, without quotation marks.
    pub fn tag(&self) -> String {
        format!("{TAG}{}", self.0.to_hex())
    }

    /// Returns the damage with this ETag; `None` for the ETag of an intact ref.
    pub fn from_tag(tag: &str) -> Option<Self> {
        blake3::Hash::from_hex(tag.strip_prefix(TAG)?).ok().map(Self)
    }
}

impl Refs {
    /// Returns the damage of a ref; `None` if the ref can be read or does not exist.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn damage(&self, name: &RefName) -> Result<Option<Damage>, RefError> {
        match self.text(name) {
            Err(RefError::Damaged { path, .. }) => {
                let mut bytes = Vec::new();
                // Do not open a pipe or a device. Read at most one byte more than a valid ref can
                // have.
                if let Ok(file) = open_regular(&path) {
                    let read = file.take(limits::REF_BYTES as u64 + 1).read_to_end(&mut bytes);
                    read.map_err(PathError::when("read", &path))?;
                }
                Ok(Some(Damage::of(&bytes)))
            }
            text => text.map(|_| None),
        }
    }

    /// Marks a ref as damaged because it is damaged upstream, so that this copy reports the damage
    /// too. The log keeps the last value of the ref.
    ///
    /// # Errors
    /// [`RefError::NameConflict`], [`RefError::Locked`], [`RefError::Io`].
    pub fn put_damaged(&self, name: &RefName) -> Result<(), RefError> {
        let _lock = self.lock()?;
        let path = name.file(&self.store);
        self.make_room(name, &path)?;
        self.disk.create_folders(path.parent().unwrap_or(&self.store))?;
        self.write(&path, ELSEWHERE)
    }
}
