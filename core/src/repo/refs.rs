//! Branches, tags and `HEAD`: small text files, moved by compare-and-swap.
//!
//! | file               | content                                        |
//! |--------------------|------------------------------------------------|
//! | `refs/heads/NAME`  | a [text](crate::format::ref_text)              |
//! | `refs/tags/NAME`   | likewise                                       |
//! | `HEAD`             | `ref: refs/heads/NAME\n`, or a commit's digits |
//! | `lock`             | time of the last change; held while a ref moves |
//!
//! A ref moves under an exclusive lock on `lock`, in these steps: read the ref again, compare it
//! with the value that the caller expects, append the change to the [log](super::ref_log), then
//! replace the file (temporary file, sync, rename, sync of the folder). A reader takes no lock,
//! because the replacement is atomic.

mod create;
mod damaged;
mod held;
mod listing;
mod lock;
mod moves;
mod version;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Weak,
};

use crate::{
    base::{
        blocked::Blocked,
        id::CommitId,
        io::{PathError, if_exists},
        kind::Kind,
        limits,
        observe::{Note, Observer},
        time::Time,
    },
    disk::{
        Disk,
        folder_times::FolderTimes,
        regular::{is_link, read_at_most},
    },
    format::{pack::ObjectKind, ref_text::RefText},
    repo::{
        history::ancestors,
        ref_log::{self, RefValue},
        ref_name::{Pointer, RefKind, RefName, RefNameError},
    },
    store::{Store, StoreError},
};

pub use create::REFS_AT_ONCE;
pub use damaged::Damage;
pub use held::HeldRefs;
pub use listing::RefListing;
#[cfg(test)]
pub(super) use lock::wait_for_second_open;
pub(super) use lock::{Lock, LockRecord};

/// The value of `HEAD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// The current branch, which gets new commits. It may not exist yet.
    Branch(RefName),
    /// A commit without a current branch.
    Detached(CommitId),
}

impl Head {
    /// Returns the current branch, or `None` if `HEAD` is detached.
    pub fn branch(&self) -> Option<&RefName> {
        match self {
            Self::Branch(name) => Some(name),
            Self::Detached(_) => None,
        }
    }
}

impl From<&Head> for RefValue {
    fn from(head: &Head) -> Self {
        match head {
            Head::Branch(name) => Self::Branch(name.clone()),
            Head::Detached(id) => Self::Commit(*id),
        }
    }
}

/// The log entry of a change: the time, the user and the reason.
#[derive(Clone, Copy, Debug)]
pub struct RefLogMessage<'a> {
    /// Time of the change. Snap moves it past the last change of any ref if necessary, so that the
    /// logs together give the order of all changes.
    pub time: Time,
    /// The user who makes the change.
    pub who: &'a str,
    /// The reason, such as "commit: fix the roof". The prefixes `undo: ` and `redo: ` are reserved
    /// for the [undoing](super::undo) of changes.
    pub reason: &'a str,
}

