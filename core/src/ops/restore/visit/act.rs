//! What one entry that is no folder needs: nothing, a repair, a link, a write.

use std::sync::Arc;

use rustix::fs::{FileType, Stat};

use crate::{
    format::tree::{Entry, Kind},
    local::write::Placement,
    ops::restore::{
        Change, Existing, Extras, Loss, Mode, RestoreError,
        compare::{Verdict, repair},
        job::identity,
        links::{Leader, LinkTask, write_other},
        remove::stayed,
        tally::Count,
        visit::{Intent, Visit},
        window::{FileTask, locate},
    },
};

impl Visit<'_, '_> {
    /// Does, or tells, what one entry that is no folder needs.
    pub(super) fn act(
        &mut self,
        entry: Entry,
        stat: Option<Stat>,
        verdict: Verdict,
    ) -> Result<(), RestoreError> {
        let is_planned = self.intent != Intent::Write && verdict == Verdict::Differs;
        if is_planned && self.job.options.existing == Existing::Overwrite && is_folder(&stat) {
            self.plan_clearing(&entry)?;
        }
        if self.intent == Intent::Plan {
            return Ok(());
        }
        if matches!(verdict, Verdict::Absent | Verdict::Differs) {
            self.check_writable(self.levels.len() - 1)?;
        }
        let is_again = entry.metadata.link.and_then(|link| self.leaders.get(&link));
        if let Some(leader) = is_again.filter(|leader| leader.kind == entry.kind) {
            let leader = Arc::clone(leader);
            return self.act_link(entry, stat, verdict, leader);
        }
        if let Some(link) = entry.metadata.link {
            let right = matches!(verdict, Verdict::Same | Verdict::Attributes);
            let there = stat.as_ref().filter(|_| right).map(identity);
            let folder = Arc::clone(&self.level().folder);
            let (kind, name) = (entry.kind.clone(), entry.name.clone());
            self.leaders.insert(link, Arc::new(Leader { kind, folder, name, there }));
        }
        self.tell(&entry, stat.as_ref(), verdict);
        match (self.intent, verdict) {
            (Intent::Compare | Intent::Plan, _) => {
                self.count(&entry, verdict);
                if matches!(verdict, Verdict::Absent | Verdict::Differs) {
                    self.check_content(&entry);
                }
            }
            (Intent::Write, Verdict::Same | Verdict::Attributes) => {
                self.count(&entry, verdict);
                if let (Verdict::Attributes, Some(stat)) = (verdict, stat) {
                    self.repair(&entry, &stat)?;
                }
            }
            (Intent::Write, Verdict::Absent | Verdict::Differs) => {
                if verdict == Verdict::Absent || self.clear_way(&entry, stat)? {
                    self.write(entry, verdict == Verdict::Differs)?;
                } else if let Some(link) = entry.metadata.link {
                    // Nothing is wrong with the file: its next name is the first.
                    self.leaders.remove(&link);
                }
            }
        }
        Ok(())
    }

    /// In a dry run, reports a content that the store lacks. Damage shows only
    /// when a content is read.
    fn check_content(&self, entry: &Entry) {
        let is_dry = self.job.options.mode == Mode::DryRun;
        let Kind::File { size, id } = &entry.kind else { return };
        if is_dry && let Err(error) = locate(self.job, *size, *id) {
            self.job.tally.damaged(self.level().folder.join(&entry.name), id.object(), error);
        }
    }

    /// Plans to remove a folder that stands where `entry` belongs, and counts
    /// what cannot be removed as a conflict.
    fn plan_clearing(&mut self, entry: &Entry) -> Result<(), RestoreError> {
        let level = self.levels.last().expect("a folder was entered");
        let (Some(cursor), Some(around)) = (&mut self.cursor, &level.around) else {
            return Ok(());
        };
        let goes = match self.job.options.extras {
            Extras::Delete if level.is_mounted => false,
            Extras::Delete => self.planner.in_the_way(cursor, around, &entry.name)?,
            Extras::Keep => self.planner.is_free(cursor, around, &entry.name)?,
        };
        if !goes {
            self.job.tally.blocked(level.folder.join(&entry.name));
        }
        Ok(())
    }

