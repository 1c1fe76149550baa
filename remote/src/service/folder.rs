//! A folder as a service: files that appear whole, durably, and refs that are
//! compared and swapped under a lock.
//!
//! Not through OpenDAL, whose files are synced but not the folders that name
//! them, and whose put-if-absent lets most of the racing writers win.

use std::{
    fs::Metadata,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Once},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use snap_core::{
    base::{io::PathError, limits},
    disk::{Disk, NewFile, Renamed, regular::open_regular, scratch::unique_name},
    format::ref_text::RefText,
    repo::ref_name::RefName,
    store::sweep,
};

use super::{
    Conditions, Listed, Object, Service, ServiceError, Version, What, When, beside, check_hash,
    keys::REFS,
    too_long,
    traffic::{Kind, Traffic},
};

/// Where files are written before they have their names.
const TEMPORARY: &str = "tmp";

/// Bytes of a file that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What is locked while a file is compared and replaced; it is there as long.
const LOCK: &str = "tmp/lock";

/// Objects as files in a folder.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    traffic: Arc<Traffic>,
    /// Whether what killed pushes left was removed.
    swept: Arc<Once>,
}

impl Folder {
    /// Objects in `root`, which need not exist before something is written.
    pub fn new(root: PathBuf, traffic: Arc<Traffic>) -> Self {
        Self { root, traffic, swept: Arc::new(Once::new()) }
    }

    /// What changes files here. New ones are as open as the packs that are there.
    fn disk(&self) -> Disk {
        Disk::default().in_store(&self.root)
    }

    /// A file for something that is sent, locked as long as it is written. The first one
    /// clears up what killed pushes have left.
    fn temporary(&self, disk: &Disk) -> Result<NewFile, PathError> {
        let folder = self.root.join(TEMPORARY);
        disk.create_folders(&folder)?;
        self.swept.call_once(|| sweep::run(&folder));
        let file = disk.create(&folder.join(unique_name("put")))?;
        // Where nothing can be locked its age alone keeps it, for a minute.
        let _ = file.file().try_lock();
        Ok(file)
    }

    /// Opens an object; with its path and length.
    fn open(&self, key: &str) -> Result<(fs_err::File, PathBuf, u64), Problem> {
        let path = self.root.join(key);
        let file = open_regular(&path).map_err(PathError::when("open", &path))?;
        let length = file.metadata().map_err(PathError::when("stat", &path))?.len();
        Ok((file, path, length))
    }

