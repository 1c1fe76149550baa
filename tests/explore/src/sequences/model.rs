//! The model: which commits were acknowledged, what each contains, and what each working folder and
//! store knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use snap_core::base::id::BlobId;

use crate::sequences::{
    files::{Kind, Node, Tree, is_within},
    operation::Place,
};

/// The hex form of a commit id.
pub(crate) type Id = String;

/// The exclude rules of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Excludes everything that matches `*.tmp`.
    pub(crate) tmp: bool,
    /// Excludes folders called `ign`.
    pub(crate) ign: bool,
}

impl Rules {
    /// Parses the rules of a `.snapignore`.
    pub(crate) fn parse(text: &str) -> Self {
        let has = |pattern| text.lines().any(|line| line == pattern);
        Self { tmp: has("*.tmp"), ign: has("ign/") }
    }

    /// Returns the text of a `.snapignore` with these patterns.
    pub(crate) fn text(patterns: &[&str]) -> String {
        patterns.iter().map(|pattern| format!("{pattern}\n")).collect()
    }

    /// Returns the rules of the `.snapignore` among `files`, if there is one.
    pub(crate) fn of(files: &Tree) -> Self {
        let Some(node) = files.get(".snapignore") else { return Self::default() };
        let texts = [&["*.tmp"][..], &["ign/"], &["*.tmp", "ign/"]].map(Self::text);
        let is_it = |text: &&String| matches!(node.kind, Kind::File(_, id) if id == BlobId::of(text.as_bytes()));
        texts.iter().find(is_it).map(|text| Self::parse(text)).unwrap_or_default()
    }

    /// Returns the union of two sets of rules.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { tmp: self.tmp || other.tmp, ign: self.ign || other.ign }
    }

    /// Returns true if a path of `tree` is excluded.
    pub(crate) fn exclude(self, path: &str, tree: &Tree) -> bool {
        prefixes(path).any(|prefix| {
            let name = prefix.rsplit('/').next().unwrap_or(prefix);
            let is_folder = tree.get(prefix).is_some_and(|node| node.kind == Kind::Folder);
            (self.tmp && name.ends_with(".tmp")) || (self.ign && name == "ign" && is_folder)
        })
    }
}

/// Returns `a`, `a/b` and `a/b/c` for `a/b/c`.
pub(crate) fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| &path[..end])
}

/// An acknowledged commit.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// Its files.
    pub(crate) tree: Rc<Tree>,
    pub(crate) parents: Vec<Id>,
    /// The place where it was made.
    pub(crate) by: Place,
    /// The exclude rules when it was made.
    pub(crate) rules: Rules,
}

/// The damage that the test has done to a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    /// The store is not damaged.
    #[default]
    None,
    /// Packs are missing or damaged, and the program knows.
    Known,
    /// Packs are missing or truncated, which each commit can detect.
    Lost,
    /// Packs are damaged in place, which only a verification of the data detects.
    Hidden,
}

/// The commits of one branch that a restore took out of the files while the branch was current. A
/// commit to this branch may take them back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replaced {
    /// The branch.
    pub(crate) branch: String,
    /// The part of it that [`Store::seen`] had.
    pub(crate) seen: BTreeSet<Id>,
    /// The part of it that [`Store::contained`] had.
    pub(crate) contained: BTreeSet<Id>,
}

