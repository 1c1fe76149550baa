//! `stats`: counts how much each commit added, and what it takes in the store.
//!
//! Commits are processed from the oldest on. Each object is counted for the first commit
//! that contains it; one bit for each object records this. Of each commit, only the parts
//! that differ from its parents are read.
//!
//! The stored size of an object is its share of the frame in which it was compressed
//! together with others (see [`DiskUsageSum`]). The shares of all objects therefore add up to the frames.
//!
//! | word    | meaning                                                          |
//! |---------|------------------------------------------------------------------|
//! | changed | total size of the files that differ from all parents              |
//! | new     | contents among them that no earlier commit has, in bytes: after deduplication |
//! | stored  | what the new contents take after compression                      |
//! | meta    | new trees, chunk lists and the commit itself                      |
//!
//! If a folder is compared with the same folders again, it has nothing new, and its sums
//! are known from the first time. A tree that refers to one folder many times on each
//! level therefore takes no longer than its distinct folders.
//!
//! Memory holds one bit for each object, the ids of the commits, the commits and files to list, and
//! up to [`limits::COMPARED_FOLDERS`] pairs of folders.

mod compared;
mod facts;
mod largest;

use std::collections::VecDeque;

use crate::{
    base::{
        id::{CommitId, ContentId},
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{
        commit::Commit,
        pack::ObjectKind,
        tree::{Entry, EntryKind},
    },
    ops::stats::{
        compared::{FolderSums, Sums},
        largest::Largest,
    },
    repo::{
        changed::{Changed, ChangedItem},
        history::{History, Parents, nearest_kept},
        past::PastError,
    },
    store::{Descend, DiskUsageSum, Marks, Store, StoreError},
};

pub use facts::{FrameFacts, KindFacts, StoreFacts};
pub use largest::LargeFile;

/// Maximum number of characters that are kept of the first line of a message.
const LINE_CHARS: usize = 1000;

/// Limits of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsOptions {
    /// Number of newest commits to list.
    pub commits: usize,
    /// Number of largest files to list.
    pub files: usize,
}

/// The data that one commit, or all commits, added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedData {
    /// Files that changed or are new.
    pub changed_files: u64,
    /// Total size of these files in bytes.
    pub changed_bytes: u64,
    /// New contents, chunk by chunk.
    pub data: DiskUsageSum,
    /// New trees, chunk lists and commits.
    pub meta: DiskUsageSum,
}

/// The data that one commit added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStats {
    pub id: CommitId,
    /// Time of the commit.
    pub time: Time,
    /// The start of the first line of its message, at most 1,000 characters.
    pub message: String,
    /// Total size of the commit's files in bytes.
    pub bytes: u64,
    /// The data that the commit added.
    pub added: AddedData,
}

/// The result of `stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsOutcome {
    /// The newest commits, newest first.
    pub commits: Vec<CommitStats>,
    /// Number of all commits, without forgotten ones.
    pub commit_count: u64,
    /// Number of forgotten commits. Nothing else counts them.
    pub forgotten_commits: u64,
    /// Total size in bytes of the files of all commits, each commit counted in full.
    pub snapshot_bytes: u64,
    /// The data that all commits added.
    pub added: AddedData,
    /// The largest contents, largest first.
    pub files: Vec<LargeFile>,
    /// Totals of all packs, including objects that no commit refers to.
    pub store: StoreFacts,
}

/// Counts the commits of `starts` and all their ancestors.
///
/// # Errors
/// [`PastError`] with the commit and the path that cannot be read.
pub fn run(
    store: &Store,
    starts: &[CommitId],
    options: &StatsOptions,
    observer: &dyn Observer,
) -> Result<StatsOutcome, PastError> {
    let (mut ids, mut forgotten) = (Vec::new(), 0);
    for step in History::new(store, starts, Parents::All)? {
        observer.check()?;
        let step = step?;
        match step.is_forgotten {
            true => forgotten += 1,
            false => ids.push(step.id),
        }
    }
    observer.phase(Phase::History, Some(ids.len() as u64));
    let largest = Largest::new(options.files);
    let compared = FolderSums::new(limits::COMPARED_FOLDERS);
    let mut count = StatsWalk { store, observer, met: Marks::new(store), largest, compared };
    let mut outcome = StatsOutcome { forgotten_commits: forgotten, ..StatsOutcome::default() };
    let mut newest = VecDeque::new();
    for id in ids.into_iter().rev() {
        let commit = store.commit(&id)?;
        let added = count.commit(id, &commit)?;
        outcome.add(&commit, &added);
        if options.commits > 0 {
            if newest.len() == options.commits {
                newest.pop_front();
            }
            let line = commit.message.lines().next().unwrap_or_default();
            let message = line.chars().take(LINE_CHARS).collect();
            let (time, bytes) = (commit.time, commit.totals.bytes);
            newest.push_back(CommitStats { id, time, message, bytes, added });
        }
        observer.advance(1, 0);
    }
    outcome.commits = newest.into_iter().rev().collect();
    outcome.files = count.largest.into_sorted();
    outcome.store = StoreFacts::of(store, observer)?;
    store.report_repairs(observer);
    Ok(outcome)
}

