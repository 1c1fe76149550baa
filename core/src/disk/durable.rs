//! Steps of durable writes: temporary file, data sync, rename, folder sync.
//!
//! The order that makes a file appear whole or not at all, also across a
//! power cut, is: [`Disk::create`] under a temporary name, [`NewFile::write`],
//! [`NewFile::sync`], [`Disk::rename_new`] or [`Disk::replace`], and
//! [`Disk::sync_folder`] before anything refers to the file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{RenameFlags, renameat_with};

use crate::{
    base::io::PathError,
    disk::{
        access::{Access, Owner},
        gate::{Gate, Open, Step, Verdict},
        inside,
        regular::OPEN_FLAGS,
    },
};

/// Changes files of a store, step by step.
#[derive(Clone, Debug)]
pub struct Disk {
    gate: Arc<dyn Gate>,
    durability: Durability,
    access: Access,
    /// The store whose files it changes, if it is for one.
    store: Option<Arc<Path>>,
    /// Who owns what it makes; `None` for the user who runs it.
    owner: Option<Owner>,
}

/// Whether what is written has to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// Yes, also a power cut.
    Full,
    /// No: nothing is synced.
    None,
}

impl Default for Disk {
    fn default() -> Self {
        let (gate, durability) = (Arc::new(Open), Durability::Full);
        Self { gate, durability, access: Access::Umask, store: None, owner: None }
    }
}

/// What a rename onto a free name came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// The file has its name.
    Done,
    /// Somebody had taken the name; the temporary file is still there.
    Taken,
}

impl Disk {
    /// A disk whose every step is decided by `gate`.
    pub fn with_gate(gate: Arc<dyn Gate>) -> Self {
        Self { gate, ..Self::default() }
    }

    /// A disk for what need not survive the process: it never syncs. Its files
    /// are as open as the folder that they are made in.
    pub fn scratch() -> Self {
        Self { durability: Durability::None, access: Access::Inherit, ..Self::default() }
    }

    /// The same disk, with other permission bits for what it makes.
    #[must_use]
    pub fn with_access(&self, access: Access) -> Self {
        Self { access, ..self.clone() }
    }

    /// The same disk, for files in the store in `dir`. It follows no link in the
    /// store. When root runs it, what it makes belongs to the owner of the store.
    #[must_use]
    pub fn in_store(&self, dir: &Path) -> Self {
        let (store, owner) = (Some(dir.into()), Owner::of_store(dir));
        Self { store, owner, ..self.with_access(Access::of_store(dir)) }
    }

    /// Fails where a link in the store leads to the folder that `path` is in.
    fn stay_inside(&self, path: &Path) -> Result<(), PathError> {
        self.store.as_ref().map_or(Ok(()), |root| inside::check_above(root, path))
    }

    /// Gives a file or folder that was just made to the owner of the store.
    fn give(&self, made: impl AsFd, path: &Path) -> Result<(), PathError> {
        let give = |owner: Owner| owner.give(made.as_fd());
        self.owner.map_or(Ok(()), give).map_err(PathError::when("set the owner of", path))
    }

    fn pass(&self, action: &'static str, step: Step, path: &Path) -> Result<(), PathError> {
        match self.gate.pass(step, path) {
            Verdict::Go => Ok(()),
            Verdict::Fail(source) | Verdict::Short(_, source) => {
                Err(PathError { action, path: path.to_owned(), source })
            }
        }
    }

    /// Creates a file that must not exist.
    ///
    /// # Errors
    /// [`PathError`] when it exists or cannot be created.
    pub fn create(&self, path: &Path) -> Result<NewFile, PathError> {
        self.pass("create", Step::Create, path)?;
        self.stay_inside(path)?;
        let file = self.access.create_file(path, File::options().read(true).write(true));
        let file = file.map_err(PathError::when("create", path))?;
        self.give(&file, path)?;
        Ok(NewFile {
            file,
            path: path.to_owned(),
            disk: self.clone(),
            kept: AtomicBool::new(false),
        })
    }

    /// Opens a file for appending, creating it when it does not exist.
    ///
    /// # Errors
    /// [`PathError`] when it cannot be opened.
    pub fn append(&self, path: &Path) -> Result<NewFile, PathError> {
        self.pass("open", Step::Create, path)?;
        self.stay_inside(path)?;
        let open = || self.open_for_change(File::options().append(true), path);
        let file = match open() {
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => {
                match self.access.create_file(path, File::options().append(true)) {
                    // Another process created it meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open()?,
                    created => {
                        let created = created.map_err(PathError::when("open", path))?;
                        self.give(&created, path)?;
                        created
                    }
                }
            }
            opened => opened?,
        };
        Ok(NewFile { file, path: path.to_owned(), disk: self.clone(), kept: AtomicBool::new(true) })
    }

    /// Opens a file that is there. In a store a link is refused, and a pipe, which
    /// would be waited for.
    fn open_for_change(&self, options: &mut OpenOptions, path: &Path) -> Result<File, PathError> {
        let failed = PathError::when("open", path);
        if self.store.is_none() {
            return options.open(path).map_err(failed);
        }
        let file = options.custom_flags(OPEN_FLAGS).open(path);
        let file = file.map_err(|error| match path.is_symlink() {
            true => PathError::when("use", path)(inside::link()),
            false => PathError::when("open", path)(error),
        })?;
        match file.metadata().is_ok_and(|meta| meta.is_file()) {
            true => Ok(file),
            false => {
                Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")))
            }
        }
    }

