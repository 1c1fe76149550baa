//! `repair`: restores lost or damaged objects of a store from other copies.
//!
//! For each damaged or missing object, the repair tries these sources in order:
//!
//! 1. another sound copy in this store: nothing to do;
//! 2. its pack: assembled from sound frames of this store and of sources that have the pack, and
//!    verified against the pack's hash;
//! 3. the object in any pack of a source store;
//! 4. the live file from which the commit was made, read and cut again;
//! 5. a bundle.
//!
//! Every object is verified against its id, and every chunk list against the hash of the content
//! that its chunks make up. Repaired objects are collected in a [`ScratchStore`]; only whole packs
//! leave it. If a damaged pack can be recovered only in part, its sound objects go into a new pack.
//! Once no object in a damaged pack is needed, the pack moves to `quarantine/`. A repair deletes
//! nothing, changes no id and moves no ref.

mod combined_stores;
mod files;
mod gather;
mod scratch_store;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::{Observer, Phase, Silent},
    },
    format::{commit::Commit, pack::ObjectKind},
    ops::{
        affected::{AffectedPath, REPAIRED_PATHS},
        diff::ComparedFiles,
        inbox::{Adoption, Inbox},
        verify::{self, Data, VerifyError},
    },
    repo::Repo,
    store::Store,
};

use self::{
    combined_stores::{CombinedStores, MissingObjects},
    gather::{AffectedFiles, LiveFiles, Recovery},
    scratch_store::Assembled,
};

pub use scratch_store::ScratchStore;
pub use source::{RepairSource, SourceKind};

/// Selects between a repair and a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairRun {
    /// Repairs the store.
    #[default]
    Real,
    /// Reports what would be repaired. The caller must have opened the repository read-only.
    Dry,
}

#[derive(Clone, Copy, Debug)]
pub struct RepairOptions<'a> {
    /// Selects how much data is read and hashed to find damage.
    pub data: Data,
    /// Selects between a repair and a dry run.
    pub run: RepairRun,
    /// Folder in which a dry run may create its scratch folder.
    pub scratch: &'a Path,
}

/// The origin of a repaired pack or object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairedFrom {
    /// Sound frames of damaged packs in this store.
    Here,
    /// The source with this name.
    Source(String),
    /// The live file at this path: in the project, or else on disk.
    File(Vec<u8>),
}

/// A pack or object that was repaired, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// A pack is whole again under its name. `from` lists the sources of its damaged frames.
    Pack { id: PackId, from: Vec<RepairedFrom> },
    /// An object was stored again in a new pack.
    Object { id: ObjectId, kind: ObjectKind, from: RepairedFrom },
    /// The sound objects of a damaged pack were stored again in a new pack. `objects` counts the
    /// objects that only the damaged pack had.
    Salvaged { pack: PackId, objects: u64 },
}

/// An object that neither the store nor any source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostObject {
    pub id: ObjectId,
    /// The kind that the object should have. [`ObjectKind::Blob`] for a content that may have been
    /// cut into chunks.
    pub kind: ObjectKind,
}

/// The result of a repair or a dry run.
#[derive(Debug, Default)]
pub struct RepairOutcome {
    /// Number of problems that the first verification found.
    pub problems: usize,
    /// Repaired packs and objects, in the order in which they were repaired.
    pub repaired: Vec<Repaired>,
    /// Damaged packs that were moved to `quarantine/`.
    pub quarantined: Vec<PackId>,
    /// Objects that could not be repaired.
    pub lost: Vec<LostObject>,
    /// The result of the last verification: the remaining problems and the paths that they affect.
    /// A dry run verifies only once.
    pub left: verify::VerifyOutcome,
}

/// Returns true if a problem concerns objects or packs, so that recovering them solves it.
pub fn is_repairable(problem: &verify::VerifyProblem) -> bool {
    use verify::VerifyProblem::{Depth, Ref, RefLost, Scope};
    !matches!(problem, Ref { .. } | RefLost { .. } | Scope { .. } | Depth { .. })
}

/// A function that returns the sources. It is called only if the store has problems.
pub type Sources<'f, 's> = dyn Fn() -> &'s [RepairSource<'s>] + 'f;

/// A function that returns the files on disk from which a commit was made; `None` if they are those
/// of the project, or unknown.
pub type CommittedFiles<'f> = dyn Fn(&Commit) -> Option<ComparedFiles> + 'f;

