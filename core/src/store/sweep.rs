//! Clearing up what killed processes left in `tmp/`.
//!
//! A pack that is being written is locked: one that is older than a minute and
//! not locked has no owner any more. The other files are small and short-lived,
//! and are given six hours.

use std::{path::Path, time::Duration};

/// Younger packs may belong to somebody who is about to lock them.
const PACK_AGE: Duration = Duration::from_secs(60);

const OTHER_AGE: Duration = Duration::from_secs(6 * 3600);

/// Removes what nobody owns. Failures do not matter: the next one tries again.
pub(super) fn run(tmp: &Path) {
    let Ok(entries) = fs_err::read_dir(tmp) else { return };
    for entry in entries.flatten() {
        let is_pack = entry.file_name().as_encoded_bytes().starts_with(b"pack-");
        let limit = if is_pack { PACK_AGE } else { OTHER_AGE };
        let old = entry.metadata().is_ok_and(|meta| {
            let age = meta.modified().ok().and_then(|time| time.elapsed().ok());
            meta.is_file() && age.is_some_and(|age| age > limit)
        });
        let path = entry.path();
        if old && fs_err::File::open(&path).is_ok_and(|file| file.file().try_lock().is_ok()) {
            let _ = fs_err::remove_file(&path);
        }
    }
}
