//! `verify`: checks that a store is complete and undamaged.
//!
//! A verification has three parts. It checks the packs themselves (`packs`) and that
//! every ref leads to a complete snapshot (`structure`). If there are problems, it lists
//! the commits and paths that they [affect](crate::ops::affected). Damage is not an error of the
//! operation; it is its result.
//!
//! A verification does not fetch objects of partial packs that are stored elsewhere. It counts them
//! as absent, not as damaged, and omits the checks that need them. [`run_elsewhere`] verifies a
//! remote store from the stubs of its packs.

mod packs;
mod remote;
mod rolling;
mod shadows;
mod structure;

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::{
    base::{
        blocked::Blocked,
        id::{CommitId, ContentId, ObjectId, PackId},
        io::PathError,
        kind::Kind,
        observe::Observer,
        time::Time,
    },
    local::stat_cache::StatCache,
    ops::{
        affected::{self, Affected, Sought},
        reach::ReachError,
    },
    repo::{Repo, ref_name::RefName, refs::RefError, roots::Root},
    store::{
        BundleError, ChunkVisit, Descend, EnteredParts, Epoch, Store, StoreError, walk_chunks,
    },
};

use structure::StartCommits;

pub use remote::{RemoteInventory, run_elsewhere};
pub use rolling::{DataChecks, Rolling};
pub use shadows::Shadowed;

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
    /// The file `gc`, which records the collections of garbage, is missing or damaged.
    #[error("the file `gc`, which records garbage collections, is missing or damaged")]
    Epoch,
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
    /// Folders are nested deeper than `limits::DEPTH`.
    #[error("tree {id:.12} is nested too deep")]
    Depth { id: ObjectId },
}

/// The result of a verification.
#[derive(Debug, Default)]
pub struct VerifyOutcome {
    /// Packs that were checked.
    pub packs: u64,
    /// Objects in the checked packs.
    pub objects: u64,
    /// The commits at which the walk began: those of branches, tags, `HEAD` and missing refs, and
    /// those that the project's files come from. If a commit is lost, they also include the commits
    /// that refs pointed at before.
    pub roots: Vec<CommitId>,
    /// Commits that are reachable from the roots, without forgotten ones.
    pub commits: u64,
    /// Refs and the base of the project whose commits a collection at a remote has deleted. They are not
    /// among the roots, and not damaged.
    pub collected: Vec<Root>,
    /// Forgotten commits that are reachable from the roots. Their trees are not checked.
    pub forgotten_commits: u64,
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
    /// Bytes of packs that were read and hashed, as they are stored.
    pub bytes_read: u64,
    /// Packs that were due for a rolling check.
    pub due_packs: u64,
    /// Due packs that were left for the next run because the time budget was spent.
    pub left_packs: u64,
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

/// The reason why a verification or a repair ended early. Repairs made before the error remain.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum VerifyError {
    /// The refs cannot be listed.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The walk over the structure failed.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// A repaired pack cannot be added to the store.
    #[error("cannot add a repaired pack to the store")]
    Adopt(#[from] BundleError),
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

/// The state of one verification. Several threads add to it.
struct Verification<'a> {
    /// The verified store, or the stubs of a remote one.
    store: &'a Store,
    /// The facts about a remote store; `None` for a local one.
    remote: Option<&'a RemoteInventory<'a>>,
    observer: &'a dyn Observer,
    outcome: Mutex<VerifyOutcome>,
    /// The first transport error. It ends the verification.
    failed: Mutex<Option<StoreError>>,
    /// Objects that are missing or damaged.
    bad: Mutex<BTreeSet<ObjectId>>,
    /// Changes that the shadow table needs.
    shadows: Mutex<shadows::ShadowChanges>,
    /// Parts of chunk lists whose chunks were checked.
    parts: Mutex<EnteredParts>,
    /// Whole packs of which every object was hashed and is sound.
    hashed: Mutex<Vec<PackId>>,
}

impl<'a> Verification<'a> {
    fn new(
        store: &'a Store,
        remote: Option<&'a RemoteInventory<'a>>,
        observer: &'a dyn Observer,
    ) -> Self {
        Self {
            store,
            remote,
            observer,
            outcome: Mutex::default(),
            failed: Mutex::default(),
            bad: Mutex::default(),
            shadows: Mutex::default(),
            parts: Mutex::default(),
            hashed: Mutex::default(),
        }
    }

    /// Counts something in the outcome. `change` must not call back into the verification,
    /// because the outcome is locked.
    fn count(&self, change: impl FnOnce(&mut VerifyOutcome)) {
        change(&mut self.outcome.lock());
    }

    /// Returns true if the store may lack an object: it is a remote partial clone, and its origin
    /// has the object.
    fn lies_at_origin(&self, source: &StoreError) -> bool {
        let StoreError::Missing { id, .. } = source else { return false };
        self.remote.is_some_and(|remote| remote.at_origin.contains(id))
    }

    /// Returns true for a bad object of a remote store. Its pack is reported already.
    fn is_lost(&self, id: &ObjectId) -> bool {
        self.remote.is_some() && self.is_bad(id)
    }

