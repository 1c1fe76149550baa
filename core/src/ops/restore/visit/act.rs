//! Handles one entry that is not a folder: keeps it, repairs it, links it or writes it.

use std::sync::Arc;

use rustix::fs::{FileType, Stat};

use crate::{
    format::tree::{Entry, EntryKind},
    local::write::Placement,
    ops::restore::{
        ContentLoss, Existing, Extras, Mode, RestoreAction, RestoreError,
        compare::ComparedState,
        job::identity,
        links::{FirstLink, LinkTask, LinkedFile},
        remove::stayed,
        visit::{FolderVisit, VisitMode},
        window::FileTask,
    },
    store::FileContent,
};

impl FolderVisit<'_, '_> {
    /// Handles one entry that is not a folder, or only reports what would be done.
    pub(super) fn act(
        &mut self,
        entry: Entry,
        stat: Option<Stat>,
        verdict: ComparedState,
    ) -> Result<(), RestoreError> {
        let is_planned = self.mode != VisitMode::Write && verdict == ComparedState::Differs;
        if is_planned && self.job.options.existing == Existing::Overwrite && is_folder(&stat) {
            self.plan_clearing(&entry)?;
        }
        if self.mode == VisitMode::Plan {
            if let Some(stat) = stat.filter(|_| is_planned && self.job.asks_about_edits()) {
                let folder = Arc::clone(&self.level().folder);
                self.planner.replaces(&folder, &entry.name, &stat);
            }
            return Ok(());
        }
        let file = entry.metadata.link.map(|link| {
            let attributes = entry.metadata.attributes_hash();
            LinkedFile { link, attributes }
        });
        // On disk, this name shares an inode with a name that the snapshot gives other
        // attributes. It becomes a file of its own.
        let shares_wrong_inode =
            file.is_some_and(|file| self.first_names.is_of_other_file(stat.as_ref(), file));
        let verdict = match self.job.options.existing {
            Existing::Overwrite if shares_wrong_inode => ComparedState::Differs,
            _ => verdict,
        };
        if !verdict.has_content() {
            self.check_writable(self.levels.len() - 1)?;
        }
        if self.mode == VisitMode::Write && verdict != ComparedState::Same {
            self.job.check_as_seen(&self.level().folder, &entry.name, stat.as_ref())?;
        }
        if let Some(leader) = file.and_then(|file| self.first_names.of(file, &entry.kind)) {
            return self.act_link(entry, stat, verdict, leader);
        }
        if let Some(LinkedFile { link, attributes }) = file {
            let there = stat.as_ref().filter(|_| verdict.has_content()).map(identity);
            let folder = Arc::clone(&self.level().folder);
            let (kind, name) = (entry.kind.clone(), entry.name.clone());
            self.first_names.insert(link, FirstLink { kind, attributes, folder, name, there });
        }
        self.report(&entry, stat.as_ref(), verdict);
        match (self.mode, verdict) {
            (VisitMode::Compare | VisitMode::Plan, _) => {
                self.count(&entry, verdict);
                if !verdict.has_content() {
                    self.check_content(&entry);
                }
            }
            (VisitMode::Write, _) if verdict.has_content() => {
                self.count(&entry, verdict);
                if let (ComparedState::Attributes, Some(stat)) = (verdict, stat) {
                    self.repair(&entry, &stat)?;
                }
            }
            (VisitMode::Write, _) => {
                if verdict == ComparedState::Absent || self.clear_way(&entry, stat)? {
                    self.write(entry, verdict == ComparedState::Differs)?;
                } else if let Some(file) = file {
                    // The file itself is fine, so its next name becomes the first name.
                    self.first_names.remove(file);
                }
            }
        }
        Ok(())
    }

    /// In a dry run, reports a content that the store lacks. Damage is found only when a
    /// content is read.
    fn check_content(&self, entry: &Entry) {
        let is_dry = self.job.options.mode == Mode::DryRun;
        let EntryKind::File { size, id } = &entry.kind else { return };
        let content = FileContent { id: *id, bytes: *size };
        if is_dry && let Err(error) = self.job.store.locate_file(&content) {
            self.job.tally.damaged(self.level().folder.join(&entry.name), id.object(), error);
        }
    }

    /// Plans to remove a folder that is in the place of `entry`. Reports a conflict if it
    /// cannot be removed.
    fn plan_clearing(&mut self, entry: &Entry) -> Result<(), RestoreError> {
        let level = self.levels.last().expect("a folder was entered");
        let (Some(cursor), Some(around)) = (&mut self.cursor, &level.around) else {
            return Ok(());
        };
        let is_removable = match self.job.options.extras {
            Extras::Delete if level.is_mounted => false,
            Extras::Delete => self.planner.in_the_way(cursor, around, &entry.name)?,
            Extras::Keep => self.planner.is_free(cursor, around, &entry.name)?,
        };
        if !is_removable {
            self.job.tally.blocked(level.folder.join(&entry.name));
        }
        Ok(())
    }

