//! A mock of packs that lie elsewhere. It records all requests, and can be offline or
//! return wrong bytes.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        observe::Silent,
    },
    disk::Disk,
    format::pack::{Frame, ObjectClass},
    repo::{RefLogMessage, RefName, Repo},
    store::{RemoteFrameError, RemoteFrames, Store},
};
use snap_testkit::bytes::Corpus;

use crate::{
    bundle::point,
    scratch::{START, Scratch, open},
};

/// The behaviour of the mock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    Offline,
    Short,
    Wrong,
}

/// A request to the mock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Need(PackId, Range<u64>),
    Read(PackId, Range<u64>),
}

/// The mock, with the packs that it has.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    packs: HashMap<PackId, Vec<u8>>,
    mood: Mutex<Mood>,
    events: Mutex<Vec<Event>>,
}

impl RemoteFrames for Elsewhere {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, RemoteFrameError> {
        self.events.lock().push(Event::Read(pack, range.clone()));
        let mut bytes = self.packs[&pack][range.start as usize..range.end as usize].to_vec();
        match *self.mood.lock() {
            Mood::Well => {}
            Mood::Offline => {
                let source = "the server does not respond".into();
                return Err(RemoteFrameError { kind: ErrorKind::Unavailable, source });
            }
            Mood::Short => drop(bytes.pop()),
            Mood::Wrong => bytes[0] ^= 1,
        }
        Ok(bytes)
    }

    fn location(&self, _: PackId) -> Option<String> {
        Some("the pack elsewhere".to_owned())
    }

    fn prefetch(&self, ranges: &[(PackId, Range<u64>)]) {
        let needs = ranges.iter().map(|(pack, range)| Event::Need(*pack, range.clone()));
        self.events.lock().extend(needs);
    }
}

impl Elsewhere {
    /// Makes a mock with the packs of a store.
    pub(crate) fn of(store: &Store) -> Arc<Self> {
        let read = |id: PackId| (id, fs_err::read(store.pack_path(&id)).unwrap());
        let packs = store.packs().into_iter().map(read).collect();
        Arc::new(Self { packs, ..Self::default() })
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    /// Returns the requests since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock())
    }

    /// Returns how often each range was read since the last call.
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

/// Makes three commits, with several data frames in several packs and a chunked file.
/// Returns the newest one.
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

/// Makes stubs of all packs of `from` in `to`, and updates the branch of `to` to `id`.
pub(crate) fn stub(from: &Store, to: &Repo, id: CommitId) {
    let outlines: Vec<_> = from.packs().iter().map(|pack| from.outline(pack).unwrap()).collect();
    to.store().add_stubs(&outlines).unwrap();
    point(to, id);
}

/// Makes a store in which everything of another one lies elsewhere. Returns it with its
/// mock.
pub(crate) fn stubs(from: &Scratch, id: CommitId) -> (Scratch, Arc<Elsewhere>) {
    let to = Scratch::new();
    let repo = from.repo();
    stub(repo.store(), &to.repo(), id);
    (to, Elsewhere::of(repo.store()))
}

/// Opens a store that fetches absent frames from `elsewhere`.
pub(crate) fn reaching(scratch: &Scratch, elsewhere: &Arc<Elsewhere>) -> Repo {
    open(&scratch.store()).with_remote_frames(Arc::clone(elsewhere) as Arc<dyn RemoteFrames>)
}

/// Returns all frames of all partial packs, in order.
pub(crate) fn frames(store: &Store) -> Vec<(PackId, Frame)> {
    let of = |id: PackId| {
        let pack = store.open_pack(&id).unwrap();
        pack.frames().iter().map(|frame| (id, *frame)).collect::<Vec<_>>()
    };
    store.partial_packs().into_iter().flat_map(of).collect()
}

/// Returns the ranges of those frames that have this class.
pub(crate) fn of_class(store: &Store, class: ObjectClass) -> Vec<(PackId, Range<u64>)> {
    let frames = frames(store).into_iter().filter(|(_, frame)| frame.class == class);
    frames.map(|(pack, frame)| (pack, frame.range())).collect()
}

/// Writes a frame into its stub.
pub(crate) fn put(store: &Store, elsewhere: &Elsewhere, pack: &PackId, range: &Range<u64>) {
    let bytes = &elsewhere.bytes(pack)[range.start as usize..range.end as usize];
    store.fill(pack, range.start, bytes).unwrap();
}

/// Receives a history pack by pack, and updates the branch `pulled` to its newest
/// commit.
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
    let change = RefLogMessage { time: START, who: "Ann", reason: "test" };
    to.refs().update(&name, None, Some(id), &change).map_err(|error| error.to_string())
}

/// Asserts that all packs are whole and that the store is undamaged.
#[track_caller]
pub(crate) fn assert_whole(scratch: &Scratch, elsewhere: &Elsewhere) {
    let repo = Repo::open(&scratch.store(), Disk::default(), &Silent).unwrap();
    assert_eq!(repo.store().partial_packs(), []);
    assert_eq!(fs_err::read_dir(scratch.store().join("partial")).unwrap().count(), 0);
    for (id, bytes) in &elsewhere.packs {
        let path = scratch.store().join("objects").join(id.to_string());
        assert!(fs_err::read(path).unwrap() == *bytes, "{id}");
    }
    let options = snap_core::ops::verify::VerifyOptions { data: snap_core::ops::verify::Data::All };
    let outcome = snap_core::ops::verify::run(&repo, &options, &Silent).unwrap();
    assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
    assert_eq!((outcome.partial_packs, outcome.absent_objects), (0, 0));
}
