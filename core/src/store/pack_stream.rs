//! One pass over the bytes of a pack: reads them in order, checks frames and objects, hashes the
//! bytes, and passes them to a sink.
//!
//! A thread of the pool hashes a batch of frames and passes it on, while the others check the next
//! batch, so each byte is read once. The bytes come from a file, from a span of a
//! bundle, from a stub, or from a remote.

use std::{ops::Range, os::unix::fs::FileExt, path::Path};

use rayon::prelude::*;

use crate::{
    base::{
        id::PackId,
        io::PathError,
        limits,
        observe::{Observer, Silent},
    },
    disk::regular::open_regular,
    format::{
        pack::{Frame, PackedObject},
        wire::FormatError,
    },
    store::{FrameObjects, PackFile, RemoteFrames, StoreError, bundle::PackSpan},
};

/// Number of bytes outside the frames that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Size of a batch of frames of a file, in stored bytes: enough work for several threads, and few
/// enough that the batch is still in a cache of the processor when it is hashed.
const FILE_BATCH_BYTES: u64 = 3 << 20;

/// Size of a batch of frames of a remote, in stored bytes. Each batch is one request.
const REMOTE_BATCH_BYTES: u64 = 8 << 20;

/// Compression ratio above which a frame counts more than its stored bytes in a batch: its raw
/// bytes divided by this ratio. Decompressing such a frame takes longer than reading it.
const USUAL_RATIO: u32 = 4;

/// Takes a frame and its content, or the reason why the content cannot be read. Called by several
/// threads, in any order. An error ends the pass after the batch.
pub type EachFrame<'a> =
    dyn Fn(FrameObjects<'_>, Result<&[u8], StoreError>) -> Result<(), StoreError> + Sync + 'a;

/// Takes the next bytes of a pack. A pass reports no progress; a sink may.
pub type Sink<'a, E> = dyn FnMut(&[u8]) -> Result<(), E> + Send + 'a;

/// A pass over a pack.
#[derive(Clone, Copy)]
pub struct PackStream<'a> {
    pack: &'a PackFile,
    remote: Option<&'a dyn RemoteFrames>,
    observer: &'a dyn Observer,
}

/// A range of a pack that is read at once, and the frames that fill it, if any.
struct Piece<'a> {
    range: Range<u64>,
    frames: Vec<FrameObjects<'a>>,
}

impl Piece<'_> {
    fn bytes(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }
}

impl<'a> PackStream<'a> {
    /// Prepares a pass over the file of a pack. A pass fetches no frames.
    pub fn of(pack: &'a PackFile, observer: &'a dyn Observer) -> Self {
        Self { pack, remote: None, observer }
    }

    /// Prepares a pass over a pack of a remote. `pack` is its stub. A pass reads a frame once more
    /// if it does not match its checksum.
    pub fn of_remote(
        pack: &'a PackFile,
        remote: &'a dyn RemoteFrames,
        observer: &'a dyn Observer,
    ) -> Self {
        Self { pack, remote: Some(remote), observer }
    }

    /// Checks each frame against its checksum and each object against its id, and the hash of all
    /// bytes against the name of the pack. Returns false if the user asked to stop.
    ///
    /// # Errors
    /// The first error of a frame; [`StoreError::PackHash`]; [`StoreError::Format`] for a pack of more
    /// than [`limits::PACK_RAW_BYTES`] raw bytes, of which no frame is decompressed; the errors of `sink`.
    pub fn check<E: From<StoreError> + Send>(
        &self,
        objects: &[PackedObject],
        sink: &mut Sink<'_, E>,
    ) -> Result<bool, E> {
        let pack = self.pack.id();
        self.check_raw_bytes()?;
        match self.hash(objects, &refuse_wrong(pack), sink)? {
            Some(actual) if actual != pack => Err(StoreError::PackHash { pack, actual }.into()),
            hashed => Ok(hashed.is_some()),
        }
    }

    /// Checks each frame against its checksum and each object against its id. Does **not** hash the
    /// pack. Ends early without an error when the user asks to stop.
    ///
    /// # Errors
    /// As [`PackStream::check`].
    pub fn check_objects(&self, objects: &[PackedObject]) -> Result<(), StoreError> {
        self.check_raw_bytes()?;
        self.check_frames(self.pack.by_frame(objects), &refuse_wrong(self.pack.id()))
    }

