//! Lists the names in a folder, sorted, in two allocations.

use std::{io, os::fd::AsFd};

use rustix::fs::{FileType, RawDir};

use crate::base::name;

/// Bytes that one system call reads.
const BUFFER_BYTES: usize = 32 << 10;

#[derive(Clone, Copy, Debug)]
struct NameSpan {
    start: usize,
    bytes: u8,
    kind: FileType,
}

/// The entries of a folder, sorted by the bytes of their names.
#[derive(Debug, Default)]
pub struct FolderNames {
    bytes: Vec<u8>,
    spans: Vec<NameSpan>,
}

impl FolderNames {
    /// Reads the folder `fd`, which must be open for reading. Leaves out names that are not valid
    /// in a tree.
    pub(in crate::local) fn read(fd: &impl AsFd) -> io::Result<Self> {
        let mut listing = Self::default();
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let Ok(bytes) = u8::try_from(name.len()) else { continue };
            if name::check(name).is_ok() {
                let (start, kind) = (listing.bytes.len(), entry.file_type());
                listing.bytes.extend_from_slice(name);
                listing.spans.push(NameSpan { start, bytes, kind });
            }
        }
        let Self { bytes, spans } = &mut listing;
        spans.sort_unstable_by(|a, b| slice(bytes, a).cmp(slice(bytes, b)));
        Ok(listing)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the name and kind of entry `index`. The kind is `Unknown` if the file system does
    /// not report it.
    pub fn get(&self, index: usize) -> Option<(&[u8], FileType)> {
        self.spans.get(index).map(|span| (slice(&self.bytes, span), span.kind))
    }

    /// Returns true if an entry has this name.
    pub fn has(&self, name: &[u8]) -> bool {
        self.spans.binary_search_by(|span| slice(&self.bytes, span).cmp(name)).is_ok()
    }

    /// Iterates over all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], FileType)> {
        self.spans.iter().map(|span| (slice(&self.bytes, span), span.kind))
    }
}

fn slice<'b>(bytes: &'b [u8], span: &NameSpan) -> &'b [u8] {
    &bytes[span.start..span.start + usize::from(span.bytes)]
}
