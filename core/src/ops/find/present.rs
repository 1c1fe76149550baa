//! What of the present commit matches, kept up to date from one commit to the
//! next.
//!
//! Only folders with matches in them, now or in a commit before, are held,
//! each with its tree (and the leaves of a split one). In the next commit a
//! folder with the same tree is passed over with all that is in it, and so is
//! a tree that is known to be bare: without a match for the parts that remain
//! of the pattern. That is one bit for each object, and a small table of those
//! asked for last. A tree is thus read when it is new, and hardly ever again.
//!
//! What is held has a limit, since a small pack can describe a tree of any size.
//! Folders are read in the order of their paths, and beyond the limit the last
//! paths are dropped: the [`Window`] of paths that is looked at ends before
//! them. The next window begins there, with the newest commit again.

mod bare;
mod matches;
mod window;

use std::collections::{HashMap, HashSet};

use crate::{
    base::{
        id::{CommitId, TreeId},
        limits,
        name::EntryName,
        observe::Observer,
    },
    format::{
        commit::Commit,
        tree::{Entry, Kind},
    },
    ops::find::{
        Found, Place, Stamp, Wanted,
        pattern::{Pattern, Ways},
        present::{bare::Bare, matches::Matches, window::Window},
    },
    repo::past::{PastError, shown},
    store::{Listing, Store},
};

const TOP: usize = 0;

/// About how many bytes a folder takes, beside its name.
const FOLDER_BYTES: usize = 512;

/// A folder with matches in it, now or before.
#[derive(Debug, Default)]
struct Folder {
    /// The one above, and its name in there.
    above: usize,
    name: Option<EntryName>,
    depth: usize,
    /// Its tree; `None` when the present commit does not have it.
    tree: Option<TreeId>,
    /// The tree's leaves, if it is split.
    leaves: Vec<TreeId>,
    /// Paths that match, and folders with some, whether they are there or not.
    paths: HashMap<EntryName, usize>,
    folders: HashMap<EntryName, usize>,
    /// Those that are there, with the number of their leaf.
    live: Vec<(usize, usize)>,
    inside: Vec<(usize, usize)>,
    /// Number of the commit in which it was met last.
    seen: u64,
}

impl Folder {
    fn is_bare(&self) -> bool {
        self.live.is_empty() && self.inside.is_empty()
    }

    /// About how many bytes it takes.
    fn bytes(&self) -> usize {
        FOLDER_BYTES + self.name.as_ref().map_or(0, |name| name.as_bytes().len())
    }
}

#[derive(Clone, Copy, Debug)]
enum Task {
    /// Take over what the folder has now.
    Read(usize, TreeId, Ways),
    /// All that is in it has been read.
    Settle(usize, Ways),
}

impl Task {
    fn folder(self) -> usize {
        match self {
            Self::Read(folder, ..) | Self::Settle(folder, _) => folder,
        }
    }
}

/// What is handed out at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Path(usize),
    Inside(usize),
}

/// What of the present commit matches, and all that did before.
pub(super) struct Present<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    pattern: Pattern,
    wanted: Option<Wanted>,
    folders: Vec<Folder>,
    free: Vec<usize>,
    matches: Matches,
    bare: Bare,
    window: Window,
    /// About how many bytes may be held.
    limit_bytes: usize,
    /// About how many bytes the folders take.
    folder_bytes: usize,
    tasks: Vec<Task>,
    /// Of the folder that is being read: what is to be done for those in it.
    below: Vec<Task>,
    commit: Option<CommitId>,
    trees: u64,
}

impl<'a> Present<'a> {
    pub(super) fn new(
        store: &'a Store,
        pattern: Pattern,
        wanted: Option<Wanted>,
        limit_bytes: usize,
        observer: &'a dyn Observer,
    ) -> Self {
        Self {
            store,
            observer,
            pattern,
            wanted,
            folders: vec![Folder::default()],
            free: Vec::new(),
            matches: Matches::default(),
            bare: Bare::default(),
            window: Window::default(),
            limit_bytes,
            folder_bytes: 0,
            tasks: Vec::new(),
            below: Vec::new(),
            commit: None,
            trees: 0,
        }
    }

