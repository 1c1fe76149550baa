//! The garbage collection state of a remote store: one small object that is replaced by
//! compare-and-swap.
//!
//! The object `gc/state` has seven lines, each with `\n`:
//!
//! | line | what                                                                       |
//! |------|----------------------------------------------------------------------------|
//! | 1    | `snap gc state 2`                                                          |
//! | 2    | the epoch, in decimal                                                      |
//! | 3    | nonce of the epoch, 32 hex digits: a new random number for each epoch      |
//! | 4    | the version, in decimal: it grows by one with each swap                    |
//! | 5    | nonce, 32 hex digits: a new random number for each swap                    |
//! | 6    | `fenced`: a collector began the epoch and deletes later; `swept`: it is done |
//! | 7    | the BLAKE3 of the [table](crate::format::gc_table), 64 hex digits; 64 zeros in the epoch 0 |
//!
//! The table is the object `gc/VERSION-HASH`. A client may delete a table whose version is below
//! that of the state: no swap can name it any more. A store is born with the state of the epoch 0,
//! which has no table. Without a state, nothing is collected.

use crate::{
    base::id::PackId,
    format::{
        ref_text::{FIRST_EPOCH, Nonce},
        wire::FormatError,
    },
};

/// The first line, without the number of the form.
const HEADING: &str = "snap gc state ";

/// The form.
const FORM: u32 = 2;

/// The last line of a state without a table.
const NO_TABLE: [u8; 32] = [0; 32];

/// The name of a table: the BLAKE3 of its bytes.
pub type TableHash = PackId;

/// How far the collection of an epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A collector has shadowed what is dead. It or another one touches the refs and deletes.
    Fenced,
    /// The collection of the epoch is complete, apart from deletions.
    Swept,
}

impl Phase {
    const fn word(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Swept => "swept",
        }
    }
}

/// The garbage collection state of a remote store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcState {
    /// The number of the last epoch; 0 before the first collection.
    pub epoch: u64,
    /// The random number of the epoch.
    pub epoch_nonce: Nonce,
    /// The number of swaps.
    pub version: u64,
    /// The random number of the last swap.
    pub nonce: Nonce,
    /// How far the collection is.
    pub phase: Phase,
    /// The table; `None` in the epoch 0.
    pub table: Option<TableHash>,
}

impl GcState {
    /// Creates the state of a new store.
    pub fn first() -> Self {
        let (epoch_nonce, nonce) = (Nonce::random(), Nonce::random());
        Self {
            epoch: FIRST_EPOCH,
            epoch_nonce,
            version: 0,
            nonce,
            phase: Phase::Swept,
            table: None,
        }
    }

    /// Returns the state after this one, with a new nonce of the epoch if that is another one.
    #[must_use]
    pub fn next(self, epoch: u64, phase: Phase, table: TableHash) -> Self {
        let epoch_nonce = if epoch == self.epoch { self.epoch_nonce } else { Nonce::random() };
        let (version, nonce) = (self.version + 1, Nonce::random());
        Self { epoch, epoch_nonce, version, nonce, phase, table: Some(table) }
    }

    /// Returns the name of the table below `gc/`.
    pub fn table_name(&self) -> Option<String> {
        self.table.map(|table| format!("{}-{table}", self.version))
    }

    /// Encodes the state.
    pub fn encode(&self) -> String {
        let Self { epoch, epoch_nonce, version, nonce, phase, table } = self;
        let (phase, table) = (phase.word(), table.unwrap_or(TableHash::from_bytes(NO_TABLE)));
        format!("{HEADING}{FORM}\n{epoch}\n{epoch_nonce}\n{version}\n{nonce}\n{phase}\n{table}\n")
    }

