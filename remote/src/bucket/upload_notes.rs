//! Notes of multipart uploads, so that the next push can abort the uploads of a killed process.
//!
//! S3 keeps, and bills, the parts of an upload that is neither completed nor aborted. A listing of
//! uploads does not say which client began them, and to abort the upload of another client would
//! fail its push. So snap does not list uploads. Each process notes the id of an upload that it
//! begins, before it sends the first part.
//!
//! A process locks the note while it runs the upload, and removes the note when the upload is
//! completed or aborted. A note without a lock belongs to a killed process. The next push aborts
//! only the upload that the note names.
//!
//! A note is a file in the folder `uploads` of the remote's cache: the key, a space, the upload id.
//! The process locks the file before it gets its name. Notes are best effort: without a note, only
//! the lifecycle rules of the bucket remove the upload.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use snap_core::{
    base::io::PathError,
    disk::{Disk, NewFile, regular, scratch::unique_name},
};

/// Folder of the notes, in the cache of a remote.
const FOLDER: &str = "uploads";

/// Maximum number of uploads to abort at a time. A process runs at most two.
const MOST: usize = 16;

/// Maximum length of a note.
const NOTE_BYTES: u64 = 8 << 10;

/// Maximum age of a note. The next push removes an older note even if it cannot abort the upload.
const OLDEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The notes of one remote.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadNotes {
    /// Cache of the remote; `None` disables notes.
    cache: Option<PathBuf>,
}

/// The note of an upload of this process.
#[derive(Debug, Default)]
pub struct UploadNote {
    notes: UploadNotes,
    key: String,
    /// The locked file and its path, once the upload has an id.
    file: OnceLock<Option<(NewFile, PathBuf)>>,
}

/// An upload of a process that no longer runs.
pub(super) struct AbandonedUpload {
    pub(super) key: String,
    pub(super) id: String,
    path: PathBuf,
    /// Keeps other processes from aborting the upload as well.
    _lock: File,
}

impl UploadNotes {
    /// Uses the cache of a remote for notes.
    pub(super) fn of(cache: &Path) -> Self {
        Self { cache: Some(cache.to_owned()) }
    }

    /// Creates a note for a new upload to `key`, without a file yet.
    pub(super) fn note(&self, key: &str) -> UploadNote {
        UploadNote { notes: self.clone(), key: key.to_owned(), file: OnceLock::new() }
    }

    /// Returns uploads of processes that no longer run, at most [`MOST`].
    pub(super) fn abandoned(&self) -> Vec<AbandonedUpload> {
        let Some(cache) = &self.cache else { return Vec::new() };
        let Ok(entries) = fs_err::read_dir(cache.join(FOLDER)) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter_map(AbandonedUpload::at).take(MOST).collect()
    }
}

impl UploadNote {
    /// Writes the note with the upload id. Only the first call has an effect.
    pub(super) fn record_id(&self, id: &str) {
        self.file.get_or_init(|| self.write(id).ok().flatten());
    }

    fn write(&self, id: &str) -> Result<Option<(NewFile, PathBuf)>, PathError> {
        let Some(cache) = self.notes.cache.as_ref().filter(|_| is_plain(id)) else {
            return Ok(None);
        };
        let (disk, folder) = (Disk::cache(cache), cache.join(FOLDER));
        disk.create_folders(&folder)?;
        let name = unique_name("upload");
        let (temporary, path) = (cache.join("tmp").join(&name), folder.join(&name));
        let mut file = disk.create(&temporary)?;
        // Without a lock, other processes would take the upload for a leftover.
        if file.file().try_lock().is_err() {
            return Ok(None);
        }
        file.write(format!("{} {id}", self.key).as_bytes())?;
        disk.replace(&temporary, &path)?;
        file.keep();
        Ok(Some((file, path)))
    }

    /// Removes the note of a completed or aborted upload.
    pub(super) fn remove(&self) {
        if let Some(Some((_, path))) = self.file.get() {
            let _ = fs_err::remove_file(path);
        }
    }
}

impl AbandonedUpload {
    fn at(path: PathBuf) -> Option<Self> {
        let lock = regular::open_unfollowed(&path).ok()?;
        lock.try_lock().ok()?;
        let bytes = regular::read_at_most(&path, NOTE_BYTES).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (key, id) = text.split_once(' ').filter(|(_, id)| is_plain(id))?;
        Some(Self { key: key.to_owned(), id: id.to_owned(), path, _lock: lock })
    }

    /// Returns true if the note is older than [`OLDEST`].
    pub(super) fn is_old(&self) -> bool {
        let modified = fs_err::metadata(&self.path).and_then(|meta| meta.modified()).ok();
        modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > OLDEST)
    }

    pub(super) fn remove(self) {
        let _ = fs_err::remove_file(&self.path);
    }
}

/// Returns true if an upload id can be written to a note and embedded in XML without escaping.
fn is_plain(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '&');
    !id.is_empty() && id.len() <= 4096 && id.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uploads_of_ended_processes_are_listed_as_abandoned() {
        let cache = tempfile::tempdir().unwrap();
        fs_err::create_dir(cache.path().join("tmp")).unwrap();
        let notes = UploadNotes::of(cache.path());
        let [running, done, killed, odd] = ["running", "done", "killed", "odd"].map(|id| {
            let note = notes.note("objects/x");
            note.record_id(if id == "odd" { "a <b>" } else { id });
            note.record_id("another");
            note
        });
        assert!(notes.abandoned().is_empty(), "all uploads are in progress");
        done.remove();
        drop((done, killed, odd));
        let left = notes.abandoned();
        assert!(notes.abandoned().is_empty(), "the first call has locked them");
        let named: Vec<_> = left.iter().map(|left| (&*left.key, &*left.id)).collect();
        assert_eq!(named, [("objects/x", "killed")]);
        assert!(!left[0].is_old());
        left.into_iter().for_each(AbandonedUpload::remove);
        assert!(notes.abandoned().is_empty());
        drop(running);
        assert_eq!(notes.abandoned().len(), 1);
        assert_eq!(fs_err::read_dir(cache.path().join("tmp")).unwrap().count(), 0);
    }
}
