//! Reading commits: what a text names, what is at a path, and the bytes there.

use std::{io, ops::Range};

use bytes::Bytes;
use snap_core::{
    base::{
        id::{BlobId, CommitId, PackId},
        kind::ErrorKind,
    },
    format::{
        commit::Commit,
        pack::ObjectKind,
        tree::{Entry, Kind},
    },
    ops::restore::What,
    repo::{
        path::{Found, components, resolve_path},
        spec::{Revisions, SpecError},
    },
    store::{Content, Store, StoreError},
};

use super::Repository;
use crate::{
    causes::causes,
    problem::{Code, Problem},
    upstream::behind::Freshness,
};

/// A commit that a text names.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Which.
    pub id: CommitId,
    /// What it says.
    pub commit: Commit,
    /// Whether the text is the whole id, and so names it for good.
    pub is_id: bool,
}

/// A file in a commit.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// The commit.
    pub revision: Revision,
    /// Its content.
    pub id: BlobId,
    /// Its length in bytes.
    pub size: u64,
    /// Where the content lies, if it is one object.
    pub place: Option<InFrame>,
}

/// A content in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InFrame {
    /// Pack and number of the frame.
    pub frame: (PackId, u32),
    /// Where the content starts in its raw bytes.
    pub offset: u32,
    /// How long it is.
    pub bytes: u32,
}

impl InFrame {
    /// The content's bytes in its frame.
    pub fn slice(&self, frame: &Bytes) -> Option<Bytes> {
        let (start, end) = (self.offset as usize, self.offset as usize + self.bytes as usize);
        (end <= frame.len()).then(|| frame.slice(start..end))
    }
}

impl Repository {
    /// The commit that a text names: an id, the start of one, or a ref.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Invalid`] for what is no revision, and
    /// [`Code::Unavailable`].
    pub fn revision(&self, text: &str) -> Result<Revision, Problem> {
        self.check_seen()?;
        let revisions = Revisions::new(&self.repo, &|_| None);
        let find = || {
            let id = revisions.commit(text)?;
            Ok((id, self.repo.store().commit(&id)?))
        };
        let mut found: Result<_, SpecError> = find();
        let may_be_there = |error: &SpecError| {
            let is_kept = self.behind.is_some() && error.kind() == ErrorKind::Damaged;
            error.kind() == ErrorKind::NotFound || is_kept
        };
        if found.as_ref().is_err_and(may_be_there) {
            // Somebody else may have brought it, or a copy here may be damaged.
            self.catch_up(Freshness::Now);
            self.refresh()?;
            found = find();
        }
        let (id, commit) = found.map_err(|error| not_named(text, error))?;
        let is_id = text.parse().is_ok_and(|text: CommitId| text == id);
        Ok(Revision { id, commit, is_id })
    }

    /// What a path of a commit names.
    ///
    /// # Errors
    /// [`Code::NotFound`], and [`Code::Invalid`] for a path that climbs.
    pub fn at_path(&self, commit: &Commit, path: &[u8]) -> Result<Found, Problem> {
        Ok(resolve_path(self.repo.store(), commit.tree, path)?)
    }

    /// What of a commit is exported for a path, and what to call it.
    ///
    /// # Errors
    /// As [`Repository::at_path`].
    pub fn part(&self, revision: &Revision, path: &[u8]) -> Result<(What, Vec<u8>), Problem> {
        let (root, short) = (revision.commit.root.clone(), revision.id.to_string());
        let name = components(path).last().map(<[u8]>::to_vec);
        let what = match self.at_path(&revision.commit, path)? {
            Found::Root(tree) => What::Folder { tree, root },
            Found::Entry(Entry { kind: Kind::Folder { id }, metadata, .. }) => {
                What::Folder { tree: id, root: Some(metadata) }
            }
            Found::Entry(entry) => What::Entry(Box::new(entry)),
        };
        Ok((what, name.unwrap_or_else(|| short.as_bytes()[..12].to_vec())))
    }

