//! What commits reach: their parents, trees, contents and chunks, each once.
//!
//! Not an operation of its own, but what bundles and transfers have in common.
//! The caller says of each object whether to go on below it, usually by a bit
//! of [`Marks`](crate::store::Marks), so nothing is visited twice and memory
//! stays flat. On the way it is checked that trees are in their places and that
//! contents have the size that their entries say.

use std::collections::HashMap;

use crate::{
    base::{
        id::{BlobId, CommitId, ObjectId, TreeId},
        kind::ErrorKind,
        limits,
        name::EntryName,
        observe::Observer,
    },
    format::{
        chunk_list::Piece,
        commit::Commit,
        pack::ObjectKind,
        tree::{Child, Entry, Kind, Node},
        wire::FormatError,
    },
    store::{Incoming, Met, Needed, Place, Store, StoreError, listed_bytes, walk_chunks},
};

/// Where objects are found.
pub trait Objects {
    /// Where an object is.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    fn locate(&self, id: &ObjectId) -> Result<Option<Place>, StoreError>;

    /// Its bytes, checked against its id.
    ///
    /// # Errors
    /// [`StoreError`] when it is missing or damaged.
    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError>;

    /// Whether an object can be read without asking elsewhere.
    ///
    /// # Errors
    /// [`StoreError`] when its pack cannot be read.
    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError>;

    /// Is told what will be read, for those who fetch it from elsewhere.
    fn will_need(&self, ids: &mut Needed<'_>) {
        let _ = ids;
    }

    /// Is told what is wrong with an object. Returns the error to end the visit, or
    /// nothing to go on without what is below the object.
    ///
    /// # Errors
    /// `error`, by default.
    fn pass_by(
        &self,
        id: &ObjectId,
        wanted: ObjectKind,
        error: ReachError,
    ) -> Result<(), ReachError> {
        let _ = (id, wanted);
        Err(error)
    }
}

