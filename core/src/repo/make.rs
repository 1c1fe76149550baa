//! Making a store: under a lock, the settings last, so that nobody takes a half
//! for a whole, and whoever comes next completes it.

use std::{fs::Metadata, io, os::unix::fs::MetadataExt, path::Path};

use crate::{
    base::io::PathError,
    disk::{Access, Disk, NewFile, output::folder_of},
    repo::{
        Repo, RepoError, base,
        config::{self, Config, edit::Edit, key::KeyPath, layer::Whose},
        open::{FIRST_BRANCH, STORE_FOLDER, write_config},
        ref_name::RefName,
        refs::{Head, RefError, Refs, temporary},
    },
    store::Store,
};

/// Folders and files of a store beside its [`config::FILE`].
const PARTS: [&str; 9] =
    ["objects", "refs", "logs", "index", "cache", "tmp", "HEAD", base::FILE, LOCK];

/// The file that whoever makes or changes a store locks.
const LOCK: &str = "lock";

/// How often making one begins again because somebody who failed took it away.
const RETRIES: usize = 16;

/// Setting of a store whose group may write to it.
const SHARED: &str = "shared";

/// Who may use a new store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Its owner alone: mode 0700, files 0600.
    #[default]
    Private,
    /// Its owner and the group of its folder: mode 2770, files 0660. The
    /// settings say so: a store can also be open to its group by mistake.
    Group,
}

impl Repo {
    /// Makes a store in `dir`, durably; does not open it. The folder may exist
    /// if it is empty, or what making one there has left. Only its owner may
    /// use it, whatever the umask is.
    ///
    /// # Errors
    /// [`RepoError::Exists`], [`RepoError::NotEmpty`], [`RepoError::Io`];
    /// unless the folder was there, there is then nothing.
    pub fn init(dir: &Path, disk: &Disk, config: &Config) -> Result<(), RepoError> {
        Self::init_for(Sharing::Private, dir, disk, config)
    }

    /// [`Repo::init`] for other users, too.
    ///
    /// # Errors
    /// As [`Repo::init`].
    pub fn init_for(
        sharing: Sharing,
        dir: &Path,
        disk: &Disk,
        config: &Config,
    ) -> Result<(), RepoError> {
        let (text, access) = match sharing {
            Sharing::Private => (config.to_text(), Access::PRIVATE),
            Sharing::Group => {
                let text = config.to_text();
                let edit = Edit { text: &text, path: &dir.join(config::FILE), whose: Whose::Store };
                (edit.set(&KeyPath::new([SHARED]), "true")?, Access::GROUP)
            }
        };
        let store_disk = disk.with_access(access);
        for _ in 0..RETRIES {
            if dir.join(config::FILE).exists() {
                return Err(taken(dir));
            }
            let was_there = dir.exists();
            // What is in a folder without a lock is somebody else's; with one,
            // it may be the work of another who makes a store now.
            if was_there && !is_free(dir)? && !dir.join(LOCK).exists() {
                return Err(taken(dir));
            }
            disk.create_folders(folder_of(dir))?;
            store_disk.create_folders(dir)?;
            let Some(_lock) = lock(dir, &store_disk)? else { continue };
            if !is_free(dir)? {
                return Err(taken(dir));
            }
            let made = build(dir, &store_disk, &text);
            if made.is_err() && !was_there {
                let _ = fs_err::remove_dir_all(dir);
            }
            return made;
        }
        Err(taken(dir))
    }

    /// Whether `dir` is what making a store there has left, or has made so
    /// far, so that making it again completes it. An empty folder is that only
    /// if it has the name of a store.
    pub fn is_unfinished(dir: &Path) -> bool {
        let is_begun = dir.ends_with(STORE_FOLDER) || dir.join(LOCK).exists();
        is_begun && !dir.join(config::FILE).exists() && is_free(dir).unwrap_or(false)
    }
}

/// Why no store can be made in `dir`: one is there, or something else.
fn taken(dir: &Path) -> RepoError {
    let dir = dir.to_owned();
    if dir.join(config::FILE).exists() {
        RepoError::Exists { dir }
    } else {
        RepoError::NotEmpty { dir }
    }
}

/// Makes the folders and files. The settings come last: without them it is no
/// store.
fn build(dir: &Path, disk: &Disk, text: &str) -> Result<(), RepoError> {
    disk.create_folders(dir)?;
    for part in ["refs/heads", "refs/tags"] {
        disk.create_folders(&dir.join(part))?;
    }
    // Folders that existed before may be more open than a store is.
    disk.apply_access(dir)?;
    for part in ["objects", "refs", "logs", "index", "cache", "tmp"] {
        disk.create_folders(&dir.join(part))?;
        disk.apply_access(&dir.join(part))?;
    }
    Store::create(dir, disk)?;
    let main = RefName::branch(FIRST_BRANCH).map_err(RefError::Name)?;
    Refs::new(dir, disk.clone()).write_head(&Head::Branch(main))?;
    if dir.ends_with(STORE_FOLDER) {
        let temporary = temporary(dir, base::FILE);
        disk.write_whole(&temporary, &dir.join(base::FILE), base::NONE.as_bytes())?;
    }
    Ok(write_config(dir, disk, text)?)
}

/// Waits for others who make a store here. `None` when they took it away.
fn lock(dir: &Path, disk: &Disk) -> Result<Option<NewFile>, RepoError> {
    let path = dir.join(LOCK);
    let file = match disk.append(&path) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    file.file().lock().map_err(PathError::when("lock", &path))?;
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let ours = file.file().metadata().map_err(PathError::when("stat", &path))?;
    let is_ours = fs_err::metadata(&path).is_ok_and(|there| same(&there, &ours));
    Ok(is_ours.then_some(file))
}

/// Whether `dir` is empty, or what an interrupted [`Repo::init`] left.
fn is_free(dir: &Path) -> Result<bool, RepoError> {
    for entry in fs_err::read_dir(dir).map_err(PathError::when("list", dir))? {
        let name = entry.map_err(PathError::when("list", dir))?.file_name();
        if !PARTS.iter().any(|part| name == *part) {
            return Ok(false);
        }
    }
    // Objects and refs without settings belong to somebody.
    for part in ["objects", "refs/heads", "refs/tags"] {
        match fs_err::read_dir(dir.join(part)) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Ok(false);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(PathError::when("list", &dir.join(part))(error).into()),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_who_make_one_at_once_all_but_one_find_it() {
        for round in 0..200u64 {
            let project = tempfile::tempdir().unwrap();
            let dir = project.path().join(STORE_FOLDER);
            // Some come while the first is at work, some just when it is done.
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
}
