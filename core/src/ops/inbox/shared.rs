//! The shared inbox of a store: packs that clients send, and that are not part of the store yet.
//!
//! Each pack is checked on its own and waits in `tmp/staged/`. Once everything that a
//! group of packs refers to is present, they become part of the store together
//! ([`SharedInbox::publish`]).
//!
//! A server and a push into a folder stage packs in the same way, also concurrently. Only the
//! journal is durable; a client that finds a pack gone uploads it again. The next process that
//! stages packs uses the packs of a killed process, and removes packs that were unused for a day.
//! The next writer of the store removes all of them if no process stages packs then
//! ([`SharedInbox::sweep_abandoned`]).
//!
//! | file         | content |
//! |--------------|------|
//! | 64 digits    | a pack under its name |
//! | `publishing` | the journal: names of packs, some of which may be part of the store already |
//! | others       | packs that are being received, and parts of groups |
//!
//! The staging folder itself is locked during a publication. Processes that stage packs hold the
//! file `staged.lock` of the store, shared.

mod abandoned;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::SystemTime,
};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    base::{
        id::{CommitId, PackId},
        io::{PathError, if_exists},
        kind::{ErrorKind, Kind},
        limits,
        observe::{Observer, Silent},
    },
    disk::{Disk, output::folder_of, regular::read_at_most, scratch::create_locked},
    format::{outline, pack::ObjectKind, wire::FormatError},
    ops::inbox::accept::{self, AcceptError, VerifiedPacks},
    repo::{
        Repo,
        refs::RefError,
        roots::{RootChoice, Roots},
    },
    store::{Store, StoreError, pack_stream::hash_file},
};

/// The staging folder within `tmp/` of a store.
const FOLDER: &str = "staged";

/// The journal within the staging folder: packs that are being published together.
const JOURNAL: &str = "publishing";

/// The file of the store that processes lock, shared, while they stage packs.
const LOCK: &str = "staged.lock";

/// The name prefix of packs that are still being received.
const RECEIVING_PREFIX: &str = "pack";

/// The name suffix of a part of a group of outlines.
pub const PART: &str = ".part";

/// The name suffix of a group of outlines.
pub const GROUP: &str = ".group";

/// The result of receiving a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The file was added.
    Added,
    /// The file was present already.
    AlreadyPresent,
}

