//! A store that commits go to, the `.snap` of a project or a bare one, as a
//! service to read from: `file://PROJECT`, `file://PROJECT/.snap`.
//!
//! | key | what |
//! |---|---|
//! | `config.toml`, `objects/…`, `refs/heads/…`, `refs/tags/…` | the files of the store |
//! | `HEAD` | the branch that `HEAD` names; the first one where it names a commit |
//! | `index/…` | made from the footers of the packs: a file of outlines for each |
//!
//! A local store has no files of outlines, since each pack in its `objects/`
//! counts: a pack gets its name there after all that it refers to. Packs that are
//! shadowed as damaged, that cannot be read, or of which only a part is here are
//! not told of, so what only they hold is missing and not wrong. Packs are kept
//! from being merged away as long as this lives, where this user may lock the
//! store.
//!
//! Nothing can be written. Later commits there rely on each object in `objects/`,
//! so packs must be checked, with all that they refer to, before they lie there;
//! `snap serve` and `snap pull` do that.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use snap_core::{
    base::{id::PackId, kind::ErrorKind},
    disk::Disk,
    format::outline,
    repo::{
        open::{FIRST_BRANCH, STORE_FOLDER},
        ref_name::{RefKind, RefName},
        refs::{Head, RefError, Refs},
    },
    store::{PackFile, Store, StoreError, compact::Hold},
};

use super::{
    Conditions, Listed, Object, Service, ServiceError, Version, What, When,
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
}

impl LocalStore {
    /// The store in `dir`.
    pub fn new(dir: PathBuf, traffic: Arc<Traffic>) -> Self {
        let folder = Folder::new(dir.clone(), Arc::clone(&traffic));
        let inner = Inner { dir, files: Mutex::default(), hold: OnceLock::new() };
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

    fn refused<T>(operation: &'static str, key: &str) -> BoxFuture<'static, Result<T, ServiceError>>
    where
        T: Send + 'static,
    {
        let why = "this is a store that commits go to".to_owned();
        let error = ServiceError::new(operation, key, What::Refused, why);
        Box::pin(async move { Err(error) })
    }
}

/// Whether a folder is a store that commits go to. A remote has neither a lock
/// nor a cache.
fn is_local_store(folder: &Path) -> bool {
    folder.join("config.toml").is_file()
        && folder.join("lock").is_file()
        && folder.join("cache").is_dir()
}

impl Inner {
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
            Head::Branch(name) => name.to_string(),
            Head::Detached(_) => {
                let first = refs.list(RefKind::Branch).map_err(failed)?.into_iter().next();
                first.map_or(format!("refs/heads/{FIRST_BRANCH}"), |(name, _)| name.to_string())
            }
        };
        Ok(Object { bytes: format!("ref: {branch}\n").into(), version: None })
    }
}

fn of_store((operation, key): (&'static str, &str), error: &StoreError) -> ServiceError {
    let what = match error.kind() {
        ErrorKind::NotFound => What::NotFound,
        ErrorKind::Denied => What::Denied,
        _ => What::Other,
    };
    ServiceError::new(operation, key, what, error.to_string())
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
            key => self.folder.read_whole(key, most),
        }
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        _bytes: Bytes,
        _when: When,
    ) -> BoxFuture<'a, Result<Option<Version>, ServiceError>> {
        Self::refused("write", key)
    }

    fn write_file<'a>(
        &'a self,
        key: &'a str,
        _path: &'a Path,
        _length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Self::refused("write", key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, ServiceError>> {
        match prefix {
            INDEX => self.run(("list", Kind::List), prefix, Inner::list_index),
            REFS => Box::pin(async move {
                let mut listed = self.folder.list(prefix).await?;
                listed.retain(|object| is_told(&object.key));
                Ok(listed)
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
        Self::refused("remove", key)
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

    fn is_read_only(&self) -> bool {
        true
    }
}
