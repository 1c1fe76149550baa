//! Handles folders of the target: creates missing ones, and makes those accessible whose
//! owner lacks permissions.

use std::{io, path::PathBuf, sync::Arc};

use rustix::{
    fs::{FileType, fstat},
    io::Errno,
};

use crate::{
    base::{io::PathError, name::EntryName},
    format::tree::Metadata,
    local::{
        attributes::{AttributeTarget, Attributes, ExpectedFile, Extra, FileCapability, apply},
        contain::{FolderCache, FolderPath, OpenFolder},
        unfinished::{UNFINISHED_MODE, mark, mark_entry},
        write::Inherited,
    },
    ops::restore::{
        ContentLoss, Mode, RestoreAction, RestoreError,
        compare::AttributePolicy,
        job::RestoreJob,
        visit::{FolderState, FolderVisit, VisitLevel},
    },
};

impl FolderVisit<'_, '_> {
    /// Determines whether an existing folder was created by an earlier restore that did
    /// not finish it.
    pub(super) fn find_unfinished(&mut self, level: &mut VisitLevel) -> Result<(), RestoreError> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        let folder = cursor.folder(&level.folder)?;
        let failed = |e: Errno| self.job.error("look at", &level.folder, None, e.into());
        let stat = fstat(folder).map_err(failed)?;
        if self.job.is_unfinished(&level.folder, folder, &stat) {
            level.policy = AttributePolicy::Replace;
            // An empty folder may lack the mark if the restore was killed before it set
            // the mark.
            if level.folder.depth() > 0 && self.job.options.mode == Mode::Write && !mark(folder) {
                self.job.note_made(level.folder.to_path());
            }
        }
        Ok(())
    }

    /// Reports in a dry run whether a folder gets the attributes of the snapshot or keeps
    /// its own.
    pub(super) fn report_folder(
        &mut self,
        level: &VisitLevel,
        metadata: &Metadata,
    ) -> Result<(), RestoreError> {
        let (job, at) = (self.job, &level.folder);
        let is_there = matches!(level.state, FolderState::There { .. }) || at.depth() == 0;
        let Some(cursor) = self.cursor.as_mut().filter(|_| is_there) else { return Ok(()) };
        let folder = cursor.folder(at)?;
        if job.is_store(folder) || job.is_noted_store(at) {
            return Ok(());
        }
        let failed = |e| job.error("look at", at, None, e);
        let change = job.folder_change(folder, at, metadata).map_err(failed)?;
        let path = if at.depth() == 0 { PathBuf::from(".") } else { at.to_path() };
        if let Some(change) = change {
            job.changed_path(&path, change, ContentLoss::Nothing);
        }
        Ok(())
    }
}

impl RestoreJob<'_> {
    /// Decides what happens to the attributes of an existing folder, and counts it. Returns
    /// `None` if they are right, or if the folder is unfinished.
    ///
    /// Unless overwriting is allowed, the root of the target is never reported: it belongs to
    /// the user, and only its contents are restored.
    pub(in crate::ops::restore) fn folder_change(
        &self,
        folder: &OpenFolder,
        at: &FolderPath,
        metadata: &Metadata,
    ) -> io::Result<Option<RestoreAction>> {
        let is_new = self.is_unfinished(at, folder, &fstat(folder)?);
        if is_new || self.folder_agrees(folder, metadata)? {
            return Ok(None);
        }
        match AttributePolicy::of(self) {
            AttributePolicy::Replace => {
                self.tally.count(|outcome| outcome.repaired += 1);
                Ok(Some(RestoreAction::Repair))
            }
            AttributePolicy::Keep if at.depth() == 0 => Ok(None),
            AttributePolicy::Keep => {
                self.tally.count(|outcome| outcome.folders_own_attributes += 1);
                Ok(Some(RestoreAction::Keep))
            }
        }
    }

    /// Creates a folder and marks it as unfinished, so that no other user may enter it.
    pub(super) fn make_folder(
        &self,
        cursor: &mut FolderCache<'_>,
        parent: &VisitLevel,
        name: &EntryName,
        in_the_way: bool,
    ) -> Result<Option<Inherited>, PathError> {
        let failed = |action, error| self.error(action, &parent.folder, Some(name), error);
        let folder = cursor.folder(&parent.folder)?;
        if in_the_way {
            self.check_still_as_seen(folder, &parent.folder, name)?;
            folder.remove(name).map_err(|e| failed("remove", e))?;
        }
        folder.make_folder(name, UNFINISHED_MODE).map_err(|e| failed("create folder", e))?;
        if !mark_entry(folder, name) {
            self.note_made(parent.folder.join(name));
        }
        if parent.inherited.is_some() {
            return Ok(parent.inherited);
        }
        // The parent folder existed before, so the attributes that new files inherit are not
        // known yet.
        let made = folder.folder(name).and_then(|folder| Inherited::probe(&folder));
        made.map_err(|e| failed("open folder", e))
    }
}

/// Gives the owner all permissions on an existing folder that lacks them, until it gets
/// its final mode. Returns true on success.
pub(super) fn make_accessible(cursor: &mut FolderCache<'_>, at: &Arc<FolderPath>) -> bool {
    let Some((parent, name)) = at.parent() else { return false };
    let Ok(parent) = cursor.folder(parent) else { return false };
    let Ok(Some(stat)) = parent.stat(name) else { return false };
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o700 == 0o700 {
        return false;
    }
    let mode = u16::try_from(stat.st_mode & 0o7777 | 0o700).ok();
    let attributes = Attributes {
        owner: None,
        mode,
        mtime: None,
        xattrs: &[],
        capability: FileCapability::Apply,
        extra: Extra::Keep,
    };
    let mut done = true;
    let expected = ExpectedFile { kind: FileType::Directory, inode: Some(stat.st_ino) };
    apply(AttributeTarget::Entry(parent, name, expected), &attributes, &mut |_, _| done = false);
    done
}
