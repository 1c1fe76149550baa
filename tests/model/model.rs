//! What must be true: which commits were acknowledged, what each holds, and
//! what each working folder and store knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use snap_core::base::id::BlobId;

use crate::{
    files::{Kind, Node, Tree, is_within},
    operation::Place,
};

/// A commit id in hex.
pub(crate) type Id = String;

/// A sequence found a fault of the program.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// What kind of fault, in a few words that do not depend on the sequence.
    pub(crate) kind: &'static str,
    /// Paths, ids and messages.
    pub(crate) detail: String,
}

impl Fault {
    /// A fault of this kind.
    pub(crate) fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

/// Which paths a commit leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Everything called `*.tmp`.
    pub(crate) tmp: bool,
    /// Folders called `ign`.
    pub(crate) ign: bool,
}

impl Rules {
    /// The rules that a `.snapignore` of this text sets.
    pub(crate) fn parse(text: &str) -> Self {
        let has = |pattern| text.lines().any(|line| line == pattern);
        Self { tmp: has("*.tmp"), ign: has("ign/") }
    }

    /// The text of a `.snapignore` with these patterns.
    pub(crate) fn text(patterns: &[&str]) -> String {
        patterns.iter().map(|pattern| format!("{pattern}\n")).collect()
    }

    /// The rules of the `.snapignore` among `files`, if there is one.
    pub(crate) fn of(files: &Tree) -> Self {
        let Some(node) = files.get(".snapignore") else { return Self::default() };
        let texts = [&["*.tmp"][..], &["ign/"], &["*.tmp", "ign/"]].map(Self::text);
        let is_it = |text: &&String| matches!(node.kind, Kind::File(_, id) if id == BlobId::of(text.as_bytes()));
        texts.iter().find(is_it).map(|text| Self::parse(text)).unwrap_or_default()
    }

    /// What either leaves out.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { tmp: self.tmp || other.tmp, ign: self.ign || other.ign }
    }

    /// Whether a path of `tree` is left out.
    pub(crate) fn exclude(self, path: &str, tree: &Tree) -> bool {
        prefixes(path).any(|prefix| {
            let name = prefix.rsplit('/').next().unwrap_or(prefix);
            let is_folder = tree.get(prefix).is_some_and(|node| node.kind == Kind::Folder);
            (self.tmp && name.ends_with(".tmp")) || (self.ign && name == "ign" && is_folder)
        })
    }
}

/// `a`, `a/b` and `a/b/c` for `a/b/c`.
pub(crate) fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| &path[..end])
}

/// An acknowledged commit.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// What it holds.
    pub(crate) tree: Rc<Tree>,
    /// What it follows.
    pub(crate) parents: Vec<Id>,
    /// Where it was made.
    pub(crate) by: Place,
    /// What was left out by rules when it was made.
    pub(crate) rules: Rules,
}

/// How much may be wrong with a store because the test hurt it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    /// It was never hurt.
    #[default]
    None,
    /// Packs are gone or damaged, and the program knows.
    Known,
    /// Packs are gone or cut short, which each commit can see.
    Lost,
    /// Packs are damaged in place, which only a verify of the data finds.
    Hidden,
}

/// What a store must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// Acknowledged commits, oldest first.
    pub(crate) commits: Vec<Id>,
    /// Where branches stand.
    pub(crate) tips: BTreeMap<String, Id>,
    /// What the test did to it.
    pub(crate) damage: Damage,
    /// Paths of commits that damage took; `None` stands for the commit itself.
    pub(crate) lost: BTreeMap<Id, BTreeSet<Option<String>>>,
    /// Commits that the working folder has taken in: what it may follow.
    pub(crate) seen: BTreeSet<Id>,
    /// Commits that the files contain since a whole commit was last restored; `None`
    /// before that. Commits made here before may be refused to be built upon.
    pub(crate) contained: Option<BTreeSet<Id>>,
    /// Whether a remote is set up.
    pub(crate) has_remote: bool,
}

impl Store {
    /// The commit on which the current branch stands.
    pub(crate) fn tip(&self) -> Option<&Id> {
        self.tips.get("main")
    }

