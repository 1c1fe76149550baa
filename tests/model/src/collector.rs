//! A client that deletes what no ref reaches, or that publishes a purge.
//!
//! A collection has two parts. The first raises the epoch and shadows what is dead. The second
//! touches all refs and then sweeps what is still dead of what was shadowed. A collector that
//! finds that another one did the first part resumes with the second.

use crate::{
    actor::{Actor, Move},
    guard::{Guard, Guards},
    world::{Files, Gc, Objects, Packs, REFS, Ref, State, World, bits64, bits128},
    writer::new_pack,
};

/// A collection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Collector {
    /// True if packs with few live objects are written again.
    pub(crate) repacks: bool,
    pub(crate) purge: Option<Purge>,
    pub(crate) at: CollectorStep,
    pub(crate) gc: u32,
    /// The refs as they were read last.
    pub(crate) refs: [Ref; REFS],
    /// The refs whose names were listed.
    pub(crate) names: u8,
    /// The ref that is touched now.
    pub(crate) next: usize,
    pub(crate) files: Files,
    pub(crate) packs: Packs,
    /// Packs of which only copies of the live objects stay.
    pub(crate) replaced: Packs,
    /// The pack with those copies.
    pub(crate) copy: Option<u8>,
    /// The index file that replaces all others.
    pub(crate) merged: Option<u8>,
    /// Packs to delete.
    pub(crate) doomed: Packs,
}

