//! Reads the garbage collection state of a remote store, and checks the epoch of refs.
//!
//! | key | what |
//! |---|---|
//! | `gc/state` | the [state](snap_core::format::gc_state), replaced by compare-and-swap |
//! | `gc/VERSION-HASH` | the [table](snap_core::format::gc_table) that the state names |
//!
//! A client that knows the epoch of the ref that it moves reads neither. `tests/model` explores the
//! protocol, and [decision 31](../../../../docs/decisions/0031-garbage-collection.md) explains it.
//!
//! A collector touches every ref after it has begun an epoch. So a writer that read a ref before
//! that loses its swap. A ref that does not exist cannot be touched. So a writer first creates it as
//! deleted, then reads the state, and only then moves it. The branch in `HEAD` needs no such step
//! from the client that has just created the store: a collector touches it even if it is absent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use snap_core::{
    base::{
        id::CommitId,
        kind::ErrorKind,
        limits,
        observe::{Observer, Silent},
    },
    format::{
        gc_state::{GcState, Phase},
        gc_table::GcTable,
        ref_text::{FIRST_EPOCH, Nonce},
    },
    repo::{ref_name::RefName, refs::MisnamedFile},
};

use super::{
    BucketStore,
    refs::{BucketRefs, NewRef},
};
use crate::{
    bucket::{
        ConditionalWrites, FailureDetail, FailureReason, ObjectVersion, ServiceError,
        WriteCondition,
    },
    peer::{
        REFS, RemoteError,
        all_refs::damaged_head,
        gc_view::{GcView, hash_of},
        known::Known,
        slot::RefSlot,
    },
};

/// Prefix of the keys of the garbage collection.
pub const GC: &str = "gc/";

/// Key of the state.
pub const GC_STATE: &str = "gc/state";

/// Key of an object that a collector writes to learn the time of the service.
const CLOCK: &str = "gc/clock";

/// Number of refs to read and write concurrently.
const REFS_AT_ONCE: usize = 16;

/// Number of attempts to read a state and its table, if collectors replace them meanwhile.
const READINGS: usize = 8;

/// The state of a remote store as it was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadGc {
    /// `None` before the first collection.
    pub(crate) view: Option<Arc<GcView>>,
    /// The state and the version of the object, for a swap; `None` if the state is missing.
    found: Option<(GcState, Option<ObjectVersion>)>,
}

impl ReadGc {
    /// Returns true if the store has a state.
    pub(crate) fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// Checks that the store has a state. Without it, a client does not know what other clients rely
    /// on.
    pub(crate) fn check_found(&self, store: &BucketStore) -> Result<(), RemoteError> {
        self.found.as_ref().map(drop).ok_or_else(|| store.lost_gc_file(GC_STATE))
    }
}

/// The keys below `refs/`.
#[derive(Debug, Default)]
pub(crate) struct ListedRefs {
    /// The refs, also deleted ones.
    pub(crate) names: Vec<RefName>,
    /// The files that cannot be refs. Nothing moves them.
    pub(crate) misnamed: Vec<MisnamedFile>,
}

/// The refs that a collector touches.
#[derive(Debug)]
pub(crate) struct RefsToTouch {
    pub(crate) listed: ListedRefs,
    /// The branch in `HEAD`, which need not exist.
    head: RefName,
}

/// Refs as they were read.
pub(crate) type ReadRefs = BTreeMap<RefName, RefSlot>;

/// The garbage collection of a bucket, and what this process knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketEpoch<'a> {
    pub(super) store: &'a BucketStore,
    pub(super) known: &'a Known,
}

impl BucketStore {
    async fn find_gc_state(&self) -> Result<Option<(GcState, Option<ObjectVersion>)>, RemoteError> {
        let found = self.client.find(GC_STATE, limits::GC_STATE_BYTES).await?;
        let Some(object) = found else { return Ok(None) };
        let state = GcState::decode(&object.bytes);
        Ok(Some((state.map_err(|error| self.format_error(GC_STATE, error))?, object.version)))
    }

