//! What may be done.

use serde::{Deserialize, Serialize};

/// What may be done. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Read everything.
    Read,
    /// Send packs and objects, make refs that are new, and move branches to
    /// commits that come after the one they stand at; no more.
    Append,
    /// Move refs anywhere, and delete them.
    Write,
    /// Make repositories.
    Admin,
}

impl Right {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Append, Self::Write, Self::Admin];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Append => "append",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}