    fn read_now(&self, key: &str, range: Range<u64>) -> Result<Object, Problem> {
        let (mut file, path, length) = self.open(key)?;
        if range.end > length {
            return Err(Problem::Short(range.end - length));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.seek(SeekFrom::Start(range.start))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(PathError::when("read", &path))?;
        self.traffic.received(bytes.len() as u64);
        Ok(Object { bytes: bytes.into(), version: None })
    }

    fn read_whole_now(&self, key: &str, most: u64) -> Result<Object, Problem> {
        let length = self.open(key)?.2;
        if length > most {
            return Err(Problem::Long(most));
        }
        let object = self.read_now(key, 0..length)?;
        Ok(Object { version: Some(version_of(&object.bytes)), ..object })
    }

    /// The version of what is there, which need not be short.
    fn version_now(&self, key: &str) -> Result<Option<Version>, Problem> {
        let (file, path, _) = match self.open(key) {
            Err(Problem::Disk(error)) if is_nothing(&error.source) => return Ok(None),
            opened => opened?,
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file).map_err(PathError::when("read", &path))?;
        Ok(Some(version_from(hasher.finalize())))
    }

    /// Copies a file, in pieces.
    fn copy_now(&self, key: &str, from: &Path, length: u64) -> Result<(), Problem> {
        let path = self.root.join(key);
        let Some(folder) = path.parent() else { return Err(Problem::Unsupported) };
        let disk = self.disk();
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
        check_hash(key, hasher.finalize()).map_err(Problem::Service)?;
        file.sync()?;
        disk.replace(file.path(), &path)?;
        file.keep();
        disk.sync_folder(folder)?;
        self.traffic.sent(length);
        Ok(())
    }

    fn write_now(&self, key: &str, bytes: &[u8], when: &When) -> Result<Version, Problem> {
        let path = self.root.join(key);
        let Some(folder) = path.parent() else { return Err(Problem::Unsupported) };
        let disk = self.disk();
        let mut file = self.temporary(&disk)?;
        file.write(bytes)?;
        file.sync()?;
        let name = RefName::parse_full(key);
        let is_alone = name.is_some() || matches!(when, When::Unchanged(_));
        let _lock = is_alone.then(|| self.lock()).transpose()?;
        if let Some(name) = &name {
            self.make_room(name, bytes)?;
        }
        disk.create_folders(folder)?;
        match when {
            When::Always => disk.replace(file.path(), &path)?,
            When::Absent => {
                if disk.rename_new(file.path(), &path)? == Renamed::Taken {
                    return Err(Problem::Conflict);
                }
            }
            When::Unchanged(version) => {
                if self.version_now(key)?.as_ref() != Some(version) {
                    return Err(Problem::Conflict);
                }
                disk.replace(file.path(), &path)?;
            }
        }
        file.keep();
        disk.sync_folder(folder)?;
        self.traffic.sent(bytes.len() as u64);
        Ok(version_of(bytes))
    }

    /// Makes sure that no ref is a folder of one that is to stand somewhere, or lies
    /// below it. What was deleted makes room: whoever has seen it deleted compares with
    /// its nonce, which never comes again, and so does not move the ref. The caller has
    /// the lock.
    fn make_room(&self, name: &RefName, bytes: &[u8]) -> Result<(), Problem> {
        let stands = RefText::decode(bytes).is_ok_and(|text| text.commit.is_some());
        if !stands {
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
        if !path.is_dir() {
            return Ok(());
        }
        for Listed { key, .. } in self.list_now(&format!("{name}/"))? {
            let below = RefName::parse_full(&key).ok_or(Problem::Unsupported)?;
            self.clear_deleted(name, &below)?;
        }
        let (mut folders, mut found) = (vec![path], Vec::new());
        while let Some(folder) = folders.pop() {
            let inside = fs_err::read_dir(&folder).map_err(PathError::when("list", &folder))?;
            folders.extend(inside.flatten().map(|entry| entry.path()));
            found.push(folder);
        }
        for folder in found.iter().rev() {
            fs_err::remove_dir(folder).map_err(PathError::when("remove", folder))?;
        }
        Ok(())
    }

    /// Removes what says that a ref was deleted, which is in the way of another one.
    fn clear_deleted(&self, name: &RefName, other: &RefName) -> Result<(), Problem> {
        let key = other.to_string();
        let object = self.read_whole_now(&key, limits::REF_BYTES as u64)?;
        match RefText::decode(&object.bytes) {
            // One that a later version wrote may be its fence.
            Ok(text) if text.commit.is_none() && text.is_writable() => {
                Ok(self.disk().remove(&self.root.join(&key))?)
            }
            _ => Err(Problem::Service(beside(name, other))),
        }
    }

    /// Waits until nobody else compares and replaces. What a process leaves that
    /// dies is locked by nobody, and goes with the next one.
    fn lock(&self) -> Result<Locked, PathError> {
        let path = self.root.join(LOCK);
        loop {
            let file = self.disk().lock_file(&path)?;
            file.lock().map_err(PathError::when("lock", &path))?;
            let ours = file.metadata().map_err(PathError::when("stat", &path))?;
            // Whoever had it before has taken it away.
            let is_it = |there: Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
            if fs_err::metadata(&path).is_ok_and(is_it) {
                return Ok(Locked { path, _file: file });
            }
        }
    }

    fn list_now(&self, prefix: &str) -> Result<Vec<Listed>, Problem> {
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
                if meta.is_dir() {
                    folders.push(path);
                } else if let Some(key) = self.key(&path) {
                    found.push(Listed { key, bytes: meta.len() });
                }
            }
        }
        Ok(found)
    }

    fn peek_now(&self, prefix: &str) -> Result<Vec<String>, Problem> {
        let folder = self.root.join(prefix);
        let entries = match fs_err::read_dir(&folder) {
            Err(error) if is_nothing(&error) => return Ok(Vec::new()),
            entries => entries.map_err(PathError::when("list", &folder))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(PathError::when("list", &folder))?;
            let Some(key) = self.key(&entry.path()) else { continue };
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            found.push(if is_folder { format!("{key}/") } else { key });
        }
        Ok(found)
    }

    /// The key of a file; none for what is not an object.
    fn key(&self, path: &Path) -> Option<String> {
        let key = path.strip_prefix(&self.root).ok()?.to_str()?;
        (!key.starts_with("tmp/")).then(|| key.to_owned())
    }

