//! The local mirror of a remote store: its packs without their frames.
//!
//! The mirror is a store of stubs in a cache folder. After a loss, snap only has to read the index
//! again, and to verify the remote store again, so it syncs nothing here. The mirror records damage
//! that a verification finds as shadows.
//!
//! Opening a mirror that [was not made here](snap_core::disk::made_here), or that has no
//! state file (`mirror_state.rs`), clears it first.
//!
//! Any file of the mirror may be cut, damaged or replaced by a folder, which says nothing about the
//! remote store. Opening the mirror checks the files and clears the mirror if a stub or the list of
//! index files is damaged; the next refresh then reads the index again.
//!
//! Each stub belongs to an index file that was read completely. A stub without a known index file
//! comes from a killed process and would wrongly count as complete, so the next process removes it.
//! Several processes may use the folder; they change it under a lock.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        limits,
        observe::Silent,
        time::Time,
    },
    disk::{
        Disk, NewFile,
        made_here::{MADE_HERE, is_made_here, mark_made_here},
        regular::read_at_most,
        scratch::{PREFIX, unique_name},
        symlink_guard::check_no_link_entries,
    },
    format::{
        forgotten::ForgottenTable,
        outline::PackOutline,
        ref_text::FIRST_EPOCH,
        shadow::{Reason, ShadowTable},
    },
    ops::select::PeerHas,
    store::{Store, StoreError},
};

use super::{
    CONDITIONS,
    checked_file::{self, CheckedText},
    gc_view::{DeadCopies, GcView, IndexedFile, IndexedFiles, counts, epoch_of},
    mirror_state::{MirrorState, STATE},
};

/// A line for each index file whose packs are all in the mirror: its name, `@` and its epoch if that
/// is not 0, and the ids of its packs.
const NAMES: &str = "outlines";

/// What the last process knew about the garbage collection: the state, then the table.
const GC: &str = "gc-view";

/// The table of shadows of the store of stubs.
const SHADOWS: &str = "shadow";

/// The table of forgotten commits of the store of stubs, as [`GC`] lists them.
const FORGOTTEN: &str = "forgotten";

/// The lock for changes of the folder.
const LOCK: &str = "lock";

const FILES: [&str; 8] = [NAMES, STATE, CONDITIONS, GC, SHADOWS, FORGOTTEN, MADE_HERE, LOCK];

const FOLDERS: [&str; 4] = ["objects", "partial", "index", "tmp"];

/// The mirror of a remote store.
#[derive(Debug)]
pub struct Mirror {
    dir: PathBuf,
    pub(super) store: Store,
    /// The index files known when the mirror was opened, and those added by this process.
    names: Mutex<IndexedFiles>,
    /// What this process knows about the garbage collection of the remote store.
    gc: Mutex<Option<Arc<GcView>>>,
}

