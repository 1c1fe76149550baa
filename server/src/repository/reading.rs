//! Reads from commits: resolves a revision, finds the entry at a path, reads file
//! contents.

use std::{io, ops::Range};

use bytes::Bytes;
use snap_core::{
    base::{
        id::{CommitId, ContentId, PackId},
        kind::ErrorKind,
    },
    format::{
        commit::Commit,
        tree::{Entry, EntryKind},
    },
    ops::restore::RestoreSource,
    repo::{
        path::{ResolvedPath, components, resolve_path},
        spec::{Revisions, SpecError},
    },
    store::{ContentError, ContentReader, FileContent, Store},
};

use super::Repository;
use crate::{
    causes::causes,
    problem::{Code, HttpProblem},
    upstream::repository::Freshness,
};

/// A commit and the revision text that names it.
#[derive(Clone, Debug)]
pub struct Revision {
    /// The commit's id.
    pub id: CommitId,
    /// The decoded commit.
    pub commit: Commit,
    /// True if the revision text is the full id, which always names the same commit.
    pub is_id: bool,
}

/// A file in a commit.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// The commit that contains the file.
    pub revision: Revision,
    /// The id of the file's content.
    pub id: ContentId,
    /// The length of the file's content in bytes.
    pub size: u64,
    /// The position of the content if it is a single object, `None` if it was cut into
    /// chunks.
    pub place: Option<InFrame>,
}

/// The position of an object inside a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InFrame {
    pub pack: PackId,
    /// The number of the frame in the pack.
    pub number: u32,
    /// The first byte of the object in the expanded frame.
    pub offset: u32,
    /// The length of the object in bytes.
    pub bytes: u32,
}

impl InFrame {
    /// Returns the object's bytes from its expanded frame, or `None` if the frame is
    /// too short.
    pub fn slice(&self, frame: &Bytes) -> Option<Bytes> {
        let (start, end) = (self.offset as usize, self.offset as usize + self.bytes as usize);
        (end <= frame.len()).then(|| frame.slice(start..end))
    }
}

impl Repository {
    /// Resolves a revision such as a commit id, a unique prefix of one, or a ref.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Invalid`] when the text is not a revision,
    /// [`Code::Unavailable`].
    pub fn revision(&self, text: &str) -> Result<Revision, HttpProblem> {
        self.check_seen()?;
        let revisions = Revisions::new(&self.repo, &|_| None);
        let find = || {
            let id = revisions.commit(text)?;
            Ok((id, self.repo.store().commit(&id)?))
        };
        let mut found: Result<_, SpecError> = find();
        let may_be_there = |error: &SpecError| {
            let is_kept = self.upstream.is_some() && error.kind() == ErrorKind::Damaged;
            error.kind() == ErrorKind::NotFound || is_kept
        };
        if found.as_ref().is_err_and(may_be_there) {
            // Another server or process may have added the commit just now, or the
            // cached copy may be damaged. Refresh and try once more.
            self.catch_up(Freshness::Now);
            self.refresh()?;
            found = find();
        }
        let (id, commit) = found.map_err(|error| not_named(text, error))?;
        let is_id = text.parse().is_ok_and(|text: CommitId| text == id);
        Ok(Revision { id, commit, is_id })
    }

    /// Returns the entry at a path of a commit.
    ///
    /// # Errors
    /// [`Code::NotFound`], and [`Code::Invalid`] for a path with `..`.
    pub fn at_path(&self, commit: &Commit, path: &[u8]) -> Result<ResolvedPath, HttpProblem> {
        Ok(resolve_path(self.repo.store(), commit.tree, path)?)
    }

    /// Returns the source for an export of `path`, and a name for the export: the last component of
    /// the path, or the first 12 digits of the commit id for the root.
    ///
    /// # Errors
    /// As [`Repository::at_path`].
    pub fn part(
        &self,
        revision: &Revision,
        path: &[u8],
    ) -> Result<(RestoreSource, Vec<u8>), HttpProblem> {
        let (root, short) = (revision.commit.root.clone(), revision.id.to_string());
        let name = components(path).last().map(<[u8]>::to_vec);
        let what = match self.at_path(&revision.commit, path)? {
            ResolvedPath::Root(tree) => RestoreSource::Folder { tree, root },
            ResolvedPath::Entry(Entry { kind: EntryKind::Folder { id }, metadata, .. }) => {
                RestoreSource::Folder { tree: id, root: Some(metadata) }
            }
            ResolvedPath::Entry(entry) => RestoreSource::Entry(Box::new(entry)),
        };
        Ok((what, name.unwrap_or_else(|| short.as_bytes()[..12].to_vec())))
    }

    /// Finds a file in a commit.
    ///
    /// # Errors
    /// [`Code::NotFound`] when there is no such file.
    pub fn file(&self, rev: &str, path: &[u8]) -> Result<FoundFile, HttpProblem> {
        let revision = self.revision(rev)?;
        let (id, size) = match self.at_path(&revision.commit, path)? {
            ResolvedPath::Entry(Entry { kind: EntryKind::File { size, id }, .. }) => (id, size),
            ResolvedPath::Entry(entry) => return Err(no_file(entry.kind.noun())),
            ResolvedPath::Root(_) => return Err(no_file("folder")),
        };
        let store = self.repo.store();
        let located = store.locate_file(&FileContent { id, bytes: size })?;
        let place = located.filter(|_| !id.is_chunked()).and_then(|place| {
            let (number, offset, bytes) = (place.frame, place.offset, place.bytes);
            store.pack_id(place.pack).map(|pack| InFrame { pack, number, offset, bytes })
        });
        Ok(FoundFile { revision, id, size, place })
    }

    /// Reads and expands a frame. Its checksum is verified; the objects in it are
    /// **not** checked against their ids.
    ///
    /// # Errors
    /// [`Code::NotFound`] when the pack was merged into another one meanwhile.
    pub fn frame(&self, pack: PackId, number: u32) -> Result<Bytes, HttpProblem> {
        let file = self.repo.store().open_pack(&pack)?;
        Ok(Bytes::from(file.raw(file.frame(number)?)?))
    }
}

/// Writes a range of a content chunk by chunk, and checks each chunk against its id.
///
/// # Errors
/// The errors of `out`, and [`io::ErrorKind::InvalidData`] when the content cannot be read
/// or is damaged.
pub fn write_content(
    store: &Store,
    id: &ContentId,
    size: u64,
    range: Range<u64>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let written = ContentReader::new(store).read(id, Some(size), range, &mut |bytes| {
        out.write_all(bytes).map_err(ContentError::Callback)
    });
    match written {
        Ok(_) => Ok(()),
        Err(ContentError::Callback(error)) => Err(error),
        Err(ContentError::Store(error)) => {
            tracing::error!(%id, error = %causes(&error), "cannot read the content of a file");
            Err(io::Error::new(io::ErrorKind::InvalidData, error))
        }
    }
}

fn no_file(noun: &str) -> HttpProblem {
    HttpProblem::new(Code::NotFound, format!("the path is a {noun}, not a file"))
}

fn not_named(text: &str, error: SpecError) -> HttpProblem {
    match error {
        SpecError::Store(error) => error.into(),
        SpecError::Ref(error) => error.into(),
        error => {
            let code = match error.kind() {
                ErrorKind::Invalid => Code::Invalid,
                _ => Code::NotFound,
            };
            tracing::debug!(text, error = %causes(&error), "not a revision");
            HttpProblem::new(code, error.to_string())
        }
    }
}
