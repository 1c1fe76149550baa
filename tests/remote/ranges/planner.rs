//! Jobs: the number, duration and order of requests, and errors.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use snap_remote::{
    bucket::ServiceError,
    ranges::{
        FetchRange, JobOptions, LinkEstimate, NeededRange, RangeJob, RangePlanner, RangeResult,
        ReadError,
    },
};
use snap_testkit::rng::Rng;
use tokio::time::{Instant, sleep};

use super::{Far, bytes_at, wanted};

fn start(far: &Arc<Far>, wanted: &[NeededRange], options: JobOptions) -> RangeJob {
    let planner =
        RangePlanner::new(Arc::clone(far) as Arc<dyn FetchRange>, Arc::default(), options);
    planner.start(wanted.to_vec())
}

async fn read_all(job: RangeJob, wanted: &[NeededRange]) {
    let all = job.all().await.unwrap();
    for (bytes, wanted) in all.iter().zip(wanted) {
        assert!(*bytes == bytes_at(&wanted.key, &wanted.range));
    }
}

async fn as_they_arrive(mut job: RangeJob) -> Vec<RangeResult> {
    let mut pieces = Vec::new();
    while let Some(piece) = job.next().await {
        pieces.push(piece);
    }
    pieces
}

async fn in_order(mut job: RangeJob) -> Vec<RangeResult> {
    let mut pieces = Vec::new();
    while let Some(piece) = job.next_in_order().await {
        pieces.push(piece);
    }
    pieces
}

