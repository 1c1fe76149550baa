//! A remote store that has lost data: `verify` finds the loss, and a push uploads the data again.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        observe::Silent,
    },
    ops::verify::{Data, RemoteInventory, Rolling, VerifyOptions, VerifyProblem, run_elsewhere},
    store::{RemoteFrameError, RemoteFrames},
};
use snap_nettest::{S3Options, S3Server};
use snap_remote::{
    bucket::{
        Bucket, FailureReason, ListDepth, ServiceError, folder::FolderBucket, memory::MemoryBucket,
        traffic::Traffic,
    },
    peer::RemoteError,
    remote_packs::BlockingContext,
    transfer::push,
    verify::{self, RemoteVerifyOutcome, SeenRefs},
};
use snap_testkit::bytes::Corpus;

use crate::place::{Place, Wrapped, bucket, complete};

/// Cache of the client that pushes.
const CACHE: &str = "remote";

/// A remote store with two commits, each in its own pack.
struct There {
    here: Place,
    service: Arc<dyn Bucket>,
    commits: [CommitId; 2],
    /// The pack of the first commit.
    first: PackId,
}

impl There {
    fn new(service: Arc<dyn Bucket>) -> Self {
        let here = Place::new();
        let push = |commit| {
            let mut remote = here.remote(Arc::clone(&service), CACHE);
            here.push(&mut remote, commit).unwrap();
            remote.mirror().store().packs()
        };
        here.write("old/file", Corpus::Random.make_seeded(300_000, 1));
        let one = here.commit();
        let first = push(one)[0];
        here.write("new/file", Corpus::Random.make_seeded(300_000, 2));
        let two = here.commit();
        assert_eq!(push(two).len(), 2);
        Self { here, service, commits: [one, two], first }
    }

    fn key(&self) -> String {
        format!("objects/{}", self.first)
    }

    fn pack(&self) -> Vec<u8> {
        let key = self.key();
        let read = self.service.get(&key, 1 << 20);
        self.here.runtime.block_on(read).unwrap().bytes.to_vec()
    }

    fn write(&self, key: &str, bytes: Vec<u8>) {
        let write = self.service.put(key, bytes.into());
        self.here.runtime.block_on(write).unwrap();
    }

    fn remove(&self, key: &str) {
        self.here.runtime.block_on(self.service.delete(&[key.to_owned()])).unwrap();
    }

    fn verify_in(&self, cache: &str, data: Data) -> Result<RemoteVerifyOutcome, RemoteError> {
        let remote = self.here.remote(Arc::clone(&self.service), cache);
        let waiting = BlockingContext::without_stop(self.here.runtime.handle());
        verify::run(remote, &VerifyOptions { data }, SeenRefs::default(), &waiting, &Silent)
    }

    fn verify(&self, data: Data) -> RemoteVerifyOutcome {
        self.verify_in(CACHE, data).unwrap()
    }

    fn push(&self) -> push::PushOutcome {
        let mut remote = self.here.remote(Arc::clone(&self.service), CACHE);
        self.here.push(&mut remote, self.commits[1]).unwrap()
    }

    /// Checks that the next push uploads the pack again and repairs the store.
    fn is_repaired_by_a_push(&self) {
        let sent = self.push();
        assert!(sent.sent_again > 0 && sent.packs == 1, "{sent:?}");
        let found = self.verify(Data::All);
        assert!(found.is_intact(), "{found:?}");
        assert_eq!(complete(Arc::clone(&self.service), "main"), Some(self.commits[1]));
        let nothing = self.push();
        assert_eq!((nothing.objects, nothing.packs), (0, 0));
    }
}

fn names_path(found: &RemoteVerifyOutcome, path: &str) -> bool {
    found.found.touched.paths.iter().any(|touched| touched.path == path.as_bytes())
}

fn folder() -> (tempfile::TempDir, Arc<dyn Bucket>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, Arc::new(FolderBucket::new(path)))
}

#[test]
fn a_rolling_check_reads_only_packs_that_are_due() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let rolling = |max_age_secs, budget| {
        let max_age = Duration::from_secs(max_age_secs);
        there.verify(Data::Due(Rolling { max_age, budget })).found
    };
    let some = rolling(3600, Some(Duration::from_nanos(1)));
    assert_eq!((some.due_packs, some.left_packs), (2, 1));
    let rest = rolling(3600, None);
    assert_eq!((rest.due_packs, rest.left_packs), (1, 0));
    assert!(some.bytes_read + rest.bytes_read > 600_000, "{some:?} {rest:?}");
    let nothing = rolling(3600, None);
    assert_eq!((nothing.due_packs, nothing.bytes_read), (0, 0));
    let mut bytes = there.pack();
    bytes[1000] ^= 1;
    there.write(&there.key(), bytes);
    assert!(rolling(3600, None).problems.is_empty(), "the pack is not due yet");
    let found = rolling(0, None);
    assert_eq!((found.due_packs, found.left_packs), (2, 0));
    assert!(!found.problems.is_empty() && found.shadowed.packs == 1, "{found:?}");
    for budget in [None, Some(Duration::from_nanos(1))] {
        let again = rolling(3600, budget);
        assert_eq!((again.due_packs, again.left_packs), (1, 0), "a damaged pack is always due");
        assert!(!again.problems.is_empty(), "{again:?}");
    }
}

