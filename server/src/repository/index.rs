//! The index as clients read it: files of outlines, named by their hash, that
//! together tell of all packs of the store. Kept in its `cache/`, and made again
//! when they are gone.
//!
//! Most files were written by clients, with what they sent. Packs of which none
//! tells (commits that were made here, packs that were merged) get one from the
//! server; where small files are many they become one. No two files that clients
//! wrote tell of the same pack, so all of them together are as long as what the
//! packs say of themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use snap_core::{
    base::{id::PackId, io::PathError, kind::ErrorKind},
    disk::{Disk, scratch::unique_name},
    format::outline::{self, Outline},
    store::{Store, StoreError},
};

use super::Listed;
use crate::problem::{Code, Problem};

use crate::causes::causes;

/// Folder in `cache/` of a store.
const FOLDER: &str = "outlines";

/// About so many bytes are in a file.
const FILE_BYTES: u64 = 4 << 20;

/// Files below this are small.
const SMALL_BYTES: u64 = 1 << 20;

/// More small files than this become one.
const SMALL_FILES: usize = 16;

/// How often it is looked again because packs were merged meanwhile.
const RETRIES: usize = 16;

/// A file: its length and the packs that it tells of.
type Known = (u64, BTreeSet<PackId>);

#[derive(Debug)]
pub(super) struct Index {
    dir: PathBuf,
    files: Mutex<BTreeMap<String, Known>>,
    /// Packs that cannot be read, each of which was told in the log.
    unreadable: Mutex<BTreeSet<PackId>>,
}

/// What was written.
#[derive(Debug, Default)]
struct Written {
    files: BTreeSet<String>,
    packs: BTreeSet<PackId>,
    /// Whether a pack was not there any more: it was merged into another one.
    is_short: bool,
}

