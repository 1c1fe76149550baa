//! A folder as a bucket. Files become visible whole and durable, and a lock protects the
//! compare-and-swap of refs.
//!
//! This bucket does not use OpenDAL, which syncs files but not their folders, and whose
//! put-if-absent lets several racing writers win.

use std::{
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Once},
};

use bytes::Bytes;
use snap_core::{
    base::{io::PathError, limits},
    disk::{
        Disk, NewFile, Renamed,
        lock_wait::is_file_at,
        regular::{is_link, open_regular},
        scratch::create_locked,
    },
    format::ref_text::RefText,
    local::store_folder::objects_in_store,
    repo::ref_name::RefName,
    store::sweep,
};

use super::{
    Attempt, Body, Bucket, BucketFacts, ConditionalWrites, FailureReason, ListDepth, ListedObject,
    ObjectVersion, ServiceError, StoredObject, WriteCondition, check_hash,
    keys::REFS,
    ref_name_conflict, too_long, too_short,
    traffic::RequestKind::{self, Delete, Get, Head, List, Put},
};

/// Folder for files that do not have their final names yet.
const TEMPORARY: &str = "tmp";

/// Number of bytes that a copy reads at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The lock file for compare-and-swap. Its holder deletes it on release.
const LOCK: &str = "tmp/lock";

/// An open file of an object.
struct OpenObject {
    file: fs_err::File,
    path: PathBuf,
    length: u64,
}

/// A store in a folder, with objects as files.
#[derive(Clone, Debug)]
pub struct FolderBucket {
    root: PathBuf,
    facts: BucketFacts,
    /// Set once the bucket has removed the leftovers of killed pushes.
    swept: Arc<Once>,
}

impl FolderBucket {
    /// Creates a bucket for the folder `root`, which the first write creates.
    pub fn new(root: PathBuf) -> Self {
        let facts = BucketFacts {
            refuses_conflicting_refs: true,
            folder: Some(root.clone()),
            ..BucketFacts::new(ConditionalWrites::ALL)
        };
        Self { root, facts, swept: Arc::new(Once::new()) }
    }

    /// Returns the disk that changes files of the folder. New files get the permissions of the
    /// existing packs. Fails if the link `objects` leads into a store.
    fn disk(&self) -> Result<Disk, PathError> {
        match objects_in_store(&self.root) {
            Some(target) => {
                let why = format!("it leads to {}, which is part of a store", target.display());
                let objects = self.root.join("objects");
                Err(PathError::when("use", objects)(io::Error::other(why)))
            }
            None => Ok(Disk::default().in_store(&self.root)),
        }
    }

    /// Creates a temporary file, locked until it is closed. The first call removes the leftovers of
    /// killed pushes.
    fn temporary(&self, disk: &Disk) -> Result<NewFile, PathError> {
        let folder = self.root.join(TEMPORARY);
        disk.create_folders(&folder)?;
        self.swept.call_once(|| sweep::run(&folder));
        create_locked(disk, &folder, "put")
    }

    fn open(&self, key: &str) -> Result<OpenObject, FolderError> {
        let path = self.root.join(key);
        let file = open_regular(&path).map_err(|error| match error.kind() {
            // A ref that is a dangling symlink is damaged; it was not deleted.
            io::ErrorKind::NotFound if key.starts_with(REFS) && is_link(&path) => {
                io::Error::new(io::ErrorKind::InvalidInput, error)
            }
            _ => error,
        });
        let file = file.map_err(PathError::when("open", &path))?;
        let length = file.metadata().map_err(PathError::when("stat", &path))?.len();
        Ok(OpenObject { file, path, length })
    }

    fn read_now(&self, key: &str, range: Range<u64>) -> Result<Bytes, FolderError> {
        let OpenObject { file, path, length } = self.open(key)?;
        match range.end.checked_sub(length).filter(|lacking| *lacking > 0) {
            Some(lacking) => Err(FolderError::Service(too_short(key, lacking))),
            None => Self::read_range(file, &path, range),
        }
    }

