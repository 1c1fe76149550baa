//! Verifies a remote store, from the stubs of its packs.
//!
//! The stubs say which packs exist, how long each one is, and which objects it holds. The listing
//! of the store says which packs really exist. Structure is read from the packs and cached in the
//! stubs. Contents are read only on request and are not cached. Damaged or lost objects are
//! shadowed among the stubs, so that the next push to that store uploads them again.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use rayon::prelude::*;

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        observe::{Observer, Phase},
    },
    format::pack::checksum,
    ops::verify::{
        Data, Findings, VerifyError, VerifyOptions, VerifyOutcome, VerifyProblem,
        packs::{check_raw, is_chosen},
        rolling::Schedule,
        shadows,
        structure::{self, Roots},
        touched::{self, LISTED_PATHS},
    },
    store::{FrameObjects, PackFile, RemoteFrames, Store, StoreError},
};

/// Bytes of packs that are prefetched ahead of reading.
const AHEAD_BYTES: u64 = 64 << 20;

/// The facts about a remote store that the caller fetched before the verification.
#[derive(Clone, Copy, Debug)]
pub struct RemoteInventory<'a> {
    /// The commits that its refs point at.
    pub tips: &'a [CommitId],
    /// The commits that its refs pointed at when they were last seen, if the store has
    /// them.
    pub seen: &'a [CommitId],
    /// The packs that its listing shows, with their lengths in bytes.
    pub lengths: &'a HashMap<PackId, u64>,
    /// The objects of its partial packs, if it is a partial clone. They lie at its origin, so
    /// it is not damaged if it lacks them.
    pub at_origin: &'a HashSet<ObjectId>,
    /// Reads bytes of its packs.
    pub source: &'a dyn RemoteFrames,
    /// Identity of the location. It distinguishes locations with the same name, such as
    /// two disks that are mounted alternately. It contains no spaces.
    pub identity: &'a str,
}

/// Verifies a remote store. `stubs` has stubs of all packs in that store's index and
/// fetches the frames that it lacks.
///
/// Checked: that each pack exists with its length, unless no commit needs it; that every ref leads to all of its
/// commits, folders and contents; with [`Data::All`], each byte of each pack. **Not**
/// checked: that the chunks of a content together hash to its id.
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
    let findings = Findings::elsewhere(stubs, remote.at_origin);
    let mut outcome = VerifyOutcome::default();
    check_packs(stubs, remote, options.data, &findings, observer, &mut outcome)?;
    shadows::apply(stubs, &findings, &mut outcome.shadowed)?;
    findings.drop_found_elsewhere(stubs)?;
    let roots = Roots { tips: remote.tips.to_vec(), earlier: &|| Ok(remote.seen.to_vec()) };
    let commits = structure::check(stubs, &roots, &findings, observer, &mut outcome)?;
    for id in remote.at_origin {
        outcome.absent_objects += u64::from(stubs.locate(id)?.is_none());
    }
    shadows::apply(stubs, &findings, &mut outcome.shadowed)?;
    if !findings.is_empty() {
        outcome.touched = touched::find(stubs, &commits, &findings, LISTED_PATHS, observer)?;
        findings.go_on(observer)?;
    }
    outcome.problems = findings.into_problems();
    if outcome.touched.is_empty() {
        // No commit needs what they held, so no repair could do anything about them.
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

/// A pack and how much of it is read.
struct RemotePackTask {
    id: PackId,
    data: Data,
    was_damaged: bool,
}

/// Reads packs from the remote store.
struct RemotePackVerifier<'a> {
    stubs: &'a Store,
    source: &'a dyn RemoteFrames,
    /// Random hash state that chooses the frames of a sample.
    random: RandomState,
    schedule: &'a Schedule<'a>,
}

