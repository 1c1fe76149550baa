//! Refuses contents that a rewrite has purged.

use std::collections::HashMap;

use crate::{
    base::id::{ObjectId, TreeId},
    format::{rewrites::RewriteTable, tree::EntryKind},
    ops::commit::{CommitError, CommitOptions},
    store::{Entries, Store, StoreError},
};

/// Checks that a new tree has no purged content, except those in `previous` and at the paths that the
/// user allows. Returns the contents at these paths. Reads only folders that changed.
///
/// # Errors
/// [`CommitError::Purged`] names the first path; [`CommitError::Store`].
pub(super) fn check(
    store: &Store,
    table: &RewriteTable,
    tree: TreeId,
    previous: Option<TreeId>,
    options: &CommitOptions,
) -> Result<Vec<ObjectId>, CommitError> {
    let mut allowed = Vec::new();
    let mut open = vec![(tree, previous, Vec::new())];
    while let Some((tree, previous, path)) = open.pop() {
        if table.is_empty() || previous == Some(tree) {
            continue;
        }
        // What cannot be read of the previous commit counts as new.
        let before: HashMap<_, _> = previous
            .into_iter()
            .flat_map(|tree| Entries::of(store, tree))
            .filter_map(|entry| entry.ok().map(|entry| (entry.name, entry.kind)))
            .collect();
        for entry in Entries::of(store, tree) {
            let entry = entry?;
            let below = [&path[..], entry.name.as_bytes()].concat();
            match (entry.kind, before.get(&entry.name)) {
                (EntryKind::File { id, .. }, Some(EntryKind::File { id: known, .. }))
                    if id == *known => {}
                (EntryKind::File { id, .. }, _) if table.has_purged(&id.object()) => {
                    let is_allowed = |path: &Vec<u8>| match below.strip_prefix(&path[..]) {
                        Some(rest) => rest.is_empty() || rest.starts_with(b"/"),
                        None => false,
                    };
                    if !options.allow.iter().any(is_allowed) {
                        let path = String::from_utf8_lossy(&below).into_owned();
                        return Err(CommitError::Purged { path });
                    }
                    allowed.push(id.object());
                }
                (EntryKind::Folder { id }, known) => {
                    let known = match known {
                        Some(EntryKind::Folder { id }) => Some(*id),
                        _ => None,
                    };
                    open.push((id, known, [&below[..], b"/"].concat()));
                }
                _ => {}
            }
        }
    }
    Ok(allowed)
}

/// Lets commands store these objects again.
///
/// # Errors
/// [`StoreError`] when the table cannot be written. The caller holds the lock on the refs.
pub(super) fn allow(store: &Store, allowed: &[ObjectId]) -> Result<(), StoreError> {
    store.change_rewrites(|table| allowed.iter().for_each(|id| table.allow(id)))
}