/// A rewrite of a commit that is published at a remote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Purge {
    /// The ref that moves.
    pub(crate) target: usize,
    pub(crate) old: u8,
    pub(crate) new: u8,
    /// What the new commit adds.
    pub(crate) added: Objects,
    /// What only the old commit reaches.
    pub(crate) purged: Objects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CollectorStep {
    ReadGc,
    ReadRefs,
    SendRewritten,
    ListIndex,
    ListPacks,
    RaiseEpoch,
    ListRefs,
    ReadRef,
    TouchRef,
    ListIndexAgain,
    SendCopy,
    SendMerged,
    PublishGoing,
    DeletePack,
    DeleteIndex,
    DropNames,
    /// The purge is published; a later collection deletes.
    EndPurge,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self {
            repacks: false,
            purge: None,
            at: CollectorStep::ReadGc,
            gc: 0,
            refs: [Ref::Absent; REFS],
            names: 0,
            next: 0,
            files: 0,
            packs: 0,
            replaced: 0,
            copy: None,
            merged: None,
            doomed: 0,
        }
    }

    pub(crate) fn step(
        mut self,
        world: &mut World<Actor>,
        mut state: State,
        guards: Guards,
    ) -> Move {
        match self.at {
            CollectorStep::ReadGc => {
                self = Self { repacks: self.repacks, purge: self.purge, ..Self::new() };
                self.gc = state.gc;
                let goes_on = world.gc_at(self.gc).is_fenced && self.purge.is_none();
                self.at = if goes_on { self.after_fence(guards) } else { CollectorStep::ReadRefs };
            }
            CollectorStep::ReadRefs => {
                self.refs = state.refs;
                self.names = names(&state);
                self.at = match self.purge {
                    Some(_) => CollectorStep::SendRewritten,
                    None => CollectorStep::ListIndex,
                };
            }
            CollectorStep::SendRewritten => {
                let gc = world.gc_at(self.gc).clone();
                let added = self.purge.as_ref().map_or(0, |purge| purge.added);
                let pack = new_pack(world, added, &gc, guards);
                let file = world.file(gc.epoch, 1 << pack);
                state.packs |= 1 << pack;
                state.files |= 1 << file;
                self.at = CollectorStep::ListIndex;
            }
            CollectorStep::ListIndex => {
                self.files = state.files;
                self.at = CollectorStep::ListPacks;
            }
            CollectorStep::ListPacks => {
                self.packs = state.packs;
                self.at = CollectorStep::RaiseEpoch;
            }
            CollectorStep::RaiseEpoch => {
                let next = self.fenced(world, guards);
                self.at = CollectorStep::ReadGc;
                if let Some(gc) = swap(world, &mut state, self.gc, next, guards) {
                    self.gc = gc;
                    self.at = self.after_fence(guards);
                }
            }
            CollectorStep::ListRefs => {
                if guards.hold(Guard::ListRefsAfterEpoch) || self.names == 0 {
                    self.names = names(&state);
                }
                self.next = 0;
                self.at = self.after_refs(guards);
            }
            CollectorStep::ReadRef => {
                self.refs[self.next] = state.refs[self.next];
                let epoch = world.gc_at(self.gc).epoch;
                let is_old = self.refs[self.next].epoch().is_some_and(|known| known < epoch);
                let moves = self.moves_ref();
                if (is_old && guards.hold(Guard::TouchRefs)) || moves {
                    self.at = CollectorStep::TouchRef;
                } else if let Some(actor) = self.reaches_purged(world, &state) {
                    return Move { state, actor };
                } else {
                    self.next += 1;
                    self.at = self.after_refs(guards);
                }
            }
            CollectorStep::TouchRef => {
                let now = state.refs[self.next];
                if now == self.refs[self.next] {
                    let moved = self.purge.as_ref().filter(|_| self.moves_ref());
                    let commit = moved.map_or(now.commit(), |purge| Some(purge.new));
                    let epoch = world.gc_at(self.gc).epoch;
                    state.refs[self.next] = now.written(commit, epoch);
                }
                // The ref is read again: another client may have moved it.
                self.at = CollectorStep::ReadRef;
            }
            CollectorStep::ListIndexAgain => {
                self.files = state.files;
                if guards.hold(Guard::ListIndexAfterTouch) {
                    self.plan(world, guards);
                    self.at = self.after_plan();
                } else {
                    self.at = CollectorStep::ListRefs;
                }
            }
            CollectorStep::SendCopy => {
                if let Some(pack) = self.copy {
                    state.packs |= 1 << pack;
                }
                self.at = CollectorStep::SendMerged;
            }
            CollectorStep::SendMerged => {
                if let Some(file) = self.merged {
                    state.files |= 1 << file;
                }
                self.at = CollectorStep::PublishGoing;
            }
            CollectorStep::PublishGoing => {
                let next = self.swept(world, guards);
                let known = world.gc_at(self.gc).going;
                self.at = CollectorStep::ReadGc;
                let going = next.going;
                if let Some(gc) = swap(world, &mut state, self.gc, next, guards) {
                    self.gc = gc;
                    self.doomed = going & (!known | state.packs);
                    self.at = CollectorStep::DeletePack;
                }
            }
            CollectorStep::DeletePack => {
                let pack = self.doomed & self.doomed.wrapping_neg();
                state.packs &= !pack;
                self.doomed &= !pack;
                if self.doomed == 0 {
                    self.at = CollectorStep::DeleteIndex;
                }
            }
            CollectorStep::DeleteIndex => {
                let gc = world.gc_at(self.gc);
                let is_old = |file: &usize| {
                    gc.named & (1 << file) == 0 && world.file_at(*file).epoch < gc.epoch
                };
                let old = bits128(self.files).filter(is_old);
                state.files &= !old.fold(0, |files, file| files | 1 << file);
                self.at = CollectorStep::DropNames;
                if guards.hold(Guard::NameOfGone) {
                    return Move { state, actor: Actor::Done };
                }
            }
            CollectorStep::DropNames => {
                let mut next = world.gc_at(self.gc).clone();
                let gone = next.going & !state.packs;
                next.going &= !gone;
                next.version += 1;
                next.shadows.retain(|(pack, _)| gone & (1 << pack) == 0);
                swap(world, &mut state, self.gc, next, guards);
                return Move { state, actor: Actor::Done };
            }
            CollectorStep::EndPurge => {
                let actor = self.purge.map_or(Actor::Done, |purge| Actor::Purged(purge.purged));
                return Move { state, actor };
            }
        }
        Move { state, actor: Actor::Collector(self) }
    }

    /// Returns the step that follows the fence.
    fn after_fence(&mut self, guards: Guards) -> CollectorStep {
        if !guards.hold(Guard::ListIndexAfterTouch) {
            return CollectorStep::ListIndexAgain;
        }
        CollectorStep::ListRefs
    }

    /// Returns the step for the ref `next`, or what follows the last ref.
    fn after_refs(&mut self, guards: Guards) -> CollectorStep {
        while self.next < REFS && self.names & (1 << self.next) == 0 {
            self.next += 1;
        }
        match self.next {
            REFS.. if self.purge.is_some() => CollectorStep::EndPurge,
            REFS.. if guards.hold(Guard::ListIndexAfterTouch) => CollectorStep::ListIndexAgain,
            REFS.. => CollectorStep::PublishGoing,
            _ => CollectorStep::ReadRef,
        }
    }

    fn after_plan(&self) -> CollectorStep {
        match self.copy {
            Some(_) => CollectorStep::SendCopy,
            None => CollectorStep::SendMerged,
        }
    }

    /// Returns true if the purge moves the ref that was read last.
    fn moves_ref(&self) -> bool {
        self.purge.as_ref().is_some_and(|purge| {
            purge.target == self.next && self.refs[self.next].commit() == Some(purge.old)
        })
    }

    /// Returns the end of a purge that meets a ref with purged objects.
    fn reaches_purged(&self, world: &World<Actor>, state: &State) -> Option<Actor> {
        let purge = self.purge.as_ref()?;
        let commits = self.refs[self.next].commit().map_or(0, |commit| 1 << commit);
        let forgotten = world.gc_at(self.gc).forgotten;
        let reached = world.reached(commits, world.contents(state.packs), forgotten);
        (reached & purge.purged != 0).then_some(Actor::Refused)
    }

    /// Returns what the refs that were read reach.
    fn live(&self, world: &World<Actor>, gc: &Gc) -> Objects {
        let commits = self.refs.iter().filter_map(|it| it.commit());
        let commits = commits.map(|commit| match &self.purge {
            Some(purge) if purge.old == commit => purge.new,
            _ => commit,
        });
        let commits = commits.fold(0, |commits, commit| commits | 1 << commit);
        let listed = world.contents(world.packs_in(self.files) & !gc.going);
        world.reached(commits, listed, gc.forgotten)
    }

    /// Returns the state with a new epoch, in which all dead objects are shadowed.
    fn fenced(&self, world: &World<Actor>, guards: Guards) -> Gc {
        let mut next = world.gc_at(self.gc).clone();
        next.purged |= self.purge.as_ref().map_or(0, |purge| purge.purged);
        let live = self.live(world, &next);
        let indexed = world.packs_in(self.files);
        for pack in bits64(self.packs & !next.going) {
            let dead = dead_of(world, pack, live, indexed, guards);
            next.shadow(pack, dead | next.purged & world.objects_of(pack));
        }
        next.epoch += 1;
        next.version += 1;
        next.is_fenced = true;
        next.named = self.files;
        next
    }

    /// Plans the copy and the merged index file, after everything was read. Both count as soon as
    /// they are sent, before the new state is. So they hold only what counts already.
    fn plan(&mut self, world: &mut World<Actor>, guards: Guards) {
        let gc = world.gc_at(self.gc).clone();
        let swept = self.swept_shadows(world, &gc, guards);
        let files = match guards.hold(Guard::MergeCounted) {
            true => world.counted(self.files, &gc),
            false => self.files,
        };
        let counted = world.packs_in(files) & !swept.going;
        let unshadowed = match guards.hold(Guard::CopyUnshadowed) {
            true => gc,
            false => swept.clone(),
        };
        if self.repacks {
            // A purged object that a ref still reaches stays shadowed, and stays in its pack.
            let reached = self.live(world, &swept);
            let is_partly_dead = |pack: &usize| {
                let (all, live) = (world.objects_of(*pack), world.unshadowed(1 << pack, &swept));
                let is_purged = all & swept.purged & reached != 0;
                let is_unshadowed = live & !world.unshadowed(1 << pack, &unshadowed) == 0;
                live != 0 && live != all && is_unshadowed && !is_purged
            };
            let mut objects = 0;
            for pack in bits64(counted).filter(is_partly_dead).collect::<Vec<_>>() {
                let mut kept = counted & !(1 << pack);
                if guards.hold(Guard::RepackCopies) {
                    kept &= !self.replaced;
                }
                objects |= world.unshadowed(1 << pack, &swept) & !world.unshadowed(kept, &swept);
                self.replaced |= 1 << pack;
            }
            if objects != 0 {
                self.copy = Some(new_pack(world, objects, &swept, guards) as u8);
            }
        }
        let mut packs = bits64(counted & !self.replaced).fold(0, insert);
        if let Some(copy) = self.copy.filter(|_| guards.hold(Guard::RepackIndex)) {
            packs |= 1 << copy;
        }
        self.merged = Some(world.file(world.gc_at(self.gc).epoch, packs) as u8);
    }

    /// Returns the state without the shadows of live objects, with the packs that go.
    fn swept_shadows(&self, world: &World<Actor>, gc: &Gc, guards: Guards) -> Gc {
        let mut next = gc.clone();
        let live = self.live(world, gc);
        let indexed = world.packs_in(self.files);
        let fenced: Vec<usize> = match guards.hold(Guard::SweepOnlyFenced) {
            true => gc.shadows.iter().map(|(pack, _)| usize::from(*pack)).collect(),
            false => bits64(indexed & !gc.going).collect(),
        };
        for pack in fenced {
            let dead = dead_of(world, pack, live, indexed, guards);
            let dead = match guards.hold(Guard::SweepOnlyFenced) {
                true => dead & gc.shadowed(pack),
                false => dead,
            };
            let kept = match guards.hold(Guard::KeepPurgedShadowed) {
                true => gc.shadowed(pack) & gc.purged,
                false => 0,
            };
            next.shadow(pack, dead | kept);
            if dead == world.objects_of(pack) {
                next.going |= 1 << pack;
            }
        }
        if guards.hold(Guard::ShadowLateFiles) {
            // Writers of this epoch may rely on what counts already.
            let counted = world.packs_in(world.counted(self.files, gc));
            for pack in bits64(indexed & !counted & !gc.going) {
                if gc.shadowed(pack) == 0 {
                    next.shadow(pack, dead_of(world, pack, live, indexed, guards));
                }
            }
        }
        next
    }

    /// Returns the state in which the packs go that the plan does not keep.
    fn swept(&self, world: &World<Actor>, guards: Guards) -> Gc {
        let gc = world.gc_at(self.gc);
        let mut next = self.swept_shadows(world, gc, guards);
        for pack in bits64(self.replaced) {
            next.shadow(pack, world.objects_of(pack));
        }
        next.going |= self.replaced;
        next.named = self.files;
        if let Some(merged) = self.merged {
            let counted = world.counted(self.files, gc);
            let live = self.live(world, gc);
            let is_late_and_live = |file: &usize| {
                counted & (1 << file) == 0
                    && world.contents(world.file_at(*file).packs & !next.going) & live != 0
            };
            let late = bits128(self.files).filter(is_late_and_live);
            next.named = late.fold(1 << merged, |files, file| files | 1 << file);
        }
        next.is_fenced = false;
        next.version += 1;
        next
    }
}

