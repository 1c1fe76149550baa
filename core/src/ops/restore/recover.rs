//! Determines which removed or replaced files are recoverable.
//!
//! A path is recoverable if a commit contains its content: the commit is in one of the given
//! histories, and all objects of the content are in the store. Folders, pipes, sockets, devices and
//! empty files have no content to lose. Names, times and attributes are ignored. Only files that
//! would be removed or replaced are read, except those that the stat cache knows. Before a restore
//! removes a file, it also reads the stored content. For a file that it replaces, it trusts the
//! index: a restore of another revision replaces many files, and reading them all from the store
//! would take as long as the restore.

use std::io;

use rayon::prelude::*;
use rustix::fs::FileType;

use crate::{
    base::{id::ContentId, io::PathError, name::EntryName, observe::Phase},
    local::contain::FolderCache,
    ops::{
        recoverable::{self, Candidates},
        restore::{
            ContentLoss, RestoreError,
            job::RestoreJob,
            plan::{Removal, RemovalPlan, Removed},
        },
    },
};

/// Number of removals in one task of a thread.
const LOOKED_AT_ONCE: usize = 64;

/// The content that a commit must contain so that nothing is lost.
enum NeededContent {
    Nothing,
    Content(ContentId),
    Link(Box<[u8]>),
    /// The entry cannot be read or has changed.
    Unknown,
}

impl RestoreJob<'_> {
    /// Determines for each path of a plan whether it is recoverable.
    pub(super) fn assess_losses(&self, plan: &mut RemovalPlan) -> Result<(), RestoreError> {
        let total = plan.removals().count() as u64;
        self.observer.phase(Phase::Compare, Some(total));
        let removals: Vec<&Removal> = plan.removals().collect();
        let all_needed: Vec<NeededContent> = self.pool.install(|| {
            let parts = removals.par_chunks(LOOKED_AT_ONCE);
            parts.flat_map_iter(|removals| self.needed_to_recover_all(removals)).collect()
        });
        self.check()?;
        let mut wanted = Candidates::default();
        let replaced = match self.asks_about_edits() {
            true => plan.replaced.len(),
            false => 0,
        };
        for (number, needed) in all_needed.iter().enumerate() {
            match needed {
                NeededContent::Content(id) => {
                    wanted.contents.insert(*id);
                    match number < replaced {
                        true => _ = wanted.located.insert(*id),
                        false => _ = wanted.located.remove(id),
                    }
                }
                NeededContent::Link(target) => _ = wanted.links.insert(target.clone()),
                NeededContent::Nothing | NeededContent::Unknown => {}
            }
        }
        recoverable::find_recoverable(self.store, &self.options.tips, &mut wanted, self.observer)?;
        self.check()?;
        for (removal, needed) in plan.removals_mut().zip(all_needed) {
            let is_lost = match needed {
                NeededContent::Nothing => false,
                NeededContent::Content(id) => wanted.contents.contains(&id),
                NeededContent::Link(target) => wanted.links.contains(&target),
                NeededContent::Unknown => true,
            };
            removal.loss = if is_lost { ContentLoss::Unsaved } else { ContentLoss::Recoverable };
        }
        Ok(())
    }

    fn needed_to_recover_all(&self, removals: &[&Removal]) -> Vec<NeededContent> {
        let Some(mut cursor) = self.folder_cache() else { return Vec::new() };
        let mut all_needed = Vec::with_capacity(removals.len());
        for removal in removals {
            all_needed.push(match self.is_halted() {
                true => NeededContent::Unknown,
                false => {
                    self.needed_to_recover(&mut cursor, removal).unwrap_or(NeededContent::Unknown)
                }
            });
            self.observer.advance(1, 1);
        }
        all_needed
    }

    fn needed_to_recover(
        &self,
        cursor: &mut FolderCache<'_>,
        removal: &Removal,
    ) -> Result<NeededContent, PathError> {
        let Removed::Leaf(seen) = &removal.what else { return Ok(NeededContent::Nothing) };
        let name: &EntryName = &removal.name;
        let folder = cursor.folder(&removal.folder)?;
        let read = || -> io::Result<NeededContent> {
            let Some(stat) = folder.stat(name)? else { return Ok(NeededContent::Nothing) };
            if !seen.is(&stat) {
                return Ok(NeededContent::Unknown);
            }
            Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile if stat.st_size == 0 => NeededContent::Nothing,
                FileType::RegularFile => {
                    NeededContent::Content(self.content_of(folder, name, &stat)?)
                }
                FileType::Symlink => NeededContent::Link(folder.read_link(name)?.into()),
                _ => NeededContent::Nothing,
            })
        };
        read().map_err(|error| self.error("read", &removal.folder, Some(name), error))
    }
}
