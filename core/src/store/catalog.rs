//! The catalog: the packs of a store, and the segments that index the packs.
//!
//! A catalog lists the pack folders and opens the segments in `index/`. It reads and indexes any
//! pack that no segment covers, so `index/` may be deleted or damaged at any time. It rebuilds the
//! index of a [copied](crate::disk::made_here) store, unless the store is read-only. A change of
//! the catalog copies it, so a reader keeps the version that it has.
//!
//! A pack is in `objects/` or, if some of its frames may be on a remote, in `partial/`; most stores
//! have no `partial/`. If a pack is in both folders, readers use the whole pack, and the next
//! writer removes the partial one.

use std::{
    cell::LazyCell,
    collections::{HashMap, HashSet},
    fs::Metadata,
    io,
    mem::take,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::{
    base::{
        id::PackId,
        io::PathError,
        limits,
        observe::{Observer, Phase},
    },
    disk::{
        Disk,
        folder_times::FolderTimes,
        made_here::{is_made_here, mark_made_here},
        scratch::unique_name,
        table::{TableError, merge_from},
    },
    format::forgotten::ForgottenTable,
    store::{
        StoreError,
        bundle::PackSpan,
        damage,
        epoch::Epoch,
        fetch::Fetcher,
        forgotten,
        pack_reader::{Completeness, PackFile},
        pack_writer::FinishedPack,
        proof::ProvenPacks,
        segment::{self, Segment},
        shadow::{self, Shadows},
    },
};

/// File name extension of segments.
const SEGMENT: &str = "idx";

/// Number of segments above which they are merged at once, and not only by the next writer. A lookup
/// searches each of them.
const MANY_SEGMENTS: usize = 32;

/// Number of records from which on a segment of reindexed packs is written.
const REINDEXED_RECORDS: usize = 1 << 16;

/// Age below which a pack or a segment counts as new: its writer may be about to index the pack.
const FRESH: Duration = Duration::from_secs(10);

/// The files and folders of a store.
#[derive(Clone, Debug)]
pub(super) struct StorePaths {
    /// False to rebuild a missing or damaged index, and to remove segments without existing packs.
    /// True to change nothing: lookups do not find objects that the index lacks.
    pub(super) is_read_only: bool,
    pub(super) dir: PathBuf,
    pub(super) objects: PathBuf,
    pub(super) partial: PathBuf,
    pub(super) index: PathBuf,
    pub(super) quarantine: PathBuf,
    pub(super) tmp: PathBuf,
    pub(super) shadow: PathBuf,
}

impl StorePaths {
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            is_read_only: false,
            dir: dir.to_owned(),
            objects: dir.join("objects"),
            partial: dir.join("partial"),
            index: dir.join("index"),
            quarantine: dir.join("quarantine"),
            tmp: dir.join("tmp"),
            shadow: dir.join(shadow::TABLE),
        }
    }

    /// Returns the folder for packs of this kind.
    pub(super) fn folder(&self, completeness: Completeness) -> &Path {
        match completeness {
            Completeness::Whole => &self.objects,
            Completeness::Partial => &self.partial,
        }
    }

    /// Returns the path of a pack of this kind.
    pub(super) fn path(&self, completeness: Completeness, id: &PackId) -> PathBuf {
        self.folder(completeness).join(id.to_string())
    }
}

/// A pack and, after the first read, its open file.
#[derive(Debug)]
pub(super) struct PackSlot {
    pub(super) id: PackId,
    pub(super) path: PathBuf,
    /// Range of the pack in the file; `None` means the whole file. Only packs in bundles have a
    /// span.
    pub(super) span: Option<PackSpan>,
    pub(super) completeness: Completeness,
    pub(super) open: Mutex<Option<Arc<PackFile>>>,
    /// Time of the last read, in seconds since 1970; 0 means never.
    used_secs: AtomicU64,
    pub(super) proof: Mutex<Option<bool>>,
}

