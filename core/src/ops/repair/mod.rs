//! `repair`: put back what a store has lost, from wherever it still is.
//!
//! A ladder for each damaged or missing object:
//!
//! 1. another place of it here that is sound: nothing to do;
//! 2. its pack, put together of the frames that are sound here and those of sources
//!    that have the same pack, and proven by its hash;
//! 3. the object in any pack of a source;
//! 4. the live file, read and cut as a commit does it;
//! 5. a bundle.
//!
//! Every object is proven by its id, a list of chunks by the content that its chunks
//! amount to. What was found is put together in a [`Workshop`], which is part of
//! nothing; only whole packs leave it. A damaged pack that could be rescued in part
//! only gives what is sound of it to a new pack. Once nothing in it is needed it
//! moves to `quarantine/`. Nothing is deleted, no id changes and no ref moves.

mod files;
mod gather;
mod search;
mod source;
mod workshop;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        observe::{Observer, Phase, Silent},
    },
    chunk::{Params, ParamsError},
    format::pack::ObjectKind,
    ops::{
        reach::ReachError,
        verify::{self, Data, TouchedPath, VerifyError},
    },
    repo::Repo,
    store::{BundleError, Incoming, Store, StoreError},
};

use self::{
    gather::{Files, Gathering},
    search::{Lacking, Overlay},
    workshop::Assembled,
};

pub use source::{Source, SourceKind};
pub use workshop::Workshop;

/// Whether anything is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// The store is repaired.
    #[default]
    Real,
    /// It is said what would be repaired. The repository must have been opened so that
    /// nothing in it can be written.
    Dry,
}

/// Choices.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// How much of the data is read and hashed to find damage.
    pub data: Data,
    /// Whether anything is written.
    pub run: Run,
    /// Where a scratch folder may be made for a dry run.
    pub scratch: &'a Path,
}

/// Where something came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The damaged pack itself: all frames of it are sound.
    Here,
    /// The source of this name.
    Source(String),
    /// The file at this path in the project.
    File(Vec<u8>),
}

/// Something that was repaired, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// A pack is whole again, under its name.
    Pack {
        /// The pack.
        id: PackId,
        /// The sources of what was damaged.
        from: Vec<Origin>,
    },
    /// An object was stored again, in a new pack.
    Object {
        /// The object.
        id: ObjectId,
        /// What it is.
        kind: ObjectKind,
        /// Where it was.
        from: Origin,
    },
    /// What is sound in a damaged pack was stored again, in a new one.
    Salvaged {
        /// The damaged pack.
        pack: PackId,
        /// Objects that only the damaged pack had.
        objects: u64,
    },
}

/// An object that nobody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The object.
    pub id: ObjectId,
    /// What it should be. Of a content that may have been cut, [`ObjectKind::Blob`].
    pub kind: ObjectKind,
}

/// What happened, or would.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Problems that were found at first.
    pub problems: usize,
    /// What was repaired, in the order of the work.
    pub repaired: Vec<Repaired>,
    /// Damaged packs that are in `quarantine/` now.
    pub quarantined: Vec<PackId>,
    /// Objects that stay lost.
    pub lost: Vec<Lost>,
    /// The last verification: problems that stay, and what they touch. Of a dry run,
    /// the only one.
    pub left: verify::Outcome,
}

/// Whether a problem is one of objects or packs, which is repaired once those are
/// there again.
pub fn is_repairable(problem: &verify::Problem) -> bool {
    use verify::Problem;
    !matches!(problem, Problem::Ref { .. } | Problem::RefLost { .. } | Problem::Depth { .. })
}

