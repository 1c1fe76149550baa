//! Packs elsewhere, which nobody is asked for until they are needed.

use std::{
    fmt,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use snap_core::{
    base::id::PackId,
    store::{Distant, DistantError},
};

use super::{RemotePacks, Waiting};
use crate::store::{RemoteError, RemoteStore};

/// Makes the remote store.
type Connect = dyn Fn() -> Result<RemoteStore, RemoteError> + Send + Sync;

/// The packs of a remote store that is opened when the first of them is
/// needed. Where that fails, it is tried again the next time.
pub struct LazyDistant {
    connect: Box<Connect>,
    waiting: Waiting,
    packs: Mutex<Option<RemotePacks>>,
}

impl fmt::Debug for LazyDistant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyDistant").field("packs", &self.packs).finish_non_exhaustive()
    }
}

impl LazyDistant {
    /// The packs of what `connect` makes.
    pub fn new(
        connect: impl Fn() -> Result<RemoteStore, RemoteError> + Send + Sync + 'static,
        waiting: Waiting,
    ) -> Self {
        Self { connect: Box::new(connect), waiting, packs: Mutex::default() }
    }

    fn packs(&self) -> Result<RemotePacks, RemoteError> {
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packs) = &*packs {
            return Ok(packs.clone());
        }
        let remote = (self.connect)()?;
        Ok(packs.insert(RemotePacks::new(&remote, self.waiting.clone())).clone())
    }
}

impl Distant for LazyDistant {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, DistantError> {
        self.packs()?.read(pack, range)
    }

    fn place(&self, pack: PackId) -> Option<String> {
        // Nobody is asked where nothing has come from yet.
        let packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        packs.as_ref()?.place(pack)
    }

    fn will_need(&self, ranges: &[(PackId, Range<u64>)]) {
        // Whoever reads is told what is wrong.
        if let Ok(packs) = self.packs() {
            packs.will_need(ranges);
        }
    }
}
