//! A snapshot named on the command line. It is read from a store, from a bundle file, or from a
//! remote in place.

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
        path::{PathInTreeError, ResolvedPath, resolve_path},
        spec::Resolved,
    },
    store::{BundleStore, Store},
};
use snap_remote::reader::RefSelection;

use crate::{
    context::Context,
    remote::{RemoteRevision, RemoteSource},
    report::CliError,
    ui::text,
};

/// Suffix of the names of bundles.
pub(crate) const BUNDLE: &[u8] = b".snap";

/// A named snapshot and its source.
#[derive(Debug)]
pub(crate) struct Snapshot {
    source: SnapshotSource,
    /// The id of the commit.
    pub(crate) id: CommitId,
    /// The decoded commit.
    pub(crate) commit: Commit,
    /// The text before the `:`.
    name: String,
    /// The text after the `:`.
    pub(crate) path: Option<Vec<u8>>,
}

#[derive(Debug)]
enum SnapshotSource {
    Repo(Box<Repo>),
    Bundle(Box<BundleStore>),
    Remote(Box<RemoteSource>),
}

impl Snapshot {
    /// Returns the store with its objects.
    pub(crate) fn store(&self) -> &Store {
        match &self.source {
            SnapshotSource::Repo(repo) => repo.store(),
            SnapshotSource::Bundle(bundle) => bundle.store(),
            SnapshotSource::Remote(elsewhere) => elsewhere.repo().store(),
        }
    }

    /// Returns the local store with its refs; `None` for a bundle or a remote.
    pub(crate) fn repo(&self) -> Option<&Repo> {
        match &self.source {
            SnapshotSource::Repo(repo) => Some(repo),
            SnapshotSource::Bundle(_) | SnapshotSource::Remote(_) => None,
        }
    }

    /// Resolves the path: to the snapshot itself, or to an entry.
    pub(crate) fn find(&self) -> Result<ResolvedPath, CliError> {
        let path = self.path.as_deref().unwrap_or_default();
        find(self.store(), self.commit.tree, (&self.name, path))
    }
}

/// Resolves `path` in the snapshot that the user named `within`.
pub(crate) fn find(
    store: &Store,
    tree: TreeId,
    (within, path): (&str, &[u8]),
) -> Result<ResolvedPath, CliError> {
    resolve_path(store, tree, path).map_err(|error| match error {
        PathInTreeError::NotFound { path } => {
            CliError::NotWithin { path, within: text::line(within.as_bytes()) }
        }
        other => other.into(),
    })
}

impl Context {
    /// Opens the snapshot that `what` names: `REV[:PATH]` in the store, `FILE.snap[:PATH]`, or
    /// `REMOTE#REV[:PATH]`.
    pub(crate) fn open_snapshot(&self, what: &OsStr) -> Result<Snapshot, CliError> {
        if let Some((file, path)) = split_bundle(what.as_bytes(), is_named_bundle) {
            self.check_not_revision(&file)?;
            return self.open_bundle(&file, path);
        }
        match self.split_remote(what)? {
            Some(split) => self.open_in_remote(&split),
            None => self.open_in_store(what),
        }
    }

    /// Fails if the name of a bundle is also a revision. Only a name such as `origin/main` can be
    /// both: another user's snapshot may contain such a file.
    fn check_not_revision(&self, file: &Path) -> Result<(), CliError> {
        let name = file.as_os_str().as_bytes();
        let is_plain = [&b"/"[..], b"./", b"../"].iter().any(|start| name.starts_with(start));
        if is_plain || name.ends_with(BUNDLE) {
            return Ok(());
        }
        let is_revision = match self.find_store(Path::new("."))? {
            Some(store) => self.resolve(&self.open_found(&store)?, file.as_os_str()).is_ok(),
            None => false,
        };
        match is_revision {
            true => Err(CliError::FileOrRevision { name: text::line(name) }),
            false => Ok(()),
        }
    }

