//! Prefetch hints before reads of packs that lie elsewhere, lists of what is absent,
//! and the errors when it cannot be fetched.

use std::collections::BTreeSet;

use snap_core::{
    base::{
        id::{CommitId, ContentId, PackId},
        kind::ErrorKind,
        observe::Silent,
    },
    format::{
        pack::ObjectClass,
        tree::{Entry, EntryKind},
    },
    ops::{
        bundle::pack,
        cat, diff, export, find,
        list::{self, ListDepth as Listed},
        missing_objects::{self, FetchRequest, HistoryDepth},
        reach,
        restore::{self, RestoreError, RestoreSource},
    },
    repo::{Repo, path},
    store::{Marks, Store, StoreError},
};

use crate::{
    bundle::{packed, taken},
    elsewhere::{Elsewhere, Event, Mood, frames, history, of_class, put, reaching, stubs},
    scratch::{Scratch, assert_restores, temporary},
};

type Ranges = BTreeSet<(PackId, u64, u64)>;

fn set(ranges: impl IntoIterator<Item = (PackId, std::ops::Range<u64>)>) -> Ranges {
    ranges.into_iter().map(|(pack, range)| (pack, range.start, range.end)).collect()
}

/// Asserts that every read was announced before, and nothing was announced twice.
/// Returns the ranges that were read, and the number of announcements before the first
/// read.
#[track_caller]
fn assert_announced(elsewhere: &Elsewhere) -> (Ranges, usize) {
    let (mut announced, mut read, mut ahead) = (Ranges::new(), Ranges::new(), 0);
    for event in elsewhere.take() {
        match event {
            Event::Need(pack, range) => {
                let new = announced.insert((pack, range.start, range.end));
                assert!(new, "{range:?} was announced twice");
                ahead += usize::from(read.is_empty());
            }
            Event::Read(pack, range) => {
                let key = (pack, range.start, range.end);
                assert!(announced.contains(&key), "{range:?} was read and not announced");
                assert!(read.insert(key), "{range:?} was read twice");
            }
        }
    }
    (read, ahead)
}

fn tree(store: &Store, id: CommitId) -> snap_core::base::id::TreeId {
    store.commit(&id).unwrap().tree
}

fn entry(store: &Store, id: CommitId, at: &str) -> Entry {
    match path::resolve_path(store, tree(store, id), at.as_bytes()).unwrap() {
        path::ResolvedPath::Entry(entry) => entry,
        found => panic!("{found:?}"),
    }
}

fn blob(store: &Store, id: CommitId, at: &str) -> ContentId {
    match entry(store, id, at).kind {
        EntryKind::File { id, .. } => id,
        kind => panic!("{kind:?}"),
    }
}

/// Makes a store in which only contents lie elsewhere.
fn with_structure() -> (Scratch, Scratch, std::sync::Arc<Elsewhere>, CommitId) {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = scratch.repo();
    for (pack, range) in of_class(repo.store(), ObjectClass::Metadata) {
        put(repo.store(), &elsewhere, &pack, &range);
    }
    (from, scratch, elsewhere, id)
}

#[test]
fn the_first_metadata_read_prefetches_all_metadata_of_a_pack() {
    let (from, id) = history();
    for n in 0..3000 {
        from.write(&format!("{}/{n:04}-{}", n % 60, "x".repeat(200)), format!("{n}"));
    }
    let id = from.commit().id.unwrap_or(id);
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    repo.store().commit(&id).unwrap();
    let place = repo.store().locate(&id.object()).unwrap().unwrap();
    let pack = repo.store().pack_id(place.pack).unwrap();
    let metadata = of_class(repo.store(), ObjectClass::Metadata);
    let own: Vec<_> = metadata.iter().filter(|(of, _)| *of == pack).cloned().collect();
    assert!(own.len() > 2, "{} frames of metadata", own.len());
    let events = elsewhere.take();
    let needs = events.iter().filter_map(|event| match event {
        Event::Need(pack, range) => Some((*pack, range.clone())),
        Event::Read(..) => None,
    });
    assert_eq!(set(needs), set(own));
    assert!(matches!(events.last(), Some(Event::Read(..))));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Read(..))).count(), 1);
}

