//! Packs that lie elsewhere, for tests: what is asked of them is written down,
//! and they may be out of reach or come back wrong.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, Mutex},
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        observe::Silent,
    },
    disk::Disk,
    format::pack::{Class, Frame},
    repo::{Change, RefName, Repo},
    store::{Distant, DistantError, Store},
};
use snap_testkit::bytes::Corpus;

use crate::{
    bundle::point,
    scratch::{START, Scratch, open},
};

/// How the place elsewhere behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    Offline,
    Short,
    Wrong,
}

/// What it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Need(PackId, Range<u64>),
    Read(PackId, Range<u64>),
}

/// A place elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    packs: HashMap<PackId, Vec<u8>>,
    mood: Mutex<Mood>,
    events: Mutex<Vec<Event>>,
}

impl Distant for Elsewhere {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, DistantError> {
        self.events.lock().unwrap().push(Event::Read(pack, range.clone()));
        let mut bytes = self.packs[&pack][range.start as usize..range.end as usize].to_vec();
        match *self.mood.lock().unwrap() {
            Mood::Well => {}
            Mood::Offline => {
                let source = "nobody answers".into();
                return Err(DistantError { kind: ErrorKind::Unavailable, source });
            }
            Mood::Short => drop(bytes.pop()),
            Mood::Wrong => bytes[0] ^= 1,
        }
        Ok(bytes)
    }

    fn place(&self, _: PackId) -> Option<String> {
        Some("the pack elsewhere".to_owned())
    }

    fn will_need(&self, ranges: &[(PackId, Range<u64>)]) {
        let needs = ranges.iter().map(|(pack, range)| Event::Need(*pack, range.clone()));
        self.events.lock().unwrap().extend(needs);
    }
}

impl Elsewhere {
    /// A place that has the packs of a store.
    pub(crate) fn of(store: &Store) -> Arc<Self> {
        let read = |id: PackId| (id, fs_err::read(store.pack_path(&id)).unwrap());
        let packs = store.packs().into_iter().map(read).collect();
        Arc::new(Self { packs, ..Self::default() })
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// What was asked since this was last called.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    /// How often each range was read since anybody asked.
    pub(crate) fn reads(&self) -> BTreeMap<(PackId, u64), usize> {
        let mut reads = BTreeMap::new();
        for event in self.take() {
            if let Event::Read(pack, range) = event {
                *reads.entry((pack, range.start)).or_default() += 1;
            }
        }
        reads
    }

    pub(crate) fn bytes(&self, pack: &PackId) -> &[u8] {
        &self.packs[pack]
    }
}

/// Three commits: data of several frames in several packs, and a file that is
/// cut. Returns the newest.
pub(crate) fn history() -> (Scratch, CommitId) {
    let scratch = Scratch::new();
    for n in 0..5 {
        scratch.write(&format!("a/{n}"), Corpus::Random.make_seeded(700_000, n));
    }
    scratch.write("large", Corpus::Random.make_seeded(9 << 20, 100));
    scratch.commit();
    for n in 0..5 {
        scratch.write(&format!("b/deep/er/{n}"), Corpus::Random.make_seeded(700_000, 50 + n));
    }
    scratch.commit();
    scratch.write("b/deep/text", Corpus::Text.make(40_000));
    scratch.write("empty", "");
    let id = scratch.commit().id.unwrap();
    (scratch, id)
}

/// Makes stubs of all packs of `from` in `to`, whose branch then stands at
/// `id`.
pub(crate) fn stub(from: &Store, to: &Repo, id: CommitId) {
    let outlines: Vec<_> = from.packs().iter().map(|pack| from.outline(pack).unwrap()).collect();
    to.store().add_stubs(&outlines).unwrap();
    point(to, id);
}

/// A store in which everything of another lies elsewhere, and where that is.
pub(crate) fn stubs(from: &Scratch, id: CommitId) -> (Scratch, Arc<Elsewhere>) {
    let to = Scratch::new();
    let repo = from.repo();
    stub(repo.store(), &to.repo(), id);
    (to, Elsewhere::of(repo.store()))
}

/// Opens a store that takes from elsewhere what it lacks.
pub(crate) fn reaching(scratch: &Scratch, elsewhere: &Arc<Elsewhere>) -> Repo {
    open(&scratch.store()).with_distant(Arc::clone(elsewhere) as Arc<dyn Distant>)
}

/// All frames of all packs that are partial, in order.
pub(crate) fn frames(store: &Store) -> Vec<(PackId, Frame)> {
    let of = |id: PackId| {
        let pack = store.open_pack(&id).unwrap();
        pack.frames().iter().map(|frame| (id, *frame)).collect::<Vec<_>>()
    };
    store.partial_packs().into_iter().flat_map(of).collect()
}

/// Those of a class.
pub(crate) fn of_class(store: &Store, class: Class) -> Vec<(PackId, Range<u64>)> {
    let frames = frames(store).into_iter().filter(|(_, frame)| frame.class == class);
    frames.map(|(pack, frame)| (pack, frame.range())).collect()
}

/// Puts a frame where it belongs.
pub(crate) fn put(store: &Store, elsewhere: &Elsewhere, pack: &PackId, range: &Range<u64>) {
    let bytes = &elsewhere.bytes(pack)[range.start as usize..range.end as usize];
    store.fill(pack, range.start, bytes).unwrap();
}

/// Takes in a history from elsewhere, pack by pack, and lets the branch
/// `pulled` stand at its newest commit.
pub(crate) fn pull(from: &Scratch, id: CommitId, to: &Repo) -> Result<(), String> {
    let (source, store) = (from.repo(), to.store());
    let outlines: Vec<_> =
        source.store().packs().iter().map(|pack| source.store().outline(pack).unwrap()).collect();
    let told = |error: snap_core::store::StoreError| error.to_string();
    store.add_stubs(&outlines).map_err(told)?;
    for outline in &outlines {
        let bytes = fs_err::read(source.store().pack_path(&outline.id)).unwrap();
        let half = bytes.len() / 2;
        store.fill(&outline.id, half as u64, &bytes[half..]).map_err(told)?;
        store.fill(&outline.id, 0, &bytes[..half]).map_err(told)?;
        store.complete(&outline.id, &Silent).map_err(told)?;
    }
    let name = RefName::branch("pulled").unwrap();
    let change = Change { time: START, who: "Ann", reason: "test" };
    to.refs().update(&name, None, Some(id), &change).map_err(|error| error.to_string())
}

/// Makes every partial pack whole and looks at what that came to.
#[track_caller]
pub(crate) fn assert_whole(scratch: &Scratch, elsewhere: &Elsewhere) {
    let repo = Repo::open(&scratch.store(), Disk::default(), &Silent).unwrap();
    assert_eq!(repo.store().partial_packs(), []);
    assert_eq!(fs_err::read_dir(scratch.store().join("partial")).unwrap().count(), 0);
    for (id, bytes) in &elsewhere.packs {
        let path = scratch.store().join("objects").join(id.to_string());
        assert!(fs_err::read(path).unwrap() == *bytes, "{id}");
    }
    let options = snap_core::ops::verify::Options { data: snap_core::ops::verify::Data::All };
    let outcome = snap_core::ops::verify::run(&repo, &options, &Silent).unwrap();
    assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
    assert_eq!((outcome.partial_packs, outcome.absent_objects), (0, 0));
}
