//! Marks what refs reach.
//!
//! A ref has everything that it refers to, also objects that are shadowed as dead: a collection may
//! have ended between its shadows and its epoch, and deleted nothing. From any other start, a walk
//! follows only objects that are not shadowed as dead, because another collection may be deleting
//! them.
//!
//! A content may be cut in several ways, in several packs. Every list of a live content that can be
//! followed keeps its chunks; readers may use any of them.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
};

use crate::{
    base::{
        id::{BlobId, CommitId, ObjectId, TreeId},
        observe::Observer,
    },
    format::{pack::ObjectKind, tree::EntryKind},
    ops::gc::GcError,
    repo::history,
    store::{
        ChunkVisit, Marks, ObjectLocation, Prefetch, Store, StoreError, TreeCursor, TreeWalk,
        WalkStep, walk_chunks,
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
}

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
        }
    }

    /// Returns true if an object is live.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn contains(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.marks.is_marked(id)? || self.newer.borrow().contains(id))
    }

    /// Marks an object. Returns true if it was not marked before.
    fn mark(&self, id: &ObjectId) -> Result<bool, StoreError> {
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
    /// [`GcError::Store`] if an object on the way is missing or damaged; [`GcError::Interrupted`].
    pub fn add_refs(&self, commits: impl IntoIterator<Item = CommitId>) -> Result<(), GcError> {
        self.is_at_ref.set(true);
        let added = self.add_commits(commits);
        self.is_at_ref.set(false);
        added
    }

    /// Returns the locations of an object that the walk may follow.
    fn places(&self, id: &ObjectId) -> Result<Vec<ObjectLocation>, StoreError> {
        match self.is_at_ref.get() {
            true => self.store.places(id),
            false => self.store.alive_places(id),
        }
    }

    /// Marks everything that commits reach.
    ///
    /// # Errors
    /// [`GcError::Store`] if an object on the way is missing or damaged.
    pub(super) fn add_commits(
        &self,
        commits: impl IntoIterator<Item = CommitId>,
    ) -> Result<(), GcError> {
        history::walk(commits, |id| {
            let object = id.object();
            self.check(&object, ObjectKind::Commit)?;
            if !self.mark(&object)? {
                return Ok(Vec::new());
            }
            let commit = self.store.commit(&id)?;
            self.add_tree(commit.tree)?;
            Ok(commit.parents)
        })
    }

    /// Records the objects that are marked from now on.
    pub(super) fn start_journal(&self) {
        *self.journal.borrow_mut() = Some(Vec::new());
    }

    /// Returns the objects that were marked since [`Live::start_journal`].
    pub(super) fn end_journal(&self) -> Vec<ObjectId> {
        self.journal.borrow_mut().take().unwrap_or_default()
    }

    /// Marks an object and what it refers to, if all of that is alive. Otherwise marks nothing.
    /// Returns true if it was marked.
    ///
    /// # Errors
    /// [`GcError::Interrupted`], or [`GcError::Store`] when the index cannot be read.
    pub fn attempt(&self, id: &ObjectId, kind: ObjectKind) -> Result<bool, GcError> {
        if self.contains(id)? {
            return Ok(false);
        }
        let before = self.journal.borrow_mut().replace(Vec::new());
        let added = match kind {
            ObjectKind::Commit => self.add_commits([CommitId::from_object(*id)]),
            ObjectKind::Tree => self.add_tree(TreeId::from_object(*id)),
            ObjectKind::ChunkList => self.add_content(&BlobId::from_object(*id)),
            ObjectKind::Blob => self.check(id, kind).and_then(|_| {
                self.mark(id)?;
                Ok(())
            }),
        };
        let new = self.end_journal();
        *self.journal.borrow_mut() = before;
        match added {
            Err(GcError::Interrupted) => Err(GcError::Interrupted),
            Err(_) => {
                new.iter().try_for_each(|id| self.unmark(id))?;
                Ok(false)
            }
            Ok(()) => {
                if let Some(journal) = self.journal.borrow_mut().as_mut() {
                    journal.extend(new);
                }
                Ok(true)
            }
        }
    }

    fn add_tree(&self, root: TreeId) -> Result<(), GcError> {
        let mut walk = TreeWalk::new(TreeCursor::new(root, Prefetch::NodesAndFolders), ());
        while let Some(step) = walk.next() {
            let WalkStep::Node(node) = step else { continue };
            self.observer.check(GcError::Interrupted)?;
            let id = node.id().object();
            self.check(&id, ObjectKind::Tree)?;
            if !self.mark(&id)? {
                continue;
            }
            self.observer.advance(1, 0);
            for entry in walk.read(self.store, node)? {
                match entry.kind {
                    EntryKind::Folder { id } => walk.enter(id, ())?,
                    EntryKind::File { id, .. } => self.add_content(&id)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn add_content(&self, id: &BlobId) -> Result<(), GcError> {
        let id = id.object();
        if self.contains(&id)? {
            return Ok(());
        }
        let places = self.places(&id)?;
        let is_whole = places.iter().any(|place| place.kind == ObjectKind::Blob);
        let mut failure = None;
        let mut has_list = false;
        for place in places.iter().filter(|place| place.kind == ObjectKind::ChunkList) {
            match self.add_list(&id, place) {
                Ok(()) => has_list = true,
                Err(GcError::Interrupted) => return Err(GcError::Interrupted),
                Err(error) => failure = Some(error),
            }
        }
        if !is_whole && !has_list {
            let missing = StoreError::Missing { id, wanted: ObjectKind::Blob };
            return Err(failure.unwrap_or_else(|| missing.into()));
        }
        self.mark(&id)?;
        Ok(())
    }

    /// Marks the chunks of one list, if all of them are alive.
    pub(super) fn add_list(&self, id: &ObjectId, list: &ObjectLocation) -> Result<(), GcError> {
        let mut pieces = Vec::new();
        let read = |wanted: &ObjectId, kind| match kind {
            ObjectKind::ChunkList => self.store.object_at(wanted, list),
            _ => self.store.object(wanted, kind),
        };
        walk_chunks::<GcError>(*id, &read, &mut |met| {
            self.observer.check(GcError::Interrupted)?;
            let some = match met {
                ChunkVisit::Part(part) => std::slice::from_ref(part),
                ChunkVisit::Chunks(chunks) => chunks,
            };
            for piece in some {
                let id = piece.id.object();
                self.check(&id, ObjectKind::Blob)?;
                if !self.contains(&id)? {
                    pieces.push(id);
                }
            }
            Ok(())
        })?;
        for piece in &pieces {
            self.mark(piece)?;
        }
        Ok(())
    }

    /// Checks that the store has an object of this kind.
    fn check(&self, id: &ObjectId, wanted: ObjectKind) -> Result<(), GcError> {
        let is_wanted = |place: &ObjectLocation| place.kind == wanted;
        match self.places(id)?.iter().any(is_wanted) {
            true => Ok(()),
            false => Err(StoreError::Missing { id: *id, wanted }.into()),
        }
    }
}
