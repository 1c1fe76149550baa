//! Two binaries of snap on the same data: the one to measure, and an older one.
//!
//! Both take turns in each round. Each has a store, a server and a bucket of its own, made by itself.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
};

use snap_testkit::trees;

use super::{
    Bench,
    small_files::{self, CHANGED_EVERY},
};
use crate::{
    Result,
    bucket::{Bucket, Server, Way},
    contest::{Contestant, hold},
    measure::Call,
    place::{copy, empty},
    table::{Row, Target},
    tools::Snap,
    web::Web,
};

const OLD: &str = "old";

/// How much slower than the old binary the new one may be.
const TARGET: Target = Target::Times(1.03, OLD);

/// The new binary may send as many requests as the old one.
const REQUESTS: Target = Target::Times(1.0, OLD);

/// A commit without changes takes so little time that it needs this many times as many rounds.
const UNCHANGED_ROUNDS: usize = 4;

/// A binary with its store, its server and its bucket.
struct Side {
    name: &'static str,
    snap: Snap,
    web: Web,
    /// The number of repositories that were pushed to.
    pushes: Cell<usize>,
    pulled: PathBuf,
    bucket: Bucket,
    place_in_bucket: String,
    /// A project whose remote `origin` is the bucket.
    project: PathBuf,
    /// The number of changes of the project.
    versions: Cell<usize>,
    cloned: PathBuf,
}

impl Side {
    fn new(bench: &Bench<'_>, name: &'static str, program: &Path, data: &Path) -> Result<Self> {
        let place = |what: &str| bench.place.join(&format!("{what} of {name}"));
        let served = place("server");
        empty(&served)?;
        let (program, data) = (program.to_owned(), data.to_owned());
        let web = Web::snap(&program, &served)?;
        let snap = Snap { program, data, store: place("store") };
        let bucket = Bucket::open(Server::Inside, Way::Counted)?;
        let side = Self {
            name,
            snap,
            web,
            pushes: Cell::new(0),
            pulled: place("pull"),
            place_in_bucket: format!("s3://{}", bucket.fresh()),
            bucket,
            project: place("project"),
            versions: Cell::new(0),
            cloned: place("clone"),
        };
        copy(&side.snap.data, &side.project)?;
        bench.place.settle();
        side.within().arg("commit").run()?;
        side.within().args(["remote", "add", "origin", &side.place_in_bucket]).run()?;
        side.within().args(["push", "origin", "main"]).run()?;
        Ok(side)
    }

    /// Calls the program in the project.
    fn within(&self) -> Call {
        self.program().dir(&self.project).vars(self.bucket.environment())
    }

