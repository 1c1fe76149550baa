//! A local store as a service: the `.snap` of a project, or a bare store. Locations are
//! `file://PROJECT` and `file://PROJECT/.snap`.
//!
//! | key | what |
//! |---|---|
//! | `config.toml`, `objects/…`, `refs/heads/…`, `refs/tags/…` | the files of the store |
//! | `HEAD` | the branch that `HEAD` names, or else the first branch |
//! | `index/…` | one index file for each pack, built from its footer |
//!
//! A local store has no index files, because each pack in its `objects/` is part of it: a pack gets
//! its name there after everything that it refers to. The service does not list damaged, unreadable
//! or partial packs. Objects in no other pack appear missing, not wrong. The service keeps packs
//! from being merged away while it exists, if this user may lock the store.
//!
//! The service checks writes like a server, since later commits rely on each object in `objects/`.
//! It checks and [stages][staged] a pack. The index file that lists the pack makes it part of the
//! store, if the store has everything that the pack refers to. A ref moves under the store's own
//! lock, with a line in its log, to a complete commit. Files of the project and its base stay as
//! they are: the next commit there reports that the branch has moved. A write of `HEAD` repairs a
//! lost or damaged `HEAD`.
//!
//! [staged]: snap_core::ops::inbox

use std::{
    collections::{BTreeMap, HashSet},
    error::Error,
    io::{self, Read},
    iter,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use snap_core::{
    base::{id::PackId, io::PathError, kind::ErrorKind, observe::Silent, time::Time},
    disk::{Disk, symlink_guard::folder_identity},
    format::{
        outline,
        ref_text::{FIRST_EPOCH, RefText},
    },
    ops::inbox::{self, IndexUpload, SharedInbox, StagedError, accept::AcceptError},
    repo::{
        Repo, RepoError,
        config::SettingLayers,
        open::{FIRST_BRANCH, STORE_FOLDER, read_config, read_config_file, refuse_found_link},
        ref_name::{RefKind, RefName},
        refs::{Damage, ExpectedRef, Head, RefError, RefLogMessage, Refs},
    },
    store::{Epoch, PackFile, Store, StoreError, compact::PackPin},
};

use super::{
    ConditionalWrites, FailureDetail, FailureReason, ListedObject, ObjectVersion, PartialClone,
    Service, ServiceError, StoredObject, WriteCondition,
    folder::FolderService,
    keys::{HEAD, INDEX, OBJECTS, REFS},
    ref_name_conflict, too_long,
    traffic::{RequestKind, Traffic},
};

/// A local store that commits go to.
#[derive(Clone, Debug)]
pub struct LocalStore {
    folder: FolderService,
    traffic: Arc<Traffic>,
    inner: Arc<LocalStoreInner>,
}

#[derive(Debug)]
struct LocalStoreInner {
    dir: PathBuf,
    /// False if the service must not even create an empty lock file.
    may_create_lock: bool,
    /// The packs that the listed index files describe, by name of the file.
    files: Mutex<BTreeMap<String, PackId>>,
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

/// Number of bytes of a pack that the service reads at a time.
const PIECE_BYTES: usize = 1 << 20;

impl LocalStore {
    /// Creates a service for the store in `dir`. The logs of moved refs name `who`.
    pub fn new(dir: PathBuf, who: &str, traffic: Arc<Traffic>) -> Self {
        Self::with_lock(dir, who, true, traffic)
    }

    /// Creates a service that only reads the store in `dir`, and creates no lock file there.
    /// Without a lock file, another process may merge packs away during a read.
    pub fn unwritten(dir: PathBuf, traffic: Arc<Traffic>) -> Self {
        Self::with_lock(dir, "unknown", false, traffic)
    }

    fn with_lock(dir: PathBuf, who: &str, may_create_lock: bool, traffic: Arc<Traffic>) -> Self {
        let folder = FolderService::new(dir.clone(), Arc::clone(&traffic));
        let inner = LocalStoreInner {
            dir,
            may_create_lock,
            files: Mutex::default(),
            hold: OnceLock::new(),
            who: who.to_owned(),
            target: Mutex::default(),
        };
        Self { folder, traffic, inner: Arc::new(inner) }
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

    fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        kind: RequestKind,
        key: &str,
        work: impl FnOnce(&LocalStoreInner, &str) -> Result<T, ServiceError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ServiceError>> {
        let (inner, key) = (Arc::clone(&self.inner), key.to_owned());
        self.traffic.request(kind);
        Box::pin(async move {
            let failed_key = key.clone();
            let done = tokio::task::spawn_blocking(move || work(&inner, &key)).await;
            let failed = || {
                ServiceError::new(
                    operation,
                    &failed_key,
                    FailureReason::Other,
                    "the task failed".into(),
                )
            };
            done.unwrap_or_else(|_| Err(failed()))
        })
    }

    fn write_bytes(
        &self,
        key: &str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> BoxFuture<'static, Result<Option<ObjectVersion>, ServiceError>> {
        let traffic = Arc::clone(&self.traffic);
        self.run("write", RequestKind::Put, key, move |inner, key| {
            let target = inner.target()?;
            let to_service_error = |error: StagedError| of_staged("write", key, &target, &error);
            let version = if is_public_ref(key) {
                inner.move_ref(&target, key, &bytes, &when).map(Some)?
            } else if let Some(id) = pack_of(key) {
                target.receive(id, iter::once(Ok(&bytes))).map_err(to_service_error)?;
                None
            } else if let Some(name) = key.strip_prefix(INDEX) {
                target.publish(name, &bytes).map_err(to_service_error)?;
                None
            } else if key == HEAD && when == WriteCondition::Always {
                let mended = Repo::mend(&inner.dir, &Disk::default(), target.repo.config());
                mended.map_err(|error| of_error("write", key, error.kind(), &error))?;
                None
            } else {
                return Err(unknown("write", key));
            };
            traffic.sent(bytes.len() as u64);
            Ok(version)
        })
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

    /// Publishes the packs that an index file lists.
    fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), StagedError> {
        match self.staged.read_index_file(name, bytes)? {
            IndexUpload::Part => Ok(()),
            IndexUpload::Packs(ids) => self.staged.publish(&self.repo, &ids, &Silent).map(drop),
        }
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
    fn move_ref(
        &self,
        target: &OpenStore,
        key: &str,
        bytes: &[u8],
        when: &WriteCondition,
    ) -> Result<ObjectVersion, ServiceError> {
        let refused = |why: String| ServiceError::new("write", key, FailureReason::Refused, why);
        let name = RefName::parse_full(key).ok_or_else(|| unknown("write", key))?;
        let text = RefText::decode(bytes).map_err(|error| refused(error.to_string()))?;
        let refs = target.repo.refs();
        match text.commit {
            Some(id) => {
                let whole = target.staged.check_commit_complete(&target.repo, &id);
                whole.map_err(|error| of_staged("write", key, target, &error))?;
            }
            // The same check as for `snap branch --delete`.
            None if target.repo.project().is_some() => match refs.head() {
                Ok(Head::Branch(branch)) if branch == name => {
                    let error = refused("it is the current branch of that project".to_owned());
                    return Err(error.with_detail(FailureDetail::CurrentBranch));
                }
                _ => {}
            },
            None => {}
        }
        let expected_text;
        let must = match when {
            WriteCondition::Always => return Err(unknown("write", key)),
            WriteCondition::Absent => ExpectedRef::At(None),
            WriteCondition::Unchanged(version) => {
                let tag = version.etag.as_deref().unwrap_or_default().trim_matches('"');
                match Damage::from_tag(tag) {
                    Some(damage) => ExpectedRef::Damaged(damage),
                    None => {
                        expected_text =
                            RefText::from_tag(tag).map_err(|error| refused(error.to_string()))?;
                        ExpectedRef::Text(&expected_text)
                    }
                }
            }
        };
        let change = RefLogMessage { time: Time::now(), who: &self.who, reason: "push" };
        let moved = refs.swap(&name, must, text.commit, &change);
        let moved = moved.map_err(|error| of_ref("write", key, &error))?;
        // A clone of a bare store starts with the first pushed branch. In a project, the user has
        // chosen the branch.
        if text.commit.is_some() && target.repo.project().is_none() {
            let begun = refs.begin_head(&name, &change);
            begun.map_err(|error| of_ref("write", key, &error))?;
        }
        Ok(version_of(&moved))
    }

    /// Returns the packs that are complete and undamaged, and during a push the staged ones.
    fn list_packs(&self, listed: Vec<ListedObject>) -> Result<Vec<ListedObject>, ServiceError> {
        let store = Store::open_read_only(&self.dir, Disk::default().in_store(&self.dir));
        let store = store.map_err(|error| of_store("list", OBJECTS, &error))?;
        let is_sound =
            |object: &ListedObject| pack_of(&object.key).is_none_or(|id| !store.is_damaged(&id));
        let mut listed: Vec<ListedObject> = listed.into_iter().filter(is_sound).collect();
        let target = self.target.lock().clone();
        if let Some(target) = target {
            let waiting = target.staged.list();
            let waiting = waiting.map_err(|error| of_staged("list", OBJECTS, &target, &error))?;
            let waiting = waiting.into_iter();
            listed.extend(waiting.map(|(name, bytes)| ListedObject {
                key: format!("{OBJECTS}{name}"),
                bytes,
                modified_secs: None,
            }));
        }
        Ok(listed)
    }

    /// Lists one index file for each pack that is complete and undamaged.
    fn list_index(&self, prefix: &str) -> Result<Vec<ListedObject>, ServiceError> {
        let failed = |error: &StoreError| of_store("list", prefix, error);
        let store = Store::open_read_only(&self.dir, Disk::default().in_store(&self.dir));
        let store = store.map_err(|error| failed(&error))?;
        if self.may_create_lock || self.dir.join("compact.lock").exists() {
            self.hold.get_or_init(|| store.pin_packs().ok());
        }
        let mut listed = Vec::new();
        let mut files = BTreeMap::new();
        for id in self.packs()? {
            if store.is_damaged(&id) || store.shadows().is_unknown {
                continue;
            }
            let bytes = match self.outlines(&id) {
                Ok(bytes) => bytes,
                // The pack was merged away before this process took its pin, or is unreadable: list
                // the others.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged) => {
                    continue;
                }
                Err(error) => return Err(failed(&error)),
            };
            let name = blake3::hash(&bytes).to_hex().to_string();
            let (key, bytes) = (format!("{INDEX}{name}"), bytes.len() as u64);
            listed.push(ListedObject { key, bytes, modified_secs: None });
            files.insert(name, id);
        }
        *self.files.lock() = files;
        Ok(listed)
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

    /// Returns the content of the index file of one pack.
    fn outlines(&self, id: &PackId) -> Result<Vec<u8>, StoreError> {
        let pack = PackFile::open(&self.dir.join("objects").join(id.to_string()), *id)?;
        Ok(outline::encode(FIRST_EPOCH, &[pack.outline()?]))
    }

    fn read_index(&self, key: &str, most: u64) -> Result<StoredObject, ServiceError> {
        let missing = || ServiceError::new("read", key, FailureReason::NotFound, String::new());
        let name = key.strip_prefix(INDEX).unwrap_or_default();
        let id = self.files.lock().get(name).copied();
        let bytes = self.outlines(&id.ok_or_else(missing)?);
        let bytes = bytes.map_err(|error| of_store("read", key, &error))?;
        match bytes.len() as u64 > most {
            true => Err(too_long(key, most)),
            false => Ok(StoredObject { bytes: bytes.into(), version: None }),
        }
    }

    /// Returns the damage of a ref, or `None` if the ref is intact.
    fn damage(&self, key: &str) -> Result<Option<Damage>, ServiceError> {
        let name = RefName::parse_full(key).ok_or_else(|| unknown("read", key))?;
        let damage = Refs::new(&self.dir, Disk::default()).damage(&name);
        damage.map_err(|error| of_ref("read", key, &error))
    }

    /// Returns the branch that a clone starts with.
    fn read_head(&self) -> Result<StoredObject, ServiceError> {
        let refs = Refs::new(&self.dir, Disk::default());
        let failed = |error: RefError| {
            ServiceError::new("read", HEAD, FailureReason::Other, error.to_string())
        };
        let head = refs.head().map_err(|error| match error {
            RefError::Damaged { .. } => {
                ServiceError::new("read", HEAD, FailureReason::DamagedThere, String::new())
            }
            error => failed(error),
        });
        let branch = match head? {
            // Keep a damaged branch; the clone reports the damage.
            Head::Branch(name) if !matches!(refs.read(&name), Ok(None)) => name.to_string(),
            Head::Branch(_) | Head::Detached(_) => {
                let listing = refs.list_all().map_err(failed)?.refs;
                let first = listing.iter().find(|(name, _)| name.kind() == RefKind::Branch);
                first.map_or(format!("refs/heads/{FIRST_BRANCH}"), |(name, _)| name.to_string())
            }
        };
        Ok(StoredObject { bytes: format!("ref: {branch}\n").into(), version: None })
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

fn unknown(operation: &'static str, key: &str) -> ServiceError {
    ServiceError::new(operation, key, FailureReason::Unsupported, String::new())
}

/// Returns the pack that a key names.
fn pack_of(key: &str) -> Option<PackId> {
    key.strip_prefix(OBJECTS)?.parse().ok()
}

/// Returns the version of a ref, which changes with each write.
fn version_of(text: &RefText) -> ObjectVersion {
    ObjectVersion { etag: Some(format!("\"{}\"", text.tag())), generation: None }
}

/// Returns a damaged ref as an object. Its bytes do not decode as a ref, and its version
/// identifies the damage.
fn damaged(damage: &Damage) -> StoredObject {
    let etag = format!("\"{}\"", damage.tag());
    let version = Some(ObjectVersion { etag: Some(etag.clone()), generation: None });
    StoredObject { bytes: etag.into(), version }
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

/// Returns true if a key names a branch or a tag. Other refs, such as remote-tracking ones, are
/// not visible to clients.
fn is_public_ref(key: &str) -> bool {
    let name = RefName::parse_full(key);
    name.is_some_and(|name| matches!(name.kind(), RefKind::Branch | RefKind::Tag))
}

impl Service for LocalStore {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        self.folder.read(key, range)
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        match key {
            HEAD => self.run("read", RequestKind::Get, key, |inner, _| inner.read_head()),
            key if key.starts_with(INDEX) => {
                self.run("read", RequestKind::Get, key, move |inner, key| {
                    inner.read_index(key, most)
                })
            }
            key if is_public_ref(key) => Box::pin(async move {
                let read = self.folder.read_whole(key, most).await;
                let text = match &read {
                    Ok(object) => RefText::decode(&object.bytes).ok(),
                    Err(error) if error.reason.kind() == ErrorKind::Damaged => None,
                    Err(_) => return read,
                };
                let damage = || self.run("read", RequestKind::Get, key, LocalStoreInner::damage);
                match text {
                    Some(text) => Ok(StoredObject { version: Some(version_of(&text)), ..read? }),
                    None => match damage().await? {
                        Some(damage) => Ok(damaged(&damage)),
                        // Another process has just rewritten the ref.
                        None => Err(ServiceError::new(
                            "read",
                            key,
                            FailureReason::Temporary,
                            String::new(),
                        )),
                    },
                }
            }),
            key => self.folder.read_whole(key, most),
        }
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> BoxFuture<'a, Result<Option<ObjectVersion>, ServiceError>> {
        self.write_bytes(key, bytes, when)
    }

    fn write_file<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        let (path, traffic) = (path.to_owned(), Arc::clone(&self.traffic));
        self.run("write", RequestKind::Put, key, move |inner, key| {
            let id = pack_of(key).ok_or_else(|| unknown("write", key))?;
            let target = inner.target()?;
            let received = pieces(&path, length)
                .map_err(StagedError::from)
                .and_then(|pieces| target.receive(id, pieces));
            received.map_err(|error| of_staged("write", key, &target, &error))?;
            traffic.sent(length);
            Ok(())
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, ServiceError>> {
        match prefix {
            INDEX => self.run("list", RequestKind::List, prefix, LocalStoreInner::list_index),
            REFS => Box::pin(async move {
                let mut listed = self.folder.list(prefix).await?;
                listed.retain(|object| is_public_ref(&object.key));
                Ok(listed)
            }),
            OBJECTS => Box::pin(async move {
                let listed = self.folder.list(prefix).await?;
                let inner = Arc::clone(&self.inner);
                let sound = tokio::task::spawn_blocking(move || inner.list_packs(listed)).await;
                let failed = || {
                    ServiceError::new(
                        "list",
                        OBJECTS,
                        FailureReason::Other,
                        "the task failed".to_owned(),
                    )
                };
                sound.unwrap_or_else(|_| Err(failed()))
            }),
            prefix => self.folder.list(prefix),
        }
    }

    fn list_some<'a>(
        &'a self,
        prefix: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        self.folder.list_some(prefix, most)
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        self.folder.length(key)
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move { Err(unknown("remove", key)) })
    }

    fn conditions(&self) -> ConditionalWrites {
        self.folder.conditions()
    }

    fn must_prove_conditions(&self) -> bool {
        false
    }

    fn maintains_index(&self) -> bool {
        true
    }

    fn was_collected(&self) -> bool {
        // A damaged epoch, whose number is 0, proves no collection.
        Epoch::read(&self.inner.dir).is_ok_and(|epoch| epoch.number > 0)
    }

    fn local_store(&self) -> Option<&Path> {
        Some(&self.inner.dir)
    }

    fn identity(&self) -> String {
        folder_identity(&self.inner.dir)
    }

    fn partial_clone(&self) -> BoxFuture<'_, Result<Option<PartialClone>, ServiceError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || inner.partial_clone()).await;
            let failed = || {
                let why = "the task failed".to_owned();
                ServiceError::new("list", OBJECTS, FailureReason::Other, why)
            };
            found.unwrap_or_else(|_| Err(failed()))
        })
    }

    fn begin_push(&self) -> BoxFuture<'_, Result<(), ServiceError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let open = move || match read_config(&inner.dir) {
                // The caller reads the settings next and reports their error.
                Err(RepoError::Config(_)) => Ok(()),
                _ => inner.target().map(drop),
            };
            let opened = tokio::task::spawn_blocking(open).await;
            let failed = || {
                let why = "the task failed".to_owned();
                ServiceError::new("write to the store", "", FailureReason::Other, why)
            };
            opened.unwrap_or_else(|_| Err(failed()))
        })
    }

    fn must_create_store_first(&self) -> bool {
        true
    }

    fn refuses_conflicting_refs(&self) -> bool {
        true
    }
}