/// The expected state of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// Acknowledged commits, oldest first.
    pub(crate) commits: Vec<Id>,
    /// The tips of the branches.
    pub(crate) tips: BTreeMap<String, Id>,
    /// The current branch; `None` for `main`.
    pub(crate) current: Option<String>,
    /// Contents under whose ids the store may have lists of other chunks.
    pub(crate) forged: BTreeSet<BlobId>,
    /// The damage that the test has done to it.
    pub(crate) damage: Damage,
    /// Paths in commits that the damage took; `None` means the commit itself.
    pub(crate) lost: BTreeMap<Id, BTreeSet<Option<String>>>,
    /// The most that the files may contain, apart from commits that were made here. The program
    /// must refuse to commit on top of other commits.
    pub(crate) seen: BTreeSet<Id>,
    /// The least that the files contain since the last restore of a whole commit; `None` before
    /// that. The program may refuse to commit on top of other commits.
    pub(crate) contained: Option<BTreeSet<Id>>,
    /// What the last restore took out of the files, until the next commit of all files.
    pub(crate) replaced: Option<Replaced>,
    /// True if a remote is configured.
    pub(crate) has_remote: bool,
}

impl Store {
    /// Returns the current branch.
    pub(crate) fn branch(&self) -> String {
        self.current.clone().unwrap_or_else(|| "main".to_owned())
    }

    /// Returns the tip of the current branch.
    pub(crate) fn tip(&self) -> Option<&Id> {
        self.tips.get(&self.branch())
    }

    /// Returns what the last restore took out of the files, if it did so on this branch.
    fn replaced_on(&self, branch: &str) -> Option<&Replaced> {
        self.replaced.as_ref().filter(|replaced| replaced.branch == branch)
    }

    /// Records an acknowledged commit.
    pub(crate) fn hold(&mut self, id: &Id) {
        self.commits.retain(|held| held != id);
        self.commits.push(id.clone());
    }
}

/// The whole model.
#[derive(Default)]
pub(crate) struct Model {
    /// Commits of all stores; an id means the same commit everywhere.
    pub(crate) commits: BTreeMap<Id, Commit>,
    /// The existing stores.
    pub(crate) stores: BTreeMap<Place, Store>,
}

impl Model {
    /// Returns the store of a place.
    pub(crate) fn store(&mut self, place: Place) -> &mut Store {
        self.stores.entry(place).or_default()
    }

