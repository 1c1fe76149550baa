//! The seekable reader: the number and duration of requests, and sharing.

use std::{io::SeekFrom, ops::Range, sync::Arc, time::Duration};

use futures::future::join_all;
use snap_remote::ranges::{JobOptions, RangeReader, RangeReaderOptions, ReadError};
use snap_testkit::rng::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt},
    time::{Instant, sleep},
};

use super::{Far, bytes_at};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn content(far: &Arc<Far>, bytes: u64, options: RangeReaderOptions) -> RangeReader {
    RangeReader::of_object(Arc::clone(far) as _, "a", bytes, Arc::default(), options)
}

/// Returns the ranges of 50 row groups × 12 columns in 800 KiB, by columns of a group.
fn columns() -> Vec<Range<u64>> {
    let each = 800 * KIB / 600;
    (0..600).map(|at| at * each..(at + 1) * each).collect()
}

fn shuffled(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut rng = Rng::new(3);
    for at in (1..ranges.len()).rev() {
        ranges.swap(at, rng.below(at as u64 + 1) as usize);
    }
    ranges
}

#[tokio::test(start_paused = true)]
async fn six_hundred_columns_of_a_small_object_take_four_requests() {
    let by_column = |at: usize| columns()[at % 50 * 12 + at / 50].clone();
    let by_column: Vec<_> = (0..600).map(by_column).collect();
    for whole_bytes in [0, RangeReaderOptions::default().whole_bytes] {
        for order in [columns(), shuffled(columns()), by_column.clone()] {
            let far = Arc::new(Far::new(10));
            let options = RangeReaderOptions { whole_bytes, ..RangeReaderOptions::default() };
            let mut reader = content(&far, 800 * KIB, options);
            for (at, range) in order.into_iter().enumerate() {
                let bytes = if at % 2 == 0 {
                    reader.read_at(range.start, range.end - range.start).await.unwrap()
                } else {
                    reader.seek(SeekFrom::Start(range.start)).await.unwrap();
                    let mut bytes = vec![0; (range.end - range.start) as usize];
                    reader.read_exact(&mut bytes).await.unwrap();
                    bytes.into()
                };
                assert!(bytes == bytes_at("a", &range));
            }
            assert!(far.requests() <= if whole_bytes == 0 { 4 } else { 1 });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn six_hundred_columns_fetched_by_group_take_one_request() {
    let far = Arc::new(Far::new(10));
    let content = content(&far, 800 * KIB, RangeReaderOptions::default());
    for group in columns().chunks(12) {
        let all = content.fetch(group).await.unwrap();
        assert!(all.into_iter().eq(group.iter().map(|range| bytes_at("a", range))));
    }
    assert_eq!(far.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn reading_from_start_to_end_reads_ahead() {
    let mut took = Vec::new();
    for ahead_bytes in [0, RangeReaderOptions::default().ahead_bytes] {
        let far = Far { bytes_per_sec: Some(100 * MIB), ..Far::new(100) };
        let far = Arc::new(far);
        let options = RangeReaderOptions { ahead_bytes, ..RangeReaderOptions::default() };
        let mut reader = content(&far, 64 * MIB, options);
        let begin = Instant::now();
        let mut buffer = vec![0; 10_000];
        let mut bytes = 0;
        loop {
            match reader.read(&mut buffer).await.unwrap() {
                0 => break,
                more => bytes += more as u64,
            }
        }
        assert_eq!(bytes, 64 * MIB);
        took.push(begin.elapsed());
        let log = far.log();
        assert!(log.is_disjoint());
        assert_eq!(log.fetched_bytes(), 64 * MIB);
        assert!(ahead_bytes == 0 || log.requests.len() <= 32, "{}", log.requests.len());
    }
    assert!(took[1] * 8 <= took[0], "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn random_reads_cause_no_read_ahead() {
    let far = Arc::new(Far::new(10));
    let content = content(&far, 1 << 30, RangeReaderOptions::default());
    let mut rng = Rng::new(5);
    for _ in 0..50 {
        let at = rng.below((1 << 30) - 100);
        assert_eq!(content.read_at(at, 100).await.unwrap(), bytes_at("a", &(at..at + 100)));
    }
    assert!(far.log().fetched_bytes() <= 52 * 256 * KIB);
}

#[tokio::test(start_paused = true)]
async fn concurrent_reads_of_a_block_share_one_request() {
    let far = Arc::new(Far::new(10));
    let content = content(&far, 64 * MIB, RangeReaderOptions::default());
    let readers = (0..50_u64).map(|at| content.read_at(at * 100, 100));
    for (at, bytes) in join_all(readers.collect::<Vec<_>>()).await.into_iter().enumerate() {
        let start = at as u64 * 100;
        assert_eq!(bytes.unwrap(), bytes_at("a", &(start..start + 100)));
    }
    let log = far.log();
    assert!(log.is_disjoint());
    assert_eq!(log.requests.iter().filter(|(_, range)| range.start == 0).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn read_blocks_stay_cached_until_eviction() {
    let far = Arc::new(Far::new(10));
    let options = RangeReaderOptions { cache_bytes: MIB, ..RangeReaderOptions::default() };
    let mut reader = content(&far, 64 * MIB, options);
    let mut byte = [0];
    for at in [0, 20 * MIB, 40 * MIB, 1, 20 * MIB + 1, 40 * MIB + 1] {
        reader.seek(SeekFrom::Start(at)).await.unwrap();
        reader.read_exact(&mut byte).await.unwrap();
        assert_eq!(byte[..], bytes_at("a", &(at..at + 1)));
    }
    assert_eq!(far.requests(), 3);
    for at in 0..4 {
        reader.read_at((44 + 2 * at) * MIB, 1).await.unwrap();
    }
    assert_eq!(far.requests(), 7);
    reader.read_at(0, 1).await.unwrap();
    assert_eq!(far.requests(), 8);
}

#[tokio::test(start_paused = true)]
async fn fetched_ranges_are_merged_and_requested_at_once() {
    let far = Arc::new(Far::new(100));
    let content = content(&far, 1 << 30, RangeReaderOptions::default());
    let near = |at: u64| (100 << 20) + at * 2000..(100 << 20) + at * 2000 + 1500;
    let ranges: Vec<_> = (0..100).map(near).chain([3..9, (1 << 30) - 5..1 << 30]).collect();
    let fetching = content.fetch(&ranges);
    sleep(Duration::from_millis(101)).await;
    assert_eq!(far.log().under_way(), 0);
    assert_eq!(far.requests(), 3);
    let begin = Instant::now();
    let all = fetching.await.unwrap();
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(all.into_iter().eq(ranges.iter().map(|range| bytes_at("a", range))));
}

#[tokio::test(start_paused = true)]
async fn a_read_longer_than_the_cache_takes_one_round_trip() {
    let far = Arc::new(Far::new(100));
    let content = content(&far, 64 * MIB, RangeReaderOptions::default());
    let begin = Instant::now();
    let bytes = content.read_at(MIB, 40 * MIB).await.unwrap();
    assert!(bytes == bytes_at("a", &(MIB..41 * MIB)));
    assert!(begin.elapsed() <= Duration::from_millis(101));
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_can_be_retried() {
    let far = Arc::new(Far::new(10));
    far.bad.lock().push(70);
    let mut reader = content(&far, 64 * MIB, RangeReaderOptions::default());
    let error = reader.read_at(0, 10).await.unwrap_err();
    assert!(matches!(error, ReadError::Service(_)));
    let error = reader.read_u8().await.unwrap_err();
    assert_eq!(error.to_string(), "cannot read a: the line is dead");
    assert!(reader.fetch(&[60..80, 60..80]).await.is_err());
    far.bad.lock().clear();
    assert_eq!([reader.read_u8().await.unwrap()], bytes_at("a", &(0..1))[..]);
}

#[tokio::test(start_paused = true)]
async fn ranges_outside_the_content_are_refused_without_a_request() {
    let far = Arc::new(Far::new(10));
    let mut reader = content(&far, 64 * MIB, RangeReaderOptions::default());
    let error = reader.fetch(&[0..10, MIB..64 * MIB + 1]).await.unwrap_err();
    assert!(matches!(error, ReadError::Outside { .. }));
    assert!(reader.read_at(u64::MAX, u64::MAX).await.unwrap().is_empty());
    assert!(reader.seek(SeekFrom::End(-1 - 64 * MIB as i64)).await.is_err());
    reader.seek(SeekFrom::Start(u64::MAX)).await.unwrap();
    assert_eq!(reader.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(far.requests(), 0);
    assert_eq!(reader.seek(SeekFrom::End(-3)).await.unwrap(), 64 * MIB - 3);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, bytes_at("a", &(64 * MIB - 3..64 * MIB)));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_reader_cancels_its_requests() {
    let far = Arc::new(Far::new(100));
    let content = content(&far, 64 * MIB, RangeReaderOptions::default());
    let (reading, fetching) =
        (content.read_at(0, 10), content.fetch(&[30 * MIB..34 * MIB, 34 * MIB..40 * MIB]));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(far.log().under_way(), 3);
    drop(content);
    drop(fetching);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(far.log().under_way(), 1);
    drop(reading);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(far.unanswered(), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_read_cancels_no_request_that_another_read_waits_for() {
    let far = Arc::new(Far::new(100));
    let options = RangeReaderOptions { ahead_bytes: 0, ..RangeReaderOptions::default() };
    let content = content(&far, 64 * MIB, options);
    let (first, second) = (content.read_at(0, 10), content.read_at(5, 10));
    sleep(Duration::from_millis(1)).await;
    drop(first);
    assert_eq!(second.await.unwrap(), bytes_at("a", &(5..15)));
    assert_eq!((far.requests(), far.unanswered()), (1, (0, 0)));
    assert_eq!(content.read_at(7, 1).await.unwrap(), bytes_at("a", &(7..8)));
    assert_eq!(far.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_read_holds_a_limited_number_of_bytes() {
    let far = Arc::new(Far::new(10));
    let requests =
        JobOptions { budget_bytes: 4 * MIB, request_bytes: MIB, ..JobOptions::default() };
    let options =
        RangeReaderOptions { requests, cache_bytes: MIB, ..RangeReaderOptions::default() };
    let content = content(&far, 16 * MIB, options);
    let every = |step: u64| (0..16 * MIB / step).map(move |at| at * step..at * step + 10);
    let whole = 0..16 * MIB;
    for ranges in [vec![whole], every(512 * KIB).collect()] {
        let before = far.log().fetched_bytes();
        let reading = content.fetch(&ranges);
        sleep(Duration::from_secs(1)).await;
        // Half as many bytes again may be gaps between the needed ones.
        assert!(far.log().fetched_bytes() - before <= 6 * MIB);
        let all = reading.await.unwrap();
        assert!(all.into_iter().eq(ranges.iter().map(|range| bytes_at("a", range))));
    }
}

#[test]
fn several_threads_can_use_one_reader() {
    fn check<T: Clone + Send + Sync + Unpin + 'static>() {}
    check::<RangeReader>();
}
