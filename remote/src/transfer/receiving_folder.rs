//! Packs that a pull receives: stubs in a folder of their own. An interrupted pull leaves them for
//! the next one.

use std::{
    collections::HashSet,
    fs::{File, TryLockError},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use snap_core::{
    base::{
        id::PackId,
        io::{PathError, if_exists},
        observe::Silent,
    },
    disk::{
        Disk,
        scratch::{is_unique_name, unique_name},
        symlink_guard::{check_no_link_entries, check_no_links_between},
    },
    store::{Store, StoreError},
};

/// Name of the folder in the cache of a store.
const FOLDER: &str = "receiving";

const LOCK: &str = "lock";

/// The folder of a store with the packs, locked.
#[derive(Debug)]
pub(super) struct ReceivingFolder {
    dir: PathBuf,
    /// True if another process uses the usual folder. This one is then temporary, and removed on
    /// drop.
    is_spare: bool,
    _lock: File,
}

impl ReceivingFolder {
    /// Opens the folder of `target` for the packs `wanted`, and the store in it. Removes other packs
    /// that an earlier pull left there.
    pub(super) fn open(target: &Store, wanted: &[PackId]) -> Result<(Self, Store), StoreError> {
        let cache = target.dir().join("cache");
        let usual = cache.join(FOLDER);
        check_no_links_between(target.dir(), &usual)?;
        let (dir, lock, is_spare) = match lock(&usual)? {
            Some(lock) => (usual, lock, false),
            None => {
                let spare = cache.join(unique_name(FOLDER));
                let path = spare.join(LOCK);
                let locked = PathError::when("lock", &path);
                let taken = || std::io::Error::from(std::io::ErrorKind::WouldBlock);
                let lock = lock(&spare)?.ok_or_else(|| locked(taken()))?;
                (spare, lock, true)
            }
        };
        let disk = Disk::cache(&dir);
        let wanted: HashSet<&PackId> = wanted.iter().collect();
        for folder in ["objects", "partial"] {
            let Ok(list) = fs_err::read_dir(dir.join(folder)) else { continue };
            for path in list.flatten().map(|entry| entry.path()) {
                let id = path.file_name().and_then(|name| name.to_str()?.parse::<PackId>().ok());
                if id.is_none_or(|id| !wanted.contains(&id)) {
                    disk.remove(&path)?;
                }
            }
        }
        Store::create(&dir, &disk)?;
        let store = Store::open(&dir, disk, &Silent)?;
        Ok((Self { dir, is_spare, _lock: lock }, store))
    }

    /// Removes the folder after the move of all packs to the store.
    pub(super) fn finish(self) {
        remove(&self.dir);
    }
}

impl Drop for ReceivingFolder {
    fn drop(&mut self) {
        if self.is_spare {
            remove(&self.dir);
        }
    }
}

/// Removes a folder, including its lock file. Ignores errors.
fn remove(dir: &Path) {
    let _ = fs_err::remove_dir_all(dir);
}

/// Removes what killed pulls into a store have left, but nothing that a running pull uses.
///
/// # Errors
/// [`StoreError`] if a folder is a link, or cannot be listed or locked.
pub fn discard(target: &Store) -> Result<(), StoreError> {
    let cache = target.dir().join("cache");
    check_no_links_between(target.dir(), &cache)?;
    let Some(entries) =
        if_exists(fs_err::read_dir(&cache)).map_err(PathError::when("list", &cache))?
    else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry.map_err(PathError::when("list", &cache))?;
        let name = entry.file_name();
        let is_ours = name == FOLDER || is_unique_name(name.as_bytes(), FOLDER);
        if is_ours && let Some(_lock) = lock(&entry.path())? {
            remove(&entry.path());
        }
    }
    Ok(())
}

/// Creates a folder and locks it; returns `None` if another process holds the lock. Fails if the
/// folder or an entry of it is a link.
fn lock(dir: &Path) -> Result<Option<File>, StoreError> {
    let disk = Disk::cache(dir);
    disk.create_folders(dir)?;
    check_no_link_entries(dir)?;
    let path = dir.join(LOCK);
    let file = disk.lock_file(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(PathError::when("lock", &path)(error).into()),
    }
}
