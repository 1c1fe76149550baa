//! Compares one folder on the user's disk with one tree.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    io,
    iter::Peekable,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
};

use crate::{
    base::{
        id::{ContentId, TreeId},
        limits,
        observe::Note,
    },
    format::tree::{Entry, EntryKind, Xattr},
    local::{
        cut::identify,
        describe,
        fingerprint::{self, TreeOptions},
        ignore::{IgnoreRules, IgnoreScope},
        owners::Owners,
        read::{FileRead, open_folder, open_parent, open_root, read_file, unread_xattrs},
        scan::{FileKind, FileStat, ScannedEntry, ScannedFolder, exists},
        stat_cache::{KnownContent, KnownFile, NameHash, StatCache},
        visible::{Visible, join},
    },
    ops::{
        diff::{
            Change, ChangeSide, ComparedKind, DiffError,
            disk_paths::{self, DiskPaths, Items, VirtualEntry},
            job::DiffJob,
            slot::TaskSlot,
        },
        file_content::equals,
    },
    store::{Entries, FileContent},
};

/// The folder that a tree is compared with, and the state that all its subfolders share.
pub(super) struct FolderSide<'a> {
    pub(super) job: &'a DiffJob<'a>,
    pub(super) disk_paths: &'a DiskPaths,
    pub(super) rules: &'a IgnoreRules,
    pub(super) cache: &'a StatCache,
    pub(super) tree_options: TreeOptions,
    pub(super) owners: Owners,
}

/// A folder on disk, or a virtual one.
enum FolderLocation<'a> {
    /// A folder whose path the user named.
    Top(&'a Path),
    /// The open parent folder and the name in it.
    Below(Arc<OwnedFd>, Vec<u8>),
    Virtual(&'a Items),
}

/// A folder that waits to be compared.
pub(super) struct QueuedFolder<'a> {
    place: FolderLocation<'a>,
    /// Device of the committed folder that contains this one; `None` if this is the committed
    /// folder.
    device: Option<u64>,
    pub(super) path: Vec<u8>,
    scope: IgnoreScope,
    depth: usize,
    /// The tree with which the folder is compared.
    expected: Option<TreeId>,
}

/// A folder that waits to be compared, and its result.
pub(super) type FolderTask<'a> = TaskSlot<QueuedFolder<'a>, Result<Events<'a>, DiffError>>;

/// The results of comparing a folder.
pub(super) struct Events<'a> {
    pub(super) ready: VecDeque<FolderEvent<'a>>,
    /// The part of a large folder that is still to be compared.
    pub(super) rest: Option<Box<FolderComparison<'a>>>,
}

/// A result of comparing a folder. Results come in order.
pub(super) enum FolderEvent<'a> {
    /// A path that differs.
    Change(Box<Change>),
    /// A subfolder that must be compared.
    Enter(Arc<FolderTask<'a>>),
    /// A folder of the tree that is gone or ignored, with everything below it.
    Gone { path: Vec<u8>, tree: TreeId, is_ignored: bool },
}

