//! Storage quotas of repositories.
//!
//! An upload in progress counts as if it were stored, so concurrent uploads cannot exceed a quota
//! together.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    problem::{Code, HttpProblem},
    repository::Repository,
    settings::Quota,
};

/// The quotas, and the room that uploads in progress have reserved.
#[derive(Debug)]
pub struct Quotas {
    chosen: Quota,
    /// The sum of all reservations of each repository, in bytes.
    reserved: Mutex<HashMap<String, Arc<Mutex<u64>>>>,
}

/// How much of its quota a repository uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The bytes of stored data and of uploads in progress.
    pub used_bytes: u64,
    /// The quota, in bytes.
    pub quota_bytes: u64,
}

/// Room reserved for an upload. It is released on drop: by then the upload has failed, or its data
/// is stored and counts as such.
#[derive(Debug)]
pub struct QuotaReservation {
    reserved: Arc<Mutex<u64>>,
    repository: String,
    /// Maximum length of the upload, in bytes.
    pub bytes: u64,
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        let mut reserved = self.reserved.lock();
        *reserved = reserved.saturating_sub(self.bytes);
    }
}

impl Quotas {
    pub fn new(chosen: Quota) -> Self {
        Self { chosen, reserved: Mutex::default() }
    }

    /// Returns how much of its quota a repository uses, or `None` if it has no quota. Blocks.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn usage(&self, repository: &Repository) -> Result<Option<QuotaUsage>, HttpProblem> {
        let Some(quota_bytes) = self.quota_of(repository.name()) else { return Ok(None) };
        let reserved = self.reserved_in(repository.name());
        let reserved = reserved.lock();
        let used_bytes = repository.bytes()?.saturating_add(*reserved);
        Ok(Some(QuotaUsage { used_bytes, quota_bytes }))
    }

    fn quota_of(&self, name: &str) -> Option<u64> {
        self.chosen.repositories.get(name).copied().or(self.chosen.default_bytes)
    }

    fn reserved_in(&self, name: &str) -> Arc<Mutex<u64>> {
        Arc::clone(self.reserved.lock().entry(name.to_owned()).or_default())
    }

    /// Reserves room for an upload of `length` bytes, or of up to `most` bytes if its
    /// length is unknown. Returns `None` if the repository has no quota. Blocks.
    ///
    /// # Errors
    /// [`Code::Full`] when the quota has too little room left.
    pub fn reserve(
        &self,
        repository: &Repository,
        length: Option<u64>,
        most: u64,
    ) -> Result<Option<QuotaReservation>, HttpProblem> {
        let name = repository.name();
        let Some(quota) = self.quota_of(name) else { return Ok(None) };
        let reserved = self.reserved_in(name);
        // Read the stored bytes under the lock. An upload that ends meanwhile cannot release its
        // room before the read, so its bytes count at least once.
        let mut room = reserved.lock();
        let left = quota.saturating_sub(repository.bytes()?).saturating_sub(*room);
        let bytes = length.unwrap_or(most.min(left));
        if left == 0 || bytes > left {
            return Err(full(name, quota));
        }
        *room += bytes;
        drop(room);
        Ok(Some(QuotaReservation { reserved, repository: name.to_owned(), bytes }))
    }
}

/// Creates the refusal of an upload for which the quota has too little room.
fn full(name: &str, quota: u64) -> HttpProblem {
    HttpProblem::new(Code::Full, format!("the quota of `{name}` is used up: {quota} bytes"))
}

impl QuotaReservation {
    /// Creates the refusal of an upload that turns out to be longer than its reserved room.
    pub fn exceeded(&self) -> HttpProblem {
        let why = format!(
            "the upload exceeds the quota of `{}`: {} bytes were left for it",
            self.repository, self.bytes
        );
        HttpProblem::new(Code::Full, why)
    }
}
