//! Checks which users can have created or changed a store.
//!
//! A command that looks for the store above a folder may find one that another user put there, for
//! example in `/tmp` or in a shared project. That user could then read the files that are committed
//! to it. This module checks that only trusted users can have put the store there; the caller
//! decides who is trusted.
//!
//! | checked            | must be                                                        |
//! |--------------------|----------------------------------------------------------------|
//! | the store folder   | owned by a trusted user, not writable by every user            |
//! | a link to it       | owned by a trusted user                                        |
//! | the folder above   | not writable by every user, unless it is sticky, as `/tmp` is  |
//! | its parts          | owned by a trusted user, not writable by every user            |
//! | writable by group  | only if `shared` is set in `config.toml`, whose owner is trusted |
//!
//! The module trusts the owner of the folder above, who can replace the store between the check and
//! its use.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    base::io::{PathError, if_exists},
    disk::output::folder_of,
    repo::{
        config::{
            self,
            key::{KeyPath, Value},
        },
        open::read_config_file,
    },
};

/// Mode bit: the group may write.
const GROUP_WRITE: u32 = 0o020;

/// Mode bit: the group may enter the folder.
const GROUP_SEARCH: u32 = 0o010;

/// Mode bit: users outside the group may write.
const OTHERS_WRITE: u32 = 0o002;

/// Mode bit: users outside the group may enter the folder.
const OTHERS_SEARCH: u32 = 0o001;

/// Mode bit of a folder: only the owner of a file may rename or remove it.
const STICKY: u32 = 0o1000;

/// Parts of a store, without `config.toml`. A part may be missing.
const PARTS: [&str; 17] = [
    "objects",
    "partial",
    "shadow",
    "forgotten",
    "rewrites",
    "gc",
    "refs",
    "refs/heads",
    "refs/tags",
    "logs",
    "index",
    "cache",
    "tmp",
    "HEAD",
    "base",
    "scope",
    "lock",
];

/// The uid that a container or a network share shows for all unknown users.
pub const OVERFLOW_UID: u32 = 65_534;

/// Why an untrusted user may have created or changed a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// Another user owns the store or one of its parts.
    #[error("{} belongs to {}", path.display(), user(*uid))]
    Owner { path: PathBuf, uid: u32 },
    /// Every user may write to the store, a part of it, or the folder above.
    #[error("every user may write to {} (mode {mode:04o})", path.display())]
    World { path: PathBuf, mode: u32 },
    /// The group may write to the store, and `shared` is not set.
    #[error(
        "group {gid} may write to {} (mode {mode:04o}), but the store is not shared",
        path.display()
    )]
    Group { path: PathBuf, mode: u32, gid: u32 },
    /// The path cannot be examined.
    #[error(transparent)]
    Io(#[from] PathError),
}

fn user(uid: u32) -> String {
    match uid {
        OVERFLOW_UID => format!("an unknown user (id {uid})"),
        _ => format!("the user with id {uid}"),
    }
}

/// Checks that only the users in `trusted` can have put the store in `dir` or changed it. Also
/// checks a folder that is not a store yet.
///
/// # Errors
/// [`Distrust`] names the first path that an untrusted user may have changed.
pub fn check(dir: &Path, trusted: &[u32]) -> Result<(), Distrust> {
    let own = |path: &Path, meta: &Metadata| match trusted.contains(&meta.uid()) {
        true => Ok(()),
        false => Err(Distrust::Owner { path: path.to_owned(), uid: meta.uid() }),
    };
    let link = fs_err::symlink_metadata(dir).map_err(PathError::when("look at", dir))?;
    own(dir, &link)?;
    check_above(dir)?;
    let store = fs_err::metadata(dir).map_err(PathError::when("look at", dir))?;
    if link.is_symlink() {
        let real = fs_err::canonicalize(dir).map_err(PathError::when("look at", dir))?;
        own(&real, &store)?;
        check_above(&real)?;
    }
    check_world(dir, &store)?;
    // Returns the metadata of a path; with `is_owned`, also checks the owner of the path and of the
    // target of a link.
    let examine = |path: &Path, is_owned: bool| -> Result<Option<Metadata>, Distrust> {
        let meta = if_exists(fs_err::symlink_metadata(path));
        let Some(meta) = meta.map_err(PathError::when("look at", path))? else { return Ok(None) };
        if is_owned {
            own(path, &meta)?;
        }
        if !meta.is_symlink() {
            return Ok(Some(meta));
        }
        let target = if_exists(fs_err::metadata(path));
        let target = target.map_err(PathError::when("look at", path))?;
        if let Some(meta) = target.as_ref().filter(|_| is_owned) {
            own(path, meta)?;
        }
        Ok(target)
    };
    let config = dir.join(config::FILE);
    let settings = examine(&config, true)?;
    if let Some(meta) = &settings {
        check_world(&config, meta)?;
    }
    let may_be_shared = settings.is_some() && store.mode() & GROUP_WRITE != 0;
    let is_shared = may_be_shared && is_shared(dir);
    if !is_shared {
        check_group(dir, &store)?;
        if let Some(meta) = settings.as_ref().filter(|_| store.mode() & GROUP_SEARCH != 0) {
            check_group(&config, meta)?;
        }
    }
    for part in PARTS {
        let path = dir.join(part);
        // In a shared store, members of the group replace its parts, so these may have other
        // owners.
        let Some(meta) = examine(&path, !is_shared)? else { continue };
        // Users who cannot enter the store folder cannot reach its parts.
        if store.mode() & OTHERS_SEARCH != 0 {
            check_world(&path, &meta)?;
        }
        if store.mode() & GROUP_SEARCH != 0 && !is_shared {
            check_group(&path, &meta)?;
        }
    }
    Ok(())
}

