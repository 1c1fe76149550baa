//! A window: a batch of files that are collected during the walk and written in the order
//! of their contents in the store.

use std::sync::Arc;

use rayon::prelude::*;
use rustix::io::Errno;

use crate::{
    base::{id::ContentId, io::PathError, name::EntryName},
    disk::Renamed,
    format::tree::Metadata,
    local::{
        contain::{FolderCache, FolderPath},
        write::{Draft, FileSpec, Inherited, Placement},
    },
    ops::restore::{
        Existing, RestoreError,
        job::RestoreJob,
        links::{FirstNameFailure, LinkTask},
    },
    store::{ContentReader, FileContent, StoreError},
};

/// Number of files in a full window. The names and attributes of this many files take some MiB.
const WINDOW_FILES: usize = 16_384;

/// Total size of the contents of a full window in bytes. Contents are not held in memory; the limit
/// bounds how long the next window waits.
const WINDOW_BYTES: u64 = 256 << 20;

/// Number of files in the first window. It is small, so that writing starts early.
const FIRST_WINDOW_FILES: usize = 1024;

/// Number of large files that are written in parallel. All threads read each of them.
const LARGE_AT_ONCE: usize = 4;

/// A file to write.
pub(super) struct FileTask {
    pub(super) folder: Arc<FolderPath>,
    pub(super) name: EntryName,
    pub(super) id: ContentId,
    pub(super) size: u64,
    pub(super) metadata: Metadata,
    pub(super) inherited: Option<Inherited>,
    pub(super) placement: Placement,
}

/// The files to write next.
#[derive(Default)]
pub(super) struct WriteWindow {
    pub(super) files: Vec<FileTask>,
    pub(super) links: Vec<LinkTask>,
    pub(super) bytes: u64,
    pub(super) is_first: bool,
}

impl WriteWindow {
    pub(super) fn is_full(&self) -> bool {
        let files = if self.is_first { FIRST_WINDOW_FILES } else { WINDOW_FILES };
        self.files.len() + self.links.len() >= files || self.bytes >= WINDOW_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.links.is_empty()
    }
}

impl RestoreJob<'_> {
    /// Writes all files of a window, then the further names of files with several names.
    pub(super) fn write_window(&self, window: WriteWindow) {
        if self.is_halted() {
            return;
        }
        self.write_files(&window.files);
        self.write_links(&window.links);
    }

    /// Writes a file under a temporary name, and renames it. Shares the blocks of another file if
    /// possible; otherwise `fill` writes the content. If an entry takes the name meanwhile,
    /// replaces the entry if the restore may overwrite entries.
    pub(super) fn write_draft<E: From<PathError>>(
        &self,
        cursor: &mut FolderCache<'_>,
        task: &FileTask,
        fill: &mut dyn FnMut(&mut Draft<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let folder = cursor.folder(&task.folder)?;
        let failed = |error| self.error("write", &task.folder, Some(&task.name), error);
        let mut spec = FileSpec {
            name: &task.name,
            attributes: self.attributes(&task.metadata, false, None),
            sparse: task.metadata.sparse,
            inherited: task.inherited,
            placement: task.placement,
        };
        loop {
            let mut draft = spec.start(folder).map_err(failed)?;
            if !self.clone_blocks(task, &mut draft).map_err(failed)? {
                fill(&mut draft)?;
            }
            self.check_still_as_seen(folder, &task.folder, &task.name)?;
            let mut refused = self.refusals(&task.folder, Some(&task.name));
            let renamed = spec.finish(draft, &mut *refused).map_err(failed)?;
            match (renamed, self.options.existing) {
                (Renamed::Done, _) => return Ok(()),
                // The name was taken after it was found free.
                (Renamed::Taken, Existing::Overwrite) => {
                    spec = FileSpec { placement: Placement::Replace, ..spec };
                }
                (Renamed::Taken, Existing::Stop) => {
                    return Err(failed(Errno::EXIST.into()).into());
                }
            }
        }
    }

    /// Writes a small file: one whose content is one object.
    fn write_small(
        &self,
        cursor: &mut FolderCache<'_>,
        task: &FileTask,
        content: Result<&[u8], Arc<StoreError>>,
    ) {
        let bytes = match content {
            _ if self.is_halted() => return,
            Ok(bytes) => bytes,
            Err(error) => return task.damaged(self, error),
        };
        let failed = |error| self.error("write", &task.folder, Some(&task.name), error);
        match self.write_draft(cursor, task, &mut |draft| draft.write(bytes).map_err(failed)) {
            Ok(()) => self.count_written(task, 0),
            Err(error) => task.refuse(self, error),
        }
    }

    /// Counts a file that was written, unless the run must stop. `reported_bytes` of it were reported
    /// as progress before.
    pub(super) fn count_written(&self, task: &FileTask, reported_bytes: u64) {
        if self.is_halted() {
            return;
        }
        self.clones.remember(task);
        self.tally.count(|outcome| {
            outcome.files_written += 1;
            outcome.bytes_written += task.size;
        });
        self.observer.advance(task.size.saturating_sub(reported_bytes), 1);
    }

    /// Writes files: first small ones in the order of their contents in the store, then large
    /// ones.
    pub(super) fn write_files(&self, files: &[FileTask]) {
        let content = |task: &FileTask| FileContent { id: task.id, bytes: task.size };
        let batch: Vec<FileContent> = files.iter().map(content).collect();
        let written = ContentReader::new(self.store).read_batch(
            &batch,
            0,
            &|| if self.is_halted() { None } else { self.folder_cache() },
            &|cursor, index, content| self.write_small(cursor, &files[index], content),
        );
        // One thread writes files with equal contents one after the other, so that all but the
        // first can share blocks.
        let equal: Vec<_> =
            written.chunked.chunk_by(|(_, a), (_, b)| files[*a].id == files[*b].id).collect();
        let share = equal.len().div_ceil(LARGE_AT_ONCE).max(1);
        equal.par_chunks(share).for_each(|groups| {
            groups
                .iter()
                .copied()
                .flatten()
                .for_each(|(_, index)| self.write_large(&files[*index]));
        });
    }
}

impl FileTask {
    /// Leaves out a file that cannot be read from the store. Ends the run instead if the
    /// remote is unreachable, since other files would fail as well.
    pub(super) fn damaged(&self, job: &RestoreJob<'_>, error: Arc<StoreError>) {
        if error.is_transport() {
            return job.fail(RestoreError::Store(error));
        }
        job.first_name_failed(self.metadata.link, FirstNameFailure::Damaged(Arc::clone(&error)));
        job.observer.advance(self.size, 1);
        job.tally.damaged(self.folder.join(&self.name), self.id.object(), error);
    }

    /// Leaves out a file that the target refuses, or ends the run if the whole target fails.
    pub(super) fn refuse(&self, job: &RestoreJob<'_>, error: PathError) {
        let errno = Errno::from_io_error(&error.source).unwrap_or(Errno::EXIST);
        match job.refuse(&self.folder.join(&self.name), "file", error) {
            Ok(()) => {
                job.first_name_failed(self.metadata.link, FirstNameFailure::Refused(errno));
                job.observer.advance(self.size, 1);
            }
            Err(error) => job.fail(error),
        }
    }
}
