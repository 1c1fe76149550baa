//! Packs that wait outside a store, until everything that they refer to is present. Then they become
//! part of the store.
//!
//! An [`Inbox`] is a folder with packs of one operation. Each pack is checked when it arrives. A walk
//! then checks that the packs are complete, and only then the store adopts them. A pack moves into
//! `objects/` unchanged. If the store already has some of its objects, only the others may be copied
//! into a new pack. A refused, interrupted or killed operation leaves the store unchanged.
//!
//! A [`SharedInbox`] holds packs that several processes send to one store. It has a journal, because
//! a push that was killed while its packs became part of the store must be completed.

pub mod accept;
mod shared;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

pub use shared::{
    GROUP, IndexUpload, PART, Publishing, Received, SharedInbox, StagedError, is_sound, tips,
};

use crate::{
    base::{
        blocked::Blocked,
        id::{ChunkListId, CommitId, ListPartId, ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        observe::Observer,
    },
    disk::{
        Disk, NewFile,
        scratch::{NewLock, lock_new, unique_name},
    },
    format::{
        chunk_list::named_chunks,
        pack::{ObjectKind, PackedObject},
    },
    ops::reach::{ObjectSource, ReachError, ReachWalk},
    repo::history::ancestors,
    store::{
        BundleError, ChunkVisit, Descend, Epoch, Marks, ObjectLocation, ObjectWriter, PackFile,
        Store, StoreError, WriteStats,
        copy::{FrameMode, copy_pack},
        pack_stream::{self, CheckedPack, PackPlace},
        sweep, walk_chunks,
    },
};

/// Packs of one operation, which are not yet part of a store.
#[derive(Debug)]
pub struct Inbox<'s> {
    target: &'s Store,
    own: Store,
    objects: u64,
    raw_bytes: u64,
    /// Number of chunks that the received chunk lists and their parts name. A walk looks up each of
    /// them.
    pub named_chunks: u64,
    /// Packs that the target had once listed and that no longer existed when the operation began.
    gone: HashSet<PackId>,
    /// The epoch of the target when the operation began.
    epoch: Epoch,
    // Fields drop in this order: first the store, then its folder.
    _folder: Option<OwnFolder>,
}

/// A folder that is removed on drop.
#[derive(Debug)]
struct OwnFolder {
    dir: PathBuf,
    /// The lock on a file in the folder, which keeps other processes from sweeping the folder.
    _lock: File,
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = fs_err::remove_dir_all(&self.dir);
    }
}

/// What becomes of packs of which the store already has objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// They stay unchanged, because other stores refer to their names.
    Packs,
    /// Only their new objects are added, compressed at this level.
    NewObjects(i32),
}

impl<'s> Inbox<'s> {
    /// Creates a folder for packs to add to `target`.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the store cannot be written.
    pub fn new(target: &'s Store, observer: &dyn Observer) -> Result<Self, StoreError> {
        let tmp = target.scratch_dir()?;
        sweep::run(&tmp);
        let (dir, lock) = loop {
            let dir = tmp.join(unique_name(sweep::INCOMING_PREFIX));
            // The folders may be lost in a crash. The files must be durable once adopted, so
            // `target`'s disk writes them.
            Store::create(&dir, &Disk::scratch())?;
            let path = dir.join(sweep::LOCK_FILE);
            let lock = match Disk::scratch().lock_file(&path) {
                // Another process has swept the folder before it was locked.
                Err(error) if error.is_not_found() => continue,
                lock => lock?,
            };
            if lock_new(&lock, &path)? != NewLock::Lost {
                break (dir, lock);
            }
        };
        let own = Store::open(&dir, target.disk().clone(), observer)?;
        Ok(Self { _folder: Some(OwnFolder { dir, _lock: lock }), ..Self::of(target, own) })
    }

    /// Takes the whole packs of another store, which the caller has checked, and later ones. The packs
    /// that are not adopted stay there.
    pub fn of(target: &'s Store, own: Store) -> Self {
        let (gone, epoch) = (target.lost_packs(), target.known_epoch());
        Self { target, own, objects: 0, raw_bytes: 0, named_chunks: 0, gone, epoch, _folder: None }
    }

