//! Lists the objects of some commits that are missing locally, so that a caller can fetch
//! them.
//!
//! The walk reads the structure and fetches missing parts of it. It reads no contents, but lists
//! the frames that contain them, each once. Their order is that of a restore of one commit after
//! the other.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use crate::{
    base::{
        id::{CommitId, ContentId, PackId, TreeId},
        observe::{Observer, Phase},
    },
    format::{pack::ObjectKind, tree::EntryKind},
    ops::reach::ReachError,
    repo::path::components,
    store::{
        Ancestor, Descend, Marks, ObjectLocation, Prefetch, Store, StoreError, TreeCursor,
        TreeWalk, WalkStep,
    },
};

/// A commit, and the paths in it to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    pub commit: CommitId,
    /// Paths from the root of the snapshot, each with everything below it. An empty list
    /// means the whole snapshot. Paths that the commit does not have are ignored.
    pub paths: Vec<Vec<u8>>,
}

/// Selects how far back to go in history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryDepth {
    /// All ancestors.
    #[default]
    All,
    /// At most this many generations, including the first commit.
    Commits(u64),
}

/// Returns the missing data frames of `wanted` and of the ancestors, as byte ranges of packs. The
/// same paths are fetched from each ancestor.
///
/// # Errors
/// [`ReachError`] when the structure is damaged, or cannot be fetched.
pub fn find(
    store: &Store,
    wanted: &[FetchRequest],
    depth: HistoryDepth,
    observer: &dyn Observer,
) -> Result<Vec<(PackId, Range<u64>)>, ReachError> {
    observer.phase(Phase::Structure, None);
    let mut search = AbsentSearch {
        store,
        observer,
        visited: Marks::new(store),
        frames: BTreeSet::new(),
        listed: HashSet::new(),
        absent: Vec::new(),
    };
    for FetchRequest { commit, paths } in wanted {
        let paths: Vec<Vec<&[u8]>> = paths.iter().map(|path| components(path).collect()).collect();
        search.history(*commit, &paths, depth)?;
    }
    Ok(search.absent)
}

struct AbsentSearch<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    /// Trees that were walked completely, contents, and parts of their lists.
    visited: Marks,
    /// Frames of the contents of the current commit, by pack and frame number.
    frames: BTreeSet<(u32, u32)>,
    /// Frames of all commits that were walked.
    listed: HashSet<(u32, u32)>,
    absent: Vec<(PackId, Range<u64>)>,
}

impl AbsentSearch<'_> {
    /// Walks the history generation by generation.
    fn history(
        &mut self,
        start: CommitId,
        paths: &[Vec<&[u8]>],
        depth: HistoryDepth,
    ) -> Result<(), ReachError> {
        let mut visited = HashSet::from([start]);
        let mut generation = vec![start];
        let mut number = 0;
        while !generation.is_empty()
            && (depth == HistoryDepth::All || HistoryDepth::Commits(number) != depth)
        {
            number += 1;
            self.store.prefetch_objects(&mut generation.iter().map(|id| id.object()));
            let mut before = Vec::new();
            for id in generation {
                let Ancestor { commit, is_forgotten } = match id == start {
                    true => Ancestor { commit: self.store.commit(&id)?, is_forgotten: false },
                    false => self.store.ancestor(&id)?,
                };
                if !is_forgotten {
                    self.tree(commit.tree, paths)?;
                    self.list_frames()?;
                }
                before.extend(commit.parents.into_iter().filter(|id| visited.insert(*id)));
            }
            generation = before;
        }
        Ok(())
    }

    fn tree(&mut self, root: TreeId, paths: &[Vec<&[u8]>]) -> Result<(), ReachError> {
        let of_root: Vec<&[&[u8]]> = match paths.iter().any(Vec::is_empty) {
            true => Vec::new(),
            false => paths.iter().map(Vec::as_slice).collect(),
        };
        // The tag of a folder is the rest of the wanted paths in it. An empty list means
        // everything.
        let mut walk = TreeWalk::new(TreeCursor::new(root, Prefetch::Nodes), of_root);
        while let Some(step) = walk.next() {
            let WalkStep::Node(node) = step else { continue };
            self.observer.check()?;
            let paths = walk.tag().cloned().unwrap_or_default();
            if paths.is_empty() && !self.visited.mark(&node.id().object())? {
                continue;
            }
            for entry in walk.read(self.store, node)? {
                let Some(below) = wanted_of(&paths, entry.name.as_bytes()) else { continue };
                match entry.kind {
                    EntryKind::Folder { id } => walk.enter(id, below)?,
                    // A wanted path that continues below a file does not exist.
                    EntryKind::File { id, size }
                        if below.is_empty() && size > 0 && self.visited.mark(&id.object())? =>
                    {
                        self.content(&id)?;
                    }
                    _ => {}
                }
            }
            self.store.prefetch_objects(&mut walk.scheduled());
            self.observer.advance(1, 0);
        }
        Ok(())
    }

    fn content(&mut self, id: &ContentId) -> Result<(), ReachError> {
        let (store, observer, visited) = (self.store, self.observer, &self.visited);
        let mut add = |place: ObjectLocation| {
            self.frames.insert((place.pack, place.frame));
        };
        match id {
            ContentId::Blob(_) => add(store.locate_content(id)?),
            ContentId::Chunked(list) => {
                store.for_each_named::<ReachError>(list, &mut |id, kind| {
                    observer.check()?;
                    if kind == ObjectKind::ListPart && !visited.mark(&id)? {
                        return Ok(Descend::Skip);
                    }
                    add(store.locate_kind(id, kind)?);
                    Ok(Descend::Enter)
                })?;
            }
        }
        Ok(())
    }

    /// Appends the frames of the present commit that are new and missing locally.
    fn list_frames(&mut self) -> Result<(), StoreError> {
        for (pack, number) in std::mem::take(&mut self.frames) {
            if !self.listed.insert((pack, number)) {
                continue;
            }
            let file = self.store.pack(pack)?;
            let frame = file.frame(number)?;
            if !file.is_here(frame)? {
                self.absent.push((file.id(), frame.range()));
            }
        }
        Ok(())
    }
}

/// Returns the rest of the wanted paths below an entry. Returns `None` if the entry is not wanted,
/// and an empty list if everything below it is wanted.
fn wanted_of<'p>(paths: &[&'p [&'p [u8]]], name: &[u8]) -> Option<Vec<&'p [&'p [u8]]>> {
    if paths.is_empty() {
        return Some(Vec::new());
    }
    let below: Vec<&[&[u8]]> = paths
        .iter()
        .filter_map(|path| path.split_first().filter(|(first, _)| **first == name))
        .map(|(_, rest)| rest)
        .collect();
    match below.iter().any(|rest| rest.is_empty()) {
        true => Some(Vec::new()),
        false if below.is_empty() => None,
        false => Some(below),
    }
}
