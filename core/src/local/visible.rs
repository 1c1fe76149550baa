//! Lists a folder without its excluded entries, as a snapshot sees it.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use crate::local::{
    ignore::{IgnoreRules, IgnoreScope},
    mount::is_on_other_device,
    scan::ScannedFolder,
    write::is_temporary,
};

/// The entries of a folder that belong in a snapshot.
#[derive(Debug)]
pub struct Visible {
    /// The entries that are not excluded.
    pub listing: ScannedFolder,
    /// The ignore files that apply to its subfolders.
    pub scope: IgnoreScope,
    /// Names that could not be stat'ed and ignore files that could not be read, each with the
    /// error.
    pub failed: Vec<(Vec<u8>, io::Error)>,
}

impl Visible {
    /// Lists the open folder `fd`, whose path in the snapshot is `path`. Patterns are costly in a
    /// large folder. So once `stop` returns true, the function excludes no further entry, and the
    /// caller must not use the listing.
    ///
    /// # Errors
    /// Returns the error of reading the folder itself.
    pub fn read(
        rules: &IgnoreRules,
        above: &IgnoreScope,
        fd: &OwnedFd,
        path: &[u8],
        stop: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let mut listing = ScannedFolder::read(fd.as_fd())?;
        let mut failed = std::mem::take(&mut listing.failed);
        if rules.options().one_file_system {
            // The walk does not enter other mounts, so it needs no stat of them.
            failed.retain(|(name, _)| !is_on_other_device(fd, OsStr::from_bytes(name)));
        }
        let (scope, errors) = rules.enter(above, fd, &listing, path);
        failed.extend(errors.into_iter().map(|(name, error)| (name.as_bytes().to_vec(), error)));
        filter(rules, &scope, &mut listing, fd, path, stop);
        Ok(Self { listing, scope, failed })
    }
}

/// Number of entries to match between two calls of `stop`. It is small, because the most costly
/// allowed patterns take long for each entry.
const CHECKED_BETWEEN_STOPS: usize = 64;

/// Removes excluded entries from a listing, and temporary files that a killed restore left.
fn filter(
    rules: &IgnoreRules,
    scope: &IgnoreScope,
    listing: &mut ScannedFolder,
    fd: &OwnedFd,
    path: &[u8],
    stop: &dyn Fn() -> bool,
) {
    let markers = rules.markers_in(fd, listing);
    let mut entries = std::mem::take(&mut listing.entries);
    let mut inside = join(path, b"");
    let prefix = inside.len();
    let (mut checked, mut stopped) = (0_usize, false);
    entries.retain(|entry| {
        if checked.is_multiple_of(CHECKED_BETWEEN_STOPS) {
            stopped = stop();
        }
        checked += 1;
        if stopped {
            return true;
        }
        let name = listing.name(entry);
        inside.truncate(prefix);
        inside.extend_from_slice(name);
        !is_temporary(name)
            && !rules.excludes(scope, fd, name, &inside, &entry.stat)
            && (markers.is_empty() || markers.iter().any(|marker| marker.as_bytes() == name))
    });
    listing.entries = entries;
}

/// Joins two parts of a path in a snapshot.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
