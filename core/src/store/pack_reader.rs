//! One pack file, opened for reading.
//!
//! Opening costs three reads (header, trailer, frame table); the object table
//! is read only by those who rebuild the index, merge or verify. A pack may
//! also lie inside a larger file, a bundle.

use std::{
    cell::RefCell,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    base::{id::PackId, io::PathError},
    codec::{CodecError, Decoder},
    format::pack::{self, Frame, HEADER_BYTES, Object, TRAILER_BYTES, Trailer},
    store::{Distant, StoreError, bundle::Span},
};

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
    /// Where the frames come from that are not in the file.
    distant: Option<Arc<dyn Distant>>,
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
        let file = fs_err::File::open(path).map_err(|error| match error.kind() {
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
        let (path, distant) = (path.to_owned(), None);
        Ok(Self { file, path, id, base, trailer, frames, distant })
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
        self.read_at(&mut table, offset)?;
        let objects = self.trailer.decode_objects(&table, &self.frames);
        objects.map_err(|source| StoreError::Format { pack: self.id, source })
    }

    /// Reads a frame as it is stored and checks its checksum.
    ///
    /// # Errors
    /// [`StoreError::Frame`] when the checksum does not match.
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
        let bytes = frame.stored_bytes as usize;
        if stored.capacity() < bytes {
            // Zeros that nobody has to write.
            *stored = vec![0; bytes];
        }
        stored.resize(bytes, 0);
        self.read_at(stored, frame.offset)?;
        if pack::checksum(stored) == frame.checksum {
            return Ok(());
        }
        match &self.distant {
            Some(distant) => self.fetch(distant.as_ref(), frame, stored),
            None => Err(StoreError::Frame { pack: self.id, offset_bytes: frame.offset }),
        }
    }

    /// Takes a frame from elsewhere, and keeps it for the next time.
    fn fetch(
        &self,
        distant: &dyn Distant,
        frame: &Frame,
        stored: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let range = frame.offset..frame.offset + u64::from(frame.stored_bytes);
        let read = distant.read(self.id, range);
        *stored = read.map_err(|source| StoreError::Distant { pack: self.id, source })?;
        let is_whole = stored.len() == frame.stored_bytes as usize;
        if !is_whole || pack::checksum(stored) != frame.checksum {
            return Err(StoreError::Frame { pack: self.id, offset_bytes: frame.offset });
        }
        // Where it cannot be kept it is fetched again.
        if let Ok(file) = fs_err::OpenOptions::new().write(true).open(&self.path) {
            let _ = file.file().write_all_at(stored, self.base + frame.offset);
        }
        Ok(())
    }

    /// The same, with frames that are not in the file taken from elsewhere.
    pub(super) fn with_distant(self, distant: Option<Arc<dyn Distant>>) -> Self {
        Self { distant, ..self }
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

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), StoreError> {
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
        decode(frame, &stored).map_err(|source| StoreError::Expand {
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
