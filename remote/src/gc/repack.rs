//! Writes packs of a remote store again without their garbage, so that the old packs can be deleted.
//!
//! A copy counts as soon as an index file lists it, before the new state does. So a pack is rewritten
//! only if all that the state shadows in it is dead still. The copies have everything else, also what
//! has died meanwhile: a push of this epoch may rely on it.
//!
//! Only frames with such objects are fetched. If a collection is killed, the copies are garbage until
//! an index file lists them.

use std::collections::{BTreeSet, HashSet};

use snap_core::{
    base::{
        id::{ObjectId, PackId},
        limits,
        observe::{Observer, Phase, Silent},
    },
    disk::{Disk, scratch::Scratch},
    format::{
        gc_table::GcTable,
        pack::{Frame, PackedObject},
        shadow::ShadowedPart,
    },
    ops::{
        gc::{PackUse, choose_rewritten},
        reach::ReachError,
    },
    store::{
        ObjectLocation, ObjectWriter, Store, StoreError,
        copy::{FrameMode, copy_pack},
    },
};
use tokio::runtime::Handle;

use crate::{
    peer::{PackIn, RemoteError, RemoteStore},
    transfer::{push, reach_error},
};

/// Bytes of old packs after which the copies are uploaded. Bounds the space on the local disk.
const BATCH_BYTES: u64 = 16 * limits::PACK_TARGET_BYTES;

/// A pack with enough garbage for a rewrite.
#[derive(Debug)]
pub(super) struct RepackCandidate {
    pub(super) pack: PackId,
    pub(super) usage: PackUse,
    pub(super) dead_objects: u64,
    /// Number of dead objects that were purged.
    pub(super) purged: u64,
}

impl RepackCandidate {
    /// Returns a pack in which these objects are dead; `None` if a rewrite is not worth it.
    pub(super) fn of(
        stubs: &Store,
        pack: PackId,
        dead: &ShadowedPart,
        purged: &BTreeSet<ObjectId>,
    ) -> Result<Option<Self>, StoreError> {
        let file = stubs.open_pack(&pack)?;
        let usage = PackUse { file_bytes: file.file_bytes(), ..PackUse::default() };
        let mut found = Self { pack, usage, dead_objects: 0, purged: 0 };
        for object in file.objects()? {
            found.usage.bytes += u64::from(object.bytes);
            if dead.covers(&object.id) {
                found.usage.dead_bytes += u64::from(object.bytes);
                found.dead_objects += 1;
                found.purged += u64::from(purged.contains(&object.id));
            }
        }
        found.usage.has_purged = found.purged > 0;
        let is_worth_it = found.usage.is_worth_rewriting() && !stubs.is_damaged(&pack);
        Ok(Some(found).filter(|_| is_worth_it))
    }
}

/// Returns the number of purged objects in the dead part of a pack.
pub(super) fn purged_in(
    stubs: &Store,
    pack: &PackId,
    dead: &ShadowedPart,
    purged: &BTreeSet<ObjectId>,
) -> Result<u64, StoreError> {
    if purged.is_empty() {
        return Ok(0);
    }
    let objects = match stubs.open_pack(pack) {
        // No index file lists the pack.
        Err(StoreError::Gone { .. }) => return Ok(0),
        pack => pack?.objects()?,
    };
    let is_purged = |object: &&PackedObject| dead.covers(&object.id) && purged.contains(&object.id);
    Ok(objects.iter().filter(is_purged).count() as u64)
}

/// Chooses packs to rewrite, of at most `most_bytes` in total.
pub(super) fn choose(
    candidates: Vec<RepackCandidate>,
    most_bytes: Option<u64>,
) -> Vec<RepackCandidate> {
    let candidates = candidates.into_iter().map(|candidate| (candidate.usage, candidate));
    let chosen = choose_rewritten(candidates.collect(), most_bytes).into_iter();
    chosen.map(|(_, candidate)| candidate).collect()
}

/// A rewrite of packs.
pub(super) struct Repack<'a> {
    pub(super) remote: &'a RemoteStore,
    /// The mirror, as a store that fetches what it reads.
    pub(super) stubs: &'a Store,
    /// The packs to rewrite.
    pub(super) packs: &'a [PackId],
    /// The table since the fence.
    pub(super) fenced: &'a GcTable,
    /// The table after the collection. Lists the rewritten packs as going.
    pub(super) swept: &'a GcTable,
    /// Packs that count and stay.
    pub(super) kept: &'a BTreeSet<PackId>,
    /// The zstd level of the copies.
    pub(super) level: i32,
    pub(super) runtime: &'a Handle,
    pub(super) observer: &'a dyn Observer,
}

/// Uploaded packs with the objects of rewritten packs, as stubs.
pub(super) struct Copies {
    store: Store,
    _scratch: Scratch,
    /// Bytes of these packs.
    pub(super) bytes: u64,
}

impl Copies {
    fn create(remote: &RemoteStore) -> Result<Self, RemoteError> {
        let (store, scratch) = create_store(remote)?;
        Ok(Self { store, _scratch: scratch, bytes: 0 })
    }

    /// Returns the packs, for an index file.
    pub(super) fn packs(&self) -> impl Iterator<Item = PackIn<'_>> {
        self.store.packs().into_iter().map(|id| (&self.store, id))
    }
}

