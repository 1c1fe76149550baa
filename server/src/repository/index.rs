//! The index as clients read it: files of outlines, named by their hash, that
//! together tell of all packs of the store. Kept in its `cache/`, and made again
//! when they are gone.
//!
//! Most files were written by clients, with what they sent. Packs of which none
//! tells (commits that were made here, packs that were merged) get one from the
//! server; where small files are many they become one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use snap_core::{
    base::id::PackId,
    disk::{Disk, scratch::unique_name},
    format::outline::{self, Outline},
    store::Store,
};

use super::{Listed, staged::read};
use crate::problem::Problem;

/// Folder in `cache/` of a store.
const FOLDER: &str = "outlines";

/// About so many bytes are in a file.
const FILE_BYTES: u64 = 4 << 20;

/// Files below this are small.
const SMALL_BYTES: u64 = 1 << 20;

/// More small files than this become one.
const SMALL_FILES: usize = 16;

/// A file: its length and the packs that it tells of.
type Known = (u64, BTreeSet<PackId>);

#[derive(Debug)]
pub(super) struct Index {
    dir: PathBuf,
    files: Mutex<BTreeMap<String, Known>>,
}

impl Index {
    pub(super) fn open(store: &Store) -> Self {
        let dir = store.dir().join("cache").join(FOLDER);
        let mut files = BTreeMap::new();
        for entry in fs_err::read_dir(&dir).into_iter().flatten().flatten() {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let Ok(bytes) = fs_err::read(entry.path()) else { continue };
            // A half of one is left over from a power cut.
            if blake3::hash(&bytes).to_hex().as_str() != name {
                let _ = fs_err::remove_file(entry.path());
                continue;
            }
            if let Ok(outlines) = outline::decode(&bytes) {
                files.insert(name, (bytes.len() as u64, packs_of(&outlines)));
            }
        }
        Self { dir, files: Mutex::new(files) }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names and lengths of files that tell of all packs that can be had here,
    /// and of no other.
    pub(super) fn current(
        &self,
        store: &Store,
        has: &dyn Fn(&PackId) -> bool,
    ) -> Result<Vec<Listed>, Problem> {
        let mut files = self.files();
        let there: BTreeSet<PackId> = store.packs().into_iter().filter(|id| has(id)).collect();
        let gone: Vec<String> = files
            .iter()
            .filter(|(_, (_, packs))| !packs.is_subset(&there))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.remove(&mut files, &name);
        }
        let told: BTreeSet<PackId> = files.values().flat_map(|(_, packs)| packs).copied().collect();
        let mut new: BTreeSet<PackId> = there.difference(&told).copied().collect();
        let small: Vec<String> = files
            .iter()
            .filter(|(_, (bytes, _))| *bytes < SMALL_BYTES)
            .map(|(name, _)| name.clone())
            .collect();
        let merges = small.len() > SMALL_FILES;
        if merges {
            new.extend(small.iter().flat_map(|name| &files[name].1));
        }
        self.write(store, &mut files, &new)?;
        if merges {
            small.iter().for_each(|name| self.remove(&mut files, name));
        }
        Ok(files.iter().map(|(name, (bytes, _))| (name.clone(), *bytes)).collect())
    }

    fn write(
        &self,
        store: &Store,
        files: &mut BTreeMap<String, Known>,
        packs: &BTreeSet<PackId>,
    ) -> Result<(), Problem> {
        let (mut some, mut bytes) = (Vec::new(), 0);
        for id in packs {
            let outline = store.outline(id)?;
            bytes += outline.file_share();
            some.push(outline);
            if bytes >= FILE_BYTES {
                self.add(files, &std::mem::take(&mut some))?;
                bytes = 0;
            }
        }
        if some.is_empty() { Ok(()) } else { self.add(files, &some) }
    }

    fn add(
        &self,
        files: &mut BTreeMap<String, Known>,
        outlines: &[Outline],
    ) -> Result<(), Problem> {
        let bytes = outline::encode(outlines);
        self.keep(files, &blake3::hash(&bytes).to_hex(), &bytes, outlines)
    }

    fn keep(
        &self,
        files: &mut BTreeMap<String, Known>,
        name: &str,
        bytes: &[u8],
        outlines: &[Outline],
    ) -> Result<(), Problem> {
        let disk = Disk::scratch();
        disk.create_folders(&self.dir)?;
        disk.write_whole(&self.dir.join(unique_name("new")), &self.dir.join(name), bytes)?;
        files.insert(name.to_owned(), (bytes.len() as u64, packs_of(outlines)));
        Ok(())
    }

    fn remove(&self, files: &mut BTreeMap<String, Known>, name: &str) {
        files.remove(name);
        // What cannot be removed is told of when the server starts again.
        let _ = fs_err::remove_file(self.dir.join(name));
    }

    /// Keeps a file that a client wrote, if it tells of nothing that is not
    /// there, and of that what is true.
    pub(super) fn adopt(
        &self,
        store: &Store,
        name: &str,
        bytes: &[u8],
        outlines: &[Outline],
    ) -> Result<(), Problem> {
        for outline in outlines {
            if store.outline(&outline.id).ok().as_ref() != Some(outline) {
                return Ok(());
            }
        }
        self.keep(&mut self.files(), name, bytes, outlines)
    }

    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, Problem> {
        let missing = || Problem::not_found(format_args!("file {name} of the index"));
        if !self.files().contains_key(name) {
            return Err(missing());
        }
        read(&self.dir.join(name)).map_err(|_| missing())
    }
}

fn packs_of(outlines: &[Outline]) -> BTreeSet<PackId> {
    outlines.iter().map(|outline| outline.id).collect()
}
