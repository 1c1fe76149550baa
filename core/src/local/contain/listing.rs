//! Lists the names in a folder, sorted, in two allocations.

use std::{io, os::fd::AsFd};

use rustix::fs::FileType;

use crate::{
    base::name,
    local::scan::{NameSpan, read_names},
};

/// The entries of a folder, sorted by the bytes of their names.
#[derive(Debug, Default)]
pub struct FolderNames {
    names: Vec<u8>,
    spans: Vec<NameSpan>,
}

impl FolderNames {
    /// Reads the folder `fd`, which must be open for reading. Leaves out names that are not valid
    /// in a tree.
    pub(in crate::local) fn read(fd: &impl AsFd) -> io::Result<Self> {
        let (names, mut spans) = read_names(fd)?;
        spans.retain(|span| name::check(span.of(&names)).is_ok());
        Ok(Self { names, spans })
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the name and kind of entry `index`. The kind is `Unknown` if the file system does
    /// not report it.
    pub fn get(&self, index: usize) -> Option<(&[u8], FileType)> {
        self.spans.get(index).map(|span| (span.of(&self.names), span.kind))
    }

    /// Returns true if an entry has this name.
    pub fn has(&self, name: &[u8]) -> bool {
        self.spans.binary_search_by(|span| span.of(&self.names).cmp(name)).is_ok()
    }

    /// Iterates over all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], FileType)> {
        self.spans.iter().map(|span| (span.of(&self.names), span.kind))
    }
}
