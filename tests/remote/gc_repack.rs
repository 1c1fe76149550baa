//! Repacking in garbage collections of a remote store: copies of live objects, and chunk lists.

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
    chunk::Params,
    disk::Disk,
    format::{gc_state::Phase, pack::ObjectKind},
    repo::{Config, Repo},
    store::{ChunkVisit, ObjectLocation, StoreError, walk_chunks},
};
use snap_remote::{
    remote_packs::{BlockingContext, RemotePacks},
    service::Service,
    transfer::{fetch, partial::PartialScope, push},
};

use crate::{
    gc::{
        Bucket, Setting, check_local, clone_part, collect, collect_as, delete, dump, load, memory,
        repacking,
    },
    place::{Draw, Place, Wrapped, complete},
};

/// Calls `meet` with each of these prefixes before the first write of such a key.
fn before_writes(
    service: Arc<dyn Service>,
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
    let fenced = Bucket::read(&*service);
    fenced.check();
    assert_eq!(fenced.state.unwrap().phase, Phase::Fenced);
    // The branch moves back, and the next collector finds the folder dead.
    let (pusher, _) = &*pusher.lock();
    let back = push::RefUpdate { moves: push::AllowedMove::Force, ..pusher.update("main", main) };
    let mut remote = pusher.remote(service.clone(), "back");
    pusher.push_all(&mut remote, vec![back]).unwrap().all_moved().unwrap();
    collect(service.clone()).unwrap();
    Bucket::read(&*service).check();
    let refs = vec![pusher.update("main", next)];
    pusher.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
    Bucket::read(&*service).check();
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
    let bucket = Bucket::read(&*service);
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
    let before = Bucket::read(&*service);
    let listed: BTreeSet<_> = before.files.values().flat_map(|(_, packs)| packs).collect();
    let names = before.objects.keys().filter_map(|key| key.strip_prefix("objects/"));
    let orphans: Vec<PackId> = names.map(|name| name.parse().unwrap()).collect();
    let orphans: Vec<_> = orphans.iter().filter(|pack| !listed.contains(pack)).collect();
    let [orphan] = orphans[..] else { panic!("{orphans:?}") };
    collect(service.clone()).unwrap();
    let after = Bucket::read(&*service);
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
    let before = Bucket::read(&*service);
    assert!(before.garbage() > 0);
    let again = collect_as(service.clone(), &repacking(false)).unwrap();
    assert_eq!((again.deleted_packs, Bucket::read(&*service).state), (0, before.state));
    let done = collect(service.clone()).unwrap();
    let after = Bucket::read(&*service);
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
    let before = Bucket::read(&*service);
    before.check();
    assert!(before.files.len() >= 10);
    assert_eq!(collect(service.clone()).unwrap().deleted_packs, 1);
    let after = Bucket::read(&*service);
    after.check();
    assert_eq!((after.files.len(), after.packs()), (1, 9));
    complete(service, "main").unwrap();
}

#[test]
fn damage_in_a_live_content_stops_a_collection() {
    let setting = Setting::new("broken_content");
    let mut objects = setting.objects.clone();
    let bucket = Bucket::read(&*memory("broken_content"));
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
    assert_eq!(Bucket::read(&*service).packs(), bucket.packs());
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

/// Returns a client that cuts contents into chunks of about this length.
fn cutting(average: usize) -> Place {
    let chunk = Params::new(average / 4, average, average * 4).unwrap();
    Place::with_config(&Config { chunk, ..Config::default() })
}

/// Checks that each chunk list on which clients rely has its chunks. Returns the number of lists.
fn check_lists(bucket: &Bucket) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let (store, counted) = (bucket.store(folder.path()), bucket.counted());
    let is_alive = |place: &ObjectLocation, id: &ObjectId| {
        let pack = store.pack_id(place.pack).unwrap();
        counted.contains(&pack) && !bucket.table.is_dead(&pack, id)
    };
    let mut lists = 0;
    for pack in store.packs() {
        for object in store.open_pack(&pack).unwrap().objects().unwrap() {
            let places = store.places(&object.id).unwrap();
            let is_here = |place: &&ObjectLocation| store.pack_id(place.pack) == Some(pack);
            let list = places.iter().filter(is_here).find(|it| it.kind == ObjectKind::ChunkList);
            let Some(list) = list.filter(|list| is_alive(list, &object.id)) else { continue };
            lists += 1;
            let read = |id: &ObjectId, kind| match kind {
                ObjectKind::ChunkList => store.object_at(id, list),
                _ => store.object(id, kind),
            };
            walk_chunks::<StoreError>(object.id, &read, &mut |visit| {
                if let ChunkVisit::Chunks(chunks) = visit {
                    for chunk in chunks {
                        let id = chunk.id.object();
                        let places = store.places(&id)?;
                        assert!(places.iter().any(|place| is_alive(place, &id)), "{id:?}");
                    }
                }
                Ok(())
            })
            .unwrap();
        }
    }
    lists
}

