//! `gc`: deletes what no ref reaches.
//!
//! A collection runs beside commits and all other commands, and can be killed at any step:
//!
//! 1. Mark everything that the [roots](crate::repo::roots) reach (`mark`).
//! 2. Plan: delete packs without live objects, and rewrite packs with much garbage (`plan`).
//! 3. Copy the live objects of those packs into new packs.
//! 4. Under the lock of the refs, mark what was added meanwhile, shadow the dead objects, and begin
//!    the next [epoch](crate::store::Epoch). From now on, no writer relies on a dead object.
//! 5. Delete the packs (`sweep`).
//!
//! If a collection is killed before step 4, it leaves copies, which the next one finds dead. If it is
//! killed later, it leaves packs of shadowed objects, which the next one deletes.

mod mark;
mod pack_use;
mod plan;
mod sweep;

use std::{collections::BTreeSet, mem, os::unix::fs::MetadataExt, time::Duration};

pub use mark::Live;
pub use pack_use::{PackUse, choose_rewritten};

use crate::{
    base::{
        again::until_settled,
        blocked::{Blocked, PartialClone},
        id::{CommitId, ObjectId, PackId},
        limits,
        observe::{Observer, Phase, Silent},
        time::Time,
    },
    format::{
        pack::ObjectKind,
        rewrites::{Rewrite, RewriteState, RewriteTable},
    },
    ops::{
        gc::{mark::ForgottenCommits, plan::Plan},
        reach::{self, ReachError},
        remaining::{self, Remaining},
        removal_error::RemovalError,
    },
    repo::{
        Pointer, Repo,
        ref_name::RefName,
        roots::{Root, RootChoice, RootOrigin, Roots},
        seen::Seen,
    },
    store::{Marks, ObjectLocation, Store, StoreError},
};

/// What a collection may delete.
#[derive(Clone, Copy, Debug)]
pub struct GcOptions {
    /// Only reports what a collection would do.
    pub dry_run: bool,
    /// Former values of refs are roots for this time, so that `undo` can return to them.
    pub undo: Duration,
    /// Forgotten commits stay for this time, so that `undo` can bring them back.
    pub undo_of_forget: Duration,
    /// Packs younger than this stay, with everything that they refer to.
    pub grace: Duration,
    /// The most bytes of packs to rewrite; `None` for no limit.
    pub max_rewritten_bytes: Option<u64>,
    /// The present time.
    pub present: Time,
}

/// The result of a collection. A dry run reports what would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcOutcome {
    /// Packs before the collection.
    pub packs: u64,
    /// Bytes of these packs.
    pub bytes: u64,
    /// Packs that were deleted, with those that were rewritten.
    pub deleted_packs: u64,
    /// Bytes of the deleted packs.
    pub deleted_bytes: u64,
    /// Packs that were rewritten without their dead objects.
    pub rewritten_packs: u64,
    /// Bytes of the packs that replace them; an estimate in a dry run.
    pub written_bytes: u64,
    /// Dead objects.
    pub dead_objects: u64,
    /// Bytes of dead objects that stay in packs, before compression.
    pub left_bytes: u64,
    /// Purged objects that were deleted.
    pub purged_objects: u64,
    /// Purged objects that stay, because packs could not be rewritten.
    pub left_purged_objects: u64,
    /// The branches and tags that still reach a content which a rewrite removed, and its paths.
    pub remaining: Remaining<Pointer>,
    /// Remote-tracking refs that were removed, because they reach purged objects.
    pub dropped_refs: u64,
    /// True if packs stay that another process uses.
    pub is_busy: bool,
    /// The room that the disk lacks to rewrite packs without their garbage; an estimate. 0 if nothing
    /// is left to rewrite.
    pub needed_bytes: u64,
}

impl GcOutcome {
    /// Returns the bytes by which the packs shrink.
    pub fn freed_bytes(&self) -> u64 {
        self.deleted_bytes.saturating_sub(self.written_bytes)
    }
}