#[test]
fn a_rolling_check_treats_a_copied_folder_as_unread() {
    let (dir, service) = folder();
    let there = There::new(service);
    let rolling = || {
        let max_age = Duration::from_secs(3600);
        there.verify(Data::Due(Rolling { max_age, budget: None })).found
    };
    assert_eq!((rolling().due_packs, rolling().due_packs), (2, 0));
    let (one, two) = (dir.path().with_extension("one"), dir.path().with_extension("two"));
    let copied = Command::new("cp").arg("-a").arg(dir.path()).arg(&two).status();
    assert!(copied.unwrap().success());
    fs_err::rename(dir.path(), &one).unwrap();
    fs_err::rename(&two, dir.path()).unwrap();
    assert_eq!(rolling().due_packs, 2);
    fs_err::remove_dir_all(one).unwrap();
}

fn a_lost_pack_is_noticed(service: Arc<dyn Bucket>) {
    let there = There::new(service);
    // The sampled frames are random.
    let (any, all) = (0..=u64::MAX, 600_000..=u64::MAX);
    for (data, bytes) in [(Data::None, 0..=0), (Data::Sample(0.5), any), (Data::All, all)] {
        let found = there.verify(data);
        assert!(found.is_intact(), "{found:?}");
        assert_eq!((found.found.packs, found.found.commits), (2, 2));
        assert!(bytes.contains(&found.found.bytes_read), "{found:?}");
    }
    there.remove(&there.key());
    assert_eq!(there.push().packs, 0, "the loss is not known yet");
    let found = there.verify(Data::None);
    let problems = &found.found.problems;
    assert!(
        matches!(problems[..], [VerifyProblem::PackLost { pack }] if pack == there.first),
        "{found:?}"
    );
    assert!(names_path(&found, "old") && !names_path(&found, "new"), "{found:?}");
    assert!(found.found.touched.commits.contains(&there.commits[0]));
    there.is_repaired_by_a_push();
}

#[test]
fn a_lost_pack_in_a_folder_is_detected_and_pushed_again() {
    let (_folder, service) = folder();
    a_lost_pack_is_noticed(service);
}

#[test]
fn a_lost_pack_in_memory_is_detected_and_pushed_again() {
    a_lost_pack_is_noticed(Arc::new(MemoryBucket::named("verify_lost")));
}

#[test]
fn a_lost_pack_in_a_bucket_is_detected_and_pushed_again() {
    let server = S3Server::start(S3Options::default());
    let traffic = Arc::new(Traffic::default());
    a_lost_pack_is_noticed(bucket(&server.endpoint(), &server, &traffic));
}

#[test]
fn a_new_client_detects_a_lost_pack() {
    let (_folder, service) = folder();
    let there = There::new(service);
    there.remove(&there.key());
    let found = there.verify_in("fresh", Data::None).unwrap();
    assert!(!found.is_intact());
    // The commit itself is lost, so its ancestors are unknown.
    assert!(found.found.touched.commits.contains(&there.commits[0]), "{found:?}");
}

#[test]
fn a_flipped_byte_is_detected_by_reading_and_repaired() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let mut bytes = there.pack();
    bytes[1000] ^= 1;
    there.write(&there.key(), bytes);
    assert!(there.verify(Data::None).is_intact());
    let found = there.verify(Data::All);
    let is_hash = |problem: &VerifyProblem| matches!(problem, VerifyProblem::PackHash { pack, .. } if *pack == there.first);
    assert!(found.found.problems.iter().any(is_hash), "{found:?}");
    assert!(names_path(&found, "old"), "{found:?}");
    // The damage stays known until the pack is read again and found intact.
    assert!(!there.verify(Data::None).is_intact());
    there.is_repaired_by_a_push();
}

