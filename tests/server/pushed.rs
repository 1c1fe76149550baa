//! Tests of `snap push` over connections that break.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use reqwest::StatusCode;
use snap_core::{
    base::{
        id::{BlobId, CommitId},
        observe::Silent,
        time::Time,
    },
    disk::scratch::{self, Scratch, unique_name},
    ops::gc::{self, GcOptions},
    repo::{RefLogMessage, RefName},
    store::Epoch,
};
use snap_nettest::{Fault, Proxy, Rule, Seen};
use snap_remote::{
    bucket::{
        client::RequestPolicy,
        traffic::{RequestKind, Traffic, TrafficCounts},
    },
    location::Location,
    peer::{
        RemoteError,
        open::{Opening, RemoteCredentials},
    },
    transfer::push,
    wire::headers::{EpochTag, SNAP_EPOCH},
};
use snap_server::settings::{ServerLimits, ServerSettings};

use crate::{
    place::{Place, Serving, json, random, refused},
    upstream::{relay, set, stands},
    watched::{metrics, number},
};

/// Long enough for a pack that is replaced by smaller ones after an interruption.
const LONG: usize = 40 << 20;

/// Returns true if a request sends a pack.
fn is_pack(seen: &Seen) -> bool {
    seen.method == "PUT" && seen.path.contains("/packs/")
}

/// A store to push from, and a server behind a proxy.
struct Line {
    here: Arc<Place>,
    there: Place,
    serving: Serving,
    proxy: Proxy,
    tip: CommitId,
}

impl Line {
    fn new(settings: ServerSettings, content: &[u8]) -> Self {
        let (here, there) = (Place::new(), Place::new());
        let tip = here.change("large", content);
        let serving = Serving::start(&there, settings);
        let proxy = Proxy::start(serving.origin());
        Self { here: Arc::new(here), there, serving, proxy, tip }
    }

    /// Pushes as a new process would.
    async fn push(&self) -> (Result<push::PushOutcome, RemoteError>, TrafficCounts) {
        self.push_to(&self.proxy.endpoint()).await
    }

    async fn push_to(
        &self,
        origin: &str,
    ) -> (Result<push::PushOutcome, RemoteError>, TrafficCounts) {
        let traffic = Arc::<Traffic>::default();
        let pause = std::time::Duration::from_millis(1);
        let policy =
            RequestPolicy { pause, longest_pause: pause, attempts: 4, ..RequestPolicy::default() };
        let location: Location = origin.parse().unwrap();
        let counted = Arc::clone(&traffic);
        let (here, tip) = (Arc::clone(&self.here), self.tip);
        let runtime = tokio::runtime::Handle::current();
        let pushed = tokio::task::spawn_blocking(move || {
            let cache = here.folder.path().join("store/cache/there");
            let (options, secrets) = (BTreeMap::new(), RemoteCredentials::default());
            let opening = Opening::new(&location, &options, &secrets, &counted);
            let mut remote = Opening { policy, ..opening }.store(&cache).unwrap();
            let name = snap_core::repo::RefName::branch("main").unwrap();
            let refs =
                vec![push::RefUpdate { name, commit: tip, moves: push::AllowedMove::Forward }];
            let options = push::PushOptions { refs, scratch: here.folder.path() };
            push::run(&here.repo, &mut remote, &options, &runtime, &Silent)?.all_moved()
        });
        (pushed.await.unwrap(), traffic.counts())
    }

    fn cut(&self, after: u64, times: u64) {
        let rule = Rule::new(Fault::CutAt(after)).test(is_pack);
        self.proxy.add(rule.times(times));
    }

    fn asked(&self, method: &str, path: &str) -> usize {
        let requests = self.proxy.requests();
        requests.iter().filter(|seen| seen.method == method && seen.path.contains(path)).count()
    }

