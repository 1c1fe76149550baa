//! Reads a remote in place, without a local copy: `URL#REV:PATH`, `FOLDER#REV:PATH` with the path of
//! a folder, or `NAME#REV:PATH` with the name of a remote.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    sync::Arc,
};

use snap_core::{disk::scratch::Scratch, repo::Repo};
use snap_remote::{
    location::{Location, Scheme},
    peer::CONFIG,
    peer::local::LocalStore,
    reader::{RefSelection, RemoteReader},
};

use super::{CachePolicy, RemoteSpec, connect::LimitArgs, spec};
use crate::{context::Context, report::CliError};

/// The separator between a remote and a revision.
const MARK: u8 = b'#';

/// The default revision.
const LATEST: &str = "latest";

/// A remote that is read in place.
#[derive(Debug)]
pub(crate) struct RemoteSource {
    reading: RemoteReader,
    _scratch: Option<Arc<Scratch>>,
}

/// The parts of a text that names a remote and a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteRevision {
    /// The name or URL of the remote.
    pub(crate) remote: String,
    /// The revision, with its path.
    pub(crate) rev: OsString,
}

impl RemoteSource {
    /// Returns the remote as a repository that must not be written to.
    pub(crate) fn repo(&self) -> &Repo {
        self.reading.repo()
    }

    /// Returns the location of the remote.
    pub(crate) fn location(&self) -> &str {
        self.reading.location()
    }
}

/// Returns true if a text starts with the scheme of a location.
pub(crate) fn is_location(text: &[u8]) -> bool {
    Scheme::ALL.iter().any(|(_, name)| {
        let front = text.get(..name.len());
        front.is_some_and(|front| front.eq_ignore_ascii_case(name.as_bytes()))
            && text[name.len()..].starts_with(b"://")
    })
}

impl Context {
    /// Splits a text that names a remote by its URL, or by the path of its folder or its name and a
    /// `#`. Returns `None` for any other text.
    pub(crate) fn split_remote(&self, text: &OsStr) -> Result<Option<RemoteRevision>, CliError> {
        let bytes = text.as_bytes();
        let mark = bytes.iter().position(|byte| *byte == MARK);
        let front = &bytes[..mark.unwrap_or(bytes.len())];
        let Ok(remote) = std::str::from_utf8(front) else { return Ok(None) };
        if !is_location(bytes) {
            // A path or a branch may contain the separator too.
            let is_remote = match mark {
                None => false,
                Some(_) if Location::is_path(remote) => self.is_remote_folder(remote),
                Some(_) if remote.is_empty() || !spec::is_name(remote) => false,
                Some(_) => self.settings_here()?.0.remotes().iter().any(|name| name == remote),
            };
            if !is_remote {
                return Ok(None);
            }
        }
        let rev = mark.map(|at| bytes[at + 1..].to_vec()).unwrap_or_default();
        let rev = match rev.first() {
            None => LATEST.as_bytes().to_vec(),
            Some(b':') => [LATEST.as_bytes(), &rev].concat(),
            Some(_) => rev,
        };
        Ok(Some(RemoteRevision { remote: remote.to_owned(), rev: OsString::from_vec(rev) }))
    }

    /// Returns true if a path is the folder of a store, a project with a store, or a remote.
    fn is_remote_folder(&self, path: &str) -> bool {
        self.settings().expand(path).is_ok_and(|folder| {
            // Opening the remote reports the error of a store that is not used.
            folder.join(CONFIG).is_file() || !matches!(LocalStore::find(&folder), Ok(None))
        })
    }

    /// Opens a remote for its objects, whatever refs it has. `memory` decides whether its cache is
    /// kept. The remote must not be the store in `dir` itself.
    pub(crate) fn open_objects(
        &self,
        place: RemoteSpec,
        dir: Option<&Path>,
        memory: CachePolicy,
        limits: &LimitArgs,
    ) -> Result<RemoteSource, CliError> {
        let (store, scratch) = self.connect_with(place, memory, limits)?.into_parts();
        let is_another = dir.map_or(Ok(()), |dir| store.must_be_another(dir));
        is_another.map_err(|error| self.remote_error(error))?;
        let reading = RemoteReader::open_objects(store, &self.waiting()?);
        let reading = reading.map_err(|error| self.remote_error(error))?;
        Ok(RemoteSource { reading, _scratch: scratch })
    }

    /// Opens a remote for reading, with the requested refs.
    pub(crate) fn open_elsewhere(
        &self,
        remote: &str,
        which: RefSelection<'_>,
    ) -> Result<RemoteSource, CliError> {
        let place = self.remote(spec::RemoteChoice::Named(remote))?;
        let connection = self.connect(place, &LimitArgs::default())?;
        let (store, scratch) = connection.into_parts();
        let reading = RemoteReader::open(store, which, &self.waiting()?);
        let reading = reading.map_err(|error| self.remote_error(error))?;
        Ok(RemoteSource { reading, _scratch: scratch })
    }
}
