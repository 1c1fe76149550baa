//! The disk space that one object accounts for.

use crate::{
    base::id::ObjectId,
    format::pack::ObjectKind,
    store::{Store, StoreError},
};

/// Number of units per byte. Shares are counted in fractions of a byte, so that the shares of a
/// frame add up to its stored length.
const PARTS: u128 = 1 << 16;

/// The sum of the shares of objects in their frames. The share of an object is the stored length of
/// the frame × the object's length / the raw length of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsageSum {
    /// Number of objects.
    pub objects: u64,
    /// Sum of the objects' uncompressed lengths in bytes.
    pub raw_bytes: u64,
    /// Sum of the shares, in units of 1/65,536 byte (`PARTS`).
    stored_parts: u128,
}

impl DiskUsageSum {
    /// Adds the objects of `other`.
    pub fn add(&mut self, other: &Self) {
        self.objects += other.objects;
        self.raw_bytes += other.raw_bytes;
        self.stored_parts += other.stored_parts;
    }

    /// Returns the sum of the shares in bytes, rounded.
    pub fn stored_bytes(&self) -> u64 {
        ((self.stored_parts + PARTS / 2) / PARTS) as u64
    }
}

impl Store {
    /// Returns the disk space that an object accounts for.
    ///
    /// # Errors
    /// [`StoreError`] if the object is missing or its pack cannot be read.
    pub fn disk_usage(
        &self,
        id: &ObjectId,
        wanted: ObjectKind,
    ) -> Result<DiskUsageSum, StoreError> {
        let place = self.locate_in_pack(id)?.ok_or(StoreError::Missing { id: *id, wanted })?;
        let pack = self.pack(place.pack)?;
        let frame = pack.frame(place.frame)?;
        let parts = u128::from(frame.stored_bytes) * u128::from(place.bytes) * PARTS;
        let stored_parts = parts / u128::from(frame.raw_bytes.max(1));
        Ok(DiskUsageSum { objects: 1, raw_bytes: place.bytes.into(), stored_parts })
    }
}
