//! The steps of a durable write: temporary file, data sync, rename, folder sync.
//!
//! A file appears completely or not at all, even after a power cut, with this order of
//! steps: [`Disk::create`] under a temporary name, [`NewFile::write`],
//! [`NewFile::sync`], then [`Disk::rename_new`] or [`Disk::replace`], and
//! [`Disk::sync_folder`] before anything refers to the file.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{RenameFlags, renameat_with},
    io::Errno,
};

use crate::{
    base::io::PathError,
    disk::{
        access::{CreateMode, StoreOwner},
        fault_injector::{DiskStep, FaultDecision, FaultInjector, ProcessInjector},
        lock_wait::is_file_at,
        output::folder_of,
        regular::OPEN_FLAGS,
        scratch::unique_name,
        symlink_guard,
    },
};

/// Number of attempts to open a file that other processes create and delete meanwhile.
const OPEN_ATTEMPTS: usize = 16;

/// Changes files of a store, step by step.
#[derive(Clone, Debug)]
pub struct Disk {
    fault_injector: Arc<dyn FaultInjector>,
    durability: Durability,
    access: CreateMode,
    /// The store or cache inside which the disk must not follow links, if there is one.
    store: Option<symlink_guard::StoreRoot>,
    /// The owner of new files and folders.
    ownership: NewFileOwner,
}

/// The owner of new files and folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewFileOwner {
    /// The user of the process.
    User,
    /// The owner of a store that root changes.
    Store(StoreOwner),
    /// If the process is root: the owner of the parent folder.
    Folder,
}

/// The durability of written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// The data must survive a power cut.
    Full,
    /// The disk syncs nothing, so a power cut may lose the data.
    None,
}

impl Default for Disk {
    fn default() -> Self {
        let (fault_injector, durability) = (Arc::new(ProcessInjector), Durability::Full);
        let ownership = NewFileOwner::User;
        Self { fault_injector, durability, access: CreateMode::Umask, store: None, ownership }
    }
}

/// The result of a rename to a new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// The file was renamed.
    Done,
    /// The name is taken. The temporary file still exists.
    Taken,
}

impl Disk {
    /// Creates a disk that asks `fault_injector` before each step.
    pub fn with_fault_injector(fault_injector: Arc<dyn FaultInjector>) -> Self {
        Self { fault_injector, ..Self::default() }
    }

    /// Creates a disk for data that may get lost with the process: [`NewFile::sync`] and
    /// [`Disk::sync_folder`] do nothing. New files have the permissions of their folder. If the
    /// process is root, new files belong to the owner of that folder, because caches are in the
    /// stores and folders of users.
    pub fn scratch() -> Self {
        Self {
            durability: Durability::None,
            access: CreateMode::Inherit,
            ownership: NewFileOwner::Folder,
            ..Self::default()
        }
    }

    /// Creates a [scratch](Self::scratch) disk for a cache in `dir` that other users may be able to
    /// write. The disk refuses a link in place of `dir` or inside it.
    pub fn cache(dir: &Path) -> Self {
        Self { store: Some(symlink_guard::StoreRoot::of_cache(dir)), ..Self::scratch() }
    }

    /// Returns the same disk with other permissions for new files.
    #[must_use]
    pub fn with_access(&self, access: CreateMode) -> Self {
        Self { access, ..self.clone() }
    }

    /// Returns the same disk for files in the store in `dir`. The new disk does not follow links
    /// inside the store. If the process is root, new files belong to the owner of the store.
    #[must_use]
    pub fn in_store(&self, dir: &Path) -> Self {
        let store = Some(symlink_guard::StoreRoot::new(dir));
        let ownership = StoreOwner::of_store(dir).map_or(NewFileOwner::User, NewFileOwner::Store);
        Self { store, ownership, ..self.with_access(CreateMode::of_store(dir)) }
    }

    /// Fails if a link inside the store is on the way to `path`, or if another folder has replaced
    /// the store.
    fn stay_inside(&self, path: &Path) -> Result<(), PathError> {
        self.store.as_ref().map_or(Ok(()), |root| root.check(path))
    }

    /// Returns the owner of a new file at `path`; `None` for the user of the process.
    fn owner_at(&self, path: &Path) -> Option<StoreOwner> {
        match self.ownership {
            NewFileOwner::User => None,
            NewFileOwner::Store(owner) => Some(owner),
            NewFileOwner::Folder => StoreOwner::of_entries(folder_of(path)),
        }
    }

    /// Gives a new file or folder to its owner.
    fn give(&self, made: impl AsFd, path: &Path) -> Result<(), PathError> {
        let give = |owner: StoreOwner| owner.give(made.as_fd());
        self.owner_at(path).map_or(Ok(()), give).map_err(PathError::when("set the owner of", path))
    }

