//! Attributes of files: owner, mode, time and extended attributes.
//!
//! The scan reads the attributes, and a restore applies them. POSIX ACLs are the extended
//! attributes `system.posix_acl_access` and `system.posix_acl_default`. If the system refuses an
//! ACL, [`apply`] narrows the mode.
//!
//! The order of applying matters. The owner comes first, because a change of owner clears setuid
//! and file capabilities. Extended attributes come next, while the file is still writable; then the
//! time. The mode comes last: a restore that runs again after a kill recognises an
//! [unfinished](super::unfinished) folder by its mode and sets all attributes again. [`apply`]
//! reports errors to the caller and goes on. If it cannot set the owner, it does not set setuid,
//! setgid and file capabilities either: they would grant rights to the wrong user.

use std::{
    ffi::{CStr, OsStr},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
        chmodat, chownat, fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat,
        futimens, lgetxattr, llistxattr, lremovexattr, lsetxattr, lstat, utimensat,
    },
    io::Errno,
};

use crate::{
    base::{limits, name::EntryName, time::Time},
    disk::{DiskStep, take_step},
    format::{
        acl,
        tree::{
            Metadata, Xattr,
            check::{check_xattrs, xattr_bytes},
        },
    },
    local::{
        contain::OpenFolder,
        owners::OwnerIds,
        unfinished::{UNFINISHED_XATTR, UnfinishedRestore, has_unfinished_mode},
    },
};

pub use crate::format::tree::CAPABILITY;

/// Name of the permission bits in the errors of [`apply`].
pub const MODE: &str = "mode";

/// Name of the modification time in the errors of [`apply`].
pub const MTIME: &str = "modification time";

/// Name of the attributes of a folder that a restore cannot open.
pub const FOLDER_ATTRIBUTES: &str = "attributes of a folder";

/// Maximum length of a list of names, and of a value, in Linux.
const KERNEL_LIMIT_BYTES: usize = 64 << 10;

/// The entry whose extended attributes are read or changed.
#[derive(Clone, Copy, Debug)]
pub enum XattrTarget<'a> {
    /// An open file or folder.
    Fd(BorrowedFd<'a>),
    /// The entry at this path; a symbolic link is not followed.
    Path(&'a Path),
}

impl XattrTarget<'_> {
    fn stat(&self) -> Result<Stat, Errno> {
        match self {
            Self::Fd(fd) => fstat(fd),
            Self::Path(path) => lstat(*path),
        }
    }

    fn list<'b>(&self, buffer: &'b mut [MaybeUninit<u8>]) -> Result<&'b [u8], Errno> {
        let (list, _) = match self {
            Self::Fd(fd) => flistxattr(fd, buffer)?,
            Self::Path(path) => llistxattr(*path, buffer)?,
        };
        Ok(list)
    }

    fn get<'b>(&self, name: &CStr, buffer: &'b mut [MaybeUninit<u8>]) -> Result<&'b [u8], Errno> {
        let (value, _) = match self {
            Self::Fd(fd) => fgetxattr(fd, name, buffer)?,
            Self::Path(path) => lgetxattr(*path, name, buffer)?,
        };
        Ok(value)
    }

    fn set(&self, Xattr { name, value }: &Xattr) -> io::Result<()> {
        let set = match self {
            Self::Fd(fd) => fsetxattr(fd, &**name, value, XattrFlags::empty()),
            Self::Path(path) => lsetxattr(*path, &**name, value, XattrFlags::empty()),
        };
        Ok(set?)
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        let removed = match self {
            Self::Fd(fd) => fremovexattr(fd, name),
            Self::Path(path) => lremovexattr(*path, name),
        };
        Ok(removed?)
    }
}

/// Reads all extended attributes, sorted by name. Returns none on a file system that does not
/// support them. A file without attributes costs one system call and no allocation.
///
/// # Errors
/// Returns the error of the system call, or an error if there are more attributes than a tree can
/// hold.
pub fn read_xattrs(target: XattrTarget<'_>) -> io::Result<Vec<Xattr>> {
    Ok(read_with_mark(target)?.0)
}

