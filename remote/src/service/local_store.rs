//! A store that commits go to, the `.snap` of a project or a bare one, as a
//! service: `file://PROJECT`, `file://PROJECT/.snap`.
//!
//! | key | what |
//! |---|---|
//! | `config.toml`, `objects/…`, `refs/heads/…`, `refs/tags/…` | the files of the store |
//! | `HEAD` | the branch that `HEAD` names; the first one where it names a commit, or a branch that is not there |
//! | `index/…` | made from the footers of the packs: a file of outlines for each |
//!
//! A local store has no files of outlines, since each pack in its `objects/`
//! counts: a pack gets its name there after all that it refers to. Packs that are
//! shadowed as damaged, that cannot be read, or of which only a part is here are
//! not told of, so what only they hold is missing and not wrong. Packs are kept
//! from being merged away as long as this lives, where this user may lock the
//! store.
//!
//! What is written is treated as a server treats it, since later commits there rely
//! on each object in `objects/`. A pack is checked and [staged]. It becomes part of
//! the store with the file of outlines that tells of it, if all that it refers to is
//! there. A ref moves under the store's own lock, with a line in its log, to a commit
//! that is there with all that it refers to. Files of the project stay as they are,
//! and so does their base: the next commit there says that the branch has moved.
//!
//! [staged]: snap_core::ops::staged

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Read},
    iter,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use snap_core::{
    base::{id::PackId, io::PathError, kind::ErrorKind, observe::Silent, time::Time},
    disk::Disk,
    format::{outline, ref_text::RefText},
    ops::{
        accept::AcceptError,
        staged::{self, Staged, StagedError, Told},
    },
    repo::{
        Repo, RepoError,
        open::{FIRST_BRANCH, STORE_FOLDER, read_config},
        ref_name::{RefKind, RefName},
        refs::{Change, Expected, Head, RefError, Refs},
    },
    store::{PackFile, Store, StoreError, compact::Hold},
};

use super::{
    Conditions, Listed, Object, Service, ServiceError, Version, What, When, beside,
    folder::Folder,
    keys::{HEAD, INDEX, OBJECTS, REFS},
    too_long,
    traffic::{Kind, Traffic},
};

/// A store that commits go to.
#[derive(Clone, Debug)]
pub struct LocalStore {
    folder: Folder,
    traffic: Arc<Traffic>,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    /// The packs of which files of the index that were listed tell.
    files: Mutex<BTreeMap<String, PackId>>,
    /// Keeps packs where they are, once the first were told of.
    hold: OnceLock<Option<Hold>>,
    /// Who moves refs, for their log.
    who: String,
    /// Opened by the first push.
    target: Mutex<Option<Arc<Target>>>,
}

/// The store, open to be written to, and what waits to become part of it.
#[derive(Debug)]
struct Target {
    repo: Repo,
    staged: Staged,
}

/// Why a branch of a project is not deleted.
pub const CURRENT: &str = "commits there go to this branch";

/// Bytes of a pack that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

impl LocalStore {
    /// The store in `dir`; `who` is named in the logs of refs that move.
    pub fn new(dir: PathBuf, who: &str, traffic: Arc<Traffic>) -> Self {
        let folder = Folder::new(dir.clone(), Arc::clone(&traffic));
        let inner = Inner {
            dir,
            files: Mutex::default(),
            hold: OnceLock::new(),
            who: who.to_owned(),
            target: Mutex::default(),
        };
        Self { folder, traffic, inner: Arc::new(inner) }
    }

    /// The store that a folder is, or that the project in it has; `None` for any
    /// other folder, such as one that `push` made.
    pub fn find(folder: &Path) -> Option<PathBuf> {
        let candidates = [folder.to_owned(), folder.join(STORE_FOLDER)];
        candidates.into_iter().find(|dir| is_local_store(dir))
    }