    fn read_range(
        mut file: fs_err::File,
        path: &Path,
        range: Range<u64>,
    ) -> Result<Bytes, FolderError> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.seek(SeekFrom::Start(range.start))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(PathError::when("read", path))?;
        Ok(bytes.into())
    }

    fn read_whole_now(&self, key: &str, most: u64) -> Result<StoredObject, FolderError> {
        // Another client may replace the file between two calls of `open`.
        let OpenObject { file, path, length } = self.open(key)?;
        if length > most {
            return Err(FolderError::Service(too_long(key, most)));
        }
        let bytes = Self::read_range(file, &path, 0..length)?;
        Ok(StoredObject { version: Some(version_of(&bytes)), bytes })
    }

    /// Returns the version of an object of any length.
    fn version_now(&self, key: &str) -> Result<Option<ObjectVersion>, FolderError> {
        let OpenObject { file, path, .. } = match self.open(key) {
            Err(FolderError::Disk(error)) if is_nothing(&error.source) => return Ok(None),
            opened => opened?,
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file).map_err(PathError::when("read", &path))?;
        Ok(Some(version_from(hasher.finalize())))
    }

    /// Copies a file piece by piece.
    fn copy_now(&self, key: &str, from: &Path, length: u64) -> Result<(), FolderError> {
        let path = self.root.join(key);
        let Some(folder) = path.parent() else { return Err(FolderError::Unsupported) };
        let disk = self.disk()?;
        disk.create_folders(folder)?;
        let mut source = fs_err::File::open(from).map_err(PathError::when("open", from))?;
        let mut file = self.temporary(&disk)?;
        let mut piece = vec![0; PIECE_BYTES.min(length as usize)];
        let (mut left, mut hasher) = (length, blake3::Hasher::new());
        while left > 0 {
            let bytes = left.min(PIECE_BYTES as u64);
            let piece = &mut piece[..bytes as usize];
            source.read_exact(piece).map_err(PathError::when("read", from))?;
            hasher.update(piece);
            file.write(piece)?;
            left -= bytes;
        }
        check_hash(key, hasher.finalize()).map_err(FolderError::Service)?;
        file.sync()?;
        disk.replace(file.path(), &path)?;
        file.keep();
        disk.sync_folder(folder)?;
        Ok(())
    }

    fn write_now(
        &self,
        key: &str,
        bytes: &[u8],
        when: &WriteCondition,
    ) -> Result<ObjectVersion, FolderError> {
        let path = self.root.join(key);
        let Some(folder) = path.parent() else { return Err(FolderError::Unsupported) };
        let disk = self.disk()?;
        let mut file = self.temporary(&disk)?;
        file.write(bytes)?;
        file.sync()?;
        // A write of a ref, and a compare-and-swap of any other file, need the lock.
        let name = RefName::parse_full(key);
        let is_alone = name.is_some() || matches!(when, WriteCondition::Unchanged(_));
        let _lock = is_alone.then(|| self.lock()).transpose()?;
        if let Some(name) = &name {
            self.make_room(name, bytes)?;
        }
        disk.create_folders(folder)?;
        match when {
            WriteCondition::Always => disk.replace(file.path(), &path)?,
            WriteCondition::Absent => {
                if disk.rename_new(file.path(), &path)? == Renamed::Taken {
                    return Err(FolderError::Conflict);
                }
            }
            WriteCondition::Unchanged(version) => {
                if self.version_now(key)?.as_ref() != Some(version) {
                    return Err(FolderError::Conflict);
                }
                disk.replace(file.path(), &path)?;
            }
        }
        file.keep();
        disk.sync_folder(folder)?;
        Ok(version_of(bytes))
    }

    /// Removes tombstones of deleted refs that block the name of a new ref, and fails if an
    /// existing ref blocks it. A ref blocks a name that is one of its parent folders, or that
    /// lies below it.
    ///
    /// Removing a tombstone is safe: its nonce is never used again, so the compare-and-swap of a
    /// client that has read the tombstone fails. The caller must hold the lock.
    fn make_room(&self, name: &RefName, bytes: &[u8]) -> Result<(), FolderError> {
        let stands = RefText::decode(bytes).is_ok_and(|text| text.commit.is_some());
        // A push creates a ref as deleted first.
        if !stands && self.root.join(name.to_string()).is_file() {
            return Ok(());
        }
        for (at, _) in name.short().match_indices('/') {
            let above = RefName::new(name.kind(), &name.short()[..at]);
            if let Ok(above) = above
                && self.root.join(above.to_string()).is_file()
            {
                self.clear_deleted(name, &above)?;
            }
        }
        let path = self.root.join(name.to_string());
        if !path.is_dir() || is_link(&path) {
            return Ok(());
        }
        for ListedObject { key, .. } in self.list_now(&format!("{name}/"), ListDepth::All)? {
            let below = RefName::parse_full(&key).ok_or(FolderError::Unsupported)?;
            self.clear_deleted(name, &below)?;
        }
        let (mut folders, mut found) = (vec![path], Vec::new());
        while let Some(folder) = folders.pop() {
            let inside = fs_err::read_dir(&folder).map_err(PathError::when("list", &folder))?;
            for entry in inside.flatten() {
                // A link may lead to folders outside the store.
                match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    true => folders.push(entry.path()),
                    false => return Ok(()),
                }
            }
            found.push(folder);
        }
        for folder in found.iter().rev() {
            fs_err::remove_dir(folder).map_err(PathError::when("remove", folder))?;
        }
        Ok(())
    }

    /// Removes the tombstone of `other`, or fails if `other` still exists.
    fn clear_deleted(&self, name: &RefName, other: &RefName) -> Result<(), FolderError> {
        let key = other.to_string();
        let object = self.read_whole_now(&key, limits::REF_BYTES as u64)?;
        match RefText::decode(&object.bytes) {
            // Keep a tombstone of a newer version of snap, which may fence off this version.
            Ok(text) if text.commit.is_none() && !text.has_more => {
                Ok(self.disk()?.remove(&self.root.join(&key))?)
            }
            _ => Err(FolderError::Service(ref_name_conflict(name, other))),
        }
    }

    /// Takes the lock for compare-and-swap. A dead process leaves an unlocked file, which the next
    /// process reuses.
    fn lock(&self) -> Result<FolderLock, PathError> {
        let path = self.root.join(LOCK);
        loop {
            let file = self.disk()?.lock_file(&path)?;
            file.lock().map_err(PathError::when("lock", &path))?;
            // The previous holder may have deleted the file after this process opened it. Then try
            // again.
            if is_file_at(&file, &path)? {
                return Ok(FolderLock { path, _file: file });
            }
        }
    }

    fn list_now(&self, prefix: &str, depth: ListDepth) -> Result<Vec<ListedObject>, FolderError> {
        let mut found = Vec::new();
        let mut folders = vec![self.root.join(prefix)];
        while let Some(folder) = folders.pop() {
            let entries = match fs_err::read_dir(&folder) {
                Err(error) if is_nothing(&error) => continue,
                entries => entries.map_err(PathError::when("list", &folder))?,
            };
            for entry in entries {
                let entry = entry.map_err(PathError::when("list", &folder))?;
                let path = entry.path();
                let Ok(meta) = entry.metadata() else { continue };
                if meta.is_dir() && depth == ListDepth::All {
                    folders.push(path);
                } else if let Some(mut key) = self.key(&path) {
                    key.extend(meta.is_dir().then_some('/'));
                    let modified_secs = Some(meta.mtime());
                    found.push(ListedObject { key, bytes: meta.len(), modified_secs });
                }
                if depth == ListDepth::Level(found.len()) {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// Returns the key of a file, or `None` for a file that is not an object.
    fn key(&self, path: &Path) -> Option<String> {
        let key = path.strip_prefix(&self.root).ok()?.to_str()?;
        (!key.starts_with("tmp/")).then(|| key.to_owned())
    }

    fn run<T: Send + 'static>(
        &self,
        kind: RequestKind,
        key: &str,
        work: impl FnOnce(&Self, &str) -> Result<T, FolderError> + Send + 'static,
    ) -> Attempt<'static, T> {
        let (folder, key) = (self.clone(), key.to_owned());
        Box::pin(async move {
            let failed_key = key.clone();
            let done = tokio::task::spawn_blocking(move || work(&folder, &key)).await;
            let result =
                done.unwrap_or_else(|_| Err(FolderError::Message("the task failed".into())));
            result.map_err(|problem| problem.service_error(kind.operation(), failed_key))
        })
    }
}

impl Bucket for FolderBucket {
    fn facts(&self) -> &BucketFacts {
        &self.facts
    }

    fn get<'a>(&'a self, key: &'a str, most: u64) -> Attempt<'a, StoredObject> {
        self.run(Get, key, move |folder, key| folder.read_whole_now(key, most))
    }

    fn get_range<'a>(&'a self, key: &'a str, range: Range<u64>) -> Attempt<'a, Bytes> {
        self.run(Get, key, move |folder, key| folder.read_now(key, range))
    }

    fn put<'a>(&'a self, key: &'a str, body: Body) -> Attempt<'a, Option<ObjectVersion>> {
        match body {
            Body::Bytes(bytes) => self.put_if(key, bytes, WriteCondition::Always),
            Body::File(path, length) => self.run(Put, key, move |folder, key| {
                folder.copy_now(key, &path, length).map(|()| None)
            }),
        }
    }

    fn put_if<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> Attempt<'a, Option<ObjectVersion>> {
        self.run(Put, key, move |folder, key| folder.write_now(key, &bytes, &when).map(Some))
    }

    fn delete<'a>(&'a self, keys: &'a [String]) -> Attempt<'a, ()> {
        let all = keys.to_vec();
        self.run(Delete, keys.first().map_or("", String::as_str), move |folder, _| {
            let disk = folder.disk()?;
            all.iter().try_for_each(|key| Ok(disk.remove(&folder.root.join(key))?))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, depth: ListDepth) -> Attempt<'a, Vec<ListedObject>> {
        self.run(List, prefix, move |folder, prefix| folder.list_now(prefix, depth))
    }

    fn head<'a>(&'a self, key: &'a str) -> Attempt<'a, Option<u64>> {
        self.run(Head, key, |folder, key| {
            let path = folder.root.join(key);
            match fs_err::metadata(&path) {
                Ok(meta) => Ok(Some(meta.len())),
                Err(error) if is_nothing(&error) => Ok(None),
                Err(error) => Err(PathError::when("stat", &path)(error).into()),
            }
        })
    }
}

/// Returns true if an error means that the object does not exist. A folder of refs is not
/// an object, and no object lies below another one.
fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}

