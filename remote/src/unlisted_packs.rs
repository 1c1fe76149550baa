//! Packs in a remote store that no readable index file lists.
//!
//! A damaged or lost index file hides its packs, although they are whole. Every pack ends with its
//! own tables. So this module reads the outlines from the packs and lists them in a new index file.
//!
//! An interrupted push also leaves packs, perhaps without other packs that they refer to. But the
//! index must list only complete packs. So the module lists a pack again only if every object that
//! its commits, trees and chunk lists refer to is in a listed pack, or in a pack that it lists
//! together with this one. A repair also lists packs with objects that a ref reaches: refs move
//! after packs are published, so a lost index file listed them. The module does not read contents.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
    sync::Arc,
};

use futures::{StreamExt, stream};
use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        observe::{Observer, Silent},
    },
    disk::{Disk, scratch::Scratch},
    format::{
        outline::PackOutline,
        pack::{HEADER_BYTES, ObjectKind, TRAILER_BYTES, Trailer, decode_header},
    },
    ops::reach::{self, ObjectSource, ReachError},
    store::{Marks, ObjectIds, ObjectLocation, Store, StoreError},
};

use crate::{
    bucket::{FailureReason, ServiceError},
    peer::{ListedPack, OBJECTS, Peer, RemoteError, RemoteStore, gc_view::DeadCopies},
    remote_packs::{BlockingContext, RemotePacks},
};

/// Number of bytes at the end of a pack to read first. The tables of most packs fit.
const TAIL_BYTES: u64 = 64 << 10;

/// Number of packs whose outlines are read concurrently.
const OUTLINES_AT_ONCE: usize = 8;

/// Outlines of packs to list again, in a scratch store of stubs.
#[derive(Debug)]
pub(crate) struct UnlistedPacks {
    packs: Vec<PackId>,
    stubs: Store,
    // Fields drop in this order: first the store, then the folder that it lies in.
    _scratch: Scratch,
}

impl UnlistedPacks {
    /// Reads the outlines of packs that the mirror of `remote` lacks, and selects the packs to
    /// list. Also selects packs that `tips` reach, which are commits of refs or empty. Blocks; must
    /// not be called on a thread of the runtime.
    ///
    /// # Errors
    /// [`RemoteError`] if a request fails. Leaves out damaged packs.
    pub(crate) fn find(
        remote: &RemoteStore,
        tips: &[CommitId],
        waiting: &BlockingContext,
        observer: &dyn Observer,
    ) -> Result<Self, RemoteError> {
        let scratch = Scratch::create(&remote.mirror().store().dir().join("tmp"))?;
        Store::create(scratch.path(), &Disk::scratch())?;
        let stubs = Store::open(scratch.path(), Disk::scratch(), &Silent)?;
        waiting.block_on(read_outlines(remote, &stubs))?;
        if stubs.packs().is_empty() {
            return Ok(Self { packs: Vec::new(), stubs, _scratch: scratch });
        }
        let dead = remote.mirror().dead_copies();
        let packs = Arc::new(RemotePacks::forgetful(remote, waiting.clone()));
        let listed = remote.reopen()?.into_store().with_remote_frames(packs.clone());
        let stubs = stubs.with_remote_frames(packs);
        let objects = BothStores { listed: &listed, unlisted: &stubs, dead };
        let mut packs = complete_packs(&objects, observer)?;
        if !tips.is_empty() {
            packs.extend(reached_packs(&objects, &packs, tips, observer)?);
        }
        Ok(Self { packs: packs.into_iter().collect(), stubs, _scratch: scratch })
    }

    pub(crate) fn len(&self) -> usize {
        self.packs.len()
    }

    /// Adds stubs of the packs to a store.
    pub(crate) fn add_to(&self, store: &Store) -> Result<(), StoreError> {
        let outlines = self.packs.iter().map(|id| self.stubs.outline(id));
        store.add_stubs(&outlines.collect::<Result<Vec<_>, _>>()?)
    }

    /// Writes an index file that lists the packs. Returns its key.
    ///
    /// # Errors
    /// [`RemoteError`]; the index then lists either all packs or none.
    pub(crate) async fn list(&self, remote: &RemoteStore) -> Result<Option<String>, RemoteError> {
        let packs = self.packs.iter().map(|id| (&self.stubs, *id)).collect();
        remote.place().peer().publish(remote.known(), packs).await
    }
}

