//! Tests of simultaneous pushes through two replicas of a bucket that fails in various
//! ways.

use std::sync::Arc;

use futures::future::join_all;
use reqwest::{RequestBuilder, Response, StatusCode};
use snap_core::{
    base::{id::CommitId, observe::Silent},
    ops::{bundle::unpack, inbox::Adoption},
    store::BundleReader,
};
use snap_nettest::{Fault, Kind, Rule};
use snap_server::clock::Clock;

use crate::{
    place::{Place, Serving, json, within_guard},
    upstream::{Bucket, commit_of, create, set, stands},
};

const PUSHERS: usize = 6;

/// The commit that `main` pointed at, and the commit that it was moved to.
type Move = (Option<CommitId>, CommitId);

/// Sends a request and checks that it gets a response.
async fn answer(request: RequestBuilder) -> Response {
    within_guard(request.send(), "it hangs").await.unwrap()
}

/// Uploads all packs of a place until the server accepts them.
async fn send(serving: &Serving, place: &Place) {
    loop {
        let packs = place.repo.store().packs();
        let sent = within_guard(serving.send(place, &packs), "it hangs").await;
        match sent.status().as_u16() {
            200 | 201 => return,
            503 => {}
            other => panic!("{other}"),
        }
    }
}

/// Reads a branch until the server can answer.
async fn read(serving: &Serving, branch: &str) -> Option<CommitId> {
    loop {
        let response = answer(serving.get(&format!("refs/heads/{branch}"))).await;
        match response.status().as_u16() {
            200 | 404 => return commit_of(&response),
            503 => {}
            other => panic!("{other}"),
        }
    }
}

/// Pushes `pushes` times, each step through either replica: to its own branch, and to
/// `main` in competition with the others. Returns the tip of its branch and its moves
/// of `main`.
async fn pusher(
    replicas: Arc<[Serving; 2]>,
    number: usize,
    pushes: usize,
) -> (CommitId, Vec<Move>) {
    let place = Place::new();
    let (mut own, mut moves) = (None, Vec::new());
    for push in 0..pushes {
        let commit = place.change("a", format!("{number} {push}"));
        let serving = |step: usize| &replicas[(number + push + step) % 2];
        send(serving(0), &place).await;
        let branch = format!("branch{number}");
        while read(serving(1), &branch).await != Some(commit) {
            let moved = answer(set(serving(0), &branch, own, commit)).await.status();
            assert!(matches!(moved.as_u16(), 200 | 201 | 412 | 503), "{moved}");
        }
        own = Some(commit);
        loop {
            let before = read(serving(1), "main").await;
            if before == Some(commit) {
                break;
            }
            match answer(set(serving(0), "main", before, commit)).await.status().as_u16() {
                200 | 201 => {
                    moves.push((before, commit));
                    break;
                }
                412 | 503 => {}
                other => panic!("{other}"),
            }
        }
    }
    (own.unwrap(), moves)
}

/// Creates a store in a bucket, and two servers of it that wait in real time.
pub(crate) async fn two_replicas() -> (Bucket, [Serving; 2]) {
    let bucket = Bucket { clock: Clock::default(), ..Bucket::new() };
    let replicas = [bucket.replica("one"), bucket.replica("two")];
    create(&replicas[0]).await;
    (bucket, replicas)
}

/// Lets all pushers run, then checks that nothing is lost.
pub(crate) async fn push_at_once(bucket: &Bucket, replicas: [Serving; 2], pushes: usize) {
    let replicas = Arc::new(replicas);
    let pusher = |number| tokio::spawn(pusher(Arc::clone(&replicas), number, pushes));
    let done = join_all((0..PUSHERS).map(pusher)).await;
    let done: Vec<_> = done.into_iter().map(Result::unwrap).collect();
    bucket.come_back();
    let moves: Vec<_> = done.iter().flat_map(|(_, moves)| moves).collect();
    // Two moves from the same commit would mean that one of them is lost.
    for (number, (from, _)) in moves.iter().enumerate() {
        assert!(!moves[..number].iter().any(|(other, _)| other == from), "twice from {from:?}");
    }
    let fresh = bucket.replica("three");
    for serving in [&replicas[0], &replicas[1], &fresh] {
        for (number, (own, _)) in done.iter().enumerate() {
            assert_eq!(stands(serving, &format!("branch{number}")).await, Some(*own));
        }
    }
    // Every ref points at a complete commit.
    let refs = json(fresh.get("refs"), StatusCode::OK).await;
    for one in refs["refs"].as_array().unwrap() {
        let bundle = fresh.get(&format!("commits/{}/bundle", one["commit"].as_str().unwrap()));
        let bundle = answer(bundle).await.bytes().await.unwrap();
        let whole = Place::new();
        let options = unpack::UnpackOptions { tips: Vec::new(), most_bytes: u64::MAX };
        let opened = BundleReader::new(&*bundle).unwrap();
        let unpacked = unpack::prepare(whole.repo.store(), opened, &options, &Silent).unwrap();
        unpacked.adopt(Adoption::NewObjects(1), &Silent).unwrap();
        let commit = one["commit"].as_str().unwrap().parse().unwrap();
        assert!(whole.repo.store().commit(&commit).is_ok());
    }
    assert_eq!(refs["refs"].as_array().unwrap().len(), PUSHERS + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pushes_to_replicas_lose_no_ref() {
    let (bucket, replicas) = two_replicas().await;
    bucket.proxy.add(Rule::new(Fault::Reset).chance(0.03, 1));
    bucket.proxy.add(Rule::new(Fault::LoseReply).chance(0.03, 2));
    bucket.proxy.add(Rule::new(Fault::status(503)).chance(0.03, 3));
    push_at_once(&bucket, replicas, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_a_stalled_busy_bucket_lose_no_push() {
    const BURST: u64 = 60;
    let (bucket, replicas) = two_replicas().await;
    // A move of a ref stalls until the client of the bucket gives up, and the bucket is busy
    // for a while. The pushes cannot end before it is not: each puts a pack and moves two
    // refs, and fewer requests than that come before. `tests/soak/server` has more of both.
    let before = 2 * PUSHERS as u64;
    bucket.proxy.add(Rule::new(Fault::Stall).kind(Kind::Put).path("/refs/").skip(4).times(1));
    bucket.proxy.add(Rule::new(Fault::status(503)).skip(before).times(BURST));
    let counts = bucket.proxy.take_counts();
    assert_eq!(counts.faults, 0, "faults before the first push");
    push_at_once(&bucket, replicas, 2).await;
    let counts = bucket.proxy.counts();
    assert_eq!((counts.stalled, counts.faults), (1, BURST + 1));
}