impl RemotePackVerifier<'_> {
    /// Reads the selected parts of packs in order, and prefetches the parts that follow.
    fn all(
        &self,
        tasks: &mut [RemotePackTask],
        findings: &Findings<'_>,
        observer: &dyn Observer,
        outcome: &mut VerifyOutcome,
    ) -> Result<(), VerifyError> {
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
            findings.go_on(observer)?;
            let task = &tasks[number];
            outcome.bytes_read += self.pack(task, findings, observer)?;
            ahead = ahead.saturating_sub(bytes_of(&self.ranges(task)?));
        }
        findings.go_on(observer)
    }

    /// Returns the ranges that will be read of a pack, in order. Header and footer are
    /// not included.
    fn ranges(&self, task: &RemotePackTask) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        let pack = self.stubs.open_pack(&task.id)?;
        let ranges = match task.data {
            Data::None => Vec::new(),
            Data::All | Data::Due(_) => pack.ranges_at()?,
            Data::Sample(_) => {
                let frames = pack.frames().iter().enumerate();
                let chosen = frames.filter(|(number, _)| self.is_chosen(task, *number));
                chosen.map(|(_, frame)| frame.range()).collect()
            }
        };
        Ok(ranges.into_iter().map(|range| (task.id, range)).collect())
    }

    fn is_chosen(&self, task: &RemotePackTask, frame: usize) -> bool {
        is_chosen(task.data, self.random.hash_one((task.id, frame)))
    }
}

fn check_packs(
    stubs: &Store,
    remote: &RemoteInventory<'_>,
    data: Data,
    findings: &Findings<'_>,
    observer: &dyn Observer,
    outcome: &mut VerifyOutcome,
) -> Result<(), VerifyError> {
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
    observer.phase(Phase::Data, total);
    let (source, random) = (remote.source, RandomState::new());
    let reading = RemotePackVerifier { stubs, source, random, schedule: &schedule };
    let mut tasks = Vec::new();
    let mut packs = stubs.packs();
    schedule.sort(&mut packs);
    for id in packs {
        findings.go_on(observer)?;
        let pack = stubs.open_pack(&id)?;
        outcome.packs += 1;
        outcome.objects += pack.objects()?.len() as u64;
        let expected = pack.file_bytes();
        match remote.lengths.get(&id) {
            None => {
                findings.shadow_pack(id, None);
                findings.add(VerifyProblem::PackLost { pack: id }, []);
            }
            Some(&found) if found != expected => {
                findings.shadow_pack(id, None);
                findings.add(VerifyProblem::PackLength { pack: id, expected, found }, []);
            }
            Some(_) => {
                let was_damaged = stubs.is_damaged(&id);
                let is_read = match data {
                    Data::None => was_damaged,
                    Data::Due(_) => was_damaged || schedule.is_due(&id),
                    Data::Sample(_) | Data::All => true,
                };
                if is_read {
                    tasks.push(RemotePackTask { id, data, was_damaged });
                }
            }
        }
    }
    let read = reading.all(&mut tasks, findings, observer, outcome);
    schedule.finish(stubs, outcome);
    read
}

fn bytes_of(ranges: &[(PackId, Range<u64>)]) -> u64 {
    ranges.iter().map(|(_, range)| range.end - range.start).sum()
}

