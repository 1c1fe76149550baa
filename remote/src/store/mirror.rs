//! What is known of a store elsewhere: its packs without their frames.
//!
//! A store of stubs in a cache folder. Losing it costs reading the index
//! again, and verifying the store again, nothing else; so nothing here is synced.
//! What a verification finds damaged or lost there is shadowed here. Each stub belongs to a file
//! of outlines that was read whole; one of which that is not known is left from
//! somebody who was killed and would be believed to be complete, so whoever
//! comes next removes it. Several processes may use the folder: it changes
//! under a lock.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use snap_core::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        observe::Silent,
        time::Time,
    },
    disk::{Disk, NewFile, scratch::unique_name},
    format::{outline::Outline, shadow::Reason},
    ops::select::Holding,
    store::{Store, StoreError},
};

/// File with a line for each file of outlines whose packs are all here: its
/// name, and theirs.
const NAMES: &str = "outlines";

/// File that is there once the store was.
const SEEN: &str = "seen";

/// File that is there while packs are sent.
const SENDING: &str = "sending";

/// File that says whether the service keeps to conditions, once that was tried:
/// [`KEPT`], or [`IGNORED`] and when, in seconds since 1970.
const CONDITIONS: &str = "conditions";

/// They are kept.
const KEPT: &str = "kept";

/// They are not.
const IGNORED: &str = "ignored";

/// How long it is believed that they are not: something on the way may have answered in place
/// of the service.
const IGNORED_SECS: i64 = 24 * 60 * 60;

/// File that is there once the store was seen to be of the newest version.
const NEWEST: &str = "version-2";

/// File that is there while the store elsewhere is known to lack something.
const DAMAGED: &str = "damaged";

/// The table of what is shadowed in the store of stubs.
const SHADOWS: &str = "shadow";

/// File with the names of files of the index that were found damaged, a line each.
const DAMAGED_INDEX: &str = "damaged-index";

/// File that whoever changes the folder locks.
const LOCK: &str = "lock";

/// Names of files of outlines, and the packs in each.
type Names = BTreeMap<String, BTreeSet<PackId>>;

/// Packs elsewhere.
#[derive(Debug)]
pub struct Mirror {
    dir: PathBuf,
    store: Store,
    /// Those that were there when it was opened, and those that came by this.
    names: Mutex<Names>,
}

impl Mirror {
    /// Opens what is kept in `dir`, or begins to keep something there.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be used.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let disk = Disk::scratch();
        disk.create_folders(dir)?;
        Store::create(dir, &disk)?;
        let _lock = lock(dir, &disk)?;
        let told: HashSet<PackId> = read_names(dir).into_values().flatten().collect();
        Store::retain_stubs(dir, &disk, &|id| told.contains(id))?;
        let store = Store::open(dir, disk, &Silent)?;
        store.sweep();
        let here: HashSet<PackId> = store.packs().into_iter().collect();
        let mut names = read_names(dir);
        names.retain(|_, packs| packs.iter().all(|id| here.contains(id)));
        Ok(Self { dir: dir.to_owned(), store, names: Mutex::new(names) })
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be used.
    pub fn reset(&mut self) -> Result<(), StoreError> {
        // All at once: of a half nobody could say what it is.
        let gone = self.dir.with_file_name(unique_name(".snap-scratch"));
        self.store.disk().replace(&self.dir, &gone)?;
        // What cannot be removed now takes room and does no other harm.
        let _ = fs_err::remove_dir_all(&gone);
        *self = Self::open(&self.dir)?;
        Ok(())
    }

    /// The folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The same, for those who only read.
    pub fn into_store(self) -> Store {
        self.store
    }

