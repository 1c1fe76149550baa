//! Reads a remote store without a local copy.
//!
//! The index leads to the structure, which the mirror keeps after a read. The reader fetches
//! contents on demand. Refs move, so there is no cache of them: each run fetches the refs that its
//! revisions need.
//!
//! With an empty mirror, reading a file takes six requests: settings, ref, listing of the
//! index, index, structure, content. With index and structure in the mirror it takes two:
//! the ref and the content.

mod refs;
mod snapshot_file;

use std::{collections::HashMap, sync::Arc};

use snap_core::{
    base::id::{ContentId, PackId},
    disk::scratch::Scratch,
    format::pack::{Frame, ObjectClass},
    repo::{Config, Refs, Repo},
    store::Store,
};

use crate::{
    bucket::traffic::Traffic,
    peer::{Peer, PeerPacks, RemoteError, RemoteStore, StoreLookup},
    ranges::{RangeReader, RangeReaderOptions},
    remote_packs::{BlockingContext, RemotePacks},
};

/// Additional capacity of the cache of a file, in bytes. A frame may have 16 MiB, and reads of its
/// chunks must not fetch it each time.
const FRAME_CACHE_BYTES: u64 = 24 << 20;

/// The refs to fetch.
#[derive(Clone, Copy, Debug)]
pub enum RefSelection<'a> {
    /// For each revision, the first existing ref among its
    /// [`base_texts`](snap_core::repo::spec::base_texts).
    Revisions(&'a [Vec<&'a str>]),
    /// All refs.
    All,
}

/// A remote store that is open for reading.
#[derive(Debug)]
pub struct RemoteReader {
    repo: Repo,
    packs: RemotePacks,
    peer: Arc<dyn Peer>,
    location: String,
    /// Holds the files of the fetched refs; deleted on drop.
    _refs: Scratch,
}

impl RemoteReader {
    /// Opens `remote`, and fetches the refs that `which` selects and the new files of the
    /// index. Blocks; must not be called on a thread of the runtime.
    ///
    /// A revision that names nothing is **not** an error here; resolving it reports the error.
    ///
    /// # Errors
    /// [`RemoteError::NoStore`], and others of [`RemoteError`].
    pub fn open(
        mut remote: RemoteStore,
        which: RefSelection<'_>,
        waiting: &BlockingContext,
    ) -> Result<Self, RemoteError> {
        let tmp = remote.mirror().store().dir().join("tmp");
        let mut scratch = Scratch::create(&tmp)?;
        waiting.block_on(refs::fetch_refs(&mut remote, which, scratch.path()))?;
        if !scratch.path().exists() {
            // The remote store was replaced or set back, so the mirror was deleted and read again.
            scratch = Scratch::create(&tmp)?;
            waiting.block_on(refs::fetch_refs(&mut remote, which, scratch.path()))?;
        }
        Ok(Self::of_parts(remote, scratch, waiting))
    }

    fn of_parts(remote: RemoteStore, scratch: Scratch, waiting: &BlockingContext) -> Self {
        let packs = RemotePacks::forgetful(&remote, waiting.clone());
        let packs = packs.with_mirror(remote.mirror().dir());
        let (peer, location) =
            (Arc::clone(remote.place().peer()), remote.place().location().to_owned());
        let store = remote.into_store();
        let refs = Refs::new(scratch.path(), store.disk().clone());
        let store = store.with_remote_frames(Arc::new(packs.clone()));
        let repo = Repo::of_parts(store, Config::default(), refs);
        Self { repo, packs, peer, location, _refs: scratch }
    }

    /// Opens `remote` for its objects, without refs. Skips damaged or lost files of the index.
    /// Blocks; must not be called on a thread of the runtime.
    ///
    /// # Errors
    /// [`RemoteError::NoStore`], [`RemoteError::Emptied`], and others of [`RemoteError`] if
    /// a request fails.
    pub fn open_objects(
        mut remote: RemoteStore,
        waiting: &BlockingContext,
    ) -> Result<Self, RemoteError> {
        let scratch = Scratch::create(&remote.mirror().store().dir().join("tmp"))?;
        let asking = async {
            if remote.find_store().await? == StoreLookup::Missing {
                return Err(RemoteError::NoStore {
                    location: remote.place().location().to_owned(),
                });
            }
            // The mirror may describe a store on a disk that is not mounted now. A store
            // that lost its settings still has packs.
            if let Err(error) = remote.place().must_exist().await
                && remote.place().peer().packs().await?.packs.is_empty()
            {
                return Err(error);
            }
            remote.refresh_around_damage(false).await
        };
        waiting.block_on(asking)?;
        Ok(Self::of_parts(remote, scratch, waiting))
    }

    /// Returns the store, with the fetched refs, for reading like a local one. The caller must not
    /// write to it.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Returns the location of the store.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Returns the counters of requests and bytes.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.peer.traffic()
    }

    /// Opens the content of a file for random access. Reads the chunk list, but not the content.
    ///
    /// The reader checks each part (a chunk, or the whole of an uncut content) against its id. Its
    /// cache has 24 MiB more than `options` say.
    ///
    /// # Errors
    /// [`RemoteError::Store`] if the content does not exist, or its chunk list is damaged.
    pub fn open_file(
        &self,
        id: &ContentId,
        options: RangeReaderOptions,
    ) -> Result<RangeReader, RemoteError> {
        let content = snapshot_file::find(
            self.repo.store(),
            id,
            &self.location,
            Arc::new(PeerPacks(Arc::clone(&self.peer))),
            Arc::clone(self.packs.link()),
        )?;
        let cache_bytes = options.cache_bytes.saturating_add(FRAME_CACHE_BYTES);
        Ok(RangeReader::new(content, RangeReaderOptions { cache_bytes, ..options }))
    }
}

impl Drop for RemoteReader {
    /// Stores fetched but unread structure in the mirror.
    fn drop(&mut self) {
        keep_structure(self.repo.store(), &self.packs);
    }
}

fn keep_structure(store: &Store, packs: &RemotePacks) {
    let mut frames: HashMap<PackId, Vec<Frame>> = HashMap::new();
    for (key, bytes) in packs.leftovers() {
        let (pack, range) = (key.pack, key.range());
        let of_pack = frames
            .entry(pack)
            .or_insert_with(|| store.open_pack(&pack).map_or(Vec::new(), |p| p.frames().to_vec()));
        let at = of_pack.binary_search_by_key(&(range.start, range.end), Frame::position);
        if at.is_ok_and(|at| of_pack[at].class == ObjectClass::Metadata) {
            // After a failure, the next run fetches the frame again.
            let _ = store.fill(&pack, range.start, &bytes);
        }
    }
}