    fn pass(&self, action: &'static str, step: DiskStep, path: &Path) -> Result<(), PathError> {
        match self.fault_injector.decide(step, path) {
            FaultDecision::Go => Ok(()),
            FaultDecision::Fail(source) | FaultDecision::Short(_, source) => {
                Err(PathError { action, path: path.to_owned(), source })
            }
        }
    }

    /// Creates a file that must not exist.
    ///
    /// # Errors
    /// [`PathError`] when the file exists or cannot be created.
    pub fn create(&self, path: &Path) -> Result<NewFile, PathError> {
        self.pass("create", DiskStep::Create, path)?;
        self.stay_inside(path)?;
        let file = self.access.create_file(path, File::options().read(true).write(true));
        let file = file.map_err(PathError::when("create", path))?;
        self.give(&file, path)?;
        Ok(NewFile {
            file,
            path: path.to_owned(),
            disk: self.clone(),
            kept: AtomicBool::new(false),
            written: (0, 0),
        })
    }

    /// Opens a file for appending. Creates it if it does not exist.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be opened.
    pub fn append(&self, path: &Path) -> Result<NewFile, PathError> {
        self.pass("open", DiskStep::Create, path)?;
        self.stay_inside(path)?;
        let mut attempts = 0;
        let file = loop {
            match self.open_for_change(File::options().append(true), path) {
                Err(error)
                    if error.source.kind() == io::ErrorKind::NotFound
                        && attempts < OPEN_ATTEMPTS => {}
                opened => break opened?,
            }
            match self.access.create_file(path, File::options().append(true)) {
                // Another process has created the file meanwhile. It may also have deleted it again.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempts += 1,
                created => {
                    let created = created.map_err(PathError::when("open", path))?;
                    self.give(&created, path)?;
                    break created;
                }
            }
        };
        Ok(NewFile {
            file,
            path: path.to_owned(),
            disk: self.clone(),
            kept: AtomicBool::new(true),
            written: (0, 0),
        })
    }

    /// Opens an existing file. In a store, refuses links, and also pipes, because to open a pipe
    /// would wait.
    fn open_for_change(&self, options: &mut OpenOptions, path: &Path) -> Result<File, PathError> {
        let failed = PathError::when("open", path);
        if self.store.is_none() {
            return options.open(path).map_err(failed);
        }
        let file = options.custom_flags(OPEN_FLAGS).open(path);
        let file = file.map_err(|error| match path.is_symlink() {
            true => PathError::when("use", path)(symlink_guard::link()),
            false => PathError::when("open", path)(error),
        })?;
        match file.metadata().is_ok_and(|meta| meta.is_file()) {
            true => Ok(file),
            false => {
                Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")))
            }
        }
    }

    /// Opens a lock file, and creates it if necessary. Its content has no meaning.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be opened.
    pub fn lock_file(&self, path: &Path) -> Result<File, PathError> {
        self.append(path)?.file().try_clone().map_err(PathError::when("open", path))
    }

    /// Gives a folder the permission bits of a new one, if it belongs to this user.
    ///
    /// # Errors
    /// [`PathError`] when the folder cannot be opened or changed.
    pub fn apply_access(&self, path: &Path) -> Result<(), PathError> {
        self.access.apply(path).map_err(PathError::when("set the mode of", path))
    }

