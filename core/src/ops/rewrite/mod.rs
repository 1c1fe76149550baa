//! `rewrite`: replaces commits by commits without some paths, so that a secret can go.
//!
//! 1. Make a new commit for each old one that has an excluded path, and for its descendants
//!    (`tree`). A new commit has the time, author, message and labels of the old one. So the same
//!    command makes the same commits from the same history, on any machine.
//! 2. Find the purged objects: those that the old commits reach, and that no ref will reach.
//! 3. Under the lock of the refs, record both in the table of [rewrites](crate::format::rewrites),
//!    and move the refs.
//!
//! The next [garbage collection](crate::ops::gc) deletes the purged objects. Until then, an undo is
//! possible. The record stays, and commands refuse to store purged contents, or to point a ref at a
//! replaced commit.
//!
//! A rewrite that is killed between the record and the last ref is finished by the same command.

mod tree;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    mem,
};

use crate::{
    base::{
        again::until_settled,
        blocked::Blocked,
        id::{BlobId, CommitId, ObjectId},
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{
        chunk_list::ZERO_CHUNK,
        commit::Commit,
        pack::{ObjectKind, PackedObject},
        rewrites::{Rewrite, RewriteState},
    },
    local::ignore::{IgnoreRules, IgnoreScope, Options, PatternError},
    ops::{
        gc::Live,
        reach,
        remaining::{self, Remaining, reaches_any},
        removal_error::RemovalError,
        rewrite::tree::{Removed, TreeFilter},
    },
    repo::{
        Repo,
        history::ancestors,
        past::PastError,
        ref_log::RefLogEntry,
        ref_name::{Pointer, RefKind, RefName},
        refs::{ExpectedRef, Head, HeldRefs, RefError, RefLogMessage},
        roots::{RootChoice, Roots},
        seen::Seen,
    },
    store::{Ancestor, ObjectWriter, Store, StoreError},
};

/// Start of the reason of a rewrite in the logs of refs.
pub const REASON: &str = "rewrite: ";

/// What to remove, and from where.
#[derive(Clone, Debug, Default)]
pub struct RewriteOptions {
    /// Patterns of the paths to remove, with the syntax of an ignore file.
    pub patterns: Vec<String>,
    /// The branches and tags to move; empty for all of them and a detached `HEAD`.
    pub names: Vec<RefName>,
    /// Only reports what a rewrite would do.
    pub dry_run: bool,
}

/// A ref that a rewrite moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedRef {
    /// The branch, the tag or `HEAD`.
    pub pointer: Pointer,
    /// The commit before the rewrite.
    pub old: CommitId,
    /// The commit after it.
    pub new: CommitId,
}

/// What a rewrite did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteOutcome {
    /// Number of replaced commits.
    pub commits: u64,
    /// The refs that moved.
    pub refs: Vec<MovedRef>,
    /// The paths that were removed. A folder stands for everything below it.
    pub removed: BTreeSet<Vec<u8>>,
    /// Number of purged objects. A dry run does not count them.
    pub purged_objects: u64,
    /// Bytes of these objects, before compression.
    pub purged_bytes: u64,
    /// Other branches and tags whose history has the paths, too.
    pub remaining: Vec<RefName>,
    /// Other paths of the moved refs that have a removed content. A dry run does not look for them.
    pub elsewhere: Remaining<Pointer>,
    /// Remote-tracking refs whose history has a replaced commit: their remotes have the paths.
    pub tracking: Vec<RefName>,
    /// Commits of undone changes and deleted refs whose history has a replaced commit. The next
    /// collection deletes them, although the time for an undo is not over.
    pub discarded: BTreeSet<CommitId>,
    /// Patterns that removed nothing.
    pub unmatched: Vec<String>,
}

