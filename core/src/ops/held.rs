//! Which contents some commits hold, so that they can be restored.
//!
//! An object that the index knows need not belong to any commit, so trees are
//! walked: newest commit first, no tree twice, and only until everything that
//! is looked for was found. What cannot be read holds nothing.

use std::collections::HashSet;

use crate::{
    base::{
        id::{BlobId, CommitId, TreeId},
        observe::Observer,
    },
    format::{
        pack::ObjectKind,
        tree::{Kind, Node},
    },
    repo::history::{History, Parents},
    store::{Content, Marks, Store, StoreError},
};

/// Contents and link targets to look for.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Contents of files.
    pub contents: HashSet<BlobId>,
    /// Targets of symbolic links.
    pub links: HashSet<Box<[u8]>>,
}

impl Wanted {
    fn is_empty(&self) -> bool {
        self.contents.is_empty() && self.links.is_empty()
    }
}

/// Takes out of `wanted` what commits hold whose objects are all here. The
/// commits are `tips` and those before them. Contents are read and hashed, so
/// damage that was not noticed yet counts.
///
/// # Errors
/// [`StoreError`] when the index cannot be read.
pub fn find(
    store: &Store,
    tips: &[CommitId],
    wanted: &mut Wanted,
    observer: &dyn Observer,
) -> Result<(), StoreError> {
    // Nothing is fetched from elsewhere to find out what is here.
    let _pause = store.pause_fetching();
    let missing = unreadable(store, &wanted.contents, observer)?;
    wanted.contents.retain(|id| !missing.contains(id));
    let marks = Marks::new(store);
    let readable = tips.iter().filter(|tip| store.commit(tip).is_ok());
    let readable: Vec<CommitId> = readable.copied().collect();
    let history = History::new(store, &readable, Parents::All);
    for commit in history.into_iter().flatten().map_while(Result::ok) {
        if wanted.is_empty() || observer.cancelled() {
            break;
        }
        walk(store, commit.1.tree, &marks, wanted)?;
    }
    wanted.contents.extend(missing);
    Ok(())
}

fn walk(store: &Store, root: TreeId, marks: &Marks, wanted: &mut Wanted) -> Result<(), StoreError> {
    let mut waiting = vec![root];
    while let Some(tree) = waiting.pop() {
        if wanted.is_empty() {
            return Ok(());
        }
        let place = store.locate(&tree.object())?;
        let is_here = place.is_some_and(|place| store.is_here(&place).unwrap_or(false));
        if !is_here || !marks.mark(&tree.object())? {
            continue;
        }
        match store.tree(&tree) {
            Ok(Node::Inner { children, .. }) => {
                waiting.extend(children.into_iter().map(|child| child.id));
            }
            Ok(Node::Leaf { entries, .. }) => {
                for entry in entries {
                    match entry.kind {
                        Kind::Folder { id } => waiting.push(id),
                        Kind::File { id, .. } => {
                            wanted.contents.remove(&id);
                        }
                        Kind::Symlink { target } => {
                            wanted.links.remove(&target);
                        }
                        _ => {}
                    }
                }
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// The contents that cannot be read from here, in the order in which they lie in
/// packs. In a partial clone a content may lie in a stub.
fn unreadable(
    store: &Store,
    contents: &HashSet<BlobId>,
    observer: &dyn Observer,
) -> Result<HashSet<BlobId>, StoreError> {
    let mut placed = Vec::with_capacity(contents.len());
    for id in contents {
        placed.push((store.locate_unshadowed(&id.object())?, *id));
    }
    placed.sort_unstable();
    let mut missing = HashSet::new();
    for (place, id) in placed {
        // After an interrupt nothing is removed.
        if place.is_none() || observer.cancelled() || !is_readable(store, &id) {
            missing.insert(id);
        }
    }
    Ok(missing)
}

fn is_readable(store: &Store, id: &BlobId) -> bool {
    let is_right = |id: &BlobId| store.object(&id.object(), ObjectKind::Blob).is_ok();
    match store.content(id) {
        Ok(Content::Whole(_)) => is_right(id),
        Ok(Content::Chunks(chunks)) => chunks.iter().all(|chunk| is_right(&chunk.id)),
        Err(_) => false,
    }
}
