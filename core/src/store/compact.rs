//! Merging small packs, so that a store with many commits has few files.
//!
//! Packs are sorted into classes by size, each eight times as large as the one
//! below. When a class has eight packs, they become one. So a byte is copied
//! once for each class, at most five times before its pack is too large to be
//! merged, and there are never more than seven packs of a class.
//!
//! Full frames are copied as they are, small ones are filled up. Either way
//! every object is checked against its id first: a damaged pack is reported,
//! shadowed, and stays where it is; the others are merged without it. Packs
//! that are shadowed already, or not all here, are left alone. The new pack is durable and indexed before the old ones go;
//! a reader that finds one gone lists again.

use crate::{
    base::{
        id::PackId,
        io::PathError,
        limits,
        observe::{Observer, Phase},
    },
    store::{
        PackFile, Store, StoreError, Writer,
        copy::{Frames, copy_pack},
    },
};

/// Packs of one class that are merged.
const FAN_IN: usize = 8;

/// Upper end of the lowest class.
const LOWEST_BYTES: u64 = 8 << 10;

/// Packs from here on stay as they are.
const LARGE_BYTES: u64 = limits::PACK_TARGET_BYTES / 2;

/// What was merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Packs that are gone.
    pub merged: usize,
    /// Packs in their place.
    pub made: usize,
}

/// Merges small packs where a class is full. Does nothing when another
/// process is at it.
///
/// # Errors
/// [`StoreError`]; the store is as it was, or has some objects twice. A damaged
/// pack is reported after all others have been merged.
pub fn run(store: &Store, level: i32, observer: &dyn Observer) -> Result<Outcome, StoreError> {
    let mut outcome = Outcome::default();
    if full_class(&sizes(store, &[])).is_none() {
        return Ok(outcome);
    }
    let file = open_lock(store)?;
    if file.try_lock().is_err() {
        return Ok(outcome);
    }
    // Somebody may have merged while we came here.
    store.refresh()?;
    let (mut damaged, mut failure) = (Vec::new(), None);
    while let Some(packs) = full_class(&sizes(store, &damaged)) {
        if observer.cancelled() {
            break;
        }
        match merge(store, level, &packs, observer) {
            Ok(made) => {
                outcome.merged += packs.len();
                outcome.made += made;
            }
            Err(error) => match error.damaged_pack() {
                Some(pack) if !damaged.contains(&pack) => {
                    // Where that cannot be written, the next one tries again.
                    let _ = store.shadow_damage(&error);
                    damaged.push(pack);
                    failure.get_or_insert(error);
                }
                _ => return Err(error),
            },
        }
    }
    failure.map_or(Ok(outcome), Err)
}

/// Opens the file that is locked by who merges packs, and shared by who needs
/// them to stay.
pub(super) fn open_lock(store: &Store) -> Result<std::fs::File, PathError> {
    store.disk().lock_file(&store.dir().join("compact.lock"))
}

/// Keeps packs from being merged away, for as long as it lives.
#[derive(Debug)]
pub struct Hold {
    _lock: Option<std::fs::File>,
}

/// The packs that are all here and not shadowed, and their sizes, smallest
/// first, but for some.
fn sizes(store: &Store, without: &[PackId]) -> Vec<(u64, PackId)> {
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

fn class(bytes: u64) -> u32 {
    (bytes / LOWEST_BYTES).checked_ilog(FAN_IN as u64).map_or(0, |log| log + 1)
}

/// The packs of the lowest class that is full.
fn full_class(sizes: &[(u64, PackId)]) -> Option<Vec<PackId>> {
    let small = &sizes[..sizes.partition_point(|(bytes, _)| *bytes < LARGE_BYTES)];
    small
        .chunk_by(|(a, _), (b, _)| class(*a) == class(*b))
        .find(|group| group.len() >= FAN_IN)
        .map(|group| group.iter().map(|(_, id)| *id).collect())
}

fn merge(
    store: &Store,
    level: i32,
    packs: &[PackId],
    observer: &dyn Observer,
) -> Result<usize, StoreError> {
    let files = packs
        .iter()
        .map(|id| PackFile::open(&store.pack_path(id), *id))
        .collect::<Result<Vec<_>, _>>()?;
    observer.phase(Phase::Compact, Some(files.iter().map(PackFile::file_bytes).sum()));
    let writer = Writer::new(store, level, 1)?;
    for file in &files {
        copy_pack(&writer, file, Frames::Refill, &mut |object| Ok(writer.claim_anew(object)))?;
        observer.advance(file.file_bytes(), 0);
    }
    let (added, made) = writer.finish_with_packs()?;
    // Only now is every object of the old packs durable elsewhere. Should
    // merging have given back the very bytes of one of them, that one stays.
    let merged: Vec<PackId> = packs.iter().copied().filter(|id| !made.contains(id)).collect();
    store.note_merged(&merged, &made);
    for id in &merged {
        store.disk().remove(&store.pack_path(id))?;
    }
    store.refresh()?;
    Ok(added.packs as usize)
}

impl Store {
    /// Keeps all packs where they are. Waits for who is merging some; where
    /// nothing can be written, nobody is.
    ///
    /// # Errors
    /// [`StoreError`] when packs cannot be listed again after waiting.
    pub fn hold_packs(&self) -> Result<Hold, StoreError> {
        let Ok(file) = open_lock(self) else { return Ok(Hold { _lock: None }) };
        let lock = file.lock_shared().is_ok().then_some(file);
        // Some may have gone before.
        self.refresh()?;
        Ok(Hold { _lock: lock })
    }

    /// Merges index segments that are small beside the others. That is
    /// tidying: when it fails, the next writer tries again.
    pub(super) fn merge_segments(&self) {
        let (layout, disk) = (self.layout().clone(), self.disk().clone());
        let old = self.change_catalog(|before| {
            let mut catalog = before.copy();
            let old = catalog.merge_segments(&layout, &disk).unwrap_or_default();
            (catalog, old)
        });
        for path in old {
            let _ = disk.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(bytes: u64, n: u64) -> (u64, PackId) {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&(bytes * 1000 + n).to_le_bytes());
        (bytes, PackId::from_bytes(digest))
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
    fn many_commits_leave_tens_of_packs() {
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
