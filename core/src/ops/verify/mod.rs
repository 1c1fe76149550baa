//! `verify`: is everything there, and is it what it should be?
//!
//! Three parts: the packs themselves (`packs`), that every ref reaches a
//! complete snapshot (`structure`), and, when something is wrong, which
//! commits and paths it touches (`touched`). Damage is no error of the
//! operation: it is what the operation is there to find.
//!
//! What lies elsewhere is neither fetched nor damage: it is counted, and what
//! only it would tell of is not looked at. A store that lies elsewhere as a
//! whole is verified by [`run_elsewhere`], from the stubs of its packs.

mod elsewhere;
mod packs;
mod shadows;
mod structure;
mod touched;

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        observe::Observer,
    },
    local::stat_cache::StatCache,
    repo::{Repo, ref_name::RefName, refs::RefError},
    store::{Store, StoreError},
};

pub use elsewhere::{Elsewhere, run_elsewhere};
pub use shadows::Shadowed;
pub use touched::{Touched, TouchedPath};

/// How much of the data is read and hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Data {
    /// None of it.
    #[default]
    None,
    /// A random part of the frames, from 0 to 1.
    Sample(f64),
    /// All of it, the hash of each pack and of each cut file included.
    All,
}

/// Choices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// How much of the data is read and hashed.
    pub data: Data,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A ref cannot be read.
    #[error("ref {name} cannot be read")]
    Ref {
        /// Which.
        name: String,
        /// Why.
        source: RefError,
    },
    /// A branch or tag is missing, and its log records no removal.
    #[error("{name} is missing; by its log it was at {id}")]
    RefLost {
        /// The branch or tag.
        name: RefName,
        /// Where it was.
        id: CommitId,
    },
    /// A pack cannot be opened, or its footer is damaged.
    #[error("pack {pack} is damaged")]
    Pack {
        /// Which.
        pack: PackId,
        /// Why.
        source: StoreError,
    },
    /// A pack is not the bytes that its name says.
    #[error("pack {pack} is damaged: its bytes hash to {actual:.12}")]
    PackHash {
        /// Which.
        pack: PackId,
        /// What it hashes to.
        actual: PackId,
    },
    /// The index of a store elsewhere names a pack that is not there.
    #[error("pack {pack} is lost: the index names it, and it is not there")]
    PackLost {
        /// The pack.
        pack: PackId,
    },
    /// A pack elsewhere does not have the length that the index says.
    #[error("pack {pack} is damaged: it has {found} bytes instead of {expected}")]
    PackLength {
        /// The pack.
        pack: PackId,
        /// Its length by the index.
        expected: u64,
        /// Its length in the listing.
        found: u64,
    },
    /// Objects of a frame cannot be read.
    #[error("cannot read a frame of pack {pack} (objects in it: {objects})")]
    Frame {
        /// Which pack.
        pack: PackId,
        /// How many objects the frame has.
        objects: usize,
        /// Why.
        source: StoreError,
    },
    /// An object is missing or damaged.
    #[error("{id} is damaged or missing")]
    Object {
        /// Which.
        id: ObjectId,
        /// Why.
        source: StoreError,
    },
    /// A file's entry and its content do not agree on its size.
    #[error("{id} has {found} bytes instead of {expected}")]
    Size {
        /// The content.
        id: ObjectId,
        /// What the entry says.
        expected: u64,
        /// What it has.
        found: u64,
    },
    /// The chunks of a file do not amount to it.
    #[error("the chunks of {id} amount to {actual:.12}")]
    Chunks {
        /// The content.
        id: ObjectId,
        /// What they hash to.
        actual: ObjectId,
    },
    /// Folders are nested deeper than any file system allows.
    #[error("tree {id} is nested too deep")]
    Depth {
        /// The folder.
        id: ObjectId,
    },
}

/// What was found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Packs looked at.
    pub packs: u64,
    /// Objects in them.
    pub objects: u64,
    /// Commits reached from refs.
    pub commits: u64,
    /// Tree nodes reached.
    pub trees: u64,
    /// Contents reached.
    pub contents: u64,
    /// Packs among them of which a part may lie elsewhere.
    pub partial_packs: u64,
    /// Objects that are only elsewhere, as far as their packs can tell.
    pub absent_objects: u64,
    /// Bytes of packs read and hashed.
    pub bytes_read: u64,
    /// Packs that are not relied on any more, or again.
    pub shadowed: Shadowed,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Commits and paths that lack something, newest first.
    pub touched: Touched,
}

