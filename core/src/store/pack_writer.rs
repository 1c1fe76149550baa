//! One pack file that is being written.
//!
//! Frames come from several threads. A frame's place and the running hash are
//! settled under a lock, in order; the bytes are then written outside it.
//! Metadata frames wait in memory and are written last, together.

use std::{
    path::Path,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    base::{id::PackId, io::PathError, limits},
    disk::{Disk, NewFile, Renamed, scratch::unique_name},
    format::pack::{self, Class, Codec, Frame, HEADER_BYTES, Object},
    store::StoreError,
};

/// Dirty pages are handed to the disk so many bytes at a time, so that the
/// sync at the end has little left to wait for.
pub(super) const WRITEBACK_BYTES: u64 = 2 << 20;

/// A compressed frame that is not in a file yet.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) codec: Codec,
    pub(super) stored: Vec<u8>,
    pub(super) raw_bytes: u32,
    pub(super) objects: Vec<Object>,
}

/// A pack that is being written.
#[derive(Debug)]
pub(super) struct PackWriter {
    file: Arc<Shared>,
    hasher: blake3::Hasher,
    end: u64,
    raw_bytes: u64,
    written_back: u64,
    frames: Vec<Frame>,
    objects: Vec<Object>,
}

/// The file, written by several threads at once. Sealing takes the write side
/// of the lock, and so waits for all of them.
#[derive(Debug)]
pub(super) struct Shared {
    file: RwLock<NewFile>,
    failed: AtomicBool,
}

impl Shared {
    /// Takes part in writing; to be called before the place is made known to
    /// anyone who could seal.
    pub(super) fn enter(&self) -> RwLockReadGuard<'_, NewFile> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a frame to its place.
    pub(super) fn write(
        &self,
        file: &NewFile,
        offset: u64,
        stored: &[u8],
    ) -> Result<(), PathError> {
        let written = file.write_at(offset, stored);
        if written.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        written
    }
}

/// A finished pack.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) id: PackId,
    pub(super) frames: Vec<Frame>,
    pub(super) objects: Vec<Object>,
    pub(super) file_bytes: u64,
}

impl PackWriter {
    /// Starts a pack in the folder `tmp`. The file is locked for as long as it
    /// is open, so that nobody takes it for one left over.
    pub(super) fn create(disk: &Disk, tmp: &Path) -> Result<Self, PathError> {
        let path = tmp.join(unique_name("pack"));
        let mut file = disk.create(&path)?;
        file.file().lock().map_err(PathError::when("lock", &path))?;
        let header = pack::encode_header();
        file.write(&header)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&header);
        Ok(Self {
            file: Arc::new(Shared { file: RwLock::new(file), failed: AtomicBool::new(false) }),
            hasher,
            end: HEADER_BYTES as u64,
            raw_bytes: 0,
            written_back: 0,
            frames: Vec::new(),
            objects: Vec::new(),
        })
    }

    /// Objects so far.
    pub(super) fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// Whether no more is to be added.
    pub(super) fn is_full(&self) -> bool {
        self.end >= limits::PACK_TARGET_BYTES
            || self.raw_bytes >= limits::PACK_RAW_TARGET_BYTES
            || self.objects.len() >= limits::PENDING_OBJECTS
    }

    /// Gives a frame its place and returns its offset; the bytes are then owed
    /// to [`Shared::write`].
    pub(super) fn reserve(
        &mut self,
        class: Class,
        codec: Codec,
        stored: &[u8],
        raw_bytes: u32,
        objects: &[Object],
    ) -> u64 {
        let offset = self.end;
        self.hasher.update(stored);
        self.end += stored.len() as u64;
        self.raw_bytes += u64::from(raw_bytes);
        self.frames.push(Frame {
            offset,
            stored_bytes: stored.len() as u32,
            raw_bytes,
            objects: objects.len() as u32,
            codec,
            class,
            checksum: pack::checksum(stored),
        });
        self.objects.extend_from_slice(objects);
        if offset - self.written_back >= WRITEBACK_BYTES {
            self.file.enter().start_writeback(self.written_back, offset - self.written_back);
            self.written_back = offset;
        }
        offset
    }

    /// The file, for [`Shared::write`].
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.file)
    }

    /// Adds metadata frames and footer, syncs, and moves the pack to its name
    /// in `objects`. The folder is **not** synced: that is done once for all.
    pub(super) fn seal(
        mut self,
        disk: &Disk,
        objects_dir: &Path,
        metadata: &[Encoded],
    ) -> Result<Sealed, StoreError> {
        for frame in metadata {
            let Encoded { codec, stored, raw_bytes, objects } = frame;
            let offset = self.reserve(Class::Metadata, *codec, stored, *raw_bytes, objects);
            self.file.write(&self.file.enter(), offset, stored)?;
        }
        let footer = pack::encode_footer(&self.frames, &self.objects, HEADER_BYTES as u64);
        self.hasher.update(&footer);
        let id = PackId::from_bytes(*self.hasher.finalize().as_bytes());
        let file = self.file.file.write().unwrap_or_else(PoisonError::into_inner);
        if self.file.failed.load(Ordering::Acquire) {
            let source = std::io::Error::other("an earlier write to it failed");
            return Err(PathError { action: "finish", path: file.path().to_owned(), source }.into());
        }
        file.write_at(self.end, &footer)?;
        file.sync()?;
        let path = objects_dir.join(id.to_string());
        let file_bytes = self.end + footer.len() as u64;
        publish(disk, file.path(), &path)?;
        file.keep();
        drop(file);
        Ok(Sealed { id, frames: self.frames, objects: self.objects, file_bytes })
    }
}

/// Moves a complete, synced pack to its name. Where somebody else has stored
/// the same bytes already, ours take their place: theirs may be damaged, and
/// that its objects were not found there is a reason to think so.
pub(super) fn publish(disk: &Disk, from: &Path, to: &Path) -> Result<(), StoreError> {
    if disk.rename_new(from, to)? == Renamed::Taken {
        disk.replace(from, to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_full_however_well_its_frames_compress() {
        let folder = tempfile::tempdir().unwrap();
        let mut pack = PackWriter::create(&Disk::scratch(), folder.path()).unwrap();
        let raw_bytes = limits::FRAME_RAW_BYTES as u32;
        let mut frames = 0u64;
        while !pack.is_full() {
            pack.reserve(Class::Data, Codec::Zstd, b"short", raw_bytes, &[]);
            frames += 1;
        }
        assert_eq!(frames * u64::from(raw_bytes), limits::PACK_RAW_TARGET_BYTES);
    }
}
