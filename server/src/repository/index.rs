//! The index that clients read: a set of outline files, named by their hash, that together list all
//! packs of the store. The files lie in `cache/outlines/` of the store. The server writes lost
//! files again.
//!
//! Clients write most files, for the packs that they push. The server writes files for packs that
//! no file lists yet: packs of local commits, and merged packs. It merges small files when there
//! are too many. Files of two clients never list the same pack, so the index is as large as the
//! outlines of all packs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use snap_core::{
    base::{id::PackId, io::PathError, kind::ErrorKind, limits},
    disk::{Disk, regular::read_at_most, symlink_guard::check_no_links_between},
    format::{
        outline::{self, PackOutline},
        ref_text::FIRST_EPOCH,
    },
    store::{Store, StoreError},
};
use snap_remote::wire::types::Listed;

use crate::{
    causes::causes,
    problem::{Code, HttpProblem},
};

/// The folder in `cache/` of a store.
const FOLDER: &str = "outlines";

/// Length at which the server begins the next file, in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// Length below which a file is small, in bytes.
const SMALL_BYTES: u64 = 1 << 20;

/// Number of small files above which the server merges them.
const SMALL_FILES: usize = 16;

/// A file: its length in bytes and the packs that it lists.
type IndexFile = (u64, BTreeSet<PackId>);

#[derive(Debug)]
pub(super) struct Index {
    dir: PathBuf,
    files: Mutex<BTreeMap<String, IndexFile>>,
    /// Packs that cannot be read, each of which was logged once.
    unreadable: Mutex<BTreeSet<PackId>>,
}

/// Result of [`Index::write`].
#[derive(Debug, Default)]
struct Written {
    files: BTreeSet<String>,
    packs: BTreeSet<PackId>,
    /// True if a pack was gone because another process had merged it.
    is_short: bool,
}

impl Index {
    /// Reads the files, and removes damaged ones.
    ///
    /// # Errors
    /// [`PathError`] if the folder is a link, through which files elsewhere would be removed.
    pub(super) fn open(store: &Store) -> Result<Self, PathError> {
        let dir = store.dir().join("cache").join(FOLDER);
        check_no_links_between(store.dir(), &dir)?;
        let disk = Disk::cache(&dir);
        let mut files = BTreeMap::new();
        for entry in fs_err::read_dir(&dir).into_iter().flatten().flatten() {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let Ok(bytes) = read(&entry.path()) else { continue };
            // A power cut may leave half a file, and an undecodable file has no use.
            let is_whole = blake3::hash(&bytes).to_hex().as_str() == name;
            match outline::decode(&bytes) {
                Ok(file) if is_whole => {
                    files.insert(name, (bytes.len() as u64, packs_of(&file.outlines)));
                }
                _ => drop(disk.remove(&entry.path())),
            }
        }
        Ok(Self { dir, files: Mutex::new(files), unreadable: Mutex::default() })
    }

    /// Returns the names and lengths of the files that list all available packs and no
    /// others. Unreadable packs are left out, unless a file listed them before.
    pub(super) fn current(
        &self,
        store: &Store,
        has: &dyn Fn(&PackId) -> bool,
    ) -> Result<Vec<Listed>, HttpProblem> {
        for _ in 0..limits::MERGE_RETRIES {
            if let Some(listed) = self.listed(store, has)? {
                return Ok(listed);
            }
            store.refresh()?;
        }
        Err(HttpProblem::new(Code::Unavailable, "the packs of the store keep changing"))
    }

