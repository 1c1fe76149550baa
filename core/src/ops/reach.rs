//! Walks the objects that are reachable from commits: parents, trees, contents and
//! chunks.
//!
//! This is not an operation itself, but the common part of bundles and transfers. For each object
//! the caller decides whether to descend. Usually it sets a bit of [`Marks`], so that the walk visits
//! each object once and memory stays flat. The walk checks that the nodes of split trees are in place
//! and that contents have the sizes that their entries claim.

use std::collections::HashMap;

use crate::{
    base::{
        blocked::Blocked,
        id::{ChunkListId, CommitId, ContentId, ObjectId, TreeId},
        kind::Kind,
        observe::Observer,
    },
    format::{
        chunk_list::{BlobRef, ListEnd, decode_part},
        commit::Commit,
        pack::ObjectKind,
        tree::{EntryKind, Node},
    },
    repo::{
        Repo, history,
        refs::RefError,
        roots::{RootChoice, Roots},
    },
    store::{
        ChunkVisit, Descend, EnteredParts, Marks, ObjectIds, ObjectLocation, Prefetch, Store,
        StoreError, TreeCursor, TreeSource, TreeWalk, WalkStep, decode_tree, read_list,
        walk_chunks,
    },
};

/// A source of objects.
pub trait ObjectSource {
    /// Returns the position of an object.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError>;

    /// Returns the bytes of an object, verified against its id.
    ///
    /// # Errors
    /// [`StoreError`] when it is missing or damaged.
    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError>;

    /// Returns the link that stands for a parent, if the parent was forgotten. `None` means that the
    /// walk needs the commit itself.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    fn link(&self, parent: &CommitId) -> Result<Option<ObjectLocation>, StoreError> {
        match self.locate(&parent.object())? {
            Some(_) => Ok(None),
            None => self.locate(&parent.link()),
        }
    }

    /// Returns true if an object can be read without fetching it.
    ///
    /// # Errors
    /// [`StoreError`] when its pack cannot be read.
    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError>;

    /// Announces objects that will be read, so that an implementation can prefetch them.
    fn will_need(&self, ids: &mut ObjectIds<'_>) {
        let _ = ids;
    }

    /// Handles an object that cannot be visited. Returns the error to end the walk, or
    /// `Ok` to continue without the objects below it.
    ///
    /// # Errors
    /// `error`, by default.
    fn on_unreadable(
        &self,
        id: &ObjectId,
        wanted: ObjectKind,
        error: ReachError,
    ) -> Result<(), ReachError> {
        let _ = (id, wanted);
        Err(error)
    }
}

impl ObjectSource for Store {
    fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        Store::locate(self, id)
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        Store::object(self, id, kind)
    }

    fn link(&self, parent: &CommitId) -> Result<Option<ObjectLocation>, StoreError> {
        match self.is_forgotten_parent(parent)? {
            true => self.locate_unshadowed(&parent.link()),
            false => Ok(None),
        }
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        self.locate(id)?.map_or(Ok(true), |place| Store::is_here(self, &place))
    }

    fn will_need(&self, ids: &mut ObjectIds<'_>) {
        self.prefetch_objects(ids);
    }
}

impl TreeSource for dyn ObjectSource + '_ {
    fn tree(&self, id: &TreeId) -> Result<Node, StoreError> {
        decode_tree(id, &self.object(&id.object(), ObjectKind::Tree)?)
    }

    fn will_need(&self, ids: &mut ObjectIds<'_>) {
        ObjectSource::will_need(self, ids);
    }
}

/// The reason why a walk failed.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum ReachError {
    /// An object is missing or damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

/// Returns true if everything that a commit refers to is here, so that it can be read without a fetch.
///
/// # Errors
/// [`ReachError::Blocked`]. What cannot be read counts as not here.
pub fn is_here(
    store: &Store,
    commit: CommitId,
    observer: &dyn Observer,
) -> Result<bool, ReachError> {
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, place: &ObjectLocation| match store.is_here(place)? {
        true => marks.mark(id),
        false => Err(StoreError::Missing { id: *id, wanted: place.kind }),
    };
    match visit(store, &[commit], &mut enter, observer) {
        Err(ReachError::Blocked(blocked)) => Err(blocked.into()),
        visited => Ok(visited.is_ok()),
    }
}

