//! A local store as a peer: the `.snap` of a project, or a bare store. Locations are
//! `file://PROJECT` and `file://PROJECT/.snap`.
//!
//! A local store has no index files, because each pack in its `objects/` is part of it: a pack gets
//! its name there after everything that it refers to. The peer lists each pack as an index file of its
//! own, built from its footer. It does not list damaged, unreadable or partial packs. Objects in no
//! other pack appear missing, not wrong. The peer keeps packs from being merged away while it exists,
//! if this user may lock the store.
//!
//! The peer checks what it receives like a server, since later commits rely on each object in
//! `objects/`. It checks and [stages][staged] a pack. Publishing makes the pack part of the store, if
//! the store has everything that the pack refers to. A ref moves under the store's own lock, with a
//! line in its log, to a complete commit. Files of the project and its base stay as they are: the next
//! commit there reports that the branch has moved.
//!
//! [staged]: snap_core::ops::inbox

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    error::Error,
    io::{self, Read},
    iter,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use snap_core::{
    base::{
        id::{CommitId, PackId},
        io::{PathError, if_exists},
        kind::ErrorKind,
        limits,
        observe::{Observer, Silent},
        time::Time,
    },
    disk::{
        Disk,
        regular::{open_regular, read_at_most},
        symlink_guard::folder_identity,
    },
    format::{
        outline::{self, PackOutline},
        ref_text::FIRST_EPOCH,
    },
    ops::inbox::{self, SharedInbox, StagedError, accept::AcceptError},
    repo::{
        Repo, RepoError,
        config::SettingLayers,
        open::{STORE_FOLDER, read_config, read_config_file, refuse_found_link},
        ref_name::{RefKind, RefName},
        refs::{ExpectedRef, Head, RefError, RefLogMessage, Refs},
    },
    store::{Epoch, PackFile, Store, StoreError, compact::PackPin},
};

use super::{
    CONFIG, HEAD, INDEX, IndexContent, IndexListing, ListedPack, ListedPacks, Mend, NewStore,
    OBJECTS, PackIn, PackToSend, Peer, REFS, RefMove, RemoteError, Reply, SentPack,
    all_refs::{damaged_head, first_branch},
    bucket::BucketStore,
    known::Known,
    slot::{RefSlot, key},
};
use crate::bucket::{
    FailureDetail, FailureReason, ListedObject, PartialClone, Requests, ServiceError,
    UploadProgress, ref_name_conflict,
    traffic::{RequestKind, Traffic},
};

/// A local store that commits go to.
#[derive(Clone, Debug)]
pub struct LocalStore {
    requests: Requests,
    inner: Arc<LocalStoreInner>,
}

#[derive(Debug)]
struct LocalStoreInner {
    dir: PathBuf,
    /// For error messages.
    location: String,
    /// False if the peer must not even create an empty lock file.
    may_create_lock: bool,
    /// Packs whose footers cannot be read, which the peer does not list.
    unreadable: Mutex<HashSet<PackId>>,
    /// Packs that the last listing of the index left out.
    unlisted: Mutex<HashSet<PackId>>,
    /// Pin that keeps packs from being merged away. The first listing of the index takes it.
    hold: OnceLock<Option<PackPin>>,
    /// Name of the user in the logs of moved refs.
    who: String,
    /// The open store, set by the first push.
    target: Mutex<Option<Arc<OpenStore>>>,
}

/// The store, open for writing, and its staging area.
#[derive(Debug)]
struct OpenStore {
    repo: Repo,
    /// URL of the default remote of the store.
    origin: Option<String>,
    staged: SharedInbox,
}

/// Number of bytes of a pack that the peer reads at a time.
const PIECE_BYTES: usize = 1 << 20;

impl LocalStore {
    /// Creates a peer for the store in `dir`. The logs of moved refs name `who`; with `None`, the peer
    /// only reads the store, and creates no lock file there. Without a lock file, another process may
    /// merge packs away during a read.
    pub(crate) fn new(
        dir: PathBuf,
        location: String,
        who: Option<&str>,
        requests: Requests,
    ) -> Self {
        let inner = LocalStoreInner {
            dir,
            location,
            may_create_lock: who.is_some(),
            unreadable: Mutex::default(),
            unlisted: Mutex::default(),
            hold: OnceLock::new(),
            who: who.unwrap_or("unknown").to_owned(),
            target: Mutex::default(),
        };
        Self { requests: requests.of_this_machine(), inner: Arc::new(inner) }
    }