    /// Does, or tells, what a further name of a file needs.
    fn act_link(
        &mut self,
        entry: Entry,
        stat: Option<Stat>,
        verdict: Verdict,
        leader: Arc<Leader>,
    ) -> Result<(), RestoreError> {
        let is_one = stat.as_ref().map(identity).is_some_and(|id| leader.there == Some(id));
        let verdict = match verdict {
            Verdict::Absent | Verdict::Differs => verdict,
            _ if is_one => Verdict::Same,
            _ => Verdict::Attributes,
        };
        self.tell(&entry, stat.as_ref(), verdict);
        if verdict == Verdict::Same {
            self.count(&entry, verdict);
            return Ok(());
        }
        if self.intent == Intent::Compare {
            self.job.tally.add(Count::Links, 1);
            return Ok(());
        }
        let Some(link) = entry.metadata.link else { return Ok(()) };
        if verdict == Verdict::Absent || self.clear_way(&entry, stat)? {
            let folder = Arc::clone(&self.level().folder);
            let replaces = verdict != Verdict::Absent;
            let Entry { name, metadata, .. } = entry;
            let task = LinkTask { leader, link, folder, name, metadata, replaces };
            self.window.links.push(task);
        }
        Ok(())
    }

    /// Tells the caller of a change, or counts a conflict.
    fn tell(&mut self, entry: &Entry, stat: Option<&Stat>, verdict: Verdict) {
        let folder = Arc::clone(&self.level().folder);
        let change = match verdict {
            Verdict::Same => return,
            Verdict::Absent => Change::Create,
            Verdict::Attributes => Change::Repair,
            Verdict::Differs => Change::Replace,
        };
        let stops = self.intent == Intent::Compare && self.job.options.existing == Existing::Stop;
        if change == Change::Replace && stops {
            self.job.tally.differs(folder.join(&entry.name));
            return;
        }
        let is_dry = self.job.options.mode == Mode::DryRun;
        match stat.filter(|_| is_dry && change == Change::Replace) {
            Some(stat) => self.planner.replaces(&folder, &entry.name, stat),
            None => self.job.changed(&folder, &entry.name, change, Loss::Nothing),
        }
    }

    /// Counts what is right, and in a dry run what would be written.
    fn count(&self, entry: &Entry, verdict: Verdict) {
        let tally = &self.job.tally;
        let size = match entry.kind {
            Kind::File { size, .. } => Some(size),
            _ => None,
        };
        match (verdict, size) {
            (Verdict::Same | Verdict::Attributes, Some(_)) => tally.add(Count::FilesKept, 1),
            (Verdict::Same | Verdict::Attributes, None) => tally.add(Count::OthersKept, 1),
            (_, Some(size)) => {
                tally.add(Count::FilesWritten, 1);
                tally.add(Count::BytesWritten, size);
            }
            (_, None) if matches!(entry.kind, Kind::Symlink { .. }) => {
                tally.add(Count::Symlinks, 1)
            }
            (_, None) => tally.add(Count::Others, 1),
        }
        if verdict == Verdict::Attributes {
            tally.add(Count::Repaired, 1);
        }
        let units = if self.intent == Intent::Compare { 1 } else { size.unwrap_or(0) };
        self.job.observer.advance(units, 1);
    }

    fn repair(&mut self, entry: &Entry, stat: &Stat) -> Result<(), RestoreError> {
        let at = Arc::clone(&self.level().folder);
        if let Some(cursor) = &mut self.cursor {
            repair(self.job, cursor.folder(&at)?, &at, entry, stat);
        }
        Ok(())
    }

    /// Removes a folder that stands where `entry` belongs, when it is empty;
    /// what was in it has gone as planned. Says whether there is none any more;
    /// others are replaced in one step and need not go.
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
        if let Kind::File { size, id } = entry.kind {
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
            write_other(self.job, cursor.folder(&at)?, &at, &entry, inherited, replaces)?;
            self.job.observer.advance(0, 1);
        }
        Ok(())
    }
}

fn is_folder(stat: &Option<Stat>) -> bool {
    stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
