//! Verifying a store that lies elsewhere, from the stubs of its packs.
//!
//! The stubs say which packs there are, how long each is and what it holds. The
//! listing says what is really there. Structure is read from the packs and kept
//! in the stubs; contents are read only when that is asked for, and not kept.
//! What is found damaged or lost is shadowed among the stubs, so that the next
//! push to that store sends it again.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use rayon::prelude::*;

use crate::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        observe::{Observer, Phase},
    },
    format::pack::{Frame, Object, checksum},
    ops::verify::{
        Data, Findings, Options, Outcome, Problem, VerifyError,
        packs::{check_expanded, is_chosen},
        shadows, structure, touched,
    },
    store::{Contents, Distant, PackFile, Store, StoreError},
};

/// Bytes of packs that are announced before they are read.
const AHEAD_BYTES: u64 = 64 << 20;

/// A store elsewhere, as far as it was asked before it is verified.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere<'a> {
    /// Where its refs stand.
    pub tips: &'a [CommitId],
    /// The packs that are there, and their lengths in bytes.
    pub lengths: &'a HashMap<PackId, u64>,
    /// Reads them.
    pub source: &'a dyn Distant,
}

/// Checks a store elsewhere: `stubs` are those of all packs that its index
/// names, and fetch what they lack.
///
/// Checked: that each pack is there and has its length; that every ref reaches
/// all of its commits, folders and contents; with [`Data::All`] each byte of each
/// pack. **Not** checked: that the chunks of a content together hash to its id.
///
/// # Errors
/// [`VerifyError`] when the store cannot be asked; damage is in the outcome.
pub fn run_elsewhere(
    stubs: &Store,
    there: &Elsewhere<'_>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome, VerifyError> {
    let findings = Findings::elsewhere(stubs);
    let mut outcome = Outcome::default();
    check_packs(stubs, there, options.data, &findings, observer, &mut outcome)?;
    shadows::apply(stubs, &findings, &mut outcome.shadowed)?;
    findings.drop_found_elsewhere(stubs)?;
    let commits = structure::check(stubs, there.tips, &findings, observer, &mut outcome)?;
    shadows::apply(stubs, &findings, &mut outcome.shadowed)?;
    if !findings.is_empty() {
        outcome.touched = touched::find(stubs, &commits, &findings, observer)?;
        findings.go_on(observer)?;
    }
    outcome.problems = findings.into_problems();
    Ok(outcome)
}

/// A pack, and how much of it is read.
struct Task {
    id: PackId,
    data: Data,
    was_damaged: bool,
}

/// Reads packs from where they lie.
struct Reading<'a> {
    stubs: &'a Store,
    source: &'a dyn Distant,
    /// Chooses the frames of a sample.
    random: RandomState,
}

impl Reading<'_> {
    /// What will be read of a pack, in order, but for its ends.
    fn ranges(&self, task: &Task) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        let pack = self.stubs.open_pack(&task.id)?;
        let ranges = match task.data {
            Data::None => Vec::new(),
            Data::All => pack.ranges_at()?,
            Data::Sample(_) => {
                let frames = pack.frames().iter().enumerate();
                let chosen = frames.filter(|(number, _)| self.is_chosen(task, *number));
                chosen.map(|(_, frame)| frame.range()).collect()
            }
        };
        Ok(ranges.into_iter().map(|range| (task.id, range)).collect())
    }

    fn is_chosen(&self, task: &Task, frame: usize) -> bool {
        is_chosen(task.data, self.random.hash_one((task.id, frame)))
    }
}

fn check_packs(
    stubs: &Store,
    there: &Elsewhere<'_>,
    data: Data,
    findings: &Findings<'_>,
    observer: &dyn Observer,
    outcome: &mut Outcome,
) -> Result<(), VerifyError> {
    let total: u64 = there.lengths.values().sum();
    let total = match data {
        Data::None => None,
        Data::Sample(part) => Some((total as f64 * part) as u64),
        Data::All => Some(total),
    };
    observer.phase(Phase::Data, total);
    let (source, random) = (there.source, RandomState::new());
    let reading = Reading { stubs, source, random };
    let mut tasks = Vec::new();
    for id in stubs.packs() {
        findings.go_on(observer)?;
        let pack = stubs.open_pack(&id)?;
        outcome.packs += 1;
        outcome.objects += pack.objects()?.len() as u64;
        let expected = pack.file_bytes();
        match there.lengths.get(&id) {
            None => {
                findings.shadow_pack(id, None);
                findings.add(Problem::PackLost { pack: id }, []);
            }
            Some(&found) if found != expected => {
                findings.shadow_pack(id, None);
                findings.add(Problem::PackLength { pack: id, expected, found }, []);
            }
            Some(_) => {
                let was_damaged = stubs.is_damaged(&id);
                // Read as a whole, to see whether it was put back.
                let data = if was_damaged { Data::All } else { data };
                if data != Data::None {
                    tasks.push(Task { id, data, was_damaged });
                }
            }
        }
    }
    let mut announced = 0;
    let mut ahead = 0;
    for (number, task) in tasks.iter().enumerate() {
        while announced < tasks.len() && (announced <= number || ahead < AHEAD_BYTES) {
            let ranges = reading.ranges(&tasks[announced])?;
            ahead += bytes_of(&ranges);
            source.will_need(&ranges);
            announced += 1;
        }
        findings.go_on(observer)?;
        outcome.bytes_read += reading.pack(task, findings, observer)?;
        ahead = ahead.saturating_sub(bytes_of(&reading.ranges(task)?));
    }
    findings.go_on(observer)
}