    /// Returns the store that `folder` is or contains. Returns `None` for any other folder, such
    /// as one that `push` created.
    ///
    /// # Errors
    /// [`RepoError::FoundLink`] if the store in `folder` is a symbolic link.
    pub fn find(folder: &Path) -> Result<Option<PathBuf>, RepoError> {
        if is_local_store(folder) {
            return Ok(Some(folder.to_owned()));
        }
        let inside = folder.join(STORE_FOLDER);
        if !is_local_store(&inside) {
            return Ok(None);
        }
        refuse_found_link(&inside)?;
        Ok(Some(inside))
    }

    /// Runs `work` on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        kind: RequestKind,
        key: &str,
        work: impl Fn(&LocalStoreInner) -> Result<T, ServiceError> + Send + Sync + 'static,
    ) -> Result<T, ServiceError> {
        self.run_sending(kind, key, 0, work).await
    }

    /// Runs `work`, which sends `bytes`, on a thread that may block.
    async fn run_sending<T: Send + 'static>(
        &self,
        kind: RequestKind,
        key: &str,
        bytes: u64,
        work: impl Fn(&LocalStoreInner) -> Result<T, ServiceError> + Send + Sync + 'static,
    ) -> Result<T, ServiceError> {
        let work = Arc::new(work);
        let attempt = || async {
            let (inner, work) = (Arc::clone(&self.inner), Arc::clone(&work));
            let done = tokio::task::spawn_blocking(move || work(&inner)).await;
            done.unwrap_or_else(|_| {
                let why = "the task failed".to_owned();
                Err(ServiceError::new(kind.operation(), key, FailureReason::Other, why))
            })
        };
        self.requests.retry(kind, key, bytes, attempt).await
    }

    async fn read_slots(&self, names: &[&RefName]) -> Result<Vec<RefSlot>, RemoteError> {
        let names: Vec<RefName> = names.iter().map(|name| (*name).clone()).collect();
        let first = names.first().map(key).unwrap_or_default();
        let read = move |inner: &LocalStoreInner| {
            names.iter().map(|name| inner.slot(name)).collect::<Result<Vec<_>, _>>()
        };
        Ok(self.run(RequestKind::Get, &first, read).await?)
    }
}

/// Returns true if a folder is a store that commits go to. A folder that `push` created has
/// neither a lock, a cache nor logs. A copied store may lack some of the three.
fn is_local_store(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).exists();
    folder.join("config.toml").is_file() && (has("lock") || has("cache") || has("logs"))
}

impl OpenStore {
    /// Checks and stages a pack, unless the store already has it undamaged.
    fn receive<B: AsRef<[u8]>>(
        &self,
        id: PackId,
        pieces: impl Iterator<Item = Result<B, StagedError>>,
    ) -> Result<(), StagedError> {
        let store = self.repo.store();
        store.refresh()?;
        let is_there = store.packs().contains(&id) && !store.is_partial(&id);
        if !(is_there && !store.is_damaged(&id) && inbox::is_sound(store, &id)?) {
            self.staged.receive(id, pieces, &Silent)?;
        }
        Ok(())
    }
}

impl LocalStoreInner {
    /// Returns the store, open for writing. The first call finishes the publication of a killed
    /// push.
    fn target(&self) -> Result<Arc<OpenStore>, ServiceError> {
        let mut opened = self.target.lock();
        if let Some(target) = &*opened {
            return Ok(Arc::clone(target));
        }
        let (operation, key) = ("write to the store", "");
        let repo = Repo::open_without_head(&self.dir, Disk::default(), &Silent);
        let repo = repo.map_err(|error| of_error(operation, key, error.kind(), &error))?;
        repo.store().sweep();
        let staged = SharedInbox::new(repo.store());
        let target = Arc::new(OpenStore { staged, repo, origin: self.origin() });
        target.staged.sweep();
        match target.staged.resume_publication(&target.repo) {
            // Staged packs with errors were never visible to clients, so drop them.
            Err(error) if !error.is_client_error() => {
                return Err(of_staged(operation, key, &target, &error));
            }
            _ => {}
        }
        *opened = Some(Arc::clone(&target));
        Ok(target)
    }

