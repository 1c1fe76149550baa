//! Maps the paths of a compared folder to paths on disk.
//!
//! A commit of several paths has a virtual root, which corresponds to no folder on disk. The
//! [`Items`] of that commit then map a path in the snapshot to a path on disk.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::{
    local::{
        read::{open_above, open_parent, open_root},
        scan::FileStat,
    },
    ops::{
        commit::{NamedPath, paths},
        diff::DiffError,
    },
    repo::path::components,
};

pub(super) use crate::ops::commit::paths::{Items, VirtualEntry};

/// The files on disk that a tree is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComparedFiles {
    /// The contents of a folder.
    Folder(PathBuf),
    /// Several files and folders, each at its path in the snapshot.
    Paths(Vec<NamedPath>),
}

impl ComparedFiles {
    /// Returns true if there is an entry on disk at a path of the snapshot.
    pub fn has(&self, path: &[u8]) -> bool {
        let names: Vec<&[u8]> = components(path).collect();
        let on_disk = match self {
            Self::Folder(top) => Some((top, &names[..])),
            Self::Paths(named) => named.iter().find_map(|NamedPath { path, inside }| {
                let is_at = names.len() >= inside.len()
                    && inside.iter().zip(&names).all(|(name, other)| name.as_bytes() == *other);
                is_at.then(|| (path, &names[inside.len()..]))
            }),
        };
        on_disk.is_some_and(|(top, names)| {
            let mut path = top.clone();
            path.extend(names.iter().map(|name| OsStr::from_bytes(name)));
            path.symlink_metadata().is_ok()
        })
    }
}

/// [`ComparedFiles`], prepared for looking up entries.
#[derive(Debug)]
pub(in crate::ops) enum DiskPaths {
    Folder(PathBuf, OwnedFd),
    Virtual(Items),
}

impl DiskPaths {
    /// Opens the compared folder, or builds a virtual folder of the named paths.
    pub(in crate::ops) fn open(files: &ComparedFiles) -> Result<Self, DiffError> {
        Ok(match files {
            ComparedFiles::Folder(path) => {
                let unread = |source| DiffError::Folder { path: path.clone(), source };
                Self::Folder(path.clone(), open_root(path).map_err(unread)?)
            }
            ComparedFiles::Paths(named) => {
                let mut items = Items::new();
                for NamedPath { path, inside } in named {
                    let twice = |_| DiffError::Folder {
                        path: path.clone(),
                        source: io::Error::other("it is part of another compared path"),
                    };
                    paths::insert_path(&mut items, path, inside).map_err(twice)?;
                }
                Self::Virtual(items)
            }
        })
    }

    /// Returns the path on disk of an entry, for messages.
    pub(in crate::ops) fn shown(&self, path: &[u8]) -> PathBuf {
        match self {
            Self::Folder(top, _) => top.join(OsStr::from_bytes(path)),
            Self::Virtual(items) => match find(items, path) {
                Some((top, [])) => top.to_owned(),
                Some((top, rest)) => top.join(OsStr::from_bytes(rest)),
                None => PathBuf::from(OsStr::from_bytes(path)),
            },
        }
    }

    /// Opens the folder on disk that contains the entry at `path`. Also returns the entry's name
    /// there.
    pub(in crate::ops) fn open_above(&self, path: &[u8]) -> io::Result<(OwnedFd, OsString)> {
        let (top, rest) = match self {
            Self::Folder(_, top) => {
                let (above, name) = open_above(top.as_fd(), path)?;
                return Ok((above, name.to_owned()));
            }
            Self::Virtual(items) => find(items, path).ok_or(io::ErrorKind::NotFound)?,
        };
        if rest.is_empty() {
            return open_parent(top);
        }
        let top =
            openat(CWD, top, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let (above, name) = open_above(top.as_fd(), rest)?;
        Ok((above, name.to_owned()))
    }
}

/// Returns the path on disk of an item of a virtual folder.
pub(super) fn on_disk(item: &VirtualEntry) -> &Path {
    let (VirtualEntry::OnDisk(path, _) | VirtualEntry::Intermediate(path, ..)) = item;
    path
}

/// Returns the stat of each item of a virtual folder.
pub(super) fn stats(items: &Items) -> impl Iterator<Item = (&[u8], io::Result<FileStat>)> {
    items.iter().map(|(name, item)| (name.as_bytes(), FileStat::of_path(on_disk(item))))
}

/// Returns the path on disk of the item at or above `path`, and the rest of the path below it.
fn find<'p>(items: &'p Items, path: &'p [u8]) -> Option<(&'p Path, &'p [u8])> {
    let (mut items, mut rest) = (items, path);
    loop {
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (name, below) = rest.split_at(end);
        rest = below.strip_prefix(b"/").unwrap_or(below);
        match items.get(name)? {
            VirtualEntry::Intermediate(_, below, _) if !rest.is_empty() => items = below,
            item => return Some((on_disk(item), rest)),
        }
    }
}
