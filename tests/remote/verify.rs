//! A store elsewhere that lost something: it is noticed, and sent again.

use std::sync::Arc;

use snap_core::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        observe::Silent,
    },
    ops::verify::{Data, Options, Problem},
};
use snap_nettest::{S3Options, S3Server};
use snap_remote::{
    distant::Waiting,
    service::{
        Service, ServiceError, What, When, folder::Folder, memory::Memory, traffic::Traffic,
    },
    store::RemoteError,
    transfer::push,
    verify::{self, Outcome},
};
use snap_testkit::bytes::Corpus;

use crate::place::{Place, Wrapped, bucket, complete};

/// Cache in which the pusher keeps what it knows.
const CACHE: &str = "remote";

/// A store with two commits, each in a pack of its own, that were pushed.
struct There {
    here: Place,
    service: Arc<dyn Service>,
    commits: [CommitId; 2],
    /// The pack that came with the first commit.
    first: PackId,
}

impl There {
    fn new(service: Arc<dyn Service>) -> Self {
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
        let read = self.service.read_whole(&key, 1 << 20);
        self.here.runtime.block_on(read).unwrap().bytes.to_vec()
    }

    fn write(&self, key: &str, bytes: Vec<u8>) {
        let write = self.service.write(key, bytes.into(), When::Always);
        self.here.runtime.block_on(write).unwrap();
    }

    fn remove(&self, key: &str) {
        self.here.runtime.block_on(self.service.remove(key)).unwrap();
    }

    fn verify_in(&self, cache: &str, data: Data) -> Result<Outcome, RemoteError> {
        let remote = self.here.remote(Arc::clone(&self.service), cache);
        let waiting = Waiting::patiently(self.here.runtime.handle());
        verify::run(remote, (&Options { data }, &[]), (&waiting, &Silent))
    }

    fn verify(&self, data: Data) -> Outcome {
        self.verify_in(CACHE, data).unwrap()
    }

    fn push(&self) -> push::Outcome {
        let mut remote = self.here.remote(Arc::clone(&self.service), CACHE);
        self.here.push(&mut remote, self.commits[1]).unwrap()
    }

    /// The next push sends the pack again, and all is there.
    fn is_repaired_by_a_push(&self) {
        let sent = self.push();
        assert!(sent.sent_again > 0 && sent.packs == 1, "{sent:?}");
        let found = self.verify(Data::All);
        assert!(found.is_whole(), "{found:?}");
        assert_eq!(complete(Arc::clone(&self.service), "main"), Some(self.commits[1]));
        let nothing = self.push();
        assert_eq!((nothing.objects, nothing.packs), (0, 0));
    }
}

fn names_path(found: &Outcome, path: &str) -> bool {
    found.found.touched.paths.iter().any(|touched| touched.path == path.as_bytes())
}

fn folder() -> (tempfile::TempDir, Arc<dyn Service>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, Arc::new(Folder::new(path, Arc::default())))
}

fn a_lost_pack_is_noticed(service: Arc<dyn Service>) {
    let there = There::new(service);
    for data in [Data::None, Data::Sample(0.5), Data::All] {
        let found = there.verify(data);
        assert!(found.is_whole(), "{found:?}");
        assert_eq!((found.found.packs, found.found.commits), (2, 2));
        let is_right = match data {
            Data::None => found.found.bytes_read == 0,
            // The frames are chosen by chance.
            Data::Sample(_) => true,
            Data::All => found.found.bytes_read > 600_000,
        };
        assert!(is_right, "{found:?}");
    }
    there.remove(&there.key());
    assert_eq!(there.push().packs, 0, "nobody has told it yet");
    let found = there.verify(Data::None);
    let problems = &found.found.problems;
    assert!(
        matches!(problems[..], [Problem::PackLost { pack }] if pack == there.first),
        "{found:?}"
    );
    assert!(names_path(&found, "old") && !names_path(&found, "new"), "{found:?}");
    assert!(found.found.touched.commits.contains(&there.commits[0]));
    there.is_repaired_by_a_push();
}

#[test]
fn a_lost_pack_is_noticed_in_a_folder_and_sent_again() {
    let (_folder, service) = folder();
    a_lost_pack_is_noticed(service);
}

#[test]
fn a_lost_pack_is_noticed_in_memory_and_sent_again() {
    a_lost_pack_is_noticed(Arc::new(Memory::named("verify_lost", Arc::<Traffic>::default())));
}

#[test]
fn a_lost_pack_is_noticed_in_a_bucket_and_sent_again() {
    let server = S3Server::start(S3Options::default());
    let traffic = Arc::new(Traffic::default());
    a_lost_pack_is_noticed(bucket(&server.endpoint(), &server, &traffic));
}

#[test]
fn a_lost_pack_is_noticed_by_who_knows_nothing_yet() {
    let (_folder, service) = folder();
    let there = There::new(service);
    there.remove(&there.key());
    let found = there.verify_in("fresh", Data::None).unwrap();
    assert!(!found.is_whole());
    // The commit itself is lost, and what came before it is not known.
    assert!(found.found.touched.commits.contains(&there.commits[0]), "{found:?}");
}

