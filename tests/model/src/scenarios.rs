//! Stores and clients whose interleavings are explored.

use crate::{
    actor::{Actor, Forgetter, Merger},
    collector::{Collector, CollectorStep, Purge},
    local::{LocalCollector, LocalWriter},
    world::{ACTORS, Gc, Object, Objects, Parent, REFS, Ref, State, World},
    writer::Writer,
};

// The objects. The secret lies in a tree of an old commit.
const Y: u8 = 0;
const C0: u8 = 1;
const X: u8 = 2;
const T: u8 = 3;
const W: u8 = 4;
const U: u8 = 5;
const F: u8 = 6;
const LINK: u8 = 7;
const M: u8 = 8;
const SECRET: u8 = 9;
const OLD_TREE: u8 = 10;
const OLD: u8 = 11;
const NEW: u8 = 12;
const LEAK: u8 = 13;
const V: u8 = 14;
const R: u8 = 15;

/// What only the old commit reaches.
const SECRETS: &[u8] = &[OLD, OLD_TREE, SECRET];

const MAIN: usize = 0;
const OTHER: usize = 1;

fn set(objects: &[u8]) -> Objects {
    objects.iter().fold(0, |set, object| set | 1 << object)
}

fn objects() -> Vec<Object> {
    let mut objects = vec![Object::default(); 16];
    let mut needs = |object: u8, needed: &[u8], parent: Option<Parent>| {
        objects[usize::from(object)] = Object { needs: set(needed), parent };
    };
    needs(C0, &[Y], None);
    needs(T, &[X], None);
    // A new commit whose tree lies dead in the store.
    needs(W, &[T], Some(Parent { commit: C0, link: None }));
    // A commit that is forgotten, and its child.
    needs(F, &[U], None);
    needs(M, &[Y], Some(Parent { commit: F, link: Some(LINK) }));
    // Another commit with the tree of the forgotten one.
    needs(V, &[U], Some(Parent { commit: F, link: Some(LINK) }));
    // Another commit with the tree of W.
    needs(R, &[T], None);
    needs(OLD_TREE, &[SECRET], None);
    needs(OLD, &[OLD_TREE], None);
    needs(NEW, &[Y], None);
    // Another user's commit with the secret.
    needs(LEAK, &[OLD_TREE], None);
    objects
}

/// Something to explore.
pub struct Scenario {
    /// What happens.
    pub name: &'static str,
    pub(crate) world: World<Actor>,
    pub(crate) start: State,
    /// True for a local store, which has no index files that others read.
    pub(crate) is_local: bool,
}

/// Makes a store of packs, with one index file for all of them, and lets clients run in it.
struct Builder {
    name: &'static str,
    packs: Vec<Objects>,
    refs: [Option<u8>; REFS],
    forgotten: Objects,
    /// Objects that a collector shadowed and has not swept yet.
    fenced: Objects,
    purged: Objects,
    is_local: bool,
    actors: Vec<Box<dyn Fn(u32, u128) -> Actor>>,
}

impl Builder {
    fn new(name: &'static str, packs: &[&[u8]], refs: [Option<u8>; REFS]) -> Self {
        let packs = packs.iter().map(|objects| set(objects)).collect();
        Self {
            name,
            packs,
            refs,
            forgotten: 0,
            fenced: 0,
            purged: 0,
            is_local: false,
            actors: Vec::new(),
        }
    }

    fn forgotten(mut self, commit: u8) -> Self {
        self.forgotten |= 1 << commit;
        self
    }

    /// Lets the scenario begin after a collector shadowed these objects.
    fn fenced(mut self, objects: &[u8]) -> Self {
        self.fenced = set(objects);
        self
    }

    fn with(mut self, actor: impl Fn(u32, u128) -> Actor + 'static) -> Self {
        self.actors.push(Box::new(actor));
        self
    }

    fn writer(self, target: usize, commit: u8) -> Self {
        self.with(move |gc, files| Actor::Writer(Writer::new(target, commit, gc, files)))
    }

