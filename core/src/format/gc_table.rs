//! The table of the garbage collection of a remote store: what must not be relied on.
//!
//! | part     | offset  | bytes | field                                                  |
//! |----------|---------|-------|--------------------------------------------------------|
//! | header   | 0       | 8     | magic, `SNAPGCTB`                                      |
//! |          | 8       | 2     | format version, u16                                    |
//! |          | 10      | 2     | 0                                                      |
//! |          | 12      | 4     | number of sections s, u32                              |
//! | sections | 16      | …     | s sections, by strictly increasing kind, none is empty |
//! | sum      | end − 8 | 8     | XXH3-64 of all bytes before                            |
//!
//! | section offset | bytes | field                              |
//! |----------------|-------|------------------------------------|
//! | 0              | 4     | kind, u32                          |
//! | 4              | 8     | length of the content in bytes, u64 |
//! | 12             | …     | content                            |
//!
//! | kind | content                                                                          |
//! |------|----------------------------------------------------------------------------------|
//! | 1    | dead objects in packs: a [shadow table](crate::format::shadow) without damage     |
//! | 2    | *going*: names of packs that are being deleted or were deleted, 32 bytes each     |
//! | 3    | *named*: index files that count, 33 bytes each: 0 a file, 1 a group; then the hash |
//! | 4    | forgotten commits, 32 bytes each                                                  |
//! | 5    | purged objects, 32 bytes each                                                     |
//!
//! Integers are little-endian; ids and names strictly increase. A decoder refuses a kind that it
//! does not know as newer, because a client that ignored it could lose data.
//!
//! Names of deleted packs stay for ever and are never used again. Otherwise a collector that was
//! suspended could delete a pack that another client has sent again under the same name.

use std::collections::BTreeSet;

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        limits,
    },
    format::{
        outline::Name,
        shadow::{Reason, ShadowTable},
        small_table::SmallTable,
        wire::{FormatError, WireReader, WireWriter},
    },
};

/// The first bytes of a table.
pub const MAGIC: &[u8; 8] = b"SNAPGCTB";

/// The version.
pub const VERSION: u16 = 2;

const TABLE: SmallTable = SmallTable { what: "gc table", magic: MAGIC, version: VERSION };

const SHADOWS: u32 = 1;
const GOING: u32 = 2;
const NAMED: u32 = 3;
const FORGOTTEN: u32 = 4;
const PURGED: u32 = 5;

/// An index file of a remote store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexName {
    /// A file of outlines.
    File(Name),
    /// A group of parts.
    Group(Name),
}

/// What clients of a remote store must know about its garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcTable {
    /// Dead objects. Nothing may rely on them.
    pub shadows: ShadowTable,
    /// Packs that are being deleted or were deleted.
    pub going: BTreeSet<PackId>,
    /// Index files of earlier epochs that count.
    pub named: BTreeSet<IndexName>,
    /// Commits that were forgotten.
    pub forgotten: BTreeSet<CommitId>,
    /// Objects that no client may store again.
    pub purged: BTreeSet<ObjectId>,
}

impl GcTable {
    /// Returns true if a pack is going, or if any of its objects is shadowed. A writer does not use
    /// the name of such a pack.
    pub fn reserves_name(&self, pack: &PackId) -> bool {
        self.going.contains(pack) || self.shadows.has_any(pack)
    }

    /// Returns true if nothing may rely on this copy of an object.
    pub fn is_dead(&self, pack: &PackId, id: &ObjectId) -> bool {
        self.going.contains(pack) || self.shadows.is_dead(pack, id)
    }

