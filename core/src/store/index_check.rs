//! Compares the index with the tables of the packs.

use std::{collections::HashMap, hash::RandomState};

use crate::{
    base::id::PackId,
    format::pack::PackedObject,
    store::{
        PackFile, Store, StoreError,
        segment::{self, RecordsDigest},
    },
};

/// Digests of the records in the index.
#[derive(Debug)]
pub struct IndexDigests {
    state: RandomState,
    /// One digest for each segment that covers the pack.
    packs: HashMap<PackId, Vec<RecordsDigest>>,
}

impl Store {
    /// Reads the whole index and returns digests of its records, for a comparison with the packs.
    /// Rebuilds a damaged segment.
    ///
    /// # Errors
    /// [`StoreError::Index`] when the index cannot be read.
    pub fn index_digests(&self) -> Result<IndexDigests, StoreError> {
        let state = RandomState::new();
        let packs = self.query_index(|catalog| {
            let mut packs: HashMap<PackId, Vec<RecordsDigest>> = HashMap::new();
            for segment in &catalog.segments {
                for (id, digest) in segment.packs().iter().zip(segment.digests(&state)?) {
                    packs.entry(*id).or_default().push(digest);
                }
            }
            Ok(packs)
        })?;
        Ok(IndexDigests { state, packs })
    }
}

impl IndexDigests {
    /// Returns true if the index has exactly the objects of a pack, each at its location.
    pub fn agrees(&self, id: &PackId, pack: &PackFile, objects: &[PackedObject]) -> bool {
        let mut wanted = RecordsDigest::default();
        for record in segment::records(0, pack.frames(), objects) {
            wanted.add(&self.state, &record);
        }
        let found = self.packs.get(id);
        found.is_some_and(|found| found.iter().all(|digest| *digest == wanted))
    }
}
