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

/// Number of recent answers that are cached to save searches of the index.
const RECENT: usize = 1 << 14;

/// The trees that are known to contain no match, for each set of parts of the pattern.
#[derive(Debug, Default)]
pub(super) struct NoMatchCache {
    marks: HashMap<PartSet, Marks>,
    recent: Vec<Option<(PartSet, TreeId)>>,
}

impl NoMatchCache {
    /// Returns true if the tree is known to contain no match.
    pub(super) fn has(&mut self, ways: PartSet, tree: &TreeId) -> Result<bool, StoreError> {
        if self.recent.get(slot(tree)).is_some_and(|slot| *slot == Some((ways, *tree))) {
            return Ok(true);
        }
        let Some(marks) = self.marks.get(&ways) else { return Ok(false) };
        let known = marks.is_marked(&tree.object())?;
        if known {
            self.recent[slot(tree)] = Some((ways, *tree));
        }
        Ok(known)
    }

    /// Records that the tree contains no match.
    pub(super) fn add(
        &mut self,
        store: &Store,
        ways: PartSet,
        tree: &TreeId,
    ) -> Result<(), StoreError> {
        if self.recent.is_empty() {
            self.recent = vec![None; RECENT];
        }
        if self.marks.len() == SETS && !self.marks.contains_key(&ways) {
            return Ok(());
        }
        self.marks.entry(ways).or_insert_with(|| Marks::new(store)).mark(&tree.object())?;
        self.recent[slot(tree)] = Some((ways, *tree));
        Ok(())
    }
}

fn slot(tree: &TreeId) -> usize {
    let [a, b, ..] = *tree.as_bytes();
    usize::from(u16::from_le_bytes([a, b])) % RECENT
}
