//! Hashes the listing of a folder, to detect any change in it.
//!
//! The stat cache keeps the hash with the tree of the folder. The hash therefore covers everything
//! that the tree depends on, except the trees of subfolders.

use crate::local::{owners::Owners, scan::ScannedFolder};

/// Options of a commit that change the tree made of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// True if owners and times are left out.
    pub reproducible: bool,
    /// True if the walk does not enter folders on other file systems.
    pub one_file_system: bool,
}

/// Hashes everything in a listing that the folder's tree depends on, except the trees of
/// subfolders.
pub fn of_listing(listing: &ScannedFolder, owners: &Owners, options: TreeOptions) -> [u8; 16] {
    let mut bytes = Vec::with_capacity(64 + listing.entries.len() * 128);
    bytes.push(u8::from(options.reproducible));
    bytes.push(u8::from(options.one_file_system));
    let mut owner = None;
    for entry in &listing.entries {
        let stat = &entry.stat;
        let name = listing.name(entry);
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.push(stat.kind as u8);
        bytes.extend_from_slice(&stat.mode.to_le_bytes());
        for number in [stat.uid, stat.gid, stat.links, stat.mtime.nanos, stat.ctime.nanos] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let (mtime, ctime) = (stat.mtime.secs as u64, stat.ctime.secs as u64);
        for number in [stat.device, stat.inode, stat.size, stat.special, mtime, ctime] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        // A tree contains names of users and groups, and the system may change them.
        if owner.replace((stat.uid, stat.gid)) != Some((stat.uid, stat.gid)) {
            let names = owners.of(stat.uid, stat.gid);
            bytes.extend_from_slice(&names.user);
            bytes.push(0);
            bytes.extend_from_slice(&names.group);
            bytes.push(0);
        }
    }
    short_hash(&bytes)
}

/// Returns the first 16 bytes of the BLAKE3 hash.
pub fn short_hash(bytes: &[u8]) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    hash
}
