//! Detects that the folders of an open repository were removed or replaced.
//!
//! An administrator may remove a cache, or unmount a disk, while the server runs. The
//! empty folder that is left would look like a store without refs. So each use of an
//! open repository first compares its folders with those that were opened.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Folders and files to watch. Each folder has the inode that it had at the start.
#[derive(Debug, Default)]
pub(crate) struct FolderWatch {
    folders: Vec<(PathBuf, Option<Inode>)>,
    files: Vec<PathBuf>,
}

/// The device and inode numbers of a file.
type Inode = (u64, u64);

fn inode(path: &Path) -> Option<Inode> {
    fs_err::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl FolderWatch {
    /// Records the current inodes of `folders`, which must stay the same. `files` must stay present
    /// but may be replaced.
    pub(crate) fn of(
        folders: impl IntoIterator<Item = PathBuf>,
        files: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        let folders = folders.into_iter().map(|folder| (folder.clone(), inode(&folder)));
        Self { folders: folders.collect(), files: files.into_iter().collect() }
    }

    /// Returns true if all folders are unchanged and all files are present. Costs one
    /// `stat` per path.
    pub(crate) fn are_unchanged(&self) -> bool {
        let is_same =
            |(path, found): &(PathBuf, Option<Inode>)| found.is_some() && inode(path) == *found;
        self.folders.iter().all(is_same) && self.files.iter().all(|file| file.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recreated_folder_is_detected() {
        let above = tempfile::tempdir().unwrap();
        let (folder, file) = (above.path().join("a"), above.path().join("a/b"));
        let make = || {
            fs_err::create_dir(&folder).unwrap();
            fs_err::write(&file, "").unwrap();
        };
        make();
        let landmarks = FolderWatch::of([folder.clone()], [file.clone()]);
        assert!(landmarks.are_unchanged());
        fs_err::write(above.path().join("new"), "").unwrap();
        fs_err::rename(above.path().join("new"), &file).unwrap();
        assert!(landmarks.are_unchanged(), "a file may be replaced");
        fs_err::rename(&folder, above.path().join("moved")).unwrap();
        assert!(!landmarks.are_unchanged());
        make();
        assert!(!landmarks.are_unchanged());
    }
}
