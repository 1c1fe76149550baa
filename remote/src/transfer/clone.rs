//! Clone: fetches the data of the last commit first, and restores the commit while the rest
//! follows.
//!
//! ```text
//! settings, default branch, refs, index        concurrently
//! stubs of all packs                           no request
//! the structure of the last commit             while it is walked
//! its contents, in order of need               while files are written
//! the rest                                     after them
//! checks; then the packs are complete
//! ```

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use snap_core::{
    base::{
        again::until_settled,
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        limits,
        observe::{Note, Observer, Phase},
    },
    ops::reach,
    repo::RefName,
    store::{Marks, ObjectLocation, RemoteFrames, Store, StoreError},
};
use tokio::runtime::Handle;

use super::{
    beside, fetch,
    fetch_frames::PackFetcher,
    liveness::{Liveness, shadow_forgotten, take_shadows},
    partial::{self, PackRanges, PartialScope},
};
use crate::{
    peer::{
        RemoteError, RemoteStore, StoreLookup,
        all_refs::{first_branch, likely_branch},
    },
    remote_packs::RemotePacks,
};

/// Interval at which the background fetch checks whether it may start.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Options of a clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneOptions {
    /// The ref; `None` means the default branch of the remote store.
    pub name: Option<RefName>,
    /// The part to fetch. All other data stays in the remote store.
    pub part: PartialScope,
}

/// The result of a clone.
#[derive(Debug)]
pub struct CloneOutcome {
    /// The cloned ref.
    pub name: RefName,
    /// The commit of the cloned ref.
    pub commit: CommitId,
    /// The default branch of the remote store.
    pub default_branch: RefName,
    /// All branches and tags of the remote store, with their commits.
    pub refs: Vec<(RefName, CommitId)>,
    /// An error for each damaged ref. The clone leaves these refs out.
    pub damaged_refs: Vec<RemoteError>,
    /// Why the default branch is a guess: `HEAD` is damaged or names a missing branch.
    pub damaged_head: Option<RemoteError>,
}

/// The source of a clone.
#[derive(Debug)]
pub struct CloneSource<'a> {
    /// The store.
    pub remote: &'a mut RemoteStore,
    /// The packs that the local store fetches from ([`Store::with_remote_frames`]).
    pub packs: &'a RemotePacks,
}

/// Clones a ref into `store`, which is new. Calls `restore` as soon as the structure of the commit
/// has arrived; `restore` may read everything in the requested part. Blocks; must not be called on
/// a thread of the runtime. The caller writes the local refs.
///
/// # Errors
/// [`RemoteError`], and errors of `restore`. The store then has only a part of the data.
pub fn run<E: std::convert::From<RemoteError>>(
    store: &Store,
    from: CloneSource<'_>,
    options: &CloneOptions,
    restore: impl FnOnce(&CloneOutcome) -> Result<(), E>,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<CloneOutcome, E> {
    let CloneSource { remote, packs } = from;
    let begun = until_settled(
        remote,
        limits::GC_ROUNDS,
        |remote| begin(store, remote, options, runtime, observer).map(Some),
        |remote, error| beside::look_again(remote, error, runtime),
    );
    let Begun { outcome, there, needed } =
        begun?.expect("an attempt ends with a result or an error");
    packs.prefetch(&needed);
    let rest = BackgroundFetch {
        store,
        remote: &*remote,
        packs,
        needed: &needed,
        part: &options.part,
        commit: outcome.commit,
    };
    let behind = BackgroundObserver {
        observer,
        restored: AtomicBool::new(false),
        failed: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let following = scope.spawn(|| rest.bring(runtime, &behind));
        let restored = restore(&outcome);
        behind.failed.store(restored.is_err(), Ordering::Relaxed);
        behind.restored.store(true, Ordering::Relaxed);
        let followed = following.join().expect("fetching the rest does not panic");
        restored?;
        // `finish` fetches the rest around the damage, and beside a collection.
        followed.or_else(|error| match error {
            RemoteError::Incomplete { .. } => Ok(()),
            error => beside::bad_pack(&error).map(drop).ok_or(error),
        })?;
        Ok::<_, E>(())
    })?;
    keep_leftovers(store, packs).map_err(RemoteError::from)?;
    let mut state = (remote, there);
    let finished = until_settled(
        &mut state,
        limits::GC_ROUNDS + beside::FRAMES,
        |(remote, there)| {
            let finished = beside::around_damage(store, remote, runtime, || {
                finish(store, remote, options, (outcome.commit, there), runtime, observer)
            });
            finished.map(Some)
        },
        |(remote, there), error| {
            if beside::look_again(remote, error, runtime)? {
                *there = learn_collection(store, remote, &outcome, runtime, observer)?;
                return Ok(true);
            }
            let drop_stub =
                |pack| beside::drop_unneeded_stub(store, &pack, &there.commits, observer);
            let is_dropped = beside::bad_pack(error).map_or(Ok(false), drop_stub)?;
            if is_dropped {
                observer.note(Note::UnneededPackUnread { error });
            }
            Ok(is_dropped)
        },
    );
    let (remote, there) = state;
    match finished {
        Ok(Some(())) => Ok(outcome),
        // Another client has moved the ref, and a collection has deleted its former commit.
        Err(RemoteError::Incomplete { .. }) if !there.commits.contains(&outcome.commit) => {
            Err(remote.place().collected().into())
        }
        Err(error) => Err(error.into()),
        Ok(None) => Err(remote.place().collected().into()),
    }
}

