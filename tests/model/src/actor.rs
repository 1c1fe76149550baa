//! Who acts on a store, one request at a time.

use crate::{
    collector::{Collector, swap},
    guard::{Guard, Guards},
    local::{LocalCollector, LocalWriter},
    world::{Files, Gc, Objects, State, World, bits128},
    writer::{Writer, new_pack, stored},
};

/// A client, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Actor {
    /// It has succeeded, or there is none.
    Done,
    /// It ended with an error that names the reason.
    Refused,
    /// A forgotten commit was taken back.
    Restored(u8),
    /// A purge of these objects was published.
    Purged(Objects),
    Writer(Writer),
    Collector(Collector),
    Merger(Merger),
    Forgetter(Forgetter),
    /// A client that deletes a ref with this number, in one step.
    Deleter(usize),
    LocalWriter(LocalWriter),
    LocalCollector(LocalCollector),
}

/// The result of one step: the store and the client after it.
pub(crate) struct Move {
    pub(crate) state: State,
    pub(crate) actor: Actor,
}

impl Actor {
    /// Does the next step of the actor; `None` if it has ended.
    pub(crate) fn step(
        self,
        world: &mut World<Self>,
        state: State,
        guards: Guards,
    ) -> Option<Move> {
        match self {
            Self::Done | Self::Refused | Self::Restored(_) | Self::Purged(_) => None,
            Self::Writer(writer) => Some(writer.step(world, state, guards)),
            Self::Collector(collector) => Some(collector.step(world, state, guards)),
            Self::Merger(merger) => Some(merger.step(world, state, guards)),
            Self::Forgetter(forgetter) => Some(forgetter.step(world, state, guards)),
            Self::Deleter(target) => {
                let mut state = state;
                let epoch = world.gc_at(state.gc).epoch;
                state.refs[target] = state.refs[target].written(None, epoch);
                Some(Move { state, actor: Self::Done })
            }
            Self::LocalWriter(writer) => Some(writer.step(world, state, guards)),
            Self::LocalCollector(collector) => Some(collector.step(world, state, guards)),
        }
    }
}

/// A client that replaces index files by one larger file, or removes those that a larger file
/// replaces, as a push does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Merger {
    /// True if it writes the larger file, false if it only removes what it finds replaced.
    merges: bool,
    at: MergerStep,
    gc: u32,
    files: Files,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum MergerStep {
    ReadGc,
    ListIndex,
    SendMerged,
    ReadGcAgain,
    RemoveMerged,
}

impl Merger {
    pub(crate) fn new(merges: bool) -> Self {
        Self { merges, at: MergerStep::ReadGc, gc: 0, files: 0 }
    }

    fn step(mut self, world: &mut World<Actor>, mut state: State, guards: Guards) -> Move {
        match self.at {
            MergerStep::ReadGc => {
                self.gc = state.gc;
                self.at = MergerStep::ListIndex;
            }
            MergerStep::ListIndex if !self.merges => {
                self.files = replaced(world, state.files, world.gc_at(self.gc), guards);
                if self.files == 0 {
                    return Move { state, actor: Actor::Done };
                }
                self.at = MergerStep::ReadGcAgain;
            }
            MergerStep::ListIndex => {
                self.files = state.files;
                if guards.hold(Guard::MergeCounted) {
                    self.files = world.counted(state.files, world.gc_at(self.gc));
                }
                self.at = MergerStep::SendMerged;
            }
            MergerStep::SendMerged => {
                let gc = world.gc_at(self.gc);
                let (epoch, packs) = (gc.epoch, world.packs_in(self.files) & !gc.going);
                let merged = world.file(epoch, packs);
                state.files |= 1 << merged;
                self.files &= !(1 << merged);
                self.at = MergerStep::ReadGcAgain;
            }
            MergerStep::ReadGcAgain => {
                let (known, now) = (world.gc_at(self.gc), world.gc_at(state.gc));
                if known.epoch != now.epoch && guards.hold(Guard::RemoveMerged) {
                    return Move { state, actor: Actor::Done };
                }
                self.at = MergerStep::RemoveMerged;
            }
            MergerStep::RemoveMerged => {
                let file = self.files & self.files.wrapping_neg();
                state.files &= !file;
                self.files &= !file;
                if self.files == 0 {
                    return Move { state, actor: Actor::Done };
                }
            }
        }
        Move { state, actor: Actor::Merger(self) }
    }
}

