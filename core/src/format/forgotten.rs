//! The table of forgotten commits.
//!
//! | part    | offset  | bytes  | field                                   |
//! |---------|---------|--------|-----------------------------------------|
//! | header  | 0       | 8      | magic, `SNAPFORG`                       |
//! |         | 8       | 2      | format version, u16                     |
//! |         | 10      | 4      | number of commits c, u32                |
//! | commits | 14      | 57 × c | c entries, sorted by id                 |
//! | sum     | end − 8 | 8      | XXH3-64 of all bytes before             |
//!
//! | entry offset | bytes | field                                                              |
//! |--------------|-------|--------------------------------------------------------------------|
//! | 0            | 32    | id of the commit                                                   |
//! | 32           | 8     | time of the command that forgot it, seconds since 1970, i64        |
//! | 40           | 4     | nanoseconds, u32                                                   |
//! | 44           | 8     | when it got its state, seconds since 1970, i64                     |
//! | 52           | 4     | nanoseconds, u32                                                   |
//! | 56           | 1     | state: 0 forgotten; 1 brought back by an undo, which a redo can repeat |
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

/// The version.
pub const VERSION: u16 = 3;

const TABLE: SmallTable =
    SmallTable { what: "table of forgotten commits", magic: MAGIC, version: VERSION };

/// The state of a commit in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgottenState {
    /// The commit is forgotten.
    Forgotten = 0,
    /// An undo has brought the commit back. It is not forgotten; a redo forgets it again.
    Undone = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// The time of the command that forgot the commit.
    time: Time,
    /// When the commit got its state.
    since: Time,
    state: ForgottenState,
}

/// The commits of one command that are forgotten still, or that an undo has brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The time of the command.
    pub time: Time,
    /// When an undo or a redo gave the commits their state; otherwise the time of the command.
    pub since: Time,
    /// The commits, sorted by id.
    pub commits: Vec<CommitId>,
}

/// The forgotten commits, and those that an undo has brought back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenTable {
    entries: BTreeMap<CommitId, Entry>,
}