    /// Makes one attempt at [`current`](Self::current). Returns `None` if a pack was
    /// merged away meanwhile.
    fn listed(
        &self,
        store: &Store,
        has: &dyn Fn(&PackId) -> bool,
    ) -> Result<Option<Vec<Listed>>, HttpProblem> {
        let mut files = self.files.lock();
        let there: BTreeSet<PackId> = store.packs().into_iter().filter(|id| has(id)).collect();
        // A file that lists a pack which is gone would mislead clients.
        let gone: Vec<String> = files
            .iter()
            .filter(|(_, (_, packs))| !packs.is_subset(&there))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.remove(&mut files, &name);
        }
        let listed: BTreeSet<PackId> =
            files.values().flat_map(|(_, packs)| packs).copied().collect();
        let mut new: BTreeSet<PackId> = there.difference(&listed).copied().collect();
        let small: Vec<String> = {
            let unreadable = self.unreadable.lock();
            let is_small =
                |(bytes, packs): &IndexFile| *bytes < SMALL_BYTES && packs.is_disjoint(&unreadable);
            let small = files.iter().filter(|(_, known)| is_small(known));
            small.map(|(name, _)| name.clone()).collect()
        };
        let merges = small.len() > SMALL_FILES;
        if merges {
            new.extend(small.iter().flat_map(|name| &files[name].1));
        }
        let written = self.write(store, &mut files, &new)?;
        if merges {
            // A file stays if it alone lists some pack, or if it has just been written.
            let is_in_others = |name: &&String| {
                !written.files.contains(*name) && files[*name].1.is_subset(&written.packs)
            };
            let small: Vec<String> = small.iter().filter(is_in_others).cloned().collect();
            small.iter().for_each(|name| self.remove(&mut files, name));
        }
        let listed = |(name, (bytes, _)): (&String, &IndexFile)| Listed {
            name: name.clone(),
            bytes: *bytes,
        };
        let all = || files.iter().map(listed).collect();
        Ok((!written.is_short).then(all))
    }

    fn write(
        &self,
        store: &Store,
        files: &mut BTreeMap<String, IndexFile>,
        packs: &BTreeSet<PackId>,
    ) -> Result<Written, HttpProblem> {
        let (mut written, mut some, mut bytes) = (Written::default(), Vec::new(), 0);
        for id in packs {
            let outline = match store.outline(id) {
                Ok(outline) => outline,
                Err(StoreError::Gone { .. }) => {
                    written.is_short = true;
                    continue;
                }
                // Not the pack's fault, so a later attempt may succeed.
                Err(error) if is_transient(&error) => return Err(error.into()),
                Err(error) => {
                    self.log_unreadable(id, &error);
                    continue;
                }
            };
            self.unreadable.lock().remove(id);
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

    /// Logs an unreadable pack once. Clients can still read the other packs.
    fn log_unreadable(&self, id: &PackId, error: &StoreError) {
        if self.unreadable.lock().insert(*id) {
            let error = causes(error);
            tracing::error!(%id, %error, "cannot read a pack: it is left out of the index");
        }
    }

    fn add(
        &self,
        files: &mut BTreeMap<String, IndexFile>,
        outlines: &[PackOutline],
    ) -> Result<String, HttpProblem> {
        let bytes = outline::encode(FIRST_EPOCH, outlines);
        let name = blake3::hash(&bytes).to_hex().to_string();
        self.keep(files, &name, &bytes, outlines)?;
        Ok(name)
    }

    fn keep(
        &self,
        files: &mut BTreeMap<String, IndexFile>,
        name: &str,
        bytes: &[u8],
        outlines: &[PackOutline],
    ) -> Result<(), HttpProblem> {
        let disk = Disk::cache(&self.dir);
        disk.create_folders(&self.dir)?;
        disk.write_whole(&self.dir, &self.dir.join(name), bytes)?;
        files.insert(name.to_owned(), (bytes.len() as u64, packs_of(outlines)));
        Ok(())
    }

    fn remove(&self, files: &mut BTreeMap<String, IndexFile>, name: &str) {
        files.remove(name);
        // If the file cannot be removed, `open` finds it again at the next start.
        let _ = Disk::cache(&self.dir).remove(&self.dir.join(name));
    }

    /// Keeps a file that a client wrote, if its outlines are those of packs of this store and no
    /// other file lists any of these packs. Otherwise a client could have the same packs listed in
    /// any number of files. The server writes its own file for the packs of a file that it does not
    /// keep.
    pub(super) fn adopt(
        &self,
        store: &Store,
        name: &str,
        bytes: &[u8],
        outlines: &[PackOutline],
    ) -> Result<(), HttpProblem> {
        let mut files = self.files.lock();
        let packs = packs_of(outlines);
        let is_listed = |(_, packs_of_file): &IndexFile| !packs_of_file.is_disjoint(&packs);
        if packs.is_empty() || files.values().any(is_listed) {
            return Ok(());
        }
        for outline in outlines {
            if store.outline(&outline.id).ok().as_ref() != Some(outline) {
                return Ok(());
            }
        }
        self.keep(&mut files, name, bytes, outlines)
    }

    /// Reads a file. A damaged file is removed, and the next listing names a new file
    /// for its packs.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, HttpProblem> {
        let missing = || HttpProblem::not_found(format_args!("file {name} of the index"));
        let mut files = self.files.lock();
        if !files.contains_key(name) {
            return Err(missing());
        }
        let bytes = read(&self.dir.join(name)).ok();
        let is_right = |bytes: &Vec<u8>| blake3::hash(bytes).to_hex().as_str() == name;
        let bytes = bytes.filter(is_right);
        if bytes.is_none() {
            tracing::warn!(name, "an index file is damaged and is written again");
            self.remove(&mut files, name);
        }
        bytes.ok_or_else(missing)
    }
}

