//! Commits and a collection in a local store, where refs and the state move under one lock.

use crate::{
    actor::{Actor, Move},
    collector::tips,
    guard::{Guard, Guards},
    world::{Objects, Packs, Ref, State, World, bits64},
    writer::{missing, new_pack},
};

/// A commit, or any other command that writes a ref.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LocalWriter {
    target: usize,
    commit: u8,
    at: LocalWriterStep,
    read: Ref,
    gc: u32,
    /// The pack of this commit.
    new: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LocalWriterStep {
    ReadRef,
    ReadGc,
    LookUp,
    WritePack,
    MoveRef,
}

impl LocalWriter {
    pub(crate) fn new(target: usize, commit: u8) -> Self {
        let at = LocalWriterStep::ReadRef;
        Self { target, commit, at, read: Ref::Absent, gc: 0, new: None }
    }

    pub(crate) fn step(
        mut self,
        world: &mut World<Actor>,
        mut state: State,
        guards: Guards,
    ) -> Move {
        match self.at {
            LocalWriterStep::ReadRef => {
                self.read = state.refs[self.target];
                self.at = LocalWriterStep::ReadGc;
            }
            LocalWriterStep::ReadGc => {
                self.gc = state.gc;
                self.at = LocalWriterStep::LookUp;
            }
            LocalWriterStep::LookUp => {
                let gc = world.gc_at(self.gc).clone();
                let stored = world.unshadowed(state.packs, &gc);
                let Some(missing) = missing(world, self.commit, stored, &gc, guards) else {
                    return Move { state, actor: Actor::Refused };
                };
                let pack = (missing != 0).then(|| new_pack(world, missing, &gc, guards) as u8);
                self.new = pack;
                self.at = match pack {
                    Some(_) => LocalWriterStep::WritePack,
                    None => LocalWriterStep::MoveRef,
                };
            }
            // Under the lock.
            LocalWriterStep::WritePack => {
                if state.gc == self.gc || !guards.hold(Guard::PublishInEpoch) {
                    state.packs |= self.new.map_or(0, |pack| 1 << pack);
                    self.at = LocalWriterStep::MoveRef;
                } else {
                    self.at = LocalWriterStep::ReadGc;
                }
            }
            // Under the lock.
            LocalWriterStep::MoveRef => {
                let (known, now) = (world.gc_at(self.gc), world.gc_at(state.gc));
                let present = world.unshadowed(state.packs, now);
                let lacks = world.lacking(self.commit, present, now.forgotten);
                let looks = known.version != now.version && guards.hold(Guard::LookAgain);
                if state.refs[self.target] != self.read {
                    self.at = LocalWriterStep::ReadRef;
                } else if looks && lacks != 0 {
                    self.at = LocalWriterStep::ReadGc;
                } else {
                    let now = state.refs[self.target];
                    let epoch = world.gc_at(state.gc).epoch;
                    state.refs[self.target] = now.written(Some(self.commit), epoch);
                    return Move { state, actor: Actor::Done };
                }
            }
        }
        Move { state, actor: Actor::LocalWriter(self) }
    }
}

/// A collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LocalCollector {
    repacks: bool,
    at: LocalCollectorStep,
    gc: u32,
    tips: Objects,
    packs: Packs,
    copy: Option<u8>,
    replaced: Packs,
    doomed: Packs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum LocalCollectorStep {
    #[default]
    ReadGc,
    ReadRefs,
    ListPacks,
    WriteCopy,
    Publish,
    DeletePack,
}

impl LocalCollector {
    pub(crate) fn new(repacks: bool) -> Self {
        Self { repacks, ..Self::default() }
    }

    pub(crate) fn step(
        mut self,
        world: &mut World<Actor>,
        mut state: State,
        guards: Guards,
    ) -> Move {
        match self.at {
            LocalCollectorStep::ReadGc => {
                self = Self::new(self.repacks);
                self.gc = state.gc;
                self.at = LocalCollectorStep::ReadRefs;
            }
            LocalCollectorStep::ReadRefs => {
                self.tips = tips(&state);
                self.at = LocalCollectorStep::ListPacks;
            }
            LocalCollectorStep::ListPacks => {
                let gc = world.gc_at(self.gc).clone();
                self.packs = state.packs & !gc.going;
                let live = self.live(world, gc.forgotten);
                let is_partly = |pack: &usize| {
                    let objects = world.objects_of(*pack);
                    objects & live != 0 && objects & !live != 0
                };
                if self.repacks {
                    self.replaced =
                        bits64(self.packs).filter(is_partly).fold(0, |set, pack| set | 1 << pack);
                    let objects = world.contents(self.replaced) & live;
                    if objects != 0 {
                        self.copy = Some(new_pack(world, objects, &gc, guards) as u8);
                    }
                }
                self.at = match self.copy {
                    Some(_) => LocalCollectorStep::WriteCopy,
                    None => LocalCollectorStep::Publish,
                };
            }
            LocalCollectorStep::WriteCopy => {
                state.packs |= self.copy.map_or(0, |pack| 1 << pack);
                self.at = LocalCollectorStep::Publish;
            }
            // Under the lock.
            LocalCollectorStep::Publish => {
                if state.gc != self.gc {
                    self.at = LocalCollectorStep::ReadGc;
                } else {
                    self.publish(world, &mut state, guards);
                    self.at = LocalCollectorStep::DeletePack;
                }
            }
            // Under the lock, again for each pack.
            LocalCollectorStep::DeletePack => {
                let pack = self.doomed & self.doomed.wrapping_neg();
                self.doomed &= !pack;
                let mut next = world.gc_at(state.gc).clone();
                let goes = next.going & pack != 0 || !guards.hold(Guard::DeleteListed);
                if pack != 0 && goes {
                    state.packs &= !pack;
                    next.going &= !pack;
                    next.shadow(pack.trailing_zeros() as usize, 0);
                    next.version += 1;
                    state.gc = world.gc(next);
                }
                if self.doomed == 0 {
                    return Move { state, actor: Actor::Done };
                }
            }
        }
        Move { state, actor: Actor::LocalCollector(self) }
    }

    fn live(&self, world: &World<Actor>, forgotten: Objects) -> Objects {
        world.reached(self.tips, world.contents(self.packs), forgotten)
    }

    fn publish(&mut self, world: &mut World<Actor>, state: &mut State, guards: Guards) {
        if guards.hold(Guard::RefsUnderLock) {
            self.tips = tips(state);
        }
        let mut next = world.gc_at(self.gc).clone();
        let planned = self.packs;
        if guards.hold(Guard::PacksUnderLock) {
            self.packs = state.packs & !next.going;
        }
        let live = self.live(world, next.forgotten);
        // A commit since the plan may need what the copy left out.
        let copied = self.copy.map_or(0, |pack| world.objects_of(pack.into()));
        let replaced = self.replaced;
        let is_replaced = |pack: usize| {
            replaced & (1 << pack) != 0 && world.objects_of(pack) & live & !copied == 0
        };
        for pack in bits64(self.packs) {
            let objects = world.objects_of(pack);
            let dead = if is_replaced(pack) { objects } else { objects & !live };
            let dead = match guards.hold(Guard::ShadowPartly) || dead == objects {
                true => dead,
                false => 0,
            };
            next.shadow(pack, dead);
            if dead == objects && planned & (1 << pack) != 0 {
                next.going |= 1 << pack;
            }
        }
        next.epoch += 1;
        next.version += 1;
        self.doomed = next.going;
        state.gc = world.gc(next);
    }
}
