//! Plans removals during a visit: entries of the target that the tree lacks.

use std::sync::Arc;

use rustix::{
    fs::{Access, AtFlags, accessat},
    io::Errno,
};

use crate::{
    base::{id::TreeId, name::EntryName},
    local::{contain::FolderPath, mount::Mount, write::is_temporary},
    ops::restore::{
        Extras, Mode, RestoreError,
        guard::ExistingFolder,
        plan::{self, PlannedFolder},
        visit::{FolderState, FolderVisit, VisitLevel, VisitMode},
    },
};

impl FolderVisit<'_, '_> {
    /// Makes the guard enter a folder.
    pub(super) fn guard_enter(
        &mut self,
        at: &Arc<FolderPath>,
        tree: Option<TreeId>,
        state: &FolderState,
    ) -> Result<(), RestoreError> {
        let Some(guard) = &mut self.planner.guard else { return Ok(()) };
        let there = match (state, &mut self.cursor) {
            (FolderState::There { listing, .. }, Some(cursor)) => {
                Some(ExistingFolder { folder: cursor.folder(at)?, names: listing })
            }
            _ => None,
        };
        match at.parent() {
            Some((_, name)) => guard.enter(name, tree, there),
            None => guard.enter_top(tree, there),
        }
        Ok(())
    }

    /// Determines the mount on which a folder lies.
    pub(super) fn find_mount(&mut self, level: &mut VisitLevel) -> Result<(), RestoreError> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        let at = &level.folder;
        let mount = Mount::of_folder(cursor.folder(at)?);
        let mount = mount.map_err(|e| self.job.error("look at", at, None, e))?;
        level.is_mounted = self.levels.last().is_some_and(|above| {
            let leaves = |around: &PlannedFolder| around.mount.is_left_by(&mount);
            above.is_mounted || above.around.as_ref().is_some_and(leaves)
        });
        level.around = Some(PlannedFolder { folder: Arc::clone(at), wanted: level.wanted, mount });
        Ok(())
    }

    /// Plans to remove the entries of the present folder that the tree lacks and whose
    /// names come before `end`.
    pub(super) fn extras_before(&mut self, end: Option<&EntryName>) -> Result<(), RestoreError> {
        let is_top = self.levels.len() == 1;
        let deletes = self.mode != VisitMode::Write && self.job.options.extras == Extras::Delete;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let FolderState::There { listing, next } = &mut level.state else { return Ok(()) };
        while let Some((name, _)) = listing.get(*next) {
            if end.is_some_and(|end| name >= end.as_bytes()) {
                return Ok(());
            }
            *next += 1;
            if !deletes || (is_top && self.single) || is_temporary(name) {
                continue;
            }
            let (Some(around), Some(cursor)) = (&level.around, &mut self.cursor) else { continue };
            let Ok(name) = EntryName::new(name) else { continue };
            if !level.is_mounted {
                self.planner.extra(cursor, around, &name)?;
            } else if !std::mem::replace(&mut level.is_kept, true) {
                self.planner.keep(level.folder.to_path(), plan::MOUNT);
            }
        }
        Ok(())
    }

    /// In a dry run, reports the existing folder at level `index` if it is not writable. The
    /// real run would report each entry in it.
    pub(super) fn check_writable(&mut self, index: usize) -> Result<(), RestoreError> {
        let is_dry = self.job.options.mode == Mode::DryRun;
        let (Some(level), Some(cursor)) = (self.levels.get_mut(index), &mut self.cursor) else {
            return Ok(());
        };
        let is_there = matches!(level.state, FolderState::There { .. })
            || (index == 0 && matches!(level.state, FolderState::Made));
        if !is_dry || !is_there || level.is_writable {
            return Ok(());
        }
        let access = Access::WRITE_OK | Access::EXEC_OK;
        let may = accessat(cursor.folder(&level.folder)?, c".", access, AtFlags::EACCESS);
        level.is_writable = true;
        let at = Arc::clone(&level.folder);
        let failed = |e: Errno| self.job.error("write into folder", &at, None, e.into());
        match may.map_err(failed) {
            Ok(()) => Ok(()),
            Err(error) => self.refuse(&at.to_path(), "folder", error.into()),
        }
    }
}
