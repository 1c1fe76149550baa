//! Partial transfers: all packs become local stubs, and the transfer fetches only the wanted part.
//! Later reads fetch the rest on demand.

use std::{collections::HashMap, ops::Range};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::{Observer, Phase},
    },
    format::pack::Frame,
    ops::{
        missing_objects::{self, FetchRequest, HistoryDepth},
        reach::ReachError,
    },
    store::{Store, StoreError},
};
use tokio::runtime::Handle;

use super::{
    fetch_frames::PackFetcher,
    fetch_planner::FetchPlanner,
    liveness::{Liveness, shadow_forgotten, take_shadows},
};
use crate::{
    bucket::PartialClone,
    peer::{RemoteError, RemoteStore},
};

/// Number of outlines in memory at a time.
const STUBS_AT_ONCE: usize = 16;

/// The part of a ref to fetch. The default is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialScope {
    /// Number of commits in each line of history, including the last; `None` means all.
    pub depth: Option<u32>,
    /// Paths from the root of the snapshots, each with everything below it. Empty means
    /// everything.
    pub paths: Vec<Vec<u8>>,
}

impl PartialScope {
    /// Returns true if the scope is the whole history with all paths.
    pub fn is_everything(&self) -> bool {
        self.depth.is_none() && self.paths.is_empty()
    }

    /// Returns this part of the last commit only.
    pub(super) fn of_last(&self, commit: CommitId) -> WantedPart {
        WantedPart { depth: HistoryDepth::Commits(1), ..self.of(commit) }
    }

    /// Returns this part of the history of a commit.
    pub(super) fn of(&self, commit: CommitId) -> WantedPart {
        let depth = self
            .depth
            .map_or(HistoryDepth::All, |depth| HistoryDepth::Commits(u64::from(depth).max(1)));
        WantedPart { request: FetchRequest { commit, paths: self.paths.clone() }, depth }
    }
}

/// The part of the history of a commit to fetch.
pub(super) struct WantedPart {
    /// The commit and the paths.
    pub(super) request: FetchRequest,
    pub(super) depth: HistoryDepth,
}

/// Byte ranges of packs.
pub(super) type PackRanges = Vec<(PackId, Range<u64>)>;

/// Adds stubs of the packs with objects that are missing locally, and fetches the wanted part.
/// Returns the number of bytes received.
pub(super) fn fetch_part(
    store: &Store,
    remote: &RemoteStore,
    wanted: &WantedPart,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    let commits = [wanted.request.commit];
    let live = Liveness::of(remote, &commits, runtime, observer)?;
    add_stubs(store, remote, &live)?;
    let ranges = missing_ranges(store, remote, wanted, observer)?;
    let bytes = fetch_ranges(store, remote, &ranges, runtime, observer)?;
    // A walk from the commits would fetch what is not wanted.
    take_shadows(store, &live, &store.partial_packs(), &[], observer)?;
    Ok(bytes)
}

pub(super) fn add_stubs(
    store: &Store,
    remote: &RemoteStore,
    live: &Liveness,
) -> Result<(), StoreError> {
    let mirror = remote.mirror().store();
    let wanted = FetchPlanner { local: store, mirror, live }.packs(&|_| false)?;
    for some in wanted.chunks(STUBS_AT_ONCE) {
        let outlines: Result<Vec<_>, _> =
            some.iter().map(|pack| mirror.outline(&pack.id)).collect();
        store.add_stubs(&outlines?)?;
    }
    shadow_forgotten(store, live)
}

/// Returns the wanted ranges that are missing. Fetches the structure on the way.
pub(super) fn missing_ranges(
    store: &Store,
    remote: &RemoteStore,
    wanted: &WantedPart,
    observer: &dyn Observer,
) -> Result<PackRanges, RemoteError> {
    let requests = std::slice::from_ref(&wanted.request);
    let found = missing_objects::find(store, requests, wanted.depth, observer);
    found.map_err(|error| reach_error(remote, error))
}

/// Converts an error of a walk through remote objects.
pub(crate) fn reach_error(remote: &RemoteStore, error: ReachError) -> RemoteError {
    match error {
        ReachError::Blocked(blocked) => blocked.into(),
        ReachError::Store(error @ StoreError::Missing { .. }) => RemoteError::Incomplete {
            location: remote.place().location().to_owned(),
            source: Box::new(ReachError::Store(error)),
        },
        ReachError::Store(error) => PackFetcher::of(remote).damaged(error),
        error => error.into(),
    }
}

/// Explains an incomplete remote store that is a partial clone.
pub(super) fn explain_partial_clone(
    remote: &RemoteStore,
    error: RemoteError,
    runtime: &Handle,
) -> RemoteError {
    let RemoteError::Incomplete { location, source } = error else { return error };
    match runtime.block_on(remote.place().peer().partial_clone()) {
        Ok(Some(PartialClone { origin, .. })) => {
            RemoteError::PartialClone { location, origin, source }
        }
        _ => RemoteError::Incomplete { location, source },
    }
}

pub(super) fn fetch_ranges(
    store: &Store,
    remote: &RemoteStore,
    ranges: &[(PackId, Range<u64>)],
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    let total = ranges.iter().map(|(_, range)| range.end - range.start).sum();
    observer.phase(Phase::Receive, Some(total));
    let frames = frames_of(store, ranges)?;
    PackFetcher::of(remote).fetch_frames(store, frames, &mut |_| Ok(()), runtime, observer)
}

/// Returns the frames at these ranges, by pack.
fn frames_of(
    store: &Store,
    ranges: &[(PackId, Range<u64>)],
) -> Result<Vec<(PackId, Vec<Frame>)>, StoreError> {
    let mut packs: Vec<(PackId, Vec<(u64, u64)>)> = Vec::new();
    let mut numbers = HashMap::new();
    for (id, range) in ranges {
        let number = *numbers.entry(*id).or_insert_with(|| {
            packs.push((*id, Vec::new()));
            packs.len() - 1
        });
        packs[number].1.push((range.start, range.end));
    }
    let mut all = Vec::with_capacity(packs.len());
    for (id, positions) in packs {
        let pack = store.open_pack(&id)?;
        let frames = pack.frames();
        let frame = |position| {
            let at = frames.binary_search_by_key(&position, Frame::position).ok()?;
            frames.get(at).copied()
        };
        all.push((id, positions.into_iter().filter_map(frame).collect()));
    }
    Ok(all)
}
