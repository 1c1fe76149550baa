//! The matches of the present commit, updated from one commit to the next.
//!
//! Only folders that contain matches, now or in an earlier commit, are held. Each has its tree and,
//! if the tree is split, its leaves. In the next commit, a folder with the same tree is skipped
//! with everything in it. A tree is also skipped if it is known to be bare: it has no match for the
//! remaining parts of the pattern. This knowledge takes one bit for each object, and a small table
//! of recent answers. A tree is therefore read once and rarely again.
//!
//! Memory has a limit, since a small pack can describe a tree of any size. Folders are
//! read in the order of their paths. When the limit is exceeded, the last paths are
//! dropped, and the [`KeyWindow`] of this pass ends before them. The next window starts
//! there, with the newest commit again.

mod bare;
mod matches;
mod window;

use std::collections::{HashMap, HashSet};

use crate::{
    base::{
        id::{CommitId, TreeId},
        name::EntryName,
        observe::Observer,
    },
    format::{
        commit::Commit,
        tree::{Entry, EntryKind},
    },
    ops::find::{
        CommitStamp, FoundPath, KindFilter, LinePosition,
        pattern::{NamePattern, PartSet},
        present::{bare::NoMatchCache, matches::Matches, window::KeyWindow},
    },
    repo::{past::PastError, path::push_name},
    store::{Store, TreeListing, check_depth},
};

const TOP: usize = 0;

/// Approximate size of a folder in bytes, without its name.
const FOLDER_BYTES: usize = 512;

/// A folder that contains matches, now or in an earlier commit.
#[derive(Debug, Default)]
struct MatchFolder {
    /// Index of the parent folder, and the name in it.
    above: usize,
    name: Option<EntryName>,
    depth: usize,
    /// Its tree; `None` if the present commit does not have the folder.
    tree: Option<TreeId>,
    /// The leaves of the tree, if it is split.
    leaves: Vec<TreeId>,
    /// All matching paths and all folders with matches that this folder ever contained, by name.
    paths: HashMap<EntryName, usize>,
    folders: HashMap<EntryName, usize>,
    /// Paths and folders in the present commit, each with the index of its leaf.
    live: Vec<(usize, usize)>,
    inside: Vec<(usize, usize)>,
    /// Number of the last commit that contains the folder.
    seen: u64,
}

/// What a folder had in the previous commit.
struct FormerMatches {
    /// Paths and folders, each with the index of its leaf.
    live: Vec<(usize, usize)>,
    inside: Vec<(usize, usize)>,
    /// The leaves that did not change.
    kept: HashSet<TreeId>,
}

impl MatchFolder {
    fn is_bare(&self) -> bool {
        self.live.is_empty() && self.inside.is_empty()
    }

    /// Returns the approximate size in bytes.
    fn bytes(&self) -> usize {
        FOLDER_BYTES + self.name.as_ref().map_or(0, |name| name.as_bytes().len())
    }
}

#[derive(Clone, Copy, Debug)]
enum UpdateTask {
    /// Read the folder's tree and update its matches.
    Read(usize, TreeId, PartSet),
    /// Everything in the folder has been read: drop subfolders without matches.
    Settle(usize, PartSet),
}

impl UpdateTask {
    fn folder(self) -> usize {
        match self {
            Self::Read(folder, ..) | Self::Settle(folder, _) => folder,
        }
    }
}

/// An item of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OutputItem {
    Path(usize),
    Inside(usize),
}

/// An item of the output that waits on the stack.
struct WaitingItem<'n> {
    shown: OutputItem,
    name: &'n EntryName,
    /// Length in bytes of the path of the folder that contains the item.
    above_bytes: usize,
}

/// The matches of the present commit and of all earlier ones.
pub(super) struct LiveMatches<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    pattern: NamePattern,
    wanted: Option<KindFilter>,
    folders: Vec<MatchFolder>,
    free: Vec<usize>,
    matches: Matches,
    bare: NoMatchCache,
    window: KeyWindow,
    /// Approximate number of bytes that may be held.
    limit_bytes: usize,
    /// Approximate size of all folders in bytes.
    folder_bytes: usize,
    tasks: Vec<UpdateTask>,
    /// Tasks for the subfolders of the folder that is being read.
    below: Vec<UpdateTask>,
    commit: Option<CommitId>,
    trees: u64,
}

