//! One pack file, opened for reading.
//!
//! Opening a pack takes three reads: header, trailer and frame table. Only index rebuilds, merges
//! and checks read the object table. A pack may also be a part of a bundle, or a stub whose frames
//! are on a remote: see [`RemoteFrames`](crate::store::RemoteFrames).

use std::{
    borrow::Cow,
    cell::RefCell,
    fs::{self, File},
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{SeekFrom, seek};

use crate::{
    base::{id::PackId, io::PathError, kind::ErrorKind},
    codec::{CodecError, Decoder, StartDecoder},
    disk::regular::open_regular,
    format::pack::{self, Frame, HEADER_BYTES, ObjectClass, PackedObject, TRAILER_BYTES, Trailer},
    store::{
        StoreError,
        bundle::PackSpan,
        fetch::{FetchGuard, Fetcher},
        objects::actual_id,
    },
};

/// Page size, in bytes. File systems keep data and holes in pages of this size or a divisor of it.
const PAGE_BYTES: u64 = 4096;

/// Whether all frames of a pack are stored locally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Completeness {
    /// All frames are local. A frame that does not match its checksum is damaged.
    #[default]
    Whole,
    /// Some frames may be on a remote only, and do not match their checksums in the stub.
    Partial,
}

/// A frame and its objects.
#[derive(Clone, Copy, Debug)]
pub struct FrameObjects<'a> {
    pub frame: &'a Frame,
    /// The objects, in the order of their bytes in the frame.
    pub objects: &'a [PackedObject],
}

impl<'a> FrameObjects<'a> {
    /// Iterates over the objects and their ranges in the raw frame.
    pub fn ranges(&self) -> impl Iterator<Item = (&'a PackedObject, Range<usize>)> + use<'a> {
        let mut end = 0;
        self.objects.iter().map(move |object| {
            let start = end;
            end += object.bytes as usize;
            (object, start..end)
        })
    }

    /// Splits the raw frame: iterates over the objects and their bytes.
    ///
    /// Cannot panic: the decoder of packs has checked that the objects fill the frame.
    pub fn split<'r>(
        &self,
        raw: &'r [u8],
    ) -> impl Iterator<Item = (&'a PackedObject, &'r [u8])> + use<'a, 'r> {
        self.ranges().map(|(object, range)| (object, &raw[range]))
    }

    /// Splits the raw frame and checks each object against its id.
    pub fn split_verified<'r>(
        &self,
        pack: PackId,
        raw: &'r [u8],
    ) -> impl Iterator<Item = Result<(&'a PackedObject, &'r [u8]), StoreError>> + use<'a, 'r> {
        self.split(raw).map(move |(object, bytes)| {
            let actual = actual_id(object.kind, bytes);
            match actual == object.id {
                true => Ok((object, bytes)),
                false => Err(StoreError::Damaged { pack, wanted: object.id, actual }),
            }
        })
    }
}

/// An open pack file with its frame table.
#[derive(Debug)]
pub struct PackFile {
    file: fs_err::File,
    path: PathBuf,
    id: PackId,
    /// Offset of the pack in the file: 0 except in a bundle.
    base: u64,
    trailer: Trailer,
    frames: Vec<Frame>,
    completeness: Completeness,
    /// For each frame of a partial pack: true if the frame is known to be stored locally.
    here: Vec<AtomicBool>,
    /// The remote source of frames that are not in the file.
    fetcher: Option<Arc<Fetcher>>,
}

thread_local! {
    /// One decompression context for each thread.
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
    static START_DECODER: RefCell<Option<StartDecoder>> = const { RefCell::new(None) };
}

impl PackFile {
    /// Opens the pack `id` at `path`.
    ///
    /// Checked: header, trailer, frame table. **Not** checked: the frames, and the hash of the
    /// file.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the file does not exist; otherwise the reason why the pack cannot be
    /// opened.
    pub fn open(path: &Path, id: PackId) -> Result<Self, StoreError> {
        Self::open_at(path, id, None)
    }

    /// Opens the pack in `span` of the file at `path`, or in the whole file without a span.
    pub(super) fn open_at(
        path: &Path,
        id: PackId,
        span: Option<PackSpan>,
    ) -> Result<Self, StoreError> {
        // Another program may have put a pipe into the folder, and opening a pipe would block.
        let file = open_regular(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Gone { pack: id },
            _ => PathError::when("open", path)(error).into(),
        })?;
        let whole = file.metadata().map_err(PathError::when("stat", path))?.len();
        let PackSpan { start: base, bytes } = span.unwrap_or(PackSpan { start: 0, bytes: whole });
        let format = |source| StoreError::Format { pack: id, source };

