//! Creates a store. A lock keeps out other processes. `init` writes the settings last: a store
//! without settings is unfinished, and the next `init` completes it.
//!
//! The store of a project contains a `.gitignore` that excludes all of it, so git neither lists nor
//! adds it. A user may change or remove that file; snap does not write it again.

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use crate::{
    base::io::{PathError, if_exists},
    disk::{CreateMode, Disk, NewFile, lock_wait::is_file_at, output::folder_of},
    local::{ignore::GITIGNORE, write::temporary_name},
    repo::{
        Repo, RepoError, base, base_state,
        config::{self, Config, edit::Edit, key::KeyPath, layer::ConfigOwner},
        open::{FIRST_BRANCH, STORE_FOLDER, check_links, read_config_file, write_config},
        ref_name::{RefKind, RefName},
        refs::{Head, RefError, Refs},
    },
    store::{Store, epoch, reserve},
};

/// Folders and files of a store, without its [`config::FILE`].
const PARTS: [&str; 12] = [
    "objects",
    "refs",
    "logs",
    "index",
    "cache",
    "tmp",
    "HEAD",
    base::FILE,
    LOCK,
    GITIGNORE,
    reserve::FILE,
    epoch::FILE,
];

/// The lock file of a store. A process that creates or changes the store locks it.
pub(super) const LOCK: &str = "lock";

/// Content of [`GITIGNORE`] in the store of a project: it excludes all files, even itself.
const GITIGNORE_ALL: &[u8] = b"*\n";

/// Number of attempts to create a store, while failed processes may remove the folder.
const RETRIES: usize = 16;

/// The setting that marks a store as writable by its group.
const SHARED: &str = "shared";

/// Who may use a new store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Only the owner: mode 0700, files 0600.
    #[default]
    Private,
    /// The owner and the group of the folder: mode 2770, files 0660. The settings record this
    /// choice, because a store can also be open to its group by mistake.
    Group,
}

impl Repo {
    /// Creates a store in `dir`, durably, without opening it. The folder may exist if it is empty
    /// or holds an unfinished store. Only the owner gets access, whatever the umask is.
    ///
    /// # Errors
    /// [`RepoError::Exists`], [`RepoError::NotEmpty`], [`RepoError::Io`], and the errors of
    /// [`check_links`] for an unfinished store, whose `objects` may not be a link either. After an
    /// error, removes `dir` if it did not exist before.
    pub fn init(dir: &Path, disk: &Disk, config: &Config) -> Result<(), RepoError> {
        Self::init_for(Sharing::Private, dir, disk, config)
    }

    /// Creates a store like [`Repo::init`], for the users that `sharing` names.
    ///
    /// # Errors
    /// As [`Repo::init`].
    pub fn init_for(
        sharing: Sharing,
        dir: &Path,
        disk: &Disk,
        config: &Config,
    ) -> Result<(), RepoError> {
        let text = settings_text(sharing, dir, config)?;
        let access = match sharing {
            Sharing::Private => CreateMode::PRIVATE,
            Sharing::Group => CreateMode::GROUP,
        };
        let store_disk = disk.with_access(access);
        for _ in 0..RETRIES {
            if dir.join(config::FILE).exists() {
                return Err(exists_error(dir));
            }
            let was_there = dir.exists();
            // Files in a folder without a lock file belong to something else. With a lock file,
            // another process may be creating a store there.
            if was_there && !is_free(dir)? && !dir.join(LOCK).exists() {
                return Err(exists_error(dir));
            }
            disk.create_folders(folder_of(dir))?;
            store_disk.create_folders(dir)?;
            // This disk refuses a link or a pipe that an archive may have in place of the lock
            // file.
            let lock_disk = store_disk.in_store(dir).with_access(access);
            let Some(_lock) = lock(dir, &lock_disk)? else { continue };
            if !is_free(dir)? {
                return Err(exists_error(dir));
            }
            check_links(dir)?;
            let objects = dir.join("objects");
            if objects.is_symlink() {
                return Err(RepoError::Link { path: objects });
            }
            let made = build(dir, &store_disk, &text);
            if made.is_err() && !was_there {
                let _ = fs_err::remove_dir_all(dir);
            }
            return made;
        }
        Err(exists_error(dir))
    }

    /// Returns true if `dir` holds an unfinished store, which another `init` completes. An empty
    /// folder counts only if its name is `.snap`.
    pub fn is_unfinished(dir: &Path) -> bool {
        let is_begun = dir.ends_with(STORE_FOLDER) || dir.join(LOCK).exists();
        is_begun && !dir.join(config::FILE).exists() && is_free(dir).unwrap_or(false)
    }
}

