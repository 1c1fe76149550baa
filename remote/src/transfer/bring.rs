//! Ranges of packs come in any order, and are put in their places in the stubs
//! of a store: for all who move something from there to here.

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use snap_core::{
    base::{id::PackId, observe::Observer},
    format::pack::Frame,
    store::{DistantError, Store, StoreError},
};
use tokio::runtime::Handle;

use crate::{
    ranges::{Fetch, Job, Link, Options, Piece, Planner, ReadError, Wanted},
    service::client::Client,
    store::{OBJECTS, RemoteError, RemoteStore},
};

/// Frames that follow each other are written together up to this length.
const PIECE_BYTES: u64 = 8 << 20;

/// How often it is looked whether the user asks to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where packs come from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) client: Client,
    pub(super) location: String,
    link: Arc<Link>,
}

/// Frames of a pack that follow each other.
#[derive(Debug)]
struct Row {
    pack: PackId,
    frames: Vec<Frame>,
}

impl Row {
    fn range(&self) -> Range<u64> {
        let first = self.frames.first().map_or(0, |frame| frame.range().start);
        first..self.frames.last().map_or(first, |frame| frame.range().end)
    }
}

/// Told of each pack of which all that was asked for is here.
pub(super) type Each<'a> = dyn FnMut(PackId) -> Result<(), RemoteError> + 'a;

impl Origin {
    pub(super) fn of(remote: &RemoteStore) -> Self {
        let (client, location) = (remote.client().clone(), remote.location().to_owned());
        Self { client, location, link: Arc::default() }
    }

    /// Brings frames of packs of which `store` has stubs. Each is checked
    /// against its checksum, and fetched once more when it is not right.
    /// Returns how many bytes came.
    pub(super) fn bring(
        &self,
        store: &Store,
        wanted: Vec<(PackId, Vec<Frame>)>,
        each: &mut Each<'_>,
        (runtime, observer): (&Handle, &dyn Observer),
    ) -> Result<u64, RemoteError> {
        let (mut left, mut rows) = (HashMap::new(), Vec::new());
        for (id, frames) in wanted {
            let before = rows.len();
            add_rows(id, frames, &mut rows);
            match rows.len() - before {
                0 => each(id)?,
                count => drop(left.insert(id, count)),
            }
        }
        let planned = rows
            .iter()
            .map(|row| Wanted { key: key(row.pack).into(), range: row.range() })
            .collect();
        let fetch: Arc<dyn Fetch> = Arc::new(self.client.clone());
        let planner = Planner::new(fetch, Arc::clone(&self.link), Options::default());
        let mut job = {
            let _inside = runtime.enter();
            planner.start(planned)
        };
        let mut received = 0;
        while let Some(Piece { position, bytes }) = next(&mut job, (runtime, observer))? {
            let row = &rows[position];
            let mut bytes = bytes.map_err(|source| self.unreadable(row, source))?;
            let mut filled = store.fill_frames(&row.pack, &row.frames, &bytes);
            if let Err(StoreError::Garbled { .. }) = filled {
                let again_key = key(row.pack);
                let again = self.client.fetch(&again_key, row.range());
                let again = runtime.block_on(again).map_err(ReadError::from);
                bytes = again.map_err(|source| self.unreadable(row, source))?;
                filled = store.fill_frames(&row.pack, &row.frames, &bytes);
            }
            filled.map_err(|error| self.damaged(error))?;
            let length = bytes.len() as u64;
            drop(bytes);
            self.client.traffic().needed(length);
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

    fn unreadable(&self, row: &Row, source: ReadError) -> RemoteError {
        let location = self.location.clone();
        RemoteError::Range { key: key(row.pack), range: row.range(), location, source }
    }

    /// An error that blames a pack there, if it is one that does.
    pub(super) fn damaged(&self, error: StoreError) -> RemoteError {
        let error = match error {
            StoreError::Distant { pack, source: DistantError { kind, source } } => match source
                .downcast::<RemoteError>(
            ) {
                Ok(told) => return *told,
                Err(source) => StoreError::Distant { pack, source: DistantError { kind, source } },
            },
            error => error,
        };
        let garbled = match &error {
            StoreError::Garbled { pack, .. } | StoreError::Absent { pack, .. } => Some(*pack),
            _ => None,
        };
        match garbled.or(error.damaged_pack()) {
            Some(id) => RemoteError::Pack {
                key: key(id),
                location: self.location.clone(),
                source: Box::new(error.into()),
            },
            None => error.into(),
        }
    }
}

pub(super) fn key(pack: PackId) -> String {
    format!("{OBJECTS}{pack}")
}

/// The next piece that comes; the user may ask to stop meanwhile.
fn next(
    job: &mut Job,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<Option<Piece>, RemoteError> {
    runtime.block_on(async {
        loop {
            if observer.cancelled() {
                return Err(RemoteError::Interrupted);
            }
            tokio::select! {
                biased;
                piece = job.next() => return Ok(piece),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    })
}

fn add_rows(pack: PackId, mut frames: Vec<Frame>, rows: &mut Vec<Row>) {
    frames.sort_unstable_by_key(|frame| frame.offset);
    let mut open: Option<Row> = None;
    for frame in frames {
        if let Some(row) = &mut open {
            let Range { start, end } = row.range();
            if frame.offset == end && frame.range().end - start <= PIECE_BYTES {
                row.frames.push(frame);
                continue;
            }
        }
        rows.extend(open.replace(Row { pack, frames: vec![frame] }));
    }
    rows.extend(open);
}
