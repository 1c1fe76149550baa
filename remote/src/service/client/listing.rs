//! Listings: keys, refs and stores.

use super::Client;
use crate::service::{ListedObject, ServiceError};

impl Client {
    /// Lists all objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, ServiceError> {
        self.requests.retry("list", prefix, 0, || self.service.list(prefix)).await
    }

    /// Lists at most `most` of the keys that begin with `prefix`.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn list_some(&self, prefix: &str, most: usize) -> Result<Vec<String>, ServiceError> {
        self.requests.retry("list", prefix, 0, || self.service.list_some(prefix, most)).await
    }

    /// Returns the paths of the stores at most `levels` folders below the root.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn stores(&self, levels: usize) -> Result<Vec<String>, ServiceError> {
        self.requests.retry("list", "", 0, || self.service.stores(levels)).await
    }

    /// Returns an identity that differs for two places with the same location.
    pub fn identity(&self) -> String {
        self.service.identity()
    }
}
