//! Storage quotas of repositories.
//!
//! An upload in progress counts as if it were stored, so concurrent uploads cannot exceed a quota
//! together. An unfinished upload counts with its declared length, and only once, even while a
//! request resumes it.

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
    /// The reserved room, by name of the repository.
    reserved: Mutex<HashMap<String, Arc<Mutex<ReservedRoom>>>>,
}

/// The room that is reserved in a repository.
#[derive(Debug, Default)]
struct ReservedRoom {
    /// The sum of all reservations, in bytes.
    bytes: u64,
    /// Number of requests that have reserved room for each resumable upload, by its hash. The
    /// stored parts of these uploads do not count in addition.
    uploads: HashMap<blake3::Hash, usize>,
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
    reserved: Arc<Mutex<ReservedRoom>>,
    repository: String,
    /// The resumable upload that the room is for.
    upload: Option<blake3::Hash>,
    /// Maximum length of the upload, in bytes.
    pub bytes: u64,
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        let mut reserved = self.reserved.lock();
        reserved.bytes = reserved.bytes.saturating_sub(self.bytes);
        if let Some(upload) = &self.upload
            && let Some(count) = reserved.uploads.get_mut(upload)
        {
            *count -= 1;
            if *count == 0 {
                reserved.uploads.remove(upload);
            }
        }
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
        let room = self.reserved_in(repository.name());
        let room = room.lock();
        let stored_bytes = repository.bytes(&|part| !room.uploads.contains_key(part))?;
        Ok(Some(QuotaUsage { used_bytes: stored_bytes.saturating_add(room.bytes), quota_bytes }))
    }

    fn quota_of(&self, name: &str) -> Option<u64> {
        self.chosen.repositories.get(name).copied().or(self.chosen.default_bytes)
    }

    fn reserved_in(&self, name: &str) -> Arc<Mutex<ReservedRoom>> {
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
        self.make(repository, length, most, None)
    }

    /// Like [`reserve`](Self::reserve), for an upload of `length` bytes of which the server may
    /// have a part. That part is not counted in addition.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_for_resume(
        &self,
        repository: &Repository,
        hash: &blake3::Hash,
        length: u64,
    ) -> Result<Option<QuotaReservation>, HttpProblem> {
        self.make(repository, Some(length), length, Some(hash))
    }

    fn make(
        &self,
        repository: &Repository,
        length: Option<u64>,
        most: u64,
        upload: Option<&blake3::Hash>,
    ) -> Result<Option<QuotaReservation>, HttpProblem> {
        let name = repository.name();
        let Some(quota) = self.quota_of(name) else { return Ok(None) };
        let reserved = self.reserved_in(name);
        // Read the stored bytes under the lock. An upload that ends meanwhile cannot release its
        // room before the read, so its bytes count at least once.
        let mut room = reserved.lock();
        let counts = |part: &blake3::Hash| Some(part) != upload && !room.uploads.contains_key(part);
        let free = || {
            let stored_bytes = repository.bytes(&counts)?;
            Ok::<u64, HttpProblem>(quota.saturating_sub(stored_bytes).saturating_sub(room.bytes))
        };
        let mut left = free()?;
        // Remove abandoned uploads, which must not keep others out.
        if length.map_or(left == 0, |length| length > left) && repository.forget_idle(&counts) {
            left = free()?;
        }
        let bytes = length.unwrap_or(most.min(left));
        if left == 0 || bytes > left {
            return Err(full(name, quota));
        }
        room.bytes += bytes;
        if let Some(upload) = upload {
            *room.uploads.entry(*upload).or_default() += 1;
        }
        drop(room);
        let (repository, upload) = (name.to_owned(), upload.copied());
        Ok(Some(QuotaReservation { reserved, repository, upload, bytes }))
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
