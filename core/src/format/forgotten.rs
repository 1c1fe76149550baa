//! The table of forgotten commits.
//!
//! | part    | offset  | bytes  | field                                   |
//! |---------|---------|--------|-----------------------------------------|
//! | header  | 0       | 8      | magic, `SNAPFORG`                       |
//! |         | 8       | 2      | format version, u16                     |
//! |         | 10      | 4      | number of commits c, u32                |
//! | commits | 14      | 44 × c | c entries, sorted by id                 |
//! | sum     | end − 8 | 8      | XXH3-64 of all bytes before             |
//!
//! | entry offset | bytes | field                                        |
//! |--------------|-------|----------------------------------------------|
//! | 0            | 32    | id of the commit                             |
//! | 32           | 8     | when it was forgotten, seconds since 1970, i64 |
//! | 40           | 4     | nanoseconds, u32                             |
//!
//! Integers are little-endian. The commits that one command forgets have the same time, and no other
//! commits have it.

use std::collections::BTreeMap;

use crate::{
    base::{id::CommitId, time::Time},
    format::{small_table::SmallTable, wire::FormatError},
};

/// The first bytes of a table.
pub const MAGIC: &[u8; 8] = b"SNAPFORG";

/// The newest known version.
pub const VERSION: u16 = 1;

const TABLE: SmallTable =
    SmallTable { what: "table of forgotten commits", magic: MAGIC, version: VERSION };

/// The forgotten commits, each with the time of the command that forgot it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenTable {
    commits: BTreeMap<CommitId, Time>,
}

impl ForgottenTable {
    /// Returns true if no commit is forgotten.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Returns true if a commit is forgotten.
    pub fn contains(&self, id: &CommitId) -> bool {
        self.commits.contains_key(id)
    }

    /// Returns the time when a commit was forgotten.
    pub fn time_of(&self, id: &CommitId) -> Option<Time> {
        self.commits.get(id).copied()
    }

    /// Returns the commits, sorted by id.
    pub fn commits(&self) -> impl Iterator<Item = (&CommitId, Time)> {
        self.commits.iter().map(|(id, time)| (id, *time))
    }

    /// Returns the time of the last command that forgot commits.
    pub fn last_time(&self) -> Option<Time> {
        self.commits.values().max().copied()
    }

    /// Adds a commit. A commit that is forgotten already keeps its time.
    pub fn insert(&mut self, id: CommitId, time: Time) {
        self.commits.entry(id).or_insert(time);
    }

    /// Removes a commit.
    pub fn remove(&mut self, id: &CommitId) {
        self.commits.remove(id);
    }

    /// Puts new commits in the place of old ones, which keep their times.
    pub fn replace(&mut self, commits: &BTreeMap<CommitId, CommitId>) {
        let own: Vec<_> = commits.iter().filter(|(old, _)| self.contains(old)).collect();
        for (old, new) in own {
            let time = self.commits.remove(old);
            self.commits.extend(time.map(|time| (*new, time)));
        }
    }

    /// Removes all commits except those that `keep` selects.
    pub fn retain(&mut self, keep: impl Fn(&CommitId) -> bool) {
        self.commits.retain(|id, _| keep(id));
    }

    /// Encodes the table.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = TABLE.begin();
        w.u32(self.commits.len() as u32);
        for (id, time) in &self.commits {
            w.raw(id.as_bytes());
            w.u64(time.secs as u64);
            w.u32(time.nanos);
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
        let mut commits = BTreeMap::new();
        for _ in 0..r.u32(what)? {
            let at = r.at();
            let id = CommitId::from_bytes(r.digest(what)?);
            let time = Time { secs: r.u64(what)? as i64, nanos: r.u32(what)? };
            if commits.last_key_value().is_some_and(|(last, _)| *last >= id) {
                return Err(FormatError::Order { what: "forgotten commits", at });
            }
            if time.nanos >= 1_000_000_000 {
                return Err(FormatError::Invalid { what: "time of a forgotten commit", at });
            }
            commits.insert(id, time);
        }
        r.finish()?;
        Ok(Self { commits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pack::checksum;

    fn table() -> ForgottenTable {
        let mut table = ForgottenTable::default();
        table.insert(CommitId::from_bytes([2; 32]), Time { secs: -1, nanos: 999_999_999 });
        table.insert(CommitId::from_bytes([1; 32]), Time { secs: 1 << 40, nanos: 0 });
        table
    }

    #[test]
    fn a_table_has_these_bytes_and_survives_a_round_trip() {
        let bytes = table().encode();
        assert_eq!(bytes.len(), 14 + 2 * 44 + 8);
        assert_eq!(bytes[..14], *b"SNAPFORG\x01\x00\x02\x00\x00\x00");
        assert_eq!(bytes[14..46], [1; 32]);
        assert_eq!(bytes[46..58], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[90..98], [255; 8]);
        assert_eq!(bytes[98..102], 999_999_999_u32.to_le_bytes());
        assert_eq!(ForgottenTable::decode(&bytes).unwrap(), table());
        assert_eq!(table().last_time().unwrap().secs, 1 << 40);
    }

    #[test]
    fn each_flipped_bit_or_truncation_is_detected() {
        let bytes = table().encode();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(ForgottenTable::decode(&flipped).is_err(), "byte {at}");
            assert!(ForgottenTable::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn unsorted_tables_and_wrong_times_are_refused() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = table().encode();
            bytes.truncate(bytes.len() - 8);
            change(&mut bytes);
            bytes.extend(checksum(&bytes).to_le_bytes());
            ForgottenTable::decode(&bytes)
        };
        assert!(with(&|_| {}).is_ok());
        assert!(matches!(with(&|bytes| bytes[14] = 3), Err(FormatError::Order { .. })));
        assert!(matches!(with(&|bytes| bytes[57] = 255), Err(FormatError::Invalid { .. })));
        assert!(matches!(with(&|bytes| bytes[8] = 2), Err(FormatError::Newer { found: 2, .. })));
    }
}
