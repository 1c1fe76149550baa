//! Reading one file: hash it, cut it if it is large, and add what is new.
//!
//! One task reads a file from start to end, once. Of a large file, the bytes
//! just read are cut by one thread while another hashes them for the id of the
//! whole; batches of chunks are then hashed and compressed by whoever is free.
//! When nobody is, the reader does it itself, so memory is bounded and nothing
//! ever waits for a queue.

use std::{
    cell::RefCell,
    ffi::OsStr,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    base::{id::BlobId, limits, time::Time},
    chunk::{Cutter, is_zeros},
    format::{
        acl,
        chunk_list::{self, Piece},
        tree::Xattr,
    },
    local::{
        attributes::{XattrTarget, read_xattrs},
        holes,
        read::{content, hash_content, open_file},
        scan::{FileKind, FileStat},
        stat_cache::{KnownFile, Place},
    },
    ops::commit::{
        CommitError, Content,
        job::{Job, count},
    },
    store::StoreError,
};

/// What became of a file.
#[derive(Debug)]
pub(super) struct ReadFile {
    pub(super) id: BlobId,
    pub(super) size: u64,
    pub(super) xattrs: Box<[Xattr]>,
    pub(super) sparse: bool,
    /// What the system said of it when it was read, if not what it said when
    /// the folder was listed.
    pub(super) stat: Option<Box<FileStat>>,
}

/// Why a file was not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The file itself cannot be read: it is left out.
    File(io::Error),
    /// The store failed, or the user wants to stop: the commit ends.
    Commit(CommitError),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<rustix::io::Errno> for Unread {
    fn from(error: rustix::io::Errno) -> Self {
        Self::File(error.into())
    }
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Self {
        Self::Commit(error.into())
    }
}

thread_local! {
    /// Small files are read into this.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file that was read, and how well that went.
#[derive(Debug)]
pub(super) struct ReadOutcome {
    pub(super) file: ReadFile,
    /// The file changed during both attempts; what was read last is kept.
    pub(super) changing: bool,
    /// Why its extended attributes are missing.
    pub(super) unread_xattrs: Option<io::Error>,
}

/// Reads the file of this name in a folder, which had `stat` when it was listed.
///
/// A file that changes meanwhile is read again once. The stat cache keeps what
/// was read, or drops what it knew before.
pub(super) fn read(
    job: &Job<'_>,
    (folder, name): (BorrowedFd<'_>, &OsStr),
    place: Place,
    stat: &FileStat,
) -> Result<ReadOutcome, Unread> {
    let read = read_twice(job, (folder, name), place, stat);
    if !matches!(&read, Ok(ReadOutcome { changing: false, unread_xattrs: None, .. })) {
        job.cache.forget_file(stat);
    }
    read
}

fn read_twice(
    job: &Job<'_>,
    (folder, name): (BorrowedFd<'_>, &OsStr),
    place: Place,
    stat: &FileStat,
) -> Result<ReadOutcome, Unread> {
    let mut before = *stat;
    let mut again = false;
    loop {
        let read_at = Time::now();
        let fd = open_file(folder, name, &before)?;
        let (content, size) = read_content(job, &fd, &before, again)?;
        let xattrs = read_xattrs(XattrTarget::Fd(fd.as_fd()));
        let after = FileStat::of_fd(fd.as_fd())?;
        if after.kind != FileKind::File {
            return Err(Unread::File(io::Error::other("it is no longer a regular file")));
        }
        let steady = after.same_state(&before) && size == before.size;
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
        if steady && unread_xattrs.is_none() {
            let known = KnownFile { id, xattrs: !xattrs.is_empty(), sparse };
            job.cache.add_file(&after, place, &known, read_at);
        }
        let xattrs = job.content.keep(xattrs).into_boxed_slice();
        let stat = (after != *stat).then(|| Box::new(after));
        let file = ReadFile { id, size, xattrs, sparse, stat };
        return Ok(ReadOutcome { file, changing: !steady, unread_xattrs });
    }
}

/// Reads, hashes and adds. A small file that turns out to have another length
/// is not added the first time: `None`.
fn read_content(
    job: &Job<'_>,
    fd: &OwnedFd,
    stat: &FileStat,
    keep: bool,
) -> Result<(Option<BlobId>, u64), Unread> {
    if stat.size > limits::WHOLE_FILE_BYTES {
        if let Some(id) = confirm_likely(job, fd, stat)? {
            return Ok((Some(id), stat.size));
        }
        let (id, size) = stream(job, &mut *content(fd, stat)?)?;
        return Ok((Some(id), size));
    }
    BUFFER.with_borrow_mut(|buffer| {
        let size = read_small(fd, buffer, stat.size as usize)?;
        let bytes = &buffer[..size];
        count(&job.counts.bytes_read, size as u64);
        job.observer.advance(size as u64, 1);
        if size as u64 != stat.size && !keep {
            return Ok((None, size as u64));
        }
        let id = BlobId::of(bytes);
        job.writer.add_blob(Job::lane(), id, bytes)?;
        Ok((Some(id), size as u64))
    })
}

/// Hashes a large file that was probably only renamed, and returns its content
/// if it is the one that was known and is stored: that takes neither cutting
/// nor hashing of chunks. Other files are read again from their start.
fn confirm_likely(job: &Job<'_>, fd: &OwnedFd, stat: &FileStat) -> Result<Option<BlobId>, Unread> {
    let Some(likely) = job.cache.likely_content(stat) else { return Ok(None) };
    if !job.writer.contains_content(&likely)? {
        return Ok(None);
    }
    let (id, size) = match hash_content(fd, stat, &|| job.stopped()) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Err(Unread::Commit(CommitError::Interrupted));
        }
        other => other?,
    };
    count(&job.counts.bytes_read, size);
    if (id, size) == (likely, stat.size) {
        job.observer.advance(size, 1);
        return Ok(Some(id));
    }
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(0))?;
    Ok(None)
}