    /// Encodes the table.
    ///
    /// # Errors
    /// [`FormatError::Limit`] if the table is longer than decoders accept.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut sections: Vec<(u32, Vec<u8>)> = Vec::new();
        if !self.shadows.is_empty() {
            sections.push((SHADOWS, self.shadows.encode()?));
        }
        sections.push((GOING, digests(self.going.iter().map(PackId::as_bytes))));
        let mut named = WireWriter::new();
        for name in &self.named {
            let (kind, name) = match name {
                IndexName::File(name) => (0, name),
                IndexName::Group(name) => (1, name),
            };
            named.u8(kind);
            named.raw(name.as_bytes());
        }
        sections.push((NAMED, named.finish()));
        sections.push((FORGOTTEN, digests(self.forgotten.iter().map(CommitId::as_bytes))));
        sections.push((PURGED, digests(self.purged.iter().map(ObjectId::as_bytes))));
        sections.retain(|(_, content)| !content.is_empty());
        let mut w = TABLE.begin();
        w.u16(0);
        w.u32(sections.len() as u32);
        for (kind, content) in &sections {
            w.u32(*kind);
            w.u64(content.len() as u64);
            w.raw(content);
        }
        let bytes = SmallTable::end(w);
        FormatError::check_limit("gc table", bytes.len() as u64, limits::GC_TABLE_BYTES)?;
        Ok(bytes)
    }

    /// Decodes a table.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the table breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = TABLE.what;
        let mut r = TABLE.open(bytes)?;
        let at = r.at();
        if r.u16(what)? != 0 {
            return Err(FormatError::Invalid { what, at });
        }
        let (count, mut before) = (r.u32(what)?, 0);
        let mut table = Self::default();
        for _ in 0..count {
            let at = r.at();
            let kind = r.u32(what)?;
            if kind <= before {
                return Err(FormatError::Order { what: "sections of a gc table", at });
            }
            before = kind;
            let length = usize::try_from(r.u64(what)?).unwrap_or(usize::MAX);
            let content = r.raw(what, length)?;
            if content.is_empty() {
                return Err(FormatError::Invalid { what: "section of a gc table", at });
            }
            table.take_section(kind, content)?;
        }
        r.finish()?;
        Ok(table)
    }

    fn take_section(&mut self, kind: u32, content: &[u8]) -> Result<(), FormatError> {
        match kind {
            SHADOWS => {
                self.shadows = ShadowTable::decode(content)?;
                let is_dead = |(_, reason, _)| reason == Reason::Dead;
                if self.shadows.is_empty() || !self.shadows.entries().all(is_dead) {
                    return Err(FormatError::Invalid { what: "shadows of a gc table", at: 0 });
                }
            }
            GOING => self.going = read_set(content, 32, |r| digest(r).map(PackId::from_bytes))?,
            NAMED => self.named = read_set(content, 33, index_name)?,
            FORGOTTEN => {
                self.forgotten = read_set(content, 32, |r| digest(r).map(CommitId::from_bytes))?;
            }
            PURGED => self.purged = read_set(content, 32, |r| digest(r).map(ObjectId::from_bytes))?,
            found => {
                return Err(FormatError::Newer {
                    what: "section of a gc table",
                    found,
                    known: PURGED,
                });
            }
        }
        Ok(())
    }
}

fn digests<'a>(digests: impl Iterator<Item = &'a [u8; 32]>) -> Vec<u8> {
    digests.flatten().copied().collect()
}

fn digest(r: &mut WireReader<'_>) -> Result<[u8; 32], FormatError> {
    r.digest("gc table")
}

fn index_name(r: &mut WireReader<'_>) -> Result<IndexName, FormatError> {
    type OfName = fn(Name) -> IndexName;
    let kinds = [(0, IndexName::File as OfName), (1, IndexName::Group)];
    let of_name = r.one_of("index file in a gc table", &kinds)?;
    Ok(of_name(Name::from_bytes(digest(r)?)))
}