    /// Opens a file that processes lock, creating it when it does not exist. Its
    /// content does not count.
    ///
    /// # Errors
    /// [`PathError`] when it cannot be opened.
    pub fn lock_file(&self, path: &Path) -> Result<File, PathError> {
        self.append(path)?.file().try_clone().map_err(PathError::when("open", path))
    }

    /// Gives a folder the permission bits of a new one, if it belongs to this
    /// user.
    ///
    /// # Errors
    /// [`PathError`] when it cannot be opened or changed.
    pub fn apply_access(&self, path: &Path) -> Result<(), PathError> {
        self.access.apply(path).map_err(PathError::when("set the mode of", path))
    }

    /// Creates a folder and those above it; one that exists is fine. Folders
    /// that were created are synced into their parents.
    ///
    /// # Errors
    /// [`PathError`] when one cannot be created.
    pub fn create_folders(&self, path: &Path) -> Result<(), PathError> {
        if path.is_dir() {
            return self.stay_inside(path);
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(parent) = parent {
            self.create_folders(parent)?;
        }
        self.pass("create folder", Step::Create, path)?;
        self.stay_inside(path)?;
        match self.access.create_folder(path, self.owner) {
            Ok(()) => self.sync_folder(parent.unwrap_or(Path::new("."))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(PathError::when("create folder", path)(error)),
        }
    }

    /// Gives the file `from` the name `to` unless that is taken.
    ///
    /// # Errors
    /// [`PathError`] when the system refuses for another reason.
    pub fn rename_new(&self, from: &Path, to: &Path) -> Result<Renamed, PathError> {
        self.pass("rename", Step::Rename, to)?;
        self.stay_inside(to)?;
        let cwd = rustix::fs::CWD;
        let done = match renameat_with(cwd, from, cwd, to, RenameFlags::NOREPLACE) {
            // A file system without the flag: a hard link does not replace either.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                rustix::fs::link(from, to).and_then(|()| rustix::fs::unlink(from))
            }
            other => other,
        };
        match done {
            Ok(()) => Ok(Renamed::Done),
            Err(rustix::io::Errno::EXIST) => Ok(Renamed::Taken),
            Err(error) => Err(PathError::when("rename to", to)(error)),
        }
    }

    /// Gives the file `from` the name `to`, in place of what has it.
    ///
    /// # Errors
    /// [`PathError`] when the system refuses.
    pub fn replace(&self, from: &Path, to: &Path) -> Result<(), PathError> {
        self.pass("rename", Step::Rename, to)?;
        self.stay_inside(to)?;
        rustix::fs::rename(from, to).map_err(PathError::when("rename to", to))
    }

    /// Gives the file `from` a second name, unless that is taken.
    ///
    /// # Errors
    /// [`PathError`] when the system refuses for another reason, as file systems
    /// without hard links do.
    pub fn link(&self, from: &Path, to: &Path) -> Result<Renamed, PathError> {
        self.pass("link", Step::Create, to)?;
        self.stay_inside(to)?;
        match rustix::fs::link(from, to) {
            Ok(()) => Ok(Renamed::Done),
            Err(rustix::io::Errno::EXIST) => Ok(Renamed::Taken),
            Err(error) => Err(PathError::when("link to", to)(error)),
        }
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// [`PathError`] when the folder cannot be opened or synced.
    pub fn sync_folder(&self, path: &Path) -> Result<(), PathError> {
        if self.durability == Durability::None {
            return Ok(());
        }
        self.pass("sync folder", Step::SyncFolder, path)?;
        let folder = fs_err::File::open(path).map_err(PathError::when("open folder", path))?;
        rustix::fs::fsync(&folder).map_err(PathError::when("sync folder", path))
    }

    /// Makes the data of a file durable that was written and closed before.
    ///
    /// # Errors
    /// [`PathError`] when it cannot be opened, or the system could not write.
    pub fn sync_file(&self, path: &Path) -> Result<(), PathError> {
        self.pass("sync", Step::Sync, path)?;
        let file = fs_err::File::open(path).map_err(PathError::when("open", path))?;
        rustix::fs::fdatasync(&file).map_err(PathError::when("sync", path))
    }

    /// Writes a part of a file that is there. It is **not** synced. Does
    /// nothing when the file was given another name meanwhile by somebody who
    /// [locked](File::lock) it for that.
    ///
    /// # Errors
    /// [`PathError`]; that part of the file is then anything.
    pub fn fill(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<(), PathError> {
        let error = |source| PathError { action: "write", path: path.to_owned(), source };
        self.stay_inside(path)?;
        let file = self.open_for_change(File::options().write(true), path)?;
        // Where nothing can be locked, nobody keeps to it either.
        let _ = file.lock_shared();
        let ours = file.metadata().map_err(error)?;
        let is_there = fs_err::metadata(path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
        if !is_there {
            return Ok(());
        }
        match self.gate.pass(Step::Write { bytes: bytes.len() }, path) {
            Verdict::Go => file.write_all_at(bytes, offset).map_err(error),
            Verdict::Fail(source) => Err(error(source)),
            Verdict::Short(len, source) => {
                let _ = file.write_all_at(&bytes[..len.min(bytes.len())], offset);
                Err(error(source))
            }
        }
    }

    /// Makes durable all that was written to the file system of a folder, by any
    /// process.
    ///
    /// # Errors
    /// [`PathError`] when the folder cannot be opened, or something could not be
    /// written.
    pub fn sync_file_system(&self, folder: &Path) -> Result<(), PathError> {
        self.pass("sync", Step::Sync, folder)?;
        let open = fs_err::File::open(folder).map_err(PathError::when("open", folder))?;
        let synced = rustix::fs::syncfs(open.file()).map_err(io::Error::from);
        synced.map_err(PathError::when("sync", folder))
    }

    /// Removes a file; one that is gone already is fine.
    ///
    /// # Errors
    /// [`PathError`] when the system refuses.
    pub fn remove(&self, path: &Path) -> Result<(), PathError> {
        self.pass("remove", Step::Remove, path)?;
        self.stay_inside(path)?;
        match fs_err::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(PathError::when("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a small file whole, durably, in place of what has its name.
    /// `temporary` must be on the same file system.
    ///
    /// # Errors
    /// [`PathError`] of the first step that failed; `path` is then as it was,
    /// unless that was the last, the sync of the folder.
    pub fn write_whole(
        &self,
        temporary: &Path,
        path: &Path,
        bytes: &[u8],
    ) -> Result<(), PathError> {
        let mut file = self.create(temporary)?;
        file.write(bytes)?;
        file.sync()?;
        self.replace(temporary, path)?;
        file.keep();
        self.sync_folder(path.parent().unwrap_or(Path::new(".")))
    }
}

/// A file that is being written. One that was created goes when this is
/// dropped, unless it is [kept](NewFile::keep): a full disk is not made fuller.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    disk: Disk,
    kept: AtomicBool,
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !*self.kept.get_mut() {
            let _ = fs_err::remove_file(&self.path);
        }
    }
}

impl NewFile {
    /// Writes all of `bytes` at the end.
    ///
    /// # Errors
    /// [`PathError`]; the file then ends anywhere.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PathError> {
        match self.disk.gate.pass(Step::Write { bytes: bytes.len() }, &self.path) {
            Verdict::Go => {}
            Verdict::Fail(source) => return Err(self.error("write", source)),
            Verdict::Short(len, source) => {
                let _ = self.file.write_all(&bytes[..len.min(bytes.len())]);
                return Err(self.error("write", source));
            }
        }
        self.file.write_all(bytes).map_err(|source| self.error("write", source))
    }

    /// Writes all of `bytes` at `offset`; several threads may do so at once.
    ///
    /// # Errors
    /// [`PathError`]; that part of the file is then anything.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), PathError> {
        match self.disk.gate.pass(Step::Write { bytes: bytes.len() }, &self.path) {
            Verdict::Go => {}
            Verdict::Fail(source) => return Err(self.error("write", source)),
            Verdict::Short(len, source) => {
                let _ = self.file.write_all_at(&bytes[..len.min(bytes.len())], offset);
                return Err(self.error("write", source));
            }
        }
        self.file.write_all_at(bytes, offset).map_err(|source| self.error("write", source))
    }

    /// Starts writing back a range without waiting, so that a later
    /// [`NewFile::sync`] has less to wait for. Only a hint.
    pub fn start_writeback(&self, offset: u64, bytes: u64) {
        if self.disk.durability == Durability::None {
            return;
        }
        writeback::start(self.file.as_fd(), offset, bytes);
    }

    /// Waits until the data is durable. A file whose sync failed must be
    /// written again, not synced again: the kernel forgets what it could not
    /// write.
    ///
    /// # Errors
    /// [`PathError`] when the system could not write.
    pub fn sync(&self) -> Result<(), PathError> {
        if self.disk.durability == Durability::None {
            return Ok(());
        }
        self.disk.pass("sync", Step::Sync, &self.path)?;
        rustix::fs::fdatasync(&self.file).map_err(|source| self.error("sync", source.into()))
    }

    /// Leaves the file where it is, or where it was renamed to.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What changes it.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The file itself, to lock or to read it.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn error(&self, action: &'static str, source: io::Error) -> PathError {
        PathError { action, path: self.path.clone(), source }
    }
}

/// Asks the kernel to begin writing dirty pages.
mod writeback {
    use std::os::fd::BorrowedFd;

    pub(super) fn start(fd: BorrowedFd<'_>, offset: u64, bytes: u64) {
        // `sync_file_range` has no safe wrapper; without it `POSIX_FADV_DONTNEED`
        // also starts writeback of the range, and drops only clean pages.
        let len = std::num::NonZeroU64::new(bytes);
        let _ = rustix::fs::fadvise(fd, offset, len, rustix::fs::Advice::DontNeed);
    }
}