    fn open_in_remote(
        &self,
        RemoteRevision { remote, rev }: &RemoteRevision,
    ) -> Result<Snapshot, CliError> {
        let elsewhere =
            self.open_elsewhere(remote, RefSelection::Revisions(&[self.base_texts(rev)]))?;
        let Resolved { id, commit, rev, path } = self.resolve(elsewhere.repo(), rev)?;
        let name = format!("{}#{rev}", elsewhere.location());
        Ok(Snapshot { source: SnapshotSource::Remote(Box::new(elsewhere)), id, commit, name, path })
    }

    fn open_in_store(&self, what: &OsStr) -> Result<Snapshot, CliError> {
        let repo = match self.open_repo() {
            // Without a store, only a file can be meant.
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
        Ok(Snapshot { source: SnapshotSource::Repo(Box::new(repo)), id, commit, name, path })
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
        Ok(Snapshot {
            source: SnapshotSource::Bundle(Box::new(bundle)),
            id,
            commit,
            name: shown(),
            path,
        })
    }
}

/// Returns the hint for an error of a bundle, or for an argument that names a bundle where the
/// command does not accept one.
pub(crate) fn advice(error: &CliError, cx: &Context, arguments: &[OsString]) -> Option<String> {
    match (error, error.kind(), cx.bundle()) {
        (CliError::Restore(_), ErrorKind::Damaged, Some(file)) => {
            Some(format!("everything else was restored; {file} is damaged, copy it again"))
        }
        (CliError::Bundle { .. }, ..) => None,
        (_, ErrorKind::Damaged, Some(file)) => {
            Some(format!("{file} was changed after it was created; copy it again"))
        }
        (CliError::NoStore | CliError::Spec(SpecError::Unknown { .. }), _, None) => {
            // The output of a command may already exist.
            let is_output = |at: usize| matches!(arguments[at].to_str(), Some("-o" | "--output"));
            let is_wrong = |argument: &OsString| match error {
                CliError::Spec(SpecError::Unknown { text, .. }) => {
                    text::line(argument.as_bytes()).starts_with(text.as_str())
                }
                _ => true,
            };
            let mut bundles =
                (1..arguments.len()).filter(|at| !is_output(at - 1)).filter_map(|at| {
                    let argument = Some(&arguments[at]).filter(|argument| is_wrong(argument))?;
                    split_bundle(argument.as_bytes(), is_bundle).map(|(file, _)| file)
                });
            let bundle = bundles.next()?;
            let mut file = text::line(bundle.as_os_str().as_bytes());
            if !is_named_bundle(&bundle) {
                file.insert_str(0, "./");
            }
            Some(format!(
                "{file} is a bundle: `snap unpack` imports it into a store; show, ls, restore, \
                 export and `snap cat {file}:PATH` read it directly"
            ))
        }
        _ => None,
    }
}

/// Splits `what` into a bundle file and a path in it, if it names a bundle, which `is_bundle`
/// decides. A file name may contain `:`, so the longest part that is a bundle wins.
fn split_bundle(
    what: &[u8],
    is_bundle: impl Fn(&Path) -> bool,
) -> Option<(PathBuf, Option<Vec<u8>>)> {
    let colons = what.iter().enumerate().rev().filter(|(_, byte)| **byte == b':');
    std::iter::once(what.len()).chain(colons.map(|(at, _)| at)).find_map(|end| {
        let file = Path::new(OsStr::from_bytes(&what[..end]));
        is_bundle(file).then(|| (file.to_owned(), what.get(end + 1..).map(<[u8]>::to_vec)))
    })
}

/// Returns true if a file is a bundle and its name is that of one. A name without `/` and without
/// the suffix of bundles is a revision or a remote, whatever files there are.
pub(crate) fn is_named_bundle(file: &Path) -> bool {
    let name = file.as_os_str().as_bytes();
    (name.contains(&b'/') || name.ends_with(BUNDLE)) && is_bundle(file)
}

/// Returns true if a file is a bundle by its content or its name.
fn is_bundle(file: &Path) -> bool {
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

/// Returns true if a text looks like the name of a bundle.
fn looks_like_bundle(what: &[u8]) -> bool {
    what.ends_with(BUNDLE) || what.windows(6).any(|part| part == b".snap:")
}