/// The reason why a received file was refused.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Damaged)]
#[non_exhaustive]
pub enum StagedError {
    /// The bytes do not hash to the name.
    #[error("the hash of the upload differs from its name")]
    Hash,
    /// A received pack is damaged, or has a newer format.
    #[error(transparent)]
    InvalidPack(AcceptError),
    /// A file of outlines cannot be decoded.
    #[error(transparent)]
    #[kind(Damaged)]
    Outlines(#[from] FormatError),
    /// A file that the group or publication names was not uploaded.
    #[error("{name} was not uploaded")]
    #[kind(NotFound)]
    NotSent { name: String },
    /// The commit to which a ref should be set is not in the store.
    #[error("commit {id} is not in the store")]
    #[kind(NotFound)]
    NoCommit { id: CommitId },
    /// The packs cannot be added to the store.
    #[error(transparent)]
    Accept(#[from] AcceptError),
    /// A ref of the store cannot be read.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] PathError),
}

impl StagedError {
    /// Returns true if the sender is at fault. Retrying with the same data will then fail
    /// again.
    pub fn is_client_error(&self) -> bool {
        match self {
            Self::Hash | Self::InvalidPack(_) | Self::Outlines(_) => true,
            Self::NotSent { .. } | Self::NoCommit { .. } => true,
            Self::Accept(error) => matches!(error, AcceptError::Incomplete(_)),
            Self::Ref(_) | Self::Store(_) | Self::Io(_) => false,
        }
    }
}

/// The meaning of an uploaded index file.
#[derive(Debug)]
pub enum IndexUpload {
    /// A part of a group. It waits for the group.
    Part,
    /// These packs must become part of the store.
    Packs(BTreeSet<PackId>),
}

/// The packs that wait to become part of a store.
#[derive(Debug)]
pub struct SharedInbox {
    dir: PathBuf,
    /// The packs of the store.
    objects: PathBuf,
    disk: Disk,
    publishing: Mutex<()>,
    /// The path of [`LOCK`].
    lock_path: PathBuf,
    /// The shared lock of this process on that file, once taken.
    users: OnceLock<File>,
    /// Packs that this process has checked, with the state of their files at that time.
    /// Packs left by an earlier process are checked again, since a power cut may have
    /// damaged them.
    checked: Mutex<HashMap<PackId, FileMark>>,
    /// Packs that this process has published with everything that they refer to.
    complete: Mutex<HashSet<PackId>>,
}

/// File metadata that change when the file is written or replaced: device, inode, length and time.
type FileMark = (u64, u64, u64, i64, i64);

fn mark_of(file: &Metadata) -> FileMark {
    (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec())
}

/// Excludes other threads and processes from publishing packs.
#[derive(Debug)]
pub struct Publishing<'s> {
    _here: MutexGuard<'s, ()>,
    _everywhere: File,
}

impl SharedInbox {
    /// Returns the shared inbox of a store. Changes nothing on disk.
    pub fn new(store: &Store) -> Self {
        let (dir, disk) = (store.dir().join("tmp").join(FOLDER), store.disk().clone());
        let (checked, complete) = (Mutex::default(), Mutex::default());
        let (publishing, users) = (Mutex::new(()), OnceLock::new());
        let (lock_path, objects) = (store.dir().join(LOCK), store.dir().join("objects"));
        Self { dir, objects, disk, publishing, lock_path, users, checked, complete }
    }

    /// Returns the packs that this process has published with everything that they refer
    /// to.
    pub fn complete(&self) -> MutexGuard<'_, HashSet<PackId>> {
        self.complete.lock()
    }