/// Returns the index files whose packs are all in a larger file that counts.
fn replaced(world: &World<Actor>, files: Files, gc: &Gc, guards: Guards) -> Files {
    let counted = world.counted(files, gc);
    let replaces = |larger: usize, file: usize| {
        let (larger, file) = (world.file_at(larger), world.file_at(file));
        let is_older = larger.epoch < file.epoch && guards.hold(Guard::RemoveOlder);
        larger.packs != file.packs && file.packs & !larger.packs == 0 && !is_older
    };
    let is_replaced = |file: &usize| bits128(counted).any(|larger| replaces(larger, *file));
    bits128(files).filter(is_replaced).fold(0, |files, file| files | 1 << file)
}

/// A client that forgets a commit, or takes that back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Forgetter {
    at: ForgetterStep,
    commit: u8,
    undoes: bool,
    gc: u32,
    files: Files,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ForgetterStep {
    ReadGc,
    ListIndex,
    SendLink,
    SendLinkIndex,
    SwapGc,
}

impl Forgetter {
    pub(crate) fn new(commit: u8, undoes: bool) -> Self {
        Self { at: ForgetterStep::ReadGc, commit, undoes, gc: 0, files: 0 }
    }

    fn step(mut self, world: &mut World<Actor>, mut state: State, guards: Guards) -> Move {
        let link = world.link_of(self.commit).map_or(0, |link| 1 << link);
        match self.at {
            ForgetterStep::ReadGc => {
                self.gc = state.gc;
                self.at = ForgetterStep::ListIndex;
            }
            ForgetterStep::ListIndex => {
                self.files = state.files;
                let gc = world.gc_at(self.gc);
                let is_stored = stored(world, self.files, gc, guards) & link != 0;
                let skips = self.undoes || is_stored || !guards.hold(Guard::LinkFirst);
                self.at = if skips { ForgetterStep::SwapGc } else { ForgetterStep::SendLink };
            }
            ForgetterStep::SendLink => {
                let pack = self.link_pack(world, link, guards);
                state.packs |= 1 << pack;
                self.at = ForgetterStep::SendLinkIndex;
            }
            ForgetterStep::SendLinkIndex => {
                let pack = self.link_pack(world, link, guards);
                let file = world.file(world.gc_at(self.gc).epoch, 1 << pack);
                state.files |= 1 << file;
                self.at = ForgetterStep::SwapGc;
            }
            ForgetterStep::SwapGc => {
                let mut next = world.gc_at(self.gc).clone();
                if self.undoes {
                    let counted = world.packs_in(world.counted(self.files, &next));
                    let present = world.contents(counted & !next.going);
                    let lacks = world.lacking(self.commit, present, next.forgotten);
                    let is_forgotten = next.forgotten & (1 << self.commit) != 0;
                    if !is_forgotten || (lacks != 0 && guards.hold(Guard::UndoChecks)) {
                        return Move { state, actor: Actor::Refused };
                    }
                    next.forgotten &= !(1 << self.commit);
                } else {
                    next.forgotten |= 1 << self.commit;
                }
                if guards.hold(Guard::ForgetVersion) {
                    next.version += 1;
                }
                if swap(world, &mut state, self.gc, next, guards).is_some() {
                    let actor = match self.undoes {
                        true => Actor::Restored(self.commit),
                        false => Actor::Done,
                    };
                    return Move { state, actor };
                }
                self.at = ForgetterStep::ReadGc;
            }
        }
        Move { state, actor: Actor::Forgetter(self) }
    }

    fn link_pack(&self, world: &mut World<Actor>, link: Objects, guards: Guards) -> usize {
        let gc = world.gc_at(self.gc).clone();
        new_pack(world, link, &gc, guards)
    }
}
