//! Forgetting commits and collecting the garbage, here and at a remote.
//!
//! All commits are saved before the timed part. Each run starts from a copy of the store. snap
//! trusts neither the index nor the packs of a copied store, so `verify --data` hashes them before
//! the run; without that, the time would include work that the original store does not need.

use std::{
    cell::{Cell, RefCell},
    path::Path,
    rc::Rc,
    thread::{self, JoinHandle},
    time::Duration,
};

use fs_err as fs;
use snap_testkit::trees;

use super::{Bench, Rows, check, remote::Ground};
use crate::{
    Result,
    bucket::{Bucket, Way},
    contest::{Contestant, hold},
    keepers::{self, At, Commit, Keeper, SnapKeeper},
    measure::Call,
    place::{copy, empty, remove},
    table::{Row, Target},
    tools::{Restic, Snap, Tool},
};

const FILE_BYTES: usize = 1024;
const MIB: f64 = 1_048_576.0;

/// A fifth of the figure of restic.
const FIFTH: Target = Target::Times(0.2, "restic");

/// The store that was not collected.
const BEFORE: &str = "snap before gc";

/// Latency of each request of a timed call.
const LATENCY: Duration = Duration::from_millis(50);

/// Collects a remote without garbage, and prints the statistics as JSON.
const GC: &str = "snap --json gc origin --now --stats";

/// Also deletes at the remote what was forgotten here.
const GC_FORGOTTEN: &str = "snap --json gc origin --now --forgotten --stats";

/// Keeps the last `$3` snapshots, makes a clone in the folder `$4`, and commits a file there. After a
/// second, no pack in the bucket is young.
const FORGET_AND_CLONE: &str = r#"
snap config set gc.undo 0s; snap config set gc.grace 1s; snap forget --keep-last "$3"
cd "$4"; "$SNAP" -q clone "$2" .; echo new > new; "$SNAP" -q commit --replace -m new > /dev/null; sleep 1"#;

/// Forgets and deletes all but the last `$1` snapshots.
const RESTIC_FORGET: &str = r#"restic -q forget --keep-last "$1" --prune"#;

/// A number of commits of a folder of text files.
struct History {
    files: usize,
    /// In each commit, one of this number of files has new content: the same files each time.
    every: usize,
    commits: usize,
}

impl History {
    /// Makes the files, and saves all commits with each tool.
    fn save(&self, tools: &[Box<dyn Tool>], data: &Path) -> Result<()> {
        trees::text_files(data, self.files, FILE_BYTES)?;
        for tool in tools {
            tool.fresh()?;
        }
        for number in 0..self.commits {
            trees::change_text_files(data, self.files, self.every, number as u64)?;
            for tool in tools {
                tool.save().run()?;
            }
        }
        Ok(())
    }
}

pub(super) fn forget(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let (commits, kept) = (bench.args.scale(10_000, 60), bench.args.scale(100, 10));
    let data = bench.place.join("data");
    History { files: 10, every: 10, commits }.save(&bench.tools(&data, &[], ""), &data)?;
    let (snap, pristine) = (bench.snap(&data), bench.place.join("pristine snap"));
    copy(&snap.store, &pristine)?;
    let keep = kept.to_string();
    let contestant = Contestant {
        prepare: Box::new(|| snap.put_back(&pristine)),
        check: Box::new(|| {
            let log = snap.call().args(["log", "--oneline"]).output()?;
            let gone = log.lines().filter(|line| line.contains("(forgotten)")).count();
            match gone == commits - kept {
                true => Ok(()),
                false => Err(format!("it forgot {gone} of {commits} commits").into()),
            }
        }),
        ..Contestant::plain("snap", || snap.call().args(["forget", "--keep-last", &keep]))
    };
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), vec![contestant])?;
    let work = format!("forget ({commits} commits, last {kept} kept)");
    let rows = bench.rows(&work, &scores);
    Ok(vec![rows.time(Target::AtMost(0.2)), rows.memory(Target::None)])
}

/// Marks the objects of commits that change all files.
pub(super) fn mark(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let (files, commits) = (bench.args.scale(100_000, 2_000), bench.args.scale(100, 10));
    let data = bench.place.join("data");
    let snap = bench.snap(&data);
    snap.fresh()?;
    for version in 0..commits {
        for number in 0..files {
            let folder = data.join(format!("{:05}", number / 100));
            if version == 0 && number % 100 == 0 {
                fs::create_dir_all(&folder)?;
            }
            fs::write(folder.join((number % 100).to_string()), format!("{version} {number}"))?;
        }
        snap.save().run()?;
    }
    remove(&data)?;
    let call = || snap.call().args(["gc", "--now", "-n"]);
    let scores =
        hold(bench.place, bench.args.runs, |_| Ok(()), vec![Contestant::plain("snap", call)])?;
    let work = format!("marking ({commits} commits, {files} files, all changed each time)");
    let rows = bench.rows(&work, &scores);
    Ok(vec![rows.time(Target::AtMost(30.0)), rows.memory(Target::AtMost(300.0 * MIB))])
}

