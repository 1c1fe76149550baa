//! Decides what happens to each pack.

use std::collections::BTreeSet;

use crate::{
    base::{
        id::{ObjectId, PackId},
        observe::{Observer, Phase},
    },
    format::pack::{ObjectKind, PackedObject},
    ops::gc::{Copies, GcOptions, GcOutcome, Live, PackUse, choose_rewritten, is_young},
    ops::removal_error::RemovalError,
    repo::Repo,
    store::{
        ObjectWriter, Store, StoreError,
        copy::{FrameMode, copy_pack},
    },
};

/// What happens to a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays. These dead objects refer to others.
    Stays(BTreeSet<ObjectId>),
    /// It is deleted after its live objects were copied.
    Rewritten,
    /// It is deleted.
    Deleted,
}

impl Fate {
    fn stays() -> Self {
        Self::Stays(BTreeSet::new())
    }
}

/// Number of objects that are compared with the live ones at a time, in the order of the index.
const COMPARED: usize = 1 << 20;

/// An object of a pack, before it is compared with the live ones.
#[derive(Debug)]
struct Compared {
    id: ObjectId,
    /// Number of the pack in the plan.
    pack: u32,
    bytes: u32,
    is_blob: bool,
}

/// A pack, and what happens to it.
#[derive(Debug)]
pub(super) struct PackPlan {
    pub(super) id: PackId,
    pub(super) fate: Fate,
    usage: PackUse,
    /// Number of objects.
    objects: u64,
    /// Number of dead objects.
    dead: u64,
    /// Number of dead objects that were purged.
    purged: u64,
}

/// What a collection does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// All packs, sorted by id.
    pub(super) packs: Vec<PackPlan>,
    /// The packs with the live objects of rewritten packs.
    pub(super) copies: Vec<PackId>,
    outcome: GcOutcome,
}

impl Plan {
    /// Compares all packs with the live objects.
    pub(super) fn make(
        store: &Store,
        live: &Live<'_>,
        options: &GcOptions,
        copies: Copies,
        observer: &dyn Observer,
    ) -> Result<Self, RemovalError> {
        let mut plan = Self::default();
        let mut compared = Vec::new();
        for (id, number) in store.packs().into_iter().zip(0..) {
            observer.check()?;
            let file = store.open_pack(&id)?;
            let objects = file.objects()?;
            let bytes = objects.iter().map(|object| u64::from(object.bytes)).sum();
            let usage = PackUse { file_bytes: file.file_bytes(), bytes, ..PackUse::default() };
            plan.packs.push(PackPlan {
                id,
                fate: Fate::stays(),
                usage,
                objects: objects.len() as u64,
                dead: 0,
                purged: purged_in(store, &id, live)?,
            });
            compared.extend(objects.into_iter().map(|object| Compared {
                id: object.id,
                pack: number,
                bytes: object.bytes,
                is_blob: object.kind == ObjectKind::Blob,
            }));
            if compared.len() >= COMPARED {
                plan.count_dead(&mut compared, live)?;
            }
        }
        plan.count_dead(&mut compared, live)?;
        for pack in plan.packs.iter_mut().filter(|pack| pack.dead == pack.objects) {
            if pack.purged > 0 || !is_young(store, &pack.id, options) {
                pack.fate = Fate::Deleted;
            }
        }
        plan.choose(store, options, copies);
        let sizes = plan.packs.iter().map(|pack| pack.usage.file_bytes);
        let needed_bytes = match copies {
            Copies::Wanted => 0,
            Copies::None => plan.needed_bytes(),
        };
        plan.outcome = GcOutcome {
            needed_bytes,
            packs: plan.packs.len() as u64,
            bytes: sizes.sum(),
            dead_objects: plan.packs.iter().map(|pack| pack.dead).sum(),
            written_bytes: plan.rewritten().map(|pack| pack.usage.live_file_bytes()).sum(),
            ..GcOutcome::default()
        };
        Ok(plan)
    }

