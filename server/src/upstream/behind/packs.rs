//! Packs of a store elsewhere: sent, told of, looked for and fetched.

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
    ops::staged::hash_of,
    store::StoreError,
};
use snap_remote::{service::Progress, store::OBJECTS};

use super::{Behind, Moving, lock};
use crate::{
    problem::{Code, Problem},
    upstream::{
        cache::{PENDING, touch},
        contact::away,
    },
};

/// Bytes of a pack that come at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// How often a pack is fetched that makes room for others at once.
const FETCHES: usize = 4;

impl Behind {
    pub(super) fn mark(&self, id: &PackId) -> PathBuf {
        self.marks().join(id.to_string())
    }

    fn marks(&self) -> PathBuf {
        self.repo.dir().join("cache").join(PENDING)
    }

    /// Learns of packs of which upstream was told through another server, after
    /// the question came.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn look(&self) -> Result<(), Problem> {
        match self.upstream.contact.is_given_up() {
            true => Err(away()),
            false => self.refresh(&mut lock(&self.moving)),
        }
    }

    /// The same for those who read: shared by all who ask meanwhile, and not
    /// waited for for long.
    pub fn look_shared(self: &Arc<Self>) {
        let look = |behind: &Self| behind.look().is_ok();
        let is_fresh =
            self.looks.join(self.upstream.patience, |landing| self.send_off(landing, look));
        if !is_fresh {
            self.fresh.tell(false);
        }
    }

    /// Sends a pack that was checked. It does not count before it is
    /// [told of](Self::publish).
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn send(&self, id: &PackId, path: &Path) -> Result<(), Problem> {
        if lock(&self.sent).contains(id) {
            return Ok(());
        }
        if self.upstream.contact.is_given_up() {
            return Err(away());
        }
        // Once upstream has bytes of that name, a bucket keeps them, whatever they are.
        if *hash_of(path)?.as_bytes() != *id.as_bytes() {
            return Err(self.lost(id, path));
        }
        let length = fs_err::metadata(path).map_err(PathError::when("stat", path))?.len();
        let (key, progress) = (format!("{OBJECTS}{id}"), Progress::default());
        self.wait(self.asking.client().write_file(&key, (path, length), &progress))?;
        lock(&self.sent).insert(*id);
        Ok(())
    }

    /// Removes a pack that was damaged before upstream had it.
    fn lost(&self, id: &PackId, path: &Path) -> Problem {
        tracing::warn!(%id, "a pack was damaged before it was sent upstream");
        match self.store().pack_path(id) == path {
            true => self.note_damage(id),
            false => drop(fs_err::remove_file(path)),
        }
        let why = format!("pack {id} was damaged on this server: send it again");
        Problem::new(Code::Unavailable, why)
    }

    /// Removes a pack of which upstream was not told. Returns false while packs are
    /// added to the store.
    pub(super) fn remove_pending(&self, id: &PackId) -> Result<bool, StoreError> {
        if self.adopting.load(Ordering::SeqCst) > 0 {
            return Ok(false);
        }
        lock(&self.sent).remove(id);
        let _ = fs_err::remove_file(self.mark(id));
        self.repo.disk().remove(&self.store().pack_path(id))?;
        self.store().refresh()?;
        Ok(true)
    }

    /// A pack that another server sent and of which nobody has told yet, piece
    /// by piece; `None` when there is none.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn sent_by_others(
        &self,
        id: &PackId,
    ) -> Result<Option<impl Iterator<Item = Result<Bytes, Problem>>>, Problem> {
        let (key, client) = (format!("{OBJECTS}{id}"), self.asking.client());
        let Some(length) = self.wait(client.length(&key))? else { return Ok(None) };
        let most = limits::PACK_BYTES;
        if length > most {
            return Ok(None);
        }
        let starts = (0..length).step_by(PIECE_BYTES as usize);
        Ok(Some(starts.map(move |start| {
            let range = start..length.min(start + PIECE_BYTES);
            self.wait(client.read(&key, range)).map(|object| object.bytes)
        })))
    }

    /// Marks packs that become part of the store here before upstream is told.
    ///
    /// # Errors
    /// [`Code::Full`], [`Code::Unavailable`].
    pub fn remember_pending(&self, packs: &[PackId]) -> Result<(), Problem> {
        let (disk, marks) = (self.repo.disk(), self.marks());
        disk.create_folders(&marks)?;
        for id in packs {
            let path = marks.join(id.to_string());
            // It may be there of an earlier try.
            fs_err::write(&path, "").map_err(PathError::when("write", &path))?;
        }
        Ok(disk.sync_folder(&marks)?)
    }

    /// They did not become part of it, other than those that are: whoever brought
    /// them counts on it that upstream is told.
    pub fn forget_pending(&self, packs: &[PackId]) {
        let here = self.whole_packs();
        for id in packs.iter().filter(|id| !here.contains(id)) {
            lock(&self.left_out).insert(*id);
            let _ = fs_err::remove_file(self.mark(id));
        }
    }

    fn whole_packs(&self) -> HashSet<PackId> {
        let mut packs = self.store().settled_packs();
        packs.retain(|id| !self.store().is_partial(id));
        packs.into_iter().collect()
    }

    /// Does `work`, which adds packs to the store here that nobody has marked, and
    /// tells upstream of them.
    ///
    /// # Errors
    /// Those of `work`; as [`Self::publish`].
    pub fn adopt<T>(&self, work: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
        // They may refer to what came through another server.
        self.look()?;
        self.adopting.fetch_add(1, Ordering::SeqCst);
        let adopting = Adopting(&self.adopting);
        let before = self.whole_packs();
        let done = work();
        let after = self.whole_packs();
        let new: Vec<PackId> = after.difference(&before).copied().collect();
        if done.is_err() {
            lock(&self.left_out).extend(&new);
        }
        let done = done?;
        self.remember_pending(&new)?;
        drop(adopting);
        self.look()?;
        self.publish()?;
        self.grew(&new);
        Ok(done)
    }

    /// Tells upstream of all packs that are here and of which it does not know:
    /// they count there when this returns.
    ///
    /// # Errors
    /// [`Code::Unavailable`]; it is done with the next one that comes.
    pub fn publish(&self) -> Result<(), Problem> {
        self.send_pending()?;
        self.publish_with(&lock(&self.moving))
    }

    /// Sends what is pending while others may ask: that may take long.
    pub(super) fn send_pending(&self) -> Result<(), Problem> {
        let there = self.there(&lock(&self.moving));
        let pending = self.pending(&self.marked(), &there);
        pending.iter().try_for_each(|id| self.send(id, &self.store().pack_path(id)))
    }

    pub(super) fn there(&self, moving: &Moving) -> HashSet<PackId> {
        moving.remote.mirror().store().packs().into_iter().collect()
    }

    fn marked(&self) -> Vec<PackId> {
        let names = fs_err::read_dir(self.marks()).into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Packs of which upstream is to be told: those that have a mark, and those
    /// that have just come and will have one.
    fn pending(&self, marked: &[PackId], there: &HashSet<PackId>) -> Vec<PackId> {
        let left_out = lock(&self.left_out);
        let is_pending = |id: &PackId| marked.contains(id) || !left_out.contains(id);
        let here = self.whole_packs();
        here.difference(there).copied().filter(is_pending).collect()
    }

    pub(super) fn publish_with(&self, moving: &Moving) -> Result<(), Problem> {
        let (marked, there) = (self.marked(), self.there(moving));
        let new = self.pending(&marked, &there);
        if !new.is_empty() {
            for id in &new {
                self.send(id, &self.store().pack_path(id))?;
            }
            let published = self.wait(moving.remote.publish(self.store(), &new));
            if published.is_err() {
                // Another server does not keep for ever what nobody tells of.
                lock(&self.sent).retain(|id| !new.contains(id));
            }
            published?;
            let there = moving.remote.mirror().store().pack_count();
            self.packs_there.store(there, Ordering::SeqCst);
        }
        // Some are on their way into the store.
        for id in marked.iter().filter(|id| there.contains(id) || new.contains(id)) {
            lock(&self.sent).remove(id);
            let _ = fs_err::remove_file(self.mark(id));
        }
        lock(&self.sent).retain(|id| !new.contains(id));
        Ok(())
    }

    /// Packs came that take room.
    pub fn grew(&self, packs: &[PackId]) {
        let length = |id| fs_err::metadata(self.store().pack_path(id)).map_or(0, |meta| meta.len());
        self.upstream.cache.grew(packs.iter().map(length).sum());
    }

    /// Has all of a pack here, where there is room for it, and returns how long it is;
    /// `None` when there is no such pack.
    ///
    /// # Errors
    /// [`Code::Unavailable`], [`Code::Damaged`].
    pub fn whole(&self, id: &PackId) -> Result<Option<u64>, Problem> {
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

    /// Length of a pack as its trailer says: the file here may have been cut.
    fn length(&self, id: &PackId) -> Result<Option<u64>, Problem> {
        let length = || self.store().open_pack(id).map(|pack| pack.file_bytes());
        let found = length().or_else(|error| {
            if matches!(error, StoreError::Gone { .. }) {
                return Err(error);
            }
            // A stub takes its place.
            self.mend();
            length()
        });
        match found {
            Err(StoreError::Gone { .. }) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Whether there is room on the disk for what is not here of a pack, once others
    /// were removed for it.
    fn has_room(&self, id: &PackId) -> bool {
        let meta = fs_err::metadata(self.store().pack_path(id));
        let absent = meta.map_or(0, |meta| meta.len().saturating_sub(meta.blocks() * 512));
        self.upstream.cache.make_room(absent)
    }

    fn open_whole(&self, id: &PackId) -> Option<File> {
        let path = self.store().pack_path(id);
        // A stub lies elsewhere, whatever becomes of either meanwhile.
        let is_whole = path.starts_with(self.store().dir().join("objects"));
        fs_err::File::open(path).ok().filter(|_| is_whole).map(|file| file.into_parts().0)
    }

    /// Has all of a pack here; `None` when it made room for others at once.
    fn fetch(&self, id: &PackId) -> Result<Option<File>, Problem> {
        let turn = Arc::clone(lock(&self.fetching).entry(*id).or_default());
        let one_at_a_time = lock(&turn);
        let is_partial = self.store().is_partial(id);
        let fetched = match is_partial {
            // Nothing is fetched in vain.
            true if !self.has_room(id) => Ok(()),
            true => self.store().fetch_pack(id),
            // Another stub takes its place, or did.
            false => self.store().refresh(),
        };
        let file = self.open_whole(id);
        drop(one_at_a_time);
        lock(&self.fetching).remove(id);
        match fetched {
            Err(StoreError::Absent { .. } | StoreError::Gone { .. }) => Ok(None),
            Err(error) if error.is_full() => Ok(None),
            // What has come of it is not what it should be: it comes anew.
            Err(error) if error.damaged_pack().is_some() => {
                self.note_damage(id);
                self.mend();
                Err(error.into())
            }
            fetched => Ok(fetched.map(|()| file)?),
        }
    }
}

/// Somebody adds packs to the store.
struct Adopting<'b>(&'b AtomicUsize);

impl Drop for Adopting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
