//! Removes what killed processes left in `tmp/`.
//!
//! A process locks what it writes there: a pack, a file that a remote folder receives,
//! one file in each folder of [incoming](crate::store::ReceivedPacks) packs, and each
//! [scratch folder](crate::disk::scratch). An entry of these kinds that is older than a
//! minute and not locked has no owner any more. The other files are small and
//! short-lived, and stay for six hours. Folders with other names belong to other
//! programs and stay.

use std::{path::Path, time::Duration};

use super::Store;
use crate::disk::{regular::open_unfollowed, scratch};

/// Prefix of the names of folders of incoming packs.
pub(super) const INCOMING_PREFIX: &str = "incoming";

/// Prefix of the names of files that are uploaded to a remote folder.
pub const UPLOAD_PREFIX: &str = "put-";

/// The file in a folder of incoming packs that its owner locks.
pub(super) const LOCK_FILE: &str = "lock";

/// Minimum age of an abandoned entry: the owner of a younger one may be about to lock
/// it.
const LOCKED_AGE: Duration = Duration::from_secs(60);

const OTHER_AGE: Duration = Duration::from_secs(6 * 3600);

impl Store {
    /// Removes what killed processes left in `tmp/`. Writers do this when they start.
    pub fn sweep(&self) {
        run(&self.layout().tmp);
    }
}

/// Removes abandoned entries from a `tmp/` folder. Failures are ignored: the next sweep
/// tries again.
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
        let is_locked =
            starts("pack-") || starts(UPLOAD_PREFIX) || starts(INCOMING_PREFIX) || meta.is_dir();
        let limit = if is_locked { LOCKED_AGE } else { OTHER_AGE };
        let age = meta.modified().ok().and_then(|time| time.elapsed().ok());
        if age.is_none_or(|age| age <= limit) {
            continue;
        }
        let path = entry.path();
        if meta.is_dir() && starts(INCOMING_PREFIX) {
            // A folder without a lock file was never used.
            let lock = path.join(LOCK_FILE);
            if !lock.exists() || is_free(&lock) {
                let _ = fs_err::remove_dir_all(&path);
            }
        } else if meta.is_dir() && starts(scratch::PREFIX) && is_free(&path) {
            let _ = fs_err::remove_dir_all(&path);
        } else if meta.is_file() && is_free(&path) {
            let _ = fs_err::remove_file(&path);
        }
    }
}

/// Returns true if a killed process left this file, which its writer keeps locked.
pub fn is_abandoned(path: &Path) -> bool {
    let modified = fs_err::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
    let age = modified.and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > LOCKED_AGE) && is_free(path)
}

fn is_free(path: &Path) -> bool {
    open_unfollowed(path).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::disk::scratch::{Scratch, unique_name};

    fn age(path: &Path) {
        let file = fs_err::File::open(path).unwrap();
        file.file().set_modified(SystemTime::now() - 2 * LOCKED_AGE).unwrap();
    }

    #[test]
    fn a_folder_goes_whose_owner_is_gone_and_no_other() {
        let tmp = tempfile::tempdir().unwrap();
        let names =
            [unique_name(scratch::PREFIX), unique_name(INCOMING_PREFIX), "staged".to_owned()];
        let [left, incoming, other] = names.map(|name| tmp.path().join(name));
        for folder in [&left, &incoming, &other] {
            fs_err::create_dir_all(folder.join("below")).unwrap();
            fs_err::write(folder.join("below/file"), "x").unwrap();
        }
        let young = tmp.path().join(unique_name(scratch::PREFIX));
        fs_err::create_dir(&young).unwrap();
        let used = Scratch::create(tmp.path()).unwrap();
        run(tmp.path());
        assert!(left.exists() && incoming.exists(), "young entries stay");
        [&left, &incoming, &other, used.path()].into_iter().for_each(age);
        run(tmp.path());
        assert!(!left.exists() && !incoming.exists());
        assert!(other.exists() && young.exists() && used.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
