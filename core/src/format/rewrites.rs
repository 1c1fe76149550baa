//! The table of rewrites: the commits that `rewrite` replaced, and the objects that it purged.
//!
//! | part     | offset  | bytes | field                                              |
//! |----------|---------|-------|----------------------------------------------------|
//! | header   | 0       | 8     | magic, `SNAPREWR`                                  |
//! |          | 8       | 2     | format version, u16                                |
//! |          | 10      | 4     | number of rewrites r, u32                          |
//! | rewrites | 14      | …     | r rewrites, by strictly increasing time            |
//! | sum      | end − 8 | 8     | XXH3-64 of all bytes before                        |
//!
//! | offset in a rewrite | bytes  | field                                             |
//! |---------------------|--------|---------------------------------------------------|
//! | 0                   | 8      | time, seconds since 1970, i64                     |
//! | 8                   | 4      | nanoseconds, u32                                  |
//! | 12                  | 1      | state: see [`RewriteState`]                       |
//! | 13                  | 4      | number of commits c, u32                          |
//! | 17                  | 4      | number of purged objects o, u32                   |
//! | 21                  | 4      | number of remaining contents n, u32               |
//! | 25                  | 64 × c | id of the old commit, id of the new one; sorted by the old one |
//! | 25 + 64 c           | 32 × o | ids of the purged objects, sorted                 |
//! | 25 + 64 c + 32 o    | 32 × n | ids of the remaining contents, sorted             |
//!
//! Integers are little-endian. The purged objects are those that the old commits reached, and that
//! no ref reached afterwards. The remaining contents are those of the removed paths that a ref still
//! reached: at another path, or because it was not rewritten.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    base::{
        id::{CommitId, ObjectId},
        time::Time,
    },
    format::{
        small_table::SmallTable,
        wire::{FormatError, WireReader},
    },
};

/// The first bytes of a table.
pub const MAGIC: &[u8; 8] = b"SNAPREWR";

/// The version.
pub const VERSION: u16 = 3;

const TABLE: SmallTable = SmallTable { what: "table of rewrites", magic: MAGIC, version: VERSION };

/// What can become of a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteState {
    /// An undo is possible.
    Open = 0,
    /// Garbage collection has deleted objects, so an undo is not possible.
    Final = 1,
    /// An undo has begun. Refs move back, and nothing counts as purged or replaced.
    Undoing = 2,
}

/// One `rewrite`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// When the refs moved.
    pub time: Time,
    pub state: RewriteState,
    /// The replaced commits, each with the new one.
    pub commits: BTreeMap<CommitId, CommitId>,
    /// The objects that must be deleted, and that no command stores again.
    pub purged: BTreeSet<ObjectId>,
    /// The contents of removed paths that refs still reach. When no ref reaches one any more, it is
    /// purged.
    pub remaining: BTreeSet<ObjectId>,
}

/// All rewrites of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteTable {
    /// The rewrites, oldest first.
    pub rewrites: Vec<Rewrite>,
}

impl RewriteTable {
    /// Returns true if nothing was rewritten.
    pub fn is_empty(&self) -> bool {
        self.rewrites.is_empty()
    }

    /// Returns true if an object was purged.
    pub fn has_purged(&self, id: &ObjectId) -> bool {
        self.has_purged_since(id, None)
    }

    /// Returns true if a rewrite after `time` purged an object; with `None`, any rewrite.
    pub fn has_purged_since(&self, id: &ObjectId, time: Option<Time>) -> bool {
        let mut later = self.valid().filter(|rewrite| time.is_none_or(|time| rewrite.time > time));
        later.any(|rewrite| rewrite.purged.contains(id))
    }

    /// Returns the commit that replaced another one in the last rewrite that replaced it.
    pub fn replacement(&self, id: &CommitId) -> Option<CommitId> {
        self.valid().filter_map(|rewrite| rewrite.commits.get(id)).last().copied()
    }

    /// Returns true if a commit was replaced by another one.
    pub fn has_replaced(&self, id: &CommitId) -> bool {
        self.valid().any(|rewrite| rewrite.commits.contains_key(id))
    }

    fn valid(&self) -> impl Iterator<Item = &Rewrite> {
        self.rewrites.iter().filter(|rewrite| rewrite.state != RewriteState::Undoing)
    }

    /// Returns all purged objects.
    pub fn purged(&self) -> impl Iterator<Item = &ObjectId> {
        self.valid().flat_map(|rewrite| &rewrite.purged)
    }

    /// Returns all contents that were removed, also those that refs still reach, and all other purged
    /// objects.
    pub fn removed(&self) -> impl Iterator<Item = &ObjectId> {
        self.purged().chain(self.valid().flat_map(|rewrite| &rewrite.remaining))
    }

    /// Lets commands store an object again.
    pub fn allow(&mut self, id: &ObjectId) {
        for rewrite in &mut self.rewrites {
            rewrite.purged.remove(id);
            rewrite.remaining.remove(id);
        }
    }