/// Returns true if a collection at a remote has deleted a commit, or something that it refers to, and
/// the store lacks it.
///
/// # Errors
/// [`RefError`] if the index or the logs cannot be read.
pub fn is_collected(
    repo: &Repo,
    commit: CommitId,
    observer: &dyn Observer,
) -> Result<bool, RefError> {
    // After an interruption the caller stops, too.
    Ok(repo.is_found_dead(&commit)? && !is_here(repo.store(), commit, observer).unwrap_or(true))
}

/// Checks that no collection at a remote has deleted the commit of a branch, a tag or `HEAD`.
///
/// # Errors
/// [`RefError::AtCollected`], and others if the refs, the index or the logs cannot be read.
pub fn check_refs(repo: &Repo, observer: &dyn Observer) -> Result<(), RefError> {
    let roots = Roots::read(repo, RootChoice::Movable)?.complete()?;
    for (pointer, id) in roots.pointers() {
        if is_collected(repo, id, observer)? {
            return Err(RefError::AtCollected { pointer: pointer.clone(), id });
        }
    }
    Ok(())
}

/// Decides whether to descend below an object. The walk calls this for each object.
pub type Enter<'a> = dyn FnMut(&ObjectId, &ObjectLocation) -> Result<bool, StoreError> + 'a;

/// Visits all objects that are reachable from `starts`, as far as `enter` allows. The
/// result of `enter` for a blob is ignored, since nothing lies below it. In place of a forgotten
/// parent, visits its [link](ObjectSource::link), and then its parents. Each commit of `starts` must
/// be complete.
///
/// # Errors
/// [`ReachError`] for the first invalid object that [`ObjectSource::on_unreadable`] does not
/// accept.
pub fn visit(
    objects: &dyn ObjectSource,
    starts: &[CommitId],
    enter: &mut Enter<'_>,
    observer: &dyn Observer,
) -> Result<(), ReachError> {
    ReachWalk::new(objects, enter, observer).visit(starts)
}

/// Visits all objects that are reachable from trees, chunk lists, their parts and links, whether or not a
/// commit refers to them. `enter` is called for the starts as well.
///
/// # Errors
/// As [`visit`].
pub fn visit_below(
    objects: &dyn ObjectSource,
    starts: &[(ObjectId, ObjectKind)],
    enter: &mut Enter<'_>,
    observer: &dyn Observer,
) -> Result<(), ReachError> {
    ReachWalk::new(objects, enter, observer).visit_below(starts)
}

/// A walk from several starts. It enters each part of a chunk list once.
pub struct ReachWalk<'a, 'e> {
    objects: &'a dyn ObjectSource,
    enter: &'a mut Enter<'e>,
    observer: &'a dyn Observer,
    /// Sizes in bytes of chunked contents.
    sizes: HashMap<ChunkListId, u64>,
    parts: EnteredParts,
}

impl<'a, 'e> ReachWalk<'a, 'e> {
    /// Creates a walk that has visited nothing.
    pub fn new(
        objects: &'a dyn ObjectSource,
        enter: &'a mut Enter<'e>,
        observer: &'a dyn Observer,
    ) -> Self {
        let (sizes, parts) = (HashMap::new(), EnteredParts::default());
        Self { objects, enter, observer, sizes, parts }
    }

    /// Continues as [`visit`].
    ///
    /// # Errors
    /// As [`visit`].
    pub fn visit(&mut self, starts: &[CommitId]) -> Result<(), ReachError> {
        let mut parents = Vec::new();
        for id in starts {
            parents.extend(self.commit_and_tree(*id)?);
        }
        self.ancestors(parents)
    }

