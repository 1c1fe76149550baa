//! Reads one file: hashes it, [cuts](cut) it if it is large, and stores new data.

use std::{
    cell::RefCell,
    ffi::OsStr,
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use crate::{
    base::{
        blocked::Blocked,
        id::{BlobId, ContentId},
        limits,
    },
    format::{
        acl,
        chunk_list::{BlobRef, ListObject},
        tree::Xattr,
    },
    local::{
        cut::{ChunkSink, CutError, cut},
        holes::SparseRead,
        read::{FileRead, ReadAttempt, content, read_file, read_unsized},
        scan::FileStat,
        stat_cache::{KnownContent, KnownFile, NameHash},
    },
    ops::{
        commit::{CommitError, MetadataLevel, job::CommitJob},
        file_content::equals,
    },
    store::{FileContent, StoreError},
};

/// The result of reading a file.
#[derive(Debug)]
pub(super) struct ReadFile {
    pub(super) id: ContentId,
    pub(super) size: u64,
    pub(super) xattrs: Box<[Xattr]>,
    pub(super) sparse: bool,
    /// The file's stat when it was read, if it differs from the one in the listing.
    pub(super) stat: Option<Box<FileStat>>,
}

/// The reason why a file was not read.
#[derive(Debug)]
pub(super) enum FileReadError {
    /// The file itself cannot be read, so it is left out.
    File(io::Error),
    /// The store failed or the user asked to stop, so the commit ends.
    Commit(CommitError),
}

impl From<io::Error> for FileReadError {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<StoreError> for FileReadError {
    fn from(error: StoreError) -> Self {
        Self::Commit(error.into())
    }
}

thread_local! {
    /// Buffer for reading small files.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file that was read, and problems on the way.
#[derive(Debug)]
pub(super) struct ReadOutcome {
    pub(super) file: ReadFile,
    /// True if the file changed during both attempts. The last read is kept.
    pub(super) changing: bool,
    pub(super) is_unsized: bool,
    /// The error of reading its extended attributes.
    pub(super) unread_xattrs: Option<io::Error>,
}

/// Reads a file of a folder. `stat` is the file's stat in the listing.
///
/// A file that changes meanwhile is read once more. The result is added to the stat
/// cache, or the file's entry is removed from it.
pub(super) fn read(
    job: &CommitJob<'_>,
    folder: BorrowedFd<'_>,
    name: &OsStr,
    place: NameHash,
    stat: &FileStat,
) -> Result<ReadOutcome, FileReadError> {
    let mut store = |fd: &OwnedFd, stat: &FileStat, attempt| read_content(job, fd, stat, attempt);
    let read = read_file(folder, name, stat, &mut store);
    let is_kept = |read: &FileRead<_>| read.steady && !read.is_unsized && read.xattrs.is_ok();
    let is_kept = read.as_ref().is_ok_and(is_kept);
    if !is_kept {
        job.cache.forget_file(stat);
    }
    let FileRead { content, bytes, stat: after, xattrs, sparse, read_at, steady, is_unsized } =
        read?;
    // Only the first attempt stores nothing, and only if the file was changing.
    let id = content.ok_or_else(|| io::Error::other("it changed while it was read"))?;
    let (xattrs, unread_xattrs) = match xattrs {
        Ok(xattrs) => (xattrs, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    if is_kept {
        let content = KnownContent::Is(id);
        let known = KnownFile { content, xattrs: !xattrs.is_empty(), sparse };
        job.cache.add_file(&after, place, &known, read_at);
    }
    let xattrs = job.content.keep(xattrs).into_boxed_slice();
    let stat = (after != *stat).then(|| Box::new(after));
    let file = ReadFile { id, size: bytes, xattrs, sparse, stat };
    Ok(ReadOutcome { file, changing: !steady, is_unsized, unread_xattrs })
}

/// Reads, hashes and stores a file. If a small file has another length than in the
/// listing, the first attempt returns `None` as its id and stores nothing.
fn read_content(
    job: &CommitJob<'_>,
    fd: &OwnedFd,
    stat: &FileStat,
    attempt: ReadAttempt,
) -> Result<(Option<ContentId>, u64), FileReadError> {
    if stat.size > limits::WHOLE_FILE_BYTES {
        if let Some(id) = confirm_likely(job, fd, stat)? {
            return Ok((Some(id), stat.size));
        }
        let (id, size) = stream(job, &mut *content(fd, stat)?)?;
        return Ok((Some(id), size));
    }
    if stat.size == 0 {
        let content = read_unsized(fd, limits::UNSIZED_FILE_TIME)?;
        return store_small(job, &content);
    }
    BUFFER.with_borrow_mut(|buffer| {
        let size = read_small(fd, buffer, stat.size as usize)?;
        if size as u64 != stat.size && attempt == ReadAttempt::First {
            job.count_read(size as u64);
            job.observer.advance(size as u64, 1);
            return Ok((None, size as u64));
        }
        store_small(job, &buffer[..size])
    })
}

/// Stores a content of at most [`limits::WHOLE_FILE_BYTES`].
fn store_small(
    job: &CommitJob<'_>,
    bytes: &[u8],
) -> Result<(Option<ContentId>, u64), FileReadError> {
    let (id, size) = (BlobId::of(bytes), bytes.len() as u64);
    job.count_read(size);
    job.observer.advance(size, 1);
    job.writer.add_blob(CommitJob::lane(), id, bytes)?;
    Ok((Some(id.into()), size))
}

/// Compares a large file that was probably only renamed with its likely content, which is cheaper
/// than cutting it. Returns the id of that content if the file has it and it is stored. Otherwise seeks
/// back to the start, so that the caller can read the file.
fn confirm_likely(
    job: &CommitJob<'_>,
    fd: &OwnedFd,
    stat: &FileStat,
) -> Result<Option<ContentId>, FileReadError> {
    let Some(likely) = job.cache.likely_content(stat) else { return Ok(None) };
    if !job.writer.contains_content(&likely)? {
        return Ok(None);
    }
    let wanted = FileContent { id: likely, bytes: stat.size };
    let is_equal = match equals(job.writer.store(), fd, stat, &wanted, &|| job.stopped()) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Err(FileReadError::Commit(CommitError::Blocked(Blocked::Interrupted)));
        }
        other => other?,
    };
    job.count_read(stat.size);
    if is_equal {
        job.observer.advance(stat.size, 1);
        return Ok(Some(likely));
    }
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(0)).map_err(io::Error::from)?;
    Ok(None)
}

/// Reads a file of about `expected` bytes, but at most [`limits::WHOLE_FILE_BYTES`].
fn read_small(fd: &OwnedFd, buffer: &mut Vec<u8>, expected: usize) -> io::Result<usize> {
    let limit = limits::WHOLE_FILE_BYTES as usize;
    // The buffer has room for one more byte, so that the same read shows whether the file grew.
    if buffer.len() < expected + 1 {
        buffer.resize((expected + 1).max(64 << 10), 0);
    }
    let mut filled = 0;
    let mut wanted = expected + 1;
    loop {
        match rustix::io::read(fd, &mut buffer[filled..wanted]) {
            Ok(0) => return Ok(filled),
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if filled == expected || filled >= limit {
            return Ok(filled.min(limit));
        }
        if filled == wanted {
            wanted = (wanted * 2).min(limit + 1);
            buffer.resize(wanted.max(buffer.len()), 0);
        }
    }
}

/// Reads, cuts, hashes and stores a content of any length.
pub(super) fn stream(
    job: &CommitJob<'_>,
    source: &mut dyn SparseRead,
) -> Result<(ContentId, u64), FileReadError> {
    let stored = cut(source, job, &job.buffers).map_err(|error| match error {
        CutError::Read(error) => FileReadError::File(error),
        CutError::Sink(error) => FileReadError::Commit(error.into()),
        CutError::Stopped => FileReadError::Commit(CommitError::Blocked(Blocked::Interrupted)),
    })?;
    job.observer.advance(0, 1);
    Ok(stored)
}

impl ChunkSink for CommitJob<'_> {
    type Error = StoreError;

    fn take_whole(&self, bytes: &[u8]) -> Result<BlobId, StoreError> {
        let id = BlobId::of(bytes);
        self.writer.add_blob(Self::lane(), id, bytes)?;
        Ok(id)
    }

    fn take_chunks(&self, raw: &[u8], cuts: &[usize]) -> Result<Vec<BlobRef>, StoreError> {
        self.writer.add_chunks(raw, cuts)
    }

    fn take_list(&self, object: ListObject) -> Result<(), StoreError> {
        self.writer.add_list_object(&object)
    }

    fn advance(&self, bytes: u64) {
        self.count_read(bytes);
        self.observer.advance(bytes, 0);
    }

    fn stopped(&self) -> bool {
        self.stopped()
    }
}

impl MetadataLevel {
    /// Drops the extended attributes that this level does not record. Keeps the access control
    /// list, which affects the mode.
    pub(super) fn keep(self, mut xattrs: Vec<Xattr>) -> Vec<Xattr> {
        if self == Self::Reproducible {
            xattrs.retain(|xattr| xattr.name.starts_with(b"user.") || *xattr.name == *acl::ACCESS);
        }
        xattrs
    }
}
