//! Records: what operations find, for programs to read. Plain values with the
//! names of `docs/schema/`, which `snap --json` prints and the server answers
//! with; what stands around them (a line of its own, a page of a list) is
//! left to those.
//!
//! Fields may be added, but none is removed or changes its meaning. A path or
//! a target that is not UTF-8 has replacement characters in `path`, and its
//! exact bytes, in hexadecimal, in `path_hex`.

mod change;
mod commit;
mod entry;
mod stats;
mod version;

pub use self::{
    change::ChangeRecord,
    commit::CommitRecord,
    entry::{EntryRecord, ItemRecord},
    stats::{AddedRecord, LargeFileRecord, StoreRecord},
    version::VersionRecord,
};

/// Bytes as text; what is not UTF-8 there is replaced.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The exact bytes in hexadecimal, where they are not UTF-8.
pub fn exact(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| hex::encode(bytes))
}
