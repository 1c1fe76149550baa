//! The shadow table: the objects in packs that must not be relied on.
//!
//! | part    | offset   | bytes | field                                            |
//! |---------|----------|-------|--------------------------------------------------|
//! | header  | 0        | 8     | magic, `SNAPSHAD`                                |
//! |         | 8        | 2     | format version, u16                              |
//! |         | 10       | 4     | number of entries e, u32                         |
//! | entries | 14       | …     | e entries, sorted by pack, then by reason        |
//! | sum     | end − 8  | 8     | XXH3-64 of all bytes before                      |
//!
//! | entry offset | bytes  | field                                              |
//! |--------------|--------|----------------------------------------------------|
//! | 0            | 32     | pack id                                            |
//! | 32           | 1      | reason: 1 dead, 2 damaged                          |
//! | 33           | 4      | number of objects n, u32; 0 means the whole pack   |
//! | 37           | 32 × n | ids of the objects, strictly increasing            |
//!
//! Integers are little-endian. A pack has at most one entry for each reason. A pack that is gone may have
//! an entry, too: its dead commits are those that a collection at a remote has deleted. Magic, version and
//! checksum have these offsets in every version, so that a reader can tell a damaged table from a
//! newer one.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    base::{
        id::{ObjectId, PackId},
        limits,
    },
    format::{
        small_table::SmallTable,
        wire::{FormatError, WireReader},
    },
};

/// The first bytes of a shadow table.
pub const MAGIC: &[u8; 8] = b"SNAPSHAD";

/// The version.
pub const VERSION: u16 = 2;

const TABLE: SmallTable = SmallTable { what: "shadow table", magic: MAGIC, version: VERSION };

/// Why an object must not be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No kept commit refers to the object. Garbage collection may delete it.
    Dead = 1,
    /// The bytes of the object are wrong or unreadable.
    Damaged = 2,
}

/// The part of a pack that is shadowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShadowedPart {
    /// All objects.
    Whole,
    /// The objects with these ids; never empty.
    Objects(BTreeSet<ObjectId>),
}

impl ShadowedPart {
    /// Returns true if an object of the pack is shadowed.
    pub fn covers(&self, id: &ObjectId) -> bool {
        match self {
            Self::Whole => true,
            Self::Objects(ids) => ids.contains(id),
        }
    }
}

/// The packs and objects that must not be relied on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowTable {
    entries: BTreeMap<(PackId, Reason), ShadowedPart>,
}

impl ShadowTable {
    /// Returns true if nothing is shadowed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries in the order of the table.
    pub fn entries(&self) -> impl Iterator<Item = (&PackId, Reason, &ShadowedPart)> {
        self.entries.iter().map(|((pack, reason), part)| (pack, *reason, part))
    }

    /// Returns true if an object of a pack is shadowed for any reason.
    pub fn covers(&self, pack: &PackId, id: &ObjectId) -> bool {
        self.of(pack).any(|(_, part)| part.covers(id))
    }

    /// Returns true if any object of a pack is shadowed.
    pub fn has_any(&self, pack: &PackId) -> bool {
        self.of(pack).next().is_some()
    }

    /// Returns true if any object of a pack is shadowed for this reason.
    pub fn has(&self, pack: &PackId, reason: Reason) -> bool {
        self.entries.contains_key(&(*pack, reason))
    }

    /// Returns the entries with one reason, as a table.
    #[must_use]
    pub fn of_reason(&self, reason: Reason) -> Self {
        let entries = self.entries.iter().filter(|((_, own), _)| *own == reason);
        Self { entries: entries.map(|(key, part)| (*key, part.clone())).collect() }
    }

    /// Returns true if an object of a pack is shadowed as dead.
    pub fn is_dead(&self, pack: &PackId, id: &ObjectId) -> bool {
        self.entries.get(&(*pack, Reason::Dead)).is_some_and(|part| part.covers(id))
    }

    fn of(&self, pack: &PackId) -> impl Iterator<Item = (Reason, &ShadowedPart)> {
        let range = (*pack, Reason::Dead)..=(*pack, Reason::Damaged);
        self.entries.range(range).map(|((_, reason), part)| (*reason, part))
    }

    /// Shadows objects of a pack. Above [`limits::SHADOW_OBJECTS`] damaged objects, shadows the
    /// whole pack. Dead objects have no such limit, because garbage collection may delete a pack
    /// that is dead as a whole.
    pub fn add(&mut self, pack: PackId, reason: Reason, part: ShadowedPart) {
        let added = match (self.entries.remove(&(pack, reason)), part) {
            (Some(ShadowedPart::Whole), _) | (_, ShadowedPart::Whole) => ShadowedPart::Whole,
            (None, ShadowedPart::Objects(ids)) => ShadowedPart::Objects(ids),
            (Some(ShadowedPart::Objects(mut known)), ShadowedPart::Objects(ids)) => {
                known.extend(ids);
                ShadowedPart::Objects(known)
            }
        };
        let added = match added {
            ShadowedPart::Objects(ids) if ids.is_empty() => return,
            ShadowedPart::Objects(ids)
                if reason == Reason::Damaged && ids.len() > limits::SHADOW_OBJECTS =>
            {
                ShadowedPart::Whole
            }
            part => part,
        };
        self.entries.insert((pack, reason), added);
    }

