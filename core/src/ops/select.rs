//! Selects packs that carry commits to a peer that has part of their objects.
//!
//! Objects that the commits reach and the peer lacks are marked with one bit each. A pack in which
//! every object is wanted is sent unchanged. The wanted frames of other packs are copied into packs
//! in a scratch folder. A frame is compressed again only if just some of its objects are wanted:
//! the others may belong to commits that the peer did not request. Wanted frames of partial packs
//! are fetched if they are missing locally.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        limits,
        observe::{Observer, Phase},
    },
    disk::{Disk, scratch::Scratch},
    format::{
        gc_table::GcTable,
        pack::{ObjectKind, PackedObject},
        wire::FormatError,
    },
    ops::reach::{self, ReachError},
    store::{
        Marks, ObjectLocation, ObjectWriter, PackFile, Store, StoreError,
        copy::{FrameMode, copy_pack},
    },
};

/// The parameters for copying selected frames.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    /// Folder in which a temporary folder may be created.
    pub scratch: &'a Path,
    /// The zstd level for frames that are compressed again.
    pub level: i32,
    /// Packs that the peer had and has lost. They are sent unchanged even if only some of
    /// their objects are wanted.
    pub lost: &'a BTreeSet<PackId>,
    /// The garbage collection of the peer, which reserves the names of some packs. A pack with such
    /// a name is copied into a pack with another name.
    pub collected: Option<&'a GcTable>,
}

impl Gather<'_> {
    fn may_use(&self, name: &PackId) -> bool {
        !self.collected.is_some_and(|table| table.reserves_name(name))
    }
}

/// How much of an object the peer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerHas {
    /// The object and everything that it refers to.
    All,
    /// The object, but perhaps not everything that it refers to.
    Alone,
    /// The peer had the object and has lost it.
    Lost,
    /// The peer never had the object.
    Nothing,
}

impl PeerHas {
    /// Returns the state of an object for a peer that has each object either with everything that
    /// it refers to or not at all.
    pub fn of(has: bool) -> Self {
        if has { Self::All } else { Self::Nothing }
    }
}

/// Returns how much of an object the peer has.
pub type Has<'a> = dyn Fn(&ObjectId) -> Result<PeerHas, StoreError> + 'a;

/// The selected packs.
#[derive(Debug)]
pub struct SelectedPacks<'s> {
    store: &'s Store,
    /// Packs of the store that are sent unchanged.
    whole: Vec<PackId>,
    /// Packs that were assembled from parts. The store is dropped before its folder.
    gathered: Option<(Store, Scratch)>,
    /// Packs that [`Self::split`] has written.
    pieces: Option<(Store, Scratch)>,
    /// Packs that other packs in `pieces` replace.
    replaced: BTreeSet<PackId>,
    /// Objects in all selected packs.
    pub objects: u64,
    /// Total size of these objects in bytes, uncompressed.
    pub raw_bytes: u64,
    /// Objects in all selected packs that the peer had and has lost.
    pub lost: u64,
}

impl<'s> SelectedPacks<'s> {
    /// Selects packs with everything that is reachable from `commits`, except what `has`
    /// reports as present. The caller must hold the packs ([`Store::pin_packs`]).
    ///
    /// # Errors
    /// [`ReachError`] for the first object that is missing, damaged or unreadable.
    pub fn make(
        store: &'s Store,
        commits: &[CommitId],
        has: &Has<'_>,
        gather: Gather<'_>,
        observer: &dyn Observer,
    ) -> Result<Self, ReachError> {
        let mut lost: HashMap<PackId, usize> = HashMap::new();
        let mut is_new = |pack: &PackId| {
            let rounds = lost.entry(*pack).or_default();
            *rounds += 1;
            *rounds <= limits::GC_ROUNDS
        };
        // The remote of a partial clone may have the objects in other packs now, or have forgotten the
        // commit. Each lost pack is avoided as a whole.
        let mut is_avoided = |error: &StoreError| match error {
            StoreError::Fetch { pack, .. } => {
                is_new(pack) && {
                    let is_forgotten = store.learn_forgotten(error);
                    store.route_around_damage(error) || is_forgotten
                }
            }
            // A read may have moved objects to other packs while the walk counted them.
            StoreError::Format { pack, .. } => store.may_fetch() && is_new(pack),
            _ => false,
        };
        loop {
            match Self::attempt(store, commits, has, gather, observer) {
                Err(ReachError::Store(error)) if is_avoided(&error) => {}
                made => return made,
            }
        }
    }