impl Index {
    pub(super) fn open(store: &Store) -> Self {
        let dir = store.dir().join("cache").join(FOLDER);
        let mut files = BTreeMap::new();
        for entry in fs_err::read_dir(&dir).into_iter().flatten().flatten() {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let Ok(bytes) = fs_err::read(entry.path()) else { continue };
            // A half of one is left over from a power cut; and what nobody reads
            // is of no use.
            let is_whole = blake3::hash(&bytes).to_hex().as_str() == name;
            match outline::decode(&bytes) {
                Ok(outlines) if is_whole => {
                    files.insert(name, (bytes.len() as u64, packs_of(&outlines)));
                }
                _ => drop(fs_err::remove_file(entry.path())),
            }
        }
        Self { dir, files: Mutex::new(files), unreadable: Mutex::default() }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable(&self) -> MutexGuard<'_, BTreeSet<PackId>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names and lengths of files that tell of all packs that can be had here,
    /// and of no other. Those that cannot be read are left out, unless a file told
    /// of them before.
    pub(super) fn current(
        &self,
        store: &Store,
        has: &dyn Fn(&PackId) -> bool,
    ) -> Result<Vec<Listed>, Problem> {
        for _ in 0..RETRIES {
            if let Some(listed) = self.listed(store, has)? {
                return Ok(listed);
            }
            store.refresh()?;
        }
        Err(Problem::new(Code::Unavailable, "packs come and go too fast"))
    }

    /// The same, once; `None` when a pack was merged away since they were listed.
    fn listed(
        &self,
        store: &Store,
        has: &dyn Fn(&PackId) -> bool,
    ) -> Result<Option<Vec<Listed>>, Problem> {
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
        let small: Vec<String> = {
            let unreadable = self.unreadable();
            let is_small =
                |(bytes, packs): &Known| *bytes < SMALL_BYTES && packs.is_disjoint(&unreadable);
            let small = files.iter().filter(|(_, known)| is_small(known));
            small.map(|(name, _)| name.clone()).collect()
        };
        let merges = small.len() > SMALL_FILES;
        if merges {
            new.extend(small.iter().flat_map(|name| &files[name].1));
        }
        let written = self.write(store, &mut files, &new)?;
        if merges {
            // One that alone tells of something stays, and one that was written anew.
            let is_in_others = |name: &&String| {
                !written.files.contains(*name) && files[*name].1.is_subset(&written.packs)
            };
            let small: Vec<String> = small.iter().filter(is_in_others).cloned().collect();
            small.iter().for_each(|name| self.remove(&mut files, name));
        }
        let all = || files.iter().map(|(name, (bytes, _))| (name.clone(), *bytes)).collect();
        Ok((!written.is_short).then(all))
    }

    fn write(
        &self,
        store: &Store,
        files: &mut BTreeMap<String, Known>,
        packs: &BTreeSet<PackId>,
    ) -> Result<Written, Problem> {
        let (mut written, mut some, mut bytes) = (Written::default(), Vec::new(), 0);
        for id in packs {
            let outline = match store.outline(id) {
                Ok(outline) => outline,
                Err(StoreError::Gone { .. }) => {
                    written.is_short = true;
                    continue;
                }
                // Not the fault of the pack.
                Err(error) if may_pass(&error) => return Err(error.into()),
                Err(error) => {
                    self.leave_out(id, &error);
                    continue;
                }
            };
            self.unreadable().remove(id);
            written.packs.insert(*id);
            bytes += outline.file_share();
            some.push(outline);
            if bytes >= FILE_BYTES {
                written.files.insert(self.add(files, &std::mem::take(&mut some))?);
                bytes = 0;
            }
        }
        if !some.is_empty() {
            written.files.insert(self.add(files, &some)?);
        }
        Ok(written)
    }

    /// A pack cannot be read: one of them must not keep anybody from the others.
    fn leave_out(&self, id: &PackId, error: &StoreError) {
        if self.unreadable().insert(*id) {
            let error = causes(error);
            tracing::error!(%id, %error, "a pack cannot be read: clients are not told of it");
        }
    }

    fn add(
        &self,
        files: &mut BTreeMap<String, Known>,
        outlines: &[Outline],
    ) -> Result<String, Problem> {
        let bytes = outline::encode(outlines);
        let name = blake3::hash(&bytes).to_hex().to_string();
        self.keep(files, &name, &bytes, outlines)?;
        Ok(name)
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
    /// there, of that what is true, and of no pack that another file tells of:
    /// else anybody could have the same told in any number of ways. What it tells
    /// of is then told by the server.
    pub(super) fn adopt(
        &self,
        store: &Store,
        name: &str,
        bytes: &[u8],
        outlines: &[Outline],
    ) -> Result<(), Problem> {
        let mut files = self.files();
        let packs = packs_of(outlines);
        let is_told = |(_, told): &Known| !told.is_disjoint(&packs);
        if packs.is_empty() || files.values().any(is_told) {
            return Ok(());
        }
        for outline in outlines {
            if store.outline(&outline.id).ok().as_ref() != Some(outline) {
                return Ok(());
            }
        }
        self.keep(&mut files, name, bytes, outlines)
    }

    /// A file. One that is not what its name says goes: its packs are told of by
    /// another one, which is in the next list.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, Problem> {
        let missing = || Problem::not_found(format_args!("file {name} of the index"));
        let mut files = self.files();
        if !files.contains_key(name) {
            return Err(missing());
        }
        let bytes = read(&self.dir.join(name)).ok();
        let is_right = |bytes: &Vec<u8>| blake3::hash(bytes).to_hex().as_str() == name;
        let bytes = bytes.filter(is_right);
        if bytes.is_none() {
            tracing::warn!(name, "a file of the index is damaged: it is made anew");
            self.remove(&mut files, name);
        }
        bytes.ok_or_else(missing)
    }
}

/// Reads a file of which the caller knows that it is short.
fn read(path: &Path) -> Result<Vec<u8>, PathError> {
    fs_err::read(path).map_err(PathError::when("read", path))
}

fn packs_of(outlines: &[Outline]) -> BTreeSet<PackId> {
    outlines.iter().map(|outline| outline.id).collect()
}

/// Whether it may be as well read the next time. What a disk cannot read now
/// (`EIO`) it cannot read then.
fn may_pass(error: &StoreError) -> bool {
    let is_lost = |error: &PathError| {
        error.source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
    };
    match error {
        StoreError::Io(error) if is_lost(error) => false,
        error => !matches!(
            error.kind(),
            ErrorKind::Damaged | ErrorKind::Unsupported | ErrorKind::Invalid | ErrorKind::Denied
        ),
    }
}

#[cfg(test)]
mod tests {
    use snap_core::{
        base::observe::Silent,
        ops::commit::{self, Options, Source},
        repo::{Config, Repo},
    };

