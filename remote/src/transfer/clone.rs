//! Clone: what the last commit needs comes first and is restored as it
//! comes, the rest follows.
//!
//! ```text
//! settings, default branch, refs, index        at once
//! stubs of all packs                           no request
//! the structure of the last commit             as it is walked
//! its contents, in order of need               under way while files are written
//! the rest                                     behind them
//! checks; then the packs are whole
//! ```

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        observe::{Observer, Phase},
    },
    ops::reach,
    repo::RefName,
    store::{Distant, Marks, Store, StoreError},
};
use tokio::runtime::Handle;

use super::{
    bring::Origin,
    fetch,
    partly::{self, Part, Ranges},
};
use crate::{
    distant::RemotePacks,
    store::{Found, INDEX, RemoteError, RemoteStore, heads::likely_branch},
};

/// How often it is looked whether the rest may begin.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Choices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which ref; the default branch there, unless it is said.
    pub name: Option<RefName>,
    /// What of it. When that is not everything, the rest stays elsewhere.
    pub part: Part,
}

/// What is there.
#[derive(Debug)]
pub struct Outcome {
    /// The ref that was chosen.
    pub name: RefName,
    /// Where it stands.
    pub commit: CommitId,
    /// The default branch there.
    pub default_branch: RefName,
    /// All branches and tags there, and where they stand.
    pub refs: Vec<(RefName, CommitId)>,
    /// An error for each ref there that is damaged, and left out.
    pub damaged_refs: Vec<RemoteError>,
    /// Why the default branch there is not known for certain: what names it is damaged.
    pub damaged_head: Option<RemoteError>,
}

/// Where a clone comes from.
#[derive(Debug)]
pub struct From<'a> {
    /// The store.
    pub remote: &'a mut RemoteStore,
    /// Its packs: what the store here fetches from ([`Store::with_distant`]).
    pub packs: &'a RemotePacks,
}

/// Brings a ref elsewhere into `store`, which is new. `restore` is called as
/// soon as the structure of the commit is here, and may read all that the
/// part has. Waits; not to be called by a thread of the runtime. Refs here are
/// the caller's business.
///
/// # Errors
/// [`RemoteError`], and those of `restore`. The store then has a part of it.
pub fn run<E: std::convert::From<RemoteError>>(
    store: &Store,
    from: From<'_>,
    options: &Options,
    restore: impl FnOnce(&Outcome) -> Result<(), E>,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<Outcome, E> {
    let From { remote, packs } = from;
    let outcome = runtime.block_on(look(remote, options.name.clone()))?;
    let remote = &*remote;
    partly::add_stubs(store, remote).map_err(RemoteError::from)?;
    let needed = partly::find(store, remote, &options.part.of_last(outcome.commit), observer)?;
    packs.will_need(&needed);
    let rest = Rest {
        store,
        from: (remote, packs),
        needed: &needed,
        part: &options.part,
        commit: outcome.commit,
    };
    let behind =
        Behind { observer, restored: AtomicBool::new(false), failed: AtomicBool::new(false) };
    thread::scope(|scope| {
        let following = scope.spawn(|| rest.bring((runtime, &behind)));
        let restored = restore(&outcome);
        behind.failed.store(restored.is_err(), Ordering::Relaxed);
        behind.restored.store(true, Ordering::Relaxed);
        let followed = following.join().expect("bringing the rest does not panic");
        restored?;
        followed.map_err(E::from)
    })?;
    keep_leftovers(store, packs).map_err(RemoteError::from)?;
    finish(store, remote, (options, outcome.commit), (runtime, observer))?;
    Ok(outcome)
}

/// What stands where, with an index that knows it.
async fn look(remote: &mut RemoteStore, name: Option<RefName>) -> Result<Outcome, RemoteError> {
    let (found, default_branch, refs, listed) = futures::join!(
        remote.look(),
        remote.default_branch(),
        remote.readable_refs(),
        remote.client().list(INDEX),
    );
    let place = remote.location().to_owned();
    let location = || place.clone();
    if found? == Found::Nothing {
        return Err(RemoteError::NoStore { location: location() });
    }
    let (refs, damaged_refs) = refs?;
    let (default_branch, damaged_head) = match default_branch {
        Err(error) if error.kind() == ErrorKind::Damaged => match likely_branch(&refs) {
            Some(likely) => (likely, Some(error)),
            None => return Err(error),
        },
        found => (found?, None),
    };
    remote.take_in_listed(listed?).await?;
    let name = name.unwrap_or_else(|| default_branch.clone());
    // What was pushed between the listing and the reading of the refs.
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
    Ok(Outcome { commit: *commit, name, default_branch, refs, damaged_refs, damaged_head })
}

/// What comes behind the last commit.
struct Rest<'a> {
    store: &'a Store,
    from: (&'a RemoteStore, &'a RemotePacks),
    needed: &'a Ranges,
    part: &'a Part,
    commit: CommitId,
}

impl Rest<'_> {
    fn bring(&self, (runtime, behind): (&Handle, &Behind<'_>)) -> Result<(), RemoteError> {
        // What is needed first is not to share the way with it.
        while self.from.1.has_queued() && !behind.restored.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
        }
        let coming: HashSet<(PackId, u64)> =
            self.needed.iter().map(|(id, range)| (*id, range.start)).collect();
        let remote = self.from.0;
        if !self.part.is_everything() {
            let of = self.part.of(self.commit);
            let mut ranges = partly::find(self.store, remote, &of, behind)?;
            ranges.retain(|(id, range)| !coming.contains(&(*id, range.start)));
            return partly::bring(self.store, remote, &ranges, (runtime, behind)).map(drop);
        }
        let mut frames = Vec::new();
        for id in self.store.partial_packs() {
            let mut absent = self.store.absent_frames(&id)?;
            absent.retain(|frame| !coming.contains(&(id, frame.offset)));
            frames.push((id, absent));
        }
        let origin = Origin::of(remote);
        origin.bring(self.store, frames, &mut |_| Ok(()), (runtime, behind)).map(drop)
    }
}

/// Watches what happens behind a restore, which has a progress of its own.
struct Behind<'a> {
    observer: &'a dyn Observer,
    restored: AtomicBool,
    failed: AtomicBool,
}

impl Observer for Behind<'_> {
    fn cancelled(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.observer.cancelled()
    }
}

/// Keeps what came for nobody: files that were there already, or no restore.
fn keep_leftovers(store: &Store, packs: &RemotePacks) -> Result<(), StoreError> {
    let unread = packs.leftovers();
    unread.iter().try_for_each(|(id, range, bytes)| store.fill(id, range.start, bytes))
}

/// Brings what is still absent, if anything, and checks that all is there.
fn finish(
    store: &Store,
    remote: &RemoteStore,
    (options, commit): (&Options, CommitId),
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<(), RemoteError> {
    if !options.part.is_everything() {
        let ranges = partly::find(store, remote, &options.part.of(commit), observer)?;
        partly::bring(store, remote, &ranges, (runtime, observer))?;
        return fetch::promote(store, remote, observer).map(drop);
    }
    fetch::everything(store, remote, (runtime, observer))?;
    observer.phase(Phase::Structure, None);
    let marks = Marks::new(store);
    let mut enter = |id: &_, _: &_| marks.mark(id);
    let visited = reach::visit(store, &[commit], &mut enter, observer);
    visited.map_err(|error| partly::told(remote, error))?;
    fetch::promote_all(store, remote, (runtime, observer)).map(drop)
}
