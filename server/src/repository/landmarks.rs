//! The folders that an open repository rests on, and whether they are still those
//! that it was opened in.
//!
//! A cache may be removed and a disk be unmounted while a server runs. What is
//! left would look like a store without refs, so each use of an open repository
//! compares its folders with those of its opening first.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Folders and files, each as it was found.
#[derive(Debug, Default)]
pub(crate) struct Landmarks {
    folders: Vec<(PathBuf, Option<Inode>)>,
    files: Vec<PathBuf>,
}

/// Device and number of a file.
type Inode = (u64, u64);

fn inode(path: &Path) -> Option<Inode> {
    fs_err::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl Landmarks {
    /// `folders`, which must stay the same ones, and `files`, which must stay
    /// there but may be replaced.
    pub(crate) fn of(
        folders: impl IntoIterator<Item = PathBuf>,
        files: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        let folders = folders.into_iter().map(|folder| (folder.clone(), inode(&folder)));
        Self { folders: folders.collect(), files: files.into_iter().collect() }
    }

    /// Whether all of them are there as they were. A few calls of `stat`.
    pub(crate) fn are_there(&self) -> bool {
        let is_same =
            |(path, found): &(PathBuf, Option<Inode>)| found.is_some() && inode(path) == *found;
        self.folders.iter().all(is_same) && self.files.iter().all(|file| file.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_made_anew_is_another_one() {
        let above = tempfile::tempdir().unwrap();
        let (folder, file) = (above.path().join("a"), above.path().join("a/b"));
        let make = || {
            fs_err::create_dir(&folder).unwrap();
            fs_err::write(&file, "").unwrap();
        };
        make();
        let landmarks = Landmarks::of([folder.clone()], [file.clone()]);
        assert!(landmarks.are_there());
        fs_err::write(above.path().join("new"), "").unwrap();
        fs_err::rename(above.path().join("new"), &file).unwrap();
        assert!(landmarks.are_there(), "a file may be replaced");
        fs_err::rename(&folder, above.path().join("moved")).unwrap();
        assert!(!landmarks.are_there());
        make();
        assert!(!landmarks.are_there());
    }
}
