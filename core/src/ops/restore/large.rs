//! Files whose content was cut into chunks, and sharing blocks between files.
//!
//! A large file is streamed: one thread expands frames ahead, another hashes
//! and writes. Consecutive chunks of one frame cost one expansion. The list of
//! chunks is not believed: the hash over all that was written must be the
//! content's id before the file gets its name.
//!
//! Where a content was written before in this run, or is known to be in a local
//! file, its blocks are shared (`FICLONE`) and hashed; where the file system
//! cannot do that it is not tried again. That a holder's file cannot be shared
//! says nothing about files of the target: only holders are not asked again.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, ioctl_ficlone},
    io::Errno,
};

use crate::{
    base::{
        id::{BlobId, ObjectId},
        io::PathError,
        name::EntryName,
    },
    format::{chunk_list::Piece, pack::ObjectKind, wire::FormatError},
    local::{
        contain::{Cursor, FolderPath},
        write::{Draft, FileSpec, Placement},
    },
    ops::restore::{
        job::Job,
        small::written,
        tally::Count,
        window::{FileTask, cursor},
    },
    store::{Content, Place, Store, StoreError},
};

/// Files from here on share blocks where they can.
pub(super) const CLONE_BYTES: u64 = 128 << 10;

/// Contents that were written last and are remembered for sharing.
const REMEMBERED: usize = 256;

/// Frames that wait to be written. One more is being expanded and one written.
const FRAMES_AHEAD: usize = 2;

/// A frame, and where the next chunks of the content lie in it.
struct Run {
    frame: Arc<Vec<u8>>,
    pieces: Vec<(usize, usize)>,
}

/// Why a large file was not written.
enum Stop {
    Path(PathError),
    Damage(StoreError),
    Halted,
}

/// Writes one large file.
pub(super) fn write(job: &Job<'_>, task: &FileTask) {
    let Some(mut cursor) = cursor(job) else { return };
    if job.is_halted() {
        return;
    }
    match write_checked(job, &mut cursor, task) {
        Ok(told_bytes) => {
            job.clones.remember(task);
            written(job, task, told_bytes);
        }
        Err(Stop::Damage(error)) => task.damaged(job, error),
        Err(Stop::Path(error)) => job.fail(error),
        Err(Stop::Halted) => {}
    }
}

/// Returns of how many bytes the observer was told on the way.
fn write_checked(job: &Job<'_>, cursor: &mut Cursor<'_>, task: &FileTask) -> Result<u64, Stop> {
    let folder = cursor.folder(&task.folder).map_err(Stop::Path)?;
    let failed = |error| Stop::Path(job.error("write", &task.folder, Some(&task.name), error));
    let mut spec = task.spec(job);
    let mut told_bytes = 0;
    loop {
        let mut draft = spec.start(folder).map_err(failed)?;
        if !clone_file(job, task, &mut draft).map_err(failed)? {
            stream(job, task, &mut draft)?;
            told_bytes = task.size;
        }
        let mut refused = job.refusals(&task.folder, Some(&task.name));
        let renamed = spec.finish(draft, &mut *refused).map_err(failed)?;
        if !task.taken(job, renamed) {
            break;
        }
        spec = FileSpec { placement: Placement::Replace, ..spec };
    }
    if job.is_halted() { Err(Stop::Halted) } else { Ok(told_bytes) }
}

/// Writes the chunks into the draft and checks the whole.
fn stream(job: &Job<'_>, task: &FileTask, draft: &mut Draft<'_>) -> Result<(), Stop> {
    let chunks = match job.store.content(&task.id).map_err(Stop::Damage)? {
        Content::Chunks(chunks) => chunks,
        Content::Whole(place) => vec![Piece { id: task.id, bytes: place.bytes }],
    };
    if chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum::<u64>() != task.size {
        return Err(Stop::Damage(wrong_list(task.id.object())));
    }
    let hash = std::thread::scope(|scope| {
        let (sender, runs) = sync_channel(FRAMES_AHEAD);
        scope.spawn(|| read_ahead(job.store, &chunks, sender));
        write_runs(job, task, draft, runs)
    })?;
    if hash == task.id { Ok(()) } else { Err(Stop::Damage(diagnose(job.store, task, &chunks))) }
}

fn write_runs(
    job: &Job<'_>,
    task: &FileTask,
    draft: &mut Draft<'_>,
    runs: Receiver<Result<Run, StoreError>>,
) -> Result<BlobId, Stop> {
    let mut hasher = blake3::Hasher::new();
    for run in runs {
        if job.is_halted() {
            return Err(Stop::Halted);
        }
        let run = run.map_err(Stop::Damage)?;
        let mut bytes = 0;
        for (start, end) in run.pieces {
            let piece = &run.frame[start..end];
            hasher.update(piece);
            draft.write(piece).map_err(|error| {
                Stop::Path(job.error("write", &task.folder, Some(&task.name), error))
            })?;
            bytes += piece.len() as u64;
        }
        job.observer.advance(bytes, 0);
    }
    Ok(BlobId::from_bytes(*hasher.finalize().as_bytes()))
}

/// Expands the frames of `chunks` in order. Ends early when nobody listens.
fn read_ahead(store: &Store, chunks: &[Piece], sender: SyncSender<Result<Run, StoreError>>) {
    let mut rest = chunks;
    while !rest.is_empty() {
        let run = next_run(store, rest);
        let is_last = run.is_err();
        rest = run.as_ref().map_or(&[], |(_, taken)| &rest[*taken..]);
        if sender.send(run.map(|(run, _)| run)).is_err() || is_last {
            return;
        }
    }
}

