//! Stores recovered objects in the scratch store. They come from the sound parts of damaged packs,
//! from sources and from live files.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use crate::{
    base::{
        id::{BlobId, ObjectId, PackId},
        limits,
        observe::Observer,
    },
    format::pack::ObjectKind,
    ops::{
        diff::{ComparedFiles, DiskPaths},
        repair::{
            RepairRun, Repaired, RepairedFrom, SourceKind, combined_stores::CombinedStores, files,
        },
    },
    store::{ObjectLocation, ObjectWriter, StoreError},
};

/// Files on disk from which commits were made, and affected paths of these commits.
#[derive(Debug)]
pub(super) struct AffectedFiles {
    pub(super) files: ComparedFiles,
    /// Paths in the snapshots, each with an object that the store lacks for it.
    pub(super) paths: Vec<(Vec<u8>, ObjectId)>,
}

/// Files on disk that may contain lost objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveFiles<'a> {
    /// The folder of the project, if the store has one.
    pub(super) project: Option<&'a Path>,
    pub(super) affected: &'a [AffectedFiles],
}

/// Stores an object that was verified.
pub(super) fn store_object(
    writer: &ObjectWriter<'_>,
    id: &ObjectId,
    kind: ObjectKind,
    bytes: &[u8],
) -> Result<(), StoreError> {
    match kind {
        ObjectKind::Blob if bytes.len() <= limits::SMALL_FRAME_BYTES => {
            writer.add_blob(0, BlobId::from_object(*id), bytes).map(drop)
        }
        ObjectKind::Blob => writer.add_chunks(bytes, &[bytes.len()]).map(drop),
        _ => writer.add_metadata(kind, *id, bytes),
    }
}

/// The objects that a recovery has found, and those that it still looks for.
pub(super) struct Gathered {
    /// Objects that were not found, with their kinds.
    pub(super) wanted: BTreeMap<ObjectId, ObjectKind>,
    pub(super) repaired: Vec<Repaired>,
}

impl Gathered {
    fn add(&mut self, id: ObjectId, kind: ObjectKind, from: RepairedFrom) {
        self.wanted.remove(&id);
        self.repaired.push(Repaired::Object { id, kind, from });
    }
}

/// Collects wanted objects in the scratch store.
pub(super) struct Recovery<'a> {
    pub(super) stores: &'a CombinedStores<'a>,
    pub(super) level: i32,
    pub(super) files: Option<LiveFiles<'a>>,
    pub(super) run: RepairRun,
    pub(super) observer: &'a dyn Observer,
}

/// Number of objects that were stored again, for each damaged pack.
pub(super) type Salvaged = BTreeMap<PackId, u64>;

