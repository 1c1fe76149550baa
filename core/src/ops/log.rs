//! `log`: lists commits, newest first.

use std::num::NonZeroU64;

use crate::{
    base::{id::CommitId, time::Time},
    format::commit::Commit,
    repo::history::{History, Parents},
    store::{Store, StoreError},
};

/// Selects the commits to list.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The parents that are followed.
    pub parents: Parents,
    /// The maximum number of commits.
    pub limit: Option<NonZeroU64>,
    /// Omits commits older than this.
    pub since: Option<Time>,
    /// Omits commits newer than this.
    pub until: Option<Time>,
}

/// An iterator over commits of one or several lines of history, which are read on demand.
#[derive(Debug)]
pub struct CommitLog<'a> {
    history: History<'a>,
    left: u64,
    since: Option<Time>,
    until: Option<Time>,
}

/// Lists `starts` and their ancestors, each commit once.
///
/// A commit is read only when the iterator reaches it, so the first commits of a long history cost
/// no more than those of a short one. With `since`, the whole history is read unless the
/// limit is reached first.
///
/// # Errors
/// [`StoreError`] when a start cannot be read. The iterator returns errors of later
/// commits.
pub fn run<'a>(
    store: &'a Store,
    starts: &[CommitId],
    options: &LogOptions,
) -> Result<CommitLog<'a>, StoreError> {
    let LogOptions { parents, limit, since, until } = *options;
    let history = History::new(store, starts, parents)?;
    Ok(CommitLog { history, left: limit.map_or(u64::MAX, NonZeroU64::get), since, until })
}

impl Iterator for CommitLog<'_> {
    type Item = Result<(CommitId, Commit), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        loop {
            let (id, commit) = match self.history.next()? {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            // A parent may be newer than its child, so an old commit does not end the
            // list.
            let is_older = self.since.is_some_and(|since| commit.time < since);
            let is_newer = self.until.is_some_and(|until| commit.time > until);
            if !is_older && !is_newer {
                return Some(Ok((id, commit)));
            }
        }
    }
}
