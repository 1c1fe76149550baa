//! Moves of refs in the ref logs: the reasons that this server records, and the last move.

use snap_core::{base::time::Time, repo::ref_log::RefLogEntry};

/// Reason in the log for a move that a client requested.
pub const PUSH: &str = "push";

/// Reason in the log for a move that the cache of an upstream made to follow the upstream.
pub const FOLLOW: &str = "follow";

/// User in the log for a client without a token.
pub const UNNAMED_CLIENT: &str = "client";

/// The last move of a branch or tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastMove {
    pub time: Time,
    /// The name of the token, or the user on this machine; `None` for a client without a token.
    pub who: Option<String>,
    /// True if a client made the move, false if a command on this machine made it.
    pub is_push: bool,
}

impl LastMove {
    /// Converts the last line of a log. Returns `None` for a move that followed the upstream: the
    /// line does not say when and by whom the upstream's ref was moved.
    pub fn of(entry: RefLogEntry) -> Option<Self> {
        let is_push = entry.reason == PUSH;
        let who = Some(entry.who).filter(|who| !(is_push && who == UNNAMED_CLIENT));
        (entry.reason != FOLLOW).then_some(Self { time: entry.time, who, is_push })
    }
}