    /// Returns a commit and all its ancestors.
    pub(crate) fn ancestors(&self, id: &Id) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        let mut open = vec![id.clone()];
        while let Some(id) = open.pop() {
            if found.insert(id.clone())
                && let Some(commit) = self.commits.get(&id)
            {
                open.extend(commit.parents.iter().cloned());
            }
        }
        found
    }

    /// Returns the commits on a branch of a place that were made elsewhere and that its working
    /// folder does not contain. A commit on top of them would revert them.
    pub(crate) fn foreign(&self, place: Place, branch: &str) -> BTreeSet<Id> {
        let Some(store) = self.stores.get(&place) else { return BTreeSet::new() };
        let Some(tip) = store.tips.get(branch) else { return BTreeSet::new() };
        let replaced = store.replaced_on(branch);
        let is_foreign = |id: &Id| {
            !store.seen.contains(id)
                && !replaced.is_some_and(|replaced| replaced.seen.contains(id))
                && self.commits.get(id).is_some_and(|commit| commit.by != place)
        };
        self.ancestors(tip).into_iter().filter(is_foreign).collect()
    }

    /// Returns true if a restore took a commit of a branch out of the files.
    pub(crate) fn is_restored_away(&self, place: Place, branch: &str) -> bool {
        let Some(store) = self.stores.get(&place) else { return false };
        let (Some(contained), Some(tip)) = (&store.contained, store.tips.get(branch)) else {
            return false;
        };
        let replaced = store.replaced_on(branch);
        let is_in =
            |id: &Id| contained.contains(id) || replaced.is_some_and(|r| r.contained.contains(id));
        !self.ancestors(tip).iter().all(is_in)
    }

    /// Updates a place after a restore of a whole commit into it. If the restore did not end, or
    /// left entries as they were, the files may be of either state.
    pub(crate) fn restored(&mut self, place: Place, id: &Id, is_whole: bool) {
        let restored = self.ancestors(id);
        let store = self.store(place).clone();
        let tip = store.tip().map(|tip| self.ancestors(tip)).unwrap_or_default();
        let made_here = |id: &&Id| self.commits.get(*id).is_some_and(|c| c.by == place);
        let contained = store.contained.clone().unwrap_or_else(|| {
            store.commits.iter().filter(made_here).chain(&store.seen).cloned().collect()
        });
        let before = store.replaced_on(&store.branch()).cloned().unwrap_or_default();
        let of_tip = |ids: &BTreeSet<Id>, more: &BTreeSet<Id>| -> BTreeSet<Id> {
            ids.union(more).filter(|id| tip.contains(*id)).cloned().collect()
        };
        let replaced = Replaced {
            branch: store.branch(),
            seen: of_tip(&store.seen, &before.seen),
            contained: of_tip(&contained, &before.contained),
        };
        let store = self.store(place);
        store.replaced = Some(replaced);
        if is_whole {
            store.seen.clone_from(&restored);
            store.contained = Some(restored);
        } else {
            store.contained = Some(contained.intersection(&restored).cloned().collect());
            store.seen.extend(restored);
        }
    }

    /// Updates a place after a new commit of its files, of named paths if `is_part`.
    pub(crate) fn committed(&mut self, place: Place, id: &Id, is_part: bool) {
        let contained = match is_part {
            true => BTreeSet::from([id.clone()]),
            false => self.ancestors(id),
        };
        let store = self.store(place);
        store.seen.extend(contained.iter().cloned());
        if let Some(known) = &mut store.contained {
            known.extend(contained);
        }
        match &mut store.replaced {
            // Whether named paths end it depends on what else the branch has.
            Some(replaced) if is_part => replaced.contained.clear(),
            replaced => *replaced = None,
        }
    }

    /// Returns true if a commit changed something at or below one of `paths`.
    pub(crate) fn changes(&self, id: &Id, paths: &[&str]) -> bool {
        let Some(commit) = self.commits.get(id) else { return true };
        let parent = commit.parents.first().and_then(|parent| self.commits.get(parent));
        let none = Tree::new();
        let before = parent.map_or(&none, |parent| &parent.tree);
        let is_named = |path: &String| paths.iter().any(|folder| is_within(path, folder));
        let all: BTreeSet<&String> = before.keys().chain(commit.tree.keys()).collect();
        let is_file_above = |path: &String| {
            paths.iter().any(|named| is_within(named, path))
                && commit.tree.get(path).is_some_and(|node| node.kind != Kind::Folder)
        };
        all.into_iter().any(|path| {
            before.get(path) != commit.tree.get(path) && (is_named(path) || is_file_above(path))
        })
    }

    /// Returns the commits that any branch of a place reaches.
    pub(crate) fn reachable(&self, place: Place) -> BTreeSet<Id> {
        let Some(store) = self.stores.get(&place) else { return BTreeSet::new() };
        store.tips.values().flat_map(|tip| self.ancestors(tip)).collect()
    }
}

/// Returns the expected content of a commit of a working folder: the entries of `files`, read
/// before the commit, that no rule and no mount excludes.
pub(crate) fn selected(files: &Tree, rules: Rules, unfollowed_mount: bool) -> Tree {
    let is_in = |path: &str| {
        let in_store = is_in_nested_store(path, files);
        let behind_mount = unfollowed_mount && path.starts_with("m/");
        !in_store && !behind_mount && !rules.exclude(path, files)
    };
    files
        .iter()
        .filter(|(path, _)| is_in(path))
        .map(|(path, node)| (path.clone(), node.clone()))
        .collect()
}

/// Returns true if a path is a store in a folder of `files`, or lies in one.
pub(crate) fn is_in_nested_store(path: &str, files: &Tree) -> bool {
    prefixes(path).any(|prefix| {
        let is_named = prefix == ".snap" || prefix.ends_with("/.snap");
        is_named && files.contains_key(&format!("{prefix}/HEAD"))
    })
}