impl<'a> LiveMatches<'a> {
    pub(super) fn new(
        store: &'a Store,
        pattern: NamePattern,
        wanted: Option<KindFilter>,
        limit_bytes: usize,
        observer: &'a dyn Observer,
    ) -> Self {
        Self {
            store,
            observer,
            pattern,
            wanted,
            folders: vec![MatchFolder::default()],
            free: Vec::new(),
            matches: Matches::default(),
            bare: NoMatchCache::default(),
            window: KeyWindow::default(),
            limit_bytes,
            folder_bytes: 0,
            tasks: Vec::new(),
            below: Vec::new(),
            commit: None,
            trees: 0,
        }
    }

    /// Drops the results and moves to the next window of paths. Returns false if there is
    /// none.
    pub(super) fn next_window(&mut self) -> bool {
        self.folders = vec![MatchFolder::default()];
        self.free = Vec::new();
        self.folder_bytes = 0;
        self.matches = Matches::default();
        self.commit = None;
        self.window.next()
    }

    /// Moves to the next commit. Returns the number of tree nodes that were read.
    pub(super) fn advance(
        &mut self,
        id: CommitId,
        commit: &Commit,
        place: LinePosition,
    ) -> Result<u64, PastError> {
        self.matches.go_to(CommitStamp { id, time: commit.time }, place);
        self.commit = Some(id);
        self.trees = 0;
        let start = self.pattern.start();
        self.tasks.push(UpdateTask::Read(TOP, commit.tree, start));
        while let Some(task) = self.tasks.pop() {
            match task {
                UpdateTask::Read(folder, tree, ways) => self.read(folder, tree, ways)?,
                UpdateTask::Settle(folder, ways) => self.settle(folder, ways)?,
            }
            self.trim();
        }
        Ok(self.trees)
    }

    /// Passes everything that was found to `each`, sorted by path.
    pub(super) fn finish<E>(
        &mut self,
        each: &mut dyn FnMut(&FoundPath) -> Result<(), E>,
    ) -> Result<(), E> {
        self.matches.finish();
        let mut path = Vec::new();
        let mut waiting = Vec::new();
        self.put_inside(TOP, 0, &mut waiting);
        while let Some(WaitingItem { shown, name, above_bytes }) = waiting.pop() {
            path.truncate(above_bytes);
            push_name(&mut path, name.as_bytes());
            match shown {
                OutputItem::Path(found) => each(&self.matches.found(found, &path))?,
                OutputItem::Inside(folder) => self.put_inside(folder, path.len(), &mut waiting),
            }
        }
        Ok(())
    }