    /// Creates a folder and its missing parents. An existing folder is not an error. Syncs the
    /// parent of each new folder.
    ///
    /// # Errors
    /// [`PathError`] when a folder cannot be created.
    pub fn create_folders(&self, path: &Path) -> Result<(), PathError> {
        if path.is_dir() {
            return self.stay_inside(path);
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(parent) = parent {
            self.create_folders(parent)?;
        }
        self.pass("create folder", DiskStep::Create, path)?;
        self.stay_inside(path)?;
        match self.access.create_folder(path, self.owner_at(path)) {
            Ok(()) => self.sync_folder(parent.unwrap_or(Path::new("."))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(PathError::when("create folder", path)(error)),
        }
    }

    /// Renames the file `from` to `to`, unless that name is taken.
    ///
    /// # Errors
    /// [`PathError`] when the rename fails for another reason.
    pub fn rename_new(&self, from: &Path, to: &Path) -> Result<Renamed, PathError> {
        self.pass("rename", DiskStep::Rename, to)?;
        self.stay_inside(to)?;
        let cwd = rustix::fs::CWD;
        let done = match renameat_with(cwd, from, cwd, to, RenameFlags::NOREPLACE) {
            // The file system lacks the flag. A hard link does not replace an existing
            // file either.
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

    /// Renames the file `from` to `to`, and replaces a file with that name.
    ///
    /// # Errors
    /// [`PathError`] when the rename fails.
    pub fn replace(&self, from: &Path, to: &Path) -> Result<(), PathError> {
        self.pass("rename", DiskStep::Rename, to)?;
        self.stay_inside(to)?;
        rustix::fs::rename(from, to).map_err(PathError::when("rename to", to))
    }

    /// Creates the hard link `to` to the file `from`, unless that name is taken.
    ///
    /// # Errors
    /// [`PathError`] when this fails for another reason, for example because the file
    /// system has no hard links.
    pub fn link(&self, from: &Path, to: &Path) -> Result<Renamed, PathError> {
        self.pass("link", DiskStep::Create, to)?;
        self.stay_inside(to)?;
        match rustix::fs::link(from, to) {
            Ok(()) => Ok(Renamed::Done),
            Err(rustix::io::Errno::EXIST) => Ok(Renamed::Taken),
            Err(error) => Err(PathError::when("link to", to)(error)),
        }
    }

    /// Makes the names in a folder durable. Succeeds without effect on a file system that cannot
    /// sync folders.
    ///
    /// # Errors
    /// [`PathError`] when the folder cannot be opened or synced.
    pub fn sync_folder(&self, path: &Path) -> Result<(), PathError> {
        if self.durability == Durability::None {
            return Ok(());
        }
        let sync = || {
            self.pass("sync folder", DiskStep::SyncFolder, path)?;
            let folder = fs_err::File::open(path).map_err(PathError::when("open folder", path))?;
            rustix::fs::fsync(&folder).map_err(PathError::when("sync folder", path))
        };
        let is_unsupported = |error: &PathError| {
            let errno = error.source.raw_os_error().map(Errno::from_raw_os_error);
            matches!(errno, Some(Errno::INVAL | Errno::OPNOTSUPP))
        };
        match sync() {
            Err(error) if is_unsupported(&error) => Ok(()),
            synced => synced,
        }
    }

    /// Makes the data of a file durable that another handle wrote before.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be opened or its data cannot be written.
    pub fn sync_file(&self, path: &Path) -> Result<(), PathError> {
        self.pass("sync", DiskStep::Sync, path)?;
        let file = fs_err::File::open(path).map_err(PathError::when("open", path))?;
        rustix::fs::fdatasync(&file).map_err(PathError::when("sync", path))
    }

    /// Writes a part of an existing file, **without** a sync. Waits while another process has
    /// [locked](File::lock) the file, and writes nothing if that process renamed or removed the
    /// file.
    ///
    /// # Errors
    /// [`PathError`]; the content of that part is undefined then.
    pub fn fill(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<(), PathError> {
        let file = self.open_to_fill(path)?;
        // A failure is harmless: on file systems without locks, no other process can lock the file.
        let _ = file.lock_shared();
        self.fill_locked(&file, path, offset, bytes)
    }

    /// Writes a part like [`Disk::fill`], but returns false instead of waiting if another process
    /// has locked the file.
    ///
    /// # Errors
    /// Those of [`Disk::fill`].
    pub fn try_fill(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<bool, PathError> {
        let file = self.open_to_fill(path)?;
        if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return Ok(false);
        }
        self.fill_locked(&file, path, offset, bytes)?;
        Ok(true)
    }

    fn open_to_fill(&self, path: &Path) -> Result<File, PathError> {
        self.stay_inside(path)?;
        self.open_for_change(File::options().write(true), path)
    }

    fn fill_locked(
        &self,
        file: &File,
        path: &Path,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), PathError> {
        if !is_file_at(file, path)? {
            return Ok(());
        }
        self.write_step(path, bytes, |bytes| file.write_all_at(bytes, offset))
    }

    /// Passes `bytes` to `write`, or only the part that the fault injector allows.
    fn write_step(
        &self,
        path: &Path,
        bytes: &[u8],
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), PathError> {
        let written = match self.fault_injector.decide(DiskStep::Write { bytes: bytes.len() }, path)
        {
            FaultDecision::Go => write(bytes),
            FaultDecision::Fail(source) => Err(source),
            FaultDecision::Short(len, source) => {
                let _ = write(&bytes[..len.min(bytes.len())]);
                Err(source)
            }
        };
        written.map_err(PathError::when("write", path))
    }

    /// Makes all data durable that any process has written to the file system of a folder.
    ///
    /// # Errors
    /// [`PathError`] when the folder cannot be opened, or data cannot be written.
    pub fn sync_file_system(&self, folder: &Path) -> Result<(), PathError> {
        self.pass("sync", DiskStep::Sync, folder)?;
        let open = fs_err::File::open(folder).map_err(PathError::when("open", folder))?;
        let synced = rustix::fs::syncfs(open.file()).map_err(io::Error::from);
        synced.map_err(PathError::when("sync", folder))
    }

    /// Removes a file. A missing file is not an error.
    ///
    /// # Errors
    /// [`PathError`] when the removal fails.
    pub fn remove(&self, path: &Path) -> Result<(), PathError> {
        self.pass("remove", DiskStep::Remove, path)?;
        self.stay_inside(path)?;
        match fs_err::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(PathError::when("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Creates a file with this content in the folder `tmp`, **without** a sync.
    ///
    /// # Errors
    /// [`PathError`] of the first step that failed.
    pub fn write_temporary(&self, tmp: &Path, bytes: &[u8]) -> Result<NewFile, PathError> {
        // The name must not contain that of the target: a sweep removes files by their prefix.
        let mut file = self.create(&tmp.join(unique_name("new")))?;
        file.write(bytes)?;
        Ok(file)
    }

    /// Writes a small file completely and durably, and replaces a file with its name. The temporary
    /// file is in the folder `tmp`, which must be on the same file system.
    ///
    /// # Errors
    /// [`PathError`] of the first step that failed. `path` is unchanged then, unless
    /// only the last step failed, the sync of the folder.
    pub fn write_whole(&self, tmp: &Path, path: &Path, bytes: &[u8]) -> Result<(), PathError> {
        let file = self.write_temporary(tmp, bytes)?;
        file.sync()?;
        self.replace(file.path(), path)?;
        file.keep();
        self.sync_folder(folder_of(path))
    }

    /// Writes a small file like [`Disk::write_whole`], but without a sync. After a power cut, the
    /// file may be missing, empty or damaged.
    ///
    /// # Errors
    /// [`PathError`] of the first step that failed. `path` is unchanged then.
    pub fn write_unsynced(&self, tmp: &Path, path: &Path, bytes: &[u8]) -> Result<(), PathError> {
        let file = self.write_temporary(tmp, bytes)?;
        self.replace(file.path(), path)?;
        file.keep();
        Ok(())
    }
}

/// Number of dirty bytes after which [`NewFile::write`] starts their write-back.
const WRITEBACK_BYTES: u64 = 2 << 20;

/// An open file for writing. Dropping the value removes a new file that was not
/// [kept](NewFile::keep), so that failed writes do not fill the disk.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    disk: Disk,
    kept: AtomicBool,
    /// Number of bytes that [`NewFile::write`] has written, and for how many of them it has started
    /// the write-back.
    written: (u64, u64),
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !*self.kept.get_mut() {
            let _ = fs_err::remove_file(&self.path);
        }
    }
}

impl NewFile {
    /// Writes all of `bytes` at the end of the file. Starts the write-back of a long file from time to
    /// time, so that the final sync has little left to write.
    ///
    /// # Errors
    /// [`PathError`]; the file may then end with any part of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PathError> {
        self.disk.write_step(&self.path, bytes, |bytes| self.file.write_all(bytes))?;
        let (written, written_back) = &mut self.written;
        *written += bytes.len() as u64;
        if *written - *written_back >= WRITEBACK_BYTES {
            let begun = std::mem::replace(written_back, *written);
            self.start_writeback(begun, self.written.0 - begun);
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`. Several threads may call this at the same
    /// time.
    ///
    /// # Errors
    /// [`PathError`]; the content of that part is undefined then.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), PathError> {
        self.disk.write_step(&self.path, bytes, |bytes| self.file.write_all_at(bytes, offset))
    }

    /// Hints that the kernel should start to write a range to the disk, so that a later
    /// [`NewFile::sync`] is faster. Does not wait.
    pub fn start_writeback(&self, offset: u64, bytes: u64) {
        if self.disk.durability == Durability::None {
            return;
        }
        writeback::start(self.file.as_fd(), offset, bytes);
    }

    /// Waits until the data is durable. After a failed sync, the caller must write the file again:
    /// a second sync would succeed, because the kernel drops the data that it could not write.
    ///
    /// # Errors
    /// [`PathError`] when the data cannot be written.
    pub fn sync(&self) -> Result<(), PathError> {
        if self.disk.durability == Durability::None {
            return Ok(());
        }
        self.disk.pass("sync", DiskStep::Sync, &self.path)?;
        rustix::fs::fdatasync(&self.file).map_err(PathError::when("sync", &self.path))
    }

    /// Keeps the file on the disk when the value is dropped.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Returns the path at which the file was created.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the disk that created the file.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the file itself, to lock or read it.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Requests that the kernel starts to write dirty pages.
mod writeback {
    use std::os::fd::BorrowedFd;

    pub(super) fn start(fd: BorrowedFd<'_>, offset: u64, bytes: u64) {
        // `sync_file_range` has no safe wrapper. `POSIX_FADV_DONTNEED` also starts
        // write-back of the range, and it only drops clean pages.
        let len = std::num::NonZeroU64::new(bytes);
        let _ = rustix::fs::fadvise(fd, offset, len, rustix::fs::Advice::DontNeed);
    }
}
