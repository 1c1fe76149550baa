//! A client that pushes one commit.

use crate::{
    actor::{Actor, Move},
    guard::{Guard, Guards},
    world::{Files, Gc, Object, Objects, Packs, Parent, Ref, State, World},
};

/// A push of a commit to a ref.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    /// The number of the ref.
    pub(crate) target: usize,
    pub(crate) commit: u8,
    /// True if what is missing goes into two packs instead of one.
    pub(crate) in_two_packs: bool,
    pub(crate) at: WriterStep,
    /// The ref as it was read.
    pub(crate) read: Ref,
    /// The state of the garbage collection that the client knows.
    pub(crate) gc: u32,
    /// The index files that the client has listed.
    pub(crate) files: Files,
    /// Packs that are still to be sent.
    pub(crate) to_send: Packs,
    /// All packs of this push.
    pub(crate) sent: Packs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WriterStep {
    ReadRef,
    ReserveRef,
    ReadGc,
    ListIndex,
    SendPack,
    SendIndex,
    SwapRef,
}

impl Writer {
    pub(crate) fn new(target: usize, commit: u8, gc: u32, files: Files) -> Self {
        Self {
            target,
            commit,
            in_two_packs: false,
            at: WriterStep::ReadRef,
            read: Ref::Absent,
            gc,
            files,
            to_send: 0,
            sent: 0,
        }
    }

    pub(crate) fn step(
        mut self,
        world: &mut World<Actor>,
        mut state: State,
        guards: Guards,
    ) -> Move {
        let now = state.refs[self.target];
        match self.at {
            WriterStep::ReadRef => {
                self.read = now;
                let known = world.gc_at(self.gc).epoch;
                self.at = match now {
                    Ref::Absent if guards.hold(Guard::ReserveRef) => WriterStep::ReserveRef,
                    Ref::Present { commit: Some(_), epoch, .. } if epoch == known => {
                        WriterStep::ListIndex
                    }
                    _ => WriterStep::ReadGc,
                };
            }
            WriterStep::ReserveRef => {
                if now == Ref::Absent {
                    self.read = now.written(None, world.gc_at(self.gc).epoch);
                    state.refs[self.target] = self.read;
                    self.at = WriterStep::ReadGc;
                } else {
                    self.at = WriterStep::ReadRef;
                }
            }
            WriterStep::ReadGc => {
                self.gc = state.gc;
                self.at = WriterStep::ListIndex;
            }
            WriterStep::ListIndex => {
                self.files = state.files;
                let Some(missing) = self.missing(world, guards) else {
                    return Move { state, actor: Actor::Refused };
                };
                self.plan(world, missing, guards);
                self.at = match (self.sent, guards.hold(Guard::IndexLast)) {
                    (0, _) => WriterStep::SwapRef,
                    (_, true) if self.to_send != 0 => WriterStep::SendPack,
                    (_, _) => WriterStep::SendIndex,
                };
            }
            WriterStep::SendPack => {
                let pack = self.to_send & self.to_send.wrapping_neg();
                state.packs |= pack;
                self.to_send &= !pack;
                self.at = match (self.to_send, guards.hold(Guard::IndexLast)) {
                    (0, true) => WriterStep::SendIndex,
                    (0, false) => WriterStep::SwapRef,
                    _ => WriterStep::SendPack,
                };
            }
            WriterStep::SendIndex => {
                let file = world.file(world.gc_at(self.gc).epoch, self.sent);
                state.files |= 1 << file;
                self.at = match self.to_send {
                    0 => WriterStep::SwapRef,
                    _ => WriterStep::SendPack,
                };
            }
            WriterStep::SwapRef => {
                let is_same = now == self.read
                    || (!guards.hold(Guard::RefVersion)
                        && now != Ref::Absent
                        && now.commit() == self.read.commit());
                if is_same {
                    let epoch = world.gc_at(self.gc).epoch;
                    state.refs[self.target] = now.written(Some(self.commit), epoch);
                    return Move { state, actor: Actor::Done };
                }
                self.at = WriterStep::ReadRef;
            }
        }
        Move { state, actor: Actor::Writer(self) }
    }

    /// Returns what the remote lacks, as far as the client knows; `None` if the commit refers to
    /// something purged. The walk ends at objects that are stored, and relies on what they need.
    fn missing(&self, world: &World<Actor>, guards: Guards) -> Option<Objects> {
        let gc = world.gc_at(self.gc);
        let stored = stored(world, self.files, gc, guards);
        missing(world, self.commit, stored, gc, guards)
    }

    /// Chooses packs for what is missing.
    fn plan(&mut self, world: &mut World<Actor>, missing: Objects, guards: Guards) {
        let gc = world.gc_at(self.gc).clone();
        if !guards.hold(Guard::SendAgain)
            && self.sent & gc.going == 0
            && missing & !world.contents(self.sent) == 0
        {
            return;
        }
        let first = missing & missing.wrapping_neg();
        let parts = match self.in_two_packs {
            true => [first, missing & !first],
            false => [missing, 0],
        };
        self.sent = parts
            .into_iter()
            .filter(|part| *part != 0)
            .fold(0, |packs, part| packs | 1 << new_pack(world, part, &gc, guards));
        self.to_send = self.sent;
    }
}

/// Returns the objects on which a client relies that knows these index files.
pub(crate) fn stored(world: &World<Actor>, files: Files, gc: &Gc, guards: Guards) -> Objects {
    let files = match guards.hold(Guard::IndexEpoch) {
        true => world.counted(files, gc),
        false => files,
    };
    world.unshadowed(world.packs_in(files), gc)
}

/// Returns what a commit refers to beyond `stored`; `None` if that includes something purged.
pub(crate) fn missing(
    world: &World<Actor>,
    commit: u8,
    stored: Objects,
    gc: &Gc,
    guards: Guards,
) -> Option<Objects> {
    // For a commit, unlike for its parents, a link is not enough.
    let links = |commit: u8| match guards.hold(Guard::LinkIsNoCommit) {
        true => 0,
        false => world.link_of(commit).map_or(0, |link| 1 << link),
    };
    let (mut missing, mut left) = (0, 0);
    let mut commits = vec![commit];
    loop {
        let object = if let Some(commit) = commits.pop() {
            if stored & links(commit) != 0 {
                continue;
            }
            u32::from(commit)
        } else if left != 0 {
            let object = Objects::trailing_zeros(left);
            left &= left - 1;
            object
        } else {
            return Some(missing);
        };
        if (stored | missing) & (1 << object) != 0 {
            continue;
        }
        if gc.purged & (1 << object) != 0 && guards.hold(Guard::RefusePurged) {
            return None;
        }
        missing |= 1 << object;
        let Object { needs, parent } = world.objects[object as usize];
        left |= needs;
        if let Some(Parent { commit, link }) = parent {
            let link = link.map_or(0, |link| 1 << link);
            let is_forgotten = gc.forgotten & (1 << commit) != 0;
            if link != 0 && is_forgotten && stored & (1 << commit) == 0 {
                left |= link;
            } else if stored & link == 0 {
                commits.push(commit);
            }
        }
    }
}

/// Chooses a name for a pack with these objects.
pub(crate) fn new_pack(
    world: &mut World<Actor>,
    objects: Objects,
    gc: &Gc,
    guards: Guards,
) -> usize {
    let mut variation = 0;
    loop {
        let pack = world.pack(objects, variation);
        let is_shadowed = guards.hold(Guard::NameOfShadowed) && gc.shadowed(pack) != 0;
        if gc.going & (1 << pack) == 0 && !is_shadowed {
            return pack;
        }
        variation += 1;
    }
}
