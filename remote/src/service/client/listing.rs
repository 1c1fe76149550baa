//! Listings: keys, refs and stores.

use std::path::Path;

use super::Client;
use crate::service::{
    ListedObject, ListedRefs, PartialClone, ServiceError,
    keys::{OBJECTS, REFS},
};

impl Client {
    /// Lists all objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, ServiceError> {
        self.retry("list", prefix, 0, || self.service.list(prefix)).await
    }

    /// Lists at most `most` of the keys that begin with `prefix`.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn list_some(&self, prefix: &str, most: usize) -> Result<Vec<String>, ServiceError> {
        self.retry("list", prefix, 0, || self.service.list_some(prefix, most)).await
    }

    /// Returns the paths of the stores at most `levels` folders below the root.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn stores(&self, levels: usize) -> Result<Vec<String>, ServiceError> {
        self.retry("list", "", 0, || self.service.stores(levels)).await
    }

    /// Returns true if the service maintains the files of its index itself.
    pub fn maintains_index(&self) -> bool {
        self.service.maintains_index()
    }

    /// Returns true if garbage was ever collected in a project or in the store of a server, as of the
    /// last listing of the index.
    pub fn was_collected(&self) -> bool {
        self.service.was_collected()
    }

    /// Returns an identity that differs for two places with the same location.
    pub fn identity(&self) -> String {
        self.service.identity()
    }

    /// Returns the folder of the store if it is a local store on this machine.
    pub fn local_store(&self) -> Option<&Path> {
        self.service.local_store()
    }

    /// Returns the objects that the store lacks, if it is a partial clone.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn partial_clone(&self) -> Result<Option<PartialClone>, ServiceError> {
        self.retry("list", OBJECTS, 0, || self.service.partial_clone()).await
    }

    /// Prepares the service for a push. Aborts uploads that killed pushes left.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn begin_push(&self) -> Result<(), ServiceError> {
        self.abort_abandoned_uploads().await;
        self.retry("write to the store", "", 0, || self.service.begin_push()).await
    }

    /// Returns all refs and their commits, if the service can list them in one request.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn list_refs(&self) -> Result<Option<ListedRefs>, ServiceError> {
        self.retry("list", REFS, 0, || self.service.list_refs()).await
    }
}
