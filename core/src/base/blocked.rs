//! Reasons to stop that have nothing to do with the bytes of a store.

use crate::base::kind::Kind;

/// What a partial clone lacks. Its origin has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialClone {
    /// The paths outside its scope.
    Paths,
    /// Parts of packs.
    Packs,
}

/// Why an operation stopped, although nothing that it read is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Kind)]
pub enum Blocked {
    /// The store lacks objects that its origin has. `action` names the requested operation, such as
    /// "collect garbage".
    #[error("a partial clone cannot {action}: its remote has the other objects")]
    #[kind(Invalid)]
    Partial { action: &'static str, lacks: PartialClone },
    /// Each attempt was overtaken. `action` is what the other processes did, such as "moved branches".
    #[error("other processes {action} again and again")]
    #[kind(Locked)]
    Contended { action: &'static str },
    /// The user asked to stop.
    #[error("interrupted")]
    #[kind(Interrupted)]
    Interrupted,
}
