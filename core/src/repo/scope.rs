//! The scope of a partial clone: the paths whose files it fetched.
//!
//! The project's folder has no files outside the scope. The user has not deleted them, so a commit
//! takes them unchanged from its parent.
//!
//! | file    | content                                                     |
//! |---------|-------------------------------------------------------------|
//! | `scope` | each path, relative to the root and without a `/` at its ends, and a NUL |
//!
//! `logs/scope` is a copy, which snap reads if `scope` is missing or damaged: without any scope,
//! the next commit would remove all other paths.
//!
//! A store without both files has no scope: all files of its snapshots belong in the project's
//! folder. A restore of the whole tip in place removes the scope.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    base::{blocked::PartialClone, io::PathError, limits, name::EntryName},
    disk::{Disk, regular::read_at_most},
    repo::{
        Repo,
        path::{components, is_within},
        refs::RefError,
    },
};

const FILE: &str = "scope";

/// A path of a scope; it has at least one name.
pub type ScopePath = Vec<EntryName>;

impl Repo {
    /// Returns what the store lacks if it is a partial clone; `None` if it is none.
    ///
    /// # Errors
    /// As [`Repo::scope`].
    pub fn partial_clone(&self) -> Result<Option<PartialClone>, RefError> {
        Ok(match self.scope()? {
            Some(_) => Some(PartialClone::Paths),
            None => self.store().has_partial().then_some(PartialClone::Packs),
        })
    }

    /// Returns the paths of the scope; `None` if the clone is not partial.
    ///
    /// # Errors
    /// [`RefError::Damaged`] and [`RefError::Io`].
    pub fn scope(&self) -> Result<Option<Vec<ScopePath>>, RefError> {
        let [first, second] = files(self.dir()).map(|path| read(&path));
        match (first, second) {
            (Ok(Some(scope)), _) | (_, Ok(Some(scope))) => Ok(Some(scope)),
            // A damaged list must not count as a missing one, which would mean all paths.
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(None), Ok(None)) => Ok(None),
        }
    }

    /// Sets the scope to these paths, without those below another one. An empty list or the path of
    /// the root removes the scope.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn set_scope(&self, paths: &[Vec<u8>]) -> Result<(), RefError> {
        let paths: Vec<Vec<u8>> =
            paths.iter().map(|path| components(path).collect::<Vec<_>>().join(&b'/')).collect();
        if paths.is_empty() || paths.iter().any(Vec::is_empty) {
            // Remove the copy first: after a crash between the two steps the scope is still in
            // force.
            for path in files(self.dir()).into_iter().rev().filter(|path| path.exists()) {
                self.disk().remove(&path)?;
                self.disk().sync_folder(path.parent().unwrap_or(self.dir()))?;
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
        write(self.dir(), self.disk(), &text)
    }
}

/// Rewrites the list and its copy if one of them is lost or damaged, and returns true if so. The
/// caller must hold the lock on the refs.
///
/// # Errors
/// [`RefError::Io`].
pub(super) fn mend(dir: &Path, disk: &Disk) -> Result<bool, RefError> {
    let Some(whole) = only_whole(dir) else { return Ok(false) };
    let text =
        read_at_most(&whole, limits::SCOPE_BYTES).map_err(PathError::when("read", &whole))?;
    write(dir, disk, &text)?;
    Ok(true)
}

/// Returns the intact file if exactly one of the two is intact.
pub(super) fn only_whole(dir: &Path) -> Option<PathBuf> {
    let mut whole = files(dir).into_iter().filter(|path| matches!(read(path), Ok(Some(_))));
    whole.next().filter(|_| whole.next().is_none())
}

fn write(dir: &Path, disk: &Disk, text: &[u8]) -> Result<(), RefError> {
    let tmp = dir.join("tmp");
    files(dir).iter().try_for_each(|path| Ok(disk.write_whole(&tmp, path, text)?))
}

fn read(path: &Path) -> Result<Option<Vec<ScopePath>>, RefError> {
    let damaged = || RefError::Damaged { path: path.to_owned(), noun: "list of paths" };
    let bytes = match read_at_most(path, limits::SCOPE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => return Ok(None),
            io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => return Err(damaged()),
            _ => return Err(PathError::when("read", path)(error).into()),
        },
    };
    let text = bytes.strip_suffix(b"\0");
    let paths = text.ok_or_else(damaged)?.split(|byte| *byte == 0).map(|path| {
        let names = path.split(|byte| *byte == b'/').map(EntryName::new);
        names.collect::<Result<ScopePath, _>>().map_err(|_| damaged())
    });
    paths.collect::<Result<_, _>>().map(Some)
}

/// Returns the paths of the list and of its copy.
fn files(dir: &Path) -> [PathBuf; 2] {
    [dir.join(FILE), dir.join("logs").join(FILE)]
}
