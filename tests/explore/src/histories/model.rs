//! The model: the content of each commit, and which commits each store must still have.
//!
//! Only a collection deletes commits, and only those that nothing here keeps:
//!
//! - A branch, a tag, `HEAD` and a remote-tracking branch keep what they reach, and what they
//!   reached in the last 7 days. At a remote, only branches and tags count.
//! - A commit that was forgotten 7 days ago goes, or at once with `--now`, unless a branch, a tag or
//!   `HEAD` is at it.
//! - What a ref reached before a rewrite, and what a remote-tracking branch reaches, keeps nothing if
//!   it includes a commit with the path, a descendant of one, or a removed content.

use std::collections::{BTreeMap, BTreeSet};

use crate::sequences::model::Id;

/// How long a store keeps what refs pointed at, and forgotten commits: the default of `gc.undo`.
const UNDO_SECS: i64 = 7 * 86_400;

/// Returns true if what happened at a time cannot be undone any more.
pub(crate) fn is_over(since: i64, secs: i64) -> bool {
    since + UNDO_SECS < secs
}

/// The files of a commit: the numbers of their contents, by path.
pub(crate) type Files = BTreeMap<String, u64>;

/// A commit.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) files: Files,
    pub(crate) parents: Vec<Id>,
    /// Its message. Versions of a commit before and after a rewrite have the same one.
    pub(crate) message: String,
}

/// A commit at which a ref is or was.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// The path of the ref in the store; "" for a commit that `unpack` printed.
    pub(crate) name: String,
    pub(crate) id: Id,
    /// The number of the step or command after which the ref was seen there.
    pub(crate) since_step: u64,
    /// When it had moved away; `None` if it is still there.
    pub(crate) until_secs: Option<i64>,
}

impl Value {
    /// Returns true for a branch, a tag and `HEAD`.
    pub(crate) fn is_own(&self) -> bool {
        !self.name.starts_with("refs/remotes/") && !self.name.is_empty()
    }

    fn is_present(&self) -> bool {
        self.until_secs.is_none()
    }
}

/// A rewrite in a store.
#[derive(Clone, Debug)]
pub(crate) struct Purge {
    pub(crate) step: u64,
    /// The commits with the path, and their descendants, of all stores.
    pub(crate) commits: BTreeSet<Id>,
    /// The contents of the path in these commits.
    pub(crate) contents: BTreeSet<u64>,
    /// Those that the moved refs had reached before: the collection must delete them.
    pub(crate) removed: BTreeSet<u64>,
}

/// The expected state of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// Present and former values of its refs.
    pub(crate) values: Vec<Value>,
    /// Commits that were complete here when last seen, and that a ref reaches or reached.
    pub(crate) whole: BTreeSet<Id>,
    /// Commits that a running collection may delete.
    pub(crate) going: BTreeSet<Id>,
    /// Forgotten commits, with the time of the command.
    pub(crate) forgotten: BTreeMap<Id, i64>,
    /// At a remote: commits that a collection with `--forgotten` has taken from its history. A ref that
    /// is at one later keeps it only as long as it is there.
    pub(crate) dismissed: BTreeSet<Id>,
    pub(crate) purges: Vec<Purge>,
}

impl Store {
    /// Returns the commit at which a ref is.
    pub(crate) fn at(&self, name: &str) -> Option<&Id> {
        self.present().find(|value| value.name == name).map(|value| &value.id)
    }

    /// Returns the values of the present refs.
    pub(crate) fn present(&self) -> impl Iterator<Item = &Value> {
        self.values.iter().filter(|value| value.is_present())
    }

    /// Returns the commits at which branches, tags and `HEAD` are.
    pub(crate) fn tips(&self) -> BTreeSet<&Id> {
        self.present().filter(|value| value.is_own()).map(|value| &value.id).collect()
    }

    /// Takes over the refs that a store has after a step.
    pub(crate) fn moved(&mut self, refs: &BTreeMap<String, Id>, step: u64, secs: i64) {
        for value in self.values.iter_mut().filter(|value| value.is_present()) {
            if refs.get(&value.name) != Some(&value.id) {
                value.until_secs = Some(secs);
            }
        }
        for (name, id) in refs {
            if self.at(name).is_none() {
                let (name, id) = (name.clone(), id.clone());
                self.values.push(Value { name, id, since_step: step, until_secs: None });
            }
        }
    }
}

/// All commits and stores.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) commits: BTreeMap<Id, Commit>,
    /// By name: places and remotes.
    pub(crate) stores: BTreeMap<&'static str, Store>,
    /// The patterns of all rewrites.
    pub(crate) patterns: BTreeSet<String>,
    /// Commits that any store has forgotten.
    pub(crate) ever_forgotten: BTreeSet<Id>,
}