    fn run<T: Send + 'static>(
        &self,
        (operation, kind): (&'static str, Kind),
        key: &str,
        work: impl FnOnce(&Inner, &str) -> Result<T, ServiceError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ServiceError>> {
        let (inner, key) = (Arc::clone(&self.inner), key.to_owned());
        self.traffic.request(kind);
        Box::pin(async move {
            let asked = key.clone();
            let done = tokio::task::spawn_blocking(move || work(&inner, &key)).await;
            let failed =
                || ServiceError::new(operation, &asked, What::Other, "the task failed".into());
            done.unwrap_or_else(|_| Err(failed()))
        })
    }

    fn write_bytes(
        &self,
        key: &str,
        bytes: Bytes,
        when: When,
    ) -> BoxFuture<'static, Result<Option<Version>, ServiceError>> {
        let traffic = Arc::clone(&self.traffic);
        self.run(("write", Kind::Put), key, move |inner, key| {
            let target = inner.target()?;
            let told = |error: StagedError| of_staged(("write", key), &target, &error);
            let version = if is_told(key) {
                inner.move_ref(&target, key, (&bytes, &when)).map(Some)?
            } else if let Some(id) = pack_of(key) {
                target.receive(id, iter::once(Ok(&bytes))).map_err(told)?;
                None
            } else if let Some(name) = key.strip_prefix(INDEX) {
                target.publish(name, &bytes).map_err(told)?;
                None
            } else {
                return Err(unknown("write", key));
            };
            traffic.sent(bytes.len() as u64);
            Ok(version)
        })
    }
}

/// Whether a folder is a store that commits go to. A remote has neither a lock, nor a
/// cache, nor logs, and not all of them may have come with a copy of a store.
fn is_local_store(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).exists();
    folder.join("config.toml").is_file() && (has("lock") || has("cache") || has("logs"))
}

impl Target {
    /// Takes a pack, and has it wait until it is told of.
    fn receive<B: AsRef<[u8]>>(
        &self,
        id: PackId,
        pieces: impl Iterator<Item = Result<B, StagedError>>,
    ) -> Result<(), StagedError> {
        let store = self.repo.store();
        store.refresh()?;
        let is_there = store.packs().contains(&id) && !store.is_partial(&id);
        if !(is_there && !store.is_damaged(&id) && staged::is_sound(store, &id)?) {
            self.staged.receive(id, pieces, &Silent)?;
        }
        Ok(())
    }

    /// Makes the packs that a file of outlines tells of part of the store.
    fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), StagedError> {
        match self.staged.told(name, bytes)? {
            Told::Part(_) => Ok(()),
            Told::Packs(ids) => self.staged.publish(&self.repo, &ids, u64::MAX, &Silent).map(drop),
        }
    }
}

impl Inner {
    fn opened(&self) -> MutexGuard<'_, Option<Arc<Target>>> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store, to be written to. The first time, what a push that was killed has
    /// left half done is finished.
    fn target(&self) -> Result<Arc<Target>, ServiceError> {
        let mut opened = self.opened();
        if let Some(target) = &*opened {
            return Ok(Arc::clone(target));
        }
        let asked = ("write to the store", "");
        let repo = Repo::open(&self.dir, Disk::default(), &Silent);
        let repo = repo.map_err(|error| of_error(asked, error.kind(), &error))?;
        repo.store().sweep();
        let target = Arc::new(Target { staged: Staged::new(repo.store()), repo });
        target.staged.sweep();
        match target.staged.go_on(&target.repo) {
            // Packs that are not right wait no more, and nobody has been told of them.
            Err(error) if !error.is_theirs() => return Err(of_staged(asked, &target, &error)),
            _ => {}
        }
        *opened = Some(Arc::clone(&target));
        Ok(target)
    }

