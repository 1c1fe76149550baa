//! Refuses contents that a rewrite has purged.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    base::{
        id::{ObjectId, TreeId},
        observe::Silent,
    },
    format::{pack::ObjectKind, rewrites::RewriteTable, tree::EntryKind},
    ops::{
        commit::{CommitError, CommitOptions, publish::LocalObjects},
        reach::visit_below,
    },
    repo::{
        Repo,
        path::{PathInTreeError, ResolvedPath, resolve_path},
    },
    store::{Entries, Marks, ObjectLocation, Store},
};

/// Checks that a new tree has no purged content, except those in `previous` and at the paths that the
/// user allows. Reads only folders that changed.
///
/// # Errors
/// [`CommitError::Purged`] names the first path; [`CommitError::Store`].
pub(super) fn check(
    store: &Store,
    table: &RewriteTable,
    tree: TreeId,
    previous: Option<TreeId>,
    options: &CommitOptions,
) -> Result<(), CommitError> {
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
                }
                (EntryKind::Folder { id }, known) => {
                    let known = known.and_then(EntryKind::tree);
                    open.push((id, known, [&below[..], b"/"].concat()));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Lets commands store the removed contents at these paths of a committed tree again, with their
/// chunks, and lets `gc` no longer report them.
///
/// # Errors
/// [`CommitError`] when the tree or the table cannot be read, or the table cannot be written.
pub(super) fn allow(
    repo: &Repo,
    tree: TreeId,
    paths: &BTreeSet<Vec<u8>>,
) -> Result<(), CommitError> {
    let store = repo.store();
    let rewrites = store.rewrites()?;
    if paths.is_empty() || rewrites.is_empty() {
        return Ok(());
    }
    let removed: HashSet<&ObjectId> = rewrites.removed().collect();
    let (mut allowed, mut starts) = (BTreeSet::new(), Vec::new());
    for path in paths {
        let kind = match resolve_path(store, tree, path) {
            Ok(ResolvedPath::Root(id)) => EntryKind::Folder { id },
            Ok(ResolvedPath::Entry(entry)) => entry.kind,
            Err(PathInTreeError::Store(error)) => return Err(error.into()),
            Err(_) => continue,
        };
        match kind {
            EntryKind::Folder { id } => starts.push((id.object(), ObjectKind::Tree)),
            EntryKind::File { id, .. } => {
                allowed.extend(removed.get(&id.object()));
                starts.push((id.object(), ObjectKind::of_content(id)));
            }
            _ => {}
        }
    }
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, _: &ObjectLocation| {
        allowed.extend(removed.get(id));
        marks.mark(id)
    };
    // The branch has moved: neither an interruption nor an unreadable object may end the commit.
    visit_below(&LocalObjects(store), &starts, &mut enter, &Silent)?;
    let _refs = repo.refs().hold()?;
    store.change_rewrites(|table| allowed.into_iter().for_each(|id| table.allow(id)))?;
    Ok(())
}
