//! The list of packs that the stat cache relies on.
//!
//! An entry of the stat cache means that a content is stored; an entry of a folder means that
//! everything below the folder is stored. The file `cache/packs` lists the whole packs at the time
//! when the cache was saved, with their lengths, and the checksum of the damage in the shadow table
//! at that time. A commit must not trust the cache if one of these packs is gone, or if the damage
//! has changed. A merge of packs writes the new names into the file before it removes the old packs,
//! and a garbage collection removes the packs that it deletes. A commit looks up each object of an
//! entry, so it never relies on a dead one.
//!
//! Each commit compares the length of every pack file with the list. A pack whose length changed is
//! damaged. Of an unlisted pack, the commit reads the header, the trailer and the frame table. So
//! it finds a truncated pack before it relies on the pack.
//!
//! The file is a text file with derived data, and not synced. It has a line `shadow` with the
//! checksum in hexadecimal, a line for each pack with its id and its length in bytes, in ascending
//! order, and a line `sum` with the XXH3-64 of all lines before.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    base::{id::PackId, io::PathError, limits},
    disk::regular::read_at_most,
    format::{pack::checksum, wire::FormatError},
    store::{
        Store, StoreError,
        catalog::Catalog,
        compact,
        pack_reader::Completeness,
        shadow::{ShadowVersion, damage},
    },
};

/// Name of the file in `cache/`.
const FILE: &str = "packs";

/// Maximum number of searches for packs that seem lost while other processes merge packs.
const LOOKS: usize = 8;

/// The length recorded for a damaged pack. No file has this length, so every commit
/// examines the pack again.
const UNCERTAIN: u64 = 0;

/// Whether a commit may trust the stat cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheTrust {
    /// Yes: all packs that the cache relies on exist, and the damage is unchanged.
    Holds,
    /// No: there is no valid list of packs, or the damage has changed.
    Unknown,
    /// No: packs that the cache relies on are gone. `first` is one of them.
    Lost { packs: usize, first: PackId },
}

/// The packs at one moment with their lengths in bytes, and the checksum of the damage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TrustedPacks {
    shadows: u64,
    packs: BTreeMap<PackId, u64>,
}

impl TrustedPacks {
    /// Lists the whole packs of a catalog. Reads lengths that `known` lacks from the file system.
    /// Leaves out a pack whose length cannot be read.
    fn of(catalog: &Catalog, known: Option<&Self>) -> Self {
        let packs = catalog.numbers.keys().filter_map(|id| {
            let slot = catalog.slot(id).filter(|slot| slot.completeness == Completeness::Whole)?;
            let noted = known.and_then(|known| known.packs.get(id)).copied();
            let noted = noted.filter(|bytes| *bytes != UNCERTAIN);
            let length = || fs_err::metadata(&slot.path).ok().map(|meta| meta.len());
            Some((*id, noted.or_else(length)?))
        });
        Self { shadows: catalog.shadows.version().damage, packs: packs.collect() }
    }

    fn encode(&self) -> String {
        let mut text = format!("shadow {:016x}\n", self.shadows);
        for (id, bytes) in &self.packs {
            text.push_str(&format!("{id} {bytes}\n"));
        }
        let sum = checksum(text.as_bytes());
        text.push_str(&format!("sum {sum:016x}\n"));
        text
    }

    /// Parses the text. Returns `None` if it is incomplete or invalid.
    fn decode(text: &str) -> Option<Self> {
        let (lines, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let lines = &text[..=lines.len()];
        let sum = u64::from_str_radix(sum.strip_prefix("sum ")?, 16).ok()?;
        if checksum(lines.as_bytes()) != sum {
            return None;
        }
        let mut lines = lines.lines();
        let shadows = u64::from_str_radix(lines.next()?.strip_prefix("shadow ")?, 16).ok()?;
        let pack = |line: &str| {
            let (id, bytes) = line.split_once(' ')?;
            Some((id.parse().ok()?, bytes.parse().ok()?))
        };
        let packs = lines.map(pack).collect::<Option<_>>()?;
        Some(Self { shadows, packs })
    }
}

impl Store {
    fn relied_path(&self) -> PathBuf {
        self.dir().join("cache").join(FILE)
    }

    fn read_relied(&self) -> Option<TrustedPacks> {
        let bytes = read_at_most(&self.relied_path(), limits::TRUSTED_PACKS_BYTES).ok()?;
        TrustedPacks::decode(std::str::from_utf8(&bytes).ok()?)
    }