fn bytes_of(ranges: &[(PackId, Range<u64>)]) -> u64 {
    ranges.iter().map(|(_, range)| range.end - range.start).sum()
}

impl Reading<'_> {
    /// Reads what was chosen of a pack. Returns how many bytes that was.
    fn pack(
        &self,
        task: &Task,
        findings: &Findings<'_>,
        observer: &dyn Observer,
    ) -> Result<u64, VerifyError> {
        let pack = self.stubs.open_pack(&task.id)?;
        let read = match task.data {
            Data::None => return Ok(0),
            Data::Sample(_) => self.chosen(task, &pack, findings, observer),
            Data::All => self.whole(task, &pack, findings, observer),
        };
        match read {
            Ok(bytes) => Ok(bytes),
            // It is not there, or ends too early.
            Err(source) if source.kind() == ErrorKind::Damaged => {
                findings.shadow_pack(task.id, None);
                findings.add(Problem::Pack { pack: task.id, source }, []);
                Ok(0)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn whole(
        &self,
        task: &Task,
        pack: &PackFile,
        findings: &Findings<'_>,
        observer: &dyn Observer,
    ) -> Result<u64, StoreError> {
        let mut check = |batch: &[Contents<'_>], bytes: &mut [u8]| {
            check_batch(pack, batch, bytes, self.source, findings);
        };
        match pack.hash_at(self.source, &mut check, observer)? {
            Some(actual) if actual != task.id => {
                findings.shadow_pack(task.id, None);
                findings.add(Problem::PackHash { pack: task.id, actual }, []);
            }
            Some(_) if task.was_damaged && !findings.shadows(&task.id) => {
                findings.found_whole(task.id);
            }
            _ => {}
        }
        Ok(pack.file_bytes())
    }

    fn chosen(
        &self,
        task: &Task,
        pack: &PackFile,
        findings: &Findings<'_>,
        observer: &dyn Observer,
    ) -> Result<u64, StoreError> {
        let (objects, mut read) = (pack.objects()?, 0);
        let mut rest = objects.as_slice();
        for (number, frame) in pack.frames().iter().enumerate() {
            let (own, others) = rest.split_at(frame.objects as usize);
            rest = others;
            if !self.is_chosen(task, number) || observer.cancelled() {
                continue;
            }
            let stored = self.source.read(task.id, frame.range());
            let stored = stored.map_err(|source| StoreError::Distant { pack: task.id, source })?;
            check_stored(pack, (frame, own), stored, self.source, findings);
            read += u64::from(frame.stored_bytes);
            observer.advance(u64::from(frame.stored_bytes), own.len() as u64);
        }
        Ok(read)
    }
}

/// Checks frames that follow each other in `bytes`. What came wrong and is right
/// when it is read again was damaged on the way, and is put right in `bytes`.
fn check_batch(
    pack: &PackFile,
    batch: &[Contents<'_>],
    bytes: &mut [u8],
    source: &dyn Distant,
    findings: &Findings<'_>,
) {
    let mut pieces = Vec::with_capacity(batch.len());
    let mut rest = bytes;
    for (frame, objects) in batch {
        let length = (frame.stored_bytes as usize).min(rest.len());
        let (piece, others) = rest.split_at_mut(length);
        rest = others;
        pieces.push(((*frame, *objects), piece));
    }
    pieces.par_iter_mut().with_max_len(1).for_each(|(contents, piece)| {
        let right = check_stored(pack, *contents, piece.to_vec(), source, findings);
        if let Some(right) = right.filter(|right| right.len() == piece.len()) {
            piece.copy_from_slice(&right);
        }
    });
}

/// Checks a frame as it came, and once more if it is not right. Returns what came
/// the second time, if that was right.
fn check_stored(
    pack: &PackFile,
    (frame, objects): (&Frame, &[Object]),
    stored: Vec<u8>,
    source: &dyn Distant,
    findings: &Findings<'_>,
) -> Option<Vec<u8>> {
    let is_right = |stored: &[u8]| {
        stored.len() == frame.stored_bytes as usize && checksum(stored) == frame.checksum
    };
    if is_right(&stored) {
        check_expanded(pack, objects, pack.expand(frame, stored), findings);
        return None;
    }
    let again = source.read(pack.id(), frame.range()).ok().filter(|again| is_right(again));
    let raw = match &again {
        Some(again) => pack.expand(frame, again.clone()),
        None => Err(StoreError::Frame { pack: pack.id(), offset_bytes: frame.offset }),
    };
    check_expanded(pack, objects, raw, findings);
    again
}
