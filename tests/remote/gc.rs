//! Garbage collection of a remote store, alone and beside pushes, pulls and clones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        observe::Silent,
        time::Time,
    },
    disk::Disk,
    format::{
        forgotten::ForgottenTable,
        gc_state::{GcState, Phase},
        gc_table::{GcTable, IndexName},
        outline,
        pack::ObjectKind,
        ref_text::RefText,
        shadow::{Reason, ShadowTable},
    },
    ops::{
        reach,
        verify::{Data, VerifyOptions},
    },
    repo::Repo,
    store::{Marks, ObjectLocation, Store},
};
use snap_nettest::{S3Options, S3Server};
use snap_remote::{
    bucket::{
        Bucket, ConditionalWrites, ListDepth, folder::FolderBucket, memory::MemoryBucket,
        traffic::Traffic,
    },
    gc::{self, OtherClients, RemoteGcOptions, RemoteGcOutcome},
    peer::{Peer, RemoteError, RemoteStore},
    remote_packs::{BlockingContext, RemotePacks},
    transfer::{clone, partial::PartialScope, push},
    verify::{self, SeenRefs},
};

use crate::place::{Place, Wrapped, branch, bucket, complete};

pub(crate) fn memory(name: &str) -> Arc<dyn Bucket> {
    Arc::new(MemoryBucket::named(name))
}

fn collect_with(
    place: &Place,
    remote: &mut RemoteStore,
    options: &RemoteGcOptions,
) -> Result<RemoteGcOutcome, RemoteError> {
    let waiting = BlockingContext::without_stop(place.runtime.handle());
    gc::run(remote, options, &waiting, &Silent)
}

fn collect_in(place: &Place, remote: &mut RemoteStore) -> Result<RemoteGcOutcome, RemoteError> {
    collect_with(place, remote, &RemoteGcOptions::default())
}

/// Options of a collection that rewrites packs, or that leaves garbage in them.
pub(crate) fn repacking(repacks: bool) -> RemoteGcOptions {
    let max_rewritten_bytes = if repacks { None } else { Some(0) };
    RemoteGcOptions { max_rewritten_bytes, ..RemoteGcOptions::default() }
}

/// Collects with a mirror that is new.
pub(crate) fn collect_as(
    service: Arc<dyn Bucket>,
    options: &RemoteGcOptions,
) -> Result<RemoteGcOutcome, RemoteError> {
    let place = Place::new();
    let mut remote = place.remote(service, "remote");
    collect_with(&place, &mut remote, options)
}

pub(crate) fn collect(service: Arc<dyn Bucket>) -> Result<RemoteGcOutcome, RemoteError> {
    collect_as(service, &RemoteGcOptions::default())
}

/// Returns all objects of a service.
pub(crate) fn dump(service: &dyn Bucket) -> BTreeMap<String, Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut objects = BTreeMap::new();
        for object in service.list("", ListDepth::All).await.unwrap() {
            let read = service.get(&object.key, u64::MAX).await.unwrap();
            objects.insert(object.key, read.bytes.to_vec());
        }
        objects
    })
}

/// Returns a service with these objects and no others.
pub(crate) fn load(name: &str, objects: &BTreeMap<String, Vec<u8>>) -> Arc<dyn Bucket> {
    let service = memory(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for object in service.list("", ListDepth::All).await.unwrap() {
            service.delete(&[object.key]).await.unwrap();
        }
        for (key, bytes) in objects {
            service.put(key, bytes.clone().into()).await.unwrap();
        }
    });
    service
}

