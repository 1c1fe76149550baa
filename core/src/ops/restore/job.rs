//! The state that all parts of one restore share.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use rustix::{
    fs::{
        Access, AtFlags, CWD, FileType, Stat, StatVfsMountFlags, accessat, fstat, fstatvfs, stat,
    },
    io::Errno,
};

use crate::{
    base::{
        id::ContentId,
        io::{PathError, is_of_one_path},
        name::EntryName,
        observe::{Note, Observer},
        time::Time,
    },
    format::tree::{Entry, Metadata},
    local::{
        attributes::{Attributes, Extra, FileCapability, Refused},
        contain::{FolderCache, FolderPath, OpenFolder, TargetRoot},
        ignore::GIT,
        owners::{OwnerIds, Owners},
        store_folder::{STORE_FOLDER, holds_store, is_store_name, store_above},
        unfinished::is_unfinished,
        write::{Inherited, is_temporary, sweep},
    },
    ops::{
        reserved::Reserved,
        restore::{
            AskedLosses, ContentLoss, Existing, GitAtTop, Mode, Ownership, RestoreAction,
            RestoreError, RestoreOptions, filter::Filter, large::Clones, links::FirstNameFailure,
            plan::FileFingerprint, tally::Tally,
        },
    },
    store::Store,
};

/// The identity of a file or folder.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

pub(super) fn identity(stat: &Stat) -> Identity {
    Identity { device: stat.st_dev, inode: stat.st_ino }
}

/// Returns the store's folder and its subfolders, as far as they can be read.
fn store_folders(store: &Path) -> HashSet<Identity> {
    let parts = fs_err::read_dir(store).into_iter().flatten().flatten();
    let paths = std::iter::once(store.to_owned()).chain(parts.map(|part| part.path()));
    let stats = paths.filter_map(|path| stat(&path).ok());
    let folders = stats.filter(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    folders.map(|stat| identity(&stat)).collect()
}

/// The owner and the rights that an entry gets.
pub(super) struct OwnerRights {
    /// The owner to set, if any.
    pub(super) owner: Option<OwnerIds>,
    pub(super) mode: u16,
    pub(super) capability: FileCapability,
}

/// The state of one restore.
pub(super) struct RestoreJob<'a> {
    pub(super) store: &'a Store,
    pub(super) options: &'a RestoreOptions<'a>,
    pub(super) observer: &'a dyn Observer,
    pub(super) filter: Filter<'a>,
    pub(super) tally: Tally,
    pub(super) clones: Clones,
    pub(super) pool: rayon::ThreadPool,
    owners: Owners,
    pub(super) started: Time,
    /// The store's folder and its subfolders. A bind mount can make them appear at any
    /// path.
    store_folders: HashSet<Identity>,
    target: Option<RestoreTarget>,
    halted: AtomicBool,
    failed: Mutex<Option<RestoreError>>,
    pub(super) failed_first_names: Mutex<HashMap<u64, FirstNameFailure>>,
    /// Folders of the target that were stores before this run and have the path of a
    /// folder of the snapshot.
    pub(super) stores: Mutex<HashSet<PathBuf>>,
    /// Folders that this run created and that have no mark.
    made: Mutex<HashSet<PathBuf>>,
    /// The contents that the plan of an in-place restore has hashed, so that the same run does not
    /// hash them again.
    hashed: Mutex<HashMap<Identity, (FileFingerprint, ContentId)>>,
}

struct RestoreTarget {
    root: TargetRoot,
    created: bool,
    empty: bool,
    inherited: Option<Inherited>,
}

