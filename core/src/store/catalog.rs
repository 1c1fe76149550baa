//! Which packs there are, and the segments that index them.
//!
//! Made by listing folders. Each pack must be covered by a segment; one
//! that is not is read and indexed on the spot, so `index/` may be deleted or
//! damaged at any time. A catalog is a value: a change makes a new one.
//!
//! A pack lies in `objects/` or, when some of its frames lie elsewhere, in
//! `partial/`; most stores have no such folder. Where it is in both, the whole
//! one counts, and the other one goes with the next writer.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    base::{
        id::PackId,
        io::PathError,
        observe::{Observer, Phase},
    },
    disk::{
        Disk,
        scratch::unique_name,
        table::{TableError, merge_from},
    },
    store::{
        StoreError,
        bundle::Span,
        fetch::Fetcher,
        pack_reader::{Home, PackFile},
        pack_writer::Sealed,
        segment::{self, Segment},
        shadow::{self, Shadows},
    },
};

/// Ending of a segment's name.
const SEGMENT: &str = "idx";

/// A pack that young may be one whose writer is just about to index it.
const FRESH: Duration = Duration::from_secs(10);

/// A folder that changed so recently may change again without its time telling.
const SETTLED: Duration = Duration::from_secs(1);

/// How often a listing is started again because a file vanished meanwhile.
const RETRIES: usize = 16;

/// What to do about an index that is not as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upkeep {
    /// Make it again, and remove what is of no use any more.
    #[default]
    Repair,
    /// Leave it: what it does not know is not found.
    Leave,
}

/// Where the parts of a store lie.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) upkeep: Upkeep,
    pub(super) dir: PathBuf,
    pub(super) objects: PathBuf,
    pub(super) partial: PathBuf,
    pub(super) index: PathBuf,
    pub(super) quarantine: PathBuf,
    pub(super) tmp: PathBuf,
    pub(super) shadow: PathBuf,
}

impl Layout {
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            upkeep: Upkeep::Repair,
            dir: dir.to_owned(),
            objects: dir.join("objects"),
            partial: dir.join("partial"),
            index: dir.join("index"),
            quarantine: dir.join("quarantine"),
            tmp: dir.join("tmp"),
            shadow: dir.join(shadow::TABLE),
        }
    }

    /// Where the packs of a kind lie.
    pub(super) fn folder(&self, home: Home) -> &Path {
        match home {
            Home::Whole => &self.objects,
            Home::Partial => &self.partial,
        }
    }

    /// Where a pack of a kind lies.
    pub(super) fn path(&self, home: Home, id: &PackId) -> PathBuf {
        self.folder(home).join(id.to_string())
    }
}

/// A pack and, once it was read, its open file.
#[derive(Debug)]
pub(super) struct PackSlot {
    pub(super) id: PackId,
    pub(super) path: PathBuf,
    /// Which part of the file it is; all of it unless that is a bundle.
    pub(super) span: Option<Span>,
    pub(super) home: Home,
    pub(super) open: Mutex<Option<Arc<PackFile>>>,
    /// When it was last read, in seconds since 1970.
    used_secs: AtomicU64,
}

impl PackSlot {
    fn new(id: PackId, path: PathBuf, span: Option<Span>, home: Home) -> Arc<Self> {
        Arc::new(Self {
            id,
            path,
            span,
            home,
            open: Mutex::new(None),
            used_secs: AtomicU64::new(0),
        })
    }

    /// It is read now.
    pub(super) fn touch(&self) {
        let now = UNIX_EPOCH.elapsed().map_or(0, |age| age.as_secs());
        self.used_secs.store(now, Ordering::Relaxed);
    }

    /// When it was last read, if it was.
    pub(super) fn used(&self) -> Option<SystemTime> {
        let secs = self.used_secs.load(Ordering::Relaxed);
        (secs > 0).then(|| UNIX_EPOCH + Duration::from_secs(secs))
    }