    /// Pushes the contents of a folder on a stack, with the first name on top. For each
    /// name, a match comes before the folder's contents.
    fn put_inside<'s>(
        &'s self,
        folder: usize,
        above_bytes: usize,
        waiting: &mut Vec<WaitingItem<'s>>,
    ) {
        let folder = &self.folders[folder];
        let from = waiting.len();
        let paths = folder.paths.iter().map(|(name, found)| (OutputItem::Path(*found), name));
        let inside = folder.folders.iter().map(|(name, below)| (OutputItem::Inside(*below), name));
        let items = paths.chain(inside);
        waiting.extend(items.map(|(shown, name)| WaitingItem { shown, name, above_bytes }));
        waiting[from..].sort_unstable_by_key(|item| std::cmp::Reverse((item.name, item.shown)));
    }

    /// Drops the last paths if matches and folders take more memory than the limit.
    fn trim(&mut self) {
        if self.matches.bytes() + self.folder_bytes <= self.limit_bytes {
            return;
        }
        let (mut gone_paths, mut gone_folders) = (HashSet::new(), HashSet::new());
        let (mut kept, mut kept_bytes, mut end) = (0_u64, 0, None);
        let (mut key, mut waiting) = (Vec::new(), Vec::new());
        self.put_inside(TOP, 0, &mut waiting);
        while let Some(WaitingItem { shown, name, above_bytes }) = waiting.pop() {
            key.truncate(above_bytes);
            key.extend_from_slice(name.as_bytes());
            let bytes = match shown {
                OutputItem::Path(found) => self.matches.bytes_of(found),
                OutputItem::Inside(_) => {
                    key.push(0);
                    FOLDER_BYTES
                }
            } + name.as_bytes().len();
            if end.is_none() && !self.window.is_before(&key) {
                // Keep only half of the limit, so that trimming is rare.
                match kept > 0 && kept_bytes + bytes > self.limit_bytes / 2 {
                    true => end = Some(key.clone()),
                    false => (kept, kept_bytes) = (kept + 1, kept_bytes + bytes),
                }
            }
            match shown {
                OutputItem::Path(found) if end.is_some() => drop(gone_paths.insert(found)),
                OutputItem::Path(_) => {}
                OutputItem::Inside(folder) => {
                    if end.is_some() {
                        gone_folders.insert(folder);
                    }
                    self.put_inside(folder, key.len(), &mut waiting);
                }
            }
        }
        let Some(end) = end else { return };
        self.window.end_before(end);
        // Remove all references before the indices are reused.
        for folder in &mut self.folders {
            folder.paths.retain(|_, found| !gone_paths.contains(found));
            folder.live.retain(|(found, _)| !gone_paths.contains(found));
            folder.folders.retain(|_, inside| !gone_folders.contains(inside));
            folder.inside.retain(|(inside, _)| !gone_folders.contains(inside));
        }
        gone_paths.iter().for_each(|found| self.matches.remove(*found));
        for folder in &gone_folders {
            self.free(*folder);
        }
        self.tasks.retain(|task| !gone_folders.contains(&task.folder()));
        self.below.retain(|task| !gone_folders.contains(&task.folder()));
    }

    fn free(&mut self, number: usize) {
        let folder = std::mem::take(&mut self.folders[number]);
        self.folder_bytes -= folder.bytes();
        self.free.push(number);
    }

    /// Returns the prefix of the keys of everything in a folder: the names on the way to
    /// it, each followed by a NUL, which no name contains.
    fn key(&self, folder: usize) -> Vec<u8> {
        self.names(folder).iter().flat_map(|name| [name, &[0][..]]).flatten().copied().collect()
    }

    fn path(&self, folder: usize) -> Vec<u8> {
        self.names(folder).join(&b'/')
    }

    /// Returns the names on the way from the root to a folder.
    fn names(&self, mut folder: usize) -> Vec<&[u8]> {
        let mut names = Vec::new();
        while let Some(name) = &self.folders[folder].name {
            names.push(name.as_bytes());
            folder = self.folders[folder].above;
        }
        names.reverse();
        names
    }

    fn read(&mut self, number: usize, tree: TreeId, ways: PartSet) -> Result<(), PastError> {
        if self.folders[number].tree == Some(tree) {
            return Ok(());
        }
        self.observer.check(PastError::Interrupted)?;
        let commit = self.commit.expect("a folder is read for a commit");
        check_depth(self.folders[number].depth, tree)
            .map_err(|error| PastError::at(&self.path(number), commit)(error))?;
        self.tasks.push(UpdateTask::Settle(number, ways));
        if self.bare.has(ways, &tree)? {
            self.leave(number);
            self.folders[number].tree = Some(tree);
            return Ok(());
        }
        let listing = TreeListing::of(self.store, tree);
        let listing = listing.map_err(|error| PastError::at(&self.path(number), commit)(error))?;
        self.trees += listing.nodes().len() as u64;
        let leaves: Vec<TreeId> = listing.leaves().iter().map(|leaf| leaf.id()).collect();
        let FormerMatches { live: old_live, inside: old_inside, kept } = self.keep(number, &leaves);
        let key = self.key(number);
        for (at, leaf) in listing.into_leaves().into_iter().enumerate() {
            let (first, end) = leaf.bounds();
            if kept.contains(&leaf.id()) || !self.window.has_leaf(&key, first, end) {
                continue;
            }
            self.trees += 1;
            let entries = leaf.into_entries(self.store);
            let entries =
                entries.map_err(|error| PastError::at(&self.path(number), commit)(error))?;
            for entry in entries {
                self.add_match(number, at, &key, &entry, ways)?;
            }
            self.trim();
            if !self.window.has_inside(&key) {
                // The window ends before this folder's remaining leaves. The folder
                // itself may have been dropped, so leave it as it is.
                self.below.clear();
                return Ok(());
            }
        }
        // The first subfolder goes on top of the stack.
        self.tasks.extend(self.below.drain(..).rev());
        for (found, _) in old_live {
            self.matches.close_unless_seen(found);
        }
        for (inside, _) in old_inside {
            if self.folders[inside].seen != self.matches.now() {
                self.leave(inside);
            }
        }
        let folder = &mut self.folders[number];
        folder.tree = Some(tree);
        folder.leaves = leaves;
        Ok(())
    }

    /// Keeps the matches in leaves that did not change. Returns what the folder had before.
    fn keep(&mut self, number: usize, leaves: &[TreeId]) -> FormerMatches {
        let folder = &mut self.folders[number];
        let (live, inside) = (std::mem::take(&mut folder.live), std::mem::take(&mut folder.inside));
        let before = std::mem::take(&mut folder.leaves);
        let new: HashMap<&TreeId, usize> =
            leaves.iter().enumerate().map(|(at, id)| (id, at)).collect();
        let kept: HashSet<TreeId> =
            before.iter().filter(|id| new.contains_key(id)).copied().collect();
        if kept.is_empty() {
            return FormerMatches { live, inside, kept };
        }
        let moved = |(what, leaf): &(usize, usize)| Some((*what, *new.get(before.get(*leaf)?)?));
        let (still, within): (Vec<_>, Vec<_>) =
            (live.iter().filter_map(moved).collect(), inside.iter().filter_map(moved).collect());
        still.iter().for_each(|(found, _)| self.matches.see(*found));
        within.iter().for_each(|(inside, _)| self.folders[*inside].seen = self.matches.now());
        let folder = &mut self.folders[number];
        (folder.live, folder.inside) = (still, within);
        FormerMatches { live, inside, kept }
    }

    /// Records an entry of the folder `number` if it matches, and schedules a folder that may
    /// contain matches. `key` is the key of the folder, and `at` the index of the entry's leaf.
    fn add_match(
        &mut self,
        number: usize,
        at: usize,
        key: &[u8],
        entry: &Entry,
        ways: PartSet,
    ) -> Result<(), PastError> {
        let step = self.pattern.step(ways, entry.name.as_bytes());
        let (has_path, has_inside) = self.window.has(key, &entry.name);
        let is_wanted = self.wanted.is_none_or(|wanted| wanted.has(&entry.kind));
        if step.matches && is_wanted && has_path {
            let known = self.folders[number].paths.get(&entry.name).copied();
            let found = known.unwrap_or_else(|| {
                let found = self.matches.add();
                self.folders[number].paths.insert(entry.name.clone(), found);
                found
            });
            if self.matches.meet(found, entry) {
                self.folders[number].live.push((found, at));
            }
        }
        let EntryKind::Folder { id } = entry.kind else { return Ok(()) };
        if step.below == 0 || !has_inside {
            return Ok(());
        }
        let inside = match self.folders[number].folders.get(&entry.name) {
            Some(inside) => *inside,
            None if self.bare.has(step.below, &id)? => return Ok(()),
            None => self.add_folder(number, &entry.name),
        };
        let folder = &mut self.folders[inside];
        if std::mem::replace(&mut folder.seen, self.matches.now()) != self.matches.now() {
            if folder.tree != Some(id) {
                self.below.push(UpdateTask::Read(inside, id, step.below));
            }
            self.folders[number].inside.push((inside, at));
        }
        Ok(())
    }

    fn add_folder(&mut self, above: usize, name: &EntryName) -> usize {
        let depth = self.folders[above].depth + 1;
        let folder =
            MatchFolder { above, name: Some(name.clone()), depth, ..MatchFolder::default() };
        self.folder_bytes += folder.bytes();
        let number = match self.free.pop() {
            Some(number) => {
                self.folders[number] = folder;
                number
            }
            None => {
                self.folders.push(folder);
                self.folders.len() - 1
            }
        };
        self.folders[above].folders.insert(name.clone(), number);
        number
    }

    /// Drops subfolders that contain no match, and remembers a bare tree.
    fn settle(&mut self, number: usize, ways: PartSet) -> Result<(), PastError> {
        let mut inside = std::mem::take(&mut self.folders[number].inside);
        inside.retain(|(below, _)| {
            let folder = &mut self.folders[*below];
            if !folder.is_bare() {
                return true;
            }
            if folder.paths.is_empty() && folder.folders.is_empty() {
                let name = folder.name.clone().expect("a folder in another has a name");
                self.folder_bytes -= std::mem::take(folder).bytes();
                self.folders[number].folders.remove(&name);
                self.free.push(*below);
            }
            false
        });
        let folder = &mut self.folders[number];
        folder.inside = inside;
        match folder.tree {
            Some(tree) if folder.is_bare() => {
                if self.window.has_all_inside(&self.key(number)) {
                    self.bare.add(self.store, ways, &tree)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records that the present commit does not have a folder.
    fn leave(&mut self, number: usize) {
        let mut waiting = vec![number];
        while let Some(number) = waiting.pop() {
            let folder = &mut self.folders[number];
            folder.tree = None;
            folder.leaves.clear();
            waiting.extend(folder.inside.drain(..).map(|(inside, _)| inside));
            for (found, _) in folder.live.drain(..) {
                self.matches.close(found);
            }
        }
    }
}
