//! Remembers trees without a match.

use std::collections::HashMap;

use crate::{
    base::id::TreeId,
    ops::find::pattern::PartSet,
    store::{Marks, Store, StoreError},
};

/// Number of part sets that have a bitmap of their own. Most patterns need one to four. Trees under
/// further sets are not remembered and are read again.
const SETS: usize = 16;

/// The trees that are known to contain no match, for each set of parts of the pattern.
#[derive(Debug, Default)]
pub(super) struct NoMatchCache(HashMap<PartSet, Marks>);

impl NoMatchCache {
    /// Returns true if the tree is known to contain no match.
    pub(super) fn has(&self, parts: PartSet, tree: &TreeId) -> Result<bool, StoreError> {
        self.0.get(&parts).map_or(Ok(false), |marks| marks.is_marked(&tree.object()))
    }

    /// Records that the tree contains no match.
    pub(super) fn add(
        &mut self,
        store: &Store,
        parts: PartSet,
        tree: &TreeId,
    ) -> Result<(), StoreError> {
        if self.0.len() < SETS || self.0.contains_key(&parts) {
            self.0.entry(parts).or_insert_with(|| Marks::new(store)).mark(&tree.object())?;
        }
        Ok(())
    }
}
