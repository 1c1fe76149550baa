//! Clearing up what killed processes left in `tmp/`.
//!
//! A pack that is being written is locked, and so is what a remote folder is sent,
//! a file in each folder of
//! [incoming](crate::store::Incoming) packs, and each folder of
//! [what need not survive](crate::disk::scratch): one that is older than a minute
//! and not locked has no owner any more. The other files are small and
//! short-lived, and are given six hours. Other folders are somebody else's.

use std::{path::Path, time::Duration};

use super::Store;
use crate::disk::scratch;

/// What names of folders of incoming packs start with.
pub(super) const INCOMING: &str = "incoming";

/// What names of files start with that a remote folder is sent.
pub const PUT: &str = "put-";

/// The file in such a folder that is locked.
pub(super) const LOCK: &str = "lock";

/// What is younger may belong to somebody who is about to lock it.
const LOCKED_AGE: Duration = Duration::from_secs(60);

const OTHER_AGE: Duration = Duration::from_secs(6 * 3600);

impl Store {
    /// Clears up what killed processes left. Whoever writes does that anyway.
    pub fn sweep(&self) {
        run(&self.layout().tmp);
    }
}

/// Removes what nobody owns from a `tmp/`. Failures do not matter: the next one tries
/// again.
pub fn run(tmp: &Path) {
    // A link leads to somebody else's files.
    if tmp.is_symlink() {
        return;
    }
    let Ok(entries) = fs_err::read_dir(tmp) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let starts = |with: &str| name.as_encoded_bytes().starts_with(with.as_bytes());
        let Ok(meta) = entry.metadata() else { continue };
        let is_locked = starts("pack-") || starts(PUT) || starts(INCOMING) || meta.is_dir();
        let limit = if is_locked { LOCKED_AGE } else { OTHER_AGE };
        let age = meta.modified().ok().and_then(|time| time.elapsed().ok());
        if age.is_none_or(|age| age <= limit) {
            continue;
        }
        let path = entry.path();
        if meta.is_dir() && starts(INCOMING) {
            // Without a lock file it was never used.
            let lock = path.join(LOCK);
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

/// Whether a file that is locked as long as it is written was left by a process that was
/// killed.
pub fn is_abandoned(path: &Path) -> bool {
    let modified = fs_err::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
    let age = modified.and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > LOCKED_AGE) && is_free(path)
}

fn is_free(path: &Path) -> bool {
    fs_err::File::open(path).is_ok_and(|file| file.file().try_lock().is_ok())
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
        let names = [unique_name(scratch::PREFIX), unique_name(INCOMING), "staged".to_owned()];
        let [left, incoming, other] = names.map(|name| tmp.path().join(name));
        for folder in [&left, &incoming, &other] {
            fs_err::create_dir_all(folder.join("below")).unwrap();
            fs_err::write(folder.join("below/file"), "x").unwrap();
        }
        let young = tmp.path().join(unique_name(scratch::PREFIX));
        fs_err::create_dir(&young).unwrap();
        let used = Scratch::create(tmp.path()).unwrap();
        run(tmp.path());
        assert!(left.exists() && incoming.exists(), "they are young");
        [&left, &incoming, &other, used.path()].into_iter().for_each(age);
        run(tmp.path());
        assert!(!left.exists() && !incoming.exists());
        assert!(other.exists() && young.exists() && used.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
