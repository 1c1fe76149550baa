//! A remote store: its layout, and its local mirror.
//!
//! | key | what |
//! |---|---|
//! | `config.toml` | version and settings, as in a local store |
//! | `objects/…` | packs, named by their hash |
//! | `index/…` | [outlines](snap_core::format::outline) of packs, named by their hash ([`index`]) |
//! | `HEAD` | `ref: refs/heads/NAME`, the default branch; written once, with the settings |
//! | `refs/heads/…`, `refs/tags/…` | a commit id and a nonce ([`refs`]); 64 zeros if deleted |
//! | `claims/…` | claims on refs, if the service has no conditional writes ([`claims`]) |
//! | `gc/…` | the state of garbage collection, and its table ([`gc_view`]) |
//!
//! A pack counts once `index/` has its outline. A push writes the outline after the pack and after
//! everything that the pack refers to. So the packs in the index are complete, and later pushes can
//! still use the packs of an interrupted one. A [`Mirror`] keeps the files of `index/`, so that
//! clients read each only once.

pub mod claims;
mod conditions;
pub mod default_branch;
mod error;
pub(crate) mod gc;
pub mod gc_view;
pub mod index;
pub mod mirror;
pub(crate) mod name_conflicts;
pub mod refs;
mod repair;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use parking_lot::Mutex;
use snap_core::{
    base::{io::PathError, kind::ErrorKind, limits},
    format::{gc_state::GcState, wire::FormatError},
    repo::{
        config::{Config, ConfigError},
        ref_name::RefName,
    },
};
use tokio::sync::OnceCell;

pub use crate::service::keys::{CONFIG, HEAD, INDEX, OBJECTS, REFS};
pub use error::RemoteError;
pub use gc::{GC, GC_STATE};
pub use mirror::Mirror;

use crate::service::{
    ConditionalWrites, FailureReason, ListedObject, ServiceError, StoredObject, WriteCondition,
    client::Client,
};

/// Prefixes of all keys in a store.
const OURS: [&str; 8] = [CONFIG, HEAD, OBJECTS, INDEX, REFS, "claims/", gc::GC, "tmp/"];

/// Number of times to read damaged settings.
const READINGS: usize = 2;

/// Number of keys to list to see whether a location is free: more than the prefixes in [`OURS`].
const PEEKED: usize = 16;

/// Returns the name of an object at a location, for messages.
pub(crate) fn place_of(key: &str, location: &str) -> String {
    format!("{key} at {location}")
}

/// A remote store, and its local mirror.
#[derive(Debug)]
pub struct RemoteStore {
    client: Client,
    /// For error messages; has no secrets.
    location: String,
    mirror: Mirror,
    /// Names and lengths of the index files in the last listing.
    listed: BTreeMap<String, u64>,
    /// Names of the parts of groups in the last listing.
    listed_parts: BTreeSet<String>,
    /// Approximate length of a new index file.
    index_file_bytes: u64,
    /// If true, the mirror stays when the remote store is gone.
    is_kept: bool,
    /// Errors of damaged index files by name, if a refresh skips damage; `None` if it fails
    /// instead.
    damaged_index: Option<BTreeMap<String, RemoteError>>,
    /// Damaged index files with unknown packs. A push skips them.
    passed_over: BTreeSet<String>,
    /// The settings, once this process has read or written them.
    config: Mutex<Option<StoredObject>>,
    /// True if this process wrote the settings itself.
    wrote_config: AtomicBool,
    /// The branch in `HEAD`, if this process has created the store with it.
    created_head: Mutex<Option<RefName>>,
    /// The conditions that the service honours; set by the first write with a condition.
    conditions: OnceCell<ConditionalWrites>,
    /// True once the service refused to write a ref on a condition.
    refuses_conditions: AtomicBool,
}

/// The result of a search for a store at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLookup {
    /// A store exists.
    Store,
    /// The location is empty.
    Missing,
}

/// The state of the settings of a store.
#[derive(Debug)]
pub(crate) enum SettingsState {
    /// The settings are valid and of a known version.
    Usable,
    /// The settings are missing.
    Missing,
    /// The settings are damaged.
    Damaged(RemoteError),
}

impl RemoteStore {
    /// Creates a handle for the store at `location`, with its mirror in `cache`. Sends no request
    /// yet.
    ///
    /// # Errors
    /// [`RemoteError`] if `cache` cannot be used.
    pub fn new(client: Client, location: String, cache: &Path) -> Result<Self, RemoteError> {
        let client = client.with_location(&location).with_upload_notes(cache);
        let (mirror, listed) = (Mirror::open(cache)?, BTreeMap::new());
        let index_file_bytes = index::FILE_BYTES;
        Ok(Self {
            client,
            location,
            mirror,
            listed,
            index_file_bytes,
            is_kept: false,
            listed_parts: BTreeSet::new(),
            damaged_index: None,
            passed_over: BTreeSet::new(),
            config: Mutex::default(),
            wrote_config: AtomicBool::new(false),
            created_head: Mutex::default(),
            conditions: OnceCell::new(),
            refuses_conditions: AtomicBool::new(false),
        })
    }

