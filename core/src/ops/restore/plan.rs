//! What a restore removes, decided before anything is removed or written.
//!
//! The plan names every path that goes, parents before what is in them, with
//! what identifies each file. Removing follows the plan in reverse and leaves
//! alone what has changed since, so neither a file that appears meanwhile nor
//! one that is written to is lost.
//!
//! These stay, with the folders above them:
//!
//! - a store, complete or begun ([`store_folder`](crate::local::store_folder));
//! - what lies behind a mount point ([`mount`](crate::local::mount));
//! - what this user cannot read, because no commit of this user holds it;
//! - what no commit could have contained ([`guard`](super::guard));
//! - what the patterns of the restore leave out.
//!
//! The plan takes about 100 bytes and the name for each path. It is the only
//! part of a restore that grows with the target.

use std::{path::PathBuf, sync::Arc};

use rustix::{
    fs::{Access, AtFlags, FileType, Stat, accessat},
    io::Errno,
};

use crate::{
    base::{name::EntryName, observe::Note},
    local::{
        contain::{Cursor, Folder, FolderPath, Listing},
        mount::Mount,
        store_folder::{STORE_FOLDER, holds_packs, holds_store, is_store},
    },
    ops::restore::{
        Change, Loss, Losses, RestoreError, filter::Choice, guard::Guard, job::Job, tally::Count,
    },
};

/// Losses that a question names.
const LISTED_LOSSES: usize = 10;

/// What is removed.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// What the snapshot lacks, parents before what is in them.
    pub(super) extras: Vec<Removal>,
    /// Contents of folders that make way for something else. These go before
    /// anything is written.
    pub(super) in_the_way: Vec<Removal>,
    /// Files that something else replaces; only in a dry run.
    pub(super) replaced: Vec<Removal>,
}

/// One path that is removed.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) folder: Arc<FolderPath>,
    pub(super) name: EntryName,
    pub(super) what: Removed,
    pub(super) loss: Loss,
}

/// What kind of entry is removed.
#[derive(Debug)]
pub(super) enum Removed {
    /// A folder, if it is empty by then.
    Folder,
    /// A folder that turned out to hold something that stays.
    NothingYet,
    /// Anything else, if it has not changed by then.
    Leaf(Seen),
}

/// What identifies a file and shows whether it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    inode: u64,
    size: i64,
    mtime: (i64, u64),
    /// Only of a file with one name: removing another name changes it.
    ctime: Option<(i64, u64)>,
}

impl Seen {
    pub(super) fn new(stat: &Stat) -> Self {
        let ctime = (stat.st_ctime, stat.st_ctime_nsec);
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_nlink == 1).then_some(ctime),
        }
    }

    /// Returns whether a file is the one that was seen, unchanged. The times of
    /// a file with another name do not count: the restore itself may have set
    /// them under that name, which also keeps the content.
    pub(super) fn is(&self, stat: &Stat) -> bool {
        let now = Self::new(stat);
        if stat.st_nlink > 1 {
            return self.inode == now.inode;
        }
        let same_ctime = self.ctime.is_none() || self.ctime == now.ctime;
        Self { ctime: None, ..*self } == Self { ctime: None, ..now } && same_ctime
    }
}

impl Plan {
    /// Returns whether nothing is removed.
    pub(super) fn is_empty(&self) -> bool {
        self.extras.is_empty() && self.in_the_way.is_empty()
    }

    /// All paths that go.
    pub(super) fn removals(&self) -> impl Iterator<Item = &Removal> {
        self.replaced.iter().chain(&self.in_the_way).chain(&self.extras)
    }

    /// All paths that go, in the same order.
    pub(super) fn removals_mut(&mut self) -> impl Iterator<Item = &mut Removal> {
        self.replaced.iter_mut().chain(&mut self.in_the_way).chain(&mut self.extras)
    }

    /// What would be removed for ever.
    pub(super) fn losses(&self) -> Losses {
        let removed = self.in_the_way.iter().chain(&self.extras);
        let unsaved = removed.filter(|removal| removal.loss == Loss::Unsaved);
        let mut losses = Losses::default();
        for removal in unsaved {
            losses.count += 1;
            if losses.first.len() < LISTED_LOSSES {
                losses.first.push(removal.folder.join(&removal.name));
            }
        }
        losses
    }

    /// Tells every path that would go, in order, and what is lost with it.
    pub(super) fn tell(&self, job: &Job<'_>) {
        for removal in &self.replaced {
            job.changed(&removal.folder, &removal.name, Change::Replace, removal.loss);
            job.tally.add(Count::Unsaved, u64::from(removal.loss == Loss::Unsaved));
        }
        for removal in self.in_the_way.iter().chain(&self.extras) {
            if !matches!(removal.what, Removed::NothingYet) {
                job.tally.add(Count::Removed, 1);
                job.tally.add(Count::Unsaved, u64::from(removal.loss == Loss::Unsaved));
                job.changed(&removal.folder, &removal.name, Change::Remove, removal.loss);
            }
        }
    }
}

