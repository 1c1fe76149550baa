//! For whom something is done. What there is little of is shared between them;
//! whoever does something need not be told for whom.

use std::{
    collections::hash_map::RandomState,
    future::Future,
    hash::{BuildHasher, Hash},
    sync::LazyLock,
};

use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static WHOM: Sharer;
}

/// Somebody who is to have a share and no more. Two are the same once in 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sharer(u64);

impl Sharer {
    /// Whoever goes by that name.
    pub fn new(name: impl Hash) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(STATE.hash_one(name))
    }

    /// What is done here is done for them.
    pub fn asks<F: Future>(self, work: F) -> TaskLocalFuture<Self, F> {
        WHOM.scope(self, work)
    }

    /// The same in a thread.
    pub(super) fn has_done<T>(self, work: impl FnOnce() -> T) -> T {
        WHOM.sync_scope(self, work)
    }

    /// For whom this is done. Those of whom nothing is known are one.
    pub(super) fn of_this() -> Self {
        WHOM.try_with(|sharer| *sharer).unwrap_or_default()
    }
}
