//! Removing what was planned, and nothing else.
//!
//! A path that has changed since it was planned stays, with the folders above
//! it. A removal that fails is reported and counted; the others go on.

use std::io;

use rustix::io::Errno;

use crate::{
    base::{io::PathError, observe::Note},
    local::contain::Cursor,
    ops::restore::{
        Change, Loss,
        job::Job,
        plan::{Removal, Removed},
        tally::Count,
        window,
    },
};

/// The result of one removal.
enum RemovalResult {
    Gone,
    WasGone,
    Stayed(&'static str),
}

/// Removes `planned`, what is in a folder before the folder.
pub(super) fn run(job: &Job<'_>, planned: &[Removal]) {
    let Some(mut cursor) = window::cursor(job) else { return };
    for removal in planned.iter().rev() {
        if job.is_halted() {
            return;
        }
        let path = || removal.folder.join(&removal.name);
        match remove(job, &mut cursor, removal) {
            Ok(RemovalResult::Gone) => {
                job.tally.add(Count::Removed, 1);
                job.changed(&removal.folder, &removal.name, Change::Remove, Loss::Nothing);
            }
            Ok(RemovalResult::WasGone) => {}
            Ok(RemovalResult::Stayed(why)) => {
                job.tally.add(Count::Kept, 1);
                job.observer.note(Note::Kept { path: &path(), why });
            }
            Err(error) => {
                job.tally.add(Count::NotRemoved, 1);
                job.observer.note(Note::NotRemoved { path: &path(), error: &error.source });
            }
        }
    }
}

fn remove(
    job: &Job<'_>,
    cursor: &mut Cursor<'_>,
    removal: &Removal,
) -> Result<RemovalResult, PathError> {
    let Removal { folder: at, name, what, .. } = removal;
    let failed = |action, source| job.error(action, at, Some(name), source);
    let folder = cursor.folder(at)?;
    let done = match what {
        Removed::NothingYet => return Ok(RemovalResult::WasGone),
        Removed::Folder => folder.remove_folder(name),
        Removed::Leaf(seen) => {
            let Some(stat) = folder.stat(name).map_err(|e| failed("look at", e))? else {
                return Ok(RemovalResult::WasGone);
            };
            if !seen.is(&stat) {
                return Ok(RemovalResult::Stayed("it has changed meanwhile"));
            }
            folder.remove(name)
        }
    };
    match done {
        Ok(()) => Ok(RemovalResult::Gone),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
            Ok(RemovalResult::Stayed("another file system is mounted there"))
        }
        Err(error) if stayed(&error) => Ok(RemovalResult::Stayed("something in it stays")),
        Err(error) => Err(failed("remove", error)),
    }
}

/// Whether a folder is still there because something is in it.
pub(super) fn stayed(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY))
}
