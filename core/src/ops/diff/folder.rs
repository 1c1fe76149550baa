//! Comparing one folder of the user's with one tree.

use std::{
    ffi::OsStr,
    io,
    iter::Peekable,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use rustix::fs::{Mode, OFlags, openat};

use crate::{
    base::{
        id::{BlobId, TreeId},
        limits,
        observe::Note,
    },
    format::tree::{Entry, Kind, Xattr},
    local::{
        describe,
        fingerprint::{self, Manner},
        ignore::{Rules, Scope},
        owners::Owners,
        read::{Hashed, hash_file, open_above, open_folder, unread_xattrs},
        scan::{FileKind, FileStat, Listed, Listing},
        stat_cache::{KnownFile, Place, StatCache},
        visible::{Visible, join},
    },
    ops::diff::{Change, DiffError, Item, What, job::Job},
    store::Entries,
};

/// The folder that a tree is compared with, and what is known about it.
pub(super) struct Side<'a> {
    pub(super) job: &'a Job<'a>,
    path: &'a Path,
    rules: &'a Rules,
    cache: &'a StatCache,
    manner: Manner,
    owners: Owners,
    top: Arc<OwnedFd>,
    device: u64,
}

/// A folder that is to be compared.
pub(super) struct Spot {
    /// The folder above and the name in it; `None` for the root.
    place: Option<(Arc<OwnedFd>, Vec<u8>)>,
    pub(super) path: Vec<u8>,
    scope: Scope,
    depth: usize,
    /// The tree that it is compared with.
    expected: Option<TreeId>,
}

/// What comes of comparing a folder, in order.
pub(super) enum Event {
    /// A difference.
    Change(Change),
    /// A folder is to be compared.
    Enter(Spot),
    /// Everything in this tree is gone, from below this path.
    Gone(Vec<u8>, TreeId),
}

impl<'a> Side<'a> {
    pub(super) fn open(
        job: &'a Job<'a>,
        (path, rules): (&'a Path, &'a Rules),
        cache: &'a StatCache,
        manner: Manner,
    ) -> Result<Self, DiffError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let unreadable = |source: io::Error| DiffError::Folder { path: path.to_owned(), source };
        let top = openat(rustix::fs::CWD, path, flags, Mode::empty());
        let top = top.map_err(|error| unreadable(error.into()))?;
        let device = FileStat::of_fd(top.as_fd()).map_err(unreadable)?.device;
        let owners = Owners::default();
        Ok(Self { job, path, rules, cache, manner, owners, top: Arc::new(top), device })
    }

    /// The root, to be compared with `expected`.
    pub(super) fn root(&self, expected: Option<TreeId>) -> Spot {
        Spot { place: None, path: Vec::new(), scope: Scope::default(), depth: 0, expected }
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(path))
    }

    /// Tells that something could not be read, and so is not compared.
    fn skip(&self, path: &[u8], error: &io::Error) {
        self.job.skipped.fetch_add(1, Ordering::Relaxed);
        self.job.observer.note(Note::Skipped { path: &self.shown(path), error });
    }

    /// Lists a folder; `None` when it cannot be read, which is told.
    pub(super) fn visit(&'a self, spot: Spot) -> Result<Option<Compare<'a>>, DiffError> {
        match self.list(&spot) {
            Ok(listed) => Compare::new(self, spot, listed).map(Some),
            Err(error) => {
                self.skip(&spot.path, &error);
                Ok(None)
            }
        }
    }

    fn list(&self, spot: &Spot) -> io::Result<Opened> {
        let fd = match &spot.place {
            None => Arc::clone(&self.top),
            Some(_) if spot.depth > limits::DEPTH => {
                let text = format!("nested deeper than {} folders", limits::DEPTH);
                return Err(io::Error::other(text));
            }
            Some((above, name)) => Arc::new(open_folder(above.as_fd(), OsStr::from_bytes(name))?),
        };
        let stat = FileStat::of_fd(fd.as_fd())?;
        if !self.rules.descends(&stat, self.device) {
            // It is committed as an empty folder.
            let (listing, scope, unknown) = (Listing::default(), spot.scope.clone(), Vec::new());
            return Ok(Opened { fd, stat, listing, scope, unknown, proven: false });
        }
        let Visible { listing, scope, failed } =
            Visible::read(self.rules, &spot.scope, &fd, &spot.path)?;
        for (name, error) in &failed {
            self.skip(&join(&spot.path, name), error);
        }
        let proven = match (spot.expected, self.cache.folder(stat.device, stat.inode)) {
            (Some(expected), Some(known)) if known.tree == expected && failed.is_empty() => {
                known.listing == fingerprint::of_listing(&listing, &self.owners, self.manner)
            }
            _ => false,
        };
        let files = listing.entries.len() as u64;
        self.job.observer.advance(files, files);
        let mut unknown: Vec<Vec<u8>> = failed.into_iter().map(|(name, _)| name).collect();
        unknown.sort_unstable();
        Ok(Opened { fd, stat, listing, scope, unknown, proven })
    }

    /// The content of a file that was met before, and whether it has holes;
    /// `None` when it cannot be read, and then it counts as like no other.
    pub(super) fn identify(&self, path: &[u8]) -> Option<(BlobId, bool)> {
        let (folder, name) = open_above(self.top.as_fd(), path).ok()?;
        let stat = FileStat::of_name(folder.as_fd(), name).ok()?;
        let stop = || self.job.observer.cancelled();
        let hashed = hash_file(folder.as_fd(), name, &stat, &stop).ok()?;
        self.job.count_read(hashed.stat.size);
        Some((hashed.id, hashed.sparse))
    }
}

