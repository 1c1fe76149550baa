//! Batches of entries on their way from the tree to the archive.

use std::sync::Arc;

use crate::{
    base::id::ContentId,
    format::tree::{EntryKind, Metadata},
    ops::export::deflate::StoredContent,
};

/// Size of a full batch in bytes: small contents, names and attributes.
const BATCH_BYTES: u64 = 8 << 20;

/// Number of entries in a full batch.
const BATCH_ENTRIES: usize = 4096;

/// Number of entries in the first batch. It is small, so that writing starts early.
const FIRST_BATCH_ENTRIES: usize = 512;

/// Contents of at most this many bytes are loaded. Larger ones are streamed.
const SMALL_BYTES: u64 = 1 << 20;

/// Approximate memory of an entry in bytes, without the data that it points to.
const ITEM_BYTES: u64 = 256;

/// An entry of the archive.
pub(super) struct ArchiveEntry {
    /// The path in the archive, including the prefix. A folder has no trailing slash.
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryKind,
    /// The metadata. `mtime` is always set.
    pub(super) metadata: Metadata,
    pub(super) body: EntryData,
}

/// The data that follows an entry's header.
pub(super) enum EntryData {
    /// No data.
    None,
    /// No data, but a further name of the file at this path.
    Link(Arc<[u8]>),
    /// A content that is still to be loaded.
    Wanted,
    /// A verified content.
    Bytes(Vec<u8>),
    /// A verified and compressed content.
    Packed(StoredContent),
    /// A content that will be streamed.
    Stream,
}

impl ArchiveEntry {
    /// Returns id and length of the content if the entry is a file.
    pub(super) fn content(&self) -> Option<(ContentId, u64)> {
        if let EntryKind::File { size, id } = self.kind { Some((id, size)) } else { None }
    }

    /// Returns true if the content is small enough to be held in memory.
    pub(super) fn is_small(&self) -> bool {
        self.content().is_some_and(|(_, size)| size <= SMALL_BYTES)
    }

    fn held_bytes(&self) -> u64 {
        let xattrs = self.metadata.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len());
        let target = if let EntryKind::Symlink { target } = &self.kind { target.len() } else { 0 };
        let content = match (&self.body, self.content()) {
            (EntryData::Wanted, Some((_, size))) if self.is_small() => size,
            _ => 0,
        };
        ITEM_BYTES + (self.path.len() + target + xattrs.sum::<usize>()) as u64 + content
    }
}

/// The entries to write next.
#[derive(Default)]
pub(super) struct EntryBatch {
    pub(super) items: Vec<ArchiveEntry>,
    bytes: u64,
    is_later: bool,
}

impl EntryBatch {
    /// Adds an entry. Returns true if the batch is full.
    pub(super) fn push(&mut self, item: ArchiveEntry) -> bool {
        self.bytes += item.held_bytes();
        self.items.push(item);
        let entries = if self.is_later { BATCH_ENTRIES } else { FIRST_BATCH_ENTRIES };
        self.items.len() >= entries || self.bytes >= BATCH_BYTES
    }

    /// Takes the entries and starts the next batch.
    pub(super) fn take(&mut self) -> Vec<ArchiveEntry> {
        self.bytes = 0;
        self.is_later = true;
        std::mem::take(&mut self.items)
    }
}
