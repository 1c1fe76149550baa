//! What a snapshot sees of a folder: its listing without what is left out.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use crate::local::{
    ignore::{Rules, Scope},
    scan::Listing,
    write::is_temporary,
};

/// The part of a folder that belongs in a snapshot.
#[derive(Debug)]
pub struct Visible {
    /// What is not left out.
    pub listing: Listing,
    /// The ignore files that hold in its folders.
    pub scope: Scope,
    /// Names that could not be stat'ed and ignore files that could not be
    /// read, and why.
    pub failed: Vec<(Vec<u8>, io::Error)>,
}

impl Visible {
    /// Lists the open folder `fd`, whose path in the snapshot is `path`.
    ///
    /// # Errors
    /// As the system says of the folder itself.
    pub fn read(rules: &Rules, above: &Scope, fd: &OwnedFd, path: &[u8]) -> io::Result<Self> {
        let mut listing = Listing::read(fd.as_fd())?;
        let mut failed = std::mem::take(&mut listing.failed);
        let (scope, errors) = rules.enter(above, fd, &listing, path);
        failed.extend(errors.into_iter().map(|(name, error)| (name.as_bytes().to_vec(), error)));
        filter(rules, &scope, (&mut listing, fd), path);
        Ok(Self { listing, scope, failed })
    }
}

/// Takes out of a listing what the rules leave out, and what a restore that was
/// killed left half-written.
fn filter(rules: &Rules, scope: &Scope, (listing, fd): (&mut Listing, &OwnedFd), path: &[u8]) {
    let cache = rules.is_cache_folder(fd, listing);
    let mut entries = std::mem::take(&mut listing.entries);
    let mut inside = join(path, b"");
    let prefix = inside.len();
    entries.retain(|entry| {
        let name = listing.name(entry);
        inside.truncate(prefix);
        inside.extend_from_slice(name);
        !is_temporary(name)
            && !rules.excludes(scope, (fd, name), &inside, &entry.stat)
            && (!cache || Rules::is_cache_tag(name))
    });
    listing.entries = entries;
}

/// Joins two parts of a path inside a snapshot.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