    /// Goes on to the next window of paths, and forgets what was in this one.
    /// Returns whether there is one.
    pub(super) fn next_window(&mut self) -> bool {
        self.folders = vec![Folder::default()];
        self.free = Vec::new();
        self.folder_bytes = 0;
        self.matches = Matches::default();
        self.commit = None;
        self.window.next()
    }

    /// Goes on to the next commit. Returns how many nodes of trees were read.
    pub(super) fn advance(
        &mut self,
        (id, commit): (CommitId, &Commit),
        place: Place,
    ) -> Result<u64, PastError> {
        self.matches.go_to(Stamp { id, time: commit.time }, place);
        self.commit = Some(id);
        self.trees = 0;
        let start = self.pattern.start();
        self.tasks.push(Task::Read(TOP, commit.tree, start));
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Read(folder, tree, ways) => self.read(folder, tree, ways)?,
                Task::Settle(folder, ways) => self.settle(folder, ways)?,
            }
            self.trim();
        }
        Ok(self.trees)
    }

    /// Hands out all that was found, sorted by path.
    pub(super) fn finish<E>(
        &mut self,
        each: &mut dyn FnMut(&Found) -> Result<(), E>,
    ) -> Result<(), E> {
        self.matches.finish();
        let mut path = Vec::new();
        let mut waiting = Vec::new();
        self.put_inside(TOP, 0, &mut waiting);
        while let Some((shown, name, above_bytes)) = waiting.pop() {
            path.truncate(above_bytes);
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            match shown {
                Shown::Path(found) => each(&self.matches.found(found, &path))?,
                Shown::Inside(folder) => self.put_inside(folder, path.len(), &mut waiting),
            }
        }
        Ok(())
    }

    /// Puts what is in a folder on a stack, the first name on top: what matches,
    /// then what is in it.
    fn put_inside<'s>(
        &'s self,
        folder: usize,
        above_bytes: usize,
        waiting: &mut Vec<(Shown, &'s EntryName, usize)>,
    ) {
        let folder = &self.folders[folder];
        let from = waiting.len();
        let paths = folder.paths.iter().map(|(name, found)| (Shown::Path(*found), name));
        let inside = folder.folders.iter().map(|(name, below)| (Shown::Inside(*below), name));
        waiting.extend(paths.chain(inside).map(|(shown, name)| (shown, name, above_bytes)));
        waiting[from..].sort_unstable_by_key(|(shown, name, _)| std::cmp::Reverse((*name, *shown)));
    }

    /// Drops the last paths when more is held than may be.
    fn trim(&mut self) {
        if self.matches.bytes() + self.folder_bytes <= self.limit_bytes {
            return;
        }
        let (mut gone_paths, mut gone_folders) = (HashSet::new(), HashSet::new());
        let (mut kept, mut kept_bytes, mut end) = (0_u64, 0, None);
        let (mut key, mut waiting) = (Vec::new(), Vec::new());
        self.put_inside(TOP, 0, &mut waiting);
        while let Some((shown, name, above_bytes)) = waiting.pop() {
            key.truncate(above_bytes);
            key.extend_from_slice(name.as_bytes());
            let bytes = match shown {
                Shown::Path(found) => self.matches.bytes_of(found),
                Shown::Inside(_) => {
                    key.push(0);
                    FOLDER_BYTES
                }
            } + name.as_bytes().len();
            if end.is_none() && !self.window.is_before(&key) {
                // Half of it, so that this is not done for each path.
                match kept > 0 && kept_bytes + bytes > self.limit_bytes / 2 {
                    true => end = Some(key.clone()),
                    false => (kept, kept_bytes) = (kept + 1, kept_bytes + bytes),
                }
            }
            match shown {
                Shown::Path(found) if end.is_some() => drop(gone_paths.insert(found)),
                Shown::Path(_) => {}
                Shown::Inside(folder) => {
                    if end.is_some() {
                        gone_folders.insert(folder);
                    }
                    self.put_inside(folder, key.len(), &mut waiting);
                }
            }
        }
        let Some(end) = end else { return };
        self.window.end_before(end);
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

    /// What the keys of all that is in a folder begin with: the names above it,
    /// each with a NUL behind it, which no name has.
    fn key(&self, mut number: usize) -> Vec<u8> {
        let mut names = Vec::new();
        while let Some(name) = &self.folders[number].name {
            names.extend([&[0], name.as_bytes()]);
            number = self.folders[number].above;
        }
        names.reverse();
        names.concat()
    }

    fn path(&self, mut folder: usize) -> Vec<u8> {
        let mut names = Vec::new();
        while let Some(name) = &self.folders[folder].name {
            names.push(name.as_bytes());
            folder = self.folders[folder].above;
        }
        names.reverse();
        names.join(&b'/')
    }

    fn read(&mut self, number: usize, tree: TreeId, ways: Ways) -> Result<(), PastError> {
        if self.folders[number].tree == Some(tree) {
            return Ok(());
        }
        if self.observer.cancelled() {
            return Err(PastError::Interrupted);
        }
        let commit = self.commit.expect("a folder is read for a commit");
        if self.folders[number].depth > limits::DEPTH {
            return Err(PastError::TooDeep { path: shown(&self.path(number)), commit });
        }
        self.tasks.push(Task::Settle(number, ways));
        if self.bare.has(ways, &tree)? {
            self.leave(number);
            self.folders[number].tree = Some(tree);
            return Ok(());
        }
        let listing = Listing::of(self.store, tree);
        let listing = listing.map_err(|error| PastError::at(&self.path(number), commit)(error))?;
        self.trees += listing.nodes().len() as u64;
        let leaves: Vec<TreeId> = listing.leaves().iter().map(|leaf| leaf.id()).collect();
        let (old_live, old_inside, kept) = self.keep(number, &leaves);
        let key = self.key(number);
        for (at, leaf) in listing.into_leaves().into_iter().enumerate() {
            if kept.contains(&leaf.id()) || !self.window.has_leaf(&key, leaf.bounds()) {
                continue;
            }
            self.trees += 1;
            let entries = leaf.into_entries(self.store);
            let entries =
                entries.map_err(|error| PastError::at(&self.path(number), commit)(error))?;
            for entry in entries {
                self.meet((number, at), (&key, &entry), ways)?;
            }
            self.trim();
            if !self.window.has_inside(&key) {
                // What was found before it is enough; the folder is dropped, too.
                self.below.clear();
                return Ok(());
            }
        }
        // The first is on top.
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

    /// Keeps what is in leaves that are still there. Returns what was in the
    /// folder before, and those leaves.
    #[expect(clippy::type_complexity, reason = "two lists and a set, taken apart at once")]
    fn keep(
        &mut self,
        number: usize,
        leaves: &[TreeId],
    ) -> (Vec<(usize, usize)>, Vec<(usize, usize)>, HashSet<TreeId>) {
        let folder = &mut self.folders[number];
        let (live, inside) = (std::mem::take(&mut folder.live), std::mem::take(&mut folder.inside));
        let before = std::mem::take(&mut folder.leaves);
        let new: HashMap<&TreeId, usize> =
            leaves.iter().enumerate().map(|(at, id)| (id, at)).collect();
        let kept: HashSet<TreeId> =
            before.iter().filter(|id| new.contains_key(id)).copied().collect();
        if kept.is_empty() {
            return (live, inside, kept);
        }
        let moved = |(what, leaf): &(usize, usize)| Some((*what, *new.get(before.get(*leaf)?)?));
        let (still, within): (Vec<_>, Vec<_>) =
            (live.iter().filter_map(moved).collect(), inside.iter().filter_map(moved).collect());
        still.iter().for_each(|(found, _)| self.matches.see(*found));
        within.iter().for_each(|(inside, _)| self.folders[*inside].seen = self.matches.now());
        let folder = &mut self.folders[number];
        (folder.live, folder.inside) = (still, within);
        (live, inside, kept)
    }

    /// An entry of a folder with this key, in its leaf with the number `at`.
    fn meet(
        &mut self,
        (number, at): (usize, usize),
        (key, entry): (&[u8], &Entry),
        ways: Ways,
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
        let Kind::Folder { id } = entry.kind else { return Ok(()) };
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
                self.below.push(Task::Read(inside, id, step.below));
            }
            self.folders[number].inside.push((inside, at));
        }
        Ok(())
    }

    fn add_folder(&mut self, above: usize, name: &EntryName) -> usize {
        let depth = self.folders[above].depth + 1;
        let folder = Folder { above, name: Some(name.clone()), depth, ..Folder::default() };
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

    /// Lets go of what turned out to be without a match.
    fn settle(&mut self, number: usize, ways: Ways) -> Result<(), PastError> {
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

    /// A folder that is there no more.
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