impl Repack<'_> {
    /// Writes and uploads the copies. No index file lists them yet.
    ///
    /// # Errors
    /// [`RemoteError`]; a damaged pack cannot be rewritten.
    pub(super) fn run(&self) -> Result<Copies, RemoteError> {
        let mut copies = Copies::create(self.remote)?;
        for packs in self.batches()? {
            let (written, _scratch) = self.write(&packs, &copies)?;
            let made = written.packs();
            let sent = push::upload(self.remote, &written, &made, self.runtime, self.observer);
            copies.bytes += sent?.bytes;
            for pack in made {
                copies.store.add_stubs([&written.outline(&pack)?])?;
            }
        }
        Ok(copies)
    }

    /// Splits the packs, so that few bytes wait on the disk for their upload.
    fn batches(&self) -> Result<Vec<Vec<PackId>>, RemoteError> {
        let (mut batches, mut bytes) = (Vec::<Vec<PackId>>::new(), 0);
        for pack in self.packs {
            let pack_bytes = self.stubs.open_pack(pack)?.file_bytes();
            match batches.last_mut().filter(|_| bytes + pack_bytes <= BATCH_BYTES) {
                Some(batch) => {
                    bytes += pack_bytes;
                    batch.push(*pack);
                }
                None => {
                    bytes = pack_bytes;
                    batches.push(vec![*pack]);
                }
            }
        }
        Ok(batches)
    }

    /// Writes copies whose names are free.
    fn write(&self, packs: &[PackId], copies: &Copies) -> Result<(Store, Scratch), RemoteError> {
        write_with_free_names(self.remote, &[self.fenced, self.swept], |written, variation| {
            self.write_varied(written, packs, copies, variation)
        })
    }

    /// Writes copies into `written`. Their names have a variation.
    fn write_varied(
        &self,
        written: &Store,
        packs: &[PackId],
        copies: &Copies,
        variation: u64,
    ) -> Result<(), RemoteError> {
        let broken = |error| reach_error(self.remote, ReachError::Store(error));
        let made = [&copies.store, written];
        let writer = ObjectWriter::new(written, self.level, 1)?.with_variation(variation);
        let files: Result<Vec<_>, _> =
            packs.iter().map(|pack| self.stubs.open_pack(pack)).collect();
        let files = files?;
        let total = files.iter().map(|file| file.file_bytes()).sum();
        self.observer.phase(Phase::Compact, Some(total));
        for file in &files {
            self.observer.check()?;
            let pack = file.id();
            let objects = file.objects()?;
            let mut wanted = HashSet::new();
            let mut frames: Vec<Frame> = Vec::new();
            for contents in file.by_frame(&objects) {
                let before = wanted.len();
                for object in contents.objects {
                    if self.is_wanted(&pack, object, made)? && writer.claim_anew(object) {
                        wanted.insert(object.id);
                    }
                }
                if wanted.len() > before {
                    frames.push(*contents.frame);
                }
            }
            let absent = self.stubs.absent_frames(&pack)?;
            let absent: HashSet<u64> = absent.iter().map(|frame| frame.offset).collect();
            frames.retain(|frame| absent.contains(&frame.offset));
            self.stubs.prefetch_frames(pack, &frames);
            let mut choose = |object: &PackedObject| Ok(wanted.contains(&object.id));
            copy_pack(&writer, file, FrameMode::Refill, &mut choose).map_err(broken)?;
            self.observer.advance(file.file_bytes(), 0);
        }
        writer.finish()?;
        Ok(())
    }

    /// Returns true if an object of a rewritten pack is in no pack that stays, and in no copy.
    fn is_wanted(
        &self,
        pack: &PackId,
        object: &PackedObject,
        copies: [&Store; 2],
    ) -> Result<bool, StoreError> {
        if self.fenced.is_dead(pack, &object.id) {
            return Ok(false);
        }
        for store in copies {
            if store.locate(&object.id)?.is_some() {
                return Ok(false);
            }
        }
        let stays = |place: &ObjectLocation| {
            self.stubs.pack_id(place.pack).is_some_and(|pack| {
                self.kept.contains(&pack)
                    && !self.swept.is_dead(&pack, &object.id)
                    && !self.stubs.shadows().covers(&pack, &object.id)
            })
        };
        Ok(!self.stubs.places(&object.id)?.iter().any(stays))
    }
}

/// Calls `write` with an empty store and a variation of pack names, until none of these tables
/// reserves a name. Returns the store.
pub(super) fn write_with_free_names(
    remote: &RemoteStore,
    tables: &[&GcTable],
    write: impl Fn(&Store, u64) -> Result<(), RemoteError>,
) -> Result<(Store, Scratch), RemoteError> {
    let is_reserved = |name: &PackId| tables.iter().any(|table| table.reserves_name(name));
    let mut variation = 0;
    loop {
        let (written, scratch) = create_store(remote)?;
        write(&written, variation)?;
        if !written.packs().iter().any(is_reserved) {
            return Ok((written, scratch));
        }
        variation += 1;
    }
}

/// Creates an empty store in a scratch folder.
fn create_store(remote: &RemoteStore) -> Result<(Store, Scratch), RemoteError> {
    let scratch = Scratch::create(&remote.mirror().dir().join("tmp"))?;
    let disk = Disk::scratch();
    Store::create(scratch.path(), &disk)?;
    Ok((Store::open(scratch.path(), disk, &Silent)?, scratch))
}