    /// Locks publishing for all other threads and processes.
    ///
    /// # Errors
    /// [`PathError`] when the lock cannot be opened.
    pub fn publishing(&self) -> Result<Publishing<'_>, PathError> {
        let here = self.publishing.lock();
        self.enter()?;
        let folder = fs_err::File::open(&self.dir).map_err(PathError::when("open", &self.dir))?;
        let everywhere = folder.into_parts().0;
        everywhere.lock().map_err(PathError::when("lock", &self.dir))?;
        Ok(Publishing { _here: here, _everywhere: everywhere })
    }

    /// Iterates over the names and lengths of the files in the folder.
    fn files(&self) -> impl Iterator<Item = (String, u64)> {
        let entries = fs_err::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Some((name, entry.metadata().ok()?.len()))
        })
    }

    /// Returns the names and lengths of the staged packs.
    ///
    /// # Errors
    /// [`StagedError::Io`] when a pack cannot be read.
    pub fn list(&self) -> Result<Vec<(String, u64)>, StagedError> {
        let mut listed = Vec::new();
        for (name, bytes) in self.files() {
            if let Ok(id) = name.parse()
                && self.pack(&id)?.is_some()
            {
                listed.push((name, bytes));
            }
        }
        Ok(listed)
    }

    /// Returns the total size in bytes of staged packs and of parts of groups.
    pub fn bytes(&self) -> u64 {
        let waits = |name: &str| name.parse::<PackId>().is_ok() || name.ends_with(PART);
        self.files().filter(|(name, _)| waits(name)).map(|(_, bytes)| bytes).sum()
    }

    /// Returns the path of a staged pack that matches its name. Removes a damaged pack;
    /// keeps a pack that cannot be read at present.
    ///
    /// # Errors
    /// [`StagedError::Io`].
    pub fn pack(&self, id: &PackId) -> Result<Option<PathBuf>, StagedError> {
        let path = self.dir.join(id.to_string());
        let meta = if_exists(fs_err::metadata(&path)).map_err(PathError::when("stat", &path))?;
        let Some(meta) = meta.filter(|meta| meta.is_file()) else { return Ok(None) };
        let mark = mark_of(&meta);
        if self.checked.lock().get(id) == Some(&mark) {
            return Ok(Some(path));
        }
        // The pack was left by another process, or has changed since it was checked.
        match self.check(*id, &path, mark, &Silent) {
            Ok(()) => Ok(Some(path)),
            Err(error) if error.is_client_error() => {
                let _ = self.disk.remove(&path);
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Restarts the time after which these packs are removed.
    pub fn touch(&self, ids: &BTreeSet<PackId>) {
        for id in ids {
            let file = fs_err::File::options().append(true).open(self.dir.join(id.to_string()));
            let Ok(file) = file else { continue };
            let mut checked = self.checked.lock();
            let mark = || file.metadata().map(|meta| mark_of(&meta)).ok();
            let is_checked = checked.contains_key(id) && checked.get(id) == mark().as_ref();
            if file.file().set_modified(SystemTime::now()).is_ok()
                && let Some(mark) = mark().filter(|_| is_checked)
            {
                checked.insert(*id, mark);
            }
        }
    }

    /// Checks that a file is the pack `id`, and that its contents are sound.
    fn check(
        &self,
        id: PackId,
        path: &Path,
        mark: FileMark,
        observer: &dyn Observer,
    ) -> Result<(), StagedError> {
        accept::check(path, id, observer).map_err(|error| match error.kind() {
            ErrorKind::Damaged | ErrorKind::Unsupported => match hash_file(path) {
                Ok(actual) if actual != id => StagedError::Hash,
                _ => StagedError::InvalidPack(error),
            },
            _ => error.into(),
        })?;
        self.checked.lock().insert(id, mark);
        Ok(())
    }

    /// Records durably that these packs are being published together. After a crash, the next
    /// process that writes to this store completes the publication. No client then takes part of an
    /// upload for the whole.
    pub fn journal_begin(&self, ids: &BTreeSet<PackId>) -> Result<(), StagedError> {
        for id in ids {
            self.disk.sync_file(&self.dir.join(id.to_string()))?;
        }
        self.disk.sync_folder(&self.dir)?;
        self.note(&self.journaled()?.union(ids).copied().collect())
    }

    fn note(&self, ids: &BTreeSet<PackId>) -> Result<(), StagedError> {
        let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
        self.write(JOURNAL, text.as_bytes())
    }

    /// Returns packs whose publication has started and may be incomplete.
    ///
    /// # Errors
    /// [`StagedError::Io`] when the journal cannot be read.
    pub fn journaled(&self) -> Result<BTreeSet<PackId>, StagedError> {
        let path = self.dir.join(JOURNAL);
        let text = if_exists(read_at_most(&path, limits::TRUSTED_PACKS_BYTES))
            .map_err(PathError::when("read", &path))?
            .unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Removes packs from the journal after all or none of them were published. If that
    /// fails, the next process only checks them once more.
    pub fn journal_end(&self, ids: &BTreeSet<PackId>) {
        let Ok(begun) = self.journaled() else { return };
        let rest: BTreeSet<PackId> = begun.difference(ids).copied().collect();
        let _ = match rest.is_empty() {
            true => self.disk.remove(&self.dir.join(JOURNAL)).map_err(drop),
            false => self.note(&rest).map_err(drop),
        };
    }

    /// Returns the staging folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes a pack from the inbox.
    pub fn forget(&self, id: &PackId) {
        self.checked.lock().remove(id);
        let _ = self.disk.remove(&self.dir.join(id.to_string()));
    }

    /// Receives a pack, then checks its hash, every frame and every object in it.
    /// The pack becomes part of the store only when it is [published](Self::publish).
    ///
    /// # Errors
    /// [`StagedError::Hash`] and [`StagedError::InvalidPack`] when the bytes do not match the
    /// name, the errors of `pieces`, and [`StagedError::Io`]. Nothing is kept then.
    pub fn receive<B: AsRef<[u8]>, E: From<StagedError>>(
        &self,
        id: PackId,
        pieces: impl Iterator<Item = Result<B, E>>,
        observer: &dyn Observer,
    ) -> Result<Received, E> {
        if self.pack(&id)?.is_some() {
            return Ok(Received::AlreadyPresent);
        }
        let io = StagedError::from;
        self.enter().map_err(io)?;
        self.sweep();
        // The file is removed on drop unless it is kept.
        let mut file = create_locked(&self.disk, &self.dir, RECEIVING_PREFIX).map_err(io)?;
        let path = file.path().to_owned();
        for piece in pieces {
            file.write(piece?.as_ref()).map_err(io)?;
        }
        self.keep(id, &path, observer)?;
        file.keep();
        Ok(Received::Added)
    }

    /// Stages a complete file, if it is the pack `id` and its contents are sound.
    ///
    /// # Errors
    /// [`StagedError::Hash`] and [`StagedError::InvalidPack`] when the file is not this pack or is
    /// damaged. The file then stays where it is.
    fn keep(&self, id: PackId, path: &Path, observer: &dyn Observer) -> Result<(), StagedError> {
        let file = fs_err::metadata(path).map_err(PathError::when("stat", path))?;
        self.check(id, path, mark_of(&file), observer)?;
        Ok(self.disk.replace(path, &self.dir.join(id.to_string()))?)
    }

    /// Writes a small file durably. The temporary file of a killed process is in `tmp/`, where a sweep
    /// removes it.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StagedError> {
        Ok(self.disk.write_whole(folder_of(&self.dir), &self.dir.join(name), bytes)?)
    }

    /// Reads a part of a group and verifies its hash, since a power cut may have damaged
    /// it.
    fn part(&self, name: &str) -> Result<Vec<u8>, StagedError> {
        let missing = || StagedError::NotSent { name: name.to_owned() };
        let path = self.dir.join(name);
        let bytes = read_at_most(&path, limits::REMOTE_INDEX_BYTES);
        let bytes = bytes.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(),
            _ => PathError::when("read", &path)(error).into(),
        })?;
        if blake3::hash(&bytes).to_hex().as_str() != name.trim_end_matches(PART) {
            let _ = self.disk.remove(&path);
            return Err(missing());
        }
        Ok(bytes)
    }

    /// Returns the meaning of an index file that was uploaded as `name`. A part of a
    /// group is only stored.
    ///
    /// # Errors
    /// [`StagedError::Hash`], [`StagedError::Outlines`], [`StagedError::NotSent`] for a
    /// missing part of a group, [`StagedError::Io`].
    pub fn read_index_file(&self, name: &str, bytes: &[u8]) -> Result<IndexUpload, StagedError> {
        let hash = name.trim_end_matches(PART).trim_end_matches(GROUP);
        if blake3::hash(bytes).to_hex().as_str() != hash {
            return Err(StagedError::Hash);
        }
        let ids = |bytes: &[u8]| -> Result<BTreeSet<PackId>, StagedError> {
            Ok(outline::decode(bytes)?.outlines.iter().map(|outline| outline.id).collect())
        };
        if name.ends_with(PART) {
            ids(bytes)?;
            // Keep the part until the group arrives.
            self.enter()?;
            self.sweep();
            self.write(name, bytes)?;
            return Ok(IndexUpload::Part);
        }
        if !name.ends_with(GROUP) {
            return Ok(IndexUpload::Packs(ids(bytes)?));
        }
        let parts: BTreeSet<_> = outline::decode_group(bytes)?.parts.into_iter().collect();
        let mut all = BTreeSet::new();
        for part in parts {
            all.append(&mut ids(&self.part(&format!("{part}{PART}"))?)?);
        }
        Ok(IndexUpload::Packs(all))
    }
}

