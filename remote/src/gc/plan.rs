//! Decides what a collection shadows, keeps and deletes.

use std::collections::BTreeSet;

use snap_core::{
    base::{id::PackId, observe::Observer},
    format::{
        gc_table::{GcTable, IndexName},
        shadow::{Reason, ShadowTable, ShadowedPart},
    },
    ops::gc::Live,
    store::Store,
};

use super::{
    RemoteGcOptions, RemoteGcOutcome, StoredPacks,
    repack::{Copies, RepackCandidate, choose, purged_in},
};
use crate::peer::{
    PackIn, RemoteError, RemoteStore,
    bucket::{BucketStore, index::FAN},
    gc_view::{GcView, IndexedFiles, index_name},
    known::Known,
};

/// The dead objects of a pack.
struct Dead {
    /// The objects on which nothing may rely; `None` if there are none.
    part: Option<ShadowedPart>,
    objects: u64,
    /// Their bytes, before compression.
    bytes: u64,
}

impl Dead {
    /// Compares a pack with the live objects. A pack that no index file lists is dead.
    fn of(
        stubs: &Store,
        pack: &PackId,
        live: &Live<'_>,
        indexed: &BTreeSet<PackId>,
    ) -> Result<Self, RemoteError> {
        if !indexed.contains(pack) {
            return Ok(Self { part: Some(ShadowedPart::Whole), objects: 0, bytes: 0 });
        }
        let (mut dead, mut bytes) = (BTreeSet::new(), 0);
        let objects = stubs.open_pack(pack)?.objects()?;
        for object in &objects {
            if !live.contains(&object.id)? {
                bytes += u64::from(object.bytes);
                dead.insert(object.id);
            }
        }
        let count = dead.len() as u64;
        let part = match dead.len() {
            0 => None,
            all if all == objects.len() => Some(ShadowedPart::Whole),
            _ => Some(ShadowedPart::Objects(dead)),
        };
        Ok(Self { part, objects: count, bytes })
    }

    /// Returns the ids of all objects of a dead pack, so that the pack is not deleted.
    fn objects_of(&self, remote: &RemoteStore, pack: &PackId) -> Result<ShadowedPart, RemoteError> {
        let objects = remote.mirror().store().open_pack(pack)?.objects()?;
        Ok(ShadowedPart::Objects(objects.into_iter().map(|object| object.id).collect()))
    }

    fn is_whole(&self) -> bool {
        self.part == Some(ShadowedPart::Whole)
    }
}

/// Returns the packs that the index files list, except those that are going.
fn indexed_packs(files: &IndexedFiles, table: &GcTable) -> BTreeSet<PackId> {
    let packs = files.values().flat_map(|file| &file.packs).copied();
    packs.filter(|id| !table.going.contains(id)).collect()
}

impl RemoteGcOutcome {
    /// Counts packs that are rewritten. Their dead objects counted as staying.
    fn add_rewritten(&mut self, packs: &[RepackCandidate]) {
        for RepackCandidate { usage, dead_objects, purged, .. } in packs {
            self.rewritten_packs += 1;
            self.purged_objects += purged;
            self.left_purged_objects -= purged;
            self.written_bytes += usage.live_file_bytes();
            self.deleted_packs += 1;
            self.deleted_bytes += usage.file_bytes;
            self.left_objects -= dead_objects;
            self.left_bytes -= usage.dead_bytes;
        }
    }
}

/// What the first part of a collection shadows.
pub(super) struct FencePlan {
    /// The table of the next epoch.
    pub(super) table: GcTable,
    /// Packs that an earlier collection published as going, and that still exist.
    pub(super) leftovers: Vec<PackId>,
    outcome: RemoteGcOutcome,
}