#[test]
fn walks_read_each_metadata_frame_once_and_no_data() {
    type Walk = fn(&Repo, CommitId);
    let walks: [(&str, Walk); 4] = [
        ("list", |repo, id| {
            let root = tree(repo.store(), id);
            list::run(repo.store(), root, b"", Listed::All, &Silent, &mut |_, _| Ok(())).unwrap();
        }),
        ("find", |repo, id| {
            let options = find::FindOptions::new(b"*e*");
            let mut each = |_: &find::FoundPath| Ok::<_, snap_core::repo::PastError>(());
            let outcome = find::run(repo.store(), &[id], &options, &Silent, &mut each).unwrap();
            assert!(outcome.paths > 2);
        }),
        ("reach", |repo, id| {
            let marks = Marks::new(repo.store());
            let mut enter = |id: &_, _: &_| marks.mark(id);
            reach::visit(repo.store(), &[id], &mut enter, &Silent).unwrap();
        }),
        ("diff", |repo, id| {
            let first = repo.store().commit(&id).unwrap().parents[0];
            let (old, new) = (tree(repo.store(), first), tree(repo.store(), id));
            let mut changes = 0;
            let mut each = |_| {
                changes += 1;
                Ok(())
            };
            let new = diff::New::Tree(Some(new));
            diff::run(
                repo.store(),
                Some(old),
                &new,
                &diff::DiffOptions::default(),
                &Silent,
                &mut each,
            )
            .unwrap();
            assert!(changes >= 2);
        }),
    ];
    let (from, id) = history();
    for (name, walk) in walks {
        let (scratch, elsewhere) = stubs(&from, id);
        let repo = reaching(&scratch, &elsewhere);
        walk(&repo, id);
        let (read, ahead) = assert_announced(&elsewhere);
        let metadata = set(of_class(repo.store(), ObjectClass::Metadata));
        assert!(!read.is_empty() && read.is_subset(&metadata), "{name}");
        assert!(ahead > 0, "{name}");
    }
}

#[test]
fn contents_are_prefetched_before_the_first_is_read() {
    let (from, scratch, elsewhere, id) = with_structure();
    let data = set(of_class(scratch.repo().store(), ObjectClass::Data));
    let repo = reaching(&scratch, &elsewhere);
    assert_restores(&repo, id, &from.source(), &scratch.path("target"));
    let (read, ahead) = assert_announced(&elsewhere);
    assert_eq!(read, data);
    assert_eq!(ahead, data.len(), "one window: all ranges are announced before the first read");

    let (_, scratch, elsewhere, id) = with_structure();
    let repo = reaching(&scratch, &elsewhere);
    let data = set(of_class(repo.store(), ObjectClass::Data));
    let what = RestoreSource::Folder { tree: tree(repo.store(), id), root: None };
    let options =
        export::ExportOptions { scratch: &scratch.path("."), ..export::ExportOptions::default() };
    export::run(repo.store(), &what, &mut std::io::sink(), &options, &Silent).unwrap();
    let (read, ahead) = assert_announced(&elsewhere);
    assert_eq!(read, data);
    assert!(ahead >= data.len() / 2, "{ahead}");

    let (_, scratch, elsewhere, id) = with_structure();
    let repo = reaching(&scratch, &elsewhere);
    let data = set(of_class(repo.store(), ObjectClass::Data));
    let large = blob(repo.store(), id, "large");
    let outcome = cat::run(repo.store(), &large, None, &mut std::io::sink(), &Silent).unwrap();
    assert_eq!(outcome.bytes, 9 << 20);
    let (read, ahead) = assert_announced(&elsewhere);
    assert!(read.len() >= 3 && read.is_subset(&data));
    assert_eq!(ahead, read.len());
}

#[test]
fn local_objects_are_not_prefetched() {
    let (from, scratch, elsewhere, id) = with_structure();
    let repo = reaching(&scratch, &elsewhere);
    for pack in repo.store().partial_packs() {
        repo.store().fetch_pack(&pack).unwrap();
    }
    elsewhere.take();
    assert!(!repo.store().may_fetch());
    let mut looked = 0;
    let mut ids = std::iter::repeat_with(|| {
        looked += 1;
        id.object()
    });
    repo.store().prefetch_objects(&mut ids);
    assert_restores(&repo, id, &from.source(), &scratch.path("target"));
    assert_eq!((elsewhere.take(), looked), (Vec::new(), 0));
}

fn everything(commit: CommitId) -> FetchRequest {
    FetchRequest { commit, paths: Vec::new() }
}

