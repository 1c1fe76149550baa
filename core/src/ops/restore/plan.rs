//! Plans the removals of a restore before anything is removed or written.
//!
//! The plan lists every path to remove, parents before their contents, with a fingerprint of each
//! file. The removal processes the plan in reverse and skips paths that have changed since. A file
//! that appears or changes meanwhile is therefore not lost.
//!
//! These entries are kept, together with the folders above them:
//!
//! - a store, complete or incomplete ([`store_folder`](crate::local::store_folder));
//! - everything behind a mount point ([`mount`](crate::local::mount));
//! - entries that this user cannot read, since no commit of this user contains them;
//! - entries that no commit could have contained ([`guard`](super::guard));
//! - entries that the patterns of the restore leave out.
//!
//! The plan takes about 100 bytes and the name for each path. It is the only part of a
//! restore that grows with the target.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{Access, AtFlags, FileType, Stat, accessat},
    io::Errno,
};

use crate::{
    base::{io::PathError, name::EntryName, observe::Note},
    local::{
        contain::{FolderCache, FolderNames, FolderPath, OpenFolder},
        mount::Mount,
        store_folder::{STORE_FOLDER, holds_packs, holds_store, is_store},
    },
    ops::restore::{
        ContentLoss, Losses, RestoreAction, RestoreError,
        filter::Choice,
        guard::{DamagedRules, ExistingFolder, Guard, Protected},
        job::RestoreJob,
    },
};

/// Maximum number of losses that a question to the user lists.
const LISTED_LOSSES: usize = 10;

/// The removals of a restore.
#[derive(Debug, Default)]
pub(super) struct RemovalPlan {
    /// Entries that the snapshot lacks, parents before their contents.
    pub(super) extras: Vec<Removal>,
    /// Contents of folders that are replaced by another kind of entry. They are removed
    /// before anything is written.
    pub(super) in_the_way: Vec<Removal>,
    /// Files that are replaced by other entries; only in a dry run, or if the caller must confirm
    /// them ([`RestoreJob::asks_about_edits`]).
    pub(super) replaced: Vec<Removal>,
}

/// One path to remove.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) folder: Arc<FolderPath>,
    pub(super) name: EntryName,
    pub(super) what: Removed,
    pub(super) loss: ContentLoss,
}

impl Removal {
    /// Returns 1 for a file whose content no commit contains, and 0 for any other entry.
    fn unsaved_files(&self) -> u64 {
        u64::from(self.loss == ContentLoss::Unsaved)
    }
}

/// The kind of the entry to remove.
#[derive(Debug)]
pub(super) enum Removed {
    /// A folder, which is removed if it is empty by then.
    Folder,
    /// A folder that stays because an entry in it stays.
    KeptFolder,
    /// Any other entry, which is removed if it has not changed by then.
    Leaf(FileFingerprint),
}

/// A fingerprint of a file that shows whether it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileFingerprint {
    inode: u64,
    size: i64,
    mtime: (i64, u64),
    /// Set only for a file with one name, since removing another name changes the ctime.
    ctime: Option<(i64, u64)>,
}

impl FileFingerprint {
    pub(super) fn new(stat: &Stat) -> Self {
        let ctime = (stat.st_ctime, stat.st_ctime_nsec);
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_nlink == 1).then_some(ctime),
        }
    }

    /// Returns true if a file is unchanged. For a file with several names only the inode
    /// counts: the restore itself may have set its times under another name, and that
    /// name keeps the content.
    pub(super) fn is(&self, stat: &Stat) -> bool {
        let now = Self::new(stat);
        if stat.st_nlink > 1 {
            return self.inode == now.inode;
        }
        let same_ctime = self.ctime.is_none() || self.ctime == now.ctime;
        Self { ctime: None, ..*self } == Self { ctime: None, ..now } && same_ctime
    }

    /// As [`FileFingerprint::is`], but a file with several names must also keep its size and mtime.
    pub(super) fn has_content_of(&self, stat: &Stat) -> bool {
        let now = Self::new(stat);
        self.is(stat) && (self.size, self.mtime) == (now.size, now.mtime)
    }
}

impl RemovalPlan {
    /// Iterates over all paths to remove or replace.
    pub(super) fn removals(&self) -> impl Iterator<Item = &Removal> {
        self.replaced.iter().chain(&self.in_the_way).chain(&self.extras)
    }

