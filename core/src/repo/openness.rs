//! Compares the mode of a store with the modes of the files committed to it.
//!
//! A copy of a store may let users read the content of files that they may not read themselves.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::repo::open::STORE_FOLDER;

/// Maximum number of compared entries of the project folder.
const COMPARED: usize = 10_000;

/// A class of users who can read the store, but not some file committed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// Members of the group of the store.
    Group,
    /// All users outside that group.
    Others,
}

impl Users {
    /// Each class of users, with the shift of its three bits in a mode.
    const ALL: [(Self, u32); 2] = [(Self::Others, 0), (Self::Group, 3)];
}

/// A file that users may not read, although they may read the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The project, or a file or folder in it.
    pub path: PathBuf,
    /// Users who may read the store.
    pub users: Users,
    /// Mode of the store folder.
    pub store_mode: u32,
}

/// Returns the first file or folder of `project` that is less open than the store in `dir`.
/// Compares only the project folder and its direct entries. Skips entries that cannot be examined.
pub fn exposed(dir: &Path, project: &Path) -> Option<Exposed> {
    let store = fs_err::metadata(dir).ok()?;
    let objects = fs_err::metadata(dir.join("objects")).ok()?;
    let reaches = |shift: u32| [&store, &objects].iter().all(|m| m.mode() >> shift & 1 != 0);
    if !Users::ALL.iter().any(|(_, shift)| reaches(*shift)) {
        return None;
    }
    let of = |path: PathBuf, meta: &Metadata| {
        let needed = if meta.is_dir() { 1 } else { 4 };
        let (users, _) = Users::ALL.into_iter().find(|(users, shift)| {
            // If the groups of the store and of the file differ, they have different members.
            let is_comparable = *users == Users::Others || meta.gid() == store.gid();
            is_comparable && reaches(*shift) && meta.mode() >> shift & needed == 0
        })?;
        Some(Exposed { path, users, store_mode: store.mode() & 0o7777 })
    };
    let top = fs_err::metadata(project).ok()?;
    if let Some(found) = of(project.to_owned(), &top) {
        return Some(found);
    }
    let entries = fs_err::read_dir(project).ok()?.flatten().take(COMPARED);
    let mut entries = entries.filter(|entry| entry.file_name() != STORE_FOLDER);
    entries.find_map(|entry| {
        let meta = entry.metadata().ok().filter(|meta| meta.is_file() || meta.is_dir())?;
        of(entry.path(), &meta)
    })
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_store_more_open_than_a_file_is_reported() {
        let project = tempfile::tempdir().unwrap();
        let store = project.path().join(STORE_FOLDER);
        fs_err::create_dir_all(store.join("objects")).unwrap();
        let file = project.path().join("file");
        fs_err::write(&file, "").unwrap();
        let mode = |path: &Path, mode| {
            fs_err::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        // (project, store, objects, file, reported file)
        let cases = [
            (0o755, 0o755, 0o755, 0o644, None),
            (0o755, 0o755, 0o755, 0o640, Some((&file, Users::Others))),
            (0o755, 0o755, 0o755, 0o604, Some((&file, Users::Group))),
            (0o755, 0o700, 0o755, 0o600, None),
            (0o755, 0o755, 0o700, 0o600, None),
            (0o755, 0o770, 0o770, 0o640, None),
        ];
        for (folder, top, objects, bits, expected) in cases {
            mode(project.path(), folder);
            mode(&store, top);
            mode(&store.join("objects"), objects);
            mode(&file, bits);
            let found = exposed(&store, project.path());
            let found = found.map(|found| (found.path, found.users));
            assert_eq!(found, expected.map(|(path, users)| (path.clone(), users)), "{bits:o}");
        }
        mode(&store, 0o755);
        mode(&store.join("objects"), 0o755);
        mode(project.path(), 0o700);
        let found = exposed(&store, project.path()).unwrap();
        assert_eq!((found.path.as_path(), found.users), (project.path(), Users::Others));
    }
}