    /// Moves a ref by compare-and-swap, after checking the commit.
    fn swap(
        &self,
        name: &RefName,
        expected: &RefSlot,
        new: Option<CommitId>,
    ) -> Result<(), RemoteError> {
        let target = self.target()?;
        let key = &key(name);
        let refused = |why: String| ServiceError::new("write", key, FailureReason::Refused, why);
        let refs = target.repo.refs();
        match new {
            Some(id) => {
                let whole = target.staged.check_commit_complete(&target.repo, &id);
                whole
                    .map_err(|error| self.at_location(of_staged("write", key, &target, &error)))?;
            }
            // The same check as for `snap branch --delete`.
            None if target.repo.project().is_some() => match refs.head() {
                Ok(Head::Branch(branch)) if branch == *name => {
                    let error = refused("it is the current branch of that project".to_owned());
                    let error = error.with_detail(FailureDetail::CurrentBranch);
                    return Err(self.at_location(error).into());
                }
                _ => {}
            },
            None => {}
        }
        let must = match (expected.damage(), expected.text()) {
            (Some(damage), _) => ExpectedRef::Damaged(damage),
            (None, Some(text)) => ExpectedRef::Text(text),
            (None, None) => ExpectedRef::At(None),
        };
        let change = RefLogMessage { time: Time::now(), who: &self.who, reason: "push" };
        match refs.swap(name, must, new, &change) {
            Err(RefError::Exists { .. } | RefError::Moved { .. }) => {
                let theirs = self.slot(name)?.commit;
                let (name, location) = (Box::new(name.clone()), self.location.clone());
                return Err(RemoteError::Raced { name, location, theirs });
            }
            moved => moved.map_err(|error| self.at_location(of_ref("write", key, &error)))?,
        };
        // A clone of a bare store starts with the first pushed branch. In a project, the user has
        // chosen the branch.
        if new.is_some() && target.repo.project().is_none() {
            let begun = refs.begin_head(name, &change);
            begun.map_err(|error| self.at_location(of_ref("write", key, &error)))?;
        }
        Ok(())
    }

    /// Returns the content of a ref.
    fn slot(&self, name: &RefName) -> Result<RefSlot, ServiceError> {
        let key = key(name);
        let refs = Refs::new(&self.dir, Disk::default());
        match refs.text(name) {
            Ok(Some(text)) => Ok(RefSlot::of_text(text)),
            Ok(None) => Ok(RefSlot::absent_or_deleted()),
            Err(error @ RefError::Damaged { .. }) => match refs.damage(name) {
                Ok(Some(damage)) => Ok(RefSlot::damaged(damage, &error.to_string())),
                // Another process has just rewritten the ref.
                Ok(None) => {
                    let why = String::new();
                    Err(ServiceError::new("read", &key, FailureReason::Temporary, why))
                }
                Err(error) => Err(of_ref("read", &key, &error)),
            },
            Err(error) => Err(of_ref("read", &key, &error)),
        }
    }