    /// Its packs and objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether an object is there, with all that it refers to.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn has(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.store.locate(id)?.is_some())
    }

    /// Whether a file of outlines was taken in.
    pub fn knows(&self, name: &str) -> bool {
        self.names().contains_key(name)
    }

    /// The files of outlines that were taken in, and the packs in each.
    pub fn outlines(&self) -> BTreeMap<String, BTreeSet<PackId>> {
        self.names().clone()
    }

    /// Whether the folder still has, readable, all packs of the files of outlines that
    /// were taken in.
    pub fn is_intact(&self) -> bool {
        if self.store.refresh().is_err() || !self.store.unreadable_packs().is_empty() {
            return false;
        }
        let here: HashSet<PackId> = self.store.packs().into_iter().collect();
        self.names().values().flatten().all(|id| here.contains(id))
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in outlines, and remembers the name of the file, or of the group
    /// of files, that has them.
    ///
    /// # Errors
    /// [`StoreError`] when one is damaged or the folder cannot be written;
    /// those of `outlines`.
    pub fn add<E: From<StoreError>>(
        &self,
        name: &str,
        outlines: impl IntoIterator<Item = Result<Vec<Outline>, E>>,
    ) -> Result<(), E> {
        let _lock = lock(&self.dir, self.store.disk())?;
        let known: HashSet<_> = self.store.packs().into_iter().collect();
        let mut packs = BTreeSet::new();
        for some in outlines {
            let some = some?;
            self.store.add_stubs(some.iter().filter(|outline| !known.contains(&outline.id)))?;
            packs.extend(some.iter().map(|outline| outline.id));
        }
        self.change_names(|names| drop(names.insert(name.to_owned(), packs.clone())))?;
        Ok(())
    }

    /// Forgets names of files, not the packs that they told of.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be written.
    pub fn forget(&self, gone: &[String]) -> Result<(), StoreError> {
        if gone.is_empty() {
            return Ok(());
        }
        let _lock = lock(&self.dir, self.store.disk())?;
        self.change_names(|names| gone.iter().for_each(|name| drop(names.remove(name))))
    }

    /// Changes names here and in the folder, where others may have changed
    /// them, too. The caller has the lock.
    fn change_names(&self, change: impl Fn(&mut Names)) -> Result<(), StoreError> {
        let mut written = read_names(&self.dir);
        change(&mut written);
        change(&mut self.names());
        Ok(self.write_names(&written)?)
    }

    fn write_names(&self, names: &Names) -> Result<(), PathError> {
        let mut text = String::new();
        for (name, packs) in names {
            text.push_str(name);
            packs.iter().for_each(|id| text.push_str(&format!(" {id}")));
            text.push('\n');
        }
        self.write(NAMES, &text)
    }

    /// Whether a store was seen there before.
    pub fn was_seen(&self) -> bool {
        self.dir.join(SEEN).exists()
    }

    /// Remembers that there is a store. Where that fails it is asked again.
    pub fn remember_seen(&self) {
        let _ = self.write(SEEN, "");
    }

    /// Whether the store was seen to be of the newest version.
    pub fn is_newest(&self) -> bool {
        self.dir.join(NEWEST).exists()
    }

    /// Remembers that. Where that fails it is asked again.
    pub fn remember_newest(&self) {
        let _ = self.write(NEWEST, "");
    }

    /// Whether the service keeps to the conditions of writes, once that was tried. That it
    /// does not is forgotten after a day.
    pub fn keeps_conditions(&self) -> Option<bool> {
        let text = fs_err::read_to_string(self.dir.join(CONDITIONS)).ok()?;
        let mut words = text.split_whitespace();
        match (words.next()?, words.next()) {
            (KEPT, None) => Some(true),
            (IGNORED, Some(since)) => {
                let age_secs = Time::now().secs.checked_sub(since.parse().ok()?)?;
                (0..IGNORED_SECS).contains(&age_secs).then_some(false)
            }
            _ => None,
        }
    }

    /// Remembers that. Where that fails it is tried again.
    pub fn remember_conditions(&self, is_kept: bool) {
        let _ = self.write(CONDITIONS, &conditions_text(is_kept));
    }

    /// Remembers for the mirror in `dir` what was found out apart from it, if anything is
    /// remembered there.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be written.
    pub fn correct_conditions(dir: &Path, is_kept: bool) -> Result<(), StoreError> {
        let path = dir.join(CONDITIONS);
        if path.exists() {
            let temporary = dir.join("tmp").join(unique_name(CONDITIONS));
            let text = conditions_text(is_kept);
            Disk::scratch().write_whole(&temporary, &path, text.as_bytes())?;
        }
        Ok(())
    }

    /// What the store elsewhere has, as it is known now.
    pub fn holdings(&self) -> Holdings<'_> {
        Holdings { store: &self.store, is_whole: !self.is_damaged() }
    }

    /// The same, where nobody has seen yet that what is there is complete.
    pub fn unproven_holdings(&self) -> Holdings<'_> {
        Holdings { store: &self.store, is_whole: false }
    }

    /// Whether the store elsewhere is known to lack something that it should have.
    pub fn is_damaged(&self) -> bool {
        let is_there = |name: &str| self.dir.join(name).exists();
        self.store.has_shadows() || is_there(DAMAGED) || is_there(DAMAGED_INDEX)
    }

    /// Names of files of the index that were found damaged.
    pub fn damaged_index(&self) -> Vec<String> {
        let text = fs_err::read_to_string(self.dir.join(DAMAGED_INDEX)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Remembers these in place of those before.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be written.
    pub fn note_damaged_index(&self, names: &[String]) -> Result<(), StoreError> {
        let path = self.dir.join(DAMAGED_INDEX);
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        match names {
            [] if !path.exists() => {}
            [] => self.store.disk().remove(&path)?,
            _ => self.write(DAMAGED_INDEX, &lines)?,
        }
        Ok(())
    }

    /// Remembers that the store elsewhere lacks something. Where that fails, it is
    /// taken for whole until it is verified again.
    pub fn remember_damage(&self) {
        let _ = self.write(DAMAGED, "");
    }

    /// Remembers whether the store elsewhere, whose mirror is in `dir`, is whole but
    /// for what is shadowed.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be written.
    pub fn note_whole(dir: &Path, disk: &Disk, is_whole: bool) -> Result<(), StoreError> {
        let path = dir.join(DAMAGED);
        match is_whole {
            true if !path.exists() => {}
            true => disk.remove(&path)?,
            false => disk.write_whole(&dir.join("tmp").join(unique_name(DAMAGED)), &path, b"")?,
        }
        Ok(())
    }

    /// Copies what a mirror in the folder `from` knows of damage to the one in `to`:
    /// for those who must leave the first one as it is.
    ///
    /// # Errors
    /// [`PathError`] when it cannot be read or written.
    pub fn copy_damage(from: &Path, to: &Path) -> Result<(), PathError> {
        for name in [DAMAGED, SHADOWS] {
            let path = from.join(name);
            if path.exists() {
                Disk::scratch().create_folders(to)?;
                fs_err::copy(&path, to.join(name)).map_err(PathError::when("copy", &path))?;
            }
        }
        Ok(())
    }

    /// Packs of which something is damaged or lost there.
    pub fn damaged_packs(&self) -> BTreeSet<PackId> {
        match self.store.has_shadows() {
            true => {
                self.store.packs().into_iter().filter(|id| self.store.is_shadowed(id)).collect()
            }
            false => BTreeSet::new(),
        }
    }

    /// Relies again on packs that were just written there, from bytes that hash
    /// to their names.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be written.
    pub fn rely_again(&self, packs: &[PackId]) -> Result<(), StoreError> {
        if self.store.has_shadows() {
            self.store.change_shadows(&|table| {
                for id in packs {
                    table.withdraw(id, Reason::Damaged);
                }
            })?;
        }
        Ok(())
    }

    /// Whether packs may have been sent that no outline tells of.
    pub fn may_have_sent(&self) -> bool {
        self.dir.join(SENDING).exists()
    }

    /// Remembers that packs are being sent. Where that fails they are sent
    /// again after an interruption.
    pub fn remember_sending(&self) {
        let _ = self.write(SENDING, "");
    }

    /// All that was sent is told of.
    pub fn forget_sending(&self) {
        let _ = fs_err::remove_file(self.dir.join(SENDING));
    }

    fn write(&self, name: &str, text: &str) -> Result<(), PathError> {
        let temporary = self.dir.join("tmp").join(unique_name(name));
        self.store.disk().write_whole(&temporary, &self.dir.join(name), text.as_bytes())
    }
}

/// What a store elsewhere has of objects.
#[derive(Clone, Copy, Debug)]
pub struct Holdings<'m> {
    store: &'m Store,
    is_whole: bool,
}

