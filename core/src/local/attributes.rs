//! What a file has beside its content: owner, mode, time, extended attributes.
//!
//! Reading serves the scan, applying serves the restore. POSIX ACLs are the
//! attributes `system.posix_acl_access` and `system.posix_acl_default` and
//! need no treatment of their own.
//!
//! Attributes are applied in the one order that works: the owner first, since
//! a change of owner clears setuid and file capabilities; then extended
//! attributes, as long as the file is still writable; then the mode; the time
//! last. What the system refuses is handed to the caller and does not stop the
//! rest. A file whose owner could not be set never gets setuid or setgid: the
//! bits would lend somebody else's rights.

use std::{
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
        chmodat, chownat, fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat,
        futimens, lgetxattr, llistxattr, lremovexattr, lsetxattr, utimensat,
    },
    io::Errno,
};

use crate::{
    base::{limits, name::EntryName, time::Time},
    format::{
        acl,
        tree::{
            Metadata, Xattr,
            check::{check_xattrs, xattr_bytes},
        },
    },
    local::contain::Folder,
};

/// Most that Linux returns for a list of names or for a value.
const KERNEL_LIMIT_BYTES: usize = 64 << 10;

/// Whose extended attributes are read.
#[derive(Clone, Copy, Debug)]
pub enum XattrTarget<'a> {
    /// An open file or folder.
    Fd(BorrowedFd<'a>),
    /// Whatever has this path; a symbolic link is not followed.
    Path(&'a Path),
}

impl XattrTarget<'_> {
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
}

/// Reads all extended attributes, sorted by name. A file system without them
/// gives none. One system call and no allocation when there are none.
///
/// # Errors
/// As the system says; also when there are more than a tree can hold.
pub fn read_xattrs(target: XattrTarget<'_>) -> io::Result<Vec<Xattr>> {
    let mut small = [MaybeUninit::uninit(); 1024];
    let mut large;
    let names = match target.list(&mut small) {
        Ok([]) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(Errno::RANGE) => {
            large = vec![MaybeUninit::uninit(); KERNEL_LIMIT_BYTES];
            target.list(&mut large)?
        }
        other => other?,
    };
    let (mut xattrs, mut bytes) = (Vec::new(), 0);
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if let Some(value) = read_xattr(target, name)? {
            let xattr = Xattr { name: name.to_bytes().into(), value };
            bytes += xattr_bytes(&xattr);
            xattrs.push(xattr);
        }
        // More than a tree holds is not read into memory, either.
        if bytes > 2 * limits::XATTR_TOTAL_BYTES {
            break;
        }
    }
    xattrs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    check_xattrs(&xattrs).map_err(io::Error::other)?;
    Ok(xattrs)
}

/// A value; `None` when the attribute is gone, or only listed.
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

/// Labels that security modules of the kernel give each file by themselves.
const LABELS: [&[u8]; 5] = [
    b"security.selinux",
    b"security.SMACK64",
    b"security.apparmor",
    b"security.ima",
    b"security.evm",
];

/// Returns whether an attribute that a snapshot lacks is removed from the file. Labels
/// of security modules stay, since a new file has them as well, and so does
/// `trusted.*`, which a commit sees only when root makes it.
pub fn is_removable(name: &[u8]) -> bool {
    let is_label = || LABELS.iter().any(|label| name.starts_with(label));
    name.starts_with(b"user.")
        || name.starts_with(b"system.posix_acl_")
        || (name.starts_with(b"security.") && !is_label())
}

/// What attributes are applied to.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A file or folder, open for reading or writing.
    Fd(BorrowedFd<'a>),
    /// An entry that is not a symbolic link, and is not opened.
    Entry(&'a Folder, &'a EntryName, Expected),
    /// A symbolic link.
    Symlink(&'a Folder, &'a EntryName),
}

/// What an entry must be, for owner and mode to be set. Whoever may write to the
/// folder can give its name to another file meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Its kind.
    pub kind: FileType,
    /// Its number, unless it was just made.
    pub inode: Option<u64>,
}