impl Mirror {
    /// Opens the mirror in `dir`, and creates it if necessary. The caller has checked that no
    /// folder above `dir` is a link of another user.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be used, or if it or an entry of it is a link.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let disk = Disk::cache(dir);
        remove_wrong_kinds(dir)?;
        disk.create_folders(dir)?;
        check_no_link_entries(dir)?;
        let _lock = lock(dir, &disk)?;
        let is_known = dir.join(STATE).exists();
        if !is_known || !is_made_here(dir) {
            remove_all_but_lock(dir)?;
        }
        Store::create(dir, &disk)?;
        if !dir.join(STATE).exists() {
            MirrorState::default().write(dir, &disk, &dir.join("tmp"))?;
        }
        if !is_made_here(dir) {
            mark_made_here(dir, &disk, &dir.join("tmp"))?;
        }
        remove_damaged_shadows(dir, &disk)?;
        let gc = read_gc(dir);
        let names = read_names(dir);
        let is_listed = names.is_some();
        let mut names = names.unwrap_or_default();
        let mut indexed: HashSet<PackId> =
            names.values().flat_map(|file| &file.packs).copied().collect();
        if let Some(gc) = &gc {
            indexed.retain(|id| !gc.table.going.contains(id));
        }
        Store::retain_stubs(dir, &disk, &|id| indexed.contains(id))?;
        let mut store = Store::open(dir, disk.clone(), &Silent)?;
        let here: HashSet<PackId> = store.packs().into_iter().collect();
        // If a segment is lost, opening the store rebuilds it, and reads more of the stubs for
        // that.
        let is_whole = is_listed && store.unreadable_packs().is_empty();
        if !is_whole || !indexed.is_subset(&here) {
            // An object in the mirror stands for everything that it refers to, so a mirror with a
            // gap is useless. The next listing fills an empty mirror.
            names.clear();
            drop(store);
            write_names(dir, &disk, &names)?;
            Store::retain_stubs(dir, &disk, &|_| false)?;
            store = Store::open(dir, disk, &Silent)?;
        }
        know_forgotten(&store, gc.as_ref())?;
        store.sweep();
        let (names, gc) = (Mutex::new(names), Mutex::new(gc.map(Arc::new)));
        Ok(Self { dir: dir.to_owned(), store, names, gc })
    }

    /// Reads the object tables of all stubs, and clears the mirror if one is damaged.
    /// Opening the mirror does not read these tables, because they grow with the remote store.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be used.
    pub fn remove_damaged_stubs(&mut self) -> Result<(), StoreError> {
        let is_damaged = |id: &PackId| {
            let tables = self.store.open_pack(id).and_then(|pack| pack.objects());
            tables.is_err_and(|error| error.damaged_pack().is_some())
        };
        let damaged: HashSet<PackId> = self.store.packs().into_iter().filter(is_damaged).collect();
        if damaged.is_empty() {
            return Ok(());
        }
        {
            let _lock = lock(&self.dir, self.store.disk())?;
            Store::retain_stubs(&self.dir, self.store.disk(), &|id| !damaged.contains(id))?;
        }
        *self = Self::open(&self.dir)?;
        Ok(())
    }

    /// Deletes everything in the mirror.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be used.
    pub fn reset(&mut self) -> Result<(), StoreError> {
        // Rename the folder first, so that no process sees a half-deleted mirror.
        let gone = self.dir.with_file_name(unique_name(PREFIX));
        self.store.disk().replace(&self.dir, &gone)?;
        // After a failure, the remaining files only take up space.
        let _ = fs_err::remove_dir_all(&gone);
        let gc = self.gc();
        *self = Self::open(&self.dir)?;
        self.know_gc(gc)
    }

    /// Returns what this process knows about the garbage collection of the remote store; `None`
    /// before the first one.
    pub fn gc(&self) -> Option<Arc<GcView>> {
        self.gc.lock().clone()
    }

    /// Returns the epoch that this process knows.
    pub fn epoch(&self) -> u64 {
        epoch_of(self.gc().as_deref())
    }

    /// Takes over what the service said about its garbage collection, and removes the stubs of packs
    /// that are going. If the folder cannot be written, the next process reads the state again.
    ///
    /// # Errors
    /// [`StoreError`] if the stubs cannot be removed.
    pub fn know_gc(&self, view: Option<Arc<GcView>>) -> Result<(), StoreError> {
        let _lock = lock(&self.dir, self.store.disk())?;
        let written = view.as_ref().and_then(|view| view.encode().ok());
        let path = self.dir.join(GC);
        let _ = match written {
            Some(bytes) => self.store.disk().write_whole(&self.dir.join("tmp"), &path, &bytes),
            None => self.store.disk().remove(&path),
        };
        self.gc.lock().clone_from(&view);
        know_forgotten(&self.store, view.as_deref())?;
        let Some(view) = view else { return Ok(()) };
        let going = self.store.packs().into_iter().filter(|id| view.table.going.contains(id));
        self.store.remove_stubs(&going.collect::<Vec<_>>())
    }

    /// Returns the copies of objects on which nothing may rely; `None` if there are none.
    pub fn dead_copies(&self) -> Option<Arc<DeadCopies>> {
        DeadCopies::of(self.gc(), &self.names.lock()).map(Arc::new)
    }

    /// Returns true if this process may rely on the packs of an index file.
    pub(crate) fn counts(&self, name: &str) -> bool {
        let gc = self.gc();
        self.names.lock().get(name).is_some_and(|file| counts(gc.as_deref(), name, file))
    }

    /// Removes the stubs of packs that no known index file lists.
    ///
    /// # Errors
    /// [`StoreError`] if a stub cannot be removed.
    pub(crate) fn drop_unlisted(&self) -> Result<(), StoreError> {
        let _lock = lock(&self.dir, self.store.disk())?;
        // Another process may have read another listing.
        let mut listed = read_names(&self.dir).unwrap_or_default();
        listed.extend(self.files());
        let listed: HashSet<PackId> = listed.into_values().flat_map(|file| file.packs).collect();
        let unlisted = self.store.packs().into_iter().filter(|id| !listed.contains(id));
        self.store.remove_stubs(&unlisted.collect::<Vec<_>>())
    }

    /// Returns the folder of the mirror.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the store of stubs.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns true if an index file of the remote store lists the object. Without damage, the
    /// store then has everything that the object refers to.
    ///
    /// # Errors
    /// [`StoreError`] if the index cannot be read.
    pub fn has(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.store.locate(id)?.is_some())
    }

    /// Returns true if the mirror has an index file.
    pub fn knows(&self, name: &str) -> bool {
        self.names.lock().contains_key(name)
    }

    /// Returns the index files in the mirror, and the packs of each.
    pub fn outlines(&self) -> BTreeMap<String, BTreeSet<PackId>> {
        self.files().into_iter().map(|(name, file)| (name, file.packs)).collect()
    }

    /// Returns the index files in the mirror, with the epoch and the packs of each.
    pub fn files(&self) -> IndexedFiles {
        self.names.lock().clone()
    }

    /// Returns true if the folder still has, in readable form, all packs of the known index
    /// files.
    pub fn is_intact(&self) -> bool {
        if self.store.refresh().is_err() || !self.store.unreadable_packs().is_empty() {
            return false;
        }
        let here: HashSet<PackId> = self.store.packs().into_iter().collect();
        let gc = self.gc();
        let is_going = |id| gc.as_ref().is_some_and(|gc| gc.table.going.contains(id));
        let names = self.names.lock();
        let mut listed = names.values().flat_map(|file| &file.packs);
        listed.all(|id| here.contains(id) || is_going(id))
    }

    /// Adds the outlines of an index file or a group, and remembers its name.
    ///
    /// # Errors
    /// [`StoreError`] if an outline is damaged or the folder cannot be written; errors of
    /// `outlines`.
    pub fn add<E: From<StoreError>>(
        &self,
        name: &str,
        epoch: u64,
        outlines: impl IntoIterator<Item = Result<Vec<PackOutline>, E>>,
    ) -> Result<(), E> {
        let _lock = lock(&self.dir, self.store.disk())?;
        let known: HashSet<_> = self.store.packs().into_iter().collect();
        let gc = self.gc();
        let is_going = |id: &PackId| gc.as_ref().is_some_and(|gc| gc.table.going.contains(id));
        let mut packs = BTreeSet::new();
        for some in outlines {
            let some = some?;
            let is_new =
                |outline: &&PackOutline| !known.contains(&outline.id) && !is_going(&outline.id);
            self.store.add_stubs(some.iter().filter(is_new))?;
            packs.extend(some.iter().map(|outline| outline.id));
        }
        let file = IndexedFile { epoch, packs };
        self.change_names(|names| drop(names.insert(name.to_owned(), file.clone())))?;
        Ok(())
    }

    /// Forgets the names of index files, but keeps their packs.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be written.
    pub fn forget(&self, gone: &[String]) -> Result<(), StoreError> {
        if gone.is_empty() {
            return Ok(());
        }
        let _lock = lock(&self.dir, self.store.disk())?;
        self.change_names(|names| gone.iter().for_each(|name| drop(names.remove(name))))
    }

    /// Changes the names in memory and in the folder, after reading the changes of other processes.
    /// The caller must hold the lock.
    fn change_names(&self, change: impl Fn(&mut IndexedFiles)) -> Result<(), StoreError> {
        let mut written = read_names(&self.dir).unwrap_or_else(|| self.names.lock().clone());
        change(&mut written);
        change(&mut self.names.lock());
        Ok(write_names(&self.dir, self.store.disk(), &written)?)
    }

    /// Returns true if this machine has seen the remote store before.
    pub fn was_seen(&self) -> bool {
        Self::has_seen(&self.dir)
    }

    /// Returns true if the mirror in `dir` records that this machine has seen the remote store.
    pub fn has_seen(dir: &Path) -> bool {
        MirrorState::read(dir).is_seen
    }

    /// Remembers that the remote store exists. After a failure, the next command looks it up again.
    pub fn remember_seen(&self) {
        let _ = self.change_state(|state| state.is_seen = true);
    }

    /// Returns the objects of the remote store that the mirror knows.
    pub fn holdings(&self) -> MirrorHoldings<'_> {
        self.holdings_if(!self.is_damaged())
    }

    /// Returns objects like [`Self::holdings`], but assumes that the remote store may be
    /// incomplete.
    pub fn unproven_holdings(&self) -> MirrorHoldings<'_> {
        self.holdings_if(false)
    }

    fn holdings_if(&self, is_whole: bool) -> MirrorHoldings<'_> {
        MirrorHoldings { store: &self.store, is_whole, dead: self.dead_copies() }
    }

    /// Returns true if the remote store is known to lack objects that it should have.
    pub fn is_damaged(&self) -> bool {
        let state = MirrorState::read(&self.dir);
        self.store.has_shadows() || state.is_damaged || !state.damaged_index.is_empty()
    }

    /// Returns the names of the index files that were found damaged.
    pub fn damaged_index(&self) -> Vec<String> {
        MirrorState::read(&self.dir).damaged_index.into_iter().collect()
    }

    /// Replaces the names of damaged index files.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be written.
    pub fn note_damaged_index(&self, names: &[String]) -> Result<(), StoreError> {
        self.change_state(|state| state.damaged_index = names.iter().cloned().collect())
    }

    /// Remembers that the remote store lacks objects. After a failure, the store counts as complete
    /// until the next verification.
    pub fn remember_damage(&self) {
        let _ = self.change_state(|state| state.is_damaged = true);
    }

    /// Records in the mirror in `dir` whether the remote store is complete except for shadowed
    /// objects.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be written.
    pub fn record_completeness(dir: &Path, disk: &Disk, is_whole: bool) -> Result<(), StoreError> {
        change_state(dir, disk, |state| state.is_damaged = !is_whole)
    }

    /// Copies the records of damage from the mirror in `from` to a new one in `to`, for callers
    /// that must not change the first. Ignores a mirror that was not made here.
    ///
    /// # Errors
    /// [`PathError`] if a file cannot be read or written.
    pub fn copy_damage(from: &Path, to: &Path) -> Result<(), PathError> {
        if !is_made_here(from) {
            return Ok(());
        }
        let disk = Disk::cache(to);
        disk.create_folders(to)?;
        mark_made_here(to, &disk, to)?;
        let MirrorState { is_damaged, damaged_index, .. } = MirrorState::read(from);
        let damage = MirrorState { is_damaged, damaged_index, ..MirrorState::default() };
        damage.write(to, &disk, to)?;
        let path = from.join(SHADOWS);
        if path.exists() {
            let bytes = read_at_most(&path, limits::SHADOW_BYTES);
            let bytes = bytes.map_err(PathError::when("copy", &path))?;
            disk.write_whole(to, &to.join(SHADOWS), &bytes)?;
        }
        Ok(())
    }

    /// Returns the packs with damaged or lost parts.
    pub fn damaged_packs(&self) -> BTreeSet<PackId> {
        match self.store.has_shadows() {
            true => {
                self.store.packs().into_iter().filter(|id| self.store.is_shadowed(id)).collect()
            }
            false => BTreeSet::new(),
        }
    }

    /// Clears the damage of packs after a new upload of bytes that hash to their names.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be written.
    pub fn clear_damage(&self, packs: &[PackId]) -> Result<(), StoreError> {
        if self.store.has_shadows() {
            self.store.change_shadows(&|table| {
                for id in packs {
                    table.remove(id, Reason::Damaged);
                }
            })?;
        }
        Ok(())
    }

    /// Restores the shadows of `before` for packs that the index still lists after a
    /// [reset](Self::reset).
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be written.
    pub fn restore_shadows(&self, before: &ShadowTable) -> Result<(), StoreError> {
        let here: HashSet<PackId> = self.store.packs().into_iter().collect();
        let kept: Vec<_> = before.entries().filter(|(pack, ..)| here.contains(pack)).collect();
        if !kept.is_empty() {
            self.store.change_shadows(&|table| {
                for (pack, reason, extent) in &kept {
                    table.add(**pack, *reason, (*extent).clone());
                }
            })?;
        }
        Ok(())
    }

    /// Returns true if the remote store may have uploaded packs that no index file lists.
    pub fn may_have_sent(&self) -> bool {
        MirrorState::read(&self.dir).is_sending
    }

    /// Remembers that an upload of packs begins. After a failure, the next push uploads the packs
    /// of an interrupted one again.
    pub fn remember_sending(&self) {
        let _ = self.change_state(|state| state.is_sending = true);
    }

    /// Returns true if a connection broke during the upload that has begun.
    pub fn was_interrupted(&self) -> bool {
        MirrorState::read(&self.dir).is_interrupted
    }

    /// Remembers that a connection broke. Until all packs are published, pushes send smaller packs,
    /// and find those that arrived before.
    pub fn remember_interruption(&self) {
        let _ = self.change_state(|state| state.is_interrupted = true);
    }

    /// Forgets the upload after the publication of all uploaded packs.
    pub fn forget_sending(&self) {
        let _ = self.change_state(|state| {
            (state.is_sending, state.is_interrupted) = (false, false);
        });
    }

    fn change_state(&self, change: impl Fn(&mut MirrorState)) -> Result<(), StoreError> {
        change_state(&self.dir, self.store.disk(), change)
    }
}

