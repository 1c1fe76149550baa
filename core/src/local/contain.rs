//! Containment: the only place where stored names are joined to a real folder.
//!
//! A [`TargetRoot`] holds the target folder open. Every operation works relative to an open
//! [`OpenFolder`], on one [`EntryName`], and never follows a symbolic link. The module opens
//! folders by `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`, and the final system call
//! does not follow links either. If another process plants links in the target, before or during a
//! run, the call fails; nothing leaves the target.
//!
//! Without `openat2` (on a kernel before 5.6, or in a sandbox that blocks it), the module opens
//! folders one component at a time with `O_NOFOLLOW`, which has the same effect.
//!
//! The path to the target may contain links, because the user chose it. The path from a project to
//! a part of the project must not. Paths longer than `PATH_MAX` work, because this module opens
//! them in pieces.

mod listing;

use std::{
    fmt,
    fs::DirBuilder,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, linkat, makedev, mkdirat,
        mknodat, openat, openat2, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
    },
    io::Errno,
};

use crate::{
    base::{io::PathError, name::EntryName},
    disk::{DiskStep, Renamed, take_step},
    format::tree::Device,
    local::unfinished::{UNFINISHED_MODE, mark},
};

pub use listing::FolderNames;

/// Maximum length of a path in one system call, in bytes; `PATH_MAX` is 4,096.
const PATH_PIECE_BYTES: usize = 3_800;

const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The path of a folder below a [`TargetRoot`], as names without an open folder.
pub struct FolderPath {
    below: Option<(Arc<FolderPath>, EntryName)>,
    depth: usize,
}

impl FolderPath {
    /// Returns the path of the root itself.
    pub fn top() -> Arc<Self> {
        Arc::new(Self { below: None, depth: 0 })
    }

    /// Returns the path of the folder `name` in this one.
    pub fn child(self: &Arc<Self>, name: EntryName) -> Arc<Self> {
        Arc::new(Self { below: Some((Arc::clone(self), name)), depth: self.depth + 1 })
    }

    /// Returns the number of names in the path.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the parent folder and the name in it; `None` for the root.
    pub fn parent(&self) -> Option<(&Arc<FolderPath>, &EntryName)> {
        self.below.as_ref().map(|(parent, name)| (parent, name))
    }

    /// Returns the names from the root to this folder.
    pub fn names(&self) -> Vec<&EntryName> {
        let mut names = Vec::with_capacity(self.depth);
        let mut at = self;
        while let Some((parent, name)) = &at.below {
            names.push(name);
            at = parent;
        }
        names.reverse();
        names
    }

    /// Returns the path relative to the root, for messages and patterns; never to open anything.
    pub fn to_path(&self) -> PathBuf {
        self.names().iter().map(|name| name.as_os_str()).collect()
    }

    /// Returns the path of an entry of this folder, for messages and patterns.
    pub fn join(&self, name: &EntryName) -> PathBuf {
        let mut path = self.to_path();
        path.push(name.as_os_str());
        path
    }
}

impl fmt::Debug for FolderPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_path().fmt(f)
    }
}

/// The target folder, which no operation can leave.
#[derive(Debug)]
pub struct TargetRoot {
    fd: OwnedFd,
    path: PathBuf,
    stepwise: AtomicBool,
}