    /// Iterates over all paths to remove or replace, in the same order.
    pub(super) fn removals_mut(&mut self) -> impl Iterator<Item = &mut Removal> {
        self.replaced.iter_mut().chain(&mut self.in_the_way).chain(&mut self.extras)
    }

    /// Returns the files that would be lost.
    pub(super) fn losses(&self) -> Losses {
        let unsaved = self.removals().filter(|removal| removal.loss == ContentLoss::Unsaved);
        let mut losses = Losses::default();
        for removal in unsaved {
            losses.count += 1;
            if losses.first.len() < LISTED_LOSSES {
                losses.first.push(removal.folder.join(&removal.name));
            }
        }
        losses
    }

    /// Reports all removals and their losses in order, for a dry run.
    pub(super) fn report(&self, job: &RestoreJob<'_>) {
        for removal in &self.replaced {
            job.changed(&removal.folder, &removal.name, RestoreAction::Replace, removal.loss);
            job.tally.count(|outcome| outcome.unsaved += removal.unsaved_files());
        }
        for removal in self.in_the_way.iter().chain(&self.extras) {
            if !matches!(removal.what, Removed::KeptFolder) {
                job.tally.count(|outcome| {
                    outcome.removed += 1;
                    outcome.unsaved += removal.unsaved_files();
                });
                job.changed(&removal.folder, &removal.name, RestoreAction::Remove, removal.loss);
            }
        }
    }
}

/// The reasons why an entry is not removed.
const STORE: &str = "it is a store";
pub(super) const MOUNT: &str = "another file system is mounted there";
pub(super) const UNREADABLE: &str = "it is unreadable, so no commit contains it";
const EXCLUDED: &str = "it contains entries that commits exclude";
const OUTSIDE: &str = "it is outside the paths of the snapshot";
const CHANGED: &str = "it changed meanwhile";

/// A folder whose extras are being planned.
#[derive(Clone, Debug)]
pub(super) struct PlannedFolder {
    pub(super) folder: Arc<FolderPath>,
    /// True if the patterns include the folder itself.
    pub(super) wanted: bool,
    pub(super) mount: Mount,
}

/// A folder of the target whose removal is being planned.
pub(super) struct PlanLevel {
    folder: Arc<FolderPath>,
    wanted: bool,
    listing: FolderNames,
    next: usize,
    /// Index of the folder in the plan.
    slot: usize,
    /// True if an entry in the folder is kept.
    keeps: bool,
}

/// The decision on one entry.
pub(super) enum RemovalDecision {
    Remove,
    Keep,
    /// The entry stays because commits exclude it.
    Excluded,
    Entered(PlanLevel),
}

/// Plans the removals while the walk visits the folders of the snapshot.
pub(super) struct RemovalPlanner<'j, 'a> {
    job: &'j RestoreJob<'a>,
    removals: Vec<Removal>,
    pub(super) plan: RemovalPlan,
    /// The guard; `None` without `--delete` or without protection.
    pub(super) guard: Option<Guard<'j>>,
}

impl<'j, 'a> RemovalPlanner<'j, 'a> {
    pub(super) fn new(job: &'j RestoreJob<'a>, guard: Option<Guard<'j>>) -> Self {
        Self { job, removals: Vec::new(), plan: RemovalPlan::default(), guard }
    }

    /// Records that an entry of the target is replaced.
    pub(super) fn replaces(&mut self, folder: &Arc<FolderPath>, name: &EntryName, stat: &Stat) {
        let what = Removed::Leaf(FileFingerprint::new(stat));
        let (folder, name, loss) = (Arc::clone(folder), name.clone(), ContentLoss::Nothing);
        self.plan.replaced.push(Removal { folder, name, what, loss });
    }

    /// Plans to remove an entry that the snapshot lacks.
    pub(super) fn extra(
        &mut self,
        cursor: &mut FolderCache<'_>,
        around: &PlannedFolder,
        name: &EntryName,
    ) -> Result<(), RestoreError> {
        self.remove(cursor, around, name)?;
        self.plan.extras.append(&mut self.removals);
        Ok(())
    }

    /// Plans to remove a folder that makes way for an entry of the snapshot. Returns true
    /// if all of it can be removed. Otherwise nothing in it is removed.
    pub(super) fn in_the_way(
        &mut self,
        cursor: &mut FolderCache<'_>,
        around: &PlannedFolder,
        name: &EntryName,
    ) -> Result<bool, RestoreError> {
        let is_removable = self.remove(cursor, around, name)?;
        if !is_removable {
            self.removals.clear();
        }
        self.plan.in_the_way.append(&mut self.removals);
        Ok(is_removable)
    }