    /// Shadows packs whose length, header, trailer or frame table shows damage: durably, or with
    /// `is_dry` for this open store only. If the shadow table cannot be written, the shadows still
    /// apply to this open store. Returns the errors of packs that were not yet known to be damaged.
    pub fn shadow_cut_packs(&self, is_dry: bool) -> Vec<StoreError> {
        let catalog = self.catalog();
        let (now, noted) = (TrustedPacks::of(&catalog, None), self.read_relied());
        let is_noted = |id: &PackId, bytes: &u64| {
            noted.as_ref().is_some_and(|noted| noted.packs.get(id) == Some(bytes))
        };
        let mut found = Vec::new();
        for (id, bytes) in now.packs.iter().filter(|(id, bytes)| !is_noted(id, bytes)) {
            let slot = catalog.slot(id).filter(|slot| slot.span.is_none());
            let before = noted.as_ref().and_then(|noted| noted.packs.get(id));
            let error = match (before, slot.map(|slot| slot.open(None))) {
                (_, Some(Err(error))) => error,
                // The pack is damaged even if its tables are valid: its id is the hash of its
                // bytes, so its length never changes.
                (Some(before), _) if *before != UNCERTAIN => {
                    let source = FormatError::Invalid { what: "length", at: *bytes as usize };
                    StoreError::Format { pack: *id, source }
                }
                _ => continue,
            };
            let is_news = damage(&error).is_some() && !catalog.shadows.is_damaged(id);
            if is_dry {
                self.shadow_in_memory(&error);
            } else {
                let _ = self.shadow_damage(&error);
            }
            if is_news {
                found.push(error);
            }
        }
        found
    }

    /// Checks if a commit may trust the stat cache.
    pub fn cache_trust(&self) -> CacheTrust {
        self.reliance_on(&|| self.read_relied())
    }

    /// Like [`Store::cache_trust`], with a given reader of the list.
    ///
    /// Another process may merge packs at the same time: it writes the new packs, then the list,
    /// then removes the old packs. The catalog may be older than the list. So if packs seem lost,
    /// this function lists `objects/` again, and then reads the list again. A missing pack was
    /// merged if the new list no longer names it.
    fn reliance_on(&self, read: &dyn Fn() -> Option<TrustedPacks>) -> CacheTrust {
        let Some(mut relied) = read() else { return CacheTrust::Unknown };
        for _ in 0..LOOKS {
            let catalog = self.catalog();
            if catalog.shadows.version().is_unsaved {
                return CacheTrust::Unknown;
            }
            let now = TrustedPacks::of(&catalog, Some(&relied));
            let is_missing = |now: &TrustedPacks, id: &PackId| !now.packs.contains_key(id);
            if !relied.packs.keys().any(|id| is_missing(&now, id)) {
                return match relied.shadows == now.shadows {
                    true => CacheTrust::Holds,
                    false => CacheTrust::Unknown,
                };
            }
            if self.refresh().is_err() {
                return CacheTrust::Unknown;
            }
            let now = TrustedPacks::of(&self.catalog(), Some(&relied));
            let Some(after) = read() else { return CacheTrust::Unknown };
            let is_lost = |id: &&PackId| is_missing(&now, id) && after.packs.contains_key(*id);
            let mut lost = relied.packs.keys().filter(is_lost);
            if let Some(first) = lost.next() {
                return CacheTrust::Lost { packs: 1 + lost.count(), first: *first };
            }
            relied = after;
        }
        CacheTrust::Unknown
    }

    /// Writes the list of packs that the stat cache relies on from now on. The caller saves the
    /// cache afterwards. `opened` is the version of the shadow table at the time when the cache was
    /// opened.
    ///
    /// Returns false if the caller must clear the cache instead: objects were shadowed or packs
    /// were removed meanwhile, or the list cannot be written. The commit may have relied on an
    /// object before the object was shadowed.
    pub fn record_trusted_packs(&self, opened: ShadowVersion) -> bool {
        let (before, catalog) = (self.read_relied(), self.catalog());
        if opened.is_unsaved || catalog.shadows.version() != opened {
            self.invalidate_stat_cache();
            return false;
        }
        let mut relied = TrustedPacks::of(&catalog, before.as_ref());
        for (id, bytes) in &mut relied.packs {
            if catalog.shadows.is_damaged(id) {
                *bytes = UNCERTAIN;
            }
        }
        if before.as_ref() == Some(&relied) {
            return true;
        }
        // The entries of the old cache rely on the packs of the old list.
        let covers =
            before.is_none_or(|before| before.packs.keys().all(|id| relied.packs.contains_key(id)));
        // The shared lock prevents merges by other processes between the check and the write.
        let held = compact::open_lock(self).is_ok_and(|lock| {
            lock.try_lock_shared().is_ok()
                && covers
                && self.are_named(&relied.packs)
                && self.write_relied(&relied).is_ok()
        });
        if !held {
            self.invalidate_stat_cache();
        }
        held
    }

    /// Returns true if all given packs are in `objects/`.
    fn are_named(&self, packs: &BTreeMap<PackId, u64>) -> bool {
        let Ok(entries) = fs_err::read_dir(&self.layout().objects) else { return false };
        let name = |entry: std::io::Result<fs_err::DirEntry>| {
            entry.ok()?.file_name().to_str()?.parse::<PackId>().ok()
        };
        let named = entries.filter_map(name).filter(|id| packs.contains_key(id)).count();
        named == packs.len()
    }

    /// Invalidates the stat cache: the next commit reads all files again.
    pub fn invalidate_stat_cache(&self) {
        let _ = self.disk().remove(&self.relied_path());
    }