    /// Moves a ref if it says what it should.
    fn move_ref(
        &self,
        target: &Target,
        key: &str,
        (bytes, when): (&[u8], &When),
    ) -> Result<Version, ServiceError> {
        let refused = |why: String| ServiceError::new("write", key, What::Refused, why);
        let name = RefName::parse_full(key).ok_or_else(|| unknown("write", key))?;
        let text = RefText::decode(bytes).map_err(|error| refused(error.to_string()))?;
        let refs = target.repo.refs();
        match text.commit {
            Some(id) => {
                let whole = target.staged.check_whole(&target.repo, &id);
                whole.map_err(|error| of_staged(("write", key), target, &error))?;
            }
            // As `snap branch --delete` there.
            None if target.repo.project().is_some() => match refs.head() {
                Ok(Head::Branch(branch)) if branch == name => {
                    let why = CURRENT.to_owned();
                    return Err(refused(why));
                }
                _ => {}
            },
            None => {}
        }
        let expected = match when {
            When::Always => return Err(unknown("write", key)),
            When::Absent => None,
            When::Unchanged(version) => {
                let tag = version.etag.as_deref().unwrap_or_default();
                let text = RefText::from_tag(tag.trim_matches('"'));
                Some(text.map_err(|error| refused(error.to_string()))?)
            }
        };
        let must = expected.as_ref().map_or(Expected::At(None), Expected::Says);
        let change = Change { time: Time::now(), who: &self.who, reason: "push" };
        let moved = refs.swap(&name, must, text.commit, &change);
        let moved = moved.map_err(|error| of_ref(("write", key), &error))?;
        // A clone of a bare store begins with what was pushed first; commits in a
        // project go where its user said.
        if text.commit.is_some() && target.repo.project().is_none() {
            let begun = refs.begin_head(&name, &change);
            begun.map_err(|error| of_ref(("write", key), &error))?;
        }
        Ok(version_of(&moved))
    }

    /// The packs that are whole and sound, and during a push those that wait.
    fn list_packs(&self, listed: Vec<Listed>) -> Result<Vec<Listed>, ServiceError> {
        let store = Store::open_as_it_is(&self.dir, Disk::default().in_store(&self.dir));
        let store = store.map_err(|error| of_store(("list", OBJECTS), &error))?;
        let is_sound =
            |object: &Listed| pack_of(&object.key).is_none_or(|id| !store.is_damaged(&id));
        let mut listed: Vec<Listed> = listed.into_iter().filter(is_sound).collect();
        let target = self.opened().clone();
        if let Some(target) = target {
            let waiting = target.staged.list();
            let waiting = waiting.map_err(|error| of_staged(("list", OBJECTS), &target, &error))?;
            let waiting = waiting.into_iter();
            listed.extend(
                waiting.map(|(name, bytes)| Listed { key: format!("{OBJECTS}{name}"), bytes }),
            );
        }
        Ok(listed)
    }

    /// A file of outlines for each pack that is whole and sound.
    fn list_index(&self, prefix: &str) -> Result<Vec<Listed>, ServiceError> {
        let failed = |error: &StoreError| of_store(("list", prefix), error);
        let store = Store::open_as_it_is(&self.dir, Disk::default().in_store(&self.dir));
        let store = store.map_err(|error| failed(&error))?;
        self.hold.get_or_init(|| store.hold_packs().ok());
        let mut listed = Vec::new();
        let mut files = BTreeMap::new();
        for id in self.packs()? {
            if store.is_damaged(&id) || store.is_shadow_table_lost() {
                continue;
            }
            let bytes = match self.outlines(&id) {
                Ok(bytes) => bytes,
                // Merged away before packs were held, or none that can be read: the
                // clients are told of the others.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged) => {
                    continue;
                }
                Err(error) => return Err(failed(&error)),
            };
            let name = blake3::hash(&bytes).to_hex().to_string();
            listed.push(Listed { key: format!("{INDEX}{name}"), bytes: bytes.len() as u64 });
            files.insert(name, id);
        }
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(listed)
    }

    /// The packs in `objects/`, whether or not an index here knows them.
    fn packs(&self) -> Result<Vec<PackId>, ServiceError> {
        let path = self.dir.join("objects");
        let failed = |error: std::io::Error| {
            ServiceError::new("list", OBJECTS, What::Other, error.to_string())
        };
        let mut packs = Vec::new();
        for entry in fs_err::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            packs.extend(name.to_str().and_then(|name| name.parse::<PackId>().ok()));
        }
        Ok(packs)
    }

    /// The file of outlines of one pack.
    fn outlines(&self, id: &PackId) -> Result<Vec<u8>, StoreError> {
        let pack = PackFile::open(&self.dir.join("objects").join(id.to_string()), *id)?;
        Ok(outline::encode(&[pack.outline()?]))
    }

    fn read_index(&self, key: &str, most: u64) -> Result<Object, ServiceError> {
        let missing = || ServiceError::new("read", key, What::NotFound, String::new());
        let name = key.strip_prefix(INDEX).unwrap_or_default();
        let id = self.files.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        let bytes = self.outlines(&id.ok_or_else(missing)?);
        let bytes = bytes.map_err(|error| of_store(("read", key), &error))?;
        match bytes.len() as u64 > most {
            true => Err(too_long(key, most)),
            false => Ok(Object { bytes: bytes.into(), version: None }),
        }
    }

    /// The branch that a clone begins with.
    fn read_head(&self) -> Result<Object, ServiceError> {
        let refs = Refs::new(&self.dir, Disk::default());
        let failed =
            |error: RefError| ServiceError::new("read", HEAD, What::Other, error.to_string());
        let branch = match refs.head().map_err(failed)? {
            Head::Branch(name) if refs.read(&name).map_err(failed)?.is_some() => name.to_string(),
            Head::Branch(_) | Head::Detached(_) => {
                let first = refs.list(RefKind::Branch).map_err(failed)?.into_iter().next();
                first.map_or(format!("refs/heads/{FIRST_BRANCH}"), |(name, _)| name.to_string())
            }
        };
        Ok(Object { bytes: format!("ref: {branch}\n").into(), version: None })
    }
}

