//! The rights that a token can grant. Settings and tokens call them scopes.

use serde::{Deserialize, Serialize};

/// What a client may do. Each right includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Read everything.
    Read,
    /// Send packs and objects, create refs, and fast-forward branches; nothing else.
    Append,
    /// Move refs to any commit, and delete them.
    Write,
    /// Create repositories.
    Admin,
}

impl Right {
    /// All rights, the least one first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Append, Self::Write, Self::Admin];

    /// Returns the name that is used in tokens, settings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Append => "append",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}
