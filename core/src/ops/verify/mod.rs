//! `verify`: checks that a store is complete and undamaged.
//!
//! A verification has three parts. It checks the packs themselves (`packs`) and that
//! every ref leads to a complete snapshot (`structure`). If there are problems, it lists
//! the commits and paths that they affect (`touched`). Damage is not an error of the
//! operation; it is its result.
//!
//! Objects of partial packs that are stored elsewhere are not fetched and do not count as damage.
//! They are counted as absent, and what only they could prove is not checked. A remote store is
//! verified by [`run_elsewhere`], from the stubs of its packs.

mod elsewhere;
mod packs;
mod rolling;
mod shadows;
mod structure;
mod touched;

use std::collections::{BTreeSet, HashSet};

use parking_lot::Mutex;

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        observe::Observer,
    },
    local::stat_cache::StatCache,
    repo::{Repo, ref_name::RefName, refs::RefError},
    store::{ListProofs, Store, StoreError},
};

use structure::Roots;

pub use elsewhere::{RemoteInventory, run_elsewhere};
pub use rolling::{DataChecks, Rolling};
pub use shadows::Shadowed;
pub(crate) use touched::REPAIRED_PATHS;
pub use touched::{Affected, AffectedPath};

/// Selects how much of the data is read and hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Data {
    /// No data.
    #[default]
    None,
    /// A random sample of the frames: a fraction from 0 to 1.
    Sample(f64),
    /// All data of packs whose last check is too old.
    Due(Rolling),
    /// All data. This includes the hash of each pack and of each file that was cut into
    /// chunks.
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VerifyOptions {
    /// How much of the data is read and hashed.
    pub data: Data,
}

/// A problem that the verification found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyProblem {
    /// A ref cannot be read.
    #[error("ref {name} cannot be read")]
    Ref { name: String, source: RefError },
    /// A branch or tag is missing, and nothing records that it was removed.
    #[error("{name} is missing; it last pointed at commit {id:.12}")]
    RefLost { name: RefName, id: CommitId },
    /// The list of paths of a partial clone cannot be read.
    #[error("the list of paths of the partial clone cannot be read")]
    Scope { source: RefError },
    /// A pack cannot be opened, or its footer is damaged.
    #[error("pack {pack:.12} is damaged")]
    Pack { pack: PackId, source: StoreError },
    /// The bytes of a pack do not hash to its name.
    #[error("pack {pack:.12} is damaged: its bytes hash to {actual:.12}")]
    PackHash { pack: PackId, actual: PackId },
    /// The index of a remote store lists a pack that does not exist.
    #[error("pack {pack:.12} is missing: the index lists it")]
    PackLost { pack: PackId },
    /// The length of a pack in a remote store differs from the length in the index.
    #[error("pack {pack:.12} is damaged: it has {found} bytes instead of {expected}")]
    PackLength { pack: PackId, expected: u64, found: u64 },
    /// A frame cannot be read, so none of its objects can.
    #[error("cannot read a frame of pack {pack:.12} (objects in it: {objects})")]
    Frame { pack: PackId, objects: usize, source: StoreError },
    /// An object is missing or damaged.
    #[error("object {id:.12} is damaged or missing")]
    Object { id: ObjectId, source: StoreError },
    /// The size in a file's entry differs from the size of its content.
    #[error("content {id:.12} has {found} bytes instead of {expected}")]
    Size { id: ObjectId, expected: u64, found: u64 },
    /// The chunks of a content do not hash to its id.
    #[error("the chunks of {id:.12} hash to {actual:.12}")]
    Chunks { id: ObjectId, actual: ObjectId },
    /// Folders are nested deeper than `limits::DEPTH`.
    #[error("tree {id:.12} is nested too deep")]
    Depth { id: ObjectId },
}

/// The result of a verification.
#[derive(Debug, Default)]
pub struct VerifyOutcome {
    /// Packs that were checked.
    pub packs: u64,
    /// Objects in these packs.
    pub objects: u64,
    /// The commits at which the walk began. These are the commits of branches, tags and
    /// `HEAD`, and those of missing refs. If a commit is lost, they also include the
    /// commits that refs pointed at before.
    pub roots: Vec<CommitId>,
    /// Commits that are reachable from the roots.
    pub commits: u64,
    /// Reachable tree nodes.
    pub trees: u64,
    /// Reachable contents.
    pub contents: u64,
    /// Partial packs: some of their frames may be stored elsewhere only.
    pub partial_packs: u64,
    /// Packs that the index of a remote store lists and that are lost, if no commit needs them.
    pub unneeded_packs: Vec<PackId>,
    /// Objects of partial packs that no pack here has.
    pub absent_objects: u64,
    /// Bytes of packs that were read and hashed.
    pub bytes_read: u64,
    /// Packs that were due for a rolling check.
    pub due_packs: u64,
    /// Due packs that were left for the next run because the time budget was spent.
    pub left_packs: u64,
    /// When the contents behind the chunk lists were hashed.
    pub list_proofs: ListProofs,
    /// The error of saving the times of checks. After such an error, the next rolling
    /// check reads the same packs again.
    pub unsaved_times: Option<StoreError>,
    /// Changes to the set of shadowed packs.
    pub shadowed: Shadowed,
    /// The problems that were found.
    pub problems: Vec<VerifyProblem>,
    /// Commits and paths that the problems affect, newest first.
    pub touched: Affected,
}

/// The reason why a verification ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The refs cannot be listed.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// The index or the folder of the packs cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl VerifyError {
    /// Classifies the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Ref(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Collects problems from several threads.
