//! What all parts of one restore share.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{Access, AtFlags, CWD, FileType, Stat, accessat, fstat, stat};

use crate::{
    base::{
        id::TreeId,
        io::PathError,
        name::EntryName,
        observe::{Note, Observer},
        time::Time,
    },
    format::tree::{Entry, Kind, Metadata},
    local::{
        attributes::Refused,
        contain::{Folder, FolderPath, Root},
        owners::Owners,
        store_folder::{STORE_FOLDER, StoreSigns, holds_store, store_above},
        write::{Inherited, is_temporary, sweep},
    },
    ops::restore::{
        Change, Loss, Mode, Options, Ownership, RestoreError, compare::file_type, filter::Filter,
        large::Clones, links::LeaderFailure, tally::Tally,
    },
    store::{Entries, Store},
};

/// Which file or folder something is, whatever its name.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

/// The folder of a store and the folders in it, as far as they can be read.
fn store_folders(store: &Path) -> HashSet<Identity> {
    let parts = fs_err::read_dir(store).into_iter().flatten().flatten();
    let paths = std::iter::once(store.to_owned()).chain(parts.map(|part| part.path()));
    let stats = paths.filter_map(|path| stat(&path).ok());
    let folders = stats.filter(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    folders.map(|stat| identity(&stat)).collect()
}

/// One restore.
pub(super) struct Job<'a> {
    pub(super) store: &'a Store,
    pub(super) options: &'a Options<'a>,
    pub(super) observer: &'a dyn Observer,
    pub(super) filter: Filter,
    pub(super) tally: Tally,
    pub(super) clones: Clones,
    pub(super) pool: rayon::ThreadPool,
    owners: Owners,
    started: Time,
    /// The folder of the store and the folders in it, which a bind mount can show
    /// under any path.
    store_folders: HashSet<Identity>,
    target: Option<Target>,
    halted: AtomicBool,
    failed: Mutex<Option<RestoreError>>,
    failed_leaders: Mutex<HashMap<u64, LeaderFailure>>,
    /// Folders of the target that were stores before this run, whose place a
    /// folder of the snapshot has.
    stores: Mutex<HashSet<PathBuf>>,
}