    /// Receives a pack whose bytes are in `file`, a [new file](Self::new_file) of this inbox. Calls
    /// `meanwhile` while the thread pool checks the pack, and returns its result, too.
    ///
    /// Checked: the tables, every frame, every object against its id, and that no object is received
    /// twice.
    ///
    /// # Errors
    /// [`BundleError::Duplicate`]; [`BundleError::Store`] if the pack is damaged or cannot be moved;
    /// [`BundleError::Blocked`].
    pub fn receive<T>(
        &mut self,
        file: &NewFile,
        meanwhile: impl FnOnce() -> T,
        observer: &dyn Observer,
    ) -> (Result<(), BundleError>, T) {
        let place = PackPlace { path: file.path(), span: None };
        let check = || pack_stream::check_unnamed(place, &mut |_| Ok(()), observer);
        let mut checked = Ok(None);
        let done = rayon::in_place_scope(|scope| {
            scope.spawn(|_| checked = check());
            meanwhile()
        });
        (checked.map_err(BundleError::from).and_then(|checked| self.take(file, checked)), done)
    }

    /// Receives a pack from a file that can be read again, in one pass over its bytes. Otherwise like
    /// [`Inbox::receive`].
    ///
    /// # Errors
    /// As [`Inbox::receive`].
    pub fn receive_from(
        &mut self,
        place: PackPlace<'_>,
        observer: &dyn Observer,
    ) -> Result<(), BundleError> {
        let mut file = self.new_file()?;
        let mut sink = |bytes: &[u8]| {
            observer.advance(bytes.len() as u64, 0);
            file.write(bytes)
        };
        let checked = pack_stream::check_unnamed(place, &mut sink, observer)?;
        self.take(&file, checked)
    }

    /// Creates a file for the bytes of a pack that arrives. The file is removed on drop.
    ///
    /// # Errors
    /// [`PathError`] when the file cannot be created.
    pub fn new_file(&self) -> Result<NewFile, PathError> {
        self.target.disk().create(&self.own.dir().join("tmp").join(unique_name("pack")))
    }

    fn take(&mut self, file: &NewFile, checked: Option<CheckedPack>) -> Result<(), BundleError> {
        let CheckedPack { pack, objects } = checked.ok_or(Blocked::Interrupted)?;
        let mut ids: Vec<ObjectId> = objects.iter().map(|object| object.id).collect();
        ids.sort_unstable();
        let mut twice = ids.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        for id in &ids {
            twice = twice.or(self.own.locate(id)?.map(|_| *id));
        }
        if let Some(id) = twice {
            return Err(BundleError::Duplicate { id });
        }
        self.target.disk().replace(file.path(), &self.own.pack_path(&pack.id()))?;
        file.keep();
        self.add(&pack, objects);
        Ok(())
    }