/// Why a ref could not be read or moved.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Exists)]
#[non_exhaustive]
pub enum RefError {
    /// The content of the file is not the expected `noun`, for example "commit id".
    #[error("{} is damaged: it is not a {noun}", path.display())]
    #[kind(Damaged)]
    Damaged { path: PathBuf, noun: &'static str },
    /// The ref already exists.
    #[error("{} `{}` already exists", name.kind().noun(), name.short())]
    Exists { name: RefName, at: CommitId },
    /// The file of the ref is lost: its log ends with commit `at` and records no removal.
    #[error("{} `{}` is missing; it last pointed at commit {at:.12}", name.kind().noun(), name.short())]
    #[kind(Damaged)]
    Lost { name: RefName, at: CommitId },
    /// A newer version wrote the file; this version must not overwrite it.
    #[error("{} was written by a newer version of snap", path.display())]
    #[kind(Unsupported)]
    Newer { path: PathBuf },
    /// Another process has moved the ref to `found`, or has removed it.
    #[error("{} `{}` was moved by another process", name.kind().noun(), name.short())]
    Moved { name: RefName, found: Option<CommitId> },
    /// Another process has changed `HEAD`.
    #[error("HEAD was moved by another process")]
    HeadMoved,
    /// The file of one ref would have to be a folder of the other.
    #[error("{} `{}` conflicts with `{other}`", name.kind().noun(), name.short())]
    NameConflict { name: RefName, other: String },
    /// The ref does not exist.
    #[error("{} `{}` does not exist", name.kind().noun(), name.short())]
    #[kind(NotFound)]
    Unknown { name: RefName },
    /// A ref name breaks a rule.
    #[error(transparent)]
    #[kind(Invalid)]
    Name(#[from] RefNameError),
    /// A garbage collection has found the commit dead.
    #[error("commit {id:.12} was deleted by a garbage collection")]
    #[kind(NotFound)]
    Collected { id: CommitId },
    /// A collection at a remote has deleted the commit of a branch, a tag or `HEAD`.
    #[error("{pointer} is at commit {id:.12}, which a garbage collection at a remote has deleted")]
    #[kind(NotFound)]
    AtCollected { pointer: Pointer, id: CommitId },
    /// `snap rewrite` has replaced the commit, or an ancestor of it.
    #[error("{} was removed by `snap rewrite`", replaced(id, ancestor))]
    #[kind(Refused)]
    Replaced { id: CommitId, ancestor: CommitId },
    /// The objects of the store cannot be read.
    #[error(transparent)]
    Objects(Box<StoreError>),
    /// Another process holds the lock.
    #[error("{} has been locked for {waited_secs} seconds", path.display())]
    #[kind(Locked)]
    Locked { path: PathBuf, waited_secs: u64 },
    /// Another command reads or writes the project's files.
    #[error("another snap process has been using the files of {} for {waited_secs} seconds", project.display())]
    #[kind(Locked)]
    FilesBusy { project: PathBuf, waited_secs: u64 },
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// Names the commit that was replaced.
fn replaced(id: &CommitId, ancestor: &CommitId) -> String {
    match id == ancestor {
        true => format!("commit {id:.12}"),
        false => format!("commit {ancestor:.12}, an ancestor of commit {id:.12},"),
    }
}

impl From<StoreError> for RefError {
    fn from(error: StoreError) -> Self {
        Self::Objects(Box::new(error))
    }
}

impl RefError {
    /// Returns the path of the damaged file in the store, such as `refs/heads/main` or `HEAD`.
    pub fn damaged_file(&self) -> Option<String> {
        if let Self::Damaged { path, .. } = self { Some(in_store(path)) } else { None }
    }
}

/// A file below `refs/` with a name that no ref can have: another program put it there, such as a file
/// manager or a sync client. All commands skip it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisnamedFile {
    /// The path in the store, escaped.
    pub path: String,
    /// The commit, if the file has the content of a ref. It may be the only copy of a ref, so garbage
    /// collection keeps the commit.
    pub commit: Option<CommitId>,
}

impl MisnamedFile {
    /// Informs `observer` about the file. `location` is the remote store that has it.
    pub fn note(&self, location: Option<&str>, observer: &dyn Observer) {
        let (path, commit) = (&self.path[..], self.commit.as_ref());
        observer.note(Note::MisnamedRef { path, location, commit });
    }
}

/// Returns the path of a file of refs relative to its store.
fn in_store(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    // The path of the store, or a branch name, may also contain these components.
    let is_in_store = |at: &usize| {
        let above: PathBuf = path.iter().take(*at).collect();
        above.join("objects").is_dir()
    };
    let mut pairs = parts.windows(2).enumerate();
    let from = pairs.find_map(|(at, pair)| {
        let is_ref = pair[0] == "refs" && ["heads", "tags", "remotes"].contains(&pair[1].as_ref());
        Some(at).filter(|at| is_ref && is_in_store(at))
    });
    parts[from.unwrap_or(parts.len().saturating_sub(1))..].join("/")
}

/// The state that a ref must have for a swap to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedRef<'t> {
    /// The ref points at this commit; with `None`, it does not exist.
    At(Option<CommitId>),
    /// The file has exactly this text: no process has written it since, not even with the same
    /// commit.
    Text(&'t RefText),
    /// The file does not hold a ref, and its bytes have this hash.
    Damaged(Damage),
    /// The file is lost; the last commit in its log is this one.
    Lost(CommitId),
}

impl ExpectedRef<'_> {
    fn commit(&self) -> Option<CommitId> {
        match self {
            Self::At(commit) => *commit,
            Self::Text(text) => text.commit,
            Self::Damaged(_) | Self::Lost(_) => None,
        }
    }

    fn is_met(&self, found: Option<&RefText>) -> bool {
        match self {
            Self::At(commit) => *commit == found.and_then(|text| text.commit),
            Self::Text(text) => Some(*text) == found,
            Self::Damaged(_) => false,
            Self::Lost(_) => found.is_none(),
        }
    }
}

/// Refs and the commits that they point at.
pub type ReadableRefs = Vec<(RefName, CommitId)>;

/// Refs that cannot be read, and why.
pub type UnreadableRefs = Vec<(RefName, RefError)>;

/// The refs of one store.
#[derive(Clone, Debug)]
pub struct Refs {
    store: PathBuf,
    disk: Disk,
    /// The objects of the store, to check that a ref moves to a complete commit.
    objects: Weak<Store>,
}

impl Refs {
    /// Gives access to the refs of the store at `store`; reads nothing yet.
    pub fn new(store: &Path, disk: Disk) -> Self {
        Self { store: store.to_owned(), disk, objects: Weak::new() }
    }

