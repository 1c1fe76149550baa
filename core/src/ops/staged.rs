//! Packs that were sent to a store and are no part of it yet: each was checked on
//! its own, and waits in `tmp/staged/`. Once all that they refer to is there they
//! become part of the store together ([`Staged::publish`]).
//!
//! A server and a push into a folder stage packs alike, also beside each other.
//! Nothing here is durable but the journal; a client that finds a pack gone sends
//! it again. What nobody wants for a day is removed, and what a killed process left in
//! part after a minute.
//!
//! | file         | what |
//! |--------------|------|
//! | 64 digits    | a pack under its name |
//! | `publishing` | the journal: names of packs of which some may be part of the store, and others not yet |
//! | others       | what a server has received in part ([`Staged::dir`]) |
//!
//! The folder itself is locked while packs become part of the store.

use std::{
    collections::{BTreeSet, HashSet},
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use crate::{
    base::{
        id::{CommitId, PackId},
        io::PathError,
        kind::ErrorKind,
        observe::{Observer, Silent},
    },
    disk::{Disk, scratch::unique_name},
    format::{outline, wire::FormatError},
    ops::accept::{self, AcceptError, Prepared},
    repo::{Repo, ref_name::RefKind, refs::RefError},
    store::{Store, StoreError, sweep},
};

/// Folder in `tmp/` of a store.
const FOLDER: &str = "staged";

/// File in it with the names of packs that come to count together.
const JOURNAL: &str = "publishing";

/// What names of packs begin with that are still coming.
const COMING: &str = "pack";

/// What names of parts of a group of outlines end with.
pub const PART: &str = ".part";

/// What names of groups of outlines end with.
pub const GROUP: &str = ".group";

/// How long something waits to be wanted.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// What became of something that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is there now.
    New,
    /// It was there.
    Known,
}

/// Why something that was sent is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StagedError {
    /// It is not what its name says.
    #[error("the bytes do not hash to the name")]
    Hash,
    /// A pack that was sent is damaged, or of a newer format.
    #[error(transparent)]
    Wrong(AcceptError),
    /// A file of outlines cannot be read.
    #[error(transparent)]
    Outlines(#[from] FormatError),
    /// Something that it names was not sent before.
    #[error("{name} was not sent")]
    NotSent {
        /// What.
        name: String,
    },
    /// A ref is to be set to a commit that is not there.
    #[error("there is no commit {id} here")]
    NoCommit {
        /// Which.
        id: CommitId,
    },
    /// Packs cannot become part of the store.
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
    /// Whether the sender is at fault, so that the same will not go well later.
    pub fn is_theirs(&self) -> bool {
        match self {
            Self::Hash | Self::Wrong(_) | Self::Outlines(_) => true,
            Self::NotSent { .. } | Self::NoCommit { .. } => true,
            Self::Accept(error) => {
                matches!(error, AcceptError::Incomplete(_) | AcceptError::Damaged(_))
            }
            Self::Ref(_) | Self::Store(_) | Self::Io(_) => false,
        }
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Hash | Self::Outlines(_) => ErrorKind::Damaged,
            Self::NotSent { .. } | Self::NoCommit { .. } => ErrorKind::NotFound,
            Self::Wrong(error) | Self::Accept(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Io(error) => error.kind(),
        }
    }
}

/// What a file of the index that was sent says.
#[derive(Debug)]
pub enum Told {
    /// It is a part of a group, and was kept for it.
    Part(Sent),
    /// These packs are to become part of the store.
    Packs(BTreeSet<PackId>),
}

/// What waits to count.
#[derive(Debug)]
pub struct Staged {
    dir: PathBuf,
    disk: Disk,
    publishing: Mutex<()>,
    /// Packs that this process has checked. Others were left by one before, and
    /// what is left of them after a power cut is not sure.
    checked: Mutex<HashSet<PackId>>,
    /// Packs that this process has taken in with all that they refer to.
    complete: Mutex<HashSet<PackId>>,
}