struct Target {
    root: Root,
    created: bool,
    empty: bool,
    inherited: Option<Inherited>,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        store: &'a Store,
        options: &'a Options<'a>,
        observer: &'a dyn Observer,
    ) -> Result<Self, RestoreError> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs).build();
        Ok(Self {
            store,
            options,
            observer,
            filter: Filter::new(options)?,
            tally: Tally::default(),
            clones: Clones::default(),
            pool: pool.map_err(RestoreError::Threads)?,
            owners: Owners::new(options.ids),
            started: Time::now(),
            store_folders: store_folders(store.dir()),
            target: None,
            halted: AtomicBool::new(false),
            failed: Mutex::default(),
            failed_leaders: Mutex::default(),
            stores: Mutex::default(),
        })
    }

    /// Opens the target; creates it unless this is a dry run.
    ///
    /// A new target is private. It gets the attributes that the snapshot has for
    /// it at the end.
    pub(super) fn open(&mut self, target: &Path) -> Result<(), RestoreError> {
        if let Some(store) = store_above(target) {
            return Err(RestoreError::InStore { target: target.to_owned(), store });
        }
        let dry = self.options.mode == Mode::DryRun;
        let opened = match (self.options.above, dry) {
            (Some(above), _) => open_below(above, target, !dry),
            (None, true) => Root::open(target).map(|root| (root, false)).map_err(Into::into),
            (None, false) => Root::create(target).map_err(Into::into),
        };
        let (root, created) = match opened {
            Err(RestoreError::Io(error)) if dry && error.is_not_found() => {
                return may_create(target);
            }
            opened => opened?,
        };
        let top = FolderPath::top();
        let error = |source| root.error("read folder", &top, None, source);
        let folder = root.folder(&top).map_err(error)?;
        if self.is_store(&folder) {
            let (target, store) = (target.to_owned(), self.store.dir().to_owned());
            return Err(RestoreError::InStore { target, store });
        }
        let listing = folder.list().map_err(error)?;
        let ours = |name: &[u8]| {
            is_temporary(name) || (name == STORE_FOLDER.as_bytes() && may_be_store(&folder, name))
        };
        let empty = listing.iter().all(|(name, _)| ours(name));
        let mut inherited = None;
        if !dry {
            // Where nothing can be written it may still turn out that nothing
            // has to be.
            let _ = sweep(&folder, &listing, self.started);
            inherited = Inherited::probe(&folder).unwrap_or_default();
        }
        self.target = Some(Target { root, created, empty, inherited });
        Ok(())
    }

    /// Whether there is nothing in the target.
    pub(super) fn is_empty(&self) -> bool {
        self.target.as_ref().is_none_or(|target| target.empty)
    }

    /// Whether this run made the target.
    pub(super) fn is_created(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.created)
    }

    /// The target; `None` in a dry run where there is none.
    pub(super) fn root(&self) -> Option<&Root> {
        self.target.as_ref().map(|target| &target.root)
    }

    /// What a new file gets at the top of the target.
    pub(super) fn inherited(&self) -> Option<Inherited> {
        self.target.as_ref().and_then(|target| target.inherited)
    }

    /// An error about an entry of the target.
    pub(super) fn error(
        &self,
        action: &'static str,
        folder: &FolderPath,
        name: Option<&EntryName>,
        source: io::Error,
    ) -> PathError {
        match self.root() {
            Some(root) => root.error(action, folder, name, source),
            None => PathError { action, path: folder.to_path(), source },
        }
    }

    /// Remembers that a folder of the target is a store, so that nothing is
    /// restored into it.
    pub(super) fn note_store(&self, path: PathBuf) {
        lock(&self.stores).insert(path);
    }

    /// Returns whether [`Job::note_store`] was called for a folder.
    pub(super) fn is_noted_store(&self, folder: &FolderPath) -> bool {
        let stores = lock(&self.stores);
        !stores.is_empty() && stores.contains(&folder.to_path())
    }

    /// Returns whether an open folder is the store that is restored from, or a
    /// folder in it.
    pub(super) fn is_store(&self, folder: &Folder) -> bool {
        fstat(folder).is_ok_and(|stat| self.store_folders.contains(&identity(&stat)))
    }

    /// Returns whether an entry is not restored because a project's store has its
    /// place, or because it would be one: a store comes by cloning.
    /// `folder` is where it would be restored.
    pub(super) fn reserves<'f>(
        &self,
        entry: &Entry,
        folder: impl FnOnce() -> Option<&'f Folder>,
    ) -> bool {
        let name = entry.name.as_bytes();
        if name != STORE_FOLDER.as_bytes() {
            return false;
        }
        let is_stored = || match entry.kind {
            Kind::Folder { id } => is_store_tree(self.store, id),
            _ => false,
        };
        folder().is_some_and(|folder| may_be_store(folder, name)) || is_stored()
    }

    /// Tells that an entry is left out because it would write into a store.
    pub(super) fn skip_store(&self, path: &Path) {
        let error = io::Error::new(io::ErrorKind::Unsupported, "a store is not restored into");
        self.observer.note(Note::Skipped { path, error: &error });
    }

    /// Removes what a killed restore left in `folder`.
    pub(super) fn sweep(&self, folder: &Folder, listing: &crate::local::contain::Listing) {
        let _ = sweep(folder, listing, self.started);
    }

    /// Whom an entry will belong to, if that is to be set, and its mode bits.
    /// Files that belong to somebody else than recorded lend nobody's rights, nor
    /// do those whose owner is not recorded.
    pub(super) fn owner_and_mode(
        &self,
        metadata: &Metadata,
        is_folder: bool,
    ) -> (Option<(u32, u32)>, u16) {
        let Some(owner) = &metadata.owner else {
            return (None, if is_folder { metadata.mode } else { metadata.mode & !0o6000 });
        };
        let numbers = self.owners.resolve(owner);
        match self.options.ownership {
            Ownership::Apply => (Some(numbers), metadata.mode),
            Ownership::Leave if numbers == own_numbers() => (None, metadata.mode),
            Ownership::Leave => (None, metadata.mode & !0o6000),
        }
    }

    /// What receives refusals for an entry.
    pub(super) fn refusals<'r>(
        &'r self,
        folder: &'r FolderPath,
        name: Option<&'r EntryName>,
    ) -> Box<Refused<'r>> {
        Box::new(move |what, error| {
            let path = match name {
                Some(name) => folder.join(name),
                None => folder.to_path(),
            };
            self.tally.not_applied(self.observer, what, &path, &error);
        })
    }

    /// Tells of a change, and of what it loses.
    pub(super) fn changed(
        &self,
        folder: &FolderPath,
        name: &EntryName,
        change: Change,
        loss: Loss,
    ) {
        if let Some(tell) = self.options.on_change {
            tell(&folder.join(name), change, loss);
        }
    }

    /// Ends the run with an error; the first one counts.
    pub(super) fn fail(&self, error: impl Into<RestoreError>) {
        let mut failed = lock(&self.failed);
        if failed.is_none() {
            *failed = Some(error.into());
        }
        self.halted.store(true, Ordering::Relaxed);
    }

    /// Whether to stop, for whatever reason.
    pub(super) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed) || self.observer.cancelled()
    }

    /// The error that ended the run, if one did.
    pub(super) fn check(&self) -> Result<(), RestoreError> {
        match lock(&self.failed).take() {
            Some(error) => Err(error),
            None if self.observer.cancelled() => Err(RestoreError::Interrupted),
            None => Ok(()),
        }
    }

    /// Remembers why the first name of a file with several could not be made;
    /// does nothing for a file with one.
    pub(super) fn leader_failed(&self, link: Option<u64>, why: LeaderFailure) {
        lock(&self.failed_leaders).extend(link.map(|link| (link, why)));
    }

    /// Why the first name of a file could not be made, if it could not.
    pub(super) fn leader_failure(&self, link: u64) -> Option<LeaderFailure> {
        lock(&self.failed_leaders).get(&link).cloned()
    }
}