pub(super) fn local(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let (files, commits) = (bench.args.scale(15_000, 500), bench.args.scale(500, 20));
    let keep = (commits / 10).to_string();
    let (data, into) = (bench.place.join("data"), bench.place.join("checked"));
    let tools = bench.tools(&data, &["restic"], "restic");
    History { files, every: 100, commits }.save(&tools, &data)?;
    bench.place.settle();
    let (snap, restic) = (bench.snap(&data), local_restic(bench, &data));
    // Adds the files of the last commit to the stat cache. Nothing changed, so it makes no commit.
    snap.save().run()?;
    let (pristine, pristine_restic) =
        (bench.place.join("pristine snap"), bench.place.join("pristine restic"));
    copy(&snap.store, &pristine)?;
    let sizes =
        tools.iter().map(|tool| Ok(tool.stored_bytes()?.0)).collect::<Result<Vec<u64>>>()?;
    let check_collected = |tool: &dyn Tool, before: u64| -> Result<()> {
        check(tool, &data, &into)?;
        check_shrunk(before, tool.stored_bytes()?.0)
    };
    let mut contestants = vec![Contestant {
        prepare: Box::new(|| snap.put_back(&pristine)),
        check: Box::new(|| {
            snap.call().arg("verify").run()?;
            check_collected(&snap, sizes[0])
        }),
        ..Contestant::plain("snap", || collect(&snap, &keep))
    }];
    if tools.len() > 1 {
        copy(&restic.home, &pristine_restic)?;
        contestants.push(Contestant {
            prepare: Box::new(|| copy(&pristine_restic, &restic.home)),
            check: Box::new(|| check_collected(&restic, sizes[1])),
            ..Contestant::plain("restic", || {
                restic.call().args(["forget", "--keep-last", &keep, "--prune"])
            })
        });
    }
    let scores = hold(bench.place, bench.args.runs.min(3), |_| Ok(()), contestants)?;
    let work = format!("forget and gc ({commits} commits, {files} files, last {keep} kept)");
    let made = bench.rows(&work, &scores);
    Ok(vec![
        made.time(FIFTH),
        made.memory(Target::None),
        made.stored(&tools, Target::None),
        commit_after(bench, &snap, &pristine, &keep)?,
    ])
}

/// Measures the first commit after a collection, beside one in a store that was not collected. In
/// both, the files are those of the last commit.
fn commit_after(bench: &Bench<'_>, snap: &Snap, pristine: &Path, keep: &str) -> Result<Row> {
    let into = bench.place.join("checked");
    let before = Snap { store: bench.place.join("snap-store-before"), ..bench.snap(&snap.data) };
    let contestants = vec![
        Contestant {
            prepare: Box::new(|| {
                snap.put_back(pristine)?;
                collect(snap, keep).run()
            }),
            check: Box::new(|| check(snap, &snap.data, &into)),
            ..Contestant::plain("snap after gc", || snap.save())
        },
        Contestant {
            prepare: Box::new(|| before.put_back(pristine)),
            ..Contestant::plain(BEFORE, || before.save())
        },
    ];
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), contestants)?;
    let rows = bench.rows("commit after a gc, nothing changed", &scores);
    Ok(rows.time(Target::Times(1.2, BEFORE)))
}

pub(super) fn remote(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let (files, commits) = (bench.args.scale(2_000, 200), bench.args.scale(100, 10));
    let keep = (commits / 2).to_string();
    let data = bench.place.join("data");
    let tools = bench.tools(&data, &["restic"], "restic");
    History { files, every: 10, commits }.save(&tools, &data)?;
    let (store, local) = (bench.snap(&data).store, local_restic(bench, &data));
    let bucket = Bucket::open(bench.args.s3, Way::Counted)?;
    let ground = Ground { bench, bucket: &bucket, data: &data, keepers: Vec::new() };
    let at = |name: &str| At {
        bucket: &bucket,
        data: data.clone(),
        home: bench.place.join(&format!("keeper {name}")),
        prefix: Default::default(),
    };
    let snap = SnapKeeper::new(bench.snap, at("snap"), Commit::Before);
    let restic = keepers::Restic(at("restic"));
    let place = format!("{}, {}", bucket.server, bench.place.name);

    snap.fresh_with(&store)?;
    snap.shell(GC).run()?;
    let delay = || {
        bucket.delay(LATENCY);
        Ok(())
    };
    let check = || {
        bucket.delay(Duration::ZERO);
        ground.check(&snap)
    };
    let idle = ground.contestant(&snap, delay, || snap.shell(GC), check);
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), vec![idle])?;
    let work = format!("gc at a remote, nothing to do ({commits} commits, 50 ms)");
    let made = Rows { place: &place, ..bench.rows(&work, &scores) };
    let mut rows = vec![made.counted("requests", Target::AtMost(5.0)), made.time(Target::None)];

    let push = || {
        snap.fresh_with(&store)?;
        snap.shell(r#"snap forget --keep-last "$3""#).arg(&keep).run()
    };
    let mut contestants = vec![collector(&ground, &snap, push, || snap.shell(GC_FORGOTTEN))];
    if tools.len() > 1 {
        let upload = || restic.fresh_with(&local);
        let forget = || restic.shell(RESTIC_FORGET).arg(&keep);
        contestants.push(collector(&ground, &restic, upload, forget));
    }
    // Each run needs another upload, so only one is timed.
    let scores = hold(bench.place, 1, |_| Ok(()), contestants)?;
    let work = format!("gc at a remote, half is garbage ({commits} commits, 50 ms)");
    let made = Rows { place: &place, ..bench.rows(&work, &scores) };
    rows.extend([made.counted("requests", FIFTH), made.time(FIFTH), made.memory(Target::None)]);
    rows.push(push_beside(&ground, &snap, &place, (&store, &keep))?);
    Ok(rows)
}

