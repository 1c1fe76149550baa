//! Reads the values and logs of `HEAD`, branches and tags alike, and moves them.

use std::path::{Path, PathBuf};

use crate::{
    base::id::CommitId,
    disk::folder_times::FolderTimes,
    repo::{
        ref_log::{self, RefValue},
        ref_name::{Pointer, RefKind, RefName},
        refs::{Head, RefError, RefLogMessage, Refs, files_below},
    },
};

/// Suffix of the name of a log.
const LOG: &str = ".log";

/// The log of commits that `unpack` received and gave no ref.
const UNPACKED_LOG: &str = "logs/unpacked.log";

impl Refs {
    /// Returns the value of `pointer`.
    ///
    /// # Errors
    /// As [`Refs::head`] and [`Refs::read`].
    pub fn target(&self, pointer: &Pointer) -> Result<RefValue, RefError> {
        match pointer {
            Pointer::Head => Ok((&self.head()?).into()),
            Pointer::Ref(name) => Ok(self.read(name)?.into()),
        }
    }

    /// Returns the log of `pointer`, oldest change first. A deleted ref keeps its log.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn log_of(&self, pointer: &Pointer) -> Result<Vec<ref_log::RefLogEntry>, RefError> {
        Ok(ref_log::read(&self.log_file(pointer))?)
    }

    /// Returns the path of the log of `pointer`.
    pub(super) fn log_file(&self, pointer: &Pointer) -> PathBuf {
        match pointer {
            Pointer::Head => self.store.join("logs").join("HEAD.log"),
            Pointer::Ref(name) => name.log_file(&self.store),
        }
    }

    /// Returns the lines of the logs that no undo reads: those of remote-tracking branches, and the
    /// commits that `unpack` received and gave no ref. Unsorted.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub(in crate::repo) fn other_logs(&self) -> Result<Vec<ref_log::RefLogEntry>, RefError> {
        let top = self.store.join("logs/refs").join(RefKind::Remote.folder());
        let mut lines = ref_log::read(&self.store.join(UNPACKED_LOG))?;
        for file in files_below(&top, &mut FolderTimes::default())? {
            lines.extend(ref_log::read(&file)?);
        }
        Ok(lines)
    }

    /// Records durably that `unpack` received a commit and gave it no ref. Garbage collection keeps
    /// the commit as long as a former value of a ref.
    ///
    /// # Errors
    /// [`RefError::Collected`] and [`RefError::Replaced`] if no ref could move to the commit,
    /// [`RefError::Locked`], [`RefError::Io`].
    pub fn record_unpacked(
        &self,
        id: CommitId,
        change: &RefLogMessage<'_>,
    ) -> Result<(), RefError> {
        let mut lock = self.lock()?;
        self.check_commit(&id, None)?;
        let (log, moved) = (self.store.join(UNPACKED_LOG), (&RefValue::Nothing, &id.into()));
        self.change(&mut lock, &log, moved, change, || Ok(()), || true)
    }

    /// Lists all pointers that have a log, including deleted refs; sorted.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn logged(&self) -> Result<Vec<Pointer>, RefError> {
        let mut found = Vec::new();
        if self.log_file(&Pointer::Head).exists() {
            found.push(Pointer::Head);
        }
        for kind in [RefKind::Branch, RefKind::Tag] {
            found.extend(self.logged_of(kind)?.into_iter().map(Pointer::Ref));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Lists all refs of a kind that have a log, including deleted refs; sorted.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn logged_of(&self, kind: RefKind) -> Result<Vec<RefName>, RefError> {
        let top = self.store.join("logs/refs").join(kind.folder());
        let files = files_below(&top, &mut FolderTimes::default())?;
        let names = files.iter().filter_map(|file| logged_name(kind, &top, file));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Moves `pointer` from one target to another, if its target is still the first.
    ///
    /// # Errors
    /// As [`Refs::update`] and [`Refs::set_head`]; [`RefError::Damaged`] for a target that this
    /// pointer cannot have.
    pub fn retarget(
        &self,
        pointer: &Pointer,
        from: &RefValue,
        to: &RefValue,
        change: &RefLogMessage<'_>,
    ) -> Result<(), RefError> {
        match pointer {
            Pointer::Head => self.set_head(&self.head_of(from)?, &self.head_of(to)?, change),
            Pointer::Ref(name) => {
                let commit = |target: &RefValue| match target {
                    RefValue::Nothing => Ok(None),
                    RefValue::Commit(id) => Ok(Some(*id)),
                    RefValue::Branch(_) => {
                        let path = name.log_file(&self.store);
                        Err(RefError::Damaged { path, noun: "log of a ref" })
                    }
                };
                self.update(name, commit(from)?, commit(to)?, change)
            }
        }
    }

    fn head_of(&self, target: &RefValue) -> Result<Head, RefError> {
        match target {
            RefValue::Branch(name) => Ok(Head::Branch(name.clone())),
            RefValue::Commit(id) => Ok(Head::Detached(*id)),
            RefValue::Nothing => {
                let path = self.log_file(&Pointer::Head);
                Err(RefError::Damaged { path, noun: "log of HEAD" })
            }
        }
    }
}

fn logged_name(kind: RefKind, top: &Path, file: &Path) -> Option<RefName> {
    let short = file.strip_prefix(top).ok()?.to_str()?.strip_suffix(LOG)?;
    RefName::new(kind, short).ok()
}