    /// Returns all branches and tags. Other refs, such as remote-tracking ones, are not visible to
    /// clients.
    fn all_refs(&self) -> Result<Vec<(RefName, RefSlot)>, ServiceError> {
        let refs = Refs::new(&self.dir, Disk::default());
        let mut all = Vec::new();
        for kind in [RefKind::Branch, RefKind::Tag] {
            for name in refs.names(kind).map_err(|error| of_ref("list", REFS, &error))? {
                let slot = self.slot(&name)?;
                all.push((name, slot));
            }
        }
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all)
    }

    fn at_location(&self, error: ServiceError) -> ServiceError {
        ServiceError { location: self.location.clone(), ..error }
    }

    /// Opens the store for reading.
    fn open(&self, operation: &'static str, key: &str) -> Result<Store, ServiceError> {
        let store = Store::open_read_only(&self.dir, Disk::default().in_store(&self.dir));
        store.map_err(|error| of_store(operation, key, &error))
    }

    /// Lists the packs that are complete and undamaged, and during a push the staged ones.
    fn list_packs(&self) -> Result<ListedPacks, ServiceError> {
        let store = self.open("list", OBJECTS)?;
        let mut packs = Vec::new();
        for id in self.packs()?.into_iter().filter(|id| !store.is_damaged(id)) {
            let meta = fs_err::metadata(self.pack_path(&id));
            // A pack without a length has just been merged away.
            let Ok(meta) = meta else { continue };
            packs.push(ListedPack { id, bytes: meta.len(), modified_secs: None });
        }
        let target = self.target.lock().clone();
        if let Some(target) = target {
            let waiting = target.staged.list();
            let waiting = waiting.map_err(|error| of_staged("list", OBJECTS, &target, &error))?;
            let staged = waiting.into_iter().filter_map(|(name, bytes)| {
                Some(ListedPack { id: name.parse().ok()?, bytes, modified_secs: None })
            });
            packs.extend(staged);
        }
        Ok(ListedPacks { packs, place: folder_identity(&self.dir) })
    }

    /// Lists the packs that are complete and undamaged. Each is an index file with the name of its pack.
    fn list_index(&self) -> Result<IndexListing, ServiceError> {
        let store = self.open("list", INDEX)?;
        if self.may_create_lock || self.dir.join("compact.lock").exists() {
            self.hold.get_or_init(|| store.pin_packs().ok());
        }
        let (unreadable, is_unknown) = (self.unreadable.lock(), store.shadows().is_unknown);
        let is_listed =
            |id: &PackId| !is_unknown && !store.is_damaged(id) && !unreadable.contains(id);
        let (listed, unlisted): (Vec<_>, Vec<_>) = self.packs()?.into_iter().partition(is_listed);
        let file = |id: PackId| {
            let key = format!("{INDEX}{id}");
            ListedObject { key, bytes: 0, modified_secs: None }
        };
        let files = listed.into_iter().map(file).collect();
        *self.unlisted.lock() = unlisted.into_iter().collect();
        // A damaged epoch, whose number is 0, proves no collection.
        let was_collected = Epoch::read(&self.dir).is_ok_and(|epoch| epoch.number > 0);
        Ok(IndexListing { files, was_collected })
    }

    /// Returns the partial packs of a partial clone, and their objects.
    fn partial_clone(&self) -> Result<Option<PartialClone>, ServiceError> {
        let has_any =
            fs_err::read_dir(self.dir.join("partial")).is_ok_and(|mut all| all.next().is_some());
        if !has_any {
            return Ok(None);
        }
        let failed = |error: &StoreError| of_store("list", OBJECTS, error);
        let store = Store::open_read_only(&self.dir, Disk::default().in_store(&self.dir));
        let store = store.map_err(|error| failed(&error))?;
        let partial = store.partial_packs();
        if partial.is_empty() {
            return Ok(None);
        }
        let mut objects = HashSet::new();
        for id in &partial {
            let found = store.open_pack(id).and_then(|pack| pack.objects());
            match found {
                Ok(found) => objects.extend(found.iter().map(|object| object.id)),
                // A verification in that store reports a damaged stub.
                Err(error) if error.kind() == ErrorKind::Damaged => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(Some(PartialClone { origin: self.origin(), packs: partial.len() as u64, objects }))
    }

    /// Returns the URL of the default remote of this store: `origin`, or the only one.
    fn origin(&self) -> Option<String> {
        let file = read_config_file(&self.dir).ok()?;
        let settings = SettingLayers::default().with_store(file.layer);
        let urls: BTreeMap<String, String> = settings
            .all()
            .into_iter()
            .filter_map(|(path, _)| {
                let name = path.to_string();
                let name = name.strip_prefix("remote.")?.strip_suffix(".url")?.to_owned();
                Some((name, settings.text(&path)?))
            })
            .collect();
        let only = urls.values().next().filter(|_| urls.len() == 1);
        urls.get("origin").or(only).cloned()
    }

    /// Lists the packs in `objects/`, including those outside the local index.
    fn packs(&self) -> Result<Vec<PackId>, ServiceError> {
        let path = self.dir.join("objects");
        let failed = |error: std::io::Error| {
            ServiceError::new("list", OBJECTS, FailureReason::Other, error.to_string())
        };
        let mut packs = Vec::new();
        for entry in fs_err::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            packs.extend(name.to_str().and_then(|name| name.parse::<PackId>().ok()));
        }
        Ok(packs)
    }

    /// Returns the outline of a pack. A pack that was merged away or is unreadable counts as missing.
    fn outline(&self, name: &str) -> Result<PackOutline, ServiceError> {
        let key = format!("{INDEX}{name}");
        let missing = || ServiceError::new("read", &key, FailureReason::NotFound, String::new());
        let id: PackId = name.parse().map_err(|_| missing())?;
        if self.unlisted.lock().contains(&id) {
            return Err(missing());
        }
        let read = PackFile::open(&self.pack_path(&id), id).and_then(|pack| pack.outline());
        match read {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged) => {
                self.unreadable.lock().insert(id);
                Err(missing())
            }
            read => read.map_err(|error| of_store("read", &key, &error)),
        }
    }

    fn pack_path(&self, id: &PackId) -> PathBuf {
        self.dir.join("objects").join(id.to_string())
    }

    fn read_pack(&self, id: &PackId, range: Range<u64>) -> Result<Bytes, ServiceError> {
        let path = self.pack_path(id);
        let failed = |error: io::Error| {
            let what = match error.kind() {
                io::ErrorKind::NotFound => FailureReason::NotFound,
                io::ErrorKind::UnexpectedEof => FailureReason::Short,
                io::ErrorKind::PermissionDenied => FailureReason::Denied,
                _ => FailureReason::Other,
            };
            ServiceError::new("read", &format!("{OBJECTS}{id}"), what, error.to_string())
        };
        let file = open_regular(&path).map_err(failed)?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.file().read_exact_at(&mut bytes, range.start).map_err(failed)?;
        Ok(bytes.into())
    }

    /// Returns the branch that a clone starts with.
    fn head(&self) -> Result<Option<RefName>, RemoteError> {
        let refs = Refs::new(&self.dir, Disk::default());
        let head = match refs.head() {
            Err(RefError::Damaged { .. }) => {
                let why = "it is missing, or does not name a branch";
                return Err(damaged_head(&self.location, why));
            }
            head => head?,
        };
        Ok(Some(match head {
            // Keep a damaged branch; the clone reports the damage.
            Head::Branch(name) if !matches!(refs.read(&name), Ok(None)) => name,
            Head::Branch(_) | Head::Detached(_) => {
                let branches = refs.names(RefKind::Branch)?;
                let mut standing =
                    branches.into_iter().filter(|name| !matches!(refs.read(name), Ok(None)));
                standing.next().unwrap_or_else(first_branch)
            }
        }))
    }

    /// Publishes staged packs, and adds them to the mirror.
    fn publish(&self, packs: &BTreeSet<PackId>) -> Result<(), ServiceError> {
        let target = self.target()?;
        let published = target.staged.publish(&target.repo, packs, &Silent);
        published.map(drop).map_err(|error| of_staged("write", INDEX, &target, &error))
    }

    /// Checks and stages a pack.
    fn receive(&self, id: PackId, path: &Path, bytes: u64) -> Result<(), ServiceError> {
        let target = self.target()?;
        let received = pieces(path, bytes).map_err(StagedError::from);
        let received = received.and_then(|pieces| target.receive(id, pieces));
        received.map_err(|error| of_staged("write", &format!("{OBJECTS}{id}"), &target, &error))
    }

    /// Repairs a lost or damaged `HEAD`.
    fn mend_head(&self) -> Result<(), ServiceError> {
        let target = self.target()?;
        let mended = Repo::mend(&self.dir, &Disk::default(), target.repo.config());
        mended.map(drop).map_err(|error| of_error("write", HEAD, error.kind(), &error))
    }
}