    /// Returns true if a folder is empty, so that it may be replaced without `--delete`.
    pub(super) fn is_free(
        &self,
        cursor: &mut FolderCache<'_>,
        around: &PlannedFolder,
        name: &EntryName,
    ) -> Result<bool, RestoreError> {
        let at = &around.folder;
        let Ok(mount) = Mount::of_entry(cursor.folder(at)?, name.as_os_str()) else {
            return Ok(false);
        };
        let is_empty = |folder: &OpenFolder| folder.list().is_ok_and(|listing| listing.is_empty());
        let below = at.child(name.clone());
        Ok(!around.mount.is_left_by(&mount) && cursor.folder(&below).is_ok_and(is_empty))
    }

    /// Plans to remove an entry with everything below it. Returns true if all of it can
    /// be removed. Uses an explicit stack and a bounded number of open files.
    fn remove(
        &mut self,
        cursor: &mut FolderCache<'_>,
        around: &PlannedFolder,
        name: &EntryName,
    ) -> Result<bool, RestoreError> {
        let mount = &around.mount;
        let mut levels = match self.look(cursor, &around.folder, name, around.wanted, mount)? {
            RemovalDecision::Remove => return Ok(true),
            RemovalDecision::Keep | RemovalDecision::Excluded => return Ok(false),
            RemovalDecision::Entered(level) => vec![level],
        };
        let (mut is_removable, mut excluded) = (true, false);
        while let Some(level) = levels.last_mut() {
            if self.job.is_halted() {
                return Ok(false);
            }
            let Some((name, _)) = level.listing.get(level.next) else {
                if level.keeps {
                    self.removals[level.slot].what = Removed::KeptFolder;
                    is_removable = false;
                }
                let keeps = level.keeps;
                levels.pop();
                self.guard.iter_mut().for_each(Guard::leave);
                levels.iter_mut().rev().take(1).for_each(|above| above.keeps |= keeps);
                continue;
            };
            level.next += 1;
            let Ok(name) = EntryName::new(name) else { continue };
            let folder = Arc::clone(&level.folder);
            match self.look(cursor, &folder, &name, level.wanted, mount)? {
                RemovalDecision::Remove => {}
                RemovalDecision::Keep => level.keeps = true,
                RemovalDecision::Excluded => (level.keeps, excluded) = (true, true),
                RemovalDecision::Entered(below) => levels.push(below),
            }
        }
        if excluded {
            let path = around.folder.join(name);
            self.job.observer.note(Note::Kept { path: &path, why: EXCLUDED });
        }
        Ok(is_removable)
    }