fn version_of(bytes: &[u8]) -> ObjectVersion {
    version_from(blake3::hash(bytes))
}

fn version_from(hash: blake3::Hash) -> ObjectVersion {
    ObjectVersion { etag: Some(hash.to_hex().to_string()), generation: None }
}

/// A held lock of a folder.
struct FolderLock {
    path: PathBuf,
    _file: std::fs::File,
}

impl Drop for FolderLock {
    /// Deletes the file while it is still locked. Processes that wait for the lock notice that
    /// their file is not the one at the path. If the deletion fails, the next process reuses the
    /// file.
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.path);
    }
}

enum FolderError {
    Disk(PathError),
    Conflict,
    Unsupported,
    Message(String),
    Service(ServiceError),
}

impl From<PathError> for FolderError {
    fn from(error: PathError) -> Self {
        Self::Disk(error)
    }
}

impl FolderError {
    fn service_error(self, operation: &'static str, key: String) -> ServiceError {
        let (what, message) = match self {
            Self::Service(error) => return error,
            Self::Disk(error) => {
                let what = match error.source.kind() {
                    io::ErrorKind::InvalidInput if operation == "read" => FailureReason::NotAFile,
                    // The name of a ref may be that of a folder with other refs.
                    io::ErrorKind::IsADirectory
                        if operation == "read" && !key.starts_with(REFS) =>
                    {
                        FailureReason::NotAFile
                    }
                    _ if is_nothing(&error.source) => FailureReason::NotFound,
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        FailureReason::Denied
                    }
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        FailureReason::Full
                    }
                    _ => FailureReason::Other,
                };
                (what, format!("{error}: {}", error.source))
            }
            Self::Conflict => (FailureReason::Conflict, String::new()),
            Self::Unsupported => (FailureReason::Unsupported, "not a key".to_owned()),
            Self::Message(message) => (FailureReason::Other, message),
        };
        ServiceError::new(operation, &key, what, message)
    }
}

#[cfg(test)]
mod tests {
    use snap_core::disk::scratch::unique_name;

    use super::*;

    #[test]
    fn a_write_removes_temporary_files_of_killed_pushes() {
        let place = tempfile::tempdir().unwrap();
        let tmp = place.path().join(TEMPORARY);
        fs_err::create_dir(&tmp).unwrap();
        let [left, written] = ["left", "written"].map(|who| {
            let path = tmp.join(unique_name(&format!("{}{who}", sweep::UPLOAD_PREFIX)));
            fs_err::write(&path, "x").unwrap();
            path
        });
        let held = fs_err::File::open(&written).unwrap();
        held.file().lock().unwrap();
        let folder = FolderBucket::new(place.path().to_owned());
        folder
            .write_now("objects/x", b"x", &WriteCondition::Always)
            .unwrap_or_else(|_| panic!("written"));
        assert!(!left.exists(), "the writer no longer runs");
        assert!(written.exists());
    }
}