fn of_store(operation: &'static str, key: &str, error: &StoreError) -> ServiceError {
    of_error(operation, key, error.kind(), error)
}

/// Converts an error of the store. Its message includes the causes, because a service error is
/// one line.
fn of_error(
    operation: &'static str,
    key: &str,
    kind: ErrorKind,
    error: &(dyn Error + 'static),
) -> ServiceError {
    let is_full =
        causes(error).filter_map(|error| error.downcast_ref::<io::Error>()).any(|error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        });
    let what = match kind {
        _ if is_full => FailureReason::Full,
        ErrorKind::NotFound => FailureReason::NotFound,
        ErrorKind::Denied => FailureReason::Denied,
        ErrorKind::Invalid | ErrorKind::Refused => FailureReason::Refused,
        ErrorKind::Unsupported => FailureReason::Unsupported,
        _ => FailureReason::Other,
    };
    ServiceError::new(operation, key, what, one_line(error))
}

/// Returns an error and its causes.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| (*error).source())
}

/// Returns an error and its causes in one line.
fn one_line(error: &(dyn Error + 'static)) -> String {
    let words: Vec<String> = causes(error).map(ToString::to_string).collect();
    words.join(": ")
}

/// Converts an error of the staging area.
fn of_staged(
    operation: &'static str,
    key: &str,
    target: &OpenStore,
    error: &StagedError,
) -> ServiceError {
    let refused = |why| ServiceError::new(operation, key, FailureReason::Refused, why);
    match error {
        StagedError::Ref(error) => of_ref(operation, key, error),
        StagedError::Accept(AcceptError::Incomplete(_)) if target.repo.store().has_partial() => {
            let why =
                "the remote store is a partial clone and lacks objects that this push refers to";
            let origin = target.origin.as_deref();
            let origin = origin.map(|url| format!(" (its origin is {url})")).unwrap_or_default();
            refused(format!("{why}{origin}: {}", one_line(error)))
                .with_detail(FailureDetail::PartialClone)
        }
        error if error.is_client_error() => refused(one_line(error)),
        error => of_error(operation, key, error.kind(), error),
    }
}

/// Converts an error of moving a ref.
fn of_ref(operation: &'static str, key: &str, error: &RefError) -> ServiceError {
    let what = match error {
        RefError::Exists { .. } | RefError::Moved { .. } => FailureReason::Conflict,
        RefError::NameConflict { name, other } => match RefName::new(name.kind(), other) {
            Ok(other) => return ref_name_conflict(name, &other),
            Err(_) => FailureReason::Refused,
        },
        RefError::Newer { .. } | RefError::Lost { .. } => FailureReason::Refused,
        error => return of_error(operation, key, error.kind(), error),
    };
    ServiceError::new(operation, key, what, error.to_string())
}

/// Returns the first `length` bytes of a file, piece by piece.
fn pieces(
    path: &Path,
    length: u64,
) -> Result<impl Iterator<Item = Result<Vec<u8>, StagedError>>, PathError> {
    let file = fs_err::File::open(path).map_err(PathError::when("open", path))?;
    let (mut rest, path) = (file.take(length), path.to_owned());
    Ok(iter::from_fn(move || {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        match rest.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece) {
            Ok(0) => None,
            Ok(_) => Some(Ok(piece)),
            Err(error) => Some(Err(PathError::when("read", &path)(error).into())),
        }
    }))
}