/// Returns the error for a folder that holds a store or other files.
fn exists_error(dir: &Path) -> RepoError {
    let dir = dir.to_owned();
    if !dir.join(config::FILE).exists() {
        return RepoError::NotEmpty { dir };
    }
    match read_config_file(&dir) {
        Err(RepoError::Config(error)) if error.is_of_version() => error.into(),
        _ => RepoError::Exists { dir },
    }
}

/// Creates the folders and files. Writes the settings last: without them the folder is not a store.
fn build(dir: &Path, disk: &Disk, text: &str) -> Result<(), RepoError> {
    disk.create_folders(dir)?;
    for part in ["refs/heads", "refs/tags"] {
        disk.create_folders(&dir.join(part))?;
    }
    // Folders that existed before may have a mode that is too open.
    disk.apply_access(dir)?;
    for part in ["objects", "refs", "logs", "index", "cache", "tmp"] {
        disk.create_folders(&dir.join(part))?;
        disk.apply_access(&dir.join(part))?;
    }
    Store::create(dir, disk)?;
    let main = RefName::branch(FIRST_BRANCH).map_err(RefError::Name)?;
    Refs::new(dir, disk.clone()).write_head(&Head::Branch(main))?;
    if dir.ends_with(STORE_FOLDER) {
        for (name, content) in
            [(GITIGNORE, GITIGNORE_ALL), (base::FILE, base_state::NONE.as_bytes())]
        {
            disk.write_whole(&dir.join("tmp"), &dir.join(name), content)?;
        }
    }
    Store::open_read_only(dir, disk.clone())?.keep_reserve();
    Ok(write_config(dir, disk, text)?)
}

/// Returns the text of the settings of a new store.
pub(super) fn settings_text(
    sharing: Sharing,
    dir: &Path,
    config: &Config,
) -> Result<String, RepoError> {
    let text = config.to_text();
    let edit = Edit { text: &text, path: &dir.join(config::FILE), owner: ConfigOwner::Store };
    match sharing {
        Sharing::Private => Ok(text),
        Sharing::Group => Ok(edit.set(&KeyPath::new([SHARED]), "true")?),
    }
}

/// Locks the store folder, waiting for other processes that create a store in it. Returns `None` if
/// one of them removed the folder or the lock file.
pub(super) fn lock(dir: &Path, disk: &Disk) -> Result<Option<NewFile>, RepoError> {
    let path = dir.join(LOCK);
    let file = match disk.append(&path) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    file.file().lock().map_err(PathError::when("lock", &path))?;
    Ok(is_file_at(file.file(), &path)?.then_some(file))
}

/// The identity of a store that [`Repo::init`] has just created, so that its creator can discard
/// it: the device and the inode number of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewStore((u64, u64));

impl NewStore {
    /// Remembers the store in `dir`.
    ///
    /// # Errors
    /// [`RepoError::Io`] when the folder cannot be examined.
    pub fn at(dir: &Path) -> Result<Self, RepoError> {
        let meta = fs_err::symlink_metadata(dir).map_err(PathError::when("stat", dir))?;
        Ok(Self((meta.dev(), meta.ino())))
    }

    /// Removes the store in `dir`, unless another process has created or changed a branch, a tag or
    /// `HEAD` in it, or another store has taken its place. Returns true if the store is gone. If a
    /// concurrent commit or push moves its ref first, the store stays; otherwise the commit or push
    /// fails.
    ///
    /// # Errors
    /// [`RepoError::Ref`] and [`RepoError::Io`]; the store stays.
    pub fn discard(self, dir: &Path) -> Result<bool, RepoError> {
        let disk = Disk::default();
        let refs = Refs::new(dir, disk.clone());
        // Check this before the lock as well, because the lock would create a file in another
        // folder.
        if Self::at(dir)? != self {
            return Ok(false);
        }
        let lock = refs.lock()?;
        if Self::at(dir)? != self
            || !refs.logged()?.is_empty()
            || !refs.names(RefKind::Branch)?.is_empty()
            || !refs.names(RefKind::Tag)?.is_empty()
        {
            return Ok(false);
        }
        // Rename the folder first: a process that waits for the lock must then find no store.
        let gone = dir.with_file_name(OsStr::from_bytes(temporary_name().as_bytes()));
        disk.replace(dir, &gone)?;
        drop(lock);
        // Another store may have taken the place after the check.
        if Self::at(&gone)? != self {
            disk.rename_new(&gone, dir)?;
            return Ok(false);
        }
        fs_err::remove_dir_all(&gone).map_err(PathError::when("remove", &gone))?;
        Ok(true)
    }
}

