//! The cache folder of an upstream, and its eviction.
//!
//! ```text
//! ABOVE/HASH OF THE LOCATION/
//!   lock                     held by the server that uses it; another one takes HASH.1, and so on
//!   form                     what lies upstream, as last seen: a store or a folder
//!   NAME/store, NAME/mirror  of each repository, `/` being `%2F`
//! ```
//!
//! When packs take more room than allowed, the server evicts the least recently used ones and puts
//! stubs in their place.

use std::{
    collections::HashMap,
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use snap_core::{
    base::{id::PackId, io::PathError},
    disk::{CreateMode, Disk, regular::is_link, symlink_guard::check_no_links_between},
    repo::{Repo, config, open::check_links},
};

use super::UpstreamLayout;
use crate::clock::Clock;

/// Maximum number of servers of one upstream that have a cache below the same folder.
const SHARES: usize = 64;

/// Eviction stops when packs take at most this share of the limit, in tenths.
const LEFT: u64 = 9;

/// A stub that was written to within this time is not evicted.
const FRESH: Duration = Duration::from_secs(10);

/// Pause after an eviction that freed too little.
const PAUSE: Duration = Duration::from_secs(1);

/// Disk space that is kept free for small files (refs, stubs), in bytes.
const SPARE_BYTES: u64 = 1 << 20;

/// Disk space to free after a write did not fit, in bytes.
const RELIEF_BYTES: u64 = 16 << 20;

/// Size up to which stubs are not evicted, in bytes.
const STUB_BYTES: u64 = 64 << 10;

/// Number of hexadecimal digits of the hash in the name of a cache folder.
const DIGITS: usize = 32;

/// File that the server locks while it uses the folder.
const LOCK: &str = "lock";

/// Counters of the lookups in a cache.
#[derive(Debug, Default)]
pub struct CacheCounters {
    found: AtomicU64,
    missed: AtomicU64,
}

impl CacheCounters {
    /// Counts a hit or a miss.
    pub(super) fn count(&self, was_here: bool) {
        let counter = if was_here { &self.found } else { &self.missed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of hits.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Returns the number of misses.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// The cache folder of an upstream.
#[derive(Debug)]
pub struct CacheFolder {
    root: PathBuf,
    most_bytes: u64,
    used_bytes: AtomicU64,
    /// The stores that are open or being opened, by path.
    open: Mutex<HashMap<PathBuf, Weak<Repo>>>,
    /// When eviction last freed too little for the limit of the cache. Locked during an eviction.
    trimming: Mutex<Option<Instant>>,
    /// When eviction last freed too little room on the disk. Locked during an eviction.
    no_room: Mutex<Option<Instant>>,
    /// Lookups of whole packs.
    packs: CacheCounters,
    /// Lookups of frames in packs that are only partly in the cache.
    frames: CacheCounters,
    lock: Mutex<File>,
    clock: Clock,
}

/// A store that is being opened. Until it is open, nothing of it is evicted.
pub(super) struct StoreOpening<'c> {
    cache: &'c CacheFolder,
    store: &'c Path,
    is_open: bool,
}

impl StoreOpening<'_> {
    /// Marks the store as open.
    pub(super) fn opened(mut self, repo: Weak<Repo>) {
        self.cache.open.lock().insert(self.store.to_owned(), repo);
        self.is_open = true;
    }
}

impl Drop for StoreOpening<'_> {
    fn drop(&mut self) {
        if !self.is_open {
            self.cache.open.lock().remove(self.store);
        }
    }
}

/// A pack in the cache, whole or partial.
struct CachedPack {
    used: SystemTime,
    bytes: u64,
    /// True if the pack may be evicted: that frees enough, and nothing is being added to the pack.
    is_evictable: bool,
    path: PathBuf,
    id: PackId,
    store: PathBuf,
}

impl CacheFolder {
    /// Opens the folder in `above` for the upstream that `key` identifies. Packs in it may
    /// take about `most_bytes`.
    ///
    /// # Errors
    /// [`PathError`] when the folder cannot be created or locked.
    pub fn open(above: &Path, key: &str, most_bytes: u64) -> Result<Self, PathError> {
        Self::open_with_clock(above, key, most_bytes, Clock::default())
    }

    /// Like [`open`](Self::open), for a server with this clock.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_clock(
        above: &Path,
        key: &str,
        most_bytes: u64,
        clock: Clock,
    ) -> Result<Self, PathError> {
        let hash = &blake3::hash(key.as_bytes()).to_hex()[..DIGITS];
        let mut full = None;
        for number in 0..SHARES {
            let root = match number {
                0 => above.join(hash),
                _ => above.join(format!("{hash}.{number}")),
            };
            check_no_links_between(above, &root)?;
            Disk::default().with_access(CreateMode::PRIVATE).create_folders(&root)?;
            let path = root.join(LOCK);
            match try_lock(&path)? {
                Some(lock) => {
                    let cache = Self {
                        root,
                        most_bytes,
                        used_bytes: AtomicU64::new(0),
                        open: Mutex::default(),
                        trimming: Mutex::default(),
                        no_room: Mutex::default(),
                        packs: CacheCounters::default(),
                        frames: CacheCounters::default(),
                        lock: Mutex::new(lock),
                        clock,
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

    /// Creates the folder again if it was removed. A cache may be lost at any time.
    ///
    /// # Errors
    /// [`PathError`] when the folder cannot be created, or when another server has locked it
    /// meanwhile.
    pub fn restore(&self) -> Result<(), PathError> {
        let path = self.root.join(LOCK);
        let mut lock = self.lock.lock();
        let inode = |meta: Metadata| (meta.dev(), meta.ino());
        let ours = lock.metadata().map_err(PathError::when("stat", &path))?;
        if fs_err::metadata(&path).is_ok_and(|there| inode(there) == inode(ours)) {
            return Ok(());
        }
        Disk::default().with_access(CreateMode::PRIVATE).create_folders(&self.root)?;
        let taken = try_lock(&path)?.ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock));
        *lock = taken.map_err(PathError::when("lock", &path))?;
        tracing::warn!("the cache folder was removed and is created again");
        Ok(())
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the path of the cache folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the counters of whole packs.
    pub fn packs(&self) -> &CacheCounters {
        &self.packs
    }

    /// Returns the counters of frames in packs that are only partly in the cache.
    pub fn frames(&self) -> &CacheCounters {
        &self.frames
    }

    /// Returns the folder of a repository.
    pub(super) fn of(&self, name: &str) -> PathBuf {
        self.root.join(name.replace('/', "%2F"))
    }

    /// Returns the names of the repositories in the cache, sorted.
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
        entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !is_link(path)).collect()
    }

    /// Returns the layout of the upstream, as it was when the upstream last answered.
    pub(super) fn form(&self) -> Option<UpstreamLayout> {
        match fs_err::read_to_string(self.root.join("form")).ok()?.as_str() {
            "store" => Some(UpstreamLayout::Store),
            "folder" => Some(UpstreamLayout::Folder),
            _ => None,
        }
    }

    /// Stores the layout of the upstream. If that fails, the next server asks the upstream again.
    pub(super) fn remember_form(&self, form: UpstreamLayout) {
        let text = match form {
            UpstreamLayout::Store => "store",
            UpstreamLayout::Folder => "folder",
        };
        let _ = fs_err::write(self.root.join("form"), text);
    }

    /// Records that a store is about to be opened.
    pub(super) fn opening<'c>(&'c self, store: &'c Path) -> StoreOpening<'c> {
        self.open.lock().insert(store.to_owned(), Weak::new());
        StoreOpening { cache: self, store, is_open: false }
    }

    /// Records that a store was closed, unless it was opened again meanwhile.
    pub(super) fn closed(&self, store: &Path, repo: &Arc<Repo>) {
        let mut open = self.open.lock();
        let is_ours = |open: &Weak<Repo>| std::ptr::eq(open.as_ptr(), Arc::as_ptr(repo));
        if open.get(store).is_some_and(is_ours) {
            open.remove(store);
        }
    }

    /// Records that `bytes` were added, and evicts packs if necessary.
    pub(super) fn grew(&self, bytes: u64) {
        let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.most_bytes {
            self.trim();
        }
        self.make_room(bytes);
    }

    /// Returns the free space on the disk, in bytes.
    fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.root);
        stat.map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Evicts packs until the disk has room for `bytes`, even if the cache is below its limit.
    /// Returns true if the disk has room.
    pub fn make_room(&self, bytes: u64) -> bool {
        let wanted = bytes.saturating_add(SPARE_BYTES);
        if self.free_bytes() >= wanted {
            return true;
        }
        let mut failed_at = self.no_room.lock();
        if failed_at.is_some_and(|at| self.clock.elapsed(at) < PAUSE) {
            return false;
        }
        self.evict(&mut self.cached_packs(), |_| self.free_bytes() < wanted);
        let is_room = self.free_bytes() >= wanted;
        *failed_at = (!is_room).then(|| self.clock.now());
        if !is_room {
            tracing::warn!(cache = %self.root.display(), bytes, "the disk of the cache is full");
        }
        is_room
    }

    /// Evicts packs after a write did not fit. Returns true if that freed any space.
    pub fn relieve(&self) -> bool {
        let before = self.free_bytes();
        self.make_room(RELIEF_BYTES) || self.free_bytes() > before
    }

    /// Lists all packs, with the time of their last use.
    fn cached_packs(&self) -> Vec<CachedPack> {
        let folders = self.folders();
        let mut all: Vec<CachedPack> = folders.iter().flat_map(|folder| packs(folder)).collect();
        all.iter_mut().for_each(|pack| pack.used = pack.used.max(self.last_used(pack)));
        all
    }

    /// Evicts packs, the least recently used one first, while `needs_more` returns true for
    /// the number of freed bytes. Returns that number.
    fn evict(&self, packs: &mut Vec<CachedPack>, needs_more: impl Fn(u64) -> bool) -> u64 {
        packs.retain(|pack| pack.is_evictable);
        packs.sort_unstable_by_key(|pack| pack.used);
        let mut gone = 0;
        for pack in packs {
            if !needs_more(gone) {
                break;
            }
            if self.replace_with_stub(pack) {
                gone += pack.bytes;
            }
        }
        gone
    }

    /// Evicts packs until they are below the limit. Failures are ignored: the next eviction tries
    /// again.
    fn trim(&self) {
        let Some(mut failed_at) = self.trimming.try_lock() else { return };
        if failed_at.is_some_and(|at| self.clock.elapsed(at) < PAUSE) {
            return;
        }
        let mut packs = self.cached_packs();
        let mut used: u64 = packs.iter().map(|pack| pack.bytes).sum();
        if used > self.most_bytes {
            // The most recently used pack stays, however large: a request needs it now.
            let newest = packs.iter().map(|pack| pack.used).max();
            packs.retain(|pack| Some(pack.used) != newest);
            used -= self.evict(&mut packs, |gone| used - gone > self.most_bytes / 10 * LEFT);
        }
        *failed_at = (used > self.most_bytes).then(|| self.clock.now());
        self.used_bytes.store(used, Ordering::Relaxed);
    }

    fn last_used(&self, pack: &CachedPack) -> SystemTime {
        let repo = self.open.lock().get(&pack.store).and_then(Weak::upgrade);
        repo.and_then(|repo| repo.store().last_used(&pack.id)).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Replaces a pack with a stub, or removes it from a store that is not open. Returns true on
    /// success.
    fn replace_with_stub(&self, pack: &CachedPack) -> bool {
        let open = self.open.lock();
        let Some(repo) = open.get(&pack.store).cloned() else {
            // The lock keeps the store from being opened before the file is removed. When
            // it is opened, it gets stubs of missing packs.
            let disk = Disk::default().in_store(&pack.store);
            return disk.remove(&pack.path).is_ok();
        };
        drop(open);
        repo.upgrade().is_some_and(|repo| repo.store().evict_pack(&pack.id).unwrap_or(false))
    }
}

/// Opens and locks a file; `None` if another process has locked it.
fn try_lock(path: &Path) -> Result<Option<File>, PathError> {
    let folder = path.parent().unwrap_or(path);
    let lock = Disk::cache(folder).with_access(CreateMode::PRIVATE).lock_file(path)?;
    Ok(lock.try_lock().is_ok().then_some(lock))
}

/// Lists the packs of a repository, whole and partial.
fn packs(folder: &Path) -> Vec<CachedPack> {
    let store = folder.join("store");
    let mut found = Vec::new();
    if check_no_links_between(folder, &store).is_err() || check_links(&store).is_err() {
        return found;
    }
    for (home, is_whole) in [("objects", true), ("partial", false)] {
        for entry in fs_err::read_dir(store.join(home)).into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<PackId>().ok());
            let (Some(id), Ok(meta)) = (id, entry.metadata()) else { continue };
            let Ok(used) = meta.modified() else { continue };
            let is_fresh = used.elapsed().is_ok_and(|age| age < FRESH);
            let bytes = meta.blocks() * 512;
            // Evicting a stub that is mostly empty would free almost nothing.
            let is_worth_it = is_whole || (bytes > STUB_BYTES && 4 * bytes > meta.len());
            let may_go = is_worth_it && (is_whole || !is_fresh);
            let (path, store) = (entry.path(), store.clone());
            found.push(CachedPack { used, bytes, is_evictable: may_go, path, id, store });
        }
    }
    found
}

/// Records that a pack was used.
pub(super) fn touch(file: &File) {
    // If the time cannot be set, the pack is evicted a little too early.
    let _ = file.set_modified(SystemTime::now());
}
