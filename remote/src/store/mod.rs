//! A store elsewhere: what lies under which key, and what is known of it here.
//!
//! | key | what |
//! |---|---|
//! | `config.toml` | version and settings, as in a local store |
//! | `objects/…` | packs, named by their hash |
//! | `index/…` | [outlines](snap_core::format::outline) of packs, named by their hash ([`index`]) |
//! | `HEAD` | `ref: refs/heads/NAME`: the branch that a clone begins with, written once, with the settings |
//! | `refs/heads/…`, `refs/tags/…` | a commit id, and who wrote it ([`refs`]); 64 zeros for one that was deleted |
//! | `claims/…` | who is moving a ref, where the service knows no conditions ([`claims`]) |
//!
//! A pack counts once an outline of it is in `index/`, and an outline is
//! written after its packs and all that they refer to. So whatever the index
//! knows is complete, and what an interrupted push left is only waiting to be
//! used. What was read of `index/` is kept in a [`Mirror`] and never read again.

pub mod claims;
mod conditions;
mod error;
pub mod heads;
pub mod index;
mod mend;
pub mod mirror;
pub(crate) mod names;
pub mod refs;
mod version;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use snap_core::{
    base::{io::PathError, kind::ErrorKind, limits},
    repo::{
        config::{Config, ConfigError, VERSION},
        ref_name::RefName,
    },
};
use tokio::sync::OnceCell;

pub use crate::service::keys::{CONFIG, HEAD, INDEX, OBJECTS, REFS};
pub use error::RemoteError;
pub use mirror::Mirror;

use crate::service::{Conditions, Object, ServiceError, What, When, client::Client};

/// What the keys in a store begin with.
const OURS: [&str; 7] = [CONFIG, HEAD, OBJECTS, INDEX, REFS, "claims/", "tmp/"];

/// How often settings that are damaged are read.
const READINGS: usize = 2;

/// Keys that are looked at to see whether a place is free: more than there are
/// in [`OURS`].
const PEEKED: usize = 16;

/// An object at a location, as messages name it.
pub(crate) fn place_of(key: &str, location: &str) -> String {
    format!("{key} at {location}")
}

/// A store elsewhere, and what is known of it here.
#[derive(Debug)]
pub struct RemoteStore {
    client: Client,
    /// For messages; has no secrets.
    location: String,
    mirror: Mirror,
    /// Names and lengths of the files of its index when it was last listed.
    listed: BTreeMap<String, u64>,
    /// About the length of a file of its index.
    index_file_bytes: u64,
    /// What is known is forgotten only of a store that is there.
    is_kept: bool,
    /// Where damaged files of its index are noted by name, instead of an error.
    damaged_index: Option<BTreeMap<String, RemoteError>>,
    /// Files of its index that are known to be damaged and not known here: a push reads around
    /// them.
    passed_over: BTreeSet<String>,
    /// Its settings, once they were read or written.
    config: Mutex<Option<Bytes>>,
    /// True if this process wrote the settings itself.
    wrote_config: AtomicBool,
    /// Which conditions the service keeps to, once that was needed.
    conditions: OnceCell<Conditions>,
    /// True once the service refused to write a ref on a condition.
    refuses_conditions: AtomicBool,
}

/// What was found when a remote store was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A store.
    Store,
    /// Nothing at all.
    Nothing,
}

/// The settings of a store, as they were found.
#[derive(Debug)]
pub(crate) enum Settings {
    /// Those of a version that is known.
    Usable,
    /// They are not there.
    Lost,
    /// They are damaged.
    Unusable(RemoteError),
}