/// Reads extended attributes like [`read_xattrs`], for a snapshot. Fails for a folder that an
/// interrupted restore left, because its attributes are not final.
///
/// # Errors
/// As [`read_xattrs`]; the error for such a folder wraps [`UnfinishedRestore`].
pub fn read_saved_xattrs(target: XattrTarget<'_>) -> io::Result<Vec<Xattr>> {
    match read_with_mark(target)? {
        (_, true) if has_unfinished_mode(&target.stat()?) => {
            Err(io::Error::other(UnfinishedRestore))
        }
        (xattrs, _) => Ok(xattrs),
    }
}

/// Reads the attributes without the [mark](crate::local::unfinished) of a restore. Also returns
/// true if the mark is there.
fn read_with_mark(target: XattrTarget<'_>) -> io::Result<(Vec<Xattr>, bool)> {
    let mut is_unfinished = false;
    let mut small = [MaybeUninit::uninit(); 1024];
    let mut large;
    let names = match target.list(&mut small) {
        Ok([]) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok((Vec::new(), false)),
        Err(Errno::RANGE) => {
            large = vec![MaybeUninit::uninit(); KERNEL_LIMIT_BYTES];
            target.list(&mut large)?
        }
        other => other?,
    };
    let (mut xattrs, mut bytes) = (Vec::new(), 0);
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if name.to_bytes() == UNFINISHED_XATTR.as_bytes() {
            is_unfinished = true;
            continue;
        }
        if let Some(value) = read_xattr(target, name)? {
            let xattr = Xattr { name: name.to_bytes().into(), value };
            bytes += xattr_bytes(&xattr);
            xattrs.push(xattr);
        }
        // No tree can hold more than the limit; stop before the attributes fill the memory.
        if bytes > 2 * limits::XATTR_TOTAL_BYTES {
            break;
        }
    }
    xattrs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    check_xattrs(&xattrs).map_err(io::Error::other)?;
    Ok((xattrs, is_unfinished))
}

/// Reads one value; returns `None` if the attribute is gone or not readable.
fn read_xattr(target: XattrTarget<'_>, name: &CStr) -> io::Result<Option<Box<[u8]>>> {
    let mut small = [MaybeUninit::uninit(); 1024];
    let value = match target.get(name, &mut small) {
        Err(Errno::RANGE) => {
            let mut large = vec![MaybeUninit::uninit(); KERNEL_LIMIT_BYTES];
            target.get(name, &mut large).map(Into::into)
        }
        other => other.map(Into::into),
    };
    match value {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Prefixes of labels that security modules of the kernel give to every file.
const LABELS: [&[u8]; 5] = [
    b"security.selinux",
    b"security.SMACK64",
    b"security.apparmor",
    b"security.ima",
    b"security.evm",
];

/// Returns true if a restore removes this attribute when the snapshot lacks it. Labels of security
/// modules stay, because a new file has them too. `trusted.*` stays, because a commit sees it only
/// if root runs it.
pub fn is_removable(name: &[u8]) -> bool {
    let is_label = || LABELS.iter().any(|label| name.starts_with(label));
    name.starts_with(b"user.")
        || name.starts_with(b"system.posix_acl_")
        || (name.starts_with(b"security.") && !is_label())
}

/// Returns true if this user may set the extended attribute on their own files.
pub fn is_settable(name: &[u8]) -> bool {
    let is_free = name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
    is_free || rustix::process::geteuid().is_root()
}

/// The entry that attributes are applied to.
#[derive(Clone, Copy, Debug)]
pub enum AttributeTarget<'a> {
    /// A file or folder that is open for reading or writing.
    Fd(BorrowedFd<'a>),
    /// An entry that is not a symbolic link and cannot be opened.
    Entry(&'a OpenFolder, &'a EntryName, ExpectedFile),
    /// A symbolic link.
    Symlink(&'a OpenFolder, &'a EntryName),
}

/// The identity that an entry must still have when its owner and mode are set. Another user with
/// write access to the folder can replace the entry by another file.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedFile {
    pub kind: FileType,
    /// The inode number; `None` if the entry was just created.
    pub inode: Option<u64>,
}

/// How to treat attributes that the file has and the snapshot lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// The file has no such attributes, or they stay.
    Keep,
    /// [`apply`] removes those for which [`is_removable`] returns true.
    Remove,
}

/// Selects whether [`apply`] sets [`CAPABILITY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCapability {
    /// The file gets the recorded capabilities.
    Apply,
    /// The file gets none, and [`Extra::Remove`] removes those that it has.
    Drop,
}