#[test]
fn fetching_the_listed_absent_frames_completes_a_commit() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    let store = repo.store();
    let all = missing_objects::find(store, &[everything(id)], HistoryDepth::All, &Silent).unwrap();
    assert_eq!(set(all.clone()), set(of_class(store, ObjectClass::Data)));
    assert_eq!(set(all.clone()).len(), all.len(), "each once");
    let (read, _) = assert_announced(&elsewhere);
    assert!(read.is_subset(&set(of_class(store, ObjectClass::Metadata))), "data is listed only");

    // Only what a path needs and what is not here is listed.
    let path =
        FetchRequest { commit: id, paths: vec![b"b/deep/text".to_vec(), b"no/such".to_vec()] };
    let part = missing_objects::find(store, &[path], HistoryDepth::Commits(1), &Silent).unwrap();
    assert_eq!(part.len(), 1);
    put(store, &elsewhere, &part[0].0, &part[0].1);
    elsewhere.set(Mood::Offline);
    cat::run(store, &blob(store, id, "b/deep/text"), None, &mut std::io::sink(), &Silent).unwrap();
    let rest = missing_objects::find(store, &[everything(id)], HistoryDepth::All, &Silent).unwrap();
    assert_eq!(rest.len(), all.len() - 1);

    // For a folder, the frames of the files in it are listed.
    let folder = FetchRequest { commit: id, paths: vec![b"./b/".to_vec()] };
    let folder = missing_objects::find(store, &[folder], HistoryDepth::All, &Silent).unwrap();
    assert!(folder.len() >= 2 && folder.len() < rest.len(), "{} of {}", folder.len(), rest.len());
    folder.iter().for_each(|(pack, range)| put(store, &elsewhere, pack, range));
    let (what, target) =
        (RestoreSource::Entry(Box::new(entry(store, id, "b"))), scratch.path("folder"));
    restore::run(store, &what, &target, &restore::RestoreOptions::default(), &Silent).unwrap();

    all.iter().for_each(|(pack, range)| put(store, &elsewhere, pack, range));
    assert_eq!(
        missing_objects::find(store, &[everything(id)], HistoryDepth::All, &Silent).unwrap(),
        []
    );
    assert_restores(&scratch.repo(), id, &from.source(), &scratch.path("target"));
}

#[test]
fn a_depth_limit_ends_the_search() {
    let scratch = Scratch::new();
    let mut ids = Vec::new();
    for n in 0..4 {
        let bytes = snap_testkit::bytes::Corpus::Random.make_seeded(50_000, n);
        scratch.write("file", bytes);
        ids.push(scratch.commit().id.unwrap());
    }
    let (partial, elsewhere) = stubs(&scratch, ids[3]);
    let repo = reaching(&partial, &elsewhere);
    for (depth, frames) in [(0, 0), (1, 1), (2, 2), (4, 4), (9, 4)] {
        let wanted = [everything(ids[3])];
        let found =
            missing_objects::find(repo.store(), &wanted, HistoryDepth::Commits(depth), &Silent)
                .unwrap();
        assert_eq!(found.len(), frames, "{depth} commits");
    }
    // The frames of the newest commit come first.
    let all =
        missing_objects::find(repo.store(), &[everything(ids[3])], HistoryDepth::All, &Silent)
            .unwrap();
    let newest = missing_objects::find(
        repo.store(),
        &[everything(ids[3])],
        HistoryDepth::Commits(1),
        &Silent,
    );
    assert_eq!(all[0], newest.unwrap()[0]);
}

#[test]
fn absent_objects_without_a_fetcher_are_unavailable() {
    let (from, id) = history();
    let (scratch, _) = stubs(&from, id);
    let repo = scratch.repo();
    let error = repo.store().commit(&id).unwrap_err();
    assert!(matches!(error, StoreError::Absent { .. }), "{error}");
    assert_eq!((error.kind(), error.damaged_pack()), (ErrorKind::Unavailable, None));
    assert!(error.to_string().ends_with("is not in this store"), "{error}");

    // A restore writes those files of a snapshot whose frames are here.
    let (from, scratch, elsewhere, id) = with_structure();
    let store = scratch.repo();
    let store = store.store();
    let (pack, range) = of_class(store, ObjectClass::Data).pop().unwrap();
    put(store, &elsewhere, &pack, &range);
    let what = RestoreSource::Folder { tree: tree(store, id), root: None };
    let target = scratch.path("target");
    let options = restore::RestoreOptions::default();
    let error = restore::run(store, &what, &target, &options, &Silent).unwrap_err();
    let RestoreError::Damaged { count, outcome, source, .. } = &error else { panic!("{error}") };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(matches!(**source, StoreError::Absent { .. }), "{source}");
    assert!(*count > 3 && outcome.files_written > 0, "{error}");
    drop(from);
}

