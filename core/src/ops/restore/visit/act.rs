//! What one entry that is no folder needs: nothing, a repair, a link, a write.

use std::sync::Arc;

use rustix::fs::{FileType, Stat};

use crate::{
    format::tree::{Entry, Kind},
    local::write::Placement,
    ops::restore::{
        Change, Existing, Extras, RestoreError,
        compare::{Verdict, repair},
        job::identity,
        links::{Leader, LinkTask, write_other},
        remove::{remove, stayed},
        tally::Count,
        visit::{Intent, Visit},
        window::FileTask,
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
        self.tell(&entry, verdict);
        match (self.intent, verdict) {
            (Intent::Compare, _) => self.count(&entry, verdict),
            (Intent::Write, Verdict::Same | Verdict::Attributes) => {
                self.count(&entry, verdict);
                if let (Verdict::Attributes, Some(stat)) = (verdict, stat) {
                    self.repair(&entry, &stat)?;
                }
            }
            (Intent::Write, Verdict::Absent | Verdict::Differs) => {
                if verdict == Verdict::Absent || self.clear_way(&entry, stat.as_ref())? {
                    self.write(entry, verdict == Verdict::Differs)?;
                } else if let Some(link) = entry.metadata.link {
                    // Nothing is wrong with the file: its next name is the first.
                    self.leaders.remove(&link);
                }
            }
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
        self.tell(&entry, verdict);
        if verdict == Verdict::Same {
            self.count(&entry, verdict);
            return Ok(());
        }
        if self.intent == Intent::Compare {
            self.job.tally.add(Count::Links, 1);
            return Ok(());
        }
        let Some(link) = entry.metadata.link else { return Ok(()) };
        if verdict == Verdict::Absent || self.clear_way(&entry, stat.as_ref())? {
            let folder = Arc::clone(&self.level().folder);
            let replaces = verdict != Verdict::Absent;
            let task = LinkTask { leader, link, folder, name: entry.name, replaces };
            self.window.links.push(task);
        }
        Ok(())
    }

    /// Tells the caller of a change, or counts a conflict.
    fn tell(&self, entry: &Entry, verdict: Verdict) {
        let folder = &self.level().folder;
        let change = match verdict {
            Verdict::Same => return,
            Verdict::Absent => Change::Create,
            Verdict::Attributes => Change::Repair,
            Verdict::Differs => Change::Replace,
        };
        let stops = self.intent == Intent::Compare && self.job.options.existing == Existing::Stop;
        if change == Change::Replace && stops {
            self.job.tally.differs(folder.join(&entry.name));
        } else {
            self.job.changed(folder, &entry.name, change);
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

    /// Removes a folder that stands where `entry` belongs. Says whether there
    /// is none any more; others are replaced in one step and need not go.
    fn clear_way(&mut self, entry: &Entry, stat: Option<&Stat>) -> Result<bool, RestoreError> {
        let is_folder =
            stat.is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory);
        let level = self.levels.last().expect("a folder was entered");
        let Some(cursor) = self.cursor.as_mut().filter(|_| is_folder) else { return Ok(true) };
        let cleared = if self.job.options.extras == Extras::Delete {
            remove(self.job, cursor, &level.folder, &entry.name, level.wanted)?
        } else {
            match cursor.folder(&level.folder)?.remove_folder(&entry.name) {
                Ok(()) => true,
                Err(error) if stayed(&error) => false,
                Err(error) => {
                    let name = Some(&entry.name);
                    return Err(self.job.error("remove folder", &level.folder, name, error).into());
                }
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