/// Reads a file of about `expected` bytes whole, at most
/// [`limits::WHOLE_FILE_BYTES`] of it.
fn read_small(fd: &OwnedFd, buffer: &mut Vec<u8>, expected: usize) -> io::Result<usize> {
    let limit = limits::WHOLE_FILE_BYTES as usize;
    // One byte more, so that the end is seen without asking again.
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

/// At least so much is read at a time.
const MIN_READ_BYTES: usize = 1 << 20;

/// Room for a frame, or for the rest of one that has no cut yet and the next
/// read.
const BUFFER_BYTES: usize = limits::LARGE_FRAME_BYTES + limits::CHUNK_BYTES + MIN_READ_BYTES;

/// Where the ids of each batch of chunks go, in order.
type Batches = Mutex<Vec<Vec<Piece>>>;

/// Reads, cuts, hashes and adds a content of any length.
pub(super) fn stream(
    job: &Job<'_>,
    source: &mut (dyn Read + Send),
) -> Result<(BlobId, u64), Unread> {
    let batches = Batches::default();
    let failed = AtomicBool::new(false);
    let (id, size) = rayon::scope(|scope| {
        let mut whole = blake3::Hasher::new();
        let mut cutter = Cutter::new(job.params);
        let (mut buffer, mut filled) = (job.take_buffer(), 0);
        let mut size = 0;
        // Zeros that were read and are hashed while more is read.
        let mut zeros = 0;
        // From here on the buffer holds zeros only.
        let mut zeros_from = 0;
        loop {
            if job.stopped() || failed.load(Ordering::Relaxed) {
                return Err(Unread::Commit(CommitError::Interrupted));
            }
            let (end, last) = match std::mem::take(&mut zeros) {
                0 => fill(source, &mut buffer, filled)?,
                zeros => {
                    let hash = || hash_zeros(&mut whole, zeros);
                    rayon::join(|| fill(source, &mut buffer, filled), hash).0?
                }
            };
            let fresh = &buffer[filled..end];
            size += fresh.len() as u64;
            count(&job.counts.bytes_read, fresh.len() as u64);
            job.observer.advance(fresh.len() as u64, 0);
            let cuts = if !last && is_zeros(fresh) {
                zeros = fresh.len();
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
                let batch = Batch { buffer: full, cuts, is_zeros: zeros_from == 0 };
                zeros_from = zeros_from.saturating_sub(cut);
                hand_over(job, scope, &batches, &failed, batch);
            }
            if last {
                job.give_buffer(buffer);
                return Ok((BlobId::from_bytes(*whole.finalize().as_bytes()), size));
            }
        }
    })?;
    if failed.load(Ordering::Relaxed) {
        // The job has the error.
        return Err(Unread::Commit(CommitError::Interrupted));
    }
    job.observer.advance(0, 1);
    let pieces: Vec<Piece> = batches
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_iter()
        .flatten()
        .collect();
    add_list(job, id, size, &pieces)?;
    Ok((id, size))
}

/// Hashes a run of zeros.
fn hash_zeros(hasher: &mut blake3::Hasher, mut bytes: usize) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while bytes > 0 {
        let piece = bytes.min(ZEROS.len());
        hasher.update(&ZEROS[..piece]);
        bytes -= piece;
    }
}