/// The attributes to apply; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub owner: Option<OwnerIds>,
    /// The 12 mode bits; ignored for symbolic links.
    pub mode: Option<u16>,
    pub mtime: Option<Time>,
    pub xattrs: &'a [Xattr],
    /// Whether to apply the file capabilities among the extended attributes.
    pub capability: FileCapability,
    /// How to treat other extended attributes.
    pub extra: Extra,
}

impl Attributes<'_> {
    fn has_capability(&self) -> bool {
        self.xattrs.iter().any(|xattr| *xattr.name == *CAPABILITY)
    }

    /// Returns the extended attributes to set: all, or without the file capability.
    fn wanted_xattrs(&self) -> impl Iterator<Item = &Xattr> {
        let drops = self.capability == FileCapability::Drop;
        self.xattrs.iter().filter(move |xattr| !(drops && *xattr.name == *CAPABILITY))
    }
}

/// A callback for attributes that could not be applied: the attribute and the error.
pub type Refused<'a> = dyn FnMut(&'static str, io::Error) + 'a;

/// Applies `attributes` to `target`.
pub fn apply(target: AttributeTarget<'_>, attributes: &Attributes<'_>, refused: &mut Refused<'_>) {
    let (mut is_owned, mut capability) = (true, attributes.capability);
    if let Some(owner) = attributes.owner
        && let Err(error) = set_owner(target, owner)
    {
        is_owned = false;
        refused("owner", error);
        if capability == FileCapability::Apply && attributes.has_capability() {
            refused("file capability", Errno::PERM.into());
        }
        capability = FileCapability::Drop;
    }
    let mut mode = attributes.mode;
    if !attributes.xattrs.is_empty() || attributes.extra == Extra::Remove {
        let attributes = Attributes { capability, ..*attributes };
        let lost_list = apply_xattrs(target, &attributes, refused);
        mode = mode.map(|mode| if lost_list { without_acl(mode, &attributes) } else { mode });
    }
    if let Some(mtime) = attributes.mtime
        && let Err(error) = set_mtime(target, mtime)
    {
        refused(MTIME, error);
    }
    if let Some(mode) = mode.filter(|_| !matches!(target, AttributeTarget::Symlink(..))) {
        let lent = if is_owned { 0 } else { mode & 0o6000 };
        if lent != 0 {
            refused("setuid or setgid bit", Errno::PERM.into());
        }
        if let Err(error) = set_mode(target, mode & !lent) {
            refused(MODE, error);
        }
    }
}

impl AttributeTarget<'_> {
    /// Asks the injector of the process before an attribute is set.
    fn take_step(&self) -> io::Result<()> {
        match self {
            Self::Fd(_) => take_step(DiskStep::SetAttribute, ""),
            Self::Entry(_, name, _) | Self::Symlink(_, name) => {
                take_step(DiskStep::SetAttribute, name.as_os_str())
            }
        }
    }
}

fn set_owner(target: AttributeTarget<'_>, owner: OwnerIds) -> io::Result<()> {
    target.take_step()?;
    let pinned = match target {
        AttributeTarget::Fd(_) => None,
        AttributeTarget::Entry(folder, name, expected) => Some(pin(folder, name, expected)?),
        AttributeTarget::Symlink(folder, name) => {
            Some(pin(folder, name, ExpectedFile { kind: FileType::Symlink, inode: None })?)
        }
    };
    let change = |uid: Option<Uid>, gid: Option<Gid>| match (target, &pinned) {
        (AttributeTarget::Fd(fd), _) => fchown(fd, uid, gid),
        (_, Some(pinned)) => chownat(pinned, c"", uid, gid, AtFlags::EMPTY_PATH),
        (_, None) => Err(Errno::BADF),
    };
    // The value -1 (all bits set) means "unchanged" to the system and is never a valid id.
    let uid = (owner.uid != u32::MAX).then(|| Uid::from_raw(owner.uid));
    let gid = (owner.gid != u32::MAX).then(|| Gid::from_raw(owner.gid));
    match change(uid, gid) {
        Err(Errno::PERM) => {
            // An unprivileged user can still give a file to one of their own groups.
            let _ = change(None, gid);
            Err(Errno::PERM.into())
        }
        done => Ok(done?),
    }
}