    /// Opens the same store again, with the current state of the mirror.
    ///
    /// # Errors
    /// As [`RemoteStore::new`].
    pub fn reopen(&self) -> Result<Self, RemoteError> {
        Self::new(self.client.clone(), self.location.clone(), self.mirror.dir())
    }

    /// Makes it an error if the store is gone, and keeps the mirror then.
    #[must_use]
    pub fn keep_mirror(self) -> Self {
        Self { is_kept: true, ..self }
    }

    /// Checks that this is not the store in `dir`.
    ///
    /// # Errors
    /// [`RemoteError::Itself`].
    pub fn must_be_another(&self, dir: &Path) -> Result<(), RemoteError> {
        let Some(target) = self.client.local_store() else { return Ok(()) };
        let real = |dir: &Path| fs_err::canonicalize(dir).map_err(PathError::when("look at", dir));
        match real(target)? == real(dir)? {
            true => Err(RemoteError::Itself { location: self.location.clone() }),
            false => Ok(()),
        }
    }

    /// Checks that the store exists. An empty location may be temporarily unavailable.
    ///
    /// # Errors
    /// [`RemoteError::Emptied`] if there is no store.
    pub async fn must_exist(&self) -> Result<(), RemoteError> {
        match self.find_config().await? {
            Some(_) => Ok(()),
            None => Err(RemoteError::Emptied { location: self.location.clone() }),
        }
    }

