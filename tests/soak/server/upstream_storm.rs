//! Simultaneous pushes through two replicas of a bucket whose requests stall again and again.
//! `tests/server/upstream_at_once.rs` has a shorter form that runs in every `cargo test`.

use snap_nettest::{Fault, Kind, Rule};

use crate::upstream_at_once::{push_at_once, two_replicas};

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_a_bucket_that_stalls_often_and_is_busy_lose_nothing_and_keep_nobody() {
    const BURST: u64 = 60;
    let (bucket, replicas) = two_replicas().await;
    // Each kind of request stalls once, and lists stall several times.
    for (path, skip) in [("/objects/", 3), ("/index/", 2), ("/refs/", 4)] {
        let stall = Rule::new(Fault::Stall).kind(Kind::Put).path(path);
        bucket.proxy.add(stall.skip(skip).times(1));
    }
    for (kind, skip) in [(Kind::List, 30), (Kind::List, 120), (Kind::Get, 20)] {
        bucket.proxy.add(Rule::new(Fault::Stall).kind(kind).skip(skip).times(1));
    }
    for skip in [50, 200, 400] {
        bucket.proxy.add(Rule::new(Fault::status(503)).skip(skip).times(BURST));
    }
    let counts = bucket.proxy.take_counts();
    assert_eq!(counts.faults, 0, "faults before the first push");
    push_at_once(&bucket, replicas, 3).await;
    let counts = bucket.proxy.counts();
    assert!(counts.stalled > 2 && counts.faults > 2 * BURST, "{counts:?}");
}