/// Returns whether an entry of a folder is a store, or a folder of which that cannot be
/// known.
fn may_be_store(folder: &Folder, name: &[u8]) -> bool {
    holds_store(folder, name).unwrap_or_else(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns whether a tree holds what makes a folder called `.snap` a store. A tree
/// that cannot be read is reported when it is restored.
fn is_store_tree(store: &Store, tree: TreeId) -> bool {
    let mut signs = StoreSigns::default();
    for entry in Entries::of(store, tree).map_while(Result::ok) {
        signs.add(entry.name.as_bytes(), file_type(&entry.kind));
    }
    signs.is_store(STORE_FOLDER.as_bytes())
}

/// Fails where a folder that is not there could not be created.
/// Opens a target in the folder `above`.
fn open_below(above: &Path, target: &Path, creates: bool) -> Result<(Root, bool), RestoreError> {
    let below = target.strip_prefix(above).unwrap_or(Path::new(""));
    let names = below.iter().map(|name| EntryName::new(name.as_bytes()));
    let names: Vec<EntryName> =
        names.collect::<Result<_, _>>().map_err(|_| RestoreError::Link(target.to_owned()))?;
    Root::below(above, &names, creates).map_err(|error| {
        let is_link = error.path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if is_link { RestoreError::Link(error.path) } else { error.into() }
    })
}

fn may_create(target: &Path) -> Result<(), RestoreError> {
    let above = target.ancestors().skip(1).map(|above| match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    });
    let Some(above) = above.into_iter().find(|above| above.exists()) else { return Ok(()) };
    let may = accessat(CWD, above, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    Ok(may.map_err(PathError::when("create folder", target))?)
}

fn own_numbers() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