/// Returns true if the settings of the store set `shared`; false if they are unreadable.
fn is_shared(dir: &Path) -> bool {
    let file = read_config_file(dir).ok().filter(|file| !file.is_link);
    let shared = KeyPath::new(["shared"]);
    file.is_some_and(|file| matches!(file.layer.get(&shared), Some((Value::Flag(true), _))))
}

fn check_above(dir: &Path) -> Result<(), Distrust> {
    let above = folder_of(dir);
    let meta = fs_err::metadata(above).map_err(PathError::when("look at", above))?;
    if meta.mode() & STICKY == 0 { check_world(above, &meta) } else { Ok(()) }
}

fn check_world(path: &Path, meta: &Metadata) -> Result<(), Distrust> {
    match meta.mode() & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(Distrust::World { path: path.to_owned(), mode: meta.mode() & 0o7777 }),
    }
}

fn check_group(path: &Path, meta: &Metadata) -> Result<(), Distrust> {
    let (mode, gid) = (meta.mode() & 0o7777, meta.gid());
    match mode & GROUP_WRITE {
        0 => Ok(()),
        _ => Err(Distrust::Group { path: path.to_owned(), mode, gid }),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::{
        disk::Disk,
        repo::{Config, Repo, Sharing, open::STORE_FOLDER},
    };

    fn mode(path: &Path, mode: u32) {
        fs_err::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn store(sharing: Sharing) -> (tempfile::TempDir, PathBuf) {
        let project = tempfile::tempdir().unwrap();
        let dir = project.path().join(STORE_FOLDER);
        Repo::init_for(sharing, &dir, &Disk::default(), &Config::default()).unwrap();
        (project, dir)
    }

    fn me() -> [u32; 1] {
        [rustix::process::geteuid().as_raw()]
    }

    #[test]
    fn a_store_or_link_of_an_untrusted_user_is_refused() {
        let (project, dir) = store(Sharing::Private);
        check(&dir, &me()).unwrap();
        let other = [me()[0] + 1];
        assert!(matches!(check(&dir, &other), Err(Distrust::Owner { .. })));
        let link = project.path().join("link");
        fs_err::os::unix::fs::symlink(&dir, &link).unwrap();
        check(&link, &me()).unwrap();
        assert!(matches!(check(&link, &other), Err(Distrust::Owner { path, .. }) if path == link));
    }

    #[test]
    fn a_store_that_all_users_may_change_is_refused() {
        let (project, dir) = store(Sharing::Private);
        mode(project.path(), 0o777);
        let above = check(&dir, &me());
        assert!(matches!(above, Err(Distrust::World { path, .. }) if path == project.path()));
        mode(project.path(), 0o1777);
        check(&dir, &me()).unwrap();
        mode(&dir.join("objects"), 0o777);
        check(&dir, &me()).expect("the store folder is closed");
        mode(&dir, 0o755);
        assert!(matches!(check(&dir, &me()), Err(Distrust::World { .. })));
        mode(&dir.join("objects"), 0o755);
        mode(&dir.join(config::FILE), 0o602);
        assert!(matches!(check(&dir, &me()), Err(Distrust::World { .. })));
    }

    #[test]
    fn a_group_writable_store_must_be_marked_as_shared() {
        let (_project, dir) = store(Sharing::Group);
        check(&dir, &me()).unwrap();
        let (_project, dir) = store(Sharing::Private);
        mode(&dir, 0o770);
        assert!(matches!(check(&dir, &me()), Err(Distrust::Group { .. })));
    }
}
