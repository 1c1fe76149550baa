//! Loads the small contents of a batch. Each frame is decompressed once.

use std::sync::Arc;

use rayon::prelude::*;

use crate::{
    base::{id::BlobId, limits},
    format::pack::ObjectKind,
    ops::export::{
        ArchiveFormat, ExportError, ExportJob,
        batch::{ArchiveEntry, BufferSlice, EntryData},
        deflate::StoredContent,
    },
    store::{ObjectLocation, Store, StoreError},
};

/// The number of frames that are decompressed in parallel, regardless of the number of
/// cores. Each takes some MiB.
const FRAMES_AT_ONCE: usize = 4;

/// The number of frames that are kept for the next batch. A commit fills several frames
/// in parallel, so frames overlap with batches.
const FRAMES_KEPT: usize = 4;

/// The largest total size of the kept frames in bytes.
const KEPT_BYTES: usize = limits::LARGE_FRAME_BYTES;

/// The pack and the number of a frame.
type CachedFrameKey = (u32, u32);

/// Loads contents, and keeps the frames that were used last.
#[derive(Default)]
pub(super) struct Loader {
    kept: Vec<(CachedFrameKey, Arc<Vec<u8>>)>,
}

/// The contents that lie in one frame: their positions and the indices of their items in
/// the batch.
struct FrameGroup<'g> {
    members: &'g [(ObjectLocation, usize)],
    /// True if the frame is kept for the next batch.
    is_kept: bool,
}

/// The result of loading a group.
struct Loaded {
    contents: Vec<(usize, BufferSlice)>,
    frame: Option<(CachedFrameKey, Arc<Vec<u8>>)>,
}

impl Loader {
    /// Loads the wanted contents. Large contents are marked to be streamed.
    pub(super) fn load(
        &mut self,
        job: &ExportJob<'_>,
        items: &mut [ArchiveEntry],
    ) -> Result<(), ExportError> {
        let mut places = locate(job, items)?;
        places.sort_unstable();
        let mut groups: Vec<FrameGroup<'_>> = places
            .chunk_by(|a, b| key(&a.0) == key(&b.0))
            .map(|members| FrameGroup { members, is_kept: false })
            .collect();
        let mut last: Vec<(usize, usize)> = groups
            .iter()
            .enumerate()
            .filter_map(|(at, group)| {
                Some((group.members.iter().map(|(_, item)| *item).max()?, at))
            })
            .collect();
        last.sort_unstable_by(|a, b| b.cmp(a));
        for (_, at) in last.into_iter().take(FRAMES_KEPT) {
            groups[at].is_kept = true;
        }
        let share = groups.len().div_ceil(FRAMES_AT_ONCE).max(1);
        let items_seen: &[ArchiveEntry] = items;
        let loaded: Vec<Vec<Loaded>> = groups
            .par_chunks(share)
            .map(|groups| groups.iter().map(|group| self.group(job, items_seen, group)).collect())
            .collect::<Result<_, _>>()?;
        self.kept.clear();
        let mut kept_bytes = 0;
        for group in loaded.into_iter().flatten() {
            for (at, bytes) in group.contents {
                items[at].body = EntryData::Bytes(bytes);
            }
            if let Some((key, frame)) = group.frame {
                kept_bytes += frame.len();
                if kept_bytes <= KEPT_BYTES {
                    self.kept.push((key, frame));
                }
            }
        }
        if job.options.format == ArchiveFormat::Zip {
            compress(job, items);
        }
        Ok(())
    }

