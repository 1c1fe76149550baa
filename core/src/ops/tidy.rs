//! `tidy`: keeps a store fast as it ages. Runs after the work of a command is done.

use crate::{
    base::observe::Observer,
    repo::Repo,
    store::{StoreError, compact},
};

pub use crate::store::compact::CompactOutcome;

/// Merges small packs if there are many. The store is correct without it.
///
/// # Errors
/// [`StoreError`]. The store is then unchanged, or has some objects twice.
pub fn run(repo: &Repo, observer: &dyn Observer) -> Result<CompactOutcome, StoreError> {
    compact::run(repo.store(), repo.config().compression_level, observer)
}