/// The objects of a remote store that its mirror knows.
#[derive(Clone, Debug)]
pub struct MirrorHoldings<'m> {
    store: &'m Store,
    is_whole: bool,
    dead: Option<Arc<DeadCopies>>,
}

impl MirrorHoldings<'_> {
    /// Returns whether the remote store has an object. The object stands for everything that it refers
    /// to, unless the store is known to lack objects.
    ///
    /// # Errors
    /// [`StoreError`] if the index cannot be read.
    pub fn of(&self, id: &ObjectId) -> Result<PeerHas, StoreError> {
        if let Some(dead) = &self.dead {
            return self.alive(id, dead);
        }
        let is_known = self.store.locate(id)?.is_some();
        if self.is_whole {
            return Ok(PeerHas::of(is_known));
        }
        Ok(match (is_known, self.store.locate_unshadowed(id)?) {
            (false, _) => PeerHas::Nothing,
            (true, None) => PeerHas::Lost,
            (true, Some(_)) => PeerHas::Alone,
        })
    }

    /// Returns whether the remote store has a copy of an object that may be relied on.
    fn alive(&self, id: &ObjectId, dead: &DeadCopies) -> Result<PeerHas, StoreError> {
        let (mut is_known, mut is_sound) = (false, false);
        for place in self.store.places(id)? {
            let Some(pack) = self.store.pack_id(place.pack) else { continue };
            if !dead.contains(&pack, id) {
                is_known = true;
                is_sound |= !self.store.shadows().covers(&pack, id);
            }
        }
        Ok(match (is_known, self.is_whole, is_sound) {
            (false, ..) => PeerHas::Nothing,
            (true, true, _) => PeerHas::All,
            (true, false, true) => PeerHas::Alone,
            (true, false, false) => PeerHas::Lost,
        })
    }
}

