//! One pack file, opened for reading.
//!
//! Opening costs three reads (header, trailer, frame table); the object table
//! is read only by those who rebuild the index, merge or verify. A pack may
//! also lie inside a larger file, a bundle, or be a stub of which some frames
//! lie elsewhere: see [`distant`](crate::store::Distant).

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
    base::{id::PackId, io::PathError},
    codec::{CodecError, Decoder},
    disk::regular::open_regular,
    format::pack::{self, Class, Frame, HEADER_BYTES, Object, TRAILER_BYTES, Trailer},
    store::{
        StoreError,
        bundle::Span,
        fetch::{Fetcher, Turn},
    },
};

/// What file systems keep data or holes in, or a multiple of it.
const PAGE_BYTES: u64 = 4096;

/// Whether all of a pack is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Home {
    /// It is: what does not match its checksum is damaged.
    #[default]
    Whole,
    /// Some frames lie elsewhere: what does not match its checksum does.
    Partial,
}

/// A pack file with its frame table.
#[derive(Debug)]
pub struct PackFile {
    file: fs_err::File,
    path: PathBuf,
    id: PackId,
    /// Where the pack starts in the file: not at 0 in a bundle.
    base: u64,
    trailer: Trailer,
    frames: Vec<Frame>,
    home: Home,
    /// Frames of a partial pack that were found here, or put here.
    here: Vec<AtomicBool>,
    /// Where the frames come from that are not in the file.
    fetcher: Option<Arc<Fetcher>>,
}