impl FencePlan {
    /// Shadows everything that is dead, in all packs.
    pub(super) fn make(
        remote: &RemoteStore,
        live: &Live<'_>,
        present: &StoredPacks,
        options: &RemoteGcOptions,
        observer: &dyn Observer,
    ) -> Result<Self, RemoteError> {
        let (files, stubs) = (remote.known().listed_files(), remote.mirror().store());
        let mut table = remote.mirror().gc().map(|view| view.table.clone()).unwrap_or_default();
        let indexed = indexed_packs(&files, &table);
        let mut outcome = RemoteGcOutcome::default();
        let (mut shadows, mut candidates) = (ShadowTable::default(), Vec::new());
        for (pack, stored) in present.iter().filter(|(pack, _)| !table.going.contains(pack)) {
            observer.check()?;
            outcome.young_packs += u64::from(stored.is_young);
            // A push may be about to list the pack.
            if stored.is_young && !indexed.contains(pack) {
                continue;
            }
            let dead = Dead::of(stubs, pack, live, &indexed)?;
            match dead.is_whole() {
                // It is incomplete, since its objects would be live otherwise.
                true if stored.is_young => {
                    shadows.add(*pack, Reason::Dead, dead.objects_of(remote, pack)?);
                    continue;
                }
                true => {
                    outcome.deleted_packs += 1;
                    outcome.deleted_bytes += stored.bytes;
                    outcome.purged_objects +=
                        purged_in(stubs, pack, &ShadowedPart::Whole, &options.purged)?;
                }
                false => {
                    outcome.left_objects += dead.objects;
                    outcome.left_bytes += dead.bytes;
                }
            }
            if let Some(part) = dead.part {
                if part != ShadowedPart::Whole {
                    let purged = purged_in(stubs, pack, &part, &options.purged)?;
                    outcome.left_purged_objects += purged;
                }
                if part != ShadowedPart::Whole && !stored.is_young {
                    let found = RepackCandidate::of(stubs, *pack, &part, &options.purged)?;
                    candidates.extend(found);
                }
                shadows.add(*pack, Reason::Dead, part);
            }
        }
        outcome.add_rewritten(&choose(candidates, options.max_rewritten_bytes));
        let leftovers = present.keys().filter(|pack| table.going.contains(pack));
        let leftovers: Vec<PackId> = leftovers.copied().collect();
        let known = std::mem::replace(&mut table.forgotten, live.linked()?);
        outcome.forgotten_commits = table.forgotten.difference(&known).count() as u64;
        table.shadows = shadows;
        table.named = files.keys().filter_map(|name| index_name(name)).collect();
        Ok(Self { table, leftovers, outcome })
    }

    /// Returns the outcome of a collection that only deletes what an earlier one has published.
    pub(super) fn leftovers_outcome(&self, present: &StoredPacks) -> RemoteGcOutcome {
        let kept = RemoteGcOutcome {
            is_early: true,
            young_packs: self.outcome.young_packs,
            ..RemoteGcOutcome::default()
        };
        with_leftovers(kept, &self.leftovers, present)
    }

    /// Returns true if no pack can be deleted.
    pub(super) fn frees_nothing(&self) -> bool {
        self.outcome.deleted_packs == 0
    }

    /// Returns what the collection is expected to do.
    pub(super) fn outcome(&self, present: &StoredPacks) -> RemoteGcOutcome {
        with_leftovers(self.outcome.clone(), &self.leftovers, present)
    }
}

fn with_leftovers(
    outcome: RemoteGcOutcome,
    leftovers: &[PackId],
    present: &StoredPacks,
) -> RemoteGcOutcome {
    let bytes = leftovers.iter().filter_map(|pack| Some(present.get(pack)?.bytes)).sum::<u64>();
    RemoteGcOutcome {
        packs: present.len() as u64,
        bytes: present.values().map(|stored| stored.bytes).sum(),
        deleted_packs: outcome.deleted_packs + leftovers.len() as u64,
        deleted_bytes: outcome.deleted_bytes + bytes,
        ..outcome
    }
}

/// What the second part of a collection keeps and deletes.
pub(super) struct SweepPlan {
    /// The published table, except for the index files that count.
    table: GcTable,
    /// Index files that count and stay.
    kept: BTreeSet<IndexName>,
    /// Packs of index files that the collector writes again under the new epoch.
    relisted: BTreeSet<PackId>,
    /// True if no index file of the new epoch would exist otherwise.
    needs_file: bool,
    /// Packs to delete once copies of their objects count.
    pub(super) repacked: Vec<PackId>,
    /// Packs that count and stay.
    pub(super) staying: BTreeSet<PackId>,
    going: Vec<PackId>,
    leftovers: Vec<PackId>,
    outcome: RemoteGcOutcome,
}

