//! A pack file that is being written.
//!
//! Frames come from several threads. The caller's lock on the [`PackWriter`] protects the order:
//! under this lock, a frame gets its offset and enters the running hash. Threads then write the
//! bytes outside the lock. Metadata frames wait in memory and are written last, together.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{RwLock, RwLockReadGuard};

use crate::{
    base::{id::PackId, io::PathError, limits},
    disk::{Disk, NewFile, scratch::create_locked},
    format::pack::{self, Codec, Frame, ObjectClass, PackedObject},
    store::StoreError,
};

/// Number of dirty bytes after which the writer starts write-back, so that the final sync has
/// little left to write.
const WRITEBACK_BYTES: u64 = 2 << 20;

/// A compressed frame in memory.
#[derive(Debug)]
pub(super) struct EncodedFrame {
    pub(super) codec: Codec,
    pub(super) stored: Vec<u8>,
    pub(super) raw_bytes: u32,
    pub(super) objects: Vec<PackedObject>,
}

/// A pack that is being written.
#[derive(Debug)]
pub(super) struct PackWriter {
    file: Arc<SharedPackFile>,
    hasher: blake3::Hasher,
    /// Offset of the first frame.
    start: u64,
    end: u64,
    /// Length from which on the pack is full.
    target_bytes: u64,
    raw_bytes: u64,
    written_back: u64,
    frames: Vec<Frame>,
    objects: Vec<PackedObject>,
}

/// The file of a pack. Several threads write frames at once, each under the read side of the lock.
/// `seal` takes the write side, and so waits for all writing threads.
#[derive(Debug)]
pub(super) struct SharedPackFile {
    file: RwLock<NewFile>,
    failed: AtomicBool,
}

impl SharedPackFile {
    /// Takes the read side of the lock. Call this while still holding the lock on the
    /// [`PackWriter`], so that no other thread seals the pack before the frame is written.
    pub(super) fn enter(&self) -> RwLockReadGuard<'_, NewFile> {
        self.file.read()
    }

    /// Writes a frame at its offset.
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
pub(super) struct FinishedPack {
    pub(super) id: PackId,
    pub(super) frames: Vec<Frame>,
    pub(super) objects: Vec<PackedObject>,
    pub(super) file_bytes: u64,
}

impl PackWriter {
    /// Starts a pack in the folder `tmp`. The file is locked while it is open, so that no sweep
    /// removes it. `variation` varies the name of the pack. A pack of `target_bytes` is full.
    pub(super) fn create(
        disk: &Disk,
        tmp: &Path,
        variation: u64,
        target_bytes: u64,
    ) -> Result<Self, PathError> {
        let mut file = create_locked(disk, tmp, "pack")?;
        let header = pack::encode_varied_header(variation);
        file.write(&header)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&header);
        Ok(Self {
            file: Arc::new(SharedPackFile {
                file: RwLock::new(file),
                failed: AtomicBool::new(false),
            }),
            hasher,
            start: header.len() as u64,
            end: header.len() as u64,
            target_bytes,
            raw_bytes: 0,
            written_back: 0,
            frames: Vec::new(),
            objects: Vec::new(),
        })
    }

    /// Returns the number of objects so far.
    pub(super) fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// Returns true if the pack has reached one of its limits and must be sealed.
    pub(super) fn is_full(&self) -> bool {
        self.end >= self.target_bytes
            || self.raw_bytes >= limits::PACK_RAW_TARGET_BYTES
            || self.objects.len() >= limits::PENDING_OBJECTS
    }

    /// Reserves space for a frame and returns its offset. The caller must then write the bytes with
    /// [`SharedPackFile::write`].
    pub(super) fn reserve(
        &mut self,
        class: ObjectClass,
        codec: Codec,
        stored: &[u8],
        raw_bytes: u32,
        objects: &[PackedObject],
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

    /// Returns the file, for [`SharedPackFile::write`].
    pub(super) fn shared(&self) -> Arc<SharedPackFile> {
        Arc::clone(&self.file)
    }

    /// Writes the metadata frames and the footer, syncs the file, and calls `give_name` with its
    /// path to rename it into `objects/`. Does **not** sync the folder: the caller does this once
    /// for all packs.
    pub(super) fn seal(
        mut self,
        metadata: &[EncodedFrame],
        give_name: &dyn Fn(&Path, &PackId) -> Result<(), StoreError>,
    ) -> Result<FinishedPack, StoreError> {
        for frame in metadata {
            let EncodedFrame { codec, stored, raw_bytes, objects } = frame;
            let offset = self.reserve(ObjectClass::Metadata, *codec, stored, *raw_bytes, objects);
            self.file.write(&self.file.enter(), offset, stored)?;
        }
        let footer = pack::encode_footer(&self.frames, &self.objects, self.start);
        self.hasher.update(&footer);
        let id = PackId::from_bytes(*self.hasher.finalize().as_bytes());
        let file = self.file.file.write();
        if self.file.failed.load(Ordering::Acquire) {
            let source = std::io::Error::other("an earlier write to the file failed");
            return Err(PathError { action: "finish", path: file.path().to_owned(), source }.into());
        }
        file.write_at(self.end, &footer)?;
        file.sync()?;
        let file_bytes = self.end + footer.len() as u64;
        give_name(file.path(), &id)?;
        file.keep();
        drop(file);
        Ok(FinishedPack { id, frames: self.frames, objects: self.objects, file_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pack_size_limit_holds_for_any_compression_ratio() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, bytes) = (Disk::scratch(), limits::PACK_TARGET_BYTES);
        let mut pack = PackWriter::create(&disk, folder.path(), 0, bytes).unwrap();
        let raw_bytes = limits::FRAME_RAW_BYTES as u32;
        let mut frames = 0u64;
        while !pack.is_full() {
            pack.reserve(ObjectClass::Data, Codec::Zstd, b"short", raw_bytes, &[]);
            frames += 1;
        }
        assert_eq!(frames * u64::from(raw_bytes), limits::PACK_RAW_TARGET_BYTES);
    }
}
