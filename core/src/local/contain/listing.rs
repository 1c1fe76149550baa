//! The names in a folder, sorted, in two allocations.

use std::{io, os::fd::AsFd};

use rustix::fs::{FileType, RawDir};

use crate::base::name;

/// Bytes read from the system at once.
const BUFFER_BYTES: usize = 32 << 10;

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    bytes: u8,
    kind: FileType,
}

/// The entries of a folder, sorted by the bytes of their names.
#[derive(Debug, Default)]
pub struct Listing {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Listing {
    /// Reads the folder behind `fd`, which must be open for reading. Names
    /// that no tree could hold are left out.
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
                listing.spans.push(Span { start, bytes, kind });
            }
        }
        let Self { bytes, spans } = &mut listing;
        spans.sort_unstable_by(|a, b| slice(bytes, a).cmp(slice(bytes, b)));
        Ok(listing)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The name and kind of entry `index`; the kind is `Unknown` where the
    /// file system does not say.
    pub fn get(&self, index: usize) -> Option<(&[u8], FileType)> {
        self.spans.get(index).map(|span| (slice(&self.bytes, span), span.kind))
    }

    /// Returns whether an entry has this name.
    pub fn has(&self, name: &[u8]) -> bool {
        self.spans.binary_search_by(|span| slice(&self.bytes, span).cmp(name)).is_ok()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], FileType)> {
        self.spans.iter().map(|span| (slice(&self.bytes, span), span.kind))
    }
}

fn slice<'b>(bytes: &'b [u8], span: &Span) -> &'b [u8] {
    &bytes[span.start..span.start + usize::from(span.bytes)]
}