    /// Adds a pack from a file on this disk: hard-links or copies the file. The caller has checked the
    /// pack, with its hash.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read, linked or copied.
    pub fn link(&mut self, from: &Path, id: PackId) -> Result<(), StoreError> {
        let to = self.own.pack_path(&id);
        match fs_err::hard_link(from, &to) {
            Ok(()) => {}
            // `to` may be a link to `from`, and a copy of a file onto itself would empty the file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(PathError::when("link", from)(error).into());
            }
            Err(_) => drop(fs_err::copy(from, &to).map_err(PathError::when("copy", from))?),
        }
        let pack = PackFile::open(&to, id)?;
        let objects = pack.objects()?;
        self.add(&pack, objects);
        Ok(())
    }

    fn add(&mut self, pack: &PackFile, objects: Vec<PackedObject>) {
        self.objects += objects.len() as u64;
        self.raw_bytes += objects.iter().map(|object| u64::from(object.bytes)).sum::<u64>();
        self.named_chunks += objects.iter().map(named_chunks).sum::<u64>();
        self.own.index_pack(pack, objects);
        self.own.merge_segments();
    }

    /// Returns the number of received objects and the sum of their raw bytes.
    pub fn totals(&self) -> (u64, u64) {
        (self.objects, self.raw_bytes)
    }

    /// Returns the store that holds the packs.
    pub fn own(&self) -> &Store {
        &self.own
    }

    /// Returns the store that will adopt the packs.
    pub fn target(&self) -> &'s Store {
        self.target
    }

    /// Returns true if packs of the target have disappeared since the operation began. If not, every
    /// object that the caller has found in the target still exists.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed.
    pub fn target_lost_packs(&self) -> Result<bool, StoreError> {
        self.target.refresh()?;
        Ok(!self.target.lost_packs().is_subset(&self.gone))
    }

    /// Walks everything that `starts` refer to, in the received packs and in the target. Walks objects
    /// of the target, too, because an interrupted transfer may have left them behind, except the
    /// history of `complete` commits, and objects that are on a remote only: the remote has everything
    /// that they refer to. Returns what it has found in the received packs.
    ///
    /// # Errors
    /// [`ReachError`] for an object that is missing or damaged.
    pub fn check_complete(
        &self,
        starts: WalkStart<'_>,
        complete: &mut CompleteCommits<'_>,
        observer: &dyn Observer,
    ) -> Result<Arrived, ReachError> {
        let (ours, theirs) = (Marks::new(&self.own), Marks::new(self.target));
        let mut arrived = Arrived::default();
        let mut enter = |id: &ObjectId, place: &ObjectLocation| {
            if self.own.locate(id)?.is_some() {
                let is_new = ours.mark(id)?;
                arrived.objects += u64::from(is_new);
                let is_commit = is_new && place.kind == ObjectKind::Commit;
                arrived.commits += u64::from(is_commit && self.target.locate(id)?.is_none());
                return Ok(is_new);
            }
            self.target.check_alive(id, place.kind)?;
            let is_complete = place.kind == ObjectKind::Commit && complete.has(id)?;
            let is_left_out = is_complete || !theirs.mark(id)? || place.kind == ObjectKind::Blob;
            Ok(!is_left_out && self.target.is_here(place)?)
        };
        let mut walk = ReachWalk::new(self, &mut enter, observer);
        match starts {
            WalkStart::Commits(commits) => walk.visit(commits)?,
            WalkStart::AllObjects => {
                for id in self.own.packs() {
                    let objects = self.own.open_pack(&id)?.objects()?;
                    let of_kind = |kind| objects.iter().filter(move |object| object.kind == kind);
                    let commits: Vec<CommitId> = of_kind(ObjectKind::Commit)
                        .map(|object| CommitId::from_object(object.id))
                        .collect();
                    walk.visit(&commits)?;
                    // Objects that no commit reaches must be complete, too: later packs may refer to
                    // them.
                    let (list, part) = (ObjectKind::ChunkList, ObjectKind::ListPart);
                    for kind in [ObjectKind::Link, ObjectKind::Tree, list, part] {
                        let starts: Vec<_> =
                            of_kind(kind).map(|object| (object.id, kind)).collect();
                        walk.visit_below(&starts)?;
                    }
                }
            }
        }
        Ok(arrived)
    }

    /// Adds the packs to the target, durably. The caller must have checked that they are complete. A
    /// damaged pack of the target that a new one replaces stays in `quarantine/`.
    ///
    /// # Errors
    /// [`StoreError`]. The target may then have some of the objects, but no commit refers to them.
    pub fn adopt(self, how: Adoption) -> Result<WriteStats, StoreError> {
        let ordered = self.ordered()?;
        self.own.drop_index();
        // Another process may have added some of the packs meanwhile.
        let present: HashSet<PackId> = self.target.packs().into_iter().collect();
        let (mut whole, mut mixed) = (Vec::new(), Vec::new());
        for id in ordered {
            let pack = self.open(&id)?;
            match self.known_objects(&pack, how, &present)? {
                // Sync all packs first, to shorten the time between the first rename and the last one.
                0 => whole.push((id, self.synced(&id)?)),
                known if known < pack.object_count() => mixed.push(id),
                _ => {}
            }
        }
        let mut stats = WriteStats::default();
        for (id, path) in &whole {
            let pack = PackFile::open(path, *id)?;
            let objects = pack.objects()?;
            stats.objects += objects.len() as u64;
            stats.raw_bytes += objects.iter().map(|object| u64::from(object.bytes)).sum::<u64>();
            stats.stored_bytes += pack.file_bytes();
            stats.packs += 1;
            if self.target.is_damaged(id) {
                self.target.keep_in_quarantine(id)?;
            }
            self.target.adopt_pack(path, &pack, objects, self.epoch)?;
        }
        match how {
            Adoption::NewObjects(level) if !mixed.is_empty() => {
                let writer = ObjectWriter::new(self.target, level, 1)?;
                for id in &mixed {
                    let pack = self.open(id)?;
                    copy_pack(&writer, &pack, FrameMode::Refill, &mut |new| writer.claim(new))?;
                }
                // This also makes the names of the moved packs durable.
                stats += writer.finish()?;
            }
            _ => self.target.make_names_durable()?,
        }
        Ok(stats)
    }

    fn open(&self, id: &PackId) -> Result<PackFile, StoreError> {
        PackFile::open(&self.own.pack_path(id), *id)
    }

    /// Makes the bytes of a pack durable, on the disk of the target. Returns their path.
    fn synced(&self, id: &PackId) -> Result<PathBuf, StoreError> {
        let (mut path, tmp) = (self.own.pack_path(id), self.target.scratch_dir()?);
        let stat = |path: &Path| fs_err::metadata(path).map_err(PathError::when("stat", path));
        if stat(&path)?.dev() != stat(&tmp)?.dev() {
            // Unlike an unlocked new pack, a file of this name is not swept at once.
            let copy = tmp.join(unique_name("adopted"));
            fs_err::copy(&path, &copy).map_err(PathError::when("copy", &path))?;
            path = copy;
        }
        self.target.disk().sync_file(&path)?;
        Ok(path)
    }

    /// Returns how many objects of a pack the target need not get. A moved pack replaces a partial or
    /// damaged copy.
    fn known_objects(
        &self,
        pack: &PackFile,
        how: Adoption,
        present: &HashSet<PackId>,
    ) -> Result<usize, StoreError> {
        let id = pack.id();
        if self.target.is_partial(&id) || self.target.is_damaged(&id) {
            return Ok(0);
        }
        if how == Adoption::Packs {
            let is_sound = present.contains(&id) && !self.target.is_shadowed(&id);
            return Ok(if is_sound { pack.object_count() } else { 0 });
        }
        let mut known = 0;
        for object in &pack.objects()? {
            known += usize::from(self.target.is_stored(&object.id)?);
        }
        Ok(known)
    }

    /// Returns the packs in the order of adoption: chunks before the lists that name them. A commit
    /// to the target relies on any list that it finds. Such a commit may run between two adoptions,
    /// and a killed process never adds the remaining packs. Packs that refer to each other come in
    /// any order.
    ///
    /// # Errors
    /// [`StoreError`] when a list cannot be read.
    fn ordered(&self) -> Result<Vec<PackId>, StoreError> {
        let packs = self.own.packs();
        if packs.len() < 2 {
            return Ok(packs);
        }
        let mut after: BTreeMap<PackId, BTreeSet<PackId>> = BTreeMap::new();
        let mut parts = PacksOfParts::default();
        for id in &packs {
            after.insert(*id, self.named_by_lists(id, &mut parts)?);
        }
        // Depth-first search in post-order. The stack gets each pack a second time, as ready, below
        // the packs that it needs. `seen` breaks cycles.
        let mut ordered = Vec::with_capacity(packs.len());
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<(PackId, bool)> = packs.iter().rev().map(|id| (*id, false)).collect();
        while let Some((id, is_ready)) = waiting.pop() {
            if is_ready {
                ordered.push(id);
            } else if seen.insert(id) {
                waiting.push((id, true));
                waiting.extend(after.remove(&id).into_iter().flatten().map(|id| (id, false)));
            }
        }
        Ok(ordered)
    }

    /// Returns the other received packs that hold chunks or parts of the lists in a pack. Reads each
    /// part once for all packs.
    fn named_by_lists(
        &self,
        id: &PackId,
        parts: &mut PacksOfParts,
    ) -> Result<BTreeSet<PackId>, StoreError> {
        let mut named = BTreeSet::new();
        let pack_of = |id: ObjectId| -> Result<Option<PackId>, StoreError> {
            Ok(self.own.locate(&id)?.and_then(|place| self.own.pack_id(place.pack)))
        };
        let read = |id: &ObjectId, kind| self.object(id, kind);
        let objects = self.own.open_pack(id)?.objects()?;
        let lists = objects.iter().filter(|object| object.kind == ObjectKind::ChunkList);
        for list in lists {
            let mut entered = None;
            walk_chunks(&ChunkListId::from_object(list.id), &read, &mut |visit| match visit {
                ChunkVisit::Part(part, _) => {
                    named.extend(pack_of(part.id.object())?);
                    let known = parts.get(&part.id);
                    named.extend(known.into_iter().flatten());
                    entered = known.is_none().then_some(part.id);
                    Ok(if known.is_none() { Descend::Enter } else { Descend::Skip })
                }
                ChunkVisit::Chunks(chunks) => {
                    let mut of_chunks = BTreeSet::new();
                    for chunk in chunks? {
                        of_chunks.extend(pack_of(chunk.id.object())?);
                    }
                    named.extend(&of_chunks);
                    parts.extend(entered.map(|part| (part, of_chunks)));
                    Ok::<_, StoreError>(Descend::Enter)
                }
            })?;
        }
        named.remove(id);
        Ok(named)
    }
}