/// Adds stubs of the packs that the mirror lacks.
async fn read_outlines(remote: &RemoteStore, stubs: &Store) -> Result<(), RemoteError> {
    let unlisted = remote.place().peer().unlisted_packs(remote.known()).await?;
    let reads = unlisted.into_iter().map(|pack| read_outline(&**remote.place().peer(), pack));
    let mut reads = stream::iter(reads).buffer_unordered(OUTLINES_AT_ONCE);
    while let Some(outline) = reads.next().await {
        if let Some(outline) = outline? {
            stubs.add_stubs([&outline])?;
        }
    }
    Ok(())
}

/// Reads the outline of a pack. Returns `None` if the pack is gone or its tables are damaged.
async fn read_outline(
    peer: &dyn Peer,
    pack: ListedPack,
) -> Result<Option<PackOutline>, RemoteError> {
    match try_outline(peer, pack).await {
        Err(error) if matches!(error.reason.kind(), ErrorKind::Damaged | ErrorKind::NotFound) => {
            Ok(None)
        }
        Ok(outline) => Ok(outline.filter(|outline| outline.tables().is_ok())),
        Err(error) => Err(error.into()),
    }
}

async fn try_outline(
    peer: &dyn Peer,
    ListedPack { id, bytes: file_bytes, .. }: ListedPack,
) -> Result<Option<PackOutline>, ServiceError> {
    let read = async |range: Range<u64>| {
        let bytes = peer.read(id, range.clone()).await?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes.to_vec()),
            false => {
                let message = "the pack is shorter than its listed length".to_owned();
                let key = format!("{OBJECTS}{id}");
                Err(ServiceError::new("read", &key, FailureReason::Short, message))
            }
        }
    };
    if file_bytes < (HEADER_BYTES + TRAILER_BYTES) as u64 {
        return Ok(None);
    }
    let mut head = read(0..HEADER_BYTES as u64).await?;
    let Ok(extension) = decode_header(&head) else { return Ok(None) };
    let frames_start = HEADER_BYTES as u64 + u64::from(extension);
    let tail_start = file_bytes.saturating_sub(TAIL_BYTES);
    let mut tail = read(tail_start..file_bytes).await?;
    let Ok(trailer) = Trailer::decode(&tail[tail.len() - TRAILER_BYTES..], file_bytes) else {
        return Ok(None);
    };
    let footer = trailer.footer_offset();
    if frames_start > footer {
        return Ok(None);
    }
    if extension > 0 {
        head = read(0..frames_start).await?;
    }
    tail = match footer.checked_sub(tail_start) {
        Some(surplus) => tail.split_off(surplus as usize),
        None => [read(footer..tail_start).await?, tail].concat(),
    };
    Ok(Some(PackOutline { id, file_bytes, head, tail }))
}

/// The objects of listed and unlisted packs.
struct BothStores<'s> {
    listed: &'s Store,
    unlisted: &'s Store,
    /// Copies in listed packs that a collection may delete.
    dead: Option<Arc<DeadCopies>>,
}

impl BothStores<'_> {
    /// Returns true if a listed pack has the object, and the copy is neither dead nor known to be
    /// damaged.
    fn is_listed(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.listed_place(id)?.is_some())
    }

    fn listed_place(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        let Some(dead) = &self.dead else { return self.listed.locate_unshadowed(id) };
        for place in self.listed.places(id)? {
            let Some(pack) = self.listed.pack_id(place.pack) else { continue };
            if !dead.contains(&pack, id) && !self.listed.shadows().covers(&pack, id) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }
}

impl ObjectSource for BothStores<'_> {
    fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        match self.listed_place(id)? {
            Some(place) => Ok(Some(place)),
            None => self.unlisted.locate(id),
        }
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        match self.is_listed(id)? {
            true => self.listed.object(id, kind),
            false => self.unlisted.object(id, kind),
        }
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        match self.is_listed(id)? {
            true => ObjectSource::is_here(self.listed, id),
            false => ObjectSource::is_here(self.unlisted, id),
        }
    }

    fn will_need(&self, ids: &mut ObjectIds<'_>) {
        self.listed.prefetch_objects(ids);
    }
}

