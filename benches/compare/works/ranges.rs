//! Measures the range planner on many ranges of one object of 1 GiB, with a latency of 100 ms for
//! each request. Runs in this process, with default limits and a new client for each run.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use snap_nettest::Counts;
use snap_remote::ranges::{JobOptions, LinkEstimate, NeededRange, RangeJob, RangePlanner};
use snap_testkit::{bytes::Corpus, rng::Rng};

use super::Bench;
use crate::{
    Result,
    bucket::{Bucket, Way, runtime},
    measure::Samples,
    table::{Row, Target, Unit},
};

const LATENCY: Duration = Duration::from_millis(100);
const OBJECT_BYTES: u64 = 1 << 30;
const KEY: &str = "object";

/// Length of the block that the object repeats; not a multiple of any read length.
const BLOCK_BYTES: usize = (8 << 20) - 9;

const RANGE_BYTES: u64 = 4 << 10;

const FRAGMENT_BYTES: u64 = 24 << 20;
const PAGES: u64 = 6;
const PAGE_BYTES: u64 = 16 << 10;

/// The object in its bucket.
struct Object {
    bucket: Bucket,
    prefix: String,
    block: Vec<u8>,
}

impl Object {
    fn put(bench: &Bench<'_>) -> Result<Self> {
        let bucket = Bucket::open(bench.args.s3, Way::Counted)?;
        let prefix = bucket.fresh();
        let block = Corpus::Random.make(BLOCK_BYTES);
        let mut all = Vec::with_capacity(OBJECT_BYTES as usize);
        while all.len() < all.capacity() {
            let missing = all.capacity() - all.len();
            all.extend_from_slice(&block[..block.len().min(missing)]);
        }
        bucket.put(&prefix, KEY, all.into())?;
        bucket.delay(LATENCY);
        Ok(Self { bucket, prefix, block })
    }

    /// Returns true if these are the bytes of a range.
    fn holds(&self, range: &Range<u64>, bytes: &[u8]) -> bool {
        let start = (range.start % self.block.len() as u64) as usize;
        let wanted = self.block[start..].iter().chain(self.block.iter().cycle());
        bytes.len() as u64 == range.end - range.start
            && bytes.iter().zip(wanted).all(|(a, b)| a == b)
    }

    fn planner(&self) -> Result<RangePlanner> {
        let (client, link) = (self.bucket.client(&self.prefix)?, Arc::<LinkEstimate>::default());
        Ok(RangePlanner::new(Arc::new(client), link, JobOptions::default()))
    }

    /// Receives all pieces of a job and checks them.
    async fn take(&self, mut job: RangeJob, wanted: &[NeededRange]) -> Result<()> {
        while let Some(piece) = job.next_in_order().await {
            if !self.holds(&wanted[piece.position].range, &piece.bytes?) {
                return Err(format!("range {} has wrong bytes", piece.position).into());
            }
        }
        Ok(())
    }

    /// Returns the times of several runs, and the requests of the last one.
    fn time(&self, runs: usize, run: impl Fn() -> Result<()>) -> Result<(Samples, Counts)> {
        run()?;
        let (mut samples, mut counts) = (Samples::default(), Counts::default());
        for _ in 0..runs {
            self.bucket.counts();
            let begin = Instant::now();
            run()?;
            samples.push(begin.elapsed());
            counts = self.bucket.counts().unwrap_or_default();
        }
        Ok((samples, counts))
    }

    fn row(&self, work: &str, measure: &'static str, figure: (Unit, Option<f64>)) -> Row {
        Row {
            work: work.to_owned(),
            place: self.bucket.server.to_owned(),
            measure,
            unit: figure.0,
            snap: figure.1,
            detail: String::new(),
            peers: Vec::new(),
            target: Target::None,
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // Leftover objects are in a folder that is removed as a whole.
        let _ = self.bucket.forget(&self.prefix);
    }
}

fn wanted(start: u64, bytes: u64) -> NeededRange {
    NeededRange { key: KEY.into(), range: start..start + bytes }
}

pub(super) fn scattered(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let object = Object::put(bench)?;
    let mut rng = Rng::new(7);
    let count = bench.args.scale(500, 50);
    let ranges: Vec<NeededRange> =
        (0..count).map(|_| wanted(rng.below(OBJECT_BYTES - RANGE_BYTES), RANGE_BYTES)).collect();
    let runtime = runtime()?;
    let (samples, counts) = object.time(bench.args.runs, || {
        runtime.block_on(async {
            let job = object.planner()?.start(ranges.clone());
            object.take(job, &ranges).await
        })
    })?;
    let work = format!("{count} scattered ranges of 1 GiB, {} ms", LATENCY.as_millis());
    let needed = count as u64 * RANGE_BYTES;
    let share = counts.received_bytes as f64 / needed as f64;
    Ok(vec![
        Row {
            target: Target::AtMost(4.0 * LATENCY.as_secs_f64()),
            detail: samples.shown_range(),
            ..object.row(&work, "time", (Unit::Secs, samples.median_secs()))
        },
        object.row(&work, "requests", (Unit::Count, Some(counts.total as f64))),
        Row {
            target: Target::AtMost(1.5),
            ..object.row(&work, "bytes fetched / needed", (Unit::Ratio, Some(share)))
        },
    ])
}

/// Reads the pages of many fragments. The positions of a fragment's pages are known only after its
/// first page has arrived.
pub(super) fn fragments(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let object = Object::put(bench)?;
    let fragments = bench.args.scale(40, 4) as u64;
    let runtime = runtime()?;
    let (eager, counts) =
        object.time(bench.args.runs, || runtime.block_on(read_at_once(&object, fragments)))?;
    let (lazy, _) =
        object.time(bench.args.runs, || runtime.block_on(read_one_by_one(&object, fragments)))?;
    let work = format!("{fragments} fragments × {PAGES} pages, {} ms", LATENCY.as_millis());
    Ok(vec![
        Row {
            // One sixth.
            target: Target::Times(0.166, "lazy"),
            detail: eager.shown_range(),
            peers: lazy.median_secs().map(|secs| ("lazy".to_owned(), secs)).into_iter().collect(),
            ..object.row(&work, "time, eager", (Unit::Secs, eager.median_secs()))
        },
        object.row(&work, "requests", (Unit::Count, Some(counts.total as f64))),
    ])
}

fn page(fragment: u64, page: u64) -> NeededRange {
    // The pages are too far apart to be merged into one request.
    wanted(fragment * FRAGMENT_BYTES + page * (FRAGMENT_BYTES / (PAGES + 2)), PAGE_BYTES)
}

async fn read_one_by_one(object: &Object, fragments: u64) -> Result<()> {
    let planner = object.planner()?;
    for at in 0..fragments * PAGES {
        let wanted = [page(at / PAGES, at % PAGES)];
        object.take(planner.start(wanted.to_vec()), &wanted).await?;
    }
    Ok(())
}

async fn read_at_once(object: &Object, fragments: u64) -> Result<()> {
    let planner = object.planner()?;
    let first: Vec<NeededRange> = (0..fragments).map(|fragment| page(fragment, 0)).collect();
    let mut job = planner.start(first.clone());
    let mut others = Vec::new();
    while let Some(piece) = job.next().await {
        if !object.holds(&first[piece.position].range, &piece.bytes?) {
            return Err("a first page has wrong bytes".into());
        }
        let fragment = piece.position as u64;
        let pages: Vec<NeededRange> = (1..PAGES).map(|at| page(fragment, at)).collect();
        others.push((planner.start(pages.clone()), pages));
    }
    for (job, pages) in others {
        object.take(job, &pages).await?;
    }
    Ok(())
}
