//! The log of writes: who changed what, one line of JSON each, appended to a
//! file of its own. What was refused is in it, too.

use std::{
    fs::{File, Permissions},
    io::Write,
    net::IpAddr,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::Serialize;
use snap_core::base::{id::CommitId, io::PathError, time::Time};

use crate::causes::causes;

/// Only its owner may read it, and those whom the owner lets.
const MODE: u32 = 0o600;

/// The log of writes.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

/// Where a ref stood that was moved, in the extensions of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stood(pub Option<CommitId>);

/// A line of it.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    /// Seconds since 1970, with milliseconds.
    pub(super) time: f64,
    pub(super) request: String,
    pub(super) who: Option<String>,
    pub(super) address: IpAddr,
    pub(super) repository: String,
    /// `ref`, `pack`, `index`, `repository` and so on.
    pub(super) what: String,
    /// Which one.
    pub(super) name: String,
    pub(super) method: String,
    /// Where a ref was said to stand, and where it stands now.
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
    /// 499 if whoever asked went away: it may have been done, or not.
    pub(super) status: u16,
}

/// The present, for a line.
pub(super) fn now() -> f64 {
    let now = Time::now();
    now.secs as f64 + f64::from(now.nanos / 1_000_000) / 1000.0
}

impl Audit {
    /// Opens the log, and makes it if there is none.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, PathError> {
        let file = open(path)?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(Some(file)) })
    }

    /// A log that is opened when it is first needed.
    pub(super) fn later(path: &Path) -> Self {
        Self { path: path.to_owned(), file: Mutex::new(None) }
    }

    /// Appends a line. When that fails it is told in the other log.
    pub(super) fn write(&self, line: &Line) {
        if let Err(error) = self.append(line) {
            let error = causes(&error);
            tracing::error!(%error, ?line, "a write is missing in the audit log");
        }
    }

    fn append(&self, line: &Line) -> Result<(), PathError> {
        let failed = |source| PathError { action: "write", path: self.path.clone(), source };
        let mut bytes = serde_json::to_vec(line).map_err(|why| failed(why.into()))?;
        bytes.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever puts old logs away gives the file another name.
        let there = fs_err::metadata(&self.path).ok().map(|meta| (meta.dev(), meta.ino()));
        let ours = file.as_ref().and_then(|file| file.metadata().ok());
        let ours = ours.map(|meta| (meta.dev(), meta.ino()));
        if ours.is_none() || ours != there {
            *file = Some(open(&self.path)?);
        }
        // In one piece, so that lines of several servers do not mix.
        file.as_mut().map_or(Ok(()), |file| file.write_all(&bytes)).map_err(failed)
    }
}

fn open(path: &Path) -> Result<File, PathError> {
    let mut options = File::options();
    let file = options.append(true).create(true).mode(MODE).open(path);
    let file = file.map_err(PathError::when("open", path))?;
    let mode = file.metadata().map(|meta| meta.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o002 != 0) {
        // Nobody else should add to it.
        file.set_permissions(Permissions::from_mode(MODE))
            .map_err(PathError::when("change the mode of", path))?;
    }
    Ok(file)
}
