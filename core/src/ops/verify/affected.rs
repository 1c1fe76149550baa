//! Finds the commits and paths that a missing or damaged object affects.

use std::collections::HashMap;

use crate::{
    base::id::{BlobId, CommitId, ObjectId, TreeId},
    format::tree::EntryKind,
    ops::verify::{Dated, Verification, VerifyError},
    repo::path::push_name,
    store::{
        ContentPlace, Marks, Prefetch, StoreError, TreeCursor, TreeWalk, UnreadNode, WalkStep,
    },
};

/// Maximum number of paths that are listed. Further paths are only counted.
pub(super) const LISTED_PATHS: usize = 1000;

/// Maximum number of paths that a repair collects. Each takes about 300 bytes of memory.
pub(crate) const REPAIRED_PATHS: usize = 1 << 18;

/// A path that a problem affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffectedPath {
    /// The newest commit in which the path is affected.
    pub commit: CommitId,
    /// Number of commits that have the path with this object.
    pub commits: u64,
    /// The path; empty for the whole snapshot.
    pub path: Vec<u8>,
    /// The missing or damaged object.
    pub object: ObjectId,
}

/// The commits and paths that problems affect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Affected commits, newest first.
    pub commits: Vec<CommitId>,
    /// Affected paths, at most `LISTED_PATHS` unless a repair requested more.
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

impl Verification<'_> {
    /// Walks all commits again, and lists the affected commits and paths in the outcome. Skips
    /// subtrees that are known to be sound.
    pub(super) fn find_affected(
        &self,
        commits: &[Dated],
        most_paths: usize,
    ) -> Result<(), VerifyError> {
        let mut search = AffectedSearch {
            run: self,
            clean: Marks::new(self.store),
            affected_folders: Marks::new(self.store),
            places: HashMap::new(),
            most_paths,
            affected: Affected::default(),
        };
        for (_, id) in commits {
            self.observer.check(VerifyError::Interrupted)?;
            if self.is_bad(&id.object()) {
                search.affected.commits.push(*id);
                continue;
            }
            let Ok(commit) = self.store.commit(id) else { continue };
            if search.tree(*id, commit.tree)? {
                search.affected.commits.push(*id);
            }
        }
        self.count(|outcome| outcome.touched = search.affected);
        Ok(())
    }
}

struct AffectedSearch<'s> {
    run: &'s Verification<'s>,
    /// Trees without problems below them.
    clean: Marks,
    /// Trees with problems below them.
    affected_folders: Marks,
    /// Maps a path and its bad object to the position in `affected.paths`.
    places: HashMap<(Vec<u8>, ObjectId), usize>,
    most_paths: usize,
    affected: Affected,
}

/// A folder that is being searched.
struct SearchedFolder {
    path_bytes: usize,
    /// The nodes of the folder around the present item, with the topmost first.
    nodes: Vec<SearchedNode>,
    has_problem: bool,
}

struct SearchedNode {
    id: TreeId,
    has_problem: bool,
}

impl SearchedFolder {
    fn new(path_bytes: usize) -> Self {
        Self { path_bytes, nodes: Vec::new(), has_problem: false }
    }

    /// Records a problem at or below the present item.
    fn add_problem(&mut self) {
        let node = self.nodes.last_mut().map(|node| &mut node.has_problem);
        *node.unwrap_or(&mut self.has_problem) = true;
    }
}

impl AffectedSearch<'_> {
    /// Searches a tree. Returns true if anything below it has a problem.
    fn tree(&mut self, commit: CommitId, root: TreeId) -> Result<bool, VerifyError> {
        let mut path = Vec::new();
        let cursor = TreeCursor::new(root, Prefetch::Nothing);
        let mut walk = TreeWalk::new(cursor, SearchedFolder::new(0));
        let mut has_problem = false;
        while let Some(step) = walk.next() {
            let open_nodes = walk.cursor().map_or(0, |cursor| cursor.open_nodes());
            if let Some(folder) = walk.tag() {
                self.close_nodes(folder, open_nodes)?;
                path.truncate(folder.path_bytes);
            }
            has_problem = match step {
                WalkStep::Enter => false,
                WalkStep::Node(node) => self.node(commit, &path, node, &mut walk)?,
                WalkStep::Entry(entry) => {
                    push_name(&mut path, entry.name.as_bytes());
                    self.entry(commit, &path, &entry.kind, &mut walk)
                }
                WalkStep::Leave(mut folder) => {
                    self.close_nodes(&mut folder, 0)?;
                    folder.has_problem
                }
            };
            if let Some(folder) = walk.tag().filter(|_| has_problem) {
                folder.add_problem();
            }
        }
        // The last step left the root.
        Ok(has_problem)
    }

    /// Opens a tree node, if the search must go below it. Returns true if the node itself has a
    /// problem, or if a problem below it is known.
    fn node(
        &mut self,
        commit: CommitId,
        path: &[u8],
        node: UnreadNode,
        walk: &mut TreeWalk<SearchedFolder>,
    ) -> Result<bool, VerifyError> {
        let id = node.id();
        if self.clean.is_marked(&id.object())? {
            return Ok(false);
        }
        // A folder with problems that many folders share is searched again under each of
        // its paths, but only until enough paths are listed. This bounds the time.
        if self.affected.paths.len() >= self.most_paths
            && self.affected_folders.is_marked(&id.object())?
        {
            self.affected.more_paths += 1;
            return Ok(true);
        }
        // Check this before reading: a bad node may be referenced many times.
        if !self.run.is_bad(&id.object()) {
            match walk.open(self.run.store, node) {
                Ok(()) => {
                    if let Some(folder) = walk.tag() {
                        folder.nodes.push(SearchedNode { id, has_problem: false });
                    }
                    return Ok(false);
                }
                // The folder is stored elsewhere, so nothing is known about it.
                Err(StoreError::Absent { .. }) => return Ok(false),
                Err(_) => {}
            }
        }
        self.add(commit, path, id.object());
        Ok(true)
    }

    /// Searches a file, or schedules a folder. Returns true if it has a problem.
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
                entered.is_err().then(|| id.object())
            }
            EntryKind::File { id, .. } => self.bad_part(*id),
            _ => None,
        };
        object.inspect(|object| self.add(commit, path, *object)).is_some()
    }

    /// Ends the search of all nodes of a folder but the first `open`.
    fn close_nodes(&self, folder: &mut SearchedFolder, open: usize) -> Result<(), VerifyError> {
        while folder.nodes.len() > open
            && let Some(SearchedNode { id, has_problem }) = folder.nodes.pop()
        {
            let known = if has_problem { &self.affected_folders } else { &self.clean };
            known.mark(&id.object())?;
            if has_problem {
                folder.add_problem();
            }
        }
        Ok(())
    }

    /// Returns the missing or damaged object of a content, if any.
    fn bad_part(&self, id: BlobId) -> Option<ObjectId> {
        if self.run.is_bad(&id.object()) {
            return Some(id.object());
        }
        let mut bad = None;
        let found = self.run.store.locate_content(&id).and_then(|place| match place {
            ContentPlace::Whole(_) => Ok(0),
            ContentPlace::Cut(_) => self.run.store.for_each_chunk(&id, &mut |chunk| {
                let chunk = chunk.id.object();
                bad = bad.or_else(|| self.run.is_bad(&chunk).then_some(chunk));
                Ok(())
            }),
        });
        match found {
            Ok(_) | Err(StoreError::Absent { .. }) => bad,
            Err(_) => Some(id.object()),
        }
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
