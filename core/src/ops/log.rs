//! `log`: commits, newest first.

use std::num::NonZeroU64;

use crate::{
    base::{id::CommitId, time::Time},
    format::commit::Commit,
    repo::history::{History, Parents},
    store::{Store, StoreError},
};

/// Which commits to list.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which parents to follow.
    pub parents: Parents,
    /// At most so many.
    pub limit: Option<NonZeroU64>,
    /// None older than this.
    pub since: Option<Time>,
    /// None newer than this.
    pub until: Option<Time>,
}

/// Commits of one or several lines of history, read as they are asked for.
#[derive(Debug)]
pub struct Log<'a> {
    history: History<'a>,
    left: u64,
    since: Option<Time>,
    until: Option<Time>,
}

/// Lists `starts` and what came before them, each commit once.
///
/// Reads a commit only when its turn comes, so the first ones of a long
/// history cost no more than those of a short one. With `since` all of history
/// is read, unless the limit ends the list before.
///
/// # Errors
/// [`StoreError`] when a start cannot be read; later ones as the list goes.
pub fn run<'a>(
    store: &'a Store,
    starts: &[CommitId],
    options: &Options,
) -> Result<Log<'a>, StoreError> {
    let Options { parents, limit, since, until } = *options;
    let history = History::new(store, starts, parents)?;
    Ok(Log { history, left: limit.map_or(u64::MAX, NonZeroU64::get), since, until })
}

impl Iterator for Log<'_> {
    type Item = Result<(CommitId, Commit), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        loop {
            let (id, commit) = match self.history.next()? {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            // A parent may be newer than its child, so an old commit ends nothing.
            let is_older = self.since.is_some_and(|since| commit.time < since);
            let is_newer = self.until.is_some_and(|until| commit.time > until);
            if !is_older && !is_newer {
                return Some(Ok((id, commit)));
            }
        }
    }
}