/// Repairs a store with the objects that it, `sources` and the `files` of its commits still have.
///
/// # Errors
/// [`VerifyError`]. Objects that stay lost are not an error; [`RepairOutcome::lost`] lists them.
pub fn run(
    repo: &Repo,
    sources: &Sources<'_, '_>,
    files: &CommittedFiles<'_>,
    options: &RepairOptions<'_>,
    observer: &dyn Observer,
) -> Result<RepairOutcome, VerifyError> {
    let store = repo.store();
    let level = repo.config().compression_level;
    let _pause = store.pause_fetching();
    let (mut outcome, mut data) = (RepairOutcome::default(), options.data);
    let (mut round_before, mut trusted_again) = (None, BTreeSet::new());
    let mut may_quarantine = true;
    // Each round verifies the store, collects repairs and adds them. The repair ends when
    // nothing is wrong or when a round makes no progress.
    loop {
        // Create the scratch store first, so that the repair of a read-only store fails at once.
        // The verification may read the whole store.
        let scratch = match options.run {
            RepairRun::Real => ScratchStore::create_in(store)?,
            RepairRun::Dry => ScratchStore::create(options.scratch)?,
        };
        let hold = store.pin_packs()?;
        let checks = verify::VerifyOptions { data };
        let mut found = verify::run_listing(repo, &checks, REPAIRED_PATHS, observer)?;
        if round_before.is_none() {
            outcome.problems = found.problems.len();
        }
        if found.problems.is_empty() {
            outcome.left = found;
            outcome.lost.clear();
            return Ok(outcome);
        }
        let affected = affected_files(repo, files, &found.touched.paths);
        found.touched.shorten();
        let live = LiveFiles { project: repo.project(), affected: &affected };
        let mut repaired = renew_stubs(store, sources(), options.run)?;
        let has_renewed = !repaired.is_empty();
        let collector = Collector {
            target: store,
            tips: &found.roots,
            sources: sources(),
            files: Some(live),
            level,
            scratch: &scratch,
            run: options.run,
            observer,
        };
        let mut collected = collector.run()?;
        repaired.append(&mut collected.repaired);
        let Collected { packs, lost, sound, .. } = collected;
        outcome.lost = lost;
        if options.run == RepairRun::Dry {
            outcome.repaired = repaired;
            outcome.left = found;
            return Ok(outcome);
        }
        observer.check()?;
        for id in &packs {
            if adopt(store, &scratch, id, observer)? {
                outcome.quarantined.push(*id);
            }
        }
        // The same repairs as in the round before are not progress: the damage returns each time.
        let mut has_changed = !packs.is_empty() || has_renewed;
        has_changed &= round_before.as_ref() != Some(&repaired);
        // A pack found sound counts as progress only once, since a failing disk may read it right
        // only now and then.
        let trusted_before = trusted_again.len();
        trusted_again.extend(sound);
        has_changed |= trusted_again.len() > trusted_before;
        outcome.repaired.extend(repaired.iter().cloned());
        round_before = Some(repaired);
        drop(hold);
        let lost = outcome.lost.iter().map(|lost| lost.id).collect();
        let quarantined = if may_quarantine { quarantine(store, &lost, observer)? } else { None };
        // Do not wait again for other processes that hold packs.
        may_quarantine = quarantined.is_some();
        let quarantined = quarantined.unwrap_or_default();
        has_changed |= !quarantined.is_empty();
        outcome.quarantined.extend(quarantined);
        if !has_changed {
            outcome.left = found;
            return Ok(outcome);
        }
        // The first round read the data, and new packs were verified as they were written.
        data = Data::None;
    }
}