    /// Checks each new commit of a ref in these objects.
    #[must_use]
    pub(super) fn with_objects(self, objects: Weak<Store>) -> Self {
        Self { objects, ..self }
    }

    /// Refuses a commit to which no ref may move from `old`.
    fn check_commit(&self, id: &CommitId, old: Option<CommitId>) -> Result<(), RefError> {
        self.check_alive(id)?;
        self.check_not_replaced(id, old)
    }

    /// Refuses a commit if `rewrite` has replaced it or one of its ancestors, because these have
    /// purged objects. Skips the history of `old`, to which the ref points.
    fn check_not_replaced(&self, id: &CommitId, old: Option<CommitId>) -> Result<(), RefError> {
        let Some(objects) = self.objects.upgrade() else { return Ok(()) };
        let table = objects.rewrites()?;
        if table.is_empty() {
            return Ok(());
        }
        ancestors([*id], |at| {
            if old == Some(at) {
                return Ok(None);
            }
            if table.has_replaced(&at) {
                return Err(RefError::Replaced { id: *id, ancestor: at });
            }
            // A clone may lack the rest of the history.
            Ok(objects.ancestor(&at).ok().map(|found| found.commit.parents))
        })?;
        Ok(())
    }

    /// Refuses a commit that a garbage collection found dead: objects that the commit refers to may
    /// be deleted. The caller must hold the lock, so no collection begins meanwhile. Also refuses a
    /// commit that the store lacks, such as one of a remote-tracking branch that others deleted.
    fn check_alive(&self, id: &CommitId) -> Result<(), RefError> {
        let Some(objects) = self.objects.upgrade() else { return Ok(()) };
        let is_first = objects.epoch()?.is_first();
        if !is_first {
            objects.enter_epoch()?;
        }
        if !objects.is_alive(&id.object())? {
            // Another process may have stored the commit.
            objects.refresh()?;
            if !objects.is_alive(&id.object())? {
                let is_absent = objects.places(&id.object())?.is_empty();
                let is_kept = is_first && !objects.is_alive(&id.link())?;
                if is_absent && (is_kept || objects.is_forgotten_and_kept(id)) {
                    let (id, wanted) = (id.object(), ObjectKind::Commit);
                    return Err(StoreError::Missing { id, wanted }.into());
                }
                return Err(RefError::Collected { id: *id });
            }
        }
        Ok(())
    }

