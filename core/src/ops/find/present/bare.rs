//! Trees that are known to hold no match.

use std::collections::HashMap;

use crate::{
    base::id::TreeId,
    ops::find::pattern::Ways,
    store::{Marks, Store, StoreError},
};

/// So many sets of parts have marks of their own: most patterns need one to
/// four. Trees under further ones are read again.
const SETS: usize = 16;

/// Trees that were asked for last: the index need not be asked again.
const RECENT: usize = 1 << 14;

/// Trees that are known to hold no match, for a set of parts of the pattern.
#[derive(Debug, Default)]
pub(super) struct Bare {
    marks: HashMap<Ways, Marks>,
    recent: Vec<Option<(Ways, TreeId)>>,
}

impl Bare {
    /// Whether this tree is one.
    pub(super) fn has(&mut self, ways: Ways, tree: &TreeId) -> Result<bool, StoreError> {
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

    /// This tree is one.
    pub(super) fn add(
        &mut self,
        store: &Store,
        ways: Ways,
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
