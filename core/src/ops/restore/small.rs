//! Writes small files: those whose content is one object.

use std::sync::Arc;

use crate::{
    base::io::PathError,
    local::{
        contain::FolderCache,
        write::{FileSpec, Placement},
    },
    ops::restore::{job::RestoreJob, large::CLONE_BYTES, window::FileTask},
    store::StoreError,
};

impl RestoreJob<'_> {
    /// Writes a small file.
    pub(super) fn write_small(
        &self,
        cursor: &mut FolderCache<'_>,
        task: &FileTask,
        content: Result<&[u8], Arc<StoreError>>,
    ) {
        match content {
            _ if self.is_halted() => {}
            Ok(bytes) => {
                if let Err(error) = self.write_small_bytes(cursor, task, bytes) {
                    task.refuse(self, error);
                }
            }
            Err(error) => task.damaged(self, error),
        }
    }

    fn write_small_bytes(
        &self,
        cursor: &mut FolderCache<'_>,
        task: &FileTask,
        bytes: &[u8],
    ) -> Result<(), PathError> {
        let folder = cursor.folder(&task.folder)?;
        let failed = |error| self.error("write", &task.folder, Some(&task.name), error);
        let mut spec = task.spec(self);
        loop {
            let mut refused = self.refusals(&task.folder, Some(&task.name));
            let mut draft = spec.start(folder).map_err(failed)?;
            if task.size < CLONE_BYTES || !self.clone_blocks(task, &mut draft).map_err(failed)? {
                draft.write(bytes).map_err(failed)?;
            }
            self.check_still_as_seen(folder, &task.folder, &task.name)?;
            let renamed = spec.finish(draft, &mut *refused).map_err(failed)?;
            if !task.taken(self, renamed).map_err(failed)? {
                break;
            }
            spec = FileSpec { placement: Placement::Replace, ..spec };
        }
        if !self.is_halted() {
            self.clones.remember(task);
            self.count_written(task, 0);
        }
        Ok(())
    }

    /// Counts a file that was written. `reported_bytes` of it were reported as progress before.
    pub(super) fn count_written(&self, task: &FileTask, reported_bytes: u64) {
        self.tally.count(|outcome| {
            outcome.files_written += 1;
            outcome.bytes_written += task.size;
        });
        self.observer.advance(task.size.saturating_sub(reported_bytes), 1);
    }
}