    /// Removes the entry of a pack with this reason. Returns true if the entry existed.
    pub fn remove(&mut self, pack: &PackId, reason: Reason) -> bool {
        self.entries.remove(&(*pack, reason)).is_some()
    }

    /// Encodes the table.
    ///
    /// # Errors
    /// [`FormatError::Limit`] if the table is longer than decoders accept.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut w = TABLE.begin();
        w.u32(self.entries.len() as u32);
        for ((pack, reason), part) in &self.entries {
            w.raw(pack.as_bytes());
            w.u8(*reason as u8);
            match part {
                ShadowedPart::Whole => w.u32(0),
                ShadowedPart::Objects(ids) => {
                    let (what, limit) = ("objects of a shadow", limits::PACK_OBJECTS as u64);
                    FormatError::check_limit(what, ids.len() as u64, limit)?;
                    w.u32(ids.len() as u32);
                    ids.iter().for_each(|id| w.raw(id.as_bytes()));
                }
            }
        }
        let bytes = SmallTable::end(w);
        FormatError::check_limit("shadow table", bytes.len() as u64, limits::SHADOW_BYTES)?;
        Ok(bytes)
    }

    /// Decodes a table.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the table breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = TABLE.what;
        let mut r = TABLE.open(bytes)?;
        let count = r.u32(what)?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let at = r.at();
            let pack = PackId::from_bytes(r.digest(what)?);
            let reasons = [(1, Reason::Dead), (2, Reason::Damaged)];
            let reason = r.one_of("reason of a shadow", &reasons)?;
            if entries.last_key_value().is_some_and(|(last, _)| *last >= (pack, reason)) {
                return Err(FormatError::Order { what: "shadows", at });
            }
            let part = decode_part(&mut r)?;
            entries.insert((pack, reason), part);
        }
        r.finish()?;
        Ok(Self { entries })
    }
}

fn decode_part(r: &mut WireReader<'_>) -> Result<ShadowedPart, FormatError> {
    let what = "objects of a shadow";
    let count = r.u32(what)?;
    FormatError::check_limit(what, u64::from(count), limits::PACK_OBJECTS as u64)?;
    let ids = r.sorted(count as usize, what, |r| Ok(ObjectId::from_bytes(r.digest(what)?)))?;
    Ok(if ids.is_empty() { ShadowedPart::Whole } else { ShadowedPart::Objects(ids) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::BlobId;
    use crate::format::pack::checksum;

    fn object(n: usize) -> ObjectId {
        BlobId::of(&(n as u64).to_le_bytes()).object()
    }

    fn pack(n: u8) -> PackId {
        PackId::from_bytes([n; 32])
    }

    fn objects(range: std::ops::Range<usize>) -> ShadowedPart {
        ShadowedPart::Objects(range.map(object).collect())
    }

    fn table() -> ShadowTable {
        let mut table = ShadowTable::default();
        table.add(pack(2), Reason::Damaged, ShadowedPart::Whole);
        table.add(pack(1), Reason::Damaged, objects(0..3));
        table.add(pack(1), Reason::Dead, objects(2..5));
        table
    }

    #[test]
    fn a_shadow_table_survives_a_round_trip() {
        let table = table();
        let bytes = table.encode().unwrap();
        assert_eq!(bytes.len(), 14 + 3 * 37 + 6 * 32 + 8);
        assert_eq!(ShadowTable::decode(&bytes).unwrap(), table);
        for (n, covered) in [(0, true), (4, true), (5, false)] {
            assert_eq!(table.covers(&pack(1), &object(n)), covered, "object {n}");
        }
        assert!(table.covers(&pack(2), &object(9)));
        assert!(table.has_any(&pack(1)) && !table.has_any(&pack(3)));
    }

    #[test]
    fn each_flipped_bit_or_truncation_is_detected() {
        let bytes = table().encode().unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(ShadowTable::decode(&flipped).is_err(), "byte {at}");
            assert!(ShadowTable::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_newer_table_is_refused_as_newer() {
        let mut bytes = table().encode().unwrap();
        bytes[8] = 3;
        bytes.truncate(bytes.len() - 8);
        bytes.extend(checksum(&bytes).to_le_bytes());
        let error = ShadowTable::decode(&bytes).unwrap_err();
        assert!(matches!(error, FormatError::Newer { found: 3, known: 2, .. }), "{error}");
    }

    #[test]
    fn removing_one_reason_keeps_the_other() {
        let mut table = table();
        assert!(table.remove(&pack(1), Reason::Damaged));
        assert!(!table.remove(&pack(1), Reason::Damaged));
        assert!(table.covers(&pack(1), &object(2)) && !table.covers(&pack(1), &object(0)));
    }

    #[test]
    fn many_damaged_but_no_dead_objects_shadow_the_pack() {
        let most = limits::SHADOW_OBJECTS;
        for (reason, whole) in [(Reason::Damaged, true), (Reason::Dead, false)] {
            let mut table = ShadowTable::default();
            table.add(pack(1), reason, objects(0..most));
            assert!(!table.covers(&pack(1), &object(most + 1)));
            table.add(pack(1), reason, objects(most..most + 1));
            assert_eq!(table.covers(&pack(1), &object(most + 1)), whole, "{reason:?}");
            assert_eq!(ShadowTable::decode(&table.encode().unwrap()).unwrap(), table);
        }
    }
}