impl RemotePackVerifier<'_> {
    /// Reads the selected part of a pack. Returns the number of bytes read.
    fn pack(
        &self,
        task: &RemotePackTask,
        findings: &Findings<'_>,
        observer: &dyn Observer,
    ) -> Result<u64, VerifyError> {
        let pack = self.stubs.open_pack(&task.id)?;
        let read = match task.data {
            Data::None => return Ok(0),
            Data::Sample(_) => self.chosen(task, &pack, findings, observer),
            Data::All | Data::Due(_) => self.whole(task, &pack, findings, observer),
        };
        match read {
            Ok(bytes) => Ok(bytes),
            // The pack is missing or truncated.
            Err(source) if source.kind() == ErrorKind::Damaged => {
                findings.shadow_pack(task.id, None);
                findings.add(VerifyProblem::Pack { pack: task.id, source }, []);
                Ok(0)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn whole(
        &self,
        task: &RemotePackTask,
        pack: &PackFile,
        findings: &Findings<'_>,
        observer: &dyn Observer,
    ) -> Result<u64, StoreError> {
        let mut check = |batch: &[FrameObjects<'_>], bytes: &mut [u8]| {
            check_batch(pack, batch, bytes, self.source, findings);
        };
        match pack.hash_at(self.source, &mut check, observer)? {
            Some(actual) if actual != task.id => {
                findings.shadow_pack(task.id, None);
                findings.add(VerifyProblem::PackHash { pack: task.id, actual }, []);
            }
            Some(_) if !findings.shadows(&task.id) => {
                self.schedule.add_sound(task.id, self.schedule.identity(&task.id));
                if task.was_damaged {
                    findings.found_whole(task.id);
                }
            }
            _ => {}
        }
        Ok(pack.file_bytes())
    }

    fn chosen(
        &self,
        task: &RemotePackTask,
        pack: &PackFile,
        findings: &Findings<'_>,
        observer: &dyn Observer,
    ) -> Result<u64, StoreError> {
        let (objects, mut read) = (pack.objects()?, 0);
        for (number, contents) in pack.by_frame(&objects).enumerate() {
            let FrameObjects { frame, objects } = contents;
            if !self.is_chosen(task, number) || observer.cancelled() {
                continue;
            }
            let stored = self.source.read(task.id, frame.range());
            let stored = stored.map_err(|source| StoreError::Distant { pack: task.id, source })?;
            check_stored(pack, contents, stored, self.source, findings);
            read += u64::from(frame.stored_bytes);
            observer.advance(u64::from(frame.stored_bytes), objects.len() as u64);
        }
        Ok(read)
    }
}

/// Checks consecutive frames in `bytes`. If a frame is wrong at first and right when it
/// is read again, the damage happened in transit; the frame is then corrected in `bytes`.
fn check_batch(
    pack: &PackFile,
    batch: &[FrameObjects<'_>],
    bytes: &mut [u8],
    source: &dyn RemoteFrames,
    findings: &Findings<'_>,
) {
    let mut pieces = Vec::with_capacity(batch.len());
    let mut rest = bytes;
    for contents in batch {
        let length = (contents.frame.stored_bytes as usize).min(rest.len());
        let (piece, others) = rest.split_at_mut(length);
        rest = others;
        pieces.push((*contents, piece));
    }
    pieces.par_iter_mut().with_max_len(1).for_each(|(contents, piece)| {
        let right = check_stored(pack, *contents, piece.to_vec(), source, findings);
        if let Some(right) = right.filter(|right| right.len() == piece.len()) {
            piece.copy_from_slice(&right);
        }
    });
}

/// Checks a frame, and reads it once more if it is wrong. Returns the bytes of the second
/// read if they are right.
fn check_stored(
    pack: &PackFile,
    contents: FrameObjects<'_>,
    stored: Vec<u8>,
    source: &dyn RemoteFrames,
    findings: &Findings<'_>,
) -> Option<Vec<u8>> {
    let frame = contents.frame;
    let is_right = |stored: &[u8]| {
        stored.len() == frame.stored_bytes as usize && checksum(stored) == frame.checksum
    };
    if is_right(&stored) {
        check_raw(pack, contents, pack.expand(frame, stored), findings);
        return None;
    }
    let again = match source.read(pack.id(), frame.range()) {
        Ok(again) => Some(again).filter(|again| is_right(again)),
        Err(error) if matches!(error.kind, ErrorKind::Damaged | ErrorKind::NotFound) => None,
        // A transport error says nothing about the pack.
        Err(source) => {
            findings.fail(StoreError::Distant { pack: pack.id(), source });
            return None;
        }
    };
    let raw = match &again {
        Some(again) => pack.expand(frame, again.clone()),
        None => Err(StoreError::Frame { pack: pack.id(), offset_bytes: frame.offset }),
    };
    check_raw(pack, contents, raw, findings);
    again
}