impl<'a> FolderSide<'a> {
    /// Returns the queued root, which will be compared with the tree `expected`.
    pub(super) fn root(&self, expected: Option<TreeId>) -> QueuedFolder<'a> {
        let place = match self.disk_paths {
            DiskPaths::Folder(path, _) => FolderLocation::Top(path),
            DiskPaths::Virtual(items) => FolderLocation::Virtual(items),
        };
        QueuedFolder {
            place,
            device: None,
            path: Vec::new(),
            scope: IgnoreScope::default(),
            depth: 0,
            expected,
        }
    }

    /// Reports and counts an entry that cannot be read and so is not compared.
    fn skip(&self, path: &[u8], error: &io::Error) {
        self.job.outcome.lock().skipped += 1;
        self.job.observer.note(Note::Skipped { path: &self.disk_paths.shown(path), error });
    }

    /// Lists a folder. If the folder cannot be read, reports it and returns `None`.
    pub(super) fn visit(
        &'a self,
        queued: QueuedFolder<'a>,
    ) -> Result<Option<FolderComparison<'a>>, DiffError> {
        match self.list(&queued) {
            Ok(listed) => FolderComparison::new(self, queued, listed).map(Some),
            Err(error) => {
                self.skip(&queued.path, &error);
                Ok(None)
            }
        }
    }

    fn list(&self, queued: &QueuedFolder<'a>) -> io::Result<DiskFolder<'a>> {
        let fd = match &queued.place {
            _ if queued.depth > limits::DEPTH => {
                let text = format!("nested deeper than {} folders", limits::DEPTH);
                return Err(io::Error::other(text));
            }
            FolderLocation::Virtual(items) => return Ok(self.list_virtual(queued, items)),
            FolderLocation::Top(path) => Arc::new(open_root(path)?),
            FolderLocation::Below(above, name) => {
                Arc::new(open_folder(above.as_fd(), OsStr::from_bytes(name))?)
            }
        };
        let stat = FileStat::of_fd(fd.as_fd())?;
        let device = queued.device.unwrap_or(stat.device);
        let is_entered = match &queued.place {
            FolderLocation::Below(above, name) => {
                self.rules.enters(above.as_fd(), name, &stat, device)
            }
            _ => self.rules.descends(&stat, device),
        };
        let place = OpenPlace::Folder { fd: Arc::clone(&fd), stat, device };
        if !is_entered {
            // A commit stores such a folder (a mount point) as an empty one.
            let (listing, scope, unknown) =
                (ScannedFolder::default(), queued.scope.clone(), Vec::new());
            return Ok(DiskFolder { place, listing, scope, unknown, proven: false });
        }
        let Visible { listing, scope, failed } =
            Visible::read(self.rules, &queued.scope, &fd, &queued.path, &|| {
                self.job.observer.cancelled()
            })?;
        for (name, error) in &failed {
            self.skip(&join(&queued.path, name), error);
        }
        let proven = match (queued.expected, self.cache.folder(stat.device, stat.inode)) {
            (Some(expected), Some(known)) if known.tree == expected && failed.is_empty() => {
                known.listing == fingerprint::of_listing(&listing, &self.owners, self.tree_options)
            }
            _ => false,
        };
        let files = listing.entries.len() as u64;
        self.job.observer.advance(files, files);
        let mut unknown: Vec<Vec<u8>> = failed.into_iter().map(|(name, _)| name).collect();
        unknown.sort_unstable();
        Ok(DiskFolder { place, listing, scope, unknown, proven })
    }

    /// Lists a virtual folder. No ignore rules apply to paths that the user named.
    fn list_virtual(&self, queued: &QueuedFolder<'a>, items: &'a Items) -> DiskFolder<'a> {
        let mut listing = ScannedFolder::of(disk_paths::stats(items));
        let mut unknown = Vec::new();
        for (name, error) in std::mem::take(&mut listing.failed) {
            self.skip(&join(&queued.path, &name), &error);
            unknown.push(name);
        }
        let files = listing.entries.len() as u64;
        self.job.observer.advance(files, files);
        let (place, scope) = (OpenPlace::Virtual(items), queued.scope.clone());
        DiskFolder { place, listing, scope, unknown, proven: false }
    }

    /// Hashes an added file, which may be half of a rename. Returns its id, and true if it has
    /// holes, or `None` if the file cannot be read.
    pub(super) fn identify(&self, path: &[u8]) -> Option<(ContentId, bool)> {
        let (folder, name) = self.disk_paths.open_above(path).ok()?;
        let stat = FileStat::of_name(folder.as_fd(), &name).ok()?;
        let stop = || self.job.observer.cancelled();
        let mut identify = |fd: &OwnedFd, stat: &FileStat, _| identify(fd, stat, &stop);
        let read = read_file(folder.as_fd(), &name, &stat, &mut identify).ok()?;
        self.job.count_read(read.bytes);
        Some((read.content, read.sparse))
    }
}