/// Returns the packs of `ids` that are not part of the store. Damaged and partial packs do not count
/// as part of it.
fn lacking(store: &Store, ids: &BTreeSet<PackId>) -> BTreeSet<PackId> {
    let is_lacking = |id: &PackId| store.is_damaged(id) || store.is_partial(id);
    let packs = store.packs().into_iter().filter(|id| !is_lacking(id));
    ids.difference(&packs.collect()).copied().collect()
}

fn not_sent(id: &PackId) -> StagedError {
    StagedError::NotSent { name: format!("pack {id}") }
}

/// Returns the commits that branches and tags of a store point at. Damaged refs are
/// skipped, since tips only shorten a walk.
///
/// # Errors
/// [`RefError::Io`].
pub fn tips(repo: &Repo) -> Result<Vec<CommitId>, RefError> {
    Ok(Roots::read(repo, RootChoice::Shared)?.commits().into_iter().collect())
}

impl SharedInbox {
    /// Publishes staged packs, if they are sound and everything that they refer to is present.
    /// Returns the packs that were new to the store.
    ///
    /// # Errors
    /// [`StagedError::NotSent`], [`StagedError::Accept`]. The store is then unchanged,
    /// unless the disk failed.
    pub fn publish(
        &self,
        repo: &Repo,
        ids: &BTreeSet<PackId>,
        observer: &dyn Observer,
    ) -> Result<BTreeSet<PackId>, StagedError> {
        self.publish_under(&mut None, repo, ids, observer)
    }