    /// Decides on one entry and adds it to the plan.
    fn look(
        &mut self,
        cursor: &mut FolderCache<'_>,
        at: &Arc<FolderPath>,
        name: &EntryName,
        wanted: bool,
        mount: &Mount,
    ) -> Result<RemovalDecision, RestoreError> {
        let job = self.job;
        let failed = |action, source| job.error(action, at, Some(name), source);
        let folder = cursor.folder(at)?;
        let stat = match folder.stat(name) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Ok(RemovalDecision::Remove),
            Err(error) => return self.refuse(&at.join(name), failed("look at", error)),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_folder = kind == FileType::Directory;
        let choice = job.filter.choose_entry(at, name, is_folder, wanted);
        if choice == Choice::Excluded || (!is_folder && choice == Choice::Unwanted) {
            return Ok(RemovalDecision::Keep);
        }
        if !job.filter.is_as_seen(&at.join(name), Some(&stat)) {
            return Ok(self.keep(at.join(name), CHANGED));
        }
        if at.depth() == 0 && job.keeps_git(name) {
            return Ok(RemovalDecision::Keep);
        }
        let own_mount = Mount::of_entry(folder, name.as_os_str());
        let own_mount = match own_mount {
            Ok(own_mount) => own_mount,
            Err(error) => return self.refuse(&at.join(name), failed("look at", error)),
        };
        if mount.is_left_by(&own_mount) {
            return Ok(self.keep(at.join(name), MOUNT));
        }
        if self.guard.as_ref().is_some_and(|guard| guard.is_outside(name)) {
            return Ok(self.keep(at.join(name), OUTSIDE));
        }
        if let Some(guard) = &mut self.guard {
            let protected = guard.protects(name, &stat);
            for DamagedRules { path, object, source } in guard.damaged.drain(..) {
                let path = OsString::from_vec(path);
                job.tally.rules_damaged(path.into(), object, source);
            }
            match protected {
                Protected::No => {}
                Protected::Excluded => {
                    job.tally.count(|outcome| outcome.excluded += 1);
                    return Ok(RemovalDecision::Excluded);
                }
                Protected::RulesUnknown(file) => {
                    job.tally.count(|outcome| outcome.not_removed += 1);
                    let file = String::from_utf8_lossy(&file);
                    let why = format!(
                        "the rules of the ignore file `{}` are unknown",
                        file.escape_debug()
                    );
                    job.observer.note(Note::Kept { path: &at.join(name), why: &why });
                    return Ok(RemovalDecision::Keep);
                }
            }
        }
        // The project's own store is kept without a report.
        let is_own = at.depth() == 0 && name.as_bytes() == STORE_FOLDER.as_bytes();
        if !is_folder {
            let is_link = kind == FileType::Symlink && name.as_bytes() == STORE_FOLDER.as_bytes();
            if is_link && holds_store(folder, name.as_bytes()).unwrap_or(false) {
                return Ok(match is_own {
                    true => RemovalDecision::Keep,
                    false => self.keep(at.join(name), STORE),
                });
            }
            if kind == FileType::RegularFile && !is_readable(folder, name) {
                return Ok(self.keep(at.join(name), UNREADABLE));
            }
            self.add(at, name, Removed::Leaf(FileFingerprint::new(&stat)));
            return Ok(RemovalDecision::Remove);
        }
        let below = at.child(name.clone());
        let folder = match cursor.folder(&below) {
            Ok(folder) => folder,
            Err(error) => return self.refuse(&below.to_path(), error),
        };
        let listing = match folder.list() {
            Ok(listing) => listing,
            Err(error) if is_denied(&error) => {
                return Ok(self.keep(below.to_path(), UNREADABLE));
            }
            Err(error) => return self.refuse(&below.to_path(), failed("read folder", error)),
        };
        let is_foreign = is_store(name.as_bytes(), &listing);
        if job.is_store(folder) || (is_foreign && is_own) {
            return Ok(RemovalDecision::Keep);
        }
        if is_foreign || (listing.has(b"objects") && holds_packs(folder)) {
            return Ok(self.keep(below.to_path(), STORE));
        }
        if let Some(guard) = &mut self.guard {
            guard.enter(name, None, Some(ExistingFolder { folder, names: &listing }));
        }
        let wanted = choice == Choice::Wanted;
        let slot = self.add(at, name, Removed::Folder);
        let keeps = !wanted;
        Ok(RemovalDecision::Entered(PlanLevel {
            folder: below,
            wanted,
            listing,
            next: 0,
            slot,
            keeps,
        }))
    }

    fn add(&mut self, folder: &Arc<FolderPath>, name: &EntryName, what: Removed) -> usize {
        let (folder, name, loss) = (Arc::clone(folder), name.clone(), ContentLoss::Nothing);
        self.removals.push(Removal { folder, name, what, loss });
        self.removals.len() - 1
    }

    /// Keeps an entry that cannot be looked at, such as a mount point whose server is gone, and
    /// reports that it is not removed.
    ///
    /// # Errors
    /// The error if the whole target is concerned.
    fn refuse(&self, path: &Path, error: PathError) -> Result<RemovalDecision, RestoreError> {
        if !self.job.is_of_one_path(&error.source) {
            return Err(error.into());
        }
        self.job.not_removed(path, &error.source);
        Ok(RemovalDecision::Keep)
    }

    /// Reports and counts an entry that is not removed, or a folder of which nothing is removed.
    pub(super) fn keep(&self, path: PathBuf, why: &str) -> RemovalDecision {
        self.job.tally.count(|outcome| outcome.kept += 1);
        self.job.observer.note(Note::Kept { path: &path, why });
        RemovalDecision::Keep
    }
}

/// Returns true if this user may read a file. Also returns true if the file is gone.
fn is_readable(folder: &OpenFolder, name: &EntryName) -> bool {
    let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
    let access = accessat(folder, name.as_os_str(), Access::READ_OK, flags);
    !matches!(access, Err(Errno::ACCESS | Errno::PERM))
}

fn is_denied(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM))
}
