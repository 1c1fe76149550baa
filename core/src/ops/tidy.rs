//! `tidy`: what keeps a store fast as it ages, after the work is done.

use crate::{
    base::observe::Observer,
    repo::Repo,
    store::{StoreError, compact},
};

/// What happened.
pub use crate::store::compact::Outcome;

/// Merges small packs where there are many. Nothing depends on it.
///
/// # Errors
/// [`StoreError`]; the store is as it was, or has some objects twice.
pub fn run(repo: &Repo, observer: &dyn Observer) -> Result<Outcome, StoreError> {
    compact::run(repo.store(), repo.config().compression.level, observer)
}