impl RemoteStore {
    /// The store at `location`, reached by `client`; what is known of it is
    /// kept in `cache`. Asks nothing yet.
    ///
    /// # Errors
    /// [`RemoteError`] when `cache` cannot be used.
    pub fn new(client: Client, location: String, cache: &Path) -> Result<Self, RemoteError> {
        let client = client.at(&location);
        let (mirror, listed) = (Mirror::open(cache)?, BTreeMap::new());
        let index_file_bytes = index::FILE_BYTES;
        Ok(Self {
            client,
            location,
            mirror,
            listed,
            index_file_bytes,
            is_kept: false,
            damaged_index: None,
            passed_over: BTreeSet::new(),
            config: Mutex::default(),
            wrote_config: AtomicBool::new(false),
            conditions: OnceCell::new(),
            refuses_conditions: AtomicBool::new(false),
        })
    }

    /// The same store, opened anew: what others learnt of it meanwhile is known.
    ///
    /// # Errors
    /// As [`RemoteStore::new`].
    pub fn reopen(&self) -> Result<Self, RemoteError> {
        Self::new(self.client.clone(), self.location.clone(), self.mirror.dir())
    }

    /// The same, which keeps what is known when there is no store any more: that
    /// is an error then.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { is_kept: true, ..self }
    }

    /// Checks that this is another store than the one in `dir`.
    ///
    /// # Errors
    /// [`RemoteError::Itself`].
    pub(crate) fn must_be_another(&self, dir: &Path) -> Result<(), RemoteError> {
        let Some(target) = self.client.local_store() else { return Ok(()) };
        let real = |dir: &Path| fs_err::canonicalize(dir).map_err(PathError::when("look at", dir));
        match real(target)? == real(dir)? {
            true => Err(RemoteError::Itself { location: self.location.clone() }),
            false => Ok(()),
        }
    }

    /// Sees to it that there is a store: a place where everything is gone may be
    /// one that cannot be seen just now.
    ///
    /// # Errors
    /// [`RemoteError::Emptied`] when there is none.
    pub async fn must_be_there(&self) -> Result<(), RemoteError> {
        match self.client.find(CONFIG, limits::CONFIG_BYTES).await? {
            Some(_) => Ok(()),
            None => Err(RemoteError::Emptied { location: self.location.clone() }),
        }
    }

    /// The same, which writes files of about so many bytes to its index.
    #[must_use]
    pub fn with_index_files_of(self, bytes: u64) -> Self {
        Self { index_file_bytes: bytes, ..self }
    }

    /// How it is asked.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where it is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Whether this process has made the store.
    pub(crate) fn is_new(&self) -> bool {
        self.wrote_config.load(Ordering::Relaxed)
    }

    /// Its parts, for those who only read.
    pub fn into_parts(self) -> (Client, String, Mirror) {
        (self.client, self.location, self.mirror)
    }

    /// What is known of its packs.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Forgets what is known of it: there is nothing any more.
    ///
    /// # Errors
    /// [`RemoteError::Store`] when the cache cannot be used.
    pub(crate) fn forget(&mut self) -> Result<(), RemoteError> {
        self.listed.clear();
        Ok(self.mirror.reset()?)
    }

    /// Looks whether there is a store of a version that is known. One that was
    /// seen before is not asked again.
    ///
    /// # Errors
    /// [`RemoteError::Config`].
    pub async fn look(&self) -> Result<Found, RemoteError> {
        if self.mirror.was_seen() {
            return Ok(Found::Store);
        }
        let config = self.client.find(CONFIG, limits::CONFIG_BYTES).await?;
        self.check_config(config)
    }

    /// Reads the settings. What arrives damaged is read once more.
    ///
    /// # Errors
    /// [`RemoteError::Config`] when a later version wrote them, [`RemoteError::Service`].
    pub(crate) async fn settings(&self) -> Result<Settings, RemoteError> {
        let mut damage = None;
        for _ in 0..READINGS {
            let checked = match self.client.find(CONFIG, limits::CONFIG_BYTES).await {
                Err(error) if error.what.kind() == ErrorKind::Damaged => Err(error.into()),
                found => self.check_config(found?),
            };
            match checked {
                Ok(Found::Store) => return Ok(Settings::Usable),
                Ok(Found::Nothing) => return Ok(Settings::Lost),
                Err(error) if error.kind() == ErrorKind::Damaged => damage = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok(damage.map_or(Settings::Lost, Settings::Unusable))
    }

    /// Looks whether there is a store, or room for one.
    ///
    /// # Errors
    /// [`RemoteError::Config`]; [`RemoteError::NoSettings`] when all else of a store is there;
    /// [`RemoteError::NotAStore`] when there is something else.
    pub async fn survey(&self) -> Result<Found, RemoteError> {
        let config = self.client.find(CONFIG, limits::CONFIG_BYTES);
        let (config, keys) = futures::join!(config, self.client.peek("", PEEKED));
        let found = self.check_config(config?)?;
        let keys = keys?;
        // Packs alone may be of a push that made a store and was killed.
        let has_index = found == Found::Nothing && keys.iter().any(|key| key.starts_with(INDEX));
        if has_index && !self.client.list(INDEX).await?.is_empty() {
            return Err(RemoteError::NoSettings { location: self.location.clone() });
        }
        let is_ours = |key: &String| OURS.iter().any(|ours| key.starts_with(ours));
        match keys.into_iter().find(|key| !is_ours(key)) {
            Some(key) if found == Found::Nothing => {
                Err(RemoteError::NotAStore { location: self.location.clone(), key })
            }
            _ => Ok(found),
        }
    }

    fn check_config(&self, config: Option<Object>) -> Result<Found, RemoteError> {
        let Some(object) = config else { return Ok(Found::Nothing) };
        let text = std::str::from_utf8(&object.bytes).unwrap_or("");
        let config = Config::parse(text, Path::new(CONFIG));
        let config = config.map_err(|source| self.unusable(source))?;
        self.mirror.remember_seen();
        if config.version == VERSION {
            self.mirror.remember_newest();
        }
        self.note_config(object.bytes);
        Ok(Found::Store)
    }

    /// The error that its settings cannot be used.
    fn unusable(&self, source: ConfigError) -> RemoteError {
        RemoteError::Config { location: self.location.clone(), source: Box::new(source) }
    }

    fn note_config(&self, bytes: Bytes) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
    }

    fn config(&self) -> Option<Bytes> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn begin(
        &self,
        (config, head): (&Bytes, &Bytes),
        when: When,
    ) -> (Result<(), ServiceError>, Result<(), ServiceError>) {
        let config = self.client.write(CONFIG, config.clone(), when.clone());
        let head = self.client.write(HEAD, head.clone(), when);
        let (config, head) = futures::join!(config, head);
        (config.map(drop), head.map(drop))
    }

    /// Makes a store where there is nothing: its settings, and the branch that
    /// a clone begins with. Somebody may be faster.
    ///
    /// # Errors
    /// [`RemoteError::Service`]; [`RemoteError::Config`] when somebody was
    /// faster, and newer.
    pub async fn create(&self, config: &str, head: &RefName) -> Result<(), RemoteError> {
        let can = self.known_conditions().unwrap_or_else(|| self.client.conditions());
        let when = if can.absent { When::Absent } else { When::Always };
        let (text, head) = (Bytes::from(config.to_owned()), heads::text(head));
        let (mut config, mut head_written) = self.begin((&text, &head), when).await;
        let is_refused = |error: &ServiceError| error.what == What::Unsupported;
        if can.absent && config.as_ref().is_err_and(is_refused) {
            (config, head_written) = self.begin((&text, &head), When::Always).await;
        }
        match head_written {
            Err(error) if error.what != What::Conflict => return Err(error.into()),
            _ => {}
        }
        match config {
            Ok(_) => {
                self.check_config(Some(Object { bytes: text, version: None }))?;
                self.wrote_config.store(true, Ordering::Relaxed);
            }
            Err(error) if error.what == What::Conflict => {
                let config = self.client.find(CONFIG, limits::CONFIG_BYTES).await?;
                self.check_config(config)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
