//! What a folder's listing hashes to: whether anything in it has changed.
//!
//! The stat cache keeps these beside the tree that came of a folder, so they
//! cover all that decides over its entries, but for what is below its folders.

use crate::local::{owners::Owners, scan::Listing};

/// What beside a listing decides over the tree that is made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Whether owners and times are left out.
    pub reproducible: bool,
    /// Whether folders on other file systems are not looked into.
    pub one_file_system: bool,
}

/// Hashes all that a listing says and that decides over the folder's tree,
/// but for the trees of its folders.
pub fn of_listing(listing: &Listing, owners: &Owners, manner: Manner) -> [u8; 16] {
    let mut bytes = Vec::with_capacity(64 + listing.entries.len() * 128);
    bytes.push(u8::from(manner.reproducible));
    bytes.push(u8::from(manner.one_file_system));
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
        // Users may be renamed, and a tree has their names.
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

/// The first 16 bytes of the BLAKE3 hash.
pub fn short_hash(bytes: &[u8]) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    hash
}