impl Peer for LocalStore {
    fn begin(&self) -> Reply<'_, ()> {
        Box::pin(async {
            let open = |inner: &LocalStoreInner| match read_config(&inner.dir) {
                // The caller reads the settings next and reports their error.
                Err(RepoError::Config(_)) => Ok(()),
                _ => inner.target().map(drop),
            };
            Ok(self.run(RequestKind::Post, "", open).await?)
        })
    }

    fn config(&self) -> Reply<'_, Option<Bytes>> {
        Box::pin(async {
            let read = |inner: &LocalStoreInner| {
                let path = inner.dir.join(CONFIG);
                let read = if_exists(read_at_most(&path, limits::CONFIG_BYTES));
                let read = read.map_err(|error| {
                    let what = match error.kind() {
                        io::ErrorKind::FileTooLarge => FailureReason::TooLong,
                        io::ErrorKind::PermissionDenied => FailureReason::Denied,
                        _ => FailureReason::Other,
                    };
                    ServiceError::new("read", CONFIG, what, error.to_string())
                });
                Ok(read?.map(Bytes::from))
            };
            Ok(self.run(RequestKind::Get, CONFIG, read).await?)
        })
    }

    fn inspect(&self) -> Reply<'_, Option<Bytes>> {
        self.config()
    }

    fn partial_clone(&self) -> Reply<'_, Option<PartialClone>> {
        Box::pin(async {
            let find = LocalStoreInner::partial_clone;
            Ok(self.run(RequestKind::List, OBJECTS, find).await?)
        })
    }

    fn create<'a>(&'a self, _new: &'a NewStore, _send: Reply<'a, ()>) -> Reply<'a, Option<Bytes>> {
        // The settings of a project are not the business of a push.
        let error = ServiceError::new("write", CONFIG, FailureReason::Unsupported, String::new());
        let error = self.inner.at_location(error);
        Box::pin(async { Err(error.into()) })
    }

    fn head(&self) -> Reply<'_, Option<RefName>> {
        Box::pin(async {
            let read = |inner: &LocalStoreInner| Ok(inner.head());
            self.run(RequestKind::Get, HEAD, read).await?
        })
    }

    fn slots<'a>(&'a self, names: &'a [&'a RefName]) -> Reply<'a, Vec<RefSlot>> {
        Box::pin(self.read_slots(names))
    }

    fn refs(&self) -> Reply<'_, Vec<(RefName, RefSlot)>> {
        Box::pin(async {
            let list = LocalStoreInner::all_refs;
            Ok(self.run(RequestKind::List, REFS, list).await?)
        })
    }

    fn swap<'a>(
        &'a self,
        _known: &'a Known,
        RefMove { name, expected, new }: RefMove<'a>,
        _observer: &'a dyn Observer,
    ) -> Reply<'a, ()> {
        let (name, expected) = (name.clone(), expected.clone());
        Box::pin(async move {
            let key = key(&name);
            let swap = move |inner: &LocalStoreInner| Ok(inner.swap(&name, &expected, new));
            self.run(RequestKind::Put, &key, swap).await?
        })
    }

    fn list_index(&self) -> Reply<'_, IndexListing> {
        Box::pin(async {
            let list = LocalStoreInner::list_index;
            Ok(self.run(RequestKind::List, INDEX, list).await?)
        })
    }

    fn read_index<'a>(
        &'a self,
        name: &'a str,
        _most: u64,
    ) -> BoxFuture<'a, Result<IndexContent, ServiceError>> {
        Box::pin(async move {
            let (key, name) = (format!("{INDEX}{name}"), name.to_owned());
            let read = move |inner: &LocalStoreInner| inner.outline(&name);
            let outline = self.run(RequestKind::Get, &key, read).await?;
            Ok(IndexContent::Pack(Box::new(outline)))
        })
    }

    fn index_file_bytes<'a>(&'a self, name: &'a str) -> Reply<'a, Option<u64>> {
        Box::pin(async move {
            match self.read_index(name, u64::MAX).await {
                Ok(IndexContent::Pack(outline)) => {
                    Ok(Some(outline::encode(FIRST_EPOCH, &[*outline]).len() as u64))
                }
                Ok(IndexContent::File(bytes)) => Ok(Some(bytes.len() as u64)),
                Err(error) if error.reason == FailureReason::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn packs(&self) -> Reply<'_, ListedPacks> {
        Box::pin(async {
            let list = LocalStoreInner::list_packs;
            Ok(self.run(RequestKind::List, OBJECTS, list).await?)
        })
    }

    fn pack_bytes(&self, pack: PackId) -> Reply<'_, Option<u64>> {
        Box::pin(async move {
            let key = format!("{OBJECTS}{pack}");
            let find = move |inner: &LocalStoreInner| {
                Ok(fs_err::metadata(inner.pack_path(&pack)).ok().map(|meta| meta.len()))
            };
            Ok(self.run(RequestKind::Head, &key, find).await?)
        })
    }

    fn read(&self, pack: PackId, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ServiceError>> {
        Box::pin(async move {
            let key = format!("{OBJECTS}{pack}");
            let read = move |inner: &LocalStoreInner| inner.read_pack(&pack, range.clone());
            let bytes = self.run(RequestKind::Get, &key, read).await?;
            self.requests.received(bytes.len() as u64).await;
            Ok(bytes)
        })
    }

    fn send<'a>(
        &'a self,
        PackToSend { id, path, bytes }: PackToSend<'a>,
        progress: &'a UploadProgress,
    ) -> BoxFuture<'a, Result<SentPack, ServiceError>> {
        Box::pin(async move {
            let (key, path) = (format!("{OBJECTS}{id}"), path.to_owned());
            self.requests.check_not_stopped(&key, progress)?;
            let send = move |inner: &LocalStoreInner| inner.receive(id, &path, bytes);
            self.run_sending(RequestKind::Put, &key, bytes, send).await?;
            progress.advance(bytes);
            Ok(SentPack::Checked)
        })
    }

    fn publish<'a>(
        &'a self,
        known: &'a Known,
        packs: Vec<PackIn<'a>>,
    ) -> Reply<'a, Option<String>> {
        Box::pin(async move {
            let ids: BTreeSet<PackId> = packs.iter().map(|(_, id)| *id).collect();
            let publish = move |inner: &LocalStoreInner| inner.publish(&ids);
            self.run(RequestKind::Put, INDEX, publish).await?;
            for (store, id) in packs {
                let outline = store.outline(&id)?;
                known.mirror.add(
                    &id.to_string(),
                    FIRST_EPOCH,
                    [Ok::<_, RemoteError>(vec![outline])],
                )?;
            }
            known.mirror.forget_sending();
            Ok(None)
        })
    }

    fn mend<'a>(&'a self, _known: &'a Known, what: Mend<'a>) -> Reply<'a, Vec<String>> {
        Box::pin(async move {
            match what {
                Mend::Settings(_) => {
                    let why = String::new();
                    let error = ServiceError::new("write", CONFIG, FailureReason::Unsupported, why);
                    Err(self.inner.at_location(error).into())
                }
                Mend::Head { .. } => match self.head().await {
                    Err(error) if error.kind() == ErrorKind::Damaged => {
                        let mend = LocalStoreInner::mend_head;
                        self.run(RequestKind::Put, HEAD, mend).await?;
                        Ok(vec![HEAD.to_owned()])
                    }
                    head => head.map(|_| Vec::new()),
                },
                Mend::Index | Mend::Collection => Ok(Vec::new()),
            }
        })
    }

    fn name_problems<'a>(&'a self, observer: &'a dyn Observer) -> Reply<'a, Vec<RemoteError>> {
        Box::pin(async move {
            let list = |inner: &LocalStoreInner| {
                let refs = Refs::new(&inner.dir, Disk::default());
                let mut files = Vec::new();
                for kind in [RefKind::Branch, RefKind::Tag] {
                    files
                        .extend(refs.misnamed(kind).map_err(|error| of_ref("list", REFS, &error))?);
                }
                Ok(files)
            };
            let files = self.run(RequestKind::List, REFS, list).await?;
            files.iter().for_each(|file| file.note(Some(&self.inner.location), observer));
            Ok(Vec::new())
        })
    }

    fn check_another(&self, dir: &Path) -> Result<(), RemoteError> {
        let real = |dir: &Path| fs_err::canonicalize(dir).map_err(PathError::when("look at", dir));
        match real(&self.inner.dir)? == real(dir)? {
            true => Err(RemoteError::Itself { location: self.inner.location.clone() }),
            false => Ok(()),
        }
    }

    fn collectable(self: Arc<Self>) -> Result<Arc<BucketStore>, RemoteError> {
        Err(RemoteError::CollectThere { location: self.inner.location.clone() })
    }

    fn stores(&self, _levels: usize) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(vec![String::new()]) })
    }

    fn traffic(&self) -> &Arc<Traffic> {
        self.requests.traffic()
    }
}