/// Makes the forgotten commits of a remote store those of its mirror.
fn know_forgotten(mirror: &Store, view: Option<&GcView>) -> Result<(), StoreError> {
    let forgotten = view.map(|view| &view.table.forgotten);
    mirror.change_forgotten(&|table| {
        *table = ForgottenTable::default();
        for id in forgotten.into_iter().flatten() {
            table.insert(*id, Time::default());
        }
    })
}

/// Removes files in the places of folders, and folders in the places of files. Leaves links to the
/// check that refuses them.
fn remove_wrong_kinds(dir: &Path) -> Result<(), PathError> {
    let has_kind = |path: &Path, is_wrong: fn(&fs::Metadata) -> bool| {
        fs_err::symlink_metadata(path).is_ok_and(|meta| is_wrong(&meta))
    };
    for path in FOLDERS.iter().map(|name| dir.join(name)) {
        if has_kind(&path, |meta| !meta.is_dir() && !meta.is_symlink()) {
            fs_err::remove_file(&path).map_err(PathError::when("remove", &path))?;
        }
    }
    for path in FILES.iter().map(|name| dir.join(name)) {
        if has_kind(&path, fs::Metadata::is_dir) {
            fs_err::remove_dir_all(&path).map_err(PathError::when("remove", &path))?;
        }
    }
    Ok(())
}

