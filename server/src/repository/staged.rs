//! What was sent and does not count yet: packs that were checked, each on its
//! own, and parts of groups of outlines. Nothing here is durable; a client that
//! finds it gone sends it again. What nobody wants for a day is removed.

use std::{
    collections::{BTreeSet, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use snap_core::{
    base::{
        id::PackId,
        io::PathError,
        kind::ErrorKind,
        observe::{Observer, Silent},
    },
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
        let mut listed = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(id) = name.parse() else { continue };
            if self.pack(&id)?.is_some()
                && let Ok(meta) = entry.metadata()
            {
                listed.push((name, meta.len()));
            }
        }
        Ok(listed)
    }

    /// Bytes of all that waits; what is only coming is not counted, nor what has come
    /// in part.
    pub(super) fn bytes(&self) -> u64 {
        let entries = fs_err::read_dir(&self.dir).into_iter().flatten().flatten();
        let waits = entries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.parse::<PackId>().is_ok() || name.ends_with(PART)
        });
        waits.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
    }

    /// A pack that waits, and is what its name says. One that is not goes; one that
    /// cannot be read just now stays.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub(super) fn pack(&self, id: &PackId) -> Result<Option<PathBuf>, Problem> {
        let path = self.dir.join(id.to_string());
        match fs_err::metadata(&path) {
            Ok(meta) if meta.is_file() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(PathError::when("stat", &path)(error).into()),
        }
        if self.checked().contains(id) {
            return Ok(Some(path));
        }
        match self.look_again(id, &path) {
            Ok(()) => Ok(Some(path)),
            Err(problem) => match problem.code {
                Code::Rejected => {
                    let _ = fs_err::remove_file(&path);
                    Ok(None)
                }
                Code::NotFound => Ok(None),
                _ => Err(problem),
            },
        }
    }

    /// Has packs checked again when they are next asked for.
    pub(super) fn check_again(&self, ids: &BTreeSet<PackId>) {
        self.checked().retain(|id| !ids.contains(id));
    }

    /// Has packs wait for as long as if they had just come.
    pub(super) fn keep_on(&self, ids: &BTreeSet<PackId>) {
        for id in ids {
            let file = fs_err::File::options().append(true).open(self.dir.join(id.to_string()));
            let _ = file.and_then(|file| file.file().set_modified(SystemTime::now()));
        }
    }

    /// Checks a pack that another process has left.
    fn look_again(&self, id: &PackId, path: &Path) -> Result<(), Problem> {
        self.check(*id, hash_of(path)?, path, &Silent)
    }

    /// Checks a file that hashes to that: whether it is the pack of that name,
    /// and all in it is what it says.
    fn check(
        &self,
        id: PackId,
        hash: blake3::Hash,
        path: &Path,
        observer: &dyn Observer,
    ) -> Result<(), Problem> {
        if *hash.as_bytes() != *id.as_bytes() {
            return Err(Problem::new(Code::Rejected, "the bytes do not hash to the name"));
        }
        accept::check(path, id, observer).map_err(|error| match error.kind() {
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
        self.note(&self.begun()?.union(ids).copied().collect())
    }

    fn note(&self, ids: &BTreeSet<PackId>) -> Result<(), Problem> {
        let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let temporary = self.dir.join(unique_name(JOURNAL));
        Ok(self.disk.write_whole(&temporary, &self.dir.join(JOURNAL), text.as_bytes())?)
    }

    /// Packs that came to count together, and not all may.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when that cannot be read.
    pub(super) fn begun(&self) -> Result<BTreeSet<PackId>, Problem> {
        let path = self.dir.join(JOURNAL);
        match fs_err::read_to_string(&path) {
            Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(PathError::when("read", &path)(error).into()),
        }
    }

    /// All of them count now, or none does. When that cannot be noted they are
    /// looked at once more than they need be.
    pub(super) fn end(&self, ids: &BTreeSet<PackId>) {
        let Ok(begun) = self.begun() else { return };
        let rest: BTreeSet<PackId> = begun.difference(ids).copied().collect();
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
        observer: &dyn Observer,
    ) -> Result<Sent, Problem> {
        if self.pack(&id)?.is_some() {
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
        self.keep(id, hasher.finalize(), &path, observer)?;
        file.keep();
        Ok(Sent::New)
    }

    /// Has a file wait that has come whole and hashes to that, if it is the pack
    /// of that name and all in it is what it says.
    ///
    /// # Errors
    /// [`Code::Rejected`] when it is not; the file is then where it was.
    pub(super) fn keep(
        &self,
        id: PackId,
        hash: blake3::Hash,
        path: &Path,
        observer: &dyn Observer,
    ) -> Result<(), Problem> {
        self.check(id, hash, path, observer)?;
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
        let Ok(begun) = self.begun() else { return };
        let begun: HashSet<String> = begun.iter().map(PackId::to_string).collect();
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

/// What the bytes of a file hash to.
pub(crate) fn hash_of(path: &Path) -> Result<blake3::Hash, PathError> {
    let mut hasher = blake3::Hasher::new();
    let file = fs_err::File::open(path).map_err(PathError::when("open", path))?;
    hasher.update_reader(file).map_err(PathError::when("read", path))?;
    Ok(hasher.finalize())
}