#[derive(Debug, Default)]
struct Findings<'s> {
    /// The stubs of a remote store; `None` for a local store. An object of such a
    /// store is bad if every copy of it is shadowed.
    stubs: Option<&'s Store>,
    /// Objects that a partial clone elsewhere may lack.
    at_origin: Option<&'s HashSet<ObjectId>>,
    /// The first transport error. It ends the verification.
    failed: Mutex<Option<StoreError>>,
    problems: Mutex<Vec<VerifyProblem>>,
    /// Objects that are missing or damaged.
    bad: Mutex<BTreeSet<ObjectId>>,
    /// Changes that the shadow table needs.
    shadows: Mutex<shadows::ShadowChanges>,
}

impl<'s> Findings<'s> {
    /// Creates findings for a remote store, of which `stubs` has the stubs.
    fn elsewhere(stubs: &'s Store, at_origin: &'s HashSet<ObjectId>) -> Self {
        Self { stubs: Some(stubs), at_origin: Some(at_origin), ..Self::default() }
    }

    /// Returns true if an object may be absent: the remote is a partial clone, and its origin has it.
    fn lies_at_origin(&self, source: &StoreError) -> bool {
        let StoreError::Missing { id, .. } = source else { return false };
        self.at_origin.is_some_and(|at_origin| at_origin.contains(id))
    }

    /// Returns true if the verified store is a remote one.
    fn is_elsewhere(&self) -> bool {
        self.stubs.is_some()
    }

    /// Returns true for a bad object of a remote store. Its pack is reported already.
    fn is_lost(&self, id: &ObjectId) -> bool {
        self.is_elsewhere() && self.is_bad(id)
    }

    /// Ends the verification with a transport error, which says nothing about the store's
    /// data.
    fn fail(&self, error: StoreError) {
        self.failed.lock().get_or_insert(error);
    }

    /// Returns an error if the verification must stop.
    ///
    /// # Errors
    /// [`VerifyError::Interrupted`], or the error that was passed to [`Findings::fail`].
    fn go_on(&self, observer: &dyn Observer) -> Result<(), VerifyError> {
        if observer.cancelled() {
            return Err(VerifyError::Interrupted);
        }
        let failed = self.failed.lock().take();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn add(&self, problem: VerifyProblem, bad: impl IntoIterator<Item = ObjectId>) {
        bad.into_iter().for_each(|id| self.add_bad(id));
        self.problems.lock().push(problem);
    }

    fn add_bad(&self, id: ObjectId) {
        self.bad.lock().insert(id);
    }

    /// Removes bad objects that have an unshadowed copy in another pack.
    fn drop_found_elsewhere(&self, store: &Store) -> Result<(), StoreError> {
        let mut bad = self.bad.lock();
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
        let is_known = self.bad.lock().contains(id);
        is_known || self.stubs.is_some_and(|store| is_unreliable(store, id))
    }

    fn into_problems(self) -> Vec<VerifyProblem> {
        self.problems.into_inner()
    }

    fn is_empty(&self) -> bool {
        self.problems.lock().is_empty()
    }
}

/// Returns true if every copy of an object is shadowed.
fn is_unreliable(store: &Store, id: &ObjectId) -> bool {
    store.has_shadows()
        && matches!(store.locate(id), Ok(Some(_)))
        && matches!(store.locate_unshadowed(id), Ok(None))
}

/// Verifies a whole store.
///
/// # Errors
/// [`VerifyError`] when the refs or the index cannot be read. Damage is not an error;
/// [`VerifyOutcome::problems`] lists it.
pub fn run(
    repo: &Repo,
    options: &VerifyOptions,
    observer: &dyn Observer,
) -> Result<VerifyOutcome, VerifyError> {
    run_listing(repo, options, touched::LISTED_PATHS, observer)
}

/// Verifies as [`run`] does, but lists at most `most_paths` affected paths.
pub(crate) fn run_listing(
    repo: &Repo,
    options: &VerifyOptions,
    most_paths: usize,
    observer: &dyn Observer,
) -> Result<VerifyOutcome, VerifyError> {
    // While fetching is paused, an object stored elsewhere gives `StoreError::Absent`.
    let _pause = repo.store().pause_fetching();
    let findings = Findings::default();
    let mut outcome = VerifyOutcome::default();
    packs::check(repo.store(), options.data, &findings, observer, &mut outcome)?;
    // The walk below looks objects up in copies that are not shadowed, so apply the
    // shadows first.
    shadows::apply(repo.store(), &findings, &mut outcome.shadowed)?;
    findings.drop_found_elsewhere(repo.store())?;
    let tips = structure::tips(repo, &findings)?;
    let roots = Roots { tips, earlier: &|| structure::earlier_tips(repo) };
    let commits = structure::check(repo.store(), &roots, &findings, observer, &mut outcome)?;
    if options.data == Data::All {
        structure::check_lists(repo.store(), &findings, observer, &mut outcome)?;
        structure::prove_packs(repo.store(), &findings, observer)?;
    }
    outcome.list_proofs = repo.store().list_proofs();
    shadows::apply(repo.store(), &findings, &mut outcome.shadowed)?;
    if !findings.is_empty() {
        // The stat cache may vouch for files whose objects are missing. After it is
        // cleared, the next commit reads all files and stores missing objects again.
        repo.store().invalidate_stat_cache();
        StatCache::clear(&repo.dir().join("cache"), repo.disk());
        outcome.touched = touched::find(repo.store(), &commits, &findings, most_paths, observer)?;
    }
    repo.store().report_repairs(observer);
    outcome.problems = findings.into_problems();
    Ok(outcome)
}

/// The time and the id of a commit, for sorting from newest to oldest.
type Dated = (crate::base::time::Time, CommitId);
