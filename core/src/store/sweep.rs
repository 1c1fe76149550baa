//! Clearing up what killed processes left in `tmp/`.
//!
//! A pack that is being written is locked, and so is a file in each folder of
//! [incoming](crate::store::Incoming) packs: one that is older than a minute
//! and not locked has no owner any more. The other files are small and
//! short-lived, and are given six hours.

use std::{path::Path, time::Duration};

/// What names of folders of incoming packs start with.
pub(super) const INCOMING: &str = "incoming";

/// The file in such a folder that is locked.
pub(super) const LOCK: &str = "lock";

/// Younger packs may belong to somebody who is about to lock them.
const PACK_AGE: Duration = Duration::from_secs(60);

const OTHER_AGE: Duration = Duration::from_secs(6 * 3600);

/// Removes what nobody owns. Failures do not matter: the next one tries again.
pub(super) fn run(tmp: &Path) {
    let Ok(entries) = fs_err::read_dir(tmp) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let starts = |with: &str| name.as_encoded_bytes().starts_with(with.as_bytes());
        let limit = if starts("pack-") || starts(INCOMING) { PACK_AGE } else { OTHER_AGE };
        let Ok(meta) = entry.metadata() else { continue };
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
        } else if meta.is_file() && is_free(&path) {
            let _ = fs_err::remove_file(&path);
        }
    }
}

fn is_free(path: &Path) -> bool {
    fs_err::File::open(path).is_ok_and(|file| file.file().try_lock().is_ok())
}
