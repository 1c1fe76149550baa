//! `gc`: deletes what no ref reaches.
//!
//! A collection runs beside commits and all other commands, and can be killed at any step:
//!
//! 1. Mark everything that the roots reach (`mark`, `roots`).
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
mod roots;
mod sweep;

use std::{collections::BTreeSet, mem, os::unix::fs::MetadataExt, time::Duration};

pub use mark::Live;
pub use pack_use::{PackUse, choose_rewritten};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::rewrites::{Rewrite, RewriteState},
    ops::gc::{mark::ForgottenCommits, plan::Plan, roots::Roots},
    repo::{Repo, ref_name::RefName, refs::RefError},
    store::{Store, StoreError},
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Remote-tracking refs that were removed, because they reach purged objects.
    pub dropped_refs: u64,
    /// True if packs stay that another process uses.
    pub is_busy: bool,
    /// True if the disk had no room to rewrite packs.
    pub lacks_room: bool,
}

impl GcOutcome {
    /// Returns the bytes by which the packs shrink.
    pub fn freed_bytes(&self) -> u64 {
        self.deleted_bytes.saturating_sub(self.written_bytes)
    }
}

/// Why a collection ended without deleting anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GcError {
    /// An object that a ref needs is missing or damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A ref cannot be read.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// The store lacks objects that its origin has.
    #[error("a partial clone cannot collect garbage: its remote has the other objects")]
    Partial,
    /// The settings of the store belong to another user.
    #[error("the settings of this store belong to another user")]
    OtherOwner,
    /// Refs moved again and again.
    #[error("other processes began a collection again and again")]
    Contended,
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl GcError {
    /// Classifies the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            // The ids come from the store itself.
            Self::Store(StoreError::Missing { .. } | StoreError::WrongKind { .. }) => {
                ErrorKind::Damaged
            }
            Self::Store(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Partial => ErrorKind::Invalid,
            Self::OtherOwner => ErrorKind::Denied,
            Self::Contended => ErrorKind::Locked,
            Self::Io(error) => error.kind(),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Collects the garbage of a local store.
///
/// # Errors
/// [`GcError`]. Nothing is lost; an error in the last step leaves packs that the next collection
/// deletes.
pub fn run(
    repo: &Repo,
    options: &GcOptions,
    observer: &dyn Observer,
) -> Result<GcOutcome, GcError> {
    if repo.store().has_partial() || repo.scope()?.is_some() {
        return Err(GcError::Partial);
    }
    let mut copies = Copies::Wanted;
    for _ in 0..limits::REF_RETRIES {
        let lacks_room = copies == Copies::None;
        match attempt(repo, options, copies, observer) {
            Ok(Some(outcome)) => return Ok(GcOutcome { lacks_room, ..outcome }),
            Ok(None) => {}
            // Another process has merged packs. The next attempt lists them again.
            Err(GcError::Store(StoreError::Gone { .. })) => {}
            // Without room for copies, the packs that need none can still be deleted.
            Err(GcError::Store(error)) if error.is_full() && !lacks_room => copies = Copies::None,
            Err(error) => return Err(error),
        }
    }
    Err(GcError::Contended)
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
) -> Result<Option<GcOutcome>, GcError> {
    let max_rewritten_bytes = match copies {
        Copies::Wanted => options.max_rewritten_bytes,
        Copies::None => Some(0),
    };
    let options = &GcOptions { max_rewritten_bytes, ..*options };
    let store = repo.store();
    let epoch = store.enter_epoch()?;
    store.refresh()?;
    observer.phase(Phase::Mark, None);
    let live = Live::new(store, observer);
    let dropped_refs = add_roots(repo, options, &live, None)?.len() as u64;
    let mut plan = Plan::make(store, &live, options, copies, observer)?;
    while copies == Copies::Wanted && plan.keep_complete(store, &live)? {
        plan = Plan::make(store, &live, options, copies, observer)?;
    }
    if options.dry_run {
        return Ok(Some(GcOutcome { dropped_refs, ..plan.outcome() }));
    }
    if plan.frees_nothing() && !store.has_any_dead() {
        let outcome = plan.outcome();
        finish_rewrites(repo, &live)?;
        return Ok(Some(outcome));
    }
    match plan.copy(repo, &live, observer) {
        Err(GcError::Store(StoreError::Collected)) => return Ok(None),
        copied => copied?,
    }
    sweep::run(repo, plan, &live, epoch, options, observer)
}

/// Records that rewrites cannot be undone any more, if a purged object is gone. Objects that a ref
/// reaches again, such as a tree that other commands made anew, do not count as purged from then on.
fn finish_rewrites(repo: &Repo, live: &Live<'_>) -> Result<(), GcError> {
    let store = repo.store();
    let mut table = store.rewrites()?;
    for rewrite in &mut table.rewrites {
        if rewrite.state == RewriteState::Open && lacks_any(store, &rewrite.purged)? {
            rewrite.state = RewriteState::Final;
        }
        if rewrite.state == RewriteState::Final {
            for id in mem::take(&mut rewrite.purged) {
                if !live.contains(&id)? {
                    rewrite.purged.insert(id);
                }
            }
        }
    }
    if table != store.rewrites()? {
        let _refs = repo.refs().hold()?;
        store.change_rewrites(|now| {
            for rewrite in &mut now.rewrites {
                let finished = table.rewrites.iter().find(|known| known.time == rewrite.time);
                if let Some(Rewrite { state: RewriteState::Final, purged, .. }) = finished {
                    rewrite.state = RewriteState::Final;
                    rewrite.purged.retain(|id| purged.contains(id));
                }
            }
        })?;
    }
    Ok(())
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
    options: &GcOptions,
    live: &Live<'_>,
    plan: Option<&Plan>,
) -> Result<Vec<(RefName, CommitId)>, GcError> {
    let store = repo.store();
    let roots = Roots::read(repo, options)?;
    live.set_forgotten(forgotten(repo, options))?;
    live.purge(store.rewrites()?);
    live.add_refs(roots.refs)?;
    let mut purged = Vec::new();
    for (name, id) in roots.tracking {
        if !live.add_unless_purged(id)? {
            purged.push((name, id));
        }
    }
    for id in roots.former {
        // An earlier collection may have deleted it: a changed clock makes old values new again.
        if store.is_alive(&id.object())? || store.has_link(&id)? {
            live.add_unless_purged(id)?;
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

/// Returns the forgotten commits.
fn forgotten(repo: &Repo, options: &GcOptions) -> ForgottenCommits {
    let last = forgotten_before(repo.store(), options.undo_of_forget, options.present);
    let table = repo.store().forgotten();
    table.commits().map(|(id, _)| (*id, last.contains(id))).collect()
}

/// Returns the commits that were forgotten at least `undo` before `present`.
pub fn forgotten_before(store: &Store, undo: Duration, present: Time) -> BTreeSet<CommitId> {
    let undo_secs = i64::try_from(undo.as_secs()).unwrap_or(i64::MAX);
    let is_before = |time: Time| time.secs.saturating_add(undo_secs) <= present.secs;
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