    use super::*;

    #[test]
    fn a_file_that_was_damaged_is_not_told_and_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let repo = repo(folder.path(), 2);
        let store = repo.store();
        let index = Index::open(store);
        for damage in ["", "other bytes"] {
            let [(name, _)] = &index.current(store, &|_| true).unwrap()[..] else { panic!() };
            let whole = index.read(name).unwrap();
            fs_err::write(index.dir.join(name), damage).unwrap();
            assert_eq!(index.read(name).unwrap_err().code, Code::NotFound);
            let [(again, _)] = &index.current(store, &|_| true).unwrap()[..] else { panic!() };
            assert_eq!(index.read(again).unwrap(), whole);
        }
    }

    /// A store with so many packs.
    fn repo(folder: &std::path::Path, packs: usize) -> Repo {
        let (store, files) = (folder.join("store"), folder.join("files"));
        Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
        let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
        fs_err::create_dir(&files).unwrap();
        for number in 0..packs {
            fs_err::write(files.join("a"), number.to_string()).unwrap();
            let source = Source::Folder(files.clone());
            let options = Options { author: "ada".into(), host: "a".into(), ..Options::default() };
            commit::run(&repo, source, &options, &Silent).unwrap();
        }
        assert_eq!(repo.store().packs().len(), packs);
        repo
    }

    #[test]
    fn packs_that_were_merged_away_just_now_are_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let repo = repo(folder.path(), 3);
        let store = repo.store();
        let index = Index::open(store);
        let packs = store.packs();
        // As whoever merges leaves it, before this store has looked again.
        fs_err::remove_file(store.pack_path(&packs[1])).unwrap();
        assert_eq!(index.current(store, &|_| true).unwrap().len(), 1);
        let told: BTreeSet<PackId> =
            index.files().values().flat_map(|(_, packs)| packs).copied().collect();
        assert_eq!(told, [packs[0], packs[2]].into());
    }

    #[test]
    fn a_file_that_is_merged_goes_only_where_others_tell_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let repo = repo(folder.path(), 2);
        let store = repo.store();
        let index = Index::open(store);
        let [good, bad] = store.packs()[..] else { panic!("two packs") };
        for id in [good, bad] {
            let outline = store.outline(&id).unwrap();
            let bytes = outline::encode(std::slice::from_ref(&outline));
            let name = blake3::hash(&bytes).to_hex();
            index.adopt(store, &name, &bytes, &[outline]).unwrap();
        }
        // More files than there are packs to be in them.
        for number in 0..SMALL_FILES {
            index.files().insert(format!("{number}"), (16, BTreeSet::new()));
        }
        fs_err::remove_file(store.pack_path(&bad)).unwrap();
        fs_err::write(store.pack_path(&bad), "none").unwrap();
        let listed = index.current(store, &|_| true).unwrap();
        let told: BTreeSet<PackId> =
            index.files().values().flat_map(|(_, packs)| packs).copied().collect();
        assert_eq!((listed.len(), told), (2, [good, bad].into()));
        for (name, _) in listed {
            index.read(&name).unwrap();
        }
    }
}