/// What a bucket holds, read without the code of clients.
pub(crate) struct Contents {
    pub(crate) state: Option<GcState>,
    pub(crate) table: GcTable,
    pub(crate) refs: BTreeMap<String, RefText>,
    /// The packs of each index file, with its epoch.
    pub(crate) files: BTreeMap<String, (u64, BTreeSet<PackId>)>,
    pub(crate) objects: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    pub(crate) fn read(service: &dyn Bucket) -> Self {
        let objects = dump(service);
        let state = objects.get("gc/state").map(|bytes| GcState::decode(bytes).unwrap());
        let table = state.and_then(|state| state.table_name());
        let table = table.map(|name| &objects[&format!("gc/{name}")]);
        let table = table.map(|bytes| GcTable::decode(bytes).unwrap()).unwrap_or_default();
        let below = |prefix: &'static str| {
            let found = objects.iter().filter_map(move |(key, bytes)| {
                Some((key.strip_prefix(prefix)?.to_owned(), bytes.clone()))
            });
            found.collect::<Vec<_>>()
        };
        let refs = below("refs/").into_iter();
        let refs = refs.map(|(name, bytes)| (name, RefText::decode(&bytes).unwrap())).collect();
        let files = below("index/").into_iter().map(|(name, bytes)| {
            let file = outline::decode(&bytes).unwrap();
            let packs = file.outlines.into_iter().map(|outline| outline.id).collect();
            (name, (file.epoch, packs))
        });
        Self { state, table, refs, files: files.collect(), objects }
    }

    pub(crate) fn has(&self, pack: &PackId) -> bool {
        self.objects.contains_key(&format!("objects/{pack}"))
    }

    pub(crate) fn packs(&self) -> usize {
        self.objects.keys().filter(|key| key.starts_with("objects/")).count()
    }

    /// Returns the packs of index files on which a client may rely.
    pub(crate) fn counted(&self) -> BTreeSet<PackId> {
        let epoch = self.state.map_or(0, |state| state.epoch);
        let is_named = |name: &str| {
            name.parse().is_ok_and(|hash| self.table.named.contains(&IndexName::File(hash)))
        };
        let counts =
            |(name, (of, _)): &(&String, &(u64, BTreeSet<PackId>))| *of == epoch || is_named(name);
        let files = self.files.iter().filter(counts);
        files.flat_map(|(_, (_, packs))| packs).copied().collect()
    }

    /// Returns the packs of all index files.
    pub(crate) fn listed(&self) -> BTreeSet<PackId> {
        self.files.values().flat_map(|(_, packs)| packs).copied().collect()
    }

    /// Opens a store of all existing packs that index files list.
    pub(crate) fn store(&self, dir: &std::path::Path) -> Store {
        Store::create(dir, &Disk::scratch()).unwrap();
        for pack in self.listed() {
            if let Some(bytes) = self.objects.get(&format!("objects/{pack}")) {
                let path = dir.join("objects").join(pack.to_string());
                fs_err::write(path, bytes).unwrap();
            }
        }
        let store = Store::open(dir, Disk::scratch(), &Silent).unwrap();
        let shadow = |table: &mut ShadowTable| {
            for (pack, reason, part) in self.table.shadows.entries() {
                table.add(*pack, reason, part.clone());
            }
        };
        store.change_shadows(&shadow).unwrap();
        let forget = |table: &mut ForgottenTable| {
            self.table.forgotten.iter().for_each(|id| table.insert(*id, Time::default()));
        };
        store.change_forgotten(&forget).unwrap();
        store
    }

    /// Returns the number of objects in packs that no ref reaches.
    pub(crate) fn garbage(&self) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let store = self.store(folder.path());
        let marks = Marks::new(&store);
        let mut enter = |id: &ObjectId, _: &ObjectLocation| marks.mark(id);
        for tip in self.refs.values().filter_map(|text| text.commit) {
            reach::visit(&store, &[tip], &mut enter, &Silent).unwrap();
        }
        let is_dead = |id: &ObjectId| !marks.is_marked(id).unwrap();
        let packs = store.packs().into_iter();
        let objects = packs.flat_map(|pack| store.open_pack(&pack).unwrap().objects().unwrap());
        objects.filter(|object| is_dead(&object.id)).count()
    }

    /// Checks that each ref has everything that it refers to. In a swept store, all of it must also
    /// be in copies on which clients rely.
    #[track_caller]
    pub(crate) fn check(&self) {
        let folder = tempfile::tempdir().unwrap();
        let store = self.store(folder.path());
        let counted = self.counted();
        let is_fenced = self.state.is_some_and(|state| state.phase == Phase::Fenced);
        let tips: Vec<CommitId> = self.refs.values().filter_map(|text| text.commit).collect();
        for tip in &tips {
            let marks = Marks::new(&store);
            let mut enter = |id: &ObjectId, _: &ObjectLocation| {
                let places = store.places(id)?;
                let is_alive = |place: &ObjectLocation| {
                    let pack = store.pack_id(place.pack).unwrap();
                    counted.contains(&pack) && !self.table.is_dead(&pack, id)
                };
                assert!(is_fenced || places.iter().any(is_alive), "{id:?} of {tip} is dead");
                marks.mark(id)
            };
            reach::visit(&store, &[*tip], &mut enter, &Silent).unwrap();
        }
        for pack in &self.table.going {
            assert!(
                is_fenced || self.state.is_none() || !self.has(pack) || !counted.contains(pack),
                "{pack} still exists and counts"
            );
        }
    }
}

/// A bucket with garbage, and clients that work in it.
///
/// The branch `main` has a commit. Two packs are dead, and no index file lists one of them. Two
/// others have dead objects beside the same content of `main`. The commit `next` refers to a folder
/// of the dead packs.
pub(crate) struct Setting {
    pub(crate) objects: BTreeMap<String, Vec<u8>>,
    /// The client whose pushes run beside a collection.
    pub(crate) pusher: Place,
    /// A child of the tip of `main`.
    pub(crate) next: CommitId,
    pub(crate) main: CommitId,
    pub(crate) collector: Place,
}

pub(crate) fn delete(place: &Place, service: Arc<dyn Bucket>, name: &str) {
    let remote = place.remote(service, "deleting");
    push::delete(&remote, &branch(name), None, place.runtime.handle()).unwrap();
}

