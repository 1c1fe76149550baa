//! What one object takes on the disk.

use crate::{
    base::id::ObjectId,
    format::pack::ObjectKind,
    store::{Store, StoreError},
};

/// Parts of a byte that shares are counted in, so that those of a frame add
/// up to the frame.
const PARTS: u128 = 1 << 16;

/// How often a lookup starts again because packs were merged meanwhile.
const RETRIES: usize = 16;

/// What an object takes: its share of the frame that it lies in, which is the
/// stored length of the frame × the object's length / the frame's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// What it is.
    pub kind: ObjectKind,
    /// Its own length in bytes.
    pub raw_bytes: u32,
    /// Stored length, in parts of a byte.
    stored_parts: u64,
}

/// Sum of the shares of some objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// How many objects.
    pub objects: u64,
    /// Their own length in bytes.
    pub raw_bytes: u64,
    stored_parts: u128,
}

impl Shares {
    /// Adds an object.
    pub fn add(&mut self, share: &Share) {
        self.objects += 1;
        self.raw_bytes += u64::from(share.raw_bytes);
        self.stored_parts += u128::from(share.stored_parts);
    }

    /// Adds what `other` counts.
    pub fn add_all(&mut self, other: &Self) {
        self.objects += other.objects;
        self.raw_bytes += other.raw_bytes;
        self.stored_parts += other.stored_parts;
    }

    /// Their stored length in bytes, rounded.
    pub fn stored_bytes(&self) -> u64 {
        ((self.stored_parts + PARTS / 2) / PARTS) as u64
    }
}

impl Store {
    /// What an object takes on the disk.
    ///
    /// # Errors
    /// [`StoreError`] when it is missing, or its pack cannot be read.
    pub fn share(&self, id: &ObjectId, wanted: ObjectKind) -> Result<Share, StoreError> {
        for _ in 0..RETRIES {
            let Some(place) = self.locate(id)? else { break };
            let pack = match self.pack(place.pack) {
                Err(StoreError::Gone { .. }) => {
                    self.refresh()?;
                    continue;
                }
                pack => pack?,
            };
            let frame = pack.frame(place.frame)?;
            let parts = u128::from(frame.stored_bytes) * u128::from(place.bytes) * PARTS;
            let stored_parts = (parts / u128::from(frame.raw_bytes.max(1))) as u64;
            return Ok(Share { kind: place.kind, raw_bytes: place.bytes, stored_parts });
        }
        Err(StoreError::Missing { id: *id, wanted })
    }
}
