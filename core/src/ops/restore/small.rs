//! Writes small files: those whose content is one object.

use std::sync::Arc;

use crate::{
    base::io::PathError,
    local::contain::FolderCache,
    ops::restore::{job::RestoreJob, window::FileTask},
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
        let failed = |error| self.error("write", &task.folder, Some(&task.name), error);
        self.write_draft(cursor, task, &mut |draft| draft.write(bytes).map_err(failed))?;
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