/// Keeps others from making packs count, in this process and in others.
#[derive(Debug)]
pub struct Publishing<'s> {
    _here: MutexGuard<'s, ()>,
    _everywhere: File,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Staged {
    /// What waits for a store; changes nothing.
    pub fn new(store: &Store) -> Self {
        let (dir, disk) = (store.dir().join("tmp").join(FOLDER), store.disk().clone());
        let (checked, complete) = (Mutex::default(), Mutex::default());
        Self { dir, disk, publishing: Mutex::new(()), checked, complete }
    }

    fn checked(&self) -> MutexGuard<'_, HashSet<PackId>> {
        lock(&self.checked)
    }

    /// Packs that this process has taken in with all that they refer to.
    pub fn complete(&self) -> MutexGuard<'_, HashSet<PackId>> {
        lock(&self.complete)
    }

    /// Keeps others from making packs count meanwhile.
    ///
    /// # Errors
    /// [`PathError`] when the lock cannot be opened.
    pub fn publishing(&self) -> Result<Publishing<'_>, PathError> {
        let here = lock(&self.publishing);
        self.disk.create_folders(&self.dir)?;
        let folder = fs_err::File::open(&self.dir).map_err(PathError::when("open", &self.dir))?;
        let everywhere = folder.into_parts().0;
        everywhere.lock().map_err(PathError::when("lock", &self.dir))?;
        Ok(Publishing { _here: here, _everywhere: everywhere })
    }

    /// Packs that wait, and their lengths.
    /// # Errors
    /// [`StagedError::Io`] when one cannot be read.
    pub fn list(&self) -> Result<Vec<(String, u64)>, StagedError> {
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
    pub fn bytes(&self) -> u64 {
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
    /// [`StagedError::Io`].
    pub fn pack(&self, id: &PackId) -> Result<Option<PathBuf>, StagedError> {
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
            Err(error) if error.is_theirs() => {
                let _ = fs_err::remove_file(&path);
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has packs checked again when they are next asked for.
    pub fn check_again(&self, ids: &BTreeSet<PackId>) {
        self.checked().retain(|id| !ids.contains(id));
    }

    /// Has packs wait for as long as if they had just come.
    pub fn keep_on(&self, ids: &BTreeSet<PackId>) {
        for id in ids {
            let file = fs_err::File::options().append(true).open(self.dir.join(id.to_string()));
            let _ = file.and_then(|file| file.file().set_modified(SystemTime::now()));
        }
    }

    /// Checks a pack that another process has left.
    fn look_again(&self, id: &PackId, path: &Path) -> Result<(), StagedError> {
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
    ) -> Result<(), StagedError> {
        if *hash.as_bytes() != *id.as_bytes() {
            return Err(StagedError::Hash);
        }
        accept::check(path, id, observer).map_err(|error| match error.kind() {
            ErrorKind::Damaged | ErrorKind::Unsupported => StagedError::Wrong(error),
            _ => error.into(),
        })?;
        self.checked().insert(id);
        Ok(())
    }

    /// Notes, durably, that these packs come to count together. Whoever serves
    /// this store next goes on with it, so that no client sees a part of what
    /// was sent and takes it for the whole.
    pub fn begin(&self, ids: &BTreeSet<PackId>) -> Result<(), StagedError> {
        for id in ids {
            self.disk.sync_file(&self.dir.join(id.to_string()))?;
        }
        self.disk.sync_folder(&self.dir)?;
        self.note(&self.begun()?.union(ids).copied().collect())
    }

    fn note(&self, ids: &BTreeSet<PackId>) -> Result<(), StagedError> {
        let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let temporary = self.dir.join(unique_name(JOURNAL));
        Ok(self.disk.write_whole(&temporary, &self.dir.join(JOURNAL), text.as_bytes())?)
    }

    /// Packs that came to count together, and not all may.
    ///
    /// # Errors
    /// [`StagedError::Io`] when that cannot be read.
    pub fn begun(&self) -> Result<BTreeSet<PackId>, StagedError> {
        let path = self.dir.join(JOURNAL);
        match fs_err::read_to_string(&path) {
            Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(PathError::when("read", &path)(error).into()),
        }
    }

    /// All of them count now, or none does. When that cannot be noted they are
    /// looked at once more than they need be.
    pub fn end(&self, ids: &BTreeSet<PackId>) {
        let Ok(begun) = self.begun() else { return };
        let rest: BTreeSet<PackId> = begun.difference(ids).copied().collect();
        let _ = match rest.is_empty() {
            true => fs_err::remove_file(self.dir.join(JOURNAL)).map_err(drop),
            false => self.note(&rest).map_err(drop),
        };
    }

    /// Where it waits.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What changes it.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// It waits no more.
    pub fn forget(&self, id: &PackId) {
        self.checked().remove(id);
        let _ = fs_err::remove_file(self.dir.join(id.to_string()));
    }

    /// Takes a pack: hashes it as it comes, then checks every frame and every object
    /// in it. It does not count before it is [published](Self::publish).
    ///
    /// # Errors
    /// [`StagedError::Hash`] and [`StagedError::Wrong`] when it is not what its name
    /// says, those of `pieces`, [`StagedError::Io`]; nothing is left of it then.
    pub fn receive<B: AsRef<[u8]>, E: From<StagedError>>(
        &self,
        id: PackId,
        pieces: impl Iterator<Item = Result<B, E>>,
        observer: &dyn Observer,
    ) -> Result<Sent, E> {
        if self.pack(&id)?.is_some() {
            return Ok(Sent::Known);
        }
        let io = StagedError::from;
        self.disk.create_folders(&self.dir).map_err(io)?;
        self.sweep();
        let path = self.dir.join(unique_name(COMING));
        // Goes unless it is kept. Locked, so that what a killed process leaves is told from
        // it.
        let mut file = self.disk.create(&path).map_err(io)?;
        let _ = file.file().try_lock();
        let mut hasher = blake3::Hasher::new();
        for piece in pieces {
            let piece = piece?;
            hasher.update(piece.as_ref());
            file.write(piece.as_ref()).map_err(io)?;
        }
        self.keep(id, hasher.finalize(), &path, observer)?;
        file.keep();
        Ok(Sent::New)
    }

    /// Has a file wait that has come whole and hashes to that, if it is the pack
    /// of that name and all in it is what it says.
    ///
    /// # Errors
    /// [`StagedError::Hash`] and [`StagedError::Wrong`] when it is not; the file is
    /// then where it was.
    pub fn keep(
        &self,
        id: PackId,
        hash: blake3::Hash,
        path: &Path,
        observer: &dyn Observer,
    ) -> Result<(), StagedError> {
        self.check(id, hash, path, observer)?;
        Ok(self.disk.replace(path, &self.dir.join(id.to_string()))?)
    }

    /// Keeps a part of a group until its group comes.
    fn keep_part(&self, name: &str, bytes: &[u8]) -> Result<Sent, StagedError> {
        self.disk.create_folders(&self.dir)?;
        self.sweep();
        let temporary = self.dir.join(unique_name("part"));
        self.disk.write_whole(&temporary, &self.dir.join(name), bytes)?;
        Ok(Sent::New)
    }

    fn part(&self, name: &str) -> Result<Vec<u8>, StagedError> {
        let missing = || StagedError::NotSent { name: name.to_owned() };
        fs_err::read(self.dir.join(name)).map_err(|_| missing())
    }

    /// Says what a file of the index that was sent under `name` tells of. A part of a
    /// group is only kept for it.
    ///
    /// # Errors
    /// [`StagedError::Hash`], [`StagedError::Outlines`], [`StagedError::NotSent`] for a
    /// part of a group, [`StagedError::Io`].
    pub fn told(&self, name: &str, bytes: &[u8]) -> Result<Told, StagedError> {
        let hash = name.trim_end_matches(PART).trim_end_matches(GROUP);
        if blake3::hash(bytes).to_hex().as_str() != hash {
            return Err(StagedError::Hash);
        }
        let ids = |bytes: &[u8]| -> Result<BTreeSet<PackId>, StagedError> {
            Ok(outline::decode(bytes)?.iter().map(|outline| outline.id).collect())
        };
        if name.ends_with(PART) {
            ids(bytes)?;
            return Ok(Told::Part(self.keep_part(name, bytes)?));
        }
        if !name.ends_with(GROUP) {
            return Ok(Told::Packs(ids(bytes)?));
        }
        let parts: BTreeSet<_> = outline::decode_group(bytes)?.into_iter().collect();
        let mut all = BTreeSet::new();
        for part in parts {
            all.append(&mut ids(&self.part(&format!("{part}{PART}"))?)?);
        }
        Ok(Told::Packs(all))
    }

    /// Removes what has waited for too long, and what killed processes have left.
    /// Failures do not matter: the next one tries again.
    pub fn sweep(&self) {
        let Ok(entries) = fs_err::read_dir(&self.dir) else { return };
        let Ok(begun) = self.begun() else { return };
        let begun: HashSet<String> = begun.iter().map(PackId::to_string).collect();
        let is_wanted = |name: &str| name == JOURNAL || begun.contains(name);
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(is_wanted) {
                continue;
            }
            let is_coming = entry.file_name().as_encoded_bytes().starts_with(COMING.as_bytes());
            if is_coming && sweep::is_abandoned(&entry.path()) {
                let _ = fs_err::remove_file(entry.path());
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

/// Packs of `ids` that are no part of the store. One that is damaged there is none.
fn lacking(store: &Store, ids: &BTreeSet<PackId>) -> BTreeSet<PackId> {
    let packs = store.packs().into_iter();
    let there: BTreeSet<PackId> =
        packs.filter(|id| !store.is_damaged(id) && !store.is_partial(id)).collect();
    ids.difference(&there).copied().collect()
}

/// Commits that refs of a store point at.
fn tips(repo: &Repo) -> Result<Vec<CommitId>, RefError> {
    let mut tips = Vec::new();
    for kind in [RefKind::Branch, RefKind::Tag] {
        tips.extend(repo.refs().list(kind)?.into_iter().map(|(_, id)| id));
    }
    Ok(tips)
}

impl Staged {
    /// Makes packs that wait part of the store, if they are right and all is there
    /// that they refer to. No more than `most` bytes of contents that were cut are
    /// read for that. Returns those that were no part of it.
    ///
    /// # Errors
    /// [`StagedError::NotSent`], [`StagedError::Accept`]: nothing has changed then,
    /// unless the disk failed.
    pub fn publish(
        &self,
        repo: &Repo,
        ids: &BTreeSet<PackId>,
        most: u64,
        observer: &dyn Observer,
    ) -> Result<BTreeSet<PackId>, StagedError> {
        let store = repo.store();
        store.refresh()?;
        let mut new = Vec::new();
        for id in lacking(store, ids) {
            match self.pack(&id)? {
                Some(path) => new.push((id, path)),
                None => {
                    // Another push may have had it count just now.
                    store.refresh()?;
                    if !lacking(store, &BTreeSet::from([id])).is_empty() {
                        return Err(StagedError::NotSent { name: format!("pack {id}") });
                    }
                }
            }
        }
        let new_ids: BTreeSet<PackId> = new.iter().map(|(id, _)| *id).collect();
        if new.is_empty() {
            return Ok(new_ids);
        }
        self.keep_on(&new_ids);
        let prepared = accept::prepare(store, &new, (&tips(repo)?, most), observer);
        let one_at_a_time = self.publishing()?;
        store.refresh()?;
        // Others may have had some of them count meanwhile.
        let lacking = lacking(store, &new_ids);
        if prepared.is_err() && !lacking.is_empty() && lacking.len() < new_ids.len() {
            // They may have gone while they were looked at: once more, without those.
            drop(one_at_a_time);
            return self.publish(repo, ids, most, observer);
        }
        if !lacking.is_empty() {
            self.adopt(&lacking, prepared?, observer)?;
        }
        Ok(lacking)
    }

    fn adopt(
        &self,
        new: &BTreeSet<PackId>,
        prepared: Prepared<'_>,
        observer: &dyn Observer,
    ) -> Result<(), StagedError> {
        let is_at_once = new.len() == 1;
        if !is_at_once {
            self.begin(new)?;
        }
        if let Err(error) = prepared.adopt(observer) {
            // Else some may count by now: the next writer goes on.
            if !is_at_once && error.changed_nothing() {
                self.end(new);
            }
            return Err(error.into());
        }
        self.complete().extend(new);
        new.iter().for_each(|id| self.forget(id));
        if !is_at_once {
            self.end(new);
        }
        Ok(())
    }

    /// Goes on with what a writer was at when it was killed: packs of which some
    /// count, and some do not yet.
    ///
    /// # Errors
    /// As [`Staged::publish`]. What is missing or wrong is not tried again.
    pub fn go_on(&self, repo: &Repo) -> Result<(), StagedError> {
        let begun = self.begun()?;
        if begun.is_empty() {
            return Ok(());
        }
        // It was found to be no more than is checked when it came.
        match self.publish(repo, &begun, u64::MAX, &Silent) {
            Ok(_) => begun.iter().for_each(|id| self.forget(id)),
            Err(error) if error.is_theirs() => {
                self.end(&begun);
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        self.end(&begun);
        Ok(())
    }

    /// Checks that a commit is in the store with all that it refers to. It is, if it
    /// came in a pack that was taken in, or refs reach it; else all of it is walked,
    /// since it may be left from something that did not come to its end.
    ///
    /// # Errors
    /// [`StagedError::NoCommit`], [`StagedError::Accept`].
    pub fn check_whole(&self, repo: &Repo, id: &CommitId) -> Result<(), StagedError> {
        let store = repo.store();
        store.refresh()?;
        let missing = || StagedError::NoCommit { id: *id };
        let place = store.locate(&id.object())?.ok_or_else(missing)?;
        let pack = store.pack_id(place.pack);
        if pack.is_some_and(|pack| self.complete().contains(&pack)) {
            return Ok(());
        }
        store.commit(id).map_err(|_| missing())?;
        Ok(accept::check_commit(store, id, &tips(repo)?, &Silent)?)
    }
}

/// Whether a pack of the store that somebody sends is what its name says. Nobody
/// sends what he takes to be there, so it is read; one that is lost or damaged is
/// not relied on any more, and what is sent takes its place.
///
/// # Errors
/// [`StoreError`] when it cannot be read.
pub fn is_sound(store: &Store, id: &PackId) -> Result<bool, StoreError> {
    let path = store.pack_path(id);
    let actual = match hash_of(&path) {
        Ok(hash) => PackId::from_bytes(*hash.as_bytes()),
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

/// What the bytes of a file hash to.
///
/// # Errors
/// [`PathError`] when it cannot be read.
pub fn hash_of(path: &Path) -> Result<blake3::Hash, PathError> {
    let mut hasher = blake3::Hasher::new();
    let file = fs_err::File::open(path).map_err(PathError::when("open", path))?;
    hasher.update_reader(file).map_err(PathError::when("read", path))?;
    Ok(hasher.finalize())
}