    /// Counts those of the objects that are dead, and clears the list.
    fn count_dead(
        &mut self,
        objects: &mut Vec<Compared>,
        live: &Live<'_>,
    ) -> Result<(), StoreError> {
        objects.sort_unstable_by_key(|object| object.id);
        for object in objects.drain(..) {
            if live.contains(&object.id)? {
                continue;
            }
            let pack = &mut self.packs[object.pack as usize];
            pack.dead += 1;
            pack.usage.dead_bytes += u64::from(object.bytes);
            if let Fate::Stays(referring) = &mut pack.fate
                && !object.is_blob
            {
                referring.insert(object.id);
            }
        }
        Ok(())
    }

    /// Chooses packs to rewrite: those with purged objects, those with much garbage, and those with
    /// garbage that would become incomplete. A dead tree that stays must have its contents, because a
    /// later commit may find the tree stored.
    fn choose(&mut self, store: &Store, options: &GcOptions, copies: Copies) {
        for pack in &mut self.packs {
            let can_rewrite = copies == Copies::Wanted && !store.is_damaged(&pack.id);
            if pack.purged > 0 && pack.fate != Fate::Deleted && can_rewrite {
                pack.fate = Fate::Rewritten;
            }
        }
        let frees_any = self
            .packs
            .iter()
            .any(|pack| !matches!(pack.fate, Fate::Stays(_)) || pack.usage.is_worth_rewriting());
        if !frees_any {
            return;
        }
        let candidates = self
            .packs
            .iter_mut()
            .filter(|pack| matches!(pack.fate, Fate::Stays(_)) && pack.dead > 0)
            .filter(|pack| pack.usage.is_worth_rewriting() || pack.fate != Fate::stays())
            .filter(|pack| !is_young(store, &pack.id, options) && !store.is_damaged(&pack.id))
            .map(|pack| (pack.usage, pack));
        for (_, pack) in choose_rewritten(candidates.collect(), options.max_rewritten_bytes) {
            pack.fate = Fate::Rewritten;
        }
    }

    /// Returns the bytes of the packs that would replace those with much garbage.
    fn needed_bytes(&self) -> u64 {
        let is_left = |pack: &&PackPlan| {
            let is_wanted = pack.purged > 0 || pack.usage.is_worth_rewriting();
            matches!(pack.fate, Fate::Stays(_)) && pack.dead > 0 && is_wanted
        };
        self.packs.iter().filter(is_left).map(|pack| pack.usage.live_file_bytes()).sum()
    }

    /// Marks the dead objects that stay and refer to others, with everything that they refer to.
    /// Returns true if that changes the plan.
    pub(super) fn keep_complete(
        &self,
        store: &Store,
        live: &Live<'_>,
    ) -> Result<bool, RemovalError> {
        if self.frees_nothing() {
            return Ok(false);
        }
        let mut has_changed = false;
        for pack in &self.packs {
            let Fate::Stays(dead) = &pack.fate else { continue };
            if dead.is_empty() {
                continue;
            }
            for object in store.open_pack(&pack.id)?.objects()? {
                if dead.contains(&object.id) {
                    has_changed |= live.attempt(&object.id, object.kind)?;
                }
            }
        }
        Ok(has_changed)
    }

    fn rewritten(&self) -> impl Iterator<Item = &PackPlan> {
        self.packs.iter().filter(|pack| pack.fate == Fate::Rewritten)
    }

    /// Returns true if no pack is deleted.
    pub(super) fn frees_nothing(&self) -> bool {
        self.packs.iter().all(|pack| matches!(pack.fate, Fate::Stays(_)))
    }

    /// Copies the live objects of the packs that are rewritten, each once.
    pub(super) fn copy(
        &mut self,
        repo: &Repo,
        live: &Live<'_>,
        observer: &dyn Observer,
    ) -> Result<(), RemovalError> {
        let store = repo.store();
        let rewritten = || self.rewritten();
        if rewritten().next().is_none() {
            return Ok(());
        }
        observer.phase(Phase::Compact, Some(rewritten().map(|pack| pack.usage.file_bytes).sum()));
        let writer = ObjectWriter::new(store, repo.config().compression_level, 1)?.of_copies();
        for pack in rewritten() {
            observer.check()?;
            let file = store.open_pack(&pack.id)?;
            let mut wanted = |object: &PackedObject| -> Result<bool, StoreError> {
                Ok(live.contains(&object.id)? && writer.claim_anew(object))
            };
            copy_pack(&writer, &file, FrameMode::Refill, &mut wanted)?;
            observer.advance(pack.usage.file_bytes, 0);
        }
        let (added, copies) = writer.finish_with_packs()?;
        self.copies = copies;
        self.outcome.written_bytes = added.stored_bytes;
        Ok(())
    }

