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
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    base::{id::BlobId, limits, time::Time},
    chunk::Cutter,
    format::{
        chunk_list::{self, ChunkList, Piece, Pieces},
        tree::Xattr,
    },
    local::{
        attributes::{XattrTarget, read_xattrs},
        holes::HoleReader,
        read::open_file,
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

/// Reads the file of this name in a folder, which had `stat` when it was listed.
///
/// A file that changes meanwhile is read again once. The second value says
/// that it changed again: then what was read last is kept.
pub(super) fn read(
    job: &Job<'_>,
    (folder, name): (BorrowedFd<'_>, &OsStr),
    place: Place,
    stat: &FileStat,
) -> Result<(ReadFile, bool), Unread> {
    let mut before = *stat;
    let mut again = false;
    loop {
        let read_at = Time::now();
        let fd = open_file(folder, name, &before)?;
        let (content, size) = read_content(job, &fd, &before, again)?;
        let xattrs = read_xattrs(XattrTarget::Fd(fd.as_fd())).unwrap_or_default();
        let (after, born) = FileStat::with_birth(fd.as_fd())?;
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
        let sparse = before.may_have_holes() && HoleReader::has_holes(fd.as_fd(), before.size);
        let known = KnownFile { id, xattrs: !xattrs.is_empty(), sparse };
        if steady {
            job.cache.add_file((&after, born), place, &known, read_at);
        }
        let xattrs = job.content.keep(xattrs).into_boxed_slice();
        let stat = (after != *stat).then(|| Box::new(after));
        return Ok((ReadFile { id, size, xattrs, sparse, stat }, !steady));
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
        let file = File::from(fd.try_clone()?);
        let (id, size) = if stat.may_have_holes() {
            stream(job, &mut HoleReader::new(file, stat.size))?
        } else {
            stream(job, &mut file.take(stat.size))?
        };
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
        loop {
            if job.stopped() || failed.load(Ordering::Relaxed) {
                return Err(Unread::Commit(CommitError::Interrupted));
            }
            let (end, last) = fill(source, &mut buffer, filled)?;
            let fresh = &buffer[filled..end];
            size += fresh.len() as u64;
            count(&job.counts.bytes_read, fresh.len() as u64);
            job.observer.advance(fresh.len() as u64, 0);
            let (_, cuts) = rayon::join(
                || whole.update(fresh).count(),
                || cut(&mut cutter, &buffer[..end], last),
            );
            filled = end;
            if let Some(&cut) = cuts.last() {
                let mut next = job.take_buffer();
                next[..end - cut].copy_from_slice(&buffer[cut..end]);
                filled = end - cut;
                let full = std::mem::replace(&mut buffer, next);
                hand_over(job, scope, &batches, &failed, full, cuts);
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

/// Reads until a frame is full. Returns where the new bytes end, and whether
/// they are the last.
fn fill(source: &mut dyn Read, buffer: &mut [u8], filled: usize) -> io::Result<(usize, bool)> {
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

/// Gives a batch to a free thread, or does it here when there is none.
fn hand_over<'s>(
    job: &'s Job<'_>,
    scope: &rayon::Scope<'s>,
    batches: &'s Batches,
    failed: &'s AtomicBool,
    buffer: Vec<u8>,
    cuts: Vec<usize>,
) {
    let place = {
        let mut batches = batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.push(Vec::new());
        batches.len() - 1
    };
    let add = move || {
        match job.writer.add_chunks(&buffer, &cuts) {
            Ok((ids, _)) => {
                let starts = std::iter::once(&0).chain(&cuts);
                let lengths = cuts.iter().zip(starts).map(|(end, start)| (end - start) as u32);
                let pieces = ids.into_iter().zip(lengths).map(|(id, bytes)| Piece { id, bytes });
                batches.lock().unwrap_or_else(PoisonError::into_inner)[place] = pieces.collect();
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
        _ if pieces.len() <= limits::CHUNK_LIST_ENTRIES => {
            let list = ChunkList { total_bytes: size, pieces: Pieces::Chunks(pieces.to_vec()) };
            job.writer.add_chunk_list(id, &list.encode())?;
        }
        _ => {
            let mut parts = Vec::new();
            for part in pieces.chunks(limits::CHUNK_LIST_ENTRIES) {
                let bytes = chunk_list::encode_part(part);
                let id = job.writer.add_chunk_list_part(&bytes)?;
                parts.push(Piece { id, bytes: bytes.len() as u32 });
            }
            let list = ChunkList { total_bytes: size, pieces: Pieces::Parts(parts) };
            job.writer.add_chunk_list(id, &list.encode())?;
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
    /// The attributes that this kind of snapshot keeps.
    pub(super) fn keep(self, mut xattrs: Vec<Xattr>) -> Vec<Xattr> {
        if self == Self::Reproducible {
            xattrs.retain(|xattr| xattr.name.starts_with(b"user."));
        }
        xattrs
    }
}
