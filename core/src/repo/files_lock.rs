//! The lock on a project's files: commits read them, a restore in place writes them.
//!
//! A commit that reads files during a restore would save a mixture of old and new files, and the
//! base would name a commit that the files do not come from. So a commit takes the lock shared, and
//! a restore in place takes it exclusively. The lock is an advisory lock (`flock`) on the store
//! folder itself: it needs no extra file, and it works in a read-only store. On a file system that
//! cannot lock folders, such as NFS, commands run without the lock.
//!
//! A restore locks all projects that contain its target, wherever the snapshot comes from.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;

use crate::{
    base::{
        blocked::Blocked,
        io::PathError,
        observe::{Note, Observer},
    },
    disk::lock_wait::{COMMAND_LOCK_TIMEOUTS, LockOutcome, wait_for_lock},
    local::store_folder::STORE_FOLDER,
    repo::{RefError, Repo},
};

/// How a command uses a project's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesUse {
    /// The command reads the files; other readers may run at the same time.
    Read,
    /// The command writes the files.
    Write,
}

/// The lock, released on drop.
#[derive(Debug)]
pub struct FilesLock {
    _folder: File,
}

impl Repo {
    /// Takes the lock on the project's files. Returns `None` in a store without a
    /// project, and where the file system has no such locks.
    ///
    /// # Errors
    /// [`RefError::FilesBusy`] if another command uses the files for longer than a minute,
    /// [`RefError::Blocked`], [`RefError::Io`].
    pub fn lock_files(
        &self,
        wanted: FilesUse,
        observer: &dyn Observer,
    ) -> Result<Option<FilesLock>, RefError> {
        match self.project() {
            Some(project) => lock(self.dir(), project, wanted, observer),
            None => Ok(None),
        }
    }
}

/// Locks the files of all projects that contain the folder `target`, for writing into it. The
/// folder may be missing. Also locks the files of `own`, the project that the target belongs to by
/// name.
///
/// # Errors
/// As [`Repo::lock_files`].
pub fn lock_target(
    target: &Path,
    own: Option<&Repo>,
    observer: &dyn Observer,
) -> Result<Vec<FilesLock>, RefError> {
    let own = own.and_then(|repo| Some((repo.dir().to_owned(), repo.project()?.to_owned())));
    let numbered = own.into_iter().chain(projects_around(target)).filter_map(|found| {
        let meta = fs_err::metadata(&found.0).ok()?;
        Some(((meta.dev(), meta.ino()), found))
    });
    let mut stores: Vec<_> = numbered.collect();
    // All processes take the locks in the same order, and each lock once, to avoid a deadlock.
    stores.sort();
    stores.dedup_by_key(|(number, _)| *number);
    let locks =
        stores.iter().map(|(_, (store, project))| lock(store, project, FilesUse::Write, observer));
    locks.filter_map(Result::transpose).collect()
}

/// Lists the projects that contain a path, each with its store. Ignores a store of any user other
/// than this one and the owner of the project: such a user could keep it locked.
fn projects_around(path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let Ok(path) = std::path::absolute(path) else { return Vec::new() };
    let Some(real) = path.ancestors().find_map(|above| fs_err::canonicalize(above).ok()) else {
        return Vec::new();
    };
    let projects = real.ancestors().filter_map(|project| {
        let store = project.join(STORE_FOLDER);
        let meta = fs_err::metadata(&store).ok()?;
        let owners = [geteuid().as_raw(), fs_err::metadata(project).ok()?.uid()];
        let counts = meta.is_dir() && owners.contains(&meta.uid());
        counts.then(|| (store, project.to_owned()))
    });
    projects.collect()
}

fn lock(
    store: &Path,
    project: &Path,
    wanted: FilesUse,
    observer: &dyn Observer,
) -> Result<Option<FilesLock>, RefError> {
    let folder = match fs_err::File::open(store) {
        // The store around the target belongs to another user, so go on without its lock.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        folder => folder.map_err(PathError::when("open", store))?,
    };
    let folder = folder.into_parts().0;
    let try_lock = || match wanted {
        FilesUse::Read => folder.try_lock_shared(),
        FilesUse::Write => folder.try_lock(),
    };
    let notify = || observer.note(Note::FilesBusy { project });
    let waited = wait_for_lock(&try_lock, COMMAND_LOCK_TIMEOUTS, &notify, observer);
    match waited.map_err(PathError::when("lock", store))? {
        LockOutcome::Locked => Ok(Some(FilesLock { _folder: folder })),
        LockOutcome::Unsupported => Ok(None),
        LockOutcome::Interrupted => Err(Blocked::Interrupted.into()),
        // A large commit may hold the lock for longer; a hint then tells the user what to do.
        LockOutcome::Busy => {
            let waited_secs = COMMAND_LOCK_TIMEOUTS.total.as_secs();
            Err(RefError::FilesBusy { project: project.to_owned(), waited_secs })
        }
    }
}