    /// Handles a further name of a file with several names, or only reports what would be
    /// done.
    fn act_link(
        &mut self,
        entry: Entry,
        stat: Option<Stat>,
        verdict: ComparedState,
        leader: Arc<FirstLink>,
    ) -> Result<(), RestoreError> {
        let is_one = leader.is_same_inode(stat.as_ref());
        let verdict = match verdict {
            ComparedState::Absent | ComparedState::Differs => verdict,
            _ if is_one => ComparedState::Same,
            _ if self.job.options.existing == Existing::Stop => ComparedState::KeepsAttributes,
            _ => ComparedState::Attributes,
        };
        self.report(&entry, stat.as_ref(), verdict);
        if matches!(verdict, ComparedState::Same | ComparedState::KeepsAttributes) {
            self.count(&entry, verdict);
            return Ok(());
        }
        if self.mode == VisitMode::Compare {
            self.job.tally.count(|outcome| outcome.links += 1);
            return Ok(());
        }
        let Some(link) = entry.metadata.link else { return Ok(()) };
        if verdict == ComparedState::Absent || self.clear_way(&entry, stat)? {
            let folder = Arc::clone(&self.level().folder);
            let replaces = verdict != ComparedState::Absent;
            let Entry { name, metadata, .. } = entry;
            let task = LinkTask { leader, link, folder, name, metadata, replaces };
            self.window.links.push(task);
        }
        Ok(())
    }

    /// Reports a change to the caller, or counts a conflict.
    fn report(&mut self, entry: &Entry, stat: Option<&Stat>, verdict: ComparedState) {
        let folder = Arc::clone(&self.level().folder);
        let change = match verdict {
            ComparedState::Same => return,
            ComparedState::Absent => RestoreAction::Create,
            ComparedState::Attributes => RestoreAction::Repair,
            ComparedState::KeepsAttributes => RestoreAction::Keep,
            ComparedState::Differs => RestoreAction::Replace,
        };
        let stops = self.mode == VisitMode::Compare && self.job.options.existing == Existing::Stop;
        if change == RestoreAction::Replace && stops {
            self.job.tally.differs(folder.join(&entry.name));
            return;
        }
        // A later visit reports this entry.
        if change == RestoreAction::Keep && !self.is_reporting() {
            return;
        }
        let is_dry = self.job.options.mode == Mode::DryRun;
        match stat.filter(|_| is_dry && change == RestoreAction::Replace) {
            Some(stat) => self.planner.replaces(&folder, &entry.name, stat),
            None => self.job.changed(&folder, &entry.name, change, ContentLoss::Nothing),
        }
    }

    /// Counts an entry whose content is right. A visit that only compares also counts the entries
    /// that would be written.
    fn count(&self, entry: &Entry, verdict: ComparedState) {
        let size = if let EntryKind::File { size, .. } = entry.kind { Some(size) } else { None };
        let is_symlink = matches!(entry.kind, EntryKind::Symlink { .. });
        self.job.tally.count(|outcome| {
            match (verdict.has_content(), size) {
                (true, Some(_)) => outcome.files_kept += 1,
                (true, None) => outcome.others_kept += 1,
                (false, Some(size)) => {
                    outcome.files_written += 1;
                    outcome.bytes_written += size;
                }
                (false, None) if is_symlink => outcome.symlinks += 1,
                (false, None) => outcome.others += 1,
            }
            match verdict {
                ComparedState::Attributes => outcome.repaired += 1,
                ComparedState::KeepsAttributes => outcome.files_own_attributes += 1,
                _ => {}
            }
        });
        let units = if self.mode == VisitMode::Compare { 1 } else { size.unwrap_or(0) };
        self.job.observer.advance(units, 1);
    }

    fn repair(&mut self, entry: &Entry, stat: &Stat) -> Result<(), RestoreError> {
        let at = Arc::clone(&self.level().folder);
        if let Some(cursor) = &mut self.cursor {
            self.job.repair_entry(cursor.folder(&at)?, &at, entry, stat);
        }
        Ok(())
    }

    /// Removes the folder in the place of `entry`, which the planned removals have emptied. Returns
    /// true if no folder is in the way any more. Other kinds of entries need no removal, since they
    /// are replaced in one step.
    fn clear_way(&mut self, entry: &Entry, stat: Option<Stat>) -> Result<bool, RestoreError> {
        let level = self.levels.last().expect("a folder was entered");
        let Some(cursor) = self.cursor.as_mut().filter(|_| is_folder(&stat)) else {
            return Ok(true);
        };
        let cleared = match cursor.folder(&level.folder)?.remove_folder(&entry.name) {
            Ok(()) => true,
            Err(error) if stayed(&error) => false,
            Err(error) => {
                let name = Some(&entry.name);
                return Err(self.job.error("remove folder", &level.folder, name, error).into());
            }
        };
        if !cleared {
            self.job.tally.blocked(level.folder.join(&entry.name));
        }
        Ok(cleared)
    }

    fn write(&mut self, entry: Entry, replaces: bool) -> Result<(), RestoreError> {
        let level = self.levels.last().expect("a folder was entered");
        let (at, inherited) = (Arc::clone(&level.folder), level.inherited);
        if let EntryKind::File { size, id } = entry.kind {
            let placement = if replaces { Placement::Replace } else { Placement::New };
            let Entry { name, metadata, .. } = entry;
            self.window.bytes += size;
            self.window.files.push(FileTask {
                folder: at,
                name,
                id,
                size,
                metadata,
                inherited,
                placement,
            });
        } else if let Some(cursor) = &mut self.cursor {
            self.job.write_other(cursor.folder(&at)?, &at, &entry, inherited, replaces)?;
            self.job.observer.advance(0, 1);
        }
        Ok(())
    }
}

fn is_folder(stat: &Option<Stat>) -> bool {
    stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