impl ForgottenTable {
    /// Returns true if the table has no commits, not even undone ones.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if a commit is forgotten.
    pub fn contains(&self, id: &CommitId) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.state == ForgottenState::Forgotten)
    }

    /// Returns the time since when a commit is forgotten.
    pub fn since(&self, id: &CommitId) -> Option<Time> {
        self.entries.get(id).filter(|_| self.contains(id)).map(|entry| entry.since)
    }

    /// Returns the forgotten commits, sorted by id, each with the time since when it is forgotten.
    pub fn commits(&self) -> impl Iterator<Item = (&CommitId, Time)> {
        self.of_state(ForgottenState::Forgotten).map(|(id, entry)| (id, entry.since))
    }

    fn of_state(&self, state: ForgottenState) -> impl Iterator<Item = (&CommitId, &Entry)> {
        self.entries.iter().filter(move |(_, entry)| entry.state == state)
    }

    /// Returns the commits of the last command in a state: the one to undo is the newest, the one to
    /// redo was undone last.
    pub fn last(&self, state: ForgottenState) -> Option<Forget> {
        let order = |entry: &Entry| match state {
            ForgottenState::Forgotten => entry.time,
            ForgottenState::Undone => entry.since,
        };
        let (_, last) = self.of_state(state).max_by_key(|(_, entry)| order(entry))?;
        let own = self.of_state(state).filter(|(_, entry)| entry.time == last.time);
        let commits = own.map(|(id, _)| *id).collect();
        Some(Forget { time: last.time, since: last.since, commits })
    }

    /// Adds a commit. A commit that is forgotten already keeps its time.
    pub fn insert(&mut self, id: CommitId, time: Time) {
        if !self.contains(&id) {
            let state = ForgottenState::Forgotten;
            self.entries.insert(id, Entry { time, since: time, state });
        }
    }

    /// Gives the commits of a command another state.
    pub fn set_state(&mut self, forget: &Forget, state: ForgottenState, since: Time) {
        for id in &forget.commits {
            if let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.time == forget.time)
            {
                (entry.state, entry.since) = (state, since);
            }
        }
    }

    /// Removes a commit.
    pub fn remove(&mut self, id: &CommitId) {
        self.entries.remove(id);
    }

    /// Removes all undone commits: after another change, a redo is not possible.
    pub fn remove_undone(&mut self) {
        self.entries.retain(|_, entry| entry.state != ForgottenState::Undone);
    }

    /// Puts new commits in the place of old ones, which keep their times.
    pub fn replace(&mut self, commits: &BTreeMap<CommitId, CommitId>) {
        let own: Vec<_> =
            commits.iter().filter(|(old, _)| self.entries.contains_key(old)).collect();
        for (old, new) in own {
            let entry = self.entries.remove(old);
            self.entries.extend(entry.map(|entry| (*new, entry)));
        }
    }

    /// Removes all commits except those that `keep` selects.
    pub fn retain(&mut self, keep: impl Fn(&CommitId, ForgottenState) -> bool) {
        self.entries.retain(|id, entry| keep(id, entry.state));
    }

    /// Encodes the table.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = TABLE.begin();
        w.u32(self.entries.len() as u32);
        for (id, entry) in &self.entries {
            w.raw(id.as_bytes());
            w.time(entry.time);
            w.time(entry.since);
            w.u8(entry.state as u8);
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
        let mut entries = BTreeMap::new();
        for _ in 0..r.u32(what)? {
            let at = r.at();
            let id = CommitId::from_bytes(r.digest(what)?);
            let of_commit = "time of a forgotten commit";
            let (time, since) = (r.time(of_commit)?, r.time(of_commit)?);
            let states = [(0, ForgottenState::Forgotten), (1, ForgottenState::Undone)];
            let state = r.one_of("state of a forgotten commit", &states)?;
            if entries.last_key_value().is_some_and(|(last, _)| *last >= id) {
                return Err(FormatError::Order { what: "forgotten commits", at });
            }
            entries.insert(id, Entry { time, since, state });
        }
        r.finish()?;
        Ok(Self { entries })
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
        let undone = table.last(ForgottenState::Forgotten).unwrap();
        table.set_state(&undone, ForgottenState::Undone, Time { secs: 1 << 48, nanos: 5 });
        table
    }

    #[test]
    fn a_table_has_these_bytes_and_survives_a_round_trip() {
        let bytes = table().encode();
        assert_eq!(bytes.len(), 14 + 2 * 57 + 8);
        assert_eq!(bytes[..14], *b"SNAPFORG\x03\x00\x02\x00\x00\x00");
        assert_eq!(bytes[14..46], [1; 32]);
        assert_eq!(bytes[46..58], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[58..71], [0, 0, 0, 0, 0, 0, 1, 0, 5, 0, 0, 0, 1]);
        assert_eq!(bytes[103..111], [255; 8]);
        assert_eq!(bytes[111..115], 999_999_999_u32.to_le_bytes());
        assert_eq!(bytes[115..128], bytes[103..115].iter().copied().chain([0]).collect::<Vec<_>>());
        assert_eq!(ForgottenTable::decode(&bytes).unwrap(), table());
    }

    #[test]
    fn the_newest_command_is_undone_first_and_redone_last() {
        use ForgottenState::{Forgotten, Undone};
        let at = |secs| Time { secs, nanos: 0 };
        let id = |n| CommitId::from_bytes([n; 32]);
        let mut table = ForgottenTable::default();
        (1..=3).for_each(|n| table.insert(id(n), at(i64::from(n) % 3)));
        let newest = table.last(Forgotten).unwrap();
        assert_eq!(newest, Forget { time: at(2), since: at(2), commits: vec![id(2)] });
        table.set_state(&newest, Undone, at(10));
        assert!(!table.contains(&id(2)) && table.contains(&id(1)));
        let second = table.last(Forgotten).unwrap();
        table.set_state(&second, Undone, at(11));
        let redone = table.last(Undone).unwrap();
        assert_eq!(redone, Forget { since: at(11), ..second });
        table.set_state(&redone, Forgotten, at(12));
        assert_eq!(table.commits().collect::<Vec<_>>().len(), 2);
        assert!(table.commits().any(|(_, since)| since == at(12)));
        table.remove_undone();
        assert_eq!((table.last(Undone), table.contains(&id(1))), (None, true));
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
        for at in [57, 69, 70] {
            let refused = with(&|bytes| bytes[at] = 255);
            assert!(matches!(refused, Err(FormatError::Invalid { .. })), "{at}: {refused:?}");
        }
        assert!(matches!(with(&|bytes| bytes[8] = 4), Err(FormatError::Newer { found: 4, .. })));
        assert!(matches!(with(&|bytes| bytes[8] = 2), Err(FormatError::Older { found: 2, .. })));
    }
}
