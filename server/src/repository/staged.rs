//! What was sent and does not count yet: packs that were checked, each on its
//! own, and parts of groups of outlines. Nothing here is durable; a client that
//! finds it gone sends it again. What nobody wants for a day is removed.

use std::{
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

use super::{Listed, Sent};
use crate::problem::{Code, Problem};

/// Folder in `tmp/` of a store.
const FOLDER: &str = "staged";

/// How long something waits to be wanted.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// What waits to count.
#[derive(Debug)]
pub(super) struct Staged {
    dir: PathBuf,
    disk: Disk,
    publishing: Mutex<()>,
}

impl Staged {
    pub(super) fn new(store: &Store) -> Self {
        let (dir, disk) = (store.dir().join("tmp").join(FOLDER), store.disk().clone());
        Self { dir, disk, publishing: Mutex::new(()) }
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
            name.parse::<PackId>().ok()?;
            Some((name, entry.metadata().ok()?.len()))
        });
        Ok(named.collect())
    }

    /// A pack that waits.
    pub(super) fn pack(&self, id: &PackId) -> Option<PathBuf> {
        let path = self.dir.join(id.to_string());
        path.is_file().then_some(path)
    }

    /// It waits no more.
    pub(super) fn forget(&self, id: &PackId) {
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
        if *hasher.finalize().as_bytes() != *id.as_bytes() {
            return Err(Problem::new(Code::Rejected, "the bytes do not hash to the name"));
        }
        accept::check(&path, id, &Silent).map_err(|error| match error.kind() {
            ErrorKind::Damaged | ErrorKind::Unsupported => {
                Problem::new(Code::Rejected, error.to_string())
            }
            _ => error.into(),
        })?;
        self.disk.replace(&path, &self.dir.join(id.to_string()))?;
        file.keep();
        Ok(Sent::New)
    }

    /// Keeps a part of a group until its group comes.
    pub(super) fn keep_part(&self, name: &str, bytes: &[u8]) -> Result<Sent, Problem> {
        self.disk.create_folders(&self.dir)?;
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
    fn sweep(&self) {
        let Ok(entries) = fs_err::read_dir(&self.dir) else { return };
        for entry in entries.flatten() {
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
