//! What was sent and does not count yet: packs that were checked, each on its
//! own, and parts of groups of outlines. Nothing here is durable; a client that
//! finds it gone sends it again. What nobody wants for a day is removed.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use snap_core::{
    base::{id::PackId, io::PathError, kind::ErrorKind, observe::Silent},
    disk::{Disk, scratch::unique_name},
    ops::accept,
    store::Store,
};

use super::{Listed, PART, Sent};
use crate::problem::{Code, Problem};

/// Folder in `tmp/` of a store.
const FOLDER: &str = "staged";

/// File in it with the names of packs that come to count together.
const JOURNAL: &str = "publishing";

/// How long something waits to be wanted.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// What waits to count.
#[derive(Debug)]
pub(super) struct Staged {
    dir: PathBuf,
    disk: Disk,
    publishing: Mutex<()>,
    /// Packs that this process has checked. Others were left by one before, and
    /// what is left of them after a power cut is not sure.
    checked: Mutex<HashSet<PackId>>,
}

impl Staged {
    pub(super) fn new(store: &Store) -> Self {
        let (dir, disk) = (store.dir().join("tmp").join(FOLDER), store.disk().clone());
        let staged = Self { dir, disk, publishing: Mutex::new(()), checked: Mutex::default() };
        staged.sweep();
        staged
    }

