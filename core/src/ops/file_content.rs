//! Compares a file on disk with a content, without cutting the file.
//!
//! A chunk list says which ranges of the file have which hashes. So several threads read and hash the
//! ranges, and the first difference ends the comparison. Long holes are compared without a read.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rayon::prelude::*;

use crate::{
    base::id::{BlobId, ContentId},
    format::chunk_list::{BlobRef, ZERO_CHUNK},
    local::{cut::identify, holes::Holes, scan::FileStat},
    store::{ChunkVisit, Descend, FileContent, Store, StoreError, walk_chunks},
};

/// Number of chunks that the threads compare together. The ranges lie close to each other, so that a
/// disk reads them in order.
const CHUNKS_AT_ONCE: usize = 16;

thread_local! {
    /// Buffer for one range.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a comparison ended early.
enum CompareEnd {
    Differs,
    /// The file cannot be read, or the user asked to stop.
    File(io::Error),
    /// The list is damaged or not stored here.
    List,
}

impl From<StoreError> for CompareEnd {
    fn from(_: StoreError) -> Self {
        Self::List
    }
}

impl From<io::Error> for CompareEnd {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

/// Returns true if an open file has a content. If the chunk list is not in this store, cuts the file.
/// Fetches nothing. May move the file's offset.
///
/// # Errors
/// Returns the error of the system call; [`io::ErrorKind::Interrupted`] if `stop` returns true.
pub(in crate::ops) fn equals(
    store: &Store,
    file: &OwnedFd,
    stat: &FileStat,
    content: &FileContent,
    stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<bool> {
    if stat.size != content.bytes {
        return Ok(false);
    }
    let fd = file.as_fd();
    let compared = match content.id {
        ContentId::Blob(id) => {
            let blob = BlobRef { id, bytes: content.bytes as u32 };
            compare_chunk(fd, 0, &blob).and_then(|()| compare_end(fd, content.bytes))
        }
        ContentId::Chunked(id) => {
            let mut comparison = Comparison {
                file: fd,
                holes: stat.may_have_holes().then(|| Holes::of(fd, stat.size)),
                at: 0,
                stop,
            };
            let read = |id: &_, kind| store.local_object(id, kind);
            let walked = walk_chunks::<CompareEnd>(&id, &read, &mut |visit| {
                if let ChunkVisit::Chunks(chunks) = visit {
                    comparison.compare(chunks?)?;
                }
                Ok(Descend::Enter)
            });
            walked.and_then(|bytes| match bytes == content.bytes {
                true => compare_end(fd, bytes),
                false => Err(CompareEnd::List),
            })
        }
    };
    match compared {
        Ok(()) => Ok(true),
        Err(CompareEnd::Differs) => Ok(false),
        Err(CompareEnd::File(error)) => Err(error),
        Err(CompareEnd::List) => {
            rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))?;
            Ok(identify(file, stat, stop)? == (content.id, content.bytes))
        }
    }
}

struct Comparison<'a> {
    file: BorrowedFd<'a>,
    holes: Option<Holes>,
    /// Offset of the next chunk.
    at: u64,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl Comparison<'_> {
    /// Compares the next chunks.
    fn compare(&mut self, chunks: &[BlobRef]) -> Result<(), CompareEnd> {
        let mut ranges = Vec::with_capacity(CHUNKS_AT_ONCE);
        for chunk in chunks {
            let range = self.at..self.at + u64::from(chunk.bytes);
            self.at = range.end;
            let mut is_hole =
                |holes: &mut Holes| *chunk == ZERO_CHUNK && holes.contain(self.file, &range);
            if !self.holes.as_mut().is_some_and(&mut is_hole) {
                ranges.push((range.start, *chunk));
            }
            if ranges.len() == CHUNKS_AT_ONCE {
                self.compare_ranges(&ranges)?;
                ranges.clear();
            }
        }
        self.compare_ranges(&ranges)
    }

    fn compare_ranges(&self, ranges: &[(u64, BlobRef)]) -> Result<(), CompareEnd> {
        if (self.stop)() {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        let compare = |(at, chunk): &(u64, BlobRef)| compare_chunk(self.file, *at, chunk);
        ranges.par_iter().with_max_len(1).try_for_each(compare)
    }
}

/// Compares a range of a file with a chunk.
fn compare_chunk(file: BorrowedFd<'_>, at: u64, chunk: &BlobRef) -> Result<(), CompareEnd> {
    BUFFER.with_borrow_mut(|buffer| {
        let length = chunk.bytes as usize;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let is_same = read_full_at(file, &mut buffer[..length], at)? == length
            && BlobId::of(&buffer[..length]) == chunk.id;
        if is_same { Ok(()) } else { Err(CompareEnd::Differs) }
    })
}

/// Checks that a file ends at `end`.
fn compare_end(file: BorrowedFd<'_>, end: u64) -> Result<(), CompareEnd> {
    match read_full_at(file, &mut [0], end)? {
        0 => Ok(()),
        _ => Err(CompareEnd::Differs),
    }
}

/// Reads until `buffer` is full or the file ends. Returns the number of bytes.
fn read_full_at(file: BorrowedFd<'_>, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(file, &mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}
