//! Branches, tags and `HEAD`: small text files, moved by compare-and-swap.
//!
//! | file               | content                                        |
//! |--------------------|------------------------------------------------|
//! | `refs/heads/NAME`  | a [text](crate::format::ref_text)              |
//! | `refs/tags/NAME`   | likewise                                       |
//! | `HEAD`             | `ref: refs/heads/NAME\n`, or a commit's digits |
//! | `lock`             | time of the last change; held while a ref moves |
//!
//! A ref moves under an exclusive lock on `lock`: read it again, compare it
//! with what the caller saw, append the change to the [log](super::ref_log),
//! then write the new file whole (temporary file, sync, rename, sync of the
//! folder). Reading takes no lock: a file is there whole or not at all.

mod lock;
mod moves;
mod version;

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    base::{id::CommitId, io::PathError, kind::ErrorKind, limits, time::Time},
    disk::{Disk, regular::read_at_most},
    format::ref_text::RefText,
    repo::{
        ref_log::{self, Target},
        ref_name::{RefKind, RefName, RefNameError},
    },
};

/// What `HEAD` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// Commits go to this branch, which may not exist yet.
    Branch(RefName),
    /// A commit without a branch.
    Detached(CommitId),
}

impl From<&Head> for Target {
    fn from(head: &Head) -> Self {
        match head {
            Head::Branch(name) => Self::Branch(name.clone()),
            Head::Detached(id) => Self::Commit(*id),
        }
    }
}

/// Who moves a ref, when, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// When. In the log it is put after the change before it, of whatever ref,
    /// so that the logs together tell the order in which refs changed.
    pub time: Time,
    /// Who.
    pub who: &'a str,
    /// Such as "commit: fix the roof"; `undo: …` and `redo: …` are for the
    /// [undoing](super::undo) of changes only.
    pub reason: &'a str,
}

/// Why a ref could not be read or moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefError {
    /// The file does not say what a ref says.
    #[error("{} is damaged: it is not a {noun}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What it should be, such as "commit id".
        noun: &'static str,
    },
    /// It is already there.
    #[error("{} `{}` already exists", name.kind().noun(), name.short())]
    Exists {
        /// Which.
        name: RefName,
        /// Where it points.
        at: CommitId,
    },
    /// A later version wrote it, and this one must not write over that.
    #[error("{} was written by a newer version of snap", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else moved it meanwhile.
    #[error("{} `{}` has moved meanwhile", name.kind().noun(), name.short())]
    Moved {
        /// Which.
        name: RefName,
        /// Where it points now.
        found: Option<CommitId>,
    },
    /// `HEAD` was changed meanwhile.
    #[error("HEAD has moved meanwhile")]
    HeadMoved,
    /// One name would be a folder of the other.
    #[error("{} `{}` cannot exist beside `{other}`", name.kind().noun(), name.short())]
    Beside {
        /// The one to be made.
        name: RefName,
        /// The one that is there.
        other: String,
    },
    /// It is not there.
    #[error("there is no {} `{}`", name.kind().noun(), name.short())]
    Unknown {
        /// Which.
        name: RefName,
    },
    /// The name breaks a rule.
    #[error(transparent)]
    Name(#[from] RefNameError),
    /// Another process holds the lock.
    #[error("{} has been locked for {waited_secs} seconds", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited_secs: u64,
    },
    /// Another command reads or writes the project's files.
    #[error("the files of {} have been in use by another snap for {waited_secs} seconds", project.display())]
    FilesBusy {
        /// The project folder.
        project: PathBuf,
        /// How long was waited.
        waited_secs: u64,
    },
    /// The user asked to stop while waiting for a lock.
    #[error("interrupted")]
    Interrupted,
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] PathError),
}

impl RefError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Newer { .. } => ErrorKind::Unsupported,
            Self::Exists { .. } | Self::Moved { .. } | Self::HeadMoved | Self::Beside { .. } => {
                ErrorKind::Exists
            }
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::Name(_) => ErrorKind::Invalid,
            Self::Locked { .. } | Self::FilesBusy { .. } => ErrorKind::Locked,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Io(error) => error.kind(),
        }
    }
}

/// What a ref must say for it to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'t> {
    /// It stands at this commit; `None`: it does not exist.
    At(Option<CommitId>),
    /// It says exactly this: nobody wrote it since, not even the same commit.
    Says(&'t RefText),
}