    /// As [`SharedInbox::publish`]. Takes the publishing lock if `lock` does not hold it.
    fn publish_under<'s>(
        &'s self,
        lock: &mut Option<Publishing<'s>>,
        repo: &Repo,
        ids: &BTreeSet<PackId>,
        observer: &dyn Observer,
    ) -> Result<BTreeSet<PackId>, StagedError> {
        let store = repo.store();
        let is_locked = lock.is_some();
        // The packs may come from a killed process, and no other process may remove them now.
        self.enter()?;
        loop {
            store.refresh()?;
            let new = self.sent_of(store, ids)?;
            let new_ids: BTreeSet<PackId> = new.iter().map(|(id, _)| *id).collect();
            if new.is_empty() {
                return Ok(new_ids);
            }
            self.touch(&new_ids);
            let prepared = accept::prepare(store, &new, &tips(repo)?, observer);
            if prepared.as_ref().is_err_and(AcceptError::may_be_damage) {
                self.check_again(&new_ids);
            }
            if lock.is_none() {
                *lock = Some(self.publishing()?);
            }
            store.refresh()?;
            // Another process may have published some of the packs meanwhile.
            let lacking = lacking(store, &new_ids);
            if prepared.is_err() && !lacking.is_empty() && lacking.len() < new_ids.len() {
                // The check may have failed because another process published packs and
                // removed their staged files. Try again without those.
                if !is_locked {
                    *lock = None;
                }
                continue;
            }
            if !lacking.is_empty() {
                let prepared = prepared?;
                for id in &lacking {
                    // If the file has changed since the check, `pack` verifies it again.
                    self.pack(id)?.ok_or_else(|| not_sent(id))?;
                }
                self.adopt(&lacking, prepared, observer)?;
            }
            return Ok(lacking);
        }
    }

    /// Makes [`Self::pack`] check packs again, because they may have been damaged since.
    pub fn check_again(&self, ids: &BTreeSet<PackId>) {
        self.checked.lock().retain(|id, _| !ids.contains(id));
    }

    /// Returns the packs of `ids` that were received and are not part of the store yet.
    fn sent_of(
        &self,
        store: &Store,
        ids: &BTreeSet<PackId>,
    ) -> Result<Vec<(PackId, PathBuf)>, StagedError> {
        let mut sent = Vec::new();
        for id in lacking(store, ids) {
            if let Some(path) = self.pack(&id)? {
                sent.push((id, path));
                continue;
            }
            // Another push may have published the pack meanwhile.
            store.refresh()?;
            if !lacking(store, &BTreeSet::from([id])).is_empty() {
                return Err(not_sent(&id));
            }
        }
        Ok(sent)
    }

    fn adopt(
        &self,
        new: &BTreeSet<PackId>,
        prepared: VerifiedPacks<'_>,
        observer: &dyn Observer,
    ) -> Result<(), StagedError> {
        let is_at_once = new.len() == 1;
        if !is_at_once {
            self.journal_begin(new)?;
        }
        if let Err(error) = prepared.adopt(observer) {
            // If the store may have changed, keep the journal: the next writer completes
            // the publication.
            if !is_at_once && error.changed_nothing() {
                self.journal_end(new);
            }
            return Err(error.into());
        }
        self.complete().extend(new);
        new.iter().for_each(|id| self.forget(id));
        if !is_at_once {
            self.journal_end(new);
        }
        Ok(())
    }

    /// Completes a publication that a killed process started. Some of its packs may be
    /// part of the store already.
    ///
    /// # Errors
    /// As [`SharedInbox::publish`]. If packs are missing or damaged, the journal entry is
    /// removed and not tried again.
    pub fn resume_publication(&self, repo: &Repo) -> Result<(), StagedError> {
        // Most stores have no journal. Check it first, since a read-only store cannot be
        // locked.
        if self.journaled()?.is_empty() {
            return Ok(());
        }
        let mut lock = Some(self.publishing()?);
        // The process that wrote the journal may have finished meanwhile.
        let begun = self.journaled()?;
        if begun.is_empty() {
            return Ok(());
        }
        // The limit on bytes was enforced when the publication started.
        let done = self.publish_under(&mut lock, repo, &begun, &Silent).map(drop);
        match &done {
            Ok(()) => begun.iter().for_each(|id| self.forget(id)),
            Err(error) if error.is_client_error() => {}
            Err(_) => return done,
        }
        self.journal_end(&begun);
        done
    }

    /// Checks that the store has a commit and everything that it refers to. This is known if the
    /// commit came in a published pack or is reachable from refs. Otherwise the whole commit is
    /// walked, since it may be left over from an interrupted transfer. In a partial clone,
    /// everything must be in whole packs: clients can read nothing else.
    ///
    /// # Errors
    /// [`StagedError::NoCommit`], [`StagedError::Accept`].
    pub fn check_commit_complete(&self, repo: &Repo, id: &CommitId) -> Result<(), StagedError> {
        let store = repo.store();
        store.refresh()?;
        let missing = || StagedError::NoCommit { id: *id };
        let place = store.locate(&id.object())?.ok_or_else(missing)?;
        if place.kind != ObjectKind::Commit {
            return Err(missing());
        }
        // Clients read whole packs only. In a partial clone, neither a ref nor a published pack
        // proves that everything is here.
        let is_partial = store.has_partial();
        let pack = store.pack_id(place.pack);
        if !is_partial && pack.is_some_and(|pack| self.complete().contains(&pack)) {
            return Ok(());
        }
        store.commit(id).map_err(|error| match error {
            StoreError::Missing { .. } | StoreError::WrongKind { .. } => missing(),
            // The bytes hash to the id but are not a commit.
            StoreError::Object { .. } => missing(),
            error => error.into(),
        })?;
        let tips = if is_partial { Vec::new() } else { tips(repo)? };
        Ok(accept::check_commit(store, id, &tips, is_partial, &Silent)?)
    }
}

/// Returns true if a pack of the store that a client uploads again matches its name. A
/// client uploads only packs that it believes missing, so the pack is read. A damaged
/// pack is shadowed, and the uploaded pack replaces it.
///
/// # Errors
/// [`StoreError`] when the pack cannot be read.
pub fn is_sound(store: &Store, id: &PackId) -> Result<bool, StoreError> {
    let path = store.pack_path(id);
    let actual = match hash_file(&path) {
        Ok(actual) => actual,
        Err(error) if error.is_not_found() => {
            store.refresh()?;
            return Ok(store.packs().contains(id));
        }
        Err(error) => return Err(error.into()),
    };
    if actual != *id {
        store.shadow_damage(&StoreError::PackHash { pack: *id, actual })?;
    }
    Ok(actual == *id)
}
