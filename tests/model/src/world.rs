//! What a store holds, in the model.
//!
//! Sets are bit masks. Packs, index files and garbage collection states have numbers, which a
//! [`World`] assigns when it sees them first, so that a [`State`] is small.

use std::hash::Hash;

use indexmap::IndexSet;

/// A set of objects: bit `n` is the object `n`.
pub(crate) type Objects = u32;
/// A set of packs, by their numbers.
pub(crate) type Packs = u64;
/// A set of index files, by their numbers.
pub(crate) type Files = u128;

/// An object of the model: what it refers to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Object {
    /// Objects that must be there: the tree of a commit, or what a tree lists.
    pub(crate) needs: Objects,
    /// The parent of a commit, and the link that may take its place.
    pub(crate) parent: Option<Parent>,
}

/// A reference of a commit to its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parent {
    pub(crate) commit: u8,
    /// The link that stands for the parent if it was forgotten.
    pub(crate) link: Option<u8>,
}

/// A pack. The content and the variation determine its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pack {
    pub(crate) objects: Objects,
    pub(crate) variation: u8,
}

/// An index file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IndexFile {
    /// The epoch of its writer.
    pub(crate) epoch: u8,
    pub(crate) packs: Packs,
}

/// The garbage collection state: the small object that every collector, forget and purge swaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gc {
    pub(crate) epoch: u8,
    pub(crate) version: u8,
    /// True if a collector raised the epoch, and no collector has swept since.
    pub(crate) is_fenced: bool,
    /// The shadowed objects of each pack, sorted by pack; no entry has an empty set.
    pub(crate) shadows: Vec<(u8, Objects)>,
    /// Packs that are being deleted or were deleted.
    pub(crate) going: Packs,
    /// Index files of earlier epochs that count.
    pub(crate) named: Files,
    pub(crate) forgotten: Objects,
    pub(crate) purged: Objects,
}

impl Gc {
    /// Returns the shadowed objects of a pack.
    pub(crate) fn shadowed(&self, pack: usize) -> Objects {
        self.shadows
            .iter()
            .find(|(p, _)| usize::from(*p) == pack)
            .map_or(0, |(_, objects)| *objects)
    }

    /// Replaces the shadowed objects of a pack.
    pub(crate) fn shadow(&mut self, pack: usize, objects: Objects) {
        self.shadows.retain(|(p, _)| usize::from(*p) != pack);
        if objects != 0 {
            self.shadows.push((pack as u8, objects));
            self.shadows.sort_unstable();
        }
    }
}

/// A branch or a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Ref {
    #[default]
    Absent,
    /// `commit` is `None` if the ref was deleted or is only reserved.
    Present { commit: Option<u8>, epoch: u8, version: u8 },
}

impl Ref {
    pub(crate) fn commit(self) -> Option<u8> {
        match self {
            Self::Absent => None,
            Self::Present { commit, .. } => commit,
        }
    }

    pub(crate) fn epoch(self) -> Option<u8> {
        match self {
            Self::Absent => None,
            Self::Present { epoch, .. } => Some(epoch),
        }
    }

    /// Returns the ref after a write.
    pub(crate) fn written(self, commit: Option<u8>, epoch: u8) -> Self {
        let version = match self {
            Self::Absent => 0,
            Self::Present { version, .. } => version + 1,
        };
        Self::Present { commit, epoch, version }
    }
}

/// The number of refs in a state.
pub(crate) const REFS: usize = 2;
/// The most actors of a scenario.
pub(crate) const ACTORS: usize = 4;

/// What a store holds, and where each actor stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) files: Files,
    pub(crate) packs: Packs,
    pub(crate) refs: [Ref; REFS],
    /// The number of the [`Gc`].
    pub(crate) gc: u32,
    /// The numbers of the actors' states.
    pub(crate) actors: [u32; ACTORS],
}

/// The objects of a scenario, and the values that have numbers.
#[derive(Debug)]
pub(crate) struct World<A> {
    pub(crate) objects: Vec<Object>,
    packs: IndexSet<Pack>,
    files: IndexSet<IndexFile>,
    gcs: IndexSet<Gc>,
    actors: IndexSet<A>,
}

impl<A: Clone + Eq + Hash> World<A> {
    pub(crate) fn new(objects: Vec<Object>) -> Self {
        Self {
            objects,
            packs: IndexSet::new(),
            files: IndexSet::new(),
            gcs: IndexSet::new(),
            actors: IndexSet::new(),
        }
    }

