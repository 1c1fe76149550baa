//! A pack of a remote store is lost or damaged, and another pack holds its objects, too.

use std::{process::Command, sync::Arc};

use snap_core::{
    base::{id::CommitId, kind::ErrorKind, observe::Silent},
    format::tree::{Entry, EntryKind},
    ops::{cat, repair::RepairRun, verify::Data},
    repo::{
        Repo,
        path::{ResolvedPath, resolve_path},
    },
};
use snap_remote::{
    bucket::{Bucket, ListDepth, folder::FolderBucket},
    reader::{RefSelection, RemoteReader},
    remote_packs::BlockingContext,
    repair::{self, RemoteRepairOptions, RemoteRepairOutcome},
    transfer::partial::PartialScope,
    verify::SeenRefs,
};
use snap_testkit::{bytes::Corpus, compare};

use super::{
    clone::{clone_into, try_restore},
    transfer::{Place, with_each_service},
};

/// Length of a file that is cut into chunks, in bytes.
const LARGE: usize = 5 << 20;

/// Longest object that is copied between services, in bytes.
const OBJECT_BYTES: u64 = 64 << 20;

/// A remote store with two packs that hold the same files. The last commit is in a third one.
struct TwoCopies {
    service: Arc<dyn Bucket>,
    place: Place,
    commit: CommitId,
    /// Keys of the two packs. The first one also holds a file that the last commit lacks.
    packs: [String; 2],
    /// Has read the index before the second pack was uploaded.
    early: Place,
}

impl TwoCopies {
    fn new(service: Arc<dyn Bucket>) -> Self {
        let (place, copy, early) = (Place::new(), Place::new(), Place::new());
        for number in 0..200 {
            place.write(&format!("{}/{number}", number % 7), &format!("content {number}"));
        }
        place.write_bytes("large", &Corpus::Random.make(LARGE));
        // `cp -a` keeps the times, so the trees are the same.
        let files = |place: &Place| place.folder.path().join("files");
        let copied = Command::new("cp").arg("-aT").args([files(&place), files(&copy)]).status();
        assert!(copied.unwrap().success());
        place.write("unneeded", "a file that only the first pack holds");
        push(&place, &service, place.commit());
        let first = one_pack(&place, &service);
        fs_err::remove_file(files(&place).join("unneeded")).unwrap();
        let commit = place.commit();
        push(&place, &service, commit);
        let folder = copy.folder.path().join("remote");
        let other: Arc<dyn Bucket> = Arc::new(FolderBucket::new(folder));
        push(&copy, &other, copy.commit());
        let packs = [first, one_pack(&copy, &other)];
        let there = Self { service, place, commit, packs, early };
        assert_eq!(there.reader(&there.early).repo().store().pack_count(), 2);
        there.copy_packs(&other);
        there
    }

    /// Writes one index file that lists all packs.
    fn merge_index(&self) {
        let mut remote = self.place.remote(Arc::clone(&self.service), Arc::default());
        self.place.runtime.block_on(async {
            // The second push lists the file of the first one, and removes the others.
            for _ in 0..2 {
                remote.refresh().await.unwrap();
                let store = remote.mirror().store();
                remote.publish(store, &store.packs()).await.unwrap();
            }
            assert_eq!(self.service.list("index/", ListDepth::All).await.unwrap().len(), 1);
        });
    }

    fn repair(&self, run: RepairRun) -> RemoteRepairOutcome {
        let open = || Ok(self.place.remote(Arc::clone(&self.service), Arc::default()));
        let scratch = self.place.folder.path();
        let options = RemoteRepairOptions {
            data: Data::None,
            run,
            level: 3,
            scratch,
            seen: SeenRefs::default(),
        };
        let waiting = BlockingContext::without_stop(self.place.runtime.handle());
        repair::run(&open, &|| &[], &options, &waiting, &Silent).unwrap()
    }

    /// Copies the packs of another service, and its index files.
    fn copy_packs(&self, from: &Arc<dyn Bucket>) {
        self.place.runtime.block_on(async {
            for prefix in ["objects/", "index/"] {
                for object in from.list(prefix, ListDepth::All).await.unwrap() {
                    let bytes = from.get(&object.key, OBJECT_BYTES).await.unwrap().bytes;
                    self.service.put(&object.key, bytes.into()).await.unwrap();
                }
            }
        });
    }

    /// Asserts that clients that know nothing yet read the files, each in its own way.
    fn is_read(&self) {
        self.is_restored(&Place::new());

        let there = Place::new();
        let reading = self.reader(&there);
        assert_eq!(content(reading.repo(), self.commit, "3/3"), b"content 3");
        assert!(content(reading.repo(), self.commit, "large") == Corpus::Random.make(LARGE));

        let part = PartialScope { depth: Some(1), paths: vec![b"3".to_vec()] };
        let there = self.cloned(part);
        assert!(content(&there.repo, self.commit, "large") == Corpus::Random.make(LARGE));
        try_restore(&there.repo, self.commit, &there.folder.path().join("files")).unwrap();
        self.has_files(&there);
        self.has_files(&self.cloned(PartialScope { depth: Some(1), paths: Vec::new() }));
    }