impl PackSlot {
    fn new(
        id: PackId,
        path: PathBuf,
        span: Option<PackSpan>,
        completeness: Completeness,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            path,
            span,
            completeness,
            open: Mutex::new(None),
            used_secs: AtomicU64::new(0),
            proof: Mutex::default(),
        })
    }

    /// Records the present time as the time of the last read.
    pub(super) fn touch(&self) {
        let now = UNIX_EPOCH.elapsed().map_or(0, |age| age.as_secs());
        self.used_secs.store(now, Ordering::Relaxed);
    }

    /// Returns the time of the last read, or `None` if the pack was never read.
    pub(super) fn used(&self) -> Option<SystemTime> {
        let secs = self.used_secs.load(Ordering::Relaxed);
        (secs > 0).then(|| UNIX_EPOCH + Duration::from_secs(secs))
    }

    /// Closes the file if its path now names another file, such as a good copy from a repair.
    /// Returns true if the file was closed.
    pub(super) fn close_replaced(&self) -> bool {
        let mut open = self.open.lock();
        let is_replaced = open.as_ref().is_some_and(|pack| pack.is_replaced());
        if is_replaced {
            *open = None;
            *self.proof.lock() = None;
        }
        is_replaced
    }

    /// Opens the pack. The open pack fetches absent or damaged frames through `fetcher`.
    pub(super) fn open(&self, fetcher: Option<&Arc<Fetcher>>) -> Result<PackFile, StoreError> {
        let pack = PackFile::open_at(&self.path, self.id, self.span);
        if let (Err(error), Some(fetcher)) = (&pack, fetcher)
            && !matches!(error, StoreError::Gone { .. })
        {
            fetcher.remote.record_damage(self.id);
        }
        Ok(pack?.with_fetcher(self.completeness, fetcher.cloned()))
    }
}

/// The packs and segments of a store at one moment. A clone is cheap, since it shares packs and
/// segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalog {
    /// All packs, by number. A number stays valid as long as the store is open, so a removed pack
    /// keeps its number.
    pub(super) packs: Vec<Arc<PackSlot>>,
    /// Numbers of the packs that exist.
    pub(super) numbers: HashMap<PackId, u32>,
    /// The segments, largest first.
    pub(super) segments: Vec<Arc<Segment>>,
    /// Packs whose footer cannot be read.
    pub(super) unreadable: Vec<Arc<StoreError>>,
    /// True if any pack is partial.
    pub(super) has_partial: bool,
    /// Packs that are in `objects/` and still have a stub in `partial/`.
    pub(super) superseded: Vec<PackId>,
    /// The epoch of the store, read before the shadows.
    pub(super) epoch: Epoch,
    /// The shadowed objects, which must not be relied on.
    pub(super) shadows: Arc<Shadows>,
    /// The commits that `forget` has chosen.
    pub(super) forgotten: Arc<ForgottenTable>,
    /// Formerly damaged packs that this process has written again or verified. The shadow table on
    /// disk still lists them.
    pub(super) healed: Vec<PackId>,
    /// True if the file of an open pack was replaced. The frame cache may hold frames of the old
    /// file.
    pub(super) has_replaced: bool,
    /// The packs that this machine has hashed.
    pub(super) proven: Arc<ProvenPacks>,
    /// Modification times of the pack folders. They were read before the listing, so they detect
    /// every later change.
    listed: FolderTimes,
}

/// The result of an index repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexRepair {
    /// Number of packs that were indexed again, without packs of the last seconds.
    pub(super) packs: usize,
    /// True if an index existed and was damaged.
    pub(super) damaged: bool,
    /// True if the index came with a copied store. `packs` does not count the packs of such an
    /// index.
    replaced: bool,
}