    /// Encodes the table.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = TABLE.begin();
        w.u32(self.rewrites.len() as u32);
        for rewrite in &self.rewrites {
            w.time(rewrite.time);
            w.u8(rewrite.state as u8);
            w.u32(rewrite.commits.len() as u32);
            w.u32(rewrite.purged.len() as u32);
            w.u32(rewrite.remaining.len() as u32);
            for (old, new) in &rewrite.commits {
                w.raw(old.as_bytes());
                w.raw(new.as_bytes());
            }
            let objects = rewrite.purged.iter().chain(&rewrite.remaining);
            objects.for_each(|id| w.raw(id.as_bytes()));
        }
        SmallTable::end(w)
    }

    /// Decodes a table.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the table breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = TABLE.what;
        let mut r = TABLE.open(bytes)?;
        let mut table = Self::default();
        for _ in 0..r.u32(what)? {
            let at = r.at();
            let rewrite = Rewrite::decode(&mut r)?;
            if table.rewrites.last().is_some_and(|last| last.time >= rewrite.time) {
                return Err(FormatError::Order { what: "rewrites", at });
            }
            table.rewrites.push(rewrite);
        }
        r.finish()?;
        Ok(table)
    }
}

impl Rewrite {
    fn decode(r: &mut WireReader<'_>) -> Result<Self, FormatError> {
        let what = "rewrite";
        let time = r.time("time of a rewrite")?;
        let states =
            [(0, RewriteState::Open), (1, RewriteState::Final), (2, RewriteState::Undoing)];
        let state = r.one_of("state of a rewrite", &states)?;
        let (count, purged, remaining) = (r.u32(what)?, r.u32(what)?, r.u32(what)?);
        let mut commits = BTreeMap::new();
        for _ in 0..count {
            let at = r.at();
            let old = CommitId::from_bytes(r.digest(what)?);
            if commits.last_key_value().is_some_and(|(last, _)| *last >= old) {
                return Err(FormatError::Order { what: "rewritten commits", at });
            }
            commits.insert(old, CommitId::from_bytes(r.digest(what)?));
        }
        let object = |r: &mut WireReader<'_>| Ok(ObjectId::from_bytes(r.digest(what)?));
        let purged = r.sorted(purged as usize, "purged objects", object)?;
        let remaining = r.sorted(remaining as usize, "remaining contents", object)?;
        Ok(Self { time, state, commits, purged, remaining })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pack::checksum;

    fn table() -> RewriteTable {
        let commit = |n| CommitId::from_bytes([n; 32]);
        let object = |n| ObjectId::from_bytes([n; 32]);
        let first = Rewrite {
            time: Time { secs: -1, nanos: 999_999_999 },
            state: RewriteState::Final,
            commits: [(commit(2), commit(4)), (commit(1), commit(3))].into(),
            purged: [object(1), object(2), object(7)].into(),
            remaining: [object(4), object(6)].into(),
        };
        let second = Rewrite {
            time: Time { secs: 1 << 40, nanos: 0 },
            state: RewriteState::Open,
            commits: [(commit(3), commit(5))].into(),
            purged: [object(3)].into(),
            remaining: BTreeSet::new(),
        };
        RewriteTable { rewrites: vec![first, second] }
    }

    #[test]
    fn a_table_has_these_bytes_and_survives_a_round_trip() {
        let bytes = table().encode();
        assert_eq!(bytes.len(), 14 + (25 + 2 * 64 + 5 * 32) + (25 + 64 + 32) + 8);
        assert_eq!(bytes[..14], *b"SNAPREWR\x03\x00\x02\x00\x00\x00");
        assert_eq!(bytes[14..22], [255; 8]);
        assert_eq!(bytes[22..26], 999_999_999_u32.to_le_bytes());
        assert_eq!(bytes[26..39], [1, 2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[39..71], [1; 32]);
        assert_eq!(bytes[71..103], [3; 32]);
        assert_eq!(RewriteTable::decode(&bytes).unwrap(), table());
    }

    #[test]
    fn each_flipped_bit_or_truncation_is_detected() {
        let bytes = table().encode();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(RewriteTable::decode(&flipped).is_err(), "byte {at}");
            assert!(RewriteTable::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn unsorted_tables_and_wrong_fields_are_refused() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = table().encode();
            bytes.truncate(bytes.len() - 8);
            change(&mut bytes);
            bytes.extend(checksum(&bytes).to_le_bytes());
            RewriteTable::decode(&bytes)
        };
        assert!(with(&|_| {}).is_ok());
        let second = 14 + 25 + 2 * 64 + 5 * 32;
        // The old commits, the objects, the contents, and the times of the rewrites.
        let objects = 14 + 25 + 2 * 64;
        for (at, byte) in [(39, 3), (objects, 9), (objects + 3 * 32, 9), (second + 7, 128)] {
            let refused = with(&|bytes| bytes[at] = byte);
            assert!(matches!(refused, Err(FormatError::Order { .. })), "{at}: {refused:?}");
        }
        assert!(matches!(with(&|bytes| bytes[25] = 255), Err(FormatError::Invalid { .. })));
        assert!(matches!(with(&|bytes| bytes[26] = 3), Err(FormatError::Invalid { .. })));
        assert!(matches!(with(&|bytes| bytes[8] = 4), Err(FormatError::Newer { found: 4, .. })));
        assert!(matches!(with(&|bytes| bytes[8] = 2), Err(FormatError::Older { found: 2, .. })));
    }

    #[test]
    fn an_allowed_object_is_not_purged_any_more() {
        let mut table = table();
        let id = ObjectId::from_bytes([7; 32]);
        assert!(table.has_purged(&id));
        table.allow(&id);
        let old = CommitId::from_bytes([2; 32]);
        assert!(!table.has_purged(&id) && table.has_replaced(&old));
        table.rewrites[0].state = RewriteState::Undoing;
        assert!(!table.has_replaced(&old));
    }
}
