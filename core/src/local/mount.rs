//! Detects mount points between a folder and its entries.
//!
//! A bind mount of the same file system has the same device as the folder around it. So the device
//! does not show all mounts, but the kernel's mount id does (`STATX_MNT_ID`, since Linux 5.8). On
//! older kernels the device decides.

use std::{ffi::OsStr, io, os::fd::AsFd};

use rustix::fs::{AtFlags, FileType, StatxFlags, makedev, statx};

/// The mount that an entry is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Set for folders only: overlay file systems give files other devices.
    device: Option<u64>,
    id: Option<u64>,
}

impl Mount {
    /// Returns the mount of an open folder.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn of_folder(folder: impl AsFd) -> io::Result<Self> {
        Self::read(folder, "".as_ref(), AtFlags::EMPTY_PATH)
    }

    /// Returns the mount of an entry of an open folder. For a mount point, this is the mounted file
    /// system. Does not trigger an automount.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn of_entry(folder: impl AsFd, name: &OsStr) -> io::Result<Self> {
        Self::read(folder, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
    }

    fn read(folder: impl AsFd, name: &OsStr, flags: AtFlags) -> io::Result<Self> {
        let raw = statx(folder, name, flags, StatxFlags::TYPE | StatxFlags::MNT_ID)?;
        let is_folder = FileType::from_raw_mode(raw.stx_mode.into()) == FileType::Directory;
        let has_id = StatxFlags::from_bits_retain(raw.stx_mask).contains(StatxFlags::MNT_ID);
        Ok(Self {
            device: is_folder.then(|| makedev(raw.stx_dev_major, raw.stx_dev_minor)),
            id: has_id.then_some(raw.stx_mnt_id),
        })
    }

    /// Returns true if an entry on `below`, in a folder on `self`, is a mount point or the top of
    /// another file system, such as a Btrfs subvolume.
    pub fn is_left_by(&self, below: &Mount) -> bool {
        let differ = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a != b);
        differ(self.device, below.device) || differ(self.id, below.id)
    }
}

/// Returns true if an entry of an open folder is on another file system; false in case of doubt.
/// Reads only the device number of the entry. The system returns that even for a FUSE mount of
/// another user, and for a mount whose server does not answer.
pub fn is_on_other_device(folder: impl AsFd, name: &OsStr) -> bool {
    let device = |name, flags| {
        let raw = statx(&folder, name, flags | AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
        Ok::<_, io::Error>(makedev(raw.stx_dev_major, raw.stx_dev_minor))
    };
    let here = device("".as_ref(), AtFlags::EMPTY_PATH);
    let entry = device(name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT);
    here.ok().zip(entry.ok()).is_some_and(|(here, entry)| here != entry)
}

/// Returns true if another file system is mounted on an entry of an open folder, or a part of the
/// same one; false in case of doubt.
pub fn is_mount_point(folder: impl AsFd, name: &OsStr) -> bool {
    let (around, entry) = (Mount::of_folder(&folder), Mount::of_entry(&folder, name));
    around.ok().zip(entry.ok()).is_some_and(|(around, entry)| around.is_left_by(&entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_file_system_share_a_mount() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir(dir.path().join("sub")).unwrap();
        fs_err::write(dir.path().join("file"), "").unwrap();
        let folder = fs_err::File::open(dir.path()).unwrap();
        let mount = Mount::of_folder(folder.file()).unwrap();
        for name in ["sub", "file"] {
            let entry = Mount::of_entry(folder.file(), name.as_ref()).unwrap();
            assert!(!mount.is_left_by(&entry), "{mount:?} {entry:?}");
        }
        let root = fs_err::File::open("/").unwrap();
        let mount = Mount::of_folder(root.file()).unwrap();
        let proc = Mount::of_entry(root.file(), "proc".as_ref()).unwrap();
        assert!(mount.is_left_by(&proc), "{mount:?} {proc:?}");
        assert!(is_on_other_device(root.file(), "proc".as_ref()));
        assert!(!is_on_other_device(folder.file(), "sub".as_ref()));
        assert!(!is_on_other_device(folder.file(), "missing".as_ref()));
    }

    #[test]
    fn mount_ids_distinguish_mounts_of_one_device() {
        let on = |device, id| Mount { device: Some(device), id };
        assert!(on(1, Some(1)).is_left_by(&on(1, Some(2))), "a bind mount");
        assert!(!on(1, Some(1)).is_left_by(&on(1, Some(1))));
        assert!(on(1, None).is_left_by(&on(2, None)), "an old kernel");
        let file = Mount { device: None, id: Some(1) };
        assert!(!on(1, Some(1)).is_left_by(&file), "files of an overlay have another device");
    }
}