/// Removes a mirror that came with a store from elsewhere, or has no state. Such a mirror may name
/// objects that the remote store does not have.
fn remove_all_but_lock(dir: &Path) -> Result<(), PathError> {
    for entry in fs_err::read_dir(dir).map_err(PathError::when("list", dir))? {
        let path = entry.map_err(PathError::when("list", dir))?.path();
        let is_folder = fs_err::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
        let removed = match is_folder {
            true => fs_err::remove_dir_all(&path),
            false if path.ends_with(LOCK) => Ok(()),
            false => fs_err::remove_file(&path),
        };
        removed.map_err(PathError::when("remove", &path))?;
    }
    Ok(())
}

/// Removes a table of shadows that cannot be decoded. Marks the remote store as damaged, because
/// its lost objects are unknown until a verification.
fn remove_damaged_shadows(dir: &Path, disk: &Disk) -> Result<(), PathError> {
    let path = dir.join(SHADOWS);
    if !path.exists() {
        return Ok(());
    }
    let bytes = read_at_most(&path, limits::SHADOW_BYTES);
    if bytes.is_ok_and(|bytes| ShadowTable::decode(&bytes).is_ok()) {
        return Ok(());
    }
    MirrorState::change(dir, disk, &|state| state.is_damaged = true)?;
    disk.remove(&path)
}

