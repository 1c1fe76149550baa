//! Finds the commits and paths that have some objects: damaged ones, or contents that a rewrite
//! removed.

use std::collections::HashMap;

use crate::{
    base::{
        blocked::Blocked,
        id::{CommitId, ContentId, ObjectId, TreeId},
        observe::Observer,
    },
    format::tree::EntryKind,
    repo::path::push_name,
    store::{Marks, Prefetch, Store, StoreError, TreeCursor, TreeWalk, UnreadNode, WalkStep},
};

/// Maximum number of paths that are listed. Further paths are only counted.
pub(crate) const LISTED_PATHS: usize = 1000;

/// Maximum number of paths that a repair collects. Each takes about 300 bytes of memory.
pub(crate) const REPAIRED_PATHS: usize = 1 << 18;

/// A path that has a sought object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffectedPath {
    /// The newest commit that has the path with this object.
    pub commit: CommitId,
    /// Number of commits that have the path with this object.
    pub commits: u64,
    /// The path; empty for the whole snapshot.
    pub path: Vec<u8>,
    /// The object: for damage, the missing or damaged one.
    pub object: ObjectId,
}

/// The commits and paths that have sought objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Affected commits, newest first.
    pub commits: Vec<CommitId>,
    /// Affected paths, at most as many as the caller wants.
    pub paths: Vec<AffectedPath>,
    /// Number of affected paths that are not listed.
    pub more_paths: u64,
}

impl Affected {
    /// Returns true if no commit is affected.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.paths.is_empty()
    }

    /// Drops the paths beyond the limit for listing and counts them instead.
    pub(crate) fn shorten(&mut self) {
        let more = self.paths.len().saturating_sub(LISTED_PATHS);
        self.paths.truncate(LISTED_PATHS);
        self.more_paths += more as u64;
    }
}

/// The objects that a search looks for.
pub(crate) trait Sought {
    fn store(&self) -> &Store;

    /// Returns true if a commit or a tree node is sought. The search does not read it.
    fn has(&self, id: &ObjectId) -> bool;

    /// Returns the sought object of a content: the content itself or a part of it.
    fn in_content(&self, id: ContentId) -> Option<ObjectId>;

    /// True if a folder that cannot be read counts as sought.
    const COUNTS_UNREADABLE: bool;
}

/// Lists those of the commits, newest first, that have a sought object, and at most `most_paths` of
/// the paths. Searches each tree without a sought object once.
///
/// # Errors
/// [`StoreError`] when the index cannot be read, and [`Blocked`] if the user asks to stop.
pub(crate) fn find<S: Sought, E: From<StoreError> + From<Blocked>>(
    sought: &S,
    commits: impl IntoIterator<Item = CommitId>,
    most_paths: usize,
    observer: &dyn Observer,
) -> Result<Affected, E> {
    let store = sought.store();
    let mut search = AffectedSearch {
        sought,
        clean: Marks::new(store),
        affected_folders: Marks::new(store),
        places: HashMap::new(),
        most_paths,
        affected: Affected::default(),
    };
    for id in commits {
        observer.check()?;
        if sought.has(&id.object()) {
            search.affected.commits.push(id);
            continue;
        }
        let Ok(commit) = store.commit(&id) else { continue };
        if search.tree(id, commit.tree)? {
            search.affected.commits.push(id);
        }
    }
    Ok(search.affected)
}

struct AffectedSearch<'s, S> {
    sought: &'s S,
    /// Trees without sought objects below them.
    clean: Marks,
    /// Trees with sought objects below them.
    affected_folders: Marks,
    /// Maps a path and its sought object to the position in `affected.paths`.
    places: HashMap<(Vec<u8>, ObjectId), usize>,
    most_paths: usize,
    affected: Affected,
}

/// A folder that is being searched.
struct SearchedFolder {
    path_bytes: usize,
    /// The nodes of the folder around the present item, with the topmost first.
    nodes: Vec<SearchedNode>,
    is_affected: bool,
}

struct SearchedNode {
    id: TreeId,
    is_affected: bool,
}

impl SearchedFolder {
    fn new(path_bytes: usize) -> Self {
        Self { path_bytes, nodes: Vec::new(), is_affected: false }
    }

    /// Records a sought object at or below the present item.
    fn add_sought(&mut self) {
        let node = self.nodes.last_mut().map(|node| &mut node.is_affected);
        *node.unwrap_or(&mut self.is_affected) = true;
    }
}