/// Returns true if `dir` is empty, or holds only what an interrupted [`Repo::init`] left.
fn is_free(dir: &Path) -> Result<bool, RepoError> {
    for entry in fs_err::read_dir(dir).map_err(PathError::when("list", dir))? {
        let name = entry.map_err(PathError::when("list", dir))?.file_name();
        if !PARTS.iter().any(|part| name == *part) {
            return Ok(false);
        }
    }
    // Objects or refs without settings belong to a damaged store, not to an unfinished one.
    for part in ["objects", "refs/heads", "refs/tags"] {
        let part = dir.join(part);
        let entries = if_exists(fs_err::read_dir(&part)).map_err(PathError::when("list", &part))?;
        if entries.is_some_and(|mut entries| entries.next().is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::{id::CommitId, time::Time},
        repo::{RefLogMessage, refs::wait_for_second_open},
    };

    #[test]
    fn one_of_several_concurrent_inits_creates_the_store() {
        for round in 0..200u64 {
            let project = tempfile::tempdir().unwrap();
            let dir = project.path().join(STORE_FOLDER);
            // Some threads start while the first one is at work, others just after it has finished.
            let make = |late| {
                std::thread::sleep(std::time::Duration::from_micros(late * (500 + round * 7)));
                Repo::init(&dir, &Disk::default(), &Config::default())
            };
            let made: Vec<_> = std::thread::scope(|scope| {
                let running: Vec<_> = (0..8).map(|late| scope.spawn(move || make(late))).collect();
                running.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "{made:?}");
            let found =
                |made: &Result<_, _>| matches!(made, Ok(()) | Err(RepoError::Exists { .. }));
            assert!(made.iter().all(found), "{made:?}");
        }
    }

    #[test]
    fn git_ignores_the_store_of_a_project_only() {
        let folder = tempfile::tempdir().unwrap();
        let (project, bare) = (folder.path().join(STORE_FOLDER), folder.path().join("bare"));
        for dir in [&project, &bare] {
            Repo::init(dir, &Disk::default(), &Config::default()).unwrap();
        }
        assert_eq!(fs_err::read(project.join(GITIGNORE)).unwrap(), GITIGNORE_ALL);
        assert!(!bare.join(GITIGNORE).exists());
        // An interrupted `init` may have written the file. `init` replaces a foreign link in its
        // place.
        fs_err::remove_file(project.join(config::FILE)).unwrap();
        fs_err::remove_file(project.join(GITIGNORE)).unwrap();
        let other = folder.path().join("other");
        fs_err::write(&other, "text").unwrap();
        std::os::unix::fs::symlink(&other, project.join(GITIGNORE)).unwrap();
        assert!(Repo::is_unfinished(&project));
        Repo::init(&project, &Disk::default(), &Config::default()).unwrap();
        assert_eq!(fs_err::read(project.join(GITIGNORE)).unwrap(), GITIGNORE_ALL);
        assert_eq!(fs_err::read(&other).unwrap(), b"text");
    }

    fn commit_to(refs: &Refs) -> Result<(), RefError> {
        let change = RefLogMessage { time: Time::now(), who: "ann", reason: "commit" };
        let main = RefName::branch("main").unwrap();
        refs.update(&main, None, Some(CommitId::of(b"x")), &change)
    }

    #[test]
    fn a_new_store_is_discarded_only_while_it_has_no_refs() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join(STORE_FOLDER);
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();
        let new = NewStore::at(&dir).unwrap();
        let refs = Refs::new(&dir, Disk::default());
        commit_to(&refs).unwrap();
        assert!(!new.discard(&dir).unwrap());
        assert!(dir.join(config::FILE).exists());
    }

    #[test]
    fn a_commit_fails_if_the_new_store_is_discarded() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join(STORE_FOLDER);
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();
        let (new, refs) = (NewStore::at(&dir).unwrap(), Refs::new(&dir, Disk::default()));
        let held = refs.lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| commit_to(&refs));
            wait_for_second_open(&held);
            // `discard` does this once it has the lock.
            fs_err::rename(&dir, folder.path().join("gone")).unwrap();
            drop(held);
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(!dir.exists());
        // `discard` spares another store in the place of the new one.
        Repo::init(&dir, &Disk::default(), &Config::default()).unwrap();
        assert!(!new.discard(&dir).unwrap());
        assert!(NewStore::at(&dir).unwrap().discard(&dir).unwrap());
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }
}