    /// Continues as [`visit_below`].
    ///
    /// # Errors
    /// As [`visit`].
    pub fn visit_below(&mut self, starts: &[(ObjectId, ObjectKind)]) -> Result<(), ReachError> {
        for (id, kind) in starts {
            match kind {
                ObjectKind::Tree => self.tree(TreeId::from_object(*id))?,
                ObjectKind::ChunkList if self.enters(id, *kind)? => {
                    self.chunks(&ChunkListId::from_object(*id))?;
                }
                ObjectKind::ListPart if self.enters(id, *kind)? => self.lone_part(*id)?,
                ObjectKind::Link => {
                    let parents = self.link(&CommitId::of_link(*id))?;
                    self.ancestors(parents)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn place(&self, id: &ObjectId, wanted: ObjectKind) -> Result<ObjectLocation, StoreError> {
        if let Some(place) = self.objects.locate(id)? {
            return Ok(place);
        }
        let commit = CommitId::from_object(*id);
        if wanted == ObjectKind::Commit && self.objects.locate(&commit.link())?.is_some() {
            return Err(StoreError::Forgotten { id: commit });
        }
        Err(StoreError::Missing { id: *id, wanted })
    }

    fn enters(&mut self, id: &ObjectId, wanted: ObjectKind) -> Result<bool, StoreError> {
        let place = self.place(id, wanted)?.of_kind(id, wanted)?;
        (self.enter)(id, &place)
    }

    /// Returns the object that was read. Returns `None` for an object that `enter`
    /// declined or `on_unreadable` accepted as unreadable.
    fn unless_wrong<T>(
        &self,
        id: &ObjectId,
        wanted: ObjectKind,
        read: Result<Option<T>, ReachError>,
    ) -> Result<Option<T>, ReachError> {
        match read {
            Err(ReachError::Blocked(blocked)) => Err(blocked.into()),
            Err(error) => self.objects.on_unreadable(id, wanted, error).map(|()| None),
            read => read,
        }
    }

    /// Reads an object, unless `enter` declines it.
    fn if_entered<T>(
        &mut self,
        id: &ObjectId,
        wanted: ObjectKind,
        read: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<Option<T>, ReachError> {
        Ok(if self.enters(id, wanted)? { Some(read()?) } else { None })
    }

    fn ancestors(&mut self, parents: Vec<CommitId>) -> Result<(), ReachError> {
        let objects = self.objects;
        history::walk(parents, |id| match objects.link(&id)? {
            Some(_) => self.link(&id),
            None => self.commit_and_tree(id),
        })
    }

    /// Visits a commit and its tree. Returns its parents, which the caller visits.
    fn commit_and_tree(&mut self, id: CommitId) -> Result<Vec<CommitId>, ReachError> {
        let Some(commit) = self.commit(&id.object(), ObjectKind::Commit)? else {
            return Ok(Vec::new());
        };
        let parents = commit.parents.iter().map(|id| id.object());
        self.objects.will_need(&mut std::iter::once(commit.tree.object()).chain(parents));
        self.tree(commit.tree)?;
        Ok(commit.parents)
    }

    /// Visits the link of a commit. Returns the parents of the commit, which the caller visits.
    fn link(&mut self, id: &CommitId) -> Result<Vec<CommitId>, ReachError> {
        let commit = self.commit(&id.link(), ObjectKind::Link)?;
        Ok(commit.map(|commit| commit.parents).unwrap_or_default())
    }

    /// Reads a commit or a link, unless `enter` declines it.
    fn commit(&mut self, id: &ObjectId, kind: ObjectKind) -> Result<Option<Commit>, ReachError> {
        let objects = self.objects;
        let read = self.if_entered(id, kind, || {
            let decoded = Commit::decode(&objects.object(id, kind)?);
            decoded.map_err(|source| StoreError::Object { id: *id, kind, source })
        });
        self.unless_wrong(id, kind, read)
    }

    fn tree(&mut self, root: TreeId) -> Result<(), ReachError> {
        let (objects, kind) = (self.objects, ObjectKind::Tree);
        let mut walk = TreeWalk::new(TreeCursor::new(root, Prefetch::NodesAndFolders), ());
        while let Some(step) = walk.next() {
            self.observer.check()?;
            let WalkStep::Node(node) = step else { continue };
            let id = node.id().object();
            let read = self.if_entered(&id, kind, || walk.read(objects, node));
            let Some(entries) = self.unless_wrong(&id, kind, read)? else { continue };
            for entry in entries {
                match entry.kind {
                    EntryKind::Folder { id } => {
                        if let Err(error) = walk.enter(id, ()) {
                            let id = id.object();
                            let read = self.if_entered(&id, kind, || Err::<(), _>(error));
                            self.unless_wrong(&id, kind, read)?;
                        }
                    }
                    EntryKind::File { size, id } => {
                        let read = self.content(id, size).map(Some);
                        self.unless_wrong(&id.object(), ObjectKind::of_content(id), read)?;
                    }
                    _ => {}
                }
            }
            self.observer.advance(1, 0);
        }
        Ok(())
    }

    fn content(&mut self, id: ContentId, claimed: u64) -> Result<(), ReachError> {
        let (object, wanted) = (id.object(), ObjectKind::of_content(id));
        let place = self.place(&object, wanted)?.of_kind(&object, wanted)?;
        let enters = (self.enter)(&object, &place)?;
        let found = match id {
            ContentId::Blob(_) => u64::from(place.bytes),
            ContentId::Chunked(list) if enters => self.chunks(&list)?,
            ContentId::Chunked(list) => self.known_bytes(&list)?.unwrap_or(claimed),
        };
        match found == claimed {
            true => Ok(()),
            false => Err(StoreError::Length { id: object, stated: claimed, found }.into()),
        }
    }

    /// Returns the size of a content whose chunks were visited before. Returns `None` if
    /// its chunk list would have to be fetched.
    fn known_bytes(&mut self, id: &ChunkListId) -> Result<Option<u64>, ReachError> {
        if let Some(bytes) = self.sizes.get(id) {
            return Ok(Some(*bytes));
        }
        if !self.objects.is_here(&id.object())? {
            return Ok(None);
        }
        let objects = self.objects;
        let total = read_list(id, &|id, kind| objects.object(id, kind))?.total_bytes();
        self.sizes.insert(*id, total);
        Ok(Some(total))
    }

    /// Visits the chunks of a content. Returns their total size in bytes.
    fn chunks(&mut self, id: &ChunkListId) -> Result<u64, ReachError> {
        let objects = self.objects;
        let read = |id: &ObjectId, kind| objects.object(id, kind);
        let (part_kind, mut last) = (ObjectKind::ListPart, id.object());
        let total = walk_chunks::<ReachError>(id, &read, &mut |visit| {
            self.observer.check()?;
            match visit {
                ChunkVisit::Part(part, end) => {
                    last = part.id.object();
                    let entered = self.enters(&last, part_kind).map(Some).map_err(ReachError::from);
                    return Ok(match self.unless_wrong(&last, part_kind, entered)? {
                        Some(_) => self.parts.enter(part, end),
                        None => Descend::Skip,
                    });
                }
                ChunkVisit::Chunks(Ok(chunks)) => {
                    self.all_chunks(chunks)?;
                }
                ChunkVisit::Chunks(Err(error)) => {
                    self.unless_wrong::<()>(&last, part_kind, Err(error.into()))?;
                }
            }
            Ok(Descend::Enter)
        })?;
        self.sizes.insert(*id, total);
        Ok(total)
    }

    /// Visits the chunks of a part whose list is not known.
    fn lone_part(&mut self, id: ObjectId) -> Result<(), ReachError> {
        self.observer.check()?;
        let kind = ObjectKind::ListPart;
        let chunks = decode_part(None, ListEnd::Content, &self.objects.object(&id, kind)?)
            .map_err(|source| StoreError::Object { id, kind, source })?;
        self.all_chunks(&chunks)
    }

    fn all_chunks(&mut self, chunks: &[BlobRef]) -> Result<(), ReachError> {
        for chunk in chunks {
            let read = self.chunk(chunk).map(Some);
            self.unless_wrong(&chunk.id.object(), ObjectKind::Blob, read)?;
        }
        Ok(())
    }

    fn chunk(&mut self, chunk: &BlobRef) -> Result<(), ReachError> {
        let (id, wanted) = (chunk.id.object(), ObjectKind::Blob);
        let place = self.place(&id, wanted)?.of_kind(&id, wanted)?;
        if place.bytes != chunk.bytes {
            let (claimed, found) = (chunk.bytes.into(), place.bytes.into());
            return Err(StoreError::Length { id, stated: claimed, found }.into());
        }
        (self.enter)(&id, &place)?;
        Ok(())
    }
}
