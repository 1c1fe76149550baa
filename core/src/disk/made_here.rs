//! Tells folders of derived files that were made on this machine from copies that came with a store.
//!
//! A writer believes some derived files without a check: the index of a store, and the mirror of a
//! remote store. The author of an archive could put entries into them for objects that are nowhere.
//! So such a folder has the file `made-here`, with the folder's own inode and birth time. A copied
//! or extracted folder has another inode and birth time, which its author cannot foresee. Snap then
//! makes its files again. Without birth times in the file system, the inode alone counts.

use std::{fs::Metadata, os::unix::fs::MetadataExt, path::Path, time::UNIX_EPOCH};

use crate::{
    base::io::PathError,
    disk::{Disk, regular::read_at_most},
};

/// Name of the file that marks a folder.
pub const MADE_HERE: &str = "made-here";

/// Maximum length of the file: two numbers.
const FILE_BYTES: u64 = 64;

/// Returns true if [`mark_made_here`] marked the folder, and it is not a copy.
pub fn is_made_here(folder: &Path) -> bool {
    let mark = read_at_most(&folder.join(MADE_HERE), FILE_BYTES);
    let meta = fs_err::symlink_metadata(folder);
    mark.ok().zip(meta.ok()).is_some_and(|(mark, meta)| mark == text_for(&meta).as_bytes())
}

/// Marks a folder as made on this machine. Writes the file to the folder `tmp` first. Does not sync
/// the file: if it is lost, snap makes the derived files again.
///
/// # Errors
/// [`PathError`] if the folder does not exist or the file cannot be written.
pub fn mark_made_here(folder: &Path, disk: &Disk, tmp: &Path) -> Result<(), PathError> {
    let meta = fs_err::symlink_metadata(folder).map_err(PathError::when("stat", folder))?;
    disk.write_unsynced(tmp, &folder.join(MADE_HERE), text_for(&meta).as_bytes())
}

fn text_for(folder: &Metadata) -> String {
    match birth_nanos(folder) {
        Some(born) => format!("{}:{born}\n", folder.ino()),
        None => format!("{}\n", folder.ino()),
    }
}

/// Returns the birth time of a file or folder, in nanoseconds since 1970; `None` if the file system
/// records none.
pub fn birth_nanos(file: &Metadata) -> Option<u128> {
    Some(file.created().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_folder_does_not_count_as_made_here() {
        let dir = tempfile::tempdir().unwrap();
        let [folder, copy] = ["folder", "copy"].map(|name| dir.path().join(name));
        fs_err::create_dir(&folder).unwrap();
        assert!(!is_made_here(&folder));
        mark_made_here(&folder, &Disk::default(), dir.path()).unwrap();
        assert!(is_made_here(&folder));
        fs_err::create_dir(&copy).unwrap();
        fs_err::copy(folder.join(MADE_HERE), copy.join(MADE_HERE)).unwrap();
        assert!(!is_made_here(&copy));
        fs_err::remove_dir_all(&copy).unwrap();
        fs_err::rename(&folder, &copy).unwrap();
        assert!(is_made_here(&copy), "it was moved");
        assert!(!is_made_here(&folder));
    }
}
