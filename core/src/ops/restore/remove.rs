//! Executes the planned removals, and removes nothing else.
//!
//! A path that has changed since it was planned is kept, with the folders above it. A
//! failed removal is reported and counted, and the others continue.

use std::io;

use rustix::io::Errno;

use crate::{
    base::{io::PathError, observe::Note},
    local::contain::FolderCache,
    ops::restore::{
        ContentLoss, RestoreAction,
        job::RestoreJob,
        plan::{Removal, Removed},
    },
};

/// The result of one removal.
enum RemovalResult {
    Gone,
    WasGone,
    Stayed(&'static str),
}

impl RestoreJob<'_> {
    /// Removes the `planned` paths. The contents of a folder are removed before the folder.
    pub(super) fn remove_planned(&self, planned: &[Removal]) {
        let Some(mut cursor) = self.folder_cache() else { return };
        for removal in planned.iter().rev() {
            if self.is_halted() {
                return;
            }
            let path = || removal.folder.join(&removal.name);
            match self.remove_entry(&mut cursor, removal) {
                Ok(RemovalResult::Gone) => {
                    self.tally.count(|outcome| outcome.removed += 1);
                    self.changed(
                        &removal.folder,
                        &removal.name,
                        RestoreAction::Remove,
                        ContentLoss::Nothing,
                    );
                }
                Ok(RemovalResult::WasGone) => {}
                Ok(RemovalResult::Stayed(why)) => {
                    self.tally.count(|outcome| outcome.kept += 1);
                    self.observer.note(Note::Kept { path: &path(), why });
                }
                Err(error) if self.is_of_one_path(&error.source) => {
                    self.not_removed(&path(), &error.source);
                }
                Err(error) => return self.fail(error),
            }
        }
    }

    fn remove_entry(
        &self,
        cursor: &mut FolderCache<'_>,
        removal: &Removal,
    ) -> Result<RemovalResult, PathError> {
        let Removal { folder: at, name, what, .. } = removal;
        let failed = |action, source| self.error(action, at, Some(name), source);
        let folder = cursor.folder(at)?;
        let done = match what {
            Removed::KeptFolder => return Ok(RemovalResult::WasGone),
            Removed::Folder => folder.remove_folder(name),
            Removed::Leaf(seen) => {
                let Some(stat) = folder.stat(name).map_err(|e| failed("look at", e))? else {
                    return Ok(RemovalResult::WasGone);
                };
                if !seen.is(&stat) {
                    return Ok(RemovalResult::Stayed("it changed during the restore"));
                }
                folder.remove(name)
            }
        };
        match done {
            Ok(()) => Ok(RemovalResult::Gone),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                Ok(RemovalResult::Stayed("another file system is mounted there"))
            }
            Err(error) if stayed(&error) => {
                Ok(RemovalResult::Stayed("it contains entries that are kept"))
            }
            Err(error) => Err(failed("remove", error)),
        }
    }
}

/// Returns true if a folder was not removed because it is not empty or is busy.
pub(super) fn stayed(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY))
}