impl Model {
    pub(crate) fn store(&mut self, name: &'static str) -> &mut Store {
        self.stores.entry(name).or_default()
    }

    /// Returns these commits and all of their ancestors.
    pub(crate) fn reach<'i>(&self, ids: impl IntoIterator<Item = &'i Id>) -> BTreeSet<Id> {
        let mut open: Vec<Id> = ids.into_iter().cloned().collect();
        let mut found = BTreeSet::new();
        while let Some(id) = open.pop() {
            if let Some(commit) = self.commits.get(&id)
                && !found.contains(&id)
            {
                open.extend(commit.parents.iter().cloned());
            }
            found.insert(id);
        }
        found
    }

    /// Returns what the present branches, tags and `HEAD` of a store reach.
    pub(crate) fn owned(&self, store: &Store) -> BTreeSet<Id> {
        self.reach(store.tips())
    }

    /// Returns what any ref of a store reaches or ever reached.
    pub(crate) fn ever_reached(&self, store: &Store) -> BTreeSet<Id> {
        self.reach(store.values.iter().map(|value| &value.id))
    }

    /// Makes the record of a rewrite in a store.
    pub(crate) fn purge(&self, pattern: &str, step: u64) -> Purge {
        let mut commits = BTreeSet::new();
        let mut contents = BTreeSet::new();
        for commit in self.commits.values() {
            contents.extend(matched(&commit.files, pattern));
        }
        for id in self.commits.keys() {
            let has_path = |id: &Id| {
                self.commits
                    .get(id)
                    .is_some_and(|commit| !matched(&commit.files, pattern).is_empty())
            };
            if self.reach([id]).iter().any(has_path) {
                commits.insert(id.clone());
            }
        }
        Purge { step, commits, contents, removed: BTreeSet::new() }
    }

    /// Returns the commits that a collection of a store must keep complete, of those that were.
    /// `goes` returns true for forgotten commits.
    pub(crate) fn kept(
        &self,
        store: &Store,
        goes: impl Fn(&Id) -> bool,
        is_remote: bool,
        secs: i64,
    ) -> BTreeSet<Id> {
        let owned = self.owned(store);
        let mut kept = owned.clone();
        for value in store.values.iter().filter(|_| !is_remote) {
            if value.until_secs.is_some_and(|until| is_over(until, secs)) {
                continue;
            }
            let is_purged = |id: &Id| {
                let takes = |purge: &&Purge| !value.is_own() || value.since_step < purge.step;
                store.purges.iter().filter(takes).any(|purge| {
                    let mut files = self.commits.get(id).into_iter().flat_map(|c| c.files.values());
                    purge.commits.contains(id) || files.any(|file| purge.contents.contains(file))
                })
            };
            let reached = self.reach([&value.id]);
            if !reached.iter().any(is_purged) {
                kept.extend(reached);
            }
        }
        let tips = store.tips();
        kept.retain(|id| store.whole.contains(id) && (tips.contains(id) || !goes(id)));
        kept
    }

    /// Returns true if a branch, a tag or `HEAD` of a store reaches a content, or has reached it
    /// since a step.
    pub(crate) fn reaches_since(&self, store: &Store, content: u64, step: u64) -> bool {
        let values = store
            .values
            .iter()
            .filter(|value| value.is_own() && (value.is_present() || value.since_step >= step));
        self.has(&self.reach(values.map(|value| &value.id)), content)
    }

    /// Returns true if one of these commits has a content.
    pub(crate) fn has(&self, ids: &BTreeSet<Id>, content: u64) -> bool {
        let commits = ids.iter().filter_map(|id| self.commits.get(id));
        commits.flat_map(|commit| commit.files.values()).any(|number| *number == content)
    }
}

/// Returns true if a rewrite with this pattern removes a path.
fn matches(path: &str, pattern: &str) -> bool {
    match pattern.contains('/') {
        true => path == pattern.trim_start_matches('/'),
        false => path.rsplit('/').next() == Some(pattern),
    }
}

/// Returns the contents of the files that a rewrite removes.
pub(crate) fn matched(files: &Files, pattern: &str) -> BTreeSet<u64> {
    files.iter().filter(|(path, _)| matches(path, pattern)).map(|(_, number)| *number).collect()
}

/// Returns the files that a rewrite keeps.
pub(crate) fn without(files: &Files, pattern: &str) -> Files {
    let kept = files.iter().filter(|(path, _)| !matches(path, pattern));
    kept.map(|(path, number)| (path.clone(), *number)).collect()
}
