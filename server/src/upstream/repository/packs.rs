//! Packs of a store upstream: sends, publishes, finds and fetches them.

use std::{
    collections::HashSet, fmt::Display, fs::File, os::unix::fs::MetadataExt, path::Path, sync::Arc,
};

use bytes::Bytes;
use parking_lot::RwLockReadGuard;
use snap_core::{
    base::{id::PackId, io::PathError, limits},
    store::{Store, StoreError, pack_stream::hash_file},
};
use snap_remote::{
    bucket::UploadProgress,
    peer::{PackToSend, RemoteStore},
};

use super::UpstreamRepository;
use crate::{
    problem::{Code, HttpProblem},
    upstream::{cache::touch, health::unavailable},
};

/// Maximum number of bytes of a pack that are read with one request.
const PIECE_BYTES: u64 = 8 << 20;

/// Maximum number of fetches of a pack that is evicted again at once.
const FETCHES: usize = 4;

/// Packs that were published upstream and are being added to the cache. While this lives, no other
/// thread makes the cache follow upstream.
pub struct Publication<'u> {
    upstream: &'u UpstreamRepository,
    remote: RwLockReadGuard<'u, RemoteStore>,
    packs: Vec<PackId>,
}

impl Publication<'_> {
    /// Takes the result of adding the packs to the cache. Adds their stubs if that has failed, because
    /// upstream has the packs.
    pub fn followed<T, E: Display>(self, added: Result<T, E>) -> Result<T, E> {
        let store = self.upstream.store();
        if let Err(error) = &added {
            tracing::warn!(%error, "packs were published upstream, but not added to the cache");
            if let Err(error) = self.upstream.sync_packs(&self.remote) {
                self.upstream.to_problem(error);
            }
        }
        let bytes = |id| fs_err::metadata(store.pack_path(id)).map_or(0, |meta| meta.len());
        self.upstream.upstream.cache.grew(self.packs.iter().map(bytes).sum());
        added
    }
}

