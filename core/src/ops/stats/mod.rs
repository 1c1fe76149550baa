//! `stats`: how much each commit added, and what the store makes of it.
//!
//! Commits are taken from the oldest on, and each object is counted for the
//! first one that has it: one bit for each object says which were met. Of each
//! commit only what differs from its parents is read.
//!
//! What an object takes on the disk is its share of the frame in which it was
//! compressed together with others: see [`Share`](crate::store::Share). So the shares of all
//! objects amount to the frames.
//!
//! | word    | meaning                                                          |
//! |---------|------------------------------------------------------------------|
//! | changed | sizes of the files that are not there like that in any parent     |
//! | new     | contents among them that no commit before had, in bytes: after deduplication |
//! | stored  | what those take: after compression                               |
//! | meta    | trees, chunk lists and the commit itself that are new            |
//!
//! A folder that is compared with the same folders again has nothing new: its
//! sums are known from the first time. So a tree that refers to one folder many
//! times, on each of its levels, takes no longer than the folders that it has.
//!
//! Memory: those bits, the ids of the commits, as many commits and files as are to
//! be listed, and up to [`limits::COMPARED_FOLDERS`] pairs of folders.

mod compared;
mod facts;
mod largest;

use std::collections::VecDeque;

use crate::{
    base::{
        id::{BlobId, CommitId},
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{
        commit::Commit,
        pack::ObjectKind,
        tree::{Entry, Kind},
    },
    ops::stats::{
        compared::{Compared, Sums},
        largest::Largest,
    },
    repo::{
        changed::{Changed, Met, Others},
        history::{History, Parents},
        past::PastError,
    },
    store::{Content, Marks, Shares, Store, StoreError},
};

pub use facts::{FrameFacts, KindFacts, StoreFacts};
pub use largest::LargeFile;

/// So much of the first line of a message is kept.
const LINE_CHARS: usize = 1000;

/// How much to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// So many of the newest commits.
    pub commits: usize,
    /// So many of the largest files.
    pub files: usize,
}

/// What one commit, or all of them, added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Files that changed or are new.
    pub changed_files: u64,
    /// Their size.
    pub changed_bytes: u64,
    /// New contents, chunk by chunk.
    pub data: Shares,
    /// New trees, chunk lists and commits.
    pub meta: Shares,
}

/// What one commit added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStats {
    /// Its id.
    pub id: CommitId,
    /// When it was made.
    pub time: Time,
    /// How the first line of its message begins: at most 1,000 characters.
    pub message: String,
    /// Sizes of all its files.
    pub bytes: u64,
    /// What it added.
    pub added: Added,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The newest commits, newest first.
    pub commits: Vec<CommitStats>,
    /// How many there are.
    pub commit_count: u64,
    /// Sizes of the files of all commits together.
    pub snapshot_bytes: u64,
    /// What all of them added.
    pub added: Added,
    /// The largest contents, largest first.
    pub files: Vec<LargeFile>,
    /// The packs, whatever they hold.
    pub store: StoreFacts,
}

