//! Properties for all ranges, limits and failures: correct bytes, no byte read twice, limits
//! respected, errors at the right pieces.

use std::{collections::HashSet, ops::Range, sync::Arc, time::Duration};

use proptest::prelude::*;
use snap_remote::ranges::{
    FetchRange, JobOptions, LinkEstimate, NeededRange, RangeJob, RangePlanner, RangeReader,
    RangeReaderOptions, RangeResult,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::{Far, bytes_at, wanted};

/// How the test takes pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Arriving,
    InOrder,
    Mixed,
}

async fn take(job: &mut RangeJob, taking: Taking, nth: usize) -> Option<RangeResult> {
    match taking {
        Taking::InOrder => job.next_in_order().await,
        Taking::Mixed if nth.is_multiple_of(3) => job.next_in_order().await,
        _ => job.next().await,
    }
}

fn any_wanted() -> impl Strategy<Value = Vec<NeededRange>> {
    let range = (0..3_u32, 0..1_u64 << 20, prop_oneof![Just(0), 1..200_u64, 1..40_000_u64]);
    let wanted =
        range.prop_map(|(key, start, bytes)| wanted(&key.to_string(), start..start + bytes));
    prop::collection::vec(wanted, 0..50)
}

fn any_options() -> impl Strategy<Value = JobOptions> {
    (1..9_usize, 0..300_000_u64, 500..200_000_u64).prop_map(
        |(requests, budget_bytes, request_bytes)| JobOptions {
            requests,
            budget_bytes,
            request_bytes,
        },
    )
}

