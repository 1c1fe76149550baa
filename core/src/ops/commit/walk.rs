//! Walking a folder: one task each, files in parallel, trees from below.
//!
//! A folder's task lists it, reads what has changed, and starts a task for
//! each folder in it. Whoever finishes the last of a folder's parts encodes
//! its tree and hands it to the folder above. So memory holds the folders that
//! are under way, and never the whole tree.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rayon::{Scope as Tasks, prelude::*};
use rustix::fs::{Mode, OFlags, openat};

use crate::{
    base::{id::TreeId, limits, time::Time},
    format::tree::{Totals, split::Folder},
    local::{
        fingerprint,
        ignore::Scope,
        read::open_folder,
        scan::{FileKind, FileStat, Listed, Listing},
        stat_cache::{KnownFolder, Place, is_settled},
        visible::{Visible, join},
    },
    ops::commit::{
        CommitError,
        encode::{self, Lost},
        file::{self, ReadFile, Unread},
        job::{Job, count},
        previous::Previous,
    },
    repo::path::components,
};

/// Files of a folder are shared out so many bytes at a time, and at most
/// [`MAX_SHARE`] files: enough to fill a frame from neighbours.
const SHARE_BYTES: u64 = 256 << 10;
const MAX_SHARE: u64 = 64;

/// Results are gathered for so many entries at a time.
const GROUP: usize = 16 << 10;

/// What is known about an entry of a folder.
#[derive(Debug)]
pub(super) enum Slot {
    /// Nothing needs to be, or not yet.
    Listed,
    /// A file, read or proven unchanged.
    File(ReadFile),
    /// A folder whose tree is in the store.
    Folder(Box<Folder>),
    /// Left out.
    Skipped,
}

/// A folder that is under way.
pub(super) struct Node {
    above: Option<(Arc<Node>, usize)>,
    pub(super) fd: OwnedFd,
    /// Relative to the root; empty for the root.
    path: Vec<u8>,
    depth: usize,
    pub(super) listing: Listing,
    pub(super) slots: Mutex<Vec<Slot>>,
    /// Folders in it that are under way, and one for its own files.
    parts: AtomicUsize,
    pub(super) stat: FileStat,
    /// When it was listed.
    read_at: Time,
    pub(super) listing_hash: [u8; 16],
    known: Option<KnownFolder>,
    /// Something in it was left out or kept changing: it is not remembered.
    unsteady: AtomicBool,
    pub(super) previous: OnceLock<Option<Previous>>,
}

/// A folder to be walked.
pub(super) struct Root<'r> {
    /// For opening and for messages.
    pub(super) path: &'r Path,
    /// Where it stands in the snapshot, for ignore patterns.
    pub(super) inside: &'r [u8],
    /// The tree that stood there in the commit before.
    pub(super) previous: Option<TreeId>,
    /// Ignore files of the folders above that count.
    pub(super) scope: Scope,
    /// Device of the snapshot's root, when that is another folder.
    pub(super) device: Option<u64>,
}

impl Root<'_> {
    /// How many folders of the snapshot are above what is in it.
    fn depth(&self) -> usize {
        components(self.inside).count()
    }
}

fn too_deep() -> io::Error {
    io::Error::other(format!("nested deeper than {} folders", limits::DEPTH))
}

/// Where a walk leaves its result, and what its tasks share.
struct Walk<'w> {
    job: &'w Job<'w>,
    root: &'w Root<'w>,
    device: u64,
    result: Mutex<Option<Folder>>,
}