    fn checked(&self) -> MutexGuard<'_, HashSet<PackId>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps others from making packs count meanwhile.
    pub(super) fn publishing(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packs that wait.
    pub(super) fn list(&self) -> Result<Vec<Listed>, Problem> {
        let Ok(entries) = fs_err::read_dir(&self.dir) else { return Ok(Vec::new()) };
        let named = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().to_str()?.to_owned();
            self.pack(&name.parse().ok()?)?;
            Some((name, entry.metadata().ok()?.len()))
        });
        Ok(named.collect())
    }

    /// Bytes of all that waits; what is only coming is not counted.
    pub(super) fn bytes(&self) -> u64 {
        let entries = fs_err::read_dir(&self.dir).into_iter().flatten().flatten();
        let waits = entries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.parse::<PackId>().is_ok() || name.ends_with(PART)
        });
        waits.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
    }

    /// A pack that waits, and is what its name says.
    pub(super) fn pack(&self, id: &PackId) -> Option<PathBuf> {
        let path = self.dir.join(id.to_string());
        if !path.is_file() {
            return None;
        }
        let is_checked = self.checked().contains(id);
        if !is_checked && self.look_again(id, &path).is_err() {
            let _ = fs_err::remove_file(&path);
            return None;
        }
        Some(path)
    }

    /// Checks a pack that another process has left.
    fn look_again(&self, id: &PackId, path: &Path) -> Result<(), Problem> {
        let mut hasher = blake3::Hasher::new();
        let file = fs_err::File::open(path).map_err(PathError::when("open", path))?;
        hasher.update_reader(file).map_err(PathError::when("read", path))?;
        self.check(*id, hasher.finalize(), path)
    }

    /// Checks a file that hashes to that: whether it is the pack of that name,
    /// and all in it is what it says.
    fn check(&self, id: PackId, hash: blake3::Hash, path: &Path) -> Result<(), Problem> {
        if *hash.as_bytes() != *id.as_bytes() {
            return Err(Problem::new(Code::Rejected, "the bytes do not hash to the name"));
        }
        accept::check(path, id, &Silent).map_err(|error| match error.kind() {
            ErrorKind::Damaged | ErrorKind::Unsupported => {
                Problem::new(Code::Rejected, error.to_string())
            }
            _ => error.into(),
        })?;
        self.checked().insert(id);
        Ok(())
    }

    /// Notes, durably, that these packs come to count together. Whoever serves
    /// this store next goes on with it, so that no client sees a part of what
    /// was sent and takes it for the whole.
    pub(super) fn begin(&self, ids: &BTreeSet<PackId>) -> Result<(), Problem> {
        for id in ids {
            self.disk.sync_file(&self.dir.join(id.to_string()))?;
        }
        self.disk.sync_folder(&self.dir)?;
        self.note(&self.begun().union(ids).copied().collect())
    }

    fn note(&self, ids: &BTreeSet<PackId>) -> Result<(), Problem> {
        let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let temporary = self.dir.join(unique_name(JOURNAL));
        Ok(self.disk.write_whole(&temporary, &self.dir.join(JOURNAL), text.as_bytes())?)
    }

    /// Packs that came to count together, and not all may.
    pub(super) fn begun(&self) -> BTreeSet<PackId> {
        let text = fs_err::read_to_string(self.dir.join(JOURNAL)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// All of them count now, or none does. When that cannot be noted they are
    /// looked at once more than they need be.
    pub(super) fn end(&self, ids: &BTreeSet<PackId>) {
        let rest: BTreeSet<PackId> = self.begun().difference(ids).copied().collect();
        let _ = match rest.is_empty() {
            true => fs_err::remove_file(self.dir.join(JOURNAL)).map_err(drop),
            false => self.note(&rest).map_err(drop),
        };
    }

    /// Where it waits.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What changes it.
    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// It waits no more.
    pub(super) fn forget(&self, id: &PackId) {
        self.checked().remove(id);
        let _ = fs_err::remove_file(self.dir.join(id.to_string()));
    }

    pub(super) fn receive(
        &self,
        id: PackId,
        pieces: impl Iterator<Item = Result<Bytes, Problem>>,
    ) -> Result<Sent, Problem> {
        if self.pack(&id).is_some() {
            return Ok(Sent::Known);
        }
        self.disk.create_folders(&self.dir)?;
        self.sweep();
        let path = self.dir.join(unique_name("pack"));
        // Goes unless it is kept.
        let mut file = self.disk.create(&path)?;
        let mut hasher = blake3::Hasher::new();
        for piece in pieces {
            let piece = piece?;
            hasher.update(&piece);
            file.write(&piece)?;
        }
        self.keep(id, hasher.finalize(), &path)?;
        file.keep();
        Ok(Sent::New)
    }

    /// Has a file wait that has come whole and hashes to that, if it is the pack
    /// of that name and all in it is what it says.
    ///
    /// # Errors
    /// [`Code::Rejected`] when it is not; the file is then where it was.
    pub(super) fn keep(&self, id: PackId, hash: blake3::Hash, path: &Path) -> Result<(), Problem> {
        self.check(id, hash, path)?;
        Ok(self.disk.replace(path, &self.dir.join(id.to_string()))?)
    }

    /// Keeps a part of a group until its group comes.
    pub(super) fn keep_part(&self, name: &str, bytes: &[u8]) -> Result<Sent, Problem> {
        self.disk.create_folders(&self.dir)?;
        self.sweep();
        let temporary = self.dir.join(unique_name("part"));
        self.disk.write_whole(&temporary, &self.dir.join(name), bytes)?;
        Ok(Sent::New)
    }

    pub(super) fn part(&self, name: &str) -> Result<Vec<u8>, Problem> {
        let missing = || Problem::new(Code::Rejected, format!("{name} was not sent"));
        fs_err::read(self.dir.join(name)).map_err(|_| missing())
    }

    /// Removes what has waited for too long. Failures do not matter: the next
    /// one tries again.
    pub(super) fn sweep(&self) {
        let Ok(entries) = fs_err::read_dir(&self.dir) else { return };
        let begun: HashSet<String> = self.begun().iter().map(PackId::to_string).collect();
        let is_wanted = |name: &str| name == JOURNAL || begun.contains(name);
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(is_wanted) {
                continue;
            }
            let age = entry.metadata().and_then(|meta| meta.modified()).ok();
            let age = age.and_then(|time| time.elapsed().ok());
            if age.is_some_and(|age| age > AGE) {
                let _ = fs_err::remove_file(entry.path());
            }
        }
    }
}

/// Reads a file of which a caller knows that it is short.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, PathError> {
    fs_err::read(path).map_err(PathError::when("read", path))
}
