//! The folder of what is kept of an upstream, and how long it may become.
//!
//! ```text
//! ABOVE/HASH OF THE LOCATION/
//!   lock                     held by the server that uses it; another one takes HASH.1, and so on
//!   form                     what lies upstream, as was last seen
//!   NAME/store, NAME/mirror  of each repository, `/` being `%2F`
//! ```
//!
//! When packs take more than they may, those go that nobody has asked for the
//! longest: stubs take their place.

use std::{
    collections::HashMap,
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use snap_core::{
    base::{id::PackId, io::PathError},
    disk::{Access, Disk},
    repo::{Repo, config},
};

use super::Form;

/// Servers of one upstream that share a folder of caches.
const SHARES: usize = 64;

/// So much of what it may hold is left when it was full, in tenths.
const LEFT: u64 = 9;

/// What came in part and was written to since stays.
const FRESH: Duration = Duration::from_secs(10);

/// Where no room could be made it is not tried again before.
const PAUSE: Duration = Duration::from_secs(1);

/// So much of the disk stays free for what is small: refs, stubs, marks.
const SPARE_BYTES: u64 = 1 << 20;

/// Room that is made when something did not fit.
const RELIEF_BYTES: u64 = 16 << 20;

/// Stubs with no more than that stay.
const STUB_BYTES: u64 = 64 << 10;

/// Digits of a hash that name a folder.
const DIGITS: usize = 32;

/// File that the server locks which uses the folder.
const LOCK: &str = "lock";

/// Folder of packs in `cache/` of a store that are not upstream yet.
pub(super) const PENDING: &str = "pending";

/// What was looked for in it.
#[derive(Debug, Default)]
pub struct Lookups {
    found: AtomicU64,
    missed: AtomicU64,
}

impl Lookups {
    /// It was there, or not.
    pub(super) fn count(&self, was_here: bool) {
        let counter = if was_here { &self.found } else { &self.missed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was there.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// How often it had to come.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// The folder.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    most_bytes: u64,
    used_bytes: AtomicU64,
    open: Mutex<HashMap<PathBuf, Kept>>,
    /// When no room could be made.
    trimming: Mutex<Option<Instant>>,
    /// When no room could be made on the disk.
    no_room: Mutex<Option<Instant>>,
    /// Whole packs that somebody wanted.
    packs: Lookups,
    /// Frames of packs that are not here whole.
    frames: Lookups,
    lock: Mutex<File>,
}

/// A store that is open, or about to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) repo: Weak<Repo>,
    /// Those that add packs to it just now, which have no marks yet.
    pub(super) adopting: Arc<AtomicUsize>,
}

/// A store that is being opened: meanwhile nothing of it goes.
pub(super) struct Opening<'c> {
    cache: &'c Cache,
    store: &'c Path,
    is_open: bool,
}

impl Opening<'_> {
    /// It is open from now on.
    pub(super) fn opened(mut self, kept: Kept) {
        self.cache.stores().insert(self.store.to_owned(), kept);
        self.is_open = true;
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.is_open {
            self.cache.stores().remove(self.store);
        }
    }
}

/// A pack that takes room.
struct Pack {
    used: SystemTime,
    bytes: u64,
    /// Whether anything would be gained.
    may_go: bool,
    path: PathBuf,
    id: PackId,
    store: PathBuf,
}

impl Cache {
    /// The folder in `above` for the upstream that `key` stands for, with packs
    /// of about `most_bytes`.
    ///
    /// # Errors
    /// [`PathError`] when it cannot be made or used.
    pub fn open(above: &Path, key: &str, most_bytes: u64) -> Result<Self, PathError> {
        let hash = &blake3::hash(key.as_bytes()).to_hex()[..DIGITS];
        let mut full = None;
        for number in 0..SHARES {
            let root = match number {
                0 => above.join(hash),
                _ => above.join(format!("{hash}.{number}")),
            };
            Disk::default().with_access(Access::PRIVATE).create_folders(&root)?;
            let path = root.join(LOCK);
            match take(&path)? {
                Some(lock) => {
                    let cache = Self {
                        root,
                        most_bytes,
                        used_bytes: AtomicU64::new(0),
                        open: Mutex::default(),
                        trimming: Mutex::default(),
                        no_room: Mutex::default(),
                        packs: Lookups::default(),
                        frames: Lookups::default(),
                        lock: Mutex::new(lock),
                    };
                    cache.trim();
                    return Ok(cache);
                }
                None => full = Some(path),
            }
        }
        let path = full.unwrap_or_else(|| above.to_owned());
        Err(PathError::when("lock", &path)(io::Error::from(io::ErrorKind::WouldBlock)))
    }

