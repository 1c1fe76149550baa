//! What a visit plans beside the entries of the tree: names that the tree lacks.

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
        plan::Around,
        visit::{Intent, Level, State, Visit},
    },
};

impl Visit<'_, '_> {
    /// Lets the guard enter a folder.
    pub(super) fn guard_enter(
        &mut self,
        at: &Arc<FolderPath>,
        tree: Option<TreeId>,
        state: &State,
    ) -> Result<(), RestoreError> {
        let Some(guard) = &mut self.planner.guard else { return Ok(()) };
        let there = match (state, &mut self.cursor) {
            (State::There { listing, .. }, Some(cursor)) => Some((cursor.folder(at)?, listing)),
            _ => None,
        };
        match at.parent() {
            Some((_, name)) => guard.enter(name, tree, there),
            None => guard.enter_top(tree, there),
        }
        Ok(())
    }

    /// Finds out on which mount a folder lies.
    pub(super) fn find_mount(&mut self, level: &mut Level) -> Result<(), RestoreError> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        let at = &level.folder;
        let mount = Mount::of_folder(cursor.folder(at)?);
        let mount = mount.map_err(|e| self.job.error("look at", at, None, e))?;
        level.is_mounted = self.levels.last().is_some_and(|above| {
            let leaves = |around: &Around| around.mount.is_left_by(&mount);
            above.is_mounted || above.around.as_ref().is_some_and(leaves)
        });
        level.around = Some(Around { folder: Arc::clone(at), wanted: level.wanted, mount });
        Ok(())
    }

    /// Plans to remove names in the present folder that the tree lacks, up to
    /// `end`.
    pub(super) fn extras_before(&mut self, end: Option<&EntryName>) -> Result<(), RestoreError> {
        let is_top = self.levels.len() == 1;
        let deletes = self.intent != Intent::Write && self.job.options.extras == Extras::Delete;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let State::There { listing, next } = &mut level.state else { return Ok(()) };
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
                self.planner.keep_mounted(&level.folder);
            }
        }
        Ok(())
    }

    /// In a dry run, fails where the folder at level `index` is there and cannot
    /// be written into, as the real run does.
    pub(super) fn check_writable(&mut self, index: usize) -> Result<(), RestoreError> {
        let is_dry = self.job.options.mode == Mode::DryRun;
        let (Some(level), Some(cursor)) = (self.levels.get_mut(index), &mut self.cursor) else {
            return Ok(());
        };
        let is_there = matches!(level.state, State::There { .. })
            || (index == 0 && matches!(level.state, State::Made));
        if !is_dry || !is_there || level.is_writable {
            return Ok(());
        }
        let access = Access::WRITE_OK | Access::EXEC_OK;
        let may = accessat(cursor.folder(&level.folder)?, c".", access, AtFlags::EACCESS);
        let failed = |e: Errno| self.job.error("write into folder", &level.folder, None, e.into());
        may.map_err(failed)?;
        level.is_writable = true;
        Ok(())
    }
}