impl Setting {
    pub(crate) fn new(name: &str) -> Self {
        let service = load(name, &BTreeMap::new());
        let (pusher, other, third) = (Place::new(), Place::new(), Place::new());
        let first = pusher.change("y", "kept from the start");
        pusher.push(&mut pusher.remote(service.clone(), "remote"), first).unwrap();
        // A pack whose folder dies, and whose content `z` lives on.
        other.write("z", "a content that main takes over");
        let side = other.change("t/x", "in a folder that nothing refers to");
        let refs = vec![other.update("side", side)];
        other.push_all(&mut other.remote(service.clone(), "remote"), refs).unwrap();
        // A pack that dies.
        let gone = third.change("g/h", "only in a deleted branch");
        let refs = vec![third.update("gone", gone)];
        third.push_all(&mut third.remote(service.clone(), "remote"), refs).unwrap();
        let main = pusher.change("z", "a content that main takes over");
        pusher.push(&mut pusher.remote(service.clone(), "remote"), main).unwrap();
        delete(&pusher, service.clone(), "side");
        delete(&pusher, service.clone(), "gone");
        pusher.write("g/h", "only in a deleted branch");
        let next = pusher.change("t/x", "in a folder that nothing refers to");
        // Another pack with `z`, from a push that ran at the same time as the first one.
        let twin = Place::new();
        twin.write("z", "a content that main takes over");
        let commit = twin.change("u/v", "only in a push that was given up");
        let elsewhere = load(&format!("{name}_twin"), &BTreeMap::new());
        twin.push(&mut twin.remote(elsewhere.clone(), "remote"), commit).unwrap();
        let is_of_pack = |key: &str| key.starts_with("objects/") || key.starts_with("index/");
        let mut objects = dump(&*service);
        objects.extend(dump(&*elsewhere).into_iter().filter(|(key, _)| is_of_pack(key)));
        load(name, &objects);
        let bucket = Contents::read(&*service);
        bucket.check();
        // On a busy machine, a push sends fewer packs that turn out to be needless.
        let listed: BTreeSet<String> =
            bucket.listed().into_iter().map(|pack| format!("objects/{pack}")).collect();
        objects.retain(|key, _| !key.starts_with("objects/") || listed.contains(key));
        // A pack from a push that was killed before it wrote its index file.
        let killed = Place::new();
        let commit = killed.change("k/l", "only in a push that was killed");
        let elsewhere = load(&format!("{name}_killed"), &BTreeMap::new());
        killed.push(&mut killed.remote(elsewhere.clone(), "remote"), commit).unwrap();
        objects.extend(dump(&*elsewhere).into_iter().find(|(key, _)| key.starts_with("objects/")));
        load(name, &objects);
        Self { objects, pusher, next, main, collector: Place::new() }
    }

    /// Merges all index files into one. What a collector writes is then smaller than the file that
    /// it replaces.
    pub(crate) fn in_one_index_file(mut self) -> Self {
        let is_file = |key: &String| key.starts_with("index/");
        let (files, objects) = self.objects.into_iter().partition(|(key, _)| is_file(key));
        self.objects = objects;
        let files: BTreeMap<String, Vec<u8>> = files;
        let outlines = files.values().flat_map(|bytes| outline::decode(bytes).unwrap().outlines);
        let mut outlines: Vec<_> = outlines.collect();
        outlines.sort_by_key(|outline| outline.id);
        let merged = outline::encode(0, &outlines);
        self.objects.insert(format!("index/{}", blake3::hash(&merged)), merged);
        self
    }

    /// Returns a bucket in which each pack has an index file, but which has no dead packs.
    pub(crate) fn in_many_index_files(&self) -> BTreeMap<String, Vec<u8>> {
        let is_file = |key: &String| key.starts_with("index/");
        let files = self.objects.iter().filter(|(key, _)| is_file(key));
        let outlines = files.flat_map(|(_, bytes)| outline::decode(bytes).unwrap().outlines);
        let one = outlines.map(|outline| outline::encode(0, &[outline]));
        let mut objects = self.objects.clone();
        objects.retain(|key, _| !is_file(key));
        objects.extend(one.map(|bytes| (format!("index/{}", blake3::hash(&bytes)), bytes)));
        objects
    }

    /// Opens the remote store of the pusher with a mirror that knows the bucket.
    pub(crate) fn warm(&self, service: Arc<dyn Bucket>, cache: &str) -> RemoteStore {
        let mut remote = self.pusher.remote(service, cache);
        self.pusher.runtime.block_on(remote.refresh()).unwrap();
        remote
    }
}

#[test]
fn a_collection_deletes_what_no_ref_reaches() {
    let setting = Setting::new("deletes");
    let service = memory("deletes");
    let before = Contents::read(&*service);
    let outcome = collect(service.clone()).unwrap();
    let after = Contents::read(&*service);
    after.check();
    // One of them is in no index file.
    assert_eq!((outcome.packs, outcome.deleted_packs), (before.packs() as u64, 4));
    assert_eq!((outcome.rewritten_packs, after.packs()), (2, before.packs() - 3));
    assert_eq!((outcome.left_objects, after.garbage()), (0, 0));
    let bytes = |bucket: &Contents| {
        let packs = bucket.objects.iter().filter(|(key, _)| key.starts_with("objects/"));
        packs.map(|(_, bytes)| bytes.len() as u64).sum::<u64>()
    };
    assert_eq!(outcome.freed_bytes(), bytes(&before) - bytes(&after));
    assert!(outcome.written_bytes > 0);
    assert_eq!(after.state.unwrap().epoch, 1);
    assert_eq!(after.state.unwrap().phase, Phase::Swept);
    assert!(after.refs.values().all(|text| text.epoch == 1));
    assert_eq!(after.objects.keys().filter(|key| key.starts_with("gc/")).count(), 2);
    assert!(String::from_utf8_lossy(&after.objects["config.toml"]).contains("version = 5"));
    assert_eq!(complete(service.clone(), "main"), Some(setting.main));
    // A second collection has nothing to do, and begins no epoch.
    let again = collect(service.clone()).unwrap();
    assert_eq!(again.deleted_packs, 0);
    assert_eq!(Contents::read(&*service).state, after.state);
    // A push with a mirror of the time before sends what is dead again.
    let pushed =
        setting.pusher.push(&mut setting.pusher.remote(service.clone(), "remote"), setting.next);
    assert!(pushed.unwrap().objects >= 5);
    Contents::read(&*service).check();
    assert_eq!(complete(service, "main"), Some(setting.next));
}