thread_local! {
    /// One expanding context a thread.
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

impl PackFile {
    /// Opens the pack `id` at `path`.
    ///
    /// Checked: header, trailer, frame table. **Not** checked: that the file
    /// hashes to its name, and the frames themselves.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when there is no such file, else what is wrong
    /// with it.
    pub fn open(path: &Path, id: PackId) -> Result<Self, StoreError> {
        Self::open_at(path, id, None)
    }

    /// Opens the pack that fills `span` of the file at `path`, or all of it.
    pub(super) fn open_at(path: &Path, id: PackId, span: Option<Span>) -> Result<Self, StoreError> {
        // A pack may lie in a folder that somebody else filled: a pipe is not waited for.
        let file = open_regular(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Gone { pack: id },
            _ => PathError::when("open", path)(error).into(),
        })?;
        let whole = file.metadata().map_err(PathError::when("stat", path))?.len();
        let Span { start: base, bytes } = span.unwrap_or(Span { start: 0, bytes: whole });
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
            home: Home::Whole,
            here: Vec::new(),
            fetcher: None,
        })
    }

    /// The same as a pack of that kind, of which frames may come from elsewhere.
    pub(super) fn in_place(self, home: Home, fetcher: Option<Arc<Fetcher>>) -> Self {
        let here = match home {
            Home::Whole => Vec::new(),
            Home::Partial => self.frames.iter().map(|_| AtomicBool::new(false)).collect(),
        };
        Self { home, here, fetcher, ..self }
    }

    /// Reports that this copy is damaged. Returns whether the pack can be read from
    /// elsewhere.
    pub(super) fn report_damage(&self) -> bool {
        self.fetcher.as_ref().is_some_and(|fetcher| fetcher.distant.found_damage(self.id))
    }

    /// Its name.
    pub fn id(&self) -> PackId {
        self.id
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.trailer.file_bytes
    }

    /// The frame table.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The frame with this number.
    ///
    /// # Errors
    /// [`StoreError::Format`] when there is none: the index is not of this pack.
    pub fn frame(&self, number: u32) -> Result<&Frame, StoreError> {
        let source =
            crate::format::wire::FormatError::Invalid { what: "frame number", at: number as usize };
        self.frames.get(number as usize).ok_or(StoreError::Format { pack: self.id, source })
    }

    /// Reads and checks the object table.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read or is damaged.
    pub fn objects(&self) -> Result<Vec<Object>, StoreError> {
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

    /// Reads a frame as it is stored and checks its checksum.
    ///
    /// # Errors
    /// [`StoreError::Frame`] when the checksum does not match; of a pack that
    /// lies elsewhere [`StoreError::Absent`], or why it could not be fetched.
    pub fn stored(&self, frame: &Frame) -> Result<Vec<u8>, StoreError> {
        let mut stored = Vec::new();
        self.stored_into(frame, &mut stored)?;
        Ok(stored)
    }

    /// The same, into a buffer that may be used again.
    ///
    /// # Errors
    /// As [`PackFile::stored`].
    pub fn stored_into(&self, frame: &Frame, stored: &mut Vec<u8>) -> Result<(), StoreError> {
        if self.may_be_here(frame) && self.reads_right(frame, stored)? {
            if let Some(fetcher) = self.fetcher.as_ref().filter(|_| self.home == Home::Partial) {
                fetcher.distant.was_here();
            }
            return Ok(());
        }
        match (self.home, &self.fetcher) {
            // Only this copy is damaged: the frame is read where the pack lies, too.
            (Home::Whole, Some(fetcher)) if self.report_damage() && !fetcher.is_paused() => {
                self.fetch(fetcher, frame, stored)
            }
            (Home::Whole, _) => {
                Err(StoreError::Frame { pack: self.id, offset_bytes: frame.offset })
            }
            (Home::Partial, Some(fetcher)) if !fetcher.is_paused() => {
                self.fetch(fetcher, frame, stored)
            }
            (Home::Partial, _) => Err(self.absent(frame)),
        }
    }

    /// The error that a frame lies elsewhere.
    pub(super) fn absent(&self, frame: &Frame) -> StoreError {
        StoreError::Absent { pack: self.id, offset_bytes: frame.offset }
    }

    /// Reads a frame; whether that is what its checksum says.
    pub(super) fn reads_right(
        &self,
        frame: &Frame,
        stored: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        let bytes = frame.stored_bytes as usize;
        if stored.capacity() < bytes {
            // Zeros that nobody has to write.
            *stored = vec![0; bytes];
        }
        stored.resize(bytes, 0);
        let is_right = match self.read_at(stored, frame.offset) {
            Ok(()) => pack::checksum(stored) == frame.checksum,
            // Cut short, or on a disk that cannot read it.
            Err(error) if !self.report_damage() => return Err(error),
            Err(_) => false,
        };
        self.set_here(frame, is_right);
        Ok(is_right)
    }

    /// Takes a frame from elsewhere, and keeps it for the next time.
    fn fetch(
        &self,
        fetcher: &Fetcher,
        frame: &Frame,
        stored: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        if frame.class == Class::Metadata {
            fetcher.announce(self.metadata_to_fetch(fetcher, frame)?);
        }
        let _turn: Turn<'_> = fetcher.turn(self.id, frame.offset);
        // Whoever was at it before may have brought it.
        if self.may_be_here(frame) && self.reads_right(frame, stored)? {
            return Ok(());
        }
        let read = fetcher.distant.read(self.id, frame.range());
        *stored = read.map_err(|source| {
            fetcher.forget();
            StoreError::Distant { pack: self.id, source }
        })?;
        let is_whole = stored.len() == frame.stored_bytes as usize;
        if !is_whole || pack::checksum(stored) != frame.checksum {
            return Err(StoreError::Garbled {
                pack: self.id,
                offset_bytes: frame.offset,
                place: fetcher.distant.place(self.id),
            });
        }
        let keeps = self.home == Home::Partial
            && (frame.class == Class::Metadata || fetcher.distant.keeps_contents());
        // Where it cannot be kept it is fetched again.
        if keeps && fetcher.disk.fill(&self.path, frame.offset, stored).is_ok() {
            self.mark_here(frame);
        }
        Ok(())
    }

    fn number(&self, frame: &Frame) -> Option<usize> {
        self.frames.binary_search_by_key(&frame.offset, |frame| frame.offset).ok()
    }

    /// Whether it is read from this open file, which is at `path`.
    pub(super) fn is_of(&self, path: &Path, file: &File) -> Result<bool, StoreError> {
        let inode = |stat: fs::Metadata| (stat.dev(), stat.ino());
        let ours = self.file.metadata().map_err(PathError::when("stat", path))?;
        let other = file.metadata().map_err(PathError::when("stat", path))?;
        Ok(inode(ours) == inode(other))
    }

    /// Remembers that a frame is here.
    pub(super) fn mark_here(&self, frame: &Frame) {
        self.set_here(frame, true);
    }

    fn set_here(&self, frame: &Frame, is_here: bool) {
        if self.home == Home::Partial
            && let Some(here) = self.number(frame).and_then(|number| self.here.get(number))
        {
            here.store(is_here, Ordering::Relaxed);
        }
    }

    /// Whether a frame is here: its bytes are what its checksum says. Those of
    /// a whole pack are taken to be, without a look.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the file cannot be read.
    pub fn is_here(&self, frame: &Frame) -> Result<bool, StoreError> {
        if self.is_known_here(frame) {
            return Ok(true);
        }
        Ok(!self.is_hole(frame.range()) && self.reads_right(frame, &mut Vec::new())?)
    }

    /// Whether a frame can be here, without a look at its bytes.
    pub(super) fn may_be_here(&self, frame: &Frame) -> bool {
        self.is_known_here(frame) || !self.is_hole(frame.range())
    }

    fn is_known_here(&self, frame: &Frame) -> bool {
        let is_marked =
            |number: usize| self.here.get(number).map(|here| here.load(Ordering::Relaxed));
        self.home == Home::Whole || self.number(frame).and_then(is_marked) == Some(true)
    }

    /// Whether nothing was ever written there. Where the file system cannot
    /// say it has to be read. The frames on both sides share a page with it,
    /// so that only those that it has to itself are asked for.
    fn is_hole(&self, range: Range<u64>) -> bool {
        let inner = range.start.next_multiple_of(PAGE_BYTES)..range.end / PAGE_BYTES * PAGE_BYTES;
        let range = if inner.is_empty() { range } else { inner };
        match seek(self.file.file(), SeekFrom::Data(range.start)) {
            Ok(data) => data >= range.end,
            Err(error) => error == rustix::io::Errno::NXIO,
        }
    }

    /// All metadata that is not here, from `first` on and then what lies
    /// before it: it lies together and is needed together. Said once.
    pub(super) fn metadata_to_fetch(
        &self,
        fetcher: &Fetcher,
        first: &Frame,
    ) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        if !fetcher.is_new(self.id) {
            return Ok(Vec::new());
        }
        let (before, from): (Vec<&Frame>, Vec<&Frame>) = self
            .frames
            .iter()
            .filter(|frame| frame.class == Class::Metadata)
            .partition(|frame| frame.offset < first.offset);
        let mut ranges = Vec::new();
        for frame in from.into_iter().chain(before) {
            if !self.is_here(frame)? {
                ranges.push((self.id, frame.range()));
            }
        }
        Ok(ranges)
    }

    /// Whether all of it is here.
    pub(super) fn home(&self) -> Home {
        self.home
    }

    /// Where the frames start.
    pub(super) fn frames_start(&self) -> u64 {
        let stored = self.frames.iter().map(|frame| u64::from(frame.stored_bytes));
        self.frames_end() - stored.sum::<u64>()
    }

    /// Where they end and the footer starts.
    pub(super) fn frames_end(&self) -> u64 {
        self.trailer.footer_offset()
    }

    /// The bytes of the pack in `range`.
    pub(super) fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read_at(&mut bytes, range.start)?;
        Ok(bytes)
    }

    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), StoreError> {
        read_at(&self.file, &self.path, self.id, bytes, self.base + offset)
    }

    /// Reads and expands a frame. The objects in it are **not** checked
    /// against their ids.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read, or is damaged.
    pub fn raw(&self, frame: &Frame) -> Result<Vec<u8>, StoreError> {
        let stored = self.stored(frame)?;
        self.expand(frame, stored)
    }

    /// Expands a frame that was read before.
    ///
    /// # Errors
    /// [`StoreError::Expand`] when it is not what the codec writes.
    pub fn expand(&self, frame: &Frame, stored: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        if frame.codec == pack::Codec::Raw {
            return Ok(stored);
        }
        self.expanded(frame, &stored).map(Cow::into_owned)
    }

    /// The same without taking what was read.
    pub(super) fn expanded<'a>(
        &self,
        frame: &Frame,
        stored: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, StoreError> {
        if frame.codec == pack::Codec::Raw {
            return Ok(Cow::Borrowed(stored));
        }
        decode(frame, stored).map(Cow::Owned).map_err(|source| StoreError::Expand {
            pack: self.id,
            offset_bytes: frame.offset,
            source,
        })
    }
}

fn decode(frame: &Frame, stored: &[u8]) -> Result<Vec<u8>, CodecError> {
    DECODER.with_borrow_mut(|slot| {
        let decoder = match slot {
            Some(decoder) => decoder,
            None => slot.insert(Decoder::new()?),
        };
        decoder.decode(frame.codec, stored, frame.raw_bytes as usize)
    })
}

/// Fills `bytes` from `offset` on; an end of the file before that is damage.
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