impl UpstreamRepository {
    /// Reads the index upstream, which other servers may have extended, and makes the cache follow.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn refresh_packs(&self) -> Result<(), HttpProblem> {
        if self.upstream.contact.is_backing_off() {
            return Err(unavailable());
        }
        let mut remote = self.remote.write();
        self.wait(remote.refresh())?;
        self.follow_index(&remote)
    }

    /// Like [`refresh_packs`](Self::refresh_packs), for requests that read. Concurrent callers
    /// share one query, and none waits for long.
    pub fn refresh_packs_shared(self: &Arc<Self>) {
        let look = |repository: &Self| repository.refresh_packs().is_ok();
        let is_fresh =
            self.pack_queries.join(self.upstream.patience, |guard| self.start_query(guard, look));
        if !is_fresh {
            self.ref_queries.record(false);
        }
    }

    /// Sends a verified pack upstream. It is not part of the store there before it is
    /// [published](Self::publish).
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn send(&self, id: &PackId, path: &Path) -> Result<(), HttpProblem> {
        if self.sent.lock().contains(id) {
            return Ok(());
        }
        if self.upstream.contact.is_backing_off() {
            return Err(unavailable());
        }
        // A bucket keeps the first bytes that it gets under a name, so check them before.
        if hash_file(path)? != *id {
            return Err(self.lost(id, path));
        }
        let length = fs_err::metadata(path).map_err(PathError::when("stat", path))?.len();
        let pack = PackToSend { id: *id, path, bytes: length };
        self.wait(self.place.send(pack, &UploadProgress::default()))?;
        self.sent.lock().insert(*id);
        Ok(())
    }

    /// Removes a pack that was damaged before it was sent, and returns the problem for the
    /// client.
    fn lost(&self, id: &PackId, path: &Path) -> HttpProblem {
        tracing::warn!(%id, "a pack was damaged before it was sent upstream");
        let _ = self.repo.disk().remove(path);
        let why = format!("pack {id} was damaged on this server: send it again");
        HttpProblem::new(Code::Unavailable, why)
    }

    /// Returns the pieces of a pack that another server has sent upstream but not
    /// published; `None` if there is no such pack.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn unpublished_pack(
        &self,
        id: &PackId,
    ) -> Result<Option<impl Iterator<Item = Result<Bytes, HttpProblem>>>, HttpProblem> {
        let id = *id;
        let Some(length) = self.wait(self.place.pack_bytes(id))? else { return Ok(None) };
        let most = limits::PACK_BYTES;
        if length > most {
            return Ok(None);
        }
        let starts = (0..length).step_by(PIECE_BYTES as usize);
        Ok(Some(starts.map(move |start| {
            let range = start..length.min(start + PIECE_BYTES);
            self.wait(self.place.read(id, range))
        })))
    }

    /// Publishes the packs of the store `own`, which are checked and complete, upstream. The caller
    /// then adds them to the cache.
    ///
    /// # Errors
    /// [`Code::Unavailable`], [`Code::Rejected`]; upstream has none of the packs then.
    pub fn publish(&self, own: &Store) -> Result<Publication<'_>, HttpProblem> {
        let mut packs = own.packs();
        packs.iter().try_for_each(|id| self.send(id, &own.pack_path(id)))?;
        let remote = self.remote.read();
        // The packs may refer to objects that a collector deletes upstream.
        if remote.mirror().gc().is_some() {
            return Err(HttpProblem::collected());
        }
        // Another request may have published some of the packs meanwhile.
        let there: HashSet<PackId> = remote.mirror().store().packs().into_iter().collect();
        packs.retain(|id| !there.contains(id));
        let published = self.wait(remote.publish(own, &packs));
        // After a failure, too: another server deletes unpublished packs after a while, so the next
        // attempt sends them again.
        self.sent.lock().retain(|id| !packs.contains(id));
        published?;
        self.index.lock().packs = remote.mirror().store().pack_count();
        Ok(Publication { upstream: self, remote, packs })
    }

    /// Fetches all of a pack, if there is room for it, and returns its length; `None` if
    /// there is no such pack.
    ///
    /// # Errors
    /// [`Code::Unavailable`], [`Code::Damaged`].
    pub fn fetch_whole(&self, id: &PackId) -> Result<Option<u64>, HttpProblem> {
        for attempt in 0..FETCHES {
            if !self.store().packs().contains(id) {
                return Ok(None);
            }
            let here = self.open_whole(id);
            if attempt == 0 {
                self.upstream.cache.packs().count(here.is_some());
            }
            if let Some(file) = here.map_or_else(|| self.fetch(id), |file| Ok(Some(file)))? {
                touch(&file);
                break;
            }
            if !self.has_room(id) {
                break;
            }
        }
        self.length(id)
    }

    /// Returns the length of a pack from its trailer, because the cached file may be truncated.
    fn length(&self, id: &PackId) -> Result<Option<u64>, HttpProblem> {
        let length = || self.store().open_pack(id).map(|pack| pack.file_bytes());
        let found = length().or_else(|error| {
            if matches!(error, StoreError::Gone { .. }) {
                return Err(error);
            }
            // Replace the damaged copy with a stub, and try again.
            self.mend();
            length()
        });
        match found {
            Err(StoreError::Gone { .. }) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Evicts other packs until the disk has room for the missing part of a pack. Returns true if
    /// there is room.
    fn has_room(&self, id: &PackId) -> bool {
        let meta = fs_err::metadata(self.store().pack_path(id));
        let absent = meta.map_or(0, |meta| meta.len().saturating_sub(meta.blocks() * 512));
        self.upstream.cache.make_room(absent)
    }

    fn open_whole(&self, id: &PackId) -> Option<File> {
        let path = self.store().pack_path(id);
        // Stubs are in another folder, so the path decides, even if the pack changes
        // meanwhile.
        let is_whole = path.starts_with(self.store().dir().join("objects"));
        fs_err::File::open(path).ok().filter(|_| is_whole).map(|file| file.into_parts().0)
    }

    /// Fetches all of a pack; `None` if it does not fit, or was evicted again at once.
    fn fetch(&self, id: &PackId) -> Result<Option<File>, HttpProblem> {
        let fetching = self.fetching.lead(*id);
        let is_partial = self.store().is_partial(id);
        let fetched = match is_partial {
            // Do not fetch a pack that does not fit.
            true if !self.has_room(id) => Ok(()),
            true => self.store().fetch_pack(id),
            // Another thread has completed or removed the file: look again.
            false => self.store().refresh(),
        };
        let file = self.open_whole(id);
        drop(fetching);
        match fetched {
            Err(StoreError::Absent { .. } | StoreError::Gone { .. }) => Ok(None),
            Err(error) if error.is_full() => Ok(None),
            // The fetched bytes are damaged: drop the copy, so that the next request fetches it
            // again.
            Err(error) if error.damaged_pack().is_some() => {
                self.note_damage(id);
                self.mend();
                Err(error.into())
            }
            fetched => Ok(fetched.map(|()| file)?),
        }
    }
}
