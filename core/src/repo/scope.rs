//! The scope of a partial clone: the paths whose files it brought.
//!
//! Paths outside the scope are not in the project's folder. That does not mean
//! that they were deleted, so a commit keeps them as they are in its parent.
//!
//! | file    | content                                                     |
//! |---------|-------------------------------------------------------------|
//! | `scope` | each path, relative to the root and without a `/` at its ends, and a NUL |
//!
//! A store without the file has no scope: all of its snapshots' files belong
//! in the project's folder. The file goes when a whole revision is restored in
//! place.

use std::{io, path::PathBuf};

use crate::{
    base::{io::PathError, limits, name::EntryName},
    disk::regular::read_at_most,
    repo::{
        Repo,
        path::{components, is_within},
        refs::{RefError, temporary},
    },
};

const FILE: &str = "scope";

/// A path of a scope; at least one name.
pub type ScopePath = Vec<EntryName>;

impl Repo {
    /// The paths of the scope; `None` when the clone is not partial.
    ///
    /// # Errors
    /// [`RefError::Damaged`] and [`RefError::Io`].
    pub fn scope(&self) -> Result<Option<Vec<ScopePath>>, RefError> {
        let path = self.scope_file();
        let damaged = || RefError::Damaged { path: path.clone(), noun: "list of paths" };
        let bytes = match read_at_most(&path, limits::SCOPE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => return Ok(None),
                io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => return Err(damaged()),
                _ => return Err(PathError::when("read", &path)(error).into()),
            },
        };
        let text = bytes.strip_suffix(b"\0");
        let paths = text.ok_or_else(damaged)?.split(|byte| *byte == 0).map(|path| {
            let names = path.split(|byte| *byte == b'/').map(EntryName::new);
            names.collect::<Result<ScopePath, _>>().map_err(|_| damaged())
        });
        paths.collect::<Result<_, _>>().map(Some)
    }

    /// Sets the scope to these paths, without those that lie in another one. No path,
    /// or a path that is the root, removes the scope.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn set_scope(&self, paths: &[Vec<u8>]) -> Result<(), RefError> {
        let path = self.scope_file();
        let paths: Vec<Vec<u8>> =
            paths.iter().map(|path| components(path).collect::<Vec<_>>().join(&b'/')).collect();
        if paths.is_empty() || paths.iter().any(Vec::is_empty) {
            if path.exists() {
                self.disk().remove(&path)?;
                self.disk().sync_folder(self.dir())?;
            }
            return Ok(());
        }
        let mut outer: Vec<&Vec<u8>> = Vec::new();
        for path in &paths {
            let lies_in = |other: &&Vec<u8>| *other != path && is_within(path, other);
            if !outer.contains(&path) && !paths.iter().any(|other| lies_in(&other)) {
                outer.push(path);
            }
        }
        let mut text = outer.iter().map(|path| path.as_slice()).collect::<Vec<_>>().join(&0);
        text.push(0);
        Ok(self.disk().write_whole(&temporary(self.dir(), FILE), &path, &text)?)
    }

    fn scope_file(&self) -> PathBuf {
        self.dir().join(FILE)
    }
}
