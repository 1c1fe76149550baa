//! A location that may have a store.

use std::{ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use snap_core::{
    base::id::{CommitId, PackId},
    repo::ref_name::RefName,
};

use super::{
    IndexListing, Look, PackToSend, Peer, RemoteError, RemoteStore, SentPack, Trial,
    slot::{RefSlot, key},
};
use crate::bucket::{ServiceError, UploadProgress, traffic::Traffic};

/// A location that may have a store, without a mirror.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) peer: Arc<dyn Peer>,
    pub(super) location: String,
}

impl Place {
    /// Creates the location of a peer. `location` is for messages, and has no secrets.
    pub fn new(peer: Arc<dyn Peer>, location: String) -> Self {
        Self { peer, location }
    }

    /// Opens the store there, with its mirror in `cache`. Sends no request yet.
    ///
    /// # Errors
    /// [`RemoteError`] if `cache` cannot be used.
    pub fn into_store(self, cache: &Path) -> Result<RemoteStore, RemoteError> {
        RemoteStore::at(self, cache)
    }

    /// Returns the peer.
    pub fn peer(&self) -> &Arc<dyn Peer> {
        &self.peer
    }

    /// Returns the settings of the store, or `None` if there are none.
    ///
    /// # Errors
    /// [`RemoteError::Service`]; [`RemoteError::Damaged`] if the store reports that they are damaged.
    pub async fn config(&self) -> Result<Option<Bytes>, RemoteError> {
        self.peer.config().await
    }

    /// Returns the branch that `HEAD` names, or `None` if there is no `HEAD`.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if `HEAD` does not name a branch.
    pub async fn head(&self) -> Result<Option<RefName>, RemoteError> {
        self.peer.head().await
    }

    /// Lists the index.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn list_index(&self) -> Result<IndexListing, RemoteError> {
        self.peer.list_index().await
    }

    /// Returns the paths of the stores at most `levels` folders below the location. An empty path is
    /// the location itself, which is then the only store.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn stores(&self, levels: usize) -> Result<Vec<String>, RemoteError> {
        self.peer.stores(levels).await
    }

    /// Tries the writes that a push makes; `None` if a write there would be part of a push. Corrects
    /// what is remembered of the service.
    ///
    /// # Errors
    /// [`RemoteError`] if the memory cannot be written.
    pub async fn try_writes(&self) -> Result<Option<Vec<Trial>>, RemoteError> {
        self.peer.try_writes().await
    }

    /// Checks that the store exists. An empty location may be temporarily unavailable.
    ///
    /// # Errors
    /// [`RemoteError::Emptied`] if there is no store.
    pub async fn must_exist(&self) -> Result<(), RemoteError> {
        match self.config().await? {
            Some(_) => Ok(()),
            None => Err(RemoteError::Emptied { location: self.location.clone() }),
        }
    }

    /// Sends the file of a pack, which is not part of the store before it is published.
    ///
    /// # Errors
    /// [`FailureReason::Damaged`](crate::bucket::FailureReason::Damaged) if the pack does not hash to
    /// its name.
    pub async fn send(
        &self,
        pack: PackToSend<'_>,
        progress: &UploadProgress,
    ) -> Result<SentPack, ServiceError> {
        self.peer.send(pack, progress).await
    }

    /// Returns the length of a pack, published or not; `None` if it does not exist.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn pack_bytes(&self, pack: PackId) -> Result<Option<u64>, RemoteError> {
        self.peer.pack_bytes(pack).await
    }

    /// Reads a range of a pack.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn read(&self, pack: PackId, range: Range<u64>) -> Result<Bytes, ServiceError> {
        self.peer.read(pack, range).await
    }

    /// Returns the commit of a ref.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if the content is not a valid ref.
    pub async fn read_ref(&self, name: &RefName) -> Result<Option<CommitId>, RemoteError> {
        Ok(self.slot(name).await?.commit)
    }

    /// Returns the content under the key of a ref.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if the content is not a valid ref.
    pub async fn slot(&self, name: &RefName) -> Result<RefSlot, RemoteError> {
        let slot = self.any_slot(name).await?;
        slot.error(name, &self.location).map_or(Ok(slot), Err)
    }

    /// As [`Peer::look`], for one ref.
    pub async fn look(
        &self,
        name: &RefName,
    ) -> Result<(RefSlot, Option<IndexListing>), RemoteError> {
        let Look { slots, listing } = self.peer.look(&[name]).await?;
        Ok((slots.into_iter().next().unwrap_or_default(), listing))
    }

    /// Returns the content under the key of a ref, also invalid content, so that a caller can replace
    /// it.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn any_slot(&self, name: &RefName) -> Result<RefSlot, RemoteError> {
        let slots = self.peer.slots(&[name]).await?;
        Ok(slots.into_iter().next().unwrap_or_default())
    }

    /// Creates the error for a ref that a newer version of snap wrote.
    pub(crate) fn newer(&self, name: &RefName) -> RemoteError {
        RemoteError::Newer { key: key(name), location: self.location.clone() }
    }

    /// Creates the error for a write that relied on an earlier epoch.
    pub(crate) fn collected(&self) -> RemoteError {
        RemoteError::Collected { location: self.location.clone() }
    }

    /// Returns the location.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Returns the counters of requests and bytes.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.peer.traffic()
    }
}