#[test]
fn a_flipped_byte_in_the_footer_is_detected() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let mut bytes = there.pack();
    let last = bytes.len() - 30;
    bytes[last] ^= 1;
    there.write(&there.key(), bytes);
    let found = there.verify(Data::All);
    assert!(matches!(found.found.problems[..], [VerifyProblem::PackHash { .. }]), "{found:?}");
    there.is_repaired_by_a_push();
}

#[test]
fn a_truncated_pack_is_detected_by_length_and_repaired() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let mut bytes = there.pack();
    let expected = bytes.len() as u64;
    bytes.truncate(bytes.len() / 2);
    there.write(&there.key(), bytes);
    let found = there.verify(Data::None);
    let length = VerifyProblem::PackLength { pack: there.first, expected, found: expected / 2 };
    assert_eq!(found.found.problems[0].to_string(), length.to_string());
    there.is_repaired_by_a_push();
}

#[test]
fn a_restored_remote_pack_is_trusted_again() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let bytes = there.pack();
    there.remove(&there.key());
    assert!(!there.verify(Data::None).is_intact());
    there.write(&there.key(), bytes);
    let found = there.verify(Data::None);
    assert!(found.is_intact(), "{found:?}");
    assert_eq!(found.found.shadowed.withdrawn, 1);
    assert_eq!(there.push().packs, 0);
}

#[test]
fn a_lost_index_file_is_detected_and_rewritten() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let remote = there.here.remote(Arc::clone(&there.service), CACHE);
    let names = remote.mirror().outlines();
    let (name, _) = names.iter().find(|(_, packs)| packs.contains(&there.first)).unwrap();
    drop(remote);
    there.remove(&format!("index/{name}"));
    let found = there.verify(Data::None);
    assert!(!found.is_intact());
    assert!(found.found.touched.commits.contains(&there.commits[0]), "{found:?}");
    let sent = there.push();
    assert!(sent.objects > 0, "{sent:?}");
    assert!(there.verify(Data::All).is_intact());
    assert_eq!(complete(Arc::clone(&there.service), "main"), Some(there.commits[1]));
}

#[test]
fn a_damaged_index_file_is_named() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let listed = there.here.runtime.block_on(there.service.list("index/", ListDepth::All)).unwrap();
    let key = listed[0].key.clone();
    let read = there.here.runtime.block_on(there.service.get(&key, 1 << 20)).unwrap();
    let mut bytes = read.bytes.to_vec();
    bytes[20] ^= 1;
    there.write(&key, bytes);
    // The index file is known here, and read again only on request.
    assert!(there.verify(Data::None).is_intact());
    for found in [there.verify(Data::All), there.verify_in("fresh", Data::None).unwrap()] {
        assert_eq!(found.problems.len(), 1, "{found:?}");
        assert!(found.problems[0].to_string().contains(&key), "{found:?}");
    }
}

#[test]
fn pack_damage_stays_recorded_when_an_index_file_is_lost() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let mut bytes = there.pack();
    bytes[1000] ^= 1;
    there.write(&there.key(), bytes);
    assert!(!there.verify(Data::All).is_intact());
    let remote = there.here.remote(Arc::clone(&there.service), CACHE);
    let names = remote.mirror().outlines();
    let (name, _) = names.iter().find(|(_, packs)| !packs.contains(&there.first)).unwrap();
    drop(remote);
    there.remove(&format!("index/{name}"));
    let found = there.verify(Data::None);
    let is_of_first = |problem: &VerifyProblem| matches!(problem, VerifyProblem::PackHash { pack, .. } if *pack == there.first);
    assert!(found.found.problems.iter().any(is_of_first), "{found:?}");
    there.push();
    let found = there.verify(Data::All);
    assert!(found.is_intact(), "{found:?}");
    assert_eq!(complete(Arc::clone(&there.service), "main"), Some(there.commits[1]));
}

#[test]
fn dangling_and_malformed_refs_are_reported() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let nowhere = CommitId::from_bytes([7; 32]);
    there.write("refs/heads/lost", format!("{nowhere}\n{}\n0\n", "7".repeat(32)).into_bytes());
    there.write("refs/heads/garbage", b"garbage".to_vec());
    let found = there.verify(Data::None);
    assert!(found.problems[0].to_string().contains("refs/heads/garbage"), "{found:?}");
    let is_lost = |problem: &VerifyProblem| matches!(problem, VerifyProblem::Object { id, .. } if *id == nowhere.object());
    assert!(found.found.problems.iter().any(is_lost), "{found:?}");
    assert!(found.found.touched.commits.contains(&nowhere));
    // The other branch is intact.
    assert!(!found.found.touched.commits.contains(&there.commits[1]));
}

