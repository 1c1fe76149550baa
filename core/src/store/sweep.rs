//! Removes the leftovers of killed processes from `tmp/`.
//!
//! A process [locks](crate::disk::scratch) its entries: a new pack, an upload to a remote folder,
//! one file in the folder of an [inbox](crate::ops::inbox), and each scratch
//! folder. An unlocked entry of these kinds has no owner any more. Other files are small and
//! short-lived; they are removed after six hours. Folders with other names belong to other programs
//! or to the shared inbox, and stay.

use std::{fs::File, path::Path, time::Duration};

use super::Store;
use crate::disk::{regular::open_unfollowed, scratch};

/// Prefix of the names of folders of incoming packs.
pub(crate) const INCOMING_PREFIX: &str = "incoming";

/// Prefix of the names of files that are uploaded to a remote folder.
pub const UPLOAD_PREFIX: &str = "put-";

/// Name of the file that the owner of a folder of incoming packs locks.
pub(crate) const LOCK_FILE: &str = "lock";

/// Minimum age for the removal of a folder of incoming packs without a lock file. The owner of a
/// younger folder may be about to create that file.
const UNLOCKED_AGE: Duration = Duration::from_secs(60);

const OTHER_AGE: Duration = Duration::from_secs(6 * 3600);

impl Store {
    /// Removes the leftovers of killed processes from `tmp/`. Writers do this when they start.
    pub fn sweep(&self) {
        run(&self.layout().tmp);
    }
}

/// Removes abandoned entries from a `tmp/` folder. Ignores failures: the next sweep tries again.
pub fn run(tmp: &Path) {
    // A symbolic link may lead to files that do not belong to the store.
    if tmp.is_symlink() {
        return;
    }
    let Ok(entries) = fs_err::read_dir(tmp) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let starts = |with: &str| name.as_encoded_bytes().starts_with(with.as_bytes());
        let Ok(meta) = entry.metadata() else { continue };
        let age = meta.modified().ok().and_then(|time| time.elapsed().ok());
        let is_older = |limit: Duration| age.is_some_and(|age| age > limit);
        let path = entry.path();
        if meta.is_dir() && starts(INCOMING_PREFIX) {
            let lock = path.join(LOCK_FILE);
            let is_unused = !lock.exists() && is_older(UNLOCKED_AGE);
            let locked = locked_abandoned(&lock);
            if is_unused || locked.is_some() {
                remove_folder(&path);
            }
        } else if meta.is_dir() && starts(scratch::PREFIX) {
            if let Some(_locked) = locked_abandoned(&path) {
                remove_folder(&path);
            }
        } else if meta.is_file()
            && (starts("pack-") || starts(UPLOAD_PREFIX) || is_older(OTHER_AGE))
        {
            remove_abandoned(&path);
        }
    }
}

/// Removes an abandoned folder. Renames the folder first: its owner may have created it just now,
/// and then finds it missing when it takes the lock.
fn remove_folder(path: &Path) {
    let gone = path.with_file_name(scratch::unique_name(scratch::PREFIX));
    if fs_err::rename(path, &gone).is_ok() {
        let _ = fs_err::remove_dir_all(&gone);
    }
}

/// Removes a file unless its writer still has it [locked](scratch::create_locked).
pub fn remove_abandoned(path: &Path) {
    if let Some(_locked) = locked_abandoned(path) {
        let _ = fs_err::remove_file(path);
    }
}

/// Locks a file or folder that has no owner. The caller may remove it while holding the lock.
fn locked_abandoned(path: &Path) -> Option<File> {
    let file = open_unfollowed(path).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::disk::{
        Disk,
        scratch::{NewLock, Scratch, create_locked, lock_new, unique_name},
    };

    fn age(path: &Path) {
        let file = fs_err::File::open(path).unwrap();
        file.file().set_modified(SystemTime::now() - 2 * UNLOCKED_AGE).unwrap();
    }

    #[test]
    fn a_sweep_removes_only_files_without_an_owner() {
        let tmp = tempfile::tempdir().unwrap();
        let names = [scratch::PREFIX, INCOMING_PREFIX, INCOMING_PREFIX].map(unique_name);
        let [left, incoming, beginning] = names.map(|name| tmp.path().join(name));
        let other = tmp.path().join("staged");
        for folder in [&left, &incoming, &beginning, &other] {
            fs_err::create_dir_all(folder.join("below")).unwrap();
            fs_err::write(folder.join("below/file"), "x").unwrap();
        }
        fs_err::write(incoming.join(LOCK_FILE), "").unwrap();
        let [pack, upload] = ["pack", "put"].map(|what| tmp.path().join(unique_name(what)));
        [&pack, &upload].into_iter().for_each(|path| fs_err::write(path, "x").unwrap());
        let used = Scratch::create(tmp.path()).unwrap();
        let written = create_locked(&Disk::default(), tmp.path(), "pack").unwrap();
        run(tmp.path());
        let gone = [&left, &incoming, &pack, &upload];
        assert!(gone.iter().all(|path| !path.exists()), "what killed processes left");
        let kept = [&other, &beginning, used.path(), written.path()];
        assert!(kept.iter().all(|path| path.exists()), "what is used");
        age(&beginning);
        age(used.path());
        run(tmp.path());
        assert!(!beginning.exists() && used.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn a_new_file_that_a_sweep_locked_or_removed_is_lost() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("pack");
        fs_err::write(&path, "").unwrap();
        let new = fs_err::File::open(&path).unwrap();
        let swept = locked_abandoned(&path).unwrap();
        assert_eq!(lock_new(new.file(), &path).unwrap(), NewLock::Lost);
        fs_err::remove_file(&path).unwrap();
        drop(swept);
        assert_eq!(lock_new(new.file(), &path).unwrap(), NewLock::Lost);
        fs_err::write(&path, "").unwrap();
        let new = fs_err::File::open(&path).unwrap();
        assert_eq!(lock_new(new.file(), &path).unwrap(), NewLock::Locked);
        assert!(locked_abandoned(&path).is_none());
    }
}