/// Walks a folder and returns its tree and the root's own stat; `None` when
/// the job was stopped.
///
/// # Errors
/// The root itself cannot be opened or listed.
pub(super) fn run(job: &Job<'_>, root: &Root<'_>) -> io::Result<Option<(Folder, FileStat)>> {
    if root.depth() > limits::DEPTH {
        return Err(too_deep());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(rustix::fs::CWD, root.path, flags, Mode::empty())?;
    let stat = FileStat::of_fd(fd.as_fd())?;
    let device = root.device.unwrap_or(stat.device);
    let walk = Walk { job, root, device, result: Mutex::default() };
    rayon::scope(|tasks| walk.enter(tasks, fd, root.inside.to_vec(), &root.scope, None))?;
    let result = walk.result.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(result.map(|folder| (folder, stat)))
}

impl<'w> Walk<'w> {
    /// The path of something in the snapshot, for messages.
    fn shown(&self, path: &[u8]) -> PathBuf {
        let inside = path.get(self.root.inside.len()..).unwrap_or_default();
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        self.root.path.join(OsStr::from_bytes(inside))
    }

    fn skip(&self, inside: &[u8], error: &(dyn std::error::Error + 'static)) {
        self.job.skip(inside, &self.shown(inside), error);
    }

    /// The task of one folder below the root.
    fn visit<'s>(&'s self, tasks: &Tasks<'s>, above: Arc<Node>, slot: usize, scope: &Scope)
    where
        'w: 's,
    {
        if self.job.stopped() {
            return;
        }
        let name = above.listing.name(&above.listing.entries[slot]);
        let path = join(&above.path, name);
        let entered = match above.depth >= limits::DEPTH {
            true => Err(too_deep()),
            false => open_folder(above.fd.as_fd(), OsStr::from_bytes(name)),
        };
        let entered = entered.and_then(|fd| {
            self.enter(tasks, fd, path.clone(), scope, Some((Arc::clone(&above), slot)))
        });
        if let Err(error) = entered {
            self.skip(&path, &error);
            self.job.cache.forget_folder(&above.listing.entries[slot].stat);
            above.put(slot, Slot::Skipped);
            above.unsteady.store(true, Ordering::Relaxed);
            self.finish_part(above);
        }
    }

    /// Lists an open folder, reads its files, and starts its folders.
    fn enter<'s>(
        &'s self,
        tasks: &Tasks<'s>,
        fd: OwnedFd,
        path: Vec<u8>,
        scope: &Scope,
        above: Option<(Arc<Node>, usize)>,
    ) -> io::Result<()>
    where
        'w: 's,
    {
        let job = self.job;
        let stat = FileStat::of_fd(fd.as_fd())?;
        let read_at = Time::now();
        let visible = Visible::read(job.rules, scope, &fd, &path)?;
        let unsteady = !visible.failed.is_empty();
        for (name, error) in &visible.failed {
            self.skip(&join(&path, name), error);
        }
        let Visible { listing, scope, .. } = visible;

        let listing_hash = fingerprint::of_listing(&listing, &job.owners, job.manner());
        let known =
            job.cache.folder(stat.device, stat.inode).filter(|known| known.listing == listing_hash);
        let known = match known {
            Some(known)
                if job.writer.contains(&known.tree.object()).map_err(io::Error::other)? =>
            {
                Some(known)
            }
            _ => None,
        };
        let folders: Vec<usize> = (0..listing.entries.len())
            .filter(|&at| {
                let stat = &listing.entries[at].stat;
                stat.kind == FileKind::Folder && job.rules.descends(stat, self.device)
            })
            .collect();
        let depth = match &above {
            Some((above, _)) => above.depth + 1,
            None => self.root.depth(),
        };
        let slots = listing.entries.iter().map(|_| Slot::Listed).collect();
        let node = Arc::new(Node {
            above,
            fd,
            path,
            depth,
            listing,
            slots: Mutex::new(slots),
            parts: AtomicUsize::new(folders.len() + 1),
            stat,
            read_at,
            listing_hash,
            known,
            unsteady: AtomicBool::new(unsteady),
            previous: OnceLock::new(),
        });
        for slot in folders {
            let (node, scope) = (Arc::clone(&node), scope.clone());
            tasks.spawn(move |tasks| self.visit(tasks, node, slot, &scope));
        }
        if node.known.is_none() {
            self.read_files(&node);
        }
        self.finish_part(node);
        Ok(())
    }

    /// Reads the files of a folder that are not proven unchanged.
    fn read_files(&self, node: &Node) {
        let (files, bytes) = files_in(&node.listing);
        if files == 0 {
            return;
        }
        let share = (SHARE_BYTES * files / bytes.max(1)).clamp(1, MAX_SHARE) as usize;
        for (group, entries) in node.listing.entries.chunks(GROUP).enumerate() {
            let read: Vec<Option<Slot>> = entries
                .par_iter()
                .with_min_len(share)
                .map(|entry| {
                    (entry.stat.kind == FileKind::File).then(|| self.read_file(node, entry))
                })
                .collect();
            let mut slots = node.slots.lock().unwrap_or_else(PoisonError::into_inner);
            for (slot, read) in slots[group * GROUP..].iter_mut().zip(read) {
                if let Some(read) = read {
                    *slot = read;
                }
            }
        }
    }

    fn read_file(&self, node: &Node, entry: &Listed) -> Slot {
        let job = self.job;
        if job.stopped() {
            return Slot::Skipped;
        }
        let name = node.listing.name(entry);
        let place = Place::new(&node.stat, name);
        match encode::known_file(job, node, entry, place) {
            Ok(Some((known, unread_xattrs))) => {
                job.observer.advance(known.size, 1);
                if let Some(error) = unread_xattrs {
                    self.lose_attributes(node, name, &error);
                }
                return Slot::File(known);
            }
            Ok(None) => {}
            Err(error) => {
                job.fail(error.into());
                return Slot::Skipped;
            }
        }
        match file::read(job, (node.fd.as_fd(), OsStr::from_bytes(name)), place, &entry.stat) {
            Ok(file::ReadOutcome { file, changing, unread_xattrs }) => {
                if let Some(error) = unread_xattrs {
                    self.lose_attributes(node, name, &error);
                }
                if changing {
                    count(&job.counts.changing, 1);
                    node.unsteady.store(true, Ordering::Relaxed);
                    let path = self.shown(&join(&node.path, name));
                    job.observer.note(crate::base::observe::Note::Changing { path: &path });
                } else if file.stat.as_ref().is_some_and(|stat| !stat.same_state(&entry.stat)) {
                    // It changed after it was listed, and then held still.
                    node.unsteady.store(true, Ordering::Relaxed);
                }
                Slot::File(file)
            }
            Err(Unread::File(error)) => {
                // A file that vanished since is like one that never was.
                if error.kind() != io::ErrorKind::NotFound {
                    self.skip(&join(&node.path, name), &error);
                }
                node.unsteady.store(true, Ordering::Relaxed);
                Slot::Skipped
            }
            Err(Unread::Commit(CommitError::Interrupted)) => Slot::Skipped,
            Err(Unread::Commit(error)) => {
                job.fail(error);
                Slot::Skipped
            }
        }
    }

    /// Tells that an entry is committed without its extended attributes.
    fn lose_attributes(&self, node: &Node, name: &[u8], error: &io::Error) {
        self.job.lose_attributes(&self.shown(&join(&node.path, name)), error);
        node.unsteady.store(true, Ordering::Relaxed);
    }

    /// Ends one part of a folder, and with the last of them the folder itself,
    /// and with that a part of the one above.
    fn finish_part(&self, mut node: Arc<Node>) {
        while node.parts.fetch_sub(1, Ordering::AcqRel) == 1 {
            if self.job.stopped() {
                return;
            }
            let folder = match self.complete(&node) {
                Ok(folder) => folder,
                Err(error) => return self.job.fail(error),
            };
            match &node.above {
                None => {
                    *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
                    return;
                }
                Some((above, slot)) => {
                    above.put(*slot, Slot::Folder(Box::new(folder)));
                    let above = Arc::clone(above);
                    node = above;
                }
            }
        }
    }

    /// Makes the tree of a folder all of whose folders are done.
    fn complete(&self, node: &Node) -> Result<Folder, CommitError> {
        let job = self.job;
        let full = encode::full_hash(node);
        if let Some(known) = &node.known {
            if known.full == full {
                let (files, bytes) = files_in(&node.listing);
                count(&job.counts.unmodified, files);
                job.observer.advance(bytes, files);
                return Ok(Folder { id: known.tree, totals: known.totals });
            }
            // A folder below has changed; the files are in the stat cache.
            self.read_files(node);
        }
        let previous = self.previous(node);
        let folder = encode::folder(job, node, previous, &|name, lost| match lost {
            Lost::Entry(error) => {
                self.skip(&join(&node.path, name), error);
                node.unsteady.store(true, Ordering::Relaxed);
            }
            Lost::Attributes(error) => self.lose_attributes(node, name, error),
        })?;
        // A folder's own attributes are part of the tree above it, so its times
        // must be settled as well.
        let settled = |entry: &Listed| is_settled(&entry.stat, node.read_at);
        if !node.unsteady.load(Ordering::Relaxed) && node.listing.entries.iter().all(settled) {
            let known = KnownFolder {
                listing: node.listing_hash,
                full,
                tree: folder.id,
                totals: folder.totals,
            };
            job.cache.add_folder(node.stat.device, node.stat.inode, &known);
        } else {
            job.cache.forget_folder(&node.stat);
        }
        Ok(folder)
    }

    /// What stood in a folder's place in the commit before.
    fn previous<'n>(&self, node: &'n Node) -> Option<&'n Previous> {
        // From the root down to here, without recursion: a path may be long.
        let mut line = Vec::new();
        let mut at = node;
        while at.previous.get().is_none() {
            line.push(at);
            match &at.above {
                Some((above, _)) => at = above,
                None => break,
            }
        }
        for node in line.into_iter().rev() {
            node.previous.get_or_init(|| {
                let tree = match &node.above {
                    None => self.root.previous,
                    Some((above, slot)) => {
                        let name = above.listing.name(&above.listing.entries[*slot]);
                        above.previous.get()?.as_ref()?.folder(name)
                    }
                }?;
                Previous::read(self.job.writer, tree)
            });
        }
        node.previous.get()?.as_ref()
    }
}

impl Node {
    fn put(&self, slot: usize, what: Slot) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)[slot] = what;
    }
}

/// How many regular files a listing has, and their bytes.
fn files_in(listing: &Listing) -> (u64, u64) {
    let files = listing.entries.iter().filter(|entry| entry.stat.kind == FileKind::File);
    files.fold((0, 0), |(files, bytes), entry| (files + 1, bytes + entry.stat.size))
}

/// Totals of a folder that is not looked into.
pub(super) const NOTHING: Totals = Totals { files: 0, folders: 0, others: 0, bytes: 0 };