/// A folder that was listed.
struct DiskFolder<'a> {
    place: OpenPlace<'a>,
    listing: ScannedFolder,
    scope: IgnoreScope,
    /// Names that could not be read, sorted.
    unknown: Vec<Vec<u8>>,
    /// True if the stat cache proves that the entries match the tree, except for the contents of
    /// subfolders.
    proven: bool,
}

/// The place of a listed folder.
enum OpenPlace<'a> {
    /// An open folder, and the device of the committed folder that contains it.
    Folder {
        fd: Arc<OwnedFd>,
        stat: FileStat,
        device: u64,
    },
    Virtual(&'a Items),
}

impl DiskFolder<'_> {
    /// Opens the folder on disk that contains an entry. Also returns the entry's name there.
    fn on_disk(&self, name: &[u8]) -> io::Result<(Arc<OwnedFd>, OsString)> {
        match &self.place {
            OpenPlace::Folder { fd, .. } => {
                Ok((Arc::clone(fd), OsStr::from_bytes(name).to_owned()))
            }
            OpenPlace::Virtual(items) => {
                let item = items.get(name).ok_or(io::ErrorKind::NotFound)?;
                let (fd, name) = open_parent(disk_paths::on_disk(item))?;
                Ok((Arc::new(fd), name))
            }
        }
    }
}

/// Compares the entries of a folder one by one, whenever the caller requests the next
/// event.
pub(super) struct FolderComparison<'a> {
    side: &'a FolderSide<'a>,
    path: Vec<u8>,
    depth: usize,
    open: DiskFolder<'a>,
    at: usize,
    expected: Option<Peekable<Entries<'a>>>,
    /// Events to return before the next entry is compared, in reverse order.
    pending: Vec<FolderEvent<'a>>,
}

impl<'a> FolderComparison<'a> {
    fn new(
        side: &'a FolderSide<'a>,
        queued: QueuedFolder<'a>,
        open: DiskFolder<'a>,
    ) -> Result<Self, DiffError> {
        let QueuedFolder { path, depth, expected, .. } = queued;
        let has_folder =
            || open.listing.entries.iter().any(|entry| entry.stat.kind == FileKind::Folder);
        // An unchanged folder without subfolders needs no further work, so its tree is
        // not read.
        let expected = expected.filter(|_| !open.proven || has_folder());
        let expected = expected.map(|id| Entries::of(side.job.store, id).peekable());
        let at = if open.proven { open.listing.entries.len() } else { 0 };
        Ok(Self { side, path, depth, open, at, expected, pending: Vec::new() })
    }

    /// Returns the number of entries that remain to be compared.
    pub(super) fn entries(&self) -> usize {
        self.open.listing.entries.len() - self.at
    }

    fn next_expected(&mut self) -> Result<Option<Entry>, DiffError> {
        let next = self.expected.as_mut().and_then(Iterator::next).transpose();
        next.map_err(|error| DiffError::tree(&self.path, error))
    }

