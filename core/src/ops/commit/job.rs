//! The state that all tasks of one commit share.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::{
    base::{
        blocked::Blocked,
        observe::{Note, Observer},
    },
    format::{selection::UnreadPaths, tree::Xattr},
    local::{
        attributes::{XattrTarget, read_saved_xattrs},
        cut::CutBuffers,
        fingerprint::TreeOptions,
        ignore::IgnoreRules,
        owners::Owners,
        stat_cache::StatCache,
        unfinished::UnfinishedRestore,
    },
    ops::commit::{CommitError, CommitOutcome, FileChanges, MetadataLevel},
    store::ObjectWriter,
};

/// The state that all tasks of one commit share.
pub(super) struct CommitJob<'a> {
    pub(super) writer: &'a ObjectWriter<'a>,
    pub(super) cache: &'a StatCache,
    pub(super) rules: &'a IgnoreRules,
    pub(super) owners: Owners,
    pub(super) content: MetadataLevel,
    pub(super) observer: &'a dyn Observer,
    /// The totals so far, except `bytes_read`.
    pub(super) outcome: Mutex<CommitOutcome>,
    /// Bytes that were read from files. An atomic, since every file adds to it.
    bytes_read: AtomicU64,
    /// Paths in the snapshot that are left out because they cannot be read.
    pub(super) unread: Mutex<UnreadPaths>,
    /// The memory for batches of chunks.
    pub(super) buffers: CutBuffers,
    stop: AtomicBool,
    failure: Mutex<Option<CommitError>>,
}

impl<'a> CommitJob<'a> {
    pub(super) fn new(
        writer: &'a ObjectWriter<'a>,
        cache: &'a StatCache,
        rules: &'a IgnoreRules,
        content: MetadataLevel,
        observer: &'a dyn Observer,
    ) -> Self {
        Self {
            writer,
            cache,
            rules,
            owners: Owners::default(),
            content,
            observer,
            outcome: Mutex::default(),
            bytes_read: AtomicU64::new(0),
            unread: Mutex::default(),
            buffers: CutBuffers::default(),
            stop: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// Adds to the counts of files.
    pub(super) fn count_files(&self, changes: FileChanges) {
        self.outcome.lock().files += changes;
    }

    /// Counts bytes that were read from files.
    pub(super) fn count_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the totals.
    pub(super) fn into_outcome(self) -> CommitOutcome {
        let bytes_read = self.bytes_read.into_inner();
        CommitOutcome { bytes_read, ..self.outcome.into_inner() }
    }

    /// Returns the settings that, besides a listing, determine a folder's tree.
    pub(super) fn tree_options(&self) -> TreeOptions {
        TreeOptions {
            reproducible: self.content == MetadataLevel::Reproducible,
            one_file_system: self.rules.options().one_file_system,
        }
    }

    /// Returns the lane of the object writer that the calling thread uses.
    pub(super) fn lane() -> usize {
        rayon::current_thread_index().unwrap_or(0)
    }

    /// Returns true if the commit must stop.
    pub(super) fn stopped(&self) -> bool {
        if self.observer.cancelled() {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the commit with an error. Only the first error is kept.
    pub(super) fn fail(&self, error: CommitError) {
        self.failure.lock().get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the commit failed or was cancelled.
    pub(super) fn check(&self) -> Result<(), CommitError> {
        match self.failure.lock().take() {
            Some(error) => Err(error),
            None if self.stopped() => Err(Blocked::Interrupted.into()),
            None => Ok(()),
        }
    }

    /// Reports an entry that is committed without its extended attributes. If an interrupted
    /// restore left the entry unfinished, fails the commit: the mode is provisional, too.
    pub(super) fn lose_attributes(&self, path: &Path, error: &io::Error) {
        if UnfinishedRestore::is_behind(error) {
            return self.fail(CommitError::Unfinished { path: path.to_owned() });
        }
        self.outcome.lock().without_attributes += 1;
        self.observer.note(Note::AttributesUnread { path, error });
    }

    /// Reads the extended attributes at a path. On an error, reports it and returns none.
    pub(super) fn xattrs_at(&self, path: &Path) -> Vec<Xattr> {
        read_saved_xattrs(XattrTarget::Path(path)).unwrap_or_else(|error| {
            self.lose_attributes(path, &error);
            Vec::new()
        })
    }

    /// Reports a path that is left out because it cannot be read. `inside` is its path in
    /// the snapshot, and `path` is the path for messages.
    pub(super) fn skip(
        &self,
        inside: &[u8],
        path: &Path,
        error: &(dyn std::error::Error + 'static),
    ) {
        // If the process has run out of a resource, the entry itself may be readable.
        let code = error.downcast_ref().and_then(io::Error::raw_os_error);
        let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        if let Some(errno) = shortages.into_iter().find(|errno| Some(errno.raw_os_error()) == code)
        {
            let path = path.to_owned();
            return self.fail(CommitError::Source { path, source: errno.into() });
        }
        self.outcome.lock().skipped += 1;
        self.unread.lock().insert(inside);
        self.observer.note(Note::Skipped { path, error });
    }
}