    /// Returns the number of a pack.
    ///
    /// # Panics
    /// If there are more packs than [`Packs`] has bits.
    pub(crate) fn pack(&mut self, objects: Objects, variation: u8) -> usize {
        let number = self.packs.insert_full(Pack { objects, variation }).0;
        assert!(number < Packs::BITS as usize, "too many packs");
        number
    }

    /// Returns the number of an index file.
    ///
    /// # Panics
    /// If there are more index files than [`Files`] has bits.
    pub(crate) fn file(&mut self, epoch: u8, packs: Packs) -> usize {
        let number = self.files.insert_full(IndexFile { epoch, packs }).0;
        assert!(number < Files::BITS as usize, "too many index files");
        number
    }

    pub(crate) fn gc(&mut self, gc: Gc) -> u32 {
        self.gcs.insert_full(gc).0 as u32
    }

    pub(crate) fn actor(&mut self, actor: A) -> u32 {
        self.actors.insert_full(actor).0 as u32
    }

    pub(crate) fn objects_of(&self, pack: usize) -> Objects {
        self.packs[pack].objects
    }

    pub(crate) fn file_at(&self, file: usize) -> &IndexFile {
        &self.files[file]
    }

    pub(crate) fn gc_at(&self, gc: u32) -> &Gc {
        &self.gcs[gc as usize]
    }

    pub(crate) fn actor_at(&self, actor: u32) -> &A {
        &self.actors[actor as usize]
    }

    /// Returns the packs that index files list.
    pub(crate) fn packs_in(&self, files: Files) -> Packs {
        bits128(files).fold(0, |packs, file| packs | self.files[file].packs)
    }

    /// Returns the index files on which a client relies that knows this state.
    pub(crate) fn counted(&self, files: Files, gc: &Gc) -> Files {
        let counts =
            |file: &usize| gc.named & (1 << file) != 0 || self.files[*file].epoch == gc.epoch;
        bits128(files).filter(counts).fold(0, |files, file| files | 1 << file)
    }

    /// Returns the objects of packs that are neither shadowed nor in packs that go.
    pub(crate) fn unshadowed(&self, packs: Packs, gc: &Gc) -> Objects {
        bits64(packs & !gc.going)
            .fold(0, |objects, pack| objects | self.packs[pack].objects & !gc.shadowed(pack))
    }

    /// Returns what packs contain.
    pub(crate) fn contents(&self, packs: Packs) -> Objects {
        bits64(packs).fold(0, |objects, pack| objects | self.packs[pack].objects)
    }

    /// Returns the link of a commit, if the scenario has one.
    pub(crate) fn link_of(&self, commit: u8) -> Option<u8> {
        let parents = self.objects.iter().filter_map(|object| object.parent);
        parents.filter(|parent| parent.commit == commit).find_map(|parent| parent.link)
    }

    /// Returns what commits reach. A parent that is forgotten, or not in the store, leads to its
    /// link.
    pub(crate) fn reached(
        &self,
        commits: Objects,
        present: Objects,
        forgotten: Objects,
    ) -> Objects {
        let (mut reached, mut left) = (0, commits);
        while left != 0 {
            let object = left.trailing_zeros();
            left &= left - 1;
            if reached & (1 << object) != 0 {
                continue;
            }
            reached |= 1 << object;
            let Object { needs, parent } = self.objects[object as usize];
            left |= needs | parent.map_or(0, |parent| 1 << parent.target(present, forgotten));
        }
        reached
    }

    /// Returns what a commit needs and a store lacks, or 0 if the commit is complete. The link of
    /// a parent is as good as the parent.
    pub(crate) fn lacking(&self, commit: u8, present: Objects, forgotten: Objects) -> Objects {
        let links = self.objects.iter().filter_map(|object| object.parent);
        let linked = links
            .filter(|parent| parent.link.is_some_and(|link| present & (1 << link) != 0))
            .fold(0, |linked, parent| linked | 1 << parent.commit);
        self.reached(1 << commit, present, forgotten | linked) & !present
    }
}

impl Parent {
    /// Returns the object that a walk over parents visits.
    fn target(self, present: Objects, forgotten: Objects) -> u8 {
        let is_gone = forgotten & (1 << self.commit) != 0 || present & (1 << self.commit) == 0;
        self.link.filter(|_| is_gone).unwrap_or(self.commit)
    }
}

/// Returns the numbers in a set of packs.
pub(crate) fn bits64(set: u64) -> impl Iterator<Item = usize> {
    bits128(set.into())
}

/// Returns the numbers in a set of index files.
pub(crate) fn bits128(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        next
    })
}
