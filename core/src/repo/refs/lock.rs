//! The short lock of a store, and the time of the last change of a ref.
//!
//! The lock file holds the time of the last change of any ref, in the form of a log line, followed
//! by ` done` once the ref has moved. The time gives the next change a later one without reading
//! all logs. ` done` distinguishes a ref whose file is lost from a change that a crash prevented.
//! The next change removes the log line of a prevented change. Snap does not sync the file; if it
//! is missing, empty or damaged, the logs give the time.

use std::{
    fs::TryLockError,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    base::{io::PathError, time::Time},
    disk::{NewFile, lock_wait::is_file_at},
    repo::{
        ref_log::{self, RefLogEntry, RefValue},
        refs::{RefError, RefLogMessage, Refs, read_small},
    },
};

/// Name of the lock file.
const LOCK: &str = "lock";

/// Suffix that marks the last change as completed.
const DONE: &str = " done";

/// Timeout for the lock. A process holds it for a few syncs; if they take longer, the disk is
/// stuck.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// The lock, released on drop.
pub(in crate::repo) struct Lock {
    file: NewFile,
    path: PathBuf,
}

impl Refs {
    /// Takes the store's short lock.
    pub(in crate::repo) fn lock(&self) -> Result<Lock, RefError> {
        let path = self.store.join(LOCK);
        let mut file = self.disk.append(&path)?;
        let start = Instant::now();
        loop {
            match file.file().try_lock() {
                Ok(()) if is_file_at(file.file(), &path)? => return Ok(Lock { file, path }),
                // Another process has removed the store, or put another one in its place.
                Ok(()) if start.elapsed() <= LOCK_WAIT => file = self.disk.append(&path)?,
                Ok(()) => {
                    return Err(RefError::Locked { path, waited_secs: LOCK_WAIT.as_secs() });
                }
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

    /// Returns the change with a time later than that of the last change. Removes the log line of a
    /// last change that was not completed. First checks that no other program has raised the version
    /// of the store.
    pub(super) fn timed<'a>(
        &self,
        lock: &mut Lock,
        change: &RefLogMessage<'a>,
    ) -> Result<RefLogMessage<'a>, RefError> {
        self.check_version()?;
        let last = match lock.last() {
            Some(LockRecord { time, is_done }) => {
                // A crash prevented the last change.
                if !is_done {
                    self.remove_undone_lines(time, |_| true)?;
                }
                Some(time)
            }
            None => {
                // The lock file is lost, for example in a power cut, which may also have prevented
                // the creation of refs. After a later change, the log lines of these refs would
                // look as if the refs had existed.
                let newest = self.newest()?;
                if let Some(time) = newest {
                    self.remove_undone_lines(time, |line| line.old == RefValue::Nothing)?;
                }
                newest
            }
        };
        let time = last.map_or(change.time, |last| change.time.max(last.successor()));
        lock.set_last(LockRecord { time, is_done: false });
        Ok(RefLogMessage { time, ..*change })
    }

    /// Removes the last line of each log if it has this time, `is_wanted` accepts it, and its
    /// change did not happen.
    fn remove_undone_lines(
        &self,
        time: Time,
        is_wanted: fn(&RefLogEntry) -> bool,
    ) -> Result<(), RefError> {
        for pointer in self.logged()? {
            let last = self.log_of(&pointer)?.pop();
            let Some(line) = last.filter(|line| line.time == time && is_wanted(line)) else {
                continue;
            };
            if self.target(&pointer).is_ok_and(|at| at != line.new && at == line.old) {
                ref_log::take_back_last(&self.disk, &self.log_file(&pointer));
            }
        }
        Ok(())
    }

    /// Returns the time of the last change of any ref, and whether the change was completed. If the
    /// lock file is lost, returns the time of the newest line in all logs as an incomplete change:
    /// only the earlier changes were certainly completed.
    ///
    /// # Errors
    /// [`RefError::Io`] if a log cannot be read.
    pub(in crate::repo) fn last_change(&self) -> Result<Option<LockRecord>, RefError> {
        if let Some(last) = LockRecord::read(&self.store.join(LOCK)) {
            return Ok(Some(last));
        }
        Ok(self.newest()?.map(|time| LockRecord { time, is_done: false }))
    }

    /// Returns the time of the newest line in all logs; `None` if there is no line.
    ///
    /// # Errors
    /// [`RefError::Io`] if a log cannot be read.
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
    fn last(&self) -> Option<LockRecord> {
        LockRecord::read(&self.path)
    }

    /// Writes the content of the lock file. Ignores errors: a full disk must not stop a ref from
    /// moving.
    fn set_last(&mut self, last: LockRecord) {
        if self.file.file().set_len(0).is_ok() {
            let done = if last.is_done { DONE } else { "" };
            let _ = self.file.write(format!("{}{done}\n", last.time.decimal()).as_bytes());
        }
    }

    /// Marks the last change as completed.
    pub(super) fn set_done(&mut self) {
        if let Some(last) = self.last() {
            self.set_last(LockRecord { is_done: true, ..last });
        }
    }
}

/// Waits until another thread of this process has opened the lock file of a store whose lock the
/// caller holds.
#[cfg(test)]
pub(in crate::repo) fn wait_for_second_open(held: &Lock) {
    use std::os::unix::fs::MetadataExt;
    let identity = |at: std::fs::Metadata| (at.dev(), at.ino());
    let lock = identity(held.file.file().metadata().unwrap());
    let start = Instant::now();
    loop {
        let open = fs_err::read_dir("/proc/self/fd").unwrap().flatten();
        let same =
            open.filter(|fd| fs_err::metadata(fd.path()).is_ok_and(|at| identity(at) == lock));
        if same.count() > 1 {
            return;
        }
        assert!(start.elapsed() < LOCK_WAIT, "no thread opens the lock file");
        std::thread::yield_now();
    }
}

/// The content of the lock file.
#[derive(Clone, Copy, Debug)]
pub(in crate::repo) struct LockRecord {
    pub(in crate::repo) time: Time,
    is_done: bool,
}

impl LockRecord {
    /// Returns true if this record proves that a logged change was completed.
    pub(in crate::repo) fn completes(&self, line: &RefLogEntry) -> bool {
        line.time < self.time || self.is_done && line.time == self.time
    }

    fn read(path: &Path) -> Option<Self> {
        let text = read_small(path, "time").ok()??;
        let text = text.strip_suffix('\n')?;
        let (time, is_done) = match text.strip_suffix(DONE) {
            Some(time) => (time, true),
            None => (text, false),
        };
        Some(Self { time: Time::parse_decimal(time)?, is_done })
    }
}
