//! The only place where stored names meet a real folder.
//!
//! A [`Root`] holds the target folder open. Whatever is done below it is done
//! relative to an open [`Folder`], by one [`EntryName`], and never through a
//! symbolic link: a folder is reached with `openat2` and
//! `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`, and the last step of each call is
//! told not to follow. So it does not matter what somebody plants in the
//! target before or during a run: the call fails, nothing leaves the target.
//!
//! Where `openat2` is missing (a kernel before 5.6, or a sandbox that refuses
//! it), folders are opened component by component with `O_NOFOLLOW`, which
//! rules out the same.
//!
//! The way to a target that the user names may go through links: that is the
//! user's own choice. The way from a project to a part of it may not. Paths longer than `PATH_MAX` work, because a path is walked in
//! pieces.

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
    format::tree::Device,
};

pub use listing::Listing;

/// Bytes of a path that are handed to the system at once; `PATH_MAX` is 4,096.
const PATH_PIECE_BYTES: usize = 3_800;

const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where a folder is below a [`Root`]: names only, nothing is open.
pub struct FolderPath {
    below: Option<(Arc<FolderPath>, EntryName)>,
    depth: usize,
}

impl FolderPath {
    /// The root itself.
    pub fn top() -> Arc<Self> {
        Arc::new(Self { below: None, depth: 0 })
    }

    /// The folder `name` in this one.
    pub fn child(self: &Arc<Self>, name: EntryName) -> Arc<Self> {
        Arc::new(Self { below: Some((Arc::clone(self), name)), depth: self.depth + 1 })
    }

    /// How many names lead here.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The folder this one is in, and its name there; `None` for the root.
    pub fn parent(&self) -> Option<(&Arc<FolderPath>, &EntryName)> {
        self.below.as_ref().map(|(parent, name)| (parent, name))
    }

    /// The names that lead here, from the root on.
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

    /// For messages and patterns, relative to the root; never to open anything.
    pub fn to_path(&self) -> PathBuf {
        self.names().iter().map(|name| name.as_os_str()).collect()
    }

    /// The path of an entry of this folder, for messages and patterns.
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

/// The folder that nothing may leave.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    stepwise: AtomicBool,
}