impl TargetRoot {
    /// Opens an existing folder.
    ///
    /// # Errors
    /// [`PathError`] if it does not exist or is not a folder.
    pub fn open(path: &Path) -> Result<Self, PathError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(rustix::fs::CWD, path, flags, Mode::empty())
            .map_err(PathError::when("open folder", path))?;
        Ok(Self { fd, path: path.to_owned(), stepwise: AtomicBool::new(false) })
    }

    /// Opens a folder; creates it and its parents if necessary. Also returns true if the folder is
    /// new. A new folder is [unfinished](super::unfinished).
    ///
    /// # Errors
    /// [`PathError`] if it can neither be opened nor created.
    pub fn create(path: &Path) -> Result<(Self, bool), PathError> {
        match Self::open(path) {
            Err(error) if error.is_not_found() => {}
            opened => return opened.map(|root| (root, false)),
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs_err::create_dir_all(parent).map_err(PathError::when("create folder", parent))?;
        }
        let created = match DirBuilder::new().mode(UNFINISHED_MODE.into()).create(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(PathError::when("create folder", path)(error)),
        };
        let root = Self::open(path)?;
        if created {
            mark(&OpenFolder {
                fd: root.fd.try_clone().map_err(PathError::when("open folder", path))?,
            });
        }
        Ok((root, created))
    }

    /// Opens the folder that `names` lead to below the folder `above`, without following links.
    /// With `creates`, creates missing folders with mode 0700; a new last one is
    /// [unfinished](super::unfinished). Also returns true if the last one is new.
    ///
    /// # Errors
    /// [`PathError`] names the first component that is not a folder.
    pub fn below(
        above: &Path,
        names: &[EntryName],
        creates: bool,
    ) -> Result<(Self, bool), PathError> {
        let Self { mut fd, mut path, stepwise } = Self::open(above)?;
        let mut is_created = false;
        for (at, name) in names.iter().enumerate() {
            path.push(name.as_os_str());
            let folder = OpenFolder { fd };
            let mode = if at + 1 == names.len() { UNFINISHED_MODE } else { 0o700 };
            is_created = creates
                && match folder.make_folder(name, mode) {
                    Ok(()) => true,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                    Err(error) => return Err(PathError::when("create folder", &path)(error)),
                };
            let opened = folder.folder(name).map_err(PathError::when("open folder", &path))?;
            if is_created && at + 1 == names.len() {
                mark(&opened);
            }
            fd = opened.fd;
        }
        Ok((Self { fd, path, stepwise }, is_created))
    }

    /// Disables `openat2`, to act as on a kernel without it.
    #[must_use]
    pub fn stepwise(self) -> Self {
        self.stepwise.store(true, Ordering::Relaxed);
        self
    }

    /// Returns the path by which the root was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes an error about `folder`, or about its entry `name`.
    pub fn error(
        &self,
        action: &'static str,
        folder: &FolderPath,
        name: Option<&EntryName>,
        source: io::Error,
    ) -> PathError {
        let mut path = self.path.clone();
        path.extend(folder.names().iter().map(|name| name.as_os_str()));
        path.extend(name.map(EntryName::as_os_str));
        PathError { action, path, source }
    }

    /// Opens the folder at `at`.
    ///
    /// # Errors
    /// Returns the error of the system call: `ELOOP` or `ENOTDIR` if a component is a link.
    pub fn folder(&self, at: &FolderPath) -> io::Result<OpenFolder> {
        let names = at.names();
        if names.is_empty() {
            return Ok(OpenFolder { fd: self.fd.try_clone()? });
        }
        // Each step opens as many names as fit in one path, relative to the last descriptor.
        let mut fd: Option<OwnedFd> = None;
        let mut rest = names.as_slice();
        while !rest.is_empty() {
            let from = fd.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            let (next, taken) = self.descend(from, rest)?;
            fd = Some(next);
            rest = &rest[taken..];
        }
        let fd = fd.expect("there was at least one name");
        Ok(OpenFolder { fd })
    }

    /// Opens as many of `names` as fit in one system call, and returns their number.
    fn descend(&self, from: BorrowedFd<'_>, names: &[&EntryName]) -> io::Result<(OwnedFd, usize)> {
        if self.stepwise.load(Ordering::Relaxed) {
            return Ok((openat(from, names[0].as_os_str(), FOLDER, Mode::empty())?, 1));
        }
        let mut path = Vec::with_capacity(256);
        let mut taken = 0;
        for name in names {
            if taken > 0 {
                if path.len() + name.as_bytes().len() > PATH_PIECE_BYTES {
                    break;
                }
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            taken += 1;
        }
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(from, path.as_slice(), FOLDER, Mode::empty(), resolve) {
            Ok(fd) => Ok((fd, taken)),
            Err(Errno::NOSYS | Errno::PERM) => {
                self.stepwise.store(true, Ordering::Relaxed);
                self.descend(from, names)
            }
            // The kernel could not rule out a race with a rename. Opening one component at a time
            // can.
            Err(Errno::AGAIN) => {
                Ok((openat(from, names[0].as_os_str(), FOLDER, Mode::empty())?, 1))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// An open folder below a [`TargetRoot`]. Each method works on one entry and does not follow links.
#[derive(Debug)]
pub struct OpenFolder {
    fd: OwnedFd,
}

impl AsFd for OpenFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl OpenFolder {
    /// Opens the folder `name`.
    ///
    /// # Errors
    /// Returns the error of the system call; `ENOTDIR` if the entry is not a folder.
    pub fn folder(&self, name: &EntryName) -> io::Result<OpenFolder> {
        Ok(OpenFolder { fd: openat(&self.fd, name.as_os_str(), FOLDER, Mode::empty())? })
    }

    /// Opens this folder again for reading; an `O_PATH` descriptor cannot be read.
    ///
    /// # Errors
    /// Returns the error of the system call; reading the folder needs permission.
    pub fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.fd, c".", flags, Mode::empty())?)
    }

    /// Creates a folder.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn make_folder(&self, name: &EntryName, mode: u16) -> io::Result<()> {
        take_step(DiskStep::Create, name.as_os_str())?;
        Ok(mkdirat(&self.fd, name.as_os_str(), mode_of(mode))?)
    }

    /// Creates a symbolic link to `target`, which is not checked.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn make_symlink(&self, name: &EntryName, target: &[u8]) -> io::Result<()> {
        take_step(DiskStep::Create, name.as_os_str())?;
        Ok(symlinkat(target, &self.fd, name.as_os_str())?)
    }

    /// Creates a pipe, a socket or a device.
    ///
    /// # Errors
    /// Returns the error of the system call; devices need privileges.
    pub fn make_node(
        &self,
        name: &EntryName,
        kind: FileType,
        mode: u16,
        device: Option<Device>,
    ) -> io::Result<()> {
        take_step(DiskStep::Create, name.as_os_str())?;
        let device = device.map_or(0, |device| makedev(device.major, device.minor));
        Ok(mknodat(&self.fd, name.as_os_str(), kind, mode_of(mode), device)?)
    }

    /// Creates a file, open for reading and writing; fails if the name is taken.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn create_file(&self, name: &EntryName, mode: u16) -> io::Result<OwnedFd> {
        take_step(DiskStep::Create, name.as_os_str())?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name.as_os_str(), flags, mode_of(mode))?)
    }

    /// Creates a file without a name, which disappears when it is closed.
    ///
    /// # Errors
    /// Returns the error of the system call; some file systems do not support this.
    pub fn create_nameless(&self, mode: u16) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Ok(openat(&self.fd, c".", flags, mode_of(mode))?)
    }

    /// Opens a regular file for reading. Does not block on a pipe; the caller must check the kind
    /// of the entry with `fstat`.
    ///
    /// # Errors
    /// Returns the error of the system call; `ELOOP` for a symbolic link.
    pub fn open_file(&self, name: &EntryName) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name.as_os_str(), flags, Mode::empty())?)
    }

    /// Opens a regular file for reading and writing in place.
    ///
    /// # Errors
    /// Returns the error of the system call; `ELOOP` for a symbolic link.
    pub fn open_for_update(&self, name: &EntryName) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name.as_os_str(), flags, Mode::empty())?)
    }

    /// Holds an entry of any kind without opening it for I/O (`O_PATH`).
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn pin(&self, name: &EntryName) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name.as_os_str(), flags, Mode::empty())?)
    }

    /// Returns the stat of an entry; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn stat(&self, name: &EntryName) -> io::Result<Option<Stat>> {
        match statat(&self.fd, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn read_link(&self, name: &EntryName) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.fd, name.as_os_str(), Vec::with_capacity(256))?.into_bytes())
    }

    /// Lists the entries of this folder, sorted by name.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn list(&self) -> io::Result<FolderNames> {
        FolderNames::read(&self.readable()?)
    }

    /// Creates a hard link `new` in the folder `into` to the file `name`.
    ///
    /// # Errors
    /// Returns the error of the system call; `EEXIST` if `new` is taken.
    pub fn link(&self, name: &EntryName, into: &OpenFolder, new: &EntryName) -> io::Result<()> {
        take_step(DiskStep::Create, new.as_os_str())?;
        Ok(linkat(&self.fd, name.as_os_str(), &into.fd, new.as_os_str(), AtFlags::empty())?)
    }

    /// Removes an entry that is not a folder. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn remove(&self, name: &EntryName) -> io::Result<()> {
        take_step(DiskStep::Remove, name.as_os_str())?;
        gone_is_fine(unlinkat(&self.fd, name.as_os_str(), AtFlags::empty()))
    }

    /// Removes an empty folder. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn remove_folder(&self, name: &EntryName) -> io::Result<()> {
        take_step(DiskStep::Remove, name.as_os_str())?;
        gone_is_fine(unlinkat(&self.fd, name.as_os_str(), AtFlags::REMOVEDIR))
    }

    /// Renames an entry of this folder unless the new name is taken.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn rename_new(&self, from: &EntryName, to: &EntryName) -> io::Result<Renamed> {
        take_step(DiskStep::Rename, to.as_os_str())?;
        let (from, to) = (from.as_os_str(), to.as_os_str());
        let done = match renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            // The file system does not support the flag. A hard link does not replace a file
            // either.
            Err(Errno::INVAL | Errno::NOSYS) => {
                match linkat(&self.fd, from, &self.fd, to, AtFlags::empty()) {
                    Ok(()) => unlinkat(&self.fd, from, AtFlags::empty()),
                    Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                        match statat(&self.fd, to, AtFlags::SYMLINK_NOFOLLOW) {
                            Err(Errno::NOENT) => renameat(&self.fd, from, &self.fd, to),
                            Ok(_) => Err(Errno::EXIST),
                            Err(error) => Err(error),
                        }
                    }
                    other => other,
                }
            }
            other => other,
        };
        match done {
            Ok(()) => Ok(Renamed::Done),
            Err(Errno::EXIST) => Ok(Renamed::Taken),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames an entry of this folder, replacing the entry of the new name.
    ///
    /// # Errors
    /// Returns the error of the system call; `EISDIR` if the new name is a folder.
    pub fn replace(&self, from: &EntryName, to: &EntryName) -> io::Result<()> {
        take_step(DiskStep::Rename, to.as_os_str())?;
        Ok(renameat(&self.fd, from.as_os_str(), &self.fd, to.as_os_str())?)
    }
}