/// What is asked, for errors: the operation and the key.
type Asked<'a> = (&'static str, &'a str);

fn of_store(asked: Asked<'_>, error: &StoreError) -> ServiceError {
    of_error(asked, error.kind(), error)
}

/// An error of the store, with its causes: a service tells them in one line.
fn of_error(
    (operation, key): Asked<'_>,
    kind: ErrorKind,
    error: &(dyn Error + 'static),
) -> ServiceError {
    let is_full =
        causes(error).filter_map(|error| error.downcast_ref::<io::Error>()).any(|error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        });
    let what = match kind {
        _ if is_full => What::Full,
        ErrorKind::NotFound => What::NotFound,
        ErrorKind::Denied => What::Denied,
        ErrorKind::Invalid => What::Refused,
        ErrorKind::Unsupported => What::Unsupported,
        _ => What::Other,
    };
    ServiceError::new(operation, key, what, words(error))
}

/// An error and its causes.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| (*error).source())
}

/// An error and its causes in one line.
fn words(error: &(dyn Error + 'static)) -> String {
    let words: Vec<String> = causes(error).map(ToString::to_string).collect();
    words.join(": ")
}

/// Why something that was sent is not taken.
fn of_staged(asked: Asked<'_>, target: &Target, error: &StagedError) -> ServiceError {
    let (operation, key) = asked;
    let refused = |why| ServiceError::new(operation, key, What::Refused, why);
    match error {
        StagedError::Ref(error) => of_ref(asked, error),
        StagedError::Accept(AcceptError::Incomplete(_)) if target.repo.store().has_partial() => {
            let why = "that store is a partial clone, which does not have all that this refers to";
            refused(format!("{why}: {}", words(error)))
        }
        error if error.is_theirs() => refused(words(error)),
        error => of_error(asked, error.kind(), error),
    }
}

/// Why a ref does not move.
fn of_ref(asked: Asked<'_>, error: &RefError) -> ServiceError {
    let (operation, key) = asked;
    let what = match error {
        RefError::Exists { .. } | RefError::Moved { .. } => What::Conflict,
        RefError::Beside { name, other } => match RefName::new(name.kind(), other) {
            Ok(other) => return beside(name, &other),
            Err(_) => What::Refused,
        },
        RefError::Newer { .. } => What::Refused,
        error => return of_error(asked, error.kind(), error),
    };
    ServiceError::new(operation, key, what, error.to_string())
}

fn unknown(operation: &'static str, key: &str) -> ServiceError {
    ServiceError::new(operation, key, What::Unsupported, String::new())
}

/// The pack that a key names.
fn pack_of(key: &str) -> Option<PackId> {
    key.strip_prefix(OBJECTS)?.parse().ok()
}

/// What says whether a ref was written since.
fn version_of(text: &RefText) -> Version {
    Version { etag: Some(format!("\"{}\"", text.tag())), generation: None }
}

/// The first `length` bytes of a file, piece by piece.
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

/// Whether a key is that of a branch or a tag: what others pushed, fetched or
/// keep for themselves is not for clients.
fn is_told(key: &str) -> bool {
    let name = RefName::parse_full(key);
    name.is_some_and(|name| matches!(name.kind(), RefKind::Branch | RefKind::Tag))
}

impl Service for LocalStore {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        self.folder.read(key, range)
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        let asked = ("read", Kind::Get);
        match key {
            HEAD => self.run(asked, key, |inner, _| inner.read_head()),
            key if key.starts_with(INDEX) => {
                self.run(asked, key, move |inner, key| inner.read_index(key, most))
            }
            key if is_told(key) => Box::pin(async move {
                let object = self.folder.read_whole(key, most).await?;
                let version = RefText::decode(&object.bytes).ok().map(|text| version_of(&text));
                Ok(Object { version, ..object })
            }),
            key => self.folder.read_whole(key, most),
        }
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: When,
    ) -> BoxFuture<'a, Result<Option<Version>, ServiceError>> {
        self.write_bytes(key, bytes, when)
    }

    fn write_file<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        let (path, traffic) = (path.to_owned(), Arc::clone(&self.traffic));
        self.run(("write", Kind::Put), key, move |inner, key| {
            let id = pack_of(key).ok_or_else(|| unknown("write", key))?;
            let target = inner.target()?;
            let received = pieces(&path, length)
                .map_err(StagedError::from)
                .and_then(|pieces| target.receive(id, pieces));
            received.map_err(|error| of_staged(("write", key), &target, &error))?;
            traffic.sent(length);
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, ServiceError>> {
        match prefix {
            INDEX => self.run(("list", Kind::List), prefix, Inner::list_index),
            REFS => Box::pin(async move {
                let mut listed = self.folder.list(prefix).await?;
                listed.retain(|object| is_told(&object.key));
                Ok(listed)
            }),
            OBJECTS => Box::pin(async move {
                let listed = self.folder.list(prefix).await?;
                let inner = Arc::clone(&self.inner);
                let sound = tokio::task::spawn_blocking(move || inner.list_packs(listed)).await;
                let failed = || {
                    ServiceError::new("list", OBJECTS, What::Other, "the task failed".to_owned())
                };
                sound.unwrap_or_else(|_| Err(failed()))
            }),
            prefix => self.folder.list(prefix),
        }
    }

    fn peek<'a>(
        &'a self,
        prefix: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        self.folder.peek(prefix, most)
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        self.folder.length(key)
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move { Err(unknown("remove", key)) })
    }

    fn conditions(&self) -> Conditions {
        self.folder.conditions()
    }

    fn must_prove_conditions(&self) -> bool {
        false
    }

    fn keeps_index(&self) -> bool {
        true
    }

    fn local_store(&self) -> Option<&Path> {
        Some(&self.inner.dir)
    }

    fn begin_push(&self) -> BoxFuture<'_, Result<(), ServiceError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let open = move || match read_config(&inner.dir) {
                // Whoever asks for the settings next says what is wrong with them.
                Err(RepoError::Config(_)) => Ok(()),
                _ => inner.target().map(drop),
            };
            let opened = tokio::task::spawn_blocking(open).await;
            let failed = || {
                let why = "the task failed".to_owned();
                ServiceError::new("write to the store", "", What::Other, why)
            };
            opened.unwrap_or_else(|_| Err(failed()))
        })
    }

    fn is_made_first(&self) -> bool {
        true
    }

    fn keeps_names_apart(&self) -> bool {
        true
    }
}
