//! Pull and clone over faulty networks, and from buckets with wrong data.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use snap_core::base::{
    id::CommitId,
    kind::ErrorKind,
    observe::{Observer, Silent},
};
use snap_nettest::{Fault, Kind, Proxy, Rule, S3Options, S3Server};
use snap_remote::{
    bucket::traffic::Traffic,
    peer::{RemoteError, RemoteStore},
    transfer::{partial::PartialScope, pull},
};
use snap_testkit::bytes::Corpus;

use super::{
    clone::clone_into,
    transfer::{Place, bucket, main_branch},
};

struct There {
    server: S3Server,
    proxy: Proxy,
    commits: Vec<CommitId>,
}

impl There {
    /// Creates five packs of 400 KB.
    fn new() -> Self {
        let server = S3Server::start(S3Options::default());
        let proxy = Proxy::start(&server.endpoint());
        let here = Place::new();
        let traffic = Arc::new(Traffic::default());
        let mut commits = Vec::new();
        for round in 0..5_u64 {
            here.write_bytes(&format!("file{round}"), &Corpus::Random.make_seeded(400_000, round));
            commits.push(here.commit());
            let service = bucket(&server.endpoint(), &server, &traffic);
            let mut remote = here.remote(service, Arc::clone(&traffic));
            here.push(&mut remote, commits[round as usize]).unwrap();
        }
        Self { server, proxy, commits }
    }

    fn remote(&self, place: &Place) -> RemoteStore {
        let traffic = Arc::new(Traffic::default());
        place.remote(bucket(&self.proxy.endpoint(), &self.server, &traffic), traffic)
    }

    fn packs(&self) -> Vec<String> {
        let keys = self.server.keys().into_iter();
        keys.filter(|key| key.contains("/objects/")).collect()
    }
}

fn is_empty(place: &Place) -> bool {
    let packs = fs_err::read_dir(place.repo.dir().join("objects")).unwrap().count();
    packs == 0 && place.repo.store().packs().is_empty()
}

#[test]
fn a_pull_and_a_clone_over_a_bad_network_are_complete() {
    let there = There::new();
    let all = [
        Rule::new(Fault::Reset).chance(0.3, 1).times(6),
        Rule::new(Fault::LoseReply).chance(0.3, 2).times(6),
        Rule::new(Fault::Truncate).path("objects/").times(2),
        Rule::new(Fault::FlipReply).path("objects/").times(1),
        Rule::new(Fault::LengthenReply).path("objects/").times(2),
        Rule::new(Fault::FlipReply).path("index/").times(1),
        Rule::new(Fault::retry_after(503, 1)).path("objects/").times(2),
        Rule::new(Fault::status(500)).kind(Kind::List).times(1),
        Rule::new(Fault::Delay(Duration::from_millis(20))),
    ];
    for rule in all {
        there.proxy.add(rule);
        let place = Place::new();
        let came = place.pull(&mut there.remote(&place)).unwrap();
        assert_eq!(came.commit, there.commits[4]);
        assert_eq!(came.added.packs, 5);
        there.proxy.clear_rules();
    }
    let rules = [
        Rule::new(Fault::Reset).chance(0.3, 3).times(6),
        Rule::new(Fault::Truncate).path("objects/").times(2),
        Rule::new(Fault::FlipReply).path("objects/").times(1),
        Rule::new(Fault::LengthenReply).path("objects/").times(2),
        Rule::new(Fault::FlipReply).path("index/").times(1),
        Rule::new(Fault::retry_after(503, 1)).path("objects/").times(2),
    ];
    for rule in rules {
        there.proxy.add(rule);
        let place = Place::new();
        let mut remote = there.remote(&place);
        let (place, _) = clone_into(place, &mut remote, PartialScope::default()).unwrap();
        assert_eq!(place.repo.store().partial_packs(), []);
        there.proxy.clear_rules();
    }
}

