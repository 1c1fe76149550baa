//! Writes large files, whose content was cut into chunks, and shares blocks between
//! files.
//!
//! All threads decompress, verify and write the chunks of a large file
//! ([`ContentReader::read_in_any_order`]).
//!
//! If this run has written the content before, or a local file probably has it, the new file shares
//! its blocks (`FICLONE`). The new file is then compared with the content. If the file system does not support
//! sharing, the restore stops trying. A holder's file may lie on another file system. If only
//! sharing with holders fails, the restore stops using holders and still shares blocks of files in
//! the target.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, ioctl_ficlone},
    io::Errno,
};

use crate::{
    base::{id::ContentId, io::PathError, name::EntryName},
    local::{contain::FolderPath, holes, scan::FileStat, write::Draft},
    ops::{
        file_content::equals,
        restore::{job::RestoreJob, window::FileTask},
    },
    store::{ContentReader, FileContent, StoreError},
};

/// Files of at least this many bytes share blocks if possible.
pub(super) const CLONE_BYTES: u64 = 128 << 10;

/// Number of recently written contents that are remembered for sharing.
const REMEMBERED: usize = 256;

/// The reason why a large file was not written.
#[derive(Debug, thiserror::Error)]
enum LargeFileStop {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Damage(#[from] StoreError),
    #[error("the restore was halted")]
    Halted,
}

impl RestoreJob<'_> {
    /// Writes one large file.
    pub(super) fn write_large(&self, task: &FileTask) {
        let Some(mut cursor) = self.folder_cache() else { return };
        if self.is_halted() {
            return;
        }
        let written = AtomicU64::new(0);
        let draft = self.write_draft::<LargeFileStop>(&mut cursor, task, &mut |draft| {
            self.write_chunks(task, draft, &written)
        });
        match draft {
            Ok(()) => self.count_written(task, written.into_inner()),
            Err(LargeFileStop::Damage(error)) => task.damaged(self, Arc::new(error)),
            Err(LargeFileStop::Path(error)) => task.refuse(self, error),
            Err(LargeFileStop::Halted) => {}
        }
    }

    /// Writes the verified chunks of the content into the draft, on all threads. Adds to `written` the
    /// number of bytes that were reported as progress.
    fn write_chunks(
        &self,
        task: &FileTask,
        draft: &mut Draft<'_>,
        written: &AtomicU64,
    ) -> Result<(), LargeFileStop> {
        let failed = |error| self.error("write", &task.folder, Some(&task.name), error);
        let skips_zeros = draft.is_sparse();
        let shared = &*draft;
        ContentReader::new(self.store).read_in_any_order(
            &task.id,
            Some(task.size),
            skips_zeros,
            &|at, bytes| {
                if self.is_halted() {
                    return Err(LargeFileStop::Halted);
                }
                shared.write_at(bytes, at).map_err(failed)?;
                written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                self.observer.advance(bytes.len() as u64, 0);
                Ok(())
            },
        )?;
        draft.adopt(task.size);
        Ok(())
    }

    /// Fills the draft with the blocks of a file that has the content. Returns true on
    /// success; otherwise the draft is empty.
    pub(super) fn clone_blocks(&self, task: &FileTask, draft: &mut Draft<'_>) -> io::Result<bool> {
        if task.size < CLONE_BYTES || self.clones.cannot.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let Some((source, origin)) = self.block_source(task) else { return Ok(false) };
        let Ok(stat) = fstat(&source) else { return Ok(false) };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || u64::try_from(stat.st_size) != Ok(task.size) {
            return Ok(false);
        }
        match ioctl_ficlone(draft.as_fd(), &source) {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::INVAL) if origin == BlockSource::Holder => {
                self.clones.holders_cannot.store(true, Ordering::Relaxed);
                return Ok(false);
            }
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS) => {
                self.clones.cannot.store(true, Ordering::Relaxed);
                return Ok(false);
            }
            Err(_) => return Ok(false),
        }
        let shared = draft.as_fd().try_clone_to_owned()?;
        let content = FileContent { id: task.id, bytes: task.size };
        let stat = FileStat::of_fd(shared.as_fd())?;
        // If the shared file is unreadable or wrong, the content is read from the store
        // instead.
        if !equals(self.store, &shared, &stat, &content, &|| self.is_halted()).unwrap_or(false) {
            draft.clear()?;
            return Ok(false);
        }
        if task.metadata.sparse && !FileStat::of_fd(draft.as_fd())?.may_have_holes() {
            // The other file may have blocks where the snapshot has holes. A file system that
            // shares blocks supports holes as well.
            let file = File::from(draft.as_fd().try_clone_to_owned()?);
            holes::punch(&file, task.size)?;
        }
        draft.adopt(task.size);
        self.tally.count(|outcome| outcome.files_cloned += 1);
        Ok(true)
    }

    /// Opens a file that should have the content.
    fn block_source(&self, task: &FileTask) -> Option<(OwnedFd, BlockSource)> {
        if let (Some((folder, name)), Some(root)) = (self.clones.find(&task.id), self.root()) {
            let file = root.folder(&folder).and_then(|folder| folder.open_file(&name)).ok()?;
            return Some((file, BlockSource::Written));
        }
        if self.clones.holders_cannot.load(Ordering::Relaxed) {
            return None;
        }
        let path = self
            .options
            .holder
            .and_then(|holder| holder(&task.folder.join(&task.name), &task.id))?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Some((rustix::fs::open(path, flags, Mode::empty()).ok()?, BlockSource::Holder))
    }
}

/// Files whose blocks can be shared.
#[derive(Debug, Default)]
pub(super) struct Clones {
    cannot: AtomicBool,
    holders_cannot: AtomicBool,
    written: Mutex<VecDeque<(ContentId, Arc<FolderPath>, EntryName)>>,
}

impl Clones {
    /// Remembers the file to which a content was written.
    pub(super) fn remember(&self, task: &FileTask) {
        if task.size < CLONE_BYTES || self.cannot.load(Ordering::Relaxed) {
            return;
        }
        let mut written = self.written.lock();
        if written.len() == REMEMBERED {
            written.pop_front();
        }
        written.push_back((task.id, Arc::clone(&task.folder), task.name.clone()));
    }

    fn find(&self, id: &ContentId) -> Option<(Arc<FolderPath>, EntryName)> {
        let written = self.written.lock();
        let found = written.iter().rev().find(|(have, ..)| have == id)?;
        Some((Arc::clone(&found.1), found.2.clone()))
    }
}

/// The origin of shared blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockSource {
    /// A file that this run has written.
    Written,
    /// A file that the caller named.
    Holder,
}