/// What happens to attributes that the file has and the snapshot lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// There are none, or they stay.
    Keep,
    /// Those that [`is_removable`] names are removed.
    Remove,
}

/// What is to be applied; `None` leaves a thing as it is.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// User and group number.
    pub owner: Option<(u32, u32)>,
    /// The 12 mode bits; of no meaning for symbolic links.
    pub mode: Option<u16>,
    /// Time of modification.
    pub mtime: Option<Time>,
    /// Extended attributes.
    pub xattrs: &'a [Xattr],
    /// What to do about others.
    pub extra: Extra,
}

/// Receives what could not be applied: its name, and why.
pub type Refused<'a> = dyn FnMut(&'static str, io::Error) + 'a;

/// Applies what `attributes` holds.
pub fn apply(target: Target<'_>, attributes: &Attributes<'_>, refused: &mut Refused<'_>) {
    let mut owned = true;
    if let Some((uid, gid)) = attributes.owner
        && let Err(error) = set_owner(target, uid, gid)
    {
        owned = false;
        refused("owner", error);
    }
    let mut mode = attributes.mode;
    if !attributes.xattrs.is_empty() || attributes.extra == Extra::Remove {
        let lost_list = apply_xattrs(target, attributes, refused);
        mode = mode.map(|mode| if lost_list { without_acl(mode, attributes) } else { mode });
    }
    if let Some(mode) = mode.filter(|_| !matches!(target, Target::Symlink(..))) {
        let lent = if owned { 0 } else { mode & 0o6000 };
        if lent != 0 {
            refused("setuid or setgid bit", Errno::PERM.into());
        }
        if let Err(error) = set_mode(target, mode & !lent) {
            refused("mode", error);
        }
    }
    if let Some(mtime) = attributes.mtime
        && let Err(error) = set_mtime(target, mtime)
    {
        refused("modification time", error);
    }
}

fn set_owner(target: Target<'_>, uid: u32, gid: u32) -> io::Result<()> {
    let pinned = match target {
        Target::Fd(_) => None,
        Target::Entry(folder, name, expected) => Some(pin(folder, name, expected)?),
        Target::Symlink(folder, name) => {
            Some(pin(folder, name, Expected { kind: FileType::Symlink, inode: None })?)
        }
    };
    let change = |uid: Option<Uid>, gid: Option<Gid>| match (target, &pinned) {
        (Target::Fd(fd), _) => fchown(fd, uid, gid),
        (_, Some(pinned)) => chownat(pinned, c"", uid, gid, AtFlags::EMPTY_PATH),
        (_, None) => Err(Errno::BADF),
    };
    // All ones means "leave it" to the system and is nobody's number.
    let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
    let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
    match change(uid, gid) {
        Err(Errno::PERM) => {
            // Without privilege one may still give a file to a group of one's own.
            let _ = change(None, gid);
            Err(Errno::PERM.into())
        }
        done => Ok(done?),
    }
}

/// Holds an entry that is what it must be.
fn pin(folder: &Folder, name: &EntryName, expected: Expected) -> io::Result<OwnedFd> {
    let pinned = folder.pin(name)?;
    let stat = fstat(&pinned)?;
    let is_it = FileType::from_raw_mode(stat.st_mode) == expected.kind
        && expected.inode.is_none_or(|inode| inode == stat.st_ino);
    match is_it {
        true => Ok(pinned),
        false => Err(io::Error::other("another user gave its name to another file meanwhile")),
    }
}

fn set_mtime(target: Target<'_>, mtime: Time) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.secs, tv_nsec: i64::from(mtime.nanos) as _ },
    };
    match target {
        Target::Fd(fd) => futimens(fd, &times)?,
        Target::Entry(folder, name, _) | Target::Symlink(folder, name) => {
            utimensat(folder, name.as_os_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}

/// A target for the calls that want a descriptor or a path.
enum Handle<'a> {
    Fd(BorrowedFd<'a>),
    /// See [`entry_path`].
    Path(PathBuf),
}

/// A path that leads to an entry of this very folder, whatever has the folder's
/// name by now; for calls that do not follow a link at the end.
fn entry_path(folder: &Folder, name: &EntryName) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()));
    path.push(name.as_os_str());
    path
}