    /// Refuses a pack that would take too long to decompress.
    fn check_raw_bytes(&self) -> Result<(), StoreError> {
        let claimed = self.pack.frames().iter().map(|frame| u64::from(frame.raw_bytes)).sum();
        FormatError::check_limit("expanded bytes", claimed, limits::PACK_RAW_BYTES)
            .map_err(|source| StoreError::Format { pack: self.pack.id(), source })
    }

    /// Reads all bytes. Passes the frames to `each` and the bytes to `sink`. Returns the hash of the
    /// bytes, or `None` if the user asked to stop.
    ///
    /// # Errors
    /// The errors of `each` and `sink`; [`StoreError`] when the bytes outside the frames cannot be read,
    /// or the remote cannot be reached.
    pub fn hash<E: From<StoreError> + Send>(
        &self,
        objects: &[PackedObject],
        each: &EachFrame<'_>,
        sink: &mut Sink<'_, E>,
    ) -> Result<Option<PackId>, E> {
        let mut pieces = vec![Piece { range: 0..self.pack.frames_start(), frames: Vec::new() }];
        pieces.extend(batches(self.pack.by_frame(objects), self.batch_bytes()));
        pieces.extend(cut(self.pack.frames_end()..self.pack.file_bytes()));
        let read = |piece: &Piece<'_>, bytes: &mut Vec<u8>| self.read(piece, bytes, each);
        hash(&pieces, &read, sink, self.observer)
    }

    /// Passes only these frames to `each`, and hashes nothing. Ends early without an error when the
    /// user asks to stop.
    ///
    /// # Errors
    /// The errors of `each`; [`StoreError`] when the remote cannot be reached.
    pub fn check_frames<'o>(
        &self,
        frames: impl Iterator<Item = FrameObjects<'o>>,
        each: &EachFrame<'_>,
    ) -> Result<(), StoreError> {
        let read = |piece: &Piece<'_>, bytes: &mut Vec<u8>| self.read(piece, bytes, each);
        let batches = batches(frames, self.batch_bytes());
        run(&batches, &read, &mut |_| Ok::<_, StoreError>(()), self.observer).map(drop)
    }

    fn batch_bytes(&self) -> u64 {
        if self.remote.is_some() { REMOTE_BATCH_BYTES } else { FILE_BATCH_BYTES }
    }

    /// Reads a piece into `bytes` and checks its frames.
    fn read(
        &self,
        piece: &Piece<'_>,
        bytes: &mut Vec<u8>,
        each: &EachFrame<'_>,
    ) -> Result<(), StoreError> {
        if let Some(remote) = self.remote {
            *bytes = self.fetch(remote, piece.range.clone())?;
        }
        // A remote may send too few bytes: no checksum or hash matches then.
        resize(bytes, piece.bytes());
        if piece.frames.is_empty() {
            return match self.remote {
                Some(_) => Ok(()),
                None => self.pack.read_at(bytes, piece.range.start),
            };
        }
        let mut rest = bytes.as_mut_slice();
        let mut stored = Vec::with_capacity(piece.frames.len());
        for contents in &piece.frames {
            let (this, others) = rest.split_at_mut(contents.frame.stored_bytes as usize);
            stored.push((*contents, this));
            rest = others;
        }
        let check = |(contents, stored): (FrameObjects<'_>, &mut [u8])| match self
            .read_frame(contents.frame, stored)
        {
            Err(error) if error.is_transport() => Err(error),
            Err(error) => each(contents, Err(error)),
            Ok(()) => match self.pack.expanded(contents.frame, stored) {
                Ok(raw) => each(contents, Ok(&raw)),
                Err(error) => each(contents, Err(error)),
            },
        };
        // All results, so that the first error does not depend on the threads.
        let checked: Vec<_> = stored.into_par_iter().with_max_len(1).map(check).collect();
        checked.into_iter().collect()
    }

    /// Reads a frame from the file into `stored`, or checks the bytes that the remote has sent.
    fn read_frame(&self, frame: &Frame, stored: &mut [u8]) -> Result<(), StoreError> {
        let Some(remote) = self.remote else {
            return self.pack.read_local(frame, stored);
        };
        if frame.matches(stored) {
            return Ok(());
        }
        // The bytes may have been damaged in transit.
        match self.fetch(remote, frame.range()) {
            Ok(again) if frame.matches(&again) => {
                stored.copy_from_slice(&again);
                Ok(())
            }
            Err(error) if error.is_transport() => Err(error),
            _ => Err(StoreError::Frame { pack: self.pack.id(), offset_bytes: frame.offset }),
        }
    }

    fn fetch(&self, remote: &dyn RemoteFrames, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let pack = self.pack.id();
        remote.read(pack, range).map_err(|source| StoreError::Fetch { pack, source })
    }
}

