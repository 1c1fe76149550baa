//! Marks what refs reach.
//!
//! A forgotten commit whose time for an undo is over is marked by its link, without its tree, unless a
//! ref points at it.
//!
//! A ref has everything that it refers to, also objects that are shadowed as dead: a collection may
//! have ended between its shadows and its epoch, and deleted nothing. From any other start, a walk
//! follows only objects that are not shadowed as dead, because another collection may be deleting
//! them.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{BTreeSet, HashMap, HashSet},
};

use crate::{
    base::{
        id::{BlobId, ChunkListId, CommitId, ContentId, ObjectId, TreeId},
        observe::Observer,
        time::Time,
    },
    format::{pack::ObjectKind, rewrites::RewriteTable, tree::EntryKind},
    ops::removal_error::RemovalError,
    repo::history,
    store::{
        Descend, Marks, ObjectLocation, Prefetch, Store, StoreError, TreeCursor, TreeWalk, WalkStep,
    },
};

/// The objects that the visited commits reach. The store may be local, or the mirror of a remote.
pub struct Live<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    marks: Marks,
    /// Live objects that the index did not have when the marking began.
    newer: RefCell<HashSet<ObjectId>>,
    /// The objects that were marked since [`Live::start_journal`], or since an attempt began.
    journal: RefCell<Option<Vec<ObjectId>>>,
    /// True while the walk begins at a ref.
    is_at_ref: Cell<bool>,
    /// The forgotten commits.
    forgotten: RefCell<ForgottenCommits>,
    /// True if the caller writes the links that forgotten commits lack.
    writes_links: Cell<bool>,
    /// The purged objects: only refs keep them.
    rewrites: RefCell<RewriteTable>,
    /// True while the walk begins at a former value: it skips what a repair has given up.
    is_former: Cell<bool>,
    /// The objects that a repair has given up, once they are known; `None` for all missing ones.
    given_up: OnceCell<Option<HashSet<ObjectId>>>,
    /// The last time at which a branch, a tag or `HEAD` moved to the commit where the walk begins.
    /// What an earlier rewrite purged is not purged for this walk.
    reached: Cell<Option<Time>>,
    /// Contents of files that the walk has met and not marked yet.
    contents: RefCell<Vec<ContentId>>,
    /// Number of lookups since the pages of the index were unmapped.
    lookups: Cell<usize>,
}

/// Number of contents that are marked at a time, in the order of the index. So a large index is read
/// from begin to end once for each million objects.
const CONTENTS: usize = 1 << 20;

/// Number of lookups after which the pages of the index are unmapped. A lookup maps 64 KiB of each
/// segment, so a large index would count as memory of the process.
const LOOKUPS: usize = 1 << 10;

/// The forgotten commits, each with true if no undo brings it back.
pub(super) type ForgottenCommits = HashMap<CommitId, bool>;

impl<'a> Live<'a> {
    /// Creates a set without live objects. In a store of stubs, the walk fetches what it reads.
    pub fn new(store: &'a Store, observer: &'a dyn Observer) -> Self {
        Self {
            store,
            observer,
            marks: Marks::new(store),
            newer: RefCell::default(),
            journal: RefCell::default(),
            is_at_ref: Cell::new(false),
            forgotten: RefCell::default(),
            writes_links: Cell::new(false),
            rewrites: RefCell::default(),
            is_former: Cell::new(false),
            given_up: OnceCell::new(),
            reached: Cell::new(None),
            contents: RefCell::default(),
            lookups: Cell::new(0),
        }
    }

    /// Sets the forgotten commits. Marks what a commit refers to if it was reached as a forgotten
    /// one, and is none any more.
    ///
    /// # Errors
    /// As [`Live::add_commits`].
    pub(super) fn set_forgotten(&self, forgotten: ForgottenCommits) -> Result<(), RemovalError> {
        let before = self.forgotten.replace(forgotten);
        let mut kept = Vec::new();
        for id in before.into_keys() {
            if !self.forgotten.borrow().contains_key(&id) && self.contains(&id.link())? {
                kept.push(id);
            }
        }
        self.add_commits(kept)
    }