    /// Opens the pack; frames that are not here, or are damaged here, come from
    /// `fetcher`.
    pub(super) fn open(&self, fetcher: Option<&Arc<Fetcher>>) -> Result<PackFile, StoreError> {
        let pack = PackFile::open_at(&self.path, self.id, self.span);
        if let (Err(error), Some(fetcher)) = (&pack, fetcher)
            && !matches!(error, StoreError::Gone { .. })
        {
            fetcher.distant.found_damage(self.id);
        }
        Ok(pack?.in_place(self.home, fetcher.cloned()))
    }
}

/// Packs and segments at one moment.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// By number; numbers stay for as long as the store is open, so packs
    /// that are gone keep theirs.
    pub(super) packs: Vec<Arc<PackSlot>>,
    /// Numbers of the packs that are there.
    pub(super) numbers: HashMap<PackId, u32>,
    /// Largest first.
    pub(super) segments: Vec<Arc<Segment>>,
    /// Packs whose footer cannot be read.
    pub(super) unreadable: Vec<Arc<StoreError>>,
    /// Whether some frames lie elsewhere.
    pub(super) has_partial: bool,
    /// Partial packs that are here whole, too.
    pub(super) superseded: Vec<PackId>,
    /// What must not be relied on.
    pub(super) shadows: Arc<Shadows>,
    /// Packs that were damaged and were written anew by this open store; the
    /// shadow table does not say so yet.
    pub(super) healed: Vec<PackId>,
    /// Times of the packs' folders before they were listed.
    listed: [Option<SystemTime>; 2],
}

/// When something came or went in a folder; `None` where there is none.
fn modified(folder: &Path) -> Option<SystemTime> {
    fs_err::metadata(folder).and_then(|meta| meta.modified()).ok()
}

/// What had to be indexed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// How many packs were read.
    pub packs: usize,
    /// Whether there was an index and it was damaged.
    pub damaged: bool,
}

impl Catalog {
    /// Lists packs and segments, and indexes what is not indexed.
    pub(super) fn load(
        layout: &Layout,
        disk: &Disk,
        before: &Self,
        observer: &dyn Observer,
    ) -> Result<(Self, Repair), StoreError> {
        let mut repair = Repair::default();
        let shadows = Shadows::load(layout, before)?;
        for attempt in 0.. {
            // Packs first: a segment is written after its pack, so what is
            // listed here has one, or will be indexed below.
            let mut catalog = Self::with_packs(layout, before)?;
            match catalog.open_segments(layout, disk, &mut repair) {
                Ok(()) => {}
                Err(error) if attempt < RETRIES && is_not_found(&error) => continue,
                Err(error) => return Err(error.into()),
            }
            match catalog.index_the_rest(layout, disk, &mut repair, observer) {
                Ok(()) => {}
                Err(StoreError::Gone { .. }) if attempt < RETRIES => continue,
                Err(error) => return Err(error),
            }
            catalog.sort_segments();
            catalog.shadows = shadows;
            return Ok((catalog, repair));
        }
        unreachable!("the loop above ends with a return")
    }

    /// A copy to be changed; cheap, since its parts are shared.
    pub(super) fn copy(&self) -> Self {
        Self {
            packs: self.packs.clone(),
            numbers: self.numbers.clone(),
            segments: self.segments.clone(),
            unreadable: self.unreadable.clone(),
            has_partial: self.has_partial,
            superseded: self.superseded.clone(),
            shadows: Arc::clone(&self.shadows),
            healed: self.healed.clone(),
            listed: self.listed,
        }
    }

    /// Whether packs have surely neither come nor gone since they were listed.
    pub(super) fn is_current(&self, layout: &Layout) -> bool {
        let settled = |time: SystemTime| time.elapsed().is_ok_and(|age| age > SETTLED);
        let [objects, partial] = [&layout.objects, &layout.partial].map(|folder| modified(folder));
        objects.is_some_and(settled)
            && partial.is_none_or(settled)
            && [objects, partial] == self.listed
    }