    fn attempt(
        store: &'s Store,
        commits: &[CommitId],
        has: &Has<'_>,
        gather: Gather<'_>,
        observer: &dyn Observer,
    ) -> Result<Self, ReachError> {
        observer.phase(Phase::Structure, None);
        let wanted = loop {
            // A read of a partial clone may add to the index.
            let Some(wanted) = SendSet::find(store, commits, has, observer)? else { continue };
            match wanted.prove(store, observer) {
                // The other copy may be right.
                Err(ReachError::Store(error)) if has_other_copy(store, &error)? => {}
                proven => break proven.map(|()| wanted)?,
            }
        };
        let (whole, parts) = wanted.packs(store, gather, observer)?;
        let gathered = match parts.is_empty() {
            true => None,
            false => Some(gather_parts(store, &wanted, &parts, gather, observer)?),
        };
        let SendSet { objects, raw_bytes, lost, .. } = wanted;
        let (pieces, replaced) = (None, BTreeSet::new());
        Ok(Self { store, whole, gathered, pieces, replaced, objects, raw_bytes, lost })
    }

    /// Returns the packs and the store in which each lies.
    pub fn packs(&self) -> Vec<(&Store, PackId)> {
        let whole = self.whole.iter().map(|id| (self.store, *id));
        let written = self.gathered.iter().chain(&self.pieces);
        let written =
            written.flat_map(|(store, _)| store.packs().into_iter().map(move |id| (store, id)));
        whole.chain(written).filter(|(_, id)| !self.replaced.contains(id)).collect()
    }

    /// Copies a selected pack into packs of about `pack_bytes` each, and selects these in its place.
    /// Returns them and their paths. The same pack and size give the same packs.
    ///
    /// # Errors
    /// [`StoreError`] if the pack cannot be read, or the others cannot be written.
    pub fn split(
        &mut self,
        id: &PackId,
        pack_bytes: u64,
        gather: Gather<'_>,
        observer: &dyn Observer,
    ) -> Result<Vec<(PackId, PathBuf)>, StoreError> {
        if self.pieces.is_none() {
            self.pieces = Some(scratch_store(gather, observer)?);
        }
        let source = self.packs().into_iter().find(|(_, pack)| pack == id);
        let pack = source.map_or(self.store, |(store, _)| store).open_pack(id)?;
        let (pieces, _) = self.pieces.as_ref().expect("it was just made");
        self.replaced.insert(*id);
        let mut variation = 0;
        let packs = loop {
            let writer = ObjectWriter::new(pieces, gather.level, 1)?.with_variation(variation);
            let writer = writer.with_pack_bytes(pack_bytes);
            let mut claim = |object: &PackedObject| Ok(writer.claim_anew(object));
            copy_pack(&writer, &pack, FrameMode::Keep, &mut claim)?;
            let (_, packs) = writer.finish_with_packs()?;
            if packs.iter().all(|id| gather.may_use(id)) {
                break packs;
            }
            self.replaced.extend(packs);
            variation += 1;
        };
        // A pack that cannot be divided may get its own name again.
        self.replaced.retain(|id| !packs.contains(id));
        if self.replaced.contains(id) {
            self.free(id)?;
        }
        Ok(packs.into_iter().map(|id| (id, pieces.pack_path(&id))).collect())
    }

