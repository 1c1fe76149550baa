//! Reads the garbage collection state of a remote store, and checks the epoch of refs.
//!
//! | key | what |
//! |---|---|
//! | `gc/state` | the [state](snap_core::format::gc_state), replaced by compare-and-swap |
//! | `gc/VERSION-HASH` | the [table](snap_core::format::gc_table) that the state names |
//!
//! A client that knows the epoch of the ref that it moves reads neither. `tests/model` explores the
//! protocol, and [decision 31](../../../docs/decisions/0031-garbage-collection.md) explains it.
//!
//! A collector touches every ref after it has begun an epoch. So a writer that read a ref before
//! that loses its swap. A ref that does not exist cannot be touched. So a writer first creates it as
//! deleted, then reads the state, and only then moves it. The branch in `HEAD` needs no such step
//! from the client that has just created the store: a collector touches it even if it is absent.

use std::sync::Arc;

use bytes::Bytes;
use snap_core::{
    base::{
        limits,
        observe::{Observer, Silent},
    },
    format::{gc_state::GcState, gc_table::GcTable, ref_text::FIRST_EPOCH, wire::FormatError},
    repo::ref_name::RefName,
};

use super::{RemoteError, RemoteStore, gc_view::GcView, refs::RefSlot};
use crate::service::{ConditionalWrites, ObjectVersion};

/// Prefix of the keys of the garbage collection.
pub(crate) const GC: &str = "gc/";

/// Key of the state.
pub(crate) const GC_STATE: &str = "gc/state";

/// Number of attempts to read a state and its table, if collectors replace them meanwhile.
const READINGS: usize = 8;

/// The state of a remote store as it was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadGc {
    /// `None` before the first collection.
    pub(crate) view: Option<Arc<GcView>>,
    /// The version of the object, for a swap.
    pub(crate) version: Option<ObjectVersion>,
}

impl RemoteStore {
    /// Reads the state and its table, and remembers them.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`], [`RemoteError::Newer`], [`RemoteError::Service`].
    pub(crate) async fn read_gc(&self) -> Result<ReadGc, RemoteError> {
        let mut read = None;
        for _ in 0..READINGS {
            let Some((state, version)) = self.find_gc_state().await? else {
                self.mirror.know_gc(None)?;
                return Ok(ReadGc { view: None, version: None });
            };
            if let Some(known) = self.mirror.gc().filter(|known| known.state == state) {
                return Ok(ReadGc { view: Some(known), version });
            }
            // A collector deletes the table once it has replaced the state.
            let key = format!("{GC}{}", state.table_name());
            if let Some(table) = self.client.find(&key, limits::GC_TABLE_BYTES).await? {
                let table = self.decode_table(&key, &state, &table.bytes)?;
                read = Some((state, table, version));
                break;
            }
        }
        let Some((state, table, version)) = read else {
            let key = GC_STATE.to_owned();
            return Err(RemoteError::Vanished { key, location: self.location.clone() });
        };
        let view = Some(Arc::new(GcView { state, table }));
        self.mirror.know_gc(view.clone())?;
        Ok(ReadGc { view, version })
    }

    async fn find_gc_state(&self) -> Result<Option<(GcState, Option<ObjectVersion>)>, RemoteError> {
        let found = self.client.find(GC_STATE, limits::GC_STATE_BYTES).await?;
        let Some(object) = found else { return Ok(None) };
        let state = GcState::decode(&object.bytes);
        Ok(Some((state.map_err(|error| self.gc_error(GC_STATE, error))?, object.version)))
    }

    fn decode_table(
        &self,
        key: &str,
        state: &GcState,
        bytes: &Bytes,
    ) -> Result<GcTable, RemoteError> {
        if blake3::hash(bytes).as_bytes() != state.table.as_bytes() {
            let why = "its bytes do not hash to its name".to_owned();
            return Err(RemoteError::Damaged {
                key: key.to_owned(),
                location: self.location.clone(),
                why,
            });
        }
        GcTable::decode(bytes).map_err(|error| self.gc_error(key, error))
    }

    fn gc_error(&self, key: &str, error: FormatError) -> RemoteError {
        let (key, location) = (key.to_owned(), self.location.clone());
        match error {
            FormatError::Newer { .. } => RemoteError::Newer { key, location },
            error => RemoteError::Damaged { key, location, why: error.to_string() },
        }
    }

    /// Returns the epoch of the store now.
    pub(crate) async fn present_epoch(&self) -> Result<u64, RemoteError> {
        Ok(self.find_gc_state().await?.map_or(FIRST_EPOCH, |(state, _)| state.epoch))
    }

    /// Checks that no collector has begun an epoch that this client does not know.
    ///
    /// # Errors
    /// [`RemoteError::Collected`], or another error of the request.
    pub(crate) async fn check_present_epoch(&self) -> Result<(), RemoteError> {
        match self.present_epoch().await? == self.mirror.epoch() {
            true => Ok(()),
            false => Err(self.collected()),
        }
    }

    /// Checks that this version knows everything that a writer must know about the store.
    ///
    /// # Errors
    /// [`RemoteError::Newer`] if commits were forgotten or objects purged.
    pub(crate) fn check_gc_is_known(&self) -> Result<(), RemoteError> {
        let view = self.mirror.gc();
        let is_newer =
            |view: &GcView| !view.table.forgotten.is_empty() || !view.table.purged.is_empty();
        match view.as_deref().is_some_and(is_newer) {
            true => {
                let (key, location) = (GC_STATE.to_owned(), self.location.clone());
                Err(RemoteError::Newer { key, location })
            }
            false => Ok(()),
        }
    }

    /// Creates an absent ref as deleted, unless another client creates it first.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(super) async fn reserve(&self, name: &RefName) -> Result<(), RemoteError> {
        let can = self.conditions(&Silent).await?;
        match self.write_ref(name, &RefSlot::default(), None, can, &Silent).await {
            Err(RemoteError::Raced { .. }) => Ok(()),
            written => written,
        }
    }

    /// Creates the error for a write that relied on an earlier epoch.
    pub(crate) fn collected(&self) -> RemoteError {
        RemoteError::Collected { location: self.location.clone() }
    }

    /// Checks that a ref may move under the epoch that this client knows. Creates an absent ref as
    /// deleted first. Returns the content that the swap must replace.
    ///
    /// # Errors
    /// [`RemoteError::Collected`] if this client must first read the state again;
    /// [`RemoteError::Raced`].
    pub(super) async fn fence_ref(
        &self,
        name: &RefName,
        slot: &RefSlot,
        can: ConditionalWrites,
        observer: &dyn Observer,
    ) -> Result<RefSlot, RemoteError> {
        if self.client.maintains_index() {
            return Ok(slot.clone());
        }
        self.check_gc_is_known()?;
        if slot.epoch() > self.mirror.epoch() {
            return Err(self.collected());
        }
        if slot.commit.is_some() {
            return Ok(slot.clone());
        }
        if self.created_head.lock().as_ref() == Some(name) && !slot.exists() {
            return Ok(slot.clone());
        }
        // Without conditional writes, no push runs during a collection: the user has promised it.
        if slot.exists() || !can.absent || !can.unchanged {
            self.check_present_epoch().await?;
            return Ok(slot.clone());
        }
        self.write_ref(name, slot, None, can, observer).await?;
        let reserved = self.slot(name).await?;
        if reserved.commit.is_some() || !reserved.exists() {
            return Err(self.race_error(name, &reserved));
        }
        self.check_present_epoch().await?;
        Ok(reserved)
    }
}
