//! Merges small packs, so that a store with many commits has few files.
//!
//! Each pack belongs to a size class; the upper limit of a class is eight times that of the class
//! below. When a class has eight packs, they are merged into one. So each byte is copied at most
//! once for each of the five classes below the size limit of merges. No class keeps more than seven
//! packs.
//!
//! A merge checks every object except chunk lists against its id. It copies full frames unchanged,
//! and puts the objects of small frames into larger frames. It reports and shadows a damaged pack,
//! leaves it in place and goes on with the other packs. The new pack is proven if all old packs
//! were. Partial and shadowed packs are never merged. The new pack is durable and indexed before
//! the old packs are removed. A reader that misses a pack lists the packs again.

use std::collections::HashSet;

use crate::{
    base::{
        id::PackId,
        io::PathError,
        limits,
        observe::{Note, Observer, Phase},
    },
    disk::lock_wait::{COMMAND_LOCK_TIMEOUTS, LockOutcome, wait_for_lock},
    format::pack::ObjectClass,
    store::{
        ObjectWriter, PackFile, Store, StoreError,
        copy::{FrameMode, copy_pack},
    },
};

/// Number of packs of one class that are merged into one pack.
const FAN_IN: usize = 8;

/// Upper size limit of the lowest class.
const LOWEST_BYTES: u64 = 8 << 10;

/// Size in bytes from which on packs are not merged.
const LARGE_BYTES: u64 = limits::PACK_TARGET_BYTES / 2;

/// The contents of a pack above which it is not merged: the writer closes a pack with twice as much.
#[derive(Clone, Copy, Debug)]
struct Fullness {
    objects: usize,
    /// Stored bytes of frames with metadata.
    metadata_bytes: u64,
}

const FULL: Fullness = Fullness {
    objects: limits::PENDING_OBJECTS / 2,
    metadata_bytes: limits::PENDING_META_BYTES as u64 / 2,
};

/// The result of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactOutcome {
    /// Number of merged packs.
    pub merged: usize,
    /// Number of new packs that replace the merged packs.
    pub made: usize,
}

/// Merges small packs while a class is full. Does nothing while another process merges packs, or if
/// the list of packs that the stat cache relies on cannot be changed.
///
/// # Errors
/// [`StoreError`]. The store is then unchanged, or has some objects twice. Damage of a pack is
/// returned after the merge of all other packs.
pub fn run(
    store: &Store,
    level: i32,
    observer: &dyn Observer,
) -> Result<CompactOutcome, StoreError> {
    run_below(store, level, FULL, observer)
}

/// Merges small packs that have at most `full`.
fn run_below(
    store: &Store,
    level: i32,
    full: Fullness,
    observer: &dyn Observer,
) -> Result<CompactOutcome, StoreError> {
    let mut outcome = CompactOutcome::default();
    if full_class(&sizes(store, &HashSet::new())).is_none() {
        return Ok(outcome);
    }
    let file = open_lock(store)?;
    if file.try_lock().is_err() || !store.can_note_merges() {
        return Ok(outcome);
    }
    // Another process may have merged packs before the lock was taken.
    store.refresh()?;
    let (mut left_out, mut failure) = (HashSet::new(), None);
    while let Some(packs) = full_class(&sizes(store, &left_out)) {
        if observer.cancelled() {
            break;
        }
        let before = left_out.len();
        // The merge reports a pack that cannot be read.
        let open = |id: &PackId| PackFile::open(&store.pack_path(id), *id);
        left_out.extend(packs.iter().filter(|id| open(id).is_ok_and(|pack| is_full(&pack, full))));
        if left_out.len() > before {
            continue;
        }
        match merge(store, level, &packs, observer) {
            Ok(made) => {
                outcome.merged += packs.len();
                outcome.made += made.len();
                // The same merge would give as many packs again.
                if made.len() >= packs.len() {
                    left_out.extend(made);
                }
            }
            // A garbage collection has begun. The next merge looks at its shadows.
            Err(StoreError::Collected) => break,
            Err(error) => match error.damaged_pack() {
                Some(pack) if !left_out.contains(&pack) => {
                    // If the shadow cannot be written, the next merge tries again.
                    let _ = store.shadow_damage(&error);
                    left_out.insert(pack);
                    failure.get_or_insert(error);
                }
                _ => return Err(error),
            },
        }
    }
    failure.map_or(Ok(outcome), Err)
}

