//! Fetches ranges of packs in any order and writes them into the stubs of a store, for all
//! transfers from a remote store.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::Bytes;
use snap_core::{
    base::{id::PackId, kind::ErrorKind, observe::Observer},
    format::pack::Frame,
    store::{RemoteFrameError, Store, StoreError},
};
use tokio::runtime::Handle;

use crate::{
    peer::{Peer, PeerPacks, RemoteError, RemoteStore, pack_key},
    ranges::{JobOptions, LinkEstimate, NeededRange, RangePlanner, RangeResult, ReadError},
    remote_packs::unless_stopped,
};

/// Maximum length of adjacent frames to fetch and write together.
const PIECE_BYTES: u64 = 8 << 20;

/// Access to the packs of a remote store.
#[derive(Clone, Debug)]
pub(super) struct PackFetcher {
    peer: Arc<dyn Peer>,
    pub(super) location: String,
    link: Arc<LinkEstimate>,
}

/// Adjacent frames of a pack.
#[derive(Debug)]
struct FrameRun {
    pack: PackId,
    frames: Vec<Frame>,
}

impl FrameRun {
    fn range(&self) -> Range<u64> {
        let first = self.frames.first().map_or(0, |frame| frame.range().start);
        first..self.frames.last().map_or(first, |frame| frame.range().end)
    }
}

/// Callback for each pack after the arrival of all its requested frames.
pub(super) type OnPackComplete<'a> = dyn FnMut(PackId) -> Result<(), RemoteError> + 'a;

impl PackFetcher {
    pub(super) fn of(remote: &RemoteStore) -> Self {
        let (peer, location) =
            (Arc::clone(remote.place().peer()), remote.place().location().to_owned());
        Self { peer, location, link: Arc::default() }
    }

    /// Fetches frames of packs of which `store` has stubs. Checks each frame against its checksum,
    /// and fetches a damaged one once more. Returns the number of bytes received.
    pub(super) fn fetch_frames(
        &self,
        store: &Store,
        wanted: Vec<(PackId, Vec<Frame>)>,
        each: &mut OnPackComplete<'_>,
        runtime: &Handle,
        observer: &dyn Observer,
    ) -> Result<u64, RemoteError> {
        let (mut left, mut rows) = (HashMap::new(), Vec::new());
        for (id, frames) in wanted {
            let before = rows.len();
            add_runs(id, frames, &mut rows);
            match rows.len() - before {
                0 => each(id)?,
                count => drop(left.insert(id, count)),
            }
        }
        let planned = rows
            .iter()
            .map(|row| NeededRange { key: pack_key(&row.pack).into(), range: row.range() })
            .collect();
        let fetch = Arc::new(PeerPacks(Arc::clone(&self.peer)));
        let planner = RangePlanner::new(fetch, Arc::clone(&self.link), JobOptions::default());
        let mut job = {
            let _inside = runtime.enter();
            planner.start(planned)
        };
        let mut received = 0;
        let mut next = || -> Result<_, RemoteError> {
            observer.check()?;
            let next = async { Ok(job.next().await) };
            runtime.block_on(unless_stopped(next, &|| observer.check()))
        };
        while let Some(RangeResult { position, bytes }) = next()? {
            let row = &rows[position];
            let filled = match self.fill(store, row, bytes) {
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    let again = self.peer.read(row.pack, row.range());
                    let again = runtime.block_on(again).map_err(ReadError::from);
                    self.fill(store, row, again)
                }
                filled => filled,
            };
            let length = filled?;
            self.peer.traffic().needed(length);
            received += length;
            observer.advance(length, 0);
            if let Some(count) = left.get_mut(&row.pack) {
                *count -= 1;
                if *count == 0 {
                    each(row.pack)?;
                }
            }
        }
        Ok(received)
    }

    /// Writes the bytes of adjacent frames into their pack, if they are undamaged. Returns the
    /// number of bytes.
    fn fill(
        &self,
        store: &Store,
        row: &FrameRun,
        bytes: Result<Bytes, ReadError>,
    ) -> Result<u64, RemoteError> {
        let bytes = bytes.map_err(|source| {
            let location = self.location.clone();
            RemoteError::Range { key: pack_key(&row.pack), range: row.range(), location, source }
        })?;
        let filled = store.fill_frames(&row.pack, &row.frames, &bytes);
        filled.map_err(|error| self.damaged(error))?;
        Ok(bytes.len() as u64)
    }

    /// Converts an error, and adds the key of the damaged pack if the error names one.
    pub(super) fn damaged(&self, error: StoreError) -> RemoteError {
        let error = match error {
            StoreError::Fetch { pack, source: RemoteFrameError { kind, source } } => {
                match source.downcast::<RemoteError>() {
                    Ok(converted) => return *converted,
                    Err(source) => {
                        StoreError::Fetch { pack, source: RemoteFrameError { kind, source } }
                    }
                }
            }
            error => error,
        };
        let garbled = match &error {
            StoreError::CorruptedInTransit { pack, .. } | StoreError::Absent { pack, .. } => {
                Some(*pack)
            }
            _ => None,
        };
        match garbled.or(error.damaged_pack()) {
            Some(id) => RemoteError::Pack {
                key: pack_key(&id),
                location: self.location.clone(),
                source: Box::new(error.into()),
            },
            None => error.into(),
        }
    }
}

fn add_runs(pack: PackId, mut frames: Vec<Frame>, rows: &mut Vec<FrameRun>) {
    frames.sort_unstable_by_key(|frame| frame.offset);
    let mut open: Option<FrameRun> = None;
    for frame in frames {
        if let Some(row) = &mut open {
            let Range { start, end } = row.range();
            if frame.offset == end && frame.range().end - start <= PIECE_BYTES {
                row.frames.push(frame);
                continue;
            }
        }
        rows.extend(open.replace(FrameRun { pack, frames: vec![frame] }));
    }
    rows.extend(open);
}