/// Changes the state under the lock of the folder. Does not wait for the lock if nothing changes.
fn change_state(
    dir: &Path,
    disk: &Disk,
    change: impl Fn(&mut MirrorState),
) -> Result<(), StoreError> {
    if MirrorState::changed(dir, &change).is_none() {
        return Ok(());
    }
    let _lock = lock(dir, disk)?;
    Ok(MirrorState::change(dir, disk, &change)?)
}

/// Waits for the lock of the folder.
fn lock(dir: &Path, disk: &Disk) -> Result<NewFile, StoreError> {
    let path = dir.join(LOCK);
    let file = disk.append(&path)?;
    file.file().lock().map_err(PathError::when("lock", &path))?;
    Ok(file)
}

/// Reads [`NAMES`]; returns `None` if the file is damaged.
fn read_names(dir: &Path) -> Option<IndexedFiles> {
    match checked_file::read(&dir.join(NAMES)) {
        CheckedText::Missing => Some(IndexedFiles::new()),
        CheckedText::Damaged => None,
        CheckedText::Lines(text) => text.lines().map(parse).collect(),
    }
}

/// Writes [`NAMES`].
fn write_names(dir: &Path, disk: &Disk, names: &IndexedFiles) -> Result<(), PathError> {
    let mut text = String::new();
    for (name, IndexedFile { epoch, packs }) in names {
        text.push_str(name);
        if *epoch != FIRST_EPOCH {
            text.push_str(&format!("@{epoch}"));
        }
        packs.iter().for_each(|id| text.push_str(&format!(" {id}")));
        text.push('\n');
    }
    checked_file::write(disk, &dir.join("tmp"), &dir.join(NAMES), text)
}

/// Parses a line of [`NAMES`]; returns `None` if the line is incomplete.
fn parse(line: &str) -> Option<(String, IndexedFile)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let (name, epoch) = match name.split_once('@') {
        Some((name, epoch)) => (name, epoch.parse().ok()?),
        None => (name, FIRST_EPOCH),
    };
    let packs: BTreeSet<PackId> = words.map(|id| id.parse().ok()).collect::<Option<_>>()?;
    // A garbage collection writes an empty file if nothing is left.
    let is_valid = !packs.is_empty() || epoch != FIRST_EPOCH;
    is_valid.then_some((name.to_owned(), IndexedFile { epoch, packs }))
}

/// Reads what the last process knew about the garbage collection.
fn read_gc(dir: &Path) -> Option<GcView> {
    let most = limits::GC_STATE_BYTES + limits::GC_TABLE_BYTES;
    GcView::decode(&read_at_most(&dir.join(GC), most).ok()?)
}
