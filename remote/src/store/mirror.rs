//! What is known of a store elsewhere: its packs without their frames.
//!
//! A store of stubs in a cache folder. Losing it costs reading the index
//! again, nothing else; so nothing here is synced.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use snap_core::{
    base::{id::ObjectId, io::PathError, observe::Silent},
    disk::{Disk, scratch::unique_name},
    format::outline::Outline,
    store::{Store, StoreError},
};

/// File with the names of outlines whose packs are all there, a line each.
const NAMES: &str = "outlines";

/// File that is there once the store was.
const SEEN: &str = "seen";

/// File that is there while packs are sent.
const SENDING: &str = "sending";

/// Packs elsewhere.
#[derive(Debug)]
pub struct Mirror {
    dir: PathBuf,
    store: Store,
    names: Mutex<HashSet<String>>,
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
        let names = text.lines().map(str::to_owned).collect();
        Ok(Self { dir: dir.to_owned(), store, names: Mutex::new(names) })
    }

    /// Its packs and objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Its packs and objects, for good.
    pub fn into_store(self) -> Store {
        self.store
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
        self.names.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// Takes in outlines, and remembers the name of their file.
    ///
    /// # Errors
    /// [`StoreError`] when one is damaged or the folder cannot be written.
    pub fn add(&self, name: &str, outlines: &[Outline]) -> Result<(), StoreError> {
        let known: HashSet<_> = self.store.packs().into_iter().collect();
        let new = outlines.iter().filter(|outline| !known.contains(&outline.id));
        self.store.add_stubs(new)?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_owned());
        let mut lines: Vec<&str> = names.iter().map(String::as_str).collect();
        lines.sort_unstable();
        self.write(NAMES, &lines.join("\n"))?;
        Ok(())
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
