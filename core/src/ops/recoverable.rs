//! Finds out which contents are part of restorable commits.
//!
//! An object in the index need not belong to any commit, so trees are walked. The newest
//! commit comes first, no tree is visited twice, and the walk stops when everything was
//! found. Trees that cannot be read are skipped.

use std::collections::HashSet;

use crate::{
    base::{
        id::{CommitId, ContentId, TreeId},
        observe::Observer,
    },
    format::tree::EntryKind,
    repo::history::{History, Parents},
    store::{
        ContentError, ContentReader, Marks, Prefetch, Store, StoreError, TreeCursor, TreeWalk,
        WalkStep,
    },
};

/// The contents and link targets to look for.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Contents of files.
    pub contents: HashSet<ContentId>,
    /// The contents among them that are not read: it suffices that the index locates them.
    pub located: HashSet<ContentId>,
    /// Targets of symbolic links.
    pub links: HashSet<Box<[u8]>>,
}

impl Candidates {
    fn is_empty(&self) -> bool {
        self.contents.is_empty() && self.links.is_empty()
    }
}

/// Removes from `wanted` the contents and link targets that commits contain and that can be read
/// locally. The commits are `tips` and their ancestors. Contents are read and hashed, so damage
/// that was unknown before is noticed. A content that a partial pack lists and that is absent here
/// counts as recoverable without a commit: its remote has it, and perhaps the only tree with it.
///
/// # Errors
/// [`StoreError`] when the index cannot be read.
pub fn find_recoverable(
    store: &Store,
    tips: &[CommitId],
    wanted: &mut Candidates,
    observer: &dyn Observer,
) -> Result<(), StoreError> {
    // Only local objects count, so nothing is fetched.
    let _pause = store.pause_fetching();
    let Unread { missing, remote } = unread(store, wanted, observer)?;
    wanted.contents.retain(|id| !missing.contains(id) && !remote.contains(id));
    let marks = Marks::new(store);
    let readable = tips.iter().filter(|tip| store.ancestor(tip).is_ok());
    let readable: Vec<CommitId> = readable.copied().collect();
    let history = History::new(store, &readable, Parents::All);
    // Garbage collection may delete what only a forgotten commit has.
    let kept =
        history.into_iter().flatten().map_while(Result::ok).filter(|step| !step.is_forgotten);
    for step in kept {
        if wanted.is_empty() || observer.cancelled() {
            break;
        }
        walk(store, step.commit.tree, &marks, wanted)?;
    }
    // Unreadable contents stay wanted.
    wanted.contents.extend(missing);
    Ok(())
}

fn walk(
    store: &Store,
    root: TreeId,
    marks: &Marks,
    wanted: &mut Candidates,
) -> Result<(), StoreError> {
    let mut walk = TreeWalk::new(TreeCursor::new(root, Prefetch::Nothing), ());
    while !wanted.is_empty() {
        let node = match walk.next() {
            None => break,
            Some(WalkStep::Node(node)) => node,
            Some(_) => continue,
        };
        let id = node.id().object();
        let is_here =
            store.locate(&id)?.is_some_and(|place| store.is_here(&place).unwrap_or(false));
        if !is_here || !marks.mark(&id)? {
            continue;
        }
        for entry in walk.read(store, node).unwrap_or_default() {
            match entry.kind {
                // A folder that is nested too deep cannot be restored.
                EntryKind::Folder { id } => drop(walk.enter(id, ())),
                EntryKind::File { id, .. } => drop(wanted.contents.remove(&id)),
                EntryKind::Symlink { target } => drop(wanted.links.remove(&target)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Contents that cannot be read locally.
#[derive(Default)]
struct Unread {
    /// Contents that are lost or damaged.
    missing: HashSet<ContentId>,
    /// Contents that only a remote has.
    remote: HashSet<ContentId>,
}

/// Returns the contents that cannot be read locally. Reads contents in the order of their position
/// in packs.
fn unread(
    store: &Store,
    wanted: &Candidates,
    observer: &dyn Observer,
) -> Result<Unread, StoreError> {
    let mut placed = Vec::with_capacity(wanted.contents.len());
    for id in &wanted.contents {
        placed.push((store.locate_unshadowed(&id.object())?, *id));
    }
    placed.sort_unstable();
    let mut unread = Unread::default();
    for (place, id) in placed {
        // After an interrupt, unchecked contents count as missing: the caller then keeps
        // its files.
        let Some(place) = place.filter(|_| !observer.cancelled()) else {
            unread.missing.insert(id);
            continue;
        };
        if !store.is_here(&place)? {
            unread.remote.insert(id);
        } else if !wanted.located.contains(&id) && !is_readable(store, &id, observer) {
            unread.missing.insert(id);
        }
    }
    Ok(unread)
}

/// Reads and hashes a content.
fn is_readable(store: &Store, id: &ContentId, observer: &dyn Observer) -> bool {
    let mut unless_cancelled = |_: &[u8]| observer.check().map_err(ContentError::Callback);
    ContentReader::new(store).stream(id, None, &mut unless_cancelled).is_ok()
}