    /// Marks only the links of these forgotten commits, unless a ref points at them.
    ///
    /// # Errors
    /// As [`Live::add_commits`].
    pub(in crate::ops) fn keep_only_links(
        &self,
        commits: impl IntoIterator<Item = CommitId>,
    ) -> Result<(), RemovalError> {
        self.set_forgotten(commits.into_iter().map(|id| (id, true)).collect())
    }

    /// Marks only the links of these forgotten commits, unless a ref points at them. The caller writes
    /// the [links that do not exist yet](Live::missing_links).
    pub fn forget(&self, commits: impl IntoIterator<Item = CommitId>) {
        self.writes_links.set(true);
        *self.forgotten.borrow_mut() = commits.into_iter().map(|id| (id, true)).collect();
    }

    /// Returns the forgotten commits that are not live, but whose links are, sorted.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn linked(&self) -> Result<BTreeSet<CommitId>, StoreError> {
        let mut linked = BTreeSet::new();
        for id in self.forgotten.borrow().keys() {
            if self.contains(&id.link())? && !self.contains(&id.object())? {
                linked.insert(*id);
            }
        }
        Ok(linked)
    }

    /// Returns the commits whose links are live and do not exist yet, sorted.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn missing_links(&self) -> Result<Vec<CommitId>, StoreError> {
        let mut missing = Vec::new();
        for id in self.linked()? {
            if self.store.places(&id.link())?.is_empty() {
                missing.push(id);
            }
        }
        Ok(missing)
    }

    /// Marks none of the purged objects, except those that refs reach.
    pub(super) fn purge(&self, rewrites: RewriteTable) {
        *self.rewrites.borrow_mut() = rewrites;
    }

    /// Returns true if objects were purged.
    pub(super) fn purges_any(&self) -> bool {
        !self.rewrites.borrow().is_empty()
    }

    /// Returns true if an object is purged and not live.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub(super) fn is_purged(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.rewrites.borrow().has_purged(id) && !self.contains(id)?)
    }

    /// Returns true if an object is live.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn contains(&self, id: &ObjectId) -> Result<bool, StoreError> {
        self.count_lookup();
        Ok(self.marks.is_marked(id)? || self.newer.borrow().contains(id))
    }

    /// Counts a lookup, and unmaps the pages of the index now and then.
    fn count_lookup(&self) {
        let lookups = self.lookups.get() + 1;
        self.lookups.set(lookups % LOOKUPS);
        if lookups == LOOKUPS {
            self.store.release_index();
        }
    }

    /// Marks an object, and not what it refers to. Returns true if it was not marked before.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub(in crate::ops) fn mark(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let is_new = match self.marks.mark_indexed(id)? {
            Some(is_new) => is_new,
            None => self.newer.borrow_mut().insert(*id),
        };
        if is_new && let Some(journal) = self.journal.borrow_mut().as_mut() {
            journal.push(*id);
        }
        Ok(is_new)
    }

    fn unmark(&self, id: &ObjectId) -> Result<(), StoreError> {
        self.newer.borrow_mut().remove(id);
        self.marks.unmark(id)
    }

    /// Marks everything that the commits of refs reach.
    ///
    /// # Errors
    /// [`RemovalError::Store`] if an object on the way is missing or damaged; [`RemovalError::Blocked`].
    pub fn add_refs(
        &self,
        commits: impl IntoIterator<Item = CommitId>,
    ) -> Result<(), RemovalError> {
        self.is_at_ref.set(true);
        let added = commits.into_iter().try_for_each(|id| {
            let parents = self.visit_commit(id)?;
            self.visit_commits(parents)
        });
        let added = self.end_visit(added);
        self.is_at_ref.set(false);
        added
    }

    /// Returns the locations of an object that the walk may follow.
    fn places(&self, id: &ObjectId) -> Result<Vec<ObjectLocation>, StoreError> {
        self.count_lookup();
        match self.is_at_ref.get() {
            true => self.store.places(id),
            false => self.store.alive_places(id),
        }
    }

    /// Marks everything that commits reach. Marks only the links of forgotten commits.
    ///
    /// # Errors
    /// [`RemovalError::Store`] if an object on the way is missing or damaged.
    pub(super) fn add_commits(
        &self,
        commits: impl IntoIterator<Item = CommitId>,
    ) -> Result<(), RemovalError> {
        let added = self.visit_commits(commits);
        self.end_visit(added)
    }

    /// Marks a commit and its tree. Returns the parents, or nothing if it was marked before.
    ///
    /// # Errors
    /// As [`Live::add_commits`].
    pub(in crate::ops) fn add_commit(&self, id: CommitId) -> Result<Vec<CommitId>, RemovalError> {
        let added = self.visit_commit(id);
        self.end_visit(added)
    }

    /// Marks the contents that a visit has collected, or drops them if it failed.
    fn end_visit<T>(&self, visited: Result<T, RemovalError>) -> Result<T, RemovalError> {
        match visited {
            Ok(value) => self.mark_contents().map(|()| value),
            Err(error) => {
                self.contents.borrow_mut().clear();
                Err(error)
            }
        }
    }

    /// Like [`Live::add_commits`]; collects contents.
    fn visit_commits(
        &self,
        commits: impl IntoIterator<Item = CommitId>,
    ) -> Result<(), RemovalError> {
        history::walk(commits, |id| match self.needs_only_link(&id)? {
            true => self.add_link(&id),
            false => self.add_ancestor(id),
        })
    }

    /// Marks a commit and its tree. A commit that is dead and has a link may have been forgotten, and
    /// its tree may be deleted: then marks only the link.
    fn add_ancestor(&self, id: CommitId) -> Result<Vec<CommitId>, RemovalError> {
        if self.store.is_alive(&id.object())? || self.places(&id.link())?.is_empty() {
            return self.visit_commit(id);
        }
        // If a content of the visit until now is missing, nothing may be deleted.
        self.mark_contents()?;
        let mut parents = Vec::new();
        let added = self.all_or_nothing(|| {
            parents = self.visit_commit(id)?;
            Ok(())
        });
        match added {
            Ok(()) => Ok(parents),
            Err(RemovalError::Store(error)) if !error.is_transport() => self.add_link(&id),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the link of a commit takes its place.
    fn needs_only_link(&self, id: &CommitId) -> Result<bool, RemovalError> {
        let is_final = self.forgotten.borrow().get(id).copied().unwrap_or(false);
        let is_purged = self.rewrites.borrow().has_purged_since(&id.object(), self.reached.get());
        if !is_final && !is_purged && !self.places(&id.object())?.is_empty() {
            return Ok(false);
        }
        Ok(is_final && self.writes_links.get() || !self.places(&id.link())?.is_empty())
    }

    /// Like [`Live::add_commit`]; collects contents.
    fn visit_commit(&self, id: CommitId) -> Result<Vec<CommitId>, RemovalError> {
        let object = id.object();
        if !self.check(&object, ObjectKind::Commit)? || !self.mark(&object)? {
            return Ok(Vec::new());
        }
        let is_forgotten = self.forgotten.borrow().contains_key(&id);
        if is_forgotten && !self.places(&id.link())?.is_empty() {
            self.mark(&id.link())?;
        }
        let commit = self.store.commit(&id)?;
        self.visit_tree(commit.tree)?;
        Ok(commit.parents)
    }

    /// Marks the link of a commit. Returns the parents, or nothing if it was marked before.
    fn add_link(&self, id: &CommitId) -> Result<Vec<CommitId>, RemovalError> {
        if !self.writes_links.get() && !self.check(&id.link(), ObjectKind::Link)? {
            return Ok(Vec::new());
        }
        match self.mark(&id.link())? {
            true => Ok(self.store.ancestor(id)?.commit.parents),
            false => Ok(Vec::new()),
        }
    }

    /// Records the objects that are marked from now on.
    pub(in crate::ops) fn start_journal(&self) {
        *self.journal.borrow_mut() = Some(Vec::new());
    }

    /// Returns the objects that were marked since [`Live::start_journal`].
    pub(in crate::ops) fn end_journal(&self) -> Vec<ObjectId> {
        self.journal.borrow_mut().take().unwrap_or_default()
    }

    /// Marks an object and what it refers to, if all of that is alive. Otherwise marks nothing.
    /// Returns true if it was marked.
    ///
    /// # Errors
    /// [`RemovalError::Blocked`], or [`RemovalError::Store`] when the index cannot be read or a remote does
    /// not answer.
    pub fn attempt(&self, id: &ObjectId, kind: ObjectKind) -> Result<bool, RemovalError> {
        if self.contains(id)? {
            return Ok(false);
        }
        let added = self.all_or_nothing(|| match kind {
            // The commit itself stays, even if it is forgotten.
            ObjectKind::Commit => self
                .visit_commit(CommitId::from_object(*id))
                .and_then(|parents| self.visit_commits(parents)),
            ObjectKind::Link => self
                .add_link(&CommitId::of_link(*id))
                .and_then(|parents| self.visit_commits(parents)),
            ObjectKind::Tree => self.visit_tree(TreeId::from_object(*id)),
            ObjectKind::ChunkList => {
                self.mark_content(ContentId::Chunked(ChunkListId::from_object(*id)))
            }
            ObjectKind::Blob => self.mark_content(BlobId::from_object(*id).into()),
            // A marked part has marked chunks, so only its list marks it.
            ObjectKind::ListPart => {
                Err(StoreError::Missing { id: *id, wanted: ObjectKind::ChunkList }.into())
            }
        });
        match added {
            Err(RemovalError::Blocked(blocked)) => Err(blocked.into()),
            Err(RemovalError::Store(error)) if error.is_transport() => Err(error.into()),
            Err(_) => Ok(false),
            Ok(()) => Ok(true),
        }
    }

    /// Marks what a former value of a ref reaches, like [`Live::add_unless_purged`]. Skips what a
    /// repair has given up: only an undo needs the rest.
    ///
    /// # Errors
    /// As [`Live::add_commits`].
    pub(super) fn add_former(
        &self,
        id: CommitId,
        reached: Option<Time>,
    ) -> Result<bool, RemovalError> {
        self.is_former.set(true);
        let added = self.add_unless_purged(id, reached);
        self.is_former.set(false);
        added
    }

    /// Marks everything that a commit reaches, unless that includes a purged object. Then marks
    /// nothing and returns false. Ignores rewrites before `reached`, the last time at which a
    /// branch, a tag or `HEAD` moved to the commit.
    ///
    /// # Errors
    /// As [`Live::add_commits`].
    pub(super) fn add_unless_purged(
        &self,
        id: CommitId,
        reached: Option<Time>,
    ) -> Result<bool, RemovalError> {
        if self.rewrites.borrow().is_empty() {
            self.add_commits([id])?;
            return Ok(true);
        }
        // No ref moves to a replaced commit, but a log may have the line of an undo that was killed.
        let reached = reached.filter(|_| !self.rewrites.borrow().has_replaced(&id));
        self.reached.set(reached);
        let added = self.all_or_nothing(|| self.visit_commits([id]));
        self.reached.set(None);
        match added {
            Err(RemovalError::Store(StoreError::Purged { .. })) => Ok(false),
            added => added.map(|()| true),
        }
    }

    /// Marks what `add` marks, or nothing if it fails.
    fn all_or_nothing(
        &self,
        add: impl FnOnce() -> Result<(), RemovalError>,
    ) -> Result<(), RemovalError> {
        debug_assert!(self.contents.borrow().is_empty(), "contents of another visit");
        let before = self.journal.borrow_mut().replace(Vec::new());
        let added = self.end_visit(add());
        let new = self.end_journal();
        *self.journal.borrow_mut() = before;
        if let Err(error) = added {
            new.iter().try_for_each(|id| self.unmark(id))?;
            return Err(error);
        }
        if let Some(journal) = self.journal.borrow_mut().as_mut() {
            journal.extend(new);
        }
        Ok(())
    }

    /// Marks a tree and everything below it; collects contents.
    fn visit_tree(&self, root: TreeId) -> Result<(), RemovalError> {
        let mut walk = TreeWalk::new(TreeCursor::new(root, Prefetch::NodesAndFolders), ());
        while let Some(step) = walk.next() {
            let WalkStep::Node(node) = step else { continue };
            self.observer.check()?;
            let id = node.id().object();
            if !self.check(&id, ObjectKind::Tree)? || !self.mark(&id)? {
                continue;
            }
            self.observer.advance(1, 0);
            for entry in walk.read(self.store, node)? {
                match entry.kind {
                    EntryKind::Folder { id } => walk.enter(id, ())?,
                    EntryKind::File { id, .. } => self.contents.borrow_mut().push(id),
                    _ => {}
                }
            }
            if self.contents.borrow().len() >= CONTENTS {
                self.mark_contents()?;
            }
        }
        Ok(())
    }

    /// Marks the collected contents.
    fn mark_contents(&self) -> Result<(), RemovalError> {
        let mut contents = self.contents.take();
        contents.sort_unstable();
        contents.dedup();
        for id in contents {
            self.observer.check()?;
            self.mark_content(id)?;
        }
        Ok(())
    }

    fn check_not_purged(&self, id: &ObjectId) -> Result<(), RemovalError> {
        let is_purged = self.rewrites.borrow().has_purged_since(id, self.reached.get());
        match is_purged && !self.is_at_ref.get() && !self.contains(id)? {
            true => Err(StoreError::Purged { id: *id }.into()),
            false => Ok(()),
        }
    }

    fn mark_content(&self, id: ContentId) -> Result<(), RemovalError> {
        let object = id.object();
        if self.contains(&object)? || !self.check(&object, ObjectKind::of_content(id))? {
            return Ok(());
        }
        if let ContentId::Chunked(list) = id {
            self.mark_chunks(&list)?;
        }
        self.mark(&object)?;
        Ok(())
    }

    /// Marks the chunks that a list names, and its parts.
    fn mark_chunks(&self, list: &ChunkListId) -> Result<(), RemovalError> {
        self.store.for_each_named(list, &mut |id, kind| {
            self.observer.check()?;
            let is_new = !self.contains(&id)? && self.check(&id, kind)? && self.mark(&id)?;
            // The chunks of a marked part are marked.
            Ok(if is_new { Descend::Enter } else { Descend::Skip })
        })
    }

    /// Checks that the store has an object of this kind, and that the walk may mark it. Returns false
    /// if the walk skips the object, because a repair has given it up.
    fn check(&self, id: &ObjectId, wanted: ObjectKind) -> Result<bool, RemovalError> {
        self.check_not_purged(id)?;
        let places = self.places(id)?;
        let found = places.iter().find(|place| place.kind == wanted).or(places.first());
        match found {
            Some(place) if place.kind == wanted => Ok(true),
            _ if self.is_given_up(id)? => Ok(false),
            Some(place) => Ok(place.of_kind(id, wanted).map(|_| true)?),
            None => Err(StoreError::Missing { id: *id, wanted }.into()),
        }
    }

    /// Returns true if the walk begins at a former value, and a repair has given up an object.
    fn is_given_up(&self, id: &ObjectId) -> Result<bool, RemovalError> {
        if !self.is_former.get() {
            return Ok(false);
        }
        let given_up = match self.given_up.get() {
            Some(known) => known,
            None => {
                let found = self.store.quarantined_objects()?;
                self.given_up.get_or_init(|| found)
            }
        };
        Ok(given_up.as_ref().is_none_or(|ids| ids.contains(id)))
    }
}
