//! Permission bits of the files and folders that a [`Disk`](super::Disk) creates.
//!
//! A store has the content of files that only their owner may read. So a new store is closed to all
//! other users, whatever the umask is. Later files of a store get the bits of its `objects/`
//! folder.
//!
//! A new file has only the owner's bits at first and gets the others afterwards, so it never has
//! too many bits. On file systems without permission bits (FAT, some network shares), files keep
//! the bits that the file system gives them.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io,
    os::fd::{AsFd, BorrowedFd},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rustix::fs::{Gid, OFlags, Uid};

/// Bits of a mode for reading, writing and executing.
const PERMISSIONS: u32 = 0o777;

/// The setgid bit: new files in a folder get the folder's group, not that of the
/// process.
const SET_GROUP: u32 = 0o2000;

/// Bits that the owner of a folder always has.
const OWNER: u32 = 0o700;

/// The bit that lets users outside the group write.
const OTHERS_WRITE: u32 = 0o002;

/// Bits of a folder that a file in it may inherit.
const FILE: u32 = 0o666;

/// Permissions of the files and folders that a [`Disk`](super::Disk) creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CreateMode {
    /// Permissions by the umask of the process, for files outside a store.
    #[default]
    Umask,
    /// Permissions of the parent folder.
    Inherit,
    /// These bits for folders, and the same without the execute bits for files.
    Exactly(u32),
}

/// The owner of a store that root changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreOwner {
    user: u32,
    group: u32,
}

impl StoreOwner {
    /// Returns the owner of `objects/` in the store in `dir`, if the process is root and the owner
    /// is not. Without this owner, `sudo snap commit` would lock users out of their own store.
    pub(super) fn of_store(dir: &Path) -> Option<Self> {
        Self::of_folder(&dir.join("objects")).map(|(owner, _)| owner)
    }

    /// Returns the owner for files that root creates in a folder, unless all users may
    /// write to the folder.
    pub(super) fn of_entries(folder: &Path) -> Option<Self> {
        let (owner, mode) = Self::of_folder(folder)?;
        (mode & OTHERS_WRITE == 0).then_some(owner)
    }

    /// Returns the owner of a folder and its mode, if the process is root and the owner
    /// is not.
    fn of_folder(folder: &Path) -> Option<(Self, u32)> {
        let is_root = rustix::process::geteuid().is_root();
        let meta = is_root.then(|| fs_err::metadata(folder).ok()).flatten()?;
        let owner = Self { user: meta.uid(), group: meta.gid() };
        (owner.user != 0).then_some((owner, meta.mode()))
    }

    /// Gives an open file or folder that root has created to this owner.
    pub(super) fn give(self, made: BorrowedFd<'_>) -> io::Result<()> {
        let stat = rustix::fs::fstat(made)?;
        if stat.st_uid != 0 {
            return Ok(());
        }
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        match rustix::fs::fchown(made, Some(user), Some(group)).map_err(io::Error::from) {
            // The file system has no owners, or it is a network share that restricts root.
            Err(error) if keeps_own_bits(&error) => Ok(()),
            done => done,
        }
    }
}

impl CreateMode {
    /// Access for the owner only.
    pub const PRIVATE: Self = Self::Exactly(OWNER);

    /// Access for the owner and the group of the folder.
    pub const GROUP: Self = Self::Exactly(SET_GROUP | 0o770);

    /// Returns the access of the `objects/` folder of the store in `dir`; private if it
    /// does not exist yet.
    pub fn of_store(dir: &Path) -> Self {
        fs_err::metadata(dir.join("objects"))
            .map_or(Self::PRIVATE, |meta| Self::Exactly(usable(meta.mode())))
    }

    /// Returns the bits of a new folder at `path`; `None` if the umask decides.
    fn folder_bits(self, path: &Path) -> Option<u32> {
        match self {
            Self::Umask => None,
            Self::Exactly(bits) => Some(bits),
            Self::Inherit => {
                let parent = super::output::folder_of(path);
                let above = fs_err::metadata(parent).map_or(OWNER, |meta| meta.mode());
                // A folder that all users may write to, such as `/tmp`, does not say
                // who may read the files in it.
                Some(if above & OTHERS_WRITE == 0 { usable(above) } else { OWNER })
            }
        }
    }

    /// Creates a file that must not exist. The caller adds the path to the error.
    pub(super) fn create_file(self, path: &Path, options: &mut OpenOptions) -> io::Result<File> {
        options.create_new(true);
        let Some(bits) = self.folder_bits(path) else { return options.open(path) };
        let file = options.mode(OWNER & FILE).open(path)?;
        set(&file, bits & FILE)?;
        Ok(file)
    }