/// Reads until a frame is full. Returns where the new bytes end, and whether
/// they are the last.
fn fill(
    source: &mut (dyn Read + Send),
    buffer: &mut [u8],
    filled: usize,
) -> io::Result<(usize, bool)> {
    // The rest of the last batch may be nearly a chunk; always read some more.
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

/// Ends of the chunks in the buffer.
fn cut(cutter: &mut Cutter, buffer: &[u8], last: bool) -> Vec<usize> {
    let (mut cuts, mut start) = (Vec::new(), 0);
    while let Some(len) = cutter.next_cut(&buffer[start..], last) {
        start += len;
        cuts.push(start);
    }
    cuts
}

/// Whole chunks that were read.
struct Batch {
    buffer: Vec<u8>,
    /// Where the chunks end.
    cuts: Vec<usize>,
    /// Whether all of them are zeros.
    is_zeros: bool,
}

/// Gives a batch to a free thread, or does it here when there is none.
fn hand_over<'s>(
    job: &'s Job<'_>,
    scope: &rayon::Scope<'s>,
    batches: &'s Batches,
    failed: &'s AtomicBool,
    Batch { buffer, cuts, is_zeros }: Batch,
) {
    // A hole is cut into chunks of zeros of the largest size, which hash alike.
    let is_zeros = is_zeros && cuts[..] == [job.params.max()];
    let known = job.zeros.get().copied().filter(|_| is_zeros);
    let place = {
        let mut batches = batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.push(known.into_iter().collect());
        batches.len() - 1
    };
    if known.is_some() {
        return job.give_buffer(buffer);
    }
    let add = move || {
        match job.writer.add_chunks(&buffer, &cuts) {
            Ok((ids, _)) => {
                let starts = std::iter::once(&0).chain(&cuts);
                let lengths = cuts.iter().zip(starts).map(|(end, start)| (end - start) as u32);
                let pieces = ids.into_iter().zip(lengths).map(|(id, bytes)| Piece { id, bytes });
                let pieces: Vec<Piece> = pieces.collect();
                if let (true, Some(zeros)) = (is_zeros, pieces.first()) {
                    job.zeros.get_or_init(|| *zeros);
                }
                batches.lock().unwrap_or_else(PoisonError::into_inner)[place] = pieces;
            }
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                job.fail(error.into());
            }
        }
        job.give_buffer(buffer);
    };
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

/// Stores what stands for the content: nothing more when it is one chunk.
fn add_list(job: &Job<'_>, id: BlobId, size: u64, pieces: &[Piece]) -> Result<(), Unread> {
    match pieces {
        [] => drop(job.writer.add_blob(Job::lane(), id, &[])?),
        [_] => {}
        _ => {
            let Some(encoded) = chunk_list::encode_content(size, pieces) else {
                let most = limits::CHUNK_LIST_PARTS * limits::CHUNK_LIST_ENTRIES;
                let text = format!("it has {} chunks, more than {most}", pieces.len());
                return Err(Unread::File(io::Error::other(text)));
            };
            for part in &encoded.parts {
                job.writer.add_chunk_list_part(part)?;
            }
            job.writer.add_chunk_list(id, &encoded.list)?;
        }
    }
    Ok(())
}

impl Job<'_> {
    fn take_buffer(&self) -> Vec<u8> {
        self.buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    fn give_buffer(&self, buffer: Vec<u8>) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

impl Content {
    /// The attributes that matter to this kind of snapshot: those that it
    /// keeps, and the access control list, which decides over the mode.
    pub(super) fn keep(self, mut xattrs: Vec<Xattr>) -> Vec<Xattr> {
        if self == Self::Reproducible {
            xattrs.retain(|xattr| xattr.name.starts_with(b"user.") || *xattr.name == *acl::ACCESS);
        }
        xattrs
    }
}