    fn write_relied(&self, relied: &TrustedPacks) -> Result<(), PathError> {
        let (layout, path) = (self.layout(), self.relied_path());
        self.disk().create_folders(&layout.dir.join("cache"))?;
        self.disk().write_unsynced(&layout.tmp, &path, relied.encode().as_bytes())
    }

    /// Returns true if a merge can be recorded, that is, if the list can be written or removed.
    /// Otherwise merged packs would seem lost, for example if `cache/` belongs to another user.
    pub(super) fn can_note_merges(&self) -> bool {
        let Some(relied) = self.read_relied() else { return true };
        self.write_relied(&relied).is_ok() || self.disk().remove(&self.relied_path()).is_ok()
    }

    /// Records in the list that `new` packs replace `old` ones, or that `old` ones are deleted. The
    /// caller must hold the lock on `compact.lock` if there are new packs, and removes the old packs
    /// afterwards.
    pub fn note_merged(&self, old: &[PackId], new: &[PackId]) {
        let Some(mut relied) = self.read_relied() else { return };
        let before = relied.packs.len();
        for id in old {
            relied.packs.remove(id);
        }
        if relied.packs.len() == before {
            return;
        }
        let length = |id: &PackId| {
            let path = self.layout().path(Completeness::Whole, id);
            Some((*id, fs_err::metadata(path).ok()?.len()))
        };
        let lengths: Option<Vec<_>> = new.iter().map(length).collect();
        let is_noted = lengths.is_some_and(|lengths| {
            relied.packs.extend(lengths);
            self.write_relied(&relied).is_ok()
        });
        if !is_noted {
            self.invalidate_stat_cache();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, path::Path};

    use super::*;
    use crate::{
        base::{id::BlobId, observe::Silent},
        disk::Disk,
        store::ObjectWriter,
    };

    fn open(dir: &Path) -> Store {
        Store::open(dir, Disk::scratch(), &Silent).unwrap()
    }

    /// Creates a store with as many small packs as one merge takes, and the list of these packs.
    fn with_small_packs(dir: &Path) -> Store {
        Store::create(dir, &Disk::scratch()).unwrap();
        let store = open(dir);
        for n in 0..8u8 {
            let writer = ObjectWriter::new(&store, 3, 1).unwrap();
            writer.add_blob(0, BlobId::of(&[n]), &[n]).unwrap();
            writer.finish().unwrap();
        }
        assert!(store.record_trusted_packs(store.shadows().version()));
        store
    }

    fn merge_elsewhere(dir: &Path) {
        let outcome = compact::run(&open(dir), 3, &Silent).unwrap();
        assert_eq!((outcome.merged, outcome.made), (8, 1));
    }

    #[test]
    fn packs_that_another_process_merges_are_not_reported_lost() {
        let scratch = tempfile::tempdir().unwrap();
        let early = with_small_packs(scratch.path());
        // The store is opened before the merge, and reads the list after the merge.
        merge_elsewhere(scratch.path());
        assert_eq!(early.cache_trust(), CacheTrust::Holds);

        // The store reads the list before the merge, and lists the packs after the merge.
        let scratch = tempfile::tempdir().unwrap();
        let early = with_small_packs(scratch.path());
        let reads = Cell::new(0);
        let read = || {
            let list = early.read_relied();
            if reads.replace(reads.get() + 1) == 0 {
                merge_elsewhere(scratch.path());
                early.refresh().unwrap();
            }
            list
        };
        assert_eq!(early.reliance_on(&read), CacheTrust::Holds);
        assert_eq!(reads.get(), 2);
    }

    #[test]
    fn a_missing_pack_counts_as_lost_despite_merges() {
        for merged_too in [false, true] {
            let scratch = tempfile::tempdir().unwrap();
            let early = with_small_packs(scratch.path());
            if merged_too {
                merge_elsewhere(scratch.path());
            }
            let now = open(scratch.path());
            let lost = now.packs()[0];
            fs_err::remove_file(now.pack_path(&lost)).unwrap();
            let is_lost = CacheTrust::Lost { packs: 1, first: lost };
            assert_eq!(open(scratch.path()).cache_trust(), is_lost);
            early.refresh().unwrap();
            assert_eq!(early.cache_trust(), is_lost);
        }
    }

    #[test]
    fn only_a_complete_list_of_packs_is_decoded() {
        let packs = (0..3).map(|n| (PackId::from_bytes([n; 32]), u64::from(n) << 40)).collect();
        for relied in [
            TrustedPacks { shadows: 7, packs },
            TrustedPacks { shadows: 0, packs: BTreeMap::new() },
        ] {
            let text = relied.encode();
            assert_eq!(TrustedPacks::decode(&text), Some(relied));
            for at in 0..text.len() {
                assert_eq!(TrustedPacks::decode(&text[..at]), None, "cut at {at}");
            }
            let other = text.replacen('0', "1", 1);
            assert_eq!(TrustedPacks::decode(&other), None);
        }
    }
}
