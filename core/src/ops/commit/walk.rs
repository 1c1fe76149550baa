//! Walks a folder with one task for each folder, reads files in parallel, and builds
//! trees bottom-up.
//!
//! The task of a folder lists it, reads changed files, and starts a task for each
//! subfolder. The thread that finishes the last part of a folder encodes its tree and
//! passes it to the parent folder. Memory therefore holds only the folders in progress,
//! never the whole tree.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use rayon::{Scope as Tasks, prelude::*};

use crate::{
    base::{id::TreeId, limits, observe::Observer, time::Time},
    format::tree::{Totals, split::EncodedFolder},
    local::{
        fingerprint,
        ignore::IgnoreScope,
        read::{open_folder, open_root},
        scan::{FileKind, FileStat, ScannedEntry, ScannedFolder},
        stat_cache::{KnownFolder, NameHash, is_settled},
        visible::{Visible, join},
    },
    ops::commit::{
        CommitError,
        encode::{self, OmittedPart},
        file::{self, FileReadError, ReadFile},
        job::CommitJob,
        previous::{FileChanges, Previous},
    },
    repo::path::components,
    store::Store,
};

/// The files of a folder are divided into shares of about this many bytes and at most
/// [`MAX_SHARE`] files. Neighbouring files of one share can fill a frame.
const SHARE_BYTES: u64 = 256 << 10;
const MAX_SHARE: u64 = 64;

/// Number of entries that are read before their results are stored under one lock.
const GROUP: usize = 16 << 10;

/// The state of a folder's entry.
#[derive(Debug)]
pub(super) enum EntryResult {
    /// The entry needs no result, or has none yet.
    Listed,
    /// A file that was read or proven unchanged.
    File(ReadFile),
    /// A folder whose tree is stored.
    Folder(Box<WalkedTree>),
    /// The entry is left out.
    Skipped,
}

/// A folder whose tree is stored.
#[derive(Debug)]
pub(super) struct WalkedTree {
    pub(super) folder: EncodedFolder,
    /// Its files, compared with the previous commit. `None` if the tree comes from the stat cache,
    /// which may know the folder from another commit.
    files: Option<FileChanges>,
}

impl WalkedTree {
    /// Compares the files with the folder `previous` of the previous commit.
    pub(super) fn files_since(
        &self,
        store: &Store,
        previous: Option<TreeId>,
        observer: &dyn Observer,
    ) -> FileChanges {
        let compare = || FileChanges::between(store, previous, &self.folder, observer);
        self.files.unwrap_or_else(compare)
    }
}

/// The place of a folder in the folder that contains it.
struct ParentSlot {
    folder: Arc<WalkedFolder>,
    /// The index of the entry.
    slot: usize,
}

/// A folder in progress.
pub(super) struct WalkedFolder {
    above: Option<ParentSlot>,
    pub(super) fd: OwnedFd,
    /// The path in the snapshot; empty for its root.
    path: Vec<u8>,
    depth: usize,
    pub(super) listing: ScannedFolder,
    pub(super) slots: Mutex<Vec<EntryResult>>,
    /// Number of unfinished parts: one for each subfolder, and one for the folder's own files.
    parts: AtomicUsize,
    pub(super) stat: FileStat,
    /// Time at which the folder was listed.
    read_at: Time,
    pub(super) listing_hash: [u8; 16],
    known: Option<KnownFolder>,
    /// True if an entry was left out or kept changing. The stat cache then does not keep
    /// the folder.
    is_unstable: AtomicBool,
    pub(super) previous: OnceLock<Option<Previous>>,
}

/// The parameters of a walk.
pub(super) struct WalkRoot<'r> {
    /// The path on disk.
    pub(super) path: &'r Path,
    /// The path in the snapshot, for ignore patterns.
    pub(super) inside: &'r [u8],
    /// The tree at this path in the previous commit.
    pub(super) previous: Option<TreeId>,
    /// Ignore files of the folders above that apply.
    pub(super) scope: IgnoreScope,
    /// Device of the snapshot's root, if that is another folder.
    pub(super) device: Option<u64>,
}

impl WalkRoot<'_> {
    /// Returns the number of folders of the snapshot above the contents of this folder.
    fn depth(&self) -> usize {
        components(self.inside).count()
    }
}

fn too_deep() -> io::Error {
    io::Error::other(format!("nested deeper than {} folders", limits::DEPTH))
}

/// The result of a walk, and the state that its tasks share.
struct CommitWalk<'w> {
    job: &'w CommitJob<'w>,
    root: &'w WalkRoot<'w>,
    device: u64,
    result: Mutex<Option<WalkedTree>>,
}