/// [`BothStores`] for a walk that goes on past missing and damaged objects.
struct AroundDamage<'s>(&'s BothStores<'s>);

impl ObjectSource for AroundDamage<'_> {
    fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        self.0.locate(id)
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        self.0.object(id, kind)
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        self.0.is_here(id)
    }

    fn on_unreadable(
        &self,
        _id: &ObjectId,
        _wanted: ObjectKind,
        error: ReachError,
    ) -> Result<(), ReachError> {
        match is_damage(&error) {
            true => Ok(()),
            false => Err(error),
        }
    }
}

fn is_damage(error: &ReachError) -> bool {
    matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound)
}

/// Returns the packs with complete objects only.
fn complete_packs(
    objects: &BothStores<'_>,
    observer: &dyn Observer,
) -> Result<BTreeSet<PackId>, RemoteError> {
    let mut references = BTreeMap::new();
    for id in objects.unlisted.packs() {
        match references_of(objects, &id, observer) {
            Ok(found) => drop(references.insert(id, found)),
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(walk_error(error)),
        }
    }
    loop {
        let mut present = HashSet::new();
        for id in references.keys() {
            let of_pack = objects.unlisted.open_pack(id)?.objects()?;
            present.extend(of_pack.into_iter().map(|object| object.id));
        }
        let before = references.len();
        references.retain(|_, wanted: &mut HashSet<ObjectId>| wanted.is_subset(&present));
        if references.len() == before {
            return Ok(references.into_keys().collect());
        }
    }
}

/// Returns the objects that the objects of a pack refer to and that no listed pack has.
fn references_of(
    objects: &BothStores<'_>,
    id: &PackId,
    observer: &dyn Observer,
) -> Result<HashSet<ObjectId>, ReachError> {
    let found = RefCell::new(HashSet::new());
    for object in objects.unlisted.open_pack(id)?.objects()? {
        let mut enter = |id: &ObjectId, _: &ObjectLocation| {
            let is_start = *id == object.id;
            if !is_start && !objects.is_listed(id)? {
                found.borrow_mut().insert(*id);
            }
            Ok(is_start)
        };
        match object.kind {
            ObjectKind::Commit => {
                let commit = [CommitId::from_object(object.id)];
                reach::visit(objects, &commit, &mut enter, observer)?;
            }
            ObjectKind::Tree | ObjectKind::ChunkList | ObjectKind::Link => {
                let start = [(object.id, object.kind)];
                reach::visit_below(objects, &start, &mut enter, observer)?;
            }
            // A list checks its parts.
            ObjectKind::Blob | ObjectKind::ListPart => {}
        }
    }
    Ok(found.into_inner())
}

/// Returns the packs outside `chosen` with objects that `tips` reach, if neither a listed pack nor
/// a chosen one has these objects.
fn reached_packs(
    objects: &BothStores<'_>,
    chosen: &BTreeSet<PackId>,
    tips: &[CommitId],
    observer: &dyn Observer,
) -> Result<BTreeSet<PackId>, RemoteError> {
    let (listed, unlisted) = (Marks::new(objects.listed), Marks::new(objects.unlisted));
    let mut present = HashSet::new();
    for id in chosen {
        let of_pack = objects.unlisted.open_pack(id)?.objects()?;
        present.extend(of_pack.into_iter().map(|object| object.id));
    }
    let mut reached = BTreeSet::new();
    let mut enter = |id: &ObjectId, place: &ObjectLocation| {
        if objects.is_listed(id)? {
            return listed.mark(id);
        }
        if !present.contains(id) {
            reached.insert(objects.unlisted.pack(place.pack)?.id());
        }
        unlisted.mark(id)
    };
    let walk = reach::visit(&AroundDamage(objects), tips, &mut enter, observer);
    walk.map_err(walk_error)?;
    Ok(reached)
}

fn walk_error(error: ReachError) -> RemoteError {
    match error {
        ReachError::Blocked(blocked) => blocked.into(),
        ReachError::Store(error) => error.into(),
        error => error.into(),
    }
}
