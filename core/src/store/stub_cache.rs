//! The frames of a pack that a remote has, too: which of them are in the file, and how the others are
//! fetched.
//!
//! A partial pack is a sparse file with holes in place of absent frames. A frame is present if its
//! bytes match its checksum. For a whole pack, the remote replaces damaged frames.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    base::{id::PackId, kind::ErrorKind},
    format::pack::{Frame, ObjectClass},
    store::{
        PackFile, StoreError,
        fetch::{FetchGuard, Fetcher},
        pack_reader::Completeness,
    },
};

/// Page size, in bytes. File systems keep data and holes in pages of this size or a divisor of it.
const PAGE_BYTES: u64 = 4096;

/// The state of the frames of an open pack.
#[derive(Debug)]
pub(super) struct StubCache {
    pub(super) completeness: Completeness,
    /// For each frame of a partial pack: true if the frame is known to be in the file.
    here: Vec<AtomicBool>,
    /// The remote source of other frames.
    fetcher: Option<Arc<Fetcher>>,
}

impl StubCache {
    /// Returns `None` for a whole pack that no remote has.
    pub(super) fn of(
        completeness: Completeness,
        fetcher: Option<Arc<Fetcher>>,
        frames: usize,
    ) -> Option<Self> {
        let is_partial = completeness == Completeness::Partial;
        let marks = if is_partial { frames } else { 0 };
        let here = std::iter::repeat_with(AtomicBool::default).take(marks).collect();
        (is_partial || fetcher.is_some()).then_some(Self { completeness, here, fetcher })
    }

    /// Reports that the file of a pack is damaged. Returns true if the remote has the pack.
    pub(super) fn report_damage(&self, pack: PackId) -> bool {
        self.fetcher.as_ref().is_some_and(|fetcher| fetcher.remote.record_damage(pack))
    }

    /// Reads a frame into `stored`, which has its length, and verifies its checksum. Fetches an absent
    /// or damaged frame.
    pub(super) fn read(
        &self,
        pack: &PackFile,
        frame: &Frame,
        stored: &mut [u8],
    ) -> Result<(), StoreError> {
        let fetcher = self.fetcher.as_ref().filter(|fetcher| !fetcher.is_paused());
        if self.may_have(pack, frame) {
            match (self.read_local(pack, frame, stored), self.completeness) {
                (Ok(()), Completeness::Whole) => return Ok(()),
                (Ok(()), Completeness::Partial) => {
                    self.fetcher.iter().for_each(|fetcher| fetcher.remote.record_hit());
                    return Ok(());
                }
                // This file is damaged, but the remote has the pack, too.
                (Err(StoreError::Frame { .. }), _) if self.report_damage(pack.id()) => {}
                (Err(StoreError::Absent { .. }), _) => {}
                (Err(error), _) => return Err(error),
            }
        }
        match fetcher {
            Some(fetcher) => self.fetch(fetcher, pack, frame, stored),
            None => Err(self.unreadable(pack, frame)),
        }
    }

    /// Reads a frame of the file into `stored` and verifies its checksum. Fetches nothing.
    ///
    /// # Errors
    /// [`StoreError::Frame`], or [`StoreError::Absent`] in a partial pack, if the checksum does not
    /// match; [`StoreError`] when the file cannot be read.
    pub(super) fn read_local(
        &self,
        pack: &PackFile,
        frame: &Frame,
        stored: &mut [u8],
    ) -> Result<(), StoreError> {
        let is_partial = self.completeness == Completeness::Partial;
        let read = match pack.read_frame(frame, stored) {
            Err(StoreError::Frame { .. }) if is_partial => Err(pack.absent(frame)),
            // The file is damaged or truncated, or the disk cannot read it.
            Err(_) if self.report_damage(pack.id()) => Err(self.unreadable(pack, frame)),
            read => read,
        };
        self.set_here(pack, frame, read.is_ok());
        read
    }

    /// Returns the error for a frame that is damaged or missing in the file.
    fn unreadable(&self, pack: &PackFile, frame: &Frame) -> StoreError {
        match self.completeness {
            Completeness::Whole => {
                StoreError::Frame { pack: pack.id(), offset_bytes: frame.offset }
            }
            Completeness::Partial => pack.absent(frame),
        }
    }