/// Why verifying itself did not come to an end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// Refs cannot be listed.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// The index or the packs' folder cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl VerifyError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Ref(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Gathers problems from several threads.
#[derive(Debug, Default)]
struct Findings<'s> {
    /// The stubs of a store elsewhere. An object of it that is shadowed in every
    /// place counts as bad.
    stubs: Option<&'s Store>,
    /// Why the store elsewhere cannot be asked any more.
    failed: Mutex<Option<StoreError>>,
    problems: Mutex<Vec<Problem>>,
    /// Objects that are missing or damaged.
    bad: Mutex<BTreeSet<ObjectId>>,
    /// Changes to the shadow table.
    shadows: Mutex<shadows::Found>,
}

impl<'s> Findings<'s> {
    /// For a store elsewhere, of which the stubs are here.
    fn elsewhere(stubs: &'s Store) -> Self {
        Self { stubs: Some(stubs), ..Self::default() }
    }

    /// Whether the store lies elsewhere.
    fn is_elsewhere(&self) -> bool {
        self.stubs.is_some()
    }

    /// Whether the store lies elsewhere, and an object of it is bad, by what was
    /// found out of its pack.
    fn is_lost(&self, id: &ObjectId) -> bool {
        self.is_elsewhere() && self.is_bad(id)
    }

    /// Ends the verification: an error says nothing about the store.
    fn fail(&self, error: StoreError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`VerifyError::Interrupted`], or the error that [`Findings::fail`] was given.
    fn go_on(&self, observer: &dyn Observer) -> Result<(), VerifyError> {
        if observer.cancelled() {
            return Err(VerifyError::Interrupted);
        }
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn add(&self, problem: Problem, bad: impl IntoIterator<Item = ObjectId>) {
        bad.into_iter().for_each(|id| self.add_bad(id));
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
    }

    fn add_bad(&self, id: ObjectId) {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Drops objects that another pack has, where they are not shadowed.
    fn drop_found_elsewhere(&self, store: &Store) -> Result<(), StoreError> {
        let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost = BTreeSet::new();
        for id in &*bad {
            if store.locate_unshadowed(id)?.is_none() {
                lost.insert(*id);
            }
        }
        *bad = lost;
        Ok(())
    }

    fn is_bad(&self, id: &ObjectId) -> bool {
        let is_known = self.bad.lock().unwrap_or_else(PoisonError::into_inner).contains(id);
        is_known || self.stubs.is_some_and(|store| is_unreliable(store, id))
    }

    fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// Whether an object is shadowed in every place.
fn is_unreliable(store: &Store, id: &ObjectId) -> bool {
    store.has_shadows()
        && matches!(store.locate(id), Ok(Some(_)))
        && matches!(store.locate_unshadowed(id), Ok(None))
}

/// Checks the whole store.
///
/// # Errors
/// [`VerifyError`] when refs or index cannot be listed; damage is in the
/// outcome.
pub fn run(
    repo: &Repo,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome, VerifyError> {
    // What lies elsewhere is then said to be `Absent`.
    let _pause = repo.store().pause_fetching();
    let findings = Findings::default();
    let mut outcome = Outcome::default();
    packs::check(repo.store(), options.data, &findings, observer, &mut outcome)?;
    // From here on objects are looked up where they are not shadowed.
    shadows::apply(repo.store(), &findings, &mut outcome.shadowed)?;
    findings.drop_found_elsewhere(repo.store())?;
    let tips = structure::tips(repo, &findings)?;
    let commits = structure::check(repo.store(), &tips, &findings, observer, &mut outcome)?;
    if options.data == Data::All {
        structure::check_lists(repo.store(), &findings, observer, &mut outcome)?;
    }
    shadows::apply(repo.store(), &findings, &mut outcome.shadowed)?;
    if !findings.is_empty() {
        // What it takes for stored may be what is missing: the next commit
        // reads everything, and stores what it can again.
        repo.store().distrust_stat_cache();
        StatCache::clear(&repo.dir().join("cache"), repo.disk());
        outcome.touched = touched::find(repo.store(), &commits, &findings, observer)?;
    }
    repo.store().tell_repairs(observer);
    outcome.problems = findings.into_problems();
    Ok(outcome)
}

/// The commits that a verification begins with: those of all branches and tags, of
/// `HEAD`, and of refs that are missing by their logs. Refs that cannot be read are
/// left out.
///
/// # Errors
/// [`VerifyError`] when refs cannot be listed.
pub fn tips(repo: &Repo) -> Result<Vec<CommitId>, VerifyError> {
    structure::tips(repo, &Findings::default())
}

/// A commit's id and its time, for newest first.
type Dated = (crate::base::time::Time, CommitId);