/// The file of a pack, and the place in it if the file is a bundle.
#[derive(Clone, Copy, Debug)]
pub struct PackPlace<'a> {
    pub path: &'a Path,
    pub span: Option<PackSpan>,
}

/// A pack that has passed all checks.
#[derive(Debug)]
pub(crate) struct CheckedPack {
    pub(crate) pack: PackFile,
    pub(crate) objects: Vec<PackedObject>,
}

/// Checks a pack and finds its name. Passes its bytes to `sink`. Returns `None` if the user asked to
/// stop.
///
/// Checked: the tables, every frame, and every object against its id.
///
/// # Errors
/// [`StoreError`] names the pack if it is damaged; the errors of `sink`.
pub(crate) fn check_unnamed(
    PackPlace { path, span }: PackPlace<'_>,
    sink: &mut Sink<'_, PathError>,
    observer: &dyn Observer,
) -> Result<Option<CheckedPack>, StoreError> {
    let check = |id, sink: &mut Sink<'_, PathError>| {
        let pack = PackFile::open_at(path, id, span)?;
        let objects = pack.objects()?;
        let stream = PackStream::of(&pack, observer);
        stream.check_raw_bytes()?;
        let mut sink = |bytes: &[u8]| Ok::<_, StoreError>(sink(bytes)?);
        let hashed = stream.hash(&objects, &refuse_wrong(id), &mut sink)?;
        Ok::<_, StoreError>(hashed.map(|id| CheckedPack { pack: pack.named(id), objects }))
    };
    let unnamed = PackId::from_bytes([0; 32]);
    match check(unnamed, sink) {
        Err(error) if error.damaged_pack() == Some(unnamed) => {
            let file = open_regular(path).map_err(PathError::when("open", path))?;
            let name = hash_bytes(&file, span, &mut |_| Ok::<_, StoreError>(()), observer)?;
            // The same error, with the name of the pack.
            let again = name.map(|name| check(name, &mut |_| Ok(())));
            again.and_then(Result::err).map_or(Err(error), Err)
        }
        checked => checked,
    }
}

/// Returns the ranges that a pass over a pack of a remote requests for these frames.
pub fn remote_ranges<'a>(frames: impl Iterator<Item = FrameObjects<'a>>) -> Vec<Range<u64>> {
    batches(frames, REMOTE_BATCH_BYTES).into_iter().map(|piece| piece.range).collect()
}

/// Reads the bytes in `span` of a file, or all, and passes them to `sink`. Returns their hash, or
/// `None` if the user asked to stop. Examines no contents: the bytes need not be a pack.
///
/// # Errors
/// [`PathError`] when the file cannot be read; the errors of `sink`.
pub fn hash_bytes<E: From<PathError> + Send>(
    file: &fs_err::File,
    span: Option<PackSpan>,
    sink: &mut Sink<'_, E>,
    observer: &dyn Observer,
) -> Result<Option<PackId>, E> {
    let path = file.path();
    let bytes = file.metadata().map_err(PathError::when("stat", path))?.len();
    let PackSpan { start, bytes } = span.unwrap_or(PackSpan { start: 0, bytes });
    let read = |piece: &Piece<'_>, bytes: &mut Vec<u8>| {
        resize(bytes, piece.bytes());
        let read = file.file().read_exact_at(bytes, piece.range.start);
        read.map_err(PathError::when("read", path))
    };
    hash(&cut(start..start + bytes).collect::<Vec<_>>(), &read, sink, observer)
}