impl Catalog {
    /// Lists packs and segments, and indexes the packs that no segment covers.
    pub(super) fn load(
        layout: &StorePaths,
        disk: &Disk,
        before: &Self,
        observer: &dyn Observer,
    ) -> Result<(Self, IndexRepair), StoreError> {
        let mut repair = IndexRepair::default();
        let epoch = Epoch::read(&layout.dir)?;
        let shadows = Shadows::load(layout, before)?;
        let forgotten = Arc::new(forgotten::read_table(&layout.dir)?);
        for attempt in 0.. {
            // List packs before segments. A writer writes a segment after its pack, so each listed
            // pack has a segment, or is indexed below.
            let mut catalog = Self::with_packs(layout, before)?;
            let foreign = match catalog.open_segments(layout, disk, &mut repair) {
                Ok(foreign) => foreign,
                Err(error) if attempt < limits::MERGE_RETRIES && is_not_found(&error) => continue,
                Err(error) => return Err(error.into()),
            };
            let old = foreign.as_deref().unwrap_or_default();
            match catalog.index_missing_packs(layout, disk, &mut repair, old, observer) {
                Ok(()) => {}
                Err(StoreError::Gone { .. }) if attempt < limits::MERGE_RETRIES => continue,
                Err(error) => return Err(error),
            }
            if let Some(foreign) = foreign {
                // If the mark cannot be written, the next process rebuilds the index again.
                let _ = replace_foreign(layout, disk, &foreign);
            }
            catalog.sort_segments(layout, disk);
            (catalog.epoch, catalog.shadows) = (epoch, shadows);
            catalog.forgotten = forgotten;
            return Ok((catalog, repair));
        }
        unreachable!("the loop above ends with a return")
    }

    /// Returns true only if no pack was added or removed since the last listing.
    pub(super) fn is_current(&self, layout: &StorePaths) -> bool {
        layout.objects.is_dir() && self.listed.are_unchanged()
    }

    fn with_packs(layout: &StorePaths, before: &Self) -> Result<Self, StoreError> {
        let mut listed = FolderTimes::default();
        listed.add(&layout.objects);
        listed.add(&layout.partial);
        let (packs, healed) = (before.packs.clone(), before.healed.clone());
        let proven = match before.proven.path.is_some() {
            true => Arc::clone(&before.proven),
            false => Arc::new(ProvenPacks::of(&layout.dir)),
        };
        let mut catalog = Self { packs, healed, proven, listed, ..Self::default() };
        let known: HashMap<PackId, u32> =
            before.packs.iter().enumerate().map(|(n, slot)| (slot.id, n as u32)).collect();
        // List partial packs first: a pack may move from `partial/` to `objects/` meanwhile.
        if layout.partial.exists() {
            catalog.list(layout, Completeness::Partial, &known)?;
        }
        catalog.list(layout, Completeness::Whole, &known)?;
        Ok(catalog)
    }

    fn list(
        &mut self,
        layout: &StorePaths,
        completeness: Completeness,
        known: &HashMap<PackId, u32>,
    ) -> Result<(), StoreError> {
        let folder = layout.folder(completeness);
        for entry in fs_err::read_dir(folder).map_err(PathError::when("list", folder))? {
            let entry = entry.map_err(PathError::when("list", folder))?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // Skip pipes, because opening a pipe would hang, and symbolic links without a target,
            // such as a link to an unmounted disk.
            let kind = entry.file_type();
            if !kind.is_ok_and(|kind| kind.is_file() || kind.is_symlink() && entry.path().is_file())
            {
                continue;
            }
            let known = known.get(&id);
            match (self.slot(&id).is_some(), known) {
                // Partial packs are already listed, so this pack is in both folders.
                (true, _) => self.superseded.push(id),
                (false, Some(&number)) => drop(self.numbers.insert(id, number)),
                (false, None) => {}
            }
            self.place_pack(id, entry.path(), completeness);
        }
        Ok(())
    }

    /// Adds a pack. A known pack keeps its number. Closes the open file of a known pack that moved
    /// to another folder or whose file was replaced.
    pub(super) fn place_pack(&mut self, id: PackId, path: PathBuf, completeness: Completeness) {
        self.has_partial |= completeness == Completeness::Partial;
        let Some(&number) = self.numbers.get(&id) else {
            return self.add_pack(id, path, None, completeness);
        };
        let slot = &mut self.packs[number as usize];
        if slot.completeness != completeness {
            *slot = PackSlot::new(id, path, None, completeness);
        } else {
            self.has_replaced |= slot.close_replaced();
        }
    }

    /// Adds a pack, in a span of a bundle or in a file of its own.
    pub(super) fn add_pack(
        &mut self,
        id: PackId,
        path: PathBuf,
        span: Option<PackSpan>,
        completeness: Completeness,
    ) {
        let number = self.packs.len() as u32;
        self.packs.push(PackSlot::new(id, path, span, completeness));
        self.numbers.insert(id, number);
    }