impl Recovery<'_> {
    /// Stores the sound objects of damaged packs that could not be made whole, unless a pack without
    /// damage has them. This includes objects that no commit refers to.
    pub(super) fn salvage(&self) -> Result<Salvaged, StoreError> {
        let scratch = self.stores.scratch.store();
        let mut salvaged = Salvaged::new();
        let writer = ObjectWriter::new(scratch, self.level, 1)?;
        for id in scratch.partial_packs() {
            for object in scratch.open_pack(&id)?.objects()? {
                if self.observer.cancelled() || self.is_there(&object.id)? {
                    continue;
                }
                if let Some(bytes) = self.stores.scratch.object(&object.id, object.kind) {
                    store_object(&writer, &object.id, object.kind, &bytes)?;
                    *salvaged.entry(id).or_default() += 1;
                }
            }
        }
        writer.finish()?;
        Ok(salvaged)
    }

    /// Returns true if an object is in a pack that stays, or in the scratch store already.
    fn is_there(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let (target, scratch) = (self.stores.target, self.stores.scratch.store());
        Ok(target.is_in_sound_pack(id)? || scratch.is_in_whole_pack(id)?)
    }

    /// Stores the wanted objects that can be found.
    pub(super) fn gather(
        &self,
        wanted: BTreeMap<ObjectId, ObjectKind>,
    ) -> Result<Gathered, StoreError> {
        let mut gathered = Gathered { wanted, repaired: Vec::new() };
        let stored = self.stores.scratch.store();
        gathered.wanted.retain(|id, _| !stored.is_in_whole_pack(id).unwrap_or(false));
        self.take_from_damaged_packs(&mut gathered)?;
        self.take_from_sources(SourceKind::Store, &mut gathered)?;
        self.take_from_files(&mut gathered)?;
        self.take_from_sources(SourceKind::Bundle, &mut gathered)?;
        Ok(gathered)
    }

    /// Stores wanted objects from the sound parts of damaged packs.
    fn take_from_damaged_packs(&self, gathered: &mut Gathered) -> Result<(), StoreError> {
        let scratch = self.stores.scratch.store();
        if scratch.partial_packs().is_empty() && self.stores.unlisted.is_empty() {
            return Ok(());
        }
        let writer = ObjectWriter::new(scratch, self.level, 1)?;
        let mut found = Vec::new();
        for (&id, &kind) in &gathered.wanted {
            if let Some(bytes) = self.stores.read_from_damaged(&id, kind) {
                store_object(&writer, &id, kind, &bytes)?;
                found.push((id, kind));
            }
        }
        writer.finish()?;
        found.into_iter().for_each(|(id, kind)| gathered.add(id, kind, RepairedFrom::Here));
        Ok(())
    }

    fn take_from_sources(
        &self,
        kind: SourceKind,
        gathered: &mut Gathered,
    ) -> Result<(), StoreError> {
        for source in self.stores.sources.iter().filter(|source| source.kind() == kind) {
            if gathered.wanted.is_empty() {
                return Ok(());
            }
            let located = gathered.wanted.keys().filter_map(|id| Some((source.locate(id)?, *id)));
            let mut places: Vec<(ObjectLocation, ObjectId)> = located.collect();
            places.sort_unstable();
            if self.run == RepairRun::Real {
                source.prefetch(&places.iter().map(|(place, _)| *place).collect::<Vec<_>>());
            }
            let writer = ObjectWriter::new(self.stores.scratch.store(), self.level, 1)?;
            for (place, id) in places {
                if self.observer.cancelled() {
                    break;
                }
                // A dry run does not fetch objects; it only counts them.
                if self.run == RepairRun::Real {
                    let Some(bytes) = source.object(&id, place.kind) else { continue };
                    store_object(&writer, &id, place.kind, &bytes)?;
                    self.observer.advance(bytes.len() as u64, 1);
                }
                let from = RepairedFrom::Source(source.name().to_owned());
                gathered.add(id, place.kind, from);
            }
            writer.finish()?;
        }
        Ok(())
    }

    fn take_from_files(&self, gathered: &mut Gathered) -> Result<(), StoreError> {
        let Some(LiveFiles { project, affected }) = self.files else { return Ok(()) };
        if gathered.wanted.is_empty() {
            return Ok(());
        }
        let writer = ObjectWriter::new(self.stores.scratch.store(), self.level, 1)?;
        let (target, scratch) = (self.stores.target, self.stores.scratch.store());
        let is_sound = |id: &ObjectId| {
            Ok(target.locate_unshadowed(id)?.is_some() || scratch.is_in_whole_pack(id)?)
        };
        for AffectedFiles { files, paths } in affected {
            let Ok(disk_paths) = DiskPaths::open(files) else { continue };
            let is_project =
                matches!(files, ComparedFiles::Folder(folder) if project == Some(folder));
            let mut read = BTreeSet::new();
            for (path, object) in paths {
                if !gathered.wanted.contains_key(object)
                    || !read.insert(path)
                    || self.observer.cancelled()
                {
                    continue;
                }
                let ids = gathered.wanted.keys().copied().collect();
                let needs = files::LostObjects { ids: &ids, is_sound: &is_sound };
                let taken = files::take(&writer, &disk_paths, path, &needs, self.observer)?;
                let shown = match is_project {
                    true => path.clone(),
                    false => disk_paths.shown(path).as_os_str().as_bytes().to_vec(),
                };
                for (id, kind) in taken {
                    gathered.add(id, kind, RepairedFrom::File(shown.clone()));
                }
            }
        }
        writer.finish()?;
        Ok(())
    }
}