/// Replaces the commits of branches and tags by commits without the paths that patterns match.
///
/// # Errors
/// [`RemovalError`].
pub fn run(
    repo: &Repo,
    options: &RewriteOptions,
    message: &RefLogMessage<'_>,
    observer: &dyn Observer,
) -> Result<RewriteOutcome, RemovalError> {
    reach::check_refs(repo, observer)?;
    if let Some(lacks) = repo.partial_clone()? {
        return Err(Blocked::Partial { action: "rewrite commits", lacks }.into());
    }
    let done = until_settled(
        &mut Seen::of(repo)?,
        limits::REF_RETRIES,
        |_| attempt(repo, options, message, observer),
        |seen, error| match error {
            RemovalError::Store(error) => Ok(seen.look_again(repo, error)?),
            RemovalError::Past(PastError::Tree { source, .. }) => {
                Ok(seen.look_again(repo, source)?)
            }
            RemovalError::Ref(RefError::Collected { .. }) => Ok(true),
            _ => Ok(false),
        },
    );
    done?.ok_or(Blocked::Contended { action: "moved branches" }.into())
}

/// Attempts a rewrite. Returns `None` if a ref has moved meanwhile.
fn attempt(
    repo: &Repo,
    options: &RewriteOptions,
    message: &RefLogMessage<'_>,
    observer: &dyn Observer,
) -> Result<Option<RewriteOutcome>, RemovalError> {
    let store = repo.store();
    if !options.dry_run {
        cancel_undo(repo)?;
    }
    store.enter_epoch()?;
    let refs = refs_of(repo)?;
    let (chosen, others) = choose(&refs, &options.names)?;
    let base = base_of(repo, &others)?;
    observer.phase(Phase::History, None);
    let level = repo.config().compression_level;
    let writer = match options.dry_run {
        true => ObjectWriter::counting(store, level)?,
        false => ObjectWriter::new(store, level, 1)?,
    };
    let roots = refs.iter().map(|(_, id)| *id).chain(base.iter().copied());
    let roots: Vec<CommitId> = roots.collect();
    let (commits, mut removed) = new_commits(&writer, roots.clone(), options, observer)?;
    let moved = |refs: &[(Pointer, CommitId)]| -> Vec<MovedRef> {
        let new = refs.iter().filter_map(|(pointer, old)| {
            let new = *commits.get(old)?;
            Some(MovedRef { pointer: pointer.clone(), old: *old, new })
        });
        new.collect()
    };
    let (moves, remaining) = (moved(&chosen), moved(&others));
    if moves.is_empty() && !base.iter().any(|id| commits.contains_key(id)) {
        return Err(RemovalError::NoMatch { patterns: options.patterns.clone() });
    }
    // The commits from which the project's files come move with the refs.
    let old = moves.iter().map(|moved| moved.old).chain(base.iter().copied());
    let old: Vec<CommitId> = old.collect();
    let commits = part_of_history(store, commits, &old)?;
    let names = remaining.into_iter().filter_map(|moved| moved.pointer.name().cloned());
    let mut outcome = RewriteOutcome {
        commits: commits.len() as u64,
        refs: moves,
        remaining: names.collect(),
        tracking: tracking_refs(repo, &commits)?,
        discarded: discarded_commits(repo, &commits, &roots)?,
        unmatched: unmatched(options, &removed.paths)?,
        removed: mem::take(&mut removed.paths),
        ..RewriteOutcome::default()
    };
    if options.dry_run {
        return Ok(Some(outcome));
    }
    writer.finish()?;
    store.refresh()?;
    observer.phase(Phase::Mark, None);
    let new_base = base.iter().map(|id| commits.get(id).copied().unwrap_or(*id));
    let new_tip = |(pointer, id): &(Pointer, CommitId)| {
        let moved = outcome.refs.iter().find(|moved| moved.pointer == *pointer);
        moved.map_or(*id, |moved| moved.new)
    };
    let new = refs.iter().map(new_tip).chain(new_base).collect();
    // If a collection has deleted new commits, which no ref reaches yet, the next attempt makes them.
    let purged = purged_objects(store, &old, new, &removed, observer)?;
    outcome.purged_objects = purged.objects.len() as u64;
    outcome.purged_bytes = purged.bytes;
    let new = outcome.refs.iter().map(|moved| (moved.pointer.clone(), moved.new)).collect();
    outcome.elsewhere =
        remaining::find::<_, RemovalError>(store, new, &purged.remaining, observer)?;
    let mut held = repo.refs().hold()?;
    store.enter_epoch()?;
    if refs_of(repo)? != refs {
        return Ok(None);
    }
    let forgotten = store.forgotten();
    for (_, new) in commits.iter().filter(|(old, _)| forgotten.contains(old)) {
        if !store.is_alive(&new.link())? {
            return Ok(None);
        }
    }
    let (purged, remaining) = (purged.objects, purged.remaining);
    held.change_rewrites(store, message, |table, time| {
        // On a full disk, the lock file may lack the time of the last change.
        let last = table.rewrites.last().map(|last| last.time.successor());
        let time = last.map_or(time, |last| time.max(last));
        let (state, commits) = (RewriteState::Open, commits.clone());
        table.rewrites.push(Rewrite { time, state, commits, purged, remaining });
    })?;
    store.change_forgotten(&|table| table.replace(&commits))?;
    repo.replace_in_base(&held, &commits)?;
    move_refs(&mut held, &outcome.refs, message)?;
    Ok(Some(outcome))
}