    /// Returns the pack, if it exists.
    pub(super) fn slot(&self, id: &PackId) -> Option<&Arc<PackSlot>> {
        self.numbers.get(id).and_then(|number| self.packs.get(*number as usize))
    }

    /// Returns the completeness of a pack, if the pack exists.
    pub(super) fn completeness(&self, id: &PackId) -> Option<Completeness> {
        self.slot(id).map(|slot| slot.completeness)
    }

    /// Opens the segments. If the index is [foreign](is_foreign), returns the segments instead of
    /// adding them to the catalog.
    fn open_segments(
        &mut self,
        layout: &StorePaths,
        disk: &Disk,
        repair: &mut IndexRepair,
    ) -> Result<Option<Vec<Segment>>, TableError> {
        self.segments.clear();
        let is_foreign = !layout.is_read_only && is_foreign(&layout.index);
        let entries = match fs_err::read_dir(&layout.index) {
            Ok(entries) => entries,
            // `index/` was deleted: `load` indexes all packs again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_made = !layout.is_read_only && disk.create_folders(&layout.index).is_ok();
                return Ok(is_made.then(Vec::new));
            }
            Err(error) => return Err(PathError::when("list", &layout.index)(error).into()),
        };
        let mut foreign = Vec::new();
        let packs = &self.packs;
        // The packs that this process has listed at some time.
        let seen = LazyCell::new(|| packs.iter().map(|slot| slot.id).collect::<HashSet<_>>());
        for entry in entries {
            let path = entry.map_err(PathError::when("list", &layout.index))?.path();
            if path.extension().is_none_or(|ending| ending != SEGMENT) {
                continue;
            }
            match Segment::open(&path, &self.numbers) {
                Ok(segment) if is_foreign => foreign.push(segment),
                Ok(segment) if segment.is_live() => self.segments.push(Arc::new(segment)),
                // This open store must not change the index.
                Ok(_) | Err(_) if layout.is_read_only => {}
                // All packs of the segment are gone. A segment that names unknown packs may be new:
                // another process may have written it after the listing of packs.
                Ok(segment)
                    if !segment.packs().iter().all(|id| seen.contains(id)) && is_fresh(&path) => {}
                Ok(_) => drop(disk.remove(&path)),
                Err(TableError::Damaged { .. }) => {
                    repair.damaged = true;
                    drop(disk.remove(&path));
                }
                Err(TableError::Io(error)) if !error.is_not_found() => repair.damaged = true,
                Err(error) => return Err(error),
            }
        }
        repair.replaced = !foreign.is_empty();
        Ok(is_foreign.then_some(foreign))
    }

    fn index_missing_packs(
        &mut self,
        layout: &StorePaths,
        disk: &Disk,
        repair: &mut IndexRepair,
        foreign: &[Segment],
        observer: &dyn Observer,
    ) -> Result<(), StoreError> {
        let covered: HashSet<PackId> =
            self.segments.iter().flat_map(|segment| segment.packs()).copied().collect();
        let missing: Vec<PackId> =
            self.numbers.keys().filter(|id| !covered.contains(id)).copied().collect();
        if missing.is_empty() || layout.is_read_only {
            return Ok(());
        }
        observer.phase(Phase::Index, Some(missing.len() as u64));
        let (mut packs, mut records) = (Vec::new(), Vec::new());
        for id in missing {
            let Some(slot) = self.slot(&id) else { continue };
            let fresh = is_fresh(&slot.path);
            let read = slot.open(None).and_then(|pack| Ok((pack.objects()?, pack)));
            match read {
                Ok((objects, pack)) => {
                    let number = packs.len() as u32;
                    records.extend(segment::records(number, pack.frames(), &objects));
                    packs.push(id);
                    if records.len() >= REINDEXED_RECORDS {
                        self.add_records(layout, disk, take(&mut packs), take(&mut records));
                    }
                    repair.packs += usize::from(!fresh && !repair.replaced);
                }
                Err(error @ StoreError::Gone { .. }) => return Err(error),
                // One bad pack must not make the others unusable. The error is reported by
                // `verify`, and if an object of the pack is missing.
                Err(error) => {
                    // Read the objects of the pack by the old records. No writer relies on these
                    // records: a damaged pack is not proven, and a repair rebuilds the index.
                    if damage(&error).is_some()
                        && let Some(records) = foreign.iter().find_map(|own| own.records_of(&id))
                    {
                        self.add_records(layout, disk, vec![id], records);
                    }
                    self.unreadable.push(Arc::new(error));
                }
            }
            observer.advance(1, 0);
        }
        if !packs.is_empty() {
            self.add_records(layout, disk, packs, records);
        }
        Ok(())
    }

    /// Adds a finished pack, or a stub of a pack, with its segment.
    pub(super) fn add_sealed(
        &mut self,
        layout: &StorePaths,
        disk: &Disk,
        sealed: &FinishedPack,
        completeness: Completeness,
    ) {
        let before = self.completeness(&sealed.id);
        self.place_pack(sealed.id, layout.path(completeness, &sealed.id), completeness);
        if completeness == Completeness::Whole {
            if before == Some(Completeness::Partial) {
                self.superseded.push(sealed.id);
            }
            self.heal(&sealed.id);
        }
        self.unreadable.retain(|error| error.damaged_pack() != Some(sealed.id));
        let records = segment::records(0, &sealed.frames, &sealed.objects);
        self.add_records(layout, disk, vec![sealed.id], records);
        self.sort_segments(layout, disk);
    }

    /// Writes a segment of these packs. If that fails, keeps the segment in memory: the packs are
    /// stored, and the next process indexes them again. An index that must not change gets no file.
    pub(super) fn add_records(
        &mut self,
        layout: &StorePaths,
        disk: &Disk,
        packs: Vec<PackId>,
        mut records: Vec<segment::IndexRecord>,
    ) {
        records.sort_unstable();
        let write = || {
            let written =
                publish(layout, disk, |path| Ok(segment::write(disk, path, &packs, &records)?));
            Segment::open(&written.ok()?, &self.numbers).ok()
        };
        let written = (!layout.is_read_only).then(write).flatten();
        let segment = written.unwrap_or_else(|| Segment::in_memory(packs, records, &self.numbers));
        self.segments.push(Arc::new(segment));
    }

    /// Sorts the segments after some were added. Merges them if there are many, except in a store
    /// that must not change.
    pub(super) fn sort_segments(&mut self, layout: &StorePaths, disk: &Disk) {
        self.segments.sort_by_key(|segment| std::cmp::Reverse(segment.records()));
        if self.segments.len() > MANY_SEGMENTS && !layout.is_read_only {
            // The next change tries a failed merge again.
            let merged = self.merge_segments(layout, disk).unwrap_or_default();
            merged.iter().for_each(|path| drop(disk.remove(path)));
        }
    }

    /// Merges segments until each segment is more than twice as large as all smaller segments
    /// together. Returns the files that are no longer needed.
    pub(super) fn merge_segments(
        &mut self,
        layout: &StorePaths,
        disk: &Disk,
    ) -> Result<Vec<PathBuf>, TableError> {
        let sizes: Vec<u64> = self.segments.iter().map(|segment| segment.records()).collect();
        let from = merge_from(&sizes);
        let merged = &self.segments[from..];
        if merged.len() < 2 || merged.iter().any(|segment| segment.path().is_none()) {
            return Ok(Vec::new());
        }
        let parts: Vec<&Segment> = merged.iter().map(Arc::as_ref).collect();
        let path = publish(layout, disk, |path| segment::merge(disk, path, &parts))?;
        let whole = Segment::open(&path, &self.numbers)?;
        let old = self.segments.drain(from..);
        let old = old.filter_map(|segment| segment.path().map(Path::to_owned)).collect();
        // The others are larger.
        self.segments.push(Arc::new(whole));
        Ok(old)
    }
}