    fn writer_of_two_packs(self, target: usize, commit: u8) -> Self {
        self.with(move |gc, files| {
            let writer = Writer::new(target, commit, gc, files);
            Actor::Writer(Writer { in_two_packs: true, ..writer })
        })
    }

    fn collector(self) -> Self {
        self.with(|_, _| Actor::Collector(Collector::new()))
    }

    fn repacking_collector(self) -> Self {
        self.with(|_, _| Actor::Collector(Collector { repacks: true, ..Collector::new() }))
    }

    fn merger(self) -> Self {
        self.with(|_, _| Actor::Merger(Merger::new(true)))
    }

    fn remover(self) -> Self {
        self.with(|_, _| Actor::Merger(Merger::new(false)))
    }

    fn forget(self, commit: u8) -> Self {
        self.with(move |_, _| Actor::Forgetter(Forgetter::new(commit, false)))
    }

    fn undo(self, commit: u8) -> Self {
        self.with(move |_, _| Actor::Forgetter(Forgetter::new(commit, true)))
    }

    /// A purge of the secret, from its first step.
    fn purge(self) -> Self {
        self.with(|_, _| Actor::Collector(purge()))
    }

    /// A purge that has shadowed the secret and moves the branch next.
    fn fenced_purge(mut self) -> Self {
        self.purged = set(SECRETS);
        self.fenced(SECRETS).with(|gc, _| {
            Actor::Collector(Collector { at: CollectorStep::ListRefs, gc, ..purge() })
        })
    }

    fn deleter(self, target: usize) -> Self {
        self.with(move |_, _| Actor::Deleter(target))
    }

    fn local_writer(mut self, target: usize, commit: u8) -> Self {
        self.is_local = true;
        self.with(move |_, _| Actor::LocalWriter(LocalWriter::new(target, commit)))
    }

    fn local_collector(self, repacks: bool) -> Self {
        self.with(move |_, _| Actor::LocalCollector(LocalCollector::new(repacks)))
    }

    fn build(self) -> Scenario {
        let mut world = World::new(objects());
        let numbers: Vec<_> = self.packs.iter().map(|objects| world.pack(*objects, 0)).collect();
        let packs = numbers.iter().fold(0, |packs, pack| packs | 1 << pack);
        let files = 1 << world.file(0, packs);
        let mut gc = Gc { named: files, forgotten: self.forgotten, ..Gc::default() };
        if self.fenced != 0 {
            gc.epoch = 1;
            gc.version = 1;
            gc.is_fenced = true;
            gc.purged = self.purged;
            for pack in numbers {
                gc.shadow(pack, world.objects_of(pack) & self.fenced);
            }
        }
        let gc = world.gc(gc);
        let refs = self.refs.map(|commit| match commit {
            Some(_) => Ref::Absent.written(commit, 0),
            None => Ref::Absent,
        });
        let done = world.actor(Actor::Done);
        let mut actors = [done; ACTORS];
        for (place, actor) in actors.iter_mut().zip(self.actors) {
            *place = world.actor(actor(gc, files));
        }
        let start = State { files, packs, refs, gc, actors };
        Scenario { name: self.name, world, start, is_local: self.is_local }
    }
}

/// The packs of most scenarios: a live one, a dead one, and one of both.
const MIXED: &[&[u8]] = &[&[C0], &[X], &[T, Y]];

fn mixed(name: &'static str) -> Builder {
    Builder::new(name, MIXED, [Some(C0), None])
}

/// A history of which a commit can be forgotten. `F` lies beside something live.
fn history(name: &'static str) -> Builder {
    Builder::new(name, &[&[M, Y, F], &[U], &[LINK]], [Some(M), None])
}