/// Runs `first`, and `second` before its call number `at`, or not at all if there are fewer calls.
/// Returns false in that case.
pub(crate) fn interleave(
    service: Arc<dyn Bucket>,
    at: u64,
    first: impl FnOnce(Arc<dyn Bucket>),
    second: impl FnOnce() + Send + 'static,
) -> bool {
    let second: Arc<Mutex<Option<_>>> = Arc::new(Mutex::new(Some(second)));
    let left = Arc::clone(&second);
    let wrapped = Wrapped::new(service, move |number, _, _| {
        let second = if number == at { left.lock().take() } else { None };
        Box::pin(async move {
            if let Some(second) = second {
                tokio::task::spawn_blocking(second).await.unwrap();
            }
            false
        })
    });
    first(wrapped);
    second.lock().is_none()
}

/// Returns a service in which every write of a ref fails.
fn failing_at_refs(service: Arc<dyn Bucket>) -> Arc<Wrapped> {
    Wrapped::new(service, |_, operation, key| {
        let fails = operation == "write" && key.starts_with("refs/");
        Box::pin(async move { fails })
    })
}

/// Returns each number until `run` returns false.
pub(crate) fn while_true(run: impl Fn(u64) -> bool) -> u64 {
    let mut number = 0;
    while run(number) {
        number += 1;
    }
    number
}

#[test]
fn a_collection_at_each_request_of_a_push_loses_nothing() {
    let setting = Setting::new("gc_in_push");
    for (is_warm, repacks) in [(true, true), (false, true), (true, false)] {
        for name in ["main", "new"] {
            let calls = while_true(|at| {
                let service = load("gc_in_push", &setting.objects);
                let cache = format!("{is_warm}_{repacks}_{name}_{at}");
                let push = |wrapped: Arc<dyn Bucket>| {
                    if is_warm {
                        drop(setting.warm(memory("gc_in_push"), &cache));
                    }
                    let mut remote = setting.pusher.remote(wrapped, &cache);
                    let refs = vec![setting.pusher.update(name, setting.next)];
                    let pushed = setting.pusher.push_all(&mut remote, refs).unwrap();
                    pushed.all_moved().unwrap();
                };
                let has_met = interleave(service.clone(), at, push, move || {
                    let service = memory("gc_in_push");
                    collect_as(service.clone(), &repacking(repacks)).unwrap();
                    Contents::read(&*service).check();
                });
                let bucket = Contents::read(&*service);
                bucket.check();
                let text = &bucket.refs[&format!("heads/{name}")];
                assert_eq!(text.commit, Some(setting.next), "{is_warm} {name} {at}");
                if at % 4 == 0 {
                    assert_eq!(complete(service.clone(), name), Some(setting.next));
                    collect(service.clone()).unwrap();
                    Contents::read(&*service).check();
                }
                has_met
            });
            assert!(calls > 5, "{calls}");
        }
    }
}

#[test]
fn a_push_at_each_request_of_a_collection_loses_nothing() {
    let several = Arc::new(Setting::new("push_in_gc"));
    let one = Arc::new(Setting::new("push_in_gc").in_one_index_file());
    for (number, repacks, setting) in [(0, true, &several), (1, true, &one), (2, false, &one)] {
        push_at_each_request_of_a_collection(number, &repacking(repacks), setting);
    }
}

fn push_at_each_request_of_a_collection(
    number: usize,
    options: &RemoteGcOptions,
    setting: &Arc<Setting>,
) {
    for name in ["main", "new"] {
        let calls = while_true(|at| {
            let service = load("push_in_gc", &setting.objects);
            let cache = format!("{number}_{name}_{at}");
            drop(setting.warm(service.clone(), &cache));
            let gc = |wrapped: Arc<dyn Bucket>| {
                let mut remote = setting.collector.remote(wrapped, &cache);
                collect_with(&setting.collector, &mut remote, options).unwrap();
            };
            let (pusher, cache) = (Arc::clone(setting), cache.clone());
            let has_met = interleave(service.clone(), at, gc, move || {
                let service = memory("push_in_gc");
                let mut remote = pusher.pusher.remote(service.clone(), &cache);
                let refs = vec![pusher.pusher.update(name, pusher.next)];
                pusher.pusher.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
                Contents::read(&*service).check();
            });
            let bucket = Contents::read(&*service);
            bucket.check();
            if has_met {
                let text = &bucket.refs[&format!("heads/{name}")];
                assert_eq!(text.commit, Some(setting.next), "{number} {name} {at}");
            }
            has_met
        });
        assert!(calls > 15, "{calls}");
    }
}

