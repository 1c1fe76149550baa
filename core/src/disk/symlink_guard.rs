//! Protection against symbolic links inside a store: no write or removal follows one.
//!
//! A store may come out of an archive, or other users may be able to write to it. A
//! link in it, such as `.snap/tmp` or a ref log, could redirect writes and removals to
//! other files of the user who runs snap.
//!
//! `objects` may be a link, for example to another disk. The caller that opens a store
//! checks that the link does not lead into another store.
//!
//! Caches of remotes and folders of received packs are stores as well, below the `cache/`
//! of a store or the cache folder of a user. No part of them may be a link.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Component, Path},
    sync::Arc,
};

use crate::base::io::{PathError, if_exists};

/// The part of a store that may be a link.
const OBJECTS: &str = "objects";

/// Parts that snap sweeps, or changes without a [`Disk`](super::Disk).
const PARTS: [&str; 18] = [
    "partial",
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
    "gc.lock",
    "compact.lock",
    "staged.lock",
    "serve.lock",
    "base",
    "scope",
];

/// Checks that no part of the store in `dir` is a link.
///
/// # Errors
/// [`PathError`] names the first part that is a link.
pub fn check_parts(dir: &Path) -> Result<(), PathError> {
    PARTS.iter().try_for_each(|part| check(&dir.join(part)))
}

/// Checks that no entry of the folder `dir` is a link. A missing folder has none.
///
/// # Errors
/// [`PathError`] names a link, or says why the folder cannot be listed.
pub fn check_no_link_entries(dir: &Path) -> Result<(), PathError> {
    let entries = if_exists(fs_err::read_dir(dir)).map_err(PathError::when("list", dir))?;
    for entry in entries.into_iter().flatten() {
        check(&entry.map_err(PathError::when("list", dir))?.path())?;
    }
    Ok(())
}

/// Checks that neither `path` nor a folder between `root` and `path` is a link. `root`
/// itself may be one.
///
/// # Errors
/// As [`check_parts`].
pub fn check_no_links_between(root: &Path, path: &Path) -> Result<(), PathError> {
    let inside = path.ancestors().take_while(|at| *at != root && at.starts_with(root));
    inside.collect::<Vec<_>>().into_iter().rev().try_for_each(check)
}

/// Checks that every existing folder from `root` to `path` belongs to this user and is not a link.
/// If the process is root and `root` does not exist, the nearest existing folder above it must
/// belong to root: root gives new folders of a cache to the owner of that folder.
///
/// # Errors
/// [`PathError`] names the first folder that fails the check.
pub fn check_owned_by_user(root: &Path, path: &Path) -> Result<(), PathError> {
    let user = rustix::process::geteuid();
    let own = |at: &Path| match if_exists(fs_err::symlink_metadata(at)) {
        Ok(Some(meta)) if meta.uid() != user.as_raw() => {
            let (kind, why) = (io::ErrorKind::PermissionDenied, "it belongs to another user");
            Err(PathError::when("use", at)(io::Error::new(kind, why)))
        }
        other => other.map(drop).map_err(PathError::when("use", at)),
    };
    check(root)?;
    check_no_links_between(root, path)?;
    path.ancestors().take_while(|at| at.starts_with(root)).try_for_each(own)?;
    let above = root.ancestors().skip(1).find(|above| above.exists());
    match above.filter(|_| user.is_root() && !root.exists()) {
        Some(above) => own(above),
        None => Ok(()),
    }
}

/// The folder of a store, as it was when the store was opened.
#[derive(Clone, Debug)]
pub(super) struct StoreRoot {
    path: Arc<Path>,
    kind: RootKind,
    /// Device and inode number of the folder; `None` if it did not exist yet, and for a cache.
    identity: Option<(u64, u64)>,
    /// Device and inode number of the folder that `objects` is or led to; `None` if it did not
    /// exist.
    objects: Option<(u64, u64)>,
}

/// Kind of a guarded folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootKind {
    /// A store. The path to it may contain links, and its `objects` may be a link.
    Store,
    /// A store of derived data. Neither it nor anything in it may be a link. Other
    /// processes may replace it at any time.
    Cache,
}

impl StoreRoot {
    pub(super) fn new(path: &Path) -> Self {
        let objects = identity(&path.join(OBJECTS)).ok();
        let (kind, identity) = (RootKind::Store, identity(path).ok());
        Self { path: path.into(), kind, identity, objects }
    }

    pub(super) fn of_cache(path: &Path) -> Self {
        Self { path: path.into(), kind: RootKind::Cache, identity: None, objects: None }
    }

    /// Checks that the folder is still the same, and that no link on the way to `path` leads out of
    /// it. If a copy has replaced the store, the command would report files as stored that are only
    /// in the old store.
    ///
    /// # Errors
    /// [`PathError`] with the reason.
    pub(super) fn check(&self, path: &Path) -> Result<(), PathError> {
        if let Some(before) = self.identity
            && path.starts_with(&self.path)
        {
            let now = identity(&self.path).map_err(PathError::when("use", &self.path))?;
            if now != before {
                return Err(PathError::when("use", &self.path)(moved()));
            }
        }
        let Ok(inside) = path.strip_prefix(&self.path) else { return Ok(()) };
        if self.kind == RootKind::Cache {
            check(&self.path)?;
        }
        // The system call does not follow the last part.
        let mut parts = inside.parent().unwrap_or(inside).components();
        let mut at = self.path.to_path_buf();
        if let Some(first) = parts.next() {
            at.push(first);
            match first == Component::Normal(OBJECTS.as_ref()) {
                true => self.check_objects(&at)?,
                false => check(&at)?,
            }
        }
        for part in parts {
            at.push(part);
            check(&at)?;
        }
        Ok(())
    }

