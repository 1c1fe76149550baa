//! What a mirror remembers about its remote store in a few words, in one checked file.
//!
//! The tables of a mirror (`outlines`, `gc-view`, `shadow`, `forgotten`) grow with the remote store.
//! They stay in files of their own, so that a push writes only some bytes here.
//!
//! | line | meaning |
//! |---|---|
//! | `seen` | this machine has seen the remote store |
//! | `sending` | an upload of packs has begun; no index file lists them yet |
//! | `interrupted` | a connection broke during this upload, so it goes on with smaller packs |
//! | `damaged` | the remote store lacks objects |
//! | `damaged-index NAME` | this index file was found damaged |
//!
//! A process changes the file under the lock of the mirror, and reads it again for each question,
//! since another process may have changed it. A mirror without the file is cleared when it is
//! opened. A damaged file may have said `damaged`, so it counts as that: each push then checks the
//! whole remote store, until a verification.

use std::{collections::BTreeSet, path::Path};

use snap_core::{base::io::PathError, disk::Disk};

use super::checked_file::{self, CheckedText};

/// The name of the file. It has the version of the store format: a mirror of an older version is
/// cleared.
pub(super) const STATE: &str = "state-5";

const SEEN: &str = "seen";
const SENDING: &str = "sending";
const INTERRUPTED: &str = "interrupted";
const DAMAGED: &str = "damaged";
const DAMAGED_INDEX: &str = "damaged-index";

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MirrorState {
    pub(super) is_seen: bool,
    pub(super) is_sending: bool,
    pub(super) is_interrupted: bool,
    pub(super) is_damaged: bool,
    pub(super) damaged_index: BTreeSet<String>,
}

impl MirrorState {
    /// Reads the state of the mirror in `dir`.
    pub(super) fn read(dir: &Path) -> Self {
        match checked_file::read(&dir.join(STATE)) {
            CheckedText::Missing => Some(Self::default()),
            CheckedText::Damaged => None,
            CheckedText::Lines(text) => Self::parse(&text),
        }
        .unwrap_or(Self { is_damaged: true, ..Self::default() })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut state = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                None if line == SEEN => state.is_seen = true,
                None if line == SENDING => state.is_sending = true,
                None if line == INTERRUPTED => state.is_interrupted = true,
                None if line == DAMAGED => state.is_damaged = true,
                Some((DAMAGED_INDEX, name)) => drop(state.damaged_index.insert(name.to_owned())),
                _ => return None,
            }
        }
        Some(state)
    }

    /// Writes the state of the mirror in `dir`. The temporary file is in the folder `tmp`.
    ///
    /// # Errors
    /// [`PathError`] if the file cannot be written; it is unchanged then.
    pub(super) fn write(&self, dir: &Path, disk: &Disk, tmp: &Path) -> Result<(), PathError> {
        let flags = [
            (self.is_seen, SEEN),
            (self.is_sending, SENDING),
            (self.is_interrupted, INTERRUPTED),
            (self.is_damaged, DAMAGED),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        let mut lines: String = flags.map(|(_, word)| format!("{word}\n")).collect();
        lines.extend(self.damaged_index.iter().map(|name| format!("{DAMAGED_INDEX} {name}\n")));
        checked_file::write(disk, tmp, &dir.join(STATE), lines)
    }

    /// Returns the state of the mirror in `dir` after a change; `None` if it stays the same.
    pub(super) fn changed(dir: &Path, change: &impl Fn(&mut Self)) -> Option<Self> {
        let before = Self::read(dir);
        let mut after = before.clone();
        change(&mut after);
        (after != before).then_some(after)
    }

    /// Changes the state of the mirror in `dir`. The caller must hold the lock of the mirror.
    ///
    /// # Errors
    /// As [`MirrorState::write`].
    pub(super) fn change(
        dir: &Path,
        disk: &Disk,
        change: &impl Fn(&mut Self),
    ) -> Result<(), PathError> {
        match Self::changed(dir, change) {
            Some(state) => state.write(dir, disk, &dir.join("tmp")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_state_counts_as_damage_of_the_remote_store() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, disk) = (folder.path(), Disk::scratch());
        assert_eq!(MirrorState::read(dir), MirrorState::default());
        let state = MirrorState {
            is_seen: true,
            is_sending: true,
            is_interrupted: true,
            is_damaged: false,
            damaged_index: ["one".to_owned(), "two".to_owned()].into(),
        };
        state.write(dir, &disk, dir).unwrap();
        assert_eq!(MirrorState::read(dir), state);
        let path = dir.join(STATE);
        let bytes = fs_err::read(&path).unwrap();
        let unknown = MirrorState { is_damaged: true, ..MirrorState::default() };
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            for damaged in [&bytes[..at], &changed] {
                fs_err::write(&path, damaged).unwrap();
                assert_eq!(MirrorState::read(dir), unknown, "{at}");
            }
        }
        checked_file::write(&disk, dir, &path, "a word of a later version\n".to_owned()).unwrap();
        assert_eq!(MirrorState::read(dir), unknown);
    }
}