/// Counts the commits of `starts` and all before them.
///
/// # Errors
/// [`PastError`] names the commit and the path that cannot be read.
pub fn run(
    store: &Store,
    starts: &[CommitId],
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome, PastError> {
    let mut ids = Vec::new();
    for step in History::new(store, starts, Parents::All)? {
        if observer.cancelled() {
            return Err(PastError::Interrupted);
        }
        ids.push(step?.0);
    }
    observer.phase(Phase::History, Some(ids.len() as u64));
    let largest = Largest::new(options.files);
    let compared = Compared::new(limits::COMPARED_FOLDERS);
    let mut count = Count { store, observer, met: Marks::new(store), largest, compared };
    let mut outcome = Outcome::default();
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
    store.tell_repairs(observer);
    Ok(outcome)
}

impl Outcome {
    /// How many times smaller deduplication makes the contents, to two decimals;
    /// `None` where there are none.
    pub fn dedup_ratio(&self) -> Option<f64> {
        ratio(self.snapshot_bytes, self.added.data.raw_bytes)
    }

    /// How many times smaller compression makes what is left of them.
    pub fn compression_ratio(&self) -> Option<f64> {
        ratio(self.added.data.raw_bytes, self.added.data.stored_bytes())
    }

    fn add(&mut self, commit: &Commit, added: &Added) {
        self.commit_count += 1;
        self.snapshot_bytes = self.snapshot_bytes.saturating_add(commit.totals.bytes);
        let all = &mut self.added;
        all.changed_files = all.changed_files.saturating_add(added.changed_files);
        all.changed_bytes = all.changed_bytes.saturating_add(added.changed_bytes);
        all.data.add_all(&added.data);
        all.meta.add_all(&added.meta);
    }
}

fn ratio(of: u64, to: u64) -> Option<f64> {
    let ratio = of as f64 / to as f64;
    (to > 0).then(|| (ratio * 100.0).round() / 100.0)
}

/// Counting under way.
struct Count<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    met: Marks,
    largest: Largest,
    compared: Compared,
}

impl Count<'_> {
    fn commit(&mut self, id: CommitId, commit: &Commit) -> Result<Added, PastError> {
        let mut added = Added::default();
        if self.met.mark(&id.object())? {
            added.meta.add(&self.store.share(&id.object(), ObjectKind::Commit)?);
        }
        let mut others = Vec::with_capacity(commit.parents.len());
        for parent in &commit.parents {
            others.push(self.store.commit(parent)?.tree);
        }
        let mut changed = Changed::new(self.store, (id, commit.tree), &others, self.observer);
        while let Some(met) = changed.step()? {
            let counted = match met {
                Met::Nodes(nodes) => nodes.into_iter().try_for_each(|node| {
                    if self.met.mark(&node.object())? {
                        added.meta.add(&self.store.share(&node.object(), ObjectKind::Tree)?);
                    }
                    Ok(())
                }),
                Met::Entry(entry, others) => {
                    self.compared.leave(changed.depth());
                    match self.entry(&entry, others, &mut added) {
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
        others: Others,
        added: &mut Added,
    ) -> Result<Inside, StoreError> {
        match entry.kind {
            Kind::File { size, id } => {
                self.compared.add(Sums { files: 1, bytes: size });
                let is_new = self.content(&id, added)?;
                Ok(Inside::New { content: is_new.then_some((size, id)) })
            }
            // A folder that was met elsewhere has nothing new in it, so its
            // totals will do.
            Kind::Folder { id }
                if others == Others::Nothing && self.met.is_marked(&id.object())? =>
            {
                let totals = *self.store.tree(&id)?.totals();
                self.compared.add(Sums { files: totals.files, bytes: totals.bytes });
                Ok(Inside::Known)
            }
            _ => Ok(Inside::New { content: None }),
        }
    }

    /// Counts a content. Returns whether it is new.
    fn content(&self, id: &BlobId, added: &mut Added) -> Result<bool, StoreError> {
        if !self.met.mark(&id.object())? {
            return Ok(false);
        }
        let share = self.store.share(&id.object(), ObjectKind::Blob)?;
        if share.kind != ObjectKind::ChunkList {
            added.data.add(&share);
            return Ok(true);
        }
        added.meta.add(&share);
        if let Content::Chunks(chunks) = self.store.content(id)? {
            for chunk in chunks {
                let chunk = chunk.id.object();
                if self.met.mark(&chunk)? {
                    added.data.add(&self.store.share(&chunk, ObjectKind::Blob)?);
                }
            }
        }
        Ok(true)
    }
}

/// What there is to be done about an entry.
enum Inside {
    /// What is in it need not be looked at.
    Known,
    /// It does, or it is a file; `content` when that is new.
    New { content: Option<(u64, BlobId)> },
}