/// The index file of the killed push lists its packs, but no ref reaches them. The next push must
/// not rely on what the collection has taken from them.
#[test]
fn a_push_killed_before_its_ref_at_each_request_of_a_collection_loses_nothing() {
    let setting = Arc::new(Setting::new("killed_push_in_gc"));
    let calls = while_true(|at| {
        let service = load("killed_push_in_gc", &setting.objects);
        let cache = format!("killed_push_{at}");
        drop(setting.warm(service.clone(), &cache));
        let gc = |wrapped: Arc<dyn Bucket>| {
            let mut remote = setting.collector.remote(wrapped, &cache);
            collect_in(&setting.collector, &mut remote).unwrap();
        };
        let (killed, cache_of_killed) = (Arc::clone(&setting), cache.clone());
        let has_met = interleave(service.clone(), at, gc, move || {
            let failing = failing_at_refs(memory("killed_push_in_gc"));
            let mut remote = killed.pusher.remote(failing, &cache_of_killed);
            let refs = vec![killed.pusher.update("main", killed.next)];
            let pushed = killed.pusher.push_all(&mut remote, refs);
            assert!(pushed.is_err() || pushed.is_ok_and(|pushed| pushed.all_moved().is_err()));
        });
        Contents::read(&*service).check();
        let mut remote = setting.pusher.remote(service.clone(), &cache);
        let refs = vec![setting.pusher.update("main", setting.next)];
        setting.pusher.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
        let bucket = Contents::read(&*service);
        bucket.check();
        assert_eq!(bucket.refs["heads/main"].commit, Some(setting.next), "{at}");
        has_met
    });
    assert!(calls > 15, "{calls}");
}

#[test]
fn a_collection_that_is_killed_at_each_request_is_finished_by_the_next() {
    let setting = Setting::new("killed_gc");
    let calls = while_true(|at| {
        let service = load("killed_gc", &setting.objects);
        let cache = format!("killed_{at}");
        let failing = Wrapped::failing_from(service.clone(), at);
        let mut remote = setting.collector.remote(failing.clone(), &cache);
        let killed = collect_in(&setting.collector, &mut remote);
        drop(remote);
        Contents::read(&*service).check();
        assert!(killed.is_ok() || failing.calls() > at, "{at}");
        // A push goes on as if nothing had happened.
        if at % 2 == 0 {
            let mut remote = setting.warm(service.clone(), &cache);
            let refs = vec![setting.pusher.update("main", setting.next)];
            setting.pusher.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
            Contents::read(&*service).check();
            assert_eq!(complete(service.clone(), "main"), Some(setting.next));
        }
        collect(service.clone()).unwrap();
        let bucket = Contents::read(&*service);
        bucket.check();
        assert!(bucket.state.is_none_or(|state| state.phase == Phase::Swept));
        failing.calls() > at
    });
    assert!(calls > 15, "{calls}");
}

#[test]
fn a_commit_that_only_a_file_with_a_wrong_name_names_survives_a_collection_killed_at_each_request()
{
    let setting = Setting::new("misnamed_gc");
    let service = load("misnamed_gc", &setting.objects);
    let other = Place::new();
    let extra = other.change("extra", "only a file with a wrong name leads here");
    let refs = vec![other.update("extra", extra)];
    other.push_all(&mut other.remote(service.clone(), "remote"), refs).unwrap();
    let mut objects = dump(&*service);
    let text = objects.remove("refs/heads/extra").unwrap();
    objects.insert("refs/heads/extra.lock".to_owned(), text.clone());
    let calls = while_true(|at| {
        let service = load("misnamed_gc", &objects);
        let failing = Wrapped::failing_from(service.clone(), at);
        let mut remote = setting.collector.remote(failing.clone(), &format!("misnamed_{at}"));
        let killed = collect_in(&setting.collector, &mut remote);
        drop(remote);
        assert!(killed.is_ok() || failing.calls() > at, "{at}");
        Contents::read(&*service).check();
        collect(service.clone()).unwrap();
        let bucket = Contents::read(&*service);
        bucket.check();
        assert_eq!(bucket.objects["refs/heads/extra.lock"], text);
        failing.calls() > at
    });
    assert!(calls > 15, "{calls}");
    // The user gives the file a valid name.
    let mut objects = dump(&*service);
    objects.insert("refs/heads/extra".to_owned(), text.clone());
    assert_eq!(complete(load("misnamed_gc", &objects), "extra"), Some(extra));
    // A commit that is not there, and contents that are not a ref, stop nothing.
    let lost = RefText::new(Some(CommitId::from_bytes([7; 32]))).encode();
    for (key, content) in [("a..b", lost.as_bytes()), (".DS_Store", &[0; 9000]), ("d/._f", b"")] {
        let mut objects = setting.objects.clone();
        objects.insert(format!("refs/heads/{key}"), content.to_vec());
        let outcome = collect(load("misnamed_gc", &objects)).unwrap();
        assert_eq!(outcome.deleted_packs, 4, "{key}");
    }
}

#[test]
fn two_collections_at_once_do_not_disturb_each_other() {
    let setting = Setting::new("two_gcs");
    let collector = Arc::new(Place::new());
    for is_mirror_shared in [false, true] {
        while_true(|at| {
            let service = load("two_gcs", &setting.objects);
            let cache = format!("two_{is_mirror_shared}_{at}");
            let gc = |wrapped: Arc<dyn Bucket>| {
                let mut remote = collector.remote(wrapped, &cache);
                collect_in(&collector, &mut remote).unwrap();
            };
            let other = if is_mirror_shared { Arc::clone(&collector) } else { Place::new().into() };
            let cache = cache.clone();
            let has_met = interleave(service.clone(), at, gc, move || {
                let service = memory("two_gcs");
                let mut remote = other.remote(service.clone(), &cache);
                collect_in(&other, &mut remote).unwrap();
                Contents::read(&*service).check();
            });
            let bucket = Contents::read(&*service);
            bucket.check();
            assert_eq!(bucket.packs(), 3, "{at}");
            has_met
        });
    }
}