#[test]
fn an_offline_remote_stops_a_restore_which_can_resume() {
    let (from, scratch, elsewhere, id) = with_structure();
    let repo = reaching(&scratch, &elsewhere);
    let store = repo.store();
    elsewhere.set(Mood::Offline);
    let what = RestoreSource::Folder { tree: tree(store, id), root: None };
    let target = scratch.path("target");
    let options = restore::RestoreOptions::default();
    let error = restore::run(store, &what, &target, &options, &Silent).unwrap_err();
    let RestoreError::Store(inner) = &error else { panic!("{error}") };
    let StoreError::Fetch { source, .. } = &**inner else { panic!("{error}") };
    assert_eq!(
        (error.kind(), source.to_string().as_str()),
        (ErrorKind::Unavailable, "the server does not respond")
    );
    let tries = elsewhere.reads().values().sum::<usize>();
    assert!(tries < frames(store).len(), "{tries} tries");
    elsewhere.set(Mood::Wrong);
    let error = restore::run(store, &what, &target, &options, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let reads = elsewhere.reads();
    assert!(reads.values().all(|reads| *reads <= 2), "a frame was requested twice: {reads:?}");
    elsewhere.set(Mood::Well);
    restore::run(store, &what, &target, &options, &Silent).unwrap();
    assert_restores(&scratch.repo(), id, &from.source(), &scratch.path("again"));
}

#[test]
fn a_bundle_with_absent_prerequisites_is_unpacked() {
    let (from, id) = history();
    from.write("b/deep/next", "next");
    let next = from.commit().id.unwrap();
    let bundle = packed(from.repo().store(), next, &[id]);
    let (old, id) = (from, id);
    for with in [false, true] {
        let scratch = Scratch::new();
        let (source, to) = (old.repo(), scratch.repo());
        let packs = source.store().packs().into_iter().filter(|pack| {
            let place = source.store().locate(&next.object()).unwrap().unwrap();
            Some(*pack) != source.store().pack_id(place.pack)
        });
        let outlines: Vec<_> = packs.map(|pack| source.store().outline(&pack).unwrap()).collect();
        to.store().add_stubs(&outlines).unwrap();
        assert!(to.store().locate(&id.object()).unwrap().is_some());
        let elsewhere = Elsewhere::of(source.store());
        let to = if with { reaching(&scratch, &elsewhere) } else { scratch.repo() };
        let outcome = taken(to.store(), &bundle).unwrap();
        assert_eq!((outcome.commit, outcome.commits), (next, 1));
        assert!(elsewhere.reads().values().sum::<usize>() <= 1, "only the commit may be fetched");
        let reached = reaching(&scratch, &elsewhere);
        assert_restores(&reached, next, &old.source(), &scratch.path("target"));
    }
}

#[test]
fn bundling_fetches_absent_objects() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    elsewhere.set(Mood::Offline);
    let dir = temporary();
    let options = pack::PackOptions { since: Vec::new(), scratch: dir.path(), level: 3 };
    let error = pack::run(repo.store(), id, &options, Vec::new(), &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    elsewhere.set(Mood::Well);
    elsewhere.take();
    // A bundle of a part of the packs, without the first commit and its objects.
    let second = repo.store().commit(&id).unwrap().parents[0];
    let first = repo.store().commit(&second).unwrap().parents[0];
    let part = packed(repo.store(), id, &[first]);
    assert_announced(&elsewhere);
    assert_eq!(repo.store().partial_packs().len(), 1);
    let whole = packed(repo.store(), id, &[]);
    assert_announced(&elsewhere);
    assert_eq!(repo.store().partial_packs(), []);
    assert!(part.len() < whole.len());
    let there = Scratch::new();
    assert_eq!(taken(there.repo().store(), &whole).unwrap().commit, id);
    assert_restores(&there.repo(), id, &from.source(), &there.path("target"));
}
