//! What is known of a store elsewhere: its packs without their frames.
//!
//! A store of stubs in a cache folder. Losing it costs reading the index
//! again, nothing else; so nothing here is synced.

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
    },
    disk::{Disk, scratch::unique_name},
    format::outline::Outline,
    store::{Store, StoreError},
};

/// File with a line for each file of outlines whose packs are all here: its
/// name, and theirs.
const NAMES: &str = "outlines";

/// File that is there once the store was.
const SEEN: &str = "seen";

/// File that is there while packs are sent.
const SENDING: &str = "sending";

/// Names of files of outlines, and the packs in each.
type Names = BTreeMap<String, BTreeSet<PackId>>;

/// Packs elsewhere.
#[derive(Debug)]
pub struct Mirror {
    dir: PathBuf,
    store: Store,
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
        let store = Store::open(dir, disk, &Silent)?;
        let text = fs_err::read_to_string(dir.join(NAMES)).unwrap_or_default();
        let packs: HashSet<PackId> = store.packs().into_iter().collect();
        let names =
            text.lines().filter_map(parse).filter(|(_, of)| of.iter().all(|id| packs.contains(id)));
        Ok(Self { dir: dir.to_owned(), store, names: Mutex::new(names.collect()) })
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be used.
    pub fn reset(&mut self) -> Result<(), StoreError> {
        let remove = PathError::when("remove", &self.dir);
        fs_err::remove_dir_all(&self.dir).map_err(remove)?;
        *self = Self::open(&self.dir)?;
        Ok(())
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

    /// Takes in outlines, and remembers the name of their file.
    ///
    /// # Errors
    /// [`StoreError`] when one is damaged or the folder cannot be written.
    pub fn add(&self, name: &str, outlines: &[Outline]) -> Result<(), StoreError> {
        let known: HashSet<_> = self.store.packs().into_iter().collect();
        let new = outlines.iter().filter(|outline| !known.contains(&outline.id));
        self.store.add_stubs(new)?;
        let mut names = self.names();
        names.insert(name.to_owned(), outlines.iter().map(|outline| outline.id).collect());
        Ok(self.write_names(&names)?)
    }

    /// Forgets names of files, not the packs that they told of.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be written.
    pub fn forget(&self, gone: &[String]) -> Result<(), StoreError> {
        let mut names = self.names();
        let before = names.len();
        gone.iter().for_each(|name| drop(names.remove(name)));
        match names.len() == before {
            true => Ok(()),
            false => Ok(self.write_names(&names)?),
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A line of [`NAMES`]; none when it is not whole.
fn parse(line: &str) -> Option<(String, BTreeSet<PackId>)> {
    let mut words = line.split(' ');
    let name = words.next()?.to_owned();
    let packs: BTreeSet<PackId> = words.map(|id| id.parse().ok()).collect::<Option<_>>()?;
    (!packs.is_empty()).then_some((name, packs))
}