/// Replaces stubs whose header or footer is damaged with new ones from the sources.
fn renew_stubs(
    store: &Store,
    sources: &[RepairSource<'_>],
    run: RepairRun,
) -> Result<Vec<Repaired>, VerifyError> {
    let mut renewed = Vec::new();
    for id in damaged_packs(store) {
        if !store.is_partial(&id) || store.outline(&id).is_ok() {
            continue;
        }
        let find_outline =
            |source: &RepairSource<'_>| Some((source.name().to_owned(), source.outline(&id)?));
        let Some((name, outline)) = sources.iter().find_map(find_outline) else { continue };
        if run == RepairRun::Real && !store.renew_stub(&outline)? {
            continue;
        }
        renewed.push(Repaired::Pack { id, from: vec![RepairedFrom::Source(name)] });
    }
    Ok(renewed)
}

/// Groups affected paths by the files on disk from which their commits were made.
fn affected_files(
    repo: &Repo,
    files: &CommittedFiles<'_>,
    paths: &[AffectedPath],
) -> Vec<AffectedFiles> {
    let (mut affected, mut numbers) = (Vec::<AffectedFiles>::new(), BTreeMap::new());
    for AffectedPath { commit, path, object, .. } in paths {
        let number = *numbers.entry(*commit).or_insert_with(|| {
            let recorded = repo.store().commit(commit).ok().and_then(|commit| files(&commit));
            let project = || repo.project().map(|folder| ComparedFiles::Folder(folder.to_owned()));
            let files = recorded.or_else(project)?;
            Some(affected.iter().position(|other| other.files == files).unwrap_or_else(|| {
                affected.push(AffectedFiles { files, paths: Vec::new() });
                affected.len() - 1
            }))
        });
        if let Some(number) = number {
            affected[number].paths.push((path.clone(), *object));
        }
    }
    affected
}

/// Moves a pack from the scratch store into the store. Returns true if it replaced a damaged pack,
/// which was copied to `quarantine/` first.
fn adopt(
    store: &Store,
    scratch: &ScratchStore,
    id: &PackId,
    observer: &dyn Observer,
) -> Result<bool, VerifyError> {
    // Another repair process may have added the pack already.
    store.refresh()?;
    let mut inbox = Inbox::new(store, observer)?;
    inbox.link(&scratch.store().pack_path(id), *id)?;
    let is_replaced = store.is_damaged(id) && store.pack_path(id).exists();
    inbox.adopt(Adoption::Packs)?;
    // The damaged pack made the store rebuild its index. Discard the note about that,
    // since the index itself was not damaged.
    store.report_repairs(&Silent);
    Ok(is_replaced)
}

/// Moves damaged packs that contain no needed object to `quarantine/`. Returns `None` if other
/// processes hold the packs.
fn quarantine(
    store: &Store,
    lost: &BTreeSet<ObjectId>,
    observer: &dyn Observer,
) -> Result<Option<Vec<PackId>>, VerifyError> {
    let damaged: Vec<PackId> = damaged_packs(store);
    let is_spare = |id: &PackId| {
        let objects = store.open_pack(id).and_then(|pack| pack.objects());
        // The pack's contents are unknown, so it may contain a lost object.
        let Ok(objects) = objects else { return Ok(lost.is_empty()) };
        for object in &objects {
            let is_needed = lost.contains(&object.id)
                || !store.is_in_sound_pack(&object.id)?
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

/// Collects lost and damaged objects in the scratch store. The target store is only read.
struct Collector<'a> {
    target: &'a Store,
    tips: &'a [CommitId],
    sources: &'a [RepairSource<'a>],
    /// The files from which the commits of a local store were made. For a remote store, `None`: it gets
    /// only objects that are reachable from its refs.
    files: Option<LiveFiles<'a>>,
    level: i32,
    scratch: &'a ScratchStore,
    run: RepairRun,
    observer: &'a dyn Observer,
}

/// The result of collecting objects in the scratch store.
#[derive(Debug, Default)]
pub struct Collected {
    /// Whole packs in the scratch store that the target store lacks.
    pub packs: Vec<PackId>,
    /// Repairs that these packs make.
    pub repaired: Vec<Repaired>,
    /// Objects that neither the store nor any source has.
    pub lost: Vec<LostObject>,
    /// Packs of the store that were marked as damaged but are sound.
    pub sound: Vec<PackId>,
}

/// The store for which [`collect`] collects objects.
#[derive(Debug)]
pub struct RepairTarget<'a> {
    /// The local mirror of the remote store, made of stubs. The store must have been verified,
    /// so that its damage is shadowed.
    pub stubs: &'a Store,
    /// The commits that the refs of the remote store point at.
    pub tips: &'a [CommitId],
    /// The compression level of new packs.
    pub level: i32,
}

/// Collects in `scratch` the objects that a remote store lacks, for the caller to upload.
///
/// # Errors
/// [`VerifyError`] when the remote store cannot be read.
pub fn collect(
    remote: &RepairTarget<'_>,
    sources: &[RepairSource<'_>],
    scratch: &ScratchStore,
    run: RepairRun,
    observer: &dyn Observer,
) -> Result<Collected, VerifyError> {
    let RepairTarget { stubs: target, tips, level } = *remote;
    Collector { target, tips, sources, files: None, level, scratch, run, observer }.run()
}

impl Collector<'_> {
    fn run(&self) -> Result<Collected, VerifyError> {
        let (run, scratch, observer) = (self.run, self.scratch, self.observer);
        let (mut repaired, mut planned) = (Vec::new(), BTreeSet::new());
        observer.phase(Phase::Receive, None);
        let damaged = damaged_packs(self.target);
        for &id in &damaged {
            repaired.extend(self.recover(id, &mut planned)?);
            observer.check()?;
        }
        let lists = |id: &PackId| self.target.open_pack(id).and_then(|pack| pack.objects()).is_ok();
        let mut unlisted: BTreeSet<PackId> = damaged_packs(self.target).into_iter().collect();
        unlisted.retain(|id| !lists(id));
        let stores = CombinedStores::new(self.target, scratch, self.sources, &unlisted);
        let MissingObjects { mut wanted, mut lost } = stores.search(self.tips, observer)?;
        wanted.retain(|id, _| !planned.contains(id));
        let stores = &CombinedStores::new(self.target, scratch, self.sources, &unlisted);
        let recovery = Recovery { stores, level: self.level, files: self.files, run, observer };
        observer.phase(Phase::Receive, None);
        for id in self.lost_packs(&wanted)? {
            repaired.extend(self.recover(id, &mut planned)?);
            observer.check()?;
        }
        wanted.retain(|id, _| !planned.contains(id));
        if self.files.is_some() {
            let salvaged = recovery.salvage()?.into_iter();
            repaired.extend(salvaged.map(|(pack, objects)| Repaired::Salvaged { pack, objects }));
        }
        // Files of the project may contain objects that no source has.
        wanted.append(&mut lost);
        let gathered = recovery.gather(wanted)?;
        repaired.extend(gathered.repaired);
        observer.check()?;
        let whole = |id: &PackId| !scratch.store().is_partial(id);
        let packs = scratch.store().packs().into_iter().filter(whole).collect();
        let lost = gathered.wanted.into_iter().map(|(id, kind)| LostObject { id, kind }).collect();
        let sound = damaged.into_iter().filter(|id| !self.target.is_damaged(id)).collect();
        Ok(Collected { packs, repaired, lost, sound })
    }

    /// Assembles a pack. A dry run only names the first source that has the pack, and adds the
    /// pack's objects to `planned`.
    fn recover(
        &self,
        id: PackId,
        planned: &mut BTreeSet<ObjectId>,
    ) -> Result<Option<Repaired>, VerifyError> {
        let mut available = self.sources.iter().filter(|_| self.run == RepairRun::Dry);
        let found = available.find_map(|source| {
            let (_, objects) = source.outline(&id)?.tables().ok()?;
            Some((source.name().to_owned(), objects))
        });
        if let Some((name, objects)) = found {
            planned.extend(objects.iter().map(|object| object.id));
            return Ok(Some(Repaired::Pack { id, from: vec![RepairedFrom::Source(name)] }));
        }
        let assembled = self.scratch.assemble(self.target, &id, self.sources, self.observer)?;
        if assembled == Assembled::Sound {
            self.trust_again(&id)?;
        }
        let Assembled::Whole(used) = assembled else { return Ok(None) };
        let name = |number: usize| RepairedFrom::Source(self.sources[number].name().to_owned());
        let from = match used.is_empty() {
            true => vec![RepairedFrom::Here],
            false => used.into_iter().map(name).collect(),
        };
        Ok(Some(Repaired::Pack { id, from }))
    }

    /// Trusts a pack again that was marked as damaged but hashes to its name.
    fn trust_again(&self, id: &PackId) -> Result<(), VerifyError> {
        self.target.mark_sound(id);
        if self.run == RepairRun::Real {
            self.target.clear_healed()?;
        }
        Ok(())
    }

    /// Returns packs of sources that the store lacks and whose objects are all wanted. The store
    /// probably had these packs before.
    fn lost_packs(
        &self,
        wanted: &BTreeMap<ObjectId, ObjectKind>,
    ) -> Result<BTreeSet<PackId>, VerifyError> {
        let mut packs = BTreeSet::new();
        for source in self.sources.iter().filter(|source| source.kind() == SourceKind::Store) {
            let mut looked_at = BTreeSet::new();
            for id in wanted.keys() {
                if self.scratch.store().is_in_whole_pack(id)? {
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
