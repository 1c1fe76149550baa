//! Reads one file: hashes it, cuts it if it is large, and stores new data.
//!
//! One task reads a file from start to end. For a large file, one thread cuts the bytes just read
//! while another hashes them for the id of the whole file. Idle threads then hash and compress
//! batches of chunks. If no thread is idle, the reader processes the batch itself. Memory is
//! therefore bounded, and no thread waits for a queue.

use std::{
    cell::RefCell,
    ffi::OsStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use crate::{
    base::{id::BlobId, limits, time::Time},
    chunk::{Cutter, is_zeros},
    format::{
        acl,
        chunk_list::{self, BlobRef},
        tree::Xattr,
    },
    local::{
        attributes::{XattrTarget, read_xattrs},
        holes::{self, SparseRead, hash_zeros},
        read::{content, hash_content, is_steady, open_file, read_unsized, stat_to_read},
        scan::{FileKind, FileStat},
        stat_cache::{KnownFile, NameHash},
    },
    ops::commit::{CommitError, MetadataLevel, job::CommitJob},
    store::StoreError,
};

/// The result of reading a file.
#[derive(Debug)]
pub(super) struct ReadFile {
    pub(super) id: BlobId,
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

impl From<rustix::io::Errno> for FileReadError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::File(error.into())
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
    /// True if the file has content but reports a length of 0, like files in `/proc`. Its stat may
    /// stay the same when its content changes, so the file is not cached.
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
    let read = read_twice(job, folder, name, place, stat);
    let is_kept = |outcome: &ReadOutcome| {
        !outcome.changing && !outcome.is_unsized && outcome.unread_xattrs.is_none()
    };
    if !read.as_ref().is_ok_and(is_kept) {
        job.cache.forget_file(stat);
    }
    read
}

fn read_twice(
    job: &CommitJob<'_>,
    folder: BorrowedFd<'_>,
    name: &OsStr,
    place: NameHash,
    stat: &FileStat,
) -> Result<ReadOutcome, FileReadError> {
    let mut before = *stat;
    let mut again = false;
    loop {
        let read_at = Time::now();
        let fd = open_file(folder, name, &before)?;
        before = stat_to_read(fd.as_fd(), before)?;
        let (content, size) = read_content(job, &fd, &before, again)?;
        let xattrs = read_xattrs(XattrTarget::Fd(fd.as_fd()));
        let after = FileStat::of_fd(fd.as_fd())?;
        if after.kind != FileKind::File {
            return Err(FileReadError::File(io::Error::other("no longer a regular file")));
        }
        let steady = is_steady(&before, &after, size);
        let is_unsized = steady && size != before.size;
        let id = match content {
            Some(id) if steady || again => id,
            _ => {
                (before, again) = (after, true);
                continue;
            }
        };
        let sparse = before.may_have_holes() && holes::has_holes(fd.as_fd(), before.size);
        let (xattrs, unread_xattrs) = match xattrs {
            Ok(xattrs) => (xattrs, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if steady && !is_unsized && unread_xattrs.is_none() {
            let known = KnownFile { id, xattrs: !xattrs.is_empty(), sparse };
            job.cache.add_file(&after, place, &known, read_at);
        }
        let xattrs = job.content.keep(xattrs).into_boxed_slice();
        let stat = (after != *stat).then(|| Box::new(after));
        let file = ReadFile { id, size, xattrs, sparse, stat };
        return Ok(ReadOutcome { file, changing: !steady, is_unsized, unread_xattrs });
    }
}

/// Reads, hashes and stores a file. If a small file has another length than in the
/// listing, returns `None` as its id and stores nothing, unless `keep` is set.
fn read_content(
    job: &CommitJob<'_>,
    fd: &OwnedFd,
    stat: &FileStat,
    keep: bool,
) -> Result<(Option<BlobId>, u64), FileReadError> {
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
        if size as u64 != stat.size && !keep {
            job.count_read(size as u64);
            job.observer.advance(size as u64, 1);
            return Ok((None, size as u64));
        }
        store_small(job, &buffer[..size])
    })
}

/// Stores a content of at most [`limits::WHOLE_FILE_BYTES`].
fn store_small(job: &CommitJob<'_>, bytes: &[u8]) -> Result<(Option<BlobId>, u64), FileReadError> {
    let (id, size) = (BlobId::of(bytes), bytes.len() as u64);
    job.count_read(size);
    job.observer.advance(size, 1);
    job.writer.add_blob(CommitJob::lane(), id, bytes)?;
    Ok((Some(id), size))
}

/// Hashes a large file that was probably only renamed, which is cheaper than cutting it. Returns
/// its id if the file has the expected content and that content is stored. Otherwise seeks back to
/// the start, so that the caller can read the file.
fn confirm_likely(
    job: &CommitJob<'_>,
    fd: &OwnedFd,
    stat: &FileStat,
) -> Result<Option<BlobId>, FileReadError> {
    let Some(likely) = job.cache.likely_content(stat) else { return Ok(None) };
    if !job.writer.contains_content(&likely)? {
        return Ok(None);
    }
    let (id, size) = match hash_content(fd, stat, &|| job.stopped()) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Err(FileReadError::Commit(CommitError::Interrupted));
        }
        other => other?,
    };
    job.count_read(size);
    if (id, size) == (likely, stat.size) {
        job.observer.advance(size, 1);
        return Ok(Some(id));
    }
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(0))?;
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