    /// Fetches a frame. For a partial pack, writes a copy of the frame into the stub: always for
    /// metadata, and for contents if the source keeps contents.
    fn fetch(
        &self,
        fetcher: &Fetcher,
        pack: &PackFile,
        frame: &Frame,
        stored: &mut [u8],
    ) -> Result<(), StoreError> {
        if frame.class == ObjectClass::Metadata {
            fetcher.announce(self.metadata_to_fetch(pack, frame)?);
        }
        let _fetch: FetchGuard<'_> = fetcher.begin_fetch(pack.id(), frame.offset);
        // Another thread may have fetched this frame meanwhile.
        if self.may_have(pack, frame) && self.read_local(pack, frame, stored).is_ok() {
            return Ok(());
        }
        let fetched = match fetcher.read(pack.id(), frame) {
            // A bit may have flipped in transit. Retry once.
            Err(error) if error.kind() == ErrorKind::Damaged => fetcher.read(pack.id(), frame)?,
            read => read?,
        };
        stored.copy_from_slice(&fetched);
        let keeps = self.completeness == Completeness::Partial
            && (frame.class == ObjectClass::Metadata || fetcher.remote.keeps_contents());
        // If the copy cannot be written, the next read fetches the frame again. `try_fill` does not
        // wait for the lock of the stub: a thread that completes this pack holds that lock, and may
        // be the thread that fetches.
        if keeps && fetcher.disk.try_fill(pack.path(), frame.offset, stored).is_ok_and(|kept| kept)
        {
            self.set_here(pack, frame, true);
        }
        Ok(())
    }

    /// Records whether a frame is in the file.
    pub(super) fn set_here(&self, pack: &PackFile, frame: &Frame, is_here: bool) {
        if let Some(here) = pack.number(frame).and_then(|number| self.here.get(number)) {
            here.store(is_here, Ordering::Relaxed);
        }
    }

    /// Returns true if a frame may be in the file. Does not read its bytes.
    pub(super) fn may_have(&self, pack: &PackFile, frame: &Frame) -> bool {
        self.is_known(pack, frame) || !is_hole(pack, frame.range())
    }

    /// Returns true if a frame of a partial pack is in the file, that is, if its bytes match its
    /// checksum.
    pub(super) fn has(&self, pack: &PackFile, frame: &Frame) -> Result<bool, StoreError> {
        if self.is_known(pack, frame) {
            return Ok(true);
        }
        if is_hole(pack, frame.range()) {
            return Ok(false);
        }
        match self.read_local(pack, frame, &mut vec![0; frame.stored_bytes as usize]) {
            Err(StoreError::Absent { .. }) => Ok(false),
            read => read.map(|()| true),
        }
    }

    fn is_known(&self, pack: &PackFile, frame: &Frame) -> bool {
        let is_marked =
            |number: usize| self.here.get(number).is_some_and(|here| here.load(Ordering::Relaxed));
        self.completeness == Completeness::Whole || pack.number(frame).is_some_and(is_marked)
    }

    /// Lists the absent metadata frames, for a prefetch: first the frames from `first` on, then the
    /// frames before it. Readers usually need all metadata frames of a pack. Returns an empty list
    /// after the first call for a pack.
    pub(super) fn metadata_to_fetch(
        &self,
        pack: &PackFile,
        first: &Frame,
    ) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        if !self.fetcher.as_ref().is_some_and(|fetcher| fetcher.claim_metadata_prefetch(pack.id()))
        {
            return Ok(Vec::new());
        }
        let metadata = pack.frames().iter().filter(|frame| frame.class == ObjectClass::Metadata);
        let (before, from): (Vec<&Frame>, Vec<&Frame>) =
            metadata.partition(|frame| frame.offset < first.offset);
        let mut ranges = Vec::new();
        for frame in from.into_iter().chain(before) {
            if !self.has(pack, frame)? {
                ranges.push((pack.id(), frame.range()));
            }
        }
        Ok(ranges)
    }
}

/// Returns true if `range` is a hole in the file of a pack. Returns false on a file system that does
/// not report holes; the caller must then read the frame. Frames share their first and last page with
/// their neighbours, so only whole pages inside `range` are queried, if `range` has any.
fn is_hole(pack: &PackFile, range: Range<u64>) -> bool {
    if range.is_empty() {
        return false;
    }
    let inner = range.start.next_multiple_of(PAGE_BYTES)..range.end / PAGE_BYTES * PAGE_BYTES;
    let range = if inner.is_empty() { range } else { inner };
    pack.next_data(range.start).is_some_and(|data| data >= range.end)
}
