//! Repacking in garbage collections of a remote store: copies of live objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        id::{ObjectId, PackId},
        kind::ErrorKind,
        observe::Silent,
    },
    disk::Disk,
    format::{gc_state::Phase, pack::ObjectKind},
    repo::Repo,
};
use snap_remote::{
    bucket::Bucket,
    remote_packs::{BlockingContext, RemotePacks},
    transfer::{fetch, partial::PartialScope, push},
};

use crate::{
    gc::{
        Contents, Setting, check_local, clone_part, collect, collect_as, delete, dump, load,
        memory, repacking,
    },
    place::{Draw, Place, Wrapped, complete},
};

/// Calls `meet` with each of these prefixes before the first write of such a key.
fn before_writes(
    service: Arc<dyn Bucket>,
    prefixes: [&'static str; 2],
    meet: impl Fn(&str) + Send + Sync + 'static,
) -> Arc<Wrapped> {
    let (left, meet) = (Mutex::new(Vec::from(prefixes)), Arc::new(meet));
    Wrapped::new(service, move |_, operation, key| {
        let mut left = left.lock();
        let at = left.iter().position(|prefix| operation == "write" && key.starts_with(prefix));
        let prefix = at.map(|at| left.remove(at));
        let meet = Arc::clone(&meet);
        Box::pin(async move {
            if let Some(prefix) = prefix {
                tokio::task::spawn_blocking(move || meet(prefix)).await.unwrap();
            }
            false
        })
    })
}

#[test]
fn a_copy_has_nothing_that_the_state_shadows() {
    // A folder in a partly dead pack has a content in a dead pack. The content is most of that pack,
    // so that pack is not rewritten when the content becomes live.
    let content = Draw(3).bytes(8 << 10);
    let (service, pusher, other, third) =
        (load("dies_again", &BTreeMap::new()), Place::new(), Place::new(), Place::new());
    let first = pusher.change("y", "kept from the start");
    pusher.push(&mut pusher.remote(service.clone(), "remote"), first).unwrap();
    let gone = third.change("g", &content);
    let refs = vec![third.update("gone", gone)];
    third.push_all(&mut third.remote(service.clone(), "remote"), refs).unwrap();
    other.write("z", "a content that main takes over");
    // A folder has the times of its files.
    let write = |place: &Place| {
        place.write("t/h", &content);
        let file = fs_err::File::options().write(true).open(place.folder.path().join("files/t/h"));
        file.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        place.commit()
    };
    let side = write(&other);
    let refs = vec![other.update("side", side)];
    other.push_all(&mut other.remote(service.clone(), "remote"), refs).unwrap();
    let main = pusher.change("z", "a content that main takes over");
    pusher.push(&mut pusher.remote(service.clone(), "remote"), main).unwrap();
    delete(&pusher, service.clone(), "side");
    delete(&pusher, service.clone(), "gone");
    let next = write(&pusher);
    let mut warm = pusher.remote(service.clone(), "warm");
    pusher.runtime.block_on(warm.refresh()).unwrap();
    // The push has only a commit and its root folder to send.
    assert_eq!(pusher.plan(&mut warm, next).objects, 2);
    // A push takes the folder over after the fence. The collector dies before it replaces the state.
    let pusher = Arc::new(Mutex::new((pusher, warm)));
    let pushing = Arc::clone(&pusher);
    let met = before_writes(service.clone(), ["refs/heads/main", "-"], move |prefix| {
        if prefix != "-" {
            let (pusher, warm) = &mut *pushing.lock();
            let refs = vec![pusher.update("main", next)];
            pusher.push_all(warm, refs).unwrap().all_moved().unwrap();
        }
    });
    let swaps = Mutex::new(0);
    let dying = Wrapped::new(met, move |_, operation, key| {
        let mut swaps = swaps.lock();
        *swaps += u32::from(operation == "write" && key == "gc/state");
        let dies = *swaps > 1;
        Box::pin(async move { dies })
    });
    collect(dying).unwrap_err();
    let fenced = Contents::read(&*service);
    fenced.check();
    assert_eq!(fenced.state.unwrap().phase, Phase::Fenced);
    // The branch moves back, and the next collector finds the folder dead.
    let (pusher, _) = &*pusher.lock();
    let back = push::RefUpdate { moves: push::AllowedMove::Force, ..pusher.update("main", main) };
    let mut remote = pusher.remote(service.clone(), "back");
    pusher.push_all(&mut remote, vec![back]).unwrap().all_moved().unwrap();
    collect(service.clone()).unwrap();
    Contents::read(&*service).check();
    let refs = vec![pusher.update("main", next)];
    pusher.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
    Contents::read(&*service).check();
    assert_eq!(complete(service, "main"), Some(next));
}

#[test]
fn a_copy_has_what_died_during_the_collection() {
    let setting = Arc::new(Setting::new("dies"));
    let service = memory("dies");
    // Only the branch `more` needs the folder.
    let more = setting.next;
    let refs = vec![setting.pusher.update("more", more)];
    let mut remote = setting.pusher.remote(service.clone(), "more");
    setting.pusher.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
    let meeting = Arc::clone(&setting);
    let met = before_writes(service.clone(), ["refs/heads/more", "objects/"], move |prefix| {
        let (service, pusher) = (memory("dies"), &meeting.pusher);
        match prefix {
            // After the fence, the branch goes.
            "refs/heads/more" => delete(pusher, service, "more"),
            // After the plan, a push relies on what the branch had.
            _ => {
                let refs = vec![pusher.update("again", more)];
                let mut remote = pusher.remote(service, "again");
                pusher.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
            }
        }
    });
    let done = collect(met).unwrap();
    assert!(done.rewritten_packs > 0);
    let bucket = Contents::read(&*service);
    bucket.check();
    assert_eq!(bucket.refs["heads/again"].commit, Some(more));
    assert_eq!(complete(service, "again"), Some(more));
}

/// A collector dies after it has uploaded a copy. Another deletes the copy, while a third writes one
/// with the same objects.
#[test]
fn a_copy_has_no_name_that_is_going() {
    let setting = Setting::new("same_name");
    let service = memory("same_name");
    let dying = Wrapped::new(service.clone(), |_, operation, key| {
        let dies = operation == "write" && key.starts_with("index/");
        Box::pin(async move { dies })
    });
    collect(dying).unwrap_err();
    collect_as(service.clone(), &repacking(false)).unwrap();
    let before = Contents::read(&*service);
    let listed: BTreeSet<_> = before.files.values().flat_map(|(_, packs)| packs).collect();
    let names = before.objects.keys().filter_map(|key| key.strip_prefix("objects/"));
    let orphans: Vec<PackId> = names.map(|name| name.parse().unwrap()).collect();
    let orphans: Vec<_> = orphans.iter().filter(|pack| !listed.contains(pack)).collect();
    let [orphan] = orphans[..] else { panic!("{orphans:?}") };
    collect(service.clone()).unwrap();
    let after = Contents::read(&*service);
    after.check();
    assert!(after.table.going.contains(orphan) && !after.has(orphan));
    assert_eq!((after.packs(), after.garbage()), (3, 0));
    assert_eq!(complete(service, "main"), Some(setting.main));
}

#[test]
fn a_collection_that_only_rewrites_packs_begins_an_epoch() {
    let setting = Setting::new("only_repack");
    let objects = setting.in_many_index_files();
    let service = load("only_repack", &objects);
    collect_as(service.clone(), &repacking(false)).unwrap();
    let before = Contents::read(&*service);
    assert!(before.garbage() > 0);
    let again = collect_as(service.clone(), &repacking(false)).unwrap();
    assert_eq!((again.deleted_packs, Contents::read(&*service).state), (0, before.state));
    let done = collect(service.clone()).unwrap();
    let after = Contents::read(&*service);
    after.check();
    assert_eq!((done.deleted_packs, done.rewritten_packs), (2, 2));
    assert_eq!((after.state.unwrap().epoch, after.garbage()), (2, 0));
    assert_eq!(complete(service, "main"), Some(setting.main));
}

#[test]
fn small_index_files_are_merged() {
    let place = Place::new();
    let service = load("small_files", &BTreeMap::new());
    let mut remote = place.remote(service.clone(), "remote");
    let mut objects = BTreeMap::new();
    for number in 0..9 {
        let commit = place.change(&format!("{number}"), format!("content {number}"));
        place.push(&mut remote, commit).unwrap();
        objects.append(&mut dump(&*service));
    }
    let dead = place.change("dead", "a commit that only a deleted branch has");
    place.push_all(&mut remote, vec![place.update("dead", dead)]).unwrap();
    delete(&place, service.clone(), "dead");
    objects.append(&mut dump(&*service));
    let setting = Setting { objects, ..Setting::new("small_files") };
    let service = load("small_files", &setting.in_many_index_files());
    let before = Contents::read(&*service);
    before.check();
    assert!(before.files.len() >= 10);
    assert_eq!(collect(service.clone()).unwrap().deleted_packs, 1);
    let after = Contents::read(&*service);
    after.check();
    assert_eq!((after.files.len(), after.packs()), (1, 9));
    complete(service, "main").unwrap();
}

#[test]
fn damage_in_a_live_content_stops_a_collection() {
    let setting = Setting::new("broken_content");
    let mut objects = setting.objects.clone();
    let bucket = Contents::read(&*memory("broken_content"));
    let folder = tempfile::tempdir().unwrap();
    let store = bucket.store(folder.path());
    let content = ObjectId::from_bytes(*blake3::hash(b"a content that main takes over").as_bytes());
    for place in store.places(&content).unwrap() {
        let pack = store.pack_id(place.pack).unwrap();
        let frame = *store.open_pack(&pack).unwrap().frame(place.frame).unwrap();
        let bytes = objects.get_mut(&format!("objects/{pack}")).unwrap();
        bytes[frame.offset as usize] ^= 1;
    }
    let service = load("broken_content", &objects);
    let error = collect(service.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(Contents::read(&*service).packs(), bucket.packs());
    // After a repair, a collection finishes the first one.
    load("broken_content", &setting.objects);
    collect(service.clone()).unwrap();
    assert_eq!(complete(service, "main"), Some(setting.main));
}

/// A client has stubs of packs that a collection rewrites. It finds the objects in the new pack.
#[test]
fn a_partial_clone_reads_objects_of_rewritten_packs() {
    let setting = Setting::new("partial_repack");
    let service = memory("partial_repack");
    for reads_first in [false, true] {
        load("partial_repack", &setting.objects);
        let place = Place::new();
        let part = PartialScope { paths: vec![b"y".to_vec()], ..PartialScope::default() };
        let repo = clone_part(&place, service.clone(), part).unwrap();
        collect(service.clone()).unwrap();
        let content =
            ObjectId::from_bytes(*blake3::hash(b"a content that main takes over").as_bytes());
        let mut remote = place.remote(service.clone(), "clone");
        let waiting = BlockingContext::without_stop(place.runtime.handle());
        if reads_first {
            let packs = RemotePacks::new(&remote, waiting.clone());
            let repo = Repo::open(repo.dir(), Disk::default(), &Silent).unwrap();
            let repo = repo.with_remote_frames(Arc::new(packs));
            let read = repo.store().object(&content, ObjectKind::Blob).unwrap();
            assert_eq!(read, b"a content that main takes over");
        }
        let packs = RemotePacks::new(&remote, waiting);
        let repo = Repo::open(repo.dir(), Disk::default(), &Silent).unwrap();
        let repo = repo.with_remote_frames(Arc::new(packs));
        let all = fetch::FetchScope::Everything;
        fetch::run(repo.store(), &mut remote, &all, place.runtime.handle(), &Silent).unwrap();
        check_local(repo.store());
        let read = repo.store().object(&content, ObjectKind::Blob).unwrap();
        assert_eq!(read, b"a content that main takes over");
    }
}