    /// Keeps all packs that have a newly live object: another copy may be damaged, or be a chunk list
    /// of the same id.
    pub(super) fn keep_live(
        &mut self,
        store: &Store,
        id: &ObjectId,
        live: &Live<'_>,
    ) -> Result<(), RemovalError> {
        for place in store.places(id)? {
            let pack = store.pack_id(place.pack);
            let Some(at) = pack.and_then(|pack| self.position(&pack)) else { continue };
            let plan = &mut self.packs[at];
            match &mut plan.fate {
                Fate::Stays(dead) => drop(dead.remove(id)),
                Fate::Rewritten | Fate::Deleted => {
                    plan.fate = Fate::Stays(dead_of(store, &plan.id, live)?);
                }
            }
        }
        Ok(())
    }

    /// Keeps the packs that were to be rewritten, because another process uses packs.
    pub(super) fn keep_rewritten(
        &mut self,
        store: &Store,
        live: &Live<'_>,
    ) -> Result<(), RemovalError> {
        for pack in self.packs.iter_mut().filter(|pack| pack.fate == Fate::Rewritten) {
            pack.fate = Fate::Stays(dead_of(store, &pack.id, live)?);
            self.outcome.is_busy = true;
        }
        Ok(())
    }

    /// Returns the position of a pack that existed when the plan was made.
    fn position(&self, id: &PackId) -> Option<usize> {
        self.packs.binary_search_by(|pack| pack.id.cmp(id)).ok()
    }

    /// Returns true if the pack existed when the plan was made.
    pub(super) fn knows(&self, id: &PackId) -> bool {
        self.position(id).is_some()
    }

    /// Returns the packs to delete.
    pub(super) fn deleted(&self) -> Vec<PackId> {
        let deleted = self.packs.iter().filter(|pack| !matches!(pack.fate, Fate::Stays(_)));
        deleted.map(|pack| pack.id).collect()
    }

    /// Returns what the collection does, or did.
    pub(super) fn outcome(&self) -> GcOutcome {
        let mut outcome = self.outcome.clone();
        for pack in &self.packs {
            match pack.fate {
                Fate::Stays(_) => {
                    outcome.left_bytes += pack.usage.dead_bytes;
                    outcome.left_purged_objects += pack.purged;
                }
                Fate::Rewritten | Fate::Deleted => {
                    outcome.purged_objects += pack.purged;
                    outcome.deleted_packs += 1;
                    outcome.deleted_bytes += pack.usage.file_bytes;
                    outcome.rewritten_packs += u64::from(pack.fate == Fate::Rewritten);
                }
            }
        }
        outcome
    }
}

/// Returns the number of objects of a pack that were purged and that no ref reaches.
pub(super) fn purged_in(store: &Store, id: &PackId, live: &Live<'_>) -> Result<u64, RemovalError> {
    let mut purged = 0;
    if live.purges_any() {
        for object in store.open_pack(id)?.objects()? {
            purged += u64::from(live.is_purged(&object.id)?);
        }
    }
    Ok(purged)
}

/// Returns the dead objects of a pack that refer to others.
pub(super) fn dead_of(
    store: &Store,
    id: &PackId,
    live: &Live<'_>,
) -> Result<BTreeSet<ObjectId>, RemovalError> {
    let mut dead = BTreeSet::new();
    for object in store.open_pack(id)?.objects()? {
        if object.kind != ObjectKind::Blob && !live.contains(&object.id)? {
            dead.insert(object.id);
        }
    }
    Ok(dead)
}
