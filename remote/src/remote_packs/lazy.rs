//! Packs of a remote store that is opened on first use.

use std::{collections::BTreeSet, fmt, ops::Range};

use parking_lot::Mutex;
use snap_core::{
    base::id::{ObjectId, PackId},
    store::{RemoteCopies, RemoteFrameError, RemoteFrames},
};

use super::{BlockingContext, RemotePacks};
use crate::peer::{RemoteError, RemoteStore};

/// Opens the remote store.
type OpenRemote = dyn Fn() -> Result<RemoteStore, RemoteError> + Send + Sync;

/// The packs of a remote store, which the first needed range opens. If opening fails, the next call
/// tries again.
pub struct LazyRemotePacks {
    connect: Box<OpenRemote>,
    waiting: BlockingContext,
    packs: Mutex<Option<RemotePacks>>,
}

impl fmt::Debug for LazyRemotePacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyRemotePacks").field("packs", &self.packs).finish_non_exhaustive()
    }
}

impl LazyRemotePacks {
    /// Creates packs of the store that `connect` opens.
    pub fn new(
        connect: impl Fn() -> Result<RemoteStore, RemoteError> + Send + Sync + 'static,
        waiting: BlockingContext,
    ) -> Self {
        Self { connect: Box::new(connect), waiting, packs: Mutex::default() }
    }

    fn packs(&self) -> Result<RemotePacks, RemoteError> {
        let mut packs = self.packs.lock();
        if let Some(packs) = &*packs {
            return Ok(packs.clone());
        }
        let remote = (self.connect)()?;
        Ok(packs.insert(RemotePacks::new(&remote, self.waiting.clone())).clone())
    }
}

impl RemoteFrames for LazyRemotePacks {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, RemoteFrameError> {
        self.packs()?.read(pack, range)
    }

    fn discard(&self, pack: PackId, range: Range<u64>) {
        if let Some(packs) = &*self.packs.lock() {
            packs.discard(pack, range);
        }
    }

    fn dead_copies(&self, copies: Vec<(PackId, ObjectId)>) -> Vec<(PackId, ObjectId)> {
        self.packs().map_or_else(|_| Vec::new(), |packs| packs.dead_copies(copies))
    }

    fn other_copies(&self, pack: PackId, objects: &[ObjectId]) -> RemoteCopies {
        self.packs()
            .map_or_else(|_| RemoteCopies::default(), |packs| packs.other_copies(pack, objects))
    }

    fn deleted(&self, pack: PackId, objects: &[ObjectId]) -> BTreeSet<ObjectId> {
        self.packs().map_or_else(|_| BTreeSet::new(), |packs| packs.deleted(pack, objects))
    }

    fn location(&self, pack: PackId) -> Option<String> {
        // Do not open the store only for its location: no pack was read from it yet.
        self.packs.lock().as_ref()?.location(pack)
    }

    fn prefetch(&self, ranges: &[(PackId, Range<u64>)]) {
        // The `read` that follows reports an error.
        if let Ok(packs) = self.packs() {
            packs.prefetch(ranges);
        }
    }
}
