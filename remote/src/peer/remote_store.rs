//! A remote store: a peer, and what this process knows of it.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use snap_core::{
    base::{id::PackId, kind::ErrorKind, observe::Observer},
    repo::config::{Config, ConfigError},
    store::Store,
};

use super::{
    CONDITIONS, CONFIG, ConditionProofs, IndexListing, Mend, Mirror, NewStore, Place, RefMove,
    RemoteError, bucket::BucketStore, catch_up::CatchUp, known::Known,
};
use crate::bucket::client::Client;

/// Number of times to read damaged settings.
const READINGS: usize = 2;

/// A remote store, and its local mirror.
#[derive(Debug)]
pub struct RemoteStore {
    place: Place,
    known: Known,
    /// If true, the mirror stays when the remote store is gone.
    is_kept: bool,
    /// Damaged index files with unknown packs. A push skips them.
    passed_over: BTreeSet<String>,
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
    /// Creates a handle for the store at `location` in a bucket, with its mirror in `cache`. Sends no
    /// request yet.
    ///
    /// # Errors
    /// [`RemoteError`] if `cache` cannot be used.
    pub fn new(client: Client, location: String, cache: &Path) -> Result<Self, RemoteError> {
        Self::sharing(client, location, cache, ConditionProofs::at(cache.join(CONDITIONS)))
    }