impl Expected<'_> {
    fn commit(&self) -> Option<CommitId> {
        match self {
            Self::At(commit) => *commit,
            Self::Says(text) => text.commit,
        }
    }

    fn is_met(&self, found: Option<&RefText>) -> bool {
        match self {
            Self::At(commit) => *commit == found.and_then(|text| text.commit),
            Self::Says(text) => Some(*text) == found,
        }
    }
}

/// The refs of one store.
#[derive(Clone, Debug)]
pub struct Refs {
    store: PathBuf,
    disk: Disk,
}

impl Refs {
    /// The refs of the store at `store`; reads nothing yet.
    pub fn new(store: &Path, disk: Disk) -> Self {
        Self { store: store.to_owned(), disk }
    }

    /// Where a branch or tag points; `None` when it does not exist.
    ///
    /// # Errors
    /// [`RefError::Damaged`] and [`RefError::Io`].
    pub fn read(&self, name: &RefName) -> Result<Option<CommitId>, RefError> {
        Ok(self.text(name)?.and_then(|text| text.commit))
    }

    /// What the file of a branch or tag says; `None` when there is none. A file
    /// may say that the ref was deleted.
    ///
    /// # Errors
    /// As [`Refs::read`].
    pub fn text(&self, name: &RefName) -> Result<Option<RefText>, RefError> {
        let path = name.file(&self.store);
        let Some(text) = read_small(&path, "commit id")? else { return Ok(None) };
        let damaged = |_| RefError::Damaged { path, noun: "commit id" };
        RefText::decode(text.as_bytes()).map(Some).map_err(damaged)
    }

    /// All branches or all tags, sorted by name.
    ///
    /// # Errors
    /// [`RefError::Damaged`] for a file that is not a ref, [`RefError::Io`].
    pub fn list(&self, kind: RefKind) -> Result<Vec<(RefName, CommitId)>, RefError> {
        let mut found = Vec::new();
        for name in self.names(kind)? {
            // One that was deleted since the folder was read is no loss.
            found.extend(self.read(&name)?.map(|id| (name, id)));
        }
        Ok(found)
    }

