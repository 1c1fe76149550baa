//! Writes small files: those whose content is one object. The files of a frame are
//! written together.

use std::sync::Arc;

use rayon::prelude::*;

use crate::{
    base::{id::BlobId, io::PathError},
    format::pack::ObjectKind,
    local::{
        contain::FolderCache,
        write::{FileSpec, Placement},
    },
    ops::restore::{
        job::RestoreJob,
        large::{CLONE_BYTES, clone_file},
        tally::Counter,
        window::{FileTask, cursor, is_out_of_reach},
    },
    store::{ObjectLocation, StoreError},
};

/// The number of files of a frame that one thread writes before other threads may take
/// some.
const FILES_AT_ONCE: usize = 64;

/// Writes files whose contents lie in one frame, which is decompressed once.
pub(super) fn write_group(job: &RestoreJob<'_>, group: &[(Option<ObjectLocation>, &FileTask)]) {
    if job.is_halted() {
        return;
    }
    let place = group.first().and_then(|(place, _)| *place);
    // If the frame cannot be read, or was merged into another pack meanwhile, each object
    // is looked up by itself.
    let frame = match place.map(|place| job.store.frame(&place)) {
        // The remote is unreachable, so do not retry for each object.
        Some(Err(error)) if is_out_of_reach(&error) => return job.fail(error),
        Some(Err(error)) if error.is_elsewhere() && !job.store.route_around_damage(&error) => {
            let error = Arc::new(error);
            return group.iter().for_each(|(_, task)| task.leave_out(job, Arc::clone(&error)));
        }
        frame => frame.and_then(Result::ok),
    };
    group.par_chunks(FILES_AT_ONCE).for_each(|tasks| {
        let Some(mut cursor) = cursor(job) else { return };
        let mut hashed = None;
        for (place, task) in tasks {
            if job.is_halted() {
                return;
            }
            let bytes = frame.as_ref().zip(*place).map(|(frame, place)| (place, frame.as_slice()));
            if let Err(error) = write(job, &mut cursor, task, bytes, &mut hashed) {
                task.refuse(job, error);
            }
        }
    });
}

/// Writes one file. `hashed` is the position of the object that was verified last, since
/// files with equal content follow each other.
fn write(
    job: &RestoreJob<'_>,
    cursor: &mut FolderCache<'_>,
    task: &FileTask,
    frame: Option<(ObjectLocation, &[u8])>,
    hashed: &mut Option<ObjectLocation>,
) -> Result<(), PathError> {
    let is_right = |bytes: &[u8]| bytes.len() as u64 == task.size && BlobId::of(bytes) == task.id;
    let in_frame = frame.and_then(|(place, frame)| Some((place, place.slice(frame).ok()?)));
    if let Some((place, bytes)) = in_frame
        && ((*hashed == Some(place) && bytes.len() as u64 == task.size) || is_right(bytes))
    {
        *hashed = Some(place);
        return write_bytes(job, cursor, task, bytes);
    }
    if task.size == 0 && task.id == BlobId::of(b"") {
        return write_bytes(job, cursor, task, b"");
    }
    match job.store.object(&task.id.object(), ObjectKind::Blob) {
        Ok(bytes) if bytes.len() as u64 == task.size => write_bytes(job, cursor, task, &bytes),
        Ok(_) => {
            // The object is sound, but the entry in the tree claims another size.
            let id = task.id.object();
            task.damaged(job, StoreError::Missing { id, wanted: ObjectKind::Blob });
            Ok(())
        }
        Err(error) => {
            task.damaged(job, error);
            Ok(())
        }
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
    job.tally.add(Counter::FilesWritten, 1);
    job.tally.add(Counter::BytesWritten, task.size);
    job.observer.advance(task.size.saturating_sub(reported_bytes), 1);
}
