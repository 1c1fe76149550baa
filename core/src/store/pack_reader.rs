//! One pack file, opened for reading.
//!
//! Opening a pack takes three reads: header, trailer and frame table. Only index rebuilds, merges
//! and checks read the object table. A pack may also be a part of a bundle, or a stub whose frames
//! are on a remote: see [`RemoteFrames`](crate::store::RemoteFrames).

use std::{
    borrow::Cow,
    cell::RefCell,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{SeekFrom, seek};

use crate::{
    base::{id::PackId, io::PathError},
    codec::{CodecError, Decoder, StartDecoder},
    disk::{lock_wait::is_file_at, regular::open_regular},
    format::pack::{self, Frame, HEADER_BYTES, PackedObject, TRAILER_BYTES, Trailer},
    store::{
        StoreError, bundle::PackSpan, fetch::Fetcher, objects::actual_id, stub_cache::StubCache,
    },
};

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
    stub: Option<StubCache>,
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
        Ok(Self { file, path: path.to_owned(), id, base, trailer, frames, stub: None })
    }

    /// Sets the completeness of the pack and the source of its absent frames.
    pub(super) fn with_fetcher(
        self,
        completeness: Completeness,
        fetcher: Option<Arc<Fetcher>>,
    ) -> Self {
        let stub = StubCache::of(completeness, fetcher, self.frames.len());
        Self { stub, ..self }
    }

    /// Sets the name of a pack that was opened before it was known.
    pub(super) fn named(self, id: PackId) -> Self {
        Self { id, ..self }
    }

    /// Reports that this copy is damaged. Returns true if a remote has the pack.
    pub(super) fn report_damage(&self) -> bool {
        self.stub.as_ref().is_some_and(|stub| stub.report_damage(self.id))
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
        let mut stored = vec![0; frame.stored_bytes as usize];
        match &self.stub {
            None => self.read_frame(frame, &mut stored)?,
            Some(stub) => stub.read(self, frame, &mut stored)?,
        }
        Ok(stored)
    }

    /// Reads a frame of this file into `stored`, which has its length. Fetches nothing.
    ///
    /// # Errors
    /// [`StoreError::Frame`], or [`StoreError::Absent`] in a partial pack, if its checksum does not
    /// match; [`StoreError`] when the file cannot be read.
    pub(super) fn read_local(&self, frame: &Frame, stored: &mut [u8]) -> Result<(), StoreError> {
        match &self.stub {
            None => self.read_frame(frame, stored),
            Some(stub) => stub.read_local(self, frame, stored),
        }
    }

    /// Reads a frame of this file and verifies its checksum, whether or not this is a stub.
    pub(super) fn read_frame(&self, frame: &Frame, stored: &mut [u8]) -> Result<(), StoreError> {
        self.read_at(stored, frame.offset)?;
        match frame.matches(stored) {
            true => Ok(()),
            false => Err(StoreError::Frame { pack: self.id, offset_bytes: frame.offset }),
        }
    }

    /// Returns the error for a frame that is not stored locally.
    pub(super) fn absent(&self, frame: &Frame) -> StoreError {
        StoreError::Absent { pack: self.id, offset_bytes: frame.offset }
    }

    /// Returns true if a frame is stored locally. Does not read frames of a whole pack, which always
    /// count as local.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the file cannot be read.
    pub fn is_here(&self, frame: &Frame) -> Result<bool, StoreError> {
        self.stub.as_ref().map_or(Ok(true), |stub| stub.has(self, frame))
    }

    /// Returns true if a frame may be stored locally. Does not read its bytes.
    pub(super) fn may_be_here(&self, frame: &Frame) -> bool {
        self.stub.as_ref().is_none_or(|stub| stub.may_have(self, frame))
    }

    /// Returns what is known about absent frames, unless all frames are local and no remote has them.
    pub(super) fn stub(&self) -> Option<&StubCache> {
        self.stub.as_ref()
    }

    /// Returns the completeness of the pack.
    pub(super) fn completeness(&self) -> Completeness {
        self.stub.as_ref().map_or(Completeness::Whole, |stub| stub.completeness)
    }

    /// Returns the number of a frame in the frame table.
    pub(super) fn number(&self, frame: &Frame) -> Option<usize> {
        self.frames.binary_search_by_key(&frame.position(), Frame::position).ok()
    }

    /// Returns the path at which the pack was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the offset of the next byte of the file that is not in a hole, from `offset` on, or
    /// `None` if the file system does not report holes.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        match seek(self.file.file(), SeekFrom::Data(offset)) {
            Err(rustix::io::Errno::NXIO) => Some(u64::MAX),
            found => found.ok(),
        }
    }

    /// Returns true if the path of this pack now names another file. The file system does not reuse
    /// the inode number of an open file.
    pub(super) fn is_replaced(&self) -> bool {
        self.path.exists() && !is_file_at(self.file.file(), &self.path).unwrap_or(true)
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
        let raw_bytes = frame.raw_bytes as usize;
        with_decoder(|decoder| decoder.decode(frame.codec, stored, raw_bytes))
            .map(Cow::Owned)
            .map_err(|source| self.expand_error(frame, source))
    }
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