    /// Makes sure that a commit to which a branch, a tag or `HEAD` moves is not forgotten any more.
    /// The caller must hold the lock.
    fn keep(&self, id: &CommitId) -> Result<(), RefError> {
        let Some(objects) = self.objects.upgrade() else { return Ok(()) };
        Ok(objects.change_forgotten(&|table| table.remove(id))?)
    }

    /// Returns the commit that a ref points at; `None` if the ref does not exist.
    ///
    /// # Errors
    /// [`RefError::Damaged`] and [`RefError::Io`].
    pub fn read(&self, name: &RefName) -> Result<Option<CommitId>, RefError> {
        Ok(self.text(name)?.and_then(|text| text.commit))
    }

    /// Returns the content of a ref's file; `None` if there is no file. The content may record that
    /// the ref was deleted.
    ///
    /// # Errors
    /// As [`Refs::read`].
    pub fn text(&self, name: &RefName) -> Result<Option<RefText>, RefError> {
        let path = name.file(&self.store);
        let Some(text) = read_small(&path, "commit id")? else { return Ok(None) };
        let damaged = |_| RefError::Damaged { path, noun: "commit id" };
        RefText::decode(text.as_bytes()).map(Some).map_err(damaged)
    }

    /// Lists all refs of a kind, sorted by name.
    ///
    /// # Errors
    /// [`RefError::Damaged`] if any file is not a ref, [`RefError::Io`].
    pub fn list(&self, kind: RefKind) -> Result<Vec<(RefName, CommitId)>, RefError> {
        let (found, damaged) = self.list_readable(kind)?;
        damaged.into_iter().next().map_or(Ok(found), |(_, error)| Err(error))
    }

    /// Lists all refs of a kind, sorted by name: first the readable refs, then the unreadable ones.
    ///
    /// # Errors
    /// As [`Refs::names`].
    pub fn list_readable(&self, kind: RefKind) -> Result<(ReadableRefs, UnreadableRefs), RefError> {
        let (mut found, mut damaged) = (Vec::new(), Vec::new());
        for name in self.names(kind)? {
            match self.read(&name) {
                Ok(Some(id)) => found.push((name, id)),
                // Another process has deleted the ref since the folder was listed.
                Ok(None) => {}
                Err(error) => damaged.push((name, error)),
            }
        }
        Ok((found, damaged))
    }

    /// Lists the names of all refs of a kind, sorted, without reading their files. Skips files with
    /// names that no ref can have.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn names(&self, kind: RefKind) -> Result<Vec<RefName>, RefError> {
        Ok(self.names_with_times(kind, &mut FolderTimes::default())?.0)
    }