impl Holdings<'_> {
    /// What it has of an object. Only of a store that lacks nothing, as far as that
    /// is known, does an object stand for all that it refers to.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn of(&self, id: &ObjectId) -> Result<Holding, StoreError> {
        let is_known = self.store.locate(id)?.is_some();
        if self.is_whole {
            return Ok(Holding::of(is_known));
        }
        Ok(match (is_known, self.store.locate_unshadowed(id)?) {
            (false, _) => Holding::Nothing,
            (true, None) => Holding::Lost,
            (true, Some(_)) => Holding::Alone,
        })
    }
}

fn conditions_text(is_kept: bool) -> String {
    match is_kept {
        true => format!("{KEPT}\n"),
        false => format!("{IGNORED} {}\n", Time::now().secs),
    }
}

/// Waits for others who change the folder.
fn lock(dir: &Path, disk: &Disk) -> Result<NewFile, StoreError> {
    let path = dir.join(LOCK);
    let file = disk.append(&path)?;
    file.file().lock().map_err(PathError::when("lock", &path))?;
    Ok(file)
}

fn read_names(dir: &Path) -> Names {
    let text = fs_err::read_to_string(dir.join(NAMES)).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// A line of [`NAMES`]; none when it is not whole.
fn parse(line: &str) -> Option<(String, BTreeSet<PackId>)> {
    let mut words = line.split(' ');
    let name = words.next()?.to_owned();
    let packs: BTreeSet<PackId> = words.map(|id| id.parse().ok()).collect::<Option<_>>()?;
    (!packs.is_empty()).then_some((name, packs))
}