/// Collects the garbage of a local store.
///
/// # Errors
/// [`RemovalError`]. Nothing is lost; an error in the last step leaves packs that the next collection
/// deletes.
pub fn run(
    repo: &Repo,
    options: &GcOptions,
    observer: &dyn Observer,
) -> Result<GcOutcome, RemovalError> {
    reach::check_refs(repo, observer)?;
    if repo.partial_clone()? == Some(PartialClone::Packs) && !options.dry_run {
        drop_dead_stubs(repo, observer)?;
    }
    if let Some(lacks) = repo.partial_clone()? {
        return Err(Blocked::Partial { action: "collect garbage", lacks }.into());
    }
    repo.refs().note_misnamed(observer)?;
    let mut state = (Copies::Wanted, Seen::of(repo)?);
    let done = until_settled(
        &mut state,
        limits::REF_RETRIES,
        |(copies, _)| attempt(repo, options, *copies, observer),
        |(copies, seen), error| match error {
            // Without room for copies, the packs that need none can still be deleted.
            error if error.is_full() && *copies == Copies::Wanted => {
                *copies = Copies::None;
                Ok(true)
            }
            error if error.is_full() => Ok(repo.store().free_reserve()?),
            RemovalError::Store(error) => Ok(seen.look_again(repo, error)?),
            _ => Ok(false),
        },
    );
    if !options.dry_run {
        repo.store().keep_reserve();
    }
    done?.ok_or(Blocked::Contended { action: "began a collection" }.into())
}

/// Removes all stubs if no ref needs one, now or before: those of packs that a collection at a remote has
/// deleted.
fn drop_dead_stubs(repo: &Repo, observer: &dyn Observer) -> Result<(), RemovalError> {
    let store = repo.store();
    if !store.shadows().has_any_dead() {
        return Ok(());
    }
    // No ref moves to a commit of a stub meanwhile.
    let _refs = repo.refs().hold()?;
    let roots = Roots::read(repo, RootChoice::Kept { since: Time::default() })?.complete()?;
    let mut commits = Vec::new();
    for Root { id, origin } in roots.iter() {
        // A dead commit of a branch or of the project's files may still be whole.
        let is_needed = match origin {
            RootOrigin::Pointer(_) => true,
            RootOrigin::Lost(_) | RootOrigin::Base => !store.places(&id.object())?.is_empty(),
            _ => store.is_alive(&id.object())?,
        };
        if is_needed {
            commits.push(*id);
        }
    }
    let stubs = store.partial_packs();
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, place: &ObjectLocation| {
        let is_whole = |place: &ObjectLocation| {
            store.pack_id(place.pack).is_some_and(|pack| !store.is_partial(&pack))
        };
        match store.places(id)?.iter().any(is_whole) {
            true => marks.mark(id),
            false => Err(StoreError::Missing { id: *id, wanted: place.kind }),
        }
    };
    let _pause = store.pause_fetching();
    match reach::visit(store, &commits, &mut enter, observer) {
        Ok(()) => Ok(store.remove_stubs(&stubs)?),
        Err(ReachError::Blocked(blocked)) => Err(blocked.into()),
        Err(_) => Ok(()),
    }
}

/// The choice to rewrite packs or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    /// Yes. Garbage that stays in a pack stays complete.
    Wanted,
    /// No: the disk is full. Garbage that becomes incomplete is shadowed.
    None,
}

/// Attempts a collection. Returns `None` if another one has begun an epoch meanwhile.
fn attempt(
    repo: &Repo,
    options: &GcOptions,
    copies: Copies,
    observer: &dyn Observer,
) -> Result<Option<GcOutcome>, RemovalError> {
    let live = Live::new(repo.store(), observer);
    let Some(outcome) = collect(repo, options, copies, &live, observer)? else { return Ok(None) };
    let remaining = find_remaining(repo, &live, observer)?;
    let mut outcome = GcOutcome { remaining, ..outcome };
    let (store, table) = (repo.store(), repo.store().rewrites()?);
    if !table.is_empty() {
        let level = repo.config().compression_level;
        let is_purged = |id: &ObjectId| table.has_purged(id);
        outcome.purged_objects += store.purge_quarantine(&is_purged, level, options.dry_run)?;
    }
    Ok(Some(outcome))
}

/// Finds the branches and tags that reach a content which a rewrite removed.
fn find_remaining(
    repo: &Repo,
    live: &Live<'_>,
    observer: &dyn Observer,
) -> Result<Remaining<Pointer>, RemovalError> {
    let (store, table) = (repo.store(), repo.store().rewrites()?);
    let mut contents = BTreeSet::new();
    for id in table.removed() {
        if live.contains(id)? {
            contents.insert(*id);
        }
    }
    if contents.is_empty() {
        return Ok(Remaining::default());
    }
    let roots = Roots::read(repo, RootChoice::Movable)?.complete()?;
    let refs = roots.pointers().map(|(pointer, id)| (pointer.clone(), id)).collect();
    remaining::find(store, refs, &contents, observer)
}