/// Why repairing did not come to an end. What was repaired until then stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The store cannot be verified.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The structure cannot be walked.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// A pack that was put together cannot be taken in.
    #[error("a repaired pack cannot be taken in")]
    Adopt(#[from] BundleError),
    /// The settings for cutting files cannot be used.
    #[error(transparent)]
    Chunk(#[from] ParamsError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<PathError> for RepairError {
    fn from(error: PathError) -> Self {
        Self::Store(error.into())
    }
}

impl RepairError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Verify(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Reach(error) => error.kind(),
            Self::Adopt(error) => error.kind(),
            Self::Chunk(_) => ErrorKind::Invalid,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Returns the sources. Asked only when something is wrong.
pub type Sources<'f, 's> = dyn Fn() -> &'s [Source<'s>] + 'f;

/// Repairs a store, as far as it and `sources` have what it lacks.
///
/// # Errors
/// [`RepairError`]; what stays lost is in the outcome.
pub fn run(
    repo: &Repo,
    sources: &Sources<'_, '_>,
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Outcome, RepairError> {
    let store = repo.store();
    let chunk = repo.config().chunk;
    let params = Params::new(chunk.min as usize, chunk.average as usize, chunk.max as usize)?;
    let level = repo.config().compression.level;
    let _pause = store.pause_fetching();
    let (mut outcome, mut data) = (Outcome::default(), options.data);
    let mut round_before = None;
    loop {
        // Made first: a store that cannot be written is not read for nothing.
        let workshop = match options.run {
            Run::Real => Workshop::create_in(store)?,
            Run::Dry => Workshop::create(options.scratch)?,
        };
        let hold = store.hold_packs()?;
        let found = verify::run(repo, &verify::Options { data }, observer)?;
        if round_before.is_none() {
            outcome.problems = found.problems.len();
        }
        if found.problems.is_empty() {
            outcome.left = found;
            outcome.lost.clear();
            return Ok(outcome);
        }
        let paths = touched_files(&found.touched.paths);
        let files = repo.project().map(|folder| Files { folder, paths: &paths, params });
        let mut repaired = renew_stubs(store, sources(), options.run)?;
        let has_renewed = !repaired.is_empty();
        let tips = verify::tips(repo)?;
        let (sources, keeps, run) = (sources(), Keeps::All, options.run);
        let collect = Collect { target: store, tips: &tips, sources, files, level, keeps, run };
        let mut collected = collect.run(&workshop, observer)?;
        repaired.append(&mut collected.repaired);
        let Collected { packs, lost, .. } = collected;
        outcome.lost = lost;
        if options.run == Run::Dry {
            outcome.repaired = repaired;
            outcome.left = found;
            return Ok(outcome);
        }
        stop(observer)?;
        for id in &packs {
            if adopt(store, &workshop, id, observer)? {
                outcome.quarantined.push(*id);
            }
        }
        // What is damaged in the same way again does not get better by repeating it.
        let mut has_changed = !packs.is_empty() || has_renewed;
        has_changed &= round_before.as_ref() != Some(&repaired);
        outcome.repaired.extend(repaired.iter().cloned());
        round_before = Some(repaired);
        drop(hold);
        let lost = outcome.lost.iter().map(|lost| lost.id).collect();
        let quarantined = quarantine(store, &lost, observer)?;
        has_changed |= !quarantined.is_empty();
        outcome.quarantined.extend(quarantined);
        if !has_changed {
            outcome.left = found;
            return Ok(outcome);
        }
        // What was read once is known, and what was written is right.
        data = Data::None;
    }
}

/// Puts new stubs in the place of those whose ends are damaged.
fn renew_stubs(
    store: &Store,
    sources: &[Source<'_>],
    run: Run,
) -> Result<Vec<Repaired>, RepairError> {
    let mut renewed = Vec::new();
    for id in damaged_packs(store) {
        if !store.is_partial(&id) || store.outline(&id).is_ok() {
            continue;
        }
        let told = |source: &Source<'_>| Some((source.name().to_owned(), source.outline(&id)?));
        let Some((name, outline)) = sources.iter().find_map(told) else { continue };
        if run == Run::Real && !store.renew_stub(&outline, &|| true)? {
            continue;
        }
        renewed.push(Repaired::Pack { id, from: vec![Origin::Source(name)] });
    }
    Ok(renewed)
}

fn stop(observer: &dyn Observer) -> Result<(), RepairError> {
    if observer.cancelled() { Err(RepairError::Interrupted) } else { Ok(()) }
}

fn touched_files(touched: &[TouchedPath]) -> Vec<(Vec<u8>, ObjectId)> {
    touched.iter().map(|touched| (touched.path.clone(), touched.object)).collect()
}

/// Makes a pack of the workshop part of the store. Returns whether it took the place
/// of a damaged one, which was kept in `quarantine/`.
fn adopt(
    store: &Store,
    workshop: &Workshop,
    id: &PackId,
    observer: &dyn Observer,
) -> Result<bool, RepairError> {
    // Another repair may have been faster.
    store.refresh()?;
    let mut incoming = Incoming::new(store, observer)?;
    incoming.link(&workshop.store().pack_path(id), *id)?;
    incoming.take_checked(*id)?;
    let is_replaced = store.is_damaged(id) && store.keep_in_quarantine(id)?;
    incoming.adopt_packs()?;
    // The index was made anew because of the damaged pack, and not because it was wrong.
    store.tell_repairs(&Silent);
    Ok(is_replaced)
}

/// Moves damaged packs away in which nothing is needed any more.
fn quarantine(
    store: &Store,
    lost: &BTreeSet<ObjectId>,
    observer: &dyn Observer,
) -> Result<Vec<PackId>, RepairError> {
    let damaged: Vec<PackId> = damaged_packs(store);
    let is_spare = |id: &PackId| {
        let objects = store.open_pack(id).and_then(|pack| pack.objects());
        // What is in it is not known: it may be what is lost.
        let Ok(objects) = objects else { return Ok(lost.is_empty()) };
        for object in &objects {
            // A list that nobody needs was not stored again because its chunks are lost.
            let is_needed = lost.contains(&object.id)
                || object.kind != ObjectKind::ChunkList
                    && store.locate_unshadowed(&object.id)?.is_none()
                    && store.object(&object.id, object.kind).is_ok();
            if is_needed {
                return Ok(false);
            }
        }
        Ok(true)
    };
    Ok(store.move_to_quarantine(&damaged, &is_spare, observer)?)
}

fn damaged_packs(store: &Store) -> Vec<PackId> {
    store.packs().into_iter().filter(|id| store.is_damaged(id)).collect()
}

/// Which parts of damaged packs are stored again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// All that is sound.
    All,
    /// What the refs reach.
    Reached,
}

/// What is collected for a store, which is only read.
struct Collect<'a> {
    target: &'a Store,
    tips: &'a [CommitId],
    sources: &'a [Source<'a>],
    files: Option<Files<'a>>,
    level: i32,
    keeps: Keeps,
    run: Run,
}

