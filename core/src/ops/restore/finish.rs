//! Sets the attributes of folders, as the last pass of a restore.
//!
//! The pass works bottom-up for two reasons: any change in a folder alters its mtime, and
//! the final mode of a folder may forbid writing into it. The tree is read again instead
//! of being kept in memory.

use std::{io, os::fd::AsFd, sync::Arc};

use rustix::{fs::fstat, io::Errno};

use crate::{
    base::io::PathError,
    format::tree::{Entry, EntryKind, Metadata},
    local::{
        attributes::{AttributeTarget, FOLDER_ATTRIBUTES, apply},
        contain::{FolderCache, FolderPath, OpenFolder},
        unfinished::{leave_private, unmark},
    },
    ops::restore::{
        ContentLoss, RestoreError, RestoreSource,
        compare::AttributePolicy,
        filter::Choice,
        job::RestoreJob,
        walk::{RestoreStep, RestoreWalk},
    },
};

struct FinishLevel {
    folder: Arc<FolderPath>,
    wanted: bool,
    /// True if an entry in the folder was restored.
    used: bool,
}

struct Finish<'j, 'a> {
    job: &'j RestoreJob<'a>,
    walk: RestoreWalk<'j, bool>,
    levels: Vec<FinishLevel>,
    cursor: FolderCache<'j>,
}

impl RestoreJob<'_> {
    /// Sets the attributes of all restored folders.
    pub(super) fn finish_folders(&self, what: &RestoreSource) -> Result<(), RestoreError> {
        let Some(cursor) = self.folder_cache() else { return Ok(()) };
        let walk = RestoreWalk::new(self.store, what, self.filter.wants_top());
        Finish { job: self, walk, levels: Vec::new(), cursor }.run()?;
        self.check()
    }

    /// Sets the attributes of a folder that a restore created or that may be overwritten.
    /// Other folders keep their attributes.
    fn finish_folder(
        &self,
        folder: &OpenFolder,
        at: &FolderPath,
        is_wanted: bool,
        metadata: &Metadata,
    ) -> io::Result<()> {
        let is_new = self.is_unfinished(at, folder, &fstat(folder)?);
        if self.filter.is_exact() && !is_wanted && !is_new {
            return Ok(());
        }
        let change = self.folder_change(folder, at, metadata)?;
        if let Some(change) = change {
            self.changed_path(&at.to_path(), change, ContentLoss::Nothing);
        }
        if is_new || AttributePolicy::of(self) == AttributePolicy::Replace {
            self.set_folder_attributes(folder, at, metadata)?;
        }
        unmark(folder);
        Ok(())
    }

    fn set_folder_attributes(
        &self,
        folder: &OpenFolder,
        at: &FolderPath,
        metadata: &Metadata,
    ) -> io::Result<()> {
        let stat = fstat(folder)?;
        let attributes = self.attributes(metadata, true, Some(&stat));
        let fd = match folder.readable() {
            Ok(fd) => fd,
            Err(error) => {
                (self.refusals(at, None))(FOLDER_ATTRIBUTES, error);
                return Ok(());
            }
        };
        apply(AttributeTarget::Fd(fd.as_fd()), &attributes, &mut *self.refusals(at, None));
        Ok(())
    }
}

impl Finish<'_, '_> {
    fn run(mut self) -> Result<(), RestoreError> {
        while let Some(step) = self.walk.next() {
            if self.job.is_halted() {
                return Ok(());
            }
            match step {
                RestoreStep::Enter(folder, wanted) => self.enter(folder, wanted)?,
                RestoreStep::Entries(entries) => self.entries(entries)?,
                // The pass that wrote the files has reported this node.
                RestoreStep::Broken(..) => {}
                RestoreStep::Leave(metadata) => self.leave(metadata.as_ref())?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, folder: Arc<FolderPath>, wanted: bool) -> Result<(), RestoreError> {
        if !self.job.is_created() {
            match self.cursor.folder(&folder) {
                Ok(open) if self.job.is_store(open) => self.walk.skip(),
                Ok(_) if self.job.is_noted_store(&folder) => self.walk.skip(),
                Ok(_) => {}
                Err(error) if is_no_folder(&error.source) => self.walk.skip(),
                Err(error) => {
                    self.refuse(&folder, error)?;
                    self.walk.skip();
                }
            }
        }
        self.levels.push(FinishLevel { folder, wanted, used: wanted });
        Ok(())
    }

    fn entries(&mut self, entries: Vec<Entry>) -> Result<(), RestoreError> {
        let mut folders = Vec::new();
        for entry in entries {
            let Some(level) = self.levels.last_mut() else { break };
            let is_folder = matches!(entry.kind, EntryKind::Folder { .. });
            let cursor = &mut self.cursor;
            let choice =
                if self.job.reserves(&entry, || cursor.folder(&level.folder).ok()).is_some() {
                    Choice::Excluded
                } else {
                    let filter = &self.job.filter;
                    filter.choose_entry(&level.folder, &entry.name, is_folder, level.wanted)
                };
            level.used |= choice == Choice::Wanted;
            if is_folder && choice != Choice::Excluded {
                folders.push((entry, choice == Choice::Wanted));
            }
        }
        self.walk.descend(folders)
    }

    fn leave(&mut self, metadata: Option<&Metadata>) -> Result<(), RestoreError> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        if let Some(parent) = self.levels.last_mut() {
            parent.used |= level.used;
        }
        let metadata = metadata.filter(|_| level.used);
        if metadata.is_none() && !self.levels.is_empty() {
            return Ok(());
        }
        let at = &level.folder;
        match self.cursor.folder(at) {
            Ok(_) if self.job.is_noted_store(at) => {}
            Ok(folder) if !self.job.is_store(folder) => {
                let done = match metadata {
                    Some(metadata) => self.job.finish_folder(folder, at, level.wanted, metadata),
                    None => leave_private(folder),
                };
                if let Err(error) = done {
                    self.refuse(at, self.job.error("open folder", at, None, error))?;
                }
            }
            Ok(_) => {}
            Err(error) if is_no_folder(&error.source) => {}
            Err(error) => self.refuse(at, error)?,
        }
        Ok(())
    }

    /// Reports a folder whose attributes cannot be set.
    ///
    /// # Errors
    /// The error if the whole target is concerned.
    fn refuse(&self, at: &FolderPath, error: PathError) -> Result<(), RestoreError> {
        if !self.job.is_of_one_path(&error.source) {
            return Err(error.into());
        }
        (self.job.refusals(at, None))(FOLDER_ATTRIBUTES, error.source);
        Ok(())
    }
}

/// Returns true if a folder does not exist because it was not restored: its tree was
/// damaged, or another entry blocked it.
fn is_no_folder(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}
