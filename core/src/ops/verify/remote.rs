//! Verifies a remote store, from the stubs of its packs.
//!
//! The index of the store, and thus the stubs, lists the packs with their lengths and objects. The
//! listing of the store shows which of them exist. Trees and commits are read from the packs and
//! cached in the stubs. Contents are read only on request and are not cached. Damaged or lost
//! objects are shadowed among the stubs, so that the next push to that store uploads them again.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        observe::{Observer, Phase},
    },
    ops::{
        affected::LISTED_PATHS,
        verify::{
            Data, Verification, VerifyError, VerifyOptions, VerifyOutcome, VerifyProblem,
            packs::{PackTask, is_chosen},
            rolling::Schedule,
            structure::StartCommits,
        },
    },
    store::{FrameObjects, PackFile, PackStream, RemoteFrames, Store, StoreError, pack_stream},
};

/// Number of bytes of packs that are prefetched ahead of reading.
const AHEAD_BYTES: u64 = 64 << 20;

/// The facts about a remote store that the caller fetched before the verification.
#[derive(Clone, Copy, Debug)]
pub struct RemoteInventory<'a> {
    /// The commits that the refs of the store point at.
    pub tips: &'a [CommitId],
    /// The commits that the refs pointed at when they were last seen, if the store has these
    /// commits.
    pub seen: &'a [CommitId],
    /// The packs that the listing of the store shows, with their lengths in bytes.
    pub lengths: &'a HashMap<PackId, u64>,
    /// The objects of the store's partial packs, if it is a partial clone. They lie at its origin,
    /// so the store may lack them.
    pub at_origin: &'a HashSet<ObjectId>,
    /// Reads bytes of packs of the store.
    pub source: &'a dyn RemoteFrames,
    /// Identity of the location. It distinguishes locations with the same name, such as
    /// two disks that are mounted alternately. It contains no spaces.
    pub identity: &'a str,
}

/// Verifies a remote store. `stubs` has stubs of all packs in that store's index and fetches
/// missing frames.
///
/// Checked: that each pack exists with its length, unless no commit needs it; that every ref leads
/// to all of its commits, folders and contents; with [`Data::All`], each byte of each pack.
/// **Not** checked: that the chunks of a content together hash to its id.
///
/// # Errors
/// [`VerifyError`] when the store cannot be reached. Damage is not an error;
/// [`VerifyOutcome::problems`] lists it.
pub fn run_elsewhere(
    stubs: &Store,
    remote: &RemoteInventory<'_>,
    options: &VerifyOptions,
    observer: &dyn Observer,
) -> Result<VerifyOutcome, VerifyError> {
    let run = Verification::new(stubs, Some(remote), observer);
    run.check_remote_packs(remote, options.data)?;
    run.apply_shadows()?;
    run.drop_found_elsewhere()?;
    let roots = StartCommits { tips: remote.tips.to_vec(), earlier: &|| Ok(remote.seen.to_vec()) };
    let commits = run.check_structure(&roots)?;
    for id in remote.at_origin {
        let is_absent = stubs.locate(id)?.is_none();
        run.count(|outcome| outcome.absent_objects += u64::from(is_absent));
    }
    run.apply_shadows()?;
    if run.has_problems() {
        run.find_affected(&commits, LISTED_PATHS)?;
        run.check_stopped()?;
    }
    let mut outcome = run.outcome.into_inner();
    if outcome.touched.is_empty() {
        // No commit needs the lost packs, so a repair has nothing to do.
        outcome.problems.retain(|problem| match problem {
            VerifyProblem::PackLost { pack } => {
                outcome.unneeded_packs.push(*pack);
                false
            }
            _ => true,
        });
    }
    Ok(outcome)
}

impl Verification<'_> {
    fn check_remote_packs(
        &self,
        remote: &RemoteInventory<'_>,
        data: Data,
    ) -> Result<(), VerifyError> {
        let stubs = self.store;
        let schedule = Schedule::new(stubs, data, |_| Some(remote.identity.to_owned()));
        let total: u64 = remote.lengths.values().sum();
        let total = match data {
            Data::None => None,
            Data::Sample(part) => Some((total as f64 * part) as u64),
            Data::Due(_) => {
                let is_due = |id: &PackId| schedule.is_due(id) || stubs.is_damaged(id);
                let due = remote.lengths.iter().filter(|(id, _)| is_due(id));
                Some(due.map(|(_, bytes)| bytes).sum())
            }
            Data::All => Some(total),
        };
        self.observer.phase(Phase::Data, total);
        let (source, random) = (remote.source, RandomState::new());
        let verifier = RemotePackVerifier { run: self, source, random, schedule: &schedule };
        let mut tasks = Vec::new();
        let mut packs = stubs.packs();
        schedule.sort(&mut packs);
        for id in packs {
            self.check_stopped()?;
            let pack = stubs.open_pack(&id)?;
            let objects = pack.objects()?.len() as u64;
            self.count(|outcome| {
                outcome.packs += 1;
                outcome.objects += objects;
            });
            let expected = pack.file_bytes();
            match remote.lengths.get(&id) {
                None => {
                    self.shadow_pack(id, None);
                    self.add(VerifyProblem::PackLost { pack: id }, []);
                }
                Some(&found) if found != expected => {
                    self.shadow_pack(id, None);
                    self.add(VerifyProblem::PackLength { pack: id, expected, found }, []);
                }
                Some(_) => {
                    let was_damaged = stubs.is_damaged(&id);
                    let is_read = match data {
                        Data::None => was_damaged,
                        Data::Due(_) => was_damaged || schedule.is_due(&id),
                        Data::Sample(_) | Data::All => true,
                    };
                    if is_read {
                        tasks.push(PackTask { id, data, was_damaged });
                    }
                }
            }
        }
        let read = verifier.check_all(&mut tasks);
        schedule.finish(stubs, &mut self.outcome.lock());
        read
    }
}