/// Returns all branches and tags, and `HEAD` if it is detached, each with its commit.
fn refs_of(repo: &Repo) -> Result<Vec<(Pointer, CommitId)>, RefError> {
    let roots = Roots::read(repo, RootChoice::Movable)?.complete()?;
    Ok(roots.pointers().map(|(pointer, id)| (pointer.clone(), id)).collect())
}

/// Returns the stored commits from which the project's files come, except those that `others` reach:
/// these refs do not move.
fn base_of(repo: &Repo, others: &[(Pointer, CommitId)]) -> Result<Vec<CommitId>, RemovalError> {
    let others: Vec<CommitId> = others.iter().map(|(_, id)| *id).collect();
    let reached = history_of(repo.store(), &others)?;
    let base = repo.base()?.unwrap_or_default();
    Ok(kept(repo.store(), base.named().filter(|id| !reached.contains(id)).collect())?)
}

/// Lets the refs of an undo that was killed be rewritten again.
fn cancel_undo(repo: &Repo) -> Result<(), RemovalError> {
    let is_undoing = |rewrite: &Rewrite| rewrite.state == RewriteState::Undoing;
    if repo.store().rewrites()?.rewrites.iter().any(is_undoing) {
        let _refs = repo.refs().hold()?;
        repo.store().change_rewrites(|table| {
            for rewrite in table.rewrites.iter_mut().filter(|rewrite| is_undoing(rewrite)) {
                rewrite.state = RewriteState::Open;
            }
        })?;
    }
    Ok(())
}

/// Replaced commits, each with the new one.
type ReplacedCommits = BTreeMap<CommitId, CommitId>;

/// Some refs, each with its commit.
type RefList = Vec<(Pointer, CommitId)>;

/// Divides refs into those with these names, and all others. No name means all refs.
fn choose(refs: &[(Pointer, CommitId)], names: &[RefName]) -> Result<(RefList, RefList), RefError> {
    for name in names {
        if !refs.iter().any(|(pointer, _)| pointer.name() == Some(name)) {
            return Err(RefError::Unknown { name: name.clone() });
        }
    }
    let is_chosen = |(pointer, _): &(Pointer, CommitId)| {
        names.is_empty() || pointer.name().is_some_and(|name| names.contains(name))
    };
    Ok(refs.iter().cloned().partition(is_chosen))
}