impl<S: Sought> AffectedSearch<'_, S> {
    /// Searches a tree. Returns true if anything below it is sought.
    fn tree(&mut self, commit: CommitId, root: TreeId) -> Result<bool, StoreError> {
        let mut path = Vec::new();
        let cursor = TreeCursor::new(root, Prefetch::Nothing);
        let mut walk = TreeWalk::new(cursor, SearchedFolder::new(0));
        let mut is_affected = false;
        while let Some(step) = walk.next() {
            let open_nodes = walk.cursor().map_or(0, |cursor| cursor.open_nodes());
            if let Some(folder) = walk.tag() {
                self.close_nodes(folder, open_nodes)?;
                path.truncate(folder.path_bytes);
            }
            is_affected = match step {
                WalkStep::Enter => false,
                WalkStep::Node(node) => self.node(commit, &path, node, &mut walk)?,
                WalkStep::Entry(entry) => {
                    push_name(&mut path, entry.name.as_bytes());
                    self.entry(commit, &path, &entry.kind, &mut walk)
                }
                WalkStep::Leave(mut folder) => {
                    self.close_nodes(&mut folder, 0)?;
                    folder.is_affected
                }
            };
            if let Some(folder) = walk.tag().filter(|_| is_affected) {
                folder.add_sought();
            }
        }
        // The last step left the root.
        Ok(is_affected)
    }

    /// Opens a tree node, if the search must go below it. Returns true if the node itself is sought,
    /// or if a sought object below it is known.
    fn node(
        &mut self,
        commit: CommitId,
        path: &[u8],
        node: UnreadNode,
        walk: &mut TreeWalk<SearchedFolder>,
    ) -> Result<bool, StoreError> {
        let id = node.id();
        if self.clean.is_marked(&id.object())? {
            return Ok(false);
        }
        // An affected folder that many folders share is searched again under each of
        // its paths, but only until enough paths are listed. This bounds the time.
        if self.affected.paths.len() >= self.most_paths
            && self.affected_folders.is_marked(&id.object())?
        {
            self.affected.more_paths += 1;
            return Ok(true);
        }
        // Check this before reading: a bad node may be referenced many times.
        if !self.sought.has(&id.object()) {
            match walk.open(self.sought.store(), node) {
                Ok(()) => {
                    if let Some(folder) = walk.tag() {
                        folder.nodes.push(SearchedNode { id, is_affected: false });
                    }
                    return Ok(false);
                }
                // The folder is stored elsewhere, so nothing is known about it.
                Err(StoreError::Absent { .. }) => return Ok(false),
                Err(_) if S::COUNTS_UNREADABLE => {}
                Err(_) => return Ok(false),
            }
        }
        self.add(commit, path, id.object());
        Ok(true)
    }

    /// Searches a file, or schedules a folder. Returns true if it is affected.
    fn entry(
        &mut self,
        commit: CommitId,
        path: &[u8],
        kind: &EntryKind,
        walk: &mut TreeWalk<SearchedFolder>,
    ) -> bool {
        let object = match kind {
            EntryKind::Folder { id } => {
                let entered = walk.enter(*id, SearchedFolder::new(path.len()));
                (entered.is_err() && S::COUNTS_UNREADABLE).then(|| id.object())
            }
            EntryKind::File { id, .. } => self.sought.in_content(*id),
            _ => None,
        };
        object.inspect(|object| self.add(commit, path, *object)).is_some()
    }

    /// Ends the search of all nodes of a folder but the first `open`.
    fn close_nodes(&self, folder: &mut SearchedFolder, open: usize) -> Result<(), StoreError> {
        while folder.nodes.len() > open
            && let Some(SearchedNode { id, is_affected }) = folder.nodes.pop()
        {
            let known = if is_affected { &self.affected_folders } else { &self.clean };
            known.mark(&id.object())?;
            if is_affected {
                folder.add_sought();
            }
        }
        Ok(())
    }

    fn add(&mut self, commit: CommitId, path: &[u8], object: ObjectId) {
        let key = (path.to_vec(), object);
        if let Some(&at) = self.places.get(&key) {
            self.affected.paths[at].commits += 1;
        } else if self.affected.paths.len() < self.most_paths {
            self.places.insert(key, self.affected.paths.len());
            self.affected.paths.push(AffectedPath {
                commit,
                commits: 1,
                path: path.to_vec(),
                object,
            });
        } else {
            self.affected.more_paths += 1;
        }
    }
}