/// A folder that was listed.
struct Opened {
    fd: Arc<OwnedFd>,
    stat: FileStat,
    listing: Listing,
    scope: Scope,
    /// Names of which nothing is known.
    unknown: Vec<Vec<u8>>,
    /// Whether the stat cache proves that the entries are those of the tree,
    /// but for what is in its folders.
    proven: bool,
}

/// Compares the entries of a folder one by one as it is asked for what comes
/// of it.
pub(super) struct Compare<'a> {
    side: &'a Side<'a>,
    path: Vec<u8>,
    depth: usize,
    open: Opened,
    at: usize,
    expected: Option<Peekable<Entries<'a>>>,
    /// What is handed out before the next entry, last first.
    pending: Vec<Event>,
}

impl<'a> Compare<'a> {
    fn new(side: &'a Side<'a>, spot: Spot, open: Opened) -> Result<Self, DiffError> {
        let Spot { path, depth, expected, .. } = spot;
        let has_folder =
            || open.listing.entries.iter().any(|entry| entry.stat.kind == FileKind::Folder);
        // A folder that is as it was, and has no folders, is done.
        let expected = expected.filter(|_| !open.proven || has_folder());
        let expected = expected.map(|id| Entries::of(side.job.store, id).peekable());
        let at = if open.proven { open.listing.entries.len() } else { 0 };
        Ok(Self { side, path, depth, open, at, expected, pending: Vec::new() })
    }

    /// How many names there are in the folder.
    pub(super) fn entries(&self) -> usize {
        self.open.listing.entries.len() - self.at
    }

    fn join(&self, name: &[u8]) -> Vec<u8> {
        join(&self.path, name)
    }

    fn next_expected(&mut self) -> Result<Option<Entry>, DiffError> {
        let next = self.expected.as_mut().and_then(Iterator::next).transpose();
        next.map_err(|error| DiffError::tree(&self.path, error))
    }

    /// The next event.
    pub(super) fn next(&mut self) -> Result<Option<Event>, DiffError> {
        loop {
            if let Some(event) = self.pending.pop() {
                return Ok(Some(event));
            }
            if self.open.proven {
                let Some(entry) = self.next_expected()? else { return Ok(None) };
                if let Kind::Folder { id } = entry.kind {
                    self.enter(entry.name.as_bytes().to_vec(), Some(id));
                }
                continue;
            }
            let listed = self.open.listing.entries.get(self.at).copied();
            let name = listed.as_ref().map(|listed| self.open.listing.name(listed));
            let takes_old = match self.expected.as_mut().and_then(Peekable::peek) {
                Some(Ok(entry)) => name.is_none_or(|name| entry.name.as_bytes() <= name),
                Some(Err(_)) => true,
                None => false,
            };
            let old = if takes_old { self.next_expected()? } else { None };
            let listed = match (&old, &listed) {
                (Some(old), Some(listed))
                    if old.name.as_bytes() != self.open.listing.name(listed) =>
                {
                    None
                }
                _ => listed,
            };
            self.at += usize::from(listed.is_some());
            match (old, listed) {
                (None, None) => return Ok(None),
                (Some(old), None) => self.gone(old),
                (old, Some(listed)) => self.there(old, &listed),
            }
        }
    }

    /// Has a folder of this name compared with a tree.
    fn enter(&mut self, name: Vec<u8>, expected: Option<TreeId>) {
        let path = self.join(&name);
        if self.side.job.limit.reaches_present(&path) {
            self.pending.push(Event::Enter(Spot {
                place: Some((Arc::clone(&self.open.fd), name)),
                path,
                scope: self.open.scope.clone(),
                depth: self.depth + 1,
                expected,
            }));
        }
    }

