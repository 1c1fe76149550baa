//! A location that may have a store.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use snap_core::repo::ref_name::RefName;

use super::{IndexListing, Peer, RemoteError, RemoteStore, Trial};
use crate::bucket::traffic::Traffic;

/// A location that may have a store, without a mirror.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) peer: Arc<dyn Peer>,
    pub(super) location: String,
}

impl Place {
    /// Opens the store there, with its mirror in `cache`. Sends no request yet.
    ///
    /// # Errors
    /// [`RemoteError`] if `cache` cannot be used.
    pub fn into_store(self, cache: &Path) -> Result<RemoteStore, RemoteError> {
        RemoteStore::of(self.peer, self.location, cache)
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

    /// Returns the counters of requests and bytes.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.peer.traffic()
    }
}