    /// Makes a contestant whose requests to the bucket are counted.
    fn in_bucket<'c>(
        &'c self,
        mut prepare: impl FnMut() -> Result<()> + 'c,
        call: impl Fn() -> Call + 'c,
        check: impl Fn() -> Call + 'c,
    ) -> Contestant<'c> {
        Contestant {
            name: self.name.to_owned(),
            prepare: Box::new(move || {
                prepare()?;
                let _before = self.bucket.requests();
                Ok(())
            }),
            call: Box::new(call),
            check: Box::new(move || check().run()),
            count: Box::new(|| Ok(self.bucket.requests())),
        }
    }

    /// Pushes a commit in which every hundredth file has changed.
    fn push_to_bucket(&self, files: usize) -> Contestant<'_> {
        let change = move || {
            let version = self.next_version() as u64;
            trees::change_text_files(&self.project, files, CHANGED_EVERY, version)?;
            self.within().arg("commit").run()
        };
        let push = || self.within().args(["push", "origin", "main"]);
        self.in_bucket(change, push, || self.within().args(["verify", "origin"]))
    }

    /// Collects the bucket after a branch with a new file was deleted there.
    fn collect_bucket(&self) -> Contestant<'_> {
        let delete = || {
            fs_err::write(self.project.join("garbage"), self.next_version().to_string())?;
            for args in [
                &["commit", "-b", "side"][..],
                &["push", "origin", "side"],
                &["push", "origin", "--delete", "side"],
                &["branch", "-d", "side"],
            ] {
                self.within().args(args).run()?;
            }
            Ok(())
        };
        let collect = || self.within().args(["gc", "origin", "--now"]);
        self.in_bucket(delete, collect, || self.within().args(["verify", "origin"]))
    }

    fn clone_bucket(&self) -> Contestant<'_> {
        let of = |call: Call| call.vars(self.bucket.environment());
        let clone =
            move || of(self.program().args(["clone", &self.place_in_bucket]).arg(&self.cloned));
        let check = || self.program().args(["verify", "--data"]).dir(&self.cloned);
        self.in_bucket(|| empty(&self.cloned), clone, check)
    }

    fn next_version(&self) -> usize {
        self.versions.set(self.versions.get() + 1);
        self.versions.get()
    }

    fn program(&self) -> Call {
        Call::new(&self.snap.program).arg("-q")
    }

    /// Each push goes to a new repository.
    fn url(&self) -> String {
        format!("{}/push-{}", self.web.url, self.pushes.get())
    }

    fn push(&self) -> Contestant<'_> {
        Contestant {
            prepare: Box::new(|| {
                self.pushes.set(self.pushes.get() + 1);
                Ok(())
            }),
            ..Contestant::plain(self.name, || self.snap.call().args(["push", &self.url(), "main"]))
        }
    }

    /// Pulls what was pushed last.
    fn pull(&self) -> Contestant<'_> {
        let pull = || self.program().args(["pull", &self.url(), "main"]).dir(&self.pulled);
        Contestant {
            prepare: Box::new(|| {
                empty(&self.pulled)?;
                self.program().arg("init").dir(&self.pulled).run()
            }),
            check: Box::new(|| self.program().args(["verify", "--data"]).dir(&self.pulled).run()),
            ..Contestant::plain(self.name, pull)
        }
    }
}

/// Measures the everyday works: first commit, commit of nothing new, restore, push, pull, clone, gc.
pub(crate) fn run(bench: &Bench<'_>, old: &Path) -> Result<Vec<Row>> {
    let (data, files) = (small_files::data(bench)?, small_files::files(bench));
    let new = Side::new(bench, "snap", bench.snap, &data)?;
    let sides = [new, Side::new(bench, OLD, old, &data)?];
    let mut rows = Vec::new();
    let mut measure = |work: &str,
                       rounds: usize,
                       contestant: &dyn Fn(&'_ Side) -> Contestant<'_>|
     -> Result<()> {
        let contestants = sides
            .iter()
            .map(|side| Contestant { name: side.name.to_owned(), ..contestant(side) })
            .collect();
        let scores = hold(bench.place, rounds, |_| Ok(()), contestants)?;
        let of_work = bench.rows(work, &scores);
        rows.push(of_work.time(TARGET));
        if scores.iter().any(|score| !score.counted.is_empty()) {
            rows.push(of_work.counted("requests", REQUESTS));
        }
        Ok(())
    };
    let (runs, many) = (bench.args.runs, bench.args.runs * UNCHANGED_ROUNDS);
    measure("first-commit", runs, &|side| bench.saver(&side.snap, &side.snap.data, true))?;
    measure("unchanged", many, &|side| bench.saver(&side.snap, &side.snap.data, false))?;
    measure("restore", runs, &|side| bench.restorer(&side.snap, &side.snap.data))?;
    measure("serve-push", runs, &Side::push)?;
    measure("serve-pull", runs, &Side::pull)?;
    measure("clone", runs, &Side::clone_bucket)?;
    measure("push-changed", runs, &|side| side.push_to_bucket(files))?;
    measure("gc-remote", runs, &Side::collect_bucket)?;
    Ok(rows)
}
