//! Creates many refs at once, for example in a clone, and syncs their files together.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use parking_lot::Mutex;

use super::{RefError, RefLogMessage, Refs, ref_log};
use crate::{
    base::{id::CommitId, io::PathError},
    disk::NewFile,
    format::ref_text::RefText,
    repo::ref_name::{RefKind, RefName},
};

/// Number of files for each thread that syncs. The threads wait for the disk, and the journal of
/// the file system writes the changes of all waiting threads together.
const FILES_PER_THREAD: usize = 16;

/// Maximum number of threads that sync.
const THREADS: usize = 16;

/// Maximum number of refs for one call of [`Refs::create_all`], which keeps two files open for
/// each.
pub const REFS_AT_ONCE: usize = 128;

/// A new ref whose files are not synced yet.
struct NewRef {
    path: PathBuf,
    file: NewFile,
    log: NewFile,
}

impl Refs {
    /// Creates refs, durably. Leaves refs alone that are already at their commits. After an error
    /// or a crash, some of the refs may exist.
    ///
    /// # Errors
    /// [`RefError::Exists`], [`RefError::NameConflict`], [`RefError::Locked`], [`RefError::Io`].
    pub fn create_all(
        &self,
        refs: &[(RefName, CommitId)],
        change: &RefLogMessage<'_>,
    ) -> Result<(), RefError> {
        let mut held = self.lock()?;
        let mut new = Vec::new();
        for (name, id) in refs {
            match self.read(name)? {
                None => new.push((name, *id)),
                Some(at) if at == *id => {}
                Some(at) => return Err(RefError::Exists { name: name.clone(), at }),
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        for (name, id) in &new {
            self.check_alive(id)?;
            if name.kind() != RefKind::Remote {
                self.keep(id)?;
            }
        }
        // All lines have the same time. After a crash, the next change removes the lines of refs
        // that were not created.
        let change = &self.timed(&mut held, change)?;
        let mut written = Vec::with_capacity(new.len());
        for (name, id) in new {
            written.push(self.write_unsynced(name, id, change)?);
        }
        // The log line comes before the ref file, see `ref_log`.
        sync_files(&written.iter().flat_map(|new| [&new.log, &new.file]).collect::<Vec<_>>())?;
        self.sync_folders_of(written.iter().map(|new| new.log.path()))?;
        for NewRef { path, file, .. } in &written {
            self.disk.replace(file.path(), path)?;
            file.keep();
        }
        self.sync_folders_of(written.iter().map(|new| new.path.as_path()))?;
        held.set_done();
        Ok(())
    }

    fn write_unsynced(
        &self,
        name: &RefName,
        id: CommitId,
        change: &RefLogMessage<'_>,
    ) -> Result<NewRef, RefError> {
        let path = name.file(&self.store);
        self.make_room(name, &path)?;
        self.disk.create_folders(path.parent().unwrap_or(&self.store))?;
        let (text, old) = (RefText::new(Some(id)).encode(), self.lost(name)?);
        let log = name.log_file(&self.store);
        let log = ref_log::append_unsynced(&self.disk, &log, &old, &Some(id).into(), change)?;
        let file = self.disk.write_temporary(&self.store.join("tmp"), text.as_bytes())?;
        Ok(NewRef { path, file, log })
    }

    /// Syncs the folders of files up to the store. Another process may have created some of them,
    /// and crashed before it synced their names.
    fn sync_folders_of<'p>(&self, files: impl Iterator<Item = &'p Path>) -> Result<(), PathError> {
        let inside =
            |file: &'p Path| file.ancestors().skip(1).take_while(|folder| *folder != self.store);
        let folders: BTreeSet<&Path> = files.flat_map(inside).collect();
        folders.into_iter().try_for_each(|folder| self.disk.sync_folder(folder))
    }
}

/// Syncs files, many at once.
fn sync_files(files: &[&NewFile]) -> Result<(), PathError> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = file.sync() {
                failure.lock().get_or_insert(error);
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..(files.len() / FILES_PER_THREAD).clamp(1, THREADS) {
            // If no thread can start, this thread does the work.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    failure.lock().take().map_or(Ok(()), Err)
}