    fn with_packs(layout: &Layout, before: &Self) -> Result<Self, StoreError> {
        let listed = [&layout.objects, &layout.partial].map(|folder| modified(folder));
        let (packs, healed) = (before.packs.clone(), before.healed.clone());
        let mut catalog = Self { packs, healed, listed, ..Self::default() };
        let known: HashMap<PackId, u32> =
            before.packs.iter().enumerate().map(|(n, slot)| (slot.id, n as u32)).collect();
        // Those first that may move to the others meanwhile.
        if listed[1].is_some() {
            catalog.list(layout, Home::Partial, &known)?;
        }
        catalog.list(layout, Home::Whole, &known)?;
        Ok(catalog)
    }

    fn list(
        &mut self,
        layout: &Layout,
        home: Home,
        known: &HashMap<PackId, u32>,
    ) -> Result<(), StoreError> {
        let folder = layout.folder(home);
        for entry in fs_err::read_dir(folder).map_err(PathError::when("list", folder))? {
            let entry = entry.map_err(PathError::when("list", folder))?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // Opening a pipe of such a name would hang. A link may lead to a disk
            // that is not there.
            let kind = entry.file_type();
            if !kind.is_ok_and(|kind| kind.is_file() || kind.is_symlink() && entry.path().is_file())
            {
                continue;
            }
            let known = known.get(&id);
            match (self.slot(&id).is_some(), known) {
                (true, _) => self.superseded.push(id),
                (false, Some(&number)) => drop(self.numbers.insert(id, number)),
                (false, None) => {}
            }
            self.place_pack(id, entry.path(), home);
        }
        Ok(())
    }

    /// Adds a pack, or notes that one is somewhere else than it was. It keeps
    /// its number.
    pub(super) fn place_pack(&mut self, id: PackId, path: PathBuf, home: Home) {
        self.has_partial |= home == Home::Partial;
        let Some(&number) = self.numbers.get(&id) else {
            return self.add_pack(id, path, None, home);
        };
        let slot = &mut self.packs[number as usize];
        if slot.home != home {
            *slot = PackSlot::new(id, path, None, home);
        }
    }

    fn add_pack(&mut self, id: PackId, path: PathBuf, span: Option<Span>, home: Home) {
        let number = self.packs.len() as u32;
        self.packs.push(PackSlot::new(id, path, span, home));
        self.numbers.insert(id, number);
    }

    /// The pack, if it is there.
    pub(super) fn slot(&self, id: &PackId) -> Option<&Arc<PackSlot>> {
        self.numbers.get(id).and_then(|number| self.packs.get(*number as usize))
    }

    /// Adds a pack that lies in a bundle, with what its footer says.
    pub(super) fn add_inside(
        &mut self,
        place: (PackId, PathBuf, Span),
        records: Vec<segment::Record>,
        scratch: Option<(&Layout, &Disk)>,
    ) {
        let (id, path, span) = place;
        self.add_pack(id, path, Some(span), Home::Whole);
        match scratch {
            Some((layout, disk)) => self.add_records(layout, disk, id, records),
            None => {
                let segment = Segment::in_memory(id, records, &self.numbers);
                self.segments.push(Arc::new(segment));
            }
        }
        self.sort_segments();
    }