    /// Ends the verification with a transport error, which says nothing about the store's data.
    fn fail(&self, error: StoreError) {
        self.failed.lock().get_or_insert(error);
    }

    /// Returns an error if the verification must stop.
    ///
    /// # Errors
    /// [`VerifyError::Blocked`], or the error that was passed to [`Verification::fail`].
    fn check_stopped(&self) -> Result<(), VerifyError> {
        self.observer.check()?;
        let failed = self.failed.lock().take();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn add(&self, problem: VerifyProblem, bad: impl IntoIterator<Item = ObjectId>) {
        bad.into_iter().for_each(|id| self.add_bad(id));
        self.count(|outcome| outcome.problems.push(problem));
    }

    fn add_bad(&self, id: ObjectId) {
        self.bad.lock().insert(id);
    }

    /// Removes bad objects that have an unshadowed copy in another pack.
    fn drop_found_elsewhere(&self) -> Result<(), StoreError> {
        let mut bad = self.bad.lock();
        let mut lost = BTreeSet::new();
        for id in &*bad {
            if self.store.locate_unshadowed(id)?.is_none() {
                lost.insert(*id);
            }
        }
        *bad = lost;
        Ok(())
    }

    /// Returns true if an object is missing or damaged. In a remote store, an object is also bad if
    /// every copy is shadowed.
    fn is_bad(&self, id: &ObjectId) -> bool {
        let is_known = self.bad.lock().contains(id);
        is_known || self.remote.is_some() && is_unreliable(self.store, id)
    }

    fn has_problems(&self) -> bool {
        !self.outcome.lock().problems.is_empty()
    }
}

impl Verification<'_> {
    /// Walks all commits again, and lists the affected commits and paths in the outcome.
    fn find_affected(&self, commits: &[Dated], most_paths: usize) -> Result<(), VerifyError> {
        let commits = commits.iter().map(|(_, id)| *id);
        let touched = affected::find::<_, VerifyError>(self, commits, most_paths, self.observer)?;
        self.count(|outcome| outcome.touched = touched);
        Ok(())
    }
}

/// Looks for missing and damaged objects.
impl Sought for Verification<'_> {
    const COUNTS_UNREADABLE: bool = true;

    fn store(&self) -> &Store {
        self.store
    }

    fn has(&self, id: &ObjectId) -> bool {
        self.is_bad(id)
    }

    fn in_content(&self, id: ContentId) -> Option<ObjectId> {
        if self.is_lost(&id.object()) {
            return Some(id.object());
        }
        // Name the missing object, not a list that can be read: a repair looks for it in the file.
        let mut bad = None;
        let found = self.store.locate_content(&id).and_then(|_| match id {
            ContentId::Blob(_) => Ok(()),
            ContentId::Chunked(list) => {
                let read = |id: &ObjectId, kind| self.store.object(id, kind);
                let (mut entered, mut last) = (EnteredParts::default(), id.object());
                let walked = walk_chunks(&list, &read, &mut |visit| {
                    match visit {
                        ChunkVisit::Part(part, end) => {
                            last = part.id.object();
                            return Ok(entered.enter(part, end));
                        }
                        ChunkVisit::Chunks(Ok(chunks)) => {
                            let mut ids = chunks.iter().map(|chunk| chunk.id.object());
                            bad = bad.or_else(|| ids.find(|id| self.is_bad(id)));
                        }
                        ChunkVisit::Chunks(Err(StoreError::Absent { .. })) => {}
                        ChunkVisit::Chunks(Err(_)) => bad = bad.or(Some(last)),
                    }
                    Ok(Descend::Enter)
                });
                walked.map(drop)
            }
        });
        match found {
            Ok(_) | Err(StoreError::Absent { .. }) => {
                bad.or_else(|| self.is_bad(&id.object()).then_some(id.object()))
            }
            Err(_) => Some(id.object()),
        }
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
    run_listing(repo, options, affected::LISTED_PATHS, observer)
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
    let run = Verification::new(repo.store(), None, observer);
    if Epoch::is_lost(repo.dir()).map_err(StoreError::from)? {
        run.add(VerifyProblem::Epoch, []);
    }
    run.check_packs(options.data)?;
    // The walk below looks objects up in copies that are not shadowed, so apply the
    // shadows first.
    run.apply_shadows()?;
    run.drop_found_elsewhere()?;
    let roots = StartCommits { tips: run.tips(repo)?, earlier: &|| structure::earlier_tips(repo) };
    let commits = run.check_structure(&roots)?;
    if options.data == Data::All {
        repo.store().record_proven(&run.hashed.lock());
    }
    run.apply_shadows()?;
    if run.has_problems() {
        // The stat cache may vouch for files whose objects are missing. After it is
        // cleared, the next commit reads all files and stores missing objects again.
        repo.store().invalidate_stat_cache();
        StatCache::clear(&repo.dir().join("cache"), repo.disk());
        run.find_affected(&commits, most_paths)?;
    }
    repo.store().report_repairs(observer);
    Ok(run.outcome.into_inner())
}

/// The time and the id of a commit, for sorting from newest to oldest.
type Dated = (Time, CommitId);
