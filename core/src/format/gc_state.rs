//! The garbage collection state of a remote store: one small object that is replaced by
//! compare-and-swap.
//!
//! The object `gc/state` has six lines, each with `\n`:
//!
//! | line | what                                                                       |
//! |------|----------------------------------------------------------------------------|
//! | 1    | `snap gc state 1`                                                          |
//! | 2    | the epoch, in decimal                                                      |
//! | 3    | the version, in decimal: it grows by one with each swap                    |
//! | 4    | nonce, 32 hex digits: a new random number for each swap                    |
//! | 5    | `fenced`: a collector began the epoch and deletes later; `swept`: it is done |
//! | 6    | the BLAKE3 of the [table](crate::format::gc_table), 64 hex digits          |
//!
//! The table is the object `gc/VERSION-HASH`. A client may delete a table whose version is below
//! that of the state: no swap can name it any more. A store without a state has the epoch 0.

use crate::{
    base::id::PackId,
    format::{ref_text::Nonce, wire::FormatError},
};

/// The first line, without the number of the form.
const HEADING: &str = "snap gc state ";

/// The newest known form.
const FORM: u32 = 1;

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
    /// The number of the last epoch, at least 1.
    pub epoch: u64,
    /// The number of swaps.
    pub version: u64,
    /// The random number of the last swap.
    pub nonce: Nonce,
    /// How far the collection is.
    pub phase: Phase,
    /// The table.
    pub table: TableHash,
}

impl GcState {
    /// Returns the name of the table below `gc/`.
    pub fn table_name(&self) -> String {
        format!("{}-{}", self.version, self.table)
    }

    /// Encodes the state.
    pub fn encode(&self) -> String {
        let Self { epoch, version, nonce, phase, table } = self;
        let phase = phase.word();
        format!("{HEADING}{FORM}\n{epoch}\n{version}\n{nonce}\n{phase}\n{table}\n")
    }

    /// Decodes a state.
    ///
    /// # Errors
    /// [`FormatError::Newer`] for another form, and [`FormatError::Invalid`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = "garbage collection state";
        let wrong = || FormatError::Invalid { what, at: 0 };
        let text = str::from_utf8(bytes).map_err(|_| wrong())?;
        let mut lines = text.lines();
        let mut line = || lines.next().ok_or_else(wrong);
        let form: u32 = line()?.strip_prefix(HEADING).and_then(number).ok_or_else(wrong)?;
        FormatError::check_version(what, form, FORM)?;
        let epoch = number(line()?).filter(|epoch| *epoch > 0).ok_or_else(wrong)?;
        let version = number(line()?).ok_or_else(wrong)?;
        let nonce = line()?.parse()?;
        let word = line()?;
        let phase = [Phase::Fenced, Phase::Swept].into_iter().find(|phase| phase.word() == word);
        let phase = phase.ok_or_else(wrong)?;
        let table = line()?.parse().map_err(|_| wrong())?;
        let state = Self { epoch, version, nonce, phase, table };
        // There is one encoding of each state.
        if state.encode().as_bytes() == bytes { Ok(state) } else { Err(wrong()) }
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
            version: 5,
            nonce: NONCE.parse().unwrap(),
            phase: Phase::Fenced,
            table: TableHash::from_bytes([0xab; 32]),
        }
    }

    #[test]
    fn a_state_is_six_lines() {
        let hash = "ab".repeat(32);
        let text = format!("snap gc state 1\n3\n5\n{NONCE}\nfenced\n{hash}\n");
        assert_eq!(state().encode(), text);
        assert_eq!(GcState::decode(text.as_bytes()).unwrap(), state());
        assert_eq!(state().table_name(), format!("5-{hash}"));
        let swept = GcState { phase: Phase::Swept, ..state() };
        assert_eq!(GcState::decode(swept.encode().as_bytes()).unwrap(), swept);
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
            ("\n5\n", "\r\n5\n"),
        ] {
            assert!(GcState::decode(text.replace(from, to).as_bytes()).is_err(), "{from:?} {to:?}");
        }
        let newer = text.replace("state 1", "state 2");
        let error = GcState::decode(newer.as_bytes()).unwrap_err();
        assert!(matches!(error, FormatError::Newer { found: 2, known: 1, .. }), "{error}");
    }
}