    /// Creates a folder that must not exist, and gives it to `owner` if there is one.
    pub(super) fn create_folder(self, path: &Path, owner: Option<StoreOwner>) -> io::Result<()> {
        let Some(bits) = self.folder_bits(path) else { return DirBuilder::new().create(path) };
        DirBuilder::new().mode(OWNER).create(path)?;
        // In a folder that other users may write, one of them may have replaced the name by a link.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        set(&folder, bits)?;
        // Another user may have moved a folder to this path meanwhile. To give away an empty folder
        // does no harm.
        match owner.filter(|_| fs_err::read_dir(path).is_ok_and(|all| all.count() == 0)) {
            Some(owner) => owner.give(folder.as_fd()),
            None => Ok(()),
        }
    }

    /// Gives an existing folder of this user the bits of a new one. Leaves folders of other users
    /// unchanged.
    pub(crate) fn apply(self, path: &Path) -> io::Result<()> {
        let Some(bits) = self.folder_bits(path) else { return Ok(()) };
        let flags = i32::try_from(OFlags::DIRECTORY.bits()).unwrap_or(0);
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let owner = folder.metadata()?.uid();
        if owner == rustix::process::geteuid().as_raw() { set(&folder, bits) } else { Ok(()) }
    }
}

/// Returns the bits of `mode` for a folder in a store: never writable for all users, and always
/// open to its owner.
fn usable(mode: u32) -> u32 {
    (mode & (PERMISSIONS | SET_GROUP) & !OTHERS_WRITE) | OWNER
}

/// Sets the bits of an open file or folder, unless it has them.
fn set(file: &File, bits: u32) -> io::Result<()> {
    let mode = file.metadata()?.mode();
    let is_set = mode & PERMISSIONS == bits & PERMISSIONS && bits & SET_GROUP & !mode == 0;
    if is_set {
        return Ok(());
    }
    // A folder keeps the setgid bit that it inherited.
    match file.set_permissions(Permissions::from_mode(bits | mode & SET_GROUP)) {
        Err(error) if keeps_own_bits(&error) => Ok(()),
        done => done,
    }
}

/// Returns true if the file system cannot change permission bits.
fn keeps_own_bits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    fn mode(path: &Path) -> u32 {
        fs_err::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn files_in_a_store_inherit_the_mode_of_its_objects() {
        let store = tempfile::tempdir().unwrap();
        let objects = store.path().join("objects");
        assert_eq!(CreateMode::of_store(store.path()), CreateMode::PRIVATE);
        fs_err::create_dir(&objects).unwrap();
        // (bits of objects, of a new folder, of a new file)
        for (bits, folder, file) in [
            (0o700, 0o700, 0o600),
            (0o755, 0o755, 0o644),
            (0o2770, 0o2770, 0o660),
            (0o777, 0o775, 0o664),
            (0o500, 0o700, 0o600),
        ] {
            fs_err::set_permissions(&objects, Permissions::from_mode(bits)).unwrap();
            let disk = Disk::default().with_access(CreateMode::of_store(store.path()));
            let (made, below) = (store.path().join("a"), store.path().join("a/b"));
            disk.create_folders(&below).unwrap();
            assert_eq!((mode(&made), mode(&below)), (folder, folder), "{bits:o}");
            disk.create(&below.join("new")).unwrap().keep();
            drop(disk.append(&below.join("log")).unwrap());
            let modes = (mode(&below.join("new")), mode(&below.join("log")));
            assert_eq!(modes, (file, file), "{bits:o}");
            fs_err::remove_dir_all(&made).unwrap();
        }
    }

    #[test]
    fn appending_to_a_file_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs_err::write(&path, "").unwrap();
        fs_err::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        drop(Disk::default().with_access(CreateMode::PRIVATE).append(&path).unwrap());
        assert_eq!(mode(&path), 0o640);
    }

    #[test]
    fn scratch_files_inherit_folder_access_or_are_private() {
        let folder = tempfile::tempdir().unwrap();
        for (bits, expected) in [(0o750, 0o640), (0o700, 0o600), (0o1777, 0o600)] {
            fs_err::set_permissions(folder.path(), Permissions::from_mode(bits)).unwrap();
            let path = folder.path().join(format!("{bits:o}"));
            Disk::scratch().create(&path).unwrap().keep();
            assert_eq!(mode(&path), expected, "{bits:o}");
        }
    }
}