/// Two packs have different chunk lists of the same content.
#[test]
fn each_chunk_list_keeps_its_chunks() {
    let mut objects = BTreeMap::new();
    let large = Draw(7).bytes(3 << 20);
    for (name, average) in [("fine", 64 << 10), ("coarse", 256 << 10)] {
        let service = load("lists_apart", &BTreeMap::new());
        let (with, without) = (cutting(average), cutting(average));
        with.write("large", &large);
        let commit = with.change("side", Draw(average as u64).bytes(2 << 20));
        let refs = vec![with.update("side", commit)];
        with.push_all(&mut with.remote(service.clone(), "remote"), refs).unwrap();
        let commit = without.change("large", &large);
        let refs = vec![without.update(name, commit)];
        without.push_all(&mut without.remote(service.clone(), "remote"), refs).unwrap();
        delete(&with, service.clone(), "side");
        objects.append(&mut dump(&*service));
    }
    let service = load("two_lists", &objects);
    let before = Bucket::read(&*service);
    assert_eq!(check_lists(&before), 4);
    // One pack waits for the next collection.
    let mut freed_bytes = 0;
    for rewritten in [1, 1, 0] {
        let done = collect(service.clone()).unwrap();
        assert_eq!(done.rewritten_packs, rewritten);
        freed_bytes += done.freed_bytes();
        let after = Bucket::read(&*service);
        after.check();
        assert_eq!(check_lists(&after), 2);
    }
    assert!(freed_bytes > 4 << 20, "{freed_bytes}");
}

/// A content is pushed again, cut in another way, after a chunk of its first list was deleted.
#[test]
fn a_chunk_list_without_its_chunks_stays_dead() {
    let service = load("broken_list", &BTreeMap::new());
    let large = Draw(9).bytes(3 << 20);
    let (start, fine, coarse) = (cutting(64 << 10), cutting(64 << 10), cutting(256 << 10));
    let mut remote = coarse.remote(service.clone(), "remote");
    coarse.push(&mut remote, coarse.change("y", "kept from the start")).unwrap();
    let refs = vec![start.update("start", start.change("start", &large[..2 << 20]))];
    start.push_all(&mut start.remote(service.clone(), "remote"), refs).unwrap();
    // The first push to a location may send what is there already.
    let mut fine_remote = fine.remote(service.clone(), "remote");
    fine.push_all(&mut fine_remote, vec![fine.update("fine", fine.change("y", "first"))]).unwrap();
    fine.write("small", Draw(10).bytes(4 << 20));
    let refs = vec![fine.update("fine", fine.change("large", &large))];
    fine.push_all(&mut fine_remote, refs).unwrap();
    let main = coarse.change("small", Draw(10).bytes(4 << 20));
    coarse.push(&mut remote, main).unwrap();
    delete(&fine, service.clone(), "start");
    delete(&fine, service.clone(), "fine");
    assert!(collect_as(service.clone(), &repacking(false)).unwrap().deleted_packs > 0);
    let bucket = Bucket::read(&*service);
    check_lists(&bucket);
    bucket.check();
    let main = coarse.change("large", &large);
    coarse.push(&mut remote, main).unwrap();
    Bucket::read(&*service).check();
    // A pack must die, or no epoch begins.
    for repacks in [false, true] {
        let (name, other) = (format!("{repacks}"), Place::new());
        let refs = vec![other.update(&name, other.change("dead", &name))];
        other.push_all(&mut other.remote(service.clone(), &name), refs).unwrap();
        delete(&other, service.clone(), &name);
        assert!(collect_as(service.clone(), &repacking(repacks)).unwrap().deleted_packs > 0);
        let bucket = Bucket::read(&*service);
        bucket.check();
        assert!(check_lists(&bucket) > 0);
        assert_eq!(complete(service.clone(), "main"), Some(main));
    }
}
