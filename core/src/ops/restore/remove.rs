//! Removing what the snapshot lacks, with all that is below it.
//!
//! A folder is emptied name by name, relative to descriptors, and no link is
//! followed. A store, another file system mounted below, and what the patterns
//! leave out stay, and so do the folders above them. Neither depth nor number
//! of open files grows: a level keeps names only.

use std::{io, sync::Arc};

use rustix::{
    fs::{FileType, fstat},
    io::Errno,
};

use crate::{
    base::{io::PathError, name::EntryName},
    local::contain::{Cursor, FolderPath},
    ops::restore::{filter::Choice, job::Job},
};

struct Level {
    folder: Arc<FolderPath>,
    wanted: bool,
    /// Folders in it that are still to be removed.
    folders: Vec<EntryName>,
}

/// Removes `name` from `folder`; `wanted` says whether patterns include the
/// folder. Says whether it is gone.
pub(super) fn remove(
    job: &Job<'_>,
    cursor: &mut Cursor<'_>,
    folder: &Arc<FolderPath>,
    name: &EntryName,
    wanted: bool,
) -> Result<bool, PathError> {
    if Job::is_reserved(folder, name.as_bytes()) {
        return Ok(false);
    }
    let failed = |action, source| job.error(action, folder, Some(name), source);
    let parent = cursor.folder(folder)?;
    let Some(stat) = parent.stat(name).map_err(|e| failed("look at", e))? else { return Ok(true) };
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let choice = choose(job, folder, name, is_folder, wanted);
    if choice == Choice::Excluded {
        return Ok(false);
    }
    if !is_folder {
        if choice == Choice::Wanted {
            parent.remove(name).map_err(|e| failed("remove", e))?;
        }
        return Ok(choice == Choice::Wanted);
    }
    empty(job, cursor, folder.child(name.clone()), choice == Choice::Wanted, stat.st_dev)?;
    rmdir(job, cursor, folder, name)
}

fn choose(
    job: &Job<'_>,
    folder: &FolderPath,
    name: &EntryName,
    is_folder: bool,
    wanted: bool,
) -> Choice {
    if job.filter.is_open() {
        return Choice::Wanted;
    }
    job.filter.choose(&folder.join(name), is_folder, wanted)
}

/// Removes what is in a folder, on the file system `device` only.
fn empty(
    job: &Job<'_>,
    cursor: &mut Cursor<'_>,
    folder: Arc<FolderPath>,
    wanted: bool,
    device: u64,
) -> Result<(), PathError> {
    let folders = clear(job, cursor, &folder, wanted, device)?;
    let mut levels = vec![Level { folder, wanted, folders }];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.folders.pop() else {
            let done = levels.pop();
            if let (Some(done), Some(_)) = (done, levels.last())
                && let Some((parent, name)) = done.folder.parent()
            {
                rmdir(job, cursor, parent, name)?;
            }
            continue;
        };
        let wanted = match choose(job, &level.folder, &name, true, level.wanted) {
            Choice::Excluded => continue,
            choice => choice == Choice::Wanted,
        };
        let folder = level.folder.child(name);
        let folders = clear(job, cursor, &folder, wanted, device)?;
        levels.push(Level { folder, wanted, folders });
    }
    Ok(())
}

/// Removes what is no folder from a folder, and returns the folders.
fn clear(
    job: &Job<'_>,
    cursor: &mut Cursor<'_>,
    at: &Arc<FolderPath>,
    wanted: bool,
    device: u64,
) -> Result<Vec<EntryName>, PathError> {
    let folder = cursor.folder(at)?;
    let failed = |action, name: Option<&EntryName>, source| job.error(action, at, name, source);
    let here = fstat(folder).map_err(|e| failed("look at", None, e.into()))?;
    if here.st_dev != device || job.is_store(folder) {
        return Ok(Vec::new());
    }
    let mut folders = Vec::new();
    for (name, kind) in folder.list().map_err(|e| failed("read folder", None, e))?.iter() {
        let Ok(name) = EntryName::new(name) else { continue };
        let kind = match kind {
            FileType::Unknown => match folder.stat(&name) {
                Ok(Some(stat)) => FileType::from_raw_mode(stat.st_mode),
                _ => continue,
            },
            kind => kind,
        };
        if kind == FileType::Directory {
            folders.push(name);
        } else if choose(job, at, &name, false, wanted) == Choice::Wanted {
            folder.remove(&name).map_err(|e| failed("remove", Some(&name), e))?;
        }
    }
    Ok(folders)
}

/// Removes a folder unless something stayed in it.
fn rmdir(
    job: &Job<'_>,
    cursor: &mut Cursor<'_>,
    folder: &Arc<FolderPath>,
    name: &EntryName,
) -> Result<bool, PathError> {
    match cursor.folder(folder)?.remove_folder(name) {
        Ok(()) => Ok(true),
        Err(error) if stayed(&error) => Ok(false),
        Err(error) => Err(job.error("remove folder", folder, Some(name), error)),
    }
}

/// Whether a folder is still there because something is in it.
pub(super) fn stayed(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY))
}