fn any_taking() -> impl Strategy<Value = Taking> {
    prop_oneof![Just(Taking::Arriving), Just(Taking::InOrder), Just(Taking::Mixed)]
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Reads everything, and returns the pieces that were errors.
async fn run(
    far: &Arc<Far>,
    wanted: &[NeededRange],
    options: &JobOptions,
    taking: Taking,
) -> Vec<usize> {
    {
        let mut log = far.log();
        log.wanted = wanted.to_vec();
        log.taken = vec![false; wanted.len()];
    }
    let link = LinkEstimate::starting_at(Duration::from_millis(1), 1 << 20);
    let fetch = Arc::clone(far) as Arc<dyn FetchRange>;
    let mut job = RangePlanner::new(fetch, Arc::new(link), options.clone()).start(wanted.to_vec());
    let (mut failed, mut nth, mut seen) = (Vec::new(), 0, HashSet::new());
    while let Some(piece) = take(&mut job, taking, nth).await {
        far.log().taken[piece.position] = true;
        assert!(seen.insert(piece.position));
        assert!(taking != Taking::InOrder || piece.position == nth);
        let wanted = &wanted[piece.position];
        match piece.bytes {
            Ok(bytes) => assert!(bytes == bytes_at(&wanted.key, &wanted.range)),
            Err(_) => failed.push(piece.position),
        }
        nth += 1;
    }
    assert_eq!(nth, wanted.len());
    failed
}

proptest! {
    #![proptest_config(snap_testkit::property::cases(200))]

    #[test]
    fn every_piece_is_right_and_no_limit_is_exceeded(
        wanted in any_wanted(),
        options in any_options(),
        taking in any_taking(),
    ) {
        let far = Far { spread: Duration::from_millis(3), ..Far::new(5) };
        let far = Arc::new(far);
        let failed = paused().block_on(run(&far, &wanted, &options, taking));
        prop_assert_eq!(failed, Vec::<usize>::new());
        let log = &*far.log();
        prop_assert!(log.is_disjoint());
        prop_assert!(log.most_at_once <= options.requests);
        let bytes = |at: usize| log.requests[at].1.end - log.requests[at].1.start;
        prop_assert!((0..log.requests.len()).all(|at| bytes(at) <= options.request_bytes));
        // A piece may always have what it needs by itself. Beyond that, one request at a time is
        // sent if the job could not continue otherwise.
        let parts = |piece| (0..log.requests.len()).filter(move |at| log.is_for(*at, piece));
        let needed = |piece| parts(piece).map(bytes).sum::<u64>();
        let most = (0..wanted.len()).map(needed).max().unwrap_or_default();
        let whole = (0..wanted.len()).all(|piece| parts(piece).count() <= 1);
        for (held, others) in &log.held {
            let stuck = *others == 0 && (taking != Taking::Arriving || !whole);
            prop_assert!(*held <= most.max(options.budget_bytes) || stuck, "{held} of {most}");
        }
    }

    #[test]
    fn errors_are_returned_for_the_affected_pieces_only(
        wanted in any_wanted(),
        options in any_options(),
        taking in any_taking(),
        bad in prop::collection::vec(0..1_u64 << 20, 1..20),
    ) {
        let far = Far { spread: Duration::from_millis(3), ..Far::new(5) };
        *far.bad.lock() = bad.clone();
        let far = Arc::new(far);
        let mut failed = paused().block_on(run(&far, &wanted, &options, taking));
        failed.sort_unstable();
        let log = far.log();
        prop_assert!(log.is_disjoint());
        let is_bad = |at: usize| bad.iter().any(|bad| log.requests[at].1.contains(bad));
        let concerned = |piece: &usize| {
            (0..log.requests.len()).any(|at| is_bad(at) && log.is_for(at, *piece))
        };
        prop_assert_eq!(failed, (0..wanted.len()).filter(concerned).collect::<Vec<_>>());
    }

    /// A reader returns the same bytes as a file, whatever is read.
    #[test]
    fn a_reader_reads_as_a_file_does(
        length in 0..50_000_u64,
        limits in (1..3000_u64, 0..20_000_u64, 0..10_000_u64, 0..60_000_u64),
        steps in prop::collection::vec((0..4_u8, 0..60_000_u64, 0..8_000_u64), 1..40),
    ) {
        let (block_bytes, cache_bytes, ahead_bytes, whole_bytes) = limits;
        let requests = JobOptions { request_bytes: 4000, ..JobOptions::default() };
        let options =
            RangeReaderOptions { block_bytes, cache_bytes, ahead_bytes, whole_bytes, requests };
        let far = Far { spread: Duration::from_millis(3), ..Far::new(5) };
        paused().block_on(async {
            let far = Arc::new(far);
            let reader = RangeReader::of_object(far, "a", length, Arc::default(), options);
            read_as_a_file(reader, length, &steps).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_piece_is_lost_on_several_threads() {
    let wanted: Vec<NeededRange> =
        (0..60_u64).map(|at| wanted("a", at * 37 % 60 * 900..at * 37 % 60 * 900 + 1000)).collect();
    for round in 0..300_usize {
        let taking = [Taking::Arriving, Taking::InOrder, Taking::Mixed][round % 3];
        let options = JobOptions {
            requests: 1 + round % 5,
            budget_bytes: 700 * (round as u64 % 7),
            request_bytes: 300 + round as u64,
        };
        let failed = run(&Arc::default(), &wanted, &options, taking).await;
        assert_eq!(failed, Vec::<usize>::new());
    }
}

async fn read_as_a_file(mut reader: RangeReader, length: u64, steps: &[(u8, u64, u64)]) {
    let file = bytes_at("a", &(0..length));
    let part = |range: Range<u64>| {
        let end = range.end.min(length);
        file.slice(range.start.min(end) as usize..end as usize)
    };
    for (kind, offset, bytes) in steps.iter().copied() {
        match kind {
            0 => {
                let got = reader.read_at(offset, bytes).await.unwrap();
                assert!(got == part(offset..offset + bytes));
            }
            1 => {
                reader.seek(std::io::SeekFrom::Start(offset)).await.unwrap();
            }
            2 => {
                let (from, mut got) = (reader.position(), Vec::new());
                (&mut reader).take(bytes).read_to_end(&mut got).await.unwrap();
                assert!(got == part(from..from + bytes));
                assert_eq!(reader.position(), from + got.len() as u64);
            }
            _ => {
                let ranges = [offset..offset + bytes, offset / 2..offset / 2 + bytes, 0..bytes];
                match reader.fetch(&ranges).await {
                    Ok(got) => assert!(got.into_iter().eq(ranges.map(part))),
                    Err(_) => assert!(offset.max(offset / 2) + bytes > length),
                }
            }
        }
    }
}