/// Checks that each object on which local commands rely has everything that it refers to.
#[track_caller]
pub(crate) fn check_local(store: &Store) {
    for pack in store.packs() {
        for object in store.open_pack(&pack).unwrap().objects().unwrap() {
            if !store.is_alive(&object.id).unwrap() {
                continue;
            }
            let mut enter = |id: &ObjectId, _: &ObjectLocation| {
                assert!(
                    store.is_alive(id)?,
                    "{:?} {:?} needs a dead {id:?}",
                    object.kind,
                    object.id
                );
                Ok(*id == object.id)
            };
            let visited = match object.kind {
                ObjectKind::Commit => {
                    let commit = [CommitId::from_object(object.id)];
                    reach::visit(store, &commit, &mut enter, &Silent)
                }
                ObjectKind::Tree | ObjectKind::ChunkList | ObjectKind::Link => {
                    let start = [(object.id, object.kind)];
                    reach::visit_below(store, &start, &mut enter, &Silent)
                }
                ObjectKind::Blob | ObjectKind::ListPart => Ok(()),
            };
            visited.unwrap_or_else(|error| panic!("{:?} {:?}: {error}", object.kind, object.id));
        }
    }
}

/// Clones all of a remote store.
pub(crate) fn clone_all(place: &Place, service: Arc<dyn Bucket>) -> Result<Repo, RemoteError> {
    clone_part(place, service, PartialScope::default())
}

pub(crate) fn clone_part(
    place: &Place,
    service: Arc<dyn Bucket>,
    part: PartialScope,
) -> Result<Repo, RemoteError> {
    clone_remote(place, place.remote(service, "clone"), part)
}

pub(crate) fn clone_from(
    place: &Place,
    peer: Arc<dyn Peer>,
    part: PartialScope,
) -> Result<Repo, RemoteError> {
    clone_remote(place, place.remote_of(peer, "clone"), part)
}

fn clone_remote(
    place: &Place,
    mut remote: RemoteStore,
    part: PartialScope,
) -> Result<Repo, RemoteError> {
    let waiting = BlockingContext::without_stop(place.runtime.handle());
    let packs = RemotePacks::new(&remote, waiting);
    let dir = place.folder.path().join("store");
    let repo = Repo::open(&dir, Disk::default(), &Silent).unwrap();
    let repo = repo.with_remote_frames(Arc::new(packs.clone()));
    let from = clone::CloneSource { remote: &mut remote, packs: &packs };
    let options = clone::CloneOptions { part, ..clone::CloneOptions::default() };
    let runtime = place.runtime.handle();
    let restore = |_: &clone::CloneOutcome| Ok::<_, RemoteError>(());
    clone::run(repo.store(), from, &options, restore, runtime, &Silent)?;
    Ok(Repo::open(&dir, Disk::default(), &Silent).unwrap())
}

#[test]
fn a_pull_and_a_clone_take_no_dead_objects_as_stored() {
    let setting = Setting::new("readers");
    let service = memory("readers");
    collect_as(service.clone(), &repacking(false)).unwrap();
    let (puller, cloner) = (Place::new(), Place::new());
    let mut remote = puller.remote(service.clone(), "remote");
    assert_eq!(puller.pull(&mut remote, &branch("main")).unwrap(), setting.main);
    check_local(puller.repo.store());
    let cloned = clone_all(&cloner, service).unwrap();
    check_local(cloned.store());
    // The folder lies in a pack that both have read.
    let side = Contents::read(&*load("readers_before", &setting.objects));
    let folder = tempfile::tempdir().unwrap();
    let before = side.store(folder.path());
    let tree = before.commit(&setting.main).unwrap().tree;
    assert!(cloned.store().is_alive(&tree.object()).unwrap());
    let shadows = cloned.store().shadows();
    assert!(shadows.table.entries().all(|(_, reason, _)| reason == Reason::Dead));
    assert!(shadows.table.entries().count() > 0);
    assert!(puller.repo.store().shadows().table.is_empty());
}

#[test]
fn a_collection_at_each_request_of_a_pull_or_clone_loses_nothing() {
    let setting = Setting::new("gc_in_pull");
    for clones in [false, true] {
        let calls = while_true(|at| {
            let service = load("gc_in_pull", &setting.objects);
            let place = Place::new();
            let read = |wrapped: Arc<dyn Bucket>| match clones {
                true => check_local(clone_all(&place, wrapped).unwrap().store()),
                false => {
                    let mut remote = place.remote(wrapped, "remote");
                    assert_eq!(place.pull(&mut remote, &branch("main")).unwrap(), setting.main);
                    check_local(place.repo.store());
                }
            };
            interleave(service, at, read, || {
                collect(memory("gc_in_pull")).unwrap();
            })
        });
        assert!(calls > 5, "{calls}");
    }
}