    /// Creates a handle like [`Self::new`], with proofs of conditional writes that stores share.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn sharing(
        client: Client,
        location: String,
        cache: &Path,
        proofs: ConditionProofs,
    ) -> Result<Self, RemoteError> {
        let client = client.with_location(&location).with_upload_notes(cache);
        let peer = BucketStore::new(client, location.clone(), proofs);
        Place::new(Arc::new(peer), location).into_store(cache)
    }

    /// Creates a handle for the store at a location.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn at(place: Place, cache: &Path) -> Result<Self, RemoteError> {
        let known = Known::new(Mirror::open(cache)?);
        Ok(Self { place, known, is_kept: false, passed_over: BTreeSet::new() })
    }

    /// Opens the same store again, with the current state of the mirror.
    ///
    /// # Errors
    /// As [`RemoteStore::new`].
    pub fn reopen(&self) -> Result<Self, RemoteError> {
        self.place.clone().into_store(self.known.mirror.dir())
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
        self.place.peer.check_another(dir)
    }

    /// Sets the approximate length of new index files.
    #[must_use]
    pub fn with_index_files_of(mut self, bytes: u64) -> Self {
        self.known.index_file_bytes = bytes;
        self
    }

    /// Returns the location, for what needs no mirror.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns what this process knows.
    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// Returns the store of stubs in the mirror, for reading only.
    pub fn into_store(self) -> Store {
        self.known.mirror.store
    }

    /// Returns the mirror.
    pub fn mirror(&self) -> &Mirror {
        &self.known.mirror
    }

    /// Clears the mirror if a stub is damaged in a part that opening does not read.
    ///
    /// # Errors
    /// [`RemoteError::Store`] if the cache cannot be used.
    pub(crate) fn remove_damaged_stubs(&mut self) -> Result<(), RemoteError> {
        Ok(self.known.mirror.remove_damaged_stubs()?)
    }

    /// Clears the mirror, because the store is gone.
    ///
    /// # Errors
    /// [`RemoteError::Store`] if the cache cannot be used.
    pub(crate) fn forget(&mut self) -> Result<(), RemoteError> {
        Ok(self.known.forget()?)
    }

    /// Looks for a store of a known version. Sends no request if this machine has seen the store
    /// before.
    ///
    /// # Errors
    /// [`RemoteError::Config`].
    pub async fn find_store(&self) -> Result<StoreLookup, RemoteError> {
        if self.known.mirror.was_seen() {
            return Ok(StoreLookup::Store);
        }
        let config = self.place.peer.config().await?;
        self.check_config(config.as_deref())
    }

    /// Reads the settings; reads damaged settings once more.
    ///
    /// # Errors
    /// [`RemoteError::Config`] if another version of snap wrote them; [`RemoteError::Service`].
    pub(crate) async fn settings(&self) -> Result<SettingsState, RemoteError> {
        let mut damage = None;
        for _ in 0..READINGS {
            let found = self.place.peer.config().await;
            match found.and_then(|found| self.check_config(found.as_deref())) {
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
        let config = self.place.peer.inspect().await?;
        self.check_config(config.as_deref())
    }

    fn check_config(&self, config: Option<&[u8]>) -> Result<StoreLookup, RemoteError> {
        let Some(bytes) = config else { return Ok(StoreLookup::Missing) };
        let text = std::str::from_utf8(bytes).unwrap_or("");
        Config::parse(text, Path::new(CONFIG)).map_err(|source| self.config_error(source))?;
        self.known.mirror.remember_seen();
        Ok(StoreLookup::Store)
    }

    /// Creates the error for unusable settings.
    fn config_error(&self, source: ConfigError) -> RemoteError {
        RemoteError::Config { location: self.place.location.clone(), source: Box::new(source) }
    }

    /// Creates a store at a free location. Succeeds if another client creates the store first.
    ///
    /// # Errors
    /// [`RemoteError::Service`]; [`RemoteError::Config`] if a newer version of snap has created the
    /// store first.
    pub async fn create(&self, new: &NewStore) -> Result<(), RemoteError> {
        self.create_with(new, async { Ok(()) }).await
    }

    /// Creates a store like [`Self::create`], and runs `send`, which sends packs to it, as early as it
    /// takes packs.
    ///
    /// # Errors
    /// As [`Self::create`]; the errors of `send` come first.
    pub(crate) async fn create_with<T: Send>(
        &self,
        new: &NewStore,
        send: impl Future<Output = Result<T, RemoteError>> + Send,
    ) -> Result<T, RemoteError> {
        let mut sent = None;
        let sending = async {
            sent = Some(send.await?);
            Ok(())
        };
        let created = self.place.peer.create(new, Box::pin(sending)).await?;
        self.check_config(created.as_deref())?;
        Ok(sent.expect("the peer has run the future"))
    }

    /// As [`Peer::begin`].
    pub(crate) async fn begin(&self) -> Result<(), RemoteError> {
        self.place.peer.begin().await
    }

    /// Mends something. Returns the keys of what was written or removed.
    pub(crate) async fn mend(&mut self, what: Mend<'_>) -> Result<Vec<String>, RemoteError> {
        if matches!(what, Mend::Index) {
            self.catch_up().note_wrong_lengths().await?;
        }
        let mended = self.place.peer.mend(&self.known, what).await?;
        if let Mend::Settings(config) = what {
            self.check_config(Some(config.as_bytes()))?;
        }
        Ok(mended)
    }

    /// Moves a ref by compare-and-swap, but creates none whose name another ref blocks. Informs
    /// `observer` about a wait for other clients.
    ///
    /// # Errors
    /// [`RemoteError::Raced`] if the ref is not as expected; [`RemoteError::Collected`] if a
    /// collection has begun a new epoch; [`RemoteError::Newer`], [`RemoteError::Held`].
    pub async fn swap(&self, one: RefMove<'_>, observer: &dyn Observer) -> Result<(), RemoteError> {
        let moved = self.place.peer.move_refs(&self.known, &[one], None, observer).await;
        moved.into_iter().collect()
    }

    fn catch_up(&mut self) -> CatchUp<'_> {
        CatchUp {
            peer: &self.place.peer,
            known: &mut self.known,
            location: &self.place.location,
            passed_over: &mut self.passed_over,
            damaged: None,
            is_kept: self.is_kept,
        }
    }

    /// Reads the new files of the index.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if a file does not match its name; [`RemoteError::Vanished`] if a
    /// file is listed repeatedly but does not exist; [`RemoteError::Emptied`] for a store that is
    /// [kept](Self::keep_mirror).
    pub async fn refresh(&mut self) -> Result<(), RemoteError> {
        self.catch_up().refresh().await
    }

    /// Reads new files like [`Self::refresh`], but skips damaged and missing files of the index,
    /// and returns an error for each. Reads known files again that were damaged before; with `all`,
    /// every known file.
    ///
    /// # Errors
    /// As [`RemoteStore::refresh`], without [`RemoteError::Damaged`].
    pub(crate) async fn refresh_around_damage(
        &mut self,
        all: bool,
    ) -> Result<Vec<RemoteError>, RemoteError> {
        self.catch_up().refresh_around_damage(all).await
    }

    /// Reads the new files of a listing, and learns of collections that it shows.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub async fn take_in_listed(&mut self, listing: IndexListing) -> Result<(), RemoteError> {
        self.catch_up().take_in_listed(listing).await
    }

    /// Learns what a collection has changed since this client has read the store.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub(crate) async fn learn_collection(&mut self) -> Result<(), RemoteError> {
        match self.place.peer.learn_epoch(&self.known).await? {
            true => Ok(()),
            false => self.refresh().await,
        }
    }

    /// Returns true if garbage was ever collected in the store, as far as this client knows. Then
    /// missing objects that no ref reaches are not damage.
    pub fn was_collected(&self) -> bool {
        self.known.was_collected()
    }

    /// Publishes sent packs. `store` has their outlines.
    ///
    /// # Errors
    /// [`RemoteError`]; either all packs or none are visible then.
    pub async fn publish(&self, store: &Store, packs: &[PackId]) -> Result<(), RemoteError> {
        let packs = packs.iter().map(|id| (store, *id)).collect();
        self.place.peer.publish(&self.known, packs).await?;
        // The next push removes the files that remain.
        let _ = self.place.peer.tidy(&self.known).await;
        Ok(())
    }

    /// Makes later reads skip damaged index files with unknown packs.
    pub(crate) fn pass_over_damaged_index(&mut self) {
        let damaged = self.known.mirror.damaged_index().into_iter();
        self.passed_over = damaged.filter(|name| !self.known.mirror.knows(name)).collect();
    }

    /// Returns true if an index file with unknown packs is damaged.
    pub(crate) fn has_unknown_damaged_index(&self) -> bool {
        self.known.mirror.damaged_index().iter().any(|name| !self.known.mirror.knows(name))
    }
}