/// Minimum number of bytes that each [`fill`] reads before the source ends.
const MIN_READ_BYTES: usize = 1 << 20;

/// Size of a buffer: a frame, or an uncut rest of at most one chunk and the next read.
const BUFFER_BYTES: usize = limits::LARGE_FRAME_BYTES + limits::CHUNK_BYTES + MIN_READ_BYTES;

/// The chunks of each batch, in the order of the file.
type Batches = Mutex<Vec<Vec<BlobRef>>>;

/// Reads, cuts, hashes and stores a content of any length.
pub(super) fn stream(
    job: &CommitJob<'_>,
    source: &mut dyn SparseRead,
) -> Result<(BlobId, u64), FileReadError> {
    let batches = Batches::default();
    let failed = AtomicBool::new(false);
    let (id, size) = rayon::scope(|scope| {
        let mut whole = blake3::Hasher::new();
        let mut cutter = Cutter::new(job.params);
        let (mut buffer, mut filled) = (job.take_buffer(), 0);
        let mut size = 0;
        // Length of a run of zeros that is hashed during the next read.
        let mut zeros = 0_u64;
        // The buffer contains only zeros from this offset on.
        let mut zeros_from = 0;
        loop {
            if job.stopped() || failed.load(Ordering::Relaxed) {
                return Err(FileReadError::Commit(CommitError::Interrupted));
            }
            let (end, last) = match std::mem::take(&mut zeros) {
                0 => fill(source, &mut buffer, filled)?,
                zeros => {
                    let hash = || hash_zeros(&mut whole, zeros, &|| false);
                    rayon::join(|| fill(source, &mut buffer, filled), hash).0?
                }
            };
            let fresh = &buffer[filled..end];
            size += fresh.len() as u64;
            job.count_read(fresh.len() as u64);
            job.observer.advance(fresh.len() as u64, 0);
            let cuts = if !last && is_zeros(fresh) {
                zeros = fresh.len() as u64;
                cut(&mut cutter, &buffer[..end], last)
            } else {
                zeros_from = end;
                let hash = || whole.update(fresh).count();
                rayon::join(hash, || cut(&mut cutter, &buffer[..end], last)).1
            };
            filled = end;
            if let Some(&cut) = cuts.last() {
                let mut next = job.take_buffer();
                next[..end - cut].copy_from_slice(&buffer[cut..end]);
                filled = end - cut;
                let full = std::mem::replace(&mut buffer, next);
                let batch = ChunkBatch { buffer: full, cuts, is_zeros: zeros_from == 0 };
                zeros_from = zeros_from.saturating_sub(cut);
                hand_over(job, scope, &batches, &failed, batch);
            }
            if let Some(chunk) = job.zeros.get().filter(|_| zeros_from == 0 && !last) {
                // The uncut rest is zeros, so the hole is cut into zero chunks of the largest size,
                // and the rest stays the same.
                let skipped = source.skip_hole(u64::from(chunk.bytes));
                hash_zeros(&mut whole, skipped, &|| job.stopped());
                size += skipped;
                job.count_read(skipped);
                job.observer.advance(skipped, 0);
                let chunks = (skipped / u64::from(chunk.bytes)) as usize;
                let mut batches = batches.lock();
                batches.extend((chunks > 0).then(|| vec![*chunk; chunks]));
            }
            if last {
                job.give_buffer(buffer);
                return Ok((BlobId::from_bytes(*whole.finalize().as_bytes()), size));
            }
        }
    })?;
    if failed.load(Ordering::Relaxed) {
        // `job.fail` has recorded the error.
        return Err(FileReadError::Commit(CommitError::Interrupted));
    }
    job.observer.advance(0, 1);
    let pieces: Vec<BlobRef> = batches.into_inner().into_iter().flatten().collect();
    add_list(job, id, size, &pieces)?;
    Ok((id, size))
}