impl Root {
    /// Opens a folder that exists.
    ///
    /// # Errors
    /// [`PathError`] when it does not, or is not a folder.
    pub fn open(path: &Path) -> Result<Self, PathError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(rustix::fs::CWD, path, flags, Mode::empty())
            .map_err(PathError::when("open folder", path))?;
        Ok(Self { fd, path: path.to_owned(), stepwise: AtomicBool::new(false) })
    }

    /// Opens a folder, creating it and those above it when it does not exist. Says
    /// whether it was created; then it is private.
    ///
    /// # Errors
    /// [`PathError`] when it can neither be opened nor created.
    pub fn create(path: &Path) -> Result<(Self, bool), PathError> {
        match Self::open(path) {
            Err(error) if error.is_not_found() => {}
            opened => return opened.map(|root| (root, false)),
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs_err::create_dir_all(parent).map_err(PathError::when("create folder", parent))?;
        }
        let created = match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(PathError::when("create folder", path)(error)),
        };
        Ok((Self::open(path)?, created))
    }

    /// Opens the folder that `names` lead to below the folder `above`, and follows no
    /// link on the way. With `creates`, folders that are missing are created, private.
    /// Says whether the last one was created.
    ///
    /// # Errors
    /// [`PathError`] names the first path that is not a folder.
    pub fn below(
        above: &Path,
        names: &[EntryName],
        creates: bool,
    ) -> Result<(Self, bool), PathError> {
        let Self { mut fd, mut path, stepwise } = Self::open(above)?;
        let mut is_created = false;
        for name in names {
            path.push(name.as_os_str());
            let folder = Folder { fd };
            is_created = creates
                && match folder.make_folder(name, 0o700) {
                    Ok(()) => true,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                    Err(error) => return Err(PathError::when("create folder", &path)(error)),
                };
            fd = folder.folder(name).map_err(PathError::when("open folder", &path))?.fd;
        }
        Ok((Self { fd, path, stepwise }, is_created))
    }

    /// Never uses `openat2`, as on a kernel without it.
    #[must_use]
    pub fn stepwise(self) -> Self {
        self.stepwise.store(true, Ordering::Relaxed);
        self
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error about `folder`, or about an entry of it.
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
    /// As the system says; `ELOOP` or `ENOTDIR` when a link is in the way.
    pub fn folder(&self, at: &FolderPath) -> io::Result<Folder> {
        let names = at.names();
        if names.is_empty() {
            return Ok(Folder { fd: self.fd.try_clone()? });
        }
        let mut fd: Option<OwnedFd> = None;
        let mut rest = names.as_slice();
        while !rest.is_empty() {
            let from = fd.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            let (next, taken) = self.descend(from, rest)?;
            fd = Some(next);
            rest = &rest[taken..];
        }
        let fd = fd.expect("there was at least one name");
        Ok(Folder { fd })
    }

    /// Opens as many of `names` as fit in one call, and says how many.
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
            // The kernel could not rule out a race; the slow way can.
            Err(Errno::AGAIN) => {
                Ok((openat(from, names[0].as_os_str(), FOLDER, Mode::empty())?, 1))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// An open folder below a [`Root`]. Each method works on one entry of it and
/// follows no link.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What a rename onto a name that should be free came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// The file has its name.
    Done,
    /// Something else has the name; the file still has its old one.
    Taken,
}

impl Folder {
    /// Opens the folder `name`.
    ///
    /// # Errors
    /// As the system says; `ENOTDIR` for anything else than a folder.
    pub fn folder(&self, name: &EntryName) -> io::Result<Folder> {
        Ok(Folder { fd: openat(&self.fd, name.as_os_str(), FOLDER, Mode::empty())? })
    }

    /// Opens this folder once more, for what an `O_PATH` descriptor cannot do.
    ///
    /// # Errors
    /// As the system says; needs permission to read the folder.
    pub fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.fd, c".", flags, Mode::empty())?)
    }

    /// Creates a folder.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_folder(&self, name: &EntryName, mode: u16) -> io::Result<()> {
        Ok(mkdirat(&self.fd, name.as_os_str(), mode_of(mode))?)
    }

    /// Creates a symbolic link that holds `target`, whatever that is.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_symlink(&self, name: &EntryName, target: &[u8]) -> io::Result<()> {
        Ok(symlinkat(target, &self.fd, name.as_os_str())?)
    }

    /// Creates a pipe, a socket or a device.
    ///
    /// # Errors
    /// As the system says; devices need privilege.
    pub fn make_node(
        &self,
        name: &EntryName,
        kind: FileType,
        mode: u16,
        device: Option<Device>,
    ) -> io::Result<()> {
        let device = device.map_or(0, |device| makedev(device.major, device.minor));
        Ok(mknodat(&self.fd, name.as_os_str(), kind, mode_of(mode), device)?)
    }

    /// Creates a file that must not exist, open for reading and writing.
    ///
    /// # Errors
    /// As the system says.
    pub fn create_file(&self, name: &EntryName, mode: u16) -> io::Result<OwnedFd> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name.as_os_str(), flags, mode_of(mode))?)
    }

    /// Creates a file without a name, which goes when it is closed.
    ///
    /// # Errors
    /// As the system says; not every file system can do this.
    pub fn create_nameless(&self, mode: u16) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Ok(openat(&self.fd, c".", flags, mode_of(mode))?)
    }

    /// Opens a regular file for reading. Whatever else has the name is not
    /// waited for (a pipe), and must be told apart by `fstat`.
    ///
    /// # Errors
    /// As the system says; `ELOOP` for a symbolic link.
    pub fn open_file(&self, name: &EntryName) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name.as_os_str(), flags, Mode::empty())?)
    }

    /// Opens a regular file for reading and writing in place.
    ///
    /// # Errors
    /// As the system says; `ELOOP` for a symbolic link.
    pub fn open_for_update(&self, name: &EntryName) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name.as_os_str(), flags, Mode::empty())?)
    }

    /// Pins down an entry of any kind without opening it (`O_PATH`).
    ///
    /// # Errors
    /// As the system says.
    pub fn pin(&self, name: &EntryName) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.fd, name.as_os_str(), flags, Mode::empty())?)
    }

    /// What is known about an entry; `None` when there is none.
    ///
    /// # Errors
    /// As the system says.
    pub fn stat(&self, name: &EntryName) -> io::Result<Option<Stat>> {
        match statat(&self.fd, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// As the system says.
    pub fn read_link(&self, name: &EntryName) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.fd, name.as_os_str(), Vec::with_capacity(256))?.into_bytes())
    }

    /// The entries of this folder, sorted by name.
    ///
    /// # Errors
    /// As the system says.
    pub fn list(&self) -> io::Result<Listing> {
        Listing::read(&self.readable()?)
    }

    /// Gives the file `name` another name, `new`, in the folder `into`.
    ///
    /// # Errors
    /// As the system says; `EEXIST` when `new` is taken.
    pub fn link(&self, name: &EntryName, into: &Folder, new: &EntryName) -> io::Result<()> {
        Ok(linkat(&self.fd, name.as_os_str(), &into.fd, new.as_os_str(), AtFlags::empty())?)
    }

    /// Removes an entry that is not a folder; one that is gone is fine.
    ///
    /// # Errors
    /// As the system says.
    pub fn remove(&self, name: &EntryName) -> io::Result<()> {
        gone_is_fine(unlinkat(&self.fd, name.as_os_str(), AtFlags::empty()))
    }

    /// Removes an empty folder; one that is gone is fine.
    ///
    /// # Errors
    /// As the system says.
    pub fn remove_folder(&self, name: &EntryName) -> io::Result<()> {
        gone_is_fine(unlinkat(&self.fd, name.as_os_str(), AtFlags::REMOVEDIR))
    }

    /// Renames an entry of this folder unless the new name is taken.
    ///
    /// # Errors
    /// As the system says.
    pub fn rename_new(&self, from: &EntryName, to: &EntryName) -> io::Result<Renamed> {
        let (from, to) = (from.as_os_str(), to.as_os_str());
        let done = match renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            // A file system without the flag: a hard link does not replace either.
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

    /// Renames an entry of this folder in place of what has the new name.
    ///
    /// # Errors
    /// As the system says; `EISDIR` when that is a folder.
    pub fn replace(&self, from: &EntryName, to: &EntryName) -> io::Result<()> {
        Ok(renameat(&self.fd, from.as_os_str(), &self.fd, to.as_os_str())?)
    }
}

/// Folders opened one after the other: the last one stays open, since runs of
/// files in one folder are the rule.
#[derive(Debug)]
pub struct Cursor<'r> {
    root: &'r Root,
    last: Option<(Arc<FolderPath>, Folder)>,
}

impl<'r> Cursor<'r> {
    /// Nothing is open yet.
    pub fn new(root: &'r Root) -> Self {
        Self { root, last: None }
    }

    /// The folder at `at`, open.
    ///
    /// # Errors
    /// [`PathError`] as of [`Root::folder`].
    pub fn folder(&mut self, at: &Arc<FolderPath>) -> Result<&Folder, PathError> {
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