/// Reads a section with items of this length.
fn read_set<T: Ord>(
    content: &[u8],
    item_bytes: usize,
    read: impl Fn(&mut WireReader<'_>) -> Result<T, FormatError>,
) -> Result<BTreeSet<T>, FormatError> {
    let mut r = WireReader::new(content);
    let set = r.sorted(content.len() / item_bytes, "items of a gc table", read)?;
    r.finish()?;
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pack::checksum;
    use crate::format::shadow::ShadowedPart;

    fn pack(n: u8) -> PackId {
        PackId::from_bytes([n; 32])
    }

    fn object(n: u8) -> ObjectId {
        ObjectId::from_bytes([n; 32])
    }

    fn table() -> GcTable {
        let mut shadows = ShadowTable::default();
        shadows.add(pack(1), Reason::Dead, ShadowedPart::Objects([object(7)].into()));
        shadows.add(pack(2), Reason::Dead, ShadowedPart::Whole);
        GcTable {
            shadows,
            going: [pack(3), pack(4)].into(),
            named: [IndexName::File(pack(9)), IndexName::Group(pack(8))].into(),
            forgotten: [CommitId::from_bytes([5; 32])].into(),
            purged: [object(6)].into(),
        }
    }

    /// Recomputes the checksum of changed bytes.
    fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len() - 8);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_table_has_its_golden_bytes() {
        let mut expected = b"SNAPGCTB\x02\0\0\0\x05\0\0\0".to_vec();
        let mut section = |kind: u8, content: &[u8]| {
            expected.extend([kind, 0, 0, 0, content.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
            expected.extend(content);
        };
        section(1, &table().shadows.encode().unwrap());
        section(2, &[[3; 32], [4; 32]].concat());
        section(3, &[&[0][..], &[9; 32], &[1], &[8; 32]].concat());
        section(4, &[5; 32]);
        section(5, &[6; 32]);
        expected.extend([0; 8]);
        assert_eq!(table().encode().unwrap(), resealed(expected));
        let nothing = GcTable::default().encode().unwrap();
        assert_eq!(nothing[..16], *b"SNAPGCTB\x02\0\0\0\0\0\0\0");
        assert_eq!(nothing.len(), 24);
    }

    #[test]
    fn a_table_survives_a_round_trip() {
        for table in [table(), GcTable::default()] {
            assert_eq!(GcTable::decode(&table.encode().unwrap()).unwrap(), table);
        }
        let table = table();
        assert!(table.reserves_name(&pack(1)) && table.reserves_name(&pack(4)));
        assert!(!table.reserves_name(&pack(9)));
        assert!(table.is_dead(&pack(1), &object(7)) && !table.is_dead(&pack(1), &object(8)));
        assert!(table.is_dead(&pack(3), &object(8)));
    }

    #[test]
    fn each_flipped_bit_or_truncation_is_detected() {
        let bytes = table().encode().unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(GcTable::decode(&flipped).is_err(), "byte {at}");
            assert!(GcTable::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn other_encodings_of_a_table_are_refused() {
        let going = GcTable { going: [pack(3), pack(4)].into(), ..GcTable::default() };
        let bytes = going.encode().unwrap();
        let change = |at: usize, value: u8| {
            let mut changed = bytes.clone();
            changed[at] = value;
            GcTable::decode(&resealed(changed)).unwrap_err()
        };
        assert!(matches!(change(8, 3), FormatError::Newer { .. }));
        assert!(matches!(change(10, 1), FormatError::Invalid { .. }));
        assert!(matches!(change(12, 2), FormatError::Truncated { .. }));
        assert!(matches!(change(16, 0), FormatError::Order { .. }));
        assert!(matches!(change(16, 9), FormatError::Newer { found: 9, .. }));
        assert!(matches!(change(16, 1), FormatError::Magic { .. }));
        assert!(matches!(
            change(16, 3),
            FormatError::Invalid { .. } | FormatError::Truncated { .. }
        ));
        assert!(matches!(
            change(20, 63),
            FormatError::Truncated { .. } | FormatError::Trailing { .. }
        ));
        assert!(matches!(change(27, 0xff), FormatError::Truncated { .. }));
        assert!(matches!(change(28, 5), FormatError::Order { .. } | FormatError::Invalid { .. }));
        let mut same = bytes.clone();
        same[28..60].fill(4);
        assert!(matches!(GcTable::decode(&resealed(same)), Err(FormatError::Order { .. })));
        let mut damage = ShadowTable::default();
        damage.add(pack(1), Reason::Damaged, ShadowedPart::Whole);
        let damaged = GcTable { shadows: damage, ..GcTable::default() };
        assert!(GcTable::decode(&damaged.encode().unwrap()).is_err());
    }
}