#[test]
fn a_flipped_byte_is_found_by_reading_the_data_and_sent_again() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let mut bytes = there.pack();
    bytes[1000] ^= 1;
    there.write(&there.key(), bytes);
    assert!(there.verify(Data::None).is_whole());
    let found = there.verify(Data::All);
    let is_hash = |problem: &Problem| matches!(problem, Problem::PackHash { pack, .. } if *pack == there.first);
    assert!(found.found.problems.iter().any(is_hash), "{found:?}");
    assert!(names_path(&found, "old"), "{found:?}");
    // It stays known until the pack was read and found right.
    assert!(!there.verify(Data::None).is_whole());
    there.is_repaired_by_a_push();
}

#[test]
fn a_flipped_byte_behind_the_frames_is_found() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let mut bytes = there.pack();
    let last = bytes.len() - 30;
    bytes[last] ^= 1;
    there.write(&there.key(), bytes);
    let found = there.verify(Data::All);
    assert!(matches!(found.found.problems[..], [Problem::PackHash { .. }]), "{found:?}");
    there.is_repaired_by_a_push();
}

#[test]
fn a_pack_that_was_cut_short_is_found_by_its_length_and_sent_again() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let mut bytes = there.pack();
    let expected = bytes.len() as u64;
    bytes.truncate(bytes.len() / 2);
    there.write(&there.key(), bytes);
    let found = there.verify(Data::None);
    let length = Problem::PackLength { pack: there.first, expected, found: expected / 2 };
    assert_eq!(found.found.problems[0].to_string(), length.to_string());
    there.is_repaired_by_a_push();
}

#[test]
fn a_pack_that_was_put_back_is_relied_on_again() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let bytes = there.pack();
    there.remove(&there.key());
    assert!(!there.verify(Data::None).is_whole());
    there.write(&there.key(), bytes);
    let found = there.verify(Data::None);
    assert!(found.is_whole(), "{found:?}");
    assert_eq!(found.found.shadowed.withdrawn, 1);
    assert_eq!(there.push().packs, 0);
}

#[test]
fn a_lost_file_of_the_index_is_noticed_and_written_again() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let remote = there.here.remote(Arc::clone(&there.service), CACHE);
    let names = remote.mirror().outlines();
    let (name, _) = names.iter().find(|(_, packs)| packs.contains(&there.first)).unwrap();
    drop(remote);
    there.remove(&format!("index/{name}"));
    let found = there.verify(Data::None);
    assert!(!found.is_whole());
    assert!(found.found.touched.commits.contains(&there.commits[0]), "{found:?}");
    let sent = there.push();
    assert!(sent.objects > 0, "{sent:?}");
    assert!(there.verify(Data::All).is_whole());
    assert_eq!(complete(Arc::clone(&there.service), "main"), Some(there.commits[1]));
}

#[test]
fn a_damaged_file_of_the_index_is_named() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let listed = there.here.runtime.block_on(there.service.list("index/")).unwrap();
    let key = listed[0].key.clone();
    let read = there.here.runtime.block_on(there.service.read_whole(&key, 1 << 20)).unwrap();
    let mut bytes = read.bytes.to_vec();
    bytes[20] ^= 1;
    there.write(&key, bytes);
    // It is known here, and not read again unless that is asked for.
    assert!(there.verify(Data::None).is_whole());
    for found in [there.verify(Data::All), there.verify_in("fresh", Data::None).unwrap()] {
        assert_eq!(found.problems.len(), 1, "{found:?}");
        assert!(found.problems[0].to_string().contains(&key), "{found:?}");
    }
}

#[test]
fn a_ref_that_stands_on_nothing_or_is_garbage_is_named() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let nowhere = CommitId::from_bytes([7; 32]);
    there.write("refs/heads/lost", format!("{nowhere}\n{}\n0\n", "7".repeat(32)).into_bytes());
    there.write("refs/heads/garbage", b"garbage".to_vec());
    let found = there.verify(Data::None);
    assert!(found.problems[0].to_string().contains("refs/heads/garbage"), "{found:?}");
    let is_lost = |problem: &Problem| matches!(problem, Problem::Object { id, .. } if *id == nowhere.object());
    assert!(found.found.problems.iter().any(is_lost), "{found:?}");
    assert!(found.found.touched.commits.contains(&nowhere));
    // The other branch is whole.
    assert!(!found.found.touched.commits.contains(&there.commits[1]));
}

#[test]
fn a_service_that_fails_is_not_taken_for_damage() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let failing: Arc<dyn Service> =
        Wrapped::new(Arc::clone(&there.service), |_, operation, key| {
            let is_pack = operation == "read" && key.starts_with("objects/");
            Box::pin(async move { is_pack })
        });
    let there = There { service: failing, ..there };
    let error = there.verify_in("fresh", Data::All).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Damaged, "{error}");
    let denied =
        |operation, key: &str| ServiceError::new(operation, key, What::Denied, String::new());
    let there = There { service: Wrapped::failing_with(there.service, denied), ..there };
    let error = there.verify_in("fresh", Data::None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[test]
fn where_there_is_no_store_it_is_said() {
    let (_folder, service) = folder();
    let there = There::new(service);
    let (_empty, service) = folder();
    let there = There { service, ..there };
    let error = there.verify_in("fresh", Data::None).unwrap_err();
    assert!(matches!(error, RemoteError::NoStore { .. }), "{error}");
    let error = there.verify_in(CACHE, Data::None).unwrap_err();
    assert!(matches!(error, RemoteError::Emptied { .. }), "{error}");
}