/// Reads a whole file.
fn read(path: &Path) -> Result<Vec<u8>, PathError> {
    read_at_most(path, limits::REMOTE_INDEX_BYTES).map_err(PathError::when("read", path))
}

fn packs_of(outlines: &[PackOutline]) -> BTreeSet<PackId> {
    outlines.iter().map(|outline| outline.id).collect()
}

/// Returns true if a later attempt may succeed. A failure of the disk (`EIO`) is
/// permanent.
fn is_transient(error: &StoreError) -> bool {
    let is_lost = |error: &PathError| {
        error.source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
    };
    match error {
        StoreError::Io(error) if is_lost(error) => false,
        error => !matches!(
            error.kind(),
            ErrorKind::Damaged
                | ErrorKind::Unsupported
                | ErrorKind::Invalid
                | ErrorKind::Refused
                | ErrorKind::Denied
        ),
    }
}

#[cfg(test)]
mod tests {
    use snap_core::{
        base::observe::Silent,
        ops::commit::{self, CommitOptions, CommitSource},
        repo::{Config, Repo},
    };

    use super::*;

    #[test]
    fn a_damaged_index_file_is_rebuilt() {
        let folder = tempfile::tempdir().unwrap();
        let repo = repo(folder.path(), 2);
        let store = repo.store();
        let index = Index::open(store).unwrap();
        for damage in ["", "other bytes"] {
            let [Listed { name, .. }] = &index.current(store, &|_| true).unwrap()[..] else {
                panic!()
            };
            let whole = index.read(name).unwrap();
            fs_err::write(index.dir.join(name), damage).unwrap();
            assert_eq!(index.read(name).unwrap_err().code, Code::NotFound);
            let [Listed { name: again, .. }] = &index.current(store, &|_| true).unwrap()[..] else {
                panic!()
            };
            assert_eq!(index.read(again).unwrap(), whole);
        }
    }

    /// Creates a store with this number of packs.
    fn repo(folder: &std::path::Path, packs: usize) -> Repo {
        let (store, files) = (folder.join("store"), folder.join("files"));
        Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
        let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
        fs_err::create_dir(&files).unwrap();
        for number in 0..packs {
            fs_err::write(files.join("a"), number.to_string()).unwrap();
            let source = CommitSource::Folder(files.clone());
            let options = CommitOptions {
                author: "ada".into(),
                host: "a".into(),
                ..CommitOptions::default()
            };
            commit::run(&repo, source, &options, &Silent).unwrap();
        }
        assert_eq!(repo.store().packs().len(), packs);
        repo
    }

    #[test]
    fn packs_merged_by_another_process_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let repo = repo(folder.path(), 3);
        let store = repo.store();
        let index = Index::open(store).unwrap();
        let packs = store.packs();
        // Another process has merged the pack, and this store has not been refreshed
        // yet.
        fs_err::remove_file(store.pack_path(&packs[1])).unwrap();
        assert_eq!(index.current(store, &|_| true).unwrap().len(), 1);
        let told: BTreeSet<PackId> =
            index.files.lock().values().flat_map(|(_, packs)| packs).copied().collect();
        assert_eq!(told, [packs[0], packs[2]].into());
    }

    #[test]
    fn an_index_file_stays_until_others_list_all_its_packs() {
        let folder = tempfile::tempdir().unwrap();
        let repo = repo(folder.path(), 2);
        let store = repo.store();
        let index = Index::open(store).unwrap();
        let [good, bad] = store.packs()[..] else { panic!("two packs") };
        for id in [good, bad] {
            let outline = store.outline(&id).unwrap();
            let bytes = outline::encode(FIRST_EPOCH, std::slice::from_ref(&outline));
            let name = blake3::hash(&bytes).to_hex();
            index.adopt(store, &name, &bytes, &[outline]).unwrap();
        }
        // Enough small files for a merge. They list no packs.
        for number in 0..SMALL_FILES {
            index.files.lock().insert(format!("{number}"), (16, BTreeSet::new()));
        }
        fs_err::remove_file(store.pack_path(&bad)).unwrap();
        fs_err::write(store.pack_path(&bad), "none").unwrap();
        let listed = index.current(store, &|_| true).unwrap();
        let told: BTreeSet<PackId> =
            index.files.lock().values().flat_map(|(_, packs)| packs).copied().collect();
        assert_eq!((listed.len(), told), (2, [good, bad].into()));
        for Listed { name, .. } in listed {
            index.read(&name).unwrap();
        }
    }
}
