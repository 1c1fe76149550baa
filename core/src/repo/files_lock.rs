//! The lock on a project's files: commits read them, a restore in place writes them.
//!
//! A commit that reads files while a restore writes them would hold a mixture, and
//! the base would name a commit that the files do not come from. So a commit holds
//! the lock shared, and a restore in place exclusively. It is an advisory lock
//! (`flock`) on the store folder itself: no further file is needed, and it works in
//! a store that cannot be written. A file system without such locks (NFS takes none
//! on folders) goes without.

use std::{
    fs::{File, TryLockError},
    time::{Duration, Instant},
};

use crate::{
    base::observe::{Note, Observer},
    repo::{RefError, Repo},
};

/// How long to wait before the user is told.
const QUIET: Duration = Duration::from_secs(2);

/// How long to wait for other commands. A large commit takes longer; a hint then says
/// what to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the lock is tried.
const PAUSE: Duration = Duration::from_millis(20);

/// What a command does with a project's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesUse {
    /// It reads them; others may do so at the same time.
    Read,
    /// It writes them.
    Write,
}

/// The lock, held until this is dropped.
#[derive(Debug)]
pub struct FilesLock {
    _folder: File,
}

impl Repo {
    /// Takes the lock on the project's files. Returns `None` in a store without a
    /// project, and where the file system has no such locks.
    ///
    /// # Errors
    /// [`RefError::FilesBusy`] when another command uses the files for a minute,
    /// [`RefError::Interrupted`].
    pub fn lock_files(
        &self,
        wanted: FilesUse,
        observer: &dyn Observer,
    ) -> Result<Option<FilesLock>, RefError> {
        let Some(project) = self.project() else { return Ok(None) };
        let Ok(folder) = fs_err::File::open(self.dir()) else { return Ok(None) };
        let folder = folder.into_parts().0;
        let start = Instant::now();
        let mut is_told = false;
        loop {
            let locked = match wanted {
                FilesUse::Read => folder.try_lock_shared(),
                FilesUse::Write => folder.try_lock(),
            };
            match locked {
                Ok(()) => return Ok(Some(FilesLock { _folder: folder })),
                Err(TryLockError::Error(_)) => return Ok(None),
                Err(TryLockError::WouldBlock) => {}
            }
            if start.elapsed() > PATIENCE {
                let (project, waited_secs) = (project.to_owned(), PATIENCE.as_secs());
                return Err(RefError::FilesBusy { project, waited_secs });
            }
            if observer.cancelled() {
                return Err(RefError::Interrupted);
            }
            if !is_told && start.elapsed() > QUIET {
                is_told = true;
                observer.note(Note::FilesBusy { project });
            }
            std::thread::sleep(PAUSE);
        }
    }
}