/// Opens the lock file of merges. A process that merges or moves packs takes the exclusive lock; a
/// process that needs packs to stay in place takes the shared lock.
pub(super) fn open_lock(store: &Store) -> Result<std::fs::File, PathError> {
    store.disk().lock_file(&store.dir().join("compact.lock"))
}

/// Keeps other processes from holding packs in place, until it is dropped.
#[derive(Debug)]
pub struct FreePacks {
    _lock: std::fs::File,
}

/// Prevents merges and moves of packs until it is dropped.
#[derive(Debug)]
pub struct PackPin {
    _lock: Option<std::fs::File>,
}

/// Returns the sizes of the packs that are whole, not shadowed and not in `without`,
/// smallest first.
fn sizes(store: &Store, without: &HashSet<PackId>) -> Vec<(u64, PackId)> {
    let size = |id: &PackId| fs_err::metadata(store.pack_path(id)).map(|meta| meta.len());
    let mut sizes: Vec<_> = store
        .packs()
        .into_iter()
        .filter_map(|id| size(&id).ok().map(|bytes| (bytes, id)))
        .collect();
    let is_left =
        |id: &PackId| without.contains(id) || store.is_partial(id) || store.is_shadowed(id);
    sizes.retain(|(_, id)| !is_left(id));
    sizes.sort_unstable();
    sizes
}

/// Returns the class of a pack size: 0 below 8 KiB, 1 below 64 KiB, and so on.
fn class(bytes: u64) -> u32 {
    (bytes / LOWEST_BYTES).checked_ilog(FAN_IN as u64).map_or(0, |log| log + 1)
}

/// Returns the packs of the lowest class that is full.
fn full_class(sizes: &[(u64, PackId)]) -> Option<Vec<PackId>> {
    let small = &sizes[..sizes.partition_point(|(bytes, _)| *bytes < LARGE_BYTES)];
    small
        .chunk_by(|(a, _), (b, _)| class(*a) == class(*b))
        .find(|group| group.len() >= FAN_IN)
        .map(|group| group.iter().map(|(_, id)| *id).collect())
}

/// Returns true if a merge would not reduce the number of such packs, although they may have few
/// bytes.
fn is_full(pack: &PackFile, full: Fullness) -> bool {
    let metadata = pack.frames().iter().filter(|frame| frame.class == ObjectClass::Metadata);
    let metadata_bytes: u64 = metadata.map(|frame| u64::from(frame.stored_bytes)).sum();
    pack.object_count() > full.objects || metadata_bytes > full.metadata_bytes
}

fn merge(
    store: &Store,
    level: i32,
    packs: &[PackId],
    observer: &dyn Observer,
) -> Result<Vec<PackId>, StoreError> {
    // One file is open at a time: a class may have more packs than a process may open.
    let open = |id: &PackId| PackFile::open(&store.pack_path(id), *id);
    let bytes = packs.iter().map(|id| Ok(open(id)?.file_bytes())).sum::<Result<_, StoreError>>()?;
    observer.phase(Phase::Compact, Some(bytes));
    let writer = ObjectWriter::new(store, level, 1)?.of_copies();
    if packs.iter().any(|id| store.is_shadowed(id)) {
        return Err(StoreError::Collected);
    }
    for id in packs {
        let file = open(id)?;
        copy_pack(&writer, &file, FrameMode::Refill, &mut |object| Ok(writer.claim_anew(object)))?;
        observer.advance(file.file_bytes(), 0);
    }
    let (_, made) = writer.finish_with_packs()?;
    // From now on, all objects of the old packs are durable in new packs. A new pack can have the
    // same bytes as an old pack, and thus the same id. Do not remove such a pack.
    let merged: Vec<PackId> = packs.iter().copied().filter(|id| !made.contains(id)).collect();
    store.note_merged(&merged, &made);
    for id in &merged {
        store.disk().remove(&store.pack_path(id))?;
    }
    store.refresh()?;
    Ok(made)
}