/// Collects with one view of the refs. Returns `None` as [`attempt`] does.
fn collect(
    repo: &Repo,
    options: &GcOptions,
    copies: Copies,
    live: &Live<'_>,
    observer: &dyn Observer,
) -> Result<Option<GcOutcome>, RemovalError> {
    let max_rewritten_bytes = match copies {
        Copies::Wanted => options.max_rewritten_bytes,
        Copies::None => Some(0),
    };
    let options = &GcOptions { max_rewritten_bytes, ..*options };
    let store = repo.store();
    let epoch = store.enter_epoch()?;
    observer.phase(Phase::Mark, None);
    // List the packs after the refs: a commit writes them in the reverse order.
    let roots = read_roots(repo, options)?;
    store.refresh()?;
    let dropped_refs = add_roots(repo, &roots, options, live, None)?.len() as u64;
    let mut plan = Plan::make(store, live, options, copies, observer)?;
    while copies == Copies::Wanted && plan.keep_complete(store, live)? {
        plan = Plan::make(store, live, options, copies, observer)?;
    }
    if options.dry_run {
        return Ok(Some(GcOutcome { dropped_refs, ..plan.outcome() }));
    }
    if plan.frees_nothing() && !store.shadows().has_any_dead() {
        let outcome = plan.outcome();
        finish_rewrites(repo, live)?;
        return Ok(Some(outcome));
    }
    match plan.copy(repo, live, observer) {
        Err(RemovalError::Store(StoreError::Collected)) => return Ok(None),
        copied => copied?,
    }
    sweep::run(repo, plan, live, epoch, options, observer)
}

/// Records that rewrites cannot be undone any more, if a purged object is gone. What a ref reaches
/// again does not count as purged from then on: a content remains, and other objects, such as a tree
/// that other commands made anew, are not recorded any more.
fn finish_rewrites(repo: &Repo, live: &Live<'_>) -> Result<(), RemovalError> {
    let store = repo.store();
    let before = store.rewrites()?;
    let mut table = with_purged_remains(before.clone(), live)?;
    for rewrite in &mut table.rewrites {
        if rewrite.state == RewriteState::Open && lacks_any(store, &rewrite.purged)? {
            rewrite.state = RewriteState::Final;
        }
        if rewrite.state == RewriteState::Final {
            for id in mem::take(&mut rewrite.purged) {
                if !live.contains(&id)? {
                    rewrite.purged.insert(id);
                } else if is_content(store, &id)? {
                    rewrite.remaining.insert(id);
                }
            }
        }
    }
    if table != before {
        let _refs = repo.refs().hold()?;
        store.change_rewrites(|now| {
            for rewrite in &mut now.rewrites {
                let is_same = |known: &&Rewrite| known.time == rewrite.time;
                let finished = table.rewrites.iter().find(is_same);
                if let Some(finished) = finished.filter(|known| known.state == RewriteState::Final)
                {
                    // Another command may have allowed some of the objects meanwhile.
                    let (purged, remaining) = (&rewrite.purged, &rewrite.remaining);
                    let is_known = |id: &&ObjectId| purged.contains(*id) || remaining.contains(*id);
                    let known =
                        |ids: &BTreeSet<ObjectId>| ids.iter().filter(is_known).copied().collect();
                    let (purged, remaining) = (known(&finished.purged), known(&finished.remaining));
                    rewrite.state = RewriteState::Final;
                    (rewrite.purged, rewrite.remaining) = (purged, remaining);
                }
            }
        })?;
    }
    Ok(())
}

/// Returns the table with those remaining contents as purged that are not live any more.
fn with_purged_remains(
    mut table: RewriteTable,
    live: &Live<'_>,
) -> Result<RewriteTable, StoreError> {
    for rewrite in &mut table.rewrites {
        for id in mem::take(&mut rewrite.remaining) {
            let remains = live.contains(&id)?;
            let list = if remains { &mut rewrite.remaining } else { &mut rewrite.purged };
            list.insert(id);
        }
    }
    Ok(table)
}

/// Returns true if an object can be the content of a file.
fn is_content(store: &Store, id: &ObjectId) -> Result<bool, StoreError> {
    let kind = store.locate(id)?.map(|place| place.kind);
    Ok(matches!(kind, Some(ObjectKind::Blob | ObjectKind::ChunkList)))
}