/// Opens an entry with `O_PATH`, and checks that no other user has replaced it.
fn pin(folder: &OpenFolder, name: &EntryName, expected: ExpectedFile) -> io::Result<OwnedFd> {
    let pinned = folder.pin(name)?;
    let stat = fstat(&pinned)?;
    let is_it = FileType::from_raw_mode(stat.st_mode) == expected.kind
        && expected.inode.is_none_or(|inode| inode == stat.st_ino);
    if is_it { Ok(pinned) } else { Err(io::Error::other("another user replaced the file")) }
}

fn set_mtime(target: AttributeTarget<'_>, mtime: Time) -> io::Result<()> {
    target.take_step()?;
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.secs, tv_nsec: i64::from(mtime.nanos) as _ },
    };
    match target {
        AttributeTarget::Fd(fd) => futimens(fd, &times)?,
        AttributeTarget::Entry(folder, name, _) | AttributeTarget::Symlink(folder, name) => {
            utimensat(folder, name.as_os_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}

/// Returns a path to an open file or folder through `/proc`, for calls that do not accept an `O_PATH`
/// descriptor. The path stays valid if the file is renamed.
pub(super) fn fd_path(fd: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Returns a path to an entry through `/proc`, which stays valid if the folder is renamed. Only for
/// calls that do not follow a link at the end of a path.
pub(super) fn entry_path(folder: &impl AsFd, name: &OsStr) -> PathBuf {
    let mut path = fd_path(folder);
    path.push(name);
    path
}

/// Reads the extended attributes of an entry of any kind, sorted by name.
///
/// # Errors
/// Returns the error of the system call.
pub fn read_entry_xattrs(folder: &OpenFolder, name: &EntryName) -> io::Result<Vec<Xattr>> {
    read_xattrs(XattrTarget::Path(&entry_path(folder, name.as_os_str())))
}

fn set_mode(target: AttributeTarget<'_>, mode: u16) -> io::Result<()> {
    target.take_step()?;
    let mode = Mode::from_raw_mode(u32::from(mode));
    match target {
        AttributeTarget::Fd(fd) => fchmod(fd, mode)?,
        AttributeTarget::Entry(folder, name, expected) => {
            // No system call changes a mode without following links. So open the entry with
            // `O_PATH` and follow the path of the descriptor in `/proc`.
            let fd = pin(folder, name, expected)?;
            chmodat(CWD, fd_path(&fd), mode, AtFlags::empty())?;
        }
        AttributeTarget::Symlink(..) => {}
    }
    Ok(())
}

/// Returns the mode for a file whose ACL the system refused.
fn without_acl(mode: u16, attributes: &Attributes<'_>) -> u16 {
    let xattrs = attributes.xattrs.to_vec();
    Metadata { mode, xattrs, ..Metadata::default() }.mode_without_acl()
}

/// Applies extended attributes; returns true if the system refused the ACL.
fn apply_xattrs(
    target: AttributeTarget<'_>,
    attributes: &Attributes<'_>,
    refused: &mut Refused<'_>,
) -> bool {
    const WHAT: &str = "extended attribute";
    let path;
    let file = match target {
        AttributeTarget::Fd(fd) => XattrTarget::Fd(fd),
        AttributeTarget::Entry(folder, name, _) | AttributeTarget::Symlink(folder, name) => {
            path = entry_path(folder, name.as_os_str());
            XattrTarget::Path(&path)
        }
    };
    let mut present = Vec::new();
    if attributes.extra == Extra::Remove {
        match read_xattrs(file) {
            Ok(xattrs) => present = xattrs,
            Err(error) => {
                refused(WHAT, error);
                return attributes.xattrs.iter().any(|xattr| *xattr.name == *acl::ACCESS);
            }
        }
        for extra in &present {
            let is_wanted = attributes.wanted_xattrs().any(|xattr| xattr.name == extra.name);
            if !is_wanted
                && is_removable(&extra.name)
                && let Err(error) = target.take_step().and_then(|()| file.remove(&extra.name))
            {
                refused(WHAT, error);
            }
        }
    }
    let mut lost_list = false;
    for xattr in attributes.wanted_xattrs().filter(|xattr| !present.contains(xattr)) {
        if let Err(error) = target.take_step().and_then(|()| file.set(xattr)) {
            let what = if xattr.name.starts_with(b"system.posix_acl_") { "ACL" } else { WHAT };
            refused(what, error);
            lost_list |= *xattr.name == *acl::ACCESS;
        }
    }
    lost_list
}

#[cfg(test)]
mod tests;