    /// Frees the disk space of a pack that [`Self::split`] has written. Its outline stays readable.
    ///
    /// # Errors
    /// [`StoreError`] if the pack cannot be read or replaced by its outline.
    pub fn free(&self, id: &PackId) -> Result<(), StoreError> {
        match &self.pieces {
            Some((pieces, _)) => pieces.evict_pack(id).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the packs and their paths.
    pub fn paths(&self) -> Vec<(PackId, PathBuf)> {
        self.packs().into_iter().map(|(store, id)| (id, store.pack_path(&id))).collect()
    }

    /// Returns the number of packs that are sent unchanged.
    pub fn whole(&self) -> u64 {
        self.whole.len() as u64
    }
}

/// Shadows a copy of an object that an error reports as damaged, for this open store only. Returns true
/// if another copy is not shadowed.
fn has_other_copy(store: &Store, error: &StoreError) -> Result<bool, StoreError> {
    let StoreError::Damaged { wanted, .. } = error else { return Ok(false) };
    store.shadow_in_memory(error);
    Ok(store.locate_unshadowed(wanted)?.is_some())
}

/// The set of objects to send.
struct SendSet {
    marks: Marks,
    /// Maps the number of each pack with wanted objects to the count of these objects.
    by_pack: BTreeMap<u32, u64>,
    objects: u64,
    raw_bytes: u64,
    lost: u64,
}

impl SendSet {
    /// Finds the objects with marks for the present index. Returns `None` if the index grew: a read
    /// of a partial clone adds stubs of other packs, when the remote has deleted the pack.
    fn find(
        store: &Store,
        commits: &[CommitId],
        has: &Has<'_>,
        observer: &dyn Observer,
    ) -> Result<Option<Self>, ReachError> {
        let mut has_grown = false;
        let (marks, by_pack) = (Marks::new(store), BTreeMap::new());
        let mut wanted = Self { marks, by_pack, objects: 0, raw_bytes: 0, lost: 0 };
        // Objects that the walk passes through although they are not wanted.
        let passed = Marks::new(store);
        let mut enter = |id: &ObjectId, place: &ObjectLocation| {
            let mut holding = has(id)?;
            // The link of an ancestor is enough.
            if place.kind == ObjectKind::Commit && holding == PeerHas::Nothing {
                let ancestor = CommitId::from_object(*id);
                let has_link = || has(&ancestor.link());
                if !commits.contains(&ancestor) && has_link()? == PeerHas::All {
                    return Ok(false);
                }
            }
            // The peer needs no link of a commit that it has.
            if place.kind == ObjectKind::Link && holding == PeerHas::Nothing {
                holding = has(&CommitId::of_link(*id).object())?;
                if holding == PeerHas::Lost {
                    holding = PeerHas::Nothing;
                }
            }
            match holding {
                PeerHas::All => return Ok(false),
                PeerHas::Alone => return passed.mark(id),
                PeerHas::Lost | PeerHas::Nothing => {}
            }
            let new = wanted.marks.mark_indexed(id)?;
            has_grown |= new.is_none();
            let new = new.unwrap_or(true);
            if new {
                wanted.lost += u64::from(holding == PeerHas::Lost);
                *wanted.by_pack.entry(place.pack).or_default() += 1;
                wanted.objects += 1;
                wanted.raw_bytes += u64::from(place.bytes);
            }
            Ok(new)
        };
        reach::visit(store, commits, &mut enter, observer)?;
        Ok((!has_grown).then_some(wanted))
    }

    /// Hashes the packs with wanted objects that this machine has not hashed yet, because the
    /// receiver may rely on them. Objects that are not wanted may be wrong.
    fn prove(&self, store: &Store, observer: &dyn Observer) -> Result<(), ReachError> {
        let packs = self.by_pack.keys().filter_map(|number| store.pack_id(*number)).collect();
        let mut check = |id: &PackId, error| match error {
            StoreError::Damaged { .. } => self.check_wanted(store, id),
            error => Err(error),
        };
        store.prove_packs(packs, &mut check, observer)?;
        Ok(observer.check()?)
    }

    /// Checks the objects that are wanted from a pack against their ids.
    fn check_wanted(&self, store: &Store, pack: &PackId) -> Result<(), StoreError> {
        for object in store.open_pack(pack)?.objects()? {
            if self.is_wanted(store, &object.id, *pack)?
                && let Some(place) = store.locate(&object.id)?
            {
                store.object_at(&object.id, &place)?;
            }
        }
        Ok(())
    }

    /// Returns true if an object is wanted from this pack. Other packs may contain it,
    /// too.
    fn is_wanted(&self, store: &Store, id: &ObjectId, pack: PackId) -> Result<bool, StoreError> {
        if !self.marks.is_marked(id)? {
            return Ok(false);
        }
        let place = store.locate(id)?;
        Ok(place.is_some_and(|place| store.pack_id(place.pack) == Some(pack)))
    }

    /// Announces the frames of a pack that will be read.
    fn announce(&self, store: &Store, pack: &PackFile) -> Result<(), StoreError> {
        if !store.may_fetch() {
            return Ok(());
        }
        let mut places = Vec::new();
        for object in pack.objects()? {
            if self.is_wanted(store, &object.id, pack.id())? {
                places.extend(store.locate(&object.id)?);
            }
        }
        places.sort_unstable();
        store.prefetch(&places);
        Ok(())
    }

    /// Returns true if a pack that is wanted as a whole is stored locally. Fetches its missing
    /// frames first.
    fn made_whole(&self, store: &Store, pack: &PackId) -> Result<bool, StoreError> {
        match store.is_partial(pack).then(|| store.fetch_pack(pack)) {
            None | Some(Ok(())) => Ok(true),
            // If the pack cannot be completed in this store, its frames are copied instead.
            Some(Err(StoreError::Io(_) | StoreError::Absent { .. })) => Ok(false),
            Some(Err(error)) => Err(error),
        }
    }

    /// Returns the packs that are sent unchanged, and the packs of which a part is
    /// copied.
    fn packs(
        &self,
        store: &Store,
        gather: Gather<'_>,
        observer: &dyn Observer,
    ) -> Result<(Vec<PackId>, Vec<PackId>), ReachError> {
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for (number, expected) in &self.by_pack {
            observer.check()?;
            let id = store.pack_id(*number).expect("a place has a pack of this store");
            let pack = store.open_pack(&id)?;
            let (mut all, mut found) = (true, 0);
            for object in pack.objects()? {
                let is_wanted = self.is_wanted(store, &object.id, id)?;
                all &= is_wanted;
                found += u64::from(is_wanted);
            }
            // The file is not the pack that was indexed. Without this check, the objects
            // that it lacks would silently be left out.
            if found < *expected {
                let source = FormatError::Invalid { what: "object table", at: 0 };
                return Err(StoreError::Format { pack: id, source }.into());
            }
            let goes_whole = all || gather.lost.contains(&id);
            if goes_whole
                && gather.may_use(&id)
                && !store.is_shadowed(&id)
                && self.made_whole(store, &id)?
                && !store.is_shadowed(&id)
            {
                whole.push(id);
            } else {
                parts.push(id);
            }
        }
        // Pack numbers change each time the store is opened. Sorting by id makes repeated
        // selections produce identical packs.
        whole.sort_unstable();
        parts.sort_unstable();
        Ok((whole, parts))
    }
}

/// Creates a store in a temporary folder.
fn scratch_store(
    gather: Gather<'_>,
    observer: &dyn Observer,
) -> Result<(Store, Scratch), StoreError> {
    let scratch = Scratch::create(gather.scratch)?;
    let disk = Disk::scratch();
    Store::create(scratch.path(), &disk)?;
    Ok((Store::open(scratch.path(), disk, observer)?, scratch))
}

/// Copies the wanted objects of some packs into new packs. Varies the names of the packs until the peer
/// may use all of them.
fn gather_parts(
    store: &Store,
    wanted: &SendSet,
    parts: &[PackId],
    gather: Gather<'_>,
    observer: &dyn Observer,
) -> Result<(Store, Scratch), ReachError> {
    let mut variation = 0;
    loop {
        let (gathered, scratch) = scratch_store(gather, observer)?;
        let bytes =
            |id: &PackId| fs_err::metadata(store.pack_path(id)).map_or(0, |meta| meta.len());
        observer.phase(Phase::Bundle, Some(parts.iter().map(bytes).sum()));
        let writer = ObjectWriter::new(&gathered, gather.level, 1)?.with_variation(variation);
        for id in parts {
            let pack = store.open_pack(id)?;
            let mut choose = |object: &PackedObject| {
                Ok(wanted.is_wanted(store, &object.id, *id)? && writer.claim_anew(object))
            };
            wanted.announce(store, &pack)?;
            copy_pack(&writer, &pack, FrameMode::Keep, &mut choose)?;
            observer.advance(pack.file_bytes(), 0);
            observer.check()?;
        }
        writer.finish()?;
        if gathered.packs().iter().all(|id| gather.may_use(id)) {
            return Ok((gathered, scratch));
        }
        variation += 1;
    }
}
