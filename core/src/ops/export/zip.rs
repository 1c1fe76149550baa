//! Writes zip archives as Info-ZIP does on Unix: with modes, owner numbers, symbolic
//! links and times in seconds.
//!
//! A small content is compressed before it arrives, so its header is complete. A large content is
//! compressed while it is written, and its lengths follow it. Pieces that do not shrink are stored
//! uncompressed within the stream. The writer keeps only the directory, which it writes at the end
//! (see [`directory`](super::directory)).
//!
//! A name that is not UTF-8 is written as raw bytes without the UTF-8 flag. `unzip` on
//! Unix then restores the same bytes.

use std::io::{BufWriter, Write};

use flate2::Crc;
use rayon::prelude::*;

use crate::{
    format::tree::EntryKind,
    local::owners::OwnerIds,
    ops::export::{
        Archive, ExportError, ExportJob,
        batch::{ArchiveEntry, EntryData},
        buffered,
        deflate::{self, Method, PIECE_BYTES, StoredContent},
        directory::Directory,
        zip_header::{self, Bits, MAY_BE_LONG, ZipHeader},
    },
};

/// Number of pieces of a large content that are compressed in parallel.
const PIECES_AT_ONCE: usize = 4;

/// Unix file types.
const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_777;

pub(super) struct Zip<'o> {
    job: &'o ExportJob<'o>,
    out: BufWriter<&'o mut dyn Write>,
    bytes: u64,
    directory: Directory,
}

impl<'o> Zip<'o> {
    pub(super) fn new(job: &'o ExportJob<'o>, sink: &'o mut dyn Write) -> Self {
        let directory = Directory::new(job.options.scratch, job.options.scratch_bytes);
        Self { job, out: buffered(sink), bytes: 0, directory }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.bytes += bytes.len() as u64;
        Ok(self.out.write_all(bytes)?)
    }

    /// Writes an entry whose content is in memory.
    fn whole(&mut self, header: &ZipHeader<'_>, content: &[u8]) -> Result<(), ExportError> {
        self.write(&header.local())?;
        self.write(content)?;
        Ok(self.directory.push(&header.central())?)
    }

    /// Writes an entry whose content is compressed while it is streamed.
    fn streamed(
        &mut self,
        mut header: ZipHeader<'_>,
        item: &ArchiveEntry,
    ) -> Result<(), ExportError> {
        let Some((_, size)) = item.content() else { return Ok(()) };
        let is_long = size >= MAY_BE_LONG;
        header.behind = Some(if is_long { Bits::Many } else { Bits::Few });
        header.method = Method::Deflated;
        self.write(&header.local())?;
        let start = self.bytes;
        let (job, mut crc) = (self.job, Crc::new());
        let mut waiting = Vec::with_capacity(PIECES_AT_ONCE * PIECE_BYTES);
        job.stream(item, &mut |mut piece| {
            crc.update(piece);
            job.observer.advance(piece.len() as u64, 0);
            while !piece.is_empty() {
                let room = PIECES_AT_ONCE * PIECE_BYTES - waiting.len();
                let (now, later) = piece.split_at(room.min(piece.len()));
                waiting.extend_from_slice(now);
                piece = later;
                if waiting.len() == PIECES_AT_ONCE * PIECE_BYTES {
                    self.pieces(&waiting)?;
                    waiting.clear();
                }
            }
            Ok(())
        })?;
        self.pieces(&waiting)?;
        self.write(&deflate::END)?;
        header.crc = crc.sum();
        header.bytes = size;
        header.packed_bytes = self.bytes - start;
        self.write(&header.descriptor())?;
        Ok(self.directory.push(&header.central())?)
    }

    fn pieces(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        let level = self.job.level();
        let pieces: Vec<Vec<u8>> =
            bytes.par_chunks(PIECE_BYTES).map(|piece| deflate::piece(piece, level)).collect();
        pieces.iter().try_for_each(|piece| self.write(piece))
    }
}

impl Archive for Zip<'_> {
    fn add(&mut self, mut item: ArchiveEntry) -> Result<(), ExportError> {
        if matches!(item.kind, EntryKind::Folder { .. }) {
            item.path.push(b'/');
        }
        if u16::try_from(item.path.len()).is_err() {
            let path = String::from_utf8_lossy(&item.path[..100]).into_owned();
            return Err(ExportError::PathTooLong { path });
        }
        let mode = u32::from(item.metadata.mode);
        let mut header = ZipHeader {
            name: &item.path,
            method: Method::Stored,
            mtime: item.metadata.mtime.unwrap_or_default(),
            owner: item
                .metadata
                .owner
                .as_ref()
                .map(|owner| OwnerIds { uid: owner.uid, gid: owner.gid }),
            mode: FILE | mode,
            crc: 0,
            packed_bytes: 0,
            bytes: 0,
            offset: self.bytes,
            behind: None,
        };
        match (&item.body, &item.kind) {
            (EntryData::Packed(packed), EntryKind::File { size, .. }) => {
                header.method = packed.method;
                header.crc = packed.crc;
                header.bytes = *size;
                header.packed_bytes = packed.bytes.len() as u64;
                self.whole(&header, &packed.bytes)?;
                self.job.observer.advance(*size, 1);
                Ok(())
            }
            (_, EntryKind::File { .. }) => {
                self.streamed(header, &item)?;
                self.job.observer.advance(0, 1);
                Ok(())
            }
            (_, EntryKind::Symlink { target }) => {
                let packed = StoredContent::new(target, 0);
                header.mode = SYMLINK;
                header.crc = packed.crc;
                header.bytes = target.len() as u64;
                header.packed_bytes = header.bytes;
                self.whole(&header, target)
            }
            _ => {
                header.mode = FOLDER | mode;
                self.whole(&header, b"")
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExportError> {
        let start = self.bytes;
        self.directory.copy_to(&mut self.out)?;
        let end = zip_header::end(self.directory.entries, self.directory.bytes, start);
        self.out.write_all(&end)?;
        Ok(self.out.flush()?)
    }
}