impl StatsOutcome {
    /// Returns the factor by which deduplication reduces the contents, rounded to two
    /// decimals. Returns `None` if there are none.
    pub fn dedup_ratio(&self) -> Option<f64> {
        ratio(self.snapshot_bytes, self.added.data.raw_bytes)
    }

    /// Returns the factor by which compression reduces the deduplicated contents.
    pub fn compression_ratio(&self) -> Option<f64> {
        ratio(self.added.data.raw_bytes, self.added.data.stored_bytes())
    }

    fn add(&mut self, commit: &Commit, added: &AddedData) {
        self.commit_count += 1;
        self.snapshot_bytes = self.snapshot_bytes.saturating_add(commit.totals.bytes);
        let all = &mut self.added;
        all.changed_files = all.changed_files.saturating_add(added.changed_files);
        all.changed_bytes = all.changed_bytes.saturating_add(added.changed_bytes);
        all.data.add(&added.data);
        all.meta.add(&added.meta);
    }
}

fn ratio(of: u64, to: u64) -> Option<f64> {
    let ratio = of as f64 / to as f64;
    (to > 0).then(|| (ratio * 100.0).round() / 100.0)
}

/// The state of counting.
struct StatsWalk<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    met: Marks,
    largest: Largest,
    compared: FolderSums,
}

impl StatsWalk<'_> {
    fn commit(&mut self, id: CommitId, commit: &Commit) -> Result<AddedData, PastError> {
        let mut added = AddedData::default();
        if self.met.mark(&id.object())? {
            added.meta.add(&self.store.disk_usage(&id.object(), ObjectKind::Commit)?);
        }
        let mut others = Vec::with_capacity(commit.parents.len());
        for parent in &commit.parents {
            others.extend(nearest_kept(self.store, *parent)?.map(|(_, commit)| commit.tree));
        }
        let mut changed = Changed::new(self.store, id, commit.tree, &others, self.observer);
        while let Some(met) = changed.step()? {
            let counted = match met {
                ChangedItem::Nodes(nodes) => nodes.into_iter().try_for_each(|node| {
                    if self.met.mark(&node.object())? {
                        added.meta.add(&self.store.disk_usage(&node.object(), ObjectKind::Tree)?);
                    }
                    Ok(())
                }),
                ChangedItem::Entry { entry, is_new_name } => {
                    self.compared.leave(changed.depth());
                    match self.entry(&entry, is_new_name, &mut added) {
                        Ok(Inside::Known) => {
                            changed.skip();
                            Ok(())
                        }
                        Ok(Inside::New { content }) => {
                            self.largest.add(content, changed.path(), id);
                            if let Some(folder) = changed.ahead()
                                && self.compared.enter(changed.depth(), folder)
                            {
                                changed.skip();
                            }
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            counted.map_err(PastError::at(changed.path(), id))?;
        }
        let sums = self.compared.finish();
        (added.changed_files, added.changed_bytes) = (sums.files, sums.bytes);
        Ok(added)
    }

    fn entry(
        &mut self,
        entry: &Entry,
        is_new_name: bool,
        added: &mut AddedData,
    ) -> Result<Inside, StoreError> {
        match entry.kind {
            EntryKind::File { size, id } => {
                self.compared.add(Sums { files: 1, bytes: size });
                let is_new = self.content(&id, added)?;
                Ok(Inside::New { content: is_new.then_some((size, id)) })
            }
            // A folder that was counted before has nothing new in it, so its totals are
            // enough.
            EntryKind::Folder { id } if is_new_name && self.met.is_marked(&id.object())? => {
                let totals = *self.store.tree(&id)?.totals();
                self.compared.add(Sums { files: totals.files, bytes: totals.bytes });
                Ok(Inside::Known)
            }
            _ => Ok(Inside::New { content: None }),
        }
    }

    /// Counts a content. Returns true if it is new.
    fn content(&self, id: &ContentId, added: &mut AddedData) -> Result<bool, StoreError> {
        let store = self.store;
        if !self.met.mark(&id.object())? {
            return Ok(false);
        }
        let usage = store.disk_usage(&id.object(), ObjectKind::of_content(*id))?;
        let ContentId::Chunked(list) = id else {
            added.data.add(&usage);
            return Ok(true);
        };
        added.meta.add(&usage);
        store.for_each_named::<StoreError>(list, &mut |id, kind| {
            if !self.met.mark(&id)? {
                return Ok(Descend::Skip);
            }
            let sum = if kind == ObjectKind::Blob { &mut added.data } else { &mut added.meta };
            sum.add(&store.disk_usage(&id, kind)?);
            Ok(Descend::Enter)
        })?;
        Ok(true)
    }
}

/// How much of an entry must be read.
enum Inside {
    /// A folder whose contents were counted before and can be skipped.
    Known,
    /// A file, or a folder whose contents must be read. `content` is set if the content is new.
    New { content: Option<(u64, ContentId)> },
}