    /// Returns the files among the refs of a kind whose names no ref can have, sorted.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn misnamed(&self, kind: RefKind) -> Result<Vec<MisnamedFile>, RefError> {
        let (_, paths) = self.names_with_times(kind, &mut FolderTimes::default())?;
        let files = paths.into_iter().map(|file| {
            let text = match read_small(&file, "commit id") {
                Err(RefError::Damaged { .. }) => None,
                text => text?,
            };
            let text = text.and_then(|text| RefText::decode(text.as_bytes()).ok());
            let path = in_store(&file).escape_debug().to_string();
            Ok(MisnamedFile { path, commit: text.and_then(|text| text.commit) })
        });
        files.collect()
    }

    /// Informs `observer` about each file below `refs/` whose name no ref can have.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn note_misnamed(&self, observer: &dyn Observer) -> Result<(), RefError> {
        for kind in [RefKind::Branch, RefKind::Tag, RefKind::Remote] {
            self.misnamed(kind)?.iter().for_each(|file| file.note(None, observer));
        }
        Ok(())
    }

    /// Lists the names of refs, and the files with invalid names. Adds the modification times of
    /// the folders to `times`.
    fn names_with_times(
        &self,
        kind: RefKind,
        times: &mut FolderTimes,
    ) -> Result<(Vec<RefName>, Vec<PathBuf>), RefError> {
        let top = self.store.join("refs").join(kind.folder());
        let (mut found, mut misnamed) = (Vec::new(), Vec::new());
        for path in files_below(&top, times)? {
            let short = path.strip_prefix(&top).ok().and_then(Path::to_str);
            match short.and_then(|short| RefName::new(kind, short).ok()) {
                Some(name) => found.push(name),
                None => misnamed.push(path),
            }
        }
        found.sort_unstable();
        misnamed.sort_unstable();
        Ok((found, misnamed))
    }

    /// Returns the size of all refs and logs in bytes, including those of deleted refs and the
    /// length of each file name.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn bytes(&self) -> Result<u64, RefError> {
        let mut bytes = 0;
        for top in ["refs", "logs"] {
            for path in files_below(&self.store.join(top), &mut FolderTimes::default())? {
                let name = path.strip_prefix(&self.store).unwrap_or(&path).as_os_str().len();
                // Another process may have removed the file since the folder was listed.
                let length = fs_err::symlink_metadata(&path).map_or(0, |meta| meta.len());
                bytes += name as u64 + length;
            }
        }
        Ok(bytes)
    }

    /// Reads `HEAD`.
    ///
    /// # Errors
    /// [`RefError::Damaged`] and [`RefError::Io`].
    pub fn head(&self) -> Result<Head, RefError> {
        let path = self.head_file();
        let damaged = |path| RefError::Damaged { path, noun: "branch or commit id" };
        let Some(text) = read_small(&path, "branch or commit id")? else {
            return Err(damaged(path));
        };
        let text = text.trim_end_matches('\n');
        let head = match text.strip_prefix("ref: ") {
            Some(name) => RefName::parse_full(name)
                .filter(|name| name.kind() == RefKind::Branch)
                .map(Head::Branch),
            None => text.parse().ok().map(Head::Detached),
        };
        head.ok_or_else(|| damaged(path))
    }

    /// Returns the commit that `HEAD` leads to; `None` if its branch has no commit yet.
    ///
    /// # Errors
    /// As [`Refs::head`] and [`Refs::read`].
    pub fn head_commit(&self) -> Result<Option<CommitId>, RefError> {
        match self.head()? {
            Head::Branch(name) => self.read(&name),
            Head::Detached(id) => Ok(Some(id)),
        }
    }

    /// Moves a ref from `expected` to `new`. `None` means that the ref does not exist.
    ///
    /// # Errors
    /// [`RefError::Exists`] and [`RefError::Moved`] if the ref is not at `expected`,
    /// [`RefError::Lost`],
    /// [`RefError::NameConflict`], [`RefError::Newer`], [`RefError::Locked`], [`RefError::Io`].
    pub fn update(
        &self,
        name: &RefName,
        expected: Option<CommitId>,
        new: Option<CommitId>,
        change: &RefLogMessage<'_>,
    ) -> Result<(), RefError> {
        self.swap(name, ExpectedRef::At(expected), new, change).map(drop)
    }

    /// Moves a ref like [`Refs::update`], under any condition. Returns the new content of its file.
    ///
    /// # Errors
    /// As [`Refs::update`].
    pub fn swap(
        &self,
        name: &RefName,
        expected: ExpectedRef<'_>,
        new: Option<CommitId>,
        change: &RefLogMessage<'_>,
    ) -> Result<RefText, RefError> {
        HeldRefs { refs: self, lock: self.lock()? }.swap(name, expected, new, change)
    }

    /// Returns the last value of a ref whose file is lost, so that an undo can return to it. A last
    /// log line that records the creation of the ref counts only if there is proof that the change
    /// was completed: a crash may have prevented it.
    fn lost(&self, name: &RefName) -> Result<RefValue, RefError> {
        let Some(line) = self.log(name)?.pop() else { return Ok(RefValue::Nothing) };
        let was_there = line.old != RefValue::Nothing
            || self.last_change()?.is_some_and(|last| last.completes(&line));
        Ok(if was_there { line.new } else { RefValue::Nothing })
    }

    /// Points a ref with a damaged file at `new`. The log of the ref still has the old value.
    ///
    /// # Errors
    /// [`RefError::Exists`] if the ref is not damaged, [`RefError::Unknown`], [`RefError::Locked`],
    /// [`RefError::Io`].
    pub fn repair(
        &self,
        name: &RefName,
        new: CommitId,
        change: &RefLogMessage<'_>,
    ) -> Result<(), RefError> {
        let mut lock = self.lock()?;
        match self.read(name) {
            Err(RefError::Damaged { .. }) => {}
            Err(error) => return Err(error),
            Ok(None) => return Err(RefError::Unknown { name: name.clone() }),
            Ok(Some(at)) => return Err(RefError::Exists { name: name.clone(), at }),
        }
        self.check_commit(&new, None)?;
        self.keep(&new)?;
        let text = RefText::new(Some(new));
        let old = self.log(name)?.pop().map_or(RefValue::Nothing, |line| line.new);
        let write = || self.write(&name.file(&self.store), &text.encode());
        let is_done = || self.read(name).is_ok_and(|at| at == Some(new));
        let log = name.log_file(&self.store);
        self.change(&mut lock, &log, (&old, &new.into()), change, write, is_done)
    }

    /// Keeps all refs in place until the result is dropped.
    ///
    /// # Errors
    /// [`RefError::Locked`], [`RefError::Newer`], [`RefError::Io`].
    pub fn hold(&self) -> Result<HeldRefs<'_>, RefError> {
        let lock = self.lock()?;
        self.check_version()?;
        Ok(HeldRefs { refs: self, lock })
    }

    /// Syncs the folders between `refs/` and the file of a ref.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn sync(&self, name: &RefName) -> Result<(), RefError> {
        let top = self.store.join("refs");
        let path = name.file(&self.store);
        for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(&top)) {
            self.disk.sync_folder(folder)?;
        }
        Ok(())
    }

    /// Points `HEAD` at `new` if its value is still `expected`.
    ///
    /// # Errors
    /// [`RefError::HeadMoved`] if its value differs, [`RefError::Locked`], [`RefError::Io`].
    pub fn set_head(
        &self,
        expected: &Head,
        new: &Head,
        change: &RefLogMessage<'_>,
    ) -> Result<(), RefError> {
        HeldRefs { refs: self, lock: self.lock()? }.set_head(expected, new, change)
    }

    /// Logs a change from one value to another durably in the file `log`, then makes it. If the
    /// change fails without effect, removes the log line.
    fn change(
        &self,
        lock: &mut Lock,
        log: &Path,
        (old, new): (&RefValue, &RefValue),
        change: &RefLogMessage<'_>,
        write: impl FnOnce() -> Result<(), RefError>,
        is_done: impl FnOnce() -> bool,
    ) -> Result<(), RefError> {
        ref_log::append(&self.disk, log, old, new, &self.timed(lock, change)?)?;
        let written = write();
        if written.is_err() && !is_done() {
            ref_log::take_back_last(&self.disk, log);
        }
        written.map(|()| lock.set_done())
    }

    /// Points `HEAD` at a new branch, if `HEAD` names a branch that does not exist and the new
    /// branch is the only one. A clone then starts on the first pushed branch.
    ///
    /// # Errors
    /// As [`Refs::set_head`], without [`RefError::HeadMoved`].
    pub fn begin_head(&self, name: &RefName, change: &RefLogMessage<'_>) -> Result<(), RefError> {
        let head = match self.head() {
            // `mend_head` repairs a damaged `HEAD`.
            Err(RefError::Damaged { .. }) => return Ok(()),
            head => head?,
        };
        let Head::Branch(named) = &head else { return Ok(()) };
        let is_unborn = named != name && self.read(named)?.is_none();
        if !is_unborn || self.names(RefKind::Branch)? != [name.clone()] {
            return Ok(());
        }
        match self.set_head(&head, &Head::Branch(name.clone()), change) {
            // Another process has set `HEAD`; its choice stands.
            Err(RefError::HeadMoved) => Ok(()),
            pointed => pointed,
        }
    }

    /// Returns the log of a ref, oldest change first. A deleted ref keeps its log.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn log(&self, name: &RefName) -> Result<Vec<ref_log::RefLogEntry>, RefError> {
        Ok(ref_log::read(&name.log_file(&self.store))?)
    }

    /// Returns the change that gave a ref its present value `at`. Returns `None` if the last log
    /// line has another value: a crash may have lost or prevented the change.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn last_change_of(
        &self,
        name: &RefName,
        at: CommitId,
    ) -> Result<Option<ref_log::RefLogEntry>, RefError> {
        let last = ref_log::read_last(&name.log_file(&self.store))?;
        Ok(last.filter(|line| line.new.commit() == Some(at)))
    }

    pub(super) fn write_head(&self, head: &Head) -> Result<(), RefError> {
        let text = match head {
            Head::Branch(name) => format!("ref: {name}\n"),
            Head::Detached(id) => format!("{id}\n"),
        };
        self.write(&self.head_file(), &text)
    }

    fn head_file(&self) -> PathBuf {
        self.store.join("HEAD")
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), RefError> {
        Ok(self.disk.write_whole(&self.store.join("tmp"), path, text.as_bytes())?)
    }

    /// Checks that no other ref has a file in place of a folder of this ref's path, or below the
    /// path. Removes empty folders at the path.
    fn make_room(&self, name: &RefName, path: &Path) -> Result<(), RefError> {
        let mut above = String::new();
        for part in name.short().split('/') {
            if !above.is_empty() {
                let higher = RefName::new(name.kind(), &above)?;
                if higher.file(&self.store).is_file() {
                    return Err(RefError::NameConflict { name: name.clone(), other: above });
                }
                above.push('/');
            }
            above.push_str(part);
        }
        let mut folders = vec![path.to_owned()];
        let mut empty = Vec::new();
        while let Some(folder) = folders.pop().filter(|_| path.is_dir() && !is_link(path)) {
            for FolderEntry { path: inside, is_folder } in entries(&folder)? {
                if !is_folder {
                    let below = inside.strip_prefix(path).unwrap_or(&inside).display();
                    let other = format!("{}/{below}", name.short());
                    return Err(RefError::NameConflict { name: name.clone(), other });
                }
                folders.push(inside);
            }
            empty.push(folder);
        }
        for folder in empty.iter().rev() {
            fs_err::remove_dir(folder).map_err(PathError::when("remove", folder))?;
        }
        Ok(())
    }
}