    fn open_segments(
        &mut self,
        layout: &Layout,
        disk: &Disk,
        repair: &mut Repair,
    ) -> Result<(), TableError> {
        self.segments.clear();
        let entries = match fs_err::read_dir(&layout.index) {
            Ok(entries) => entries,
            // Deleted as a whole: everything is indexed again below.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(PathError::when("list", &layout.index)(error).into()),
        };
        for entry in entries {
            let path = entry.map_err(PathError::when("list", &layout.index))?.path();
            if path.extension().is_none_or(|ending| ending != SEGMENT) {
                continue;
            }
            match Segment::open(&path, &self.numbers) {
                Ok(segment) if segment.is_live() => self.segments.push(Arc::new(segment)),
                // Nobody's to remove here.
                Ok(_) | Err(_) if layout.upkeep == Upkeep::Leave => {}
                // Its packs have all been merged into others, unless they have
                // just been made, since the packs were listed.
                Ok(segment) if !self.has_seen(&segment) && is_fresh(&path) => {}
                Ok(_) => drop(disk.remove(&path)),
                Err(TableError::Damaged { .. }) => {
                    repair.damaged = true;
                    drop(disk.remove(&path));
                }
                Err(TableError::Io(error)) if !error.is_not_found() => repair.damaged = true,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether each pack of a segment was listed at some time.
    fn has_seen(&self, segment: &Segment) -> bool {
        segment.packs().iter().all(|id| self.packs.iter().any(|slot| slot.id == *id))
    }

    fn index_the_rest(
        &mut self,
        layout: &Layout,
        disk: &Disk,
        repair: &mut Repair,
        observer: &dyn Observer,
    ) -> Result<(), StoreError> {
        let covered: HashSet<PackId> =
            self.segments.iter().flat_map(|segment| segment.packs()).copied().collect();
        let missing: Vec<PackId> =
            self.numbers.keys().filter(|id| !covered.contains(id)).copied().collect();
        if missing.is_empty() || layout.upkeep == Upkeep::Leave {
            return Ok(());
        }
        observer.phase(Phase::Index, Some(missing.len() as u64));
        for id in missing {
            let Some(slot) = self.slot(&id) else { continue };
            let fresh = is_fresh(&slot.path);
            let read = slot.open(None).and_then(|pack| Ok((pack.objects()?, pack)));
            match read {
                Ok((objects, pack)) => {
                    let records = segment::records(0, pack.frames(), &objects);
                    self.add_records(layout, disk, id, records);
                    repair.packs += usize::from(!fresh);
                }
                Err(error @ StoreError::Gone { .. }) => return Err(error),
                // One bad pack must not keep anybody from the others. Said by
                // whoever misses an object of it, and by verify.
                Err(error) => self.unreadable.push(Arc::new(error)),
            }
            observer.advance(1, 0);
        }
        Ok(())
    }

    /// Adds a finished pack, or a stub of one, with its segment.
    pub(super) fn add_sealed(
        &mut self,
        layout: &Layout,
        disk: &Disk,
        (sealed, home): (&Sealed, Home),
    ) {
        if home == Home::Whole && self.slot(&sealed.id).is_some_and(|s| s.home == Home::Partial) {
            self.superseded.push(sealed.id);
        }
        self.place_pack(sealed.id, layout.path(home, &sealed.id), home);
        if home == Home::Whole {
            self.heal(&sealed.id);
        }
        self.unreadable.retain(|error| error.damaged_pack() != Some(sealed.id));
        let records = segment::records(0, &sealed.frames, &sealed.objects);
        self.add_records(layout, disk, sealed.id, records);
        self.sort_segments();
    }

    /// Writes a segment; where that fails it is kept in memory, because the
    /// pack is what counts.
    fn add_records(
        &mut self,
        layout: &Layout,
        disk: &Disk,
        id: PackId,
        records: Vec<segment::Record>,
    ) {
        let written = publish(layout, disk, |path| Ok(segment::write(disk, path, id, &records)?))
            .and_then(|path| Segment::open(&path, &self.numbers));
        let segment = written.unwrap_or_else(|_| Segment::in_memory(id, records, &self.numbers));
        self.segments.push(Arc::new(segment));
    }

    fn sort_segments(&mut self) {
        self.segments.sort_by_key(|segment| std::cmp::Reverse(segment.records()));
    }

    /// Merges segments until each is more than twice as large as all smaller
    /// ones together. Returns the files that are no longer needed.
    pub(super) fn merge_segments(
        &mut self,
        layout: &Layout,
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
        self.segments.push(Arc::new(whole));
        self.sort_segments();
        Ok(old)
    }
}

/// Writes a segment under a temporary name and moves it to the index.
fn publish(
    layout: &Layout,
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

fn is_not_found(error: &TableError) -> bool {
    matches!(error, TableError::Io(error) if error.is_not_found())
}