    /// What is in the tree and no longer in the folder.
    fn gone(&mut self, old: Entry) {
        let name = old.name.as_bytes();
        let path = self.join(name);
        let unknown = self.open.unknown.binary_search_by(|other| other[..].cmp(name)).is_ok();
        if unknown || !self.side.job.limit.reaches(&path) {
            return;
        }
        if let Kind::Folder { id } = old.kind {
            self.pending.push(Event::Gone(path.clone(), id));
        }
        if self.side.job.limit.includes(&path) {
            self.pending.push(Event::Change(Change::removed(path, old)));
        }
    }

    /// What is in the folder, and perhaps in the tree.
    fn there(&mut self, old: Option<Entry>, listed: &Listed) {
        let name = self.open.listing.name(listed).to_vec();
        let path = self.join(&name);
        let job = self.side.job;
        if !job.limit.reaches_present(&path) {
            return;
        }
        let mut new = None;
        if job.limit.includes_present(&path) {
            new = match self.item(&name, &path, (old.as_ref(), listed)) {
                Ok(Some(new)) => Some(new),
                // It vanished, and is like one that was never there.
                Ok(None) => return old.into_iter().for_each(|old| self.gone(old)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
                Err(error) => return self.side.skip(&path, &error),
            };
        }
        let tree = match &old {
            Some(Entry { kind: Kind::Folder { id }, .. }) => Some(*id),
            _ => None,
        };
        match (listed.stat.kind == FileKind::Folder, tree) {
            (true, tree) => self.enter(name, tree),
            (false, Some(tree)) => self.pending.push(Event::Gone(path.clone(), tree)),
            (false, None) => {}
        }
        let change = match (old, new) {
            (_, None) => None,
            (None, Some(new)) => Some(Change::added(path, new)),
            (Some(old), Some(new)) => job.compared(|| path.clone(), old.into(), new),
        };
        self.pending.extend(change.map(Event::Change));
    }

    /// What an entry of the folder is, as far as it matters beside `old`;
    /// `None` when it has vanished.
    fn item(
        &self,
        name: &[u8],
        path: &[u8],
        (old, listed): (Option<&Entry>, &Listed),
    ) -> io::Result<Option<Item>> {
        let made = match listed.stat.kind {
            FileKind::File => self.file(name, path, (old, &listed.stat)),
            FileKind::Folder => {
                let xattrs = self.xattrs(name)?;
                Ok((What::Folder { id: None }, listed.stat, (xattrs, false)))
            }
            _ => describe::special(self.open.fd.as_fd(), name, &listed.stat).and_then(|kind| {
                let xattrs = self.xattrs(name)?;
                Ok((kind.map_or(What::Socket, What::from), listed.stat, (xattrs, false)))
            }),
        };
        match made {
            Ok((what, stat, rest)) => {
                let metadata = describe::metadata(&stat, &self.side.owners, self.side.manner, rest);
                Ok(Some(Item { what, metadata }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn xattrs(&self, name: &[u8]) -> io::Result<Vec<Xattr>> {
        describe::xattrs(self.open.fd.as_fd(), name).map_err(unread_xattrs)
    }

    fn file(
        &self,
        name: &[u8],
        path: &[u8],
        (old, stat): (Option<&Entry>, &FileStat),
    ) -> io::Result<Described> {
        let side = self.side;
        let size = stat.size;
        let place = Place::new(&self.open.stat, name);
        if let Some(known) = side.cache.file_at(stat, place) {
            let xattrs = if known.xattrs { self.xattrs(name)? } else { Vec::new() };
            let what = What::File { size, id: Some(known.id) };
            return Ok((what, *stat, (xattrs, known.sparse)));
        }
        let may_be_same =
            matches!(old, Some(Entry { kind: Kind::File { size: old, .. }, .. }) if *old == size);
        if !may_be_same {
            return Ok((What::File { size, id: None }, *stat, (self.xattrs(name)?, false)));
        }
        let stop = || side.job.observer.cancelled();
        let hashed = hash_file(self.open.fd.as_fd(), OsStr::from_bytes(name), stat, &stop);
        if !matches!(&hashed, Ok(Hashed { steady: true, .. })) {
            side.cache.forget_file(stat);
        }
        let Hashed { id, stat: after, xattrs, sparse, read_at, steady } = hashed?;
        side.job.count_read(after.size);
        if steady {
            let known = KnownFile { id, xattrs: !xattrs.is_empty(), sparse };
            side.cache.add_file(&after, place, &known, read_at);
        } else {
            side.job.observer.note(Note::Changing { path: &side.shown(path) });
        }
        Ok((What::File { size: after.size, id: Some(id) }, after, (xattrs, sparse)))
    }
}

/// What a file is, its stat, its extended attributes and whether it has holes.
type Described = (What, FileStat, (Vec<Xattr>, bool));
