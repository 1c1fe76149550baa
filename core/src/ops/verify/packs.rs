//! Checks the packs: their footers, the index, and the frames if requested.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicBool, Ordering},
};

use rayon::prelude::*;
use rustix::io::Errno;

use crate::{
    base::{id::PackId, io::PathError, kind::ErrorKind, observe::Phase},
    format::pack::PackedObject,
    ops::verify::{
        Data, Verification, VerifyError, VerifyProblem,
        rolling::{Schedule, identity_here},
    },
    store::{FrameObjects, IndexDigests, PackStream, StoreError},
};

/// The state of the index when the check began.
struct IndexCheck {
    digests: IndexDigests,
    /// True once a pack had other objects and the index was rebuilt.
    is_rebuilt: AtomicBool,
}

/// A pack and how much of it is read.
pub(super) struct PackTask {
    pub(super) id: PackId,
    pub(super) data: Data,
    pub(super) was_damaged: bool,
}

/// Returns true if an error blames the pack. Returns false for missing permissions, a lack of file
/// descriptors or memory, a read-only file system and a damaged index.
fn is_of_pack(error: &StoreError) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ROFS];
    match error {
        StoreError::Index(_) => false,
        StoreError::Io(PathError { source, .. }) => {
            let errno = source.raw_os_error().map(Errno::from_raw_os_error);
            error.kind() != ErrorKind::Denied && !errno.is_some_and(|errno| lacks.contains(&errno))
        }
        _ => true,
    }
}

/// Returns true if a frame is read. `random` is a uniformly distributed number for the
/// frame.
pub(super) fn is_chosen(data: Data, random: u64) -> bool {
    match data {
        Data::None => false,
        Data::Sample(part) => (random as f64) < part * u64::MAX as f64,
        // A due pack is read completely.
        Data::Due(_) | Data::All => true,
    }
}

impl Verification<'_> {
    /// Checks every pack of the store.
    pub(super) fn check_packs(&self, data: Data) -> Result<(), VerifyError> {
        let store = self.store;
        let mut packs = store.packs();
        let schedule = Schedule::new(store, data, |id| identity_here(store, id));
        schedule.sort(&mut packs);
        let size = |id: &PackId| fs_err::metadata(store.pack_path(id)).map_or(0, |meta| meta.len());
        let total: u64 = match data {
            Data::None => 0,
            Data::Sample(part) => (packs.iter().map(size).sum::<u64>() as f64 * part) as u64,
            Data::Due(_) => packs.iter().filter(|id| schedule.is_due(id)).map(size).sum(),
            Data::All => packs.iter().map(size).sum(),
        };
        self.observer.phase(Phase::Data, (total > 0).then_some(total));
        let index =
            IndexCheck { digests: store.index_digests()?, is_rebuilt: AtomicBool::new(false) };
        // The bridge hands out tasks in order and calls `schedule.begin` from one thread at a
        // time.
        let tasks = packs.iter().map(|id| {
            let was_damaged = store.is_damaged(id);
            PackTask { id: *id, data: schedule.begin(id, was_damaged), was_damaged }
        });
        let checked = tasks.par_bridge().try_for_each(|task| {
            self.observer.check()?;
            let id = task.id;
            match self.check_pack(&task, &schedule, &index) {
                Ok(()) => Ok(()),
                // The pack was merged into another one meanwhile, which has its objects.
                Err(StoreError::Gone { .. }) => Ok(()),
                Err(source) if !is_of_pack(&source) => Err(source.into()),
                Err(source) => {
                    self.shadow_pack(id, Some(&source));
                    self.add(VerifyProblem::Pack { pack: id, source }, []);
                    Ok(())
                }
            }
        });
        schedule.finish(store, &mut self.outcome.lock());
        checked
    }

    fn check_pack(
        &self,
        task: &PackTask,
        schedule: &Schedule<'_>,
        index: &IndexCheck,
    ) -> Result<(), StoreError> {
        let store = self.store;
        self.count(|outcome| outcome.packs += 1);
        let PackTask { id, data, was_damaged } = *task;
        let identity = schedule.identity(&id);
        let is_partial = store.is_partial(&id);
        self.count(|outcome| outcome.partial_packs += u64::from(is_partial));
        let pack = store.open_pack(&id)?;
        let objects = pack.objects()?;
        self.count(|outcome| outcome.objects += objects.len() as u64);
        if !index.digests.agrees(&id, &pack, &objects)
            && !index.is_rebuilt.swap(true, Ordering::Relaxed)
        {
            store.reindex()?;
        }
        let each = |contents: FrameObjects<'_>, raw: Result<&[u8], StoreError>| {
            self.check_raw(id, contents, raw);
            let stored_bytes = u64::from(contents.frame.stored_bytes);
            self.count(|outcome| outcome.bytes_read += stored_bytes);
            self.observer.advance(stored_bytes, contents.objects.len() as u64);
            Ok(())
        };
        let stream = PackStream::of(&pack, self.observer);
        let is_hashed = data == Data::All && !is_partial;
        if is_hashed {
            let mut sink = |_: &[u8]| Ok::<_, StoreError>(());
            match stream.hash(&objects, &each, &mut sink)? {
                Some(actual) if actual != id => {
                    self.shadow_pack(id, None);
                    self.add(VerifyProblem::PackHash { pack: id, actual }, []);
                }
                _ => {}
            }
        } else {
            let random = RandomState::new();
            let mut frames: Vec<FrameObjects<'_>> = Vec::with_capacity(pack.frames().len());
            for (number, contents) in pack.by_frame(&objects).enumerate() {
                if !pack.is_here(contents.frame)? {
                    self.count_absent(id, contents.objects)?;
                    continue;
                }
                if is_chosen(data, random.hash_one(number)) {
                    frames.push(contents);
                }
            }
            stream.check_frames(frames.into_iter(), &each)?;
        }
        let is_whole = !is_partial && !self.shadows(&id);
        if was_damaged && is_whole && !self.observer.cancelled() {
            self.found_whole(id);
        }
        if data == Data::All && !self.shadows(&id) && !self.observer.cancelled() {
            schedule.add_sound(id, identity);
            if is_hashed {
                self.hashed.lock().push(id);
            }
        }
        Ok(())
    }

    /// Counts the objects of an absent frame, except those that another pack has.
    fn count_absent(&self, pack: PackId, objects: &[PackedObject]) -> Result<(), StoreError> {
        for object in objects {
            let place = self.store.locate(&object.id)?;
            let is_only = place.is_none_or(|place| self.store.pack_id(place.pack) == Some(pack));
            self.count(|outcome| outcome.absent_objects += u64::from(is_only));
        }
        Ok(())
    }

    /// Checks the objects of a frame that was read and decompressed.
    pub(super) fn check_raw(
        &self,
        pack: PackId,
        contents: FrameObjects<'_>,
        raw: Result<&[u8], StoreError>,
    ) {
        let objects = contents.objects;
        let raw = match raw {
            Ok(raw) => raw,
            Err(source) => {
                self.shadow_objects(pack, objects.iter().map(|object| object.id));
                let problem = VerifyProblem::Frame { pack, objects: objects.len(), source };
                return self.add(problem, objects.iter().map(|object| object.id));
            }
        };
        for object in contents.split_verified(pack, raw) {
            if let Err(source @ StoreError::Damaged { wanted: id, .. }) = object {
                self.shadow_objects(pack, [id]);
                self.add(VerifyProblem::Object { id, source }, [id]);
            }
        }
    }
}