/// Measures a push from a clone while a collection without `--now` deletes half of the commits, beside
/// the same push alone. In each round the collection begins 0.2 s earlier than in the one before.
fn push_beside(
    ground: &Ground<'_>,
    snap: &SnapKeeper<'_>,
    place: &str,
    (store, keep): (&Path, &str),
) -> Result<Row> {
    const ALONE: &str = "snap alone";
    let (clone, head_start) = (ground.bench.place.join("clone"), Cell::new(Duration::ZERO));
    let (stored, filled_bytes) = (|| ground.bucket.stored_bytes(&snap.prefix()), Cell::new(0));
    let fill = || -> Result<()> {
        ground.bucket.delay(Duration::ZERO);
        snap.fresh_with(store)?;
        empty(&clone)?;
        snap.shell(FORGET_AND_CLONE).arg(keep).arg(&clone).run()?;
        filled_bytes.set(stored()?);
        ground.bucket.delay(LATENCY);
        Ok(())
    };
    let push = || snap.shell(r#"cd "$3"; "$SNAP" -q push"#).arg(&clone);
    let running = RefCell::new(None::<JoinHandle<std::result::Result<(), String>>>);
    let start = || {
        fill()?;
        let call = snap.shell("snap gc origin --forgotten");
        let collect = move || call.run().map_err(|error| error.to_string());
        running.replace(Some(thread::spawn(collect)));
        thread::sleep(head_start.get());
        Ok(())
    };
    let end = || {
        running
            .take()
            .and_then(|thread| thread.join().ok())
            .ok_or("the collection did not run")??;
        ground.bucket.delay(Duration::ZERO);
        check_shrunk(filled_bytes.get(), stored()?)?;
        snap.shell(r#"cd "$3"; "$SNAP" -q verify origin"#).arg(&clone).run()?;
        Ok(None)
    };
    let contestants = vec![
        Contestant {
            prepare: Box::new(start),
            count: Box::new(end),
            ..Contestant::plain("snap", push)
        },
        Contestant { prepare: Box::new(fill), ..Contestant::plain(ALONE, push) },
    ];
    let change = |round: usize| {
        head_start.set(Duration::from_millis(200) * round as u32);
        Ok(())
    };
    let scores = hold(ground.bench.place, ground.bench.args.runs.max(5), change, contestants)?;
    ground.bucket.delay(Duration::ZERO);
    let rows = ground.bench.rows("push beside a gc (50 ms)", &scores);
    Ok(Rows { place, ..rows }.time(Target::Times(1.5, ALONE)))
}

/// Makes a contestant that collects a remote which `fill` has made before each run. Only `call` has
/// latency.
fn collector<'c>(
    ground: &'c Ground<'_>,
    keeper: &'c dyn Keeper,
    fill: impl Fn() -> Result<()> + 'c,
    call: impl Fn() -> Call + 'c,
) -> Contestant<'c> {
    let stored = move || ground.bucket.stored_bytes(&keeper.prefix());
    let filled_bytes = Rc::new(Cell::new(0));
    let before = Rc::clone(&filled_bytes);
    let prepare = move || -> Result<()> {
        ground.bucket.delay(Duration::ZERO);
        fill()?;
        filled_bytes.set(stored()?);
        ground.bucket.delay(LATENCY);
        Ok(())
    };
    let check = move || -> Result<()> {
        ground.bucket.delay(Duration::ZERO);
        check_shrunk(before.get(), stored()?)?;
        ground.check(keeper)
    };
    ground.contestant(keeper, prepare, call, check)
}

/// Returns restic as [`Bench::tools`] makes it.
fn local_restic(bench: &Bench<'_>, data: &Path) -> Restic {
    Restic { data: data.to_owned(), home: bench.place.join("tool restic") }
}

/// Returns the call that forgets all but the last `keep` commits and deletes their garbage.
fn collect(snap: &Snap, keep: &str) -> Call {
    let line = r#""$1" -q --store "$2" forget --keep-last "$3" && "$1" -q --store "$2" gc --now"#;
    Call::shell(line).arg(&snap.program).arg(&snap.store).arg(keep)
}

fn check_shrunk(before_bytes: u64, after_bytes: u64) -> Result<()> {
    match after_bytes < before_bytes {
        true => Ok(()),
        false => Err(format!("nothing freed: {before_bytes} bytes, then {after_bytes}").into()),
    }
}