/// Why something is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Store,
    Mount,
    Unreadable,
    Excluded,
    Outside,
}

impl Why {
    fn text(self) -> &'static str {
        match self {
            Self::Store => "it is a store",
            Self::Mount => "another file system is mounted there",
            Self::Unreadable => "it cannot be read, so no commit holds it",
            Self::Excluded => "commits leave out something in it",
            Self::Outside => "the snapshot was not made of it",
        }
    }
}

/// A folder whose extras are planned.
#[derive(Clone, Debug)]
pub(super) struct Around {
    pub(super) folder: Arc<FolderPath>,
    /// True if patterns include the folder itself.
    pub(super) wanted: bool,
    pub(super) mount: Mount,
}

/// A folder of the target that is being planned.
struct Level {
    folder: Arc<FolderPath>,
    wanted: bool,
    listing: Listing,
    next: usize,
    /// Its index in the plan.
    slot: usize,
    /// True if something in it stays.
    keeps: bool,
}

/// What becomes of one entry.
enum Fate {
    Goes,
    Stays,
    /// It stays because commits leave it out.
    Excluded,
    Entered(Level),
}

/// Plans removals, one entry of a folder of the snapshot after the other.
pub(super) struct Planner<'j, 'a> {
    job: &'j Job<'a>,
    removals: Vec<Removal>,
    pub(super) plan: Plan,
    /// Without `--delete`, and when nothing is protected, there is none.
    pub(super) guard: Option<Guard<'j>>,
}

impl<'j, 'a> Planner<'j, 'a> {
    pub(super) fn new(job: &'j Job<'a>, guard: Option<Guard<'j>>) -> Self {
        Self { job, removals: Vec::new(), plan: Plan::default(), guard }
    }

    /// Notes that something of the target is replaced.
    pub(super) fn replaces(&mut self, folder: &Arc<FolderPath>, name: &EntryName, stat: &Stat) {
        let what = Removed::Leaf(Seen::new(stat));
        let (folder, name, loss) = (Arc::clone(folder), name.clone(), Loss::Nothing);
        self.plan.replaced.push(Removal { folder, name, what, loss });
    }

    /// Plans to remove an entry that the snapshot lacks.
    pub(super) fn extra(
        &mut self,
        cursor: &mut Cursor<'_>,
        around: &Around,
        name: &EntryName,
    ) -> Result<(), RestoreError> {
        self.remove(cursor, around, name)?;
        self.plan.extras.append(&mut self.removals);
        Ok(())
    }

    /// Plans to remove a folder that makes way for an entry of the snapshot.
    /// Says whether all of it goes; otherwise nothing of it does.
    pub(super) fn in_the_way(
        &mut self,
        cursor: &mut Cursor<'_>,
        around: &Around,
        name: &EntryName,
    ) -> Result<bool, RestoreError> {
        let goes = self.remove(cursor, around, name)?;
        if !goes {
            self.removals.clear();
        }
        self.plan.in_the_way.append(&mut self.removals);
        Ok(goes)
    }

    /// Returns whether a folder is empty and may be replaced without `--delete`.
    pub(super) fn is_free(
        &self,
        cursor: &mut Cursor<'_>,
        around: &Around,
        name: &EntryName,
    ) -> Result<bool, RestoreError> {
        let at = &around.folder;
        let mount = Mount::of_entry(cursor.folder(at)?, name.as_os_str());
        let mount = mount.map_err(|e| self.job.error("look at", at, Some(name), e))?;
        let is_empty = |folder: &Folder| folder.list().is_ok_and(|listing| listing.is_empty());
        let below = at.child(name.clone());
        Ok(!around.mount.is_left_by(&mount) && is_empty(cursor.folder(&below)?))
    }

    /// Tells that nothing in a folder is removed, because it lies behind a
    /// mount point.
    pub(super) fn keep_mounted(&self, folder: &FolderPath) {
        self.keep(folder.to_path(), Why::Mount);
    }

    /// Reports that nothing in a folder is removed, because it cannot be read.
    pub(super) fn keep_unreadable(&self, folder: &FolderPath) {
        self.keep(folder.to_path(), Why::Unreadable);
    }