        let mut header = [0; HEADER_BYTES];
        let mut end = [0; TRAILER_BYTES];
        let read = |to: &mut [u8], offset| read_at(&file, path, id, to, base + offset);
        read(&mut header, 0)?;
        let extension = pack::decode_header(&header).map_err(format)?;
        read(&mut end, bytes.saturating_sub(TRAILER_BYTES as u64))?;
        let trailer = Trailer::decode(&end, bytes).map_err(format)?;
        let mut table = vec![0; trailer.frame_table_bytes()];
        read(&mut table, trailer.footer_offset())?;
        let start = (HEADER_BYTES as u64) + u64::from(extension);
        let frames = trailer.decode_frames(&table, start).map_err(format)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            id,
            base,
            trailer,
            frames,
            completeness: Completeness::Whole,
            here: Vec::new(),
            fetcher: None,
        })
    }

    /// Sets the completeness of the pack and the source of its absent frames.
    pub(super) fn with_fetcher(
        self,
        completeness: Completeness,
        fetcher: Option<Arc<Fetcher>>,
    ) -> Self {
        let here = match completeness {
            Completeness::Whole => Vec::new(),
            Completeness::Partial => self.frames.iter().map(|_| AtomicBool::new(false)).collect(),
        };
        Self { completeness, here, fetcher, ..self }
    }

    /// Sets the name of a pack that was opened before it was known.
    pub(super) fn named(self, id: PackId) -> Self {
        Self { id, ..self }
    }

    /// Reports that this copy is damaged. Returns true if a remote has the pack.
    pub(super) fn report_damage(&self) -> bool {
        self.fetcher.as_ref().is_some_and(|fetcher| fetcher.remote.record_damage(self.id))
    }

    /// Returns the pack's id.
    pub fn id(&self) -> PackId {
        self.id
    }

    /// Returns the length of the pack in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.trailer.file_bytes
    }

    /// Returns the number of objects.
    pub fn object_count(&self) -> usize {
        self.trailer.objects as usize
    }

    /// Returns the frame table.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Returns the frame with this number.
    ///
    /// # Errors
    /// [`StoreError::IndexMismatch`] when there is no such frame.
    pub fn frame(&self, number: u32) -> Result<&Frame, StoreError> {
        self.frames.get(number as usize).ok_or(StoreError::IndexMismatch { pack: self.id })
    }

    /// Reads and checks the object table.
    ///
    /// # Errors
    /// [`StoreError`] when the table cannot be read or is damaged.
    pub fn objects(&self) -> Result<Vec<PackedObject>, StoreError> {
        let mut table = vec![0; self.trailer.object_table_bytes()];
        let offset = self.trailer.footer_offset() + self.trailer.frame_table_bytes() as u64;
        let read = self.read_at(&mut table, offset);
        let objects = read.and_then(|()| {
            let objects = self.trailer.decode_objects(&table, &self.frames);
            objects.map_err(|source| StoreError::Format { pack: self.id, source })
        });
        objects.inspect_err(|_| {
            self.report_damage();
        })
    }

    /// Pairs each frame with its objects. `objects` are all objects of the pack, in
    /// order.
    pub fn by_frame<'a>(
        &'a self,
        objects: &'a [PackedObject],
    ) -> impl Iterator<Item = FrameObjects<'a>> {
        let mut rest = objects;
        self.frames().iter().map(move |frame| {
            let (objects, others) = rest.split_at(frame.objects as usize);
            rest = others;
            FrameObjects { frame, objects }
        })
    }

    /// Reads the stored bytes of a frame and verifies their checksum. Fetches an absent frame.
    ///
    /// # Errors
    /// [`StoreError::Frame`] if the checksum does not match. For an absent frame,
    /// [`StoreError::Absent`] without a source, or the reason why it could not be fetched.
    pub fn stored(&self, frame: &Frame) -> Result<Vec<u8>, StoreError> {
        let mut stored = Vec::new();
        self.stored_into(frame, &mut stored)?;
        Ok(stored)
    }

    /// Reads into a reusable buffer. Otherwise like [`PackFile::stored`].
    ///
    /// # Errors
    /// As [`PackFile::stored`].
    pub fn stored_into(&self, frame: &Frame, stored: &mut Vec<u8>) -> Result<(), StoreError> {
        if self.may_be_here(frame) && self.read_and_verify(frame, stored)? {
            if let Some(fetcher) =
                self.fetcher.as_ref().filter(|_| self.completeness == Completeness::Partial)
            {
                fetcher.remote.record_hit();
            }
            return Ok(());
        }
        match (self.completeness, &self.fetcher) {
            // This copy is damaged, but a remote has the pack, too.
            (Completeness::Whole, Some(fetcher))
                if self.report_damage() && !fetcher.is_paused() =>
            {
                self.fetch(fetcher, frame, stored)
            }
            (Completeness::Partial, Some(fetcher)) if !fetcher.is_paused() => {
                self.fetch(fetcher, frame, stored)
            }
            (Completeness::Whole | Completeness::Partial, _) => Err(self.unreadable(frame)),
        }
    }

    /// Returns the error for a frame that is damaged or missing in this file.
    fn unreadable(&self, frame: &Frame) -> StoreError {
        match self.completeness {
            Completeness::Whole => StoreError::Frame { pack: self.id, offset_bytes: frame.offset },
            Completeness::Partial => self.absent(frame),
        }
    }

    /// Returns the error for a frame that is not stored locally.
    pub(super) fn absent(&self, frame: &Frame) -> StoreError {
        StoreError::Absent { pack: self.id, offset_bytes: frame.offset }
    }

    /// Reads a frame into `stored`. Returns true if the bytes match the checksum.
    fn read_and_verify(&self, frame: &Frame, stored: &mut Vec<u8>) -> Result<bool, StoreError> {
        let bytes = frame.stored_bytes as usize;
        if stored.capacity() < bytes {
            // The allocator provides zeroed pages, so `resize` below writes nothing.
            *stored = vec![0; bytes];
        }
        stored.resize(bytes, 0);
        self.read_matching(frame, stored)
    }

    fn read_matching(&self, frame: &Frame, stored: &mut [u8]) -> Result<bool, StoreError> {
        let is_right = match self.read_at(stored, frame.offset) {
            Ok(()) => frame.matches(stored),
            // The file was truncated, or the disk cannot read it.
            Err(error) if !self.report_damage() => return Err(error),
            Err(_) => false,
        };
        self.set_here(frame, is_right);
        Ok(is_right)
    }

    /// Reads a frame of this file into `stored` and verifies its checksum. Fetches nothing.
    ///
    /// # Errors
    /// [`StoreError::Frame`], or [`StoreError::Absent`] in a partial pack, if the checksum does not
    /// match; [`StoreError`] when the file cannot be read.
    pub(super) fn read_local(&self, frame: &Frame, stored: &mut [u8]) -> Result<(), StoreError> {
        if self.read_matching(frame, stored)? {
            return Ok(());
        }
        if self.completeness == Completeness::Whole {
            self.report_damage();
        }
        Err(self.unreadable(frame))
    }

    /// Fetches a frame. For a partial pack, writes a copy of the frame into the stub: always for
    /// metadata, and for contents if the source keeps contents.
    fn fetch(
        &self,
        fetcher: &Fetcher,
        frame: &Frame,
        stored: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        if frame.class == ObjectClass::Metadata {
            fetcher.announce(self.metadata_to_fetch(fetcher, frame)?);
        }
        let _fetch: FetchGuard<'_> = fetcher.begin_fetch(self.id, frame.offset);
        // Another thread may have fetched this frame meanwhile.
        if self.may_be_here(frame) && self.read_and_verify(frame, stored)? {
            return Ok(());
        }
        *stored = match self.read_elsewhere(fetcher, frame) {
            // A bit may have flipped in transit. Retry once.
            Err(error) if error.kind() == ErrorKind::Damaged => {
                self.read_elsewhere(fetcher, frame)?
            }
            read => read?,
        };
        let keeps = self.completeness == Completeness::Partial
            && (frame.class == ObjectClass::Metadata || fetcher.remote.keeps_contents());
        // If the copy cannot be written, the next read fetches the frame again. `try_fill` does not
        // wait for the lock of the stub: a thread that completes this pack holds that lock, and may
        // be the thread that fetches.
        if keeps
            && fetcher.disk.try_fill(&self.path, frame.offset, stored).is_ok_and(|is_kept| is_kept)
        {
            self.mark_here(frame);
        }
        Ok(())
    }

    /// Reads a frame from the remote and verifies its checksum. Tells the source to discard bytes
    /// that do not match.
    fn read_elsewhere(&self, fetcher: &Fetcher, frame: &Frame) -> Result<Vec<u8>, StoreError> {
        let read = fetcher.remote.read(self.id, frame.range());
        let stored = read.map_err(|source| {
            fetcher.forget();
            StoreError::Fetch { pack: self.id, source }
        })?;
        if frame.matches(&stored) {
            return Ok(stored);
        }
        fetcher.remote.discard(self.id, frame.range());
        Err(StoreError::CorruptedInTransit {
            pack: self.id,
            offset_bytes: frame.offset,
            place: fetcher.remote.location(self.id),
        })
    }

    fn number(&self, frame: &Frame) -> Option<usize> {
        self.frames.binary_search_by_key(&frame.position(), Frame::position).ok()
    }

    /// Returns true if the file of this pack is `file`, which is at `path`.
    pub(super) fn is_of(&self, path: &Path, file: &File) -> Result<bool, StoreError> {
        let ours = self.file.metadata().map_err(PathError::when("stat", path))?;
        let other = file.metadata().map_err(PathError::when("stat", path))?;
        Ok(inode(&ours) == inode(&other))
    }

    /// Returns true if the path of this pack now names another file. The file system does not reuse
    /// the inode number of an open file.
    pub(super) fn is_replaced(&self) -> bool {
        match (self.file.metadata(), fs_err::metadata(&self.path)) {
            (Ok(ours), Ok(other)) => inode(&ours) != inode(&other),
            _ => false,
        }
    }

    /// Records that a frame is stored locally.
    pub(super) fn mark_here(&self, frame: &Frame) {
        self.set_here(frame, true);
    }

    fn set_here(&self, frame: &Frame, is_here: bool) {
        if self.completeness == Completeness::Partial
            && let Some(here) = self.number(frame).and_then(|number| self.here.get(number))
        {
            here.store(is_here, Ordering::Relaxed);
        }
    }

    /// Returns true if a frame is stored locally, that is, if its bytes match its checksum. Does
    /// not read frames of a whole pack, which always count as local.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the file cannot be read.
    pub fn is_here(&self, frame: &Frame) -> Result<bool, StoreError> {
        if self.is_known_here(frame) {
            return Ok(true);
        }
        Ok(!self.is_hole(frame.range()) && self.read_and_verify(frame, &mut Vec::new())?)
    }

    /// Returns true if a frame may be stored locally. Does not read its bytes.
    pub(super) fn may_be_here(&self, frame: &Frame) -> bool {
        self.is_known_here(frame) || !self.is_hole(frame.range())
    }

    fn is_known_here(&self, frame: &Frame) -> bool {
        let is_marked =
            |number: usize| self.here.get(number).map(|here| here.load(Ordering::Relaxed));
        self.completeness == Completeness::Whole
            || self.number(frame).and_then(is_marked) == Some(true)
    }

    /// Returns true if `range` is a hole. Returns false on a file system that does not report
    /// holes; the caller must then read the frame. Frames share their first and last page with
    /// their neighbours, so only whole pages inside `range` are queried, if `range` has any.
    fn is_hole(&self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let inner = range.start.next_multiple_of(PAGE_BYTES)..range.end / PAGE_BYTES * PAGE_BYTES;
        let range = if inner.is_empty() { range } else { inner };
        match seek(self.file.file(), SeekFrom::Data(range.start)) {
            Ok(data) => data >= range.end,
            Err(error) => error == rustix::io::Errno::NXIO,
        }
    }

    /// Lists the absent metadata frames, for a prefetch: first the frames from `first` on, then the
    /// frames before it. Readers usually need all metadata frames of a pack. Returns an empty list
    /// after the first call for a pack.
    pub(super) fn metadata_to_fetch(
        &self,
        fetcher: &Fetcher,
        first: &Frame,
    ) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        if !fetcher.claim_metadata_prefetch(self.id) {
            return Ok(Vec::new());
        }
        let (before, from): (Vec<&Frame>, Vec<&Frame>) = self
            .frames
            .iter()
            .filter(|frame| frame.class == ObjectClass::Metadata)
            .partition(|frame| frame.offset < first.offset);
        let mut ranges = Vec::new();
        for frame in from.into_iter().chain(before) {
            if !self.is_here(frame)? {
                ranges.push((self.id, frame.range()));
            }
        }
        Ok(ranges)
    }

    /// Returns the completeness of the pack.
    pub(super) fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// Returns the offset of the first frame.
    pub(super) fn frames_start(&self) -> u64 {
        let stored = self.frames.iter().map(|frame| u64::from(frame.stored_bytes));
        self.frames_end() - stored.sum::<u64>()
    }

    /// Returns the end of the last frame, where the footer starts.
    pub(super) fn frames_end(&self) -> u64 {
        self.trailer.footer_offset()
    }

    /// Reads the bytes of the pack in `range`.
    pub(super) fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read_at(&mut bytes, range.start)?;
        Ok(bytes)
    }

    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), StoreError> {
        read_at(&self.file, &self.path, self.id, bytes, self.base + offset)
    }

    /// Reads and decompresses a frame. Does **not** check its objects against their ids.
    ///
    /// # Errors
    /// [`StoreError`] when the frame cannot be read or is damaged.
    pub fn raw(&self, frame: &Frame) -> Result<Vec<u8>, StoreError> {
        let stored = self.stored(frame)?;
        self.expand(frame, stored)
    }

    /// Reads a frame and decompresses at least its first `bytes` bytes, or the whole of a shorter
    /// frame, into `raw`. Does **not** check the objects against their ids.
    ///
    /// # Errors
    /// As [`PackFile::raw`].
    pub(super) fn read_start(
        &self,
        frame: &Frame,
        bytes: usize,
        raw: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let stored = self.stored(frame)?;
        if frame.codec == pack::Codec::Raw {
            *raw = stored;
            return Ok(());
        }
        let raw_bytes = frame.raw_bytes as usize;
        let decoded = if bytes >= raw_bytes {
            with_decoder(|decoder| decoder.decode_into(&stored, raw_bytes, raw))
        } else {
            START_DECODER.with_borrow_mut(|slot| {
                let decoder = match slot {
                    Some(decoder) => decoder,
                    None => slot.insert(StartDecoder::new()?),
                };
                decoder.decode(&stored, bytes, raw_bytes, raw)
            })
        };
        decoded.map_err(|source| self.expand_error(frame, source))
    }

    fn expand_error(&self, frame: &Frame, source: CodecError) -> StoreError {
        StoreError::Expand { pack: self.id, offset_bytes: frame.offset, source }
    }

    /// Decompresses the stored bytes of a frame.
    ///
    /// # Errors
    /// [`StoreError::Expand`] when the bytes are not a valid frame of their codec.
    pub fn expand(&self, frame: &Frame, stored: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        if frame.codec == pack::Codec::Raw {
            return Ok(stored);
        }
        self.expanded(frame, &stored).map(Cow::into_owned)
    }

    /// Like [`PackFile::expand`], for borrowed bytes.
    pub(super) fn expanded<'a>(
        &self,
        frame: &Frame,
        stored: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, StoreError> {
        if frame.codec == pack::Codec::Raw {
            return Ok(Cow::Borrowed(stored));
        }
        decode(frame, stored).map(Cow::Owned).map_err(|source| self.expand_error(frame, source))
    }
}

/// Returns the device and inode numbers, which identify a file.
fn inode(stat: &fs::Metadata) -> (u64, u64) {
    (stat.dev(), stat.ino())
}

fn decode(frame: &Frame, stored: &[u8]) -> Result<Vec<u8>, CodecError> {
    with_decoder(|decoder| decoder.decode(frame.codec, stored, frame.raw_bytes as usize))
}

/// Uses the decompression context of this thread.
fn with_decoder<T>(
    decode: impl FnOnce(&mut Decoder) -> Result<T, CodecError>,
) -> Result<T, CodecError> {
    DECODER.with_borrow_mut(|slot| {
        decode(if let Some(decoder) = slot { decoder } else { slot.insert(Decoder::new()?) })
    })
}

/// Reads `bytes` from `offset` on. If the file ends earlier, reports the pack as damaged.
fn read_at(
    file: &fs_err::File,
    path: &Path,
    id: PackId,
    bytes: &mut [u8],
    offset: u64,
) -> Result<(), StoreError> {
    file.file().read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StoreError::Format {
            pack: id,
            source: crate::format::wire::FormatError::Truncated {
                what: "the pack",
                at: offset as usize,
            },
        },
        _ => PathError::when("read", path)(error).into(),
    })
}