    /// Makes the folder anew where somebody has removed it: all in it is derived.
    ///
    /// # Errors
    /// [`PathError`] when it cannot be made, or another server has made and taken
    /// it meanwhile.
    pub fn restore(&self) -> Result<(), PathError> {
        let path = self.root.join(LOCK);
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let inode = |meta: Metadata| (meta.dev(), meta.ino());
        let ours = lock.metadata().map_err(PathError::when("stat", &path))?;
        if fs_err::metadata(&path).is_ok_and(|there| inode(there) == inode(ours)) {
            return Ok(());
        }
        Disk::default().with_access(Access::PRIVATE).create_folders(&self.root)?;
        let taken = take(&path)?.ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock));
        *lock = taken.map_err(PathError::when("lock", &path))?;
        tracing::warn!("the cache of the upstream was removed: it is made anew");
        Ok(())
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whole packs that were looked for in it.
    pub fn packs(&self) -> &Lookups {
        &self.packs
    }

    /// Frames that were looked for in packs that are not in it whole.
    pub fn frames(&self) -> &Lookups {
        &self.frames
    }

    /// Folder of a repository.
    pub(super) fn of(&self, name: &str) -> PathBuf {
        self.root.join(name.replace('/', "%2F"))
    }

    /// Names of the repositories that are known here.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .folders()
            .into_iter()
            .filter(|folder| folder.join("store").join(config::FILE).is_file())
            .filter_map(|folder| Some(folder.file_name()?.to_str()?.replace("%2F", "/")))
            .collect();
        names.sort_unstable();
        names
    }

    fn folders(&self) -> Vec<PathBuf> {
        let entries = fs_err::read_dir(&self.root).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// What lay upstream when it was last seen.
    pub(super) fn form(&self) -> Option<Form> {
        match fs_err::read_to_string(self.root.join("form")).ok()?.as_str() {
            "store" => Some(Form::Store),
            "folder" => Some(Form::Folder),
            _ => None,
        }
    }

    /// Remembers that. Where that fails it is asked again.
    pub(super) fn remember_form(&self, form: Form) {
        let text = match form {
            Form::Store => "store",
            Form::Folder => "folder",
        };
        let _ = fs_err::write(self.root.join("form"), text);
    }

    fn stores(&self) -> MutexGuard<'_, HashMap<PathBuf, Kept>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A store in it is about to be opened.
    pub(super) fn opening<'c>(&'c self, store: &'c Path) -> Opening<'c> {
        self.stores().insert(store.to_owned(), Kept::default());
        Opening { cache: self, store, is_open: false }
    }

    /// A store in it is open no more, unless somebody has opened it again.
    pub(super) fn closed(&self, store: &Path, repo: &Arc<Repo>) {
        let mut open = self.stores();
        let is_ours = |kept: &Kept| std::ptr::eq(kept.repo.as_ptr(), Arc::as_ptr(repo));
        if open.get(store).is_some_and(is_ours) {
            open.remove(store);
        }
    }

    /// So many bytes have come.
    pub(super) fn grew(&self, bytes: u64) {
        let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.most_bytes {
            self.trim();
        }
        self.make_room(bytes);
    }

    /// What the disk has room for.
    fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.root);
        stat.map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Makes room on the disk for so many bytes, however little the cache holds.
    /// Says whether there is room.
    pub fn make_room(&self, bytes: u64) -> bool {
        let wanted = bytes.saturating_add(SPARE_BYTES);
        if self.free_bytes() >= wanted {
            return true;
        }
        let mut in_vain = self.no_room.lock().unwrap_or_else(PoisonError::into_inner);
        if in_vain.is_some_and(|at| at.elapsed() < PAUSE) {
            return false;
        }
        let mut packs: Vec<Pack> = self.folders().iter().flat_map(|folder| packs(folder)).collect();
        self.evict(&mut packs, |_| self.free_bytes() < wanted);
        let is_room = self.free_bytes() >= wanted;
        *in_vain = (!is_room).then(Instant::now);
        if !is_room {
            tracing::warn!(cache = %self.root.display(), bytes, "the disk of the cache is full");
        }
        is_room
    }

    /// Makes room after something did not fit; says whether any was made.
    pub fn relieve(&self) -> bool {
        let before = self.free_bytes();
        self.make_room(RELIEF_BYTES) || self.free_bytes() > before
    }

    /// Removes packs, those first that nobody has read for the longest, as long as
    /// `goes_on` says so of the bytes that went.
    fn evict(&self, packs: &mut Vec<Pack>, goes_on: impl Fn(u64) -> bool) -> u64 {
        packs.retain(|pack| pack.may_go);
        packs.iter_mut().for_each(|pack| pack.used = pack.used.max(self.last_used(pack)));
        packs.sort_unstable_by_key(|pack| pack.used);
        let mut gone = 0;
        for pack in packs {
            if !goes_on(gone) {
                break;
            }
            if self.shed(pack) {
                gone += pack.bytes;
            }
        }
        gone
    }

    /// Makes room. What fails is tried again the next time.
    fn trim(&self) {
        let Ok(mut in_vain) = self.trimming.try_lock() else { return };
        if in_vain.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        let mut packs: Vec<Pack> = self.folders().iter().flat_map(|folder| packs(folder)).collect();
        let mut used: u64 = packs.iter().map(|pack| pack.bytes).sum();
        if used > self.most_bytes {
            // However long it is, somebody has it now.
            let newest = packs.iter().map(|pack| pack.used.max(self.last_used(pack))).max();
            packs.retain(|pack| Some(pack.used.max(self.last_used(pack))) != newest);
            used -= self.evict(&mut packs, |gone| used - gone > self.most_bytes / 10 * LEFT);
        }
        *in_vain = (used > self.most_bytes).then(Instant::now);
        self.used_bytes.store(used, Ordering::Relaxed);
    }

    fn last_used(&self, pack: &Pack) -> SystemTime {
        let repo = self.stores().get(&pack.store).and_then(|kept| kept.repo.upgrade());
        repo.and_then(|repo| repo.store().last_used(&pack.id)).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn shed(&self, pack: &Pack) -> bool {
        let open = self.stores();
        let Some(kept) = open.get(&pack.store).cloned() else {
            // Whoever opens the store, not before this, makes stubs of what is
            // missing.
            return !pack.is_pending() && fs_err::remove_file(&pack.path).is_ok();
        };
        drop(open);
        let may = || kept.adopting.load(Ordering::SeqCst) == 0 && !pack.is_pending();
        let repo = kept.repo.upgrade();
        repo.is_some_and(|repo| repo.store().shed(&pack.id, &may).unwrap_or(false))
    }
}