impl Objects for Store {
    fn locate(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> {
        Store::locate(self, id)
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        Store::object(self, id, kind)
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        self.locate(id)?.map_or(Ok(true), |place| Store::is_here(self, &place))
    }

    fn will_need(&self, ids: &mut Needed<'_>) {
        self.will_need_objects(ids);
    }
}

impl Objects for Incoming<'_> {
    fn locate(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> {
        Incoming::locate(self, id)
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        Incoming::object(self, id, kind)
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Incoming::is_here(self, id)
    }
}

/// Why not everything could be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// An object is missing or damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file's entry and its content do not agree on its size.
    #[error("content {id} has {found} bytes, but its entry says {claimed}")]
    Size {
        /// The content.
        id: ObjectId,
        /// What the entry says.
        claimed: u64,
        /// What it has.
        found: u64,
    },
    /// Folders are nested deeper than [`limits::DEPTH`].
    #[error("tree {id} is nested deeper than {} folders", limits::DEPTH)]
    Depth {
        /// The folder that is too deep.
        id: ObjectId,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ReachError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Size { .. } | Self::Depth { .. } => ErrorKind::Damaged,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Says whether to go on below an object; called for each that is met.
pub type Enter<'a> = dyn FnMut(&ObjectId, &Place) -> Result<bool, StoreError> + 'a;

/// Visits all that `starts` reach, as far as `enter` says. Blobs have nothing
/// below them; what is said of them does not matter.
///
/// # Errors
/// [`ReachError`] at the first object that is not as it should be and that
/// [`Objects::pass_by`] does not pass by.
pub fn visit(
    objects: &dyn Objects,
    starts: &[CommitId],
    enter: &mut Enter<'_>,
    observer: &dyn Observer,
) -> Result<(), ReachError> {
    let mut visit = Visit { objects, enter, observer, sizes: HashMap::new() };
    let mut waiting: Vec<CommitId> = starts.to_vec();
    while let Some(id) = waiting.pop() {
        let read = visit.commit(id);
        let Some(commit) = visit.unless_wrong(&id.object(), ObjectKind::Commit, read)? else {
            continue;
        };
        let parents = commit.parents.iter().map(|id| id.object());
        objects.will_need(&mut std::iter::once(commit.tree.object()).chain(parents));
        visit.tree(commit.tree)?;
        waiting.extend(commit.parents);
    }
    Ok(())
}

/// Visits all that trees and cut contents reach, whether or not any commit
/// does; `enter` is asked for these, too.
///
/// # Errors
/// As [`visit`].
pub fn visit_below(
    objects: &dyn Objects,
    starts: &[(ObjectId, ObjectKind)],
    enter: &mut Enter<'_>,
    observer: &dyn Observer,
) -> Result<(), ReachError> {
    let mut visit = Visit { objects, enter, observer, sizes: HashMap::new() };
    for (id, kind) in starts {
        match kind {
            ObjectKind::Tree => visit.tree(TreeId::from_object(*id))?,
            // A content that is there whole, too, needs no chunks.
            ObjectKind::ChunkList if visit.place(id, *kind)?.kind == ObjectKind::Blob => {}
            ObjectKind::ChunkList if visit.enters(id, *kind)? => {
                visit.chunks(*id)?;
            }
            _ => {}
        }
    }
    Ok(())
}

struct Visit<'a, 'e> {
    objects: &'a dyn Objects,
    enter: &'a mut Enter<'e>,
    observer: &'a dyn Observer,
    /// Bytes of contents whose chunks were visited.
    sizes: HashMap<ObjectId, u64>,
}

impl Visit<'_, '_> {
    fn place(&self, id: &ObjectId, wanted: ObjectKind) -> Result<Place, StoreError> {
        self.objects.locate(id)?.ok_or(StoreError::Missing { id: *id, wanted })
    }

    fn enters(&mut self, id: &ObjectId, wanted: ObjectKind) -> Result<bool, StoreError> {
        let place = self.place(id, wanted)?;
        if place.kind != wanted {
            return Err(StoreError::WrongKind { id: *id, wanted, found: place.kind });
        }
        (self.enter)(id, &place)
    }

    /// What was read of an object; `None` for one that is not to be looked at, or
    /// is passed by.
    fn unless_wrong<T>(
        &self,
        id: &ObjectId,
        wanted: ObjectKind,
        read: Result<Option<T>, ReachError>,
    ) -> Result<Option<T>, ReachError> {
        match read {
            Err(ReachError::Interrupted) => Err(ReachError::Interrupted),
            Err(error) => self.objects.pass_by(id, wanted, error).map(|()| None),
            read => read,
        }
    }

    /// A commit, if it is to be looked at.
    fn commit(&mut self, id: CommitId) -> Result<Option<Commit>, ReachError> {
        let (id, kind) = (id.object(), ObjectKind::Commit);
        if !self.enters(&id, kind)? {
            return Ok(None);
        }
        let commit = Commit::decode(&self.objects.object(&id, kind)?);
        Ok(Some(commit.map_err(|source| StoreError::Object { id, kind, source })?))
    }

    /// A node of a tree, if it is to be looked at. `place` is what the node above
    /// says of its level and its first name.
    fn node(
        &mut self,
        object: ObjectId,
        depth: usize,
        place: Option<(u8, Option<EntryName>)>,
    ) -> Result<Option<Node>, ReachError> {
        let kind = ObjectKind::Tree;
        if !self.enters(&object, kind)? {
            return Ok(None);
        }
        if depth > limits::DEPTH {
            return Err(ReachError::Depth { id: object });
        }
        let broken = |source| StoreError::Object { id: object, kind, source };
        let node = Node::decode(&self.objects.object(&object, kind)?).map_err(broken)?;
        let own_place = (node.level(), node.first().cloned());
        if place.is_some_and(|place| place != own_place) {
            let what = "place of a tree node";
            return Err(broken(FormatError::Invalid { what, at: 1 }).into());
        }
        Ok(Some(node))
    }

    fn tree(&mut self, root: TreeId) -> Result<(), ReachError> {
        // With each node of a split directory, what the one above says of it:
        // its level and its first name.
        let mut waiting = vec![(root, 0usize, None)];
        while let Some((id, depth, place)) = waiting.pop() {
            self.check()?;
            let read = self.node(id.object(), depth, place);
            let Some(node) = self.unless_wrong(&id.object(), ObjectKind::Tree, read)? else {
                continue;
            };
            match node {
                Node::Leaf { entries, .. } => {
                    self.objects.will_need(&mut entries.iter().filter_map(Entry::folder));
                    for entry in entries {
                        match entry.kind {
                            Kind::Folder { id } => waiting.push((id, depth + 1, None)),
                            Kind::File { size, id } => {
                                let read = self.content(id, size).map(Some);
                                self.unless_wrong(&id.object(), ObjectKind::Blob, read)?;
                            }
                            _ => {}
                        }
                    }
                }
                Node::Inner { level, children, .. } => {
                    self.objects.will_need(&mut children.iter().map(|child| child.id.object()));
                    let below =
                        |child: Child| (child.id, depth, Some((level - 1, Some(child.first))));
                    waiting.extend(children.into_iter().map(below));
                }
            }
            self.observer.advance(1, 0);
        }
        Ok(())
    }

    fn content(&mut self, id: BlobId, claimed: u64) -> Result<(), ReachError> {
        let id = id.object();
        let wanted = ObjectKind::Blob;
        let place = self.place(&id, wanted)?;
        let found = match place.kind {
            ObjectKind::Blob => {
                (self.enter)(&id, &place)?;
                u64::from(place.bytes)
            }
            ObjectKind::ChunkList => match (self.enter)(&id, &place)? {
                true => self.chunks(id)?,
                false => self.known_bytes(id)?.unwrap_or(claimed),
            },
            found => return Err(StoreError::WrongKind { id, wanted, found }.into()),
        };
        if found == claimed { Ok(()) } else { Err(ReachError::Size { id, claimed, found }) }
    }

    /// What a content amounts to whose chunks were visited before; `None` where
    /// that would have to be fetched.
    fn known_bytes(&mut self, id: ObjectId) -> Result<Option<u64>, ReachError> {
        if let Some(bytes) = self.sizes.get(&id) {
            return Ok(Some(*bytes));
        }
        if !self.objects.is_here(&id)? {
            return Ok(None);
        }
        let objects = self.objects;
        // It was seen that its chunks amount to that.
        let total = listed_bytes(id, &|id, kind| objects.object(id, kind))?;
        self.sizes.insert(id, total);
        Ok(Some(total))
    }

    /// Visits the chunks of a content. Returns what they amount to.
    fn chunks(&mut self, id: ObjectId) -> Result<u64, ReachError> {
        let objects = self.objects;
        let read = |id: &ObjectId, kind| objects.object(id, kind);
        let total = walk_chunks(id, &read, &mut |met| {
            self.check()?;
            match met {
                Met::Part(part) => {
                    let (id, kind) = (part.id.object(), ObjectKind::Blob);
                    let read = self.enters(&id, kind).map(Some).map_err(ReachError::from);
                    self.unless_wrong(&id, kind, read).map(drop)
                }
                Met::Chunks(chunks) => chunks.iter().try_for_each(|chunk| {
                    let read = self.chunk(chunk).map(Some);
                    self.unless_wrong(&chunk.id.object(), ObjectKind::Blob, read).map(drop)
                }),
            }
        })?;
        self.sizes.insert(id, total);
        Ok(total)
    }

    fn chunk(&mut self, chunk: &Piece) -> Result<(), ReachError> {
        let (id, wanted) = (chunk.id.object(), ObjectKind::Blob);
        let place = self.place(&id, wanted)?;
        if place.kind != wanted {
            return Err(StoreError::WrongKind { id, wanted, found: place.kind }.into());
        }
        if place.bytes != chunk.bytes {
            let (claimed, found) = (chunk.bytes.into(), place.bytes.into());
            return Err(ReachError::Size { id, claimed, found });
        }
        (self.enter)(&id, &place)?;
        Ok(())
    }

    fn check(&self) -> Result<(), ReachError> {
        if self.observer.cancelled() { Err(ReachError::Interrupted) } else { Ok(()) }
    }
}
