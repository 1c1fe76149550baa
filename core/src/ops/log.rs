//! `log`: lists commits, newest first.

use std::num::NonZeroU64;

use crate::{
    base::{id::CommitId, time::Time},
    format::commit::Commit,
    repo::history::{History, HistoryStep, Parents},
    store::{Store, StoreError},
};

/// Selects the commits to list.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Selects the parents to follow.
    pub parents: Parents,
    /// Commits that are omitted with all their ancestors.
    pub excluded: Vec<CommitId>,
    /// Maximum number of commits.
    pub limit: Option<NonZeroU64>,
    /// Selects the commits to list.
    pub filter: CommitFilter,
}

/// Selects commits. All conditions that are set must hold.
#[derive(Clone, Debug, Default)]
pub struct CommitFilter {
    /// Omits commits older than this.
    pub since: Option<Time>,
    /// Omits commits newer than this.
    pub until: Option<Time>,
    /// The author contains this text.
    pub author: Option<String>,
    /// The host has this name.
    pub host: Option<String>,
    /// The message contains this text.
    pub message: Option<String>,
    /// The commit has each of these labels with this value; `None` allows any value.
    pub labels: Vec<(String, Option<String>)>,
}

impl CommitFilter {
    /// Returns true if the filter selects the commit.
    pub fn selects(&self, commit: &Commit) -> bool {
        let contains = |text: &str, part: &Option<String>| {
            part.as_ref().is_none_or(|part| text.contains(part))
        };
        self.since.is_none_or(|since| commit.time >= since)
            && self.until.is_none_or(|until| commit.time <= until)
            && self.host.as_ref().is_none_or(|host| *host == commit.host)
            && contains(&commit.author, &self.author)
            && contains(&commit.message, &self.message)
            && self.labels.iter().all(|(key, wanted)| {
                let value = commit.labels.get(key);
                value.is_some_and(|value| wanted.as_ref().is_none_or(|wanted| wanted == value))
            })
    }
}

/// An iterator over commits of one or several lines of history, which are read on demand.
#[derive(Debug)]
pub struct CommitLog<'a> {
    history: History<'a>,
    left: u64,
    filter: CommitFilter,
}

/// Lists `starts` and their ancestors, each commit once.
///
/// The iterator reads a commit only when it reaches it. The first commits of a long history
/// therefore cost no more than those of a short one. With a filter, the whole history is read
/// unless the limit is reached first.
///
/// # Errors
/// [`StoreError`] when a start cannot be read. The iterator returns errors of later
/// commits.
pub fn run<'a>(
    store: &'a Store,
    starts: &[CommitId],
    options: &LogOptions,
) -> Result<CommitLog<'a>, StoreError> {
    let history = History::without(store, &options.excluded, starts, options.parents)?;
    let left = options.limit.map_or(u64::MAX, NonZeroU64::get);
    Ok(CommitLog { history, left, filter: options.filter.clone() })
}

/// Leaves out forgotten commits.
pub fn kept(log: CommitLog<'_>) -> impl Iterator<Item = Result<HistoryStep, StoreError>> {
    log.filter(|step| step.as_ref().map_or(true, |step| !step.is_forgotten))
}

impl Iterator for CommitLog<'_> {
    type Item = Result<HistoryStep, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        loop {
            let step = match self.history.next()? {
                Ok(step) => step,
                Err(error) => return Some(Err(error)),
            };
            // A parent may be newer than its child, so an old commit does not end the
            // list.
            if self.filter.selects(&step.commit) {
                return Some(Ok(step));
            }
        }
    }
}
