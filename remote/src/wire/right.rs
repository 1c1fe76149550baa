//! The rights that a token can grant, which settings and tokens call scopes, and the access that a
//! route requires.

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

/// The access that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// No token: such a request asks about the server itself, or gets an asset or the login form.
    Nothing,
    /// Any right; the response shows only what the client may read.
    AnyRight,
    /// A right in the repository that the path names as `{repo}`.
    Repository(Right),
    /// The right to read everything.
    ReadAll,
    /// A page for people with a browser: its handler shows only what they may read, and its
    /// actions need the CSRF token of the form.
    Page,
}

impl RouteAccess {
    /// Reads a repository.
    pub const READ: Self = Self::Repository(Right::Read);
    /// Adds to a repository. Names of packs and objects are hashes, so a client cannot replace any.
    /// Refs can be created and fast-forwarded.
    pub const APPEND: Self = Self::Repository(Right::Append);
    /// Changes a repository.
    pub const WRITE: Self = Self::Repository(Right::Write);
    /// Creates a repository.
    pub const ADMIN: Self = Self::Repository(Right::Admin);

    /// Returns true if the route changes a repository.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Repository(right) if right > Right::Read)
    }
}