/// Reads until the buffer contains a frame. Returns the end of the new bytes, and true if the
/// source ended.
fn fill(
    source: &mut dyn SparseRead,
    buffer: &mut [u8],
    filled: usize,
) -> io::Result<(usize, bool)> {
    // The uncut rest may be nearly as large as a chunk, so always read some more.
    let target = limits::LARGE_FRAME_BYTES.max(filled + MIN_READ_BYTES);
    let mut end = filled;
    while end < target {
        match source.read(&mut buffer[end..target]) {
            Ok(0) => return Ok((end, true)),
            Ok(more) => end += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((end, false))
}

/// Returns the ends of the chunks in the buffer.
fn cut(cutter: &mut Cutter, buffer: &[u8], last: bool) -> Vec<usize> {
    let (mut cuts, mut start) = (Vec::new(), 0);
    while let Some(len) = cutter.next_cut(&buffer[start..], last) {
        start += len;
        cuts.push(start);
    }
    cuts
}

/// A batch of complete chunks.
struct ChunkBatch {
    buffer: Vec<u8>,
    /// Ends of the chunks in the buffer.
    cuts: Vec<usize>,
    /// True if all chunks are zeros.
    is_zeros: bool,
}

/// Gives a batch to an idle thread, or processes it here if there is none.
fn hand_over<'s>(
    job: &'s CommitJob<'_>,
    scope: &rayon::Scope<'s>,
    batches: &'s Batches,
    failed: &'s AtomicBool,
    ChunkBatch { buffer, cuts, is_zeros }: ChunkBatch,
) {
    // A hole is cut into zero chunks of the largest size. All of them have the same id,
    // which is reused once it is known.
    let is_zeros = is_zeros && cuts[..] == [job.params.max()];
    let known = job.zeros.get().copied().filter(|_| is_zeros);
    // Reserve the position now: batches finish in any order.
    let place = {
        let mut batches = batches.lock();
        batches.push(known.into_iter().collect());
        batches.len() - 1
    };
    if known.is_some() {
        return job.give_buffer(buffer);
    }
    let add = move || {
        match job.writer.add_chunks(&buffer, &cuts) {
            Ok((pieces, _)) => {
                if let (true, [zeros]) = (is_zeros, &pieces[..]) {
                    job.zeros.get_or_init(|| *zeros);
                }
                batches.lock()[place] = pieces;
            }
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                job.fail(error.into());
            }
        }
        job.give_buffer(buffer);
    };
    // At most one more batch than there are threads is in flight. Further batches are processed
    // here, which bounds the number of buffers.
    if job.batches.fetch_add(1, Ordering::Relaxed) <= rayon::current_num_threads() {
        scope.spawn(move |_| {
            add();
            job.batches.fetch_sub(1, Ordering::Relaxed);
        });
    } else {
        add();
        job.batches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Stores the chunk list of a content. A content of one chunk needs none.
fn add_list(
    job: &CommitJob<'_>,
    id: BlobId,
    size: u64,
    pieces: &[BlobRef],
) -> Result<(), FileReadError> {
    match pieces {
        [] => drop(job.writer.add_blob(CommitJob::lane(), id, &[])?),
        [_] => {}
        _ => {
            let Some(encoded) = chunk_list::encode_content(size, pieces) else {
                let most = limits::CHUNK_LIST_PARTS * limits::CHUNK_LIST_ENTRIES;
                let text = format!("the file has {} chunks; the limit is {most}", pieces.len());
                return Err(FileReadError::File(io::Error::other(text)));
            };
            for part in &encoded.parts {
                job.writer.add_chunk_list_part(part)?;
            }
            job.writer.add_chunk_list(id, &encoded.list)?;
        }
    }
    Ok(())
}

impl CommitJob<'_> {
    fn take_buffer(&self) -> Vec<u8> {
        self.buffers.lock().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    fn give_buffer(&self, buffer: Vec<u8>) {
        self.buffers.lock().push(buffer);
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
