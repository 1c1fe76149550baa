//! The audit log: one line of JSON for each request that changes something, appended to a
//! file of its own. Refused requests are logged, too.

use std::{
    fs::{File, Permissions},
    io::Write,
    net::IpAddr,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::Serialize;
use snap_core::base::{id::CommitId, io::PathError, time::Time};

use crate::causes::causes;

/// Mode of a new file: only its owner may read and write it.
const MODE: u32 = 0o600;

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

/// Commit of a ref before the request moved it. It is an extension of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousCommit(pub Option<CommitId>);

/// A line of the audit log.
#[derive(Debug, Serialize)]
pub(super) struct AuditRecord {
    /// Seconds since 1970, with milliseconds.
    pub(super) time: f64,
    pub(super) request: String,
    pub(super) who: Option<String>,
    pub(super) address: IpAddr,
    pub(super) repository: String,
    /// Kind of the changed object: `ref`, `pack`, `index`, `repository` and so on.
    pub(super) what: String,
    /// Name of the changed object.
    pub(super) name: String,
    pub(super) method: String,
    /// Commit of the ref before the request (from `If-Match` unless the handler reports it), and
    /// after it.
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
    /// 499 if the client disconnected before the response: the change may have been made.
    pub(super) status: u16,
}

/// Returns the current time in seconds since 1970, with milliseconds.
pub(super) fn now() -> f64 {
    let now = Time::now();
    now.secs as f64 + f64::from(now.nanos / 1_000_000) / 1000.0
}

impl Audit {
    /// Opens the log, and creates it if it does not exist.
    ///
    /// # Errors
    /// When the log cannot be opened.
    pub fn open(path: &Path) -> Result<Self, PathError> {
        let file = open(path)?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(Some(file)) })
    }

    /// Creates a log whose file is opened at the first line.
    pub(super) fn later(path: &Path) -> Self {
        Self { path: path.to_owned(), file: Mutex::new(None) }
    }

    /// Appends a line. If that fails, reports the error in the server's own log.
    pub(super) fn write(&self, line: &AuditRecord) {
        if let Err(error) = self.append(line) {
            let error = causes(&error);
            tracing::error!(%error, ?line, "cannot write a record of the audit log");
        }
    }

    fn append(&self, line: &AuditRecord) -> Result<(), PathError> {
        let failed = |source| PathError { action: "write", path: self.path.clone(), source };
        let mut bytes = serde_json::to_vec(line).map_err(|why| failed(why.into()))?;
        bytes.push(b'\n');
        let mut file = self.file.lock();
        // Log rotation renames the file: then open a new one.
        let there = fs_err::metadata(&self.path).ok().map(|meta| (meta.dev(), meta.ino()));
        let ours = file.as_ref().and_then(|file| file.metadata().ok());
        let ours = ours.map(|meta| (meta.dev(), meta.ino()));
        if ours.is_none() || ours != there {
            *file = Some(open(&self.path)?);
        }
        // One write for the whole line, so that lines of several servers do not mix.
        file.as_mut().map_or(Ok(()), |file| file.write_all(&bytes)).map_err(failed)
    }
}

fn open(path: &Path) -> Result<File, PathError> {
    let mut options = File::options();
    let file = options.append(true).create(true).mode(MODE).open(path);
    let file = file.map_err(PathError::when("open", path))?;
    let mode = file.metadata().map(|meta| meta.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o002 != 0) {
        // Other users must not add to the log.
        file.set_permissions(Permissions::from_mode(MODE))
            .map_err(PathError::when("change the mode of", path))?;
    }
    Ok(file)
}
