//! `HEAD`, branches and tags alike: what they point at, their logs, and moving
//! any of them.

use std::path::Path;

use crate::repo::{
    ref_log::{self, Target},
    ref_name::{Pointer, RefKind, RefName},
    refs::{Change, Head, RefError, Refs, entries},
};

/// Ending of a log's name.
const LOG: &str = ".log";

impl Refs {
    /// What it points at.
    ///
    /// # Errors
    /// As [`Refs::head`] and [`Refs::read`].
    pub fn target(&self, pointer: &Pointer) -> Result<Target, RefError> {
        match pointer {
            Pointer::Head => Ok((&self.head()?).into()),
            Pointer::Ref(name) => Ok(self.read(name)?.into()),
        }
    }

    /// What it pointed at, oldest change first; also of one that was deleted.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn log_of(&self, pointer: &Pointer) -> Result<Vec<ref_log::Line>, RefError> {
        match pointer {
            Pointer::Head => self.head_log(),
            Pointer::Ref(name) => self.log(name),
        }
    }

    /// All that have a log, those included that were deleted; sorted.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn logged(&self) -> Result<Vec<Pointer>, RefError> {
        let mut found = Vec::new();
        if self.head_log_file().exists() {
            found.push(Pointer::Head);
        }
        for kind in [RefKind::Branch, RefKind::Tag] {
            let top = self.store.join("logs/refs").join(kind.folder());
            let mut folders = vec![top.clone()];
            while let Some(folder) = folders.pop() {
                for (path, is_folder) in entries(&folder)? {
                    match is_folder {
                        true => folders.push(path),
                        false => found.extend(logged_name(kind, &top, &path).map(Pointer::Ref)),
                    }
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Moves it from one target to another, when it still points at the first.
    ///
    /// # Errors
    /// As [`Refs::update`] and [`Refs::set_head`]; [`RefError::Damaged`] for a
    /// target that it cannot have.
    pub fn retarget(
        &self,
        pointer: &Pointer,
        (from, to): (&Target, &Target),
        change: &Change<'_>,
    ) -> Result<(), RefError> {
        match pointer {
            Pointer::Head => self.set_head(&self.head_of(from)?, &self.head_of(to)?, change),
            Pointer::Ref(name) => {
                let commit = |target: &Target| match target {
                    Target::Nothing => Ok(None),
                    Target::Commit(id) => Ok(Some(*id)),
                    Target::Branch(_) => {
                        let path = name.log_file(&self.store);
                        Err(RefError::Damaged { path, noun: "log of a ref" })
                    }
                };
                self.update(name, commit(from)?, commit(to)?, change)
            }
        }
    }

    fn head_of(&self, target: &Target) -> Result<Head, RefError> {
        match target {
            Target::Branch(name) => Ok(Head::Branch(name.clone())),
            Target::Commit(id) => Ok(Head::Detached(*id)),
            Target::Nothing => {
                Err(RefError::Damaged { path: self.head_log_file(), noun: "log of HEAD" })
            }
        }
    }
}

fn logged_name(kind: RefKind, top: &Path, file: &Path) -> Option<RefName> {
    let short = file.strip_prefix(top).ok()?.to_str()?.strip_suffix(LOG)?;
    RefName::new(kind, short).ok()
}