fn insert(set: Packs, pack: usize) -> Packs {
    set | 1 << pack
}

/// Returns the objects of a pack that nothing may rely on.
fn dead_of(
    world: &World<Actor>,
    pack: usize,
    live: Objects,
    indexed: Packs,
    guards: Guards,
) -> Objects {
    let objects = world.objects_of(pack);
    let dead = if indexed & (1 << pack) == 0 { objects } else { objects & !live };
    let is_partial = dead != objects;
    if is_partial && !guards.hold(Guard::ShadowPartly) { 0 } else { dead }
}

/// Replaces the state if it is still the one that was read. Returns the number of the new one.
pub(crate) fn swap(
    world: &mut World<Actor>,
    state: &mut State,
    read: u32,
    next: Gc,
    guards: Guards,
) -> Option<u32> {
    let (read, now) = (world.gc_at(read), world.gc_at(state.gc));
    let is_same = match guards.hold(Guard::ForgetVersion) {
        true => read == now,
        false => (read.epoch, read.version) == (now.epoch, now.version),
    };
    if !is_same {
        return None;
    }
    state.gc = world.gc(next);
    Some(state.gc)
}

/// Returns the refs that exist.
fn names(state: &State) -> u8 {
    let exists = |n: &usize| state.refs[*n] != Ref::Absent;
    (0..REFS).filter(exists).fold(0, |names, n| names | 1 << n)
}

/// Returns the commits that refs point at.
pub(crate) fn tips(state: &State) -> Objects {
    state.refs.iter().filter_map(|it| it.commit()).fold(0, |tips, commit| tips | 1 << commit)
}