#[test]
fn a_pull_from_a_damaged_bucket_changes_no_local_object() {
    type Harm = fn(&S3Server, &str);
    let harms: [(&str, Harm); 4] = [
        ("forgets", |server, key| server.forget(key)),
        ("truncates", |server, key| server.damage(key, |bytes| bytes.truncate(1000))),
        ("flips a bit", |server, key| server.damage(key, |bytes| bytes[200_000] ^= 4)),
        ("mixes up", |server, key| server.put(key, vec![7_u8; 1 << 20])),
    ];
    let there = There::new();
    let whole = there.server.dump();
    for (number, (what, harm)) in harms.into_iter().enumerate() {
        let key = there.packs()[number].clone();
        let name = key.split_once("/objects/").unwrap().1.to_owned();
        harm(&there.server, &key);
        let place = Place::new();
        let error = place.pull(&mut there.remote(&place)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(&name) && text.contains("test://place"), "{what}: {text}");
        assert!(is_empty(&place), "{what}");

        let clone = Place::new();
        let mut remote = there.remote(&clone);
        let packs = snap_remote::remote_packs::RemotePacks::new(
            &remote,
            snap_remote::remote_packs::BlockingContext::without_stop(clone.runtime.handle()),
        );
        let Place { folder, repo, runtime } = clone;
        let repo = repo.with_remote_frames(Arc::new(packs.clone()));
        let from = snap_remote::transfer::clone::CloneSource { remote: &mut remote, packs: &packs };
        let options = snap_remote::transfer::clone::CloneOptions::default();
        let cloned: Result<_, RemoteError> = snap_remote::transfer::clone::run(
            repo.store(),
            from,
            &options,
            |_| Ok(()),
            runtime.handle(),
            &Silent,
        );
        let error = cloned.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error:?}");
        assert!(error.to_string().contains(&name), "{what}: {error}");
        drop(folder);

        // Once the bucket is intact again, a pull succeeds.
        there.server.load(whole.clone());
        assert_eq!(place.pull(&mut there.remote(&place)).unwrap().added.packs, 5);
    }
}

/// An observer that cancels after the first received part.
#[derive(Default)]
struct StopsEarly {
    received: AtomicU64,
}

impl Observer for StopsEarly {
    fn advance(&self, units: u64, _: u64) {
        self.received.fetch_add(units, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.received.load(Ordering::Relaxed) > 0
    }
}

#[test]
fn a_pull_resumes_after_an_interruption() {
    let there = There::new();
    let place = Place::new();
    let options =
        pull::PullOptions { name: main_branch(), level: 3, part: PartialScope::default() };
    let early = StopsEarly::default();
    let runtime = place.runtime.handle();
    let mut remote = there.remote(&place);
    let stopped = pull::run(place.repo.store(), &mut remote, &options, runtime, &early);
    assert!(matches!(stopped, Err(RemoteError::Blocked(_))), "{stopped:?}");
    assert!(is_empty(&place));
    let before = early.received.load(Ordering::Relaxed);
    assert!(before > 0);
    let total: u64 =
        there.packs().iter().map(|key| there.server.get(key).unwrap().len() as u64).sum();
    let came = pull::run(place.repo.store(), &mut remote, &options, runtime, &Silent).unwrap();
    assert!(came.received_bytes + before <= total, "{} + {before} > {total}", came.received_bytes);
    assert!(came.received_bytes > 0);
    assert!(!place.repo.dir().join("cache/receiving").exists());
}

#[test]
fn a_pull_fetches_only_the_missing_frames_of_a_pack() {
    let server = S3Server::start(S3Options::default());
    let traffic = Arc::new(Traffic::default());
    let service = || bucket(&server.endpoint(), &server, &traffic);
    // Both stores have the same contents, in different packs.
    let (here, there) = (Place::new(), Place::new());
    for place in [&here, &there] {
        for number in 0..8_u64 {
            place.write_bytes(&number.to_string(), &Corpus::Random.make_seeded(900_000, number));
        }
    }
    there.commit();
    here.write_bytes("new", &Corpus::Random.make_seeded(900_000, 99));
    let pushed = here.commit();
    here.push(&mut here.remote(service(), Arc::clone(&traffic)), pushed).unwrap();
    let came = there.pull(&mut there.remote(service(), Arc::clone(&traffic))).unwrap();
    assert!(came.received_bytes < 5 << 20, "{}", came.received_bytes);
    assert_eq!(came.commit, pushed);
    let tree = there.repo.store().commit(&pushed).unwrap().tree;
    assert_eq!(tree, here.repo.store().commit(&pushed).unwrap().tree);
    super::clone::restore(&there.repo, pushed, &there.folder.path().join("restored")).unwrap();
}