    fn decode_table(
        &self,
        key: &str,
        state: &GcState,
        bytes: &Bytes,
    ) -> Result<GcTable, RemoteError> {
        if Some(hash_of(bytes)) != state.table {
            let why = "its bytes do not hash to its name".to_owned();
            return Err(RemoteError::Damaged {
                key: key.to_owned(),
                location: self.location.clone(),
                why,
            });
        }
        GcTable::decode(bytes).map_err(|error| self.format_error(key, error))
    }

    /// Returns the epoch of the store now.
    pub(super) async fn find_epoch(&self) -> Result<u64, RemoteError> {
        Ok(self.find_gc_state().await?.map_or(FIRST_EPOCH, |(state, _)| state.epoch))
    }

    /// Returns the problem of a store whose state or table is missing or damaged.
    pub(super) async fn gc_problem(&self) -> Result<Option<RemoteError>, RemoteError> {
        match self.find_gc_state().await {
            Ok(None) => Ok(Some(self.lost_gc_file(GC_STATE))),
            Ok(Some((state, _))) => self.gc_table_problem(&state).await,
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    async fn gc_table_problem(&self, state: &GcState) -> Result<Option<RemoteError>, RemoteError> {
        let Some(name) = state.table_name() else { return Ok(None) };
        let key = format!("{GC}{name}");
        let problem = match self.client.find(&key, limits::GC_TABLE_BYTES).await? {
            Some(table) => self.decode_table(&key, state, &table.bytes).err(),
            None => Some(self.lost_gc_file(&key)),
        };
        // A collector deletes the table once it has replaced the state.
        let is_present = match problem {
            Some(_) => self.find_gc_state().await?.is_some_and(|(now, _)| now == *state),
            None => false,
        };
        Ok(problem.filter(|_| is_present))
    }

    pub(super) fn lost_gc_file(&self, key: &str) -> RemoteError {
        let (key, location) = (key.to_owned(), self.location.clone());
        RemoteError::Damaged { key, location, why: "it is missing".to_owned() }
    }

    /// Creates the error for a write that relied on an earlier epoch.
    pub(crate) fn collected(&self) -> RemoteError {
        RemoteError::Collected { location: self.location.clone() }
    }

    /// Lists the names of all refs, also of deleted ones, and the files that cannot be refs.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn list_refs(&self) -> Result<ListedRefs, RemoteError> {
        let mut listed = ListedRefs::default();
        for object in self.client.list(REFS).await? {
            match RefName::parse_full(&object.key) {
                Some(name) => listed.names.push(name),
                None => listed.misnamed.push(self.read_misnamed(&object.key).await?),
            }
        }
        Ok(listed)
    }

    /// Returns the present time by the clock of the service, in seconds since 1970; `None` if its
    /// listings have no times. Writes an object for that.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn clock_secs(&self) -> Result<Option<i64>, RemoteError> {
        let text = format!("{}\n", Nonce::random());
        self.client.put(CLOCK, text).await?;
        let time = self.written_secs(CLOCK).await?;
        // If it stays, the next collection replaces it.
        let _ = self.client.delete(&[CLOCK.to_owned()]).await;
        Ok(time)
    }

    /// Returns the time of the last swap of the state, by the clock of the service.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn gc_state_secs(&self) -> Result<Option<i64>, RemoteError> {
        self.written_secs(GC_STATE).await
    }

    async fn written_secs(&self, key: &str) -> Result<Option<i64>, RemoteError> {
        let listed = self.client.list(GC).await?;
        let object = listed.into_iter().find(|object| object.key == key);
        Ok(object.and_then(|object| object.modified_secs))
    }

    /// Reads these refs, also deleted ones.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if a ref is damaged: it may point at any commit.
    pub(crate) async fn read_refs(&self, names: &[RefName]) -> Result<ReadRefs, RemoteError> {
        let mut slots = stream::iter(names).map(|name| self.slot(name)).buffered(REFS_AT_ONCE);
        let mut read = ReadRefs::new();
        for name in names {
            let Some(slot) = slots.next().await else { break };
            read.insert(name.clone(), slot?);
        }
        Ok(read)
    }
}