/// The received packs that hold chunks of each part of a chunk list.
type PacksOfParts = HashMap<ListPartId, BTreeSet<PackId>>;

/// Where [`Inbox::check_complete`] starts.
#[derive(Clone, Copy, Debug)]
pub enum WalkStart<'a> {
    /// At these commits.
    Commits(&'a [CommitId]),
    /// At all objects of the received packs.
    AllObjects,
}

/// What a walk has found in the received packs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrived {
    pub objects: u64,
    /// Commits that the target lacks.
    pub commits: u64,
}

/// Looks objects up in the received packs, then in the target.
impl ObjectSource for Inbox<'_> {
    fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        match self.own.locate(id)? {
            None => self.target.locate(id),
            place => Ok(place),
        }
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        match self.own.locate(id)? {
            Some(_) => self.own.object(id, kind),
            None => self.target.object(id, kind),
        }
    }

    fn link(&self, parent: &CommitId) -> Result<Option<ObjectLocation>, StoreError> {
        match (self.own.locate(&parent.object())?, self.own.locate(&parent.link())?) {
            (Some(_), _) => Ok(None),
            // A commit that lies elsewhere counts as present, so it is not read.
            (None, None) if self.target.is_forgotten(parent)? => {
                self.target.locate_unshadowed(&parent.link())
            }
            (None, None) => Ok(None),
            (None, link) => Ok(link),
        }
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        match (self.own.locate(id)?, self.target.locate(id)?) {
            (None, Some(place)) => self.target.is_here(&place),
            _ => Ok(true),
        }
    }
}

