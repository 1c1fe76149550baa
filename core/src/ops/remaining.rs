//! Finds the refs and the paths that still have contents which a rewrite removed.

use std::collections::{BTreeSet, HashSet};

use crate::{
    base::{
        blocked::Blocked,
        id::{CommitId, ContentId, ObjectId},
        observe::Observer,
    },
    ops::affected::{self, Affected, LISTED_PATHS, Sought},
    repo::history::{History, Parents, ancestors},
    store::{Store, StoreError},
};

/// The refs and the paths that have contents which a rewrite removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining<N> {
    /// The refs whose history has such a content.
    pub refs: Vec<N>,
    /// The commits and paths that have one.
    pub affected: Affected,
}

impl<N> Default for Remaining<N> {
    fn default() -> Self {
        Self { refs: Vec::new(), affected: Affected::default() }
    }
}

impl<N> Remaining<N> {
    /// Returns true if no ref has such a content.
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }
}

/// Contents of whole files.
struct Contents<'a> {
    store: &'a Store,
    ids: &'a BTreeSet<ObjectId>,
}

impl Sought for Contents<'_> {
    const COUNTS_UNREADABLE: bool = false;

    fn store(&self) -> &Store {
        self.store
    }

    fn has(&self, _: &ObjectId) -> bool {
        false
    }

    fn in_content(&self, id: ContentId) -> Option<ObjectId> {
        self.ids.contains(&id.object()).then(|| id.object())
    }
}

/// Finds those of the refs that reach one of the contents, and the paths. Skips forgotten commits.
///
///
/// # Errors
/// [`StoreError`] if a commit cannot be read, and [`Blocked`] if the user asks to stop.
pub fn find<N, E: From<StoreError> + From<Blocked>>(
    store: &Store,
    mut refs: Vec<(N, CommitId)>,
    contents: &BTreeSet<ObjectId>,
    observer: &dyn Observer,
) -> Result<Remaining<N>, E> {
    if contents.is_empty() {
        return Ok(Remaining::default());
    }
    let tips: Vec<CommitId> = refs.iter().map(|(_, id)| *id).collect();
    let mut commits = Vec::new();
    for step in History::new(store, &tips, Parents::All)? {
        let step = step?;
        if !step.is_forgotten || tips.contains(&step.id) {
            commits.push(step.id);
        }
    }
    let sought = Contents { store, ids: contents };
    let affected = affected::find::<_, E>(&sought, commits, LISTED_PATHS, observer)?;
    let having: HashSet<CommitId> = affected.commits.iter().copied().collect();
    refs.retain(|(_, tip)| {
        !having.is_empty() && reaches_any(store, *tip, |id| having.contains(id))
    });
    let refs = refs.into_iter().map(|(name, _)| name).collect();
    Ok(Remaining { refs, affected })
}

/// Returns true if the history of `tip` has a commit for which `is_sought` returns true. The history
/// may be incomplete here.
pub(super) fn reaches_any(
    store: &Store,
    tip: CommitId,
    is_sought: impl Fn(&CommitId) -> bool,
) -> bool {
    let parents = |id: CommitId| match is_sought(&id) {
        true => Err(()),
        false => Ok(store.ancestor(&id).ok().map(|found| found.commit.parents)),
    };
    ancestors([tip], parents).is_err()
}

/// Finds the commits and paths that bring back what a rewrite removed: those of the history of `new`
/// without that of `known`.
///
/// # Errors
/// [`StoreError`] if a commit cannot be read, and [`Blocked`] if the user asks to stop.
pub fn returned<E: From<StoreError> + From<Blocked>>(
    store: &Store,
    new: CommitId,
    known: &[CommitId],
    observer: &dyn Observer,
) -> Result<Affected, E> {
    let contents: BTreeSet<ObjectId> = store.rewrites()?.purged().copied().collect();
    if contents.is_empty() {
        return Ok(Affected::default());
    }
    let mut commits = Vec::new();
    for step in History::without(store, known, &[new], Parents::All)? {
        let step = step?;
        if !step.is_forgotten {
            commits.push(step.id);
        }
    }
    affected::find(&Contents { store, ids: &contents }, commits, LISTED_PATHS, observer)
}
