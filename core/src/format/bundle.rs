//! Bundle files: a single file with packs that together carry a commit.
//!
//! | part    | bytes | field                                                  |
//! |---------|-------|--------------------------------------------------------|
//! | header  | 8     | magic, `SNAPPACK`, as in a [`super::pack`]             |
//! |         | 2     | format version, u16                                    |
//! |         | 2     | flags, u16: 1, a bundle                                |
//! |         | 4     | extension length, u32                                  |
//! |extension| 1     | version of the extension, 2                            |
//! |         | 32    | id of the commit that the bundle carries               |
//! |         | 8     | objects in all packs together, u64                     |
//! |         | 8     | their bytes, uncompressed, u64                         |
//! |         | 4     | prerequisites p, u32                                   |
//! |         | 32 p  | ids of the prerequisites, commits, ascending           |
//! |         | 8     | XXH3-64 of header and extension up to here             |
//! | packs   | 8     | length of the pack that follows, u64                   |
//! |         | …     | the pack, as it lies in a store                        |
//! | end     | 8     | 0, u64                                                 |
//!
//! Integers are little-endian. The length before each pack lets a reader of a file skip the pack,
//! and a reader of a pipe find its end. Readers check that:
//!
//! 1. The numbers of objects and bytes match the packs, and no object occurs twice.
//! 2. Every object that the commit refers to is in the packs, or belongs to a
//!    prerequisite. A bundle without prerequisites is complete.
//! 3. Nothing follows the end.

use crate::{
    base::{id::CommitId, limits},
    format::{
        pack::{self, HEADER_BYTES, MAGIC, VERSION, checksum},
        wire::{FormatError, WireReader, WireWriter},
    },
};

/// The version of the extension.
pub const EXTENSION_VERSION: u8 = 2;

/// Size of the length field before each pack, and of the end marker.
pub const LENGTH_BYTES: usize = 8;

const CHECKSUM_BYTES: usize = 8;

/// The head of a bundle: everything before its packs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleHead {
    /// The commit that the bundle carries.
    pub commit: CommitId,
    /// Number of objects in all packs.
    pub objects: u64,
    /// Total length of these objects before compression, in bytes.
    pub raw_bytes: u64,
    /// Commits that the receiver must have, together with all objects that they refer to.
    /// Ascending.
    pub prerequisites: Vec<CommitId>,
}

impl BundleHead {
    /// Encodes header and extension.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = WireWriter::new();
        w.u8(EXTENSION_VERSION);
        w.raw(self.commit.as_bytes());
        w.u64(self.objects);
        w.u64(self.raw_bytes);
        w.u32(self.prerequisites.len() as u32);
        self.prerequisites.iter().for_each(|id| w.raw(id.as_bytes()));
        let extension = w.finish();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + extension.len() + CHECKSUM_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&pack::FLAG_BUNDLE.to_le_bytes());
        bytes.extend_from_slice(&((extension.len() + CHECKSUM_BYTES) as u32).to_le_bytes());
        bytes.extend_from_slice(&extension);
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes header and extension.
    ///
    /// # Errors
    /// [`FormatError`] names the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = WireReader::new(bytes);
        let header = r.raw("bundle header", HEADER_BYTES)?;
        let extension_bytes = decode_header(header)? as usize;
        if bytes.len() < HEADER_BYTES + extension_bytes || extension_bytes < CHECKSUM_BYTES {
            return Err(FormatError::Truncated { what: "bundle header", at: bytes.len() });
        }
        let (checked, sum) = bytes.split_at(HEADER_BYTES + extension_bytes - CHECKSUM_BYTES);
        FormatError::check_version("bundle header", r.u8("bundle header")?, EXTENSION_VERSION)?;
        if sum.first_chunk::<CHECKSUM_BYTES>() != Some(&checksum(checked).to_le_bytes()) {
            return Err(FormatError::Checksum { what: "the bundle header" });
        }
        let commit = CommitId::from_bytes(r.digest("bundle commit")?);
        let objects = r.u64("bundle objects")?;
        let raw_bytes = r.u64("bundle bytes")?;
        let count = r.u32("bundle prerequisites")?;
        let limit = limits::PREREQUISITES as u64;
        FormatError::check_limit("count of prerequisites", count.into(), limit)?;
        let mut prerequisites: Vec<CommitId> = Vec::new();
        for _ in 0..count {
            let at = r.at();
            let id = CommitId::from_bytes(r.digest("bundle prerequisite")?);
            if prerequisites.last().is_some_and(|last| *last >= id) {
                return Err(FormatError::Order { what: "bundle prerequisites", at });
            }
            prerequisites.push(id);
        }
        r.u64("bundle checksum")?;
        r.finish()?;
        Ok(Self { commit, objects, raw_bytes, prerequisites })
    }
}

/// Decodes the first [`HEADER_BYTES`] of a bundle. Returns the length of the rest of
/// the head.
///
/// # Errors
/// [`FormatError`] if the file is not a bundle or has a newer version, or if its extension is too
/// long.
pub fn decode_header(bytes: &[u8]) -> Result<u32, FormatError> {
    match pack::decode_start(bytes) {
        Ok((pack::FLAG_BUNDLE, extension)) => Ok(extension),
        Ok(_) => Err(FormatError::Invalid { what: "bundle header (the file is a pack)", at: 10 }),
        Err(FormatError::Magic { .. }) => Err(FormatError::Magic { what: "bundle" }),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(byte: u8) -> CommitId {
        CommitId::from_bytes([byte; 32])
    }

    proptest! {
        #![proptest_config(snap_testkit::property::cases(256))]

        #[test]
        fn a_bundle_head_survives_a_round_trip(
            commit in any::<u8>(),
            objects in any::<u64>(),
            raw_bytes in any::<u64>(),
            prerequisites in proptest::collection::btree_set(any::<u8>(), 0..6),
        ) {
            let prerequisites = prerequisites.into_iter().map(id).collect();
            let head = BundleHead { commit: id(commit), objects, raw_bytes, prerequisites };
            prop_assert_eq!(BundleHead::decode(&head.encode()), Ok(head));
        }
    }

    #[test]
    fn each_flipped_bit_and_truncation_is_detected() {
        let prerequisites = vec![id(1), id(2)];
        let head = BundleHead { commit: id(9), objects: 3, raw_bytes: 4096, prerequisites };
        let bytes = head.encode();
        for at in 0..bytes.len() {
            assert!(BundleHead::decode(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(BundleHead::decode(&flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(BundleHead::decode(&longer).is_err());
    }

    #[test]
    fn unsorted_prerequisites_are_refused() {
        let head = BundleHead {
            commit: id(9),
            objects: 0,
            raw_bytes: 0,
            prerequisites: vec![id(2), id(1)],
        };
        assert!(matches!(BundleHead::decode(&head.encode()), Err(FormatError::Order { .. })));
    }
}
