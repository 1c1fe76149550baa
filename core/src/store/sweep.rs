//! Clearing up what killed processes left in `tmp/`.
//!
//! Whoever writes a file there for long holds a lock on it. A file that is
//! older than a minute and not locked has no owner any more.

use std::{path::Path, time::Duration};

/// Younger files may belong to somebody who is about to lock them.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Removes what nobody owns. Failures do not matter: the next one tries again.
pub(super) fn run(tmp: &Path) {
    let Ok(entries) = fs_err::read_dir(tmp) else { return };
    for entry in entries.flatten() {
        let old = entry.metadata().is_ok_and(|meta| {
            meta.is_file() && meta.modified().is_ok_and(|t| t.elapsed().is_ok_and(|age| age > MIN_AGE))
        });
        let path = entry.path();
        if old && fs_err::File::open(&path).is_ok_and(|file| file.file().try_lock().is_ok()) {
            let _ = fs_err::remove_file(&path);
        }
    }
}