impl SweepPlan {
    /// Withdraws the shadows of live objects. Packs go if they were shadowed as a whole before the
    /// refs were touched, or if much of them was and is dead still.
    pub(super) fn make(
        remote: &RemoteStore,
        view: &GcView,
        live: &Live<'_>,
        present: &StoredPacks,
        options: &RemoteGcOptions,
        observer: &dyn Observer,
    ) -> Result<Self, RemoteError> {
        let (fenced, stubs) = (&view.table, remote.mirror().store());
        let files = remote.known().listed_files();
        let indexed = indexed_packs(&files, fenced);
        let mut table = GcTable { shadows: ShadowTable::default(), ..fenced.clone() };
        // A ref may point at one of them by now. Without its link, no ref reaches it any more.
        table.forgotten = live.linked()?;
        let is_counted = |(name, _): &(&String, _)| remote.mirror().counts(name);
        let counted = files.iter().filter(is_counted).flat_map(|(_, file)| &file.packs);
        let counted: BTreeSet<PackId> = counted.copied().collect();
        let may_repack = |pack: &PackId| {
            counted.contains(pack) && present.get(pack).is_some_and(|stored| !stored.is_young)
        };
        let (mut going, mut outcome) = (Vec::new(), RemoteGcOutcome::default());
        let mut candidates = Vec::new();
        for (pack, _, part) in fenced.shadows.entries() {
            observer.check()?;
            let dead = Dead::of(stubs, pack, live, &indexed)?;
            if dead.is_whole() && *part == ShadowedPart::Whole {
                outcome.deleted_packs += u64::from(present.contains_key(pack));
                outcome.deleted_bytes += present.get(pack).map_or(0, |stored| stored.bytes);
                outcome.purged_objects += purged_in(stubs, pack, part, &options.purged)?;
                going.push(*pack);
                continue;
            }
            outcome.left_objects += dead.objects;
            outcome.left_bytes += dead.bytes;
            if let Some(dead) = dead.part.and_then(|dead| common(dead, part)) {
                outcome.left_purged_objects += purged_in(stubs, pack, &dead, &options.purged)?;
                // Copies count at once. So they have nothing that the state still shadows.
                if dead == *part && may_repack(pack) {
                    let found = RepackCandidate::of(stubs, *pack, &dead, &options.purged)?;
                    candidates.extend(found);
                }
                table.shadows.add(*pack, Reason::Dead, dead);
            }
        }
        let chosen = choose(candidates, options.max_rewritten_bytes);
        outcome.add_rewritten(&chosen);
        let repacked: Vec<PackId> = chosen.iter().map(|chosen| chosen.pack).collect();
        for pack in &repacked {
            table.shadows.remove(pack, Reason::Dead);
        }
        // An index file that came after the fence counts from now on if anything in it is live.
        // Then what is dead in its packs must be shadowed.
        let is_late = |pack: &&PackId| !counted.contains(pack) && !fenced.shadows.has_any(pack);
        for pack in indexed.iter().filter(is_late) {
            if let Some(part) = Dead::of(stubs, pack, live, &indexed)?.part {
                table.shadows.add(*pack, Reason::Dead, part);
            }
        }
        let leftovers = present.keys().filter(|pack| fenced.going.contains(pack));
        let leftovers: Vec<PackId> = leftovers.copied().collect();
        going.extend(&repacked);
        table.going.extend(&going);
        let stays = |pack: &PackId| present.contains_key(pack) && !table.going.contains(pack);
        let staying = counted.into_iter().filter(stays).collect();
        let mut plan = Self {
            table,
            kept: BTreeSet::new(),
            relisted: BTreeSet::new(),
            needs_file: false,
            repacked,
            staying,
            going,
            leftovers,
            outcome,
        };
        plan.choose_files(remote, &files, view.state.epoch, live)?;
        Ok(plan)
    }