/// What was collected in the workshop.
#[derive(Debug, Default)]
pub struct Collected {
    /// Whole packs of the workshop that the store lacks.
    pub packs: Vec<PackId>,
    /// What that repairs.
    pub repaired: Vec<Repaired>,
    /// Objects that nobody has.
    pub lost: Vec<Lost>,
}

/// What [`collect`] collects for.
#[derive(Debug)]
pub struct Elsewhere<'a> {
    /// The stubs of the store elsewhere, which was verified: its damage is shadowed.
    pub stubs: &'a Store,
    /// Where its refs stand.
    pub tips: &'a [CommitId],
    /// Compression of new packs.
    pub level: i32,
}

/// Collects in `workshop` what a store elsewhere lacks, for the caller to send.
///
/// # Errors
/// [`RepairError`] when the store elsewhere cannot be asked.
pub fn collect(
    elsewhere: &Elsewhere<'_>,
    sources: &[Source<'_>],
    (workshop, run): (&Workshop, Run),
    observer: &dyn Observer,
) -> Result<Collected, RepairError> {
    let Elsewhere { stubs: target, tips, level } = *elsewhere;
    let keeps = Keeps::Reached;
    Collect { target, tips, sources, files: None, level, keeps, run }.run(workshop, observer)
}

impl Collect<'_> {
    fn run(&self, workshop: &Workshop, observer: &dyn Observer) -> Result<Collected, RepairError> {
        let run = self.run;
        let (mut repaired, mut planned) = (Vec::new(), BTreeSet::new());
        observer.phase(Phase::Receive, None);
        for id in damaged_packs(self.target) {
            repaired.extend(match run {
                Run::Dry => self.plan(workshop, id, &mut planned, observer)?,
                Run::Real => self.assemble(workshop, id, observer)?,
            });
            stop(observer)?;
        }
        let lists = |id: &PackId| self.target.open_pack(id).and_then(|pack| pack.objects()).is_ok();
        let mut unlisted: BTreeSet<PackId> = damaged_packs(self.target).into_iter().collect();
        unlisted.retain(|id| !lists(id));
        let overlay = Overlay::new(self.target, workshop, self.sources, &unlisted);
        let Lacking { mut wanted, mut lost } = overlay.search(self.tips, observer)?;
        wanted.retain(|id, _| !planned.contains(id));
        let overlay = &Overlay::new(self.target, workshop, self.sources, &unlisted);
        let (level, files) = (self.level, self.files);
        let gathering = Gathering { overlay, level, files, run, observer };
        observer.phase(Phase::Receive, None);
        for id in self.lost_packs(workshop, &wanted)? {
            let assembled = match run {
                Run::Dry => self.plan(workshop, id, &mut planned, observer)?,
                Run::Real => self.assemble(workshop, id, observer)?,
            };
            // Its name says nothing about what it should have been.
            match assembled {
                Some(_) if run == Run::Real && !gathering.proves_lists_of(&id)? => {
                    workshop.discard(&id)?;
                }
                assembled => repaired.extend(assembled),
            }
            stop(observer)?;
        }
        wanted.retain(|id, _| !planned.contains(id));
        if self.keeps == Keeps::All {
            let salvaged = gathering.salvage()?.into_iter();
            repaired.extend(salvaged.map(|(pack, objects)| Repaired::Salvaged { pack, objects }));
        }
        // A file may have what no source has.
        wanted.append(&mut lost);
        repaired.append(&mut gathering.gather(&mut wanted)?);
        stop(observer)?;
        let whole = |id: &PackId| !workshop.store().is_partial(id);
        let packs = workshop.store().packs().into_iter().filter(whole).collect();
        let lost = wanted.into_iter().map(|(id, kind)| Lost { id, kind }).collect();
        Ok(Collected { packs, repaired, lost })
    }

    /// Says where a pack would come from: the first source that has it.
    fn plan(
        &self,
        workshop: &Workshop,
        id: PackId,
        planned: &mut BTreeSet<ObjectId>,
        observer: &dyn Observer,
    ) -> Result<Option<Repaired>, RepairError> {
        for source in self.sources {
            let Some(Ok((_, objects))) = source.outline(&id).map(|outline| outline.tables()) else {
                continue;
            };
            planned.extend(objects.iter().map(|object| object.id));
            let from = vec![Origin::Source(source.name().to_owned())];
            return Ok(Some(Repaired::Pack { id, from }));
        }
        self.assemble(workshop, id, observer)
    }

    fn assemble(
        &self,
        workshop: &Workshop,
        id: PackId,
        observer: &dyn Observer,
    ) -> Result<Option<Repaired>, RepairError> {
        let assembled = workshop.assemble((self.target, &id), self.sources, observer)?;
        let Assembled::Whole(used) = assembled else { return Ok(None) };
        let name = |number: usize| Origin::Source(self.sources[number].name().to_owned());
        let from = match used.is_empty() {
            true => vec![Origin::Here],
            false => used.into_iter().map(name).collect(),
        };
        Ok(Some(Repaired::Pack { id, from }))
    }

    /// Packs of sources that the store does not have and of which it wants every
    /// object: it had them once.
    fn lost_packs(
        &self,
        workshop: &Workshop,
        wanted: &BTreeMap<ObjectId, ObjectKind>,
    ) -> Result<BTreeSet<PackId>, RepairError> {
        let mut packs = BTreeSet::new();
        for source in self.sources.iter().filter(|source| source.kind() == SourceKind::Store) {
            let mut looked_at = BTreeSet::new();
            for id in wanted.keys() {
                if workshop.store().is_stored(id)? {
                    continue;
                }
                let Some(place) = source.locate(id) else { continue };
                let Some(pack) = source.pack_of(&place) else { continue };
                if !looked_at.insert(pack) || packs.contains(&pack) {
                    continue;
                }
                let Some(outline) = source.outline(&pack) else { continue };
                let Ok((_, objects)) = outline.tables() else { continue };
                let is_wanted = |id: &ObjectId| wanted.contains_key(id);
                if objects.iter().all(|object| is_wanted(&object.id)) {
                    packs.insert(pack);
                }
            }
        }
        Ok(packs)
    }
}