impl<'a> RestoreJob<'a> {
    pub(super) fn new(
        store: &'a Store,
        options: &'a RestoreOptions<'a>,
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
            failed_first_names: Mutex::default(),
            stores: Mutex::default(),
            made: Mutex::default(),
            hashed: Mutex::default(),
        })
    }

    /// Opens the target, and creates it unless this is a dry run.
    ///
    /// A new target is inaccessible to other users until it gets the attributes from the
    /// snapshot at the end.
    pub(super) fn open(&mut self, target: &Path) -> Result<(), RestoreError> {
        if let Some(store) = store_above(target) {
            return Err(RestoreError::InStore { target: target.to_owned(), store });
        }
        let dry = self.options.mode != Mode::Write;
        let opened = match (self.options.above, dry) {
            (Some(above), _) => open_below(above, target, !dry),
            (None, true) => TargetRoot::open(target).map(|root| (root, false)).map_err(Into::into),
            (None, false) => TargetRoot::create(target).map_err(Into::into),
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
            // Ignore errors: the target may be read-only, and the restore may have nothing to
            // write.
            let _ = sweep(&folder, &listing, self.started);
            inherited = Inherited::probe(&folder).unwrap_or_default();
        }
        self.target = Some(RestoreTarget { root, created, empty, inherited });
        Ok(())
    }

    /// Returns true if the target is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.target.as_ref().is_none_or(|target| target.empty)
    }

    /// Returns true if this run created the target.
    pub(super) fn is_created(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.created)
    }

    /// Returns the target; `None` in a dry run if it does not exist.
    pub(super) fn root(&self) -> Option<&TargetRoot> {
        self.target.as_ref().map(|target| &target.root)
    }

    /// Returns a cache of open folders of the target, for one thread.
    pub(super) fn folder_cache(&self) -> Option<FolderCache<'_>> {
        self.root().map(FolderCache::new)
    }

    /// Returns what a new file inherits at the root of the target.
    pub(super) fn inherited(&self) -> Option<Inherited> {
        self.target.as_ref().and_then(|target| target.inherited)
    }

    /// Builds an error about an entry of the target.
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

    /// Returns true if the caller must confirm before a file that no commit contains is replaced.
    pub(super) fn asks_about_edits(&self) -> bool {
        let RestoreOptions { existing, mode, confirm, asked, .. } = self.options;
        *existing == Existing::Overwrite
            && *mode != Mode::DryRun
            && *asked == AskedLosses::RemovedAndReplaced
            && confirm.is_some()
    }

    /// Returns true for an entry at the top of the target that belongs to git.
    pub(super) fn keeps_git(&self, name: &EntryName) -> bool {
        self.options.git == GitAtTop::Keep && name.as_bytes() == GIT.as_bytes()
    }

    /// Records the content of a file, if a later step of this run needs it.
    pub(super) fn note_hashed(&self, stat: &Stat, id: ContentId) {
        if self.asks_about_edits() {
            self.hashed.lock().insert(identity(stat), (FileFingerprint::new(stat), id));
        }
    }

    /// Returns the content of a file that has not changed since [`RestoreJob::note_hashed`].
    pub(super) fn hashed_before(&self, stat: &Stat) -> Option<ContentId> {
        if !self.asks_about_edits() {
            return None;
        }
        let hashed = self.hashed.lock();
        let (seen, id) = hashed.get(&identity(stat))?;
        seen.has_content_of(stat).then_some(*id)
    }

    /// Returns true if the folder is a store, so that nothing is restored into it.
    pub(super) fn is_noted_store(&self, folder: &FolderPath) -> bool {
        let stores = self.stores.lock();
        !stores.is_empty() && stores.contains(&folder.to_path())
    }

    /// Records a folder that this run created on a file system without support for the
    /// [mark](crate::local::unfinished) of unfinished folders.
    pub(super) fn note_made(&self, path: PathBuf) {
        self.made.lock().insert(path);
    }

    /// Returns true if a folder was created by this run, or by an earlier one that did
    /// not finish it.
    pub(super) fn is_unfinished(&self, at: &FolderPath, folder: &OpenFolder, stat: &Stat) -> bool {
        let is_top = at.depth() == 0;
        let is_new_top = || is_top && (self.is_created() || self.options.is_new_target);
        let made = || {
            let made = self.made.lock();
            !made.is_empty() && made.contains(&at.to_path())
        };
        is_unfinished(folder, stat, !is_top) || is_new_top() || made()
    }

    /// Returns true if an open folder is the source store or a folder in it.
    pub(super) fn is_store(&self, folder: &OpenFolder) -> bool {
        fstat(folder).is_ok_and(|stat| self.store_folders.contains(&identity(&stat)))
    }

    /// Returns the reason why an entry must not be restored: a store has its place in the target,
    /// or the entry is [reserved](Reserved). `folder` returns the folder in which the entry would
    /// lie.
    pub(super) fn reserves<'f>(
        &self,
        entry: &Entry,
        folder: impl FnOnce() -> Option<&'f OpenFolder>,
    ) -> Option<io::Error> {
        let name = entry.name.as_bytes();
        if !is_store_name(name) {
            return None;
        }
        match Reserved::of(self.store, entry) {
            Some(reserved) => Some(reserved.to_error()),
            None => folder()
                .is_some_and(|folder| may_be_store(folder, name))
                .then(RestoreJob::store_in_place),
        }
    }

    /// Returns the error for an entry in whose place the target has a store.
    pub(super) fn store_in_place() -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, "restore does not write into a store")
    }

    /// Counts and reports an entry that is left out because of a store.
    pub(super) fn skip(&self, path: &Path, error: &io::Error) {
        self.tally.count(|outcome| outcome.skipped += 1);
        self.observer.note(Note::Skipped { path, error });
    }

    /// Returns the owner to set for an entry, if any, and its rights. The setuid and setgid bits
    /// and the file capabilities are removed if no owner is recorded, or if the file will have
    /// another owner. The id 2^32-1 names no owner: `chown` takes it for "no change". `present` has
    /// the owner of an existing entry; a new entry belongs to this user.
    pub(super) fn owner_rights(
        &self,
        metadata: &Metadata,
        is_folder: bool,
        present: Option<&Stat>,
    ) -> OwnerRights {
        let mode = metadata.mode;
        let as_recorded = |owner| OwnerRights { owner, mode, capability: FileCapability::Apply };
        let reduced = OwnerRights {
            owner: None,
            mode: metadata.mode_for_other_owner(),
            capability: FileCapability::Drop,
        };
        let Some(owner) = &metadata.owner else {
            return if is_folder { as_recorded(None) } else { reduced };
        };
        let ids = self.owners.resolve(owner);
        if ids.uid == u32::MAX || ids.gid == u32::MAX {
            return reduced;
        }
        match self.options.ownership {
            Ownership::Apply => as_recorded(Some(ids)),
            Ownership::Leave
                if ids == own_ids() && present.is_none_or(|stat| owner_of(stat) == ids) =>
            {
                as_recorded(None)
            }
            Ownership::Leave => reduced,
        }
    }

    /// Returns the attributes to set on an entry. `present` is the existing entry, whose owner is
    /// not set again.
    pub(super) fn attributes<'m>(
        &self,
        metadata: &'m Metadata,
        is_folder: bool,
        present: Option<&Stat>,
    ) -> Attributes<'m> {
        let OwnerRights { owner, mode, capability } =
            self.owner_rights(metadata, is_folder, present);
        Attributes {
            owner: owner.filter(|owner| present.map(owner_of) != Some(*owner)),
            mode: Some(mode),
            mtime: metadata.mtime,
            xattrs: &metadata.xattrs,
            capability,
            extra: Extra::Remove,
        }
    }

    /// Returns true if this user may give an entry that belongs to `uid` the recorded
    /// owner. Otherwise a different owner does not count as a difference.
    pub(super) fn may_own(&self, uid: u32, owner: OwnerIds) -> bool {
        let own = own_ids().uid;
        own == 0 || (uid == own && owner.uid == own)
    }

    /// Returns a receiver of refused attributes for an entry.
    pub(super) fn refusals<'r>(
        &'r self,
        folder: &'r FolderPath,
        name: Option<&'r EntryName>,
    ) -> Box<Refused<'r>> {
        Box::new(move |what, error| {
            let path = if let Some(name) = name { folder.join(name) } else { folder.to_path() };
            self.tally.not_applied(self.observer, what, &path, &error);
        })
    }

    /// Reports a change, and the content that it loses.
    pub(super) fn changed(
        &self,
        folder: &FolderPath,
        name: &EntryName,
        change: RestoreAction,
        loss: ContentLoss,
    ) {
        if self.options.on_change.is_some() || change == RestoreAction::Keep {
            self.changed_path(&folder.join(name), change, loss);
        }
    }

    /// Reports a change of the entry with a path relative to the target. A restore that writes also
    /// reports each kept entry to the observer.
    pub(super) fn changed_path(&self, path: &Path, change: RestoreAction, loss: ContentLoss) {
        if change == RestoreAction::Keep && self.options.mode == Mode::Write {
            self.observer.note(Note::Kept { path, why: "it has attributes of its own" });
        }
        if let Some(on_change) = self.options.on_change {
            on_change(path, change, loss);
        }
    }

    /// Handles the failure of one entry of the target: reports and counts the entry if the error
    /// concerns only this entry.
    ///
    /// # Errors
    /// The error if the whole target is concerned.
    pub(super) fn refuse(
        &self,
        path: &Path,
        noun: &'static str,
        error: impl Into<RestoreError>,
    ) -> Result<(), RestoreError> {
        match error.into() {
            RestoreError::Io(error) if self.is_of_one_path(&error.source) => {
                self.tally.not_made(self.observer, noun, path, &error.source);
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Fails if the caller saw an entry in another state, so that it must not be replaced.
    pub(super) fn check_as_seen(
        &self,
        folder: &FolderPath,
        name: &EntryName,
        stat: Option<&Stat>,
    ) -> Result<(), RestoreError> {
        if self.filter.is_as_seen(&folder.join(name), stat) {
            return Ok(());
        }
        Err(self.changed_meanwhile(folder, name).into())
    }

    /// As [`RestoreJob::check_as_seen`], with the present state of the entry. A file may wait long
    /// before it is written, so this check comes just before it replaces the entry.
    pub(super) fn check_still_as_seen(
        &self,
        folder: &OpenFolder,
        at: &FolderPath,
        name: &EntryName,
    ) -> Result<(), PathError> {
        if !self.filter.is_exact() {
            return Ok(());
        }
        let stat = folder.stat(name).map_err(|e| self.error("look at", at, Some(name), e))?;
        match self.filter.is_as_seen(&at.join(name), stat.as_ref()) {
            true => Ok(()),
            false => Err(self.changed_meanwhile(at, name)),
        }
    }

    fn changed_meanwhile(&self, at: &FolderPath, name: &EntryName) -> PathError {
        let changed = io::Error::new(io::ErrorKind::AlreadyExists, "it changed meanwhile");
        self.error("replace", at, Some(name), changed)
    }

    /// Reports and counts an entry that cannot be removed.
    pub(super) fn not_removed(&self, path: &Path, error: &io::Error) {
        self.tally.count(|outcome| outcome.not_removed += 1);
        self.observer.note(Note::NotRemoved { path, error });
    }

    /// Returns true if an I/O error concerns one entry of the target. A read-only or dead mount
    /// below a target that works counts as one entry.
    pub(super) fn is_of_one_path(&self, error: &io::Error) -> bool {
        let is_alive = || {
            let root = self.root().and_then(|root| root.folder(&FolderPath::top()).ok());
            root.is_some_and(|root| {
                fstat(&root).is_ok()
                    && fstatvfs(&root)
                        .is_ok_and(|of| !of.f_flag.contains(StatVfsMountFlags::RDONLY))
            })
        };
        match Errno::from_io_error(error) {
            Some(Errno::ROFS | Errno::NOTCONN | Errno::STALE) => is_alive(),
            _ => is_of_one_path(error),
        }
    }

    /// Ends the run with an error. Only the first error is kept.
    pub(super) fn fail(&self, error: impl Into<RestoreError>) {
        let mut failed = self.failed.lock();
        if failed.is_none() {
            *failed = Some(error.into());
        }
        self.halted.store(true, Ordering::Relaxed);
    }

    /// Returns true if the run must stop.
    pub(super) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed) || self.observer.cancelled()
    }

    /// Returns the error that ended the run, if any.
    pub(super) fn check(&self) -> Result<(), RestoreError> {
        match self.failed.lock().take() {
            Some(error) => Err(error),
            None if self.observer.cancelled() => Err(RestoreError::Interrupted),
            None => Ok(()),
        }
    }

    /// Records why the first name of a file with several names could not be created. Does
    /// nothing for a file with one name.
    pub(super) fn first_name_failed(&self, link: Option<u64>, why: FirstNameFailure) {
        self.failed_first_names.lock().extend(link.map(|link| (link, why)));
    }
}

