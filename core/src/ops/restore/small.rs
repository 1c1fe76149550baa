//! Writes small files: those whose content is one object.

use std::sync::Arc;

use crate::{
    base::io::PathError,
    local::{
        contain::FolderCache,
        write::{FileSpec, Placement},
    },
    ops::restore::{
        job::RestoreJob,
        large::{CLONE_BYTES, clone_file},
        window::FileTask,
    },
    store::StoreError,
};

/// Writes a small file.
pub(super) fn write(
    job: &RestoreJob<'_>,
    cursor: &mut FolderCache<'_>,
    task: &FileTask,
    content: Result<&[u8], Arc<StoreError>>,
) {
    match content {
        _ if job.is_halted() => {}
        Ok(bytes) => {
            if let Err(error) = write_bytes(job, cursor, task, bytes) {
                task.refuse(job, error);
            }
        }
        Err(error) => task.damaged(job, error),
    }
}

fn write_bytes(
    job: &RestoreJob<'_>,
    cursor: &mut FolderCache<'_>,
    task: &FileTask,
    bytes: &[u8],
) -> Result<(), PathError> {
    let folder = cursor.folder(&task.folder)?;
    let failed = |error| job.error("write", &task.folder, Some(&task.name), error);
    let mut spec = task.spec(job);
    loop {
        let mut refused = job.refusals(&task.folder, Some(&task.name));
        let mut draft = spec.start(folder).map_err(failed)?;
        if task.size < CLONE_BYTES || !clone_file(job, task, &mut draft).map_err(failed)? {
            draft.write(bytes).map_err(failed)?;
        }
        job.check_still_as_seen(folder, &task.folder, &task.name)?;
        let renamed = spec.finish(draft, &mut *refused).map_err(failed)?;
        if !task.taken(job, renamed).map_err(failed)? {
            break;
        }
        spec = FileSpec { placement: Placement::Replace, ..spec };
    }
    if !job.is_halted() {
        job.clones.remember(task);
        written(job, task, 0);
    }
    Ok(())
}

/// Counts a file that was written. `reported_bytes` of it were reported as progress before.
pub(super) fn written(job: &RestoreJob<'_>, task: &FileTask, reported_bytes: u64) {
    job.tally.count(|outcome| {
        outcome.files_written += 1;
        outcome.bytes_written += task.size;
    });
    job.observer.advance(task.size.saturating_sub(reported_bytes), 1);
}