/// Walks a folder and counts its files. Returns its tree and the root's own stat, or `None` if
/// the job was stopped.
///
/// # Errors
/// The I/O error if the root cannot be opened or listed.
pub(super) fn run(
    job: &CommitJob<'_>,
    root: &WalkRoot<'_>,
) -> io::Result<Option<(EncodedFolder, FileStat)>> {
    if root.depth() > limits::DEPTH {
        return Err(too_deep());
    }
    let fd = open_root(root.path)?;
    let stat = FileStat::of_fd(fd.as_fd())?;
    let device = root.device.unwrap_or(stat.device);
    let walk = CommitWalk { job, root, device, result: Mutex::default() };
    rayon::scope(|tasks| walk.enter(tasks, fd, root.inside.to_vec(), &root.scope, None))?;
    let result = walk.result.into_inner();
    Ok(result.map(|walked| {
        job.count_files(walked.files_since(job.writer.store(), root.previous, job.observer));
        (walked.folder, stat)
    }))
}

impl<'w> CommitWalk<'w> {
    /// Returns the path on disk of an entry of the snapshot, for messages.
    fn shown(&self, path: &[u8]) -> PathBuf {
        let inside = path.get(self.root.inside.len()..).unwrap_or_default();
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        self.root.path.join(OsStr::from_bytes(inside))
    }