    /// Decodes a state.
    ///
    /// # Errors
    /// [`FormatError::Newer`] or [`FormatError::Older`] for another form, and
    /// [`FormatError::Invalid`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = "garbage collection state";
        let wrong = || FormatError::Invalid { what, at: 0 };
        let text = str::from_utf8(bytes).map_err(|_| wrong())?;
        let mut lines = text.lines();
        let mut line = || lines.next().ok_or_else(wrong);
        let form: u32 = line()?.strip_prefix(HEADING).and_then(number).ok_or_else(wrong)?;
        FormatError::check_version(what, form, FORM)?;
        let epoch = number(line()?).ok_or_else(wrong)?;
        let epoch_nonce = line()?.parse()?;
        let version = number(line()?).ok_or_else(wrong)?;
        let nonce = line()?.parse()?;
        let word = line()?;
        let phase = [Phase::Fenced, Phase::Swept].into_iter().find(|phase| phase.word() == word);
        let phase = phase.ok_or_else(wrong)?;
        let table: TableHash = line()?.parse().map_err(|_| wrong())?;
        let table = (*table.as_bytes() != NO_TABLE).then_some(table);
        let state = Self { epoch, epoch_nonce, version, nonce, phase, table };
        // There is one encoding of each state.
        let is_canonical = state.encode().as_bytes() == bytes;
        let has_table = state.table.is_some();
        match is_canonical && has_table == (epoch != FIRST_EPOCH) {
            true => Ok(state),
            false => Err(wrong()),
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "0123456789abcdef0123456789abcdef";

    fn state() -> GcState {
        GcState {
            epoch: 3,
            epoch_nonce: "a".repeat(32).parse().unwrap(),
            version: 5,
            nonce: NONCE.parse().unwrap(),
            phase: Phase::Fenced,
            table: Some(TableHash::from_bytes([0xab; 32])),
        }
    }

    #[test]
    fn a_state_is_seven_lines() {
        let hash = "ab".repeat(32);
        let epoch = "a".repeat(32);
        let text = format!("snap gc state 2\n3\n{epoch}\n5\n{NONCE}\nfenced\n{hash}\n");
        assert_eq!(state().encode(), text);
        assert_eq!(GcState::decode(text.as_bytes()).unwrap(), state());
        assert_eq!(state().table_name(), Some(format!("5-{hash}")));
        let swept = GcState { phase: Phase::Swept, ..state() };
        assert_eq!(GcState::decode(swept.encode().as_bytes()).unwrap(), swept);
    }

    #[test]
    fn each_epoch_has_a_nonce_that_its_swaps_keep() {
        let first = GcState::first();
        assert_eq!((first.epoch, first.version, first.table_name()), (0, 0, None));
        let text = first.encode();
        assert!(text.ends_with(&format!("\nswept\n{}\n", "0".repeat(64))), "{text}");
        assert_eq!(GcState::decode(text.as_bytes()).unwrap(), first);
        let table = TableHash::from_bytes([1; 32]);
        let fenced = first.next(1, Phase::Fenced, table);
        let swept = fenced.next(1, Phase::Swept, table);
        assert_eq!((fenced.version, swept.version, swept.epoch), (1, 2, 1));
        assert_ne!(fenced.epoch_nonce, first.epoch_nonce);
        assert_eq!(swept.epoch_nonce, fenced.epoch_nonce);
        assert_ne!(swept.nonce, fenced.nonce);
    }

    #[test]
    fn malformed_states_are_refused() {
        let text = state().encode();
        for cut in 0..text.len() {
            assert!(GcState::decode(&text.as_bytes()[..cut]).is_err(), "{cut}");
        }
        for (from, to) in [
            ("\n3\n", "\n03\n"),
            ("\n3\n", "\n0\n"),
            ("\n3\n", "\n+3\n"),
            ("fenced", "Fenced"),
            ("fenced", "going"),
            ("\n5\n", "\n-5\n"),
            ("snap gc state", "snap gc"),
            ("ab\n", "AB\n"),
            ("ab\n", "ab\nx\n"),
            (&"ab".repeat(32), &"0".repeat(64)),
            ("\n5\n", "\r\n5\n"),
        ] {
            assert!(GcState::decode(text.replace(from, to).as_bytes()).is_err(), "{from:?} {to:?}");
        }
        let newer = text.replace("state 2", "state 3");
        let error = GcState::decode(newer.as_bytes()).unwrap_err();
        assert!(matches!(error, FormatError::Newer { found: 3, known: 2, .. }), "{error}");
        let older = text.replace("state 2", "state 1");
        let error = GcState::decode(older.as_bytes()).unwrap_err();
        assert!(matches!(error, FormatError::Older { found: 1, known: 2, .. }), "{error}");
    }
}