/// The chunks at the start of `chunks` that lie in one frame, and how many.
fn next_run(store: &Store, chunks: &[Piece]) -> Result<(Run, usize), StoreError> {
    let first = place_of(store, &chunks[0])?;
    let frame = match store.frame(&first) {
        Err(StoreError::Gone { .. }) => {
            // Merged into another pack meanwhile; `object` finds it there.
            let bytes = store.object(&chunks[0].id.object(), ObjectKind::Blob)?;
            let pieces = vec![(0, bytes.len())];
            return Ok((Run { frame: Arc::new(bytes), pieces }, 1));
        }
        frame => frame?,
    };
    let mut pieces = Vec::new();
    let mut place = first;
    loop {
        let start = place.offset as usize;
        let end = start + place.bytes as usize;
        if end > frame.len() {
            return Err(wrong_list(chunks[pieces.len()].id.object()));
        }
        pieces.push((start, end));
        match chunks.get(pieces.len()) {
            None => break,
            Some(next) => place = place_of(store, next)?,
        }
        if (place.pack, place.frame) != (first.pack, first.frame) {
            break;
        }
    }
    let taken = pieces.len();
    Ok((Run { frame, pieces }, taken))
}

fn place_of(store: &Store, chunk: &Piece) -> Result<Place, StoreError> {
    let (id, wanted) = (chunk.id.object(), ObjectKind::Blob);
    let place = store.locate(&id)?.ok_or(StoreError::Missing { id, wanted })?;
    if place.kind != wanted {
        return Err(StoreError::WrongKind { id, wanted, found: place.kind });
    }
    if place.bytes != chunk.bytes {
        return Err(wrong_list(id));
    }
    Ok(place)
}

/// Which chunk makes the whole hash to something else.
fn diagnose(store: &Store, task: &FileTask, chunks: &[Piece]) -> StoreError {
    let damaged = |chunk: &Piece| store.object(&chunk.id.object(), ObjectKind::Blob).err();
    chunks.iter().find_map(damaged).unwrap_or_else(|| wrong_list(task.id.object()))
}

/// A chunk list that does not amount to the content it stands for.
fn wrong_list(id: ObjectId) -> StoreError {
    let source = FormatError::Invalid { what: "chunk list", at: 0 };
    StoreError::Object { id, kind: ObjectKind::ChunkList, source }
}

/// Files whose blocks may be shared.
#[derive(Debug, Default)]
pub(super) struct Clones {
    cannot: AtomicBool,
    holders_cannot: AtomicBool,
    written: Mutex<VecDeque<(BlobId, Arc<FolderPath>, EntryName)>>,
}

impl Clones {
    /// Remembers where a content was written.
    pub(super) fn remember(&self, task: &FileTask) {
        if task.size < CLONE_BYTES || self.cannot.load(Ordering::Relaxed) {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() == REMEMBERED {
            written.pop_front();
        }
        written.push_back((task.id, Arc::clone(&task.folder), task.name.clone()));
    }

    fn find(&self, id: &BlobId) -> Option<(Arc<FolderPath>, EntryName)> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let found = written.iter().rev().find(|(have, ..)| have == id)?;
        Some((Arc::clone(&found.1), found.2.clone()))
    }
}

/// Fills the draft with the blocks of a file that has the content. Says
/// whether it did; if not, the draft is empty.
pub(super) fn clone_file(
    job: &Job<'_>,
    task: &FileTask,
    draft: &mut Draft<'_>,
) -> io::Result<bool> {
    if task.size < CLONE_BYTES || job.clones.cannot.load(Ordering::Relaxed) {
        return Ok(false);
    }
    let Some((source, origin)) = source(job, task) else { return Ok(false) };
    let Ok(stat) = fstat(&source) else { return Ok(false) };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || u64::try_from(stat.st_size) != Ok(task.size) {
        return Ok(false);
    }
    match ioctl_ficlone(draft.as_fd(), &source) {
        Ok(()) => {}
        Err(Errno::XDEV | Errno::INVAL) if origin == Origin::Holder => {
            job.clones.holders_cannot.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS) => {
            job.clones.cannot.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        Err(_) => return Ok(false),
    }
    let mut hasher = blake3::Hasher::new();
    let shared = File::from(draft.as_fd().try_clone_to_owned()?);
    // What cannot be read is as wrong as what was changed: the store has it.
    let is_read = hasher.update_reader(shared).is_ok();
    if !is_read || hasher.finalize().as_bytes() != task.id.as_bytes() {
        draft.clear()?;
        return Ok(false);
    }
    draft.adopt(task.size);
    job.tally.add(Count::FilesCloned, 1);
    Ok(true)
}

/// Where blocks to be shared come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A file that this run has written.
    Written,
    /// A file that the caller named.
    Holder,
}

/// An open file that should have the content.
fn source(job: &Job<'_>, task: &FileTask) -> Option<(OwnedFd, Origin)> {
    if let (Some((folder, name)), Some(root)) = (job.clones.find(&task.id), job.root()) {
        let file = root.folder(&folder).and_then(|folder| folder.open_file(&name)).ok()?;
        return Some((file, Origin::Written));
    }
    if job.clones.holders_cannot.load(Ordering::Relaxed) {
        return None;
    }
    let path =
        job.options.holder.and_then(|holder| holder(&task.folder.join(&task.name), &task.id))?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Some((rustix::fs::open(path, flags, Mode::empty()).ok()?, Origin::Holder))
}