/// A cache of the last open folder, because consecutive files are usually in the same folder.
#[derive(Debug)]
pub struct FolderCache<'r> {
    root: &'r TargetRoot,
    last: Option<(Arc<FolderPath>, OpenFolder)>,
}

impl<'r> FolderCache<'r> {
    /// Makes an empty cache.
    pub fn new(root: &'r TargetRoot) -> Self {
        Self { root, last: None }
    }

    /// Returns the folder at `at`, open.
    ///
    /// # Errors
    /// [`PathError`] if [`TargetRoot::folder`] fails.
    pub fn folder(&mut self, at: &Arc<FolderPath>) -> Result<&OpenFolder, PathError> {
        let hit = self.last.as_ref().is_some_and(|(path, _)| Arc::ptr_eq(path, at));
        if !hit {
            let folder = self.root.folder(at);
            let folder = folder.map_err(|e| self.root.error("open folder", at, None, e))?;
            self.last = Some((Arc::clone(at), folder));
        }
        Ok(&self.last.as_ref().expect("it was set above").1)
    }
}

fn gone_is_fine(done: Result<(), Errno>) -> io::Result<()> {
    match done {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn mode_of(mode: u16) -> Mode {
    Mode::from_raw_mode(u32::from(mode))
}

#[cfg(test)]
mod tests;