impl<'a> BucketEpoch<'a> {
    fn refs(self) -> BucketRefs<'a> {
        self.store.refs(self.known)
    }

    /// Checks that a collection may run beside pushes: that the service honours all conditions.
    ///
    /// # Errors
    /// [`RemoteError::CollectUnsafe`].
    pub(crate) async fn must_swap_safely(self, observer: &dyn Observer) -> Result<(), RemoteError> {
        match self.store.conditions(observer).await? == ConditionalWrites::ALL {
            true => Ok(()),
            false => Err(RemoteError::CollectUnsafe { location: self.store.location.clone() }),
        }
    }

    /// Reads the state and its table, and remembers them.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`], [`RemoteError::Newer`], [`RemoteError::Service`].
    pub(crate) async fn read(self) -> Result<ReadGc, RemoteError> {
        let (mut read, mut missing) = (None, GC_STATE.to_owned());
        for _ in 0..READINGS {
            let found = self.store.find_gc_state().await?;
            let Some((state, version)) =
                found.clone().filter(|(state, _)| state.epoch != FIRST_EPOCH)
            else {
                self.known.mirror.know_gc(None)?;
                return Ok(ReadGc { view: None, found });
            };
            if let Some(known) = self.known.mirror.gc().filter(|known| known.state == state) {
                return Ok(ReadGc { view: Some(known), found });
            }
            // A collector deletes the table once it has replaced the state.
            let key = format!("{GC}{}", state.table_name().unwrap_or_default());
            if let Some(table) = self.store.client.find(&key, limits::GC_TABLE_BYTES).await? {
                let table = self.store.decode_table(&key, &state, &table.bytes)?;
                read = Some((state, table, version));
                break;
            }
            missing = key;
        }
        let Some((state, table, version)) = read else {
            return Err(self.store.lost_gc_file(&missing));
        };
        let view = Some(Arc::new(GcView { state, table }));
        self.known.mirror.know_gc(view.clone())?;
        Ok(ReadGc { view, found: Some((state, version)) })
    }

    /// Returns true if a collection may have deleted packs since this client has read the index:
    /// another collection state is there, or a server does not list a pack any more.
    pub(crate) async fn is_overtaken(self) -> Result<bool, RemoteError> {
        let known = self.known.mirror.gc().map(|view| view.state);
        let found = self.store.find_gc_state().await?.map(|(state, _)| state);
        Ok(found.filter(|state| state.epoch != FIRST_EPOCH) != known)
    }

    /// Checks that no collector has begun an epoch that this client does not know.
    ///
    /// # Errors
    /// [`RemoteError::Collected`], or another error of the request.
    pub(crate) async fn check_present_epoch(self) -> Result<(), RemoteError> {
        let found = self.store.find_gc_state().await?;
        if found.is_none() {
            // The client that created the store was killed.
            self.repair_state().await?;
        }
        match found.map_or(FIRST_EPOCH, |(state, _)| state.epoch) == self.known.mirror.epoch() {
            true => Ok(()),
            false => Err(self.store.collected()),
        }
    }

    /// Writes what is lost of the state and the table again, as far as this client knows it. The
    /// caller has read the index. Returns the key that was written.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn repair(self) -> Result<Option<String>, RemoteError> {
        let known = self.known.mirror.gc();
        let state = self.store.find_gc_state().await.ok().flatten().map(|(state, _)| state);
        let Some((view, name)) = known
            .filter(|view| Some(&view.state) == state.as_ref())
            .and_then(|view| Some((view.clone(), view.state.table_name()?)))
        else {
            return Ok(self.repair_state().await?.then(|| GC_STATE.to_owned()));
        };
        let key = format!("{GC}{name}");
        let table = view.table.encode().map_err(|error| self.store.format_error(&key, error))?;
        if Some(hash_of(&table)) != view.state.table {
            return Ok(None);
        }
        self.store.client.put(&key, table).await?;
        Ok(Some(key))
    }

    /// Writes a missing or damaged state of the epoch 0 again. The caller has read the index. A
    /// collection leaves an index file of its epoch, and its table is needed, so does nothing then.
    /// Returns true if it has written the state.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn repair_state(self) -> Result<bool, RemoteError> {
        let is_absent = match self.store.find_gc_state().await {
            Ok(None) => true,
            Err(error) if error.kind() == ErrorKind::Damaged => false,
            found => return found.map(|_| false),
        };
        if self.known.mirror.gc().is_some() || self.known.lists_newer_epoch() {
            return Ok(false);
        }
        let can =
            self.store.known_conditions().unwrap_or_else(|| self.store.client.facts().conditions);
        let when = match is_absent && can.absent {
            true => WriteCondition::Absent,
            false => WriteCondition::Always,
        };
        match self.store.client.put_if(GC_STATE, GcState::first().encode().into(), when).await {
            Err(error) if error.reason == FailureReason::Conflict => Ok(false),
            written => Ok(written.map(|_| true)?),
        }
    }

    /// Creates an absent ref as deleted, unless another client creates it first.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(super) async fn reserve(self, name: &RefName) -> Result<(), RemoteError> {
        let can = self.store.conditions(&Silent).await?;
        match self.refs().write_ref(name, &RefSlot::default(), None, can, &Silent).await {
            Err(RemoteError::Raced { .. }) => Ok(()),
            written => written,
        }
    }

    /// Checks that a ref may move under the epoch that this client knows. Creates an absent ref as
    /// deleted first. Returns the content that the swap must replace.
    ///
    /// # Errors
    /// [`RemoteError::Collected`] if this client must first read the state again;
    /// [`RemoteError::Raced`].
    pub(super) async fn fence_ref(
        self,
        name: &RefName,
        slot: &RefSlot,
        can: ConditionalWrites,
        observer: &dyn Observer,
    ) -> Result<RefSlot, RemoteError> {
        self.known.check_gc(&self.store.location)?;
        if slot.epoch() > self.known.mirror.epoch() {
            return Err(self.store.collected());
        }
        if slot.commit.is_some() {
            return Ok(slot.clone());
        }
        if self.store.created_head.lock().as_ref() == Some(name) && !slot.exists() {
            return Ok(slot.clone());
        }
        // Without conditional writes, no push runs during a collection: the user has promised it.
        if slot.exists() || !can.absent || !can.unchanged {
            self.check_present_epoch().await?;
            return Ok(slot.clone());
        }
        self.refs().write_ref(name, slot, None, can, observer).await?;
        let reserved = self.store.slot(name).await?;
        if reserved.commit.is_some() || !reserved.exists() {
            return Err(self.store.race_error(name, &reserved));
        }
        self.check_present_epoch().await?;
        Ok(reserved)
    }

    /// Replaces the state that was read, then runs `next`. Returns `None` if another client has
    /// replaced the state.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn swap<T>(
        self,
        read: &ReadGc,
        (epoch, phase): (u64, Phase),
        table: GcTable,
        next: impl Future<Output = T>,
    ) -> Result<Option<(ReadGc, T)>, RemoteError> {
        let bytes = table.encode().map_err(|error| self.store.format_error(GC, error))?;
        let (before, version) =
            read.found.as_ref().ok_or_else(|| self.store.lost_gc_file(GC_STATE))?;
        let state = before.next(epoch, phase, hash_of(&bytes));
        let key = format!("{GC}{}", state.table_name().unwrap_or_default());
        self.store.client.put(&key, bytes).await?;
        let can = self.store.conditions(&Silent).await?;
        let when = match version {
            _ if !can.absent || !can.unchanged => {
                // The user has promised that no other client writes.
                let now = self.store.find_gc_state().await?.map(|(state, _)| state);
                if now != Some(*before) {
                    return Ok(None);
                }
                WriteCondition::Always
            }
            Some(version) => WriteCondition::Unchanged(version.clone()),
            // A state without a version cannot be swapped.
            None => WriteCondition::Absent,
        };
        let written = self.store.client.put_if(GC_STATE, state.encode().into(), when).await;
        // The reply of an attempt may be lost, and a proxy may answer in place of the service. Only
        // the state itself shows whether it was replaced.
        let is_open = |error: &ServiceError| {
            error.reason == FailureReason::Conflict
                || error.reason.is_temporary()
                || error.reason == FailureReason::Other
        };
        let is_acknowledged = match written {
            Ok(_) => true,
            Err(error) if is_open(&error) => false,
            Err(error) => return Err(error.into()),
        };
        let (found, next) = match is_acknowledged {
            true => {
                let (found, next) = futures::join!(self.store.find_gc_state(), next);
                (found?.filter(|(now, _)| *now == state), next)
            }
            false => match self.store.find_gc_state().await?.filter(|(now, _)| *now == state) {
                found @ Some(_) => (found, next.await),
                None => return Ok(None),
            },
        };
        if found.is_none() {
            return Ok(None);
        }
        let view = Some(Arc::new(GcView { state, table }));
        self.known.mirror.know_gc(view.clone())?;
        Ok(Some((ReadGc { view, found }, next)))
    }

    /// Lists the refs to touch, with the branch in `HEAD`. The caller has replaced the state before.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`].
    pub(crate) async fn refs_to_touch(self) -> Result<RefsToTouch, RemoteError> {
        let (listed, head) = futures::join!(self.store.list_refs(), self.store.find_head());
        let (mut listed, head) =
            (listed?, head?.ok_or_else(|| damaged_head(&self.store.location, "it is missing"))?);
        if !listed.names.contains(&head) {
            listed.names.push(head.clone());
        }
        Ok(RefsToTouch { listed, head })
    }

    /// Writes the epoch into every ref, so that pushes of earlier epochs lose their swaps. Also
    /// creates the branch in `HEAD`, as deleted. Reads a ref again only if it is no longer as in
    /// `read`. Returns the commits of the refs.
    ///
    /// # Errors
    /// [`RemoteError::Collected`] if a ref has a later epoch; [`RemoteError::Damaged`],
    /// [`RemoteError::Newer`].
    pub(crate) async fn touch_refs(
        self,
        RefsToTouch { listed, head }: &RefsToTouch,
        epoch: u64,
        read: &ReadRefs,
    ) -> Result<BTreeSet<CommitId>, RemoteError> {
        let touch = |name| self.touch_ref(name, read.get(name), epoch, name == head);
        let touches = stream::iter(&listed.names).map(touch);
        let mut touches = touches.buffered(REFS_AT_ONCE);
        let mut commits = BTreeSet::new();
        while let Some(commit) = touches.next().await {
            commits.extend(commit?);
        }
        Ok(commits)
    }

    async fn touch_ref(
        self,
        name: &RefName,
        read: Option<&RefSlot>,
        epoch: u64,
        is_head: bool,
    ) -> Result<Option<CommitId>, RemoteError> {
        let can = self.store.conditions(&Silent).await?;
        let mut read = read.cloned();
        for _ in 0..limits::REF_RETRIES {
            let slot = match read.take() {
                Some(slot) => slot,
                None => self.store.slot(name).await?,
            };
            if !slot.is_writable() {
                return Err(self.store.newer(name));
            }
            // A client has removed a deleted ref that was in the way of another name. Before it
            // creates the ref again, it reads the state.
            if !slot.exists() && !is_head {
                return Ok(None);
            }
            if slot.exists() && slot.epoch() >= epoch {
                return match slot.epoch() == epoch {
                    true => Ok(slot.commit),
                    false => Err(self.store.collected()),
                };
            }
            let touched = NewRef { commit: slot.commit, epoch };
            match self.refs().write_ref_at(name, &slot, touched, can, &Silent).await {
                Ok(()) => return Ok(slot.commit),
                Err(RemoteError::Raced { .. }) => {}
                // The names of other refs may leave no room for the branch in `HEAD`. Then the
                // first push cannot create it either.
                Err(RemoteError::Service(error))
                    if is_head
                        && !slot.exists()
                        && error.detail == Some(FailureDetail::NameConflict) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        Err(RemoteError::Held {
            name: Box::new(name.clone()),
            location: self.store.location.clone(),
        })
    }

    /// Removes tables that no state can name any more. What stays is garbage only.
    pub(crate) async fn remove_old_tables(self, view: &GcView) {
        let Ok(listed) = self.store.client.list(GC).await else { return };
        let is_old = |key: &str| {
            let name = key.strip_prefix(GC).and_then(|name| name.split_once('-'));
            let version = name.and_then(|(version, _)| version.parse::<u64>().ok());
            version.is_some_and(|version| version < view.state.version)
        };
        let old = listed.into_iter().map(|object| object.key).filter(|key| is_old(key));
        let _ = self.store.remove_all(&old.collect::<Vec<_>>()).await;
    }
}