/// Makes new commits for the history of `roots`. Returns each replaced commit with the new one, and what
/// was removed.
fn new_commits<'s>(
    writer: &ObjectWriter<'s>,
    roots: Vec<CommitId>,
    options: &RewriteOptions,
    observer: &'s dyn Observer,
) -> Result<(ReplacedCommits, Removed<'s>), RemovalError> {
    let patterns = options.patterns.clone();
    let rules = IgnoreRules::new(Options { patterns, ..Options::default() })?;
    let (store, mut filter) = (writer.store(), TreeFilter::new(writer, rules, observer));
    let mut replaced = BTreeMap::new();
    for id in parents_first(store, roots)? {
        let Ancestor { commit, is_forgotten } = store.ancestor(&id)?;
        let new_parent = |id: &CommitId| replaced.get(id).copied().unwrap_or(*id);
        let mut new = Commit { parents: commit.parents.iter().map(new_parent).collect(), ..commit };
        // The tree of a forgotten commit may be deleted. Then only its link leads to older commits.
        let has_tree = !is_forgotten || store.is_alive(&id.object())?;
        if has_tree {
            let tree = filter.filter(new.tree, id)?;
            if tree.id != new.tree {
                (new.tree, new.totals) = (tree.id, tree.totals);
            }
        }
        let bytes = new.encode();
        let new_id = CommitId::of(&bytes);
        if new_id != id {
            if has_tree {
                writer.add_commit(new_id, &bytes)?;
            }
            if is_forgotten {
                writer.add_link(new_id, &bytes)?;
            }
            replaced.insert(id, new_id);
        }
        observer.advance(1, 0);
    }
    Ok((replaced, filter.removed))
}

/// Lists the history of `roots`, each commit after its parents.
fn parents_first(store: &Store, roots: Vec<CommitId>) -> Result<Vec<CommitId>, StoreError> {
    let (mut visited, mut order) = (HashSet::new(), Vec::new());
    let mut open: Vec<(CommitId, bool)> = roots.into_iter().rev().map(|id| (id, false)).collect();
    while let Some((id, are_parents_listed)) = open.pop() {
        if are_parents_listed {
            order.push(id);
        } else if visited.insert(id) {
            let parents = store.ancestor(&id)?.commit.parents;
            open.push((id, true));
            open.extend(parents.into_iter().map(|parent| (parent, false)));
        }
    }
    Ok(order)
}

/// Returns the replaced commits in the history of `tips`.
fn part_of_history(
    store: &Store,
    commits: ReplacedCommits,
    tips: &[CommitId],
) -> Result<ReplacedCommits, StoreError> {
    // The ancestors of a commit that is not replaced are not replaced either.
    let parents = |id: CommitId| match commits.contains_key(&id) {
        true => Ok(Some(store.ancestor(&id)?.commit.parents)),
        false => Ok::<_, StoreError>(None),
    };
    let history = ancestors(tips.iter().copied(), parents)?;
    Ok(history.into_iter().filter_map(|id| Some((id, *commits.get(&id)?))).collect())
}

/// Returns the remote-tracking refs whose history has a replaced commit.
fn tracking_refs(repo: &Repo, commits: &ReplacedCommits) -> Result<Vec<RefName>, RemovalError> {
    let mut refs = repo.refs().list(RefKind::Remote)?;
    refs.retain(|(_, tip)| reaches_any(repo.store(), *tip, |id| commits.contains_key(id)));
    Ok(refs.into_iter().map(|(name, _)| name).collect())
}

/// Returns the commits that are stored: an earlier collection may have deleted others.
fn kept(store: &Store, commits: Vec<CommitId>) -> Result<Vec<CommitId>, StoreError> {
    let stored = |id: CommitId| Ok::<_, StoreError>(store.is_alive(&id.object())?.then_some(id));
    commits.into_iter().filter_map(|id| stored(id).transpose()).collect()
}

/// Returns the commits that `tips` reach.
fn history_of(store: &Store, tips: &[CommitId]) -> Result<HashSet<CommitId>, StoreError> {
    let parents = |id: CommitId| Ok::<_, StoreError>(Some(store.ancestor(&id)?.commit.parents));
    Ok(ancestors(tips.iter().copied(), parents)?.into_iter().collect())
}

