//! Bundle files: written front to back, and read from a pipe or from a seekable file.
//!
//! For the byte format see [`format::bundle`](crate::format::bundle). This module does not examine
//! the contents of the packs.

use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use crate::{
    base::{
        blocked::Blocked,
        id::{CommitId, ObjectId, PackId},
        io::PathError,
        kind::{ErrorKind, Kind},
        limits,
        observe::Observer,
    },
    disk::regular::open_regular,
    format::{
        bundle::{self, BundleHead, LENGTH_BYTES},
        pack::{HEADER_BYTES, TRAILER_BYTES},
        wire::FormatError,
    },
    store::{
        Store, StoreError,
        pack_stream::{PackPlace, hash_bytes},
    },
};

/// Number of bytes that are copied at a time.
const COPY_BYTES: usize = 256 << 10;

/// Why a bundle could not be read or written.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Damaged)]
#[non_exhaustive]
pub enum BundleError {
    /// The head is invalid, or a newer snap wrote it.
    #[error("the file is not a bundle")]
    Head(#[source] FormatError),
    /// The bundle has no bytes, for example because its sender failed.
    #[error("the bundle is empty")]
    Empty,
    /// The bundle ends too early.
    #[error("the bundle is truncated at byte {at}")]
    Cut { at: u64 },
    /// Bytes follow the end marker of the bundle.
    #[error("the bundle has extra bytes after its end, from byte {at} on")]
    Trailing { at: u64 },
    /// The length field of a pack has an impossible value.
    #[error("the bundle has an invalid pack length at byte {at}: {bytes} bytes")]
    PackBytes { at: u64, bytes: u64 },
    /// The bundle has more packs than the limit.
    #[error("the bundle has more than {} packs", limits::BUNDLE_PACKS)]
    Packs,
    /// The bundle would name more prerequisites than readers accept.
    #[error("the bundle would have {count} prerequisites; the limit is {}", limits::PREREQUISITES)]
    #[kind(Invalid)]
    Prerequisites { count: usize },
    /// The totals in the head do not match the contents. `what` is "objects" or "bytes of
    /// content".
    #[error("the bundle has {found} {what} instead of {claimed}")]
    Totals { what: &'static str, claimed: u64, found: u64 },
    /// The bundle has an object twice.
    #[error("object {id} is in the bundle twice")]
    Duplicate { id: ObjectId },
    /// The bundle has objects that its commit does not refer to.
    #[error("the bundle has {count} objects that its commit does not refer to")]
    Stray { count: u64 },
    /// One of the packs is damaged.
    #[error("the pack at byte {at} of the bundle is damaged")]
    #[kind(of_pack(source))]
    Pack { at: u64, source: StoreError },
    /// The bundle has prerequisites, so it cannot be read in place.
    #[error("the bundle is incomplete: it requires commit {}", prerequisites(.missing))]
    #[kind(NotFound)]
    Incomplete { missing: Vec<CommitId> },
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// The stream could not be read or written. `action` is "read" or "write".
    #[error("cannot {action} the bundle")]
    Stream { action: &'static str, source: io::Error },
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The store, or the scratch folder, could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BundleError {
    /// Returns the error with the offset of the pack in the bundle, if the pack is damaged.
    pub(crate) fn in_pack(self, at: u64) -> Self {
        match self {
            Self::Store(source) if source.damaged_pack().is_some() => Self::Pack { at, source },
            error => error,
        }
    }
}

/// The bundle is damaged if its pack lacks an object.
fn of_pack(error: &StoreError) -> ErrorKind {
    match error.kind() {
        ErrorKind::NotFound => ErrorKind::Damaged,
        kind => kind,
    }
}

/// Formats a list of commits: the id of the first commit, and the number of the others.
fn prerequisites(ids: &[CommitId]) -> String {
    match ids {
        [] => "others".to_owned(),
        [one] => format!("{one:.12}"),
        [first, rest @ ..] => format!("{first:.12} and {} more", rest.len()),
    }
}

impl BundleHead {
    /// Compares the totals in the head with those of the received packs.
    ///
    /// # Errors
    /// [`BundleError::Totals`].
    pub fn check_totals(&self, objects: u64, raw_bytes: u64) -> Result<(), BundleError> {
        let pairs =
            [("objects", self.objects, objects), ("bytes of content", self.raw_bytes, raw_bytes)];
        match pairs.into_iter().find(|(_, claimed, found)| claimed != found) {
            None => Ok(()),
            Some((what, claimed, found)) => Err(BundleError::Totals { what, claimed, found }),
        }
    }
}

fn reading(source: io::Error) -> BundleError {
    BundleError::Stream { action: "read", source }
}

fn writing(source: io::Error) -> BundleError {
    BundleError::Stream { action: "write", source }
}

/// Writes a bundle front to back.
#[derive(Debug)]
pub struct BundleWriter<W> {
    out: W,
    bytes: u64,
    packs: usize,
}

impl<W: Write + Send> BundleWriter<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// [`BundleError::Prerequisites`], [`BundleError::Stream`].
    pub fn new(mut out: W, head: &BundleHead) -> Result<Self, BundleError> {
        if head.prerequisites.len() > limits::PREREQUISITES {
            return Err(BundleError::Prerequisites { count: head.prerequisites.len() });
        }
        let head = head.encode();
        out.write_all(&head).map_err(writing)?;
        Ok(Self { out, bytes: head.len() as u64, packs: 0 })
    }

    /// Copies a pack of `store` and hashes its bytes on the way.
    ///
    /// # Errors
    /// [`StoreError::PackHash`] if the bytes do not hash to the pack's name, and
    /// [`BundleError::Blocked`]. Then the bundle is unusable.
    pub fn copy_pack(
        &mut self,
        store: &Store,
        id: PackId,
        observer: &dyn Observer,
    ) -> Result<(), BundleError> {
        if self.packs == limits::BUNDLE_PACKS {
            return Err(BundleError::Packs);
        }
        self.packs += 1;
        let path = store.pack_path(&id);
        let file = open_regular(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Gone { pack: id },
            _ => PathError::when("open", &path)(error).into(),
        })?;
        let bytes = file.metadata().map_err(PathError::when("stat", &path))?.len();
        self.write(&bytes.to_le_bytes())?;
        let mut sink = |bytes: &[u8]| {
            self.write(bytes)?;
            observer.advance(bytes.len() as u64, 0);
            Ok::<_, BundleError>(())
        };
        match hash_bytes(&file, None, &mut sink, observer)? {
            None => Err(Blocked::Interrupted.into()),
            Some(actual) if actual != id => Err(StoreError::PackHash { pack: id, actual }.into()),
            Some(_) => Ok(()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(writing)
    }

    /// Writes the end marker. Returns the length of the bundle in bytes.
    ///
    /// # Errors
    /// [`BundleError::Stream`].
    pub fn finish(mut self) -> Result<u64, BundleError> {
        self.write(&[0; LENGTH_BYTES])?;
        self.out.flush().map_err(writing)?;
        Ok(self.bytes)
    }
}

/// Reads a bundle front to back.
#[derive(Debug)]
pub struct BundleReader<R = io::Empty> {
    input: BundleInput<R>,
    at: u64,
    packs: usize,
}

#[derive(Debug)]
enum BundleInput<R> {
    Stream(R),
    /// A file, with its length. Its packs can be read in place.
    File(fs_err::File, u64),
}

impl<R: Read> BundleReader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// [`BundleError::Head`], [`BundleError::Empty`], [`BundleError::Cut`],
    /// [`BundleError::Stream`].
    pub fn new(input: R) -> Result<(Self, BundleHead), BundleError> {
        Self::begin(BundleInput::Stream(input))
    }

    /// Opens a bundle file and reads its head. Does **not** check that the file is complete:
    /// [`read_outline`] does.
    ///
    /// # Errors
    /// As [`BundleReader::new`], and [`BundleError::Io`].
    pub fn of_file(path: &Path) -> Result<(Self, BundleHead), BundleError> {
        let file = fs_err::File::open(path).map_err(PathError::when("open", path))?;
        let bytes = file.metadata().map_err(PathError::when("stat", path))?.len();
        Self::begin(BundleInput::File(file, bytes))
    }

    fn begin(input: BundleInput<R>) -> Result<(Self, BundleHead), BundleError> {
        let mut reader = Self { input, at: 0, packs: 0 };
        let mut head = vec![0; HEADER_BYTES];
        reader.fill(&mut head).map_err(|error| match error {
            BundleError::Cut { at: 0 } => BundleError::Empty,
            error => error,
        })?;
        let extension = bundle::decode_header(&head).map_err(BundleError::Head)?;
        head.resize(HEADER_BYTES + extension as usize, 0);
        reader.fill(&mut head[HEADER_BYTES..])?;
        Ok((reader, BundleHead::decode(&head).map_err(BundleError::Head)?))
    }

    /// Returns true if the bundle is a file, so that packs can be read in place.
    pub fn is_file(&self) -> bool {
        matches!(self.input, BundleInput::File(..))
    }

    /// Returns the offset of the entry of the next pack, and the length of the pack, or `None` at the
    /// end of the bundle. The caller must read or skip the whole pack before the next call.
    ///
    /// # Errors
    /// [`BundleError`] when the next bytes are neither a pack nor the end marker.
    pub fn next_pack(&mut self) -> Result<Option<(u64, u64)>, BundleError> {
        let mut length = [0; LENGTH_BYTES];
        let at = self.at;
        self.fill(&mut length)?;
        let bytes = u64::from_le_bytes(length);
        if bytes == 0 {
            let end = self.at;
            let is_end = self.read(&mut [0])? == 0;
            return if is_end { Ok(None) } else { Err(BundleError::Trailing { at: end }) };
        }
        let least = (HEADER_BYTES + TRAILER_BYTES) as u64;
        if !(least..=limits::PACK_BYTES).contains(&bytes) {
            return Err(BundleError::PackBytes { at, bytes });
        }
        self.packs += 1;
        if self.packs > limits::BUNDLE_PACKS {
            return Err(BundleError::Packs);
        }
        Ok(Some((at, bytes)))
    }

    /// Skips the next pack, of `bytes` bytes, and returns its place in the bundle file.
    ///
    /// # Errors
    /// [`BundleError::Cut`]; [`BundleError::Stream`], also if the bundle is a stream.
    pub fn skip_pack(&mut self, bytes: u64) -> Result<PackPlace<'_>, BundleError> {
        let BundleInput::File(file, file_bytes) = &mut self.input else {
            return Err(reading(io::ErrorKind::Unsupported.into()));
        };
        if bytes > file_bytes.saturating_sub(self.at) {
            return Err(BundleError::Cut { at: *file_bytes });
        }
        let span = PackSpan { start: self.at, bytes };
        self.at += bytes;
        file.seek(SeekFrom::Start(self.at)).map_err(reading)?;
        Ok(PackPlace { path: file.path(), span: Some(span) })
    }

    /// Passes the next `bytes` bytes to `each`, piece by piece.
    ///
    /// # Errors
    /// [`BundleError::Cut`], [`BundleError::Stream`], and the errors of `each`.
    pub fn read_pack(
        &mut self,
        bytes: u64,
        each: &mut dyn FnMut(&[u8]) -> Result<(), BundleError>,
    ) -> Result<(), BundleError> {
        let mut buffer = vec![0; COPY_BYTES];
        let mut left = bytes;
        while left > 0 {
            let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.read(&mut buffer[..room])? {
                0 => return Err(BundleError::Cut { at: self.at }),
                read => {
                    each(&buffer[..read])?;
                    left -= read as u64;
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, BundleError> {
        loop {
            let read = match &mut self.input {
                BundleInput::Stream(input) => input.read(bytes),
                BundleInput::File(file, _) => file.read(bytes),
            };
            match read {
                Ok(read) => {
                    self.at += read as u64;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(reading(error)),
            }
        }
    }

    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), BundleError> {
        while !bytes.is_empty() {
            match self.read(bytes)? {
                0 => return Err(BundleError::Cut { at: self.at }),
                read => bytes = &mut bytes[read..],
            }
        }
        Ok(())
    }
}

/// The location of a pack in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackSpan {
    /// Offset of the first byte of the pack.
    pub start: u64,
    /// Length of the pack in bytes.
    pub bytes: u64,
}

/// Reads the head of the bundle at `path` and locates its packs.
///
/// # Errors
/// [`BundleError`] when the file is not a bundle, or is truncated.
pub fn read_outline(path: &Path) -> Result<(BundleHead, Vec<PackSpan>), BundleError> {
    let (mut reader, head) = BundleReader::<io::Empty>::of_file(path)?;
    let mut spans = Vec::new();
    while let Some((_, bytes)) = reader.next_pack()? {
        spans.extend(reader.skip_pack(bytes)?.span);
    }
    Ok((head, spans))
}
