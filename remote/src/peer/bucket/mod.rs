//! A store in a bucket, a share or a folder: objects by key, which no program of this project
//! serves.
//!
//! | key | what |
//! |---|---|
//! | `config.toml` | version and settings, as in a local store |
//! | `objects/…` | packs, named by their hash |
//! | `index/…` | [outlines](snap_core::format::outline) of packs, named by their hash (`index`) |
//! | `HEAD` | `ref: refs/heads/NAME`, the default branch; written once, with the settings |
//! | `refs/heads/…`, `refs/tags/…` | a commit id and a nonce (`refs`); 64 zeros if deleted |
//! | `claims/…` | claims on refs, if the service has no conditional writes ([`claims`]) |
//! | `gc/…` | the state of garbage collection, and its table (`epoch`) |
//!
//! A pack counts once `index/` has its outline. A push writes the outline after the pack and after
//! everything that the pack refers to. So the packs in the index are complete, and later pushes can
//! still use the packs of an interrupted one. A [`Mirror`](super::Mirror) keeps the files of `index/`,
//! so that clients read each only once.

pub mod claims;
pub(crate) mod condition_proofs;
mod conditions;
pub(crate) mod epoch;
mod find_stores;
pub(crate) mod index;
mod mend;
mod name_conflicts;
pub(crate) mod refs;
pub(crate) mod trial;