    /// Returns the next event.
    pub(super) fn next(&mut self) -> Result<Option<FolderEvent<'a>>, DiffError> {
        loop {
            if let Some(event) = self.pending.pop() {
                return Ok(Some(event));
            }
            if self.open.proven {
                let Some(entry) = self.next_expected()? else { return Ok(None) };
                if let EntryKind::Folder { id } = entry.kind {
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

    /// Queues the comparison of a subfolder with a tree.
    fn enter(&mut self, name: Vec<u8>, expected: Option<TreeId>) {
        let path = join(&self.path, &name);
        if self.side.job.limit.reaches_present(&path) {
            let (place, device) = match &self.open.place {
                OpenPlace::Folder { fd, device, .. } => {
                    (FolderLocation::Below(Arc::clone(fd), name), Some(*device))
                }
                OpenPlace::Virtual(items) => match items.get(&*name) {
                    Some(VirtualEntry::OnDisk(path, _)) => (FolderLocation::Top(path), None),
                    Some(VirtualEntry::Intermediate(_, below, _)) => {
                        (FolderLocation::Virtual(below), None)
                    }
                    None => return,
                },
            };
            let (scope, depth) = (self.open.scope.clone(), self.depth + 1);
            let queued = QueuedFolder { place, device, path, scope, depth, expected };
            self.pending.push(FolderEvent::Enter(Arc::new(TaskSlot::new(queued))));
        }
    }

    /// Reports an entry that is in the tree but not in the folder.
    fn gone(&mut self, old: Entry) {
        let name = old.name.as_bytes();
        let path = join(&self.path, name);
        let unknown = self.open.unknown.binary_search_by(|other| other[..].cmp(name)).is_ok();
        let is_git = self.side.rules.excludes_git_at(&path);
        if unknown || is_git || !self.side.job.limit.reaches(&path) {
            return;
        }
        // The ignore rules may exclude an entry that exists.
        let is_ignored =
            matches!(&self.open.place, OpenPlace::Folder { fd, .. } if exists(fd.as_fd(), name));
        if let EntryKind::Folder { id: tree } = old.kind {
            self.pending.push(FolderEvent::Gone { path: path.clone(), tree, is_ignored });
        }
        if self.side.job.limit.includes(&path) {
            let change = Box::new(Change::deleted(path, old, is_ignored));
            self.pending.push(FolderEvent::Change(change));
        }
    }

    /// Compares an entry of the folder with the tree's entry of the same name, if there
    /// is one.
    fn there(&mut self, old: Option<Entry>, listed: &ScannedEntry) {
        let name = self.open.listing.name(listed).to_vec();
        let path = join(&self.path, &name);
        let job = self.side.job;
        if !job.limit.reaches_present(&path) {
            return;
        }
        let mut new = None;
        if job.limit.has_present || job.limit.includes(&path) {
            new = match self.item(&name, &path, old.as_ref(), listed) {
                Ok(Some(new)) => Some(new),
                // The file vanished after it was listed, so it counts as removed.
                Ok(None) => return old.into_iter().for_each(|old| self.gone(old)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
                Err(error) => return self.side.skip(&path, &error),
            };
        }
        let tree = old.as_ref().and_then(|old| old.kind.tree());
        match (listed.stat.kind == FileKind::Folder, tree) {
            (true, tree) => self.enter(name, tree),
            (false, Some(tree)) => {
                let path = path.clone();
                self.pending.push(FolderEvent::Gone { path, tree, is_ignored: false });
            }
            (false, None) => {}
        }
        let change = match (old, new) {
            (_, None) => None,
            (None, Some(new)) => Some(Change::added(path, new)),
            (Some(old), Some(new)) => job.compared(|| path.clone(), old.into(), new),
        };
        self.pending.extend(change.map(|change| FolderEvent::Change(Box::new(change))));
    }

    /// Describes an entry of the folder, in as much detail as the comparison with `old`
    /// needs. Returns `None` if the entry has vanished.
    fn item(
        &self,
        name: &[u8],
        path: &[u8],
        old: Option<&Entry>,
        listed: &ScannedEntry,
    ) -> io::Result<Option<ChangeSide>> {
        let made = match listed.stat.kind {
            FileKind::File => self.file(name, path, old, &listed.stat),
            FileKind::Folder => {
                let xattrs = self.xattrs(name)?;
                let kind = ComparedKind::Folder { id: None };
                Ok(DescribedEntry { kind, stat: listed.stat, xattrs, sparse: false })
            }
            _ => self.special(name, &listed.stat).and_then(|kind| {
                let xattrs = self.xattrs(name)?;
                let kind = kind.map_or(ComparedKind::Socket, ComparedKind::from);
                Ok(DescribedEntry { kind, stat: listed.stat, xattrs, sparse: false })
            }),
        };
        match made {
            Ok(DescribedEntry { kind, stat, xattrs, sparse }) => {
                let FolderSide { owners, tree_options, .. } = self.side;
                let metadata = describe::metadata(&stat, owners, *tree_options, xattrs, sparse);
                Ok(Some(ChangeSide { what: kind, metadata }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn special(&self, name: &[u8], stat: &FileStat) -> io::Result<Option<EntryKind>> {
        let (folder, name) = self.open.on_disk(name)?;
        describe::special(folder.as_fd(), name.as_bytes(), stat)
    }

    fn xattrs(&self, name: &[u8]) -> io::Result<Vec<Xattr>> {
        let (folder, name) = self.open.on_disk(name)?;
        describe::xattrs(folder.as_fd(), name.as_bytes()).map_err(unread_xattrs)
    }

    fn file(
        &self,
        name: &[u8],
        path: &[u8],
        old: Option<&Entry>,
        stat: &FileStat,
    ) -> io::Result<DescribedEntry> {
        let side = self.side;
        let size = stat.size;
        let (folder, disk_name) = self.open.on_disk(name)?;
        let folder_stat = match &self.open.place {
            OpenPlace::Folder { stat, .. } => *stat,
            OpenPlace::Virtual(_) => FileStat::of_fd(folder.as_fd())?,
        };
        let place = NameHash::new(&folder_stat, disk_name.as_bytes());
        let expected = match old.map(|old| &old.kind) {
            Some(EntryKind::File { size, id }) => Some(FileContent { id: *id, bytes: *size }),
            _ => None,
        };
        let is_useful = |known: &KnownFile| {
            let has_content = |content: FileContent| known.has_content(&content.id).is_some();
            known.id().is_some() || expected.is_some_and(has_content)
        };
        if let Some(known) = side.cache.file_at(stat, place).filter(is_useful) {
            let xattrs = if known.xattrs { self.xattrs(name)? } else { Vec::new() };
            let kind = ComparedKind::File { size, id: known.id() };
            return Ok(DescribedEntry { kind, stat: *stat, xattrs, sparse: known.sparse });
        }
        // A file of another length is modified in any case, so do not read it. A length of 0 proves
        // nothing: files of the kernel report it but have a content.
        let may_be_same = size == 0 || expected.is_some_and(|content| content.bytes == size);
        if !may_be_same {
            let (kind, xattrs) = (ComparedKind::File { size, id: None }, self.xattrs(name)?);
            return Ok(DescribedEntry { kind, stat: *stat, xattrs, sparse: false });
        }
        let stop = || side.job.observer.cancelled();
        let mut compare = |fd: &OwnedFd, stat: &FileStat, _| match expected {
            // The id of a small file costs no more than a comparison.
            Some(content) if stat.size > limits::WHOLE_FILE_BYTES => {
                let known = match equals(side.job.store, fd, stat, &content, &stop)? {
                    true => KnownContent::Is(content.id),
                    false => KnownContent::DiffersFrom(content.id),
                };
                Ok((known, stat.size))
            }
            _ => identify(fd, stat, &stop).map(|(id, size)| (KnownContent::Is(id), size)),
        };
        let read = read_file::<_, io::Error>(folder.as_fd(), &disk_name, stat, &mut compare);
        if !read.as_ref().is_ok_and(|read| read.steady && read.xattrs.is_ok()) {
            side.cache.forget_file(stat);
        }
        let FileRead { content, bytes, stat: after, xattrs, sparse, read_at, steady, .. } = read?;
        let xattrs = xattrs.map_err(unread_xattrs)?;
        side.job.count_read(bytes);
        let known = KnownFile { content, xattrs: !xattrs.is_empty(), sparse };
        if steady && bytes == size {
            side.cache.add_file(&after, place, &known, read_at);
        } else if !steady {
            side.job.observer.note(Note::Changing { path: &side.disk_paths.shown(path) });
        }
        let kind = ComparedKind::File { size: bytes, id: known.id() };
        Ok(DescribedEntry { kind, stat: FileStat { size: bytes, ..after }, xattrs, sparse })
    }
}

/// An entry of the folder, in as much detail as the comparison needs.
struct DescribedEntry {
    kind: ComparedKind,
    stat: FileStat,
    xattrs: Vec<Xattr>,
    /// True if the file has holes.
    sparse: bool,
}