/// Removes the segments of a foreign index, and marks the index as made here.
fn replace_foreign(layout: &StorePaths, disk: &Disk, foreign: &[Segment]) -> Result<(), PathError> {
    foreign.iter().filter_map(Segment::path).try_for_each(|path| disk.remove(path))?;
    mark_made_here(&layout.index, disk, &layout.tmp)
}

/// Writes a segment under a temporary name and moves it into `index/`.
fn publish(
    layout: &StorePaths,
    disk: &Disk,
    write: impl FnOnce(&Path) -> Result<PathBuf, TableError>,
) -> Result<PathBuf, TableError> {
    disk.create_folders(&layout.index)?;
    let name = unique_name("segment");
    let from = layout.tmp.join(&name);
    let to = layout.index.join(format!("{name}.{SEGMENT}"));
    let moved = write(&from).and_then(|from| Ok(disk.replace(&from, &to)?));
    if moved.is_err() {
        let _ = fs_err::remove_file(&from);
    }
    moved.map(|()| to)
}

fn is_fresh(path: &Path) -> bool {
    let modified = fs_err::metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < FRESH))
}

/// Returns true if an index is foreign: it may have come with a copied or extracted store, and may
/// name objects that no pack has. Trusts the index of another user's store, since that user could
/// remove packs as well. Also trusts an index on a read-only disk, where no commit can rely on it.
fn is_foreign(index: &Path) -> bool {
    let user = rustix::process::geteuid();
    let is_own = |meta: Metadata| user.is_root() || meta.uid() == user.as_raw();
    let is_writable =
        || statvfs(index).is_ok_and(|disk| !disk.f_flag.contains(StatVfsMountFlags::RDONLY));
    !is_made_here(index) && fs_err::metadata(index).is_ok_and(is_own) && is_writable()
}

