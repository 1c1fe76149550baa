//! A part of what lies elsewhere: all packs become stubs here, and what is
//! wanted of them comes. The rest is fetched when it is needed.

use std::{collections::HashMap, ops::Range};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::{Observer, Phase},
    },
    format::pack::Frame,
    ops::{
        absent::{self, Depth, Wanted},
        reach::ReachError,
    },
    store::{Store, StoreError},
};
use tokio::runtime::Handle;

use super::{bring::Origin, wanted::Lacking};
use crate::store::{RemoteError, RemoteStore};

/// Outlines that are held at once.
const STUBS_AT_ONCE: usize = 16;

/// What of a ref is wanted. Everything, by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// So many commits of each line, the last one included; all when `None`.
    pub depth: Option<u32>,
    /// Paths from the top of the snapshots, each with all that is below it;
    /// none for everything.
    pub paths: Vec<Vec<u8>>,
}

impl Part {
    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.depth.is_none() && self.paths.is_empty()
    }

    /// The same part of fewer commits: only the last.
    pub(super) fn of_last(&self, commit: CommitId) -> (Wanted, Depth) {
        let (wanted, _) = self.of(commit);
        (wanted, Depth::Commits(1))
    }

    /// What of the history of a commit that is.
    pub(super) fn of(&self, commit: CommitId) -> (Wanted, Depth) {
        let depth = self.depth.map_or(Depth::All, |depth| Depth::Commits(u64::from(depth).max(1)));
        (Wanted { commit, paths: self.paths.clone() }, depth)
    }
}

/// Ranges of packs.
pub(super) type Ranges = Vec<(PackId, Range<u64>)>;

/// Adds stubs of the packs that have anything which is not here, and brings
/// what is wanted. Returns how many bytes came.
pub(super) fn add(
    store: &Store,
    remote: &RemoteStore,
    wanted: &(Wanted, Depth),
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<u64, RemoteError> {
    add_stubs(store, remote)?;
    let ranges = find(store, remote, wanted, observer)?;
    bring(store, remote, &ranges, (runtime, observer))
}

pub(super) fn add_stubs(store: &Store, remote: &RemoteStore) -> Result<(), StoreError> {
    let there = remote.mirror().store();
    let wanted = Lacking { here: store, there }.packs()?;
    for some in wanted.chunks(STUBS_AT_ONCE) {
        let outlines: Result<Vec<_>, _> = some.iter().map(|pack| there.outline(&pack.id)).collect();
        store.add_stubs(&outlines?)?;
    }
    Ok(())
}

/// What is wanted and not here. The structure comes on the way.
pub(super) fn find(
    store: &Store,
    remote: &RemoteStore,
    (wanted, depth): &(Wanted, Depth),
    observer: &dyn Observer,
) -> Result<Ranges, RemoteError> {
    let found = absent::find(store, std::slice::from_ref(wanted), *depth, observer);
    found.map_err(|error| told(remote, error))
}

/// An error of a walk through what lies elsewhere.
pub(super) fn told(remote: &RemoteStore, error: ReachError) -> RemoteError {
    match error {
        ReachError::Interrupted => RemoteError::Interrupted,
        ReachError::Store(error @ StoreError::Missing { .. }) => RemoteError::Incomplete {
            location: remote.location().to_owned(),
            source: Box::new(ReachError::Store(error)),
        },
        ReachError::Store(error) => Origin::of(remote).damaged(error),
        error => error.into(),
    }
}

pub(super) fn bring(
    store: &Store,
    remote: &RemoteStore,
    ranges: &[(PackId, Range<u64>)],
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<u64, RemoteError> {
    let total = ranges.iter().map(|(_, range)| range.end - range.start).sum();
    observer.phase(Phase::Receive, Some(total));
    let frames = frames_of(store, ranges)?;
    Origin::of(remote).bring(store, frames, &mut |_| Ok(()), (runtime, observer))
}

/// The frames that ranges are, pack by pack.
fn frames_of(
    store: &Store,
    ranges: &[(PackId, Range<u64>)],
) -> Result<Vec<(PackId, Vec<Frame>)>, StoreError> {
    let mut packs: Vec<(PackId, Vec<u64>)> = Vec::new();
    let mut numbers = HashMap::new();
    for (id, range) in ranges {
        let number = *numbers.entry(*id).or_insert_with(|| {
            packs.push((*id, Vec::new()));
            packs.len() - 1
        });
        packs[number].1.push(range.start);
    }
    let mut all = Vec::with_capacity(packs.len());
    for (id, starts) in packs {
        let pack = store.open_pack(&id)?;
        let frames = pack.frames();
        let frame = |start: u64| {
            let at = frames.binary_search_by_key(&start, |frame| frame.offset).ok()?;
            frames.get(at).copied()
        };
        all.push((id, starts.into_iter().filter_map(frame).collect()));
    }
    Ok(all)
}
