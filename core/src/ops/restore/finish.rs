//! The last pass: folders get their attributes.
//!
//! Deepest first, since whatever happens in a folder changes its time, and
//! since a folder may be one that nobody can write into. The tree is read
//! again rather than remembered.

use std::{io, os::fd::AsFd, sync::Arc};

use rustix::{fs::fstat, io::Errno};

use crate::{
    format::tree::{Entry, Kind, Metadata},
    local::{
        attributes::{Attributes, Extra, Target, apply},
        contain::{Cursor, Folder, FolderPath},
    },
    ops::restore::{
        Existing, RestoreError, What,
        filter::Choice,
        job::Job,
        walk::{Step, Walk},
        window,
    },
};

struct Level {
    folder: Arc<FolderPath>,
    wanted: bool,
    /// Whether something in it was restored.
    used: bool,
}

struct Finish<'j, 'a> {
    job: &'j Job<'a>,
    walk: Walk<'j, bool>,
    levels: Vec<Level>,
    cursor: Cursor<'j>,
}

/// Sets the attributes of folders.
pub(super) fn run(job: &Job<'_>, what: &What) -> Result<(), RestoreError> {
    let Some(cursor) = window::cursor(job) else { return Ok(()) };
    let walk = Walk::new(job.store, what, job.filter.wants_top());
    Finish { job, walk, levels: Vec::new(), cursor }.run()?;
    job.check()
}

impl Finish<'_, '_> {
    fn run(mut self) -> Result<(), RestoreError> {
        while let Some(step) = self.walk.next()? {
            if self.job.is_halted() {
                return Ok(());
            }
            match step {
                Step::Enter(folder, wanted) => self.enter(folder, wanted)?,
                Step::Entries(entries) => self.entries(entries)?,
                // Told of by the visit before, which came here, too.
                Step::Broken(..) => {}
                Step::Leave(metadata) => self.leave(metadata.as_ref())?,
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
                Err(error) => return Err(error.into()),
            }
        }
        self.levels.push(Level { folder, wanted, used: wanted });
        Ok(())
    }

    fn entries(&mut self, entries: Vec<Entry>) -> Result<(), RestoreError> {
        let mut folders = Vec::new();
        for entry in entries {
            let Some(level) = self.levels.last_mut() else { break };
            let is_folder = matches!(entry.kind, Kind::Folder { .. });
            let cursor = &mut self.cursor;
            let choice = if self.job.reserves(&entry, || cursor.folder(&level.folder).ok()) {
                Choice::Excluded
            } else if self.job.filter.is_open() {
                Choice::Wanted
            } else {
                let path = level.folder.join(&entry.name);
                self.job.filter.choose(&path, is_folder, level.wanted)
            };
            level.used |= choice == Choice::Wanted;
            if is_folder && choice != Choice::Excluded {
                folders.push((entry, choice == Choice::Wanted));
            }
        }
        self.walk.descend(folders);
        Ok(())
    }

    fn leave(&mut self, metadata: Option<&Metadata>) -> Result<(), RestoreError> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        if let Some(parent) = self.levels.last_mut() {
            parent.used |= level.used;
        } else if !self.job.is_created()
            && !self.job.options.is_new_target
            && self.job.options.existing == Existing::Stop
        {
            return Ok(()); // A target that was there stays as its owner made it.
        }
        let Some(metadata) = metadata.filter(|_| level.used) else { return Ok(()) };
        match self.cursor.folder(&level.folder) {
            Ok(_) if self.job.is_noted_store(&level.folder) => {}
            Ok(folder) if !self.job.is_store(folder) => {
                set_attributes(self.job, folder, &level.folder, metadata)
                    .map_err(|e| self.job.error("open folder", &level.folder, None, e))?;
            }
            Ok(_) => {}
            Err(error) if is_no_folder(&error.source) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Whether a folder could not be opened because it was not restored: its tree
/// was damaged, or something stood in its way.
fn is_no_folder(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

fn set_attributes(
    job: &Job<'_>,
    folder: &Folder,
    at: &FolderPath,
    metadata: &Metadata,
) -> io::Result<()> {
    let stat = fstat(folder)?;
    let (owner, mode) = job.owner_and_mode(metadata, true);
    let attributes = Attributes {
        owner: owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid)),
        mode: Some(mode),
        mtime: metadata.mtime,
        xattrs: &metadata.xattrs,
        extra: Extra::Remove,
    };
    let fd = match folder.readable() {
        Ok(fd) => fd,
        Err(error) => {
            (job.refusals(at, None))("attributes of a folder", error);
            return Ok(());
        }
    };
    apply(Target::Fd(fd.as_fd()), &attributes, &mut *job.refusals(at, None));
    Ok(())
}
