//! Detects by the modification times of folders whether entries were added, removed or replaced
//! since the folders were listed.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Minimum age of a modification time that proves anything. A folder with a newer time may change
/// again without a new time: file systems round times, up to a second over a network.
const SETTLED: Duration = Duration::from_secs(1);

/// Modification times of folders, each read before its folder was listed.
#[derive(Clone, Debug, Default)]
pub struct FolderTimes {
    /// The folders and their times; `None` for a missing folder.
    folders: Vec<(PathBuf, Option<SystemTime>)>,
    /// True if a folder had just changed, so that its time proves nothing.
    has_unsettled: bool,
}

impl FolderTimes {
    /// Adds a folder. Call this before the folder is listed.
    pub fn add(&mut self, folder: &Path) {
        let time = modified(folder);
        let is_settled = |time: SystemTime| time.elapsed().is_ok_and(|age| age > SETTLED);
        self.has_unsettled |= !time.is_none_or(is_settled);
        self.folders.push((folder.to_owned(), time));
    }

    /// Returns true if certainly no entry of the folders was added, removed or replaced since the
    /// calls of [`FolderTimes::add`]. Does not detect writes to existing files.
    pub fn are_unchanged(&self) -> bool {
        !self.has_unsettled
            && !self.folders.is_empty()
            && self.folders.iter().all(|(folder, time)| modified(folder) == *time)
    }
}

fn modified(folder: &Path) -> Option<SystemTime> {
    fs_err::metadata(folder).and_then(|meta| meta.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(folders: &[&Path]) -> FolderTimes {
        let mut times = FolderTimes::default();
        folders.iter().for_each(|folder| times.add(folder));
        times
    }

    fn set_back(folder: &Path) {
        let folder = fs_err::File::open(folder).unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        folder.set_modified(hour_ago).unwrap();
    }

    #[test]
    fn a_folder_is_unchanged_until_an_entry_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (here, absent) = (dir.path(), dir.path().join("absent"));
        fs_err::write(here.join("file"), "one").unwrap();
        set_back(here);
        let before = times(&[here, &absent]);
        assert!(before.are_unchanged());
        fs_err::write(here.join("other"), "two").unwrap();
        fs_err::rename(here.join("other"), here.join("file")).unwrap();
        assert!(!before.are_unchanged(), "a file was replaced");
        set_back(here);
        let before = times(&[here, &absent]);
        fs_err::create_dir(&absent).unwrap();
        assert!(!before.are_unchanged());
    }

    #[test]
    fn a_folder_that_just_changed_is_not_reported_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join("file"), "one").unwrap();
        assert!(!times(&[dir.path()]).are_unchanged());
        assert!(!FolderTimes::default().are_unchanged(), "an empty list proves nothing");
    }
}
