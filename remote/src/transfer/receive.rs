//! Packs that are being received: stubs in a folder of their own, where an
//! interrupted pull leaves what came for the next one.

use std::{
    collections::HashSet,
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use snap_core::{
    base::{id::PackId, io::PathError, observe::Silent},
    disk::{Disk, scratch::unique_name},
    store::{Store, StoreError},
};

/// Folder in the cache of a store.
const FOLDER: &str = "receiving";

/// File that says that somebody uses the folder.
const LOCK: &str = "lock";

/// The folder, and the store in it.
#[derive(Debug)]
pub(super) struct Receiving {
    store: Store,
    dir: PathBuf,
    /// Whether another run has the usual folder, so that this one is nobody's
    /// when the run ends.
    is_spare: bool,
    _lock: File,
}

impl Receiving {
    /// Opens the folder of `target` for the packs `wanted`. Others that were
    /// left there are removed.
    pub(super) fn open(target: &Store, wanted: &[PackId]) -> Result<Self, StoreError> {
        let cache = target.dir().join("cache");
        let usual = cache.join(FOLDER);
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
        let wanted: HashSet<&PackId> = wanted.iter().collect();
        for folder in ["objects", "partial"] {
            let Ok(list) = fs_err::read_dir(dir.join(folder)) else { continue };
            for path in list.flatten().map(|entry| entry.path()) {
                let id = path.file_name().and_then(|name| name.to_str()?.parse::<PackId>().ok());
                if id.is_none_or(|id| !wanted.contains(&id)) {
                    fs_err::remove_file(&path).map_err(PathError::when("remove", &path))?;
                }
            }
        }
        let disk = Disk::scratch();
        Store::create(&dir, &disk)?;
        let store = Store::open(&dir, disk, &Silent)?;
        Ok(Self { store, dir, is_spare, _lock: lock })
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Forgets a pack that is not what it should be.
    pub(super) fn forget(&self, pack: &PackId) {
        let _ = fs_err::remove_file(self.store.pack_path(pack));
    }

    /// All is where it belongs.
    pub(super) fn finish(self) {
        remove(&self.dir);
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if self.is_spare {
            remove(&self.dir);
        }
    }
}

/// The lock goes last.
fn remove(dir: &Path) {
    let _ = fs_err::remove_dir_all(dir);
}

/// Makes a folder and locks it; `None` when somebody else has.
fn lock(dir: &Path) -> Result<Option<File>, StoreError> {
    let disk = Disk::scratch();
    disk.create_folders(dir)?;
    let path = dir.join(LOCK);
    let file = disk.lock_file(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(PathError::when("lock", &path)(error).into()),
    }
}