    /// Decides which index files stay.
    fn choose_files(
        &mut self,
        remote: &RemoteStore,
        files: &IndexedFiles,
        epoch: u64,
        live: &Live<'_>,
    ) -> Result<(), RemoteError> {
        let stubs = remote.mirror().store();
        let (mut has_newest, mut smallest) = (false, None::<(usize, IndexName)>);
        let mut small = Vec::new();
        for (name, file) in files {
            let Some(index) = index_name(name) else { continue };
            let staying: Vec<PackId> =
                file.packs.iter().filter(|id| !self.table.going.contains(id)).copied().collect();
            if !remote.mirror().counts(name) {
                // What the collector writes counts at once, before the shadows of this file do. So
                // it is named, not rewritten.
                if has_live(stubs, &staying, live)? {
                    self.kept.insert(index);
                }
                continue;
            }
            if file.epoch == epoch {
                has_newest = true;
                self.kept.insert(index);
                continue;
            }
            let is_shadowed = |id: &PackId| self.table.shadows.has_any(id);
            if staying.len() < file.packs.len() || staying.iter().any(is_shadowed) {
                self.relisted.extend(&staying);
                continue;
            }
            if smallest.is_none_or(|(packs, _)| staying.len() < packs) {
                smallest = Some((staying.len(), index));
            }
            if remote.known().is_small_index_file(name) {
                small.push((index, staying));
            }
            self.kept.insert(index);
        }
        if small.len() >= FAN {
            for (index, packs) in small {
                self.kept.remove(&index);
                self.relisted.extend(packs);
            }
        }
        if has_newest || !self.relisted.is_empty() {
            return Ok(());
        }
        self.needs_file = true;
        if let Some((_, index)) = smallest {
            self.kept.remove(&index);
            let file = files.iter().find(|(name, _)| index_name(name) == Some(index));
            self.relisted.extend(file.into_iter().flat_map(|(_, file)| &file.packs));
        }
        Ok(())
    }

    /// Writes the index files of the new epoch. Returns the names of all index files that count.
    /// They count at once, so they list only copies, and packs of files that count already.
    pub(super) async fn write_index(
        &self,
        bucket: &BucketStore,
        known: &Known,
        copies: Option<&Copies>,
    ) -> Result<BTreeSet<IndexName>, RemoteError> {
        let mut named = self.kept.clone();
        let relisted = self.relisted.iter().map(|pack| (known.mirror.store(), *pack));
        let copies = copies.into_iter().flat_map(Copies::packs);
        let packs: Vec<PackIn<'_>> = relisted.chain(copies).collect();
        if !packs.is_empty() || self.needs_file {
            let written = bucket.index(known).write_merged(packs).await?;
            named.extend(written.iter().filter_map(|name| index_name(name)));
        }
        Ok(named)
    }

    /// Returns what the collection does.
    pub(super) fn outcome(&self, present: &StoredPacks) -> RemoteGcOutcome {
        with_leftovers(self.outcome.clone(), &self.leftovers, present)
    }

    /// Returns the table to publish, except for the index files that count.
    pub(super) fn table(&self) -> &GcTable {
        &self.table
    }

    /// Returns the packs to delete, and the table to publish before.
    pub(super) fn into_table(mut self, named: BTreeSet<IndexName>) -> (Vec<PackId>, GcTable) {
        self.going.append(&mut self.leftovers);
        self.table.named = named;
        (self.going, self.table)
    }
}

/// Returns true if any object of packs is live.
fn has_live(stubs: &Store, packs: &[PackId], live: &Live<'_>) -> Result<bool, RemoteError> {
    for pack in packs {
        for object in stubs.open_pack(pack)?.objects()? {
            if live.contains(&object.id)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns what two parts of a pack have in common.
fn common(a: ShadowedPart, b: &ShadowedPart) -> Option<ShadowedPart> {
    match (a, b) {
        (ShadowedPart::Whole, b) => Some(b.clone()),
        (a, ShadowedPart::Whole) => Some(a),
        (ShadowedPart::Objects(a), ShadowedPart::Objects(b)) => {
            let both: BTreeSet<_> = a.intersection(b).copied().collect();
            (!both.is_empty()).then_some(ShadowedPart::Objects(both))
        }
    }
}