    /// Asserts that a client restores the files without a clone.
    fn is_restored(&self, there: &Place) {
        let reading = self.reader(there);
        try_restore(reading.repo(), self.commit, &there.folder.path().join("files")).unwrap();
        self.has_files(there);
    }

    fn has_files(&self, there: &Place) {
        let [here, there] = [&self.place, there].map(|place| place.folder.path().join("files"));
        let options = compare::Options::content_only();
        assert_eq!(compare::compare(&here, &there, &options), Vec::<String>::new());
    }

    fn cloned(&self, part: PartialScope) -> Place {
        let there = Place::new();
        let mut remote = there.remote(Arc::clone(&self.service), Arc::default());
        clone_into(there, &mut remote, part).unwrap().0
    }

    fn reader(&self, there: &Place) -> RemoteReader {
        let waiting = BlockingContext::without_stop(there.runtime.handle());
        let remote = there.remote(Arc::clone(&self.service), Arc::default());
        RemoteReader::open(remote, RefSelection::All, &waiting).unwrap()
    }
}

fn push(place: &Place, service: &Arc<dyn Bucket>, commit: CommitId) {
    place.push(&mut place.remote(Arc::clone(service), Arc::default()), commit).unwrap();
}

/// Returns the key of the only pack.
fn one_pack(place: &Place, service: &Arc<dyn Bucket>) -> String {
    let listed = place.runtime.block_on(service.list("objects/", ListDepth::All)).unwrap();
    let [only] = &listed[..] else { panic!("one pack: {listed:?}") };
    only.key.clone()
}

fn content(repo: &Repo, commit: CommitId, path: &str) -> Vec<u8> {
    let tree = repo.store().commit(&commit).unwrap().tree;
    let found = resolve_path(repo.store(), tree, path.as_bytes()).unwrap();
    let ResolvedPath::Entry(Entry { kind: EntryKind::File { id, .. }, .. }) = found else {
        panic!("{path} is a file");
    };
    let mut bytes = Vec::new();
    cat::run(repo.store(), &id, None, &mut bytes, &Silent).unwrap();
    bytes
}

#[test]
fn a_lost_or_damaged_pack_is_read_from_other_packs() {
    with_each_service("other_copies", &|make| {
        let there = TwoCopies::new(make(&Arc::default()));
        let (runtime, service) = (&there.place.runtime, &there.service);
        let read = |key: &str| runtime.block_on(service.get(key, OBJECT_BYTES)).unwrap();
        let remove = |key: &str| runtime.block_on(service.delete(&[key.to_owned()])).unwrap();
        let write = |key: &str, bytes: Vec<u8>| {
            runtime.block_on(service.put(key, bytes.into())).unwrap();
        };
        for key in &there.packs {
            let right = read(key).bytes;
            remove(key);
            // The first time, its index lists only the lost pack.
            there.is_restored(&there.early);
            there.is_read();
            write(key, right.iter().map(|byte| byte ^ 1).collect());
            there.is_read();
            write(key, right[..9].to_vec());
            there.is_read();
            write(key, right.to_vec());
        }
        // Without any copy, the restore reports the damage.
        there.packs.iter().for_each(|key| remove(key));
        let reading = there.reader(&there.early);
        let folder = there.early.folder.path().join("again");
        let failed = try_restore(reading.repo(), there.commit, &folder);
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Damaged);
    });
}

#[test]
fn a_repair_unlists_a_lost_pack_that_is_not_needed() {
    with_each_service("other_copies_unlisted", &|make| {
        let there = TwoCopies::new(make(&Arc::default()));
        there.merge_index();
        let [_, unneeded] = &there.packs;
        let id = unneeded.trim_start_matches("objects/").parse().unwrap();
        there.place.runtime.block_on(there.service.delete(&[unneeded.to_owned()])).unwrap();
        let listed = |place: &Place| there.reader(place).repo().store().packs();
        assert_eq!(there.repair(RepairRun::Dry).unlisted, [id]);
        assert!(listed(&Place::new()).contains(&id));
        assert_eq!(there.repair(RepairRun::Real).unlisted, [id]);
        let packs = listed(&Place::new());
        assert!(packs.len() == 2 && !packs.contains(&id), "{packs:?}");
        assert_eq!(there.repair(RepairRun::Real).unlisted, []);
        there.is_read();
        // A client that knows the earlier index uploads what the lost pack held.
        let mut remote = there.early.remote(Arc::clone(&there.service), Arc::default());
        there.early.runtime.block_on(remote.refresh()).unwrap();
        assert!(!remote.mirror().store().packs().contains(&id));
    });
}
