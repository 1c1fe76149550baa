//! 10,000 text files of 4 KiB in a bucket: first push, a push with 1 % of the files changed, a push
//! without changes, a clone, and one file. Each runs with and without latency.
//!
//! The proxy's request count is compared with the count that snap reports.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use fs_err as fs;
use snap_testkit::trees;

use super::{Bench, Rows, same, small_files};
use crate::{
    Result,
    bucket::{Bucket, Way},
    contest::{Contestant, Score, hold},
    keepers::{At, Commit, KEEPERS, Keeper, SnapKeeper, keeper},
    measure::is_installed,
    place::{empty, remove},
    table::{Row, Target},
};

const MIB: f64 = 1_048_576.0;

/// Latency added to each request.
const LATENCIES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(50)];

/// The limits that the issue sets for a work.
#[derive(Clone, Copy, Debug)]
struct Limits {
    requests: f64,
    /// The time limit with latency.
    secs: Target,
}

/// A folder, a bucket, and the programs that save the folder in the bucket.
pub(super) struct Ground<'g> {
    pub(super) bench: &'g Bench<'g>,
    pub(super) bucket: &'g Bucket,
    pub(super) data: &'g Path,
    pub(super) keepers: Vec<Box<dyn Keeper + 'g>>,
}

impl<'g> Ground<'g> {
    /// Makes the ground with snap and with those of `peers` that are installed and wanted.
    pub(super) fn new(
        bench: &'g Bench<'g>,
        bucket: &'g Bucket,
        data: &'g Path,
        peers: &[&str],
    ) -> Self {
        let mut ground = Self { bench, bucket, data, keepers: Vec::new() };
        ground.keepers.push(ground.snap("snap", Commit::Before));
        for name in KEEPERS.into_iter().filter(|name| peers.contains(name)) {
            if bench.wants(name) && is_installed(name) {
                ground.keepers.extend(keeper(name, bucket, data, ground.home(name)));
            }
        }
        ground
    }

    /// Adds a second snap whose time includes the commit.
    fn with_commits(mut self) -> Self {
        self.keepers.insert(1, self.snap("snap-and-commit", Commit::Within));
        self
    }

    fn home(&self, name: &str) -> PathBuf {
        self.bench.place.join(&format!("keeper {name}"))
    }

    fn snap(&self, name: &str, commit: Commit) -> Box<dyn Keeper + 'g> {
        let (bucket, data) = (self.bucket, self.data.to_owned());
        let at = At { bucket, data, home: self.home(name), prefix: Default::default() };
        Box::new(SnapKeeper::new(self.bench.snap, at, commit))
    }

    /// Saves everything once, without latency.
    pub(super) fn save_all(&self) -> Result<()> {
        self.bucket.delay(Duration::ZERO);
        self.keepers.iter().try_for_each(|keeper| {
            keeper.fresh()?;
            keeper.first().run()?;
            keeper.told().map(drop)
        })
    }

    /// Returns the number of requests of the last call. Returns an error if a keeper reports
    /// another number.
    fn requests(&self, keeper: &dyn Keeper) -> Result<Option<u64>> {
        let seen = self.bucket.requests();
        match (seen, keeper.told()?) {
            (Some(seen), Some(told)) if seen != told => {
                Err(format!("it reports {told} requests, the proxy counted {seen}").into())
            }
            _ => Ok(seen),
        }
    }

    /// Makes a contestant whose requests are counted.
    pub(super) fn contestant<'c>(
        &'c self,
        keeper: &'c dyn Keeper,
        prepare: impl Fn() -> Result<()> + 'c,
        call: impl Fn() -> crate::measure::Call + 'c,
        check: impl Fn() -> Result<()> + 'c,
    ) -> Contestant<'c> {
        Contestant {
            name: keeper.name().to_owned(),
            prepare: Box::new(move || {
                prepare()?;
                self.bucket.requests();
                Ok(())
            }),
            call: Box::new(call),
            check: Box::new(check),
            count: Box::new(|| self.requests(keeper)),
        }
    }

    /// Checks that a keeper restores the data that it saved.
    pub(super) fn check(&self, keeper: &dyn Keeper) -> Result<()> {
        let into = self.bench.place.join("checked");
        empty(&into)?;
        keeper.forget()?;
        keeper.restore(&into).run()?;
        keeper.told()?;
        same(self.data, &into, &keeper.keeps())?;
        remove(&into)
    }

    /// Runs a contest for each latency, and makes rows of the scores.
    fn contests<'c>(
        &'c self,
        work: &str,
        limits: Limits,
        change: &dyn Fn() -> Result<()>,
        contestant: &dyn Fn(&'c dyn Keeper) -> Contestant<'c>,
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for latency in LATENCIES {
            let contestants = self.keepers.iter().map(|keeper| contestant(&**keeper)).collect();
            self.bucket.delay(latency);
            let (place, runs) = (self.bench.place, self.bench.args.runs);
            let scores = hold(place, runs, |_| change(), contestants)?;
            let secs = if latency.is_zero() { Target::None } else { limits.secs };
            let delayed = format!("{} ms", latency.as_millis());
            rows.extend(self.rows(
                &format!("{work}, {delayed}"),
                Limits { secs, ..limits },
                scores,
            ));
        }
        Ok(rows)
    }

    /// Makes the rows of snap, and one of the snap whose time includes the commit.
    fn rows(&self, work: &str, limits: Limits, mut scores: Vec<Score>) -> Vec<Row> {
        let place = format!("{}, {}", self.bucket.server, self.bench.place.name);
        let committing = scores
            .iter()
            .position(|score| score.name != "snap")
            .filter(|&at| scores[at].name.starts_with("snap"));
        let committing = committing.map(|at| scores.remove(at));
        let told = self.bench.rows(work, &scores);
        let rows = Rows { place: &place, ..told };
        let mut made = vec![
            rows.counted("requests", Target::AtMost(limits.requests)),
            rows.time(limits.secs),
            rows.memory(Target::AtMost(200.0 * MIB)),
        ];
        if let Some(score) = committing {
            scores[0] = score;
            let work = format!("commit and {work}");
            let told = self.bench.rows(&work, &scores[..1]);
            made.push(Rows { place: &place, scores: &scores, ..told }.time(Target::None));
        }
        made
    }
}