    fn group(
        &self,
        job: &ExportJob<'_>,
        items: &[ArchiveEntry],
        group: &FrameGroup<'_>,
    ) -> Result<Loaded, ExportError> {
        job.check()?;
        let mut loaded = Loaded { contents: Vec::with_capacity(group.members.len()), frame: None };
        let Some((first, _)) = group.members.first() else { return Ok(loaded) };
        let kept = self.kept.iter().find(|(have, _)| *have == key(first));
        let frame = match kept {
            Some((_, frame)) => Some(Arc::clone(frame)),
            // If the frame cannot be read, or was merged into another pack meanwhile,
            // each object is looked up by itself.
            None => job.store.frame(first).ok(),
        };
        // Contents may share the frame's memory only if they fill most of it, since the
        // whole frame then stays in memory. For zip they are copied: they are compressed
        // at once and dropped.
        let shared = frame.as_ref().filter(|frame| {
            let wanted: usize = group.members.iter().map(|(place, _)| place.bytes as usize).sum();
            job.options.format != ArchiveFormat::Zip && wanted >= frame.len() / 4 * 3
        });
        let mut hashed = None;
        for (place, at) in group.members {
            let item = &items[*at];
            let Some((id, size)) = item.content() else { continue };
            let in_frame = frame.as_ref().and_then(|frame| place.slice(frame).ok());
            let right = in_frame.filter(|bytes| {
                let is_long = bytes.len() as u64 == size;
                is_long && (hashed == Some((*place, id)) || BlobId::of(bytes) == id)
            });
            hashed = Some((*place, id));
            let content = match (right, shared) {
                (Some(bytes), Some(frame)) => {
                    let start = place.offset as usize;
                    BufferSlice::part(frame, start..start + bytes.len())
                }
                (Some(bytes), None) => bytes.to_vec().into(),
                (None, _) => {
                    let alone = alone(job.store, &id, size);
                    alone.map_err(|e| job.damaged(&item.path, e))?.into()
                }
            };
            loaded.contents.push((*at, content));
        }
        loaded.frame = frame.filter(|_| group.is_kept).map(|frame| (key(first), frame));
        Ok(loaded)
    }
}

fn key(place: &ObjectLocation) -> CachedFrameKey {
    (place.pack, place.frame)
}

/// Reads one object by itself.
fn alone(store: &Store, id: &BlobId, size: u64) -> Result<Vec<u8>, StoreError> {
    let (id, wanted) = (id.object(), ObjectKind::Blob);
    let bytes = store.object(&id, wanted)?;
    // The object is sound, but the entry in the tree claims another size.
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(StoreError::Missing { id, wanted }) }
}

/// Returns the positions of the contents to load. Marks large
/// contents to be streamed, and fills in empty ones.
fn locate(
    job: &ExportJob<'_>,
    items: &mut [ArchiveEntry],
) -> Result<Vec<(ObjectLocation, usize)>, ExportError> {
    let found: Vec<_> = items
        .par_iter_mut()
        .enumerate()
        .with_min_len(256)
        .map(|(at, item)| {
            let Some((id, size)) =
                item.content().filter(|_| matches!(item.body, EntryData::Wanted))
            else {
                return Ok(None);
            };
            if size == 0 && id == BlobId::of(b"") {
                item.body = EntryData::Bytes(Vec::new().into());
                return Ok(None);
            }
            let object = id.object();
            match job.store.locate(&object) {
                Ok(Some(place)) if item.is_small() && place.kind == ObjectKind::Blob => {
                    Ok(Some((place, at)))
                }
                Ok(Some(_)) => {
                    item.body = EntryData::Stream;
                    Ok(None)
                }
                Ok(None) => {
                    let missing = StoreError::Missing { id: object, wanted: ObjectKind::Blob };
                    Err(job.damaged(&item.path, missing))
                }
                Err(error) => Err(job.damaged(&item.path, error)),
            }
        })
        .collect::<Result<_, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Compresses the loaded contents.
fn compress(job: &ExportJob<'_>, items: &mut [ArchiveEntry]) {
    let level = job.level();
    items.par_iter_mut().with_min_len(4).for_each(|item| {
        if let EntryData::Bytes(bytes) = &item.body {
            item.body = EntryData::Packed(StoredContent::new(bytes, level));
        }
    });
}
