//! The client that work is done for, as a task-local value, so that functions do not pass it on.
//! Clients share scarce resources fairly.

use std::{
    collections::hash_map::RandomState,
    future::Future,
    hash::{BuildHasher, Hash},
    sync::LazyLock,
};

use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static CURRENT: ClientKey;
}

/// Identifies a client that has a quota of each resource. Two clients collide with a probability of
/// 2^-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientKey(u64);

impl ClientKey {
    /// Hashes `name`, which identifies the client.
    pub fn new(name: impl Hash) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(STATE.hash_one(name))
    }

    /// Runs `work` on behalf of this client.
    pub fn scope<F: Future>(self, work: F) -> TaskLocalFuture<Self, F> {
        CURRENT.scope(self, work)
    }

    /// Like [`scope`](Self::scope), for synchronous work on a blocking thread.
    pub(super) fn sync_scope<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, work)
    }

    /// Returns the client of the current task. All work without a client shares one value.
    pub(super) fn current() -> Self {
        CURRENT.try_with(|client| *client).unwrap_or_default()
    }
}
