//! What there is: keys, refs, stores.

use std::path::Path;

use super::Client;
use crate::service::{Listed, ServiceError, Standings, keys::REFS};

impl Client {
    /// Lists all objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, ServiceError> {
        self.attempts("list", prefix, 0, || self.service.list(prefix)).await
    }

    /// Lists some of the keys that begin with `prefix`.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn peek(&self, prefix: &str, most: usize) -> Result<Vec<String>, ServiceError> {
        self.attempts("list", prefix, 0, || self.service.peek(prefix, most)).await
    }

    /// # Errors
    /// Those of [`Service::stores`](crate::service::Service::stores).
    pub async fn stores(&self, levels: usize) -> Result<Vec<String>, ServiceError> {
        self.attempts("list", "", 0, || self.service.stores(levels)).await
    }

    /// Whether the service sees to the files of its index itself.
    pub fn keeps_index(&self) -> bool {
        self.service.keeps_index()
    }

    /// The folder of a store on this machine that commits go to, if it is one.
    pub fn local_store(&self) -> Option<&Path> {
        self.service.local_store()
    }

    /// Makes ready to take a push.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn begin_push(&self) -> Result<(), ServiceError> {
        self.attempts("write to the store", "", 0, || self.service.begin_push()).await
    }

    /// All refs and where they stand, where the service says so in one answer.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn standings(&self) -> Result<Option<Standings>, ServiceError> {
        self.attempts("list", REFS, 0, || self.service.standings()).await
    }
}