/// Reads a small text file; returns `None` if it does not exist.
pub(super) fn read_small(path: &Path, noun: &'static str) -> Result<Option<String>, RefError> {
    use io::ErrorKind::{FileTooLarge, InvalidInput, IsADirectory, NotADirectory, NotFound};
    let damaged = || RefError::Damaged { path: path.to_owned(), noun };
    let bytes = match read_at_most(path, limits::REF_BYTES as u64) {
        Ok(bytes) => bytes,
        Err(error) => match error.kind() {
            NotFound | NotADirectory | IsADirectory if !is_link(path) => return Ok(None),
            NotFound | NotADirectory | IsADirectory => return Err(damaged()),
            FileTooLarge | InvalidInput => return Err(damaged()),
            _ => return Err(PathError::when("read", path)(error).into()),
        },
    };
    String::from_utf8(bytes).map(Some).map_err(|_| damaged())
}

/// Lists a folder. A missing folder is empty.
fn entries(folder: &Path) -> Result<Vec<FolderEntry>, PathError> {
    let list = || {
        let entries = if_exists(fs_err::read_dir(folder))?.into_iter().flatten();
        let entries = entries.map(|entry| {
            let entry = entry?;
            Ok(FolderEntry { path: entry.path(), is_folder: entry.file_type()?.is_dir() })
        });
        entries.collect::<io::Result<_>>()
    };
    list().map_err(PathError::when("list", folder))
}

struct FolderEntry {
    path: PathBuf,
    is_folder: bool,
}

/// Lists the files below a folder, unsorted. Adds the modification time of each folder to `times`
/// before it lists the folder.
fn files_below(top: &Path, times: &mut FolderTimes) -> Result<Vec<PathBuf>, PathError> {
    let (mut files, mut folders) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        times.add(&folder);
        for FolderEntry { path, is_folder } in entries(&folder)? {
            if is_folder { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
