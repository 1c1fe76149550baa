//! The small contents of a batch: each frame is expanded once.

use std::sync::Arc;

use rayon::prelude::*;

use crate::{
    base::{id::BlobId, limits},
    format::pack::ObjectKind,
    ops::export::{
        ExportError, Format, Job,
        batch::{Body, Content, Item},
        deflate::Packed,
    },
    store::{Place, Store, StoreError},
};

/// Frames that are expanded at the same time, however many processors there
/// are: each takes some MiB.
const FRAMES_AT_ONCE: usize = 4;

/// Frames that the next batch may still want something of: several are filled
/// at the same time by a commit, so they overlap with the batches.
const FRAMES_KEPT: usize = 4;

/// Bytes of them that are kept at most.
const KEPT_BYTES: usize = limits::LARGE_FRAME_BYTES;

/// A frame's pack and number.
type Key = (u32, u32);

/// Loads contents and keeps the frames that were used last.
#[derive(Default)]
pub(super) struct Loader {
    kept: Vec<(Key, Arc<Vec<u8>>)>,
}

/// Contents that lie in one frame: where, and which items of the batch.
struct Group<'g> {
    members: &'g [(Place, usize)],
    /// Whether the frame is kept for the next batch.
    is_kept: bool,
}

/// What came out of a group.
struct Loaded {
    contents: Vec<(usize, Content)>,
    frame: Option<(Key, Arc<Vec<u8>>)>,
}

impl Loader {
    /// Loads the contents that are wanted; marks large ones to be streamed.
    pub(super) fn load(&mut self, job: &Job<'_>, items: &mut [Item]) -> Result<(), ExportError> {
        let mut places = locate(job, items)?;
        places.sort_unstable();
        let mut groups: Vec<Group<'_>> = places
            .chunk_by(|a, b| key(&a.0) == key(&b.0))
            .map(|members| Group { members, is_kept: false })
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
        let items_seen: &[Item] = items;
        let loaded: Vec<Vec<Loaded>> = groups
            .par_chunks(share)
            .map(|groups| groups.iter().map(|group| self.group(job, items_seen, group)).collect())
            .collect::<Result<_, _>>()?;
        self.kept.clear();
        let mut kept_bytes = 0;
        for group in loaded.into_iter().flatten() {
            for (at, bytes) in group.contents {
                items[at].body = Body::Bytes(bytes);
            }
            if let Some((key, frame)) = group.frame {
                kept_bytes += frame.len();
                if kept_bytes <= KEPT_BYTES {
                    self.kept.push((key, frame));
                }
            }
        }
        if job.options.format == Format::Zip {
            compress(job, items);
        }
        Ok(())
    }

    fn group(
        &self,
        job: &Job<'_>,
        items: &[Item],
        group: &Group<'_>,
    ) -> Result<Loaded, ExportError> {
        job.check()?;
        let mut loaded = Loaded { contents: Vec::with_capacity(group.members.len()), frame: None };
        let Some((first, _)) = group.members.first() else { return Ok(loaded) };
        let kept = self.kept.iter().find(|(have, _)| *have == key(first));
        let frame = match kept {
            Some((_, frame)) => Some(Arc::clone(frame)),
            // Should it be unreadable, or merged into another pack meanwhile,
            // each object is looked up by itself.
            None => job.store.frame(first).ok(),
        };
        // A frame stays whole then, so little of it may be of no use. For a zip all
        // are compressed at once, and go.
        let shared = frame.as_ref().filter(|frame| {
            let wanted: usize = group.members.iter().map(|(place, _)| place.bytes as usize).sum();
            job.options.format != Format::Zip && wanted >= frame.len() / 4 * 3
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
                    Content::part(frame, start..start + bytes.len())
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

fn key(place: &Place) -> Key {
    (place.pack, place.frame)
}

/// One object by itself.
fn alone(store: &Store, id: &BlobId, size: u64) -> Result<Vec<u8>, StoreError> {
    let (id, wanted) = (id.object(), ObjectKind::Blob);
    let bytes = store.object(&id, wanted)?;
    // The object is right, the tree lies about its length.
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(StoreError::Missing { id, wanted }) }
}

/// Where the contents lie that are to be loaded. The others are marked.
fn locate(job: &Job<'_>, items: &mut [Item]) -> Result<Vec<(Place, usize)>, ExportError> {
    let found: Vec<_> = items
        .par_iter_mut()
        .enumerate()
        .with_min_len(256)
        .map(|(at, item)| {
            let Some((id, size)) = item.content().filter(|_| matches!(item.body, Body::Wanted))
            else {
                return Ok(None);
            };
            if size == 0 && id == BlobId::of(b"") {
                item.body = Body::Bytes(Vec::new().into());
                return Ok(None);
            }
            let object = id.object();
            match job.store.locate(&object) {
                Ok(Some(place)) if item.is_small() && place.kind == ObjectKind::Blob => {
                    Ok(Some((place, at)))
                }
                Ok(Some(_)) => {
                    item.body = Body::Stream;
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

/// Compresses what was loaded.
fn compress(job: &Job<'_>, items: &mut [Item]) {
    let level = job.level();
    items.par_iter_mut().with_min_len(4).for_each(|item| {
        if let Body::Bytes(bytes) = &item.body {
            item.body = Body::Packed(Packed::new(bytes, level));
        }
    });
}
