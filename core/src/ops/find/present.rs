//! The matches of the present commit, updated from one commit to the next.
//!
//! The search compares the tree of each commit with the tree of the commit before. It reads only
//! folders that differ and may contain a match. It also skips a tree that is known to be bare: the tree
//! has no match for the remaining parts of the pattern. This knowledge takes one bit for each object.
//! A tree is therefore read once and rarely again.
//!
//! Memory has a limit, since a small pack can describe a tree of any size. When the matches exceed the
//! limit, the search drops the last paths, and the [`KeyWindow`] of this pass ends before them. The next
//! window starts there, with the newest commit again.

mod bare;
mod matches;
mod window;

use crate::{
    base::{
        id::{CommitId, TreeId},
        observe::Observer,
    },
    format::{commit::Commit, tree::Entry},
    ops::find::{
        CommitStamp, FoundPath, KindFilter, LinePosition,
        pattern::{NamePattern, PartSet},
        present::{bare::NoMatchCache, matches::Matches, window::KeyWindow},
    },
    repo::past::PastError,
    store::{PairedEntries, Store, StoreError, TreePair, check_depth},
};

/// A folder of the present commit that differs from the commit before.
struct SearchedFolder {
    pair: TreePair,
    tree: TreeId,
    /// The parts of the pattern that entries of the folder may match.
    parts: PartSet,
    /// Length of the folder's key in bytes.
    key_bytes: usize,
    /// True if the search has found no match in the folder, and the folder had none in the commit
    /// before.
    is_bare: bool,
}

/// The matches of the present commit and of all earlier ones.
pub(super) struct LiveMatches<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    pattern: NamePattern,
    wanted: Option<KindFilter>,
    matches: Matches,
    bare: NoMatchCache,
    window: KeyWindow,
    /// Approximate number of bytes that may be held.
    limit_bytes: usize,
    /// The tree of the present commit.
    tree: Option<TreeId>,
    /// The key of the present folder or entry.
    key: Vec<u8>,
}

impl<'a> LiveMatches<'a> {
    pub(super) fn new(
        store: &'a Store,
        pattern: NamePattern,
        wanted: Option<KindFilter>,
        limit_bytes: usize,
        observer: &'a dyn Observer,
    ) -> Self {
        let (matches, bare) = (Matches::default(), NoMatchCache::default());
        let (window, tree, key) = (KeyWindow::default(), None, Vec::new());
        Self { store, observer, pattern, wanted, matches, bare, window, limit_bytes, tree, key }
    }

    /// Drops the results and moves to the next window of paths. Returns false if there is
    /// none.
    pub(super) fn next_window(&mut self) -> bool {
        (self.matches, self.tree) = (Matches::default(), None);
        self.window.next()
    }

    /// Passes everything that was found to `each`, sorted by path.
    pub(super) fn finish<E>(
        &mut self,
        each: &mut dyn FnMut(&FoundPath) -> Result<(), E>,
    ) -> Result<(), E> {
        self.matches.finish(each)
    }

    /// Moves to the next commit. Returns the number of its tree nodes that were read.
    pub(super) fn advance(
        &mut self,
        id: CommitId,
        commit: &Commit,
        place: LinePosition,
    ) -> Result<u64, PastError> {
        self.matches.go_to(CommitStamp { id, time: commit.time }, place);
        self.key.clear();
        let (mut nodes, mut stack) = (0, Vec::new());
        let before = self.tree.replace(commit.tree);
        let mut entered = self.enter(before, commit.tree, self.pattern.start(), stack.len());
        loop {
            stack.extend(entered.map_err(PastError::at(&path_of(&self.key), id))?);
            let depth = stack.len();
            let Some(folder) = stack.last_mut() else { return Ok(nodes) };
            self.observer.check()?;
            self.key.truncate(folder.key_bytes);
            let next = folder.pair.next(self.store, &mut |node| {
                let (first, end) = node.bounds();
                self.window.has_leaf(&self.key, first, end)
            });
            entered = match next {
                Ok(Some(entries)) => self.compare(folder, entries, depth),
                Ok(None) => {
                    nodes += folder.pair.new_nodes().len() as u64;
                    let SearchedFolder { tree, parts, is_bare, .. } = *folder;
                    stack.pop();
                    match stack.last_mut() {
                        Some(above) if !is_bare => above.is_bare = false,
                        _ => {}
                    }
                    match is_bare && self.window.has_all_inside(&self.key) {
                        true => self.bare.add(self.store, parts, &tree).map(|()| None),
                        false => Ok(None),
                    }
                }
                Err(error) => Err(error),
            };
        }
    }

    /// Enters the folder at the present key. Returns `None` if it has no match to find.
    fn enter(
        &mut self,
        old: Option<TreeId>,
        tree: TreeId,
        parts: PartSet,
        depth: usize,
    ) -> Result<Option<SearchedFolder>, StoreError> {
        check_depth(depth, tree)?;
        if self.bare.has(parts, &tree)? {
            self.matches.close_below(&self.key);
            return Ok(None);
        }
        if old == Some(tree) {
            return Ok(None);
        }
        // It costs less to look up all subfolders than to compare them with a tree without a match.
        let old = match old {
            Some(old) if self.bare.has(parts, &old)? => None,
            old => old,
        };
        let (pair, key_bytes, is_bare) =
            (TreePair::new(old, Some(tree)), self.key.len(), old.is_none());
        Ok(Some(SearchedFolder { pair, tree, parts, key_bytes, is_bare }))
    }

    /// Compares the entries of a name in a folder. Returns the subfolder to search next, if any.
    fn compare(
        &mut self,
        folder: &mut SearchedFolder,
        entries: PairedEntries,
        depth: usize,
    ) -> Result<Option<SearchedFolder>, StoreError> {
        let step = self.pattern.step(folder.parts, entries.name());
        let (has_path, has_inside) = self.window.has(&self.key, entries.name());
        self.key.extend_from_slice(entries.name());
        let PairedEntries { old, new } = entries;
        if step.matches && has_path {
            let is_wanted =
                |entry: &&Entry| self.wanted.is_none_or(|wanted| wanted.has(&entry.kind));
            match new.as_ref().filter(is_wanted) {
                Some(entry) => {
                    folder.is_bare = false;
                    self.matches.meet(&self.key, entry);
                    if let Some(end) = self.matches.trim(self.limit_bytes) {
                        self.window.end_before(end);
                    }
                }
                None => self.matches.close(&self.key),
            }
        }
        self.key.push(0);
        let tree = |entry: Option<Entry>| entry?.kind.tree();
        match (tree(old), tree(new)) {
            _ if step.below == 0 || !has_inside => Ok(None),
            (old, Some(new)) => self.enter(old, new, step.below, depth),
            (_, None) => {
                self.matches.close_below(&self.key);
                Ok(None)
            }
        }
    }
}

/// Returns the path of a key.
pub(super) fn path_of(key: &[u8]) -> Vec<u8> {
    let key = key.strip_suffix(&[0]).unwrap_or(key);
    key.iter().map(|byte| if *byte == 0 { b'/' } else { *byte }).collect()
}