    /// Plans to remove an entry with all that is below it. Says whether all of
    /// it goes. Neither depth nor the number of open files grows.
    fn remove(
        &mut self,
        cursor: &mut Cursor<'_>,
        around: &Around,
        name: &EntryName,
    ) -> Result<bool, RestoreError> {
        let mount = &around.mount;
        let mut levels = match self.look(cursor, &around.folder, name, (around.wanted, mount))? {
            Fate::Goes => return Ok(true),
            Fate::Stays | Fate::Excluded => return Ok(false),
            Fate::Entered(level) => vec![level],
        };
        let (mut goes, mut excluded) = (true, false);
        while let Some(level) = levels.last_mut() {
            if self.job.is_halted() {
                return Ok(false);
            }
            let Some((name, _)) = level.listing.get(level.next) else {
                if level.keeps {
                    self.removals[level.slot].what = Removed::NothingYet;
                    goes = false;
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
            match self.look(cursor, &folder, &name, (level.wanted, mount))? {
                Fate::Goes => {}
                Fate::Stays => level.keeps = true,
                Fate::Excluded => (level.keeps, excluded) = (true, true),
                Fate::Entered(below) => levels.push(below),
            }
        }
        if excluded {
            let path = around.folder.join(name);
            self.job.observer.note(Note::Kept { path: &path, why: Why::Excluded.text() });
        }
        Ok(goes)
    }

    /// Decides over one entry and puts it into the plan.
    fn look(
        &mut self,
        cursor: &mut Cursor<'_>,
        at: &Arc<FolderPath>,
        name: &EntryName,
        (wanted, mount): (bool, &Mount),
    ) -> Result<Fate, RestoreError> {
        let job = self.job;
        let failed = |action, source| job.error(action, at, Some(name), source);
        let folder = cursor.folder(at)?;
        let Some(stat) = folder.stat(name).map_err(|e| failed("look at", e))? else {
            return Ok(Fate::Goes);
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_folder = kind == FileType::Directory;
        let choice = match job.filter.is_open() {
            true => Choice::Wanted,
            false => job.filter.choose(&at.join(name), is_folder, wanted),
        };
        if choice == Choice::Excluded || (!is_folder && choice == Choice::Unwanted) {
            return Ok(Fate::Stays);
        }
        let own_mount = Mount::of_entry(folder, name.as_os_str());
        if mount.is_left_by(&own_mount.map_err(|e| failed("look at", e))?) {
            return Ok(self.keep(at.join(name), Why::Mount));
        }
        if self.guard.as_ref().is_some_and(|guard| guard.is_outside(name)) {
            return Ok(self.keep(at.join(name), Why::Outside));
        }
        if self.guard.as_mut().is_some_and(|guard| guard.protects(name, &stat)) {
            job.tally.add(Count::Excluded, 1);
            return Ok(Fate::Excluded);
        }
        // That the project's own store stays needs no report.
        let is_own = at.depth() == 0 && name.as_bytes() == STORE_FOLDER.as_bytes();
        if !is_folder {
            let is_link = kind == FileType::Symlink && name.as_bytes() == STORE_FOLDER.as_bytes();
            if is_link && holds_store(folder, name.as_bytes()).unwrap_or(false) {
                return Ok(match is_own {
                    true => Fate::Stays,
                    false => self.keep(at.join(name), Why::Store),
                });
            }
            if kind == FileType::RegularFile && !is_readable(folder, name) {
                return Ok(self.keep(at.join(name), Why::Unreadable));
            }
            self.add(at, name, Removed::Leaf(Seen::new(&stat)));
            return Ok(Fate::Goes);
        }
        let below = at.child(name.clone());
        let folder = cursor.folder(&below)?;
        let listing = match folder.list() {
            Err(error) if is_denied(&error) => {
                return Ok(self.keep(below.to_path(), Why::Unreadable));
            }
            listing => listing.map_err(|e| failed("read folder", e))?,
        };
        let is_foreign = is_store(name.as_bytes(), &listing);
        if job.is_store(folder) || (is_foreign && is_own) {
            return Ok(Fate::Stays);
        }
        if is_foreign || (listing.has(b"objects") && holds_packs(folder)) {
            return Ok(self.keep(below.to_path(), Why::Store));
        }
        if let Some(guard) = &mut self.guard {
            guard.enter(name, None, Some((folder, &listing)));
        }
        let wanted = choice == Choice::Wanted;
        let slot = self.add(at, name, Removed::Folder);
        let keeps = !wanted;
        Ok(Fate::Entered(Level { folder: below, wanted, listing, next: 0, slot, keeps }))
    }

    fn add(&mut self, folder: &Arc<FolderPath>, name: &EntryName, what: Removed) -> usize {
        let (folder, name, loss) = (Arc::clone(folder), name.clone(), Loss::Nothing);
        self.removals.push(Removal { folder, name, what, loss });
        self.removals.len() - 1
    }

    fn keep(&self, path: PathBuf, why: Why) -> Fate {
        self.job.tally.add(Count::Kept, 1);
        self.job.observer.note(Note::Kept { path: &path, why: why.text() });
        Fate::Stays
    }
}

/// Returns whether this user may read a file. A file that is gone may be.
fn is_readable(folder: &Folder, name: &EntryName) -> bool {
    let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
    let access = accessat(folder, name.as_os_str(), Access::READ_OK, flags);
    !matches!(access, Err(Errno::ACCESS | Errno::PERM))
}

fn is_denied(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM))
}