/// Returns the scenarios that are small enough for every test run.
pub fn small() -> Vec<Scenario> {
    let builders = vec![
        mixed("a push and a collection").writer(MAIN, W).collector(),
        mixed("a push in two packs and a collection").writer_of_two_packs(MAIN, W).collector(),
        mixed("a push and a collection that repacks").writer(MAIN, W).repacking_collector(),
        mixed("two pushes and a collection").writer(MAIN, W).writer(OTHER, W).collector(),
        mixed("a new branch and two collections").writer(OTHER, W).collector().collector(),
        mixed("a push and two collections").writer(MAIN, W).collector().collector(),
        mixed("a push, a collection and a merge of index files")
            .writer(MAIN, W)
            .collector()
            .merger(),
        mixed("a push, a collection and a removal of index files")
            .writer(MAIN, W)
            .collector()
            .remover(),
        mixed("a removal of index files and two collections").collector().collector().remover(),
        Builder::new("two packs with the same object", &[&[C0, Y, X], &[Y, T]], [Some(C0), None])
            .writer(MAIN, W)
            .repacking_collector(),
        Builder::new(
            "a copy of something that dies again",
            &[&[C0, W], &[X], &[T, Y, U]],
            [Some(C0), Some(W)],
        )
        .fenced(&[X, T, U, W])
        .repacking_collector()
        .collector()
        .deleter(OTHER)
        .writer(MAIN, R),
        history("a forget and a collection").forget(F).collector(),
        history("a push, a forget and a collection").writer(OTHER, V).forget(F).collector(),
        history("a branch at a forgotten commit").forgotten(F).writer(OTHER, F).collector(),
        history("an undo of a forget and a collection").forgotten(F).undo(F).collector(),
        history("an undo of a forget, a push and a collection")
            .forgotten(F)
            .undo(F)
            .writer(OTHER, V)
            .collector(),
        history("a commit whose parent is a link").forgotten(F).writer(OTHER, V).collector(),
        secret("a purge and a push of the same tree").writer(OTHER, LEAK).purge(),
        Builder::new("a purge, a push and a collection", &[SECRETS, &[NEW, Y]], [Some(OLD), None])
            .writer(OTHER, LEAK)
            .fenced_purge()
            .collector(),
        secret("a purge and a push to the same branch").writer(MAIN, LEAK).purge(),
        mixed("a commit and a local collection").local_writer(MAIN, W).local_collector(false),
        mixed("a commit and a local collection that repacks")
            .local_writer(MAIN, W)
            .local_collector(true),
        Builder::new(
            "a commit of what two local collections delete",
            &[&[C0, Y], &[W, T, X]],
            [Some(C0), None],
        )
        .local_writer(MAIN, W)
        .local_collector(false)
        .local_collector(false),
        mixed("two commits and two local collections")
            .local_writer(MAIN, W)
            .local_writer(OTHER, W)
            .local_collector(true)
            .local_collector(false),
    ];
    builders.into_iter().map(Builder::build).collect()
}

/// A store with a secret in an old commit.
fn secret(name: &'static str) -> Builder {
    Builder::new(name, &[SECRETS], [Some(OLD), None])
}

fn purge() -> Collector {
    let purge =
        Purge { target: MAIN, old: OLD, new: NEW, added: set(&[NEW, Y]), purged: set(SECRETS) };
    Collector { purge: Some(purge), ..Collector::new() }
}

/// Returns larger scenarios.
pub fn large() -> Vec<Scenario> {
    let builders = vec![
        mixed("a new branch and two collections that repack")
            .writer(OTHER, W)
            .repacking_collector()
            .repacking_collector(),
        mixed("two pushes, a collection and a merge of index files")
            .writer(MAIN, W)
            .writer(OTHER, W)
            .collector()
            .merger(),
        mixed("a merge and a removal of index files, a push and a collection")
            .merger()
            .remover()
            .writer(MAIN, W)
            .collector(),
        history("a forget and two collections").forget(F).collector().collector(),
        history("an undo of a forget and two collections")
            .forgotten(F)
            .undo(F)
            .collector()
            .collector(),
        history("a push, a forget and a collection that repacks")
            .writer(OTHER, V)
            .forget(F)
            .repacking_collector(),
        history("a push, an undo and a collection that repacks")
            .forgotten(F)
            .writer(OTHER, V)
            .undo(F)
            .repacking_collector(),
        secret("a purge from its first step, a push and a collection")
            .writer(OTHER, LEAK)
            .purge()
            .collector(),
    ];
    builders.into_iter().map(Builder::build).collect()
}