    /// Names of all branches or all tags, sorted, without reading them.
    ///
    /// # Errors
    /// [`RefError::Damaged`] for a file whose name is none, [`RefError::Io`].
    pub fn names(&self, kind: RefKind) -> Result<Vec<RefName>, RefError> {
        let top = self.store.join("refs").join(kind.folder());
        let mut found = Vec::new();
        let mut folders = vec![top.clone()];
        while let Some(folder) = folders.pop() {
            for (path, is_folder) in entries(&folder)? {
                if is_folder {
                    folders.push(path);
                    continue;
                }
                let short = path.strip_prefix(&top).ok().and_then(Path::to_str);
                let name = short.and_then(|short| RefName::new(kind, short).ok());
                found.push(name.ok_or(RefError::Damaged { path, noun: kind.noun() })?);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Bytes of all refs and of their logs, those included of refs that were
    /// deleted; the name of each file counts, too.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn bytes(&self) -> Result<u64, RefError> {
        let mut bytes = 0;
        let mut folders = vec![self.store.join("refs"), self.store.join("logs")];
        while let Some(folder) = folders.pop() {
            for (path, is_folder) in entries(&folder)? {
                if is_folder {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(&self.store).unwrap_or(&path).as_os_str().len();
                // One that is just being replaced is there the next time.
                let length = fs_err::symlink_metadata(&path).map_or(0, |meta| meta.len());
                bytes += name as u64 + length;
            }
        }
        Ok(bytes)
    }

    /// What `HEAD` says.
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

    /// The commit that `HEAD` stands on; `None` when its branch has none yet.
    ///
    /// # Errors
    /// As [`Refs::head`] and [`Refs::read`].
    pub fn head_commit(&self) -> Result<Option<CommitId>, RefError> {
        match self.head()? {
            Head::Branch(name) => self.read(&name),
            Head::Detached(id) => Ok(Some(id)),
        }
    }

    /// Moves a branch or tag from `expected` to `new`; `None` means that it
    /// does not exist.
    ///
    /// # Errors
    /// [`RefError::Exists`] and [`RefError::Moved`] when it does not stand at
    /// `expected`, [`RefError::Beside`], [`RefError::Newer`],
    /// [`RefError::Locked`], [`RefError::Io`].
    pub fn update(
        &self,
        name: &RefName,
        expected: Option<CommitId>,
        new: Option<CommitId>,
        change: &Change<'_>,
    ) -> Result<(), RefError> {
        self.swap(name, Expected::At(expected), new, change).map(drop)
    }

    /// [`Refs::update`] on any condition. Returns what the ref says then.
    ///
    /// # Errors
    /// As [`Refs::update`].
    pub fn swap(
        &self,
        name: &RefName,
        expected: Expected<'_>,
        new: Option<CommitId>,
        change: &Change<'_>,
    ) -> Result<RefText, RefError> {
        let mut lock = self.lock()?;
        let text = self.text(name)?;
        let found = text.as_ref().and_then(|text| text.commit);
        let path = name.file(&self.store);
        if found != new && text.as_ref().is_some_and(|text| !text.is_writable()) {
            return Err(RefError::Newer { path });
        }
        match found {
            _ if expected.is_met(text.as_ref()) => {}
            Some(at) if expected.commit().is_none() => {
                return Err(RefError::Exists { name: name.clone(), at });
            }
            _ => return Err(RefError::Moved { name: name.clone(), found }),
        }
        if found == new {
            return Ok(text.unwrap_or_else(|| RefText::without_nonce(None)));
        }
        let folder = path.parent().unwrap_or(&self.store);
        if new.is_some() {
            self.make_room(name, &path)?;
            self.disk.create_folders(folder)?;
        }
        let text = self.new_text(new)?;
        let change = &self.timed(&mut lock, change)?;
        let log = name.log_file(&self.store);
        let write = || match new {
            Some(_) => {
                self.write(&path, &text.encode())?;
                // A folder on the way may be somebody's who did not live to sync it.
                if name.short().contains('/') { self.sync(name) } else { Ok(()) }
            }
            None => {
                self.disk.remove(&path)?;
                Ok(self.disk.sync_folder(folder)?)
            }
        };
        let is_done = || self.read(name).is_ok_and(|at| at == new);
        self.change((&log, (&found.into(), &new.into()), change), write, is_done)?;
        Ok(text)
    }

    /// Points a branch or tag whose file is damaged at `new`. What it pointed at
    /// is in its log.
    ///
    /// # Errors
    /// [`RefError::Exists`] when it is not damaged, [`RefError::Locked`],
    /// [`RefError::Io`].
    pub fn repair(
        &self,
        name: &RefName,
        new: CommitId,
        change: &Change<'_>,
    ) -> Result<(), RefError> {
        let mut lock = self.lock()?;
        match self.read(name) {
            Err(RefError::Damaged { .. }) => {}
            Err(error) => return Err(error),
            Ok(None) => return Err(RefError::Unknown { name: name.clone() }),
            Ok(Some(at)) => return Err(RefError::Exists { name: name.clone(), at }),
        }
        let change = &self.timed(&mut lock, change)?;
        let text = self.new_text(Some(new))?;
        let old = self.log(name)?.pop().map_or(Target::Nothing, |line| line.new);
        let write = || self.write(&name.file(&self.store), &text.encode());
        let is_done = || self.read(name).is_ok_and(|at| at == Some(new));
        self.change((&name.log_file(&self.store), (&old, &new.into()), change), write, is_done)
    }

    /// Makes the names on the way to a ref durable.
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

    /// Points `HEAD` elsewhere, when it still says `expected`.
    ///
    /// # Errors
    /// [`RefError::HeadMoved`] when it does not, [`RefError::Locked`],
    /// [`RefError::Io`].
    pub fn set_head(
        &self,
        expected: &Head,
        new: &Head,
        change: &Change<'_>,
    ) -> Result<(), RefError> {
        let mut lock = self.lock()?;
        if self.head()? != *expected {
            return Err(RefError::HeadMoved);
        }
        if expected == new {
            return Ok(());
        }
        let change = &self.timed(&mut lock, change)?;
        let log = self.head_log_file();
        let is_done = || self.head().is_ok_and(|head| head == *new);
        let write = || self.write_head(new);
        self.change((&log, (&expected.into(), &new.into()), change), write, is_done)
    }

    /// Logs a change durably, then makes it. The line is taken back when the change
    /// failed and was not done all the same.
    fn change(
        &self,
        (log, (old, new), change): (&Path, (&Target, &Target), &Change<'_>),
        write: impl FnOnce() -> Result<(), RefError>,
        is_done: impl FnOnce() -> bool,
    ) -> Result<(), RefError> {
        let bytes = ref_log::length(log);
        ref_log::append(&self.disk, log, (old, new), change)?;
        let written = write();
        if written.is_err() && !is_done() {
            ref_log::take_back(&self.disk, log, bytes);
        }
        written
    }

    /// Points `HEAD` at a branch that has just been made, where it names one that is
    /// not there and no other branch is: a clone begins with what was pushed first.
    ///
    /// # Errors
    /// As [`Refs::set_head`], but for [`RefError::HeadMoved`].
    pub fn begin_head(&self, name: &RefName, change: &Change<'_>) -> Result<(), RefError> {
        let head = self.head()?;
        let Head::Branch(named) = &head else { return Ok(()) };
        let is_unborn = named != name && self.read(named)?.is_none();
        if !is_unborn || self.names(RefKind::Branch)? != [name.clone()] {
            return Ok(());
        }
        match self.set_head(&head, &Head::Branch(name.clone()), change) {
            // Somebody else has pointed it somewhere meanwhile, as is their right.
            Err(RefError::HeadMoved) => Ok(()),
            pointed => pointed,
        }
    }

    /// Where a branch or tag stood, oldest change first; also of one that was
    /// deleted.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn log(&self, name: &RefName) -> Result<Vec<ref_log::Line>, RefError> {
        Ok(ref_log::read(&name.log_file(&self.store))?)
    }

    /// What `HEAD` said, oldest change first.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn head_log(&self) -> Result<Vec<ref_log::Line>, RefError> {
        Ok(ref_log::read(&self.head_log_file())?)
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

    fn head_log_file(&self) -> PathBuf {
        self.store.join("logs").join("HEAD.log")
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), RefError> {
        let temporary = temporary(&self.store, "ref");
        Ok(self.disk.write_whole(&temporary, path, text.as_bytes())?)
    }

    /// Makes sure that no ref is a folder of this one or lies below it;
    /// removes folders that hold nothing any more.
    fn make_room(&self, name: &RefName, path: &Path) -> Result<(), RefError> {
        let mut above = String::new();
        for part in name.short().split('/') {
            if !above.is_empty() {
                let higher = RefName::new(name.kind(), &above)?;
                if higher.file(&self.store).is_file() {
                    return Err(RefError::Beside { name: name.clone(), other: above });
                }
                above.push('/');
            }
            above.push_str(part);
        }
        let mut folders = vec![path.to_owned()];
        let mut empty = Vec::new();
        while let Some(folder) = folders.pop().filter(|_| path.is_dir()) {
            for (inside, is_folder) in entries(&folder)? {
                if !is_folder {
                    let below = inside.strip_prefix(path).unwrap_or(&inside).display();
                    let other = format!("{}/{below}", name.short());
                    return Err(RefError::Beside { name: name.clone(), other });
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

/// A name in `tmp/` that nobody else uses.
pub(super) fn temporary(store: &Path, what: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let Time { secs, nanos } = Time::now();
    let process = std::process::id();
    store.join("tmp").join(format!("{what}-{process}-{count}-{secs}{nanos:09}"))
}

/// Reads a small text file; `None` when there is no such file.
pub(super) fn read_small(path: &Path, noun: &'static str) -> Result<Option<String>, RefError> {
    use io::ErrorKind::{FileTooLarge, InvalidInput, IsADirectory, NotADirectory, NotFound};
    let damaged = || RefError::Damaged { path: path.to_owned(), noun };
    let bytes = match read_at_most(path, limits::REF_BYTES as u64) {
        Ok(bytes) => bytes,
        Err(error) => match error.kind() {
            NotFound | NotADirectory | IsADirectory => return Ok(None),
            FileTooLarge | InvalidInput => return Err(damaged()),
            _ => return Err(PathError::when("read", path)(error).into()),
        },
    };
    String::from_utf8(bytes).map(Some).map_err(|_| damaged())
}

/// Paths in a folder and whether each is a folder; nothing when it is gone.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>, PathError> {
    let listing = match fs_err::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(PathError::when("list", folder))?,
    };
    listing
        .map(|entry| {
            let entry = entry?;
            Ok((entry.path(), entry.file_type()?.is_dir()))
        })
        .collect::<io::Result<_>>()
        .map_err(PathError::when("list", folder))
}

#[cfg(test)]
mod tests;