    /// Checks that `objects` is not a forbidden link, and leads to the same folder as before.
    fn check_objects(&self, objects: &Path) -> Result<(), PathError> {
        let is_known = || match self.objects {
            Some(before) => identity(objects).is_ok_and(|now| now == before),
            None => true,
        };
        match objects.is_symlink() {
            true if self.kind == RootKind::Cache => Err(PathError::when("use", objects)(link())),
            true if !is_known() => {
                let why = "it led to another folder when this command began";
                Err(PathError::when("use", objects)(io::Error::other(why)))
            }
            _ => Ok(()),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let meta = fs_err::metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// Returns a text without spaces that distinguishes a folder from other folders that
/// may have its path at other times, such as disks mounted one after the other. Returns
/// `-` if the folder cannot be read.
pub fn folder_identity(folder: &Path) -> String {
    let Ok((device, inode)) = identity(folder) else { return "-".to_owned() };
    // The device number may change when a disk is plugged in again; the file system's
    // id does not.
    match rustix::fs::statvfs(folder).map_or(0, |system| system.f_fsid) {
        0 => format!("{device}:{inode}"),
        file_system => format!("{file_system:x}:{inode}"),
    }
}

fn moved() -> io::Error {
    io::Error::other("the store was moved or replaced while this command used it")
}

fn check(path: &Path) -> Result<(), PathError> {
    if path.is_symlink() { Err(PathError::when("use", path)(link())) } else { Ok(()) }
}

/// A link inside a store, as the source of a [`PathError`].
#[derive(Debug, thiserror::Error)]
#[error("it is a symbolic link; snap does not follow links inside a store")]
pub struct LinkError;

/// The error for a link inside a store.
pub(super) fn link() -> io::Error {
    io::Error::other(LinkError)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::disk::Disk;

    #[test]
    fn a_link_in_a_store_is_not_followed() {
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
        let disk = Disk::default().in_store(&root);
        disk.create(&root.join("objects/pack")).unwrap();
        // The link led to another folder when the store was opened.
        let other = dir.path().join("other");
        fs_err::create_dir(&other).unwrap();
        fs_err::remove_file(root.join("objects")).unwrap();
        symlink(&other, root.join("objects")).unwrap();
        assert!(disk.create(&root.join("objects/next")).is_err());
        assert_eq!(fs_err::read_dir(&other).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_or_instead_of_a_cache_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("cache"), dir.path().join("outside"));
        fs_err::create_dir_all(outside.join("objects")).unwrap();
        fs_err::write(outside.join("objects/pack"), "the user's").unwrap();
        fs_err::create_dir(&root).unwrap();
        for part in ["objects", "partial", "index", "tmp", "lock"] {
            symlink(outside.join("objects"), root.join(part)).unwrap();
            assert!(check_no_link_entries(&root).is_err(), "{part}");
            let disk = Disk::cache(&root);
            assert!(disk.remove(&root.join(part).join("pack")).is_err(), "{part}");
            assert!(disk.create(&root.join(part).join("new")).is_err(), "{part}");
            fs_err::remove_file(root.join(part)).unwrap();
        }
        assert!(
            check_no_link_entries(&root).is_ok()
                && check_no_links_between(dir.path(), &root).is_ok()
        );
        fs_err::remove_dir(&root).unwrap();
        symlink(&outside, &root).unwrap();
        let disk = Disk::cache(&root);
        assert!(disk.create_folders(&root).is_err());
        assert!(disk.remove(&root.join("objects/pack")).is_err());
        assert!(check_no_links_between(dir.path(), &root).is_err());
        assert!(check_no_links_between(dir.path(), &root.join("objects/deep")).is_err());
        assert!(check_owned_by_user(&root, &root.join("objects")).is_err());
        assert_eq!(fs_err::read_dir(outside.join("objects")).unwrap().count(), 1);
    }

    #[test]
    fn a_cache_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("snap");
        let deep = root.join("remotes/id");
        check_owned_by_user(&root, &deep).unwrap();
        fs_err::create_dir_all(&deep).unwrap();
        check_owned_by_user(&root, &deep).unwrap();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let give = |path: &Path, to| std::os::unix::fs::lchown(path, Some(to), Some(to)).unwrap();
        for folder in [&deep, &root.join("remotes"), &root] {
            give(folder, 65534);
            assert!(check_owned_by_user(&root, &deep).is_err(), "{}", folder.display());
            give(folder, 0);
        }
        fs_err::remove_dir_all(&root).unwrap();
        give(dir.path(), 65534);
        assert!(check_owned_by_user(&root, &deep).is_err());
    }
}