impl Store {
    /// Holds all packs in place. Waits while another process merges packs. If the lock file cannot
    /// be opened, no process can merge packs, so no lock is needed.
    ///
    /// # Errors
    /// [`StoreError`] when packs cannot be listed again after the wait.
    pub fn pin_packs(&self) -> Result<PackPin, StoreError> {
        let Ok(file) = open_lock(self) else { return Ok(PackPin { _lock: None }) };
        let lock = file.lock_shared().is_ok().then_some(file);
        // Another process may have merged packs before the lock was taken.
        self.refresh()?;
        Ok(PackPin { _lock: lock })
    }

    /// Waits until no process holds packs in place. Returns `None` if some do for longer than a
    /// minute, or if the user asks to stop.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the lock fails.
    pub fn free_packs(&self, observer: &dyn Observer) -> Result<Option<FreePacks>, StoreError> {
        let (lock, store) = (open_lock(self)?, self.dir());
        let notify = || observer.note(Note::PacksHeld { store });
        let waited = wait_for_lock(&|| lock.try_lock(), COMMAND_LOCK_TIMEOUTS, &notify, observer);
        match waited.map_err(PathError::when("lock", store))? {
            // On a file system without locks, no process can hold packs.
            LockOutcome::Locked | LockOutcome::Unsupported => Ok(Some(FreePacks { _lock: lock })),
            LockOutcome::Interrupted | LockOutcome::Busy => Ok(None),
        }
    }

    /// Merges index segments that are small compared to the others. Ignores failures: the next
    /// writer tries again.
    pub(crate) fn merge_segments(&self) {
        let (layout, disk) = (self.layout(), self.disk());
        let merged = self.change_catalog(|catalog| catalog.merge_segments(layout, disk));
        for path in merged.unwrap_or_default() {
            let _ = disk.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::{
            id::{BlobId, TreeId},
            observe::Silent,
        },
        disk::Disk,
    };

    fn pack(bytes: u64, n: u64) -> (u64, PackId) {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&(bytes * 1000 + n).to_le_bytes());
        (bytes, PackId::from_bytes(digest))
    }

    /// As many packs would take their places, again and again.
    #[test]
    fn packs_that_are_full_are_not_merged() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::scratch();
        Store::create(folder.path(), &disk).unwrap();
        let store = Store::open(folder.path(), disk, &Silent).unwrap();
        for pack in 0..9_u8 {
            let writer = ObjectWriter::new(&store, 3, 1).unwrap();
            // The last pack has one object more.
            for n in 0..4 + pack / 8 {
                writer.add_blob(0, BlobId::of(&[pack, n]), &[pack, n]).unwrap();
            }
            writer.add_tree(TreeId::of(&[pack]), &[pack]).unwrap();
            writer.finish().unwrap();
        }
        let merged = |objects, metadata_bytes| {
            run_below(&store, 3, Fullness { objects, metadata_bytes }, &Silent).unwrap()
        };
        assert_eq!(merged(4, u64::MAX), CompactOutcome::default());
        assert_eq!(merged(usize::MAX, 0), CompactOutcome::default());
        assert_eq!(merged(5, u64::MAX), CompactOutcome { merged: 8, made: 1 });
        assert_eq!(store.packs().len(), 2);
    }

    #[test]
    fn only_a_full_class_is_merged() {
        let mut sizes: Vec<_> = (0..7).map(|n| pack(3000, n)).collect();
        assert_eq!(full_class(&sizes), None);
        sizes.push(pack(3000, 7));
        assert_eq!(full_class(&sizes).map(|packs| packs.len()), Some(8));
        let large: Vec<_> = (0..20).map(|n| pack(LARGE_BYTES + n, n)).collect();
        assert_eq!(full_class(&large), None);
    }

    #[test]
    fn many_commits_leave_few_packs() {
        let mut sizes: Vec<(u64, PackId)> = Vec::new();
        for n in 0..5000 {
            sizes.push(pack(2000 + n % 500, n));
            sizes.sort_unstable();
            while let Some(packs) = full_class(&sizes) {
                let merged =
                    sizes.iter().filter(|(_, id)| packs.contains(id)).map(|(bytes, _)| bytes).sum();
                sizes.retain(|(_, id)| !packs.contains(id));
                sizes.push(pack(merged, n));
                sizes.sort_unstable();
            }
            assert!(sizes.len() <= 40, "{} packs", sizes.len());
        }
    }
}