/// Returns the commits in the logs of refs that no ref reaches, and whose history has a replaced
/// commit. The next collection deletes them.
fn discarded_commits(
    repo: &Repo,
    commits: &ReplacedCommits,
    roots: &[CommitId],
) -> Result<BTreeSet<CommitId>, RemovalError> {
    let store = repo.store();
    let reached = history_of(store, roots)?;
    let since = Time { secs: i64::MIN, nanos: 0 };
    let former = Roots::read(repo, RootChoice::Kept { since })?.complete()?.commits();
    let table = store.rewrites()?;
    let is_unreached = |id: &CommitId| !reached.contains(id) && !table.has_replaced(id);
    let unreached = former.into_iter().filter(is_unreached).collect();
    let has_replaced = |tip: &CommitId| reaches_any(store, *tip, |id| commits.contains_key(id));
    Ok(kept(store, unreached)?.into_iter().filter(has_replaced).collect())
}

/// Returns the patterns that match none of the removed paths, and nothing below them.
fn unmatched(
    options: &RewriteOptions,
    removed: &BTreeSet<Vec<u8>>,
) -> Result<Vec<String>, PatternError> {
    let mut unmatched = Vec::new();
    for pattern in &options.patterns {
        let rules =
            IgnoreRules::new(Options { patterns: vec![pattern.clone()], ..Options::default() })?;
        let inside = pattern.trim_start_matches('/').as_bytes();
        let is_matched = |path: &Vec<u8>| {
            let scope = IgnoreScope::default();
            rules.excludes_path(&scope, path, true)
                || rules.excludes_path(&scope, path, false)
                || inside.strip_prefix(&path[..]).is_some_and(|rest| rest.starts_with(b"/"))
        };
        // A pattern with `!` removes nothing.
        if !pattern.starts_with('!') && !removed.iter().any(is_matched) {
            unmatched.push(pattern.clone());
        }
    }
    Ok(unmatched)
}

/// What a rewrite removes from the history of the refs that it moves.
#[derive(Debug, Default)]
struct Purged {
    /// The objects that no ref will reach.
    objects: BTreeSet<ObjectId>,
    /// Bytes of these objects, before compression.
    bytes: u64,
    /// The contents at removed paths that a ref will still reach.
    remaining: BTreeSet<ObjectId>,
}

/// Finds what the old commits reach and the new ones do not, and what of `removed` stays.
fn purged_objects(
    store: &Store,
    old_commits: &[CommitId],
    new_commits: Vec<CommitId>,
    removed: &Removed<'_>,
    observer: &dyn Observer,
) -> Result<Purged, RemovalError> {
    let [old, new, below] = [(); 3].map(|()| Live::new(store, observer));
    let forgotten = store.forgotten();
    let mut dead = Vec::new();
    for (id, _) in forgotten.commits() {
        if !store.is_alive(&id.object())? {
            dead.push(*id);
        }
    }
    old.keep_only_links(dead.iter().copied())?;
    old.add_refs(old_commits.iter().copied())?;
    new.keep_only_links(dead)?;
    new.add_refs(new_commits)?;
    if removed.has_folders {
        for_each_object(store, observer, &mut |object| {
            if object.kind == ObjectKind::Tree && removed.objects.contains(&object.id)? {
                below.attempt(&object.id, ObjectKind::Tree)?;
            }
            Ok(())
        })?;
    }
    // Any later commit may have an empty file, or a file with a hole.
    let common = [BlobId::of(b"").object(), ZERO_CHUNK.id.object()];
    let mut purged = Purged::default();
    for_each_object(store, observer, &mut |PackedObject { id, kind, bytes }| {
        let is_content = matches!(kind, ObjectKind::Blob | ObjectKind::ChunkList);
        if common.contains(id) {
            return Ok(());
        }
        if !new.contains(id)? {
            if old.contains(id)? && purged.objects.insert(*id) {
                purged.bytes += u64::from(*bytes);
            }
        } else if is_content && (removed.objects.contains(id)? || below.contains(id)?) {
            purged.remaining.insert(*id);
        }
        Ok(())
    })?;
    Ok(purged)
}