/// Returns true if one of these objects is not stored.
fn lacks_any(store: &Store, ids: &BTreeSet<ObjectId>) -> Result<bool, StoreError> {
    for id in ids {
        if !store.is_alive(id)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Marks what the roots reach, and young packs except those of the plan. Returns the remote-tracking
/// refs that reach a purged object, each with its commit.
fn add_roots(
    repo: &Repo,
    roots: &Roots,
    options: &GcOptions,
    live: &Live<'_>,
    plan: Option<&Plan>,
) -> Result<Vec<(RefName, CommitId)>, RemovalError> {
    let store = repo.store();
    live.set_forgotten(forgotten(repo, options))?;
    live.add_refs(roots.pointers().map(|(_, id)| id))?;
    // The walks below find no content that only other roots still reach.
    live.purge(with_purged_remains(store.rewrites()?, live)?);
    let mut purged = Vec::new();
    for root in roots.iter() {
        let (id, reached) = (root.id, roots.reached(&root.id));
        match &root.origin {
            RootOrigin::Pointer(_) => {}
            // The next fetch removes it.
            RootOrigin::Tracking(_) if reach::is_collected(repo, id, &Silent)? => {}
            RootOrigin::Tracking(name) => {
                if !live.add_former(id, reached)? {
                    purged.push((name.clone(), id));
                }
            }
            // An earlier collection may have deleted the commit: after the clock was set back, old
            // log lines count as recent again. Any program may write a file with a wrong name.
            RootOrigin::Lost(_) | RootOrigin::Base | RootOrigin::Misnamed | RootOrigin::Former => {
                let is_former = root.origin == RootOrigin::Former;
                if store.is_alive(&id.object())? || store.is_alive(&id.link())? {
                    match is_former {
                        true => live.add_former(id, reached)?,
                        false => live.add_unless_purged(id, reached)?,
                    };
                }
            }
        }
    }
    let new = store.packs().into_iter().filter(|id| !plan.is_some_and(|plan| plan.knows(id)));
    for id in new.filter(|id| is_young(store, id, options)) {
        for object in store.open_pack(&id)?.objects()? {
            live.attempt(&object.id, object.kind)?;
        }
    }
    Ok(purged)
}

/// Reads the roots of a collection.
///
/// # Errors
/// [`RemovalError::Ref`] if a ref is damaged: it may point at any commit.
fn read_roots(repo: &Repo, options: &GcOptions) -> Result<Roots, RemovalError> {
    let since = before(options.present, options.undo);
    Ok(Roots::read(repo, RootChoice::Kept { since })?.complete()?)
}

/// Returns the time that is `age` before another one.
fn before(time: Time, age: Duration) -> Time {
    let age_secs = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
    Time { secs: time.secs.saturating_sub(age_secs), ..time }
}

/// Forgotten commits that a collection does not delete yet, so that an undo can bring them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingCommits {
    /// Their number.
    pub commits: u64,
    /// When the last of them can be deleted.
    pub until: Time,
}

/// Returns the forgotten commits that can still be brought back for some time; `None` if there are
/// none.
///
/// # Errors
/// [`StoreError`] when the index cannot be read.
pub fn waiting(
    store: &Store,
    undo: Duration,
    present: Time,
) -> Result<Option<WaitingCommits>, StoreError> {
    let due = forgotten_before(store, undo, present);
    let undo_secs = i64::try_from(undo.as_secs()).unwrap_or(i64::MAX);
    let mut waiting: Option<WaitingCommits> = None;
    for (id, time) in store.forgotten().commits() {
        if due.contains(id) || !store.is_alive(&id.object())? {
            continue;
        }
        let until = Time { secs: time.secs.saturating_add(undo_secs), ..time };
        let before = waiting.unwrap_or(WaitingCommits { commits: 0, until });
        let (commits, until) = (before.commits + 1, before.until.max(until));
        waiting = Some(WaitingCommits { commits, until });
    }
    Ok(waiting)
}

/// Returns the forgotten commits.
fn forgotten(repo: &Repo, options: &GcOptions) -> ForgottenCommits {
    let last = forgotten_before(repo.store(), options.undo_of_forget, options.present);
    let table = repo.store().forgotten();
    table.commits().map(|(id, _)| (*id, last.contains(id))).collect()
}

/// Returns the commits that were forgotten at least `undo` before `present`.
pub fn forgotten_before(store: &Store, undo: Duration, present: Time) -> BTreeSet<CommitId> {
    let last_secs = before(present, undo).secs;
    let is_before = |time: Time| time.secs <= last_secs;
    let table = store.forgotten();
    table.commits().filter(|(_, time)| is_before(*time)).map(|(id, _)| *id).collect()
}

/// Returns true if a pack is younger than the grace, or from the future: a clock is wrong.
fn is_young(store: &Store, id: &PackId, options: &GcOptions) -> bool {
    let modified = fs_err::metadata(store.pack_path(id)).map(|meta| meta.mtime());
    let grace_secs = i64::try_from(options.grace.as_secs()).unwrap_or(i64::MAX);
    let is_after = |secs: i64| secs.saturating_add(grace_secs) > options.present.secs;
    grace_secs > 0 && modified.is_ok_and(is_after)
}