fn is_not_found(error: &TableError) -> bool {
    matches!(error, TableError::Io(error) if error.is_not_found())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::{id::BlobId, observe::Silent},
        store::{ObjectWriter, Store},
    };

    fn open(dir: &Path) -> Store {
        Store::open(dir, Disk::scratch(), &Silent).unwrap()
    }

    fn blob(n: usize) -> Vec<u8> {
        n.to_string().into_bytes()
    }

    /// Creates a store with this many packs, each with a segment of its own.
    fn with_packs(dir: &Path, packs: usize) -> PathBuf {
        let whole = dir.join("whole");
        Store::create(&whole, &Disk::scratch()).unwrap();
        drop(open(&whole));
        for n in 0..packs {
            let part = dir.join(n.to_string());
            Store::create(&part, &Disk::scratch()).unwrap();
            let store = open(&part);
            let writer = ObjectWriter::new(&store, 3, 1).unwrap();
            writer.add_blob(0, BlobId::of(&blob(n)), &blob(n)).unwrap();
            writer.finish().unwrap();
            for folder in ["objects", "index"] {
                for entry in fs_err::read_dir(part.join(folder)).unwrap() {
                    let entry = entry.unwrap();
                    let to = whole.join(folder).join(entry.file_name());
                    if !to.exists() {
                        fs_err::copy(entry.path(), to).unwrap();
                    }
                }
            }
        }
        whole
    }

    fn segments(store: &Path) -> Vec<PathBuf> {
        let entries = fs_err::read_dir(store.join("index")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|ending| ending == SEGMENT)).collect()
    }

    #[track_caller]
    fn assert_has_all(store: &Store, packs: usize) {
        assert_eq!(store.packs().len(), packs);
        for n in 0..packs {
            assert_eq!(store.places(&BlobId::of(&blob(n)).object()).unwrap().len(), 1, "{n}");
        }
    }

    #[test]
    fn packs_that_are_indexed_again_share_a_segment() {
        let folder = tempfile::tempdir().unwrap();
        let dir = with_packs(folder.path(), 20);
        assert_eq!(segments(&dir).len(), 20);
        segments(&dir).iter().for_each(|path| fs_err::remove_file(path).unwrap());
        let store = open(&dir);
        assert_eq!((segments(&dir).len(), store.catalog().segments.len()), (1, 1));
        assert_has_all(&store, 20);
        assert_has_all(&open(&dir), 20);
    }

    #[test]
    fn a_store_with_many_segments_merges_them_when_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let dir = with_packs(folder.path(), MANY_SEGMENTS + 1);
        let read_only = Store::open_read_only(&dir, Disk::scratch()).unwrap();
        assert_eq!(segments(&dir).len(), MANY_SEGMENTS + 1);
        let store = open(&dir);
        assert_eq!((segments(&dir).len(), store.catalog().segments.len()), (1, 1));
        for store in [&read_only, &store] {
            assert_has_all(store, MANY_SEGMENTS + 1);
        }
    }
}