    /// Checks that the pushed commit is complete on the server.
    async fn is_there(&self, content: &[u8]) {
        let path = format!("commits/{}/files/large", self.tip);
        let read = self.serving.get(&path).send().await.unwrap();
        assert_eq!(read.status(), StatusCode::OK);
        assert!(read.bytes().await.unwrap() == content, "the content differs");
        let stands = self.serving.get("refs/heads/main").send().await.unwrap();
        let tag = stands.headers()["etag"].to_str().unwrap();
        assert!(tag.starts_with(&format!("\"{}-0-", self.tip)), "{tag}");
        let staged = fs_err::read_dir(self.there.store().join("tmp/staged")).unwrap();
        assert_eq!(staged.count(), 0, "nothing waits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_sends_the_epoch_of_the_server_with_each_write() {
    let line = Line::new(ServerSettings::default(), b"content");
    line.push().await.0.unwrap();
    let epoch = epoch_of(&line.there);
    let requests = line.proxy.requests();
    let (reads, writes): (Vec<_>, Vec<_>) =
        requests.iter().partition(|seen| ["GET", "HEAD"].contains(&&*seen.method));
    assert!(writes.len() >= 3, "{requests:#?}");
    assert!(writes.iter().all(|seen| seen.epoch.as_ref() == Some(&epoch)), "{requests:#?}");
    assert!(reads.iter().all(|seen| seen.epoch.is_none()), "{requests:#?}");
}

/// Returns ten percent more.
fn little_more(bytes: usize) -> u64 {
    (bytes + bytes / 10) as u64
}

/// The line breaks each 40 MiB, so no pack of 64 MiB can arrive.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_over_a_line_that_breaks_wastes_at_most_a_quarter() {
    const LINE: usize = 40 << 20;
    let content = random(1, 120 << 20);
    let line = Line::new(ServerSettings::default(), &content);
    line.proxy.break_every(LINE as u64);
    let (pushed, counts) = line.push().await;
    let outcome = pushed.unwrap();
    line.is_there(&content).await;
    let seen = line.proxy.counts();
    // The first break loses what was sent of large packs. Three packs of up to 12 MiB fit before the
    // next, and what is sent of the fourth is lost.
    let most = LINE + content.len() * 4 / 3;
    assert!(seen.sent_bytes <= most as u64, "{} B", seen.sent_bytes);
    assert!((3..5).contains(&seen.faults), "{} breaks", seen.faults);
    assert!((10..16).contains(&outcome.packs), "{} packs", outcome.packs);
    // The client's statistics agree with the proxy's counts.
    assert_eq!(counts.requests(), seen.total);
    let puts = line.asked("PUT", "");
    assert_eq!(counts.by_kind[RequestKind::Put as usize], puts as u64);
    // The client also counts bytes that were still in buffers when a connection broke.
    assert!(counts.bytes_sent >= seen.sent_bytes && counts.bytes_sent < 2 * most as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_become_still_smaller_if_none_arrives() {
    let content = random(2, LONG);
    let line = Line::new(ServerSettings::default(), &content);
    line.cut(10 << 20, u64::MAX);
    let (pushed, _) = line.push().await;
    assert!(pushed.unwrap().packs >= 5);
    line.is_there(&content).await;
    // The first pack, and twice the first of the smaller ones.
    let sent = line.proxy.counts().sent_bytes;
    assert!(sent <= (3 * (10 << 20)) + little_more(LONG), "{sent} B");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_push_finds_the_smaller_packs_of_an_interrupted_one() {
    let content = random(3, LONG);
    let line = Line::new(ServerSettings::default(), &content);
    line.cut(10 << 20, 1);
    line.proxy.add(Rule::new(Fault::Reset).test(is_pack).skip(2));
    line.push().await.0.unwrap_err();
    line.proxy.clear_rules();
    line.proxy.take_counts();
    let (pushed, counts) = line.push().await;
    let outcome = pushed.unwrap();
    line.is_there(&content).await;
    assert_eq!(outcome.resumed, 1, "{outcome:?}");
    let rest = little_more(LONG - (8 << 20));
    let seen = line.proxy.counts();
    for sent in [seen.sent_bytes, outcome.sent_bytes, counts.bytes_sent] {
        assert!(sent <= rest, "{sent} B");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_whose_reply_was_lost_is_not_sent_again() {
    let content = random(4, LONG);
    let line = Line::new(ServerSettings::default(), &content);
    line.proxy.add(Rule::new(Fault::LoseReply).test(is_pack).times(1));
    let outcome = line.push().await.0.unwrap();
    line.is_there(&content).await;
    assert_eq!((outcome.packs, outcome.resumed), (0, 1));
    assert_eq!(line.asked("PUT", "/packs/"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_pack_is_sent_again_whole() {
    let content = random(5, 7 << 20);
    let line = Line::new(ServerSettings::default(), &content);
    line.cut(5 << 20, 2);
    let outcome = line.push().await.0.unwrap();
    line.is_there(&content).await;
    assert_eq!((outcome.packs, line.asked("PUT", "/packs/")), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_sends_a_pack_again_after_an_interruption() {
    let content = random(6, 7 << 20);
    let line = Line::new(ServerSettings::default(), &content);
    let cache = tempfile::tempdir().unwrap();
    line.cut(5 << 20, 1);
    let before = Arc::new(relay(&line.proxy.endpoint(), cache.path()));
    let id = line.here.repo.store().packs()[0];
    let sent = before.put(&format!("packs/{id}"), line.here.pack_bytes(&id)).send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::CREATED);
    assert_eq!(line.asked("PUT", "/packs/"), 2);
    let packs = json(line.serving.get("packs"), StatusCode::OK).await;
    assert_eq!(packs["packs"][0]["name"], id.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_removes_files_of_a_killed_server() {
    let place = Place::new();
    place.change("a", "content");
    let tmp = place.store().join("tmp");
    // A killed process leaves these files whole, and unlocked.
    let left = tmp.join(unique_name(scratch::PREFIX));
    fs_err::create_dir_all(left.join("objects")).unwrap();
    let pack = tmp.join(unique_name("pack"));
    fs_err::write(&pack, "half").unwrap();
    let used = Scratch::create(&tmp).unwrap();
    let age = |path: &Path| {
        let file = fs_err::File::open(path).unwrap();
        file.file().set_modified(SystemTime::now() - Duration::from_secs(90)).unwrap();
    };
    [&left, &pack, used.path()].into_iter().for_each(age);
    let serving = Serving::of(&place);
    assert!(!left.exists() && !pack.exists() && used.path().exists());
    // A running server sweeps when something is uploaded.
    let again = tmp.join(unique_name(scratch::PREFIX));
    fs_err::create_dir_all(&again).unwrap();
    age(&again);
    let blob = BlobId::of(b"more").object();
    let sent = serving.put(&format!("objects/{blob}"), "more").header("snap-kind", "blob");
    assert_eq!(sent.send().await.unwrap().status(), StatusCode::CREATED);
    assert!(!again.exists() && used.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pushed_branch_becomes_the_default_branch() {
    let (here, there) = (Place::new(), Place::new());
    let commit = here.change("a", "first");
    let serving = Serving::of(&there);
    let packs = here.repo.store().packs();
    assert!(serving.send(&here, &packs).await.status().is_success());
    let head = async || {
        let head = json(serving.get("head"), StatusCode::OK).await;
        head["head"].as_str().unwrap().to_owned()
    };
    assert_eq!(head().await, "refs/heads/main");
    for branch in ["trunk", "other", "main"] {
        let made = crate::upstream::set(&serving, branch, None, commit).send().await.unwrap();
        assert_eq!(made.status(), StatusCode::CREATED);
        assert_eq!(head().await, "refs/heads/trunk");
    }

    // The same holds for a server in front of a bucket.
    let bucket = crate::upstream::Bucket::new();
    let replica = bucket.replica("cache");
    crate::upstream::create(&replica).await;
    assert!(replica.send(&here, &packs).await.status().is_success());
    let made = crate::upstream::set(&replica, "trunk", None, commit).send().await.unwrap();
    assert_eq!(made.status(), StatusCode::CREATED);
    let told = json(replica.get("head"), StatusCode::OK).await;
    assert_eq!(told["head"], "refs/heads/trunk");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_is_sent_whole_only_when_a_slot_is_free() {
    let content = random(3, 2 << 20);
    let limits = ServerLimits { uploads: 1, ..ServerLimits::default() };
    let line = Line::new(ServerSettings { limits, ..ServerSettings::default() }, &content);
    // Another client occupies the only upload slot until the push was refused three times.
    let address = line.serving.origin().trim_start_matches("http://").to_owned();
    let mut other = std::net::TcpStream::connect(&address).unwrap();
    let path = format!("/v1/repos/default/packs/{}", "a".repeat(64));
    let head = format!("PUT {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000\r\n\r\n");
    std::io::Write::write_all(&mut other, head.as_bytes()).unwrap();
    std::io::Write::write_all(&mut other, b"x").unwrap();
    let has_slot = |text: &str| number(text, "snap_uploads_in_flight") == Some(1);
    metrics(&line.serving, "", has_slot).await;
    let refusals = |text: &str| {
        let counts = text.lines().filter(|line| line.contains("status=\"429\""));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let ((pushed, counts), ()) = tokio::join!(line.push_to(line.serving.origin()), async {
        metrics(&line.serving, "", |text| refusals(text) >= 3).await;
        drop(other);
    });
    assert_eq!(pushed.unwrap().packs, 1);
    line.is_there(&content).await;
    assert!(counts.retries >= 3, "{counts:?}");
    // The whole pack was sent at most twice: before the refusal, and when there was a
    // slot.
    assert!(counts.bytes_sent < 5 << 20, "{counts:?}");
}

/// A garbage collection runs in the store of a running server. The server then only reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_only_reads_a_store_after_a_garbage_collection() {
    let (here, there) = (Place::new(), Place::new());
    let kept = there.change("kept", "kept");
    let dead = there.change("dead", random(7, 1000));
    let main = RefName::branch("main").unwrap();
    let change = RefLogMessage { time: Time::now(), who: "ann", reason: "undo" };
    there.repo.refs().update(&main, Some(dead), Some(kept), &change).unwrap();
    let serving = Serving::of(&there);
    assert_eq!(stands(&serving, "main").await, Some(kept));
    let first = epoch_of(&there);
    let options = GcOptions {
        dry_run: false,
        undo: Duration::ZERO,
        undo_of_forget: Duration::ZERO,
        grace: Duration::ZERO,
        max_rewritten_bytes: None,
        present: Time { secs: change.time.secs + 60, ..change.time },
    };
    let outcome = gc::run(&there.repo, &options, &Silent).unwrap();
    assert!(outcome.deleted_packs > 0, "{outcome:?}");
    let id = here.change("new", "new");
    for pack in here.repo.store().packs() {
        let sent = serving.put(&format!("packs/{pack}"), here.pack_bytes(&pack));
        let why = refused(sent, 422, "rejected").await;
        assert!(why["detail"].as_str().unwrap().contains("`snap gc`"), "{why}");
    }
    refused(set(&serving, "other", None, kept), 422, "rejected").await;
    refused(set(&serving, "main", Some(kept), id), 422, "rejected").await;
    assert_eq!(stands(&serving, "main").await, Some(kept));
    let read = serving.get(&format!("commits/{kept}/files/kept")).send().await.unwrap();
    assert_eq!(read.status(), StatusCode::OK);
    // The server finds the new epoch when it lists the packs. A response names the epoch before its
    // own work, so that it relies on no earlier one.
    for epoch in [first, epoch_of(&there)] {
        let index = serving.get("index").send().await.unwrap();
        assert_eq!(index.headers()[SNAP_EPOCH], epoch);
    }
    assert!(epoch_of(&there).starts_with("1-"));
}

/// Returns the epoch of a store as the server should name it.
fn epoch_of(place: &Place) -> String {
    EpochTag::of(&Epoch::read(&place.store()).unwrap()).unwrap().to_string()
}