/// Reads and checks packs of the remote store.
struct RemotePackVerifier<'a> {
    run: &'a Verification<'a>,
    source: &'a dyn RemoteFrames,
    /// Random hash state that chooses the frames of a sample.
    random: RandomState,
    schedule: &'a Schedule<'a>,
}

impl RemotePackVerifier<'_> {
    /// Reads the selected parts of packs in order, and prefetches the parts that follow.
    fn check_all(&self, tasks: &mut [PackTask]) -> Result<(), VerifyError> {
        let (mut announced, mut ahead) = (0, 0);
        for number in 0..tasks.len() {
            while announced < tasks.len() && (announced <= number || ahead < AHEAD_BYTES) {
                let task = &mut tasks[announced];
                task.data = self.schedule.begin(&task.id, task.was_damaged);
                let ranges = self.ranges(task)?;
                ahead += bytes_of(&ranges);
                self.source.prefetch(&ranges);
                announced += 1;
            }
            self.run.check_stopped()?;
            let task = &tasks[number];
            let bytes_read = self.check_pack(task)?;
            self.run.count(|outcome| outcome.bytes_read += bytes_read);
            ahead = ahead.saturating_sub(bytes_of(&self.ranges(task)?));
        }
        self.run.check_stopped()
    }

    /// Returns the ranges that will be read of a pack, in order. Header and footer are
    /// not included.
    fn ranges(&self, task: &PackTask) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        let pack = self.run.store.open_pack(&task.id)?;
        let objects = pack.objects()?;
        let ranges = pack_stream::remote_ranges(self.frames(task, pack.by_frame(&objects)));
        Ok(ranges.into_iter().map(|range| (task.id, range)).collect())
    }

    /// Returns the frames to read.
    fn frames<'o>(
        &self,
        task: &PackTask,
        frames: impl Iterator<Item = FrameObjects<'o>>,
    ) -> impl Iterator<Item = FrameObjects<'o>> {
        let numbered = frames.enumerate();
        let chosen = numbered
            .filter(|(number, _)| is_chosen(task.data, self.random.hash_one((task.id, number))));
        chosen.map(|(_, contents)| contents)
    }

    /// Reads the selected part of a pack. Returns the number of bytes read.
    fn check_pack(&self, task: &PackTask) -> Result<u64, VerifyError> {
        let pack = self.run.store.open_pack(&task.id)?;
        let read = match task.data {
            Data::None => return Ok(0),
            Data::Sample(_) => self.check_sample(task, &pack),
            Data::All | Data::Due(_) => self.check_whole(task, &pack),
        };
        match read {
            Ok(bytes) => Ok(bytes),
            // The pack is missing or truncated.
            Err(source) if source.kind() == ErrorKind::Damaged => {
                self.run.shadow_pack(task.id, None);
                self.run.add(VerifyProblem::Pack { pack: task.id, source }, []);
                Ok(0)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check_whole(&self, task: &PackTask, pack: &PackFile) -> Result<u64, StoreError> {
        let each = |contents: FrameObjects<'_>, raw: Result<&[u8], StoreError>| {
            self.run.check_raw(task.id, contents, raw);
            Ok(())
        };
        let mut sink = |bytes: &[u8]| {
            self.run.observer.advance(bytes.len() as u64, 0);
            Ok::<_, StoreError>(())
        };
        let stream = PackStream::of_remote(pack, self.source, self.run.observer);
        match stream.hash(&pack.objects()?, &each, &mut sink)? {
            Some(actual) if actual != task.id => {
                self.run.shadow_pack(task.id, None);
                self.run.add(VerifyProblem::PackHash { pack: task.id, actual }, []);
            }
            Some(_) if !self.run.shadows(&task.id) => {
                self.schedule.add_sound(task.id, self.schedule.identity(&task.id));
                if task.was_damaged {
                    self.run.found_whole(task.id);
                }
            }
            _ => {}
        }
        Ok(pack.file_bytes())
    }

    fn check_sample(&self, task: &PackTask, pack: &PackFile) -> Result<u64, StoreError> {
        let (objects, read) = (pack.objects()?, AtomicU64::new(0));
        let each = |contents: FrameObjects<'_>, raw: Result<&[u8], StoreError>| {
            let stored_bytes = u64::from(contents.frame.stored_bytes);
            read.fetch_add(stored_bytes, Ordering::Relaxed);
            self.run.observer.advance(stored_bytes, contents.objects.len() as u64);
            self.run.check_raw(task.id, contents, raw);
            Ok(())
        };
        let stream = PackStream::of_remote(pack, self.source, self.run.observer);
        stream.check_frames(self.frames(task, pack.by_frame(&objects)), &each)?;
        Ok(read.into_inner())
    }
}

fn bytes_of(ranges: &[(PackId, Range<u64>)]) -> u64 {
    ranges.iter().map(|(_, range)| range.end - range.start).sum()
}
