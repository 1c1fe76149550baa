//! What of some commits is not here: for those who fetch it, all or in part.
//!
//! The structure is walked, and comes on the way where it lies elsewhere. Of
//! the contents nothing is read: the frames that have them are listed, each
//! once, in the order in which a restore of one commit after the other would
//! read them.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use crate::{
    base::{
        id::{BlobId, CommitId, ObjectId, PackId, TreeId},
        limits,
        observe::{Observer, Phase},
    },
    format::{
        pack::ObjectKind,
        tree::{Entry, Kind, Node},
    },
    ops::reach::ReachError,
    repo::path::components,
    store::{Content, Marks, Store, StoreError},
};

/// A commit, and what of it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub commit: CommitId,
    /// Paths from the top of the snapshot, each with all that is below it;
    /// none for everything. A path that a commit does not have is passed over.
    pub paths: Vec<Vec<u8>>,
}

/// How far back to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// All commits before.
    #[default]
    All,
    /// So many commits of each line, the first one included.
    Commits(u64),
}

/// Finds the data frames that `wanted` needs and that are not here. The commits
/// before need the same paths.
///
/// # Errors
/// [`ReachError`] when the structure is damaged, or lies elsewhere and cannot
/// be fetched.
pub fn find(
    store: &Store,
    wanted: &[Wanted],
    depth: Depth,
    observer: &dyn Observer,
) -> Result<Vec<(PackId, Range<u64>)>, ReachError> {
    observer.phase(Phase::Structure, None);
    let mut search = Search {
        store,
        observer,
        met: Marks::new(store),
        frames: BTreeSet::new(),
        listed: HashSet::new(),
        absent: Vec::new(),
    };
    for Wanted { commit, paths } in wanted {
        let paths: Vec<Vec<&[u8]>> = paths.iter().map(|path| components(path).collect()).collect();
        search.history(*commit, &paths, depth)?;
    }
    Ok(search.absent)
}

struct Search<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    /// Trees of which everything was wanted, and contents.
    met: Marks,
    /// Frames of the present commit, by pack and number.
    frames: BTreeSet<(u32, u32)>,
    /// Those of all commits.
    listed: HashSet<(u32, u32)>,
    absent: Vec<(PackId, Range<u64>)>,
}

/// A folder to be entered, and what is wanted of it: what remains of paths,
/// or everything when there is none.
type Folder<'p> = (TreeId, usize, Vec<&'p [&'p [u8]]>);

impl Search<'_> {
    /// Generation by generation.
    fn history(
        &mut self,
        start: CommitId,
        paths: &[Vec<&[u8]>],
        depth: Depth,
    ) -> Result<(), ReachError> {
        let mut met = HashSet::from([start]);
        let mut generation = vec![start];
        let mut number = 0;
        while !generation.is_empty() && (depth == Depth::All || Depth::Commits(number) != depth) {
            number += 1;
            self.store.will_need_objects(&mut generation.iter().map(|id| id.object()));
            let mut before = Vec::new();
            for id in generation {
                let commit = self.store.commit(&id)?;
                self.tree(commit.tree, paths)?;
                self.list_frames()?;
                before.extend(commit.parents.into_iter().filter(|id| met.insert(*id)));
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
        let mut waiting: Vec<Folder<'_>> = vec![(root, 0, of_root)];
        while let Some((id, depth, paths)) = waiting.pop() {
            if self.observer.cancelled() {
                return Err(ReachError::Interrupted);
            }
            if depth > limits::DEPTH * usize::from(limits::TREE_NODE_LEVELS) {
                return Err(ReachError::Depth { id: id.object() });
            }
            if paths.is_empty() && !self.met.mark(&id.object())? {
                continue;
            }
            match self.store.tree(&id)? {
                Node::Leaf { entries, .. } => {
                    let first = waiting.len();
                    for entry in entries {
                        if let Some(below) = wanted_of(&paths, entry.name.as_bytes()) {
                            self.entry(&entry, depth, below, &mut waiting)?;
                        }
                    }
                    let mut trees = waiting[first..].iter().map(|(id, ..)| id.object());
                    self.store.will_need_objects(&mut trees);
                    drop(trees);
                    waiting[first..].reverse();
                }
                Node::Inner { children, .. } => {
                    let mut trees = children.iter().map(|child| child.id.object());
                    self.store.will_need_objects(&mut trees);
                    let below = children.iter().rev();
                    waiting.extend(below.map(|child| (child.id, depth + 1, paths.clone())));
                }
            }
            self.observer.advance(1, 0);
        }
        Ok(())
    }

    fn entry<'p>(
        &mut self,
        entry: &Entry,
        depth: usize,
        below: Vec<&'p [&'p [u8]]>,
        waiting: &mut Vec<Folder<'p>>,
    ) -> Result<(), ReachError> {
        match entry.kind {
            Kind::Folder { id } => waiting.push((id, depth + 1, below)),
            // A path that goes on below a file is not there.
            Kind::File { id, size }
                if below.is_empty() && size > 0 && self.met.mark(&id.object())? =>
            {
                self.content(&id)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn content(&mut self, id: &BlobId) -> Result<(), StoreError> {
        match self.store.content(id)? {
            Content::Whole(place) => drop(self.frames.insert((place.pack, place.frame))),
            Content::Chunks(chunks) => {
                for chunk in chunks {
                    self.object(chunk.id.object())?;
                }
            }
        }
        Ok(())
    }

    fn object(&mut self, id: ObjectId) -> Result<(), StoreError> {
        let missing = StoreError::Missing { id, wanted: ObjectKind::Blob };
        let place = self.store.locate(&id)?.ok_or(missing)?;
        self.frames.insert((place.pack, place.frame));
        Ok(())
    }

    /// Lists those frames of the present commit that are new and not here.
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

/// What is wanted below an entry: `None` when it is not wanted, nothing more
/// said when all of it is.
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