use std::{
    collections::HashSet,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use snap_core::{
    base::{id::PackId, limits, observe::Observer},
    format::{gc_state::GcState, wire::FormatError},
    ops::repair::RepairRun,
    repo::ref_name::RefName,
};
use tokio::sync::OnceCell;

use self::{
    condition_proofs::ConditionProofs,
    epoch::{BucketEpoch, GC, GC_STATE},
    find_stores::find_stores,
    index::BucketIndex,
    mend::Mending,
    refs::BucketRefs,
};
use super::{
    CONFIG, HEAD, INDEX, IndexContent, IndexListing, ListedPack, ListedPacks, Look, Mend, NewStore,
    OBJECTS, PackIn, PackToSend, Peer, REFS, RefMove, RemoteError, Reply, SentPack, Trial,
    all_refs::{branch_of, head_text},
    known::Known,
    slot::RefSlot,
};
use crate::bucket::{
    ConditionalWrites, FailureReason, ListedObject, ServiceError, UploadProgress, WriteCondition,
    client::Client, traffic::Traffic,
};

/// Prefixes of all keys in a store.
const OURS: [&str; 8] = [CONFIG, HEAD, OBJECTS, INDEX, REFS, "claims/", GC, "tmp/"];

/// Number of keys to list to see whether a location is free: more than the prefixes in [`OURS`].
const PEEKED: usize = 16;

/// A store in a bucket, a share or a folder.
#[derive(Debug)]
pub struct BucketStore {
    client: Client,
    /// For error messages; has no secrets.
    location: String,
    /// The settings, once this process has read or written them.
    config: Mutex<Option<Bytes>>,
    /// True if this process wrote the settings itself.
    wrote_config: AtomicBool,
    /// The branch in `HEAD`, if this process has created the store with it.
    created_head: Mutex<Option<RefName>>,
    /// The remembered results of tests of conditions.
    condition_proofs: ConditionProofs,
    /// The conditions that the service honours; set by the first write with a condition.
    conditions: OnceCell<ConditionalWrites>,
    /// True once the service refused to write a ref on a condition.
    refuses_conditions: AtomicBool,
}

impl BucketStore {
    /// Creates a handle for the store at `location`. Sends no request yet.
    pub(crate) fn new(client: Client, location: String, condition_proofs: ConditionProofs) -> Self {
        Self {
            client,
            location,
            config: Mutex::default(),
            wrote_config: AtomicBool::new(false),
            created_head: Mutex::default(),
            condition_proofs,
            conditions: OnceCell::new(),
            refuses_conditions: AtomicBool::new(false),
        }
    }

    /// Returns the refs, as far as writes rely on what is known.
    pub(crate) fn refs<'a>(&'a self, known: &'a Known) -> BucketRefs<'a> {
        BucketRefs { store: self, known }
    }

    /// Returns the index.
    pub(crate) fn index<'a>(&'a self, known: &'a Known) -> BucketIndex<'a> {
        BucketIndex { store: self, known }
    }

    /// Returns the state of garbage collection.
    pub(crate) fn epoch<'a>(&'a self, known: &'a Known) -> BucketEpoch<'a> {
        BucketEpoch { store: self, known }
    }

    /// Returns true if this process has created the store.
    fn is_new(&self) -> bool {
        self.wrote_config.load(Ordering::Relaxed)
    }

    async fn find_config(&self) -> Result<Option<Bytes>, RemoteError> {
        let found = match self.client.find(CONFIG, limits::CONFIG_BYTES).await {
            Err(error) if error.reason == FailureReason::DamagedThere => {
                return Err(RemoteError::Damaged {
                    key: CONFIG.to_owned(),
                    location: self.location.clone(),
                    why: "the server reports damage".to_owned(),
                });
            }
            found => found?.map(|object| object.bytes),
        };
        if found.is_some() {
            self.config.lock().clone_from(&found);
        }
        Ok(found)
    }

    async fn inspect_location(&self) -> Result<Option<Bytes>, RemoteError> {
        let keys = self.client.list_level("", PEEKED).await?;
        // A whole listing shows whether there are settings. If no condition keeps existing settings
        // from being replaced, only a read counts.
        let may_have_settings = keys.len() >= PEEKED
            || keys.iter().any(|key| key == CONFIG)
            || !self.client.facts().conditions.absent;
        if may_have_settings && let Some(config) = self.find_config().await? {
            return Ok(Some(config));
        }
        // Packs alone may come from a push that was killed while it created a store.
        let has_index = keys.iter().any(|key| key.starts_with(INDEX));
        let has_gc = keys.iter().any(|key| key.starts_with(GC));
        // Such a push may also have written the state of the epoch 0, but a collection leaves a table.
        let has_more = |objects: Vec<ListedObject>| objects.iter().any(|at| at.key != GC_STATE);
        if has_index && has_more(self.client.list(INDEX).await?)
            || has_gc && has_more(self.client.list(GC).await?)
        {
            return Err(RemoteError::NoSettings { location: self.location.clone() });
        }
        let is_ours = |key: &String| OURS.iter().any(|ours| key.starts_with(ours));
        match keys.into_iter().find(|key| !is_ours(key)) {
            Some(key) => Err(RemoteError::NotAStore { location: self.location.clone(), key }),
            None => Ok(None),
        }
    }

    /// Creates the error for an object that cannot be decoded.
    fn format_error(&self, key: &str, error: FormatError) -> RemoteError {
        RemoteError::of_format(key, &self.location, error)
    }

    async fn write_first_objects(
        &self,
        objects: &[(&str, Bytes); 3],
        when: &WriteCondition,
    ) -> [Result<(), ServiceError>; 3] {
        let write = |(key, bytes): &(&str, Bytes)| {
            let (key, bytes) = (key.to_string(), bytes.clone());
            async move { self.client.put_if(&key, bytes, when.clone()).await.map(drop) }
        };
        let [config, head, gc] = objects.each_ref().map(write);
        futures::join!(config, head, gc).into()
    }

    async fn create_store(&self, new: &NewStore) -> Result<Option<Bytes>, RemoteError> {
        let can = self.known_conditions().unwrap_or_else(|| self.client.facts().conditions);
        let when = if can.absent { WriteCondition::Absent } else { WriteCondition::Always };
        let (first, mut is_refused_condition) = (new.head.clone(), false);
        let text = Bytes::from(new.config.clone());
        let state = GcState::first().encode().into();
        let objects = [(CONFIG, text.clone()), (HEAD, head_text(&new.head)), (GC_STATE, state)];
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
                *self.config.lock() = Some(text.clone());
                self.wrote_config.store(true, Ordering::Relaxed);
                // The conditions prove that no other client has created the store.
                if wrote_head && when == WriteCondition::Absent && !is_refused_condition {
                    *self.created_head.lock() = Some(first);
                }
                Ok(Some(text))
            }
            Err(error) if error.reason == FailureReason::Conflict => self.find_config().await,
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the branch that `HEAD` names, or `None` if there is no `HEAD`.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if `HEAD` does not name a branch.
    async fn find_head(&self) -> Result<Option<RefName>, RemoteError> {
        match self.client.find(HEAD, limits::REF_BYTES as u64).await {
            Err(error) if error.reason == FailureReason::DamagedThere => {
                Err(super::all_refs::damaged_head(
                    &self.location,
                    "it is missing, or does not name a branch",
                ))
            }
            Ok(Some(object)) => match branch_of(&object.bytes) {
                Some(branch) => Ok(Some(branch)),
                None => {
                    Err(super::all_refs::damaged_head(&self.location, "it does not name a branch"))
                }
            },
            Ok(None) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn listed_packs(&self) -> Result<ListedPacks, RemoteError> {
        let listed = self.client.list(OBJECTS).await?;
        let pack = |ListedObject { key, bytes, modified_secs }: ListedObject| {
            let id = key.strip_prefix(OBJECTS)?.parse().ok()?;
            Some(ListedPack { id, bytes, modified_secs })
        };
        let packs = listed.into_iter().filter_map(pack).collect();
        Ok(ListedPacks { packs, place: self.client.facts().identity() })
    }

    /// Lists the packs that the mirror lacks, with their lengths.
    async fn packs_with_lengths(&self, known: &Known) -> Result<Vec<ListedPack>, RemoteError> {
        let mut packs = self.listed_packs().await?.packs;
        let gc = known.mirror.gc();
        let here: HashSet<PackId> = known.mirror.store().packs().into_iter().collect();
        packs.retain(|pack| {
            // A collection deletes packs that are going, and no client uses their names again.
            let is_going = gc.as_ref().is_some_and(|gc| gc.table.going.contains(&pack.id));
            !here.contains(&pack.id) && !is_going
        });
        for pack in packs.iter_mut().filter(|pack| pack.bytes == 0) {
            pack.bytes = self.client.head(&format!("{OBJECTS}{}", pack.id)).await?.unwrap_or(0);
        }
        Ok(packs)
    }

    /// Deletes objects, as many with each request as the service allows.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn remove_all(&self, keys: &[String]) -> Result<(), RemoteError> {
        Ok(self.client.delete(keys).await?)
    }
}

impl Peer for BucketStore {
    fn begin(&self) -> Reply<'_, ()> {
        Box::pin(async {
            self.client.abort_abandoned_uploads().await;
            Ok(())
        })
    }

    fn config(&self) -> Reply<'_, Option<Bytes>> {
        Box::pin(self.find_config())
    }

    fn inspect(&self) -> Reply<'_, Option<Bytes>> {
        Box::pin(self.inspect_location())
    }

    fn create<'a>(&'a self, new: &'a NewStore, send: Reply<'a, ()>) -> Reply<'a, Option<Bytes>> {
        Box::pin(async move {
            let (created, sent) = futures::join!(self.create_store(new), send);
            sent?;
            created
        })
    }

    fn head(&self) -> Reply<'_, Option<RefName>> {
        Box::pin(self.find_head())
    }

    fn begin_head<'a>(&'a self, first: &'a RefName) -> Reply<'a, ()> {
        Box::pin(async move {
            self.client.put(HEAD, head_text(first)).await?;
            Ok(())
        })
    }

    fn slots<'a>(&'a self, names: &'a [&'a RefName]) -> Reply<'a, Vec<RefSlot>> {
        Box::pin(self.read_slots(names))
    }

    fn look<'a>(&'a self, names: &'a [&'a RefName]) -> Reply<'a, Look> {
        Box::pin(async {
            let (slots, listing) = futures::try_join!(self.read_slots(names), self.list_index())?;
            Ok(Look { slots, listing: Some(listing) })
        })
    }

    fn refs(&self) -> Reply<'_, Vec<(RefName, RefSlot)>> {
        Box::pin(self.stored_refs())
    }

    fn swap<'a>(
        &'a self,
        known: &'a Known,
        one: RefMove<'a>,
        observer: &'a dyn Observer,
    ) -> Reply<'a, ()> {
        Box::pin(self.refs(known).swap(one, observer))
    }

    fn move_refs<'a>(
        &'a self,
        known: &'a Known,
        moves: &'a [RefMove<'a>],
        _head: Option<&'a RefName>,
        observer: &'a dyn Observer,
    ) -> BoxFuture<'a, Vec<Result<(), RemoteError>>> {
        Box::pin(async move { self.refs(known).move_refs(moves, observer).await })
    }

    fn list_index(&self) -> Reply<'_, IndexListing> {
        Box::pin(async {
            let files = self.client.list(INDEX).await?;
            Ok(IndexListing { files, was_collected: false })
        })
    }

    fn read_index<'a>(
        &'a self,
        name: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<IndexContent, ServiceError>> {
        Box::pin(async move {
            let key = format!("{INDEX}{name}");
            Ok(IndexContent::File(self.client.get(&key, most).await?.bytes))
        })
    }

    fn index_file_bytes<'a>(&'a self, name: &'a str) -> Reply<'a, Option<u64>> {
        Box::pin(async move { Ok(self.client.head(&format!("{INDEX}{name}")).await?) })
    }

    fn packs(&self) -> Reply<'_, ListedPacks> {
        Box::pin(self.listed_packs())
    }

    fn unlisted_packs<'a>(&'a self, known: &'a Known) -> Reply<'a, Vec<ListedPack>> {
        Box::pin(async move { self.packs_with_lengths(known).await })
    }

    fn pack_bytes(&self, pack: PackId) -> Reply<'_, Option<u64>> {
        Box::pin(async move { Ok(self.client.head(&format!("{OBJECTS}{pack}")).await?) })
    }

    fn read(&self, pack: PackId, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ServiceError>> {
        Box::pin(async move { self.client.get_range(&format!("{OBJECTS}{pack}"), range).await })
    }

    fn send<'a>(
        &'a self,
        PackToSend { id, path, bytes }: PackToSend<'a>,
        progress: &'a UploadProgress,
    ) -> BoxFuture<'a, Result<SentPack, ServiceError>> {
        Box::pin(async move {
            self.client.put_file(&format!("{OBJECTS}{id}"), path, bytes, progress).await?;
            Ok(SentPack::Unchecked)
        })
    }

    fn publish<'a>(
        &'a self,
        known: &'a Known,
        packs: Vec<PackIn<'a>>,
    ) -> Reply<'a, Option<String>> {
        Box::pin(async move {
            let name = self.index(known).publish(packs).await?;
            Ok(name.map(|name| format!("{INDEX}{name}")))
        })
    }

    fn tidy<'a>(&'a self, known: &'a Known) -> Reply<'a, ()> {
        Box::pin(async move { self.index(known).remove_superfluous().await })
    }

    fn mend<'a>(&'a self, known: &'a Known, what: Mend<'a>) -> Reply<'a, Vec<String>> {
        Box::pin(async move { Mending { store: self, known }.mend(what).await })
    }

    fn unlist<'a>(
        &'a self,
        known: &'a Known,
        packs: &'a [PackId],
        run: RepairRun,
    ) -> Reply<'a, Vec<PackId>> {
        Box::pin(async move { Mending { store: self, known }.unlist_lost_packs(packs, run).await })
    }

    fn name_problems<'a>(&'a self, observer: &'a dyn Observer) -> Reply<'a, Vec<RemoteError>> {
        Box::pin(async move { self.ref_names().check_ref_names(observer).await })
    }

    fn collection_problem(&self) -> Reply<'_, Option<RemoteError>> {
        Box::pin(self.gc_problem())
    }

    fn learn_epoch<'a>(&'a self, known: &'a Known) -> Reply<'a, bool> {
        Box::pin(async move { Ok(self.epoch(known).read().await?.is_found()) })
    }

    fn is_overtaken<'a>(&'a self, known: &'a Known) -> Reply<'a, bool> {
        Box::pin(async move { self.epoch(known).is_overtaken().await })
    }

    fn present_epoch(&self) -> Reply<'_, u64> {
        Box::pin(self.find_epoch())
    }

    fn collectable(self: Arc<Self>) -> Result<Arc<BucketStore>, RemoteError> {
        Ok(self)
    }

    fn stores(&self, levels: usize) -> Reply<'_, Vec<String>> {
        Box::pin(async move { Ok(find_stores(&self.client, levels).await?) })
    }

    fn try_writes(&self) -> Reply<'_, Option<Vec<Trial>>> {
        Box::pin(async { trial::write_trials(self).await.map(Some) })
    }

    fn traffic(&self) -> &Arc<Traffic> {
        self.client.requests().traffic()
    }
}
