//! Waiting for an advisory lock (`flock`) that another process may hold for long.

use std::{
    fs::{File, Metadata, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::base::{
    io::PathError,
    observe::{Observer, Silent},
};

/// Interval between attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(20);

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockTimeouts {
    /// Time after which the caller informs the user.
    pub quiet: Duration,
    /// Total time.
    pub total: Duration,
}

/// The timeouts for locks that are held during whole commands.
pub const COMMAND_LOCK_TIMEOUTS: LockTimeouts =
    LockTimeouts { quiet: Duration::from_secs(2), total: Duration::from_secs(60) };

/// The result of waiting for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// The lock is held now.
    Locked,
    /// The file system does not support this kind of lock.
    Unsupported,
    /// Other processes held the lock until the timeout.
    Busy,
    /// The user asked to stop.
    Interrupted,
}

/// Retries `try_lock` until it succeeds or the timeout expires. Calls `notify` once if
/// the wait is long.
///
/// # Errors
/// The errors of the system, except those that mean that locks are not supported.
pub fn wait_for_lock(
    try_lock: &dyn Fn() -> Result<(), TryLockError>,
    timeouts: LockTimeouts,
    notify: &dyn Fn(),
    observer: &dyn Observer,
) -> io::Result<LockOutcome> {
    let (start, mut is_notified) = (Instant::now(), false);
    loop {
        match try_lock() {
            Ok(()) => return Ok(LockOutcome::Locked),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) if has_no_locks(&error) => {
                return Ok(LockOutcome::Unsupported);
            }
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        if start.elapsed() > timeouts.total {
            return Ok(LockOutcome::Busy);
        }
        if observer.cancelled() {
            return Ok(LockOutcome::Interrupted);
        }
        if !is_notified && start.elapsed() > timeouts.quiet {
            is_notified = true;
            notify();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits for an exclusive lock on a folder itself, without a lock file. Returns `None`
/// if the file system does not support such locks.
///
/// # Errors
/// [`PathError`] when the folder cannot be opened, or when other processes hold the
/// lock until the timeout.
pub fn lock_folder(folder: &Path) -> Result<Option<File>, PathError> {
    let file = fs_err::File::open(folder).map_err(PathError::when("open", folder))?;
    let file = file.into_parts().0;
    let failed = PathError::when("lock", folder);
    match wait_for_lock(&|| file.try_lock(), COMMAND_LOCK_TIMEOUTS, &|| {}, &Silent) {
        Ok(LockOutcome::Locked) => Ok(Some(file)),
        Ok(LockOutcome::Unsupported) => Ok(None),
        Ok(LockOutcome::Busy) => Err(failed(io::Error::other("another process holds the lock"))),
        Ok(LockOutcome::Interrupted) => Err(failed(io::ErrorKind::Interrupted.into())),
        Err(error) => Err(failed(error)),
    }
}

/// Returns true if `path` still names an open file. A lock on a file that was removed or renamed
/// keeps no process out.
///
/// # Errors
/// [`PathError`] when the open file cannot be examined.
pub fn is_file_at(file: &File, path: &Path) -> Result<bool, PathError> {
    let ours = file.metadata().map_err(PathError::when("stat", path))?;
    let same = |there: Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
    Ok(fs_err::metadata(path).is_ok_and(same))
}

/// Returns true if an error means that the file system does not support such locks.
fn has_no_locks(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    // NFS: a folder can only be opened for reading, and an exclusive lock then fails
    // with `EBADF`.
    matches!(
        errno,
        Some(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::BADF)
    )
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SHORT: LockTimeouts =
        LockTimeouts { quiet: Duration::from_millis(30), total: Duration::from_millis(120) };

    #[test]
    fn waiting_for_a_lock_ends_when_it_is_free_or_at_the_timeout() {
        let told = Cell::new(0);
        let tell = || told.set(told.get() + 1);
        let wait = |try_lock: &dyn Fn() -> Result<(), TryLockError>| {
            told.set(0);
            (wait_for_lock(try_lock, SHORT, &tell, &Silent).unwrap(), told.get())
        };
        assert_eq!(wait(&|| Ok(())), (LockOutcome::Locked, 0));
        assert_eq!(wait(&|| Err(TryLockError::WouldBlock)), (LockOutcome::Busy, 1));
        let none = || Err(TryLockError::Error(Errno::NOLCK.into()));
        assert_eq!(wait(&none), (LockOutcome::Unsupported, 0));
        let start = Instant::now();
        let later = || match start.elapsed() > Duration::from_millis(10) {
            true => Ok(()),
            false => Err(TryLockError::WouldBlock),
        };
        assert_eq!(wait(&later).0, LockOutcome::Locked);
    }
}