    fn skip(&self, inside: &[u8], error: &(dyn std::error::Error + 'static)) {
        self.job.skip(inside, &self.shown(inside), error);
    }

    /// Runs the task of one folder below the root.
    fn visit<'s>(
        &'s self,
        tasks: &Tasks<'s>,
        above: Arc<WalkedFolder>,
        slot: usize,
        scope: &IgnoreScope,
    ) where
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
            let parent = ParentSlot { folder: Arc::clone(&above), slot };
            self.enter(tasks, fd, path.clone(), scope, Some(parent))
        });
        if let Err(error) = entered {
            self.skip(&path, &error);
            self.job.cache.forget_folder(&above.listing.entries[slot].stat);
            above.put(slot, EntryResult::Skipped);
            above.is_unstable.store(true, Ordering::Relaxed);
            self.finish_part(above);
        }
    }

    /// Lists an open folder, reads its files, and starts tasks for its subfolders.
    fn enter<'s>(
        &'s self,
        tasks: &Tasks<'s>,
        fd: OwnedFd,
        path: Vec<u8>,
        scope: &IgnoreScope,
        above: Option<ParentSlot>,
    ) -> io::Result<()>
    where
        'w: 's,
    {
        let job = self.job;
        let stat = FileStat::of_fd(fd.as_fd())?;
        let read_at = Time::now();
        let visible = Visible::read(job.rules, scope, &fd, &path, &|| job.stopped())?;
        let is_unstable = !visible.failed.is_empty();
        for (name, error) in &visible.failed {
            self.skip(&join(&path, name), error);
        }
        let Visible { listing, scope, .. } = visible;

        let listing_hash = fingerprint::of_listing(&listing, &job.owners, job.tree_options());
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
                let (entry, fd) = (&listing.entries[at], fd.as_fd());
                entry.stat.kind == FileKind::Folder
                    && job.rules.enters(fd, listing.name(entry), &entry.stat, self.device)
            })
            .collect();
        let depth = match &above {
            Some(parent) => parent.folder.depth + 1,
            None => self.root.depth(),
        };
        let slots = listing.entries.iter().map(|_| EntryResult::Listed).collect();
        let node = Arc::new(WalkedFolder {
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
            is_unstable: AtomicBool::new(is_unstable),
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
    fn read_files(&self, node: &WalkedFolder) {
        let (files, bytes) = files_in(&node.listing);
        if files == 0 {
            return;
        }
        let share = (SHARE_BYTES * files / bytes.max(1)).clamp(1, MAX_SHARE) as usize;
        for (group, entries) in node.listing.entries.chunks(GROUP).enumerate() {
            let read: Vec<Option<EntryResult>> = entries
                .par_iter()
                .with_min_len(share)
                .map(|entry| {
                    (entry.stat.kind == FileKind::File).then(|| self.read_file(node, entry))
                })
                .collect();
            let mut slots = node.slots.lock();
            for (slot, read) in slots[group * GROUP..].iter_mut().zip(read) {
                if let Some(read) = read {
                    *slot = read;
                }
            }
        }
    }

    fn read_file(&self, node: &WalkedFolder, entry: &ScannedEntry) -> EntryResult {
        let job = self.job;
        if job.stopped() {
            return EntryResult::Skipped;
        }
        let name = node.listing.name(entry);
        let place = NameHash::new(&node.stat, name);
        match encode::known_file(job, node, entry, place) {
            Ok(Some((known, unread_xattrs))) => {
                job.observer.advance(known.size, 1);
                if let Some(error) = unread_xattrs {
                    self.lose_attributes(node, name, &error);
                }
                return EntryResult::File(known);
            }
            Ok(None) => {}
            Err(error) => {
                job.fail(error.into());
                return EntryResult::Skipped;
            }
        }
        match file::read(job, node.fd.as_fd(), OsStr::from_bytes(name), place, &entry.stat) {
            Ok(file::ReadOutcome { file, changing, is_unsized, unread_xattrs }) => {
                if let Some(error) = unread_xattrs {
                    self.lose_attributes(node, name, &error);
                }
                if is_unsized {
                    node.is_unstable.store(true, Ordering::Relaxed);
                }
                if changing {
                    job.outcome.lock().changing += 1;
                    node.is_unstable.store(true, Ordering::Relaxed);
                    let path = self.shown(&join(&node.path, name));
                    job.observer.note(crate::base::observe::Note::Changing { path: &path });
                } else if file.stat.as_ref().is_some_and(|stat| !stat.same_state(&entry.stat)) {
                    // The file changed after it was listed, and was stable while it was
                    // read.
                    node.is_unstable.store(true, Ordering::Relaxed);
                }
                EntryResult::File(file)
            }
            Err(FileReadError::File(error)) => {
                // A file that vanished after it was listed is ignored, as if it had never existed.
                if error.kind() != io::ErrorKind::NotFound {
                    self.skip(&join(&node.path, name), &error);
                }
                node.is_unstable.store(true, Ordering::Relaxed);
                EntryResult::Skipped
            }
            Err(FileReadError::Commit(CommitError::Blocked(_))) => EntryResult::Skipped,
            Err(FileReadError::Commit(error)) => {
                job.fail(error);
                EntryResult::Skipped
            }
        }
    }

    /// Reports an entry that is committed without its extended attributes.
    fn lose_attributes(&self, node: &WalkedFolder, name: &[u8], error: &io::Error) {
        self.job.lose_attributes(&self.shown(&join(&node.path, name)), error);
        node.is_unstable.store(true, Ordering::Relaxed);
    }

    /// Finishes one part of a folder. The last part completes the folder, which finishes
    /// a part of the parent folder.
    fn finish_part(&self, mut node: Arc<WalkedFolder>) {
        while node.parts.fetch_sub(1, Ordering::AcqRel) == 1 {
            if self.job.stopped() {
                return;
            }
            let walked = match self.complete(&node) {
                Ok(walked) => walked,
                Err(error) => return self.job.fail(error),
            };
            match &node.above {
                None => {
                    *self.result.lock() = Some(walked);
                    return;
                }
                Some(ParentSlot { folder, slot }) => {
                    folder.put(*slot, EntryResult::Folder(Box::new(walked)));
                    let folder = Arc::clone(folder);
                    node = folder;
                }
            }
        }
    }

    /// Builds the tree of a folder whose subfolders are all complete.
    fn complete(&self, node: &WalkedFolder) -> Result<WalkedTree, CommitError> {
        let job = self.job;
        let full = encode::full_hash(node);
        if let Some(known) = &node.known {
            if known.full == full {
                let (files, bytes) = files_in(&node.listing);
                job.observer.advance(bytes, files);
                let folder = EncodedFolder { id: known.tree, totals: known.totals };
                return Ok(WalkedTree { folder, files: None });
            }
            // A subfolder changed, so this folder is encoded again. Its own files are in
            // the stat cache.
            self.read_files(node);
        }
        let previous = self.previous(node);
        let (folder, files) = encode::folder(job, node, previous, &|name, lost| match lost {
            OmittedPart::Entry(error) => {
                self.skip(&join(&node.path, name), error);
                node.is_unstable.store(true, Ordering::Relaxed);
            }
            OmittedPart::Attributes(error) => self.lose_attributes(node, name, error),
        })?;
        // The attributes of an entry are part of this tree, so the times of all entries
        // must be old enough to be trusted.
        let settled = |entry: &ScannedEntry| is_settled(&entry.stat, node.read_at);
        if !node.is_unstable.load(Ordering::Relaxed) && node.listing.entries.iter().all(settled) {
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
        Ok(WalkedTree { folder, files: Some(files) })
    }

    /// Returns the folder's state in the previous commit.
    fn previous<'n>(&self, node: &'n WalkedFolder) -> Option<&'n Previous> {
        // Collect the folders up to the root and initialize them top-down. A recursion
        // could overflow the stack on a long path.
        let mut line = Vec::new();
        let mut at = node;
        while at.previous.get().is_none() {
            line.push(at);
            let Some(parent) = &at.above else { break };
            at = &parent.folder;
        }
        for node in line.into_iter().rev() {
            node.previous.get_or_init(|| {
                let tree = match &node.above {
                    None => self.root.previous,
                    Some(ParentSlot { folder, slot }) => {
                        let name = folder.listing.name(&folder.listing.entries[*slot]);
                        folder.previous.get()?.as_ref()?.folder(name)
                    }
                }?;
                Previous::read(self.job.writer, tree)
            });
        }
        node.previous.get()?.as_ref()
    }
}

impl WalkedFolder {
    fn put(&self, slot: usize, what: EntryResult) {
        self.slots.lock()[slot] = what;
    }
}

/// Returns the number of regular files in a listing and their total size in bytes.
fn files_in(listing: &ScannedFolder) -> (u64, u64) {
    let files = listing.entries.iter().filter(|entry| entry.stat.kind == FileKind::File);
    files.fold((0, 0), |(files, bytes), entry| (files + 1, bytes + entry.stat.size))
}

/// Totals of an entry without entries below it, or of a folder that the walk does not enter.
pub(super) const NOTHING: Totals = Totals { files: 0, folders: 0, others: 0, bytes: 0 };
