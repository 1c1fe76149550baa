//! Entries on their way from the tree to the archive.

use std::{
    ops::{Deref, Range},
    sync::Arc,
};

use crate::{
    base::id::BlobId,
    format::tree::{Kind, Metadata},
    ops::export::deflate::Packed,
};

/// Bytes of the small contents, names and attributes of a full batch.
const BATCH_BYTES: u64 = 8 << 20;

/// Entries of a full batch.
const BATCH_ENTRIES: usize = 4096;

/// Entries of the first batch, so that writing begins early.
const FIRST_BATCH_ENTRIES: usize = 512;

/// Contents up to here are loaded, larger ones streamed.
const SMALL_BYTES: u64 = 1 << 20;

/// What memory an entry takes besides what it points to.
const ITEM_BYTES: u64 = 256;

/// An entry of the archive.
pub(super) struct Item {
    /// In the archive, with the prefix; of a folder without a slash at the end.
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    /// With a time in any case.
    pub(super) metadata: Metadata,
    pub(super) body: Body,
}

/// What stands behind an entry's header.
pub(super) enum Body {
    /// Nothing.
    None,
    /// It is a further name of the file at this path.
    Link(Arc<[u8]>),
    /// A content that is still to be loaded.
    Wanted,
    /// A content, checked.
    Bytes(Content),
    /// A content, checked and compressed.
    Packed(Packed),
    /// A content that is to be streamed.
    Stream,
}

/// The bytes of a content: its own, or a part of what they lie in.
pub(super) struct Content {
    lies_in: Arc<Vec<u8>>,
    part: Range<usize>,
}

impl Content {
    /// A part of a frame, which stays for as long as this.
    pub(super) fn part(frame: &Arc<Vec<u8>>, part: Range<usize>) -> Self {
        Self { lies_in: Arc::clone(frame), part }
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        let part = 0..bytes.len();
        Self { lies_in: Arc::new(bytes), part }
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.lies_in[self.part.clone()]
    }
}

impl Item {
    /// Id and length of the content, if it is a file.
    pub(super) fn content(&self) -> Option<(BlobId, u64)> {
        match self.kind {
            Kind::File { size, id } => Some((id, size)),
            _ => None,
        }
    }

    /// Whether its content is small enough to be held.
    pub(super) fn is_small(&self) -> bool {
        self.content().is_some_and(|(_, size)| size <= SMALL_BYTES)
    }

    fn held_bytes(&self) -> u64 {
        let xattrs = self.metadata.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len());
        let target = match &self.kind {
            Kind::Symlink { target } => target.len(),
            _ => 0,
        };
        let content = match (&self.body, self.content()) {
            (Body::Wanted, Some((_, size))) if self.is_small() => size,
            _ => 0,
        };
        ITEM_BYTES + (self.path.len() + target + xattrs.sum::<usize>()) as u64 + content
    }
}

/// Entries to be written next.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    bytes: u64,
    is_later: bool,
}

impl Batch {
    /// Adds an entry and says whether the batch is full.
    pub(super) fn push(&mut self, item: Item) -> bool {
        self.bytes += item.held_bytes();
        self.items.push(item);
        let entries = if self.is_later { BATCH_ENTRIES } else { FIRST_BATCH_ENTRIES };
        self.items.len() >= entries || self.bytes >= BATCH_BYTES
    }

    /// Takes the entries out and begins anew.
    pub(super) fn take(&mut self) -> Vec<Item> {
        self.bytes = 0;
        self.is_later = true;
        std::mem::take(&mut self.items)
    }
}