impl Handle<'_> {
    fn xattrs(&self) -> io::Result<Vec<Xattr>> {
        read_xattrs(match self {
            Self::Fd(fd) => XattrTarget::Fd(*fd),
            Self::Path(path) => XattrTarget::Path(path),
        })
    }

    fn set_xattr(&self, xattr: &Xattr) -> io::Result<()> {
        let Xattr { name, value } = xattr;
        match self {
            Self::Fd(fd) => fsetxattr(fd, &**name, value, XattrFlags::empty())?,
            Self::Path(path) => {
                lsetxattr(path.as_path(), &**name, value, XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    fn remove_xattr(&self, name: &[u8]) -> io::Result<()> {
        match self {
            Self::Fd(fd) => fremovexattr(fd, name)?,
            Self::Path(path) => lremovexattr(path.as_path(), name)?,
        }
        Ok(())
    }
}

/// The extended attributes of an entry of any kind, sorted by name.
///
/// # Errors
/// As the system says.
pub fn read_entry_xattrs(folder: &Folder, name: &EntryName) -> io::Result<Vec<Xattr>> {
    read_xattrs(XattrTarget::Path(&entry_path(folder, name)))
}

fn set_mode(target: Target<'_>, mode: u16) -> io::Result<()> {
    let mode = Mode::from_raw_mode(u32::from(mode));
    match target {
        Target::Fd(fd) => fchmod(fd, mode)?,
        Target::Entry(folder, name, expected) => {
            // No call changes a mode without following a link, so the entry is
            // pinned down first and then followed to.
            let fd = pin(folder, name, expected)?;
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            chmodat(CWD, path, mode, AtFlags::empty())?;
        }
        Target::Symlink(..) => {}
    }
    Ok(())
}

/// The mode for a file whose access control list the system refused.
fn without_acl(mode: u16, attributes: &Attributes<'_>) -> u16 {
    let xattrs = attributes.xattrs.to_vec();
    Metadata { mode, xattrs, ..Metadata::default() }.mode_without_acl()
}

/// Returns whether the system refused the access control list.
fn apply_xattrs(
    target: Target<'_>,
    attributes: &Attributes<'_>,
    refused: &mut Refused<'_>,
) -> bool {
    const WHAT: &str = "extended attribute";
    let handle = match target {
        Target::Fd(fd) => Handle::Fd(fd),
        Target::Entry(folder, name, _) | Target::Symlink(folder, name) => {
            Handle::Path(entry_path(folder, name))
        }
    };
    let wanted = attributes.xattrs;
    let mut present = Vec::new();
    if attributes.extra == Extra::Remove {
        match handle.xattrs() {
            Ok(xattrs) => present = xattrs,
            Err(error) => {
                refused(WHAT, error);
                return attributes.xattrs.iter().any(|xattr| *xattr.name == *acl::ACCESS);
            }
        }
        for extra in &present {
            let is_wanted = wanted.iter().any(|xattr| xattr.name == extra.name);
            if !is_wanted
                && is_removable(&extra.name)
                && let Err(error) = handle.remove_xattr(&extra.name)
            {
                refused(WHAT, error);
            }
        }
    }
    let mut lost_list = false;
    for xattr in wanted.iter().filter(|xattr| !present.contains(xattr)) {
        if let Err(error) = handle.set_xattr(xattr) {
            let what = if xattr.name.starts_with(b"system.posix_acl_") { "ACL" } else { WHAT };
            refused(what, error);
            lost_list |= *xattr.name == *acl::ACCESS;
        }
    }
    lost_list
}

#[cfg(test)]
mod tests;
