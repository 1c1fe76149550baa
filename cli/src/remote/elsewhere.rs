//! Reading a store elsewhere without a copy of it: `URL#REV:PATH`, or with the
//! name of a remote in place of its URL.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::Arc,
};

use snap_core::{disk::scratch::Scratch, repo::Repo};
use snap_remote::{
    location::Scheme,
    reading::{Reading, Which},
};

use super::{Memory, Place, connect::LimitArgs, place};
use crate::{context::Context, report::CliError};

/// What stands between a remote and a revision.
const MARK: u8 = b'#';

/// What is meant where no revision is said.
const LATEST: &str = "latest";

/// A store elsewhere that is read in place.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    reading: Reading,
    _scratch: Option<Arc<Scratch>>,
}

/// A text that names a store elsewhere, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// Its name or URL.
    pub(crate) remote: String,
    /// The revision there, with its path.
    pub(crate) rev: OsString,
}

impl Elsewhere {
    /// As if it were here; nothing is to be written to it.
    pub(crate) fn repo(&self) -> &Repo {
        self.reading.repo()
    }

    /// Where it is.
    pub(crate) fn location(&self) -> &str {
        self.reading.location()
    }
}

/// Whether a text begins as a location does.
fn is_location(text: &[u8]) -> bool {
    Scheme::ALL.iter().any(|(_, name)| {
        let front = text.get(..name.len());
        front.is_some_and(|front| front.eq_ignore_ascii_case(name.as_bytes()))
            && text[name.len()..].starts_with(b"://")
    })
}

impl Context {
    /// Takes a text apart, if it names a store elsewhere: by its URL, or by the
    /// name of a remote and a `#`.
    pub(crate) fn split_remote(&self, text: &OsStr) -> Result<Option<Split>, CliError> {
        let bytes = text.as_bytes();
        let mark = bytes.iter().position(|byte| *byte == MARK);
        let front = &bytes[..mark.unwrap_or(bytes.len())];
        let Ok(remote) = std::str::from_utf8(front) else { return Ok(None) };
        if !is_location(bytes) {
            // A path or a branch may have the mark in it, too.
            let may_be = mark.is_some() && !remote.is_empty() && place::is_name(remote);
            if !may_be || !self.settings_here()?.0.remotes().iter().any(|name| name == remote) {
                return Ok(None);
            }
        }
        let rev = mark.map(|at| bytes[at + 1..].to_vec()).unwrap_or_default();
        let rev = match rev.first() {
            None => LATEST.as_bytes().to_vec(),
            Some(b':') => [LATEST.as_bytes(), &rev].concat(),
            Some(_) => rev,
        };
        Ok(Some(Split { remote: remote.to_owned(), rev: OsString::from_vec(rev) }))
    }

    /// Opens a store elsewhere for its objects, whatever refs it has. What is learnt
    /// of it is kept as `memory` says.
    pub(crate) fn open_objects(
        &self,
        place: Place,
        memory: Memory,
        limits: &LimitArgs,
    ) -> Result<Elsewhere, CliError> {
        let (store, scratch) = self.connect_with(place, memory, limits)?.into_parts();
        let reading = Reading::open_objects(store, &self.waiting()?);
        let reading = reading.map_err(|error| self.remote_error(error))?;
        Ok(Elsewhere { reading, _scratch: scratch })
    }

    /// Opens a store elsewhere to read it, with the refs that are asked for.
    pub(crate) fn open_elsewhere(
        &self,
        remote: &str,
        which: Which<'_>,
    ) -> Result<Elsewhere, CliError> {
        let place = self.remote(place::Which::Named(remote))?;
        let connection = self.connect(place, &LimitArgs::default())?;
        let (store, scratch) = connection.into_parts();
        let reading = Reading::open(store, which, &self.waiting()?);
        let reading = reading.map_err(|error| self.remote_error(error))?;
        Ok(Elsewhere { reading, _scratch: scratch })
    }
}