#[test]
fn a_pull_or_clone_at_each_request_of_a_collection_loses_nothing() {
    let setting = Setting::new("pull_in_gc");
    let main = setting.main;
    for clones in [false, true] {
        while_true(|at| {
            let service = load("pull_in_gc", &setting.objects);
            let gc = |wrapped: Arc<dyn Bucket>| {
                let mut remote = setting.collector.remote(wrapped, &format!("{clones}_{at}"));
                collect_in(&setting.collector, &mut remote).unwrap();
            };
            interleave(service, at, gc, move || {
                let (place, service) = (Place::new(), memory("pull_in_gc"));
                match clones {
                    true => check_local(clone_all(&place, service).unwrap().store()),
                    false => {
                        let mut remote = place.remote(service, "remote");
                        assert_eq!(place.pull(&mut remote, &branch("main")).unwrap(), main);
                        check_local(place.repo.store());
                    }
                }
            })
        });
    }
}

/// A push moves a branch after the fence, to dead objects, and the collector dies before it touches
/// the branch.
#[test]
fn what_a_push_revives_during_a_collection_can_be_pulled_and_cloned() {
    let setting = Setting::new("revived");
    let service = load("revived", &setting.objects);
    let mut remote = setting.warm(service.clone(), "warm");
    // The collector dies at its first touch of a ref.
    let mut collecting = setting.collector.remote(failing_at_refs(service.clone()), "collecting");
    collect_in(&setting.collector, &mut collecting).unwrap_err();
    assert_eq!(Contents::read(&*service).state.unwrap().phase, Phase::Fenced);
    let refs = vec![setting.pusher.update("main", setting.next)];
    setting.pusher.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
    assert_eq!(Contents::read(&*service).refs["heads/main"].epoch, 0);
    let puller = Place::new();
    let mut reading = puller.remote(service.clone(), "remote");
    assert_eq!(puller.pull(&mut reading, &branch("main")).unwrap(), setting.next);
    check_local(puller.repo.store());
    let cloner = Place::new();
    check_local(clone_all(&cloner, service.clone()).unwrap().store());
    collect(service.clone()).unwrap();
    Contents::read(&*service).check();
    assert_eq!(complete(service, "main"), Some(setting.next));
}

#[test]
fn a_damaged_or_missing_folder_stops_a_collection() {
    let setting = Setting::new("broken");
    let service = load("broken", &setting.objects);
    let bucket = Contents::read(&*service);
    let folder = tempfile::tempdir().unwrap();
    let store = bucket.store(folder.path());
    let tree = store.commit(&setting.main).unwrap().tree.object();
    let pack = store.pack_id(store.locate(&tree).unwrap().unwrap().pack).unwrap();
    let key = format!("objects/{pack}");
    let runtime = &setting.pusher.runtime;
    let mut damaged = bucket.objects[&key].clone();
    damaged[20..60].fill(0);
    for content in [Some(damaged), None] {
        let is_there = content.is_some();
        match content {
            Some(bytes) => {
                let write = service.put(&key, bytes.into());
                drop(runtime.block_on(write).unwrap());
            }
            None => runtime.block_on(service.delete(std::slice::from_ref(&key))).unwrap(),
        }
        let before = dump(&*service);
        let error = collect(service.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{is_there} {error}");
        assert_eq!(dump(&*service), before);
    }
}

/// Returns a folder with the content of a bucket, in which all files are `age_secs` old.
fn folder_of(setting: &Setting, age_secs: u64) -> (tempfile::TempDir, Arc<dyn Bucket>) {
    let folder = tempfile::tempdir().unwrap();
    let then = SystemTime::now() - Duration::from_secs(age_secs);
    for (key, bytes) in &setting.objects {
        let path = folder.path().join(key);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, bytes).unwrap();
        fs_err::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    }
    let service = FolderBucket::new(folder.path().to_owned());
    (folder, Arc::new(service))
}

#[test]
fn young_packs_stay_with_what_they_refer_to() {
    let setting = Setting::new("young");
    let hour = 3600;
    let collect = |service: Arc<dyn Bucket>, grace_secs| {
        let place = Place::new();
        let waiting = BlockingContext::without_stop(place.runtime.handle());
        let grace = Duration::from_secs(grace_secs);
        let options = RemoteGcOptions { grace, ..RemoteGcOptions::default() };
        gc::run(&mut place.remote(service, "remote"), &options, &waiting, &Silent)
    };
    let (_folder, service) = folder_of(&setting, hour);
    let kept = collect(service.clone(), 2 * hour).unwrap();
    assert_eq!((kept.deleted_packs, kept.young_packs), (0, 6));
    assert_eq!(Contents::read(&*service).state.unwrap().epoch, 0);
    // One of the dead packs is older than the grace.
    let deleted = collect(service.clone(), hour - 60).unwrap();
    assert_eq!((deleted.deleted_packs, deleted.young_packs), (4, 0));
    Contents::read(&*service).check();
    // The next epoch begins ten minutes later at the earliest, except with a grace of zero.
    let (other, first) = (Place::new(), Place::new());
    let dead = other.change("new", "dead soon");
    let refs = vec![other.update("soon", dead)];
    other.push_all(&mut other.remote(service.clone(), "remote"), refs).unwrap();
    delete(&first, service.clone(), "soon");
    let early = collect(service.clone(), 1).unwrap();
    assert!(early.deleted_packs == 0, "{early:?}");
    assert!(collect(service.clone(), 0).unwrap().deleted_packs > 0);
    Contents::read(&*service).check();
    assert_eq!(complete(service, "main"), Some(setting.main));
    // This service has no times.
    let error = collect(load("young", &setting.objects), hour).unwrap_err();
    assert!(matches!(error, RemoteError::CollectNoTimes { .. }), "{error}");
}

