//! Packs of a store upstream: sends, publishes, finds and fetches them.

use std::{
    collections::HashSet,
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use snap_core::{
    base::{id::PackId, io::PathError, limits},
    store::{StoreError, pack_stream::hash_file},
};
use snap_remote::{bucket::UploadProgress, peer::PackToSend};

use super::{PushState, UpstreamRepository};
use crate::{
    problem::{Code, HttpProblem},
    upstream::{
        cache::{PENDING, touch},
        health::unavailable,
    },
};

/// Maximum number of bytes of a pack that are read with one request.
const PIECE_BYTES: u64 = 8 << 20;

/// Maximum number of fetches of a pack that is evicted again at once.
const FETCHES: usize = 4;

impl UpstreamRepository {
    /// Returns the path of the marker of a pack that is to be published.
    pub(super) fn mark(&self, id: &PackId) -> PathBuf {
        self.marks().join(id.to_string())
    }

    fn marks(&self) -> PathBuf {
        self.repo.dir().join("cache").join(PENDING)
    }

    /// Reads the list of packs upstream, which other servers may have extended.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn refresh_packs(&self) -> Result<(), HttpProblem> {
        match self.upstream.contact.is_backing_off() {
            true => Err(unavailable()),
            false => self.refresh(&mut self.push_state.lock()),
        }
    }

    /// Like [`refresh_packs`](Self::refresh_packs), for requests that read. Concurrent callers
    /// share one query, and none waits for long.
    pub fn refresh_packs_shared(self: &Arc<Self>) {
        let look = |repository: &Self| repository.refresh_packs().is_ok();
        let is_fresh =
            self.pack_queries.join(self.upstream.patience, |guard| self.start_query(guard, look));
        if !is_fresh {
            self.fresh.record(false);
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
        self.wait(self.ref_reader.send(pack, &UploadProgress::default()))?;
        self.sent.lock().insert(*id);
        Ok(())
    }

    /// Removes a pack that was damaged before it was sent, and returns the problem for the
    /// client.
    fn lost(&self, id: &PackId, path: &Path) -> HttpProblem {
        tracing::warn!(%id, "a pack was damaged before it was sent upstream");
        match self.store().pack_path(id) == path {
            true => self.note_damage(id),
            false => drop(self.repo.disk().remove(path)),
        }
        let why = format!("pack {id} was damaged on this server: send it again");
        HttpProblem::new(Code::Unavailable, why)
    }

    /// Removes a pack that is not published. Returns false while packs are being added to
    /// the store.
    pub(super) fn remove_pending(&self, id: &PackId) -> Result<bool, StoreError> {
        if self.adopting.load(Ordering::SeqCst) > 0 {
            return Ok(false);
        }
        self.sent.lock().remove(id);
        let _ = self.repo.disk().remove(&self.mark(id));
        self.repo.disk().remove(&self.store().pack_path(id))?;
        self.store().refresh()?;
        Ok(true)
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
        let (id, remote) = (*id, &self.ref_reader);
        let Some(length) = self.wait(remote.pack_bytes(id))? else { return Ok(None) };
        let most = limits::PACK_BYTES;
        if length > most {
            return Ok(None);
        }
        let starts = (0..length).step_by(PIECE_BYTES as usize);
        Ok(Some(starts.map(move |start| {
            let range = start..length.min(start + PIECE_BYTES);
            self.wait(remote.read(id, range))
        })))
    }

    /// Creates markers for packs that are about to be added to the cache, and are not published
    /// upstream.
    ///
    /// # Errors
    /// [`Code::Full`], [`Code::Unavailable`].
    pub fn remember_pending(&self, packs: &[PackId]) -> Result<(), HttpProblem> {
        let (disk, marks) = (self.repo.disk(), self.marks());
        disk.create_folders(&marks)?;
        for id in packs {
            let path = marks.join(id.to_string());
            // The marker may exist since an earlier attempt.
            fs_err::write(&path, "").map_err(PathError::when("write", &path))?;
        }
        Ok(disk.sync_folder(&marks)?)
    }

    /// Removes the markers of packs that were not added. A cached pack keeps its marker: another
    /// request may have added the pack, and relies on its publication.
    pub fn forget_pending(&self, packs: &[PackId]) {
        let here = self.whole_packs();
        for id in packs.iter().filter(|id| !here.contains(id)) {
            self.unpublishable.lock().insert(*id);
            let _ = self.repo.disk().remove(&self.mark(id));
        }
    }

    /// Returns the packs that are whole in the cache.
    fn whole_packs(&self) -> HashSet<PackId> {
        let mut packs = self.store().consistent_packs();
        packs.retain(|id| !self.store().is_partial(id));
        packs.into_iter().collect()
    }

    /// Runs `work`, which adds packs to the cache without markers, and publishes those packs
    /// upstream.
    ///
    /// # Errors
    /// Errors of `work`; as [`Self::publish`].
    pub fn publish_added<T>(
        &self,
        work: impl FnOnce() -> Result<T, HttpProblem>,
    ) -> Result<T, HttpProblem> {
        // The packs may refer to others that came through another server.
        self.refresh_packs()?;
        // Until the new packs have markers, they look like packs that are gone upstream.
        // While `adopting` is not 0, no pack is removed.
        self.adopting.fetch_add(1, Ordering::SeqCst);
        let adopting = AddingGuard(&self.adopting);
        let before = self.whole_packs();
        let done = work();
        let after = self.whole_packs();
        let new: Vec<PackId> = after.difference(&before).copied().collect();
        if done.is_err() {
            self.unpublishable.lock().extend(&new);
        }
        let done = done?;
        self.remember_pending(&new)?;
        drop(adopting);
        self.refresh_packs()?;
        self.publish()?;
        self.record_growth(&new);
        Ok(done)
    }

    /// Publishes all cached packs that upstream lacks. On return, they are part of the store
    /// upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`]; then the next call publishes the packs.
    pub fn publish(&self) -> Result<(), HttpProblem> {
        self.send_pending()?;
        self.publish_with(&self.push_state.lock())
    }

    /// Sends pending packs without holding the lock, because sending may take long.
    pub(super) fn send_pending(&self) -> Result<(), HttpProblem> {
        let there = self.there(&self.push_state.lock());
        let pending = self.pending(&self.marked(), &there);
        pending.iter().try_for_each(|id| self.send(id, &self.store().pack_path(id)))
    }

    pub(super) fn there(&self, moving: &PushState) -> HashSet<PackId> {
        moving.remote.mirror().store().packs().into_iter().collect()
    }

    fn marked(&self) -> Vec<PackId> {
        let names = fs_err::read_dir(self.marks()).into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Returns the packs to publish: those that have a marker, and those that were added
    /// just now and will get one.
    fn pending(&self, marked: &[PackId], there: &HashSet<PackId>) -> Vec<PackId> {
        let left_out = self.unpublishable.lock();
        let is_pending = |id: &PackId| marked.contains(id) || !left_out.contains(id);
        let here = self.whole_packs();
        here.difference(there).copied().filter(is_pending).collect()
    }

    /// Publishes pending packs. The caller holds the lock that `push_state` is from.
    pub(super) fn publish_with(&self, moving: &PushState) -> Result<(), HttpProblem> {
        let (marked, there) = (self.marked(), self.there(moving));
        let new = self.pending(&marked, &there);
        if !new.is_empty() {
            // The packs may refer to objects that a collector deletes upstream.
            if moving.remote.mirror().gc().is_some() {
                return Err(HttpProblem::collected());
            }
            for id in &new {
                self.send(id, &self.store().pack_path(id))?;
            }
            let published = self.wait(moving.remote.publish(self.store(), &new));
            if published.is_err() {
                // Another server deletes unpublished packs after a while: send them again
                // next time.
                self.sent.lock().retain(|id| !new.contains(id));
            }
            published?;
            let there = moving.remote.mirror().store().pack_count();
            self.upstream_pack_count.store(there, Ordering::SeqCst);
        }
        // Packs that are still being added keep their markers.
        for id in marked.iter().filter(|id| there.contains(id) || new.contains(id)) {
            self.sent.lock().remove(id);
            let _ = self.repo.disk().remove(&self.mark(id));
        }
        self.sent.lock().retain(|id| !new.contains(id));
        Ok(())
    }

    /// Counts added packs as used room.
    pub fn record_growth(&self, packs: &[PackId]) {
        let length = |id| fs_err::metadata(self.store().pack_path(id)).map_or(0, |meta| meta.len());
        self.upstream.cache.grew(packs.iter().map(length).sum());
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

/// Counts a thread that adds packs, until it is dropped.
struct AddingGuard<'b>(&'b AtomicUsize);

impl Drop for AddingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