/// The commits that refs reach. They are complete.
#[derive(Debug)]
pub struct CompleteCommits<'a> {
    store: &'a Store,
    tips: &'a [CommitId],
    /// All reachable commits. Computed only on demand, since most transfers continue from a tip.
    all: Option<HashSet<ObjectId>>,
}

impl<'a> CompleteCommits<'a> {
    /// Takes the commits that `tips` reach.
    pub fn of(store: &'a Store, tips: &'a [CommitId]) -> Self {
        Self { store, tips, all: None }
    }

    /// Returns the parents of a commit, or `None` if the store has lost the commit. Does not fetch the
    /// history of a commit that only a remote stores.
    fn parents(&self, id: &CommitId) -> Result<Option<Vec<CommitId>>, StoreError> {
        let place = self.store.locate(&id.object())?;
        if place.is_some_and(|place| !self.store.is_here(&place).unwrap_or(true)) {
            return Ok(Some(Vec::new()));
        }
        match self.store.ancestor(id) {
            Ok(found) => Ok(Some(found.commit.parents)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn has(&mut self, id: &ObjectId) -> Result<bool, StoreError> {
        if let Some(tip) = self.tips.iter().find(|tip| tip.object() == *id) {
            return Ok(self.parents(tip)?.is_some());
        }
        if self.all.is_none() {
            // Omit the commits that the store has lost: the received packs may contain them.
            let all = ancestors(self.tips.iter().copied(), |id| self.parents(&id))?;
            self.all = Some(all.into_iter().map(|id| id.object()).collect());
        }
        Ok(self.all.as_ref().is_some_and(|all| all.contains(id)))
    }
}