    /// Notes an acknowledged commit.
    pub(crate) fn hold(&mut self, id: &Id) {
        self.commits.retain(|held| held != id);
        self.commits.push(id.clone());
    }
}

/// Everything that the model knows.
#[derive(Default)]
pub(crate) struct Model {
    /// Commits of all stores: an id means the same everywhere.
    pub(crate) commits: BTreeMap<Id, Commit>,
    /// Stores that exist.
    pub(crate) stores: BTreeMap<Place, Store>,
}

impl Model {
    /// The store of a place.
    pub(crate) fn store(&mut self, place: Place) -> &mut Store {
        self.stores.entry(place).or_default()
    }

    /// A commit and all that it follows.
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

    /// Commits on the branch `main` of a place that were made elsewhere and
    /// that its working folder has not taken in: a commit on top of them would
    /// revert them.
    pub(crate) fn foreign(&self, place: Place) -> BTreeSet<Id> {
        let Some(store) = self.stores.get(&place) else { return BTreeSet::new() };
        let Some(tip) = store.tip() else { return BTreeSet::new() };
        let is_foreign = |id: &Id| {
            !store.seen.contains(id)
                && self.commits.get(id).is_some_and(|commit| commit.by != place)
        };
        self.ancestors(tip).into_iter().filter(is_foreign).collect()
    }

    /// Whether a restore took a commit that `tip` stands on out of the files.
    pub(crate) fn is_restored_away(&self, place: Place, tip: &Id) -> bool {
        let contained = self.stores.get(&place).and_then(|store| store.contained.as_ref());
        contained.is_some_and(|contained| !self.ancestors(tip).is_subset(contained))
    }

    /// Whether a commit changed what is at or below one of `paths`.
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

    /// Commits that a branch of a place reaches.
    pub(crate) fn reachable(&self, place: Place) -> BTreeSet<Id> {
        let Some(store) = self.stores.get(&place) else { return BTreeSet::new() };
        store.tips.values().flat_map(|tip| self.ancestors(tip)).collect()
    }
}

/// What a commit of a working folder must hold: the entries of `files`, read
/// before the commit, that no rule and no mount leaves out.
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

/// Whether a path is a store in a folder of `files`, or lies in one.
pub(crate) fn is_in_nested_store(path: &str, files: &Tree) -> bool {
    prefixes(path).any(|prefix| {
        let is_named = prefix == ".snap" || prefix.ends_with("/.snap");
        is_named && files.contains_key(&format!("{prefix}/HEAD"))
    })
}

/// `parent` with what is at `paths` replaced by what `files` has there.
pub(crate) fn grafted(parent: &Tree, files: &Tree, paths: &[&str]) -> Tree {
    let is_named = |path: &str| paths.iter().any(|folder| is_within(path, folder));
    let kept = parent.iter().filter(|(path, _)| !is_named(path));
    let mut tree: Tree = kept.map(|(path, node)| (path.clone(), node.clone())).collect();
    for (path, node) in files.iter().filter(|(path, _)| is_named(path)) {
        for prefix in prefixes(path) {
            // A file of the parent that is a folder now makes room.
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
    // A folder that is gone goes with its last entry.
    for prefix in paths.iter().flat_map(|path| prefixes(path).collect::<Vec<_>>().into_iter().rev())
    {
        let is_empty = !tree.keys().any(|path| path != prefix && is_within(path, prefix));
        if !files.contains_key(prefix) && is_empty {
            tree.remove(prefix);
        }
    }
    tree
}

/// `tree` without the attributes of the folders above `paths`, of which the
/// model does not say whether they come from the parent or from the disk.
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

/// Of `paths` those that a commit can update and the model can predict: none
/// through a symlink, into a store, left out by a rule, or in another. A path
/// in a project of its own would be committed to that one's store.
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

/// Whether no file stands where a path needs a folder.
fn parents_are_folders(path: &str, tree: &Tree) -> bool {
    prefixes(path)
        .filter(|prefix| *prefix != path)
        .all(|prefix| tree.get(prefix).is_none_or(|node| node.kind == Kind::Folder))
}