#[test]
fn a_failing_service_is_not_reported_as_damage() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let failing: Arc<dyn Bucket> = Wrapped::new(Arc::clone(&there.service), |_, operation, key| {
        let is_pack = operation == "read" && key.starts_with("objects/");
        Box::pin(async move { is_pack })
    });
    let there = There { service: failing, ..there };
    let error = there.verify_in("fresh", Data::All).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Damaged, "{error}");
    let denied = |operation, key: &str| {
        ServiceError::new(operation, key, FailureReason::Denied, String::new())
    };
    let there = There { service: Wrapped::failing_with(there.service, denied), ..there };
    let error = there.verify_in("fresh", Data::None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// Packs of which one is damaged, and cannot be read a second time.
#[derive(Debug)]
struct ReadOnce {
    packs: HashMap<PackId, Vec<u8>>,
    damaged: PackId,
    was_read: AtomicBool,
}

/// The position of a damaged byte of a content in that pack.
const DAMAGED_AT: u64 = 1000;

impl RemoteFrames for ReadOnce {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, RemoteFrameError> {
        let mut bytes = self.packs[&pack][range.start as usize..range.end as usize].to_vec();
        if pack == self.damaged && range.contains(&DAMAGED_AT) {
            if self.was_read.swap(true, SeqCst) {
                let source = "the server does not respond".into();
                return Err(RemoteFrameError { kind: ErrorKind::Unavailable, source });
            }
            bytes[(DAMAGED_AT - range.start) as usize] ^= 1;
        }
        Ok(bytes)
    }

    fn prefetch(&self, _: &[(PackId, Range<u64>)]) {}

    fn keeps_contents(&self) -> bool {
        false
    }
}

#[test]
fn a_write_that_leaves_the_damaged_pack_is_detected() {
    let memory: Arc<dyn Bucket> = Arc::new(MemoryBucket::named("keeps a damaged pack"));
    let there = There::new(Arc::clone(&memory));
    let (key, mut damaged) = (there.key(), there.pack());
    damaged[1000] ^= 1;
    there.write(&key, damaged.clone());
    let found = there.verify(Data::All);
    assert!(!found.is_intact(), "{found:?}");
    // Each read sees the old pack, whatever was written.
    let keeping = {
        let (memory, key) = (Arc::clone(&memory), key.clone());
        Wrapped::new(Arc::clone(&memory), move |_, operation, at| {
            let is_kept = operation == "read" && at == key;
            let (memory, key, damaged) = (Arc::clone(&memory), key.clone(), damaged.clone());
            Box::pin(async move {
                if is_kept {
                    memory.put(&key, damaged.into()).await.unwrap();
                }
                false
            })
        })
    };
    let there = There { service: keeping, ..there };
    let mut remote = there.here.remote(Arc::clone(&there.service), CACHE);
    let error = there.here.push(&mut remote, there.commits[1]).unwrap_err();
    assert!(matches!(&error, RemoteError::Damaged { key: at, .. } if *at == key), "{error}");
    // It is still known, so a service that keeps to its word gets the pack again.
    There { service: memory, ..there }.is_repaired_by_a_push();
}

#[test]
fn a_connection_lost_on_a_second_read_is_not_damage() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let store = there.here.repo.store();
    let read = |id: &PackId| fs_err::read(store.pack_path(id)).unwrap();
    let packs: HashMap<_, _> = store.packs().iter().map(|id| (*id, read(id))).collect();
    let lengths = packs.iter().map(|(id, bytes)| (*id, bytes.len() as u64)).collect();
    for data in [Data::All, Data::Sample(1.0)] {
        let remote = there.here.remote(Arc::clone(&there.service), CACHE);
        let stubs = remote.reopen().unwrap().into_store();
        let packs = packs.clone();
        let source = ReadOnce { packs, damaged: there.first, was_read: AtomicBool::default() };
        let tips = [there.commits[1]];
        let elsewhere = RemoteInventory {
            tips: &tips,
            seen: &[],
            lengths: &lengths,
            at_origin: &HashSet::new(),
            source: &source,
            identity: "-",
        };
        let found = run_elsewhere(&stubs, &elsewhere, &VerifyOptions { data }, &Silent);
        let error = found.map(|found| found.problems).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{data:?}: {error}");
        assert!(!stubs.has_shadows(), "{data:?}");
    }
}

#[test]
fn a_missing_remote_store_is_reported() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let (_empty, service) = folder();
    let there = There { service, ..there };
    let error = there.verify_in("fresh", Data::None).unwrap_err();
    assert!(matches!(error, RemoteError::NoStore { .. }), "{error}");
    let error = there.verify_in(CACHE, Data::None).unwrap_err();
    assert!(matches!(error, RemoteError::Emptied { .. }), "{error}");
}