    /// A file of a commit.
    ///
    /// # Errors
    /// [`Code::NotFound`] when there is no such file.
    pub fn file(&self, rev: &str, path: &[u8]) -> Result<FoundFile, Problem> {
        let revision = self.revision(rev)?;
        let (id, size) = match self.at_path(&revision.commit, path)? {
            Found::Entry(Entry { kind: Kind::File { size, id }, .. }) => (id, size),
            Found::Entry(entry) => return Err(no_file(entry.kind.noun())),
            Found::Root(_) => return Err(no_file("folder")),
        };
        let store = self.repo.store();
        let place = match store.content(&id)? {
            Content::Whole(place) => store.pack_id(place.pack).map(|pack| {
                let (offset, bytes) = (place.offset, place.bytes);
                InFrame { frame: (pack, place.frame), offset, bytes }
            }),
            Content::Chunks(_) => None,
        };
        Ok(FoundFile { revision, id, size, place })
    }

    /// A frame by pack and number, expanded. Its checksum holds; what is in it is
    /// **not** checked against ids.
    ///
    /// # Errors
    /// [`Code::NotFound`] when the pack was merged into another one meanwhile.
    pub fn frame(&self, (pack, number): (PackId, u32)) -> Result<Bytes, Problem> {
        let file = self.repo.store().open_pack(&pack)?;
        Ok(Bytes::from(file.raw(file.frame(number)?)?))
    }
}

/// Writes a range of a content, chunk by chunk, each checked against its id. Of
/// all of it the hash is checked, too, before the last bytes go.
///
/// # Errors
/// Those of `out`, and what is wrong with the content, as one of the kind
/// [`io::ErrorKind::InvalidData`].
pub fn write_content(
    store: &Store,
    (id, size): (&BlobId, u64),
    range: Range<u64>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let wrong = |error: StoreError| {
        tracing::error!(%id, error = %causes(&error), "cannot be read");
        io::Error::new(io::ErrorKind::InvalidData, error)
    };
    let pieces = match store.content(id).map_err(wrong)? {
        Content::Whole(_) => {
            let bytes = store.object(&id.object(), ObjectKind::Blob).map_err(wrong)?;
            let part = bytes.get(range.start as usize..range.end as usize);
            return out.write_all(part.ok_or(io::ErrorKind::InvalidData)?);
        }
        Content::Chunks(pieces) => pieces,
    };
    let mut whole = (range == (0..size)).then(blake3::Hasher::new);
    let mut at = 0;
    for piece in pieces {
        let (start, end) = (at, at + u64::from(piece.bytes));
        at = end;
        if end <= range.start || start >= range.end {
            continue;
        }
        let bytes = store.object(&piece.id.object(), ObjectKind::Blob).map_err(wrong)?;
        if let Some(whole) = &mut whole {
            whole.update(&bytes);
            if end == size && whole.finalize().as_bytes() != id.as_bytes() {
                tracing::error!(%id, "its chunks are those of another content");
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let (from, to) = (range.start.max(start) - start, range.end.min(end) - start);
        let part = bytes.get(from as usize..to as usize);
        out.write_all(part.ok_or(io::ErrorKind::InvalidData)?)?;
    }
    Ok(())
}

fn no_file(noun: &str) -> Problem {
    Problem::new(Code::NotFound, format!("this is a {noun}, not a file"))
}

fn not_named(text: &str, error: SpecError) -> Problem {
    match error {
        SpecError::Store(error) => error.into(),
        SpecError::Ref(error) => error.into(),
        error => {
            let code = match error.kind() {
                ErrorKind::Invalid => Code::Invalid,
                _ => Code::NotFound,
            };
            tracing::debug!(text, error = %causes(&error), "names no commit");
            Problem::new(code, error.to_string())
        }
    }
}
