//! Files whose content was cut into chunks, and sharing blocks between files.
//!
//! A large file is streamed (see [`content`]): the hash over all that was
//! written must be the content's id before the file gets its name.
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
    },
};

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, ioctl_ficlone},
    io::Errno,
};

use crate::{
    base::{id::BlobId, io::PathError, name::EntryName},
    local::{
        contain::{Cursor, FolderPath},
        holes,
        scan::FileStat,
        write::{Draft, FileSpec, Placement},
    },
    ops::{
        content,
        restore::{
            job::Job,
            small::written,
            tally::Count,
            window::{FileTask, cursor},
        },
    },
    store::StoreError,
};

/// Files from here on share blocks where they can.
pub(super) const CLONE_BYTES: u64 = 128 << 10;

/// Contents that were written last and are remembered for sharing.
const REMEMBERED: usize = 256;

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

/// Writes the content into the draft and checks the whole.
fn stream(job: &Job<'_>, task: &FileTask, draft: &mut Draft<'_>) -> Result<(), Stop> {
    let mut write = |run: &content::Run| {
        if job.is_halted() {
            return Err(Stop::Halted);
        }
        let mut bytes = 0;
        for piece in run.pieces() {
            draft.write(piece).map_err(|error| {
                Stop::Path(job.error("write", &task.folder, Some(&task.name), error))
            })?;
            bytes += piece.len() as u64;
        }
        job.observer.advance(bytes, 0);
        Ok(())
    };
    content::stream(job.store, &task.id, task.size, &mut write).map_err(|stop| match stop {
        content::Stop::Damage(error) => Stop::Damage(error),
        content::Stop::Taker(stop) => stop,
    })
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
    if task.metadata.sparse && !FileStat::of_fd(draft.as_fd())?.may_have_holes() {
        // The holder may have blocks where the snapshot has holes. A file
        // system that shares blocks can make holes, too.
        let file = File::from(draft.as_fd().try_clone_to_owned()?);
        holes::punch(&file, task.size)?;
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
