//! What of the present commit matches, kept up to date from one commit to the
//! next.
//!
//! Only folders with matches in them, now or in a commit before, are held,
//! each with its tree (and the leaves of a split one). In the next commit a
//! folder with the same tree is passed over with all that is in it, and so is
//! a tree that is known to be bare: without a match for the parts that remain
//! of the pattern. That is one bit for each object, and a small table of those
//! asked for last. A tree is thus read when it is new, and hardly ever again.

mod bare;
mod matches;

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
        present::{bare::Bare, matches::Matches},
    },
    repo::past::{PastError, shown},
    store::{Listing, Store},
};

const TOP: usize = 0;

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
}

#[derive(Clone, Copy, Debug)]
enum Task {
    /// Take over what the folder has now.
    Read(usize, TreeId, Ways),
    /// All that is in it has been read.
    Settle(usize, Ways),
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
    tasks: Vec<Task>,
    commit: Option<CommitId>,
    trees: u64,
}

impl<'a> Present<'a> {
    pub(super) fn new(
        store: &'a Store,
        pattern: Pattern,
        wanted: Option<Wanted>,
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
            tasks: Vec::new(),
            commit: None,
            trees: 0,
        }
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
        }
        Ok(self.trees)
    }

    /// Hands out all that was found, sorted by path.
    pub(super) fn finish<E>(
        &mut self,
        each: &mut dyn FnMut(&Found) -> Result<(), E>,
    ) -> Result<(), E> {
        self.matches.finish();
        // Depth first: what matches, then what is in it.
        let mut waiting = vec![(Shown::Inside(TOP), Vec::new())];
        while let Some((shown, path)) = waiting.pop() {
            let folder = match shown {
                Shown::Path(found) => {
                    each(&self.matches.found(found, &path))?;
                    continue;
                }
                Shown::Inside(folder) => &self.folders[folder],
            };
            let paths = folder.paths.iter().map(|(name, found)| (name, Shown::Path(*found)));
            let inside = folder.folders.iter().map(|(name, below)| (name, Shown::Inside(*below)));
            let mut names: Vec<(&EntryName, Shown)> = paths.chain(inside).collect();
            names.sort_unstable();
            for (name, shown) in names.into_iter().rev() {
                let above = if path.is_empty() { &[][..] } else { &[&path[..], b"/"].concat() };
                waiting.push((shown, [above, name.as_bytes()].concat()));
            }
        }
        Ok(())
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
        for (at, leaf) in listing.into_leaves().into_iter().enumerate() {
            if kept.contains(&leaf.id()) {
                continue;
            }
            self.trees += 1;
            let entries = leaf.into_entries(self.store);
            let entries =
                entries.map_err(|error| PastError::at(&self.path(number), commit)(error))?;
            for entry in entries {
                self.meet((number, at), &entry, ways)?;
            }
        }
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

    /// An entry of a folder, in its leaf with the number `at`.
    fn meet(
        &mut self,
        (number, at): (usize, usize),
        entry: &Entry,
        ways: Ways,
    ) -> Result<(), PastError> {
        let step = self.pattern.step(ways, entry.name.as_bytes());
        if step.matches && self.wanted.is_none_or(|wanted| wanted.has(&entry.kind)) {
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
        if step.below == 0 {
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
                self.tasks.push(Task::Read(inside, id, step.below));
            }
            self.folders[number].inside.push((inside, at));
        }
        Ok(())
    }

    fn add_folder(&mut self, above: usize, name: &EntryName) -> usize {
        let depth = self.folders[above].depth + 1;
        let folder = Folder { above, name: Some(name.clone()), depth, ..Folder::default() };
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
                let name = folder.name.take().expect("a folder in another has a name");
                self.folders[number].folders.remove(&name);
                self.free.push(*below);
            }
            false
        });
        let folder = &mut self.folders[number];
        folder.inside = inside;
        match folder.tree {
            Some(tree) if folder.is_bare() => Ok(self.bare.add(self.store, ways, &tree)?),
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
