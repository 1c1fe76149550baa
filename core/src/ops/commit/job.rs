//! What all tasks of one commit share.

use std::{
    io,
    path::Path,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use rustix::io::Errno;

use crate::{
    base::observe::{Note, Observer},
    chunk::Params,
    format::{chunk_list::Piece, selection::UnreadPaths, tree::Xattr},
    local::{
        attributes::{XattrTarget, read_xattrs},
        fingerprint::Manner,
        ignore::Rules,
        owners::Owners,
        stat_cache::StatCache,
    },
    ops::commit::{CommitError, Content},
    store::Writer,
};

/// What all tasks of one commit share.
pub(super) struct Job<'a> {
    pub(super) writer: &'a Writer<'a>,
    pub(super) cache: &'a StatCache,
    pub(super) rules: &'a Rules,
    pub(super) owners: Owners,
    pub(super) params: Params,
    pub(super) content: Content,
    pub(super) observer: &'a dyn Observer,
    pub(super) counts: Counts,
    /// Paths in the snapshot that are left out because they cannot be read.
    pub(super) unread: Mutex<UnreadPaths>,
    /// Batches of chunks that are being compressed, over all files.
    pub(super) batches: AtomicUsize,
    /// The largest chunk, if it is all zeros, once it was added.
    pub(super) zeros: OnceLock<Piece>,
    /// Buffers of batches that are done.
    pub(super) buffers: Mutex<Vec<Vec<u8>>>,
    stop: AtomicBool,
    failure: Mutex<Option<CommitError>>,
}

/// What a commit came across.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) new: AtomicU64,
    pub(super) changed: AtomicU64,
    pub(super) unmodified: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) changing: AtomicU64,
    pub(super) without_attributes: AtomicU64,
    pub(super) bytes_read: AtomicU64,
}

/// Adds to a count.
pub(super) fn count(which: &AtomicU64, more: u64) {
    which.fetch_add(more, Ordering::Relaxed);
}

impl<'a> Job<'a> {
    pub(super) fn new(
        writer: &'a Writer<'a>,
        cache: &'a StatCache,
        rules: &'a Rules,
        (params, content): (Params, Content),
        observer: &'a dyn Observer,
    ) -> Self {
        Self {
            writer,
            cache,
            rules,
            owners: Owners::default(),
            params,
            content,
            observer,
            counts: Counts::default(),
            unread: Mutex::default(),
            batches: AtomicUsize::new(0),
            zeros: OnceLock::new(),
            buffers: Mutex::default(),
            stop: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// What beside a listing decides over a folder's tree.
    pub(super) fn manner(&self) -> Manner {
        Manner {
            reproducible: self.content == Content::Reproducible,
            one_file_system: self.rules.options().one_file_system,
        }
    }

    /// The lane of the thread that calls.
    pub(super) fn lane() -> usize {
        rayon::current_thread_index().unwrap_or(0)
    }

    /// Whether there is no point in going on.
    pub(super) fn stopped(&self) -> bool {
        if self.observer.cancelled() {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the commit with an error; the first one counts.
    pub(super) fn fail(&self, error: CommitError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the commit failed or was cancelled.
    pub(super) fn outcome(&self) -> Result<(), CommitError> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None if self.stopped() => Err(CommitError::Interrupted),
            None => Ok(()),
        }
    }

    /// Tells that something is committed without its extended attributes.
    pub(super) fn lose_attributes(&self, path: &Path, error: &io::Error) {
        count(&self.counts.without_attributes, 1);
        self.observer.note(Note::AttributesUnread { path, error });
    }

    /// Reads the extended attributes at a path; tells when it has none for an
    /// error.
    pub(super) fn xattrs_at(&self, path: &Path) -> Vec<Xattr> {
        read_xattrs(XattrTarget::Path(path)).unwrap_or_else(|error| {
            self.lose_attributes(path, &error);
            Vec::new()
        })
    }

    /// Reports that a path cannot be read and is left out; `inside` is its
    /// path in the snapshot, `path` the one to show.
    pub(super) fn skip(
        &self,
        inside: &[u8],
        path: &Path,
        error: &(dyn std::error::Error + 'static),
    ) {
        // The process is short of something; the entry itself can be read.
        let code = error.downcast_ref().and_then(io::Error::raw_os_error);
        let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        if let Some(errno) = shortages.into_iter().find(|errno| Some(errno.raw_os_error()) == code)
        {
            let path = path.to_owned();
            return self.fail(CommitError::Source { path, source: errno.into() });
        }
        count(&self.counts.skipped, 1);
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).insert(inside);
        self.observer.note(Note::Skipped { path, error });
    }
}