impl Pack {
    /// Whether upstream may not know it yet.
    fn is_pending(&self) -> bool {
        self.store.join("cache").join(PENDING).join(self.id.to_string()).exists()
    }
}

/// Opens and locks a file; `None` where another process has locked it.
fn take(path: &Path) -> Result<Option<File>, PathError> {
    let lock = File::options().create(true).truncate(false).write(true).open(path);
    let lock = lock.map_err(PathError::when("create", path))?;
    Ok(lock.try_lock().is_ok().then_some(lock))
}

/// Packs of a repository, whole and in part.
fn packs(folder: &Path) -> Vec<Pack> {
    let store = folder.join("store");
    let mut found = Vec::new();
    for (home, is_whole) in [("objects", true), ("partial", false)] {
        for entry in fs_err::read_dir(store.join(home)).into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<PackId>().ok());
            let (Some(id), Ok(meta)) = (id, entry.metadata()) else { continue };
            let Ok(used) = meta.modified() else { continue };
            let is_fresh = used.elapsed().is_ok_and(|age| age < FRESH);
            let bytes = meta.blocks() * 512;
            // Of most stubs nothing would be gained.
            let is_worth_it = is_whole || (bytes > STUB_BYTES && 4 * bytes > meta.len());
            let may_go = is_worth_it && (is_whole || !is_fresh);
            let (path, store) = (entry.path(), store.clone());
            found.push(Pack { used, bytes, may_go, path, id, store });
        }
    }
    found
}

/// Takes note that a pack was used.
pub(super) fn touch(file: &File) {
    // Where that cannot be written it goes a little too soon.
    let _ = file.set_modified(SystemTime::now());
}
