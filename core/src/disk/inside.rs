//! No symbolic link inside a store is followed to change something.
//!
//! A store may come out of an archive, or other users may write to it. A link
//! in it, such as `.snap/tmp` or a log of refs, would lead what snap writes, or
//! clears up, to files of the user who runs it.
//!
//! `objects` and `partial` themselves may be links, to another disk. What lies
//! in them is named by hashes.

use std::{
    io,
    path::{Component, Path},
};

use crate::base::io::PathError;

/// Parts of a store that may be links.
const MAY_BE_LINKS: [&str; 2] = ["objects", "partial"];

/// Parts that are changed without a [`Disk`](super::Disk), or cleared up.
const PARTS: [&str; 15] = [
    "tmp",
    "index",
    "quarantine",
    "cache",
    "refs",
    "refs/heads",
    "refs/tags",
    "logs",
    "logs/refs",
    "lock",
    "shadow.lock",
    "compact.lock",
    "serve.lock",
    "base",
    "scope",
];

/// Checks that the parts of the store in `dir` are no links.
///
/// # Errors
/// [`PathError`] names the first that is one.
pub fn check_parts(dir: &Path) -> Result<(), PathError> {
    PARTS.iter().try_for_each(|part| check(&dir.join(part)))
}

/// Checks that no folder between the store in `root` and `path`, both excluded,
/// is a link. A path that is not in the store is not checked.
///
/// # Errors
/// As [`check_parts`].
pub(super) fn check_above(root: &Path, path: &Path) -> Result<(), PathError> {
    let Ok(inside) = path.strip_prefix(root) else { return Ok(()) };
    let mut at = root.to_owned();
    let mut parts = inside.components().peekable();
    let mut is_first = true;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            break;
        }
        at.push(part);
        let may_be_link =
            is_first && MAY_BE_LINKS.iter().any(|name| part == Component::Normal(name.as_ref()));
        if !may_be_link {
            check(&at)?;
        }
        is_first = false;
    }
    Ok(())
}

fn check(path: &Path) -> Result<(), PathError> {
    match path.is_symlink() {
        true => Err(PathError::when("use", path)(link())),
        false => Ok(()),
    }
}

/// Why a link inside a store is not followed.
pub(super) fn link() -> io::Error {
    io::Error::other("it is a symbolic link, and snap follows none inside a store")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::disk::Disk;

    #[test]
    fn nothing_is_changed_through_a_link_in_a_store() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("store"), dir.path().join("outside"));
        for folder in [&root.join("objects"), &root.join("logs"), &outside] {
            fs_err::create_dir_all(folder).unwrap();
        }
        fs_err::write(outside.join("file"), "the user's").unwrap();
        symlink(&outside, root.join("tmp")).unwrap();
        symlink(&outside, root.join("logs/refs")).unwrap();
        symlink(outside.join("file"), root.join("lock")).unwrap();
        let disk = Disk::default().in_store(&root);
        assert!(disk.create(&root.join("tmp/new")).is_err());
        assert!(disk.append(&root.join("logs/refs/file")).is_err());
        assert!(disk.create_folders(&root.join("logs/refs/heads")).is_err());
        assert!(disk.remove(&root.join("tmp/file")).is_err());
        assert!(disk.replace(&root.join("objects"), &root.join("tmp/file")).is_err());
        assert!(disk.rename_new(&root.join("objects"), &root.join("tmp/other")).is_err());
        assert!(disk.fill(&root.join("lock"), 0, b"x").is_err());
        assert!(disk.lock_file(&root.join("lock")).is_err());
        assert!(check_parts(&root).is_err());
        assert_eq!(fs_err::read(outside.join("file")).unwrap(), b"the user's");
        assert_eq!(fs_err::read_dir(&outside).unwrap().count(), 1);
        // Packs may lie on another disk.
        fs_err::remove_dir(root.join("objects")).unwrap();
        symlink(&outside, root.join("objects")).unwrap();
        disk.create(&root.join("objects/pack")).unwrap();
    }
}