/// Returns true if a restore must leave out this entry: a symbolic link called `.snap` could lead
/// commits into another store.
pub(crate) fn is_store_link(path: &str, node: &Node) -> bool {
    path.rsplit('/').next() == Some(".snap") && matches!(node.kind, Kind::Symlink(_))
}

/// Returns `parent` with the entries at `paths` replaced by those of `files`.
pub(crate) fn grafted(parent: &Tree, files: &Tree, paths: &[&str]) -> Tree {
    let is_named = |path: &str| paths.iter().any(|folder| is_within(path, folder));
    let kept = parent.iter().filter(|(path, _)| !is_named(path));
    let mut tree: Tree = kept.map(|(path, node)| (path.clone(), node.clone())).collect();
    for (path, node) in files.iter().filter(|(path, _)| is_named(path)) {
        for prefix in prefixes(path) {
            // A file in the parent is replaced by a folder.
            let is_folder = tree.get(prefix).is_some_and(|node| node.kind == Kind::Folder);
            if prefix != path
                && !is_folder
                && let Some(folder) = files.get(prefix)
            {
                tree.insert(prefix.to_owned(), folder.clone());
            }
        }
        tree.insert(path.clone(), node.clone());
    }
    // A folder that no longer exists is removed with its last entry.
    for prefix in paths.iter().flat_map(|path| prefixes(path).collect::<Vec<_>>().into_iter().rev())
    {
        let is_empty = !tree.keys().any(|path| path != prefix && is_within(path, prefix));
        if !files.contains_key(prefix) && is_empty {
            tree.remove(prefix);
        }
    }
    tree
}

/// Returns `tree` without the attributes of the folders above `paths`. The model does not predict
/// whether these come from the parent or from the disk.
pub(crate) fn without_folders_above(tree: &Tree, paths: &[&str]) -> Tree {
    let above: BTreeSet<&str> =
        paths.iter().flat_map(|path| prefixes(path).filter(move |prefix| prefix != path)).collect();
    let plain = |(path, node): (&String, &Node)| {
        let node = if above.contains(path.as_str()) && node.kind == Kind::Folder {
            Node { kind: Kind::Folder, mode: 0, mtime: (0, 0), attribute: None }
        } else {
            node.clone()
        };
        (path.clone(), node)
    };
    tree.iter().map(plain).collect()
}

/// Returns those of `paths` that a commit can update and the model can predict. Leaves out paths
/// through a symlink, in a store, excluded by a rule, or inside another path. A path in a nested
/// project would be committed to that project's store.
pub(crate) fn nameable(
    paths: &[String],
    files: &Tree,
    parent: &Tree,
    rules: Rules,
    behind: bool,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for path in paths {
        let is_link = |tree: &Tree| {
            prefixes(path)
                .any(|prefix| matches!(tree.get(prefix), Some(node) if matches!(node.kind, Kind::Symlink(_))))
        };
        let is_plain = (files.contains_key(path) || parent.contains_key(path))
            && !is_link(files)
            && !is_link(parent)
            && !rules.exclude(path, files)
            && !rules.exclude(path, parent)
            && !is_in_nested_store(path, files)
            && !prefixes(path).any(|prefix| files.contains_key(&format!("{prefix}/.snap/HEAD")))
            && !(behind && is_within(path, "m"))
            && parents_are_folders(path, files)
            && parents_are_folders(path, parent);
        let overlaps = found.iter().any(|other| is_within(path, other) || is_within(other, path));
        if is_plain && !overlaps {
            found.push(path.clone());
        }
    }
    found
}

/// Returns true if no file is at a path where `path` needs a folder.
fn parents_are_folders(path: &str, tree: &Tree) -> bool {
    prefixes(path)
        .filter(|prefix| *prefix != path)
        .all(|prefix| tree.get(prefix).is_none_or(|node| node.kind == Kind::Folder))
}