/// The state of the remote store on which the clone relies.
struct Standing {
    /// The commits of the refs of the clone that have not moved since it has read them.
    commits: Vec<CommitId>,
    live: Liveness,
}

/// What a clone knows before it restores the last commit.
struct Begun {
    outcome: CloneOutcome,
    there: Standing,
    /// The contents of the last commit.
    needed: PackRanges,
}

/// Reads the refs and the index, and fetches the structure of the last commit.
fn begin(
    store: &Store,
    remote: &mut RemoteStore,
    options: &CloneOptions,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<Begun, RemoteError> {
    let outcome = runtime.block_on(look(remote, options.name.clone()))?;
    let remote = &*remote;
    // An attempt that a collection has overtaken leaves stubs of deleted packs.
    fetch::relocate(store, remote, remote.was_collected())?;
    let partial_clone = runtime.block_on(remote.place().peer().partial_clone())?;
    let commits: Vec<CommitId> = outcome.refs.iter().map(|(_, commit)| *commit).collect();
    let (live, needed) = beside::around_damage(store, remote, runtime, || {
        let live = Liveness::of(remote, &commits, runtime, observer)?;
        partial::add_stubs(store, remote, &live)?;
        if partial_clone.is_some() {
            // Check this now, because otherwise the clone would fail after the restore of the last
            // commit.
            let all = options.part.of(outcome.commit);
            partial::missing_ranges(store, remote, &all, observer)
                .map_err(|error| partial::explain_partial_clone(remote, error, runtime))?;
        }
        let last = options.part.of_last(outcome.commit);
        Ok((live, partial::missing_ranges(store, remote, &last, observer)?))
    })?;
    Ok(Begun { outcome, there: Standing { commits, live }, needed })
}

/// Learns what a collection has deleted since the clone has read the index: replaces the stubs of
/// deleted packs by those of packs with the same objects, or with the links of forgotten commits.
fn learn_collection(
    store: &Store,
    remote: &mut RemoteStore,
    outcome: &CloneOutcome,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<Standing, RemoteError> {
    runtime.block_on(remote.refresh())?;
    let (refs, _) = runtime.block_on(remote.place().readable_refs())?;
    let still = outcome.refs.iter().filter(|found| refs.contains(found));
    let commits: Vec<CommitId> = still.map(|(_, commit)| *commit).collect();
    let live = Liveness::of(remote, &commits, runtime, observer)?;
    fetch::relocate(store, remote, remote.was_collected())?;
    shadow_forgotten(store, &live)?;
    Ok(Standing { commits, live })
}

/// Reads the refs of the remote store and an index that knows their commits.
async fn look(
    remote: &mut RemoteStore,
    name: Option<RefName>,
) -> Result<CloneOutcome, RemoteError> {
    let (found, default_branch, refs, listed) = futures::join!(
        remote.find_store(),
        remote.place().head(),
        remote.place().readable_refs(),
        remote.place().peer().list_index(),
    );
    let place = remote.place().location().to_owned();
    let location = || place.clone();
    if found? == StoreLookup::Missing {
        return Err(RemoteError::NoStore { location: location() });
    }
    let (refs, damaged_refs) = refs?;
    let (default_branch, damaged_head) = match default_branch {
        Err(error) if error.kind() == ErrorKind::Damaged => match likely_branch(&refs) {
            Some(likely) => (likely, Some(error)),
            None => return Err(error),
        },
        found => {
            let found = found?;
            let is_lost = found.is_none();
            let found = found.unwrap_or_else(first_branch);
            let is_there = refs.iter().any(|(name, _)| *name == found)
                || damaged_refs.iter().any(|(name, _)| *name == found);
            match likely_branch(&refs).filter(|_| is_lost || !is_there) {
                Some(likely) if is_lost => (likely, Some(remote.place().lost_head())),
                Some(likely) => {
                    let error = RemoteError::NoRef { name: Box::new(found), location: location() };
                    (likely, Some(error))
                }
                None => (found, None),
            }
        }
    };
    remote.take_in_listed(listed?).await?;
    let name = name.unwrap_or_else(|| default_branch.clone());
    // Another client may have pushed between the listing and the reading of the refs.
    for (_, commit) in &refs {
        if !remote.mirror().has(&commit.object())? {
            remote.refresh().await?;
            break;
        }
    }
    let standing = refs.iter().find(|(other, _)| *other == name);
    let Some((_, commit)) = standing else {
        let mut damaged = damaged_refs.into_iter();
        if let Some((_, error)) = damaged.find(|(other, _)| *other == name) {
            return Err(error);
        }
        return Err(RemoteError::NoRef { name: Box::new(name), location: location() });
    };
    let damaged_refs = damaged_refs.into_iter().map(|(_, error)| error).collect();
    Ok(CloneOutcome { commit: *commit, name, default_branch, refs, damaged_refs, damaged_head })
}

/// The background fetch of the data after that of the last commit.
struct BackgroundFetch<'a> {
    store: &'a Store,
    remote: &'a RemoteStore,
    packs: &'a RemotePacks,
    needed: &'a PackRanges,
    part: &'a PartialScope,
    commit: CommitId,
}

impl BackgroundFetch<'_> {
    fn bring(&self, runtime: &Handle, behind: &BackgroundObserver<'_>) -> Result<(), RemoteError> {
        // The last commit comes first: its ranges must not share the connection with the rest.
        while self.packs.has_queued() && !behind.restored.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
        }
        let coming: HashSet<(PackId, (u64, u64))> =
            self.needed.iter().map(|(id, range)| (*id, (range.start, range.end))).collect();
        let remote = self.remote;
        if !self.part.is_everything() {
            let of = self.part.of(self.commit);
            let mut ranges = partial::missing_ranges(self.store, remote, &of, behind)?;
            ranges.retain(|(id, range)| !coming.contains(&(*id, (range.start, range.end))));
            return partial::fetch_ranges(self.store, remote, &ranges, runtime, behind).map(drop);
        }
        let mut frames = Vec::new();
        for id in self.store.partial_packs() {
            let mut absent = beside::frames_to_fetch(self.store, &id)?;
            absent.retain(|frame| !coming.contains(&(id, frame.position())));
            frames.push((id, absent));
        }
        let origin = PackFetcher::of(remote);
        origin.fetch_frames(self.store, frames, &mut |_| Ok(()), runtime, behind).map(drop)
    }
}

