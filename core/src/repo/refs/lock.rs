//! The short lock, and the time of the change before.
//!
//! The file holds the time of the last change of any ref, as in a log, so that
//! the next one gets a later time without asking all logs. It is not synced and
//! nothing but that depends on it; where it says nothing, the logs do.

use std::{
    fs::TryLockError,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    base::{io::PathError, time::Time},
    disk::NewFile,
    repo::refs::{Change, RefError, Refs, read_small},
};

/// How long to wait for another process to let go of the lock. It is held for
/// a few syncs; a disk that takes longer than this for them is stuck.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// The lock, held until this is dropped.
pub(super) struct Lock {
    file: NewFile,
    path: PathBuf,
}

impl Refs {
    /// Takes the store's short lock.
    pub(super) fn lock(&self) -> Result<Lock, RefError> {
        let path = self.store.join("lock");
        let file = self.disk.append(&path)?;
        let start = Instant::now();
        loop {
            match file.file().try_lock() {
                Ok(()) => return Ok(Lock { file, path }),
                Err(TryLockError::Error(source)) => {
                    return Err(PathError { action: "lock", path, source }.into());
                }
                Err(TryLockError::WouldBlock) if start.elapsed() > LOCK_WAIT => {
                    return Err(RefError::Locked { path, waited_secs: LOCK_WAIT.as_secs() });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// The change with a time after that of the last one.
    pub(super) fn timed<'a>(
        &self,
        lock: &mut Lock,
        change: &Change<'a>,
    ) -> Result<Change<'a>, RefError> {
        let last = match lock.last() {
            Some(last) => Some(last),
            None => self.newest()?,
        };
        let time = last.map_or(change.time, |last| change.time.max(last.successor()));
        lock.set_last(time);
        Ok(Change { time, ..*change })
    }

    /// Time of the newest line of all logs; `None` before the first one.
    ///
    /// # Errors
    /// [`RefError::Io`] when a log cannot be read.
    pub fn newest(&self) -> Result<Option<Time>, RefError> {
        let mut newest = None;
        for pointer in self.logged()? {
            let lines = self.log_of(&pointer)?;
            newest = newest.max(lines.iter().map(|line| line.time).max());
        }
        Ok(newest)
    }
}

impl Lock {
    fn last(&self) -> Option<Time> {
        let text = read_small(&self.path, "time").ok()??;
        Time::parse_decimal(text.strip_suffix('\n')?)
    }

    /// A disk that is full must not keep a ref from moving for this.
    fn set_last(&mut self, time: Time) {
        if self.file.file().set_len(0).is_ok() {
            let _ = self.file.write(format!("{}\n", time.decimal()).as_bytes());
        }
    }
}