#[test]
fn a_dry_run_writes_nothing() {
    let setting = Setting::new("dry_gc");
    let service = load("dry_gc", &setting.objects);
    let place = Place::new();
    let waiting = BlockingContext::without_stop(place.runtime.handle());
    let options = RemoteGcOptions { dry_run: true, ..RemoteGcOptions::default() };
    let mut remote = place.remote(service.clone(), "remote");
    let planned = gc::run(&mut remote, &options, &waiting, &Silent).unwrap();
    assert_eq!(dump(&*service), setting.objects);
    let done = collect(service).unwrap();
    // The length of the new pack is an estimate.
    assert!(planned.written_bytes > 0);
    assert_eq!(RemoteGcOutcome { written_bytes: done.written_bytes, ..planned }, done);
}

#[test]
fn services_without_conditional_writes_are_collected_only_alone() {
    let setting = Setting::new("alone_gc");
    load("alone_gc", &setting.objects);
    let none = ConditionalWrites::NONE;
    let memory = MemoryBucket::named("alone_gc").with_conditions(none);
    let service: Arc<dyn Bucket> = Arc::new(memory);
    let error = collect(service.clone()).unwrap_err();
    assert!(matches!(error, RemoteError::CollectUnsafe { .. }), "{error}");
    assert_eq!(dump(&*service), setting.objects);
    let place = Place::new();
    let waiting = BlockingContext::without_stop(place.runtime.handle());
    let others = OtherClients::DoNotPush;
    let options = RemoteGcOptions { others, ..RemoteGcOptions::default() };
    let mut remote = place.remote(service.clone(), "remote");
    let done = gc::run(&mut remote, &options, &waiting, &Silent).unwrap();
    assert_eq!(done.deleted_packs, 4);
    Contents::read(&*service).check();
    // A client that knows the store from before moves a branch and creates one.
    let mut pushing = setting.warm(service.clone(), "warm");
    let refs = ["main", "new"].map(|name| setting.pusher.update(name, setting.next));
    setting.pusher.push_all(&mut pushing, refs.into()).unwrap().all_moved().unwrap();
    Contents::read(&*service).check();
}

/// Verifies all data of a bucket with a mirror that is new.
#[track_caller]
pub(crate) fn verify(service: Arc<dyn Bucket>) {
    let place = Place::new();
    let remote = place.remote(service, "verifying");
    let waiting = BlockingContext::without_stop(place.runtime.handle());
    let options = VerifyOptions { data: Data::All };
    let found = verify::run(remote, &options, SeenRefs::default(), &waiting, &Silent).unwrap();
    assert!(found.is_intact(), "{found:?}");
}

#[test]
fn a_collected_bucket_is_verified_and_collected_again() {
    let server = S3Server::start(S3Options::default());
    let setting = Setting::new("s3_gc");
    for (key, bytes) in &setting.objects {
        server.put(&format!("some/prefix/{key}"), bytes.clone());
    }
    let traffic = Arc::new(Traffic::default());
    let service = || bucket(&server.endpoint(), &server, &traffic);
    let collector = Place::new();
    let mut remote = collector.remote_counting(service(), "remote", Arc::clone(&traffic));
    let before = traffic.counts().requests();
    let done = collect_in(&collector, &mut remote).unwrap();
    assert_eq!((done.deleted_packs, done.rewritten_packs), (4, 2));
    let requests = traffic.counts().requests() - before;
    let bucket = Contents::read(&*service());
    bucket.check();
    assert_eq!(bucket.garbage(), 0);
    // Each ref is read once and written once.
    let (refs, packs) = (bucket.refs.len() as u64, done.rewritten_packs);
    assert!(requests <= 2 * refs + 2 * packs + 35, "{requests}");
    verify(service());
    let mut pushing = setting.warm(service(), "warm");
    let refs = ["main", "new"].map(|name| setting.pusher.update(name, setting.next));
    setting.pusher.push_all(&mut pushing, refs.into()).unwrap().all_moved().unwrap();
    Contents::read(&*service()).check();
    verify(service());
    // Nothing is left to do: the settings, the state, three refs and three listings.
    collect_in(&collector, &mut remote).unwrap();
    let before = traffic.counts().requests();
    assert_eq!(collect_in(&collector, &mut remote).unwrap().deleted_packs, 0);
    assert!(traffic.counts().requests() - before <= 12, "{:?}", traffic.counts());
    delete(&setting.pusher, service(), "main");
    delete(&setting.pusher, service(), "new");
    let all = collect_in(&collector, &mut remote).unwrap();
    let bucket = Contents::read(&*service());
    bucket.check();
    assert_eq!((all.packs, bucket.packs()), (all.deleted_packs, 0));
    // The bucket is empty but for its garbage collection. A push fills it again.
    let mut pushing = setting.warm(service(), "warm");
    let refs = vec![setting.pusher.update("main", setting.next)];
    setting.pusher.push_all(&mut pushing, refs).unwrap().all_moved().unwrap();
    let bucket = Contents::read(&*service());
    bucket.check();
    assert!(bucket.table.going.iter().all(|pack| !bucket.has(pack)));
    assert_eq!(complete(service(), "main"), Some(setting.next));
}