/// The observer of the background fetch. It reports no progress, because the restore does.
struct BackgroundObserver<'a> {
    observer: &'a dyn Observer,
    restored: AtomicBool,
    failed: AtomicBool,
}

impl Observer for BackgroundObserver<'_> {
    fn cancelled(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.observer.cancelled()
    }
}

/// Stores fetched but unread ranges, which remain if files existed already or without a restore.
fn keep_leftovers(store: &Store, packs: &RemotePacks) -> Result<(), StoreError> {
    let unread = packs.leftovers();
    unread.iter().try_for_each(|(key, bytes)| store.fill(&key.pack, key.range().start, bytes))
}

/// Fetches the absent data, checks that the store has all requested data, and takes over what is dead
/// in the remote store.
fn finish(
    store: &Store,
    remote: &RemoteStore,
    options: &CloneOptions,
    (commit, there): (CommitId, &Standing),
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<(), RemoteError> {
    let Standing { commits, live } = there;
    if !options.part.is_everything() {
        let ranges = partial::missing_ranges(store, remote, &options.part.of(commit), observer)?;
        partial::fetch_ranges(store, remote, &ranges, runtime, observer)?;
        fetch::promote(store, remote, observer)?;
        // A walk through a part would fetch the rest.
        return take_shadows(store, live, &store.packs(), &[], observer);
    }
    fetch::everything(store, remote, runtime, observer)?;
    observer.phase(Phase::Structure, None);
    let marks = Marks::new(store);
    let mut enter = |id: &_, _: &_| marks.mark(id);
    let visited = reach::visit(store, &[commit], &mut enter, observer);
    visited.map_err(|error| partial::reach_error(remote, error))?;
    fetch::promote_all(store, remote, runtime, observer)?;
    drop_deleted_packs(store, remote, commits, observer)?;
    if store.has_shadows() {
        // Wrong chunk lists of other branches do no harm.
        let marks = Marks::new(store);
        let mut enter = |id: &ObjectId, _: &ObjectLocation| match store.locate_unshadowed(id)? {
            Some(_) => marks.mark(id),
            None => Err(store.shadowed_error(id)),
        };
        let visited = reach::visit(store, &[commit], &mut enter, observer);
        visited.map_err(|error| partial::reach_error(remote, error))?;
    }
    take_shadows(store, live, &store.packs(), commits, observer)
}

/// Removes the stubs of packs that a collection has deleted during the clone.
fn drop_deleted_packs(
    store: &Store,
    remote: &RemoteStore,
    commits: &[CommitId],
    observer: &dyn Observer,
) -> Result<(), RemoteError> {
    let stubs = store.partial_packs();
    if stubs.is_empty() {
        return Ok(());
    }
    let known: HashSet<PackId> = remote.mirror().store().packs().into_iter().collect();
    for id in stubs.iter().filter(|id| !known.contains(id)) {
        beside::drop_unneeded_stub(store, id, commits, observer)?;
    }
    Ok(())
}