/// Calls `visit` for each object of each pack.
fn for_each_object(
    store: &Store,
    observer: &dyn Observer,
    visit: &mut dyn FnMut(&PackedObject) -> Result<(), RemovalError>,
) -> Result<(), RemovalError> {
    for pack in store.packs() {
        observer.check()?;
        store.open_pack(&pack)?.objects()?.iter().try_for_each(&mut *visit)?;
    }
    Ok(())
}

fn move_refs(
    held: &mut HeldRefs<'_>,
    moves: &[MovedRef],
    message: &RefLogMessage<'_>,
) -> Result<(), RefError> {
    for MovedRef { pointer, old, new } in moves {
        match pointer {
            Pointer::Ref(name) => {
                held.swap(name, ExpectedRef::At(Some(*old)), Some(*new), message)?;
            }
            Pointer::Head => {
                held.set_head(&Head::Detached(*old), &Head::Detached(*new), message)?;
            }
        }
    }
    Ok(())
}

/// The last rewrite of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRewrite {
    /// When it happened.
    pub time: Time,
    /// The refs that an undo moves back.
    pub refs: Vec<MovedRef>,
    /// True if garbage collection has deleted old commits. Then an undo is not possible.
    pub is_final: bool,
    commits: ReplacedCommits,
}

impl LastRewrite {
    /// Returns the last rewrite; `None` if there is none.
    ///
    /// # Errors
    /// [`RemovalError`] if the table or a ref cannot be read.
    pub fn read(repo: &Repo) -> Result<Option<Self>, RemovalError> {
        let Some(last) = repo.store().rewrites()?.rewrites.pop() else { return Ok(None) };
        let Rewrite { time, state, commits, .. } = last;
        let is_final = state == RewriteState::Final;
        let old: ReplacedCommits = commits.into_iter().map(|(old, new)| (new, old)).collect();
        let back = refs_of(repo)?
            .into_iter()
            .filter_map(|(pointer, id)| Some(MovedRef { pointer, old: id, new: *old.get(&id)? }));
        Ok(Some(Self { time, refs: back.collect(), is_final, commits: old }))
    }

    /// Returns true if the rewrite is later than a change of a ref, or if it made that change.
    pub fn is_after(&self, change: &RefLogEntry) -> bool {
        change.time < self.time || change.reason.starts_with(REASON)
    }

    /// Moves the refs back, durably. Returns false and changes nothing if a collection has deleted
    /// the old commits, or if a ref has moved since this was read.
    ///
    /// # Errors
    /// [`RemovalError`].
    pub fn undo(&self, repo: &Repo, message: &RefLogMessage<'_>) -> Result<bool, RemovalError> {
        let store = repo.store();
        let mut held = repo.refs().hold()?;
        store.enter_epoch()?;
        if Self::read(repo)?.as_ref() != Some(self) || self.is_final {
            return Ok(false);
        }
        for moved in &self.refs {
            if !store.is_alive(&moved.new.object())? {
                return Ok(false);
            }
        }
        // If this is killed, the next undo or rewrite goes on.
        store.change_rewrites(|table| {
            let own = table.rewrites.iter_mut().filter(|rewrite| rewrite.time == self.time);
            own.for_each(|rewrite| rewrite.state = RewriteState::Undoing);
        })?;
        repo.replace_in_base(&held, &self.commits)?;
        store.change_forgotten(&|table| table.replace(&self.commits))?;
        move_refs(&mut held, &self.refs, message)?;
        held.change_rewrites(store, message, |table, _| {
            table.rewrites.retain(|rewrite| rewrite.time != self.time);
        })?;
        Ok(true)
    }
}