/// Returns the length of the union of ranges of one object.
fn union_bytes(wanted: &[NeededRange]) -> u64 {
    let mut ranges: Vec<_> = wanted.iter().map(|wanted| wanted.range.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    let (mut bytes, mut end) = (0, 0);
    for range in ranges {
        bytes += range.end.saturating_sub(range.start.max(end));
        end = end.max(range.end);
    }
    bytes
}

/// Returns random ranges of up to `most` bytes in an object of 1 GiB.
fn scattered(count: usize, most: u64) -> Vec<NeededRange> {
    let mut rng = Rng::new(7);
    let range = |rng: &mut Rng| {
        let start = rng.below((1 << 30) - most);
        start..start + 1 + rng.below(most)
    };
    (0..count).map(|_| wanted("object", range(&mut rng))).collect()
}

#[tokio::test(start_paused = true)]
async fn five_hundred_scattered_ranges_take_four_round_trips() {
    for most in [4 << 10, 64 << 10, 256 << 10] {
        let far = Arc::new(Far::new(100));
        let wanted = scattered(500, most);
        let begin = Instant::now();
        let mut job = start(&far, &wanted, JobOptions::default());
        while let Some(piece) = job.next().await {
            assert_eq!(piece.bytes.unwrap().len() as u64, {
                let range = &wanted[piece.position].range;
                range.end - range.start
            });
        }
        assert!(begin.elapsed() <= Duration::from_millis(400), "{:?}", begin.elapsed());
        let log = far.log();
        assert!(log.fetched_bytes() * 2 <= union_bytes(&wanted) * 3);
    }
}

#[tokio::test(start_paused = true)]
async fn eager_requests_read_forty_fragments_six_times_faster() {
    let page = |fragment: u64, page: u64| {
        let start = page * (2 << 20);
        wanted(&format!("fragment {fragment}"), start..start + (16 << 10))
    };
    let pages: Vec<NeededRange> =
        (0..40).flat_map(|fragment| (0..4).map(move |at| page(fragment, at))).collect();
    let mut took = Vec::new();
    for pages in [vec![pages.as_slice()], pages.chunks(1).collect()] {
        let far = Arc::new(Far::new(100));
        let begin = Instant::now();
        let mut read = 0;
        for pages in pages {
            let pieces = in_order(start(&far, pages, JobOptions::default())).await;
            assert!(pieces.iter().map(|piece| piece.position).eq(0..pages.len()));
            read += pieces.len();
        }
        assert_eq!((read, far.requests()), (160, 160));
        took.push(begin.elapsed());
    }
    assert!(took[0] * 6 <= took[1], "{took:?}");
    assert!(took[0] <= Duration::from_millis(101), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_start_before_the_first_is_awaited() {
    let far = Arc::new(Far::new(100));
    let wanted = scattered(50, 4 << 10);
    let mut job = start(&far, &wanted, JobOptions::default());
    sleep(Duration::from_millis(101)).await;
    assert_eq!(far.log().under_way(), 0);
    let begin = Instant::now();
    while job.next_in_order().await.is_some() {}
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn requests_are_sent_in_order_of_need() {
    let far = Arc::new(Far::new(10));
    let wanted: Vec<NeededRange> =
        [5_u64, 1, 4, 2, 3].map(|at| wanted("a", (at << 24)..(at << 24) + 9)).into();
    let job = start(&far, &wanted, JobOptions { requests: 1, ..JobOptions::default() });
    let pieces = as_they_arrive(job).await;
    assert!(pieces.iter().map(|piece| piece.position).eq(0..5));
    let order: Vec<u64> = far.log().requests.iter().map(|(_, range)| range.start >> 24).collect();
    assert_eq!(order, [5, 1, 4, 2, 3]);
    assert_eq!(far.log().most_at_once, 1);
}

#[tokio::test(start_paused = true)]
async fn adjacent_ranges_are_slices_of_one_response() {
    let far = Arc::new(Far::new(10));
    let wanted: Vec<NeededRange> =
        (0..100).map(|at| wanted("a", at * 100..at * 100 + 100)).collect();
    let all = start(&far, &wanted, JobOptions::default()).all().await.unwrap();
    assert_eq!(far.requests(), 1);
    for pair in all.windows(2) {
        assert_eq!(pair[0].as_ptr() as usize + 100, pair[1].as_ptr() as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_range_is_read_by_concurrent_requests() {
    let far = Arc::new(Far::new(100));
    let wanted = [wanted("a", 1000..1000 + (40 << 20))];
    let begin = Instant::now();
    read_all(start(&far, &wanted, JobOptions::default()), &wanted).await;
    assert!(begin.elapsed() <= Duration::from_millis(101));
    assert_eq!(far.requests(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_zero_still_makes_progress() {
    let far = Arc::new(Far::new(10));
    let wanted = scattered(20, 4 << 10);
    let options = JobOptions { budget_bytes: 0, requests: 0, request_bytes: 1000 };
    read_all(start(&far, &wanted, options), &wanted).await;
}

#[tokio::test(start_paused = true)]
async fn unread_pieces_hold_back_further_requests() {
    let far = Arc::new(Far::new(10));
    let each = 1_u64 << 20;
    let wanted: Vec<NeededRange> =
        (0..10).map(|at| wanted("a", at * 8 * each..(at * 8 + 1) * each)).collect();
    let mut job =
        start(&far, &wanted, JobOptions { budget_bytes: 3 * each, ..JobOptions::default() });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(far.requests(), 3);
    job.next_in_order().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(far.requests(), 4);
    read_rest(job).await;
    assert_eq!(far.requests(), 10);
}

async fn read_rest(mut job: RangeJob) {
    while let Some(piece) = job.next_in_order().await {
        piece.bytes.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_returned_for_the_affected_piece_only() {
    let far = Arc::new(Far::new(10));
    far.bad.lock().push((5 << 20) + 7);
    let wanted: Vec<NeededRange> =
        (0..10).map(|at| wanted("a", at << 20..(at << 20) + 10)).collect();
    let job = start(&far, &wanted, JobOptions::default());
    let pieces = in_order(job).await;
    for piece in pieces {
        match piece.bytes {
            Ok(bytes) => assert!(piece.position != 5 && bytes.len() == 10),
            Err(error) => {
                assert_eq!(piece.position, 5);
                assert_eq!(error.to_string(), "cannot read a: the line is dead");
            }
        }
    }
    // Only the service below retries.
    assert_eq!(far.requests(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_failed_long_piece_is_not_read_further() {
    let far = Arc::new(Far::new(10));
    far.bad.lock().push(5);
    let wanted = [wanted("a", 0..1000), wanted("b", 20..30)];
    let options = JobOptions { requests: 1, request_bytes: 10, ..JobOptions::default() };
    let mut job = start(&far, &wanted, options);
    assert!(job.next().await.unwrap().bytes.is_err());
    assert_eq!(job.next().await.unwrap().bytes.unwrap(), bytes_at("b", &(20..30)));
    assert!(job.next().await.is_none());
    assert_eq!(far.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_job_cancels_its_requests() {
    let far = Arc::new(Far::new(100));
    let wanted = scattered(300, 4 << 10);
    let mut job = start(&far, &wanted, JobOptions { requests: 10, ..JobOptions::default() });
    job.next().await.unwrap().bytes.unwrap();
    drop(job);
    sleep(Duration::from_millis(1)).await;
    let asked = far.requests();
    assert_eq!(far.unanswered(), (0, asked - 10));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(far.requests(), asked);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_wait_loses_no_piece() {
    let far = Arc::new(Far::new(100));
    let wanted = scattered(30, 4 << 10);
    let mut job = start(&far, &wanted, JobOptions { requests: 3, ..JobOptions::default() });
    let mut seen = Vec::new();
    while seen.len() < wanted.len() {
        let wait = Duration::from_millis(7);
        if let Ok(Some(piece)) = tokio::time::timeout(wait, job.next_in_order()).await {
            seen.push(piece.position);
        }
    }
    assert!(seen.into_iter().eq(0..30));
}

/// A source that answers with too few bytes or an error.
#[derive(Debug)]
struct Wrong;

impl FetchRange for Wrong {
    fn fetch<'a>(
        &'a self,
        key: &'a str,
        _: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, ServiceError>> {
        assert!(key != "panic");
        Box::pin(async { Ok(Bytes::from_static(b"short")) })
    }
}

#[tokio::test]
async fn wrong_responses_and_panics_are_errors() {
    let planner = RangePlanner::new(
        Arc::new(Wrong),
        Arc::new(LinkEstimate::default()),
        JobOptions::default(),
    );
    let mut job = planner.start(vec![wanted("a", 0..10), wanted("a", 0..0)]);
    assert!(job.next_in_order().await.is_some_and(|piece| {
        matches!(piece.bytes, Err(ReadError::Length { actual_bytes: 5, .. }))
    }));
    assert!(job.next_in_order().await.unwrap().bytes.unwrap().is_empty());
    assert!(job.next_in_order().await.is_none());

    let job = planner.start(vec![wanted("panic", 0..10), wanted("panic", 90..99)]);
    let pieces = as_they_arrive(job).await;
    assert_eq!(pieces.len(), 2);
    assert!(pieces.iter().all(|piece| matches!(piece.bytes, Err(ReadError::Stopped))));
    assert!(planner.start(Vec::new()).next().await.is_none());
}