    /// Sets the approximate length of new index files.
    #[must_use]
    pub fn with_index_files_of(self, bytes: u64) -> Self {
        Self { index_file_bytes: bytes, ..self }
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the location.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Returns true if this process has created the store.
    pub(crate) fn is_new(&self) -> bool {
        self.wrote_config.load(Ordering::Relaxed)
    }

    /// Returns the parts of the handle, for reading only.
    pub fn into_parts(self) -> (Client, String, Mirror) {
        (self.client, self.location, self.mirror)
    }

    /// Returns the mirror.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Clears the mirror if a stub is damaged in a part that opening does not read.
    ///
    /// # Errors
    /// [`RemoteError::Store`] if the cache cannot be used.
    pub(crate) fn remove_damaged_stubs(&mut self) -> Result<(), RemoteError> {
        Ok(self.mirror.remove_damaged_stubs()?)
    }

    /// Clears the mirror, because the store is gone.
    ///
    /// # Errors
    /// [`RemoteError::Store`] if the cache cannot be used.
    pub(crate) fn forget(&mut self) -> Result<(), RemoteError> {
        self.listed.clear();
        Ok(self.mirror.reset()?)
    }

    /// Looks for a store of a known version. Sends no request if this machine has seen the store
    /// before.
    ///
    /// # Errors
    /// [`RemoteError::Config`].
    pub async fn find_store(&self) -> Result<StoreLookup, RemoteError> {
        if self.mirror.was_seen() {
            return Ok(StoreLookup::Store);
        }
        let config = self.find_config().await?;
        self.check_config(config)
    }

    /// Reads the settings, if they exist.
    async fn find_config(&self) -> Result<Option<StoredObject>, RemoteError> {
        match self.client.find(CONFIG, limits::CONFIG_BYTES).await {
            Err(error) if error.reason == FailureReason::DamagedThere => {
                Err(RemoteError::Damaged {
                    key: CONFIG.to_owned(),
                    location: self.location.clone(),
                    why: "the server reports damage".to_owned(),
                })
            }
            found => Ok(found?),
        }
    }

    /// Reads the settings; reads damaged settings once more.
    ///
    /// # Errors
    /// [`RemoteError::Config`] if another version of snap wrote them; [`RemoteError::Service`].
    pub(crate) async fn settings(&self) -> Result<SettingsState, RemoteError> {
        let mut damage = None;
        for _ in 0..READINGS {
            let found = self.find_config().await;
            match found.and_then(|found| self.check_config(found)) {
                Ok(StoreLookup::Store) => return Ok(SettingsState::Usable),
                Ok(StoreLookup::Missing) => return Ok(SettingsState::Missing),
                Err(error) if error.kind() == ErrorKind::Damaged => damage = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok(damage.map_or(SettingsState::Missing, SettingsState::Damaged))
    }

    /// Checks whether the location has a store, or is free for one.
    ///
    /// # Errors
    /// [`RemoteError::Config`]; [`RemoteError::NoSettings`] if only the settings of a store are
    /// missing; [`RemoteError::NotAStore`] if the location has other files.
    pub async fn inspect_location(&self) -> Result<StoreLookup, RemoteError> {
        let config = self.find_config();
        let (config, keys) = futures::join!(config, self.client.list_some("", PEEKED));
        let found = self.check_config(config?)?;
        let keys = keys?;
        // Packs alone may come from a push that was killed while it created a store.
        let has_index =
            found == StoreLookup::Missing && keys.iter().any(|key| key.starts_with(INDEX));
        let has_gc =
            found == StoreLookup::Missing && keys.iter().any(|key| key.starts_with(gc::GC));
        // Such a push may also have written the state of the epoch 0, but a collection leaves a table.
        let has_more = |objects: Vec<ListedObject>| objects.iter().any(|at| at.key != GC_STATE);
        if has_index && has_more(self.client.list(INDEX).await?)
            || has_gc && has_more(self.client.list(gc::GC).await?)
        {
            return Err(RemoteError::NoSettings { location: self.location.clone() });
        }
        let is_ours = |key: &String| OURS.iter().any(|ours| key.starts_with(ours));
        match keys.into_iter().find(|key| !is_ours(key)) {
            Some(key) if found == StoreLookup::Missing => {
                Err(RemoteError::NotAStore { location: self.location.clone(), key })
            }
            _ => Ok(found),
        }
    }

    fn check_config(&self, config: Option<StoredObject>) -> Result<StoreLookup, RemoteError> {
        let Some(object) = config else { return Ok(StoreLookup::Missing) };
        let text = std::str::from_utf8(&object.bytes).unwrap_or("");
        Config::parse(text, Path::new(CONFIG)).map_err(|source| self.config_error(source))?;
        self.mirror.remember_seen();
        *self.config.lock() = Some(object);
        Ok(StoreLookup::Store)
    }

    /// Creates the error for unusable settings.
    fn config_error(&self, source: ConfigError) -> RemoteError {
        RemoteError::Config { location: self.location.clone(), source: Box::new(source) }
    }

    /// Creates the error for an object that cannot be decoded.
    fn format_error(&self, key: &str, error: FormatError) -> RemoteError {
        let (key, location) = (key.to_owned(), self.location.clone());
        match error {
            FormatError::Newer { .. } => RemoteError::Newer { key, location },
            FormatError::Older { .. } => RemoteError::Older { key, location },
            error => RemoteError::Damaged { key, location, why: error.to_string() },
        }
    }

    /// Returns the settings as this process has last read or written them.
    fn config(&self) -> Option<StoredObject> {
        self.config.lock().clone()
    }

    async fn write_first_objects(
        &self,
        objects: &[(&str, Bytes); 3],
        when: &WriteCondition,
    ) -> [Result<(), ServiceError>; 3] {
        let write = |(key, bytes): &(&str, Bytes)| {
            let (key, bytes) = (key.to_string(), bytes.clone());
            async move {
                // A server begins its own epoch.
                if key == gc::GC_STATE && self.client.maintains_index() {
                    return Ok(());
                }
                self.client.write(&key, bytes, when.clone()).await.map(drop)
            }
        };
        let [config, head, gc] = objects.each_ref().map(write);
        futures::join!(config, head, gc).into()
    }

    /// Creates a store at a free location: its settings, the branch that clones start with, and the
    /// first epoch of garbage collection.
    /// Succeeds if another client creates the store first.
    ///
    /// # Errors
    /// [`RemoteError::Service`]; [`RemoteError::Config`] if a newer version of snap has created the
    /// store first.
    pub async fn create(&self, config: &str, head: &RefName) -> Result<(), RemoteError> {
        let can = self.known_conditions().unwrap_or_else(|| self.client.conditions());
        let when = if can.absent { WriteCondition::Absent } else { WriteCondition::Always };
        let (first, mut is_refused_condition) = (head.clone(), false);
        let text = Bytes::from(config.to_owned());
        let state = GcState::first().encode().into();
        let objects =
            [(CONFIG, text.clone()), (HEAD, default_branch::text(head)), (gc::GC_STATE, state)];
        let mut written = self.write_first_objects(&objects, &when).await;
        let is_refused = |error: &ServiceError| error.reason == FailureReason::Unsupported;
        if can.absent && written[0].as_ref().is_err_and(is_refused) {
            is_refused_condition = true;
            written = self.write_first_objects(&objects, &WriteCondition::Always).await;
        }
        let [config, head, gc] = written;
        let is_new = |written: Result<(), ServiceError>| match written {
            Err(error) if error.reason == FailureReason::Conflict => Ok(false),
            written => written.map(|()| true),
        };
        let wrote_head = is_new(head)?;
        is_new(gc)?;
        match config {
            Ok(_) => {
                self.check_config(Some(StoredObject { bytes: text, version: None }))?;
                self.wrote_config.store(true, Ordering::Relaxed);
                // The conditions prove that no other client has created the store.
                if wrote_head && when == WriteCondition::Absent && !is_refused_condition {
                    *self.created_head.lock() = Some(first);
                }
            }
            Err(error) if error.reason == FailureReason::Conflict => {
                let config = self.find_config().await?;
                self.check_config(config)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
