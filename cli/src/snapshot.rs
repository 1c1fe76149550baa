//! A snapshot that was named on the command line: in a store, or in a bundle
//! file or a store elsewhere that is read in place.

use std::{
    ffi::{OsStr, OsString},
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use snap_core::{
    base::{
        id::{CommitId, TreeId},
        kind::ErrorKind,
    },
    format::{bundle, commit::Commit, pack::HEADER_BYTES},
    repo::{
        Repo, SpecError,
        path::{Found, PathInTreeError, resolve_path},
        spec::Resolved,
    },
    store::{BundleStore, Store},
};
use snap_remote::reading::Which;

use crate::{
    context::Context,
    remote::{Elsewhere, Split},
    report::CliError,
    ui::text,
};

/// Ending of the names of bundles.
pub(crate) const BUNDLE: &[u8] = b".snap";

/// A snapshot that was named, and what it is read from.
#[derive(Debug)]
pub(crate) struct Snapshot {
    source: Source,
    /// The commit.
    pub(crate) id: CommitId,
    /// What it says.
    pub(crate) commit: Commit,
    /// What stood before the `:`.
    name: String,
    /// What followed it.
    pub(crate) path: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Source {
    Repo(Box<Repo>),
    Bundle(Box<BundleStore>),
    Elsewhere(Box<Elsewhere>),
}

impl Snapshot {
    /// Where its objects are.
    pub(crate) fn store(&self) -> &Store {
        match &self.source {
            Source::Repo(repo) => repo.store(),
            Source::Bundle(bundle) => bundle.store(),
            Source::Elsewhere(elsewhere) => elsewhere.repo().store(),
        }
    }

    /// The store here with its refs, unless it is in a bundle or elsewhere.
    pub(crate) fn repo(&self) -> Option<&Repo> {
        match &self.source {
            Source::Repo(repo) => Some(repo),
            Source::Bundle(_) | Source::Elsewhere(_) => None,
        }
    }

    /// What was named in it: itself, or an entry.
    pub(crate) fn find(&self) -> Result<Found, CliError> {
        let path = self.path.as_deref().unwrap_or_default();
        find(self.store(), self.commit.tree, (&self.name, path))
    }
}

/// What `path` names in the snapshot that was named `within`.
pub(crate) fn find(
    store: &Store,
    tree: TreeId,
    (within, path): (&str, &[u8]),
) -> Result<Found, CliError> {
    resolve_path(store, tree, path).map_err(|error| match error {
        PathInTreeError::NotFound { path } => {
            CliError::NotWithin { path, within: text::line(within.as_bytes()) }
        }
        other => other.into(),
    })
}

impl Context {
    /// Opens what `what` names: `REV[:PATH]` in the store, `FILE.snap[:PATH]`,
    /// or `REMOTE#REV[:PATH]`.
    pub(crate) fn open_snapshot(&self, what: &OsStr) -> Result<Snapshot, CliError> {
        if let Some((file, path)) = find_bundle(what.as_bytes()) {
            return self.open_bundle(&file, path);
        }
        match self.split_remote(what)? {
            Some(split) => self.open_in_remote(&split),
            None => self.open_in_store(what),
        }
    }

    fn open_in_remote(&self, Split { remote, rev }: &Split) -> Result<Snapshot, CliError> {
        let elsewhere = self.open_elsewhere(remote, Which::Of(&[rev.as_bytes()]))?;
        let Resolved { id, commit, rev, path } = self.resolve(elsewhere.repo(), rev)?;
        let name = format!("{}#{rev}", elsewhere.location());
        Ok(Snapshot { source: Source::Elsewhere(Box::new(elsewhere)), id, commit, name, path })
    }

    fn open_in_store(&self, what: &OsStr) -> Result<Snapshot, CliError> {
        let repo = match self.open_repo() {
            // Without a store a file is all that can have been meant.
            Err(CliError::NoStore) if looks_like_bundle(what.as_bytes()) => {
                return Err(CliError::NoBundle { file: text::line(what.as_bytes()) });
            }
            repo => repo?,
        };
        let found = self.resolve(&repo, what).map_err(|error| match error {
            CliError::Spec(SpecError::Unknown { .. }) if looks_like_bundle(what.as_bytes()) => {
                CliError::NoBundle { file: text::line(what.as_bytes()) }
            }
            other => other,
        })?;
        let Resolved { id, commit, rev: name, path } = found;
        Ok(Snapshot { source: Source::Repo(Box::new(repo)), id, commit, name, path })
    }

    fn open_bundle(&self, file: &Path, path: Option<Vec<u8>>) -> Result<Snapshot, CliError> {
        let shown = || text::line(file.as_os_str().as_bytes());
        self.reads_bundle(shown());
        let opened = BundleStore::open(file, self.scratch(), &self.progress());
        let bundle = opened
            .map_err(|source| CliError::Bundle { file: shown(), source: Box::new(source) })?;
        let id = bundle.head().commit;
        let commit = bundle.store().commit(&id);
        let commit = commit
            .map_err(|source| CliError::InBundle { file: shown(), source: Box::new(source) })?;
        Ok(Snapshot { source: Source::Bundle(Box::new(bundle)), id, commit, name: shown(), path })
    }
}

/// What to do about an error that has to do with a bundle, or with one that was
/// named where none is read.
pub(crate) fn advice(
    error: &CliError,
    cx: &Context,
    arguments: impl Iterator<Item = OsString>,
) -> Option<String> {
    match (error, error.kind(), cx.bundle()) {
        (CliError::Restore(_), ErrorKind::Damaged, Some(file)) => {
            Some(format!("what could be restored was; get {file} again, it has changed"))
        }
        (CliError::Bundle { .. }, ..) => None,
        (_, ErrorKind::Damaged, Some(file)) => {
            Some(format!("{file} has changed since it was made; get it again"))
        }
        (CliError::NoStore | CliError::Spec(SpecError::Unknown { .. }), _, None) => {
            let bundle = arguments.skip(1).find(|argument| is_bundle(Path::new(argument)))?;
            let file = text::line(bundle.as_bytes());
            Some(format!(
                "{file} is a bundle: `snap unpack` makes a store of it; show, ls, restore, export \
                 and `snap cat {file}:PATH` read it as it is"
            ))
        }
        _ => None,
    }
}

/// The file and the path in it, if `what` names a bundle. A name may contain
/// `:`, so the longest part that is one counts.
fn find_bundle(what: &[u8]) -> Option<(PathBuf, Option<Vec<u8>>)> {
    let colons = what.iter().enumerate().rev().filter(|(_, byte)| **byte == b':');
    std::iter::once(what.len()).chain(colons.map(|(at, _)| at)).find_map(|end| {
        let file = Path::new(OsStr::from_bytes(&what[..end]));
        is_bundle(file).then(|| (file.to_owned(), what.get(end + 1..).map(<[u8]>::to_vec)))
    })
}

/// Whether a file is a bundle, or called like one.
pub(crate) fn is_bundle(file: &Path) -> bool {
    if !fs_err::metadata(file).is_ok_and(|meta| meta.is_file()) {
        return false;
    }
    if file.as_os_str().as_bytes().ends_with(BUNDLE) {
        return true;
    }
    let mut header = [0; HEADER_BYTES];
    let read = fs_err::File::open(file).and_then(|mut file| file.read_exact(&mut header));
    let decoded = bundle::decode_header(&header);
    let is_one =
        |error: &snap_core::format::wire::FormatError| error.kind() == ErrorKind::Unsupported;
    read.is_ok() && decoded.map_or_else(|error| is_one(&error), |_| true)
}

/// Whether a text reads as the name of a bundle.
fn looks_like_bundle(what: &[u8]) -> bool {
    what.ends_with(BUNDLE) || what.windows(6).any(|part| part == b".snap:")
}