    fn run<T: Send + 'static>(
        &self,
        (operation, kind): (&'static str, Kind),
        key: &str,
        work: impl FnOnce(&Self, &str) -> Result<T, Problem> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ServiceError>> {
        let (folder, key) = (self.clone(), key.to_owned());
        Box::pin(async move {
            folder.traffic.request(kind);
            let told = key.clone();
            let done = tokio::task::spawn_blocking(move || work(&folder, &key)).await;
            let result = done.unwrap_or_else(|_| Err(Problem::Gave("the task failed".into())));
            result.map_err(|problem| problem.told(operation, told))
        })
    }
}

impl Service for Folder {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        self.run(("read", Kind::Get), key, move |folder, key| folder.read_now(key, range))
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        self.run(("read", Kind::Get), key, move |folder, key| folder.read_whole_now(key, most))
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: When,
    ) -> BoxFuture<'a, Result<Option<Version>, ServiceError>> {
        self.run(("write", Kind::Put), key, move |folder, key| {
            folder.write_now(key, &bytes, &when).map(Some)
        })
    }

    fn write_file<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        let path = path.to_owned();
        self.run(("write", Kind::Put), key, move |folder, key| folder.copy_now(key, &path, length))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, ServiceError>> {
        self.run(("list", Kind::List), prefix, |folder, prefix| folder.list_now(prefix))
    }

    fn peek<'a>(
        &'a self,
        prefix: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        self.run(("list", Kind::List), prefix, move |folder, prefix| {
            let mut found = folder.peek_now(prefix)?;
            found.truncate(most);
            Ok(found)
        })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        self.run(("stat", Kind::Head), key, |folder, key| {
            let path = folder.root.join(key);
            match fs_err::metadata(&path) {
                Ok(meta) => Ok(Some(meta.len())),
                Err(error) if is_nothing(&error) => Ok(None),
                Err(error) => Err(PathError::when("stat", &path)(error).into()),
            }
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        self.run(("remove", Kind::Delete), key, |folder, key| {
            Ok(folder.disk().remove(&folder.root.join(key))?)
        })
    }

    fn conditions(&self) -> Conditions {
        Conditions { absent: true, unchanged: true }
    }

    fn keeps_names_apart(&self) -> bool {
        true
    }

    fn must_prove_conditions(&self) -> bool {
        false
    }
}

/// Whether an error says that there is no such object: a folder of refs is none, and
/// below an object there is none.
fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}

fn version_of(bytes: &[u8]) -> Version {
    version_from(blake3::hash(bytes))
}

fn version_from(hash: blake3::Hash) -> Version {
    Version { etag: Some(hash.to_hex().to_string()), generation: None }
}

/// The lock of a folder, held.
struct Locked {
    path: PathBuf,
    _file: std::fs::File,
}

impl Drop for Locked {
    /// Takes the file away while it is locked: others who wait for it find out
    /// that it is not the one that is there. One that stays is used again.
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.path);
    }
}

enum Problem {
    Disk(PathError),
    Conflict,
    Short(u64),
    Long(u64),
    Unsupported,
    Gave(String),
    Service(ServiceError),
}

impl From<PathError> for Problem {
    fn from(error: PathError) -> Self {
        Self::Disk(error)
    }
}

impl Problem {
    fn told(self, operation: &'static str, key: String) -> ServiceError {
        let (what, message) = match self {
            Self::Long(most) => return too_long(&key, most),
            Self::Service(error) => return error,
            Self::Disk(error) => {
                let what = match error.source.kind() {
                    // A ref may have others below it.
                    io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput
                        if operation == "read" && !key.starts_with(REFS) =>
                    {
                        What::NotAFile
                    }
                    _ if is_nothing(&error.source) => What::NotFound,
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        What::Denied
                    }
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => What::Full,
                    _ => What::Other,
                };
                (what, format!("{error}: {}", error.source))
            }
            Self::Conflict => (What::Conflict, String::new()),
            Self::Short(bytes) => (What::Short, format!("it ends {bytes} B early")),
            Self::Unsupported => (What::Unsupported, "not a key".to_owned()),
            Self::Gave(message) => (What::Other, message),
        };
        ServiceError::new(operation, &key, what, message)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn what_killed_pushes_left_goes_with_the_next_one() {
        let place = tempfile::tempdir().unwrap();
        let tmp = place.path().join(TEMPORARY);
        fs_err::create_dir(&tmp).unwrap();
        let [left, written, young] = ["left", "written", "young"].map(|who| {
            let path = tmp.join(unique_name(&format!("{}{who}", sweep::PUT)));
            fs_err::write(&path, "x").unwrap();
            path
        });
        let held = fs_err::File::open(&written).unwrap();
        held.file().lock().unwrap();
        for path in [&left, &written] {
            let file = fs_err::File::open(path).unwrap();
            let before = SystemTime::now() - Duration::from_secs(120);
            file.file().set_modified(before).unwrap();
        }
        let folder = Folder::new(place.path().to_owned(), Arc::default());
        folder.write_now("objects/x", b"x", &When::Always).unwrap_or_else(|_| panic!("written"));
        assert!(!left.exists(), "its writer is dead");
        assert!(written.exists() && young.exists());
    }
}
