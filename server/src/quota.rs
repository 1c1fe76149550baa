//! How much each repository may hold. What is on its way in counts as if it were
//! there, so several that come at once do not get past it together; what has come in
//! part counts as if it were whole.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    problem::{Code, Problem},
    repository::Repository,
    settings::Quota,
};

/// What is left to repositories.
#[derive(Debug)]
pub struct Quotas {
    chosen: Quota,
    /// Bytes that are on their way, of each.
    coming: Mutex<HashMap<String, Arc<Mutex<u64>>>>,
}

/// Room for something, free again when this is dropped: by then it is there, or
/// it will not come.
#[derive(Debug)]
pub struct Room {
    coming: Arc<Mutex<u64>>,
    repository: String,
    /// How long it may be.
    pub bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut coming = lock(&self.coming);
        *coming = coming.saturating_sub(self.bytes);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Quotas {
    /// As was chosen.
    pub fn new(chosen: Quota) -> Self {
        Self { chosen, coming: Mutex::default() }
    }

    /// Room for something of `length` bytes, or of `most` if its length was not
    /// said; `None` where there is no quota. Blocks.
    ///
    /// # Errors
    /// [`Code::Full`] when there is not so much.
    pub fn room(
        &self,
        repository: &Repository,
        length: Option<u64>,
        most: u64,
    ) -> Result<Option<Room>, Problem> {
        self.make(repository, (length, most), None)
    }

    /// The same for what is to be of `length` bytes and may be here in part.
    ///
    /// # Errors
    /// As [`room`](Self::room).
    pub fn room_for_rest(
        &self,
        repository: &Repository,
        hash: &blake3::Hash,
        length: u64,
    ) -> Result<Option<Room>, Problem> {
        self.make(repository, (Some(length), length), Some(hash))
    }

    fn make(
        &self,
        repository: &Repository,
        (length, most): (Option<u64>, u64),
        besides: Option<&blake3::Hash>,
    ) -> Result<Option<Room>, Problem> {
        let name = repository.name();
        let quota = self.chosen.repositories.get(name).copied().or(self.chosen.default_bytes);
        let Some(quota) = quota else { return Ok(None) };
        let of_it = Arc::clone(lock(&self.coming).entry(name.to_owned()).or_default());
        // What is there is looked at under the lock: whatever ends to be on its
        // way meanwhile counts once at least.
        let mut coming = lock(&of_it);
        let free = |coming| {
            let there = repository.bytes(besides)?;
            Ok::<u64, Problem>(quota.saturating_sub(there).saturating_sub(coming))
        };
        let mut left = free(*coming)?;
        // What somebody gave up keeps nobody out.
        if length.map_or(left == 0, |length| length > left) && repository.forget_idle(besides) {
            left = free(*coming)?;
        }
        let bytes = length.unwrap_or(most.min(left));
        if left == 0 || bytes > left {
            return Err(full(name, quota));
        }
        *coming += bytes;
        drop(coming);
        Ok(Some(Room { coming: of_it, repository: name.to_owned(), bytes }))
    }
}

/// The quota of a repository is used up.
fn full(name: &str, quota: u64) -> Problem {
    Problem::new(
        Code::Full,
        format!("`{name}` may hold {quota} bytes, and there is not so much left"),
    )
}

impl Room {
    /// What is told when a pack turns out to be longer than there is room for.
    pub fn exceeded(&self) -> Problem {
        let why = format!("`{}` may hold no more than {} bytes of it", self.repository, self.bytes);
        Problem::new(Code::Full, why)
    }
}