/// Returns true if an entry of a folder is a store, or a folder for which this cannot be
/// determined.
fn may_be_store(folder: &OpenFolder, name: &[u8]) -> bool {
    holds_store(folder, name).unwrap_or_else(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

/// Opens a target in the folder `above`.
fn open_below(
    above: &Path,
    target: &Path,
    creates: bool,
) -> Result<(TargetRoot, bool), RestoreError> {
    let below = target.strip_prefix(above).unwrap_or(Path::new(""));
    let names = below.iter().map(|name| EntryName::new(name.as_bytes()));
    let names: Vec<EntryName> =
        names.collect::<Result<_, _>>().map_err(|_| RestoreError::Link(target.to_owned()))?;
    TargetRoot::below(above, &names, creates).map_err(|error| {
        let is_link = error.path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if is_link { RestoreError::Link(error.path) } else { error.into() }
    })
}

/// Fails if a missing folder could not be created.
fn may_create(target: &Path) -> Result<(), RestoreError> {
    let above = target.ancestors().skip(1).map(|above| match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    });
    let Some(above) = above.into_iter().find(|above| above.exists()) else { return Ok(()) };
    let may = accessat(CWD, above, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    Ok(may.map_err(PathError::when("create folder", target))?)
}

pub(super) fn owner_of(stat: &Stat) -> OwnerIds {
    OwnerIds { uid: stat.st_uid, gid: stat.st_gid }
}

fn own_ids() -> OwnerIds {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    OwnerIds { uid: uid.as_raw(), gid: gid.as_raw() }
}