/// Returns the hash of the bytes of a file, which is the name of a pack with these bytes.
///
/// # Errors
/// [`PathError`] when the file cannot be read.
pub fn hash_file(path: &Path) -> Result<PackId, PathError> {
    let file = open_regular(path).map_err(PathError::when("open", path))?;
    let hashed = hash_bytes(&file, None, &mut |_| Ok::<_, PathError>(()), &Silent)?;
    Ok(hashed.expect("a silent observer never asks to stop"))
}

/// Returns an [`EachFrame`] that fails at the first wrong object.
pub fn refuse_wrong(
    pack: PackId,
) -> impl Fn(FrameObjects<'_>, Result<&[u8], StoreError>) -> Result<(), StoreError> {
    move |contents, raw| contents.split_verified(pack, raw?).try_for_each(|object| object.map(drop))
}

/// Hashes pieces in order.
fn hash<R: Send, E: From<R> + Send>(
    pieces: &[Piece<'_>],
    read: &ReadPiece<'_, R>,
    sink: &mut Sink<'_, E>,
    observer: &dyn Observer,
) -> Result<Option<PackId>, E> {
    let mut hasher = blake3::Hasher::new();
    let mut take = |bytes: &[u8]| {
        hasher.update(bytes);
        sink(bytes)
    };
    let is_done = run(pieces, read, &mut take, observer)?;
    Ok(is_done.then(|| PackId::from_bytes(*hasher.finalize().as_bytes())))
}

/// Reads a piece into a buffer.
type ReadPiece<'a, R> = dyn Fn(&Piece<'_>, &mut Vec<u8>) -> Result<(), R> + Sync + 'a;

/// Reads pieces, each while `take` gets the piece before. Returns false if the user asked to stop.
fn run<R: Send, E: From<R> + Send>(
    pieces: &[Piece<'_>],
    read: &ReadPiece<'_, R>,
    take: &mut Sink<'_, E>,
    observer: &dyn Observer,
) -> Result<bool, E> {
    let (mut ready, mut next) = (Vec::new(), Vec::new());
    for piece in pieces {
        if observer.cancelled() {
            return Ok(false);
        }
        let (has_read, taken) = rayon::join(|| read(piece, &mut next), || take(&ready));
        taken?;
        has_read?;
        std::mem::swap(&mut ready, &mut next);
    }
    take(&ready)?;
    Ok(!observer.cancelled())
}

/// Groups frames into batches of consecutive ones. A frame is added while the batch has less than
/// `batch_bytes`.
fn batches<'a>(frames: impl Iterator<Item = FrameObjects<'a>>, batch_bytes: u64) -> Vec<Piece<'a>> {
    let (mut pieces, mut bytes) = (Vec::<Piece<'_>>::new(), 0);
    for contents in frames {
        let Frame { stored_bytes, raw_bytes, .. } = *contents.frame;
        let range = contents.frame.range();
        match pieces.last_mut().filter(|last| bytes < batch_bytes && last.range.end == range.start)
        {
            Some(last) => {
                last.range.end = range.end;
                last.frames.push(contents);
            }
            None => {
                bytes = 0;
                pieces.push(Piece { range, frames: vec![contents] });
            }
        }
        bytes += u64::from(stored_bytes.max(raw_bytes / USUAL_RATIO));
    }
    pieces
}

/// Cuts a range without frames into pieces.
fn cut<'a>(range: Range<u64>) -> impl Iterator<Item = Piece<'a>> {
    let starts = range.clone().step_by(PIECE_BYTES as usize);
    starts.map(move |start| Piece {
        range: start..range.end.min(start + PIECE_BYTES),
        frames: Vec::new(),
    })
}

/// Sets the length of a buffer whose bytes are overwritten next.
fn resize(bytes: &mut Vec<u8>, length: usize) {
    if bytes.capacity() < length {
        // The allocator provides zeroed pages, so `resize` writes nothing.
        *bytes = vec![0; length];
    }
    bytes.resize(length, 0);
}
