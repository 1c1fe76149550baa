//! How much each repository may hold. What is on its way in counts as if it were
//! there, so several that come at once do not get past it together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
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
    coming: Mutex<HashMap<String, u64>>,
}

/// Room for a pack, free again when this is dropped: by then the pack is there,
/// or it will not come.
#[derive(Debug)]
pub struct Room {
    quotas: Arc<Quotas>,
    repository: String,
    /// How long the pack may be.
    pub bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut coming = self.quotas.coming.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = coming.get_mut(&self.repository) {
            *bytes = bytes.saturating_sub(self.bytes);
            if *bytes == 0 {
                coming.remove(&self.repository);
            }
        }
    }
}

impl Quotas {
    /// As was chosen.
    pub fn new(chosen: Quota) -> Self {
        Self { chosen, coming: Mutex::default() }
    }

    /// Room for a pack of `length` bytes, or of `most` if its length was not
    /// said; `None` where there is no quota. Blocks.
    ///
    /// # Errors
    /// [`Code::Full`] when there is not so much.
    pub fn room(
        self: &Arc<Self>,
        repository: &Repository,
        length: Option<u64>,
        most: u64,
    ) -> Result<Option<Room>, Problem> {
        let name = repository.name();
        let quota = self.chosen.repositories.get(name).copied().or(self.chosen.default_bytes);
        let Some(quota) = quota else { return Ok(None) };
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        let there: u64 = repository.packs()?.iter().map(|(_, bytes)| bytes).sum();
        let on_its_way = coming.get(name).copied().unwrap_or(0);
        let left = quota.saturating_sub(there).saturating_sub(on_its_way);
        let bytes = length.unwrap_or(most.min(left));
        if left == 0 || bytes > left {
            return Err(full(name, quota));
        }
        *coming.entry(name.to_owned()).or_default() += bytes;
        let (quotas, repository) = (Arc::clone(self), name.to_owned());
        Ok(Some(Room { quotas, repository, bytes }))
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
