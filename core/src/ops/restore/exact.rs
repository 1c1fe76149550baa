//! Limits a restore to an exact set of paths, in the state in which the caller saw them.
//!
//! Patterns select a folder with everything in it. An exact set selects single entries: a folder in
//! it gets its attributes, but its entries change only if they are in the set, too. The restore
//! refuses a path that has changed since [`ExactPaths::look`], so it never replaces a file that was
//! written meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, CWD, FileType, Stat, accessat, lstat},
    io::Errno,
};

use crate::ops::restore::{filter::Choice, plan::FileFingerprint};

/// The paths that a restore may change.
#[derive(Debug, Default)]
pub struct ExactPaths {
    has_top: bool,
    /// Each path, with its fingerprint at the look; `None` if it did not exist.
    paths: BTreeMap<Vec<u8>, Option<FileFingerprint>>,
}

impl ExactPaths {
    /// Adds a path: names separated by single slashes. The empty path is the target itself.
    pub fn insert(&mut self, path: Vec<u8>) {
        if path.is_empty() { self.has_top = true } else { _ = self.paths.insert(path, None) }
    }

    /// Returns true if nothing may change.
    pub fn is_empty(&self) -> bool {
        !self.has_top && self.paths.is_empty()
    }

    /// Removes a path, if it is there.
    pub fn remove(&mut self, path: &[u8]) {
        if path.is_empty() { self.has_top = false } else { _ = self.paths.remove(path) }
    }

    /// Records the present state of the paths in the folder `target`. A path whose stat cannot be
    /// read counts as missing. Returns the folders above the paths that this user may not list.
    pub fn look(&mut self, target: &Path) -> BTreeSet<PathBuf> {
        let (mut folders, mut unlisted) = (BTreeSet::new(), BTreeSet::new());
        for (path, seen) in &mut self.paths {
            let path = Path::new(OsStr::from_bytes(path));
            let stat = lstat(target.join(path)).ok();
            *seen = stat.as_ref().map(FileFingerprint::new);
            for folder in path.ancestors().skip(1) {
                if !folders.insert(folder) {
                    break;
                }
                if !may_list(&target.join(folder)) {
                    unlisted.insert(folder.to_owned());
                }
            }
        }
        unlisted
    }

    /// Returns true if the attributes of the target itself may change.
    pub(super) fn has_top(&self) -> bool {
        self.has_top
    }

    /// Returns the decision on an entry.
    pub(super) fn choose(&self, path: &Path) -> Choice {
        let path = path.as_os_str().as_bytes();
        if self.paths.contains_key(path) {
            return Choice::Wanted;
        }
        let below = [path, b"/"].concat();
        let next = self.paths.range(below.clone()..).next();
        match next.is_some_and(|(next, _)| next.starts_with(&below)) {
            true => Choice::Unwanted,
            false => Choice::Excluded,
        }
    }

    /// Returns false if an entry appeared or changed since [`ExactPaths::look`]. An entry that is
    /// gone counts as unchanged. So does a folder that replaced another entry, because a restore
    /// removes only empty folders.
    pub(super) fn is_as_seen(&self, path: &Path, stat: Option<&Stat>) -> bool {
        let Some(seen) = self.paths.get(path.as_os_str().as_bytes()) else { return true };
        match (seen, stat) {
            (Some(seen), Some(stat)) => {
                FileType::from_raw_mode(stat.st_mode).is_dir() || seen.has_content_of(stat)
            }
            (None, Some(_)) => false,
            (_, None) => true,
        }
    }
}

/// Returns false for a folder that this user may not list or enter.
fn may_list(folder: &Path) -> bool {
    let is_folder = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_dir();
    !lstat(folder).is_ok_and(is_folder)
        || !matches!(
            accessat(CWD, folder, Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS),
            Err(Errno::ACCESS | Errno::PERM)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_selects_neither_its_entries_nor_its_neighbours() {
        let mut paths = ExactPaths::default();
        for path in ["src", "src/deep/x", "a-b", "a/b"] {
            paths.insert(path.as_bytes().to_vec());
        }
        for (path, choice) in [
            ("src", Choice::Wanted),
            ("src/deep", Choice::Unwanted),
            ("src/deep/x", Choice::Wanted),
            ("src/deep/x/y", Choice::Excluded),
            ("src/y", Choice::Excluded),
            ("a", Choice::Unwanted),
            ("a-b", Choice::Wanted),
            ("a-c", Choice::Excluded),
        ] {
            assert_eq!(paths.choose(Path::new(path)), choice, "{path}");
        }
        assert!(!paths.has_top());
        paths.insert(Vec::new());
        assert!(paths.has_top());
    }

    #[test]
    fn a_file_that_changed_after_the_look_is_not_as_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs_err::write(path("old"), "1").unwrap();
        let mut paths = ExactPaths::default();
        ["old", "new"].iter().for_each(|name| paths.insert(name.as_bytes().to_vec()));
        paths.look(folder.path());
        let is_as_seen =
            |name: &str| paths.is_as_seen(Path::new(name), lstat(path(name)).ok().as_ref());
        assert!(is_as_seen("old") && is_as_seen("new") && is_as_seen("other"));
        fs_err::write(path("old"), "22").unwrap();
        fs_err::write(path("new"), "1").unwrap();
        assert!(!is_as_seen("old") && !is_as_seen("new"));
        fs_err::remove_file(path("old")).unwrap();
        assert!(is_as_seen("old"), "nothing is lost");
    }

    #[test]
    fn a_write_under_any_name_of_a_file_changes_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs_err::write(path("one"), "1").unwrap();
        fs_err::hard_link(path("one"), path("two")).unwrap();
        let mut paths = ExactPaths::default();
        ["one", "two"].iter().for_each(|name| paths.insert(name.as_bytes().to_vec()));
        paths.look(folder.path());
        let is_as_seen =
            |name: &str| paths.is_as_seen(Path::new(name), lstat(path(name)).ok().as_ref());
        assert!(is_as_seen("one") && is_as_seen("two"));
        fs_err::write(path("one"), "22").unwrap();
        assert!(!is_as_seen("one") && !is_as_seen("two"));
    }
}