const RESTIC: [&str; 1] = ["restic"];

pub(super) fn first(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = small_files::data(bench)?;
    let bucket = Bucket::open(bench.args.s3, Way::Counted)?;
    let ground = Ground::new(bench, &bucket, &data, &RESTIC).with_commits();
    let limits = Limits { requests: 10.0, secs: Target::AtMost(0.7) };
    ground.contests("push", limits, &|| Ok(()), &|keeper| {
        ground.contestant(keeper, || keeper.fresh(), || keeper.first(), || ground.check(keeper))
    })
}

pub(super) fn changed(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = small_files::data(bench)?;
    let bucket = Bucket::open(bench.args.s3, Way::Counted)?;
    let ground = Ground::new(bench, &bucket, &data, &RESTIC).with_commits();
    ground.save_all()?;
    let version = Cell::new(0);
    // The same files each time, with new content.
    let change = || {
        version.set(version.get() + 1);
        let (files, every) = (small_files::files(bench), small_files::CHANGED_EVERY);
        trees::change_text_files(&data, files, every, version.get())?;
        thread::sleep(Duration::from_millis(100));
        Ok(())
    };
    let limits = Limits { requests: 6.0, secs: Target::AtMost(0.35) };
    ground.contests("push, 100 changed", limits, &change, &|keeper| {
        ground.contestant(keeper, || keeper.ready(), || keeper.again(), || ground.check(keeper))
    })
}

pub(super) fn nothing(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = small_files::data(bench)?;
    let bucket = Bucket::open(bench.args.s3, Way::Counted)?;
    let ground = Ground::new(bench, &bucket, &data, &RESTIC);
    ground.save_all()?;
    let limits = Limits { requests: 2.0, secs: Target::AtMost(0.12) };
    ground.contests("push, nothing new", limits, &|| Ok(()), &|keeper| {
        ground.contestant(keeper, || Ok(()), || keeper.again(), || ground.check(keeper))
    })
}

pub(super) fn clone(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = small_files::data(bench)?;
    let bucket = Bucket::open(bench.args.s3, Way::Counted)?;
    let ground = Ground::new(bench, &bucket, &data, &RESTIC);
    ground.save_all()?;
    let into = bench.place.join("cloned");
    let limits = Limits { requests: 10.0, secs: Target::AtMost(0.9) };
    ground.contests("clone", limits, &|| Ok(()), &|keeper| {
        let prepare = || {
            keeper.forget()?;
            empty(&into)
        };
        let check = || same(&data, &into, &keeper.keeps());
        ground.contestant(keeper, prepare, || keeper.restore(&into), check)
    })
}

pub(super) fn cat(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = small_files::data(bench)?;
    let bucket = Bucket::open(bench.args.s3, Way::Counted)?;
    let ground = Ground::new(bench, &bucket, &data, &RESTIC);
    ground.save_all()?;
    let file = bench.place.join("file");
    // A different file each time, far from the last one.
    let number = Cell::new(0);
    let path = || trees::text_file_path(Path::new(""), number.get() % small_files::files(bench));
    let next = || {
        number.set(number.get() + 1_237);
        Ok(())
    };
    let check = || match fs::read(&file)? == fs::read(data.join(path()))? {
        true => Ok(()),
        false => Err("the file differs".into()),
    };
    let cold = Limits { requests: 6.0, secs: Target::None };
    let mut rows = ground.contests("cat, nothing cached", cold, &next, &|keeper| {
        ground.contestant(keeper, || keeper.forget(), || keeper.cat(&path(), &file), check)
    })?;
    let warm = Limits { requests: 2.0, secs: Target::None };
    rows.extend(ground.contests("cat, index cached", warm, &next, &|keeper| {
        ground.contestant(keeper, || Ok(()), || keeper.cat(&path(), &file), check)
    })?);
    Ok(rows)
}
